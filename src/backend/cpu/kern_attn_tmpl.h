/* Attention, part of kern_tmpl.h: the same primitives, the same rule.
 * Each chunk is looked up, and widened, once for all queries of a call.
 *
 * Positions are taken in chunks of 64 at absolute positions 0, 64, 128, ...,
 * whatever the pages and the window; positions a query does not see are
 * skipped.  A chunk gives
 *     s_p = cap(scale * (q . k_p))     16 partial sums over head_dim
 *     m = max s_p    e_p = e^(s_p - m)
 *     l = sum e_p    partial t takes the positions p = t mod 16
 *     o = sum e_p v_p                  p rising, by fma
 * and chunks are joined in rising order; M, L, O start as the first chunk's:
 *     M' = max(M, m)   a = e^(M - M')   b = e^(m - M')
 *     L = fma(L, a, l b)   O = fma(O, a, o b)   M = M'
 * At the end out = O * (1 / L). */

/* Rows of k and v of the positions of one chunk; NULL where no query looks. */
struct kv_chunk {
    const uint8_t *k[KERN_CHUNK], *v[KERN_CHUNK];
    int lo, hi; /* positions lo <= j < hi of the chunk are seen by some query */
    uintptr_t next_k, next_v; /* where the chunk that follows probably lies: to be fetched, row by row; 0 = nothing */
};

INLINE void fetch_row(uintptr_t next, int j, size_t row_size)
{
    if (next != 0)
        for (size_t at = 0; at < row_size; at += 64)
            __builtin_prefetch((const void *)(next + (size_t)j * row_size + at), 0, 2);
}

static void find_rows(struct kv_chunk *c, const struct kern_kv *kv, int32_t start)
{
    size_t row_size = (size_t)kv->head_dim * (kv->f16 ? 2 : 4);
    int32_t page = (start + c->lo) / kv->page_size, at = (start + c->lo) % kv->page_size;

    for (int j = c->lo; j < c->hi; page++, at = 0) {
        size_t row = ((size_t)kv->pages[page] * (size_t)kv->n_kv_heads + (size_t)kv->kv_head) * (size_t)kv->page_size;
        for (; at < kv->page_size && j < c->hi; at++, j++) {
            c->k[j] = kv->k + (row + (size_t)at) * row_size;
            c->v[j] = kv->v + (row + (size_t)at) * row_size;
        }
    }
}

/* Positions 64 on, if they are seen at all. */
static void find_next(struct kv_chunk *c, const struct kern_kv *kv, int32_t start, int32_t last)
{
    size_t row_size = (size_t)kv->head_dim * (kv->f16 ? 2 : 4);
    int32_t page = (start + KERN_CHUNK) / kv->page_size, at = (start + KERN_CHUNK) % kv->page_size;

    if (start + KERN_CHUNK > last)
        return;
    size_t row = ((size_t)kv->pages[page] * (size_t)kv->n_kv_heads + (size_t)kv->kv_head) * (size_t)kv->page_size;
    c->next_k = (uintptr_t)kv->k + (row + (size_t)at) * row_size;
    c->next_v = (uintptr_t)kv->v + (row + (size_t)at) * row_size;
}

static float kv_value(const struct kern_kv *kv, const uint8_t *row, int d)
{
    uint16_t h;
    if (!kv->f16)
        return load_f32(row, d);
    memcpy(&h, row + 2 * d, sizeof h);
    return f16_scalar(h);
}

