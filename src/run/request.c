/* Requests: checked and copied at submit, read by the caller, freed.  Owns the
 * engine's list of them.  What happens between submit and the end is step.c's
 * and output.c's. */
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "run/engine.h"

void forge_request_params_init(struct forge_request_params *p, size_t struct_size)
{
    const struct forge_request_params defaults = {
        .struct_size = struct_size,
        .sampling = {.top_p = 1, .typical_p = 1, .repeat_penalty = 1},
        .text_len = FORGE_TERMINATED,
        .messages_len = FORGE_TERMINATED,
        .max_tokens = 256,
        .n_samples = 1,
        .n_logprobs = -1,
        .draft_n = -1,
    };
    memset(p, 0, struct_size);
    memcpy(p, &defaults, struct_size < sizeof defaults ? struct_size : sizeof defaults);
}

#define SAMPLES_MAX 1024

static int check_params(const struct forge_request_params *p, int64_t n_vocab, struct err *err)
{
    if (p->max_tokens < -1)
        return err_set(err, ERR_ARG, "max_tokens is %lld; it must be at least -1", (long long)p->max_tokens);
    if (p->n_stops && !p->stops)
        return err_set(err, ERR_ARG, "stops is NULL, and n_stops %zu", p->n_stops);
    if (p->sampling.n_bias && !p->sampling.bias)
        return err_set(err, ERR_ARG, "sampling.bias is NULL, and n_bias %zu", p->sampling.n_bias);
    if (p->n_samples < 1 || p->n_samples > SAMPLES_MAX)
        return err_set(err, ERR_ARG, "n_samples is %d; it must be 1 to %d", p->n_samples, SAMPLES_MAX);
    if (p->n_logprobs < -1 || p->n_logprobs > n_vocab)
        return err_set(err, ERR_ARG, "n_logprobs is %d; it must be -1 (none) to %lld", p->n_logprobs, (long long)n_vocab);
    if (p->draft_n < -1)
        return err_set(err, ERR_ARG, "draft_n is %d; it must be at least -1", p->draft_n);
    if ((unsigned)p->draft_accept > FORGE_DRAFT_RATIO)
        return err_set(err, ERR_ARG, "draft_accept %d is unknown", (int)p->draft_accept);
    if (!(p->deadline_s >= 0) || isinf(p->deadline_s))
        return err_set(err, ERR_ARG, "deadline_s is %g; it must be 0 (none) or more", p->deadline_s);
    if (p->messages && (p->text || p->ids))
        return err_set(err, ERR_ARG, "a request has messages and also text or ids");
    int rc = engine_chat_flags_check("chat_flags", p->chat_flags, err);
    return rc < 0 ? rc : engine_text_flags_check("text_flags", p->text_flags, err);
}

static int copy_sampling(struct forge_request *r, const struct forge_sampling *s, struct err *err)
{
    r->bias = mem_array(s->n_bias, sizeof *r->bias);
    if (!r->bias)
        return err_set(err, ERR_NOMEM, "no memory for %zu logit biases", s->n_bias);
    for (size_t i = 0; i < s->n_bias; i++)
        r->bias[i] = (struct sampler_bias){s->bias[i].id, s->bias[i].bias};
    r->seed = s->has_seed ? s->seed : rng_fresh_seed();
    r->sampling = (struct sampler_params){
        .temp = s->temp,
        .top_k = s->top_k,
        .top_p = s->top_p,
        .min_p = s->min_p,
        .typical_p = s->typical_p,
        .repeat_penalty = s->repeat_penalty,
        .presence_penalty = s->presence_penalty,
        .frequency_penalty = s->frequency_penalty,
        .bias = r->bias,
        .n_bias = s->n_bias,
        .seed = r->seed,
        .only_finite = true,
    };
    return sampler_params_check(&r->sampling, true, r->e->l.config->n_vocab, err);
}

