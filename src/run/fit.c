/* A budget for devices' memory: how many layers fit on each, the rest to the
 * CPU; where not one would, with fewer rows in a step.  Placement stays one
 * mechanism, a list of devices and a split; this only makes the list when the
 * user gave a budget and no split.
 *
 * Estimates from sizes; what they miss is refused by the device, with the figures.  Knows no weights by name. */
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "run/load_parts.h"

/* What a backend takes beside tensors: weights widened for many rows, parts of attention. */
enum { SCRATCH = 4 << 20, SCRATCH_LEAST = 3 << 20 };
enum { ROWS_LEAST = 32 /* of a step: below, a device is no help with a prompt */ };
enum { BUFFER_ROUND = 64 /* the size of a buffer becomes a multiple of it */ };

struct cost {
    uint64_t layer;       /* weights and KV of one */
    uint64_t embed, head; /* head 0: it is the embedding's tensor */
    uint64_t work, wanted; /* of a step; wanted: where the head is */
};

/* Matrices of one row for each token: the first is the embedding, a second one the head. */
static void find_ends(const struct loaded *l, struct cost *c)
{
    int found = 0;

    for (size_t i = 0; i < weights_count(l->weights) && found < 2; i++) {
        const struct weight *w = weights_at(l->weights, i);
        if (w->n_dims != 2 || w->shape[0] < l->config->n_vocab || w->shape[1] != l->config->d_model)
            continue;
        *(found++ == 0 ? &c->embed : &c->head) = w->size;
    }
}

static struct cost find_cost(const struct loaded *l, const struct load_need *need)
{
    struct cost c = {.work = need->work - need->wanted + SCRATCH, .wanted = need->wanted};
    uint64_t n = (uint64_t)l->config->n_layers, all = weights_bytes(l->weights), ends;

    find_ends(l, &c);
    ends = c.embed + c.head;
    c.layer = (all > ends ? all - ends : 0) / n + need->kv / n + 1;
    return c;
}

int64_t load_layers_that_fit(uint64_t limit, uint64_t fixed, uint64_t layer)
{
    uint64_t room = limit - limit / 16; /* buffers are rounded up */

    return room > fixed ? (int64_t)((room - fixed) / layer) : 0;
}

/* What a device must have for one layer, with nothing to spare. */
static uint64_t least(const struct cost *c, int device)
{
    return c->work - SCRATCH + SCRATCH_LEAST + (device == 0 ? c->embed : 0) + c->layer;
}

/* Layers of each device in turn; true when some are left over. */
static bool share_out(const struct loaded *l, const struct cost *c, uint64_t limit, int64_t *layers)
{
    int64_t left = l->config->n_layers;

    for (int i = 0; i < l->n_backends; i++) {
        uint64_t fixed = c->work + (i == 0 ? c->embed : 0), end = c->wanted + (c->head > 0 ? c->head : i > 0 ? c->embed : 0);
        int64_t fit = load_layers_that_fit(limit, fixed, c->layer);
        if (fit >= left) /* the last layer has the head with it */
            fit = load_layers_that_fit(limit, fixed + end, c->layer);
        if (fit == 0 && left > 1 && limit >= least(c, i))
            fit = 1;
        layers[i] = fit < left ? fit : left;
        left -= layers[i];
    }
    return left > 0;
}

static void put_list(struct load_fit *out, const struct loaded *l, const int64_t *layers, int n, int64_t rest)
{
    size_t at = 0, to = 0;

    for (int i = 0; i < n; i++) {
        at += (size_t)snprintf(out->device + at, sizeof out->device - at, "%s%s", i > 0 ? "," : "",
                               op_device(l->backends[i]));
        to += (size_t)snprintf(out->split + to, sizeof out->split - to, "%s%lld", i > 0 ? "," : "",
                               (long long)(i < n - 1 ? layers[i] : rest));
    }
}

/* Fewer rows than the user asked for are worth a warning; fewer than the default are not. */
static enum log_level level_of(int asked)
{
    struct load_params plain;

    load_params_init(&plain);
    return asked == plain.chunk ? LOG_INFO : LOG_WARN;
}

/* Where not one layer fits on the first device: half the rows of a step, and half of that, until one does.  Where
 * none does, back to what was asked for: the device refuses that with its figures, unless the estimate is too careful. */
