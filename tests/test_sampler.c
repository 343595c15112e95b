/* The sampler against golden/sampling, its edge rules, the draw, the ranges of
 * its settings; and selection against a sort.  No model is needed for any of
 * it. */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "run/sampler.h"
#include "run/sampler_scan.h"
#include "run/sampler_select.h"
#include "tests/test.h"

#define BOUND 1e-6

static const struct sampler_history no_history;

static double number(const cJSON *settings, const char *key, double fallback)
{
    const cJSON *v = json_get(settings, key);
    return v ? v->valuedouble : fallback;
}

static void read_settings(struct sampler_params *p, struct sampler_bias *bias, const cJSON *j)
{
    sampler_params_init(p);
    p->temp = number(j, "temperature", 1);
    p->top_k = (int64_t)number(j, "top_k", 0);
    p->top_p = number(j, "top_p", 1);
    p->min_p = number(j, "min_p", 0);
    p->typical_p = number(j, "typical_p", 1);
    p->repeat_penalty = number(j, "repetition_penalty", 1);
    p->presence_penalty = number(j, "presence_penalty", 0);
    p->frequency_penalty = number(j, "frequency_penalty", 0);
    p->bias = bias;
    const cJSON *list = json_get(j, "logit_bias");
    for (const cJSON *b = list ? list->child : NULL; b; b = b->next)
        bias[p->n_bias++] = (struct sampler_bias){(int32_t)strtol(b->string, NULL, 10), (float)b->valuedouble};
}

static double p_of(const struct sampler_cand *c, size_t n, int32_t id)
{
    for (size_t i = 0; i < n; i++)
        if (c[i].id == id)
            return (double)c[i].p;
    return -1;
}

static void check_case(const cJSON *c, const float *logits, int64_t n_vocab, const struct sampler_history *h)
{
    struct sampler_params p;
    struct sampler_bias bias[16];
    struct sampler *s;
    struct err err = {0};
    const struct sampler_cand *cand;
    size_t n;
    char *name = cJSON_PrintUnformatted(json_get(c, "settings"));
    const char *set = json_get(c, "set")->valuestring;
    read_settings(&p, bias, json_get(c, "settings"));
    ck_assert_msg(sampler_new(&s, &p, n_vocab, &err) == 0, "%s %s: %s", set, name, err.msg);
    ck_assert_msg(sampler_probs(s, logits, h, &cand, &n, &err) == 0, "%s %s: %s", set, name, err.msg);
    ck_assert_msg((double)n == json_get(c, "n_kept")->valuedouble, "%s %s: kept %zu, expected %g", set, name, n,
                  json_get(c, "n_kept")->valuedouble);
    double sum = 0, entropy = 0;
    for (size_t i = 0; i < n; i++) {
        double q = (double)cand[i].p;
        ck_assert_msg(i == 0 || cand[i].id > cand[i - 1].id, "%s %s: ids do not rise", set, name);
        sum += q;
        entropy -= q > 0 ? q * log(q) : 0;
    }
    ck_assert_msg(fabs(sum - 1) < BOUND, "%s %s: sum %.9g", set, name, sum);
    for (const cJSON *e = json_get(c, "probs")->child; e; e = e->next) {
        double want = e->child->next->valuedouble, got = p_of(cand, n, e->child->valueint);
        ck_assert_msg(fabs(got - want) <= BOUND, "%s %s: id %d has %.9g, expected %.9g", set, name, e->child->valueint,
                      got, want);
    }
    if (json_get(c, "entropy"))
        ck_assert_msg(fabs(entropy - json_get(c, "entropy")->valuedouble) < 1e-5, "%s %s: entropy %.9g", set, name, entropy);
    free(name);
    sampler_free(s);
}

static void check_file(const char *json, const char *npy)
{
    cJSON *j = test_json(json);
    struct npy a;
    struct sampler_history h = {0};
    test_npy(&a, npy);
    int32_t *prompt = test_ids(json_get(j, "prompt"), &h.n_prompt);
    int32_t *generated = test_ids(json_get(j, "generated"), &h.n_generated);
    h.prompt = prompt;
    h.generated = generated;
    int n_cases = 0;
    for (const cJSON *c = json_get(j, "cases")->child; c; c = c->next, n_cases++)
        check_case(c, a.f + (size_t)json_get(c, "row")->valueint * a.shape[1], (int64_t)a.shape[1], &h);
    ck_assert_int_eq(n_cases, 330);
    free(prompt);
    free(generated);
    test_npy_free(&a);
    cJSON_Delete(j);
}

