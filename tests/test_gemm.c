/* Matrix products by CLBlast: the contract of the wrapper, operations against
 * the reference, who is chosen, the check of its results and what happens when
 * that fails, whole golden models (FORGE_TEST_MODELS, words with blanks between:
 * those whose path holds one; "golden": all).
 *
 * OpenCL hangs in a child of a process that has touched it: each test opens its
 * own device in its own process and main touches none. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#ifdef HAVE_CLBLAST
#include <math.h>

#include "tests/gemm_kit.h"
#include "tests/golden_list.h"
#include "tests/model_util.h"

/* ---- the wrapper's contract ---- */
/* m, n, k, transposes, leading dimensions beyond the rows' width, bytes before each matrix, alpha, beta, and the
 * largest temporary memory (0 = its own). */
static const struct contract {
    int m, n, k;
    bool ta, tb;
    int pad_a, pad_b, pad_c, off_a, off_b, off_c;
    float alpha, beta;
    size_t temp;
} contracts[] = {
    {1, 1, 1, false, false, 0, 0, 0, 0, 0, 0, 1, 0, 0},
    {3, 5, 7, false, false, 0, 0, 0, 0, 0, 0, 1, 0, 0},
    {33, 17, 65, false, true, 0, 0, 0, 0, 0, 0, 1, 0, 0},
    {65, 127, 31, true, false, 3, 5, 9, 4, 8, 12, 1, 0, 0},
    {129, 63, 33, true, true, 1, 2, 3, 20, 4, 100, 2, 0.5f, 0},
    {45, 130, 257, false, true, 0, 0, 70, 0, 64, 280, 1, 0, 0},
    {32, 896, 64, false, true, 0, 0, 0, 0, 0, 0, 1, 1, 0},
    {300, 220, 129, false, true, 0, 0, 11, 0, 4, 44, 1, 0, 1 << 18},
    {230, 341, 140, true, false, 1, 0, 3, 4, 0, 8, -1, 1, 1 << 18},
    {350, 130, 70, true, true, 2, 2, 2, 8, 8, 8, 1, 0.25f, 1 << 18},
};

enum { CANARY = 64 /* floats behind a matrix */ };

/* A matrix of rows x ld floats behind `off` bytes, random, with a border of known values. */
struct host {
    float *v;
    size_t n;
    struct blast_matrix t;
};

static struct host make(struct clb *c, int rows, int cols, int pad, int off, bool transposed, uint64_t seed)
{
    struct host h = {.t = {.off = (cl_ulong)off, .ld = cols + pad, .transposed = transposed}};
    cl_int code;

    h.n = (size_t)off / 4 + (size_t)rows * (size_t)(cols + pad) + CANARY;
    h.v = mem_array(h.n, sizeof *h.v);
    op_cases_random(h.v, h.n, 1, seed);
    h.t.mem = clCreateBuffer(c->ctx, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, h.n * sizeof *h.v, h.v, &code);
    ck_assert_int_eq(code, CL_SUCCESS);
    return h;
}

static void drop(struct host *h)
{
    clReleaseMemObject(h->t.mem);
    free(h->v);
}

static double at(const struct host *h, int row, int col)
{
    size_t i = (size_t)h->t.off / 4;
    return (double)h->v[i + (h->t.transposed ? (size_t)col * (size_t)h->t.ld + (size_t)row
                                             : (size_t)row * (size_t)h->t.ld + (size_t)col)];
}

