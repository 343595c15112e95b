/* The list of src/backend/selftest_cases.c, as unit tests run it: all of it, and
 * their data.  What cannot be run is a failed case, and is told.
 * Must not know which backends are compared, nor what the cases are. */
#include "tests/op_cases.h"

#include <stdio.h>
#include <stdlib.h>

#include "backend/selftest.h"
#include "base/mem.h"

const char *const op_isas[OP_N_ISAS] = {"avx512bf16", "avx512vnni", "avx512", "avx2", "neondot", "neon", "c"};

struct listener {
    op_cases_report *report;
    void *user;
};

static void on_case(void *user, const struct selftest_case *c)
{
    const struct listener *l = user;

    if (c->why != NULL)
        fprintf(stderr, "op_cases: %s %s: %s\n", op_name(c->op), c->variant, c->why);
    l->report(l->user, op_name(c->op), c->variant, c->error, c->bound, c->ok);
}

static int run(struct backend *a, struct backend *b, bool exact, bool fast, op_cases_report *report, void *user)
{
    struct listener l = {report, user};
    const struct selftest_args args = {
        .exact = exact, .fast = fast, .types = UINT32_MAX, .others = true, .report = on_case, .user = &l};

    return selftest_run(a, b, &args);
}

int op_cases_run(struct backend *a, struct backend *b, bool exact, op_cases_report *report, void *user)
{
    return run(a, b, exact, false, report, user);
}

void op_tally_add(void *user, const char *op, const char *variant, double error, double bound, bool ok)
{
    struct op_tally *t = user;

    if (!ok && !t->quiet && t->bad < 20)
        fprintf(stderr, "%s %s: error %g, bound %g\n", op, variant, error, bound);
    t->ok += ok;
    t->bad += !ok;
}

int op_cases_run_fast(struct backend *a, struct backend *b, op_cases_report *report, void *user)
{
    return run(a, b, false, true, report, user);
}

void op_cases_blocks(enum dtype dtype, void *blocks, size_t n, uint64_t seed)
{
    if (!selftest_blocks(dtype, blocks, n, seed)) {
        fprintf(stderr, "op_cases: no memory for blocks\n");
        abort();
    }
}

void op_cases_random(float *x, size_t n, double range, uint64_t seed)
{
    selftest_random(x, n, range, seed);
}

static struct tensor own(struct backend *be, enum dtype dtype, int64_t rows, int64_t cols)
{
    struct tensor t;
    if (op_alloc(be, &t, dtype, rows, cols, NULL) != 0) {
        fprintf(stderr, "op_cases: no memory for a tensor\n");
        abort();
    }
    return t;
}

struct tensor op_cases_filled(struct backend *be, int64_t rows, int64_t cols, double range, uint64_t seed)
{
    struct tensor t = own(be, DTYPE_F32, rows, cols);
    float *x = mem_array((size_t)(rows * cols), sizeof *x);
    if (!x) {
        fprintf(stderr, "op_cases: no memory for values\n");
        abort();
    }
    op_cases_random(x, (size_t)(rows * cols), range, seed);
    op_write(be, &t, x);
    free(x);
    return t;
}

struct tensor op_cases_ints(struct backend *be, int64_t rows, int64_t cols, const int32_t *v)
{
    struct tensor t = own(be, DTYPE_I32, rows, cols);
    op_write(be, &t, v);
    return t;
}
