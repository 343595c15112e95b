/* From a new id to what the caller sees: text without half characters, without
 * stop strings, in pieces; and how a sample ends.  Must not know how the id was
 * computed or chosen. */
#include "base/clock.h"
#include "run/engine.h"

static struct sample *current(struct forge_request *r)
{
    return &r->samples[r->at];
}

/* Tells the text in r->piece and the ids since the last piece; a callback that returns non-zero cancels. */
static void tell(struct forge_request *r, enum forge_finish finish)
{
    struct sample *s = current(r);
    struct forge_piece piece = {
        .text = buf_str(&r->piece),
        .text_len = r->piece.len,
        .ids = s->ids.v ? s->ids.v + r->n_told : NULL,
        .n_ids = s->ids.n - r->n_told,
        .sample = r->at,
        .finish = finish,
    };
    r->n_told = s->ids.n;
    if (r->p.on_piece && own_call_begin(r)) {
        if (r->p.on_piece(r->p.user, &piece)) {
            r->closed = true;
            atomic_store(&r->cancel, 1);
        }
        own_call_end(r);
    }
    buf_clear(&r->piece);
}

/* What was added to r->piece since it was `before` bytes long is the sample's text too. */
static void keep_text(struct forge_request *r, size_t before)
{
    buf_put(&current(r)->text, buf_str(&r->piece) + before, r->piece.len - before);
}

/* Passes r->fresh through the stop strings; true = one is complete, and what comes after it is dropped. */
static bool take_text(struct forge_request *r)
{
    size_t before = r->piece.len;
    bool stopped = stop_push(r->stop, buf_str(&r->fresh), r->fresh.len, &r->piece);
    keep_text(r, before);
    return stopped;
}

static bool text_failed(const struct forge_request *r)
{
    return r->samples[r->at].text.failed || r->piece.failed || r->fresh.failed;
}

static int no_text(struct forge_request *r)
{
    return err_set(&r->err, ERR_NOMEM, "no memory for the text");
}

static bool is_end(const struct forge_request *r, int32_t id)
{
    const struct model_config *c = r->e->l.config;
    for (int i = 0; i < c->n_eos && !r->p.ignore_eos; i++)
        if (c->eos[i] == id)
            return true;
    return false;
}

/* New ids are made while prompt and new ids together are at most n_ctx; the last of them is never stored. */
enum forge_finish output_limit(const struct forge_request *r)
{
    const struct sample *s = &r->samples[r->at];
    if (r->p.max_tokens >= 0 && (int64_t)s->ids.n >= r->p.max_tokens)
        return FORGE_FINISH_LENGTH;
    if ((int64_t)(r->prompt.n + s->ids.n) >= r->e->l.n_ctx)
        return FORGE_FINISH_CONTEXT;
    return FORGE_FINISH_NONE;
}

static void count_time(struct forge_request *r, struct sample *s, double now)
{
    struct forge_metrics *m = &r->metrics;
    if (m->ttft_ms == 0)
        m->ttft_ms = (now - r->t_submit) * 1e3;
    if (s->ids.n > 1) {
        r->later_s += now - s->t_last;
        r->n_later++;
        m->tpot_ms = r->later_s / (double)r->n_later * 1e3;
    }
    s->t_last = now;
}

int output_id(struct forge_request *r, int32_t id)
{
    struct sample *s = current(r);
    if (is_end(r, id))
        return output_finish(r, FORGE_FINISH_EOS);
    int rc = ids_push(&s->ids, id, &r->err);
    if (rc < 0)
        return rc;
    r->metrics.output_tokens++;
    count_time(r, s, clock_now());
    if (r->constrain && (rc = constrain_take(r->constrain, &s->place, id, &r->err)) < 0)
        return rc;
    buf_clear(&r->fresh);
    rc = detok_push(r->detok, id, &r->fresh, &r->err);
    if (rc < 0)
        return rc;
    bool stopped = take_text(r);
    if (text_failed(r))
        return no_text(r);
    enum forge_finish finish = stopped ? FORGE_FINISH_STOP : constrain_done(&s->place) ? FORGE_FINISH_EOS : output_limit(r);
    if (finish != FORGE_FINISH_NONE)
        return output_finish(r, finish);
    if (r->piece.len)
        tell(r, FORGE_FINISH_NONE);
    return 0;
}

/* What is held back is final now; *stopped = a stop string was complete in it. */
static int release_held(struct forge_request *r, bool *stopped)
{
    buf_clear(&r->fresh);
    int rc = detok_finish(r->detok, &r->fresh, &r->err);
    *stopped = take_text(r);
    size_t before = r->piece.len;
    stop_flush(r->stop, &r->piece);
    keep_text(r, before);
    return rc == 0 && text_failed(r) ? no_text(r) : rc;
}

int output_finish(struct forge_request *r, enum forge_finish finish)
{
    int rc = 0;
    bool stopped = false;
    if (r->detok && finish != FORGE_FINISH_STOP)
        rc = release_held(r, &stopped);
    if (rc < 0) {
        engine_error(&r->error, rc, &r->err);
        finish = FORGE_FINISH_ERROR;
    } else if (stopped && finish < FORGE_FINISH_CANCELLED) {
        finish = FORGE_FINISH_STOP;
    }
    current(r)->finish = finish;
    tell(r, finish);
    return rc;
}
