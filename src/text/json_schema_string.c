/* Strings of a JSON text: any, of a length, names of members.
 *
 * A character is written raw or as an escape, one beyond U+FFFF also as a pair of
 * surrogates; half of a pair and U+0000 are not written.  What must be an escape
 * (quotation mark, backslash, control characters) is one. */
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "text/json_schema_parts.h"

static uint32_t one_of(struct gram_build *b, const char *bytes, uint32_t next)
{
    struct gram_set set = {{0}};
    for (; *bytes; bytes++)
        set.w[(unsigned char)*bytes / 64] |= (uint64_t)1 << ((unsigned char)*bytes % 64);
    return gram_set(b, &set, next);
}

static uint32_t hex(struct gram_build *b, int n, uint32_t next)
{
    while (n-- > 0)
        next = one_of(b, "0123456789abcdefABCDEF", next);
    return next;
}

/* What comes after \u: 0001..D7FF, E000..FFFF, or a pair. */
static uint32_t four_digits(struct gram_build *b, uint32_t next)
{
    uint32_t low = gram_str(b, "\\u", one_of(b, "dD", one_of(b, "cdefCDEF", hex(b, 2, next))));
    uint32_t out = one_of(b, "dD", gram_or(b, one_of(b, "01234567", hex(b, 2, next)), one_of(b, "89abAB", hex(b, 2, low))));
    uint32_t zero = one_of(b, "123456789abcdefABCDEF", next); /* the last digit, where all before it are 0 */
    for (int n = 1; n < 3; n++)
        zero = gram_or(b, one_of(b, "123456789abcdefABCDEF", hex(b, n, next)), gram_str(b, "0", zero));
    out = gram_or(b, gram_str(b, "0", zero), out);
    return gram_or(b, one_of(b, "123456789abcefABCEF", hex(b, 3, next)), out);
}

static uint32_t raw_chars(struct gram_build *b, const struct gram_range *more, size_t n, uint32_t next)
{
    struct gram_ranges r = {0};
    bool ok = gram_ranges_add(&r, 0, 0x1F) && gram_ranges_add(&r, '"', '"') && gram_ranges_add(&r, '\\', '\\');
    for (size_t i = 0; i < n && ok; i++)
        ok = gram_ranges_add(&r, more[i].lo, more[i].hi);
    ok = ok && gram_ranges_normal(&r, true);
    if (ok)
        next = gram_chars(b, &r, next);
    else if (b->rc == 0)
        b->rc = err_set(b->err, ERR_NOMEM, "no memory for characters");
    free(r.v);
    return next;
}

static uint32_t any_char(struct gram_build *b, uint32_t next)
{
    uint32_t escape = gram_or(b, one_of(b, "\"\\/bfnrt", next), gram_str(b, "u", four_digits(b, next)));
    return gram_or(b, raw_chars(b, NULL, 0, next), gram_str(b, "\\", escape));
}

void schema_string_rules(struct schema *s)
{
    struct gram_build *b = &s->b;
    uint32_t end = gram_str(b, "\"", GRAM_AT_END), loop = gram_hole(b), raw = gram_hole(b);
    gram_fill(b, loop, any_char(b, loop), end);
    gram_fill(b, raw, raw_chars(b, NULL, 0, raw), end);
    s->string = gram_rule(b);
    gram_define(b, s->string, gram_str(b, "\"", loop));
    s->character = gram_rule(b);
    gram_define(b, s->character, any_char(b, GRAM_AT_END));
    s->raw_tail = gram_rule(b);
    gram_define(b, s->raw_tail, raw);
}

uint32_t schema_string(struct schema *s, const cJSON *node, uint32_t next)
{
    struct gram_build *b = &s->b;
    const cJSON *pattern = schema_member(node, "pattern");
    uint32_t min = schema_count(s, node, "minLength", 0), max = schema_count(s, node, "maxLength", GRAM_MANY);
    struct buf text;
    if (min == 0 && max == GRAM_MANY && !pattern)
        return gram_call(b, s->string, next);
    next = gram_str(b, "\"", next);
    if (!pattern)
        return gram_str(b, "\"", gram_repeat(b, s->character, min, max, next));
    if (min > 0 || max != GRAM_MANY)
        return schema_fail(s, ERR_ARG, "\"pattern\" beside \"%s\" is not supported", min > 0 ? "minLength" : "maxLength");
    buf_init(&text);
    if (!json_str(pattern, &text))
        next = schema_fail(s, ERR_ARG, "pattern must be a text");
    else if (text.failed)
        next = schema_fail(s, ERR_NOMEM, "no memory for a pattern");
    else
        next = gram_str(b, "\"", schema_pattern(s, buf_str(&text), text.len, next));
    buf_fini(&text);
    return next;
}

