/* GBNF grammars against texts, what is refused of them with its place, grammars
 * made to blow up, the mask of a vocabulary against each of its tokens alone,
 * and the bytes of tokens against the decoder. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "tests/test.h"
#include "text/grammar.h"
#include "text/token_trie.h"

static struct grammar *gbnf(const char *text)
{
    struct grammar *g;
    struct err err = {0};
    test_that(grammar_from_gbnf(&g, text, strlen(text), &err) == 0, "%s: %s", text, err.msg);
    return g;
}

/* -1 = refused at some byte, 0 = could go on, 1 = may end here. */
static int follow(struct grammar *g, const char *text)
{
    struct matcher m = {0};
    int rc = 1, end;
    matcher_begin(&m, g);
    for (size_t i = 0; text[i] && rc == 1; i++)
        rc = matcher_accept(&m, text + i, 1, NULL);
    end = matcher_may_end(&m);
    ck_assert(end || matcher_may_go_on(&m)); /* no grammar leads nowhere */
    matcher_end(&m);
    return rc == 1 ? end : -1;
}

/* ---- texts ---- */

enum { TEXTS = 8 };
static const struct table { const char *grammar, *yes[TEXTS], *no[TEXTS]; } tables[] = {
    {"root ::= \"a\" | \"b\" [0-9]+", {"a", "b1", "b123"}, {"", "b", "c", "a1", "bb", "b1a"}},
    {"root ::= \"(\" root \")\" | \"\"", {"", "()", "((()))"}, {"(", ")", "(()", "())"}},
    {"root ::= (\"a\"*)* \"b\"", {"b", "ab", "aaaab"}, {"", "a", "ba", "bb"}},
    {"root ::= ((\"a\"?)+)+ (\"\" | \"b\")", {"", "a", "aab", "b"}, {"bb", "ba", "c"}},
    {"root ::= \"ab\"{2,3}", {"abab", "ababab"}, {"ab", "aba", "abababab"}},
    {"root ::= [ab]{2}", {"ab", "bb"}, {"a", "aba", ""}},
    {"root ::= [ab]{2,} \"c\"", {"abc", "aaaaaac"}, {"ac", "c", "abcc"}},
    {"root ::= \"a\"{0} \"b\"", {"b"}, {"ab", ""}},
    {"root ::= (\"a\" \"b\"?){2,3}", {"aa", "aba", "abab", "ababab", "aaa"}, {"a", "ab", "aaaa", "abb"}},
    {"root ::= (\"a\"?){3,5} \"x\"", {"x", "ax", "aaaaax"}, {"aaaaaax", "a"}},
    {"root ::= ((\"a\"{1,2}){2,2}){1,2}", {"aa", "aaaa", "aaaaaaaa"}, {"a", "aaaaaaaaa"}},
    {"root ::= [^\"a-c\\n]+", {"xyz", "\xC3\xA9", "\xF0\x9D\x84\x9E", "]"}, {"", "a", "xb", "\n", "\""}},
    {"root ::= [\xC3\xA4-\xC3\xB6\xE2\x82\xAC]*", {"", "\xC3\xA4", "\xC3\xA5\xE2\x82\xAC"}, {"\xC3", "\xC3\xBC", "a", "\xE2\x82"}},
    {"root ::= [\\u07ff-\\u0801]", {"\xDF\xBF", "\xE0\xA0\x80", "\xE0\xA0\x81"}, {"\xDF\xBE", "\xE0\xA0\x82"}},
    {"root ::= [\\uFFFE-\\U00010001]", {"\xEF\xBF\xBE", "\xF0\x90\x80\x81"}, {"\xEF\xBF\xBD", "\xF0\x90\x80\x82"}},
    {"root ::= .", {"a", "\n", "\xF4\x8F\xBF\xBF", "\xED\x9F\xBF"}, {"", "aa", "\xFF", "\xED\xA0\x80", "\xF4\x90\x80\x80", "\xC0\x80"}},
    {"root ::= [-a] [a-] [\\]\\-\\^] [^^]", {"-a]x", "a--y", "-a^-"}, {"b", "-b", "-aa", "-a]^"}},
    {"root ::= \"\\x41\\u00e9\\U0001F600\\\"\\\\\\t\"", {"A\xC3\xA9\xF0\x9F\x98\x80\"\\\t"}, {"A"}},
    {"# a comment\nroot ::= x # one\n  | y\nx ::= (\n \"a\" # in a group\n | \"b\"\n)\n\ny ::=\n \"c\"", {"a", "b", "c"}, {"", "d"}},
    {"root ::= a \" \" a\na ::= b{1,2}\nb ::= [0-9]\n", {"1 2", "12 34"}, {"1", "1 ", "123 4"}},
    {"root ::= \"a\" root \"b\" | \"a\" root \"c\" | \"\"", {"", "ab", "aacb", "aaabbb"}, {"a", "aab", "abc"}},
    {"root ::= x \"z\"\nx ::= y* y?\ny ::= \"a\" | \"a\" \"b\"", {"z", "az", "abaz", "ababz"}, {"bz", "abbz"}},
    {"root ::= e\ne ::= t (\"+\" t)*\nt ::= f (\"*\" f)*\nf ::= [0-9]+ | \"(\" e \")\"", {"1", "1+2*3", "((1))*(2+3)"}, {"", "1+", "(1", "1)", "()"}},
    {"a-b_9 ::= \"x\"\nroot ::= a-b_9", {"x"}, {"y"}},
    {"root ::= s | o\ns ::= \"a\" o | \"\"\no ::= \"b\" s | \"c\"", {"", "ac", "ab", "abac", "c", "bac"}, {"aba", "a", "cc"}},
};

