/* Which experts a row goes to, the pairs of row and expert in groups of one
 * expert, and the weighted sum of what they gave.
 * The choice stays on the device; sums run in the canonical order and experts
 * are added in the order of their rank. */
#include "common.clh"

/* The n_used largest logits of a row, falling, lowest id first among equals (NaN counts as
 * smallest), and their softmax weights.  global (rows) */
__kernel void route(OUT(ids), OUT(w), IN(logits), const int n_used, const int n, const int renorm,
                    const int n_rows)
{
    int r = (int)get_global_id(0), kept = 0;
    if (r >= n_rows)
        return;
    const __global float *l = IN_PTR(float, logits) + (ulong)r * n;
    __global int *id = OUT_PTR(int, ids) + (ulong)r * n_used;
    __global float *o = OUT_PTR(float, w) + (ulong)r * n_used;
    for (int i = 0; i < n; i++) {
        int at = kept;
        float v = l[i];
        while (at > 0 && (v > l[id[at - 1]] || (isnan(l[id[at - 1]]) && !isnan(v))))
            at--;
        if (at == n_used)
            continue;
        kept += kept < n_used;
        for (int j = kept - 1; j > at; j--)
            id[j] = id[j - 1];
        id[at] = i;
    }
    float part[16], top = l[id[0]], sum = 0.0f;
    for (int e = 0; e < 16; e++)
        part[e] = 0.0f;
    for (int e = 0; e < n; e++)
        part[e & 15] += canon_exp(l[e] - top);
    float inv = canon_recip(tree16(vload16(0, part)));
    for (int j = 0; j < n_used; j++) {
        float v = canon_exp(l[id[j]] - top) * inv;
        o[j] = v;
        sum += v;
    }
    if (renorm) {
        inv = canon_recip(sum);
        for (int j = 0; j < n_used; j++)
            o[j] *= inv;
    }
}

/* out[r] = sum_j w[r][j] y[r * n_used + j], j rising.  global (n, rows) */
__kernel void mix_experts(OUT(out), IN(w), IN(y), const int n_used, const int n, const int n_rows)
{
    int i = (int)get_global_id(0), r = (int)get_global_id(1);
    if (i >= n || r >= n_rows)
        return;
    const __global float *a = IN_PTR(float, w) + (ulong)r * n_used,
                         *b = IN_PTR(float, y) + (ulong)r * n_used * n + i;
    float sum = a[0] * b[0];
    for (int j = 1; j < n_used; j++)
        sum = fma(a[j], b[(ulong)j * n], sum);
    OUT_PTR(float, out)[(ulong)r * n + i] = sum;
}

/* ---- pairs by expert: for products of many rows ---- */
/* counts[e] = pairs that go to expert e.  global (n_experts) */
__kernel void count_pairs(OUT(counts), IN(ids), const int n_pairs, const int n_experts)
{
    const int e = (int)get_global_id(0);
    int n = 0;
    if (e >= n_experts)
        return;
    for (int p = 0; p < n_pairs; p++)
        n += IN_PTR(int, ids)[p] == e;
    OUT_PTR(int, counts)[e] = n;
}

/* order: the pairs by expert, those of an expert rising; tiles: first and end in it of at most tile_rows pairs of one
 * expert, of tiles not used both 0.  global (n_experts) */
__kernel void group_pairs(OUT(order), OUT(tiles), IN(counts), IN(ids), const int n_pairs, const int n_experts,
                          const int tile_rows, const int n_tiles)
{
    const int e = (int)get_global_id(0);
    const __global int *n = IN_PTR(int, counts), *id = IN_PTR(int, ids);
    __global int *to = OUT_PTR(int, order), *t = OUT_PTR(int, tiles);
    int at = 0, tile = 0;
    if (e >= n_experts)
        return;
    for (int i = 0; i < e; i++) {
        at += n[i];
        tile += (n[i] + tile_rows - 1) / tile_rows;
    }
    const int end = at + n[e];
    for (int first = at; first < end; first += tile_rows, tile++) {
        t[2 * tile] = first;
        t[2 * tile + 1] = min(first + tile_rows, end);
    }
    for (int p = 0; p < n_pairs && at < end; p++)
        if (id[p] == e)
            to[at++] = p;
    if (e == n_experts - 1)
        for (; tile < n_tiles; tile++)
            t[2 * tile] = t[2 * tile + 1] = 0;
}
