/* Which kernel runs an operation: a row for each, a column for each family;
 * and which variants beyond them a device is to use.
 *
 * An empty place in the GPU column means that the CPU family's kernel is used
 * there too.  To add a kernel: fill a place, and launch it with its own shape
 * in the operation's launcher.  To add a variant: a row in `variants`, and its
 * launch before the base one's (linear_variants.c). */
#include <stdio.h>
#include <string.h>

#include "backend/opencl/cl.h"
#include "base/log.h"

struct place {
    const char *file, *kernel;
};

static const struct row {
    enum op_id op;
    bool by_type; /* built once for each type of weights or pages, with -DWT= and -DKV_F16= */
    struct place family[2];
} rows[CLK_COUNT] = {
    [CLK_EMBED] = {OP_EMBED, true, {{"embed.cl", "embed"}}},
    [CLK_DEQUANT] = {OP_LINEAR, true, {{"embed.cl", "dequant"}}},
    [CLK_RMSNORM] = {OP_RMSNORM, false, {{"norm.cl", "rmsnorm"}, {"norm_gpu.cl", "rmsnorm"}}},
    [CLK_ROPE] = {OP_ROPE, false, {{"rope.cl", "rope"}}},
    [CLK_NORM_ROPE] = {OP_NORM_ROPE, false, {{"norm.cl", "norm_rope"}, {"norm_gpu.cl", "norm_rope"}}},
    [CLK_KV_STORE] = {OP_KV_STORE, true, {{"kv.cl", "kv_store"}}},
    [CLK_LINEAR_1] = {OP_LINEAR, true, {{"linear_cpu.cl", "linear_1"}}},
    [CLK_LINEAR_2] = {OP_LINEAR, true, {{"linear_cpu.cl", "linear_2"}}},
    [CLK_LINEAR_4] = {OP_LINEAR, true, {{"linear_cpu.cl", "linear_4"}}},
    [CLK_LINEAR_MANY] = {OP_LINEAR, true, {{"linear_cpu.cl", "linear_many"}}},
    [CLK_WIDEN] = {OP_LINEAR, true, {{"linear_cpu.cl", "widen"}}},
    [CLK_LINEAR_EXPERTS] = {OP_LINEAR_EXPERTS, true, {{"linear_cpu.cl", "linear_experts"}}},
    [CLK_EXPERTS_4] = {OP_LINEAR_EXPERTS, true, {{"linear_cpu.cl", "experts_4"}}},
    [CLK_LINEAR_QKV] = {OP_LINEAR, true, {{"linear_cpu.cl", "linear_qkv"}}},
    [CLK_GATE_UP] = {OP_LINEAR, true, {{"linear_cpu.cl", "gate_up"}}},
    [CLK_MIX] = {OP_LINEAR_EXPERTS, false, {{"route.cl", "mix_experts"}}},
    [CLK_COUNT_PAIRS] = {OP_LINEAR_EXPERTS, false, {{"route.cl", "count_pairs"}}},
    [CLK_GROUP_PAIRS] = {OP_LINEAR_EXPERTS, false, {{"route.cl", "group_pairs"}}},
    [CLK_SILU_MUL] = {OP_ACT_MUL, false, {{"elem.cl", "act_mul_silu"}, {"elem_gpu.cl", "act_mul_silu"}}},
    [CLK_GELU_TANH_MUL] = {OP_ACT_MUL, false, {{"elem.cl", "act_mul_gelu_tanh"}, {"elem_gpu.cl", "act_mul_gelu_tanh"}}},
    [CLK_GELU_ERF_MUL] = {OP_ACT_MUL, false, {{"elem.cl", "act_mul_gelu_erf"}, {"elem_gpu.cl", "act_mul_gelu_erf"}}},
    [CLK_ADD] = {OP_ADD, false, {{"elem.cl", "add"}, {"elem_gpu.cl", "add"}}},
    [CLK_SCALE] = {OP_SCALE, false, {{"elem.cl", "scale"}, {"elem_gpu.cl", "scale"}}},
    [CLK_SOFTCAP] = {OP_SOFTCAP, false, {{"elem.cl", "softcap"}, {"elem_gpu.cl", "softcap"}}},
    [CLK_ROUTE] = {OP_ROUTE, false, {{"route.cl", "route"}}},
    [CLK_GATHER_ROWS] = {OP_GATHER_ROWS, false, {{"pick.cl", "gather_rows"}}},
    [CLK_ARGMAX_PART] = {OP_ARGMAX, false, {{"pick_cpu.cl", "argmax_part"}, {"pick_gpu.cl", "argmax_part"}}},
    [CLK_ARGMAX_JOIN] = {OP_ARGMAX, false, {{"pick.cl", "argmax_join"}}},
    [CLK_TOPK] = {OP_TOPK, false, {{"pick.cl", "topk"}}},
};

