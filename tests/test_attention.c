/* Attention and the store of keys and values on `cpu`: what a row gets depends
 * neither on the threads, nor on the other rows of the call, nor on how deep
 * other sequences are.  That the values are right is test_op's matter. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cpu/kernels.h"
#include "backend/registry.h"
#include "base/mem.h"
#include "tests/op_cases.h"
#include "tests/test.h"

enum { PAGE = 16, N_SEQS = 4, N_ROWS = 150 };

/* Positions 0 .. depth - 1 of each sequence are stored; the last `rows` of each are asked for. */
static const struct scene {
    int head_dim, n_heads, n_kv_heads, window;
    enum dtype dtype;
    int depth[N_SEQS], rows[N_SEQS];
} scenes[] = {
    {128, 16, 8, 0, DTYPE_F16, {700, 0, 0, 0}, {1, 0, 0, 0}},
    {64, 9, 3, 0, DTYPE_F16, {300, 1, 64, 65}, {1, 1, 1, 1}},
    {64, 1, 1, 0, DTYPE_F16, {400, 129, 0, 0}, {100, 50, 0, 0}},
    {256, 4, 1, 0, DTYPE_F32, {150, 130, 7, 63}, {3, 2, 7, 1}},
    {80, 6, 2, 40, DTYPE_F16, {500, 66, 30, 0}, {1, 60, 30, 0}},
    {40, 4, 1, 100, DTYPE_F32, {260, 190, 0, 0}, {9, 30, 0, 0}},
    {48, 40, 1, 0, DTYPE_F16, {200, 70, 0, 0}, {3, 2, 0, 0}},
    {128, 5, 1, 130, DTYPE_F16, {420, 129, 0, 0}, {20, 129, 0, 0}},
    {1040, 3, 1, 0, DTYPE_F16, {100, 66, 0, 0}, {4, 3, 0, 0}}, /* wider than the scratch */
};
enum { N_SCENES = sizeof scenes / sizeof *scenes };

/* Rows from .. from + n of a scene's tensors. */
static struct kv_rows rows_of(const struct tensor *pos, const struct tensor *seq, const struct tensor *pages,
                              const int32_t *host_pos, const int32_t *host_seq, int64_t from, int64_t n, int window)
{
    struct kv_rows rows = {.pos = tensor_rows(pos, from, n), .seq = tensor_rows(seq, from, n), .pages = *pages};
    op_rows_count(&rows, host_pos + from, host_seq + from, window);
    return rows;
}

/* All positions of all sequences into a new cache, one after the other. */
static void store(struct backend *be, const struct scene *c, struct kv_layer *kv, const struct tensor *pages)
{
    int32_t pos[4096], seq[4096];
    int64_t n = 0;

    for (int s = 0; s < N_SEQS; s++)
        for (int p = 0; p < c->depth[s]; p++, n++) {
            pos[n] = p;
            seq[n] = s;
        }
    struct tensor k = op_cases_filled(be, n, c->n_kv_heads * c->head_dim, 2, 1), v = op_cases_filled(be, n, c->n_kv_heads * c->head_dim, 2, 2);
    struct tensor tpos = op_cases_ints(be, n, 1, pos), tseq = op_cases_ints(be, n, 1, seq);
    struct kv_rows rows = rows_of(&tpos, &tseq, pages, pos, seq, 0, n, 0);
    op_kv_store(be, kv, &k, &v, &rows);
    struct buffer *bufs[] = {k.buf, v.buf, tpos.buf, tseq.buf};
    for (size_t i = 0; i < sizeof bufs / sizeof *bufs; i++)
        op_free(bufs[i]);
}

/* What the rows of a scene get, `at_once` of them in a call; *n rows. */
static float *play(const struct scene *c, int n_threads, int at_once, int64_t *n)
{
    struct backend_params params = {.n_threads = n_threads};
    struct backend *be[REGISTRY_MAX_INSTANCES];
    int count, max_pages = 0, n_pages = 0;
    int32_t table[N_SEQS * 64], pos[N_ROWS], seq[N_ROWS];

    ck_assert_int_eq(registry_open("cpu", &params, be, &count, NULL, 0, NULL), 0);
    for (int s = 0; s < N_SEQS; s++)
        max_pages = (c->depth[s] + PAGE - 1) / PAGE > max_pages ? (c->depth[s] + PAGE - 1) / PAGE : max_pages;
    for (int i = 0; i < N_SEQS * max_pages; i++)
        table[i] = i % max_pages * PAGE < c->depth[i / max_pages] ? n_pages++ : -1;
    struct kv_layer kv = {.n_kv_heads = c->n_kv_heads, .head_dim = c->head_dim, .page_size = PAGE};
    ck_assert_int_eq(op_alloc(be[0], &kv.k, c->dtype, (int64_t)n_pages * c->n_kv_heads * PAGE, c->head_dim, NULL), 0);
    ck_assert_int_eq(op_alloc(be[0], &kv.v, c->dtype, (int64_t)n_pages * c->n_kv_heads * PAGE, c->head_dim, NULL), 0);
    struct tensor pages = op_cases_ints(be[0], N_SEQS, max_pages, table);
    op_begin(be[0]);
    store(be[0], c, &kv, &pages);

    *n = 0;
    for (int s = 0; s < N_SEQS; s++)
        for (int i = 0; i < c->rows[s]; i++, ++*n) {
            pos[*n] = c->depth[s] - c->rows[s] + i;
            seq[*n] = s;
        }
    struct tensor tpos = op_cases_ints(be[0], *n, 1, pos), tseq = op_cases_ints(be[0], *n, 1, seq);
    struct tensor q = op_cases_filled(be[0], *n, c->n_heads * c->head_dim, 2, 3), out = op_cases_filled(be[0], *n, c->n_heads * c->head_dim, 2, 4);
    struct attention_args args = {.scale = 1.0f, .window = c->window, .n_heads = c->n_heads};
    for (int64_t r = 0; r < *n; r += at_once) {
        int64_t m = *n - r < at_once ? *n - r : at_once;
        struct kv_rows rows = rows_of(&tpos, &tseq, &pages, pos, seq, r, m, c->window);
        struct tensor qr = tensor_rows(&q, r, m), o = tensor_rows(&out, r, m);
        op_attention(be[0], &o, &qr, &kv, &rows, &args);
    }
    float *got = mem_array(tensor_size(&out), 1);
    ck_assert_int_eq(op_read(be[0], got, &out, NULL), 0);
    struct buffer *bufs[] = {kv.k.buf, kv.v.buf, pages.buf, tpos.buf, tseq.buf, q.buf, out.buf};
    for (size_t i = 0; i < sizeof bufs / sizeof *bufs; i++)
        op_free(bufs[i]);
    registry_close(be[0]);
    return got;
}

