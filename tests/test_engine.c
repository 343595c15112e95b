/* forge.h on real (small) models: the golden ids and texts, pieces, seeds, samples, log-probabilities, stop
 * strings, how requests end, cancelling, order, and every refusal. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <forge.h>

#include "base/map.h"
#include "base/utf8.h"
#include "file/weights.h"
#include "tests/test.h"

#define TINY "../data/forge-tiny"

static struct forge_engine_params engine_params(const char *model)
{
    struct forge_engine_params p;
    forge_engine_params_init(&p, sizeof p);
    p.model = test_path(model);
    p.device = "cpu";
    p.n_threads = 2;
    p.math = FORGE_MATH_EXACT;
    p.kv_type = FORGE_KV_F32;
    return p;
}

static struct forge_engine *engine_with(const struct forge_engine_params *p)
{
    struct forge_engine *e;
    struct forge_error err = {0};
    ck_assert_msg(forge_engine_open(&e, p, &err) == 0, "%s: %s", p->model, err.message);
    return e;
}

static struct forge_engine *engine_of(const char *model)
{
    struct forge_engine_params p = engine_params(model);
    return engine_with(&p);
}

static struct forge_request_params request_params(const char *text, int64_t n)
{
    struct forge_request_params p;
    forge_request_params_init(&p, sizeof p);
    p.text = text;
    p.max_tokens = n;
    return p;
}

static struct forge_request *generate(struct forge_engine *e, const struct forge_request_params *p)
{
    struct forge_request *r;
    struct forge_error err = {0};
    ck_assert_msg(forge_generate(e, p, &r, &err) == 0, "%s", err.message);
    return r;
}

static const char *text_of(const struct forge_request *r)
{
    size_t len;
    return forge_request_text(r, 0, &len);
}

static void ids_equal(const struct forge_request *r, const int32_t *want, size_t n, const char *what)
{
    size_t got;
    const int32_t *ids = forge_request_ids(r, 0, &got);
    ck_assert_msg(got == n, "%s: %zu ids, not %zu", what, got, n);
    for (size_t i = 0; i < n; i++)
        ck_assert_msg(ids[i] == want[i], "%s: id %zu is %d, not %d", what, i, (int)ids[i], (int)want[i]);
}

/* ---- what a callback gathered ---- */

struct gathered {
    struct buf text;
    int32_t ids[1024];
    size_t n_ids, n_pieces;
    enum forge_finish finish;
    int stop_after; /* pieces, 0 = never */
};

static int gather(void *user, const struct forge_piece *p)
{
    struct gathered *g = user;
    ck_assert_int_eq(g->finish, FORGE_FINISH_NONE); /* nothing comes after the last piece */
    ck_assert(utf8_valid(p->text, p->text_len, NULL));
    buf_put(&g->text, p->text, p->text_len);
    memcpy(g->ids + g->n_ids, p->ids, p->n_ids * sizeof *p->ids);
    g->n_ids += p->n_ids;
    g->finish = p->finish;
    return ++g->n_pieces == (size_t)g->stop_after;
}

static struct forge_request *generate_gathered(struct forge_engine *e, struct forge_request_params *p, struct gathered *g)
{
    size_t n;
    *g = (struct gathered){.stop_after = g->stop_after};
    buf_init(&g->text);
    p->on_piece = gather;
    p->user = g;
    struct forge_request *r = generate(e, p);
    ck_assert_str_eq(buf_str(&g->text), text_of(r));
    const int32_t *ids = forge_request_ids(r, 0, &n);
    ck_assert_uint_eq(n, g->n_ids);
    ck_assert(n == 0 || memcmp(ids, g->ids, n * sizeof *ids) == 0);
    ck_assert_int_eq(g->finish, g->stop_after ? FORGE_FINISH_NONE : forge_request_finish(r, 0));
    buf_fini(&g->text);
    return r;
}

/* ---- golden ---- */

static const char *const devices[] = {"cpu", "ref"};

START_TEST(tiny_texts)
{
    cJSON *j = test_json("golden/tiny/expected.json");
    struct forge_engine_params ep = engine_params(TINY);
    ep.device = devices[_i];
    struct forge_engine *e = engine_with(&ep);
    int n_prompts = 0;
    for (const cJSON *c = json_get(j, "prompts")->child; c; c = c->next, n_prompts++) {
        struct gathered g = {0};
        struct forge_request_params p = request_params(NULL, 40);
        size_t n, n_prompt;
        int32_t *want = test_ids(json_get(c, "new_ids"), &n), *prompt = test_ids(json_get(c, "prompt_ids"), &n_prompt);
        const cJSON *stop = json_get(c, "stop_after");
        const char *name = json_get(c, "name")->valuestring;
        p.text = json_get(c, "text")->valuestring;
        p.text_flags = FORGE_TEXT_PARSE_SPECIAL; /* the chats hold their control strings */
        p.keep_special = 1; /* new_text of the thinking chat shows </think> */
        struct forge_request *r = generate_gathered(e, &p, &g);
        size_t got;
        const int32_t *ids = forge_request_prompt_ids(r, &got);
        ck_assert_msg(got == n_prompt && memcmp(ids, prompt, n_prompt * sizeof *ids) == 0, "%s: other prompt ids", name);
        ids_equal(r, want, stop ? (size_t)stop->valueint : 40, name);
        ck_assert_int_eq(forge_request_finish(r, 0), stop ? FORGE_FINISH_EOS : FORGE_FINISH_LENGTH);
        ck_assert_str_eq(text_of(r), json_get(c, "new_text")->valuestring);
        forge_request_free(r);
        free(want);
        free(prompt);
    }
    ck_assert_int_eq(n_prompts, 12);
    forge_engine_close(e);
    cJSON_Delete(j);
}
END_TEST

