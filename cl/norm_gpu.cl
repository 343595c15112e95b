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
