/* The engine: a loaded model and room for the steps of many sequences.  Opens by load.c's
 * rules, tells what it is and where its operations ran.
 * Knows nothing of requests but that none may be left when it closes. */
#include "run/engine.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "run/draft.h"

enum { DRAFT_MOST = 64 };

void forge_engine_params_init(struct forge_engine_params *p, size_t struct_size)
{
    const struct forge_engine_params defaults = {
        .struct_size = struct_size,
        .n_ctx = -1,
        .kv_type = FORGE_KV_F16,
        .page_size = 16,
        .max_seqs = 1,
        .chunk = 512,
    };
    memset(p, 0, struct_size);
    memcpy(p, &defaults, struct_size < sizeof defaults ? struct_size : sizeof defaults);
}

static const enum backend_gemm gemms[] = {[FORGE_GEMM_AUTO] = GEMM_KERNELS_AUTO,
                                          [FORGE_GEMM_OWN] = GEMM_KERNELS_OWN,
                                          [FORGE_GEMM_CLBLAST] = GEMM_KERNELS_CLBLAST};
static const enum dtype kv_types[] = {[FORGE_KV_F16] = DTYPE_F16, [FORGE_KV_F32] = DTYPE_F32, [FORGE_KV_Q8_0] = DTYPE_Q8_0};

struct engine_watch {
    int (*on_load)(void *user, enum forge_load_phase phase, uint64_t done, uint64_t total);
    void *user;
};

static int pass_progress(void *user, size_t done, size_t total)
{
    const struct engine_watch *w = user;
    return w->on_load(w->user, FORGE_LOAD_WEIGHTS, done, total);
}

static int pass_compiling(void *user, size_t done, size_t total)
{
    const struct engine_watch *w = user;
    return w->on_load(w->user, FORGE_LOAD_KERNELS, done, total);
}

static int draft_max(const struct forge_engine_params *p)
{
    return p->draft_max > 0 ? p->draft_max : p->draft_model ? 8 : 0;
}

void engine_load_params(struct load_params *out, const struct forge_engine_params *p)
{
    load_params_init(out);
    out->model = p->model;
    out->tokenizer = p->tokenizer;
    out->config = p->config;
    out->device = p->device;
    out->split = p->split;
    out->backend = (struct backend_params){
        .n_threads = p->n_threads,
        .math = p->math == FORGE_MATH_FAST ? MATH_FAST : MATH_EXACT,
        .cpu_fast = p->math == FORGE_MATH_DEFAULT && !p->deterministic,
        .deterministic = p->deterministic != 0,
        .require_device = p->require_device != 0,
        .no_selftest = p->no_selftest != 0,
        .cpu_isa = p->cpu_isa,
        .kernels = p->kernels,
        .mem_limit = p->gpu_mem,
        .kernel_cache = p->kernel_cache,
        .kernel_dir = p->kernel_dir,
        .profile = p->profile != 0,
        .gemm = gemms[p->gemm],
        .clblast_params = p->clblast_params,
    };
    out->kv = (struct kv_params){
        .dtype = kv_types[p->kv_type],
        .page_size = p->page_size,
        .n_ctx = p->n_ctx,
        .max_seqs = p->max_seqs,
        .mem = p->kv_mem,
        .keep = p->no_prefix_cache == 0,
        .keep_mem = p->prefix_mem,
    };
    out->chunk = p->chunk;
    out->max_want = p->max_seqs * (1 + draft_max(p)); /* each row of a sample that is no prompt */
}

