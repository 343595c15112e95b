/* JSON schemas as grammars: texts that are let through and texts that are not,
 * keywords that are refused by name, numbers between bounds against arithmetic,
 * and random texts against a validator that knows nothing of grammars. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "tests/schema_kit.h"
#include "tests/test.h"
#include "text/json_schema.h"

static struct grammar *schema(const char *text)
{
    struct grammar *g;
    struct err err = {0};
    test_that(grammar_from_schema(&g, text, strlen(text), &err) == 0, "%s: %s", text, err.msg);
    return g;
}

static bool accepts(struct grammar *g, const char *text)
{
    struct matcher m = {0};
    matcher_begin(&m, g);
    bool ok = matcher_accept(&m, text, strlen(text), NULL) == 1 && matcher_may_end(&m);
    matcher_end(&m);
    return ok;
}

enum { TEXTS = 10 };
static const struct table { const char *schema, *yes[TEXTS], *no[TEXTS]; } tables[] = {
    {"{}", {"1", "null", "\"x\"", "[1, {\"a\":[]}]", "{\"a\":{}}", "-0.5e-7", "[\n  1,\n  2\n]"}, {"", "x", "[1,]", "{\"a\"}", "01", " 1", "1 ", "+1", "[1  ,2]"}},
    {"true", {"false", "{}"}, {"tru"}},
    {"{\"type\":\"object\"}", {"{}", "{ }", "{\"a\": 1,\"b\":[true]}", "{\n\t\"a\":\n\tnull\n}"}, {"[]", "1", "{\"a\":1,}", "{a:1}", "{\"a\" :1}", "{,}"}},
    {"{\"type\":\"string\"}",
     {"\"\"", "\"a b\"", "\"\\n\\\"\\\\\\/\"", "\"\\u00e9\\uD83d\\uDE00\"", "\"\xF0\x9F\x98\x80\"", "\"\\u0001\\u0100\\uFFFF\"", "\"\x7F\""},
     {"\"", "\"a", "\"\n\"", "\"\\x\"", "\"\\u12\"", "\"\\uD800\"", "\"\\uDC00\"", "\"\\uD800\\u0041\"", "\"\\u0000\"", "\"\xFF\""}},
    {"{\"type\":\"string\",\"minLength\":2,\"maxLength\":3}", {"\"ab\"", "\"\xC3\xA9\\n\\u0041\"", "\"\\uD83D\\uDE00x\""}, {"\"a\"", "\"abcd\"", "\"\\n\""}},
    {"{\"type\":\"string\",\"maxLength\":0}", {"\"\""}, {"\"a\""}},
    {"{\"type\":\"integer\"}", {"0", "-1", "123456789012345678"}, {"-0", "01", "1.0", "1e3", "", "-", "1234567890123456789"}},
    {"{\"type\":\"number\"}", {"0", "-0", "1.5", "1e5", "2E-10", "0.00"}, {".5", "1.", "1e", "00", "1e100", "NaN"}},
    {"{\"type\":[\"boolean\",\"null\"]}", {"true", "false", "null"}, {"0", "\"true\""}},
    {"{\"enum\":[\"a\",1,null,[1,2],{\"b\":\"\\n\"}]}", {"\"a\"", "1", "null", "[1,2]", "{\"b\":\"\\n\"}"}, {"a", "2", "[1, 2]"}},
    {"{\"type\":\"integer\",\"enum\":[\"a\",1,2.5,3]}", {"1", "3"}, {"\"a\"", "2.5"}},
    {"{\"const\":null}", {"null"}, {"1"}},
    {"{\"type\":\"array\",\"items\":{\"type\":\"integer\"},\"minItems\":1,\"maxItems\":3}", {"[1]", "[1,2]", "[ 1, 2, 3 ]"}, {"[]", "[1,2,3,4]", "[\"a\"]", "[1 2]"}},
    {"{\"type\":\"array\",\"maxItems\":0}", {"[]", "[ ]"}, {"[1]"}},
    {"{\"type\":\"array\",\"minItems\":2}", {"[1,2]", "[1,2,3,4,5,6,7]"}, {"[]", "[1]"}},
    {"{\"type\":\"array\",\"items\":false}", {"[]"}, {"[1]"}},
    {"{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"},\"b\":{\"type\":\"null\"},\"c\":{}},\"required\":[\"b\"]}",
     {"{\"b\":null}", "{\"a\":1,\"b\":null}", "{\"a\":1, \"b\": null, \"c\": [] }", "{\"b\":null,\"c\":2}"},
     {"{}", "{\"a\":1}", "{\"b\":null,\"a\":1}", "{\"b\":1}", "{\"b\":null,\"d\":1}", "{\"b\":null,\"b\":null}", "{,\"b\":null}"}},
    {"{\"type\":\"object\",\"properties\":{\"a\":{},\"b\":{}},\"additionalProperties\":false}", {"{}", "{\"a\":1}", "{\"b\":1}", "{\"a\":1,\"b\":2}"}, {"{\"c\":1}", "{\"a\":1,}"}},
    {"{\"type\":\"object\",\"properties\":{\"ab\":{\"const\":1},\"a\\u00e9\":{\"const\":2}},\"additionalProperties\":{\"type\":\"boolean\"}}",
     {"{\"ab\":1}", "{\"ab\":1,\"a\xC3\xA9\":2,\"x\":true}", "{\"a\":true}", "{\"abc\":true}", "{\"\":false}", "{\"a\xC3\xAA\":true,\"b\":false}"},
     {"{\"ab\":true}", "{\"a\xC3\xA9\":true}", "{\"x\":1}", "{\"x\":true,\"ab\":true}", "{\"\\u0061b\":true}"}},
    {"{\"type\":\"object\",\"required\":[\"x\"],\"additionalProperties\":{\"const\":7}}", {"{\"x\":7}", "{\"x\":7,\"y\":7}"}, {"{}", "{\"y\":7}", "{\"x\":8}"}},
    {"{\"type\":\"object\",\"properties\":{}}", {"{}"}, {"{\"a\":1}"}},
    {"{\"type\":\"object\",\"properties\":{\"q\\\"\\n\\u0001\":{\"const\":1}}}", {"{\"q\\\"\\n\\u0001\":1}"}, {"{\"q\":1}"}},
    {"{\"anyOf\":[{\"type\":\"integer\"},{\"type\":\"string\",\"maxLength\":1}]}", {"1", "\"a\"", "\"\""}, {"\"ab\"", "1.5", "null"}},
    {"{\"$ref\":\"#/definitions/a~1b\",\"definitions\":{\"a/b\":{\"const\":1}}}", {"1"}, {"2"}},
    {"{\"$ref\":\"#/%24%64efs/a%20b%2fc\",\"$defs\":{\"a b\":{\"c\":{\"const\":1}}}}", {"1"}, {"2"}},
    {"{\"$ref\":\"#/$defs/a%25\",\"$defs\":{\"a%\":{\"const\":1}}}", {"1"}, {"2"}},
    {"{\"properties\":{\"a\":{\"$id\":\"x\",\"$ref\":\"#/$defs/n\",\"$defs\":{\"n\":{\"const\":1}}},\"b\":{\"$ref\":\"#/$defs/n\"},"
     "\"c\":{\"$ref\":\"#/properties/a/$defs/n\"},\"d\":{\"$ref\":\"#/properties/a\"}},\"$defs\":{\"n\":{\"const\":2}}}",
     {"{\"a\":1,\"b\":2,\"c\":1,\"d\":1}"}, {"{\"a\":2}", "{\"b\":1}", "{\"c\":2}", "{\"d\":2}"}},
    {"{\"$defs\":{\"n\":{\"type\":\"object\",\"properties\":{\"v\":{\"const\":1},\"n\":{\"$ref\":\"#/$defs/n\"}},\"required\":[\"v\"],\"title\":\"t\"}},\"$ref\":\"#/$defs/n\",\"$id\":\"x\"}",
     {"{\"v\":1}", "{\"v\":1,\"n\":{\"v\":1,\"n\":{\"v\":1}}}"}, {"{}", "{\"v\":1,\"n\":{}}", "{\"n\":{\"v\":1}}"}},
    {"{\"properties\":{\"a\":{\"const\":1}}}", {"{\"a\":1}", "{}"}, {"1", "[]"}},
    {"{\"minimum\":1,\"maximum\":2,\"maxLength\":1}", {"1.5", "\"a\""}, {"null", "3", "\"ab\""}},
    {"{\"type\":\"string\",\"pattern\":\"^[a-c]{2}-\\\\d+$\"}", {"\"ab-1\"", "\"cc-123\""}, {"\"ab-\"", "\"abc-1\"", "\"ab-1x\"", "ab-1"}},
    {"{\"type\":\"string\",\"pattern\":\"b\"}", {"\"b\"", "\"abc\"", "\"\\nb\""}, {"\"\"", "\"ac\""}},
    {"{\"type\":\"string\",\"pattern\":\"^a|b$\"}", {"\"a\"", "\"ax\"", "\"xb\""}, {"\"x\"", "\"bx\"", "\"xa\""}},
    {"{\"type\":\"string\",\"pattern\":\"^(?:x|[^\\\"\\\\w]\\\\.?)*$\"}", {"\"\"", "\"x\"", "\"-.\"", "\"!x\""}, {"\"a\"", "\"\\\"\"", "\"y\""}},
    {"{\"type\":\"string\",\"pattern\":\"^[\\\"\\\\\\\\\\\\n]+$\"}", {"\"\\\"\"", "\"\\\\\\n\""}, {"\"n\"", "\"\"", "\"\\\""}},
    {"{\"type\":\"string\",\"pattern\":\"^.\\\\u00e9\\\\x41\\\\$$\"}", {"\"x\xC3\xA9""A$\"", "\"\\t\xC3\xA9""A$\""}, {"\"\\n\xC3\xA9""A$\""}},
    {"{\"type\":\"number\",\"minimum\":0.25,\"maximum\":1.5}", {"0.25", "1", "1.50", "0.9999", "1.0"}, {"0.2499", "1.51", "0", "2", "-1", "1e0", "0.2"}},
    {"{\"type\":\"number\",\"exclusiveMinimum\":-1,\"exclusiveMaximum\":0.5}", {"-0.999", "0", "-0", "0.4999"}, {"-1", "-1.0", "0.5", "0.50", "1"}},
};

START_TEST(texts)
{
    const struct table *t = &tables[_i];
    struct grammar *g = schema(t->schema);
    for (int i = 0; i < TEXTS && t->yes[i]; i++)
        ck_assert_msg(accepts(g, t->yes[i]), "%s: refuses %s", t->schema, t->yes[i]);
    for (int i = 0; i < TEXTS && t->no[i]; i++)
        ck_assert_msg(!accepts(g, t->no[i]), "%s: accepts %s", t->schema, t->no[i]);
    grammar_free(g);
}
END_TEST

static const struct { const char *schema, *message; } errors[] = {
    {"", "empty where JSON is needed"},
    {"{", "without an end"},
    {"[]", "#: a schema must be an object"},
    {"{\"not\":{}}", "the keyword \"not\" is not supported"},
    {"{\"type\":\"object\",\"properties\":{\"a\":{\"oneOf\":[]}}}", "#/properties/a: the keyword \"oneOf\" is not supported"},
    {"{\"type\":\"array\",\"items\":{\"anyOf\":[{},{\"allOf\":[]}]}}", "#/items/anyOf/1: the keyword \"allOf\""},
    {"{\"multipleOf\":2}", "\"multipleOf\""},
    {"{\"patternProperties\":{}}", "\"patternProperties\""},
    {"{\"type\":\"array\",\"prefixItems\":[]}", "\"prefixItems\""},
    {"{\"uniqueItems\":true}", "\"uniqueItems\""},
    {"{\"Type\":\"string\"}", "the keyword \"Type\""},
    {"{\"properties\":{\"a\":{\"$id\":\"#x\"}}}", "\"$id\""},
    {"{\"properties\":{\"a\":{\"$id\":\"x/y\",\"items\":{\"oneOf\":[]}}}}", "json_schema: x/y#/items: the keyword \"oneOf\""},
    {"{\"properties\":{\"a\":{\"$id\":\"x\",\"$ref\":\"#/$defs/n\"}},\"$defs\":{\"n\":{}}}", "x#: $ref \"#/$defs/n\" names nothing"},
    {"{\"$ref\":\"#/$defs/a%2\",\"$defs\":{\"a%2\":{}}}", "names nothing"},
    {"{\"$ref\":\"#/$defs/a%00\",\"$defs\":{\"a\":{}}}", "names nothing"},
    {"{\"type\":\"float\"}", "type must be one of"},
    {"{\"type\":[]}", "type is an empty list"},
    {"{\"type\":3}", "type must be one of"},
    {"{\"enum\":[]}", "enum must be a list that is not empty"},
    {"{\"enum\":[9007199254740993]}", "2^53 or beyond"},
    {"{\"const\":\"\\u0000\"}", "NUL"},
    {"{\"enum\":[1],\"minimum\":0}", "\"minimum\" beside \"enum\""},
    {"{\"enum\":[1],\"const\":1}", "beside"},
    {"{\"anyOf\":[{}],\"type\":\"string\"}", "\"type\" beside \"anyOf\""},
    {"{\"anyOf\":{}}", "anyOf must be a list"},
    {"{\"$ref\":\"#/$defs/x\"}", "names nothing in this schema"},
    {"{\"$ref\":\"http://x/y\"}", "names nothing"},
    {"{\"$ref\":3}", "$ref must be a text"},
    {"{\"$ref\":\"#\"}", "no finite text"},
    {"{\"type\":\"object\",\"properties\":{\"a\":{\"$ref\":\"#\"}},\"required\":[\"a\"]}", "no finite text"},
    {"{\"type\":\"object\",\"properties\":[]}", "properties must be an object"},
    {"{\"type\":\"object\",\"properties\":{\"a\":3}}", "#/properties/a: a schema must be"},
    {"{\"type\":\"object\",\"required\":\"a\"}", "required must be a list"},
    {"{\"type\":\"object\",\"required\":[\"a\"],\"additionalProperties\":false}", "required names \"a\", which is no property"},
    {"{\"type\":\"object\",\"additionalProperties\":3}", "additionalProperties must be"},
    {"{\"type\":\"array\",\"items\":[{}]}", "items must be one schema"},
    {"{\"type\":\"array\",\"minItems\":-1}", "minItems must be a whole number"},
    {"{\"type\":\"array\",\"minItems\":3,\"maxItems\":2}", "no finite text"},
    {"{\"type\":\"string\",\"maxLength\":1.5}", "maxLength must be a whole number"},
    {"{\"type\":\"string\",\"maxLength\":\"3\"}", "maxLength must be a whole number"},
    {"{\"type\":\"integer\",\"minimum\":2,\"maximum\":1}", "no finite text"},
    {"{\"type\":\"integer\",\"minimum\":\"2\"}", "minimum must be a number"},
    {"{\"type\":\"integer\",\"minimum\":1,\"exclusiveMinimum\":true}", "exclusiveMinimum must be a number"},
    {"{\"type\":\"string\",\"pattern\":3}", "pattern must be a text"},
    {"{\"type\":\"string\",\"pattern\":\"a\",\"minLength\":1}", "\"pattern\" beside \"minLength\""},
    {"{\"type\":\"string\",\"pattern\":\"(?=a)\"}", "pattern, byte 1"},
    {"{\"type\":\"string\",\"pattern\":\"(a)\\\\1\"}", "this escape is not supported"},
    {"{\"type\":\"string\",\"pattern\":\"a\\\\b\"}", "this escape is not supported"},
    {"{\"type\":\"string\",\"pattern\":\"a^\"}", "^ and $ are supported at the ends"},
    {"{\"type\":\"string\",\"pattern\":\"(a\"}", "without its closing bracket"},
    {"{\"type\":\"string\",\"pattern\":\"a)\"}", "a closing bracket without a group"},
    {"{\"type\":\"string\",\"pattern\":\"[a\"}", "without its closing bracket"},
    {"{\"type\":\"string\",\"pattern\":\"[b-a]\"}", "no range"},
    {"{\"type\":\"string\",\"pattern\":\"a**\"}", "two repetitions"},
    {"{\"type\":\"string\",\"pattern\":\"*\"}", "a repetition of nothing"},
    {"{\"type\":\"string\",\"pattern\":\"a{99999999}\"}", "more than 1000000 times"},
    {"{\"type\":\"string\",\"pattern\":\"[[:alpha:]]\"}", "classes in classes"},
    {"false", "no finite text"},
};

START_TEST(refused)
{
    struct grammar *g;
    struct err err = {0};
    int rc = grammar_from_schema(&g, errors[_i].schema, strlen(errors[_i].schema), &err);
    ck_assert_msg(rc < 0 && rc == err.code && !g, "%s is accepted", errors[_i].schema);
    ck_assert_msg(strncmp(err.msg, "json_schema: ", 13) == 0 && strstr(err.msg, errors[_i].message), "%s: %s", errors[_i].schema, err.msg);
}
END_TEST

/* Whole numbers near bounds of every length, against comparison. */
START_TEST(whole_bounds)
{
    static const int64_t at[] = {0, 1, 5, 9, 10, 17, 99, 100, 101, 455, 999, 1000, 1234, 9999, 10000, 54321};
    enum { N = sizeof at / sizeof *at };
    for (int i = 0; i < 2 * N; i++)
        for (int k = i; k < 2 * N; k++) {
            int64_t lo = i < N ? -at[N - 1 - i] : at[i - N], hi = k < N ? -at[N - 1 - k] : at[k - N];
            char text[128];
            snprintf(text, sizeof text, "{\"type\":\"integer\",\"minimum\":%lld,\"maximum\":%lld}", (long long)lo, (long long)hi);
            struct grammar *g = schema(text);
            for (int j = 0; j < 2 * N; j++)
                for (int64_t d = -2; d <= 2; d++) {
                    int64_t v = (j < N ? -at[j] : at[j - N]) + d;
                    snprintf(text, sizeof text, "%lld", (long long)v);
                    test_that(accepts(g, text) == (v >= lo && v <= hi), "%s in %lld..%lld", text, (long long)lo, (long long)hi);
                }
            grammar_free(g);
        }
}
END_TEST

