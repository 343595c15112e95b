/* Matrix products for --math fast, GPU family: the row of x is rounded in
 * blocks of 32 first, to int8 or half with one f32 scale a block, and products
 * are integer dots of 4 (-DDOT=1: Q8_0, Q4_0, Q4_K) or half arithmetic of 4
 * terms (-DDOT=0: F16), summed in f32.
 *
 * Bounds: backend/selftest_cases.c.  Only with -DUNITS=1, built where the device has what is asked for
 * (variants.c).  Must not know other layouts than quant_gpu.clh's. */
#if !DOT
#pragma OPENCL EXTENSION cl_khr_fp16 : enable
#endif
#ifdef cl_khr_integer_dot_product
#pragma OPENCL EXTENSION cl_khr_integer_dot_product : enable
#endif
#include "common.clh"
#include "row_gpu.clh"

#define X_BLOCK 32

/* ---- x in blocks ---- */
#if DOT
#define XT char
#define X_MOST 127.0f
#else
#define XT half
#define X_MOST 1.0f
#endif

/* 1 / s and s of a block: s = its largest |x| / X_MOST, not a number where a value is not finite, and with it
 * every output of the row (fmax leaves such values out, sums of finite values overflow) */
static inline float2 block_scale(const __global float *from)
{
    float most = 0.0f, odd = 0.0f;
    for (int i = 0; i < X_BLOCK; i += 4) {
        const float4 v = vload4(0, from + i), a = fabs(v);
        most = fmax(most, fmax(fmax(a.x, a.y), fmax(a.z, a.w)));
        odd += (v.x - v.x) + (v.y - v.y) + (v.z - v.z) + (v.w - v.w);
    }
    return (float2)(most > 0.0f && most < INFINITY ? X_MOST / most : 0.0f, odd == 0.0f ? most / X_MOST : odd);
}

#if DOT
#define ROUND4(v) convert_char4_sat_rte(v)
#define PUT4(v, p) vstore4(ROUND4(v), 0, p)
#else
#define ROUND4(v) convert_half4_rte(v)
#define PUT4(v, p) vstore_half4_rte(v, 0, p)
#endif

/* The first value of this work-item's block of x: false past the end */
static inline int block_at(ulong *at, int k, int n_rows)
{
    const int b = (int)get_global_id(0), r = (int)get_global_id(1);
    *at = (ulong)r * k + b * X_BLOCK;
    return b * X_BLOCK < k && r < n_rows;
}

/* xq[r][i] = x[r][i] / xs[r][i / 32], xs the block's scale.  k is a multiple of 32.  global (k / 32, n_rows) */
__kernel void round_x(OUT(xq), OUT(xs), IN(x), const int k, const int n_rows)
{
    ulong at;
    if (!block_at(&at, k, n_rows))
        return;
    const float2 s = block_scale(IN_PTR(float, x) + at);
    for (int i = 0; i < X_BLOCK; i += 4)
        PUT4(vload4(0, IN_PTR(float, x) + at + i) * s.x, OUT_PTR(XT, xq) + at + i);
    OUT_PTR(float, xs)[at / X_BLOCK] = s.y;
}

/* The same values for kernels that take f32: y[r][i] = xq[r][i] xs[r][i / 32].  global (k / 32, n_rows) */
__kernel void rounded_x(OUT(y), IN(x), const int k, const int n_rows)
{
    ulong at;
    if (!block_at(&at, k, n_rows))
        return;
    const float2 s = block_scale(IN_PTR(float, x) + at);
    for (int i = 0; i < X_BLOCK; i += 4)
        vstore4(convert_float4(ROUND4(vload4(0, IN_PTR(float, x) + at + i) * s.x)) * s.y, 0, OUT_PTR(float, y) + at + i);
}

