/* Launches of attention, GPU family: the tile of query rows by head_dim, heads
 * of a kv head and local memory; few rows split their chunks over groups and
 * join them.  Both give the same bits, but for those of sub-groups where a
 * compiler gives the two kernels others. */
#include <stdio.h>

#include "backend/opencl/cl.h"
#include "base/log.h"

enum { CHUNK = 64, WG = 64, MAX_SPLIT = 128, FEW = 16 };

struct attn {
    struct clb *c;
    const struct tensor *out, *q;
    const struct kv_layer *kv;
    const struct kv_rows *rows;
    const struct attention_args *args;
    int group;         /* query heads of a kv head */
    int heads, tokens; /* of a tile */
    int vectors;       /* of 16 values in a head */
    int64_t n_chunks;  /* up to the last position of a row */
};

/* struct tile of attn_gpu.cl and what attn_tiles keeps beside it */
static size_t local_bytes(const struct attn *a, int heads, int tokens)
{
    size_t rows = (size_t)(heads * tokens), pitch = (rows + 3) / 4 * 4;
    return 4 * (CHUNK * pitch + rows * (16 * (size_t)a->vectors + 4) + 4 * 16 * 17 + 9 * rows) + 8 * CHUNK +
           64;
}

/* Rows of a tile: at most 8, so that sums stay in registers; false when not even one fits. */
static bool choose_tile(struct attn *a, bool one_token)
{
    int dim = a->kv->head_dim, most = dim <= 128 ? 8 : dim <= 256 ? 4 : 2;
    size_t room = a->c->dev.local_size;

    if (dim > 512)
        return false;
    a->heads = a->group;
    while (a->heads > 1 && (a->heads > most || local_bytes(a, a->heads, 1) > room))
        a->heads = (a->heads + 1) / 2;
    a->tokens = one_token ? 1 : most / a->heads;
    while (a->tokens > 1 && local_bytes(a, a->heads, a->tokens) > room)
        a->tokens /= 2;
    return local_bytes(a, a->heads, a->tokens) <= room;
}

static void set_options(const struct attn *a, char options[160])
{
    int rows = a->heads * a->tokens, keys = rows == 1 ? 16 : rows == 2 ? 8 : 4;

    snprintf(options, 160, "-DHD=%d -DG=%d -DGB=%d -DBT=%d -DNK=%d -DKV_F16=%d%s", a->kv->head_dim, a->group,
             a->heads, a->tokens, keys, a->kv->k.dtype == DTYPE_F16, a->c->sub_least);
}

static struct cl_launch begin(const struct attn *a, const char *kernel)
{
    char options[160], with_sub[200];
    cl_kernel k = NULL;

    set_options(a, options);
    if (cl_variant(a->c, CLV_SUB, OP_ATTENTION, a->kv->k.dtype)) {
        snprintf(with_sub, sizeof with_sub, "%s %s -DSUB=1", cl_variant_std(a->c), options);
        k = cl_kernel_try(a->c, "attn_gpu.cl", with_sub, kernel);
        if (k != NULL)
            a->c->base.ran_on = a->c->variant_name[CLV_SUB];
        else
            cl_variant_refuse(a->c, CLV_SUB, OP_ATTENTION, a->kv->k.dtype, "its kernel does not build");
    }
    if (k == NULL)
        k = cl_kernel_get(a->c, "attn_gpu.cl", options, kernel);
    return cl_begin(a->c, k, "attention");
}

/* The check of the device did not know these heads.  What does not build for them goes to the base kernels. */
static bool builds(const struct attn *a)
{
    char options[160];
    bool gave_way = false;

    set_options(a, options);
    if (a->c->params.require_device || cl_kernel_try(a->c, "attn_gpu.cl", options, "attn_tiles") != NULL)
        return true;
    while (cl_fall_back(&a->c->base, OP_ATTENTION, a->kv->k.dtype)) /* variants first, then this */
        gave_way = true;
    if (!gave_way)
        return true;
    log_msg(LOG_WARN, "%s: attention with heads of %d does not build (%s): it is computed with the base kernels",
            a->c->base.device, a->kv->head_dim, options);
    a->c->base.ran_on = a->c->plain_name;
    return false;
}

/* Groups side by side for the heads of a tile. */
static size_t head_tiles(const struct attn *a)
{
    return (size_t)a->kv->n_kv_heads * cl_ceil_div(a->group, a->heads);
}

/* Each tile from its first chunk to its last. */
static void run_tiles(const struct attn *a)
{
    struct cl_launch l = begin(a, "attn_tiles");

    cl_arg_tensor(&l, a->out);
    cl_attn_args(&l, a->q, a->kv, a->rows, a->args);
    cl_arg_int(&l, a->q->rows);
    cl_run(&l, 3, (size_t[]){WG, head_tiles(a), cl_ceil_div(a->q->rows, a->tokens)}, (size_t[]){WG, 1, 1});
}

/* Chunks side by side, then joined. */
static void run_split(const struct attn *a, size_t scratch)
{
    int64_t seen = cl_chunks_seen(a->rows->max_pos, a->args->window), n_split = seen < MAX_SPLIT ? seen : MAX_SPLIT;
    cl_mem parts = cl_scratch_get(a->c, CL_SCRATCH_ATTN, scratch);

    if (parts == NULL)
        return;
    struct cl_launch l = begin(a, "attn_chunks");
    cl_arg_mem(&l, parts, 0);
    cl_attn_args(&l, a->q, a->kv, a->rows, a->args);
    cl_arg_int(&l, n_split);
    cl_arg_int(&l, a->n_chunks);
    cl_arg_int(&l, a->q->rows);
    cl_run(&l, 3, (size_t[]){(size_t)n_split * WG, head_tiles(a), (size_t)a->q->rows}, (size_t[]){WG, 1, 1});

    l = begin(a, "attn_join");
    cl_attn_join(&l, parts, a->out, a->rows, a->args, a->n_chunks);
    cl_run(&l, 3, (size_t[]){(size_t)a->kv->head_dim, (size_t)a->args->n_heads, (size_t)a->q->rows},
           (size_t[]){WG, 1, 1});
}

bool cl_attention_gpu(struct clb *c, const struct tensor *out, const struct tensor *q,
                      const struct kv_layer *kv, const struct kv_rows *rows,
                      const struct attention_args *args)
{
    struct attn a = {.c = c,
                     .out = out,
                     .q = q,
                     .kv = kv,
                     .rows = rows,
                     .args = args,
                     .group = args->n_heads / kv->n_kv_heads,
                     .vectors = (kv->head_dim + 15) / 16,
                     .n_chunks = rows->max_pos / CHUNK + 1};
    bool alone = q->rows <=
                 2 * rows->pages.rows; /* about one row of each sequence: no neighbours to share keys with */
    size_t part = (size_t)(16 * a.vectors + 16) * sizeof(float), scratch;

    if (!choose_tile(&a, alone || q->rows <= FEW) || !builds(&a))
        return false;
    int64_t heads = q->rows * args->n_heads, all = (int64_t)cl_ceil_div(rows->pages.cols * kv->page_size, CHUNK);
    bool fits = cl_attn_scratch(c, part, heads * a.n_chunks, heads * all, &scratch);
    bool idle = (size_t)q->rows * head_tiles(&a) < 16 * (size_t)c->dev.units;
    if (a.tokens == 1 && a.n_chunks > 1 && idle && fits)
        run_split(&a, scratch);
    else
        run_tiles(&a);
    return true;
}
