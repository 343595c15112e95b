/* Builds the tree of a vocabulary's bytes: sorted, then one pass.  What a token's
 * bytes are is asked of the decoder's stages, as decode.c runs them in the midst
 * of a text. */
#include "text/token_trie.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "text/chars.h"
#include "text/parts.h"

/* ---- the bytes of a token ---- */

static void bytelevel(const char *t, size_t len, struct buf *out)
{
    for (size_t k = 0, n; k < len; k += n) {
        uint32_t cp;
        n = utf8_decode(t + k, len - k, &cp);
        int byte = n ? bytelevel_byte(cp) : -1;
        if (byte < 0) { /* not of the alphabet: stands for itself */
            buf_clear(out);
            buf_put(out, t, len);
            return;
        }
        buf_putc(out, (char)byte);
    }
}

static void metaspace(const struct decode_step *st, const char *t, size_t len, struct buf *out)
{
    for (size_t k = 0; k < len;) {
        bool mark = len - k >= st->len && memcmp(t + k, st->text, st->len) == 0;
        buf_put(out, mark ? " " : t + k, 1);
        k += mark ? st->len : 1;
    }
}

static void strip(const struct decode_step *st, const char *t, size_t len, struct buf *out)
{
    size_t n = st->len;
    for (size_t k = 0; k < st->start && len >= n && memcmp(t, st->text, n) == 0; k++, len -= n)
        t += n;
    for (size_t k = 0; k < st->stop && len >= n && memcmp(t + len - n, st->text, n) == 0; k++)
        len -= n;
    buf_put(out, t, len);
}

/* One stage; true: the rest leave it as it is. */
static bool stage(const struct decode_step *st, const struct buf *in, struct buf *out, int *rc, struct err *err)
{
    const char *t = buf_str(in);
    buf_clear(out);
    switch (st->kind) {
    case DEC_BYTELEVEL:
        bytelevel(t, in->len, out);
        return false;
    case DEC_BYTEFALLBACK:
        if (in->len == 6 && memcmp(t, "<0x", 3) == 0 && t[5] == '>' && strspn(t + 3, "0123456789abcdefABCDEF") == 2) {
            buf_putc(out, (char)strtol(t + 3, NULL, 16));
            return true;
        }
        break;
    case DEC_REPLACE:
        *rc = pattern_replace(st->pat, t, in->len, st->text, st->len, out, err);
        return false;
    case DEC_METASPACE:
        metaspace(st, t, in->len, out);
        return false;
    case DEC_STRIP:
        if (!st->fused) {
            strip(st, t, in->len, out);
            return false;
        }
        break; /* at the ends of the text alone */
    case DEC_JOIN:
        buf_putc(out, ' ');
        break;
    case DEC_FUSE:
        break;
    }
    buf_put(out, t, in->len);
    return false;
}

/* a and b are scratch. */
static bool bytes_of(const struct tokenizer *t, int32_t id, struct buf *a, struct buf *b, struct buf *out, struct err *err)
{
    const struct token *tok = vocab_at(&t->vocab, id);
    bool last = false;
    int rc = 0;
    if (!tok || !tok->s || (tok->flags & TOKEN_SPECIAL))
        return false;
    buf_clear(a);
    buf_put(a, tok->s, tok->len);
    for (size_t i = 0; i < t->dec.n && !last && rc == 0; i++) {
        struct buf *from = a;
        last = stage(&t->dec.v[i], a, b, &rc, err);
        a = b;
        b = from;
    }
    buf_put(out, buf_str(a), a->len);
    if (rc == 0 && (a->failed || b->failed || out->failed))
        rc = err_set(err, ERR_NOMEM, "no memory for the bytes of a token");
    return rc == 0;
}

bool token_bytes(const struct tokenizer *t, int32_t id, struct buf *out, struct err *err)
{
    struct buf a, b;
    buf_init(&a);
    buf_init(&b);
    bool ok = bytes_of(t, id, &a, &b, out, err);
    buf_fini(&a);
    buf_fini(&b);
    return ok;
}

