/* The inner loops of the `cpu` backend, one table per instruction set.
 *
 * All tables give the same bits: kern_tmpl.h fixes the order of every sum and
 * is compiled once per set over a handful of 16-lane primitives.  Nothing here
 * knows threads, buffers or tensors: plain pointers and ranges only.
 *
 * The canonical sum of n terms: partial l of 16 takes the terms k = l mod 16
 * in rising order, by fma; then a[t] += a[t + 8] for t < 8, then 4, 2, 1. */
#ifndef FORGE_BACKEND_CPU_KERNELS_H
#define FORGE_BACKEND_CPU_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backend/op.h"

enum {
    KERN_LANES = 16,  /* partial sums of one output */
    KERN_TILE = 4,    /* rows of x up to which weights are used as stored; of queries in one tile */
    KERN_PANEL = 16,  /* rows of w dequantised together */
    KERN_STRIP = 512, /* values of a row dequantised at once: a multiple of every block */
    KERN_ROWS = 192,  /* rows of x that share a dequantised panel, at most */
    KERN_CHUNK = 64,  /* positions of one attention chunk */
    KERN_QUERIES = 32, /* queries that share a look-up and a widening of keys and values */
    KERN_KEYS = 16,   /* keys that all of them meet before the next ones */
    KERN_COLS = 64,   /* columns of values, likewise */
    KERN_WIDE = 1024  /* head_dim up to which that is done */
};

/* Scratch of one thread: about 224 KiB, meant for the second-level cache. */
struct kern_scratch {
    union {
        struct { /* linear */
            float w[KERN_PANEL * KERN_STRIP];
            float acc[KERN_ROWS * KERN_PANEL * KERN_LANES]; /* [x row][w row][lane] between strips */
        };
        struct { /* attention of one chunk: some of its keys, some columns of its values, scores */
            float keys[KERN_KEYS * KERN_WIDE], values[KERN_CHUNK * KERN_COLS], scores[KERN_QUERIES][KERN_CHUNK];
        };
    };
};

/* How `fast` rounds the rows of x that meet weights of a type: not at all (as in `exact`), or to int8 with
 * one scale for 32 values, or for 16. */
enum kern_fast { FAST_NONE, FAST_32, FAST_16, FAST_KINDS };

/* 32 values of x, x = d q */
struct kern_xblock {
    int8_t q[32];
    float d[2];   /* of each half */
    float sum[2]; /* d * (sum of q): of each half; with one scale of all, and 0 */
};

/* out[out_row(r)][o] = sum_k w[o][k] x[x_row(r)][k] (+ bias[o]) */
struct kern_linear {
    const uint8_t *w; /* rows of `row_size` bytes, any alignment */
    size_t row_size;
    enum dtype dtype;
    int64_t k, n_rows;
    const float *x;          /* [.., k] */
    const struct kern_xblock *xq; /* [.., k / 32] the same rounded; NULL = exact, or ... */
    const uint16_t *xb;      /* ... [.., kern_bf16_cols(k)] rounded to bf16, 64-byte aligned; NULL = not */
    float *out;              /* [.., out_cols] */
    int64_t out_cols;
    const int32_t *x_rows;   /* [n_rows], NULL = 0, 1, 2 ... */
    const int32_t *out_rows; /* [n_rows], NULL = 0, 1, 2 ... */
    const uint8_t *bias;     /* f32, any alignment; NULL = none */
    bool far;                /* one row of x meets rows of w that are far apart (kern_linear_tmpl.h) */
};

/* One query vector: a head of a row. */
struct kern_query {
    const float *q;      /* [head_dim] */
    float *out;          /* [head_dim] */
    int32_t first, last; /* positions it sees, both included */
};

/* The pages of one sequence and one kv head, as rows of F32, F16 or (head_dim mod 32 = 0) Q8_0. */
struct kern_kv {
    const uint8_t *k, *v;  /* the pools */
    const int32_t *pages;  /* [max_pages] of this sequence */
    int n_kv_heads, kv_head, head_dim, page_size;
    enum dtype dtype;
    size_t row_size;
    float scale, softcap;  /* softcap 0 = off */
};

/* Of one chunk for one query: the largest score and the sum of e^(score - m). */
struct kern_sum {
    float m, l;
};

