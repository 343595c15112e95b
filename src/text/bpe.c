/* Byte-pair encoding of one word: its characters, then merges in the order of their ranks.
 * Owns the two ways of finding the next merge, a scan for short words and a heap for long
 * ones.  Knows ids and ranks; where ranks come from is bpe_ranks.c's business. */
#include "text/bpe.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "text/bpe_ranks.h"

#define SMALL_WORD 16 /* up to this many symbols a scan beats the heap */
#define NONE UINT32_MAX

struct bpe_symbol {
    int32_t id; /* -1 = merged into the symbol before */
    uint32_t prev, next;
    int32_t merged; /* what this symbol and the next give */
    uint64_t rank;  /* of that merge; RANK_NONE = there is none */
};

/* A merge that was possible when it was queued; it still is if its symbol has that rank. */
struct bpe_merge {
    uint64_t rank;
    uint32_t pos;
};

void bpe_work_fini(struct bpe_work *w)
{
    free(w->sym);
    free(w->heap);
    free(w->joined);
    memset(w, 0, sizeof *w);
}

static int no_memory(size_t n, struct err *err)
{
    return err_set(err, ERR_NOMEM, "tokenizer: no memory for a word of %zu symbols", n);
}

static bool before(const struct bpe_merge *a, const struct bpe_merge *b)
{
    return a->rank != b->rank ? a->rank < b->rank : a->pos < b->pos;
}

/* A heap of four children a node: half the levels of a binary one, and a node's children share a
 * cache line. */
static bool heap_push(struct bpe_work *w, struct bpe_merge m)
{
    if (w->n_heap == w->cap_heap) {
        struct bpe_merge *h = mem_grow(w->heap, &w->cap_heap, w->n_heap + 1, sizeof *h);
        if (!h)
            return false;
        w->heap = h;
    }
    size_t i = w->n_heap++;
    for (; i > 0 && before(&m, &w->heap[(i - 1) / 4]); i = (i - 1) / 4)
        w->heap[i] = w->heap[(i - 1) / 4];
    w->heap[i] = m;
    return true;
}

static struct bpe_merge heap_pop(struct bpe_work *w)
{
    struct bpe_merge *h = w->heap, top = h[0], last = h[--w->n_heap];
    size_t i = 0;
    for (size_t c = 1; c < w->n_heap; c = 4 * i + 1) {
        size_t end = c + 4 < w->n_heap ? c + 4 : w->n_heap, best = c;
        for (size_t k = c + 1; k < end; k++)
            if (before(&h[k], &h[best]))
                best = k;
        if (!before(&h[best], &last))
            break;
        h[i] = h[best];
        i = best;
    }
    h[i] = last;
    return top;
}

/* Ranks the symbol at pos with its successor, and queues that merge where there is one. */
static bool queue(const struct bpe *b, struct bpe_work *w, uint32_t pos)
{
    if (pos == NONE)
        return true;
    struct bpe_symbol *s = &w->sym[pos];
    s->rank = s->next == NONE ? RANK_NONE : bpe_rank(b, w->joined, s->id, w->sym[s->next].id, &s->merged);
    return s->rank == RANK_NONE || heap_push(w, (struct bpe_merge){s->rank, pos});
}

static bool merge_large(const struct bpe *b, struct bpe_work *w, size_t n)
{
    struct bpe_symbol *sym = w->sym;
    w->n_heap = 0;
    for (size_t i = 0; i < n; i++)
        if (!queue(b, w, (uint32_t)i))
            return false;
    while (w->n_heap > 0) {
        struct bpe_merge m = heap_pop(w);
        struct bpe_symbol *s = &sym[m.pos];
        if (s->rank != m.rank)
            continue; /* one of the two went elsewhere meanwhile */
        struct bpe_symbol *gone = &sym[s->next];
        s->id = s->merged;
        s->next = gone->next;
        gone->id = -1;
        gone->rank = RANK_NONE;
        if (s->next != NONE)
            sym[s->next].prev = m.pos;
        if (!queue(b, w, s->prev) || !queue(b, w, m.pos))
            return false;
    }
    return true;
}

