/* The OpenCL backend's variants beyond the base kernels: sub-groups, and under
 * --math fast integer dots and half arithmetic, within their bounds; that they
 * ran at all; that one row gives the same bits alone and among others; that the
 * base kernels follow where one is refused.
 *
 * Where the device lacks what a variant asks for, its tests are skipped with the reason.  The device is the
 * environment's; each test opens its own in its own process. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/registry.h"
#include "backend/selftest.h"
#include "base/mem.h"
#include "tests/test.h"
#ifdef HAVE_OPENCL
#include "backend/opencl/cl.h"

#define TYPE(t) (UINT32_C(1) << DTYPE_##t)

/* What each variant is asked for, and in which math. */
static const struct {
    enum cl_variant v;
    enum backend_math math;
    uint32_t types;
    bool others; /* operations without weights: attention */
    const char *missing;
} rows[] = {
    {CLV_SUB, MATH_EXACT, TYPE(F16) | TYPE(BF16) | TYPE(Q8_0) | TYPE(Q4_0) | TYPE(Q4_K), true,
     "the device has no sub-groups"},
    {CLV_DOT, MATH_FAST, TYPE(Q8_0) | TYPE(Q4_0) | TYPE(Q4_K), false,
     "the device has no integer dot product"},
    {CLV_HALF, MATH_FAST, TYPE(F16), false, "the device has no half arithmetic"},
};
enum { N_ROWS = sizeof rows / sizeof *rows };

static bool has(const struct cl_device *d, enum cl_variant v)
{
    return v == CLV_SUB ? d->subgroups : v == CLV_DOT ? d->int_dot : d->fp16;
}

/* With the GPU family on a device that has what row i asks for; NULL after a skip. */
static struct clb *open_for(int i, bool deterministic)
{
    struct backend_params params = {.n_threads = 1,
                                    .kernels = "gpu",
                                    .math = rows[i].math,
                                    .deterministic = deterministic,
                                    .no_selftest = true};
    struct backend *be[REGISTRY_MAX_INSTANCES];
    struct err err = {0};
    int n = 0;

    if (registry_open("opencl", &params, be, &n, NULL, 0, &err) != 0) {
        test_skip(err.msg);
        return NULL;
    }
    struct clb *c = (struct clb *)be[0];
    if (has(&c->dev, rows[i].v) && c->gpu)
        return c;
    test_skip(c->gpu ? rows[i].missing : "the device is too small for the gpu family");
    registry_close(be[0]);
    return NULL;
}

struct tally {
    int ok, bad;
};

static void tally(void *user, const struct selftest_case *c)
{
    struct tally *t = user;
    if (!c->ok && t->bad < 20)
        fprintf(stderr, "%s %s: error %g, bound %g %s\n", op_name(c->op), c->variant, c->error, c->bound,
                c->why != NULL ? c->why : "");
    t->ok += c->ok;
    t->bad += !c->ok;
}

static void run_list(struct clb *c, int i, struct tally *t)
{
    struct backend_params plain = {.n_threads = 1, .no_selftest = true};
    struct backend *ref[REGISTRY_MAX_INSTANCES];
    struct selftest_args args = {.scope = SELFTEST_SHORT,
                                 .types = rows[i].types,
                                 .others = rows[i].others,
                                 .fast = rows[i].math == MATH_FAST,
                                 .report = tally,
                                 .user = t};
    int n = 0;

    *t = (struct tally){0};
    ck_assert_int_eq(registry_open("ref", &plain, ref, &n, NULL, 0, NULL), 0);
    n = selftest_run(ref[0], &c->base, &args);
    ck_assert_int_eq(t->ok + t->bad, n);
    registry_close(ref[0]);
}

/* Every case within its bound, and no variant had to give way. */
START_TEST(within_bounds)
{
    struct clb *c = open_for(_i, false);
    struct tally t;

    if (c == NULL)
        return;
    for (int d = 0; d < CL_N_WEIGHTS; d++)
        if ((rows[_i].types >> d & 1) != 0)
            test_that(cl_variant(c, rows[_i].v, OP_LINEAR, (enum dtype)d), "%s: its variant is not chosen",
                      dtype_info((enum dtype)d)->name);
    run_list(c, _i, &t);
    ck_assert_int_eq(t.bad, 0);
    for (int op = 0; op < OP_COUNT; op++)
        test_that(c->refused[rows[_i].v][op] == 0, "%s: the variant gave way", op_name((enum op_id)op));
    if (rows[_i].v == CLV_SUB) {
        ck_assert_int_gt(c->n_sub_counts, 0);
        static const enum op_id ops[] = {OP_LINEAR, OP_ATTENTION};
        for (int i = 0; i < 2; i++) {
            const char *ran = op_stats(&c->base, ops[i])->device;
            test_that(ran != NULL && strstr(ran, c->variant_name[CLV_SUB]) != NULL, "%s ran on %s", op_name(ops[i]), ran);
        }
    }
    registry_close(&c->base);
}
END_TEST