START_TEST(texts)
{
    const struct table *t = &tables[_i];
    struct grammar *g = gbnf(t->grammar);
    for (int i = 0; i < TEXTS && t->yes[i]; i++)
        ck_assert_msg(follow(g, t->yes[i]) == 1, "%s: refuses %s", t->grammar, t->yes[i]);
    for (int i = 0; i < TEXTS && t->no[i]; i++)
        ck_assert_msg(follow(g, t->no[i]) != 1, "%s: accepts %s", t->grammar, t->no[i]);
    grammar_free(g);
}
END_TEST

/* Every code point is accepted by a class exactly when it lies in it. */
START_TEST(characters)
{
    static const struct { const char *grammar; uint32_t lo, hi; } cases[] = {
        {"root ::= [\\x7e-\\u0082]", 0x7E, 0x82},
        {"root ::= [\\u07F0-\\u0810]", 0x7F0, 0x810},
        {"root ::= [\\u0FC0-\\u1041]", 0xFC0, 0x1041},
        {"root ::= [\\uFFF0-\\U00010041]", 0xFFF0, 0x10041},
        {"root ::= [\\U0003FFFF-\\U00041001]", 0x3FFFF, 0x41001},
        {"root ::= [\\uD000-\\uF000]", 0xD000, 0xF000},
        {"root ::= [\\U0010FFF0-\\U0010FFFF]", 0x10FFF0, 0x10FFFF},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct grammar *g = gbnf(cases[i].grammar);
        struct matcher m = {0};
        for (uint32_t cp = 1; cp < 0x110000; cp += cp + 200 < cases[i].lo || cp > cases[i].hi + 200 ? 97 : 1) {
            unsigned char c[4];
            size_t n = cp < 0x80 ? 1 : cp < 0x800 ? 2 : cp < 0x10000 ? 3 : 4;
            for (size_t k = 0; k < n; k++)
                c[k] = (unsigned char)((k > 0 ? 0x80 : n == 1 ? 0 : n == 2 ? 0xC0 : n == 3 ? 0xE0 : 0xF0) |
                                       (cp >> (6 * (n - 1 - k)) & (k > 0 ? 0x3F : 0x7F)));
            bool want = cp >= cases[i].lo && cp <= cases[i].hi && (cp < 0xD800 || cp > 0xDFFF);
            matcher_begin(&m, g);
            bool got = matcher_accept(&m, (const char *)c, n, NULL) == 1 && matcher_may_end(&m);
            matcher_end(&m);
            test_that(got == want, "%s: U+%04X", cases[i].grammar, (unsigned)cp);
        }
        grammar_free(g);
    }
}
END_TEST

/* ---- what is refused ---- */

