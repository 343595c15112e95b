/* Launches of the KV cache and of attention: few rows split their chunks over
 * work-items and join them, many rows go whole.  Both give the same bits.
 * Of positions only the largest is known: they are on the device. */
#include <stdio.h>

#include "backend/opencl/cl.h"
#include "base/mem.h"

enum { CHUNK = 64, MAX_SPLIT = 64, MAX_SCRATCH = 64 << 20 };

void cl_kv_store(struct backend *be, const struct kv_layer *kv, const struct tensor *k,
                 const struct tensor *v, const struct kv_rows *rows)
{
    struct clb *c = (struct clb *)be;
    struct cl_launch l = cl_begin(c, cl_kern(c, CLK_KV_STORE, kv->k.dtype), "kv_store");

    cl_arg_tensor(&l, &kv->k);
    cl_arg_tensor(&l, &kv->v);
    cl_arg_tensor(&l, k);
    cl_arg_tensor(&l, v);
    cl_arg_tensor(&l, &rows->pos);
    cl_arg_tensor(&l, &rows->seq);
    cl_arg_tensor(&l, &rows->pages);
    cl_arg_int(&l, kv->head_dim);
    cl_arg_int(&l, kv->n_kv_heads);
    cl_arg_int(&l, kv->page_size);
    cl_arg_int(&l, rows->pages.cols);
    cl_arg_int(&l, k->rows);
    cl_run_items(&l, 3, (size_t[]){(size_t)kv->head_dim, (size_t)kv->n_kv_heads, (size_t)k->rows});
}

/* ---- attention ---- */
bool cl_attn_scratch(const struct clb *c, size_t part, int64_t parts_now, int64_t parts_ever, size_t *size)
{
    size_t most = cl_max_alloc(c) / 2 < MAX_SCRATCH ? cl_max_alloc(c) / 2 : MAX_SCRATCH;

    return (mem_mul(part, (size_t)parts_ever, size) && *size <= most) ||
           (mem_mul(part, (size_t)parts_now, size) && *size <= most);
}

struct attn {
    struct clb *c;
    const struct tensor *out, *q;
    const struct kv_layer *kv;
    const struct kv_rows *rows;
    const struct attention_args *args;
    int group;        /* query heads of a kv head */
    int vectors;      /* of 16 values in a head */
    int64_t n_chunks; /* that a row may see */
    int rows_of_item; /* neighbours that share keys where many rows go whole */
    char options[128];
};

int64_t cl_chunks_seen(int64_t last, int64_t window)
{
    int64_t all = last / CHUNK + 1, most = (window + CHUNK - 2) / CHUNK + 1;

    return window > 0 && most < all ? most : all;
}

/* A work-item keeps at most 16 sums in registers: of `positions` for so many queries, then of so many vectors,
 * a divisor of those of a head. */
struct attn_tile {
    int positions, vectors;
};

static struct attn_tile tile_for(const struct attn *a, int queries)
{
    struct attn_tile t = {queries < 16 ? 16 / queries : 1, a->vectors};

    while (t.vectors > 1 && (t.vectors * queries > 16 || a->vectors % t.vectors != 0))
        t.vectors--;
    return t;
}

static void set_options(struct attn *a)
{
    a->rows_of_item = a->group <= 4 ? 8 / a->group : 1;
    struct attn_tile one = tile_for(a, a->group), many = tile_for(a, a->group * a->rows_of_item);

    snprintf(a->options, sizeof a->options, "-DHD=%d -DG=%d -DKV_F16=%d -DPB=%d -DDB=%d -DT=%d -DTPB=%d -DTDB=%d",
             a->kv->head_dim, a->group, a->kv->k.dtype == DTYPE_F16, one.positions, one.vectors, a->rows_of_item,
             many.positions, many.vectors);
}

static struct cl_launch begin(const struct attn *a, const char *kernel)
{
    return cl_begin(a->c, cl_kernel_get(a->c, "attn_cpu.cl", a->options, kernel), "attention");
}

