/* base/json: what is refused, with its byte position; what survives; the
 * typed readers.
 *
 * Texts are copied to blocks of their exact size: a read past the end is a finding. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/map.h"
#include "base/mem.h"
#include "tests/test.h"

#define COUNT(a) (int)(sizeof(a) / sizeof((a)[0]))

static const struct {
    const char *text;
    size_t len; /* 0 = strlen */
    const char *say; /* NULL = accepted */
} parse_cases[] = {
    {"{}", 0, NULL},
    {" [1, -2.5e+3, true, null, \"x\"] \n", 0, NULL},
    {"\xEF\xBB\xBF{\"a\":1}", 0, NULL},
    {"0", 0, NULL},
    {"-0.0", 0, NULL},
    {"\"\\u00e9\\ud83d\\ude00\\\\u0000\"", 0, NULL},
    {"", 0, "empty"},
    {" ", 0, "malformed JSON at byte"},
    {"{", 0, "an object or a list without an end at byte 1"},
    {"{\"a\":1", 0, "an object or a list without an end at byte 6"},
    {"[[\"\\u0000\"], ", 0, "an object or a list without an end at byte 13"},
    {"[1,]", 0, "malformed JSON at byte 3"},
    {"[1 2]", 0, "malformed JSON at byte 3"},
    {"{} x", 0, "more text after the value at byte 3"},
    {"{}{}", 0, "more text after the value at byte 2"},
    {"[\"\\u0000\"] x", 0, "more text after the value at byte 11"},
    {"{}\0", 3, "control character at byte 2"},
    {"[1,\x0b" "2]", 0, "control character at byte 3"},
    {"[\"a\nb\"]", 0, "control character in a string at byte 3"},
    {"[\"a\xFF\"]", 0, "not UTF-8 at byte 3"},
    {"[\"\xC0\x80\"]", 0, "not UTF-8 at byte 2"},
    {"[\"\xED\xA0\x80\"]", 0, "not UTF-8 at byte 2"},
    {"[\"abc", 0, "string without an end at byte 1"},
    {"[\"abc\\", 0, "unknown escape at byte 5"},
    {"[\"\\x41\"]", 0, "unknown escape at byte 2"},
    {"[\"\\uZZZZ\"]", 0, "hexadecimal digits at byte 2"},
    {"[\"\\u00", 0, "hexadecimal digits at byte 2"},
    {"[\"\\ud800\"]", 0, "half of a surrogate pair at byte 2"},
    {"[\"\\ud83dx\\ude00\"]", 0, "half of a surrogate pair at byte 2"},
    {"[\"\\ud83d\\ud83d\"]", 0, "half of a surrogate pair at byte 2"},
    {"[\"\\uDc00\"]", 0, "half of a surrogate pair at byte 2"},
    {"[01]", 0, "malformed number at byte 1"},
    {"[1.]", 0, "malformed number at byte 1"},
    {"[.5]", 0, "malformed JSON at byte 1"},
    {"[-]", 0, "malformed number at byte 1"},
    {"[+1]", 0, "malformed JSON at byte 1"},
    {"[1e]", 0, "malformed number at byte 1"},
    {"[1e+]", 0, "malformed number at byte 1"},
    {"[1111111111111111111111111111111111111111111111111111111111111]", 0, "60 characters at byte 1"},
    {"[NaN]", 0, "malformed JSON at byte 1"},
    {"[Infinity]", 0, "malformed JSON at byte 1"},
    {"{'a':1}", 0, "malformed JSON at byte"},
    {"{\"a\" 1}", 0, "malformed JSON at byte 5"},
    {"nul", 0, "malformed JSON at byte 0"},
    {"\\u0000", 0, "malformed number at byte 2"},
    {"[\"\\u0000\", \\\"]", 0, "string without an end at byte 12"},
    {"[\"\\u0000\", \\n]", 0, "malformed JSON at byte 11"},
};

START_TEST(parse)
{
    const char *text = parse_cases[_i].text;
    size_t len = parse_cases[_i].len ? parse_cases[_i].len : strlen(text);
    struct err e = {0};
    char *exact = mem_array(len, 1); /* no byte behind it, for the sanitizer */
    memcpy(exact, text, len);
    cJSON *root;
    json_parse(&root, exact, len, "file.json", &e);
    if (!parse_cases[_i].say) {
        ck_assert_msg(root != NULL, "%s: %s", text, e.msg);
    } else {
        ck_assert_msg(root == NULL, "%s: accepted", text);
        ck_assert_int_eq(e.code, ERR_FORMAT);
        ck_assert_msg(strstr(e.msg, "file.json: ") == e.msg, "%s", e.msg);
        ck_assert_msg(strstr(e.msg, parse_cases[_i].say), "%s: %s", text, e.msg);
        ck_assert_int_eq(json_parse(&root, exact, len, "x", NULL), ERR_FORMAT);
        ck_assert_ptr_null(root);
    }
    cJSON_Delete(root);
    free(exact);
}
END_TEST

