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
    bool named = strncmp(message, "'messages[", 10) == 0 || strncmp(message, "'chat_template_kwargs'", 22) == 0;
    size_t len = named ? strcspn(message + 1, "'") : 0;
    snprintf(out, size, "%.*s", len ? (int)len : 8, len ? message + 1 : "messages");
}

/* Only ERR_ARG has words for the client: of its messages, or the template's own by which it refuses them.  All others
 * name the template's file. */
static bool fail(const struct server *s, int rc, const struct forge_error *err, struct api_error *e)
{
    char where[64];
    if (rc == FORGE_ERR_UNSUPPORTED || (rc == FORGE_ERR_FORMAT && !forge_engine_info(s->e)->chat_template))
        return api_fail(e, 400, "messages", "The model's chat template does not work here; --chat-template names another.");
    if (rc == FORGE_ERR_FORMAT)
        return api_fail(e, 400, "messages", "The model's chat template cannot be applied to these messages, tools and variables.");
    if (rc == FORGE_ERR_LIMIT)
        return api_fail(e, 400, "messages", "The model's chat template takes more time or memory for these messages than it may.");
    place_of(err->message, where, sizeof where);
    return api_fail_engine(e, where, err);
}

bool chat_render(struct server *s, const struct chat_text *c, struct api *a, struct api_error *e)
{
    struct prompt *p = &a->prompts[0];
    struct forge_error err = {0};
    struct buf json;
    buf_init(&json);
    buf_putc(&json, '{');
    put(&json, "messages", &c->messages);
    put(&json, "tools", &c->tools);
    put(&json, "chat_template_kwargs", &c->variables);
    buf_putc(&json, '}');
    if (json.failed) {
        buf_fini(&json);
        return api_no_memory(e);
    }
    int rc = forge_chat_render(s->e, json.data, json.len, (unsigned)FORGE_CHAT_PROTOCOL, &p->text, &p->len, &p->ids, &p->n_ids, &err);
    buf_fini(&json);
    return rc == 0 || fail(s, rc, &err, e);
}
