/* The operations a forward pass is made of: the face that model/ and run/ see.
 *
 * Called at once, enqueued asynchronously on the instance's one in-order queue.
 * Every operation takes any number of rows; decode is n_rows = 1.  Rows are
 * flat, without padding, from many sequences.  Activations are f32; ids,
 * positions and indices are I32 tensors of one column.
 *
 * Errors latch within a step, as ferror() does: op_begin clears, the first
 * failure is kept with operation, sizes and device, later operations do
 * nothing, op_sync and op_read return it.  Shapes that do not fit are broken
 * contracts and asserted; they never come from outside bytes unchecked.
 *
 * Outputs first, then inputs.  An output may be the same tensor as an input
 * only where said ("in place"). */
#ifndef FORGE_BACKEND_OP_H
#define FORGE_BACKEND_OP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/attr.h"
#include "base/buf.h"
#include "base/err.h"
#include "tensor/tensor.h"

struct backend; /* one open instance: a device with its queue */

enum op_act { OP_SILU, OP_GELU_TANH, OP_GELU_ERF };
enum op_pairs { OP_PAIRS_HALVES, OP_PAIRS_INTERLEAVED };

/* K and V of one layer: pages of [n_kv_heads][page_size][head_dim].
 * As a tensor: rows = n_pages * n_kv_heads * page_size, cols = head_dim; F32 or F16. */
struct kv_layer {
    struct tensor k, v;
    int n_kv_heads, head_dim, page_size;
};

/* A model's attention, for which devices compile kernels of their own. */
struct op_heads {
    int n_heads, n_kv_heads, head_dim; /* n_heads 0 = not known */
    enum dtype pages;
};

/* Where each row stands.  Shared by kv_store and attention.  The last three tell the host of `pos` and `seq`,
 * which may lie on a device: op_rows_count fills them. */
struct kv_rows {
    struct tensor pos;   /* I32 [n_rows, 1] absolute position in its sequence */
    struct tensor seq;   /* I32 [n_rows, 1] row of `pages` */
    struct tensor pages; /* I32 [n_seqs, max_pages] page number of positions p * page_size ...; -1 = not held */
    int32_t max_pos;     /* the largest of pos */
    uint64_t n_seen;     /* positions that all rows look at: the sum of min(pos + 1, window) */
    uint64_t n_read;     /* the same, those that rows of one sequence share counted once */
};

struct attention_args {
    float scale;  /* on q . k */
    int window;   /* 0 = all positions up to the row's own; w = the last w, its own included */
    float softcap; /* 0 = off; else c * tanh(score / c) */
    int n_heads;  /* multiple of kv->n_kv_heads; head h reads kv head h / (n_heads / n_kv_heads) */
};

/* A matrix as it lies in a mapped file, for import. */
struct host_matrix {
    const char *name; /* for messages */
    enum dtype dtype;
    int64_t rows, cols;
    const void *data;
    const uint8_t *file; /* the mapping that holds data, NULL = none (then import copies, or the caller keeps data alive) */
    size_t file_size;
};

/* ---- memory ---- */
/* A buffer with a tensor over it; bytes are zero. Freed with op_free(t->buf). */
int op_alloc(struct backend *be, struct tensor *out, enum dtype dtype, int64_t rows, int64_t cols, struct err *err);
void op_free(struct buffer *buf); /* NULL is safe; legal while in use by enqueued work */
void op_write(struct backend *be, const struct tensor *dst, const void *src);  /* copies src before returning */
void op_copy(struct backend *be, const struct tensor *dst, const struct tensor *src); /* same size in bytes */
/* Waits for all enqueued work, then reads the tensor's bytes. */
int op_read(struct backend *be, void *dst, const struct tensor *src, struct err *err) ATTR_WARN_UNUSED;

/* ---- weights ---- */
/* The only place where a layout may change.  The host data must outlive the tensor when `file` is set. */
int op_import(struct backend *be, struct tensor *out, const struct host_matrix *m, struct err *err);
/* The exact f32 values back, [rows, cols]; for tests. */
int op_export(struct backend *be, float *out, const struct tensor *w, struct err *err);

/* ---- order ---- */
void op_begin(struct backend *be);
int op_sync(struct backend *be, struct err *err) ATTR_WARN_UNUSED;

/* The next product will be with these n matrices (of one op_linear, op_linear_qkv, op_gate_up, ...): a hint, which
 * changes no result. */