static const struct { const char *model, *expected; } golden[] = {
    {"golden/models/qwen3", "qwen3"}, {"golden/models/qwen3-untied", "qwen3-untied"},
    {"golden/models/llama", "llama"}, {"golden/models/llama3-rope", "llama3-rope"},
    {"golden/models/llama-sharded", "llama-sharded"}, {"golden/models/smollm", "smollm"},
    {"golden/models/qwen2", "qwen2"}, {"golden/models/mistral", "mistral"},
    {"golden/models/gemma3", "gemma3"}, {"golden/models/phi3", "phi3"},
    {"golden/models/qwen3-moe", "qwen3-moe"}, {"golden/containers/pth/qwen3-book/qwen3-tiny-base.pth", "qwen3"},
    {"golden/containers/pth/llama-hf", "llama"}, {"golden/containers/gguf/qwen3-f32.gguf", "qwen3"},
    {"golden/containers/gguf/llama-f32.gguf", "llama"}, {"golden/containers/gguf/llama3-rope-bf16.gguf", "llama3-rope"},
    {"golden/containers/gguf/qwen3-q4_0.gguf", "gguf-qwen3-q4_0"},
};

START_TEST(golden_ids_and_text)
{
    char name[128];
    snprintf(name, sizeof name, "golden/expected/%s.json", golden[_i].expected);
    cJSON *j = test_json(name);
    struct forge_engine *e = engine_of(golden[_i].model);
    for (const cJSON *c = json_get(j, "prompts")->child; c; c = c->next) {
        struct forge_request_params p = request_params(NULL, 24);
        size_t n;
        int32_t *prompt = test_ids(json_get(c, "ids"), &p.n_ids), *want = test_ids(json_get(c, "greedy"), &n);
        p.ids = prompt;
        p.ignore_eos = 1;
        struct forge_request *r = generate(e, &p);
        ids_equal(r, want, n, golden[_i].model);
        ck_assert_int_eq(forge_request_finish(r, 0), FORGE_FINISH_LENGTH);
        forge_request_free(r);
        free(prompt);
        free(want);
    }
    const cJSON *text = json_get(j, "text");
    if (text) {
        struct gathered g = {0};
        struct forge_request_params p = request_params(json_get(text, "prompt")->valuestring, 24);
        size_t n;
        int32_t *want = test_ids(json_get(text, "greedy"), &n), *ids;
        char *prompt_text;
        struct buf full;
        p.ignore_eos = 1;
        struct forge_request *r = generate_gathered(e, &p, &g);
        ids_equal(r, want, n, golden[_i].model);
        ids = (int32_t *)(uintptr_t)forge_request_prompt_ids(r, &n);
        ck_assert_int_eq(forge_detokenize(e, ids, n, 1, &prompt_text, &n, NULL), 0);
        buf_init(&full);
        buf_put(&full, prompt_text, n);
        buf_puts(&full, text_of(r));
        ck_assert_str_eq(buf_str(&full), json_get(text, "full_text")->valuestring);
        buf_fini(&full);
        forge_free(prompt_text);
        forge_request_free(r);
        free(want);
    }
    forge_engine_close(e);
    cJSON_Delete(j);
}
END_TEST

/* ---- the same text ---- */

static const char PROMPT[] = "Once upon a time";

static struct forge_request_params sampled(uint64_t seed)
{
    struct forge_request_params p = request_params(PROMPT, 40);
    p.sampling.temp = 0.9f;
    p.sampling.top_p = 0.95f;
    p.sampling.seed = seed;
    p.sampling.has_seed = 1;
    return p;
}

START_TEST(same_seed_same_text)
{
    static const struct { int chunk, page, threads; } rows[] = {{512, 64, 2}, {1, 1, 1}, {2, 16, 3}, {512, 0, 1}, {3, 256, 2}};
    char first[4096] = "";
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct forge_engine_params ep = engine_params(TINY);
        ep.chunk = rows[i].chunk;
        ep.page_size = rows[i].page;
        ep.n_threads = rows[i].threads;
        struct forge_engine *e = engine_with(&ep);
        struct forge_request_params p = sampled(42), other = sampled(43), chat = request_params("2 + 3 =", 8);
        struct forge_request *a = generate(e, &p), *b = generate(e, &chat), *c = generate(e, &p), *d = generate(e, &other);
        if (i == 0)
            snprintf(first, sizeof first, "%s", text_of(a));
        ck_assert_str_eq(text_of(a), first);
        ck_assert_str_eq(text_of(c), first); /* after another one */
        ck_assert_str_ne(text_of(d), first);
        ck_assert_uint_eq(forge_request_seed(a), 42);
        forge_request_free(a);
        forge_request_free(b);
        forge_request_free(c);
        forge_request_free(d);
        forge_engine_close(e);
    }
}
END_TEST

START_TEST(fresh_seed_is_reported)
{
    struct forge_engine *e = engine_of(TINY);
    struct forge_request_params p = sampled(0);
    p.sampling.has_seed = 0;
    struct forge_request *a = generate(e, &p), *b = generate(e, &p);
    ck_assert_uint_ne(forge_request_seed(a), forge_request_seed(b));
    p = sampled(forge_request_seed(a));
    struct forge_request *c = generate(e, &p);
    ck_assert_str_eq(text_of(a), text_of(c));
    forge_request_free(a);
    forge_request_free(b);
    forge_request_free(c);
    forge_engine_close(e);
}
END_TEST

