/* The inner loops, compiled once per instruction set by kern_NAME.c, which
 * first defines
 *     V16                          16 floats
 *     v_zero v_splat v_load v_store v_add v_mul v_fma
 *     v_load_f16 v_load_bf16 v_load_i8     16 stored values, widened exactly
 *     v_tree                       the tree lo + hi of 8, 4, 2, 1
 *     v_trees                      those of 16 vectors
 *     v_store_f16                  where there are instructions for it (then V_STORE_F16): rounded to even
 *     v_halves                     where there are permutes for it (then V_HALVES): halves of 16 blocks, no byte behind the last
 *     v_keep                       nothing; a register holds the value here, so that it is loaded once
 *     HOLD_QUERIES                 where 16 registers are left for queries that meet rows of keys
 *     TILE_W, TILE_X               rows of w and of x (1 to 3) whose sums fit the registers
 *     VI and its functions         integers, for kern_fast_tmpl.h
 *     KERN_TABLE, KERN_ISA         the table's symbol and name
 * Every order of summation of `exact` is fixed here and nowhere else. */
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "backend/cpu/kernels.h"
#include "tensor/dtype.h"

#ifndef INLINE
#define INLINE static inline __attribute__((always_inline))
#endif
#ifndef UNROLL
#define UNROLL _Pragma("GCC unroll 8")
#endif

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

/* 16 of a block of Q8_0, k a multiple of 16. */
INLINE V16 row_q8_0(const uint8_t *row, int64_t k)
{
    const uint8_t *block = row + k / 32 * 34;
    uint16_t d;
    memcpy(&d, block, sizeof d);
    return v_mul(v_load_i8(block + 2 + k % 32), v_splat(f16_scalar(d)));
}

INLINE V16 row_f16(const uint8_t *row, int64_t k)
{
    return v_load_f16(row + 2 * k);
}

INLINE V16 row_bf16(const uint8_t *row, int64_t k)
{
    return v_load_bf16(row + 2 * k);
}

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
            v_keep(&ws);                                                                                  \
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

#include "backend/cpu/kern_linear_tmpl.h"
#include "backend/cpu/kern_fast_tmpl.h"
#include "backend/cpu/kern_attn_tmpl.h"

/* ---- keys and values into 16-bit pages ---- */
static void narrow_f16(uint16_t *out, const float *x, int64_t n)
{
    int64_t i = 0;
#ifdef V_STORE_F16
    for (; i + 16 <= n; i += 16)
        v_store_f16(out + i, v_load(x + i));
#endif
    for (; i < n; i++)
        out[i] = f32_to_f16(x[i]);
}

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

/* canon_sigmoid without the branch and the loop that keep it from becoming vectors: the same bits. */
INLINE float flat_sigmoid(float x)
{
    float d = 1.0f + canon_exp(-x), y = as_float(0x7ef311c7u - as_uint(d));
    y = FMA(y, FMA(-d, y, 1.0f), y);
    y = FMA(y, FMA(-d, y, 1.0f), y);
    y = FMA(y, FMA(-d, y, 1.0f), y);
    y = FMA(y, FMA(-d, y, 1.0f), y);
    return x < -80.0f ? 0.0f : y;
}

static void act_mul(float *out, const float *x, const float *y, int64_t n, enum op_act act)
{
    if (act == OP_SILU)
        ELEMENTS(a * flat_sigmoid(a) * b)
    else if (act == OP_GELU_TANH) /* as canon_gelu_tanh */
        ELEMENTS(a * flat_sigmoid(1.595769122f * FMA(0.044715f * (a * a), a, a)) * b)
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

/* ---- the largest ---- */
/* In parts: the first part that has more than those before it has the first of the largest. */
static int32_t argmax(const float *x, int64_t n)
{
    enum { PART = 1024 };
    float best = -INFINITY;
    uint32_t bad = 0;
    int64_t at = 0;

    for (int64_t from = 0; from < n; from += PART) {
        int64_t left = n - from < PART ? n - from : PART, whole = left / 16 * 16;
        float most[16], max = -INFINITY;
        uint32_t found[16] = { 0 };
        for (int l = 0; l < 16; l++)
            most[l] = -INFINITY;
        for (int64_t i = from; i < from + whole; i += 16)
            for (int l = 0; l < 16; l++) {
                most[l] = x[i + l] > most[l] ? x[i + l] : most[l];
                found[l] |= (as_uint(x[i + l]) & 0x7f800000u) == 0x7f800000u ? 1u : 0u;
            }
        for (int64_t i = from + whole; i < from + left; i++) {
            max = x[i] > max ? x[i] : max;
            bad |= (as_uint(x[i]) & 0x7f800000u) == 0x7f800000u ? 1u : 0u;
        }
        for (int l = 0; l < 16; l++) {
            max = most[l] > max ? most[l] : max;
            bad |= found[l];
        }
        if (max > best) {
            best = max;
            at = from;
        }
    }
    while (bad == 0 && x[at] != best)
        at++;
    return bad != 0 ? -1 : (int32_t)at;
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

#ifdef KERN_BF16
#include KERN_BF16
#endif

const struct cpu_kernels KERN_TABLE = {
    .isa = KERN_ISA,
#ifdef KERN_BF16
    .narrow_bf16 = narrow_bf16,
    .linear_bf16 = linear_bf16,
#endif
    .linear = linear,
    .linear_fast = linear_fast,
    .quantize = quantize,
    .dequant = dequant,
    .attention = attention,
    .attention_chunk = attention_chunk,
    .attention_join = attention_join,
    .narrow_f16 = narrow_f16,
    .rmsnorm = rmsnorm,
    .rope = rope,
    .act_mul = act_mul,
    .add = add,
    .scale = scale,
    .softcap = softcap,
    .argmax = argmax,
    .route = route,
    .mix = mix,
};
