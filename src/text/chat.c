/* From the JSON of a conversation to variables of a template, and from its text to ids.
 * The messages' shape is as transformers gives it to templates: members that are null are left out of a message, a
 * message's reasoning is there under both its names.  Where a template lies is chat_source.c's. */
#include "text/chat.h"

#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "text/chat_parts.h"

#define VARS_MAX 64

/* ---- messages ---- */

static const char *const reasoning[] = {"reasoning_content", "thinking", "reasoning"};

static void put_member(struct buf *b, const char *name, struct raw v, bool *first)
{
    buf_puts(b, *first ? "" : ", ");
    buf_put_json(b, name, strlen(name));
    buf_puts(b, ": ");
    buf_put(b, v.s, v.len);
    *first = false;
}

static void put_message(struct buf *b, struct raw m, const cJSON *o)
{
    struct raw thought = {0}, v;
    size_t at = 0;
    bool first = true, has = false;
    for (size_t i = 0; i < sizeof reasoning / sizeof *reasoning && !has; i++)
        has = raw_member(m, o, reasoning[i], &thought) && !raw_is_null(thought);
    buf_putc(b, '{');
    if (has)
        put_member(b, "thinking", thought, &first);
    for (const cJSON *c = o->child; c && raw_next_member(m, &at, &v); c = c->next)
        if (!raw_is_null(v))
            put_member(b, c->string, v, &first);
    if (has)
        put_member(b, "reasoning_content", thought, &first);
    buf_putc(b, '}');
}

static int put_list(struct buf *b, struct raw list, const cJSON *l, struct err *err)
{
    struct raw m;
    size_t at = 0, n = 0;
    buf_putc(b, '[');
    for (const cJSON *c = l->child; c && raw_next_element(list, &at, &m); c = c->next) {
        if (!cJSON_IsObject(c))
            return err_set(err, ERR_ARG, "messages: element %zu is no object", n);
        if (n++)
            buf_puts(b, ", ");
        put_message(b, m, c);
    }
    buf_putc(b, ']');
    return n ? 0 : err_set(err, ERR_ARG, "messages: the conversation is empty, it needs at least one message");
}

/* Messages of the protocol become such as templates take first. */
static int put_messages(struct buf *b, struct raw list, const cJSON *l, unsigned flags, struct err *err)
{
    struct buf plain;
    cJSON *j = NULL;
    if (!cJSON_IsArray(l))
        return err_set(err, ERR_ARG, "messages: this is no list");
    if (!(flags & CHAT_PROTOCOL))
        return put_list(b, list, l, err);
    buf_init(&plain);
    int rc = chat_protocol_messages(&plain, list, l, err);
    if (rc == 0 && plain.failed)
        rc = err_set(err, ERR_NOMEM, "no memory for %zu bytes of messages", list.len);
    if (rc == 0 && (rc = json_parse_most(&j, buf_str(&plain), plain.len, CHAT_VALUES_MOST, "messages", err)) == 0)
        rc = put_list(b, (struct raw){buf_str(&plain), plain.len}, j, err);
    cJSON_Delete(j);
    buf_fini(&plain);
    return rc;
}

/* ---- variables ---- */

struct vars {
    struct template_var v[VARS_MAX];
    size_t n;
    struct buf messages;
};

static int add_raw(struct vars *vars, const char *name, struct raw v, struct err *err)
{
    if (vars->n == VARS_MAX)
        return err_set(err, ERR_ARG, "variables: more than %d", VARS_MAX);
    vars->v[vars->n++] = (struct template_var){.name = name, .json = v.s, .json_len = v.len};
    return 0;
}

static int add_token(struct vars *vars, const char *name, const struct tokenizer *tok, int32_t id, struct err *err)
{
    const char *s;
    size_t len;
    if (id < 0 || !tokenizer_piece(tok, id, &s, &len))
        return 0;
    struct raw none = {0};
    int rc = add_raw(vars, name, none, err);
    if (rc == 0) {
        vars->v[vars->n - 1].own = s;
        vars->v[vars->n - 1].own_len = len;
    }
    return rc;
}

static struct raw literal(const char *text)
{
    return (struct raw){text, strlen(text)};
}

/* What the conversation itself gives to the template. */
static bool is_taken(const char *name)
{
    static const char *const taken[] = {"messages", "tools", "add_generation_prompt"};
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++)
        if (strcmp(name, taken[i]) == 0)
            return true;
    return false;
}

static int add_variables(struct vars *vars, struct raw obj, const cJSON *o, const char *name, bool *thinking, struct err *err)
{
    struct raw list, v;
    size_t at = 0;
    const cJSON *j = cJSON_GetObjectItemCaseSensitive(o, name);
    int rc = 0;
    if (!j || cJSON_IsNull(j))
        return 0;
    if (!cJSON_IsObject(j))
        return err_set(err, ERR_ARG, "%s: this is no object", name);
    if (!raw_member(obj, o, name, &list))
        return 0;
    for (const cJSON *c = j->child; c && rc == 0 && raw_next_member(list, &at, &v); c = c->next) {
        if (is_taken(c->string))
            return err_set(err, ERR_ARG, "'%s' must not have '%s': the conversation has its own", name, c->string);
        *thinking = *thinking || strcmp(c->string, "enable_thinking") == 0;
        rc = add_raw(vars, c->string, v, err);
    }
    return rc;
}

