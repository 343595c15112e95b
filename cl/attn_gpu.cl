/* Attention, GPU family: a group of 64 lanes takes a tile of query rows (BT
 * neighbouring tokens x GB heads of one kv head) through chunks of 64 positions;
 * each key and value is loaded once for all rows of the tile.
 *
 * The order of sums is the canonical one of attn_cpu.cl, so that decode, prefill
 * and the cpu backend give the same bits: scores and the sums of e in 16 partial
 * sums, values one chain over rising positions, chunks joined in rising order.
 * Scores: 16 neighbouring lanes are the 16 partial sums of a product, four such
 * sets take NK keys each.  Values: a lane owns dimensions l, l + 64, ...
 * Built with -DHD= head_dim, -DG= query heads of a kv head, -DGB= heads of a
 * tile, -DBT= tokens of a tile, -DNK= keys of a set (a divisor of 16), -DKV_F16=.
 * -DSUB=1, never under --deterministic: a sub-group of whatever size is a set, and the device adds a product's
 * partial sums in its own order, in decode and prefill alike. */
#include "common.clh"
#include "index_gpu.clh"
#if SUB
#include "sub.clh"
#endif

#define CHUNK 64
#define WG 64
#define GROUP __attribute__((reqd_work_group_size(WG, 1, 1)))
#define NS ((HD + 15) / 16)
#define PART (16 * NS + 16)    /* floats of a chunk's result: o, then m, l */
#define BQ (BT * GB)           /* query rows of a tile */
#define PQ ((BQ + 3) / 4 * 4)  /* row pitch of the scores [position][row] */
#define HP (16 * NS + 4)       /* row pitch of q in local memory */
#define ND ((HD + WG - 1) / WG) /* dimensions of a lane */
#define SETS (WG / 16)
#define HEAD_BLOCKS ((G + GB - 1) / GB)

#if KV_F16
#define KV_TYPE half
#define kv_at(p, i) vload_half(i, p)
#else
#define KV_TYPE float
#define kv_at(p, i) (p)[i]
#endif

#define ARGS                                                                                                   \
    IN(q), IN(k), IN(v), IN(pos), IN(seq), IN(pages), const int n_kv, const int page_size, const int max_pages, \
        const int window, const float scale, const float cap, const float inv_cap

/* What the group keeps in local memory. */
struct tile {
    float4 scores[CHUNK * PQ / 4]; /* [position][row]: scores, then e^(s - m) */
    float q[BQ * HP];
    float red[SETS * 16 * 17]; /* 16 partial sums of 16 outputs a set, pitch 17 */
    float m[BQ], l[BQ], a[BQ], b[BQ]; /* of the chunk; factors of the old and the new part */
    int lo[BQ], hi[BQ];               /* positions of the chunk that a row sees */
    ulong at[CHUNK];                  /* element of the stored row; of one that no row sees 0: read and not used */
};

/* first position that a token at `last` sees */
static inline int first_seen(int last, int window)
{
    return window > 0 && last >= window ? last - window + 1 : 0;
}

/* Query rows tok .. of heads head0 .. of kv head h into local memory; rows past the end repeat the last. */
static inline void load_q(__local struct tile *t, const __global float *q, int tok, int n_rows, int head0, int n_heads, int lane)
{
    for (int i = lane; i < BQ * HP; i += WG) {
        const int row = i / HP, d = i % HP;
        const int r = min(tok + row / GB, n_rows - 1), head = head0 + min(row % GB, G - 1);
        t->q[i] = d < HD ? q[((ulong)r * n_heads + min(head, n_heads - 1)) * HD + d] : 0.0f;
    }
}

/* lo and hi of the tile's rows in the chunk at `start`, at[] of its positions; tokens outside t0 .. t1 see nothing. */
static inline void look_up(__local struct tile *t, const __global int *pos, const __global int *table, int tok, int t0, int t1,
                           int start, int window, int h, int n_kv, int page_size, int lane)
{
    int seen = 0;
    _Pragma("unroll 1") for (int b = 0; b < BT; b++)
    {
        const int mine = tok + b >= t0 && tok + b < t1, last = mine ? pos[tok + b] : -1;
        const int lo = mine ? max(first_seen(last, window) - start, 0) : 0;
        const int hi = mine ? min(last - start + 1, CHUNK) : 0;
        if (lane < GB) {
            t->lo[b * GB + lane] = lo;
            t->hi[b * GB + lane] = hi;
        }
        seen |= lane >= lo && lane < hi;
    }
    const int p = start + lane;
    t->at[lane] = seen ? (((ulong)table[p / page_size] * n_kv + h) * page_size + p % page_size) * HD : 0;
}

