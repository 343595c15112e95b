/* The cases: every operation, every weight type, sizes that are no multiple of
 * anything, one row and many.  To extend: a line in a table, a group in the
 * list at the end.  Must not know which backends are compared. */
#include <math.h>
#include <stdlib.h>

#include "backend/backend.h"
#include "backend/selftest_parts.h"
#include "base/mem.h"

/* How far a backend may be from the oracle, which sums in double. */
static const double bounds[OP_COUNT] = {
    [OP_EMBED] = 0,       [OP_RMSNORM] = 1e-12,    [OP_LINEAR] = 1e-12,  [OP_ROPE] = 1e-13,
    [OP_KV_STORE] = 0,    [OP_ATTENTION] = 1e-11,  [OP_ACT_MUL] = 1e-12, [OP_ADD] = 0,
    [OP_SCALE] = 0,       [OP_SOFTCAP] = 1e-12,    [OP_ROUTE] = 1e-12,   [OP_LINEAR_EXPERTS] = 1e-12,
    [OP_GATHER_ROWS] = 0, [OP_ARGMAX] = 0,         [OP_TOPK] = 0,        [OP_LINEAR_QKV] = 1e-12,
    [OP_GATE_UP] = 1e-11, [OP_LINEAR_ADD] = 1e-12,  [OP_NORM_ROPE] = 1e-12,
};

/* Under --math fast, for products with weights of these types; everything else as above.  int8 in blocks of 32
 * rounds a value by at most 1/254 of its block's largest: 1.6e-5 of the mean square where values are uniform,
 * 3e-5 where they are normal, and several times that where the few outputs of a small case happen to cancel; half
 * rounds by 2^-12, and adds two terms; bf16 rounds by 2^-9, 1.3e-6 of the mean square.  gate_up multiplies two such products. */
static const struct {
    enum dtype dtype;
    double linear, gate_up;
} fast_bounds[] = {
    {DTYPE_F16, 1e-6, 3e-6},
    {DTYPE_BF16, 2e-5, 6e-5},
    {DTYPE_Q8_0, 3e-4, 9e-4},
    {DTYPE_Q4_0, 3e-4, 9e-4},
    {DTYPE_Q4_1, 3e-4, 9e-4},
    {DTYPE_Q5_0, 3e-4, 9e-4},
    {DTYPE_Q5_1, 3e-4, 9e-4},
    {DTYPE_Q4_K, 3e-4, 9e-4},
    {DTYPE_Q5_K, 3e-4, 9e-4},
    {DTYPE_Q6_K, 3e-4, 9e-4},
};

double selftest_bound(enum op_id op, enum dtype dtype, bool fast)
{
    bool product = op == OP_LINEAR || op == OP_LINEAR_QKV || op == OP_LINEAR_ADD || op == OP_GATE_UP ||
                   op == OP_LINEAR_EXPERTS;

    for (size_t i = 0; fast && product && i < sizeof fast_bounds / sizeof *fast_bounds; i++)
        if (fast_bounds[i].dtype == dtype)
            return op == OP_GATE_UP ? fast_bounds[i].gate_up : fast_bounds[i].linear;
    return bounds[op];
}

/* ---- matrices ---- */
/* The short scope takes 1, 2 and 7 of these, of sizes of weights what stands second and last, and of each other
 * list what stands second. */
static const int row_counts[] = {1, 2, 3, 7, 64};
enum { N_ROW_COUNTS = 5, SOME_ROWS = 17 /* for 64 in the short scope: kernels for many rows, and no library's */ };

static bool rows_left_out(const struct selftest *r, int i)
{
    return r->args.scope == SELFTEST_SHORT && (i == 2 || i == 4);
}

static bool left_out(const struct selftest *r, int i)
{
    return r->args.scope == SELFTEST_SHORT && i != 1;
}

/* {k, o}: by the block of the type; of the last ones rows begin on 16 bytes, as a model's do: GPU kernels and
 * layouts of their own */
