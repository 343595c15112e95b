/* JSON through cJSON, with its traps closed by one scan before it sees a byte.
 *
 * cJSON reads past what the grammar forbids: control bytes count as blanks,
 * "\uZZZZ" becomes nothing, "\u0000" cuts the string, numbers follow strtod.
 * The scan refuses those, bounds the depth and finds NUL escapes; structure is
 * left to cJSON.  (cJSON's global error pointer is never read.) */
#include "base/json.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/map.h"
#include "base/mem.h"
#include "base/utf8.h"

static const char nul_pair[2] = {(char)0xC0, (char)0x80};

struct scan {
    const char *s;
    size_t len, pos;
    size_t n_nul; /* "\u0000" escapes */
    size_t n_values; /* and names of members */
    size_t depth;
    const char *what; /* of the failure at pos */
};

static bool fail_at(struct scan *c, size_t pos, const char *what)
{
    c->pos = pos;
    c->what = what;
    return false;
}

static bool is_digit(const struct scan *c, size_t i)
{
    return i < c->len && c->s[i] >= '0' && c->s[i] <= '9';
}

/* int frac? exp? of RFC 8259 section 6. */
static bool scan_number(struct scan *c)
{
    size_t start = c->pos, i = start;
    if (c->s[i] == '-')
        i++;
    if (!is_digit(c, i) || (c->s[i] == '0' && is_digit(c, i + 1)))
        return fail_at(c, start, "malformed number");
    while (is_digit(c, i))
        i++;
    if (i < c->len && c->s[i] == '.') {
        if (!is_digit(c, ++i))
            return fail_at(c, start, "malformed number");
        while (is_digit(c, i))
            i++;
    }
    if (i < c->len && (c->s[i] == 'e' || c->s[i] == 'E')) {
        i++;
        if (i < c->len && (c->s[i] == '+' || c->s[i] == '-'))
            i++;
        if (!is_digit(c, i))
            return fail_at(c, start, "malformed number");
        while (is_digit(c, i))
            i++;
    }
    if (i - start > 60) /* cJSON copies at most 63 characters */
        return fail_at(c, start, "number of more than 60 characters");
    c->pos = i;
    return true;
}

static bool is_hex(char ch)
{
    return (ch >= '0' && ch <= '9') || (ch >= 'a' && ch <= 'f') || (ch >= 'A' && ch <= 'F');
}

/* At a backslash: 'h' or 'l' for the escape of a high or low surrogate, else 0. */
static char surrogate(const struct scan *c, size_t at)
{
    if (at + 6 > c->len || c->s[at] != '\\' || c->s[at + 1] != 'u' || (c->s[at + 2] | 32) != 'd')
        return 0;
    return strchr("89abAB", c->s[at + 3]) ? 'h' : strchr("cdefCDEF", c->s[at + 3]) ? 'l' : '\0';
}

/* Behind a \u escape that began at `at`: the second half of a pair is read with the first. */
static bool scan_surrogate(struct scan *c, size_t at)
{
    char kind = surrogate(c, at);
    if (kind == 'l' || (kind == 'h' && surrogate(c, at + 6) != 'l'))
        return fail_at(c, at, "half of a surrogate pair");
    if (kind == 'h')
        c->pos += 6;
    return true;
}

static bool scan_escape(struct scan *c)
{
    size_t at = c->pos; /* of the backslash */
    char kind = at + 1 < c->len ? c->s[at + 1] : '\0';
    if (kind == 'u') {
        for (size_t i = at + 2; i < at + 6; i++)
            if (i >= c->len || !is_hex(c->s[i]))
                return fail_at(c, at, "\\u without four hexadecimal digits");
        if (memcmp(c->s + at + 2, "0000", 4) == 0)
            c->n_nul++;
        c->pos = at + 6;
        return scan_surrogate(c, at);
    }
    if (kind == '\0' || !strchr("\"\\/bfnrt", kind))
        return fail_at(c, at, "unknown escape");
    c->pos = at + 2;
    return true;
}

static bool scan_string(struct scan *c)
{
    size_t start = c->pos++;
    while (c->pos < c->len) {
        unsigned char ch = (unsigned char)c->s[c->pos];
        if (ch == '"') {
            c->pos++;
            return true;
        }
        if (ch < 0x20)
            return fail_at(c, c->pos, "control character in a string");
        if (ch != '\\')
            c->pos++;
        else if (!scan_escape(c))
            return false;
    }
    return fail_at(c, start, "string without an end");
}

