/* Matrix products, CPU family: one work-item computes NW weight rows by NX
 * rows of x, 16 partial sums each, straight from the stored form; for many rows
 * of x the values are written out first (widen), then multiplied (linear_many).
 *
 * Every tile gives the same bits: partial sum l of an output takes the terms
 * k = l mod 16 in rising order, by fma, then the tree.  -DWT: the format. */
#include "common.clh"
#include "quant_cpu.clh"

/* acc[i][j] += w_i x_j over 16 values, w_i = W(i) */
#define STEP(NW, NX, at, W)                                                                                 \
    {                                                                                                       \
        float16 xs[NX];                                                                                     \
        UNROLL for (int j = 0; j < NX; j++) xs[j] = vload16(0, x[j] + (at));                                \
        UNROLL for (int i = 0; i < NW; i++)                                                                 \
        {                                                                                                   \
            float16 ws = W;                                                                                 \
            UNROLL for (int j = 0; j < NX; j++) acc[i][j] = fma(ws, xs[j], acc[i][j]);                      \
        }                                                                                                   \
    }

/* Rows of w that one work-item multiplies with one row of x, each from a part of the matrix of its own: in memory of small
 * pages a stream of reads does not get across a page before it is asked for, so several run side by side.  A block
 * format has enough to do with the values of one row. */
#define FAR (BLOCK_ELEMS == 1 ? 8 : 1)

/* What is asked for ahead of a step of TILE.  ASK_NEXT: the rows behind these in the order they are stored, a fixed
 * distance ahead: a row is too short for the hardware to see its stream, and several at once confuse it.  ASK_FAR: of rows
 * far apart each a little ahead. */
#define ASK_NEXT(NW)                                                                                        \
    UNROLL for (int u = 0; u < NW * STEP_SIZE; u += 64) FETCH_L2(ahead + u);                                \
    ahead += NW * STEP_SIZE;
#define ASK_FAR(NW)                                                                                         \
    UNROLL for (int i = 0; i < NW; i++)                                                                     \
        UNROLL for (int u = 0; u < STEP_SIZE; u += 64) FETCH_L2(w[i] + 1024 + u);

/* acc[i][j] = 16 partial sums of w[i] . x[j], block by block; w[i] moves along. */
#define TILE(NW, NX, ASK)                                                                                        \
    float16 acc[NW][NX];                                                                                    \
    UNROLL for (int i = 0; i < NW; i++) UNROLL for (int j = 0; j < NX; j++) acc[i][j] = 0.0f;               \
    ROW ahead = w[0] + (NW == 1 ? 4096 : NW * row_size(k));                                                 \
    int step = 0;                                                                                           \
    for (; step + 16 * VECS <= k; step += 16 * VECS) {                                                      \
        struct head h[NW];                                                                                  \
        ASK(NW)                                                                                             \
        UNROLL for (int i = 0; i < NW; i++) block_head(&h[i], w[i]);                                        \
        UNROLL for (int v = 0; v < VECS; v++) STEP(NW, NX, step + 16 * v, block16(w[i], &h[i], v))          \
        UNROLL for (int i = 0; i < NW; i++) w[i] += STEP_SIZE;                                              \
    }                                                                                                       \
    if (BLOCK_ELEMS == 1 && step + 16 <= k) {                                                               \
        STEP(NW, NX, step, load16(w[i], 0))                                                                 \
        UNROLL for (int i = 0; i < NW; i++) w[i] += STEP_SIZE / 2;                                          \
        step += 16;                                                                                         \
    }                                                                                                       \
    if (BLOCK_ELEMS == 1 && step < k)                                                                       \
        UNROLL for (int i = 0; i < NW; i++)                                                                 \
        {                                                                                                   \
            float16 ws = load_part(w[i], 0, k - step);                                                      \
            UNROLL for (int j = 0; j < NX; j++)                                                             \
                acc[i][j] = fma_part(ws, part_f32(x[j] + step, k - step), acc[i][j], k - step);             \
        }

