/* One row of x with sub-groups, a variant of linear_row: each sub-group has R
 * weight rows of its own, and its lanes' sums come together without local
 * memory or a barrier.
 *
 * Any size of sub-groups, also one that does not divide the group.  Built as linear_gpu.cl is, with -DSUB=1;
 * never under --deterministic (the order of the reduction is the device's). */
#include "common.clh"
#include "row_gpu.clh"
#include "sub.clh"

/* global (ceil(n_w / (R * sub-groups of a group)) * WG, n_rows), local (WG, 1) */
__kernel GROUP(WG) void linear_sub(LINEAR_ARGS)
{
    const int lane = (int)get_sub_group_local_id(), n_lanes = (int)get_sub_group_size();
    const int o = ((int)get_group_id(0) * (int)get_num_sub_groups() + (int)get_sub_group_id()) * R;
    const int row = group_at(1);
    BEGIN_ROWS(ws, R, IN_PTR(uchar, w), o, acc, R)
    row_sums(acc, ws, IN_PTR(float, x) + (ulong)row * k, lane, n_lanes, k);
    UNROLL for (int r = 0; r < R; r++)
    {
        const float sum = sub_group_reduce_add(acc[r]);
        if (lane == 0 && o + r < n_w)
            WRITE(row, o + r, sum);
    }
}
