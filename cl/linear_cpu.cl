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

/* acc[i][j] = 16 partial sums of w[i] . x[j], block by block; w[i] moves along.  The rows behind these
 * are fetched in the order they are stored, a fixed distance ahead: a row is too short for the
 * hardware to see its stream, and several at once confuse it. */
#define TILE(NW, NX)                                                                                        \
    float16 acc[NW][NX];                                                                                    \
    UNROLL for (int i = 0; i < NW; i++) UNROLL for (int j = 0; j < NX; j++) acc[i][j] = 0.0f;               \
    ROW ahead = w[0] + (NW == 1 ? 4096 : NW * row_size(k));                                                 \
    int step = 0;                                                                                           \
    for (; step + 16 * VECS <= k; step += 16 * VECS) {                                                      \
        struct head h[NW];                                                                                  \
        UNROLL for (int u = 0; u < NW * STEP_SIZE; u += 64) FETCH(ahead + u);                               \
        ahead += NW * STEP_SIZE;                                                                            \
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
        TILE(NW, NX)                                                                                         \
        UNROLL for (int i = 0; i < NW; i++)                                                                  \
            UNROLL for (int j = 0; j < NX; j++) if (o + i < n_w && r + j < n_rows)                           \
                PUT(r + j, o + i, acc[i][j])                                                                 \
    }

/* A block format has enough to do with the values of one row. */
#define ROWS_OF_W(n) (BLOCK_ELEMS == 1 ? n : 1)
LINEAR(linear_1, 1, 1)
LINEAR(linear_2, ROWS_OF_W(2), 2)
LINEAR(linear_4, ROWS_OF_W(4), 4)

/* ---- one row of x by several matrices: one launch for them all ---- */
static inline float dot_row(ROW row, const __global float *from, const int k)
{
    ROW w[1];
    const __global float *x[1];
    w[0] = row;
    x[0] = from;
    TILE(1, 1)
    return tree16(acc[0][0]);
}
#define ROW_OF(w, o) (IN_PTR(uchar, w) + (ulong)(o) * row_size(k))

/* biases: bit i says that matrix i has one.  global (n_a + n_b + n_c) */
__kernel void linear_qkv(OUT(a), OUT(b), OUT(c), IN(x), IN(wa), IN(wb), IN(wc), IN(ba), IN(bb), IN(bc),
                         const int biases, const int k, const int n_a, const int n_b, const int n_c)
{
    int o = (int)get_global_id(0), i = (o >= n_a) + (o >= n_a + n_b);
    if (o >= n_a + n_b + n_c)
        return;
    o -= i == 0 ? 0 : i == 1 ? n_a : n_a + n_b;
    float total = dot_row(i == 0 ? ROW_OF(wa, o) : i == 1 ? ROW_OF(wb, o) : ROW_OF(wc, o), IN_PTR(float, x), k);
    if (biases >> i & 1)
        total += (i == 0 ? IN_PTR(float, ba) : i == 1 ? IN_PTR(float, bb) : IN_PTR(float, bc))[o];
    (i == 0 ? OUT_PTR(float, a) : i == 1 ? OUT_PTR(float, b) : OUT_PTR(float, c))[o] = total;
}

/* out[o] = act(wg[o] . x) * (wu[o] . x); act: 0 silu, 1 gelu_tanh, 2 gelu_erf.  global (n_w) */
__kernel void gate_up(OUT(out), IN(x), IN(wg), IN(wu), const int act, const int k, const int n_w)
{
    int o = (int)get_global_id(0);
    if (o >= n_w)
        return;
    float gate = dot_row(ROW_OF(wg, o), IN_PTR(float, x), k), up = dot_row(ROW_OF(wu, o), IN_PTR(float, x), k);
    float a = act == 0 ? canon_silu(gate) : act == 1 ? canon_gelu_tanh(gate) : canon_gelu_erf(gate);
    OUT_PTR(float, out)[o] = a * up;
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
    TILE(1, 1)
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
    TILE(EXPERT_W, 4)
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