/* ---- characters of a pattern ---- */

/* The range without [from, to]. */
static bool add_rest(struct gram_ranges *out, struct gram_range r, uint32_t from, uint32_t to)
{
    if (r.hi < from || r.lo > to)
        return gram_ranges_add(out, r.lo, r.hi);
    return (r.lo >= from || gram_ranges_add(out, r.lo, from - 1)) && (r.hi <= to || gram_ranges_add(out, to + 1, r.hi));
}

static uint32_t escaped(struct gram_build *b, uint32_t cp, uint32_t next)
{
    static const char names[] = "\"\\bfnrt", values[] = "\"\\\b\f\n\r\t", digits[] = "0123456789abcdef";
    const char *known = strchr(values, (int)cp);
    if (cp == 0)
        return GRAM_AT_FAIL;
    if (known) {
        char text[] = {'\\', names[known - values]};
        return gram_bytes(b, text, 2, next);
    }
    char text[] = {'\\', 'u', '0', '0', digits[cp / 16], digits[cp % 16]};
    return gram_bytes(b, text, 6, next);
}

uint32_t schema_chars(struct gram_build *b, const struct gram_ranges *r, uint32_t next)
{
    struct gram_ranges raw = {0}, rest = {0};
    uint32_t out = GRAM_AT_FAIL;
    bool ok = true;
    for (size_t i = 0; i < r->n && ok; i++) {
        for (uint32_t cp = r->v[i].lo; cp <= r->v[i].hi && cp <= '\\'; cp++)
            if (cp < 0x20 || cp == '"' || cp == '\\')
                out = gram_or(b, escaped(b, cp, next), out);
        rest.n = 0;
        ok = add_rest(&rest, r->v[i], 0, 0x1F);
        size_t n = rest.n;
        for (size_t k = 0; k < n && ok; k++) {
            struct gram_range part = rest.v[k];
            if (part.hi < '"' || part.lo > '"') {
                ok = add_rest(&raw, part, '\\', '\\');
                continue;
            }
            ok = (part.lo == '"' || gram_ranges_add(&raw, part.lo, '"' - 1)) &&
                 (part.hi == '"' || add_rest(&raw, (struct gram_range){'"' + 1, part.hi}, '\\', '\\'));
        }
    }
    if (!ok && b->rc == 0)
        b->rc = err_set(b->err, ERR_NOMEM, "no memory for characters");
    if (b->rc == 0)
        out = gram_or(b, gram_chars(b, &raw, next), out);
    free(raw.v);
    free(rest.v);
    return out;
}

/* ---- names of members that are not listed ---- */

/* names[0, n) begin alike up to byte `at`, where we are: any end but theirs. */
static uint32_t other_tail(struct schema *s, const struct schema_name *names, size_t n, size_t at, uint32_t next)
{
    struct gram_build *b = &s->b;
    struct gram_ranges known = {0};
    bool is_name = n > 0 && names[0].len == at;
    uint32_t out = is_name ? GRAM_AT_FAIL : gram_str(b, "\"", next);
    size_t i = is_name;
    while (i < n && b->rc == 0) {
        uint32_t cp, tail;
        size_t len = utf8_decode(names[i].s + at, names[i].len - at, &cp), end = i + 1;
        while (end < n && names[end].len >= at + len && memcmp(names[end].s + at, names[i].s + at, len) == 0)
            end++;
        if (len == 0 || !gram_ranges_add(&known, cp, cp)) {
            free(known.v);
            return schema_fail(s, ERR_NOMEM, "no memory for the names of members");
        }
        tail = other_tail(s, names + i, end - i, at + len, next);
        if (cp >= 0x20 && cp != '"' && cp != '\\')
            out = gram_or(b, gram_bytes(b, names[i].s + at, len, tail), out);
        i = end;
    }
    out = gram_or(b, raw_chars(b, known.v, known.n, gram_call(b, s->raw_tail, next)), out);
    free(known.v);
    return out;
}

uint32_t schema_other_name(struct schema *s, const struct schema_name *names, size_t n, uint32_t next)
{
    return n == 0 ? gram_call(&s->b, s->string, next) : gram_str(&s->b, "\"", other_tail(s, names, n, 0, next));
}
