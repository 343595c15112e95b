/* Every resource that opening a model and generating asks for, refused once: an
 * error that says something, nothing left behind, no crash; where the library
 * can do without, the same result as with it.  An engine whose request was
 * refused gives the next one as if nothing had been.
 *
 * Check's own memory goes the same way, so that nothing of Check is called
 * while requests are refused or held resources compared. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/thread.h"
#include "tests/engine_kit.h"
#include "tests/fault.h"
#include "text/bpe.h"
#include "text/chat_parts.h"

#define MAX_IDS 64

/* What a run gave: prompt ids, new ids, text. */
struct outcome {
    int32_t ids[MAX_IDS];
    size_t n_ids;
    char text[1024];
    int code;
    char message[1024];
};

static const struct { const char *model, *tokenizer, *config; } models[] = {
    {"golden/models/qwen3", NULL, NULL},
    {"golden/models/llama-sharded", NULL, NULL},
    {"golden/models/phi3", NULL, NULL},
    {"golden/models/gemma3", NULL, NULL},
    {"golden/models/qwen3-moe", NULL, NULL},
    {"golden/containers/gguf/qwen3-q8_0.gguf", NULL, NULL},
    {"golden/containers/gguf/llama-q4_0.gguf", NULL, NULL},
    {"golden/extra/gguf/split/qwen3-00001-of-00003.gguf", NULL, NULL},
    {"golden/containers/pth/qwen3-book", NULL, NULL},
    {"golden/extra/pth/llama-shards", NULL, NULL},
};
#define N_MODELS (sizeof models / sizeof models[0])

static const char prompt[] = "The capital of France is <|endoftext|> caf\xC3\xA9 12";

static void put_ids(struct outcome *o, const int32_t *ids, size_t n)
{
    for (size_t i = 0; i < n && o->n_ids < MAX_IDS; i++)
        o->ids[o->n_ids++] = ids[i];
}

static int failed(struct outcome *o, int code, const struct forge_error *err)
{
    o->code = code;
    memcpy(o->message, err->message, sizeof o->message);
    return code;
}

/* Two sampled tokens with everything a request can ask for. */
static int run(struct forge_engine *e, struct outcome *o)
{
    static const struct forge_logit_bias bias[] = {{3, 1}, {4, -1}};
    static const char *const stops[] = {"\x01never", "\x02"};
    struct forge_error err = {0};
    struct forge_request_params p = request_params(prompt, 2);
    struct forge_request *r;
    size_t n, len;
    p.stops = stops;
    p.n_stops = 2;
    p.n_samples = 2;
    p.n_logprobs = 2;
    p.ignore_eos = 1;
    p.sampling = (struct forge_sampling){.temp = 0.8f, .top_k = 20, .top_p = 0.9f, .typical_p = 0.95f, .repeat_penalty = 1.1f,
                                         .presence_penalty = 0.1f, .bias = bias, .n_bias = 2, .seed = 7, .has_seed = 1};
    int rc = forge_generate(e, &p, &r, &err);
    if (rc < 0) {
        forge_request_free(r);
        return failed(o, rc, &err);
    }
    const int32_t *ids = forge_request_prompt_ids(r, &n);
    put_ids(o, ids, n);
    for (int s = 0; s < 2; s++) {
        ids = forge_request_ids(r, s, &n);
        put_ids(o, ids, n);
        const char *text = forge_request_text(r, s, &len);
        strncat(o->text, text, sizeof o->text - strlen(o->text) - 1);
    }
    forge_request_free(r);
    return 0;
}

static int round_trip(struct forge_engine *e, struct outcome *o)
{
    struct forge_error err = {0};
    int32_t *ids;
    char *text = NULL;
    size_t n, len;
    int rc = forge_tokenize(e, prompt, sizeof prompt - 1, FORGE_TEXT_PARSE_SPECIAL, &ids, &n, &err);
    if (rc < 0)
        return failed(o, rc, &err);
    put_ids(o, ids, n);
    rc = forge_detokenize(e, ids, n, 1, &text, &len, &err);
    if (rc < 0)
        failed(o, rc, &err);
    else
        strncat(o->text, text, sizeof o->text - strlen(o->text) - 1);
    forge_free(ids);
    forge_free(text);
    return rc;
}

