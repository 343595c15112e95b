/* Messages as programs send them in the chat protocol, into the shape that templates expect: contents as one string,
 * arguments of calls as objects, the usual roles alone.
 * What is wrong is told with the place in quotes at the front: 'messages[2].content' ... */
#include <stdio.h>
#include <string.h>

#include "text/chat_parts.h"

/* One message: its text, what was read of it, and its place. */
struct message {
    struct raw text;
    const cJSON *o;
    char where[64];
    size_t at;
};

static void place(struct message *m, const char *field)
{
    snprintf(m->where, sizeof m->where, "messages[%zu].%s", m->at, field);
}

static int put_part(struct buf *text, const struct message *m, const cJSON *part, struct err *err)
{
    const cJSON *type = json_get(part, "type"), *t = json_get(part, "text");
    if (!cJSON_IsObject(part) || !cJSON_IsString(type))
        return err_set(err, ERR_ARG, "'%s' has a part that is no object with a 'type'.", m->where);
    if (strcmp(type->valuestring, "text") != 0)
        return err_set(err, ERR_ARG, "'%s' has a part that is no text; this model takes text only.", m->where);
    if (!json_str(t, text))
        return err_set(err, ERR_ARG, "'%s' has a part whose 'text' is %s, not a string.", m->where, json_kind(t));
    return 0;
}

/* A string, or parts of text that follow each other; none where there are calls. */
static int put_content(struct buf *out, struct message *m, struct err *err)
{
    const cJSON *content = json_get(m->o, "content");
    bool calls = json_get(m->o, "tool_calls") && strcmp(json_get(m->o, "role")->valuestring, "assistant") == 0;
    struct buf text;
    int rc = 0;
    place(m, "content");
    buf_init(&text);
    if (cJSON_IsArray(content)) {
        for (const cJSON *c = content->child; c && rc == 0; c = c->next)
            rc = put_part(&text, m, c, err);
    } else if (!content && !calls) {
        rc = err_set(err, ERR_ARG, "'%s' is missing.", m->where);
    } else if (!json_str(content, &text) && content) {
        rc = err_set(err, ERR_ARG, "'%s' must be a string or a list of parts, not %s.", m->where, json_kind(content));
    }
    buf_puts(out, ",\"content\":");
    buf_put_json(out, buf_str(&text), text.len);
    out->failed |= text.failed;
    buf_fini(&text);
    return rc;
}

/* Text that is an object stands for it. */
static void put_arguments(struct buf *out, struct raw function, const cJSON *f)
{
    const cJSON *args = json_get(f, "arguments");
    struct raw spelled = {"{}", 2};
    struct buf text;
    cJSON *parsed = NULL;
    int rc;
    buf_init(&text);
    if (args)
        raw_member(function, f, "arguments", &spelled);
    if (json_str(args, &text)) {
        rc = json_parse_most(&parsed, buf_str(&text), text.len, CHAT_VALUES_MOST, "arguments", NULL);
        if (rc == 0 && cJSON_IsObject(parsed) && buf_str(&text)[0] != '\xEF') /* a mark of the byte order is no part of JSON */
            spelled = (struct raw){buf_str(&text), text.len};
        out->failed |= text.failed || rc == ERR_NOMEM;
    }
    buf_put(out, spelled.s, spelled.len);
    cJSON_Delete(parsed);
    buf_fini(&text);
}

