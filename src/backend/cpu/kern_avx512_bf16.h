/* The matrix product of `fast` for BF16 weights, part of kern_avx512bf16.c: rows of x
 * rounded to bf16, dot products of pairs by one instruction, summed in f32.
 *
 * One output: 16 partial sums, partial l takes the pairs k = 2 l, 2 l + 1 mod 32, rising; then the
 * tree of kern_tmpl.h.  So neither the number of rows nor what stands beside an output changes a bit.
 * The instruction flushes subnormals and has an order of its own within a pair: other instruction
 * sets do not compute this, and keep to `exact` for BF16.  Knows nothing of threads. */

enum {
    BF16_PANEL = 16,      /* rows of w that many rows of x meet before the next ones, ... */
    BF16_FEW = 8,         /* ... and up to so many meet only four, which are read in one line through memory */
    BF16_BYTES = 1 << 19, /* of rows of x that take turns at a panel: half a second-level cache */
    BF16_AHEAD = 4096     /* how far ahead few rows ask */
};

static void narrow_bf16(uint16_t *out, const float *x, int64_t n)
{
    for (; n >= 32; n -= 32, x += 32, out += 32)
        _mm512_storeu_si512(out, (__m512i)_mm512_cvtne2ps_pbh(v_load(x + 16), v_load(x)));
    if (n > 0) {
        float last[32] = { 0 };
        uint16_t q[32];
        memcpy(last, x, (size_t)n * sizeof *x);
        _mm512_storeu_si512(q, (__m512i)_mm512_cvtne2ps_pbh(v_load(last + 16), v_load(last)));
        memcpy(out, q, (size_t)n * sizeof *out);
    }
}

/* Some rows of a panel with some rows of x. */
struct bf16_tile {
    const uint8_t *w;    /* the first row */
    size_t stride;       /* bytes from one to the next */
    int last;            /* the last that there is: what is behind it is computed of it again, for nothing */
    const uint16_t *x[4];
    int64_t k;
    uintptr_t ahead;     /* what is asked for meanwhile, 4 lines a step */
};

/* One step of 32: LOAD(p) gives 32 values at p. */
#define BF16_STEP(NX, LOAD)                                                                   \
    {                                                                                         \
        __m512bh xs[NX];                                                                      \
        UNROLL for (int j = 0; j < (NX); j++) xs[j] = (__m512bh)LOAD(t->x[j] + k);            \
        UNROLL for (int i = 0; i < 4; i++)                                                    \
        {                                                                                     \
            __m512bh ws = (__m512bh)LOAD(w[i] + 2 * k);                                       \
            UNROLL for (int j = 0; j < (NX); j++)                                             \
                acc[4 * j + i] = _mm512_dpbf16_ps(acc[4 * j + i], ws, xs[j]);                 \
        }                                                                                     \
    }
#define BF16_SOME(p) _mm512_maskz_loadu_epi16(some, (p))

/* out[j][i]: four rows of w, NX rows of x. */
#define BF16_TILE(name, NX, ASK)                                                                                 \
    static void name(float out[16], const struct bf16_tile *t)                                                   \
    {                                                                                                            \
        V16 acc[16];                                                                                             \
        const uint8_t *w[4];                                                                                     \
        uintptr_t ahead = t->ahead;                                                                              \
        int64_t k = 0;                                                                                           \
        UNROLL for (int i = 0; i < 16; i++) acc[i] = v_zero();                                                   \
        UNROLL for (int i = 0; i < 4; i++) w[i] = t->w + (size_t)(i < t->last ? i : t->last) * t->stride;        \
        for (; k + 32 <= t->k; k += 32) {                                                                        \
            UNROLL for (int i = 0; i < 4 && (ASK); i++)                                                          \
                __builtin_prefetch((const void *)(ahead + 64 * (uintptr_t)i), 0, 0);                             \
            ahead += 4 * 64;                                                                                     \
            BF16_STEP(NX, _mm512_loadu_si512)                                                                    \
        }                                                                                                        \
        if (k < t->k) {                                                                                          \
            __mmask32 some = ((__mmask32)1 << (t->k - k)) - 1;                                                   \
            BF16_STEP(NX, BF16_SOME)                                                                             \
        }                                                                                                        \
        v_store(out, v_trees(acc));                                                                              \
    }

