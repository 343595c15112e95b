/* The `cpu` attention: groups the heads and rows that read the same keys and
 * spreads them over the threads; where that gives too few parts, their chunks
 * go to the threads apart and are joined in order.  Chunks and sums are in
 * kern_attn_tmpl.h, so no grouping can change one.  Stores keys and values. */
#include <assert.h>

#include "backend/cpu/cpu.h"
#include "backend/cpu/host.h"
#include "base/mem.h"

enum {
    SPLIT_MAX = 64 << 20, /* bytes of chunks' sums at most */
    PARTS = 4             /* for each thread, so that one that is slow or late holds up the others little */
};

struct attention_job {
    const struct tensor *out, *q;
    const struct kv_layer *kv;
    const struct kv_rows *rows;
    const struct attention_args *args;
    int64_t block, n_blocks; /* rows of one item, at most; and all items of a kv head */
    /* chunks apart only */
    int heads;                 /* kv heads of one item, at most */
    struct attn_block *blocks; /* [n_split + 1], the last one only tells where items end */
    int64_t n_split;
    int64_t *first;            /* [n_rows + 1] chunks of the rows before */
    struct kern_sum *sums;     /* [n_rows][n_heads, chunks of the row] */
    float *o;                  /* [n_rows][n_heads, chunks of the row, head_dim] */
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
        .dtype = kv->k.dtype,
        .row_size = host_row_size(&kv->k),
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
    struct gathered g; /* not cleared: it is large */

    g.n = 0;
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

/* Item i: kv head i mod n_kv_heads of a block of rows, the last one first: later rows see more. */
static void attention_range(struct cpu *cpu, const void *arg, int64_t lo, int64_t hi, struct kern_scratch *s)
{
    const struct attention_job *j = arg;

    for (int64_t i = lo; i < hi; i++) {
        int64_t r0 = (j->n_blocks - 1 - i / j->kv->n_kv_heads) * j->block, r1 = r0 + j->block;
        attend_rows(cpu, j, (int)(i % j->kv->n_kv_heads), r0, r1 < j->q->rows ? r1 : j->q->rows, s);
    }
}

/* ---- chunks apart ---- */
/* Where the sums of row r's head h lie, in chunks; there are row_chunks of them. */
static int64_t row_chunks(const struct attention_job *j, int64_t r)
{
    return j->first[r + 1] - j->first[r];
}

static int64_t sums_at(const struct attention_job *j, int64_t r, int h)
{
    return j->first[r] * j->args->n_heads + h * row_chunks(j, r);
}

static void attend_gathered(struct cpu *cpu, struct gathered *g, int heads, int32_t chunk, struct kern_scratch *s)
{
    if (g->n > 0)
        cpu->k->attention_chunk(g->q, g->n / heads, heads, &g->kv, chunk * KERN_CHUNK, g->sums, s);
    g->n = 0;
}

/* One chunk of some kv heads, for the rows of a block that see it. */
static void attend_chunk(struct cpu *cpu, const struct attention_job *j, const struct attn_block *b, int kv_head, int32_t chunk,
                         struct kern_scratch *s)
{
    int group = j->args->n_heads / j->kv->n_kv_heads, left = j->kv->n_kv_heads - kv_head;
    int heads = left < j->heads ? left : j->heads;
    struct gathered g; /* not cleared: it is large */

