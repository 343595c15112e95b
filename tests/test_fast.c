/* `--math fast` on the CPU: every operation within its bounds of the oracle, and
 * what must be equal bit for bit there, too: instruction sets, threads, rows
 * alone and together.  What is not finite survives the rounding; nothing is
 * read behind the weights. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "backend/cpu/kernels.h"
#include "backend/registry.h"
#include "base/mem.h"
#include "tests/op_cases.h"
#include "tests/test.h"

static const enum dtype types[] = {DTYPE_Q8_0, DTYPE_Q4_0, DTYPE_Q4_1, DTYPE_Q5_0, DTYPE_Q5_1,
                                   DTYPE_Q4_K, DTYPE_Q5_K, DTYPE_Q6_K, DTYPE_BF16, DTYPE_Q3_K};
enum { N_TYPES = sizeof types / sizeof *types, N_ROUNDED = 8 };

static struct backend *open_math(const char *selector, const char *isa, int n_threads, enum backend_math math)
{
    struct backend_params params = {.n_threads = n_threads, .cpu_isa = isa, .math = math};
    struct backend *be[REGISTRY_MAX_INSTANCES];
    struct err err = {0};
    int n;

    ck_assert_msg(registry_open(selector, &params, be, &n, NULL, 0, &err) == 0, "%s", err.msg);
    return be[0];
}

/* Of this instruction set, or NULL after a note. */
static struct backend *open_isa(const char *isa)
{
    if (kernels_find(isa) != NULL)
        return open_math("cpu", isa, 1, MATH_FAST);
    test_skip("an instruction set is not on this machine");
    return NULL;
}

/* Within its bounds; and rounded, or the bounds of exact would hold. */
START_TEST(against_ref)
{
    struct backend *ref = open_math("ref", NULL, 1, MATH_EXACT), *cpu = open_math("cpu", NULL, 2, MATH_FAST);
    struct op_tally t = {0}, strict = {.quiet = true};
    op_cases_run_fast(ref, cpu, op_tally_add, &t);
    ck_assert_int_eq(t.bad, 0);
    op_cases_run(ref, cpu, false, op_tally_add, &strict);
    ck_assert_int_gt(strict.bad, N_ROUNDED * 10);
    registry_close(ref);
    registry_close(cpu);
}
END_TEST

/* Products with BF16 weights are not compared: one instruction set computes them in its own way. */
static void tally_rounded(void *user, const char *op, const char *variant, double error, double bound, bool ok)
{
    bool product = strncmp(op, "linear", 6) == 0 || strcmp(op, "gate_up") == 0;
    if (!product || strncmp(variant, "BF16", 4) != 0)
        op_tally_add(user, op, variant, error, bound, ok);
}

START_TEST(isa_equals_c)
{
    struct backend *c = open_math("cpu", "c", 1, MATH_FAST), *be = open_isa(op_isas[_i]);
    struct op_tally t = {0};

    if (be != NULL) {
        op_cases_run(c, be, true, strcmp(op_isas[_i], "avx512bf16") == 0 ? tally_rounded : op_tally_add, &t);
        ck_assert_int_eq(t.bad, 0);
        ck_assert_int_gt(t.ok, 600);
        registry_close(be);
    }
    registry_close(c);
}
END_TEST

START_TEST(threads_equal)
{
    struct backend *one = open_math("cpu", NULL, 1, MATH_FAST), *more = open_math("cpu", NULL, 3, MATH_FAST);
    struct op_tally t = {0};

    op_cases_run(one, more, true, op_tally_add, &t);
    ck_assert_int_eq(t.bad, 0);
    registry_close(one);
    registry_close(more);
}
END_TEST

static struct tensor random_weight(struct backend *be, enum dtype dtype, int64_t rows, int64_t cols)
{
    struct tensor w;
    size_t row;
    ck_assert(dtype_row_size(dtype, cols, &row));
    uint8_t *blocks = mem_array(row * (size_t)rows, 1);
    op_cases_blocks(dtype, blocks, (size_t)(rows * cols), 10);
    struct host_matrix m = {.name = "w", .dtype = dtype, .rows = rows, .cols = cols, .data = blocks};
    ck_assert_int_eq(op_import(be, &w, &m, NULL), 0);
    free(blocks);
    return w;
}

