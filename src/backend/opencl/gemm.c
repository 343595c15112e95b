/* Matrix products of many rows by CLBlast, where that is wanted: runs them,
 * checks each class of products against our own kernels at its first use, and
 * falls back to those, said once, where the result is wrong or the library
 * refuses.
 *
 * CLBlast multiplies f32.  Other weights are written out as f32 some rows at a
 * time; a bias is added behind.  Sums have CLBlast's order, so this is outside
 * of every promise of equal bits. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/opencl/gemm.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/map.h"
#include "base/mem.h"

#define TILE_SIZE ((size_t)32 << 20)
#define SEEN_SIZE ((size_t)16 << 20) /* bytes of a result that are compared at most */
/* sum (a - b)^2 / sum a^2, and the largest |a - b| / max |a|: far above rounding, below one wrong value */
#define BOUND_MEAN 1e-8
#define BOUND_MAX 1e-2
#define PARAMS_MOST ((size_t)1 << 20)

/* ---- opening ---- */
static int read_params(struct clb *c, const char *path, struct err *err)
{
    char *text;
    size_t len;
    int rc = map_read_all(path, PARAMS_MOST, &text, &len, err);

    if (rc != 0)
        return rc;
    rc = gemm_file_parse(c, path, text, len, err);
    free(text);
    return rc;
}

/* Our kernels alone: by the flags, by the device, or because this build has nothing else. */
static bool own_only(const struct clb *c)
{
    enum backend_gemm want = c->params.gemm;

    if (want == GEMM_KERNELS_CLBLAST && c->params.deterministic)
        log_msg(LOG_WARN, "%s: CLBlast is not used: its sums have no fixed order, which deterministic asks for",
                c->base.device);
    return want == GEMM_KERNELS_OWN || c->params.deterministic ||
           (want == GEMM_KERNELS_AUTO && (c->dev.type == CL_DEVICE_TYPE_CPU || !blast_there()));
}

int cl_gemm_open(struct clb *c, struct err *err)
{
    struct cl_gemm *g;

    cl_gemm_close(c);
    if (c->params.gemm == GEMM_KERNELS_CLBLAST && !blast_there())
        return err_set(err, ERR_UNSUPPORTED, "%s: this build has no CLBlast; matrices can be multiplied by own "
                                             "kernels (gemm own or auto)", c->base.device);
    if (c->params.gemm == GEMM_KERNELS_CLBLAST && c->params.deterministic && c->params.require_device)
        return err_set(err, ERR_UNSUPPORTED, "%s: CLBlast's sums have no fixed order, which deterministic asks for; "
                                             "require_device is set, so own kernels do not stand in", c->base.device);
    if (own_only(c)) {
        if (c->params.clblast_params != NULL)
            log_msg(LOG_WARN, "%s: %s is not read: own kernels multiply there (gemm clblast uses the library)",
                    c->base.device, c->params.clblast_params);
        return 0;
    }
    g = mem_array(1, sizeof *g);
    if (g == NULL)
        return err_set(err, ERR_NOMEM, "%s: no memory for CLBlast's record", c->base.device);
    c->gemm = g;
    g->want = c->params.gemm;
    g->sgemm = blast_sgemm;
    buf_init(&g->kernels);
    blast_open(&g->blast, c);
    snprintf(g->device, sizeof g->device, "%.40s+clblast", c->base.device);
    int rc = c->params.clblast_params != NULL ? read_params(c, c->params.clblast_params, err) : 0;
    if (rc != 0)
        return rc;
    gemm_speed_open(c);
    g->may_measure = g->want == GEMM_KERNELS_AUTO && g->path != NULL;
    return 0;
}

void cl_gemm_close(struct clb *c)
{
    struct cl_gemm *g = c->gemm;

    if (g == NULL)
        return;
    blast_close(&g->blast);
    if (g->tile != NULL) {
        clReleaseMemObject(g->tile);
        c->used -= g->tile_size;
    }
    buf_fini(&g->kernels);
    free(g->path);
    free(g->classes);
    free(g);
    c->gemm = NULL;
}

/* ---- classes ---- */
struct gemm_class *gemm_class_of(struct cl_gemm *g, enum dtype dtype, int64_t n, int64_t k, int64_t rows)
{
    int64_t low = GEMM_ROWS;

    while (low < GEMM_ROWS_MOST && 2 * low <= rows)
        low *= 2;
    for (size_t i = 0; i < g->n_classes; i++) {
        struct gemm_class *o = &g->classes[i];
        if (o->dtype == dtype && o->n == n && o->k == k && o->rows == low)
            return o;
    }
    struct gemm_class *grown = mem_grow(g->classes, &g->cap_classes, g->n_classes + 1, sizeof *grown);
    if (grown == NULL)
        return NULL;
    g->classes = grown;
    g->classes[g->n_classes] = (struct gemm_class){.dtype = dtype, .n = n, .k = k, .rows = low};
    return &g->classes[g->n_classes++];
}

