/* Text to ids and back for the engine's callers, and what a request's prompt is:
 * the rule for an empty one, what cannot fit.  The tokenizer itself is text/'s,
 * conversations are chat.c's. */
#include <stdlib.h>
#include <string.h>

#include "run/engine.h"

int engine_text_flags_check(const char *name, unsigned flags, struct err *err)
{
    return engine_flags_check(name, flags, (unsigned)(FORGE_TEXT_NO_BOS | FORGE_TEXT_PARSE_SPECIAL), err);
}

static unsigned encode_flags(unsigned flags)
{
    return (flags & FORGE_TEXT_NO_BOS ? 0u : (unsigned)TOK_ADD_SPECIAL) |
           (flags & FORGE_TEXT_PARSE_SPECIAL ? (unsigned)TOK_PARSE_SPECIAL : 0u);
}

int forge_tokenize(const struct forge_engine *e, const char *text, size_t text_len, unsigned flags, int32_t **ids,
                   size_t *n_ids, struct forge_error *err)
{
    struct ids l;
    struct err er = {0};
    ids_init(&l);
    *ids = NULL;
    *n_ids = 0;
    if (text_len == FORGE_TERMINATED)
        text_len = strlen(text);
    int rc = engine_text_flags_check("flags", flags, &er);
    if (rc == 0)
        rc = tokenizer_encode(e->l.tokenizer, text, text_len, encode_flags(flags), &l, &er);
    if (rc == 0 && !l.v && !(l.v = malloc(sizeof *l.v))) /* no ids is still an array */
        rc = err_set(&er, ERR_NOMEM, "no memory for ids");
    if (rc < 0) {
        ids_fini(&l);
        return engine_error(err, rc, &er);
    }
    *ids = l.v;
    *n_ids = l.n;
    return 0;
}

/* Rows of the model beyond the tokenizer have no text; what is no id of either is a mistake. */
static int check_decoded(const struct loaded *l, const int32_t *ids, size_t n, struct err *err)
{
    int64_t end = tokenizer_n_ids(l->tokenizer);
    end = l->config->n_vocab > end ? l->config->n_vocab : end;
    for (size_t i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= end)
            return err_set(err, ERR_ARG, "id %d (number %zu) is outside the vocabulary of %lld ids", (int)ids[i], i + 1,
                           (long long)end);
    return 0;
}

int forge_detokenize(const struct forge_engine *e, const int32_t *ids, size_t n_ids, int skip_special, char **text,
                     size_t *text_len, struct forge_error *err)
{
    struct buf b;
    struct err er = {0};
    buf_init(&b);
    *text = NULL;
    *text_len = 0;
    int rc = check_decoded(&e->l, ids, n_ids, &er);
    if (rc == 0)
        rc = tokenizer_decode(e->l.tokenizer, ids, n_ids, skip_special != 0, &b, &er);
    buf_puts(&b, ""); /* terminated even when empty */
    if (rc == 0 && (b.failed || (!b.data && !(b.data = calloc(1, 1)))))
        rc = err_set(&er, ERR_NOMEM, "no memory for the text of %zu ids", n_ids);
    if (rc < 0) {
        buf_fini(&b);
        return engine_error(err, rc, &er);
    }
    *text = b.data;
    *text_len = b.len;
    return 0;
}

size_t forge_token_bytes(const struct forge_engine *e, int32_t id, char *out, size_t size)
{
    struct buf b;
    buf_init(&b);
    tokenizer_token_bytes(e->l.tokenizer, id, &b);
    size_t n = b.failed ? SIZE_MAX : b.len, m = b.len < size ? b.len : size;
    if (m > 0)
        memcpy(out, b.data, m);
    buf_fini(&b);
    return n;
}

static int check_ids(const struct ids *ids, int64_t n_vocab, struct err *err)
{
    for (size_t i = 0; i < ids->n; i++)
        if (ids->v[i] < 0 || ids->v[i] >= n_vocab)
            return err_set(err, ERR_ARG, "prompt id %d (number %zu) is outside the vocabulary of %lld ids", (int)ids->v[i], i + 1,
                           (long long)n_vocab);
    return 0;
}

int prompt_make(struct ids *out, const struct forge_engine *e, const struct forge_request_params *p, const struct session *before,
                struct err *err)
{
    const struct loaded *l = &e->l;
    unsigned flags = encode_flags(p->text_flags | (before ? (unsigned)FORGE_TEXT_NO_BOS : 0));
    size_t n_before = 0;
    const int32_t *first = before ? session_ids(before, &n_before) : NULL;
    int rc = 0;
    for (size_t i = 0; i < n_before && rc == 0; i++)
        rc = ids_push(out, first[i], err);
    if (rc < 0)
        return rc;
    if (p->ids) {
        for (size_t i = 0; i < p->n_ids && rc == 0; i++)
            rc = ids_push(out, p->ids[i], err);
    } else if (p->messages) {
        rc = engine_chat_ids(out, e, p, err);
    } else if (p->text) {
        size_t len = p->text_len == FORGE_TERMINATED ? strlen(p->text) : p->text_len;
        rc = tokenizer_encode(l->tokenizer, p->text, len, flags, out, err);
    } else if (!before) {
        return err_set(err, ERR_ARG, "a request needs a prompt: text, ids or messages");
    }
    if (rc == 0 && out->n == 0)
        rc = load_empty_prompt(l, out, err);
    if (rc == 0)
        rc = check_ids(out, l->config->n_vocab, err);
    if (rc == 0 && (uint64_t)out->n > (uint64_t)l->n_ctx)
        return err_set(err, ERR_LIMIT, "the prompt of %zu tokens does not fit in the context of %lld positions", out->n,
                       (long long)l->n_ctx);
    return rc;
}
