/* The cases of op_cases.h: every operation, every weight type, sizes that are
 * no multiple of anything, one row and many.  To extend: a line in a table.
 * Must not know which backends it compares. */
#include "tests/op_cases.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"

/* How far a backend may be from the oracle, which sums in double. */
static const double bounds[OP_COUNT] = {
    [OP_EMBED] = 0,       [OP_RMSNORM] = 1e-12,    [OP_LINEAR] = 1e-12,  [OP_ROPE] = 1e-13,
    [OP_KV_STORE] = 0,    [OP_ATTENTION] = 1e-11,  [OP_ACT_MUL] = 1e-12, [OP_ADD] = 0,
    [OP_SCALE] = 0,       [OP_SOFTCAP] = 1e-12,    [OP_ROUTE] = 1e-12,   [OP_LINEAR_EXPERTS] = 1e-12,
    [OP_GATHER_ROWS] = 0, [OP_ARGMAX] = 0,         [OP_TOPK] = 0,        [OP_LINEAR_QKV] = 1e-12,
    [OP_GATE_UP] = 1e-11, [OP_LINEAR_ADD] = 1e-12,
};

/* The same tensor on both instances. */
struct pair {
    struct tensor t[2];
};

struct run {
    struct backend *be[2];
    bool exact;
    op_cases_report *report;
    void *user;
    int n_cases;
    uint64_t seed;
    /* of the case at hand */
    enum op_id op;
    char variant[128];
    void *owned[160];
    int n_owned;
    struct buffer *bufs[160];
    int n_bufs;
    double diff, norm; /* sums of squares over the outputs compared so far */
    bool same;         /* bits */
    struct err err;
};

/* ---- making data ---- */
void op_cases_random(float *x, size_t n, double range, uint64_t seed)
{
    for (size_t i = 0; i < n; i++)
        x[i] = (float)((2 * rng_unit(seed, 0, i) - 1) * range);
}

/* Where the halves of a K-quant block stand; every other byte may be anything. */
static const struct {
    enum dtype dtype;
    int halves[2];
} k_scales[] = {
    {DTYPE_Q2_K, {80, 82}}, {DTYPE_Q3_K, {108, 108}}, {DTYPE_Q4_K, {0, 2}},
    {DTYPE_Q5_K, {0, 2}},   {DTYPE_Q6_K, {208, 208}},
};

void op_cases_blocks(enum dtype dtype, void *blocks, size_t n, uint64_t seed)
{
    const struct dtype_info *d = dtype_info(dtype);
    uint8_t *bytes = blocks;
    size_t n_blocks = n / d->block_elems;

    if (d->from_f32 != NULL) {
        float *x = mem_array(n, sizeof *x);
        op_cases_random(x, n, 1, seed);
        d->from_f32(blocks, x, n);
        free(x);
        return;
    }
    for (size_t i = 0; i < n_blocks * d->block_size; i++)
        bytes[i] = (uint8_t)rng_u64(seed, 1, i);
    for (size_t k = 0; k < sizeof k_scales / sizeof *k_scales; k++)
        for (size_t b = 0; k_scales[k].dtype == dtype && b < n_blocks; b++)
            for (int h = 0; h < 2; h++) {
                uint16_t v = f32_to_f16((float)(0.002 + 0.01 * rng_unit(seed, 2, 2 * b + (size_t)h)));
                memcpy(bytes + b * d->block_size + k_scales[k].halves[h], &v, sizeof v);
            }
}

static void *keep(struct run *r, void *p)
{
    if (p == NULL || r->n_owned == (int)(sizeof r->owned / sizeof *r->owned)) {
        fprintf(stderr, "op_cases: out of memory or places\n");
        abort();
    }
    return r->owned[r->n_owned++] = p;
}

static float *values(struct run *r, int64_t n, double range)
{
    float *x = keep(r, mem_array((size_t)n, sizeof *x));
    op_cases_random(x, (size_t)n, range, ++r->seed);
    return x;
}

static int below(struct run *r, int n)
{
    return (int)(rng_u64(++r->seed, 3, 0) % (uint64_t)n);
}

static void failed(struct run *r)
{
    fprintf(stderr, "op_cases: %s %s: %s\n", op_name(r->op), r->variant, r->err.msg);
    r->same = false;
    r->diff = INFINITY;
}

