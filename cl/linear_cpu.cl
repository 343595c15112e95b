/* Matrix products, CPU family: one work-item computes NW weight rows by NX
 * rows of x, 16 partial sums each, straight from the stored form.
 *
 * Every tile gives the same bits: partial sum l of an output takes the terms
 * k = l mod 16 in rising order, by fma, then the tree.  -DWT: the format. */
#include "common.clh"
#include "quant.clh"

/* the terms at .. at + 16 */
#define STEP(NW, NX, at)                                                                                    \
    {                                                                                                       \
        float16 xs[NX];                                                                                     \
        UNROLL for (int j = 0; j < NX; j++) xs[j] = vload16(0, x[j] + (at));                                \
        UNROLL for (int i = 0; i < NW; i++)                                                                 \
        {                                                                                                   \
            float16 ws = load16(w[i], at);                                                                  \
            UNROLL for (int j = 0; j < NX; j++) acc[i][j] = fma(ws, xs[j], acc[i][j]);                      \
        }                                                                                                   \
    }

/* acc[i][j] = 16 partial sums of w[i] . x[j]; two steps at once, so that the scale of a block of 32 is
 * read once */
#define TILE(NW, NX)                                                                                        \
    float16 acc[NW][NX];                                                                                    \
    UNROLL for (int i = 0; i < NW; i++) UNROLL for (int j = 0; j < NX; j++) acc[i][j] = 0.0f;               \
    int step = 0;                                                                                           \
    for (; step + 32 <= k; step += 32) {                                                                    \
        STEP(NW, NX, step)                                                                                  \
        STEP(NW, NX, step + 16)                                                                             \
    }                                                                                                       \
    if (BLOCK_ELEMS == 1 && step + 16 <= k) {                                                               \
        STEP(NW, NX, step)                                                                                  \
        step += 16;                                                                                         \
    }                                                                                                       \
    if (BLOCK_ELEMS == 1 && step < k)                                                                       \
        UNROLL for (int i = 0; i < NW; i++)                                                                 \
        {                                                                                                   \
            float16 ws = load_part(w[i], step, k - step);                                                   \
            UNROLL for (int j = 0; j < NX; j++)                                                             \
                acc[i][j] = fma_part(ws, part_f32(x[j] + step, k - step), acc[i][j], k - step);             \
        }

/* out[r][first + o] = sum_k w[o][k] x[r][k] (+ bias[first + o]) for the n_w rows of w in this memory.
 * Rows past the end are clamped for reading and not written.
 * global (ceil(n_rows / NX), ceil(n_w / NW)) */
#define LINEAR(name, NW, NX)                                                                                 \
    __kernel void name(OUT(out), IN(x), IN(w), IN(bias), const int has_bias, const int k, const int n_w,     \
                       const int n_rows, const int first, const int out_cols)                                \
    {                                                                                                        \
        int r = (int)get_global_id(0) * NX, o = (int)get_global_id(1) * NW;                                  \
        if (r >= n_rows || o >= n_w)                                                                         \
            return;                                                                                          \
        ROW w[NW];                                                                                           \
        const __global float *x[NX];                                                                         \
        UNROLL for (int i = 0; i < NW; i++) w[i] =                                                           \
            IN_PTR(uchar, w) + (ulong)min(o + i, n_w - 1) * row_size(k);                                     \
        UNROLL for (int j = 0; j < NX; j++) x[j] = IN_PTR(float, x) + (ulong)min(r + j, n_rows - 1) * k;     \
        TILE(NW, NX)                                                                                         \
        UNROLL for (int i = 0; i < NW; i++)                                                                  \
            UNROLL for (int j = 0; j < NX; j++) if (o + i < n_w && r + j < n_rows)                           \
        {                                                                                                    \
            float v = tree16(acc[i][j]);                                                                     \
            if (has_bias)                                                                                    \
                v += IN_PTR(float, bias)[first + o + i];                                                     \
            OUT_PTR(float, out)[(ulong)(r + j) * out_cols + first + o + i] = v;                              \
        }                                                                                                    \
    }

LINEAR(linear_1, 1, 1)
LINEAR(linear_2, 2, 2)
LINEAR(linear_4, 4, 4)

/* Products with the experts that lie in this memory: offsets[e] is the expert's byte, ~0 = elsewhere.
 * y[p] = experts[ids[p]] . x[p / per_row] for the pairs p.  global (n_w, pairs) */
__kernel void linear_experts(OUT(y), IN(x), IN(w), IN(offsets), IN(ids), const int k, const int n_w,
                             const int n_pairs, const int per_row)
{
    int o = (int)get_global_id(0), p = (int)get_global_id(1);
    if (o >= n_w || p >= n_pairs)
        return;
    ulong at = IN_PTR(ulong, offsets)[IN_PTR(int, ids)[p]];
    if (at == ~(ulong)0)
        return;
    ROW w[1];
    const __global float *x[1];
    w[0] = w_mem + at + (ulong)o * row_size(k);
    x[0] = IN_PTR(float, x) + (ulong)(p / per_row) * k;
    TILE(1, 1)
    OUT_PTR(float, y)[(ulong)p * n_w + o] = tree16(acc[0][0]);
}
