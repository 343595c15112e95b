/* The stand-ins: an operation that the device gets wrong reads its operands,
 * computes on a CPU instance and writes the result back.  Slow, right, and
 * counted under the CPU's name.
 *
 * Must not know why an operation is here, nor any particular backend. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/guard.h"
#include "backend/guard_parts.h"
#include "backend/registry.h"
#include "base/mem.h"

/* ---- operands on the way ---- */
enum { MAX_MOVED = 8 };
#define COMPARE_BOUND 1e-3 /* rounding of f32 sums stays far below, a wrong index far above */
struct move {
    struct guard *g;
    struct backend *be, *cpu;
    struct buffer *bufs[MAX_MOVED];
    int n;
    struct err err; /* first failure */
};

static struct move move_begin(struct backend *be)
{
    struct move m = {.g = be->guard, .be = be, .cpu = be->guard->cpu};
    op_begin(m.cpu);
    if (be->warming)
        m.err.code = ERR_CANCELLED; /* nothing is to be computed: all that follows is left out */
    if (!m.g->compare)
        be->ran_on = m.cpu->device;
    return m;
}

/* When comparing, the backend's own operation runs once its operands are kept. */
#define OWN(entry, ...)                                                                                      \
    if (m.g->compare && m.err.code == 0)                                                                     \
    m.g->own->entry(be, __VA_ARGS__)

/* Room for t on the CPU. */
static struct tensor move_room(struct move *m, const struct tensor *t)
{
    struct tensor out = {0};

    if (m->err.code == 0 && op_alloc(m->cpu, &out, t->dtype, t->rows, t->cols, &m->err) == 0)
        m->bufs[m->n++] = out.buf;
    return out;
}

static struct tensor move_in(struct move *m, const struct tensor *t)
{
    struct tensor out = move_room(m, t);

    if (m->err.code == 0)
        m->g->own->read(m->be, out.buf->host + out.off, t, &m->err);
    return out;
}

/* The largest difference of two runs of values, as a share of the largest wanted value. */
static double difference(const float *got, const float *want, size_t n)
{
    double worst = 0, largest = 0;

    for (size_t i = 0; i < n; i++) {
        double a = (double)got[i], b = (double)want[i];
        worst = fmax(worst, a == b || (isnan(a) && isnan(b)) ? 0 : fabs(a - b));
        largest = fmax(largest, fabs(b));
    }
    return worst > 0 ? worst / fmax(largest, 1e-30) : 0;
}

/* What the backend computed itself against what the reference did. */
static void move_compare(struct move *m, const struct tensor *to, const struct tensor *from)
{
    size_t n = tensor_size(to);
    uint8_t *got = mem_array(n, 1);
    const uint8_t *want = from->buf->host + from->off;

    if (got == NULL)
        err_set(&m->err, ERR_NOMEM, "no memory to compare with the reference");
    else if (m->g->own->read(m->be, got, to, &m->err) == 0 && to->dtype != DTYPE_F32 && memcmp(got, want, n) != 0)
        err_set(&m->err, ERR_DEVICE, "other values than the reference");
    else if (m->err.code == 0 && to->dtype == DTYPE_F32) {
        double d = difference((const void *)got, (const void *)want, n / sizeof(float));
        if (!(d <= COMPARE_BOUND))
            err_set(&m->err, ERR_DEVICE, "differs from the reference by %.3g of the largest value", d);
    }
    free(got);
}

static void move_back(struct move *m, const struct tensor *to, const struct tensor *from)
{
    if (m->err.code != 0 || op_sync(m->cpu, &m->err) != 0)
        return;
    if (m->g->compare)
        move_compare(m, to, from);
    else
        m->g->own->write(m->be, to, from->buf->host + from->off);
}

static void move_end(struct move *m)
{
    if (m->err.code != 0 && !m->be->warming)
        backend_fail(m->be, m->err.code, "%s%s: %s", m->g->compare ? "checked on " : "computed instead on ",
                     m->cpu->device, m->err.msg);
    while (m->n > 0)
        op_free(m->bufs[--m->n]);
}

