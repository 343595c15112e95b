/* One instance of the `cpu` backend, and how its operations use its threads.
 * Private to backend/cpu: linear.c, elem.c and attention.c split the work,
 * kernels.h does it. */
#ifndef FORGE_BACKEND_CPU_CPU_H
#define FORGE_BACKEND_CPU_CPU_H

#include <stdatomic.h>

#include "backend/backend.h"
#include "backend/cpu/kernels.h"
#include "base/thread.h"

/* What nobody has taken yet of a thread's share (cpu.c); a line of its own. */
struct cpu_share {
    _Alignas(64) _Atomic uint64_t grains;
};

/* What a thread asks memory for while it waits; a line of its own. */
struct cpu_ahead {
    _Alignas(64) atomic_uintptr_t from; /* where its share of the next product begins; 0 = not known */
    uintptr_t seen, at;                 /* the thread's own: `from` as it was taken, and how far that came */
};

/* Rows of one sequence whose queries meet a chunk together. */
struct attn_block {
    int64_t row, n_rows;
    int32_t chunk, n_chunks; /* that some of them see */
    int64_t item;            /* [n_chunks, kv heads in parts] items from here on */
};

struct cpu {
    struct backend be;
    const struct cpu_kernels *k;
    struct pool *pool;
    int n_threads;
    enum backend_math math;
    bool far; /* kern_linear.far */
    struct kern_scratch **scratch; /* [n_threads] */
    struct cpu_share *shares;      /* [n_threads] */
    struct cpu_ahead *ahead;       /* [n_threads] */
    struct kern_xblock *xq[FAST_KINDS]; /* rows of x rounded under `fast`; grown at need, kept */
    size_t n_xq[FAST_KINDS];
    uint16_t *xb; /* the same as bf16 */
    size_t n_xb;
    /* of linear_experts; grown at need, kept */
    int32_t *order; /* [n_experts + 1 + 2 n_pairs] pairs sorted by expert */
    size_t n_order;
    struct kern_linear *parts; /* [n_experts] */
    size_t n_parts;
    float *pairs_out; /* [n_pairs, cols] each expert's output before the weighted sum */
    size_t n_pairs_out;
    /* of attention with its chunks apart, as attention.c says; grown at need, kept */
    struct attn_block *attn_blocks;
    size_t n_attn_blocks;
    int64_t *attn_first;
    size_t n_attn_first;
    struct kern_sum *attn_sums;
    size_t n_attn_sums;
    float *attn_o;
    size_t n_attn_o;
};

/* Calls fn for parts of 0 .. n of whole grains of items (the last may be shorter), spread over the
 * threads as they become free, the last ones of one grain; everything in the caller's thread when one part is enough.
 * What an item computes must not depend on the part it is in. */
typedef void range_fn(struct cpu *cpu, const void *arg, int64_t lo, int64_t hi, struct kern_scratch *s);
void cpu_for(struct cpu *cpu, int64_t n, int64_t grain, range_fn *fn, const void *arg);

/* Where thread t's share of n items begins. */
int64_t cpu_share_start(const struct cpu *cpu, int64_t n, int64_t grain, int t);
/* Where thread t will begin to read, which it asks for while it waits; NULL = nothing, for it begins. */
void cpu_ask_ahead(struct cpu *cpu, int t, const uint8_t *from);

/* Items of `cost` operations each that are worth a thread's waking. */
int64_t cpu_grain(int64_t cost);

/* elem.c */
void cpu_embed(struct backend *, const struct tensor *out, const struct tensor *table,
               const struct tensor *ids, float scale);
void cpu_rmsnorm(struct backend *, const struct tensor *out, const struct tensor *x, const struct tensor *w,
                 float eps, bool add_one);
void cpu_rope(struct backend *, const struct tensor *x, const struct tensor *cs, int n_heads, int n_rot,
              enum op_pairs pairs);
void cpu_act_mul(struct backend *, const struct tensor *out, const struct tensor *gate,
                 const struct tensor *up, enum op_act act);
void cpu_add(struct backend *, const struct tensor *out, const struct tensor *a, const struct tensor *b);
void cpu_scale(struct backend *, const struct tensor *x, float s);
void cpu_softcap(struct backend *, const struct tensor *x, float cap);
void cpu_argmax(struct backend *, const struct tensor *out, const struct tensor *x);
void cpu_route(struct backend *, const struct tensor *ids, const struct tensor *w,
               const struct tensor *logits, bool renorm);

/* linear.c */
void cpu_linear(struct backend *, const struct tensor *out, const struct tensor *x, const struct tensor *w,
                const struct tensor *bias);
void cpu_next(struct backend *, const struct tensor *w, int n);
bool cpu_linear_qkv(struct backend *, const struct tensor out[3], const struct tensor *x,
                    const struct tensor w[3], const struct tensor *const bias[3]);
bool cpu_gate_up(struct backend *, const struct tensor *out, const struct tensor *tmp, const struct tensor *x,
                 const struct tensor *wg, const struct tensor *wu, enum op_act act);
void cpu_linear_experts(struct backend *, const struct tensor *out, const struct tensor *x,
                        const struct tensor *experts, int n_experts, const struct tensor *ids,
                        const struct tensor *w);

/* attention.c */
void cpu_kv_store(struct backend *, const struct kv_layer *kv, const struct tensor *k, const struct tensor *v,
                  const struct kv_rows *rows);
void cpu_attention(struct backend *, const struct tensor *out, const struct tensor *q,
                   const struct kv_layer *kv, const struct kv_rows *rows, const struct attention_args *args);

#endif
