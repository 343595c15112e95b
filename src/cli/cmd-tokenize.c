/* forge tokenize: text to token ids and back, one text or one a line.
 * Opens a tokenizer and no weights; what a token is, is text/'s matter, and
 * which tokenizer belongs to a model run/load's. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "cli/cmd.h"
#include "cli/num.h"
#include "cli/tools.h"

struct tokenize_args {
    struct prompt_args prompt;
    struct num_list decode;
    bool json, jsonl, skip_special;
};

#define F(field) offsetof(struct tokenize_args, field)

static const struct opt opts[] = {
    {"prompt", 'p', OPT_STR, F(prompt.text), 0, "TEXT", NULL, NULL,
     "the text (default: standard input, whole)"},
    {"file", 'f', OPT_STR, F(prompt.file), 0, "FILE", NULL, NULL, "a file as the text, whole"},
    {"decode", 0, OPT_NUMS, F(decode), 0, "1,2,3", PROMPT_ID_RANGE, NULL, "the text of these ids instead"},
    {"skip-special", 0, OPT_FLAG, F(skip_special), 0, NULL, NULL, NULL, "decode without special tokens"},
    PROMPT_FLAG_OPTS(struct tokenize_args),
    {"json", 0, OPT_FLAG, F(json), 0, NULL, NULL, NULL,
     "an object with ids and pieces (the vocabulary's spelling), or with text"},
    {"jsonl", 0, OPT_FLAG, F(jsonl), 0, NULL, NULL, NULL,
     "one JSON string a line in, one object a line out; a line that is a list of ids is decoded"},
    {0},
};

static int put_encoded(struct buf *b, const struct tokenizer *tok, const struct tokenize_args *a,
                       const struct prompt *p)
{
    struct ids ids;
    int status = tool_encode(&ids, p, &a->prompt, tok);
    if (status)
        goto done;
    if (!a->json) {
        for (size_t i = 0; i < ids.n; i++)
            buf_printf(b, "%s%d", i ? "," : "", (int)ids.v[i]);
        goto done;
    }
    buf_puts(b, "{\"ids\":");
    buf_put_json_ids(b, ids.v, ids.n);
    buf_puts(b, ",\"pieces\":[");
    for (size_t i = 0; i < ids.n; i++) {
        const char *s = "";
        size_t len = 0;
        tokenizer_piece(tok, ids.v[i], &s, &len);
        if (i)
            buf_putc(b, ',');
        buf_put_json(b, s, len);
    }
    buf_puts(b, "]}");
done:
    ids_fini(&ids);
    return status;
}

/* A model may have rows beyond its tokenizer, which stand for no text; more often such an id is a mistake. */
static void warn_no_token(const struct tokenizer *tok, const int32_t *ids, size_t n)
{
    const char *s;
    size_t len, missing = 0, first = 0;
    for (size_t i = n; i-- > 0;)
        if (!tokenizer_piece(tok, ids[i], &s, &len)) {
            missing++;
            first = i;
        }
    if (missing)
        msg_warn("%zu of %zu ids have no token in %s, which has %d, and give no text; the first is %d (number %zu)",
                 missing, n, tokenizer_source(tok), (int)tokenizer_n_ids(tok), (int)ids[first], first + 1);
}

static int put_decoded(struct buf *b, const struct tokenizer *tok, const struct tokenize_args *a,
                       const int32_t *ids, size_t n)
{
    struct err err = {0};
    struct buf text;
    buf_init(&text);
    warn_no_token(tok, ids, n);
    int rc = tokenizer_decode(tok, ids, n, a->skip_special, &text, &err);
    if (rc == 0 && a->json) {
        buf_puts(b, "{\"text\":");
        buf_put_json(b, buf_str(&text), text.len);
        buf_putc(b, '}');
    } else if (rc == 0)
        buf_put(b, buf_str(&text), text.len);
    b->failed |= text.failed;
    buf_fini(&text);
    return rc < 0 ? msg_fail(rc, err.msg) : 0;
}

static int decode_list(struct buf *b, const struct tokenizer *tok, const struct tokenize_args *a)
{
    struct err err = {0};
    struct ids ids;
    int status = 0;
    ids_init(&ids);
    for (size_t i = 0; status == 0 && i < a->decode.n; i++)
        if (ids_push(&ids, (int32_t)a->decode.v[i], &err) < 0)
            status = msg_fail(err.code, err.msg);
    if (status == 0)
        status = put_decoded(b, tok, a, ids.v, ids.n);
    ids_fini(&ids);
    return status;
}