/* Numbers with fractions, against comparison in double. */
START_TEST(fraction_bounds)
{
    static const char *const at[] = {"-1234.5", "-10", "-9.995", "-1", "-0.5", "-0.125", "-0.0001", "0", "0.0001", "0.1", "0.30", "0.999",
                                     "1", "1.25", "9.99", "10", "10.01", "99.9", "100", "1234.5678"};
    enum { N = sizeof at / sizeof *at };
    static const char *const more[] = {"", "0", "1", "000", "0001"};
    for (int i = 0; i < N; i++)
        for (int k = i; k < N; k++)
            for (int open = 0; open < 4; open++) {
                char text[160];
                struct grammar *g;
                double lo = strtod(at[i], NULL), hi = strtod(at[k], NULL);
                snprintf(text, sizeof text, "{\"type\":\"number\",\"%s\":%s,\"%s\":%s}", open & 1 ? "exclusiveMinimum" : "minimum", at[i],
                         open & 2 ? "exclusiveMaximum" : "maximum", at[k]);
                int rc = grammar_from_schema(&g, text, strlen(text), NULL);
                ck_assert_int_eq(rc == 0, i < k || open == 0);
                for (int j = 0; j < N && rc == 0; j++)
                    for (int e = 0; e < 5; e++) {
                        char number[40];
                        snprintf(number, sizeof number, "%s%s%s", at[j], *more[e] && !strchr(at[j], '.') ? "." : "", more[e]);
                        double v = strtod(number, NULL);
                        bool in = (open & 1 ? v > lo : v >= lo) && (open & 2 ? v < hi : v <= hi);
                        test_that(accepts(g, number) == in, "%s: %s", text, number);
                    }
                grammar_free(g);
            }
}
END_TEST

