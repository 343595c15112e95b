/* The stages of decoding.  Order and effect of each are those of the tokenizers library.
 * A stage knows only its own state and hands on by emit(); it never sees ids, and what it
 * has handed on it cannot take back. */
#include "text/decode.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "text/chars.h"

#define REPLACEMENT "\xEF\xBF\xBD" /* U+FFFD */

void decoder_init(struct decoder *d)
{
    memset(d, 0, sizeof *d);
}

void decoder_fini(struct decoder *d)
{
    for (size_t i = 0; i < d->n; i++) {
        free(d->v[i].text);
        pattern_free(d->v[i].pat);
    }
    d->n = 0;
}

int decoder_add(struct decoder *d, struct decode_step step, const char *name, struct err *err)
{
    int rc = 0;
    if (d->n == DECODE_STEPS_MAX)
        rc = err_set(err, ERR_LIMIT, "%s: more than %d decoder steps", name, DECODE_STEPS_MAX);
    else if (!(step.text = mem_strndup(step.text ? step.text : "", step.len)))
        rc = err_set(err, ERR_NOMEM, "%s: no memory for a decoder", name);
    if (rc) {
        pattern_free(step.pat);
        return rc;
    }
    d->v[d->n++] = step;
    return 0;
}

int decoder_close(struct decoder *d, const char *name, struct err *err)
{
    if (d->n == 0)
        return decoder_add(d, (struct decode_step){.kind = DEC_JOIN}, name, err);
    bool fused = false;
    size_t fuse = 0;
    for (size_t i = 0; i < d->n; i++) {
        struct decode_step *st = &d->v[i];
        st->fused = fused;
        if (fused && st->kind != DEC_STRIP && st->kind != DEC_FUSE) {
            d->v[fuse].hold = true; /* works on whole tokens: there is one, at the end */
            for (size_t k = fuse + 1; k <= i; k++)
                d->v[k].fused = false;
        }
        if (st->kind == DEC_FUSE || st->kind == DEC_BYTELEVEL) {
            fused = true;
            fuse = i;
        }
    }
    return 0;
}

#define USUAL 256 /* bytes that a stage keeps room for, so that pushing takes no memory */

void decode_stream_init(struct decode_stream *s, const struct decoder *d)
{
    memset(s, 0, sizeof *s);
    s->d = d;
    for (size_t i = 0; i < d->n; i++) {
        buf_init(&s->stage[i].held);
        buf_init(&s->stage[i].fit);
        buf_reserve(&s->stage[i].held, USUAL); /* a refusal is seen when it is used */
        buf_reserve(&s->stage[i].fit, USUAL);
    }
}

void decode_stream_fini(struct decode_stream *s)
{
    for (size_t i = 0; s->d && i < s->d->n; i++) {
        buf_fini(&s->stage[i].held);
        buf_fini(&s->stage[i].fit);
    }
}

static void push(struct decode_stream *s, size_t i, const char *t, size_t len);

static void emit(struct decode_stream *s, size_t i, const char *t, size_t len)
{
    push(s, i + 1, t, len);
}

/* --- bytes --------------------------------------------------------------- */

/* Hands on the valid beginning of what is held, U+FFFD for each maximal invalid part; an
 * unfinished character at the end stays unless `last`. */
static void bytes_flush(struct decode_stream *s, size_t i, bool last)
{
    struct buf *held = &s->stage[i].held;
    size_t keep = last ? 0 : utf8_partial_tail(buf_str(held), held->len);
    size_t n = held->len - keep;
    if (n == 0 || (s->d->v[i].hold && !last))
        return;
    if (utf8_valid(buf_str(held), n, NULL)) {
        emit(s, i, buf_str(held), n);
    } else {
        struct buf *fit = &s->stage[i].fit;
        buf_clear(fit);
        buf_put_utf8_lossy(fit, held->data, n);
        if (fit->failed)
            held->failed = true;
        emit(s, i, buf_str(fit), fit->len);
    }
    memmove(held->data, held->data + n, keep);
    held->len = keep;
}

/* A token all of whose characters are of the alphabet stands for bytes, any other for itself. */
static void put_bytelevel(struct buf *out, const char *t, size_t len)
{
    size_t before = out->len;
    for (size_t k = 0, n; k < len; k += n) {
        uint32_t cp;
        n = utf8_decode(t + k, len - k, &cp);
        int byte = n ? bytelevel_byte(cp) : -1;
        if (byte < 0) {
            out->len = before;
            buf_put(out, t, len);
            break;
        }
        buf_putc(out, (char)byte);
    }
}

