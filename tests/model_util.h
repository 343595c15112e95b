/* A whole model for tests: weights, configuration, one or more instances, and the
 * simplest cache there is (each sequence its own run of pages).  Knows nothing of
 * src/run. */
#ifndef FORGE_TESTS_MODEL_UTIL_H
#define FORGE_TESTS_MODEL_UTIL_H

#include "backend/registry.h"
#include "model/forward.h"

struct test_model {
    struct weights *w;
    struct backend *be[REGISTRY_MAX_INSTANCES];
    int n_be;
    struct model *m;
    struct kv_layer *kv; /* [n_layers] */
    struct forward *f;
    int32_t *pages;      /* [max_seqs, max_pages], the same for every group */
    int n_ctx, page_size, max_seqs, max_pages;
};

struct test_model_options {
    const char *device; /* NULL = "cpu" */
    const char *config; /* as config_load takes it */
    int n_threads;      /* 0 = 1 */
    int n_ctx;          /* 0 = 384 */
    int page_size;      /* 0 = one page of n_ctx */
    int max_seqs;       /* 0 = 1 */
    enum dtype kv;      /* F32 (the first value) */
    const double *split;
    const char *kernels; /* family, NULL = by device type */
    bool deterministic;
    const char *kernel_cache; /* NULL = none */
    enum backend_gemm gemm; /* on OpenCL */
};

/* Weights and configuration only; 0 or the error. Closed by test_model_close. */
int test_model_open(struct test_model *t, const char *path, const struct test_model_options *o,
                    struct err *err);
void test_model_close(struct test_model *t);

/* Logits [n, n_vocab] of every id, prefilled in pieces of `chunk` (0 = whole) from position `pos` on. Fails
 * the test on an error. `out` may be NULL: only the cache is filled. */
void test_model_run(struct test_model *t, int seq, const int32_t *ids, int n, int pos, int chunk, float *out);
/* n greedy ids after `last`, which stands at `pos`, one step each over the cache before it. */
void test_model_greedy(struct test_model *t, int seq, const int32_t *last, int pos, int32_t *out, int n);
int64_t test_model_vocab(const struct test_model *t);

#endif
