/* THE forward pass, written once over backend/op.h, for any number of rows from
 * any number of sequences.  Owns the workspace; knows nothing of pages' owners,
 * sampling or text. */
#ifndef FORGE_MODEL_FORWARD_H
#define FORGE_MODEL_FORWARD_H

#include "model/model.h"

struct forward;

struct forward_limits {
    int max_rows;  /* rows of one step */
    int max_want;  /* rows whose logits one step may ask for */
    int max_seqs;
    int64_t n_ctx; /* positions whose rotary angles are kept once computed; 0 = none are */
    int max_pages[CONFIG_KV_GROUPS_MAX]; /* columns of each group's page table */
};

struct forward_batch {
    int n_rows;
    const int32_t *ids, *pos, *seq; /* [n_rows]; seq < n_seqs; a sequence's rows in rising position */
    int n_seqs;
    const int32_t *pages[CONFIG_KV_GROUPS_MAX]; /* per group [n_seqs, max_pages] */
    int n_want;
    const int32_t *want; /* rows whose logits are needed, rising; may be none (all but the last chunk of a prefill) */
};

/* kv[l] is layer l's cache, on that layer's instance; the array is borrowed. Allocates everything a step
 * needs. */
int forward_new(struct forward **out, const struct model *m, const struct kv_layer *kv,
                const struct forward_limits *limits, struct err *err);
void forward_free(struct forward *f);
/* Bytes forward_new would allocate. */
uint64_t forward_bytes(const struct model_config *c, const struct forward_limits *limits);
/* Of these the largest tensor that grows with max_rows, or with max_want: the logits. */
uint64_t forward_largest(const struct model_config *c, const struct forward_limits *limits, bool wanted);

/* Enqueues one step.  Ids outside the vocabulary are ERR_ARG.  Then at most one of the reads, which block
 * and return what latched; a step without wanted rows is ended by forward_wait. */
int forward_run(struct forward *f, const struct forward_batch *b, struct err *err);
int forward_wait(struct forward *f, struct err *err) ATTR_WARN_UNUSED;
int forward_logits(struct forward *f, float *out, struct err *err) ATTR_WARN_UNUSED; /* [n_want, n_vocab] */
int forward_argmax(struct forward *f, int32_t *out,
                   struct err *err) ATTR_WARN_UNUSED; /* [n_want], -1 = not finite */

/* Makes devices ready for steps of few and of many rows, so that no step compiles kernels; what steps compute is
 * not touched.  `progress` (may be NULL) is called with done and total; non-zero = stop (ERR_CANCELLED). */
int forward_warm(struct forward *f, model_progress *progress, void *user, struct err *err);

/* For `logits --hidden`: while out is not NULL each step also reads the last row after the embedding, each
 * layer and the final norm into out [n_layers + 2, d_model]. */
void forward_trace(struct forward *f, float *out);

#endif
