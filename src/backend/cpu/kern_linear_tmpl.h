/* The matrix product of `exact`, part of kern_tmpl.h: few rows of x meet the
 * weights where they are stored, more rows meet a panel of 16 weight rows that
 * was widened to f32 once for all of them.  Both keep 16 partial sums for each
 * output and take their terms in the same order, so the number of rows changes
 * no bit.  Knows nothing of threads; TILE_W and TILE_X are the ISA file's. */

INLINE int64_t row_index(const int32_t *rows, int64_t r)
{
    return rows != NULL ? rows[r] : r;
}

INLINE void put(const struct kern_linear *a, int64_t r, int64_t o, V16 acc)
{
    float v = v_tree(acc);
    if (a->bias != NULL)
        v += load_f32(a->bias, o);
    a->out[row_index(a->out_rows, r) * a->out_cols + o] = v;
}

/* NW outputs o, o + gap, ... of NX rows from r, w straight from where it is stored; SIZE: bytes of 16 values.
 * ASK_LINE, gap 1: what follows is asked for in the order it is stored in, line by line, since several rows at once
 * defeat the hardware's own prefetcher (a hint: it may lie beyond the end).
 * ASK_FAR (a->far): rows of pages of their own, each a little ahead: where one stream of small pages does not get across a
 * page before it is asked for, several side by side read up to twice as fast. */
enum { LINE_AHEAD = 4096, FAR_AHEAD = 1024 };
#define ASK_LINE(i, size)                                                        \
    do                                                                           \
        if ((i) * (size) % 64 == 0) {                                            \
            __builtin_prefetch((const void *)ahead, 0, 0);                       \
            ahead += 64;                                                         \
        }                                                                        \
    while (0)
#define ASK_FAR(i, size) (__builtin_prefetch((const void *)((uintptr_t)w[i] + (size_t)(step * (size) + FAR_AHEAD)), 0, 2))
#define DIRECT(NW, NX, row, SIZE, gap, ASK)                                                                \
    {                                                                                                     \
        const uint8_t *w[NW];                                                                             \
        const float *x[NX];                                                                               \
        V16 acc[NW][NX];                                                                                  \
        int64_t full = a->k / 16, tail = a->k % 16;                                                       \
        uintptr_t ahead = (uintptr_t)a->w + (size_t)(o + (NW)) * a->row_size + LINE_AHEAD;                \
        UNROLL for (int i = 0; i < (NW); i++) w[i] = a->w + (size_t)(o + i * (gap)) * a->row_size;        \
        UNROLL for (int j = 0; j < (NX); j++) x[j] = a->x + row_index(a->x_rows, r + j) * a->k;           \
        UNROLL for (int i = 0; i < (NW); i++) UNROLL for (int j = 0; j < (NX); j++) acc[i][j] = v_zero(); \
        TILE_STEPS(NW, NX, row, w, x, full, acc, ASK(wi, SIZE))                                                \
        (void)ahead;                                                                                      \
        UNROLL for (int i = 0; i < (NW) && tail != 0; i++)                                                \
        {                                                                                                 \
            size_t at = a->row_size / (size_t)a->k * 16 * (size_t)full;                                   \
            float ws[KERN_LANES];                                                                         \
            dtype_info(a->dtype)->to_f32(ws, w[i] + at, (size_t)tail);                                    \
            UNROLL for (int j = 0; j < (NX); j++)                                                         \
                acc[i][j] = add_tail(acc[i][j], ws, x[j] + 16 * full, tail);                              \
        }                                                                                                 \
        UNROLL for (int i = 0; i < (NW); i++)                                                             \
            UNROLL for (int j = 0; j < (NX); j++) put(a, r + j, o + i * (gap), acc[i][j]);                \
    }

/* Rows of w that one row of x meets at once: sums of 16 lanes in registers. */
#ifndef FAR_W
#define FAR_W 4
#endif

/* At most KERN_TILE rows of x: each weight is read once and used at once. */
#define DIRECT_FORMAT(name, row, SIZE)                                    \
    static void name(const struct kern_linear *a, int64_t o0, int64_t o1) \
    {                                                                     \
        int64_t o = o0, r = 0, gap = (o1 - o0) / FAR_W;                   \
        if (a->n_rows == 1 && a->far) {                                   \
            for (; o < o0 + gap; o++)                                     \
                DIRECT(FAR_W, 1, row, SIZE, gap, ASK_FAR)                 \
            o = o0 + gap * FAR_W;                                         \
        }                                                                 \
        for (; o + 4 <= o1; o += 4)                                       \
            switch (a->n_rows) {                                          \
            case 1: DIRECT(4, 1, row, SIZE, 1, ASK_LINE) break;           \
            case 2: DIRECT(4, 2, row, SIZE, 1, ASK_LINE) break;           \
            case 3: DIRECT(4, 3, row, SIZE, 1, ASK_LINE) break;           \
            default: DIRECT(4, 4, row, SIZE, 1, ASK_LINE) break;          \
            }                                                             \
        for (; o < o1; o++)                                               \
            for (r = 0; r < a->n_rows; r++)                               \
                DIRECT(1, 1, row, SIZE, 1, ASK_LINE)                      \
    }

