/* Which kernel runs an operation: a row for each, a column for each family.
 *
 * An empty place in the GPU column means that the CPU family's kernel is used
 * there too.  To add a variant: fill a place, and launch it with its own shape
 * in the operation's launcher. */
#include <stdio.h>
#include <string.h>

#include "backend/opencl/cl.h"

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
    [CLK_KV_STORE] = {OP_KV_STORE, true, {{"kv.cl", "kv_store"}}},
    [CLK_LINEAR_1] = {OP_LINEAR, true, {{"linear_cpu.cl", "linear_1"}}},
    [CLK_LINEAR_2] = {OP_LINEAR, true, {{"linear_cpu.cl", "linear_2"}}},
    [CLK_LINEAR_4] = {OP_LINEAR, true, {{"linear_cpu.cl", "linear_4"}}},
    [CLK_LINEAR_MANY] = {OP_LINEAR, true, {{"linear_cpu.cl", "linear_many"}}},
    [CLK_WIDEN] = {OP_LINEAR, true, {{"linear_cpu.cl", "widen"}}},
    [CLK_LINEAR_EXPERTS] = {OP_LINEAR_EXPERTS, true, {{"linear_cpu.cl", "linear_experts"}}},
    [CLK_MIX] = {OP_LINEAR_EXPERTS, false, {{"route.cl", "mix_experts"}}},
    [CLK_SILU_MUL] = {OP_ACT_MUL, false, {{"elem.cl", "act_mul_silu"}}},
    [CLK_GELU_TANH_MUL] = {OP_ACT_MUL, false, {{"elem.cl", "act_mul_gelu_tanh"}}},
    [CLK_GELU_ERF_MUL] = {OP_ACT_MUL, false, {{"elem.cl", "act_mul_gelu_erf"}}},
    [CLK_ADD] = {OP_ADD, false, {{"elem.cl", "add"}}},
    [CLK_SCALE] = {OP_SCALE, false, {{"elem.cl", "scale"}}},
    [CLK_SOFTCAP] = {OP_SOFTCAP, false, {{"elem.cl", "softcap"}}},
    [CLK_ROUTE] = {OP_ROUTE, false, {{"route.cl", "route"}}},
    [CLK_GATHER_ROWS] = {OP_GATHER_ROWS, false, {{"pick.cl", "gather_rows"}}},
    [CLK_ARGMAX_PART] = {OP_ARGMAX, false, {{"pick.cl", "argmax_part"}, {"pick_gpu.cl", "argmax_part"}}},
    [CLK_ARGMAX_JOIN] = {OP_ARGMAX, false, {{"pick.cl", "argmax_join"}}},
    [CLK_TOPK] = {OP_TOPK, false, {{"pick.cl", "topk"}}},
};

/* ---- back to the base ---- */
static bool has_weights(enum op_id op)
{
    return op == OP_EMBED || op == OP_LINEAR || op == OP_LINEAR_EXPERTS;
}

static bool has_variant(enum op_id op)
{
    return has_weights(op) || op == OP_RMSNORM || op == OP_ATTENTION || op == OP_ARGMAX;
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
