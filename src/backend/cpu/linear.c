/* The `cpu` matrix products: one list of parts (a matrix and the rows that
 * meet it) for a plain product, q/k/v together, gate with up, and experts.
 * Splits output columns over the threads; the sums are in kern_tmpl.h, so no
 * split can change one. */
#include <assert.h>
#include <stdlib.h>

#include "backend/cpu/cpu.h"
#include "backend/cpu/host.h"
#include "base/mem.h"

enum { FEW_ROWS = 8 }; /* rows of x up to which reading the weights takes the time */

struct linear_job {
    const struct kern_linear *parts;
    int n_parts;
    enum op_act act;
};

static struct kern_linear part(const struct cpu *cpu, const struct tensor *out, const struct tensor *x, const struct tensor *w,
                               const struct tensor *bias)
{
    return (struct kern_linear){
        .w = host_ptr(w),
        .row_size = host_row_size(w),
        .dtype = w->dtype,
        .k = x->cols,
        .n_rows = x->rows,
        .x = host_f32(x),
        .out = host_f32(out),
        .out_cols = out->cols,
        .bias = bias != NULL ? host_ptr(bias) : NULL,
        .far = cpu->far,
    };
}

/* Grows *p to n elements; false after a latched failure. */
#define GROW(cpu, p, cap, n) grow(&(cpu)->be, (void **)&(p), &(cap), (n), sizeof *(p))
static bool grow(struct backend *be, void **p, size_t *cap, size_t n, size_t size)
{
    void *grown = mem_grow(*p, cap, n, size);

    if (grown == NULL)
        backend_fail(be, ERR_NOMEM, "no memory for %zu values of its own", n);
    else
        *p = grown;
    return grown != NULL;
}

struct round_job {
    const struct tensor *x;
    struct kern_xblock *out;
    enum kern_fast kind;
};

static void round_rows(struct cpu *cpu, const void *arg, int64_t lo, int64_t hi, struct kern_scratch *s)
{
    const struct round_job *j = arg;
    int64_t k = j->x->cols;

    (void)s;
    cpu->k->quantize(j->out + lo * (k / 32), host_f32(j->x) + lo * k, (hi - lo) * k, j->kind);
}

/* Room for n values of x as bf16, at the start of a line; false after a latched failure. */
static bool grow_xb(struct cpu *cpu, size_t n)
{
    if (n <= cpu->n_xb)
        return true;
    free(cpu->xb);
    cpu->xb = mem_aligned(64, n * sizeof *cpu->xb);
    cpu->n_xb = cpu->xb != NULL ? n : 0;
    if (cpu->xb == NULL)
        backend_fail(&cpu->be, ERR_NOMEM, "no memory for %zu values of its own", n);
    return cpu->xb != NULL;
}

static void narrow_rows(struct cpu *cpu, const void *arg, int64_t lo, int64_t hi, struct kern_scratch *s)
{
    const struct tensor *x = arg;

    (void)s;
    for (int64_t r = lo; r < hi; r++)
        cpu->k->narrow_bf16(cpu->xb + r * kern_bf16_cols(x->cols), host_f32(x) + r * x->cols, x->cols);
}

/* The rows of x as bf16 for parts with such weights. */
static void narrow_x(struct cpu *cpu, const struct tensor *x, struct kern_linear *parts, int n_parts)
{
    bool wanted = false;

    for (int i = 0; i < n_parts; i++)
        wanted = wanted || parts[i].dtype == DTYPE_BF16;
    if (!wanted || cpu->k->linear_bf16 == NULL || !grow_xb(cpu, (size_t)(x->rows * kern_bf16_cols(x->cols))))
        return;
    cpu_for(cpu, x->rows, cpu_grain(x->cols), narrow_rows, x);
    for (int i = 0; i < n_parts; i++)
        if (parts[i].dtype == DTYPE_BF16)
            parts[i].xb = cpu->xb;
}

/* `fast`: the rows of x as int8 (or bf16), once for all parts of a kind.  Where memory is refused (latched) they stay exact. */
static void round_x(struct cpu *cpu, const struct tensor *x, struct kern_linear *parts, int n_parts)
{
    size_t n = (size_t)x->rows * (size_t)(x->cols / 32);
    bool wanted[FAST_KINDS] = {false};

    if (cpu->math != MATH_FAST)
        return;
    narrow_x(cpu, x, parts, n_parts);
    for (int i = 0; i < n_parts; i++)
        wanted[kern_fast_kind(parts[i].dtype)] = true;
    for (int kind = FAST_32; kind < FAST_KINDS; kind++) {
        if (!wanted[kind] || !GROW(cpu, cpu->xq[kind], cpu->n_xq[kind], n))
            continue;
        struct round_job j = {.x = x, .out = cpu->xq[kind], .kind = (enum kern_fast)kind};
        cpu_for(cpu, x->rows, cpu_grain(4 * x->cols), round_rows, &j);
        for (int i = 0; i < n_parts; i++)
            if ((int)kern_fast_kind(parts[i].dtype) == kind)
                parts[i].xq = cpu->xq[kind];
    }
}

