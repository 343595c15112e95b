/* The list of cutting steps, one function for each kind.
 * Pieces that are added tokens pass through untouched.  How matches become words is
 * spans.c's business; nothing here knows the vocabulary. */
#include "text/pretok.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "text/spans.h"

const char pretok_gpt2_regex[] =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

/* What one step works with while it runs. */
struct work {
    const struct pretok_step *st;
    struct matcher m;
    struct spans spans;
    struct buf text; /* a piece with its prefix */
    struct pieces *out;
};

void pretok_init(struct pretok *p)
{
    memset(p, 0, sizeof *p);
}

void pretok_fini(struct pretok *p)
{
    for (size_t i = 0; i < p->n; i++)
        pattern_free(p->v[i].pat);
    free(p->v);
    memset(p, 0, sizeof *p);
}

int pretok_add(struct pretok *p, struct pretok_step step, struct err *err)
{
    struct pretok_step *v = mem_grow(p->v, &p->cap, p->n + 1, sizeof *v);
    if (!v) {
        pattern_free(step.pat);
        return err_set(err, ERR_NOMEM, "tokenizer: no memory for a pre-tokenizer");
    }
    p->v = v;
    p->v[p->n++] = step;
    return 0;
}

/* Copies the words of `spans` out of s. */
static int put_words(struct work *w, const char *s, bool first, struct err *err)
{
    for (size_t i = 0; i < w->spans.n; i++) {
        struct span sp = w->spans.v[i];
        int rc = pieces_put(w->out, s + sp.start, sp.end - sp.start, -1, first && sp.start == 0, err);
        if (rc)
            return rc;
    }
    return 0;
}

static int find_spans(struct work *w, const char *s, size_t len, struct err *err)
{
    int rc = w->st->pat ? spans_by_matcher(&w->spans, &w->m, s, len, err)
                        : spans_by_class(&w->spans, w->st->is_match, s, len, err);
    if (rc)
        return rc;
    if (w->st->invert)
        spans_invert(&w->spans);
    spans_apply(&w->spans, w->st->behavior);
    return 0;
}

static int run_split(struct work *w, const char *s, size_t len, bool first, struct err *err)
{
    int rc = find_spans(w, s, len, err);
    return rc ? rc : put_words(w, s, first, err);
}

static void put_bytelevel(struct buf *out, const char *s, size_t len)
{
    buf_reserve(out, 2 * len);
    for (size_t i = 0; i < len; i++) {
        char c[4];
        buf_put(out, c, utf8_encode(bytelevel_char((uint8_t)s[i]), c));
    }
}

static int run_bytelevel(struct work *w, const char *s, size_t len, bool first, struct err *err)
{
    if (w->st->add_space && s[0] != ' ') {
        buf_clear(&w->text);
        buf_putc(&w->text, ' ');
        buf_put(&w->text, s, len);
        if (w->text.failed)
            return err_set(err, ERR_NOMEM, "tokenizer: no memory for %zu bytes of text", len);
        s = w->text.data;
        len = w->text.len;
    }
    int rc = 0;
    struct span whole = {0, len, false};
    const struct span *v = &whole;
    size_t n = 1;
    if (w->st->pat) {
        rc = find_spans(w, s, len, err);
        v = w->spans.v;
        n = w->spans.n;
    }
    for (size_t i = 0; i < n && !rc; i++) {
        size_t off = w->out->text.len;
        put_bytelevel(&w->out->text, s + v[i].start, v[i].end - v[i].start);
        rc = pieces_close(w->out, off, first && v[i].start == 0, err);
    }
    return rc;
}

/* Every space becomes the mark, one is put in front, and words begin at marks. */
static int run_metaspace(struct work *w, const char *s, size_t len, bool first, struct err *err)
{
    const struct pretok_step *st = w->st;
    size_t n_mark = strlen(st->mark);
    bool marked = s[0] == ' ' || (len >= n_mark && memcmp(s, st->mark, n_mark) == 0);
    buf_clear(&w->text);
    if (!marked && (st->prepend == PREPEND_ALWAYS || (st->prepend == PREPEND_FIRST && first)))
        buf_put(&w->text, st->mark, n_mark);
    for (size_t i = 0; i < len; i++)
        if (s[i] == ' ')
            buf_put(&w->text, st->mark, n_mark);
        else
            buf_putc(&w->text, s[i]);
    if (w->text.failed)
        return err_set(err, ERR_NOMEM, "tokenizer: no memory for %zu bytes of text", len);
    if (!st->split)
        return pieces_put(w->out, w->text.data, w->text.len, -1, first, err);
    int rc = find_spans(w, w->text.data, w->text.len, err);
    return rc ? rc : put_words(w, w->text.data, first, err);
}

typedef int step_fn(struct work *w, const char *s, size_t len, bool first, struct err *err);
static step_fn *const step_table[] = {
    [PRE_SPLIT] = run_split,
    [PRE_CLASS] = run_split,
    [PRE_BYTELEVEL] = run_bytelevel,
    [PRE_METASPACE] = run_metaspace,
};

static int run_step(const struct pretok_step *st, const struct pieces *in, struct pieces *out,
                    struct err *err)
{
    struct work w = {.st = st, .out = out};
    buf_init(&w.text);
    int rc = st->pat ? matcher_init(&w.m, st->pat, err) : 0;
    pieces_clear(out);
    for (size_t i = 0; i < in->n && !rc; i++) {
        struct piece p = in->v[i];
        const char *s = in->text.data + p.off;
        rc = p.id >= 0 ? pieces_put(out, s, p.len, p.id, p.first, err)
                       : step_table[st->kind](&w, s, p.len, p.first, err);
    }
    matcher_fini(&w.m);
    free(w.spans.v);
    buf_fini(&w.text);
    return rc;
}

int pretok_run(const struct pretok *p, struct pieces *a, struct pieces *b, struct err *err)
{
    for (size_t i = 0; i < p->n; i++) {
        int rc = run_step(&p->v[i], a, b, err);
        if (rc)
            return rc;
        pieces_swap(a, b);
    }
    return 0;
}
