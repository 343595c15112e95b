/* From a new id to what the caller sees: text without half characters, without
 * stop strings, in pieces; and how a sample ends.  Must not know how the id was
 * computed or chosen. */
#include "run/engine.h"

/* Tells the text in s->piece and the ids since the last piece; a callback that returns non-zero cancels. */
static void tell(struct sample *s, enum forge_finish finish)
{
    struct forge_request *r = s->r;
    struct forge_piece piece = {
        .text = buf_str(&s->piece),
        .text_len = s->piece.len,
        .ids = s->ids.v ? s->ids.v + s->n_told : NULL,
        .n_ids = s->ids.n - s->n_told,
        .sample = s->at,
        .finish = finish,
    };
    s->n_told = s->ids.n;
    if (r->p.on_piece && own_call_begin(r)) {
        if (r->p.on_piece(r->p.user, &piece)) {
            r->closed = true;
            forge_request_cancel(r);
        }
        own_call_end(r);
    }
    buf_clear(&s->piece);
}

/* What was added to s->piece since it was `before` bytes long is the sample's text too. */
static void keep_text(struct sample *s, size_t before)
{
    buf_put(&s->text, buf_str(&s->piece) + before, s->piece.len - before);
}

/* Passes s->fresh through the stop strings; true = one is complete, and what comes after it is dropped. */
static bool take_text(struct sample *s)
{
    size_t before = s->piece.len;
    bool stopped = stop_push(s->stop, buf_str(&s->fresh), s->fresh.len, &s->piece);
    keep_text(s, before);
    return stopped;
}

static bool text_failed(const struct sample *s)
{
    return s->text.failed || s->piece.failed || s->fresh.failed;
}

static int no_text(struct sample *s)
{
    return err_set(&s->r->err, ERR_NOMEM, "no memory for the text");
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
enum forge_finish output_limit(const struct sample *s)
{
    const struct forge_request *r = s->r;
    if (r->p.max_tokens >= 0 && (int64_t)s->ids.n >= r->p.max_tokens)
        return FORGE_FINISH_LENGTH;
    if ((int64_t)(r->prompt.n + s->ids.n) >= r->e->l.n_ctx)
        return FORGE_FINISH_CONTEXT;
    return FORGE_FINISH_NONE;
}

static void count_time(struct sample *s, double now)
{
    struct forge_request *r = s->r;
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

int output_id(struct sample *s, int32_t id)
{
    struct forge_request *r = s->r;
    if (is_end(r, id))
        return output_finish(s, FORGE_FINISH_EOS);
    int rc = ids_push(&s->ids, id, &r->err);
    if (rc < 0)
        return rc;
    r->metrics.output_tokens++;
    count_time(s, engine_now(r->e));
    if (r->constrain && (rc = constrain_take(r->constrain, &s->place, id, &r->err)) < 0)
        return rc;
    buf_clear(&s->fresh);
    rc = detok_push(s->detok, id, &s->fresh, &r->err);
    if (rc < 0)
        return rc;
    bool stopped = take_text(s);
    if (text_failed(s))
        return no_text(s);
    enum forge_finish finish = stopped ? FORGE_FINISH_STOP : constrain_done(&s->place) ? FORGE_FINISH_EOS : output_limit(s);
    if (finish != FORGE_FINISH_NONE)
        return output_finish(s, finish);
    if (s->piece.len)
        tell(s, FORGE_FINISH_NONE);
    return 0;
}

/* What is held back is final now; *stopped = a stop string was complete in it. */
static int release_held(struct sample *s, bool *stopped)
{
    struct forge_request *r = s->r;
    buf_clear(&s->fresh);
    int rc = detok_finish(s->detok, &s->fresh, &r->err);
    *stopped = take_text(s);
    size_t before = s->piece.len;
    stop_flush(s->stop, &s->piece);
    keep_text(s, before);
    return rc == 0 && text_failed(s) ? no_text(s) : rc;
}

int output_finish(struct sample *s, enum forge_finish finish)
{
    struct forge_request *r = s->r;
    int rc = 0;
    bool stopped = false;
    if (s->detok && finish != FORGE_FINISH_STOP)
        rc = release_held(s, &stopped);
    if (rc < 0) {
        engine_error(&r->error, rc, &r->err);
        finish = FORGE_FINISH_ERROR;
    } else if (stopped && finish < FORGE_FINISH_CANCELLED) {
        finish = FORGE_FINISH_STOP;
    }
    s->finish = finish;
    tell(s, finish);
    return rc;
}
