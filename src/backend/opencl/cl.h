/* What the files of backend/opencl share: the device, the instance, its
 * buffers, programs and launches.  Nothing outside this folder includes it or
 * CL/cl.h.
 *
 * OpenCL 1.2 calls only; what a device has beyond is asked for, never assumed.
 * An instance is used by one thread at a time.  Calls that fail latch through
 * cl_fail() with the operation, the device and the code's name. */
#ifndef FORGE_BACKEND_OPENCL_CL_H
#define FORGE_BACKEND_OPENCL_CL_H

#define CL_TARGET_OPENCL_VERSION 120
#define CL_USE_DEPRECATED_OPENCL_1_2_APIS
#include <CL/cl.h>

#include "backend/backend.h"
#include "base/hash.h"

/* ---- devices (device.c, select.c) ---- */
struct cl_device {
    cl_platform_id platform;
    cl_device_id id;
    int number; /* in `forge devices`: over all platforms */
    int platform_no, device_no;
    cl_device_type type;    /* one bit: GPU before ACCELERATOR before CPU where several are set */
    bool integrated;        /* shares the host's memory */
    int version, c_version; /* 10 * major + minor, 0 = could not be read */
    char name[128], vendor[64], driver[64], platform_name[64], version_text[64];
    uint64_t mem_size; /* 0 = unknown */
    size_t max_alloc;  /* 0 = unknown */
    size_t local_size; /* bytes of local memory */
    size_t max_group, max_item[3];
    size_t base_align; /* bytes */
    unsigned units;
    unsigned vector_width; /* floats that are computed at once, as told; 1: vectors are taken apart */
    bool fp16, subgroups, int_dot, fp64; /* by extension string; only a reason to try */
    int sub_least; /* lanes of its smallest sub-groups where that can be chosen, 0 = not told */
    char uuid[33];                       /* hex, empty = not told */
    int twin; /* number of the same chip seen before through another platform, -1 = none */
};
struct cl_device_set {
    struct cl_device *v;
    size_t n;
    char **skipped; /* one line each, why */
    size_t n_skipped;
};
/* Never fails because one platform does; no platform at all is an empty set with a line in `skipped`. */
int cl_device_set_open(struct cl_device_set *s, struct err *err);
void cl_device_set_close(struct cl_device_set *s);
/* "opencl", "opencl:gpu", "opencl:cpu", "opencl:N", "opencl:P.D".  NULL + err. */
const struct cl_device *cl_device_select(const struct cl_device_set *s, const char *selector,
                                         struct err *err);

/* ---- codes (clerr.c) ---- */
const char *cl_error_name(cl_int code); /* "CL_OUT_OF_RESOURCES", never NULL */
int cl_error_class(cl_int code);        /* ERR_NOMEM or ERR_DEVICE */

/* ---- instance (instance.c) ---- */
enum cl_family { CL_FAMILY_CPU, CL_FAMILY_GPU };

/* What an operation runs, per family: rows of the table in variants.c. */
enum cl_kern {
    CLK_EMBED,
    CLK_DEQUANT,
    CLK_RMSNORM,
    CLK_ROPE,
    CLK_NORM_ROPE,
    CLK_KV_STORE,
    CLK_LINEAR_1,
    CLK_LINEAR_2,
    CLK_LINEAR_4,
    CLK_LINEAR_MANY, /* of f32 weights */
    CLK_WIDEN,
    CLK_LINEAR_EXPERTS,
    CLK_EXPERTS_4,
    CLK_MIX,
    CLK_COUNT_PAIRS,
    CLK_GROUP_PAIRS,
    CLK_LINEAR_QKV,
    CLK_GATE_UP,
    CLK_SILU_MUL,
    CLK_GELU_TANH_MUL,
    CLK_GELU_ERF_MUL,
    CLK_ADD,
    CLK_SCALE,
    CLK_SOFTCAP,
    CLK_ROUTE,
    CLK_GATHER_ROWS,
    CLK_ARGMAX_PART,
    CLK_ARGMAX_JOIN,
    CLK_TOPK,
    CLK_COUNT
};
enum { CL_N_WEIGHTS = DTYPE_N_WEIGHTS };

