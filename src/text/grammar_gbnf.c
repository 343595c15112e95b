/* GBNF, the notation of grammars that llama.cpp made common, to a grammar.  Reads
 * it strictly: what is no part of it is refused with its line and column.
 * Knows nothing of how a grammar is followed. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "text/grammar.h"
#include "text/grammar_tree.h"

#define TEXT_MAX ((size_t)1 << 18)
#define GROUPS_MAX 200       /* within each other */
#define COUNT_MAX 1000000000 /* of a repetition */

struct rule_name {
    const char *s;
    size_t len, at; /* where it was met first */
    bool defined;
    uint32_t tree;
};

struct gbnf {
    const char *s;
    size_t len, at;
    struct tree t;
    struct strmap names;
    struct rule_name *rule; /* by number */
    size_t n_rule, cap_rule;
    int depth;
    int rc;
    struct err *err;
};

/* Returns 0, so that a rule of the grammar can be left at once. */
static uint32_t fail_at(struct gbnf *p, size_t at, int code, const char *what)
{
    size_t line = 1, column = 1;
    for (size_t i = 0; i < at && i < p->len; i++) {
        column = p->s[i] == '\n' ? 1 : column + (((unsigned char)p->s[i] & 0xC0) != 0x80);
        line += p->s[i] == '\n';
    }
    if (p->rc == 0)
        p->rc = err_set(p->err, code, "grammar: line %zu, column %zu: %s", line, column, what);
    return 0;
}

static uint32_t fail(struct gbnf *p, const char *what)
{
    return fail_at(p, p->at, ERR_ARG, what);
}

static char peek(const struct gbnf *p)
{
    return p->at < p->len ? p->s[p->at] : '\0';
}

static void skip_space(struct gbnf *p, bool lines)
{
    for (; p->at < p->len; p->at++) {
        char c = p->s[p->at];
        if (c == '#')
            while (p->at + 1 < p->len && p->s[p->at + 1] != '\n')
                p->at++;
        else if (c != ' ' && c != '\t' && c != '\r' && !(lines && c == '\n'))
            break;
    }
}

/* ---- names ---- */

static bool is_name(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
}

static uint32_t read_name(struct gbnf *p)
{
    size_t from = p->at;
    uint32_t n;
    while (is_name(peek(p)))
        p->at++;
    if (strmap_find(&p->names, p->s + from, p->at - from, &n))
        return n;
    struct rule_name *grown = mem_grow(p->rule, &p->cap_rule, p->n_rule + 1, sizeof *grown);
    p->rule = grown ? grown : p->rule;
    if (!grown || strmap_add(&p->names, p->s + from, p->at - from, (uint32_t)p->n_rule) < 0)
        return fail_at(p, from, ERR_NOMEM, "no memory for this rule");
    grown[p->n_rule] = (struct rule_name){.s = p->s + from, .len = p->at - from, .at = from};
    return (uint32_t)p->n_rule++;
}

/* ---- characters ---- */

static bool read_hex(struct gbnf *p, int n, uint32_t *cp)
{
    *cp = 0;
    for (int i = 0; i < n; i++, p->at++) {
        char c = peek(p);
        int d = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
        if (d < 0) {
            fail(p, "a hexadecimal digit is missing (\\xHH, \\uHHHH, \\UHHHHHHHH)");
            return false;
        }
        *cp = *cp << 4 | (uint32_t)d;
    }
    return true;
}

static bool read_escape(struct gbnf *p, uint32_t *cp)
{
    static const char names[] = "nrt\\\"[]-^", values[] = "\n\r\t\\\"[]-^";
    size_t at = p->at++; /* the backslash */
    char c = peek(p);
    const char *known = c ? strchr(names, c) : NULL;
    if (known || c == 'x' || c == 'u' || c == 'U')
        p->at++;
    if (known) {
        *cp = (unsigned char)values[known - names];
        return true;
    }
    if (c != 'x' && c != 'u' && c != 'U') {
        fail_at(p, at, ERR_ARG, "unknown escape; known are \\n \\r \\t \\\\ \\\" \\[ \\] \\- \\^ \\xHH \\uHHHH \\UHHHHHHHH");
        return false;
    }
    if (!read_hex(p, c == 'x' ? 2 : c == 'u' ? 4 : 8, cp))
        return false;
    if (*cp > 0x10FFFF || (*cp >= 0xD800 && *cp <= 0xDFFF)) {
        fail_at(p, at, ERR_ARG, "this is no character (surrogates and what is above 10FFFF are none)");
        return false;
    }
    return true;
}

static bool read_char(struct gbnf *p, uint32_t *cp)
{
    if (peek(p) == '\\')
        return read_escape(p, cp);
    p->at += utf8_decode(p->s + p->at, p->len - p->at, cp);
    return true;
}

static uint32_t put_class(struct gbnf *p, struct gram_ranges *r, bool negate)
{
    if (!gram_ranges_normal(r, negate)) {
        free(r->v);
        return fail_at(p, p->at, ERR_NOMEM, "no memory for these characters");
    }
    return tree_chars(&p->t, r);
}

