/* Many requests at once: whatever runs beside a request, in whatever order it was
 * submitted, cut into whatever steps, with however few pages: ids, text and
 * log-probabilities are bit for bit those of the request alone; nothing is lost,
 * nothing is told twice, and pages and requests balance in the end.
 *
 * FORGE_TEST_MIXES is the number of random mixes (default 12), FORGE_TEST_REQUESTS that of short requests (10000).  OpenCL hangs in a child of a process that has
 * touched it: main touches none. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "run/engine.h"
#include "tests/engine_kit.h"

#define QWEN "golden/models/qwen3"

/* ---- requests, and what they give alone ---- */

enum { N_KINDS = 10, IDS_MAX = 80, TOLD_MAX = 256 };

struct kind {
    int32_t prompt[IDS_MAX];
    struct forge_request_params p;
};

enum { SAMPLES = 4 };

struct told { /* by pieces */
    struct { /* samples run beside each other */
        int32_t ids[TOLD_MAX];
        size_t n, n_text;
        char text[2048];
    } s[SAMPLES];
    size_t n_last;
};

struct result {
    struct told told;
    enum forge_finish finish;
    struct forge_logprob best[TOLD_MAX];
    size_t n_best;
};

static const struct place { const char *model, *device; enum forge_math math; } places[] = {
    {QWEN, "cpu", FORGE_MATH_EXACT}, {"golden/models/gemma3", "cpu", FORGE_MATH_EXACT},
    {"golden/models/mistral", "cpu", FORGE_MATH_EXACT}, {"golden/models/qwen3-moe", "cpu", FORGE_MATH_EXACT},
    {TINY, "cpu", FORGE_MATH_EXACT}, {QWEN, "cpu,cpu", FORGE_MATH_EXACT}, {QWEN, "ref", FORGE_MATH_EXACT},
    {"golden/models/gemma3", "ref", FORGE_MATH_EXACT}, {TINY, "opencl:cpu", FORGE_MATH_EXACT},
    {"golden/models/gemma3", "opencl:cpu", FORGE_MATH_EXACT}, {"golden/containers/gguf/qwen3-q4_0.gguf", "cpu", FORGE_MATH_FAST},
    {TINY, "cpu", FORGE_MATH_FAST},
};
enum { N_PLACES = sizeof places / sizeof *places };

static unsigned next_random(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(*state >> 33);
}

/* Prompts from one id to more than a chunk, greedy and sampled, with all that a request can ask for. */
static void make_kind(struct kind *k, int i, int n_vocab)
{
    static const int lengths[N_KINDS] = {1, 5, 70, 17, 64, 3, 33, 2, 48, 9}, news[N_KINDS] = {70, 1, 50, 20, 3, 60, 0, 16, 40, 28};
    uint64_t state = (uint64_t)i * 77 + 5;
    k->p = request_params(NULL, news[i]);
    for (int j = 0; j < lengths[i]; j++)
        k->prompt[j] = 3 + (int32_t)(next_random(&state) % (unsigned)(n_vocab - 3));
    k->p.ids = k->prompt;
    k->p.n_ids = (size_t)lengths[i];
    k->p.ignore_eos = i % 3 != 0;
    k->p.n_logprobs = i % 4 == 3 ? 2 : -1;
    k->p.n_samples = i == 3 || i == 7 ? 3 : i == 9 ? SAMPLES : 1;
    k->p.sampling.temp = i % 2 ? 0.9 : 0;
    k->p.sampling.top_k = i == 5 ? 20 : 0;
    k->p.sampling.repeat_penalty = i == 9 ? 1.3 : 1;
    k->p.sampling.seed = (uint64_t)i + 100;
    k->p.sampling.has_seed = 1;
}

static int take(void *user, const struct forge_piece *p)
{
    struct told *t = user;
    ck_assert_int_lt(p->sample, SAMPLES);
    size_t *n = &t->s[p->sample].n, *n_text = &t->s[p->sample].n_text;
    ck_assert_uint_le(*n + p->n_ids, TOLD_MAX);
    ck_assert_uint_lt(*n_text + p->text_len, sizeof t->s[0].text);
    for (size_t i = 0; i < p->n_ids; i++)
        t->s[p->sample].ids[(*n)++] = p->ids[i];
    memcpy(t->s[p->sample].text + *n_text, p->text, p->text_len);
    *n_text += p->text_len;
    t->n_last += p->finish != FORGE_FINISH_NONE;
    return 0;
}

