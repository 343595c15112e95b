/* The OpenCL backend's kernels for GPUs, on whatever device is here: every
 * operation against the oracle; in the canonical order bit for bit as `cpu`,
 * also where groups are small, or few in a launch.
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
    struct op_tally t = {0};

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
    int n = op_cases_run(a, cl, strcmp(runs[_i].oracle, "cpu") == 0, op_tally_add, &t);
    ck_assert_int_eq(t.bad, 0);
    ck_assert_int_eq(t.ok, n);
    registry_close(a);
    registry_close(cl);
}
END_TEST

/* Slow devices (simulators, interpreters) get the list of a first use and a few types, FORGE_TEST_SHORT=1. */
static void tally_case(void *user, const struct selftest_case *c)
{
    op_tally_add(user, op_name(c->op), c->why != NULL ? c->why : c->variant, c->error, c->bound, c->ok);
}

static void run_short(struct backend *cl)
{
    struct backend_params params = {.n_threads = 1, .no_selftest = true};
    struct op_tally t = {0};
    struct selftest_args args = {
        .scope = SELFTEST_SHORT,
        .exact = true,
        .types = 1u << DTYPE_F32 | 1u << DTYPE_BF16 | 1u << DTYPE_Q8_0 | 1u << DTYPE_Q4_K,
        .others = true,
        .report = tally_case,
        .user = &t,
    };
    struct backend *a = open_one("cpu", &params, NULL);

    ck_assert_ptr_nonnull(a);
    int n = selftest_run(a, cl, &args);
    ck_assert_int_eq(t.bad, 0);
    ck_assert_int_eq(t.ok, n);
    registry_close(a);
    registry_close(cl);
}

/* Of either family in the canonical order; NULL after a skip. */
static struct backend *open_family(int i)
{
    struct backend_params params = {.n_threads = 1, .kernels = i == 0 ? "cpu" : "gpu", .deterministic = true};
    struct err err = {0};
    struct backend *cl = open_one("opencl", &params, &err);

    if (cl == NULL)
        test_skip(err.msg);
    return cl;
}

START_TEST(short_list)
{
    struct backend *cl = open_family(_i);

    if (cl != NULL)
        run_short(cl);
}
END_TEST

#ifdef HAVE_OPENCL
/* Some devices take 65535 groups in the second and third dimension: as if they took three. */
START_TEST(parted_launches)
{
    struct backend *cl = open_family(_i);

    if (cl == NULL)
        return;
    ((struct clb *)cl)->most_groups = 3;
    run_short(cl);
}
END_TEST
#endif

/* LeakSanitizer's own tracer dies (signal 11) on the threads in which PoCL compiles this many kernels.  What the
 * instance owns, the split layout with it, is looked for by test_opencl, and by the fault layer's count of OpenCL objects. */
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
    tcase_add_loop_test(t, parted_launches, 0, 2);
#endif
    if (getenv("FORGE_TEST_SHORT") != NULL)
        tcase_add_loop_test(t, short_list, 0, 2);
    else
        tcase_add_loop_test(t, whole_list, 0, sizeof runs / sizeof *runs);
    suite_add_tcase(s, t);
    return test_main(s);
}
