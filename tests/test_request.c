/* Requests: how they end (length, context, stop strings, end ids), what goes
 * with them (log-probabilities, the empty prompt), cancelling, deadlines, order,
 * logits that are not finite, and every refusal at submit. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/map.h"
#include "file/weights.h"
#include "tests/engine_kit.h"

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
            size_t n;
            p.ids = ids;
            p.n_ids = ends[i].n_prompt;
            p.ignore_eos = 1;
            p.n_logprobs = want_logprobs ? 2 : -1;
            struct forge_request *r = generate_gathered(e, &p, &g);
            forge_request_ids(r, 0, &n);
            ck_assert_msg(n == ends[i].n_new, "row %zu: %zu ids", i, n);
            ck_assert_int_eq(forge_request_finish(r, 0), ends[i].finish);
            const struct forge_metrics *m = forge_request_metrics(r);
            ck_assert_uint_eq(m->input_tokens, ends[i].n_prompt);
            ck_assert_uint_eq(m->output_tokens, n);
            ck_assert_int_eq(m->prefill_s > 0, 1);
            ck_assert_int_eq(m->ttft_ms > 0, n > 0);
            ck_assert_int_eq(m->decode_s > 0, n > 1); /* no pass for an id that is not needed */
            ck_assert_int_eq(m->tpot_ms > 0, n > 1);
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