static const int plain_sizes[][2] = {{5, 3}, {67, 17}, {600, 33}, {1040, 6}, {256, 19}};
static const int block_sizes[][2] = {{32, 3}, {96, 17}, {1056, 34}, {256, 19}};
static const int super_sizes[][2] = {{256, 3}, {768, 18}};

static int sizes_of(enum dtype dtype, const int (**sizes)[2])
{
    uint32_t block = dtype_info(dtype)->block_elems;
    *sizes = block == 1 ? plain_sizes : block == 32 ? block_sizes : super_sizes;
    return block == 1 ? 5 : block == 32 ? 4 : 2;
}

static bool size_left_out(const struct selftest *r, int i, int n_sizes)
{
    return left_out(r, i) && i != n_sizes - 1;
}

static void linear_cases(struct selftest *r, enum dtype dtype)
{
    const int(*sizes)[2];
    int n_sizes = sizes_of(dtype, &sizes);
    bool brief = r->args.scope == SELFTEST_SHORT;

    for (int s = 0; s < n_sizes; s++)
        for (int c = 0; c < N_ROW_COUNTS; c++) {
            bool many = c == N_ROW_COUNTS - 1;
            if (size_left_out(r, s, n_sizes) || (rows_left_out(r, c) && !many))
                continue;
            int n = brief && many ? SOME_ROWS : row_counts[c], k = sizes[s][0], o = sizes[s][1];
            bool with_bias = (s + c) % 2 == 0;
            case_begin(r, OP_LINEAR, dtype, "%s [%d, %d] x [%d, %d]%s", dtype_info(dtype)->name, n, k, o, k,
                       with_bias ? " + bias" : "");
            struct case_pair x = case_f32(r, n, k, 1), w = case_weight(r, dtype, o, k),
                             out = case_empty(r, DTYPE_F32, n, o);
            struct case_pair bias = with_bias ? case_weight(r, DTYPE_F32, 1, o) : (struct case_pair){0};
            BOTH(i)
            op_linear(r->be[i], &out.t[i], &x.t[i], &w.t[i], with_bias ? &bias.t[i] : NULL);
            case_finish(r, &out);
        }
}

static void embed_cases(struct selftest *r, enum dtype dtype)
{
    const int(*sizes)[2];
    int n_sizes = sizes_of(dtype, &sizes);

    for (int s = 0; s < n_sizes; s++) {
        if (size_left_out(r, s, n_sizes))
            continue;
        int32_t rows[7];
        for (int i = 0; i < 7; i++)
            rows[i] = i < 2 ? 10 : case_below(r, 11);
        case_begin(r, OP_EMBED, dtype, "%s d=%d", dtype_info(dtype)->name, sizes[s][0]);
        struct case_pair w = case_weight(r, dtype, 11, sizes[s][0]), id = case_ids(r, 7, 1, rows),
                         out = case_empty(r, DTYPE_F32, 7, sizes[s][0]);
        BOTH(i)
        op_embed(r->be[i], &out.t[i], &w.t[i], &id.t[i], s % 2 ? 1.0f : 22.627417f);
        case_finish(r, &out);
    }
}

