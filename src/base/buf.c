/* Growable bytes with sticky failure, and the JSON and UTF-8 writers that
 * append to them.  Numbers come out the same in every locale.  Knows nothing
 * of where the bytes go. */
#include "base/buf.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"

static const char replacement[] = "\xEF\xBF\xBD"; /* U+FFFD */

void buf_init(struct buf *b)
{
    *b = (struct buf){0};
}

void buf_fini(struct buf *b)
{
    free(b->data);
    *b = (struct buf){0};
}

void buf_clear(struct buf *b)
{
    b->len = 0;
    if (b->data)
        b->data[0] = '\0';
}

bool buf_failed(const struct buf *b)
{
    return b->failed;
}

bool buf_reserve(struct buf *b, size_t extra)
{
    size_t need;
    if (b->failed)
        return false;
    if (!mem_add(b->len, extra, &need) || !mem_add(need, 1, &need)) {
        b->failed = true;
        return false;
    }
    if (need <= b->cap)
        return true;
    char *p = mem_grow(b->data, &b->cap, need, 1);
    if (!p) {
        b->failed = true;
        return false;
    }
    b->data = p;
    return true;
}

void buf_put(struct buf *b, const void *data, size_t len)
{
    if (!buf_reserve(b, len))
        return;
    if (len > 0)
        memcpy(b->data + b->len, data, len);
    b->len += len;
    b->data[b->len] = '\0';
}

void buf_puts(struct buf *b, const char *s)
{
    buf_put(b, s, strlen(s));
}

void buf_putc(struct buf *b, char c)
{
    buf_put(b, &c, 1);
}

void buf_printf(struct buf *b, const char *fmt, ...)
{
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    if (n < 0)
        b->failed = true;
    else if (buf_reserve(b, (size_t)n)) {
        vsnprintf(b->data + b->len, (size_t)n + 1, fmt, again);
        b->len += (size_t)n;
    }
    va_end(again);
}

const char *buf_str(const struct buf *b)
{
    return b->data ? b->data : "";
}

/* The two-character escape of a byte, or 0. */
static char short_escape(char c)
{
    switch (c) {
    case '"': return '"';
    case '\\': return '\\';
    case '\b': return 'b';
    case '\f': return 'f';
    case '\n': return 'n';
    case '\r': return 'r';
    case '\t': return 't';
    default: return 0;
    }
}

void buf_put_json(struct buf *b, const char *s, size_t len)
{
    size_t run = 0, i = 0; /* s[run..i) is to be copied as it is */
    buf_putc(b, '"');
    while (i < len) {
        uint32_t cp;
        size_t n = utf8_decode(s + i, len - i, &cp);
        if (n > 0 && cp >= 0x20 && cp != '"' && cp != '\\') {
            i += n;
            continue;
        }
        buf_put(b, s + run, i - run);
        if (n == 0) {
            buf_puts(b, replacement);
            i += utf8_bad_len(s + i, len - i);
        } else if (short_escape(s[i])) {
            char esc[2] = {'\\', short_escape(s[i])};
            buf_put(b, esc, 2);
            i++;
        } else {
            buf_printf(b, "\\u%04x", (unsigned)cp);
            i++;
        }
        run = i;
    }
    buf_put(b, s + run, i - run);
    buf_putc(b, '"');
}

void buf_put_json_num(struct buf *b, double v)
{
    char raw[40];
    if (!isfinite(v)) {
        buf_puts(b, "null");
        return;
    }
    for (int digits = 15; digits <= 17; digits++) { /* 17 always reads back */
        snprintf(raw, sizeof raw, "%.*g", digits, v);
        double back = strtod(raw, NULL);
        if (!(back < v) && !(back > v))
            break;
    }
    /* whatever the locale's decimal point is (maybe several bytes), JSON's is '.' */
    bool point = false;
    for (const char *p = raw; *p; p++) {
        if (strchr("0123456789+-e", *p))
            buf_putc(b, *p);
        else if (!point) {
            buf_putc(b, '.');
            point = true;
        }
    }
}

void buf_put_json_ids(struct buf *b, const int32_t *ids, size_t n)
{
    buf_putc(b, '[');
    for (size_t i = 0; i < n; i++)
        buf_printf(b, "%s%d", i ? "," : "", (int)ids[i]);
    buf_putc(b, ']');
}

void buf_put_utf8_lossy(struct buf *b, const char *s, size_t len)
{
    size_t bad;
    while (!utf8_valid(s, len, &bad)) {
        buf_put(b, s, bad);
        buf_puts(b, replacement);
        size_t skip = bad + utf8_bad_len(s + bad, len - bad);
        s += skip;
        len -= skip;
    }
    buf_put(b, s, len);
}