/* Of true, false and null, the letter that no other letter precedes. */
static bool begins_value(const struct scan *c)
{
    char ch = c->s[c->pos];
    if (ch == 't' || ch == 'f' || ch == 'n')
        return c->pos == 0 || c->s[c->pos - 1] < 'a' || c->s[c->pos - 1] > 'z';
    return ch == '"' || ch == '[' || ch == '{' || ch == '-' || (ch >= '0' && ch <= '9');
}

static bool scan_text(struct scan *c)
{
    if (c->len >= 3 && memcmp(c->s, "\xEF\xBB\xBF", 3) == 0)
        c->pos = 3; /* byte order mark: cJSON skips it, too */
    while (c->pos < c->len) {
        char ch = c->s[c->pos];
        c->n_values += begins_value(c);
        if (ch == '"') {
            if (!scan_string(c))
                return false;
            continue;
        }
        if (ch == '-' || (ch >= '0' && ch <= '9')) {
            if (!scan_number(c))
                return false;
            continue;
        }
        if ((ch == '{' || ch == '[') && ++c->depth > JSON_DEPTH_MAX)
            return fail_at(c, c->pos, "nested too deeply");
        if ((ch == '}' || ch == ']') && c->depth > 0)
            c->depth--;
        if ((unsigned char)ch < 0x20 && ch != '\t' && ch != '\n' && ch != '\r')
            return fail_at(c, c->pos, "control character");
        c->pos++;
    }
    return true;
}

/* Copy of text with every "\u0000" escape as C0 80; *len becomes the copy's. */
static char *replace_nuls(const char *s, size_t *len)
{
    char *out = mem_array(*len, 1);
    size_t n = 0;
    if (!out)
        return NULL;
    for (size_t i = 0; i < *len;) {
        if (s[i] != '\\') { /* (one outside a string is left for cJSON to refuse) */
            out[n++] = s[i++];
        } else if (*len - i >= 6 && memcmp(s + i, "\\u0000", 6) == 0) {
            memcpy(out + n, nul_pair, 2);
            n += 2;
            i += 6;
        } else { /* both characters, so that an escaped backslash hides a following 'u' */
            size_t two = *len - i < 2 ? *len - i : 2;
            memcpy(out + n, s + i, two);
            n += two;
            i += two;
        }
    }
    *len = n;
    return out;
}

/* Position in the original text: a NUL escape was 6 bytes and is 2. */
static size_t original_pos(const char *s, size_t pos)
{
    size_t extra = 0;
    for (size_t i = 0; i < pos; i++)
        extra += s[i] == nul_pair[0] ? 4 : 0;
    return pos + extra;
}

/* `open`: what of it begins and does not end. */
static int parse_scanned(cJSON **out, const char *s, size_t len, size_t open, const char *name, struct err *err)
{
    const char *end = NULL;
    cJSON *root = cJSON_ParseWithLengthOpts(s, len, &end, 0);
    size_t pos = end ? (size_t)(end - s) : 0;
    if (root) {
        while (pos < len && strchr(" \t\r\n", s[pos]))
            pos++;
        if (pos == len) {
            *out = root;
            return 0;
        }
    }
    bool early = !root && open > 0 && pos + 1 >= len; /* cJSON tells the last byte then */
    err_set(err, ERR_FORMAT, "%s: %s at byte %zu of the JSON text", name,
            root ? "more text after the value" : early ? "an object or a list without an end" : "malformed JSON",
            original_pos(s, early ? len : pos));
    cJSON_Delete(root);
    return ERR_FORMAT;
}

int json_parse(cJSON **out, const char *text, size_t len, const char *name, struct err *err)
{
    return json_parse_most(out, text, len, SIZE_MAX, name, err);
}

int json_parse_most(cJSON **out, const char *text, size_t len, size_t most, const char *name, struct err *err)
{
    struct scan c = {.s = text, .len = len};
    size_t bad;
    *out = NULL;
    if (len == 0)
        return err_set(err, ERR_FORMAT, "%s: empty where JSON is needed", name);
    if (!utf8_valid(text, len, &bad))
        return err_set(err, ERR_FORMAT, "%s: not UTF-8 at byte %zu of the JSON text", name, bad);
    if (!scan_text(&c))
        return err_set(err, ERR_FORMAT, "%s: %s at byte %zu of the JSON text", name, c.what, c.pos);
    if (c.n_values > most)
        return err_set(err, ERR_LIMIT, "%s: more than %zu values and names in JSON", name, most);
    if (c.n_nul == 0)
        return parse_scanned(out, text, len, c.depth, name, err);
    char *copy = replace_nuls(text, &len);
    if (!copy)
        return err_set(err, ERR_NOMEM, "%s: out of memory for %zu bytes of JSON", name, len);
    int rc = parse_scanned(out, copy, len, c.depth, name, err);
    free(copy);
    return rc;
}

