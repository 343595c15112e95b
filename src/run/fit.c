/* A budget for devices' memory: how many layers fit on each, the rest to the
 * CPU.  Placement stays one mechanism, a list of devices and a split; this only
 * makes the list when the user gave a budget and no split.
 *
 * Estimates from sizes; what they miss is refused by the device, with the figures.  Knows no weights by name. */
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "run/load_parts.h"

/* What a backend takes beside tensors: weights widened for many rows, parts of attention. */
enum { SCRATCH = 4 << 20, SCRATCH_LEAST = 3 << 20 };

struct cost {
    uint64_t layer;       /* weights and KV of one */
    uint64_t embed, head; /* head 0: it is the embedding's tensor */
    uint64_t work;
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
    struct cost c = {.work = need->work + SCRATCH};
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
        uint64_t fixed = c->work + (i == 0 ? c->embed : 0), end = c->head > 0 ? c->head : i > 0 ? c->embed : 0;
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

int load_fit(struct loaded *l, const struct load_params *p, const struct load_need *need, struct load_fit *out,
             struct err *err)
{
    const struct cost c = find_cost(l, need);
    int64_t layers[REGISTRY_MAX_INSTANCES], taken = 0;
    struct backend *cpu[REGISTRY_MAX_INSTANCES];
    int n, used = 0;

    out->device[0] = '\0';
    if (p->backend.mem_limit == 0 || p->split || p->backend.require_device || l->n_backends == REGISTRY_MAX_INSTANCES)
        return 0;
    for (int i = 0; i < l->n_backends; i++) {
        struct backend_caps caps;
        op_caps(l->backends[i], &caps);
        if (caps.host_memory) /* the CPU is in the list already: who says so says how much, by a split */
            return 0;
    }
    if (!share_out(l, &c, p->backend.mem_limit, layers))
        return 0;
    while (used < l->n_backends && layers[used] > 0)
        taken += layers[used++];
    if (used == 0) { /* not even one: the device refuses it, with its figures, unless the estimate is too careful */
        log_msg(LOG_WARN, "%s: one of %lld layers needs some %llu bytes, work space for a chunk of %d positions with it, and %llu "
                "may be taken: a smaller chunk needs less", op_device(l->backends[0]), (long long)l->config->n_layers,
                (unsigned long long)least(&c, 0), l->chunk, (unsigned long long)p->backend.mem_limit);
        return 0;
    }
    struct backend_params plain = p->backend;
    plain.mem_limit = 0;
    int rc = registry_open("cpu", &plain, cpu, &n, NULL, 0, err);
    if (rc < 0)
        return rc;
    while (l->n_backends > used)
        registry_close(l->backends[--l->n_backends]);
    l->backends[l->n_backends++] = cpu[0];
    put_list(out, l, layers, l->n_backends, l->config->n_layers - taken);
    for (int i = 0; i < used; i++)
        log_msg(LOG_INFO, "%s: %lld of %lld layers fit in the %llu bytes that it may take", op_device(l->backends[i]),
                (long long)layers[i], (long long)l->config->n_layers, (unsigned long long)p->backend.mem_limit);
    log_msg(LOG_INFO, "%lld layers stay on the CPU", (long long)(l->config->n_layers - taken));
    return 0;
}
