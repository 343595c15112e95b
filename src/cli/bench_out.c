/* A benchmark's figures as text, JSON, CSV and Markdown.
 * Owns the words and columns; measures nothing and computes nothing that is
 * not a percentage. */
#include <inttypes.h>
#include <string.h>

#include "cli/bench.h"

static void device(const struct bench *b, char *out, size_t size)
{
    tool_device(b->t, out, size);
}

static void put_num(struct buf *out, const char *key, double v)
{
    buf_printf(out, ",\"%s\":", key);
    buf_put_json_num(out, v);
}

static void json(struct buf *out, const struct bench *b)
{
    char where[512];
    device(b, where, sizeof where);
    buf_puts(out, "{\"model\":");
    buf_put_json(out, b->model, strlen(b->model));
    buf_puts(out, ",\"device\":");
    buf_put_json(out, where, strlen(where));
    buf_printf(out, ",\"threads\":%d,\"limits\":{\"read_gb_s\":", b->n_threads);
    buf_put_json_num(out, b->read_gb_s);
    put_num(out, "peak_gflop_s", b->peak_gflop_s);
    buf_putc(out, '}');
    put_num(out, "start_ms", b->start_ms);
    buf_puts(out, ",\"results\":[");
    for (size_t i = 0; i < b->n_results; i++) {
        const struct bench_result *r = &b->results[i];
        buf_printf(out, "%s\n{\"test\":\"%s\",\"tok_s\":", i ? "," : "", r->test.name);
        buf_put_json_num(out, r->tok_s);
        buf_puts(out, ",\"all\":[");
        for (int k = 0; k < r->reps; k++) {
            if (k)
                buf_putc(out, ',');
            buf_put_json_num(out, r->all[k]);
        }
        buf_putc(out, ']');
        put_num(out, "gb_s", r->gb_s);
        put_num(out, "gflop_s", r->gflop_s);
        put_num(out, "share", r->share);
        buf_putc(out, '}');
    }
    buf_puts(out, "\n]}\n");
}

static void csv(struct buf *out, const struct bench *b)
{
    buf_puts(out, "test,tok_s,gb_s,gflop_s,share\n");
    for (size_t i = 0; i < b->n_results; i++) {
        const struct bench_result *r = &b->results[i];
        buf_printf(out, "%s,%.4f,%.4f,%.4f,%.4f\n", r->test.name, r->tok_s, r->gb_s, r->gflop_s, r->share);
    }
}

static void markdown(struct buf *out, const struct bench *b)
{
    buf_puts(out,
             "| test | tokens/s | GB/s | GFLOP/s | of the limit |\n| --- | ---: | ---: | ---: | ---: |\n");
    for (size_t i = 0; i < b->n_results; i++) {
        const struct bench_result *r = &b->results[i];
        buf_printf(out, "| %s | %.2f | %.2f | %.2f | %.1f %% |\n", r->test.name, r->tok_s, r->gb_s,
                   r->gflop_s, 100 * r->share);
    }
}

static void text(struct buf *out, const struct bench *b)
{
    char where[512];
    device(b, where, sizeof where);
    buf_printf(out, "model    %s\ndevice   %s, %d threads\nloaded   %.1f ms\n", b->model, where, b->n_threads,
               b->start_ms);
    buf_printf(out, "limits   read %.2f GB/s, peak %.1f GFLOP/s (f32)\n\n", b->read_gb_s, b->peak_gflop_s);
    buf_printf(out, "%-16s %12s %9s %10s %13s\n", "test", "tokens/s", "GB/s", "GFLOP/s", "of the limit");
    for (size_t i = 0; i < b->n_results; i++) {
        const struct bench_result *r = &b->results[i];
        bool reading = r->gb_s * b->peak_gflop_s > r->gflop_s * b->read_gb_s;
        buf_printf(out, "%-16s %12.2f %9.2f %10.2f %5.1f %% %s\n", r->test.name, r->tok_s, r->gb_s,
                   r->gflop_s, 100 * r->share, reading ? "(read)" : "(peak)");
    }
}

void bench_print(struct buf *out, const struct bench *b, enum bench_format format)
{
    static void (*const print[])(struct buf *, const struct bench *) = {text, json, csv, markdown};
    print[format](out, b);
}
