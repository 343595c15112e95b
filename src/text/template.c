/* A template as a whole: opening, rendering, closing, and the limits
 * of a rendering.
 * Knows neither the grammar nor what is built in. */
#include "text/template.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "text/template_parts.h"

/* All newlines become \n, as Jinja reads a template. */
static size_t normalize_newlines(char *to, const char *s, size_t len)
{
    size_t n = 0;
    for (size_t i = 0; i < len; i++) {
        to[n++] = s[i] == '\r' ? '\n' : s[i];
        if (s[i] == '\r' && i + 1 < len && s[i + 1] == '\n')
            i++;
    }
    return n;
}

static int parse(struct template *t, struct err *err)
{
    struct toks toks;
    int rc = template_lex(&toks, &t->mem, t->text, t->len, t->name, err);
    if (rc == 0) {
        struct parser p = {.t = t, .at = toks.v, .err = err};
        rc = parse_body(&p, err);
    }
    free(toks.v);
    return rc;
}

int template_open(struct template **out, const char *text, size_t len, const char *name, struct err *err)
{
    struct err own = {0};
    size_t bad;
    *out = NULL;
    if (len > TEMPLATE_SIZE_MAX)
        return err_set(err, ERR_LIMIT, "%s: a template of %zu bytes is over the limit of %zu", name, len, TEMPLATE_SIZE_MAX);
    if (!utf8_valid(text, len, &bad))
        return err_set(err, ERR_FORMAT, "%s: byte %zu of the template is no UTF-8", name, bad);
    struct template *t = mem_array(1, sizeof *t);
    if (!t)
        return err_set(err, ERR_NOMEM, "%s: no memory for a template", name);
    arena_init(&t->mem);
    t->text = mem_strndup(text, len);
    t->name = mem_strdup(name);
    int rc = t->text && t->name ? 0 : err_set(&own, ERR_NOMEM, "%s: no memory for a template", name);
    if (rc == 0) {
        t->len = normalize_newlines(t->text, text, len);
        rc = parse(t, &own);
    }
    if (rc < 0) {
        template_close(t);
        if (err)
            *err = own;
        return rc;
    }
    *out = t;
    return 0;
}

void template_close(struct template *t)
{
    if (!t)
        return;
    arena_fini(&t->mem);
    free(t->text);
    free(t->name);
    free(t);
}

const char *template_text(const struct template *t, size_t *len)
{
    *len = t->len;
    return t->text;
}

const char *template_name(const struct template *t)
{
    return t->name;
}

/* ---- a rendering ---- */

bool render_fail(struct render *r, int code, const char *fmt, ...)
{
    char what[900];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(what, sizeof what, fmt, ap);
    va_end(ap);
    if (r->err->code == 0)
        err_set(r->err, code, "%s: line %d: %s", r->t->name, r->line, what);
    return false;
}

bool render_refuse(struct render *r, const char *words, size_t len)
{
    if (r->err->code == 0)
        err_set(r->err, ERR_ARG, "the chat template refuses these messages: %.*s", (int)(len < 800 ? len : 800), words);
    return false;
}

bool render_step(struct render *r, size_t work)
{
    r->steps += 1 + work;
    return r->steps <= TEMPLATE_STEPS_MAX || render_fail(r, ERR_LIMIT, "the template runs longer than it may");
}

void *render_alloc(struct render *r, size_t size)
{
    void *p = NULL;
    if (size > TEMPLATE_MEMORY_MAX - r->used) {
        render_fail(r, ERR_LIMIT, "the template needs more than the %zu MiB of memory it may take", TEMPLATE_MEMORY_MAX >> 20);
        return NULL;
    }
    r->used += size;
    if (render_step(r, size / 256) && !(p = arena_alloc(&r->mem, size)))
        render_fail(r, ERR_NOMEM, "no memory for the template's values");
    return p;
}

static bool set_vars(struct render *r, const struct template_input *in)
{
    for (size_t i = 0; i < in->n_vars; i++) {
        const struct template_var *var = &in->vars[i];
        struct val v = val_strn(str_own(var->own, var->own_len));
        if (!var->own && !json_value(r, var->json, var->json_len, &v))
            return false;
        if (!scope_set(r, r->scope, var->name, strlen(var->name), v))
            return false;
    }
    return true;
}

int template_render(const struct template *t, const struct template_input *in, struct marked *out, struct err *err)
{
    struct err own = {0};
    struct render r = {.t = t, .in = in, .out = out, .err = &own};
    size_t n_text = out->text.len, n_marks = out->marks.len;
    arena_init(&r.mem);
    r.root = scope_push(&r);
    bool ok = r.root && set_vars(&r, in) && run_list(&r, t->body);
    if (ok && (out->text.failed || out->marks.failed))
        ok = render_fail(&r, ERR_NOMEM, "no memory for the text");
    arena_fini(&r.mem);
    if (ok)
        return 0;
    if (out->text.len > n_text)
        out->text.len = n_text;
    if (out->marks.len > n_marks)
        out->marks.len = n_marks;
    if (err)
        *err = own;
    return own.code ? own.code : ERR_INTERNAL;
}
