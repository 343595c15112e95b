/* Launches of matrix products: the tile by the number of rows, one launch for
 * each part of a matrix larger than the device's largest allocation.  No choice
 * here can change a sum's order. */
#include "backend/opencl/cl.h"

/* Rows of x and of w that one work-item takes; groups of `group` work-items along w. */
static const struct tile {
    enum cl_kern kern;
    int rows, cols;
    size_t group;
} tiles[] = {
    {CLK_LINEAR_1, 1, 1, 16},
    {CLK_LINEAR_2, 2, 2, 8},
    {CLK_LINEAR_4, 4, 4, 4},
};

static const struct tile *tile_for(int64_t n_rows)
{
    return &tiles[n_rows == 1 ? 0 : n_rows == 2 ? 1 : 2];
}

static void run_part(struct clb *c, const struct tile *t, const struct cl_rows *part,
                     const struct tensor *out, const struct tensor *x, enum dtype dtype,
                     const struct tensor *bias)
{
    struct cl_launch l = cl_begin(c, cl_kern(c, t->kern, dtype), "linear");

    cl_arg_tensor(&l, out);
    cl_arg_tensor(&l, x);
    cl_arg_mem(&l, part->mem, part->off);
    cl_arg_tensor(&l, bias != NULL ? bias : x); /* always a valid argument */
    cl_arg_int(&l, bias != NULL);
    cl_arg_int(&l, x->cols);
    cl_arg_int(&l, part->n_rows);
    cl_arg_int(&l, x->rows);
    cl_arg_int(&l, part->row);
    cl_arg_int(&l, out->cols);
    cl_run(&l, 2, (size_t[]){cl_ceil_div(x->rows, t->rows), cl_ceil_div(part->n_rows, t->cols)},
           (size_t[]){1, t->group});
}

/* ---- many rows of x ---- */
/* A block format costs more to read than to multiply: with so many rows of x its values are written
 * out once, some rows of w at a time that stay in the cache, and multiplied from there. */
enum { MANY_ROWS = 16, WIDE_SIZE = 2 << 20 };

static bool is_packed(enum dtype dtype)
{
    return dtype_info(dtype)->block_elems > 1;
}

static void widen(struct clb *c, cl_mem to, const struct cl_rows *part, int64_t cols, enum dtype dtype)
{
    struct cl_launch l = cl_begin(c, cl_kern(c, CLK_DEQUANT, dtype), "linear");

    cl_arg_mem(&l, to, 0);
    cl_arg_mem(&l, part->mem, part->off);
    cl_arg_int(&l, cols);
    cl_arg_int(&l, part->n_rows);
    cl_run(&l, 2, (size_t[]){cl_ceil_div(cols, 16), (size_t)part->n_rows}, (size_t[]){16, 1});
}

static void run_widened(struct clb *c, const struct tensor *out, const struct tensor *x,
                        const struct tensor *w, const struct tensor *bias)
{
    size_t row_size = (size_t)w->cols * sizeof(float);
    int64_t most = row_size < WIDE_SIZE ? (int64_t)(WIDE_SIZE / row_size) : 1;
    cl_mem wide = cl_scratch_get(c, CL_SCRATCH_GEMM, (size_t)most * row_size);
    struct cl_rows part;

    for (int64_t row = 0; wide != NULL && cl_rows_at(w, row, &part); row += part.n_rows) {
        part.n_rows = part.n_rows < most ? part.n_rows : most;
        widen(c, wide, &part, w->cols, w->dtype);
        part.mem = wide;
        part.off = 0;
        run_part(c, tile_for(x->rows), &part, out, x, DTYPE_F32, bias);
    }
}

void cl_linear(struct backend *be, const struct tensor *out, const struct tensor *x, const struct tensor *w,
               const struct tensor *bias)
{
    struct clb *c = (struct clb *)be;
    struct cl_rows part;

    if (cl_gpu_op(c, OP_LINEAR, w->dtype)) {
        cl_linear_gpu(c, out, x, w, bias);
        return;
    }
    if (x->rows >= MANY_ROWS && is_packed(w->dtype)) {
        run_widened(c, out, x, w, bias);
        return;
    }
    for (int64_t row = 0; cl_rows_at(w, row, &part); row += part.n_rows)
        run_part(c, tile_for(x->rows), &part, out, x, w->dtype, bias);
}