static int work(struct forge_engine *e, struct outcome *o)
{
    *o = (struct outcome){0};
    int rc = round_trip(e, o);
    return rc < 0 ? rc : run(e, o);
}

static int open_and_work(const struct forge_engine_params *p, struct outcome *o)
{
    struct forge_error err = {0};
    struct forge_engine *e;
    *o = (struct outcome){0};
    int rc = forge_engine_open(&e, p, &err);
    test_that((rc == 0) == (e != NULL), "%d, and %s engine", rc, e ? "an" : "no");
    if (rc < 0)
        return failed(o, rc, &err);
    rc = work(e, o);
    forge_engine_close(e);
    return rc;
}

static void same_outcome(const struct outcome *a, const struct outcome *b, const char *what, size_t nth)
{
    test_that(a->n_ids == b->n_ids && memcmp(a->ids, b->ids, a->n_ids * sizeof a->ids[0]) == 0 && strcmp(a->text, b->text) == 0,
              "%s, request %zu refused: success with another result", what, nth);
}

static void check_failure(const struct outcome *o, const char *what, const char *name, size_t nth)
{
    test_that(o->message[0] != '\0', "%s, %s (request %zu) refused: no message", what, name, nth);
    bool json = strcmp(name, "cJSON's malloc") == 0; /* which says no more than that it failed */
    test_that(o->code == FORGE_ERR_NOMEM || o->code == FORGE_ERR_IO || (json && o->code == FORGE_ERR_FORMAT), "%s, %s (request %zu) refused: code %d, \"%s\"", what, name,
              nth, o->code, o->message);
}

/* ---- opening, and all that follows ---- */

struct sweep { unsigned kinds; size_t step; bool on; };

/* cJSON's thousand nodes are all asked for in one place: a few of them stand for the rest. */
static const struct sweep sweeps[] = {
    {FAULT_MEMORY, 1, false},
    {FAULT_MEMORY, 23, true},
    {FAULT_SYSTEM, 1, false},
    {FAULT_JSON, 211, false},
};
#define N_SWEEPS (sizeof sweeps / sizeof sweeps[0])

START_TEST(opening)
{
    size_t m = (size_t)_i / N_SWEEPS;
    const struct sweep *s = &sweeps[(size_t)_i % N_SWEEPS];
    struct forge_engine_params p = engine_params(models[m].model);
    struct outcome want, got;
    p.n_ctx = 64;
    ck_assert_msg(open_and_work(&p, &want) == 0, "%s: %s", models[m].model, want.message);
    char before[FAULT_HELD_SIZE], after[FAULT_HELD_SIZE];
    long n_before = fault_held(before);
    size_t n_failed = 0;
    for (size_t nth = 1;; nth += s->step) {
        const char *name;
        fault_arm(s->kinds, nth, s->on);
        int rc = open_and_work(&p, &got);
        if (!fault_disarm(&name)) {
            test_that(rc == 0, "%s: %s", models[m].model, got.message);
            break;
        }
        if (rc < 0)
            check_failure(&got, models[m].model, name, nth);
        else
            same_outcome(&got, &want, models[m].model, nth);
        test_that(fault_held(after) == n_before, "%s, %s (request %zu) refused: held before: %s; after: %s", models[m].model,
                  name, nth, before, after);
        n_failed += rc < 0;
    }
    bool is_gguf = strstr(models[m].model, ".gguf") != NULL;
    ck_assert_int_eq(n_failed > 0, s->kinds != FAULT_JSON || !is_gguf); /* there is no JSON in it */
}
END_TEST

/* ---- an engine goes on after a request was refused ---- */

