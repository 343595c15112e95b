/* The incremental detokeniser: the decoder's chain, fed one id at a time.
 *
 * The prompt runs through the chain first, so that rules about the beginning of a text hold.  Its
 * end may be undecided when the first new id comes (half a character, a run of byte tokens);
 * `owed` is what the prompt alone would have ended in, and is dropped from what then follows. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "text/parts.h"

struct detok {
    const struct tokenizer *t;
    struct decode_stream s;
    bool skip_special;
    struct buf owed;
    size_t n_paid; /* bytes of owed that have come */
    struct buf piece;
};

static int feed(struct detok *d, int32_t id, struct buf *out, struct err *err)
{
    const struct token *tok = vocab_at(&d->t->vocab, id);
    if (!tok || (d->skip_special && (tok->flags & TOKEN_SPECIAL)))
        return 0;
    return decode_push(&d->s, tok->s, tok->len, out, err);
}

static int run_prompt(struct detok *d, const int32_t *prompt, size_t n, struct err *err)
{
    int rc = tokenizer_decode(d->t, prompt, n, d->skip_special, &d->owed, err);
    for (size_t i = 0; i < n && !rc; i++)
        rc = feed(d, prompt[i], &d->piece, err);
    if (rc)
        return rc;
    d->n_paid = d->piece.len; /* final already; the rest of owed is what finishing added */
    buf_clear(&d->piece);
    return 0;
}

int detok_new(struct detok **out, const struct tokenizer *t, const int32_t *prompt, size_t n_prompt,
              bool skip_special, struct err *err)
{
    *out = NULL;
    struct detok *d = mem_array(1, sizeof *d);
    if (!d)
        return err_set(err, ERR_NOMEM, "no memory for a detokenizer");
    d->t = t;
    d->skip_special = skip_special;
    buf_init(&d->owed);
    buf_init(&d->piece);
    decode_stream_init(&d->s, &t->dec);
    int rc = buf_reserve(&d->piece, 256) ? run_prompt(d, prompt, n_prompt, err)
                                         : err_set(err, ERR_NOMEM, "no memory for a detokenizer");
    if (rc)
        detok_free(d);
    else
        *out = d;
    return rc;
}

void detok_free(struct detok *d)
{
    if (!d)
        return;
    decode_stream_fini(&d->s);
    buf_fini(&d->owed);
    buf_fini(&d->piece);
    free(d);
}

/* Moves d->piece to out, less what the prompt's own text has shown.  Where the two part, character
 * by character, the prompt ended in half a character that is now whole. */
static int deliver(struct detok *d, int rc, struct buf *out, struct err *err)
{
    const char *p = buf_str(&d->piece), *owed = buf_str(&d->owed);
    size_t i = 0, n;
    uint32_t cp;
    while (d->n_paid < d->owed.len && i < d->piece.len &&
           (n = utf8_decode(p + i, d->piece.len - i, &cp)) > 0) {
        if (d->owed.len - d->n_paid < n || memcmp(p + i, owed + d->n_paid, n) != 0) {
            d->n_paid = d->owed.len;
            break;
        }
        i += n;
        d->n_paid += n;
    }
    buf_put(out, p + i, d->piece.len - i);
    buf_clear(&d->piece);
    if (!rc && out->failed)
        rc = err_set(err, ERR_NOMEM, "no memory for a piece of text");
    return rc;
}

int detok_push(struct detok *d, int32_t id, struct buf *out, struct err *err)
{
    return deliver(d, feed(d, id, &d->piece, err), out, err);
}

int detok_finish(struct detok *d, struct buf *out, struct err *err)
{
    return deliver(d, decode_finish(&d->s, &d->piece, err), out, err);
}
