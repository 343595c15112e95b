/* Memory, weights and order: the part of op.h that moves bytes instead of
 * computing.  Owns the size checks before a backend allocates or imports and
 * the law of the latched error; must not know any particular backend. */
#include <assert.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#include "backend/backend.h"
#include "base/mem.h"

void backend_fail(struct backend *be, int code, const char *fmt, ...)
{
    char what[ERR_MSG_SIZE];
    va_list args;

    if (be->latched.code != 0)
        return;
    va_start(args, fmt);
    vsnprintf(what, sizeof what, fmt, args);
    va_end(args);
    if (be->doing == NULL)
        err_set(&be->latched, code, "%s: %s", be->device, what);
    else
        err_set(&be->latched, code, "%s: %s of [%" PRId64 ", %" PRId64 "] to [%" PRId64 ", %" PRId64 "]: %s",
                be->device, be->doing, be->in_rows, be->in_cols, be->out_rows, be->out_cols, what);
}

/* What latched in this step, copied out; 0 = nothing. */
static int latched(const struct backend *be, struct err *err)
{
    if (be->latched.code != 0 && err != NULL)
        *err = be->latched;
    return be->latched.code;
}

static ATTR_UNUSED bool inside(const struct backend *be, const struct tensor *t)
{
    size_t end;
    return t->buf != NULL && t->buf->be == be && mem_add(t->off, tensor_size(t), &end) && end <= t->buf->size;
}

/* What a process can address at most on the machines there are: 2^47 of 64 bits. */
#define SIZE_LIMIT (PTRDIFF_MAX > INT32_MAX ? PTRDIFF_MAX >> 16 : PTRDIFF_MAX)

/* Bytes of a [rows, cols] matrix. */
static int matrix_size(size_t *size, enum dtype dtype, int64_t rows, int64_t cols, const char *name,
                       struct err *err)
{
    size_t row;

    if (rows < 0 || cols <= 0 || !dtype_row_size(dtype, cols, &row))
        return err_set(err, ERR_ARG,
                       "%s: [%" PRId64 ", %" PRId64 "] is no shape for %s (blocks of %u values)", name, rows,
                       cols, dtype_info(dtype)->name, dtype_info(dtype)->block_elems);
    if ((uint64_t)rows > SIZE_MAX || !mem_mul(row, (size_t)rows, size) || *size > SIZE_LIMIT)
        return err_set(err, ERR_NOMEM, "%s: [%" PRId64 ", %" PRId64 "] %s is larger than the address space",
                       name, rows, cols, dtype_info(dtype)->name);
    return 0;
}

int op_alloc(struct backend *be, struct tensor *out, enum dtype dtype, int64_t rows, int64_t cols,
             struct err *err)
{
    size_t size;
    int rc = matrix_size(&size, dtype, rows, cols, be->device, err);

    if (rc != 0)
        return rc;
    struct buffer *buf = be->ops->alloc(be, size, err);
    if (buf == NULL)
        return err != NULL && err->code != 0 ? err->code : ERR_NOMEM;
    *out = (struct tensor){.buf = buf, .off = 0, .dtype = dtype, .rows = rows, .cols = cols};
    return 0;
}

void op_free(struct buffer *buf)
{
    if (buf != NULL)
        buf->be->ops->free(buf);
}

void op_write(struct backend *be, const struct tensor *dst, const void *src)
{
    assert(inside(be, dst));
    if (be->latched.code == 0 && tensor_size(dst) > 0)
        be->ops->write(be, dst, src);
}

void op_copy(struct backend *be, const struct tensor *dst, const struct tensor *src)
{
    assert(inside(be, dst) && inside(be, src));
    assert(tensor_size(dst) == tensor_size(src));
    if (be->latched.code == 0 && tensor_size(dst) > 0)
        be->ops->copy(be, dst, src);
}

int op_read(struct backend *be, void *dst, const struct tensor *src, struct err *err)
{
    assert(inside(be, src));
    if (be->latched.code != 0)
        return latched(be, err);
    int rc = be->ops->read(be, dst, src, err);
    if (rc != 0) /* what was enqueued before may have failed only now */
        err_wrap(err, "reading [%" PRId64 ", %" PRId64 "] %s", src->rows, src->cols, dtype_info(src->dtype)->name);
    return rc != 0 ? rc : latched(be, err);
}

int op_import(struct backend *be, struct tensor *out, const struct host_matrix *m, struct err *err)
{
    const char *name = m->name != NULL ? m->name : "weight";
    size_t size;

    if (!dtype_runnable(m->dtype))
        return err_set(err, ERR_UNSUPPORTED, "%s: type %s cannot be run", name, dtype_info(m->dtype)->name);
    if (m->rows <= 0)
        return err_set(err, ERR_ARG, "%s: no rows", name);
    int rc = matrix_size(&size, m->dtype, m->rows, m->cols, name, err);
    if (rc != 0)
        return rc;
    if (m->file != NULL) {
        /* compared as integers: data outside of the file must not be a pointer computation */
        uintptr_t data = (uintptr_t)m->data, file = (uintptr_t)m->file;
        if (data < file || data - file > m->file_size || size > m->file_size - (data - file))
            return err_set(err, ERR_FORMAT, "%s: its %zu bytes do not lie within the file of %zu bytes", name,
                           size, m->file_size);
    }
    return be->ops->import(be, out, m, err);
}

int op_export(struct backend *be, float *out, const struct tensor *w, struct err *err)
{
    assert(inside(be, w));
    if (!dtype_runnable(w->dtype))
        return err_set(err, ERR_UNSUPPORTED, "%s: type %s has no f32 values", be->device,
                       dtype_info(w->dtype)->name);
    return be->ops->export(be, out, w, err);
}

void op_begin(struct backend *be)
{
    err_clear(&be->latched);
    be->doing = NULL;
    be->ops->begin(be);
}

int op_sync(struct backend *be, struct err *err)
{
    struct err own = {0};
    int rc = be->ops->sync(be, &own);

    if (be->latched.code == 0 && rc != 0)
        be->latched = own;
    return latched(be, err);
}
