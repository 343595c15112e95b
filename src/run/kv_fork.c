/* A sequence that begins as another one: full pages are held by both, the last one
 * is copied, since both write on in it.
 * Knows nothing of tokens, nor of why there are several. */
#include <assert.h>

#include "run/kv_parts.h"

int64_t kv_pages_shared(const struct kv *kv, int from, int group, int64_t n)
{
    int64_t lo = kv_first_page(kv, group, n), end = n / kv->page;
    lo = lo > kv->seqs[from].lo[group] ? lo : kv->seqs[from].lo[group];
    return end > lo ? end - lo : 0;
}

/* Of one tensor of a layer, what a page holds. */
static struct tensor page_of(const struct kv_layer *l, const struct tensor *t, int32_t page)
{
    int64_t rows = (int64_t)l->n_kv_heads * l->page_size;
    return tensor_rows(t, page * rows, rows);
}

static void copy_one(struct backend *be, const struct kv_layer *l, const struct tensor *t, int32_t to, int32_t from)
{
    struct tensor dst = page_of(l, t, to), src = page_of(l, t, from);
    op_copy(be, &dst, &src);
}

/* Page `from[g]` of each group to page `to[g]`; false where a device failed: the next step finds out. */
static bool copy_pages(struct kv *kv, const int32_t *to, const int32_t *from)
{
    bool ok = true;
    for (int l = 0; l < kv->n_layers; l++)
        op_begin(kv->places[l]);
    for (int l = 0; l < kv->n_layers; l++) {
        const struct kv_layer *layer = &kv->layers[l];
        int g = kv->groups[l];
        if (to[g] < 0)
            continue;
        copy_one(kv->places[l], layer, &layer->k, to[g], from[g]);
        copy_one(kv->places[l], layer, &layer->v, to[g], from[g]);
    }
    for (int l = 0; l < kv->n_layers; l++)
        ok = op_sync(kv->places[l], NULL) == 0 && ok;
    return ok;
}

/* The page that both begin to write in. */
static bool copy_last(struct kv *kv, int seq, int from, int64_t column)
{
    struct kv_seq *s = &kv->seqs[seq];
    int32_t src[CONFIG_KV_GROUPS_MAX], dst[CONFIG_KV_GROUPS_MAX];
    for (int g = 0; g < kv->n_groups; g++)
        if (kv_pages_free(kv, g) < 1)
            return false;
    for (int g = 0; g < kv->n_groups; g++) {
        src[g] = kv_table_row(kv, from, g)[column];
        dst[g] = kv_table_row(kv, seq, g)[column] = kv_take_page(kv, g);
        s->hi[g] = column + 1;
    }
    return copy_pages(kv, dst, src);
}

int64_t kv_fork(struct kv *kv, int seq, int from, int64_t n)
{
    struct kv_seq *s = &kv->seqs[seq];
    int64_t full = n / kv->page;
    assert(s->open && s->len == 0 && kv_can_cut(kv, from, n));
    for (int g = 0; g < kv->n_groups; g++) {
        int64_t lo = kv_first_page(kv, g, n);
        s->lo[g] = lo < full ? lo : full;
        s->hi[g] = full;
        for (int64_t i = s->lo[g]; i < full; i++) {
            int32_t page = kv_table_row(kv, seq, g)[i] = kv_table_row(kv, from, g)[i];
            kv->pools[g].ref[page]++;
        }
    }
    prefix_fork(kv, seq, from, full);
    s->len = full * kv->page;
    if (n > s->len && copy_last(kv, seq, from, full))
        s->len = n;
    kv_set_len(kv, seq, kv_can_cut(kv, seq, s->len) ? s->len : 0); /* a window may look further back from there */
    return s->len;
}