static const struct { const char *grammar, *message; } errors[] = {
    {"", "no rule defines `root`"},
    {"a ::= \"x\"", "no rule defines `root`"},
    {"root ::= a", "line 1, column 10: no rule defines this name"},
    {"root ::= \"a\"\nroot ::= \"b\"", "line 2, column 1: this rule was defined before"},
    {"root = \"a\"", "column 6: `::=` is missing"},
    {"root ::= \"a", "column 10: a literal without its closing"},
    {"root ::= \"a\nb\"", "column 10: a literal without its closing"},
    {"root ::= [a", "a class of characters without"},
    {"root ::= []", "an empty class"},
    {"root ::= [z-a]", "column 11: the range ends before it begins"},
    {"root ::= (\"a\"", "column 10: a group without"},
    {"root ::= (\"a\" ;)", "column 15: this cannot stand in a group"},
    {"root ::= \"a\")", "column 13: this cannot stand in a rule"},
    {"root ::= *", "cannot stand in a rule"},
    {"root ::= \"a\"{2", "the closing brace"},
    {"root ::= \"a\"{,2}", "a number is missing"},
    {"root ::= \"a\"{3,2}", "the most is below the least"},
    {"root ::= \"a\"{2000000000}", "a repetition of more than"},
    {"root ::= \"\\q\"", "column 11: unknown escape"},
    {"root ::= \"\\x4\"", "a hexadecimal digit is missing"},
    {"root ::= \"\\uD800\"", "this is no character"},
    {"root ::= \"\\U00110000\"", "this is no character"},
    {"root ::= \"\xFF\"", "column 11: this is no UTF-8"},
    {"\xC3\xA4 ::= \"x\"", "column 1: a rule begins with its name"},
    {"root ::= root \"a\" | \"a\"", "rule `root` is left-recursive"},
    {"root ::= \"x\" | a\na ::= \"y\"? b\nb ::= (root \"z\")* a \"w\" | \"v\"", "is left-recursive"},
    {"root ::= (a \"x\"){0,3} \"q\"\na ::= \"y\"? root | \"a\"", "is left-recursive"},
    {"root ::= \"a\" root", "it allows no finite text"},
    {"root ::= a | b\na ::= \"x\" b\nb ::= \"y\" a", "it allows no finite text"},
    {"root ::= \"\"", "it allows no text but the empty one"},
    {"root ::= a?\na ::= \"\" | \"\"*", "it allows no text but the empty one"},
    {"root ::= \"a\"*?+*?+*?+", "more than 8 repetitions"},
    {"root ::= <[10]>", "cannot stand in a rule"},
};

START_TEST(refused)
{
    struct grammar *g;
    struct err err = {0};
    int rc = grammar_from_gbnf(&g, errors[_i].grammar, strlen(errors[_i].grammar), &err);
    ck_assert_msg(rc < 0 && rc == err.code && !g, "%s is accepted", errors[_i].grammar);
    ck_assert_msg(strncmp(err.msg, "grammar: ", 9) == 0 && strstr(err.msg, errors[_i].message), "%s: %s", errors[_i].grammar, err.msg);
}
END_TEST

static void repeat_text(struct buf *b, const char *s, int n)
{
    while (n-- > 0)
        buf_puts(b, s);
}

