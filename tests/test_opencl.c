/* The OpenCL backend: every operation against the oracle and bit for bit
 * against `cpu`, on each device that is here.
 *
 * OpenCL hangs in a child of a process that has touched it: with forks, each
 * test opens its own devices and the parent none. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "backend/registry.h"
#include "base/mem.h"
#include "tests/op_cases.h"
#include "tests/test.h"

static struct backend *open_one(const char *selector, const struct backend_params *params, struct err *err)
{
    struct backend *be[REGISTRY_MAX_INSTANCES];
    int n = 0;
    return registry_open(selector, params, be, &n, NULL, 0, err) == 0 ? be[0] : NULL;
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

/* NULL after a skip. */
static struct backend *open_opencl(const struct backend_params *params)
{
    struct err err = {0};
    struct backend *be = open_one("opencl", params, &err);
    if (be == NULL)
        test_skip(err.msg);
    return be;
}

static void whole_list(const char *oracle, bool exact)
{
    struct backend_params params = {.n_threads = 1};
    struct backend *cl = open_opencl(&params), *a;
    struct tally t = {0};

    if (cl == NULL)
        return;
    a = open_one(oracle, &params, NULL);
    ck_assert_ptr_nonnull(a);
    int n = op_cases_run(a, cl, exact, tally, &t);
    ck_assert_int_eq(t.bad, 0);
    ck_assert_int_eq(t.ok, n);
    registry_close(a);
    registry_close(cl);
}

START_TEST(against_ref)
{
    whole_list("ref", false);
}
END_TEST

START_TEST(bits_of_cpu)
{
    whole_list("cpu", true);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("opencl");
    TCase *t = tcase_create("opencl");

    tcase_set_timeout(t, 600);
    tcase_add_test(t, bits_of_cpu);
    tcase_add_test(t, against_ref);
    suite_add_tcase(s, t);
    return test_main(s);
}
