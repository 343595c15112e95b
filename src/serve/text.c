/* Text to ids and back, for clients that count tokens.
 * The names of the fields are those that other servers of local models have.
 * Knows nothing of requests. */
#include <stdlib.h>
#include <string.h>

#include "serve/server.h"

struct flags {
    bool add_special, parse_special, with_pieces;
};
#define F(field) offsetof(struct flags, field)

static const struct field tokenize_fields[] = {
    {"add_special", FIELD_BOOL, 0, 0, F(add_special)},
    {"add_special_tokens", FIELD_BOOL, 0, 0, F(add_special)},
    {"parse_special", FIELD_BOOL, 0, 0, F(parse_special)},
    {"with_pieces", FIELD_BOOL, 0, 0, F(with_pieces)},
    {0},
};

size_t bytes_of_token(const struct exchange *x, struct buf *out, int32_t id, char *bytes, size_t size)
{
    size_t n = forge_token_bytes(x->s->e, id, bytes, size);
    out->failed |= n == SIZE_MAX;
    return n == SIZE_MAX ? 0 : n < size ? n : size;
}

static void put_tokens(struct exchange *x, const int32_t *ids, size_t n, bool with_pieces)
{
    struct buf *out = &x->reply.body;
    buf_puts(out, "{\"tokens\":");
    if (!with_pieces)
        buf_put_json_ids(out, ids, n);
    else {
        buf_putc(out, '[');
        for (size_t i = 0; i < n; i++) {
            char piece[256];
            size_t len = bytes_of_token(x, out, ids[i], piece, sizeof piece);
            buf_printf(out, "{\"id\":%d,\"piece\":", (int)ids[i]);
            buf_put_json(out, piece, len);
            buf_puts(out, "},");
        }
        put_end(out, "]");
    }
    buf_printf(out, ",\"count\":%zu,\"max_model_len\":%lld}\n", n, (long long)forge_engine_info(x->s->e)->n_ctx);
    reply_json(x, 200);
}

static bool tokenize(struct exchange *x, const cJSON *body, struct api_error *e)
{
    const cJSON *content = json_get(body, "content"), *item = content ? content : json_get(body, "prompt");
    const char *name = content || !item ? "content" : "prompt";
    struct flags f = {.add_special = true};
    struct forge_error err = {0};
    struct buf text;
    int32_t *ids;
    size_t n;
    if (!item)
        return api_fail(e, 400, name, "'%s' is missing.", name);
    if (!cJSON_IsString(item))
        return api_fail(e, 400, name, "'%s' must be a string, not %s.", name, json_kind(item));
    if (!fields_read(tokenize_fields, body, &f, e))
        return false;
    buf_init(&text);
    if (!json_str(item, &text) || text.failed) {
        buf_fini(&text);
        return api_no_memory(e);
    }
    int rc = forge_tokenize(x->s->e, buf_str(&text), text.len,
                            (f.add_special ? 0u : (unsigned)FORGE_TEXT_NO_BOS) |
                                (f.parse_special ? (unsigned)FORGE_TEXT_PARSE_SPECIAL : 0u),
                            &ids, &n, &err);
    buf_fini(&text);
    if (rc < 0)
        return api_fail_engine(e, name, &err);
    put_tokens(x, ids, n, f.with_pieces);
    forge_free(ids);
    return true;
}

static bool detokenize(struct exchange *x, const cJSON *body, struct api_error *e)
{
    const cJSON *list = json_get(body, "tokens");
    struct forge_error err = {0};
    struct buf *out = &x->reply.body;
    int32_t *ids = NULL;
    char *text = NULL;
    size_t n, len;
    if (!list)
        return api_fail(e, 400, "tokens", "'tokens' is missing.");
    if (!cJSON_IsArray(list))
        return api_fail(e, 400, "tokens", "'tokens' must be a list of ids, not %s.", json_kind(list));
    bool ok = fields_ids(list, "tokens", &ids, &n, e);
    if (ok && forge_detokenize(x->s->e, ids, n, 0, &text, &len, &err) < 0)
        ok = api_fail_engine(e, "tokens", &err);
    free(ids);
    if (!ok)
        return false;
    buf_puts(out, "{\"content\":");
    buf_put_json(out, text, len);
    buf_puts(out, ",\"prompt\":");
    buf_put_json(out, text, len);
    buf_puts(out, "}\n");
    forge_free(text);
    reply_json(x, 200);
    return true;
}

static void with_body(struct exchange *x, bool (*work)(struct exchange *x, const cJSON *body, struct api_error *e))
{
    struct api_error e = {0};
    cJSON *body = fields_body(x, &e);
    if (!body || !work(x, body, &e))
        reply_error(x, &e);
    cJSON_Delete(body);
}

void handle_tokenize(struct exchange *x)
{
    with_body(x, tokenize);
}

void handle_detokenize(struct exchange *x)
{
    with_body(x, detokenize);
}
