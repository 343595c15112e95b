/* Structured output: the grammar of a request as the sampler's mask.
 *
 * Owns, for an engine, the tree of its vocabulary and the grammars used last;
 * for a request, its grammar and the mask of the next id; for a sample, how far
 * its text has come.  A sample's place moves with its ids alone, so that nothing
 * of it is lost when what a device had stored is.  Knows no step, and of logits
 * only to ban them. */
#ifndef FORGE_RUN_CONSTRAIN_H
#define FORGE_RUN_CONSTRAIN_H

#include "run/load.h"
#include "text/grammar.h"

struct token_trie;

enum { CONSTRAIN_KEPT = 8 }; /* grammars; those in use count, and may be more */

/* Of an engine.  constrain_new may be called by several threads, also while one of them is in a step; the rest is the
 * step's. */
struct constrain_pool {
    struct mutex *list_lock, *trie_lock; /* of kept, held for a moment; of trie, held while it is made */
    struct constrain_text *kept;         /* the one used last first */
    struct token_trie *trie;
};
int constrain_pool_init(struct constrain_pool *p, struct err *err);
void constrain_pool_fini(struct constrain_pool *p); /* all zeros is safe */

struct constrain_params {
    const char *grammar, *json_schema; /* one of them; the other NULL */
    const int32_t *prompt;
    size_t n_prompt;
    bool ignore_eos, keep_special;
};

struct constrain;
/* What is wrong with the grammar is ERR_ARG. */
int constrain_new(struct constrain **out, struct constrain_pool *p, const struct loaded *l,
                  const struct constrain_params *params, struct err *err);
void constrain_free(struct constrain *c); /* its places have ended; NULL is safe */

/* Where a sample is. */
struct constrain_place {
    struct matcher m;
    bool begun; /* has ids */
};
void constrain_begin(struct constrain *c, struct constrain_place *at);
void constrain_end(struct constrain_place *at); /* all zeros is safe */
/* Finds which ids may come next, for constrain_mask; an error where none may. */
int constrain_look(struct constrain *c, struct constrain_place *at, struct err *err);
/* The sampler's hook, with the constrain as its user: bans the ids that may not. */
void constrain_mask(void *c, float *logits, int64_t n_vocab);
/* The id was chosen, and is no end. */
int constrain_take(struct constrain *c, struct constrain_place *at, int32_t id, struct err *err);
/* Nothing may follow. */
bool constrain_done(const struct constrain_place *at);

#endif
