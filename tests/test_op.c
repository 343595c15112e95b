/* Operations: `cpu` against the oracle over the whole list, and what must be
 * equal bit for bit on `cpu`: instruction sets, threads, rows alone and
 * together, page sizes.  The choke point's own duties and the registry. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "backend/cpu/cpu.h"
#include "backend/registry.h"
#include "base/mem.h"
#include "tests/op_cases.h"
#include "tests/test.h"

static struct backend *open_one(const char *selector, const char *isa, int n_threads)
{
    struct backend_params params = {.n_threads = n_threads, .cpu_isa = isa};
    struct backend *be[REGISTRY_MAX_INSTANCES];
    struct err err = {0};
    int n;

    ck_assert_msg(registry_open(selector, &params, be, &n, NULL, 0, &err) == 0, "%s", err.msg);
    ck_assert_int_eq(n, 1);
    return be[0];
}

/* ---- work over threads ---- */
struct shared {
    atomic_int times[100003];
    atomic_int ragged; /* parts that begin or end within a grain */
    int64_t n, grain;
};

static void share_out(struct cpu *cpu, const void *arg, int64_t lo, int64_t hi, struct kern_scratch *s)
{
    struct shared *sh = (struct shared *)(uintptr_t)arg;
    volatile double sum = 0;

    if (lo % sh->grain != 0 || (hi % sh->grain != 0 && hi != sh->n) || lo >= hi)
        sh->ragged++;
    for (int64_t i = lo; i < hi; i++) {
        sh->times[i]++;
        for (int64_t k = 0; s == cpu->scratch[0] && k < 200; k++) /* one thread is slow: the others help it */
            sum += (double)k;
    }
    (void)sum;
}

START_TEST(every_item_once)
{
    static const int64_t counts[][2] = {{1, 1}, {2, 1}, {7, 3}, {17, 16}, {1000, 7}, {4096, 32}, {100003, 1}, {100003, 5000}};
    static struct shared sh;
    struct backend *be = open_one("cpu", NULL, _i);

    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
        memset(&sh, 0, sizeof sh);
        sh.n = counts[c][0];
        sh.grain = counts[c][1];
        cpu_for((struct cpu *)be, sh.n, sh.grain, share_out, &sh);
        for (int64_t i = 0; i < sh.n; i++)
            ck_assert_int_eq(sh.times[i], 1);
        ck_assert_int_eq(sh.ragged, 0);
    }
    registry_close(be);
}
END_TEST

/* ---- the list ---- */
START_TEST(cpu_against_ref)
{
    struct backend *ref = open_one("ref", NULL, 1), *cpu = open_one("cpu", NULL, 2);
    struct op_tally t = {0};
    int n = op_cases_run(ref, cpu, false, op_tally_add, &t);
    ck_assert_int_eq(t.bad, 0);
    ck_assert_int_eq(t.ok, n);
    ck_assert_int_gt(n, 700);
    registry_close(ref);
    registry_close(cpu);
}
END_TEST

START_TEST(isa_equals_c)
{
    struct backend_params params = {.n_threads = 1, .cpu_isa = op_isas[_i]};
    struct backend *c = open_one("cpu", "c", 1), *be[REGISTRY_MAX_INSTANCES];
    struct op_tally t = {0};
    int n;

    if (registry_open("cpu", &params, be, &n, NULL, 0, NULL) != 0) {
        test_skip("an instruction set is not on this machine");
    } else {
        op_cases_run(c, be[0], true, op_tally_add, &t);
        ck_assert_int_eq(t.bad, 0);
        registry_close(be[0]);
    }
    registry_close(c);
}
END_TEST

START_TEST(threads_equal)
{
    struct backend *one = open_one("cpu", NULL, 1), *more = open_one("cpu", NULL, _i);
    struct op_tally t = {0};
    op_cases_run(one, more, true, op_tally_add, &t);
    ck_assert_int_eq(t.bad, 0);
    registry_close(one);
    registry_close(more);
}
END_TEST

static void noop_add(struct backend *be, const struct tensor *out, const struct tensor *a,
                     const struct tensor *b)
{
    (void)be, (void)out, (void)a, (void)b;
}

static void bent_softcap(struct backend *be, const struct tensor *x, float cap)
{
    float *v = (void *)(x->buf->host + x->off);
    (void)be;
    for (int64_t i = 0; i < x->rows * x->cols; i++)
        v[i] = cap * tanhf(v[i] / cap) * 1.0001f;
}