static uint32_t one_char(struct gbnf *p, uint32_t cp)
{
    struct gram_ranges r = {0};
    return gram_ranges_add(&r, cp, cp) ? put_class(p, &r, false) : fail_at(p, p->at, ERR_NOMEM, "no memory for a character");
}

static uint32_t literal(struct gbnf *p)
{
    size_t from = p->at++;
    uint32_t out = 0, cp;
    while (p->rc == 0 && peek(p) != '"') {
        if (p->at >= p->len || peek(p) == '\n')
            return fail_at(p, from, ERR_ARG, "a literal without its closing quotation mark");
        if (!read_char(p, &cp))
            return 0;
        out = tree_seq(&p->t, out, one_char(p, cp));
    }
    p->at++;
    return out;
}

static bool read_range(struct gbnf *p, struct gram_ranges *r)
{
    size_t from = p->at;
    uint32_t lo, hi;
    if (!read_char(p, &lo))
        return false;
    hi = lo;
    if (peek(p) == '-' && p->at + 1 < p->len && p->s[p->at + 1] != ']') {
        p->at++;
        if (!read_char(p, &hi))
            return false;
    }
    if (lo > hi)
        fail_at(p, from, ERR_ARG, "the range ends before it begins");
    else if (!gram_ranges_add(r, lo, hi))
        fail_at(p, from, ERR_NOMEM, "no memory for these characters");
    return p->rc == 0;
}

static uint32_t char_class(struct gbnf *p)
{
    struct gram_ranges r = {0};
    size_t from = p->at++;
    bool negate = peek(p) == '^';
    p->at += negate;
    while (p->rc == 0 && peek(p) != ']') {
        if (p->at >= p->len || peek(p) == '\n')
            fail_at(p, from, ERR_ARG, "a class of characters without its closing bracket");
        else
            read_range(p, &r);
    }
    if (p->rc == 0 && r.n == 0 && !negate)
        fail_at(p, from, ERR_ARG, "an empty class: no character is in it");
    p->at++;
    if (p->rc == 0)
        return put_class(p, &r, negate);
    free(r.v);
    return 0;
}

static uint32_t any_char(struct gbnf *p)
{
    struct gram_ranges r = {0};
    p->at++;
    return put_class(p, &r, true);
}

/* ---- structure ---- */

static uint32_t alternatives(struct gbnf *p);

static uint32_t group(struct gbnf *p)
{
    size_t from = p->at++;
    if (++p->depth > GROUPS_MAX)
        return fail_at(p, from, ERR_LIMIT, "groups lie more than 200 deep in each other");
    uint32_t out = alternatives(p);
    p->depth--;
    if (p->rc == 0 && peek(p) != ')')
        return p->at < p->len ? fail(p, "this cannot stand in a group") : fail_at(p, from, ERR_ARG, "a group without its closing bracket");
    p->at++;
    return out;
}

static uint32_t read_count(struct gbnf *p)
{
    uint64_t v = 0;
    if (peek(p) < '0' || peek(p) > '9')
        return fail(p, "a number is missing ({m}, {m,} or {m,n})");
    for (; peek(p) >= '0' && peek(p) <= '9'; p->at++) {
        v = v * 10 + (uint64_t)(peek(p) - '0');
        if (v > COUNT_MAX)
            return fail_at(p, p->at, ERR_LIMIT, "a repetition of more than 1000000000 times");
    }
    return (uint32_t)v;
}

static uint32_t counted(struct gbnf *p, uint32_t item)
{
    size_t from = p->at++;
    skip_space(p, false);
    uint32_t min = read_count(p), max = min;
    skip_space(p, false);
    if (p->rc == 0 && peek(p) == ',') {
        p->at++;
        skip_space(p, false);
        max = peek(p) == '}' ? GRAM_MANY : read_count(p);
        skip_space(p, false);
    }
    if (p->rc == 0 && peek(p) != '}')
        return fail(p, "the closing brace is missing ({m}, {m,} or {m,n})");
    if (p->rc == 0 && min > max)
        return fail_at(p, from, ERR_ARG, "the most is below the least");
    p->at++;
    return max == 0 ? 0 : tree_repeat(&p->t, item, min, max);
}

/* `x+?` and the like are one loop. */
static uint32_t looped(struct gbnf *p, uint32_t item, char op)
{
    uint32_t min = op == '+', max = op == '?' ? 1 : GRAM_MANY;
    const struct tree_node *n = &p->t.node[item];
    bool simple = n->kind == TREE_REPEAT && n->min <= 1 && (n->max == 1 || n->max == GRAM_MANY);
    return simple ? tree_repeat(&p->t, n->a, min & n->min, max > n->max ? max : n->max) : tree_repeat(&p->t, item, min, max);
}

static uint32_t repetitions(struct gbnf *p, uint32_t item)
{
    for (int n = 0; p->rc == 0; n++) {
        char c = peek(p);
        if (c != '{' && c != '*' && c != '+' && c != '?')
            return item;
        if (n == 8)
            return fail_at(p, p->at, ERR_LIMIT, "more than 8 repetitions of one item");
        if (c == '{') {
            item = counted(p, item);
        } else {
            p->at++;
            item = looped(p, item, c);
        }
    }
    return 0;
}

