/* The parts of an answer: <think>...</think>, text, <tool_call>{...}</tool_call> (Qwen
 * and its kin), or a text that is nothing but {"name":...,"parameters":{...}} (Llama).
 * What could be the beginning of a mark is held back until it is told apart; a call
 * that does not parse is text after all. */
#include "serve/split.h"

#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/rng.h"
#include "serve/json_out.h"

enum state { START, THOUGHT, CONTENT, CALL, ONLY_CALL };

static const char think[] = "<think>", end_think[] = "</think>", call[] = "<tool_call>", end_call[] = "</tool_call>";

void split_init(struct split *s, bool tools, bool thinking, bool only_call)
{
    *s = (struct split){.state = only_call ? ONLY_CALL : thinking ? THOUGHT : START, .tools = tools || only_call, .trim = thinking};
    buf_init(&s->held);
}

void split_fini(struct split *s)
{
    buf_fini(&s->held);
}

void parted_init(struct parted *p)
{
    buf_init(&p->thought);
    buf_init(&p->content);
    buf_init(&p->calls);
    p->n_calls = 0;
}

void parted_fini(struct parted *p)
{
    buf_fini(&p->thought);
    buf_fini(&p->content);
    buf_fini(&p->calls);
}

/* ---- held text ---- */

static void drop(struct split *s, size_t n)
{
    if (n > 0 && s->held.data) {
        memmove(s->held.data, s->held.data + n, s->held.len - n);
        s->held.len -= n;
        s->held.data[s->held.len] = '\0';
    }
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

static size_t n_blanks(const struct split *s)
{
    size_t n = 0;
    while (n < s->held.len && is_blank(s->held.data[n]))
        n++;
    return n;
}

static const char *find(const struct split *s, const char *mark)
{
    return s->held.len ? memmem(s->held.data, s->held.len, mark, strlen(mark)) : NULL;
}

/* How many bytes at the end are blanks, or could begin the mark behind them. */
static size_t unsure(const struct split *s, const char *mark)
{
    size_t len = s->held.len, m = strlen(mark), tail = m - 1 < len ? m - 1 : len;
    while (tail > 0 && memcmp(s->held.data + len - tail, mark, tail) != 0)
        tail--;
    while (tail < len && is_blank(s->held.data[len - tail - 1]))
        tail++;
    return tail;
}

/* Tells the first n bytes, without blanks where they are between parts. */
static void tell(struct split *s, size_t n, struct buf *to)
{
    size_t from = 0;
    while (s->trim && from < n && is_blank(s->held.data[from]))
        from++;
    if (from < n) {
        buf_put(to, s->held.data + from, n - from);
        s->trim = false;
    }
    drop(s, n);
}

/* ---- calls ---- */

static bool put_call(struct split *s, const cJSON *j, struct parted *out)
{
    const cJSON *name = json_get(j, "name"), *args = json_get(j, "arguments");
    struct buf text;
    args = args ? args : json_get(j, "parameters");
    if (!cJSON_IsString(name) || (args && !cJSON_IsObject(args) && !cJSON_IsString(args)))
        return false;
    buf_init(&text);
    if (!args)
        buf_puts(&text, "{}");
    else if (!json_str(args, &text))
        json_put(&text, args);
    buf_printf(&out->calls, "{\"index\":%zu,\"id\":\"call_%016llx\",\"type\":\"function\",\"function\":{\"name\":", s->n_calls,
               (unsigned long long)rng_fresh_seed());
    json_put(&out->calls, name);
    buf_puts(&out->calls, ",\"arguments\":");
    buf_put_json(&out->calls, buf_str(&text), text.len);
    buf_puts(&out->calls, "}},");
    out->calls.failed |= text.failed;
    buf_fini(&text);
    s->n_calls++;
    out->n_calls++;
    return true;
}

/* One call, or a list of them. */
static bool take_calls(struct split *s, const char *text, size_t len, struct parted *out)
{
    cJSON *j;
    size_t before = out->calls.len, n = out->n_calls, all = s->n_calls;
    if (json_parse(&j, text, len, "call", NULL) < 0)
        return false;
    bool ok = cJSON_IsObject(j) ? put_call(s, j, out) : cJSON_IsArray(j) && j->child;
    for (const cJSON *c = cJSON_IsArray(j) ? j->child : NULL; c && ok; c = c->next)
        ok = put_call(s, c, out);
    cJSON_Delete(j);
    if (!ok) {
        out->calls.len = before;
        out->n_calls = n;
        s->n_calls = all;
    }
    return ok;
}

/* ---- states: true = another state goes on with what is held ---- */

static bool at_start(struct split *s, bool last)
{
    size_t blanks = n_blanks(s), left = s->held.len - blanks, n = left < sizeof think - 1 ? left : sizeof think - 1;
    const char *text = buf_str(&s->held) + blanks;
    if (n > 0 && memcmp(text, think, n) != 0) {
        s->state = s->tools && (text[0] == '{' || text[0] == '[') ? ONLY_CALL : CONTENT;
        return true;
    }
    if (n == sizeof think - 1) {
        drop(s, blanks + n);
        s->state = THOUGHT;
        s->trim = true;
        return true;
    }
    s->state = last ? CONTENT : START;
    return last && s->held.len > 0;
}

static bool in_thought(struct split *s, bool last, struct parted *out)
{
    const char *end = find(s, end_think);
    if (!end) {
        tell(s, s->held.len - (last ? 0 : unsure(s, end_think)), &out->thought);
        return false;
    }
    size_t n = (size_t)(end - s->held.data), text = n;
    while (text > 0 && is_blank(s->held.data[text - 1]))
        text--;
    tell(s, text, &out->thought);
    drop(s, n - text + sizeof end_think - 1);
    s->state = CONTENT;
    s->trim = true;
    return true;
}

static bool in_content(struct split *s, bool last, struct parted *out)
{
    const char *begin = s->tools ? find(s, call) : NULL;
    if (!begin) {
        tell(s, s->held.len - (last || !s->tools ? 0 : unsure(s, call)), &out->content);
        return false;
    }
    size_t n = (size_t)(begin - s->held.data), text = n;
    while (text > 0 && is_blank(s->held.data[text - 1]))
        text--;
    tell(s, text, &out->content);
    drop(s, n - text + sizeof call - 1);
    s->state = CALL;
    return true;
}

static bool in_call(struct split *s, bool last, struct parted *out)
{
    const char *end = find(s, end_call);
    size_t n = end ? (size_t)(end - s->held.data) : s->held.len;
    if (!end && !last)
        return false;
    if (!take_calls(s, buf_str(&s->held), n, out)) { /* text after all */
        buf_puts(&out->content, call);
        buf_put(&out->content, buf_str(&s->held), end ? n + sizeof end_call - 1 : n);
    }
    drop(s, end ? n + sizeof end_call - 1 : n);
    s->state = CONTENT;
    s->trim = true;
    return end != NULL;
}

static bool in_only_call(struct split *s, bool last, struct parted *out)
{
    if (!last)
        return false;
    if (!take_calls(s, buf_str(&s->held), s->held.len, out))
        buf_put(&out->content, buf_str(&s->held), s->held.len);
    drop(s, s->held.len);
    return false;
}

void split_push(struct split *s, const char *text, size_t len, bool last, struct parted *out)
{
    bool more = true;
    buf_put(&s->held, text, len);
    while (more) {
        switch ((enum state)s->state) {
        case START:
            more = at_start(s, last);
            break;
        case THOUGHT:
            more = in_thought(s, last, out);
            break;
        case CONTENT:
            more = in_content(s, last, out);
            break;
        case CALL:
            more = in_call(s, last, out);
            break;
        case ONLY_CALL:
            more = in_only_call(s, last, out);
            break;
        }
    }
    out->content.failed |= s->held.failed;
}
