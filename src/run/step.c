/* The scheduler, and one step of the running request: a chunk of its prompt or
 * one new id.  One request runs at a time: the highest priority first, among
 * equals the oldest.  A step is a transaction: lengths, ids and text move only
 * after its read succeeded. */
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "run/engine.h"

/* ---- samples ---- */

static bool is_plain(const struct forge_request *r)
{
    return r->p.n_logprobs < 0 && sampler_is_plain_argmax(r->sampler);
}

/* What a sample's new ids take, so that decoding asks for no memory.  Their texts may be of any length: what is
 * reserved for them is more than usual, and grows where it is too little. */
static int reserve_sample(struct forge_request *r, struct sample *s)
{
    const size_t usual = 12, most = (size_t)1 << 20; /* bytes of text of an id, and of all */
    int64_t room = r->e->l.n_ctx - (int64_t)r->prompt.n;
    if (r->p.max_tokens >= 0 && r->p.max_tokens < room)
        room = r->p.max_tokens;
    if (room == 0)
        return 0;
    size_t n = (size_t)room, text = n < most / usual ? n * usual : most;
    int32_t *ids = mem_grow(s->ids.v, &s->ids.cap, n, sizeof *ids);
    if (ids)
        s->ids.v = ids;
    if (!ids || !buf_reserve(&s->text, text) || !buf_reserve(&r->piece, 256) || !buf_reserve(&r->fresh, 256))
        return err_set(&r->err, ERR_NOMEM, "no memory for %zu ids and their text", n);
    return r->p.n_logprobs < 0 ? 0 : logprobs_reserve(s, r->p.n_logprobs, n, &r->err);
}

/* The prompt's KV is kept between samples; its last position is computed again for its logits (more where a
 * window gave pages back), which gives the same bits. */
static int start_sample(struct forge_request *r)
{
    struct forge_engine *e = r->e;
    int rc = reserve_sample(r, &r->samples[r->at]);
    if (rc < 0)
        return rc;
    r->n_told = 0;
    buf_clear(&r->piece);
    stop_reset(r->stop);
    detok_free(r->detok);
    r->detok = NULL;
    rc = detok_new(&r->detok, e->l.tokenizer, r->prompt.v, r->prompt.n, !r->p.keep_special, &r->err);
    if (rc < 0)
        return rc;
    if (r->at > 0)
        seq_reset(&e->seq, (int64_t)r->prompt.n - 1);
    r->phase = PHASE_PREFILL;
    return 0;
}

static void request_start(struct forge_request *r)
{
    struct forge_engine *e = r->e;
    e->running = r;
    r->t_start = clock_now();
    r->metrics.queued_s = r->t_start - r->t_submit;
    int rc = recover_devices(e, &r->err);
    if (rc < 0) {
        request_end(r, FORGE_FINISH_ERROR);
        return;
    }
    seq_reset(&e->seq, 0);
    rc = sampler_new(&r->sampler, &r->sampling, e->l.config->n_vocab, &r->err);
    if (rc == 0)
        rc = start_sample(r);
    if (rc < 0)
        request_end(r, FORGE_FINISH_ERROR);
    log_debug(LOG_SCHED, "sched: request of %zu prompt tokens starts after %.3f s", r->prompt.n, r->metrics.queued_s);
}

void request_end(struct forge_request *r, enum forge_finish finish)
{
    struct forge_engine *e = r->e;
    if (r->phase == PHASE_DONE)
        return;
    r->phase = PHASE_DONE;
    e->n_active--;
    if (finish == FORGE_FINISH_ERROR) {
        engine_error(&r->error, r->err.code < 0 ? r->err.code : ERR_INTERNAL, &r->err);
        log_debug(LOG_SCHED, "sched: request failed: %s", r->err.msg);
    }
    for (; finish != FORGE_FINISH_NONE && r->at < r->p.n_samples; r->at++, r->n_told = 0) {
        if (r->samples[r->at].finish == FORGE_FINISH_NONE)
            output_finish(r, finish);
        detok_free(r->detok); /* the samples after this one have no text */
        r->detok = NULL;
    }
    detok_free(r->detok);
    r->detok = NULL;
    sampler_free(r->sampler);
    r->sampler = NULL;
    if (e->running == r) {
        e->running = NULL;
        if (e->seq.slot >= 0) /* else its devices are lost */
            seq_reset(&e->seq, 0);
    }
}

static void sample_done(struct forge_request *r)
{
    if (r->at + 1 == r->p.n_samples) {
        request_end(r, FORGE_FINISH_NONE);
        return;
    }
    r->at++;
    if (start_sample(r) < 0)
        request_end(r, FORGE_FINISH_ERROR);
}