/* ---- one product ---- */
static bool grow_tile(struct clb *c, size_t size)
{
    struct cl_gemm *g = c->gemm;

    if (size <= g->tile_size)
        return true;
    if (g->tile != NULL) {
        clReleaseMemObject(g->tile);
        c->used -= g->tile_size;
    }
    g->tile = cl_mem_new(c, size, "a tile of weights", NULL);
    g->tile_size = g->tile != NULL ? size : 0;
    return g->tile != NULL;
}

/* Can CLBlast read these rows as they lie?  Its int must hold their last value's index. */
static bool as_stored(const struct tensor *w, const struct cl_rows *part)
{
    return w->dtype == DTYPE_F32 && part->off % sizeof(float) == 0 &&
           part->off / sizeof(float) + (cl_ulong)part->n_rows * (cl_ulong)w->cols < INT32_MAX;
}

/* Rows of a weight, however it lies on the device, as f32. */
static void widen(struct clb *c, cl_mem to, const struct cl_rows *part, const struct tensor *w)
{
    struct cl_launch l = cl_begin(c, cl_kern_weight(c, CLK_DEQUANT, w), "linear");

    cl_arg_mem(&l, to, 0);
    cl_arg_mem(&l, part->mem, part->off);
    cl_arg_int(&l, w->cols);
    cl_arg_int(&l, part->n_rows);
    cl_run_items(&l, 2, (size_t[]){cl_ceil_div(w->cols, 16), (size_t)part->n_rows});
}

static void add_bias(struct clb *c, const struct tensor *out, const struct tensor *bias)
{
    struct cl_launch l = cl_begin(c, cl_kernel_get(c, "gemm.cl", "", "add_bias"), "linear");

    cl_arg_tensor(&l, out);
    cl_arg_tensor(&l, bias);
    cl_arg_int(&l, out->cols);
    cl_arg_int(&l, out->rows);
    cl_run_items(&l, 2, (size_t[]){(size_t)out->cols, (size_t)out->rows});
}

int gemm_run(struct clb *c, const struct tensor *out, const struct tensor *x, const struct tensor *w,
             const struct tensor *bias)
{
    struct cl_gemm *g = c->gemm;
    size_t row_size = (size_t)w->cols * sizeof(float), room = cl_alloc_room(c, TILE_SIZE);
    int64_t most = row_size < room ? (int64_t)(room / row_size) : 1;
    struct blast_product p = {.m = x->rows, .k = x->cols, .alpha = 1};
    struct cl_rows part;
    int code = CL_SUCCESS;

    p.a = (struct blast_matrix){.ld = x->cols};
    p.a.mem = cl_tensor_mem(x, &p.a.off);
    for (int64_t row = 0; code == CL_SUCCESS && cl_rows_at(w, row, &part); row += part.n_rows) {
        p.b = (struct blast_matrix){part.mem, part.off, w->cols, true};
        if (!as_stored(w, &part)) {
            part.n_rows = part.n_rows < most ? part.n_rows : most;
            if (!grow_tile(c, (size_t)(most < w->rows ? most : w->rows) * row_size))
                return CL_MEM_OBJECT_ALLOCATION_FAILURE;
            widen(c, g->tile, &part, w);
            p.b = (struct blast_matrix){g->tile, 0, w->cols, true};
        }
        p.n = part.n_rows;
        p.c = (struct blast_matrix){.ld = out->cols};
        p.c.mem = cl_tensor_mem(out, &p.c.off);
        p.c.off += (cl_ulong)row * sizeof(float);
        code = c->base.latched.code == 0 ? g->sgemm(&g->blast, &p) : CL_SUCCESS;
    }
    if (code == CL_SUCCESS && bias != NULL)
        add_bias(c, out, bias);
    return code;
}

/* ---- the check ---- */
/* Rows of out that are compared: all, or as many as SEEN_SIZE holds, evenly spread with the first and the last. */
struct sample {
    float *own, *blast;
    int64_t n_rows;
};

static int64_t sampled_row(const struct tensor *out, int64_t i, int64_t n_rows)
{
    return n_rows > 1 ? (out->rows - 1) * i / (n_rows - 1) : 0;
}

