/* Matrix products, GPU family: a group of lanes for some weight rows, loads of
 * 16 bytes a lane, neighbouring lanes neighbouring bytes.
 *
 * linear_row, linear_few4, linear_few8: lanes share the units of R weight rows,
 * which are read once for up to MB rows of x; linear_tile: a tile in local
 * memory.  linear_canon1, 4, 16: sums in the canonical order, the same bits for
 * any number of rows and as the cpu backend.  experts_row, experts_canon: one
 * row by the matrix of its expert.  Formats and build options: quant_gpu.clh.  Barriers stand in uniform control
 * flow; rows past the end are read again and not written. */
#include "common.clh"
#include "row_gpu.clh"
#define X_ROW(r) r
#include "tile_gpu.clh"

/* ---- one row of x ---- */
/* global (ceil(n_w / R) * WG, n_rows), local (WG, 1) */
__kernel GROUP(WG) MOST_REGISTERS void linear_row(LINEAR_ARGS)
{
    __local float t[R * WG];
    const int lane = (int)get_local_id(0), o = (int)get_group_id(0) * R, row = group_at(1);
    BEGIN_ROWS(ws, R, IN_PTR(uchar, w), o, acc, R)
    row_sums(acc, ws, IN_PTR(float, x) + (ulong)row * k, lane, WG, k);
    UNROLL for (int r = 0; r < R; r++) t[r * WG + lane] = acc[r];
    tree_wg(t, R, lane);
    if (lane < R && o + lane < n_w)
        WRITE(row, o + lane, t[lane * WG]);
}

/* ---- 2 .. 8 rows of x: weights once for MB of them ---- */
/* not unrolled: else all loads of x come first and take the registers */
#define ROLLED _Pragma("unroll 1")
#define LINEAR_FEW(name, NR, MB)                                                                               \
    __kernel GROUP(WG) MOST_REGISTERS void name(LINEAR_ARGS)                                                   \
    {                                                                                                          \
        __local float t[NR * MB * WG];                                                                         \
        const int lane = (int)get_local_id(0), o = (int)get_group_id(0) * NR, m = group_at(1) * MB;            \
        BEGIN_ROWS(ws, NR, IN_PTR(uchar, w), o, acc, NR * MB)                                                  \
        for (int u = lane; u < n_units(k); u += WG) {                                                          \
            unit v[NR];                                                                                        \
            UNROLL for (int r = 0; r < NR; r++) v[r] = unit_load(ws[r], u, k);                                 \
            ROLLED for (int h = 0; h < HALF_UNITS; h++)                                                        \
            {                                                                                                  \
                float2 s[NR];                                                                                  \
                UNROLL for (int r = 0; r < NR; r++) s[r] = unit_scale(ws[r], u, h, k);                         \
                ROLLED for (int j = h * (UE / 4 / HALF_UNITS); j < (h + 1) * (UE / 4 / HALF_UNITS); j++)       \
                {                                                                                              \
                    float4 vs[NR];                                                                             \
                    UNROLL for (int r = 0; r < NR; r++) vs[r] = scaled(unit_raw(v[r], j), s[r]);               \
                    UNROLL for (int b = 0; b < MB; b++)                                                        \
                    {                                                                                          \
                        const float4 xs =                                                                      \
                            quad(IN_PTR(float, x) + (ulong)min(m + b, n_rows - 1) * k, unit_k(u, j), k);       \
                        UNROLL for (int r = 0; r < NR; r++) acc[r * MB + b] = dot4(vs[r], xs, acc[r * MB + b]);\
                    }                                                                                          \
                }                                                                                              \
            }                                                                                                  \
        }                                                                                                      \
        UNROLL for (int r = 0; r < NR; r++) UNROLL for (int b = 0; b < MB; b++)                                \
            t[(b * NR + r) * WG + lane] = acc[r * MB + b];                                                     \
        tree_wg(t, NR * MB, lane);                                                                             \
        for (int i = lane; i < NR * MB; i += WG)                                                               \
            if (m + i / NR < n_rows && o + i % NR < n_w)                                                       \
                WRITE(m + i / NR, o + i % NR, t[i * WG]);                                                      \
    }

/* global (ceil(n_w / NR) * WG, ceil(n_rows / MB)), local (WG, 1) */
#if UNITS
LINEAR_FEW(linear_few4, 4, 4)
#else
LINEAR_FEW(linear_few4, 2, 4)
#endif
LINEAR_FEW(linear_few8, 2, 8)

/* ---- many rows: TM x 64 outputs, 8 x 4 a lane, one chain along k ---- */
#ifndef TM
#define TM 64 /* 32: for devices with groups of at most 64 */
#endif
#define TN 64
#define KS 16
#define LANES (TM / 8 * (TN / 4))
#define TX(r, kk) ((kk) * (TM + 4) + (r))
#define TW(r, kk) ((kk) * (TN + 4) + (r))