/* Samples of one prompt: the first is that of a request for one; the others are the same whether the prompt's
 * KV could be kept (one page) or windows had given it back (pages of 1). */
START_TEST(samples)
{
    static const char *const models[] = {TINY, "golden/models/gemma3", "golden/models/mistral"};
    const int pages[] = {0, 1};
    for (size_t m = 0; m < 3; m++) {
        char texts[3][2048];
        for (size_t i = 0; i < 2; i++) {
            struct forge_engine_params ep = engine_params(models[m]);
            ep.page_size = pages[i];
            ep.chunk = 4;
            struct forge_engine *e = engine_with(&ep);
            struct forge_request_params p = sampled(7), one = sampled(7);
            p.n_samples = 3;
            struct forge_request *r = generate(e, &p), *alone = generate(e, &one);
            for (int k = 0; k < 3; k++) {
                size_t len;
                const char *text = forge_request_text(r, k, &len);
                ck_assert_int_ne(forge_request_finish(r, k), FORGE_FINISH_NONE);
                if (i == 0)
                    snprintf(texts[k], sizeof texts[k], "%s", text);
                ck_assert_str_eq(text, texts[k]);
            }
            ck_assert_str_eq(text_of(alone), texts[0]);
            ck_assert_str_ne(texts[0], texts[1]);
            ck_assert_str_ne(texts[1], texts[2]);
            forge_request_free(r);
            forge_request_free(alone);
            forge_engine_close(e);
        }
    }
}
END_TEST

START_TEST(batch_equals_alone)
{
    static const char *const prompts[] = {"The capital of France is", "Monday, Tuesday,", "Once upon a time"};
    struct forge_engine *e = engine_of(TINY);
    struct forge_request_params p[3];
    struct forge_request *out[3];
    struct forge_error err = {0};
    for (int i = 0; i < 3; i++)
        p[i] = request_params(prompts[i], 12);
    ck_assert_int_eq(forge_generate_batch(e, p, 3, out, &err), 0);
    for (int i = 0; i < 3; i++) {
        struct forge_request *r = generate(e, &p[i]);
        ck_assert_str_eq(text_of(out[i]), text_of(r));
        forge_request_free(r);
        forge_request_free(out[i]);
    }
    p[1].max_tokens = -5;
    ck_assert_int_eq(forge_generate_batch(e, p, 3, out, &err), FORGE_ERR_ARG);
    ck_assert(!out[0] && !out[1] && !out[2]);
    forge_engine_close(e);
}
END_TEST

/* ---- how requests end ---- */

static const struct { size_t n_prompt; int64_t max; size_t n_new; enum forge_finish finish; } ends[] = {
    {60, 10, 4, FORGE_FINISH_CONTEXT}, /* prompt and new ids together fill the context; the last is never stored */
    {60, -1, 4, FORGE_FINISH_CONTEXT},
    {60, 4, 4, FORGE_FINISH_LENGTH},   /* what was asked for was given */
    {60, 3, 3, FORGE_FINISH_LENGTH},
    {63, 5, 1, FORGE_FINISH_CONTEXT},
    {64, 5, 0, FORGE_FINISH_CONTEXT},
    {64, -1, 0, FORGE_FINISH_CONTEXT},
    {64, 0, 0, FORGE_FINISH_LENGTH},
    {5, 0, 0, FORGE_FINISH_LENGTH},
    {1, 2, 2, FORGE_FINISH_LENGTH},
};

START_TEST(length_and_context)
{
    struct forge_engine_params ep = engine_params("golden/models/qwen3");
    ep.n_ctx = 64;
    ep.chunk = 16;
    struct forge_engine *e = engine_with(&ep);
    int32_t ids[65];
    for (int i = 0; i < 65; i++)
        ids[i] = 3 + i;
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++)
        for (int want_logprobs = 0; want_logprobs < 2; want_logprobs++) {
            struct gathered g = {0};
            struct forge_request_params p = request_params(NULL, ends[i].max);
            struct forge_metrics m;
            size_t n;
            p.ids = ids;
            p.n_ids = ends[i].n_prompt;
            p.ignore_eos = 1;
            p.n_logprobs = want_logprobs ? 2 : -1;
            struct forge_request *r = generate_gathered(e, &p, &g);
            forge_request_ids(r, 0, &n);
            ck_assert_msg(n == ends[i].n_new, "row %zu: %zu ids", i, n);
            ck_assert_int_eq(forge_request_finish(r, 0), ends[i].finish);
            forge_request_metrics(r, &m);
            ck_assert_uint_eq(m.input_tokens, ends[i].n_prompt);
            ck_assert_uint_eq(m.output_tokens, n);
            ck_assert_int_eq(m.prefill_s > 0, 1);
            ck_assert_int_eq(m.ttft_ms > 0, n > 0);
            ck_assert_int_eq(m.decode_s > 0, n > 1); /* no pass for an id that is not needed */
            ck_assert_int_eq(m.tpot_ms > 0, n > 1);
            forge_request_free(r);
        }
    struct forge_request_params p = request_params(NULL, 5);
    struct forge_request *r;
    struct forge_error err;
    p.ids = ids;
    p.n_ids = 65;
    ck_assert_int_eq(forge_submit(e, &p, &r, &err), FORGE_ERR_LIMIT);
    ck_assert_ptr_null(r);
    ck_assert_msg(strstr(err.message, "65") && strstr(err.message, "64"), "%s", err.message);
    forge_engine_close(e);
}
END_TEST

