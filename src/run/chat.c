/* Conversations for the engine's callers: the template of the model,
 * prompts that it makes.
 * What a template is, is text/'s matter; which of them is the model's, load_tokenizer.c's. */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "run/engine.h"

/* A model's own template that cannot be used is no reason not to open the model; one that the caller names is. */
int engine_open_chat(struct forge_engine *e, const char *tokenizer, const char *given, struct err *err)
{
    struct err own = {0};
    size_t len;
    int rc = load_chat(&e->chat, e->l.weights, tokenizer, given, &own);
    if (rc < 0 && (given || rc == ERR_NOMEM)) {
        *err = own;
        return rc;
    }
    if (rc < 0) {
        log_msg(LOG_VERBOSE, "the chat template cannot be used: %s", own.msg);
        if (!(e->chat_error = mem_strdup(own.msg)))
            return err_set(err, ERR_NOMEM, "no memory for a message");
        e->chat_error_code = rc;
    }
    e->info.chat_template_error = e->chat_error;
    if (e->chat) {
        e->info.chat_template = template_text(chat_template(e->chat), &len);
        e->info.chat_template_source = template_name(chat_template(e->chat));
    }
    return 0;
}

void engine_close_chat(struct forge_engine *e)
{
    chat_close(e->chat);
    free(e->chat_error);
}

int engine_chat_flags_check(const char *name, unsigned flags, struct err *err)
{
    return engine_flags_check(name, flags, (unsigned)(FORGE_CHAT_NO_GENERATION_PROMPT | FORGE_CHAT_NO_THINKING | FORGE_CHAT_PROTOCOL), err);
}

static int render(const struct forge_engine *e, const char *json, size_t len, unsigned flags, struct marked *text, struct err *err)
{
    if (!e->chat && e->chat_error)
        return err_set(err, e->chat_error_code, "%s; name another chat template, or chatml", e->chat_error);
    if (!e->chat)
        return err_set(err, ERR_UNSUPPORTED, "%s has no chat template; name one, or chatml", e->info.model_path);
    unsigned f = (flags & FORGE_CHAT_NO_GENERATION_PROMPT ? (unsigned)CHAT_NO_GENERATION_PROMPT : 0u) |
                 (flags & FORGE_CHAT_NO_THINKING ? (unsigned)CHAT_NO_THINKING : 0u) |
                 (flags & FORGE_CHAT_PROTOCOL ? (unsigned)CHAT_PROTOCOL : 0u);
    len = len == FORGE_TERMINATED ? strlen(json) : len;
    return chat_apply(e->chat, e->l.tokenizer, json, len, NULL, 0, f, text, err);
}

int engine_chat_ids(struct ids *out, const struct forge_engine *e, const struct forge_request_params *p, struct err *err)
{
    struct marked text;
    marked_init(&text);
    int rc = render(e, p->messages, p->messages_len, p->chat_flags, &text, err);
    if (rc == 0)
        rc = chat_encode(e->l.tokenizer, &text, out->n == 0 && !(p->text_flags & FORGE_TEXT_NO_BOS), out, err);
    marked_fini(&text);
    return rc;
}

/* Hands the bytes of b over as a terminated string. */
static int hand_over(struct buf *b, char **text, size_t *len, struct err *err)
{
    if (!b->data)
        b->data = calloc(1, 1);
    if (b->failed || !b->data)
        return err_set(err, ERR_NOMEM, "no memory for the text of a conversation");
    *text = b->data;
    *len = b->len;
    buf_init(b);
    return 0;
}

int forge_chat_render(const struct forge_engine *e, const char *json, size_t json_len, unsigned flags, char **text, size_t *text_len,
                      int32_t **ids, size_t *n_ids, struct forge_error *err)
{
    struct marked m;
    struct ids l;
    struct err er = {0};
    marked_init(&m);
    ids_init(&l);
    if (text)
        *text = NULL;
    if (ids)
        *ids = NULL;
    int rc = json ? engine_chat_flags_check("flags", flags, &er) : err_set(&er, ERR_ARG, "messages: there are none");
    if (rc == 0)
        rc = render(e, json, json_len, flags, &m, &er);
    if (rc == 0 && ids)
        rc = chat_encode(e->l.tokenizer, &m, true, &l, &er);
    if (rc == 0 && ids && !l.v && !(l.v = calloc(1, sizeof *l.v)))
        rc = err_set(&er, ERR_NOMEM, "no memory for ids");
    if (rc == 0 && text)
        rc = hand_over(&m.text, text, text_len, &er);
    if (rc == 0 && ids) {
        *ids = l.v;
        *n_ids = l.n;
        ids_init(&l);
    }
    ids_fini(&l);
    marked_fini(&m);
    return rc < 0 ? engine_error(err, rc, &er) : 0;
}
