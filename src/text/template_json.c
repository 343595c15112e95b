/* JSON text to values.  The text was accepted by json_parse before; what this adds is what a tree of doubles loses:
 * whole numbers are told from others and keep their digits.
 * Knows which strings are the template's own vocabulary: the usual roles. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "text/template_parts.h"

struct reader {
    struct render *r;
    const char *s, *end;
    int depth;
};

/* A template may make a control string of a role ("<|" ~ role ~ "|>"): these are its own words then, others not. */
static const char *const roles[] = {"system", "user", "assistant", "tool", "developer", "function", "ipython", "model", "tools",
                                    "environment", "observation"};

static bool wrong(struct reader *j)
{
    return render_fail(j->r, ERR_FORMAT, "the JSON of a variable is malformed");
}

static void blanks(struct reader *j)
{
    while (j->s < j->end && strchr(" \t\r\n", *j->s) && *j->s)
        j->s++;
}

static bool hex4(struct reader *j, uint32_t *out)
{
    *out = 0;
    if (j->end - j->s < 4)
        return wrong(j);
    for (int i = 0; i < 4; i++) {
        char c = *j->s++;
        uint32_t d = c >= '0' && c <= '9' ? (uint32_t)(c - '0') : (uint32_t)((c | 32) - 'a' + 10);
        if (d > 15)
            return wrong(j);
        *out = *out * 16 + d;
    }
    return true;
}

static bool escape(struct reader *j, char *out, size_t *n)
{
    static const char simple[] = "\"\"\\\\//b\bf\fn\nr\rt\t";
    uint32_t cp, low;
    char c = j->s < j->end ? *j->s++ : 0;
    for (size_t i = 0; i < sizeof simple - 1; i += 2)
        if (c == simple[i]) {
            out[(*n)++] = simple[i + 1];
            return true;
        }
    if (c != 'u' || !hex4(j, &cp))
        return wrong(j);
    if (cp >= 0xd800 && cp < 0xdc00) {
        if (j->end - j->s < 6 || j->s[0] != '\\' || j->s[1] != 'u')
            return wrong(j);
        j->s += 2;
        if (!hex4(j, &low) || low < 0xdc00 || low > 0xdfff)
            return wrong(j);
        cp = 0x10000 + ((cp - 0xd800) << 10) + (low - 0xdc00);
    } else if (cp >= 0xdc00 && cp < 0xe000) {
        return wrong(j);
    }
    *n += utf8_encode(cp, out + *n);
    return true;
}

static bool string(struct reader *j, struct val *out)
{
    const char *close = ++j->s;
    while (close < j->end && *close != '"')
        close += *close == '\\' && close + 1 < j->end ? 2 : 1;
    if (close >= j->end)
        return wrong(j);
    size_t n = 0;
    char *text = render_alloc(j->r, (size_t)(close - j->s) + 4);
    if (!text)
        return false;
    while (j->s < close) {
        char c = *j->s++;
        if (c != '\\')
            text[n++] = c;
        else if (!escape(j, text, &n))
            return false;
    }
    j->s = close + 1;
    *out = val_strn((struct tstr){.s = text, .len = n, .outside = true});
    return true;
}

static bool number(struct reader *j, struct val *out)
{
    char text[64];
    const char *start = j->s;
    bool whole = true;
    while (j->s < j->end && *j->s && strchr("+-.eE0123456789", *j->s)) {
        whole = whole && !strchr(".eE", *j->s);
        j->s++;
    }
    size_t n = (size_t)(j->s - start);
    char *copy = n < sizeof text ? text : render_alloc(j->r, n + 1);
    if (!copy || n == 0)
        return copy ? wrong(j) : false;
    memcpy(copy, start, n);
    copy[n] = 0;
    if (!whole) {
        *out = val_float(strtod(copy, NULL));
        return true;
    }
    errno = 0;
    long long i = strtoll(copy, NULL, 10);
    *out = errno ? (struct val){.kind = V_BIG, .u.s = str_own(start, n)} : val_int(i);
    return true;
}

static bool value(struct reader *j, struct val *out);

typedef bool member_fn(struct reader *j, struct val *to);

/* Members up to the closing bracket. */
static bool members(struct reader *j, char close, member_fn *read, struct val *to)
{
    j->s++;
    blanks(j);
    while (j->s < j->end && *j->s != close) {
        if (!read(j, to))
            return false;
        blanks(j);
        if (j->s < j->end && *j->s == ',')
            j->s++;
        blanks(j);
    }
    return j->s++ < j->end || wrong(j);
}

static bool element(struct reader *j, struct val *list)
{
    struct val v;
    return value(j, &v) && seq_push(j->r, list->u.seq, v);
}

static void own_role(const struct val *key, struct val *v)
{
    if (v->kind != V_STR || !str_is(key->u.s, "role"))
        return;
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++)
        if (str_is(v->u.s, roles[i]))
            v->u.s.outside = false;
}

static bool pair(struct reader *j, struct val *map)
{
    struct val k, v;
    if (*j->s != '"' || !string(j, &k))
        return wrong(j);
    blanks(j);
    if (j->s >= j->end || *j->s++ != ':' || !value(j, &v))
        return wrong(j);
    own_role(&k, &v);
    return map_set(j->r, map->u.map, k, v);
}

static bool composed(struct reader *j, struct val *out)
{
    return *j->s == '[' ? seq_new(j->r, SEQ_LIST, 0, out) && members(j, ']', element, out)
                        : map_new(j->r, V_MAP, out) && members(j, '}', pair, out);
}

static bool value(struct reader *j, struct val *out)
{
    static const struct {
        const char *word;
        struct val v;
    } words[] = {{"true", {.kind = V_BOOL, .u.b = true}}, {"false", {.kind = V_BOOL}}, {"null", {.kind = V_NONE}}};
    blanks(j);
    if (!render_step(j->r, 0) || j->s >= j->end)
        return wrong(j);
    if (++j->depth > TEMPLATE_NEST_MAX)
        return render_fail(j->r, ERR_LIMIT, "JSON nested deeper than %d", TEMPLATE_NEST_MAX);
    bool ok = false, word = false;
    for (size_t i = 0; i < 3 && !word; i++) {
        size_t n = strlen(words[i].word);
        if ((size_t)(j->end - j->s) >= n && memcmp(j->s, words[i].word, n) == 0) {
            *out = words[i].v;
            j->s += n;
            word = ok = true;
        }
    }
    if (!word)
        ok = *j->s == '"' ? string(j, out) : *j->s == '[' || *j->s == '{' ? composed(j, out) : number(j, out);
    j->depth--;
    return ok;
}

bool json_value(struct render *r, const char *text, size_t len, struct val *out)
{
    struct reader j = {.r = r, .s = text, .end = text + len};
    return value(&j, out);
}
