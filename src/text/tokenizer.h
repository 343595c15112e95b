/* Text to token ids and back.
 *
 * One tokenizer behind three sources: Hugging Face's tokenizer.json, the pair
 * vocab.json + merges.txt, the vocabulary inside a GGUF.  The same text gives
 * the same ids from each.  What the file asks for and is not implemented is
 * refused by name when it is opened, never ignored.  Immutable after opening:
 * any number of threads may use one. */
#ifndef FORGE_TEXT_TOKENIZER_H
#define FORGE_TEXT_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

struct tokenizer;
struct gguf;

struct ids {
    int32_t *v;
    size_t n, cap;
};
void ids_init(struct ids *l);
void ids_fini(struct ids *l);
int ids_push(struct ids *l, int32_t id, struct err *err);

enum tokenizer_flags {
    TOK_ADD_SPECIAL = 1,  /* what the post-processor adds around a text (BOS ...) */
    TOK_PARSE_SPECIAL = 2 /* control strings in the text become control tokens; without it they stay
                             text.  Added tokens that are not "special" are always found. */
};

/* path: a tokenizer.json, or a folder holding tokenizer.json or vocab.json + merges.txt.
 * A tokenizer_config.json beside it names bos and eos.  Its add_bos_token counts for vocab.json +
 * merges.txt only: what stands around a text is the post-processor's word in a tokenizer.json. */
int tokenizer_open(struct tokenizer **out, const char *path, struct err *err);
int tokenizer_open_gguf(struct tokenizer **out, const struct gguf *g, struct err *err);
void tokenizer_close(struct tokenizer *t);

/* Appends the ids of text[0..len) to out.  Bytes that are no UTF-8 become byte tokens where the
 * vocabulary has them, else ERR_FORMAT with the offset; NULs are ordinary characters. */
int tokenizer_encode(const struct tokenizer *t, const char *text, size_t len, unsigned flags,
                     struct ids *out, struct err *err);

/* The same for a text of which some bytes come from outside: marks [len], 1 = this byte is part of no control token,
 * whatever the flags.  Where marked bytes spell none, the ids are those of the whole text. */
int tokenizer_encode_marked(const struct tokenizer *t, const char *text, const char *marks, size_t len, unsigned flags,
                            struct ids *out, struct err *err);

/* Appends the text of ids as the tokenizer's decoder gives it, bytes that are no UTF-8 as U+FFFD.
 * Ids without a token decode to nothing. */
int tokenizer_decode(const struct tokenizer *t, const int32_t *ids, size_t n, bool skip_special,
                     struct buf *out, struct err *err);

int32_t tokenizer_n_ids(const struct tokenizer *t); /* highest id + 1 */
/* Vocabulary spelling of one id ("Ġthe", "<0x0A>"); false where there is none. */
bool tokenizer_piece(const struct tokenizer *t, int32_t id, const char **s, size_t *len);
/* Appends the bytes that an id stands for inside a text; nothing where there is no such token. */
void tokenizer_token_bytes(const struct tokenizer *t, int32_t id, struct buf *out);
int32_t tokenizer_find(const struct tokenizer *t, const char *s, size_t len); /* by vocabulary spelling; -1 */
bool tokenizer_is_special(const struct tokenizer *t, int32_t id);
const char *tokenizer_kind(const struct tokenizer *t);   /* for inspect: "byte-level BPE", "SentencePiece BPE" */
const char *tokenizer_source(const struct tokenizer *t); /* path it came from */
int32_t tokenizer_bos(const struct tokenizer *t);        /* -1 = none named */
int32_t tokenizer_eos(const struct tokenizer *t);
bool tokenizer_adds_bos(const struct tokenizer *t);

/* "PCRE2 10.42, Unicode 14.0; utf8proc 2.8.0, Unicode 14.0.0", for --version -v. */
const char *tokenizer_libraries(char *out, size_t size);

/* Incremental detokeniser: pieces that add up to tokenizer_decode(prompt + ids) less
 * tokenizer_decode(prompt); never half a character. */
struct detok;
/* The prompt's ids give the context (leading-space rule); copied.  skip_special as in decode. */
int detok_new(struct detok **out, const struct tokenizer *t, const int32_t *prompt, size_t n_prompt,
              bool skip_special, struct err *err);
void detok_free(struct detok *d);
/* Appends to out what became final with this id (maybe nothing). */
int detok_push(struct detok *d, int32_t id, struct buf *out, struct err *err);
/* Appends what is held back (an incomplete character as U+FFFD). */
int detok_finish(struct detok *d, struct buf *out, struct err *err);

#endif