/* out[r][first + o] = sum_k w[o][k] x[r][k] for the n_w rows of w in this memory, ended as `ends` says: bias[first + o]
 * is added, then what stood in out. */
#define ARGS                                                                                                 \
    OUT(out), IN(x), IN(w), IN(bias), const int ends, const int k, const int n_w, const int n_rows,          \
        const int first, const int out_cols
#define PUT(r, o, sums)                                                                                      \
    end_at(OUT_PTR(float, out) + (ulong)(r) * out_cols + first + (o), tree16(sums), ends,                    \
           IN_PTR(float, bias) + first + (o));

/* Rows past the end are clamped for reading and not written.  global (ceil(n_rows / NX), ceil(n_w / NW)) */
#define LINEAR(name, NW, NX)                                                                                 \
    __kernel void name(ARGS)                                                                                 \
    {                                                                                                        \
        int r = (int)get_global_id(0) * NX, o = (int)get_global_id(1) * NW;                                  \
        if (r >= n_rows || o >= n_w)                                                                         \
            return;                                                                                          \
        ROW w[NW];                                                                                           \
        const __global float *x[NX];                                                                         \
        UNROLL for (int i = 0; i < NW; i++) w[i] =                                                           \
            IN_PTR(uchar, w) + (ulong)min(o + i, n_w - 1) * row_size(k);                                     \
        UNROLL for (int j = 0; j < NX; j++) x[j] = IN_PTR(float, x) + (ulong)min(r + j, n_rows - 1) * k;     \
        TILE(NW, NX, ASK_NEXT)                                                                               \
        UNROLL for (int i = 0; i < NW; i++)                                                                  \
            UNROLL for (int j = 0; j < NX; j++) if (o + i < n_w && r + j < n_rows)                           \
                PUT(r + j, o + i, acc[i][j])                                                                 \
    }

#define ROWS_OF_W(n) (BLOCK_ELEMS == 1 ? n : 1)
LINEAR(linear_2, ROWS_OF_W(2), 2)
LINEAR(linear_4, ROWS_OF_W(4), 4)

/* ---- one row of x ---- */
/* totals[i] = w[i] . x */
static inline void dot_rows(float totals[FAR], ROW w[FAR], const __global float *from, const int k)
{
    const __global float *x[1];
    x[0] = from;
#if BLOCK_ELEMS == 1
    TILE(FAR, 1, ASK_FAR)
#else
    TILE(FAR, 1, ASK_NEXT)
#endif
    UNROLL for (int i = 0; i < FAR; i++) totals[i] = tree16(acc[i][0]);
}

/* Row i of work-item o: of n_w rows, those past the end are read as the last and not written. */
#define FAR_ROW(i, o, n_w) ((o) + (i) * ((n_w + FAR - 1) / FAR))
#define FAR_BEGIN(w, from, o, n_w)                                                                           \
    UNROLL for (int i = 0; i < FAR; i++) w[i] = (from) + (ulong)min(FAR_ROW(i, o, n_w), n_w - 1) * row_size(k);

/* global (1, ceil(n_w / FAR)) */
__kernel void linear_1(ARGS)
{
    int o = (int)get_global_id(1);
    if (o >= (n_w + FAR - 1) / FAR)
        return;
    ROW w[FAR];
    float totals[FAR];
    FAR_BEGIN(w, IN_PTR(uchar, w), o, n_w)
    dot_rows(totals, w, IN_PTR(float, x), k);
    UNROLL for (int i = 0; i < FAR; i++) if (FAR_ROW(i, o, n_w) < n_w)
        end_at(OUT_PTR(float, out) + first + FAR_ROW(i, o, n_w), totals[i], ends,
               IN_PTR(float, bias) + first + FAR_ROW(i, o, n_w));
}

/* Three matrices, one after the other; bit i of biases: matrix i has one.
 * global (ceil(n_a / FAR) + ceil(n_b / FAR) + ceil(n_c / FAR)) */
