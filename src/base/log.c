/* The log sink: the library's only mutable global.
 *
 * Set before threads start; a line is formatted, made printable and handed
 * over whole.  Knows no file descriptor. */
#include "base/log.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"

#define LINE_SIZE 2048

static struct {
    log_sink *sink;
    void *user;
    enum log_level level;
    unsigned categories;
} current;

static const struct {
    const char *name;
    unsigned bit;
} category_names[] = {
    {"load", LOG_LOAD}, {"kv", LOG_KV},     {"sched", LOG_SCHED},
    {"cl", LOG_CL},     {"text", LOG_TEXT}, {"run", LOG_RUN},
};

void log_set(log_sink *sink, void *user, enum log_level level, unsigned categories)
{
    current.sink = sink;
    current.user = user;
    current.level = level;
    current.categories = categories;
}

bool log_wanted(enum log_level level, unsigned category)
{
    if (!current.sink || level > current.level)
        return false;
    return level != LOG_DEBUG || (current.categories & category) != 0;
}

static void emit(enum log_level level, const char *fmt, va_list ap)
{
    char raw[LINE_SIZE], line[LINE_SIZE];
    int n = vsnprintf(raw, sizeof raw, fmt, ap);
    if (n < 0)
        return;
    size_t len = (size_t)n < sizeof raw ? (size_t)n : sizeof raw - 1;
    utf8_printable(line, sizeof line, raw, len);
    current.sink(current.user, level, line);
}

void log_msg(enum log_level level, const char *fmt, ...)
{
    if (!log_wanted(level, ~0u))
        return;
    va_list ap;
    va_start(ap, fmt);
    emit(level, fmt, ap);
    va_end(ap);
}

void log_debug(enum log_category category, const char *fmt, ...)
{
    if (!log_wanted(LOG_DEBUG, category))
        return;
    va_list ap;
    va_start(ap, fmt);
    emit(LOG_DEBUG, fmt, ap);
    va_end(ap);
}

unsigned log_category_parse(const char *name)
{
    for (size_t i = 0; i < sizeof category_names / sizeof category_names[0]; i++)
        if (strcmp(name, category_names[i].name) == 0)
            return category_names[i].bit;
    return 0;
}
