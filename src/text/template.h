/* Chat templates: an interpreter for the Jinja that models ship.
 *
 * A template is parsed once and rendered any number of times.  Strict: what it does not know is an error with the
 * line and the name, never passed over.  Rendering is bounded in steps, memory, depth and output, and gives back all
 * memory but the text.
 *
 * Every byte of the text knows whether it came from outside (a message, a tool, a variable) or is the template's own,
 * through all that a template can do to a string: what came from outside must never become a control token.
 * Knows no tokens and no files. */
#ifndef FORGE_TEXT_TEMPLATE_H
#define FORGE_TEXT_TEMPLATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

struct template;

#define TEMPLATE_SIZE_MAX ((size_t)1 << 20)

/* Parses text[0..len), which is copied.  `name` begins every message, also those of rendering. */
int template_open(struct template **out, const char *text, size_t len, const char *name, struct err *err);
void template_close(struct template *t);
const char *template_text(const struct template *t, size_t *len);
const char *template_name(const struct template *t);

/* A text and for each of its bytes a mark: 1 = from outside, 0 = the template's own. */
struct marked {
    struct buf text, marks;
};
void marked_init(struct marked *m);
void marked_fini(struct marked *m);

struct template_var {
    const char *name;
    /* JSON text, valid as json_parse has it: its strings are from outside, but for those of the template's own
     * vocabulary: values of a key "role" that are among the usual roles. */
    const char *json;
    size_t json_len;
    const char *own; /* instead of json: a string of the template's own (bos_token) */
    size_t own_len;
};

struct template_input {
    const struct template_var *vars;
    size_t n_vars;
    int64_t now; /* seconds since 1970 for strftime_now; 0 = the clock */
};

/* Appends the text to out, which is as it was after an error: ERR_ARG where the template refuses what it was given, by
 * raise_exception; all others name the template and the line: ERR_FORMAT where it does with a value what cannot be
 * done, ERR_UNSUPPORTED where it needs what is not here, ERR_LIMIT where it needs too much. */
int template_render(const struct template *t, const struct template_input *in, struct marked *out, struct err *err);

#endif
