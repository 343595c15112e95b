/* Norms of rows, one work-item a row: the CPU family's form.
 * The sum of squares is the canonical one, whatever the row's length; a head's
 * norm is a row like any other. */
#include "common.clh"

/* 1 / sqrt(sum x^2 * (1 / n) + eps) of the n values at a */
static inline float inv_rms(const __global float *a, int n, float inv_n, float eps)
{
    int k, whole = n & ~15;
    float16 acc = 0.0f;
    for (k = 0; k < whole; k += 16) {
        float16 v = vload16(0, a + k);
        acc = fma(v, v, acc);
    }
    if (whole < n) {
        float16 v = part_f32(a + whole, n - whole);
        acc = fma_part(v, v, acc, n - whole);
    }
    return canon_rsqrt(fma(tree16(acc), inv_n, eps));
}

/* out = x r (w, or 1 + w) with r = 1 / sqrt(sum x^2 * (1 / n) + eps).  global (rows) */
__kernel void rmsnorm(OUT(out), IN(x), IN(w), const float eps, const float inv_n, const float one,
                      const int n, const int n_rows)
{
    int r = (int)get_global_id(0), k, whole = n & ~15;
    if (r >= n_rows)
        return;
    const __global float *a = IN_PTR(float, x) + (ulong)r * n, *b = IN_PTR(float, w);
    __global float *o = OUT_PTR(float, out) + (ulong)r * n;
    float inv = inv_rms(a, n, inv_n, eps);
    for (k = 0; k < whole; k += 16)
        vstore16(vload16(0, a + k) * inv * (one + vload16(0, b + k)), 0, o + k);
    for (; k < n; k++)
        o[k] = a[k] * inv * (one + b[k]);
}

/* Heads of q, then of k: normed where they have a weight (norms: bit 0 q, bit 1 k), then the first n_rot of their n
 * values rotated as in rope.cl, in place.  global (n_q + n_k, rows) */
__kernel void norm_rope(OUT(q), OUT(key), IN(wq), IN(wk), IN(cs), const float eps, const float inv_n,
                        const float one, const int norms, const int n, const int n_rot, const int step,
                        const int other, const int n_q, const int n_k, const int n_rows)
{
    int h = (int)get_global_id(0), r = (int)get_global_id(1), is_k = h >= n_q;
    if (h >= n_q + n_k || r >= n_rows)
        return;
    __global float *a = is_k ? OUT_PTR(float, key) + ((ulong)r * n_k + h - n_q) * n
                             : OUT_PTR(float, q) + ((ulong)r * n_q + h) * n;
    const __global float *t = IN_PTR(float, cs) + (ulong)r * n_rot;
    if (norms >> is_k & 1) {
        const __global float *w = is_k ? IN_PTR(float, wk) : IN_PTR(float, wq);
        float inv = inv_rms(a, n, inv_n, eps);
        for (int i = 0; i < n; i++)
            a[i] = a[i] * inv * (one + w[i]);
    }
    for (int i = 0; i < n_rot / 2; i++) {
        float c = t[2 * i], s = t[2 * i + 1], x = a[i * step], y = a[i * step + other];
        a[i * step] = fma(-y, s, x * c);
        a[i * step + other] = fma(x, s, y * c);
    }
}
