/* The `ref` backend: each operation as its formula reads, in plain C, on one
 * thread, sums in double, weights through their reference dequantiser.  It is
 * the oracle for every other backend and is never tuned. */
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "backend/cpu/host.h"
#include "backend/cpu/ref.h"
#include "base/mem.h"

struct ref {
    struct backend be;
    float *row; /* [n_row] one dequantised row of a weight */
    size_t n_row;
};

static void ref_close(struct backend *be)
{
    free(((struct ref *)be)->row);
    free(be);
}

/* Row r of a weight as f32, valid until the next call; NULL = failed. */
static const float *weight_row(struct backend *be, const struct tensor *w, int64_t r)
{
    struct ref *ref = (struct ref *)be;
    float *grown = mem_grow(ref->row, &ref->n_row, (size_t)w->cols, sizeof *ref->row);

    if (grown == NULL) {
        backend_fail(be, ERR_NOMEM, "no memory for a row of %lld values", (long long)w->cols);
        return NULL;
    }
    ref->row = grown;
    dtype_info(w->dtype)->to_f32(ref->row, host_ptr(w) + (size_t)r * host_row_size(w), (size_t)w->cols);
    return ref->row;
}

static double dot(const float *a, const float *b, int64_t n)
{
    double s = 0;
    for (int64_t i = 0; i < n; i++)
        s += (double)a[i] * (double)b[i];
    return s;
}

static void ref_embed(struct backend *be, const struct tensor *out, const struct tensor *table,
                      const struct tensor *ids, float scale)
{
    for (int64_t r = 0; r < ids->rows; r++) {
        int32_t id = host_i32(ids)[r];
        assert(id >= 0 && id < table->rows);
        const float *row = weight_row(be, table, id);
        if (row == NULL)
            return;
        for (int64_t i = 0; i < out->cols; i++)
            host_f32(out)[r * out->cols + i] = scale * row[i];
    }
}

static void ref_rmsnorm(struct backend *be, const struct tensor *out, const struct tensor *x,
                        const struct tensor *w, float eps, bool add_one)
{
    (void)be;
    for (int64_t r = 0; r < x->rows; r++) {
        const float *in = host_f32(x) + r * x->cols;
        float *to = host_f32(out) + r * x->cols;
        double inv = 1 / sqrt(dot(in, in, x->cols) / (double)x->cols + (double)eps);
        for (int64_t i = 0; i < x->cols; i++)
            to[i] = (float)(in[i] * inv * ((double)host_load(host_ptr(w), i) + (add_one ? 1 : 0)));
    }
}

static void ref_linear(struct backend *be, const struct tensor *out, const struct tensor *x,
                       const struct tensor *w, const struct tensor *bias)
{
    for (int64_t o = 0; o < w->rows; o++) {
        const float *row = weight_row(be, w, o);
        if (row == NULL)
            return;
        double b = bias != NULL ? (double)host_load(host_ptr(bias), o) : 0;
        for (int64_t r = 0; r < x->rows; r++)
            host_f32(out)[r * out->cols + o] = (float)(dot(row, host_f32(x) + r * x->cols, x->cols) + b);
    }
}

static void ref_rope(struct backend *be, const struct tensor *x, const struct tensor *cs, int n_heads,
                     int n_rot, enum op_pairs pairs)
{
    int64_t head_dim = x->cols / n_heads;

    (void)be;
    for (int64_t r = 0; r < x->rows; r++)
        for (int h = 0; h < n_heads; h++)
            for (int i = 0; i < n_rot / 2; i++) {
                float *head = host_f32(x) + r * x->cols + h * head_dim;
                float *a = pairs == OP_PAIRS_HALVES ? &head[i] : &head[2 * i];
                float *b = pairs == OP_PAIRS_HALVES ? &head[i + n_rot / 2] : &head[2 * i + 1];
                double c = host_f32(cs)[r * n_rot + 2 * i], s = host_f32(cs)[r * n_rot + 2 * i + 1];
                double va = *a, vb = *b;
                *a = (float)(va * c - vb * s);
                *b = (float)(vb * c + va * s);
            }
}

static double activate(double v, enum op_act act)
{
    switch (act) {
    case OP_SILU:
        return v / (1 + exp(-v));
    case OP_GELU_TANH: /* sqrt(2 / pi) */
        return 0.5 * v * (1 + tanh(0.79788456080286535588 * (v + 0.044715 * v * v * v)));
    case OP_GELU_ERF: /* 1 / sqrt(2) */
        return 0.5 * v * (1 + erf(v * 0.70710678118654752440));
    }
    return NAN;
}