/* The list must notice a wrong backend. */
START_TEST(list_catches)
{
    struct backend *ref = open_one("ref", NULL, 1), *cpu = open_one("cpu", NULL, 1);
    struct backend_ops bent = *cpu->ops;
    const struct backend_ops *good = cpu->ops;
    struct op_tally t = {.quiet = true};
    bent.add = noop_add;
    bent.softcap = bent_softcap;
    cpu->ops = &bent;
    op_cases_run(ref, cpu, false, op_tally_add, &t);
    cpu->ops = good;
    ck_assert_int_eq(t.bad, 20 + 20 + 3 * 13); /* add, softcap, linear_add of every type */
    registry_close(ref);
    registry_close(cpu);
}
END_TEST

/* ---- equalities on one instance ---- */
static void must_equal(const struct tensor *a, const struct tensor *b, const char *what)
{
    size_t size = tensor_size(a);
    uint8_t *x = mem_array(size, 1), *y = mem_array(size, 1);
    ck_assert_uint_eq(size, tensor_size(b));
    ck_assert_int_eq(op_read(a->buf->be, x, a, NULL), 0);
    ck_assert_int_eq(op_read(b->buf->be, y, b, NULL), 0);
    ck_assert_msg(memcmp(x, y, size) == 0, "%s differs", what);
    free(x);
    free(y);
}

static const enum dtype linear_types[] = {DTYPE_F32,  DTYPE_F16,  DTYPE_BF16, DTYPE_Q8_0,
                                          DTYPE_Q4_0, DTYPE_Q5_1, DTYPE_Q4_K, DTYPE_Q6_K};

/* A row alone = the same row among 2, 3, 4, 7, 64, 150 others. */
START_TEST(rows_alone)
{
    static const int batches[] = {1, 2, 3, 4, 5, 7, 64, 150};
    enum { N = 150, K = 1280, O = 50 };
    struct backend *be = open_one("cpu", NULL, 2);
    enum dtype dtype = linear_types[_i];
    size_t row;
    struct tensor w, x = op_cases_filled(be, N, K, 1, 7), alone = op_cases_filled(be, N, O, 1, 8), out = op_cases_filled(be, N, O, 1, 9);

    ck_assert(dtype_row_size(dtype, K, &row));
    uint8_t *blocks = mem_array(row * O, 1);
    op_cases_blocks(dtype, blocks, (size_t)K * O, 10);
    struct host_matrix m = {.name = "w", .dtype = dtype, .rows = O, .cols = K, .data = blocks};
    ck_assert_int_eq(op_import(be, &w, &m, NULL), 0);
    free(blocks);
    for (int r = 0; r < N; r++) {
        struct tensor xr = tensor_rows(&x, r, 1), o = tensor_rows(&alone, r, 1);
        op_linear(be, &o, &xr, &w, NULL);
    }
    for (size_t b = 0; b < sizeof batches / sizeof *batches; b++) {
        int n = batches[b], r0 = (N - n) / 2;
        struct tensor xr = tensor_rows(&x, r0, n), o = tensor_rows(&out, r0, n),
                      want = tensor_rows(&alone, r0, n);
        op_linear(be, &o, &xr, &w, NULL);
        must_equal(&o, &want, dtype_info(dtype)->name);
    }
    op_free(w.buf);
    op_free(x.buf);
    op_free(alone.buf);
    op_free(out.buf);
    registry_close(be);
}
END_TEST

/* A cache of some page size filled with the same keys and values; attention of all positions at
 * once or one by one. */
enum { LEN = 150, KV_HEADS = 2 };
struct heads {
    int dim, n;
};

static struct tensor attend(struct backend *be, struct heads h, int page_size, int chunk, int window, enum dtype dtype)
{
    int n_pages = (LEN + page_size - 1) / page_size;
    int32_t pos[LEN], seq[LEN] = {0}, table[LEN];
    struct kv_layer kv = {.n_kv_heads = KV_HEADS, .head_dim = h.dim, .page_size = page_size};
    struct tensor out = op_cases_filled(be, LEN, h.n * h.dim, 1, 1), q = op_cases_filled(be, LEN, h.n * h.dim, 1, 2),
                  k = op_cases_filled(be, LEN, KV_HEADS * h.dim, 1, 3), v = op_cases_filled(be, LEN, KV_HEADS * h.dim, 1, 4);
    struct attention_args args = {.scale = 2.0f, .window = window, .n_heads = h.n};

