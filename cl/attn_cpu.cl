/* Attention, CPU family: one work-item takes all query heads of a kv head, so
 * that each key and value is read once, and of many rows some neighbours.
 *
 * Positions go in chunks of 64 at absolute positions 0, 64, 128, ...; a chunk
 * gives (m, l, o) with its own maximum and chunks are joined in rising order by
 * one formula, whether the same work-item does it (attn_rows) or a second
 * kernel (attn_chunks, attn_join): the same bits.
 * Built with -DHD= head_dim, -DG= query heads of a kv head, -DKV_F16=, and the
 * tile sizes -DPB= positions of scores (at most 16), -DDB= vectors of values at
 * once (a divisor of NS); attn_rows also with -DT= rows that share what all of
 * them see, and their -DTPB=, -DTDB=. */
#include "common.clh"

#define CHUNK 64
#define NS ((HD + 15) / 16) /* vectors of a head */
#define PART (16 * NS + 16) /* floats of a chunk's result: o, then m, l */

#if KV_F16
#define KV_SIZE 2
static inline float16 kv16(const __global uchar *row, int d)
{
    return half16_at(row + 2 * d);
}
static inline float kv1(const __global uchar *row, int d)
{
    return vload_half(d, (const __global half *)row);
}
#else
#define KV_SIZE 4
static inline float16 kv16(const __global uchar *row, int d)
{
    return vload16(0, (const __global float *)row + d);
}
static inline float kv1(const __global uchar *row, int d)
{
    return ((const __global float *)row)[d];
}
#endif

/* vector s of a stored row, 0 behind its end */
static inline float16 kv_vector(const __global uchar *row, int s)
{
#if HD % 16 != 0
    if (s == NS - 1) {
        float v[16];
        for (int i = 0; i < 16; i++)
            v[i] = i < HD % 16 ? kv1(row, 16 * s + i) : 0.0f;
        return vload16(0, v);
    }
#endif
    return kv16(row, 16 * s);
}

/* What one row asks: where it stands, what it sees, where its sequence's pages are. */
#define ARGS                                                                                                 \
    IN(q), IN(k), IN(v), IN(pos), IN(seq), IN(pages), const int n_kv, const int page_size,                   \
        const int max_pages, const int window, const float scale, const float cap, const float inv_cap

#define ROW_OF(r)                                                                                     \
    int last = IN_PTR(int, pos)[r];                                                                   \
    int from = window > 0 && last >= window ? last - window + 1 : 0;                                  \
    const __global int *table = IN_PTR(int, pages) + (ulong)IN_PTR(int, seq)[r] * max_pages;

/* bytes of the stored rows of positions lo .. hi of a chunk */
static inline void find_rows(ulong *at, const __global int *table, int start, int lo, int hi, int h, int n_kv,
                             int page_size)
{
    int page = (start + lo) / page_size, in_page = (start + lo) % page_size;
    for (int j = lo; j < hi; j++) {
        at[j] = (((ulong)table[page] * n_kv + h) * page_size + in_page) * (HD * KV_SIZE);
        if (++in_page == page_size) {
            in_page = 0;
            page++;
        }
    }
}

/* lane i = tree16(a[i]): the same additions, sixteen at a time */
static inline float16 trees(const float16 *a)
{
    float16 b[8], c[4], d[2], e;
    UNROLL for (int i = 0; i < 8; i++) b[i] =
        (float16)(a[2 * i].lo, a[2 * i + 1].lo) + (float16)(a[2 * i].hi, a[2 * i + 1].hi);
    UNROLL for (int i = 0; i < 4; i++) {
        float16 u = b[2 * i], v = b[2 * i + 1];
        c[i] = (float16)(u.s0123, u.s89ab, v.s0123, v.s89ab) + (float16)(u.s4567, u.scdef, v.s4567, v.scdef);
    }
    UNROLL for (int i = 0; i < 2; i++) {
        float16 u = c[2 * i], v = c[2 * i + 1];
        d[i] = (float16)(u.s01, v.s01, u.s45, v.s45, u.s89, v.s89, u.scd, v.scd) +
               (float16)(u.s23, v.s23, u.s67, v.s67, u.sab, v.sab, u.sef, v.sef);
    }
    e = (float16)(d[0].s02, d[1].s02, d[0].s46, d[1].s46, d[0].s8a, d[1].s8a, d[0].sce, d[1].sce) +
        (float16)(d[0].s13, d[1].s13, d[0].s57, d[1].s57, d[0].s9b, d[1].s9b, d[0].sdf, d[1].sdf);
    return e.s048c159d26ae37bf;
}

/* s[g][j] = scale * (q[g] . k_j) for NQ queries and the positions lo .. hi, POS at once; what follows hi is
 * overwritten */
