/* Rotary positions, in place; the table of cos and sin comes from the host.
 * A work-item owns one pair, so no order matters.  Knows no angles and no
 * model: which values make a pair is an argument. */
#include "common.clh"

/* (a, b) -> (a c - b s, b c + a s), as fma(-b, s, a c) and fma(a, s, b c).  Pair i of a head is
 * at i * step and i * step + other.  global (n_rot / 2, heads, rows) */
__kernel void rope(OUT(x), IN(cs), const int head_dim, const int n_rot, const int step, const int other,
                   const int n_heads, const int n_rows)
{
    int i = (int)get_global_id(0), h = (int)get_global_id(1), r = (int)get_global_id(2);
    if (i >= n_rot / 2 || h >= n_heads || r >= n_rows)
        return;
    __global float *head = OUT_PTR(float, x) + ((ulong)r * n_heads + h) * head_dim;
    const __global float *t = IN_PTR(float, cs) + (ulong)r * n_rot + 2 * i;
    float c = t[0], s = t[1], a = head[i * step], b = head[i * step + other];
    head[i * step] = fma(-b, s, a * c);
    head[i * step + other] = fma(a, s, b * c);
}
