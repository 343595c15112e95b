/* The table of tokens: id to spelling and back.  Owns the spellings.
 * Which tokens BPE may produce and which are found in a text is kept in flags
 * and acted on by others. */
#ifndef FORGE_TEXT_VOCAB_H
#define FORGE_TEXT_VOCAB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/hash.h"
#include "base/mem.h"

enum token_flags {
    TOKEN_MODEL = 1,   /* BPE may produce it */
    TOKEN_ADDED = 2,   /* found in the text before BPE */
    TOKEN_SPECIAL = 4, /* a control token: skipped on request when decoding */
    TOKEN_BYTE = 8     /* stands for one byte; BPE never merges into it */
};

struct token {
    const char *s; /* NULL = no token has this id */
    uint32_t len;
    uint32_t flags;
};

struct vocab {
    struct arena text;
    struct strmap ids;
    struct token *v;
    int32_t n; /* highest id + 1 */
};

void vocab_init(struct vocab *v);
void vocab_fini(struct vocab *v);
/* Room for ids below n_ids and about n_entries spellings.  Refuses ids so far above the number of
 * entries that a small file would ask for a large table. */
int vocab_reserve(struct vocab *v, int64_t n_ids, size_t n_entries, const char *name, struct err *err);
/* The last spelling of an id, and the last id of a spelling, win. */
int vocab_put(struct vocab *v, int32_t id, const char *s, size_t len, uint32_t flags, const char *name,
              struct err *err);
/* -1 = no such spelling among tokens that have one of `flags`. */
int32_t vocab_find(const struct vocab *v, const char *s, size_t len, uint32_t flags);
const struct token *vocab_at(const struct vocab *v, int32_t id); /* NULL = none */

#endif
