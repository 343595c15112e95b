/* The KV cache: owns the page pools of every layer and the page tables of every
 * sequence.  A page number means the same page in all layers of a group.
 * Knows nothing of tokens (prefix.c does); forward.c reads and writes the pages. */
#include "run/kv_parts.h"

#include <assert.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/mem.h"

#define PAGE_SIZE_MAX 256

/* ---- how many pages, how many bytes ---- */

struct group_plan {
    int64_t per_seq, n_pages; /* pages of one sequence, of the pool */
    uint64_t page_bytes;      /* K and V of one page over the group's layers */
};

struct plan {
    int64_t page, max_pages; /* positions of a page; columns of a page table */
    uint64_t one, full;      /* bytes for one sequence, for max_seqs */
    struct group_plan groups[CONFIG_KV_GROUPS_MAX];
};

static int64_t ceil_div(int64_t a, int64_t b)
{
    return a / b + (a % b != 0);
}

int kv_check(const struct kv_params *p, struct err *err)
{
    if (p->dtype != DTYPE_F16 && p->dtype != DTYPE_F32 && p->dtype != DTYPE_Q8_0)
        return err_set(err, ERR_UNSUPPORTED, "KV type %s is not implemented; use f16, f32 or q8_0", dtype_info(p->dtype)->name);
    if (p->page_size < 0 || p->page_size > PAGE_SIZE_MAX)
        return err_set(err, ERR_ARG, "page size %d is outside 1..%d (0 = one page of the whole context)", p->page_size,
                       PAGE_SIZE_MAX);
    if (p->n_ctx < 1 || p->n_ctx > INT32_MAX)
        return err_set(err, ERR_ARG, "a context of %lld positions is not possible", (long long)p->n_ctx);
    if (p->max_seqs < 1)
        return err_set(err, ERR_ARG, "max_seqs is %d; it must be at least 1", p->max_seqs);
    if (p->chunk < 0)
        return err_set(err, ERR_ARG, "chunk is %d; it must be at least 1", p->chunk);
    return 0;
}

/* Pages a sequence holds at most.  Before a chunk is stored the first position still seen is len - window + 1
 * and the last one stored len + chunk - 1; they may begin anywhere in a page, hence the one more. */
static int64_t pages_per_seq(const struct kv_params *p, int window, int64_t page)
{
    int64_t all = ceil_div(p->n_ctx, page);
    if (window == 0 || p->chunk == 0)
        return all;
    int64_t need = ceil_div((int64_t)window + p->chunk, page) + 1;
    return need < all ? need : all;
}

/* With a budget between one sequence's need and all of them, each group's extra pages shrink by one share. */
static void plan_share(struct plan *plan, int n_groups, uint64_t mem)
{
    const uint64_t parts = 4096;
    uint64_t share = (mem - plan->one) / ((plan->full - plan->one) / parts + 1); /* <= parts * extra / all extra */
    for (int g = 0; g < n_groups; g++) {
        struct group_plan *gp = &plan->groups[g];
        uint64_t extra = (uint64_t)(gp->n_pages - gp->per_seq);
        gp->n_pages = gp->per_seq + (int64_t)(extra / parts * share + extra % parts * share / parts);
    }
}

static void make_plan(struct plan *plan, const struct model_config *c, const struct kv_params *p)
{
    *plan = (struct plan){.page = p->page_size ? p->page_size : p->n_ctx};
    plan->max_pages = ceil_div(p->n_ctx, plan->page);
    for (int g = 0; g < c->n_groups; g++) {
        const struct kv_group *kg = &c->groups[g];
        struct group_plan *gp = &plan->groups[g];
        size_t row = 0;
        if (!dtype_row_size(p->dtype, kg->head_dim, &row))
            row = 0;
        gp->per_seq = pages_per_seq(p, kg->window, plan->page);
        gp->n_pages = gp->per_seq * p->max_seqs; /* both below 2^31 */
        gp->page_bytes = mem_mul_sat(mem_mul_sat((uint64_t)plan->page, row),
                                 mem_mul_sat(2 * (uint64_t)kg->n_kv_heads, (uint64_t)kg->n_layers));
        plan->one = mem_add_sat(plan->one, mem_mul_sat(gp->page_bytes, (uint64_t)gp->per_seq));
        plan->full = mem_add_sat(plan->full, mem_mul_sat(gp->page_bytes, (uint64_t)gp->n_pages));
    }
    if (p->mem && p->mem < plan->full && p->mem >= plan->one)
        plan_share(plan, c->n_groups, p->mem);
}

