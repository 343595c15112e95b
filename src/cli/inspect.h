/* What inspect found out about a file, gathered before anything is printed, so
 * that the text and the JSON tell the same.
 * Shared by cmd-inspect.c and inspect_out.c alone. */
#ifndef FORGE_CLI_INSPECT_H
#define FORGE_CLI_INSPECT_H

#include "base/buf.h"
#include "base/json.h"
#include "cli/tools.h"
#include "file/gguf.h"

struct inspection {
    struct weights *weights;
    char architecture[128]; /* as the file spells it; "" = it names none */
    struct model_config config;
    bool has_config;
    struct err config_err;       /* why there is none */
    struct tokenizer *tokenizer; /* NULL = none */
    struct err tokenizer_err;
    const struct weight *not_runnable; /* first matrix of a type that cannot be run */
    int64_t n_ctx;
    uint64_t kv_bytes, work_bytes;
    struct err memory_err; /* why there are no figures (a wrong --ctx) */
    bool checked;
    uint64_t n_nan, n_inf;
};

void inspect_json(struct buf *b, const struct inspection *in);
void inspect_text(struct buf *b, const struct inspection *in);

#endif