static int shorten(struct loaded *l, struct load_params *p, struct kv_params *kv, struct load_need *need, struct cost *c,
                   int64_t *layers, bool *over, enum log_level told, struct err *err)
{
    int asked = l->chunk, given = p->chunk, rc = 0;
    unsigned long long limit = p->backend.mem_limit;

    while (rc == 0 && *over && layers[0] == 0 && l->chunk >= 2 * ROWS_LEAST && l->chunk > kv->max_seqs) {
        p->chunk = l->chunk / 2;
        rc = load_settle_rows(l, p, kv, need, err);
        *c = find_cost(l, need);
        *over = share_out(l, c, p->backend.mem_limit, layers);
    }
    if (rc == 0 && *over && layers[0] == 0) {
        log_msg(LOG_WARN, "%s: one of %lld layers needs some %llu bytes, with steps of %d positions, and %llu may be taken",
                op_device(l->backends[0]), (long long)l->config->n_layers, (unsigned long long)least(c, 0), l->chunk, limit);
        p->chunk = given;
        rc = load_settle_rows(l, p, kv, need, err);
    } else if (rc == 0 && l->chunk < asked) {
        log_msg(told, "%s: steps of %d positions instead of %d, so that a layer fits in the %llu bytes that it may take",
                op_device(l->backends[0]), l->chunk, asked, limit);
    }
    return rc;
}

/* No tensor of a step may be above a device's largest allocation: fewer rows in a step, and fewer of which logits are
 * read, both down to one a sequence. */
static int part_steps(struct loaded *l, struct load_params *p, struct kv_params *kv, struct load_need *need,
                      enum log_level told, struct err *err)
{
    int rc = 0;

    for (int i = 0; i < l->n_backends; i++) {
        struct backend_caps caps;
        int asked = l->chunk, asked_want = l->max_want;
        op_caps(l->backends[i], &caps);
        uint64_t most = caps.max_alloc > 0 ? caps.max_alloc / BUFFER_ROUND * BUFFER_ROUND : UINT64_MAX;
        while (rc == 0 && need->largest > most && l->chunk > 1 && l->chunk > kv->max_seqs) {
            p->chunk = l->chunk / 2;
            rc = load_settle_rows(l, p, kv, need, err);
        }
        if (rc == 0 && l->chunk < asked)
            log_msg(told, "%s: steps of %d positions instead of %d, as one allocation may have %llu bytes",
                    op_device(l->backends[i]), l->chunk, asked, (unsigned long long)caps.max_alloc);
        while (rc == 0 && need->largest_wanted > most && l->max_want > kv->max_seqs) {
            p->max_want = l->max_want / 2;
            rc = load_settle_rows(l, p, kv, need, err);
        }
        if (rc == 0 && l->max_want < asked_want)
            log_msg(LOG_VERBOSE, "%s: logits of %d positions at once instead of %d, as one allocation may have %llu bytes",
                    op_device(l->backends[i]), l->max_want, asked_want, (unsigned long long)caps.max_alloc);
    }
    return rc;
}

/* May the list of devices be changed? */
static bool may_change(const struct loaded *l, const struct load_params *p)
{
    if (p->backend.mem_limit == 0 || p->split || p->backend.require_device || l->n_backends == REGISTRY_MAX_INSTANCES)
        return false;
    for (int i = 0; i < l->n_backends; i++) {
        struct backend_caps caps;
        op_caps(l->backends[i], &caps);
        if (caps.host_memory) /* the CPU is in the list already: who says so says how much, by a split */
            return false;
    }
    return true;
}

/* The first `used` of the devices, and the CPU behind them. */
static int add_cpu(struct loaded *l, const struct load_params *p, int used, struct err *err)
{
    struct backend *cpu[REGISTRY_MAX_INSTANCES];
    struct backend_params plain = p->backend;
    int n;

    plain.mem_limit = 0;
    int rc = registry_open("cpu", &plain, cpu, &n, NULL, 0, err);
    if (rc < 0)
        return rc;
    while (l->n_backends > used)
        registry_close(l->backends[--l->n_backends]);
    l->backends[l->n_backends++] = cpu[0];
    return 0;
}

int load_fit(struct loaded *l, struct load_params *p, struct kv_params *kv, struct load_need *need, struct load_fit *out,
             struct err *err)
{
    struct cost c;
    int64_t layers[REGISTRY_MAX_INSTANCES], n = l->config->n_layers, taken = 0;
    unsigned long long limit = p->backend.mem_limit;
    enum log_level told = level_of(p->chunk);
    int used = 0;

    out->device[0] = '\0';
    int rc = part_steps(l, p, kv, need, told, err);
    if (rc < 0 || !may_change(l, p))
        return rc;
    c = find_cost(l, need);
    bool over = share_out(l, &c, p->backend.mem_limit, layers);
    rc = shorten(l, p, kv, need, &c, layers, &over, told, err);
    if (rc < 0 || !over)
        return rc;
    while (used < l->n_backends && layers[used] > 0)
        taken += layers[used++];
    if (used == 0)
        return 0;
    rc = add_cpu(l, p, used, err);
    if (rc < 0)
        return rc;
    put_list(out, l, layers, l->n_backends, n - taken);
    for (int i = 0; i < used; i++)
        log_msg(LOG_INFO, "%s: %lld of %lld layers fit in the %llu bytes that it may take", op_device(l->backends[i]),
                (long long)layers[i], (long long)n, limit);
    log_msg(LOG_INFO, "%lld layer%s on the CPU", (long long)(n - taken), n - taken == 1 ? " stays" : "s stay");
    return 0;
}
