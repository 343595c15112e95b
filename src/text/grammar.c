/* A text follows a grammar: one byte more, from one set of stacks to the next.
 *
 * A place is an instruction, with a count where it repeats.  A set holds the
 * places that take a byte, each above the places to return to.  After a byte the
 * set is closed under what takes none: alternatives, rules that begin and end.
 * A rule is left only after a byte of its own; that it may be empty is seen where
 * it is entered, so that no repetition of nothing goes on for ever.  Each set is
 * one number and its transitions are kept, so that known ways cost a look-up:
 * an automaton that is made as texts need it. */
#include "text/grammar.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "text/grammar_state.h"

#define KEEP_BYTES ((size_t)8 << 20)  /* above it, what no matcher needs is forgotten */
#define MOST_BYTES ((size_t)32 << 20) /* that one question may need */

/* ---- closing a set ---- */

void gram_close_begin(struct grammar *g)
{
    for (size_t i = 0; i < g->n_item; i++)
        g->item_slot[g->item[i].slot] = 0;
    g->n_item = g->n_todo = g->n_more = 0;
    g->flags = 0;
}

static size_t item_slot(const struct grammar *g, uint64_t key, bool fresh)
{
    size_t at = hash_u64(key ^ (fresh ? 1ull << 63 : 0)) & (g->n_item_slot - 1);
    while (g->item_slot[at] && (g->item[g->item_slot[at] - 1].key != key || g->item[g->item_slot[at] - 1].fresh != fresh))
        at = (at + 1) & (g->n_item_slot - 1);
    return at;
}

static bool reserve_items(struct grammar *g)
{
    struct gram_item *item = mem_grow(g->item, &g->cap_item, g->n_item + 1, sizeof *item);
    g->item = item ? item : g->item;
    uint32_t *todo = mem_grow(g->todo, &g->cap_todo, g->n_todo + 1, sizeof *todo);
    g->todo = todo ? todo : g->todo;
    struct gram_more *more = mem_grow(g->more, &g->cap_more, g->n_more + 1, sizeof *more);
    g->more = more ? more : g->more;
    if (!item || !todo || !more)
        return false;
    if (2 * (g->n_item + 1) <= g->n_item_slot)
        return true;
    size_t n = g->n_item_slot ? 2 * g->n_item_slot : 256;
    uint32_t *slot = mem_array(n, sizeof *slot);
    if (!slot)
        return false;
    free(g->item_slot);
    g->item_slot = slot;
    g->n_item_slot = n;
    for (size_t i = 0; i < g->n_item; i++) {
        g->item[i].slot = (uint32_t)item_slot(g, g->item[i].key, g->item[i].fresh);
        slot[g->item[i].slot] = (uint32_t)i + 1;
    }
    return true;
}

void gram_close_put(struct grammar *g, uint64_t key, bool fresh, uint32_t below)
{
    g->s.work++;
    if (g->s.rc || below == STACK_NONE || g->p.dead[key >> 32])
        return;
    if (!reserve_items(g)) {
        g->s.rc = ERR_NOMEM;
        return;
    }
    size_t at = item_slot(g, key, fresh);
    if (g->item_slot[at] == 0) {
        g->item[g->n_item++] = (struct gram_item){.key = key, .slot = (uint32_t)at, .fresh = fresh};
        g->item_slot[at] = (uint32_t)g->n_item;
    }
    struct gram_item *it = &g->item[g->item_slot[at] - 1];
    if (it->more == 0)
        g->todo[g->n_todo++] = g->item_slot[at] - 1;
    g->more[g->n_more] = (struct gram_more){below, it->more};
    it->more = (uint32_t)++g->n_more;
}

/* Unites what has come with what was there, in pairs, so that many take little more than their number; false: it is
 * nothing new. */
static bool take_more(struct grammar *g, uint32_t i)
{
    struct gram_item *it = &g->item[i];
    size_t n = 1;
    for (uint32_t k = it->more; k > 0; k = g->more[k - 1].next)
        n++;
    uint32_t *sum = mem_grow(g->sum, &g->cap_sum, n, sizeof *sum);
    if (!sum) {
        g->s.rc = ERR_NOMEM;
        return false;
    }
    g->sum = sum;
    sum[0] = it->below;
    for (uint32_t k = it->more, at = 1; k > 0; k = g->more[k - 1].next)
        sum[at++] = g->more[k - 1].below;
    for (; n > 1; n = (n + 1) / 2)
        for (size_t k = 0; k < n; k += 2)
            sum[k / 2] = k + 1 < n ? stacks_unite(&g->s, sum[k], sum[k + 1]) : sum[k];
    it->more = 0;
    bool is_new = sum[0] != it->below;
    it->below = sum[0];
    return is_new;
}