static void check_product(struct clb *c, const struct contract *t)
{
    struct host a = make(c, t->ta ? t->k : t->m, t->ta ? t->m : t->k, t->pad_a, t->off_a, t->ta, 1);
    struct host b = make(c, t->tb ? t->n : t->k, t->tb ? t->k : t->n, t->pad_b, t->off_b, t->tb, 2);
    struct host d = make(c, t->m, t->n, t->pad_c, t->off_c, false, 3);
    struct blast_product p = {t->m, t->n, t->k, t->alpha, t->beta, a.t, b.t, d.t};
    float *got = mem_array(d.n, sizeof *got);
    double worst = 0;

    if (t->beta == 0) /* what was there does not count */
        for (int i = 0; i < t->m; i++)
            for (int j = 0; j < t->n; j++)
                d.v[(size_t)t->off_c / 4 + (size_t)i * (size_t)d.t.ld + (size_t)j] = NAN;
    ck_assert_int_eq(clEnqueueWriteBuffer(c->queue, d.t.mem, CL_TRUE, 0, d.n * 4, d.v, 0, NULL, NULL), CL_SUCCESS);
    c->gemm->blast.temp_most = t->temp > 0 ? t->temp : (size_t)64 << 20;
    int calls = c->gemm->blast.n_calls;
    int code = blast_sgemm(&c->gemm->blast, &p);
    ck_assert_msg(code == CL_SUCCESS, "%s", cl_error_name(code));
    ck_assert_int_eq(clEnqueueReadBuffer(c->queue, d.t.mem, CL_TRUE, 0, d.n * 4, got, 0, NULL, NULL), CL_SUCCESS);
    if (t->temp > 0) {
        test_that(c->gemm->blast.n_calls - calls > 1, "not done in blocks");
        test_that(c->gemm->blast.temp_size <= t->temp, "%zu bytes of temporary memory", c->gemm->blast.temp_size);
    }
    for (size_t i = 0; i < d.n; i++) {
        int64_t r = ((int64_t)i - t->off_c / 4) / d.t.ld, col = ((int64_t)i - t->off_c / 4) % d.t.ld;
        bool inside = (int64_t)i >= t->off_c / 4 && r < t->m && col < t->n;
        if (!inside) {
            test_that(memcmp(&got[i], &d.v[i], 4) == 0, "value %zu outside of the result was written", i);
            continue;
        }
        double want = t->beta == 0 ? 0 : (double)t->beta * (double)d.v[i];
        for (int l = 0; l < t->k; l++)
            want += (double)t->alpha * at(&a, (int)r, l) * at(&b, l, (int)col);
        double e = fabs((double)got[i] - want);
        worst = e > worst || isnan(e) ? e : worst;
        test_that(e <= 1e-5 * sqrt(t->k), "row %d, column %d: %g instead of %g", (int)r, (int)col, (double)got[i], want);
    }
    free(got);
    drop(&a);
    drop(&b);
    drop(&d);
}

START_TEST(contract)
{
    struct backend *be = open_opencl(&with_clblast);

    if (be == NULL)
        return;
    for (size_t i = 0; i < sizeof contracts / sizeof *contracts; i++) {
        if (contracts[i].temp > 0) { /* from here on the kernels that need temporary memory */
            const size_t one = 1;
            const char *const name = "XGEMM_MIN_INDIRECT_SIZE";
            ck_assert_int_eq(blast_override(&((struct clb *)be)->gemm->blast, "GemmRoutine", 1, &name, &one), 0);
        }
        check_product((struct clb *)be, &contracts[i]);
    }
    registry_close(be);
}
END_TEST

/* What the wrapper refuses itself, and that nothing is done for no rows. */
START_TEST(contract_refusals)
{
    struct backend *be = open_opencl(&with_clblast);

    if (be == NULL)
        return;
    struct clb *c = (struct clb *)be;
    struct host h = make(c, 8, 8, 0, 0, false, 1);
    const struct blast_product good = {4, 4, 4, 1, 0, h.t, h.t, h.t};
    struct blast_product p;
    int64_t *const sizes[] = {&p.m, &p.n, &p.k, &p.a.ld, &p.b.ld, &p.c.ld};

    for (int i = 0; i < 6; i++) { /* beyond int, or rows wider than the distance between them */
        p = good;
        *sizes[i] = i < 3 ? INT64_C(1) << 40 : 3;
        ck_assert_int_eq(blast_sgemm(&c->gemm->blast, &p), CL_INVALID_VALUE);
    }
    for (int i = 0; i < 4; i++) {
        p = good;
        p.k = i == 0 ? 0 : p.k;
        p.c.transposed = i == 1;
        p.a.off = i == 2 ? 2 : 0;
        p.b.off = i == 3 ? UINT64_C(1) << 40 : 0;
        ck_assert_int_eq(blast_sgemm(&c->gemm->blast, &p), CL_INVALID_VALUE);
    }
    p = good;
    p.a.off = 8 * 8 * 4 + CANARY * 4; /* behind the memory: CLBlast's own refusal, by name */
    int code = blast_sgemm(&c->gemm->blast, &p);
    ck_assert_msg(strncmp(cl_error_name(code), "CLBlastInsufficientMemory", 25) == 0, "%d", code);
    p = good;
    p.m = 0;
    ck_assert_int_eq(blast_sgemm(&c->gemm->blast, &p), CL_SUCCESS);
    ck_assert_int_eq(c->gemm->blast.n_calls, 1);
    drop(&h);
    registry_close(be);
}
END_TEST

