/* The choke point: every operation of every instance passes here.  Checks
 * shapes, drops what follows a latched failure, counts calls, rows, bytes and
 * flops, times while profiling, composes the fused forms a backend lacks.
 * Must not know any particular backend, nor what a model does with it.
 *
 * Bytes and flops are what the shapes say must be moved and computed, each
 * operand once; how a backend really does it is its own matter. */
#include <assert.h>
#include <math.h>
#include <stdio.h>

#include "backend/backend.h"
#include "base/clock.h"
#include "base/mem.h"

static const char *const names[OP_COUNT] = {
    [OP_EMBED] = "embed",
    [OP_RMSNORM] = "rmsnorm",
    [OP_LINEAR] = "linear",
    [OP_ROPE] = "rope",
    [OP_KV_STORE] = "kv_store",
    [OP_ATTENTION] = "attention",
    [OP_ACT_MUL] = "act_mul",
    [OP_ADD] = "add",
    [OP_SCALE] = "scale",
    [OP_SOFTCAP] = "softcap",
    [OP_ROUTE] = "route",
    [OP_LINEAR_EXPERTS] = "linear_experts",
    [OP_GATHER_ROWS] = "gather_rows",
    [OP_ARGMAX] = "argmax",
    [OP_TOPK] = "topk",
    [OP_LINEAR_QKV] = "linear_qkv",
    [OP_GATE_UP] = "gate_up",
    [OP_LINEAR_ADD] = "linear_add",
    [OP_NORM_ROPE] = "norm_rope",
};

const char *op_name(enum op_id op)
{
    return op >= 0 && op < OP_COUNT ? names[op] : "?";
}

/* ---- contracts ---- */
/* A matrix of this instance that lies inside its buffer. */
static ATTR_UNUSED bool is(const struct backend *be, const struct tensor *t, enum dtype dtype, int64_t rows,
                           int64_t cols)
{
    size_t end;
    return t->buf != NULL && t->buf->be == be && t->dtype == dtype && t->rows == rows && t->cols == cols &&
           mem_add(t->off, tensor_size(t), &end) && end <= t->buf->size;
}

static ATTR_UNUSED bool is_weight(const struct backend *be, const struct tensor *t, int64_t rows,
                                  int64_t cols)
{
    return dtype_runnable(t->dtype) && is(be, t, t->dtype, rows, cols);
}

static ATTR_UNUSED bool is_kv(const struct backend *be, const struct kv_layer *kv, const struct kv_rows *rows,
                              int64_t n)
{
    int64_t unit = (int64_t)kv->n_kv_heads * kv->page_size;
    return kv->n_kv_heads > 0 && kv->head_dim > 0 && kv->page_size > 0 && kv->k.rows % unit == 0 &&
           (kv->k.dtype == DTYPE_F32 || kv->k.dtype == DTYPE_F16 ||
            (kv->k.dtype == DTYPE_Q8_0 && kv->head_dim % (int)dtype_info(DTYPE_Q8_0)->block_elems == 0)) &&
           is(be, &kv->k, kv->k.dtype, kv->k.rows, kv->head_dim) &&
           is(be, &kv->v, kv->k.dtype, kv->k.rows, kv->head_dim) && is(be, &rows->pos, DTYPE_I32, n, 1) &&
           is(be, &rows->seq, DTYPE_I32, n, 1) &&
           is(be, &rows->pages, DTYPE_I32, rows->pages.rows, rows->pages.cols) && rows->max_pos >= 0 &&
           rows->max_pos / kv->page_size < rows->pages.cols;
}

/* ---- counting ---- */
static uint64_t size_of(const struct tensor *t)
{
    return (uint64_t)tensor_size(t);
}

static uint64_t count(const struct tensor *t)
{
    return (uint64_t)t->rows * (uint64_t)t->cols;
}

/* Bytes of `rows` rows of t. */
static uint64_t size_of_rows(const struct tensor *t, uint64_t rows)
{
    return t->rows > 0 ? size_of(t) / (uint64_t)t->rows * rows : 0;
}