static void own(struct run *r, struct buffer *buf)
{
    if (r->n_bufs == (int)(sizeof r->bufs / sizeof *r->bufs))
        abort();
    r->bufs[r->n_bufs++] = buf;
}

static struct pair make(struct run *r, enum dtype dtype, int64_t rows, int64_t cols, const void *data)
{
    struct pair p;
    for (int i = 0; i < 2; i++) {
        if (op_alloc(r->be[i], &p.t[i], dtype, rows, cols, &r->err) != 0) {
            failed(r);
            abort();
        }
        own(r, p.t[i].buf);
        if (data != NULL)
            op_write(r->be[i], &p.t[i], data);
    }
    return p;
}

static struct pair f32(struct run *r, int64_t rows, int64_t cols, double range)
{
    return make(r, DTYPE_F32, rows, cols, values(r, rows * cols, range));
}

static struct pair empty(struct run *r, enum dtype dtype, int64_t rows, int64_t cols)
{
    return make(r, dtype, rows, cols, NULL);
}

static struct pair ids(struct run *r, int64_t rows, int64_t cols, const int32_t *v)
{
    return make(r, DTYPE_I32, rows, cols, v);
}

/* A weight as it lies in a mapped file, at an odd address. */
static struct pair weight(struct run *r, enum dtype dtype, int64_t rows, int64_t cols)
{
    struct pair p;
    size_t row;
    if (!dtype_row_size(dtype, cols, &row))
        abort();
    uint8_t *file = keep(r, mem_array(row * (size_t)rows + 1, 1));
    void *blocks = keep(r, mem_array(row * (size_t)rows, 1));
    op_cases_blocks(dtype, blocks, (size_t)(rows * cols), ++r->seed);
    memcpy(file + 1, blocks, row * (size_t)rows);
    struct host_matrix m = {.name = "w",
                            .dtype = dtype,
                            .rows = rows,
                            .cols = cols,
                            .data = file + 1,
                            .file = file,
                            .file_size = row * (size_t)rows + 1};
    for (int i = 0; i < 2; i++) {
        if (op_import(r->be[i], &p.t[i], &m, &r->err) != 0) {
            failed(r);
            abort();
        }
        own(r, p.t[i].buf);
    }
    return p;
}

/* ---- running and comparing ---- */
#define BOTH(i) for (int i = 0; i < 2; i++)

static void begin(struct run *r, enum op_id op, const char *fmt, ...) ATTR_PRINTF(3, 4);
static void begin(struct run *r, enum op_id op, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    vsnprintf(r->variant, sizeof r->variant, fmt, args);
    va_end(args);
    r->op = op;
    r->diff = r->norm = 0;
    r->same = true;
    BOTH(i)
    op_begin(r->be[i]);
}

/* Adds an output of both instances to the comparison. */
static void compare(struct run *r, const struct pair *out)
{
    size_t size = tensor_size(&out->t[0]), n = size / dtype_info(out->t[0].dtype)->block_size;
    uint8_t *raw[2];

    BOTH(i)
    {
        raw[i] = keep(r, mem_array(size + 1, 1));
        if (op_read(r->be[i], raw[i], &out->t[i], &r->err) != 0)
            failed(r);
    }
    r->same = r->same && memcmp(raw[0], raw[1], size) == 0;
    if (out->t[0].dtype != DTYPE_F32) {
        r->diff = memcmp(raw[0], raw[1], size) == 0 ? r->diff : INFINITY;
        return;
    }
    for (size_t k = 0; k < n; k++) {
        float v[2];
        BOTH(i)
        memcpy(&v[i], raw[i] + 4 * k, sizeof v[i]);
        double d = (double)v[0] - (double)v[1];
        r->diff += d * d;
        r->norm += (double)v[0] * (double)v[0];
    }
}

static void end(struct run *r)
{
    double bound = r->exact ? 0 : bounds[r->op], error = r->norm > 0 ? r->diff / r->norm : r->diff;
    bool ok = bound > 0 ? error <= bound : r->same; /* NaN is never ok */

    BOTH(i)
    if (op_sync(r->be[i], &r->err) != 0) {
        failed(r);
        ok = false;
    }
    r->report(r->user, op_name(r->op), r->variant, error, bound, ok);
    r->n_cases++;
    while (r->n_bufs > 0)
        op_free(r->bufs[--r->n_bufs]);
    while (r->n_owned > 0)
        free(r->owned[--r->n_owned]);
}

