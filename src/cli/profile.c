/* The tables and the trace of --profile.
 * Owns their form and nothing of what is measured; asks for rows as often as it
 * needs them. */
#include "cli/profile.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "cli/out.h"

/* ---- tables ---- */
/* "12.34", or "n/a" where nothing was timed. */
static const char *rate(char out[24], double amount, double seconds)
{
    if (seconds > 0)
        snprintf(out, 24, "%.2f", 1e-9 * amount / seconds);
    else
        snprintf(out, 24, "n/a");
    return out;
}

static void put_operations(const struct profile_source *s)
{
    struct forge_placement p;
    double all = 0;
    char gb[24], gflop[24];

    for (size_t i = 0; s->operation(s->of, i, &p); i++)
        all += p.seconds;
    fprintf(stderr, "%-16s %-12s %9s %10s %11s %9s %7s %9s %9s\n", "operation", "device", "calls", "rows", "ms",
            "ms/call", "share", "GB/s", "GFLOP/s");
    for (size_t i = 0; s->operation(s->of, i, &p); i++)
        if (p.calls > 0)
            fprintf(stderr, "%-16s %-12s %9" PRIu64 " %10" PRIu64 " %11.3f %9.3f %5.1f %% %9s %9s\n", p.operation,
                    p.device, p.calls, p.rows, 1e3 * p.seconds, 1e3 * p.seconds / (double)p.calls,
                    all > 0 ? 100 * p.seconds / all : 0, rate(gb, (double)p.bytes, p.seconds),
                    rate(gflop, (double)p.flops, p.seconds));
}

static void put_kernels(const struct profile_source *s)
{
    struct forge_kernel k;
    double all = 0;
    uint64_t untimed = 0;
    char gb[24], gflop[24];
    size_t n = 0;

    for (; s->kernel(s->of, n, &k); n++)
        all += k.seconds;
    if (n == 0)
        return;
    fprintf(stderr, "\n%-16s %-12s %9s %11s %9s %7s %9s %9s  %s\n", "operation", "device", "calls", "ms", "us/call",
            "share", "GB/s", "GFLOP/s", "kernel");
    for (size_t i = 0; s->kernel(s->of, i, &k); i++) {
        fprintf(stderr, "%-16s %-12s %9" PRIu64 " %11.3f %9.1f %5.1f %% %9s %9s  %s\n", k.operation, k.device, k.calls,
                1e3 * k.seconds, k.calls > k.untimed ? 1e6 * k.seconds / (double)(k.calls - k.untimed) : 0,
                all > 0 ? 100 * k.seconds / all : 0, rate(gb, k.bytes, k.seconds), rate(gflop, k.flops, k.seconds),
                k.name);
        untimed += k.untimed;
    }
    if (untimed > 0)
        fprintf(stderr, "%" PRIu64 " calls are not timed: the device told no times for them\n", untimed);
}

/* ---- the trace: JSON as chrome://tracing reads it, and the tables' figures beside ---- */
static void put_str(struct buf *b, const char *key, const char *value)
{
    buf_printf(b, "\"%s\":", key);
    buf_put_json(b, value, strlen(value));
    buf_putc(b, ',');
}

static void flush(FILE *f, struct buf *b)
{
    fwrite(buf_str(b), 1, b->len, f);
    buf_clear(b);
}

/* One row of the trace's lists: what they have in common. */
static void put_row(struct buf *b, bool first, const char *name, const char *operation, const char *device)
{
    buf_puts(b, first ? "\n{" : ",\n{");
    if (name)
        put_str(b, "name", name);
    put_str(b, "operation", operation);
    put_str(b, "device", device);
}

static void put_figures(struct buf *b, uint64_t calls, double bytes, double flops, double seconds)
{
    buf_printf(b, "\"calls\":%" PRIu64 ",\"bytes\":%.0f,\"flops\":%.0f,\"seconds\":", calls, bytes, flops);
    buf_put_json_num(b, seconds);
}

enum { MAX_TRACKS = 32 };

/* The number of a device among those met so far; a track of the trace each. */
static int track_of(const char *device, const char **tracks, int *n)
{
    int t = 0;
    while (t < *n && strcmp(tracks[t], device) != 0)
        t++;
    if (t == *n && t < MAX_TRACKS)
        tracks[(*n)++] = device;
    return t;
}