static int put_call(struct buf *out, const struct message *m, struct raw call, const cJSON *c, struct err *err)
{
    const cJSON *f = json_get(c, "function"), *name = json_get(f, "name"), *args = json_get(f, "arguments");
    const cJSON *id = json_get(c, "id"), *type = json_get(c, "type");
    struct raw function, v;
    if (id && !cJSON_IsString(id))
        return err_set(err, ERR_ARG, "'%s' has a call whose 'id' is %s, not a string.", m->where, json_kind(id));
    if (type && (!cJSON_IsString(type) || strcmp(type->valuestring, "function") != 0))
        return err_set(err, ERR_ARG, "'%s' has a call whose 'type' is not 'function'.", m->where);
    if (args && !cJSON_IsString(args) && !cJSON_IsObject(args))
        return err_set(err, ERR_ARG, "'%s' has a call whose 'arguments' are %s, not a string.", m->where, json_kind(args));
    if (!cJSON_IsString(name) || !raw_member(call, c, "function", &function) || !raw_member(function, f, "name", &v))
        return err_set(err, ERR_ARG, "'%s' has a call without the name of a function.", m->where);
    buf_puts(out, "{\"type\":\"function\",\"function\":{\"name\":");
    buf_put(out, v.s, v.len);
    buf_puts(out, ",\"arguments\":");
    put_arguments(out, function, f);
    buf_putc(out, '}');
    if (id && raw_member(call, c, "id", &v)) {
        buf_puts(out, ",\"id\":");
        buf_put(out, v.s, v.len);
    }
    buf_putc(out, '}');
    return 0;
}

static int put_calls(struct buf *out, struct message *m, struct err *err)
{
    const cJSON *calls = json_get(m->o, "tool_calls");
    struct raw list, call;
    size_t at = 0;
    int rc = 0;
    if (!calls)
        return 0;
    place(m, "tool_calls");
    if (!cJSON_IsArray(calls) || !raw_member(m->text, m->o, "tool_calls", &list))
        return err_set(err, ERR_ARG, "'%s' must be a list, not %s.", m->where, json_kind(calls));
    buf_puts(out, ",\"tool_calls\":[");
    for (const cJSON *c = calls->child; c && rc == 0 && raw_next_element(list, &at, &call); c = c->next) {
        rc = put_call(out, m, call, c, err);
        buf_puts(out, c->next ? "," : "");
    }
    buf_putc(out, ']');
    return rc;
}

/* Further members that are text. */
static int put_texts(struct buf *out, struct message *m, struct err *err)
{
    static const char *const names[] = {"name", "tool_call_id", "reasoning_content"};
    struct raw v;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const cJSON *item = json_get(m->o, names[i]);
        place(m, names[i]);
        if (item && (!cJSON_IsString(item) || !raw_member(m->text, m->o, names[i], &v)))
            return err_set(err, ERR_ARG, "'%s' must be a string, not %s.", m->where, json_kind(item));
        if (item) {
            buf_printf(out, ",\"%s\":", names[i]);
            buf_put(out, v.s, v.len);
        }
    }
    return 0;
}

static int put_role(struct buf *out, struct message *m, struct err *err)
{
    static const char *const roles[][2] = {{"system", "system"}, {"developer", "system"}, {"user", "user"},
                                           {"assistant", "assistant"}, {"tool", "tool"}, {"function", "tool"}};
    const cJSON *role = json_get(m->o, "role");
    place(m, "role");
    for (size_t i = 0; i < sizeof roles / sizeof *roles && cJSON_IsString(role); i++)
        if (strcmp(role->valuestring, roles[i][0]) == 0) {
            buf_printf(out, "{\"role\":\"%s\"", roles[i][1]);
            return 0;
        }
    return err_set(err, ERR_ARG, "'%s' must be system, developer, user, assistant or tool.", m->where);
}

int chat_protocol_messages(struct buf *out, struct raw list, const cJSON *l, struct err *err)
{
    struct message m = {.at = 0};
    size_t at = 0;
    int rc = 0;
    buf_putc(out, '[');
    for (m.o = l->child; m.o && rc == 0 && raw_next_element(list, &at, &m.text); m.o = m.o->next, m.at++) {
        buf_puts(out, m.at ? "," : "");
        if ((rc = put_role(out, &m, err)) == 0 && (rc = put_content(out, &m, err)) == 0 && (rc = put_texts(out, &m, err)) == 0)
            rc = put_calls(out, &m, err);
        buf_putc(out, '}');
    }
    buf_putc(out, ']');
    return rc;
}
