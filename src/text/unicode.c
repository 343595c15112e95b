/* Unicode normal forms over utf8proc's data (UAX 15).
 * utf8proc's own map sorts combining marks by neighbour swaps, quadratic in a run of marks;
 * here a run is sorted by counting.  Knows characters, not tokens. */
#include "text/normalize.h"

#include <stdio.h>
#include <stdlib.h>
#include <utf8proc.h>

#include "base/mem.h"
#include "base/utf8.h"

#define DECOMPOSED_MAX 32 /* no character has more than 18 */

struct points {
    utf8proc_int32_t *v;
    size_t n, cap;
};

static bool all_ascii(const char *s, size_t len)
{
    unsigned char any = 0;
    for (size_t i = 0; i < len; i++)
        any |= (unsigned char)s[i];
    return any < 0x80;
}

static bool decompose(const char *s, size_t len, bool compat, struct points *p)
{
    utf8proc_option_t opts = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE;
    if (compat)
        opts = (utf8proc_option_t)(opts | UTF8PROC_COMPAT);
    for (size_t i = 0; i < len;) {
        uint32_t cp;
        utf8proc_int32_t part[DECOMPOSED_MAX];
        size_t step = utf8_decode(s + i, len - i, &cp);
        i += step ? step : 1;
        utf8proc_ssize_t n = utf8proc_decompose_char((utf8proc_int32_t)cp, part, DECOMPOSED_MAX, opts, NULL);
        if (n < 0 || n > DECOMPOSED_MAX) {
            part[0] = (utf8proc_int32_t)cp;
            n = 1;
        }
        utf8proc_int32_t *v = mem_grow(p->v, &p->cap, p->n + (size_t)n, sizeof *v);
        if (!v)
            return false;
        p->v = v;
        for (utf8proc_ssize_t k = 0; k < n; k++)
            p->v[p->n++] = part[k];
    }
    return true;
}

static unsigned combining(utf8proc_int32_t cp)
{
    return (unsigned)utf8proc_get_property(cp)->combining_class & 0xffu;
}

/* Stable sort of n marks by combining class. */
static bool sort_marks(utf8proc_int32_t *v, size_t n)
{
    size_t at[257] = {0};
    utf8proc_int32_t *to = mem_array(n, sizeof *to);
    if (!to)
        return false;
    for (size_t i = 0; i < n; i++)
        at[combining(v[i]) + 1]++;
    for (size_t c = 1; c < 257; c++)
        at[c] += at[c - 1];
    for (size_t i = 0; i < n; i++)
        to[at[combining(v[i])]++] = v[i];
    for (size_t i = 0; i < n; i++)
        v[i] = to[i];
    free(to);
    return true;
}

static bool reorder(struct points *p)
{
    for (size_t i = 0; i < p->n;) {
        bool sorted = true;
        unsigned last = 0, c;
        size_t from = i;
        for (; i < p->n && (c = combining(p->v[i])) != 0; i++) {
            sorted = sorted && c >= last;
            last = c;
        }
        if (!sorted && !sort_marks(p->v + from, i - from))
            return false;
        if (i == from)
            i++;
    }
    return true;
}

int unicode_normalize(enum norm_kind form, const char *s, size_t len, struct buf *out, struct err *err)
{
    if (all_ascii(s, len)) {
        buf_put(out, s, len);
        return 0;
    }
    bool compat = form == NORM_NFKC || form == NORM_NFKD;
    bool compose = form == NORM_NFC || form == NORM_NFKC;
    struct points p = {0};
    if (!decompose(s, len, compat, &p) || !reorder(&p)) {
        free(p.v);
        return err_set(err, ERR_NOMEM, "tokenizer: no memory for the normal form of %zu bytes", len);
    }
    if (compose) {
        utf8proc_ssize_t n =
            utf8proc_normalize_utf32(p.v, (utf8proc_ssize_t)p.n, UTF8PROC_COMPOSE | UTF8PROC_STABLE);
        p.n = n < 0 ? 0 : (size_t)n;
    }
    buf_reserve(out, p.n);
    for (size_t i = 0; i < p.n; i++) {
        char c[4];
        buf_put(out, c, utf8_encode((uint32_t)p.v[i], c));
    }
    free(p.v);
    return 0;
}

void unicode_library(char *out, size_t size)
{
    snprintf(out, size, "utf8proc %s, Unicode %s", utf8proc_version(), utf8proc_unicode_version());
}