    g.kv = view(j, host_i32(&j->rows->seq)[b->row], kv_head);
    g.n = 0;
    for (int head = kv_head; head < kv_head + heads; head++)
        for (int64_t i = 0; i < b->n_rows * group; i++) {
            int h = head * group + (int)(i % group);
            struct kern_query q = query(j, b->row + i / group, h);
            if (chunk < q.first / KERN_CHUNK || chunk > q.last / KERN_CHUNK)
                continue;
            int64_t at = sums_at(j, b->row + i / group, h) + chunk - q.first / KERN_CHUNK;
            if (g.n == KERN_QUERIES) /* of one kv head */
                attend_gathered(cpu, &g, heads, chunk, s);
            q.out = j->o + at * j->kv->head_dim;
            g.q[g.n] = q;
            g.sums[g.n++] = j->sums + at;
        }
    attend_gathered(cpu, &g, heads, chunk, s);
}

/* The kv heads of a chunk in parts of j->heads. */
static int head_parts(const struct attention_job *j)
{
    return (j->kv->n_kv_heads + j->heads - 1) / j->heads;
}

/* Item i: a part of the kv heads of a chunk of a block, heads innermost, as they lie in a page. */
static void chunk_range(struct cpu *cpu, const void *arg, int64_t lo, int64_t hi, struct kern_scratch *s)
{
    const struct attention_job *j = arg;
    int64_t from = 0, to = j->n_split; /* the block of item lo */
    int parts = head_parts(j);

    while (to - from > 1) {
        int64_t mid = from + (to - from) / 2;
        if (j->blocks[mid].item <= lo)
            from = mid;
        else
            to = mid;
    }
    for (const struct attn_block *b = &j->blocks[from]; lo < hi; lo++) {
        while (lo >= b[1].item)
            b++;
        int64_t i = lo - b->item;
        attend_chunk(cpu, j, b, (int)(i % parts) * j->heads, b->chunk + (int32_t)(i / parts), s);
    }
}

/* Item i: head i mod n_heads of row i / n_heads. */
static void join_range(struct cpu *cpu, const void *arg, int64_t lo, int64_t hi, struct kern_scratch *s)
{
    const struct attention_job *j = arg;

    (void)s;
    for (int64_t i = lo; i < hi; i++) {
        int64_t r = i / j->args->n_heads, at = sums_at(j, r, (int)(i % j->args->n_heads));
        cpu->k->attention_join(host_f32(j->out) + i * j->kv->head_dim, j->o + at * j->kv->head_dim, j->sums + at,
                               (int)row_chunks(j, r), j->kv->head_dim);
    }
}

/* Row r, the next one, with its chunks. */
static void add_row(struct attn_block *b, int64_t r, int32_t chunk, int32_t end)
{
    if (b->n_rows++ == 0) {
        b->row = r;
        b->chunk = chunk;
        b->n_chunks = end - chunk;
        return;
    }
    int32_t b_end = b->chunk + b->n_chunks;
    b->chunk = chunk < b->chunk ? chunk : b->chunk;
    b->n_chunks = (end > b_end ? end : b_end) - b->chunk;
}

/* The rows in blocks, each of one sequence; false: no memory. */
static bool make_blocks(struct cpu *cpu, struct attention_job *j)
{
    const int32_t *seq = host_i32(&j->rows->seq);
    size_t n = (size_t)j->q->rows + 1;
    struct attn_block *b = mem_grow(cpu->attn_blocks, &cpu->n_attn_blocks, n, sizeof *b);
    if (b == NULL)
        return false;
    j->blocks = cpu->attn_blocks = b;
    int64_t *first = mem_grow(cpu->attn_first, &cpu->n_attn_first, n, sizeof *first);
    if (first == NULL)
        return false;
    j->first = cpu->attn_first = first;
    *b = (struct attn_block){.n_rows = 0};
    first[0] = 0;
    for (int64_t r = 0; r < j->q->rows; r++) {
        struct kern_query q = query(j, r, 0);
        int32_t chunk = q.first / KERN_CHUNK, end = q.last / KERN_CHUNK + 1;
        if (b->n_rows == j->block || (b->n_rows > 0 && seq[r] != seq[r - 1]))
            *++b = (struct attn_block){.n_rows = 0};
        add_row(b, r, chunk, end);
        first[r + 1] = first[r] + end - chunk;
    }
    j->n_split = b + 1 - j->blocks;
    return true;
}

/* As many kv heads to an item as the kernels take together while there is work for all threads: what they read lies in
 * one piece.  The items of a block begin where those of the one before end. */
static void number_items(const struct cpu *cpu, struct attention_job *j)
{
    int64_t most = 0, chunks = 0;

    for (int64_t i = 0; i < j->n_split; i++) {
        most = j->blocks[i].n_rows > most ? j->blocks[i].n_rows : most;
        chunks += j->blocks[i].n_chunks;
    }
    most *= j->args->n_heads / j->kv->n_kv_heads; /* queries of one kv head */
    j->heads = most > KERN_TILE ? 1 : (int)(KERN_QUERIES / most);
    j->heads = j->heads < j->kv->n_kv_heads ? j->heads : j->kv->n_kv_heads;
    while (j->heads > 1 && chunks * head_parts(j) < PARTS * cpu->n_threads)
        j->heads = (j->heads + 1) / 2;
    j->blocks[0].item = 0;
    for (struct attn_block *b = j->blocks; b < j->blocks + j->n_split; b++)
        b[1].item = b->item + (int64_t)b->n_chunks * head_parts(j);
}

/* Room for the chunks' sums, kept with the instance; false: too much, or refused. */
static bool reserve(struct cpu *cpu, struct attention_job *j)
{
    size_t n, bytes, dim = (size_t)j->kv->head_dim;

    if (!mem_mul((size_t)j->first[j->q->rows], (size_t)j->args->n_heads, &n) ||
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

/* Chunks apart: where whole rows are too few parts for the threads, and where so few queries meet a chunk that reading
 * takes the time and their sums cost little; small parts keep the threads together when one is slow.  False: it has to
 * be done by whole rows. */
static bool attend_split(struct cpu *cpu, struct attention_job *j, int64_t parts, int64_t cost)
{
    if (j->rows->max_pos < KERN_CHUNK || !make_blocks(cpu, j))
        return false;
    bool few = j->q->rows * (j->args->n_heads / j->kv->n_kv_heads) <= 2 * KERN_TILE * j->n_split;
    bool enough = cpu->n_threads == 1 || parts >= PARTS * (int64_t)cpu->n_threads;
    if ((!few && enough) || !reserve(cpu, j))
        return false;
    number_items(cpu, j);
    int64_t n = j->blocks[j->n_split].item, heads = j->q->rows * j->args->n_heads;
    int64_t grain = cpu_grain(cost / n), run = n / (4 * PARTS * cpu->n_threads);
    cpu_for(cpu, n, grain > run ? grain : run, chunk_range, j);
    cpu_for(cpu, heads, cpu_grain(2 * j->first[j->q->rows] / j->q->rows * j->kv->head_dim), join_range, j);
    return true;
}

void cpu_attention(struct backend *be, const struct tensor *out, const struct tensor *q,
                   const struct kv_layer *kv, const struct kv_rows *rows, const struct attention_args *args)
{
    struct cpu *cpu = (struct cpu *)be;
    struct attention_job j = {.out = out, .q = q, .kv = kv, .rows = rows, .args = args};
    int group = args->n_heads / kv->n_kv_heads;
    int64_t cost = 4 * (int64_t)rows->n_seen * args->n_heads * kv->head_dim;

    j.block = group < KERN_QUERIES ? KERN_QUERIES / group : 1;
    j.n_blocks = (q->rows + j.block - 1) / j.block;
    int64_t parts = j.n_blocks * kv->n_kv_heads;
    if (!attend_split(cpu, &j, parts, cost))
        cpu_for(cpu, parts, cpu_grain(cost / parts), attention_range, &j);
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

    (void)s;
    host_kv_store_rows(j->kv, j->k, j->v, j->rows, lo, hi, cpu->k->narrow_f16);
}

void cpu_kv_store(struct backend *be, const struct kv_layer *kv, const struct tensor *k, const struct tensor *v,
                  const struct kv_rows *rows)
{
    struct store_job j = {.kv = kv, .k = k, .v = v, .rows = rows};
    cpu_for((struct cpu *)be, k->rows, cpu_grain(k->cols), store_range, &j);
}
