/* The tokenizer as a whole: opening by kind of path, encoding, decoding, look-ups.
 * Knows the order of the stages, not what any of them does, and no file's
 * format. */
#include "text/tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "text/parts.h"

/* --- making and opening -------------------------------------------------- */

struct tokenizer *tokenizer_new(const char *source, struct err *err)
{
    struct tokenizer *t = mem_array(1, sizeof *t);
    if (!t || !(t->source = mem_strdup(source))) {
        free(t);
        err_set(err, ERR_NOMEM, "%s: no memory for a tokenizer", source);
        return NULL;
    }
    vocab_init(&t->vocab);
    added_init(&t->added);
    normalizer_init(&t->norm);
    pretok_init(&t->pre);
    bpe_init(&t->bpe, &t->vocab);
    decoder_init(&t->dec);
    ids_init(&t->before);
    ids_init(&t->after);
    t->bos = t->eos = -1;
    return t;
}

void tokenizer_close(struct tokenizer *t)
{
    if (!t)
        return;
    free(t->source);
    bpe_fini(&t->bpe);
    vocab_fini(&t->vocab);
    added_fini(&t->added);
    normalizer_fini(&t->norm);
    pretok_fini(&t->pre);
    decoder_fini(&t->dec);
    ids_fini(&t->before);
    ids_fini(&t->after);
    free(t);
}

int tokenizer_add_token(struct tokenizer *t, int32_t id, const char *s, size_t len, unsigned flags,
                        struct err *err)
{
    unsigned kind = TOKEN_ADDED | (flags & ADDED_SPECIAL ? TOKEN_SPECIAL : 0u);
    int rc = vocab_put(&t->vocab, id, s, len, kind, t->source, err);
    if (rc || !(flags & ADDED_NORMALIZED))
        return rc ? rc : added_put(&t->added, id, flags, s, len, t->source, err);
    struct buf form;
    buf_init(&form);
    rc = normalizer_run(&t->norm, s, len, &form, err);
    if (!rc)
        rc = added_put(&t->added, id, flags, buf_str(&form), form.len, t->source, err);
    buf_fini(&form);
    return rc;
}

int tokenizer_complete(struct tokenizer *t, struct err *err)
{
    bpe_prepare(&t->bpe);
    for (size_t i = 0; i < t->pre.n; i++)
        t->bytelevel = t->bytelevel || t->pre.v[i].kind == PRE_BYTELEVEL;
    for (unsigned i = 0; i < 256; i++) {
        char c[4];
        size_t n = utf8_encode(bytelevel_char((uint8_t)i), c);
        t->raw_byte[i] = t->bytelevel           ? vocab_find(&t->vocab, c, n, TOKEN_MODEL)
                         : t->bpe.byte_fallback ? t->bpe.byte_id[i]
                                                : -1;
    }
    if (t->bos < 0 && t->before.n == 1)
        t->bos = t->before.v[0];
    return decoder_close(&t->dec, t->source, err);
}

/* What to do about a vocabulary that is not read here. */
static int refuse_sentencepiece(const char *path, const char *dir, struct err *err)
{
    return err_set(err, ERR_UNSUPPORTED,
                   "%s: this vocabulary is not read directly; make a tokenizer.json of it: python3 -c \"from "
                   "transformers import AutoTokenizer as A; A.from_pretrained('%s').save_pretrained('%s')\"",
                   path, dir, dir);
}

static const char *const foreign_names[] = {"tokenizer.model", "tekken.json", "spiece.model"};

static bool is_foreign(const char *name)
{
    size_t n = strlen(name);
    for (size_t i = 0; i < sizeof foreign_names / sizeof *foreign_names; i++)
        if (strcmp(name, foreign_names[i]) == 0)
            return true;
    return n > 6 && strcmp(name + n - 6, ".model") == 0;
}

/* Why a folder without a vocabulary that is read here cannot be opened. */
static int refuse_dir(const char *dir, struct err *err)
{
    int rc = 0;
    for (size_t i = 0; !rc && i < sizeof foreign_names / sizeof *foreign_names; i++) {
        char *path = path_join(dir, foreign_names[i]);
        if (!path)
            rc = err_set(err, ERR_NOMEM, "%s: no memory for a path", dir);
        else if (path_exists(path))
            rc = refuse_sentencepiece(path, dir, err);
        free(path);
    }
    return rc ? rc
              : err_set(err, ERR_IO, "%s: neither tokenizer.json nor vocab.json with merges.txt in this folder",
                        dir);
}