START_TEST(generating)
{
    struct forge_engine_params p = engine_params(models[_i].model);
    struct outcome want, got;
    char before[FAULT_HELD_SIZE], after[FAULT_HELD_SIZE];
    p.n_ctx = 64;
    struct forge_engine *e = engine_with(&p);
    ck_assert_int_eq(work(e, &want), 0);
    long n_before = fault_held(before);
    size_t nth = 1;
    for (bool again = true; again; nth++) {
        const char *name;
        fault_arm(FAULT_ALL, nth, false);
        int rc = work(e, &got);
        again = fault_disarm(&name);
        test_that(rc == 0 || again, "nothing refused, and %d: %s", rc, got.message);
        if (rc < 0)
            check_failure(&got, models[_i].model, name, nth);
        else
            same_outcome(&got, &want, models[_i].model, nth);
        test_that(work(e, &got) == 0, "after %s (request %zu) was refused: %s", name, nth, got.message);
        same_outcome(&got, &want, models[_i].model, nth);
        test_that(fault_held(after) == n_before, "%s (request %zu) refused: held before: %s; after: %s", name, nth, before, after);
    }
    ck_assert_uint_gt(nth, 10);
    forge_engine_close(e);
}
END_TEST

/* ---- an engine with a thread of its own ---- */

struct ended {
    struct mutex *lock;
    struct bell *bell;
    bool yes;
};

static int note_end(void *user, const struct forge_piece *p)
{
    struct ended *w = user;
    mutex_lock(w->lock);
    w->yes |= p->finish != FORGE_FINISH_NONE;
    bell_ring(w->bell);
    mutex_unlock(w->lock);
    return 0;
}

/* Starts it, has a request answered, and stops it. */
static int run_on_thread(struct forge_engine *e, struct ended *w, struct outcome *o)
{
    struct forge_error err = {0};
    struct forge_request_params p = request_params(prompt, 4);
    struct forge_request *r = NULL;
    *o = (struct outcome){0};
    w->yes = false;
    p.ignore_eos = 1;
    p.on_piece = note_end;
    p.user = w;
    int rc = forge_engine_start(e, &err);
    if (rc < 0)
        return failed(o, rc, &err);
    rc = forge_submit(e, &p, &r, &err);
    mutex_lock(w->lock);
    while (rc == 0 && !w->yes)
        bell_wait(w->bell, w->lock);
    mutex_unlock(w->lock);
    forge_engine_stop(e, NULL); /* nobody else touches the request then */
    if (rc == 0 && forge_request_finish(r, 0) == FORGE_FINISH_ERROR) {
        err = *forge_request_error(r);
        rc = err.code;
    }
    if (rc < 0)
        failed(o, rc, &err);
    else {
        size_t n, len;
        const int32_t *ids = forge_request_ids(r, 0, &n);
        put_ids(o, ids, n);
        snprintf(o->text, sizeof o->text, "%s", forge_request_text(r, 0, &len));
    }
    forge_request_free(r);
    return rc;
}

START_TEST(own_thread)
{
    struct ended w = {mutex_new(), bell_new(), false};
    struct outcome want, got;
    char before[FAULT_HELD_SIZE], after[FAULT_HELD_SIZE];
    const char *name;
    size_t nth = 1;
    struct forge_engine *e = engine_of(models[0].model);
    ck_assert(w.lock && w.bell);
    ck_assert_int_eq(run_on_thread(e, &w, &want), 0);
    long n_before = fault_held(before);
    for (bool again = true; again; nth++) {
        fault_arm(FAULT_ALL, nth, false);
        int rc = run_on_thread(e, &w, &got);
        again = fault_disarm(&name);
        test_that(rc == 0 || again, "nothing refused, and %d: %s", rc, got.message);
        if (rc < 0)
            check_failure(&got, "own thread", name, nth);
        else
            same_outcome(&got, &want, "own thread", nth);
        test_that(fault_held(after) == n_before, "%s (request %zu) refused: held before: %s; after: %s", name, nth, before, after);
    }
    ck_assert_uint_gt(nth, 10);
    forge_engine_close(e);
    bell_free(w.bell);
    mutex_free(w.lock);
}
END_TEST

/* ---- decoding takes no memory ---- */

static const struct { double temp; int n_logprobs; const char *stop; } steady_cases[] = {
    {0, -1, NULL}, {0, 3, NULL}, {0.9, -1, "\x01never"}, {0.9, 2, "\x01never"}};

