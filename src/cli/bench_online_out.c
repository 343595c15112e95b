/* The figures of an online benchmark as text, JSON and Markdown.
 * Owns the words and columns; measures nothing.
 * Milliseconds, and rates over the whole of a level. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cli/bench_online.h"

static const struct {
    const char *key, *title;
    size_t off;
} all_times[] = {
    {"ttft_ms", "TTFT", offsetof(struct online_level, ttft)},
    {"tpot_ms", "TPOT", offsetof(struct online_level, tpot)},
    {"e2e_ms", "end to end", offsetof(struct online_level, e2e)},
};
enum { N_TIMES = sizeof all_times / sizeof *all_times };

static const struct online_times *times_at(const struct online_level *l, int i)
{
    return (const struct online_times *)(const void *)((const char *)l + all_times[i].off);
}

static void put_num(struct buf *out, const char *key, double v)
{
    buf_printf(out, "\"%s\":%.3f,", key, v);
}

static void json_level(struct buf *out, const struct online_level *l)
{
    buf_printf(out, "{\"concurrency\":%d,\"requests\":%zu,\"errors\":%zu,", l->clients, l->requests, l->errors);
    if (l->errors > 0) {
        buf_puts(out, "\"first_error\":");
        buf_put_json(out, l->first_error, strlen(l->first_error));
        buf_putc(out, ',');
    }
    put_num(out, "seconds", l->seconds);
    put_num(out, "req_s", l->req_s);
    put_num(out, "tok_s", l->tok_s);
    buf_printf(out, "\"prompt_tokens\":%" PRIu64 ",\"output_tokens\":%" PRIu64, l->prompt_tokens, l->output_tokens);
    for (int i = 0; i < N_TIMES; i++) {
        const struct online_times *t = times_at(l, i);
        buf_printf(out, ",\"%s\":{\"mean\":%.3f,\"p50\":%.3f,\"p95\":%.3f,\"p99\":%.3f}", all_times[i].key, t->mean, t->p50,
                   t->p95, t->p99);
    }
    buf_putc(out, '}');
}

static void json(struct buf *out, const struct online *o)
{
    buf_puts(out, "{\"server\":");
    buf_put_json(out, o->a->server, strlen(o->a->server));
    buf_puts(out, ",\"model\":");
    buf_put_json(out, o->model, strlen(o->model));
    buf_printf(out, ",\"prompts\":%zu,\"repetitions\":%" PRId64 ",\"max_tokens\":%" PRId64
                    ",\"warm_up\":{\"requests\":%d,\"e2e_ms\":%.3f},\"results\":[",
               o->n_prompts, o->a->reps, o->a->n, ONLINE_WARM_UPS, o->warm_up_ms);
    for (size_t i = 0; i < o->n_levels; i++) {
        if (i)
            buf_putc(out, ',');
        json_level(out, &o->levels[i]);
    }
    buf_puts(out, "]}\n");
}

static void table(struct buf *out, const struct online *o, bool md)
{
    const char *bar = md ? "|" : "", *gap = md ? " | " : "  ";
    buf_printf(out, "%s, %zu prompts x %" PRId64 ", at most %" PRId64 " new tokens; %d warm-ups before (%.0f ms each)%s\n", o->model,
               o->n_prompts, o->a->reps, o->a->n, ONLINE_WARM_UPS, o->warm_up_ms, md ? "\n" : "");
    buf_printf(out, "%s%7s%s%8s%s%6s%s%7s%s%8s%s%7s", bar, "clients", gap, "requests", gap, "errors", gap, "req/s", gap, "tok/s", gap,
               "out avg");
    for (int i = 0; i < N_TIMES; i++) {
        char title[48];
        snprintf(title, sizeof title, "%s p50/p95/p99 ms", all_times[i].title);
        buf_printf(out, "%s%31s", gap, title);
    }
    buf_printf(out, "%s\n", bar);
    if (md) {
        for (int i = 0; i < 6 + N_TIMES; i++)
            buf_puts(out, "|--:");
        buf_puts(out, "|\n");
    }
    for (size_t k = 0; k < o->n_levels; k++) {
        const struct online_level *l = &o->levels[k];
        size_t n_ok = l->requests - l->errors;
        buf_printf(out, "%s%7d%s%8zu%s%6zu%s%7.2f%s%8.1f%s%7.1f", bar, l->clients, gap, l->requests, gap, l->errors, gap, l->req_s, gap,
                   l->tok_s, gap, n_ok ? (double)l->output_tokens / (double)n_ok : 0);
        for (int i = 0; i < N_TIMES; i++) {
            const struct online_times *t = times_at(l, i);
            buf_printf(out, "%s%9.2f /%9.2f /%9.2f", gap, t->p50, t->p95, t->p99);
        }
        buf_printf(out, "%s\n", bar);
    }
    for (size_t k = 0; k < o->n_levels; k++)
        if (o->levels[k].errors > 0)
            buf_printf(out, "first error at %d clients: %s\n", o->levels[k].clients, o->levels[k].first_error);
}

void online_print(struct buf *out, const struct online *o)
{
    if (o->a->json)
        json(out, o);
    else
        table(out, o, o->a->md);
}
