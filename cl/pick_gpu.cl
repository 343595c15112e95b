/* The largest of a part of a row, GPU family: 64 lanes read neighbouring
 * values; the same answer as pick_cpu.cl; pick.cl's argmax_join joins the parts.
 * Must not know what the values are. */
#include "common.clh"

#define WG 64

/* Best of columns part * span .. of a row: its id (lowest of equals; -1 when one is not finite) and
 * value.  global (n_parts * WG, n_rows), local (WG, 1) */
__kernel __attribute__((reqd_work_group_size(WG, 1, 1))) void argmax_part(OUT(ids), OUT(vals), IN(x), const int span,
                                                                           const int n, const int n_parts,
                                                                           const int n_rows)
{
    __local float best[WG];
    __local int id[WG], ok[WG];
    const int lane = (int)get_local_id(0), p = (int)get_group_id(0), r = group_at(1);
    const __global float *v = IN_PTR(float, x) + (ulong)r * n;
    const int hi = min(n, (p + 1) * span);
    float top = -INFINITY;
    int at = n, good = 1;

    for (int i = p * span + lane; i < hi; i += WG) {
        const float a = v[i];
        good &= !NOT_FINITE(as_uint(a));
        at = a > top ? i : at;
        top = a > top ? a : top;
    }
    best[lane] = top;
    id[lane] = at;
    ok[lane] = good;
    for (int half_size = WG / 2; half_size > 0; half_size /= 2) {
        barrier(CLK_LOCAL_MEM_FENCE);
        if (lane < half_size) {
            const float other = best[lane + half_size];
            const int take = other > best[lane] || (other == best[lane] && id[lane + half_size] < id[lane]);
            best[lane] = take ? other : best[lane];
            id[lane] = take ? id[lane + half_size] : id[lane];
            ok[lane] &= ok[lane + half_size];
        }
    }
    if (lane == 0) {
        OUT_PTR(int, ids)[r * n_parts + p] = ok[0] ? id[0] : -1;
        OUT_PTR(float, vals)[r * n_parts + p] = best[0];
    }
}
