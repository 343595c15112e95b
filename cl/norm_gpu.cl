/* Norms of rows, GPU family: a group of 64 lanes a row.  All lanes bring the
 * row to local memory and scale it; 16 of them are the 16 partial sums of the
 * canonical order. */
#include "common.clh"

#define WG 64
#define STAGE 1024 /* values in local memory at a time, a multiple of 16 */

/* out = x r (w, or 1 + w) with r = 1 / sqrt(sum x^2 * (1 / n) + eps); in place allowed.
 * global (WG * n_rows), local (WG): the other dimensions may have 65535 groups at most */
__kernel __attribute__((reqd_work_group_size(WG, 1, 1))) void rmsnorm(OUT(out), IN(x), IN(w), const float eps,
                                                                       const float inv_n, const float one,
                                                                       const int n, const int n_rows)
{
    __local float v[STAGE], red[16];
    const int lane = (int)get_local_id(0), r = (int)get_group_id(0);
    const __global float *a = IN_PTR(float, x) + (ulong)r * n, *b = IN_PTR(float, w);
    __global float *o = OUT_PTR(float, out) + (ulong)r * n;
    float acc = 0.0f;

    for (int k0 = 0; k0 < n; k0 += STAGE) {
        const int m = min(STAGE, n - k0);
        for (int k = lane; k < m; k += WG)
            v[k] = a[k0 + k];
        barrier(CLK_LOCAL_MEM_FENCE);
        if (lane < 16)
            _Pragma("unroll 8") for (int k = lane; k < m; k += 16) /* reads wait for nothing, the sums for each other */
                acc = fma(v[k], v[k], acc);
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    if (lane < 16)
        red[lane] = acc;
    barrier(CLK_LOCAL_MEM_FENCE);
    /* every lane the whole tree: 15 sums of values read by all at once cost less than four more barriers */
    const float inv = canon_rsqrt(fma(tree_of(red), inv_n, eps));
    for (int k = lane; k < n; k += WG)
        o[k] = a[k] * inv * (one + b[k]);
}

/* Heads of q, then of k: normed where they have a weight (norms: bit 0 q, bit 1 k), then the first n_rot of their n <=
 * STAGE values rotated as in rope.cl, in place.  global (WG * (n_q + n_k), rows), local (WG, 1) */
__kernel __attribute__((reqd_work_group_size(WG, 1, 1))) void norm_rope(
    OUT(q), OUT(key), IN(wq), IN(wk), IN(cs), const float eps, const float inv_n, const float one, const int norms,
    const int n, const int n_rot, const int step, const int other, const int n_q, const int n_k, const int n_rows)
{
    __local float v[STAGE], red[16];
    const int lane = (int)get_local_id(0), h = (int)get_group_id(0), r = group_at(1), is_k = h >= n_q;
    __global float *a = is_k ? OUT_PTR(float, key) + ((ulong)r * n_k + h - n_q) * n
                             : OUT_PTR(float, q) + ((ulong)r * n_q + h) * n;
    const __global float *w = is_k ? IN_PTR(float, wk) : IN_PTR(float, wq);
    const __global float *t = IN_PTR(float, cs) + (ulong)r * n_rot;
    float inv = 1.0f, acc = 0.0f;

    for (int i = lane; i < n; i += WG)
        v[i] = a[i];
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE); /* others write where this one has read */
    if (norms >> is_k & 1) { /* the same for the whole group */
        if (lane < 16) {
            for (int i = lane; i < n; i += 16)
                acc = fma(v[i], v[i], acc);
            red[lane] = acc;
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        inv = canon_rsqrt(fma(tree_of(red), inv_n, eps));
        for (int i = lane; i < n; i += WG)
            v[i] = v[i] * inv * (one + w[i]);
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    for (int i = lane; i < n_rot / 2; i += WG) {
        const float c = t[2 * i], s = t[2 * i + 1], x = v[i * step], y = v[i * step + other];
        a[i * step] = fma(-y, s, x * c);
        a[i * step + other] = fma(x, s, y * c);
    }
    for (int i = n_rot + lane; i < n; i += WG)
        a[i] = v[i];
}