    for (int i = 0; i < LEN; i++) {
        pos[i] = i;
        table[i] = n_pages - 1 - i; /* backwards */
    }
    ck_assert_int_eq(op_alloc(be, &kv.k, dtype, (int64_t)n_pages * KV_HEADS * page_size, h.dim, NULL), 0);
    ck_assert_int_eq(op_alloc(be, &kv.v, dtype, (int64_t)n_pages * KV_HEADS * page_size, h.dim, NULL), 0);
    struct tensor tpos = op_cases_ints(be, LEN, 1, pos), tseq = op_cases_ints(be, LEN, 1, seq),
                  tpages = op_cases_ints(be, 1, n_pages, table);
    op_begin(be);
    for (int r = 0; r < LEN; r += chunk) {
        int n = LEN - r < chunk ? LEN - r : chunk;
        struct kv_rows rows = {
            .pos = tensor_rows(&tpos, r, n), .seq = tensor_rows(&tseq, r, n), .pages = tpages};
        op_rows_count(&rows, pos + r, seq + r, window);
        struct tensor kr = tensor_rows(&k, r, n), vr = tensor_rows(&v, r, n), qr = tensor_rows(&q, r, n),
                      o = tensor_rows(&out, r, n);
        op_kv_store(be, &kv, &kr, &vr, &rows);
        op_attention(be, &o, &qr, &kv, &rows, &args);
    }
    struct buffer *bufs[] = {q.buf, k.buf, v.buf, kv.k.buf, kv.v.buf, tpos.buf, tseq.buf, tpages.buf};
    for (size_t i = 0; i < sizeof bufs / sizeof *bufs; i++)
        op_free(bufs[i]);
    return out;
}

START_TEST(pages_and_chunks)
{
    static const int pages[] = {1, 16, 256, LEN}, chunks[] = {1, 7, 32, LEN}, windows[] = {0, 1, 33, 100};
    struct backend *be = open_one("cpu", NULL, 2);
    enum dtype dtype = _i ? DTYPE_F16 : DTYPE_F32;
    const struct heads h = {40, 6};

    for (int w = 0; w < 4; w++) {
        struct tensor want = attend(be, h, 64, LEN, windows[w], dtype);
        for (int p = 0; p < 4; p++)
            for (int c = 0; c < 4; c++) {
                struct tensor got = attend(be, h, pages[p], chunks[c], windows[w], dtype);
                must_equal(&got, &want, "attention");
                op_free(got.buf);
            }
        op_free(want.buf);
    }
    registry_close(be);
}
END_TEST

/* Few rows: their chunks apart, all heads of one together, then joined, give the bits of many rows, which go head by head and
 * whole, whatever the page, the heads' size, their number and that of the threads. */
START_TEST(chunks_apart)
{
    static const int windows[] = {0, 1, 33, 100}, pages[] = {1, 16, 40, 64, 256}, threads[] = {1, 4};
    static const struct heads heads[] = {{40, 6}, {64, 2}, {64, 4}, {64, 6}, {64, 8}, {128, 2}, {128, 4}, {128, 6}, {128, 10}};
    enum dtype dtype = _i % 2 ? DTYPE_F16 : DTYPE_F32;
    struct backend *whole = open_one("cpu", NULL, 1), *apart = open_one("cpu", NULL, threads[_i / 2]);

    for (size_t c = 0; c < sizeof heads / sizeof *heads; c++)
        for (int w = 0; w < 4; w++) {
            struct heads h = heads[c];
            struct tensor want = attend(whole, h, 16, LEN, windows[w], dtype),
                          got = attend(apart, h, pages[(c + (size_t)w) % 5], 1, windows[w], dtype);
            must_equal(&got, &want, "attention");
            op_free(want.buf);
            op_free(got.buf);
        }
    ck_assert_uint_eq(((struct cpu *)whole)->n_attn_sums, 0);
    ck_assert_uint_ge(((struct cpu *)apart)->n_attn_sums, 3 * 10);
    registry_close(whole);
    registry_close(apart);
}
END_TEST

/* ---- edges ---- */
/* NaN among the operands reaches the output; a neighbour's row stays clean. */
START_TEST(nan_travels)
{
    struct backend *be = open_one(_i ? "cpu" : "ref", NULL, 1);
    struct tensor x = op_cases_filled(be, 2, 40, 1, 1), w = op_cases_filled(be, 3, 40, 1, 2), out = op_cases_filled(be, 2, 3, 1, 3),
                  id = op_cases_ints(be, 2, 1, (int32_t[2]){0});
    struct tensor first = tensor_reshape(&x, 80, 1);
    float nan = NAN, got[6];
    int32_t ids[2];

    first = tensor_rows(&first, 5, 1);
    op_begin(be);
    op_write(be, &first, &nan);
    op_linear(be, &out, &x, &w, NULL);
    op_argmax(be, &id, &out);
    ck_assert_int_eq(op_read(be, got, &out, NULL), 0);
    ck_assert_int_eq(op_read(be, ids, &id, NULL), 0);
    for (int i = 0; i < 3; i++) {
        ck_assert(isnan(got[i]));
        ck_assert(isfinite(got[3 + i]));
    }
    ck_assert_int_eq(ids[0], -1);
    ck_assert_int_ge(ids[1], 0);
    op_softcap(be, &x, 30.0f);
    op_act_mul(be, &x, &x, &x, OP_GELU_ERF);
    float all[80];
    ck_assert_int_eq(op_read(be, all, &x, NULL), 0);
    for (int i = 0; i < 80; i++)
        ck_assert_int_eq(isnan(all[i]) != 0, i == 5);
    op_free(x.buf);
    op_free(w.buf);
    op_free(out.buf);
    op_free(id.buf);
    registry_close(be);
}
END_TEST

