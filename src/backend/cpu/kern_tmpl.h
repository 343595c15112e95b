/* The inner loops, compiled once per instruction set by kern_NAME.c, which
 * first defines
 *     V16                          16 floats
 *     v_zero v_splat v_load v_store v_add v_mul v_fma
 *     v_load_f16 v_load_bf16 v_load_i8     16 stored values, widened exactly
 *     v_tree                       the tree lo + hi of 8, 4, 2, 1
 *     KERN_TABLE, KERN_ISA         the table's symbol and name
 * Every order of summation of `exact` is fixed here and nowhere else. */
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "backend/cpu/kernels.h"
#include "tensor/dtype.h"

#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 4")

INLINE float as_float(uint32_t u)
{
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

INLINE uint32_t as_uint(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

#define FMA __builtin_fmaf
#define AS_FLOAT as_float
#define AS_UINT as_uint
#include "cl/canon.clh"

INLINE float load_f32(const uint8_t *p, int64_t i)
{
    float v;
    memcpy(&v, p + 4 * i, sizeof v);
    return v;
}

/* 16 values of a stored row from element k on (a multiple of 16) */
INLINE V16 row_f32(const uint8_t *row, int64_t k)
{
    return v_load(row + 4 * k);
}

INLINE V16 row_f16(const uint8_t *row, int64_t k)
{
    return v_load_f16(row + 2 * k);
}

INLINE V16 row_bf16(const uint8_t *row, int64_t k)
{
    return v_load_bf16(row + 2 * k);
}

INLINE V16 row_q8_0(const uint8_t *row, int64_t k)
{
    const uint8_t *b = row + k / 32 * 34;
    uint16_t d;
    memcpy(&d, b, sizeof d);
    return v_mul(v_load_i8(b + 2 + k % 32), v_splat(f16_scalar(d)));
}

/* ---- linear ---- */
/* acc[i][j] += the products of w[i] and x[j] over 16 * steps elements, w read through `row`.
 * FETCH is done once for each 16 values of a row of w. */
#define TILE_STEPS(NW, NX, row, w, x, steps, acc, FETCH)                                                  \
    for (int64_t step = 0; step < (steps); step++) {                                                      \
        V16 xs[NX], ws;                                                                                   \
        UNROLL for (int xj = 0; xj < (NX); xj++) xs[xj] = v_load(x[xj] + 16 * step);                      \
        UNROLL for (int wi = 0; wi < (NW); wi++)                                                          \
        {                                                                                                 \
            FETCH;                                                                                        \
            ws = row(w[wi], 16 * step);                                                                   \
            UNROLL for (int xj = 0; xj < (NX); xj++) acc[wi][xj] = v_fma(ws, xs[xj], acc[wi][xj]);        \
        }                                                                                                 \
    }

/* The last n < 16 elements: their lanes take one more term, the others stop. */
static V16 add_tail(V16 acc, const float *w, const float *x, int64_t n)
{
    float lanes[KERN_LANES];
    v_store(lanes, acc);
    for (int64_t l = 0; l < n; l++)
        lanes[l] = __builtin_fmaf(w[l], x[l], lanes[l]);
    return v_load(lanes);
}

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

/* NW outputs from o of NX rows from r, w straight from where it is stored.  The tile that follows
 * lies right behind this one and is fetched in the order it is stored, line by line, since several
 * rows at once defeat the hardware's own prefetcher (a hint: it may lie beyond the end). */
#define DIRECT(NW, NX, row)                                                                               \
    {                                                                                                     \
        const uint8_t *w[NW];                                                                             \
        const float *x[NX];                                                                               \
        V16 acc[NW][NX];                                                                                  \
        int64_t full = a->k / 16, tail = a->k % 16;                                                       \
        uintptr_t stride = a->row_size / (size_t)(full > 0 ? full : 1);                                   \
        uintptr_t ahead = (uintptr_t)a->w + (size_t)(o + (NW)) * a->row_size;                             \
        UNROLL for (int i = 0; i < (NW); i++) w[i] = a->w + (size_t)(o + i) * a->row_size;                \
        UNROLL for (int j = 0; j < (NX); j++) x[j] = a->x + row_index(a->x_rows, r + j) * a->k;           \
        UNROLL for (int i = 0; i < (NW); i++) UNROLL for (int j = 0; j < (NX); j++) acc[i][j] = v_zero(); \
        TILE_STEPS(NW, NX, row, w, x, full, acc, (__builtin_prefetch((const void *)ahead), ahead += stride))\
        UNROLL for (int i = 0; i < (NW) && tail != 0; i++)                                                \
        {                                                                                                 \
            size_t at = a->row_size / (size_t)a->k * 16 * (size_t)full;                                   \
            float ws[KERN_LANES];                                                                         \
            dtype_info(a->dtype)->to_f32(ws, w[i] + at, (size_t)tail);                                    \
            UNROLL for (int j = 0; j < (NX); j++)                                                         \
                acc[i][j] = add_tail(acc[i][j], ws, x[j] + 16 * full, tail);                              \
        }                                                                                                 \
        UNROLL for (int i = 0; i < (NW); i++)                                                             \
            UNROLL for (int j = 0; j < (NX); j++) put(a, r + j, o + i, acc[i][j]);                        \
    }

/* At most KERN_TILE rows of x: each weight is read once and used at once. */
#define DIRECT_FORMAT(name, row)                                          \
    static void name(const struct kern_linear *a, int64_t o0, int64_t o1) \
    {                                                                     \
        int64_t o = o0, r = 0;                                            \
        for (; o + 4 <= o1; o += 4)                                       \
            switch (a->n_rows) {                                          \
            case 1: DIRECT(4, 1, row) break;                              \
            case 2: DIRECT(4, 2, row) break;                              \
            case 3: DIRECT(4, 3, row) break;                              \
            default: DIRECT(4, 4, row) break;                             \
            }                                                             \
        for (; o < o1; o++)                                               \
            for (r = 0; r < a->n_rows; r++)                               \
                DIRECT(1, 1, row)                                         \
    }

DIRECT_FORMAT(direct_f32, row_f32)
DIRECT_FORMAT(direct_f16, row_f16)
DIRECT_FORMAT(direct_bf16, row_bf16)
DIRECT_FORMAT(direct_q8_0, row_q8_0)

#include "backend/cpu/kern_dequant_tmpl.h"

/* One strip of NW x NX outputs; lanes rest in `sums` between strips. w[i], x[j] at the strip's start. */
#define PANEL_TILE(NW, NX)                                                                         \
    {                                                                                              \
        const uint8_t *w[NW];                                                                      \
        const float *x[NX];                                                                        \
        V16 acc[NW][NX];                                                                           \
        UNROLL for (int i = 0; i < (NW); i++) w[i] = p->w + (size_t)i * p->w_stride;               \
        UNROLL for (int j = 0; j < (NX); j++) x[j] = p->x[j];                                      \
        UNROLL for (int i = 0; i < (NW); i++) UNROLL for (int j = 0; j < (NX); j++)                \
            acc[i][j] = p->first ? v_zero() : v_load(p->sums + (j * KERN_PANEL + i) * KERN_LANES); \
        TILE_STEPS(NW, NX, row_f32, w, x, p->n / 16, acc, (void)0)                                 \
        UNROLL for (int i = 0; i < (NW); i++) UNROLL for (int j = 0; j < (NX); j++)                \
            v_store(p->sums + (j * KERN_PANEL + i) * KERN_LANES, acc[i][j]);                       \
    }

struct panel_tile {
    const uint8_t *w; /* f32 rows w_stride bytes apart */
    size_t w_stride;
    const float *x[KERN_TILE];
    int64_t n;        /* values of the strip */
    bool first;       /* strip of the row */
    float *sums;      /* [x row][KERN_PANEL][lane] */
};

static void panel_tile(const struct panel_tile *p, int nw, int nx)
{
    if (nw == 4)
        switch (nx) {
        case 1: PANEL_TILE(4, 1) break;
        case 2: PANEL_TILE(4, 2) break;
        case 3: PANEL_TILE(4, 3) break;
        default: PANEL_TILE(4, 4) break;
        }
    else
        switch (nx) {
        case 1: PANEL_TILE(1, 1) break;
        case 2: PANEL_TILE(1, 2) break;
        case 3: PANEL_TILE(1, 3) break;
        default: PANEL_TILE(1, 4) break;
        }
}

/* Rows of a panel at f32, for elements k0 .. k0 + n: where they lie, or dequantised. */
static void panel_rows(struct panel_tile *p, const struct kern_linear *a, int64_t o, int n_w, int64_t k0, int64_t n,
                       struct kern_scratch *s)
{
    if (a->dtype == DTYPE_F32) {
        p->w = a->w + (size_t)o * a->row_size + 4 * (size_t)k0;
        p->w_stride = a->row_size;
    } else {
        for (int i = 0; i < n_w; i++)
            dequant(s->w + i * KERN_STRIP, a->dtype, a->w + (size_t)(o + i) * a->row_size, k0, n);
        p->w = (const uint8_t *)s->w;
        p->w_stride = KERN_STRIP * sizeof *s->w;
    }
}

/* Outputs o .. o + n_w of rows r0 .. r1, strip by strip. */
static void panel(const struct kern_linear *a, int64_t o, int n_w, int64_t r0, int64_t r1, struct kern_scratch *s)
{
    int64_t tail = a->k % 16;

    for (int64_t k0 = 0; k0 < a->k; k0 += KERN_STRIP) {
        int64_t n = a->k - k0 < KERN_STRIP ? a->k - k0 : KERN_STRIP;
        struct panel_tile strip = { .n = n, .first = k0 == 0 };
        panel_rows(&strip, a, o, n_w, k0, n, s);
        for (int64_t r = r0; r < r1; r += KERN_TILE) {
            struct panel_tile p = strip;
            int nx = r1 - r < KERN_TILE ? (int)(r1 - r) : KERN_TILE;
            for (int j = 0; j < nx; j++)
                p.x[j] = a->x + row_index(a->x_rows, r + j) * a->k + k0;
            for (int i = 0, nw; i < n_w; i += nw) {
                nw = n_w - i >= KERN_TILE ? KERN_TILE : 1;
                p.w = strip.w + (size_t)i * strip.w_stride;
                p.sums = s->acc + ((r - r0) * KERN_PANEL + i) * KERN_LANES;
                panel_tile(&p, nw, nx);
            }
        }
        if (k0 + n < a->k)
            continue;
        for (int64_t r = r0; r < r1; r++)
            for (int i = 0; i < n_w; i++) {
                V16 acc = v_load(s->acc + ((r - r0) * KERN_PANEL + i) * KERN_LANES);
                if (tail != 0) {
                    float w[KERN_LANES];
                    memcpy(w, strip.w + (size_t)i * strip.w_stride + 4 * (size_t)(n - tail), 4 * (size_t)tail);
                    acc = add_tail(acc, w, a->x + row_index(a->x_rows, r) * a->k + a->k - tail, tail);
                }
                put(a, r, o + i, acc);
            }
    }
}

static void linear(const struct kern_linear *a, int64_t o0, int64_t o1, struct kern_scratch *s)
{
    if (a->n_rows <= KERN_TILE) {
        switch (a->dtype) {
        case DTYPE_F32: direct_f32(a, o0, o1); return;
        case DTYPE_F16: direct_f16(a, o0, o1); return;
        case DTYPE_BF16: direct_bf16(a, o0, o1); return;
        case DTYPE_Q8_0: direct_q8_0(a, o0, o1); return;
        default: break;
        }
    }
    for (int64_t o = o0; o < o1; o += KERN_PANEL)
        for (int64_t r = 0; r < a->n_rows; r += KERN_ROWS)
            panel(a, o, o1 - o < KERN_PANEL ? (int)(o1 - o) : KERN_PANEL, r,
                  a->n_rows - r < KERN_ROWS ? a->n_rows : r + KERN_ROWS, s);
}

#include "backend/cpu/kern_attn_tmpl.h"

/* ---- norms and elements ---- */
/* out = x r (w, or 1 + w),  r = 1 / sqrt(sum x^2 * (1/n) + eps) */
static void rmsnorm(float *out, const float *x, const uint8_t *w, int64_t n, float eps, bool add_one)
{
    int64_t whole = n / 16 * 16;
    float one = add_one ? 1.0f : 0.0f, inv_n = (float)(1.0 / (double)n);
    V16 acc = v_zero();

    for (int64_t k = 0; k < whole; k += 16)
        acc = v_fma(v_load(x + k), v_load(x + k), acc);
    if (whole < n)
        acc = add_tail(acc, x + whole, x + whole, n - whole);
    float r = canon_rsqrt(__builtin_fmaf(v_tree(acc), inv_n, eps));
    for (int64_t k = 0; k < n; k++)
        out[k] = x[k] * r * (one + load_f32(w, k));
}

/* (a, b) -> (a c - b s, b c + a s), as fma(-b, s, a c) and fma(a, s, b c) */
static void rope(float *head, const float *cs, int n_rot, enum op_pairs pairs)
{
    int half = n_rot / 2;
    int step = pairs == OP_PAIRS_HALVES ? 1 : 2, other = pairs == OP_PAIRS_HALVES ? half : 1;

    for (int i = 0; i < half; i++) {
        float c = cs[2 * i], s = cs[2 * i + 1];
        float a = head[i * step], b = head[i * step + other];
        head[i * step] = __builtin_fmaf(-b, s, a * c);
        head[i * step + other] = __builtin_fmaf(a, s, b * c);
    }
}

/* out[i] = EXPR of a = x[i], b = y[i], 16 at a time through locals, so that the compiler sees
 * no aliasing when out is x. */
#define ELEMENTS(EXPR)                                                 \
    for (int64_t i = 0; i < n; i += 16) {                              \
        float as[16] = { 0 }, bs[16] = { 0 }, os[16];                  \
        size_t size = (size_t)(n - i < 16 ? n - i : 16) * sizeof *out; \
        if (n - i >= 16) {                                             \
            memcpy(as, x + i, sizeof as);                              \
            memcpy(bs, y + i, sizeof bs);                              \
        } else {                                                       \
            memcpy(as, x + i, size);                                   \
            memcpy(bs, y + i, size);                                   \
        }                                                              \
        for (int l = 0; l < 16; l++) {                                 \
            float a = as[l], b = bs[l];                                \
            (void)b;                                                   \
            os[l] = (EXPR);                                            \
        }                                                              \
        if (n - i >= 16)                                               \
            memcpy(out + i, os, sizeof os);                            \
        else                                                           \
            memcpy(out + i, os, size);                                 \
    }

static void act_mul(float *out, const float *x, const float *y, int64_t n, enum op_act act)
{
    if (act == OP_SILU)
        ELEMENTS(canon_silu(a) * b)
    else if (act == OP_GELU_TANH)
        ELEMENTS(canon_gelu_tanh(a) * b)
    else
        ELEMENTS(canon_gelu_erf(a) * b)
}

static void add(float *out, const float *x, const float *y, int64_t n)
{
    ELEMENTS(a + b)
}

static void scale(float *out, const float *x, float s, int64_t n)
{
    const float *y = x;
    ELEMENTS(a * s)
}

static void softcap(float *out, float cap, int64_t n)
{
    const float *x = out, *y = out;
    float inv = 1.0f / cap;
    ELEMENTS(cap * canon_tanh(a * inv))
}

/* ---- experts ---- */
/* w[j] = e^(logit - max) / sum over all experts; renorm: over their own sum, j rising */
static void route(float *w, const int32_t *ids, int n_used, const float *logits, int64_t n, bool renorm)
{
    float lanes[KERN_LANES] = { 0 }, max = logits[ids[0]], sum = 0;

    for (int64_t e = 0; e < n; e++)
        lanes[e % KERN_LANES] += canon_exp(logits[e] - max);
    float inv = canon_recip(v_tree(v_load(lanes)));
    for (int j = 0; j < n_used; j++)
        sum += w[j] = canon_exp(logits[ids[j]] - max) * inv;
    if (renorm) {
        inv = canon_recip(sum);
        for (int j = 0; j < n_used; j++)
            w[j] *= inv;
    }
}

static void mix(float *out, const float *w, const float *y, int n_used, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        out[i] = w[0] * y[i];
    for (int j = 1; j < n_used; j++)
        for (int64_t i = 0; i < n; i++)
            out[i] = __builtin_fmaf(w[j], y[j * n + i], out[i]);
}

const struct cpu_kernels KERN_TABLE = {
    .isa = KERN_ISA,
    .linear = linear,
    .dequant = dequant,
    .attention = attention,
    .attention_chunk = attention_chunk,
    .attention_join = attention_join,
    .rmsnorm = rmsnorm,
    .rope = rope,
    .act_mul = act_mul,
    .add = add,
    .scale = scale,
    .softcap = softcap,
    .route = route,
    .mix = mix,
};