static const struct { const char *stops[2]; const char *text; size_t n_ids; enum forge_finish finish; } stop_cases[] = {
    {{" Rome"}, " Paris. The capital of Italy is", 8, FORGE_FINISH_STOP},
    {{"ris. The cap"}, " Pa", 4, FORGE_FINISH_STOP},             /* across tokens, from within one */
    {{" Paris"}, "", 1, FORGE_FINISH_STOP},
    {{"Rome.", "is Ro"}, " Paris. The capital of Italy ", 8, FORGE_FINISH_STOP}, /* the one that is complete first */
    {{" is Rome. Or"}, " Paris. The capital of Italy is Rome. The capital", 11, FORGE_FINISH_LENGTH}, /* held back, released */
    {{" is Rome. The capital of"}, " Paris. The capital of Italy is Rome. The capital", 11, FORGE_FINISH_LENGTH}, /* held at the end */
};

START_TEST(stop_strings)
{
    struct forge_engine *e = engine_of(TINY);
    for (size_t i = 0; i < sizeof stop_cases / sizeof stop_cases[0]; i++) {
        struct gathered g = {0};
        struct forge_request_params p = request_params("The capital of France is", 11);
        size_t n;
        p.stops = stop_cases[i].stops;
        p.n_stops = stop_cases[i].stops[1] ? 2 : 1;
        struct forge_request *r = generate_gathered(e, &p, &g);
        ck_assert_str_eq(text_of(r), stop_cases[i].text);
        forge_request_ids(r, 0, &n);
        ck_assert_msg(n == stop_cases[i].n_ids, "row %zu: %zu ids", i, n);
        ck_assert_int_eq(forge_request_finish(r, 0), stop_cases[i].finish);
        forge_request_free(r);
    }
    forge_engine_close(e);
}
END_TEST

/* The end id as the very first one, with log-probabilities asked for: nothing, and no crash. */
START_TEST(end_at_once)
{
    struct forge_engine *e = engine_of(TINY);
    struct forge_logit_bias bias = {3002, 1000}; /* <|im_end|> */
    struct gathered g = {0};
    struct forge_request_params p = request_params("Hello", 8);
    size_t n;
    p.sampling.bias = &bias;
    p.sampling.n_bias = 1;
    p.n_logprobs = 5;
    struct forge_request *r = generate_gathered(e, &p, &g);
    ck_assert_int_eq(forge_request_finish(r, 0), FORGE_FINISH_EOS);
    ck_assert_str_eq(text_of(r), "");
    forge_request_ids(r, 0, &n);
    ck_assert_uint_eq(n, 0);
    ck_assert_ptr_null(forge_request_logprobs(r, 0, 0, &n));
    ck_assert_uint_eq(n, 0);
    forge_request_free(r);
    p.ignore_eos = 1;
    p.on_piece = NULL;
    r = generate(e, &p);
    forge_request_ids(r, 0, &n);
    ck_assert_uint_eq(n, 8);
    ck_assert_int_eq(forge_request_finish(r, 0), FORGE_FINISH_LENGTH);
    ck_assert_ptr_nonnull(forge_request_logprobs(r, 0, 7, &n));
    forge_request_free(r);
    forge_engine_close(e);
}
END_TEST

START_TEST(logprobs)
{
    cJSON *j = test_json("golden/expected/qwen3.json");
    const cJSON *c = cJSON_GetArrayItem(json_get(j, "prompts"), 2);
    struct npy a;
    test_npy(&a, "golden/expected/qwen3.f64.npy");
    const double *row = a.d + 2 * a.shape[1];
    double max = row[0], sum = 0;
    for (size_t i = 0; i < a.shape[1]; i++)
        max = row[i] > max ? row[i] : max;
    for (size_t i = 0; i < a.shape[1]; i++)
        sum += exp(row[i] - max);
    struct forge_engine *e = engine_of("golden/models/qwen3");
    struct forge_request_params p = request_params(NULL, 3);
    size_t n;
    int32_t *ids = test_ids(json_get(c, "ids"), &p.n_ids);
    p.ids = ids;
    p.n_logprobs = 4;
    p.ignore_eos = 1;
    for (int greedy = 0; greedy < 2; greedy++) { /* settings do not change them: they are of the raw logits */
        p.sampling.temp = greedy ? 0 : 5;
        p.sampling.repeat_penalty = greedy ? 1 : 1.5f;
        p.sampling.has_seed = 1;
        struct forge_request *r = generate(e, &p);
        const int32_t *got = forge_request_ids(r, 0, &n);
        const struct forge_logprob *l = forge_request_logprobs(r, 0, 0, &n);
        ck_assert_uint_eq(n, 5);
        ck_assert_int_eq(l[0].id, got[0]);
        for (size_t i = 0; i < n; i++)
            ck_assert(fabs((double)l[i].logprob - (row[l[i].id] - max - log(sum))) < 1e-3);
        for (size_t i = 2; i < n; i++)
            ck_assert(l[i].logprob <= l[i - 1].logprob && l[i].id != l[i - 1].id);
        ck_assert(row[l[1].id] >= max - 1e-3);
        if (greedy)
            ck_assert_int_eq(l[0].id, l[1].id);
        ck_assert_ptr_null(forge_request_logprobs(r, 0, 3, &n));
        ck_assert_ptr_null(forge_request_logprobs(r, 1, 0, &n));
        forge_request_free(r);
    }
    forge_engine_close(e);
    free(ids);
    test_npy_free(&a);
    cJSON_Delete(j);
}
END_TEST

