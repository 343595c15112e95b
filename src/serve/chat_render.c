/* From checked messages to a prompt: the text of the model's template, and its ids,
 * in which what came from outside is never a control token.
 * The only place of the server that knows how a template is applied. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "serve/server.h"

static void put(struct buf *b, const char *name, const struct buf *json)
{
    if (json->len == 0)
        return;
    buf_printf(b, "%s\"%s\":", b->len > 1 ? "," : "", name);
    buf_put(b, json->data, json->len);
}

/* The place in quotes that a message of the library begins with, else the field as a whole. */
static void place_of(const char *message, char *out, size_t size)
{
    size_t len = strncmp(message, "'messages[", 10) == 0 ? strcspn(message + 1, "'") : 0;
    snprintf(out, size, "%.*s", len ? (int)len : 8, len ? message + 1 : "messages");
}

bool chat_render(struct server *s, const struct chat_text *c, struct api *a, struct api_error *e)
{
    struct prompt *p = &a->prompts[0];
    struct forge_error err = {0};
    struct buf json;
    char where[64];
    buf_init(&json);
    buf_putc(&json, '{');
    put(&json, "messages", &c->messages);
    put(&json, "tools", &c->tools);
    put(&json, "variables", &c->variables);
    buf_putc(&json, '}');
    if (json.failed) {
        buf_fini(&json);
        return api_no_memory(e);
    }
    int rc = forge_chat_render(s->e, json.data, json.len, (unsigned)FORGE_CHAT_PROTOCOL, &p->text, &p->len, &p->ids, &p->n_ids, &err);
    buf_fini(&json);
    if (rc == FORGE_ERR_UNSUPPORTED || rc == FORGE_ERR_FORMAT) /* its words may name the file */
        return api_fail(e, 400, "messages", "The model's chat template does not work here; --chat-template names another.");
    place_of(err.message, where, sizeof where);
    return rc == 0 || api_fail_engine(e, where, &err);
}
