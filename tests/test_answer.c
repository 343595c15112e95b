/* Answers taken apart: thoughts, content and calls in both styles, what only looks like a call, that what is final
 * is told at once,
 * and that the parts are the same wherever the text is cut. */
#include <forge.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/utf8.h"
#include "tests/test.h"

/* want: "thought|content|name(arguments)..." */
static const struct {
    const char *name, *prompt;
    unsigned flags;
    const char *text, *want;
} cases[] = {
    {"empty", NULL, FORGE_ANSWER_TOOLS, "", "||"},
    {"text", NULL, FORGE_ANSWER_TOOLS, " Hello.\n\nYou \n", "| Hello.\n\nYou \n|"},
    {"a thought", NULL, 0, "<think>\nSo.\n\nThen.\n</think>\n\nYes.\n", "So.\n\nThen.|Yes.\n|"},
    {"a thought behind blanks", NULL, 0, "\n\n<think>So.</think> Yes", "So.|Yes|"},
    {"no thought, but blanks", NULL, 0, "\n\n<thin", "|\n\n<thin|"},
    {"other marks", NULL, 0, "<thinking>a</think>b</thinking>c", "a</think>b|c|"},
    {"other marks", NULL, 0, "[THINK]a[/THINK]c", "a|c|"},
    {"the prompt began it", "user\nassistant\n<think>\n", 0, "\nSo.</think>Yes.", "So.|Yes.|"},
    {"the prompt ended it", "<think>\n\n</think>\n\n", 0, "Yes.</think>", "|Yes.</think>|"},
    {"no end", NULL, 0, "<think>So </thin", "So </thin||"},
    {"an empty thought", "<think>", 0, "</think>", "||"},
    {"inside each other", NULL, 0, "<think>a<think>b</think>c</think>d", "a<think>b|c</think>d|"},
    {"a thought later", NULL, 0, "a<think>b</think>", "|a<think>b</think>|"},
    {"a call", NULL, FORGE_ANSWER_TOOLS, "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": 1.50, \"n\": 12345678901234567890}}\n</tool_call>",
     "||f({\"x\": 1.50, \"n\": 12345678901234567890})"},
    {"a thought, text, calls, text", NULL, FORGE_ANSWER_TOOLS,
     "<think>t</think>\nLook:\n<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>\n<tool_call>{\"name\":\"g\"}</tool_call>\nDone.",
     "t|Look:\nDone.|f({})g({})"},
    {"not asked for", NULL, 0, "<tool_call>{\"name\":\"f\"}</tool_call>", "|<tool_call>{\"name\":\"f\"}</tool_call>|"},
    {"inside a thought", NULL, FORGE_ANSWER_TOOLS, "<think><tool_call>{\"name\":\"f\"}</tool_call></think>a",
     "<tool_call>{\"name\":\"f\"}</tool_call>|a|"},
    {"marks inside strings", NULL, FORGE_ANSWER_TOOLS,
     "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":\"</tool_call>\\\"</tool_call>\\\\\"}}</tool_call>!",
     "|!|f({\"a\":\"</tool_call>\\\"</tool_call>\\\\\"})"},
    {"arguments as text", NULL, FORGE_ANSWER_TOOLS, "<tool_call>{\"name\":\"f\",\"arguments\":\"{\\\"a\\\":1}\"}</tool_call>", "||f({\"a\":1})"},
    {"a list in a call", NULL, FORGE_ANSWER_TOOLS, "<tool_call>[{\"name\":\"f\"},{\"name\":\"g\"}]</tool_call>", "||f({})g({})"},
    {"cut short, but whole", NULL, FORGE_ANSWER_TOOLS, "a <tool_call>{\"name\":\"f\"}", "|a|f({})"},
    {"cut short", NULL, FORGE_ANSWER_TOOLS, "a <tool_call>{\"name\":\"f\"", "|a <tool_call>{\"name\":\"f\"|"},
    {"bad JSON", NULL, FORGE_ANSWER_TOOLS, "a\n <tool_call>\n{\"name\":}\n</tool_call> b", "|a\n <tool_call>\n{\"name\":}\n</tool_call> b|"},
    {"a string without end", NULL, FORGE_ANSWER_TOOLS, "<tool_call>{\"name</tool_call>x<tool_call>{\"name\":\"f\"}</tool_call>",
     "|<tool_call>{\"name</tool_call>x|f({})"},
    {"no name", NULL, FORGE_ANSWER_TOOLS, "<tool_call>{\"arguments\":{}}</tool_call>", "|<tool_call>{\"arguments\":{}}</tool_call>|"},
    {"arguments of no kind", NULL, FORGE_ANSWER_TOOLS, "<tool_call>{\"name\":\"f\",\"arguments\":[1]}</tool_call>",
     "|<tool_call>{\"name\":\"f\",\"arguments\":[1]}</tool_call>|"},
    {"twice, of two kinds", NULL, FORGE_ANSWER_TOOLS, "<tool_call>{\"name\":\"f\",\"arguments\":{},\"arguments\":[1]}</tool_call>",
     "|<tool_call>{\"name\":\"f\",\"arguments\":{},\"arguments\":[1]}</tool_call>|"},
    {"one of a list is none", NULL, FORGE_ANSWER_TOOLS, "<tool_call>[{\"name\":\"f\"},3]</tool_call>", "|<tool_call>[{\"name\":\"f\"},3]</tool_call>|"},
    {"a call in a call", NULL, FORGE_ANSWER_TOOLS, "<tool_call><tool_call>{\"name\":\"f\"}</tool_call></tool_call>",
     "|<tool_call><tool_call>{\"name\":\"f\"}</tool_call></tool_call>|"},
    {"Llama", NULL, FORGE_ANSWER_TOOLS, "{\"name\": \"f\", \"parameters\": {\"a\": \"\303\251\"}}", "||f({\"a\": \"\303\251\"})"},
    {"Llama, several", NULL, FORGE_ANSWER_TOOLS, "\n{\"name\":\"f\",\"parameters\":{}}; {\"name\":\"g\",\"parameters\":{\"b\":[]}}\n", "||f({})g({\"b\":[]})"},
    {"Llama, a list", NULL, FORGE_ANSWER_TOOLS, "[{\"name\":\"f\"}]", "||f({})"},
    {"Llama, the tag", NULL, FORGE_ANSWER_TOOLS, "<|python_tag|>{\"name\":\"f\"}", "||f({})"},
    {"the tag before code", NULL, FORGE_ANSWER_TOOLS, "<|python_tag|>print(1)", "|<|python_tag|>print(1)|"},
    {"Llama behind a thought", NULL, FORGE_ANSWER_TOOLS, "<think>t</think>{\"name\":\"f\"}", "t|{\"name\":\"f\"}|"},
    {"some object", NULL, FORGE_ANSWER_TOOLS, " {\"a\": 1} ", "| {\"a\": 1} |"},
    {"an object and text", NULL, FORGE_ANSWER_TOOLS, "{\"name\":\"f\"} is it", "|{\"name\":\"f\"} is it|"},
    {"brackets", NULL, FORGE_ANSWER_TOOLS, "[1] says", "|[1] says|"},
    {"only calls", "<think>", FORGE_ANSWER_ONLY_CALLS, "{\"name\":\"f\",\"arguments\":{\"a\":\"<think>\"}}", "||f({\"a\":\"<think>\"})"},
    {"characters", NULL, FORGE_ANSWER_TOOLS, "<think>\303\244\342\202\254</think>\360\237\230\200 \303\251\n<tool_call>{\"name\":\"\342\202\254\"}</tool_call>",
     "\303\244\342\202\254|\360\237\230\200 \303\251|\342\202\254({})"},
    {"a name with a NUL", NULL, FORGE_ANSWER_TOOLS, "<tool_call>{\"name\":\"f\\u0000\",\"arguments\":{}}</tool_call>", NULL},
};
#define N_CASES (int)(sizeof cases / sizeof *cases)