/* scores[j][row] = scale q[row] . k_j for the keys seen by a row */
#if SUB
static inline void products(__local struct tile *t, const __global KV_TYPE *k, float scale, int lane)
{
    const int l = (int)get_sub_group_local_id(), n_lanes = (int)get_sub_group_size();
    __local float *s = (__local float *)t->scores;

    for (int j0 = (int)get_sub_group_id() * NK; j0 < CHUNK; j0 += (int)get_num_sub_groups() * NK) {
        float acc[BQ * NK];
        const __global KV_TYPE *row[NK];
        UNROLL for (int i = 0; i < NK; i++)
        {
            row[i] = k + t->at[j0 + i];
        }
        UNROLL for (int i = 0; i < BQ * NK; i++) acc[i] = 0.0f;
        for (int d = l; d < HD; d += n_lanes) {
            float key[NK];
            UNROLL for (int i = 0; i < NK; i++) key[i] = kv_at(row[i], d);
            UNROLL for (int r = 0; r < BQ; r++)
            {
                const float x = t->q[r * HP + d];
                UNROLL for (int i = 0; i < NK; i++) acc[r * NK + i] = fma(key[i], x, acc[r * NK + i]);
            }
        }
        UNROLL for (int i = 0; i < BQ * NK; i++)
        {
            const float sum = sub_group_reduce_add(acc[i]);
            if (l == 0)
                s[(j0 + i % NK) * PQ + i / NK] = scale * sum;
        }
    }
}
#else
static inline void products(__local struct tile *t, const __global KV_TYPE *k, float scale, int lane)
{
    const int l = lane % 16, set = lane / 16;
    __local float *s = (__local float *)t->scores;

    for (int j0 = 0; j0 < CHUNK; j0 += SETS * NK) {
        float acc[BQ * NK];
        const __global KV_TYPE *row[NK];
        UNROLL for (int i = 0; i < NK; i++)
        {
            row[i] = k + t->at[j0 + key_number(lane, i, NK)];
        }
        UNROLL for (int i = 0; i < BQ * NK; i++) acc[i] = 0.0f;
        for (int d = key_dim(lane, 0); d < HD; d += 16) {
            float key[NK];
            UNROLL for (int i = 0; i < NK; i++) key[i] = kv_at(row[i], d);
            UNROLL for (int r = 0; r < BQ; r++)
            {
                const float x = t->q[r * HP + d];
                UNROLL for (int i = 0; i < NK; i++) acc[r * NK + i] = fma(key[i], x, acc[r * NK + i]);
            }
        }
        UNROLL for (int first = 0; first < BQ * NK; first += 16)
        {
            barrier(CLK_LOCAL_MEM_FENCE);
            UNROLL for (int i = 0; i < 16 && first + i < BQ * NK; i++)
                t->red[(set * 16 + i) * 17 + l] = acc[first + i];
            barrier(CLK_LOCAL_MEM_FENCE);
            if (first + l < BQ * NK)
                s[(j0 + set * NK + (first + l) % NK) * PQ + (first + l) / NK] = scale * tree_of(t->red + (set * 16 + l) * 17);
        }
    }
}

#endif

/* Scores to e^(s - m), with m and l of each row: lane l of a set takes positions l, l + 16, ... of the
 * set's rows; a row that sees nothing gets l = 0. */