static void push_bytelevel(struct decode_stream *s, size_t i, const char *t, size_t len)
{
    put_bytelevel(&s->stage[i].held, t, len);
    bytes_flush(s, i, false);
}

static int hex_byte(const char *t, size_t len)
{
    if (len != 6 || memcmp(t, "<0x", 3) != 0 || t[5] != '>')
        return -1;
    int v = 0;
    for (int k = 3; k < 5; k++) {
        char c = t[k];
        int d = c >= '0' && c <= '9'   ? c - '0'
                : c >= 'a' && c <= 'f' ? c - 'a' + 10
                : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                       : -1;
        if (d < 0)
            return -1;
        v = v * 16 + d;
    }
    return v;
}

/* A run of byte tokens is text if it is UTF-8 as a whole, else one U+FFFD for each byte: so it
 * cannot be handed on before it ends. */
static void fallback_flush(struct decode_stream *s, size_t i)
{
    struct buf *held = &s->stage[i].held;
    if (held->len == 0)
        return;
    if (utf8_valid(held->data, held->len, NULL))
        emit(s, i, held->data, held->len);
    else
        for (size_t k = 0; k < held->len; k++)
            emit(s, i, REPLACEMENT, sizeof REPLACEMENT - 1);
    buf_clear(held);
}

static void push_fallback(struct decode_stream *s, size_t i, const char *t, size_t len)
{
    int byte = hex_byte(t, len);
    if (byte >= 0) {
        buf_putc(&s->stage[i].held, (char)byte);
        return;
    }
    fallback_flush(s, i);
    emit(s, i, t, len);
}

/* --- text ---------------------------------------------------------------- */

static void push_fuse(struct decode_stream *s, size_t i, const char *t, size_t len)
{
    if (s->d->v[i].hold)
        buf_put(&s->stage[i].held, t, len);
    else
        emit(s, i, t, len);
}

static void push_replace(struct decode_stream *s, size_t i, const char *t, size_t len)
{
    const struct decode_step *st = &s->d->v[i];
    struct buf *held = &s->stage[i].held;
    buf_clear(held);
    int rc = pattern_replace(st->pat, t, len, st->text, st->len, held, s->err);
    if (rc)
        s->rc = rc;
    else
        emit(s, i, buf_str(held), held->len);
    buf_clear(held);
}

static bool ends_with(const char *t, size_t len, const char *c, size_t n)
{
    return len >= n && memcmp(t + len - n, c, n) == 0;
}

static void strip_token(struct decode_stream *s, size_t i, const char *t, size_t len)
{
    const struct decode_step *st = &s->d->v[i];
    for (size_t k = 0; k < st->start && len >= st->len && memcmp(t, st->text, st->len) == 0; k++) {
        t += st->len;
        len -= st->len;
    }
    for (size_t k = 0; k < st->stop && ends_with(t, len, st->text, st->len); k++)
        len -= st->len;
    emit(s, i, t, len);
}

/* Parts of one token: the beginning is cut as it comes, the last `stop` characters are held back. */
static void push_strip(struct decode_stream *s, size_t i, const char *t, size_t len)
{
    const struct decode_step *st = &s->d->v[i];
    struct decode_stage *g = &s->stage[i];
    if (!st->fused) {
        strip_token(s, i, t, len);
        return;
    }
    while (!g->begun && g->n_cut < st->start && len >= st->len && memcmp(t, st->text, st->len) == 0) {
        t += st->len;
        len -= st->len;
        g->n_cut++;
    }
    if (len == 0)
        return;
    g->begun = true;
    if (st->stop == 0) {
        emit(s, i, t, len);
        return;
    }
    buf_put(&g->held, t, len);
    size_t keep = 0;
    while (keep / st->len < st->stop && ends_with(buf_str(&g->held), g->held.len - keep, st->text, st->len))
        keep += st->len;
    size_t n = g->held.len - keep;
    if (n > 0)
        emit(s, i, g->held.data, n);
    memmove(g->held.data, g->held.data + n, keep);
    g->held.len = keep;
}

static void put_metaspace(const struct decode_step *st, bool drop, const char *t, size_t len, struct buf *out)
{
    for (size_t k = 0; k < len;) {
        if (len - k >= st->len && memcmp(t + k, st->text, st->len) == 0) {
            if (!drop)
                buf_putc(out, ' ');
            k += st->len;
        } else {
            buf_putc(out, t[k++]);
        }
    }
}