static uint64_t plan_bytes(const struct plan *plan, int n_groups, uint64_t mem)
{
    if (mem && mem < plan->one)
        return plan->one;
    uint64_t sum = 0;
    for (int g = 0; g < n_groups; g++)
        sum = mem_add_sat(sum, mem_mul_sat(plan->groups[g].page_bytes, (uint64_t)plan->groups[g].n_pages));
    return sum;
}

/* Sizes alone. */
static void shape(struct kv *kv, const struct model_config *c, const struct kv_params *p, const struct plan *plan)
{
    *kv = (struct kv){.n_groups = c->n_groups, .n_layers = (int)c->n_layers, .max_seqs = p->max_seqs,
                      .max_pages = (int)plan->max_pages, .n_ctx = p->n_ctx, .page = plan->page};
    for (int g = 0; g < c->n_groups; g++) {
        const struct group_plan *gp = &plan->groups[g];
        kv->pools[g] = (struct kv_pool){.window = c->groups[g].window, .n_pages = gp->n_pages, .n_free = gp->n_pages,
                                        .per_seq = gp->per_seq};
    }
}

uint64_t kv_host_bytes(const struct model_config *c, const struct kv_params *p)
{
    struct plan plan;
    struct kv kv;
    uint64_t sum = 0;
    if (kv_check(p, NULL) < 0)
        return 0;
    make_plan(&plan, c, p);
    shape(&kv, c, p, &plan);
    for (int g = 0; g < c->n_groups; g++)
        sum += ((uint64_t)p->max_seqs * (uint64_t)plan.max_pages + 3 * (uint64_t)plan.groups[g].n_pages) * sizeof(int32_t);
    return sum + (p->keep ? prefix_bytes(&kv) : 0);
}

uint64_t kv_bytes(const struct model_config *c, const struct kv_params *p)
{
    struct plan plan;
    if (kv_check(p, NULL) < 0)
        return 0;
    make_plan(&plan, c, p);
    return plan_bytes(&plan, c->n_groups, p->mem);
}

/* ---- making one ---- */

static int new_pool(struct kv *kv, int g, struct err *err)
{
    struct kv_pool *pool = &kv->pools[g];
    size_t cells, n = (size_t)pool->n_pages;
    pool->ref = mem_array(n, sizeof *pool->ref);
    pool->node = mem_array(n, sizeof *pool->node);
    pool->free_pages = mem_array(n, sizeof *pool->free_pages);
    if (mem_mul((size_t)kv->max_seqs, (size_t)kv->max_pages, &cells))
        pool->table = mem_array(cells, sizeof *pool->table);
    if (!pool->free_pages || !pool->table || !pool->ref || !pool->node)
        return err_set(err, ERR_NOMEM, "no memory for the tables of %zu KV pages", n);
    for (size_t i = 0; i < n; i++) { /* page 0 on top */
        pool->free_pages[i] = (int32_t)(n - 1 - i);
        pool->node[i] = -1;
    }
    for (size_t i = 0; i < cells; i++)
        pool->table[i] = -1;
    return 0;
}

/* What pages kept for prefixes may take, in equal shares of all groups. */
static int limit_idle(struct kv *kv, const struct kv_params *p, uint64_t size, struct err *err)
{
    double share = p->keep_mem == 0 || p->keep_mem >= size ? 1 : (double)p->keep_mem / (double)size;
    int64_t fewest = kv->pools[0].n_pages;
    for (int g = 0; g < kv->n_groups; g++) {
        struct kv_pool *pool = &kv->pools[g];
        pool->most_idle = (int64_t)((double)pool->n_pages * share);
        fewest = pool->n_pages < fewest ? pool->n_pages : fewest;
    }
    if ((double)fewest * share >= 1)
        return 0;
    return err_set(err, ERR_ARG, "%llu bytes keep no page of earlier requests; prefix_mem must be at least %llu, or 0 (no limit)",
                   (unsigned long long)p->keep_mem, (unsigned long long)(size / (uint64_t)fewest + 1));
}