/* False: the operation has nothing to do, or a failure is latched. */
static bool enter(struct backend *be, enum op_id op, const struct tensor *out, const struct tensor *in)
{
    if (be->latched.code != 0 || out->rows == 0)
        return false;
    be->doing = names[op];
    be->doing_id = op;
    be->in_rows = in->rows;
    be->in_cols = in->cols;
    be->out_rows = out->rows;
    be->out_cols = out->cols;
    be->ran_on = be->device;
    be->started = be->profiling ? clock_now() : 0;
    return true;
}

/* By the device where that ran it, else by waiting. */
static void take_time(struct backend *be, enum op_id op, uint64_t bytes, uint64_t flops)
{
    struct err err = {0};
    int rc;

    if (be->ops->timed != NULL && be->ops->timed(be, op, bytes, flops))
        return;
    rc = be->ops->sync(be, &err);
    if (rc != 0)
        backend_fail(be, rc, "%s", err.msg);
    double seconds = clock_now() - be->started;
    be->stats[op].seconds += seconds;
    prof_add(be->prof, prof_row(be->prof, names[op], op, false), be->started, seconds, (double)bytes, (double)flops);
}

static void leave(struct backend *be, enum op_id op, int64_t rows, uint64_t bytes, uint64_t flops)
{
    struct op_stats *s = &be->stats[op];

    if (be->profiling)
        take_time(be, op, bytes, flops);
    be->doing = NULL;
    s->calls++;
    s->rows += (uint64_t)rows;
    s->bytes += bytes;
    s->flops += flops;
    if (s->device == NULL) {
        s->device = be->ran_on;
    } else if (s->device != be->ran_on && s->device != be->both[op]) {
        bool own = be->ran_on == be->device; /* the instance's own name comes first */
        snprintf(be->both[op], sizeof be->both[op], "%.90s, %.90s", own ? be->ran_on : s->device,
                 own ? s->device : be->ran_on);
        s->device = be->both[op];
    }
}

void op_next(struct backend *be, const struct tensor *w, int n)
{
    if (be->ops->next != NULL && be->latched.code == 0)
        be->ops->next(be, w, n);
}

bool op_warm(struct backend *be, bool on)
{
    if (be->ops->warm == NULL)
        return false;
    be->warming = on;
    be->ops->warm(be, on);
    return true;
}

const struct op_stats *op_stats(const struct backend *be, enum op_id op)
{
    assert(op >= 0 && op < OP_COUNT);
    return &be->stats[op];
}

void op_stats_reset(struct backend *be)
{
    for (int i = 0; i < OP_COUNT; i++)
        be->stats[i] = (struct op_stats){0};
    prof_reset(be->prof);
}

void op_profile(struct backend *be, bool on)
{
    be->profiling = on;
    if (on && be->prof == NULL)
        be->prof = prof_new();
}

const struct prof *op_prof(const struct backend *be)
{
    return be->prof;
}

void op_caps(const struct backend *be, struct backend_caps *out)
{
    be->ops->caps(be, out);
    out->compile_s = be->compile_s;
}

const char *op_device(const struct backend *be)
{
    return be->device;
}

/* ---- rows in, rows out ---- */
void op_embed(struct backend *be, const struct tensor *out, const struct tensor *table,
              const struct tensor *ids, float scale)
{
    assert(is(be, out, DTYPE_F32, ids->rows, table->cols));
    assert(is_weight(be, table, table->rows, table->cols));
    assert(is(be, ids, DTYPE_I32, ids->rows, 1));
    if (!enter(be, OP_EMBED, out, table))
        return;
    be->ops->embed(be, out, table, ids, scale);
    leave(be, OP_EMBED, out->rows, size_of(out) + size_of(ids) + size_of_rows(table, (uint64_t)out->rows),
          count(out));
}

