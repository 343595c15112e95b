/* bench --simulate: the engine's scheduler over a model of a device's cost, to
 * compare policies on many requests in little time.
 * Shared by cmd-bench.c (the flags), bench_sim_file.c (requests and policies),
 * bench_sim.c (the runs) and bench_sim_out.c (the tables). */
#ifndef FORGE_CLI_BENCH_SIM_H
#define FORGE_CLI_BENCH_SIM_H

#include "cli/bench_online.h"
#include "cli/common.h"
#include "run/sim.h"

/* One request; without times but in virtual seconds. */
struct sim_request {
    size_t number;       /* in the file */
    double at, deadline; /* seconds; deadline after it came, 0 = none */
    int64_t prompt, output, priority, n;
    uint64_t prefix;       /* which start it shares, 0 = none; */
    int64_t prefix_tokens; /* and how long that is, at most the prompt */
};

struct sim_policy {
    char name[64];
    int64_t slots, chunk, page, ctx, kv_positions, ahead;
    bool prefix_cache;
};

/* What a file says. */
struct sim_file {
    struct sim_request *requests; /* by time */
    struct sim_policy *policies;
    size_t n_requests, n_policies;
    char device[128];
    struct sim_cost cost;
};

struct sim_result {
    const struct sim_policy *policy;
    size_t requests, ended; /* ended: by themselves, not late */
    double seconds, tok_s;  /* virtual; new ids of all by it */
    struct online_times ttft, tpot, e2e, stall; /* stall: a request's longest time between two ids */
    double slots_used, pages_used; /* shares: of slots while somebody waits, of KV pages held */
    uint64_t steps, rows, prompt_tokens, output_tokens, cached_tokens, preempted;
    double mean_len; /* of a request in the end */
    double took_s;   /* real time */
};

/* Lines of JSON; `usual`: what policies that do not say otherwise have, and the only one where there is none. */
int sim_file_read(struct sim_file *f, const char *path, const struct sim_policy *usual, struct err *err);
void sim_file_fini(struct sim_file *f);
/* ERR_CANCELLED after ^C. */
int sim_policy_run(struct sim_result *out, const struct sim_file *f, const struct sim_policy *p, const char *model,
                   const char *tokenizer, struct err *err);

enum sim_format { SIM_TEXT, SIM_JSON, SIM_MD };
/* An exit status. */
int sim_bench(const char *path, const struct common *c, enum sim_format format);
void sim_print(struct buf *out, const struct sim_file *f, const struct sim_result *r, size_t n, enum sim_format format);

#endif
