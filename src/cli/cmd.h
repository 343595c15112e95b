/* What a command is: one const struct per cmd-NAME.c, listed in main.c.
 *
 * main.c fills the flags' fields and calls run; run does the work, prints and
 * returns an exit status.  It neither parses nor exits. */
#ifndef FORGE_CLI_CMD_H
#define FORGE_CLI_CMD_H

#include <stdbool.h>
#include <stddef.h>

#include "cli/common.h"
#include "cli/opts.h"
#include "cli/out.h"

struct cmd {
    const char *name;
    const char *subject;         /* the word that must follow the name ("gemm"), NULL = none */
    const char *summary;         /* one line for `forge --help` */
    const char *usage;           /* what follows "forge NAME" */
    const char *notes;           /* a paragraph for `forge NAME --help`, or NULL */
    const struct opt *opts;      /* its own flags; offsets into its args */
    size_t args_size;            /* of the struct that run gets, zeroed before the defaults */
    const struct opt *shared[3]; /* tables of common.c that it takes, NULL ends */
    int (*run)(void *args, const struct common *c);
};

extern const struct cmd cmd_generate, cmd_chat, cmd_logits, cmd_sample, cmd_perplexity, cmd_render, cmd_tokenize, cmd_inspect,
    cmd_devices, cmd_bench, cmd_sample_sweep, cmd_selftest, cmd_tune, cmd_serve;

#endif