DIRECT_FORMAT(direct_f32, row_f32, 64)
DIRECT_FORMAT(direct_f16, row_f16, 32)
DIRECT_FORMAT(direct_bf16, row_bf16, 32)

#ifdef WIDE_W
#define UNROLL32 _Pragma("GCC unroll 32")
INLINE void put_wide(const struct kern_linear *a, int64_t o, int n_w, V16 acc[WIDE_W][WIDE_X])
{
    float v[32];
    V16 sums[32];

    _Static_assert(WIDE_W * WIDE_X <= 32 && WIDE_X == 8, "two times 16 sums");
    UNROLL32 for (int i = 0; i < 32; i++) sums[i] = acc[i / 8 < WIDE_W ? i / 8 : 0][i % 8];
    v_store(v, v_trees(sums));
    v_store(v + 16, v_trees(sums + 16));
    for (int j = 0; j < a->n_rows; j++) {
        float *out = a->out + row_index(a->out_rows, j) * a->out_cols + o;
        for (int i = 0; i < n_w; i++)
            out[i] = a->bias != NULL ? v[8 * i + j] + load_f32(a->bias, o + i) : v[8 * i + j];
    }
}

/* Up to WIDE_X rows of x with WIDE_W rows of w where they are stored: in one line through memory, and without a panel.
 * What is missing at the ends repeats the last row and is left out. */
#define WIDE_FORMAT(name, row, SIZE)                                                                            \
    static void name(const struct kern_linear *a, int64_t o, int64_t o1)                                        \
    {                                                                                                           \
        int n_w = o1 - o < WIDE_W ? (int)(o1 - o) : WIDE_W;                                                     \
        int n_x = (int)a->n_rows;                                                                               \
        int64_t full = a->k / 16, tail = a->k % 16;                                                             \
        uintptr_t ahead = (uintptr_t)a->w + (size_t)(o + WIDE_W) * a->row_size + LINE_AHEAD;                    \
        const uint8_t *w[WIDE_W];                                                                               \
        const float *x[WIDE_X];                                                                                 \
        V16 acc[WIDE_W][WIDE_X];                                                                                \
        UNROLL for (int i = 0; i < WIDE_W; i++) w[i] = a->w + (size_t)(o + (i < n_w ? i : n_w - 1)) * a->row_size; \
        UNROLL for (int j = 0; j < WIDE_X; j++)                                                                 \
            x[j] = a->x + row_index(a->x_rows, j < n_x ? j : n_x - 1) * a->k;                                   \
        UNROLL for (int i = 0; i < WIDE_W; i++) UNROLL for (int j = 0; j < WIDE_X; j++) acc[i][j] = v_zero();   \
        for (int64_t step = 0; step < full; step++) {                                                           \
            V16 ws[WIDE_W];                                                                                     \
            UNROLL for (int i = 0; i < WIDE_W; i++)                                                             \
            {                                                                                                   \
                ASK_LINE(i, SIZE);                                                                              \
                ws[i] = row(w[i], 16 * step);                                                                   \
                v_keep(&ws[i]);                                                                                 \
            }                                                                                                   \
            UNROLL for (int j = 0; j < WIDE_X; j++)                                                             \
            {                                                                                                   \
                V16 xs = v_load(x[j] + 16 * step);                                                              \
                v_keep(&xs);                                                                                    \
                UNROLL for (int i = 0; i < WIDE_W; i++) acc[i][j] = v_fma(ws[i], xs, acc[i][j]);                \
            }                                                                                                   \
        }                                                                                                       \
        for (int i = 0; i < n_w && tail != 0; i++) {                                                            \
            float last[KERN_LANES];                                                                             \
            dtype_info(a->dtype)->to_f32(last, w[i] + (SIZE) * full, (size_t)tail);                             \
            for (int j = 0; j < WIDE_X; j++)                                                                    \
                acc[i][j] = add_tail(acc[i][j], last, x[j] + 16 * full, tail);                                  \
        }                                                                                                       \
        put_wide(a, o, n_w, acc);                                                                               \
    }

