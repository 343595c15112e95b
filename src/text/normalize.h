/* Normalisers: what is done to a text before it is cut.  A flat list of steps, whichever
 * file they came from; sequences within sequences are flattened by who reads them.
 * Knows nothing of tokens. */
#ifndef FORGE_TEXT_NORMALIZE_H
#define FORGE_TEXT_NORMALIZE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/err.h"
#include "text/pattern.h"

enum norm_kind {
    NORM_NFC,
    NORM_NFD,
    NORM_NFKC,
    NORM_NFKD,
    NORM_PREPEND,
    NORM_REPLACE,
    NORM_LOWERCASE,
    NORM_STRIP
};

struct norm_step {
    enum norm_kind kind;
    char *text; /* Prepend: what; Replace: with what */
    size_t len;
    struct pattern *pat; /* Replace */
    bool left, right;    /* Strip */
};

struct normalizer {
    struct norm_step *v;
    size_t n, cap;
};

void normalizer_init(struct normalizer *z);
void normalizer_fini(struct normalizer *z);
/* Takes over step.pat and copies step.text; frees step.pat when it fails. */
int normalizer_add(struct normalizer *z, struct norm_step step, struct err *err);
/* Appends the normal form of s[0..len) (valid UTF-8) to out. */
int normalizer_run(const struct normalizer *z, const char *s, size_t len, struct buf *out, struct err *err);

/* NFC, NFD, NFKC, NFKD (unicode.c); linear in len, whatever marks follow each other. */
int unicode_normalize(enum norm_kind form, const char *s, size_t len, struct buf *out, struct err *err);

/* "utf8proc 2.8.0, Unicode 14.0.0" */
void unicode_library(char *out, size_t size);

#endif