__kernel void linear_qkv(OUT(a), OUT(b), OUT(c), IN(x), IN(wa), IN(wb), IN(wc), IN(ba), IN(bb), IN(bc),
                         const int biases, const int k, const int n_a, const int n_b, const int n_c)
{
    int to_b = (n_a + FAR - 1) / FAR, to_c = to_b + (n_b + FAR - 1) / FAR;
    int o = (int)get_global_id(0), m = (o >= to_b) + (o >= to_c), n_w = m == 0 ? n_a : m == 1 ? n_b : n_c;
    o -= m == 0 ? 0 : m == 1 ? to_b : to_c;
    if (o >= (n_w + FAR - 1) / FAR)
        return;
    ROW w[FAR];
    float totals[FAR];
    FAR_BEGIN(w, m == 0 ? IN_PTR(uchar, wa) : m == 1 ? IN_PTR(uchar, wb) : IN_PTR(uchar, wc), o, n_w)
    dot_rows(totals, w, IN_PTR(float, x), k);
    __global float *out = m == 0 ? OUT_PTR(float, a) : m == 1 ? OUT_PTR(float, b) : OUT_PTR(float, c);
    const __global float *bias = m == 0 ? IN_PTR(float, ba) : m == 1 ? IN_PTR(float, bb) : IN_PTR(float, bc);
    UNROLL for (int i = 0; i < FAR; i++) if (FAR_ROW(i, o, n_w) < n_w)
        end_at(out + FAR_ROW(i, o, n_w), totals[i], biases >> m & 1 ? END_BIAS : 0, bias + FAR_ROW(i, o, n_w));
}

/* out[o] = act(wg[o] . x) * (wu[o] . x); act: 0 silu, 1 gelu_tanh, 2 gelu_erf.  global (ceil(n_w / FAR)) */
__kernel void gate_up(OUT(out), IN(x), IN(wg), IN(wu), const int act, const int k, const int n_w)
{
    int o = (int)get_global_id(0);
    if (o >= (n_w + FAR - 1) / FAR)
        return;
    ROW w[FAR];
    float gate[FAR], up[FAR];
    FAR_BEGIN(w, IN_PTR(uchar, wg), o, n_w)
    dot_rows(gate, w, IN_PTR(float, x), k);
    FAR_BEGIN(w, IN_PTR(uchar, wu), o, n_w)
    dot_rows(up, w, IN_PTR(float, x), k);
    UNROLL for (int i = 0; i < FAR; i++) if (FAR_ROW(i, o, n_w) < n_w)
        OUT_PTR(float, out)[FAR_ROW(i, o, n_w)] =
            up[i] * (act == 0 ? canon_silu(gate[i]) : act == 1 ? canon_gelu_tanh(gate[i]) : canon_gelu_erf(gate[i]));
}

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
    TILE(1, 1, ASK_NEXT)
    OUT_PTR(float, y)[(ulong)p * n_w + o] = tree16(acc[0][0]);
}

/* The same for up to 4 pairs of one expert, as route.cl's group_pairs put them together: the expert's rows once for them.
 * global (ceil(n_w / EXPERT_W), n_tiles) */
#define EXPERT_W ROWS_OF_W(4)
__kernel void experts_4(OUT(y), IN(x), IN(w), IN(offsets), IN(ids), IN(order), IN(tiles), const int k, const int n_w,
                        const int per_row)
{
    int o = (int)get_global_id(0) * EXPERT_W;
    int2 tile = vload2(get_global_id(1), IN_PTR(int, tiles));
    if (o >= n_w || tile.x >= tile.y)
        return;
    const __global int *pairs = IN_PTR(int, order);
    ulong at = IN_PTR(ulong, offsets)[IN_PTR(int, ids)[pairs[tile.x]]];
    if (at == ~(ulong)0)
        return;
    ROW w[EXPERT_W];
    const __global float *x[4];
    UNROLL for (int i = 0; i < EXPERT_W; i++) w[i] = w_mem + at + (ulong)min(o + i, n_w - 1) * row_size(k);
    UNROLL for (int j = 0; j < 4; j++) x[j] =
        IN_PTR(float, x) + (ulong)(pairs[min(tile.x + j, tile.y - 1)] / per_row) * k;
    TILE(EXPERT_W, 4, ASK_NEXT)
    UNROLL for (int i = 0; i < EXPERT_W; i++)
        UNROLL for (int j = 0; j < 4; j++) if (o + i < n_w && tile.x + j < tile.y)
            OUT_PTR(float, y)[(ulong)pairs[tile.x + j] * n_w + o + i] = tree16(acc[i][j]);
}