START_TEST(golden_50)
{
    check_file("golden/sampling/vocab50.json", "golden/sampling/vocab50.npy");
}
END_TEST

START_TEST(golden_1000)
{
    check_file("golden/sampling/vocab1000.json", "golden/sampling/vocab1000.npy");
}
END_TEST

/* ---- edges ---- */

static int32_t pick(const struct sampler_params *p, const float *logits, int64_t n, uint64_t position, struct err *err)
{
    struct sampler *s;
    int32_t id = -1;
    ck_assert_int_eq(sampler_new(&s, p, n, NULL), 0);
    int rc = sampler_pick(s, logits, &no_history, 0, position, &id, err);
    sampler_free(s);
    return rc < 0 ? rc : id;
}

START_TEST(greedy_takes_the_lowest_of_equals)
{
    const float logits[] = {1, 7, 3, 7, 7};
    const struct { double temp, top_p; int64_t top_k; } rows[] = {{0, 1, 0}, {0.8, 1, 1}, {0.8, 0, 0}, {1e-9, 1e-3, 0}};
    for (size_t i = 0; i < 4; i++) {
        struct sampler_params p;
        sampler_params_init(&p);
        p.temp = rows[i].temp;
        p.top_p = rows[i].top_p;
        p.top_k = rows[i].top_k;
        for (uint64_t pos = 0; pos < 50; pos++)
            ck_assert_int_eq(pick(&p, logits, 5, pos, NULL), 1);
    }
}
END_TEST

START_TEST(extreme_values_stay_finite)
{
    const float logits[] = {-3.0e38f, 3.0e38f, 0, -INFINITY, 3.0e38f};
    const double temps[] = {1e-300, 1e-9, 1, 1e30};
    for (size_t i = 0; i < 4; i++) {
        struct sampler_params p;
        struct sampler *s;
        const struct sampler_cand *c;
        size_t n;
        sampler_params_init(&p);
        p.temp = temps[i];
        p.top_k = INT64_MAX;
        ck_assert_int_eq(sampler_new(&s, &p, 5, NULL), 0);
        ck_assert_int_eq(sampler_probs(s, logits, &no_history, &c, &n, NULL), 0);
        ck_assert_uint_eq(n, 4); /* all but the -Inf one */
        double sum = 0;
        for (size_t k = 0; k < n; k++) {
            ck_assert(isfinite(c[k].p) && c[k].id != 3);
            sum += (double)c[k].p;
        }
        ck_assert(fabs(sum - 1) < BOUND);
        sampler_free(s);
    }
}
END_TEST

static void ban_all(void *user, float *logits, int64_t n)
{
    int64_t keep = *(const int64_t *)user;
    for (int64_t i = 0; i < n; i++)
        if (i != keep)
            logits[i] = -INFINITY;
}