static void ref_act_mul(struct backend *be, const struct tensor *out, const struct tensor *gate,
                        const struct tensor *up, enum op_act act)
{
    (void)be;
    for (int64_t i = 0; i < out->rows * out->cols; i++)
        host_f32(out)[i] = (float)(activate((double)host_f32(gate)[i], act) * (double)host_f32(up)[i]);
}

static void ref_add(struct backend *be, const struct tensor *out, const struct tensor *a,
                    const struct tensor *b)
{
    (void)be;
    for (int64_t i = 0; i < out->rows * out->cols; i++)
        host_f32(out)[i] = host_f32(a)[i] + host_f32(b)[i];
}

static void ref_scale(struct backend *be, const struct tensor *x, float s)
{
    (void)be;
    for (int64_t i = 0; i < x->rows * x->cols; i++)
        host_f32(x)[i] *= s;
}

static void ref_softcap(struct backend *be, const struct tensor *x, float cap)
{
    (void)be;
    for (int64_t i = 0; i < x->rows * x->cols; i++)
        host_f32(x)[i] = (float)((double)cap * tanh((double)host_f32(x)[i] / (double)cap));
}

static void ref_route(struct backend *be, const struct tensor *ids, const struct tensor *w,
                      const struct tensor *logits, bool renorm)
{
    int k = (int)ids->cols;

    (void)be;
    for (int64_t r = 0; r < logits->rows; r++) {
        const float *l = host_f32(logits) + r * logits->cols;
        int32_t *id = (int32_t *)(void *)host_ptr(ids) + r * k;
        double sum = 0, kept = 0;
        host_select(id, k, l, logits->cols);
        double max = l[id[0]];
        for (int64_t e = 0; e < logits->cols; e++)
            sum += exp((double)l[e] - max);
        for (int j = 0; j < k; j++)
            kept += exp((double)l[id[j]] - max);
        for (int j = 0; j < k; j++)
            host_f32(w)[r * k + j] = (float)(exp((double)l[id[j]] - max) / (renorm ? kept : sum));
    }
}

static void ref_linear_experts(struct backend *be, const struct tensor *out, const struct tensor *x,
                               const struct tensor *experts, int n_experts, const struct tensor *ids,
                               const struct tensor *w)
{
    for (int64_t r = 0; r < ids->rows; r++)
        for (int64_t o = 0; o < out->cols; o++) {
            double sum = 0;
            for (int64_t j = 0; j < ids->cols; j++) {
                int64_t pair = r * ids->cols + j;
                int32_t e = host_i32(ids)[pair];
                assert(e >= 0 && e < n_experts);
                const float *row = weight_row(be, &experts[e], o);
                if (row == NULL)
                    return;
                double y = dot(row, host_f32(x) + (w == NULL ? r : pair) * x->cols, x->cols);
                if (w == NULL)
                    host_f32(out)[pair * out->cols + o] = (float)y;
                else
                    sum += (double)host_f32(w)[pair] * y;
            }
            if (w != NULL)
                host_f32(out)[r * out->cols + o] = (float)sum;
        }
    (void)n_experts;
}

static void ref_caps(const struct backend *be, struct backend_caps *out)
{
    host_caps(be, out);
    out->n_threads = 1;
}

static const struct backend_ops ref_ops = {
    .name = "ref",
    .close = ref_close,
    .caps = ref_caps,
    .alloc = host_alloc,
    .free = host_free,
    .write = host_write,
    .copy = host_copy,
    .read = host_read,
    .import = host_import,
    .export = host_export,
    .begin = host_begin,
    .sync = host_sync,
    .embed = ref_embed,
    .rmsnorm = ref_rmsnorm,
    .linear = ref_linear,
    .rope = ref_rope,
    .kv_store = host_kv_store,
    .attention = ref_attention,
    .act_mul = ref_act_mul,
    .add = ref_add,
    .scale = ref_scale,
    .softcap = ref_softcap,
    .route = ref_route,
    .linear_experts = ref_linear_experts,
    .gather_rows = host_gather_rows,
    .argmax = host_argmax,
    .topk = host_topk,
};

int ref_open(struct backend **out, const struct backend_params *params, struct err *err)
{
    struct ref *ref = mem_array(1, sizeof *ref);

    (void)params;
    if (ref == NULL)
        return err_set(err, ERR_NOMEM, "ref: no memory for the instance");
    ref->be.ops = &ref_ops;
    snprintf(ref->be.device, sizeof ref->be.device, "ref");
    *out = &ref->be;
    return 0;
}
