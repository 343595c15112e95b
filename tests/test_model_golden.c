/* Whole models against an independent implementation: golden/models,
 * golden/containers and golden/extra, on ref and on cpu, within the bounds of
 * golden/README.md: logits, log-probabilities, hidden states, greedy ids. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "tests/golden_list.h"
#include "tests/model_util.h"
#include "tests/test.h"

/* One file on one device. */
struct golden_case {
    const char *file, *expected, *device;
};

static const char *const devices[] = {"ref", "cpu"};
enum { N_DEVICES = sizeof devices / sizeof *devices };
static struct golden *goldens;

static const char *beside(const char *expected, const char *file)
{
    static char path[256];
    const char *slash = strrchr(expected, '/');
    snprintf(path, sizeof(path), "%.*s/%s", (int)(slash - expected), expected, file);
    return path;
}

static double get(const cJSON *o, const char *key)
{
    const cJSON *v = json_get(o, key);
    ck_assert_msg(cJSON_IsNumber(v), "no %s", key);
    return v->valuedouble;
}

static const char *str(const cJSON *o, const char *key)
{
    const cJSON *v = json_get(o, key);
    ck_assert_msg(cJSON_IsString(v), "no %s", key);
    return v->valuestring;
}

/* log softmax(logits)[id] */
static double logprob(const float *logits, size_t n, int32_t id)
{
    double max = -INFINITY, sum = 0;
    for (size_t i = 0; i < n; i++)
        max = fmax(max, (double)logits[i]);
    for (size_t i = 0; i < n; i++)
        sum += exp((double)logits[i] - max);
    return (double)logits[id] - max - log(sum);
}

static int32_t argmax(const float *x, size_t n)
{
    size_t best = 0;
    for (size_t i = 1; i < n; i++)
        best = x[i] > x[best] ? i : best;
    return (int32_t)best;
}

/* The prompt in one piece, then the greedy ids over the cache that it left. */
static void check_prompt(struct test_model *t, const struct golden_case *c, const cJSON *p,
                         const double *want, size_t at)
{
    size_t n, n_lp = 0, n_greedy, n_vocab = (size_t)test_model_vocab(t);
    int32_t *ids = test_ids(json_get(p, "ids"), &n), *greedy = test_ids(json_get(p, "greedy"), &n_greedy),
            got[64];
    float *logits = mem_array(n * n_vocab, sizeof(float));
    double bound = fmax(5e-4, 8 * get(p, "max_abs_diff_f64"));
    test_model_run(t, 0, ids, (int)n, 0, 0, logits);
    for (size_t i = 0; i < n_vocab; i++) {
        double d = fabs((double)logits[(n - 1) * n_vocab + i] - want[i]);
        ck_assert_msg(d <= bound, "%s on %s: prompt %zu, logit %zu: %g instead of %g, bound %g", c->file,
                      c->device, at, i, (double)logits[(n - 1) * n_vocab + i], want[i], bound);
    }
    const cJSON *lps = json_get(p, "logprobs");
    for (const cJSON *lp = lps ? lps->child : NULL; lp; lp = lp->next, n_lp++) {
        double v = logprob(logits + n_lp * n_vocab, n_vocab, ids[n_lp + 1]);
        ck_assert_msg(fabs(v - lp->valuedouble) <= 1e-4,
                      "%s on %s: prompt %zu, logprob %zu: %g instead of %g", c->file, c->device, at, n_lp, v,
                      lp->valuedouble);
    }
    ck_assert_uint_eq(n_lp, n - 1);
    got[0] = argmax(logits + (n - 1) * n_vocab, n_vocab);
    test_model_greedy(t, 0, &got[0], (int)n, got + 1, (int)n_greedy - 1);
    for (size_t i = 0; i < n_greedy; i++)
        ck_assert_msg(got[i] == greedy[i], "%s on %s: prompt %zu, greedy step %zu: %d instead of %d", c->file,
                      c->device, at, i, got[i], greedy[i]);
    free(logits);
    free(ids);
    free(greedy);
}

/* Hidden states of one prompt's last position, after the embedding, each layer, the final norm. */
static void check_trace(struct test_model *t, const struct golden_case *c, const cJSON *expected)
{
    const cJSON *spec = json_get(expected, "trace"), *prompts = json_get(expected, "prompts");
    struct npy want;
    size_t n, d = (size_t)t->m->config.d_model;
    double bound = fmax(1e-4, 8 * get(spec, "max_abs_diff_f64"));
    test_npy(&want, beside(c->expected, str(spec, "file")));
    int32_t *ids = test_ids(json_get(cJSON_GetArrayItem(prompts, (int)get(spec, "prompt")), "ids"), &n);
    float *got = mem_array(want.n, sizeof(float));
    ck_assert_uint_eq(want.n, ((size_t)t->m->config.n_layers + 2) * d);
    forward_trace(t->f, got);
    test_model_run(t, 0, ids, (int)n, 0, 0, NULL);
    forward_trace(t->f, NULL);
    for (size_t i = 0; i < want.n; i++)
        ck_assert_msg(fabs((double)got[i] - (double)want.f[i]) <= bound,
                      "%s on %s: hidden row %zu, value %zu: %g instead of %g", c->file, c->device, i / d,
                      i % d, (double)got[i], (double)want.f[i]);
    free(got);
    free(ids);
    test_npy_free(&want);
}

START_TEST(golden)
{
    const struct golden *g = &goldens[_i / N_DEVICES];
    const struct golden_case of_list = {g->file, g->expected, devices[_i % N_DEVICES]}, *c = &of_list;
    struct test_model t;
    struct err err = {0};
    char name[128];
    struct test_model_options o = {.device = c->device};
    ck_assert_msg(test_model_open(&t, test_path(c->file), &o, &err) == 0, "%s", err.msg);
    snprintf(name, sizeof(name), "%s.json", c->expected);
    cJSON *expected = test_json(name);
    struct npy want;
    test_npy(&want, beside(c->expected, str(expected, "logits_f64")));
    ck_assert_int_eq(want.kind, 'd');
    ck_assert_uint_eq(want.shape[1], (size_t)test_model_vocab(&t));
    size_t at = 0;
    for (const cJSON *p = json_get(expected, "prompts")->child; p; p = p->next, at++)
        check_prompt(&t, c, p, want.d + at * want.shape[1], at);
    check_trace(&t, c, expected);
    test_npy_free(&want);
    cJSON_Delete(expected);
    test_model_close(&t);
}
END_TEST

int main(void)
{
    size_t n;
    if (!golden_list(&goldens, &n))
        return EXIT_FAILURE;
    Suite *s = suite_create("model golden");
    TCase *tc = tcase_create("golden");
    tcase_add_loop_test(tc, golden, 0, (int)n * N_DEVICES);
    suite_add_tcase(s, tc);
    int rc = test_main(s);
    free(goldens);
    return rc;
}
