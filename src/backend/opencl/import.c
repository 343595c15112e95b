/* Weights to the device: the only place where their layout may change.
 *
 * On a device that computes in the host's memory a weight stays where it lies
 * in the mapped file: memory objects over page-aligned windows of the file,
 * each below the device's largest allocation, tensors as offsets into them.
 * Elsewhere, and where a plain format lies misaligned, the bytes are copied.  A
 * matrix larger than the largest allocation has several parts of whole rows. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "backend/opencl/cl.h"
#include "base/log.h"
#include "base/mem.h"

enum { PAGE = 4096, CHECKED = 4096, SPLIT_PAD = 15 /* bytes of a row at most, layout_gpu.c */ };

/* ---- windows of a mapped file ---- */
void cl_window_release(struct clb *c, struct cl_window *w)
{
    if (--w->refs > 0)
        return;
    for (struct cl_window **at = &c->windows; *at != NULL; at = &(*at)->next)
        if (*at == w) {
            *at = w->next;
            break;
        }
    clFinish(c->queue); /* the mapping may go away next */
    clReleaseMemObject(w->mem);
    free(w);
}

/* The device sees what the host sees: a few bytes at both ends of the window. */
static bool reads_back(struct clb *c, const struct cl_window *w)
{
    size_t n = w->size < CHECKED ? w->size : CHECKED;
    size_t at[2] = {0, w->size - n};
    uint8_t *copy = mem_array(n, 1);
    bool same = copy != NULL;

    for (int i = 0; i < 2 && same; i++)
        same = clEnqueueReadBuffer(c->queue, w->mem, CL_TRUE, at[i], n, copy, 0, NULL, NULL) == CL_SUCCESS &&
               memcmp(copy, w->start + at[i], n) == 0;
    free(copy);
    return same;
}

/* A window that holds size bytes from p, made when there is none; NULL: copy instead. */
static struct cl_window *window_over(struct clb *c, const struct host_matrix *m, const uint8_t *p,
                                     size_t size)
{
    size_t limit = cl_max_alloc(c) / PAGE * PAGE;
    size_t begin = (size_t)(p - m->file) / PAGE * PAGE, end = m->file_size;
    cl_int code;

    for (struct cl_window *w = c->windows; w != NULL; w = w->next)
        if (p >= w->start && (size_t)(p - w->start) <= w->size && size <= w->size - (size_t)(p - w->start)) {
            w->refs++;
            return w;
        }
    if (m->file_size <= limit)
        begin = 0; /* the whole file at once */
    struct cl_window *w = mem_array(1, sizeof *w);
    if (w == NULL)
        return NULL;
    *w = (struct cl_window){.next = c->windows,
                            .start = m->file + begin,
                            .refs = 1,
                            .size = end - begin < limit ? end - begin : limit};
    w->mem = clCreateBuffer(c->ctx, CL_MEM_READ_ONLY | CL_MEM_USE_HOST_PTR, w->size,
                            (void *)(uintptr_t)w->start, &code);
    if (code == CL_SUCCESS && reads_back(c, w)) {
        c->windows = w;
        return w;
    }
    log_msg(c->told_copied ? LOG_DEBUG : LOG_WARN, "%s: weights are copied: memory over the mapped file of %s %s (%d)", c->base.device,
            m->name, code != CL_SUCCESS ? cl_error_name(code) : "does not read back", code);
    c->told_copied = true;
    if (code == CL_SUCCESS)
        clReleaseMemObject(w->mem);
    free(w);
    return NULL;
}

/* ---- one part ---- */
static bool may_map(const struct clb *c, const struct host_matrix *m, const uint8_t *data)
{
    const struct dtype_info *d = dtype_info(m->dtype);
    bool aligned = d->block_elems > 1 || (uintptr_t)data % d->block_size == 0;
    return c->zero_copy && m->file != NULL && (uintptr_t)m->file % PAGE == 0 && aligned;
}

