/* Which tokens may come next: the vocabulary's tree is walked with the automaton,
 * and where a byte is not allowed all that begin so are passed over.
 *
 * What a token does depends mostly on the topmost place: most tokens within a
 * string neither end it nor ask what comes after.  So a set is parted by what
 * lies below its places; each part is walked above STACK_OPEN, a stack that is
 * not known, and the walk notes where it is uncovered: these few nodes of the
 * tree, the exits, are gone on from with what really lies there.  Where such a
 * walk was long, its mask and exits are kept for the next time.  A token is
 * allowed when one of the stacks allows it, so the parts are simply united. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "text/grammar_state.h"
#include "text/token_trie.h"

#define LONG_WALK 1024 /* nodes of the tree: what is worth keeping */
#define INNERS_BYTES ((size_t)4 << 20)

struct walk {
    struct grammar *g;
    const struct token_trie *t;
    uint64_t *mask;
    bool exits; /* are to be noted */
    size_t n;   /* nodes seen */
};

static void note_exit(struct grammar *g, uint32_t at)
{
    uint32_t *grown = mem_grow(g->exit, &g->cap_exit, g->n_exit + 1, sizeof *grown);
    if (!grown) {
        g->s.rc = ERR_NOMEM;
        return;
    }
    g->exit = grown;
    grown[g->n_exit++] = at;
}

static void allow(uint64_t *mask, int32_t id)
{
    mask[id / 64] |= (uint64_t)1 << (id % 64);
}

/* Nodes [from, to) of the tree, which are siblings with all below them, from a set of stacks. */
static void walk(struct walk *w, uint32_t from, uint32_t to, uint32_t state)
{
    struct grammar *g = w->g;
    const struct trie_node *t = w->t->node;
    uint32_t *on = g->walk; /* [height] row of the set there */
    if (from < to)
        on[t[from].height - 1] = gram_row(g, state);
    for (uint32_t i = from; i < to && g->s.rc == 0;) {
        uint32_t next = gram_next(g, on[t[i].height - 1], g->p.class_of[t[i].byte]);
        w->n++;
        if (next == 0) {
            i = t[i].end;
            continue;
        }
        if (t[i].token >= 0)
            allow(w->mask, t[i].token);
        for (int32_t id = t[i].token; t[i].has_same && id >= 0; id = w->t->same[id])
            allow(w->mask, id);
        if (next & ROW_OPEN && w->exits && t[i].end > i + 1)
            note_exit(g, i);
        on[t[i].height] = next & ROW_NUMBER;
        i = next & ROW_LAST ? t[i].end : i + 1;
    }
}

/* ---- parts of a set, above what is not known ---- */

/* A repetition that is far from both its bounds, by the bytes of any token, is as any other such. */
static uint64_t near_bounds(const struct grammar *g, const struct token_trie *t, uint64_t key)
{
    const struct gram_repeat *r = &g->p.repeat[g->p.insn[key >> 32].a];
    uint32_t count = (uint32_t)key, min = g->p.rule[r->rule].nullable ? 0 : r->min, far = (uint32_t)t->height;
    if (count < min)
        return min - count > far ? gram_key((uint32_t)(key >> 32), 0) : key;
    return r->max != GRAM_MANY && r->max - count > far ? gram_key((uint32_t)(key >> 32), min) : key;
}

/* What of `below` a part's own walk needs to know, *rest is what it does not: a repetition stays. */
static uint32_t open_stack(struct grammar *g, const struct token_trie *t, uint32_t below, uint32_t *rest)
{
    const struct stack_node *n = &g->s.node[below];
    *rest = below;
    if (n->n != 1 || n->flags)
        return STACK_OPEN;
    struct stack_entry e = g->s.entry[n->first];
    if (g->p.insn[e.key >> 32].op != GRAM_REPEAT)
        return STACK_OPEN;
    *rest = e.below;
    return stacks_push(&g->s, near_bounds(g, t, e.key), STACK_OPEN);
}

/* The places of `state` that are above `below`, from place i on. */
static uint32_t open_part(struct grammar *g, const struct token_trie *t, uint32_t state, uint32_t i, uint32_t *rest)
{
    uint32_t below = g->s.entry[g->s.node[state].first + i].below, open = open_stack(g, t, below, rest);
    g->s.n_list = 0;
    for (; i < g->s.node[state].n; i++) {
        struct stack_entry e = g->s.entry[g->s.node[state].first + i];
        if (e.below == below)
            stacks_list(&g->s, e.key, open);
    }
    return stacks_node(&g->s, 0, 0);
}

static bool is_first_of_part(const struct grammar *g, uint32_t state, uint32_t i)
{
    const struct stack_entry *e = g->s.entry + g->s.node[state].first;
    for (uint32_t k = 0; k < i; k++)
        if (e[k].below == e[i].below)
            return false;
    return true;
}

/* ---- what is kept ---- */

static struct gram_inner *find_inner(struct grammar *g, uint32_t node)
{
    for (int i = 0; i < GRAM_INNERS; i++)
        if (g->inner[i].node == node && g->inner[i].mask) {
            g->inner[i].used = g->n_masks;
            return &g->inner[i];
        }
    return NULL;
}