static int load_dir(struct tokenizer *t, const char *dir, struct err *err)
{
    char *json = path_join(dir, "tokenizer.json"), *vocab = path_join(dir, "vocab.json");
    int rc;
    if (!json || !vocab)
        rc = err_set(err, ERR_NOMEM, "%s: no memory for a path", dir);
    else if (path_exists(json))
        rc = tokenizer_load_json(t, json, err);
    else if (path_exists(vocab))
        rc = tokenizer_load_vocab_merges(t, dir, err);
    else
        rc = refuse_dir(dir, err);
    free(json);
    free(vocab);
    return rc;
}

static int load_path(struct tokenizer *t, const char *path, struct err *err)
{
    if (path_is_dir(path))
        return load_dir(t, path, err);
    const char *base = path_basename(path);
    char *dir = path_dirname(path);
    int rc;
    if (!dir)
        rc = err_set(err, ERR_NOMEM, "%s: no memory for a path", path);
    else if (is_foreign(base) && path_exists(path))
        rc = refuse_sentencepiece(path, dir, err);
    else if (strcmp(base, "vocab.json") == 0 || strcmp(base, "merges.txt") == 0)
        rc = tokenizer_load_vocab_merges(t, dir, err);
    else
        rc = tokenizer_load_json(t, path, err);
    free(dir);
    return rc;
}

int tokenizer_opened(struct tokenizer **out, struct tokenizer *t, int rc, struct err *err)
{
    if (!rc)
        rc = tokenizer_complete(t, err);
    if (rc)
        tokenizer_close(t);
    else
        *out = t;
    return rc;
}

int tokenizer_open(struct tokenizer **out, const char *path, struct err *err)
{
    *out = NULL;
    struct tokenizer *t = tokenizer_new(path, err);
    return t ? tokenizer_opened(out, t, load_path(t, path, err), err) : ERR_NOMEM;
}

/* --- encoding ------------------------------------------------------------ */

struct encode_work {
    struct pieces a, b;
    struct buf norm, marks;
    struct bpe_work bpe;
};

/* The marks of a normal form, by the marks of its text: the forms of stretches with one mark, behind each other, must
 * be the form of the whole (but for what is put before a text), else all of it counts as marked. */
static int normalize_marks(const struct tokenizer *t, const char *s, const char *marks, size_t len, const struct buf *whole,
                           struct buf *out, struct err *err)
{
    struct buf part;
    size_t at = 0;
    bool same = true;
    int rc = 0;
    buf_init(&part);
    for (size_t i = 0, end; i < len && same && !rc; i = end) {
        for (end = i + 1; end < len && marks[end] == marks[i];)
            end++;
        buf_clear(&part);
        rc = normalizer_run(&t->norm, s + i, end - i, &part, err);
        const char *form = buf_str(&part);
        size_t n = part.len;
        for (size_t k = 0; k < t->norm.n && i > 0; k++) {
            const struct norm_step *st = &t->norm.v[k];
            if (st->kind == NORM_PREPEND && n >= st->len && memcmp(form, st->text, st->len) == 0) {
                form += st->len;
                n -= st->len;
            }
        }
        same = n <= whole->len - at && memcmp(whole->data + at, form, n) == 0;
        for (size_t k = 0; k < n && same; k++)
            buf_putc(out, marks[i]);
        at += n;
    }
    same = same && at == whole->len;
    for (size_t k = 0; k < whole->len && !same; k++) {
        if (k == 0)
            buf_clear(out);
        buf_putc(out, 1);
    }
    buf_fini(&part);
    return rc || !out->failed ? rc : err_set(err, ERR_NOMEM, "tokenizer: no memory for the marks of %zu bytes", len);
}

