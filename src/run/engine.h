/* Private to the engine: the structs behind forge.h's opaque ones, and what its
 * files ask of each other.
 *
 *   engine.c    opening, what the engine is
 *   process.c   log, devices, version: what needs no engine
 *   chat.c      conversations: the template, prompts that it makes
 *   answer.c    what an answer consists of
 *   prompt.c    text to ids and back, the prompt of a request
 *   request.c   submit, accessors, cancel, free
 *   sched.c     who runs: admission, pages, preemption, the rows of a step
 *   running.c   a request and its samples begin and end
 *   step.c      one combined step of the running requests
 *   spec.c      ids that are drafted and computed with a sample's own; draft.c the model that drafts
 *   own_thread.c  the engine's own thread, and what others hand to it
 *   sim.c       an engine in virtual time, over what a device costs
 *   generate.c  submit and step until done, in one call
 *   recover.c   a request goes on after a device error
 *   output.c    from a new id to text, pieces and the end of a sample
 *   logprobs.c  log-probabilities of chosen and best ids
 *   constrain.c what a grammar allows */
#ifndef FORGE_RUN_ENGINE_H
#define FORGE_RUN_ENGINE_H

#include <forge.h>

#include <stdatomic.h>
#include <stdbool.h>

#include "base/buf.h"
#include "base/clock.h"
#include "run/batch.h"
#include "run/constrain.h"
#include "run/sampler.h"
#include "run/session.h"
#include "run/sim.h"
#include "run/stop.h"

enum { ENGINE_AHEAD = 16 }; /* new ids that a request must have room for to begin: SPEED.md, policies */

struct forge_engine {
    struct loaded l;
    struct sim *sim;   /* what computes instead of the model, and the time; NULL = nothing does */
    struct chat *chat; /* NULL = there is none that works; then ... */
    char *chat_error;  /* ... what is wrong with the model's own, NULL = it has none */
    int chat_error_code;
    struct forge_engine_info info;
    struct forge_placement placement[OP_COUNT * REGISTRY_MAX_INSTANCES];
    size_t n_placements;
    bool placed;                    /* the table is up to date */
    struct forge_placement *past;   /* [n_past] rows of instances that are closed */
    size_t n_past;
    struct engine_name *names;      /* of their devices */
    bool profile;
    struct batch batch;
    struct constrain_pool grammars;
    struct draft *draft; /* NULL = none */
    int draft_max;       /* ids drafted for a sample in a step at most */
    int piece;      /* rows of prefill in the next step: see batch_piece */
    int ahead;      /* ENGINE_AHEAD, but in a simulation; -1 = all that it may make */
    bool shrunk;    /* by a failing device: no step has more than l.chunk rows */
    int32_t *best;  /* [l.max_want] of a step, where all that are wanted are plain argmaxes; else ... */
    float *logits;  /* ... [l.max_want, n_vocab] */
    struct forge_request *first, *last; /* all that were submitted and not freed, oldest first */
    uint64_t n_submitted;
    size_t n_active;                    /* of the list, queued or running */
    struct forge_request *wait_first, *wait_last; /* those with a sample that waits for a slot, by rank */
    atomic_uint n_cancels;              /* calls of forge_request_cancel, ... */
    unsigned n_cancels_seen;            /* ... of which step_sweep knows */
    double deadline;                    /* none is earlier; 0 = there is none */
    struct sample **running;            /* [max_seqs] by rank: priority, then age; each has a KV slot */
    size_t n_running, n_busy;           /* of them; their requests */
    size_t turn;                        /* whose row of decoding comes first, where a step cannot have all */
    struct sample **served;             /* [max_seqs] scratch: those in the step */
    struct sampler_cand *dists;         /* [n_dists] that the drafts of the step were drawn from */
    size_t n_dists, dists_cap;
    struct forge_engine_stats stats;
    bool in_step;                       /* callbacks must not step or close; what they free goes after it */
    struct forge_request *freed;        /* in callbacks, or by other threads; they go when the step ends */
    struct own_thread *own;             /* NULL = the caller steps */
    char device[512];
};

/* Queued again after preemption.  Prefill: there is no new id yet. */
enum phase { PHASE_QUEUED, PHASE_PREFILL, PHASE_DECODE, PHASE_DONE };

/* Where in the engine's `dists` the distribution lies that a draft was drawn from. */
struct spec_dist {
    size_t from, n;
};

/* One of n_samples continuations: what the scheduler runs.  The first computes the prompt, the others fork its pages
 * then and draw their first ids from the same logits. */