static void take_best(struct result *out, const struct forge_request *r)
{
    size_t n;
    const struct forge_logprob *row;
    out->finish = forge_request_finish(r, 0);
    for (int i = 1; i < SAMPLES; i++)
        if (forge_request_finish(r, i) == FORGE_FINISH_CANCELLED)
            out->finish = FORGE_FINISH_CANCELLED;
    for (size_t i = 0; (row = forge_request_logprobs(r, 0, i, &n)) != NULL; i++)
        for (size_t k = 0; k < n && out->n_best < TOLD_MAX; k++)
            out->best[out->n_best++] = row[k];
}

static void same(const struct result *a, const struct result *want, const char *what, int i)
{
    const struct told *t = &a->told, *w = &want->told;
    for (int k = 0; k < SAMPLES; k++) {
        size_t n = t->s[k].n, n_text = t->s[k].n_text;
        test_that(n == w->s[k].n && memcmp(t->s[k].ids, w->s[k].ids, n * sizeof(int32_t)) == 0,
                  "%s: request %d, sample %d has other ids", what, i, k);
        test_that(n_text == w->s[k].n_text && memcmp(t->s[k].text, w->s[k].text, n_text) == 0,
                  "%s: request %d, sample %d has another text", what, i, k);
    }
    test_that(a->finish == want->finish && t->n_last == w->n_last, "%s: request %d ends otherwise", what, i);
    test_that(a->n_best == want->n_best && memcmp(a->best, want->best, a->n_best * sizeof *a->best) == 0,
              "%s: request %d has other log-probabilities", what, i);
}

static struct forge_engine_params small_params(const char *model, const char *device, enum forge_math math)
{
    struct forge_engine_params p = engine_params(model);
    p.device = device;
    p.math = math;
    p.deterministic = 1;
    p.n_ctx = 128;
    return p;
}

/* NULL after a skip: there is no such device. */
static struct forge_engine *open_or_skip(const struct forge_engine_params *p)
{
    struct forge_engine *e;
    struct forge_error err = {0};
    if (strncmp(p->device, "opencl", 6) != 0)
        return engine_with(p);
    if (forge_engine_open(&e, p, &err) == 0)
        return e;
    ck_assert_msg(err.code == FORGE_ERR_DEVICE || err.code == FORGE_ERR_UNSUPPORTED || err.code == FORGE_ERR_ARG, "%s", err.message);
    test_skip(err.message);
    return NULL;
}

/* Each kind alone, on an engine for one sequence. */
static bool alone(struct kind *kinds, struct result *want, const struct place *at)
{
    struct forge_engine_params ep = small_params(at->model, at->device, at->math);
    ep.no_prefix_cache = 1;
    struct forge_engine *e = open_or_skip(&ep);
    if (!e)
        return false;
    for (int i = 0; i < N_KINDS; i++) {
        make_kind(&kinds[i], i, (int)forge_engine_info(e)->n_vocab);
        want[i] = (struct result){0};
        kinds[i].p.on_piece = take;
        kinds[i].p.user = &want[i].told;
        struct forge_request *r = generate(e, &kinds[i].p);
        take_best(&want[i], r);
        forge_request_free(r);
    }
    forge_engine_close(e);
    return true;
}

static void balanced(const struct forge_engine *e)
{
    const struct forge_engine_stats *s = forge_engine_stats(e);
    ck_assert_int_eq(s->running, 0);
    ck_assert_uint_eq(s->queued, 0);
    ck_assert_uint_eq(s->pages_held, 0);
    ck_assert_uint_eq(s->positions, 0);
}

/* ---- together ---- */


static const struct setting {
    int max_seqs, chunk, page, turn; /* turn: the order of submits begins there */
    double seqs;                     /* of n_ctx that the pages hold; 0 = all */
    int draft;                       /* ids drafted; by the model itself where it is above 4 */
} settings[] = {
    {1, 512, 64, 3, 0, 0}, {10, 512, 64, 0, 0, 0}, {4, 64, 16, 7, 0, 3}, {10, 1, 1, 5, 0, 0}, {3, 7, 0, 2, 0, 0}, {8, 16, 8, 9, 1.4, 2},
    {10, 64, 4, 4, 1, 0}, {6, 64, 8, 1, 1.6, 6},
};

static uint64_t kv_for(const struct forge_engine_params *p, double seqs)
{
    struct forge_engine_params one = *p;
    one.max_seqs = 1;
    struct forge_engine *e = engine_with(&one);
    uint64_t bytes = forge_engine_info(e)->kv_bytes;
    forge_engine_close(e);
    return (uint64_t)((double)bytes * seqs) + 1;
}

static uint64_t n_preempted, n_cached, n_accepted;