START_TEST(far_bounds)
{
    static const struct { const char *schema, *yes, *no; } cases[] = {
        {"{\"type\":\"integer\",\"maximum\":9223372036854775807,\"minimum\":-9223372036854775808}", "-999999999999999999", "1000000000000000000"},
        {"{\"type\":\"integer\",\"minimum\":9007199254740993}", "9007199254740994", "9007199254740992"},
        {"{\"type\":\"integer\",\"maximum\":0.5,\"minimum\":-0.5}", "0", "1"},
        {"{\"type\":\"integer\",\"exclusiveMaximum\":0.5,\"exclusiveMinimum\":-1}", "0", "-1"},
        {"{\"type\":\"number\",\"minimum\":1e-300}", "0.00000000000000001", "0"},
        {"{\"type\":\"number\",\"exclusiveMaximum\":1e-300}", "0", "0.00000000000000001"},
        {"{\"type\":\"number\",\"maximum\":1e300}", "999999999999999999.5", "1e5"},
        {"{\"type\":\"number\",\"minimum\":0.1,\"maximum\":0.1}", "0.1", "0.10000000000000001"},
    };
    struct grammar *g;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        g = schema(cases[i].schema);
        ck_assert_msg(accepts(g, cases[i].yes), "%s: refuses %s", cases[i].schema, cases[i].yes);
        ck_assert_msg(!accepts(g, cases[i].no), "%s: accepts %s", cases[i].schema, cases[i].no);
        grammar_free(g);
    }
    static const char far[] = "{\"type\":\"integer\",\"minimum\":1e18}";
    ck_assert_int_lt(grammar_from_schema(&g, far, strlen(far), NULL), 0);
}
END_TEST