/* Deep, long and many: an error, or a grammar. */
START_TEST(too_large)
{
    static const struct { const char *start, *each, *end; int n; const char *message; } cases[] = {
        {"root ::= ", "(", "", 100000, "200 deep"},
        {"root ::= ", "(\"a\" ", "", 300, "200 deep"},
        {"root ::= ", "(\"a\" | ", "", 250, "200 deep"},
        {"root ::= \"", "a", "\"", 200000, NULL},
        {"root ::= \"", "a", "\"", 300000, "at most"},
        {"root ::= \"x\"", " | \"y\"", "", 40000, NULL},
        {"root ::= a", "{9}", "\na ::= \"x\"", 40, "8 repetitions"},
        {"root ::= ", "a ", "\na ::= (\"x\"*)*", 20000, "too ambiguous"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct grammar *g;
        struct err err = {0};
        struct buf b;
        buf_init(&b);
        buf_puts(&b, cases[i].start);
        repeat_text(&b, cases[i].each, cases[i].n);
        buf_puts(&b, cases[i].end);
        int rc = grammar_from_gbnf(&g, buf_str(&b), b.len, &err);
        ck_assert_msg(cases[i].message ? rc < 0 && strstr(err.msg, cases[i].message) != NULL : rc == 0, "case %zu: %s", i, err.msg);
        grammar_free(g);
        buf_fini(&b);
    }
}
END_TEST

/* ---- what grows while a text follows ---- */

static const char *const hostile[] = {
    "root ::= ((([a-z]*)*)*)* \".\"",
    "root ::= ([a-z]{1,3}){0,100000} \".\"",
    "root ::= ([a-z]+ | [a-z ]+ | [a-z]* [a-z]*){1,1000000} \".\"",
    "root ::= \"a\" root \"b\" | \"a\" root \"c\" | \"a\" root root | \"\"",
    "root ::= [a-z]* \"a\" [a-z]{60} \".\"",
    "root ::= x{1000000000}\nx ::= y{1000000000}\ny ::= [a-z]",
    "root ::= a a a a a a a a a\na ::= b*\nb ::= c c?\nc ::= [a-z] root? | [ab]",
};

/* Each byte is accepted, or the error says that it is too much: never a hang. */
START_TEST(bounded)
{
    struct grammar *g = gbnf(hostile[_i]);
    struct matcher m = {0};
    struct err err = {0};
    int rc = 1;
    matcher_begin(&m, g);
    for (int i = 0; i < 3000 && rc == 1; i++)
        rc = matcher_accept(&m, i % 2 ? "b" : "a", 1, &err);
    ck_assert_msg(rc != ERR_LIMIT || strstr(err.msg, "too ambiguous"), "%s", err.msg);
    ck_assert_int_ne(rc, ERR_NOMEM);
    matcher_end(&m);
    grammar_free(g);
}
END_TEST

START_TEST(deep)
{
    struct grammar *g = gbnf("root ::= \"[\" root? \"]\"");
    struct matcher m = {0};
    int n = 0;
    matcher_begin(&m, g);
    while (n < 100000 && matcher_accept(&m, "[", 1, NULL) == 1)
        n++;
    ck_assert_int_eq(n, 1001); /* the last one has no inner one */
    ck_assert(!matcher_may_end(&m));
    for (int i = 0; i < n; i++)
        ck_assert_int_eq(matcher_accept(&m, "]", 1, NULL), 1);
    ck_assert(matcher_may_end(&m) && !matcher_may_go_on(&m));
    matcher_end(&m);
    grammar_free(g);
}
END_TEST

/* What is forgotten on the way changes nothing, for none of several. */
START_TEST(forgets)
{
    struct grammar *g = gbnf("root ::= \"(\" [a-z]{0,400000} \")\"");
    struct matcher m = {0}, old = {0}, at[3] = {{0}};
    matcher_begin(&m, g);
    matcher_copy(&old, &m);
    ck_assert_int_eq(matcher_accept(&m, "(", 1, NULL), 1);
    for (int i = 0; i < 400000; i++) {
        if (i % 150000 == 7)
            matcher_copy(&at[i / 150000], &m);
        test_that(matcher_accept(&m, "x", 1, NULL) == 1, "letter %d", i);
    }
    ck_assert_int_eq(matcher_accept(&m, "x", 1, NULL), 0);
    ck_assert_int_eq(matcher_accept(&m, ")", 1, NULL), 1);
    ck_assert(matcher_may_end(&m) && !matcher_may_go_on(&m));
    ck_assert_int_eq(matcher_accept(&old, ")", 1, NULL), 0);
    ck_assert_int_eq(matcher_accept(&old, "()", 2, NULL), 1);
    for (int i = 0; i < 3; i++) {
        int n = 0;
        while (matcher_accept(&at[i], "x", 1, NULL) == 1)
            n++;
        ck_assert_int_eq(n, 400000 - 150000 * i - 7);
        matcher_end(&at[i]);
    }
    matcher_end(&old);
    matcher_end(&m);
    grammar_free(g);
}
END_TEST

START_TEST(refused_bytes_change_nothing)
{
    struct grammar *g = gbnf("root ::= \"ab\" | \"ac\"");
    struct matcher m = {0};
    matcher_begin(&m, g);
    ck_assert_int_eq(matcher_accept(&m, "ax", 2, NULL), 0);
    ck_assert_int_eq(matcher_accept(&m, "abb", 3, NULL), 0);
    ck_assert_int_eq(matcher_accept(&m, "", 0, NULL), 1);
    ck_assert_int_eq(matcher_accept(&m, "ac", 2, NULL), 1);
    ck_assert_int_eq(matcher_accept(&m, "", 0, NULL), 1);
    matcher_end(&m);
    grammar_free(g);
}
END_TEST

/* ---- masks ---- */

static const char *const masked[] = {
    "root ::= .*",
    "root ::= [a-z]+ (\" \" [a-z]+)* \".\"?",
    "root ::= \"{\" pair (\",\" pair)* \"}\"\npair ::= str \":\" v\nv ::= str | [0-9]+ | root\nstr ::= \"\\\"\" [^\"]* \"\\\"\"",
    "root ::= (\" \"? w){1,4}\nw ::= [a-zA-Z]{1,3} | [\xC3\x80-\xE6\xBF\xBF]{2,200}",
    "root ::= (\"a\" | [a-m])* (\"e\" | \"en\" | root2){0,5}\nroot2 ::= \"t\" root2 \"h\" | \"t\" root2 \"e\" | \" \"",
    "root ::= [^x]{0,3} | [^y]{5,7} | \"the \"{0,300}",
    "root ::= l{3,200} \"!\"\nl ::= [^!\\n]{0,2} \"\\n\" | \"!\"",
};

static uint32_t next_random(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 33);
}

