/* Launches of matrix products: the tile by the number of rows, one launch for
 * each part of a matrix larger than the device's largest allocation.  No choice
 * here can change a sum's order. */
#include "backend/opencl/gemm.h"

/* Rows of x and of w that one work-item takes; groups of `group` work-items along w. */
static const struct tile {
    enum cl_kern kern;
    int rows, cols;
    int packed_cols; /* of a block format */
    size_t group;
    bool cols_first; /* neighbours in the launch are neighbours along w, else along x */
} tiles[] = {
    {CLK_LINEAR_1, 1, CL_FAR, 1, CL_FAR_GROUP, false},
    {CLK_LINEAR_2, 2, 2, 1, 8, false},
    {CLK_LINEAR_4, 4, 4, 1, 4, false},
}, many = {CLK_LINEAR_MANY, 24, 8, 8, 1, true};

static bool is_packed(enum dtype dtype)
{
    return dtype_info(dtype)->block_elems > 1;
}

void cl_arg_end(struct cl_launch *l, const struct cl_end *end, const struct tensor *any)
{
    cl_arg_tensor(l, end->bias != NULL ? end->bias : any); /* always a valid argument */
    cl_arg_int(l, (end->bias != NULL ? 1 : 0) | (end->add ? 2 : 0)); /* END_BIAS, END_ADD */
}

static void run_part(struct clb *c, const struct tile *t, const struct cl_rows *part,
                     const struct tensor *out, const struct tensor *x, enum dtype dtype,
                     const struct cl_end *end)
{
    struct cl_launch l = cl_begin(c, cl_kern(c, t->kern, dtype), "linear");
    size_t along_x = cl_ceil_div(x->rows, t->rows);
    size_t along_w = cl_ceil_div(part->n_rows, is_packed(dtype) ? t->packed_cols : t->cols);

    cl_arg_tensor(&l, out);
    cl_arg_tensor(&l, x);
    cl_arg_mem(&l, part->mem, part->off);
    cl_arg_end(&l, end, x);
    cl_arg_int(&l, x->cols);
    cl_arg_int(&l, part->n_rows);
    cl_arg_int(&l, x->rows);
    cl_arg_int(&l, part->row);
    cl_arg_int(&l, out->cols);
    if (t->cols_first)
        cl_run(&l, 2, (size_t[]){along_w, along_x}, (size_t[]){t->group, 1});
    else
        cl_run(&l, 2, (size_t[]){along_x, along_w}, (size_t[]){1, t->group});
}

/* ---- many rows of x ---- */
/* Widening a weight costs as much as some products with it: with so many rows of x it is done once, for
 * some rows of w at a time that stay in the cache, and they are multiplied from there. */
enum { MANY_ROWS = 16, WIDE_SIZE = 2 << 20 };

static void widen(struct clb *c, cl_mem to, const struct cl_rows *part, int64_t cols, enum dtype dtype)
{
    struct cl_launch l = cl_begin(c, cl_kern(c, CLK_WIDEN, dtype), "linear");

    cl_arg_mem(&l, to, 0);
    cl_arg_mem(&l, part->mem, part->off);
    cl_arg_int(&l, cols);
    cl_arg_int(&l, part->n_rows);
    cl_run(&l, 1, (size_t[]){(size_t)part->n_rows}, (size_t[]){8});
}

static void run_widened(struct clb *c, const struct tensor *out, const struct tensor *x,
                        const struct tensor *w, const struct cl_end *end)
{
    size_t row_size = (size_t)w->cols * sizeof(float), room = cl_alloc_room(c, WIDE_SIZE);
    int64_t most = row_size < room ? (int64_t)(room / row_size) : 1;
    cl_mem wide = cl_scratch_get(c, CL_SCRATCH_GEMM, (size_t)most * row_size);
    struct cl_rows part;

    for (int64_t row = 0; wide != NULL && cl_rows_at(w, row, &part); row += part.n_rows) {
        part.n_rows = part.n_rows < most ? part.n_rows : most;
        widen(c, wide, &part, w->cols, w->dtype);
        part.mem = wide;
        part.off = 0;
        run_part(c, &many, &part, out, x, DTYPE_F32, end);
    }
}

void cl_linear_own(struct clb *c, const struct tensor *out, const struct tensor *x, const struct tensor *w,
                   const struct cl_end *end)
{
    struct cl_rows part;

    if (cl_gpu_op(c, OP_LINEAR, w->dtype)) {
        cl_linear_gpu(c, out, x, w, end);
        return;
    }
    const struct tile *t = x->rows >= MANY_ROWS ? &many : &tiles[x->rows == 1 ? 0 : x->rows == 2 ? 1 : 2];
    if (t == &many && w->dtype != DTYPE_F32) {
        run_widened(c, out, x, w, end);
        return;
    }
    for (int64_t row = 0; cl_rows_at(w, row, &part); row += part.n_rows)
        run_part(c, t, &part, out, x, w->dtype, end);
}

void cl_linear(struct backend *be, const struct tensor *out, const struct tensor *x, const struct tensor *w,
               const struct tensor *bias)
{
    struct clb *c = (struct clb *)be;

    if (!cl_gemm_linear(c, out, x, w, bias))
        cl_linear_own(c, out, x, w, &(struct cl_end){.bias = bias});
}
