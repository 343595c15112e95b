/* What a tokenizer cuts by: a plain string or a regular expression, and the walk over its
 * matches.  The only header of the room behind which PCRE2 lies.
 *
 * The expressions are Oniguruma's; they are respelled for PCRE2 where the two differ
 * (\s and \w, line anchors).  Compiled by PCRE2's JIT where there is one. */
#ifndef FORGE_TEXT_PATTERN_H
#define FORGE_TEXT_PATTERN_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/err.h"

struct pattern;

/* `name` (a file) starts error messages. */
int pattern_new(struct pattern **out, bool regex, const char *src, size_t len, const char *name,
                struct err *err);
void pattern_free(struct pattern *p);

/* Walks the matches in one subject after another; one per thread. */
struct matcher {
    const struct pattern *pat;
    struct matcher_state *st; /* NULL for plain strings */
    const char *s;
    size_t len, pos;
    size_t last_end; /* end of the match before, SIZE_MAX = none */
};
int matcher_init(struct matcher *m, const struct pattern *p, struct err *err);
void matcher_fini(struct matcher *m);
/* Begins a subject: valid UTF-8, borrowed. */
void matcher_subject(struct matcher *m, const char *s, size_t len);
/* 1 = a match [*start, *end), 0 = no more, negative = error (a limit that was hit). */
int matcher_next(struct matcher *m, size_t *start, size_t *end, struct err *err);

/* Appends s with every match replaced by `with`. */
int pattern_replace(const struct pattern *p, const char *s, size_t len, const char *with, size_t with_len,
                    struct buf *out, struct err *err);

/* "PCRE2 10.42, Unicode 14.0", with ", no JIT" where it lacks. */
void pattern_library(char *out, size_t size);

#endif
