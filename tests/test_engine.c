/* The engine on real (small) models: the golden ids and texts from every kind
 * of file, the same text for the same seed, samples, batches, what the engine
 * tells about itself, what it refuses to open. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "run/engine.h"
#include "run/load_parts.h"
#include "tests/engine_kit.h"

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

/* Pages of Q8_0: 34 bytes for 32 values, and one text whatever the chunk, the pages, the threads and the neighbours. */
START_TEST(pages_of_q8_0)
{
    static const struct { int chunk, page, threads; } ways[] = {{256, 64, 2}, {1, 16, 1}, {7, 1, 3}, {32, 0, 2}};
    struct forge_engine_params p = engine_params(TINY);
    struct forge_engine *e = engine_with(&p);
    uint64_t f32 = forge_engine_info(e)->kv_bytes;
    char want[512] = "";
    forge_engine_close(e);
    p.kv_type = FORGE_KV_Q8_0;
    p.max_seqs = 3;
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        struct forge_request_params rp = request_params("The capital of France is", 60);
        struct forge_request *r[3];
        struct forge_error err = {0};
        p.chunk = ways[i].chunk;
        p.page_size = ways[i].page;
        p.n_threads = ways[i].threads;
        e = engine_with(&p);
        ck_assert_uint_eq(forge_engine_info(e)->kv_bytes * 32 * 4, f32 * 34 * 3);
        rp.sampling.temp = 1;
        rp.sampling.seed = 5;
        rp.sampling.has_seed = 1;
        for (size_t j = 0; j < 3; j++) { /* alone, the first time */
            rp.text = j == 0 ? "Once upon a time" : "The capital of France is";
            ck_assert_msg(j > i || forge_submit(e, &rp, &r[j], &err) == 0, "%s", err.message);
        }
        while (forge_step(e, &err) > 0)
            ;
        if (i == 0)
            snprintf(want, sizeof want, "%s", text_of(r[0]));
        ck_assert_str_eq(text_of(r[0]), want);
        for (size_t j = 0; j < 3 && j <= i; j++)
            forge_request_free(r[j]);
        forge_engine_close(e);
    }
    ck_assert_uint_gt(strlen(want), 40);
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
    REFUSED(FORGE_ERR_UNSUPPORTED, "layer 0 have 40", p.kv_type = FORGE_KV_Q8_0, p.model = test_path("golden/models/gemma3"));
    REFUSED(FORGE_ERR_ARG, "kv_type", p.kv_type = (enum forge_kv)77);
    REFUSED(FORGE_ERR_ARG, "gemm", p.gemm = (enum forge_gemm)77);
    REFUSED(FORGE_ERR_ARG, "page size", p.page_size = 257);
    REFUSED(FORGE_ERR_ARG, "chunk", p.chunk = -1);
    REFUSED(FORGE_ERR_ARG, "max_seqs", p.max_seqs = 0);
    REFUSED(FORGE_ERR_ARG, "math fast", p.math = FORGE_MATH_FAST, p.device = "ref");
    REFUSED(FORGE_ERR_ARG, "math", p.math = (enum forge_math)9);
    REFUSED(FORGE_ERR_ARG, "kernels \"bogus\"", p.kernels = "bogus");
    REFUSED(FORGE_ERR_ARG, "65536", p.chunk = 65537);
    REFUSED(FORGE_ERR_LIMIT, "lower n_ctx", p.kv_mem = 4096);
    REFUSED(FORGE_ERR_LIMIT, "f16 as kv_type", p.kv_mem = 4096, p.kv_type = FORGE_KV_F32);
    REFUSED(FORGE_ERR_ARG, "one number above 0", p.split = "3,1");
    REFUSED(FORGE_ERR_IO, "no-such", p.clblast_params = "no-such");
    REFUSED(FORGE_ERR_ARG, "warp-drive", p.device = "warp-drive");
#undef REFUSED
    forge_engine_close(NULL);
    forge_request_free(NULL);
    forge_devices_free(NULL);
}
END_TEST

