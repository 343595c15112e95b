/* A draft model: a smaller one of the same vocabulary that says what the target may
 * say next, for several samples at once.
 * Owns its model, its KV cache and how much of each sample is in it. */
#ifndef FORGE_RUN_DRAFT_H
#define FORGE_RUN_DRAFT_H

#include "run/batch.h"

struct sample;
struct draft;

/* `p` as the target was opened, but for the model's name.  Refused by name where the vocabularies differ. */
int draft_open(struct draft **out, const struct load_params *p, const char *model, const struct loaded *target, struct err *err);
void draft_close(struct draft *d); /* NULL is safe */
struct loaded *draft_loaded(struct draft *d);

/* Drafts for the samples [n] of a step: each has n_draft wanted, and gets ids behind its own; fewer where its cache
 * ends or the model fails, which is told: its devices are opened again then, and where they soon fail again that is the
 * end of drafting. */
void draft_run(struct draft *d, struct sample *const *s, size_t n);
/* The sample's place in it is free. */
void draft_leave(struct draft *d, struct sample *s);

#endif
