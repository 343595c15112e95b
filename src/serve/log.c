/* One line of JSON for each request: what was asked of which route, and what it took.
 * Neither prompts nor answers are in it unless the program wants them, and it is
 * the program that writes it. */
#include <string.h>

#include "base/clock.h"
#include "serve/server.h"

static void put_time(struct buf *out)
{
    char text[40];
    time_t now = time(NULL);
    struct tm tm;
    if (gmtime_r(&now, &tm) && strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &tm) > 0)
        put_str(out, "time", text);
}

static void put_texts(struct buf *out, const struct gen *g)
{
    buf_puts(out, "\"prompts\":[");
    for (size_t i = 0; i < g->api.n_prompts; i++) {
        const struct prompt *p = &g->api.prompts[i];
        if (p->text)
            buf_put_json(out, p->text, p->len);
        else
            buf_put_json_ids(out, p->ids, p->n_ids);
        buf_putc(out, ',');
    }
    put_end(out, "],\"texts\":[");
    for (size_t i = 0; i < g->api.n_prompts; i++)
        for (size_t k = 0; k < (size_t)g->api.n; k++) {
            size_t len;
            const char *text = forge_request_text(g->turns[i].r, (int)k, &len);
            buf_put_json(out, text, len);
            buf_putc(out, ',');
        }
    put_end(out, "],");
}

static void put_generated(struct buf *out, const struct exchange *x)
{
    const struct gen *g = x->gen;
    const struct forge_metrics *m = forge_request_metrics(g->turns[0].r);
    struct usage u = gen_usage(g);
    put_str(out, "id", g->id);
    put_bool(out, "stream", g->api.stream);
    put_int(out, "prompt_tokens", (int64_t)u.prompt);
    put_int(out, "cached_tokens", (int64_t)u.cached);
    put_int(out, "completion_tokens", (int64_t)u.completion);
    buf_printf(out, "\"queued_ms\":%.1f,\"ttft_ms\":%.1f,\"tpot_ms\":%.2f,", m->queued_s * 1e3, m->ttft_ms, m->tpot_ms);
    put_str(out, "finish", forge_finish_name(turn_finish(&g->turns[0])));
    if (g->error.code)
        put_str(out, "error", g->error.message);
    if (x->s->p.log_text)
        put_texts(out, g);
}

void log_exchange(struct exchange *x)
{
    struct server *s = x->s;
    struct buf b;
    if (!s->p.log)
        return;
    buf_init(&b);
    buf_putc(&b, '{');
    put_time(&b);
    put_str(&b, "method", x->method);
    put_str(&b, "route", x->route ? x->route->path : NULL);
    put_int(&b, "status", x->reply.status);
    buf_printf(&b, "\"ms\":%.1f,", (clock_now() - x->t_start) * 1e3);
    put_bool(&b, "left", x->gone);
    if (x->gen && x->done)
        put_generated(&b, x);
    put_end(&b, "}");
    if (!b.failed)
        s->p.log(s->p.user, buf_str(&b));
    buf_fini(&b);
}