/* ---- the tree ---- */

struct named { const char *s; size_t len; uint64_t start; int32_t id; }; /* start: the first 8 bytes */

static int by_bytes(const void *x, const void *y)
{
    const struct named *a = x, *b = y;
    if (a->start != b->start)
        return a->start < b->start ? -1 : 1;
    int d = memcmp(a->s, b->s, a->len < b->len ? a->len : b->len);
    if (d == 0)
        d = a->len < b->len ? -1 : a->len > b->len;
    return d ? d : a->id < b->id ? -1 : a->id > b->id;
}

static size_t common(const struct named *a, const struct named *b)
{
    size_t n = 0, most = a->len < b->len ? a->len : b->len;
    while (n < most && a->s[n] == b->s[n])
        n++;
    return n;
}

static size_t count_nodes(const struct named *v, size_t n)
{
    size_t sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += v[i].len - (i > 0 ? common(&v[i - 1], &v[i]) : 0);
    return sum;
}

/* v is sorted; open[h] is the node of height h + 1 on the way to the last one. */
static void put_nodes(struct token_trie *t, const struct named *v, size_t n, uint32_t *open)
{
    size_t height = 0;
    for (size_t i = 0; i < n; i++) {
        size_t same = i > 0 ? common(&v[i - 1], &v[i]) : 0;
        for (; height > same; height--)
            t->node[open[height - 1]].end = (uint32_t)t->n_node;
        for (; height < v[i].len; height++) {
            open[height] = (uint32_t)t->n_node;
            t->node[t->n_node++] = (struct trie_node){.token = -1, .height = (uint16_t)(height + 1), .byte = (uint8_t)v[i].s[height]};
        }
        struct trie_node *at = &t->node[open[height - 1]];
        t->same[v[i].id] = at->token;
        at->has_same = at->token >= 0;
        at->token = v[i].id;
    }
    for (; height > 0; height--)
        t->node[open[height - 1]].end = (uint32_t)t->n_node;
}

void token_trie_free(struct token_trie *t)
{
    if (!t)
        return;
    free(t->node);
    free(t->same);
    free(t->text);
    free(t->at);
    free(t);
}

static uint64_t start_of(const char *s, size_t len)
{
    uint64_t v = 0;
    for (size_t i = 0; i < 8; i++)
        v = v << 8 | (i < len ? (uint8_t)s[i] : 0u);
    return v;
}

/* v: the tokens that are in the tree. */
static int build(struct token_trie *t, struct named *v, size_t n)
{
    size_t height = 0;
    for (int64_t i = 0; i < t->n_ids; i++) {
        const char *s = t->text + t->at[i];
        size_t len = t->at[i + 1] - t->at[i];
        if (len > 0)
            v[n++] = (struct named){s, len, start_of(s, len), (int32_t)i};
    }
    if (n > 1)
        qsort(v, n, sizeof *v, by_bytes);
    for (size_t i = 0; i < n; i++)
        height = v[i].len > height ? v[i].len : height;
    size_t n_node = count_nodes(v, n);
    uint32_t *open = mem_array(height, sizeof *open);
    t->node = n_node < UINT32_MAX ? mem_array(n_node, sizeof *t->node) : NULL;
    t->height = (int)height;
    if (open && t->node)
        put_nodes(t, v, n, open);
    free(open);
    return open && t->node ? 0 : ERR_NOMEM;
}

#define TOKEN_MOST 4096 /* bytes of a token; longer ones are not in the tree */

/* A tree without nodes, for texts to be put in. */
static struct token_trie *empty_trie(int64_t n_ids)
{
    struct token_trie *t = mem_array(1, sizeof *t);
    if (!t)
        return NULL;
    t->n_ids = (int32_t)n_ids;
    t->same = mem_array((size_t)n_ids, sizeof *t->same);
    t->at = mem_array((size_t)n_ids + 1, sizeof *t->at);
    for (int64_t i = 0; t->same && i < n_ids; i++)
        t->same[i] = -1;
    if (t->same && t->at)
        return t;
    token_trie_free(t);
    return NULL;
}