/* ---- what the engine tells ---- */

START_TEST(info_and_placement)
{
    struct forge_engine *e = engine_of(TINY);
    const struct forge_engine_info *info = forge_engine_info(e);
    const struct forge_placement *row;
    ck_assert_str_eq(info->architecture, "qwen3");
    ck_assert_str_eq(info->format, "safetensors");
    ck_assert_int_eq(info->n_layers, 4);
    ck_assert_int_eq(info->d_model, 256);
    ck_assert_int_eq(info->n_vocab, 3072);
    ck_assert_int_eq(info->n_ctx, info->n_ctx_max < 4096 ? info->n_ctx_max : 4096);
    ck_assert_uint_eq(info->n_params, 3017216);
    ck_assert_uint_eq(info->kv_bytes, (uint64_t)((info->n_ctx + 63) / 64 * 64) * 4 * 2 * 2 * 32 * sizeof(float));
    ck_assert(info->work_bytes > 0 && info->weight_bytes > 6000000 && info->load_s > 0 && info->n_threads == 2);
    ck_assert_ptr_nonnull(strstr(info->device, "cpu"));
    ck_assert(info->device_reason[0]);
    ck_assert_uint_eq(forge_engine_n_placements(e), 0); /* nothing ran yet */
    ck_assert_ptr_null(forge_engine_placement(e, 0));
    struct forge_request_params p = request_params("One", 3);
    forge_request_free(generate(e, &p));
    size_t n = 0;
    bool attention = false;
    for (; (row = forge_engine_placement(e, n)) != NULL; n++) {
        ck_assert(row->calls > 0 && row->device[0]);
        if (strcmp(row->operation, "attention") == 0)
            attention = row->calls == 4 * 3; /* layers x (one prefill chunk and two decode passes) */
    }
    ck_assert(attention && n > 4 && n == forge_engine_n_placements(e));
    forge_engine_close(e);
}
END_TEST

/* Two instances of one device share a row, two devices have one each. */
START_TEST(placement_of_several_devices)
{
    static const struct { const char *device; size_t rows; } lists[] = {{"cpu", 1}, {"cpu,cpu", 1}, {"cpu,ref", 2}};
    uint64_t calls[3];
    for (size_t i = 0; i < 3; i++) {
        struct forge_engine_params ep = engine_params(TINY);
        const struct forge_placement *row;
        size_t n = 0;
        ep.device = lists[i].device;
        struct forge_engine *e = engine_with(&ep);
        struct forge_request_params p = request_params("One", 3);
        forge_request_free(generate(e, &p));
        calls[i] = 0;
        for (size_t k = 0; (row = forge_engine_placement(e, k)) != NULL; k++)
            if (strcmp(row->operation, "attention") == 0) {
                calls[i] += row->calls;
                n++;
            }
        ck_assert_uint_eq(n, lists[i].rows);
        forge_engine_close(e);
    }
    ck_assert(calls[0] == 4 * 3 && calls[1] == calls[0] && calls[2] == calls[0]);
}
END_TEST

START_TEST(threads_are_the_devices_own)
{
    struct forge_engine_params ep = engine_params(TINY);
    ep.device = "ref";
    struct forge_engine *e = engine_with(&ep);
    ck_assert_int_eq(forge_engine_info(e)->n_threads, 1);
    forge_engine_close(e);
}
END_TEST

START_TEST(memory_for_every_sequence)
{
    uint64_t bytes[2];
    for (int i = 0; i < 2; i++) {
        struct forge_engine_params ep = engine_params(TINY);
        ep.max_seqs = i ? 8 : 1;
        struct forge_engine *e = engine_with(&ep);
        bytes[i] = forge_engine_info(e)->kv_bytes;
        forge_engine_close(e);
    }
    ck_assert_uint_eq(8 * bytes[0], bytes[1]);
}
END_TEST