static int fill_part(struct clb *c, struct cl_part *p, const struct host_matrix *m, struct err *err)
{
    const uint8_t *data = (const uint8_t *)m->data + p->start;
    struct cl_window *w;

    if (cl_split_wanted(c, m->dtype, m->cols))
        return cl_split_fill(c, p, m, err);
    if (!cl_within_budget(c, p->size, m->name != NULL ? m->name : "a weight", err))
        return ERR_LIMIT;
    w = may_map(c, m, data) ? window_over(c, m, data, p->size) : NULL;
    if (w != NULL) {
        p->window = w;
        p->mem = w->mem;
        p->mem_off = (size_t)(data - w->start);
        c->used += p->size;
        return 0;
    }
    p->mem = cl_mem_new(c, p->size, m->name != NULL ? m->name : "a weight", err);
    if (p->mem == NULL)
        return err != NULL && err->code != 0 ? err->code : ERR_NOMEM;
    cl_int code = clEnqueueWriteBuffer(c->queue, p->mem, CL_TRUE, 0, p->size, data, 0, NULL, NULL);
    return code == CL_SUCCESS ? 0 : cl_err(c, code, "copying a weight to the device", err);
}

int cl_import(struct backend *be, struct tensor *out, const struct host_matrix *m, struct err *err)
{
    struct clb *c = (struct clb *)be;
    struct tensor t = {.dtype = m->dtype, .rows = m->rows, .cols = m->cols};
    size_t row = cl_row_size(&t), limit = cl_max_alloc(c) / PAGE * PAGE, rows_each;
    bool split = cl_split_wanted(c, m->dtype, m->cols);
    int rc = 0;

    /* a window begins up to a page before the part */
    rows_each = limit > PAGE ? (limit - PAGE) / (row + (split ? SPLIT_PAD : 0)) : 0;
    if (rows_each == 0)
        return err_set(
            err, ERR_LIMIT,
            "%s: %s: a row of %zu bytes is larger than the device's largest allocation of %zu bytes",
            c->base.device, m->name, row, c->dev.max_alloc);
    size_t n_parts = ((size_t)m->rows + rows_each - 1) / rows_each;
    if (n_parts > INT32_MAX)
        return err_set(err, ERR_LIMIT, "%s: %s: %zu parts are too many", c->base.device, m->name, n_parts);
    struct cl_buffer *b = cl_buffer_new(c, tensor_size(&t), (int)n_parts, err);
    if (b == NULL)
        return ERR_NOMEM;
    b->layout = split ? CL_LAYOUT_SPLIT : CL_LAYOUT_STORED;
    for (size_t i = 0; i < n_parts && rc == 0; i++) {
        struct cl_part *p = &b->parts[i];
        size_t first = i * rows_each, left = (size_t)m->rows - first;
        p->start = first * row;
        p->size = (left < rows_each ? left : rows_each) * row;
        rc = fill_part(c, p, m, err);
    }
    if (rc != 0) {
        cl_free(&b->b);
        return rc;
    }
    t.buf = &b->b;
    *out = t;
    return 0;
}

int cl_export(struct backend *be, float *out, const struct tensor *w, struct err *err)
{
    size_t row = cl_row_size(w);
    uint8_t *bytes;
    int rc;

    if (cl_is_split(w))
        return cl_split_export((struct clb *)be, out, w, err);
    bytes = mem_array(tensor_size(w) + 1, 1);

    if (bytes == NULL)
        return err_set(err, ERR_NOMEM, "%s: no memory for %zu bytes", be->device, tensor_size(w));
    rc = cl_read(be, bytes, w, err);
    for (int64_t r = 0; rc == 0 && r < w->rows; r++)
        dtype_info(w->dtype)->to_f32(out + r * w->cols, bytes + (size_t)r * row, (size_t)w->cols);
    free(bytes);
    return rc;
}
