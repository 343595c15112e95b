/* A simulated engine: forge_engine as engine.c opens it, but for what computes.  The
 * KV cache is a real one of one layer and one value a position, so that pages,
 * shortage and prefixes are the engine's own.
 * Owns virtual time; knows nothing of requests. */
#include "run/sim.h"

#include <stdlib.h>

#include "base/mem.h"
#include "run/engine.h"

struct sim {
    struct sim_cost cost;
    double now;
    int32_t letter; /* every new id */
};

double sim_now(const struct sim *s)
{
    return s->now;
}

void sim_wait(struct sim *s, double until)
{
    s->now = until > s->now ? until : s->now;
}

void sim_run(struct sim *s, const struct batch *b, int32_t *best)
{
    const struct sim_cost *c = &s->cost;
    double compute = c->row_s * b->n_rows, seen = 0;
    for (int i = 0; i < b->n_rows; i++)
        seen += batch_pos(b, i) + 1.0;
    s->now += c->step_s + (compute > c->read_s ? compute : c->read_s) + c->position_s * seen;
    for (int i = 0; i < b->n_want; i++)
        best[i] = s->letter;
}

/* The geometry of a cache that takes next to no memory, beside the model's vocabulary. */
static void shrink(struct model_config *c)
{
    c->n_layers = c->n_groups = 1;
    c->n_heads = c->n_kv_heads = c->head_dim = 1;
    c->layers[0] = (struct layer_config){0};
    c->groups[0] = (struct kv_group){.n_kv_heads = 1, .head_dim = 1, .n_layers = 1};
}

static int open_cache(struct loaded *l, const struct sim_params *p, struct err *err)
{
    const uint64_t per_position = 4; /* a key and a value of two bytes */
    struct backend_params bp = {.n_threads = 1, .no_selftest = true};
    struct layer layer = {0};
    struct kv_params kv = {.dtype = DTYPE_F16, .page_size = p->page_size, .n_ctx = p->n_ctx, .max_seqs = p->max_seqs,
                           .mem = (uint64_t)p->kv_positions * per_position, .chunk = l->chunk, .keep = p->keep};
    int rc = registry_open("ref", &bp, l->backends, &l->n_backends, l->reason, sizeof l->reason, err);
    if (rc < 0)
        return rc;
    layer.be = l->backends[0];
    return kv_new(&l->kv, &(struct model){.config = *l->config, .layers = &layer}, &kv, err);
}

static int load(struct loaded *l, const struct sim_params *p, struct err *err)
{
    struct load_params lp;
    int64_t page = p->page_size ? p->page_size : p->n_ctx, least = (p->n_ctx + page - 1) / page * page;
    if (p->n_ctx < 1 || p->chunk < 1 || p->max_seqs < 1)
        return err_set(err, ERR_ARG, "a context of %lld positions, steps of %d rows and %d sequences are not possible",
                       (long long)p->n_ctx, p->chunk, p->max_seqs);
    if (p->kv_positions > 0 && p->kv_positions < least)
        return err_set(err, ERR_ARG, "one sequence of %lld positions takes %lld of KV, and there are %lld", (long long)p->n_ctx,
                       (long long)least, (long long)p->kv_positions);
    load_params_init(&lp);
    lp.model = p->model;
    lp.tokenizer = p->tokenizer;
    lp.no_weights = true;
    int rc = load_open(l, &lp, err);
    if (rc < 0)
        return rc;
    shrink(l->config);
    l->n_ctx = p->n_ctx;
    l->chunk = p->chunk < p->n_ctx ? p->chunk : (int)p->n_ctx;
    l->max_want = p->max_seqs;
    l->free_rows = true;
    return open_cache(l, p, err);
}

static int find_letter(struct sim *s, const struct loaded *l, struct err *err)
{
    struct ids ids;
    ids_init(&ids);
    int rc = tokenizer_encode(l->tokenizer, "a", 1, 0, &ids, err);
    if (rc == 0 && (ids.n == 0 || ids.v[0] >= l->config->n_vocab))
        rc = err_set(err, ERR_UNSUPPORTED, "the model's tokenizer has no id for a letter");
    s->letter = rc == 0 ? ids.v[0] : 0;
    ids_fini(&ids);
    return rc;
}

int sim_open(struct forge_engine **out, const struct sim_params *p, struct err *err)
{
    *out = NULL;
    struct forge_engine *e = mem_array(1, sizeof *e);
    struct sim *s = mem_array(1, sizeof *s);
    if (!e || !s) {
        free(e);
        free(s);
        return err_set(err, ERR_NOMEM, "no memory for an engine");
    }
    atomic_init(&e->n_cancels, 0);
    s->cost = p->cost;
    e->sim = s;
    e->ahead = p->ahead;
    int rc = load(&e->l, p, err);
    if (rc == 0)
        rc = find_letter(s, &e->l, err);
    if (rc == 0)
        rc = engine_make_room(e, p->max_seqs, err);
    if (rc < 0)
        forge_engine_close(e);
    else
        *out = e;
    return rc;
}