void op_next(struct backend *be, const struct tensor *w, int n);

/* While on, operations make the device ready for launches of their shapes: kernels are compiled, scratch is taken,
 * and what is computed means nothing (pages and outputs may be written).  False: this backend has nothing to make
 * ready, and its operations would run. */
bool op_warm(struct backend *be, bool on);

/* ---- operations ---- */
/* out[r] = scale * table[ids[r]]            out [n, d], table [vocab, d] any weight type */
void op_embed(struct backend *be, const struct tensor *out, const struct tensor *table, const struct tensor *ids, float scale);
/* out[r] = x[r] / sqrt(mean(x[r]^2) + eps) * (add_one ? 1 + w : w); w [1, d] f32. In place allowed.
 * A head's norm is the same on [n * n_heads, head_dim]. */
void op_rmsnorm(struct backend *be, const struct tensor *out, const struct tensor *x, const struct tensor *w, float eps, bool add_one);
/* out[r][o] = sum_k w[o][k] x[r][k] (+ bias[o]);  out [n, o], x [n, k], w [o, k] any weight type; bias [1, o] f32 or NULL */
void op_linear(struct backend *be, const struct tensor *out, const struct tensor *x, const struct tensor *w, const struct tensor *bias);
/* Rotates the first n_rot of each head's head_dim values in place.  x [n, n_heads * head_dim];
 * cs [n, n_rot] f32: cos and sin of pair i at columns 2i, 2i + 1, already scaled.
 * Pair i is (i, i + n_rot/2) for halves, (2i, 2i + 1) for interleaved. */
void op_rope(struct backend *be, const struct tensor *x, const struct tensor *cs, int n_heads, int n_rot, enum op_pairs pairs);
/* Writes row r's k and v [n, n_kv_heads * head_dim] to its place in the pages, rounding to their type. */
void op_kv_store(struct backend *be, const struct kv_layer *kv, const struct tensor *k, const struct tensor *v, const struct kv_rows *rows);
/* Fills max_pos, n_seen and n_read from the values of rows->pos and rows->seq, a sequence's rows in rising position;
 * window as in attention_args, 0 for kv_store alone. */
void op_rows_count(struct kv_rows *rows, const int32_t *pos, const int32_t *seq, int window);
/* Causal attention of each row over its own sequence's stored positions (its own included).
 * out, q [n, n_heads * head_dim]. */
void op_attention(struct backend *be, const struct tensor *out, const struct tensor *q, const struct kv_layer *kv,
                  const struct kv_rows *rows, const struct attention_args *args);
/* out = act(gate) * up; in place on gate allowed */
void op_act_mul(struct backend *be, const struct tensor *out, const struct tensor *gate, const struct tensor *up, enum op_act act);
void op_add(struct backend *be, const struct tensor *out, const struct tensor *a, const struct tensor *b); /* in place allowed */
void op_scale(struct backend *be, const struct tensor *x, float s);      /* x *= s */
void op_softcap(struct backend *be, const struct tensor *x, float cap);  /* x = cap * tanh(x / cap) */
/* Softmax over the experts' logits [n, n_experts], the n_used largest kept (lowest id first among equals), in
 * falling order; renorm divides by their sum.  ids I32 [n, n_used], w f32 [n, n_used]. */
void op_route(struct backend *be, const struct tensor *ids, const struct tensor *w, const struct tensor *logits, bool renorm);
/* Matrices of the experts a row was routed to.  experts[e] [o, k].
 *   w == NULL: x [n, k] -> out [n * n_used, o], row r * n_used + j by expert ids[r][j]
 *   else     : x [n * n_used, k] -> out [n, o] = sum_j w[r][j] * (experts[ids[r][j]] x[r * n_used + j]), j rising */
void op_linear_experts(struct backend *be, const struct tensor *out, const struct tensor *x, const struct tensor *experts,
                       int n_experts, const struct tensor *ids, const struct tensor *w);
/* out[i] = x[rows[i]];  rows I32 [m, 1] */
void op_gather_rows(struct backend *be, const struct tensor *out, const struct tensor *x, const struct tensor *rows);
/* out I32 [n, 1]: the lowest id of the largest value; -1 when a row holds a value that is not finite */
void op_argmax(struct backend *be, const struct tensor *out, const struct tensor *x);
/* The k largest of each row, falling, lowest id first among equals: ids I32 [n, k], vals f32 [n, k];
 * ids[r][0] = -1 when a row holds a value that is not finite */
