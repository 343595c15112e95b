/* Attention, part of kern_tmpl.h: the same primitives, the same rule.
 * Each chunk is looked up, and widened, once for all queries of a call; the
 * loops over positions are in kern_attn_tiles_tmpl.h; few queries read all heads
 * of a chunk together (kern_attn_heads_tmpl.h).
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

#include "backend/cpu/kern_attn_tiles_tmpl.h"

/* Rows of k and v of the positions of one chunk; NULL where no query looks. */
struct kv_chunk {
    const uint8_t *k[KERN_CHUNK], *v[KERN_CHUNK];
    int lo, hi; /* positions lo <= j < hi of the chunk are seen by some query */
    const uint8_t *const *next_k, *const *next_v; /* rows to be fetched meanwhile, where they are not NULL; NULL = none */
};

/* Rows in a pool of positions lo <= j < hi of the chunk at `start` of a kv head. */
static void find_rows(const uint8_t **rows, const uint8_t *pool, int lo, int hi, const struct kern_kv *kv, int kv_head,
                      int32_t start)
{
    int32_t page = (start + lo) / kv->page_size, at = (start + lo) % kv->page_size;

    for (int j = lo; j < hi; page++, at = 0) {
        size_t row = ((size_t)kv->pages[page] * (size_t)kv->n_kv_heads + (size_t)kv_head) * (size_t)kv->page_size;
        const uint8_t *from = pool + (row + (size_t)at) * kv->row_size;
        int end = hi - j < kv->page_size - at ? hi : j + kv->page_size - at;
        for (; j < end; j++, from += kv->row_size)
            rows[j] = from;
    }
}

