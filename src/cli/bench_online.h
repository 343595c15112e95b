/* bench --server: a running server, measured as its clients see it.
 * Shared by cmd-bench.c (the flags), bench_online.c (the clients) and
 * bench_online_out.c (the tables). */
#ifndef FORGE_CLI_BENCH_ONLINE_H
#define FORGE_CLI_BENCH_ONLINE_H

#include "base/buf.h"
#include "cli/opts.h"

enum { ONLINE_WARM_UPS = 3, ONLINE_CLIENTS_MAX = 1024 };

struct online_args {
    const char *server, *prompts;
    const struct num_list *concurrency;
    int64_t n, reps; /* new tokens of a request; how often each prompt */
    bool json, md;
};

/* What percentiles are told of, in milliseconds. */
struct online_times {
    double mean, p50, p95, p99;
};

struct online_level {
    int clients;
    size_t requests, errors;
    double seconds, req_s, tok_s;
    uint64_t prompt_tokens, output_tokens;
    struct online_times ttft, tpot, e2e;
    char first_error[256];
};

struct online {
    const struct online_args *a;
    char model[128];
    size_t n_prompts;
    double warm_up_ms; /* of the first request, which may find everything cold */
    struct online_level *levels;
    size_t n_levels;
};

/* Of v [n], which is sorted; percentiles by nearest rank. */
struct online_times online_times_of(double *v, size_t n);
/* An exit status. */
int online_bench(const struct online_args *a);
void online_print(struct buf *out, const struct online *o);

#endif