/* The CPU's view of a weight, or a part of one. */
static bool twin_of(const struct guard *g, const struct tensor *w, struct tensor *out)
{
    for (size_t i = 0; i < g->n_twins; i++) {
        const struct guard_twin *t = &g->twins[i];
        if (t->buf != w->buf || w->off < t->off)
            continue;
        *out = t->cpu;
        out->off += w->off - t->off;
        out->rows = w->rows;
        return true;
    }
    return false;
}

/* A weight without a view comes back as the exact f32 values that every dequantiser gives. */
static struct tensor move_weight(struct move *m, const struct tensor *w)
{
    struct tensor out = {0}, plain = *w;

    if (twin_of(m->g, w, &out))
        return out;
    plain.dtype = DTYPE_F32;
    out = move_room(m, &plain);
    if (m->err.code == 0)
        m->g->own->export(m->be, (float *)(void *)(out.buf->host + out.off), w, &m->err);
    return out;
}

static bool broken(const struct backend *be, enum op_id op, enum dtype dtype)
{
    return (be->guard->broken[op] >> dtype & 1) != 0;
}

/* ---- operations with weights: by the weight's type ---- */
static void stand_embed(struct backend *be, const struct tensor *out, const struct tensor *table,
                        const struct tensor *ids, float scale)
{
    if (!broken(be, OP_EMBED, table->dtype)) {
        be->guard->own->embed(be, out, table, ids, scale);
        return;
    }
    struct move m = move_begin(be);
    struct tensor o = move_room(&m, out), t = move_weight(&m, table), i = move_in(&m, ids);
    if (m.err.code == 0)
        op_embed(m.cpu, &o, &t, &i, scale);
    OWN(embed, out, table, ids, scale);
    move_back(&m, out, &o);
    move_end(&m);
}

static void stand_linear(struct backend *be, const struct tensor *out, const struct tensor *x,
                         const struct tensor *w, const struct tensor *bias)
{
    if (!broken(be, OP_LINEAR, w->dtype)) {
        be->guard->own->linear(be, out, x, w, bias);
        return;
    }
    struct move m = move_begin(be);
    struct tensor o = move_room(&m, out), a = move_in(&m, x), t = move_weight(&m, w), b = {0};
    if (bias != NULL)
        b = move_in(&m, bias);
    if (m.err.code == 0)
        op_linear(m.cpu, &o, &a, &t, bias != NULL ? &b : NULL);
    OWN(linear, out, x, w, bias);
    move_back(&m, out, &o);
    move_end(&m);
}

/* The experts lie one by one; those without a view are exported one by one into a tensor of all. */
static void stand_linear_experts(struct backend *be, const struct tensor *out, const struct tensor *x,
                                 const struct tensor *experts, int n_experts, const struct tensor *ids,
                                 const struct tensor *w)
{
    if (!broken(be, OP_LINEAR_EXPERTS, experts[0].dtype)) {
        be->guard->own->linear_experts(be, out, x, experts, n_experts, ids, w);
        return;
    }
    struct move m = move_begin(be);
    struct tensor *all = mem_array((size_t)n_experts, sizeof *all), whole = experts[0];
    struct tensor o = move_room(&m, out), a = move_in(&m, x), i = move_in(&m, ids), b = {0};
    int e = 0;

    if (w != NULL)
        b = move_in(&m, w);
    while (all != NULL && e < n_experts && twin_of(m.g, &experts[e], &all[e]))
        e++;
    if (all != NULL && e < n_experts) { /* then none has one */
        whole.dtype = DTYPE_F32;
        whole.rows *= n_experts;
        whole = move_room(&m, &whole);
        for (e = 0; m.err.code == 0 && e < n_experts; e++) {
            all[e] = tensor_rows(&whole, e * experts[0].rows, experts[0].rows);
            m.g->own->export(be, (float *)(void *)(all[e].buf->host + all[e].off), &experts[e], &m.err);
        }
    }
    if (all == NULL)
        err_set(&m.err, ERR_NOMEM, "no memory for a list of %d experts", n_experts);
    if (m.err.code == 0)
        op_linear_experts(m.cpu, &o, &a, all, n_experts, &i, w != NULL ? &b : NULL);
    OWN(linear_experts, out, x, experts, n_experts, ids, w);
    move_back(&m, out, &o);
    free(all);
    move_end(&m);
}