static void finish(struct run *r, const struct pair *out)
{
    compare(r, out);
    end(r);
}

/* ---- matrices ---- */
static const int row_counts[] = {1, 2, 3, 7, 64};
enum { N_ROW_COUNTS = 5 };

/* {k, o}: by the block of the type */
static const int plain_sizes[][2] = {{5, 3}, {67, 17}, {600, 33}, {1040, 6}};
static const int block_sizes[][2] = {{32, 3}, {96, 17}, {1056, 34}};
static const int super_sizes[][2] = {{256, 3}, {768, 18}};

static int sizes_of(enum dtype dtype, const int (**sizes)[2])
{
    uint32_t block = dtype_info(dtype)->block_elems;
    *sizes = block == 1 ? plain_sizes : block == 32 ? block_sizes : super_sizes;
    return block == 1 ? 4 : block == 32 ? 3 : 2;
}

static void linear_cases(struct run *r, enum dtype dtype)
{
    const int(*sizes)[2];
    int n_sizes = sizes_of(dtype, &sizes);

    for (int s = 0; s < n_sizes; s++)
        for (int c = 0; c < N_ROW_COUNTS; c++) {
            int n = row_counts[c], k = sizes[s][0], o = sizes[s][1];
            bool with_bias = (s + c) % 2 == 0;
            begin(r, OP_LINEAR, "%s [%d, %d] x [%d, %d]%s", dtype_info(dtype)->name, n, k, o, k,
                  with_bias ? " + bias" : "");
            struct pair x = f32(r, n, k, 1), w = weight(r, dtype, o, k), out = empty(r, DTYPE_F32, n, o);
            struct pair bias = with_bias ? weight(r, DTYPE_F32, 1, o) : (struct pair){0};
            BOTH(i)
            op_linear(r->be[i], &out.t[i], &x.t[i], &w.t[i], with_bias ? &bias.t[i] : NULL);
            finish(r, &out);
        }
}

static void embed_cases(struct run *r, enum dtype dtype)
{
    const int(*sizes)[2];
    int n_sizes = sizes_of(dtype, &sizes);

    for (int s = 0; s < n_sizes; s++) {
        int32_t rows[7];
        for (int i = 0; i < 7; i++)
            rows[i] = i < 2 ? 10 : below(r, 11);
        begin(r, OP_EMBED, "%s d=%d", dtype_info(dtype)->name, sizes[s][0]);
        struct pair w = weight(r, dtype, 11, sizes[s][0]), id = ids(r, 7, 1, rows),
                    out = empty(r, DTYPE_F32, 7, sizes[s][0]);
        BOTH(i)
        op_embed(r->be[i], &out.t[i], &w.t[i], &id.t[i], s % 2 ? 1.0f : 22.627417f);
        finish(r, &out);
    }
}

static void fused_cases(struct run *r, enum dtype dtype)
{
    static const int rows[] = {1, 7, 64};
    for (int c = 0; c < 3; c++) {
        int n = rows[c], k = 256, o[3] = {37, 18, 5};
        struct tensor outs[3], ws[3];
        const struct tensor *bs[3];
        begin(r, OP_LINEAR_QKV, "%s n=%d", dtype_info(dtype)->name, n);
        struct pair x = f32(r, n, k, 1), w[3], b[3], out[3];
        for (int j = 0; j < 3; j++) {
            w[j] = weight(r, dtype, o[j], k);
            b[j] = weight(r, DTYPE_F32, 1, o[j]);
            out[j] = empty(r, DTYPE_F32, n, o[j]);
        }
        BOTH(i)
        {
            for (int j = 0; j < 3; j++) {
                outs[j] = out[j].t[i];
                ws[j] = w[j].t[i];
                bs[j] = j == 1 ? NULL : &b[j].t[i];
            }
            op_linear_qkv(r->be[i], outs, &x.t[i], ws, bs);
        }
        compare(r, &out[0]);
        compare(r, &out[1]);
        finish(r, &out[2]);

        begin(r, OP_GATE_UP, "%s n=%d", dtype_info(dtype)->name, n);
        struct pair g = weight(r, dtype, 37, k), u = weight(r, dtype, 37, k), y = empty(r, DTYPE_F32, n, 37),
                    tmp = empty(r, DTYPE_F32, n, 37);
        x = f32(r, n, k, 1);
        BOTH(i)
        op_gate_up(r->be[i], &y.t[i], &tmp.t[i], &x.t[i], &g.t[i], &u.t[i], (enum op_act)c);
        finish(r, &y);

        begin(r, OP_LINEAR_ADD, "%s n=%d", dtype_info(dtype)->name, n);
        g = weight(r, dtype, 37, k);
        x = f32(r, n, k, 1);
        y = f32(r, n, 37, 1);
        tmp = empty(r, DTYPE_F32, n, 37);
        BOTH(i)
        op_linear_add(r->be[i], &y.t[i], &tmp.t[i], &x.t[i], &g.t[i], NULL);
        finish(r, &y);
    }
}