static void free_parts(struct forge_request *r)
{
    for (int i = 0; r->samples && i < r->p.n_samples; i++) {
        ids_fini(&r->samples[i].ids);
        buf_fini(&r->samples[i].text);
        buf_fini(&r->samples[i].piece);
        buf_fini(&r->samples[i].fresh);
        stop_free(r->samples[i].stop);
        free(r->samples[i].logprobs);
        free(r->samples[i].q);
        constrain_end(&r->samples[i].place);
    }
    free(r->samples);
    stop_set_free(r->stops);
    free(r->first);
    session_close(r->session);
    free(r->session_save);
    free(r->bias);
    constrain_free(r->constrain);
    ids_fini(&r->prompt);
    free(r);
}

static void note_deadline(const struct forge_request *r)
{
    struct forge_engine *e = r->e;
    if (r->deadline > 0 && (e->deadline == 0 || r->deadline < e->deadline))
        e->deadline = r->deadline;
}

void request_came_at(struct forge_request *r, double at)
{
    r->t_submit = at;
    r->deadline = r->p.deadline_s > 0 ? at + r->p.deadline_s : 0;
    note_deadline(r);
}

static void enqueue(struct forge_engine *e, struct forge_request *r)
{
    r->next = NULL;
    r->prev = e->last;
    if (e->last)
        e->last->next = r;
    else
        e->first = r;
    e->last = r;
    e->n_active++;
    r->number = e->n_submitted++;
    note_deadline(r);
    sched_settle(r);
    if (atomic_load(&r->cancel)) /* while it lay in the inbox: a sweep may have counted that already */
        atomic_fetch_add(&e->n_cancels, 1);
}

static void remove_request(struct forge_request *r)
{
    struct forge_engine *e = r->e;
    r->closed = true; /* its callbacks are not called any more */
    request_end(r, FORGE_FINISH_CANCELLED);
    if (r->prev)
        r->prev->next = r->next;
    else
        e->first = r->next;
    if (r->next)
        r->next->prev = r->prev;
    else
        e->last = r->prev;
    free_parts(r);
}

/* What was handed over joins the list; with `freed` what was freed leaves it. */
static void take(struct forge_engine *e, bool freed)
{
    struct forge_request *gone = NULL;
    for (struct forge_request *r = own_take(e, freed ? &gone : NULL), *next; r; r = next) {
        next = r->next;
        enqueue(e, r);
    }
    for (struct forge_request *r = gone, *next; r; r = next) {
        next = r->next_freed;
        remove_request(r);
    }
}

void request_take_inbox(struct forge_engine *e)
{
    take(e, false);
}

static int make_constrain(struct forge_request *r, struct err *err)
{
    struct constrain_params p = {
        .grammar = r->p.grammar,
        .json_schema = r->p.json_schema,
        .prompt = r->prompt.v,
        .n_prompt = r->prompt.n,
        .ignore_eos = r->p.ignore_eos != 0,
        .keep_special = r->p.keep_special != 0,
    };
    return p.grammar || p.json_schema ? constrain_new(&r->constrain, &r->e->grammars, &r->e->l, &p, err) : 0;
}

static int make_samples(struct forge_request *r, const struct forge_request_params *p, struct err *err)
{
    int rc;
    r->samples = mem_array((size_t)p->n_samples, sizeof *r->samples);
    if (!r->samples)
        return err_set(err, ERR_NOMEM, "no memory for %d samples", p->n_samples);
    r->n_left = p->n_samples;
    for (int i = 0; i < p->n_samples; i++) {
        struct sample *s = &r->samples[i];
        *s = (struct sample){.r = r, .at = i, .slot = -1, .want = -1, .draft_slot = -1, .accept_rate = 0.75};
        ids_init(&s->ids);
        buf_init(&s->text);
        buf_init(&s->piece);
        buf_init(&s->fresh);
    }
    rc = stop_set_new(&r->stops, p->stops, p->n_stops, err);
    for (int i = 0; i < p->n_samples && rc == 0; i++)
        rc = stop_new(&r->samples[i].stop, r->stops, err);
    return rc;
}

static int make_session(struct forge_request *r, struct err *err)
{
    if (r->p.session_save && !(r->session_save = mem_strdup(r->p.session_save)))
        return err_set(err, ERR_NOMEM, "no memory for the name of a session");
    return r->p.session_load ? session_open(&r->session, &r->e->l, r->p.session_load, err) : 0;
}

