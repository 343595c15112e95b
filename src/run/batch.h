/* One combined step: flat rows of many sequences, put together, run, read.
 * Owns the arrays of its rows and the rule for how many a step of a prefill has;
 * pages and lengths are the caller's, who moves them when it succeeded.
 * Knows nothing of requests. */
#ifndef FORGE_RUN_BATCH_H
#define FORGE_RUN_BATCH_H

#include "run/load.h"

struct batch {
    struct loaded *l; /* borrowed */
    int32_t *rows;    /* [4, max_rows]: ids, positions, KV sequences, wanted rows; owned */
    int max_rows;     /* of a step, as forward.c was told */
    int n_rows, n_want, n_seqs;
};

int batch_init(struct batch *b, struct loaded *l, struct err *err);
void batch_fini(struct batch *b); /* all zeros is safe */

/* An empty step. */
void batch_begin(struct batch *b);
/* Appends n ids of KV sequence `slot`, at positions pos, pos + 1, ... that are reserved. */
void batch_add(struct batch *b, int slot, int64_t pos, const int32_t *ids, int n);
/* The position of the i-th row. */
int32_t batch_pos(const struct batch *b, int i);
/* The row added last is wanted: returns the number of its result. */
int batch_want(struct batch *b);
/* Runs the step and reads argmax [n_want], or else logits [n_want, n_vocab], where they are not NULL. */
int batch_run(struct batch *b, int32_t *argmax, float *logits, struct err *err);

/* Rows that a step of a prefill may have: few at first, then as many as took about BATCH_PIECE_S in the step before,
 * so that progress, cancelling and other sequences never wait long.  Where results depend on the number of rows, a
 * whole chunk. */
#define BATCH_PIECE_FIRST 32
#define BATCH_PIECE_S 0.7
int batch_piece(const struct loaded *l, int piece);
/* The piece after a step of n rows that took so long. */
int batch_next_piece(const struct loaded *l, int piece, int n, double seconds);

#endif
