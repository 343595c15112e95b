/* The whole response at once, when all that was asked for has ended.
 * Reads the engine's requests on the server's thread: nobody else touches them any
 * more. */
#include <string.h>

#include "base/rng.h"
#include "serve/server.h"

struct forge_chat_parser *answer_parser(const struct api *a)
{
    struct forge_chat_parser *p;
    unsigned flags = (a->tools ? (unsigned)FORGE_ANSWER_TOOLS : 0u) | (a->only_call ? (unsigned)FORGE_ANSWER_ONLY_CALLS : 0u);
    forge_chat_parser_new(&p, a->prompts[0].text, a->prompts[0].len, flags, NULL);
    return p;
}

void calls_json(struct buf *out, const struct forge_answer_parts *p, size_t first)
{
    buf_puts(out, "\"tool_calls\":[");
    for (size_t i = 0; i < p->n_calls; i++) {
        const struct forge_tool_call *c = &p->calls[i];
        buf_printf(out, "{\"index\":%zu,\"id\":\"call_%016llx\",\"type\":\"function\",\"function\":{\"name\":", first + i,
                   (unsigned long long)rng_fresh_seed());
        buf_put_json(out, c->name, c->name_len);
        buf_puts(out, ",\"arguments\":");
        buf_put_json(out, c->arguments, c->arguments_len);
        buf_puts(out, i + 1 < p->n_calls ? "}}," : "}}");
    }
    buf_putc(out, ']');
}

/* How many tools it calls. */
static size_t put_message(struct buf *out, const struct api *a, const char *text, size_t len)
{
    struct forge_chat_parser *parser = answer_parser(a);
    const struct forge_answer_parts *p;
    size_t n_calls = 0;
    if (!parser || forge_chat_parse(parser, text, len, 1, &p, NULL) < 0) {
        out->failed = true;
        goto done;
    }
    n_calls = p->n_calls;
    buf_puts(out, "\"message\":{\"role\":\"assistant\",\"content\":");
    if (n_calls > 0 && p->content_len == 0)
        buf_puts(out, "null");
    else
        buf_put_json(out, p->content, p->content_len);
    if (p->thought_len > 0) {
        buf_puts(out, ",\"reasoning_content\":");
        buf_put_json(out, p->thought, p->thought_len);
    }
    if (n_calls > 0) {
        buf_putc(out, ',');
        calls_json(out, p, 0);
    }
    buf_puts(out, ",\"refusal\":null},");
done:
    forge_chat_parser_free(parser);
    return n_calls;
}

static void put_choice(struct buf *out, const struct exchange *x, const struct turn *t, size_t at)
{
    const struct gen *g = x->gen;
    const struct choice *c = &t->choices[at];
    const struct prompt *p = &g->api.prompts[t->index];
    size_t len, n_ids, n_calls = 0, offset = 0;
    const char *text = forge_request_text(t->r, (int)at, &len);
    forge_request_ids(t->r, (int)at, &n_ids);
    buf_putc(out, '{');
    put_int(out, "index", (int64_t)c->index);
    if (g->api.chat) {
        n_calls = put_message(out, &g->api, text, len);
    } else {
        struct buf whole;
        buf_init(&whole);
        if (g->api.echo)
            buf_put(&whole, p->text, p->len);
        buf_put(&whole, text, len);
        buf_puts(out, "\"text\":");
        buf_put_json(out, buf_str(&whole), whole.len);
        buf_putc(out, ',');
        out->failed |= whole.failed;
        buf_fini(&whole);
    }
    if (g->api.n_logprobs >= 0) {
        logprobs_json(out, x, t, at, 0, n_ids, &offset);
        buf_putc(out, ',');
    } else
        buf_puts(out, "\"logprobs\":null,");
    put_str(out, "finish_reason", finish_reason(c->finish, n_calls));
    put_end(out, "}");
}

/* Not by its own end, but by the server's: nothing is left to say it with but the status. */
static bool was_cancelled(const struct gen *g)
{
    for (size_t i = 0; i < g->api.n_prompts; i++)
        for (size_t k = 0; k < (size_t)g->api.n; k++)
            if (g->turns[i].choices[k].finish == FORGE_FINISH_CANCELLED)
                return true;
    return false;
}

void answer(struct exchange *x)
{
    struct gen *g = x->gen;
    struct buf *out = &x->reply.body;
    struct api_error e = {0};
    if (g->error.code) {
        api_fail_engine(&e, NULL, &g->error);
        reply_error(x, &e);
        return;
    }
    if (was_cancelled(g)) {
        reply_fail(x, 503, NULL, "The server ended before this request did.");
        return;
    }
    buf_putc(out, '{');
    put_str(out, "id", g->id);
    put_str(out, "object", g->api.chat ? "chat.completion" : "text_completion");
    put_int(out, "created", (int64_t)g->created);
    put_str(out, "model", x->s->model_id);
    buf_puts(out, "\"choices\":[");
    for (size_t i = 0; i < g->api.n_prompts; i++)
        for (size_t k = 0; k < (size_t)g->api.n; k++) {
            put_choice(out, x, &g->turns[i], k);
            buf_putc(out, ',');
        }
    put_end(out, "],");
    usage_json(out, g);
    buf_putc(out, ',');
    metrics_json(out, g);
    buf_puts(out, "}\n");
    reply_json(x, 200);
}
