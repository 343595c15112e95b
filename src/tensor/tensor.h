/* A matrix in some backend's memory: what every operation takes and returns.
 *
 * Row-major, columns contiguous, no strides: a view of some rows (one of
 * several fused projections, one head's norm) is the same buffer at another
 * offset or another split of rows and columns. */
#ifndef FORGE_TENSOR_TENSOR_H
#define FORGE_TENSOR_TENSOR_H

#include <stddef.h>
#include <stdint.h>

#include "tensor/dtype.h"

struct buffer; /* memory of one backend instance; see backend/backend.h */

struct tensor {
    struct buffer *buf; /* borrowed */
    size_t off;         /* bytes from the buffer's start */
    enum dtype dtype;   /* DTYPE_I32 for ids, positions, indices */
    int64_t rows, cols;
};

/* Row r .. r+n of t as its own tensor. dtype's row size must be whole blocks. */
struct tensor tensor_rows(const struct tensor *t, int64_t r, int64_t n);
/* The same bytes as [rows, cols]; rows * cols must be unchanged. */
struct tensor tensor_reshape(const struct tensor *t, int64_t rows, int64_t cols);
size_t tensor_size(const struct tensor *t); /* bytes */

#endif