static int new_layer(struct kv *kv, const struct model *m, int l, enum dtype dtype, struct err *err)
{
    int group = m->config.layers[l].kv_group;
    const struct kv_group *kg = &m->config.groups[group];
    struct kv_layer *layer = &kv->layers[l];
    struct backend_caps caps;
    int64_t rows;
    op_caps(m->layers[l].be, &caps);
    if (dtype == DTYPE_Q8_0 && !caps.kv_q8_0)
        return err_set(err, ERR_UNSUPPORTED, "KV type q8_0 is not implemented on %s; use f16 or f32", op_device(m->layers[l].be));
    if (kg->head_dim % (int)dtype_info(dtype)->block_elems != 0)
        return err_set(err, ERR_UNSUPPORTED, "KV type q8_0 needs heads of a multiple of 32 values; those of layer %d have %d", l,
                       kg->head_dim);
    kv->places[l] = m->layers[l].be;
    kv->groups[l] = group;
    *layer = (struct kv_layer){.n_kv_heads = kg->n_kv_heads, .head_dim = kg->head_dim, .page_size = (int)kv->page};
    if (!mem_mul_i64(kv->pools[group].n_pages, kg->n_kv_heads, &rows) || !mem_mul_i64(rows, kv->page, &rows))
        return err_set(err, ERR_NOMEM, "KV of layer %d is larger than any memory", l);
    int rc = op_alloc(m->layers[l].be, &layer->k, dtype, rows, kg->head_dim, err);
    if (rc == 0)
        rc = op_alloc(m->layers[l].be, &layer->v, dtype, rows, kg->head_dim, err);
    if (rc == 0)
        kv->size += tensor_size(&layer->k) + tensor_size(&layer->v);
    return rc;
}

int kv_new(struct kv **out, const struct model *m, const struct kv_params *p, struct err *err)
{
    const struct model_config *c = &m->config;
    struct plan plan;
    *out = NULL;
    int rc = kv_check(p, err);
    if (rc < 0)
        return rc;
    make_plan(&plan, c, p);
    if (p->mem && p->mem < plan.one)
        return err_set(err, ERR_LIMIT, "one sequence of %lld positions needs %llu bytes of KV; the budget is %llu",
                       (long long)p->n_ctx, (unsigned long long)plan.one, (unsigned long long)p->mem);
    for (int g = 0; g < c->n_groups; g++)
        if (plan.groups[g].n_pages > INT32_MAX)
            return err_set(err, ERR_LIMIT, "%lld KV pages are more than %d; raise the page size",
                           (long long)plan.groups[g].n_pages, INT32_MAX);
    if (plan.max_pages > INT32_MAX / p->max_seqs) /* places in tables are numbered in 32 bits */
        return err_set(err, ERR_LIMIT, "%d sequences of %lld KV pages are more than %d; raise the page size", p->max_seqs,
                       (long long)plan.max_pages, INT32_MAX);
    struct kv *kv = mem_array(1, sizeof *kv);
    if (!kv)
        return err_set(err, ERR_NOMEM, "no memory for the KV cache");
    shape(kv, c, p, &plan);
    kv->seqs = mem_array((size_t)p->max_seqs, sizeof *kv->seqs);
    kv->layers = mem_array((size_t)c->n_layers, sizeof *kv->layers);
    kv->places = mem_array((size_t)c->n_layers, sizeof *kv->places);
    kv->groups = mem_array((size_t)c->n_layers, sizeof *kv->groups);
    if (!kv->seqs || !kv->layers || !kv->places || !kv->groups)
        rc = err_set(err, ERR_NOMEM, "no memory for %d sequences", p->max_seqs);
    for (int g = 0; g < c->n_groups && rc == 0; g++)
        rc = new_pool(kv, g, err);
    if (rc == 0 && p->keep)
        rc = limit_idle(kv, p, plan_bytes(&plan, c->n_groups, p->mem), err);
    if (rc == 0 && p->keep)
        rc = prefix_new(kv, err);
    for (int l = 0; l < kv->n_layers && rc == 0; l++)
        rc = new_layer(kv, m, l, p->dtype, err);
    if (rc < 0) {
        kv_free(kv);
        return rc;
    }
    log_debug(LOG_KV, "kv: %llu bytes, %s, %d sequences of %lld positions, pages of %lld", (unsigned long long)kv->size,
              dtype_info(p->dtype)->name, kv->max_seqs, (long long)kv->n_ctx, (long long)kv->page);
    *out = kv;
    return 0;
}

