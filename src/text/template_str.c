/* What strings can do: strip, split, replace, find, join, case.
 * Marks go along with their bytes.
 * Knows strings alone. */
#include <string.h>
#include <utf8proc.h>

#include "base/utf8.h"
#include "text/chars.h"
#include "text/template_parts.h"

/* str.isspace() */
bool space_char(uint32_t cp)
{
    return char_is_space(cp) || (cp >= 0x1c && cp <= 0x1f);
}

static bool in_set(struct render *r, uint32_t cp, const struct tstr *chars)
{
    uint32_t c;
    if (!chars)
        return space_char(cp);
    if (!render_step(r, (chars->len + 15) / 16))
        return false;
    for (size_t i = 0; i < chars->len;) {
        i += char_at(*chars, i, &c);
        if (c == cp)
            return true;
    }
    return false;
}

static struct tstr strip(struct render *r, struct tstr s, const struct tstr *chars, unsigned ends)
{
    size_t a = 0, b = s.len;
    uint32_t cp;
    while ((ends & STRIP_LEFT) && a < b) {
        size_t n = char_at(s, a, &cp);
        if (!in_set(r, cp, chars))
            break;
        a += n;
    }
    while ((ends & STRIP_RIGHT) && b > a) {
        size_t p = b - 1;
        while (p > a && ((unsigned char)s.s[p] & 0xc0) == 0x80)
            p--;
        char_at(s, p, &cp);
        if (!in_set(r, cp, chars))
            break;
        b = p;
    }
    return str_part(s, a, b - a);
}

struct tstr str_strip(struct tstr s, unsigned ends)
{
    return strip(NULL, s, NULL, ends);
}

bool str_strip_of(struct render *r, struct tstr s, struct tstr chars, unsigned ends, struct tstr *out)
{
    *out = strip(r, s, &chars, ends);
    return !r->err->code;
}

bool str_find(struct tstr s, struct tstr what, size_t from, size_t *at)
{
    if (from > s.len || what.len > s.len - from)
        return false;
    const char *p = what.len ? memmem(s.s + from, s.len - from, what.s, what.len) : s.s + from;
    if (p)
        *at = (size_t)(p - s.s);
    return p != NULL;
}

bool str_find_last(struct render *r, struct tstr s, struct tstr what, size_t *at)
{
    for (size_t i = s.len >= what.len ? s.len - what.len + 1 : 0; i-- > 0;) {
        if (what.len && s.s[i] != what.s[0])
            continue;
        if (!render_step(r, 1 + what.len / 64))
            return false;
        if (memcmp(s.s + i, what.s, what.len) == 0) {
            *at = i;
            return true;
        }
    }
    return false;
}

static void reverse(struct tseq *s)
{
    for (size_t i = 0; i < s->n / 2; i++) {
        struct val t = s->v[i];
        s->v[i] = s->v[s->n - 1 - i];
        s->v[s->n - 1 - i] = t;
    }
}

/* The end of the word that begins at `at`. */
static size_t word_end(struct tstr s, size_t at)
{
    uint32_t cp;
    for (size_t n; at < s.len; at += n) {
        n = char_at(s, at, &cp);
        if (space_char(cp))
            break;
    }
    return at;
}

static bool split_words(struct render *r, struct tstr s, int64_t most, struct tseq *out)
{
    s = str_strip(s, STRIP_LEFT);
    for (int64_t n = 0; s.len > 0; n++) {
        size_t end = most >= 0 && n >= most ? s.len : word_end(s, 0);
        if (!seq_push(r, out, val_strn(str_part(s, 0, end))) || !render_step(r, end / 16))
            return false;
        s = str_strip(str_part(s, end, s.len - end), STRIP_LEFT);
    }
    return true;
}

bool str_split(struct render *r, struct tstr s, const struct tstr *sep, int64_t most, bool from_right, struct val *out)
{
    size_t at;
    if (!seq_new(r, SEQ_LIST, 0, out) || !render_step(r, s.len / 8))
        return false;
    if (!sep)
        return from_right && most >= 0 ? render_fail(r, ERR_UNSUPPORTED, "rsplit by white space with a maximum is not supported")
                                       : split_words(r, s, most, out->u.seq);
    if (sep->len == 0)
        return render_fail(r, ERR_FORMAT, "split: the separator is empty");
    for (int64_t n = 0; most < 0 || n < most; n++) {
        if (!(from_right ? str_find_last(r, s, *sep, &at) : str_find(s, *sep, 0, &at)))
            break; /* also when that was too much */
        size_t behind = at + sep->len;
        struct tstr part = from_right ? str_part(s, behind, s.len - behind) : str_part(s, 0, at);
        if (!seq_push(r, out->u.seq, val_strn(part)) || !render_step(r, part.len / 16))
            return false;
        s = from_right ? str_part(s, 0, at) : str_part(s, behind, s.len - behind);
    }
    if (r->err->code || !seq_push(r, out->u.seq, val_strn(s)))
        return false;
    if (from_right)
        reverse(out->u.seq);
    return true;
}

static bool line_end(uint32_t cp)
{
    return (cp >= 10 && cp <= 13) || (cp >= 0x1c && cp <= 0x1e) || cp == 0x85 || cp == 0x2028 || cp == 0x2029;
}

