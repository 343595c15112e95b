/* What a run starts from: -p TEXT, -f FILE or --ids LIST; read here for every
 * command that takes one, so that they read alike.
 * Rows for the commands' tables, and the reading; no tokenizer. */
#ifndef FORGE_CLI_PROMPT_H
#define FORGE_CLI_PROMPT_H

#include <stdint.h>

#include "cli/opts.h"

#define PROMPT_FILE_MAX ((size_t)1 << 30)
#define PROMPT_ID_RANGE "0..2147483647"

struct prompt_args {
    const char *text, *file;
    struct num_list ids;
    bool no_bos, parse_special;
};

/* Rows of a command's table over a field `prompt` of its struct. */
#define PROMPT_TEXT_OPT(type)                                                                                \
    {                                                                                                        \
        "prompt", 'p', OPT_STR, offsetof(type, prompt.text), 0, "TEXT", NULL, NULL, "the prompt"             \
    }
#define PROMPT_FILE_OPT(type)                                                                                \
    {                                                                                                        \
        "file", 'f', OPT_STR, offsetof(type, prompt.file), 0, "FILE", NULL, NULL,                            \
            "a file as the prompt, whole; - is standard input"                                               \
    }
#define PROMPT_IDS_OPT(type)                                                                                 \
    {                                                                                                        \
        "ids", 0, OPT_NUMS, offsetof(type, prompt.ids), 0, "1,2,3", PROMPT_ID_RANGE, NULL,                   \
            "token ids as the prompt"                                                                        \
    }
#define PROMPT_FLAG_OPTS(type)                                                                               \
    {"no-bos", 0,    OPT_FLAG, offsetof(type, prompt.no_bos), 0,                                             \
     NULL,     NULL, NULL,     "add nothing around the text"},                                               \
    {                                                                                                        \
        "parse-special", 0, OPT_FLAG, offsetof(type, prompt.parse_special), 0, NULL, NULL, NULL,             \
            "control strings in the text count as control tokens"                                            \
    }

struct prompt {
    char *text; /* NULL when given as ids */
    size_t text_len;
    int32_t *ids;
    size_t n_ids;
};

/* --no-bos and --parse-special as forge.h's flags of a text. */
unsigned prompt_text_flags(const struct prompt_args *a);
/* How many of the three were given. */
int prompt_given(const struct prompt_args *a);
/* An exit status, 0 = read; prompt_free in any case. Exactly one must be given (sources: "-p, -f or --ids").
 */
int prompt_read(struct prompt *p, const struct prompt_args *a, const char *cmd, const char *sources);
void prompt_free(struct prompt *p);

#endif