/* One thread and one row at a time, against all rows at once on as many threads as split
 * rows, heads or chunks. */
START_TEST(rows_and_threads)
{
    static const int threads[] = {1, 2, 5, 40}, at_once[] = {N_ROWS, 1, 7};
    const struct scene *c = &scenes[_i];
    int64_t n;
    float *want = play(c, 1, 1, &n);

    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 3; j++) {
            float *got = play(c, threads[i], at_once[j], &n);
            for (int64_t e = 0; e < n * c->n_heads * c->head_dim; e++)
                ck_assert_msg(memcmp(&want[e], &got[e], sizeof *got) == 0, "%d threads, %d rows: value %d is %.9g, not %.9g",
                              threads[i], at_once[j], (int)e, (double)got[e], (double)want[e]);
            free(got);
        }
    free(want);
}
END_TEST

/* Each half, and what lies between it and the next one: the middle, and a bit to each side of all three. */
START_TEST(narrows_to_even)
{
    const struct cpu_kernels *k = kernels_find(op_isas[_i]);
    static const uint32_t behind[] = {0, 1, 0xfff, 0x1000, 0x1001, 0x1fff};
    enum { N = 6 * 8 + 5 }; /* whole sixteens and a rest */

    if (k == NULL) {
        test_skip("an instruction set is not on this machine");
        return;
    }
    for (uint32_t h = 0; h < 65536; h += 8) {
        float x[N] = {0};
        uint16_t got[N + 1];
        for (int i = 0; i < N; i++) {
            float f = f16_to_f32((uint16_t)(h + (uint32_t)i % 8));
            uint32_t bits;
            memcpy(&bits, &f, sizeof bits);
            bits += behind[i / 8 % 6];
            memcpy(&x[i], &bits, sizeof bits);
        }
        got[N] = 0xabcd;
        k->narrow_f16(got, x, N);
        for (int i = 0; i < N; i++)
            ck_assert_msg(got[i] == f32_to_f16(x[i]), "%a: %04x", (double)x[i], (unsigned)got[i]);
        ck_assert_uint_eq(got[N], 0xabcd);
    }
}
END_TEST

/* Positions that rows of one sequence share are seen by each and read once; those of others are others'. */
START_TEST(rows_counted)
{
    static const struct {
        int n, window;
        int32_t pos[4], seq[4], max_pos;
        uint64_t seen, read;
    } cases[] = {
        {1, 0, {7}, {0}, 7, 8, 8},
        {3, 0, {5, 6, 7}, {2, 2, 2}, 7, 6 + 7 + 8, 8},
        {2, 0, {5, 6}, {0, 1}, 6, 6 + 7, 6 + 7},
        {4, 0, {3, 4, 9, 3}, {0, 0, 1, 2}, 9, 4 + 5 + 10 + 4, 5 + 10 + 4},
        {3, 4, {9, 10, 11}, {0, 0, 0}, 11, 12, 6},
        {2, 4, {9, 20}, {0, 0}, 20, 8, 8},
        {2, 4, {1, 2}, {0, 0}, 2, 2 + 3, 3},
    };
    struct backend_params params = {.n_threads = 1};
    struct backend *be[REGISTRY_MAX_INSTANCES];
    int count;
    ck_assert_int_eq(registry_open("cpu", &params, be, &count, NULL, 0, NULL), 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct tensor pos = op_cases_ints(be[0], cases[i].n, 1, cases[i].pos);
        struct kv_rows rows = {.pos = pos};
        op_rows_count(&rows, cases[i].pos, cases[i].seq, cases[i].window);
        ck_assert_int_eq(rows.max_pos, cases[i].max_pos);
        ck_assert_uint_eq(rows.n_seen, cases[i].seen);
        ck_assert_uint_eq(rows.n_read, cases[i].read);
        op_free(pos.buf);
    }
    registry_close(be[0]);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("attention");
    TCase *t = tcase_create("attention");

    tcase_set_timeout(t, 120);
    tcase_add_test(t, rows_counted);
    tcase_add_loop_test(t, rows_and_threads, 0, N_SCENES);
    tcase_add_loop_test(t, narrows_to_even, 0, OP_N_ISAS);
    suite_add_tcase(s, t);
    return test_main(s);
}
