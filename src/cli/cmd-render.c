/* forge render: a conversation on standard input to the text of a
 * chat template.
 * Opens a tokenizer and no weights; templates are text/'s, which is a model's run/load's. */
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/map.h"
#include "cli/cmd.h"
#include "cli/tools.h"

struct render_args {
    const char *chat_template, *file, *tools;
    bool json, no_think, no_generation_prompt;
};

#define F(field) offsetof(struct render_args, field)

static const struct opt opts[] = {
    {"file", 'f', OPT_STR, F(file), 0, "FILE", NULL, NULL, "the conversation from a file (default: standard input)"},
    {"chat-template", 0, OPT_STR, F(chat_template), 0, "FILE|chatml", NULL, NULL, "the template (default: the model's own)"},
    {"tools", 0, OPT_STR, F(tools), 0, "FILE", NULL, NULL, "a JSON list of tools, where the conversation has none"},
    {"no-think", 0, OPT_FLAG, F(no_think), 0, NULL, NULL, NULL, "enable_thinking is false for the template"},
    {"no-generation-prompt", 0, OPT_FLAG, F(no_generation_prompt), 0, NULL, NULL, NULL,
     "end behind the last message, not with the start of an answer"},
    {"json", 0, OPT_FLAG, F(json), 0, NULL, NULL, NULL, "an object with text"},
    {0},
};

static int print(struct marked *m, bool json)
{
    struct buf b;
    if (!json)
        return out_buf(&m->text) ? 0 : EXIT_FAILED;
    buf_init(&b);
    buf_puts(&b, "{\"text\":");
    buf_put_json(&b, buf_str(&m->text), m->text.len);
    buf_puts(&b, "}\n");
    return out_buf(&b) ? 0 : EXIT_FAILED;
}

static int read_tools(const char *path, char **text, size_t *len, struct err *err)
{
    cJSON *j;
    int rc = map_read_all(path, PROMPT_FILE_MAX, text, len, err);
    if (rc == 0 && (rc = json_parse(&j, *text, *len, path, err)) == 0) {
        if (!cJSON_IsArray(j))
            rc = err_set(err, ERR_FORMAT, "%s: this is no list of tools", path);
        cJSON_Delete(j);
    }
    return rc;
}

static int run(void *args, const struct common *c)
{
    struct render_args *a = args;
    struct tokenizer *tok = NULL;
    struct chat *chat = NULL;
    struct err err = {0};
    struct marked m;
    char *text = NULL, *tools = NULL;
    size_t len = 0, tools_len = 0;
    marked_init(&m);
    int status = tool_open_chat(&tok, &chat, c, a->chat_template);
    if (status)
        goto done;
    unsigned flags = (a->no_think ? (unsigned)CHAT_NO_THINKING : 0u) |
                     (a->no_generation_prompt ? (unsigned)CHAT_NO_GENERATION_PROMPT : 0u);
    int rc = map_read_all(a->file ? a->file : "-", PROMPT_FILE_MAX, &text, &len, &err);
    if (rc == 0 && a->tools)
        rc = read_tools(a->tools, &tools, &tools_len, &err);
    if (rc == 0)
        rc = chat_apply(chat, tok, text, len, tools, tools_len, flags, &m, &err);
    status = rc < 0 ? (msg_error("%s", err.msg), EXIT_FAILED) : print(&m, a->json);
done:
    marked_fini(&m);
    free(text);
    free(tools);
    chat_close(chat);
    tokenizer_close(tok);
    return status;
}

const struct cmd cmd_render = {
    .name = "render",
    .summary = "Turn a conversation into the text of a chat template",
    .usage = "[-f FILE] [--chat-template FILE|chatml] [flags] < CONVERSATION",
    .notes = "The conversation is a JSON list of messages, or an object with messages and, where wanted, tools,\n"
             "documents, add_generation_prompt and variables.",
    .opts = opts,
    .args_size = sizeof(struct render_args),
    .shared = {common_model_opts},
    .run = run,
};
