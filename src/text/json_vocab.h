/* The vocabulary object {"spelling": id, ...} shared by tokenizer.json and vocab.json,
 * and the added tokens, which the two files keep under different names: how
 * to find an entry's id is the caller's to say. */
#ifndef FORGE_TEXT_JSON_VOCAB_H
#define FORGE_TEXT_JSON_VOCAB_H

#include "text/parts.h"

/* An entry of added_tokens or added_tokens_decoder. */
struct added_entry {
    int64_t id;
    unsigned flags; /* added_flags */
};
int json_added_entry(const cJSON *j, struct added_entry *out, struct buf *content, const char *name,
                     struct err *err);

/* Reserves room for both lists (`added` may be NULL) and puts the vocabulary; `added_id` gives the
 * id of an entry of `added`. */
typedef int added_id_fn(const cJSON *item, int64_t *id, const char *name, struct err *err);
int json_vocab(struct tokenizer *t, const cJSON *vocab, const cJSON *added, added_id_fn *added_id,
               struct err *err);
/* One added token; where the vocabulary has the spelling, its id counts. */
int json_put_added(struct tokenizer *t, const cJSON *item, int64_t id, struct err *err);

#endif
