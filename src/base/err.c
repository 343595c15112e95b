/* Errors as values: formats the sentence and makes it safe to show.
 *
 * Names from files reach these messages, so every byte that could break a
 * terminal or a JSON answer is replaced here, once. */
#include "base/err.h"

#include <stdio.h>
#include <string.h>

#include "base/utf8.h"

/* Formats into raw[0..size); returns the length kept. */
static size_t format(char *raw, size_t size, const char *fmt, va_list ap)
{
    int n = vsnprintf(raw, size, fmt, ap);
    if (n < 0) {
        raw[0] = '\0';
        return 0;
    }
    return (size_t)n < size ? (size_t)n : size - 1;
}

int err_set(struct err *e, int code, const char *fmt, ...)
{
    if (e) {
        char raw[ERR_MSG_SIZE]; /* the arguments may point into e->msg */
        va_list ap;
        va_start(ap, fmt);
        size_t n = format(raw, sizeof raw, fmt, ap);
        va_end(ap);
        e->code = code;
        utf8_printable(e->msg, sizeof e->msg, raw, n);
    }
    return code;
}

int err_wrap(struct err *e, const char *fmt, ...)
{
    if (!e)
        return ERR_INTERNAL;
    char raw[2 * ERR_MSG_SIZE];
    va_list ap;
    va_start(ap, fmt);
    size_t n = format(raw, ERR_MSG_SIZE, fmt, ap);
    va_end(ap);
    memcpy(raw + n, ": ", 2);
    size_t len = strlen(e->msg);
    memcpy(raw + n + 2, e->msg, len);
    utf8_printable(e->msg, sizeof e->msg, raw, n + 2 + len);
    return e->code;
}

void err_clear(struct err *e)
{
    if (e) {
        e->code = 0;
        e->msg[0] = '\0';
    }
}