struct sample {
    struct forge_request *r;
    int at;                          /* which of them */
    struct ids ids;                  /* new ones, without an end id */
    struct buf text;                 /* final text */
    struct forge_logprob *logprobs;  /* [ids.n, 1 + n_logprobs] */
    size_t logprobs_cap;
    enum forge_finish finish;
    double t_last;                   /* of its last new id */
    struct constrain_place place;    /* in the request's grammar */
    size_t n_told;                   /* its ids that pieces have told of */
    struct buf piece, fresh;         /* scratch: text to tell now, text of one id */
    struct stop *stop;
    struct detok *detok;
    enum phase phase;
    /* while running, and while it waits again after preemption */
    bool started;
    int slot;          /* KV sequence, -1 = none */
    int64_t len;       /* positions stored: of the prompt, then of the ids */
    int64_t recompute; /* positions below were computed before: they count once */
    int n_rows, want;  /* of the current step; the first of its results, -1 = none */
    int n_draft;       /* of the rows; drafted ids, behind the others in `ids` */
    double accept_rate; /* of drafts, lately */
    uint64_t round;     /* of drafting */
    int draft_slot;     /* in the draft model's cache, -1 = none */
    int64_t draft_len, draft_ok; /* stored there; of that with ids which are the sample's */
    struct spec_dist *q; /* [draft_max] of the drafts, under the ratio rule; NULL = they are not drawn */
};

struct forge_request {
    struct forge_engine *e;
    struct forge_request *next, *prev; /* in the engine's list */
    struct forge_request *wait_next, *wait_prev, *next_freed;
    bool waits; /* in the line of those that wait for a slot */
    struct forge_request_params p;     /* pointers in it are not used after submit */
    atomic_int cancel;
    bool started, done;
    struct ids prompt;
    struct sampler_params sampling;
    struct sampler_bias *bias;
    struct constrain *constrain; /* NULL = any text */
    struct session *session;     /* that the prompt begins with; NULL = none */
    char *session_save;          /* NULL = nowhere */
    struct stop_set *stops;
    struct sample *samples; /* [p.n_samples] */
    int n_left, n_running;  /* of them: not ended; in steps */
    bool has_first;         /* the prompt was computed, and the other samples may begin: */
    int32_t first_id;       /* what it gives, where that is a plain argmax; else ... */
    float *first;           /* ... its logits [n_vocab]; only for several samples */
    bool closed;            /* a callback said stop: no more calls */
    bool recovered;         /* from a device error: the next one is its end, or makes steps smaller */
    bool freed;             /* by a callback, or while the engine's thread runs: goes at the end of the step */
    uint64_t number;        /* of submits */
    struct sampler *sampler; /* of all samples, who draw one after the other */
    struct err err;
    struct forge_error error; /* err, for the caller */
    uint64_t seed;
    double t_submit, deadline; /* deadline: a time, 0 = none */
    struct forge_metrics metrics;
    uint64_t n_prefilled, n_decoded; /* rows of prefill passes, ids that decoding gave */
    uint64_t step;                   /* the last one whose time it has counted */
    size_t prefill_told;             /* to on_prefill, which never goes back */
    double later_s;                  /* between new ids of a sample that follow each other, ... */
    uint64_t n_later;                /* ... and how often that was */
};

/* Seconds, of a clock that only differences are taken of. */
static inline double engine_now(const struct forge_engine *e)
{
    return e->sim ? sim_now(e->sim) : clock_now();
}

/* Of the prompt and the new ids behind it: how many (the newest is not stored until the step after), and the one at a
 * position. */
static inline int64_t sample_known(const struct sample *s)
{
    return (int64_t)(s->r->prompt.n + s->ids.n);
}

static inline int32_t sample_id(const struct sample *s, int64_t pos)
{
    int64_t n = (int64_t)s->r->prompt.n;
    return pos < n ? s->r->prompt.v[pos] : s->ids.v[pos - n];
}

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
/* What steps take. */
int engine_make_room(struct forge_engine *e, int max_seqs, struct err *err);
/* What the devices now open are called, and how they count. */
void engine_meet_devices(struct forge_engine *e);
/* Brings the placement up to what the instances have counted. */
void engine_place(struct forge_engine *e);

/* An error where `flags` has a bit that is not `known`. */
int engine_flags_check(const char *name, unsigned flags, unsigned known, struct err *err);

/* ---- chat.c ---- */
int engine_chat_flags_check(const char *name, unsigned flags, struct err *err);
/* The chat template: `given`, else the model's own. */
int engine_open_chat(struct forge_engine *e, const char *tokenizer, const char *given, struct err *err);
void engine_close_chat(struct forge_engine *e);
/* Appends the ids of the request's messages. */
int engine_chat_ids(struct ids *out, const struct forge_engine *e, const struct forge_request_params *p, struct err *err);

/* ---- prompt.c ---- */
int engine_text_flags_check(const char *name, unsigned flags, struct err *err);
/* The request's ids from its text or ids, by the rule for an empty prompt; refuses what cannot fit. */
int prompt_make(struct ids *out, const struct forge_engine *e, const struct forge_request_params *p, const struct session *before,
                struct err *err);

/* ---- output.c ---- */
/* Takes the id that was chosen at the current step, and ends the sample (its `finish` tells) where it should.  Fills
 * the request's err on an error. */
int output_id(struct sample *s, int32_t id);
/* LENGTH or CONTEXT when no further id may be made, else NONE. */
enum forge_finish output_limit(const struct sample *s);
/* Ends the sample: what is held back becomes text, the last piece is told.  Where that text is lost, the finish is
 * ERROR, and err and error of the request say why. */
int output_finish(struct sample *s, enum forge_finish finish);

