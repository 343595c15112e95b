/* Prefixes: full pages that outlive their sequences, found again by their ids.
 *
 * A node is one page of positions: its ids and, of every KV group, the page that
 * holds them.  Its hash is chained: over its parent's and its own ids; model, KV
 * type and rotation are the cache's own and the same for all.  A hit is verified
 * by parent and ids, never by the hash alone.  Idle pages of a group are a list by
 * their last use, from whose end they go when others are needed, the ends of chains
 * before their starts.  Windows need only the last pages of a prefix, so a node may
 * lack the page of a group.  Knows nothing of requests. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "run/kv_parts.h"
#include "run/lru.h"

struct node {
    uint64_t id, parent; /* id 0 = not in use; no id is given twice */
    uint64_t hash;
    int32_t pages[CONFIG_KV_GROUPS_MAX]; /* -1 = gave it up */
    int32_t next;        /* of the same bucket, or free; -1 = none */
};

struct link { /* a place of a sequence's chain */
    uint64_t id;
    int32_t at;
};

struct prefix {
    struct node *nodes; /* [n_nodes] */
    int32_t *ids;       /* [n_nodes, page] */
    int32_t *buckets;   /* [n_buckets] */
    struct link *links; /* [max_seqs, max_pages] */
    int32_t *block;     /* [page] scratch */
    int64_t n_nodes, n_buckets; /* a power of 2 */
    int32_t free_nodes;
    uint64_t n_ids;
    struct lru used;                       /* nodes; none before what hangs on it */
    struct lru idle[CONFIG_KV_GROUPS_MAX]; /* pages */
    struct lru_place *places;              /* of them all */
};

/* ---- the table ---- */

/* As many as there can be: one for each page of a group without a window, which goes with its page; else one for each
 * place of a sequence. */
static int64_t count_nodes(const struct kv *kv)
{
    int64_t n = 0;
    for (int g = 0; g < kv->n_groups; g++)
        if (kv->pools[g].window == 0 && kv->pools[g].n_pages > n)
            n = kv->pools[g].n_pages;
    return n > 0 ? n : (int64_t)kv->max_seqs * kv->max_pages;
}

static int64_t count_buckets(int64_t n_nodes)
{
    int64_t n = 1;
    while (n < n_nodes)
        n *= 2;
    return n;
}

static int64_t count_places(const struct kv *kv, int64_t n_nodes)
{
    int64_t n = n_nodes;
    for (int g = 0; g < kv->n_groups; g++)
        n += kv->pools[g].n_pages;
    return n;
}

uint64_t prefix_bytes(const struct kv *kv)
{
    uint64_t n = (uint64_t)count_nodes(kv), places = (uint64_t)count_places(kv, (int64_t)n), page = (uint64_t)kv->page;
    uint64_t node = sizeof(struct node) + page * sizeof(int32_t);
    uint64_t links = (uint64_t)kv->max_seqs * (uint64_t)kv->max_pages * sizeof(struct link);
    return sizeof(struct prefix) + mem_add_sat(mem_mul_sat(n, node), links) + (uint64_t)count_buckets((int64_t)n) * sizeof(int32_t) +
           places * sizeof(struct lru_place) + page * sizeof(int32_t);
}

static void clear(struct kv *kv)
{
    struct prefix *p = kv->prefix;
    struct lru_place *at = p->places;
    for (int64_t i = 0; i < p->n_buckets; i++)
        p->buckets[i] = -1;
    for (int64_t i = 0; i < p->n_nodes; i++)
        p->nodes[i].next = i + 1 < p->n_nodes ? (int32_t)(i + 1) : -1;
    lru_init(&p->used, at, p->n_nodes);
    at += p->n_nodes;
    for (int g = 0; g < kv->n_groups; g++) {
        lru_init(&p->idle[g], at, kv->pools[g].n_pages);
        at += kv->pools[g].n_pages;
    }
}

