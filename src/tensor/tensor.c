/* Views of matrices: arithmetic on {offset, rows, cols}, nothing else.
 *
 * Touches no buffer and knows no backend. */
#include "tensor/tensor.h"

#include <assert.h>

/* Shapes were checked when the tensor was made, so a row always has a size. */
static size_t row_size(const struct tensor *t)
{
    size_t bytes = 0;
    bool ok = dtype_row_size(t->dtype, t->cols, &bytes);
    assert(ok);
    (void)ok;
    return bytes;
}

struct tensor tensor_rows(const struct tensor *t, int64_t r, int64_t n)
{
    assert(r >= 0 && n >= 0 && r <= t->rows && n <= t->rows - r);
    struct tensor v = *t;
    v.off += (size_t)r * row_size(t);
    v.rows = n;
    return v;
}

struct tensor tensor_reshape(const struct tensor *t, int64_t rows, int64_t cols)
{
    assert(rows >= 0 && cols >= 0 && rows * cols == t->rows * t->cols);
    struct tensor v = *t;
    v.rows = rows;
    v.cols = cols;
    return v;
}

size_t tensor_size(const struct tensor *t)
{
    return (size_t)t->rows * row_size(t);
}