/* A text cut anywhere is refused or is a whole value; never read past its end. */
START_TEST(parse_cut)
{
    static const char text[] = "{\"a\":[1.5e3,-2,\"\\u0000\\n\xC3\xA9\\ud83d\\ude00\",{\"b\":null}],\"c\":true}";
    size_t len = sizeof text - 1;
    for (size_t n = 0; n <= len; n++) {
        char *exact = mem_array(n, 1);
        memcpy(exact, text, n);
        cJSON *root;
        json_parse(&root, exact, n, "cut", NULL);
        ck_assert_msg((root != NULL) == (n == len), "first %zu bytes", n);
        cJSON_Delete(root);
        free(exact);
    }
}
END_TEST

START_TEST(parse_depth)
{
    struct buf b;
    struct err e;
    for (int depth = JSON_DEPTH_MAX; depth <= JSON_DEPTH_MAX + 1; depth++) {
        buf_init(&b);
        for (int i = 0; i < depth; i++)
            buf_puts(&b, i % 2 ? "{\"[[[\":" : "[");
        buf_putc(&b, '1');
        for (int i = depth; i-- > 0;)
            buf_putc(&b, i % 2 ? '}' : ']');
        cJSON *root;
        json_parse(&root, b.data, b.len, "deep", &e);
        ck_assert_int_eq(root != NULL, depth == JSON_DEPTH_MAX);
        cJSON_Delete(root);
        buf_fini(&b);
    }
    ck_assert_msg(strstr(e.msg, "nested too deeply"), "%s", e.msg);
    buf_init(&b);
    for (int i = 0; i < 1000000; i++)
        buf_putc(&b, '[');
    cJSON *none;
    ck_assert_int_eq(json_parse(&none, b.data, b.len, "deep", &e), ERR_FORMAT);
    ck_assert_ptr_null(none);
    buf_fini(&b);
}
END_TEST

static const struct {
    const char *text, *value;
    size_t len;
} str_cases[] = {
    {"\"\"", "", 0},
    {"\"abc\"", "abc", 3},
    {"\"a\\u0000b\"", "a\0b", 3},
    {"\"\\u0000\"", "\0", 1},
    {"\"\\u0000\\u0000x\\u0000\"", "\0\0x\0", 4},
    {"\"\\\\u0000\"", "\\u0000", 6},
    {"\"\\\\\\u0000\"", "\\\0", 2},
    {"\"\\\\\\\\u0000\\u0000\"", "\\\\u0000\0", 8},
    {"\"\\\"\\u0000\"", "\"\0", 2},
    {"\"\\u00e9\\ud83d\\ude00\\/\\t\"", "\xC3\xA9\xF0\x9F\x98\x80/\t", 8},
    {"\"\\u00000\"", "\0" "0", 2},
};

START_TEST(strings)
{
    struct err e = {0};
    struct buf b;
    cJSON *root;
    json_parse(&root, str_cases[_i].text, strlen(str_cases[_i].text), "s", &e);
    ck_assert_msg(root != NULL, "%s", e.msg);
    buf_init(&b);
    buf_put(&b, "", 0);
    ck_assert(json_str(root, &b));
    ck_assert_uint_eq(b.len, str_cases[_i].len);
    ck_assert_mem_eq(b.data, str_cases[_i].value, b.len);
    ck_assert(!json_str(NULL, &b));
    cJSON_Delete(root);
    buf_fini(&b);
}
END_TEST

static const char members[] =
    "{\"n\":null,\"i\":7,\"I\":8,\"f\":1.5,\"big\":9007199254740993,\"max\":9007199254740992,"
    "\"huge\":1e999,\"neg\":-3,\"b\":true,\"no\":false,\"s\":\"txt\",\"nul\":\"a\\u0000b\",\"twice\":1,"
    "\"twice\":2,\"o\":{}}";

static const struct {
    const char *key;
    int64_t min, max;
    int rc;
    int64_t value; /* 42 = left alone */
} int_cases[] = {
    {"i", 0, 10, 0, 7},          {"I", 0, 10, 0, 8},         {"absent", 0, 10, 0, 42},
    {"n", 0, 10, 0, 42},         {"f", 0, 10, ERR_FORMAT, 42}, {"s", 0, 10, ERR_FORMAT, 42},
    {"b", 0, 10, ERR_FORMAT, 42}, {"i", 8, 10, ERR_FORMAT, 42}, {"i", 0, 6, ERR_FORMAT, 42},
    {"neg", -3, 0, 0, -3},       {"huge", INT64_MIN, INT64_MAX, ERR_FORMAT, 42},
    {"max", INT64_MIN, INT64_MAX, 0, INT64_C(1) << 53}, {"twice", 0, 9, 0, 2},
};

