/* A request and its samples begin and end: what they take is taken here, so that
 * steps ask for no memory.
 * Knows nothing of other requests, nor of what a step computes. */
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "run/engine.h"

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
    int64_t kept = (int64_t)r->prompt.n - 1;
    int rc = reserve_sample(r, &r->samples[r->at]);
    if (rc < 0)
        return rc;
    r->n_told = 0;
    buf_clear(&r->piece);
    stop_reset(r->stop);
    if (r->constrain)
        constrain_begin(r->constrain, &r->samples[r->at].place);
    detok_free(r->detok);
    r->detok = NULL;
    rc = detok_new(&r->detok, r->e->l.tokenizer, r->prompt.v, r->prompt.n, !r->p.keep_special, &r->err);
    if (rc < 0)
        return rc;
    if (r->at > 0) {
        r->len = kv_cut(r->e->l.kv, r->slot, kept);
        r->recompute = 0;
        if (r->len == 0)
            r->len = sched_find_prefix(r);
    }
    r->phase = PHASE_PREFILL;
    return 0;
}

static int start_first(struct forge_request *r)
{
    r->started = true;
    r->metrics.queued_s = clock_now() - r->t_submit;
    log_debug(LOG_SCHED, "sched: request of %zu prompt tokens starts after %.3f s", r->prompt.n, r->metrics.queued_s);
    int rc = sampler_new(&r->sampler, &r->sampling, r->e->l.config->n_vocab, &r->err);
    if (rc == 0 && r->constrain)
        rc = sampler_set_mask(r->sampler, constrain_mask, r->constrain, &r->err);
    if (rc == 0)
        rc = start_sample(r);
    if (rc == 0) {
        r->len = sched_find_prefix(r);
        r->metrics.cached_tokens = (uint64_t)r->len;
        r->e->stats.cached_tokens += (uint64_t)r->len;
    }
    return rc;
}

void running_start(struct forge_request *r)
{
    struct forge_engine *e = r->e;
    int rc = recover_devices(e, &r->err);
    if (rc == 0) {
        r->slot = kv_seq_open(e->l.kv); /* there is one: fewer run than slots are */
        sched_enter(r);
        if (!r->started)
            rc = start_first(r);
        else {
            r->len = sched_find_prefix(r);
            r->phase = r->samples[r->at].ids.n > 0 ? PHASE_DECODE : PHASE_PREFILL;
        }
    }
    if (rc < 0)
        request_end(r, FORGE_FINISH_ERROR);
}

void running_sample_done(struct forge_request *r)
{
    if (r->at + 1 == r->p.n_samples) {
        request_end(r, FORGE_FINISH_NONE);
        return;
    }
    r->at++;
    if (start_sample(r) < 0)
        request_end(r, FORGE_FINISH_ERROR);
}

void request_end(struct forge_request *r, enum forge_finish finish)
{
    struct forge_engine *e = r->e;
    if (r->phase == PHASE_DONE)
        return;
    r->phase = PHASE_DONE;
    e->n_active--;
    e->stats.finished++;
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
    sched_leave(r);
}