/* ---- norms, rotation, elements ---- */
static void rmsnorm_cases(struct run *r)
{
    static const int cols[] = {1, 7, 16, 40, 128, 1023};
    for (int c = 0; c < 6; c++)
        for (int k = 0; k < N_ROW_COUNTS; k++) {
            int n = row_counts[k], d = cols[c];
            bool in_place = k % 2, add_one = c % 2;
            begin(r, OP_RMSNORM, "[%d, %d]%s%s", n, d, add_one ? " 1 + w" : "", in_place ? " in place" : "");
            struct pair x = f32(r, n, d, 3), w = weight(r, DTYPE_F32, 1, d),
                        out = in_place ? x : empty(r, DTYPE_F32, n, d);
            BOTH(i)
            op_rmsnorm(r->be[i], &out.t[i], &x.t[i], &w.t[i], 1e-6f, add_one);
            finish(r, &out);
        }
}

static void rope_cases(struct run *r)
{
    static const struct {
        int n_heads, head_dim, n_rot;
    } shapes[] = {{1, 2, 2}, {3, 8, 8}, {2, 40, 40}, {5, 40, 20}, {2, 128, 128}, {3, 10, 6}, {1, 96, 24}};
    for (int s = 0; s < 7; s++)
        for (int k = 0; k < N_ROW_COUNTS; k++)
            for (int pairs = 0; pairs < 2; pairs++) {
                int n = row_counts[k], heads = shapes[s].n_heads, rot = shapes[s].n_rot;
                begin(r, OP_ROPE, "%s n=%d heads=%d dim=%d rot=%d", pairs ? "interleaved" : "halves", n,
                      heads, shapes[s].head_dim, rot);
                struct pair x = f32(r, n, (int64_t)heads * shapes[s].head_dim, 2), cs = f32(r, n, rot, 1);
                BOTH(i)
                op_rope(r->be[i], &x.t[i], &cs.t[i], heads, rot,
                        pairs ? OP_PAIRS_INTERLEAVED : OP_PAIRS_HALVES);
                finish(r, &x);
            }
}

static void element_cases(struct run *r)
{
    static const int cols[] = {1, 15, 67, 1040};
    static const char *const acts[] = {"silu", "gelu_tanh", "gelu_erf"};
    for (int c = 0; c < 4; c++)
        for (int k = 0; k < N_ROW_COUNTS; k++) {
            int n = row_counts[k], d = cols[c];
            for (int act = 0; act < 3; act++) {
                begin(r, OP_ACT_MUL, "%s [%d, %d]", acts[act], n, d);
                struct pair g = f32(r, n, d, act == 0 ? 30 : 5), u = f32(r, n, d, 2);
                struct pair out = k % 2 ? g : empty(r, DTYPE_F32, n, d);
                BOTH(i)
                op_act_mul(r->be[i], &out.t[i], &g.t[i], &u.t[i], (enum op_act)act);
                finish(r, &out);
            }
            begin(r, OP_ADD, "[%d, %d]", n, d);
            struct pair a = f32(r, n, d, 1), b = f32(r, n, d, 1), out = k % 2 ? a : empty(r, DTYPE_F32, n, d);
            BOTH(i)
            op_add(r->be[i], &out.t[i], &a.t[i], &b.t[i]);
            finish(r, &out);
            begin(r, OP_SCALE, "[%d, %d]", n, d);
            a = f32(r, n, d, 1);
            BOTH(i)
            op_scale(r->be[i], &a.t[i], 0.3f);
            finish(r, &a);
            begin(r, OP_SOFTCAP, "[%d, %d]", n, d);
            a = f32(r, n, d, 120);
            BOTH(i)
            op_softcap(r->be[i], &a.t[i], c % 2 ? 30.0f : 50.0f);
            finish(r, &a);
        }
}

