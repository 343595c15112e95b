/* Runs statements: output, conditions, loops, assignments,
 * macros.
 * Scopes are as Jinja has them: a loop's turn, a macro and a with have one of their own, an if has none. */
#include <string.h>

#include "text/template_parts.h"

static bool check_output(struct render *r)
{
    if (r->out->text.len > TEMPLATE_OUTPUT_MAX)
        return render_fail(r, ERR_LIMIT, "the text is over the limit of %zu MiB", TEMPLATE_OUTPUT_MAX >> 20);
    return !r->out->text.failed || render_fail(r, ERR_NOMEM, "no memory for the text");
}

static bool assign(struct render *r, const struct node *target, struct val v)
{
    if (target->kind == N_NAME)
        return scope_set(r, r->scope, target->s.s, target->s.len, v);
    if (target->kind == N_TUPLE) {
        struct tseq *s;
        size_t n = 0, i = 0;
        if (!val_iterate(r, &v, &s))
            return false;
        for (const struct node *m = target->a; m; m = m->next)
            n++;
        if (s->n != n)
            return render_fail(r, ERR_FORMAT, "%zu values for %zu names", s->n, n);
        for (const struct node *m = target->a; m; m = m->next)
            if (!assign(r, m, s->v[i++]))
                return false;
        return true;
    }
    struct val space;
    if (target->kind != N_ATTR || !eval(r, target->a, &space))
        return target->kind == N_ATTR ? false : render_fail(r, ERR_FORMAT, "this cannot be assigned to");
    if (space.kind != V_SPACE)
        return render_fail(r, ERR_FORMAT, "an attribute can be assigned to a namespace only, not to a %s", val_type(&space));
    return map_set(r, space.u.map, val_strn(target->s), v);
}

/* Runs statements with their output as a string. */
static bool capture(struct render *r, const struct node *list, struct val *out)
{
    struct marked m, *outer = r->out;
    marked_init(&m);
    r->out = &m;
    bool ok = run_list(r, list);
    r->out = outer;
    ok = ok && val_from_marked(r, &m, out);
    marked_fini(&m);
    return ok;
}

/* Filters of a block, the innermost first, on its text. */
static bool filter_text(struct render *r, const struct node *filter, struct val *v)
{
    struct args a;
    struct val in;
    if (!filter)
        return true;
    if (!filter_text(r, filter->a, v) || !eval_args(r, filter->b, &a))
        return false;
    in = *v;
    return eval_filter(r, filter->s.s, filter->s.len, &in, &a, v);
}

static bool run_if(struct render *r, const struct node *n)
{
    for (const struct node *at = n; at; at = at->d) {
        struct val v;
        if (!eval(r, at->a, &v))
            return false;
        if (val_truth(&v))
            return run_list(r, at->b);
    }
    return run_list(r, n->c);
}

/* The values that the loop's condition keeps. */
static bool keep_some(struct render *r, const struct node *n, const struct tseq *all, struct tseq **out)
{
    struct val kept, v;
    struct scope *outer = r->scope;
    if (!seq_new(r, SEQ_LIST, 0, &kept))
        return false;
    for (size_t i = 0; i < all->n; i++) {
        bool ok = scope_push(r) && assign(r, n->a, all->v[i]) && eval(r, n->c, &v) &&
                  (!val_truth(&v) || seq_push(r, kept.u.seq, all->v[i]));
        r->scope = outer;
        if (!ok)
            return false;
    }
    *out = kept.u.seq;
    return true;
}

static bool loop_turns(struct render *r, const struct node *n, struct tloop *loop)
{
    struct scope *outer = r->scope;
    bool ok = true;
    for (size_t i = 0; i < loop->seq->n && ok; i++) {
        loop->i = i;
        ok = scope_push(r) && scope_set(r, r->scope, "loop", 4, (struct val){.kind = V_LOOP, .u.loop = loop}) &&
             assign(r, n->a, loop->seq->v[i]) && run_list(r, n->d->a);
        r->scope = outer;
        bool leave = r->has_return && r->leaving == N_BREAK;
        r->has_return = false;
        if (leave)
            break;
    }
    return ok;
}

static bool run_for(struct render *r, const struct node *n)
{
    struct val v;
    struct tseq *s;
    if (!eval(r, n->b, &v) || !val_iterate(r, &v, &s))
        return false;
    if (n->c && !keep_some(r, n, s, &s))
        return false;
    if (s->n == 0) {
        struct scope *outer = r->scope;
        bool ok = scope_push(r) && run_list(r, n->d->b);
        r->scope = outer;
        return ok;
    }
    struct tloop *loop = render_alloc(r, sizeof *loop);
    if (!loop)
        return false;
    *loop = (struct tloop){.seq = s};
    return loop_turns(r, n, loop);
}

static bool run_macro(struct render *r, const struct node *n, struct val *out)
{
    struct tmacro *m = render_alloc(r, sizeof *m);
    if (!m)
        return false;
    *m = (struct tmacro){n, r->scope};
    *out = (struct val){.kind = V_MACRO, .u.macro = m};
    return true;
}

