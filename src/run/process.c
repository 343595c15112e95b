/* The part of forge.h that needs no engine: version, names, the log, devices.
 * Only wraps base/ and backend/ into the public types, and holds the public
 * numbers equal to the internal ones. */
#include <forge.h>

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "backend/registry.h"
#include "base/log.h"
#include "base/mem.h"
#include "config.h"
#include "run/engine.h"

#define SAME(public, ours) static_assert((int)(public) == (int)(ours), #public " must equal " #ours)
SAME(FORGE_ERR_ARG, ERR_ARG);
SAME(FORGE_ERR_IO, ERR_IO);
SAME(FORGE_ERR_FORMAT, ERR_FORMAT);
SAME(FORGE_ERR_UNSUPPORTED, ERR_UNSUPPORTED);
SAME(FORGE_ERR_NOMEM, ERR_NOMEM);
SAME(FORGE_ERR_LIMIT, ERR_LIMIT);
SAME(FORGE_ERR_NUMERIC, ERR_NUMERIC);
SAME(FORGE_ERR_DEVICE, ERR_DEVICE);
SAME(FORGE_ERR_CANCELLED, ERR_CANCELLED);
SAME(FORGE_ERR_INTERNAL, ERR_INTERNAL);
SAME(FORGE_LOG_ERROR, LOG_ERROR);
SAME(FORGE_LOG_WARN, LOG_WARN);
SAME(FORGE_LOG_INFO, LOG_INFO);
SAME(FORGE_LOG_VERBOSE, LOG_VERBOSE);
SAME(FORGE_LOG_DEBUG, LOG_DEBUG);
static_assert(sizeof((struct forge_error *)0)->message == ERR_MSG_SIZE, "messages are copied whole");

const char *forge_version(void)
{
    return PACKAGE_VERSION;
}

void forge_free(void *p)
{
    free(p);
}

int engine_error(struct forge_error *out, int rc, const struct err *e)
{
    struct err silent = {0};
    assert(rc < 0);
    if (e->code == 0 || !e->msg[0]) {
        err_set(&silent, rc, "it failed without a reason (code %d)", rc);
        e = &silent;
    }
    if (out) {
        out->code = rc;
        memcpy(out->message, e->msg, sizeof out->message);
    }
    return rc;
}

int engine_params_copy(void *out, size_t size, const void *given, const char *init, struct err *err)
{
    size_t given_size;
    if (!given)
        return err_set(err, ERR_ARG, "no parameters are given");
    memcpy(&given_size, given, sizeof given_size);
    if (given_size < sizeof given_size)
        return err_set(err, ERR_ARG, "the parameters were not set up by %s", init);
    for (size_t i = size; i < given_size; i++)
        if (((const unsigned char *)given)[i])
            return err_set(err, ERR_UNSUPPORTED,
                           "the parameters set a field that this library does not know (byte %zu of %zu, %zu known)", i,
                           given_size, size);
    memcpy(out, given, given_size < size ? given_size : size);
    return 0;
}

int engine_flags_check(const char *name, unsigned flags, unsigned known, struct err *err)
{
    return flags & ~known ? err_set(err, ERR_ARG, "%s has unknown bits (0x%x)", name, flags & ~known) : 0;
}

const char *forge_finish_name(enum forge_finish f)
{
    static const char *const names[] = {"running", "eos", "stop", "length", "context", "cancelled", "deadline", "error"};
    return (size_t)f < sizeof names / sizeof names[0] ? names[f] : "unknown";
}

/* ---- log ---- */

/* The user's sink behind base/log's: part of the one mutable global, the log sink. */
static struct {
    void (*sink)(void *user, enum forge_log_level level, const char *line);
    void *user;
} log_target;

static void pass_line(void *user, enum log_level level, const char *line)
{
    (void)user;
    log_target.sink(log_target.user, (enum forge_log_level)level, line);
}

int forge_log_set(void (*sink)(void *user, enum forge_log_level level, const char *line), void *user,
                  enum forge_log_level level, const char *debug, struct forge_error *err)
{
    unsigned categories = 0;
    for (const char *s = debug; s && *s;) {
        size_t len = strcspn(s, ",");
        char name[16] = "";
        if (len < sizeof name)
            memcpy(name, s, len);
        unsigned bit = log_category_parse(name);
        if (bit == 0) {
            struct err e;
            err_set(&e, ERR_ARG, "unknown debug category \"%.*s\"; known: load, kv, sched, cl, text, run", (int)(len < 64 ? len : 64), s);
            return engine_error(err, e.code, &e);
        }
        categories |= bit;
        s += len;
        s += *s == ',';
    }
    log_target.sink = sink;
    log_target.user = user;
    log_set(sink ? pass_line : NULL, NULL, (enum log_level)level, categories);
    return 0;
}

/* ---- devices ---- */

struct forge_devices {
    struct device_list list;
    struct forge_device *devices; /* [list.n_devices], strings of list */
};

int forge_devices_list(struct forge_devices **out, struct forge_error *err)
{
    struct err e = {0};
    int rc = ERR_NOMEM;
    *out = NULL;
    struct forge_devices *d = mem_array(1, sizeof *d);
    if (!d)
        goto fail;
    rc = registry_list(&d->list, &e);
    if (rc < 0)
        goto fail;
    rc = ERR_NOMEM;
    d->devices = mem_array(d->list.n_devices, sizeof *d->devices);
    if (!d->devices)
        goto fail;
    for (size_t i = 0; i < d->list.n_devices; i++) {
        const struct device_info *info = &d->list.devices[i];
        d->devices[i] = (struct forge_device){info->selector, info->backend, info->name, info->detail, info->mem_size};
    }
    *out = d;
    return 0;
fail:
    if (e.code == 0 && rc == ERR_NOMEM)
        err_set(&e, rc, "no memory for the list of devices");
    forge_devices_free(d);
    return engine_error(err, rc, &e);
}

size_t forge_devices_count(const struct forge_devices *d)
{
    return d->list.n_devices;
}

const struct forge_device *forge_devices_at(const struct forge_devices *d, size_t i)
{
    return i < d->list.n_devices ? &d->devices[i] : NULL;
}

size_t forge_devices_n_skipped(const struct forge_devices *d)
{
    return d->list.n_skipped;
}

const char *forge_devices_skipped(const struct forge_devices *d, size_t i)
{
    return i < d->list.n_skipped ? d->list.skipped[i] : NULL;
}

void forge_devices_free(struct forge_devices *d)
{
    if (!d)
        return;
    device_list_free(&d->list);
    free(d->devices);
    free(d);
}