START_TEST(picks_by_hand)
{
    static const float rows[4][6] = {
        {1, 5, 5, -2, 0, 5}, {-3, -1, -2, -1, -9, -4}, {0, NAN, 1, 2, 3, 4}, {0, 1, INFINITY, 2, 3, 4}};
    struct backend *be = open_one(_i ? "cpu" : "ref", NULL, 1);
    struct tensor x, id, ids, vals;
    int32_t best[4], top[4][3];
    float v[4][3];

    ck_assert_int_eq(op_alloc(be, &x, DTYPE_F32, 4, 6, NULL), 0);
    ck_assert_int_eq(op_alloc(be, &id, DTYPE_I32, 4, 1, NULL), 0);
    ck_assert_int_eq(op_alloc(be, &ids, DTYPE_I32, 4, 3, NULL), 0);
    ck_assert_int_eq(op_alloc(be, &vals, DTYPE_F32, 4, 3, NULL), 0);
    op_begin(be);
    op_write(be, &x, rows);
    op_argmax(be, &id, &x);
    op_topk(be, &ids, &vals, &x);
    ck_assert_int_eq(op_read(be, best, &id, NULL), 0);
    ck_assert_int_eq(op_read(be, top, &ids, NULL), 0);
    ck_assert_int_eq(op_read(be, v, &vals, NULL), 0);
    ck_assert(best[0] == 1 && best[1] == 1 && best[2] == -1 && best[3] == -1);
    ck_assert(top[0][0] == 1 && top[0][1] == 2 && top[0][2] == 5 && v[0][2] == 5);
    ck_assert(top[1][0] == 1 && top[1][1] == 3 && top[1][2] == 2 && v[1][0] == -1);
    ck_assert(top[2][0] == -1 && top[3][0] == -1);
    op_free(x.buf);
    op_free(id.buf);
    op_free(ids.buf);
    op_free(vals.buf);
    registry_close(be);
}
END_TEST

/* Routing by hand: the lowest id of equals, weights that sum to one when renormalised, and ids
 * in range whatever the logits are. */
START_TEST(route_by_hand)
{
    static const float l[3][4] = {{0, 2, 2, 1}, {3, 3, 3, 3}, {NAN, NAN, 1, NAN}};
    struct backend *be = open_one(_i ? "cpu" : "ref", NULL, 1);
    struct tensor x, ids, w;
    int32_t id[3][2];
    float got[3][2];

    ck_assert_int_eq(op_alloc(be, &x, DTYPE_F32, 3, 4, NULL), 0);
    ck_assert_int_eq(op_alloc(be, &ids, DTYPE_I32, 3, 2, NULL), 0);
    ck_assert_int_eq(op_alloc(be, &w, DTYPE_F32, 3, 2, NULL), 0);
    op_begin(be);
    op_write(be, &x, l);
    op_route(be, &ids, &w, &x, true);
    ck_assert_int_eq(op_read(be, id, &ids, NULL), 0);
    ck_assert_int_eq(op_read(be, got, &w, NULL), 0);
    ck_assert(id[0][0] == 1 && id[0][1] == 2 && id[1][0] == 0 && id[1][1] == 1 && id[2][0] == 2 &&
              id[2][1] == 0);
    ck_assert(fabsf(got[0][0] - 0.5f) < 1e-6f && fabsf(got[1][1] - 0.5f) < 1e-6f);
    op_route(be, &ids, &w, &x, false);
    ck_assert_int_eq(op_read(be, got, &w, NULL), 0);
    ck_assert(fabsf(got[1][0] - 0.25f) < 1e-6f && isnan(got[2][0]));
    op_free(x.buf);
    op_free(ids.buf);
    op_free(w.buf);
    registry_close(be);
}
END_TEST