#define SCORES(name, NQ, POS)                                                                         \
    static inline void name(float (*s)[CHUNK + 16], const __global float *const *q,                   \
                            const __global uchar *k, const ulong *at, int lo, int hi, float scale)    \
    {                                                                                                 \
        for (int j = lo; j < hi; j += POS) {                                                          \
            float16 acc[POS][NQ];                                                                     \
            const __global uchar *row[POS];                                                           \
            UNROLL for (int i = 0; i < POS; i++)                                                      \
            {                                                                                         \
                row[i] = k + at[min(j + i, hi - 1)];                                                  \
                UNROLL for (int g = 0; g < NQ; g++) acc[i][g] = 0.0f;                                 \
            }                                                                                         \
            for (int t = 0; t < HD / 16; t++) {                                                       \
                float16 ks[POS];                                                                      \
                UNROLL for (int i = 0; i < POS; i++) ks[i] = kv16(row[i], 16 * t);                    \
                UNROLL for (int g = 0; g < NQ; g++)                                                   \
                {                                                                                     \
                    float16 x = vload16(0, q[g] + 16 * t);                                            \
                    UNROLL for (int i = 0; i < POS; i++) acc[i][g] = fma(ks[i], x, acc[i][g]);        \
                }                                                                                     \
            }                                                                                         \
            if (HD % 16 != 0)                                                                         \
                UNROLL for (int g = 0; g < NQ; g++)                                                   \
                {                                                                                     \
                    float16 x = part_f32(q[g] + 16 * (NS - 1), HD % 16);                              \
                    UNROLL for (int i = 0; i < POS; i++) acc[i][g] =                                  \
                        fma_part(kv_vector(row[i], NS - 1), x, acc[i][g], HD % 16);                   \
                }                                                                                     \
            if (POS * (NQ) <= 16) {                                                                     \
                float16 flat[16];                                                                     \
                float t[16];                                                                          \
                UNROLL for (int i = 0; i < 16; i++) flat[i] =                                         \
                    i < POS * (NQ) ? acc[i % POS][i / POS % (NQ)] : (float16)0.0f;                        \
                vstore16(scale * trees(flat), 0, t);                                                  \
                UNROLL for (int g = 0; g < NQ; g++) UNROLL for (int i = 0; i < POS; i++)              \
                    s[g][j + i] = t[(g * POS + i) % 16];                                              \
            } else                                                                                    \
                UNROLL for (int i = 0; i < POS; i++) UNROLL for (int g = 0; g < NQ; g++)              \
                    s[g][j + i] = scale * tree16(acc[i][g]);                                          \
        }                                                                                             \
    }
SCORES(scores, G, PB)

/* s -> cap(s) -> e^(s - m), 0 outside of lo .. hi; gives m and the sum l */
static inline void softmax(float *s, int lo, int hi, float cap, float inv_cap, float *m, float *l)
{
    float16 top = -INFINITY, acc = 0.0f;
    for (int j = 0; j < CHUNK; j += 16) {
        float16 a = vload16(0, s + j);
        if (cap > 0.0f) {
            a = cap * canon16_tanh(a * inv_cap);
            vstore16(a, 0, s + j);
        }
        top = select(top, a, (a > top) & lanes(lo - j, hi - j));
    }
    float8 a8 = top.lo > top.hi ? top.lo : top.hi;
    float4 a4 = a8.lo > a8.hi ? a8.lo : a8.hi;
    float2 a2 = a4.lo > a4.hi ? a4.lo : a4.hi;
    float max = a2.x > a2.y ? a2.x : a2.y;
    for (int j = 0; j < CHUNK; j += 16) {
        float16 e = select((float16)0.0f, canon16_exp(vload16(0, s + j) - max), lanes(lo - j, hi - j));
        vstore16(e, 0, s + j);
        acc += e;
    }
    *m = max;
    *l = tree16(acc);
}

/* acc[b][g] = sum over the positions of s[g][j] v_j, vectors d .. d + DIMS of the head; EACH is done at each */
#define VALUES(NQ, DIMS, d, EACH)                                                                     \
    float16 acc[DIMS][NQ];                                                                            \
    UNROLL for (int b = 0; b < DIMS; b++) UNROLL for (int g = 0; g < NQ; g++) acc[b][g] = 0.0f;       \
    for (int j = lo; j < hi; j++) {                                                                   \
        const __global uchar *row = values + at[j];                                                   \
        EACH                                                                                          \
        UNROLL for (int b = 0; b < DIMS; b++)                                                         \
        {                                                                                             \
            float16 x = kv_vector(row, (d) + b);                                                      \
            UNROLL for (int g = 0; g < NQ; g++) acc[b][g] = fma((float16)s[g][j], x, acc[b][g]);      \
        }                                                                                             \
    }

