/* The `cpu` attention: groups the heads and rows that read the same keys and
 * spreads them over the threads; few rows split their chunks over the threads
 * and join them in order.  Chunks and sums are in kern_attn_tmpl.h, so no
 * grouping can change one.  Stores keys and values. */
#include <assert.h>

#include "backend/cpu/cpu.h"
#include "backend/cpu/host.h"
#include "base/mem.h"

enum { SPLIT_MAX = 64 << 20 }; /* bytes of chunks' sums at most */

struct attention_job {
    const struct tensor *out, *q;
    const struct kv_layer *kv;
    const struct kv_rows *rows;
    const struct attention_args *args;
    int64_t block; /* rows of one item */
    /* chunks apart only */
    int64_t n_chunks;      /* that a row sees at most */
    struct kern_sum *sums; /* [n_rows, n_heads, n_chunks] */
    float *o;              /* [n_rows, n_heads, n_chunks, head_dim] */
};

/* Queries that go to the kernels together. */
struct gathered {
    struct kern_kv kv;
    struct kern_query q[KERN_QUERIES];
    struct kern_sum *sums[KERN_QUERIES];
    int n;
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
    assert(last >= 0 && last <= j->rows->max_pos);
    return (struct kern_query){
        .q = host_f32(j->q) + at,
        .out = host_f32(j->out) + at,
        .first = w > 0 && last >= w ? last - w + 1 : 0,
        .last = last,
    };
}

/* ---- whole rows ---- */
/* One kv head for rows r0 .. r1: queries of one sequence go together. */
static void attend_rows(struct cpu *cpu, const struct attention_job *j, int kv_head, int64_t r0, int64_t r1,
                        struct kern_scratch *s)
{
    int group = j->args->n_heads / j->kv->n_kv_heads;
    const int32_t *seq = host_i32(&j->rows->seq);
    struct gathered g = {.n = 0};

    for (int64_t r = r0; r < r1; r++)
        for (int h = 0; h < group; h++) {
            if (g.n == KERN_QUERIES || (g.n > 0 && h == 0 && seq[r] != seq[r - 1])) {
                cpu->k->attention(g.q, g.n, &g.kv, s);
                g.n = 0;
            }
            if (g.n == 0)
                g.kv = view(j, seq[r], kv_head);
            g.q[g.n++] = query(j, r, kv_head * group + h);
        }
    if (g.n > 0)
        cpu->k->attention(g.q, g.n, &g.kv, s);
}

/* Item i: kv head i mod n_kv_heads of the row block i / n_kv_heads. */
static void attention_range(struct cpu *cpu, const void *arg, int64_t lo, int64_t hi, struct kern_scratch *s)
{
    const struct attention_job *j = arg;

    for (int64_t i = lo; i < hi; i++) {
        int64_t r0 = i / j->kv->n_kv_heads * j->block, r1 = r0 + j->block;
        attend_rows(cpu, j, (int)(i % j->kv->n_kv_heads), r0, r1 < j->q->rows ? r1 : j->q->rows, s);
    }
}

/* ---- chunks apart ---- */
/* Chunk c, counted from the first that the row sees, of one kv head. */
static void attend_chunk(struct cpu *cpu, const struct attention_job *j, int64_t r, int kv_head, int64_t c,
                         struct kern_scratch *s)
{
    int group = j->args->n_heads / j->kv->n_kv_heads;
    struct gathered g = {.kv = view(j, host_i32(&j->rows->seq)[r], kv_head), .n = 0};
    struct kern_query first = query(j, r, 0);
    int64_t start = (first.first / KERN_CHUNK + c) * KERN_CHUNK;

    if (start > first.last)
        return;
    for (int h = 0; h < group; h++) {
        int64_t at = (r * j->args->n_heads + kv_head * group + h) * j->n_chunks + c;
        g.q[g.n] = query(j, r, kv_head * group + h);
        g.q[g.n].out = j->o + at * j->kv->head_dim;
        g.sums[g.n++] = j->sums + at;
        if (g.n == KERN_QUERIES || h == group - 1) {
            cpu->k->attention_chunk(g.q, g.n, &g.kv, (int32_t)start, g.sums, s);
            g.n = 0;
        }
    }
}