void op_rmsnorm(struct backend *be, const struct tensor *out, const struct tensor *x, const struct tensor *w,
                float eps, bool add_one)
{
    assert(is(be, x, DTYPE_F32, x->rows, x->cols));
    assert(is(be, out, DTYPE_F32, x->rows, x->cols));
    assert(is(be, w, DTYPE_F32, 1, x->cols));
    if (!enter(be, OP_RMSNORM, out, x))
        return;
    be->ops->rmsnorm(be, out, x, w, eps, add_one);
    leave(be, OP_RMSNORM, x->rows, size_of(x) + size_of(out) + size_of(w), 4 * count(x));
}

static void check_linear(struct backend *be, const struct tensor *out, const struct tensor *x,
                         const struct tensor *w, const struct tensor *bias)
{
    assert(is(be, x, DTYPE_F32, x->rows, x->cols));
    assert(is_weight(be, w, w->rows, x->cols));
    assert(is(be, out, DTYPE_F32, x->rows, w->rows));
    assert(bias == NULL || is(be, bias, DTYPE_F32, 1, w->rows));
    (void)be, (void)out, (void)x, (void)w, (void)bias;
}

static uint64_t linear_bytes(const struct tensor *out, const struct tensor *w, const struct tensor *bias)
{
    return size_of(out) + size_of(w) + (bias != NULL ? size_of(bias) : 0);
}

static uint64_t linear_flops(const struct tensor *x, const struct tensor *w)
{
    return 2 * (uint64_t)x->rows * count(w);
}

void op_linear(struct backend *be, const struct tensor *out, const struct tensor *x, const struct tensor *w,
               const struct tensor *bias)
{
    check_linear(be, out, x, w, bias);
    if (!enter(be, OP_LINEAR, out, x))
        return;
    be->ops->linear(be, out, x, w, bias);
    leave(be, OP_LINEAR, x->rows, size_of(x) + linear_bytes(out, w, bias), linear_flops(x, w));
}

void op_rope(struct backend *be, const struct tensor *x, const struct tensor *cs, int n_heads, int n_rot,
             enum op_pairs pairs)
{
    assert(n_heads > 0 && n_rot >= 0 && n_rot % 2 == 0);
    assert(is(be, x, DTYPE_F32, x->rows, x->cols));
    assert(x->cols % n_heads == 0 && x->cols / n_heads >= n_rot);
    assert(is(be, cs, DTYPE_F32, x->rows, n_rot));
    if (n_rot == 0 || !enter(be, OP_ROPE, x, x))
        return;
    be->ops->rope(be, x, cs, n_heads, n_rot, pairs);
    uint64_t n = (uint64_t)x->rows * (uint64_t)n_heads * (uint64_t)n_rot;
    leave(be, OP_ROPE, x->rows, 8 * n + size_of(cs), 3 * n);
}

void op_kv_store(struct backend *be, const struct kv_layer *kv, const struct tensor *k,
                 const struct tensor *v, const struct kv_rows *rows)
{
    assert(is_kv(be, kv, rows, k->rows));
    assert(is(be, k, DTYPE_F32, k->rows, (int64_t)kv->n_kv_heads * kv->head_dim));
    assert(is(be, v, DTYPE_F32, k->rows, k->cols));
    if (!enter(be, OP_KV_STORE, k, k))
        return;
    be->ops->kv_store(be, kv, k, v, rows);
    const struct dtype_info *page = dtype_info(kv->k.dtype);
    uint64_t stored = 2 * count(k) / page->block_elems * page->block_size;
    leave(be, OP_KV_STORE, k->rows, size_of(k) + size_of(v) + stored, 0);
}

void op_rows_count(struct kv_rows *rows, const int32_t *pos, const int32_t *seq, int window)
{
    rows->max_pos = 0;
    rows->n_seen = rows->n_read = 0;
    for (int64_t r = 0; r < rows->pos.rows; r++) {
        uint64_t seen = window > 0 && pos[r] >= window ? (uint64_t)window : (uint64_t)pos[r] + 1, fresh = seen;
        if (r > 0 && seq[r] == seq[r - 1] && pos[r] > pos[r - 1] && (uint64_t)(pos[r] - pos[r - 1]) < seen)
            fresh = (uint64_t)(pos[r] - pos[r - 1]);
        rows->max_pos = pos[r] > rows->max_pos ? pos[r] : rows->max_pos;
        rows->n_seen += seen;
        rows->n_read += fresh;
    }
}

