/* Trained models against what transformers computed in float32 on the same
 * weights (tests/golden/real): tokenizer, first logits, greedy ids, log-probabilities.
 * The files are fetched by `make check-models`; a model that is not in the folder
 * FORGE_MODELS_DIR is skipped with that reason.  Both kinds of arithmetic on the
 * CPU, each within its own bounds, with --kv f32. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/map.h"
#include "run/sampler.h"
#include "run/seq.h"
#include "tests/test.h"

/* How far a model may be from what is expected. */
struct bounds {
    enum backend_math math;
    double gap;        /* a smaller lead of the best logit may turn either way */
    double logit;      /* of the first position; 0 = not compared */
    double logprob;    /* mean */
    double perplexity; /* relative */
};

static const struct real {
    const char *file, *expected;
    double fast_logprob;
} reals[] = {
    { "SmolLM2-135M-Instruct.Q4_1.gguf", "golden/real/smollm2-135m-instruct-q4_1.json", 0.055 },
    { "gemma-3-270m-q4_k_m.gguf", "golden/real/gemma-3-270m-q4_k_m.json", 0.075 },
    { "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf", "golden/real/qwen2.5-coder-0.5b-instruct-q4_k_m.json", 0.037 },
};
#define N_REALS ((int)(sizeof reals / sizeof reals[0]))

/* The path of a model, or NULL after counting a skip. */
static char *find_model(const struct real *r)
{
    const char *dir = getenv("FORGE_MODELS_DIR");
    char *path = dir ? path_join(dir, r->file) : NULL;
    if (path && path_exists(path))
        return path;
    free(path);
    char reason[256];
    snprintf(reason, sizeof reason, "%s is not there (make check-models fetches it)", r->file);
    test_skip(reason);
    return NULL;
}

static void check_ids(const struct tokenizer *t, const char *text, size_t len, unsigned flags, const cJSON *want, const char *what)
{
    struct err err = { 0 };
    struct ids got;
    size_t n;
    int32_t *ids = test_ids(want, &n);
    ids_init(&got);
    ck_assert_msg(tokenizer_encode(t, text, len, flags, &got, &err) == 0, "%s: %s", what, err.msg);
    ck_assert_msg(got.n == n && !memcmp(got.v, ids, n * sizeof *ids), "%s: ids differ (%zu, want %zu)", what, got.n, n);
    ids_fini(&got);
    free(ids);
}

static void check_tokenizer(const struct tokenizer *t, const cJSON *root)
{
    const cJSON *c;
    cJSON_ArrayForEach(c, json_get(root, "tok")) {
        size_t len;
        char *text = test_text(c, "text", &len);
        check_ids(t, text, len, TOK_ADD_SPECIAL | TOK_PARSE_SPECIAL, json_get(c, "ids"), text);
        if (json_get(c, "ids_plain"))
            check_ids(t, text, len, 0, json_get(c, "ids_plain"), text);
        free(text);
    }
}

static void check_first_logits(const float *logits, int64_t n_vocab, const cJSON *hf, double bound, const char *what)
{
    const cJSON *e;
    if (bound <= 0)
        return;
    cJSON_ArrayForEach(e, json_get(hf, "first_logits_top20")) {
        int id = (int)cJSON_GetArrayItem(e, 0)->valuedouble;
        double want = cJSON_GetArrayItem(e, 1)->valuedouble;
        ck_assert_msg(fabs((double)logits[id] - want) <= bound, "%s: logit of %d is %.5f, want %.5f", what, id,
                      (double)logits[id], want);
    }
    double lse = json_get(hf, "first_logsumexp")->valuedouble;
    ck_assert_msg(fabs(sampler_logsumexp(logits, n_vocab) - lse) <= bound, "%s: logsumexp", what);
}

static int32_t lowest_best(const float *x, int64_t n)
{
    int32_t best = 0;
    for (int64_t i = 1; i < n; i++)
        if (x[i] > x[best])
            best = (int32_t)i;
    return best;
}

