/* Launches of what works element by element: embedding, rotation, activations,
 * sums, caps.  Knows the kernels' arguments and launch dimensions, nothing of
 * their arithmetic. */
#include "backend/opencl/cl.h"

void cl_embed(struct backend *be, const struct tensor *out, const struct tensor *table,
              const struct tensor *ids, float scale)
{
    struct clb *c = (struct clb *)be;
    struct cl_rows part;

    /* each part of a split table fills the rows whose ids it holds */
    for (int64_t row = 0; cl_rows_at(table, row, &part); row += part.n_rows) {
        struct cl_launch l = cl_begin(c, cl_kern_weight(c, CLK_EMBED, table), "embed");
        cl_arg_tensor(&l, out);
        cl_arg_mem(&l, part.mem, part.off);
        cl_arg_tensor(&l, ids);
        cl_arg_float(&l, scale);
        cl_arg_int(&l, out->cols);
        cl_arg_int(&l, out->rows);
        cl_arg_int(&l, part.row);
        cl_arg_int(&l, part.n_rows);
        cl_run_items(&l, 2, (size_t[]){cl_ceil_div(out->cols, 16), (size_t)out->rows});
    }
}

void cl_rope(struct backend *be, const struct tensor *x, const struct tensor *cs, int n_heads, int n_rot,
             enum op_pairs pairs)
{
    struct clb *c = (struct clb *)be;
    struct cl_launch l = cl_begin(c, cl_kern(c, CLK_ROPE, 0), "rope");

    cl_arg_tensor(&l, x);
    cl_arg_tensor(&l, cs);
    cl_arg_int(&l, x->cols / n_heads);
    cl_arg_int(&l, n_rot);
    cl_arg_int(&l, pairs == OP_PAIRS_HALVES ? 1 : 2);
    cl_arg_int(&l, pairs == OP_PAIRS_HALVES ? n_rot / 2 : 1);
    cl_arg_int(&l, n_heads);
    cl_arg_int(&l, x->rows);
    cl_run_items(&l, 3, (size_t[]){(size_t)n_rot / 2, (size_t)n_heads, (size_t)x->rows});
}

static uint64_t count(const struct tensor *t)
{
    return (uint64_t)t->rows * (uint64_t)t->cols;
}

/* 16 values to a work-item, in the GPU family one. */
static void run_elements(struct cl_launch *l, enum op_id op, uint64_t n)
{
    uint64_t width = cl_gpu_op(l->c, op, DTYPE_F32) ? 1 : 16;

    cl_arg_ulong(l, n);
    cl_run_items(l, 1, (size_t[]){(size_t)((n + width - 1) / width)});
}

static void two_inputs(struct backend *be, enum cl_kern kern, enum op_id op, const struct tensor *out,
                       const struct tensor *a, const struct tensor *b)
{
    struct clb *c = (struct clb *)be;
    struct cl_launch l = cl_begin(c, cl_kern(c, kern, 0), op_name(op));

    cl_arg_tensor(&l, out);
    cl_arg_tensor(&l, a);
    cl_arg_tensor(&l, b);
    run_elements(&l, op, count(out));
}

void cl_act_mul(struct backend *be, const struct tensor *out, const struct tensor *gate,
                const struct tensor *up, enum op_act act)
{
    static const enum cl_kern kerns[] = {
        [OP_SILU] = CLK_SILU_MUL, [OP_GELU_TANH] = CLK_GELU_TANH_MUL, [OP_GELU_ERF] = CLK_GELU_ERF_MUL};
    two_inputs(be, kerns[act], OP_ACT_MUL, out, gate, up);
}

void cl_add(struct backend *be, const struct tensor *out, const struct tensor *a, const struct tensor *b)
{
    two_inputs(be, CLK_ADD, OP_ADD, out, a, b);
}

void cl_scale(struct backend *be, const struct tensor *x, float s)
{
    struct clb *c = (struct clb *)be;
    struct cl_launch l = cl_begin(c, cl_kern(c, CLK_SCALE, 0), "scale");

    cl_arg_tensor(&l, x);
    cl_arg_float(&l, s);
    run_elements(&l, OP_SCALE, count(x));
}

void cl_softcap(struct backend *be, const struct tensor *x, float cap)
{
    struct clb *c = (struct clb *)be;
    struct cl_launch l = cl_begin(c, cl_kern(c, CLK_SOFTCAP, 0), "softcap");

    cl_arg_tensor(&l, x);
    cl_arg_float(&l, cap);
    cl_arg_float(&l, 1.0f / cap);
    run_elements(&l, OP_SOFTCAP, count(x));
}