/* Scores of NW positions from j for NX queries. */
#define SCORES(NW, NX, row)                                                                               \
    {                                                                                                     \
        const float *x[NX];                                                                               \
        const uint8_t *w[NW];                                                                             \
        V16 acc[NW][NX];                                                                                  \
        UNROLL for (int i = 0; i < (NW); i++) w[i] = c->k[j + i];                                         \
        UNROLL for (int t = 0; t < (NX); t++) x[t] = q[t].q;                                              \
        UNROLL for (int i = 0; i < (NW); i++) UNROLL for (int t = 0; t < (NX); t++) acc[i][t] = v_zero(); \
        UNROLL for (int i = 0; i < (NW); i++) fetch_row(c->next_k, j + i, row_size);                      \
        TILE_STEPS(NW, NX, row, w, x, full, acc, (void)0)                                                 \
        for (int i = 0; tail != 0 && i < (NW); i++) {                                                     \
            float ks[KERN_LANES];                                                                         \
            for (int l = 0; l < tail; l++)                                                                \
                ks[l] = kv_value(kv, w[i], 16 * full + l);                                                \
            for (int t = 0; t < (NX); t++)                                                                \
                acc[i][t] = add_tail(acc[i][t], ks, x[t] + 16 * full, tail);                              \
        }                                                                                                 \
        if ((NW) * (NX) == 16) {                                                                          \
            V16 all[16] = { v_zero() };                                                                   \
            float sums[16];                                                                               \
            UNROLL for (int t = 0; t < (NX); t++) UNROLL for (int i = 0; i < (NW); i++)                   \
                all[(t * (NW) + i) % 16] = acc[i][t];                                                     \
            v_store(sums, v_mul(v_trees(all), v_splat(kv->scale)));                                       \
            UNROLL for (int t = 0; t < (NX); t++) memcpy(&s[t][j], sums + t * (NW), (NW) * sizeof *sums); \
        } else {                                                                                          \
            UNROLL for (int i = 0; i < (NW); i++) UNROLL for (int t = 0; t < (NX); t++)                   \
                s[t][j + i] = kv->scale * v_tree(acc[i][t]);                                              \
        }                                                                                                 \
    }

/* Rows that one and two queries meet at once: sums of 16 lanes in registers. */
#ifndef SCORES_1
#define SCORES_1 4
#define SCORES_2 4
#endif

/* f16 rows as f32, in scratch. */
static void widen(const uint8_t **rows, int lo, int hi, const struct kern_kv *kv, float *to)
{
    for (int j = lo; j < hi; j++, to += kv->head_dim) {
        int d = 0;
        for (; d + 16 <= kv->head_dim; d += 16)
            v_store(to + d, row_f16(rows[j], d));
        for (; d < kv->head_dim; d++)
            to[d] = kv_value(kv, rows[j], d);
        rows[j] = (const uint8_t *)to;
    }
}

#define SCORES_FORMAT(name, row)                                                                            \
    static void name(float s[KERN_TILE][KERN_CHUNK], const struct kv_chunk *c, const struct kern_query *q, int n,\
                     const struct kern_kv *kv)                                                              \
    {                                                                                                       \
        int full = kv->head_dim / 16, tail = kv->head_dim % 16, j = c->lo;                                  \
        size_t row_size = (size_t)kv->head_dim * (kv->f16 ? 2 : 4);                                         \
        for (; n == 1 && j + SCORES_1 <= c->hi; j += SCORES_1)                                              \
            SCORES(SCORES_1, 1, row)                                                                        \
        for (; n == 2 && j + SCORES_2 <= c->hi; j += SCORES_2)                                              \
            SCORES(SCORES_2, 2, row)                                                                        \
        for (; j + 4 <= c->hi; j += 4)                                                                      \
            switch (n) {                                                                                    \
            case 1: SCORES(4, 1, row) break;                                                                \
            case 2: SCORES(4, 2, row) break;                                                                \
            case 3: SCORES(4, 3, row) break;                                                                \
            default: SCORES(4, 4, row) break;                                                               \
            }                                                                                               \
        for (; j < c->hi; j++)                                                                              \
            switch (n) {                                                                                    \
            case 1: SCORES(1, 1, row) break;                                                                \
            case 2: SCORES(1, 2, row) break;                                                                \
            case 3: SCORES(1, 3, row) break;                                                                \
            default: SCORES(1, 4, row) break;                                                               \
            }                                                                                               \
    }

SCORES_FORMAT(scores_f32, row_f32)
SCORES_FORMAT(scores_f16, row_f16)