/* Outputs lo .. hi of all rows of a part. */
static void run_part(const struct cpu *cpu, const struct kern_linear *p, int64_t lo, int64_t hi, struct kern_scratch *s)
{
    if (p->xb != NULL)
        cpu->k->linear_bf16(p, lo, hi, s);
    else
        (p->xq != NULL ? cpu->k->linear_fast : cpu->k->linear)(p, lo, hi, s);
}

/* A part's columns, rounded up so that panels do not straddle two parts. */
static int64_t padded(int64_t cols)
{
    return (cols + KERN_PANEL - 1) / KERN_PANEL * KERN_PANEL;
}

/* Columns lo .. hi of all parts in a row. */
static void linear_range(struct cpu *cpu, const void *arg, int64_t lo, int64_t hi, struct kern_scratch *s)
{
    const struct linear_job *job = arg;

    for (int i = 0; i < job->n_parts && hi > 0; i++) {
        const struct kern_linear *p = &job->parts[i];
        int64_t n = padded(p->out_cols), from = lo > 0 ? lo : 0, to = hi < p->out_cols ? hi : p->out_cols;
        if (from < to)
            run_part(cpu, p, from, to, s);
        lo -= n;
        hi -= n;
    }
}

/* Columns that a thread takes at least: whole panels, not so few that waking it costs more; where many rows meet a
 * panel, not so few either that these are read again and again. */
static int64_t linear_grain(const struct cpu *cpu, int64_t cols, int64_t k, int64_t rows)
{
    int64_t least = cpu_grain(k * rows), grain = rows > FEW_ROWS ? cols / (8 * cpu->n_threads) : 0;
    return padded(grain > least ? grain : least);
}

/* What run_parts of one row will share out. */
void cpu_next(struct backend *be, const struct tensor *w, int n)
{
    struct cpu *cpu = (struct cpu *)be;
    int64_t cols = 0;

    for (int i = 0; i < n; i++)
        cols += padded(w[i].rows);
    for (int t = 0; t < cpu->n_threads; t++) {
        int64_t at = cpu_share_start(cpu, cols, linear_grain(cpu, cols, w[0].cols, 1), t);
        int i = 0;
        for (; i < n - 1 && at >= padded(w[i].rows); i++)
            at -= padded(w[i].rows);
        cpu_ask_ahead(cpu, t, host_ptr(&w[i]) + (size_t)at * host_row_size(&w[i]));
    }
}

/* x as the parts take it; what follows is the product. */
static void begin(struct cpu *cpu, const struct tensor *x, struct kern_linear *parts, int n_parts)
{
    round_x(cpu, x, parts, n_parts);
    for (int t = 0; t < cpu->n_threads; t++)
        cpu_ask_ahead(cpu, t, NULL);
}

static void run_parts(struct cpu *cpu, const struct kern_linear *parts, int n_parts)
{
    struct linear_job job = {.parts = parts, .n_parts = n_parts};
    int64_t cols = 0, most = 1;

    for (int i = 0; i < n_parts; i++) {
        cols += padded(parts[i].out_cols);
        most = parts[i].n_rows > most ? parts[i].n_rows : most;
    }
    cpu_for(cpu, cols, linear_grain(cpu, cols, parts[0].k, most), linear_range, &job);
}

void cpu_linear(struct backend *be, const struct tensor *out, const struct tensor *x, const struct tensor *w,
                const struct tensor *bias)
{
    struct kern_linear p = part((struct cpu *)be, out, x, w, bias);

    begin((struct cpu *)be, x, &p, 1);
    run_parts((struct cpu *)be, &p, 1);
}

bool cpu_linear_qkv(struct backend *be, const struct tensor out[3], const struct tensor *x,
                    const struct tensor w[3], const struct tensor *const bias[3])
{
    struct kern_linear p[3];

    for (int i = 0; i < 3; i++)
        p[i] = part((struct cpu *)be, &out[i], x, &w[i], bias[i]);
    begin((struct cpu *)be, x, p, 3);
    run_parts((struct cpu *)be, p, 3);
    return true;
}

/* ---- gate and up ---- */
/* Of many rows, what was just computed is combined before the next columns. */
static void gate_up_range(struct cpu *cpu, const void *arg, int64_t lo, int64_t hi, struct kern_scratch *s)
{
    const struct linear_job *job = arg;
    const struct kern_linear *gate = &job->parts[0], *up = &job->parts[1];

    run_part(cpu, gate, lo, hi, s);
    run_part(cpu, up, lo, hi, s);
    for (int64_t r = 0; r < gate->n_rows; r++) {
        float *out = gate->out + r * gate->out_cols + lo;
        cpu->k->act_mul(out, out, up->out + r * up->out_cols + lo, hi - lo, job->act);
    }
}

