/* Element by element, GPU family: a tensor as one run of n values, one to a
 * work-item, so that neighbouring lanes touch neighbouring values and a short
 * row fills more than one wave.  The functions are common.clh's, the bits those
 * of elem.cl; outputs may be inputs, since an item reads only what it writes. */
#include "common.clh"

#define TWO_INPUTS(name, EXPR)                                                         \
    __kernel void name(OUT(out), IN(p), IN(q), const ulong n)                          \
    {                                                                                  \
        const ulong i = get_global_id(0);                                              \
        if (i >= n)                                                                    \
            return;                                                                    \
        const float a = IN_PTR(float, p)[i], b = IN_PTR(float, q)[i];                  \
        OUT_PTR(float, out)[i] = EXPR;                                                 \
    }

/* global (n) each */
TWO_INPUTS(act_mul_silu, canon_silu(a) * b)
TWO_INPUTS(act_mul_gelu_tanh, canon_gelu_tanh(a) * b)
TWO_INPUTS(act_mul_gelu_erf, canon_gelu_erf(a) * b)
TWO_INPUTS(add, a + b)

__kernel void scale(OUT(out), const float s, const ulong n)
{
    const ulong i = get_global_id(0);
    if (i < n)
        OUT_PTR(float, out)[i] *= s;
}

__kernel void softcap(OUT(out), const float cap, const float inv_cap, const ulong n)
{
    const ulong i = get_global_id(0);
    if (i < n)
        OUT_PTR(float, out)[i] = cap * canon_tanh(OUT_PTR(float, out)[i] * inv_cap);
}