static void run_together(const struct kind *kinds, const struct result *want, const struct setting *s, int place)
{
    struct forge_engine_params ep = small_params(places[place].model, places[place].device, places[place].math);
    struct forge_request *r[N_KINDS];
    static struct result got[N_KINDS];
    char what[200];
    ep.max_seqs = s->max_seqs;
    ep.chunk = s->chunk;
    ep.page_size = s->page;
    ep.kv_mem = s->seqs > 0 ? kv_for(&ep, s->seqs) : 0;
    ep.draft_max = s->draft;
    ep.draft_model = s->draft > 4 ? ep.model : NULL;
    snprintf(what, sizeof what, "%s on %s, %d at once, chunk %d, page %d", ep.model, ep.device, s->max_seqs, s->chunk, s->page);
    struct forge_engine *e = engine_with(&ep);
    for (int k = 0; k < N_KINDS; k++) {
        int i = (k + s->turn) % N_KINDS;
        struct forge_request_params p = kinds[i].p;
        got[i] = (struct result){0};
        p.user = &got[i].told;
        ck_assert_int_eq(forge_submit(e, &p, &r[i], NULL), 0);
    }
    int most = 0;
    while (forge_step(e, NULL) > 0)
        most = forge_engine_stats(e)->running > most ? forge_engine_stats(e)->running : most;
    test_that(s->seqs > 0 || most >= (s->max_seqs < N_KINDS ? s->max_seqs : N_KINDS) - 1, "%s: only %d ran together", what, most);
    for (int i = 0; i < N_KINDS; i++) {
        take_best(&got[i], r[i]);
        same(&got[i], &want[i], what, i);
    }
    n_preempted += forge_engine_stats(e)->preempted;
    for (int i = 0; i < N_KINDS; i++)
        forge_request_free(r[i]);
    balanced(e);
    forge_engine_close(e);
}

START_TEST(together_as_alone)
{
    static struct kind kinds[N_KINDS];
    static struct result want[N_KINDS];
    bool slow = strncmp(places[_i].device, "opencl", 6) == 0; /* some of the settings */
    if (!alone(kinds, want, &places[_i]))
        return;
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
        if (!slow || i == 1 || i >= 5)
            run_together(kinds, want, &settings[i], _i);
    test_that(n_preempted > 0 || strstr(places[_i].model, "qwen3") == NULL, "nobody had to give up pages");
}
END_TEST

/* ---- random arrivals, cancels, priorities, few pages ---- */

enum { N_RANDOM = 24, MIXES = 12 };

struct arrival {
    int kind, at, cancel_at; /* steps; cancel_at 0 = never */
    struct forge_request *r;
    struct result got;
};

static void check_arrival(const struct arrival *a, const struct result *want, const char *what)
{
    const struct told *t = &a->got.told;
    if (a->got.finish != FORGE_FINISH_CANCELLED) {
        same(&a->got, &want[a->kind], what, a->kind);
        return;
    }
    test_that(a->cancel_at > 0, "%s: request %d was cancelled by nobody", what, a->kind);
    const struct told *w = &want[a->kind].told;
    for (int k = 0; k < SAMPLES; k++)
        test_that(t->s[k].n <= w->s[k].n && memcmp(t->s[k].ids, w->s[k].ids, t->s[k].n * sizeof(int32_t)) == 0,
                  "%s: request %d, cancelled, has other ids", what, a->kind);
}

static void mix(const struct kind *kinds, const struct result *want, const char *model, uint64_t seed)
{
    static struct arrival a[N_RANDOM];
    static const int chunks[] = {1, 3, 16, 64, 512}, pages[] = {1, 4, 16, 64};
    uint64_t state = seed * 1000003 + 17;
    struct forge_engine_params ep = small_params(model, "cpu", FORGE_MATH_EXACT);
    char what[64];
    ep.max_seqs = 1 + (int)(next_random(&state) % 9);
    ep.chunk = chunks[next_random(&state) % 5];
    ep.page_size = pages[next_random(&state) % 4];
    ep.n_threads = 1 + (int)(next_random(&state) % 2);
    if (next_random(&state) % 2)
        ep.draft_max = 1 + (int)(next_random(&state) % 6);
    if (next_random(&state) % 4 == 0)
        ep.draft_model = ep.model;
    if (next_random(&state) % 3)
        ep.kv_mem = kv_for(&ep, 1 + next_random(&state) % 100 / 50.0);
    struct forge_engine *e = engine_with(&ep);
    for (int i = 0; i < N_RANDOM; i++) {
        a[i] = (struct arrival){.kind = (int)(next_random(&state) % N_KINDS), .at = (int)(next_random(&state) % 60)};
        if (next_random(&state) % 5 == 0)
            a[i].cancel_at = a[i].at + 1 + (int)(next_random(&state) % 40);
    }
    snprintf(what, sizeof what, "mix %d", (int)seed);
    for (int step = 0, more = 1; step < 100 || more; step++) {
        ck_assert_int_lt(step, 20000);
        for (int i = 0; i < N_RANDOM; i++) {
            struct forge_request_params p = kinds[a[i].kind].p;
            p.user = &a[i].got.told;
            p.priority = (int)(next_random(&state) % 3);
            p.draft_n = (int)(next_random(&state) % 5) - 1;
            if (a[i].at == step)
                ck_assert_int_eq(forge_submit(e, &p, &a[i].r, NULL), 0);
            if (a[i].cancel_at > 0 && a[i].cancel_at == step)
                forge_request_cancel(a[i].r);
        }
        more = forge_step(e, NULL);
        ck_assert_int_ge(more, 0);
    }
    n_preempted += forge_engine_stats(e)->preempted;
    n_cached += forge_engine_stats(e)->cached_tokens;
    n_accepted += forge_engine_stats(e)->accepted_tokens;
    for (int i = 0; i < N_RANDOM; i++) {
        take_best(&a[i].got, a[i].r);
        check_arrival(&a[i], want, what);
        forge_request_free(a[i].r);
    }
    ck_assert_uint_eq(forge_engine_stats(e)->finished, N_RANDOM);
    balanced(e);
    forge_engine_close(e);
}