void op_attention(struct backend *be, const struct tensor *out, const struct tensor *q,
                  const struct kv_layer *kv, const struct kv_rows *rows, const struct attention_args *args)
{
    assert(is_kv(be, kv, rows, q->rows));
    assert(args->n_heads > 0 && args->n_heads % kv->n_kv_heads == 0 && args->window >= 0);
    assert(rows->n_seen >= (uint64_t)q->rows); /* a row sees itself: op_rows_count was called */
    assert(rows->n_read <= rows->n_seen);
    assert(is(be, q, DTYPE_F32, q->rows, (int64_t)args->n_heads * kv->head_dim));
    assert(is(be, out, DTYPE_F32, q->rows, q->cols));
    if (!enter(be, OP_ATTENTION, out, q))
        return;
    be->ops->attention(be, out, q, kv, rows, args);
    const struct dtype_info *page = dtype_info(kv->k.dtype);
    uint64_t row = (uint64_t)kv->n_kv_heads * (uint64_t)kv->head_dim / page->block_elems * page->block_size;
    uint64_t seen = rows->n_seen;
    leave(be, OP_ATTENTION, q->rows, size_of(q) + size_of(out) + 2 * rows->n_read * row,
          4 * seen * (uint64_t)args->n_heads * (uint64_t)kv->head_dim);
}

/* ---- element by element ---- */
void op_act_mul(struct backend *be, const struct tensor *out, const struct tensor *gate,
                const struct tensor *up, enum op_act act)
{
    assert(is(be, gate, DTYPE_F32, gate->rows, gate->cols));
    assert(is(be, up, DTYPE_F32, gate->rows, gate->cols));
    assert(is(be, out, DTYPE_F32, gate->rows, gate->cols));
    if (!enter(be, OP_ACT_MUL, out, gate))
        return;
    be->ops->act_mul(be, out, gate, up, act);
    leave(be, OP_ACT_MUL, out->rows, 3 * size_of(out), 8 * count(out));
}

void op_add(struct backend *be, const struct tensor *out, const struct tensor *a, const struct tensor *b)
{
    assert(is(be, a, DTYPE_F32, a->rows, a->cols));
    assert(is(be, b, DTYPE_F32, a->rows, a->cols));
    assert(is(be, out, DTYPE_F32, a->rows, a->cols));
    if (!enter(be, OP_ADD, out, a))
        return;
    be->ops->add(be, out, a, b);
    leave(be, OP_ADD, out->rows, 3 * size_of(out), count(out));
}

void op_scale(struct backend *be, const struct tensor *x, float s)
{
    assert(is(be, x, DTYPE_F32, x->rows, x->cols));
    if (!enter(be, OP_SCALE, x, x))
        return;
    be->ops->scale(be, x, s);
    leave(be, OP_SCALE, x->rows, 2 * size_of(x), count(x));
}

void op_softcap(struct backend *be, const struct tensor *x, float cap)
{
    assert(is(be, x, DTYPE_F32, x->rows, x->cols));
    assert(cap > 0);
    if (!enter(be, OP_SOFTCAP, x, x))
        return;
    be->ops->softcap(be, x, cap);
    leave(be, OP_SOFTCAP, x->rows, 2 * size_of(x), 8 * count(x));
}

/* ---- experts ---- */
void op_route(struct backend *be, const struct tensor *ids, const struct tensor *w,
              const struct tensor *logits, bool renorm)
{
    assert(is(be, logits, DTYPE_F32, logits->rows, logits->cols));
    assert(ids->cols > 0 && ids->cols <= logits->cols);
    assert(is(be, ids, DTYPE_I32, logits->rows, ids->cols));
    assert(is(be, w, DTYPE_F32, logits->rows, ids->cols));
    if (!enter(be, OP_ROUTE, ids, logits))
        return;
    be->ops->route(be, ids, w, logits, renorm);
    leave(be, OP_ROUTE, logits->rows, size_of(logits) + size_of(ids) + size_of(w), 4 * count(logits));
}

