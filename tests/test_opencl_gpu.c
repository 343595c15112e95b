/* The OpenCL backend's kernels for GPUs, on whatever device is here: every
 * operation against the oracle; in the canonical order bit for bit as `cpu`,
 * also where groups are small; weights in the split layout.
 *
 * OpenCL hangs in a child of a process that has touched it: each test opens its
 * own device in its own process and main touches none. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/registry.h"
#include "backend/selftest.h"
#include "base/mem.h"
#include "tests/op_cases.h"
#include "tests/test.h"
#ifdef HAVE_OPENCL
#include "backend/opencl/cl.h"
#endif

static struct backend *open_one(const char *selector, const struct backend_params *params, struct err *err)
{
    struct backend *be[REGISTRY_MAX_INSTANCES];
    struct backend_params unguarded = *params;
    int n = 0;
    unguarded.no_selftest = true; /* nothing may stand in for what is tested */
    return registry_open(selector, &unguarded, be, &n, NULL, 0, err) == 0 ? be[0] : NULL;
}

struct tally {
    int ok, bad;
};

static void tally(void *user, const char *op, const char *variant, double error, double bound, bool ok)
{
    struct tally *t = user;
    if (!ok && t->bad < 20)
        fprintf(stderr, "%s %s: error %g, bound %g\n", op, variant, error, bound);
    t->ok += ok;
    t->bad += !ok;
}

/* What the family is asked for, below which limit of groups (PoCL's environment), against which backend. */
static const struct {
    const char *oracle, *group;
    bool deterministic;
} runs[] = {
    {"ref", NULL, false},
    {"cpu", NULL, true},
    {"ref", "64", false},
    {"cpu", "1", false}, /* too small for it: the other family's kernels, whose bits are those of cpu */
};

static bool forks(void)
{
    const char *fork = getenv("CK_FORK");
    return fork == NULL || strcmp(fork, "no") != 0;
}

START_TEST(whole_list)
{
    struct backend_params params = {
        .n_threads = 1, .kernels = "gpu", .deterministic = runs[_i].deterministic};
    struct backend *cl, *a;
    struct err err = {0};
    struct tally t = {0};

    if (runs[_i].group != NULL && !forks()) {
        test_skip("the runtime's environment can be changed in a child only");
        return;
    }
    if (runs[_i].group != NULL)
        setenv("POCL_MAX_WORK_GROUP_SIZE", runs[_i].group, 1);
    cl = open_one("opencl", &params, &err);
    if (cl == NULL) {
        test_skip(err.msg);
        return;
    }
    a = open_one(runs[_i].oracle, &params, NULL);
    ck_assert_ptr_nonnull(a);
    int n = op_cases_run(a, cl, strcmp(runs[_i].oracle, "cpu") == 0, tally, &t);
    ck_assert_int_eq(t.bad, 0);
    ck_assert_int_eq(t.ok, n);
    registry_close(a);
    registry_close(cl);
}
END_TEST

/* Slow devices (simulators, interpreters) get the list of a first use and a few types, FORGE_TEST_SHORT=1. */
static void tally_case(void *user, const struct selftest_case *c)
{
    tally(user, op_name(c->op), c->why != NULL ? c->why : c->variant, c->error, c->bound, c->ok);
}

START_TEST(short_list)
{
    struct backend_params params = {.n_threads = 1,
                                    .kernels = _i == 0 ? "cpu" : "gpu",
                                    .deterministic = true,
                                    .no_selftest = true};
    struct err err = {0};
    struct backend *cl = open_one("opencl", &params, &err), *a;
    struct tally t = {0};
    struct selftest_args args = {
        .scope = SELFTEST_SHORT,
        .exact = true,
        .types = 1u << DTYPE_F32 | 1u << DTYPE_BF16 | 1u << DTYPE_Q8_0 | 1u << DTYPE_Q4_K,
        .others = true,
        .report = tally_case,
        .user = &t,
    };

    if (cl == NULL) {
        test_skip(err.msg);
        return;
    }
    a = open_one("cpu", &params, NULL);
    ck_assert_ptr_nonnull(a);
    int n = selftest_run(a, cl, &args);
    ck_assert_int_eq(t.bad, 0);
    ck_assert_int_eq(t.ok, n);
    registry_close(a);
    registry_close(cl);
}
END_TEST