/* ---- linear ---- */
static const struct linear linears[] = {
    {DTYPE_F32, 37, 96, 31, false, 0, false}, {DTYPE_F32, 37, 96, 32, true, 0, true},
    {DTYPE_F32, 131, 45, 65, true, 0, true},  {DTYPE_F16, 131, 45, 33, true, 0, true},
    {DTYPE_BF16, 77, 130, 100, false, 0, true}, {DTYPE_Q8_0, 70, 256, 33, true, 0, true},
    {DTYPE_Q8_0, 70, 64, 45, true, 0, true},  {DTYPE_Q4_0, 45, 1120, 37, false, 0, true},
    {DTYPE_Q4_1, 33, 96, 40, false, 0, true}, {DTYPE_Q5_0, 33, 96, 40, false, 0, true},
    {DTYPE_Q5_1, 33, 96, 40, true, 0, true},  {DTYPE_Q2_K, 33, 256, 40, false, 0, true},
    {DTYPE_Q3_K, 33, 512, 40, false, 0, true}, {DTYPE_Q4_K, 33, 512, 40, true, 0, true},
    {DTYPE_Q5_K, 33, 256, 40, false, 0, true}, {DTYPE_Q6_K, 33, 256, 40, false, 0, true},
    {DTYPE_F32, 301, 64, 64, true, 20000, true}, /* a matrix of several parts */
    {DTYPE_Q8_0, 301, 64, 40, true, 20000, true}, {DTYPE_BF16, 3000, 3072, 32, false, 0, true}, /* two tiles */
};

static const char *const families[] = {"cpu", "gpu"};

START_TEST(linear)
{
    struct backend_params params = with_clblast;
    params.kernels = families[_i];
    struct backend *be = open_opencl(&params), *ref;
    struct clb *c = (struct clb *)be;

    if (be == NULL)
        return;
    ref = open_one("ref", &params, NULL);
    for (size_t i = 0; i < sizeof linears / sizeof *linears; i++) {
        const struct linear *t = &linears[i];
        size_t row, n = (size_t)t->rows * (size_t)t->n, max_alloc = c->dev.max_alloc;
        ck_assert(dtype_row_size(t->dtype, t->k, &row));
        uint8_t *blocks = mem_array(row * (size_t)t->n, 1);
        float *x = mem_array((size_t)t->rows * (size_t)t->k, sizeof *x), *want = mem_array(n, sizeof *want),
              *got = mem_array(n, sizeof *got);
        op_cases_blocks(t->dtype, blocks, (size_t)t->n * (size_t)t->k, 7 + i);
        op_cases_random(x, (size_t)t->rows * (size_t)t->k, 1, 3);
        run_linear(ref, t, blocks, x, want);
        c->dev.max_alloc = max_alloc;
        if (t->max_alloc > 0) { /* only weights are split */
            cl_scratch_get(c, CL_SCRATCH_GEMM, (size_t)2 << 20);
            c->dev.max_alloc = (size_t)t->rows * (size_t)(t->n > t->k ? t->n : t->k) * 4 + 64;
        }
        op_stats_reset(be);
        run_linear(be, t, blocks, x, got);
        c->dev.max_alloc = max_alloc;
        double e = nmse(want, got, n);
        test_that(e <= 1e-12, "%s [%d, %d], %d rows: error %g", dtype_info(t->dtype)->name, t->n, t->k, t->rows, e);
        test_that(by_clblast(be) == t->blast, "%s [%d, %d], %d rows ran on %s", dtype_info(t->dtype)->name, t->n, t->k,
                  t->rows, op_stats(be, OP_LINEAR)->device);
        free(blocks);
        free(x);
        free(want);
        free(got);
    }
    registry_close(ref);
    registry_close(be);
}
END_TEST

/* ---- who is chosen ---- */
static const struct {
    enum backend_gemm gemm;
    bool deterministic;
    const char *kernels, *warning;
    bool blast;
} choices[] = {
    {GEMM_KERNELS_AUTO, false, NULL, NULL, false}, /* a CPU-type device */
    {GEMM_KERNELS_OWN, false, NULL, NULL, false},
    {GEMM_KERNELS_CLBLAST, true, NULL, "no fixed order", false},
    {GEMM_KERNELS_CLBLAST, true, "gpu", "no fixed order", false},
    {GEMM_KERNELS_CLBLAST, false, NULL, NULL, true},
};

