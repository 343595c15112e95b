/* Rows of the embedding table, and weights back to f32.  Copies values; the
 * only arithmetic is one product.  Knows formats through quant.clh alone
 * (-DWT). */
#include "common.clh"
#include "quant.clh"

static inline void copy16(__global float *out, ROW row, int k, int n, float scale)
{
    if (k + 16 <= n)
        vstore16(load16(row, k) * scale, 0, out + k);
    else
        put_part(load_part(row, k, n - k) * scale, out + k, n - k);
}

/* out[r] = scale * table[ids[r]] for ids first .. first + n_table - 1 (the rows in this memory).
 * global (ceil(n / 16), rows) */
__kernel void embed(OUT(out), IN(table), IN(ids), const float scale, const int n, const int n_rows,
                    const int first, const int n_table)
{
    int k = (int)get_global_id(0) * 16, r = (int)get_global_id(1);
    if (k >= n || r >= n_rows)
        return;
    int id = IN_PTR(int, ids)[r] - first;
    if (id < 0 || id >= n_table)
        return;
    copy16(OUT_PTR(float, out) + (ulong)r * n, IN_PTR(uchar, table) + (ulong)id * row_size(n), k, n, scale);
}

/* out[r] = w[r] as f32.  global (ceil(n / 16), rows) */
__kernel void dequant(OUT(out), IN(w), const int n, const int n_rows)
{
    int k = (int)get_global_id(0) * 16, r = (int)get_global_id(1);
    if (k < n && r < n_rows)
        copy16(OUT_PTR(float, out) + (ulong)r * n, IN_PTR(uchar, w) + (ulong)r * row_size(n), k, n, 1.0f);
}