static bool read_sample(struct clb *c, const struct tensor *out, int64_t n_rows, float *to)
{
    struct err err = {0};

    for (int64_t i = 0; i < n_rows && c->base.latched.code == 0; i++) {
        struct tensor row = tensor_rows(out, sampled_row(out, i, n_rows), 1);
        int rc = cl_read(&c->base, to + i * out->cols, &row, &err);
        if (rc != 0)
            backend_fail(&c->base, rc, "%s", err.msg);
    }
    return c->base.latched.code == 0;
}

/* -1: our own result is not finite; else whether they agree within the bounds. */
static int judge(const float *own, const float *blast, size_t n, double *error)
{
    double sum = 0, diff = 0, max = 0, max_diff = 0;

    for (size_t i = 0; i < n; i++) {
        double a = (double)own[i], d = a - (double)blast[i];
        if (!isfinite(a))
            return -1;
        sum += a * a;
        diff += d * d;
        max = fmax(max, fabs(a));
        max_diff = isfinite(d) ? fmax(max_diff, fabs(d)) : INFINITY;
    }
    *error = isfinite(diff) ? (sum > 0 ? diff / sum : diff > 0 ? INFINITY : 0) : INFINITY;
    return *error <= BOUND_MEAN && max_diff <= BOUND_MAX * max;
}