/* s[lo..hi) -> e^(s - m), 0 elsewhere; gives m and the sum l. */
static void chunk_softmax(float s[KERN_CHUNK], int lo, int hi, float softcap, float *m, float *l)
{
    float max = -INFINITY, cut[KERN_CHUNK], most[16];
    V16 acc = v_zero();

    if (softcap > 0) {
        float inv = 1.0f / softcap;
        for (int j = lo; j < hi; j++)
            s[j] = softcap * canon_tanh(s[j] * inv);
    }
    /* what is not seen is -Inf, and its e^ 0; which of equal ones is the largest changes nothing */
    for (int j = 0; j < KERN_CHUNK; j++)
        cut[j] = j >= lo && j < hi ? s[j] : -INFINITY;
    memcpy(most, cut, sizeof most);
    for (int j = 16; j < KERN_CHUNK; j += 16)
        for (int t = 0; t < 16; t++)
            most[t] = cut[j + t] > most[t] ? cut[j + t] : most[t];
    for (int t = 0; t < 16; t++)
        max = most[t] > max ? most[t] : max;
    for (int j = 0; j < KERN_CHUNK; j++)
        cut[j] = canon_exp(cut[j] - max);
    memcpy(s, cut, sizeof cut);
    for (int j = 0; j < KERN_CHUNK; j += 16)
        acc = v_add(acc, v_load(s + j));
    *m = max;
    *l = v_tree(acc);
}

/* What the chunks so far add up to, for one query; O is its out. */
struct running {
    bool any;
    float m, l;
    float a, b; /* factors of the old sums and of the chunk's */
    int lo, hi; /* positions of this chunk that it sees */
};

/* o of one chunk for NX queries, 16 values of head_dim from d on, joined to what is there.
 * Positions that only some queries see take the branch. */
#define VALUES(NX, row)                                                                            \
    {                                                                                              \
        V16 acc[NX], v;                                                                            \
        UNROLL for (int t = 0; t < (NX); t++) acc[t] = v_zero();                                   \
        for (int j = c->lo; j < c->hi; j++) {                                                      \
            v = row(c->v[j], d);                                                                   \
            v_keep(&v);                                                                            \
            if (j >= all_lo && j < all_hi) {                                                       \
                UNROLL for (int t = 0; t < (NX); t++) acc[t] = v_fma(v_splat(s[t][j]), v, acc[t]); \
            } else {                                                                               \
                UNROLL for (int t = 0; t < (NX); t++) if (j >= run[t].lo && j < run[t].hi)         \
                    acc[t] = v_fma(v_splat(s[t][j]), v, acc[t]);                                   \
            }                                                                                      \
        }                                                                                          \
        UNROLL for (int t = 0; t < (NX); t++) if (run[t].lo < run[t].hi)                           \
            v_store(q[t].out + d, run[t].any ? v_fma(v_load(q[t].out + d), v_splat(run[t].a),      \
                                                     v_mul(acc[t], v_splat(run[t].b)))             \
                                             : acc[t]);                                            \
    }

/* The same of a chunk that all see from its first position on, ND times 16 values at once: whole rows in the order they
 * lie in. */
#define WIDE_VALUES(NX, ND, row)                                                                               \
    {                                                                                                          \
        V16 acc[NX][ND], v;                                                                                    \
        UNROLL for (int t = 0; t < (NX); t++) UNROLL for (int i = 0; i < (ND); i++) acc[t][i] = v_zero();      \
        for (int j = c->lo; j < all_hi; j++) {                                                                 \
            if (d == 0)                                                                                        \
                fetch_row(c->next_v, j, row_size);                                                             \
            UNROLL for (int i = 0; i < (ND); i++)                                                              \
            {                                                                                                  \
                v = row(c->v[j], d + 16 * i);                                                                  \
                v_keep(&v);                                                                                    \
                UNROLL for (int t = 0; t < (NX); t++) acc[t][i] = v_fma(v_splat(s[t][j]), v, acc[t][i]);       \
            }                                                                                                  \
        }                                                                                                      \
        for (int j = all_hi; j < c->hi; j++)                                                                   \
            UNROLL for (int t = 0; t < (NX); t++) if (j >= run[t].lo && j < run[t].hi)                         \
                UNROLL for (int i = 0; i < (ND); i++)                                                          \
                    acc[t][i] = v_fma(v_splat(s[t][j]), row(c->v[j], d + 16 * i), acc[t][i]);                  \
        UNROLL for (int t = 0; t < (NX); t++) UNROLL for (int i = 0; i < (ND); i++)                            \
            v_store(q[t].out + d + 16 * i, run[t].any ? v_fma(v_load(q[t].out + d + 16 * i), v_splat(run[t].a),\
                                                              v_mul(acc[t][i], v_splat(run[t].b)))             \
                                                      : acc[t][i]);                                            \
    }

