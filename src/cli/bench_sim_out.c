/* The figures of a simulation as text, JSON and Markdown: a row for each policy.
 * Owns the words and columns; computes nothing but shares in percent.
 * Milliseconds of virtual time. */
#include <inttypes.h>
#include <string.h>

#include "cli/bench_sim.h"

static const struct {
    const char *key, *title;
    size_t off;
} all_times[] = {
    {"ttft_ms", "TTFT", offsetof(struct sim_result, ttft)},
    {"tpot_ms", "TPOT", offsetof(struct sim_result, tpot)},
    {"e2e_ms", "end to end", offsetof(struct sim_result, e2e)},
    {"stall_ms", "stall", offsetof(struct sim_result, stall)},
};
enum { N_TIMES = sizeof all_times / sizeof *all_times };

static const struct online_times *times_at(const struct sim_result *r, int i)
{
    return (const struct online_times *)(const void *)((const char *)r + all_times[i].off);
}

static void json_policy(struct buf *out, const struct sim_result *r)
{
    const struct sim_policy *p = r->policy;
    buf_puts(out, "{\"policy\":");
    buf_put_json(out, p->name, strlen(p->name));
    buf_printf(out,
               ",\"slots\":%" PRId64 ",\"chunk\":%" PRId64 ",\"page_size\":%" PRId64 ",\"ctx\":%" PRId64 ",\"kv_positions\":%" PRId64
               ",\"ahead\":%" PRId64 ",\"prefix_cache\":%s,\"requests\":%zu,\"ended\":%zu,\"seconds\":%.3f,\"tok_s\":%.3f",
               p->slots, p->chunk, p->page, p->ctx, p->kv_positions, p->ahead, p->prefix_cache ? "true" : "false", r->requests,
               r->ended, r->seconds, r->tok_s);
    for (int i = 0; i < N_TIMES; i++) {
        const struct online_times *t = times_at(r, i);
        buf_printf(out, ",\"%s\":{\"mean\":%.3f,\"p50\":%.3f,\"p95\":%.3f,\"p99\":%.3f}", all_times[i].key, t->mean, t->p50, t->p95,
                   t->p99);
    }
    buf_printf(out,
               ",\"slots_used\":%.4f,\"pages_used\":%.4f,\"steps\":%" PRIu64 ",\"rows\":%" PRIu64 ",\"prompt_tokens\":%" PRIu64
               ",\"output_tokens\":%" PRIu64 ",\"cached_tokens\":%" PRIu64 ",\"preempted\":%" PRIu64 ",\"mean_len\":%.1f}",
               r->slots_used, r->pages_used, r->steps, r->rows, r->prompt_tokens, r->output_tokens, r->cached_tokens, r->preempted,
               r->mean_len);
}

static void json(struct buf *out, const struct sim_file *f, const struct sim_result *r, size_t n)
{
    buf_puts(out, "{\"device\":");
    buf_put_json(out, f->device, strlen(f->device));
    buf_puts(out, ",\"results\":[");
    for (size_t i = 0; i < n; i++) {
        if (i)
            buf_putc(out, ',');
        json_policy(out, &r[i]);
    }
    buf_puts(out, "]}\n");
}

static void put_times(struct buf *out, const char *gap, const struct online_times *t)
{
    buf_printf(out, "%s%7.0f /%8.0f /%8.0f", gap, t->p50, t->p95, t->p99);
}

static void table(struct buf *out, const struct sim_file *f, const struct sim_result *r, size_t n, bool md)
{
    const char *bar = md ? "| " : "", *gap = md ? " | " : "  ", *end = md ? " |\n" : "\n";
    buf_printf(out, "%s: %zu requests, %.0f positions in the mean; ms of virtual time, p50 / p95 / p99%s\n", f->device, f->n_requests,
               r[0].mean_len, md ? "\n" : "");
    buf_printf(out, "%s%-28s%s%7s", bar, "policy", gap, "tok/s");
    for (int i = 0; i < N_TIMES; i++)
        buf_printf(out, "%s%26s", gap, all_times[i].title);
    buf_printf(out, "%s%7s%s%7s%s%9s%s%9s%s", gap, "slots %", gap, "pages %", gap, "cached", gap, "preempted", end);
    if (md) {
        buf_puts(out, "|---|");
        for (int i = 0; i < N_TIMES + 5; i++)
            buf_puts(out, "--:|");
        buf_putc(out, '\n');
    }
    for (size_t i = 0; i < n; i++) {
        buf_printf(out, "%s%-28s%s%7.1f", bar, r[i].policy->name, gap, r[i].tok_s);
        for (int k = 0; k < N_TIMES; k++)
            put_times(out, gap, times_at(&r[i], k));
        buf_printf(out, "%s%7.1f%s%7.1f%s%9" PRIu64 "%s%9" PRIu64 "%s", gap, 100 * r[i].slots_used, gap, 100 * r[i].pages_used, gap,
                   r[i].cached_tokens, gap, r[i].preempted, end);
    }
}

void sim_print(struct buf *out, const struct sim_file *f, const struct sim_result *r, size_t n, enum sim_format format)
{
    if (format == SIM_JSON)
        json(out, f, r, n);
    else
        table(out, f, r, n, format == SIM_MD);
}