START_TEST(non_finite_logits_are_errors)
{
    const struct { float v[3]; double temp; const char *word; } rows[] = {
        {{1, NAN, 2}, 0, "NaN"}, {{1, NAN, 2}, 1, "NaN"}, {{1, 2, INFINITY}, 0, "Inf"}, {{NAN, NAN, NAN}, 1, "NaN"},
        {{-INFINITY, -INFINITY, -INFINITY}, 0, "no token is left"}, {{-INFINITY, -INFINITY, -INFINITY}, 1, "no token is left"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct sampler_params p;
        struct err err = {0};
        sampler_params_init(&p);
        p.temp = rows[i].temp;
        ck_assert_int_eq(pick(&p, rows[i].v, 3, 0, &err), ERR_NUMERIC);
        ck_assert_msg(strstr(err.msg, rows[i].word) != NULL, "%s", err.msg);
    }
}
END_TEST

/* What a model computes must be finite; what a caller gives may hold -inf. */
START_TEST(only_finite_logits)
{
    const float logits[] = {1, -INFINITY, 2};
    for (int temp = 0; temp < 2; temp++) {
        struct sampler_params p;
        struct err err = {0};
        sampler_params_init(&p);
        p.temp = temp;
        ck_assert_int_ge(pick(&p, logits, 3, 0, &err), 0);
        p.only_finite = true;
        ck_assert_int_eq(pick(&p, logits, 3, 0, &err), ERR_NUMERIC);
        ck_assert_msg(strstr(err.msg, "id 1 is -Inf") != NULL, "%s", err.msg);
    }
}
END_TEST

/* A plain argmax needs no memory per id: this vocabulary would take more than 100 GB. */
START_TEST(memory_by_the_stages_in_force)
{
    struct sampler_params p;
    struct sampler *s;
    struct err err = {0};
    sampler_params_init(&p);
    ck_assert_msg(sampler_new(&s, &p, INT32_MAX, &err) == 0, "%s", err.msg);
    sampler_free(s);
    /* greedy with and without scores of its own, and with a mask on either, agree */
    const float logits[] = {3, 5, 4, 5};
    const struct sampler_bias none = {0, 0};
    for (int i = 0; i < 4; i++) {
        int32_t id;
        int64_t keep = 3;
        p.bias = &none;
        p.n_bias = i & 1;
        ck_assert_int_eq(sampler_new(&s, &p, 4, NULL), 0);
        if (i & 2)
            ck_assert_int_eq(sampler_set_mask(s, ban_all, &keep, NULL), 0);
        ck_assert_int_eq(sampler_pick(s, logits, &no_history, 0, 0, &id, NULL), 0);
        ck_assert_int_eq(id, i & 2 ? 3 : 1);
        sampler_free(s);
    }
}
END_TEST

/* min-p keeps what ties with its bound, and its bound is a share of the largest probability. */
START_TEST(min_p_at_its_bound)
{
    const float logits[] = {0, -0.693147f, -0.6931f, -1}; /* weights 1, 0.5000001, 0.50002, 0.37 */
    const struct { double min_p; size_t kept; } rows[] = {{1, 1}, {0.50001, 2}, {0.5, 3}, {0.36, 4}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct sampler_params p;
        struct sampler *s;
        const struct sampler_cand *c;
        size_t n;
        sampler_params_init(&p);
        p.temp = 1;
        p.min_p = rows[i].min_p;
        ck_assert_int_eq(sampler_new(&s, &p, 4, NULL), 0);
        ck_assert_int_eq(sampler_probs(s, logits, &no_history, &c, &n, NULL), 0);
        ck_assert_msg(n == rows[i].kept, "min_p %g kept %zu", rows[i].min_p, n);
        sampler_free(s);
    }
}
END_TEST

START_TEST(mask_and_bans)
{
    const float logits[] = {5, 4, 3};
    struct sampler_params p;
    struct sampler *s;
    struct err err = {0};
    int32_t id;
    int64_t keep = 2;
    sampler_params_init(&p);
    ck_assert_int_eq(sampler_new(&s, &p, 3, NULL), 0);
    ck_assert(sampler_is_plain_argmax(s));
    ck_assert_int_eq(sampler_set_mask(s, ban_all, &keep, NULL), 0);
    ck_assert(!sampler_is_plain_argmax(s));
    ck_assert_int_eq(sampler_pick(s, logits, &no_history, 0, 0, &id, NULL), 0);
    ck_assert_int_eq(id, 2);
    keep = -1;
    ck_assert_int_eq(sampler_pick(s, logits, &no_history, 0, 0, &id, &err), ERR_NUMERIC);
    sampler_free(s);

    const struct sampler_bias bias[] = {{0, -INFINITY}, {1, -INFINITY}, {2, -INFINITY}};
    p.bias = bias;
    p.n_bias = 3;
    ck_assert_int_eq(pick(&p, logits, 3, 0, &err), ERR_NUMERIC);
    p.n_bias = 2;
    ck_assert_int_eq(pick(&p, logits, 3, 0, &err), 2);
}
END_TEST

START_TEST(history_outside_the_vocabulary)
{
    const float logits[] = {5, 4, 3};
    const int32_t bad[] = {1, 3}, below[] = {-1};
    struct sampler_params p;
    struct sampler *s;
    struct err err = {0};
    int32_t id;
    sampler_params_init(&p);
    ck_assert_int_eq(sampler_new(&s, &p, 3, NULL), 0);
    struct sampler_history h = {.prompt = bad, .n_prompt = 2};
    ck_assert_int_eq(sampler_pick(s, logits, &h, 0, 0, &id, &err), ERR_ARG);
    ck_assert_msg(strstr(err.msg, "id 3") != NULL, "%s", err.msg);
    h = (struct sampler_history){.generated = below, .n_generated = 1};
    ck_assert_int_eq(sampler_pick(s, logits, &h, 0, 0, &id, &err), ERR_ARG);
    sampler_free(s);
}
END_TEST

/* A draw is a function of (seed, sample, position), and follows the distribution. */
START_TEST(draws)
{
    const float logits[] = {0, 1, -INFINITY, 2, -1};
    enum { N = 20000 };
    struct sampler_params p;
    struct sampler *s;
    const struct sampler_cand *c;
    size_t n;
    int count[5] = {0}, differs = 0;
    sampler_params_init(&p);
    p.temp = 1;
    p.seed = 42;
    ck_assert_int_eq(sampler_new(&s, &p, 5, NULL), 0);
    for (int i = 0; i < N; i++) {
        int32_t a, b, other;
        ck_assert_int_eq(sampler_pick(s, logits, &no_history, 0, (uint64_t)i, &a, NULL), 0);
        ck_assert_int_eq(sampler_pick(s, logits, &no_history, 1, (uint64_t)i, &other, NULL), 0);
        ck_assert_int_eq(sampler_pick(s, logits, &no_history, 0, (uint64_t)i, &b, NULL), 0);
        ck_assert_int_eq(a, b);
        differs += a != other;
        count[a]++;
    }
    ck_assert_int_gt(differs, N / 10);
    ck_assert_int_eq(sampler_probs(s, logits, &no_history, &c, &n, NULL), 0);
    ck_assert_uint_eq(n, 4);
    ck_assert_int_eq(count[2], 0);
    for (size_t i = 0; i < n; i++) { /* five standard deviations */
        double want = (double)c[i].p * N;
        ck_assert_msg(fabs(count[c[i].id] - want) < 5 * sqrt(want), "id %d: %d of %g", (int)c[i].id, count[c[i].id], want);
    }
    sampler_free(s);
}
END_TEST

START_TEST(settings_out_of_range)
{
    const struct { size_t off; double v; const char *word; } rows[] = {
        {offsetof(struct sampler_params, temp), -1, "temp"},
        {offsetof(struct sampler_params, temp), NAN, "temp"},
        {offsetof(struct sampler_params, temp), INFINITY, "temp"},
        {offsetof(struct sampler_params, top_p), 1.5, "top_p is 1.5"},
        {offsetof(struct sampler_params, top_p), -0.1, "top_p"},
        {offsetof(struct sampler_params, top_p), NAN, "top_p"},
        {offsetof(struct sampler_params, min_p), 2, "min_p"},
        {offsetof(struct sampler_params, typical_p), -1, "typical_p"},
        {offsetof(struct sampler_params, repeat_penalty), 0, "repeat_penalty"},
        {offsetof(struct sampler_params, repeat_penalty), -1, "repeat_penalty"},
        {offsetof(struct sampler_params, presence_penalty), INFINITY, "presence_penalty"},
        {offsetof(struct sampler_params, frequency_penalty), NAN, "frequency_penalty"},
    };
    struct sampler_params p;
    struct err err = {0};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        sampler_params_init(&p);
        memcpy((char *)&p + rows[i].off, &rows[i].v, sizeof rows[i].v);
        ck_assert_int_eq(sampler_params_check(&p, false, 10, &err), ERR_ARG);
        ck_assert_msg(strstr(err.msg, rows[i].word) != NULL, "%s", err.msg);
    }
    sampler_params_init(&p);
    p.top_k = -1;
    ck_assert_int_eq(sampler_params_check(&p, false, 10, &err), ERR_ARG);
    const struct sampler_bias bad[] = {{10, 1}, {-1, 1}, {0, NAN}, {0, INFINITY}};
    for (size_t i = 0; i < 4; i++) {
        sampler_params_init(&p);
        p.bias = &bad[i];
        p.n_bias = 1;
        ck_assert_int_eq(sampler_params_check(&p, false, 10, &err), ERR_ARG);
    }
    sampler_params_init(&p);
    p.top_p = 0.9;
    ck_assert_int_eq(sampler_params_check(&p, true, 10, &err), ERR_ARG);
    ck_assert_msg(strstr(err.msg, "temp is 0") != NULL, "%s", err.msg);
    ck_assert_int_eq(sampler_params_check(&p, false, 10, &err), 0);
    p.temp = 1;
    ck_assert_int_eq(sampler_params_check(&p, true, 10, &err), 0);
    ck_assert_int_eq(sampler_params_check(&p, true, 0, &err), ERR_ARG);
}
END_TEST