/* The arguments as names in the macro's own scope; `caller` may be given by name. */
static bool bind_args(struct render *r, const struct tmacro *m, struct args *a)
{
    size_t i = 0, n_used = 0;
    for (const struct node *p = m->node->a; p; p = p->next, i++) {
        struct val v = val_undef(p->s.s, p->s.len);
        bool given = i < a->n;
        if (given)
            v = a->v[i];
        for (size_t k = 0; k < a->n_named; k++)
            if (str_same(a->names[k].u.s, p->s)) {
                if (given)
                    return render_fail(r, ERR_FORMAT, "the macro %.*s gets its argument %.*s twice", (int)m->node->s.len,
                                       m->node->s.s, (int)p->s.len, p->s.s);
                v = a->named[k];
                given = true;
                n_used++;
            }
        if ((!given && p->a && !eval(r, p->a, &v)) || !scope_set(r, r->scope, p->s.s, p->s.len, v))
            return false;
    }
    for (size_t k = 0; k < a->n_named; k++)
        if (str_is(a->names[k].u.s, "caller")) {
            if (!scope_set(r, r->scope, "caller", 6, a->named[k]))
                return false;
            n_used++;
        }
    if (a->n > i || n_used < a->n_named)
        return render_fail(r, ERR_FORMAT, "the macro %.*s gets more arguments than it takes", (int)m->node->s.len, m->node->s.s);
    return true;
}

bool call_macro(struct render *r, const struct tmacro *m, struct args *a, struct val *out)
{
    struct scope *outer = r->scope;
    if (++r->calls > TEMPLATE_CALLS_MAX)
        return render_fail(r, ERR_LIMIT, "macros call each other deeper than %d", TEMPLATE_CALLS_MAX);
    r->scope = m->scope;
    bool ok = scope_push(r) && bind_args(r, m, a) && capture(r, m->node->b, out);
    r->scope = outer;
    r->calls--;
    return ok;
}

static bool run_call_block(struct render *r, const struct node *n, struct val *out)
{
    struct val f;
    struct args a;
    if (!eval(r, n->a->a, &f) || !eval_args(r, n->a->b, &a))
        return false;
    struct val *names = render_alloc(r, (a.n_named + 1) * sizeof *names);
    struct val *named = names ? render_alloc(r, (a.n_named + 1) * sizeof *named) : NULL;
    if (!named)
        return false;
    if (a.n_named) {
        memcpy(names, a.names, a.n_named * sizeof *names);
        memcpy(named, a.named, a.n_named * sizeof *named);
    }
    a.names = names;
    a.named = named;
    names[a.n_named] = val_lit("caller");
    return run_macro(r, n->b, &named[a.n_named++]) && eval_call(r, &f, &a, out);
}

static bool run_with(struct render *r, const struct node *n)
{
    struct scope *outer = r->scope, *inner = scope_push(r);
    bool ok = inner != NULL;
    for (const struct node *s = n->a; s && ok; s = s->next) {
        struct val v;
        r->scope = outer; /* none of them sees the others */
        ok = eval(r, s->b, &v);
        r->scope = inner;
        ok = ok && assign(r, s->a, v);
    }
    ok = ok && run_list(r, n->b);
    r->scope = outer;
    return ok;
}

static bool put(struct render *r, const struct val *v)
{
    return val_str(r, v, r->out) && check_output(r);
}

static bool run(struct render *r, const struct node *n)
{
    struct val v;
    switch (n->kind) {
    case N_TEXT:
        marked_own(r->out, n->s.s, n->s.len);
        return render_step(r, n->s.len / 16) && check_output(r);
    case N_OUTPUT:
        return eval(r, n->a, &v) && put(r, &v);
    case N_IF:
        return run_if(r, n);
    case N_FOR:
        return run_for(r, n);
    case N_SET:
        return eval(r, n->b, &v) && assign(r, n->a, v);
    case N_SET_BLOCK:
        return capture(r, n->b, &v) && filter_text(r, n->c, &v) && assign(r, n->a, v);
    case N_MACRO:
        return run_macro(r, n, &v) && scope_set(r, r->scope, n->s.s, n->s.len, v);
    case N_CALL_BLOCK:
        return run_call_block(r, n, &v) && put(r, &v);
    case N_FILTER_BLOCK:
        return capture(r, n->b, &v) && filter_text(r, n->c, &v) && put(r, &v);
    case N_WITH:
        return run_with(r, n);
    case N_BODY:
        return run_list(r, n->a);
    case N_BREAK:
    case N_CONTINUE:
        r->has_return = true;
        r->leaving = n->kind;
        return true;
    default:
        return render_fail(r, ERR_INTERNAL, "a value stands where a statement should");
    }
}

bool run_list(struct render *r, const struct node *list)
{
    if (++r->nested > TEMPLATE_EVAL_MAX)
        return render_fail(r, ERR_LIMIT, "blocks and macros nested deeper than %d", TEMPLATE_EVAL_MAX);
    for (const struct node *n = list; n && !r->has_return; n = n->next) {
        r->line = n->line;
        if (!render_step(r, 1) || !run(r, n))
            return false;
    }
    r->nested--;
    return true;
}
