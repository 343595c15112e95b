/* Requests and their samples begin and end: what they take is taken here, so that
 * steps ask for no memory.
 * Knows nothing of other requests, nor of what a step computes. */
#include "base/log.h"
#include "base/mem.h"
#include "run/engine.h"

/* What a sample's new ids take, so that decoding asks for no memory.  Their texts may be of any length: what is
 * reserved for them is more than usual, and grows where it is too little. */
static int reserve(struct sample *s)
{
    const size_t usual = 12, most = (size_t)1 << 20; /* bytes of text of an id, and of all */
    struct forge_request *r = s->r;
    int64_t room = r->e->l.n_ctx - (int64_t)r->prompt.n;
    if (r->p.max_tokens >= 0 && r->p.max_tokens < room)
        room = r->p.max_tokens;
    if (room == 0)
        return 0;
    size_t n = (size_t)room, text = n < most / usual ? n * usual : most;
    int32_t *ids = mem_grow(s->ids.v, &s->ids.cap, n + (size_t)r->e->draft_max, sizeof *ids);
    if (ids)
        s->ids.v = ids;
    if (!ids || !buf_reserve(&s->text, text) || !buf_reserve(&s->piece, 256) || !buf_reserve(&s->fresh, 256))
        return err_set(&r->err, ERR_NOMEM, "no memory for %zu ids and their text", n);
    return r->p.n_logprobs < 0 ? 0 : logprobs_reserve(s, r->p.n_logprobs, n, &r->err);
}

static int start_request(struct forge_request *r)
{
    size_t n_vocab = (size_t)r->e->l.config->n_vocab;
    r->started = true;
    r->metrics.queued_s = engine_now(r->e) - r->t_submit;
    log_debug(LOG_SCHED, "sched: request of %zu prompt tokens starts after %.3f s", r->prompt.n, r->metrics.queued_s);
    int rc = sampler_new(&r->sampler, &r->sampling, r->e->l.config->n_vocab, &r->err);
    if (rc == 0 && r->constrain)
        rc = sampler_set_mask(r->sampler, constrain_mask, r->constrain, &r->err);
    if (rc == 0 && r->p.n_samples > 1 && !step_is_plain(r)) {
        r->first = mem_array(n_vocab, sizeof *r->first);
        if (!r->first)
            rc = err_set(&r->err, ERR_NOMEM, "no memory for the logits of a prompt");
    }
    return rc;
}

/* The first id of a sample whose prompt another one has computed. */
static int draw_first(struct sample *s)
{
    struct forge_request *r = s->r;
    int32_t id;
    enum forge_finish limit = output_limit(s);
    if (limit != FORGE_FINISH_NONE)
        return output_finish(s, limit);
    int rc = step_choose(s, r->first ? NULL : &r->first_id, r->first, &id);
    return rc < 0 ? rc : output_id(s, id);
}

/* Up to its first id where the prompt's logits are there, with which it may end. */
static int begin(struct sample *s)
{
    struct forge_request *r = s->r;
    int rc = r->started ? 0 : start_request(r);
    s->started = true;
    if (r->constrain)
        constrain_begin(r->constrain, &s->place);
    if (rc == 0)
        rc = reserve(s);
    if (rc == 0)
        rc = spec_reserve(s);
    if (rc == 0)
        rc = detok_new(&s->detok, r->e->l.tokenizer, r->prompt.v, r->prompt.n, !r->p.keep_special, &r->err);
    if (rc == 0 && r->has_first) {
        s->recompute = (int64_t)r->prompt.n; /* whatever of it this one has to compute */
        rc = draw_first(s);
    }
    return rc;
}

/* It has an end; what only a running one needs goes. */
static void end_sample(struct sample *s)
{
    s->phase = PHASE_DONE;
    s->r->n_left--;
    sched_settle(s->r);
    detok_free(s->detok);
    s->detok = NULL;
    sched_leave(s);
}

static void go_on(struct sample *s)
{
    s->phase = s->ids.n > 0 ? PHASE_DECODE : PHASE_PREFILL;
    sched_enter(s);
}

/* What the first sample has stored, when it has ended by itself. */
static int save(struct sample *s)
{
    struct forge_request *r = s->r;
    struct kv_ids ids = {r->prompt.v, s->ids.v, r->prompt.n, s->ids.n};
    if (!r->session_save || s->at > 0 || s->slot < 0)
        return 0;
    return session_save(&r->e->l, s->slot, &ids, r->session_save, &r->err);
}

/* With a slot; the first to begin tells how much of its prompt was there. */
static void store(struct sample *s, bool first)
{
    struct forge_request *r = s->r;
    s->slot = kv_seq_open(r->e->l.kv); /* there is one: fewer run than slots are */
    go_on(s);
    s->len = sched_take_stored(s);
    if (first) {
        r->metrics.cached_tokens = (uint64_t)s->len;
        r->e->stats.cached_tokens += (uint64_t)s->len;
    }
}

void running_start(struct sample *s)
{
    struct forge_request *r = s->r;
    bool first = !r->started;
    int rc = recover_devices(r->e, &r->err);
    if (rc == 0 && !s->started)
        rc = begin(s);
    if (rc < 0)
        request_end(r, FORGE_FINISH_ERROR);
    else if (s->finish == FORGE_FINISH_NONE)
        store(s, first);
    else
        running_done(s);
}

void running_done(struct sample *s)
{
    struct forge_request *r = s->r;
    struct sample *next;
    int rc = save(s), slot = s->slot;
    if (rc < 0) {
        request_end(r, FORGE_FINISH_ERROR);
        return;
    }
    s->slot = -1; /* the next one has it, with the prompt in it */
    end_sample(s);
    while (slot >= 0 && (next = sched_next_of(r)) != NULL && !next->started) {
        rc = begin(next);
        if (rc < 0)
            break;
        if (next->finish != FORGE_FINISH_NONE) {
            end_sample(next);
            continue;
        }
        next->slot = slot;
        next->len = kv_cut(r->e->l.kv, slot, (int64_t)r->prompt.n);
        go_on(next);
        return;
    }
    if (slot >= 0)
        kv_seq_close(r->e->l.kv, slot);
    if (rc < 0 || r->n_left == 0)
        request_end(r, rc < 0 ? FORGE_FINISH_ERROR : FORGE_FINISH_NONE);
}

void request_end(struct forge_request *r, enum forge_finish finish)
{
    struct forge_engine *e = r->e;
    if (r->done)
        return;
    r->done = true;
    sched_settle(r);
    e->n_active--;
    e->stats.finished++;
    if (finish == FORGE_FINISH_ERROR) {
        engine_error(&r->error, r->err.code < 0 ? r->err.code : ERR_INTERNAL, &r->err);
        log_debug(LOG_SCHED, "sched: request failed: %s", r->err.msg);
    }
    for (int i = 0; i < r->p.n_samples; i++) {
        struct sample *s = &r->samples[i];
        if (s->phase == PHASE_DONE)
            continue;
        if (s->finish == FORGE_FINISH_NONE)
            output_finish(s, finish);
        end_sample(s);
    }
    sampler_free(r->sampler);
    r->sampler = NULL;
}
