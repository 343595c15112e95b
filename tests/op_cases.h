/* One list of cases for every operation, run on two instances and compared:
 * a is the oracle, b the one under test.  Any backend can be put through it;
 * cases and bounds are those of backend/selftest_cases.c. */
#ifndef FORGE_TESTS_OP_CASES_H
#define FORGE_TESTS_OP_CASES_H

#include <stdbool.h>

#include "backend/op.h"

/* Called once for each case: the normalised mean square error of all outputs together
 * (sum (a - b)^2 / sum a^2), its bound, and whether it was kept. */
typedef void op_cases_report(void *user, const char *op, const char *variant, double error, double bound, bool ok);

/* exact: every bound is 0, the bits must be equal.  Returns how many cases ran. */
int op_cases_run(struct backend *a, struct backend *b, bool exact, op_cases_report *report, void *user);
/* The same with the bounds of --math fast. */
int op_cases_run_fast(struct backend *a, struct backend *b, op_cases_report *report, void *user);

/* A report that counts, for user = a struct op_tally; the first failures are printed unless quiet. */
struct op_tally {
    int ok, bad;
    bool quiet;
};
op_cases_report op_tally_add;

/* Random blocks of a type: 1 row of n values, finite. */
void op_cases_blocks(enum dtype dtype, void *blocks, size_t n, uint64_t seed);
/* n values in -range .. range. */
void op_cases_random(float *x, size_t n, double range, uint64_t seed);
/* Tensors of their own: F32 in -range .. range, and the values of an I32 one. */
struct tensor op_cases_filled(struct backend *be, int64_t rows, int64_t cols, double range, uint64_t seed);
struct tensor op_cases_ints(struct backend *be, int64_t rows, int64_t cols, const int32_t *v);

/* The instruction sets of the `cpu` backend, the better ones first, the last in plain C; none but that is on every machine. */
enum { OP_N_ISAS = 7 };
extern const char *const op_isas[OP_N_ISAS];

#endif
