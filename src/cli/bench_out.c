/* A benchmark's figures as text, JSON, CSV and Markdown.
 * Owns the words and columns; measures nothing and computes nothing that is
 * not a percentage or a ratio. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli/bench.h"

/* To the same test of the earlier run; 0 where there is none. */
static double ratio(const struct bench *b, const struct bench_result *r)
{
    double then = b->earlier ? earlier_tok_s(b->earlier, r->test.name) : 0;
    return then > 0 ? r->tok_s / then : 0;
}

void bench_put_num(struct buf *out, const char *key, double v)
{
    buf_printf(out, ",\"%s\":", key);
    buf_put_json_num(out, v);
}

static void put_str(struct buf *out, const char *key, const char *v)
{
    buf_printf(out, ",\"%s\":", key);
    buf_put_json(out, v, strlen(v));
}

static void json_result(struct buf *out, const struct bench *b, const struct bench_result *r)
{
    buf_printf(out, "{\"test\":\"%s\",\"tok_s\":", r->test.name);
    buf_put_json_num(out, r->tok_s);
    buf_puts(out, ",\"all\":[");
    for (int k = 0; k < r->reps; k++) {
        if (k)
            buf_putc(out, ',');
        buf_put_json_num(out, r->all[k]);
    }
    buf_putc(out, ']');
    bench_put_num(out, "gb_s", r->gb_s);
    bench_put_num(out, "gflop_s", r->gflop_s);
    if (b->own_memory)
        buf_puts(out, ",\"share\":null");
    else
        bench_put_num(out, "share", r->share);
    bench_put_num(out, "min", r->min);
    bench_put_num(out, "max", r->max);
    bench_put_num(out, "fill_s", r->fill_s);
    bench_put_num(out, "read_gb_s", r->limits.read_gb_s);
    bench_put_num(out, "peak_gflop_s", bench_peak(&r->limits));
    if (ratio(b, r) > 0)
        bench_put_num(out, "ratio", ratio(b, r));
    if (b->t->profile && b->t->profile->given)
        bench_ops_json(out, b, r);
    buf_putc(out, '}');
}

static void json(struct buf *out, const struct bench *b)
{
    char where[512];
    buf_puts(out, "{\"model\":");
    buf_put_json(out, b->model, strlen(b->model));
    put_str(out, "device", tool_device(b->t, where, sizeof where));
    buf_printf(out, ",\"threads\":%d,\"limits\":{\"read_gb_s\":", b->n_threads);
    buf_put_json_num(out, b->limits.read_gb_s);
    bench_put_num(out, "peak_gflop_s", bench_peak(&b->limits));
    buf_putc(out, '}');
    bench_put_num(out, "start_ms", b->start_ms);
    buf_puts(out, ",\"results\":[");
    for (size_t i = 0; i < b->n_results; i++) {
        buf_puts(out, i ? ",\n" : "\n");
        json_result(out, b, &b->results[i]);
    }
    buf_puts(out, "\n]");
    bench_settings_json(out, b, BENCH_LATE, BENCH_LAST);
    bench_put_num(out, "load_ms", b->start_ms - b->compile_ms);
    bench_put_num(out, "compile_ms", b->compile_ms);
    buf_puts(out, ",\"sampling\":[");
    for (int i = 0; i < BENCH_SAMPLINGS; i++) {
        buf_printf(out, "%s{\"how\":\"%s\",\"ms\":", i ? "," : "", bench_sampling_name(i));
        buf_put_json_num(out, b->sampling_ms[i]);
        buf_putc(out, '}');
    }
    buf_putc(out, ']');
    bench_settings_json(out, b, BENCH_LAST, BENCH_SETTINGS);
    if (b->earlier)
        put_str(out, "compared", earlier_path(b->earlier));
    buf_puts(out, "}\n");
}

/* "0.98", or what stands for none. */
static const char *ratio_text(char out[24], const struct bench *b, const struct bench_result *r, const char *no)
{
    if (ratio(b, r) > 0)
        snprintf(out, 24, "%.3f", ratio(b, r));
    else
        snprintf(out, 24, "%s", no);
    return out;
}