int json_parse_file(cJSON **out, const char *path, struct err *err)
{
    struct map m;
    *out = NULL;
    int rc = map_open(&m, path, err);
    if (rc != 0)
        return rc;
    rc = json_parse(out, (const char *)m.data, m.size, path, err);
    map_close(&m);
    return rc;
}

const cJSON *json_get(const cJSON *obj, const char *key)
{
    const cJSON *found = NULL;
    if (!cJSON_IsObject(obj))
        return NULL;
    for (const cJSON *c = obj->child; c; c = c->next)
        if (c->string && strcmp(c->string, key) == 0)
            found = c; /* the last one counts, as in Python */
    return cJSON_IsNull(found) ? NULL : found;
}

int json_get_i64(const cJSON *obj, const char *key, int64_t min, int64_t max, int64_t *out,
                 const char *name, struct err *err)
{
    const cJSON *item = json_get(obj, key);
    if (!item)
        return 0;
    if (!cJSON_IsNumber(item))
        return err_set(err, ERR_FORMAT, "%s: %s must be an integer", name, key);
    double v = item->valuedouble;
    /* 2^53: above it a double no longer tells neighbours apart */
    if (!(fabs(v) <= 0x1p53) || v - floor(v) > 0)
        return err_set(err, ERR_FORMAT, "%s: %s is %.17g, not an integer up to 2^53", name, key, v);
    int64_t i = (int64_t)v;
    if (i < min || i > max)
        return err_set(err, ERR_FORMAT, "%s: %s is %lld, allowed are %lld to %lld", name, key,
                       (long long)i, (long long)min, (long long)max);
    *out = i;
    return 0;
}

int json_get_f64(const cJSON *obj, const char *key, double *out, const char *name, struct err *err)
{
    const cJSON *item = json_get(obj, key);
    if (!item)
        return 0;
    if (!cJSON_IsNumber(item))
        return err_set(err, ERR_FORMAT, "%s: %s must be a number", name, key);
    if (!isfinite(item->valuedouble))
        return err_set(err, ERR_FORMAT, "%s: %s is beyond the range of a double", name, key);
    *out = item->valuedouble;
    return 0;
}

int json_get_bool(const cJSON *obj, const char *key, bool *out, const char *name, struct err *err)
{
    const cJSON *item = json_get(obj, key);
    if (!item)
        return 0;
    if (!cJSON_IsBool(item))
        return err_set(err, ERR_FORMAT, "%s: %s must be true or false", name, key);
    *out = cJSON_IsTrue(item);
    return 0;
}

int json_get_str(const cJSON *obj, const char *key, const char **out, const char *name,
                 struct err *err)
{
    const cJSON *item = json_get(obj, key);
    if (!item)
        return 0;
    if (!cJSON_IsString(item))
        return err_set(err, ERR_FORMAT, "%s: %s must be a string", name, key);
    if (strchr(item->valuestring, nul_pair[0]))
        return err_set(err, ERR_FORMAT, "%s: %s holds a NUL character", name, key);
    *out = item->valuestring;
    return 0;
}

const char *json_kind(const cJSON *item)
{
    return cJSON_IsString(item)   ? "a string"
           : cJSON_IsNumber(item) ? "a number"
           : cJSON_IsBool(item)   ? "true or false"
           : cJSON_IsArray(item)  ? "a list"
           : cJSON_IsObject(item) ? "an object"
                                  : "null";
}

bool json_str(const cJSON *item, struct buf *out)
{
    if (!cJSON_IsString(item))
        return false;
    const char *s = item->valuestring;
    for (;;) {
        const char *nul = strchr(s, nul_pair[0]);
        if (!nul)
            break;
        buf_put(out, s, (size_t)(nul - s));
        buf_putc(out, '\0');
        s = nul + 2;
    }
    buf_puts(out, s);
    return true;
}