static void fused_cases(struct selftest *r, enum dtype dtype)
{
    static const int rows[] = {1, 7, 64};
    const struct backend_ops *ops = r->be[1]->ops;
    bool composed = ops->linear_qkv == NULL && ops->gate_up == NULL && ops->linear_add == NULL;
    for (int c = 0; c < 3; c++) {
        if (r->args.scope == SELFTEST_SHORT && (composed || c == 2)) /* one row may have kernels of its own */
            continue;
        int n = rows[c], k = dtype_info(dtype)->block_elems == 1 ? 267 : 256, o[3] = {37, 18, 5};
        struct tensor outs[3], ws[3];
        const struct tensor *bs[3];
        case_begin(r, OP_LINEAR_QKV, dtype, "%s n=%d", dtype_info(dtype)->name, n);
        struct case_pair x = case_f32(r, n, k, 1), w[3], b[3], out[3];
        for (int j = 0; j < 3; j++) {
            w[j] = case_weight(r, dtype, o[j], k);
            b[j] = case_weight(r, DTYPE_F32, 1, o[j]);
            out[j] = case_empty(r, DTYPE_F32, n, o[j]);
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
        case_compare(r, &out[0]);
        case_compare(r, &out[1]);
        case_finish(r, &out[2]);

        case_begin(r, OP_GATE_UP, dtype, "%s n=%d", dtype_info(dtype)->name, n);
        struct case_pair g = case_weight(r, dtype, 37, k), u = case_weight(r, dtype, 37, k),
                         y = case_empty(r, DTYPE_F32, n, 37), tmp = case_empty(r, DTYPE_F32, n, 37);
        x = case_f32(r, n, k, 1);
        BOTH(i)
        op_gate_up(r->be[i], &y.t[i], &tmp.t[i], &x.t[i], &g.t[i], &u.t[i], (enum op_act)c);
        case_finish(r, &y);

        case_begin(r, OP_LINEAR_ADD, dtype, "%s n=%d", dtype_info(dtype)->name, n);
        g = case_weight(r, dtype, 37, k);
        x = case_f32(r, n, k, 1);
        y = case_f32(r, n, 37, 1);
        tmp = case_empty(r, DTYPE_F32, n, 37);
        struct case_pair bias = case_weight(r, DTYPE_F32, 1, 37);
        BOTH(i)
        op_linear_add(r->be[i], &y.t[i], &tmp.t[i], &x.t[i], &g.t[i], c == 1 ? NULL : &bias.t[i]);
        case_finish(r, &y);
    }
}

/* ---- norms, rotation, elements ---- */
static void rmsnorm_cases(struct selftest *r, enum dtype dtype)
{
    static const int cols[] = {1, 7, 16, 40, 128, 1023};
    (void)dtype;
    for (int c = 0; c < 6; c++)
        for (int k = 0; k < N_ROW_COUNTS; k++) {
            if (left_out(r, c) || rows_left_out(r, k))
                continue;
            int n = row_counts[k], d = cols[c];
            bool in_place = k % 2, add_one = c % 2;
            case_begin(r, OP_RMSNORM, DTYPE_F32, "[%d, %d]%s%s", n, d, add_one ? " 1 + w" : "",
                       in_place ? " in place" : "");
            struct case_pair x = case_f32(r, n, d, 3), w = case_weight(r, DTYPE_F32, 1, d),
                             out = in_place ? x : case_empty(r, DTYPE_F32, n, d);
            BOTH(i)
            op_rmsnorm(r->be[i], &out.t[i], &x.t[i], &w.t[i], 1e-6f, add_one);
            case_finish(r, &out);
        }
}

static void rope_cases(struct selftest *r, enum dtype dtype)
{
    static const struct {
        int n_heads, head_dim, n_rot;
    } shapes[] = {{1, 2, 2}, {3, 8, 8}, {2, 40, 40}, {5, 40, 20}, {2, 128, 128}, {3, 10, 6}, {1, 96, 24}};
    (void)dtype;
    for (int s = 0; s < 7; s++)
        for (int k = 0; k < N_ROW_COUNTS; k++)
            for (int pairs = 0; pairs < 2; pairs++) {
                if (left_out(r, s) || rows_left_out(r, k))
                    continue;
                int n = row_counts[k], heads = shapes[s].n_heads, rot = shapes[s].n_rot;
                case_begin(r, OP_ROPE, DTYPE_F32, "%s n=%d heads=%d dim=%d rot=%d",
                           pairs ? "interleaved" : "halves", n, heads, shapes[s].head_dim, rot);
                struct case_pair x = case_f32(r, n, (int64_t)heads * shapes[s].head_dim, 2),
                                 cs = case_f32(r, n, rot, 1);
                BOTH(i)
                op_rope(r->be[i], &x.t[i], &cs.t[i], heads, rot,
                        pairs ? OP_PAIRS_INTERLEAVED : OP_PAIRS_HALVES);
                case_finish(r, &x);
            }
}

static void norm_rope_cases(struct selftest *r, enum dtype dtype)
{
    static const struct {
        int n_heads, n_kv_heads, head_dim, n_rot;
    } shapes[] = {{1, 1, 2, 2}, {6, 2, 40, 20}, {4, 4, 128, 128}, {5, 1, 17, 16}, {2, 2, 256, 64}, {3, 1, 8, 0}};
    static const char *const normed[] = {"", " q normed", " k normed", " normed"};
    bool composed = r->be[1]->ops->norm_rope == NULL;
    (void)dtype;
    for (int s = 0; s < 6; s++)
        for (int k = 0; k < N_ROW_COUNTS; k++)
            for (int norms = 0; norms < 4; norms++) { /* bit 0: of q, bit 1: of k */
                if ((composed && r->args.scope == SELFTEST_SHORT) || left_out(r, s) || rows_left_out(r, k))
                    continue;
                int n = row_counts[k], d = shapes[s].head_dim;
                bool interleaved = (s + k) % 2;
                struct norm_rope_args args = {1e-6f, k % 2, shapes[s].n_heads, shapes[s].n_kv_heads, d,
                                              shapes[s].n_rot, interleaved ? OP_PAIRS_INTERLEAVED : OP_PAIRS_HALVES};
                case_begin(r, OP_NORM_ROPE, DTYPE_F32, "%s%s n=%d heads=%d on %d dim=%d rot=%d",
                           interleaved ? "interleaved" : "halves", normed[norms], n, args.n_heads,
                           args.n_kv_heads, d, args.n_rot);
                struct case_pair q = case_f32(r, n, (int64_t)args.n_heads * d, 2),
                                 key = case_f32(r, n, (int64_t)args.n_kv_heads * d, 2),
                                 wq = case_weight(r, DTYPE_F32, 1, d), wk = case_weight(r, DTYPE_F32, 1, d),
                                 cs = case_f32(r, n, args.n_rot > 0 ? args.n_rot : 2, 1);
                BOTH(i)
                op_norm_rope(r->be[i], &q.t[i], &key.t[i], norms & 1 ? &wq.t[i] : NULL, norms & 2 ? &wk.t[i] : NULL,
                             &cs.t[i], &args);
                case_compare(r, &q);
                case_finish(r, &key);
            }
}

/* Each operation in a group of its own: one that cannot be run leaves the others their cases. */
typedef void element_case(struct selftest *r, int c, int k, int n, int d);

static void each_element(struct selftest *r, element_case *one)
{
    static const int cols[] = {1, 15, 67, 1040};
    for (int c = 0; c < 4; c++)
        for (int k = 0; k < N_ROW_COUNTS; k++)
            if (!left_out(r, c) && !rows_left_out(r, k))
                one(r, c, k, row_counts[k], cols[c]);
}

static void act_mul_case(struct selftest *r, int c, int k, int n, int d)
{
    static const char *const acts[] = {"silu", "gelu_tanh", "gelu_erf"};
    (void)c;
    for (int act = 0; act < 3; act++) {
        case_begin(r, OP_ACT_MUL, DTYPE_F32, "%s [%d, %d]", acts[act], n, d);
        struct case_pair g = case_f32(r, n, d, act == 0 ? 30 : 5), u = case_f32(r, n, d, 2);
        struct case_pair out = k % 2 ? g : case_empty(r, DTYPE_F32, n, d);
        BOTH(i)
        op_act_mul(r->be[i], &out.t[i], &g.t[i], &u.t[i], (enum op_act)act);
        case_finish(r, &out);
    }
}

static void add_case(struct selftest *r, int c, int k, int n, int d)
{
    (void)c;
    case_begin(r, OP_ADD, DTYPE_F32, "[%d, %d]", n, d);
    struct case_pair a = case_f32(r, n, d, 1), b = case_f32(r, n, d, 1),
                     out = k % 2 ? a : case_empty(r, DTYPE_F32, n, d);
    BOTH(i)
    op_add(r->be[i], &out.t[i], &a.t[i], &b.t[i]);
    case_finish(r, &out);
}

static void scale_case(struct selftest *r, int c, int k, int n, int d)
{
    (void)c, (void)k;
    case_begin(r, OP_SCALE, DTYPE_F32, "[%d, %d]", n, d);
    struct case_pair a = case_f32(r, n, d, 1);
    BOTH(i)
    op_scale(r->be[i], &a.t[i], 0.3f);
    case_finish(r, &a);
}

static void softcap_case(struct selftest *r, int c, int k, int n, int d)
{
    (void)k;
    case_begin(r, OP_SOFTCAP, DTYPE_F32, "[%d, %d]", n, d);
    struct case_pair a = case_f32(r, n, d, 120);
    BOTH(i)
    op_softcap(r->be[i], &a.t[i], c % 2 ? 30.0f : 50.0f);
    case_finish(r, &a);
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
    {128, 4, 2, 16, 0, 0, DTYPE_Q8_0, 1, 200, 1},  {64, 6, 2, 64, 70, 0, DTYPE_Q8_0, 2, 200, 64},
    {32, 8, 8, 3, 0, 30, DTYPE_Q8_0, 3, 130, 7},   {256, 2, 1, 16, 0, 0, DTYPE_Q8_0, 1, 150, 64},
};
enum { N_ATTENTION = sizeof attention_table / sizeof *attention_table, MAX_SEQS = 4 };

/* Pages in shuffled order; those wholly behind every window of the last position are not held. */
static int page_tables(struct selftest *r, const struct attention_case *c, const int *lengths, int32_t *table,
                       int max_pages)
{
    int n = 0;
    for (int i = 0; i < c->n_seqs * max_pages; i++)
        table[i] = i % max_pages * c->page_size < lengths[i / max_pages] ? n++ : -1;
    for (int i = c->n_seqs * max_pages - 1; i > 0; i--) {
        int j = case_below(r, i + 1);
        if (table[i] >= 0 && table[j] >= 0) {
            int32_t t = table[i];
            table[i] = table[j];
            table[j] = t;
        }
    }
    return n;
}

static struct kv_rows rows_on(const struct case_pair *pos, const struct case_pair *seq,
                              const struct case_pair *pages, int i, const int32_t *host_pos, const int32_t *host_seq, int window)
{
    struct kv_rows rows = {.pos = pos->t[i], .seq = seq->t[i], .pages = pages->t[i]};
    op_rows_count(&rows, host_pos, host_seq, window);
    return rows;
}

/* Not every backend has pages of Q8_0. */
static bool has_pages(const struct selftest *r, enum dtype dtype)
{
    bool all = true;
    BOTH(i)
    {
        struct backend_caps caps;
        op_caps(r->be[i], &caps);
        all = all && (dtype != DTYPE_Q8_0 || caps.kv_q8_0);
    }
    return all;
}

/* Stores all positions of all sequences, one comparison; then attends from some of them. */
static void attention_case(struct selftest *r, const struct attention_case *c)
{
    if (!has_pages(r, c->dtype))
        return;
    int lengths[MAX_SEQS], n_all = 0, max_pages = (c->length + c->page_size - 1) / c->page_size;
    int32_t *at[2] = {case_keep(r, mem_array((size_t)(MAX_SEQS * c->length), 4)),
                      case_keep(r, mem_array((size_t)(MAX_SEQS * c->length), 4))};
    int32_t *table = case_keep(r, mem_array((size_t)(MAX_SEQS * max_pages), sizeof *table));
    int kv_cols = c->n_kv_heads * c->head_dim, q_cols = c->n_heads * c->head_dim;
    struct kv_layer kv[2];

    for (int s = 0; s < c->n_seqs; s++) {
        lengths[s] = s == 0 ? c->length : 1 + case_below(r, c->length);
        for (int p = 0; p < lengths[s]; p++, n_all++) {
            at[0][n_all] = p;
            at[1][n_all] = s;
        }
    }
    int n_pages = page_tables(r, c, lengths, table, max_pages);
    case_begin(r, OP_KV_STORE, c->dtype, "%s dim=%d kv=%d page=%d seqs=%d", dtype_info(c->dtype)->name,
               c->head_dim, c->n_kv_heads, c->page_size, c->n_seqs);
    int64_t pool_rows = (int64_t)n_pages * c->n_kv_heads * c->page_size;
    struct case_pair pk = case_empty(r, c->dtype, pool_rows, c->head_dim),
                     pv = case_empty(r, c->dtype, pool_rows, c->head_dim);
    struct case_pair k = case_f32(r, n_all, kv_cols, 2), v = case_f32(r, n_all, kv_cols, 2),
                     pages = case_ids(r, c->n_seqs, max_pages, table);
    struct case_pair pos = case_ids(r, n_all, 1, at[0]), seq = case_ids(r, n_all, 1, at[1]);
    BOTH(i)
    {
        struct kv_rows rows = rows_on(&pos, &seq, &pages, i, at[0], at[1], 0);
        kv[i] = (struct kv_layer){.k = pk.t[i],
                                  .v = pv.t[i],
                                  .n_kv_heads = c->n_kv_heads,
                                  .head_dim = c->head_dim,
                                  .page_size = c->page_size};
        op_kv_store(r->be[i], &kv[i], &k.t[i], &v.t[i], &rows);
    }
    case_compare(r, &pk);
    case_compare(r, &pv);
    if (!r->same)
        r->diff = INFINITY;
    case_report(r);

    /* runs of rows of one sequence, as a step has them, and single ones */
    int32_t *from[2] = {case_keep(r, mem_array((size_t)c->n_rows, 4)),
                        case_keep(r, mem_array((size_t)c->n_rows, 4))};
    for (int n = 0, s = 0; n < c->n_rows; s = (s + 1) % c->n_seqs) {
        int run = 1 + case_below(r, 11), p = lengths[s] > run ? lengths[s] - run : 0;
        for (; p < lengths[s] && n < c->n_rows; p++, n++) {
            from[0][n] = p;
            from[1][n] = s;
        }
    }
    if (c->n_rows == 1)
        from[0][0] = c->length - 1;
    case_begin(r, OP_ATTENTION, c->dtype,
               "%s n=%d dim=%d heads=%d/%d page=%d window=%d cap=%g len=%d seqs=%d",
               dtype_info(c->dtype)->name, c->n_rows, c->head_dim, c->n_heads, c->n_kv_heads, c->page_size,
               c->window, (double)c->softcap, c->length, c->n_seqs);
    struct attention_args args = {.scale = 1.0f / sqrtf((float)c->head_dim),
                                  .window = c->window,
                                  .softcap = c->softcap,
                                  .n_heads = c->n_heads};
    struct case_pair q = case_f32(r, c->n_rows, q_cols, 3), out = case_empty(r, DTYPE_F32, c->n_rows, q_cols);
    pos = case_ids(r, c->n_rows, 1, from[0]);
    seq = case_ids(r, c->n_rows, 1, from[1]);
    BOTH(i)
    {
        struct kv_rows rows = rows_on(&pos, &seq, &pages, i, from[0], from[1], c->window);
        op_attention(r->be[i], &out.t[i], &q.t[i], &kv[i], &rows, &args);
    }
    case_finish(r, &out);
}

/* ---- experts ---- */
static void route_cases(struct selftest *r, enum dtype dtype)
{
    static const int shapes[][2] = {{3, 1}, {6, 2}, {6, 6}, {128, 8}, {67, 5}}; /* experts, used */
    (void)dtype;
    for (int s = 0; s < 5; s++)
        for (int k = 0; k < N_ROW_COUNTS; k++)
            for (int renorm = 0; renorm < 2; renorm++) {
                if (left_out(r, s) || rows_left_out(r, k))
                    continue;
                int n = row_counts[k], experts = shapes[s][0], used = shapes[s][1];
                case_begin(r, OP_ROUTE, DTYPE_F32, "n=%d experts=%d used=%d%s", n, experts, used,
                           renorm ? " renorm" : "");
                float *l = case_values(r, (int64_t)n * experts, 6);
                for (int i = 0; i + 1 < n * experts; i += 3) /* ties */
                    l[i] = l[i + 1];
                struct case_pair logits = case_make(r, DTYPE_F32, n, experts, l),
                                 id = case_empty(r, DTYPE_I32, n, used),
                                 w = case_empty(r, DTYPE_F32, n, used);
                BOTH(i)
                op_route(r->be[i], &id.t[i], &w.t[i], &logits.t[i], renorm);
                case_compare(r, &id);
                case_finish(r, &w);
            }
}

static void expert_cases(struct selftest *r, enum dtype dtype)
{
    enum { EXPERTS = 6, USED = 3, K = 256, O = 19 };
    bool brief = r->args.scope == SELFTEST_SHORT;

    for (int c = 0; c < N_ROW_COUNTS; c++)
        for (int down = 0; down < 2; down++) {
            bool many = c == N_ROW_COUNTS - 1; /* enough pairs to be grouped by expert */
            if (rows_left_out(r, c) && !many)
                continue;
            int n = brief && many ? SOME_ROWS : row_counts[c];
            struct tensor m[2][EXPERTS];
            int32_t *chosen = case_keep(r, mem_array((size_t)(n * USED), sizeof *chosen));
            case_begin(r, OP_LINEAR_EXPERTS, dtype, "%s n=%d %s", dtype_info(dtype)->name, n,
                       down ? "summed" : "apart");
            for (int j = 0; j < n; j++)
                for (int u = 0, first = case_below(r, EXPERTS); u < USED; u++) /* many: each takes 0, none 5 */
                    chosen[j * USED + u] = many ? 2 * u - (u > 0 && j % 2) : (first + u * (1 + j % 2)) % EXPERTS;
            for (int e = 0; e < EXPERTS; e++) {
                struct case_pair w = case_weight(r, dtype, O, K);
                BOTH(i)
                m[i][e] = w.t[i];
            }
            struct case_pair id = case_ids(r, n, USED, chosen), w = case_f32(r, n, USED, 1),
                             x = case_f32(r, down ? n * USED : n, K, 1),
                             out = case_empty(r, DTYPE_F32, down ? n : n * USED, O);
            BOTH(i)
            op_linear_experts(r->be[i], &out.t[i], &x.t[i], m[i], EXPERTS, &id.t[i], down ? &w.t[i] : NULL);
            case_finish(r, &out);
        }
}

/* ---- picking ---- */
static void each_pick(struct selftest *r, element_case *one)
{
    static const int cols[] = {1, 2, 67, 1040};
    for (int c = 0; c < 4; c++)
        for (int k = 0; k < N_ROW_COUNTS; k++)
            if ((c == 2 || r->args.scope != SELFTEST_SHORT) && !rows_left_out(r, k))
                one(r, c, k, row_counts[k], cols[c]);
}

static void argmax_case(struct selftest *r, int c, int k, int n, int d)
{
    (void)k;
    case_begin(r, OP_ARGMAX, DTYPE_F32, "[%d, %d]", n, d);
    float *v = case_values(r, (int64_t)n * d, 5);
    for (int i = 0; i < n * d; i++) /* many equal values */
        v[i] = roundf(v[i] * 4) / 4;
    if (n > 2)
        v[d] = c % 2 ? NAN : -INFINITY;
    struct case_pair x = case_make(r, DTYPE_F32, n, d, v), id = case_empty(r, DTYPE_I32, n, 1);
    BOTH(i)
    op_argmax(r->be[i], &id.t[i], &x.t[i]);
    case_finish(r, &id);
}

static void topk_case(struct selftest *r, int c, int k, int n, int d)
{
    int top = d < 40 ? d : 40;
    (void)c, (void)k;
    case_begin(r, OP_TOPK, DTYPE_F32, "[%d, %d] k=%d", n, d, top);
    struct case_pair x = case_f32(r, n, d, 5), id = case_empty(r, DTYPE_I32, n, top),
                     vals = case_empty(r, DTYPE_F32, n, top);
    BOTH(i)
    op_topk(r->be[i], &id.t[i], &vals.t[i], &x.t[i]);
    case_compare(r, &vals);
    case_finish(r, &id);
}

static void gather_case(struct selftest *r, int c, int k, int n, int d)
{
    int32_t rows[3] = {n - 1, 0, n / 2};
    (void)c, (void)k;
    case_begin(r, OP_GATHER_ROWS, DTYPE_F32, "[%d, %d]", n, d);
    struct case_pair x = case_f32(r, n, d, 5), id = case_ids(r, 3, 1, rows),
                     out = case_empty(r, DTYPE_F32, 3, d);
    BOTH(i)
    op_gather_rows(r->be[i], &out.t[i], &x.t[i], &id.t[i]);
    case_finish(r, &out);
}

/* ---- the list ---- */
#define EACH(name, loop)                                                                                     \
    static void name##_cases(struct selftest *r, enum dtype dtype)                                           \
    {                                                                                                        \
        (void)dtype;                                                                                         \
        loop(r, name##_case);                                                                                \
    }
EACH(act_mul, each_element)
EACH(add, each_element)
EACH(scale, each_element)
EACH(softcap, each_element)
EACH(argmax, each_pick)
EACH(topk, each_pick)
EACH(gather, each_pick)
#undef EACH

static void attention_cases(struct selftest *r, enum dtype dtype)
{
    (void)dtype;
    for (int i = 0; i < N_ATTENTION; i++)
        if (!left_out(r, i % 6)) /* a window, page sizes, both types of pages */
            attention_case(r, &attention_table[i]);
}

/* A model's own heads, those of two kv heads at most: decoding over several chunks, and a part of a prompt, each also
 * with a window that begins within a chunk and a soft-cap, which the same kernels take as arguments. */
static void heads_cases(struct selftest *r, enum dtype pages)
{
    const struct op_heads *h = &r->args.heads;
    int kv = h->n_kv_heads < 2 ? 1 : 2, heads = h->n_heads / h->n_kv_heads * kv;

    attention_case(r, &(struct attention_case){h->head_dim, heads, kv, 16, 0, 0, pages, 1, 130, 1});
    attention_case(r, &(struct attention_case){h->head_dim, heads, kv, 64, 0, 0, pages, 1, 130, 64});
    attention_case(r, &(struct attention_case){h->head_dim, heads, kv, 16, 75, 30, pages, 1, 130, 1});
    attention_case(r, &(struct attention_case){h->head_dim, heads, kv, 64, 75, 30, pages, 1, 130, 64});
}
const struct selftest_group selftest_heads = {heads_cases, false};

const struct selftest_group selftest_groups[] = {
    {linear_cases, true},   {embed_cases, true},    {fused_cases, true},      {expert_cases, true},
    {rmsnorm_cases, false}, {rope_cases, false},    {norm_rope_cases, false}, {act_mul_cases, false},   {add_cases, false},
    {scale_cases, false},   {softcap_cases, false}, {attention_cases, false}, {route_cases, false},
    {argmax_cases, false},  {topk_cases, false},    {gather_cases, false},
};
const size_t selftest_n_groups = sizeof selftest_groups / sizeof *selftest_groups;
