/* forge selftest: a conformance run on the user's own devices, every operation
 * against the reference, and bit for bit against the CPU.  Needs no model.
 * What the cases and bounds are is backend/selftest.h's matter. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/selftest.h"
#include "base/clock.h"
#include "cli/cmd.h"
#include "cli/tools.h"

struct selftest_cmd_args {
    bool json;
};

#define F(field) offsetof(struct selftest_cmd_args, field)

static const struct opt opts[] = {
    {"json", 0, OPT_FLAG, F(json), 0, NULL, NULL, NULL, "as JSON, every case"},
    {0},
};

/* One device's results. */
struct session {
    bool json, first;
    bool fast;      /* the bounds of --math fast */
    struct buf out; /* JSON, written at the end */
    int n_devices, n_failed;
    int n_bits, n_differ;      /* cases against cpu, and those with other bits */
    uint32_t differ[OP_COUNT]; /* types whose bits differ */
};

/* "Q4_K [7, 96] x [17, 96]   3.1e-14  1e-12  pass" */
static void on_case(void *user, const struct selftest_case *c)
{
    struct session *s = user;

    s->n_failed += !c->ok;
    if (!s->json) {
        if (!c->ok || msg_level() >= 0)
            out_printf("%-15s %-64s %9.2g %8.0g  %s%s%s\n", op_name(c->op), c->variant, c->error, c->bound,
                       c->ok ? "pass" : "FAIL", c->why ? ": " : "", c->why ? c->why : "");
        return;
    }
    buf_printf(&s->out, "%s{\"operation\":\"%s\",\"variant\":", s->first ? "" : ",\n", op_name(c->op));
    s->first = false;
    buf_put_json(&s->out, c->variant, strlen(c->variant));
    buf_puts(&s->out, ",\"error\":");
    buf_put_json_num(&s->out, c->error);
    buf_puts(&s->out, ",\"bound\":");
    buf_put_json_num(&s->out, c->bound);
    buf_printf(&s->out, ",\"pass\":%s", c->ok ? "true" : "false");
    if (c->why) {
        buf_puts(&s->out, ",\"why\":");
        buf_put_json(&s->out, c->why, strlen(c->why));
    }
    buf_putc(&s->out, '}');
}

static void on_bits(void *user, const struct selftest_case *c)
{
    struct session *s = user;

    s->n_bits++;
    if (c->ok)
        return;
    s->n_differ++;
    s->differ[c->op] |= UINT32_C(1) << c->dtype;
}

static struct backend *open_plain(const char *selector, const struct backend_params *params, struct err *err)
{
    struct backend *be[REGISTRY_MAX_INSTANCES];
    int n;
    if (registry_open(selector, params, be, &n, NULL, 0, err) != 0)
        return NULL;
    while (n > 1)
        registry_close(be[--n]);
    return be[0];
}

static bool on_stop(void *user)
{
    (void)user;
    return interrupted();
}

/* Cases against one oracle; false when that cannot be opened. */
static bool against(struct session *s, const char *oracle, struct backend *be, selftest_report *report)
{
    struct backend_params plain = {.no_selftest = true};
    struct selftest_args args = {
        .exact = report == on_bits, .types = UINT32_MAX, .others = true, .report = report, .stop = on_stop, .user = s,
        .fast = s->fast};
    struct err err = {0};
    struct backend *o = open_plain(oracle, &plain, &err);
    if (!o) {
        msg_error("%s: %s", oracle, err.msg);
        return false;
    }
    selftest_run(o, be, &args);
    registry_close(o);
    return true;
}

static void put_bits(const struct session *s, bool json, struct buf *b)
{
    if (json)
        buf_printf(b, "],\"bits_of_cpu\":{\"cases\":%d,\"different\":%d,\"operations\":[", s->n_bits,
                   s->n_differ);
    else if (s->n_differ == 0)
        buf_printf(b, "the same bits as cpu in all %d cases", s->n_bits);
    else
        buf_printf(b, "other bits than cpu in %d of %d cases:", s->n_differ, s->n_bits);
    for (int op = 0, first = 1; op < OP_COUNT; op++)
        if (s->differ[op] != 0) {
            buf_printf(b, json ? "%s\"%s\"" : "%s %s", first ? "" : ",", op_name((enum op_id)op));
            first = 0;
        }
    if (json)
        buf_puts(b, "]}");
}

