/* Requests with a grammar or a schema: each text follows it, whatever else runs
 * and however it is sampled; what is wrong with one is told at submit.
 * OpenCL hangs in a child of a process that has touched it: main touches none. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/map.h"
#include "tests/engine_kit.h"
#include "tests/schema_kit.h"

static const char *const schemas[] = {
    "{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\",\"maxLength\":12},\"age\":{\"type\":\"integer\",\"minimum\":0,\"maximum\":120},"
    "\"tags\":{\"type\":\"array\",\"items\":{\"type\":\"string\",\"maxLength\":4},\"maxItems\":3}},\"required\":[\"name\",\"age\"],\"additionalProperties\":false}",
    "{\"type\":\"array\",\"items\":{\"anyOf\":[{\"type\":\"number\",\"minimum\":-1,\"maximum\":1},{\"type\":\"null\"}]},\"minItems\":1,\"maxItems\":4}",
    "{\"enum\":[\"red\",\"green\",3,null]}",
};
enum { N_SCHEMAS = sizeof schemas / sizeof *schemas };

static struct forge_request_params params(const char *schema, double temp, uint64_t seed)
{
    struct forge_request_params p = request_params("Once upon a time", 200);
    p.json_schema = schema;
    p.sampling.temp = temp;
    p.sampling.seed = seed;
    p.sampling.has_seed = 1;
    return p;
}

static void check_valid(const struct forge_request *r, int sample, const char *schema)
{
    cJSON *s, *v;
    size_t len;
    struct err err = {0};
    const char *text = forge_request_text(r, sample, &len);
    if (forge_request_finish(r, sample) == FORGE_FINISH_LENGTH)
        return;
    ck_assert_int_eq(forge_request_finish(r, sample), FORGE_FINISH_EOS);
    ck_assert_int_eq(json_parse(&s, schema, strlen(schema), "schema", NULL), 0);
    ck_assert_msg(json_parse(&v, text, len, "text", &err) == 0, "%s: %s", text, err.msg);
    ck_assert_msg(kit_valid(s, s, v), "%s: %s", schema, text);
    cJSON_Delete(s);
    cJSON_Delete(v);
}

START_TEST(valid)
{
    struct forge_engine *e = engine_of(TINY);
    for (int i = 0; i < N_SCHEMAS; i++)
        for (int t = 0; t < 4; t++) {
            struct forge_request_params p = params(schemas[i], 0.7 * t, (uint64_t)t);
            p.n_samples = t == 3 ? 8 : 1;
            p.ignore_eos = t == 2;
            p.sampling.repeat_penalty = t == 1 ? 1.2 : 1;
            struct forge_request *r = generate(e, &p);
            for (int k = 0; k < p.n_samples; k++)
                check_valid(r, k, schemas[i]);
            forge_request_free(r);
        }
    forge_engine_close(e);
}
END_TEST

/* Together, with few pages, so that some give theirs up: the text of each alone. */
START_TEST(together)
{
    struct forge_engine_params ep = engine_params(TINY);
    struct forge_engine *alone = engine_with(&ep);
    enum { N = 6 };
    struct forge_request_params p[N];
    struct forge_request *r[N];
    struct forge_error err = {0};
    ep.max_seqs = 4;
    ep.n_ctx = 256;
    ep.kv_mem = forge_engine_info(alone)->kv_bytes / (uint64_t)forge_engine_info(alone)->n_ctx * 320;
    struct forge_engine *e = engine_with(&ep);
    for (int i = 0; i < N; i++) {
        p[i] = params(i < 4 ? schemas[i % N_SCHEMAS] : NULL, i % 2 ? 1.3 : 0, (uint64_t)i);
        p[i].ignore_eos = i >= 4;
        p[i].n_samples = i == 3 ? 3 : 1;
    }
    ck_assert_msg(forge_generate_batch(e, p, N, r, &err) == 0, "%s", err.message);
    for (int i = 0; i < N; i++) {
        struct forge_request *one = generate(alone, &p[i]);
        for (int k = 0; k < p[i].n_samples; k++) {
            size_t a, b;
            const char *x = forge_request_text(r[i], k, &a), *y = forge_request_text(one, k, &b);
            ck_assert_msg(a == b && memcmp(x, y, a) == 0, "request %d: %s, not %s", i, x, y);
        }
        forge_request_free(one);
        forge_request_free(r[i]);
    }
    forge_engine_close(e);
    forge_engine_close(alone);
}
END_TEST

