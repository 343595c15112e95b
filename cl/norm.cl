/* Norms of rows, one work-item a row: the CPU family's form.
 * The sum of squares is the canonical one, whatever the row's length; a head's
 * norm is a row like any other. */
#include "common.clh"

/* out = x r (w, or 1 + w) with r = 1 / sqrt(sum x^2 * (1 / n) + eps).  global (rows) */
__kernel void rmsnorm(OUT(out), IN(x), IN(w), const float eps, const float inv_n, const float one,
                      const int n, const int n_rows)
{
    int r = (int)get_global_id(0), k, whole = n & ~15;
    if (r >= n_rows)
        return;
    const __global float *a = IN_PTR(float, x) + (ulong)r * n, *b = IN_PTR(float, w);
    __global float *o = OUT_PTR(float, out) + (ulong)r * n;
    float16 acc = 0.0f;
    for (k = 0; k < whole; k += 16) {
        float16 v = vload16(0, a + k);
        acc = fma(v, v, acc);
    }
    if (whole < n) {
        float16 v = part_f32(a + whole, n - whole);
        acc = fma_part(v, v, acc, n - whole);
    }
    float inv = canon_rsqrt(fma(tree16(acc), inv_n, eps));
    for (k = 0; k < whole; k += 16)
        vstore16(vload16(0, a + k) * inv * (one + vload16(0, b + k)), 0, o + k);
    for (; k < n; k++)
        o[k] = a[k] * inv * (one + b[k]);
}