/* A row alone = the same row among others, with three panels and one that is not full. */
static void check_rows_alone(enum dtype dtype, int64_t k)
{
    static const int batches[] = {2, 3, 4, 5, 8, 9, 13, 17, 18, 21, 70};
    enum { N = 70, O = 53 };
    struct backend *be = open_math("cpu", NULL, 2, MATH_FAST);
    struct tensor w = random_weight(be, dtype, O, k), x = op_cases_filled(be, N, k, 1, 7),
                  alone = op_cases_filled(be, N, O, 1, 8), out = op_cases_filled(be, N, O, 1, 9);
    float want[N * O], got[N * O];

    op_begin(be);
    for (int r = 0; r < N; r++) {
        struct tensor xr = tensor_rows(&x, r, 1), o = tensor_rows(&alone, r, 1);
        op_linear(be, &o, &xr, &w, NULL);
    }
    ck_assert_int_eq(op_read(be, want, &alone, NULL), 0);
    for (size_t b = 0; b < sizeof batches / sizeof *batches; b++) {
        int n = batches[b], r0 = (N - n) / 2;
        struct tensor xr = tensor_rows(&x, r0, n), o = tensor_rows(&out, r0, n);
        op_linear(be, &o, &xr, &w, NULL);
        ck_assert_int_eq(op_read(be, got, &o, NULL), 0);
        ck_assert_msg(memcmp(got, want + r0 * O, sizeof(float) * (size_t)n * O) == 0, "%s, %d rows of %d",
                      dtype_info(dtype)->name, n, (int)k);
    }
    struct buffer *bufs[] = {w.buf, x.buf, alone.buf, out.buf};
    for (size_t i = 0; i < sizeof bufs / sizeof *bufs; i++)
        op_free(bufs[i]);
    registry_close(be);
}

START_TEST(rows_alone)
{
    check_rows_alone(types[_i], 1280); /* strips of k */
}
END_TEST

/* Lines that are not full, rows of x in several blocks. */
START_TEST(bf16_rows_alone)
{
    static const int64_t k[] = {1, 9, 30, 1055, 8197};
    check_rows_alone(DTYPE_BF16, k[_i]);
}
END_TEST

/* Rows of w read far apart or in a line: the same bits, with what is left over of eight or four. */
START_TEST(far_equals_line)
{
    enum { K = 512, O = 43, REST = 7 };
    enum dtype dtype = types[_i];
    size_t row;
    ck_assert(dtype_row_size(dtype, K, &row));
    uint8_t *w = mem_array(row * O, 1);
    struct kern_scratch *s = mem_aligned(64, sizeof *s);
    float x[K], out[2][O];

    ck_assert(w != NULL && s != NULL);
    op_cases_blocks(dtype, w, K * O, 11);
    op_cases_random(x, K, 1, 12);
    for (int i = 0; i < OP_N_ISAS; i++) {
        const struct cpu_kernels *k = kernels_find(op_isas[i]);
        for (int far = 0; k != NULL && far < 2; far++) {
            struct kern_linear a = {.w = w, .row_size = row, .dtype = dtype, .k = K, .n_rows = 1, .x = x, .out = out[far],
                                    .out_cols = O, .far = far};
            memset(out[far], 0x7f, sizeof out[far]);
            k->linear(&a, 0, REST, s);
            k->linear(&a, REST, O, s);
        }
        if (k != NULL)
            ck_assert_msg(memcmp(out[0], out[1], sizeof out[0]) == 0, "%s, %s", op_isas[i], dtype_info(dtype)->name);
    }
    free(w);
    free(s);
}
END_TEST

/* All products of an instruction set with such weights. */
static void multiply(const struct cpu_kernels *k, struct kern_linear *a, struct kern_xblock *xq, uint16_t *xb, struct kern_scratch *s)
{
    enum kern_fast kind = kern_fast_kind(a->dtype);

    k->linear(a, 0, a->out_cols, s);
    if (kind != FAST_NONE) {
        k->quantize(xq, a->x, a->n_rows * a->k, kind);
        a->xq = xq;
        k->linear_fast(a, 0, a->out_cols, s);
    }
    if (a->dtype == DTYPE_BF16 && k->linear_bf16 != NULL) {
        k->narrow_bf16(xb, a->x, a->n_rows * a->k);
        a->xb = xb;
        k->linear_bf16(a, 0, a->out_cols, s);
    }
}

