/* Launches of matrix products, GPU family: the form by the number of rows and
 * by whether sums are in the canonical order.  Must not know how import laid the
 * weights out beyond what layout_gpu.c tells. */
#include <stdio.h>

#include "backend/opencl/cl.h"

/* Rows of x and of w that one group takes, its work-items, and up to how many rows of x it is used. */
struct form {
    const char *kernel;
    int rows, cols, group;
    int64_t up_to;
};
enum { FORMS = 4 };

/* [canonical order][are weights loaded in units of 16 bytes]; of others a lane holds 16 values, and a
 * group takes less at once */
static const struct form forms[2][2][FORMS] = {
    {{{"linear_row", 1, 2, 64, 1},
      {"linear_few4", 4, 2, 64, 4},
      {"linear_few8", 8, 2, 64, 8},
      {"linear_tile", 64, 64, 128, INT64_MAX}},
     {{"linear_row", 1, 4, 64, 1},
      {"linear_few4", 4, 4, 64, 4},
      {"linear_few8", 8, 2, 64, 8},
      {"linear_tile", 64, 64, 128, INT64_MAX}}},
    {{{"linear_canon1", 1, 8, 64, 1}, {"linear_canon4", 4, 16, 64, INT64_MAX}},
     {{"linear_canon1", 1, 8, 64, 1},
      {"linear_canon4", 4, 16, 64, 8},
      {"linear_canon16", 16, 16, 64, INT64_MAX}}},
};
/* where groups have at most 64 work-items, -DTM=32 */
static const struct form narrow_tile = {"linear_tile", 32, 64, 64, INT64_MAX};

bool cl_gpu_able(const struct cl_device *d)
{
    return d->max_group >= 64 && d->max_item[0] >= 64 && d->local_size >= 12 * 1024;
}

static bool is_narrow(const struct clb *c)
{
    return c->dev.max_group < 128 || c->dev.max_item[0] < 128;
}

bool cl_in_units(const struct tensor *w, cl_ulong off, const struct tensor *x)
{
    bool has = w->dtype == DTYPE_F32 || w->dtype == DTYPE_F16 || w->dtype == DTYPE_BF16 ||
               w->dtype == DTYPE_Q4_K || cl_is_split(w);
    cl_ulong x_off;

    cl_tensor_mem(x, &x_off);
    return has && w->cols % 32 == 0 && off % 16 == 0 && cl_row_stride(w) % 16 == 0 && x_off % 16 == 0;
}

static cl_kernel kernel_for(struct clb *c, const char *file, const char *name, const struct tensor *w, bool units)
{
    char options[128];

    snprintf(options, sizeof options, "-DWT=WT_%s -DSPLIT=%d -DUNITS=%d%s%s", dtype_info(w->dtype)->name,
             cl_is_split(w), units, is_narrow(c) ? " -DTM=32" : "", c->sub_least);
    return cl_kernel_get(c, file, options, name);
}

bool cl_fused_gpu(struct clb *c, const char *name, const struct tensor *x, const struct tensor *const *w,
                  const struct cl_rows *part, int n, cl_kernel *kernel, size_t *cols)
{
    bool units = true;

    for (int v = 0; v < CLV_COUNT; v++)
        if (cl_variant(c, (enum cl_variant)v, OP_LINEAR, w[0]->dtype))
            return false;
    for (int i = 0; i < n; i++) {
        units = units && cl_in_units(w[i], part[i].off, x);
        if (c->canonical || cl_is_split(w[i]) != cl_is_split(w[0]))
            return false;
    }
    *kernel = kernel_for(c, "fused_gpu.cl", name, w[0], units);
    *cols = units ? 4 : 2; /* R in row_gpu.clh */
    return true;
}

static const struct form *form_for(const struct clb *c, int64_t n_rows, bool units)
{
    const struct form *f = forms[c->canonical][units];

    while (f->up_to < n_rows)
        f++;
    return f->group == 128 && is_narrow(c) ? &narrow_tile : f;
}

void cl_linear_args(struct cl_launch *l, const struct cl_rows *part, const struct tensor *out, cl_mem xm,
                    cl_ulong x_off, const struct tensor *x, const struct cl_end *end)
{
    cl_arg_tensor(l, out);
    cl_arg_mem(l, xm, x_off);
    cl_arg_mem(l, part->mem, part->off);
    cl_arg_end(l, end, x);
    cl_arg_int(l, x->cols);
    cl_arg_int(l, part->n_rows);
    cl_arg_int(l, x->rows);
    cl_arg_int(l, part->row);
    cl_arg_int(l, out->cols);
}

static void run_part(struct clb *c, const struct cl_rows *part, const struct tensor *out,
                     const struct tensor *x, const struct tensor *w, const struct cl_end *end)
{
    bool units = cl_in_units(w, part->off, x);
    const struct form *f = form_for(c, x->rows, units);
    size_t group = (size_t)f->group;
    cl_ulong x_off;
    cl_mem xm = cl_tensor_mem(x, &x_off);

    cl_rounded_x(c, part, x, w, &xm, &x_off);
    struct cl_launch l = cl_begin(c, kernel_for(c, "linear_gpu.cl", f->kernel, w, units), "linear");
    cl_linear_args(&l, part, out, xm, x_off, x, end);
    cl_run(&l, 2, (size_t[]){cl_ceil_div(part->n_rows, f->cols) * group, cl_ceil_div(x->rows, f->rows)},
           (size_t[]){group, 1});
}

void cl_linear_gpu(struct clb *c, const struct tensor *out, const struct tensor *x, const struct tensor *w,
                   const struct cl_end *end)
{
    struct cl_rows part;

    for (int64_t row = 0; cl_rows_at(w, row, &part); row += part.n_rows)
        if (!cl_linear_variant(c, &part, out, x, w, end))
            run_part(c, &part, out, x, w, end);
}

struct cl_experts_form cl_experts_gpu(struct clb *c, const struct tensor *experts, int n_experts,
                                      const struct tensor *x, int64_t n_pairs)
{
    struct cl_experts_form f = {.rows = 1, .items = 64, .group = 64};
    bool units = true;

    for (int e = 0; e < n_experts; e++) {
        cl_ulong off = 0;
        cl_tensor_mem(&experts[e], &off);
        units = units && cl_in_units(&experts[e], off, x);
    }
    if (n_pairs >= (int64_t)CL_GROUPED_FROM * n_experts) {
        f.rows = units ? 8 : 4;
        f.cols = 16;
        f.kernel = kernel_for(c, "experts_gpu.cl", "experts_tile", &experts[0], units);
    } else {
        f.cols = c->canonical ? 8 : units ? 4 : 2;
        f.kernel = kernel_for(c, "linear_gpu.cl", c->canonical ? "experts_canon" : "experts_row", &experts[0], units);
    }
    return f;
}