/* Enters a rule; `back` is the place after it, which needs no place on the stack where nothing comes after it. */
static void enter(struct grammar *g, uint32_t rule, uint64_t back, bool is_last, uint32_t below)
{
    if (!is_last && g->s.node[below].depth >= STACK_DEPTH_MAX)
        return;
    if (!is_last)
        below = stacks_push(&g->s, back, below);
    gram_close_put(g, gram_key(g->p.rule[rule].entry, 0), true, below);
}

static void leave(struct grammar *g, uint32_t below)
{
    uint32_t n = g->s.node[below].n;
    g->flags |= g->s.node[below].flags;
    for (uint32_t i = 0; i < n; i++) {
        struct stack_entry e = g->s.entry[g->s.node[below].first + i];
        gram_close_put(g, e.key, false, e.below);
    }
}

static void repeat(struct grammar *g, struct gram_item it)
{
    const struct gram_repeat *r = &g->p.repeat[g->p.insn[it.key >> 32].a];
    uint32_t count = (uint32_t)it.key, min = g->p.rule[r->rule].nullable ? 0 : r->min;
    if (count >= min)
        gram_close_put(g, gram_key(r->next, 0), it.fresh, it.below);
    if (count == r->max)
        return;
    count = r->max == GRAM_MANY && count >= min ? min : count + 1;
    enter(g, r->rule, gram_key((uint32_t)(it.key >> 32), count), count == r->max && r->next == GRAM_AT_END, it.below);
}

static void follow(struct grammar *g, struct gram_item it)
{
    struct gram_insn i = g->p.insn[it.key >> 32];
    switch (i.op) {
    case GRAM_END:
        if (!it.fresh)
            leave(g, it.below);
        break;
    case GRAM_SPLIT:
        gram_close_put(g, gram_key(i.a, 0), it.fresh, it.below);
        gram_close_put(g, gram_key(i.b, 0), it.fresh, it.below);
        break;
    case GRAM_CALL:
        if (g->p.rule[i.a].nullable)
            gram_close_put(g, gram_key(i.b, 0), it.fresh, it.below);
        enter(g, i.a, gram_key(i.b, 0), i.b == GRAM_AT_END, it.below);
        break;
    case GRAM_REPEAT:
        repeat(g, it);
        break;
    default:
        break;
    }
}

static int by_key(const void *x, const void *y)
{
    const struct stack_entry *a = x, *b = y;
    return a->key < b->key ? -1 : a->key > b->key;
}

uint32_t gram_close(struct grammar *g)
{
    struct stacks *s = &g->s;
    for (size_t i = 0; i < g->n_todo && s->rc == 0; i++)
        if (take_more(g, g->todo[i]))
            follow(g, g->item[g->todo[i]]);
    s->n_list = 0;
    for (size_t i = 0; i < g->n_item && s->rc == 0; i++)
        if (g->p.insn[g->item[i].key >> 32].op == GRAM_SET)
            stacks_list(s, g->item[i].key, g->item[i].below);
    size_t n = 0, all = s->n_list;
    if (all > 1)
        qsort(s->list, all, sizeof *s->list, by_key);
    for (size_t i = 0; i < all && s->rc == 0; i++) /* a place may be there twice, fresh and not */
        if (n > 0 && s->list[n - 1].key == s->list[i].key) {
            uint32_t sum = stacks_unite(s, s->list[n - 1].below, s->list[i].below);
            s->list[n - 1].below = sum;
        } else {
            s->list[n++] = s->list[i];
        }
    s->n_list = n;
    return stacks_node(s, 0, g->flags);
}

/* ---- transitions ---- */