/* Kernels beyond the base, where the device has what they ask for: rows of a table in variants.c. */
enum cl_variant {
    CLV_SUB,  /* sub-groups */
    CLV_DOT,  /* integer dot products on int8 activations */
    CLV_HALF, /* half arithmetic */
    CLV_COUNT
};

/* Memory over a part of a mapped file, shared by the tensors in it. */
struct cl_window {
    struct cl_window *next;
    const uint8_t *start; /* host address, page aligned */
    size_t size;
    cl_mem mem;
    int refs;
};

struct clb {             /* the backend */
    struct backend base; /* first */
    struct cl_device dev;
    struct backend_params params; /* with strings of its own */
    enum cl_family family;
    bool gpu; /* the GPU family on a device whose groups and local memory it fits */
    uint32_t plain[OP_COUNT]; /* operations whose GPU variant is not used: bit 1 << dtype (cl_fall_back) */
    char plain_name[144];     /* "opencl:0 (base kernels)": these, in the placement table */
    uint32_t refused[CLV_COUNT][OP_COUNT]; /* variants found wrong or not to be had: bit 1 << dtype */
    char variant_name[CLV_COUNT][160];     /* "opencl:0 (sub-groups)": these, in the placement table */
    struct {
        cl_kernel k;
        int n; /* sub-groups of a group of 64 */
    } sub_counts[32];
    int n_sub_counts;
    char sub_least[24]; /* " -DSUB_LEAST=16", for kernels with MOST_REGISTERS (cl/common.clh), or nothing */
    bool canonical; /* own kernels in the canonical order of sums for any number of rows */
    cl_context ctx;
    cl_command_queue queue;
    size_t most_groups; /* of a launch in dimensions 1 and 2; more go in parts (launch.c) */
    int unflushed; /* launches since the last flush (launch.c) */
    struct cl_programs *programs; /* program.c */
    struct cl_scratch *scratch;   /* grown on demand at load, see cl_scratch_get */
    struct cl_profile *profile;   /* profile.c; NULL = off */
    uint64_t used;                /* bytes allocated */
    uint64_t budget;              /* 0 = unknown */
    double warm_start, warm_built; /* when op_warm began, and compile_s by then */
    bool zero_copy; /* weights stay in the mapped file */
    bool told_copied; /* why some do not, once */
    struct cl_window *windows;
    cl_kernel kern[CLK_COUNT][CL_N_WEIGHTS]; /* of variants.c, as far as used */
    /* copies of what op_write was given, until the device has read them */
    uint8_t *staging;
    size_t staging_used;
    struct cl_expert_table *tables; /* experts.c */
    struct cl_gemm *gemm;           /* gemm.c; NULL = own kernels multiply always */
    struct cl_cache *cache;         /* cache.c; NULL = compiled kernels are not kept */
};
int opencl_open(struct backend **out, const struct cl_device *dev, const struct backend_params *p,
                struct err *err);

/* Latches "device: operation ...: what: CL_NAME (code)". */
void cl_fail(struct clb *c, cl_int code, const char *what);
/* The same into err, for what is no operation; returns its class. */
int cl_err(const struct clb *c, cl_int code, const char *what, struct err *err);