static void repeat_text(struct buf *b, const char *s, int n)
{
    while (n-- > 0)
        buf_puts(b, s);
}

/* Recursion ends at a depth of 32, and never in a place that leads nowhere. */
START_TEST(recursion)
{
    static const struct { const char *schema, *open, *close, *inner; int most; } cases[] = {
        {"{\"type\":\"array\",\"items\":{\"$ref\":\"#\"}}", "[", "]", "[]", 32},
        {"{}", "[", "]", "1", 32},
        {"{\"anyOf\":[{\"const\":0},{\"type\":\"array\",\"minItems\":1,\"maxItems\":1,\"items\":{\"$ref\":\"#\"}}]}", "[", "]", "0", 32},
        {"{\"anyOf\":[{\"const\":0},{\"type\":\"array\",\"minItems\":1,\"items\":{\"$ref\":\"#/$defs/b\"}}],\"$defs\":{\"b\":{\"type\":\"array\",\"minItems\":1,\"items\":{\"$ref\":\"#\"}}}}", "[[", "]]", "0", 16},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int more = 0; more < 2; more++) {
            const char *text = cases[i].schema;
            struct buf b;
            struct err err = {0};
            struct grammar *g;
            if (strstr(text, "\"$defs\"") && strstr(text, "\"anyOf\"")) /* $defs beside anyOf is a note */
                ck_assert(strstr(text, "\"$defs\":{"));
            ck_assert_msg(grammar_from_schema(&g, text, strlen(text), &err) == 0, "%s", err.msg);
            buf_init(&b);
            repeat_text(&b, cases[i].open, cases[i].most + more);
            buf_puts(&b, cases[i].inner);
            repeat_text(&b, cases[i].close, cases[i].most + more);
            ck_assert_msg(accepts(g, buf_str(&b)) == !more, "%s: %s", text, buf_str(&b));
            buf_fini(&b);
            grammar_free(g);
        }
}
END_TEST

