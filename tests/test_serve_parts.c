/* Parts of the server without a connection: bodies, fields, keys, the words of
 * errors, and one line of the log.
 * Knows nothing of libmicrohttpd. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "serve/server.h"
#include "tests/test.h"

/* ---- bodies ---- */

static const struct {
    const char *bytes;
    size_t len; /* 0 = up to the NUL */
    const char *says;
} bodies[] = {
    {"", 0, "body: empty"},
    {"{\"a\":\xC3\xA9}", 0, "at byte 5"},
    {"{\"a\":\"\xFF\"}", 0, "not UTF-8 at byte 6"},
    {"{\"a\":\"\xED\xA0\x80\"}", 0, "not UTF-8 at byte 6"},
    {"{\"a\":\"b\nc\"}", 0, "byte 7"},
    {"{\"a\":\"\\x\"}", 0, "byte 6"},
    {"{\"a\":1}\0", 8, "byte 7"},
    {"{\"a\":1}{}", 0, "more text after the value at byte 7"},
    {"\"a\"", 0, "a JSON object, not a string"},
    {"null", 0, "a JSON object, not null"},
    {"[1]", 0, "a JSON object, not a list"},
};

START_TEST(a_body)
{
    struct exchange x = {.method = "POST"};
    struct api_error e = {0};
    size_t len = bodies[_i].len ? bodies[_i].len : strlen(bodies[_i].bytes);
    buf_init(&x.body);
    buf_put(&x.body, bodies[_i].bytes, len);
    ck_assert(fields_body(&x, &e) == NULL);
    ck_assert_int_eq(e.status, 400);
    ck_assert_msg(strstr(e.message, bodies[_i].says), "%s", e.message);
    buf_fini(&x.body);
}
END_TEST

/* ---- fields ---- */

struct values {
    double num;
    int64_t whole;
    bool flag;
};
static const struct field table[] = {
    {"num", FIELD_NUM, 0, 2, offsetof(struct values, num)},
    {"whole", FIELD_INT, -1, 9007199254740991.0, offsetof(struct values, whole)},
    {"flag", FIELD_BOOL, 0, 0, offsetof(struct values, flag)},
    {0},
};

static const struct {
    const char *json, *param, *says; /* param NULL = it is taken */
    struct values want;
} fields[] = {
    {"{}", NULL, NULL, {7, 7, true}},
    {"{\"num\":null,\"whole\":null,\"flag\":null,\"other\":[]}", NULL, NULL, {7, 7, true}},
    {"{\"num\":0,\"whole\":-1,\"flag\":false}", NULL, NULL, {0, -1, false}},
    {"{\"num\":2,\"whole\":9007199254740991}", NULL, NULL, {2, INT64_C(9007199254740991), true}},
    {"{\"whole\":1e3,\"num\":1,\"num\":0.5}", NULL, NULL, {0.5, 1000, true}},
    {"{\"num\":\"1\"}", "num", "a number, not a string", {0, 0, false}},
    {"{\"num\":true}", "num", "a number, not true or false", {0, 0, false}},
    {"{\"num\":[1]}", "num", "a number, not a list", {0, 0, false}},
    {"{\"num\":2.0001}", "num", "is 2.0001; it must be 0 to 2", {0, 0, false}},
    {"{\"num\":-1e-9}", "num", "0 to 2", {0, 0, false}},
    {"{\"num\":1e999}", "num", "a number, not inf", {0, 0, false}},
    {"{\"whole\":0.5}", "whole", "a whole number, not 0.5", {0, 0, false}},
    {"{\"whole\":{}}", "whole", "a whole number, not an object", {0, 0, false}},
    {"{\"whole\":9007199254740992}", "whole", "is 9007199254740992; it must be -1 to 9007199254740991", {0, 0, false}},
    {"{\"flag\":1}", "flag", "true or false, not a number", {0, 0, false}},
    {"{\"flag\":\"true\"}", "flag", "true or false, not a string", {0, 0, false}},
};

START_TEST(a_field)
{
    struct values v = {7, 7, true};
    struct api_error e = {0};
    cJSON *j;
    ck_assert_int_eq(json_parse(&j, fields[_i].json, strlen(fields[_i].json), "test", NULL), 0);
    bool ok = fields_read(table, j, &v, &e);
    cJSON_Delete(j);
    ck_assert_msg(ok == !fields[_i].param, "%s: %s", fields[_i].json, e.message);
    if (ok) {
        ck_assert(fabs(v.num - fields[_i].want.num) < 1e-12);
        ck_assert_int_eq(v.whole, fields[_i].want.whole);
        ck_assert_int_eq(v.flag, fields[_i].want.flag);
        return;
    }
    ck_assert_int_eq(e.status, 400);
    ck_assert_str_eq(e.param, fields[_i].param);
    ck_assert_msg(strstr(e.message, fields[_i].says), "%s", e.message);
}
END_TEST