void cl_attn_args(struct cl_launch *l, const struct tensor *q, const struct kv_layer *kv, const struct kv_rows *rows,
                  const struct attention_args *args)
{
    float cap = args->softcap;

    cl_arg_tensor(l, q);
    cl_arg_tensor(l, &kv->k);
    cl_arg_tensor(l, &kv->v);
    cl_arg_tensor(l, &rows->pos);
    cl_arg_tensor(l, &rows->seq);
    cl_arg_tensor(l, &rows->pages);
    cl_arg_int(l, kv->n_kv_heads);
    cl_arg_int(l, kv->page_size);
    cl_arg_int(l, rows->pages.cols);
    cl_arg_int(l, args->window);
    cl_arg_float(l, args->scale);
    cl_arg_float(l, cap);
    cl_arg_float(l, cap > 0 ? 1.0f / cap : 0.0f);
}

void cl_attn_join(struct cl_launch *l, cl_mem parts, const struct tensor *out, const struct kv_rows *rows,
                  const struct attention_args *args, int64_t n_chunks)
{
    cl_arg_tensor(l, out);
    cl_arg_mem(l, parts, 0);
    cl_arg_tensor(l, &rows->pos);
    cl_arg_int(l, args->window);
    cl_arg_int(l, n_chunks);
    cl_arg_int(l, args->n_heads);
    cl_arg_int(l, out->rows);
}

/* Each row from its first chunk to its last. */
static void run_rows(const struct attn *a)
{
    struct cl_launch l = begin(a, "attn_rows");

    cl_arg_tensor(&l, a->out);
    cl_attn_args(&l, a->q, a->kv, a->rows, a->args);
    cl_arg_int(&l, a->q->rows);
    cl_run(&l, 2, (size_t[]){cl_ceil_div(a->q->rows, a->rows_of_item), (size_t)a->kv->n_kv_heads}, NULL);
}

/* Chunks side by side, then joined. */
static void run_split(const struct attn *a, size_t scratch)
{
    int64_t n_split = a->n_chunks < MAX_SPLIT ? a->n_chunks : MAX_SPLIT;
    cl_mem parts = cl_scratch_get(a->c, CL_SCRATCH_ATTN, scratch);

    if (parts == NULL)
        return;
    struct cl_launch l = begin(a, "attn_chunks");
    cl_arg_mem(&l, parts, 0);
    cl_attn_args(&l, a->q, a->kv, a->rows, a->args);
    cl_arg_int(&l, n_split);
    cl_arg_int(&l, a->n_chunks);
    cl_arg_int(&l, a->q->rows);
    cl_run(&l, 3, (size_t[]){(size_t)n_split, (size_t)a->kv->n_kv_heads, (size_t)a->q->rows}, NULL);

    l = begin(a, "attn_join");
    cl_attn_join(&l, parts, a->out, a->rows, a->args, a->n_chunks);
    cl_run(&l, 3, (size_t[]){(size_t)a->vectors, (size_t)a->args->n_heads, (size_t)a->q->rows}, NULL);
}

void cl_attention(struct backend *be, const struct tensor *out, const struct tensor *q,
                  const struct kv_layer *kv, const struct kv_rows *rows, const struct attention_args *args)
{
    struct attn a = {.c = (struct clb *)be,
                     .out = out,
                     .q = q,
                     .kv = kv,
                     .rows = rows,
                     .args = args,
                     .group = args->n_heads / kv->n_kv_heads,
                     .vectors = (kv->head_dim + 15) / 16,
                     .n_chunks = cl_chunks_seen(rows->max_pos, args->window)};
    int64_t enough = 8 * (int64_t)a.c->dev.units;
    bool alone = q->rows <= 2 * rows->pages.rows; /* decoding: no neighbour reads the same keys */
    int64_t all = cl_chunks_seen((int64_t)rows->pages.cols * kv->page_size - 1, args->window);
    int64_t heads = q->rows * args->n_heads;
    size_t part = (size_t)(16 * a.vectors + 16) * sizeof(float), scratch;

    if (cl_gpu_op(a.c, OP_ATTENTION, kv->k.dtype) && cl_attention_gpu(a.c, out, q, kv, rows, args))
        return;
    set_options(&a);
    int64_t items = (int64_t)cl_ceil_div(q->rows, a.rows_of_item) * kv->n_kv_heads;
    if ((items < enough || alone) && a.n_chunks > 1 &&
        cl_attn_scratch(a.c, part, heads * a.n_chunks, heads * all, &scratch))
        run_split(&a, scratch);
    else
        run_rows(&a);
}
