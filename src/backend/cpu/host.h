/* What the two CPU backends share: buffers in host memory, weights used where
 * they lie in the mapped file, and the operations that only move or pick
 * values and therefore have one right answer.  Both run everything at once in
 * the caller's thread, so that order needs no work. */
#ifndef FORGE_BACKEND_CPU_HOST_H
#define FORGE_BACKEND_CPU_HOST_H

#include <string.h>

#include "backend/backend.h"

/* opened by the registry only; *params is read, not kept */
int cpu_open(struct backend **out, const struct backend_params *params, struct err *err);
int ref_open(struct backend **out, const struct backend_params *params, struct err *err);

/* "AMD EPYC 9B45, 2 threads, avx512"; isa NULL = the best. */
const char *cpu_describe(char *out, size_t size, int n_threads, const char *isa);
/* Instruction sets built in and supported here, best first: "avx512, avx2, c". */
const char *cpu_isa_list(char *out, size_t size);

/* Whether memory is read fastest from several rows far apart, each page by page (kern_linear.far). */
bool cpu_reads_far(void);

/* ---- buffer.c: the memory half of backend_ops ---- */
void host_caps(const struct backend *be, struct backend_caps *out);
struct buffer *host_alloc(struct backend *be, size_t size, struct err *err);
void host_free(struct buffer *buf);
void host_write(struct backend *be, const struct tensor *dst, const void *src);
void host_copy(struct backend *be, const struct tensor *dst, const struct tensor *src);
int host_read(struct backend *be, void *dst, const struct tensor *src, struct err *err);
int host_import(struct backend *be, struct tensor *out, const struct host_matrix *m, struct err *err);
int host_export(struct backend *be, float *out, const struct tensor *w, struct err *err);
void host_begin(struct backend *be);
int host_sync(struct backend *be, struct err *err);

/* ---- pick.c ---- */
void host_kv_store(struct backend *be, const struct kv_layer *kv, const struct tensor *k,
                   const struct tensor *v, const struct kv_rows *rows);
/* Rows lo .. hi of k and v; narrow rounds to f16, as f32_to_f16 does. */
typedef void host_narrow_fn(uint16_t *out, const float *x, int64_t n);
void host_kv_store_rows(const struct kv_layer *kv, const struct tensor *k, const struct tensor *v,
                        const struct kv_rows *rows, int64_t lo, int64_t hi, host_narrow_fn *narrow);
void host_gather_rows(struct backend *be, const struct tensor *out, const struct tensor *x,
                      const struct tensor *rows);
void host_argmax(struct backend *be, const struct tensor *out, const struct tensor *x);
void host_topk(struct backend *be, const struct tensor *ids, const struct tensor *vals,
               const struct tensor *x);
/* Ids of the k largest of x[0..n), falling, lowest id first among equals; always k different
 * ids below n, whatever the values are (NaN counts as smallest). */
void host_select(int32_t *ids, int k, const float *x, int64_t n);

/* ---- addresses ---- */
static inline uint8_t *host_ptr(const struct tensor *t)
{
    return t->buf->host + t->off;
}

/* Activations lie in our own buffers: aligned. */
static inline float *host_f32(const struct tensor *t)
{
    return (void *)host_ptr(t);
}

static inline const int32_t *host_i32(const struct tensor *t)
{
    return (const void *)host_ptr(t);
}

/* Weights lie in files: at any address. */
static inline float host_load(const uint8_t *f32s, int64_t i)
{
    float v;
    memcpy(&v, f32s + 4 * i, sizeof v);
    return v;
}

/* Bytes of one row. */
static inline size_t host_row_size(const struct tensor *t)
{
    const struct dtype_info *d = dtype_info(t->dtype);
    return (size_t)t->cols / d->block_elems * d->block_size;
}

/* The stored row of position p of sequence s for kv head h; `t` is kv->k or kv->v.
 * Pages are [n_kv_heads][page_size][head_dim]. */
const uint8_t *host_kv_row(const struct kv_layer *kv, const struct tensor *t, const struct kv_rows *rows,
                           int32_t s, int32_t p, int h);

#endif