uint32_t gram_row(struct grammar *g, uint32_t node)
{
    if (node == STACK_NONE || g->s.node[node].row)
        return g->s.node[node].row;
    size_t width = (size_t)g->p.n_class;
    if (stacks_bytes(&g->s) + g->n_row * width * sizeof *g->rows > MOST_BYTES)
        g->s.rc = g->s.rc ? g->s.rc : ERR_LIMIT;
    uint32_t *rows = mem_grow(g->rows, &g->cap_row, g->n_row + 1, width * sizeof *rows);
    g->rows = rows ? rows : g->rows;
    uint32_t *row_node = mem_grow(g->row_node, &g->cap_row_node, g->n_row + 1, sizeof *row_node);
    g->row_node = row_node ? row_node : g->row_node;
    if (!rows || !row_node)
        g->s.rc = ERR_NOMEM;
    if (g->s.rc)
        return 0;
    for (size_t i = 0; i < width; i++)
        rows[g->n_row * width + i] = g->s.node[node].n > 0 ? ROW_UNKNOWN : 0;
    row_node[g->n_row] = node;
    g->s.node[node].row = (uint32_t)g->n_row;
    return (uint32_t)g->n_row++;
}

uint32_t gram_find_next(struct grammar *g, uint32_t row, unsigned byte_class)
{
    uint32_t node = g->row_node[row];
    gram_close_begin(g);
    for (uint32_t i = 0; i < g->s.node[node].n; i++) {
        struct stack_entry e = g->s.entry[g->s.node[node].first + i];
        struct gram_insn insn = g->p.insn[e.key >> 32];
        if (gram_has(&g->p.set[insn.a], g->p.class_byte[byte_class]))
            gram_close_put(g, gram_key(insn.b, 0), false, e.below);
    }
    uint32_t to = gram_close(g), next = gram_row(g, to);
    if (g->s.rc)
        return 0;
    if (next > 0)
        next |= (g->s.node[to].flags & NODE_OPEN ? ROW_OPEN : 0) | (g->s.node[to].n == 0 ? ROW_LAST : 0);
    g->rows[(size_t)row * (size_t)g->p.n_class + byte_class] = next;
    return next;
}

uint32_t gram_step(struct grammar *g, uint32_t node, unsigned byte)
{
    uint32_t next = gram_next(g, gram_row(g, node), g->p.class_of[byte]); /* moves the arrays */
    return g->row_node[next & ROW_NUMBER];
}

/* ---- memory ---- */

static uint32_t copy_node(struct stacks *to, const struct stacks *from, uint32_t *known, uint32_t node)
{
    if (node < STACK_FIXED || to->rc)
        return node;
    if (known[node])
        return known[node];
    size_t at = to->n_list;
    for (uint32_t i = 0; i < from->node[node].n; i++) {
        struct stack_entry e = from->entry[from->node[node].first + i];
        uint32_t below = copy_node(to, from, known, e.below);
        stacks_list(to, e.key, below);
    }
    known[node] = stacks_node(to, at, from->node[node].flags);
    return known[node];
}

/* Keeps the sets that matchers are at and masks are of; the first of rows goes on. */
static void collect(struct grammar *g)
{
    struct stacks fresh;
    uint32_t *known = mem_array(g->s.n_node, sizeof *known);
    if (!known || !stacks_init(&fresh)) {
        free(known);
        g->s.rc = ERR_NOMEM;
        return;
    }
    uint32_t start = copy_node(&fresh, &g->s, known, g->start);
    for (struct matcher *m = g->matchers; m; m = m->next)
        copy_node(&fresh, &g->s, known, m->state);
    for (int i = 0; i < GRAM_INNERS; i++)
        copy_node(&fresh, &g->s, known, g->inner[i].node);
    if (fresh.rc) {
        g->s.rc = fresh.rc;
        stacks_fini(&fresh);
        free(known);
        return;
    }
    for (uint32_t i = 0; i < STACK_FIXED; i++)
        known[i] = i;
    for (struct matcher *m = g->matchers; m; m = m->next)
        m->state = known[m->state];
    for (int i = 0; i < GRAM_INNERS; i++)
        g->inner[i].node = known[g->inner[i].node];
    g->start = start;
    stacks_fini(&g->s);
    free(known);
    g->s = fresh;
    g->n_row = 1;
}

int gram_failed(struct grammar *g, struct err *err)
{
    int rc = g->s.rc;
    if (rc == ERR_NOMEM)
        err_set(err, rc, "no memory to follow the grammar");
    else if (rc)
        err_set(err, rc, "too much is possible at once by this grammar: it is too ambiguous (more than 32 MiB or 2^22 steps)");
    return rc;
}