/* Every half, through import and linear with the unit vector: exact on each instruction set. */
START_TEST(halves_are_exact)
{
    struct backend_params params = {.n_threads = 1, .cpu_isa = op_isas[_i]};
    struct backend *be[REGISTRY_MAX_INSTANCES];
    int n;

    if (registry_open("cpu", &params, be, &n, NULL, 0, NULL) != 0) {
        test_skip("an instruction set is not on this machine");
        return;
    }
    uint16_t *h = mem_array(65536, sizeof *h);
    float *got = mem_array(65536, sizeof *got);
    for (int i = 0; i < 65536; i++)
        h[i] = (uint16_t)i;
    for (int type = 0; type < 2; type++) {
        struct host_matrix m = {
            .name = "h", .dtype = type ? DTYPE_BF16 : DTYPE_F16, .rows = 4096, .cols = 16, .data = h};
        int32_t ids[4096];
        struct tensor w, out, id;
        for (int i = 0; i < 4096; i++)
            ids[i] = i;
        ck_assert_int_eq(op_import(be[0], &w, &m, NULL), 0);
        ck_assert_int_eq(op_alloc(be[0], &out, DTYPE_F32, 4096, 16, NULL), 0);
        id = op_cases_ints(be[0], 4096, 1, ids);
        op_begin(be[0]);
        op_embed(be[0], &out, &w, &id, 1.0f);
        ck_assert_int_eq(op_read(be[0], got, &out, NULL), 0);
        for (int i = 0; i < 65536; i++) {
            float want = type ? bf16_to_f32(h[i]) : f16_to_f32(h[i]);
            ck_assert_msg(isnan(want) ? isnan(got[i]) : memcmp(&want, &got[i], 4) == 0, "half %04x",
                          (unsigned)i);
        }
        op_free(w.buf);
        op_free(out.buf);
        op_free(id.buf);
    }
    free(h);
    free(got);
    registry_close(be[0]);
}
END_TEST

/* ---- memory and import ---- */
START_TEST(import_and_export)
{
    struct backend *be = open_one(_i ? "cpu" : "ref", NULL, 1);
    struct err err = {0};
    uint8_t file[80];
    float values[16], back[16];
    struct tensor w;

    op_cases_random(values, 16, 1, 5);
    memset(file, 0, sizeof file);
    memcpy(file + 3, values, sizeof values);
    struct host_matrix m = {.name = "layers.0.w",
                            .dtype = DTYPE_F32,
                            .rows = 4,
                            .cols = 4,
                            .data = file + 3,
                            .file = file,
                            .file_size = sizeof file};
    ck_assert_int_eq(op_import(be, &w, &m, &err), 0);
    ck_assert_ptr_eq(w.buf->host + w.off, file + 3); /* a view */
    ck_assert_int_eq(op_export(be, back, &w, &err), 0);
    ck_assert_mem_eq(back, values, sizeof values);
    op_free(w.buf);

    m.file = NULL; /* a copy */
    ck_assert_int_eq(op_import(be, &w, &m, &err), 0);
    memset(file, 0, sizeof file);
    ck_assert_int_eq(op_export(be, back, &w, &err), 0);
    ck_assert_mem_eq(back, values, sizeof values);
    op_free(w.buf);

    m.file = file;
    m.data = file + 17;
    ck_assert_int_eq(op_import(be, &w, &m, &err), ERR_FORMAT);
    ck_assert_ptr_nonnull(strstr(err.msg, "layers.0.w"));
    ck_assert_ptr_nonnull(strstr(err.msg, "80"));
    m.data = file;
    m.rows = INT64_MAX / 2;
    ck_assert_int_eq(op_import(be, &w, &m, &err), ERR_NOMEM);
    m.rows = 0;
    ck_assert_int_eq(op_import(be, &w, &m, &err), ERR_ARG);
    m.rows = 1;
    m.dtype = DTYPE_Q8_0;
    m.cols = 33;
    ck_assert_int_eq(op_import(be, &w, &m, &err), ERR_ARG);
    ck_assert_ptr_nonnull(strstr(err.msg, "33"));
    m.dtype = DTYPE_I32;
    ck_assert_int_eq(op_import(be, &w, &m, &err), ERR_UNSUPPORTED);
    ck_assert_ptr_nonnull(strstr(err.msg, "I32"));
    registry_close(be);
}
END_TEST

START_TEST(alloc_is_checked)
{
    struct backend *be = open_one("cpu", NULL, 1);
    struct err err = {0};
    struct tensor t;
    float zero[6] = {1};

    ck_assert_int_eq(op_alloc(be, &t, DTYPE_F32, 2, 3, &err), 0);
    ck_assert_uint_eq((uintptr_t)t.buf->host % 64, 0);
    ck_assert_int_eq(op_read(be, zero, &t, &err), 0);
    for (int i = 0; i < 6; i++)
        ck_assert(zero[i] == 0);
    op_free(t.buf);
    op_free(NULL);
    ck_assert_int_eq(op_alloc(be, &t, DTYPE_F32, INT64_MAX, 3, &err), ERR_NOMEM);
    ck_assert_int_eq(op_alloc(be, &t, DTYPE_F32, -1, 3, &err), ERR_ARG);
    ck_assert_int_eq(op_alloc(be, &t, DTYPE_Q4_K, 1, 255, &err), ERR_ARG);
    ck_assert_int_eq(op_alloc(be, &t, DTYPE_F32, (int64_t)1 << 40, (int64_t)1 << 18, &err),
                     ERR_NOMEM); /* 2^60 bytes */
    ck_assert_ptr_nonnull(strstr(err.msg, "cpu"));
    registry_close(be);
}
END_TEST