/* An empty prompt starts from the token that starts a text, or separates texts. */
START_TEST(empty_prompt)
{
    static const struct { const char *model; const char *start; } rows[] = {
        {TINY, "<|endoftext|>"}, {"golden/models/llama", "<s>"}, {"golden/models/gemma3", "<bos>"}};
    for (size_t i = 0; i < 3; i++) {
        struct forge_engine *e = engine_of(rows[i].model);
        int32_t *want;
        size_t n, n_want;
        ck_assert_int_eq(forge_tokenize(e, rows[i].start, strlen(rows[i].start), FORGE_TEXT_NO_BOS | FORGE_TEXT_PARSE_SPECIAL,
                                        &want, &n_want, NULL), 0);
        ck_assert_uint_eq(n_want, 1);
        for (int k = 0; k < 3; k++) {
            struct forge_request_params p = request_params(k == 2 ? NULL : "", 2);
            p.text_flags = k == 1 ? FORGE_TEXT_NO_BOS : 0;
            p.ids = k == 2 ? want : NULL; /* no ids of an array that is there */
            struct forge_request *r = generate(e, &p);
            const int32_t *ids = forge_request_prompt_ids(r, &n);
            ck_assert_uint_eq(n, 1);
            ck_assert_int_eq(ids[0], want[0]);
            forge_request_free(r);
        }
        forge_free(want);
        forge_engine_close(e);
    }
}
END_TEST

/* ---- cancelling, deadlines, order ---- */

static int stop_prefill(void *user, size_t done, size_t total)
{
    size_t *seen = user;
    ck_assert_uint_eq(total, 33);
    *seen = done;
    return done >= 16;
}

START_TEST(cancel_in_prefill)
{
    struct forge_engine_params ep = engine_params("golden/models/qwen3");
    ep.chunk = 8;
    struct forge_engine *e = engine_with(&ep);
    cJSON *j = test_json("golden/expected/qwen3.json");
    const cJSON *c = cJSON_GetArrayItem(json_get(j, "prompts"), 3);
    struct forge_request_params p = request_params(NULL, 24);
    size_t n, seen = 0;
    int32_t *ids = test_ids(json_get(c, "ids"), &p.n_ids), *want = test_ids(json_get(c, "greedy"), &n);
    p.ids = ids;
    p.ignore_eos = 1;
    p.on_prefill = stop_prefill;
    p.user = &seen;
    struct forge_request *r = generate(e, &p);
    ck_assert_int_eq(forge_request_finish(r, 0), FORGE_FINISH_CANCELLED);
    ck_assert_uint_eq(seen, 16);
    forge_request_free(r);
    p.on_prefill = NULL; /* the next one finds a clean cache */
    r = generate(e, &p);
    ids_equal(r, want, n, "after a cancelled prefill");
    forge_request_free(r);
    free(ids);
    free(want);
    cJSON_Delete(j);
    forge_engine_close(e);
}
END_TEST

START_TEST(cancel_in_decode)
{
    struct forge_engine *e = engine_of(TINY);
    struct forge_request_params p = request_params("The capital of France is", 40);
    struct gathered g = {.stop_after = 3};
    struct forge_request *r = generate_gathered(e, &p, &g);
    ck_assert_int_eq(forge_request_finish(r, 0), FORGE_FINISH_CANCELLED);
    ck_assert_str_eq(text_of(r), " Paris. The");
    ck_assert_uint_eq(g.n_pieces, 3); /* a callback that stopped is not called again */
    forge_request_free(r);
    forge_engine_close(e);
}
END_TEST

struct others {
    struct forge_request *victim;
    struct forge_engine *e;
    int step_rc;
    char order[16];
};

static int cancel_other(void *user, const struct forge_piece *p)
{
    struct others *o = user;
    (void)p;
    forge_request_cancel(o->victim);
    o->step_rc = forge_step(o->e, NULL); /* refused: inside a step */
    return 0;
}

START_TEST(cancel_from_another)
{
    struct forge_engine *e = engine_of(TINY);
    struct others o = {.e = e};
    struct forge_request_params p = request_params("Monday, Tuesday,", 8), victim = request_params("One", 8);
    struct forge_request *r;
    int more;
    p.on_piece = cancel_other;
    p.user = &o;
    ck_assert_int_eq(forge_submit(e, &p, &r, NULL), 0);
    ck_assert_int_eq(forge_submit(e, &victim, &o.victim, NULL), 0);
    while ((more = forge_step(e, NULL)) > 0)
        ;
    ck_assert_int_eq(more, 0);
    ck_assert_int_eq(o.step_rc, FORGE_ERR_ARG);
    ck_assert_int_eq(forge_request_finish(r, 0), FORGE_FINISH_LENGTH);
    ck_assert_int_eq(forge_request_finish(o.victim, 0), FORGE_FINISH_CANCELLED);
    forge_request_free(r);
    forge_request_free(o.victim);

    ck_assert_int_eq(forge_submit(e, &p, &r, NULL), 0); /* freed while it runs */
    p.on_piece = NULL;
    ck_assert_int_eq(forge_step(e, NULL), 1);
    forge_request_free(r);
    ck_assert_int_eq(forge_step(e, NULL), 0);
    forge_engine_close(e);
}
END_TEST

static int note_end(void *user, const struct forge_piece *p)
{
    if (p->finish != FORGE_FINISH_NONE) {
        char **at = user;
        *(*at)++ = p->text_len ? 'x' : '.';
    }
    return 0;
}

struct named { struct others *o; char name; };