/* ---- attention ---- */
static const struct attention_case {
    int head_dim, n_heads, n_kv_heads, page_size, window;
    float softcap;
    enum dtype dtype;
    int n_seqs, length; /* positions of the longest sequence */
    int n_rows;
} attention_table[] = {
    {16, 1, 1, 16, 0, 0, DTYPE_F32, 1, 1, 1},      {16, 2, 1, 1, 0, 0, DTYPE_F32, 1, 5, 5},
    {128, 2, 2, 16, 0, 0, DTYPE_F16, 1, 200, 1},   {128, 4, 2, 256, 0, 0, DTYPE_F16, 1, 200, 7},
    {64, 6, 2, 200, 0, 0, DTYPE_F32, 1, 200, 64},  {40, 4, 1, 16, 0, 0, DTYPE_F16, 2, 70, 7},
    {24, 5, 1, 16, 8, 0, DTYPE_F32, 2, 100, 64},   {24, 12, 2, 1, 8, 0, DTYPE_F16, 3, 140, 7},
    {8, 7, 7, 16, 0, 0, DTYPE_F32, 3, 130, 64},    {8, 7, 1, 256, 64, 0, DTYPE_F32, 1, 300, 64},
    {8, 8, 1, 3, 65, 0, DTYPE_F16, 2, 200, 7},     {17, 3, 1, 16, 1, 0, DTYPE_F32, 2, 129, 7},
    {33, 2, 1, 16, 100, 30, DTYPE_F32, 2, 129, 7}, {96, 4, 4, 16, 0, 50, DTYPE_F16, 3, 65, 64},
    {1, 2, 2, 7, 0, 0, DTYPE_F32, 2, 64, 7},       {256, 4, 1, 16, 0, 0, DTYPE_F16, 4, 63, 64},
    {32, 8, 4, 64, 130, 0, DTYPE_F16, 1, 300, 64}, {20, 6, 6, 16, 0, 0, DTYPE_F16, 2, 260, 64},
};
enum { N_ATTENTION = sizeof attention_table / sizeof *attention_table, MAX_SEQS = 4 };

/* Pages in shuffled order; those wholly behind every window of the last position are not held. */
static int page_tables(struct run *r, const struct attention_case *c, const int *lengths, int32_t *table,
                       int max_pages)
{
    int n = 0;
    for (int i = 0; i < c->n_seqs * max_pages; i++)
        table[i] = i % max_pages * c->page_size < lengths[i / max_pages] ? n++ : -1;
    for (int i = c->n_seqs * max_pages - 1; i > 0; i--) {
        int j = below(r, i + 1);
        if (table[i] >= 0 && table[j] >= 0) {
            int32_t t = table[i];
            table[i] = table[j];
            table[j] = t;
        }
    }
    return n;
}

static struct kv_rows rows_on(const struct pair *pos, const struct pair *seq, const struct pair *pages, int i,
                              const int32_t *host_pos, int window)
{
    struct kv_rows rows = {.pos = pos->t[i], .seq = seq->t[i], .pages = pages->t[i]};
    op_rows_count(&rows, host_pos, window);
    return rows;
}

