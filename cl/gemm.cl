/* What goes with a matrix product that a library has made: nothing but the
 * bias, which libraries do not know.
 * Works on rows of f32; must not know formats of weights. */
#include "common.clh"

/* out[r][o] += bias[o].  global (n, rows) */
__kernel void add_bias(OUT(out), IN(bias), const int n, const int n_rows)
{
    const int o = (int)get_global_id(0), r = (int)get_global_id(1);
    if (o >= n || r >= n_rows)
        return;
    OUT_PTR(float, out)[(ulong)r * n + o] += IN_PTR(float, bias)[o];
}