int prefix_new(struct kv *kv, struct err *err)
{
    struct prefix *p = kv->prefix = mem_array(1, sizeof *p);
    size_t n_ids;
    if (!p)
        return err_set(err, ERR_NOMEM, "no memory for the table of prefixes");
    p->n_nodes = count_nodes(kv);
    p->n_buckets = count_buckets(p->n_nodes);
    p->nodes = mem_array((size_t)p->n_nodes, sizeof *p->nodes);
    p->links = mem_array((size_t)kv->max_seqs * (size_t)kv->max_pages, sizeof *p->links);
    p->buckets = mem_array((size_t)p->n_buckets, sizeof *p->buckets);
    p->block = mem_array((size_t)kv->page, sizeof *p->block);
    p->places = mem_array((size_t)count_places(kv, p->n_nodes), sizeof *p->places);
    if (mem_mul((size_t)p->n_nodes, (size_t)kv->page, &n_ids))
        p->ids = mem_array(n_ids, sizeof *p->ids);
    if (!p->nodes || !p->links || !p->buckets || !p->block || !p->ids || !p->places)
        return err_set(err, ERR_NOMEM, "no memory for a table of %lld prefixes", (long long)p->n_nodes);
    clear(kv);
    return 0;
}

void prefix_free(struct prefix *p)
{
    if (!p)
        return;
    free(p->nodes);
    free(p->ids);
    free(p->buckets);
    free(p->links);
    free(p->block);
    free(p->places);
    free(p);
}

/* ---- nodes ---- */

static int32_t *ids_of(const struct kv *kv, int32_t at)
{
    return kv->prefix->ids + (ptrdiff_t)at * kv->page;
}

static int32_t *bucket_of(const struct prefix *p, uint64_t hash)
{
    return &p->buckets[hash & (uint64_t)(p->n_buckets - 1)];
}

/* FNV-1a over ids, from the parent's hash on, stirred so that low bits depend on all. */
static uint64_t hash_ids(uint64_t parent, const int32_t *ids, int64_t n)
{
    uint64_t h = parent ^ 0xcbf29ce484222325u;
    for (int64_t i = 0; i < n; i++)
        h = (h ^ (uint32_t)ids[i]) * 0x100000001b3u;
    return h ^ h >> 29;
}

static int32_t find(const struct kv *kv, uint64_t parent, uint64_t hash, const int32_t *ids)
{
    const struct prefix *p = kv->prefix;
    for (int32_t at = *bucket_of(p, hash); at >= 0; at = p->nodes[at].next)
        if (p->nodes[at].hash == hash && p->nodes[at].parent == parent &&
            memcmp(ids_of(kv, at), ids, (size_t)kv->page * sizeof *ids) == 0)
            return at;
    return -1;
}

/* The node gives up its page of the group, which is free then unless a sequence holds it. */
static void drop_page(struct kv *kv, struct node *n, int group)
{
    struct kv_pool *pool = &kv->pools[group];
    int32_t page = n->pages[group];
    if (page < 0)
        return;
    n->pages[group] = -1;
    pool->node[page] = -1;
    if (pool->ref[page] == 0) {
        prefix_hold(kv, group, page);
        pool->free_pages[pool->n_free++] = page;
    }
}

static void drop(struct kv *kv, int32_t at)
{
    struct prefix *p = kv->prefix;
    struct node *n = &p->nodes[at];
    int32_t *from = bucket_of(p, n->hash);
    for (int g = 0; g < kv->n_groups; g++)
        drop_page(kv, n, g);
    while (*from != at)
        from = &p->nodes[*from].next;
    *from = n->next;
    lru_take(&p->used, at);
    *n = (struct node){.next = p->free_nodes};
    p->free_nodes = at;
}

void prefix_evict(struct kv *kv, int group)
{
    int32_t page = kv->prefix->idle[group].oldest, at = kv->pools[group].node[page];
    if (kv->pools[group].window)
        drop_page(kv, &kv->prefix->nodes[at], group); /* the others' prefix is as good as before */
    else
        drop(kv, at);
}