/* Added tokens as they stand in the text, the normal form of the rest, added tokens in that. */
static int find_added(const struct tokenizer *t, struct encode_work *w, bool plain, const char *marks, struct err *err)
{
    int rc = 0;
    pieces_clear(&w->b);
    for (size_t i = 0; i < w->a.n && !rc; i++) {
        struct piece p = w->a.v[i];
        const char *s = w->a.text.data + p.off;
        if (p.id >= 0) {
            rc = pieces_put(&w->b, s, p.len, p.id, p.first, err);
            continue;
        }
        size_t len = p.len;
        const char *m = marks && t->added.normalized_special ? marks + p.off : NULL; /* all pieces together are the text */
        if (t->norm.n > 0) {
            buf_clear(&w->norm);
            rc = normalizer_run(&t->norm, s, len, &w->norm, err);
            if (!rc && m) {
                buf_clear(&w->marks);
                rc = normalize_marks(t, s, m, len, &w->norm, &w->marks, err);
                m = buf_str(&w->marks);
            }
            s = buf_str(&w->norm);
            len = w->norm.len;
        }
        if (!rc)
            rc = added_split(&t->added, true, plain, s, m, len, p.first, &w->b, err);
    }
    pieces_swap(&w->a, &w->b);
    return rc;
}

/* A stretch of valid UTF-8. */
static int encode_valid(const struct tokenizer *t, struct encode_work *w, const char *s, const char *marks, size_t len,
                        bool first, bool plain, struct ids *out, struct err *err)
{
    pieces_clear(&w->a);
    int rc = added_split(&t->added, false, plain, s, marks, len, first, &w->a, err);
    if (!rc)
        rc = find_added(t, w, plain, marks, err);
    if (!rc)
        rc = pretok_run(&t->pre, &w->a, &w->b, err);
    for (size_t i = 0; i < w->a.n && !rc; i++) {
        struct piece p = w->a.v[i];
        rc = p.id >= 0 ? ids_push(out, p.id, err)
                       : bpe_encode(&t->bpe, &w->bpe, w->a.text.data + p.off, p.len, plain, out, err);
    }
    return rc;
}

static int encode_text(const struct tokenizer *t, struct encode_work *w, const char *s, const char *marks, size_t len,
                       bool plain, struct ids *out, struct err *err)
{
    int rc = 0;
    for (size_t i = 0; i < len && !rc;) {
        size_t bad = 0;
        size_t n = utf8_valid(s + i, len - i, &bad) ? len - i : bad;
        if (n > 0)
            rc = encode_valid(t, w, s + i, marks ? marks + i : NULL, n, i == 0, plain, out, err);
        i += n;
        for (size_t end = i < len ? i + utf8_bad_len(s + i, len - i) : i; i < end && !rc; i++) {
            int32_t id = t->raw_byte[(uint8_t)s[i]];
            rc = id >= 0
                     ? ids_push(out, id, err)
                     : err_set(err, ERR_FORMAT,
                               "text: byte 0x%02X at offset %zu is no UTF-8, and the vocabulary of %s has "
                               "no token for it",
                               (uint8_t)s[i], i, t->source);
        }
    }
    return rc;
}

static int push_all(struct ids *out, const struct ids *from, struct err *err)
{
    int rc = 0;
    for (size_t i = 0; i < from->n && !rc; i++)
        rc = ids_push(out, from->v[i], err);
    return rc;
}

/* The reference library leaves such characters out, too, and says nothing. */
static void warn_lost(const struct tokenizer *t, const struct bpe_work *w, const char *text, size_t len)
{
    char c[4], where[48] = "";
    int byte = t->bytelevel ? bytelevel_byte(w->lost) : -1;
    size_t n = byte >= 0 ? 1 : utf8_encode(w->lost, c);
    if (byte >= 0)
        c[0] = (char)byte;
    const char *at = memmem(text, len, c, n);
    if (at) /* not where the normaliser made it */
        snprintf(where, sizeof where, " at offset %zu", (size_t)(at - text));
    log_msg(LOG_WARN, "text: %zu %s have no token in the vocabulary of %s and are left out, the first is %s%02X%s",
            w->n_lost, byte >= 0 ? "bytes" : "characters", t->source, byte >= 0 ? "0x" : "U+",
            byte >= 0 ? (unsigned)byte : (unsigned)w->lost, where);
}

int tokenizer_encode(const struct tokenizer *t, const char *text, size_t len, unsigned flags, struct ids *out,
                     struct err *err)
{
    return tokenizer_encode_marked(t, text, NULL, len, flags, out, err);
}

