/* Stop strings: one Knuth-Morris-Pratt automaton per string, fed byte by byte.
 * The largest state of all is how many bytes at the end may belong to a stop
 * string; the bytes before them are final.  A string of valid UTF-8 starts with
 * a leading byte, so that what is final ends at a character's border. */
#include "run/stop.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"

struct pattern {
    char *text;
    size_t len;
    size_t *back; /* [len] longest proper border of text[0..i] */
    size_t state; /* bytes matched so far, < len */
};

struct stop {
    struct pattern *patterns;
    size_t n;
    struct buf held;
    bool done;
};

static int pattern_init(struct pattern *p, const char *text, struct err *err)
{
    p->len = strlen(text);
    if (p->len == 0)
        return err_set(err, ERR_ARG, "a stop string is empty");
    if (!utf8_valid(text, p->len, NULL))
        return err_set(err, ERR_ARG, "a stop string is not valid UTF-8");
    p->text = mem_strdup(text);
    p->back = mem_array(p->len, sizeof *p->back);
    if (!p->text || !p->back)
        return err_set(err, ERR_NOMEM, "no memory for a stop string of %zu bytes", p->len);
    for (size_t i = 1, k = 0; i < p->len; i++) {
        while (k > 0 && text[i] != text[k])
            k = p->back[k - 1];
        if (text[i] == text[k])
            k++;
        p->back[i] = k;
    }
    return 0;
}

int stop_new(struct stop **out, const char *const *strings, size_t n, struct err *err)
{
    int rc = 0;
    *out = NULL;
    struct stop *s = mem_array(1, sizeof *s);
    if (!s || !(s->patterns = mem_array(n, sizeof *s->patterns))) {
        free(s);
        return err_set(err, ERR_NOMEM, "no memory for %zu stop strings", n);
    }
    buf_init(&s->held);
    s->n = n;
    size_t longest = 0;
    for (size_t i = 0; i < n && rc == 0; i++) {
        if (!strings[i])
            rc = err_set(err, ERR_ARG, "stop string %zu is missing", i);
        else
            rc = pattern_init(&s->patterns[i], strings[i], err);
        longest = s->patterns[i].len > longest ? s->patterns[i].len : longest;
    }
    if (rc == 0 && longest && !buf_reserve(&s->held, longest + 1))
        rc = err_set(err, ERR_NOMEM, "no memory for stop strings");
    if (rc < 0) {
        stop_free(s);
        return rc;
    }
    *out = s;
    return 0;
}

void stop_free(struct stop *s)
{
    if (!s)
        return;
    for (size_t i = 0; i < s->n; i++) {
        free(s->patterns[i].text);
        free(s->patterns[i].back);
    }
    free(s->patterns);
    buf_fini(&s->held);
    free(s);
}

void stop_reset(struct stop *s)
{
    for (size_t i = 0; i < s->n; i++)
        s->patterns[i].state = 0;
    buf_clear(&s->held);
    s->done = false;
}

static void advance(struct pattern *p, char c)
{
    while (p->state > 0 && p->text[p->state] != c)
        p->state = p->back[p->state - 1];
    if (p->text[p->state] == c)
        p->state++;
}

/* Moves all but the last `keep` held bytes to out. */
static void release(struct stop *s, size_t keep, struct buf *out)
{
    assert(keep <= s->held.len);
    size_t n = s->held.len - keep;
    if (n == 0)
        return;
    buf_put(out, s->held.data, n);
    memmove(s->held.data, s->held.data + n, keep);
    s->held.len = keep;
}

bool stop_push(struct stop *s, const char *text, size_t len, struct buf *out)
{
    if (s->done)
        return true;
    if (s->n == 0) {
        buf_put(out, text, len);
        return false;
    }
    for (size_t i = 0; i < len; i++) {
        size_t held = 0, matched = 0;
        for (size_t j = 0; j < s->n; j++) {
            struct pattern *p = &s->patterns[j];
            advance(p, text[i]);
            held = p->state > held ? p->state : held;
            if (p->state == p->len)
                matched = p->len > matched ? p->len : matched;
        }
        buf_putc(&s->held, text[i]);
        if (s->held.failed) { /* reserved by stop_new: cannot happen, and must not lose the error */
            out->failed = true;
            return false;
        }
        if (matched) {
            release(s, matched, out);
            buf_clear(&s->held);
            s->done = true;
            return true;
        }
        release(s, held, out);
    }
    return false;
}

void stop_flush(struct stop *s, struct buf *out)
{
    release(s, 0, out);
}

size_t stop_held(const struct stop *s)
{
    return s->held.len;
}
