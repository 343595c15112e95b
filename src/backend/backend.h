/* The face a backend implements: one const table of functions.
 *
 * op.c calls the operations: it has checked shapes and counted before, and
 * calls from one thread at a time per instance.  guard.c and guard_ops.c stand
 * between: they work through a copy of the table, call the entries of the
 * backend's own, and ask identity and fall_back; the registry and they close.
 * A function that fails calls backend_fail() and returns; nothing later in the
 * step is called then.
 * Unless said otherwise calls enqueue and return; only sync and read block.
 * A new backend is a folder and a row in registry.c. */
#ifndef FORGE_BACKEND_BACKEND_H
#define FORGE_BACKEND_BACKEND_H

#include "backend/op.h"
#include "backend/profile.h"

enum backend_math { MATH_EXACT, MATH_FAST };
enum backend_gemm { GEMM_KERNELS_AUTO, GEMM_KERNELS_OWN, GEMM_KERNELS_CLBLAST };

struct backend_params {
    int n_threads;          /* CPU threads, 0 = the cores this process may use */
    enum backend_math math; /* exact: f32 activations and the canonical order of sums */
    bool cpu_fast;          /* `cpu` computes fast whatever `math` says to the others */
    bool deterministic;
    bool require_device;    /* every fallback is an error */
    bool no_selftest;
    struct op_heads heads;  /* checked with the device's operations */
    bool recheck;           /* a check that once passed is made again: the device has failed since */
    const char *cpu_isa;    /* forces a lower instruction set; NULL = the best */
    const char *kernels;    /* kernel family "cpu" or "gpu"; NULL = by device type */
    uint64_t mem_limit;     /* bytes for buffers, 0 = the device's own */
    const char *kernel_cache; /* folder of compiled kernels, made when it is missing; NULL = none is kept */
    const char *kernel_dir;   /* folder with the kernels' texts; NULL = those built in */
    bool profile;             /* the device is to time what it runs (op_profile starts it) */
    enum backend_gemm gemm;   /* who multiplies matrices of many rows on OpenCL */
    const char *clblast_params; /* file of CLBlast's parameters and of speeds; NULL = none */
    bool (*stop)(void *user);   /* asked while a device is checked: true ends that with ERR_CANCELLED; NULL = never */
    void *stop_user;
};

/* A copy with strings of its own; they are listed beside it in registry.c.  false: no memory; fini in any case. */
bool backend_params_copy(struct backend_params *out, const struct backend_params *p);
void backend_params_fini(struct backend_params *p);

/* Memory of one instance; a backend's own struct begins with this. */
struct buffer {
    struct backend *be;
    size_t size;
    uint8_t *host; /* its address where the host can use it (CPU backends), else NULL */
};

struct backend_ops {
    const char *name; /* "ref", "cpu", "opencl" */

    void (*close)(struct backend *be);
    void (*caps)(const struct backend *be, struct backend_caps *out);

    struct buffer *(*alloc)(struct backend *be, size_t size, struct err *err); /* zeroed */
    void (*free)(struct buffer *buf);
    void (*write)(struct backend *be, const struct tensor *dst, const void *src);
    void (*copy)(struct backend *be, const struct tensor *dst, const struct tensor *src);
    int (*read)(struct backend *be, void *dst, const struct tensor *src, struct err *err);
    int (*import)(struct backend *be, struct tensor *out, const struct host_matrix *m, struct err *err);
    int (*export)(struct backend *be, float *out, const struct tensor *w, struct err *err);
    void (*begin)(struct backend *be);
    int (*sync)(struct backend *be, struct err *err);
    /* Optional: what its results depend on, as a hash; says that the device is to be checked before use. */
    void (*identity)(const struct backend *be, uint64_t id[2]);
    /* Optional: computes this operation, for weights or pages of this type (DTYPE_F32 where it has none), with
     * plainer kernels from now on; false: it has none that are plainer.  For an operation with weights only
     * while none of that type are imported: its other operations go the same way. */
    bool (*fall_back)(struct backend *be, enum op_id op, enum dtype dtype);

    /* Optional: the device times the launches of the operation that ends now, and adds them to stats and prof
     * by the next sync or read; false: it does not. */
    bool (*timed)(struct backend *be, enum op_id op, uint64_t bytes, uint64_t flops);