/* ---- buffers (buffer.c, import.c) ---- */
/* A run of whole rows in one cl_mem: a tensor larger than the device's maximum allocation has several. */
struct cl_part {
    cl_mem mem;
    size_t start;   /* byte of the buffer at which it begins */
    size_t size;    /* bytes of the buffer it covers */
    size_t pad;     /* bytes that its rows take beyond that in the split layout */
    size_t mem_off; /* where that is inside mem (a mapped file's memory object holds many tensors) */
    struct cl_window *window; /* whose mem that is, NULL = the buffer's own */
    void *host;               /* what the buffer's own memory lies in, freed after it; NULL = the runtime's */
};
enum cl_layout {
    CL_LAYOUT_STORED, /* as in the file */
    CL_LAYOUT_SPLIT   /* scales in a plane of their own behind the quants (GPU family; layout_gpu.c) */
};
struct cl_buffer {
    struct buffer b; /* first; host is NULL */
    struct cl_part *parts;
    int n_parts;
    enum cl_layout layout;
};
/* The one part of a tensor that is not split, with the byte offset inside its mem. */
cl_mem cl_tensor_mem(const struct tensor *t, cl_ulong *off);
/* Rows row .. row + n_rows of a tensor that lie in one mem. */
struct cl_rows {
    cl_mem mem;
    cl_ulong off;
    int64_t row, n_rows;
};
/* The rows from `row` on that lie together; false when there are none left. */
bool cl_rows_at(const struct tensor *t, int64_t row, struct cl_rows *out);
size_t cl_row_size(const struct tensor *t); /* bytes */
/* Device memory of at least `size` bytes that lives until the next call with the same slot; NULL: latched. */
enum { CL_SCRATCH_ATTN, CL_SCRATCH_GEMM, CL_SCRATCH_TMP, CL_SCRATCH_FAST, CL_SCRATCH_PAIRS, CL_SCRATCH_COUNT };
cl_mem cl_scratch_get(struct clb *c, int slot, size_t size);
void cl_scratch_free(struct clb *c);
/* A buffer of n_parts empty parts, NULL + err. */
struct cl_buffer *cl_buffer_new(struct clb *c, size_t size, int n_parts, struct err *err);
/* Asks for memory of `what`, counted in c->used and held against the budget; NULL + err with the figures. */
cl_mem cl_mem_new(struct clb *c, size_t size, const char *what, struct err *err);
/* Whether so many bytes more may be taken; err has the figures. */
bool cl_within_budget(const struct clb *c, size_t size, const char *what, struct err *err);
/* Bytes of one memory object: the device's limit, SIZE_MAX = none known. */
size_t cl_max_alloc(const struct clb *c);
size_t cl_alloc_room(const struct clb *c, size_t wanted); /* of `wanted` bytes what one allocation may have */
void cl_window_release(struct clb *c, struct cl_window *w);

/* ---- programs (program.c, cache.c, kernels_text.c generated from cl/) ---- */
/* A kernel of file `file` ("linear_cpu.cl") built with `options` ("-DWT=WT_Q8_0"); built at first use, kept.
 * NULL after a failed build, which is latched with the build log's first lines. */
cl_kernel cl_kernel_get(struct clb *c, const char *file, const char *options, const char *name);
/* The same without latching: for optional variants. */
cl_kernel cl_kernel_try(struct clb *c, const char *file, const char *options, const char *name);
/* Is the GPU family's variant used for this operation and type of weights or pages?  One that a test or the
 * compiler found wrong is not; then the placement table says so. */
bool cl_gpu_op(struct clb *c, enum op_id op, enum dtype dtype);
bool cl_fall_back(struct backend *be, enum op_id op, enum dtype dtype); /* see backend.h */
/* The instance's variant of an operation (variants.c), for a type of weights or pages, 0 where there is none.
 */
cl_kernel cl_kern(struct clb *c, enum cl_kern which, enum dtype type);
int cl_programs_open(struct clb *c, struct err *err);
void cl_programs_close(struct clb *c);
/* Compiled kernels on disk (cache.c), in the folder params.kernel_cache.  None of these can fail a run. */
struct cl_cache_key {
    uint64_t h[2];
};
void cl_cache_open(struct clb *c);
void cl_cache_close(struct clb *c);
struct cl_cache_key cl_cache_key(struct clb *c, const char *source, size_t len, const char *options);
/* Built from its binary; NULL = none that can be used.  Some drivers find out only when a kernel is made. */
cl_program cl_cache_get(struct clb *c, const struct cl_cache_key *key, const char *options);
/* Once a kernel of p was made: some drivers have no binary before. */
void cl_cache_put(struct clb *c, const struct cl_cache_key *key, cl_program p);
/* Work-items of one group of k: what the compiler allows; lowered after a refused launch, which a kernel with
 * a size of its own refuses (false). */