/* Stores all positions of all sequences, one comparison; then attends from some of them. */
static void attention_case(struct run *r, const struct attention_case *c)
{
    int lengths[MAX_SEQS], n_all = 0, max_pages = (c->length + c->page_size - 1) / c->page_size;
    int32_t *at[2] = {keep(r, mem_array((size_t)(MAX_SEQS * c->length), 4)),
                      keep(r, mem_array((size_t)(MAX_SEQS * c->length), 4))};
    int32_t *table = keep(r, mem_array((size_t)(MAX_SEQS * max_pages), sizeof *table));
    int kv_cols = c->n_kv_heads * c->head_dim, q_cols = c->n_heads * c->head_dim;
    struct kv_layer kv[2];

    for (int s = 0; s < c->n_seqs; s++) {
        lengths[s] = s == 0 ? c->length : 1 + below(r, c->length);
        for (int p = 0; p < lengths[s]; p++, n_all++) {
            at[0][n_all] = p;
            at[1][n_all] = s;
        }
    }
    int n_pages = page_tables(r, c, lengths, table, max_pages);
    begin(r, OP_KV_STORE, "%s dim=%d kv=%d page=%d seqs=%d", dtype_info(c->dtype)->name, c->head_dim,
          c->n_kv_heads, c->page_size, c->n_seqs);
    int64_t pool_rows = (int64_t)n_pages * c->n_kv_heads * c->page_size;
    struct pair pk = empty(r, c->dtype, pool_rows, c->head_dim),
                pv = empty(r, c->dtype, pool_rows, c->head_dim);
    struct pair k = f32(r, n_all, kv_cols, 2), v = f32(r, n_all, kv_cols, 2),
                pages = ids(r, c->n_seqs, max_pages, table);
    struct pair pos = ids(r, n_all, 1, at[0]), seq = ids(r, n_all, 1, at[1]);
    BOTH(i)
    {
        struct kv_rows rows = rows_on(&pos, &seq, &pages, i, at[0], 0);
        kv[i] = (struct kv_layer){.k = pk.t[i],
                                  .v = pv.t[i],
                                  .n_kv_heads = c->n_kv_heads,
                                  .head_dim = c->head_dim,
                                  .page_size = c->page_size};
        op_kv_store(r->be[i], &kv[i], &k.t[i], &v.t[i], &rows);
    }
    compare(r, &pk);
    compare(r, &pv);
    if (!r->same)
        r->diff = INFINITY;
    r->report(r->user, op_name(r->op), r->variant, r->diff, 0, r->same);
    r->n_cases++;

    /* runs of rows of one sequence, as a step has them, and single ones */
    int32_t *from[2] = {keep(r, mem_array((size_t)c->n_rows, 4)), keep(r, mem_array((size_t)c->n_rows, 4))};
    for (int n = 0, s = 0; n < c->n_rows; s = (s + 1) % c->n_seqs) {
        int run = 1 + below(r, 11), p = lengths[s] > run ? lengths[s] - run : 0;
        for (; p < lengths[s] && n < c->n_rows; p++, n++) {
            from[0][n] = p;
            from[1][n] = s;
        }
    }
    if (c->n_rows == 1)
        from[0][0] = c->length - 1;
    begin(r, OP_ATTENTION, "%s n=%d dim=%d heads=%d/%d page=%d window=%d cap=%g len=%d seqs=%d",
          dtype_info(c->dtype)->name, c->n_rows, c->head_dim, c->n_heads, c->n_kv_heads, c->page_size,
          c->window, (double)c->softcap, c->length, c->n_seqs);
    struct attention_args args = {.scale = 1.0f / sqrtf((float)c->head_dim),
                                  .window = c->window,
                                  .softcap = c->softcap,
                                  .n_heads = c->n_heads};
    struct pair q = f32(r, c->n_rows, q_cols, 3), out = empty(r, DTYPE_F32, c->n_rows, q_cols);
    pos = ids(r, c->n_rows, 1, from[0]);
    seq = ids(r, c->n_rows, 1, from[1]);
    BOTH(i)
    {
        struct kv_rows rows = rows_on(&pos, &seq, &pages, i, from[0], c->window);
        op_attention(r->be[i], &out.t[i], &q.t[i], &kv[i], &rows, &args);
    }
    finish(r, &out);
}

/* ---- experts ---- */
static void route_cases(struct run *r)
{
    static const int shapes[][2] = {{3, 1}, {6, 2}, {6, 6}, {128, 8}, {67, 5}}; /* experts, used */
    for (int s = 0; s < 5; s++)
        for (int k = 0; k < N_ROW_COUNTS; k++)
            for (int renorm = 0; renorm < 2; renorm++) {
                int n = row_counts[k], experts = shapes[s][0], used = shapes[s][1];
                begin(r, OP_ROUTE, "n=%d experts=%d used=%d%s", n, experts, used, renorm ? " renorm" : "");
                float *l = values(r, (int64_t)n * experts, 6);
                for (int i = 0; i + 1 < n * experts; i += 3) /* ties */
                    l[i] = l[i + 1];
                struct pair logits = make(r, DTYPE_F32, n, experts, l), id = empty(r, DTYPE_I32, n, used),
                            w = empty(r, DTYPE_F32, n, used);
                BOTH(i)
                op_route(r->be[i], &id.t[i], &w.t[i], &logits.t[i], renorm);
                compare(r, &id);
                finish(r, &w);
            }
}

