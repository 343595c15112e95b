/* Ids back to text: a chain of stages through which the spellings of tokens flow one by
 * one, each stage handing on what can no longer change.  Decoding at once and streaming are
 * the same walk.  Knows spellings, not ids. */
#ifndef FORGE_TEXT_DECODE_H
#define FORGE_TEXT_DECODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "text/pattern.h"

#define DECODE_STEPS_MAX 16

enum decode_kind {
    DEC_BYTELEVEL,
    DEC_BYTEFALLBACK,
    DEC_FUSE,
    DEC_REPLACE,
    DEC_STRIP,
    DEC_METASPACE,
    DEC_JOIN
};

struct decode_step {
    enum decode_kind kind;
    struct pattern *pat; /* Replace: what */
    char *text;          /* Replace: with what; Strip, Metaspace: the character */
    size_t len;
    size_t start, stop; /* Strip: at most so many characters at each end */
    bool keep_first;    /* Metaspace: the first token keeps its spaces */
    bool fused;         /* receives parts of one token, not tokens */
    bool hold;          /* Fuse: a later stage needs the whole text at once */
};

struct decoder {
    struct decode_step v[DECODE_STEPS_MAX];
    size_t n;
};

void decoder_init(struct decoder *d);
void decoder_fini(struct decoder *d);
/* Takes over step.pat and copies step.text; also frees step.pat when it fails. */
int decoder_add(struct decoder *d, struct decode_step step, const char *name, struct err *err);
/* To be called once after the last step: no step at all joins tokens by spaces. */
int decoder_close(struct decoder *d, const char *name, struct err *err);

struct decode_stage {
    struct buf held; /* what may still change */
    struct buf fit;  /* scratch: held bytes with U+FFFD for what is no UTF-8 */
    size_t n_seen;   /* tokens so far */
    size_t n_cut;    /* fused Strip: characters cut at the beginning */
    bool begun;      /* fused Strip: text that stays was seen */
};

struct decode_stream {
    const struct decoder *d;
    struct decode_stage stage[DECODE_STEPS_MAX];
    struct buf *out;
    struct err *err;
    int rc;
};

void decode_stream_init(struct decode_stream *s, const struct decoder *d);
void decode_stream_fini(struct decode_stream *s);
/* Both append to out and return 0 or a negative code. */
int decode_push(struct decode_stream *s, const char *piece, size_t len, struct buf *out, struct err *err);
int decode_finish(struct decode_stream *s, struct buf *out, struct err *err);

/* Appends the bytes that a token stands for inside a text, which may be no whole character. */
void decode_token_bytes(const struct decoder *d, const char *piece, size_t len, struct buf *out);

#endif
