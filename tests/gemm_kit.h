/* What the tests of CLBlast share: instances that use it, one product on any
 * instance, and whether CLBlast or our own kernels did it.  Only for builds
 * that have CLBlast. */
#ifndef FORGE_TESTS_GEMM_KIT_H
#define FORGE_TESTS_GEMM_KIT_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/opencl/gemm.h"
#include "backend/registry.h"
#include "base/log.h"
#include "base/mem.h"
#include "tests/op_cases.h"
#include "tests/test.h"

static inline struct backend *open_one(const char *selector, const struct backend_params *params, struct err *err)
{
    struct backend *be[REGISTRY_MAX_INSTANCES];
    int n = 0;
    return registry_open(selector, params, be, &n, NULL, 0, err) == 0 ? be[0] : NULL;
}

/* NULL after a skip. */
static inline struct backend *open_opencl(const struct backend_params *params)
{
    struct err err = {0};
    struct backend *be = open_one("opencl", params, &err);
    if (be == NULL)
        test_skip(err.msg);
    return be;
}

static const struct backend_params with_clblast = {.n_threads = 1, .gemm = GEMM_KERNELS_CLBLAST, .no_selftest = true};
/* ---- one product ---- */
struct linear {
    enum dtype dtype;
    int n, k, rows;
    bool bias;
    size_t max_alloc; /* 0 = the device's own */
    bool blast;       /* who is to have done it */
};
/* out of one product; the weight is imported while the device's largest allocation is as the row says. */
static inline void run_linear(struct backend *be, const struct linear *t, const void *blocks, const float *x, float *out)
{
    struct host_matrix m = {.name = "w", .dtype = t->dtype, .rows = t->n, .cols = t->k, .data = blocks};
    struct tensor w, from, to, bias;
    struct err err = {0};
    float *b = mem_array((size_t)t->n, sizeof *b);

    op_cases_random(b, (size_t)t->n, 1, 31);
    ck_assert_msg(op_import(be, &w, &m, &err) == 0, "%s", err.msg);
    ck_assert_int_eq(op_alloc(be, &from, DTYPE_F32, t->rows, t->k, &err), 0);
    ck_assert_int_eq(op_alloc(be, &to, DTYPE_F32, t->rows, t->n, &err), 0);
    ck_assert_int_eq(op_alloc(be, &bias, DTYPE_F32, 1, t->n, &err), 0);
    op_begin(be);
    op_write(be, &from, x);
    op_write(be, &bias, b);
    for (int i = 0; i < 2; i++) /* the first use of a class is another path */
        op_linear(be, &to, &from, &w, t->bias ? &bias : NULL);
    ck_assert_msg(op_read(be, out, &to, &err) == 0, "%s", err.msg);
    op_free(w.buf);
    op_free(from.buf);
    op_free(to.buf);
    op_free(bias.buf);
    free(b);
}

static inline double nmse(const float *a, const float *b, size_t n)
{
    double sum = 0, diff = 0;
    for (size_t i = 0; i < n; i++) {
        double d = (double)a[i] - (double)b[i];
        sum += (double)a[i] * (double)a[i];
        diff += d * d;
    }
    return diff / sum;
}

static inline bool by_clblast(const struct backend *be)
{
    const char *device = op_stats(be, OP_LINEAR)->device;
    return device != NULL && strstr(device, "+clblast") != NULL;
}

/* ---- what was said ---- */
static char said[1024]; /* the last warning */
static int n_said;
static inline void hear(void *user, enum log_level level, const char *line)
{
    (void)user;
    if (level <= LOG_WARN) {
        n_said++;
        snprintf(said, sizeof said, "%s", line);
    }
}

static const struct linear usual = {DTYPE_BF16, 48, 64, 40, true, 0, true};

/* The usual product; the bits of cpu? */
static inline bool bits_of_cpu(struct backend *be)
{
    size_t row, n = (size_t)(usual.rows * usual.n);
    struct backend *cpu = open_one("cpu", &(struct backend_params){.n_threads = 1}, NULL);
    ck_assert(dtype_row_size(usual.dtype, usual.k, &row));
    uint8_t *blocks = mem_array(row * (size_t)usual.n, 1);
    float *x = mem_array((size_t)(usual.rows * usual.k), sizeof *x), *want = mem_array(n, sizeof *want),
          *got = mem_array(n, sizeof *got);

    op_cases_blocks(usual.dtype, blocks, (size_t)(usual.n * usual.k), 7);
    op_cases_random(x, (size_t)(usual.rows * usual.k), 1, 3);
    run_linear(cpu, &usual, blocks, x, want);
    run_linear(be, &usual, blocks, x, got);
    bool same = memcmp(want, got, n * sizeof *got) == 0;
    double e = nmse(want, got, n);
    test_that(e <= 1e-12, "the product is wrong: error %g; %s", e, said);
    registry_close(cpu);
    free(blocks);
    free(x);
    free(want);
    free(got);
    return same;
}

static inline int wrong_value(struct blast *b, const struct blast_product *p)
{
    const float spoiled = 100;
    int code = blast_sgemm(b, p);
    cl_ulong last = p->c.off + (cl_ulong)((p->m - 1) * p->c.ld + p->n - 1) * 4;
    return code != CL_SUCCESS ? code : clEnqueueFillBuffer(b->c->queue, p->c.mem, &spoiled, 4, last, 4, 0, NULL, NULL);
}

#endif