/* Compares the mask here with each token alone; a random allowed one, -1 = none. */
static int32_t check_mask(struct matcher *m, const struct token_trie *t, uint64_t *mask, bool skip_space, uint64_t *state)
{
    int64_t n = 0, pick;
    struct err err = {0};
    int64_t told = grammar_mask(m, t, skip_space, mask, &err);
    int32_t chosen = -1;
    ck_assert_msg(told >= 0, "%s", err.msg);
    pick = told > 0 ? next_random(state) % told : -1;
    for (int32_t id = 0; id < t->n_ids; id++) {
        struct matcher alone = {0};
        size_t len;
        const char *s = token_trie_bytes(t, id, &len);
        size_t cut = skip_space && len > 0 && s[0] == ' ';
        matcher_copy(&alone, m);
        bool may = len > cut && matcher_accept(&alone, s + cut, len - cut, NULL) == 1;
        matcher_end(&alone);
        test_that(may == (mask[id / 64] >> (id % 64) & 1), "token %d (%.*s)", (int)id, (int)len, s);
        chosen = may && n == pick ? id : chosen;
        n += may;
    }
    ck_assert_int_eq(n, told);
    return chosen;
}

static void check_masks(const struct token_trie *t, const char *grammar, int walks, int steps)
{
    struct grammar *g = gbnf(grammar);
    uint64_t *mask = mem_array((size_t)t->n_ids / 64 + 1, sizeof *mask), state = 11;
    for (int w = 0; w < walks; w++) {
        struct matcher m = {0};
        matcher_begin(&m, g);
        check_mask(&m, t, mask, true, &state);
        for (int i = 0; i < steps; i++) {
            size_t len;
            int32_t id = check_mask(&m, t, mask, false, &state);
            if (id < 0)
                break;
            const char *s = token_trie_bytes(t, id, &len);
            ck_assert_int_eq(matcher_accept(&m, s, len, NULL), 1);
        }
        matcher_end(&m);
    }
    free(mask);
    grammar_free(g);
}

/* Of every kind of decoder. */
static const char *const tokenizers[] = {"../data/forge-tiny", "golden/models/qwen3", "golden/models/gemma3", "golden/models/llama"};
enum { N_TOKENIZERS = sizeof tokenizers / sizeof *tokenizers };

START_TEST(masks_of_tokenizers)
{
    struct tokenizer *tok;
    struct token_trie *t;
    struct err err = {0};
    ck_assert_msg(tokenizer_open(&tok, test_path(tokenizers[_i % N_TOKENIZERS]), &err) == 0, "%s", err.msg);
    ck_assert_int_eq(token_trie_new(&t, tok, tokenizer_n_ids(tok), &err), 0);
    check_masks(t, masked[_i / N_TOKENIZERS], 3, 12);
    token_trie_free(t);
    tokenizer_close(tok);
}
END_TEST

/* A vocabulary of anything: parts of characters, what begins alike, the same twice, nothing. */
START_TEST(masks_of_random_bytes)
{
    static const char *const parts[] = {"a", "b", "e", " ", "\"", "{", "}", ":", ",", "\xC3", "\xA9", "\xE6", "\xBC", "\xA2",
                                        "\xF0\x9F", "1", "the ", "\n", "!", "t", "h", "\xFF", "x", "y", "\\"};
    enum { N = 600 };
    struct token_text text[N];
    static char bytes[N][64];
    uint64_t state = 5;
    struct token_trie *t;
    for (int i = 0; i < N; i++) {
        text[i] = (struct token_text){bytes[i], 0};
        for (unsigned k = next_random(&state) % 7; k > 0; k--) {
            const char *p = parts[next_random(&state) % (sizeof parts / sizeof *parts)];
            memcpy(bytes[i] + text[i].len, p, strlen(p));
            text[i].len += strlen(p);
        }
        if (i % 50 == 0)
            text[i].s = NULL;
    }
    ck_assert_int_eq(token_trie_from_texts(&t, text, N, NULL), 0);
    check_masks(t, masked[_i], 30, 12);
    token_trie_free(t);
}
END_TEST