/* Members of the object that are the template's variables by themselves. */
static int add_members(struct vars *vars, struct raw obj, const cJSON *o, struct err *err)
{
    static const char *const known[] = {"messages", "tools", "documents", "add_generation_prompt", "variables", "chat_template_kwargs"};
    for (const cJSON *c = o->child; c; c = c->next) {
        size_t i = 0;
        struct raw v;
        while (i < sizeof known / sizeof *known && strcmp(known[i], c->string) != 0)
            i++;
        if (i == sizeof known / sizeof *known)
            return err_set(err, ERR_ARG, "messages: the member \"%.60s\" of the object is not known", c->string);
        if (i == 3 && !cJSON_IsBool(c) && !cJSON_IsNull(c))
            return err_set(err, ERR_ARG, "add_generation_prompt: this is neither true nor false");
        if (i == 1 && !cJSON_IsArray(c) && !cJSON_IsNull(c))
            return err_set(err, ERR_ARG, "tools: this is no list");
        if (i >= 1 && i <= 3 && raw_member(obj, o, known[i], &v) && (i != 3 || cJSON_IsBool(c)) && (i != 1 || !cJSON_IsNull(c))) {
            int rc = add_raw(vars, known[i], v, err);
            if (rc < 0)
                return rc;
        }
    }
    return 0;
}

static int fill(struct vars *vars, const struct tokenizer *tok, struct raw json, const cJSON *j, struct raw tools, unsigned flags,
                struct err *err)
{
    struct raw list = json;
    bool object = cJSON_IsObject(j), thinking = false;
    const cJSON *l = object ? cJSON_GetObjectItemCaseSensitive(j, "messages") : j;
    if (object && (!l || !raw_member(json, j, "messages", &list)))
        return err_set(err, ERR_ARG, "messages: the object has no member of this name");
    int rc = put_messages(&vars->messages, list, l, flags, err);
    if (rc == 0 && vars->messages.failed)
        rc = err_set(err, ERR_NOMEM, "no memory for %zu bytes of messages", json.len);
    if (rc == 0)
        rc = add_raw(vars, "messages", (struct raw){buf_str(&vars->messages), vars->messages.len}, err);
    if (rc == 0)
        rc = add_raw(vars, "tools", tools.s ? tools : literal("null"), err);
    if (rc == 0)
        rc = add_raw(vars, "documents", literal("null"), err);
    if (rc == 0)
        rc = add_raw(vars, "add_generation_prompt", literal(flags & CHAT_NO_GENERATION_PROMPT ? "false" : "true"), err);
    if (rc == 0 && tok)
        rc = add_token(vars, "bos_token", tok, tokenizer_bos(tok), err);
    if (rc == 0 && tok)
        rc = add_token(vars, "eos_token", tok, tokenizer_eos(tok), err);
    if (rc == 0 && object && (rc = add_members(vars, json, j, err)) == 0 &&
        (rc = add_variables(vars, json, j, "chat_template_kwargs", &thinking, err)) == 0)
        rc = add_variables(vars, json, j, "variables", &thinking, err);
    if (rc == 0 && !thinking && (flags & CHAT_NO_THINKING))
        rc = add_raw(vars, "enable_thinking", literal("false"), err);
    return rc;
}

static const struct template *choose(const struct chat *c, const struct vars *vars)
{
    bool tools = false;
    for (size_t i = 0; i < vars->n; i++)
        if (strcmp(vars->v[i].name, "tools") == 0)
            tools = vars->v[i].json_len > 4; /* the last one counts: neither null nor [] */
    return tools && c->with_tools ? c->with_tools : c->plain;
}

int chat_apply(const struct chat *c, const struct tokenizer *tok, const char *json, size_t len, const char *tools, size_t tools_len,
                unsigned flags, struct marked *out, struct err *err)
{
    struct vars vars = {.n = 0};
    cJSON *j;
    int rc = json_parse(&j, json, len, "messages", err);
    if (rc < 0)
        return rc;
    buf_init(&vars.messages);
    size_t from = 0, to = len; /* without the blanks around it */
    while (from < to && strchr(" \t\r\n", json[from]))
        from++;
    while (to > from && strchr(" \t\r\n", json[to - 1]))
        to--;
    rc = fill(&vars, tok, (struct raw){json + from, to - from}, j, (struct raw){tools, tools_len}, flags, err);
    if (rc == 0)
        rc = template_render(choose(c, &vars), &(struct template_input){vars.v, vars.n, 0}, out, err);
    cJSON_Delete(j);
    buf_fini(&vars.messages);
    return rc;
}

int chat_encode(const struct tokenizer *tok, const struct marked *text, bool add_bos, struct ids *out, struct err *err)
{
    size_t at = out->n;
    bool bos = add_bos && tokenizer_adds_bos(tok);
    int rc = bos ? ids_push(out, tokenizer_bos(tok), err) : 0;
    if (rc == 0)
        rc = tokenizer_encode_marked(tok, buf_str(&text->text), buf_str(&text->marks), text->text.len, TOK_PARSE_SPECIAL, out, err);
    if (rc == 0 && bos && out->n > at + 1 && out->v[at + 1] == out->v[at]) {
        memmove(out->v + at, out->v + at + 1, (out->n - at - 1) * sizeof *out->v);
        out->n--;
    }
    if (rc < 0)
        out->n = at;
    return rc;
}