size_t cl_kernel_group(struct clb *c, cl_kernel k);
bool cl_kernel_lower_group(struct clb *c, cl_kernel k, size_t size);
/* A kernel file's text, from params.kernel_dir or built in; NULL: err says why. */
const char *cl_program_text(struct clb *c, const char *name, struct err *err);
const char *cl_kernel_label(struct clb *c, cl_kernel k); /* "linear_1 BF16", for profiles */
/* The smallest launch that makes the driver compile what one of this shape needs; false: that was done. */
bool cl_kernel_warm(struct clb *c, cl_kernel k, int dims, size_t *global, const size_t *local);

/* ---- launches (launch.c) ---- */
struct cl_launch {
    struct clb *c;
    cl_kernel k;
    cl_uint n_args;
    cl_int code; /* first failure of an argument */
    const char *what;
};
struct cl_launch cl_begin(struct clb *c, cl_kernel k, const char *what);
void cl_arg_mem(struct cl_launch *l, cl_mem mem,
                cl_ulong off); /* two kernel arguments: buffer, byte offset */
void cl_arg_tensor(struct cl_launch *l, const struct tensor *t); /* the same for an unsplit tensor */
void cl_arg_int(struct cl_launch *l, int64_t v); /* int; one that does not fit fails the launch */
void cl_arg_ulong(struct cl_launch *l, uint64_t v);
void cl_arg_float(struct cl_launch *l, float v);
void cl_arg_local(struct cl_launch *l, size_t size);
/* Rounds global up to local, cuts local to what kernel and device allow (a power of two), halves it once more
 * when the launch is refused for resources; kernels guard their own ranges. local 0 = 1. */
void cl_run(struct cl_launch *l, int dims, const size_t *global, const size_t *local);
/* The same for kernels whose work-items share nothing: in groups that suit the family. */
void cl_run_items(struct cl_launch *l, int dims, const size_t *global);

/* ---- times (profile.c) ---- */
void cl_profile_open(struct clb *c);
void cl_profile_close(struct clb *c);
/* Where the next launch puts its event; NULL: it is not timed. */
cl_event *cl_profile_event(struct clb *c);
/* That launch was made, of this kernel for this operation. */
void cl_profile_launched(struct clb *c, const char *kernel, enum op_id op);
/* Reads and releases what is held; waits for it. */
void cl_profile_drain(struct clb *c);

/* ---- operations: one launcher file per group, all named cl_NAME; table in ops.c ---- */
extern const struct backend_ops cl_ops;

/* instance.c, buffer.c, import.c */
void cl_close(struct backend *be);
void cl_caps(const struct backend *be, struct backend_caps *out);
struct buffer *cl_alloc(struct backend *be, size_t size, struct err *err);
void cl_free(struct buffer *buf);
void cl_write(struct backend *be, const struct tensor *dst, const void *src);
void cl_copy(struct backend *be, const struct tensor *dst, const struct tensor *src);
int cl_read(struct backend *be, void *dst, const struct tensor *src, struct err *err);
int cl_import(struct backend *be, struct tensor *out, const struct host_matrix *m, struct err *err);
int cl_export(struct backend *be, float *out, const struct tensor *w, struct err *err);
void cl_step_begin(struct backend *be);
int cl_sync(struct backend *be, struct err *err);
bool cl_timed(struct backend *be, enum op_id op, uint64_t bytes, uint64_t flops); /* profile.c */
void cl_warm(struct backend *be, bool on);                                        /* program.c */
void cl_identity(const struct backend *be, uint64_t id[2]); /* cache.c */

/* elem.c */
void cl_embed(struct backend *, const struct tensor *out, const struct tensor *table,
              const struct tensor *ids, float scale);
void cl_rope(struct backend *, const struct tensor *x, const struct tensor *cs, int n_heads, int n_rot,
             enum op_pairs pairs);
void cl_act_mul(struct backend *, const struct tensor *out, const struct tensor *gate,
                const struct tensor *up, enum op_act act);
