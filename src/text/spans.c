/* Finding the spans of a text that match, and merging them into words.
 * Owns the five behaviours of a split.  Knows no pieces and no
 * steps. */
#include "text/spans.h"

#include "base/mem.h"
#include "base/utf8.h"

static int push(struct spans *s, size_t start, size_t end, bool match, struct err *err)
{
    if (s->n == s->cap) {
        struct span *v = mem_grow(s->v, &s->cap, s->n + 1, sizeof *v);
        if (!v)
            return err_set(err, ERR_NOMEM, "tokenizer: no memory for %zu words", s->n + 1);
        s->v = v;
    }
    s->v[s->n++] = (struct span){start, end, match};
    return 0;
}

int spans_by_matcher(struct spans *found, struct matcher *m, const char *s, size_t len, struct err *err)
{
    size_t done = 0, a, b;
    int rc;
    found->n = 0;
    matcher_subject(m, s, len);
    while ((rc = matcher_next(m, &a, &b, err)) == 1) {
        if (a > done && (rc = push(found, done, a, false, err)))
            return rc;
        if ((rc = push(found, a, b, true, err)))
            return rc;
        done = b;
    }
    if (rc == 0 && done < len)
        rc = push(found, done, len, false, err);
    return rc;
}

int spans_by_class(struct spans *found, char_class *is_match, const char *s, size_t len, struct err *err)
{
    size_t done = 0;
    int rc = 0;
    found->n = 0;
    for (size_t i = 0, n; i < len && !rc; i += n) {
        uint32_t cp;
        n = utf8_decode(s + i, len - i, &cp);
        if (n == 0)
            n = 1;
        else if (is_match(cp)) {
            if (i > done)
                rc = push(found, done, i, false, err);
            if (!rc)
                rc = push(found, i, i + n, true, err);
            done = i + n;
        }
    }
    if (!rc && done < len)
        rc = push(found, done, len, false, err);
    return rc;
}

void spans_invert(struct spans *s)
{
    for (size_t i = 0; i < s->n; i++)
        s->v[i].match = !s->v[i].match;
}

static void remove_matches(struct spans *s)
{
    size_t n = 0;
    for (size_t i = 0; i < s->n; i++)
        if (!s->v[i].match)
            s->v[n++] = s->v[i];
    s->n = n;
}

/* Neighbours that are alike become one. */
static void merge_alike(struct spans *s)
{
    size_t n = 0;
    for (size_t i = 0; i < s->n; i++)
        if (n > 0 && s->v[n - 1].match == s->v[i].match)
            s->v[n - 1].end = s->v[i].end;
        else
            s->v[n++] = s->v[i];
    s->n = n;
}

/* A match joins what is before it, unless that ended in a match itself. */
static void merge_previous(struct spans *s)
{
    size_t n = 0;
    bool was_match = false;
    for (size_t i = 0; i < s->n; i++) {
        bool match = s->v[i].match;
        if (match && !was_match && n > 0)
            s->v[n - 1].end = s->v[i].end;
        else
            s->v[n++] = s->v[i];
        was_match = match;
    }
    s->n = n;
}

/* The mirror image: from the end, a match joins what is after it. */
static void merge_next(struct spans *s)
{
    size_t n = s->n; /* the words made so far are v[n..s->n) */
    bool was_match = false;
    for (size_t i = s->n; i-- > 0;) {
        bool match = s->v[i].match;
        if (match && !was_match && n < s->n)
            s->v[n].start = s->v[i].start;
        else
            s->v[--n] = s->v[i];
        was_match = match;
    }
    for (size_t i = n; i < s->n; i++)
        s->v[i - n] = s->v[i];
    s->n -= n;
}

void spans_apply(struct spans *s, enum pretok_behavior behavior)
{
    switch (behavior) {
    case SPLIT_REMOVED:
        remove_matches(s);
        break;
    case SPLIT_CONTIGUOUS:
        merge_alike(s);
        break;
    case SPLIT_WITH_PREVIOUS:
        merge_previous(s);
        break;
    case SPLIT_WITH_NEXT:
        merge_next(s);
        break;
    case SPLIT_ISOLATED:
        break;
    }
}