static const char *const mixed[] = {QWEN, "golden/models/gemma3"};

START_TEST(random_mixes)
{
    static struct kind kinds[N_KINDS];
    static struct result want[N_KINDS];
    const char *given = getenv("FORGE_TEST_MIXES");
    int n = given ? (int)strtol(given, NULL, 10) : MIXES;
    alone(kinds, want, &(struct place){mixed[_i], "cpu", FORGE_MATH_EXACT});
    for (int i = 0; i < n; i++)
        mix(kinds, want, mixed[_i], (uint64_t)(i + _i * 1000));
    test_that(n < MIXES || (n_preempted > 0 && n_cached > 0 && n_accepted > 0), "in %d mixes %d gave up pages, %d ids were kept, %d accepted",
              n, (int)n_preempted, (int)n_cached, (int)n_accepted); /* few may have none */
}
END_TEST

/* ---- fairness, cancelling, errors of one ---- */

static struct forge_request *submit(struct forge_engine *e, const struct forge_request_params *p)
{
    struct forge_request *r;
    struct forge_error err = {0};
    ck_assert_msg(forge_submit(e, p, &r, &err) == 0, "%s", err.message);
    return r;
}

static size_t n_new(const struct forge_request *r)
{
    size_t n;
    forge_request_ids(r, 0, &n);
    return n;
}

/* While a long prompt goes in, piece by piece, the others get an id in every step; cancelled, it is gone at the next. */
START_TEST(a_long_prompt_stops_nobody)
{
    struct forge_engine_params ep = small_params(QWEN, "cpu", FORGE_MATH_EXACT);
    struct kind k;
    ep.max_seqs = 3;
    ep.chunk = 8;
    struct forge_engine *e = engine_with(&ep);
    struct forge_request_params p = request_params("a b", 60);
    p.ignore_eos = 1;
    struct forge_request *a = submit(e, &p), *b = submit(e, &p);
    while (n_new(b) < 2)
        forge_step(e, NULL);
    make_kind(&k, 2, 100);
    struct forge_request *late = submit(e, &k.p);
    int steps = 0;
    for (; n_new(late) == 0; steps++) {
        size_t before_a = n_new(a), before_b = n_new(b);
        forge_step(e, NULL);
        test_that(n_new(a) == before_a + 1 && n_new(b) == before_b + 1, "step %d: somebody had to wait", steps);
    }
    ck_assert_int_ge(steps, 70 / 6); /* six rows of a chunk of eight are the prompt's */
    ck_assert_int_le(steps, 70 / 6 + 1);
    forge_request_free(late);
    late = submit(e, &k.p);
    forge_step(e, NULL);
    ck_assert_int_eq(forge_engine_stats(e)->running, 3);
    forge_request_cancel(late);
    forge_step(e, NULL);
    ck_assert_int_eq(forge_engine_stats(e)->running, 2);
    ck_assert_int_eq(forge_request_finish(late, 0), FORGE_FINISH_CANCELLED);
    forge_request_free(a); /* while they run */
    forge_request_free(b);
    forge_request_free(late);
    ck_assert_int_eq(forge_step(e, NULL), 0);
    balanced(e);
    forge_engine_close(e);
}
END_TEST

