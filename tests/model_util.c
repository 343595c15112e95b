/* A model on its instances for tests, with the simplest cache: see model_util.h.
 * Does by hand what src/run does for the program, so that the forward pass is
 * tested without it. */
#include "tests/model_util.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "tests/test.h"

#define MAX_ROWS 320

static int make_kv(struct test_model *t, enum dtype dtype, struct err *err)
{
    const struct model_config *c = &t->m->config;
    t->kv = mem_array((size_t)c->n_layers, sizeof(*t->kv));
    t->pages = mem_array((size_t)t->max_seqs * (size_t)t->max_pages, sizeof(int32_t));
    ck_assert_ptr_nonnull(t->kv);
    ck_assert_ptr_nonnull(t->pages);
    int n_pages = t->max_seqs * t->max_pages;
    for (int i = 0; i < n_pages; i++) /* backwards, so that nothing leans on the order of pages */
        t->pages[i] = n_pages - 1 - i;
    for (int64_t l = 0; l < c->n_layers; l++) {
        struct kv_layer *kv = &t->kv[l];
        int64_t rows = (int64_t)n_pages * c->n_kv_heads * t->page_size;
        kv->n_kv_heads = (int)c->n_kv_heads;
        kv->head_dim = (int)c->head_dim;
        kv->page_size = t->page_size;
        int rc = op_alloc(t->m->layers[l].be, &kv->k, dtype, rows, c->head_dim, err);
        if (rc == 0)
            rc = op_alloc(t->m->layers[l].be, &kv->v, dtype, rows, c->head_dim, err);
        if (rc)
            return rc;
    }
    return 0;
}

int test_model_open(struct test_model *t, const char *path, const struct test_model_options *o,
                    struct err *err)
{
    static const struct test_model_options defaults;
    struct model_config config = {0};
    o = o ? o : &defaults;
    *t = (struct test_model){.n_ctx = o->n_ctx ? o->n_ctx : 384, .max_seqs = o->max_seqs ? o->max_seqs : 1};
    t->page_size = o->page_size ? o->page_size : t->n_ctx;
    t->max_pages = (t->n_ctx + t->page_size - 1) / t->page_size;
    struct backend_params params = {.n_threads = o->n_threads ? o->n_threads : 1,
                                    .math = MATH_EXACT,
                                    .no_selftest = true,
                                    .kernels = o->kernels,
                                    .deterministic = o->deterministic,
                                    .kernel_cache = o->kernel_cache,
                                    .gemm = o->gemm};
    int rc = weights_open(&t->w, path, err);
    if (rc == 0)
        rc = config_load(&config, t->w, o->config, err);
    if (rc) {
        config_fini(&config);
        return rc;
    }
    rc = registry_open(o->device ? o->device : "cpu", &params, t->be, &t->n_be, NULL, 0, err);
    if (rc)
        config_fini(&config);
    else
        rc = model_open(&t->m, &config, t->w, t->be, t->n_be, o->split, NULL, NULL, err);
    if (rc == 0)
        rc = make_kv(t, o->kv, err);
    struct forward_limits limits = {.max_rows = MAX_ROWS,
                                    .max_want = MAX_ROWS,
                                    .max_seqs = t->max_seqs,
                                    .n_ctx = t->n_ctx / 8}; /* so that positions beyond the table are met, too */
    for (int g = 0; g < CONFIG_KV_GROUPS_MAX; g++)
        limits.max_pages[g] = t->max_pages;
    return rc ? rc : forward_new(&t->f, t->m, t->kv, &limits, err);
}

void test_model_close(struct test_model *t)
{
    forward_free(t->f);
    for (int64_t l = 0; t->kv && l < t->m->config.n_layers; l++) {
        op_free(t->kv[l].k.buf);
        op_free(t->kv[l].v.buf);
    }
    free(t->kv);
    free(t->pages);
    model_close(t->m);
    for (int i = 0; i < t->n_be; i++)
        registry_close(t->be[i]);
    weights_close(t->w);
    *t = (struct test_model){0};
}

int64_t test_model_vocab(const struct test_model *t)
{
    return t->m->config.n_vocab;
}

void test_model_run(struct test_model *t, int seq, const int32_t *ids, int n, int pos, int chunk, float *out)
{
    struct err err = {0};
    int32_t rows[MAX_ROWS], at[MAX_ROWS], zero[MAX_ROWS] = {0};
    chunk = chunk > 0 && chunk < n ? chunk : n;
    ck_assert_int_le(chunk, MAX_ROWS);
    ck_assert_int_le(pos + n, t->n_ctx);
    for (int i = 0; i < n; i += chunk) {
        struct forward_batch b = {
            .n_rows = n - i < chunk ? n - i : chunk, .ids = ids + i, .pos = at, .seq = zero, .n_seqs = 1};
        for (int k = 0; k < b.n_rows; k++) {
            at[k] = pos + i + k;
            rows[k] = k;
        }
        for (int g = 0; g < CONFIG_KV_GROUPS_MAX; g++)
            b.pages[g] = t->pages + seq * t->max_pages;
        b.want = rows;
        b.n_want = out ? b.n_rows : 0;
        ck_assert_msg(forward_run(t->f, &b, &err) == 0, "%s", err.msg);
        int rc = out ? forward_logits(t->f, out + (size_t)i * (size_t)test_model_vocab(t), &err)
                     : forward_wait(t->f, &err);
        ck_assert_msg(rc == 0, "%s", err.msg);
    }
}

void test_model_greedy(struct test_model *t, int seq, const int32_t *last, int pos, int32_t *out, int n)
{
    struct err err = {0};
    int32_t id = *last, zero = 0;
    for (int i = 0; i < n; i++) {
        int32_t at = pos + i;
        struct forward_batch b = {
            .n_rows = 1, .ids = &id, .pos = &at, .seq = &zero, .n_seqs = 1, .n_want = 1, .want = &zero};
        for (int g = 0; g < CONFIG_KV_GROUPS_MAX; g++)
            b.pages[g] = t->pages + seq * t->max_pages;
        ck_assert_msg(forward_run(t->f, &b, &err) == 0, "%s", err.msg);
        ck_assert_msg(forward_argmax(t->f, &out[i], &err) == 0, "%s", err.msg);
        id = out[i];
    }
}
