/* Rows of the embedding table, and weights back to f32, from the GPU family's
 * split layout; other weights take embed.cl.  Copies values; the only
 * arithmetic is one product. */
#include "common.clh"
#include "quant_gpu.clh"

/* out[r] = scale * table[ids[r]] for ids first .. first + n_table - 1.  global (ceil(n / 16), rows) */
__kernel void embed(OUT(out), IN(table), IN(ids), const float scale, const int n, const int n_rows, const int first,
                    const int n_table)
{
    const int k = (int)get_global_id(0) * 16, r = (int)get_global_id(1);
    if (k >= n || r >= n_rows)
        return;
    const int id = IN_PTR(int, ids)[r] - first;
    if (id < 0 || id >= n_table)
        return;
    const float16 v = value16(IN_PTR(uchar, table) + (ulong)id * row_stride(n), k, n) * scale;
    __global float *to = OUT_PTR(float, out) + (ulong)r * n + k;
    if (k + 16 <= n)
        vstore16(v, 0, to);
    else
        put_part(v, to, n - k);
}

/* out[r] = w[r] as f32.  global (ceil(n / 16), rows) */
__kernel void dequant(OUT(out), IN(w), const int n, const int n_rows)
{
    const int k = (int)get_global_id(0) * 16, r = (int)get_global_id(1);
    if (k >= n || r >= n_rows)
        return;
    const float16 v = value16(IN_PTR(uchar, w) + (ulong)r * row_stride(n), k, n);
    __global float *to = OUT_PTR(float, out) + (ulong)r * n + k;
    if (k + 16 <= n)
        vstore16(v, 0, to);
    else
        put_part(v, to, n - k);
}