static int make_request(struct forge_request *r, const struct forge_request_params *p, struct err *err)
{
    forge_request_params_init(&r->p, sizeof r->p);
    int rc = engine_params_copy(&r->p, sizeof r->p, p, "forge_request_params_init", err);
    if (rc == 0)
        rc = check_params(&r->p, r->e->l.config->n_vocab, err);
    if (rc < 0) {
        r->p.n_samples = 0; /* nothing of it was made */
        return rc;
    }
    if ((rc = copy_sampling(r, &r->p.sampling, err)) < 0 || (rc = make_samples(r, &r->p, err)) < 0 ||
        (rc = make_session(r, err)) < 0 || (rc = prompt_make(&r->prompt, r->e, &r->p, r->session, err)) < 0 || (rc = make_constrain(r, err)) < 0)
        return rc;
    r->metrics.input_tokens = r->prompt.n;
    r->t_submit = engine_now(r->e);
    r->deadline = r->p.deadline_s > 0 ? r->t_submit + r->p.deadline_s : 0;
    return 0;
}

int forge_submit(struct forge_engine *e, const struct forge_request_params *p, struct forge_request **out,
                 struct forge_error *err)
{
    struct err er = {0};
    *out = NULL;
    struct forge_request *r = mem_array(1, sizeof *r);
    if (!r) {
        err_set(&er, ERR_NOMEM, "no memory for a request");
        return engine_error(err, er.code, &er);
    }
    r->e = e;
    atomic_init(&r->cancel, 0);
    ids_init(&r->prompt);
    int rc = make_request(r, p, &er);
    if (rc < 0) {
        free_parts(r);
        return engine_error(err, rc, &er);
    }
    *out = r; /* before anybody is called back */
    if (!own_submit(e, r))
        enqueue(e, r);
    return 0;
}

void forge_request_cancel(struct forge_request *r)
{
    atomic_store(&r->cancel, 1);
    atomic_fetch_add(&r->e->n_cancels, 1);
}

/* In a callback the step still holds the request, or walks the list that it is in. */
void forge_request_free(struct forge_request *r)
{
    if (!r || own_free(r))
        return;
    if (!r->e->in_step) {
        remove_request(r);
        return;
    }
    assert(!r->freed);
    r->freed = r->closed = true;
    r->next_freed = r->e->freed;
    r->e->freed = r;
    forge_request_cancel(r);
}

void request_reap(struct forge_engine *e)
{
    take(e, true);
}

/* ---- what the caller may ask ---- */

static const struct sample *sample_at(const struct forge_request *r, int i)
{
    return i >= 0 && i < r->p.n_samples ? &r->samples[i] : NULL;
}

enum forge_finish forge_request_finish(const struct forge_request *r, int sample)
{
    const struct sample *s = sample_at(r, sample);
    return s ? s->finish : FORGE_FINISH_NONE;
}

const struct forge_error *forge_request_error(const struct forge_request *r)
{
    return &r->error;
}

const struct forge_metrics *forge_request_metrics(const struct forge_request *r)
{
    return &r->metrics;
}

uint64_t forge_request_seed(const struct forge_request *r)
{
    return r->seed;
}

const int32_t *forge_request_prompt_ids(const struct forge_request *r, size_t *n)
{
    *n = r->prompt.n;
    return r->prompt.v;
}

const int32_t *forge_request_ids(const struct forge_request *r, int sample, size_t *n)
{
    const struct sample *s = sample_at(r, sample);
    *n = s ? s->ids.n : 0;
    return s ? s->ids.v : NULL;
}

const char *forge_request_text(const struct forge_request *r, int sample, size_t *len)
{
    const struct sample *s = sample_at(r, sample);
    *len = s ? s->text.len : 0;
    return s ? buf_str(&s->text) : "";
}

const struct forge_logprob *forge_request_logprobs(const struct forge_request *r, int sample, size_t i, size_t *n)
{
    const struct sample *s = sample_at(r, sample);
    *n = 0;
    if (r->p.n_logprobs < 0 || !s || i >= s->ids.n)
        return NULL;
    *n = 1 + (size_t)r->p.n_logprobs;
    return s->logprobs + i * *n;
}
