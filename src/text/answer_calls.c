/* A call: an object with a name, and arguments (Qwen) or parameters (Llama) that are an object, or text.
 * Arguments are told as the model wrote them, so that
 * its numbers stay what they are. */
#include "text/answer_calls.h"

#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/json_raw.h"
#include "base/mem.h"

void answer_parts_init(struct answer_parts *p)
{
    *p = (struct answer_parts){.n_calls = 0};
    buf_init(&p->thought);
    buf_init(&p->content);
    buf_init(&p->call_text);
}

void answer_parts_fini(struct answer_parts *p)
{
    buf_fini(&p->thought);
    buf_fini(&p->content);
    buf_fini(&p->call_text);
    free(p->calls);
}

void answer_parts_clear(struct answer_parts *p)
{
    buf_clear(&p->thought);
    buf_clear(&p->content);
    buf_clear(&p->call_text);
    p->n_calls = 0;
}

static bool put_call(struct raw text, const cJSON *o, struct answer_parts *out)
{
    const cJSON *name = json_get(o, "name");
    const char *key = json_get(o, "arguments") ? "arguments" : "parameters";
    const cJSON *args = json_get(o, key);
    struct answer_call c = {0};
    struct raw spelled = {"{}", 2};
    struct buf *b = &out->call_text;
    if (args)
        raw_member(text, o, key, &spelled);
    if (!cJSON_IsString(name) || name->valuestring[0] == '\0' || !strchr("{\"", spelled.s[0]))
        return false;
    struct answer_call *calls = mem_grow(out->calls, &out->cap_calls, out->n_calls + 1, sizeof *calls);
    if (!calls) {
        out->failed = true;
        return true;
    }
    out->calls = calls;
    size_t at = b->len;
    json_str(name, b);
    c.name_len = b->len - at;
    buf_putc(b, '\0');
    at = b->len;
    if (spelled.s[0] == '{' || !json_str(args, b))
        buf_put(b, spelled.s, spelled.len);
    c.args_len = b->len - at;
    buf_putc(b, '\0');
    calls[out->n_calls++] = c;
    return true;
}

static bool put_value(struct raw text, struct answer_parts *out)
{
    cJSON *j;
    struct raw v;
    size_t at = 0;
    int rc = json_parse(&j, text.s, text.len, "call", NULL);
    out->failed |= rc == ERR_NOMEM;
    if (rc < 0)
        return false;
    bool ok = cJSON_IsObject(j) ? put_call(text, j, out) : cJSON_IsArray(j) && j->child;
    for (const cJSON *c = cJSON_IsArray(j) ? j->child : NULL; c && ok; c = c->next)
        ok = raw_next_element(text, &at, &v) && put_call(v, c, out);
    cJSON_Delete(j);
    return ok;
}

bool answer_calls(const char *text, size_t len, struct answer_parts *out)
{
    struct raw all = {text, len};
    size_t at = 0, n = out->n_calls, bytes = out->call_text.len, end;
    bool ok = true;
    for (; ok; at = end) {
        while (at < len && text[at] && strchr("; \t\r\n", text[at]))
            at++;
        if (at == len)
            break;
        end = raw_value_end(all, at);
        ok = put_value((struct raw){text + at, end - at}, out);
    }
    ok = ok && out->n_calls > n;
    if (!ok && out->call_text.data) {
        out->n_calls = n;
        out->call_text.len = bytes;
        out->call_text.data[bytes] = '\0';
    }
    return ok;
}
