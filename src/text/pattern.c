/* Patterns over PCRE2: compilation, the walk over matches, the limits.
 * Owns every call of that library.  Knows nothing of what is cut or replaced by
 * a pattern. */
#include "text/pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "text/onig.h"

/* PCRE2's own default for the number of steps; the subject's length is added, so that one long
 * run of spaces (one step a space) stays below it. */
#define STEPS_BASE 10000000u
#define STEPS_PER_BYTE 16u
#define HEAP_KIB (256u * 1024u)
#define PAD 64 /* the JIT's code loads whole vectors, up to here past the end */

struct pattern {
    char *src; /* as the file has it: what is searched for, and what messages show */
    size_t len;
    pcre2_code *code; /* NULL = plain string */
    bool jit;
};

struct matcher_state {
    pcre2_match_data *data;
    pcre2_match_context *limits;
    struct buf subject; /* for the JIT: a copy with PAD zeros behind it */
    bool jit;
};

static int compile(struct pattern *p, const char *name, struct err *err)
{
    struct buf re;
    buf_init(&re);
    pcre2_compile_context *ctx = pcre2_compile_context_create(NULL);
    int rc = onig_to_pcre(p->src, p->len, &re, name, err);
    if (rc)
        goto fail;
    rc = ERR_NOMEM;
    if (!ctx || re.failed) {
        err_set(err, rc, "%s: no memory for the pattern %s", name, p->src);
        goto fail;
    }
    pcre2_set_newline(ctx, PCRE2_NEWLINE_LF);
    int code;
    PCRE2_SIZE at;
    p->code =
        pcre2_compile((PCRE2_SPTR)buf_str(&re), re.len,
                      PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &code, &at, ctx);
    if (!p->code) {
        PCRE2_UCHAR msg[128];
        pcre2_get_error_message(code, msg, sizeof msg);
        rc = err_set(err, code == PCRE2_ERROR_HEAP_FAILED ? ERR_NOMEM : ERR_UNSUPPORTED, "%s: pattern %s: %s (at %zu)", name, p->src, (char *)msg,
                     (size_t)at);
        goto fail;
    }
    p->jit = pcre2_jit_compile(p->code, PCRE2_JIT_COMPLETE) == 0;
    rc = 0;
fail:
    pcre2_compile_context_free(ctx);
    buf_fini(&re);
    return rc;
}

int pattern_new(struct pattern **out, bool regex, const char *src, size_t len, const char *name,
                struct err *err)
{
    *out = NULL;
    if (len == 0 && !regex)
        return err_set(err, ERR_FORMAT, "%s: an empty string as pattern", name);
    struct pattern *p = mem_array(1, sizeof *p);
    if (!p || !(p->src = mem_strndup(src, len))) {
        free(p);
        return err_set(err, ERR_NOMEM, "%s: no memory for a pattern of %zu bytes", name, len);
    }
    p->len = len;
    int rc = regex ? compile(p, name, err) : 0;
    if (rc) {
        pattern_free(p);
        return rc;
    }
    *out = p;
    return 0;
}

void pattern_free(struct pattern *p)
{
    if (!p)
        return;
    pcre2_code_free(p->code);
    free(p->src);
    free(p);
}

int matcher_init(struct matcher *m, const struct pattern *p, struct err *err)
{
    memset(m, 0, sizeof *m);
    m->pat = p;
    if (!p->code)
        return 0;
    m->st = mem_array(1, sizeof *m->st);
    if (m->st) {
        m->st->data = pcre2_match_data_create(1, NULL);
        m->st->limits = pcre2_match_context_create(NULL);
        buf_init(&m->st->subject);
        m->st->jit = p->jit;
    }
    if (!m->st || !m->st->data || !m->st->limits) {
        matcher_fini(m);
        return err_set(err, ERR_NOMEM, "tokenizer: no memory for matching the pattern %s", p->src);
    }
    pcre2_set_heap_limit(m->st->limits, HEAP_KIB);
    return 0;
}

void matcher_fini(struct matcher *m)
{
    if (m->st) {
        pcre2_match_data_free(m->st->data);
        pcre2_match_context_free(m->st->limits);
        buf_fini(&m->st->subject);
        free(m->st);
        m->st = NULL;
    }
}

