/* forge chat: a conversation in the terminal, or one line of standard input a turn.
 * Over forge.h alone: owns the history (a JSON list of messages), the commands
 * and what ^C does; the text of the prompt is the model's chat template's. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cjson/cJSON.h>

#include "base/buf.h"
#include "base/mem.h"
#include "cli/cmd.h"
#include "cli/prompt.h"
#include "cli/sampling.h"

struct chat_args {
    const char *system, *chat_template;
    int64_t max_tokens;
    struct sampling_args sampling;
    bool no_think;
};

#define F(field) offsetof(struct chat_args, field)

static const struct opt opts[] = {
    {"system", 0, OPT_STR, F(system), 0, "TEXT", NULL, NULL, "what the model is told before the conversation"},
    {"no-think", 0, OPT_FLAG, F(no_think), 0, NULL, NULL, NULL, "enable_thinking is false for the template"},
    {"chat-template", 0, OPT_STR, F(chat_template), 0, "FILE|chatml", NULL, NULL, "the template (default: the model's own)"},
    {"max-tokens", 'n', OPT_I64, F(max_tokens), 0, "N", "-1..", "-1",
     "new tokens of an answer; -1 = until the model ends it or the context is full"},
    SAMPLING_OPTS(struct chat_args, "0", "temperature; 0 = greedy (default of this and the next: the model's own, where it has one)"),
    {0},
};

struct talk {
    struct forge_engine *engine;
    const struct chat_args *args;
    cJSON *messages;
    struct buf line;
    bool terminal;
};

enum line_end { LINE_READ, LINE_AGAIN, LINE_LAST };

static int out_of_memory(void)
{
    return msg_fail(FORGE_ERR_NOMEM, "out of memory");
}

static bool add_message(struct talk *t, const char *role, const char *text, size_t len)
{
    cJSON *m = cJSON_CreateObject();
    struct buf b;
    buf_init(&b);
    buf_put_json(&b, text, len); /* raw: a NUL is part of the text */
    bool ok = m && !b.failed && cJSON_AddStringToObject(m, "role", role) && cJSON_AddRawToObject(m, "content", buf_str(&b)) &&
              cJSON_AddItemToArray(t->messages, m);
    if (!ok)
        cJSON_Delete(m);
    buf_fini(&b);
    return ok;
}

static void drop_last_message(struct talk *t)
{
    cJSON_DeleteItemFromArray(t->messages, cJSON_GetArraySize(t->messages) - 1);
}

static bool reset(struct talk *t)
{
    cJSON_Delete(t->messages);
    t->messages = cJSON_CreateArray();
    return t->messages && (!t->args->system || add_message(t, "system", t->args->system, strlen(t->args->system)));
}

/* The next line without its end.  ^C while nothing is answered throws a terminal's line away. */
static enum line_end read_line(struct talk *t)
{
    int ch;
    buf_clear(&t->line);
    if (t->terminal) {
        fputs("> ", stderr);
        fflush(stderr);
    }
    while ((ch = getc(stdin)) != EOF && ch != '\n' && t->line.len < PROMPT_FILE_MAX)
        buf_putc(&t->line, (char)ch);
    if (ch == EOF && interrupted() && t->terminal) {
        clearerr(stdin);
        interrupt_again();
        fputc('\n', stderr);
        return LINE_AGAIN;
    }
    if (ch == EOF && t->terminal)
        fputc('\n', stderr);
    return ch == EOF && (t->line.len == 0 || interrupted()) ? LINE_LAST : LINE_READ;
}

static int on_piece(void *user, const struct forge_piece *piece)
{
    (void)user;
    if (piece->text_len) {
        out_write(piece->text, piece->text_len);
        out_flush();
    }
    return interrupted() || out_closed();
}

static int on_prefill(void *user, size_t done, size_t total)
{
    (void)user, (void)done, (void)total;
    return interrupted() || out_closed();
}

/* Takes an answer to the conversation as it stands apart. */
static int parser_new(struct talk *t, const char *json, unsigned flags, struct forge_chat_parser **out, struct forge_error *err)
{
    char *prompt;
    size_t len;
    int rc = forge_chat_render(t->engine, json, strlen(json), flags, &prompt, &len, NULL, NULL, err);
    if (rc < 0)
        return rc;
    rc = forge_chat_parser_new(out, prompt, len, 0, err);
    forge_free(prompt);
    return rc;
}

/* What was thought is not sent back. */
static int keep_answer(struct talk *t, const struct forge_request *r, struct forge_chat_parser *parser)
{
    size_t len;
    const char *text = forge_request_text(r, 0, &len);
    const struct forge_metrics *m = forge_request_metrics(r);
    const struct forge_answer_parts *parts;
    if (forge_request_finish(r, 0) == FORGE_FINISH_CONTEXT)
        msg_warn("the context is full; /reset begins anew, --ctx makes it larger");
    msg_verbose("%llu prompt tokens, %llu of them known, %llu generated (%s), %.1f tok/s, seed %llu",
                (unsigned long long)m->input_tokens, (unsigned long long)m->cached_tokens,
                (unsigned long long)m->output_tokens, forge_finish_name(forge_request_finish(r, 0)), m->decode_tok_s,
                (unsigned long long)forge_request_seed(r));
    if (forge_chat_parse(parser, text, len, 1, &parts, NULL) < 0 || !add_message(t, "assistant", parts->content, parts->content_len))
        return out_of_memory();
    return 0;
}

