/* Values as text: Python's str() and repr(), and JSON as its
 * json.dumps writes it.
 * Strings keep their marks; what stands around them is the template's own. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/template_parts.h"

static void own(struct marked *m, const char *s)
{
    marked_own(m, s, strlen(s));
}

/* The shortest digits that read back as f, in Python's notation. */
size_t float_repr(char out[40], double f)
{
    char digits[40];
    if (isnan(f) || isinf(f))
        return (size_t)snprintf(out, 40, "%s", isnan(f) ? "nan" : f < 0 ? "-inf" : "inf");
    int n = 1;
    do
        snprintf(digits, sizeof digits, "%.*e", n - 1, f);
    while (strtod(digits, NULL) != f && n++ < 17);
    int exponent = (int)strtol(strchr(digits, 'e') + 1, NULL, 10);
    if (exponent < -4 || exponent >= 16) {
        char *e = strchr(digits, 'e');
        return (size_t)snprintf(out, 40, "%.*se%c%02d", (int)(e - digits), digits, exponent < 0 ? '-' : '+', abs(exponent));
    }
    int decimals = n - 1 - exponent;
    return (size_t)snprintf(out, 40, "%.*f", decimals < 1 ? 1 : decimals, f);
}

static bool scalar(const struct val *v, struct marked *out)
{
    char text[40];
    switch (v->kind) {
    case V_NONE:
        own(out, "None");
        return true;
    case V_BOOL:
        own(out, v->u.b ? "True" : "False");
        return true;
    case V_INT:
        snprintf(text, sizeof text, "%lld", (long long)v->u.i);
        own(out, text);
        return true;
    case V_BIG:
        marked_put(out, v->u.s);
        return true;
    case V_FLOAT:
        float_repr(text, v->u.f);
        own(out, text);
        return true;
    default:
        return false;
    }
}

/* Python's repr of a string: single quotes unless only they occur; what cannot be printed as \x, \u. */
static bool repr_str(struct render *r, struct tstr s, struct marked *out)
{
    char quote = memchr(s.s, '\'', s.len) && !memchr(s.s, '"', s.len) ? '"' : '\'';
    if (!render_step(r, s.len / 4))
        return false;
    marked_own(out, &quote, 1);
    for (size_t i = 0, n; i < s.len; i += n) {
        char text[16];
        uint32_t cp;
        n = char_at(s, i, &cp);
        if (cp == (uint32_t)quote || cp == '\\')
            snprintf(text, sizeof text, "\\%c", (int)cp);
        else if (cp == '\n' || cp == '\r' || cp == '\t')
            snprintf(text, sizeof text, "\\%c", cp == '\n' ? 'n' : cp == '\r' ? 'r' : 't');
        else if (cp < 32 || (cp >= 127 && cp < 161) || cp == 0xad)
            snprintf(text, sizeof text, "\\x%02x", (unsigned)cp);
        else if (cp > 127 && space_char(cp))
            snprintf(text, sizeof text, "\\u%04x", (unsigned)cp);
        else {
            marked_put(out, str_part(s, i, n));
            continue;
        }
        marked_char(out, text, strlen(text), str_mark(&s, i));
    }
    marked_own(out, &quote, 1);
    return true;
}

static bool repr(struct render *r, const struct val *v, int depth, struct marked *out);

static bool repr_seq(struct render *r, const struct tseq *s, int depth, struct marked *out)
{
    static const char *const begin[] = {"[", "(", "", "dict_keys([", "dict_values([", "dict_items(["};
    static const char *const end[] = {"]", ")", "", "])", "])", "])"};
    if (s->kind == SEQ_RANGE || s->kind == SEQ_STREAM)
        return render_fail(r, ERR_UNSUPPORTED, "a %s is printed; make a list of it first", s->kind == SEQ_RANGE ? "range" : "generator");
    own(out, begin[s->kind]);
    for (size_t i = 0; i < s->n; i++) {
        if (i)
            own(out, ", ");
        if (!repr(r, &s->v[i], depth + 1, out))
            return false;
    }
    if (s->kind == SEQ_TUPLE && s->n == 1)
        own(out, ",");
    own(out, end[s->kind]);
    return true;
}

