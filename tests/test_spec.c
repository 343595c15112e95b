/* Drafted ids: under SAME ids, text and log-probabilities are bit for bit those
 * without drafts, whoever drafts and however many; the counts are those of another
 * implementation.  Under RATIO what comes out has the target's distribution, shown
 * by 20 000 samples within bounds that wrong rules miss.
 *
 * OpenCL hangs in a child of a process that has touched it: main touches none. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "run/accept.h"
#include "run/engine.h"
#include "tests/engine_kit.h"

#define DRAFT "../data/forge-tiny-draft"
#define QWEN "golden/models/qwen3"

static struct forge_engine_params drafting(const char *model, const char *draft, int most)
{
    static char path[512];
    struct forge_engine_params p = engine_params(model);
    if (draft) {
        snprintf(path, sizeof path, "%s", test_path(draft));
        p.draft_model = path;
    }
    p.draft_max = most;
    return p;
}

/* ---- the counts of another implementation ---- */

/* All prompts, one by one and together. */
START_TEST(counts_are_as_expected)
{
    enum { N = 12 };
    struct forge_engine_params ep = drafting(TINY, DRAFT, 4);
    ep.max_seqs = _i ? 5 : 1;
    struct forge_engine *e = engine_with(&ep);
    cJSON *j = test_json("golden/tiny/expected.json");
    struct forge_request *r[N];
    uint64_t drafted = 0, accepted = 0;
    int n = 0;
    for (const cJSON *c = json_get(j, "prompts")->child; c; c = c->next, n++) {
        struct forge_request_params p = request_params(json_get(c, "text")->valuestring, 40);
        ck_assert_int_lt(n, N);
        p.text_flags = FORGE_TEXT_PARSE_SPECIAL | FORGE_TEXT_NO_BOS;
        p.ignore_eos = 1;
        p.draft_n = 4;
        ck_assert_int_eq(forge_submit(e, &p, &r[n], NULL), 0);
    }
    ck_assert_int_eq(n, N);
    while (forge_step(e, NULL) > 0)
        ;
    n = 0;
    for (const cJSON *c = json_get(j, "prompts")->child; c; c = c->next, n++) {
        size_t n_want;
        const char *name = json_get(c, "name")->valuestring;
        const cJSON *spec = json_get(c, "speculation");
        const struct forge_metrics *m = forge_request_metrics(r[n]);
        int32_t *want = test_ids(json_get(c, "new_ids"), &n_want);
        ids_equal(r[n], want, n_want, name);
        test_that((double)m->drafted_tokens == json_get(spec, "drafted")->valuedouble &&
                      (double)m->accepted_tokens == json_get(spec, "accepted")->valuedouble,
                  "%s: %d drafted, %d accepted", name, (int)m->drafted_tokens, (int)m->accepted_tokens);
        drafted += m->drafted_tokens;
        accepted += m->accepted_tokens;
        free(want);
        forge_request_free(r[n]);
    }
    ck_assert_uint_eq(drafted, 452);
    ck_assert_uint_eq(accepted, 374);
    ck_assert_uint_eq(forge_engine_stats(e)->drafted_tokens, 452);
    ck_assert_uint_eq(forge_engine_stats(e)->accepted_tokens, 374);
    cJSON_Delete(j);
    forge_engine_close(e);
}
END_TEST

/* ---- the same text ---- */

enum { N_KINDS = 8 };

/* Greedy and sampled, with all that looks at ids before. */
static struct forge_request_params kind(int i)
{
    static const char *const stops[] = {"island", " the"};
    static const char *const texts[N_KINDS] = {"Once upon a time", "1, 2, 3, 4,", "The capital of France is", "Monday, Tuesday,",
                                               "Once upon a time", "2 + 3 = 5\n4 + 4 =", "The opposite of hot is", "One"};
    struct forge_request_params p = request_params(texts[i], i == 5 ? 7 : 50);
    p.ignore_eos = i % 2;
    p.sampling.temp = i >= 3 ? 0.8 : 0;
    p.sampling.seed = (uint64_t)i;
    p.sampling.has_seed = 1;
    p.sampling.top_k = i == 4 ? 30 : 0;
    p.sampling.repeat_penalty = i == 1 ? 1.2 : 1;
    p.sampling.frequency_penalty = i == 7 ? 0.3 : 0;
    p.n_logprobs = i == 2 || i == 6 ? 3 : -1;
    p.n_samples = i == 4 ? 3 : 1;
    p.stops = stops;
    p.n_stops = i == 3 ? 2 : 0;
    return p;
}