/* Item i: a chunk of a kv head of a row, chunks innermost. */
static void chunk_range(struct cpu *cpu, const void *arg, int64_t lo, int64_t hi, struct kern_scratch *s)
{
    const struct attention_job *j = arg;

    for (int64_t i = lo; i < hi; i++) {
        int64_t head = i / j->n_chunks;
        attend_chunk(cpu, j, head / j->kv->n_kv_heads, (int)(head % j->kv->n_kv_heads), i % j->n_chunks, s);
    }
}

/* Item i: head i mod n_heads of row i / n_heads. */
static void join_range(struct cpu *cpu, const void *arg, int64_t lo, int64_t hi, struct kern_scratch *s)
{
    const struct attention_job *j = arg;

    (void)s;
    for (int64_t i = lo; i < hi; i++) {
        struct kern_query q = query(j, i / j->args->n_heads, (int)(i % j->args->n_heads));
        cpu->k->attention_join(q.out, j->o + i * j->n_chunks * j->kv->head_dim, j->sums + i * j->n_chunks,
                               q.last / KERN_CHUNK - q.first / KERN_CHUNK + 1, j->kv->head_dim);
    }
}

/* Room for the chunks' sums, kept with the instance; false: too much, or refused. */
static bool reserve(struct cpu *cpu, struct attention_job *j)
{
    size_t n, bytes, dim = (size_t)j->kv->head_dim;

    if (!mem_mul((size_t)(j->q->rows * j->args->n_heads), (size_t)j->n_chunks, &n) ||
        !mem_mul(n, dim * sizeof(float) + sizeof(struct kern_sum), &bytes) || bytes > SPLIT_MAX)
        return false;
    struct kern_sum *sums = mem_grow(cpu->attn_sums, &cpu->n_attn_sums, n, sizeof *sums);
    if (sums == NULL)
        return false;
    j->sums = cpu->attn_sums = sums;
    float *o = mem_grow(cpu->attn_o, &cpu->n_attn_o, n * dim, sizeof *o);
    if (o == NULL)
        return false;
    j->o = cpu->attn_o = o;
    return true;
}

void cpu_attention(struct backend *be, const struct tensor *out, const struct tensor *q,
                   const struct kv_layer *kv, const struct kv_rows *rows, const struct attention_args *args)
{
    struct cpu *cpu = (struct cpu *)be;
    struct attention_job j = {.out = out, .q = q, .kv = kv, .rows = rows, .args = args};
    int group = args->n_heads / kv->n_kv_heads;
    int64_t seen = (int64_t)rows->n_seen, row_cost = 4 * (int64_t)group * kv->head_dim;

    j.block = group < KERN_QUERIES ? KERN_QUERIES / group : 1;
    j.n_chunks = rows->max_pos / KERN_CHUNK + 1;
    if (args->window > 0 && j.n_chunks > (args->window - 1) / KERN_CHUNK + 2)
        j.n_chunks = (args->window - 1) / KERN_CHUNK + 2;
    int64_t blocks = (q->rows + j.block - 1) / j.block, heads = q->rows * kv->n_kv_heads;
    bool few = blocks * kv->n_kv_heads < 4 * (int64_t)cpu->n_threads;
    if (few && cpu->n_threads > 1 && j.n_chunks > 1 && reserve(cpu, &j)) {
        cpu_for(cpu, heads * j.n_chunks, cpu_grain(row_cost * seen / q->rows / j.n_chunks), chunk_range, &j);
        cpu_for(cpu, q->rows * args->n_heads, cpu_grain(2 * j.n_chunks * kv->head_dim), join_range, &j);
        return;
    }
    cpu_for(cpu, blocks * kv->n_kv_heads, cpu_grain(row_cost * seen / blocks), attention_range, &j);
}

/* ---- keys and values into their pages ---- */
struct store_job {
    const struct kv_layer *kv;
    const struct tensor *k, *v;
    const struct kv_rows *rows;
};

static void store_range(struct cpu *cpu, const void *arg, int64_t lo, int64_t hi, struct kern_scratch *s)
{
    const struct store_job *j = arg;

    (void)cpu, (void)s;
    host_kv_store_rows(j->kv, j->k, j->v, j->rows, lo, hi);
}

void cpu_kv_store(struct backend *be, const struct kv_layer *kv, const struct tensor *k, const struct tensor *v,
                  const struct kv_rows *rows)
{
    struct store_job j = {.kv = kv, .k = k, .v = v, .rows = rows};
    cpu_for((struct cpu *)be, k->rows, cpu_grain(8 * k->cols), store_range, &j);
}
