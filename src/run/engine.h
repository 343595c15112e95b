/* Private to the engine: the structs behind forge.h's opaque ones, and what its
 * files ask of each other.
 *
 *   engine.c    opening, what the engine is
 *   process.c   log, devices, version: what needs no engine
 *   prompt.c    text to ids and back, the prompt of a request
 *   request.c   submit, accessors, cancel, free
 *   step.c      the scheduler and one step of the running request
 *   recover.c   a request goes on after a device error
 *   output.c    from a new id to text, pieces and the end of a sample
 *   logprobs.c  log-probabilities of chosen and best ids */
#ifndef FORGE_RUN_ENGINE_H
#define FORGE_RUN_ENGINE_H

#include <forge.h>

#include <stdatomic.h>
#include <stdbool.h>

#include "base/buf.h"
#include "run/load.h"
#include "run/sampler.h"
#include "run/seq.h"
#include "run/stop.h"

struct forge_engine {
    struct loaded l;
    struct forge_engine_info info;
    struct forge_placement placement[OP_COUNT * REGISTRY_MAX_INSTANCES];
    size_t n_placements;
    struct forge_placement *past;   /* [n_past] rows of instances that are closed */
    size_t n_past;
    struct engine_name *names;      /* of their devices */
    bool profile;
    float *logits; /* [n_vocab] of the running step */
    struct seq seq; /* of the running request, slot kept */
    struct forge_request *first, *last; /* all that were submitted and not freed, oldest first */
    size_t n_active;                    /* of them, queued or running */
    struct forge_request *running;      /* NULL = none */
    bool in_step;                       /* callbacks must not step or close; what they free goes after it */
    size_t n_freed;                     /* requests that the callbacks of this step freed */
    char device[512];
};

/* One of n_samples continuations. */
struct sample {
    struct ids ids;                  /* new ones, without an end id */
    struct buf text;                 /* final text */
    struct forge_logprob *logprobs;  /* [ids.n, 1 + n_logprobs] */
    size_t logprobs_cap;
    enum forge_finish finish;
    double t_last;                   /* of its last new id */
};

enum phase { PHASE_QUEUED, PHASE_PREFILL, PHASE_DECODE, PHASE_DONE };

struct forge_request {
    struct forge_engine *e;
    struct forge_request *next, *prev; /* in the engine's list */
    struct forge_request_params p;     /* pointers in it are not used after submit */
    atomic_int cancel;
    enum phase phase;
    struct ids prompt;
    struct sampler_params sampling;
    struct sampler_bias *bias;
    struct stop *stop;
    struct sample *samples; /* [p.n_samples] */
    int at;                 /* the running sample */
    size_t n_told;      /* its ids that pieces have told of */
    struct buf piece, fresh; /* scratch: text to tell now, text of one id */
    bool closed;            /* a callback said stop: no more calls */
    bool recovered;         /* from a device error: the next one is its end, or makes steps smaller */
    bool freed;             /* by a callback: goes at the end of the step */
    /* while running */
    struct sampler *sampler;
    struct detok *detok;
    struct err err;
    struct forge_error error; /* err, for the caller */
    uint64_t seed;
    double t_submit, t_start, deadline; /* deadline: a time, 0 = none */
    struct forge_metrics metrics;
    uint64_t n_prefilled, n_decoded; /* rows of prefill passes, passes of decode */
    size_t prefill_told;             /* to on_prefill, which never goes back */
    double later_s;                  /* between new ids of a sample that follow each other, ... */
    uint64_t n_later;                /* ... and how often that was */
};

/* ---- process.c ---- */
/* Tells a failure: rc is its code (below 0), e its words; where e has none, some are found.  `out` may be NULL.
 * Returns rc. */
int engine_error(struct forge_error *out, int rc, const struct err *e);

/* Copies parameters of the caller's size over `out` [size], which holds this library's defaults.  `given` begins with
 * its struct_size; what it has beyond `size` must be zero.  `init`: the function that sets it up, for messages. */
int engine_params_copy(void *out, size_t size, const void *given, const char *init, struct err *err);

/* ---- engine.c ---- */
/* What the engine would load with these parameters, of which math, kv_type and gemm are in range; no progress. */
void engine_load_params(struct load_params *out, const struct forge_engine_params *p);
/* What the devices now open are called, and how they count. */
void engine_meet_devices(struct forge_engine *e);
/* Brings the placement up to what the instances have counted. */
void engine_place(struct forge_engine *e);

/* ---- prompt.c ---- */
/* The request's ids from its text or ids, by the rule for an empty prompt; refuses what cannot fit. */
int prompt_make(struct ids *out, const struct forge_engine *e, const struct forge_request_params *p, struct err *err);

/* ---- output.c ---- */
/* Takes the id that was chosen at the current step into the current sample, and ends that (its `finish` tells)
 * where it should.  Fills r->err on an error. */
int output_id(struct forge_request *r, int32_t id);
/* LENGTH or CONTEXT when no further id may be made for the current sample, else NONE. */
enum forge_finish output_limit(const struct forge_request *r);
/* Ends the current sample: what is held back becomes text, the last piece is told.  Where that text is lost,
 * the finish is ERROR, and r->err and r->error say why. */
int output_finish(struct forge_request *r, enum forge_finish finish);

/* ---- logprobs.c ---- */
/* Room for those of n_ids ids, or for fewer where that is much. */
int logprobs_reserve(struct sample *s, int n_best, size_t n_ids, struct err *err);
/* Appends the log-probabilities for the id chosen from logits [n_vocab]. */
int logprobs_add(struct sample *s, int n_best, const float *logits, int64_t n_vocab, int32_t id, struct err *err);

/* ---- request.c ---- */
/* Ends and frees what callbacks freed during the step that has ended. */
void request_reap(struct forge_engine *e);

/* ---- recover.c ---- */
/* After a step of r failed with r->err: true when that was a device's first failure in r, or fewer rows at once may
 * help, the devices are open again and hold what r had stored, so that the step can be taken once more.  Else
 * r->err says what there is to say. */
bool recover(struct forge_request *r);
/* Opens the devices where an earlier request lost them for good. */
int recover_devices(struct forge_engine *e, struct err *err);
void recover_free(struct forge_engine *e);

/* ---- step.c ---- */
/* Ends the request: its current sample and those after it with `finish` (NONE: all have ended by themselves);
 * releases what only a running one needs. */
void request_end(struct forge_request *r, enum forge_finish finish);

#endif
