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

enum { TURNS = KERN_QUERIES * KERN_CHUNK / 16 };

/* The turns of keys (rows from 0 on) or of values (from KERN_CHUNK on), n queries a head; gives their number. */
static int make_turns(struct kv_part parts[TURNS], const struct heads_chunk *c, int rows, int n)
{
    int turns = 0, next_from = c->ahead / c->heads * c->run, next_head = c->ahead % c->heads;

    for (int from = 0; from < c->hi; from += c->run)
        for (int head = 0; head < c->heads; head++) {
            struct kv_part p = {
                .query = head * n, .rows = c->rows + rows, .at = (size_t)head * c->stride, .more = true
            };
            p.lo = from > c->lo ? from : c->lo;
            p.hi = from + c->run < c->hi ? from + c->run : c->hi;
            if (rows + next_from + c->run <= 3 * KERN_CHUNK) {
                p.next = p.rows + (next_from - from);
                p.next_at = (size_t)next_head * c->stride;
            }
            if (++next_head == c->heads) {
                next_head = 0;
                next_from += c->run;
            }
            parts[turns] = p;
            turns += p.lo < p.hi ? 1 : 0;
        }
    return turns;
}

/* n queries of each of some heads, few. */
static void attend_heads(const struct kern_query *q, int n, const struct kern_kv *kv, const struct running *run,
                         const struct heads_chunk *c, struct kern_sum *const *sums, float (*s)[KERN_CHUNK])
{
    struct kv_part parts[TURNS], v = { .rows = c->rows + KERN_CHUNK };
    int full = kv->head_dim / 16 * 16;

    kv_formats[kv->dtype].scores(s, parts, make_turns(parts, c, 0, n), q, n, kv);
    for (int t = 0; t < n * c->heads; t++) {
        chunk_softmax(s[t], run[t].lo, run[t].hi, kv->softcap, &sums[t]->m, &sums[t]->l);
        memset(q[t].out, 0, (size_t)full * sizeof *q[t].out);
    }
    kv_formats[kv->dtype].values((const float(*)[KERN_CHUNK])s, parts, make_turns(parts, c, KERN_CHUNK, n), q, n, run, 0, full);
    for (int t = 0; t < n * c->heads; t++) {
        v.at = (size_t)(t / n) * c->stride;
        values_tail(s[t], &v, &q[t], &run[t], kv);
    }
}
