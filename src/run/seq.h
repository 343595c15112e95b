/* One sequence on a loaded model: its KV slot, evaluation in chunks.
 * The transaction of a step: the length moves only after the step's read
 * succeeded.  Knows nothing of sampling or text. */
#ifndef FORGE_RUN_SEQ_H
#define FORGE_RUN_SEQ_H

#include "run/batch.h"

struct seq {
    struct loaded *l; /* borrowed */
    int slot;         /* KV sequence */
    int64_t len;      /* positions stored */
    struct batch step; /* of this sequence alone */
    int piece;        /* rows of the next step of a prefill: see batch_piece */
    bool whole;       /* set by the caller: every step takes a whole chunk, however long that lasts */
};

int seq_open(struct seq *s, struct loaded *l, struct err *err);
void seq_close(struct seq *s);
/* Forgets positions from len on.  Where a window has given back what the rows after len would look into,
 * everything is forgotten: s->len tells from where on ids must be evaluated again. */
void seq_reset(struct seq *s, int64_t len);

/* Called after each step; non-zero = stop (ERR_CANCELLED, what is done stays). */
typedef int seq_progress(void *user, size_t done, size_t total);
/* Appends n >= 1 ids in pieces; logits of the last (want_all: of every) position into out, which may be NULL:
 * [n_vocab] or [n, n_vocab].  On an error s->len tells how far it came. */
int seq_eval(struct seq *s, const int32_t *ids, size_t n, bool want_all, float *out, seq_progress *progress, void *user,
             struct err *err);
/* The same, but only the largest logit's id of the last position is read back. */
int seq_eval_argmax(struct seq *s, const int32_t *ids, size_t n, int32_t *id, seq_progress *progress, void *user,
                    struct err *err);

#endif