/* the lines of a key and of a value, once, with the first vectors */
#define FETCH_ROW(d, at)                                                                              \
    if ((d) == 0)                                                                                     \
        UNROLL for (int u = 0; u < HD * KV_SIZE; u += 64)                                             \
        {                                                                                             \
            FETCH(IN_PTR(uchar, k) + (at) + u);                                                       \
            FETCH(values + (at) + u);                                                                 \
        }

/* s, m, l of the positions lo .. hi of the chunk at `start`, by SCORE, for NQ queries */
#define CHUNK_OF(NQ, SCORE, q, start)                                                                 \
    float s[NQ][CHUNK + 16], m[NQ], l[NQ];                                                            \
    ulong at[CHUNK];                                                                                  \
    for (int g = 0; g < NQ; g++)                                                                      \
        for (int j = 0; j < CHUNK; j += 16)                                                           \
            vstore16((float16)0.0f, 0, &s[g][j]);                                                     \
    find_rows(at, table, start, lo, hi, h, n_kv, page_size);                                          \
    SCORE(s, q, IN_PTR(uchar, k), at, lo, hi, scale);                                                 \
    for (int g = 0; g < NQ; g++)                                                                      \
        softmax(s[g], lo, hi, cap, inv_cap, &m[g], &l[g]);

/* Chunks i, i + n_split, ... of those that row r sees, for kv head h; the result of the c-th that it sees to
 * parts[r][head][c], c < n_chunks.
 * global (n_split, n_kv, rows) */
__kernel void attn_chunks(OUT(parts), ARGS, const int n_split, const int n_chunks, const int n_rows)
{
    int h = (int)get_global_id(1), r = (int)get_global_id(2);
    if ((int)get_global_id(0) >= n_split || h >= n_kv || r >= n_rows)
        return;
    ROW_OF(r)
    ulong head = ((ulong)r * n_kv + h) * G;
    const __global float *query[G];
    const __global uchar *values = IN_PTR(uchar, v);
    for (int g = 0; g < G; g++)
        query[g] = IN_PTR(float, q) + (head + g) * HD;
    for (int c = from / CHUNK + (int)get_global_id(0); c <= last / CHUNK; c += n_split) {
        int lo = max(from - c * CHUNK, 0), hi = min(last - c * CHUNK + 1, CHUNK);
        CHUNK_OF(G, scores, query, c * CHUNK)
        ulong next[1] = {at[lo]}; /* the next chunk, most likely the next work-item's */
        if ((c + 1) * CHUNK <= last)
            find_rows(next, table, (c + 1) * CHUNK, 0, 1, h, n_kv, page_size);
        __global float *o = OUT_PTR(float, parts) + (head * n_chunks + (c - from / CHUNK)) * PART;
        for (int d = 0; d < NS; d += DB) {
            VALUES(G, DB, d, FETCH_ROW(d, next[0] + (ulong)j * (HD * KV_SIZE)))
            UNROLL for (int b = 0; b < DB; b++) UNROLL for (int g = 0; g < G; g++)
                vstore16(acc[b][g], 0, o + (ulong)g * n_chunks * PART + 16 * (d + b));
        }
        for (int g = 0; g < G; g++) {
            o[(ulong)g * n_chunks * PART + 16 * NS] = m[g];
            o[(ulong)g * n_chunks * PART + 16 * NS + 1] = l[g];
        }
    }
}

static inline void put_vector(float16 a, __global float *out, int s)
{
#if HD % 16 != 0
    if (s == NS - 1) {
        put_part(a, out + 16 * s, HD % 16);
        return;
    }
#endif
    vstore16(a, 0, out + 16 * s);
}

/* M' = max(M, m), a = e^(M - M'), b = e^(m - M'), L = fma(L, a, l b), O = fma(O, a, o b); the first
 * chunk starts them; out = O (1 / L).  global (NS, n_heads, rows) */
__kernel void attn_join(OUT(out), IN(parts), IN(pos), const int window, const int n_chunks, const int n_heads,
                        const int n_rows)
{
    int d = (int)get_global_id(0), head = (int)get_global_id(1), r = (int)get_global_id(2);
    if (d >= NS || head >= n_heads || r >= n_rows)
        return;
    int last = IN_PTR(int, pos)[r], from = window > 0 && last >= window ? last - window + 1 : 0;
    ulong at = (ulong)r * n_heads + head;
    const __global float *p = IN_PTR(float, parts) + at * n_chunks * PART;
    float M = 0.0f, L = 0.0f;
    float16 O = 0.0f;
    for (int c = 0; c <= last / CHUNK - from / CHUNK; c++) {
        const __global float *part = p + (ulong)c * PART;
        float16 o = vload16(0, part + 16 * d);
        float m = part[16 * NS], l = part[16 * NS + 1];
        if (c == 0) {
            M = m;
            L = l;
            O = o;
            continue;
        }
        float top = M > m ? M : m, a = canon_exp(M - top), b = canon_exp(m - top);
        L = fma(L, a, l * b);
        O = fma(O, (float16)a, o * b);
        M = top;
    }
    put_vector(O * canon_recip(L), OUT_PTR(float, out) + at * HD, d);
}

