/* Pre-tokenisers: where a text is cut into the words that BPE works on.
 * A flat list of steps, whichever file they came from.  Knows texts and patterns, not
 * the vocabulary. */
#ifndef FORGE_TEXT_PRETOK_H
#define FORGE_TEXT_PRETOK_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "text/chars.h"
#include "text/pattern.h"
#include "text/pieces.h"

enum pretok_kind { PRE_SPLIT, PRE_CLASS, PRE_BYTELEVEL, PRE_METASPACE };
/* What becomes of the part that matches. */
enum pretok_behavior {
    SPLIT_REMOVED,
    SPLIT_ISOLATED,
    SPLIT_WITH_PREVIOUS,
    SPLIT_WITH_NEXT,
    SPLIT_CONTIGUOUS
};
enum pretok_prepend { PREPEND_ALWAYS, PREPEND_FIRST, PREPEND_NEVER };

struct pretok_step {
    enum pretok_kind kind;
    struct pattern *pat;  /* Split; ByteLevel with its own expression; Metaspace: the space */
    char_class *is_match; /* Class */
    enum pretok_behavior behavior;
    bool invert;
    bool add_space;              /* ByteLevel */
    enum pretok_prepend prepend; /* Metaspace */
    bool split;
    char mark[5]; /* Metaspace: what stands for a space, terminated */
};

struct pretok {
    struct pretok_step *v;
    size_t n, cap;
};

/* The expression of GPT-2, which ByteLevel brings along. */
extern const char pretok_gpt2_regex[];

void pretok_init(struct pretok *p);
void pretok_fini(struct pretok *p);
/* Takes over step.pat, also when it fails. */
int pretok_add(struct pretok *p, struct pretok_step step, struct err *err);
/* Cuts the pieces in `a`, step by step; the result is in `a` again, `b` is scratch. */
int pretok_run(const struct pretok *p, struct pieces *a, struct pieces *b, struct err *err);

#endif
