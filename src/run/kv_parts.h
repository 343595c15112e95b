/* Private to the KV cache: what kv.c (pages of sequences) and prefix.c (pages that
 * are kept for later ones) share.
 * A page is free, held by `ref` sequences, or idle: kept by the prefix cache alone. */
#ifndef FORGE_RUN_KV_PARTS_H
#define FORGE_RUN_KV_PARTS_H

#include "run/kv.h"

struct kv_pool { /* one group of layers */
    int window;
    int64_t n_pages, n_free, n_idle;
    int64_t most_idle;   /* kept for prefixes and in no other use, at most */
    int64_t per_seq;     /* that a sequence holds at most */
    int32_t *free_pages; /* [n_pages] stack; the first n_free are free */
    int32_t *ref;        /* [n_pages] sequences that hold it */
    int32_t *node;       /* [n_pages] of the prefix cache that keeps it, -1 = none */
    int32_t *table;      /* [max_seqs, max_pages], -1 = not held */
};

struct kv_seq {
    bool open;
    int64_t len;
    /* per group: table columns [lo, hi) are held */
    int64_t lo[CONFIG_KV_GROUPS_MAX], hi[CONFIG_KV_GROUPS_MAX];
    int64_t n_nodes; /* of its chain in the prefix cache */
};

struct kv {
    int n_groups, n_layers, max_seqs, max_pages;
    int64_t n_ctx, page;
    struct kv_pool pools[CONFIG_KV_GROUPS_MAX];
    struct kv_seq *seqs;     /* [max_seqs] */
    struct kv_layer *layers; /* [n_layers] */
    struct backend **places; /* [n_layers] whose memory they are in */
    int *groups;             /* [n_layers] */
    uint64_t size;
    struct prefix *prefix; /* NULL = nothing is kept */
};

/* First page that a row at position n or later still looks into: the window of position n begins at n - w + 1. */
static inline int64_t kv_first_page(const struct kv *kv, int group, int64_t n)
{
    int window = kv->pools[group].window;
    int64_t first = window ? n - window + 1 : 0;
    return first > 0 ? first / kv->page : 0;
}

static inline int32_t *kv_table_row(const struct kv *kv, int seq, int group)
{
    return kv->pools[group].table + (size_t)seq * (size_t)kv->max_pages;
}

/* A page of the group that nobody holds: there is one. */
int32_t kv_take_page(struct kv *kv, int group);

/* ---- prefix.c ---- */
/* What prefix_new asks the host for, of a cache whose sizes are set. */
uint64_t prefix_bytes(const struct kv *kv);
int prefix_new(struct kv *kv, struct err *err);
void prefix_free(struct prefix *p);
/* The sequence's chain begins as the other's, to the end of its first n pages at most. */
void prefix_fork(struct kv *kv, int seq, int from, int64_t n);
/* Gives up the idle page of the group that was not needed for longest: there is one. */
void prefix_evict(struct kv *kv, int group);
/* A page that is kept is held by no sequence any more, or is again. */
void prefix_idle(struct kv *kv, int group, int32_t page);
void prefix_hold(struct kv *kv, int group, int32_t page);

#endif
