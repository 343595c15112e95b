/* Element by element: a tensor as one run of n values, 16 to a work-item.
 * The functions are common.clh's; outputs may be inputs, since an item reads
 * only what it writes. */
#include "common.clh"

#define ELEMENTS(EXPR)                                                                 \
    ulong i = (ulong)get_global_id(0) * 16;                                            \
    if (i >= n)                                                                        \
        return;                                                                        \
    if (i + 16 <= n) {                                                                 \
        float16 a = vload16(0, x + i), b = vload16(0, y + i);                          \
        vstore16(EXPR, 0, o + i);                                                      \
    } else {                                                                           \
        int rest = (int)(n - i);                                                       \
        float16 a = part_f32(x + i, rest), b = part_f32(y + i, rest);                  \
        put_part(EXPR, o + i, rest);                                                   \
    }

#define TWO_INPUTS(name, EXPR)                                                         \
    __kernel void name(OUT(out), IN(p), IN(q), const ulong n)                          \
    {                                                                                  \
        __global float *o = OUT_PTR(float, out);                                       \
        const __global float *x = IN_PTR(float, p), *y = IN_PTR(float, q);             \
        ELEMENTS(EXPR)                                                                 \
    }

/* global (ceil(n / 16)) each */
TWO_INPUTS(act_mul_silu, canon16_silu(a) * b)
TWO_INPUTS(act_mul_gelu_tanh, canon16_gelu_tanh(a) * b)
TWO_INPUTS(act_mul_gelu_erf, canon16_gelu_erf(a) * b)
TWO_INPUTS(add, a + b)

__kernel void scale(OUT(out), const float s, const ulong n)
{
    __global float *o = OUT_PTR(float, out);
    const __global float *x = o, *y = o;
    ELEMENTS(((void)b, a * s))
}

__kernel void softcap(OUT(out), const float cap, const float inv_cap, const ulong n)
{
    __global float *o = OUT_PTR(float, out);
    const __global float *x = o, *y = o;
    ELEMENTS(((void)b, cap * canon16_tanh(a * inv_cap)))
}