#ifdef T
SCORES(scores_of_rows, T * G, TPB)

/* The chunk c, as far as lo .. hi, into the sums of NQ queries from q0 on. */
#define JOIN_CHUNK(NQ, SCORE, DIMS, q0, first)                                                        \
    {                                                                                                 \
        float a[NQ], b[NQ];                                                                           \
        CHUNK_OF(NQ, SCORE, query + (q0), c * CHUNK)                                                  \
        for (int g = 0; g < NQ; g++) {                                                                \
            float top = !(first) && M[(q0) + g] > m[g] ? M[(q0) + g] : m[g];                          \
            a[g] = (first) ? 0.0f : canon_exp(M[(q0) + g] - top);                                     \
            b[g] = canon_exp(m[g] - top);                                                             \
            L[(q0) + g] = (first) ? l[g] : fma(L[(q0) + g], a[g], l[g] * b[g]);                       \
            M[(q0) + g] = top;                                                                        \
        }                                                                                             \
        for (int d = 0; d < NS; d += DIMS) {                                                          \
            VALUES(NQ, DIMS, d, )                                                                     \
            UNROLL for (int v = 0; v < DIMS; v++) UNROLL for (int g = 0; g < NQ; g++)                 \
                O[(q0) + g][d + v] =                                                                  \
                    (first) ? acc[v][g] : fma(O[(q0) + g][d + v], (float16)a[g], acc[v][g] * b[g]);   \
        }                                                                                             \
    }

/* T rows and kv head h from the first chunk to the last: a chunk that all of them see whole at once, others
 * row by row, so that no row touches a position that it does not see.  global (ceil(rows / T), n_kv) */
__kernel void attn_rows(OUT(out), ARGS, const int n_rows)
{
    int h = (int)get_global_id(1), r0 = (int)get_global_id(0) * T, n = min(n_rows - r0, T);
    if (h >= n_kv || n <= 0)
        return;
    const __global uchar *values = IN_PTR(uchar, v);
    const __global float *query[T * G];
    float16 O[T * G][NS];
    float M[T * G], L[T * G];
    int from[T], last[T], end = 0, first_from = INT_MAX, all_from = 0, all_last = INT_MAX;
    bool together = (n == T) & (T > 1);
    for (int t = 0; t < n; t++) {
        last[t] = IN_PTR(int, pos)[r0 + t];
        from[t] = window > 0 && last[t] >= window ? last[t] - window + 1 : 0;
        first_from = min(first_from, from[t]);
        end = max(end, last[t] / CHUNK);
        all_from = max(all_from, from[t]);
        all_last = min(all_last, last[t]);
        together = together && IN_PTR(int, seq)[r0 + t] == IN_PTR(int, seq)[r0];
        for (int g = 0; g < G; g++)
            query[t * G + g] = IN_PTR(float, q) + (((ulong)(r0 + t) * n_kv + h) * G + g) * HD;
    }
    for (int c = first_from / CHUNK; c <= end; c++) {
        /* the first chunk of all rows or of none */
        bool alike = all_from < c * CHUNK || (all_from == c * CHUNK && all_from == first_from);
        if (together && alike && all_last >= c * CHUNK + CHUNK - 1) {
            const __global int *table = IN_PTR(int, pages) + (ulong)IN_PTR(int, seq)[r0] * max_pages;
            const int lo = 0, hi = CHUNK;
            JOIN_CHUNK(T * G, scores_of_rows, TDB, 0, all_from == c * CHUNK)
            continue;
        }
        for (int t = 0; t < n; t++) {
            const __global int *table = IN_PTR(int, pages) + (ulong)IN_PTR(int, seq)[r0 + t] * max_pages;
            int lo = max(from[t] - c * CHUNK, 0), hi = min(last[t] - c * CHUNK + 1, CHUNK);
            if (lo < hi)
                JOIN_CHUNK(G, scores, DB, t * G, c == from[t] / CHUNK)
        }
    }
    for (int t = 0; t < n; t++)
        for (int g = 0; g < G; g++) {
            float inv = canon_recip(L[t * G + g]);
            ulong head = ((ulong)(r0 + t) * n_kv + h) * G + g;
            for (int d = 0; d < NS; d++)
                put_vector(O[t * G + g][d] * inv, OUT_PTR(float, out) + head * HD, d);
        }
}
#endif