/* Sums of 16 lanes that fit the registers here. */
#ifndef VALUES_ACC
#define VALUES_ACC 4
#endif

#define VALUES_FORMAT(name, row)                                                                            \
    static void name(const float s[KERN_TILE][KERN_CHUNK], const struct kv_chunk *c, const struct kern_query *q,\
                     int n, const struct running *run, int head_dim, size_t row_size)                       \
    {                                                                                                       \
        int all_lo = c->lo, all_hi = c->hi;                                                                 \
        for (int t = 0; t < n; t++) {                                                                       \
            all_lo = run[t].lo > all_lo ? run[t].lo : all_lo;                                               \
            all_hi = run[t].hi < all_hi ? run[t].hi : all_hi;                                               \
        }                                                                                                   \
        int d = 0;                                                                                          \
        bool all = all_lo == c->lo && all_hi > all_lo;                                                      \
        for (; all && n == 1 && d + 8 * VALUES_ACC <= head_dim; d += 8 * VALUES_ACC)                        \
            WIDE_VALUES(1, VALUES_ACC / 2, row)                                                             \
        for (; all && n == 2 && d + 8 * VALUES_ACC <= head_dim; d += 8 * VALUES_ACC)                        \
            WIDE_VALUES(2, VALUES_ACC / 2, row)                                                             \
        for (; all && n == 3 && d + 4 * VALUES_ACC <= head_dim; d += 4 * VALUES_ACC)                        \
            WIDE_VALUES(3, VALUES_ACC / 4, row)                                                             \
        for (; all && n == 4 && d + 4 * VALUES_ACC <= head_dim; d += 4 * VALUES_ACC)                        \
            WIDE_VALUES(4, VALUES_ACC / 4, row)                                                             \
        for (; d + 16 <= head_dim; d += 16)                                                                 \
            switch (n) {                                                                                    \
            case 1: VALUES(1, row) break;                                                                   \
            case 2: VALUES(2, row) break;                                                                   \
            case 3: VALUES(3, row) break;                                                                   \
            default: VALUES(4, row) break;                                                                  \
            }                                                                                               \
    }

VALUES_FORMAT(values_f32, row_f32)
VALUES_FORMAT(values_f16, row_f16)

/* The same for the values of head_dim after the last whole 16. */
static void values_tail(const float s[KERN_TILE][KERN_CHUNK], const struct kv_chunk *c, const struct kern_query *q, int n,
                        const struct running *run, const struct kern_kv *kv)
{
    for (int t = 0; t < n; t++)
        for (int d = kv->head_dim / 16 * 16; d < kv->head_dim && run[t].lo < run[t].hi; d++) {
            float o = 0;
            for (int j = run[t].lo; j < run[t].hi; j++)
                o = __builtin_fmaf(s[t][j], kv_value(kv, c->v[j], d), o);
            q[t].out[d] = run[t].any ? __builtin_fmaf(q[t].out[d], run[t].a, o * run[t].b) : o;
        }
}

/* The part lo .. hi of the chunk at `start` that a query sees; empty: lo = hi = 0. */
static void see(struct running *run, const struct kern_query *q, int32_t start)
{
    int32_t lo = q->first > start ? q->first - start : 0;
    int32_t hi = q->last - start + 1 < KERN_CHUNK ? q->last - start + 1 : KERN_CHUNK;
    run->lo = lo < hi ? lo : 0;
    run->hi = lo < hi ? hi : 0;
}

/* Joins a chunk's m and l to the sums so far; its o takes part with the factors a and b. */
static void join(struct running *r, float m, float l)
{
    float top = r->any && r->m > m ? r->m : m;

    r->a = r->any ? canon_exp(r->m - top) : 0;
    r->b = canon_exp(m - top);
    r->l = r->any ? __builtin_fmaf(r->l, r->a, l * r->b) : l;
    r->m = top;
}