struct cpu_kernels {
    const char *isa; /* NULL = not built */
    /* outputs o0 .. o1 of all rows */
    void (*linear)(const struct kern_linear *a, int64_t o0, int64_t o1, struct kern_scratch *s);
    /* the same from a->xq, rounded as kern_fast_kind says */
    void (*linear_fast)(const struct kern_linear *a, int64_t o0, int64_t o1, struct kern_scratch *s);
    /* BF16 weights: x rounded to bf16, and the same from a->xb; NULL where dot products of bf16 are no instruction */
    void (*narrow_bf16)(uint16_t *out, const float *x, int64_t n); /* kern_bf16_cols(n) values */
    void (*linear_bf16)(const struct kern_linear *a, int64_t o0, int64_t o1, struct kern_scratch *s);
    void (*quantize)(struct kern_xblock *out, const float *x, int64_t n, enum kern_fast kind); /* n mod 32 = 0 */
    /* n values of a row of w from element k0 (where a block begins) */
    void (*dequant)(float *out, enum dtype dtype, const uint8_t *row, int64_t k0, int64_t n);
    /* n_queries <= KERN_QUERIES queries of one sequence and kv head */
    void (*attention)(const struct kern_query *q, int n_queries, const struct kern_kv *kv, struct kern_scratch *s);
    /* The chunk at `start` alone, for n queries of each of n_heads kv heads from kv->kv_head on, head by head: each sees some
     * of it, gets *sums[i], and its o in q[i].out.  n_heads = 1 where n > KERN_TILE; n * n_heads <= KERN_QUERIES.  It is
     * expected that the same chunk of the heads after these follows. */
    void (*attention_chunk)(const struct kern_query *q, int n, int n_heads, const struct kern_kv *kv, int32_t start,
                            struct kern_sum *const *sums, struct kern_scratch *s);
    /* out [head_dim] of one query from its chunks in rising order: o [n, head_dim], sums [n] */
    void (*attention_join)(float *out, const float *o, const struct kern_sum *sums, int n, int head_dim);
    void (*narrow_f16)(uint16_t *out, const float *x, int64_t n); /* as f32_to_f16 */
    void (*rmsnorm)(float *out, const float *x, const uint8_t *w, int64_t n, float eps, bool add_one);
    void (*rope)(float *head, const float *cs, int n_rot, enum op_pairs pairs);
    void (*act_mul)(float *out, const float *x, const float *y, int64_t n, enum op_act act);
    void (*add)(float *out, const float *x, const float *y, int64_t n);
    void (*scale)(float *out, const float *x, float s, int64_t n);
    void (*softcap)(float *out, float cap, int64_t n);
    /* the first of the largest; -1 = some value is not finite */
    int32_t (*argmax)(const float *x, int64_t n);
    /* weights of the chosen experts from all logits */
    void (*route)(float *w, const int32_t *ids, int n_used, const float *logits, int64_t n, bool renorm);
    /* out[i] = sum_j w[j] y[j][i], j rising */
    void (*mix)(float *out, const float *w, const float *y, int n_used, int64_t n);
};

extern const struct cpu_kernels cpu_kernels_c, cpu_kernels_avx2, cpu_kernels_avx512, cpu_kernels_avx512vnni, cpu_kernels_avx512bf16,
    cpu_kernels_neon, cpu_kernels_neondot;

/* Q6_K has a scale for each 16 anyway; Q4_1 and Q5_1 need it for what trained models were measured to lose. */
static inline enum kern_fast kern_fast_kind(enum dtype t)
{
    switch (t) {
    case DTYPE_Q8_0: case DTYPE_Q4_0: case DTYPE_Q5_0: case DTYPE_Q4_K: case DTYPE_Q5_K: return FAST_32;
    case DTYPE_Q4_1: case DTYPE_Q5_1: case DTYPE_Q6_K: return FAST_16;
    default: return FAST_NONE;
    }
}

/* Values of a row of k as bf16: whole lines, with zeros behind the last. */
static inline int64_t kern_bf16_cols(int64_t k)
{
    return (k + 31) / 32 * 32;
}

/* The table for a name ("c", "avx2", "avx512", "avx512vnni", "avx512bf16", "neon", "neondot"), or the best for NULL;
 * NULL = not built or not supported by this processor. */
const struct cpu_kernels *kernels_find(const char *isa);

#endif