struct got {
    struct buf thought, content, calls;
};

static void push(struct forge_chat_parser *p, const char *text, size_t len, int last, struct got *to, const char *name)
{
    const struct forge_answer_parts *parts;
    struct forge_error err = {0};
    char *exact = malloc(len ? len : 1); /* no byte behind it, for the sanitizer */
    memcpy(exact, text, len);
    test_that(forge_chat_parse(p, exact, len, last, &parts, &err) == 0, "%s: %s", name, err.message);
    free(exact);
    test_that(utf8_valid(parts->thought, parts->thought_len, NULL) && utf8_valid(parts->content, parts->content_len, NULL),
              "%s: half a character", name);
    buf_put(&to->thought, parts->thought, parts->thought_len);
    buf_put(&to->content, parts->content, parts->content_len);
    for (size_t i = 0; i < parts->n_calls; i++) {
        const struct forge_tool_call *c = &parts->calls[i];
        test_that(c->name[c->name_len] == '\0' && c->arguments[c->arguments_len] == '\0', "%s: not terminated", name);
        buf_put(&to->calls, c->name, c->name_len);
        buf_printf(&to->calls, "(%s)", c->arguments);
    }
}

/* Pieces end at a, at b, and then after each `step` bytes. */
static void check(int i, size_t a, size_t b, size_t step)
{
    struct forge_chat_parser *p;
    struct got got = {0};
    size_t len = strlen(cases[i].text), at = 0;
    test_that(forge_chat_parser_new(&p, cases[i].prompt, FORGE_TERMINATED, cases[i].flags, NULL) == 0, "%s", cases[i].name);
    while (at < len) {
        size_t end = at < a ? a : at < b ? b : at + step < len ? at + step : len;
        push(p, cases[i].text + at, end - at, 0, &got, cases[i].name);
        at = end;
    }
    push(p, "", 0, 1, &got, cases[i].name);
    buf_putc(&got.thought, '|');
    buf_put(&got.thought, got.content.data, got.content.len);
    buf_putc(&got.thought, '|');
    buf_put(&got.thought, got.calls.data, got.calls.len);
    if (cases[i].want)
        test_that(strcmp(buf_str(&got.thought), cases[i].want) == 0, "%s, cut at %zu and %zu, then every %zu:\n%s\nwanted\n%s",
                  cases[i].name, a, b, step, buf_str(&got.thought), cases[i].want);
    else
        test_that(got.calls.len == 6 && memcmp(got.calls.data, "f\0({})", 6) == 0, "%s", cases[i].name);
    forge_chat_parser_free(p);
    buf_fini(&got.thought);
    buf_fini(&got.content);
    buf_fini(&got.calls);
}