/* A grammar that allows all changes nothing, and log-probabilities are those of the raw logits. */
START_TEST(raw)
{
    struct forge_engine *e = engine_of(TINY);
    struct forge_request_params p = request_params("The capital of France is", 20);
    size_t n, m;
    p.n_logprobs = 3;
    struct forge_request *free_one = generate(e, &p);
    p.grammar = "root ::= .*";
    struct forge_request *any = generate(e, &p);
    ck_assert_str_eq(text_of(any), text_of(free_one));
    p.grammar = "root ::= \"zebra\" [a-z]*";
    struct forge_request *bound = generate(e, &p);
    ck_assert_int_eq(strncmp(text_of(bound), "zebra", 5), 0);
    const struct forge_logprob *x = forge_request_logprobs(free_one, 0, 0, &n), *y = forge_request_logprobs(bound, 0, 0, &m);
    ck_assert_uint_eq(n, m);
    ck_assert(memcmp(x + 1, y + 1, (n - 1) * sizeof *x) == 0);
    forge_request_free(free_one);
    forge_request_free(any);
    forge_request_free(bound);
    forge_engine_close(e);
}
END_TEST

START_TEST(refused)
{
    static const struct { const char *grammar, *schema, *message; } cases[] = {
        {"root ::= \"a\"", "{}", "both given"},
        {"root ::= x", NULL, "line 1, column 10"},
        {"root ::= \"a\" root", NULL, "no finite text"},
        {NULL, "{\"not\":{}}", "\"not\""},
        {NULL, "{\"type\":\"array\",\"items\":{\"oneOf\":[]}}", "#/items: the keyword \"oneOf\""},
        {NULL, "nonsense", "json_schema"},
    };
    struct forge_engine *e = engine_of(TINY);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct forge_request_params p = request_params("a", 4);
        struct forge_request *r;
        struct forge_error err = {0};
        p.grammar = cases[i].grammar;
        p.json_schema = cases[i].schema;
        int rc = forge_submit(e, &p, &r, &err);
        ck_assert_msg(rc == FORGE_ERR_ARG || i == 5, "case %zu: %d", i, rc);
        ck_assert_msg(rc < 0 && !r && strstr(err.message, cases[i].message), "case %zu: %s", i, err.message);
    }
    forge_engine_close(e);
}
END_TEST

/* An end id that is a text of its own, too: where the text may not end, it is none of those that may come. */
START_TEST(end_that_is_a_text)
{
    struct forge_engine_params ep = engine_params(TINY "/model.safetensors");
    struct forge_request_params p = request_params("Once", 4);
    struct forge_error err = {0};
    struct forge_request *r;
    cJSON *config = test_json(TINY "/config.json");
    cJSON_SetNumberHelper(cJSON_GetObjectItem(config, "eos_token_id"), 77); /* "n" */
    char *text = cJSON_PrintUnformatted(config);
    ep.config = test_tmp("config.json");
    ck_assert_int_eq(path_replace(ep.config, text, strlen(text), NULL, 0, NULL), 0);
    p.grammar = "root ::= \"nq\""; /* that is no id, "n" is */
    struct forge_engine *e = engine_with(&ep);
    ck_assert_int_lt(forge_generate(e, &p, &r, &err), 0);
    ck_assert_msg(strstr(err.message, "the grammar allows no token here") != NULL, "%s", err.message);
    forge_request_free(r);
    forge_engine_close(e);
    cJSON_free(text);
    cJSON_Delete(config);
}
END_TEST

/* More grammars than are kept, used again, with requests that still hold theirs. */
START_TEST(many_grammars)
{
    struct forge_engine *e = engine_of(TINY);
    struct forge_request *r[24];
    struct forge_error err = {0};
    char text[24][64];
    for (int i = 0; i < 24; i++) {
        struct forge_request_params p = request_params("a", 8);
        snprintf(text[i], sizeof text[i], "root ::= \"n%d\"", i % 15);
        p.grammar = text[i];
        ck_assert_msg(forge_submit(e, &p, &r[i], &err) == 0, "%s", err.message);
    }
    while (forge_step(e, &err) > 0)
        ;
    for (int i = 0; i < 24; i++) {
        ck_assert_int_eq(strncmp(text_of(r[i]), text[i] + 10, strlen(text_of(r[i]))), 0);
        ck_assert_uint_eq(strlen(text_of(r[i])), strlen(text[i]) - 11);
        forge_request_free(r[i]);
    }
    forge_engine_close(e);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("constrain");
    TCase *t = tcase_create("all");
    tcase_set_timeout(t, 120);
    tcase_add_test(t, valid);
    tcase_add_test(t, together);
    tcase_add_test(t, raw);
    tcase_add_test(t, refused);
    tcase_add_test(t, end_that_is_a_text);
    tcase_add_test(t, many_grammars);
    suite_add_tcase(s, t);
    return test_main(s);
}
