/* Products of many rows by their experts' matrices, GPU family: pairs of row and expert go in groups of one expert
 * (route.cl: group_pairs), so that a matrix is read once for the rows of a tile.
 *
 * Sums are in the canonical order: the same bits as experts_canon, whatever stands beside a row.  Formats and build
 * options: quant_gpu.clh.  Must not know how experts were chosen. */
#include "common.clh"
#define X_ROW(r) (pairs[r] / per_row)
#include "tile_gpu.clh"

#define GROUPED_WRITE(place, col, v)                                                                           \
    if (here)                                                                                                  \
    OUT_PTR(float, y)[(ulong)pairs[place] * n_w + (col)] = (v)

/* y[p] = experts[ids[p]] . x[p / per_row] for the pairs p of one tile, those of its expert that lie in this memory.
 * Nothing is read for a tile that is not used or whose expert is elsewhere: no values, no early return before barriers.
 * global (ceil(n_w / 16) * WG, n_tiles), local (WG, 1) */
__kernel GROUP(WG) MOST_REGISTERS void experts_tile(OUT(y), IN(x), IN(w), IN(offsets), IN(ids), IN(order), IN(tiles),
                                                    const int n_k, const int n_w, const int per_row)
{
    const int lane = (int)get_local_id(0), o = (int)get_group_id(0) * 16;
    const __global int *pairs = IN_PTR(int, order);
    const int2 tile = vload2(group_at(1), IN_PTR(int, tiles));
    const int used = tile.y > tile.x, m = used ? tile.x : 0, n_rows = used ? tile.y : 1;
    const ulong place = IN_PTR(ulong, offsets)[IN_PTR(int, ids)[pairs[m]]];
    const int here = used && place != ~(ulong)0, k = here ? n_k : 0;
    const __global float *xs_mem = IN_PTR(float, x);
    ROW ws_mem = w_mem + (here ? place : 0);
#if UNITS
    CANON_BODY(8, 4, 2, 2, 32, GROUPED_WRITE) /* 8 pairs: 16 would spill on Intel */
#else
    CANON_BODY(4, 4, 4, 1, 64, GROUPED_WRITE) /* 4 pairs */
#endif
}
