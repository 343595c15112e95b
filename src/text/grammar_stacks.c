/* Sets of stacks by hash-consing: making a node, uniting two.
 * Bounded: memory by the caller, who looks at stacks_bytes, time by `work`.
 * Knows no grammar. */
#include "text/grammar_stacks.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

#define SUMS 4096
#define WORK_MAX ((size_t)1 << 22)

void stacks_fini(struct stacks *s)
{
    free(s->node);
    free(s->entry);
    free(s->slot);
    free(s->sums);
    free(s->list);
    *s = (struct stacks){0};
}

static bool grow_slots(struct stacks *s)
{
    size_t n = s->n_slot ? 2 * s->n_slot : 1024;
    uint32_t *slot = mem_array(n, sizeof *slot);
    if (!slot)
        return false;
    for (uint32_t i = 1; i < s->n_node; i++) {
        size_t at = s->node[i].hash & (n - 1);
        while (slot[at])
            at = (at + 1) & (n - 1);
        slot[at] = i;
    }
    free(s->slot);
    s->slot = slot;
    s->n_slot = n;
    return true;
}

static uint32_t add_node(struct stacks *s, struct stack_node node, const struct stack_entry *entry)
{
    struct stack_node *grown = mem_grow(s->node, &s->cap_node, s->n_node + 1, sizeof *grown);
    s->node = grown ? grown : s->node;
    struct stack_entry *e = mem_grow(s->entry, &s->cap_entry, s->n_entry + node.n, sizeof *e);
    s->entry = e ? e : s->entry;
    if (!grown || !e) {
        s->rc = ERR_NOMEM;
        return STACK_NONE;
    }
    node.first = (uint32_t)s->n_entry;
    if (node.n)
        memcpy(e + s->n_entry, entry, node.n * sizeof *e);
    s->n_entry += node.n;
    grown[s->n_node] = node;
    return (uint32_t)s->n_node++;
}

bool stacks_init(struct stacks *s)
{
    *s = (struct stacks){.sums = mem_array(SUMS, sizeof *s->sums)};
    bool ok = s->sums && grow_slots(s);
    if (ok) {
        stacks_node(s, 0, 0);
        s->node[STACK_NONE].hash = 0;
        stacks_node(s, 0, NODE_EMPTY);
        stacks_node(s, 0, NODE_OPEN);
        ok = s->rc == 0 && s->n_node == STACK_FIXED;
    }
    if (!ok)
        stacks_fini(s);
    return ok;
}

void stacks_list(struct stacks *s, uint64_t key, uint32_t below)
{
    struct stack_entry *list = mem_grow(s->list, &s->cap_list, s->n_list + 1, sizeof *list);
    if (!list) {
        s->rc = ERR_NOMEM;
        return;
    }
    s->list = list;
    list[s->n_list++] = (struct stack_entry){.key = key, .below = below};
}

static uint32_t hash_entries(const struct stack_entry *e, size_t n, unsigned flags)
{
    uint64_t h = flags;
    for (size_t i = 0; i < n; i++)
        h = hash_u64(h ^ e[i].key) + e[i].below * 0x9E3779B97F4A7C15u;
    return (uint32_t)(hash_u64(h) >> 32);
}

static bool same_entries(const struct stack_entry *a, const struct stack_entry *b, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (a[i].key != b[i].key || a[i].below != b[i].below)
            return false;
    return true;
}

uint32_t stacks_node(struct stacks *s, size_t from, unsigned flags)
{
    size_t n = s->n_list - from;
    const struct stack_entry *e = n > 0 ? s->list + from : NULL;
    s->n_list = from;
    s->work += n + 1;
    if (s->work > WORK_MAX)
        s->rc = s->rc ? s->rc : ERR_LIMIT;
    if (s->rc || (n == 0 && flags == 0 && s->n_node > 0))
        return STACK_NONE;
    struct stack_node node = {.n = (uint32_t)n, .hash = hash_entries(e, n, flags), .flags = (uint8_t)flags};
    size_t at = node.hash & (s->n_slot - 1);
    for (; s->slot[at]; at = (at + 1) & (s->n_slot - 1)) {
        const struct stack_node *o = &s->node[s->slot[at]];
        if (o->hash == node.hash && o->n == n && o->flags == flags && (n == 0 || same_entries(s->entry + o->first, e, n)))
            return s->slot[at];
    }
    for (size_t i = 0; i < n; i++)
        if (s->node[e[i].below].depth >= node.depth)
            node.depth = (uint16_t)(s->node[e[i].below].depth + 1);
    uint32_t made = add_node(s, node, e);
    if (made != STACK_NONE)
        s->slot[at] = made;
    if (2 * s->n_node > s->n_slot && !grow_slots(s))
        s->rc = ERR_NOMEM;
    return made;
}

uint32_t stacks_push(struct stacks *s, uint64_t key, uint32_t below)
{
    size_t from = s->n_list;
    stacks_list(s, key, below);
    return s->rc ? STACK_NONE : stacks_node(s, from, 0);
}

/* Both are sorted by key; equal keys are united below.  What recursion makes moves the arrays: entries are taken by
 * number. */
static uint32_t merge(struct stacks *s, uint32_t a, uint32_t b)
{
    size_t from = s->n_list;
    uint32_t i = 0, j = 0, na = s->node[a].n, nb = s->node[b].n;
    while ((i < na || j < nb) && s->rc == 0) {
        const struct stack_entry *x = s->entry + s->node[a].first + i, *y = s->entry + s->node[b].first + j;
        if (j == nb || (i < na && x->key < y->key)) {
            stacks_list(s, x->key, x->below);
            i++;
        } else if (i == na || y->key < x->key) {
            stacks_list(s, y->key, y->below);
            j++;
        } else {
            uint64_t key = x->key;
            uint32_t below = stacks_unite(s, x->below, y->below);
            stacks_list(s, key, below);
            i++;
            j++;
        }
    }
    return stacks_node(s, from, s->node[a].flags | s->node[b].flags);
}

uint32_t stacks_unite(struct stacks *s, uint32_t a, uint32_t b)
{
    if (a == b || b == STACK_NONE)
        return a;
    if (a == STACK_NONE)
        return b;
    if (a > b) {
        uint32_t t = a;
        a = b;
        b = t;
    }
    struct stack_union *known = &s->sums[hash_u64((uint64_t)a << 32 | b) & (SUMS - 1)];
    if (known->a == a && known->b == b)
        return known->sum;
    uint32_t sum = merge(s, a, b);
    if (s->rc == 0)
        *known = (struct stack_union){a, b, sum};
    return sum;
}

size_t stacks_bytes(const struct stacks *s)
{
    return s->n_node * sizeof *s->node + s->n_entry * sizeof *s->entry + s->n_slot * sizeof *s->slot;
}