static const struct way {
    const char *model, *draft, *device;
    int most, n, chunk, max_seqs;
} ways[] = {
    {TINY, DRAFT, "cpu", 4, 4, 512, 8},   {TINY, DRAFT, "cpu", 0, -1, 512, 3}, {TINY, NULL, "cpu", 6, 6, 512, 8},
    {TINY, NULL, "cpu", 8, -1, 512, 1},   {TINY, DRAFT, "cpu", 8, 8, 5, 4},    {TINY, DRAFT, "cpu", 3, 3, 1, 8},
    {TINY, DRAFT, "ref", 4, 4, 64, 8},    {TINY, DRAFT, "opencl:cpu", 4, -1, 64, 4},
    {QWEN, QWEN, "cpu", 5, 5, 64, 8},     {"golden/models/gemma3", "golden/models/gemma3", "cpu", 5, 5, 16, 4},
    {"golden/models/gemma3", NULL, "cpu", 9, 9, 16, 4}, {"golden/models/mistral", "golden/models/mistral", "cpu", 3, -1, 512, 8},
};

static void same(const struct forge_request *a, const struct forge_request *b, const char *what)
{
    for (int s = 0; s < 3; s++) {
        size_t n, m, n_text, m_text;
        const int32_t *x = forge_request_ids(a, s, &n), *y = forge_request_ids(b, s, &m);
        const char *tx = forge_request_text(a, s, &n_text), *ty = forge_request_text(b, s, &m_text);
        test_that(n == m && (n == 0 || memcmp(x, y, n * sizeof *x) == 0), "%s: sample %d has other ids", what, s);
        test_that(n_text == m_text && memcmp(tx, ty, n_text) == 0, "%s: sample %d has another text", what, s);
        test_that(forge_request_finish(a, s) == forge_request_finish(b, s), "%s: sample %d ends otherwise", what, s);
        for (size_t i = 0; i < n; i++) {
            size_t k, l;
            const struct forge_logprob *p = forge_request_logprobs(a, s, i, &k), *q = forge_request_logprobs(b, s, i, &l);
            test_that(k == l && (k == 0 || memcmp(p, q, k * sizeof *p) == 0), "%s: other log-probabilities", what);
        }
    }
}

START_TEST(text_is_the_same)
{
    const struct way *w = &ways[_i];
    struct forge_engine_params plain = engine_params(w->model), ep = drafting(w->model, w->draft, w->most);
    struct forge_engine *e, *f;
    struct forge_request *r[N_KINDS];
    struct forge_error err = {0};
    ep.device = plain.device = w->device;
    ep.deterministic = plain.deterministic = 1;
    ep.chunk = w->chunk;
    ep.max_seqs = w->max_seqs;
    ep.page_size = 16;
    if (forge_engine_open(&e, &ep, &err) < 0) {
        ck_assert_msg(strncmp(w->device, "opencl", 6) == 0, "%s", err.message);
        test_skip(err.message);
        return;
    }
    f = engine_with(&plain);
    for (int i = 0; i < N_KINDS; i++) {
        struct forge_request_params p = kind(i);
        p.draft_n = i == 7 ? 0 : w->n;
        ck_assert_int_eq(forge_submit(e, &p, &r[i], NULL), 0);
    }
    while (forge_step(e, NULL) > 0)
        ;
    for (int i = 0; i < N_KINDS; i++) {
        char what[80];
        struct forge_request_params p = kind(i);
        struct forge_request *want = generate(f, &p);
        snprintf(what, sizeof what, "%s, %d drafts, request %d", w->model, w->n, i);
        same(r[i], want, what);
        ck_assert_uint_eq(forge_request_metrics(want)->drafted_tokens, 0);
        if (i == 7)
            ck_assert_uint_eq(forge_request_metrics(r[i])->drafted_tokens, 0);
        forge_request_free(want);
        forge_request_free(r[i]);
    }
    const struct forge_engine_stats *s = forge_engine_stats(e);
    test_that(s->drafted_tokens > 0, "%d were drafted", (int)s->drafted_tokens);
    if (w->draft && strcmp(w->draft, w->model) == 0) /* its own draft */
        ck_assert_uint_ge(s->accepted_tokens * 10, s->drafted_tokens * 8);
    ck_assert_uint_eq(s->pages_held, 0);
    forge_engine_close(e);
    forge_engine_close(f);
}
END_TEST