START_TEST(chosen)
{
    log_set(hear, NULL, LOG_WARN, 0);
    for (size_t i = 0; i < sizeof choices / sizeof *choices; i++) {
        struct backend_params params = {.n_threads = 1, .no_selftest = true,
                                        .gemm = choices[i].gemm,
                                        .deterministic = choices[i].deterministic,
                                        .kernels = choices[i].kernels};
        n_said = 0;
        struct backend *be = open_opencl(&params);
        if (be == NULL)
            return;
        ck_assert_int_eq(((struct clb *)be)->gemm != NULL, choices[i].blast);
        ck_assert_int_eq(bits_of_cpu(be), !choices[i].blast);
        ck_assert_int_eq(by_clblast(be), choices[i].blast);
        ck_assert_int_eq(n_said, choices[i].warning != NULL);
        if (choices[i].warning != NULL)
            ck_assert_msg(strstr(said, choices[i].warning) != NULL, "%s", said);
        registry_close(be);
    }
}
END_TEST

/* ---- a library that is wrong ---- */
static int does_nothing(struct blast *b, const struct blast_product *p)
{
    (void)b, (void)p;
    return CL_SUCCESS;
}

static int refuses(struct blast *b, const struct blast_product *p)
{
    (void)b, (void)p;
    return -2045;
}

static int calls_left; /* then it refuses */
static int wears_out(struct blast *b, const struct blast_product *p)
{
    return calls_left-- > 0 ? blast_sgemm(b, p) : CL_OUT_OF_RESOURCES;
}

static const struct {
    int (*sgemm)(struct blast *b, const struct blast_product *p);
    int calls_left;
    const char *warning;
} faults[] = {
    {wrong_value, 0, "its result is wrong"},
    {does_nothing, 0, "its result is wrong"},
    {refuses, 0, "CLBlastNoHalfPrecision (-2045)"},
    {wears_out, 1, "CL_OUT_OF_RESOURCES (-5)"}, /* after the check */
};

START_TEST(falls_back)
{
    struct backend *be = open_opencl(&with_clblast);

    if (be == NULL)
        return;
    log_set(hear, NULL, LOG_WARN, 0);
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        struct cl_gemm *g = ((struct clb *)be)->gemm;
        g->n_classes = 0;
        g->sgemm = faults[i].sgemm;
        calls_left = faults[i].calls_left;
        n_said = 0;
        for (int again = 0; again < 2; again++)
            test_that(bits_of_cpu(be), "fault %d: not our kernels' result; %s", (int)i, said);
        ck_assert_int_eq(n_said, 1); /* said once */
        ck_assert_msg(strstr(said, faults[i].warning) != NULL && strstr(said, "BF16 [48, 64]") != NULL, "%s", said);
    }
    registry_close(be);
}
END_TEST

/* Memory for a tile that does not fit the budget: our kernels go on in what they have. */
START_TEST(no_memory_for_a_tile)
{
    struct backend *be = open_opencl(&with_clblast);

    if (be == NULL)
        return;
    struct clb *c = (struct clb *)be;
    log_set(hear, NULL, LOG_WARN, 0);
    c->gemm->sgemm = refuses;
    ck_assert(bits_of_cpu(be)); /* scratch is there from now on */
    c->gemm->sgemm = blast_sgemm;
    c->gemm->n_classes = 0;
    clReleaseMemObject(c->gemm->tile);
    c->used -= c->gemm->tile_size;
    c->gemm->tile = NULL;
    c->gemm->tile_size = 0;
    c->budget = c->used + 48 * 64 * 2 + 40 * 64 * 4 + 40 * 48 * 4 + 48 * 4 + 1000;
    ck_assert(bits_of_cpu(be));
    ck_assert_msg(strstr(said, "CL_MEM_OBJECT_ALLOCATION_FAILURE") != NULL, "%s", said);
    registry_close(be);
}
END_TEST

/* Values that are not finite judge nobody. */
START_TEST(not_finite)
{
    struct backend *be = open_opencl(&with_clblast);
    float x[40 * 64], w[48 * 64], out[40 * 48];

    if (be == NULL)
        return;
    log_set(hear, NULL, LOG_WARN, 0);
    op_cases_random(w, 48 * 64, 1, 1);
    op_cases_random(x, 40 * 64, 1, 1);
    x[100] = INFINITY;
    run_linear(be, &(struct linear){DTYPE_F32, 48, 64, 40, false, 0, true}, w, x, out);
    ck_assert(isfinite(out[0]) && !isfinite(out[48]));
    ck_assert_int_eq(n_said, 0);
    ck_assert_int_eq(((struct clb *)be)->gemm->classes[0].choice, GEMM_OPEN);
    registry_close(be);
}
END_TEST

/* ---- whole models ---- */
static struct golden *goldens; /* those of FORGE_TEST_MODELS first */

static const char *beside(const char *expected, const char *file)
{
    static char path[256];
    snprintf(path, sizeof path, "%.*s/%s", (int)(strrchr(expected, '/') - expected), expected, file);
    return path;
}