START_TEST(described_in_order)
{
    struct sampler_params p;
    char line[200];
    sampler_params_init(&p);
    sampler_describe(&p, line, sizeof line);
    ck_assert_str_eq(line, "greedy");
    p.temp = 0.8;
    p.top_k = 40;
    p.min_p = 0.1;
    p.repeat_penalty = 1.1;
    p.presence_penalty = 0.5;
    sampler_describe(&p, line, sizeof line);
    ck_assert_str_eq(line, "repeat 1.1 > presence 0.5 > temp 0.8 > top-k 40 > min-p 0.1");
}
END_TEST

START_TEST(logprobs_of_raw_logits)
{
    const float logits[] = {1, 2, -INFINITY, 1000};
    const float rest[] = {0, 0, -INFINITY, -INFINITY};
    ck_assert(fabs(sampler_logprob(logits, 4, 3)) < 1e-12);
    ck_assert(fabs(sampler_logprob(logits, 4, 0) + 999) < 1e-9);
    ck_assert(fabs(sampler_logprob(rest, 4, 1) + log(2)) < 1e-12);
    ck_assert(sampler_logsumexp(rest + 2, 2) == -INFINITY);
}
END_TEST

/* ---- selection against a sort ---- */

static int by_order(const void *a, const void *b)
{
    return select_before(a, b) ? -1 : 1;
}

