/* What single operations did in a benchmark, beside the limit that binds each: a
 * roofline, as a table and as JSON.
 * Owns the counting over instances and which arithmetic an operation is held
 * to; measures nothing. */
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "backend/cpu/kernels.h"
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

/* ---- arithmetic ---- */

/* Only products of matrices are computed in the arithmetic of --math fast. */
static bool is_product(enum op_id op)
{
    static const bool products[OP_COUNT] = {
        [OP_LINEAR] = true,     [OP_LINEAR_EXPERTS] = true, [OP_LINEAR_QKV] = true,
        [OP_LINEAR_ADD] = true, [OP_GATE_UP] = true,
    };
    return products[op];
}

/* The device of an operation names what ran there in rounded values.  For half there is no loop: bf16 has as many
 * values in a register. */
static const struct mark {
    const char *in_device;
    enum peak_kind kind;
} marks[] = {{"(int8 dot)", PEAK_INT8}, {"(half)", PEAK_BF16}};

static bool begins_list(const char *device, const char *name)
{
    size_t n = strlen(name);
    for (const char *at = strstr(device, name); at; at = strstr(at + n, name))
        if ((at == device || at[-1] == ' ') && (at[n] == '\0' || at[n] == ','))
            return true;
    return false;
}

/* Where an operation ran in several ways, all of them are held to the fastest. */
static unsigned kinds_of(const struct bench *b, enum op_id op, const char *device)
{
    unsigned kinds = 1u << PEAK_F32;
    if (!device || !is_product(op))
        return kinds;
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++)
        if (strstr(device, marks[i].in_device))
            kinds |= 1u << marks[i].kind;
    return begins_list(device, "cpu") ? kinds | b->cpu_kinds : kinds;
}

unsigned bench_kinds(const struct bench *b)
{
    unsigned kinds = 1u << PEAK_F32;
    for (int i = 0; i < b->t->l.n_backends; i++)
        for (int op = 0; op < OP_COUNT; op++)
            kinds |= kinds_of(b, (enum op_id)op, op_stats(b->t->l.backends[i], (enum op_id)op)->device);
    return kinds;
}

unsigned bench_cpu_kinds(const struct weights *w, const char *isa)
{
    const struct cpu_kernels *k = kernels_find(isa);
    unsigned kinds = 0;
    for (size_t i = 0; i < weights_count(w); i++) {
        const struct weight *x = weights_at(w, i);
        if (kern_fast_kind(x->dtype) != FAST_NONE)
            kinds |= 1u << PEAK_INT8;
        if (x->dtype == DTYPE_BF16 && x->n_dims > 1 && k && k->linear_bf16)
            kinds |= 1u << PEAK_BF16;
    }
    return kinds;
}

/* ---- limits ---- */

/* A processor may have dot products that are no faster than f32: the faster way counts. */
static enum peak_kind peak_kind(const struct limits_found *l, unsigned kinds)
{
    enum peak_kind best = PEAK_F32;
    for (int k = 0; k < PEAK_KINDS; k++)
        best = kinds & 1u << k && l->gflop_s[k] > l->gflop_s[best] ? (enum peak_kind)k : best;
    return best;
}

double bench_peak(const struct limits_found *l)
{
    return l->gflop_s[peak_kind(l, UINT_MAX)];
}

const char *bench_arithmetic(const struct bench *b)
{
    static const char *const names[PEAK_KINDS] = {[PEAK_F32] = "f32", [PEAK_BF16] = "bf16", [PEAK_INT8] = "int8"};
    int k = PEAK_KINDS - 1;
    while (k > PEAK_F32 && !(b->kinds & 1u << k))
        k--;
    return names[k];
}

const char *bench_peak_name(const struct limits_found *l)
{
    const struct peak *p = peak_find(peak_kind(l, UINT_MAX));
    return p ? p->name : "f32";
}

double bench_share(double gb_s, double gflop_s, double read_gb_s, double peak_gflop_s, bool *reading)
{
    double read = read_gb_s > 0 ? gb_s / read_gb_s : 0, peak = peak_gflop_s > 0 ? gflop_s / peak_gflop_s : 0;
    *reading = read > peak;
    return read > peak ? read : peak;
}

struct roof {
    double gb_s, gflop_s, share;
    bool reading;
};

static struct roof roof_of(const struct bench *b, const struct bench_result *r, enum op_id op)
{
    const struct bench_op *o = &r->ops[op];
    double peak = r->limits.gflop_s[peak_kind(&r->limits, kinds_of(b, op, o->device))];
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
            r->reps, r->reps == 1 ? "" : "s", r->limits.read_gb_s, bench_peak(&r->limits),
            bench_peak_name(&r->limits), b->own_memory ? ", of the host, not of the device" : "");
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
        bench_put_num(out, "seconds", o->seconds);
        bench_put_num(out, "gb_s", f.gb_s);
        bench_put_num(out, "gflop_s", f.gflop_s);
        if (!b->own_memory)
            bench_put_num(out, "share", f.share);
        buf_printf(out, ",\"bound\":\"%s\"}", f.reading ? "read" : "peak");
        first = false;
    }
    buf_putc(out, ']');
}
