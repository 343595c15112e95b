/* Operations that move or pick values: one right answer each.
 * Nothing here computes; ties go to the lowest id, and a row with a value that
 * is not finite says so. */
#include "common.clh"

/* out[i] = x[rows[i]].  global (ceil(n / 16), m) */
__kernel void gather_rows(OUT(out), IN(x), IN(rows), const int n, const int m)
{
    int k = (int)get_global_id(0) * 16, i = (int)get_global_id(1);
    if (k >= n || i >= m)
        return;
    const __global float *from = IN_PTR(float, x) + (ulong)IN_PTR(int, rows)[i] * n + k;
    __global float *to = OUT_PTR(float, out) + (ulong)i * n + k;
    if (k + 16 <= n)
        vstore16(vload16(0, from), 0, to);
    else
        for (int j = 0; k + j < n; j++)
            to[j] = from[j];
}

/* The best of the parts, in rising order.  global (rows) */
__kernel void argmax_join(OUT(out), IN(ids), IN(vals), const int n_parts, const int n_rows)
{
    int r = (int)get_global_id(0);
    if (r >= n_rows)
        return;
    const __global int *id = IN_PTR(int, ids) + r * n_parts;
    const __global float *v = IN_PTR(float, vals) + r * n_parts;
    int best = 0, ok = 1;
    for (int p = 0; p < n_parts; p++) {
        ok &= id[p] >= 0;
        if (v[p] > v[best])
            best = p;
    }
    OUT_PTR(int, out)[r] = ok ? id[best] : -1;
}

/* The k largest of a row, falling, lowest id first among equals (NaN counts as smallest); ids[0] is
 * -1 when one value is not finite.  global (rows) */
__kernel void topk(OUT(ids), OUT(vals), IN(x), const int k, const int n, const int n_rows)
{
    int r = (int)get_global_id(0), kept = 0, ok = 1;
    if (r >= n_rows)
        return;
    const __global float *v = IN_PTR(float, x) + (ulong)r * n;
    __global int *id = OUT_PTR(int, ids) + (ulong)r * k;
    __global float *val = OUT_PTR(float, vals) + (ulong)r * k;
    float last = 0.0f; /* val[k - 1] once k are kept */
    for (int i = 0; i < n; i++) {
        float a = v[i];
        ok &= !NOT_FINITE(as_uint(a));
        if (kept == k && !(a > last) && !(isnan(last) && !isnan(a)))
            continue;
        int at = kept;
        while (at > 0 && (a > val[at - 1] || (isnan(val[at - 1]) && !isnan(a))))
            at--;
        kept += kept < k;
        for (int j = kept - 1; j > at; j--) {
            id[j] = id[j - 1];
            val[j] = val[j - 1];
        }
        id[at] = i;
        val[at] = a;
        last = val[kept - 1];
    }
    if (!ok)
        id[0] = -1;
}