/* ---- operations without ---- */
static void stand_rmsnorm(struct backend *be, const struct tensor *out, const struct tensor *x,
                          const struct tensor *w, float eps, bool add_one)
{
    struct move m = move_begin(be);
    struct tensor o = move_room(&m, out), a = move_in(&m, x), b = move_in(&m, w);
    if (m.err.code == 0)
        op_rmsnorm(m.cpu, &o, &a, &b, eps, add_one);
    OWN(rmsnorm, out, x, w, eps, add_one);
    move_back(&m, out, &o);
    move_end(&m);
}

static void stand_rope(struct backend *be, const struct tensor *x, const struct tensor *cs, int n_heads,
                       int n_rot, enum op_pairs pairs)
{
    struct move m = move_begin(be);
    struct tensor a = move_in(&m, x), c = move_in(&m, cs);
    if (m.err.code == 0)
        op_rope(m.cpu, &a, &c, n_heads, n_rot, pairs);
    OWN(rope, x, cs, n_heads, n_rot, pairs);
    move_back(&m, x, &a);
    move_end(&m);
}

static void stand_act_mul(struct backend *be, const struct tensor *out, const struct tensor *gate,
                          const struct tensor *up, enum op_act act)
{
    struct move m = move_begin(be);
    struct tensor o = move_room(&m, out), g = move_in(&m, gate), u = move_in(&m, up);
    if (m.err.code == 0)
        op_act_mul(m.cpu, &o, &g, &u, act);
    OWN(act_mul, out, gate, up, act);
    move_back(&m, out, &o);
    move_end(&m);
}

static void stand_add(struct backend *be, const struct tensor *out, const struct tensor *a,
                      const struct tensor *b)
{
    struct move m = move_begin(be);
    struct tensor o = move_room(&m, out), x = move_in(&m, a), y = move_in(&m, b);
    if (m.err.code == 0)
        op_add(m.cpu, &o, &x, &y);
    OWN(add, out, a, b);
    move_back(&m, out, &o);
    move_end(&m);
}

static void stand_scale(struct backend *be, const struct tensor *x, float s)
{
    struct move m = move_begin(be);
    struct tensor a = move_in(&m, x);
    if (m.err.code == 0)
        op_scale(m.cpu, &a, s);
    OWN(scale, x, s);
    move_back(&m, x, &a);
    move_end(&m);
}

static void stand_softcap(struct backend *be, const struct tensor *x, float cap)
{
    struct move m = move_begin(be);
    struct tensor a = move_in(&m, x);
    if (m.err.code == 0)
        op_softcap(m.cpu, &a, cap);
    OWN(softcap, x, cap);
    move_back(&m, x, &a);
    move_end(&m);
}

static void stand_route(struct backend *be, const struct tensor *ids, const struct tensor *w,
                        const struct tensor *logits, bool renorm)
{
    struct move m = move_begin(be);
    struct tensor i = move_room(&m, ids), o = move_room(&m, w), l = move_in(&m, logits);
    if (m.err.code == 0)
        op_route(m.cpu, &i, &o, &l, renorm);
    OWN(route, ids, w, logits, renorm);
    move_back(&m, ids, &i);
    move_back(&m, w, &o);
    move_end(&m);
}

static void stand_gather_rows(struct backend *be, const struct tensor *out, const struct tensor *x,
                              const struct tensor *rows)
{
    struct move m = move_begin(be);
    struct tensor o = move_room(&m, out), a = move_in(&m, x), r = move_in(&m, rows);
    if (m.err.code == 0)
        op_gather_rows(m.cpu, &o, &a, &r);
    OWN(gather_rows, out, x, rows);
    move_back(&m, out, &o);
    move_end(&m);
}