/* The mark stands for a space; in the first token for the one that was put there. */
static void push_metaspace(struct decode_stream *s, size_t i, const char *t, size_t len)
{
    const struct decode_step *st = &s->d->v[i];
    struct buf *held = &s->stage[i].held;
    buf_clear(held);
    put_metaspace(st, s->stage[i].n_seen == 0 && !st->keep_first, t, len, held);
    emit(s, i, buf_str(held), held->len);
    buf_clear(held);
}

static void push_join(struct decode_stream *s, size_t i, const char *t, size_t len)
{
    if (s->stage[i].n_seen > 0)
        emit(s, i, " ", 1);
    emit(s, i, t, len);
}

typedef void push_fn(struct decode_stream *s, size_t i, const char *t, size_t len);
static push_fn *const push_table[] = {
    [DEC_BYTELEVEL] = push_bytelevel, [DEC_BYTEFALLBACK] = push_fallback, [DEC_FUSE] = push_fuse,
    [DEC_REPLACE] = push_replace,     [DEC_STRIP] = push_strip,           [DEC_METASPACE] = push_metaspace,
    [DEC_JOIN] = push_join,
};

/* What a stage could not hold is text lost. */
static void check_held(struct decode_stream *s, size_t i)
{
    if (!s->rc && s->stage[i].held.failed)
        s->rc = err_set(s->err, ERR_NOMEM, "tokenizer: no memory to decode");
}

static void push(struct decode_stream *s, size_t i, const char *t, size_t len)
{
    if (s->rc)
        return;
    if (i == s->d->n) {
        buf_put(s->out, t, len);
        return;
    }
    push_table[s->d->v[i].kind](s, i, t, len);
    s->stage[i].n_seen++;
    check_held(s, i);
}

static void finish_stage(struct decode_stream *s, size_t i)
{
    switch (s->d->v[i].kind) {
    case DEC_BYTELEVEL:
        bytes_flush(s, i, true);
        break;
    case DEC_BYTEFALLBACK:
        fallback_flush(s, i);
        break;
    case DEC_FUSE:
        if (s->d->v[i].hold)
            emit(s, i, buf_str(&s->stage[i].held), s->stage[i].held.len);
        break;
    default:
        break; /* Strip drops what it holds, the others hold nothing */
    }
    buf_clear(&s->stage[i].held);
    check_held(s, i);
}

static int result(struct decode_stream *s)
{
    if (!s->rc && s->out->failed)
        s->rc = err_set(s->err, ERR_NOMEM, "tokenizer: no memory to decode");
    s->out = NULL;
    s->err = NULL;
    return s->rc;
}

int decode_push(struct decode_stream *s, const char *piece, size_t len, struct buf *out, struct err *err)
{
    s->out = out;
    s->err = err;
    push(s, 0, piece, len);
    return result(s);
}

int decode_finish(struct decode_stream *s, struct buf *out, struct err *err)
{
    s->out = out;
    s->err = err;
    for (size_t i = 0; i < s->d->n && !s->rc; i++)
        finish_stage(s, i);
    return result(s);
}

/* ---- one token ---- */

void decode_token_bytes(const struct decoder *d, const char *piece, size_t len, struct buf *out)
{
    struct buf now, next;
    buf_init(&now);
    buf_init(&next);
    buf_put(&now, piece, len);
    for (size_t i = 0; i < d->n; i++) {
        const struct decode_step *st = &d->v[i];
        const char *t = buf_str(&now);
        int byte = st->kind == DEC_BYTEFALLBACK ? hex_byte(t, now.len) : -1;
        if (byte >= 0)
            buf_putc(&next, (char)byte);
        else if (st->kind == DEC_BYTELEVEL)
            put_bytelevel(&next, t, now.len);
        else if (st->kind == DEC_METASPACE)
            put_metaspace(st, false, t, now.len, &next);
        else if (st->kind != DEC_REPLACE || pattern_replace(st->pat, t, now.len, st->text, st->len, &next, NULL) < 0)
            continue; /* what concerns the ends of a text */
        buf_clear(&now);
        buf_put(&now, buf_str(&next), next.len);
        buf_clear(&next);
        if (byte >= 0)
            break; /* no text any more */
    }
    buf_put(out, buf_str(&now), now.len);
    out->failed |= now.failed || next.failed;
    buf_fini(&now);
    buf_fini(&next);
}