static int note_name(void *user, const struct forge_piece *p)
{
    struct named *n = user;
    if (p->finish != FORGE_FINISH_NONE)
        strncat(n->o->order, &n->name, 1);
    return 0;
}

START_TEST(priority_then_age)
{
    struct forge_engine *e = engine_of(TINY);
    struct others o = {.e = e};
    const int priorities[] = {0, 0, 5, -1, 5};
    struct named names[5];
    struct forge_request *r[5];
    for (int i = 0; i < 5; i++) {
        struct forge_request_params p = request_params("One", 2);
        names[i] = (struct named){&o, (char)('a' + i)};
        p.priority = priorities[i];
        p.on_piece = note_name;
        p.user = &names[i];
        ck_assert_int_eq(forge_submit(e, &p, &r[i], NULL), 0);
    }
    while (forge_step(e, NULL) > 0)
        ;
    ck_assert_str_eq(o.order, "ceabd");
    for (int i = 0; i < 5; i++)
        forge_request_free(r[i]);
    forge_engine_close(e);
}
END_TEST

START_TEST(deadline)
{
    struct forge_engine *e = engine_of(TINY);
    struct forge_request_params p = request_params("One", 200);
    char ends_seen[4] = "", *at = ends_seen;
    p.deadline_s = 1e-9; /* over before the first step */
    p.n_samples = 2;
    p.on_piece = note_end;
    p.user = &at;
    struct forge_request *r = generate(e, &p);
    ck_assert_int_eq(forge_request_finish(r, 0), FORGE_FINISH_DEADLINE);
    ck_assert_int_eq(forge_request_finish(r, 1), FORGE_FINISH_DEADLINE);
    ck_assert_str_eq(ends_seen, ".."); /* each sample has its last piece */
    forge_request_free(r);
    forge_engine_close(e);
}
END_TEST

/* ---- errors ---- */

static void submit_refused(struct forge_engine *e, const struct forge_request_params *p, int code, const char *word)
{
    struct forge_request *r;
    struct forge_error err = {0};
    ck_assert_int_eq(forge_submit(e, p, &r, &err), code);
    ck_assert_ptr_null(r);
    ck_assert_int_eq(err.code, code);
    ck_assert_msg(strstr(err.message, word) != NULL, "\"%s\" is not in: %s", word, err.message);
    ck_assert_int_eq(forge_submit(e, p, &r, NULL), code);
}

START_TEST(requests_refused)
{
    struct forge_engine *e = engine_of(TINY);
    struct forge_request_params p, good = request_params("x", 2);
    const int32_t bad_id = 3072, below = -1;
    const char *empty = "";
    const struct forge_logit_bias bias = {3072, 1};
#define REFUSED(code, word, ...) do { p = good; __VA_ARGS__; submit_refused(e, &p, code, word); } while (0)
    REFUSED(FORGE_ERR_ARG, "prompt", p.text = NULL);
    REFUSED(FORGE_ERR_ARG, "set up", p.struct_size = 0);
    REFUSED(FORGE_ERR_ARG, "3072", p.ids = &bad_id; p.n_ids = 1);
    REFUSED(FORGE_ERR_ARG, "-1", p.ids = &below; p.n_ids = 1);
    REFUSED(FORGE_ERR_ARG, "max_tokens", p.max_tokens = -2);
    REFUSED(FORGE_ERR_ARG, "n_samples", p.n_samples = 0);
    REFUSED(FORGE_ERR_ARG, "n_logprobs", p.n_logprobs = -2);
    REFUSED(FORGE_ERR_ARG, "n_logprobs", p.n_logprobs = 3073);
    REFUSED(FORGE_ERR_ARG, "deadline", p.deadline_s = -1);
    REFUSED(FORGE_ERR_ARG, "deadline", p.deadline_s = (double)NAN);
    REFUSED(FORGE_ERR_ARG, "text_flags", p.text_flags = 64);
    REFUSED(FORGE_ERR_ARG, "stop string", p.stops = &empty; p.n_stops = 1);
    REFUSED(FORGE_ERR_ARG, "temp", p.sampling.temp = -1);
    REFUSED(FORGE_ERR_ARG, "temp is 0", p.sampling.top_p = 0.5f);
    REFUSED(FORGE_ERR_ARG, "top_k", p.sampling.top_k = -1);
    REFUSED(FORGE_ERR_ARG, "logit bias", p.sampling.bias = &bias; p.sampling.n_bias = 1);
#undef REFUSED
    ck_assert_int_eq(forge_step(e, NULL), 0);
    forge_engine_close(e);
}
END_TEST

START_TEST(engines_refused)
{
    struct forge_engine_params p, good = engine_params(TINY);
    struct forge_engine *e;
    struct forge_error err;
#define REFUSED(want, word, ...) do { \
    p = good; __VA_ARGS__; err = (struct forge_error){0}; \
    ck_assert_int_eq(forge_engine_open(&e, &p, &err), want); ck_assert_ptr_null(e); \
    ck_assert_msg(strstr(err.message, word) != NULL, "\"%s\" is not in: %s", word, err.message); } while (0)
    REFUSED(FORGE_ERR_ARG, "model", p.model = NULL);
    REFUSED(FORGE_ERR_ARG, "set up", p.struct_size = 0);
    REFUSED(FORGE_ERR_IO, "no-such", p.model = "no-such");
    REFUSED(FORGE_ERR_ARG, "n_threads", p.n_threads = -1);
    REFUSED(FORGE_ERR_ARG, "1000000", p.n_ctx = 1000000);
    REFUSED(FORGE_ERR_UNSUPPORTED, "Q8_0", p.kv_type = FORGE_KV_Q8_0);
    REFUSED(FORGE_ERR_ARG, "kv_type", p.kv_type = (enum forge_kv)77);
    REFUSED(FORGE_ERR_ARG, "page size", p.page_size = 257);
    REFUSED(FORGE_ERR_ARG, "chunk", p.chunk = -1);
    REFUSED(FORGE_ERR_ARG, "max_seqs", p.max_seqs = 0);
    REFUSED(FORGE_ERR_LIMIT, "lower --ctx", p.kv_mem = 4096);
    REFUSED(FORGE_ERR_ARG, "warp-drive", p.device = "warp-drive");