/* As many as there are: every id once, falling, the lower id first among equals. */
START_TEST(logprobs_of_all_ids)
{
    struct forge_engine *e = engine_of(TINY);
    struct forge_request_params p = request_params("One", 2);
    bool seen[3072];
    p.n_logprobs = 3072;
    struct forge_request *r = generate(e, &p);
    for (size_t i = 0; i < 2; i++) {
        size_t n;
        const struct forge_logprob *l = forge_request_logprobs(r, 0, i, &n);
        ck_assert_uint_eq(n, 3073);
        ck_assert_int_eq(l[0].id, l[1].id);
        memset(seen, 0, sizeof seen);
        for (size_t k = 1; k < n; k++) {
            test_that(!seen[l[k].id], "id %d twice", (int)l[k].id);
            seen[l[k].id] = true;
            test_that(k == 1 || l[k - 1].logprob >= l[k].logprob, "%zu is larger than the one before", k);
        }
    }
    forge_request_free(r);
    forge_engine_close(e);
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

/* The length given is the length, 0 included; a part of a text needs no 0 byte. */
START_TEST(length_of_a_text)
{
    static const struct { size_t len; const char *same_as; } rows[] = {
        {FORGE_TERMINATED, "The capital of France is"}, {11, "The capital"}, {0, ""}};
    struct forge_engine *e = engine_of(TINY);
    for (size_t i = 0; i < 3; i++) {
        struct forge_request_params p = request_params("The capital of France is", 0);
        int32_t *ids, *want;
        size_t n, n_want;
        ck_assert_int_eq(forge_tokenize(e, p.text, rows[i].len, 0, &ids, &n, NULL), 0);
        ck_assert_int_eq(forge_tokenize(e, rows[i].same_as, strlen(rows[i].same_as), 0, &want, &n_want, NULL), 0);
        ck_assert(n == n_want && memcmp(ids, want, n * sizeof *ids) == 0);
        p.text_len = rows[i].len;
        struct forge_request *r = generate(e, &p);
        forge_request_prompt_ids(r, &n);
        ck_assert_uint_eq(n, n_want ? n_want : 1); /* the empty prompt's start */
        forge_request_free(r);
        forge_free(ids);
        forge_free(want);
    }
    forge_engine_close(e);
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
    int step_rc, generate_rc, batch_rc;
    char order[16];
};

static int cancel_other(void *user, const struct forge_piece *p)
{
    struct others *o = user;
    (void)p;
    forge_request_cancel(o->victim);
    struct forge_request_params own = request_params("One", 1);
    struct forge_request *r = o->victim;
    o->step_rc = forge_step(o->e, NULL); /* refused: inside a step */
    o->generate_rc = forge_generate(o->e, &own, NULL, NULL);
    o->batch_rc = forge_generate_batch(o->e, &own, 1, &r, NULL);
    ck_assert_ptr_null(r);
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
    ck_assert_int_eq(o.generate_rc, FORGE_ERR_ARG);
    ck_assert_int_eq(o.batch_rc, FORGE_ERR_ARG);
    ck_assert_int_eq(forge_request_finish(r, 0), FORGE_FINISH_LENGTH);
    ck_assert_int_eq(forge_request_finish(o.victim, 0), FORGE_FINISH_CANCELLED);
    forge_request_free(r);
    forge_request_free(o.victim);

    p.on_piece = NULL;
    ck_assert_int_eq(forge_submit(e, &p, &r, NULL), 0); /* freed while it runs */
    ck_assert_int_eq(forge_step(e, NULL), 1);
    forge_request_free(r);
    ck_assert_int_eq(forge_step(e, NULL), 0);
    forge_engine_close(e);
}
END_TEST

struct freeing {
    struct forge_request *own, *other;
    int n_calls;
};

static int free_both(void *user, const struct forge_piece *p)
{
    struct freeing *f = user;
    ck_assert_int_eq(p->finish, FORGE_FINISH_NONE);
    f->n_calls++;
    forge_request_free(f->own);
    forge_request_free(f->other);
    ck_assert_uint_eq(forge_request_seed(f->own), 5); /* there until the step ends */
    return 0;
}

/* Freed by a callback, running or queued: neither is called again, and nothing of them is left. */
START_TEST(free_in_callback)
{
    struct forge_engine *e = engine_of(TINY);
    struct freeing f = {0};
    struct forge_request_params p = request_params("The capital of France is", 8);
    p.on_piece = free_both;
    p.user = &f;
    p.sampling.seed = 5;
    p.sampling.has_seed = 1;
    ck_assert_int_eq(forge_submit(e, &p, &f.own, NULL), 0);
    ck_assert_int_eq(forge_submit(e, &p, &f.other, NULL), 0);
    for (int i = 0; forge_step(e, NULL) > 0; i++)
        ck_assert_int_lt(i, 4);
    ck_assert_int_eq(f.n_calls, 1);
    p.on_piece = NULL;
    forge_request_free(generate(e, &p)); /* the engine goes on */
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
    REFUSED(FORGE_ERR_ARG, "1024", p.n_samples = 1025);
    REFUSED(FORGE_ERR_ARG, "n_logprobs", p.n_logprobs = -2);
    REFUSED(FORGE_ERR_ARG, "n_logprobs", p.n_logprobs = 3073);
    REFUSED(FORGE_ERR_ARG, "deadline", p.deadline_s = -1);
    REFUSED(FORGE_ERR_ARG, "deadline", p.deadline_s = (double)NAN);
    REFUSED(FORGE_ERR_ARG, "text_flags has unknown bits (0x40)", p.text_flags = 65);
    REFUSED(FORGE_ERR_ARG, "chat_flags has unknown bits (0x8)", p.chat_flags = 8);
    REFUSED(FORGE_ERR_ARG, "stop string", p.stops = &empty; p.n_stops = 1);
    REFUSED(FORGE_ERR_ARG, "stops is NULL", p.stops = NULL; p.n_stops = 1);
    REFUSED(FORGE_ERR_ARG, "bias is NULL", p.sampling.bias = NULL; p.sampling.n_bias = 1);
    REFUSED(FORGE_ERR_ARG, "id 3072 (number 1)", p.ids = &bad_id; p.n_ids = 1);
    REFUSED(FORGE_ERR_ARG, "at most 1e+30", p.sampling.temp = 1e38);
    REFUSED(FORGE_ERR_ARG, "temp", p.sampling.temp = -1);
    REFUSED(FORGE_ERR_ARG, "temp is 0", p.sampling.top_p = 0.5f);
    REFUSED(FORGE_ERR_ARG, "top_k", p.sampling.top_k = -1);
    REFUSED(FORGE_ERR_ARG, "logit bias", p.sampling.bias = &bias; p.sampling.n_bias = 1);
#undef REFUSED
    char *text;
    size_t len;
    struct forge_error err = {0};
    struct forge_engine *none;
    ck_assert_int_eq(forge_detokenize(e, &bad_id, 1, 0, &text, &len, &err), FORGE_ERR_ARG);
    ck_assert_msg(strstr(err.message, "3072 (number 1)") != NULL, "%s", err.message);
    ck_assert_int_eq(forge_detokenize(e, &below, 1, 0, &text, &len, NULL), FORGE_ERR_ARG);
    ck_assert_int_eq(forge_engine_open(&none, NULL, &err), FORGE_ERR_ARG);
    submit_refused(e, NULL, FORGE_ERR_ARG, "no parameters");
    int32_t *ids;
    struct forge_chat_parser *parser;
    ck_assert_int_eq(forge_tokenize(e, "a", 1, 64, &ids, &len, &err), FORGE_ERR_ARG);
    ck_assert_int_eq(forge_chat_render(e, "[]", 2, 64, &text, &len, NULL, NULL, &err), FORGE_ERR_ARG);
    ck_assert_int_eq(forge_chat_parser_new(&parser, NULL, 0, 64, &err), FORGE_ERR_ARG);
    ck_assert_msg(strstr(err.message, "0x40") != NULL, "%s", err.message);
    ck_assert_uint_eq(forge_token_bytes(e, 0, NULL, 0), 1);
    ck_assert_int_eq(forge_step(e, NULL), 0);
    forge_engine_close(e);
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
        ck_assert_msg(strstr(err.message, "step 1 (position ") && strstr(err.message, "non-finite logits"), "%s", err.message);
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

int main(void)
{
    Suite *s = suite_create("request");
    TCase *t = tcase_create("request");
    tcase_add_test(t, length_and_context);
    tcase_add_test(t, stop_strings);
    tcase_add_test(t, end_at_once);
    tcase_add_test(t, logprobs);
    tcase_add_test(t, logprobs_of_all_ids);
    tcase_add_test(t, empty_prompt);
    tcase_add_test(t, length_of_a_text);
    tcase_add_test(t, cancel_in_prefill);
    tcase_add_test(t, cancel_in_decode);
    tcase_add_test(t, cancel_from_another);
    tcase_add_test(t, free_in_callback);
    tcase_add_test(t, priority_then_age);
    tcase_add_test(t, deadline);
    tcase_add_test(t, requests_refused);
    tcase_add_test(t, non_finite_logits);
    tcase_add_test(t, every_token_banned);
    suite_add_tcase(s, t);
    return test_main(s);
}
