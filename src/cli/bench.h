/* One benchmark: which tests, what was measured, how it is printed.
 * Shared by cmd-bench.c (the plan), bench_run.c (the clock), bench_ops.c (what
 * single operations did), bench_settings.c (what makes two runs alike),
 * bench_earlier.c (an earlier run) and bench_out.c (the tables). */
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

/* What one operation did in the timed repetitions of a test. */
struct bench_op {
    uint64_t calls, bytes, flops;
    double seconds; /* only with --profile */
    const char *device;
};

struct bench_result {
    struct bench_test test;
    double *all; /* [reps] tokens/s over all sequences; owned */
    int reps;
    double tok_s, min, max; /* their median, smallest, largest */
    double gb_s, gflop_s;   /* of the median: what the operations must move and compute */
    double fill_s;          /* seconds that went into the tokens before those that are timed */
    struct limits_found limits; /* the largest around its repetitions */
    double share;           /* of the nearer one of the two limits; 0 where they are not the device's */
    struct bench_op ops[OP_COUNT];
};

enum { BENCH_SAMPLINGS = 3 };

struct bench {
    struct tool *t;
    const struct common *flags;
    struct seq *seqs; /* [max_batch]; the first is the tool's own */
    int n_seqs, n_threads;
    struct limits *limits_of; /* what measures them */
    struct limits_found limits; /* the largest of all */
    unsigned kinds;            /* bits 1 << PEAK_...: in what matrices may have been multiplied so far */
    bool fast;                 /* some device computes in --math fast */
    unsigned cpu_kinds;        /* those that the CPU multiplies some of this model's weights in, beside f32 */
    bool own_memory;           /* a device computes in memory of its own, which has other limits */
    double start_ms, compile_ms; /* loading, and how much of it went into compiling kernels */
    double sampling_ms[BENCH_SAMPLINGS]; /* one token's, on the host: bench_sampling_name; NaN = it failed */
    const char *model;
    struct bench_result *results;
    size_t n_results;
    struct earlier *earlier; /* of --compare; NULL = none */
    int32_t *pages; /* [max_batch, max_pages] of one group after the other, for a step */
    int32_t *ids;   /* [max n] */
};

void bench_name(struct bench_test *t);
/* Warm-up, then `reps` timed runs with the limits measured around them; ERR_CANCELLED after ^C. */
int bench_run(struct bench *b, const struct bench_test *test, int reps, struct bench_result *out,
              struct err *err);
/* What choosing a token costs the host where the device does not do it, by the logits of one step.  What fails is
 * warned of and NaN, as the tests before it count all the same; ERR_CANCELLED after ^C. */
int bench_sampling(struct bench *b, struct err *err);
const char *bench_sampling_name(int i);
double bench_median(double *v, int n); /* sorts v */

/* ---- single operations ---- */
/* Of all instances, since they were opened. */
void bench_ops_count(const struct bench *b, struct bench_op out[OP_COUNT]);
/* sum += after - before */
void bench_ops_add(struct bench_op sum[OP_COUNT], const struct bench_op after[OP_COUNT],
                   const struct bench_op before[OP_COUNT]);
/* The arithmetic that products of matrices ran in so far, by what the operations say ran them: PEAK_F32 and others. */
unsigned bench_kinds(const struct bench *b);
/* What the CPU, with this instruction set (NULL = the best), rounds rows to for weights of this model under --math fast: bits. */
unsigned bench_cpu_kinds(const struct weights *w, const char *isa);
double bench_peak(const struct limits_found *l); /* of the fastest arithmetic in use */
const char *bench_peak_name(const struct limits_found *l);
/* What some products of matrices were rounded to, of several the shortest; "f32": none. */
const char *bench_arithmetic(const struct bench *b);
/* A share of the nearer limit; *reading tells which one that is. */
double bench_share(double gb_s, double gflop_s, double read_gb_s, double peak_gflop_s, bool *reading);
void bench_ops_print(const struct bench *b, const struct bench_result *r); /* a table on stderr */
void bench_ops_json(struct buf *out, const struct bench *b, const struct bench_result *r);

/* ---- settings: what makes two runs comparable ---- */
enum { BENCH_LATE = 3, BENCH_LAST = 5, BENCH_SETTINGS = 11, BENCH_SETTING_LEN = 256 };
struct bench_setting {
    const char *key, *what; /* in JSON; in a sentence */
    const char *flag;       /* whose value it is, NULL = what was found */
    bool plural;
};
extern const struct bench_setting bench_settings[BENCH_SETTINGS];
bool bench_setting_is_text(int i);
/* The value in this run, on one printable line. */
void bench_setting_value(const struct bench *b, int i, char out[BENCH_SETTING_LEN]);
/* ,"key":value of those from .. to - 1 */
void bench_settings_json(struct buf *out, const struct bench *b, int from, int to);

/* ---- an earlier run ---- */
struct earlier;
/* A file that bench --json wrote; ERR_FORMAT tells why it is none. */
int earlier_open(struct earlier **out, const char *path, struct err *err);
void earlier_free(struct earlier *e);
double earlier_tok_s(const struct earlier *e, const char *test); /* 0 = the test is not there */
/* One sentence for each thing that makes the comparison one of different things, as warnings. */
void earlier_warn(const struct earlier *e, const struct bench *b);
const char *earlier_path(const struct earlier *e); /* on one printable line */
/* "pp512, tg64, ...": its tests, as many as fit */
const char *earlier_tests(const struct earlier *e, char *out, size_t size);

enum bench_format { BENCH_TEXT, BENCH_JSON, BENCH_CSV, BENCH_MD };
void bench_print(struct buf *out, const struct bench *b, enum bench_format format);
void bench_put_num(struct buf *out, const char *key, double v); /* ,"key":v */

#endif
