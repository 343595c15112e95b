/* Memory of an instance: buffers, their parts, scratch, and the traffic with
 * the host.  Writes inside a step are staged, so that only a read waits.
 * Knows nothing of what is computed. */
#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "backend/opencl/cl.h"
#include "base/mem.h"

enum { STAGING_SIZE = 4 << 20, ROUND = 64, PAGE = 4096, LARGE = 1 << 20 };

/* ---- memory objects ---- */
size_t cl_max_alloc(const struct clb *c)
{
    return c->dev.max_alloc > 0 ? c->dev.max_alloc : SIZE_MAX;
}

size_t cl_alloc_room(const struct clb *c, size_t wanted)
{
    size_t most = cl_max_alloc(c) / ROUND * ROUND;
    return wanted < most ? wanted : most;
}

bool cl_within_budget(const struct clb *c, size_t size, const char *what, struct err *err)
{
    if (c->budget == 0 || (size <= c->budget && c->used <= c->budget - size))
        return true;
    err_set(err, ERR_LIMIT, "%s: %s of %zu bytes does not fit: %" PRIu64 " of %" PRIu64 " bytes are taken (%s)",
            c->base.device, what, size, c->used, c->budget, c->dev.name);
    return false;
}

/* Whether memory for `rounded` bytes may be asked for; err has the figures. */
static bool may_take(struct clb *c, size_t size, size_t rounded, const char *what, struct err *err)
{
    if (rounded < size || rounded > cl_max_alloc(c)) {
        err_set(err, ERR_LIMIT,
                "%s: %s of %zu bytes is larger than the device's largest allocation of %zu bytes (%s)",
                c->base.device, what, size, c->dev.max_alloc, c->dev.name);
        return false;
    }
    return cl_within_budget(c, rounded, what, err);
}

cl_mem cl_mem_new(struct clb *c, size_t size, const char *what, struct err *err)
{
    cl_int code;
    size_t rounded = (size + ROUND - 1) / ROUND * ROUND;

    if (!may_take(c, size, rounded, what, err))
        return NULL;
    cl_mem mem = clCreateBuffer(c->ctx, CL_MEM_READ_WRITE, rounded > 0 ? rounded : ROUND, NULL, &code);
    if (code != CL_SUCCESS) {
        int class = cl_error_class(code);
        err_set(err, class,
                "%s: %s of %zu bytes: %s (%d) on %s, driver %s; %" PRIu64 " bytes were taken before",
                c->base.device, what, size, cl_error_name(code), code, c->dev.name, c->dev.driver, c->used);
        return NULL;
    }
    c->used += size;
    return mem;
}

/* On a device that computes in the host's memory: fresh pages of the system, which are zero and are taken only
 * when they are written; a KV cache is mostly never. */
static cl_mem host_mem_new(struct clb *c, size_t size, void **host, struct err *err)
{
    cl_int code = CL_MEM_OBJECT_ALLOCATION_FAILURE;
    size_t rounded = (size + ROUND - 1) / ROUND * ROUND;
    uint8_t *block = NULL;
    cl_mem mem = NULL;

    if (!may_take(c, size, rounded, "a buffer", err))
        return NULL;
    block = mem_array(rounded + PAGE, 1);
    if (block != NULL) {
        uint8_t *at = block + (PAGE - (uintptr_t)block % PAGE) % PAGE;
        mem = clCreateBuffer(c->ctx, CL_MEM_READ_WRITE | CL_MEM_USE_HOST_PTR, rounded, at, &code);
    }
    if (mem == NULL || code != CL_SUCCESS) {
        free(block);
        err_set(err, cl_error_class(code), "%s: a buffer of %zu bytes: %s (%d) on %s, driver %s; %" PRIu64
                " bytes were taken before", c->base.device, size, cl_error_name(code), code, c->dev.name,
                c->dev.driver, c->used);
        return NULL;
    }
    *host = block;
    c->used += size;
    return mem;
}

struct cl_buffer *cl_buffer_new(struct clb *c, size_t size, int n_parts, struct err *err)
{
    struct cl_buffer *b = mem_array(1, sizeof *b);

    if (b != NULL)
        b->parts = mem_array((size_t)n_parts, sizeof *b->parts);
    if (b == NULL || b->parts == NULL) {
        free(b);
        err_set(err, ERR_NOMEM, "%s: no memory for a buffer's record", c->base.device);
        return NULL;
    }
    b->b = (struct buffer){.be = &c->base, .size = size, .host = NULL};
    b->n_parts = n_parts;
    return b;
}