START_TEST(steady_state)
{
    struct forge_engine_params ep = engine_params(models[_i].model);
    ep.n_ctx = 64;
    struct forge_engine *e = engine_with(&ep);
    for (size_t i = 0; i < sizeof steady_cases / sizeof steady_cases[0]; i++) {
        struct forge_request_params p = request_params("The capital of France is", 40);
        struct forge_request *r;
        size_t n_before, n_after;
        p.ignore_eos = 1;
        p.sampling.temp = steady_cases[i].temp;
        p.sampling.top_p = p.sampling.temp > 0 ? 0.9 : 1;
        p.sampling.top_k = p.sampling.temp > 0 ? 50 : 0;
        p.sampling.has_seed = 1;
        p.n_logprobs = steady_cases[i].n_logprobs;
        p.stops = &steady_cases[i].stop;
        p.n_stops = steady_cases[i].stop != NULL;
        ck_assert_int_eq(forge_submit(e, &p, &r, NULL), 0);
        for (int k = 0; k < 6; k++) /* the prompt, and what buffers need once */
            ck_assert_int_eq(forge_step(e, NULL), 1);
        forge_request_ids(r, 0, &n_before);
        fault_arm(FAULT_ALL, SIZE_MAX, false);
        for (int k = 0; k < 25; k++)
            test_that(forge_step(e, NULL) == 1, "ended early");
        fault_disarm(NULL);
        forge_request_ids(r, 0, &n_after);
        ck_assert_uint_eq(n_after, n_before + 25);
        ck_assert_msg(fault_asked() == 0, "%s, case %zu: %zu requests for memory in 25 steps", models[_i].model, i, fault_asked());
        forge_request_free(r);
    }
    forge_engine_close(e);
}
END_TEST

/* ---- tokenizers of every kind ---- */

static const char *const tokenizers[] = {
    "gemma", "gpt2", "llama2", "llama2-metaspace", "llama3", "phi3", "qwen2", "qwen3", "smollm", "tekken", NULL /* a pair */
};
#define N_TOKENIZERS (sizeof tokenizers / sizeof tokenizers[0])

static const char *tokenizer_path(const char *name)
{
    static const char *const pair[][2] = {
        {"vocab.json", "{\"a\":0,\"b\":1,\"\xC4\xA0\":2,\"ab\":3,\"\xC4\xA0" "ab\":4}"},
        {"merges.txt", "#version: 0.2\na b\n\xC4\xA0 ab\n"},
        {"tokenizer_config.json", "{\"bos_token\":\"a\",\"eos_token\":{\"content\":\"b\"}}"},
    };
    char path[128];
    if (name) {
        snprintf(path, sizeof path, "golden/tokenizer/%s", name);
        return test_path(path);
    }
    for (size_t i = 0; i < sizeof pair / sizeof pair[0]; i++) {
        FILE *f = fopen(test_tmp(pair[i][0]), "w");
        ck_assert_ptr_nonnull(f);
        fputs(pair[i][1], f);
        ck_assert_int_eq(fclose(f), 0);
    }
    return test_tmp("");
}

/* Opens, encodes, and decodes id by id. */
static int use_tokenizer(const char *path, const char *text, size_t len, struct outcome *o)
{
    struct tokenizer *t = NULL;
    struct detok *d = NULL;
    struct err err = {0};
    struct ids ids;
    struct buf out;
    *o = (struct outcome){0};
    ids_init(&ids);
    buf_init(&out);
    int rc = tokenizer_open(&t, path, &err);
    if (rc == 0)
        rc = tokenizer_encode(t, text, len, TOK_ADD_SPECIAL | TOK_PARSE_SPECIAL, &ids, &err);
    if (rc == 0)
        rc = detok_new(&d, t, ids.v, 1, false, &err);
    for (size_t i = 1; rc == 0 && i < ids.n; i++)
        rc = detok_push(d, ids.v[i], &out, &err);
    if (rc == 0)
        rc = detok_finish(d, &out, &err);
    if (rc == 0) {
        put_ids(o, (int32_t[]){tokenizer_bos(t), tokenizer_eos(t)}, 2);
        put_ids(o, ids.v, ids.n);
        snprintf(o->text, sizeof o->text, "%s", buf_str(&out));
    }
    o->code = rc;
    memcpy(o->message, err.msg, sizeof o->message);
    detok_free(d);
    tokenizer_close(t);
    ids_fini(&ids);
    buf_fini(&out);
    return rc;
}

