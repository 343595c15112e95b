/* From paths to everything a run needs: weights, configuration, tokenizer,
 * devices, model, KV cache, workspace.  Used by the engine and by the tool
 * commands alike; knows nothing of requests. */
#ifndef FORGE_RUN_LOAD_H
#define FORGE_RUN_LOAD_H

#include <stdatomic.h>

#include "backend/registry.h"
#include "model/forward.h"
#include "run/kv.h"
#include "text/chat.h"
#include "text/tokenizer.h"

struct load_params {
    const char *model, *tokenizer, *config; /* as in forge.h; model required */
    const char *device, *split;
    struct backend_params backend;
    struct kv_params kv;   /* n_ctx -1 = default, 0 = the model's limit */
    int chunk;             /* rows of one step of a prefill; a step may always hold max_seqs rows */
    int max_want;          /* rows whose logits one step may read, at least max_seqs; 0 = what 32 MiB hold */
    bool clip_ctx;         /* a context above the model's limit is that limit */
    bool no_weights;       /* only weights' index, configuration and tokenizer (inspect, tokenize) */
    model_progress *progress;  /* of the weights, in tensors */
    model_progress *compiling; /* of the kernels, in parts of it */
    void *user;
};
void load_params_init(struct load_params *p);

/* Who is asked whether a load shall stop; devices keep where this is. */
struct load_watch {
    model_progress *progress; /* NULL = nobody */
    void *user;
};

struct loaded {
    struct weights *weights;
    struct model_config *config;   /* the model's own once there is one */
    struct tokenizer *tokenizer;
    struct backend *backends[REGISTRY_MAX_INSTANCES];
    int n_backends;
    struct model *model;
    struct kv *kv;
    struct forward *forward;
    int64_t n_ctx;
    enum dtype kv_dtype;
    int chunk, max_want;           /* as settled: chunk <= n_ctx, max_want <= rows of a step */
    bool fast;                     /* rounded activations were asked for */
    bool free_rows;                /* results do not depend on how many rows a step has */
    uint64_t work_bytes;           /* of forward's workspace */
    char reason[256];              /* of the device's choice */
    struct load_again *again;      /* how the devices were opened */
    struct load_watch watch;       /* only while it is loaded */
    double load_s;
    _Atomic uint64_t model_id;     /* 0 = not made yet */
};
/* Rows of a profile over all instances, as forge_engine_kernel and forge_engine_event. */
struct forge_kernel;
struct forge_event;
int load_kernel(const struct loaded *l, size_t i, struct forge_kernel *out);
int load_event(const struct loaded *l, size_t i, struct forge_event *out);
/* A hash of all that decides what the model computes, never 0. */
uint64_t load_model_id(struct loaded *l);
/* Seconds that went into compiling kernels so far. */
double load_compile_s(const struct loaded *l);
/* Refuses what does not fit, with figures, before weights are read. */
int load_open(struct loaded *out, const struct load_params *p, struct err *err);
void load_close(struct loaded *l);

/* After a device error: closes the devices and all that lies on them, opens them again as the first time, imports
 * the weights.  What sequences had stored is gone; their slots must be closed before and opened again after.
 * After an error there are no devices, no kv and no forward, and it may be called again. */
int load_reopen(struct loaded *l, struct err *err);
/* A failure that new buffers, weights and kernels may mend: not one of the host alone, nor of the numbers. */
bool load_may_mend(const struct loaded *l, int code);

/* The tokenizer alone, by load_open's rules: `tokenizer` when given (w may be NULL then), else inside a GGUF,
 * else beside the weights: tokenizer.json, vocab.json + merges.txt, and without those the tokenizer-NAME.json
 * whose NAME occurs in the weights' file name, else tokenizer-base.json, else the only tokenizer-*.json. */
int load_tokenizer(struct tokenizer **out, const struct weights *w, const char *tokenizer, struct err *err);

/* The chat template: given (a file, or "chatml"), else of a GGUF, else of the folder of the tokenizer or the weights.
 * 1 = found, 0 = there is none. */
int load_chat(struct chat **out, const struct weights *w, const char *tokenizer, const char *given, struct err *err);

/* A model needs at least one id to go on from: appends the start of a text where the tokenizer or the
 * configuration names one, else the separator of documents; ERR_ARG where there is neither. */
int load_empty_prompt(const struct loaded *l, struct ids *out, struct err *err);

#endif