#ifndef __SANITIZE_THREAD__ /* its allocator touches every page */
/* A buffer takes memory only where it is written, as a KV cache of a long context is. */
START_TEST(alloc_is_lazy)
{
    struct backend *be = open_one(_i ? "cpu" : "ref", NULL, 1);
    size_t page = (size_t)sysconf(_SC_PAGESIZE), size = (size_t)64 << 20, n = size / page, resident = 0;
    unsigned char *in = mem_array(n, 1);
    struct tensor t;

    ck_assert_int_eq(op_alloc(be, &t, DTYPE_F32, (int64_t)size / 4096, 1024, NULL), 0);
    uintptr_t start = ((uintptr_t)t.buf->host + page - 1) / page * page;
    ck_assert_int_eq(mincore((void *)start, size - page, in), 0);
    for (size_t i = 0; i + 1 < n; i++)
        resident += in[i] & 1;
    ck_assert_msg(resident < n / 4, "%zu of %zu pages are in memory", resident, n);
    free(in);
    op_free(t.buf);
    registry_close(be);
}
END_TEST
#endif

/* ---- the choke point ---- */
static void failing_add(struct backend *be, const struct tensor *out, const struct tensor *a,
                        const struct tensor *b)
{
    (void)out, (void)a, (void)b;
    backend_fail(be, ERR_DEVICE, "lost the %s", "device");
}

START_TEST(first_failure_is_kept)
{
    struct backend *be = open_one("cpu", NULL, 1);
    const struct backend_ops *good = be->ops;
    struct backend_ops bent = *good;
    struct tensor x = op_cases_filled(be, 2, 3, 1, 1);
    float before[6], after[6];
    struct err err = {0};

    bent.add = failing_add;
    be->ops = &bent;
    op_begin(be);
    ck_assert_int_eq(op_read(be, before, &x, &err), 0);
    op_add(be, &x, &x, &x);
    op_scale(be, &x, 2.0f); /* does nothing any more */
    op_write(be, &x, (float[6]){0});
    ck_assert_uint_eq(op_stats(be, OP_SCALE)->calls, 0);
    ck_assert_int_eq(op_read(be, after, &x, &err), ERR_DEVICE);
    ck_assert_ptr_nonnull(strstr(err.msg, "cpu: add of [2, 3] to [2, 3]: lost the device"));
    err_clear(&err);
    ck_assert_int_eq(op_sync(be, &err), ERR_DEVICE);
    ck_assert_int_eq(err.code, ERR_DEVICE);
    op_begin(be);
    ck_assert_int_eq(op_sync(be, &err), 0);
    ck_assert_int_eq(op_read(be, after, &x, &err), 0);
    ck_assert_mem_eq(before, after, sizeof before);
    be->ops = good;
    op_free(x.buf);
    registry_close(be);
}
END_TEST

START_TEST(stats_count)
{
    struct backend *be = open_one("cpu", NULL, 2);
    struct tensor x = op_cases_filled(be, 4, 8, 1, 1), w = op_cases_filled(be, 3, 8, 1, 2), out = op_cases_filled(be, 4, 3, 1, 3),
                  none = tensor_rows(&x, 0, 0);

    ck_assert_ptr_null(op_stats(be, OP_LINEAR)->device);
    op_begin(be);
    op_linear(be, &out, &x, &w, NULL);
    op_linear(be, &out, &x, &w, NULL);
    op_scale(be, &none, 2.0f); /* no rows: not a call */
    const struct op_stats *s = op_stats(be, OP_LINEAR);
    ck_assert_uint_eq(s->calls, 2);
    ck_assert_uint_eq(s->rows, 8);
    ck_assert_uint_eq(s->flops, 2 * 2 * 4 * 3 * 8);
    ck_assert_uint_eq(s->bytes, 2 * 4 * (4 * 8 + 3 * 8 + 4 * 3));
    ck_assert_str_eq(s->device, "cpu");
    ck_assert_str_eq(op_device(be), "cpu");
    ck_assert(s->seconds == 0);
    ck_assert_uint_eq(op_stats(be, OP_SCALE)->calls, 0);
    op_profile(be, true);
    op_linear(be, &out, &x, &w, NULL);
    ck_assert(s->seconds > 0);
    op_profile(be, false);
    op_stats_reset(be);
    ck_assert_uint_eq(s->calls, 0);
    ck_assert_ptr_null(s->device);
    for (int i = 0; i < OP_COUNT; i++)
        ck_assert_str_ne(op_name((enum op_id)i), "?");
    ck_assert_str_eq(op_name(OP_COUNT), "?");
    op_free(x.buf);
    op_free(w.buf);
    op_free(out.buf);
    registry_close(be);
}
END_TEST

