/* Byte-pair encoding of one word: characters, then the merge of lowest rank (leftmost among
 * equals) until none applies.  O(n log n) in the length of the word.
 *
 * Two sources of ranks: a list of merges, or the scores of a SentencePiece vocabulary. */
#ifndef FORGE_TEXT_BPE_H
#define FORGE_TEXT_BPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/hash.h"
#include "text/tokenizer.h"
#include "text/vocab.h"

#define BPE_CHARS 0x800 /* characters of one or two bytes are looked up without hashing */

struct bpe {
    const struct vocab *vocab;
    struct u64map merges;  /* left id << 32 | right id  ->  rank << 32 | new id */
    uint32_t *score_order; /* [vocab.n] 0 = highest score; NULL = use merges */
    uint32_t *n_chars;     /* [vocab.n] with scores: characters of each token */
    size_t piece_max;      /* with scores: bytes of the longest token */
    bool byte_fallback;    /* an unknown character becomes <0xHH> tokens */
    bool fuse_unk;         /* neighbouring unknown characters give one unk_id */
    bool ignore_merges;    /* a word that is a token needs no merges */
    int32_t unk_id;        /* -1 = unknown characters vanish */
    int32_t byte_id[256];  /* of <0xHH>, -1 = none */
    int32_t char_id[BPE_CHARS];
};

void bpe_init(struct bpe *b, const struct vocab *v);
void bpe_fini(struct bpe *b);
/* Fills the look-up tables; to be called once the vocabulary is complete. */
void bpe_prepare(struct bpe *b);
/* The merge of rank `rank` (from 0); both parts and the whole must be tokens.  Of two for the same
 * pair the one added first stays. */
int bpe_add_merge(struct bpe *b, uint32_t rank, const char *left, size_t left_len, const char *right,
                  size_t right_len, const char *name, struct err *err);
/* Ranks from scores [vocab.n], higher first. */
int bpe_use_scores(struct bpe *b, const float *scores, const char *name, struct err *err);

/* Memory for words, reused from one to the next. */
struct bpe_symbol;
struct bpe_work {
    char *joined; /* with scores: the spelling of a pair */
    size_t cap_joined;
    struct bpe_symbol *sym;
    size_t cap_sym;
    struct bpe_merge *heap;
    size_t n_heap, cap_heap;
    size_t n_lost; /* characters that nothing stands for, which vanished, ... */
    uint32_t lost; /* ... and the first of them */
};
void bpe_work_fini(struct bpe_work *w);

/* Appends the ids of one word (valid UTF-8). plain: a word may not turn into a special token as a
 * whole. */
int bpe_encode(const struct bpe *b, struct bpe_work *w, const char *s, size_t len, bool plain,
               struct ids *out, struct err *err);

#endif
