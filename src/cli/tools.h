/* The internal libraries as the tool commands see them: a loaded model, its
 * tokenizer, ids of a prompt.
 * Not for generate and its like, which use forge.h alone. */
#ifndef FORGE_CLI_TOOLS_H
#define FORGE_CLI_TOOLS_H

#include "cli/common.h"
#include "cli/prompt.h"
#include "run/load.h"
#include "run/seq.h"

struct tool {
    struct loaded l;
    struct seq seq;
    bool has_seq;
    const struct maybe *profile; /* of the flags */
};

/* Loads by the shared flags and opens one sequence.  n_ctx: positions to plan for where --ctx is not given;
 * -1 = the default.  max_seqs at least.  An exit status, 0 = open; tool_close in any case. */
int tool_open(struct tool *t, const struct common *c, int64_t n_ctx, int64_t max_seqs);
/* Prints the profile when one was asked for, then frees: `status`, or the profile's where that was 0. */
int tool_close(struct tool *t, int status);

/* The prompt's ids by the model's tokenizer; an exit status. ids_fini in any case. */
int tool_encode(struct ids *out, const struct prompt *p, const struct prompt_args *a,
                const struct tokenizer *tok);
/* For a model: tool_encode by its tokenizer; an empty prompt becomes the token that starts a text, as in
 * generate, and ids must be below the model's n_vocab. */
int tool_prompt(struct ids *out, const struct prompt *p, const struct prompt_args *a, const struct tool *t);
/* Ids must be below n_vocab: an exit status, naming the first that is not. */
int tool_check_ids(const struct ids *ids, int64_t n_vocab);

/* The tokenizer alone, without weights where it can be had without: an exit status. */
int tool_open_tokenizer(struct tokenizer **out, const struct common *c);

/* The same with the chat template: given, else the model's own; a model without one is an error. */
int tool_open_chat(struct tokenizer **tok, struct chat **chat, const struct common *c, const char *given);

/* The load parameters that the shared flags mean. */
void tool_load_params(struct load_params *p, const struct common *c, const char *model);

const char *tool_device(const struct tool *t, char *out, size_t size); /* "cpu", or a list */

void tool_print_libraries(void); /* for --version -v */

#endif
