/* The check of a device at its first use, what is remembered of it, and which
 * operations get a stand-in (guard_ops.c).
 *
 * It works through the instance's table of operations: a copy of the backend's
 * own, in which wrong entries are replaced.  Must not know a particular
 * backend, nor how an operation is computed. */
#include "backend/guard.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/guard_parts.h"
#include "backend/registry.h"
#include "backend/selftest.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/map.h"
#include "base/mem.h"

/* ---- what is remembered ---- */
static const char passed[] = "forge selftest passed: list 5\n"; /* another list of cases: another number */

/* The file that says so; NULL = nothing is remembered. */
static char *record(const struct guard *g, const char *what)
{
    char name[80];

    if (g->dir == NULL)
        return NULL;
    snprintf(name, sizeof name, "forge-%016" PRIx64 "%016" PRIx64 "-%s.ok", g->id[0], g->id[1], what);
    return path_join(g->dir, name);
}

static bool remembered(const struct guard *g, const char *what)
{
    char *path = record(g, what), *data = NULL;
    size_t len;
    bool yes = path != NULL && path_is_file(path) &&
               map_read_all(path, sizeof passed, &data, &len, NULL) == 0 && strcmp(data, passed) == 0;

    free(data);
    free(path);
    return yes;
}

/* A folder that cannot be written only means that the next start checks again. */
static void remember(const struct guard *g, const char *what)
{
    char *path = record(g, what);

    if (path != NULL)
        path_replace(path, passed, sizeof passed - 1, NULL, 0, NULL);
    free(path);
}

/* ---- checking ---- */
/* What is checked at once, and remembered under a name. */
struct part {
    const char *name;
    uint32_t types; /* of weights */
    bool others;
    struct op_heads heads;
};

struct outcome {
    struct guard *g;
    int n_wrong;
    struct err first;   /* the sentence of the first wrong case */
    struct err refused; /* memory for a case was, or the user: says nothing about the operation */
};

static bool on_stop(void *user)
{
    struct outcome *o = user;
    const struct backend_params *p = &o->g->params;

    if (o->refused.code == ERR_CANCELLED || p->stop == NULL || !p->stop(p->stop_user))
        return o->refused.code == ERR_CANCELLED;
    o->n_wrong++;
    err_set(&o->refused, ERR_CANCELLED, "the check of %s was stopped", o->g->be->device);
    return true;
}

static void on_case(void *user, const struct selftest_case *c)
{
    struct outcome *o = user;
    struct guard *g = o->g;

    if (c->ok)
        return;
    o->n_wrong++;
    if (c->code == ERR_LIMIT || c->code == ERR_NOMEM) {
        err_set(&o->refused, c->code, "%s", c->why);
        return;
    }
    if ((g->broken[c->op] >> c->dtype & 1) != 0)
        return;
    g->broken[c->op] |= UINT32_C(1) << c->dtype;
    struct err e;
    if (c->why != NULL)
        err_set(&e, ERR_DEVICE, "%s: %s %s could not be run: %s", g->be->device, op_name(c->op), c->variant,
                c->why);
    else
        err_set(&e, ERR_DEVICE, "%s: %s %s is wrong: error %.3g, bound %.3g", g->be->device, op_name(c->op),
                c->variant, c->error, c->bound);
    log_msg(LOG_WARN, "self-test: %s", e.msg);
    if (o->first.code == 0)
        o->first = e;
}

/* Runs the short list with the backend's own operations; what the instance counted before stays. */
static void check(struct guard *g, const struct part *part, struct outcome *o)
{
    struct backend *be = g->be, *oracle[REGISTRY_MAX_INSTANCES];
    struct backend_params plain = {.n_threads = 1, .no_selftest = true};
    struct selftest_args args = {
        .scope = SELFTEST_SHORT, .types = part->types, .others = part->others, .heads = part->heads, .report = on_case, .stop = on_stop, .user = o,
        .fast = g->params.math == MATH_FAST};
    struct op_stats stats[OP_COUNT];
    struct err latched = be->latched;
    double start = clock_now();
    int n;

    *o = (struct outcome){.g = g};
    if (registry_open("ref", &plain, oracle, &n, NULL, 0, &o->first) != 0) {
        o->n_wrong = 1;
        return;
    }
    memcpy(stats, be->stats, sizeof stats);
    be->ops = g->own;
    n = selftest_run(oracle[0], be, &args);
    be->ops = &g->ops;
    memcpy(be->stats, stats, sizeof stats);
    be->latched = latched;
    registry_close(oracle[0]);
    log_msg(LOG_VERBOSE, "%s: self-test: %d cases, %d wrong, %.2f s", be->device, n, o->n_wrong,
            clock_now() - start);
}

/* A variant that is wrong, or does not build, first gives way to the backend's plainer kernels; false: none of
 * what is broken has any. */