/* Large, deep, wide: a grammar, or an error, and soon. */
START_TEST(too_large)
{
    static const struct { const char *start, *each, *end; int n; bool ok; } cases[] = {
        {"", "{\"type\":\"array\",\"items\":", "{}", 600, false},
        {"{\"enum\":[0", ",\"some text that is one of many\"", "]}", 20000, true},
        {"{\"type\":\"object\",\"properties\":{\"a\":{}", ",\"b\":{\"type\":\"string\"}", "}}", 20000, true},
        {"{\"type\":\"string\",\"pattern\":\"", "(", "\"}", 100000, false},
        {"{\"type\":\"string\",\"pattern\":\"^", "(a|b)?", "$\"}", 10000, true},
        {"{\"anyOf\":[{}", ",{\"$ref\":\"#\"}", "]}", 3000, true},
        {"{\"type\":\"string\",\"maxLength\":1000000000,\"minLength\":1000000000}", "", "", 0, true},
        {"{\"type\":\"array\",\"items\":{\"$ref\":\"#\"},\"minItems\":0,\"maxItems\":999999999}", "", "", 0, true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct buf b;
        struct err err = {0};
        struct grammar *g;
        buf_init(&b);
        buf_puts(&b, cases[i].start);
        repeat_text(&b, cases[i].each, cases[i].n);
        buf_puts(&b, cases[i].end);
        for (int n = cases[i].n; n > 0 && !cases[i].ok && i == 0; n--)
            buf_puts(&b, "}");
        int rc = grammar_from_schema(&g, buf_str(&b), b.len, &err);
        ck_assert_msg((rc == 0) == cases[i].ok, "case %zu: %s", i, err.msg);
        grammar_free(g);
        buf_fini(&b);
    }
}
END_TEST

/* References into a large list of schemas: what looking for them takes is bounded. */
START_TEST(many_references)
{
    static const struct { int refs, defs; bool ok; } cases[] = {{100, 10000, true}, {3000, 10000, false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct buf b;
        struct err err = {0};
        struct grammar *g;
        buf_init(&b);
        buf_puts(&b, "{\"anyOf\":[{}");
        repeat_text(&b, ",{\"$ref\":\"#/$defs/z\"}", cases[i].refs);
        buf_puts(&b, "],\"$defs\":{\"z\":{}");
        repeat_text(&b, ",\"a\":{}", cases[i].defs);
        buf_puts(&b, "}}");
        int rc = grammar_from_schema(&g, buf_str(&b), b.len, &err);
        ck_assert_msg(rc == (cases[i].ok ? 0 : ERR_LIMIT), "case %zu: %d %s", i, rc, err.msg);
        grammar_free(g);
        buf_fini(&b);
    }
}
END_TEST

/* ---- random texts ---- */

static const char *const sampled[] = {
    "{}",
    "{\"type\":\"object\"}",
    "{\"type\":[\"string\",\"number\"],\"maxLength\":6,\"minimum\":-3,\"exclusiveMaximum\":70.5}",
    "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\",\"minimum\":-20,\"maximum\":300},\"b\":{\"type\":\"string\",\"minLength\":1,\"maxLength\":5},"
    "\"c\":{\"type\":\"array\",\"items\":{\"enum\":[1,\"x\",null]},\"minItems\":1,\"maxItems\":3}},\"required\":[\"b\"],\"additionalProperties\":false}",
    "{\"type\":\"object\",\"properties\":{\"a\":{\"const\":1},\"ab\":{\"const\":2}},\"additionalProperties\":{\"type\":\"boolean\"}}",
    "{\"anyOf\":[{\"type\":\"null\"},{\"$ref\":\"#/$defs/n\"}],\"$defs\":{\"n\":{\"type\":\"object\",\"properties\":{\"v\":{\"type\":\"number\",\"minimum\":0,"
    "\"maximum\":1},\"l\":{\"$ref\":\"#\"}},\"required\":[\"v\",\"l\"]}}}",
    "{\"type\":\"array\",\"items\":{\"type\":[\"integer\",\"null\",\"boolean\"],\"exclusiveMinimum\":-1},\"minItems\":3,\"maxItems\":9}",
};

/* A byte that may come next, often one that leads to the end. */
static bool random_step(struct matcher *m, struct buf *out, uint64_t seed, uint64_t *n)
{
    static const char wanted[] = "\"}]0,1:n5aebc";
    for (unsigned tries = 0; tries < 256 + 20; tries++) {
        uint64_t r = rng_u64(seed, 0, (*n)++);
        char c = tries < 20 && r % 8 < 6 ? wanted[(r >> 8) % (sizeof wanted - 1)] : (char)((tries < 20 ? r >> 8 : seed + tries) & 0xFF);
        if (matcher_accept(m, &c, 1, NULL) == 1) {
            buf_putc(out, c);
            return true;
        }
    }
    return false;
}

START_TEST(random_texts)
{
    const char *text = sampled[_i];
    struct grammar *g = schema(text);
    cJSON *root, *value;
    int n_whole = 0;
    ck_assert_int_eq(json_parse(&root, text, strlen(text), "schema", NULL), 0);
    for (uint64_t seed = 0; seed < 400; seed++) {
        struct matcher m = {0};
        struct buf out;
        struct err err = {0};
        uint64_t n = 0;
        buf_init(&out);
        matcher_begin(&m, g);
        while (out.len < 400 && matcher_may_go_on(&m) && !(matcher_may_end(&m) && rng_u64(seed, 1, out.len) % 4 == 0))
            test_that(random_step(&m, &out, seed, &n), "nothing may follow %s", buf_str(&out));
        if (matcher_may_end(&m)) {
            ck_assert_msg(json_parse(&value, buf_str(&out), out.len, "text", &err) == 0, "%s: %s", buf_str(&out), err.msg);
            ck_assert_msg(kit_valid(root, root, value), "%s: %s", text, buf_str(&out));
            cJSON_Delete(value);
            n_whole++;
        }
        matcher_end(&m);
        buf_fini(&out);
    }
    ck_assert_int_gt(n_whole, 50);
    cJSON_Delete(root);
    grammar_free(g);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("json_schema");
    TCase *t = tcase_create("all");
    tcase_set_timeout(t, 120);
    tcase_add_loop_test(t, texts, 0, sizeof tables / sizeof *tables);
    tcase_add_loop_test(t, refused, 0, sizeof errors / sizeof *errors);
    tcase_add_test(t, whole_bounds);
    tcase_add_test(t, fraction_bounds);
    tcase_add_test(t, far_bounds);
    tcase_add_test(t, recursion);
    tcase_add_test(t, too_large);
    tcase_add_test(t, many_references);
    tcase_add_loop_test(t, random_texts, 0, sizeof sampled / sizeof *sampled);
    suite_add_tcase(s, t);
    return test_main(s);
}
