/* One benchmark: which tests, what was measured, how it is printed.
 * Shared by cmd-bench.c (the plan), bench_run.c (the clock) and bench_out.c
 * (the tables); knows no flag and no format of weights. */
#ifndef FORGE_CLI_BENCH_H
#define FORGE_CLI_BENCH_H

#include "base/buf.h"
#include "cli/limits.h"
#include "cli/tools.h"

#define BENCH_REPS_MAX 1000
#define BENCH_BATCH_MAX 512

enum bench_kind { BENCH_PREFILL, BENCH_DECODE };

struct bench_test {
    enum bench_kind kind;
    int64_t n, depth; /* tokens of a sequence that are timed, and before them */
    int batch;        /* sequences together */
    char name[64];    /* "pp512", "tg64", "tg32@d4096", "tg32x8" */
};

struct bench_result {
    struct bench_test test;
    double *all; /* [reps] tokens/s over all sequences; owned */
    int reps;
    double tok_s;         /* their median */
    double gb_s, gflop_s; /* of the median: what the operations must move and compute */
    double share;         /* of the nearer one of the two limits */
};

struct bench {
    struct tool *t;
    struct seq *seqs; /* [max_batch]; the first is the tool's own */
    int n_seqs, n_threads;
    struct limits *limits;
    double read_gb_s, peak_gflop_s; /* the largest seen so far */
    double start_ms;
    const char *model;
    struct bench_result *results;
    size_t n_results;
    int32_t *pages; /* [max_batch, max_pages] of one group after the other, for a step */
    int32_t *ids;   /* [max n] */
};

void bench_name(struct bench_test *t);
/* Warm-up, then `reps` timed runs with the limits measured around them; ERR_CANCELLED after ^C. */
int bench_run(struct bench *b, const struct bench_test *test, int reps, struct bench_result *out,
              struct err *err);
void bench_shares(struct bench *b); /* once all is measured */

enum bench_format { BENCH_TEXT, BENCH_JSON, BENCH_CSV, BENCH_MD };
void bench_print(struct buf *out, const struct bench *b, enum bench_format format);

#endif
