/* Requests of the engine for an exchange: submitted together, told of by callbacks
 * on the engine's thread, which write events or, for a whole answer, only note the
 * end.  Knows nothing of how an answer is spelled. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"
#include "serve/server.h"

#define PROGRESS_EVERY 0.25 /* seconds between events of a prefill */

const char *finish_reason(enum forge_finish f, size_t n_calls)
{
    return n_calls > 0 ? "tool_calls" : f == FORGE_FINISH_EOS || f == FORGE_FINISH_STOP ? "stop" : "length";
}

enum forge_finish turn_finish(const struct turn *t)
{
    enum forge_finish f = t->choices[0].finish;
    for (size_t k = 1; k < (size_t)t->x->gen->api.n; k++)
        if (t->choices[k].finish >= FORGE_FINISH_CANCELLED && t->choices[k].finish > f)
            f = t->choices[k].finish;
    return f;
}

/* ---- callbacks, on the engine's thread ---- */

/* While others of its turns are still being submitted, gen_start cancels when they are. */
static void give_up(struct exchange *x)
{
    x->gone = true;
    if (x->watched)
        gen_cancel(x);
}

/* Also between ticks: a client that left costs one step at most. */
static void look_for_client(struct exchange *x)
{
    if (!x->gone && http_left(x))
        give_up(x);
}

/* A client that takes less than comes is as good as gone before its stream fills the memory. */
static void tell_piece(struct exchange *x, struct turn *t, const struct forge_piece *p)
{
    sse_piece(x, t, p);
    if (x->out.len - x->out_pos > x->s->unread_max) {
        buf_fini(&x->out);
        x->out_pos = 0;
        give_up(x);
    }
}

static void turn_ended(struct exchange *x, struct turn *t, enum forge_finish finish)
{
    struct gen *g = x->gen;
    const struct forge_error *err = forge_request_error(t->r);
    if (finish == FORGE_FINISH_ERROR && g->error.code == 0) {
        g->error = *err;
        g->error.code = err->code ? err->code : FORGE_ERR_INTERNAL;
    }
    if (finish != FORGE_FINISH_CANCELLED)
        atomic_store(&x->s->device_failed, finish == FORGE_FINISH_ERROR && err->code == FORGE_ERR_DEVICE);
    counts_ended(x->s, t);
    if (--g->n_left > 0)
        return;
    x->done = true;
    if (g->api.stream)
        sse_end(x);
}

static void give_back(struct exchange *x, size_t n)
{
    x->gen->n_places -= n;
    atomic_fetch_sub(&x->s->n_requests, n);
}

static int on_piece(void *user, const struct forge_piece *p)
{
    struct turn *t = user;
    struct exchange *x = t->x;
    struct choice *c = &t->choices[p->sample];
    bool over = false;
    mutex_lock(x->lock);
    look_for_client(x);
    if (x->gen->api.stream && !x->gone)
        tell_piece(x, t, p);
    if (p->finish != FORGE_FINISH_NONE) {
        c->ended = true;
        c->finish = p->finish;
        over = ++t->n_ended == (size_t)x->gen->api.n;
        if (over)
            turn_ended(x, t, p->finish);
    }
    if (x->done || x->out.len > 0 || x->out.failed)
        http_resume(x);
    if (over)
        give_back(x, 1); /* last of all: when all are back, the daemon may stop, and nothing may be suspended */
    mutex_unlock(x->lock);
    return 0;
}

static int on_prefill(void *user, size_t done, size_t total)
{
    struct turn *t = user;
    struct exchange *x = t->x;
    double now = clock_now();
    mutex_lock(x->lock);
    look_for_client(x);
    if (x->gen->api.stream && x->gen->api.return_progress && (done == total || now - t->t_progress > PROGRESS_EVERY)) {
        t->t_progress = now;
        sse_progress(x, t, done, total);
        http_resume(x);
    }
    mutex_unlock(x->lock);
    return 0;
}

void gen_cancel(struct exchange *x)
{
    for (size_t i = 0; i < x->gen->api.n_prompts; i++)
        if (x->gen->turns[i].r)
            forge_request_cancel(x->gen->turns[i].r);
}

/* ---- beginning and end ---- */

void gen_free(struct exchange *x)
{
    struct gen *g = x->gen;
    if (!g)
        return;
    for (size_t i = 0; g->turns && i < g->api.n_prompts; i++) {
        struct turn *t = &g->turns[i];
        forge_request_free(t->r); /* nobody is called back any more */
        if (t->r && t->n_ended < (size_t)g->api.n)
            counts_ended(x->s, NULL);
        for (size_t k = 0; t->choices && k < (size_t)g->api.n; k++)
            forge_chat_parser_free(t->choices[k].parser);
        free(t->choices);
    }
    give_back(x, g->n_places);
    free(g->turns);
    api_fini(&g->api);
    free(g);
    x->gen = NULL;
}

static bool make_turns(struct exchange *x)
{
    struct gen *g = x->gen;
    g->turns = mem_array(g->api.n_prompts, sizeof *g->turns);
    for (size_t i = 0; g->turns && i < g->api.n_prompts; i++) {
        struct turn *t = &g->turns[i];
        t->x = x;
        t->index = i;
        t->choices = mem_array((size_t)g->api.n, sizeof *t->choices);
        if (!t->choices)
            return false;
        for (size_t k = 0; k < (size_t)g->api.n; k++) {
            t->choices[k].index = i * (size_t)g->api.n + k;
            if (g->api.chat && g->api.stream && !(t->choices[k].parser = answer_parser(&g->api)))
                return false;
        }
    }
    g->n_left = g->api.n_prompts;
    return g->turns != NULL;
}