int gram_prepare(struct grammar *g, struct err *err)
{
    g->s.rc = 0;
    g->s.work = g->s.n_list = 0;
    if (stacks_bytes(&g->s) + g->n_row * (size_t)g->p.n_class * sizeof *g->rows > KEEP_BYTES)
        collect(g);
    g->s.work = 0;
    return gram_failed(g, err);
}

/* ---- grammars ---- */

void gram_forget_masks(struct grammar *g)
{
    for (int i = 0; i < GRAM_INNERS; i++) {
        free(g->inner[i].mask);
        free(g->inner[i].exit);
        g->inner[i] = (struct gram_inner){0};
    }
}

void grammar_free(struct grammar *g)
{
    if (!g)
        return;
    gram_forget_masks(g);
    gram_prog_fini(&g->p);
    stacks_fini(&g->s);
    free(g->rows);
    free(g->row_node);
    free(g->item);
    free(g->item_slot);
    free(g->more);
    free(g->todo);
    free(g->sum);
    free(g->walk);
    free(g->exit);
    free(g);
}

static int begin(struct grammar *g, struct err *err)
{
    g->rows = mem_grow(NULL, &g->cap_row, 16, (size_t)g->p.n_class * sizeof *g->rows);
    g->row_node = mem_grow(NULL, &g->cap_row_node, 16, sizeof *g->row_node);
    if (!g->rows || !g->row_node || !stacks_init(&g->s))
        return err_set(err, ERR_NOMEM, "no memory for a grammar");
    memset(g->rows, 0, (size_t)g->p.n_class * sizeof *g->rows);
    g->row_node[0] = STACK_NONE;
    g->n_row = 1;
    gram_close_begin(g);
    gram_close_put(g, gram_key(g->p.rule[0].entry, 0), true, STACK_EMPTY);
    g->flags = g->p.rule[0].nullable ? NODE_EMPTY : 0;
    g->start = gram_close(g);
    if (g->s.rc)
        return gram_failed(g, err);
    if (g->s.node[g->start].n == 0)
        return err_set(err, ERR_ARG, "it allows no text but the empty one");
    return 0;
}

int gram_finish(struct grammar **out, struct gram_build *b, gram_name *name, void *user)
{
    struct err *err = b->err;
    struct grammar *g = b->rc ? NULL : mem_array(1, sizeof *g);
    int rc = b->rc;
    *out = NULL;
    if (!rc && !g)
        rc = err_set(err, ERR_NOMEM, "no memory for a grammar");
    if (!rc)
        rc = gram_check(&b->p, name, user, err);
    if (!rc) {
        g->p = b->p;
        b->p = (struct gram_prog){0};
        rc = begin(g, err);
    }
    gram_build_fini(b);
    if (rc)
        grammar_free(g);
    else
        *out = g;
    return rc;
}

/* ---- matchers ---- */

static void join(struct matcher *m, struct grammar *g)
{
    m->g = g;
    m->prev = NULL;
    m->next = g->matchers;
    if (g->matchers)
        g->matchers->prev = m;
    g->matchers = m;
}

void matcher_begin(struct matcher *m, struct grammar *g)
{
    join(m, g);
    m->state = g->start;
}

void matcher_end(struct matcher *m)
{
    if (!m->g)
        return;
    if (m->prev)
        m->prev->next = m->next;
    else
        m->g->matchers = m->next;
    if (m->next)
        m->next->prev = m->prev;
    *m = (struct matcher){0};
}

void matcher_copy(struct matcher *out, const struct matcher *m)
{
    join(out, m->g);
    out->state = m->state;
}

int matcher_accept(struct matcher *m, const char *bytes, size_t n, struct err *err)
{
    struct grammar *g = m->g;
    int rc = gram_prepare(g, err);
    uint32_t at = m->state;
    for (size_t i = 0; i < n && rc == 0 && at != STACK_NONE; i++) {
        at = gram_step(g, at, (unsigned char)bytes[i]);
        rc = gram_failed(g, err);
    }
    if (rc || at == STACK_NONE)
        return rc;
    m->state = at;
    return 1;
}

bool matcher_may_end(const struct matcher *m)
{
    return m->g->s.node[m->state].flags & NODE_EMPTY;
}

bool matcher_may_go_on(const struct matcher *m)
{
    return m->g->s.node[m->state].n > 0;
}