static bool repr_map(struct render *r, const struct tmap *m, int depth, struct marked *out)
{
    own(out, "{");
    for (size_t i = 0; i < m->n; i++) {
        if (i)
            own(out, ", ");
        if (!repr(r, &m->keys[i], depth + 1, out))
            return false;
        own(out, ": ");
        if (!repr(r, &m->vals[i], depth + 1, out))
            return false;
    }
    own(out, "}");
    return true;
}

static bool check(struct render *r, int depth, const struct marked *out)
{
    if (depth > TEMPLATE_NEST_MAX)
        return render_fail(r, ERR_LIMIT, "a value is nested deeper than %d", TEMPLATE_NEST_MAX);
    if (out->text.len > TEMPLATE_OUTPUT_MAX)
        return render_fail(r, ERR_LIMIT, "a text is over the limit of %zu MiB", TEMPLATE_OUTPUT_MAX >> 20);
    return render_step(r, 1);
}

static bool repr(struct render *r, const struct val *v, int depth, struct marked *out)
{
    if (!check(r, depth, out))
        return false;
    if (scalar(v, out))
        return true;
    switch (v->kind) {
    case V_STR:
        return repr_str(r, v->u.s, out);
    case V_SEQ:
        return repr_seq(r, v->u.seq, depth, out);
    case V_MAP:
        return repr_map(r, v->u.map, depth, out);
    case V_UNDEF:
        own(out, "Undefined");
        return true;
    default:
        return render_fail(r, ERR_UNSUPPORTED, "a value of type %s is printed", val_type(v));
    }
}

bool val_repr(struct render *r, const struct val *v, struct marked *out)
{
    return repr(r, v, 0, out);
}

bool val_str(struct render *r, const struct val *v, struct marked *out)
{
    if (v->kind == V_UNDEF)
        return true;
    if (v->kind == V_STR) {
        marked_put(out, v->u.s);
        return check(r, 0, out) && render_step(r, v->u.s.len / 16);
    }
    return repr(r, v, 0, out);
}

bool val_to_str(struct render *r, const struct val *v, struct tstr *out)
{
    struct marked m;
    struct val s;
    if (v->kind == V_STR) {
        *out = v->u.s;
        return true;
    }
    marked_init(&m);
    bool ok = val_str(r, v, &m) && val_from_marked(r, &m, &s);
    marked_fini(&m);
    if (ok)
        *out = s.u.s;
    return ok;
}

/* ---- JSON ---- */

static void json_escape(uint32_t cp, bool ascii, char text[16])
{
    static const char simple[] = "\"\"\\\\\nn\rr\tt\bb\ff";
    text[0] = 0;
    for (size_t i = 0; i < sizeof simple - 1; i += 2)
        if (cp == (unsigned char)simple[i])
            snprintf(text, 16, "\\%c", simple[i + 1]);
    if (text[0])
        return;
    if (cp < 32 || (ascii && cp > 126 && cp < 0x10000))
        snprintf(text, 16, "\\u%04x", (unsigned)cp);
    else if (ascii && cp > 0xffff)
        snprintf(text, 16, "\\u%04x\\u%04x", (unsigned)(0xd800 + ((cp - 0x10000) >> 10)), (unsigned)(0xdc00 + (cp & 0x3ff)));
}

static bool json_str_put(struct render *r, struct tstr s, bool ascii, struct marked *out)
{
    size_t done = 0;
    if (!render_step(r, s.len / 4))
        return false;
    own(out, "\"");
    for (size_t i = 0, n; i < s.len; i += n) {
        char text[16];
        uint32_t cp;
        n = char_at(s, i, &cp);
        json_escape(cp, ascii, text);
        if (!text[0])
            continue;
        marked_put(out, str_part(s, done, i - done));
        marked_char(out, text, strlen(text), str_mark(&s, i));
        done = i + n;
    }
    marked_put(out, str_part(s, done, s.len - done));
    own(out, "\"");
    return true;
}