/* Takes the bytes over, builds the tree. */
static int finish(struct token_trie **out, struct token_trie *t, struct buf *bytes, int rc, struct err *err)
{
    struct named *v = t && rc == 0 && !bytes->failed ? mem_array((size_t)t->n_ids, sizeof *v) : NULL;
    if (v) {
        t->text = bytes->data;
        buf_init(bytes);
    }
    if (rc == 0 && (!v || build(t, v, 0) != 0))
        rc = err_set(err, ERR_NOMEM, "no memory for the tree of a vocabulary");
    free(v);
    buf_fini(bytes);
    if (rc)
        token_trie_free(t);
    else
        *out = t;
    return rc;
}

int token_trie_from_texts(struct token_trie **out, const struct token_text *text, int64_t n_ids, struct err *err)
{
    struct token_trie *t = empty_trie(n_ids);
    struct buf bytes;
    *out = NULL;
    buf_init(&bytes);
    for (int64_t i = 0; t && i < n_ids; i++) {
        if (text[i].s && text[i].len <= TOKEN_MOST)
            buf_put(&bytes, text[i].s, text[i].len);
        t->at[i + 1] = bytes.len;
    }
    return finish(out, t, &bytes, 0, err);
}

int token_trie_new(struct token_trie **out, const struct tokenizer *tok, int64_t n_ids, struct err *err)
{
    struct token_trie *t = empty_trie(n_ids);
    struct buf bytes, a, b;
    struct err why = {0};
    *out = NULL;
    buf_init(&bytes);
    buf_init(&a);
    buf_init(&b);
    for (int64_t i = 0; t && i < n_ids && why.code == 0; i++) {
        size_t before = bytes.len;
        if (!bytes_of(tok, (int32_t)i, &a, &b, &bytes, &why) || bytes.len - before > TOKEN_MOST)
            bytes.len = before;
        t->at[i + 1] = bytes.len;
    }
    buf_fini(&a);
    buf_fini(&b);
    return finish(out, t, &bytes, why.code ? err_set(err, why.code, "%s", why.msg) : 0, err);
}

const char *token_trie_bytes(const struct token_trie *t, int32_t id, size_t *len)
{
    *len = id >= 0 && id < t->n_ids ? t->at[id + 1] - t->at[id] : 0;
    return *len ? t->text + t->at[id] : "";
}

/* ---- the beginning of a text ---- */

static bool drops_at_start(const struct decoder *d)
{
    for (size_t i = 0; i < d->n; i++)
        if (d->v[i].kind == DEC_STRIP || d->v[i].kind == DEC_METASPACE)
            return true;
    return false;
}

/* A token whose bytes are a space and more. */
static int32_t spaced_token(const struct tokenizer *t)
{
    struct buf b;
    int32_t found = -1;
    buf_init(&b);
    for (int32_t id = 0; id < tokenizer_n_ids(t) && found < 0; id++) {
        buf_clear(&b);
        if (token_bytes(t, id, &b, NULL) && b.len > 1 && buf_str(&b)[0] == ' ' && buf_str(&b)[1] > ' ')
            found = id;
    }
    buf_fini(&b);
    return found;
}

int token_trie_skips_space(bool *out, const struct tokenizer *t, const int32_t *prompt, size_t n, bool skip_special,
                           struct err *err)
{
    struct detok *d = NULL;
    struct buf b;
    *out = false;
    int32_t id = drops_at_start(&t->dec) ? spaced_token(t) : -1;
    if (id < 0)
        return 0;
    buf_init(&b);
    int rc = detok_new(&d, t, prompt, n, skip_special, err);
    rc = rc ? rc : detok_push(d, id, &b, err);
    rc = rc ? rc : detok_finish(d, &b, err);
    *out = b.len > 0 && buf_str(&b)[0] != ' ';
    detok_free(d);
    buf_fini(&b);
    return rc;
}