void cl_free(struct buffer *buf)
{
    struct cl_buffer *b = (struct cl_buffer *)buf;

    if (b == NULL)
        return;
    struct clb *c = (struct clb *)buf->be;
    for (int i = 0; i < b->n_parts; i++) {
        struct cl_part *p = &b->parts[i];
        if (p->mem == NULL)
            continue;
        c->used -= p->size + p->pad;
        if (p->window != NULL)
            cl_window_release(c, p->window);
        else
            clReleaseMemObject(p->mem); /* the runtime keeps it for what is enqueued */
        if (p->host != NULL)
            clFinish(c->queue); /* but not the memory below it */
        free(p->host);
    }
    free(b->parts);
    free(b);
}

struct buffer *cl_alloc(struct backend *be, size_t size, struct err *err)
{
    struct clb *c = (struct clb *)be;
    struct cl_buffer *b = cl_buffer_new(c, size, 1, err);
    const cl_uint zero = 0;

    if (b == NULL)
        return NULL;
    b->parts[0].size = size;
    if (c->dev.type == CL_DEVICE_TYPE_CPU && size >= LARGE) {
        b->parts[0].mem = host_mem_new(c, size, &b->parts[0].host, err);
        if (b->parts[0].mem == NULL)
            goto fail;
        return &b->b;
    }
    b->parts[0].mem = cl_mem_new(c, size, "a buffer", err);
    if (b->parts[0].mem == NULL)
        goto fail;
    size_t rounded = size > 0 ? (size + ROUND - 1) / ROUND * ROUND : ROUND;
    cl_int code =
        clEnqueueFillBuffer(c->queue, b->parts[0].mem, &zero, sizeof zero, 0, rounded, 0, NULL, NULL);
    if (code != CL_SUCCESS) {
        cl_err(c, code, "clearing a buffer", err);
        goto fail;
    }
    return &b->b;
fail:
    cl_free(&b->b);
    return NULL;
}

/* ---- where a tensor lies ---- */
size_t cl_row_size(const struct tensor *t)
{
    const struct dtype_info *d = dtype_info(t->dtype);
    return (size_t)t->cols / d->block_elems * d->block_size;
}

/* Byte of a part's memory that holds its byte `at`, the start of a row in the split layout. */
static size_t in_part(const struct tensor *t, const struct cl_part *p, size_t at)
{
    if (p->pad > 0)
        at = at / cl_row_size(t) * cl_row_stride(t);
    return p->mem_off + at;
}

cl_mem cl_tensor_mem(const struct tensor *t, cl_ulong *off)
{
    const struct cl_buffer *b = (const struct cl_buffer *)t->buf;
    for (int i = 0; i < b->n_parts; i++) {
        const struct cl_part *p = &b->parts[i];
        if (t->off >= p->start && t->off - p->start <= p->size &&
            tensor_size(t) <= p->size - (t->off - p->start)) {
            *off = in_part(t, p, t->off - p->start);
            return p->mem;
        }
    }
    assert(false); /* only weights are split, and their launches go by cl_rows_at */
    return NULL;
}

bool cl_rows_at(const struct tensor *t, int64_t row, struct cl_rows *out)
{
    const struct cl_buffer *b = (const struct cl_buffer *)t->buf;
    size_t row_size = cl_row_size(t), at = t->off + (size_t)row * row_size;

    for (int i = 0; i < b->n_parts && row < t->rows; i++) {
        const struct cl_part *p = &b->parts[i];
        if (at < p->start || at >= p->start + p->size)
            continue;
        int64_t n = (int64_t)((p->start + p->size - at) / row_size);
        *out = (struct cl_rows){.mem = p->mem,
                                .off = in_part(t, p, at - p->start),
                                .row = row,
                                .n_rows = n < t->rows - row ? n : t->rows - row};
        return true;
    }
    return false;
}

/* ---- scratch ---- */
struct cl_scratch {
    cl_mem mem[CL_SCRATCH_COUNT];
    size_t size[CL_SCRATCH_COUNT];
};

cl_mem cl_scratch_get(struct clb *c, int slot, size_t size)
{
    struct err err = {0};

    if (c->scratch == NULL && (c->scratch = mem_array(1, sizeof *c->scratch)) == NULL) {
        backend_fail(&c->base, ERR_NOMEM, "no memory for the scratch's record");
        return NULL;
    }
    if (c->scratch->mem[slot] != NULL && c->scratch->size[slot] >= size)
        return c->scratch->mem[slot];
    if (c->scratch->mem[slot] != NULL) {
        clReleaseMemObject(c->scratch->mem[slot]);
        c->used -= c->scratch->size[slot];
    }
    /* some more than now, where there is room: it is likely to grow on */
    bool roomy = size <= cl_max_alloc(c) && size / 2 <= cl_max_alloc(c) - size;
    size += roomy && cl_within_budget(c, size + size / 2, "scratch", NULL) ? size / 2 : 0;
    c->scratch->size[slot] = 0;
    c->scratch->mem[slot] = cl_mem_new(c, size, "scratch", &err);
    if (c->scratch->mem[slot] == NULL)
        backend_fail(&c->base, err.code, "%s", err.msg);
    else
        c->scratch->size[slot] = size;
    return c->scratch->mem[slot];
}