void prefix_idle(struct kv *kv, int group, int32_t page)
{
    struct kv_pool *pool = &kv->pools[group];
    lru_put(&kv->prefix->idle[group], page);
    if (++pool->n_idle > pool->most_idle)
        prefix_evict(kv, group);
}

void prefix_hold(struct kv *kv, int group, int32_t page)
{
    lru_take(&kv->prefix->idle[group], page);
    kv->pools[group].n_idle--;
}

/* ---- chains of sequences ---- */

static struct link *links_of(const struct kv *kv, int seq)
{
    return kv->prefix->links + (ptrdiff_t)seq * kv->max_pages;
}

static struct node *alive(const struct kv *kv, const struct link *l)
{
    struct node *n = &kv->prefix->nodes[l->at];
    return n->id == l->id ? n : NULL;
}

static void touch_idle(struct kv *kv, const struct node *n, bool windows)
{
    for (int g = 0; g < kv->n_groups; g++)
        if ((kv->pools[g].window != 0) == windows && n->pages[g] >= 0 && kv->pools[g].ref[n->pages[g]] == 0)
            lru_touch(&kv->prefix->idle[g], n->pages[g]);
}

/* The whole chain was used now, of which the end is the first to go, behind windows the start. */
static void touch(struct kv *kv, int seq)
{
    struct link *l = links_of(kv, seq);
    int64_t n = kv->seqs[seq].n_nodes;
    for (int64_t i = n; i-- > 0;)
        if (alive(kv, &l[i])) {
            lru_touch(&kv->prefix->used, l[i].at);
            touch_idle(kv, &kv->prefix->nodes[l[i].at], false);
        }
    for (int64_t i = 0; i < n; i++)
        if (alive(kv, &l[i]))
            touch_idle(kv, &kv->prefix->nodes[l[i].at], true);
}

static const int32_t *block_ids(const struct kv *kv, const struct kv_ids *ids, int64_t column)
{
    size_t first = (size_t)(column * kv->page), n = (size_t)kv->page;
    if (first + n <= ids->n_a)
        return ids->a + first;
    for (size_t i = 0; i < n; i++)
        kv->prefix->block[i] = first + i < ids->n_a ? ids->a[first + i] : ids->b[first + i - ids->n_a];
    return kv->prefix->block;
}

static int32_t add(struct kv *kv, const struct node *parent, uint64_t hash, const int32_t *ids)
{
    struct prefix *p = kv->prefix;
    uint64_t parent_id = parent ? parent->id : 0;
    if (p->free_nodes < 0) {
        int32_t last = p->used.oldest;
        if (&p->nodes[last] == parent)
            return -1;
        drop(kv, last);
    }
    int32_t at = p->free_nodes;
    struct node *n = &p->nodes[at];
    p->free_nodes = n->next;
    *n = (struct node){.id = ++p->n_ids, .parent = parent_id, .hash = hash, .next = *bucket_of(p, hash)};
    *bucket_of(p, hash) = at;
    lru_put(&p->used, at);
    memcpy(ids_of(kv, at), ids, (size_t)kv->page * sizeof *ids);
    for (int g = 0; g < kv->n_groups; g++)
        n->pages[g] = -1;
    return at;
}

