/* Memory of the CPU backends: zeroed buffers of their own, and views over a
 * mapped file for weights, which are never copied.  Sizes were checked in
 * op_memory.c.  Must not know what is computed. */
#include <assert.h>
#include <stdlib.h>

#include "backend/cpu/host.h"
#include "base/mem.h"

#define ALIGNMENT 64

struct host_buffer {
    struct buffer buf;
    void *owned; /* memory of this buffer, NULL = a view over someone else's */
};

void host_caps(const struct backend *be, struct backend_caps *out)
{
    (void)be;
    *out = (struct backend_caps){.host_memory = true, .max_alloc = 0, .mem_size = 0, .kv_q8_0 = true};
}

/* A buffer over `host`; `owned` is freed with it, NULL = nothing is. */
static struct buffer *buffer_over(struct backend *be, void *host, size_t size, void *owned, struct err *err)
{
    struct host_buffer *b = mem_array(1, sizeof *b);

    if (b == NULL) {
        err_set(err, ERR_NOMEM, "%s: no memory for a buffer's record", be->device);
        return NULL;
    }
    b->buf = (struct buffer){.be = be, .size = size, .host = host};
    b->owned = owned;
    return &b->buf;
}

/* The system's own zero pages, so that what is never written, as most of a KV cache, takes no memory; filling
 * the buffer here would touch all of it. */
struct buffer *host_alloc(struct backend *be, size_t size, struct err *err)
{
    size_t padded;
    uint8_t *owned = mem_add(size, 2 * ALIGNMENT, &padded) ? mem_array(padded, 1) : NULL;

    if (owned == NULL) {
        err_set(err, ERR_NOMEM, "%s: the system refuses %zu bytes of memory", be->device, size);
        return NULL;
    }
    uint8_t *host = owned + (ALIGNMENT - (uintptr_t)owned % ALIGNMENT) % ALIGNMENT;
    struct buffer *buf = buffer_over(be, host, size, owned, err);
    if (buf == NULL)
        free(owned);
    return buf;
}

void host_free(struct buffer *buf)
{
    struct host_buffer *b = (struct host_buffer *)buf;

    if (b == NULL)
        return;
    free(b->owned);
    free(b);
}

void host_write(struct backend *be, const struct tensor *dst, const void *src)
{
    (void)be;
    memcpy(host_ptr(dst), src, tensor_size(dst));
}

void host_copy(struct backend *be, const struct tensor *dst, const struct tensor *src)
{
    (void)be;
    memmove(host_ptr(dst), host_ptr(src), tensor_size(dst));
}

int host_read(struct backend *be, void *dst, const struct tensor *src, struct err *err)
{
    (void)be, (void)err;
    size_t size = tensor_size(src);
    if (size > 0)
        memcpy(dst, host_ptr(src), size);
    return 0;
}

int host_import(struct backend *be, struct tensor *out, const struct host_matrix *m, struct err *err)
{
    struct tensor t = {.buf = NULL, .off = 0, .dtype = m->dtype, .rows = m->rows, .cols = m->cols};
    size_t size = tensor_size(&t);

    if (m->file != NULL) {
        /* never written through: weights are inputs of every operation */
        t.buf = buffer_over(be, (void *)(uintptr_t)m->data, size, NULL, err);
    } else {
        t.buf = host_alloc(be, size, err);
        if (t.buf != NULL)
            memcpy(t.buf->host, m->data, size);
    }
    if (t.buf == NULL)
        return ERR_NOMEM;
    *out = t;
    return 0;
}

int host_export(struct backend *be, float *out, const struct tensor *w, struct err *err)
{
    (void)be, (void)err;
    for (int64_t r = 0; r < w->rows; r++)
        dtype_info(w->dtype)->to_f32(out + r * w->cols, host_ptr(w) + (size_t)r * host_row_size(w),
                                     (size_t)w->cols);
    return 0;
}

void host_begin(struct backend *be)
{
    (void)be;
}

int host_sync(struct backend *be, struct err *err)
{
    (void)be, (void)err;
    return 0;
}