static int make_load_params(struct load_params *out, const struct forge_engine_params *p, struct engine_watch *watch,
                            struct err *err)
{
    if ((unsigned)p->math > FORGE_MATH_FAST)
        return err_set(err, ERR_ARG, "math %d is unknown", (int)p->math);
    if (p->max_seqs < 1)
        return err_set(err, ERR_ARG, "max_seqs is %d; it must be at least 1", p->max_seqs);
    if (p->draft_max < 0 || p->draft_max > DRAFT_MOST)
        return err_set(err, ERR_ARG, "draft_max is %d; it must be 0 to %d", p->draft_max, DRAFT_MOST);
    if (p->max_seqs > INT32_MAX / (1 + DRAFT_MOST))
        return err_set(err, ERR_ARG, "max_seqs is %d; it must be at most %d", p->max_seqs, INT32_MAX / (1 + DRAFT_MOST));
    if (p->prefix_mem > 0 && p->no_prefix_cache)
        return err_set(err, ERR_ARG, "prefix_mem is %llu bytes, and no_prefix_cache set: nothing is kept then",
                       (unsigned long long)p->prefix_mem);
    if (p->n_threads < 0)
        return err_set(err, ERR_ARG, "n_threads is %d; it must be 0 (all cores) or more", p->n_threads);
    if (p->kernels && strcmp(p->kernels, "cpu") != 0 && strcmp(p->kernels, "gpu") != 0)
        return err_set(err, ERR_ARG, "kernels \"%.40s\" is unknown; there are cpu and gpu", p->kernels);
    if ((unsigned)p->kv_type >= sizeof kv_types / sizeof kv_types[0])
        return err_set(err, ERR_ARG, "kv_type %d is unknown", (int)p->kv_type);
    if ((unsigned)p->gemm >= sizeof gemms / sizeof gemms[0])
        return err_set(err, ERR_ARG, "gemm %d is unknown", (int)p->gemm);
    engine_load_params(out, p);
    *watch = (struct engine_watch){p->on_load, p->user};
    if (p->on_load) {
        out->progress = pass_progress;
        out->compiling = pass_compiling;
        out->user = watch;
    }
    return 0;
}

/* Of the instance that has most. */
static int threads_of(const struct loaded *l)
{
    int most = 0;
    for (int i = 0; i < l->n_backends; i++) {
        struct backend_caps caps;
        op_caps(l->backends[i], &caps);
        most = caps.n_threads > most ? caps.n_threads : most;
    }
    return most;
}

static void fill_info(struct forge_engine *e)
{
    const struct loaded *l = &e->l;
    const struct model_config *c = l->config;
    size_t len = 0;
    for (int i = 0; i < l->n_backends && len < sizeof e->device; i++)
        len += (size_t)snprintf(e->device + len, sizeof e->device - len, "%s%s", i ? ", " : "", op_device(l->backends[i]));
    e->info = (struct forge_engine_info){
        .model_path = weights_path(l->weights),
        .format = weights_format_name(weights_format(l->weights)),
        .architecture = config_arch_name(c),
        .name = c->name,
        .device = e->device,
        .device_reason = l->reason,
        .n_layers = c->n_layers,
        .d_model = c->d_model,
        .n_vocab = c->n_vocab,
        .n_ctx = l->n_ctx,
        .n_ctx_max = c->n_ctx_max,
        .n_params = (uint64_t)config_n_params(l->weights),
        .weight_bytes = l->model->weight_bytes,
        .kv_bytes = kv_size(l->kv),
        .work_bytes = l->work_bytes,
        .n_threads = threads_of(l),
        .load_s = l->load_s,
        .compile_s = load_compile_s(l),
        .default_temp = c->sampling.temp,
        .default_top_p = c->sampling.top_p,
        .default_min_p = c->sampling.min_p,
        .default_repeat_penalty = c->sampling.repeat_penalty,
        .default_top_k = c->sampling.top_k,
    };
}

void engine_meet_devices(struct forge_engine *e)
{
    for (int i = 0; i < e->l.n_backends; i++)
        op_profile(e->l.backends[i], e->profile);
}

int engine_make_room(struct forge_engine *e, int max_seqs, struct err *err)
{
    size_t n, want = (size_t)e->l.max_want;
    e->stats.max_seqs = max_seqs;
    e->piece = BATCH_PIECE_FIRST;
    e->running = mem_array((size_t)max_seqs, sizeof *e->running);
    e->served = mem_array((size_t)max_seqs, sizeof *e->served);
    e->best = mem_array(want, sizeof *e->best);
    if (mem_mul(want, (size_t)e->l.config->n_vocab, &n))
        e->logits = mem_array(n, sizeof *e->logits);
    if (!e->running || !e->served || !e->best || !e->logits)
        return err_set(err, ERR_NOMEM, "no memory for the logits of a step");
    engine_count(e);
    int rc = constrain_pool_init(&e->grammars, err);
    return rc < 0 ? rc : batch_init(&e->batch, &e->l, err);
}

