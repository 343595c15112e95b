/* The list of cases that any backend must get right: every operation, every
 * weight type, odd sizes, one row and many, compared with another instance.
 * `forge selftest`, the check of a device at its first use and the unit tests
 * run the same list.  Bounds are one table in selftest_cases.c.
 *
 * Knows no particular backend; neither prints nor ends anything. */
#ifndef FORGE_BACKEND_SELFTEST_H
#define FORGE_BACKEND_SELFTEST_H

#include "backend/op.h"

struct selftest_case {
    enum op_id op;
    enum dtype dtype;    /* of weights or pages, DTYPE_F32 where there are none */
    const char *variant; /* "Q4_K [7, 96] x [17, 96]" */
    double error;        /* sum (a - b)^2 / sum a^2 over all outputs; infinite when it could not be run */
    double bound;
    bool ok;
    const char *why; /* it could not be run; NULL = it was */
    int code;        /* of that failure */
};
typedef void selftest_report(void *user, const struct selftest_case *c);

enum selftest_scope {
    SELFTEST_WHOLE,
    SELFTEST_SHORT /* a few odd shapes of each operation, for a start */
};

struct selftest_args {
    enum selftest_scope scope;
    bool exact;     /* every bound is 0: the bits must be equal */
    bool fast;      /* the bounds of --math fast */
    uint32_t types; /* operations with weights of these types: bit 1 << dtype; UINT32_MAX = all there are */
    bool others;    /* operations without weights */
    struct op_heads heads; /* attention of these heads beside it */
    selftest_report *report;
    bool (*stop)(void *user); /* asked before each case; true = no more of them; NULL = never */
    void *user;
};

/* How many cases ran.  An operation that cannot be run on `be` is a failed case, never an end. */
int selftest_run(struct backend *oracle, struct backend *be, const struct selftest_args *args);

/* Random blocks of a type: 1 row of n values, finite. False: no memory. */
bool selftest_blocks(enum dtype dtype, void *blocks, size_t n, uint64_t seed);
/* n values in -range .. range. */
void selftest_random(float *x, size_t n, double range, uint64_t seed);

#endif