/* out[r] = w[r] as f32.  global (n_rows) */
__kernel void widen(OUT(out), IN(w), const int k, const int n_rows)
{
    int r = (int)get_global_id(0), step = 0;
    if (r >= n_rows)
        return;
    ROW b = IN_PTR(uchar, w) + (ulong)r * row_size(k);
    __global float *to = OUT_PTR(float, out) + (ulong)r * k;
    for (; step + 16 * VECS <= k; step += 16 * VECS) {
        struct head h;
        UNROLL for (int u = 0; u < STEP_SIZE; u += 64) FETCH(b + 4096 + u);
        block_head(&h, b);
        UNROLL for (int v = 0; v < VECS; v++) vstore16(block16(b, &h, v), 0, to + step + 16 * v);
        b += STEP_SIZE;
    }
    for (; BLOCK_ELEMS == 1 && step < k; step += 16, b += STEP_SIZE / 2)
        if (step + 16 <= k)
            vstore16(load16(b, 0), 0, to + step);
        else
            put_part(load_part(b, 0, k - step), to + step, k - step);
}

#if WT == WT_F32
/* For many rows of x: MANY_TILES tiles of MANY_W weight rows by MANY_X rows of x take turns strip by strip
 * of k, so that a strip of the weights stays in the nearest cache for them all; their sums rest in between.
 * global (ceil(n_w / MANY_W), ceil(n_rows / (MANY_X MANY_TILES))) */
#define MANY_W 8
#define MANY_X 3
#define MANY_TILES 8
#define STRIP 512
#define EACH UNROLL for (int i = 0; i < MANY_W; i++) UNROLL for (int j = 0; j < MANY_X; j++)
__kernel void linear_many(ARGS)
{
    int o = (int)get_global_id(0) * MANY_W, r = (int)get_global_id(1) * (MANY_X * MANY_TILES);
    if (r >= n_rows || o >= n_w)
        return;
    float16 sums[MANY_TILES][MANY_W][MANY_X];
    int tiles = min((n_rows - r + MANY_X - 1) / MANY_X, MANY_TILES), whole = k / 16 * 16;
    const __global float *w[MANY_W], *x[MANY_X];
    UNROLL for (int i = 0; i < MANY_W; i++) w[i] = IN_PTR(float, w) + (ulong)min(o + i, n_w - 1) * k;
    for (int t = 0; t < tiles; t++)
        EACH sums[t][i][j] = 0.0f;
    for (int from = 0; from < whole; from += STRIP) {
        int to = min(from + STRIP, whole);
        for (int t = 0; t < tiles; t++) {
            float16 acc[MANY_W][MANY_X];
            UNROLL for (int j = 0; j < MANY_X; j++) x[j] =
                IN_PTR(float, x) + (ulong)min(r + t * MANY_X + j, n_rows - 1) * k;
            EACH acc[i][j] = sums[t][i][j];
            for (int step = from; step < to; step += 16)
                STEP(MANY_W, MANY_X, step, vload16(0, w[i] + step))
            EACH sums[t][i][j] = acc[i][j];
        }
    }
    for (int t = 0; t < tiles; t++)
        for (int j = 0; j < MANY_X; j++) {
            int row = r + t * MANY_X + j;
            for (int i = 0; row < n_rows && i < MANY_W; i++)
                if (o + i < n_w) {
                    float16 a = sums[t][i][j];
                    if (whole < k)
                        a = fma_part(part_f32(w[i] + whole, k - whole),
                                     part_f32(IN_PTR(float, x) + (ulong)row * k + whole, k - whole), a, k - whole);
                    PUT(row, o + i, a)
                }
        }
}
#endif
