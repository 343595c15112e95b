/* Stop strings: one Knuth-Morris-Pratt automaton per string, fed byte by byte.
 * The largest state of all is how many bytes at the end may belong to a stop
 * string; the bytes before them are final.  A string of valid UTF-8 starts with
 * a leading byte, so that what is final ends at a character's border.
 * The strings and their tables are made once; a text has only its states. */
#include "run/stop.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include <forge.h>

#include "base/mem.h"
#include "base/utf8.h"

struct pattern {
    char *text;
    uint32_t len;
    uint32_t *back; /* [len] longest proper border of text[0..i] */
};

struct stop_set {
    struct pattern *patterns;
    size_t n, longest;
};

struct stop {
    const struct stop_set *set;
    uint32_t *states; /* [set->n] bytes matched so far, < len */
    struct buf held;
    bool done;
};

static int pattern_init(struct pattern *p, const char *text, size_t len, struct err *err)
{
    if (len == 0)
        return err_set(err, ERR_ARG, "a stop string is empty");
    if (!utf8_valid(text, len, NULL))
        return err_set(err, ERR_ARG, "a stop string is not valid UTF-8");
    p->len = (uint32_t)len;
    p->text = mem_strdup(text);
    p->back = mem_array(len, sizeof *p->back);
    if (!p->text || !p->back)
        return err_set(err, ERR_NOMEM, "no memory for a stop string of %zu bytes", len);
    for (uint32_t i = 1, k = 0; i < p->len; i++) {
        while (k > 0 && text[i] != text[k])
            k = p->back[k - 1];
        if (text[i] == text[k])
            k++;
        p->back[i] = k;
    }
    return 0;
}

static int set_init(struct stop_set *s, const char *const *strings, struct err *err)
{
    size_t left = FORGE_STOP_BYTES;
    int rc = 0;
    for (size_t i = 0; i < s->n && rc == 0; i++) {
        if (!strings[i])
            return err_set(err, ERR_ARG, "stop string %zu is missing", i);
        size_t len = strlen(strings[i]);
        if (len > left)
            return err_set(err, ERR_ARG, "the stop strings have more than %d bytes together", FORGE_STOP_BYTES);
        left -= len;
        rc = pattern_init(&s->patterns[i], strings[i], len, err);
        s->longest = len > s->longest ? len : s->longest;
    }
    return rc;
}

int stop_set_new(struct stop_set **out, const char *const *strings, size_t n, struct err *err)
{
    *out = NULL;
    if (n > FORGE_STOP_BYTES) /* each has a byte at least */
        return err_set(err, ERR_ARG, "there are %zu stop strings; they may have %d bytes together", n, FORGE_STOP_BYTES);
    struct stop_set *s = mem_array(1, sizeof *s);
    if (!s || !(s->patterns = mem_array(n, sizeof *s->patterns))) {
        free(s);
        return err_set(err, ERR_NOMEM, "no memory for %zu stop strings", n);
    }
    s->n = n;
    int rc = set_init(s, strings, err);
    if (rc < 0) {
        stop_set_free(s);
        return rc;
    }
    *out = s;
    return 0;
}

void stop_set_free(struct stop_set *s)
{
    if (!s)
        return;
    for (size_t i = 0; i < s->n; i++) {
        free(s->patterns[i].text);
        free(s->patterns[i].back);
    }
    free(s->patterns);
    free(s);
}

int stop_new(struct stop **out, const struct stop_set *set, struct err *err)
{
    struct stop *s = *out = mem_array(1, sizeof *s);
    if (s) {
        s->set = set;
        buf_init(&s->held);
        s->states = mem_array(set->n, sizeof *s->states);
        if (s->states && (set->n == 0 || buf_reserve(&s->held, set->longest + 1)))
            return 0;
    }
    stop_free(s);
    *out = NULL;
    return err_set(err, ERR_NOMEM, "no memory for stop strings");
}

void stop_free(struct stop *s)
{
    if (!s)
        return;
    free(s->states);
    buf_fini(&s->held);
    free(s);
}

void stop_reset(struct stop *s)
{
    for (size_t i = 0; i < s->set->n; i++)
        s->states[i] = 0;
    buf_clear(&s->held);
    s->done = false;
}

static uint32_t advance(const struct pattern *p, uint32_t state, char c)
{
    while (state > 0 && p->text[state] != c)
        state = p->back[state - 1];
    return p->text[state] == c ? state + 1 : state;
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
    if (s->set->n == 0) {
        buf_put(out, text, len);
        return false;
    }
    for (size_t i = 0; i < len; i++) {
        size_t held = 0, matched = 0;
        for (size_t j = 0; j < s->set->n; j++) {
            const struct pattern *p = &s->set->patterns[j];
            uint32_t state = s->states[j] = advance(p, s->states[j], text[i]);
            held = state > held ? state : held;
            if (state == p->len)
                matched = state > matched ? state : matched;
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
