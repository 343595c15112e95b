/* A grammar, and what a text has made of it so far.
 *
 * The text is bytes, of which a grammar accepts whole UTF-8 characters alone.
 * Grammars come from GBNF or from a JSON schema (json_schema.h); a matcher is a
 * place in one, one number, cheap to copy.  The mask says which tokens of a
 * vocabulary may come next.  One thread at a time uses a grammar and its
 * matchers: what they meet is kept in the grammar, in bounded memory. */
#ifndef FORGE_TEXT_GRAMMAR_H
#define FORGE_TEXT_GRAMMAR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct grammar;
struct token_trie;

/* GBNF: rules `name ::= ...`, "literals", [classes], [^classes], `.`, groups, `|`, `* + ?`, `{m}`, `{m,}`, `{m,n}`,
 * # comments; the text begins with `root`.  A rule ends with its line, but inside a group, after `::=` and around
 * `|`.  Escapes: \n \r \t \\ \" \[ \] \- \^, \xHH \uHHHH \UHHHHHHHH (code points).  Errors give line and column.
 * Refused: left recursion, rules that nothing defines or that are defined twice, what stands for no finite text. */
int grammar_from_gbnf(struct grammar **out, const char *text, size_t len, struct err *err);
void grammar_free(struct grammar *g); /* NULL is safe; its matchers have ended */

struct matcher {
    struct grammar *g;
    uint32_t state;
    struct matcher *next, *prev; /* of the same grammar */
};

/* At the beginning of a text.  A matcher stays where it is in memory until matcher_end. */
void matcher_begin(struct matcher *m, struct grammar *g);
void matcher_end(struct matcher *m); /* all zeros is safe */
void matcher_copy(struct matcher *out, const struct matcher *m); /* out was not begun */
/* 1 = the text goes on with these bytes; 0 = the grammar does not allow them, and m stays; ERR_LIMIT or ERR_NOMEM
 * where more is possible at once than fits. */
int matcher_accept(struct matcher *m, const char *bytes, size_t n, struct err *err);
bool matcher_may_end(const struct matcher *m); /* the text may be complete */
bool matcher_may_go_on(const struct matcher *m); /* a byte may follow */

/* Sets bit id % 64 of mask[id / 64] for every token whose bytes may come next, clears all others; the number of
 * tokens.  skip_space: a space at the start of a token is not part of the text (see token_trie_skips_space). */
int64_t grammar_mask(struct matcher *m, const struct token_trie *t, bool skip_space, uint64_t *mask, struct err *err);

#endif
