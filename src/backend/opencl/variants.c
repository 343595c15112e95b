/* Which kernel runs an operation: a row for each, a column for each family.
 *
 * An empty place in the GPU column means that the CPU family's kernel is used
 * there too.  To add a variant: fill a place, and launch it with its own shape
 * in the operation's launcher. */
#include <stdio.h>

#include "backend/opencl/cl.h"

struct place {
    const char *file, *kernel;
};

static const struct row {
    bool by_type; /* built once for each type of weights or pages, with -DWT= and -DKV_F16= */
    struct place family[2];
} rows[CLK_COUNT] = {
    [CLK_EMBED] = {true, {{"embed.cl", "embed"}}},
    [CLK_DEQUANT] = {true, {{"embed.cl", "dequant"}}},
    [CLK_RMSNORM] = {false, {{"norm.cl", "rmsnorm"}, {"norm_gpu.cl", "rmsnorm"}}},
    [CLK_ROPE] = {false, {{"rope.cl", "rope"}}},
    [CLK_KV_STORE] = {true, {{"kv.cl", "kv_store"}}},
    [CLK_LINEAR_1] = {true, {{"linear_cpu.cl", "linear_1"}}},
    [CLK_LINEAR_2] = {true, {{"linear_cpu.cl", "linear_2"}}},
    [CLK_LINEAR_4] = {true, {{"linear_cpu.cl", "linear_4"}}},
    [CLK_LINEAR_EXPERTS] = {true, {{"linear_cpu.cl", "linear_experts"}}},
    [CLK_MIX] = {false, {{"route.cl", "mix_experts"}}},
    [CLK_SILU_MUL] = {false, {{"elem.cl", "act_mul_silu"}}},
    [CLK_GELU_TANH_MUL] = {false, {{"elem.cl", "act_mul_gelu_tanh"}}},
    [CLK_GELU_ERF_MUL] = {false, {{"elem.cl", "act_mul_gelu_erf"}}},
    [CLK_ADD] = {false, {{"elem.cl", "add"}}},
    [CLK_SCALE] = {false, {{"elem.cl", "scale"}}},
    [CLK_SOFTCAP] = {false, {{"elem.cl", "softcap"}}},
    [CLK_ROUTE] = {false, {{"route.cl", "route"}}},
    [CLK_GATHER_ROWS] = {false, {{"pick.cl", "gather_rows"}}},
    [CLK_ARGMAX_PART] = {false, {{"pick.cl", "argmax_part"}, {"pick_gpu.cl", "argmax_part"}}},
    [CLK_ARGMAX_JOIN] = {false, {{"pick.cl", "argmax_join"}}},
    [CLK_TOPK] = {false, {{"pick.cl", "topk"}}},
};

cl_kernel cl_kern(struct clb *c, enum cl_kern which, enum dtype type)
{
    const struct row *row = &rows[which];
    const struct place *p = &row->family[c->gpu && row->family[1].kernel != NULL];
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
