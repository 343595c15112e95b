/* forge devices: the menu for --device, and what is not on it and why.
 * Over forge.h alone; what a device is and how it is found is the backends'
 * matter. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/map.h"
#include "cli/cmd.h"

struct devices_args {
    bool json, clear_kernel_cache;
    const char *kernel_cache;
};

#define F(field) offsetof(struct devices_args, field)

static const struct opt opts[] = {
    {"json", 0, OPT_FLAG, F(json), 0, NULL, NULL, NULL, "as JSON"},
    {"clear-kernel-cache", 0, OPT_FLAG, F(clear_kernel_cache), 0, NULL, NULL, NULL,
     "first delete the compiled kernels that are kept"},
    {"kernel-cache", 0, OPT_STR, F(kernel_cache), 0, "DIR", NULL, NULL,
     "folder of compiled kernels (default: forge in XDG_CACHE_HOME, else ~/.cache/forge)"},
    {0},
};

static void put_member(struct buf *b, const char *key, const char *value)
{
    buf_printf(b, ",\"%s\":", key);
    buf_put_json(b, value ? value : "", value ? strlen(value) : 0);
}

static void put_json(struct buf *b, const struct forge_devices *d)
{
    buf_puts(b, "{\"devices\":[");
    for (size_t i = 0; i < forge_devices_count(d); i++) {
        const struct forge_device *v = forge_devices_at(d, i);
        const char *number = strchr(v->selector, ':'); /* the N of opencl:N */
        buf_printf(b, "%s{\"number\":%s", i ? "," : "", number ? number + 1 : "null");
        put_member(b, "selector", v->selector);
        put_member(b, "backend", v->backend);
        put_member(b, "name", v->name);
        put_member(b, "detail", v->detail);
        buf_printf(b, ",\"mem_bytes\":%" PRIu64 "}", v->mem_size);
    }
    buf_puts(b, "],\"skipped\":[");
    for (size_t i = 0; i < forge_devices_n_skipped(d); i++) {
        const char *s = forge_devices_skipped(d, i);
        if (i)
            buf_putc(b, ',');
        buf_put_json(b, s, strlen(s));
    }
    buf_puts(b, "]}\n");
}

static void put_text(struct buf *b, const struct forge_devices *d)
{
    for (size_t i = 0; i < forge_devices_count(d); i++) {
        const struct forge_device *v = forge_devices_at(d, i);
        buf_printf(b, "%-12s %s", v->selector, v->name);
        if (v->detail && *v->detail)
            buf_printf(b, " (%s)", v->detail);
        if (v->mem_size)
            buf_printf(b, ", %.1f GiB", (double)v->mem_size / (1 << 30));
        buf_putc(b, '\n');
    }
    for (size_t i = 0; i < forge_devices_n_skipped(d); i++)
        buf_printf(b, "skipped: %s\n", forge_devices_skipped(d, i));
}

/* ---- the kernel cache ---- */
/* How many characters of a set come first. */
static size_t span(const char **s, const char *set)
{
    size_t n = strspn(*s, set);
    *s += n;
    return n;
}

static bool skip(const char **s, const char *text)
{
    size_t n = strlen(text);
    bool there = strncmp(*s, text, n) == 0;
    if (there)
        *s += n;
    return there;
}

#define DIGITS "0123456789"
#define HEX DIGITS "abcdef"

/* "-BASE.ok": the part of a device that was checked. */
static bool is_part(const char *s)
{
    size_t n = strlen(s);
    return n > 4 && s[0] == '-' && strcmp(s + n - 3, ".ok") == 0;
}

/* Exactly the names that are written there: kernels and their unfinished files (backend/opencl/cache.c), speeds
 * (gemm_speed.c), checks (backend/guard.c). */
static bool is_ours(const char *name)
{
    const char *s = name, *from;
    if (!skip(&s, "forge-"))
        return false;
    from = s;
    if (span(&s, HEX) == 32) {
        if (strcmp(s, ".clk") == 0 || is_part(s))
            return true;
        if (!skip(&s, ".gemm"))
            return false;
        return !*s || (skip(&s, ".") && span(&s, DIGITS) && strcmp(s, ".tmp") == 0);
    }
    s = from; /* PID-NUMBER-HASH.tmp */
    return span(&s, DIGITS) && skip(&s, "-") && span(&s, DIGITS) && skip(&s, "-") && span(&s, HEX) && strcmp(s, ".tmp") == 0;
}

/* A regular file, and no link to one. */
static bool is_plain(const char *path)
{
    struct stat st;
    return lstat(path, &st) == 0 && S_ISREG(st.st_mode);
}

static bool clear(const struct devices_args *a)
{
    struct common place = {.kernel_cache = a->kernel_cache};
    char *dir = common_kernel_cache(&place), **names;
    struct err err = {0};
    size_t n, n_deleted = 0;
    bool ok = true;
    if (!dir || !path_exists(dir)) {
        msg_info("%s: no compiled kernels are kept", dir ? dir : "no cache folder is known");
        free(dir);
        return true;
    }
    if (path_list(dir, &names, &n, &err) < 0) {
        msg_error("%s", err.msg);
        free(dir);
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        char *path = is_ours(names[i]) ? path_join(dir, names[i]) : NULL;
        if (path && is_plain(path) && unlink(path) == 0)
            n_deleted++;
        else if (path && is_plain(path)) {
            msg_error("%s: %s", path, strerror(errno));
            ok = false;
        }
        free(path);
    }
    path_list_free(names, n);
    msg_info("%s: deleted %zu files of the kernel cache", dir, n_deleted);
    free(dir);
    return ok;
}

static int run(void *args, const struct common *c)
{
    const struct devices_args *a = args;
    struct forge_error err = {0};
    struct forge_devices *d;
    struct buf b;
    (void)c;
    if (a->clear_kernel_cache && !clear(a))
        return EXIT_FAILED;
    if (forge_devices_list(&d, &err) < 0)
        return msg_fail(err.code, err.message);
    buf_init(&b);
    if (a->json)
        put_json(&b, d);
    else
        put_text(&b, d);
    forge_devices_free(d);
    return out_buf(&b) ? EXIT_OK : EXIT_FAILED;
}

const struct cmd cmd_devices = {
    .name = "devices",
    .summary = "List the devices that --device can name",
    .usage = "[--json] [--clear-kernel-cache]",
    .opts = opts,
    .args_size = sizeof(struct devices_args),
    .run = run,
};
