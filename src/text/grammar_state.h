/* What a grammar is while texts follow it: its automaton, the sets of stacks met
 * so far with their transitions, the masks worth keeping.  Private to the files
 * of the grammar. */
#ifndef FORGE_TEXT_GRAMMAR_STATE_H
#define FORGE_TEXT_GRAMMAR_STATE_H

#include "text/grammar_stacks.h"

/* A place reached while a set is closed under what takes no byte.  fresh: nothing was taken since its rule began. */
struct gram_item {
    uint64_t key;
    uint32_t below; /* from where it was followed */
    uint32_t more;  /* number + 1 in g->more of what came since; it is queued where there is something */
    uint32_t slot;
    bool fresh;
};
struct gram_more { uint32_t below, next; }; /* next: number + 1 */

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
    uint32_t *rows;     /* [n_row, n_class] transitions: row of the next node, with its flags; row 0 leads to nothing */
    uint32_t *row_node; /* [n_row] */
    size_t n_row, cap_row, cap_row_node;
    struct gram_item *item;
    size_t n_item, cap_item;
    uint32_t *item_slot; /* hash table, index + 1 */
    size_t n_item_slot;
    struct gram_more *more;
    size_t n_more, cap_more;
    uint32_t *todo; /* first in, first out */
    size_t n_todo, cap_todo;
    uint32_t *sum;  /* scratch */
    size_t cap_sum;
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
#define ROW_UNKNOWN UINT32_MAX /* not computed yet */
#define ROW_OPEN 0x80000000u    /* STACK_OPEN is uncovered */
#define ROW_LAST 0x40000000u    /* no byte may follow */
#define ROW_NUMBER 0x3FFFFFFFu

/* What a set is made of: places with what lies below them are put in, closed becomes the node. */
void gram_close_begin(struct grammar *g);
void gram_close_put(struct grammar *g, uint64_t key, bool fresh, uint32_t below);
uint32_t gram_close(struct grammar *g);
/* The node after one more byte. */
uint32_t gram_step(struct grammar *g, uint32_t node, unsigned byte);
/* The node's row of transitions; 0 also where memory is short, and g->s.rc tells. */
uint32_t gram_row(struct grammar *g, uint32_t node);
/* A transition that is not known. */
uint32_t gram_find_next(struct grammar *g, uint32_t row, unsigned byte_class);
/* Before each question: forgets what no matcher needs where that is much.  0, or the error. */
int gram_prepare(struct grammar *g, struct err *err);
int gram_failed(struct grammar *g, struct err *err);
void gram_forget_masks(struct grammar *g);

static inline uint32_t gram_next(struct grammar *g, uint32_t row, unsigned byte_class)
{
    uint32_t next = g->rows[(size_t)row * (size_t)g->p.n_class + byte_class];
    return next != ROW_UNKNOWN ? next : gram_find_next(g, row, byte_class);
}

static inline uint64_t gram_key(uint32_t place, uint32_t count)
{
    return (uint64_t)place << 32 | count;
}

#endif