void op_topk(struct backend *be, const struct tensor *ids, const struct tensor *vals, const struct tensor *x);

/* ---- fused forms: a backend may do them in one; otherwise composed, with the same bits under exact ---- */
void op_linear_qkv(struct backend *be, const struct tensor out[3], const struct tensor *x, const struct tensor w[3],
                   const struct tensor *const bias[3]);
/* out = act(x wg^T) * (x wu^T); tmp like out */
void op_gate_up(struct backend *be, const struct tensor *out, const struct tensor *tmp, const struct tensor *x,
                const struct tensor *wg, const struct tensor *wu, enum op_act act);
/* x += h w^T (+ bias); tmp like x */
void op_linear_add(struct backend *be, const struct tensor *x, const struct tensor *tmp, const struct tensor *h,
                   const struct tensor *w, const struct tensor *bias);

/* Heads before attention: each head of q and k is normed where wq, wk [1, head_dim] are not NULL, then rotated, in
 * place.  q [n, n_heads * head_dim], k [n, n_kv_heads * head_dim], cs as for op_rope. */
struct norm_rope_args {
    float eps;
    bool add_one;
    int n_heads, n_kv_heads, head_dim, n_rot;
    enum op_pairs pairs;
};
void op_norm_rope(struct backend *be, const struct tensor *q, const struct tensor *k, const struct tensor *wq,
                  const struct tensor *wk, const struct tensor *cs, const struct norm_rope_args *args);

/* ---- what the instance is and what it did ---- */
enum op_id {
    OP_EMBED, OP_RMSNORM, OP_LINEAR, OP_ROPE, OP_KV_STORE, OP_ATTENTION, OP_ACT_MUL, OP_ADD, OP_SCALE, OP_SOFTCAP,
    OP_ROUTE, OP_LINEAR_EXPERTS, OP_GATHER_ROWS, OP_ARGMAX, OP_TOPK, OP_LINEAR_QKV, OP_GATE_UP, OP_LINEAR_ADD,
    OP_NORM_ROPE, OP_COUNT
};
const char *op_name(enum op_id op);

struct op_stats {
    uint64_t calls, rows;
    uint64_t bytes, flops; /* from the shapes: what must be moved and computed */
    double seconds;        /* only while profiling: of its kernels where the device times them */
    const char *device;    /* who ran it, "opencl:0, cpu" where another device did a part; NULL = never called */
};
const struct op_stats *op_stats(const struct backend *be, enum op_id op);
void op_stats_reset(struct backend *be);
/* Times operations and keeps a trace (profile.h).  A device that was opened with params.profile times its
 * kernels itself; else each operation is waited for. */
void op_profile(struct backend *be, bool on);
const char *op_device(const struct backend *be); /* "cpu", "ref", "opencl:0 ..." as printed to users */

struct backend_caps {
    bool host_memory;   /* buffers are addressable through buffer.host at any time after sync */
    size_t max_alloc;   /* bytes of one buffer, 0 = no limit known */
    uint64_t mem_size;  /* bytes of the device, 0 = unknown */
    int n_threads;      /* that compute, 0 = unknown */
    bool shares_host;   /* computes in the host's memory: what it takes counts there, once */
    bool kv_q8_0;       /* stores and attends pages of Q8_0, too; all do F32 and F16 */
    double compile_s;   /* seconds that went into compiling kernels so far */
};
void op_caps(const struct backend *be, struct backend_caps *out);

/* ---- who multiplies: a backend's own kernels, or a library ---- */
struct op_gemm_speed {
    double own_s, other_s; /* one product; other_s = 0: it cannot be used, why tells */
    double error;          /* sum (own - other)^2 / sum own^2 */
    char why[160];
};
/* Measures both on weight w and n_rows random rows, the median of reps, and keeps the result where the backend
 * keeps such things.  ERR_UNSUPPORTED: there is no choice. */
int op_tune_gemm(struct backend *be, const struct tensor *w, int64_t n_rows, int reps, struct op_gemm_speed *out,
                 struct err *err);
/* Adds all that was measured, as a text for backend_params.clblast_params. */
int op_tune_save(struct backend *be, struct buf *text, struct err *err);

#endif