static void csv(struct buf *out, const struct bench *b)
{
    char text[24];
    buf_printf(out, "test,tok_s,gb_s,gflop_s,share,min,max,read_gb_s,peak_gflop_s%s\n", b->earlier ? ",ratio" : "");
    for (size_t i = 0; i < b->n_results; i++) {
        const struct bench_result *r = &b->results[i];
        buf_printf(out, "%s,%.4f,%.4f,%.4f,", r->test.name, r->tok_s, r->gb_s, r->gflop_s);
        if (!b->own_memory)
            buf_printf(out, "%.4f", r->share);
        buf_printf(out, ",%.4f,%.4f,%.4f,%.4f", r->min, r->max, r->limits.read_gb_s, bench_peak(&r->limits));
        if (b->earlier)
            buf_printf(out, ",%s", ratio_text(text, b, r, ""));
        buf_putc(out, '\n');
    }
}

/* "78.1 % read", "n/a" where the limits measured are not the device's. */
static const char *share_text(char out[24], const struct bench *b, const struct bench_result *r)
{
    bool reading;
    bench_share(r->gb_s, r->gflop_s, r->limits.read_gb_s, bench_peak(&r->limits), &reading);
    if (b->own_memory)
        snprintf(out, 24, "n/a");
    else
        snprintf(out, 24, "%.1f %% (%s)", 100 * r->share, reading ? "read" : "peak");
    return out;
}

static void markdown(struct buf *out, const struct bench *b)
{
    char share[24], text[24];
    buf_printf(out, "| test | tokens/s | min to max | GB/s | GFLOP/s | of the limit |%s\n| --- | ---: | ---: | ---: | ---: | ---: |%s\n",
               b->earlier ? " ratio |" : "", b->earlier ? " ---: |" : "");
    for (size_t i = 0; i < b->n_results; i++) {
        const struct bench_result *r = &b->results[i];
        buf_printf(out, "| %s | %.2f | %.2f to %.2f | %.2f | %.2f | %s |", r->test.name, r->tok_s, r->min, r->max, r->gb_s,
                   r->gflop_s, share_text(share, b, r));
        if (b->earlier)
            buf_printf(out, " %s |", ratio_text(text, b, r, "-"));
        buf_putc(out, '\n');
    }
}

static void head(struct buf *out, const struct bench *b)
{
    char where[512];
    buf_printf(out, "model    %s\ndevice   %s, %d thread%s, math %s\n", b->model, tool_device(b->t, where, sizeof where),
               b->n_threads, b->n_threads == 1 ? "" : "s", b->fast ? "fast" : "exact");
    buf_printf(out, "loaded   %.1f ms, compiling kernels %.1f ms\n", b->start_ms - b->compile_ms, b->compile_ms);
    buf_printf(out, "limits   read %.2f GB/s, peak %.1f GFLOP/s (%s)%s\n", b->limits.read_gb_s, bench_peak(&b->limits),
               bench_peak_name(&b->limits), b->own_memory ? " of the host: the device has memory of its own" : "");
    buf_puts(out, "sampling ");
    for (int i = 0; i < BENCH_SAMPLINGS; i++) {
        buf_puts(out, i ? ", " : "");
        if (isfinite(b->sampling_ms[i]))
            buf_printf(out, "%.3f ms (%s)", b->sampling_ms[i], bench_sampling_name(i));
        else
            buf_printf(out, "n/a (%s)", bench_sampling_name(i));
    }
    buf_puts(out, " a token\n");
    if (b->earlier)
        buf_printf(out, "ratios   to %s\n", earlier_path(b->earlier));
    buf_putc(out, '\n');
}

static void text(struct buf *out, const struct bench *b)
{
    char share[24], compared[24];
    head(out, b);
    buf_printf(out, "%-16s %10s %10s %10s %9s %10s %15s%s\n", "test", "tokens/s", "min", "max", "GB/s", "GFLOP/s",
               "of the limit", b->earlier ? "     ratio" : "");
    for (size_t i = 0; i < b->n_results; i++) {
        const struct bench_result *r = &b->results[i];
        buf_printf(out, "%-16s %10.2f %10.2f %10.2f %9.2f %10.2f %15s", r->test.name, r->tok_s, r->min, r->max, r->gb_s,
                   r->gflop_s, share_text(share, b, r));
        if (b->earlier)
            buf_printf(out, " %9s", ratio_text(compared, b, r, "-"));
        buf_putc(out, '\n');
    }
}

void bench_print(struct buf *out, const struct bench *b, enum bench_format format)
{
    static void (*const print[])(struct buf *, const struct bench *) = {text, json, csv, markdown};
    print[format](out, b);
}