void cl_add(struct backend *, const struct tensor *out, const struct tensor *a, const struct tensor *b);
void cl_scale(struct backend *, const struct tensor *x, float s);
void cl_softcap(struct backend *, const struct tensor *x, float cap);
/* norm.c */
void cl_rmsnorm(struct backend *, const struct tensor *out, const struct tensor *x, const struct tensor *w,
                float eps, bool add_one);
/* linear.c */
void cl_linear(struct backend *, const struct tensor *out, const struct tensor *x, const struct tensor *w,
               const struct tensor *bias);
/* Rows of unpacked weights that a work-item of the CPU family multiplies with one row of x (FAR in linear_cpu.cl). */
enum { CL_FAR = 8, CL_FAR_GROUP = 4 };
/* How a product ends. */
struct cl_end {
    const struct tensor *bias; /* added; NULL = none */
    bool add;                  /* then what stands in the output */
};
/* By our kernels, whoever else could. */
void cl_linear_own(struct clb *c, const struct tensor *out, const struct tensor *x, const struct tensor *w,
                   const struct cl_end *end);
/* The kernels' arguments for it. */
void cl_arg_end(struct cl_launch *l, const struct cl_end *end, const struct tensor *any);
/* fused.c */
bool cl_linear_qkv(struct backend *, const struct tensor out[3], const struct tensor *x, const struct tensor w[3],
                   const struct tensor *const bias[3]);
bool cl_gate_up(struct backend *, const struct tensor *out, const struct tensor *tmp, const struct tensor *x,
                const struct tensor *wg, const struct tensor *wu, enum op_act act);
bool cl_linear_add(struct backend *, const struct tensor *x, const struct tensor *tmp, const struct tensor *h,
                   const struct tensor *w, const struct tensor *bias);
bool cl_norm_rope(struct backend *, const struct tensor *q, const struct tensor *k, const struct tensor *wq,
                  const struct tensor *wk, const struct tensor *cs, const struct norm_rope_args *args);
/* attention.c */
void cl_kv_store(struct backend *, const struct kv_layer *kv, const struct tensor *k, const struct tensor *v,
                 const struct kv_rows *rows);
void cl_attention(struct backend *, const struct tensor *out, const struct tensor *q,
                  const struct kv_layer *kv, const struct kv_rows *rows, const struct attention_args *args);
/* Chunks of 64 positions that a row at position `last` or before it sees some of. */
int64_t cl_chunks_seen(int64_t last, int64_t window);
/* Bytes for the results of chunks of `part` bytes: for as many as there can ever be, so that the memory does
 * not grow from step to step; where that is too much for those needed now; false: too much as well. */
bool cl_attn_scratch(const struct clb *c, size_t part, int64_t parts_now, int64_t parts_ever, size_t *size);
/* What every attention kernel takes behind its output, and what attn_join takes. */
void cl_attn_args(struct cl_launch *l, const struct tensor *q, const struct kv_layer *kv, const struct kv_rows *rows,
                  const struct attention_args *args);
void cl_attn_join(struct cl_launch *l, cl_mem parts, const struct tensor *out, const struct kv_rows *rows,
                  const struct attention_args *args, int64_t n_chunks);
/* experts.c */
void cl_route(struct backend *, const struct tensor *ids, const struct tensor *w, const struct tensor *logits,
              bool renorm);
void cl_linear_experts(struct backend *, const struct tensor *out, const struct tensor *x,
                       const struct tensor *experts, int n_experts, const struct tensor *ids,
                       const struct tensor *w);
void cl_experts_close(struct clb *c);
/* pick.c */
void cl_gather_rows(struct backend *, const struct tensor *out, const struct tensor *x,
                    const struct tensor *rows);
void cl_argmax(struct backend *, const struct tensor *out, const struct tensor *x);
void cl_topk(struct backend *, const struct tensor *ids, const struct tensor *vals, const struct tensor *x);

