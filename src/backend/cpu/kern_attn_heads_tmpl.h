/* A chunk of attention for few queries of some kv heads, part of kern_attn_tmpl.h.
 * What takes time is reading, and memory is fastest where lines follow each
 * other: all heads' keys of a page are used, then the next page's, then the
 * values likewise, while lines a little further on in this order are asked for.
 * The sums of each head are those of kern_attn_tmpl.h, in its order. */

enum { FETCH_AHEAD = 8192 }; /* bytes between what is read and what is asked for */

/* Rows of a chunk for some heads next to each other, in turns: some positions of each head, then the next ones, which is
 * how they lie in pages.  All keys come before all values. */
struct heads_chunk {
    const uint8_t *rows[3 * KERN_CHUNK]; /* the first head's keys, its values, the keys that come next; NULL = not seen */
    size_t stride;                       /* bytes from a head's rows to the next one's */
    int heads, lo, hi;                   /* positions lo <= j < hi of the chunk are seen by some query */
    int run;                             /* positions of a turn: as many as lie in one piece, 16 to KERN_CHUNK */
    int ahead;                           /* turns from what is read to what is asked for */
};

/* Positions first .. last are seen of the sequence. */
static void find_heads(struct heads_chunk *c, int heads, const struct kern_kv *kv, int32_t start, int32_t first, int32_t last)
{
    int next_head = kv->kv_head + heads;

    c->stride = (size_t)kv->page_size * kv->row_size;
    c->heads = heads;
    c->lo = first > start ? first - start : 0;
    c->hi = last - start < KERN_CHUNK ? last - start + 1 : KERN_CHUNK;
    c->run = kv->page_size >= KERN_CHUNK ? KERN_CHUNK : kv->page_size >= 32 ? 32 : 16;
    c->ahead = (int)(FETCH_AHEAD / ((size_t)c->run * kv->row_size));
    if (c->ahead == 0)
        c->ahead = 1;
    find_seen(c->rows, kv->k, kv, kv->kv_head, start, first, last);
    find_seen(c->rows + KERN_CHUNK, kv->v, kv, kv->kv_head, start, first, last);
    if (next_head == kv->n_kv_heads) {
        next_head = 0;
        start += KERN_CHUNK;
    }
    if (start <= last)
        find_seen(c->rows + 2 * KERN_CHUNK, kv->k, kv, next_head, start, first, last);
    else
        memset(c->rows + 2 * KERN_CHUNK, 0, KERN_CHUNK * sizeof *c->rows);
}

/* Turn i of keys (rows from 0 on) or of values (from KERN_CHUNK on). */
static struct kv_part turn(const struct heads_chunk *c, int rows, int i)
{
    int from = i / c->heads * c->run, next = (i + c->ahead) / c->heads * c->run;
    struct kv_part p = { .rows = c->rows + rows, .at = (size_t)(i % c->heads) * c->stride, .more = true };

    p.lo = from > c->lo ? from : c->lo;
    p.hi = from + c->run < c->hi ? from + c->run : c->hi;
    if (rows + next + c->run <= 3 * KERN_CHUNK) {
        p.next = p.rows + (next - from);
        p.next_at = (size_t)((i + c->ahead) % c->heads) * c->stride;
    }
    return p;
}

/* Few queries of each of some heads. */
static void attend_heads(const struct kern_query *q, int n, const struct kern_kv *kv, struct running *run,
                         const struct heads_chunk *c, float (*s)[KERN_CHUNK])
{
    int full = kv->head_dim / 16 * 16, turns = KERN_CHUNK / c->run * c->heads;

    for (int i = 0; i < turns; i++) {
        struct kv_part k = turn(c, 0, i);
        int t = i % c->heads * n;
        if (k.lo < k.hi)
            kv_formats[kv->dtype].scores(s + t, &k, q + t, n, kv);
    }
    weigh(s, n * c->heads, kv, run);
    for (int t = 0; t < n * c->heads; t++)
        memset(q[t].out, 0, (size_t)kv->head_dim * sizeof *q[t].out);
    for (int i = 0; i < turns; i++) {
        struct kv_part v = turn(c, KERN_CHUNK, i);
        int t = i % c->heads * n;
        if (v.lo < v.hi)
            kv_formats[kv->dtype].values((const float(*)[KERN_CHUNK])(s + t), &v, q + t, n, run + t, 0, full, kv->row_size);
    }
    for (int t = 0; t < n * c->heads; t++) {
        struct kv_part v = { .rows = c->rows + KERN_CHUNK, .at = (size_t)(t / n) * c->stride };
        values_tail(s[t], &v, &q[t], &run[t], kv);
    }
}
