/* What the server is and how it does: models, health, properties; the page and the
 * protocol's description, which lie in the program.
 * Tells of no path. */
#include <string.h>

#include "base/clock.h"
#include "serve/server.h"

static void reply_fixed(struct exchange *x, const char *type, const char *data, size_t len)
{
    x->reply.status = 200;
    x->reply.type = type;
    x->reply.fixed = data;
    x->reply.fixed_len = len;
}

void handle_page(struct exchange *x)
{
    reply_fixed(x, "text/html; charset=utf-8", serve_page, serve_page_len);
    x->reply.is_page = true;
}

void handle_openapi(struct exchange *x)
{
    reply_fixed(x, "application/json", serve_openapi, serve_openapi_len);
}

static void put_model(struct buf *out, const struct server *s)
{
    buf_putc(out, '{');
    put_str(out, "id", s->model_id);
    put_str(out, "object", "model");
    put_int(out, "created", (int64_t)s->t_created);
    put_str(out, "owned_by", "forge");
    put_int(out, "max_model_len", forge_engine_info(s->e)->n_ctx);
    put_end(out, "}");
}

void handle_models(struct exchange *x)
{
    struct buf *out = &x->reply.body;
    buf_puts(out, "{\"object\":\"list\",\"data\":[");
    put_model(out, x->s);
    buf_puts(out, "]}\n");
    reply_json(x, 200);
}

void handle_model(struct exchange *x)
{
    if (!x->rest) {
        struct api_error e;
        api_no_memory(&e);
        reply_error(x, &e);
        return;
    }
    if (strcmp(x->rest, x->s->model_id) != 0) {
        reply_fail(x, 404, "model", "There is no model of this name here.");
        return;
    }
    put_model(&x->reply.body, x->s);
    buf_putc(&x->reply.body, '\n');
    reply_json(x, 200);
}

static double ratio(uint64_t part, uint64_t all)
{
    return all ? (double)part / (double)all : 0;
}

void handle_health(struct exchange *x)
{
    struct server *s = x->s;
    struct buf *out = &x->reply.body;
    struct forge_engine_stats st;
    struct counts c;
    bool failed = atomic_load(&s->device_failed), draining = atomic_load(&s->draining);
    forge_engine_stats_copy(s->e, &st, sizeof st);
    mutex_lock(s->counts_lock);
    c = s->counts;
    mutex_unlock(s->counts_lock);
    buf_putc(out, '{');
    put_str(out, "status", failed ? "error" : draining ? "draining" : "ok");
    if (failed)
        put_str(out, "reason", "The device failed in the last request.");
    put_str(out, "model", s->model_id);
    put_str(out, "device", forge_engine_info(s->e)->device);
    put_int(out, "slots", st.max_seqs);
    put_int(out, "running", st.running);
    put_int(out, "queued", (int64_t)st.queued);
    put_int(out, "max_queue", s->p.max_queue);
    put_num(out, "hit_rate", ratio(c.cached_tokens, c.prompt_tokens));
    put_int(out, "cached_pages", (int64_t)st.pages_kept);
    put_num(out, "acceptance_rate", ratio(c.accepted, c.drafted));
    buf_printf(out, "\"uptime_s\":%.1f,", clock_now() - s->t_start);
    put_str(out, "version", forge_version());
    put_end(out, "}\n");
    reply_json(x, failed || draining ? 503 : 200);
    x->reply.retry_after = failed || draining ? 1 : 0;
}

void handle_props(struct exchange *x)
{
    const struct forge_engine_info *info = forge_engine_info(x->s->e);
    struct buf *out = &x->reply.body;
    buf_putc(out, '{');
    put_str(out, "model", x->s->model_id);
    put_str(out, "architecture", info->architecture);
    put_str(out, "format", info->format);
    put_str(out, "device", info->device);
    put_int(out, "n_params", (int64_t)info->n_params);
    put_int(out, "n_ctx", info->n_ctx);
    put_int(out, "n_ctx_max", info->n_ctx_max);
    put_int(out, "n_vocab", info->n_vocab);
    put_int(out, "total_slots", x->s->slots);
    put_int(out, "max_queue", x->s->p.max_queue);
    buf_puts(out, "\"default_generation_settings\":{");
    put_num(out, "temperature", info->default_temp >= 0 ? info->default_temp : 1);
    put_num(out, "top_p", info->default_top_p >= 0 ? info->default_top_p : 1);
    put_int(out, "top_k", info->default_top_k >= 0 ? info->default_top_k : 0);
    put_num(out, "min_p", info->default_min_p >= 0 ? info->default_min_p : 0);
    put_num(out, "repetition_penalty", info->default_repeat_penalty >= 0 ? info->default_repeat_penalty : 1);
    put_end(out, "},");
    put_str(out, "version", forge_version());
    put_end(out, "}\n");
    reply_json(x, 200);
}