/* Where a step has fewer rows than there are requests, each gets its turn. */
START_TEST(short_steps_take_turns)
{
    static const struct { int n, chunk; } mixes[] = {{5, 2}, {9, 2}, {13, 3}, {13, 4}, {4, 3}};
    struct forge_engine_params ep = small_params(QWEN, "cpu", FORGE_MATH_EXACT);
    struct forge_request *r[13];
    struct forge_request_params p = request_params("a b", 60);
    p.ignore_eos = 1;
    for (size_t m = 0; m < sizeof mixes / sizeof *mixes; m++) {
        int n = mixes[m].n;
        ep.max_seqs = n;
        struct forge_engine *e = engine_with(&ep);
        for (int i = 0; i < n; i++)
            r[i] = submit(e, &p);
        while (n_new(r[n - 1]) < 2)
            forge_step(e, NULL);
        size_t before[13], turns = 8;
        for (int i = 0; i < n; i++)
            before[i] = n_new(r[i]);
        e->shrunk = true; /* as after a device's failure */
        e->l.chunk = mixes[m].chunk;
        for (size_t step = 0; step < turns * (size_t)n / (size_t)mixes[m].chunk; step++)
            forge_step(e, NULL);
        for (int i = 0; i < n; i++)
            test_that(n_new(r[i]) - before[i] + 1 >= turns && n_new(r[i]) - before[i] <= turns + 1,
                      "%d by %d: request %d has %zu new ids of %zu", n, mixes[m].chunk, i, n_new(r[i]) - before[i], turns);
        for (int i = 0; i < n; i++)
            forge_request_free(r[i]);
        forge_engine_close(e);
    }
}
END_TEST

/* One that fails by itself takes nobody with it. */
START_TEST(an_error_is_its_own)
{
    struct forge_engine_params ep = small_params(QWEN, "cpu", FORGE_MATH_EXACT);
    struct forge_logit_bias bias[640];
    ep.max_seqs = 3;
    struct forge_engine *e = engine_with(&ep);
    for (int i = 0; i < 640; i++)
        bias[i] = (struct forge_logit_bias){i, -INFINITY};
    struct forge_request_params p = request_params("x", 6), bad = p;
    p.ignore_eos = 1;
    bad.sampling.bias = bias;
    bad.sampling.n_bias = 640;
    struct forge_request *a = submit(e, &p), *b = submit(e, &bad), *c = submit(e, &p), *one = NULL;
    while (forge_step(e, NULL) > 0)
        ;
    ck_assert_int_eq(forge_request_finish(b, 0), FORGE_FINISH_ERROR);
    ck_assert_int_eq(forge_request_error(b)->code, FORGE_ERR_NUMERIC);
    ck_assert_int_eq(forge_request_error(a)->code, 0);
    one = generate(e, &p);
    ck_assert_str_eq(text_of(a), text_of(one));
    ck_assert_str_eq(text_of(c), text_of(one));
    forge_request_free(a);
    forge_request_free(b);
    forge_request_free(c);
    forge_request_free(one);
    balanced(e);
    forge_engine_close(e);
}
END_TEST

struct chain {
    struct forge_engine *e;
    struct forge_request *r[8], *victim;
    int n;
};

/* Submits another one, and frees somebody else who is in the same step. */
static int chain_piece(void *user, const struct forge_piece *p)
{
    struct chain *c = user;
    struct forge_request_params q = request_params("One", 2);
    if (c->n < 8 && p->n_ids > 0)
        c->r[c->n++] = submit(c->e, &q);
    forge_request_free(c->victim);
    c->victim = NULL;
    return 0;
}

START_TEST(callbacks_in_a_step_of_many)
{
    struct forge_engine_params ep = small_params(QWEN, "cpu", FORGE_MATH_EXACT);
    ep.max_seqs = 4;
    struct forge_engine *e = engine_with(&ep);
    struct chain c = {.e = e};
    struct forge_request_params p = request_params("Monday", 12), other = request_params("One", 30);
    p.ignore_eos = other.ignore_eos = 1;
    p.on_piece = chain_piece;
    p.user = &c;
    struct forge_request *r = submit(e, &p);
    c.victim = submit(e, &other);
    for (int i = 0; forge_step(e, NULL) > 0; i++)
        ck_assert_int_lt(i, 200);
    ck_assert_ptr_null(c.victim);
    ck_assert_uint_eq(n_new(r), 12);
    ck_assert_int_ge(c.n, 1);
    for (int i = 0; i < c.n; i++) {
        ck_assert_int_ne(forge_request_finish(c.r[i], 0), FORGE_FINISH_NONE);
        forge_request_free(c.r[i]);
    }
    forge_request_free(r);
    balanced(e);
    forge_engine_close(e);
}
END_TEST

/* ---- prefixes ---- */