#ifdef HAVE_OPENCL
static const struct {
    enum dtype dtype;
    int64_t rows, cols;
    bool split;
} layouts[] = {
    {DTYPE_Q8_0, 3, 256, true},     {DTYPE_Q8_0, 5, 896, true}, /* a row filled up */
    {DTYPE_Q8_0, 1500, 1024, true},                             /* more than is repacked at once */
    {DTYPE_Q8_0, 3, 32, false},     {DTYPE_Q4_0, 7, 1120, true}, {DTYPE_Q4_0, 3, 64, false},
    {DTYPE_Q4_0, 7, 1056, false}, /* filled up it would grow by 2.4 % */
    {DTYPE_Q4_K, 3, 512, false}, /* quants of a block lie together as stored */
    {DTYPE_Q6_K, 3, 256, false},    {DTYPE_BF16, 3, 5, false},
};

/* Exported values are those of the stored form; the layout costs at most 2 %. */
START_TEST(split_layout)
{
    struct backend_params params = {.n_threads = 1, .kernels = "gpu"};
    struct err err = {0};
    struct backend *be = open_one("opencl", &params, &err);

    if (be == NULL) {
        test_skip(err.msg);
        return;
    }
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        const struct dtype_info *d = dtype_info(layouts[i].dtype);
        size_t n = (size_t)(layouts[i].rows * layouts[i].cols), size = n / d->block_elems * d->block_size;
        uint64_t before = ((struct clb *)be)->used;
        uint8_t *blocks = mem_array(size, 1);
        float *want = mem_array(n, sizeof *want), *got = mem_array(n, sizeof *got);
        struct host_matrix m = {.name = "w",
                                .dtype = layouts[i].dtype,
                                .rows = layouts[i].rows,
                                .cols = layouts[i].cols,
                                .data = blocks};
        struct tensor w;

        op_cases_blocks(layouts[i].dtype, blocks, n, 77 + i);
        d->to_f32(want, blocks, n);
        ck_assert_msg(op_import(be, &w, &m, &err) == 0, "%s", err.msg);
        ck_assert_int_eq(cl_is_split(&w), layouts[i].split && ((struct clb *)be)->gpu);
        uint64_t used = ((struct clb *)be)->used - before;
        test_that(used >= size && 50 * (used - size) <= size, "%s: %d bytes for %zu", d->name, (int)used,
                  size);
        ck_assert_msg(op_export(be, got, &w, &err) == 0, "%s", err.msg);
        test_that(memcmp(got, want, n * sizeof *got) == 0, "%s [%d]: other values come back", d->name,
                  (int)i);
        op_free(w.buf);
        test_that(((struct clb *)be)->used == before, "%s: not all bytes are given back", d->name);
        free(blocks);
        free(want);
        free(got);
    }
    registry_close(be);
}
END_TEST
#endif

/* LeakSanitizer's own tracer dies (signal 11) on the threads in which PoCL compiles this many kernels.  What the
 * instance owns is looked for by test_opencl, and by the fault layer's count of OpenCL objects. */
int __lsan_is_turned_off(void);
int __lsan_is_turned_off(void)
{
    return 1;
}

int main(void)
{
    Suite *s = suite_create("opencl_gpu");
    TCase *t = tcase_create("opencl_gpu");

    tcase_set_timeout(t, 1800);
#ifdef HAVE_OPENCL
    tcase_add_test(t, split_layout);
#endif
    if (getenv("FORGE_TEST_SHORT") != NULL)
        tcase_add_loop_test(t, short_list, 0, 2);
    else
        tcase_add_loop_test(t, whole_list, 0, sizeof runs / sizeof *runs);
    suite_add_tcase(s, t);
    return test_main(s);
}
