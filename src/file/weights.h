/* One view of every weights file: named host tensors, mapped and not copied.
 *
 * Behind it: safetensors, PyTorch zip archives, GGUF; single, sharded, or a
 * folder.  The format is found by content, never by suffix.  Knows nothing of
 * architectures. */
#ifndef FORGE_FILE_WEIGHTS_H
#define FORGE_FILE_WEIGHTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "tensor/dtype.h"

#define WEIGHT_DIMS_MAX 8

enum weights_format { WEIGHTS_SAFETENSORS, WEIGHTS_PTH, WEIGHTS_GGUF };

struct weight {
    const char *name;
    enum dtype dtype;
    int n_dims;                     /* 0 = scalar */
    int64_t shape[WEIGHT_DIMS_MAX]; /* outermost first, as PyTorch prints it (GGUF's order is turned round) */
    const uint8_t *data;            /* row-major, contiguous, of any alignment; NULL when there are no elements */
    size_t size;                    /* bytes */
    int file;                       /* index for weights_file() */
    size_t offset;                  /* of the first byte within that file, for inspect */
    bool copied;                    /* true where strides forced a contiguous copy (.pth) */
};

struct weights;
struct gguf;

/* Opens a file or a folder (see folder.c for the folder's rules).  Checks every offset and size
 * against the file before returning; reads no weight.  *out is NULL on error. */
int weights_open(struct weights **out, const char *path, struct err *err);
void weights_close(struct weights *w);

enum weights_format weights_format(const struct weights *w);
const char *weights_format_name(enum weights_format f); /* "safetensors", "PyTorch", "GGUF" */
size_t weights_count(const struct weights *w);
const struct weight *weights_at(const struct weights *w, size_t i); /* in file order */
const struct weight *weights_find(const struct weights *w, const char *name);

int weights_n_files(const struct weights *w);
const char *weights_file(const struct weights *w, int i);              /* path */
const uint8_t *weights_file_data(const struct weights *w, int i, size_t *size); /* whole mapping, for zero-copy imports */
const char *weights_path(const struct weights *w); /* as given, for messages */
const char *weights_dir(const struct weights *w);  /* folder in which config.json and tokenizer.json would lie */
uint64_t weights_bytes(const struct weights *w);   /* sum of all tensors */
int64_t weight_elems(const struct weight *t);

/* The metadata of a GGUF, NULL for other formats. */
const struct gguf *weights_gguf(const struct weights *w);

/* Reads every weight; counts NaN and Inf over tensors that can be dequantised. */
int weights_check(const struct weights *w, uint64_t *n_nan, uint64_t *n_inf, struct err *err);

#endif