static struct forge_request *run_ids(struct forge_engine *e, const int32_t *ids, size_t n, int n_new_ids)
{
    struct forge_request_params p = request_params(NULL, n_new_ids);
    p.ids = ids;
    p.n_ids = n;
    p.ignore_eos = 1;
    p.n_logprobs = 1;
    return generate(e, &p);
}

static void equal(const struct forge_request *a, const struct forge_request *b, const char *what)
{
    struct result x = {0}, y = {0};
    size_t n;
    const int32_t *ids = forge_request_ids(b, 0, &n);
    ids_equal(a, ids, n, what);
    take_best(&x, a);
    take_best(&y, b);
    same(&x, &y, what, 0);
}

static uint64_t cached(const struct forge_request *r)
{
    return forge_request_metrics(r)->cached_tokens;
}

static const struct { const char *model; int page; bool window; } kept[] = {
    {QWEN, 4, false}, {QWEN, 16, false}, {"golden/models/gemma3", 4, true}, {"golden/models/mistral", 8, true},
    {"golden/models/qwen3-moe", 16, false},
};

/* The same prompt, one that goes on after the answer, one that begins like it, one that only ends like it: what was
 * there is taken, page by page, and nothing changes by it. */
START_TEST(prefixes_are_reused)
{
    struct forge_engine_params ep = small_params(kept[_i].model, "cpu", FORGE_MATH_EXACT);
    int32_t ids[100], longer[100];
    size_t n;
    int page = kept[_i].page;
    ep.page_size = page;
    ep.chunk = 8;
    ep.max_seqs = 3;
    struct forge_engine *e = engine_with(&ep);
    ep.no_prefix_cache = 1;
    struct forge_engine *plain = engine_with(&ep);
    for (int i = 0; i < 100; i++)
        ids[i] = 3 + (i * 37) % 90;
    struct forge_request *r = run_ids(e, ids, 48, 9), *want = run_ids(plain, ids, 48, 9);
    equal(r, want, "the first");
    ck_assert_uint_eq(cached(r), 0);
    ck_assert_uint_eq(cached(want), 0);
    const int32_t *answer = forge_request_ids(r, 0, &n);
    memcpy(longer, ids, 48 * sizeof *ids);
    memcpy(longer + 48, answer, n * sizeof *ids);
    for (int i = 57; i < 80; i++)
        longer[i] = 4;
    forge_request_free(r);
    forge_request_free(want);
    r = run_ids(e, longer, 80, 5), want = run_ids(plain, longer, 80, 5);
    equal(r, want, "one that goes on");
    ck_assert_uint_eq(cached(r), (uint64_t)(56 / page * page)); /* the answer's last id had not been stored */
    forge_request_free(r);
    forge_request_free(want);
    r = run_ids(e, ids, 48, 9), want = run_ids(plain, ids, 48, 9);
    equal(r, want, "the same again");
    test_that(kept[_i].window || cached(r) == (uint64_t)(47 / page * page), "the same again: %d", (int)cached(r));
    forge_request_free(r);
    forge_request_free(want);
    ids[page * 2] = 5; /* the third page is another, and all that follow */
    r = run_ids(e, ids, 70, 4), want = run_ids(plain, ids, 70, 4);
    equal(r, want, "one that begins alike");
    test_that(kept[_i].window ? cached(r) <= (uint64_t)(page * 2) : cached(r) == (uint64_t)(page * 2), "%d", (int)cached(r));
    forge_request_free(r);
    forge_request_free(want);
    r = run_ids(e, ids + page, 40, 4), want = run_ids(plain, ids + page, 40, 4); /* its first page is a second one there */
    equal(r, want, "one whose pages are elsewhere");
    ck_assert_uint_eq(cached(r), 0);
    forge_request_free(r);
    forge_request_free(want);
    balanced(e);
    ck_assert_uint_gt(forge_engine_stats(e)->pages_kept, 0);
    ck_assert_uint_eq(forge_engine_stats(plain)->pages_kept, 0);
    forge_engine_close(e);
    forge_engine_close(plain);
}
END_TEST

/* ---- samples ---- */

/* The prompt is computed once, its pages are held by all samples, and each gives what it gives alone: the draws of
 * (seed, sample), which a greedy one does not need. */