START_TEST(tokenizing)
{
    size_t which = (size_t)_i / 2;
    static const char words[] = "ab  A\xCC\x8A caf\xC3\xA9 </s><|endoftext|> 123 \xF0\x9F\x99\x82x's";
    const char *name = tokenizers[which], *path = tokenizer_path(name), *text = name ? words : "ab ab";
    unsigned kinds = _i % 2 ? FAULT_JSON : FAULT_MEMORY | FAULT_SYSTEM;
    struct outcome want, got;
    size_t n_failed = 0;
    ck_assert_msg(use_tokenizer(path, text, strlen(text), &want) == 0, "%s: %s", path, want.message);
    long before = fault_held(NULL);
    for (size_t nth = 1;; nth += _i % 2 ? 97 : 1) {
        const char *refused;
        fault_arm(kinds, nth, false);
        int rc = use_tokenizer(path, text, strlen(text), &got);
        if (!fault_disarm(&refused))
            break;
        if (rc < 0)
            check_failure(&got, path, refused, nth);
        else
            same_outcome(&got, &want, path, nth);
        test_that(fault_held(NULL) == before, "%s, %s (request %zu) refused: %ld held, before %ld", path, refused, nth,
                  fault_held(NULL), before);
        n_failed += rc < 0;
    }
    ck_assert_uint_gt(n_failed, 0);
}
END_TEST

/* ---- chats ---- */

static void put_parts(struct buf *b, const struct forge_answer_parts *p)
{
    buf_put(b, p->thought, p->thought_len);
    buf_put(b, p->content, p->content_len);
    for (size_t i = 0; i < p->n_calls; i++)
        buf_printf(b, "%s(%s)", p->calls[i].name, p->calls[i].arguments);
}

static int parse_answer(struct buf *b, struct forge_error *err)
{
    static const char *const pieces[] = {"<think>So", "</think>Y", "es <tool_", "call>{\"name\":\"f\",\"arguments\":{\"a\":[1]}}</tool_call>", "."};
    enum { N = sizeof pieces / sizeof *pieces };
    struct forge_chat_parser *p;
    const struct forge_answer_parts *parts;
    int rc = forge_chat_parser_new(&p, NULL, 0, FORGE_ANSWER_TOOLS, err);
    for (size_t i = 0; i < N && rc == 0; i++)
        if ((rc = forge_chat_parse(p, pieces[i], FORGE_TERMINATED, i == N - 1, &parts, err)) == 0)
            put_parts(b, parts);
    forge_chat_parser_free(p);
    return rc;
}

/* A template opened and rendered, and an answer taken apart. */
static int chat(struct outcome *o)
{
    static const char text[] = "{% macro m(x) %}<{{ x | upper }}{{ '{:>4}'.format(x) }}>{% endmacro %}{% for a in messages %}{{ m(a.role) }}"
                               "{{ a | tojson(indent=1) }}{{ a.content.split(' ') | sort | join('-') }}{% endfor %}";
    static const char json[] = "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"b a\"}]},{\"role\":\"assistant\","
                               "\"tool_calls\":[{\"function\":{\"name\":\"f\",\"arguments\":\"{\\\"x\\\": 1}\"}}]}],\"variables\":{\"y\":[1,{}]}}";
    struct chat c = {.plain = NULL};
    struct forge_error ferr = {0};
    struct marked m;
    struct err err = {0};
    memset(o, 0, sizeof *o);
    marked_init(&m);
    int rc = template_open(&c.plain, text, sizeof text - 1, "t", &err);
    if (rc == 0)
        rc = chat_apply(&c, NULL, json, sizeof json - 1, NULL, 0, CHAT_PROTOCOL, &m, &err);
    if (rc < 0) {
        snprintf(o->message, sizeof o->message, "%s", err.msg);
    } else if ((rc = parse_answer(&m.text, &ferr)) < 0) {
        snprintf(o->message, sizeof o->message, "%s", ferr.message);
    }
    o->code = rc;
    snprintf(o->text, sizeof o->text, "%s", buf_str(&m.text));
    bool lost = rc == 0 && m.text.failed; /* this test's own */
    template_close(c.plain);
    marked_fini(&m);
    return lost ? failed(o, FORGE_ERR_NOMEM, &(struct forge_error){.message = "the test's text"}) : rc;
}