static void scale_elsewhere(struct backend *be, const struct tensor *x, float s)
{
    (void)x;
    if (s > 1)
        be->ran_on = "another";
}

/* An operation that two devices have run names both, whichever was the last. */
START_TEST(stats_of_two_devices)
{
    static const struct { float calls[3]; const char *device; } rows[] = {
        {{1, 1, 1}, "cpu"}, {{2, 2, 2}, "another"}, {{1, 2, 1}, "cpu, another"}, {{2, 1, 2}, "cpu, another"}};
    struct backend *be = open_one("cpu", NULL, 1);
    const struct backend_ops *good = be->ops;
    struct backend_ops bent = *good;
    struct tensor x = op_cases_filled(be, 2, 3, 1, 1);
    bent.scale = scale_elsewhere;
    be->ops = &bent;
    op_begin(be);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        for (int k = 0; k < 3; k++)
            op_scale(be, &x, rows[i].calls[k]);
        ck_assert_str_eq(op_stats(be, OP_SCALE)->device, rows[i].device);
        op_stats_reset(be);
    }
    be->ops = good;
    op_free(x.buf);
    registry_close(be);
}
END_TEST

/* What attention reads follows the positions and the window. */
START_TEST(stats_of_attention)
{
    struct backend *be = open_one("cpu", NULL, 1);
    const struct heads h = {40, 6};
    struct tensor out = attend(be, h, 16, LEN, 0, DTYPE_F16);
    uint64_t row = KV_HEADS * 40 * 2, seen = LEN * (LEN + 1) / 2;
    ck_assert_uint_eq(op_stats(be, OP_ATTENTION)->bytes, 2 * 4 * LEN * 6 * 40 + 2 * LEN * row);
    ck_assert_uint_eq(op_stats(be, OP_ATTENTION)->flops, 4 * seen * 6 * 40);
    ck_assert_uint_eq(op_stats(be, OP_KV_STORE)->rows, LEN);
    op_free(out.buf);
    op_stats_reset(be);
    out = attend(be, h, 16, LEN, 10, DTYPE_F16);
    ck_assert_uint_eq(op_stats(be, OP_ATTENTION)->flops, 4 * (55 + (LEN - 10) * 10) * 6 * 40);
    op_free(out.buf);
    registry_close(be);
}
END_TEST

/* ---- the registry ---- */
static const struct selector_case {
    const char *selector;
    int code, n;
    const char *devices; /* or part of the message */
} selectors[] = {
    {"auto", 0, 1, NULL}, /* by what is there */
    {"cpu", 0, 1, "cpu"},
    {"ref", 0, 1, "ref"},
    {"cpu,ref", 0, 2, "cpu ref"},
    {" ref , cpu,ref", 0, 3, "ref cpu ref"},
    {"REFERENCE in", 0, 1, "ref"},
    {"thread", ERR_ARG, 0, "fits more than one device: cpu ("},
    {"nonesuch", ERR_ARG, 0, "devices here: cpu ("},
    {"", ERR_ARG, 0, "empty"},
    {"cpu,", ERR_ARG, 0, "empty"},
    {",cpu", ERR_ARG, 0, "empty"},
    {"cpu:0", ERR_ARG, 0, "cpu:0"},
    {"cpu,nonesuch", ERR_ARG, 0, "nonesuch"},
    {"ref,ref,ref,ref,ref,ref,ref,ref,ref,ref,ref,ref,ref,ref,ref,ref", 0, 16,
     "ref ref ref ref ref ref ref ref ref ref ref ref ref ref ref ref"},
    {"ref,ref,ref,ref,ref,ref,ref,ref,ref,ref,ref,ref,ref,ref,ref,ref,ref", ERR_ARG, 0, "more than 16"},
};

START_TEST(selector)
{
    const struct selector_case *c = &selectors[_i];
    struct backend_params params = {.n_threads = 1};
    struct backend *be[REGISTRY_MAX_INSTANCES];
    char reason[256] = "", devices[128] = "";
    struct err err = {0};
    int n = -1, rc = registry_open(c->selector, &params, be, &n, reason, sizeof reason, &err);

    ck_assert_msg(rc == c->code && n == c->n, "\"%s\": %d, %d instances, %s", c->selector, rc, n, err.msg);
    if (rc != 0) {
        ck_assert_msg(strstr(err.msg, c->devices) != NULL, "\"%s\": %s", c->selector, err.msg);
        return;
    }
    ck_assert_ptr_nonnull(strstr(reason, op_device(be[0])));
    for (int i = 0; i < n; i++) {
        size_t len = strlen(devices);
        snprintf(devices + len, sizeof devices - len, "%s%s", i > 0 ? " " : "", op_device(be[i]));
        registry_close(be[i]);
    }
    if (c->devices != NULL)
        ck_assert_str_eq(devices, c->devices);
}
END_TEST