/* Weights end where a mapped file does: nothing behind the last row is read. */
START_TEST(ends_with_memory)
{
    enum { K = 512, O = 19, N = 20 };
    static const int rows[] = {1, 2, 3, 5, N};
    static float x[N * K], out[N * O];
    static struct kern_xblock xq[N * K / 32];
    static _Alignas(64) uint16_t xb[N * K];
    static struct kern_scratch s;
    enum dtype dtype = types[_i];
    size_t row, page = (size_t)sysconf(_SC_PAGESIZE);

    ck_assert(dtype_row_size(dtype, K, &row));
    size_t size = (row * O + page - 1) / page * page;
    uint8_t *map = mmap(NULL, size + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ck_assert(map != MAP_FAILED && mprotect(map + size, page, PROT_NONE) == 0);
    uint8_t *w = map + size - row * O;
    op_cases_blocks(dtype, w, K * O, 13);
    op_cases_random(x, N * K, 1, 14);
    for (int i = 0; i < OP_N_ISAS; i++) {
        const struct cpu_kernels *k = kernels_find(op_isas[i]);
        for (size_t n = 0; k != NULL && n < sizeof rows / sizeof *rows; n++)
            for (int far = 0; far < 2; far++) {
                struct kern_linear a = {.w = w, .row_size = row, .dtype = dtype, .k = K, .n_rows = rows[n], .x = x, .out = out,
                                        .out_cols = O, .far = far};
                multiply(k, &a, xq, xb, &s);
            }
    }
    munmap(map, size + page);
}
END_TEST

/* A value that is not finite reaches the outputs of its row, and no other's. */
START_TEST(nan_travels)
{
    enum { K = 64, O = 19 };
    static const enum dtype rounded[] = {DTYPE_Q8_0, DTYPE_BF16};
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    struct backend *be = open_isa(op_isas[_i % OP_N_ISAS]);
    float got[2 * O];

    if (be == NULL)
        return;
    struct tensor w = random_weight(be, rounded[_i / OP_N_ISAS], O, K), x = op_cases_filled(be, 2, K, 1, 1), out = op_cases_filled(be, 2, O, 1, 3);
    struct tensor one = tensor_reshape(&x, 2 * (int64_t)K, 1);
    one = tensor_rows(&one, K - 1, 1);
    for (int b = 0; b < 3; b++) {
        op_begin(be);
        op_write(be, &one, &bad[b]);
        op_linear(be, &out, &x, &w, NULL);
        ck_assert_int_eq(op_read(be, got, &out, NULL), 0);
        for (int i = 0; i < O; i++) {
            ck_assert(!isfinite(got[i]));
            ck_assert(isfinite(got[O + i]));
        }
        struct tensor first = tensor_rows(&x, 0, 1), alone = tensor_rows(&out, 1, 1);
        op_linear(be, &alone, &first, &w, NULL);
        ck_assert_int_eq(op_read(be, got, &out, NULL), 0);
        for (int i = 0; i < O; i++)
            ck_assert(!isfinite(got[O + i]));
    }
    op_free(w.buf);
    op_free(x.buf);
    op_free(out.buf);
    registry_close(be);
}
END_TEST

/* What is told of the next product changes nothing, true or not. */
START_TEST(next_is_a_hint)
{
    enum { K = 256, O = 200 };
    struct backend *be = open_math("cpu", NULL, 1 + _i / N_TYPES, MATH_FAST);
    enum dtype dtype = types[_i % N_TYPES];
    struct tensor w[3] = {random_weight(be, dtype, O, K), random_weight(be, dtype, 33, K), random_weight(be, dtype, 1, K)};
    struct tensor x = op_cases_filled(be, 1, K, 1, 7), out = op_cases_filled(be, 1, O, 1, 9);
    float want[O], got[O];

    op_linear(be, &out, &x, &w[0], NULL);
    ck_assert_int_eq(op_read(be, want, &out, NULL), 0);
    for (int n = 1; n <= 3; n++)
        for (int first = 0; first + n <= 3; first++) {
            op_next(be, w + first, n);
            op_scale(be, &out, 0);
            op_linear(be, &out, &x, &w[0], NULL);
            ck_assert_int_eq(op_read(be, got, &out, NULL), 0);
            ck_assert_mem_eq(got, want, sizeof got);
        }
    for (int i = 0; i < 3; i++)
        op_free(w[i].buf);
    op_free(x.buf);
    op_free(out.buf);
    registry_close(be);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("fast");
    TCase *t = tcase_create("fast");
    tcase_set_timeout(t, 300);
    tcase_add_test(t, against_ref);
    tcase_add_loop_test(t, isa_equals_c, 0, OP_N_ISAS - 1);
    tcase_add_test(t, threads_equal);
    tcase_add_loop_test(t, rows_alone, 0, N_TYPES);
    tcase_add_loop_test(t, bf16_rows_alone, 0, 5);
    tcase_add_loop_test(t, far_equals_line, 0, N_TYPES);
    tcase_add_loop_test(t, ends_with_memory, 0, N_TYPES);
    tcase_add_loop_test(t, next_is_a_hint, 0, 3 * N_TYPES);
    tcase_add_loop_test(t, nan_travels, 0, 2 * OP_N_ISAS);
    suite_add_tcase(s, t);
    return test_main(s);
}
