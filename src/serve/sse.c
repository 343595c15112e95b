/* Events of a stream: a role, pieces of text, one finish_reason for each choice,
 * the usage where it was asked for, and [DONE].  A failure in the middle is an event
 * with the error object, and the end.  All into x->out, under x->lock. */
#include <string.h>

#include "base/clock.h"
#include "serve/server.h"

static void event_begin(struct exchange *x)
{
    const struct gen *g = x->gen;
    x->t_sent = clock_now();
    buf_puts(&x->out, "data: {");
    put_str(&x->out, "id", g->id);
    put_str(&x->out, "object", g->api.chat ? "chat.completion.chunk" : "text_completion");
    put_int(&x->out, "created", (int64_t)g->created);
    put_str(&x->out, "model", x->s->model_id);
    buf_puts(&x->out, "\"choices\":[");
}

static void event_end(struct exchange *x)
{
    buf_puts(&x->out, x->gen->api.include_usage ? "],\"usage\":null}\n\n" : "]}\n\n");
}

/* One choice with some text, or with its finish reason. */
static void choice_event(struct exchange *x, struct turn *t, size_t choice, const char *key, const char *text, size_t len,
                         size_t n_ids, const char *finish)
{
    struct choice *c = &t->choices[choice];
    struct buf *out = &x->out;
    bool chat = x->gen->api.chat;
    event_begin(x);
    buf_putc(out, '{');
    put_int(out, "index", (int64_t)c->index);
    if (chat) {
        buf_puts(out, "\"delta\":{");
        if (!c->begun)
            buf_puts(out, "\"role\":\"assistant\",");
    }
    if (key) {
        buf_printf(out, "\"%s\":", key);
        buf_put_json(out, text, len);
        buf_putc(out, ',');
    }
    if (chat)
        put_end(out, "},");
    if (n_ids > 0 && x->gen->api.n_logprobs >= 0) {
        logprobs_json(out, x, t, choice, c->n_told, n_ids, &c->n_chars);
        buf_putc(out, ',');
    } else
        buf_puts(out, "\"logprobs\":null,");
    put_str(out, "finish_reason", finish);
    put_end(out, "}");
    event_end(x);
    c->begun = true;
    c->n_told += n_ids;
}

/* What comes before a choice's first piece. */
static void begin_choice(struct exchange *x, struct turn *t, size_t choice)
{
    const struct api *a = &x->gen->api;
    const struct prompt *p = &a->prompts[t->index];
    if (a->chat)
        choice_event(x, t, choice, "content", "", 0, 0, NULL);
    else if (a->echo && p->len > 0)
        choice_event(x, t, choice, "text", p->text, p->len, 0, NULL);
}

/* A finished call of a tool, as one delta. */
static void calls_event(struct exchange *x, struct turn *t, size_t choice, const struct forge_answer_parts *p)
{
    struct choice *c = &t->choices[choice];
    event_begin(x);
    buf_putc(&x->out, '{');
    put_int(&x->out, "index", (int64_t)c->index);
    buf_puts(&x->out, "\"delta\":{");
    calls_json(&x->out, p, c->n_calls);
    buf_puts(&x->out, "},\"logprobs\":null,\"finish_reason\":null}");
    event_end(x);
    c->n_calls += p->n_calls;
}

/* What became final of a chat's text; ids go with the first part that is told. */
static void chat_piece(struct exchange *x, struct turn *t, const struct forge_piece *p, bool ended)
{
    size_t at = (size_t)p->sample, n_ids = p->n_ids;
    const struct forge_answer_parts *parts;
    bool logprobs = x->gen->api.n_logprobs >= 0;
    if (forge_chat_parse(t->choices[at].parser, p->text, p->text_len, ended, &parts, NULL) < 0) {
        x->out.failed = true;
        return;
    }
    if (parts->thought_len > 0) {
        choice_event(x, t, at, "reasoning_content", parts->thought, parts->thought_len, n_ids, NULL);
        n_ids = 0;
    }
    if (parts->content_len > 0 || (logprobs && n_ids > 0)) {
        choice_event(x, t, at, "content", parts->content, parts->content_len, n_ids, NULL);
        n_ids = 0;
    }
    t->choices[at].n_told += n_ids;
    if (parts->n_calls > 0)
        calls_event(x, t, at, parts);
}

void sse_piece(struct exchange *x, struct turn *t, const struct forge_piece *p)
{
    size_t at = (size_t)p->sample;
    struct choice *c = &t->choices[at];
    bool ended = p->finish != FORGE_FINISH_NONE, chat = x->gen->api.chat;
    if (!c->begun)
        begin_choice(x, t, at);
    if (chat)
        chat_piece(x, t, p, ended);
    else if (p->text_len > 0 || (p->n_ids > 0 && x->gen->api.n_logprobs >= 0))
        choice_event(x, t, at, "text", p->text, p->text_len, p->n_ids, NULL);
    else
        c->n_told += p->n_ids;
    if (ended && p->finish < FORGE_FINISH_CANCELLED)
        choice_event(x, t, at, chat ? NULL : "text", "", 0, 0, finish_reason(p->finish, c->n_calls));
}

void sse_progress(struct exchange *x, struct turn *t, size_t done, size_t total)
{
    event_begin(x);
    buf_puts(&x->out, "],\"prompt_progress\":{");
    put_int(&x->out, "index", (int64_t)t->index);
    put_int(&x->out, "processed", (int64_t)done);
    put_int(&x->out, "total", (int64_t)total);
    put_int(&x->out, "time_ms", (int64_t)((clock_now() - x->gen->t_submit) * 1e3));
    put_end(&x->out, "}}\n\n");
}

void sse_end(struct exchange *x)
{
    struct gen *g = x->gen;
    struct api_error e = {0};
    if (g->error.code) {
        api_fail_engine(&e, NULL, &g->error);
        buf_puts(&x->out, "data: ");
        error_json(&x->out, &e);
        buf_puts(&x->out, "\n\n");
        return;
    }
    if (g->api.include_usage) {
        event_begin(x);
        buf_puts(&x->out, "],");
        usage_json(&x->out, g);
        buf_putc(&x->out, ',');
        metrics_json(&x->out, g);
        buf_puts(&x->out, "}\n\n");
    }
    buf_puts(&x->out, "data: [DONE]\n\n");
}

void sse_alive(struct exchange *x)
{
    x->t_sent = clock_now();
    buf_puts(&x->out, ": waiting\n\n");
}