/* True where an item begins; *out is it. */
static bool item(struct gbnf *p, uint32_t *out)
{
    char c = peek(p);
    if (c == '"')
        *out = literal(p);
    else if (c == '[')
        *out = char_class(p);
    else if (c == '(')
        *out = group(p);
    else if (c == '.')
        *out = any_char(p);
    else if (is_name(c))
        *out = tree_rule(&p->t, read_name(p));
    else
        return false;
    return true;
}

static uint32_t sequence(struct gbnf *p)
{
    uint32_t out = 0, one;
    for (skip_space(p, p->depth > 0); p->rc == 0 && item(p, &one); skip_space(p, p->depth > 0))
        out = tree_seq(&p->t, out, repetitions(p, one));
    return out;
}

/* The next line may begin with `|`. */
static bool more_alternatives(struct gbnf *p)
{
    size_t at = p->at;
    skip_space(p, true);
    if (peek(p) == '|')
        return true;
    p->at = p->depth > 0 ? p->at : at;
    return false;
}

static uint32_t alternatives(struct gbnf *p)
{
    uint32_t out = sequence(p);
    while (p->rc == 0 && more_alternatives(p)) {
        p->at++;
        skip_space(p, true);
        out = tree_alt(&p->t, sequence(p), out);
    }
    return out;
}

static void rule(struct gbnf *p)
{
    size_t from = p->at;
    if (!is_name(peek(p))) {
        fail(p, "a rule begins with its name");
        return;
    }
    uint32_t n = read_name(p);
    if (p->rc == 0 && p->rule[n].defined)
        fail_at(p, from, ERR_ARG, "this rule was defined before");
    skip_space(p, false);
    if (p->rc == 0 && (p->len - p->at < 3 || memcmp(p->s + p->at, "::=", 3) != 0))
        fail(p, "`::=` is missing after the name of a rule");
    if (p->rc)
        return;
    p->at += 3;
    skip_space(p, true);
    uint32_t tree = alternatives(p);
    if (p->rc)
        return;
    p->rule[n].defined = true;
    p->rule[n].tree = tree;
    skip_space(p, false);
    if (p->at < p->len && peek(p) != '\n')
        fail(p, "this cannot stand in a rule");
}

static void rules(struct gbnf *p)
{
    size_t bad;
    if (p->len > TEXT_MAX)
        p->rc = err_set(p->err, ERR_LIMIT, "grammar: %zu bytes; at most %zu are read", p->len, TEXT_MAX);
    else if (!utf8_valid(p->s, p->len, &bad))
        fail_at(p, bad, ERR_ARG, "this is no UTF-8");
    for (skip_space(p, true); p->rc == 0 && p->at < p->len; skip_space(p, true))
        rule(p);
    for (size_t i = 0; i < p->n_rule && p->rc == 0; i++)
        if (!p->rule[i].defined && i > 0)
            fail_at(p, p->rule[i].at, ERR_ARG, "no rule defines this name");
    if (p->rc == 0 && !p->rule[0].defined)
        p->rc = err_set(p->err, ERR_ARG, "grammar: no rule defines `root`, where a text begins");
    if (p->rc == 0 && p->t.failed)
        p->rc = err_set(p->err, ERR_NOMEM, "grammar: no memory for its rules");
}

static void name_rule(void *user, uint32_t rule, char *out, size_t size)
{
    const struct gbnf *p = user;
    if (rule < p->n_rule)
        snprintf(out, size, "`%.*s`", p->rule[rule].len > 64 ? 64 : (int)p->rule[rule].len, p->rule[rule].s);
    else
        snprintf(out, size, "(of a repetition)");
}

static int compile(struct grammar **out, struct gbnf *p)
{
    struct gram_build b;
    gram_build_init(&b, p->err);
    for (size_t i = 0; i < p->n_rule; i++)
        gram_rule(&b);
    for (size_t i = 0; i < p->n_rule; i++)
        gram_define(&b, (uint32_t)i, tree_emit(&p->t, &b, p->rule[i].tree, GRAM_AT_END, gram_chars));
    int rc = gram_finish(out, &b, name_rule, p);
    if (rc)
        err_wrap(p->err, "grammar");
    return rc;
}

int grammar_from_gbnf(struct grammar **out, const char *text, size_t len, struct err *err)
{
    struct gbnf p = {.s = text, .len = len, .err = err};
    struct rule_name root = {.s = "root", .len = 4};
    *out = NULL;
    tree_init(&p.t);
    strmap_init(&p.names);
    p.rule = mem_grow(NULL, &p.cap_rule, 16, sizeof *p.rule);
    if (!p.rule || strmap_add(&p.names, root.s, root.len, 0) < 0)
        p.rc = err_set(err, ERR_NOMEM, "grammar: no memory for its rules");
    else
        p.rule[p.n_rule++] = root;
    if (p.rc == 0)
        rules(&p);
    int rc = p.rc ? p.rc : compile(out, &p);
    tree_fini(&p.t);
    strmap_fini(&p.names);
    free(p.rule);
    return rc;
}
