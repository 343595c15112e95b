/* Sets of stacks, each set a number: what a recursive automaton may be doing.
 *
 * A node is a set of stacks by their topmost places: place -> node of what lies
 * below; flags say that the empty stack is in it.  Equal sets are one node
 * (hash-consing), so stacks with common parts share them, and what a set leads
 * to can be noted beside it.  Node 0 is no stack at all, node 1 the empty one,
 * node 2 what is not known of (see grammar_mask.c).  Private to the grammar. */
#ifndef FORGE_TEXT_GRAMMAR_STACKS_H
#define FORGE_TEXT_GRAMMAR_STACKS_H

#include "text/grammar.h"
#include "text/grammar_prog.h"

enum { STACK_NONE, STACK_EMPTY, STACK_OPEN, STACK_FIXED };
enum { NODE_EMPTY = 1, NODE_OPEN = 2 }; /* flags */

struct stack_entry { uint64_t key; uint32_t below; }; /* key: place << 32 | count */
struct stack_node {
    uint32_t first, n; /* entries, by rising key */
    uint32_t row;      /* of transitions, 0 = none yet */
    uint32_t hash;
    uint16_t depth;    /* of the highest stack */
    uint8_t flags;
};

#define STACK_DEPTH_MAX 1000 /* rules within rules; a rule that would go deeper cannot be entered */

struct stacks {
    struct stack_node *node;
    size_t n_node, cap_node;
    struct stack_entry *entry;
    size_t n_entry, cap_entry;
    uint32_t *slot; /* hash table of nodes, 0 = free */
    size_t n_slot;
    struct stack_union { uint32_t a, b, sum; } *sums; /* what was united last */
    size_t work;                                      /* since it was reset */
    struct stack_entry *list; /* of the node being made, on a stack: unite works within unite */
    size_t n_list, cap_list;
    int rc;                   /* ERR_NOMEM or ERR_LIMIT, until it is reset */
};

bool stacks_init(struct stacks *s);
void stacks_fini(struct stacks *s);
/* The node of list[from, n_list), sorted and without double keys, which are taken off the list. */
uint32_t stacks_node(struct stacks *s, size_t from, unsigned flags);
uint32_t stacks_push(struct stacks *s, uint64_t key, uint32_t below);
uint32_t stacks_unite(struct stacks *s, uint32_t a, uint32_t b);
void stacks_list(struct stacks *s, uint64_t key, uint32_t below); /* appends to the list */
size_t stacks_bytes(const struct stacks *s);

#endif
