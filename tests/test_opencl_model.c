/* Whole models on an OpenCL device: every golden model gives the bits of the
 * `cpu` backend, in both kernel families and with both types of pages; cut at
 * every layer between two devices it stays the same.
 *
 * FORGE_TEST_MODELS, words with blanks between, takes the models whose path holds one of them ("golden": all);
 * without it some of each kind are taken; FORGE_TEST_PROMPT is the longest prompt (slow devices);
 * FORGE_TEST_FAMILY=gpu takes one family, FORGE_TEST_ONE_DEVICE=1 and FORGE_TEST_TWO_DEVICES=1 one half.  The device
 * is the environment's.  OpenCL
 * hangs in a child of a process that has touched it: main touches none. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "tests/golden_list.h"
#include "tests/model_util.h"
#include "tests/test.h"

static struct golden *goldens;
static size_t n_goldens;

enum { STEPS = 3 };
static size_t prompt_max = 70; /* a second chunk of attention, CLBlast's rows, the tiles of every kernel */

/* Logits of the whole prompt and of some greedy steps behind it, [n, vocab]. */
struct result {
    float *logits;
    size_t n, vocab;
    int32_t ids[STEPS];
};

static int32_t argmax(const float *x, size_t n)
{
    size_t best = 0;
    for (size_t i = 1; i < n; i++)
        best = x[i] > x[best] ? i : best;
    return (int32_t)best;
}

/* The longest prompt of at most prompt_max ids (else the start of one), as many as there are in *n. */
static int32_t *prompt_of(const struct golden *g, size_t *n)
{
    char name[128];
    int32_t *best = NULL;

    snprintf(name, sizeof name, "%s.json", g->expected);
    cJSON *expected = test_json(name);
    *n = 0;
    for (const cJSON *p = json_get(expected, "prompts")->child; p; p = p->next) {
        size_t len;
        int32_t *ids = test_ids(json_get(p, "ids"), &len);
        len = len < prompt_max ? len : prompt_max;
        if (len > *n) {
            free(best);
            best = ids;
            *n = len;
        } else {
            free(ids);
        }
    }
    cJSON_Delete(expected);
    ck_assert_uint_gt(*n, 0);
    return best;
}

/* A prompt in pieces of `chunk` (0 = whole) and the steps behind it; false after a skip, when there is no such device. */
static bool run(struct result *out, const struct golden *g, const struct test_model_options *o, int chunk)
{
    struct test_model t;
    struct err err = {0};
    size_t n;
    int rc = test_model_open(&t, test_path(g->file), o, &err);

    if (rc == ERR_DEVICE && t.n_be == 0) {
        test_model_close(&t);
        test_skip(err.msg);
        return false;
    }
    ck_assert_msg(rc == 0, "%s on %s: %s", g->file, o->device, err.msg);
    int32_t *ids = prompt_of(g, &n);
    *out = (struct result){.n = n + STEPS, .vocab = (size_t)test_model_vocab(&t)};
    out->logits = mem_array(out->n * out->vocab, sizeof(float));
    ck_assert_ptr_nonnull(out->logits);
    test_model_run(&t, 0, ids, (int)n, 0, chunk, out->logits);
    for (size_t i = 0; i < STEPS; i++) {
        out->ids[i] = argmax(out->logits + (n + i - 1) * out->vocab, out->vocab);
        test_model_run(&t, 0, &out->ids[i], 1, (int)(n + i), 0, out->logits + (n + i) * out->vocab);
    }
    free(ids);
    test_model_close(&t);
    return true;
}

static void check_bits(const struct result *want, const struct result *got, const char *what)
{
    ck_assert_uint_eq(want->n * want->vocab, got->n * got->vocab);
    for (size_t i = 0; i < want->n * want->vocab; i++)
        test_that(memcmp(&want->logits[i], &got->logits[i], sizeof(float)) == 0,
                  "%s: row %zu of %zu, logit %zu: %.9g instead of %.9g", what, i / want->vocab, want->n,
                  i % want->vocab, (double)got->logits[i], (double)want->logits[i]);
}

/* The figure that sums in another order must keep: of the largest logit. */
static void check_near(const struct result *want, const struct result *got, const char *what)
{
    double largest = 0, apart = 0;

    for (size_t i = 0; i < want->n * want->vocab; i++) {
        largest = fmax(largest, fabs((double)want->logits[i]));
        apart = fmax(apart, fabs((double)want->logits[i] - (double)got->logits[i]));
        test_that(isfinite(got->logits[i]), "%s: logit %zu is not finite", what, i);
    }
    ck_assert_msg(apart <= 1e-3 * largest, "%s: logits differ by %g, the largest is %g", what, apart, largest);
    for (int i = 0; i < STEPS; i++)
        ck_assert_msg(got->ids[i] == want->ids[i], "%s: greedy step %d: %d instead of %d", what, i,
                      got->ids[i], want->ids[i]);
}

/* Ways of the device to run a model, pieces of the prompt (0 = whole), and whether the bits must be those of cpu,
 * which has the prompt whole and the cache in one page. */
static const struct way {
    const char *kernels;
    bool deterministic;
    enum dtype kv;
    int chunk, page_size;
    bool bits;
} ways[] = {
    {"cpu", false, DTYPE_F32, 0, 16, true},  {"cpu", false, DTYPE_F32, 7, 0, true},
    {"cpu", true, DTYPE_F16, 32, 1, true},   {"gpu", true, DTYPE_F32, 0, 16, true},
    {"gpu", true, DTYPE_F32, 7, 0, true},    {"gpu", true, DTYPE_F16, 32, 1, true},
    {"gpu", false, DTYPE_F32, 0, 16, false},
};
enum { N_WAYS = sizeof ways / sizeof *ways };
static int first_way, n_ways = N_WAYS;

