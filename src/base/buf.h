/* Growable bytes.  Failure is sticky: after a refused allocation every put is
 * ignored and buf_failed() is true, so that callers check once at the end.
 * Puts must not take their bytes from the buffer itself: it may move. */
#ifndef FORGE_BASE_BUF_H
#define FORGE_BASE_BUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/attr.h"

struct buf {
    char *data; /* NUL-terminated once anything was put; may hold NULs itself */
    size_t len, cap;
    bool failed;
};

void buf_init(struct buf *b);
void buf_fini(struct buf *b);
void buf_clear(struct buf *b); /* len = 0, keeps the memory */
void buf_put(struct buf *b, const void *data, size_t len);
void buf_puts(struct buf *b, const char *s);
void buf_putc(struct buf *b, char c);
void buf_printf(struct buf *b, const char *fmt, ...) ATTR_PRINTF(2, 3);
bool buf_reserve(struct buf *b, size_t extra);
bool buf_failed(const struct buf *b);
const char *buf_str(const struct buf *b); /* never NULL */

/* Appends a JSON string literal with quotes.  Bytes that are no UTF-8 become U+FFFD. */
void buf_put_json(struct buf *b, const char *s, size_t len);
/* Appends a JSON number that reads back to the same double; null for NaN and Inf. */
void buf_put_json_num(struct buf *b, double v);
void buf_put_json_ids(struct buf *b, const int32_t *ids, size_t n);
/* Appends text with each invalid byte sequence replaced by U+FFFD (one per maximal
 * subpart, as Unicode recommends and Python's "replace" does). */
void buf_put_utf8_lossy(struct buf *b, const char *s, size_t len);

#endif