/* ---- variants ---- */
#define TYPE(t) (UINT32_C(1) << DTYPE_##t)
static const struct {
    const char *name;    /* for users */
    bool fast;           /* rounds activations: under --math fast only */
    uint32_t linear;     /* types of weights that it multiplies */
    uint32_t attention;  /* types of pages that it reads */
} variants[CLV_COUNT] = {
    [CLV_SUB] = {"sub-groups", false, TYPE(F16) | TYPE(BF16) | TYPE(Q8_0) | TYPE(Q4_0) | TYPE(Q4_K),
                 TYPE(F32) | TYPE(F16)},
    [CLV_DOT] = {"int8 dot", true, TYPE(Q8_0) | TYPE(Q4_0) | TYPE(Q4_K), 0},
    [CLV_HALF] = {"half", true, TYPE(F16), 0},
};
#undef TYPE

static bool has_feature(const struct cl_device *d, enum cl_variant v)
{
    return v == CLV_SUB ? d->subgroups : v == CLV_DOT ? d->int_dot : d->fp16;
}

bool cl_variant(const struct clb *c, enum cl_variant v, enum op_id op, enum dtype type)
{
    uint32_t types = op == OP_LINEAR ? variants[v].linear : op == OP_ATTENTION ? variants[v].attention : 0;

    return c->gpu && !c->canonical && has_feature(&c->dev, v) &&
           (!variants[v].fast || c->params.math == MATH_FAST) && (types >> type & 1) != 0 &&
           ((c->refused[v][op] | c->plain[op]) >> type & 1) == 0;
}

void cl_variant_refuse(struct clb *c, enum cl_variant v, enum op_id op, enum dtype type, const char *why)
{
    c->refused[v][op] |= UINT32_C(1) << type;
    log_msg(variants[v].fast ? LOG_WARN : LOG_INFO, "%s: %s (%s) without its variant by %s: %s", c->base.device, op_name(op),
            dtype_info(type)->name, variants[v].name, why);
}

void cl_variants_open(struct clb *c)
{
    bool any = false;

    if (c->dev.sub_least >= 16)
        snprintf(c->sub_least, sizeof c->sub_least, " -DSUB_LEAST=%d", c->dev.sub_least);
    for (int v = 0; v < CLV_COUNT; v++) {
        snprintf(c->variant_name[v], sizeof c->variant_name[v], "%s (%s)", c->base.device, variants[v].name);
        any = any || (c->gpu && !c->canonical && variants[v].fast && has_feature(&c->dev, (enum cl_variant)v));
    }
    if (c->params.math == MATH_FAST && !any)
        log_msg(LOG_WARN, "%s: math fast has no kernels here (%s); exact is computed", c->base.device,
                !c->gpu        ? "the cpu family has none"
                : c->canonical ? "deterministic is exact"
                               : "neither integer dot products nor half arithmetic");
}

const char *cl_variant_std(const struct clb *c)
{
    return c->dev.version >= 30 ? "-cl-std=CL3.0" : c->dev.version >= 20 ? "-cl-std=CL2.0" : "-cl-std=CL1.2";
}