/* Those of one family alone. */
static void choose_ways(const char *family)
{
    while (n_ways > 0 && strcmp(ways[first_way].kernels, family) != 0)
        first_way++, n_ways--;
    while (n_ways > 0 && strcmp(ways[first_way + n_ways - 1].kernels, family) != 0)
        n_ways--;
}

START_TEST(on_device)
{
    const struct golden *g = &goldens[_i / n_ways];
    const struct way *w = &ways[first_way + _i % n_ways];
    struct test_model_options cpu = {.device = "cpu", .kv = w->kv},
                              cl = {.device = "opencl",
                                    .kv = w->kv,
                                    .page_size = w->page_size,
                                    .kernels = w->kernels,
                                    .deterministic = w->deterministic,
                                    .kernel_cache = getenv("FORGE_TEST_KERNELS")};
    struct result want, got;
    char what[256];

    if (!run(&got, g, &cl, w->chunk))
        return;
    ck_assert(run(&want, g, &cpu, 0));
    snprintf(what, sizeof what, "%s, family %s%s, pages %s of %d, chunk %d", g->file, w->kernels,
             w->deterministic ? ", deterministic" : "", dtype_info(w->kv)->name, w->page_size, w->chunk);
    if (w->bits)
        check_bits(&want, &got, what);
    else
        check_near(&want, &got, what);
    free(want.logits);
    free(got.logits);
}
END_TEST

/* ---- several devices ---- */
/* Lists of devices; the second OpenCL one is PoCL's twin, or what the environment has. */
static const char *const lists[] = {"opencl:0,opencl:1", "opencl:1,opencl:0", "cpu,opencl:0", "opencl:0,cpu"};
enum { N_LISTS = sizeof lists / sizeof *lists };
/* two page groups by window; experts; tied and untied heads */
static const char *const split_models[] = {"golden/models/gemma3", "golden/models/qwen3-moe",
                                           "golden/models/qwen3-untied", "golden/containers/gguf/wide-q4_k.gguf"};
enum { N_SPLIT_MODELS = sizeof split_models / sizeof *split_models };

static const struct golden *golden_named(const char *file)
{
    for (size_t i = 0; i < n_goldens; i++)
        if (strcmp(goldens[i].file, file) == 0)
            return &goldens[i];
    return NULL;
}

static int64_t layers_of(const struct golden *g)
{
    struct test_model t;
    struct err err = {0};
    ck_assert_msg(test_model_open(&t, test_path(g->file), NULL, &err) == 0, "%s", err.msg);
    int64_t n = t.m->config.n_layers;
    test_model_close(&t);
    return n;
}

/* Between any two layers, none on the first or none on the second device included. */
START_TEST(cut_at_every_layer)
{
    const char *devices = lists[_i % N_LISTS];
    const struct golden *g = golden_named(split_models[_i / N_LISTS]);
    struct test_model_options cpu = {.device = "cpu"},
                              two = {.device = devices,
                                     .deterministic = true,
                                     .kernel_cache = getenv("FORGE_TEST_KERNELS")};
    struct result want, got;
    char what[256];

    ck_assert_ptr_nonnull(g);
    if (strstr(devices, "opencl:1") != NULL) {
        const char *fork = getenv("CK_FORK");
        struct device_list l;
        if (fork == NULL || strcmp(fork, "no") != 0)
            setenv("POCL_DEVICES", "pthread pthread", 0);
        ck_assert_int_eq(registry_list(&l, NULL), 0);
        bool there = l.n_devices >= 4; /* cpu, ref and two */
        device_list_free(&l);
        if (!there) {
            test_skip("no two OpenCL devices");
            return;
        }
    }
    int64_t n_layers = layers_of(g);
    ck_assert(run(&want, g, &cpu, 0));
    for (int64_t at = 0; at <= n_layers; at++) {
        double split[2] = {(double)at, (double)(n_layers - at)};
        two.split = split;
        if (!run(&got, g, &two, 0))
            break;
        snprintf(what, sizeof what, "%s on %s, %d layers of %d on the first", g->file, devices, (int)at,
                 (int)n_layers);
        check_bits(&want, &got, what);
        free(got.logits);
    }
    free(want.logits);
}
END_TEST

int main(void)
{
    const char *words = getenv("FORGE_TEST_MODELS"), *prompt = getenv("FORGE_TEST_PROMPT");

    if (!golden_list(&goldens, &n_goldens))
        return EXIT_FAILURE;
    if (words == NULL)
        words = "golden/models/gemma3 golden/models/qwen3-moe golden/models/qwen2 qwen3-book/ qwen3-q8_0 wide-q4_k.gguf";
    size_t n_chosen = golden_choose(goldens, n_goldens, words);
    if (prompt != NULL)
        prompt_max = (size_t)strtoul(prompt, NULL, 10);
    if (getenv("FORGE_TEST_FAMILY") != NULL)
        choose_ways(getenv("FORGE_TEST_FAMILY"));
    Suite *s = suite_create("opencl model");
    TCase *one = tcase_create("one device"), *two = tcase_create("two devices");
    bool one_only = getenv("FORGE_TEST_ONE_DEVICE") != NULL, two_only = getenv("FORGE_TEST_TWO_DEVICES") != NULL;

    tcase_set_timeout(one, 1800);
    tcase_set_timeout(two, 1800);
    tcase_add_loop_test(one, on_device, 0, two_only ? 0 : (int)n_chosen * n_ways);
    tcase_add_loop_test(two, cut_at_every_layer, 0, one_only ? 0 : N_SPLIT_MODELS * N_LISTS);
    suite_add_tcase(s, one);
    suite_add_tcase(s, two);
    int rc = test_main(s);
    free(goldens);
    return rc;
}
