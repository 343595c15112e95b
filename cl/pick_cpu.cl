/* The largest of a part of a row, CPU family: a work-item reads 16 values at
 * once; pick.cl's argmax_join joins the parts.  Must not know what the values
 * are. */
#include "common.clh"

/* Best of `span` columns of a row: its id (lowest of equals; -1 when one is not finite) and value.
 * global (parts, rows) */
__kernel void argmax_part(OUT(ids), OUT(vals), IN(x), const int span, const int n, const int n_parts,
                          const int n_rows)
{
    int p = (int)get_global_id(0), r = (int)get_global_id(1);
    if (p >= n_parts || r >= n_rows)
        return;
    const __global float *v = IN_PTR(float, x) + (ulong)r * n;
    int lo = p * span, hi = min(n, lo + span), i = lo, id = lo, ok = 1;
    float best = v[lo];
    if (lo + 16 <= hi) {
        float16 top = vload16(0, v + lo);
        int16 at = (int16)(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15) + lo, where = at;
        uint16 bad = 0;
        for (; i + 16 <= hi; i += 16, at += 16) {
            float16 a = vload16(0, v + i);
            int16 more = a > top;
            bad |= as_uint16(NOT_FINITE(as_uint16(a)));
            top = select(top, a, more);
            where = select(where, at, more);
        }
        float tops[16];
        int wheres[16];
        vstore16(top, 0, tops);
        vstore16(where, 0, wheres);
        best = tops[0];
        id = wheres[0];
        for (int l = 1; l < 16; l++)
            if (tops[l] > best || (tops[l] == best && wheres[l] < id)) {
                best = tops[l];
                id = wheres[l];
            }
        ok = !any(as_int16(bad));
    }
    for (; i < hi; i++) {
        ok &= !NOT_FINITE(as_uint(v[i]));
        if (v[i] > best) {
            best = v[i];
            id = i;
        }
    }
    OUT_PTR(int, ids)[r * n_parts + p] = ok ? id : -1;
    OUT_PTR(float, vals)[r * n_parts + p] = best;
}