WIDE_FORMAT(wide_f32, row_f32, 64)
WIDE_FORMAT(wide_f16, row_f16, 32)
WIDE_FORMAT(wide_bf16, row_bf16, 32)

static void linear_wide(const struct kern_linear *a, int64_t o0, int64_t o1)
{
    for (int64_t o = o0; o < o1; o += WIDE_W)
        (a->dtype == DTYPE_F32 ? wide_f32 : a->dtype == DTYPE_F16 ? wide_f16 : wide_bf16)(a, o, o1);
}
#endif

#include "backend/cpu/kern_dequant_tmpl.h"
#include "backend/cpu/kern_blocks_tmpl.h"

/* ---- many rows: panels ---- */
enum { PANEL_BYTES = 1 << 20 }; /* of the rows of x that take turns at a panel: half a second-level cache */

/* A strip of a panel and the rows of x that meet it. */
struct strip {
    const float *w;           /* [KERN_PANEL][KERN_STRIP] */
    const float *x[TILE_X];   /* each at the strip's start */
    int64_t steps;            /* whole sixteens */
    bool first;               /* strip of the rows: sums begin at 0 */
    float *sums;              /* [x row][KERN_PANEL][lane], kept between strips */
};

/* TILE_W rows of the panel from i0 on with NX rows of x. */
#define STRIP_TILE(name, NX)                                                                                  \
    static void name(const struct strip *p, int i0)                                                           \
    {                                                                                                         \
        const float *w = p->w + (size_t)i0 * KERN_STRIP, *x[NX];                                              \
        float *sums = p->sums + (size_t)i0 * KERN_LANES;                                                      \
        V16 acc[TILE_W][NX];                                                                                  \
        UNROLL for (int j = 0; j < (NX); j++) x[j] = p->x[j];                                                 \
        UNROLL for (int i = 0; i < TILE_W; i++) UNROLL for (int j = 0; j < (NX); j++)                         \
            acc[i][j] = p->first ? v_zero() : v_load(sums + (j * KERN_PANEL + i) * KERN_LANES);               \
        for (int64_t step = 0; step < p->steps; step++) {                                                     \
            V16 xs[NX];                                                                                       \
            UNROLL for (int j = 0; j < (NX); j++) xs[j] = v_load(x[j] + 16 * step);                           \
            UNROLL for (int i = 0; i < TILE_W; i++)                                                           \
            {                                                                                                 \
                V16 ws = v_load(w + i * KERN_STRIP + 16 * step);                                              \
                v_keep(&ws);                                                                                  \
                UNROLL for (int j = 0; j < (NX); j++) acc[i][j] = v_fma(ws, xs[j], acc[i][j]);                \
            }                                                                                                 \
        }                                                                                                     \
        UNROLL for (int i = 0; i < TILE_W; i++) UNROLL for (int j = 0; j < (NX); j++)                         \
            v_store(sums + (j * KERN_PANEL + i) * KERN_LANES, acc[i][j]);                                     \
    }

STRIP_TILE(strip_1, 1)
#if TILE_X > 1
STRIP_TILE(strip_2, 2)
#endif
#if TILE_X > 2
STRIP_TILE(strip_3, 3)
#endif

static void (*const strip_tiles[TILE_X])(const struct strip *p, int i0) = {
    strip_1,
#if TILE_X > 1
    strip_2,
#endif
#if TILE_X > 2
    strip_3,
#endif
};

/* Elements k0 .. k0 + n of the panel's n_w rows, widened; rows that are missing are 0 and lead nowhere.
 * What will be read next is fetched meanwhile: the same part of the next strip, or of the next panel. */
static void widen_strip(float *to, const struct kern_linear *a, int64_t o, int n_w, int64_t k0, int64_t n)
{
    const struct dtype_info *d = dtype_info(a->dtype);
    size_t bytes = (size_t)n * d->block_size / d->block_elems, at = (size_t)k0 / d->block_elems * d->block_size;
    bool last = k0 + n == a->k;

    for (int i = 0; i < n_w; i++) {
        const uint8_t *row = a->w + (size_t)(o + i) * a->row_size;
        uintptr_t next = (uintptr_t)row + (last ? KERN_PANEL * a->row_size : at + bytes);
        for (size_t b = 0; b < bytes; b += 64)
            __builtin_prefetch((const void *)(next + b), 0, 2);
        if (a->dtype == DTYPE_F32)
            memcpy(to + i * KERN_STRIP, row + at, 4 * (size_t)n);
        else
            dequant(to + i * KERN_STRIP, a->dtype, row, k0, n);
    }
    for (int i = n_w; i < KERN_PANEL; i++)
        memset(to + i * KERN_STRIP, 0, KERN_STRIP * sizeof *to);
}