START_TEST(read_int)
{
    struct err e = {0};
    int64_t v = 42;
    cJSON *root;
    json_parse(&root, members, sizeof members - 1, "m", &e);
    ck_assert_msg(root != NULL, "%s", e.msg);
    ck_assert_int_eq(json_get_i64(root, int_cases[_i].key, int_cases[_i].min, int_cases[_i].max, &v,
                                  "config.json", &e), int_cases[_i].rc);
    ck_assert_int_eq(v, int_cases[_i].value);
    if (int_cases[_i].rc) {
        ck_assert_msg(strstr(e.msg, "config.json: ") == e.msg, "%s", e.msg);
        ck_assert_msg(strstr(e.msg, int_cases[_i].key), "%s", e.msg);
    }
    cJSON_Delete(root);
}
END_TEST

START_TEST(read_others)
{
    struct err e = {0};
    double f = 42;
    bool b = false;
    const char *s = NULL;
    cJSON *root;
    json_parse(&root, members, sizeof members - 1, "m", &e);
    ck_assert_int_eq(json_get_f64(root, "f", &f, "m", &e), 0);
    ck_assert(fabs(f - 1.5) < 1e-12);
    ck_assert_int_eq(json_get_f64(root, "i", &f, "m", &e), 0);
    ck_assert(fabs(f - 7) < 1e-12);
    ck_assert_int_eq(json_get_f64(root, "n", &f, "m", &e), 0);
    ck_assert_int_eq(json_get_f64(root, "s", &f, "m", &e), ERR_FORMAT);
    ck_assert_str_eq(e.msg, "m: s must be a number");
    ck_assert_int_eq(json_get_f64(root, "huge", &f, "m", &e), ERR_FORMAT);
    ck_assert(fabs(f - 7) < 1e-12);
    ck_assert_int_eq(json_get_bool(root, "b", &b, "m", &e), 0);
    ck_assert(b);
    ck_assert_int_eq(json_get_bool(root, "no", &b, "m", &e), 0);
    ck_assert(!b);
    ck_assert_int_eq(json_get_bool(root, "i", &b, "m", &e), ERR_FORMAT);
    ck_assert_int_eq(json_get_bool(root, "absent", &b, "m", &e), 0);
    ck_assert_int_eq(json_get_str(root, "absent", &s, "m", &e), 0);
    ck_assert_ptr_null(s);
    ck_assert_int_eq(json_get_str(root, "s", &s, "m", &e), 0);
    ck_assert_str_eq(s, "txt");
    ck_assert_int_eq(json_get_str(root, "nul", &s, "m", &e), ERR_FORMAT);
    ck_assert_int_eq(json_get_str(root, "o", &s, "m", &e), ERR_FORMAT);
    ck_assert_str_eq(s, "txt");
    ck_assert_ptr_null(json_get(root, "n"));
    ck_assert_ptr_null(json_get(root, "S"));
    ck_assert_ptr_null(json_get(NULL, "s"));
    ck_assert_ptr_null(json_get(json_get(root, "s"), "s"));
    cJSON_Delete(root);
}
END_TEST

START_TEST(files)
{
    struct err e = {0};
    cJSON *none;
    ck_assert_int_eq(json_parse_file(&none, "no/such.json", &e), ERR_IO);
    ck_assert_ptr_null(none);
    ck_assert_int_eq(e.code, ERR_IO);
    const char *path = test_tmp("x.json");
    FILE *f = fopen(path, "wb");
    ck_assert_ptr_nonnull(f);
    ck_assert_int_eq(fclose(f), 0);
    ck_assert_int_eq(json_parse_file(&none, path, &e), ERR_FORMAT);
    ck_assert_int_eq(e.code, ERR_FORMAT);
    ck_assert_msg(strstr(e.msg, path) && strstr(e.msg, "empty"), "%s", e.msg);
    cJSON *root = test_json("golden/quant/index.json");
    ck_assert_ptr_nonnull(json_get(root, "types"));
    cJSON_Delete(root);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("json");
    TCase *c = tcase_create("json");
    tcase_add_loop_test(c, parse, 0, COUNT(parse_cases));
    tcase_add_test(c, parse_cut);
    tcase_add_test(c, parse_depth);
    tcase_add_loop_test(c, strings, 0, COUNT(str_cases));
    tcase_add_loop_test(c, read_int, 0, COUNT(int_cases));
    tcase_add_test(c, read_others);
    tcase_add_test(c, files);
    suite_add_tcase(s, c);
    return test_main(s);
}
