/* Oniguruma to PCRE2: the escapes that mean something else there.
 *
 *   \s  Oniguruma: White_Space.  PCRE2 with UCP adds U+180E.
 *   \w  Oniguruma: Alphabetic, M, Nd, Pc; outside sets also the six superscripts and fractions of
 *       Latin-1.  PCRE2 with UCP: L, N and underscore.
 *   \b  goes by \w.
 *   \h  Oniguruma: a hexadecimal digit.  PCRE2: horizontal space.
 *   \uHHHH  PCRE2: \x{HHHH}.
 *   [:space:] and [:word:] within a set go the way of \s and \w.
 * Sets within sets and && have no PCRE2 form and are refused.  The rest is spelled alike; line
 * anchors and the newline are compile options (pattern.c). */
#include "text/onig.h"

#include <stdbool.h>
#include <string.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#if PCRE2_MAJOR > 10 || PCRE2_MINOR >= 40 /* the first with binary properties */
#define SPACE "\\p{White_Space}"
#define NOT_SPACE "\\P{White_Space}"
#define WORD "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}"
#else
#define SPACE "\\s"
#define NOT_SPACE "\\S"
#define WORD "\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}"
#endif
#define WORD_OUTSIDE WORD "\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}"
#define W "[" WORD_OUTSIDE "]"
#define HEX "0-9a-fA-F"

static const struct {
    char escape;
    const char *outside, *inside; /* of a set; NULL = refused there */
} escapes[] = {
    {'s', SPACE, SPACE},
    {'S', NOT_SPACE, NOT_SPACE},
    {'w', W, WORD},
    {'W', "[^" WORD_OUTSIDE "]", NULL},
    {'b', "(?:(?<=" W ")(?!" W ")|(?<!" W ")(?=" W "))", "\\b"},
    {'B', "(?:(?<=" W ")(?=" W ")|(?<!" W ")(?!" W "))", NULL},
    {'h', "[" HEX "]", HEX},
    {'H', "[^" HEX "]", NULL},
};

static bool is_hex4(const char *s, size_t len)
{
    return len >= 4 && strspn(s, "0123456789abcdefABCDEF") >= 4;
}

/* Respells the escape at src[0] = '\\'; returns how many bytes it took, 0 = refused. */
static size_t put_escape(const char *src, size_t len, bool in_set, struct buf *out)
{
    if (len < 2) {
        buf_putc(out, '\\');
        return 1;
    }
    for (size_t i = 0; i < sizeof escapes / sizeof *escapes; i++) {
        if (src[1] != escapes[i].escape)
            continue;
        const char *to = in_set ? escapes[i].inside : escapes[i].outside;
        if (!to)
            return 0;
        buf_puts(out, to);
        return 2;
    }
    if (src[1] == 'u' && is_hex4(src + 2, len - 2)) {
        buf_printf(out, "\\x{%.4s}", src + 2);
        return 6;
    }
    buf_put(out, src, 2);
    return 2;
}

/* Length of "[:name:]" at s, 0 if it is none. */
static size_t posix_len(const char *s, size_t len)
{
    if (len < 4 || s[1] != ':')
        return 0;
    const char *end = memmem(s + 2, len - 2, ":]", 2);
    return end ? (size_t)(end - s) + 2 : 0;
}

/* Respells "[:space:]" and its like, copies any other name. */
static void put_posix(const char *s, size_t len, struct buf *out)
{
    static const struct {
        const char *from, *to;
    } names[] = {{"[:space:]", SPACE}, {"[:^space:]", NOT_SPACE}, {"[:word:]", WORD}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strlen(names[i].from) == len && memcmp(s, names[i].from, len) == 0) {
            buf_puts(out, names[i].to);
            return;
        }
    buf_put(out, s, len);
}

/* Copies the set at src[0] = '['; returns its length, 0 = refused. */
static size_t put_set(const char *src, size_t len, struct buf *out)
{
    size_t i = 1;
    buf_putc(out, '[');
    if (i < len && src[i] == '^')
        buf_putc(out, src[i++]);
    for (size_t first = i; i < len;) {
        size_t n = 1;
        if (src[i] == ']' && i > first) {
            buf_putc(out, ']');
            return i + 1;
        }
        if (src[i] == '\\')
            n = put_escape(src + i, len - i, true, out);
        else if (src[i] == '[' && (n = posix_len(src + i, len - i)) > 0)
            put_posix(src + i, n, out);
        else if (src[i] == '[' || (src[i] == '&' && i + 1 < len && src[i + 1] == '&'))
            n = 0;
        else
            buf_putc(out, src[i]);
        if (n == 0)
            return 0;
        i += n;
    }
    return len; /* not closed: PCRE2 says so */
}

int onig_to_pcre(const char *src, size_t len, struct buf *out, const char *name, struct err *err)
{
    for (size_t i = 0; i < len;) {
        size_t n = 1;
        if (src[i] == '\\')
            n = put_escape(src + i, len - i, false, out);
        else if (src[i] == '[')
            n = put_set(src + i, len - i, out);
        else
            buf_putc(out, src[i]);
        if (n == 0)
            return err_set(err, ERR_UNSUPPORTED,
                           "%s: pattern %.*s: sets within sets, && and \\W or \\H in a set are not supported",
                           name, (int)(len > 400 ? 400 : len), src);
        i += n;
    }
    return 0;
}
