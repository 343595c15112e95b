/* The small tree between a text that is read front to back (GBNF, the pattern of
 * a JSON schema) and instructions, which are made back to front.  Nodes are
 * numbers; 0 is the empty text.  Private to the front ends. */
#ifndef FORGE_TEXT_GRAMMAR_TREE_H
#define FORGE_TEXT_GRAMMAR_TREE_H

#include "text/grammar_prog.h"

enum tree_kind { TREE_EMPTY, TREE_CHARS, TREE_SEQ, TREE_ALT, TREE_REPEAT, TREE_RULE };

struct tree_node {
    enum tree_kind kind;
    uint32_t a, b;     /* children; CHARS: number of its ranges; RULE: the rule; REPEAT: its child */
    uint32_t min, max; /* REPEAT; max GRAM_MANY = without limit */
};

struct tree {
    struct tree_node *node;
    size_t n, cap;
    struct gram_ranges *chars; /* normal */
    size_t n_chars, cap_chars;
    bool failed; /* no memory; everything after does nothing */
};

void tree_init(struct tree *t);
void tree_fini(struct tree *t);
uint32_t tree_chars(struct tree *t, struct gram_ranges *r); /* r is normal, and taken over */
uint32_t tree_seq(struct tree *t, uint32_t a, uint32_t b);
uint32_t tree_alt(struct tree *t, uint32_t a, uint32_t b);
uint32_t tree_repeat(struct tree *t, uint32_t a, uint32_t min, uint32_t max);
uint32_t tree_rule(struct tree *t, uint32_t rule);

/* Instructions for the node, then `next`; `chars` makes those of a class of characters (gram_chars, or as a JSON
 * string spells them). */
typedef uint32_t tree_chars_fn(struct gram_build *b, const struct gram_ranges *r, uint32_t next);
uint32_t tree_emit(const struct tree *t, struct gram_build *b, uint32_t node, uint32_t next, tree_chars_fn *chars);

#endif