/* The next page of the chain; false where that does not go on. */
static bool keep_one(struct kv *kv, int seq, const struct kv_ids *ids, int64_t column)
{
    struct kv_seq *s = &kv->seqs[seq];
    struct link *links = links_of(kv, seq);
    const struct node *parent = column > 0 ? alive(kv, &links[column - 1]) : NULL;
    if (column > 0 && !parent)
        return false;
    const int32_t *block = block_ids(kv, ids, column);
    uint64_t hash = hash_ids(parent ? parent->hash : 0, block, kv->page);
    int32_t at = find(kv, parent ? parent->id : 0, hash, block);
    if (at < 0)
        at = add(kv, parent, hash, block);
    if (at < 0)
        return false;
    struct node *n = &kv->prefix->nodes[at];
    for (int g = 0; g < kv->n_groups; g++) {
        int32_t page = column >= s->lo[g] && column < s->hi[g] ? kv_table_row(kv, seq, g)[column] : -1;
        if (n->pages[g] < 0 && page >= 0 && kv->pools[g].node[page] < 0) {
            n->pages[g] = page;
            kv->pools[g].node[page] = at;
        }
    }
    links[column] = (struct link){n->id, at};
    s->n_nodes = column + 1;
    return true;
}

void prefix_fork(struct kv *kv, int seq, int from, int64_t n)
{
    if (!kv->prefix)
        return;
    int64_t has = kv->seqs[from].n_nodes;
    kv->seqs[seq].n_nodes = has < n ? has : n;
    memcpy(links_of(kv, seq), links_of(kv, from), (size_t)kv->seqs[seq].n_nodes * sizeof(struct link));
}

void kv_keep(struct kv *kv, int seq, const struct kv_ids *ids, int64_t n)
{
    struct kv_seq *s = &kv->seqs[seq];
    if (!kv->prefix || (s->n_nodes + 1) * kv->page > n)
        return;
    touch(kv, seq); /* before others' nodes make room for more of it */
    while ((s->n_nodes + 1) * kv->page <= n && keep_one(kv, seq, ids, s->n_nodes))
        ;
    touch(kv, seq);
}

/* The most pages, of so many, that have all that the rows after them look into. */
static int64_t longest_whole(const struct kv *kv, const struct link *links, int64_t columns)
{
    int64_t lost[CONFIG_KV_GROUPS_MAX], whole = 0; /* the last page that is not there */
    for (int g = 0; g < kv->n_groups; g++)
        lost[g] = -1;
    for (int64_t i = 0; i < columns; i++) {
        bool all = true;
        for (int g = 0; g < kv->n_groups; g++) {
            if (kv->prefix->nodes[links[i].at].pages[g] < 0)
                lost[g] = i;
            all = all && lost[g] < kv_first_page(kv, g, (i + 1) * kv->page);
        }
        whole = all ? i + 1 : whole;
    }
    return whole;
}

int64_t kv_find(struct kv *kv, int seq, const struct kv_ids *ids, int64_t most)
{
    struct kv_seq *s = &kv->seqs[seq];
    uint64_t parent = 0, hash = 0;
    int64_t n = 0;
    if (!kv->prefix)
        return 0;
    struct link *links = links_of(kv, seq);
    assert(s->open && s->len == 0 && most >= 0 && (uint64_t)most <= ids->n_a + ids->n_b);
    for (; (n + 1) * kv->page <= most; n++) {
        const int32_t *block = block_ids(kv, ids, n);
        hash = hash_ids(hash, block, kv->page);
        int32_t at = find(kv, parent, hash, block);
        if (at < 0)
            break;
        parent = kv->prefix->nodes[at].id;
        links[n] = (struct link){parent, at};
    }
    n = longest_whole(kv, links, n);
    for (int g = 0; g < kv->n_groups && n > 0; g++) {
        struct kv_pool *pool = &kv->pools[g];
        s->lo[g] = kv_first_page(kv, g, n * kv->page);
        s->lo[g] = s->lo[g] < n ? s->lo[g] : n;
        s->hi[g] = n;
        for (int64_t i = s->lo[g]; i < n; i++) {
            int32_t page = kv_table_row(kv, seq, g)[i] = kv->prefix->nodes[links[i].at].pages[g];
            if (pool->ref[page]++ == 0)
                prefix_hold(kv, g, page);
        }
    }
    s->n_nodes = n;
    s->len = n * kv->page;
    touch(kv, seq);
    return s->len;
}