/* ---- logprobs.c ---- */
/* Room for those of n_ids ids, or for fewer where that is much. */
int logprobs_reserve(struct sample *s, int n_best, size_t n_ids, struct err *err);
/* Appends the log-probabilities for the id chosen from logits [n_vocab]. */
int logprobs_add(struct sample *s, int n_best, const float *logits, int64_t n_vocab, int32_t id, struct err *err);

/* ---- request.c ---- */
/* It was submitted earlier, at that time by engine_now's clock; by the thread that steps. */
void request_came_at(struct forge_request *r, double at);
/* What other threads submitted joins the list. */
void request_take_inbox(struct forge_engine *e);
/* Ends and frees what callbacks freed during the step that has ended, and other threads since. */
void request_reap(struct forge_engine *e);

/* ---- spec.c ---- */
/* Drafts ids for samples whose rows of this step are followed by a new one: `left` rows more at most, which are added
 * to n_rows. */
void spec_propose(struct forge_engine *e, int left);
/* What the drafts of a sample that begins take. */
int spec_reserve(struct sample *s);
/* Draws the j-th draft of a sample from a draft model's logits. */
int spec_draw(struct sample *s, const float *logits, int j, int32_t *id);
/* Takes the new ids of the step: one, and one more for each draft that was accepted. */
int spec_take(struct sample *s, bool plain, int *accepted);

/* ---- recover.c ---- */
/* After a step of so many rows failed with *err: requests of that step which it is the end of are ended, and where
 * others are left and it is a device's failure, the devices are open again, for all to be computed again. */
void recover(struct forge_engine *e, int rows, const struct err *err);
/* Opens the devices where an earlier request lost them for good. */
int recover_devices(struct forge_engine *e, struct err *err);
void recover_free(struct forge_engine *e);

/* ---- sched.c ---- */
/* Samples that wait begin to run, the highest priority first, among equals the oldest, as far as there are slots and
 * pages. */
void sched_admit(struct forge_engine *e);
/* Does one wait that a slot and pages would let run? */
bool sched_waits(const struct forge_engine *e);
/* Of a request: the first that waits and may begin, NULL = none. */
struct sample *sched_next_of(struct forge_request *r);
/* After that may have changed: the request stands in line for a slot, or does not. */
void sched_settle(struct forge_request *r);
/* Takes a place among the running ones with a slot of its own, and gives both up. */
void sched_enter(struct sample *s);
void sched_leave(struct sample *s);
/* Sets n_rows of every running sample, and reserves the pages for them: each that decodes has its one row, prompts
 * have what is left of a chunk.  Where pages run out the youngest gives up its own and waits again, to be computed
 * again.  The number of rows. */
int sched_plan(struct forge_engine *e);
/* Positions that are known and not stored; after them comes a new id. */
int64_t sched_due(const struct sample *s);
/* What was stored is lost: the slot is gone with it. */
void sched_lose(struct sample *s);
/* What another has stored of the same ids is taken instead of computed: a running sample's prompt, else kept pages.
 * How many positions. */
int64_t sched_take_stored(struct sample *s);
/* Before the sequence is n long: its full pages are kept for later ones. */
void sched_keep_prefix(struct sample *s, int64_t n);

/* ---- running.c ---- */
void running_start(struct sample *s);
/* It has ended by itself: the next one of its request begins in its place, or the request ends. */
void running_done(struct sample *s);
/* Ends the request: the samples that have not ended with `finish` (NONE: all have); releases what only a running one
 * needs. */
void request_end(struct forge_request *r, enum forge_finish finish);

/* ---- generate.c ---- */
/* Refuses a call from within a callback, or while the engine's own thread runs. */
int refuse_in_callback(const struct forge_engine *e, const char *what, struct forge_error *err);

/* ---- own_thread.c: all of it works without that thread, too ---- */
/* Hands a request over; false = there is no such thread. */
bool own_submit(struct forge_engine *e, struct forge_request *r);
bool own_free(struct forge_request *r);
/* What was submitted since the last call, the oldest first, linked by `next`, and what was freed of all that was ever
 * submitted, linked by `next_freed`. */
struct forge_request *own_take(struct forge_engine *e, struct forge_request **freed);
/* Around what other threads write: `freed`. */
void own_lock(const struct forge_engine *e);
void own_unlock(const struct forge_engine *e);
/* Around a callback; false = the request is closed, and no end is due. */
bool own_call_begin(const struct forge_request *r);
void own_call_end(const struct forge_request *r);
/* After a step: its counts are what others read. */
void own_publish(struct forge_engine *e);

/* ---- step.c ---- */
/* One step, by the thread whose turn it is: forge_step. */
int engine_step(struct forge_engine *e);
/* Brings the counts up to what the engine holds. */
void engine_count(struct forge_engine *e);
/* Ends those that were cancelled or are past their deadline, queued or running. */
void step_sweep(struct forge_engine *e);
/* Draws the next id: the plain argmax where one was read (`best`; -1 = not finite), else from logits [n_vocab]. */
int step_choose(struct sample *s, const int32_t *best, const float *logits, int32_t *id);
bool step_is_plain(const struct forge_request *r);

#endif
