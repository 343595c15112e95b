/* Private to loading: what load.c asks of load_tokenizer.c, where
 * configuration and tokenizer must agree: the end of a text, the size of the
 * vocabulary; and whether a model fits, for tests. */
#ifndef FORGE_RUN_LOAD_PARTS_H
#define FORGE_RUN_LOAD_PARTS_H

#include "run/load.h"

/* Where the configuration names no end id: for a .pth by the tokenizer's file name ("base" and not
 * "reasoning": <|endoftext|>, else <|im_end|>), else the tokenizer's own. */
void load_settle_end(struct model_config *c, const struct tokenizer *t, enum weights_format format);

/* Tokens beyond the model's rows: an error, except special ones (never produced, only warned of).  Rows
 * beyond the tokenizer are usual: they decode to nothing. */
int load_check_tokenizer(const struct model_config *c, const struct tokenizer *t, struct err *err);

/* Bytes that a model needs, all layers together; the workspace is each device's own. */
struct load_need {
    uint64_t mapped, copied; /* weights: used as they lie in files; copies on the host */
    uint64_t kv, work, wanted; /* wanted: the part of work that only the last place has, logits */
    uint64_t tables;           /* of pages and prefixes, on the host */
    uint64_t largest, largest_wanted; /* tensor of a step's rows; of those whose logits it may read */
    int64_t n_ctx;
    int max_seqs; /* for messages */
    bool kv_wide; /* a smaller type of it exists */
};
struct load_place {
    const char *device;
    bool host;      /* works in the host's memory */
    uint64_t limit; /* bytes of its own memory, 0 = unknown */
    double share;   /* of the layers */
};
/* ERR_LIMIT with the figures where one of the devices, or the host under all that work in its memory
 * (`available` bytes, 0 = unknown), has too little. */
int load_check_places(const struct load_need *need, const struct load_place *places, int n, uint64_t available, struct err *err);

/* ---- what fits (fit.c) ---- */
struct load_fit {
    char device[REGISTRY_MAX_INSTANCES * 24], split[REGISTRY_MAX_INSTANCES * 24];
};
/* Where a budget was given and no split: layers that do not fit on the devices go to a CPU instance, which is
 * opened behind them, and `out` is the list and the split of it all; empty = nothing changes.  Where not one layer
 * fits, steps get fewer rows (p->chunk, kv->chunk, need follow) as far as that makes one fit; also where a tensor of
 * a step's rows is above a device's largest allocation, whatever the budget; then fewer logits are read at once, too. */
int load_fit(struct loaded *l, struct load_params *p, struct kv_params *kv, struct load_need *need, struct load_fit *out,
             struct err *err);
/* Rows of a step by p->chunk, and what must be there for them. */
int load_settle_rows(struct loaded *l, const struct load_params *p, struct kv_params *kv, struct load_need *need,
                     struct err *err);
/* Layers of so many bytes beside what is there in any case. */
int64_t load_layers_that_fit(uint64_t limit, uint64_t fixed, uint64_t layer);

/* ---- opening devices, and opening them again (reload.c) ---- */
/* "3,1" for n devices. */
int load_parse_split(const char *text, double *out, int n, struct err *err);
/* ERR_ARG where what was opened does not compute in the math that was asked for. */
int load_check_math(const struct loaded *l, enum backend_math math, struct err *err);
/* Do results not depend on how many rows a step has? */
bool load_free_rows(const struct loaded *l, bool deterministic);
/* KV cache and workspace of a model that is bound. */
int load_open_rest(struct loaded *l, const struct kv_params *kv, struct err *err);
/* Keeps what load_reopen needs of the parameters, whose strings are the caller's. */
int load_keep(struct loaded *l, const struct load_params *p, const struct kv_params *kv, struct err *err);
/* Compiles what a model will run.  Where a device fails at that, it is opened again, once. */
int load_warm(struct loaded *l, const struct load_params *p, struct err *err);
void load_keep_free(struct load_again *a); /* NULL is safe */

/* Warns of bos and end ids that the model cannot have. */
void load_warn_ids(const struct model_config *c);

#endif
