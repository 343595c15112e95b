/* What a sequence has stored, out of its pages and into those of another one, in a
 * form that no page size shows in: of each layer K, then V, [n_kv_heads, positions,
 * head_dim], of the positions that a row behind them looks at.
 * Knows nothing of files. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "run/kv_parts.h"

/* The first position that later rows see. */
static int64_t first_of(int window, int64_t n)
{
    int64_t first = window ? n - window + 1 : 0;
    first = first > 0 ? first : 0;
    return first < n ? first : n;
}

static size_t row_size(const struct kv_layer *l)
{
    size_t size = 0;
    dtype_row_size(l->k.dtype, l->head_dim, &size);
    return size;
}

uint64_t kv_dump_size(const struct model_config *c, enum dtype dtype, int64_t n)
{
    uint64_t sum = 0;
    size_t row = 0;
    dtype_row_size(dtype, c->head_dim, &row);
    for (int64_t l = 0; l < c->n_layers; l++) {
        uint64_t rows = mem_mul_sat((uint64_t)(n - first_of(c->layers[l].window, n)), (uint64_t)c->n_kv_heads);
        sum = mem_add_sat(sum, mem_mul_sat(mem_mul_sat(rows, 2), row));
    }
    return sum;
}

/* Between one page [n_kv_heads, page, head_dim] and the dump of its tensor [n_kv_heads, n - first, head_dim]. */
static void move_rows(const struct kv *kv, const struct kv_layer *l, int64_t column, int64_t first, int64_t n, uint8_t *page,
                      uint8_t *dump, bool out)
{
    size_t row = row_size(l);
    int64_t from = column * kv->page > first ? column * kv->page : first, end = (column + 1) * kv->page < n ? (column + 1) * kv->page : n;
    for (int h = 0; h < l->n_kv_heads; h++) {
        uint8_t *in_page = page + (size_t)(h * kv->page + from - column * kv->page) * row;
        uint8_t *in_dump = dump + (size_t)(h * (n - first) + from - first) * row;
        memcpy(out ? in_dump : in_page, out ? in_page : in_dump, (size_t)(end - from) * row);
    }
}

struct walk {
    struct kv *kv;
    int seq;
    int64_t n;
    uint8_t *page, *at; /* one page; the dump, which moves on */
    bool out;
};

static int walk_tensor(struct walk *w, int layer, const struct tensor *t, struct err *err)
{
    struct kv *kv = w->kv;
    const struct kv_layer *l = &kv->layers[layer];
    int group = kv->groups[layer];
    int64_t first = first_of(kv->pools[group].window, w->n), rows = (int64_t)l->n_kv_heads * kv->page;
    int rc = 0;
    for (int64_t column = first / kv->page; column * kv->page < w->n && first < w->n && rc == 0; column++) {
        struct tensor page = tensor_rows(t, kv_table_row(kv, w->seq, group)[column] * rows, rows);
        if (w->out)
            rc = op_read(kv->places[layer], w->page, &page, err);
        else
            memset(w->page, 0, tensor_size(&page));
        if (rc == 0)
            move_rows(kv, l, column, first, w->n, w->page, w->at, w->out);
        if (!w->out)
            op_write(kv->places[layer], &page, w->page);
    }
    w->at += (size_t)(w->n - first) * (size_t)l->n_kv_heads * row_size(l);
    return rc;
}

static int walk(struct walk *w, struct err *err)
{
    struct kv *kv = w->kv;
    size_t most = 0;
    int rc = 0;
    for (int l = 0; l < kv->n_layers; l++) {
        size_t size = (size_t)kv->layers[l].n_kv_heads * (size_t)kv->page * row_size(&kv->layers[l]);
        most = size > most ? size : most;
    }
    w->page = mem_array(most, 1);
    if (!w->page)
        return err_set(err, ERR_NOMEM, "no memory for a KV page of %zu bytes", most);
    for (int l = 0; l < kv->n_layers; l++)
        op_begin(kv->places[l]);
    for (int l = 0; l < kv->n_layers && rc == 0; l++) {
        rc = walk_tensor(w, l, &kv->layers[l].k, err);
        rc = rc < 0 ? rc : walk_tensor(w, l, &kv->layers[l].v, err);
    }
    for (int l = 0; l < kv->n_layers; l++) {
        int end = op_sync(kv->places[l], rc == 0 ? err : NULL);
        rc = rc < 0 ? rc : end;
    }
    free(w->page);
    return rc;
}

int kv_dump(struct kv *kv, int seq, int64_t n, uint8_t *out, struct err *err)
{
    struct walk w = {.kv = kv, .seq = seq, .n = n, .at = out, .out = true};
    assert(kv_can_cut(kv, seq, n));
    return n == 0 ? 0 : walk(&w, err);
}

int64_t kv_restore(struct kv *kv, int seq, int64_t n, const uint8_t *in)
{
    struct kv_seq *s = &kv->seqs[seq];
    struct walk w = {.kv = kv, .seq = seq, .n = n, .at = (uint8_t *)(uintptr_t)in};
    int64_t end = n / kv->page + (n % kv->page != 0);
    assert(s->open && s->len == 0 && n >= 0 && n <= kv->n_ctx);
    for (int g = 0; g < kv->n_groups; g++)
        if (end - kv_first_page(kv, g, n) > kv_pages_free(kv, g))
            return 0;
    for (int g = 0; g < kv->n_groups; g++) {
        int64_t lo = kv_first_page(kv, g, n);
        s->lo[g] = lo < end ? lo : end;
        for (s->hi[g] = s->lo[g]; s->hi[g] < end; s->hi[g]++)
            kv_table_row(kv, seq, g)[s->hi[g]] = kv_take_page(kv, g);
    }
    s->len = n;
    kv_set_len(kv, seq, n > 0 && walk(&w, NULL) == 0 ? n : 0);
    return s->len;
}