void matcher_subject(struct matcher *m, const char *s, size_t len)
{
    m->s = s;
    m->len = len;
    m->pos = 0;
    m->last_end = SIZE_MAX;
    if (m->st && m->st->jit) {
        static const char zeros[PAD];
        struct buf *copy = &m->st->subject;
        buf_clear(copy);
        buf_put(copy, s, len);
        buf_put(copy, zeros, PAD);
        if (!copy->failed)
            m->s = copy->data;
    }
    if (m->st) {
        uint64_t steps = STEPS_BASE + (uint64_t)len * STEPS_PER_BYTE;
        pcre2_set_match_limit(m->st->limits, steps > UINT32_MAX ? UINT32_MAX : (uint32_t)steps);
    }
}

static int match_error(const struct matcher *m, int code, struct err *err)
{
    PCRE2_UCHAR msg[128];
    pcre2_get_error_message(code, msg, sizeof msg);
    return err_set(err, code == PCRE2_ERROR_NOMEMORY ? ERR_NOMEM : ERR_LIMIT,
                   "tokenizer: pattern %s at byte %zu of %zu: %s", m->pat->src, m->pos, m->len, (char *)msg);
}

/* One search from m->pos.  The subject was checked to be UTF-8 before. */
static int search(struct matcher *m)
{
    struct matcher_state *st = m->st;
    for (;;) {
        uint32_t opts = PCRE2_NO_UTF_CHECK | (st->jit ? 0 : PCRE2_NO_JIT);
        int rc = pcre2_match(m->pat->code, (PCRE2_SPTR)m->s, m->len, m->pos, opts, st->data, st->limits);
        if (rc != PCRE2_ERROR_JIT_STACKLIMIT || !st->jit)
            return rc;
        st->jit = false; /* the interpreter keeps its states on the heap */
    }
}

static int next_regex(struct matcher *m, size_t *start, size_t *end, struct err *err)
{
    while (m->pos <= m->len) {
        int rc = search(m);
        if (rc == PCRE2_ERROR_NOMATCH)
            return 0;
        if (rc < 0)
            return match_error(m, rc, err);
        PCRE2_SIZE *ov = pcre2_get_ovector_pointer(m->st->data);
        if (ov[0] > ov[1] || ov[0] < m->pos)
            return err_set(err, ERR_UNSUPPORTED, "tokenizer: pattern %s matches backwards", m->pat->src);
        if (ov[0] == ov[1] && ov[1] == m->last_end) { /* an empty match right after a match: no progress */
            uint32_t cp;
            size_t step = utf8_decode(m->s + m->pos, m->len - m->pos, &cp);
            m->pos += step ? step : 1;
            continue;
        }
        *start = ov[0];
        *end = m->pos = m->last_end = ov[1];
        return 1;
    }
    return 0;
}

int matcher_next(struct matcher *m, size_t *start, size_t *end, struct err *err)
{
    if (m->st)
        return next_regex(m, start, end, err);
    const char *hit =
        m->pos < m->len ? memmem(m->s + m->pos, m->len - m->pos, m->pat->src, m->pat->len) : NULL;
    if (!hit)
        return 0;
    *start = (size_t)(hit - m->s);
    *end = m->pos = *start + m->pat->len;
    return 1;
}

int pattern_replace(const struct pattern *p, const char *s, size_t len, const char *with, size_t with_len,
                    struct buf *out, struct err *err)
{
    struct matcher m;
    int rc = matcher_init(&m, p, err);
    if (rc)
        return rc;
    matcher_subject(&m, s, len);
    size_t done = 0, a, b;
    while ((rc = matcher_next(&m, &a, &b, err)) == 1) {
        buf_put(out, s + done, a - done);
        buf_put(out, with, with_len);
        done = b;
    }
    if (rc == 0) {
        buf_put(out, s + done, len - done);
        if (out->failed)
            rc = err_set(err, ERR_NOMEM, "tokenizer: no memory while replacing in %zu bytes", len);
    }
    matcher_fini(&m);
    return rc;
}

void pattern_library(char *out, size_t size)
{
    char version[64] = "", unicode[64] = "";
    uint32_t jit = 0;
    pcre2_config(PCRE2_CONFIG_VERSION, version); /* "10.42 2022-12-11" */
    pcre2_config(PCRE2_CONFIG_UNICODE_VERSION, unicode);
    pcre2_config(PCRE2_CONFIG_JIT, &jit);
    version[strcspn(version, " ")] = '\0';
    snprintf(out, size, "PCRE2 %s, Unicode %s%s", version, unicode, jit ? "" : ", no JIT");
}