void op_linear_experts(struct backend *be, const struct tensor *out, const struct tensor *x,
                       const struct tensor *experts, int n_experts, const struct tensor *ids,
                       const struct tensor *w)
{
    int64_t n = ids->rows, pairs = ids->rows * ids->cols;

    assert(n_experts > 0 && is(be, ids, DTYPE_I32, n, ids->cols));
    assert(is(be, x, DTYPE_F32, w == NULL ? n : pairs, x->cols));
    assert(is(be, out, DTYPE_F32, w == NULL ? pairs : n, experts[0].rows));
    assert(w == NULL || is(be, w, DTYPE_F32, n, ids->cols));
    for (int e = 0; e < n_experts; e++) {
        assert(is_weight(be, &experts[e], out->cols, x->cols));
        assert(experts[e].dtype == experts[0].dtype);
    }
    if (!enter(be, OP_LINEAR_EXPERTS, out, x))
        return;
    be->ops->linear_experts(be, out, x, experts, n_experts, ids, w);
    /* which experts are read is only known on the device: at most one matrix for each pair */
    uint64_t read = (uint64_t)(pairs < n_experts ? pairs : n_experts);
    leave(be, OP_LINEAR_EXPERTS, n, size_of(x) + size_of(out) + size_of(ids) + read * size_of(&experts[0]),
          2 * (uint64_t)pairs * count(&experts[0]));
}

/* ---- picking ---- */
void op_gather_rows(struct backend *be, const struct tensor *out, const struct tensor *x,
                    const struct tensor *rows)
{
    assert(is(be, x, DTYPE_F32, x->rows, x->cols));
    assert(is(be, rows, DTYPE_I32, rows->rows, 1));
    assert(is(be, out, DTYPE_F32, rows->rows, x->cols));
    if (!enter(be, OP_GATHER_ROWS, out, x))
        return;
    be->ops->gather_rows(be, out, x, rows);
    leave(be, OP_GATHER_ROWS, out->rows, 2 * size_of(out) + size_of(rows), 0);
}

void op_argmax(struct backend *be, const struct tensor *out, const struct tensor *x)
{
    assert(is(be, x, DTYPE_F32, x->rows, x->cols));
    assert(is(be, out, DTYPE_I32, x->rows, 1));
    if (!enter(be, OP_ARGMAX, out, x))
        return;
    be->ops->argmax(be, out, x);
    leave(be, OP_ARGMAX, x->rows, size_of(x) + size_of(out), count(x));
}

void op_topk(struct backend *be, const struct tensor *ids, const struct tensor *vals, const struct tensor *x)
{
    assert(is(be, x, DTYPE_F32, x->rows, x->cols));
    assert(ids->cols > 0 && ids->cols <= x->cols);
    assert(is(be, ids, DTYPE_I32, x->rows, ids->cols));
    assert(is(be, vals, DTYPE_F32, x->rows, ids->cols));
    if (!enter(be, OP_TOPK, ids, x))
        return;
    be->ops->topk(be, ids, vals, x);
    leave(be, OP_TOPK, x->rows, size_of(x) + size_of(ids) + size_of(vals), count(x));
}

/* ---- fused forms ---- */
/* Runs CALL where the backend has the form and does not decline it; else what follows composes it. */
#define FUSED(be, id, entry, out, in, CALL, rows, bytes, flops)                                             \
    if ((be)->ops->entry != NULL && enter(be, id, out, in)) {                                               \
        if ((be)->ops->entry CALL) {                                                                        \
            leave(be, id, rows, bytes, flops);                                                              \
            return;                                                                                         \
        }                                                                                                   \
        (be)->doing = NULL;                                                                                 \
    }

