/* What a grammar is while texts follow it: its automaton, the sets of stacks met
 * so far with their transitions, the masks worth keeping.  Private to the files
 * of the grammar. */
#ifndef FORGE_TEXT_GRAMMAR_STATE_H
#define FORGE_TEXT_GRAMMAR_STATE_H

#include "text/grammar_stacks.h"

/* A place reached while a set is closed under what takes no byte.  fresh: nothing was taken since its rule began. */
struct gram_item { uint64_t key; uint32_t below, slot; bool fresh, queued; };

/* What tokens do from a set of places while they stay above what lies below these: see grammar_mask.c. */
struct gram_inner {
    uint32_t node;   /* the places above STACK_OPEN; STACK_NONE = unused */
    uint64_t *mask;  /* tokens that stay above, or end where they leave */
    uint32_t *exit;  /* [n_exit] nodes of the trie where they leave */
    size_t n_exit;
    uint64_t used;   /* when, by the count of masks */
};
enum { GRAM_INNERS = 128 };

struct grammar {
    struct gram_prog p;
    struct stacks s;
    uint32_t start;
    uint32_t *rows; /* [n_row, n_class] of nodes; ROW_UNKNOWN = not computed yet; row 0 leads to nothing */
    size_t n_row, cap_row;
    struct gram_item *item;
    size_t n_item, cap_item;
    uint32_t *item_slot; /* hash table, index + 1 */
    size_t n_item_slot;
    uint32_t *todo;
    size_t n_todo, cap_todo;
    unsigned flags; /* of the set that is being closed */
    struct matcher *matchers;
    /* masks */
    struct gram_inner inner[GRAM_INNERS];
    const struct token_trie *trie; /* that these are of */
    uint64_t n_masks;
    uint32_t *walk; /* [trie's height + 1] rows of the nodes on the way */
    uint32_t *exit;
    size_t n_exit, cap_exit;
};
#define ROW_UNKNOWN UINT32_MAX

/* What a set is made of: places with what lies below them are put in, closed becomes the node. */
void gram_close_begin(struct grammar *g);
void gram_close_put(struct grammar *g, uint64_t key, bool fresh, uint32_t below);
uint32_t gram_close(struct grammar *g);
/* The node after one more byte. */
uint32_t gram_step(struct grammar *g, uint32_t node, unsigned byte);
/* The node's row of transitions; 0 also where memory is short, and g->s.rc tells. */
uint32_t gram_row(struct grammar *g, uint32_t node);
uint32_t gram_step_row(struct grammar *g, uint32_t node, uint32_t row, unsigned byte_class);
/* Before each question: forgets what no matcher needs where that is much.  0, or the error. */
int gram_prepare(struct grammar *g, struct err *err);
int gram_failed(struct grammar *g, struct err *err);
void gram_forget_masks(struct grammar *g);

static inline uint64_t gram_key(uint32_t place, uint32_t count)
{
    return (uint64_t)place << 32 | count;
}

#endif
