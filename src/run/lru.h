/* Numbers 0..n-1 in the order of their last use: a doubly linked list over arrays,
 * every operation O(1).  The arrays are the user's.
 * Knows nothing of what is numbered. */
#ifndef FORGE_RUN_LRU_H
#define FORGE_RUN_LRU_H

#include <stdbool.h>
#include <stdint.h>

struct lru_place {
    int32_t older, newer; /* -1 = none; both LRU_OUT: not in the list */
};
enum { LRU_OUT = -2 };

struct lru {
    struct lru_place *at; /* [n] */
    int32_t oldest, newest; /* -1 = empty */
};

static inline void lru_init(struct lru *l, struct lru_place *at, int64_t n)
{
    *l = (struct lru){at, -1, -1};
    for (int64_t i = 0; i < n; i++)
        at[i] = (struct lru_place){LRU_OUT, LRU_OUT};
}

static inline bool lru_has(const struct lru *l, int32_t i)
{
    return l->at[i].older != LRU_OUT;
}

/* i, which is not in the list, is its newest. */
static inline void lru_put(struct lru *l, int32_t i)
{
    l->at[i] = (struct lru_place){l->newest, -1};
    if (l->newest >= 0)
        l->at[l->newest].newer = i;
    else
        l->oldest = i;
    l->newest = i;
}

/* i, which is in the list, leaves it. */
static inline void lru_take(struct lru *l, int32_t i)
{
    struct lru_place p = l->at[i];
    if (p.older >= 0)
        l->at[p.older].newer = p.newer;
    else
        l->oldest = p.newer;
    if (p.newer >= 0)
        l->at[p.newer].older = p.older;
    else
        l->newest = p.older;
    l->at[i] = (struct lru_place){LRU_OUT, LRU_OUT};
}

static inline void lru_touch(struct lru *l, int32_t i)
{
    lru_take(l, i);
    lru_put(l, i);
}

#endif
