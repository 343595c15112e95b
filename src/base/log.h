/* Log lines to one sink, chosen by the program; silent until one is set.
 * The sink is the only mutable global of the library; set it before threads start.
 * Lines reach it whole, as printable UTF-8. */
#ifndef FORGE_BASE_LOG_H
#define FORGE_BASE_LOG_H

#include <stdbool.h>

#include "base/attr.h"

enum log_level { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_VERBOSE, LOG_DEBUG };

/* Categories of LOG_DEBUG lines (a bit set), as in `--debug load,kv`. */
enum log_category { LOG_LOAD = 1, LOG_KV = 2, LOG_SCHED = 4, LOG_CL = 8, LOG_TEXT = 16, LOG_RUN = 32 };

typedef void log_sink(void *user, enum log_level level, const char *line);

/* Lines above `level`, and debug lines outside `categories`, are dropped. */
void log_set(log_sink *sink, void *user, enum log_level level, unsigned categories);
bool log_wanted(enum log_level level, unsigned category);
void log_msg(enum log_level level, const char *fmt, ...) ATTR_PRINTF(2, 3);
void log_debug(enum log_category category, const char *fmt, ...) ATTR_PRINTF(2, 3);

/* "load" -> LOG_LOAD; 0 if unknown. */
unsigned log_category_parse(const char *name);

#endif
