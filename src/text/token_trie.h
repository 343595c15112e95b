/* The tokens of a vocabulary as a tree of their bytes, for looking at all that
 * begin alike at once.  Made once, read by any number of threads.
 *
 * Control tokens, tokens without bytes and ids without a token are not in it. */
#ifndef FORGE_TEXT_TOKEN_TRIE_H
#define FORGE_TEXT_TOKEN_TRIE_H

#include "text/tokenizer.h"

/* Nodes in depth-first order, byte by byte; the root is not among them. */
struct trie_node {
    uint32_t end;    /* the first node behind all that begin with this one */
    int32_t token;   /* an id that ends here, -1 = none; token_trie.same has others */
    uint16_t height; /* bytes up to here, 1 and more */
    uint8_t byte;
    bool has_same;   /* others have the same bytes */
};

struct token_trie {
    struct trie_node *node;
    size_t n_node;
    int32_t *same; /* [n_ids] another id with the same bytes, -1 = none */
    int32_t n_ids;
    int height;    /* of the longest */
    char *text;    /* the bytes of all, one behind the other */
    size_t *at;    /* [n_ids + 1] */
};

/* Ids below n_ids (a model may have more or fewer than the tokenizer). */
int token_trie_new(struct token_trie **out, const struct tokenizer *t, int64_t n_ids, struct err *err);
/* The same from strings: token i is text[i], NULL = none.  For tests and tools. */
struct token_text { const char *s; size_t len; };
int token_trie_from_texts(struct token_trie **out, const struct token_text *text, int64_t n_ids, struct err *err);
void token_trie_free(struct token_trie *t);
/* The bytes of a token; *len is 0 for those that are not in the tree. */
const char *token_trie_bytes(const struct token_trie *t, int32_t id, size_t *len);

/* Appends what the id adds to a text that has begun, as bytes, which may be a part of a character; false for control
 * tokens and for ids without a token. */
bool token_bytes(const struct tokenizer *t, int32_t id, struct buf *out, struct err *err);
/* Whether the decoder drops a space at the beginning of what follows this prompt (some do at the start of a text). */
int token_trie_skips_space(bool *out, const struct tokenizer *t, const int32_t *prompt, size_t n, bool skip_special,
                           struct err *err);

#endif
