/* `pattern` of a JSON schema: the part of regular expressions that says which
 * characters follow each other, as a tree.  Where `^` or `$` is missing anything
 * may stand before or after.  What different dialects read differently is taken
 * as narrow as all of them agree on: \d \w \s and \D \W \S are of ASCII. */
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "text/grammar_tree.h"
#include "text/json_schema_parts.h"

#define GROUPS_MAX 100
#define COUNT_MAX 1000000

struct pattern_text {
    struct schema *s;
    const char *text;
    size_t len, at;
    struct tree t;
    int depth;
};

static uint32_t fail(struct pattern_text *p, const char *what)
{
    schema_fail(p->s, ERR_ARG, "pattern, byte %zu: %s", p->at, what);
    return 0;
}

static bool ok(const struct pattern_text *p)
{
    return p->s->b.rc == 0;
}

static char peek(const struct pattern_text *p)
{
    return p->at < p->len ? p->text[p->at] : '\0';
}

static bool at_end(const struct pattern_text *p)
{
    return p->at >= p->len;
}

static bool next_is(struct pattern_text *p, const char *what)
{
    size_t n = strlen(what);
    if (p->len - p->at < n || memcmp(p->text + p->at, what, n) != 0)
        return false;
    p->at += n;
    return true;
}

/* ---- characters ---- */

static const struct class_escape { char name; struct gram_range v[5]; } class_escapes[] = {
    {'d', {{'0', '9'}}},
    {'w', {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}}},
    {'s', {{'\t', '\r'}, {' ', ' '}}},
    {'D', {{1, '0' - 1}, {'9' + 1, 0x7E}}},
    {'W', {{1, '0' - 1}, {':', '@'}, {'[', '^'}, {'`', '`'}, {'{', 0x7E}}},
    {'S', {{'!', 0x7E}}},
};

static bool add(struct pattern_text *p, struct gram_ranges *r, uint32_t lo, uint32_t hi)
{
    if (!gram_ranges_add(r, lo, hi))
        schema_fail(p->s, ERR_NOMEM, "no memory for a pattern");
    return ok(p);
}

/* At a backslash: a class's characters are added to r (true), or *cp is the one it stands for. */
static bool escape(struct pattern_text *p, struct gram_ranges *r, uint32_t *cp)
{
    static const char names[] = "nrtfv", values[] = "\n\r\t\f\v";
    p->at++;
    char c = peek(p);
    const char *known = c ? strchr(names, c) : NULL;
    *cp = 0;
    for (size_t i = 0; i < sizeof class_escapes / sizeof *class_escapes; i++)
        if (c == class_escapes[i].name) {
            for (const struct gram_range *v = class_escapes[i].v; v < class_escapes[i].v + 5 && v->hi; v++)
                add(p, r, v->lo, v->hi);
            p->at++;
            return true;
        }
    if (known) {
        *cp = (unsigned char)values[known - names];
        p->at++;
    } else if (c == 'x' || c == 'u') {
        p->at++;
        for (int i = c == 'x' ? 2 : 4; i > 0 && ok(p); i--, p->at++) {
            char h = peek(p);
            const char *hex = "0123456789abcdef", *digit = h ? strchr(hex, h >= 'A' && h <= 'F' ? h + 32 : h) : NULL;
            if (!digit)
                fail(p, "a hexadecimal digit is missing");
            else
                *cp = *cp * 16 + (uint32_t)(digit - hex);
        }
        if (*cp >= 0xD800 && *cp <= 0xDFFF)
            fail(p, "half of a surrogate pair");
    } else if (at_end(p) || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (unsigned char)c >= 0x80) {
        fail(p, "this escape is not supported");
    } else {
        *cp = (unsigned char)c;
        p->at++;
    }
    return false;
}

static void read_char(struct pattern_text *p, uint32_t *cp)
{
    size_t n = utf8_decode(p->text + p->at, p->len - p->at, cp);
    if (n == 0)
        fail(p, "this is no character");
    p->at += n;
}

static uint32_t put(struct pattern_text *p, struct gram_ranges *r, bool negate)
{
    if (ok(p) && gram_ranges_normal(r, negate))
        return tree_chars(&p->t, r);
    free(r->v);
    if (ok(p))
        schema_fail(p->s, ERR_NOMEM, "no memory for a pattern");
    return 0;
}

/* One member of a class; true: it is a single character, and may begin a range. */
static bool member(struct pattern_text *p, struct gram_ranges *r, uint32_t *cp)
{
    if (peek(p) == '\\')
        return !escape(p, r, cp);
    if (peek(p) == '[' && p->at + 1 < p->len && strchr(":.=", p->text[p->at + 1]))
        fail(p, "classes in classes are not supported");
    read_char(p, cp);
    return true;
}

static uint32_t char_class(struct pattern_text *p)
{
    struct gram_ranges r = {0};
    uint32_t lo, hi;
    p->at++;
    bool negate = next_is(p, "^");
    while (ok(p) && peek(p) != ']') {
        size_t before = r.n;
        if (at_end(p)) {
            fail(p, "a class without its closing bracket");
            break;
        }
        if (!member(p, &r, &lo)) {
            if (negate && p->text[p->at - 1] >= 'A' && p->text[p->at - 1] <= 'Z')
                fail(p, "\\D, \\W and \\S are not supported in a class that is negated");
            if (negate && add(p, &r, 0x80, 0x10FFFF)) /* of ASCII, as above; some take these for blanks */
                add(p, &r, 0x1C, 0x1F);
            continue;
        }
        r.n = before;
        hi = lo;
        if (peek(p) == '-' && p->at + 1 < p->len && p->text[p->at + 1] != ']') {
            p->at++;
            if (!member(p, &r, &hi) || hi < lo)
                fail(p, "this is no range of characters");
        }
        add(p, &r, lo, hi);
    }
    p->at++;
    if (ok(p) && r.n == 0 && !negate)
        fail(p, "an empty class");
    return put(p, &r, negate);
}