void kv_free(struct kv *kv)
{
    if (!kv)
        return;
    for (int l = 0; kv->layers && l < kv->n_layers; l++) {
        op_free(kv->layers[l].k.buf);
        op_free(kv->layers[l].v.buf);
    }
    for (int g = 0; g < kv->n_groups; g++) {
        free(kv->pools[g].free_pages);
        free(kv->pools[g].ref);
        free(kv->pools[g].node);
        free(kv->pools[g].table);
    }
    prefix_free(kv->prefix);
    free(kv->places);
    free(kv->groups);
    free(kv->layers);
    free(kv->seqs);
    free(kv);
}

/* ---- reading it ---- */

const struct kv_layer *kv_layers(const struct kv *kv)
{
    return kv->layers;
}

int kv_max_pages(const struct kv *kv, int group)
{
    assert(group >= 0 && group < kv->n_groups);
    return kv->max_pages;
}

uint64_t kv_size(const struct kv *kv)
{
    return kv->size;
}

int64_t kv_pages_free(const struct kv *kv, int group)
{
    assert(group >= 0 && group < kv->n_groups);
    return kv->pools[group].n_free + kv->pools[group].n_idle;
}

int64_t kv_pages_kept(const struct kv *kv, int group)
{
    assert(group >= 0 && group < kv->n_groups);
    return kv->pools[group].n_idle;
}

int64_t kv_n_pages(const struct kv *kv, int group)
{
    assert(group >= 0 && group < kv->n_groups);
    return kv->pools[group].n_pages;
}

/* Only full pages have several holders, so that what is free in a page is free in that of one sequence. */
int64_t kv_positions(const struct kv *kv, int group)
{
    int64_t n = (kv_n_pages(kv, group) - kv_pages_free(kv, group)) * kv->page;
    for (int i = 0; i < kv->max_seqs; i++) {
        const struct kv_seq *s = &kv->seqs[i];
        int64_t from = s->lo[group] * kv->page, end = s->hi[group] * kv->page;
        n -= s->len < from ? end - from : s->len < end ? end - s->len : 0;
    }
    return n;
}

int64_t kv_page_size(const struct kv *kv)
{
    return kv->page;
}

int kv_max_seqs(const struct kv *kv)
{
    return kv->max_seqs;
}

static struct kv_seq *seq_at(const struct kv *kv, int seq)
{
    assert(seq >= 0 && seq < kv->max_seqs && kv->seqs[seq].open);
    return &kv->seqs[seq];
}

int64_t kv_len(const struct kv *kv, int seq)
{
    return seq_at(kv, seq)->len;
}

const int32_t *kv_pages(const struct kv *kv, int seq, int group)
{
    seq_at(kv, seq);
    assert(group >= 0 && group < kv->n_groups);
    return kv_table_row(kv, seq, group);
}

const int32_t *kv_tables(const struct kv *kv, int group)
{
    assert(group >= 0 && group < kv->n_groups);
    return kv->pools[group].table;
}

int64_t kv_pages_due(const struct kv *kv, int seq, int group, int64_t n)
{
    const struct kv_seq *s = seq < 0 ? NULL : seq_at(kv, seq);
    int64_t all = ceil_div(n, kv->page), most = kv->pools[group].per_seq;
    int64_t due = (all < most ? all : most) - (s ? s->hi[group] - s->lo[group] : 0);
    return due > 0 ? due : 0;
}

/* ---- pages of sequences ---- */

/* Columns [from, to), the last first; behind a window the first first: of what is kept there the end is worth most. */
static void give_back(struct kv *kv, int seq, int group, int64_t from, int64_t to)
{
    struct kv_pool *pool = &kv->pools[group];
    int32_t *row = kv_table_row(kv, seq, group);
    for (int64_t k = 0; k < to - from; k++) {
        int64_t i = pool->window ? from + k : to - 1 - k;
        int32_t page = row[i];
        row[i] = -1;
        if (--pool->ref[page] > 0)
            continue;
        if (pool->node[page] >= 0)
            prefix_idle(kv, group, page);
        else
            pool->free_pages[pool->n_free++] = page;
    }
}