START_TEST(chatting)
{
    struct outcome want, got;
    size_t n_failed = 0;
    ck_assert_msg(chat(&want) == 0, "%s", want.message);
    ck_assert_msg(strstr(want.text, "a-b") && strstr(want.text, "\"x\": 1") && strstr(want.text, "SoYesf({\"a\":[1]})\n."), "%s", want.text);
    long before = fault_held(NULL);
    for (size_t nth = 1;; nth++) {
        const char *refused;
        fault_arm(FAULT_MEMORY, nth, false);
        int rc = chat(&got);
        if (!fault_disarm(&refused))
            break;
        if (rc < 0)
            check_failure(&got, "chat", refused, nth);
        else
            same_outcome(&got, &want, "chat", nth);
        test_that(fault_held(NULL) == before, "chat, %s (request %zu) refused: %ld held, before %ld", refused, nth, fault_held(NULL), before);
        n_failed += rc < 0;
    }
    ck_assert_uint_gt(n_failed, 10);
}
END_TEST

/* Long tokens by scores: a merge is made or the word is an error, never left out. */
START_TEST(merging)
{
    enum { N = 10 }; /* tokens of 1, 2, 4 ... 512 letters */
    static char letters[1 << (N - 1)];
    static const float scores[N] = {0};
    struct vocab v;
    struct bpe b;
    memset(letters, 'a', sizeof letters);
    vocab_init(&v);
    ck_assert_int_eq(vocab_reserve(&v, N, N, "made", NULL), 0);
    for (int32_t i = 0; i < N; i++)
        ck_assert_int_eq(vocab_put(&v, i, letters, (size_t)1 << i, TOKEN_MODEL, "made", NULL), 0);
    bpe_init(&b, &v);
    ck_assert_int_eq(bpe_use_scores(&b, scores, "made", NULL), 0);
    bpe_prepare(&b);
    bool was_refused = true;
    for (size_t nth = 1; was_refused; nth++) {
        struct bpe_work w = {0};
        struct ids ids;
        struct err err = {0};
        ids_init(&ids);
        fault_arm(FAULT_MEMORY, nth, false);
        int rc = bpe_encode(&b, &w, letters, sizeof letters, false, &ids, &err);
        was_refused = fault_disarm(NULL);
        test_that(rc == (was_refused ? ERR_NOMEM : 0), "request %zu: %d, %s", nth, rc, err.msg);
        test_that(rc < 0 || (ids.n == 1 && ids.v[0] == N - 1), "request %zu: %zu tokens", nth, ids.n);
        ids_fini(&ids);
        bpe_work_fini(&w);
    }
    bpe_fini(&b);
    vocab_fini(&v);
}
END_TEST

START_TEST(listing_devices)
{
    struct forge_devices *d;
    struct forge_error err;
    long before = fault_held(NULL);
    size_t n_failed = 0;
    for (size_t nth = 1;; nth++) {
        fault_arm(FAULT_MEMORY, nth, false);
        int rc = forge_devices_list(&d, &err);
        bool was_refused = fault_disarm(NULL);
        test_that(rc == 0 || (was_refused && rc == FORGE_ERR_NOMEM), "request %zu refused: %d", nth, rc);
        n_failed += rc < 0;
        forge_devices_free(d);
        test_that(fault_held(NULL) == before, "request %zu refused: %ld held, before %ld", nth, fault_held(NULL), before);
        if (!was_refused)
            break;
    }
    ck_assert_uint_gt(n_failed, 1);
}
END_TEST

int main(void)
{
    fault_init();
    Suite *s = suite_create("alloc");
    TCase *tc = tcase_create("refused");
    tcase_add_loop_test(tc, opening, 0, (int)(N_MODELS * N_SWEEPS));
    tcase_add_loop_test(tc, generating, 0, (int)N_MODELS);
    tcase_add_test(tc, own_thread);
    tcase_add_loop_test(tc, tokenizing, 0, 2 * (int)N_TOKENIZERS);
    tcase_add_test(tc, chatting);
    tcase_add_test(tc, merging);
    tcase_add_test(tc, listing_devices);
    suite_add_tcase(s, tc);
    tc = tcase_create("steady");
    tcase_add_loop_test(tc, steady_state, 0, (int)N_MODELS);
    suite_add_tcase(s, tc);
    return test_main(s);
}