START_TEST(selection_equals_sorting)
{
    enum { N = 500 };
    struct select_item a[N], sorted[N], work[N];
    for (int round = 0; round < 40; round++) {
        unsigned x = 12345u + (unsigned)round;
        size_t n = 1 + (size_t)round * 12;
        double total = 0;
        for (size_t i = 0; i < n; i++) {
            x = x * 1664525u + 1013904223u;
            unsigned levels = round % 4 == 0 ? 1 : round % 4 == 1 ? 3 : 1000; /* all equal, many ties, few */
            a[i] = (struct select_item){(double)(x >> 8 & 0xffff) - (double)((x >> 8 & 0xffff) % levels), (x >> 24) & 7, (int32_t)i};
            if (levels == 1)
                a[i].key = 1;
            total += a[i].weight;
        }
        memcpy(sorted, a, sizeof a);
        qsort(sorted, n, sizeof sorted[0], by_order);
        for (size_t k = 1; k <= n; k += 1 + n / 17) {
            memcpy(work, a, sizeof a);
            ck_assert(select_kth(work, n, k) == sorted[k - 1].key);
        }
        for (int step = 0; step <= 20; step++) {
            double mass = total * step / 18, sum = 0; /* beyond the total at the end */
            size_t m = 0;
            while (m < n && (m == 0 || sum < mass))
                sum += sorted[m++].weight;
            if (mass <= 0) /* at least one item, and what weighs nothing does not count as one */
                for (m = 1, sum = sorted[0].weight; m < n && sum <= 0; m++)
                    sum += sorted[m].weight;
            memcpy(work, a, sizeof a);
            ck_assert_int_eq(select_mass(work, n, mass).id, sorted[m - 1].id);
        }
    }
}
END_TEST

