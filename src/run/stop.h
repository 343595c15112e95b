/* Stop strings over a stream of text pieces.
 *
 * The string that is complete first ends the text (of those complete at the
 * same byte, the longest), whatever the borders of the pieces.  Held back is
 * only what may still become a stop string: less than the longest one. */
#ifndef FORGE_RUN_STOP_H
#define FORGE_RUN_STOP_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/err.h"

struct stop_set; /* the strings, shared by texts */
struct stop;     /* one text's place in them */

/* Strings are copied; empty ones, invalid UTF-8 and more than FORGE_STOP_BYTES are ERR_ARG.  n may be 0. */
int stop_set_new(struct stop_set **out, const char *const *strings, size_t n, struct err *err);
void stop_set_free(struct stop_set *s);

/* Borrows the set. */
int stop_new(struct stop **out, const struct stop_set *set, struct err *err);
void stop_free(struct stop *s);
void stop_reset(struct stop *s); /* for a new text */

/* Feeds text; appends to out what is final now.  True when a stop string is complete: out then ends before
 * it, and the rest is dropped; until stop_reset every push returns true and appends nothing. */
bool stop_push(struct stop *s, const char *text, size_t len, struct buf *out);
/* The text ended: appends what is held back. */
void stop_flush(struct stop *s, struct buf *out);
size_t stop_held(const struct stop *s);

#endif
