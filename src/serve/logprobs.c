/* Log-probabilities as the protocol spells them: a list of tokens in a chat, lists
 * side by side in the older completions.  A token that is no whole character is
 * spelled by its bytes, as the protocol does. */
#include <string.h>

#include "base/utf8.h"
#include "serve/server.h"

#define TOKEN_MAX 256

struct token {
    char bytes[TOKEN_MAX];
    size_t len;
    char text[4 * TOKEN_MAX + 8]; /* "bytes:\xe2\x82" where it is no UTF-8 */
    size_t text_len;
};

/* For what goes to `to`. */
static void spell(const struct exchange *x, struct buf *to, int32_t id, struct token *out)
{
    out->len = bytes_of_token(x, to, id, out->bytes, sizeof out->bytes);
    if (utf8_valid(out->bytes, out->len, NULL)) {
        memcpy(out->text, out->bytes, out->len);
        out->text_len = out->len;
        return;
    }
    static const char hex[] = "0123456789abcdef";
    memcpy(out->text, "bytes:", 6);
    out->text_len = 6;
    for (size_t i = 0; i < out->len; i++) {
        unsigned char b = (unsigned char)out->bytes[i];
        char one[4] = {'\\', 'x', hex[b >> 4], hex[b & 15]};
        memcpy(out->text + out->text_len, one, sizeof one);
        out->text_len += sizeof one;
    }
}

static void put_logprob(struct buf *out, float v)
{
    buf_put_json_num(out, v < -9999 ? -9999.0 : (double)v); /* as the protocol has it for what is impossible */
}

/* ---- a chat's ---- */

static void put_token(struct buf *out, const struct exchange *x, const struct forge_logprob *l)
{
    struct token t;
    spell(x, out, l->id, &t);
    buf_puts(out, "{\"token\":");
    buf_put_json(out, t.text, t.text_len);
    buf_puts(out, ",\"logprob\":");
    put_logprob(out, l->logprob);
    buf_puts(out, ",\"bytes\":[");
    for (size_t i = 0; i < t.len; i++)
        buf_printf(out, "%s%u", i ? "," : "", (unsigned)(unsigned char)t.bytes[i]);
    buf_puts(out, "]");
}

static void chat_list(struct buf *out, const struct exchange *x, const struct turn *t, size_t choice, size_t first, size_t n)
{
    buf_puts(out, "\"logprobs\":{\"content\":[");
    for (size_t i = first; i < first + n; i++) {
        size_t n_best;
        const struct forge_logprob *l = forge_request_logprobs(t->r, (int)choice, i, &n_best);
        if (!l)
            break;
        put_token(out, x, &l[0]);
        buf_puts(out, ",\"top_logprobs\":[");
        for (size_t k = 1; k < n_best; k++) {
            put_token(out, x, &l[k]);
            buf_puts(out, "},");
        }
        put_end(out, "]},");
    }
    put_end(out, "],\"refusal\":null}");
}

/* ---- the older protocol's ---- */

static size_t n_chars(const struct token *t)
{
    size_t n = 0;
    for (size_t i = 0; i < t->len; i++)
        n += (t->bytes[i] & 0xC0) != 0x80;
    return n;
}

enum column { COL_TOKENS, COL_LOGPROBS, COL_TOP, COL_OFFSETS, N_COLS };

static void put_best(struct buf *out, const struct exchange *x, const struct forge_logprob *l, size_t n)
{
    struct token t;
    buf_putc(out, '{');
    for (size_t k = 1; k < n; k++) {
        spell(x, out, l[k].id, &t);
        buf_put_json(out, t.text, t.text_len);
        buf_putc(out, ':');
        put_logprob(out, l[k].logprob);
        buf_putc(out, ',');
    }
    put_end(out, "}");
}

static void put_cell(struct buf *out, const struct exchange *x, enum column col, const struct forge_logprob *l, size_t n_best,
                     size_t *offset)
{
    struct token t;
    spell(x, out, l[0].id, &t);
    if (col == COL_TOKENS)
        buf_put_json(out, t.text, t.text_len);
    else if (col == COL_LOGPROBS)
        put_logprob(out, l[0].logprob);
    else if (col == COL_TOP)
        put_best(out, x, l, n_best);
    else
        buf_printf(out, "%zu", *offset);
    *offset += n_chars(&t);
    buf_putc(out, ',');
}

static void text_lists(struct buf *out, const struct exchange *x, const struct turn *t, size_t choice, size_t first, size_t n,
                       size_t *offset)
{
    static const char *const names[N_COLS] = {"tokens", "token_logprobs", "top_logprobs", "text_offset"};
    size_t at = *offset;
    buf_puts(out, "\"logprobs\":{");
    for (int col = 0; col < N_COLS; col++) {
        size_t n_best;
        const struct forge_logprob *l;
        at = *offset;
        buf_printf(out, "\"%s\":[", names[col]);
        for (size_t i = first; i < first + n && (l = forge_request_logprobs(t->r, (int)choice, i, &n_best)); i++)
            put_cell(out, x, (enum column)col, l, n_best, &at);
        put_end(out, "],");
    }
    *offset = at;
    put_end(out, "}");
}

void logprobs_json(struct buf *out, const struct exchange *x, const struct turn *t, size_t choice, size_t first, size_t n,
                   size_t *offset)
{
    if (x->gen->api.chat)
        chat_list(out, x, t, choice, first, n);
    else
        text_lists(out, x, t, choice, first, n, offset);
}