/* Lengths around the blocks and lanes of the scan. */
static const int scan_sizes[] = {1, 2, 15, 16, 17, 63, 64, 65, 127, 128, 129, 1000};
#define SCAN_MAX 1000

START_TEST(scan_equals_a_plain_loop)
{
    float x[SCAN_MAX], max[SCAN_MAX / SCAN_BLOCK + 1];
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    int n = scan_sizes[_i];
    for (int round = 0; round < 50; round++) {
        int64_t best = 0, first = -1;
        for (int i = 0; i < n; i++) /* few values, so that many are equal; -0 equals 0 */
            x[i] = (float)((i * 7919 + round * 104729) % 13 - 12) * (round % 2 ? 0.5f : 1e30f);
        for (int i = 1; i < n; i++)
            best = x[i] > x[best] ? i : best;
        test_that(scan_logits(x, n, -FLT_MAX, &first, max), "%d values", n);
        test_that(first == best, "%d values: %d, not %d", n, (int)first, (int)best);
        for (int b = 0; b < (int)scan_n_blocks(n); b++) {
            float m = x[b * SCAN_BLOCK];
            for (int i = b * SCAN_BLOCK; i < n && i < (b + 1) * SCAN_BLOCK; i++)
                m = x[i] > m ? x[i] : m;
            test_that(max[b] == m, "block %d of %d values", b, n);
        }
        for (int k = 0; k < 3; k++) { /* each value that is none, at every place in turn */
            int at = (round * 31 + k) % n;
            float kept = x[at];
            x[at] = bad[k];
            test_that(!scan_logits(x, n, -FLT_MAX, &first, NULL), "bad value %d at %d of %d", k, at, n);
            test_that(scan_logits(x, n, -INFINITY, &first, NULL) == (k == 2), "bad value %d at %d of %d", k, at, n);
            x[at] = kept;
        }
    }
    for (int i = 0; i < n; i++)
        x[i] = -INFINITY;
    int64_t first = -1;
    ck_assert(scan_logits(x, n, -INFINITY, &first, max));
    ck_assert_int_eq(first, 0);
}
END_TEST

START_TEST(weights_are_exponentials)
{
    struct select_item item[SCAN_MAX], one;
    int n = scan_sizes[_i];
    for (int i = 0; i < n; i++)
        item[i] = (struct select_item){3 - 0.001 * i * i, 0, i};
    scan_weights(item, (size_t)n, 3, 1.25);
    for (int i = 0; i < n; i++) {
        double y = (3 - 0.001 * i * i - 3) / 1.25, want = y < -700 ? 0 : exp(y);
        test_that(fabs(item[i].weight - want) <= 1e-11 * want, "e^%g is %g, not %g", y, item[i].weight, want);
        one = (struct select_item){3 - 0.001 * i * i, 0, 0};
        scan_weights(&one, 1, 3, 1.25);
        test_that(one.weight == item[i].weight, "the weight of %d depends on its neighbours", i);
    }
    ck_assert(item[0].weight == 1);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("sampler");
    TCase *t = tcase_create("sampler");
    tcase_add_test(t, golden_50);
    tcase_add_test(t, golden_1000);
    tcase_add_test(t, greedy_takes_the_lowest_of_equals);
    tcase_add_test(t, extreme_values_stay_finite);
    tcase_add_test(t, non_finite_logits_are_errors);
    tcase_add_test(t, only_finite_logits);
    tcase_add_test(t, memory_by_the_stages_in_force);
    tcase_add_test(t, min_p_at_its_bound);
    tcase_add_test(t, mask_and_bans);
    tcase_add_test(t, history_outside_the_vocabulary);
    tcase_add_test(t, draws);
    tcase_add_test(t, settings_out_of_range);
    tcase_add_test(t, described_in_order);
    tcase_add_test(t, logprobs_of_raw_logits);
    tcase_add_test(t, selection_equals_sorting);
    tcase_add_loop_test(t, scan_equals_a_plain_loop, 0, (int)(sizeof scan_sizes / sizeof *scan_sizes));
    tcase_add_loop_test(t, weights_are_exponentials, 0, (int)(sizeof scan_sizes / sizeof *scan_sizes));
    suite_add_tcase(s, t);
    return test_main(s);
}
