/* Answers taken apart for callers: text/answer.c's parts
 * as forge.h has them.
 * Needs no engine. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "run/engine.h"
#include "text/answer.h"

struct forge_chat_parser {
    struct answer answer;
    struct answer_parts got;
    struct forge_answer_parts parts;
    struct forge_tool_call *calls;
    size_t cap_calls;
    bool ended;
};

int forge_chat_parser_new(struct forge_chat_parser **out, const char *prompt, size_t prompt_len, unsigned flags,
                          struct forge_error *err)
{
    struct err er = {0};
    int rc = engine_flags_check("flags", flags, (unsigned)(FORGE_ANSWER_TOOLS | FORGE_ANSWER_ONLY_CALLS), &er);
    *out = NULL;
    if (rc < 0)
        return engine_error(err, rc, &er);
    struct forge_chat_parser *p = *out = mem_array(1, sizeof *p);
    if (!p)
        return engine_error(err, err_set(&er, ERR_NOMEM, "no memory for a parser of answers"), &er);
    if (prompt && prompt_len == FORGE_TERMINATED)
        prompt_len = strlen(prompt);
    unsigned f = (flags & FORGE_ANSWER_TOOLS ? (unsigned)ANSWER_TOOLS : 0u) |
                 (flags & FORGE_ANSWER_ONLY_CALLS ? (unsigned)ANSWER_ONLY_CALL : 0u);
    answer_init(&p->answer, prompt ? prompt : "", prompt ? prompt_len : 0, f);
    answer_parts_init(&p->got);
    return 0;
}

void forge_chat_parser_free(struct forge_chat_parser *p)
{
    if (!p)
        return;
    answer_fini(&p->answer);
    answer_parts_fini(&p->got);
    free(p->calls);
    free(p);
}

static bool point_at_calls(struct forge_chat_parser *p)
{
    const char *s = buf_str(&p->got.call_text);
    if (p->got.n_calls == 0)
        return true;
    struct forge_tool_call *calls = mem_grow(p->calls, &p->cap_calls, p->got.n_calls, sizeof *calls);
    if (!calls)
        return false;
    p->calls = calls;
    for (size_t i = 0; i < p->got.n_calls; i++) {
        const struct answer_call *c = &p->got.calls[i];
        const char *args = s + c->name_len + 1;
        calls[i] = (struct forge_tool_call){s, c->name_len, args, c->args_len};
        s = args + c->args_len + 1;
    }
    return true;
}

int forge_chat_parse(struct forge_chat_parser *p, const char *text, size_t text_len, int last,
                     const struct forge_answer_parts **parts, struct forge_error *err)
{
    struct err er = {0};
    *parts = NULL;
    if (p->ended)
        return engine_error(err, err_set(&er, ERR_ARG, "the answer of this parser has ended"), &er);
    p->ended = last != 0;
    answer_parts_clear(&p->got);
    answer_push(&p->answer, text, text_len == FORGE_TERMINATED ? strlen(text) : text_len, p->ended, &p->got);
    if (p->got.failed || !point_at_calls(p))
        return engine_error(err, err_set(&er, ERR_NOMEM, "no memory for an answer's parts"), &er);
    p->parts = (struct forge_answer_parts){
        .thought = buf_str(&p->got.thought), .thought_len = p->got.thought.len,
        .content = buf_str(&p->got.content), .content_len = p->got.content.len,
        .calls = p->calls, .n_calls = p->got.n_calls,
    };
    *parts = &p->parts;
    return 0;
}