static int open_engine(struct forge_engine *e, const struct forge_engine_params *given, struct err *err)
{
    struct forge_engine_params p;
    struct load_params lp;
    struct engine_watch watch;
    forge_engine_params_init(&p, sizeof p);
    int rc = engine_params_copy(&p, sizeof p, given, "forge_engine_params_init", err);
    if (rc == 0)
        rc = make_load_params(&lp, &p, &watch, err);
    if (rc == 0)
        rc = load_open(&e->l, &lp, err);
    if (rc == 0 && p.draft_model)
        rc = draft_open(&e->draft, &lp, p.draft_model, &e->l, err);
    if (rc < 0)
        return rc;
    e->draft_max = draft_max(&p);
    e->ahead = ENGINE_AHEAD;
    e->profile = p.profile != 0;
    engine_meet_devices(e);
    fill_info(e);
    if ((rc = engine_open_chat(e, p.tokenizer, p.chat_template, err)) < 0)
        return rc;
    return engine_make_room(e, p.max_seqs, err);
}

int forge_engine_open(struct forge_engine **out, const struct forge_engine_params *p, struct forge_error *err)
{
    struct err er = {0};
    *out = NULL;
    struct forge_engine *e = mem_array(1, sizeof *e);
    if (!e) {
        err_set(&er, ERR_NOMEM, "no memory for an engine");
        return engine_error(err, er.code, &er);
    }
    atomic_init(&e->n_cancels, 0);
    int rc = open_engine(e, p, &er);
    if (rc < 0) {
        forge_engine_close(e);
        return engine_error(err, rc, &er);
    }
    *out = e;
    return 0;
}

void forge_engine_close(struct forge_engine *e)
{
    if (!e)
        return;
    forge_engine_stop(e, NULL);
    assert(!e->in_step && !e->first); /* requests are freed before their engine */
    batch_fini(&e->batch);
    free(e->running);
    free(e->served);
    free(e->best);
    free(e->logits);
    free(e->dists);
    constrain_pool_fini(&e->grammars);
    draft_close(e->draft);
    engine_close_chat(e);
    load_close(&e->l);
    recover_free(e);
    free(e->sim);
    free(e);
}

const struct forge_engine_info *forge_engine_info(const struct forge_engine *e)
{
    return &e->info;
}

const struct forge_engine_stats *forge_engine_stats(const struct forge_engine *e)
{
    return &e->stats;
}

static void add_row(struct forge_placement *p, const struct forge_placement *more)
{
    p->calls += more->calls;
    p->rows += more->rows;
    p->bytes += more->bytes;
    p->flops += more->flops;
    p->seconds += more->seconds;
}

/* Adds a row to those of its operation, which begin at `first`: what one device ran is one row. */
static void place(struct forge_engine *e, size_t first, const struct forge_placement *row)
{
    const size_t room = sizeof e->placement / sizeof *e->placement;
    size_t at = first;
    while (at < e->n_placements && strcmp(e->placement[at].device, row->device) != 0)
        at++;
    if (at == room)
        return; /* more devices than there can be */
    if (at == e->n_placements) {
        e->placement[e->n_placements++] = *row;
        return;
    }
    add_row(&e->placement[at], row);
}

void engine_place(struct forge_engine *e)
{
    e->n_placements = 0;
    for (int op = 0; op < OP_COUNT; op++) {
        const char *name = op_name((enum op_id)op);
        size_t first = e->n_placements; /* of this operation's rows */
        for (size_t i = 0; i < e->n_past; i++)
            if (strcmp(e->past[i].operation, name) == 0)
                place(e, first, &e->past[i]);
        for (int i = 0; i < e->l.n_backends; i++) {
            const struct op_stats *s = op_stats(e->l.backends[i], (enum op_id)op);
            if (s->calls > 0)
                place(e, first, &(struct forge_placement){name, s->device, s->calls, s->rows, s->bytes, s->flops, s->seconds});
        }
    }
    e->placed = true;
}

/* What is asked for is not rebuilt by every step.  Engines are never const objects. */
static void bring_up(const struct forge_engine *e)
{
    if (!e->placed)
        engine_place((struct forge_engine *)(uintptr_t)e);
}

size_t forge_engine_n_placements(const struct forge_engine *e)
{
    bring_up(e);
    return e->n_placements;
}

const struct forge_placement *forge_engine_placement(const struct forge_engine *e, size_t i)
{
    bring_up(e);
    return i < e->n_placements ? &e->placement[i] : NULL;
}

int forge_engine_kernel(const struct forge_engine *e, size_t i, struct forge_kernel *out)
{
    return load_kernel(&e->l, i, out);
}

int forge_engine_event(const struct forge_engine *e, size_t i, struct forge_event *out)
{
    return load_event(&e->l, i, out);
}
