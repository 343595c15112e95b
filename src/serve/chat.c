/* The fields of a chat: messages, tools, what form the answer is to have; checked, but
 * for single messages, which are the library's matter.
 * Knows the template by forge.h only. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "serve/server.h"

#define TOOLS_MAX 128

/* ---- messages ---- */

/* Their shape is looked at where they are rendered. */
static bool put_messages(struct buf *out, struct node list, struct api_error *e)
{
    if (!cJSON_IsArray(list.item))
        return api_fail(e, 400, "messages", list.item ? "'messages' must be a list, not %s." : "'messages' is missing.",
                        json_kind(list.item));
    if (!list.item->child)
        return api_fail(e, 400, "messages", "'messages' is empty.");
    node_put(out, list);
    return true;
}

/* ---- tools ---- */

static bool check_tool(const cJSON *t, size_t at, struct api_error *e)
{
    const cJSON *f = json_get(t, "function"), *name = json_get(f, "name"), *p = json_get(f, "parameters"), *type = json_get(t, "type");
    char where[64];
    snprintf(where, sizeof where, "tools[%zu]", at);
    if (!cJSON_IsString(type) || strcmp(type->valuestring, "function") != 0 || !cJSON_IsObject(f))
        return api_fail(e, 400, where, "'%s' must be an object of type 'function' with a 'function'.", where);
    if (!cJSON_IsString(name) || !name->valuestring[0])
        return api_fail(e, 400, where, "'%s' has no name of a function.", where);
    if (p && !cJSON_IsObject(p))
        return api_fail(e, 400, where, "'%s' has parameters that are %s, not an object.", where, json_kind(p));
    return true;
}

static bool check_tools(const cJSON *tools, struct api_error *e)
{
    size_t n = 0;
    if (!cJSON_IsArray(tools))
        return api_fail(e, 400, "tools", "'tools' must be a list, not %s.", json_kind(tools));
    for (const cJSON *t = tools->child; t; t = t->next)
        if (n == TOOLS_MAX ? !api_fail(e, 400, "tools", "'tools' has more than %d tools.", TOOLS_MAX) : !check_tool(t, n++, e))
            return false;
    return true;
}

/* A tool's parameters with an $id of their own: their references begin in them, and errors name the tool. */
static void put_parameters(struct buf *out, struct node p, const char *name)
{
    struct buf id;
    struct raw value;
    size_t at = 0;
    buf_init(&id);
    buf_puts(&id, "tools/");
    buf_puts(&id, name);
    buf_puts(out, "{\"$id\":");
    node_put_name(out, buf_str(&id));
    out->failed |= id.failed;
    buf_fini(&id);
    for (const cJSON *c = p.item->child; c && raw_next_member(p.raw, &at, &value); c = c->next) {
        if (strcmp(c->string, "$id") == 0)
            continue;
        buf_putc(out, ',');
        node_put_name(out, c->string);
        buf_putc(out, ':');
        node_put(out, (struct node){c, value});
    }
    buf_putc(out, '}');
}

/* The schema of a call, so that nothing else can come: of one tool, or of all. */
static bool put_call_schema(struct buf *out, struct node tools, const char *only, struct api_error *e)
{
    struct node_place at = {0};
    struct node t;
    size_t n = 0;
    buf_puts(out, "{\"anyOf\":[");
    while (node_next(tools, &at, &t)) {
        struct node f = node_get(t, "function"), name = node_get(f, "name"), p = node_get(f, "parameters");
        if (only && strcmp(only, name.item->valuestring) != 0)
            continue;
        if (n++ > 0)
            buf_putc(out, ',');
        buf_puts(out, "{\"type\":\"object\",\"properties\":{\"name\":{\"const\":");
        node_put(out, name);
        buf_puts(out, "},\"arguments\":");
        if (p.item)
            put_parameters(out, p, name.item->valuestring);
        else
            buf_puts(out, "{\"type\":\"object\"}");
        buf_puts(out, "},\"required\":[\"name\",\"arguments\"],\"additionalProperties\":false}");
    }
    buf_puts(out, "]}");
    return n > 0 || api_fail(e, 400, "tool_choice", "'tool_choice' asks for a tool that 'tools' does not have.");
}

