/* What a tokenizer is made of.  Only this room sees it: the loaders fill it,
 * tokenizer.c runs it, the tests look into it.  Everything in it is constant once
 * tokenizer_complete() returned 0. */
#ifndef FORGE_TEXT_PARTS_H
#define FORGE_TEXT_PARTS_H

#include "base/json.h"
#include "text/added.h"
#include "text/bpe.h"
#include "text/decode.h"
#include "text/normalize.h"
#include "text/pretok.h"
#include "text/tokenizer.h"
#include "text/vocab.h"

struct tokenizer {
    char *source; /* path */
    struct vocab vocab;
    struct added added;
    struct normalizer norm;
    struct pretok pre;
    struct bpe bpe;
    struct decoder dec;
    struct ids before, after; /* what the post-processor puts around a text */
    int32_t bos, eos;         /* -1 = none named */
    bool bytelevel;           /* bytes are spelt in GPT-2's alphabet */
    int32_t raw_byte[256];    /* token of a byte that is no UTF-8, -1 = none */
};

/* An empty one; NULL = no memory. */
struct tokenizer *tokenizer_new(const char *source, struct err *err);
/* Puts an added token into the vocabulary and, normalised where `flags` says so, into the search. */
int tokenizer_add_token(struct tokenizer *t, int32_t id, const char *s, size_t len, unsigned flags,
                        struct err *err);
/* To be called when all parts are there: look-up tables, decoder. */
int tokenizer_complete(struct tokenizer *t, struct err *err);
/* The end of opening: where its parts were read (rc 0) t is completed and becomes *out, else it is closed. */
int tokenizer_opened(struct tokenizer **out, struct tokenizer *t, int rc, struct err *err);

/* tokenizer_json.c, vocab_merges.c, gguf_vocab.c */
int tokenizer_load_json(struct tokenizer *t, const char *path, struct err *err);
int tokenizer_load_json_text(struct tokenizer *t, const char *text, size_t len,
                             struct err *err); /* without its folder */
int tokenizer_load_vocab_merges(struct tokenizer *t, const char *dir, struct err *err);
int tokenizer_load_gguf(struct tokenizer *t, const struct gguf *g, struct err *err);

/* json_steps.c: a member of tokenizer.json into the lists. */
int json_normalizer(struct normalizer *z, const cJSON *j, const char *name, struct err *err);
int json_pretok(struct pretok *p, const cJSON *j, const char *name, struct err *err);
int json_decoder(struct decoder *d, const cJSON *j, const char *name, struct err *err);
/* json_post.c: the post-processor; ids are taken from the template's own table. */
int json_post(struct tokenizer *t, const cJSON *j, struct err *err);

/* tokenizer_config.c */
/* Reads bos and eos from dir/tokenizer_config.json, if there is one. */
int tokenizer_read_config(struct tokenizer *t, const char *dir, struct err *err);

/* pre.c: the settings that go by a name ("qwen2"), where a file gives no more than that. */
struct pre_settings {
    bool ignore_merges, adds_bos;
};
int pre_by_name(struct tokenizer *t, const char *pre, size_t len, struct pre_settings *out, struct err *err);

#endif