static uint32_t single(struct pattern_text *p)
{
    struct gram_ranges r = {0};
    uint32_t cp;
    if (peek(p) == '.') { /* no end of a line */
        p->at++;
        add(p, &r, '\n', '\n');
        add(p, &r, '\r', '\r');
        add(p, &r, 0x85, 0x85);
        add(p, &r, 0x2028, 0x2029);
        return put(p, &r, true);
    }
    if (peek(p) != '\\')
        read_char(p, &cp);
    else if (escape(p, &r, &cp))
        return put(p, &r, false);
    add(p, &r, cp, cp);
    return put(p, &r, false);
}

/* ---- structure ---- */

static uint32_t alternatives(struct pattern_text *p);

static uint32_t group(struct pattern_text *p)
{
    p->at++;
    if (!next_is(p, "?:") && peek(p) == '?')
        return fail(p, "groups with (? other than (?: are not supported");
    if (++p->depth > GROUPS_MAX)
        return fail(p, "groups lie more than 100 deep in each other");
    uint32_t out = alternatives(p);
    p->depth--;
    if (ok(p) && !next_is(p, ")"))
        return fail(p, "a group without its closing bracket");
    return out;
}

static uint32_t count(struct pattern_text *p)
{
    uint32_t n = 0;
    if (peek(p) < '0' || peek(p) > '9')
        return fail(p, "a number is missing ({m}, {m,} or {m,n})");
    for (; peek(p) >= '0' && peek(p) <= '9' && n <= COUNT_MAX; p->at++)
        n = n * 10 + (uint32_t)(peek(p) - '0');
    return n <= COUNT_MAX ? n : fail(p, "more than 1000000 times");
}

static uint32_t counted(struct pattern_text *p, uint32_t item)
{
    p->at++;
    uint32_t min = count(p), max = min;
    if (ok(p) && next_is(p, ","))
        max = peek(p) == '}' ? GRAM_MANY : count(p);
    if (ok(p) && !next_is(p, "}"))
        return fail(p, "the closing brace is missing ({m}, {m,} or {m,n})");
    if (ok(p) && min > max)
        return fail(p, "the most is below the least");
    return max == 0 ? 0 : tree_repeat(&p->t, item, min, max);
}

static uint32_t repeated(struct pattern_text *p, uint32_t item)
{
    char c = peek(p);
    if (!c || !strchr("*+?{", c))
        return item;
    if (c == '{') {
        item = counted(p, item);
    } else {
        p->at++;
        item = tree_repeat(&p->t, item, c == '+', c == '?' ? 1 : GRAM_MANY);
    }
    next_is(p, "?"); /* as few as possible: the same texts */
    if (peek(p) && strchr("*+?{", peek(p)))
        fail(p, "two repetitions of one item");
    return item;
}

static uint32_t anything(struct pattern_text *p)
{
    return tree_repeat(&p->t, tree_rule(&p->t, p->s->character), 0, GRAM_MANY);
}

static uint32_t sequence(struct pattern_text *p)
{
    bool outer = p->depth == 0, closed = false;
    uint32_t out = outer && !next_is(p, "^") ? anything(p) : 0;
    while (ok(p) && !at_end(p) && peek(p) != '|' && peek(p) != ')' && !closed) {
        char c = peek(p);
        if (c == '$' && outer) {
            p->at++;
            closed = true;
        } else if (c == '^' || c == '$') {
            fail(p, "^ and $ are supported at the ends of the pattern alone");
        } else if (strchr("*+?{", c)) {
            fail(p, "a repetition of nothing");
        } else {
            uint32_t item = c == '(' ? group(p) : c == '[' ? char_class(p) : single(p);
            out = tree_seq(&p->t, out, repeated(p, item));
        }
    }
    if (closed && ok(p) && !at_end(p) && peek(p) != '|')
        fail(p, "^ and $ are supported at the ends of the pattern alone");
    return outer && !closed ? tree_seq(&p->t, out, anything(p)) : out;
}

static uint32_t alternatives(struct pattern_text *p)
{
    uint32_t out = sequence(p);
    while (ok(p) && next_is(p, "|"))
        out = tree_alt(&p->t, sequence(p), out);
    return out;
}

uint32_t schema_pattern(struct schema *s, const char *text, size_t len, uint32_t next)
{
    struct pattern_text p = {.s = s, .text = text, .len = len};
    uint32_t out = GRAM_AT_FAIL;
    tree_init(&p.t);
    uint32_t root = alternatives(&p);
    if (ok(&p) && !at_end(&p))
        fail(&p, "a closing bracket without a group");
    if (p.t.failed)
        schema_fail(s, ERR_NOMEM, "no memory for a pattern");
    if (ok(&p))
        out = tree_emit(&p.t, &s->b, root, next, schema_chars);
    tree_fini(&p.t);
    return out;
}
