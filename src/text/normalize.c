/* The list of normalising steps; each reads a text and writes another.
 * Owns the list and its order.  Normal forms are unicode.c's, patterns pattern.c's; nothing
 * here knows of tokens. */
#include "text/normalize.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "text/chars.h"

void normalizer_init(struct normalizer *z)
{
    memset(z, 0, sizeof *z);
}

void normalizer_fini(struct normalizer *z)
{
    for (size_t i = 0; i < z->n; i++) {
        free(z->v[i].text);
        pattern_free(z->v[i].pat);
    }
    free(z->v);
    memset(z, 0, sizeof *z);
}

int normalizer_add(struct normalizer *z, struct norm_step step, struct err *err)
{
    struct norm_step *v = mem_grow(z->v, &z->cap, z->n + 1, sizeof *v);
    if (v)
        z->v = v;
    step.text = v ? mem_strndup(step.text ? step.text : "", step.len) : NULL;
    if (!step.text) {
        pattern_free(step.pat);
        return err_set(err, ERR_NOMEM, "tokenizer: no memory for a normalizer");
    }
    z->v[z->n++] = step;
    return 0;
}

static void lowercase(const char *s, size_t len, struct buf *out)
{
    for (size_t i = 0; i < len;) {
        uint32_t cp, low[2];
        size_t n = utf8_decode(s + i, len - i, &cp);
        size_t n_low = char_lower(cp, low);
        for (size_t k = 0; k < n_low; k++) {
            char c[4];
            buf_put(out, c, utf8_encode(low[k], c));
        }
        i += n ? n : 1;
    }
}

static void strip(const struct norm_step *st, const char *s, size_t len, struct buf *out)
{
    uint32_t cp;
    size_t a = 0, b = len, n;
    while (st->left && a < b && (n = utf8_decode(s + a, b - a, &cp)) > 0 && char_is_space(cp))
        a += n;
    while (st->right && b > a) {
        size_t p = b - 1;
        while (p > a && ((unsigned char)s[p] & 0xc0) == 0x80)
            p--;
        if (utf8_decode(s + p, b - p, &cp) == 0 || !char_is_space(cp))
            break;
        b = p;
    }
    buf_put(out, s + a, b - a);
}

static int step_run(const struct norm_step *st, const char *s, size_t len, struct buf *out, struct err *err)
{
    switch (st->kind) {
    case NORM_PREPEND:
        if (len > 0)
            buf_put(out, st->text, st->len);
        buf_put(out, s, len);
        return 0;
    case NORM_REPLACE:
        return pattern_replace(st->pat, s, len, st->text, st->len, out, err);
    case NORM_LOWERCASE:
        lowercase(s, len, out);
        return 0;
    case NORM_STRIP:
        strip(st, s, len, out);
        return 0;
    default:
        return unicode_normalize(st->kind, s, len, out, err);
    }
}

int normalizer_run(const struct normalizer *z, const char *s, size_t len, struct buf *out, struct err *err)
{
    struct buf b[2];
    buf_init(&b[0]);
    buf_init(&b[1]);
    int rc = 0;
    for (size_t i = 0; i < z->n && !rc; i++) {
        struct buf *to = i + 1 == z->n ? out : &b[i & 1];
        if (to != out)
            buf_clear(to);
        rc = step_run(&z->v[i], s, len, to, err);
        if (!rc && to->failed)
            rc = err_set(err, ERR_NOMEM, "tokenizer: no memory to normalize %zu bytes", len);
        s = buf_str(to);
        len = to->len;
    }
    if (z->n == 0)
        buf_put(out, s, len);
    if (!rc && out->failed)
        rc = err_set(err, ERR_NOMEM, "tokenizer: no memory to normalize %zu bytes", len);
    buf_fini(&b[0]);
    buf_fini(&b[1]);
    return rc;
}