/* ---- one step ---- */

/* What an argmax of -1 tells; the sampler finds out itself. */
static int non_finite(struct forge_request *r)
{
    size_t n = r->samples[r->at].ids.n;
    return err_set(&r->err, ERR_NUMERIC, "step %zu (position %zu): non-finite logits", n + 1, r->prompt.n + n);
}

/* Evaluates n ids and chooses the next one; greedy requests read back nothing but its number. */
static int eval_and_choose(struct forge_request *r, const int32_t *ids, size_t n, int32_t *id)
{
    struct forge_engine *e = r->e;
    struct sample *s = &r->samples[r->at];
    int64_t n_vocab = e->l.config->n_vocab;
    int rc;
    if (is_plain(r)) {
        rc = seq_eval_argmax(&e->seq, ids, n, id, NULL, NULL, &r->err);
        return rc < 0 ? rc : *id < 0 ? non_finite(r) : 0;
    }
    rc = seq_eval(&e->seq, ids, n, false, e->logits, NULL, NULL, &r->err);
    if (rc < 0)
        return rc;
    struct sampler_history h = {r->prompt.v, r->prompt.n, s->ids.v, s->ids.n};
    rc = sampler_pick(r->sampler, e->logits, &h, (uint64_t)r->at, (uint64_t)(r->prompt.n + s->ids.n), id, &r->err);
    if (rc < 0) {
        err_wrap(&r->err, "step %zu (position %zu)", s->ids.n + 1, r->prompt.n + s->ids.n);
        return rc;
    }
    return r->p.n_logprobs < 0 ? 0 : logprobs_add(s, r->p.n_logprobs, e->logits, n_vocab, *id, &r->err);
}

static double rate(uint64_t n, double seconds)
{
    return seconds > 0 ? (double)n / seconds : 0;
}

/* One chunk of the prompt; with the last one the first new id, unless none may be made. */
static int prefill_step(struct forge_request *r, int32_t *id, bool *chosen)
{
    struct forge_engine *e = r->e;
    size_t done = (size_t)e->seq.len, n = r->prompt.n - done;
    n = n < (size_t)seq_piece(&e->seq) ? n : (size_t)seq_piece(&e->seq);
    bool last = done + n == r->prompt.n;
    double t = clock_now();
    *chosen = last && output_limit(r) == FORGE_FINISH_NONE;
    int rc = *chosen ? eval_and_choose(r, r->prompt.v + done, n, id)
                     : seq_eval(&e->seq, r->prompt.v + done, n, false, NULL, NULL, NULL, &r->err);
    r->metrics.prefill_s += clock_now() - t;
    if (rc < 0)
        return rc;
    r->n_prefilled += n;
    r->metrics.prefill_tok_s = rate(r->n_prefilled, r->metrics.prefill_s);
    r->prefill_told = done + n > r->prefill_told ? done + n : r->prefill_told;
    if (r->at == 0 && r->p.on_prefill && !r->closed && r->p.on_prefill(r->p.user, r->prefill_told, r->prompt.n))
        atomic_store(&r->cancel, 1);
    if (last)
        r->phase = PHASE_DECODE;
    return 0;
}

static int decode_step(struct forge_request *r, int32_t *id)
{
    const struct sample *s = &r->samples[r->at];
    double t = clock_now();
    int rc = eval_and_choose(r, &s->ids.v[s->ids.n - 1], 1, id);
    r->metrics.decode_s += clock_now() - t;
    r->n_decoded += rc == 0;
    r->metrics.decode_tok_s = rate(r->n_decoded, r->metrics.decode_s);
    return rc;
}

static int try_step(struct forge_request *r, int32_t *id, bool *chosen)
{
    *chosen = true;
    return r->phase == PHASE_PREFILL ? prefill_step(r, id, chosen) : decode_step(r, id);
}

static void request_step(struct forge_request *r)
{
    int32_t id = -1;
    bool chosen, was_prefill = r->phase == PHASE_PREFILL;
    int rc = try_step(r, &id, &chosen);
    while (rc < 0 && recover(r)) /* once, or with fewer rows each time */
        rc = try_step(r, &id, &chosen);
    if (rc < 0 && r->recovered && r->err.code == ERR_CANCELLED) {
        request_end(r, atomic_load(&r->cancel) ? FORGE_FINISH_CANCELLED : FORGE_FINISH_DEADLINE);
        return;
    }
    if (rc == 0 && was_prefill && atomic_load(&r->cancel)) {
        request_end(r, FORGE_FINISH_CANCELLED);
        return;
    }
    if (rc == 0 && chosen)
        rc = output_id(r, id);
    else if (rc == 0 && r->phase == PHASE_DECODE)
        rc = output_finish(r, output_limit(r)); /* the prompt was all that was asked for, or all that fits */
    if (rc < 0)
        request_end(r, FORGE_FINISH_ERROR);
    else if (r->samples[r->at].finish != FORGE_FINISH_NONE)
        sample_done(r);
}