static inline void softmax(__local struct tile *t, float cap, float inv_cap, int lane)
{
    const int l = lane % 16, set = lane / 16;
    __local float *s = (__local float *)t->scores;

    for (int r0 = 0; r0 < BQ; r0 += SETS) {
        const int r = r0 + set, here = r < BQ, lo = here ? t->lo[r] : 0, hi = here ? t->hi[r] : 0;
        float top = -INFINITY, sum = 0.0f;
        for (int j = l; j < CHUNK; j += 16)
            if (j >= lo && j < hi) {
                float a = s[j * PQ + r];
                if (cap > 0.0f) {
                    a = cap * canon_tanh(a * inv_cap);
                    s[j * PQ + r] = a;
                }
                top = a > top ? a : top;
            }
        barrier(CLK_LOCAL_MEM_FENCE); /* red is free */
        t->red[set * 17 + l] = top;
        barrier(CLK_LOCAL_MEM_FENCE);
        for (int i = 0; i < 16; i++) {
            const float a = t->red[set * 17 + i];
            top = a > top ? a : top;
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        for (int j = l; j < CHUNK && here; j += 16) {
            const float e = j >= lo && j < hi ? canon_exp(s[j * PQ + r] - top) : 0.0f;
            s[j * PQ + r] = e;
            sum += e;
        }
        t->red[set * 17 + l] = sum;
        barrier(CLK_LOCAL_MEM_FENCE);
        if (l == 0 && here) {
            t->m[r] = top;
            t->l[r] = tree_of(t->red + set * 17);
        }
    }
    barrier(CLK_LOCAL_MEM_FENCE);
}

/* o[row][i] = sum over the seen positions, rising, of e v for dimensions lane + 64 i */
static inline void values(float o[BQ][ND], __local struct tile *t, const __global KV_TYPE *v, int lane)
{
    int lo = CHUNK, hi = 0, inner_lo = 0, inner_hi = CHUNK; /* seen by one row; by all */
    UNROLL for (int r = 0; r < BQ; r++) UNROLL for (int i = 0; i < ND; i++) o[r][i] = 0.0f;
    for (int r = 0; r < BQ; r += GB) {
        if (t->lo[r] < t->hi[r]) {
            lo = min(lo, t->lo[r]);
            hi = max(hi, t->hi[r]);
        }
        inner_lo = max(inner_lo, t->lo[r]);
        inner_hi = min(inner_hi, t->hi[r]);
    }
    for (int j = lo; j < hi; j++)
    {
        const __global KV_TYPE *row = v + t->at[j];
        float x[ND], e[PQ];
        UNROLL for (int i = 0; i < ND; i++) x[i] = value_dim(lane, i, WG) < HD ? kv_at(row, value_dim(lane, i, WG)) : 0.0f;
        UNROLL for (int r = 0; r < PQ / 4; r++)
        {
            const float4 f = t->scores[j * (PQ / 4) + r];
            e[4 * r] = f.x;
            e[4 * r + 1] = f.y;
            e[4 * r + 2] = f.z;
            e[4 * r + 3] = f.w;
        }
        if (BT == 1 || (j >= inner_lo && j < inner_hi)) {
            UNROLL for (int r = 0; r < BQ; r++) UNROLL for (int i = 0; i < ND; i++) o[r][i] = fma(e[r], x[i], o[r][i]);
        } else { /* 0 times a value that a row does not see may be no 0 */
            UNROLL for (int r = 0; r < BQ; r++)
            {
                const int sees = j >= t->lo[r] && j < t->hi[r];
                UNROLL for (int i = 0; i < ND; i++) o[r][i] = sees ? fma(e[r], x[i], o[r][i]) : o[r][i];
            }
        }
    }
}

#define TILE_OF                                                                                                \
    __local struct tile t;                                                                                     \
    const int lane = (int)get_local_id(0);                                                                     \
    const int h = group_at(1) / HEAD_BLOCKS, g0 = group_at(1) % HEAD_BLOCKS * GB;                              \
    const int tok = group_at(2) * BT, n_heads = n_kv * G;                                                      \
    const __global int *at_pos = IN_PTR(int, pos), *at_seq = IN_PTR(int, seq);                                 \
    const __global KV_TYPE *keys = IN_PTR(KV_TYPE, k), *vals = IN_PTR(KV_TYPE, v);                             \
    float o[BQ][ND];                                                                                           \
    load_q(&t, IN_PTR(float, q), tok, n_rows, h * G + g0, n_heads, lane);

/* Chunks i, i + n_split, ... of one token (BT = 1), each result to parts[row][head][chunk].
 * global (n_split * WG, n_kv * HEAD_BLOCKS, n_rows), local (WG, 1, 1) */
__kernel GROUP MOST_REGISTERS void attn_chunks(OUT(parts), ARGS, const int n_split, const int n_chunks, const int n_rows)
{
    TILE_OF
    const int last = at_pos[tok], from = first_seen(last, window);
    const __global int *table = IN_PTR(int, pages) + (ulong)at_seq[tok] * max_pages;

    for (int c = from / CHUNK + (int)get_group_id(0); c <= last / CHUNK; c += n_split) {
        barrier(CLK_LOCAL_MEM_FENCE);
        look_up(&t, at_pos, table, tok, tok, tok + 1, c * CHUNK, window, h, n_kv, page_size, lane);
        barrier(CLK_LOCAL_MEM_FENCE);
        products(&t, keys, scale, lane);
        barrier(CLK_LOCAL_MEM_FENCE);
        softmax(&t, cap, inv_cap, lane);
        values(o, &t, vals, lane);
        for (int g = 0; g < GB; g++) {
            if (g0 + g >= G)
                break;
            __global float *to = OUT_PTR(float, parts) + (((ulong)tok * n_heads + h * G + g0 + g) * n_chunks + c) * PART;
            if (lane == 0) {
                to[16 * NS] = t.m[g];
                to[16 * NS + 1] = t.l[g];
            }
        }
        UNROLL for (int g = 0; g < GB; g++) UNROLL for (int i = 0; i < ND; i++)
            if (g0 + g < G && lane + i * WG < HD)
                OUT_PTR(float, parts)
                [(((ulong)tok * n_heads + h * G + g0 + g) * n_chunks + c) * PART + lane + i * WG] = o[g][i];
    }
}

/* M' = max(M, m), a = e^(M - M'), b = e^(m - M'), L = fma(L, a, l b), O = fma(O, a, o b); the first
 * chunk starts them; out = O (1 / L).  global (ceil(HD / WG) * WG, n_heads, rows), local (WG, 1, 1) */
__kernel void attn_join(OUT(out), IN(parts), IN(pos), const int window, const int n_chunks, const int n_heads, const int n_rows)
{
    const int d = (int)get_global_id(0), head = (int)get_global_id(1), r = (int)get_global_id(2);
    if (d >= HD || head >= n_heads || r >= n_rows)
        return;
    const int last = IN_PTR(int, pos)[r], first = first_seen(last, window) / CHUNK;
    const ulong at = (ulong)r * n_heads + head;
    const __global float *part = IN_PTR(float, parts) + (at * n_chunks + first) * PART;
    float M = part[16 * NS], L = part[16 * NS + 1], O = part[d];
    for (int c = first + 1; c <= last / CHUNK; c++) {
        part += PART;
        const float m = part[16 * NS], top = M > m ? M : m, a = canon_exp(M - top), b = canon_exp(m - top);
        L = fma(L, a, part[16 * NS + 1] * b);
        O = fma(O, a, part[d] * b);
        M = top;
    }
    OUT_PTR(float, out)[at * HD + d] = O * canon_recip(L);
}

/* A tile of tokens from the first chunk to the last.  Neighbours of other sequences in the tile come one
 * sequence after the other.  global (WG, n_kv * HEAD_BLOCKS, ceil(n_rows / BT)), local (WG, 1, 1) */
__kernel GROUP MOST_REGISTERS void attn_tiles(OUT(out), ARGS, const int n_rows)
{
    __local float M[BQ], L[BQ];
    __local int begun[BQ];
    TILE_OF
    float O[BQ][ND];
    UNROLL for (int r = 0; r < BQ; r++) UNROLL for (int i = 0; i < ND; i++) O[r][i] = 0.0f;
    if (lane < BQ)
        begun[lane] = 0;
    for (int t0 = tok, t1; t0 < min(tok + BT, n_rows); t0 = t1) {
        const int s = at_seq[t0];
        int last = 0, from = INT_MAX;
        for (t1 = t0; t1 < min(tok + BT, n_rows) && at_seq[t1] == s; t1++) {
            last = max(last, at_pos[t1]);
            from = min(from, first_seen(at_pos[t1], window));
        }
        for (int c = from / CHUNK; c <= last / CHUNK; c++) {
            barrier(CLK_LOCAL_MEM_FENCE);
            look_up(&t, at_pos, IN_PTR(int, pages) + (ulong)s * max_pages, tok, t0, t1, c * CHUNK, window, h, n_kv, page_size,
                    lane);
            barrier(CLK_LOCAL_MEM_FENCE);
            products(&t, keys, scale, lane);
            barrier(CLK_LOCAL_MEM_FENCE);
            softmax(&t, cap, inv_cap, lane);
            if (lane < BQ) { /* a row that sees nothing here keeps what it has */
                const int sees = t.lo[lane] < t.hi[lane], old = begun[lane];
                const float m = t.m[lane], top = old && (!sees || M[lane] > m) ? M[lane] : m;
                const float e = old ? canon_exp(M[lane] - top) : 0.0f, f = canon_exp(m - top);
                t.a[lane] = e;
                t.b[lane] = f;
                L[lane] = !sees ? L[lane] : old ? fma(L[lane], e, t.l[lane] * f) : t.l[lane];
                M[lane] = top;
            }
            barrier(CLK_LOCAL_MEM_FENCE);
            values(o, &t, vals, lane);
            UNROLL for (int r = 0; r < BQ; r++)
            {
                const float a = t.a[r], b = t.b[r];
                const int sees = t.lo[r] < t.hi[r], old = begun[r];
                UNROLL for (int i = 0; i < ND; i++)
                    O[r][i] = !sees ? O[r][i] : old ? fma(O[r][i], a, o[r][i] * b) : o[r][i];
            }
            barrier(CLK_LOCAL_MEM_FENCE);
            if (lane < BQ)
                begun[lane] |= t.lo[lane] < t.hi[lane];
        }
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    UNROLL for (int r = 0; r < BQ; r++)
    {
        const int row = tok + r / GB, head = h * G + g0 + r % GB;
        if (row < n_rows && g0 + r % GB < G) {
            const float inv = canon_recip(L[r]);
            UNROLL for (int i = 0; i < ND; i++)
                if (lane + i * WG < HD)
                    OUT_PTR(float, out)[((ulong)row * n_heads + head) * HD + lane + i * WG] = O[r][i] * inv;
        }
    }
}
