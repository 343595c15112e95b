/* The operations that move or pick values and compute nothing: storing K and
 * V, gathering rows, argmax, top-k.  Exact, hence shared by `ref` and `cpu`;
 * nothing here may round except the store into pages of fewer bits. */
#include <assert.h>

#include "backend/cpu/host.h"

const uint8_t *host_kv_row(const struct kv_layer *kv, const struct tensor *t, const struct kv_rows *rows,
                           int32_t s, int32_t p, int h)
{
    assert(s >= 0 && s < rows->pages.rows && p >= 0 && p / kv->page_size < rows->pages.cols);
    int64_t page = host_i32(&rows->pages)[s * rows->pages.cols + p / kv->page_size];
    int64_t row = (page * kv->n_kv_heads + h) * kv->page_size + p % kv->page_size;
    assert(page >= 0 && row < t->rows);
    return host_ptr(t) + (size_t)row * host_row_size(t);
}

void host_kv_store_rows(const struct kv_layer *kv, const struct tensor *k, const struct tensor *v,
                        const struct kv_rows *rows, int64_t lo, int64_t hi, host_narrow_fn *narrow)
{
    const struct tensor *from[2] = {k, v}, *to[2] = {&kv->k, &kv->v};
    size_t n = (size_t)kv->head_dim, size = host_row_size(&kv->k);

    for (int i = 0; i < 2; i++) {
        const float *src = host_f32(from[i]) + lo * from[i]->cols;
        for (int64_t r = lo; r < hi; r++) {
            const uint8_t *first = host_kv_row(kv, to[i], rows, host_i32(&rows->seq)[r], host_i32(&rows->pos)[r], 0);
            uint8_t *dst = host_ptr(to[i]) + (first - host_ptr(to[i]));
            for (int h = 0; h < kv->n_kv_heads; h++, src += n, dst += (size_t)kv->page_size * size) {
                if (to[i]->dtype == DTYPE_F32)
                    memcpy(dst, src, n * sizeof *src);
                else if (to[i]->dtype == DTYPE_F16)
                    narrow((uint16_t *)(void *)dst, src, (int64_t)n);
                else
                    dtype_info(to[i]->dtype)->from_f32(dst, src, n);
            }
        }
    }
}

static void narrow_f16(uint16_t *out, const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        out[i] = f32_to_f16(x[i]);
}

void host_kv_store(struct backend *be, const struct kv_layer *kv, const struct tensor *k,
                   const struct tensor *v, const struct kv_rows *rows)
{
    (void)be;
    host_kv_store_rows(kv, k, v, rows, 0, k->rows, narrow_f16);
}

void host_gather_rows(struct backend *be, const struct tensor *out, const struct tensor *x,
                      const struct tensor *rows)
{
    size_t size = host_row_size(x);

    (void)be;
    for (int64_t i = 0; i < rows->rows; i++) {
        int32_t r = host_i32(rows)[i];
        assert(r >= 0 && r < x->rows);
        memcpy(host_ptr(out) + (size_t)i * size, host_ptr(x) + (size_t)r * size, size);
    }
}

/* All exponents below the one of Inf and NaN. */
static bool all_finite(const float *x, int64_t n)
{
    uint32_t bad = 0;

    for (int64_t i = 0; i < n; i++) {
        uint32_t u;
        memcpy(&u, &x[i], sizeof u);
        bad |= (uint32_t)((u & 0x7f800000u) == 0x7f800000u);
    }
    return bad == 0;
}

void host_argmax(struct backend *be, const struct tensor *out, const struct tensor *x)
{
    int32_t *id = (void *)host_ptr(out);

    (void)be;
    for (int64_t r = 0; r < x->rows; r++) {
        const float *v = host_f32(x) + r * x->cols;
        int64_t best = 0;
        for (int64_t i = 1; i < x->cols; i++)
            if (v[i] > v[best])
                best = i;
        id[r] = all_finite(v, x->cols) ? (int32_t)best : -1;
    }
}

void host_select(int32_t *ids, int k, const float *x, int64_t n)
{
    int kept = 0;

    assert(k <= n);
    /* ids[0..kept) stays sorted; a later equal value goes behind, so the lowest id is first */
    for (int64_t i = 0; i < n; i++) {
        int at = kept;
        while (at > 0 && (x[i] > x[ids[at - 1]] || (x[ids[at - 1]] != x[ids[at - 1]] && x[i] == x[i])))
            at--;
        if (at == k)
            continue;
        kept += kept < k;
        memmove(&ids[at + 1], &ids[at], (size_t)(kept - 1 - at) * sizeof *ids);
        ids[at] = (int32_t)i;
    }
}

void host_topk(struct backend *be, const struct tensor *ids, const struct tensor *vals,
               const struct tensor *x)
{
    int k = (int)ids->cols;

    (void)be;
    for (int64_t r = 0; r < x->rows; r++) {
        const float *v = host_f32(x) + r * x->cols;
        int32_t *id = (int32_t *)(void *)host_ptr(ids) + r * k;
        bool finite = all_finite(v, x->cols);
        host_select(id, k, v, x->cols);
        for (int j = 0; j < k; j++)
            host_f32(vals)[r * k + j] = v[id[j]];
        if (!finite)
            id[0] = -1;
    }
}