bool str_lines(struct render *r, struct tstr s, bool keep, struct val *out)
{
    size_t start = 0;
    if (!seq_new(r, SEQ_LIST, 0, out) || !render_step(r, s.len / 8))
        return false;
    for (size_t i = 0, n; i < s.len; i += n) {
        uint32_t cp;
        n = char_at(s, i, &cp);
        if (!line_end(cp))
            continue;
        if (cp == '\r' && i + 1 < s.len && s.s[i + 1] == '\n')
            n = 2;
        if (!seq_push(r, out->u.seq, val_strn(str_part(s, start, i + (keep ? n : 0) - start))))
            return false;
        start = i + n;
    }
    return start == s.len || seq_push(r, out->u.seq, val_strn(str_part(s, start, s.len - start)));
}

bool str_replace(struct render *r, struct tstr s, struct tstr from, struct tstr to, int64_t most, struct val *out)
{
    struct marked m;
    size_t done = 0, at, i = 0;
    bool ok = true;
    marked_init(&m);
    for (int64_t n = 0; (most < 0 || n < most) && ok && str_find(s, from, i, &at); n++) {
        marked_put(&m, str_part(s, done, at - done));
        marked_put(&m, to);
        done = at + from.len;
        uint32_t cp;
        i = from.len ? done : at < s.len ? at + char_at(s, at, &cp) : s.len + 1;
        ok = render_step(r, from.len / 64 + to.len / 64) && m.text.len <= TEMPLATE_OUTPUT_MAX;
    }
    if (!ok) {
        render_fail(r, ERR_LIMIT, "replace: the text becomes too long");
    } else {
        marked_put(&m, str_part(s, done, s.len - done));
        ok = val_from_marked(r, &m, out);
    }
    marked_fini(&m);
    return ok;
}

bool str_join(struct render *r, struct tstr sep, const struct tseq *parts, struct val *out)
{
    struct marked m;
    bool ok = true;
    marked_init(&m);
    for (size_t i = 0; i < parts->n && ok; i++) {
        if (i)
            marked_put(&m, sep);
        ok = val_str(r, &parts->v[i], &m);
    }
    ok = ok && val_from_marked(r, &m, out);
    marked_fini(&m);
    return ok;
}

/* ---- case ---- */

static bool cased(uint32_t cp)
{
    return utf8proc_islower((utf8proc_int32_t)cp) || utf8proc_isupper((utf8proc_int32_t)cp) ||
           utf8proc_category((utf8proc_int32_t)cp) == UTF8PROC_CATEGORY_LT;
}

static void put_case(struct marked *m, uint32_t cp, bool upper, bool title, char mark)
{
    char c[4];
    if (cp == 0xdf && upper) { /* the one common character whose upper case is two */
        marked_char(m, title ? "Ss" : "SS", 2, mark);
        return;
    }
    utf8proc_int32_t to = title ? utf8proc_totitle((utf8proc_int32_t)cp)
                          : upper ? utf8proc_toupper((utf8proc_int32_t)cp)
                                  : utf8proc_tolower((utf8proc_int32_t)cp);
    marked_char(m, c, utf8_encode((uint32_t)to, c), mark);
}

bool str_recase(struct render *r, struct tstr s, enum str_case how, struct val *out)
{
    struct marked m;
    bool in_word = false;
    marked_init(&m);
    for (size_t i = 0, n; i < s.len; i += n) {
        uint32_t cp;
        n = char_at(s, i, &cp);
        bool first = how == CASE_TITLE ? !in_word : i == 0;
        bool upper = how == CASE_UPPER || ((how == CASE_TITLE || how == CASE_CAPITAL) && first) ||
                     (how == CASE_SWAP && utf8proc_islower((utf8proc_int32_t)cp));
        put_case(&m, cp, upper, upper && (how == CASE_TITLE || how == CASE_CAPITAL), str_mark(&s, i));
        in_word = cased(cp);
    }
    bool ok = render_step(r, s.len / 8) && val_from_marked(r, &m, out);
    marked_fini(&m);
    return ok;
}

static bool is_class(uint32_t cp, const char *name)
{
    utf8proc_category_t c = utf8proc_category((utf8proc_int32_t)cp);
    bool alpha = c >= UTF8PROC_CATEGORY_LU && c <= UTF8PROC_CATEGORY_LO, digit = c == UTF8PROC_CATEGORY_ND;
    bool numeric = digit || c == UTF8PROC_CATEGORY_NL || c == UTF8PROC_CATEGORY_NO;
    if (strcmp(name, "isspace") == 0)
        return space_char(cp);
    return strcmp(name, "isalpha") == 0 ? alpha : strcmp(name, "isalnum") == 0 ? alpha || numeric
           : strcmp(name, "isnumeric") == 0 ? numeric : digit;
}

bool str_is_class(struct tstr s, const char *name)
{
    bool some = false, lower = strcmp(name, "islower") == 0, upper = strcmp(name, "isupper") == 0;
    for (size_t i = 0, n; i < s.len; i += n) {
        uint32_t cp;
        n = char_at(s, i, &cp);
        if (lower || upper) {
            if (cased(cp) && !(lower ? utf8proc_islower((utf8proc_int32_t)cp) : utf8proc_isupper((utf8proc_int32_t)cp)))
                return false;
            some = some || cased(cp);
        } else if (!is_class(cp, name)) {
            return false;
        } else {
            some = true;
        }
    }
    return some;
}