static struct gram_inner *oldest_inner(struct grammar *g, size_t mask_bytes)
{
    size_t n = INNERS_BYTES / mask_bytes;
    n = n < 8 ? 8 : n > GRAM_INNERS ? GRAM_INNERS : n;
    struct gram_inner *old = &g->inner[0];
    for (size_t i = 1; i < n; i++)
        if (g->inner[i].used < old->used)
            old = &g->inner[i];
    return old;
}

/* Keeps a part's mask and exits, where there is memory. */
static void keep_inner(struct grammar *g, uint32_t node, uint64_t *mask, size_t words)
{
    uint32_t *exit = mem_array(g->n_exit, sizeof *exit);
    struct gram_inner *to = oldest_inner(g, words * sizeof *mask);
    if (!exit) {
        free(mask);
        return;
    }
    if (g->n_exit)
        memcpy(exit, g->exit, g->n_exit * sizeof *exit);
    free(to->mask);
    free(to->exit);
    *to = (struct gram_inner){node, mask, exit, g->n_exit, g->n_masks};
}

/* ---- the mask ---- */

static void leave_by(struct walk *w, const uint32_t *exit, size_t n, uint32_t rest)
{
    struct grammar *g = w->g;
    if (n == 0 || rest == STACK_EMPTY)
        return;
    gram_close_begin(g);
    gram_close_put(g, gram_key(GRAM_AT_END, 0), false, rest);
    uint32_t after = gram_close(g);
    w->exits = false;
    for (size_t i = 0; i < n && after != STACK_NONE && g->s.rc == 0; i++)
        walk(w, exit[i] + 1, w->t->node[exit[i]].end, after);
}

static void unite(uint64_t *mask, const uint64_t *more, size_t words)
{
    for (size_t i = 0; i < words; i++)
        mask[i] |= more[i];
}

static void mask_part(struct walk *w, uint32_t state, uint32_t i, size_t words)
{
    struct grammar *g = w->g;
    uint64_t *all = w->mask;
    uint32_t rest, node = open_part(g, w->t, state, i, &rest);
    struct gram_inner *known = node == STACK_NONE ? NULL : find_inner(g, node);
    if (known) {
        unite(all, known->mask, words);
        leave_by(w, known->exit, known->n_exit, rest);
        return;
    }
    uint64_t *own = mem_array(words, sizeof *own);
    if (!own)
        g->s.rc = ERR_NOMEM;
    if (g->s.rc) {
        free(own);
        return;
    }
    w->mask = own;
    w->exits = true;
    w->n = g->n_exit = 0;
    walk(w, 0, (uint32_t)w->t->n_node, node);
    w->mask = all;
    unite(all, own, words);
    leave_by(w, g->exit, g->n_exit, rest);
    if (w->n > LONG_WALK && g->s.rc == 0)
        keep_inner(g, node, own, words);
    else
        free(own);
}

/* As at the start of a text whose first space the decoder drops: what comes after a space begins there, too. */
static void mask_start(struct walk *w, uint32_t state)
{
    const struct trie_node *t = w->t->node;
    uint32_t n = (uint32_t)w->t->n_node, i = 0;
    while (i < n && t[i].byte != ' ')
        i = t[i].end;
    walk(w, 0, i, state);
    if (i == n)
        return;
    walk(w, i + 1, t[i].end, state);
    walk(w, t[i].end, n, state);
}

static int64_t count_bits(const uint64_t *v, size_t n)
{
    int64_t sum = 0;
    for (size_t i = 0; i < n; i++) { /* sums of 1, 2, 4 bits, then of bytes */
        uint64_t x = v[i] - (v[i] >> 1 & 0x5555555555555555u);
        x = (x & 0x3333333333333333u) + (x >> 2 & 0x3333333333333333u);
        x = (x + (x >> 4)) & 0x0F0F0F0F0F0F0F0Fu;
        sum += (int64_t)(x * 0x0101010101010101u >> 56);
    }
    return sum;
}

static int use_trie(struct grammar *g, const struct token_trie *t, struct err *err)
{
    if (g->trie == t)
        return 0;
    gram_forget_masks(g);
    free(g->walk);
    g->trie = NULL;
    g->walk = mem_array((size_t)t->height + 1, sizeof *g->walk);
    if (!g->walk)
        return err_set(err, ERR_NOMEM, "no memory to mask tokens");
    g->trie = t;
    return 0;
}

int64_t grammar_mask(struct matcher *m, const struct token_trie *t, bool skip_space, uint64_t *mask, struct err *err)
{
    struct grammar *g = m->g;
    size_t words = ((size_t)t->n_ids + 63) / 64;
    struct walk w = {.g = g, .t = t, .mask = mask};
    memset(mask, 0, words * sizeof *mask);
    int rc = use_trie(g, t, err);
    rc = rc ? rc : gram_prepare(g, err);
    if (rc)
        return rc;
    g->n_masks++;
    if (skip_space)
        mask_start(&w, m->state);
    else
        for (uint32_t i = 0; i < g->s.node[m->state].n && g->s.rc == 0; i++)
            if (is_first_of_part(g, m->state, i))
                mask_part(&w, m->state, i, words);
    rc = gram_failed(g, err);
    return rc ? rc : count_bits(mask, words);
}