static void stand_argmax(struct backend *be, const struct tensor *out, const struct tensor *x)
{
    struct move m = move_begin(be);
    struct tensor o = move_room(&m, out), a = move_in(&m, x);
    if (m.err.code == 0)
        op_argmax(m.cpu, &o, &a);
    OWN(argmax, out, x);
    move_back(&m, out, &o);
    move_end(&m);
}

static void stand_topk(struct backend *be, const struct tensor *ids, const struct tensor *vals,
                       const struct tensor *x)
{
    struct move m = move_begin(be);
    struct tensor i = move_room(&m, ids), v = move_room(&m, vals), a = move_in(&m, x);
    if (m.err.code == 0)
        op_topk(m.cpu, &i, &v, &a);
    OWN(topk, ids, vals, x);
    move_back(&m, ids, &i);
    move_back(&m, vals, &v);
    move_end(&m);
}

/* ---- pages: only compared, whole pools at a time ---- */
static struct kv_rows move_rows(struct move *m, const struct kv_rows *rows)
{
    struct kv_rows r = *rows;
    r.pos = move_in(m, &rows->pos);
    r.seq = move_in(m, &rows->seq);
    r.pages = move_in(m, &rows->pages);
    return r;
}

static struct kv_layer move_layer(struct move *m, const struct kv_layer *kv)
{
    struct kv_layer l = *kv;
    l.k = move_in(m, &kv->k);
    l.v = move_in(m, &kv->v);
    return l;
}

static void compare_kv_store(struct backend *be, const struct kv_layer *kv, const struct tensor *k,
                             const struct tensor *v, const struct kv_rows *rows)
{
    struct move m = move_begin(be);
    struct tensor a = move_in(&m, k), b = move_in(&m, v);
    struct kv_layer l = move_layer(&m, kv);
    struct kv_rows r = move_rows(&m, rows);
    if (m.err.code == 0)
        op_kv_store(m.cpu, &l, &a, &b, &r);
    OWN(kv_store, kv, k, v, rows);
    move_back(&m, &kv->k, &l.k);
    move_back(&m, &kv->v, &l.v);
    move_end(&m);
}

static void compare_attention(struct backend *be, const struct tensor *out, const struct tensor *q,
                              const struct kv_layer *kv, const struct kv_rows *rows,
                              const struct attention_args *args)
{
    struct move m = move_begin(be);
    struct tensor o = move_room(&m, out), a = move_in(&m, q);
    struct kv_layer l = move_layer(&m, kv);
    struct kv_rows r = move_rows(&m, rows);
    if (m.err.code == 0)
        op_attention(m.cpu, &o, &a, &l, &r, args);
    OWN(attention, out, q, kv, rows, args);
    move_back(&m, out, &o);
    move_end(&m);
}

/* ---- the table ---- */
int guard_check_ops(struct backend *be, struct err *err)
{
    struct backend *ref[REGISTRY_MAX_INSTANCES];
    struct backend_params plain = {.n_threads = 1};
    struct guard *g = mem_array(1, sizeof *g);
    int n, rc;

    if (g == NULL)
        return err_set(err, ERR_NOMEM, "no memory for the comparison of operations");
    rc = registry_open("ref", &plain, ref, &n, NULL, 0, err);
    if (rc != 0) {
        free(g);
        return rc;
    }
    *g = (struct guard){.be = be, .own = be->ops, .ops = *be->ops, .cpu = ref[0], .compare = true, .checked = UINT32_MAX};
    for (int i = 0; i < OP_COUNT; i++)
        g->broken[i] = UINT32_MAX;
    rc = guard_stand_in(g, err);
    g->ops.kv_store = compare_kv_store;
    g->ops.attention = compare_attention;
    guard_watch(g);
    return rc;
}