static void check_prompt(struct loaded *l, const cJSON *p, const char *text_key, const struct bounds *b, float *logits)
{
    const char *what = p->string;
    const cJSON *hf = json_get(p, "hf_f32"), *gap = json_get(hf, "gap"), *id;
    int64_t n_vocab = l->model->config.n_vocab;
    struct err err = { 0 };
    struct seq seq;
    size_t len, n;
    char *text = test_text(p, text_key, &len);
    check_ids(l->tokenizer, text, len, TOK_ADD_SPECIAL | TOK_PARSE_SPECIAL, json_get(p, "prompt_ids"), what);
    free(text);

    int32_t *ids = test_ids(json_get(p, "prompt_ids"), &n);
    ck_assert_msg(seq_open(&seq, l, &err) == 0, "%s", err.msg);
    ck_assert_msg(seq_eval(&seq, ids, n, false, logits, NULL, NULL, &err) == 0, "%s: %s", what, err.msg);
    check_first_logits(logits, n_vocab, hf, b->logit, what);
    int step = 0;
    gap = gap->child;
    cJSON_ArrayForEach(id, json_get(hf, "ids")) {
        if (gap && gap->valuedouble < b->gap)
            break;
        int32_t want = (int32_t)id->valuedouble, got = lowest_best(logits, n_vocab);
        ck_assert_msg(got == want, "%s: step %d gives %d, want %d", what, step, got, want);
        gap = gap ? gap->next : NULL;
        step++;
        if (id->next)
            ck_assert_msg(seq_eval(&seq, &want, 1, false, logits, NULL, NULL, &err) == 0, "%s: %s", what, err.msg);
    }
    printf("    %s: %d ids equal\n", what, step);
    seq_close(&seq);
    free(ids);
}

static void check_logprobs(struct loaded *l, const cJSON *root, const struct bounds *b)
{
    const cJSON *window = json_get(json_get(root, "raw"), "window_a");
    const cJSON *want = json_get(json_get(json_get(root, "ppl_a"), "hf_f32"), "logprobs")->child;
    int64_t n_vocab = l->model->config.n_vocab;
    struct err err = { 0 };
    struct seq seq;
    size_t n, counted = 0;
    double sum = 0.0, shift = 0.0;
    int32_t *ids = test_ids(json_get(window, "prompt_ids"), &n);
    float *all = calloc(n * (size_t)n_vocab, sizeof *all);
    ck_assert_ptr_nonnull(all);
    ck_assert_msg(seq_open(&seq, l, &err) == 0, "%s", err.msg);
    ck_assert_msg(seq_eval(&seq, ids, n, true, all, NULL, NULL, &err) == 0, "%s", err.msg);
    /* the list starts with the second id */
    for (size_t i = 1; i < n && want; i++, want = want->next) {
        if (!cJSON_IsNumber(want))
            continue;
        double got = sampler_logprob(all + (i - 1) * (size_t)n_vocab, n_vocab, ids[i]);
        sum += fabs(got - want->valuedouble);
        shift += want->valuedouble - got;
        counted++;
    }
    ck_assert_msg(counted > 500, "only %zu log-probabilities compared", counted);
    double mean = sum / (double)counted, ratio = exp(shift / (double)counted);
    printf("    mean |dlogprob| %.2e over %zu, perplexity times %.5f\n", mean, counted, ratio);
    ck_assert_msg(mean <= b->logprob, "mean |dlogprob| %g", mean);
    ck_assert_msg(fabs(ratio - 1.0) <= b->perplexity, "perplexity times %g", ratio);
    seq_close(&seq);
    free(all);
    free(ids);
}

static void check_model(const struct real *r, const struct bounds *b)
{
    char *path = find_model(r);
    if (!path)
        return;
    printf("  %s, %s\n", r->file, b->math == MATH_FAST ? "fast" : "exact");
    cJSON *root = test_json(r->expected);
    struct load_params p;
    struct loaded l;
    struct err err = { 0 };
    load_params_init(&p);
    p.model = path;
    p.device = "cpu";
    p.backend.math = b->math;
    p.kv.dtype = DTYPE_F32;
    ck_assert_msg(load_open(&l, &p, &err) == 0, "%s", err.msg);
    check_tokenizer(l.tokenizer, root);
    float *logits = calloc((size_t)l.model->config.n_vocab, sizeof *logits);
    const cJSON *c;
    cJSON_ArrayForEach(c, json_get(root, "raw"))
        check_prompt(&l, c, "prompt", b, logits);
    cJSON_ArrayForEach(c, json_get(root, "chat"))
        check_prompt(&l, c, "prompt_text", b, logits);
    check_logprobs(&l, root, b);
    free(logits);
    load_close(&l);
    cJSON_Delete(root);
    free(path);
}

START_TEST(real_model)
{
    const struct bounds exact = { MATH_EXACT, 0.002, 1e-3, 1e-3, 0.005 };
    check_model(&reals[_i], &exact);
}
END_TEST

START_TEST(real_model_fast)
{
    const struct bounds fast = { MATH_FAST, 0.7, 0, reals[_i].fast_logprob, 0.005 };
    check_model(&reals[_i], &fast);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("real");
    TCase *t = tcase_create("real");
    tcase_set_timeout(t, 1800);
    tcase_add_loop_test(t, real_model, 0, N_REALS);
    tcase_add_loop_test(t, real_model_fast, 0, N_REALS);
    suite_add_tcase(s, t);
    return test_main(s);
}