static void expert_cases(struct run *r, enum dtype dtype)
{
    enum { EXPERTS = 6, USED = 3, K = 256, O = 19 };
    for (int c = 0; c < N_ROW_COUNTS; c++)
        for (int down = 0; down < 2; down++) {
            int n = row_counts[c];
            struct tensor m[2][EXPERTS];
            int32_t *chosen = keep(r, mem_array((size_t)(n * USED), sizeof *chosen));
            begin(r, OP_LINEAR_EXPERTS, "%s n=%d %s", dtype_info(dtype)->name, n, down ? "summed" : "apart");
            for (int j = 0; j < n; j++)
                for (int u = 0, first = below(r, EXPERTS); u < USED; u++)
                    chosen[j * USED + u] = (first + u * (1 + j % 2)) % EXPERTS;
            for (int e = 0; e < EXPERTS; e++) {
                struct pair w = weight(r, dtype, O, K);
                BOTH(i)
                m[i][e] = w.t[i];
            }
            struct pair id = ids(r, n, USED, chosen), w = f32(r, n, USED, 1),
                        x = f32(r, down ? n * USED : n, K, 1),
                        out = empty(r, DTYPE_F32, down ? n : n * USED, O);
            BOTH(i)
            op_linear_experts(r->be[i], &out.t[i], &x.t[i], m[i], EXPERTS, &id.t[i], down ? &w.t[i] : NULL);
            finish(r, &out);
        }
}

/* ---- picking ---- */
static void pick_cases(struct run *r)
{
    static const int cols[] = {1, 2, 67, 1040};
    for (int c = 0; c < 4; c++)
        for (int k = 0; k < N_ROW_COUNTS; k++) {
            int n = row_counts[k], d = cols[c], top = d < 40 ? d : 40;
            float *v = values(r, (int64_t)n * d, 5);
            for (int i = 0; i < n * d; i++) /* many equal values */
                v[i] = roundf(v[i] * 4) / 4;
            if (n > 2)
                v[d] = c % 2 ? NAN : -INFINITY;
            begin(r, OP_ARGMAX, "[%d, %d]", n, d);
            struct pair x = make(r, DTYPE_F32, n, d, v), id = empty(r, DTYPE_I32, n, 1);
            BOTH(i)
            op_argmax(r->be[i], &id.t[i], &x.t[i]);
            finish(r, &id);

            int32_t rows[3] = {n - 1, 0, n / 2};
            begin(r, OP_TOPK, "[%d, %d] k=%d", n, d, top);
            x = f32(r, n, d, 5);
            id = empty(r, DTYPE_I32, n, top);
            struct pair vals = empty(r, DTYPE_F32, n, top);
            BOTH(i)
            op_topk(r->be[i], &id.t[i], &vals.t[i], &x.t[i]);
            compare(r, &vals);
            finish(r, &id);

            begin(r, OP_GATHER_ROWS, "[%d, %d]", n, d);
            x = f32(r, n, d, 5);
            struct pair id3 = ids(r, 3, 1, rows), out = empty(r, DTYPE_F32, 3, d);
            BOTH(i)
            op_gather_rows(r->be[i], &out.t[i], &x.t[i], &id3.t[i]);
            finish(r, &out);
        }
}

int op_cases_run(struct backend *a, struct backend *b, bool exact, op_cases_report *report, void *user)
{
    struct run *r = mem_array(1, sizeof *r);

    if (r == NULL)
        abort();
    *r = (struct run){.be = {a, b}, .exact = exact, .report = report, .user = user, .seed = 1000};
    for (int t = 0; t < DTYPE_COUNT; t++) {
        if (!dtype_runnable((enum dtype)t))
            continue;
        linear_cases(r, (enum dtype)t);
        embed_cases(r, (enum dtype)t);
        fused_cases(r, (enum dtype)t);
        expert_cases(r, (enum dtype)t);
    }
    rmsnorm_cases(r);
    rope_cases(r);
    element_cases(r);
    for (int i = 0; i < N_ATTENTION; i++)
        attention_case(r, &attention_table[i]);
    route_cases(r);
    pick_cases(r);
    int n = r->n_cases;
    free(r);
    return n;
}
