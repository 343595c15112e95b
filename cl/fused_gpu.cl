/* One row of x by several matrices in one launch, GPU family: linear_row's sums
 * (row_gpu.clh), for q, k and v, and for gate with up.
 *
 * Not in the canonical order; built as linear_gpu.cl is. */
#include "common.clh"
#include "row_gpu.clh"

/* t[r * WG] = the sum of row o + r of the matrix at `from` */
#define ROWS_TO(t, from, o)                                                                                    \
    {                                                                                                          \
        BEGIN_ROWS(ws, R, from, o, acc, R)                                                                     \
        row_sums(acc, ws, IN_PTR(float, x), lane, WG, k);                                                      \
        UNROLL for (int r = 0; r < R; r++) (t)[r * WG + lane] = acc[r];                                        \
    }

/* The matrices one after the other, R rows a group; bit i of biases: matrix i has one.
 * global ((ceil(n_a / R) + ceil(n_b / R) + ceil(n_c / R)) * WG), local (WG) */
__kernel GROUP(WG) MOST_REGISTERS void qkv_row(OUT(a), OUT(b), OUT(c), IN(x), IN(wa), IN(wb), IN(wc), IN(ba), IN(bb),
                                               IN(bc), const int biases, const int k, const int n_a, const int n_b,
                                               const int n_c)
{
    __local float t[R * WG];
    const int lane = (int)get_local_id(0), g = (int)get_group_id(0);
    const int to_b = (n_a + R - 1) / R, to_c = to_b + (n_b + R - 1) / R, i = (g >= to_b) + (g >= to_c);
    const int n_w = i == 0 ? n_a : i == 1 ? n_b : n_c, o = (g - (i == 0 ? 0 : i == 1 ? to_b : to_c)) * R;
    ROWS_TO(t, i == 0 ? IN_PTR(uchar, wa) : i == 1 ? IN_PTR(uchar, wb) : IN_PTR(uchar, wc), o)
    tree_wg(t, R, lane);
    if (lane < R && o + lane < n_w)
        end_at((i == 0 ? OUT_PTR(float, a) : i == 1 ? OUT_PTR(float, b) : OUT_PTR(float, c)) + o + lane, t[lane * WG],
               biases >> i & 1 ? END_BIAS : 0,
               (i == 0 ? IN_PTR(float, ba) : i == 1 ? IN_PTR(float, bb) : IN_PTR(float, bc)) + o + lane);
}

/* out[o] = act(wg[o] . x) * (wu[o] . x); act: 0 silu, 1 gelu_tanh, 2 gelu_erf.
 * global (ceil(n_w / R) * WG), local (WG) */
__kernel GROUP(WG) MOST_REGISTERS void gate_up_row(OUT(out), IN(x), IN(wg), IN(wu), const int act, const int k,
                                                   const int n_w)
{
    __local float t[2 * R * WG];
    const int lane = (int)get_local_id(0), o = (int)get_group_id(0) * R;
    ROWS_TO(t, IN_PTR(uchar, wg), o)
    ROWS_TO(t + R * WG, IN_PTR(uchar, wu), o)
    tree_wg(t, 2 * R, lane);
    if (lane < R && o + lane < n_w) {
        const float gate = t[lane * WG];
        const float a = act == 0 ? canon_silu(gate) : act == 1 ? canon_gelu_tanh(gate) : canon_gelu_erf(gate);
        OUT_PTR(float, out)[o + lane] = a * t[(R + lane) * WG];
    }
}