/* global (ceil(n_w / TN) * LANES, ceil(n_rows / TM)), local (LANES, 1) */
__kernel GROUP(LANES) MOST_REGISTERS void linear_tile(LINEAR_ARGS)
{
    __local float4 xs4[KS * (TM + 4) / 4], ws4[KS * (TN + 4) / 4];
    __local float *xs = (__local float *)xs4, *ws = (__local float *)ws4;
    const int lane = (int)get_local_id(0), lx = lane % (TN / 4), ly = lane / (TN / 4);
    const int o = (int)get_group_id(0) * TN, m = group_at(1) * TM;
    const __global float *xs_mem = IN_PTR(float, x);
    ROW ws_mem = IN_PTR(uchar, w);
    float4 acc[8];
    UNROLL for (int i = 0; i < 8; i++) acc[i] = 0.0f;
    STAGE_REGS(TM, TN, KS, LANES)
    FETCH_AHEAD(0, TM, TN, KS, LANES)
    for (int k0 = 0; k0 < k; k0 += KS) {
        FETCH_NOW(k0, TM, TN, KS, LANES)
        barrier(CLK_LOCAL_MEM_FENCE);
        STORE(TM, TN, KS, LANES, TX, TW)
        barrier(CLK_LOCAL_MEM_FENCE);
        if (k0 + KS < k) {
            FETCH_AHEAD(k0 + KS, TM, TN, KS, LANES)
        }
        _Pragma("unroll 4") for (int i = 0; i < KS; i++)
        {
            const float4 b = ws4[i * ((TN + 4) / 4) + lx];
            const float4 a = xs4[i * ((TM + 4) / 4) + ly], c = xs4[i * ((TM + 4) / 4) + TM / 8 + ly];
            acc[0] = fma((float4)a.x, b, acc[0]);
            acc[1] = fma((float4)a.y, b, acc[1]);
            acc[2] = fma((float4)a.z, b, acc[2]);
            acc[3] = fma((float4)a.w, b, acc[3]);
            acc[4] = fma((float4)c.x, b, acc[4]);
            acc[5] = fma((float4)c.y, b, acc[5]);
            acc[6] = fma((float4)c.z, b, acc[6]);
            acc[7] = fma((float4)c.w, b, acc[7]);
        }
    }
    UNROLL for (int i = 0; i < 8; i++)
    {
        const int row = m + (i < 4 ? 0 : TM / 2) + 4 * ly + (i & 3);
        UNROLL for (int j = 0; j < 4; j++)
            if (row < n_rows && o + 4 * lx + j < n_w)
                WRITE(row, o + 4 * lx + j, PART_OF(acc[i], j));
    }
}

/* ---- the canonical order ---- */
#define LINEAR_CANON(name, NW, NX, SW, SX, KC)                                                                 \
    __kernel GROUP(WG) MOST_REGISTERS void name(LINEAR_ARGS)                                                                  \
    {                                                                                                          \
        const int lane = (int)get_local_id(0);                                                                 \
        const int o = (int)get_group_id(0) * (SW * NW), m = group_at(1) * (SX * NX);                           \
        const __global float *xs_mem = IN_PTR(float, x);                                                       \
        ROW ws_mem = IN_PTR(uchar, w);                                                                   \
        CANON_BODY(NW, NX, SW, SX, KC, WRITE)                                                                  \
    }

/* global (ceil(n_w / (SW NW)) * WG, ceil(n_rows / (SX NX))), local (WG, 1) */
LINEAR_CANON(linear_canon1, 2, 1, 4, 1, 128)
LINEAR_CANON(linear_canon4, 4, 4, 4, 1, 64)
#if UNITS
LINEAR_CANON(linear_canon16, 8, 8, 2, 2, 32)
#endif

/* ---- experts: y[p] = experts[ids[p]] . x[p / per_row] for the pairs p whose expert lies in this memory ---- */
#define EXPERT_ARGS                                                                                            \
    OUT(y), IN(x), IN(w), IN(offsets), IN(ids), const int n_k, const int n_w, const int n_pairs, const int per_row
#define EXPERT_WRITE(row, col, v)                                                                              \
    if (here)                                                                                                  \
    OUT_PTR(float, y)[(ulong)p * n_w + (col)] = (v)
/* the group's pair; nothing is read where its expert is elsewhere: no values, no early return before barriers */
#define EXPERT_OF_PAIR                                                                                         \
    const int lane = (int)get_local_id(0), p = group_at(1);                                                    \
    const ulong place = IN_PTR(ulong, offsets)[IN_PTR(int, ids)[p]];                                              \
    const int here = place != ~(ulong)0, k = here ? n_k : 0;                                                      \
    const __global float *xs_mem = IN_PTR(float, x) + (ulong)(p / per_row) * n_k;                              \
    ROW ws_mem = w_mem + (here ? place : 0);

/* global (ceil(n_w / R) * WG, pairs), local (WG, 1) */
__kernel GROUP(WG) MOST_REGISTERS void experts_row(EXPERT_ARGS)
{
    __local float t[R * WG];
    EXPERT_OF_PAIR
    const int o = (int)get_group_id(0) * R;
    BEGIN_ROWS(ws, R, ws_mem, o, acc, R)
    row_sums(acc, ws, xs_mem, lane, WG, k);
    UNROLL for (int r = 0; r < R; r++) t[r * WG + lane] = acc[r];
    tree_wg(t, R, lane);
    if (lane < R && o + lane < n_w)
        EXPERT_WRITE(0, o + lane, t[lane * WG]);
}

/* global (ceil(n_w / 8) * WG, pairs), local (WG, 1) */
__kernel GROUP(WG) MOST_REGISTERS void experts_canon(EXPERT_ARGS)
{
    EXPERT_OF_PAIR
    const int o = (int)get_group_id(0) * 8, m = 0, n_rows = 1;
    CANON_BODY(2, 1, 4, 1, 128, EXPERT_WRITE)
}