static void put_events(FILE *f, struct buf *b, const struct profile_source *s)
{
    const char *tracks[MAX_TRACKS];
    struct forge_event e;
    double origin = 0;
    int n_tracks = 0;

    for (size_t i = 0; s->event(s->of, i, &e); i++)
        origin = i == 0 || e.start_s < origin ? e.start_s : origin;
    buf_puts(b, "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[");
    for (size_t i = 0; s->event(s->of, i, &e); i++) {
        buf_puts(b, i > 0 ? ",\n{" : "\n{");
        put_str(b, "name", e.name);
        put_str(b, "cat", e.operation);
        buf_printf(b, "\"ph\":\"X\",\"pid\":1,\"tid\":%d,\"ts\":%" PRIu64 ".%03d,\"dur\":%" PRIu64 ".%03d", 
                   track_of(e.device, tracks, &n_tracks) + 1, (uint64_t)(1e6 * (e.start_s - origin)),
                   (int)((uint64_t)(1e9 * (e.start_s - origin)) % 1000), (uint64_t)(1e6 * e.seconds),
                   (int)((uint64_t)(1e9 * e.seconds) % 1000));
        buf_printf(b, ",\"args\":{\"bytes\":%.0f,\"flops\":%.0f}}", e.bytes, e.flops);
        if (b->len > 1 << 16)
            flush(f, b);
    }
    for (int t = 0; t < n_tracks; t++) {
        buf_printf(b, ",\n{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":1,\"tid\":%d,\"args\":{\"name\":", t + 1);
        buf_put_json(b, tracks[t], strlen(tracks[t]));
        buf_puts(b, "}}");
    }
    buf_puts(b, "\n]");
}

static void put_trace(FILE *f, const struct profile_source *s)
{
    struct forge_placement p;
    struct forge_kernel k;
    struct buf b;
    bool first = true;

    buf_init(&b);
    put_events(f, &b, s);
    buf_puts(&b, ",\n\"operations\":[");
    for (size_t i = 0; s->operation(s->of, i, &p); i++) {
        if (p.calls == 0)
            continue;
        put_row(&b, first, NULL, p.operation, p.device);
        put_figures(&b, p.calls, (double)p.bytes, (double)p.flops, p.seconds);
        buf_printf(&b, ",\"rows\":%" PRIu64 "}", p.rows);
        first = false;
    }
    buf_puts(&b, "\n],\n\"kernels\":[");
    for (size_t i = 0; s->kernel(s->of, i, &k); i++) {
        put_row(&b, i == 0, k.name, k.operation, k.device);
        put_figures(&b, k.calls, k.bytes, k.flops, k.seconds);
        buf_printf(&b, ",\"untimed\":%" PRIu64 "}", k.untimed);
    }
    buf_puts(&b, "\n]}\n");
    flush(f, &b);
    buf_fini(&b);
}

int profile_print(const char *path, const struct profile_source *s)
{
    struct out_file file = {0};
    struct err err = {0};
    bool failed = false;

    if (msg_level() >= 0) {
        put_operations(s);
        put_kernels(s);
    }
    if (path && out_file_open(&file, path, &err) < 0) {
        msg_error("%s", err.msg);
        failed = true;
    }
    if (file.f)
        put_trace(file.f, s);
    if (out_file_close(&file, true, &err) < 0) {
        msg_error("%s", err.msg);
        failed = true;
    }
    return failed ? EXIT_FAILED : EXIT_OK;
}

/* ---- of an engine ---- */
static int engine_operation(const void *of, size_t i, struct forge_placement *out)
{
    const struct forge_placement *p = forge_engine_placement(of, i);
    if (p)
        *out = *p;
    return p != NULL;
}

static int engine_kernel(const void *of, size_t i, struct forge_kernel *out)
{
    return forge_engine_kernel(of, i, out);
}

static int engine_event(const void *of, size_t i, struct forge_event *out)
{
    return forge_engine_event(of, i, out);
}

int profile_engine(const char *path, const struct forge_engine *e, int status)
{
    const struct profile_source s = {engine_operation, engine_kernel, engine_event, e};
    int end = profile_print(path, &s);
    return status ? status : end;
}
