/* The text of an answer, parted as it comes: what the model thought, what it says,
 * which tools it calls.  Knows the marks of the Qwen and Llama styles, and nothing
 * of events or of the engine. */
#ifndef FORGE_SERVE_SPLIT_H
#define FORGE_SERVE_SPLIT_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"

struct split {
    int state;
    bool tools;       /* calls are looked for */
    bool trim;        /* blanks that come next are between two parts */
    struct buf held;  /* may be a mark, or is a call that is not whole */
    size_t n_calls;
};

/* What became final: text to be told, and calls as elements of a JSON list, a comma behind each. */
struct parted {
    struct buf thought, content, calls;
    size_t n_calls;
};

/* thinking: the prompt opened the thought itself.  only_call: the whole text is to be one call. */
void split_init(struct split *s, bool tools, bool thinking, bool only_call);
void split_fini(struct split *s);
/* Appends to out; last: nothing comes after this. */
void split_push(struct split *s, const char *text, size_t len, bool last, struct parted *out);
void parted_init(struct parted *p);
void parted_fini(struct parted *p);

#endif