/* Nothing may be taken for a result that was there before. */
static int poison(struct clb *c, const struct tensor *out)
{
    const float nan = NAN;
    cl_ulong off;
    cl_mem mem = cl_tensor_mem(out, &off);

    return clEnqueueFillBuffer(c->queue, mem, &nan, sizeof nan, off, tensor_size(out), 0, NULL, NULL);
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

enum { REPS_MOST = 32 };

/* The median of reps runs in seconds, each waited for; *code its failure. */
static double time_runs(struct clb *c, bool own, const struct tensor *out, const struct tensor *x,
                        const struct tensor *w, const struct tensor *bias, int reps, int *code)
{
    double s[REPS_MOST];

    reps = reps < REPS_MOST ? reps : REPS_MOST;
    for (int i = 0; i < reps && *code == CL_SUCCESS && c->base.latched.code == 0; i++) {
        double start = clock_now();
        if (own)
            cl_linear_own(c, out, x, w, &(struct cl_end){.bias = bias});
        else
            *code = gemm_run(c, out, x, w, bias);
        int done = clFinish(c->queue);
        *code = *code != CL_SUCCESS ? *code : done;
        s[i] = clock_now() - start;
    }
    if (*code != CL_SUCCESS || c->base.latched.code != 0)
        return 0;
    qsort(s, (size_t)reps, sizeof *s, by_size);
    return s[reps / 2];
}

static int refused(int code, char *why, size_t why_size)
{
    snprintf(why, why_size, "%s (%d)", cl_error_name(code), code);
    return 1;
}

/* gemm_compare once memory for the samples is there. */
static int compare(struct clb *c, struct gemm_class *k, const struct tensor *out, const struct tensor *x,
                   const struct tensor *w, const struct tensor *bias, int reps, struct sample *s, double *error,
                   char *why, size_t why_size)
{
    int code = CL_SUCCESS, own_code = CL_SUCCESS;
    double start, first;

    cl_linear_own(c, out, x, w, &(struct cl_end){.bias = bias});
    if (!read_sample(c, out, s->n_rows, s->own))
        return -1;
    if (reps > 0)
        k->own_s = time_runs(c, true, out, x, w, bias, reps, &own_code);
    if (own_code == CL_SUCCESS)
        own_code = poison(c, out);
    if (own_code != CL_SUCCESS) {
        cl_fail(c, own_code, "the check of CLBlast");
        return -1;
    }
    start = clock_now();
    code = gemm_run(c, out, x, w, bias);
    if (code == CL_SUCCESS)
        code = clFinish(c->queue);
    if (code != CL_SUCCESS)
        return refused(code, why, why_size);
    first = clock_now() - start;
    if (!read_sample(c, out, s->n_rows, s->blast))
        return -1;
    if (reps > 0) {
        k->blast_s = time_runs(c, false, out, x, w, bias, reps, &code);
        if (code != CL_SUCCESS)
            return refused(code, why, why_size);
        k->measured = c->base.latched.code == 0;
        c->base.compile_s += first > k->blast_s ? first - k->blast_s : 0;
    }
    log_debug(LOG_CL, "%s: CLBlast's first product of this class took %.2f s with compiling", c->base.device, first);
    int agree = judge(s->own, s->blast, (size_t)(s->n_rows * out->cols), error);
    if (agree != 0)
        return agree < 0 ? -1 : 0;
    snprintf(why, why_size, "its result is wrong: error %.3g, bound %.0e", *error, BOUND_MEAN);
    return 1;
}

int gemm_compare(struct clb *c, struct gemm_class *k, const struct tensor *out, const struct tensor *x,
                 const struct tensor *w, const struct tensor *bias, int reps, double *error, char *why, size_t why_size)
{
    size_t row = (size_t)out->cols * sizeof(float), fit = SEEN_SIZE / row;
    struct sample s = {.n_rows = (size_t)out->rows < fit ? out->rows : fit > 2 ? (int64_t)fit : 2};
    int rc = -1;

    *error = INFINITY;
    why[0] = '\0';
    s.own = mem_array((size_t)s.n_rows, row);
    s.blast = mem_array((size_t)s.n_rows, row);
    if (s.own == NULL || s.blast == NULL)
        backend_fail(&c->base, ERR_NOMEM, "no memory to check CLBlast");
    else
        rc = compare(c, k, out, x, w, bias, reps, &s, error, why, why_size);
    free(s.own);
    free(s.blast);
    return c->base.latched.code != 0 ? -1 : rc;
}

/* ---- choosing ---- */
static void give_up(struct clb *c, struct gemm_class *k, const char *why)
{
    k->choice = GEMM_OWN;
    log_msg(LOG_WARN, "%s: CLBlast is not used for %s [%lld, %lld] from %lld rows on: %s; own kernels instead",
            c->base.device, dtype_info(k->dtype)->name, (long long)k->n, (long long)k->k, (long long)k->rows, why);
}

/* Can CLBlast still be the choice for this class? */
static bool may_be_blast(const struct cl_gemm *g, const struct gemm_class *k)
{
    return k->choice != GEMM_OWN && (k->choice == GEMM_BLAST || g->want == GEMM_KERNELS_CLBLAST ||
                                     (k->measured ? k->blast_s < k->own_s : g->may_measure));
}

/* The first use of a class: true when `out` is what the choice gives. */
static bool settle(struct clb *c, struct gemm_class *k, const struct tensor *out, const struct tensor *x,
                   const struct tensor *w, const struct tensor *bias)
{
    bool measure = c->gemm->want == GEMM_KERNELS_AUTO && !k->measured;
    char why[160];
    double error;
    int rc;

    rc = gemm_compare(c, k, out, x, w, bias, measure ? 3 : 0, &error, why, sizeof why);
    if (rc < 0)
        return c->base.latched.code != 0; /* not finite: judged another time */
    if (rc > 0) {
        give_up(c, k, why);
        return false;
    }
    k->choice = measure && k->own_s <= k->blast_s ? GEMM_OWN : GEMM_BLAST;
    log_msg(LOG_VERBOSE, "%s: %s [%lld, %lld] from %lld rows on: %s", c->base.device, dtype_info(k->dtype)->name,
            (long long)k->n, (long long)k->k, (long long)k->rows,
            k->choice == GEMM_BLAST ? "multiplied by CLBlast" : "own kernels are faster than CLBlast");
    if (measure)
        gemm_speed_keep(c);
    return k->choice == GEMM_BLAST;
}

/* By CLBlast as was settled; false: it refused. */
static bool run_settled(struct clb *c, struct gemm_class *k, const struct tensor *out, const struct tensor *x,
                        const struct tensor *w, const struct tensor *bias)
{
    int code = gemm_run(c, out, x, w, bias);
    char why[96];

    if (code == CL_SUCCESS)
        return true;
    refused(code, why, sizeof why);
    give_up(c, k, why);
    return false;
}

bool cl_gemm_linear(struct clb *c, const struct tensor *out, const struct tensor *x, const struct tensor *w,
                    const struct tensor *bias)
{
    struct cl_gemm *g = c->gemm;
    struct gemm_class *k;
    bool done = false, profiling = c->base.profiling;

    if (g == NULL || x->rows < GEMM_ROWS || c->base.latched.code != 0 || cl_rounds_x(c, w->dtype) ||
        (k = gemm_class_of(g, w->dtype, w->rows, w->cols, x->rows)) == NULL)
        return false;
    if (!may_be_blast(g, k)) {
        k->choice = GEMM_OWN;
        return false;
    }
    c->base.profiling = false; /* CLBlast's launches have no events of ours: op.c times the whole by waiting */
    if (c->base.warming) {
        if (!k->warmed) /* for its programs; what comes out counts for nothing */
            gemm_run(c, out, x, w, bias);
        k->warmed = true;
    } else if (k->choice == GEMM_OPEN) {
        done = settle(c, k, out, x, w, bias);
    } else {
        done = run_settled(c, k, out, x, w, bias);
    }
    c->base.profiling = profiling;
    if (done)
        c->base.ran_on = g->device;
    return done;
}
