/* Launches of the fused forms: what decoding would otherwise do in several
 * launches, each too short for what starting it costs.
 *
 * Where one launch cannot do it (several rows, types that differ, a matrix in several memories, CLBlast) they
 * decline, and op.c composes the form, with the same bits. */
#include "backend/opencl/gemm.h"

enum { STAGE = 1024 /* as in norm_gpu.cl */ };

/* How one row of x meets several matrices. */
struct together {
    cl_kernel kernel;
    size_t cols, group; /* rows of a matrix that a work-item takes, or a group of so many together */
    bool gpu;
    struct cl_rows part[3];
};

/* These matrices of one type, each whole in one memory?  Then with which kernel. */
static bool together(struct clb *c, struct together *t, const struct tensor *x, const struct tensor *const *w, int n,
                     enum cl_kern cpu_kernel, const char *gpu_kernel)
{
    if (x->rows != 1)
        return false;
    for (int i = 0; i < n; i++)
        if (w[i]->dtype != w[0]->dtype || !cl_rows_at(w[i], 0, &t->part[i]) || t->part[i].n_rows < w[i]->rows)
            return false;
    bool packed = dtype_info(w[0]->dtype)->block_elems > 1;
    t->cols = packed ? 1 : CL_FAR;
    t->group = packed ? 16 : CL_FAR_GROUP;
    t->gpu = false;
    if (!cl_gpu_op(c, OP_LINEAR, w[0]->dtype)) {
        t->kernel = cl_kern(c, cpu_kernel, w[0]->dtype);
        return true;
    }
    t->group = 64;
    t->gpu = true;
    return cl_fused_gpu(c, gpu_kernel, x, w, t->part, n, &t->kernel, &t->cols);
}

/* Work-items for all rows of w. */
static size_t items(const struct together *t, const struct tensor *w)
{
    return cl_ceil_div(w->rows, (int64_t)t->cols) * (t->gpu ? t->group : 1);
}

bool cl_linear_qkv(struct backend *be, const struct tensor out[3], const struct tensor *x, const struct tensor w[3],
                   const struct tensor *const bias[3])
{
    struct clb *c = (struct clb *)be;
    struct together t;
    int biases = 0;

    if (!together(c, &t, x, (const struct tensor *const[]){&w[0], &w[1], &w[2]}, 3, CLK_LINEAR_QKV, "qkv_row"))
        return false;
    struct cl_launch l = cl_begin(c, t.kernel, "linear_qkv");
    for (int i = 0; i < 3; i++)
        cl_arg_tensor(&l, &out[i]);
    cl_arg_tensor(&l, x);
    for (int i = 0; i < 3; i++)
        cl_arg_mem(&l, t.part[i].mem, t.part[i].off);
    for (int i = 0; i < 3; i++) {
        cl_arg_tensor(&l, bias[i] != NULL ? bias[i] : x); /* always a valid argument */
        biases |= (bias[i] != NULL) << i;
    }
    cl_arg_int(&l, biases);
    cl_arg_int(&l, x->cols);
    for (int i = 0; i < 3; i++)
        cl_arg_int(&l, w[i].rows);
    cl_run(&l, 1, (size_t[]){items(&t, &w[0]) + items(&t, &w[1]) + items(&t, &w[2])}, (size_t[]){t.group});
    return true;
}

bool cl_gate_up(struct backend *be, const struct tensor *out, const struct tensor *tmp, const struct tensor *x,
                const struct tensor *wg, const struct tensor *wu, enum op_act act)
{
    struct clb *c = (struct clb *)be;
    struct together t;

    (void)tmp;
    if (!together(c, &t, x, (const struct tensor *const[]){wg, wu}, 2, CLK_GATE_UP, "gate_up_row"))
        return false;
    struct cl_launch l = cl_begin(c, t.kernel, "gate_up");
    cl_arg_tensor(&l, out);
    cl_arg_tensor(&l, x);
    cl_arg_mem(&l, t.part[0].mem, t.part[0].off);
    cl_arg_mem(&l, t.part[1].mem, t.part[1].off);
    cl_arg_int(&l, act);
    cl_arg_int(&l, x->cols);
    cl_arg_int(&l, wg->rows);
    cl_run(&l, 1, (size_t[]){items(&t, wg)}, (size_t[]){t.group});
    return true;
}

bool cl_linear_add(struct backend *be, const struct tensor *x, const struct tensor *tmp, const struct tensor *h,
                   const struct tensor *w, const struct tensor *bias)
{
    struct clb *c = (struct clb *)be;

    (void)tmp;
    if (c->gemm != NULL && h->rows >= GEMM_ROWS) /* CLBlast may multiply, which adds nothing */
        return false;
    cl_linear_own(c, x, h, w, &(struct cl_end){.bias = bias, .add = true});
    return true;
}

bool cl_norm_rope(struct backend *be, const struct tensor *q, const struct tensor *k, const struct tensor *wq,
                  const struct tensor *wk, const struct tensor *cs, const struct norm_rope_args *args)
{
    struct clb *c = (struct clb *)be;
    bool halves = args->pairs == OP_PAIRS_HALVES, gpu = cl_gpu_op(c, OP_NORM_ROPE, DTYPE_F32);
    size_t heads = (size_t)args->n_heads + (size_t)args->n_kv_heads;

    if (gpu && args->head_dim > STAGE)
        return false;
    struct cl_launch l = cl_begin(c, cl_kern(c, CLK_NORM_ROPE, 0), "norm_rope");

    cl_arg_tensor(&l, q);
    cl_arg_tensor(&l, k);
    cl_arg_tensor(&l, wq != NULL ? wq : q);
    cl_arg_tensor(&l, wk != NULL ? wk : q);
    cl_arg_tensor(&l, args->n_rot > 0 ? cs : q);
    cl_arg_float(&l, args->eps);
    cl_arg_float(&l, (float)(1.0 / (double)args->head_dim));
    cl_arg_float(&l, args->add_one ? 1.0f : 0.0f);
    cl_arg_int(&l, (wq != NULL) | (wk != NULL) << 1);
    cl_arg_int(&l, args->head_dim);
    cl_arg_int(&l, args->n_rot);
    cl_arg_int(&l, halves ? 1 : 2);
    cl_arg_int(&l, halves ? args->n_rot / 2 : 1);
    cl_arg_int(&l, args->n_heads);
    cl_arg_int(&l, args->n_kv_heads);
    cl_arg_int(&l, q->rows);
    if (gpu) /* a group for each head */
        cl_run(&l, 2, (size_t[]){64 * heads, (size_t)q->rows}, (size_t[]){64, 1});
    else
        cl_run(&l, 2, (size_t[]){heads, (size_t)q->rows}, (size_t[]){1, 1});
    return true;
}