START_TEST(samples_share_the_prompt)
{
    static const int n_prompt[] = {37, 48, 1}; /* inside a page, at the end of one, less than one */
    struct forge_engine_params ep = small_params(kept[_i].model, "cpu", FORGE_MATH_EXACT);
    int32_t ids[48];
    ep.page_size = 16;
    ep.max_seqs = 6;
    ep.no_prefix_cache = 1;
    struct forge_engine *e = engine_with(&ep);
    for (int i = 0; i < 48; i++)
        ids[i] = 3 + (i * 29) % 90;
    for (int i = 0; i < 6; i++) {
        struct result many = {0};
        struct forge_request_params p = request_params(NULL, 20);
        p.ids = ids;
        p.n_ids = (size_t)n_prompt[i / 2];
        p.ignore_eos = 1;
        p.n_samples = SAMPLES;
        p.n_logprobs = i == 3 ? 2 : -1;
        p.sampling.temp = i % 2 ? 1.1 : 0;
        p.sampling.seed = 5;
        p.sampling.has_seed = 1;
        p.on_piece = take;
        p.user = &many.told;
        uint64_t before = forge_engine_stats(e)->rows, steps = forge_engine_stats(e)->steps;
        struct forge_request *r = generate(e, &p);
        ck_assert_uint_eq(forge_engine_stats(e)->rows - before, (uint64_t)n_prompt[i / 2] + SAMPLES * 19);
        ck_assert_uint_le(forge_engine_stats(e)->steps - steps, 22);
        for (int k = 1; k < SAMPLES; k++) {
            bool alike = memcmp(many.told.s[0].ids, many.told.s[k].ids, 20 * sizeof(int32_t)) == 0;
            test_that(alike == (i % 2 == 0), "%d: samples 0 and %d are %s", i, k, alike ? "alike" : "not alike");
        }
        forge_request_free(r);
        struct forge_engine_params one = ep;
        struct result alone_one = {0};
        one.max_seqs = 1; /* one after the other */
        struct forge_engine *f = engine_with(&one);
        p.user = &alone_one.told;
        forge_request_free(generate(f, &p));
        many.n_best = alone_one.n_best;
        same(&many, &alone_one, "samples", i);
        ck_assert_uint_le(forge_engine_stats(f)->rows, (uint64_t)n_prompt[i / 2] * (kept[_i].window ? 4 : 1) + SAMPLES * 20 + 48);
        forge_engine_close(f);
    }
    balanced(e);
    forge_engine_close(e);
}
END_TEST

/* ---- thousands ---- */

enum { N_LIVE = 64 };

struct live {
    struct forge_request *r;
    int born, cancel_at;
};

static void submit_short(struct forge_engine *e, struct live *l, int step, uint64_t *state)
{
    int32_t ids[24];
    struct forge_request_params p = request_params(NULL, next_random(state) % 6 ? 1 + (int)(next_random(state) % 12) : 36);
    p.ids = ids;
    p.n_ids = 1 + next_random(state) % 24;
    for (size_t i = 0; i < p.n_ids; i++)
        ids[i] = 3 + (int32_t)(next_random(state) % (i < 8 ? 2 : 90)); /* some begin alike */
    p.ignore_eos = 1;
    p.n_samples = next_random(state) % 8 ? 1 : 1 + (int)(next_random(state) % 5);
    p.priority = next_random(state) % 16 == 0;
    p.draft_n = (int)(next_random(state) % 4) - 1;
    p.sampling.temp = next_random(state) % 2 ? 0.7 : 0;
    p.deadline_s = next_random(state) % 10 ? 0 : 1e-4 * (1 + next_random(state) % 200);
    *l = (struct live){.born = step, .cancel_at = next_random(state) % 8 ? 0 : step + (int)(next_random(state) % 30)};
    ck_assert_int_eq(forge_submit(e, &p, &l->r, NULL), 0);
}

static bool ended(const struct forge_request *r)
{
    return r->done;
}

/* Short requests without end, with cancels, deadlines and too few pages: in the end all have ended, nobody has waited for
 * ever, and nothing is held.  FORGE_TEST_REQUESTS is their number. */