/* clGetKernelSubGroupInfoKHR, which a loader for OpenCL 1.2 does not have. */
typedef cl_int(CL_API_CALL sub_group_info)(cl_kernel, cl_device_id, cl_uint, size_t, const void *, size_t, void *,
                                           size_t *);
enum { SUB_GROUP_COUNT = 0x2034 };

int cl_sub_count(struct clb *c, cl_kernel k)
{
    enum { MOST = sizeof c->sub_counts / sizeof *c->sub_counts };
    const size_t local[2] = {64, 1};
    union {
        void *address;
        sub_group_info *call;
    } ask;
    size_t n = 0;

    for (int i = 0; i < c->n_sub_counts; i++)
        if (c->sub_counts[i].k == k)
            return c->sub_counts[i].n;
    ask.address = clGetExtensionFunctionAddressForPlatform(c->dev.platform, "clGetKernelSubGroupInfoKHR");
    if (ask.address == NULL ||
        ask.call(k, c->dev.id, SUB_GROUP_COUNT, sizeof local, local, sizeof n, &n, NULL) != CL_SUCCESS || n > 64)
        n = 0;
    log_debug(LOG_CL, "%s: %zu sub-groups in a group of 64", c->base.device, n);
    if (c->n_sub_counts < MOST) {
        c->sub_counts[c->n_sub_counts].k = k;
        c->sub_counts[c->n_sub_counts++].n = (int)n;
    }
    return (int)n;
}

/* ---- back to the base ---- */
/* Variants in use for this operation and type give way first. */
static bool drop_variants(struct clb *c, enum op_id op, enum dtype type)
{
    bool any = false;

    for (int v = 0; v < CLV_COUNT; v++)
        if (cl_variant(c, (enum cl_variant)v, op, type)) {
            cl_variant_refuse(c, (enum cl_variant)v, op, type, "the self-test found it wrong");
            any = true;
        }
    return any;
}

static bool has_weights(enum op_id op)
{
    return op == OP_EMBED || op == OP_LINEAR || op == OP_LINEAR_EXPERTS;
}

static bool has_variant(enum op_id op)
{
    bool any = has_weights(op) || op == OP_ATTENTION;

    for (int i = 0; i < CLK_COUNT && !any; i++)
        any = rows[i].op == op && rows[i].family[1].kernel != NULL;
    return any;
}

bool cl_gpu_op(struct clb *c, enum op_id op, enum dtype dtype)
{
    bool plain = (c->plain[op] >> dtype & 1) != 0;

    if (c->gpu && plain)
        c->base.ran_on = c->plain_name;
    return c->gpu && !plain;
}

bool cl_fall_back(struct backend *be, enum op_id op, enum dtype dtype)
{
    struct clb *c = (struct clb *)be;
    uint32_t bit = UINT32_C(1) << dtype;

    if (!c->gpu || !has_variant(op) || (c->plain[op] & bit) != 0)
        return false;
    if (drop_variants(c, op, dtype))
        return true;
    for (int i = 0; i < OP_COUNT; i++)
        if (i == (int)op || (has_weights(op) && has_weights((enum op_id)i)))
            c->plain[i] |= bit;
    memset(c->kern, 0, sizeof c->kern); /* program.c keeps them */
    return true;
}

/* ---- kernels ---- */
cl_kernel cl_kern(struct clb *c, enum cl_kern which, enum dtype type)
{
    const struct row *row = &rows[which];
    bool gpu = row->family[1].kernel != NULL && cl_gpu_op(c, row->op, row->by_type ? type : DTYPE_F32);
    const struct place *p = &row->family[gpu];
    cl_kernel *kept = &c->kern[which][row->by_type ? type : 0];
    char options[64] = "";

    if (*kept != NULL)
        return *kept;
    if (row->by_type)
        snprintf(options, sizeof options, "-DWT=WT_%s -DKV_F16=%d", dtype_info(type)->name,
                 type == DTYPE_F16);
    *kept = cl_kernel_get(c, p->file, options, p->kernel);
    return *kept;
}
