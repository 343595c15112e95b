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

void cl_linear(struct backend *be, const struct tensor *out, const struct tensor *x, const struct tensor *w,
               const struct tensor *bias)
{
    struct clb *c = (struct clb *)be;
    struct cl_rows part;

    for (int64_t row = 0; cl_rows_at(w, row, &part); row += part.n_rows)
        run_part(c, tile_for(x->rows), &part, out, x, w->dtype, bias);
}
