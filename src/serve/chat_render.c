/* From checked messages to a prompt: the text of the model's template, and its ids,
 * in which what came from outside is never a control token.
 * The only place of the server that knows how a template is applied. */
#include <stdlib.h>
#include <string.h>

#include "serve/server.h"

/* Does the prompt end inside a thought, which the template opened? */
static bool opens_thought(const char *text, size_t len)
{
    static const char mark[] = "<think>";
    while (len > 0 && strchr(" \n", text[len - 1]))
        len--;
    return len >= sizeof mark - 1 && memcmp(text + len - (sizeof mark - 1), mark, sizeof mark - 1) == 0;
}

static bool add(struct server *s, struct buf *text, struct buf *ids, const char *part, size_t len, bool own, struct api_error *e)
{
    struct forge_error err = {0};
    int32_t *v;
    size_t n;
    unsigned flags = FORGE_TEXT_NO_BOS | (own ? (unsigned)FORGE_TEXT_PARSE_SPECIAL : 0u);
    buf_put(text, part, len);
    if (forge_tokenize(s->e, part, len, flags, &v, &n, &err) < 0)
        return api_fail_engine(e, "messages", &err);
    buf_put(ids, v, n * sizeof *v);
    forge_free(v);
    return true;
}

static bool render(struct server *s, const cJSON *messages, struct buf *text, struct buf *ids, struct api_error *e)
{
    bool ok = true;
    for (const cJSON *m = messages->child; m && ok; m = m->next) {
        struct buf content;
        buf_init(&content);
        buf_printf(&content, "%s\n", json_get(m, "role")->valuestring);
        json_str(json_get(m, "content"), &content);
        ok = add(s, text, ids, "<|im_start|>", 12, true, e) && add(s, text, ids, buf_str(&content), content.len, false, e) &&
             add(s, text, ids, "<|im_end|>", 10, true, e) && add(s, text, ids, "\n", 1, false, e);
        buf_fini(&content);
    }
    return ok && add(s, text, ids, "<|im_start|>", 12, true, e) && add(s, text, ids, "assistant\n", 10, false, e);
}

bool chat_render(struct server *s, const struct chat_text *c, struct api *a, struct api_error *e)
{
    struct prompt *p = &a->prompts[0];
    struct err err;
    struct buf text, ids;
    cJSON *messages;
    buf_init(&text);
    buf_init(&ids);
    if (json_parse(&messages, c->messages.data, c->messages.len, "messages", &err) < 0)
        return api_fail(e, 400, "messages", "%s", err.msg);
    bool ok = render(s, messages, &text, &ids, e);
    cJSON_Delete(messages);
    if (ok && (text.failed || ids.failed))
        ok = api_fail(e, 503, NULL, "There is not enough memory for this request.");
    p->text = text.data;
    p->len = text.len;
    p->ids = (int32_t *)(void *)ids.data;
    p->n_ids = ids.len / sizeof *p->ids;
    a->thinking = ok && opens_thought(buf_str(&text), text.len);
    return ok;
}