#undef REFUSED
    forge_engine_close(NULL);
    forge_request_free(NULL);
    forge_devices_free(NULL);
}
END_TEST

/* A model whose final norm is NaN: greedy and sampled both fail, naming the step; the engine goes on. */
START_TEST(non_finite_logits)
{
    char dir[512], path[1024];
    static const char *const files[] = {"config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors"};
    snprintf(dir, sizeof dir, "%s", test_tmp("nan"));
    ck_assert_int_eq(mkdir(dir, 0700), 0);
    for (size_t i = 0; i < 4; i++) {
        char from[512];
        struct map m;
        snprintf(from, sizeof from, "golden/models/qwen3/%s", files[i]);
        snprintf(path, sizeof path, "%s/%s", dir, files[i]);
        ck_assert_int_eq(map_open(&m, test_path(from), NULL), 0);
        FILE *f = fopen(path, "wb");
        ck_assert_uint_eq(fwrite(m.data, 1, m.size, f), m.size);
        fclose(f);
        map_close(&m);
    }
    struct weights *w;
    ck_assert_int_eq(weights_open(&w, dir, NULL), 0);
    const struct weight *norm = weights_find(w, "model.norm.weight");
    ck_assert_ptr_nonnull(norm);
    FILE *f = fopen(path, "r+b");
    ck_assert_int_eq(fseek(f, (long)norm->offset, SEEK_SET), 0);
    for (size_t i = 0; i < norm->size; i++)
        fputc(0xff, f);
    fclose(f);
    weights_close(w);
    struct forge_engine_params ep = engine_params("x");
    ep.model = dir;
    struct forge_engine *e = engine_with(&ep);
    for (int i = 0; i < 3; i++) {
        struct forge_request_params p = request_params("hello", 4);
        struct forge_request *r;
        struct forge_error err = {0};
        p.sampling.temp = i == 1 ? 0.7f : 0;
        p.n_logprobs = i == 2 ? 1 : -1;
        ck_assert_int_eq(forge_generate(e, &p, &r, &err), FORGE_ERR_NUMERIC);
        ck_assert_msg(strstr(err.message, "non-finite logits at step 1") != NULL, "%s", err.message);
        ck_assert_int_eq(forge_request_finish(r, 0), FORGE_FINISH_ERROR);
        ck_assert_int_eq(forge_request_error(r)->code, FORGE_ERR_NUMERIC);
        forge_request_free(r);
        ck_assert_int_eq(forge_generate(e, &p, NULL, NULL), FORGE_ERR_NUMERIC);
        ck_assert_int_eq(forge_generate_batch(e, &p, 1, &r, &err), FORGE_ERR_NUMERIC);
        forge_request_free(r);
    }
    forge_engine_close(e);
}
END_TEST

START_TEST(every_token_banned)
{
    struct forge_engine *e = engine_of("golden/models/qwen3");
    struct forge_logit_bias bias[640];
    struct forge_error err = {0};
    for (int i = 0; i < 640; i++)
        bias[i] = (struct forge_logit_bias){i, -INFINITY};
    struct forge_request_params p = request_params("x", 4);
    p.sampling.bias = bias;
    p.sampling.n_bias = 640;
    ck_assert_int_eq(forge_generate(e, &p, NULL, &err), FORGE_ERR_NUMERIC);
    ck_assert_msg(strstr(err.message, "no token is left") && strstr(err.message, "step 1"), "%s", err.message);
    forge_engine_close(e);
}
END_TEST

/* ---- what the engine tells ---- */

START_TEST(info_and_placement)
{
    struct forge_engine *e = engine_of(TINY);
    struct forge_engine_info info;
    struct forge_placement rows[32];
    forge_engine_info(e, &info);
    ck_assert_str_eq(info.architecture, "qwen3");
    ck_assert_str_eq(info.format, "safetensors");
    ck_assert_int_eq(info.n_layers, 4);
    ck_assert_int_eq(info.d_model, 256);
    ck_assert_int_eq(info.n_vocab, 3072);
    ck_assert_int_eq(info.n_ctx, info.n_ctx_max < 4096 ? info.n_ctx_max : 4096);
    ck_assert_uint_eq(info.n_params, 3017216);
    ck_assert_uint_eq(info.kv_bytes, (uint64_t)((info.n_ctx + 63) / 64 * 64) * 4 * 2 * 2 * 32 * sizeof(float));
    ck_assert(info.work_bytes > 0 && info.weight_bytes > 6000000 && info.load_s > 0 && info.n_threads == 2);
    ck_assert_ptr_nonnull(strstr(info.device, "cpu"));
    ck_assert(info.device_reason[0]);
    ck_assert_uint_eq(forge_engine_placement(e, NULL, 0), 0); /* nothing ran yet */
    struct forge_request_params p = request_params("One", 3);
    forge_request_free(generate(e, &p));
    size_t n = forge_engine_placement(e, rows, 32);
    bool attention = false;
    ck_assert(n > 4 && n <= 32 && forge_engine_placement(e, rows, 2) == n);
    n = forge_engine_placement(e, rows, 32);
    for (size_t i = 0; i < n; i++) {
        ck_assert(rows[i].calls > 0 && rows[i].device[0]);
        if (strcmp(rows[i].operation, "attention") == 0)
            attention = rows[i].calls == 4 * 3; /* layers x (one prefill chunk and two decode passes) */
    }
    ck_assert(attention);
    forge_engine_close(e);
}
END_TEST