START_TEST(every_cut)
{
    size_t len = strlen(cases[_i].text);
    check(_i, 0, 0, len);
    for (size_t step = 1; step < 8; step++)
        check(_i, 0, 0, step);
    for (size_t a = 0; a <= len; a++)
        for (size_t b = a; b <= len; b++)
            check(_i, a, b, len);
}
END_TEST

/* What is final is told at once: nothing is held back but what may be a mark. */
START_TEST(at_once)
{
    static const struct {
        const char *piece, *thought, *content;
    } steps[] = {
        {"<thi", "", ""}, {"nk>a", "a", ""}, {" ", "", ""}, {"b<", " b", ""}, {"/x", "</x", ""}, {"</think>c", "", "c"},
        {" d\xC3", "", " d"}, {"\xA9 <tool", "", "\xC3\xA9"}, {"s", "", " <tools"}, {" ", "", ""}, {"<tool_call>{", "", ""},
    };
    struct forge_chat_parser *p;
    const struct forge_answer_parts *parts;
    ck_assert_int_eq(forge_chat_parser_new(&p, NULL, 0, FORGE_ANSWER_TOOLS, NULL), 0);
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        ck_assert_int_eq(forge_chat_parse(p, steps[i].piece, FORGE_TERMINATED, 0, &parts, NULL), 0);
        ck_assert_msg(parts->thought_len == strlen(steps[i].thought) && memcmp(parts->thought, steps[i].thought, parts->thought_len) == 0,
                      "step %zu: thought %.*s", i, (int)parts->thought_len, parts->thought);
        ck_assert_msg(parts->content_len == strlen(steps[i].content) && memcmp(parts->content, steps[i].content, parts->content_len) == 0,
                      "step %zu: content %.*s", i, (int)parts->content_len, parts->content);
    }
    forge_chat_parser_free(p);
}
END_TEST

/* Many calls with a string that does not end: all of it is text.  Scanned again from each of them to the end this would
 * take minutes. */
START_TEST(calls_without_an_end)
{
    enum { N = 100000 };
    static const char unit[] = "<tool_call>\\\"</tool_call>";
    struct forge_chat_parser *p;
    const struct forge_answer_parts *parts;
    struct buf b;
    buf_init(&b);
    for (int i = 0; i < N; i++)
        buf_puts(&b, unit);
    ck_assert_int_eq(forge_chat_parser_new(&p, NULL, 0, FORGE_ANSWER_TOOLS, NULL), 0);
    ck_assert_int_eq(forge_chat_parse(p, b.data, b.len, 1, &parts, NULL), 0);
    ck_assert(parts->content_len == b.len && memcmp(parts->content, b.data, b.len) == 0);
    forge_chat_parser_free(p);
    buf_fini(&b);
}
END_TEST

/* Bytes that are no UTF-8 are passed on as they are. */
START_TEST(no_utf8)
{
    struct forge_chat_parser *p;
    const struct forge_answer_parts *parts;
    ck_assert_int_eq(forge_chat_parser_new(&p, NULL, 0, 0, NULL), 0);
    ck_assert_int_eq(forge_chat_parse(p, "a\xFF\xE2\x82", 4, 1, &parts, NULL), 0);
    ck_assert(parts->content_len == 4 && memcmp(parts->content, "a\xFF\xE2\x82", 4) == 0);
    forge_chat_parser_free(p);
}
END_TEST

START_TEST(after_the_end)
{
    struct forge_chat_parser *p;
    const struct forge_answer_parts *parts;
    struct forge_error err = {0};
    ck_assert_int_eq(forge_chat_parser_new(&p, NULL, 0, 0, NULL), 0);
    ck_assert_int_eq(forge_chat_parse(p, "a", 1, 1, &parts, NULL), 0);
    ck_assert_int_eq(forge_chat_parse(p, "b", 1, 1, &parts, &err), FORGE_ERR_ARG);
    ck_assert_ptr_nonnull(strstr(err.message, "has ended"));
    ck_assert_ptr_null(parts);
    forge_chat_parser_free(p);
    forge_chat_parser_free(NULL);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("answer");
    TCase *c = tcase_create("parts");
    suite_add_tcase(s, c);
    tcase_add_loop_test(c, every_cut, 0, N_CASES);
    tcase_add_test(c, at_once);
    tcase_add_test(c, calls_without_an_end);
    tcase_add_test(c, no_utf8);
    tcase_add_test(c, after_the_end);
    return test_main(s);
}
