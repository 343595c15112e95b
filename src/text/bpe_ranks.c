/* Where ranks come from: the list of merges, or scores.
 *
 * Scores: a SentencePiece model has no merges; any two neighbours whose joined spelling is a token
 * may merge, the highest score first.  Files made from such a model list the pairs in this order:
 * score falling, then characters of the left part falling, then of the right part, then id rising.
 * bpe_rank computes that order's key pair by pair, so that both kinds of file give the same ids and
 * opening need not try every way of cutting every token. */
#include "text/bpe_ranks.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"

#define PIECE_STACK 256

void bpe_init(struct bpe *b, const struct vocab *v)
{
    memset(b, 0, sizeof *b);
    b->vocab = v;
    b->unk_id = -1;
    u64map_init(&b->merges);
    memset(b->byte_id, 0xff, sizeof b->byte_id); /* -1 */
    memset(b->char_id, 0xff, sizeof b->char_id);
}

void bpe_fini(struct bpe *b)
{
    u64map_fini(&b->merges);
    free(b->score_order);
    free(b->n_chars);
    memset(b, 0, sizeof *b);
}

void bpe_prepare(struct bpe *b)
{
    for (unsigned i = 0; i < 256; i++) {
        char s[8];
        snprintf(s, sizeof s, "<0x%02X>", i);
        b->byte_id[i] = vocab_find(b->vocab, s, 6, TOKEN_MODEL | TOKEN_BYTE);
    }
    for (uint32_t cp = 0; cp < BPE_CHARS; cp++) {
        char c[4];
        size_t n = utf8_encode(cp, c);
        b->char_id[cp] = vocab_find(b->vocab, c, n, TOKEN_MODEL);
    }
}

static uint64_t pair_key(int32_t left, int32_t right)
{
    return (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
}

int bpe_add_merge(struct bpe *b, uint32_t rank, const char *left, size_t left_len, const char *right,
                  size_t right_len, const char *name, struct err *err)
{
    int32_t l = vocab_find(b->vocab, left, left_len, TOKEN_MODEL);
    int32_t r = vocab_find(b->vocab, right, right_len, TOKEN_MODEL);
    char stack[PIECE_STACK], *both = stack;
    size_t len = left_len + right_len;
    int rc = 0;
    if (len > sizeof stack && !(both = mem_array(len, 1)))
        return err_set(err, ERR_NOMEM, "%s: no memory for merge %u", name, rank);
    memcpy(both, left, left_len);
    memcpy(both + left_len, right, right_len);
    int32_t merged = vocab_find(b->vocab, both, len, TOKEN_MODEL);
    if (l < 0 || r < 0 || merged < 0) {
        const char *s = l < 0 ? left : r < 0 ? right : both;
        size_t n = l < 0 ? left_len : r < 0 ? right_len : len;
        rc = err_set(err, ERR_FORMAT, "%s: merge %u: \"%.*s\" is not in the vocabulary", name, rank,
                     (int)(n > 100 ? 100 : n), s);
    } else {
        uint64_t value = (uint64_t)rank << 32 | (uint32_t)merged;
        int added = u64map_add(&b->merges, pair_key(l, r), value);
        if (added < 0)
            rc = err_set(err, ERR_NOMEM, "%s: no memory for merge %u", name, rank);
    }
    if (both != stack)
        free(both);
    return rc;
}

struct scored {
    float score;
    int32_t id;
};

static int by_score(const void *a, const void *b)
{
    const struct scored *x = a, *y = b;
    if (x->score != y->score)
        return x->score > y->score ? -1 : 1;
    return (x->id > y->id) - (x->id < y->id);
}

static uint32_t count_chars(const struct token *t)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < t->len; i++)
        n += ((unsigned char)t->s[i] & 0xc0) != 0x80;
    return n;
}

int bpe_use_scores(struct bpe *b, const float *scores, const char *name, struct err *err)
{
    size_t n = (size_t)b->vocab->n;
    struct scored *v = mem_array(n, sizeof *v);
    b->score_order = mem_array(n, sizeof *b->score_order);
    b->n_chars = mem_array(n, sizeof *b->n_chars);
    if (!v || !b->score_order || !b->n_chars) {
        free(v);
        return err_set(err, ERR_NOMEM, "%s: no memory for the scores of %zu tokens", name, n);
    }
    for (size_t i = 0; i < n; i++) {
        const struct token *t = &b->vocab->v[i];
        v[i] = (struct scored){isnan(scores[i]) ? -INFINITY : scores[i], (int32_t)i};
        b->n_chars[i] = count_chars(t);
        if (t->len > b->piece_max)
            b->piece_max = t->len;
    }
    qsort(v, n, sizeof *v, by_score);
    uint32_t order = 0;
    for (size_t i = 0; i < n; i++) {
        if (i > 0 && v[i].score != v[i - 1].score)
            order++;
        b->score_order[v[i].id] = order;
    }
    free(v);
    return 0;
}

static uint64_t rank_by_score(const struct bpe *b, char *joined, int32_t left, int32_t right, int32_t *merged)
{
    const struct token *l = &b->vocab->v[left], *r = &b->vocab->v[right];
    size_t len = (size_t)l->len + r->len;
    if (len > b->piece_max)
        return RANK_NONE;
    memcpy(joined, l->s, l->len);
    memcpy(joined + l->len, r->s, r->len);
    int32_t id = vocab_find(b->vocab, joined, len, TOKEN_MODEL);
    if (id < 0 || (b->vocab->v[id].flags & TOKEN_SPECIAL))
        return RANK_NONE;
    *merged = id;
    uint32_t nl = b->n_chars[left] > 255 ? 255 : b->n_chars[left];
    uint32_t nr = b->n_chars[right] > 255 ? 255 : b->n_chars[right];
    /* 24 bits of score, 8 and 8 of lengths, 24 of id (vocab.c bounds ids by that) */
    return (uint64_t)b->score_order[id] << 40 | (uint64_t)(255 - nl) << 32 | (uint64_t)(255 - nr) << 24 |
           (uint32_t)id;
}

uint64_t bpe_rank(const struct bpe *b, char *joined, int32_t left, int32_t right, int32_t *merged)
{
    if (b->score_order)
        return rank_by_score(b, joined, left, right, merged);
    uint64_t value;
    if (!u64map_find(&b->merges, pair_key(left, right), &value))
        return RANK_NONE;
    *merged = (int32_t)(uint32_t)value;
    return value >> 32;
}