/* Which field a refusal is about: the engine speaks of its own. */
static const char *blame(const struct api *a, const struct forge_error *err)
{
    if (a->json_schema && strstr(err->message, "json_schema"))
        return a->schema_field;
    return a->chat ? "messages" : "prompt";
}

static bool submit_all(struct exchange *x, struct api_error *e)
{
    struct gen *g = x->gen;
    g->t_submit = clock_now();
    for (size_t i = 0; i < g->api.n_prompts; i++) {
        struct turn *t = &g->turns[i];
        struct forge_request_params p;
        struct forge_error err = {0};
        api_request(&g->api, i, &p);
        p.on_piece = on_piece;
        p.on_prefill = on_prefill;
        p.user = t;
        if (forge_submit(x->s->e, &p, &t->r, &err) < 0)
            return api_fail_engine(e, blame(&g->api, &err), &err);
    }
    return true;
}

/* Takes a place for each prompt. */
static bool take_places(struct exchange *x, struct api_error *e)
{
    struct server *s = x->s;
    size_t n = x->gen->api.n_prompts, room = (size_t)s->slots + (size_t)s->p.max_queue, taken = atomic_load(&s->n_requests);
    if (n > room)
        return api_fail(e, 400, "prompt", "'prompt' has %zu elements; this server takes at most %zu at once.", n, room);
    do {
        if (n > room - taken)
            return api_fail(e, 429, NULL, "%zu of %zu places are taken (%d slots, and a queue of %d); send this again later.", taken,
                            room, s->slots, s->p.max_queue);
    } while (!atomic_compare_exchange_weak(&s->n_requests, &taken, taken + n));
    x->gen->n_places = n;
    if (atomic_load(&s->draining)) /* only now: who ends the server sees the places, or is seen here */
        return api_fail(e, 503, NULL, "The server is about to end; send this again later.");
    return true;
}

static bool start(struct exchange *x, bool chat, struct api_error *e)
{
    struct gen *g;
    bool ok = false;
    cJSON *body = fields_body(x, e);
    if (!body)
        return false;
    g = x->gen = mem_array(1, sizeof *g);
    if (!g) {
        cJSON_Delete(body);
        return api_no_memory(e);
    }
    snprintf(g->id, sizeof g->id, "%s-%016llx", chat ? "chatcmpl" : "cmpl", (unsigned long long)rng_fresh_seed());
    g->created = time(NULL);
    if (api_read(&g->api, x->s, body_node(x, body), chat, e) && take_places(x, e))
        ok = make_turns(x) ? submit_all(x, e) : api_no_memory(e);
    cJSON_Delete(body);
    return ok;
}

void gen_start(struct exchange *x, bool chat)
{
    struct api_error e = {0};
    bool ok = start(x, chat, &e);
    mutex_lock(x->lock);
    x->watched = ok;
    if (ok && x->gone)
        gen_cancel(x);
    mutex_unlock(x->lock);
    if (ok)
        return;
    gen_free(x);
    reply_error(x, &e);
}

void handle_completions(struct exchange *x)
{
    gen_start(x, false);
}

/* ---- what it came to ---- */

struct usage gen_usage(const struct gen *g)
{
    struct usage u = {0};
    for (size_t i = 0; i < g->api.n_prompts; i++) {
        const struct forge_metrics *m = forge_request_metrics(g->turns[i].r);
        u.prompt += m->input_tokens;
        u.completion += m->output_tokens;
        u.cached += m->cached_tokens;
    }
    return u;
}

void usage_json(struct buf *out, const struct gen *g)
{
    struct usage u = gen_usage(g);
    buf_puts(out, "\"usage\":{");
    put_int(out, "prompt_tokens", (int64_t)u.prompt);
    put_int(out, "completion_tokens", (int64_t)u.completion);
    put_int(out, "total_tokens", (int64_t)(u.prompt + u.completion));
    buf_printf(out, "\"prompt_tokens_details\":{\"cached_tokens\":%llu}}", (unsigned long long)u.cached);
}

/* Of the first prompt; what was not measured is left out. */
void metrics_json(struct buf *out, const struct gen *g)
{
    const struct forge_metrics *m = forge_request_metrics(g->turns[0].r);
    const struct {
        const char *key;
        double value;
    } times[] = {
        {"throughput", m->decode_tok_s},  {"ttft_ms", m->ttft_ms},          {"tpot_ms", m->tpot_ms},
        {"queued_ms", m->queued_s * 1e3}, {"prefill_ms", m->prefill_s * 1e3}, {"decode_ms", m->decode_s * 1e3},
    };
    buf_puts(out, "\"metrics\":{");
    put_int(out, "input_tokens", (int64_t)m->input_tokens);
    put_int(out, "output_tokens", (int64_t)m->output_tokens);
    put_int(out, "cached_tokens", (int64_t)m->cached_tokens);
    for (size_t i = 0; i < sizeof times / sizeof *times; i++)
        if (times[i].value > 0)
            buf_printf(out, "\"%s\":%.3f,", times[i].key, times[i].value);
    if (m->drafted_tokens > 0) {
        put_int(out, "drafted_tokens", (int64_t)m->drafted_tokens);
        put_int(out, "accepted_tokens", (int64_t)m->accepted_tokens);
    }
    buf_printf(out, "\"seed\":%llu}", (unsigned long long)forge_request_seed(g->turns[0].r));
}