/* Few rows take one matrix after the other: each thread reads on where it is, and nothing it asked for ahead is lost
 * by a turn to the other. */
bool cpu_gate_up(struct backend *be, const struct tensor *out, const struct tensor *tmp,
                 const struct tensor *x, const struct tensor *wg, const struct tensor *wu, enum op_act act)
{
    struct cpu *cpu = (struct cpu *)be;
    struct kern_linear p[2] = {part(cpu, out, x, wg, NULL), part(cpu, tmp, x, wu, NULL)};
    struct linear_job job = {.parts = p, .n_parts = 2, .act = act};

    begin(cpu, x, p, 2);
    if (x->rows <= FEW_ROWS) {
        run_parts(cpu, p, 2);
        cpu_act_mul(be, out, out, tmp, act);
    } else {
        cpu_for(cpu, out->cols, linear_grain(cpu, out->cols, 2 * x->cols, x->rows), gate_up_range, &job);
    }
    return true;
}

/* ---- experts ---- */
/* Fills parts with one entry for each expert in use; x_row = pair / per_row. Returns how many. */
static int sort_by_expert(struct cpu *cpu, const struct tensor *experts, int n_experts,
                          const struct tensor *ids, const struct kern_linear *like, int64_t per_row)
{
    int64_t n_pairs = ids->rows * ids->cols;
    int32_t *start = cpu->order, *pairs = start + n_experts + 1, *x_rows = pairs + n_pairs;
    int n = 0;

    memset(start, 0, ((size_t)n_experts + 1) * sizeof *start);
    for (int64_t i = 0; i < n_pairs; i++) {
        assert(host_i32(ids)[i] >= 0 && host_i32(ids)[i] < n_experts);
        start[host_i32(ids)[i] + 1]++;
    }
    for (int e = 0; e < n_experts; e++)
        start[e + 1] += start[e];
    for (int64_t i = 0; i < n_pairs; i++) {
        int32_t at = start[host_i32(ids)[i]]++; /* afterwards start[e] is e's end */
        pairs[at] = (int32_t)i;
        x_rows[at] = (int32_t)(i / per_row);
    }
    for (int e = 0; e < n_experts; e++) {
        int32_t from = e > 0 ? start[e - 1] : 0;
        if (from == start[e])
            continue;
        cpu->parts[n] = *like;
        cpu->parts[n].w = host_ptr(&experts[e]);
        cpu->parts[n].n_rows = start[e] - from;
        cpu->parts[n].x_rows = x_rows + from;
        cpu->parts[n++].out_rows = pairs + from;
    }
    return n;
}

struct mix_job {
    const struct tensor *out, *w;
    const float *pairs_out;
};

static void mix_rows(struct cpu *cpu, const void *arg, int64_t lo, int64_t hi, struct kern_scratch *s)
{
    const struct mix_job *j = arg;
    int64_t n = j->out->cols, used = j->w->cols;

    (void)s;
    for (int64_t r = lo; r < hi; r++)
        cpu->k->mix(host_f32(j->out) + r * n, host_f32(j->w) + r * used, j->pairs_out + r * used * n,
                    (int)used, n);
}

void cpu_linear_experts(struct backend *be, const struct tensor *out, const struct tensor *x,
                        const struct tensor *experts, int n_experts, const struct tensor *ids,
                        const struct tensor *w)
{
    struct cpu *cpu = (struct cpu *)be;
    size_t n_pairs = (size_t)(ids->rows * ids->cols), n_out = 0;
    struct kern_linear like = part(cpu, out, x, &experts[0], NULL);

    if (n_pairs > INT32_MAX || (w != NULL && !mem_mul(n_pairs, (size_t)out->cols, &n_out))) {
        backend_fail(be, ERR_LIMIT, "%zu pairs of row and expert are too many", n_pairs);
        return;
    }
    if (!GROW(cpu, cpu->order, cpu->n_order, (size_t)n_experts + 1 + 2 * n_pairs) ||
        !GROW(cpu, cpu->parts, cpu->n_parts, (size_t)n_experts) ||
        !GROW(cpu, cpu->pairs_out, cpu->n_pairs_out, n_out + 1))
        return;
    if (w != NULL)
        like.out = cpu->pairs_out;
    begin(cpu, x, &like, 1);
    int n = sort_by_expert(cpu, experts, n_experts, ids, &like, w == NULL ? ids->cols : 1);
    run_parts(cpu, cpu->parts, n);
    if (w != NULL) {
        struct mix_job j = {.out = out, .w = w, .pairs_out = cpu->pairs_out};
        cpu_for(cpu, out->rows, cpu_grain(out->cols * w->cols), mix_rows, &j);
    }
}
