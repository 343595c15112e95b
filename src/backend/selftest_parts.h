/* What selftest.c gives the list of selftest_cases.c: tensors on both instances
 * at once, and the comparison of what they computed.  Nobody else includes it.
 *
 * A case whose data cannot be had ends at once, as a failed one: case_begin() to
 * case_end() may be left by a jump, and everything made in between is freed by
 * selftest.c.  So cases keep nothing of their own. */
#ifndef FORGE_BACKEND_SELFTEST_PARTS_H
#define FORGE_BACKEND_SELFTEST_PARTS_H

#include <setjmp.h>

#include "backend/selftest.h"

/* The same tensor on both instances. */
struct case_pair {
    struct tensor t[2];
};

struct selftest {
    struct backend *be[2];
    struct selftest_args args;
    int n_cases;
    uint64_t seed;
    /* of the case at hand */
    enum op_id op;
    enum dtype dtype;
    char variant[128];
    void *owned[160];
    int n_owned;
    struct buffer *bufs[160];
    int n_bufs;
    double diff, norm; /* sums of squares over the outputs compared so far */
    bool same;         /* bits */
    struct err err;    /* why it could not be run */
    jmp_buf stuck;     /* where to go on when it could not */
};

/* In selftest_cases.c: how far a backend may be from the oracle, which sums in double. */
double selftest_bound(enum op_id op, enum dtype dtype, bool fast);
/* One group of cases; by_type ones run once for each weight type. */
struct selftest_group {
    void (*run)(struct selftest *r, enum dtype dtype);
    bool by_type;
};
extern const struct selftest_group selftest_groups[];
extern const size_t selftest_n_groups;
extern const struct selftest_group selftest_heads; /* of args.heads */

#define BOTH(i) for (int i = 0; i < 2; i++)

/* Host memory of the case. */
void *case_keep(struct selftest *r, void *p);
float *case_values(struct selftest *r, int64_t n, double range);
int case_below(struct selftest *r, int n); /* a random number in 0 .. n - 1 */

/* The same tensor on both; data NULL = zeros. */
struct case_pair case_make(struct selftest *r, enum dtype dtype, int64_t rows, int64_t cols,
                           const void *data);
struct case_pair case_f32(struct selftest *r, int64_t rows, int64_t cols, double range);
struct case_pair case_empty(struct selftest *r, enum dtype dtype, int64_t rows, int64_t cols);
struct case_pair case_ids(struct selftest *r, int64_t rows, int64_t cols, const int32_t *v);
/* A weight as it lies in a mapped file, at an odd address. */
struct case_pair case_weight(struct selftest *r, enum dtype dtype, int64_t rows, int64_t cols);

/* A case: begin, make and run, compare each output, end.  finish is the last two. */
void case_begin(struct selftest *r, enum op_id op, enum dtype dtype, const char *fmt, ...) ATTR_PRINTF(4, 5);
void case_compare(struct selftest *r, const struct case_pair *out);
void case_report(struct selftest *r);
void case_end(struct selftest *r);
void case_finish(struct selftest *r, const struct case_pair *out);

#endif