START_TEST(list_of_devices)
{
    struct device_list l;
    char isas_here[64];

    ck_assert_int_eq(registry_list(&l, NULL), 0);
    ck_assert_uint_ge(l.n_devices, 2);
    ck_assert_str_eq(l.devices[0].selector, "cpu");
    ck_assert_str_eq(l.devices[1].selector, "ref");
    ck_assert_ptr_nonnull(strstr(l.devices[0].name, "thread"));
    ck_assert_ptr_nonnull(strstr(registry_cpu_isa(isas_here, sizeof isas_here), "c"));
    ck_assert_ptr_nonnull(strstr(l.devices[0].detail, isas_here));
    device_list_free(&l);
    registry_close(NULL);
}
END_TEST

START_TEST(isa_by_name)
{
    static const char *const wrong[] = {"avx3", "", "AVX2", "NEON"};
    struct backend *be[REGISTRY_MAX_INSTANCES];
    struct err err = {0};
    char listed[64];
    int n;

    for (int i = 0; i < 4; i++) {
        struct backend_params params = {.cpu_isa = wrong[i]};
        ck_assert_int_eq(registry_open("cpu", &params, be, &n, NULL, 0, &err), ERR_ARG);
        ck_assert_ptr_nonnull(strstr(err.msg, wrong[i]));
        ck_assert_ptr_nonnull(strstr(err.msg, "usable here: "));
    }
    /* those that are here are listed, best first, and can be forced; the others are refused with the list */
    const char *at = registry_cpu_isa(listed, sizeof listed);
    for (int i = 0; i < OP_N_ISAS; i++) {
        struct backend_params params = {.cpu_isa = op_isas[i]};
        size_t len = strlen(op_isas[i]);
        if (strncmp(at, op_isas[i], len) == 0 && (at[len] == ',' || at[len] == '\0')) {
            struct backend *be_isa = open_one("cpu", op_isas[i], 1);
            ck_assert_ptr_nonnull(strstr(be_isa->detail, op_isas[i]));
            registry_close(be_isa);
            at += len + (at[len] == ',' ? 2 : 0);
        } else {
            ck_assert_int_eq(registry_open("cpu", &params, be, &n, NULL, 0, &err), ERR_ARG);
            ck_assert_ptr_nonnull(strstr(err.msg, op_isas[i]));
            ck_assert_ptr_nonnull(strstr(err.msg, listed));
        }
    }
    ck_assert_str_eq(at, ""); /* no other is listed */
    struct backend_params bad = {.n_threads = -1};
    ck_assert_int_eq(registry_open("cpu", &bad, be, &n, NULL, 0, &err), ERR_ARG);
    registry_close(open_one("cpu", "c", 1));
}
END_TEST

int main(void)
{
    Suite *s = suite_create("op");
    TCase *t = tcase_create("op");

    tcase_add_loop_test(t, every_item_once, 1, 6);
    tcase_add_test(t, cpu_against_ref);
    tcase_add_loop_test(t, isa_equals_c, 0, OP_N_ISAS - 1);
    tcase_add_loop_test(t, threads_equal, 2, 4);
    tcase_add_test(t, list_catches);
    tcase_add_loop_test(t, rows_alone, 0, (int)(sizeof linear_types / sizeof *linear_types));
    tcase_add_loop_test(t, pages_and_chunks, 0, 2);
    tcase_add_loop_test(t, chunks_apart, 0, 4);
    tcase_add_loop_test(t, nan_travels, 0, 2);
    tcase_add_loop_test(t, picks_by_hand, 0, 2);
    tcase_add_loop_test(t, route_by_hand, 0, 2);
    tcase_add_loop_test(t, halves_are_exact, 0, OP_N_ISAS);
    tcase_add_loop_test(t, import_and_export, 0, 2);
    tcase_add_test(t, alloc_is_checked);
#ifndef __SANITIZE_THREAD__
    tcase_add_loop_test(t, alloc_is_lazy, 0, 2);
#endif
    tcase_add_test(t, first_failure_is_kept);
    tcase_add_test(t, stats_count);
    tcase_add_test(t, stats_of_two_devices);
    tcase_add_test(t, stats_of_attention);
    tcase_add_loop_test(t, selector, 0, (int)(sizeof selectors / sizeof *selectors));
    tcase_add_test(t, list_of_devices);
    tcase_add_test(t, isa_by_name);
    suite_add_tcase(s, t);
    return test_main(s);
}
