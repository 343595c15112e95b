/* What single operations did in a benchmark, beside the limit that binds each: a
 * roofline, as a table and as JSON.
 * Owns the counting over instances and which arithmetic an operation is held
 * to; measures nothing. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cli/bench.h"
#include "cli/out.h"

void bench_ops_count(const struct bench *b, struct bench_op out[OP_COUNT])
{
    memset(out, 0, OP_COUNT * sizeof *out);
    for (int i = 0; i < b->t->l.n_backends; i++)
        for (int op = 0; op < OP_COUNT; op++) {
            const struct op_stats *s = op_stats(b->t->l.backends[i], (enum op_id)op);
            out[op].calls += s->calls;
            out[op].bytes += s->bytes;
            out[op].flops += s->flops;
            out[op].seconds += s->seconds;
            out[op].device = out[op].device ? out[op].device : s->device;
        }
}

void bench_ops_add(struct bench_op sum[OP_COUNT], const struct bench_op after[OP_COUNT],
                   const struct bench_op before[OP_COUNT])
{
    for (int op = 0; op < OP_COUNT; op++) {
        sum[op].calls += after[op].calls - before[op].calls;
        sum[op].bytes += after[op].bytes - before[op].bytes;
        sum[op].flops += after[op].flops - before[op].flops;
        sum[op].seconds += after[op].seconds - before[op].seconds;
        sum[op].device = after[op].device;
    }
}

/* ---- limits ---- */

/* A processor may have dot products that are no faster than f32: the faster way counts. */
static enum peak_kind peak_kind(const struct bench *b, const struct limits_found *l)
{
    return l->gflop_s[b->arithmetic] > l->gflop_s[PEAK_F32] ? b->arithmetic : PEAK_F32;
}

double bench_peak(const struct bench *b, const struct limits_found *l)
{
    return l->gflop_s[peak_kind(b, l)];
}

const char *bench_peak_name(const struct bench *b, const struct limits_found *l)
{
    const struct peak *p = peak_find(peak_kind(b, l));
    return p ? p->name : "f32";
}

double bench_share(double gb_s, double gflop_s, double read_gb_s, double peak_gflop_s, bool *reading)
{
    double read = read_gb_s > 0 ? gb_s / read_gb_s : 0, peak = peak_gflop_s > 0 ? gflop_s / peak_gflop_s : 0;
    *reading = read > peak;
    return read > peak ? read : peak;
}

/* Only products of matrices are computed in the arithmetic of --math fast. */
static bool is_product(enum op_id op)
{
    static const bool products[OP_COUNT] = {
        [OP_LINEAR] = true,     [OP_LINEAR_EXPERTS] = true, [OP_LINEAR_QKV] = true,
        [OP_LINEAR_ADD] = true, [OP_GATE_UP] = true,
    };
    return products[op];
}

struct roof {
    double gb_s, gflop_s, share;
    bool reading;
};

static struct roof roof_of(const struct bench *b, const struct bench_result *r, enum op_id op)
{
    const struct bench_op *o = &r->ops[op];
    double peak = is_product(op) ? bench_peak(b, &r->limits) : r->limits.gflop_s[PEAK_F32];
    struct roof f = {0};
    if (o->seconds > 0) {
        f.gb_s = 1e-9 * (double)o->bytes / o->seconds;
        f.gflop_s = 1e-9 * (double)o->flops / o->seconds;
        f.share = bench_share(f.gb_s, f.gflop_s, r->limits.read_gb_s, peak, &f.reading);
    }
    return f;
}

/* ---- printing ---- */

void bench_ops_print(const struct bench *b, const struct bench_result *r)
{
    double all = 0;
    if (msg_level() < 0)
        return;
    for (int op = 0; op < OP_COUNT; op++)
        all += r->ops[op].seconds;
    fprintf(stderr, "%s: operations, %d repetition%s; limits read %.2f GB/s, peak %.1f GFLOP/s (%s)%s\n", r->test.name,
            r->reps, r->reps == 1 ? "" : "s", r->limits.read_gb_s, bench_peak(b, &r->limits),
            bench_peak_name(b, &r->limits), b->own_memory ? ", of the host, not of the device" : "");
    fprintf(stderr, "%-16s %-12s %9s %11s %11s %11s %7s %9s %9s %14s\n", "operation", "device", "calls", "MB", "MFLOP", "ms",
            "share", "GB/s", "GFLOP/s", "of its limit");
    for (int op = 0; op < OP_COUNT; op++) {
        const struct bench_op *o = &r->ops[op];
        struct roof f = roof_of(b, r, (enum op_id)op);
        if (o->calls == 0)
            continue;
        fprintf(stderr, "%-16s %-12s %9" PRIu64 " %11.3f %11.3f %11.3f %5.1f %% %9.2f %9.2f", op_name((enum op_id)op),
                o->device, o->calls, 1e-6 * (double)o->bytes, 1e-6 * (double)o->flops, 1e3 * o->seconds,
                all > 0 ? 100 * o->seconds / all : 0, f.gb_s, f.gflop_s);
        if (b->own_memory || o->seconds <= 0)
            fprintf(stderr, " %14s\n", "n/a");
        else
            fprintf(stderr, " %5.1f %% (%s)\n", 100 * f.share, f.reading ? "read" : "peak");
    }
    fputc('\n', stderr);
}

static void put_num(struct buf *out, const char *key, double v)
{
    buf_printf(out, ",\"%s\":", key);
    buf_put_json_num(out, v);
}

void bench_ops_json(struct buf *out, const struct bench *b, const struct bench_result *r)
{
    bool first = true;
    buf_puts(out, ",\"operations\":[");
    for (int op = 0; op < OP_COUNT; op++) {
        const struct bench_op *o = &r->ops[op];
        struct roof f = roof_of(b, r, (enum op_id)op);
        if (o->calls == 0)
            continue;
        buf_printf(out, "%s\n {\"operation\":\"%s\",\"device\":", first ? "" : ",", op_name((enum op_id)op));
        buf_put_json(out, o->device, strlen(o->device));
        buf_printf(out, ",\"calls\":%" PRIu64 ",\"bytes\":%" PRIu64 ",\"flops\":%" PRIu64, o->calls, o->bytes, o->flops);
        put_num(out, "seconds", o->seconds);
        put_num(out, "gb_s", f.gb_s);
        put_num(out, "gflop_s", f.gflop_s);
        if (!b->own_memory)
            put_num(out, "share", f.share);
        buf_printf(out, ",\"bound\":\"%s\"}", f.reading ? "read" : "peak");
        first = false;
    }
    buf_putc(out, ']');
}