/* The outputs o .. o + n_w of row r of x from their sums; w holds the last strip, of n values. */
static void put_row(const struct kern_linear *a, int64_t o, int n_w, int64_t r, const float *sums, const float *w, int64_t n)
{
    float *out = a->out + row_index(a->out_rows, r) * a->out_cols + o, v[KERN_PANEL];
    int64_t tail = a->k % 16;
    V16 acc[KERN_PANEL];

    for (int i = 0; i < KERN_PANEL; i++)
        acc[i] = v_load(sums + i * KERN_LANES);
    for (int i = 0; i < n_w && tail != 0; i++)
        acc[i] = add_tail(acc[i], w + (i * KERN_STRIP + n - tail), a->x + row_index(a->x_rows, r) * a->k + a->k - tail,
                          tail);
    v_store(v, v_trees(acc));
    for (int i = 0; i < n_w && a->bias != NULL; i++)
        v[i] += load_f32(a->bias, o + i);
    memcpy(out, v, (size_t)n_w * sizeof *out);
}

/* Outputs o .. o + n_w of rows r0 .. r1, strip by strip. */
static void panel(const struct kern_linear *a, int64_t o, int n_w, int64_t r0, int64_t r1, struct kern_scratch *s)
{
    for (int64_t k0 = 0; k0 < a->k; k0 += KERN_STRIP) {
        int64_t n = a->k - k0 < KERN_STRIP ? a->k - k0 : KERN_STRIP;
        struct strip p = {.w = s->w, .steps = n / 16, .first = k0 == 0};
        widen_strip(s->w, a, o, n_w, k0, n);
        for (int64_t r = r0; r < r1; r += TILE_X) {
            int nx = r1 - r < TILE_X ? (int)(r1 - r) : TILE_X;
            p.sums = s->acc + (r - r0) * KERN_PANEL * KERN_LANES;
            for (int j = 0; j < nx; j++)
                p.x[j] = a->x + row_index(a->x_rows, r + j) * a->k + k0;
            for (int i = 0; i < n_w; i += TILE_W)
                strip_tiles[nx - 1](&p, i);
            for (int j = 0; j < nx && k0 + n == a->k; j++)
                put_row(a, o, n_w, r + j, p.sums + j * KERN_PANEL * KERN_LANES, s->w, n);
        }
    }
}

static void linear_panels(const struct kern_linear *a, int64_t o0, int64_t o1, struct kern_scratch *s)
{
    int64_t rows = PANEL_BYTES / 4 / a->k / TILE_X * TILE_X;

    rows = rows < 8 * TILE_X ? 8 * TILE_X : rows < KERN_ROWS ? rows : KERN_ROWS;
    for (int64_t r = 0; r < a->n_rows; r += rows)
        for (int64_t o = o0; o < o1; o += KERN_PANEL)
            panel(a, o, o1 - o < KERN_PANEL ? (int)(o1 - o) : KERN_PANEL, r,
                  a->n_rows - r < rows ? a->n_rows : r + rows, s);
}

static void linear(const struct kern_linear *a, int64_t o0, int64_t o1, struct kern_scratch *s)
{
    if (a->n_rows <= KERN_TILE) {
        switch (a->dtype) {
        case DTYPE_F32: direct_f32(a, o0, o1); return;
        case DTYPE_F16: direct_f16(a, o0, o1); return;
        case DTYPE_BF16: direct_bf16(a, o0, o1); return;
        case DTYPE_Q8_0: direct_q8_0(a, o0, o1); return;
        case DTYPE_Q4_0: direct_q4_0(a, o0, o1); return;
        case DTYPE_Q4_1: direct_q4_1(a, o0, o1); return;
        case DTYPE_Q5_0: direct_q5_0(a, o0, o1); return;
        case DTYPE_Q5_1: direct_q5_1(a, o0, o1); return;
        case DTYPE_Q4_K: direct_q4_k(a, o0, o1); return;
        case DTYPE_Q5_K: direct_q5_k(a, o0, o1); return;
        case DTYPE_Q6_K: direct_q6_k(a, o0, o1); return;
        default: break;
        }
    }
#ifdef WIDE_W
    if (a->n_rows <= WIDE_X && (a->dtype == DTYPE_F32 || a->dtype == DTYPE_F16 || a->dtype == DTYPE_BF16)) {
        linear_wide(a, o0, o1);
        return;
    }
#endif
    linear_panels(a, o0, o1, s);
}
