/* Conversations: where a model's template lies, what it is given,
 * and the ids of what it makes.
 * Knows file names and the shape of messages; what a template is, is template.h's matter. */
#ifndef FORGE_TEXT_CHAT_H
#define FORGE_TEXT_CHAT_H

#include "text/template.h"
#include "text/tokenizer.h"

struct chat;

/* What stands where a template is looked for. */
struct chat_source {
    const char *given;      /* a file, or "chatml"; else */
    const struct gguf *gguf; /* its tokenizer.chat_template; else */
    const char *dir;        /* chat_template.jinja, chat_template.json, tokenizer_config.json in this folder */
};

/* 1 = found, 0 = the model has none (*out NULL).  A template that does not parse is an error. */
int chat_open(struct chat **out, const struct chat_source *from, struct err *err);
void chat_close(struct chat *c);
const struct template *chat_template(const struct chat *c);

enum chat_flags {
    CHAT_NO_GENERATION_PROMPT = 1, /* unless the object says otherwise */
    CHAT_NO_THINKING = 2,          /* the variable enable_thinking is false, unless the object names it */
    CHAT_PROTOCOL = 4              /* messages are as chat_messages.c takes them */
};

/* json: a list of messages, or an object with messages, tools, documents, add_generation_prompt, variables.  `tools`
 * (JSON text, may be NULL) is used where the object has none.  Appends to out. */
int chat_apply(const struct chat *c, const struct tokenizer *tok, const char *json, size_t len, const char *tools, size_t tools_len,
                unsigned flags, struct marked *out, struct err *err);

/* The ids of a rendered text.  What the tokenizer puts before a text comes first, and once: a template may write it, too.
 * add_bos false: only what the text has. */
int chat_encode(const struct tokenizer *tok, const struct marked *text, bool add_bos, struct ids *out, struct err *err);

#endif