void op_linear_qkv(struct backend *be, const struct tensor out[3], const struct tensor *x,
                   const struct tensor w[3], const struct tensor *const bias[3])
{
    uint64_t bytes = size_of(x), flops = 0;
    for (int i = 0; i < 3; i++) {
        check_linear(be, &out[i], x, &w[i], bias[i]);
        bytes += linear_bytes(&out[i], &w[i], bias[i]);
        flops += linear_flops(x, &w[i]);
    }
    FUSED(be, OP_LINEAR_QKV, linear_qkv, &out[0], x, (be, out, x, w, bias), x->rows, bytes, flops)
    for (int i = 0; i < 3; i++)
        op_linear(be, &out[i], x, &w[i], bias[i]);
}

void op_gate_up(struct backend *be, const struct tensor *out, const struct tensor *tmp,
                const struct tensor *x, const struct tensor *wg, const struct tensor *wu, enum op_act act)
{
    check_linear(be, out, x, wg, NULL);
    check_linear(be, tmp, x, wu, NULL);
    FUSED(be, OP_GATE_UP, gate_up, out, x, (be, out, tmp, x, wg, wu, act), x->rows,
          size_of(x) + linear_bytes(out, wg, NULL) + linear_bytes(tmp, wu, NULL),
          linear_flops(x, wg) + linear_flops(x, wu) + 8 * count(out))
    op_linear(be, out, x, wg, NULL);
    op_linear(be, tmp, x, wu, NULL);
    op_act_mul(be, out, out, tmp, act);
}

void op_linear_add(struct backend *be, const struct tensor *x, const struct tensor *tmp,
                   const struct tensor *h, const struct tensor *w, const struct tensor *bias)
{
    check_linear(be, x, h, w, bias);
    check_linear(be, tmp, h, w, bias);
    FUSED(be, OP_LINEAR_ADD, linear_add, x, h, (be, x, tmp, h, w, bias), h->rows,
          size_of(h) + size_of(x) + linear_bytes(x, w, bias), linear_flops(h, w) + count(x))
    op_linear(be, tmp, h, w, bias);
    op_add(be, x, x, tmp);
}

/* The heads of x, seen as rows of their own, then rotated. */
static void compose_norm_rope(struct backend *be, const struct tensor *x, const struct tensor *w,
                              const struct tensor *cs, int n_heads, const struct norm_rope_args *args)
{
    if (w != NULL) {
        struct tensor heads = tensor_reshape(x, x->rows * n_heads, args->head_dim);
        op_rmsnorm(be, &heads, &heads, w, args->eps, args->add_one);
    }
    if (args->n_rot > 0)
        op_rope(be, x, cs, n_heads, args->n_rot, args->pairs);
}

void op_norm_rope(struct backend *be, const struct tensor *q, const struct tensor *k, const struct tensor *wq,
                  const struct tensor *wk, const struct tensor *cs, const struct norm_rope_args *args)
{
    uint64_t heads = (uint64_t)q->rows * (uint64_t)(args->n_heads + args->n_kv_heads);

    assert(args->n_heads > 0 && args->n_kv_heads > 0 && args->head_dim > 0);
    assert(args->n_rot >= 0 && args->n_rot % 2 == 0 && args->n_rot <= args->head_dim);
    assert(is(be, q, DTYPE_F32, q->rows, (int64_t)args->n_heads * args->head_dim));
    assert(is(be, k, DTYPE_F32, q->rows, (int64_t)args->n_kv_heads * args->head_dim));
    assert(wq == NULL || is(be, wq, DTYPE_F32, 1, args->head_dim));
    assert(wk == NULL || is(be, wk, DTYPE_F32, 1, args->head_dim));
    assert(args->n_rot == 0 || is(be, cs, DTYPE_F32, q->rows, args->n_rot));
    FUSED(be, OP_NORM_ROPE, norm_rope, q, k, (be, q, k, wq, wk, cs, args), q->rows,
          2 * (size_of(q) + size_of(k)) + (args->n_rot > 0 ? size_of(cs) : 0),
          heads * (4 * (uint64_t)args->head_dim + 3 * (uint64_t)args->n_rot))
    compose_norm_rope(be, q, wq, cs, args->n_heads, args);
    compose_norm_rope(be, k, wk, cs, args->n_kv_heads, args);
}
#undef FUSED