/* To the last position, with the end inside a round. */
START_TEST(contexts_end)
{
    for (int n_ctx = 9; n_ctx < 16; n_ctx++) {
        struct forge_engine_params ep = drafting(TINY, DRAFT, 4), plain = engine_params(TINY);
        ep.n_ctx = plain.n_ctx = n_ctx;
        struct forge_engine *e = engine_with(&ep), *f = engine_with(&plain);
        struct forge_request_params p = request_params("1, 2, 3,", -1);
        p.draft_n = 4;
        p.ignore_eos = 1;
        struct forge_request *r = generate(e, &p), *want = generate(f, &p);
        same(r, want, "a short context");
        ck_assert_int_eq(forge_request_finish(r, 0), FORGE_FINISH_CONTEXT);
        forge_request_free(r);
        forge_request_free(want);
        forge_engine_close(e);
        forge_engine_close(f);
    }
}
END_TEST

/* A grammar bans what drafts may say; ids and end are those without drafts. */
START_TEST(grammars_hold)
{
    struct forge_engine_params ep = drafting(TINY, DRAFT, 4), plain = engine_params(TINY);
    struct forge_engine *e = engine_with(&ep), *f = engine_with(&plain);
    for (int i = 0; i < 3; i++) {
        struct forge_request_params p = request_params("Once upon a time", 30);
        p.grammar = "root ::= [a-z ,]+ \".\" | \" \" [0-9]+";
        p.sampling.temp = i ? 0.9 : 0;
        p.sampling.seed = 4;
        p.sampling.has_seed = 1;
        p.draft_n = 4;
        struct forge_request *want = generate(f, &p), *r = generate(e, &p);
        same(r, want, "a grammar");
        forge_request_free(r);
        if (i == 2) {
            p.draft_accept = FORGE_DRAFT_RATIO;
            r = generate(e, &p);
            for (const char *c = text_of(r); *c; c++)
                ck_assert(strchr("abcdefghijklmnopqrstuvwxyz ,.0123456789", *c));
            forge_request_free(r);
        }
        forge_request_free(want);
    }
    forge_engine_close(e);
    forge_engine_close(f);
}
END_TEST

/* At least one id is drafted in half of the steps, also where hardly any is accepted. */
START_TEST(drafting_goes_on)
{
    struct forge_engine_params ep = drafting(TINY, DRAFT, 8);
    struct forge_engine *e = engine_with(&ep);
    struct forge_request_params p = request_params("zq xv", 120);
    p.sampling.temp = 3;
    p.sampling.seed = 1;
    p.sampling.has_seed = 1;
    p.ignore_eos = 1;
    struct forge_request *r = generate(e, &p);
    const struct forge_metrics *m = forge_request_metrics(r);
    uint64_t steps = forge_engine_stats(e)->steps;
    ck_assert_uint_ge(m->drafted_tokens * 2 + 3, steps);
    ck_assert_uint_lt(m->accepted_tokens, m->drafted_tokens);
    ck_assert_uint_eq(m->output_tokens, 120);
    ck_assert_uint_eq(m->output_tokens, steps + m->accepted_tokens);
    forge_request_free(r);
    forge_engine_close(e);
}
END_TEST

static void refused(const struct forge_engine_params *p, const char *part)
{
    struct forge_engine *e;
    struct forge_error err = {0};
    ck_assert_int_lt(forge_engine_open(&e, p, &err), 0);
    ck_assert_ptr_null(e);
    ck_assert_msg(strstr(err.message, part) != NULL, "%s", err.message);
}