/* ---- the scheduler ---- */

static struct forge_request *choose_next(const struct forge_engine *e)
{
    struct forge_request *best = NULL;
    for (struct forge_request *r = e->first; r; r = r->next)
        if (r->phase == PHASE_QUEUED && (!best || r->p.priority > best->p.priority))
            best = r;
    return best;
}

/* Requests that were cancelled or are past their deadline, queued or running.  Callbacks may submit: new
 * requests come last in the list. */
static void sweep(struct forge_engine *e)
{
    double now = clock_now();
    for (struct forge_request *r = e->first; r; r = r->next) {
        if (r->phase == PHASE_DONE)
            continue;
        if (atomic_load(&r->cancel))
            request_end(r, FORGE_FINISH_CANCELLED);
        else if (r->deadline > 0 && now >= r->deadline)
            request_end(r, FORGE_FINISH_DEADLINE);
    }
}

static int refuse_in_callback(const struct forge_engine *e, const char *what, struct forge_error *err)
{
    struct err er = {0};
    if (e->in_step)
        err_set(&er, ERR_ARG, "%s was called from a callback", what);
    return e->in_step ? engine_error(err, er.code, &er) : 0;
}

int forge_step(struct forge_engine *e, struct forge_error *err)
{
    int rc = refuse_in_callback(e, "forge_step", err);
    if (rc < 0)
        return rc;
    e->in_step = true;
    sweep(e);
    if (!e->running) {
        struct forge_request *next = choose_next(e);
        if (next)
            request_start(next);
    }
    if (e->running)
        request_step(e->running);
    e->in_step = false;
    engine_place(e);
    request_reap(e);
    return e->n_active > 0;
}

/* ---- in one call ---- */

static int finish_code(const struct forge_request *r, struct forge_error *err)
{
    if (r->error.code == 0)
        return 0;
    if (err)
        *err = r->error;
    return r->error.code;
}

int forge_generate(struct forge_engine *e, const struct forge_request_params *p, struct forge_request **out,
                   struct forge_error *err)
{
    struct forge_request *r = NULL;
    if (out)
        *out = NULL;
    int rc = refuse_in_callback(e, "forge_generate", err);
    if (rc == 0)
        rc = forge_submit(e, p, &r, err);
    while (rc >= 0 && r->phase != PHASE_DONE)
        rc = forge_step(e, err);
    if (rc >= 0)
        rc = finish_code(r, err);
    if (out)
        *out = r;
    else
        forge_request_free(r);
    return rc;
}

static bool all_done(struct forge_request *const *r, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (r[i]->phase != PHASE_DONE)
            return false;
    return true;
}

/* Submits all, or none. */
static int submit_all(struct forge_engine *e, const struct forge_request_params *p, size_t n, struct forge_request **r,
                      struct forge_error *err)
{
    for (size_t i = 0; i < n; i++) {
        const void *at = (const unsigned char *)p + i * p->struct_size; /* which may differ from ours */
        int rc = forge_submit(e, at, &r[i], err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

int forge_generate_batch(struct forge_engine *e, const struct forge_request_params *p, size_t n, struct forge_request **out,
                         struct forge_error *err)
{
    struct err er;
    for (size_t i = 0; i < n; i++)
        out[i] = NULL;
    int rc = refuse_in_callback(e, "forge_generate_batch", err);
    if (rc < 0)
        return rc;
    struct forge_request **r = mem_array(n, sizeof *r); /* out is the callers', who may look at it in a callback */
    if (!r) {
        err_set(&er, ERR_NOMEM, "no memory for %zu requests", n);
        return engine_error(err, er.code, &er);
    }
    rc = submit_all(e, p, n, r, err);
    while (rc >= 0 && !all_done(r, n))
        rc = forge_step(e, err);
    for (size_t i = 0; i < n; i++) {
        if (rc < 0)
            forge_request_free(r[i]);
        else
            out[i] = r[i];
    }
    free(r);
    for (size_t i = 0; i < n && rc >= 0; i++)
        rc = finish_code(out[i], err);
    return rc;
}