/* s[lo..hi) -> e^(s - m), 0 elsewhere; gives m and the sum l. */
static void chunk_softmax(float s[KERN_CHUNK], int lo, int hi, float softcap, float *m, float *l)
{
    float most[16];
    V16 acc = v_zero();

    if (softcap > 0) {
        float inv = 1.0f / softcap;
        for (int j = lo; j < hi; j++)
            s[j] = softcap * canon_tanh(s[j] * inv);
    }
    /* what is not seen is -Inf, and its e^ 0; which of equal ones is the largest changes nothing */
    for (int j = 0; j < lo; j++)
        s[j] = -INFINITY;
    for (int j = hi; j < KERN_CHUNK; j++)
        s[j] = -INFINITY;
    memcpy(most, s, sizeof most);
    for (int j = 16; j < KERN_CHUNK; j += 16)
        for (int t = 0; t < 16; t++)
            most[t] = s[j + t] > most[t] ? s[j + t] : most[t];
    for (int t = 0; t < 8; t++)
        most[t] = most[t + 8] > most[t] ? most[t + 8] : most[t];
    for (int t = 0; t < 4; t++)
        most[t] = most[t + 4] > most[t] ? most[t + 4] : most[t];
    for (int t = 1; t < 4; t++)
        most[0] = most[t] > most[0] ? most[t] : most[0];
    *m = most[0];
    for (int j = 0; j < KERN_CHUNK; j++)
        s[j] = canon_exp(s[j] - most[0]);
    for (int j = 0; j < KERN_CHUNK; j += 16)
        acc = v_add(acc, v_load(s + j));
    *l = v_tree(acc);
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

/* What the queries of a tile see together; empty: lo >= hi. */
static struct kv_part seen(const struct running *run, int n, const uint8_t *const *rows, const uint8_t *const *next)
{
    struct kv_part p = { .rows = rows, .lo = KERN_CHUNK, .next = next };

    for (int t = 0; t < n; t++) {
        if (run[t].lo == run[t].hi)
            continue;
        p.lo = run[t].lo < p.lo ? run[t].lo : p.lo;
        p.hi = run[t].hi > p.hi ? run[t].hi : p.hi;
    }
    return p;
}

/* Scores of n queries to what their sums of values take, and the factors of these. */
static void weigh(float (*s)[KERN_CHUNK], int n, const struct kern_kv *kv, struct running *run)
{
    float m, l;

    for (int t = 0; t < n; t++)
        if (run[t].lo < run[t].hi) {
            chunk_softmax(s[t], run[t].lo, run[t].hi, kv->softcap, &m, &l);
            join(&run[t], m, l);
        }
}

/* Few queries: rows are used as they are stored. */
static void attend_tile(const struct kern_query *q, int n, const struct kern_kv *kv, struct running *run,
                        const struct kv_chunk *c)
{
    float s[KERN_TILE][KERN_CHUNK];
    struct kv_part k = seen(run, n, c->k, c->next_k), v = seen(run, n, c->v, c->next_v);
    int full = kv->head_dim / 16 * 16;

    kv_formats[kv->dtype].scores(s, &k, 1, q, n, kv);
    weigh(s, n, kv, run);
    kv_formats[kv->dtype].values((const float(*)[KERN_CHUNK])s, &v, 1, q, n, run, 0, full);
    for (int t = 0; t < n; t++)
        values_tail(s[t], &v, &q[t], &run[t], kv);
}

/* Scores of positions j .. j + KERN_KEYS of a chunk for all queries. */
static void many_scores(float (*s)[KERN_CHUNK], int j, const struct kern_query *q, int n, const struct kern_kv *kv,
                        const struct running *run, const struct kv_chunk *c, float *keys)
{
    for (int i = 0; i < KERN_KEYS; i++) {
        float *to = keys + i * kv->head_dim;
        if (j + i < c->lo || j + i >= c->hi) {
            memset(to, 0, (size_t)kv->head_dim * sizeof *to);
            continue;
        }
        if (c->next_k != NULL && c->next_k[j + i] != NULL) {
            fetch_row(c->next_k[j + i], kv->row_size);
            fetch_row(c->next_v[j + i], kv->row_size);
        }
        kv_formats[kv->dtype].widen(to, c->k[j + i], 0, kv->head_dim);
    }
    for (int t = 0; t < n; t += KERN_TILE) {
        int nt = n - t < KERN_TILE ? n - t : KERN_TILE;
        struct kv_part p = seen(run + t, nt, NULL, NULL);
        const float *x[KERN_TILE];
        for (int i = 0; i < KERN_TILE; i++)
            x[i] = q[t + (i < nt ? i : 0)].q;
        for (int i = j; i < j + KERN_KEYS; i += 4)
            if (i + 4 > p.lo && i < p.hi)
                scores_4x4((float(*)[KERN_CHUNK])&s[t][i], keys + (i - j) * kv->head_dim, kv->head_dim / 16, x, kv->scale);
    }
}

/* Sums of KERN_COLS values from d on, or as many as there are, for all queries. */
static void many_values(const float (*s)[KERN_CHUNK], int d, const struct kern_query *q, int n, const struct kern_kv *kv,
                        const struct running *run, const struct kv_chunk *c, float *values)
{
    int width = kv->head_dim - d < KERN_COLS ? kv->head_dim - d : KERN_COLS;
    const uint8_t *rows[KERN_CHUNK];

    for (int j = c->lo; j < c->hi; j++) {
        rows[j] = (const uint8_t *)(values + j * width);
        kv_formats[kv->dtype].widen(values + j * width, c->v[j], d, width);
    }
    for (int t = 0; t < n; t += KERN_TILE) {
        int nt = n - t < KERN_TILE ? n - t : KERN_TILE;
        struct kv_part p = seen(run + t, nt, rows, NULL);
        sums_wide(s + t, &p, 1, q + t, nt, run + t, d, width);
    }
}

/* Many queries: what they meet is widened once, in parts that stay in the first-level cache while all take their turn. */
static void attend_many(const struct kern_query *q, int n, const struct kern_kv *kv, struct running *run,
                        const struct kv_chunk *c, struct kern_scratch *scratch)
{
    for (int j = c->lo / KERN_KEYS * KERN_KEYS; j < c->hi; j += KERN_KEYS)
        many_scores(scratch->scores, j, q, n, kv, run, c, scratch->keys);
    weigh(scratch->scores, n, kv, run);
    for (int d = 0; d < kv->head_dim; d += KERN_COLS)
        many_values((const float(*)[KERN_CHUNK])scratch->scores, d, q, n, kv, run, c, scratch->values);
}

/* Rows in a pool of the chunk at `start` of a kv head that positions first .. last have; the others are NULL. */
static void find_seen(const uint8_t *rows[KERN_CHUNK], const uint8_t *pool, const struct kern_kv *kv, int kv_head, int32_t start,
                      int32_t first, int32_t last)
{
    int lo = first > start ? first - start : 0, hi = last - start < KERN_CHUNK ? last - start + 1 : KERN_CHUNK;

    for (int j = 0; j < KERN_CHUNK; j++)
        if (j < lo || j >= hi)
            rows[j] = NULL;
    find_rows(rows, pool, lo, hi, kv, kv_head, start);
}

/* The chunk at `start` for all queries; the next one to be asked for is that at next_start, of next_head, if some query
 * sees as far as that. */
static void attend_chunk(const struct kern_query *q, int n, const struct kern_kv *kv, struct running *run, int32_t start,
                         int next_head, int32_t next_start, struct kern_scratch *scratch)
{
    struct kv_chunk c; /* not cleared: that would take as long as a query */
    const uint8_t *next[2][KERN_CHUNK];
    int32_t first = q[0].first, last = 0;

    for (int t = 0; t < n; t++) {
        see(&run[t], &q[t], start);
        first = q[t].first < first ? q[t].first : first;
        last = q[t].last > last ? q[t].last : last;
    }
    struct kv_part all = seen(run, n, NULL, NULL);
    if (all.lo >= all.hi)
        return;
    c.lo = all.lo;
    c.hi = all.hi;
    c.next_k = c.next_v = NULL;
    find_rows(c.k, kv->k, c.lo, c.hi, kv, kv->kv_head, start);
    find_rows(c.v, kv->v, c.lo, c.hi, kv, kv->kv_head, start);
    if (next_start <= last && next_start + KERN_CHUNK > first) {
        find_seen(next[0], kv->k, kv, next_head, next_start, first, last);
        find_seen(next[1], kv->v, kv, next_head, next_start, first, last);
        c.next_k = next[0];
        c.next_v = next[1];
    }
    if (n > KERN_TILE && kv->head_dim % 16 == 0 && kv->head_dim <= KERN_WIDE)
        attend_many(q, n, kv, run, &c, scratch);
    else
        for (int t = 0; t < n; t += KERN_TILE) {
            attend_tile(q + t, n - t < KERN_TILE ? n - t : KERN_TILE, kv, run + t, &c);
            c.next_k = c.next_v = NULL; /* asked for once */
        }
    for (int t = 0; t < n; t++)
        run[t].any = run[t].any || run[t].lo < run[t].hi;
}

static void divide(float *out, float l, int head_dim)
{
    float inv = canon_recip(l);
    for (int d = 0; d < head_dim; d++)
        out[d] *= inv;
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
        attend_chunk(q, n, kv, run, start, kv->kv_head, start + KERN_CHUNK, scratch);
    for (int t = 0; t < n; t++)
        divide(q[t].out, run[t].l, kv->head_dim);
}

/* ---- the chunks of a query apart, then joined: the same formula in the same order ---- */
#include "backend/cpu/kern_attn_heads_tmpl.h"

static void attention_chunk(const struct kern_query *q, int n, int heads, const struct kern_kv *kv, int32_t start,
                            struct kern_sum *const *sums, struct kern_scratch *scratch)
{
    struct running run[KERN_QUERIES] = { { 0 } };
    struct heads_chunk c; /* not cleared: that would take as long as a query */
    int32_t first = q[0].first, last = q[0].last;

    for (int t = 0; t < n * heads; t++) {
        see(&run[t], &q[t], start);
        first = q[t].first < first ? q[t].first : first;
        last = q[t].last > last ? q[t].last : last;
    }
    if (n <= KERN_TILE) {
        find_heads(&c, heads, kv, start, first, last);
        attend_heads(q, n, kv, run, &c, sums, scratch->scores);
        return;
    }
    bool last_head = kv->kv_head + 1 == kv->n_kv_heads;
    attend_chunk(q, n, kv, run, start, last_head ? 0 : kv->kv_head + 1, last_head ? start + KERN_CHUNK : start, scratch);
    for (int t = 0; t < n; t++)
        *sums[t] = (struct kern_sum){ run[t].m, run[t].l };
}

/* Factors of the next n sums, `most` being the largest m of those before: 16 at a time, as join does one. */
static void join_factors(float *a, float *b, const struct kern_sum *sums, int n, float *most)
{
    for (int i = 0; i < n; i++) {
        float top = *most > sums[i].m ? *most : sums[i].m;
        a[i] = *most - top;
        b[i] = sums[i].m - top;
        *most = top;
    }
    for (int i = 0; i < n; i++)
        a[i] = canon_exp(a[i]);
    for (int i = 0; i < n; i++)
        b[i] = canon_exp(b[i]);
}

static void attention_join(float *out, const float *o, const struct kern_sum *sums, int n, int head_dim)
{
    float a[KERN_CHUNK], b[KERN_CHUNK], most = sums[0].m;
    struct running r = { .any = true, .l = sums[0].l };
    int full = head_dim / 16 * 16;

    memcpy(out, o, (size_t)head_dim * sizeof *out);
    for (int i = 1; i < n; i++) {
        int k = (i - 1) % KERN_CHUNK;
        if (k == 0)
            join_factors(a, b, sums + i, n - i < KERN_CHUNK ? n - i : KERN_CHUNK, &most);
        r.a = a[k];
        r.b = b[k];
        r.l = __builtin_fmaf(r.l, r.a, sums[i].l * r.b);
        o += head_dim;
        for (int d = 0; d < full; d += 16)
            put_sum(out + d, &r, v_load(o + d));
        for (int d = full; d < head_dim; d++)
            out[d] = __builtin_fmaf(out[d], r.a, o[d] * r.b);
    }
    divide(out, r.l, head_dim);
}