/* ---- the GPU family (layout_gpu.c, linear_gpu.c, attention_gpu.c) ---- */
bool cl_gpu_able(const struct cl_device *d);
/* Is a matrix of this type and width kept in the split layout?  Was this one? */
bool cl_split_wanted(const struct clb *c, enum dtype dtype, int64_t cols);
bool cl_is_split(const struct tensor *t);
size_t cl_row_stride(const struct tensor *t); /* bytes from a row to the next on the device */
/* Memory for a part and its rows in it; m is the whole matrix. */
int cl_split_fill(struct clb *c, struct cl_part *p, const struct host_matrix *m, struct err *err);
int cl_split_export(struct clb *c, float *out, const struct tensor *w, struct err *err);
/* CLK_EMBED or CLK_DEQUANT for w as it lies on the device. */
cl_kernel cl_kern_weight(struct clb *c, enum cl_kern which, const struct tensor *w);
/* May lanes load 16 bytes at once, from rows of w at `off` and from x? */
bool cl_in_units(const struct tensor *w, cl_ulong off, const struct tensor *x);
/* The arguments that every kernel of linear_gpu.cl and its variants begins with; xm = the rows of x. */
void cl_linear_args(struct cl_launch *l, const struct cl_rows *part, const struct tensor *out, cl_mem xm,
                    cl_ulong x_off, const struct tensor *x, const struct cl_end *end);
void cl_linear_gpu(struct clb *c, const struct tensor *out, const struct tensor *x, const struct tensor *w,
                   const struct cl_end *end);
/* The kernel of fused_gpu.cl for one row of x by these n matrices of one type, cols rows of one to a group; false: the
 * canonical order is wanted, or a variant of linear takes them one by one. */
bool cl_fused_gpu(struct clb *c, const char *name, const struct tensor *x, const struct tensor *const *w,
                  const struct cl_rows *part, int n, cl_kernel *kernel, size_t *cols);
/* The kernel for experts' products: `items` work-items, of groups of `group`, take `rows` pairs, grouped by expert where
 * these are more than one, by `cols` rows of a matrix. */
struct cl_experts_form {
    cl_kernel kernel;
    int rows, cols;
    size_t items, group;
};
enum { CL_GROUPED_FROM = 4 }; /* pairs for each expert from which they are grouped by it */
struct cl_experts_form cl_experts_gpu(struct clb *c, const struct tensor *experts, int n_experts,
                                      const struct tensor *x, int64_t n_pairs);
/* false: heads too large for it. */
bool cl_attention_gpu(struct clb *c, const struct tensor *out, const struct tensor *q, const struct kv_layer *kv,
                      const struct kv_rows *rows, const struct attention_args *args);

/* ---- variants (variants.c, linear_variants.c) ---- */
/* Is it to be used for this operation and type?  Chosen by features, math and what the self-test found. */
bool cl_variant(const struct clb *c, enum cl_variant v, enum op_id op, enum dtype type);
/* Says once why not, and uses the base kernels from now on. */
void cl_variant_refuse(struct clb *c, enum cl_variant v, enum op_id op, enum dtype type, const char *why);
/* Names them for messages; warns where `fast` was asked for and nothing here computes so. */
void cl_variants_open(struct clb *c);
const char *cl_variant_std(const struct clb *c); /* the build option that its text needs */
int cl_sub_count(struct clb *c, cl_kernel k); /* sub-groups of a group of 64 work-items, 0 = not told */
/* Does --math fast round the rows that meet weights of this type? */
bool cl_rounds_x(const struct clb *c, enum dtype dtype);
/* Then, for a kernel that takes them as f32, xm and x_off are the rounded ones; false: x is as it was. */
bool cl_rounded_x(struct clb *c, const struct cl_rows *part, const struct tensor *x, const struct tensor *w, cl_mem *xm,
                  cl_ulong *x_off);
/* A variant of linear for this part of w; false = the base kernels are to be used. */
bool cl_linear_variant(struct clb *c, const struct cl_rows *part, const struct tensor *out, const struct tensor *x,
                       const struct tensor *w, const struct cl_end *end);

/* ---- shapes ---- */
static inline size_t cl_ceil_div(int64_t n, int64_t d)
{
    return (size_t)((n + d - 1) / d);
}

#endif