START_TEST(what_is_refused)
{
    struct forge_engine_params ep = drafting(TINY, QWEN, 4);
    struct forge_request *r;
    struct forge_error err = {0};
    refused(&ep, "another vocabulary");
    ep = drafting(TINY, "golden/models/none", 4);
    refused(&ep, "draft model");
    ep = drafting(TINY, NULL, -1);
    refused(&ep, "draft_max is -1");
    ep = drafting(TINY, NULL, 65);
    refused(&ep, "draft_max is 65");
    struct forge_engine *e = engine_of(TINY);
    struct forge_request_params p = request_params("x", 1);
    p.draft_n = -2;
    ck_assert_int_eq(forge_submit(e, &p, &r, &err), FORGE_ERR_ARG);
    ck_assert_ptr_nonnull(strstr(err.message, "draft_n"));
    p.draft_n = 1;
    p.draft_accept = (enum forge_draft_accept)7;
    ck_assert_int_eq(forge_submit(e, &p, &r, &err), FORGE_ERR_ARG);
    ck_assert_ptr_nonnull(strstr(err.message, "draft_accept"));
    forge_engine_close(e);
}
END_TEST

/* ---- the ratio rule ---- */

enum { N_DRAWS = 20000, N_IDS = 6 };

static int32_t draw(const struct accept_dist *d, double u)
{
    double at = 0;
    for (size_t i = 0; i < d->n; i++)
        if (u < (at += (double)d->v[i].p))
            return d->v[i].id;
    return d->v[d->n - 1].id;
}

static const struct pair { /* of distributions: p[i] of id i */
    float p[N_IDS], q[N_IDS];
} pairs[] = {
    {{0.5f, 0.2f, 0.1f, 0.1f, 0.05f, 0.05f}, {0.1f, 0.2f, 0.3f, 0.1f, 0.2f, 0.1f}},
    {{0.9f, 0.1f, 0, 0, 0, 0}, {0, 0.2f, 0.2f, 0.2f, 0.2f, 0.2f}},
    {{0, 0, 0, 0, 0.25f, 0.75f}, {0.5f, 0.5f, 0, 0, 0, 0}},
    {{0.3f, 0.3f, 0.2f, 0.1f, 0.05f, 0.05f}, {0.3f, 0.3f, 0.2f, 0.1f, 0.05f, 0.05f}},
    {{0.4f, 0.3f, 0.1f, 0.1f, 0.05f, 0.05f}, {0}}, /* looked up: always id 1 */
};

static size_t dist_of(struct sampler_cand *out, const float *p)
{
    size_t n = 0;
    for (int i = 0; i < N_IDS; i++)
        if (p[i] > 0)
            out[n++] = (struct sampler_cand){i, p[i]};
    return n;
}

/* Chi-square of counts against p; ids that p has not must not come. */
static double chi_square(const int *counts, const float *p)
{
    double sum = 0;
    for (int i = 0; i < N_IDS; i++) {
        double want = (double)p[i] * N_DRAWS, d = counts[i] - want;
        if (want == 0 && counts[i] > 0)
            return INFINITY;
        sum += want > 0 ? d * d / want : 0;
    }
    return sum;
}

/* rule: 0 ours; what it must be told from: 1 always accepts, 2 draws the rest from p, 3 accepts by p alone. */
static double run_rule(const struct pair *pair, int rule)
{
    struct sampler_cand pv[N_IDS], qv[N_IDS];
    struct accept_dist p = {pv, dist_of(pv, pair->p)}, q = {qv, dist_of(qv, pair->q)};
    int counts[N_IDS] = {0};
    for (uint64_t i = 0; i < N_DRAWS; i++) {
        double u = rng_unit(7, 1, i), v = rng_unit(7, 2, i);
        int32_t id = 0, drafted = q.n ? draw(&q, rng_unit(7, 0, i)) : 1;
        bool yes = accept_ratio(&p, &q, drafted, u, v, &id);
        if (rule == 3)
            yes = u < (double)pair->p[drafted];
        if (rule == 1 || yes)
            id = drafted;
        else if (rule >= 2)
            id = draw(&p, v);
        counts[id]++;
    }
    return chi_square(counts, pair->p);
}

/* 5 degrees of freedom: 30 is passed by chance once in 70 000 times. */
#define CHI_BOUND 30

START_TEST(ratio_has_the_distribution)
{
    const struct pair *pair = &pairs[_i];
    double got = run_rule(pair, 0);
    test_that(got < CHI_BOUND, "chi-square %g", got);
    bool alike = memcmp(pair->p, pair->q, sizeof pair->p) == 0;
    for (int rule = 1; rule < 4 && !alike; rule++) {
        double wrong = run_rule(pair, rule);
        test_that(wrong > CHI_BOUND || (_i == 2 && rule >= 2) || (rule == 3 && _i == 4), "wrong rule %d: chi-square %g", rule, wrong);
    }
}
END_TEST