static bool read_tools(struct api *a, struct node body, struct node *tools, struct api_error *e)
{
    const cJSON *choice = json_get(body.item, "tool_choice"), *name = json_get(json_get(choice, "function"), "name");
    const char *word = cJSON_IsString(choice) ? choice->valuestring : NULL;
    struct buf schema;
    *tools = node_get(body, "tools");
    if (tools->item && !check_tools(tools->item, e))
        return false;
    if (choice && !(word && (!strcmp(word, "none") || !strcmp(word, "auto") || !strcmp(word, "required"))) && !cJSON_IsString(name))
        return api_fail(e, 400, "tool_choice", "'tool_choice' must be none, auto, required, or name a function.");
    if (tools->item && !tools->item->child)
        tools->item = NULL;
    a->only_call = (word && strcmp(word, "required") == 0) || cJSON_IsString(name);
    a->tools = tools->item && !(word && strcmp(word, "none") == 0);
    if (!a->only_call)
        return true;
    buf_init(&schema);
    bool ok = put_call_schema(&schema, *tools, cJSON_IsString(name) ? name->valuestring : NULL, e);
    a->json_schema = schema.data;
    a->schema_field = "tools";
    return ok && (!schema.failed || api_no_memory(e));
}

/* ---- the form of the answer ---- */

static bool read_format(struct api *a, struct node body, struct api_error *e)
{
    static const char field[] = "response_format";
    struct node form = node_get(body, field), s = node_get(node_get(form, "json_schema"), "schema");
    const cJSON *f = form.item, *type = json_get(f, "type");
    struct buf b;
    if (!f)
        return true;
    if (!cJSON_IsObject(f))
        return api_fail(e, 400, field, "'%s' must be an object, not %s.", field, json_kind(f));
    const char *word = cJSON_IsString(type) ? type->valuestring : "";
    bool schema = strcmp(word, "json_schema") == 0;
    if (strcmp(word, "text") == 0)
        return true;
    if (!schema && strcmp(word, "json_object") != 0)
        return api_fail(e, 400, field, "'%s' has a 'type' that is none of text, json_object, json_schema.", field);
    if (schema && !cJSON_IsObject(s.item))
        return api_fail(e, 400, field, "'%s' has no 'json_schema' with a 'schema' that is an object.", field);
    if (a->only_call)
        return api_fail(e, 400, field, "'%s' and a 'tool_choice' that asks for a call exclude each other.", field);
    buf_init(&b);
    if (schema)
        node_put(&b, s);
    else
        buf_puts(&b, "{\"type\":\"object\"}");
    a->json_schema = b.data;
    a->schema_field = field;
    return !b.failed || api_no_memory(e);
}

/* Variables of the template.  An answer in a form has no room for a thought, unless that is asked for. */
static bool put_variables(struct buf *out, const struct api *a, struct node body, struct api_error *e)
{
    struct node vars = node_get(body, "chat_template_kwargs");
    bool no_thought = a->json_schema && !json_get(vars.item, "enable_thinking");
    if (vars.item && !cJSON_IsObject(vars.item))
        return api_fail(e, 400, "chat_template_kwargs", "'chat_template_kwargs' must be an object, not %s.", json_kind(vars.item));
    if (vars.item)
        buf_put(out, vars.raw.s, vars.raw.len - 1); /* without its bracket */
    else
        buf_putc(out, '{');
    if (no_thought)
        buf_printf(out, "%s\"enable_thinking\":false", vars.item && vars.item->child ? "," : "");
    buf_putc(out, '}');
    return true;
}

/* ---- all of it ---- */

bool chat_read(struct api *a, struct server *s, struct node body, struct api_error *e)
{
    struct node tools;
    struct chat_text c;
    a->prompts = mem_array(1, sizeof *a->prompts);
    if (!a->prompts)
        return api_no_memory(e);
    a->n_prompts = 1;
    if (!read_tools(a, body, &tools, e) || !read_format(a, body, e))
        return false;
    buf_init(&c.messages);
    buf_init(&c.tools);
    buf_init(&c.variables);
    if (a->tools)
        node_put(&c.tools, tools);
    bool ok = put_messages(&c.messages, node_get(body, "messages"), e) && put_variables(&c.variables, a, body, e);
    if (ok && (c.messages.failed || c.tools.failed || c.variables.failed))
        ok = api_no_memory(e);
    ok = ok && chat_render(s, &c, a, e);
    buf_fini(&c.messages);
    buf_fini(&c.tools);
    buf_fini(&c.variables);
    return ok;
}

void handle_chat(struct exchange *x)
{
    gen_start(x, true);
}

void handle_apply_template(struct exchange *x)
{
    struct api_error e = {0};
    struct api a = {.chat = true};
    struct buf *out = &x->reply.body;
    cJSON *body = fields_body(x, &e);
    bool ok = body && chat_read(&a, x->s, body_node(x, body), &e);
    cJSON_Delete(body);
    if (ok) {
        buf_puts(out, "{\"prompt\":");
        buf_put_json(out, a.prompts[0].text ? a.prompts[0].text : "", a.prompts[0].len);
        buf_puts(out, "}\n");
        reply_json(x, 200);
    } else
        reply_error(x, &e);
    api_fini(&a);
}
