/* Statements: from tokens to the tree.  Owns the table of
 * tags.
 * Expressions are template_expr.c's. */
#include <string.h>

#include "text/template_parts.h"

/* Whether the parser stands on a tag with one of the words (a list with blanks between). */
static bool at_tag(const struct parser *p, const char *words)
{
    if (p->at->kind != T_BLOCK_BEGIN || p->at[1].kind != T_NAME)
        return false;
    for (const char *w = words; *w;) {
        size_t n = strcspn(w, " ");
        if (n == p->at[1].len && memcmp(w, p->at[1].s, n) == 0)
            return true;
        w += n + (w[n] == ' ');
    }
    return false;
}

static bool statement(struct parser *p, struct node ***last);

/* Statements up to a tag of `until`, on which the parser then stands, behind its word.  NULL words = the end. */
static bool body(struct parser *p, const char *until, struct node **out)
{
    struct node **last = out;
    *out = NULL;
    if (++p->depth > TEMPLATE_DEPTH_MAX) {
        parse_fail(p, "nested deeper than %d", TEMPLATE_DEPTH_MAX);
        return false;
    }
    int line = p->at->line;
    while (!(until && at_tag(p, until))) {
        if (p->at->kind == T_END) {
            p->depth--;
            if (until)
                parse_fail(p, "the block that begins on line %d is not closed (%s)", line, until);
            return !until;
        }
        if (!statement(p, &last))
            return false;
    }
    p->depth--;
    p->at += 2;
    return true;
}

static bool end_tag(struct parser *p)
{
    return parse_want(p, T_BLOCK_END, NULL);
}

static struct node *parse_if(struct parser *p)
{
    struct node *n = parse_node(p, N_IF), *at = n;
    if (!n || !(n->a = parse_tuple(p, false)) || !end_tag(p))
        return NULL;
    for (;;) {
        if (!body(p, "elif else endif", &at->b))
            return NULL;
        const struct tok *word = p->at - 1;
        if (word->len == 5)
            return end_tag(p) ? n : NULL;
        if (word->s[2] == 's') /* else */
            return end_tag(p) && body(p, "endif", &n->c) && end_tag(p) ? n : NULL;
        struct node *next = parse_node(p, N_IF); /* elif: a chain, not a nest */
        if (!next || !(next->a = parse_tuple(p, false)) || !end_tag(p))
            return NULL;
        at->d = next;
        at = next;
    }
}

/* a target, b iterable, c condition, d: N_BODY with a body, b else */
static struct node *parse_for(struct parser *p)
{
    struct node *n = parse_node(p, N_FOR);
    if (!n || !(n->a = parse_target(p, false)) || !parse_want(p, T_NAME, "in") || !(n->b = parse_tuple(p, false)))
        return NULL;
    if (parse_skip(p, T_NAME, "if") && !(n->c = parse_expr(p)))
        return NULL;
    if (parse_is(p, T_NAME, "recursive"))
        return parse_fail(p, "recursive loops are not supported");
    if (!end_tag(p) || !(n->d = parse_node(p, N_BODY)))
        return NULL;
    p->loops++;
    bool ok = body(p, "else endfor", &n->d->a);
    p->loops--;
    if (!ok)
        return NULL;
    if (p->at[-1].len == 4) /* else */
        ok = end_tag(p) && body(p, "endfor", &n->d->b);
    return ok && end_tag(p) ? n : NULL;
}

static struct node *parse_set(struct parser *p)
{
    struct node *n = parse_node(p, N_SET);
    if (!n || !(n->a = parse_target(p, true)))
        return NULL;
    if (parse_skip(p, T_OP, "=")) {
        n->b = parse_tuple(p, true);
        return n->b && end_tag(p) ? n : NULL;
    }
    n->kind = N_SET_BLOCK;
    if (n->a->kind == N_TUPLE)
        return parse_fail(p, "a block can be set to one name only");
    while (parse_skip(p, T_OP, "|"))
        if (!(n->c = parse_filters(p, n->c)))
            return NULL;
    return end_tag(p) && body(p, "endset", &n->b) && end_tag(p) ? n : NULL;
}

/* Parameters of a macro: N_KEYWORD with a default in a, or none. */
static bool parameters(struct parser *p, struct node **out)
{
    struct node **last = out;
    if (!parse_want(p, T_OP, "("))
        return false;
    while (!parse_skip(p, T_OP, ")")) {
        if (*out && !parse_want(p, T_OP, ","))
            return false;
        if (*out && parse_skip(p, T_OP, ")"))
            return true;
        struct node *n = parse_node(p, N_KEYWORD);
        if (!n)
            return false;
        n->s = str_own(p->at->s, p->at->len);
        if (!parse_want(p, T_NAME, NULL) || (parse_skip(p, T_OP, "=") && !(n->a = parse_expr(p))))
            return false;
        *last = n;
        last = &n->next;
    }
    return true;
}

