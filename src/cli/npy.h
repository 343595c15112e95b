/* .npy files of numbers: written row by row, read over a mapping.
 * Format: NumPy's NEP 1, versions 1.0 to 3.0, C order, little-endian <f4 (and
 * <f8 for reading). */
#ifndef FORGE_CLI_NPY_H
#define FORGE_CLI_NPY_H

#include <stdint.h>

#include "base/err.h"
#include "base/map.h"
#include "cli/out.h"

struct npy_writer {
    struct out_file out; /* out.f NULL = not writing */
};
/* shape [n_dims], 1 or 2 of them. */
int npy_create(struct npy_writer *w, const char *path, const int64_t *shape, int n_dims, struct err *err);
int npy_put(struct npy_writer *w, const float *x, size_t n, struct err *err);
/* Closes: the file is in its place, or with keep = false nothing is left. Safe after a failed create. */
int npy_finish(struct npy_writer *w, bool keep, struct err *err);
/* All in one. */
int npy_write(const char *path, const float *x, const int64_t *shape, int n_dims, struct err *err);

struct npy {
    struct map map;
    int64_t rows, cols; /* one dimension reads as one row */
    size_t data_off;
    bool f64;
};
int npy_open(struct npy *a, const char *path, struct err *err);
void npy_close(struct npy *a);
void npy_row(const struct npy *a, int64_t row, float *out); /* [cols] */

#endif