/* The same by scanning; sym[0..n) stays dense.  Returns the new n. */
static size_t merge_small(const struct bpe *b, struct bpe_work *w, size_t n)
{
    struct bpe_symbol *sym = w->sym;
    for (size_t i = 0; i + 1 < n; i++)
        sym[i].rank = bpe_rank(b, w->joined, sym[i].id, sym[i + 1].id, &sym[i].merged);
    for (;;) {
        size_t best = 0;
        uint64_t rank = RANK_NONE;
        for (size_t i = 0; i + 1 < n; i++)
            if (sym[i].rank < rank) {
                rank = sym[i].rank;
                best = i;
            }
        if (rank == RANK_NONE)
            return n;
        sym[best].id = sym[best].merged;
        n--;
        memmove(sym + best + 1, sym + best + 2, (n - best - 1) * sizeof *sym);
        if (best + 1 < n)
            sym[best].rank = bpe_rank(b, w->joined, sym[best].id, sym[best + 1].id, &sym[best].merged);
        if (best > 0)
            sym[best - 1].rank = bpe_rank(b, w->joined, sym[best - 1].id, sym[best].id, &sym[best - 1].merged);
    }
}

static bool put_symbol(struct bpe_work *w, size_t *n, int32_t id)
{
    if (*n == w->cap_sym) {
        struct bpe_symbol *s = mem_grow(w->sym, &w->cap_sym, *n + 1, sizeof *s);
        if (!s)
            return false;
        w->sym = s;
    }
    w->sym[*n] = (struct bpe_symbol){.id = id, .prev = *n ? (uint32_t)(*n - 1) : NONE, .next = NONE};
    if (*n)
        w->sym[*n - 1].next = (uint32_t)*n;
    ++*n;
    return true;
}

/* The tokens <0xHH> of a character; false unless all its bytes have one. */
static bool has_bytes(const struct bpe *b, const char *s, size_t len)
{
    if (!b->byte_fallback)
        return false;
    for (size_t i = 0; i < len; i++)
        if (b->byte_id[(uint8_t)s[i]] < 0)
            return false;
    return true;
}

/* One symbol a character.  An unknown token is held back until a known character follows: bytes
 * that stand for an unknown one are put before it, as the reference does. */
static int split_chars(const struct bpe *b, struct bpe_work *w, const char *s, size_t len, size_t *n_out,
                       struct err *err)
{
    size_t n = 0;
    bool unk = false, ok = true;
    for (size_t i = 0, step; i < len && ok; i += step) {
        uint32_t cp = 0;
        step = utf8_decode(s + i, len - i, &cp);
        if (step == 0)
            step = 1;
        int32_t id = cp < BPE_CHARS ? b->char_id[cp] : vocab_find(b->vocab, s + i, step, TOKEN_MODEL);
        if (id >= 0) {
            ok = (!unk || put_symbol(w, &n, b->unk_id)) && put_symbol(w, &n, id);
            unk = false;
        } else if (has_bytes(b, s + i, step)) {
            for (size_t k = 0; k < step && ok; k++)
                ok = put_symbol(w, &n, b->byte_id[(uint8_t)s[i + k]]);
        } else if (b->unk_id >= 0) {
            ok = !unk || b->fuse_unk || put_symbol(w, &n, b->unk_id);
            unk = true;
        } else if (w->n_lost++ == 0) {
            w->lost = cp;
        }
    }
    if (ok && unk)
        ok = put_symbol(w, &n, b->unk_id);
    *n_out = n;
    return ok ? 0 : no_memory(len, err);
}

int bpe_encode(const struct bpe *b, struct bpe_work *w, const char *s, size_t len, bool plain,
               struct ids *out, struct err *err)
{
    if (b->ignore_merges) {
        int32_t id = vocab_find(b->vocab, s, len, TOKEN_MODEL);
        if (id >= 0 && !(plain && (b->vocab->v[id].flags & TOKEN_SPECIAL)))
            return ids_push(out, id, err);
    }
    if (len >= NONE)
        return err_set(err, ERR_LIMIT, "tokenizer: a word of %zu bytes; at most %u", len, NONE - 1);
    size_t n;
    int rc = split_chars(b, w, s, len, &n, err);
    if (rc)
        return rc;
    if (b->score_order && b->piece_max > w->cap_joined) {
        char *joined = mem_grow(w->joined, &w->cap_joined, b->piece_max, 1);
        if (!joined)
            return no_memory(n, err);
        w->joined = joined;
    }
    if (n <= SMALL_WORD)
        n = merge_small(b, w, n);
    else if (!merge_large(b, w, n))
        return no_memory(n, err);
    for (size_t i = 0; i < n && !rc; i++)
        if (w->sym[i].id >= 0)
            rc = ids_push(out, w->sym[i].id, err);
    return rc;
}
