/* The table of the `opencl` backend's operations.  Fused forms are absent:
 * op.c composes them, with the same bits.  Owns nothing else; each group of
 * launches is a file of its own. */
#include "backend/opencl/cl.h"

const struct backend_ops cl_ops = {
    .name = "opencl",
    .close = cl_close,
    .caps = cl_caps,
    .alloc = cl_alloc,
    .free = cl_free,
    .write = cl_write,
    .copy = cl_copy,
    .read = cl_read,
    .import = cl_import,
    .export = cl_export,
    .begin = cl_step_begin,
    .sync = cl_sync,
    .identity = cl_identity,
    .fall_back = cl_fall_back,
    .timed = cl_timed,
    .warm = cl_warm,
    .embed = cl_embed,
    .rmsnorm = cl_rmsnorm,
    .linear = cl_linear,
    .rope = cl_rope,
    .kv_store = cl_kv_store,
    .attention = cl_attention,
    .act_mul = cl_act_mul,
    .add = cl_add,
    .scale = cl_scale,
    .softcap = cl_softcap,
    .route = cl_route,
    .linear_experts = cl_linear_experts,
    .gather_rows = cl_gather_rows,
    .argmax = cl_argmax,
    .topk = cl_topk,
};
