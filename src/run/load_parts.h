/* Private to loading: what load.c asks of load_tokenizer.c, where
 * configuration and tokenizer must agree: the end of a text, the size of the
 * vocabulary. */
#ifndef FORGE_RUN_LOAD_PARTS_H
#define FORGE_RUN_LOAD_PARTS_H

#include "run/load.h"

/* Where the configuration names no end id: for a .pth by the tokenizer's file name ("base" and not
 * "reasoning": <|endoftext|>, else <|im_end|>), else the tokenizer's own. */
void load_settle_end(struct model_config *c, const struct tokenizer *t, enum weights_format format);

/* Tokens beyond the model's rows: an error, except special ones (never produced, only warned of).  Rows
 * beyond the tokenizer are usual: they decode to nothing. */
int load_check_tokenizer(const struct model_config *c, const struct tokenizer *t, struct err *err);

#endif