/* One tile of queries and the positions of a chunk that some of them see. */
static void attend_tile(const struct kern_query *q, int n, const struct kern_kv *kv, struct running *run, struct kv_chunk *c)
{
    float s[KERN_TILE][KERN_CHUNK] = { { 0 } }, m, l;

    c->lo = KERN_CHUNK;
    c->hi = 0;
    for (int t = 0; t < n; t++) {
        if (run[t].lo == run[t].hi)
            continue;
        c->lo = run[t].lo < c->lo ? run[t].lo : c->lo;
        c->hi = run[t].hi > c->hi ? run[t].hi : c->hi;
    }
    if (c->lo >= c->hi)
        return;
    (kv->f16 ? scores_f16 : scores_f32)(s, c, q, n, kv);
    for (int t = 0; t < n; t++) {
        if (run[t].lo == run[t].hi)
            continue;
        chunk_softmax(s[t], run[t].lo, run[t].hi, kv->softcap, &m, &l);
        join(&run[t], m, l);
    }
    (kv->f16 ? values_f16 : values_f32)((const float(*)[KERN_CHUNK])s, c, q, n, run, kv->head_dim,
                                        (size_t)kv->head_dim * (kv->f16 ? 2 : 4));
    values_tail((const float(*)[KERN_CHUNK])s, c, q, n, run, kv);
    for (int t = 0; t < n; t++)
        run[t].any = run[t].any || run[t].lo < run[t].hi;
}

/* The chunk at `start` for all queries. */
static void attend_chunk(const struct kern_query *q, int n, const struct kern_kv *kv, struct running *run, int32_t start,
                         int32_t last, struct kern_scratch *scratch)
{
    struct kv_chunk c = { .lo = KERN_CHUNK, .hi = 0 };
    struct kern_kv view = *kv;

    for (int t = 0; t < n; t++) {
        see(&run[t], &q[t], start);
        if (run[t].lo == run[t].hi)
            continue;
        c.lo = run[t].lo < c.lo ? run[t].lo : c.lo;
        c.hi = run[t].hi > c.hi ? run[t].hi : c.hi;
    }
    if (c.lo >= c.hi)
        return;
    find_rows(&c, kv, start);
    find_next(&c, kv, start, last);
    if (kv->f16 && n > KERN_TILE && kv->head_dim <= KERN_WIDE) {
        widen(c.k, c.lo, c.hi, kv, scratch->kv[0]);
        widen(c.v, c.lo, c.hi, kv, scratch->kv[1]);
        view.f16 = false;
    }
    for (int t = 0; t < n; t += KERN_TILE) {
        attend_tile(q + t, n - t < KERN_TILE ? n - t : KERN_TILE, &view, run + t, &c);
        c.next_k = c.next_v = 0; /* asked for once */
    }
}

static void attention(const struct kern_query *q, int n, const struct kern_kv *kv, struct kern_scratch *scratch)
{
    struct running run[KERN_QUERIES] = { { 0 } };
    int32_t first = q[0].first, last = q[0].last;

    for (int t = 1; t < n; t++) {
        first = q[t].first < first ? q[t].first : first;
        last = q[t].last > last ? q[t].last : last;
    }
    for (int32_t start = first / KERN_CHUNK * KERN_CHUNK; start <= last; start += KERN_CHUNK)
        attend_chunk(q, n, kv, run, start, last, scratch);
    for (int t = 0; t < n; t++) {
        float inv = canon_recip(run[t].l);
        for (int d = 0; d < kv->head_dim; d++)
            q[t].out[d] *= inv;
    }
}

/* ---- the chunks of a query apart, then joined: the same formula in the same order ---- */
static void attention_chunk(const struct kern_query *q, int n, const struct kern_kv *kv, int32_t start, struct kern_sum *const *sums,
                            struct kern_scratch *scratch)
{
    struct running run[KERN_QUERIES] = { { 0 } };

    attend_chunk(q, n, kv, run, start, q[0].last, scratch);
    for (int t = 0; t < n; t++)
        if (run[t].any)
            *sums[t] = (struct kern_sum){ run[t].m, run[t].l };
}

static void attention_join(float *out, const float *o, const struct kern_sum *sums, int n, int head_dim)
{
    struct running r = { .any = false };

    for (int i = 0; i < n; i++, o += head_dim) {
        join(&r, sums[i].m, sums[i].l);
        for (int d = 0; d < head_dim; d++)
            out[d] = r.any ? __builtin_fmaf(out[d], r.a, o[d] * r.b) : o[d];
        r.any = true;
    }
    float inv = canon_recip(r.l);
    for (int d = 0; d < head_dim; d++)
        out[d] *= inv;
}