void cl_scratch_free(struct clb *c)
{
    for (int i = 0; c->scratch != NULL && i < CL_SCRATCH_COUNT; i++)
        if (c->scratch->mem[i] != NULL)
            clReleaseMemObject(c->scratch->mem[i]);
    free(c->scratch);
    c->scratch = NULL;
}

/* ---- traffic ---- */
/* Host memory that stays until the device has read it; NULL: write and wait instead. */
static uint8_t *stage(struct clb *c, const void *src, size_t size)
{
    if (size > STAGING_SIZE / 4)
        return NULL;
    if (c->staging == NULL)
        c->staging = mem_array(STAGING_SIZE, 1);
    if (c->staging == NULL)
        return NULL;
    if (size > STAGING_SIZE - c->staging_used) {
        cl_int code = clFinish(c->queue);
        if (code != CL_SUCCESS) {
            cl_fail(c, code, "waiting for earlier writes");
            return NULL;
        }
        c->staging_used = 0;
    }
    uint8_t *at = c->staging + c->staging_used;
    memcpy(at, src, size);
    c->staging_used += (size + ROUND - 1) / ROUND * ROUND;
    if (c->staging_used > STAGING_SIZE)
        c->staging_used = STAGING_SIZE;
    return at;
}

void cl_write(struct backend *be, const struct tensor *dst, const void *src)
{
    struct clb *c = (struct clb *)be;
    cl_ulong off;
    cl_mem mem = cl_tensor_mem(dst, &off);
    const void *staged = stage(c, src, tensor_size(dst));

    if (be->latched.code != 0)
        return;
    cl_int code = clEnqueueWriteBuffer(c->queue, mem, staged == NULL, off, tensor_size(dst),
                                       staged != NULL ? staged : src, 0, NULL, NULL);
    if (code != CL_SUCCESS)
        cl_fail(c, code, "write to the device");
}

void cl_copy(struct backend *be, const struct tensor *dst, const struct tensor *src)
{
    struct clb *c = (struct clb *)be;
    size_t size = tensor_size(dst);
    cl_ulong to, from;
    cl_mem a = cl_tensor_mem(dst, &to), b = cl_tensor_mem(src, &from);
    cl_int code = CL_SUCCESS;

    if (a == b && (to > from ? to - from : from - to) < size) { /* overlapping: by a detour */
        cl_mem tmp = cl_scratch_get(c, CL_SCRATCH_TMP, size);
        if (tmp == NULL)
            return;
        code = clEnqueueCopyBuffer(c->queue, b, tmp, from, 0, size, 0, NULL, NULL);
        b = tmp;
        from = 0;
    }
    if (code == CL_SUCCESS)
        code = clEnqueueCopyBuffer(c->queue, b, a, from, to, size, 0, NULL, NULL);
    if (code != CL_SUCCESS)
        cl_fail(c, code, "copy on the device");
}

int cl_read(struct backend *be, void *dst, const struct tensor *src, struct err *err)
{
    struct clb *c = (struct clb *)be;
    const struct cl_buffer *b = (const struct cl_buffer *)src->buf;
    size_t from = src->off, left = tensor_size(src);
    cl_int code = CL_SUCCESS;

    for (int i = 0; i < b->n_parts && left > 0 && code == CL_SUCCESS; i++) {
        const struct cl_part *p = &b->parts[i];
        if (from < p->start || from >= p->start + p->size)
            continue;
        size_t n = p->start + p->size - from;
        n = n < left ? n : left;
        code = clEnqueueReadBuffer(c->queue, p->mem, CL_TRUE, p->mem_off + (from - p->start), n, dst, 0, NULL,
                                   NULL);
        dst = (uint8_t *)dst + n;
        from += n;
        left -= n;
    }
    cl_profile_drain(c);
    if (code == CL_SUCCESS && tensor_size(src) > 0) /* else nothing was waited for: earlier writes may be under way */
        c->staging_used = 0;
    return code == CL_SUCCESS ? 0 : cl_err(c, code, "reading from the device", err);
}