/* A caller compiled against a later header, with more at the end of the struct. */
START_TEST(later_parameters)
{
    struct { struct forge_engine_params p; uint64_t later[2]; } ep;
    struct { struct forge_request_params p; uint64_t later[2]; } rp[2];
    struct forge_engine *e;
    struct forge_request *r, *out[2];
    struct forge_error err = {0};
    forge_engine_params_init(&ep.p, sizeof ep);
    struct forge_engine_params good = engine_params(TINY);
    size_t size = ep.p.struct_size;
    ep.p = good;
    ep.p.struct_size = size;
    ep.later[1] = 1;
    ck_assert_int_eq(forge_engine_open(&e, &ep.p, &err), FORGE_ERR_UNSUPPORTED);
    ck_assert_msg(strstr(err.message, "does not know") != NULL, "%s", err.message);
    ep.later[1] = 0;
    ck_assert_int_eq(forge_engine_open(&e, &ep.p, &err), 0);
    for (int i = 0; i < 2; i++) {
        forge_request_params_init(&rp[i].p, sizeof rp[i]);
        rp[i].p.text = i ? "Monday, Tuesday," : "One";
        rp[i].p.max_tokens = 2 + i;
    }
    ck_assert_int_eq(forge_generate_batch(e, &rp[0].p, 2, out, &err), 0); /* by the caller's size */
    for (int i = 0; i < 2; i++) {
        size_t n;
        forge_request_ids(out[i], 0, &n);
        ck_assert_uint_eq(n, (size_t)(2 + i));
        forge_request_free(out[i]);
    }
    rp[0].later[0] = 1;
    ck_assert_int_eq(forge_submit(e, &rp[0].p, &r, &err), FORGE_ERR_UNSUPPORTED);
    forge_engine_close(e);
}
END_TEST

/* What lies on a device counts against its memory, not the host's, and the other way round. */
START_TEST(memory_by_device)
{
    static const struct load_need need = {.mapped = 1000, .copied = 10, .kv = 100, .work = 5, .tables = 3, .n_ctx = 64, .max_seqs = 1};
    static const struct { struct load_place places[2]; uint64_t host; const char *refused; } rows[] = {
        {{{"cpu", true, 0, 1}}, 118, NULL},
        {{{"cpu", true, 0, 1}}, 117, "the host"},
        {{{"cpu", true, 0, 1}}, 0, NULL},                              /* nothing is known */
        {{{"gpu", false, 105, 1}}, 13, NULL},                          /* only copies and tables are the host's */
        {{{"gpu", false, 105, 1}}, 12, "the host"},
        {{{"gpu", false, 104, 1}}, 1000000, "gpu"},
        {{{"gpu", false, 0, 1}}, 13, NULL},
        {{{"gpu", false, 80, 0.75}, {"cpu", true, 0, 0.25}}, 43, NULL}, /* 75 + 5; 25 + 5 + 10 + 3 */
        {{{"gpu", false, 79, 0.75}, {"cpu", true, 0, 0.25}}, 43, "gpu"},
        {{{"gpu", false, 80, 0.75}, {"cpu", true, 0, 0.25}}, 42, "the host"},
        {{{"cpu", true, 0, 0.5}, {"ref", true, 0, 0.5}}, 122, "the host"}, /* two workspaces */
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct err err = {0};
        int rc = load_check_places(&need, rows[i].places, rows[i].places[1].device ? 2 : 1, rows[i].host, &err);
        ck_assert_msg((rc == ERR_LIMIT) == (rows[i].refused != NULL), "row %zu: %d, %s", i, rc, err.msg);
        if (rows[i].refused)
            ck_assert_msg(strstr(err.msg, rows[i].refused) != NULL, "row %zu: %s", i, err.msg);
        ck_assert_msg(!rows[i].refused || (strstr(err.msg, "weights alone") != NULL) == (strcmp(rows[i].refused, "gpu") == 0),
                      "row %zu: %s", i, err.msg);
        ck_assert_ptr_null(strstr(err.msg, "kv_type"));
    }
}
END_TEST

