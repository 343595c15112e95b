/* Encoding of one word: see bpe.h.  Knows ids and ranks; where they come from is bpe_ranks.c. */
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
    uint64_t rank; /* small words: of this symbol with the next, RANK_NONE = no merge */
    int32_t merged;
};

/* A merge that was possible when it was queued. */
struct bpe_merge {
    uint64_t rank;
    uint32_t pos;
    int32_t left, right, merged;
};

void bpe_work_fini(struct bpe_work *w)
{
    free(w->sym);
    free(w->heap);
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

static bool heap_push(struct bpe_work *w, struct bpe_merge m)
{
    if (w->n_heap == w->cap_heap) {
        struct bpe_merge *h = mem_grow(w->heap, &w->cap_heap, w->n_heap + 1, sizeof *h);
        if (!h)
            return false;
        w->heap = h;
    }
    size_t i = w->n_heap++;
    for (; i > 0 && before(&m, &w->heap[(i - 1) / 2]); i = (i - 1) / 2)
        w->heap[i] = w->heap[(i - 1) / 2];
    w->heap[i] = m;
    return true;
}

static struct bpe_merge heap_pop(struct bpe_work *w)
{
    struct bpe_merge top = w->heap[0], last = w->heap[--w->n_heap];
    size_t i = 0;
    for (size_t c = 1; c < w->n_heap; c = 2 * i + 1) {
        if (c + 1 < w->n_heap && before(&w->heap[c + 1], &w->heap[c]))
            c++;
        if (!before(&w->heap[c], &last))
            break;
        w->heap[i] = w->heap[c];
        i = c;
    }
    w->heap[i] = last;
    return top;
}

/* Queues the merge of the symbol at pos with its successor, where there is one. */
static bool queue(const struct bpe *b, struct bpe_work *w, uint32_t pos)
{
    if (pos == NONE || w->sym[pos].next == NONE)
        return true;
    struct bpe_merge m = {.pos = pos, .left = w->sym[pos].id, .right = w->sym[w->sym[pos].next].id};
    m.rank = bpe_rank(b, m.left, m.right, &m.merged);
    return m.rank == RANK_NONE || heap_push(w, m);
}

static bool merge_large(const struct bpe *b, struct bpe_work *w, size_t n)
{
    struct bpe_symbol *sym = w->sym;
    w->n_heap = 0;
    for (size_t i = 0; i + 1 < n; i++)
        if (!queue(b, w, (uint32_t)i))
            return false;
    while (w->n_heap > 0) {
        struct bpe_merge m = heap_pop(w);
        uint32_t next = sym[m.pos].next;
        if (sym[m.pos].id != m.left || next == NONE || sym[next].id != m.right)
            continue; /* one of the two went elsewhere meanwhile */
        sym[m.pos].id = m.merged;
        sym[m.pos].next = sym[next].next;
        sym[next].id = -1;
        if (sym[next].next != NONE)
            sym[sym[next].next].prev = m.pos;
        if (!queue(b, w, sym[m.pos].prev) || !queue(b, w, m.pos))
            return false;
    }
    return true;
}

/* The same by scanning; sym[0..n) stays dense.  Returns the new n. */
static size_t merge_small(const struct bpe *b, struct bpe_symbol *sym, size_t n)
{
    for (size_t i = 0; i + 1 < n; i++)
        sym[i].rank = bpe_rank(b, sym[i].id, sym[i + 1].id, &sym[i].merged);
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
            sym[best].rank = bpe_rank(b, sym[best].id, sym[best + 1].id, &sym[best].merged);
        if (best > 0)
            sym[best - 1].rank = bpe_rank(b, sym[best - 1].id, sym[best].id, &sym[best - 1].merged);
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
    if (n <= SMALL_WORD)
        n = merge_small(b, w->sym, n);
    else if (!merge_large(b, w, n))
        return no_memory(n, err);
    for (size_t i = 0; i < n && !rc; i++)
        if (w->sym[i].id >= 0)
            rc = ids_push(out, w->sym[i].id, err);
    return rc;
}