/* ---- one row alone and among others ---- */
enum { N = 7, K = 512, O = 37 };

static void product(struct clb *c, enum dtype type, const float *x, int first, int n, float *out)
{
    size_t row;
    struct tensor w, from, to;
    ck_assert(dtype_row_size(type, K, &row));
    uint8_t *blocks = mem_array(row * O, 1);
    ck_assert(selftest_blocks(type, blocks, (size_t)K * O, 6));
    struct host_matrix m = {.name = "w", .dtype = type, .rows = O, .cols = K, .data = blocks};
    struct err err = {0};
    ck_assert_msg(op_import(&c->base, &w, &m, &err) == 0, "%s", err.msg);
    ck_assert_int_eq(op_alloc(&c->base, &from, DTYPE_F32, n, K, NULL), 0);
    ck_assert_int_eq(op_alloc(&c->base, &to, DTYPE_F32, n, O, NULL), 0);
    op_begin(&c->base);
    op_write(&c->base, &from, x + (size_t)first * K);
    op_linear(&c->base, &to, &from, &w, NULL);
    ck_assert_int_eq(op_read(&c->base, out, &to, NULL), 0);
    op_free(w.buf);
    op_free(from.buf);
    op_free(to.buf);
    free(blocks);
}

/* What must hold between a row's outputs alone and among others. */
typedef void row_check(const struct clb *c, int i, enum dtype d, int r, const float *alone, const float *among);

/* Every step-th of n rows, each type of row i's variant. */
static void compare_rows(int i, int n, int step, row_check *check)
{
    struct clb *c = rows[i].math == MATH_FAST ? open_for(i, false) : NULL;
    size_t size = (size_t)n;
    float *x = mem_array(size * K, sizeof *x), *all = mem_array(size * O, sizeof *all), *one = mem_array(O, sizeof *one);

    ck_assert(x != NULL && all != NULL && one != NULL);
    selftest_random(x, size * K, 3, 5);
    for (int d = 0; c != NULL && d < CL_N_WEIGHTS; d++) {
        if ((rows[i].types >> d & 1) == 0)
            continue;
        product(c, (enum dtype)d, x, 0, n, all);
        for (int r = 0; r < n; r += step) {
            product(c, (enum dtype)d, x, r, 1, one);
            check(c, i, (enum dtype)d, r, one, all + r * O);
        }
    }
    if (c != NULL)
        registry_close(&c->base);
    free(x);
    free(all);
    free(one);
}

static void same_bits(const struct clb *c, int i, enum dtype d, int r, const float *alone, const float *among)
{
    const char *ran = op_stats(&c->base, OP_LINEAR)->device;

    test_that(memcmp(alone, among, sizeof(float) * O) == 0, "%s: row %d has other bits alone", dtype_info(d)->name, r);
    test_that(ran != NULL && strcmp(ran, c->variant_name[rows[i].v]) == 0, "%s: it ran on %s", dtype_info(d)->name, ran);
}

START_TEST(rows_are_free)
{
    compare_rows(_i, N, 1, same_bits);
}
END_TEST

static void same_but_order(const struct clb *c, int i, enum dtype d, int r, const float *alone, const float *among)
{
    double diff = 0, norm = 0, bound = rows[i].v == CLV_HALF ? 1e-7 : 1e-11;

    (void)c;
    for (int o = 0; o < O; o++) {
        diff += pow((double)alone[o] - (double)among[o], 2);
        norm += pow((double)alone[o], 2);
    }
    test_that(diff <= bound * norm, "%s: row %d alone differs by %.2g", dtype_info(d)->name, r, diff / norm);
}

/* Of many rows the same rounded values are multiplied by another kernel: only the order of a sum differs, which is far
 * from what rounding x does. */
START_TEST(many_rows_are_rounded_too)
{
    compare_rows(_i, 70, 23, same_but_order);
}
END_TEST

/* A value that is not finite stays visible in every output of its row, and in no other row. */
START_TEST(not_finite)
{
    static const float odd[] = {INFINITY, -INFINITY, NAN};
    struct clb *c = rows[_i].math == MATH_FAST ? open_for(_i, false) : NULL;
    float *x = mem_array(N * K, sizeof *x), *y = mem_array(N * O, sizeof *y);

    ck_assert(x != NULL && y != NULL);
    for (int k = 0; c != NULL && k < 3; k++) {
        selftest_random(x, N * K, 1, 5);
        x[3 * K + 77] = odd[k];
        for (int d = 0; d < CL_N_WEIGHTS; d++) {
            if ((rows[_i].types >> d & 1) == 0)
                continue;
            product(c, (enum dtype)d, x, 0, N, y);
            for (int i = 0; i < N * O; i++)
                test_that((y[i] - y[i] == 0.0f) == (i / O != 3), "%s with %g: output %d of row %d is %g",
                          dtype_info((enum dtype)d)->name, (double)odd[k], i % O, i / O, (double)y[i]);
        }
    }
    if (c != NULL)
        registry_close(&c->base);
    free(x);
    free(y);
}
END_TEST

