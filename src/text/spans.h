/* Spans of one text, matching or not, and the five ways of making words of them
 * (removed, isolated, with the previous, with the next, contiguous).
 * Knows offsets only. */
#ifndef FORGE_TEXT_SPANS_H
#define FORGE_TEXT_SPANS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "text/pretok.h"

struct span {
    size_t start, end;
    bool match;
};

struct spans {
    struct span *v;
    size_t n, cap;
};

/* Both cover s[0..len) without gaps, in order; `found` is emptied first. */
int spans_by_matcher(struct spans *found, struct matcher *m, const char *s, size_t len, struct err *err);
int spans_by_class(struct spans *found, char_class *is_match, const char *s, size_t len, struct err *err);
void spans_invert(struct spans *s);
/* Merges or drops spans in place; afterwards every span left is a word. */
void spans_apply(struct spans *s, enum pretok_behavior behavior);

#endif