int tokenizer_encode_marked(const struct tokenizer *t, const char *text, const char *marks, size_t len, unsigned flags,
                            struct ids *out, struct err *err)
{
    struct encode_work w = {.bpe = {0}};
    pieces_init(&w.a);
    pieces_init(&w.b);
    buf_init(&w.norm);
    buf_init(&w.marks);
    size_t n_before = out->n;
    int rc = flags & TOK_ADD_SPECIAL ? push_all(out, &t->before, err) : 0;
    if (!rc)
        rc = encode_text(t, &w, text, marks, len, !(flags & TOK_PARSE_SPECIAL), out, err);
    if (!rc && flags & TOK_ADD_SPECIAL)
        rc = push_all(out, &t->after, err);
    if (rc)
        out->n = n_before;
    else if (w.bpe.n_lost)
        warn_lost(t, &w.bpe, text, len);
    pieces_fini(&w.a);
    pieces_fini(&w.b);
    buf_fini(&w.norm);
    buf_fini(&w.marks);
    bpe_work_fini(&w.bpe);
    return rc;
}

/* --- decoding and look-ups ----------------------------------------------- */

int tokenizer_decode(const struct tokenizer *t, const int32_t *ids, size_t n, bool skip_special,
                     struct buf *out, struct err *err)
{
    struct decode_stream s;
    decode_stream_init(&s, &t->dec);
    int rc = 0;
    for (size_t i = 0; i < n && !rc; i++) {
        const struct token *tok = vocab_at(&t->vocab, ids[i]);
        if (tok && !(skip_special && (tok->flags & TOKEN_SPECIAL)))
            rc = decode_push(&s, tok->s, tok->len, out, err);
    }
    if (!rc)
        rc = decode_finish(&s, out, err);
    decode_stream_fini(&s);
    return rc;
}

int32_t tokenizer_n_ids(const struct tokenizer *t)
{
    return t->vocab.n;
}

bool tokenizer_piece(const struct tokenizer *t, int32_t id, const char **s, size_t *len)
{
    const struct token *tok = vocab_at(&t->vocab, id);
    if (!tok)
        return false;
    *s = tok->s;
    *len = tok->len;
    return true;
}

void tokenizer_token_bytes(const struct tokenizer *t, int32_t id, struct buf *out)
{
    const struct token *tok = vocab_at(&t->vocab, id);
    if (tok)
        decode_token_bytes(&t->dec, tok->s, tok->len, out);
}

int32_t tokenizer_find(const struct tokenizer *t, const char *s, size_t len)
{
    return vocab_find(&t->vocab, s, len, TOKEN_MODEL | TOKEN_ADDED);
}

bool tokenizer_is_special(const struct tokenizer *t, int32_t id)
{
    const struct token *tok = vocab_at(&t->vocab, id);
    return tok && (tok->flags & TOKEN_SPECIAL);
}

const char *tokenizer_kind(const struct tokenizer *t)
{
    return t->bytelevel ? "byte-level BPE" : t->bpe.byte_fallback ? "SentencePiece BPE" : "BPE";
}

const char *tokenizer_source(const struct tokenizer *t)
{
    return t->source;
}

int32_t tokenizer_bos(const struct tokenizer *t)
{
    return t->bos;
}

int32_t tokenizer_eos(const struct tokenizer *t)
{
    return t->eos;
}

bool tokenizer_adds_bos(const struct tokenizer *t)
{
    return t->bos >= 0 && t->before.n > 0 && t->before.v[0] == t->bos;
}

const char *tokenizer_libraries(char *out, size_t size)
{
    char pcre[128], utf8proc[128];
    pattern_library(pcre, sizeof pcre);
    unicode_library(utf8proc, sizeof utf8proc);
    snprintf(out, size, "%s; %s", pcre, utf8proc);
    return out;
}

/* --- lists of ids -------------------------------------------------------- */

void ids_init(struct ids *l)
{
    *l = (struct ids){0};
}

void ids_fini(struct ids *l)
{
    free(l->v);
    ids_init(l);
}

int ids_push(struct ids *l, int32_t id, struct err *err)
{
    if (l->n == l->cap) {
        int32_t *v = mem_grow(l->v, &l->cap, l->n + 1, sizeof *v);
        if (!v)
            return err_set(err, ERR_NOMEM, "no memory for %zu token ids", l->n + 1);
        l->v = v;
    }
    l->v[l->n++] = id;
    return 0;
}
