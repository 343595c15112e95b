/* The `cpu` attention: groups the heads that read the same keys, spreads kv
 * heads and rows over the threads.  Chunks and sums are in kern_attn_tmpl.h,
 * so no grouping can change one. */
#include <assert.h>

#include "backend/cpu/cpu.h"
#include "backend/cpu/host.h"

struct attention_job {
    const struct tensor *out, *q;
    const struct kv_layer *kv;
    const struct kv_rows *rows;
    const struct attention_args *args;
    int64_t block; /* rows of one item */
};

static struct kern_kv view(const struct attention_job *j, int32_t seq, int kv_head)
{
    const struct kv_layer *kv = j->kv;
    assert(seq >= 0 && seq < j->rows->pages.rows);
    return (struct kern_kv){
        .k = host_ptr(&kv->k),
        .v = host_ptr(&kv->v),
        .pages = host_i32(&j->rows->pages) + seq * j->rows->pages.cols,
        .n_kv_heads = kv->n_kv_heads,
        .kv_head = kv_head,
        .head_dim = kv->head_dim,
        .page_size = kv->page_size,
        .f16 = kv->k.dtype == DTYPE_F16,
        .scale = j->args->scale,
        .softcap = j->args->softcap,
    };
}

/* Row r's query of head h. */
static struct kern_query query(const struct attention_job *j, int64_t r, int h)
{
    int64_t at = (r * j->args->n_heads + h) * j->kv->head_dim;
    int32_t last = host_i32(&j->rows->pos)[r], w = j->args->window;
    assert(last >= 0 && last / j->kv->page_size < j->rows->pages.cols);
    return (struct kern_query){
        .q = host_f32(j->q) + at,
        .out = host_f32(j->out) + at,
        .first = w > 0 && last >= w ? last - w + 1 : 0,
        .last = last,
    };
}

/* One kv head for rows r0 .. r1: queries of one sequence go together, up to a tile. */
static void attend_rows(struct cpu *cpu, const struct attention_job *j, int kv_head, int64_t r0, int64_t r1)
{
    int group = j->args->n_heads / j->kv->n_kv_heads, n = 0;
    struct kern_query q[KERN_TILE];
    const int32_t *seq = host_i32(&j->rows->seq);
    struct kern_kv kv = {0};

    for (int64_t r = r0; r < r1; r++) {
        if (n > 0 && seq[r] != seq[r - 1]) {
            cpu->k->attention(q, n, &kv);
            n = 0;
        }
        if (n == 0)
            kv = view(j, seq[r], kv_head);
        for (int h = 0; h < group; h++) {
            q[n++] = query(j, r, kv_head * group + h);
            if (n == KERN_TILE) {
                cpu->k->attention(q, n, &kv);
                n = 0;
            }
        }
    }
    if (n > 0)
        cpu->k->attention(q, n, &kv);
}

/* Item i: kv head i mod n_kv_heads of the row block i / n_kv_heads. */
static void attention_range(struct cpu *cpu, const void *arg, int64_t lo, int64_t hi, struct kern_scratch *s)
{
    const struct attention_job *j = arg;

    (void)s;
    for (int64_t i = lo; i < hi; i++) {
        int64_t r0 = i / j->kv->n_kv_heads * j->block, r1 = r0 + j->block;
        attend_rows(cpu, j, (int)(i % j->kv->n_kv_heads), r0, r1 < j->q->rows ? r1 : j->q->rows);
    }
}

void cpu_attention(struct backend *be, const struct tensor *out, const struct tensor *q,
                   const struct kv_layer *kv, const struct kv_rows *rows, const struct attention_args *args)
{
    struct attention_job j = {.out = out, .q = q, .kv = kv, .rows = rows, .args = args, .block = KERN_TILE};
    int64_t blocks = (q->rows + j.block - 1) / j.block, seen = 0;

    for (int64_t r = 0; r < q->rows; r++)
        seen += host_i32(&rows->pos)[r] + 1;
    if (args->window > 0 && seen > q->rows * args->window)
        seen = q->rows * args->window;
    int64_t cost = 4 * seen / blocks * (args->n_heads / kv->n_kv_heads) * kv->head_dim;
    cpu_for((struct cpu *)be, blocks * kv->n_kv_heads, cpu_grain(cost), attention_range, &j);
}