static void newline(const struct json_style *st, int depth, struct marked *out)
{
    if (st->indent < 0)
        return;
    own(out, "\n");
    for (int i = 0; i < st->indent * depth; i++)
        own(out, " ");
}

static bool json(struct render *r, const struct val *v, const struct json_style *st, int depth, struct marked *out);

static bool json_seq(struct render *r, const struct tseq *s, const struct json_style *st, int depth, struct marked *out)
{
    if (s->kind > SEQ_TUPLE)
        return render_fail(r, ERR_FORMAT, "tojson of a generator or a view; make a list of it first");
    own(out, "[");
    for (size_t i = 0; i < s->n; i++) {
        if (i)
            own(out, st->comma);
        newline(st, depth + 1, out);
        if (!json(r, &s->v[i], st, depth + 1, out))
            return false;
    }
    if (s->n)
        newline(st, depth, out);
    own(out, "]");
    return true;
}

static bool json_key(struct render *r, const struct val *key, const struct json_style *st, struct marked *out)
{
    if (key->kind == V_STR)
        return json_str_put(r, key->u.s, st->ascii, out);
    own(out, "\"");
    bool ok = json(r, key, st, 0, out);
    own(out, "\"");
    return ok;
}

/* Indices of the keys in the order they are written. */
static size_t *key_order(struct render *r, const struct tmap *m, bool sort)
{
    size_t *at = render_alloc(r, (m->n + 1) * sizeof *at);
    for (size_t i = 0; at && i < m->n; i++)
        at[i] = i;
    for (size_t i = 1; at && sort && i < m->n; i++)
        for (size_t k = i; k > 0; k--) {
            int order;
            if (!val_less(r, &m->keys[at[k]], &m->keys[at[k - 1]], &order, "<"))
                return NULL;
            if (order >= 0)
                break;
            size_t t = at[k];
            at[k] = at[k - 1];
            at[k - 1] = t;
        }
    return at;
}

static bool json_map(struct render *r, const struct tmap *m, const struct json_style *st, int depth, struct marked *out)
{
    size_t *at = key_order(r, m, st->sort);
    if (!at)
        return false;
    own(out, "{");
    for (size_t i = 0; i < m->n; i++) {
        if (i)
            own(out, st->comma);
        newline(st, depth + 1, out);
        if (!json_key(r, &m->keys[at[i]], st, out))
            return false;
        own(out, st->colon);
        if (!json(r, &m->vals[at[i]], st, depth + 1, out))
            return false;
    }
    if (m->n)
        newline(st, depth, out);
    own(out, "}");
    return true;
}

static bool json(struct render *r, const struct val *v, const struct json_style *st, int depth, struct marked *out)
{
    if (!check(r, depth, out) || !render_step(r, st->indent > 0 ? (size_t)(st->indent * depth) / 16 : 0))
        return false;
    switch (v->kind) {
    case V_NONE:
        own(out, "null");
        return true;
    case V_BOOL:
        own(out, v->u.b ? "true" : "false");
        return true;
    case V_FLOAT:
        if (isnan(v->u.f) || isinf(v->u.f)) {
            own(out, isnan(v->u.f) ? "NaN" : v->u.f < 0 ? "-Infinity" : "Infinity");
            return true;
        }
        return scalar(v, out);
    case V_INT:
    case V_BIG:
        return scalar(v, out);
    case V_STR:
        return json_str_put(r, v->u.s, st->ascii, out);
    case V_SEQ:
        return json_seq(r, v->u.seq, st, depth, out);
    case V_MAP:
        return json_map(r, v->u.map, st, depth, out);
    default:
        return render_fail(r, ERR_FORMAT, "tojson of a value of type %s", val_type(v));
    }
}

bool val_json(struct render *r, const struct val *v, const struct json_style *style, struct marked *out)
{
    return json(r, v, style, 0, out);
}