/* One answer to the conversation as it stands; an exit status. */
static int answer(struct talk *t, struct forge_logit_bias *bias)
{
    struct forge_request_params p;
    struct forge_request *r = NULL;
    struct forge_error err = {0};
    struct forge_chat_parser *parser = NULL;
    int status = 0;
    char *json = cJSON_PrintUnformatted(t->messages);
    if (!json)
        return out_of_memory();
    forge_request_params_init(&p, sizeof p);
    p.messages = json;
    p.chat_flags = t->args->no_think ? (unsigned)FORGE_CHAT_NO_THINKING : 0u;
    p.max_tokens = t->args->max_tokens;
    p.on_piece = on_piece;
    p.on_prefill = on_prefill;
    sampling_to_forge(&t->args->sampling, bias, &p.sampling);
    int rc = parser_new(t, json, p.chat_flags, &parser, &err);
    if (rc == 0)
        rc = forge_submit(t->engine, &p, &r, &err);
    while (rc >= 0 && (rc = forge_step(t->engine, &err)) > 0)
        ;
    if (rc == 0 && forge_request_finish(r, 0) == FORGE_FINISH_ERROR) {
        err = *forge_request_error(r);
        rc = err.code ? err.code : FORGE_ERR_ARG;
    }
    if (r)
        out_puts("\n");
    out_flush();
    if (rc < 0) {
        msg_error("%s", err.message);
        status = EXIT_FAILED;
    } else
        status = keep_answer(t, r, parser);
    forge_request_free(r);
    forge_chat_parser_free(parser);
    cJSON_free(json);
    return status;
}

/* Turn after turn, to the end of input; the exit status of the worst. */
static int talk(struct talk *t, struct forge_logit_bias *bias)
{
    int worst = EXIT_OK;
    enum line_end end;
    while (!out_closed() && (end = read_line(t)) != LINE_LAST) {
        const char *line = buf_str(&t->line);
        if (t->line.failed)
            return out_of_memory();
        if (end == LINE_AGAIN || strspn(line, " \t\r") == t->line.len)
            continue;
        if (strcmp(line, "/exit") == 0)
            return worst;
        if (strcmp(line, "/reset") == 0) {
            if (!reset(t))
                return out_of_memory();
            continue;
        }
        if (!add_message(t, "user", line, t->line.len))
            return out_of_memory();
        if (answer(t, bias) != 0) {
            drop_last_message(t); /* the conversation is as it was before this turn */
            worst = EXIT_FAILED;
        }
        if (interrupted())
            interrupt_again();
    }
    return interrupted() ? EXIT_INTERRUPTED : worst;
}

static int no_template(const struct forge_engine_info *info)
{
    msg_error("%s has no chat template%s%s; --chat-template chatml gives it a plain one", info->model_path,
              info->chat_template_error ? " that works: " : "", info->chat_template_error ? info->chat_template_error : "");
    return EXIT_FAILED;
}

static int run(void *args, const struct common *c)
{
    struct chat_args *a = args;
    struct common with_template = *c;
    struct talk t = {.args = a, .terminal = isatty(STDIN_FILENO)};
    struct forge_logit_bias *bias = NULL;
    char text[512];
    interrupt_catch();
    with_template.chat_template = a->chat_template;
    int status = common_engine_open(&t.engine, &with_template, 1);
    if (status)
        return status;
    const struct forge_engine_info *info = forge_engine_info(t.engine);
    buf_init(&t.line);
    sampling_model_defaults(&a->sampling, info);
    if (!info->chat_template)
        status = no_template(info);
    else if (!sampling_check(&a->sampling, text, sizeof text))
        status = msg_usage("chat", "%s", text);
    else if (!(bias = mem_array(a->sampling.bias.n, sizeof *bias)) || !reset(&t))
        status = out_of_memory();
    if (status)
        goto done;
    sampling_describe(&a->sampling, text, sizeof text);
    msg_verbose("device: %s (%s)", info->device, info->device_reason);
    msg_verbose("sampling: %s", text);
    msg_verbose("chat template: %s", info->chat_template_source);
    status = talk(&t, bias);
done:
    status = common_profile(c, t.engine, status);
    free(bias);
    cJSON_Delete(t.messages);
    buf_fini(&t.line);
    forge_engine_close(t.engine);
    return status;
}

const struct cmd cmd_chat = {
    .name = "chat",
    .summary = "Talk with a model, turn by turn",
    .usage = "[--system TEXT] [--no-think] [--chat-template FILE|chatml] [flags]",
    .notes = "A line is a message. /reset forgets the conversation, /exit or the end of input ends it, ^C stops an answer.\n"
             "Sampling values that are not given are the model's own (generation_config).",
    .opts = opts,
    .args_size = sizeof(struct chat_args),
    .shared = {common_model_opts, common_device_opts},
    .run = run,
};
