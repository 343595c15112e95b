/* Added tokens: strings that are found in a text before anything else is done with it.
 * Leftmost, then longest; flags as the tokenizers library has them.
 * Knows ids and spellings, not the vocabulary they belong to. */
#ifndef FORGE_TEXT_ADDED_H
#define FORGE_TEXT_ADDED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/hash.h"
#include "text/pieces.h"

enum added_flags {
    ADDED_SPECIAL = 1,
    ADDED_SINGLE_WORD = 2, /* no word character may touch it */
    ADDED_LSTRIP = 4,      /* takes the white space before it along */
    ADDED_RSTRIP = 8,      /* and after it */
    ADDED_NORMALIZED = 16  /* is looked for in the normalised text */
};

struct added_token {
    int32_t id;
    unsigned flags;
};

/* One tree of spellings; node 0 is the root. */
struct added_tree {
    struct u64map edges; /* node << 8 | byte  ->  node */
    int32_t *token;      /* [n_nodes] index of the token that ends here, -1 = none */
    size_t n_nodes, cap_nodes;
};

struct added {
    struct added_token *v;
    size_t n, cap;
    struct added_tree raw, normalized;
    bool normalized_special; /* there are special tokens in the latter */
};

void added_init(struct added *a);
void added_fini(struct added *a);
/* `content` as it will stand in the text: normalised where the flag says so.  Empty: ignored. */
int added_put(struct added *a, int32_t id, unsigned flags, const char *content, size_t len, const char *name,
              struct err *err);
/* Cuts s[0..len) into found tokens and text between, appended to out.  plain: special tokens are
 * passed over and stay text.  marks (may be NULL): [len], 1 = this byte is part of no special token; then one that
 * begins before such a byte hides no other, and no token takes away the start of a special one. */
int added_split(const struct added *a, bool normalized, bool plain, const char *s, const char *marks, size_t len, bool first,
                struct pieces *out, struct err *err);

#endif
