/* Runs the list of cases on two instances and compares: data, tensors on both
 * at once, the error of a case, what happens when one cannot be run.
 * Must not know which backends it compares, nor what the cases are. */
#include "backend/selftest.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/selftest_parts.h"
#include "base/mem.h"
#include "base/rng.h"

/* ---- making data ---- */
void selftest_random(float *x, size_t n, double range, uint64_t seed)
{
    for (size_t i = 0; i < n; i++)
        x[i] = (float)((2 * rng_unit(seed, 0, i) - 1) * range);
}

/* Where the halves of a K-quant block stand; every other byte may be anything. */
static const struct {
    enum dtype dtype;
    int halves[2];
} k_scales[] = {
    {DTYPE_Q2_K, {80, 82}}, {DTYPE_Q3_K, {108, 108}}, {DTYPE_Q4_K, {0, 2}},
    {DTYPE_Q5_K, {0, 2}},   {DTYPE_Q6_K, {208, 208}},
};

bool selftest_blocks(enum dtype dtype, void *blocks, size_t n, uint64_t seed)
{
    const struct dtype_info *d = dtype_info(dtype);
    uint8_t *bytes = blocks;
    size_t n_blocks = n / d->block_elems;

    if (d->from_f32 != NULL) {
        float *x = mem_array(n, sizeof *x);
        if (x == NULL)
            return false;
        selftest_random(x, n, 1, seed);
        d->from_f32(blocks, x, n);
        free(x);
        return true;
    }
    for (size_t i = 0; i < n_blocks * d->block_size; i++)
        bytes[i] = (uint8_t)rng_u64(seed, 1, i);
    for (size_t k = 0; k < sizeof k_scales / sizeof *k_scales; k++)
        for (size_t b = 0; k_scales[k].dtype == dtype && b < n_blocks; b++)
            for (int h = 0; h < 2; h++) {
                uint16_t v = f32_to_f16((float)(0.002 + 0.01 * rng_unit(seed, 2, 2 * b + (size_t)h)));
                memcpy(bytes + b * d->block_size + k_scales[k].halves[h], &v, sizeof v);
            }
    return true;
}

/* ---- what a case may take ---- */
enum { STUCK = 1, STOPPED }; /* why a group ended early */

static _Noreturn void stuck(struct selftest *r)
{
    if (r->err.code == 0)
        err_set(&r->err, ERR_NOMEM, "no memory for the data of a case");
    longjmp(r->stuck, STUCK);
}

void *case_keep(struct selftest *r, void *p)
{
    if (p == NULL || r->n_owned == (int)(sizeof r->owned / sizeof *r->owned)) {
        free(p);
        stuck(r);
    }
    return r->owned[r->n_owned++] = p;
}

float *case_values(struct selftest *r, int64_t n, double range)
{
    float *x = case_keep(r, mem_array((size_t)n, sizeof *x));
    selftest_random(x, (size_t)n, range, ++r->seed);
    return x;
}

int case_below(struct selftest *r, int n)
{
    return (int)(rng_u64(++r->seed, 3, 0) % (uint64_t)n);
}

static void own(struct selftest *r, struct buffer *buf)
{
    if (r->n_bufs == (int)(sizeof r->bufs / sizeof *r->bufs)) {
        op_free(buf);
        stuck(r);
    }
    r->bufs[r->n_bufs++] = buf;
}

struct case_pair case_make(struct selftest *r, enum dtype dtype, int64_t rows, int64_t cols, const void *data)
{
    struct case_pair p;
    for (int i = 0; i < 2; i++) {
        if (op_alloc(r->be[i], &p.t[i], dtype, rows, cols, &r->err) != 0)
            stuck(r);
        own(r, p.t[i].buf);
        if (data != NULL)
            op_write(r->be[i], &p.t[i], data);
    }
    return p;
}

struct case_pair case_f32(struct selftest *r, int64_t rows, int64_t cols, double range)
{
    return case_make(r, DTYPE_F32, rows, cols, case_values(r, rows * cols, range));
}

struct case_pair case_empty(struct selftest *r, enum dtype dtype, int64_t rows, int64_t cols)
{
    return case_make(r, dtype, rows, cols, NULL);
}

struct case_pair case_ids(struct selftest *r, int64_t rows, int64_t cols, const int32_t *v)
{
    return case_make(r, DTYPE_I32, rows, cols, v);
}

/* A weight as it lies in a mapped file, at an odd address. */
struct case_pair case_weight(struct selftest *r, enum dtype dtype, int64_t rows, int64_t cols)
{
    struct case_pair p;
    size_t row;
    if (!dtype_row_size(dtype, cols, &row))
        stuck(r);
    uint8_t *file = case_keep(r, mem_array(row * (size_t)rows + 1, 1));
    void *blocks = case_keep(r, mem_array(row * (size_t)rows, 1));
    if (!selftest_blocks(dtype, blocks, (size_t)(rows * cols), ++r->seed))
        stuck(r);
    memcpy(file + 1, blocks, row * (size_t)rows);
    struct host_matrix m = {.name = "w",
                            .dtype = dtype,
                            .rows = rows,
                            .cols = cols,
                            .data = file + 1,
                            .file = file,
                            .file_size = row * (size_t)rows + 1};
    for (int i = 0; i < 2; i++) {
        if (op_import(r->be[i], &p.t[i], &m, &r->err) != 0)
            stuck(r);
        own(r, p.t[i].buf);
    }
    return p;
}