/* What the target may not choose is not accepted either, be it all that tells both apart. */
START_TEST(ratio_accepts_what_may_come)
{
    struct sampler_cand pv[] = {{0, 0.25f}, {1, 0.75f}}, qv[] = {{0, 0.25f}, {1, 0.75f}, {2, 1e-12f}};
    struct accept_dist p = {pv, 2}, q = {qv, 3};
    int32_t id = -1;
    ck_assert(!accept_ratio(&p, &q, 2, 0.5, 0.5, &id));
    ck_assert_int_eq(id, 1);
    ck_assert(accept_ratio(&p, &q, 0, 0.5, 0.5, &id));
}
END_TEST

/* Second ids of 20 000 samples of a model, with drafts and without: as two draws from one distribution. */
static void second_ids(struct forge_engine *e, enum forge_draft_accept accept, uint64_t seed, int *counts, int n_vocab)
{
    for (uint64_t i = 0; i < N_DRAWS / 1000; i++) {
        struct forge_request_params p = request_params("The", 2);
        p.n_samples = 1000;
        p.draft_n = 1;
        p.draft_accept = accept;
        p.sampling.temp = 1.6;
        p.sampling.top_k = 12;
        p.sampling.seed = seed + i;
        p.sampling.has_seed = 1;
        p.ignore_eos = 1;
        struct forge_request *r = generate(e, &p);
        for (int s = 0; s < 1000; s++) {
            size_t n;
            const int32_t *ids = forge_request_ids(r, s, &n);
            ck_assert_uint_eq(n, 2);
            ck_assert_int_lt(ids[1], n_vocab);
            counts[ids[1]]++;
        }
        forge_request_free(r);
    }
}

/* Distance of two empirical distributions, half the sum of differences. */
static double distance(const int *a, const int *b, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += abs(a[i] - b[i]);
    return sum / (2.0 * N_DRAWS);
}

START_TEST(ratio_in_the_engine)
{
    struct forge_engine_params ep = drafting(TINY, DRAFT, 1), lp = drafting(TINY, NULL, 1);
    ep.max_seqs = lp.max_seqs = 64;
    ep.n_ctx = lp.n_ctx = 128; /* the rows of a step, too */
    ep.page_size = lp.page_size = 4;
    struct forge_engine *e = engine_with(&ep), *f = engine_with(&lp);
    int n_vocab = (int)forge_engine_info(e)->n_vocab;
    int *counts = calloc((size_t)n_vocab * 3, sizeof *counts);
    ck_assert_ptr_nonnull(counts);
    second_ids(f, FORGE_DRAFT_SAME, 1000, counts, n_vocab);
    second_ids(f, FORGE_DRAFT_SAME, 2000, counts + n_vocab, n_vocab);
    second_ids(e, FORGE_DRAFT_RATIO, 3000, counts + 2 * n_vocab, n_vocab);
    const struct forge_engine_stats *s = forge_engine_stats(e);
    test_that(s->accepted_tokens > 1000 && s->drafted_tokens - s->accepted_tokens > 500, "%d of %d accepted", (int)s->accepted_tokens,
              (int)s->drafted_tokens);
    double chance = distance(counts, counts + n_vocab, n_vocab), got = distance(counts, counts + 2 * n_vocab, n_vocab);
    test_that(got < 1.5 * chance, "%g apart, and %g by chance", got, chance);
    free(counts);
    forge_engine_close(e);
    forge_engine_close(f);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("spec");
    TCase *t = tcase_create("spec");
    tcase_set_timeout(t, 600);
    tcase_add_loop_test(t, counts_are_as_expected, 0, 2);
    tcase_add_loop_test(t, text_is_the_same, 0, (int)(sizeof ways / sizeof *ways));
    tcase_add_test(t, contexts_end);
    tcase_add_test(t, grammars_hold);
    tcase_add_test(t, drafting_goes_on);
    tcase_add_test(t, what_is_refused);
    tcase_add_loop_test(t, ratio_has_the_distribution, 0, (int)(sizeof pairs / sizeof *pairs));
    tcase_add_test(t, ratio_accepts_what_may_come);
    tcase_add_test(t, ratio_in_the_engine);
    suite_add_tcase(s, t);
    return test_main(s);
}
