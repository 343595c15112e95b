/* The parts of an answer: a thought between its marks; text; <tool_call>{...}</tool_call> (Qwen and its kin); or a text
 * that is nothing but {"name":...,"parameters":{...}}, several of them apart by blanks or ';' (Llama).
 * What could be the beginning of a mark, or of a character, is held back until it is told apart.  Where the text was
 * cut changes nothing of what the parts are together.  A call that does not parse is text after all, byte for byte. */
#include "text/answer.h"

#include <string.h>

#include "base/utf8.h"
#include "text/answer_calls.h"

enum state { START, THOUGHT, CONTENT, CALL, ONLY_CALL };

static const struct {
    const char *begin, *end;
} thoughts[] = {{"<think>", "</think>"}, {"<thinking>", "</thinking>"}, {"[THINK]", "[/THINK]"}};
#define N_THOUGHTS ((int)(sizeof thoughts / sizeof *thoughts))

static const char call[] = "<tool_call>", end_call[] = "</tool_call>", python_tag[] = "<|python_tag|>";

static bool is_blank(char c)
{
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

static size_t trimmed(const char *s, size_t len)
{
    while (len > 0 && is_blank(s[len - 1]))
        len--;
    return len;
}

void answer_init(struct answer *a, const char *prompt, size_t len, unsigned flags)
{
    bool only = flags & ANSWER_ONLY_CALL;
    *a = (struct answer){.state = only ? ONLY_CALL : START, .tools = only || (flags & ANSWER_TOOLS)};
    buf_init(&a->held);
    len = trimmed(prompt, len);
    for (int i = 0; i < N_THOUGHTS && !only; i++) {
        size_t n = strlen(thoughts[i].begin);
        if (len >= n && memcmp(prompt + len - n, thoughts[i].begin, n) == 0) {
            a->state = THOUGHT;
            a->mark = i;
            a->trim = true;
        }
    }
}

void answer_fini(struct answer *a)
{
    buf_fini(&a->held);
}

/* ---- held text ---- */

static void drop(struct answer *a, size_t n)
{
    if (n > 0 && a->held.data) {
        memmove(a->held.data, a->held.data + n, a->held.len - n);
        a->held.len -= n;
        a->held.data[a->held.len] = '\0';
    }
}

static const char *find(const struct answer *a, size_t from, const char *mark)
{
    return a->held.len > from ? memmem(a->held.data + from, a->held.len - from, mark, strlen(mark)) : NULL;
}

/* How many bytes at the end are blanks, or could begin the mark behind them, or a character. */
static size_t unsure(const struct answer *a, const char *mark)
{
    const char *s = buf_str(&a->held);
    size_t len = a->held.len, m = strlen(mark), tail = m - 1 < len ? m - 1 : len;
    while (tail > 0 && memcmp(s + len - tail, mark, tail) != 0)
        tail--;
    tail = tail > 0 ? tail : utf8_partial_tail(s, len);
    return len - trimmed(s, len - tail);
}

/* Tells the first n bytes, without blanks where they are between parts; a newline before them where they have to be kept
 * apart from what was told. */
static void tell(struct answer *a, size_t n, struct buf *to, bool apart)
{
    size_t from = 0;
    while (a->trim && from < n && is_blank(a->held.data[from]))
        from++;
    if (from < n && apart)
        buf_putc(to, '\n');
    if (from < n) {
        buf_put(to, a->held.data + from, n - from);
        a->trim = false;
    }
    drop(a, n);
}

static void say(struct answer *a, size_t n, struct answer_parts *out)
{
    size_t before = out->content.len;
    tell(a, n, &out->content, a->spoke && a->called);
    if (out->content.len > before) {
        a->spoke = true;
        a->called = false;
    }
}

/* ---- states: true = another state goes on with what is held ---- */

static bool at_start(struct answer *a, bool last)
{
    const char *text = buf_str(&a->held);
    size_t blanks = 0, len = a->held.len, left;
    bool maybe = false;
    while (blanks < len && is_blank(text[blanks]))
        blanks++;
    text += blanks;
    left = len - blanks;
    for (int i = 0; i <= N_THOUGHTS; i++) {
        const char *mark = i < N_THOUGHTS ? thoughts[i].begin : python_tag;
        size_t n = strlen(mark), have = left < n ? left : n;
        if (memcmp(text, mark, have) != 0 || (i == N_THOUGHTS && !a->tools))
            continue;
        maybe |= have < n;
        if (have < n)
            continue;
        a->state = i < N_THOUGHTS ? THOUGHT : ONLY_CALL;
        a->mark = i;
        a->trim = a->state == THOUGHT;
        a->body = a->state == THOUGHT ? 0 : blanks + n;
        drop(a, a->state == THOUGHT ? blanks + n : 0);
        return true;
    }
    if (maybe && !last)
        return false;
    a->state = left > 0 && a->tools && (text[0] == '{' || text[0] == '[') ? ONLY_CALL : CONTENT;
    return len > 0;
}

static bool in_thought(struct answer *a, bool last, struct answer_parts *out)
{
    const char *mark = thoughts[a->mark].end, *end = find(a, 0, mark);
    if (!end) {
        tell(a, last ? a->held.len : a->held.len - unsure(a, mark), &out->thought, false);
        return false;
    }
    size_t n = (size_t)(end - a->held.data), text = trimmed(a->held.data, n);
    tell(a, text, &out->thought, false);
    drop(a, n - text + strlen(mark));
    a->state = CONTENT;
    a->trim = true;
    return true;
}

/* A call that begins stays held from the blanks before it on. */
static bool in_content(struct answer *a, bool last, struct answer_parts *out)
{
    const char *begin = a->tools ? find(a, 0, call) : NULL;
    if (!begin) {
        size_t back = last ? 0 : a->tools ? unsure(a, call) : utf8_partial_tail(buf_str(&a->held), a->held.len);
        say(a, a->held.len - back, out);
        return false;
    }
    size_t n = (size_t)(begin - a->held.data), text = trimmed(a->held.data, n);
    say(a, text, out);
    a->body = a->scan = n - text + sizeof call - 1;
    a->quoted = false;
    a->state = CALL;
    return true;
}

/* The end mark of a call outside its strings; each byte is looked at once, however often this is asked. */
static const char *scan_call(struct answer *a)
{
    const size_t m = sizeof end_call - 1;
    for (; a->scan < a->held.len; a->scan++) {
        const char *s = a->held.data + a->scan;
        size_t left = a->held.len - a->scan;
        if (a->quoted && *s == '\\') {
            if (left < 2)
                return NULL;
            a->scan++;
        } else if (*s == '"') {
            a->quoted = !a->quoted;
        } else if (!a->quoted && memcmp(s, end_call, left < m ? left : m) == 0) {
            return left < m ? NULL : s;
        }
    }
    return NULL;
}

static bool in_call(struct answer *a, bool last, struct answer_parts *out)
{
    const char *end = a->loose ? NULL : scan_call(a);
    if (!end && !last)
        return false;
    if (!end) { /* a string of it has no end: it is no call, and what is behind it need not be scanned for strings again */
        a->loose = true;
        end = find(a, a->body, end_call);
    }
    size_t len = a->held.len, n = end ? (size_t)(end - a->held.data) : len, past = end ? n + sizeof end_call - 1 : len;
    a->state = CONTENT;
    if (answer_calls(a->held.data + a->body, n - a->body, out)) {
        drop(a, past);
        a->trim = a->called = true;
    } else
        say(a, past, out);
    return end != NULL;
}

static void in_only_call(struct answer *a, bool last, struct answer_parts *out)
{
    if (!last)
        return;
    if (answer_calls(buf_str(&a->held) + a->body, a->held.len - a->body, out))
        drop(a, a->held.len);
    else
        say(a, a->held.len, out);
}

void answer_push(struct answer *a, const char *text, size_t len, bool last, struct answer_parts *out)
{
    bool more = true;
    buf_put(&a->held, text, len);
    while (more && !a->held.failed) {
        switch ((enum state)a->state) {
        case START:
            more = at_start(a, last);
            break;
        case THOUGHT:
            more = in_thought(a, last, out);
            break;
        case CONTENT:
            more = in_content(a, last, out);
            break;
        case CALL:
            more = in_call(a, last, out);
            break;
        case ONLY_CALL:
            more = false;
            in_only_call(a, last, out);
            break;
        }
    }
    out->failed |= a->held.failed || out->thought.failed || out->content.failed || out->call_text.failed;
}