/* One device; false when it failed. */
static bool test_device(struct session *s, const char *selector, const char *name,
                        const struct backend_params *params)
{
    struct err err = {0};
    double start = clock_now();
    struct backend *be = open_plain(selector, params, &err);
    bool ok = be != NULL;
    struct buf bits;

    buf_init(&bits);
    s->n_failed = s->n_bits = s->n_differ = 0;
    s->first = true;
    memset(s->differ, 0, sizeof s->differ);
    if (s->json) {
        buf_printf(&s->out, "%s{\"selector\":\"%s\",\"name\":", s->n_devices > 0 ? ",\n" : "", selector);
        buf_put_json(&s->out, name, strlen(name));
        buf_puts(&s->out, ",\"cases\":[\n");
    } else
        out_printf("== %s: %s\n", selector, name);
    s->n_devices++;
    ok = ok && against(s, "ref", be, on_case) && against(s, "cpu", be, on_bits) && s->n_failed == 0 && !interrupted();
    put_bits(s, s->json, s->json ? &s->out : &bits);
    if (s->json) {
        if (!be) {
            buf_puts(&s->out, ",\"why\":");
            buf_put_json(&s->out, err.msg, strlen(err.msg));
        }
        buf_printf(&s->out, ",\"n_failed\":%d,\"seconds\":%.3f,\"pass\":%s}", s->n_failed,
                   clock_now() - start, ok ? "true" : "false");
    } else if (interrupted())
        out_printf("== %s: interrupted\n", selector);
    else if (!be)
        out_printf("== %s: FAIL: it cannot be opened: %s\n", selector, err.msg);
    else
        out_printf("== %s: %s: %d of %d cases failed; %s; %.1f s\n", selector, ok ? "pass" : "FAIL",
                   s->n_failed, s->n_bits, buf_str(&bits), clock_now() - start);
    buf_fini(&bits);
    registry_close(be);
    return ok;
}

/* The devices that a selector or a list of them names; what they are called is in their detail. */
static int test_named(struct session *s, const char *wanted, const struct backend_params *params)
{
    struct backend *be[REGISTRY_MAX_INSTANCES];
    char selectors[REGISTRY_MAX_INSTANCES][128], names[REGISTRY_MAX_INSTANCES][128];
    struct err err = {0};
    bool ok = true;
    int n;

    if (registry_open(wanted, params, be, &n, NULL, 0, &err) != 0)
        return msg_fail(err.code, err.msg);
    for (int i = 0; i < n; i++) {
        snprintf(selectors[i], sizeof selectors[i], "%s", op_device(be[i]));
        snprintf(names[i], sizeof names[i], "%s", be[i]->detail[0] != '\0' ? be[i]->detail : be[i]->device);
        registry_close(be[i]);
    }
    for (int i = 0; i < n && !interrupted(); i++)
        ok = test_device(s, selectors[i], names[i], params) && ok;
    return interrupted() ? EXIT_INTERRUPTED : ok ? EXIT_OK : EXIT_FAILED;
}

static int test_all(struct session *s, const struct backend_params *params)
{
    struct device_list l;
    struct err err = {0};
    bool ok = true;

    if (registry_list(&l, &err) != 0)
        return msg_fail(err.code, err.msg);
    for (size_t i = 0; i < l.n_devices && !interrupted(); i++)
        ok = test_device(s, l.devices[i].selector, l.devices[i].name, params) && ok;
    device_list_free(&l);
    return interrupted() ? EXIT_INTERRUPTED : ok ? EXIT_OK : EXIT_FAILED;
}

static int run(void *args, const struct common *c)
{
    const struct selftest_cmd_args *a = args;
    struct session s = {.json = a->json};
    struct load_params p;
    char *kernel_cache = common_kernel_cache(c);
    tool_load_params(&p, c, "");
    p.backend.kernel_cache = kernel_cache;
    p.backend.no_selftest = true; /* nothing may stand in for what is tested */
    if (p.backend.gemm == GEMM_KERNELS_AUTO)
        p.backend.gemm = GEMM_KERNELS_OWN; /* nor CLBlast, and no speeds of these shapes are kept */
    p.backend.cpu_fast = false; /* auto is exact here: one set of bounds for all devices */
    s.fast = p.backend.math == MATH_FAST;
    buf_init(&s.out);
    if (s.json)
        buf_puts(&s.out, "{\"devices\":[\n");
    interrupt_catch();
    bool all = strcmp(c->device, "auto") == 0 || strcmp(c->device, "all") == 0;
    int status = all ? test_all(&s, &p.backend) : test_named(&s, c->device, &p.backend);
    free(kernel_cache);
    if (strstr(c->device, "opencl") != NULL)
        common_check_cache(c);
    if (status == EXIT_USAGE || !s.json) {
        buf_fini(&s.out);
        return status;
    }
    buf_printf(&s.out, "],\"pass\":%s}\n", status == EXIT_OK ? "true" : "false");
    return out_buf(&s.out) ? status : EXIT_FAILED;
}

const struct cmd cmd_selftest = {
    .name = "selftest",
    .summary = "Check devices: every operation against the reference",
    .usage = "[--device D] [--json]",
    .notes =
        "Runs every operation on every weight type and odd sizes, prints the error of each case beside its "
        "bound, and says whether the bits are those of the cpu backend. Without --device every device is "
        "tested; -q prints failures and verdicts only. The exit status is 1 when a device fails.",
    .opts = opts,
    .args_size = sizeof(struct selftest_cmd_args),
    .shared = {common_device_opts},
    .run = run,
};
