/* Launches of what moves or picks values: rows, the largest, the k largest.
 * The largest of a long row is found in parts and joined in rising order, the
 * same answer as in one go. */
#include "backend/opencl/cl.h"

enum { SPAN = 4096 }; /* columns of one part of a row */

void cl_gather_rows(struct backend *be, const struct tensor *out, const struct tensor *x,
                    const struct tensor *rows)
{
    struct clb *c = (struct clb *)be;
    struct cl_launch l = cl_begin(c, cl_kern(c, CLK_GATHER_ROWS, 0), "gather_rows");

    cl_arg_tensor(&l, out);
    cl_arg_tensor(&l, x);
    cl_arg_tensor(&l, rows);
    cl_arg_int(&l, out->cols);
    cl_arg_int(&l, out->rows);
    cl_run_items(&l, 2, (size_t[]){cl_ceil_div(out->cols, 16), (size_t)out->rows});
}

void cl_argmax(struct backend *be, const struct tensor *out, const struct tensor *x)
{
    struct clb *c = (struct clb *)be;
    int64_t n_parts = (int64_t)cl_ceil_div(x->cols, SPAN);
    size_t ids = (size_t)(n_parts * x->rows) * sizeof(cl_int), vals_at = (ids + 63) / 64 * 64;
    cl_mem tmp = cl_scratch_get(c, CL_SCRATCH_TMP, vals_at + ids);

    if (tmp == NULL)
        return;
    struct cl_launch l = cl_begin(c, cl_kern(c, CLK_ARGMAX_PART, 0), "argmax");
    cl_arg_mem(&l, tmp, 0);
    cl_arg_mem(&l, tmp, vals_at);
    cl_arg_tensor(&l, x);
    cl_arg_int(&l, SPAN);
    cl_arg_int(&l, x->cols);
    cl_arg_int(&l, n_parts);
    cl_arg_int(&l, x->rows);
    size_t group = cl_gpu_op(c, OP_ARGMAX, DTYPE_F32) ? 64 : 1; /* work-items of a part */
    cl_run(&l, 2, (size_t[]){(size_t)n_parts * group, (size_t)x->rows}, (size_t[]){group, 1});

    l = cl_begin(c, cl_kern(c, CLK_ARGMAX_JOIN, 0), "argmax");
    cl_arg_tensor(&l, out);
    cl_arg_mem(&l, tmp, 0);
    cl_arg_mem(&l, tmp, vals_at);
    cl_arg_int(&l, n_parts);
    cl_arg_int(&l, x->rows);
    cl_run(&l, 1, (size_t[]){(size_t)x->rows}, NULL);
}

void cl_topk(struct backend *be, const struct tensor *ids, const struct tensor *vals, const struct tensor *x)
{
    struct clb *c = (struct clb *)be;
    struct cl_launch l = cl_begin(c, cl_kern(c, CLK_TOPK, 0), "topk");

    cl_arg_tensor(&l, ids);
    cl_arg_tensor(&l, vals);
    cl_arg_tensor(&l, x);
    cl_arg_int(&l, ids->cols);
    cl_arg_int(&l, x->cols);
    cl_arg_int(&l, x->rows);
    cl_run(&l, 1, (size_t[]){(size_t)x->rows}, NULL);
}