START_TEST(thousands_balance)
{
    const char *given = getenv("FORGE_TEST_REQUESTS");
    int n = given ? (int)strtol(given, NULL, 10) : 10000, submitted = 0, done = 0, longest = 0, step = 0;
    int by[FORGE_FINISH_ERROR + 1] = {0};
    uint64_t state = 99;
    struct forge_engine_params ep = small_params(QWEN, "cpu", FORGE_MATH_EXACT);
    struct live live[N_LIVE] = {{0}};
    ep.n_threads = 1;
    ep.n_ctx = 64;
    ep.page_size = 4;
    ep.max_seqs = 12;
    ep.draft_max = 3;
    ep.kv_mem = kv_for(&ep, 3.2);
    struct forge_engine *e = engine_with(&ep);
    for (; done < n; step++) {
        for (int i = 0; i < N_LIVE; i++) {
            struct live *l = &live[i];
            if (!l->r && submitted < n && next_random(&state) % 3 == 0) {
                submit_short(e, l, step, &state);
                submitted++;
            }
            if (l->r && l->cancel_at > 0 && l->cancel_at <= step)
                forge_request_cancel(l->r);
        }
        ck_assert_int_ge(forge_step(e, NULL), 0);
        for (int i = 0; i < N_LIVE; i++) {
            struct live *l = &live[i];
            if (!l->r || !ended(l->r))
                continue;
            longest = step - l->born > longest ? step - l->born : longest;
            by[forge_request_finish(l->r, 0)]++;
            forge_request_free(l->r);
            l->r = NULL;
            done++;
        }
    }
    const struct forge_engine_stats *s = forge_engine_stats(e);
    balanced(e);
    ck_assert_uint_eq(s->finished, (uint64_t)n);
    ck_assert_int_eq(by[FORGE_FINISH_ERROR] + by[FORGE_FINISH_NONE], 0);
    ck_assert_int_gt(by[FORGE_FINISH_CANCELLED], 0);
    ck_assert_int_gt(by[FORGE_FINISH_LENGTH], n / 2);
    ck_assert_uint_gt(s->preempted, 0);
    ck_assert_uint_gt(s->cached_tokens, 0);
    ck_assert_uint_gt(s->accepted_tokens, 0);
    test_that(longest < 2000, "somebody waited for %d steps", longest);
    forge_engine_close(e);
}
END_TEST

/* ---- what is told of it ---- */

START_TEST(figures)
{
    struct forge_engine_params ep = small_params(QWEN, "cpu", FORGE_MATH_EXACT);
    struct forge_request *r[6];
    ep.max_seqs = 2;
    ep.page_size = 64;
    struct forge_engine *e = engine_with(&ep);
    struct forge_request_params p = request_params(NULL, 5);
    const int32_t ids[7] = {3, 4, 5, 6, 7, 8, 9};
    p.ids = ids;
    p.n_ids = 7;
    p.ignore_eos = 1;
    for (int i = 0; i < 6; i++)
        r[i] = submit(e, &p);
    const struct forge_engine_stats *s = forge_engine_stats(e);
    ck_assert_int_eq(forge_step(e, NULL), 1);
    ck_assert_int_eq(s->running, 2);
    ck_assert_uint_eq(s->queued, 4);
    ck_assert_uint_eq(s->positions, 14);
    ck_assert_uint_eq(s->pages_held, 2);
    ck_assert_uint_eq(s->page_size, 64);
    ck_assert_uint_eq(s->stored_positions, 14);
    ck_assert_uint_eq(s->held_positions, 128);
    while (forge_step(e, NULL) > 0)
        ;
    ck_assert_uint_eq(s->finished, 6);
    ck_assert_uint_eq(s->prefill_rows, 6 * 7);
    ck_assert_uint_eq(s->decode_rows, 6 * 4);
    ck_assert_uint_eq(s->rows, 6 * 11);
    ck_assert_uint_eq(s->steps, 3 * 5);
    ck_assert_uint_eq(s->busy_slots, 2 * s->busy_steps);
    ck_assert_uint_eq(s->stored_positions, 3 * 2 * (7 + 8 + 9 + 10));
    ck_assert_uint_eq(s->held_positions, 3 * 4 * 128 /* with the fifth step they end */);
    for (int i = 0; i < 6; i++) {
        const struct forge_metrics *m = forge_request_metrics(r[i]);
        test_that(m->queued_s >= 0 && m->ttft_ms >= m->queued_s * 1e3 && m->prefill_s > 0 && m->decode_s > 0 && m->tpot_ms > 0,
                  "request %d: a figure is missing", i);
        ck_assert_uint_eq(m->output_tokens, 5);
        forge_request_free(r[i]);
    }
    forge_engine_close(e);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("batch");
    TCase *t = tcase_create("batch");
    tcase_set_timeout(t, 600);
    tcase_add_loop_test(t, together_as_alone, 0, N_PLACES);
    tcase_add_loop_test(t, random_mixes, 0, (int)(sizeof mixed / sizeof *mixed));
    tcase_add_test(t, a_long_prompt_stops_nobody);
    tcase_add_test(t, short_steps_take_turns);
    tcase_add_test(t, an_error_is_its_own);
    tcase_add_test(t, callbacks_in_a_step_of_many);
    tcase_add_loop_test(t, prefixes_are_reused, 0, (int)(sizeof kept / sizeof *kept));
    tcase_add_loop_test(t, samples_share_the_prompt, 0, (int)(sizeof kept / sizeof *kept));
    tcase_add_test(t, thousands_balance);
    tcase_add_test(t, figures);
    suite_add_tcase(s, t);
    return test_main(s);
}