static int decode_json(struct buf *b, const struct tokenizer *tok, const struct tokenize_args *a,
                       const cJSON *list, const char *where)
{
    struct err err = {0};
    struct ids ids;
    int status = 0;
    ids_init(&ids);
    for (const cJSON *v = list->child; status == 0 && v; v = v->next) {
        int32_t id;
        if (!cJSON_IsNumber(v) || !num_id(v->valuedouble, &id))
            status = msg_fail(err_set(&err, ERR_FORMAT, "%s: this is no list of token ids", where), err.msg);
        else if (ids_push(&ids, id, &err) < 0)
            status = msg_fail(err.code, err.msg);
    }
    if (status == 0)
        status = put_decoded(b, tok, a, ids.v, ids.n);
    ids_fini(&ids);
    return status;
}

static int do_line(const struct tokenizer *tok, const struct tokenize_args *a, const char *line, size_t len,
                   const char *where)
{
    struct err err = {0};
    struct prompt p = {0};
    struct buf text, b;
    int status;
    cJSON *v;
    if (json_parse(&v, line, len, where, &err))
        return msg_fail(err.code, err.msg);
    buf_init(&text);
    buf_init(&b);
    if (cJSON_IsArray(v))
        status = decode_json(&b, tok, a, v, where);
    else if (json_str(v, &text) && !text.failed) {
        /* borrowed, so not for prompt_free */
        p.text = text.data ? text.data : (char *)(uintptr_t)buf_str(&text);
        p.text_len = text.len;
        status = put_encoded(&b, tok, a, &p);
    } else
        status = msg_fail(err_set(&err, ERR_FORMAT, "%s: this is no JSON string", where), err.msg);
    buf_putc(&b, '\n');
    if (status)
        buf_fini(&b);
    else if (!out_buf(&b))
        status = EXIT_FAILED;
    buf_fini(&text);
    cJSON_Delete(v);
    return status;
}

static int do_lines(const struct tokenizer *tok, struct tokenize_args *a, const struct prompt *p)
{
    int status = 0;
    size_t line = 0;
    a->json = true;
    for (size_t at = 0; status == 0 && at < p->text_len && !out_closed();) {
        const char *nl = memchr(p->text + at, '\n', p->text_len - at);
        size_t end = nl ? (size_t)(nl - p->text) : p->text_len;
        char where[64];
        snprintf(where, sizeof where, "line %zu", ++line);
        if (strspn(p->text + at, " \t\r") < end - at)
            status = do_line(tok, a, p->text + at, end - at, where);
        at = end + 1;
    }
    return status;
}

static int run(void *args, const struct common *c)
{
    struct tokenize_args *a = args;
    struct tokenizer *tok = NULL;
    struct prompt p = {0};
    struct buf b;
    int status = 0;
    buf_init(&b);
    if (prompt_given(&a->prompt) + a->decode.given > 1)
        return msg_usage("tokenize", "give only one of -p, -f and --decode");
    if (a->decode.given && a->jsonl)
        return msg_usage("tokenize",
                         "--decode and --jsonl exclude each other; with --jsonl a line may be a list of ids");
    if (!a->decode.given) {
        if (!prompt_given(&a->prompt))
            a->prompt.file = "-";
        status = prompt_read(&p, &a->prompt, "tokenize", "-p, -f or --decode");
    }
    if (status == 0)
        status = tool_open_tokenizer(&tok, c);
    if (status == 0 && a->jsonl)
        status = do_lines(tok, a, &p);
    else if (status == 0) {
        status = a->decode.given ? decode_list(&b, tok, a) : put_encoded(&b, tok, a, &p);
        buf_putc(&b, '\n');
        if (status == 0 && !out_buf(&b))
            status = EXIT_FAILED;
    }
    buf_fini(&b);
    prompt_free(&p);
    tokenizer_close(tok);
    return status;
}

const struct cmd cmd_tokenize = {
    .name = "tokenize",
    .summary = "Turn text into token ids, or ids into text",
    .usage = "[-p TEXT | -f FILE | --decode LIST] [flags]",
    .opts = opts,
    .args_size = sizeof(struct tokenize_args),
    .shared = {common_model_opts},
    .run = run,
};