/* ---- running and comparing ---- */
void case_begin(struct selftest *r, enum op_id op, enum dtype dtype, const char *fmt, ...)
{
    va_list args;
    if (r->args.stop != NULL && r->args.stop(r->args.user))
        longjmp(r->stuck, STOPPED);
    va_start(args, fmt);
    vsnprintf(r->variant, sizeof r->variant, fmt, args);
    va_end(args);
    r->op = op;
    r->dtype = dtype;
    r->diff = r->norm = 0;
    r->same = true;
    BOTH(i)
    op_begin(r->be[i]);
}

/* Adds an output of both instances to the comparison. */
void case_compare(struct selftest *r, const struct case_pair *out)
{
    size_t size = tensor_size(&out->t[0]), n = size / dtype_info(out->t[0].dtype)->block_size;
    uint8_t *raw[2];

    BOTH(i)
    {
        raw[i] = case_keep(r, mem_array(size + 1, 1));
        if (op_read(r->be[i], raw[i], &out->t[i], &r->err) != 0)
            stuck(r);
    }
    r->same = r->same && memcmp(raw[0], raw[1], size) == 0;
    if (out->t[0].dtype != DTYPE_F32) {
        r->diff = memcmp(raw[0], raw[1], size) == 0 ? r->diff : INFINITY;
        return;
    }
    for (size_t k = 0; k < n; k++) {
        float v[2];
        BOTH(i)
        memcpy(&v[i], raw[i] + 4 * k, sizeof v[i]);
        double d = (double)v[0] - (double)v[1];
        r->diff += d * d;
        r->norm += (double)v[0] * (double)v[0];
    }
}

static void release(struct selftest *r)
{
    while (r->n_bufs > 0)
        op_free(r->bufs[--r->n_bufs]);
    while (r->n_owned > 0)
        free(r->owned[--r->n_owned]);
}

/* What was compared since case_begin(), as one case. */
void case_report(struct selftest *r)
{
    struct selftest_case c = {.op = r->op, .dtype = r->dtype, .variant = r->variant};

    c.bound = r->args.exact ? 0 : selftest_bound(r->op, r->dtype, r->args.fast);
    c.error = r->norm > 0 ? r->diff / r->norm : r->diff;
    c.ok = c.bound > 0 ? c.error <= c.bound : r->same; /* NaN is never ok */
    r->args.report(r->args.user, &c);
    r->n_cases++;
}

void case_end(struct selftest *r)
{
    BOTH(i)
    if (op_sync(r->be[i], &r->err) != 0)
        stuck(r);
    case_report(r);
    release(r);
}

void case_finish(struct selftest *r, const struct case_pair *out)
{
    case_compare(r, out);
    case_end(r);
}

/* ---- the list ---- */
/* The data may go only when nothing reads it any more. */
static void drain(struct selftest *r)
{
    BOTH(i)
    {
        struct err ignored = {0};
        op_begin(r->be[i]);
        if (op_sync(r->be[i], &ignored) != 0)
            op_begin(r->be[i]);
    }
    release(r);
    err_clear(&r->err);
}

static void could_not(struct selftest *r)
{
    struct selftest_case c = {.op = r->op,
                              .dtype = r->dtype,
                              .variant = r->variant,
                              .error = INFINITY,
                              .why = r->err.msg,
                              .code = r->err.code};

    c.bound = r->args.exact ? 0 : selftest_bound(r->op, r->dtype, r->args.fast);
    r->args.report(r->args.user, &c);
    r->n_cases++;
    drain(r);
}

/* After a case that could not be run the rest of its group is left out: it would tell nothing new. */
static void run_group(struct selftest *r, const struct selftest_group *g, enum dtype dtype)
{
    switch (setjmp(r->stuck)) {
    case 0:
        g->run(r, dtype);
        break;
    case STOPPED:
        drain(r);
        break;
    default:
        could_not(r);
    }
}

int selftest_run(struct backend *oracle, struct backend *be, const struct selftest_args *args)
{
    struct selftest *r = mem_array(1, sizeof *r);
    const struct selftest_case none = {
        .variant = "everything", .error = INFINITY, .why = "no memory for the list"};
    int n;

    if (r == NULL) {
        args->report(args->user, &none);
        return 1;
    }
    *r = (struct selftest){.be = {oracle, be}, .args = *args, .seed = 1000};
    for (int t = 0; t < DTYPE_COUNT; t++)
        if (dtype_runnable((enum dtype)t) && (args->types >> t & 1) != 0)
            for (size_t g = 0; g < selftest_n_groups; g++)
                if (selftest_groups[g].by_type)
                    run_group(r, &selftest_groups[g], (enum dtype)t);
    for (size_t g = 0; g < selftest_n_groups; g++)
        if (args->others && !selftest_groups[g].by_type)
            run_group(r, &selftest_groups[g], DTYPE_F32);
    if (args->heads.n_heads > 0)
        run_group(r, &selftest_heads, args->heads.pages);
    n = r->n_cases;
    free(r);
    return n;
}