static int32_t argmax(const float *x, size_t n)
{
    size_t best = 0;
    for (size_t i = 1; i < n; i++)
        best = x[i] > x[best] ? i : best;
    return (int32_t)best;
}

/* Greedy ids as expected; logits within 1e-3 of the largest one. */
static void check_prompt(struct test_model *t, const char *file, const cJSON *p, const double *want)
{
    size_t n, n_greedy, n_vocab = (size_t)test_model_vocab(t);
    int32_t *ids = test_ids(json_get(p, "ids"), &n), *greedy = test_ids(json_get(p, "greedy"), &n_greedy), got[64];
    float *logits = mem_array(n * n_vocab, sizeof(float)), *last = logits + (n - 1) * n_vocab;
    double bound = 1e-3 * json_get(p, "max_abs_logit")->valuedouble;

    test_model_run(t, 0, ids, (int)n, 0, 0, logits);
    for (size_t i = 0; i < n_vocab; i++)
        test_that(fabs((double)last[i] - want[i]) <= bound, "%s, %d ids, logit %zu: %g instead of %g",
                  file, (int)n, i, (double)last[i], want[i]);
    got[0] = argmax(last, n_vocab);
    test_model_greedy(t, 0, &got[0], (int)n, got + 1, (int)n_greedy - 1);
    for (size_t i = 0; i < n_greedy; i++)
        test_that(got[i] == greedy[i], "%s, %d ids, greedy step %zu: %d instead of %d", file, (int)n, i, got[i],
                  greedy[i]);
    free(logits);
    free(ids);
    free(greedy);
}

START_TEST(golden)
{
    const struct golden *g = &goldens[_i];
    const struct test_model_options o = {.device = "opencl", .gemm = GEMM_KERNELS_CLBLAST};
    struct test_model t;
    struct err err = {0};
    struct npy want;
    char name[128];

    if (test_model_open(&t, test_path(g->file), &o, &err) != 0) {
        ck_assert_msg(err.code == ERR_DEVICE, "%s", err.msg);
        test_skip(err.msg);
        return;
    }
    snprintf(name, sizeof name, "%s.json", g->expected);
    cJSON *expected = test_json(name);
    test_npy(&want, beside(g->expected, json_get(expected, "logits_f64")->valuestring));
    size_t at_prompt = 0;
    for (const cJSON *p = json_get(expected, "prompts")->child; p; p = p->next, at_prompt++)
        check_prompt(&t, g->file, p, want.d + at_prompt * want.shape[1]);
    ck_assert(by_clblast(t.be[0]));
    test_npy_free(&want);
    cJSON_Delete(expected);
    test_model_close(&t);
}
END_TEST
#else
#include <string.h>

#include "backend/registry.h"
#include "tests/test.h"

/* What a user is told who asks for what this build has not. */
START_TEST(not_in_this_build)
{
    struct backend_params params = {.n_threads = 1, .gemm = GEMM_KERNELS_CLBLAST, .no_selftest = true};
    struct backend *be[REGISTRY_MAX_INSTANCES];
    struct err err = {0};
    int n;

    ck_assert_int_ne(registry_open("opencl", &params, be, &n, NULL, 0, &err), 0);
    if (err.code == ERR_DEVICE)
        test_skip(err.msg);
    else
        ck_assert_msg(err.code == ERR_UNSUPPORTED && strstr(err.msg, "no CLBlast") != NULL, "%s", err.msg);
}
END_TEST
#endif

int main(void)
{
    Suite *s = suite_create("gemm");
    TCase *t = tcase_create("gemm");

    tcase_set_timeout(t, 900); /* CLBlast's first call compiles for a while */
#ifndef HAVE_CLBLAST
    tcase_add_test(t, not_in_this_build);
#else
    tcase_add_test(t, contract);
    tcase_add_test(t, contract_refusals);
    tcase_add_loop_test(t, linear, 0, 2);
    tcase_add_test(t, chosen);
    tcase_add_test(t, falls_back);
    tcase_add_test(t, no_memory_for_a_tile);
    tcase_add_test(t, not_finite);
    const char *words = getenv("FORGE_TEST_MODELS");
    size_t n;
    if (!golden_list(&goldens, &n))
        return EXIT_FAILURE;
    n = golden_choose(goldens, n, words != NULL ? words : "golden/models/");
    tcase_add_loop_test(t, golden, 0, (int)n);
#endif
    suite_add_tcase(s, t);
    int rc = test_main(s);
#ifdef HAVE_CLBLAST
    free(goldens);
#endif
    return rc;
}