START_TEST(ids)
{
    static const struct {
        const char *json, *says;
    } rows[] = {{"[]", NULL}, {"[0,2147483647]", NULL}, {"[0,-1]", "number 2"}, {"[2147483648]", "number 1"}, {"[1,2,1.5]", "number 3"},
                {"[\"1\"]", "number 1"}, {"[null]", "number 1"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct api_error e = {0};
        int32_t *list;
        size_t n;
        cJSON *j;
        ck_assert_int_eq(json_parse(&j, rows[i].json, strlen(rows[i].json), "test", NULL), 0);
        bool ok = fields_ids(j, "prompt", &list, &n, &e);
        ck_assert_msg(ok == !rows[i].says, "%s: %s", rows[i].json, e.message);
        ck_assert_msg(ok || (strcmp(e.param, "prompt") == 0 && strstr(e.message, rows[i].says)), "%s: %s", rows[i].json, e.message);
        if (ok)
            ck_assert_int_eq((int)n, cJSON_GetArraySize(j));
        free(list);
        cJSON_Delete(j);
    }
}
END_TEST

/* ---- keys ---- */

START_TEST(same_key)
{
    static const struct {
        const char *given, *key;
        bool same;
    } rows[] = {
        {"sesame", "sesame", true},  {"", "sesame", false},      {"sesam", "sesame", false},  {"sesame1", "sesame", false},
        {"Sesame", "sesame", false}, {"sesamf", "sesame", false}, {"abab", "ab", false},       {"aaaa", "a", false},
        {"a", "aaaa", false},        {"sesame ", "sesame", false}, {"s\xC3\xA9same", "s\xC3\xA9same", true},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        ck_assert_msg(access_same_key(rows[i].given, rows[i].key) == rows[i].same, "%s, %s", rows[i].given, rows[i].key);
}
END_TEST

/* ---- errors ---- */

START_TEST(engine_errors)
{
    static const struct {
        int code, status;
        bool in_its_words; /* about the request; else they may tell of files */
        const char *type, *word;
    } rows[] = {
        {FORGE_ERR_LIMIT, 400, true, "invalid_request_error", "context_length_exceeded"},
        {FORGE_ERR_ARG, 400, true, "invalid_request_error", NULL},
        {FORGE_ERR_UNSUPPORTED, 400, true, "invalid_request_error", NULL},
        {FORGE_ERR_FORMAT, 400, true, "invalid_request_error", NULL},
        {FORGE_ERR_NOMEM, 503, false, "server_error", NULL},
        {FORGE_ERR_DEVICE, 500, false, "server_error", NULL},
        {FORGE_ERR_NUMERIC, 500, false, "server_error", NULL},
        {FORGE_ERR_IO, 500, false, "server_error", NULL},
        {FORGE_ERR_INTERNAL, 500, false, "server_error", NULL},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct forge_error err = {.code = rows[i].code, .message = "/home/user/model.gguf: xyzzy"};
        struct api_error e = {0};
        struct buf b;
        cJSON *j;
        ck_assert(!api_fail_engine(&e, "prompt", &err));
        ck_assert_int_eq(e.status, rows[i].status);
        ck_assert_msg((strstr(e.message, "xyzzy") != NULL) == rows[i].in_its_words, "%d: %s", rows[i].code, e.message);
        buf_init(&b);
        error_json(&b, &e);
        ck_assert_int_eq(json_parse(&j, buf_str(&b), b.len, "error", NULL), 0);
        const cJSON *error = json_get(j, "error"), *code = cJSON_GetObjectItemCaseSensitive(error, "code");
        ck_assert_str_eq(json_get(error, "type")->valuestring, rows[i].type);
        if (rows[i].word)
            ck_assert_str_eq(code->valuestring, rows[i].word);
        else
            ck_assert(cJSON_IsNull(code));
        cJSON_Delete(j);
        buf_fini(&b);
    }
}
END_TEST

/* Names of fields come from outside, and may be of any length. */
START_TEST(words_are_clean)
{
    struct api_error e = {0};
    struct buf b;
    cJSON *j;
    char name[1000];
    memset(name, 'n', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    memcpy(name, "a\x1b[31m\xFF\"\n", 9);
    api_fail(&e, 400, name, "'%s' is wrong.", name);
    buf_init(&b);
    error_json(&b, &e);
    ck_assert_int_eq(json_parse(&j, buf_str(&b), b.len, "error", NULL), 0);
    const char *message = json_get(json_get(j, "error"), "message")->valuestring;
    for (const char *c = message; *c; c++)
        ck_assert((unsigned char)*c >= 0x20);
    ck_assert_uint_lt(strlen(message), sizeof e.message);
    cJSON_Delete(j);
    buf_fini(&b);
}
END_TEST

/* ---- the log ---- */

static void take_line(void *user, const char *line)
{
    buf_puts(user, line);
}

/* A path that nobody knows is not written down: it may be anything. */
START_TEST(log_line)
{
    struct buf line;
    cJSON *j;
    buf_init(&line);
    struct server s = {.p = {.log = take_line, .user = &line, .log_text = true}};
    struct exchange x = {.s = &s, .method = "PO\"ST", .reply = {.status = 404}, .gone = true};
    log_exchange(&x);
    ck_assert_int_eq(json_parse(&j, buf_str(&line), line.len, "log", NULL), 0);
    ck_assert_str_eq(json_get(j, "method")->valuestring, "PO\"ST");
    ck_assert(cJSON_GetObjectItemCaseSensitive(j, "route") && !json_get(j, "route"));
    ck_assert(json_get(j, "status")->valuedouble == 404);
    ck_assert(cJSON_IsTrue(json_get(j, "left")));
    ck_assert(!strchr(buf_str(&line), '\n'));
    cJSON_Delete(j);
    buf_fini(&line);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("serve_parts");
    TCase *tc = tcase_create("parts");
    tcase_add_loop_test(tc, a_body, 0, sizeof bodies / sizeof *bodies);
    tcase_add_loop_test(tc, a_field, 0, sizeof fields / sizeof *fields);
    tcase_add_test(tc, ids);
    tcase_add_test(tc, same_key);
    tcase_add_test(tc, engine_errors);
    tcase_add_test(tc, words_are_clean);
    tcase_add_test(tc, log_line);
    suite_add_tcase(s, tc);
    return test_main(s);
}