/* Hostile ones: the mask or the error, in bounded time. */
START_TEST(bounded_masks)
{
    struct tokenizer *tok;
    struct token_trie *t;
    struct grammar *g = gbnf(hostile[_i]);
    struct matcher m = {0};
    struct err err = {0};
    ck_assert_int_eq(tokenizer_open(&tok, test_path("golden/models/qwen3"), &err), 0);
    ck_assert_int_eq(token_trie_new(&t, tok, tokenizer_n_ids(tok), &err), 0);
    uint64_t *mask = mem_array((size_t)t->n_ids / 64 + 1, sizeof *mask);
    int64_t n = 1;
    matcher_begin(&m, g);
    for (int i = 0; i < 30 && n > 0; i++) {
        n = grammar_mask(&m, t, false, mask, &err);
        if (n >= 0 && matcher_accept(&m, "ab", 2, &err) != 1)
            break;
    }
    ck_assert_msg(n != ERR_NOMEM && (n >= 0 || strstr(err.msg, "too ambiguous")), "%s", err.msg);
    matcher_end(&m);
    free(mask);
    token_trie_free(t);
    tokenizer_close(tok);
    grammar_free(g);
}
END_TEST

/* ---- the bytes of tokens ---- */

/* What tokens add to a text is what the decoder makes of them behind another. */
START_TEST(bytes_of_tokens)
{
    struct tokenizer *tok;
    struct err err = {0};
    struct buf bytes, text;
    ck_assert_msg(tokenizer_open(&tok, test_path(tokenizers[_i]), &err) == 0, "%s", err.msg);
    struct ids first;
    ids_init(&first);
    ck_assert_int_eq(tokenizer_encode(tok, "a", 1, 0, &first, &err), 0);
    buf_init(&bytes);
    buf_init(&text);
    ck_assert_int_eq(tokenizer_decode(tok, first.v, first.n, true, &text, &err), 0);
    size_t before = text.len, n_compared = 0;
    for (int32_t id = 0; id < tokenizer_n_ids(tok); id++) {
        buf_clear(&bytes);
        bool has = token_bytes(tok, id, &bytes, &err);
        ck_assert_int_eq(err.code, 0);
        ck_assert(!has || !tokenizer_is_special(tok, id));
        if (!has || !utf8_valid(buf_str(&bytes), bytes.len, NULL))
            continue;
        struct ids two;
        ids_init(&two);
        for (size_t i = 0; i < first.n; i++)
            ids_push(&two, first.v[i], NULL);
        ids_push(&two, id, NULL);
        buf_clear(&text);
        ck_assert_int_eq(tokenizer_decode(tok, two.v, two.n, true, &text, &err), 0);
        test_that(text.len - before == bytes.len && memcmp(buf_str(&text) + before, buf_str(&bytes), bytes.len) == 0,
                  "%s: token %d: \"%s\", not \"%s\"", tokenizers[_i], (int)id, buf_str(&bytes), buf_str(&text) + before);
        ids_fini(&two);
        n_compared++;
    }
    ck_assert_uint_gt(n_compared, 200);
    ids_fini(&first);
    buf_fini(&bytes);
    buf_fini(&text);
    tokenizer_close(tok);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("grammar");
    TCase *t = tcase_create("all");
    tcase_set_timeout(t, 120);
    tcase_add_loop_test(t, texts, 0, sizeof tables / sizeof *tables);
    tcase_add_test(t, characters);
    tcase_add_loop_test(t, refused, 0, sizeof errors / sizeof *errors);
    tcase_add_test(t, too_large);
    tcase_add_loop_test(t, bounded, 0, sizeof hostile / sizeof *hostile);
    tcase_add_test(t, deep);
    tcase_add_test(t, forgets);
    tcase_add_test(t, refused_bytes_change_nothing);
    tcase_add_loop_test(t, masks_of_tokenizers, 0, N_TOKENIZERS * (int)(sizeof masked / sizeof *masked));
    tcase_add_loop_test(t, masks_of_random_bytes, 0, sizeof masked / sizeof *masked);
    tcase_add_loop_test(t, bounded_masks, 0, sizeof hostile / sizeof *hostile);
    tcase_add_loop_test(t, bytes_of_tokens, 0, N_TOKENIZERS);
    suite_add_tcase(s, t);
    return test_main(s);
}