static bool try_plainer(struct guard *g)
{
    bool any = false;

    for (int op = 0; g->own->fall_back != NULL && op < OP_COUNT; op++)
        for (int t = 0; t < DTYPE_N_WEIGHTS; t++)
            if ((g->broken[op] >> t & 1) != 0 && g->own->fall_back(g->be, (enum op_id)op, (enum dtype)t)) {
                log_msg(LOG_WARN, "%s: %s (%s) is computed with plainer kernels there", g->be->device,
                        op_name((enum op_id)op), dtype_info((enum dtype)t)->name);
                any = true;
            }
    return any;
}

/* 0, or the first wrong case as an error where fallbacks are not wanted. */
static int check_once(struct guard *g, const struct part *part, struct err *err)
{
    uint32_t before[OP_COUNT];
    struct outcome o;
    int rc = 0;

    if (!g->params.recheck && remembered(g, part->name))
        return 0;
    log_msg(LOG_INFO, "%s: %s: its operations (%s) are checked", g->be->device,
            g->params.recheck ? "after its failure" : "first use", part->name);
    memcpy(before, g->broken, sizeof before);
    check(g, part, &o);
    if (o.n_wrong == 0)
        remember(g, part->name);
    while (o.n_wrong > 0 && o.refused.code == 0 && !g->params.require_device && try_plainer(g)) {
        memcpy(g->broken, before, sizeof before);
        check(g, part, &o);
    }
    if (o.n_wrong == 0)
        return 0;
    if (o.refused.code != 0)
        rc = err_set(err, o.refused.code, "%s", o.refused.msg);
    else if (g->params.require_device)
        rc = err_set(err, ERR_DEVICE, "%s; require_device is set, so nothing is computed elsewhere",
                     o.first.msg);
    else
        rc = guard_stand_in(g, err);
    return rc;
}

int guard_check_type(struct guard *g, enum dtype dtype, struct err *err)
{
    if ((g->checked >> dtype & 1) != 0)
        return 0;
    g->checked |= UINT32_C(1) << dtype;
    return check_once(g, &(struct part){.name = dtype_info(dtype)->name, .types = UINT32_C(1) << dtype}, err);
}

/* A device compiles attention for the heads of a model: those of the list may be right and these not. */
static int check_heads(struct guard *g, struct err *err)
{
    const struct op_heads *h = &g->params.heads;
    char name[64];

    if (h->n_heads == 0)
        return 0;
    snprintf(name, sizeof name, "attention-%dx%d-%s", h->n_heads / h->n_kv_heads, h->head_dim, dtype_info(h->pages)->name);
    return check_once(g, &(struct part){.name = name, .heads = *h}, err);
}

/* ---- opening ---- */
/* Pages are state: what stores or reads them wrongly takes the whole layer with it, and each layer has them.
 */
static int move_out(struct guard *g, struct backend **be, struct err *err)
{
    struct backend *cpu[REGISTRY_MAX_INSTANCES];
    int n, rc = registry_open("cpu", &g->params, cpu, &n, NULL, 0, err);

    if (rc != 0)
        return rc;
    log_msg(LOG_WARN, "%s: %s is wrong there, so whole layers are computed on %s", g->be->device,
            op_name(g->broken[OP_ATTENTION] != 0 ? OP_ATTENTION : OP_KV_STORE), cpu[0]->device);
    snprintf(cpu[0]->detail, sizeof cpu[0]->detail, "instead of %.20s, which failed its self-test",
             g->be->device);
    (*be)->ops->close(*be);
    *be = cpu[0];
    return 0;
}

int guard_open(struct backend **be, const struct backend_params *params, struct err *err)
{
    struct guard *g;
    int rc;

    if ((*be)->ops->identity == NULL || params->no_selftest)
        return 0;
    g = mem_array(1, sizeof *g);
    if (g == NULL) {
        (*be)->ops->close(*be);
        return err_set(err, ERR_NOMEM, "no memory for the check of a device");
    }
    *g = (struct guard){.be = *be, .own = (*be)->ops, .ops = *(*be)->ops};
    if (!backend_params_copy(&g->params, params)) {
        backend_params_fini(&g->params);
        free(g);
        (*be)->ops->close(*be);
        return err_set(err, ERR_NOMEM, "no memory for the check of a device");
    }
    g->own->identity(*be, g->id);
    if (g->params.kernel_cache != NULL && g->params.kernel_cache[0] != '\0')
        g->dir = g->params.kernel_cache;
    guard_watch(g);
    rc = check_once(g, &(struct part){.name = "base", .others = true}, err);
    if (rc == 0 && (g->broken[OP_KV_STORE] | g->broken[OP_ATTENTION]) == 0)
        rc = check_heads(g, err);
    if (rc == 0 && (g->broken[OP_KV_STORE] | g->broken[OP_ATTENTION]) != 0)
        rc = move_out(g, be, err);
    if (rc != 0) {
        (*be)->ops->close(*be);
        *be = NULL;
    }
    return rc;
}