    /* Optional: op_next. */
    void (*next)(struct backend *be, const struct tensor *w, int n);
    /* Optional: op_warm. */
    void (*warm)(struct backend *be, bool on);
    /* Optional, contracts in op.h: NULL = one way to multiply. */
    int (*tune_gemm)(struct backend *be, const struct tensor *w, int64_t n_rows, int reps, struct op_gemm_speed *out,
                     struct err *err);
    int (*tune_save)(struct backend *be, struct buf *text, struct err *err);

    /* required; contracts in op.h */
    void (*embed)(struct backend *, const struct tensor *out, const struct tensor *table, const struct tensor *ids, float scale);
    void (*rmsnorm)(struct backend *, const struct tensor *out, const struct tensor *x, const struct tensor *w, float eps, bool add_one);
    void (*linear)(struct backend *, const struct tensor *out, const struct tensor *x, const struct tensor *w, const struct tensor *bias);
    void (*rope)(struct backend *, const struct tensor *x, const struct tensor *cs, int n_heads, int n_rot, enum op_pairs pairs);
    void (*kv_store)(struct backend *, const struct kv_layer *kv, const struct tensor *k, const struct tensor *v, const struct kv_rows *rows);
    void (*attention)(struct backend *, const struct tensor *out, const struct tensor *q, const struct kv_layer *kv,
                      const struct kv_rows *rows, const struct attention_args *args);
    void (*act_mul)(struct backend *, const struct tensor *out, const struct tensor *gate, const struct tensor *up, enum op_act act);
    void (*add)(struct backend *, const struct tensor *out, const struct tensor *a, const struct tensor *b);
    void (*scale)(struct backend *, const struct tensor *x, float s);
    void (*softcap)(struct backend *, const struct tensor *x, float cap);
    void (*route)(struct backend *, const struct tensor *ids, const struct tensor *w, const struct tensor *logits, bool renorm);
    void (*linear_experts)(struct backend *, const struct tensor *out, const struct tensor *x, const struct tensor *experts,
                           int n_experts, const struct tensor *ids, const struct tensor *w);
    void (*gather_rows)(struct backend *, const struct tensor *out, const struct tensor *x, const struct tensor *rows);
    void (*argmax)(struct backend *, const struct tensor *out, const struct tensor *x);
    void (*topk)(struct backend *, const struct tensor *ids, const struct tensor *vals, const struct tensor *x);

    /* optional: composed in op.c where NULL, or where one declines (false) before it has enqueued anything */
    bool (*linear_qkv)(struct backend *, const struct tensor out[3], const struct tensor *x, const struct tensor w[3],
                       const struct tensor *const bias[3]);
    bool (*gate_up)(struct backend *, const struct tensor *out, const struct tensor *tmp, const struct tensor *x,
                    const struct tensor *wg, const struct tensor *wu, enum op_act act);
    bool (*linear_add)(struct backend *, const struct tensor *x, const struct tensor *tmp, const struct tensor *h,
                       const struct tensor *w, const struct tensor *bias);
    bool (*norm_rope)(struct backend *, const struct tensor *q, const struct tensor *k, const struct tensor *wq,
                      const struct tensor *wk, const struct tensor *cs, const struct norm_rope_args *args);
};

/* What op.c keeps for every instance; a backend's own struct begins with this. */
struct backend {
    const struct backend_ops *ops;
    char device[128];        /* name shown to users: "cpu", "opencl:0" */
    char detail[128];        /* what that is: "AMD EPYC ..., 2 threads, avx512"; may be empty */
    char chip[48];           /* equal where two instances compute on one chip; empty = not known */
    struct err latched;      /* first failure of the step; code 0 = none */
    struct op_stats stats[OP_COUNT];
    bool profiling;
    bool warming;            /* op_warm: operations compile what they would run, and compute nothing */
    double compile_s;        /* seconds that went into compiling; op_caps tells them */
    struct prof *prof;       /* profile.h; NULL = never profiled, or no memory for it */
    /* the operation in progress, kept by op.c for messages and times */
    const char *doing;                              /* its name, NULL = none */
    enum op_id doing_id;
    int64_t in_rows, in_cols, out_rows, out_cols;
    double started;
    const char *ran_on;   /* its device; guard.c names another, a backend its plainer kernels */
    char both[OP_COUNT][192]; /* the two of them, for operations that both have run */
    struct guard *guard;  /* guard.c; NULL = what the backend computes is taken as it is */
};

/* Latches a failure of the current operation (the first one wins). */
void backend_fail(struct backend *be, int code, const char *fmt, ...) ATTR_PRINTF(3, 4);

#endif
