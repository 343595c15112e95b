/* The tree of a grammar's text, and its instructions.  A sequence leans to the
 * left, alternatives lean to the right, so that both are gone through without
 * recursion; groups are what recursion goes into, and the parsers bound them. */
#include "text/grammar_tree.h"

#include <stdlib.h>

#include "base/mem.h"

static uint32_t put(struct tree *t, struct tree_node node)
{
    struct tree_node *grown = t->failed ? NULL : mem_grow(t->node, &t->cap, t->n + 1, sizeof *grown);
    if (!grown) {
        t->failed = true;
        return 0;
    }
    t->node = grown;
    grown[t->n] = node;
    return (uint32_t)t->n++;
}

void tree_init(struct tree *t)
{
    *t = (struct tree){0};
    put(t, (struct tree_node){.kind = TREE_EMPTY});
}

void tree_fini(struct tree *t)
{
    for (size_t i = 0; i < t->n_chars; i++)
        free(t->chars[i].v);
    free(t->chars);
    free(t->node);
    *t = (struct tree){0};
}

uint32_t tree_chars(struct tree *t, struct gram_ranges *r)
{
    struct gram_ranges *grown = t->failed ? NULL : mem_grow(t->chars, &t->cap_chars, t->n_chars + 1, sizeof *grown);
    if (!grown) {
        free(r->v);
        t->failed = true;
        return 0;
    }
    t->chars = grown;
    grown[t->n_chars] = *r;
    return put(t, (struct tree_node){.kind = TREE_CHARS, .a = (uint32_t)t->n_chars++});
}

uint32_t tree_seq(struct tree *t, uint32_t a, uint32_t b)
{
    return a == 0 ? b : b == 0 ? a : put(t, (struct tree_node){.kind = TREE_SEQ, .a = a, .b = b});
}

uint32_t tree_alt(struct tree *t, uint32_t a, uint32_t b)
{
    return put(t, (struct tree_node){.kind = TREE_ALT, .a = a, .b = b});
}

uint32_t tree_repeat(struct tree *t, uint32_t a, uint32_t min, uint32_t max)
{
    return a == 0 ? 0 : put(t, (struct tree_node){.kind = TREE_REPEAT, .a = a, .min = min, .max = max});
}

uint32_t tree_rule(struct tree *t, uint32_t rule)
{
    return put(t, (struct tree_node){.kind = TREE_RULE, .a = rule});
}

/* `?`, `*` and `+` are loops of instructions; counts need a rule, whose places are told apart by them. */
static uint32_t emit_repeat(const struct tree *t, struct gram_build *b, const struct tree_node *n, uint32_t next,
                            tree_chars_fn *chars)
{
    if (n->max == 1)
        return n->min == 1 ? tree_emit(t, b, n->a, next, chars) : gram_or(b, tree_emit(t, b, n->a, next, chars), next);
    if (n->max == GRAM_MANY && n->min <= 1) {
        uint32_t loop = gram_hole(b), body = tree_emit(t, b, n->a, loop, chars);
        gram_fill(b, loop, body, next);
        return n->min == 1 ? body : loop;
    }
    uint32_t rule = gram_rule(b);
    gram_define(b, rule, tree_emit(t, b, n->a, GRAM_AT_END, chars));
    return gram_repeat(b, rule, n->min, n->max, next);
}

static uint32_t emit_alt(const struct tree *t, struct gram_build *b, const struct tree_node *n, uint32_t next,
                         tree_chars_fn *chars)
{
    uint32_t first = tree_emit(t, b, n->a, next, chars), out = first;
    while (t->node[n->b].kind == TREE_ALT) {
        n = &t->node[n->b];
        out = gram_or(b, tree_emit(t, b, n->a, next, chars), out);
    }
    return gram_or(b, tree_emit(t, b, n->b, next, chars), out);
}

uint32_t tree_emit(const struct tree *t, struct gram_build *b, uint32_t node, uint32_t next, tree_chars_fn *chars)
{
    const struct tree_node *n = &t->node[node];
    for (; n->kind == TREE_SEQ; n = &t->node[n->a])
        next = tree_emit(t, b, n->b, next, chars);
    switch (n->kind) {
    case TREE_CHARS:
        return chars(b, &t->chars[n->a], next);
    case TREE_ALT:
        return emit_alt(t, b, n, next, chars);
    case TREE_REPEAT:
        return emit_repeat(t, b, n, next, chars);
    case TREE_RULE:
        return gram_call(b, n->a, next);
    default:
        return next;
    }
}