/* ---- a lane's unit of a weight row times the rounded x ---- */
#if DOT
typedef uint4 quad_x; /* 16 int8 */
static inline quad_x x16(const __global XT *x, int k)
{
    return *(const __global uint4 *)(x + k);
}
static inline int dot_ss(uint4 a, uint4 b)
{
    return dot_4x8packed_ss_int(a.x, b.x) + dot_4x8packed_ss_int(a.y, b.y) + dot_4x8packed_ss_int(a.z, b.z) +
           dot_4x8packed_ss_int(a.w, b.w);
}
static inline int dot_us(uint4 a, uint4 b)
{
    return dot_4x8packed_us_int(a.x, b.x) + dot_4x8packed_us_int(a.y, b.y) + dot_4x8packed_us_int(a.z, b.z) +
           dot_4x8packed_us_int(a.w, b.w);
}
#if UE == 16 /* Q8_0: half a block */
static inline float unit_product(ROW w, unit v, const __global XT *x, const __global float *scales, int u, int n)
{
    const float d = unit_scale(w, u, 0, n).x * scales[unit_k(u, 0) / X_BLOCK];
    return d * (float)dot_ss(v, x16(x, unit_k(u, 0)));
}
#else /* low nibbles at unit_k(u, 0), high ones at unit_k(u, 4): (q - 8) d, or q d - m */
static inline float unit_product(ROW w, unit v, const __global XT *x, const __global float *scales, int u, int n)
{
    float sum = 0.0f;
    UNROLL for (int h = 0; h < 2; h++)
    {
        const int at = unit_k(u, 4 * h);
        const uint4 xs = x16(x, at), q = v >> (uint)(4 * h) & 0x0f0f0f0fu;
        const float2 s = unit_scale(w, u, h * (HALF_UNITS - 1), n);
        const float dot = (float)dot_us(q, xs), all = (float)dot_us((uint4)0x01010101u, xs);
        sum = fma(scales[at / X_BLOCK], fma(s.x, dot, -s.y * all), sum);
    }
    return sum;
}
#endif
#else /* F16: 8 values, two terms of each of four chains in half */
static inline float unit_product(ROW w, unit v, const __global XT *x, const __global float *scales, int u, int n)
{
    const uint4 xs = *(const __global uint4 *)(x + u * UE);
    const half4 p = fma(as_half4(v.zw), as_half4(xs.zw), as_half4(v.xy) * as_half4(xs.xy));
    const float4 f = convert_float4(p);
    return scales[u * UE / X_BLOCK] * ((f.x + f.y) + (f.z + f.w));
}
#endif

/* MB rows of x by RF weight rows a group; the sum of an output does not depend on MB.
 * global (ceil(n_w / RF) * WG, ceil(n_rows / MB)), local (WG, 1) */
#define RF 4
#define LINEAR_FAST(name, MB)                                                                                  \
    __kernel GROUP(WG) MOST_REGISTERS void name(LINEAR_ARGS, IN(scales))                                       \
    {                                                                                                          \
        __local float t[RF * MB * WG];                                                                         \
        const int lane = (int)get_local_id(0), o = (int)get_group_id(0) * RF, m = group_at(1) * MB;            \
        BEGIN_ROWS(ws, RF, IN_PTR(uchar, w), o, acc, RF * MB)                                                  \
        for (int u = lane; u < n_units(k); u += WG) {                                                          \
            unit v[RF];                                                                                        \
            UNROLL for (int r = 0; r < RF; r++) v[r] = unit_load(ws[r], u, k);                                 \
            UNROLL for (int b = 0; b < MB; b++)                                                                \
            {                                                                                                  \
                const ulong at = (ulong)min(m + b, n_rows - 1) * k;                                            \
                UNROLL for (int r = 0; r < RF; r++)                                                            \
                    acc[r * MB + b] += unit_product(ws[r], v[r], IN_PTR(XT, x) + at,                           \
                                                    IN_PTR(float, scales) + at / X_BLOCK, u, k);               \
            }                                                                                                  \
        }                                                                                                      \
        UNROLL for (int r = 0; r < RF; r++) UNROLL for (int b = 0; b < MB; b++)                                \
            t[(b * RF + r) * WG + lane] = acc[r * MB + b];                                                     \
        tree_wg(t, RF * MB, lane);                                                                             \
        for (int i = lane; i < RF * MB; i += WG)                                                               \
            if (m + i / RF < n_rows && o + i % RF < n_w)                                                       \
                WRITE(m + i / RF, o + i % RF, t[i * WG]);                                                      \
    }
LINEAR_FAST(linear_fast1, 1)
LINEAR_FAST(linear_fast4, 4)