/* Layers under a budget: a sixteenth of it is kept for what buffers are rounded up to. */
START_TEST(layers_that_fit)
{
    static const struct { uint64_t limit, fixed, layer; int64_t layers; } rows[] = {
        {1600, 0, 100, 15}, {1600, 500, 100, 10}, {1600, 500, 101, 9}, {1600, 1500, 1, 0}, {1600, 1499, 1, 1},
        {1600, UINT64_MAX, 1, 0}, {15, 14, 1, 1}, {0, 0, 1, 0}, {UINT64_MAX, 0, UINT64_MAX, 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        ck_assert_msg(load_layers_that_fit(rows[i].limit, rows[i].fixed, rows[i].layer) == rows[i].layers,
                      "row %zu: %lld", i, (long long)load_layers_that_fit(rows[i].limit, rows[i].fixed, rows[i].layer));
}
END_TEST

/* A failure without words or code is a failure all the same. */
START_TEST(failure_without_words)
{
    struct forge_error err = {0};
    struct err silent = {0};
    ck_assert_int_eq(engine_error(&err, ERR_IO, &silent), FORGE_ERR_IO);
    ck_assert_int_eq(err.code, FORGE_ERR_IO);
    ck_assert(err.message[0] != '\0');
    ck_assert_int_eq(engine_error(NULL, ERR_IO, &silent), FORGE_ERR_IO);
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

/* A page that several hold counts once, in what is held and in what is stored. */
START_TEST(shared_pages_count_once)
{
    struct forge_engine_params ep = engine_params("golden/models/qwen3");
    int32_t ids[48];
    ep.n_ctx = 128;
    ep.page_size = 16;
    ep.max_seqs = 5;
    struct forge_engine *e = engine_with(&ep);
    struct forge_request_params p = request_params(NULL, 5);
    for (int i = 0; i < 48; i++)
        ids[i] = 3 + i;
    p.ids = ids;
    p.n_ids = 37;
    p.ignore_eos = 1;
    p.n_samples = 4;
    struct forge_request *r, *q;
    ck_assert_int_eq(forge_submit(e, &p, &r, NULL), 0);
    const struct forge_engine_stats *s = forge_engine_stats(e);
    while (s->decode_rows == 0) { /* the prompt may take several steps */
        ck_assert_uint_eq(s->positions, (uint64_t)(s->prefill_rows));
        ck_assert_int_eq(forge_step(e, NULL), 1);
    }
    ck_assert_int_eq(s->running, 4);
    ck_assert_uint_eq(s->pages_held, 2 + 4);
    ck_assert_uint_eq(s->positions, 32 + 4 * 6);
    p.n_ids = 48; /* its first two pages are those, kept; then one of its own */
    p.n_samples = 1;
    ck_assert_int_eq(forge_submit(e, &p, &q, NULL), 0);
    ck_assert_int_eq(forge_step(e, NULL), 1);
    ck_assert_uint_eq(forge_request_metrics(q)->cached_tokens, 32);
    ck_assert_uint_eq(s->pages_held, 2 + 4 + 1);
    ck_assert_uint_eq(s->positions, 32 + 4 * 7 + 16);
    while (forge_step(e, NULL) > 0)
        ;
    ck_assert_uint_eq(s->pages_held + s->positions, 0);
    forge_request_free(r);
    forge_request_free(q);
    forge_engine_close(e);
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
    tcase_add_test(t, pages_of_q8_0);
    tcase_add_test(t, engines_refused);
    tcase_add_test(t, info_and_placement);
    tcase_add_test(t, failure_without_words);
    tcase_add_test(t, memory_by_device);
    tcase_add_test(t, shared_pages_count_once);
    tcase_add_test(t, layers_that_fit);
    tcase_add_test(t, placement_of_several_devices);
    tcase_add_test(t, threads_are_the_devices_own);
    tcase_add_test(t, memory_for_every_sequence);
    tcase_add_test(t, later_parameters);
    tcase_add_test(t, text_and_back);
    tcase_add_test(t, log_devices_names);
    suite_add_tcase(s, t);
    return test_main(s);
}