/* Finite values whose sum is not are rounded like any other. */
START_TEST(large_values)
{
    struct clb *c = rows[_i].math == MATH_FAST ? open_for(_i, false) : NULL;
    float *x = mem_array(K, sizeof *x), *y = mem_array(O, sizeof *y), *z = mem_array(O, sizeof *z);

    ck_assert(x != NULL && y != NULL && z != NULL);
    for (int d = 0; c != NULL && d < CL_N_WEIGHTS; d++) {
        if ((rows[_i].types >> d & 1) == 0)
            continue;
        for (int i = 0; i < K; i++)
            x[i] = i / 32 == 2 ? 0x1p-3f : 0;
        product(c, (enum dtype)d, x, 0, 1, y);
        for (int i = 0; i < K; i++)
            x[i] *= 0x1p127f; /* 2^124, 32 times */
        product(c, (enum dtype)d, x, 0, 1, z);
        for (int i = 0; i < O; i++)
            test_that(fabsf(y[i]) >= 0x1p0f || z[i] == y[i] * 0x1p127f, "%s: output %d is %g, not %g 2^127",
                      dtype_info((enum dtype)d)->name, i, (double)z[i], (double)y[i]);
    }
    if (c != NULL)
        registry_close(&c->base);
    free(x);
    free(y);
    free(z);
}
END_TEST

/* Under --deterministic there are none; a refused one is replaced by the base kernels, within their bounds. */
START_TEST(giving_way)
{
    struct clb *c = open_for(_i, true);
    struct tally t;

    if (c == NULL)
        return;
    for (int d = 0; d < CL_N_WEIGHTS; d++)
        test_that(!cl_variant(c, rows[_i].v, OP_LINEAR, (enum dtype)d), "a variant under deterministic");
    registry_close(&c->base);
    c = open_for(_i, false);
    ck_assert_ptr_nonnull(c);
    enum dtype d = rows[_i].v == CLV_HALF ? DTYPE_F16 : DTYPE_Q8_0;
    ck_assert(cl_variant(c, rows[_i].v, OP_LINEAR, d));
    ck_assert(c->base.ops->fall_back(&c->base, OP_LINEAR, d)); /* gives up this and what else runs there */
    ck_assert(!cl_variant(c, rows[_i].v, OP_LINEAR, d));
    ck_assert_uint_eq(c->plain[OP_LINEAR], 0);
    struct backend_params plain = {.n_threads = 1, .no_selftest = true};
    struct backend *ref[REGISTRY_MAX_INSTANCES];
    int n = 0;
    struct selftest_args args = {
        .scope = SELFTEST_SHORT, .types = UINT32_C(1) << d, .report = tally, .user = &t}; /* the exact bounds */
    t = (struct tally){0};
    ck_assert_int_eq(registry_open("ref", &plain, ref, &n, NULL, 0, NULL), 0);
    selftest_run(ref[0], &c->base, &args);
    registry_close(ref[0]);
    ck_assert_int_eq(t.bad, 0);
    ck_assert_int_gt(t.ok, 0);
    ck_assert(c->base.ops->fall_back(&c->base, OP_LINEAR, d)); /* then the other family */
    ck_assert_uint_ne(c->plain[OP_LINEAR], 0);
    registry_close(&c->base);
}
END_TEST
#else
START_TEST(not_built)
{
    test_skip("this build has no OpenCL backend");
}
END_TEST
#endif

int main(void)
{
    Suite *s = suite_create("opencl variants");
    TCase *t = tcase_create("opencl variants");

    tcase_set_timeout(t, 1800);
#ifdef HAVE_OPENCL
    tcase_add_loop_test(t, within_bounds, 0, N_ROWS);
    tcase_add_loop_test(t, rows_are_free, 1, N_ROWS);
    tcase_add_loop_test(t, many_rows_are_rounded_too, 1, N_ROWS);
    tcase_add_loop_test(t, not_finite, 1, N_ROWS);
    tcase_add_loop_test(t, large_values, 1, N_ROWS);
    tcase_add_loop_test(t, giving_way, 0, N_ROWS);
#else
    tcase_add_test(t, not_built);
#endif
    suite_add_tcase(s, t);
    return test_main(s);
}
