/* The GPU family's layout of weights: a row's quants first, then its scales,
 * filled up to 16 bytes, so that neighbouring lanes load neighbouring 16 bytes.
 * The same bits, at most 2 % more of them; what would take more stays as stored.
 * Which kernel reads it is not known here. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/opencl/cl.h"
#include "base/mem.h"

enum { SLICE = 1 << 20, UNIT = 16, SCALE = 2 /* bytes of a block's scale, at its start */ };

static size_t fill_up(size_t row)
{
    return (row + UNIT - 1) / UNIT * UNIT;
}

bool cl_split_wanted(const struct clb *c, enum dtype dtype, int64_t cols)
{
    const struct dtype_info *d = dtype_info(dtype);
    size_t row = (size_t)cols / d->block_elems * d->block_size;

    bool gpu = c->gpu && (c->plain[OP_LINEAR] >> dtype & 1) == 0;

    return gpu && (dtype == DTYPE_Q8_0 || dtype == DTYPE_Q4_0) && 50 * (fill_up(row) - row) <= row;
}

bool cl_is_split(const struct tensor *t)
{
    return ((const struct cl_buffer *)t->buf)->layout == CL_LAYOUT_SPLIT;
}

size_t cl_row_stride(const struct tensor *t)
{
    size_t row = cl_row_size(t);
    return cl_is_split(t) ? fill_up(row) : row;
}

/* One row to the split form and back: quants of all blocks, then their scales. */
static void split_row(uint8_t *to, const uint8_t *from, const struct dtype_info *d, size_t n_blocks,
                      bool back)
{
    size_t quants = d->block_size - SCALE;

    for (size_t b = 0; b < n_blocks; b++) {
        const uint8_t *q = back ? from + b * quants : from + b * d->block_size + SCALE;
        const uint8_t *s = back ? from + n_blocks * quants + b * SCALE : from + b * d->block_size;
        memcpy(back ? to + b * d->block_size + SCALE : to + b * quants, q, quants);
        memcpy(back ? to + b * d->block_size : to + n_blocks * quants + b * SCALE, s, SCALE);
    }
}

int cl_split_fill(struct clb *c, struct cl_part *p, const struct host_matrix *m, struct err *err)
{
    const struct dtype_info *d = dtype_info(m->dtype);
    size_t n_blocks = (size_t)m->cols / d->block_elems, row = n_blocks * d->block_size, stride = fill_up(row);
    size_t n_rows = p->size / row, each = SLICE / stride + 1;
    const uint8_t *data = (const uint8_t *)m->data + p->start;
    uint8_t *slice = mem_array(each, stride);
    cl_int code = CL_SUCCESS;

    if (slice == NULL)
        return err_set(err, ERR_NOMEM, "%s: no memory for %zu rows of %s", c->base.device, each, m->name);
    p->pad = n_rows * (stride - row);
    p->mem = cl_mem_new(c, p->size + p->pad, m->name != NULL ? m->name : "a weight", err);
    if (p->mem == NULL) {
        free(slice);
        return err != NULL && err->code != 0 ? err->code : ERR_NOMEM;
    }
    memset(slice, 0, each * stride);
    for (size_t at = 0; at < n_rows && code == CL_SUCCESS; at += each) {
        size_t n = n_rows - at < each ? n_rows - at : each;
        for (size_t r = 0; r < n; r++)
            split_row(slice + r * stride, data + (at + r) * row, d, n_blocks, false);
        code = clEnqueueWriteBuffer(c->queue, p->mem, CL_TRUE, at * stride, n * stride, slice, 0, NULL, NULL);
    }
    free(slice);
    return code == CL_SUCCESS ? 0 : cl_err(c, code, "copying a weight to the device", err);
}

int cl_split_export(struct clb *c, float *out, const struct tensor *w, struct err *err)
{
    const struct dtype_info *d = dtype_info(w->dtype);
    size_t n_blocks = (size_t)w->cols / d->block_elems, row = n_blocks * d->block_size, stride = fill_up(row);
    uint8_t *two = mem_array(2, stride);
    struct cl_rows part;
    cl_int code = CL_SUCCESS;

    if (two == NULL)
        return err_set(err, ERR_NOMEM, "%s: no memory for %zu bytes", c->base.device, 2 * stride);
    for (int64_t r = 0; r < w->rows && code == CL_SUCCESS && cl_rows_at(w, r, &part); r++) {
        code = clEnqueueReadBuffer(c->queue, part.mem, CL_TRUE, part.off, row, two, 0, NULL, NULL);
        split_row(two + stride, two, d, n_blocks, true);
        d->to_f32(out + r * w->cols, two + stride, (size_t)w->cols);
    }
    free(two);
    return code == CL_SUCCESS ? 0 : cl_err(c, code, "reading a weight from the device", err);
}

cl_kernel cl_kern_weight(struct clb *c, enum cl_kern which, const struct tensor *w)
{
    char options[64];

    if (!cl_is_split(w))
        return cl_kern(c, which, w->dtype);
    snprintf(options, sizeof options, "-DWT=WT_%s -DSPLIT=1", dtype_info(w->dtype)->name);
    return cl_kernel_get(c, "embed_gpu.cl", options, which == CLK_EMBED ? "embed" : "dequant");
}