int guard_stand_in(struct guard *g, struct err *err)
{
    struct backend *cpu[REGISTRY_MAX_INSTANCES];
    struct backend_params plain = {.n_threads = g->params.n_threads, .cpu_isa = g->params.cpu_isa};
    int n, rc;

    if (g->cpu == NULL) {
        rc = registry_open("cpu", &plain, cpu, &n, NULL, 0, err);
        if (rc != 0)
            return rc;
        g->cpu = cpu[0];
    }
#define STAND(id, entry)                                                                                     \
    if (g->broken[id] != 0)                                                                                  \
    g->ops.entry = stand_##entry
    STAND(OP_EMBED, embed);
    STAND(OP_RMSNORM, rmsnorm);
    STAND(OP_LINEAR, linear);
    STAND(OP_ROPE, rope);
    STAND(OP_ACT_MUL, act_mul);
    STAND(OP_ADD, add);
    STAND(OP_SCALE, scale);
    STAND(OP_SOFTCAP, softcap);
    STAND(OP_ROUTE, route);
    STAND(OP_LINEAR_EXPERTS, linear_experts);
    STAND(OP_GATHER_ROWS, gather_rows);
    STAND(OP_ARGMAX, argmax);
    STAND(OP_TOPK, topk);
#undef STAND
    /* Fused forms are composed of the above.  One that passed its own cases may run the kernels of its parts, so it goes
     * with them too. */
    const uint32_t *b = g->broken;
    if ((b[OP_LINEAR_QKV] | b[OP_LINEAR]) != 0)
        g->ops.linear_qkv = NULL;
    if ((b[OP_GATE_UP] | b[OP_LINEAR] | b[OP_ACT_MUL]) != 0)
        g->ops.gate_up = NULL;
    if ((b[OP_LINEAR_ADD] | b[OP_LINEAR] | b[OP_ADD]) != 0)
        g->ops.linear_add = NULL;
    if ((b[OP_NORM_ROPE] | b[OP_RMSNORM] | b[OP_ROPE]) != 0)
        g->ops.norm_rope = NULL;
    return 0;
}

/* ---- weights ---- */
static int add_twin(struct guard *g, const struct tensor *w, const struct host_matrix *m, struct err *err)
{
    struct guard_twin *grown = mem_grow(g->twins, &g->cap_twins, g->n_twins + 1, sizeof *grown), t;
    int rc;

    if (grown == NULL)
        return err_set(err, ERR_NOMEM, "%s: no memory for its record on the CPU", m->name);
    g->twins = grown;
    rc = op_import(g->cpu, &t.cpu, m, err);
    if (rc != 0)
        return rc;
    t.buf = w->buf;
    t.off = w->off;
    g->twins[g->n_twins++] = t;
    return 0;
}

static int watch_import(struct backend *be, struct tensor *out, const struct host_matrix *m, struct err *err)
{
    struct guard *g = be->guard;
    int rc = guard_check_type(g, m->dtype, err);

    if (rc == 0)
        rc = g->own->import(be, out, m, err);
    if (rc == 0 && (broken(be, OP_LINEAR, m->dtype) || broken(be, OP_EMBED, m->dtype) ||
                    broken(be, OP_LINEAR_EXPERTS, m->dtype))) {
        rc = add_twin(g, out, m, err);
        if (rc != 0)
            g->own->free(out->buf);
    }
    return rc;
}

static void watch_free(struct buffer *buf)
{
    struct guard *g = buf->be->guard;

    for (size_t i = g->n_twins; i-- > 0;)
        if (g->twins[i].buf == buf) {
            op_free(g->twins[i].cpu.buf);
            g->twins[i] = g->twins[--g->n_twins];
        }
    g->own->free(buf);
}

static void watch_close(struct backend *be)
{
    struct guard *g = be->guard;
    const struct backend_ops *own = g->own;

    for (size_t i = 0; i < g->n_twins; i++)
        op_free(g->twins[i].cpu.buf);
    registry_close(g->cpu);
    free(g->twins);
    backend_params_fini(&g->params);
    free(g);
    be->guard = NULL;
    be->ops = own;
    own->close(be);
}

void guard_watch(struct guard *g)
{
    g->ops.import = watch_import;
    g->ops.free = watch_free;
    g->ops.close = watch_close;
    g->be->guard = g;
    g->be->ops = &g->ops;
}