int kv_seq_open(struct kv *kv)
{
    for (int i = 0; i < kv->max_seqs; i++)
        if (!kv->seqs[i].open) {
            kv->seqs[i] = (struct kv_seq){.open = true};
            return i;
        }
    return -1;
}

void kv_seq_close(struct kv *kv, int seq)
{
    struct kv_seq *s = seq_at(kv, seq);
    for (int g = 0; g < kv->n_groups; g++)
        give_back(kv, seq, g, s->lo[g], s->hi[g]);
    *s = (struct kv_seq){0};
}

int32_t kv_take_page(struct kv *kv, int group)
{
    struct kv_pool *pool = &kv->pools[group];
    if (pool->n_free == 0)
        prefix_evict(kv, group);
    int32_t page = pool->free_pages[--pool->n_free];
    pool->ref[page] = 1;
    return page;
}

int kv_reserve(struct kv *kv, int seq, int64_t n, struct err *err)
{
    struct kv_seq *s = seq_at(kv, seq);
    if (n > kv->n_ctx)
        return err_set(err, ERR_LIMIT, "%lld positions do not fit in the context of %lld", (long long)n, (long long)kv->n_ctx);
    int64_t need = ceil_div(n, kv->page);
    for (int g = 0; g < kv->n_groups; g++)
        if (need - s->hi[g] > kv_pages_free(kv, g))
            return err_set(err, ERR_LIMIT, "KV is full: %lld more pages of %lld positions are needed and %lld of %lld are free",
                           (long long)(need - s->hi[g]), (long long)kv->page, (long long)kv_pages_free(kv, g),
                           (long long)kv->pools[g].n_pages);
    for (int g = 0; g < kv->n_groups; g++) {
        int32_t *row = kv_table_row(kv, seq, g);
        for (; s->hi[g] < need; s->hi[g]++)
            row[s->hi[g]] = kv_take_page(kv, g);
    }
    return 0;
}

bool kv_can_cut(const struct kv *kv, int seq, int64_t n)
{
    const struct kv_seq *s = seq_at(kv, seq);
    for (int g = 0; g < kv->n_groups; g++)
        if (n > 0 && kv_first_page(kv, g, n) < s->lo[g])
            return false;
    return n >= 0 && n <= s->len;
}

void kv_set_len(struct kv *kv, int seq, int64_t n)
{
    struct kv_seq *s = seq_at(kv, seq);
    int64_t used = ceil_div(n, kv->page);
    assert(n >= 0 && (n >= s->len || kv_can_cut(kv, seq, n)));
    for (int g = 0; g < kv->n_groups; g++) {
        assert(used <= s->hi[g] || n == 0);
        if (n == 0) { /* starts again: whatever was behind the window is due once more */
            give_back(kv, seq, g, s->lo[g], s->hi[g]);
            s->lo[g] = s->hi[g] = 0;
            continue;
        }
        int64_t lo = kv_first_page(kv, g, n);
        if (used < s->hi[g]) {
            give_back(kv, seq, g, used > s->lo[g] ? used : s->lo[g], s->hi[g]);
            s->hi[g] = used > s->lo[g] ? used : s->lo[g];
        }
        if (lo > s->hi[g])
            lo = s->hi[g]; /* the window begins on the next page: window 1 at a page's end */
        if (lo > s->lo[g]) {
            give_back(kv, seq, g, s->lo[g], lo);
            s->lo[g] = lo;
        }
    }
    s->len = n;
    s->n_nodes = s->n_nodes < n / kv->page ? s->n_nodes : n / kv->page;
}

/* Is the page that holds position n also another's, or kept? */
static bool is_shared(const struct kv *kv, int seq, int64_t n)
{
    const struct kv_seq *s = seq_at(kv, seq);
    int64_t column = n / kv->page;
    for (int g = 0; g < kv->n_groups; g++)
        if (column >= s->lo[g] && column < s->hi[g]) {
            int32_t page = kv_table_row(kv, seq, g)[column];
            if (kv->pools[g].ref[page] > 1 || kv->pools[g].node[page] >= 0)
                return true;
        }
    return false;
}

int64_t kv_cut(struct kv *kv, int seq, int64_t n)
{
    if (n % kv->page != 0 && is_shared(kv, seq, n))
        n -= n % kv->page; /* what follows is written to a page of its own */
    n = kv_can_cut(kv, seq, n) ? n : 0;
    kv_set_len(kv, seq, n);
    return n;
}