/* Inside a macro a break would leave a loop outside of it. */
static bool macro_body(struct parser *p, const char *end, struct node **out)
{
    int loops = p->loops;
    p->loops = 0;
    bool ok = body(p, end, out) && end_tag(p);
    p->loops = loops;
    return ok;
}

static struct node *parse_macro(struct parser *p)
{
    struct node *n = parse_node(p, N_MACRO);
    if (!n)
        return NULL;
    n->s = str_own(p->at->s, p->at->len);
    if (!parse_want(p, T_NAME, NULL) || !parameters(p, &n->a) || !end_tag(p))
        return NULL;
    return macro_body(p, "endmacro", &n->b) ? n : NULL;
}

/* b: the N_MACRO that is the caller, a: the call */
static struct node *parse_call(struct parser *p)
{
    struct node *n = parse_node(p, N_CALL_BLOCK), *caller = n ? parse_node(p, N_MACRO) : NULL;
    if (!caller)
        return NULL;
    caller->s = str_own("caller", 6);
    if (parse_is(p, T_OP, "(") && !parameters(p, &caller->a))
        return NULL;
    n->b = caller;
    if (!(n->a = parse_expr(p)))
        return NULL;
    if (n->a->kind != N_CALL)
        return parse_fail(p, "expected a call");
    return end_tag(p) && macro_body(p, "endcall", &caller->b) ? n : NULL;
}

static struct node *parse_filter_block(struct parser *p)
{
    struct node *n = parse_node(p, N_FILTER_BLOCK);
    if (!n || !(n->c = parse_filters(p, NULL)))
        return NULL;
    while (parse_skip(p, T_OP, "|"))
        if (!(n->c = parse_filters(p, n->c)))
            return NULL;
    return end_tag(p) && body(p, "endfilter", &n->b) && end_tag(p) ? n : NULL;
}

/* a: a list of N_SET */
static struct node *parse_with(struct parser *p)
{
    struct node *n = parse_node(p, N_WITH), **last = n ? &n->a : NULL;
    while (n && p->at->kind != T_BLOCK_END) {
        struct node *set = n->a && !parse_want(p, T_OP, ",") ? NULL : parse_node(p, N_SET);
        if (!set || !(set->a = parse_target(p, false)) || !parse_want(p, T_OP, "=") || !(set->b = parse_expr(p)))
            return NULL;
        *last = set;
        last = &set->next;
    }
    return n && end_tag(p) && body(p, "endwith", &n->b) && end_tag(p) ? n : NULL;
}

static struct node *parse_generation(struct parser *p)
{
    struct node *n = parse_node(p, N_BODY);
    return n && end_tag(p) && macro_body(p, "endgeneration", &n->a) ? n : NULL;
}

static struct node *leave(struct parser *p, enum node_kind kind)
{
    if (p->loops == 0)
        return parse_fail(p, "break or continue outside of a loop");
    struct node *n = parse_node(p, kind);
    return n && end_tag(p) ? n : NULL;
}

static struct node *parse_break(struct parser *p)
{
    return leave(p, N_BREAK);
}

static struct node *parse_continue(struct parser *p)
{
    return leave(p, N_CONTINUE);
}

static const struct {
    const char *word;
    struct node *(*parse)(struct parser *);
} tags[] = {
    {"if", parse_if}, {"for", parse_for}, {"set", parse_set}, {"macro", parse_macro}, {"call", parse_call},
    {"filter", parse_filter_block}, {"with", parse_with}, {"generation", parse_generation}, {"break", parse_break},
    {"continue", parse_continue},
};

static struct node *tag(struct parser *p)
{
    if (p->at->kind != T_NAME)
        return parse_fail(p, "a block begins with the name of its tag");
    for (size_t i = 0; i < sizeof tags / sizeof *tags; i++)
        if (parse_skip(p, T_NAME, tags[i].word))
            return tags[i].parse(p);
    return parse_fail(p, "the tag '%.*s' is unknown or not supported", (int)(p->at->len < 60 ? p->at->len : 60), p->at->s);
}

static bool statement(struct parser *p, struct node ***last)
{
    struct node *n;
    if (p->at->kind == T_DATA) {
        if ((n = parse_node(p, N_TEXT)))
            n->s = str_own(p->at->s, p->at->len);
        p->at++;
    } else if (parse_skip(p, T_VAR_BEGIN, NULL)) {
        n = parse_node(p, N_OUTPUT);
        if (n && (!(n->a = parse_tuple(p, true)) || !parse_want(p, T_VAR_END, NULL)))
            return false;
    } else {
        p->at++; /* T_BLOCK_BEGIN: nothing else stands between tags */
        n = tag(p);
    }
    if (!n)
        return false;
    **last = n;
    *last = &n->next;
    return true;
}

int parse_body(struct parser *p, struct err *err)
{
    if (body(p, NULL, &p->t->body))
        return 0;
    return err && err->code ? err->code : err_set(err, ERR_FORMAT, "%s: line %d: the template is malformed", p->t->name, p->at->line);
}