START_TEST(text_and_back)
{
    static const char *const texts[] = {"The capital of France is Paris.", "", "caf\xc3\xa9 \xe6\xbc\xa2 <|im_end|>"};
    struct forge_engine *e = engine_of(TINY);
    for (size_t i = 0; i < 3; i++) {
        int32_t *ids;
        char *text;
        size_t n, len;
        ck_assert_int_eq(forge_tokenize(e, texts[i], strlen(texts[i]), 0, &ids, &n, NULL), 0);
        ck_assert_ptr_nonnull(ids);
        ck_assert_int_eq(forge_detokenize(e, ids, n, 0, &text, &len, NULL), 0);
        ck_assert_uint_eq(len, strlen(texts[i]));
        ck_assert_str_eq(text, texts[i]);
        forge_free(ids);
        forge_free(text);
    }
    forge_engine_close(e);
}
END_TEST

struct lines { int n, debug; };

static void count_line(void *user, enum forge_log_level level, const char *line)
{
    struct lines *l = user;
    ck_assert(line[0]);
    l->n++;
    l->debug += level == FORGE_LOG_DEBUG;
}

static int stop_load(void *user, enum forge_load_phase phase, uint64_t done, uint64_t total)
{
    ck_assert_int_eq(phase, FORGE_LOAD_WEIGHTS);
    ck_assert_uint_le(done, total);
    return ++*(int *)user == 3;
}

START_TEST(log_devices_names)
{
    struct forge_devices *d;
    struct forge_error err = {0};
    struct lines lines = {0};
    bool cpu = false, ref = false;
    ck_assert_int_eq(forge_devices_list(&d, &err), 0);
    for (size_t i = 0; i < forge_devices_count(d); i++) {
        cpu = cpu || strcmp(forge_devices_at(d, i)->selector, "cpu") == 0;
        ref = ref || strcmp(forge_devices_at(d, i)->selector, "ref") == 0;
    }
    ck_assert(cpu && ref);
    ck_assert_ptr_null(forge_devices_at(d, forge_devices_count(d)));
    ck_assert_ptr_null(forge_devices_skipped(d, forge_devices_n_skipped(d)));
    forge_devices_free(d);
    ck_assert_str_eq(forge_finish_name(FORGE_FINISH_EOS), "eos");
    ck_assert_str_eq(forge_finish_name(FORGE_FINISH_ERROR), "error");
    ck_assert_str_eq(forge_finish_name((enum forge_finish)99), "unknown");
    ck_assert_str_eq(forge_version(), "0.1.0");
    ck_assert_int_eq(forge_log_set(count_line, &lines, FORGE_LOG_DEBUG, "kv,nonsense", &err), FORGE_ERR_ARG);
    ck_assert_msg(strstr(err.message, "nonsense") != NULL, "%s", err.message);
    ck_assert_int_eq(forge_log_set(count_line, &lines, FORGE_LOG_DEBUG, "kv,sched", &err), 0);
    struct forge_engine *e = engine_of(TINY);
    struct forge_request_params p = request_params("One", 1);
    forge_request_free(generate(e, &p));
    ck_assert_int_ge(lines.debug, 2);
    ck_assert_int_eq(forge_log_set(NULL, NULL, FORGE_LOG_ERROR, NULL, NULL), 0);
    int n = lines.n, calls = 0;
    forge_request_free(generate(e, &p));
    ck_assert_int_eq(lines.n, n);
    forge_engine_close(e);
    struct forge_engine_params ep = engine_params(TINY);
    ep.on_load = stop_load;
    ep.user = &calls;
    ck_assert_int_eq(forge_engine_open(&e, &ep, &err), FORGE_ERR_CANCELLED);
    ck_assert_int_eq(calls, 3);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("engine");
    TCase *t = tcase_create("engine");
    tcase_add_loop_test(t, tiny_texts, 0, 2);
    tcase_add_loop_test(t, golden_ids_and_text, 0, (int)(sizeof golden / sizeof golden[0]));
    tcase_add_test(t, same_seed_same_text);
    tcase_add_test(t, fresh_seed_is_reported);
    tcase_add_test(t, samples);
    tcase_add_test(t, batch_equals_alone);
    tcase_add_test(t, length_and_context);
    tcase_add_test(t, stop_strings);
    tcase_add_test(t, end_at_once);
    tcase_add_test(t, logprobs);
    tcase_add_test(t, empty_prompt);
    tcase_add_test(t, cancel_in_prefill);
    tcase_add_test(t, cancel_in_decode);
    tcase_add_test(t, cancel_from_another);
    tcase_add_test(t, priority_then_age);
    tcase_add_test(t, deadline);
    tcase_add_test(t, requests_refused);
    tcase_add_test(t, engines_refused);
    tcase_add_test(t, non_finite_logits);
    tcase_add_test(t, every_token_banned);
    tcase_add_test(t, info_and_placement);
    tcase_add_test(t, text_and_back);
    tcase_add_test(t, log_devices_names);
    suite_add_tcase(s, t);
    return test_main(s);
}