BF16_TILE(bf16_1_ask, 1, true)
BF16_TILE(bf16_2_ask, 2, true)
BF16_TILE(bf16_4_ask, 4, true)
BF16_TILE(bf16_4, 4, false)

static void put_bf16(const struct kern_linear *a, int64_t r, int64_t o, int n, const float *sums)
{
    float *out = a->out + row_index(a->out_rows, r) * a->out_cols + o;
    for (int i = 0; i < n; i++)
        out[i] = a->bias != NULL ? sums[i] + load_f32(a->bias, o + i) : sums[i];
}

/* Row r of x and the three behind it; those that are not there are the first again. */
static int bf16_rows(const struct kern_linear *a, int64_t r, int64_t r1, struct bf16_tile *t)
{
    int n = r1 - r < 4 ? (int)(r1 - r) : 4;
    for (int j = 0; j < 4; j++)
        t->x[j] = a->xb + row_index(a->x_rows, r + (j < n ? j : 0)) * a->k;
    return n;
}

/* Outputs o .. o + n_w of rows r .. r + n_x: n_w <= 4. */
static void bf16_outputs(const struct kern_linear *a, int64_t o, int n_w, int64_t r, int n_x,
                         void (*tile)(float out[16], const struct bf16_tile *t), struct bf16_tile *t)
{
    float sums[16];

    t->w = a->w + (size_t)o * a->row_size;
    t->last = n_w - 1;
    tile(sums, t);
    for (int j = 0; j < n_x; j++)
        put_bf16(a, r + j, o, n_w, sums + 4 * j);
}

static void bf16_few(const struct kern_linear *a, int64_t o0, int64_t o1)
{
    struct bf16_tile t = { .stride = a->row_size, .k = a->k };

    for (int64_t o = o0; o < o1; o += 4)
        for (int64_t r = 0; r < a->n_rows; r += 4) {
            int n_x = bf16_rows(a, r, a->n_rows, &t);
            t.ahead = (uintptr_t)a->w + (size_t)(o + 4) * a->row_size + BF16_AHEAD;
            bf16_outputs(a, o, o1 - o < 4 ? (int)(o1 - o) : 4, r, n_x,
                         r > 0 ? bf16_4 : n_x == 1 ? bf16_1_ask : n_x == 2 ? bf16_2_ask : bf16_4_ask, &t);
        }
}

/* A panel from o on for rows r0 .. r1; each tile asks for its share of the next one. */
static void bf16_panel(const struct kern_linear *a, int64_t o, int n_w, int64_t r0, int64_t r1)
{
    struct bf16_tile t = { .stride = a->row_size, .k = a->k };
    size_t lines = 4 * a->row_size / 64 / (size_t)((r1 - r0 + 3) / 4) + 1;
    uintptr_t next = (uintptr_t)a->w + (size_t)(o + BF16_PANEL) * a->row_size;

    for (int64_t r = r0; r < r1; r += 4) {
        int n_x = bf16_rows(a, r, r1, &t);
        for (int i = 0; i < n_w; i += 4, next += 64 * lines) {
            for (size_t l = 0; l < lines; l++)
                __builtin_prefetch((const void *)(next + 64 * l), 0, 2);
            bf16_outputs(a, o + i, n_w - i < 4 ? n_w - i : 4, r, n_x, bf16_4, &t);
        }
    }
}

static void linear_bf16(const struct kern_linear *a, int64_t o0, int64_t o1)
{
    int64_t rows = BF16_BYTES / 2 / a->k / 4 * 4;

    if (a->n_rows <= BF16_FEW) {
        bf16_few(a, o0, o1);
        return;
    }
    rows = rows < 32 ? 32 : rows;
    for (int64_t r = 0; r < a->n_rows; r += rows)
        for (int64_t o = o0; o < o1; o += BF16_PANEL)
            bf16_panel(a, o, o1 - o < BF16_PANEL ? (int)(o1 - o) : BF16_PANEL, r, a->n_rows - r < rows ? a->n_rows : r + rows);
}
