/* The engine without a model: its own queue, scheduler, KV pages, prefixes and
 * steps, over a formula for what a step costs a device, in virtual time.  Thousands
 * of requests take seconds, and the same ones always give the same figures.
 * Knows nothing of where requests come from. */
#ifndef FORGE_RUN_SIM_H
#define FORGE_RUN_SIM_H

#include "run/batch.h"

struct forge_engine;
struct sim;

/* Seconds of a step: what every one takes, the longer of reading all weights and computing the rows, and for each row
 * the positions that it looks at. */
struct sim_cost {
    double step_s, read_s, row_s, position_s;
};

struct sim_params {
    const char *model, *tokenizer; /* for ids and their texts; weights are not read */
    int max_seqs, chunk, page_size;
    int64_t n_ctx, kv_positions; /* of all sequences; 0 = n_ctx * max_seqs */
    int ahead;                   /* see struct forge_engine */
    bool keep;                   /* prefixes */
    struct sim_cost cost;
};

/* An engine for forge_submit and forge_step; greedy requests without log-probabilities that ignore the end, each of
 * whose new ids is one letter.  Closed by forge_engine_close. */
int sim_open(struct forge_engine **out, const struct sim_params *p, struct err *err);
double sim_now(const struct sim *s);
/* It is at least so late. */
void sim_wait(struct sim *s, double until);
/* A step: time goes on. */
void sim_run(struct sim *s, const struct batch *b, int32_t *best);

#endif
