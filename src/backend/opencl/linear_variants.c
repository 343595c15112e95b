/* Launches of linear's variants beyond the base: sub-groups for one row of x,
 * and under --math fast integer dots or half arithmetic on rounded rows.
 *
 * Where one cannot be had the base kernels run, once and for all.  Whether one is to be used is variants.c's
 * matter; layouts are layout_gpu.c's. */
#include <stdio.h>

#include "backend/opencl/cl.h"

enum { GROUP = 64, SUB_ROWS = 4, FAST_ROWS = 4, X_BLOCK = 32 };

/* The most rows of x for which linear_fast4 is the faster: it reads the weights once for 4 of them, the tile once for
 * 64, which it computes also where there are less (cl/README.md, with the figures). */
static const int64_t fast_most[CLV_COUNT] = {[CLV_DOT] = 32, [CLV_HALF] = 16};

static void put_options(char *out, size_t size, const struct clb *c, const struct tensor *w, const char *more)
{
    snprintf(out, size, "%s -DWT=WT_%s -DSPLIT=%d -DUNITS=1 %s%s", cl_variant_std(c),
             dtype_info(w->dtype)->name, cl_is_split(w), more, c->sub_least);
}

static bool run_sub(struct clb *c, const struct cl_rows *part, const struct tensor *out, const struct tensor *x,
                    const struct tensor *w, const struct cl_end *end)
{
    char options[128];
    cl_ulong x_off;
    cl_mem xm = cl_tensor_mem(x, &x_off);

    put_options(options, sizeof options, c, w, "-DSUB=1");
    cl_kernel k = cl_kernel_try(c, "linear_sub.cl", options, "linear_sub");
    int n_sub = k != NULL ? cl_sub_count(c, k) : 0;
    if (n_sub < 1) {
        cl_variant_refuse(c, CLV_SUB, OP_LINEAR, w->dtype,
                          k == NULL ? "its kernel does not build" : "their size is not told");
        return false;
    }
    c->base.ran_on = c->variant_name[CLV_SUB];
    struct cl_launch l = cl_begin(c, k, "linear");
    cl_linear_args(&l, part, out, xm, x_off, x, end);
    cl_run(&l, 2, (size_t[]){cl_ceil_div(part->n_rows, (int64_t)SUB_ROWS * n_sub) * GROUP, (size_t)x->rows},
           (size_t[]){GROUP, 1});
    return true;
}

/* x rounded into scratch: values first, then a scale for each block. */
static bool run_fast(struct clb *c, enum cl_variant v, const struct cl_rows *part, const struct tensor *out,
                     const struct tensor *x, const struct tensor *w, const struct cl_end *end)
{
    bool few = x->rows == 1;
    size_t values = (size_t)(x->rows * x->cols) * (v == CLV_DOT ? 1 : 2);
    size_t scales = (size_t)(x->rows * x->cols) / X_BLOCK * sizeof(float);
    char options[128];

    put_options(options, sizeof options, c, w, v == CLV_DOT ? "-DDOT=1" : "-DDOT=0");
    cl_kernel round = cl_kernel_try(c, "linear_fast.cl", options, "round_x");
    cl_kernel k = round != NULL
                      ? cl_kernel_try(c, "linear_fast.cl", options, few ? "linear_fast1" : "linear_fast4")
                      : NULL;
    if (k == NULL) {
        cl_variant_refuse(c, v, OP_LINEAR, w->dtype, "its kernel does not build");
        return false;
    }
    cl_mem scratch = cl_scratch_get(c, CL_SCRATCH_FAST, values + scales);
    if (scratch == NULL)
        return true; /* latched */
    c->base.ran_on = c->variant_name[v];
    struct cl_launch l = cl_begin(c, round, "linear");
    cl_arg_mem(&l, scratch, 0);
    cl_arg_mem(&l, scratch, values);
    cl_arg_tensor(&l, x);
    cl_arg_int(&l, x->cols);
    cl_arg_int(&l, x->rows);
    cl_run_items(&l, 2, (size_t[]){(size_t)x->cols / X_BLOCK, (size_t)x->rows});

    l = cl_begin(c, k, "linear");
    cl_linear_args(&l, part, out, scratch, 0, x, end);
    cl_arg_mem(&l, scratch, values);
    cl_run(&l, 2,
           (size_t[]){cl_ceil_div(part->n_rows, FAST_ROWS) * GROUP, few ? 1 : cl_ceil_div(x->rows, FAST_ROWS)},
           (size_t[]){GROUP, 1});
    return true;
}

bool cl_rounds_x(const struct clb *c, enum dtype dtype)
{
    return cl_variant(c, CLV_DOT, OP_LINEAR, dtype) || cl_variant(c, CLV_HALF, OP_LINEAR, dtype);
}

/* Of many rows: what an output is of does not depend on how many there are. */
bool cl_rounded_x(struct clb *c, const struct cl_rows *part, const struct tensor *x, const struct tensor *w, cl_mem *xm,
                  cl_ulong *x_off)
{
    enum cl_variant v = cl_variant(c, CLV_DOT, OP_LINEAR, w->dtype) ? CLV_DOT : CLV_HALF;
    char options[128];

    if (!cl_rounds_x(c, w->dtype) || !cl_in_units(w, part->off, x))
        return false;
    put_options(options, sizeof options, c, w, v == CLV_DOT ? "-DDOT=1" : "-DDOT=0");
    cl_kernel k = cl_kernel_try(c, "linear_fast.cl", options, "rounded_x");
    if (k == NULL) {
        cl_variant_refuse(c, v, OP_LINEAR, w->dtype, "its kernel does not build");
        return false;
    }
    *xm = cl_scratch_get(c, CL_SCRATCH_FAST, (size_t)(x->rows * x->cols) * sizeof(float));
    *x_off = 0;
    if (*xm == NULL)
        return false; /* latched */
    c->base.ran_on = c->variant_name[v];
    struct cl_launch l = cl_begin(c, k, "linear");
    cl_arg_mem(&l, *xm, 0);
    cl_arg_tensor(&l, x);
    cl_arg_int(&l, x->cols);
    cl_arg_int(&l, x->rows);
    cl_run_items(&l, 2, (size_t[]){(size_t)x->cols / X_BLOCK, (size_t)x->rows});
    return true;
}

bool cl_linear_variant(struct clb *c, const struct cl_rows *part, const struct tensor *out, const struct tensor *x,
                       const struct tensor *w, const struct cl_end *end)
{
    if (!cl_in_units(w, part->off, x))
        return false;
    for (int v = CLV_DOT; v <= CLV_HALF; v++)
        if (x->rows <= fast_most[v] && cl_variant(c, (enum cl_variant)v, OP_LINEAR, w->dtype) &&
            run_fast(c, (enum cl_variant)v, part, out, x, w, end))
            return true;
    return x->rows == 1 && cl_variant(c, CLV_SUB, OP_LINEAR, w->dtype) && run_sub(c, part, out, x, w, end);
}
