/* The text of a model's answer, taken apart as it comes: what it thought, what it says, which tools it
 * calls.
 * Knows the marks of thoughts, and calls in the Qwen and Llama styles; nothing of who wants the parts. */
#ifndef FORGE_TEXT_ANSWER_H
#define FORGE_TEXT_ANSWER_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"

struct answer_call {
    size_t name_len, args_len; /* in bytes of answer_parts.calls, one behind the other, each with a NUL behind it */
};

/* What became final.  Text: whole characters, where the answer has such. */
struct answer_parts {
    struct buf thought, content;
    struct buf call_text;
    struct answer_call *calls;
    size_t n_calls, cap_calls;
    bool failed; /* no memory */
};
void answer_parts_init(struct answer_parts *p);
void answer_parts_fini(struct answer_parts *p);
void answer_parts_clear(struct answer_parts *p); /* keeps the memory */

enum answer_flags {
    ANSWER_TOOLS = 1,    /* calls are looked for */
    ANSWER_ONLY_CALL = 2 /* the whole text is to be calls */
};

struct answer {
    int state;
    int mark;            /* of the thought that is open */
    bool tools;          /* calls are looked for */
    bool trim;           /* blanks that come next are between two parts */
    bool spoke, called;  /* content was told; a call came after it */
    bool quoted;         /* the scan of a call is inside a string */
    bool loose;          /* at the end of all, a call had a string without an end: marks count in strings, too */
    size_t body, scan;   /* in held: where a call begins, up to where it was scanned */
    struct buf held;     /* may be a mark, or is a call that is not whole */
};

/* prompt: the answer is its continuation; one that ends with the beginning of a thought makes the answer begin inside
 * it. */
void answer_init(struct answer *a, const char *prompt, size_t len, unsigned flags);
void answer_fini(struct answer *a);
/* Appends to out; last: nothing comes after this. */
void answer_push(struct answer *a, const char *text, size_t len, bool last, struct answer_parts *out);

#endif
