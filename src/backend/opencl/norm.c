/* Launches of norms.  A row's sum is the kernel's; the factors that need a
 * division are made here, as the CPU backend makes them, so that both use the
 * same float. */
#include "backend/opencl/cl.h"

void cl_rmsnorm(struct backend *be, const struct tensor *out, const struct tensor *x, const struct tensor *w,
                float eps, bool add_one)
{
    struct clb *c = (struct clb *)be;
    struct cl_launch l = cl_begin(c, cl_kern(c, CLK_RMSNORM, 0), "rmsnorm");

    cl_arg_tensor(&l, out);
    cl_arg_tensor(&l, x);
    cl_arg_tensor(&l, w);
    cl_arg_float(&l, eps);
    cl_arg_float(&l, (float)(1.0 / (double)x->cols));
    cl_arg_float(&l, add_one ? 1.0f : 0.0f);
    cl_arg_int(&l, x->cols);
    cl_arg_int(&l, x->rows);
    if (cl_gpu_op(c, OP_RMSNORM, DTYPE_F32)) /* a group for each row */
        cl_run(&l, 1, (size_t[]){64 * (size_t)x->rows}, (size_t[]){64});
    else
        cl_run(&l, 1, (size_t[]){(size_t)x->rows}, (size_t[]){4});
}
