/* Evaluates expressions: names, access, calls of macros and methods,
 * filters, tests.
 * Operators are template_ops.c's, statements template_stmt.c's; what is built in is found in tables by name. */
#include <string.h>

#include "text/template_parts.h"

/* ---- names ---- */

struct scope *scope_push(struct render *r)
{
    struct scope *s = render_alloc(r, sizeof *s);
    if (!s)
        return NULL;
    s->parent = r->scope;
    r->scope = s;
    return s;
}

static struct val *scope_find(const struct scope *s, const char *name, size_t len)
{
    for (size_t i = 0; i < s->n; i++)
        if (s->names[i].u.s.len == len && memcmp(s->names[i].u.s.s, name, len) == 0)
            return &s->vals[i];
    return NULL;
}

bool scope_set(struct render *r, struct scope *s, const char *name, size_t len, struct val v)
{
    struct val *there = scope_find(s, name, len);
    if (there) {
        *there = v;
        return true;
    }
    if (s->n == s->cap) {
        size_t cap = s->cap ? 2 * s->cap : 4;
        struct val *names = render_alloc(r, cap * sizeof *names), *vals = names ? render_alloc(r, cap * sizeof *vals) : NULL;
        if (!vals)
            return false;
        if (s->n) {
            memcpy(names, s->names, s->n * sizeof *names);
            memcpy(vals, s->vals, s->n * sizeof *vals);
        }
        s->names = names;
        s->vals = vals;
        s->cap = cap;
    }
    s->names[s->n] = val_strn(str_own(name, len));
    s->vals[s->n++] = v;
    return true;
}

static bool eval_name(struct render *r, const struct node *n, struct val *out)
{
    for (const struct scope *s = r->scope; s; s = s->parent) {
        const struct val *v = scope_find(s, n->s.s, n->s.len);
        if (v) {
            *out = *v;
            return true;
        }
        if (!render_step(r, s->n / 4))
            return false;
    }
    const struct tglobal *g = global_find(n->s.s, n->s.len);
    *out = g ? (struct val){.kind = V_GLOBAL, .u.global = g} : val_undef(n->s.s, n->s.len);
    return true;
}

/* ---- access ---- */

static bool undefined(struct render *r, const struct val *v)
{
    return render_fail(r, ERR_FORMAT, "'%.*s' is undefined", (int)(v->u.s.len < 80 ? v->u.s.len : 80), v->u.s.s);
}

static bool loop_attr(struct render *r, const struct tloop *l, const char *name, size_t len, struct val *out)
{
    int64_t i = (int64_t)l->i, n = (int64_t)l->seq->n;
    const struct {
        const char *name;
        int64_t value;
    } numbers[] = {{"index", i + 1}, {"index0", i}, {"revindex", n - i}, {"revindex0", n - i - 1}, {"length", n},
                   {"depth", l->depth + 1}, {"depth0", l->depth}};
    struct tstr s = str_own(name, len);
    for (size_t k = 0; k < sizeof numbers / sizeof *numbers; k++)
        if (str_is(s, numbers[k].name)) {
            *out = val_int(numbers[k].value);
            return true;
        }
    if (str_is(s, "first"))
        *out = val_bool(i == 0);
    else if (str_is(s, "last"))
        *out = val_bool(i == n - 1);
    else if (str_is(s, "previtem"))
        *out = i > 0 ? l->seq->v[i - 1] : val_undef("there is no previous item", 25);
    else if (str_is(s, "nextitem"))
        *out = i + 1 < n ? l->seq->v[i + 1] : val_undef("there is no next item", 21);
    else
        return render_fail(r, ERR_UNSUPPORTED, "loop.%.*s is unknown or not supported", (int)(len < 60 ? len : 60), name);
    return true;
}

/* A method of the value, or what is none; -1 = failed, 1 = found. */
static int bound_method(struct render *r, const struct val *v, const char *name, size_t len, struct val *out)
{
    const char *found = NULL;
    switch (method_find(v, name, len, &found)) {
    case METHOD_NONE:
        return 0;
    case METHOD_MISSING:
        render_fail(r, ERR_UNSUPPORTED, "the method %s of a %s is not supported", found, val_type(v));
        return -1;
    default:
        break;
    }
    struct tmethod *m = render_alloc(r, sizeof *m);
    if (!m)
        return -1;
    *m = (struct tmethod){*v, found};
    *out = (struct val){.kind = V_METHOD, .u.method = m};
    return 1;
}

bool eval_attr(struct render *r, const struct val *v, const char *name, size_t len, struct val *out)
{
    const struct val *there;
    if (v->kind == V_UNDEF)
        return undefined(r, v);
    if (len > 0 && name[0] == '_' && v->kind != V_MAP)
        return render_fail(r, ERR_UNSUPPORTED, "access to the attribute '%.*s' is not allowed", (int)(len < 60 ? len : 60), name);
    if (v->kind == V_SPACE) {
        there = map_get_str(r, v->u.map, name, len);
        *out = there ? *there : val_undef(name, len);
        return true;
    }
    int found = bound_method(r, v, name, len, out);
    if (found)
        return found > 0;
    if (v->kind == V_LOOP)
        return loop_attr(r, v->u.loop, name, len, out);
    if (v->kind == V_MACRO && len == 4 && memcmp(name, "name", 4) == 0) {
        *out = val_strn(v->u.macro->node->s);
        return true;
    }
    there = v->kind == V_MAP ? map_get_str(r, v->u.map, name, len) : NULL;
    *out = there ? *there : val_undef(name, len);
    return true;
}

/* Item i of n, counted from the end where it is negative; false = there is none. */
static bool index_of(int64_t i, size_t n, size_t *out)
{
    if (i < 0)
        i += (int64_t)n;
    if (i < 0 || (uint64_t)i >= n)
        return false;
    *out = (size_t)i;
    return true;
}

bool eval_item(struct render *r, const struct val *v, const struct val *key, struct val *out)
{
    size_t at;
    int64_t i = key->kind == V_BOOL ? key->u.b : key->u.i;
    bool whole = key->kind == V_INT || key->kind == V_BOOL;
    *out = val_undef("an item", 7);
    if (v->kind == V_UNDEF)
        return undefined(r, v);
    if (v->kind == V_MAP) {
        const struct val *there = map_get(r, v->u.map, key);
        if (there) {
            *out = *there;
            return true;
        }
    } else if (whole && v->kind == V_SEQ && v->u.seq->kind <= SEQ_RANGE) {
        if (index_of(i, v->u.seq->n, &at))
            *out = v->u.seq->v[at];
        return true;
    } else if (whole && v->kind == V_STR) {
        uint32_t cp;
        if (!render_step(r, v->u.s.len / 16))
            return false;
        if (index_of(i, str_chars(v->u.s), &at)) {
            at = str_offset(v->u.s, at);
            *out = val_strn(str_part(v->u.s, at, char_at(v->u.s, at, &cp)));
        }
        return true;
    }
    if (key->kind == V_STR) {
        int found = v->kind == V_SPACE || v->kind == V_LOOP || v->kind == V_MACRO
                        ? eval_attr(r, v, key->u.s.s, key->u.s.len, out) ? 1 : -1
                        : bound_method(r, v, key->u.s.s, key->u.s.len, out);
        if (found == 0)
            *out = val_undef(key->u.s.s, key->u.s.len);
        return found >= 0;
    }
    return true;
}

bool eval_path(struct render *r, const struct val *v, const struct val *path, struct val *out)
{
    *out = *v;
    if (path->kind == V_INT)
        return eval_item(r, v, path, out);
    struct tstr s = path->u.s;
    for (size_t i = 0; i <= s.len;) {
        const char *dot = i < s.len ? memchr(s.s + i, '.', s.len - i) : NULL;
        size_t n = dot ? (size_t)(dot - s.s) - i : s.len - i;
        bool digits = n > 0 && n < 10;
        int64_t number = 0;
        for (size_t k = 0; k < n && digits; k++) {
            digits = s.s[i + k] >= '0' && s.s[i + k] <= '9';
            number = number * 10 + (s.s[i + k] - '0');
        }
        struct val key = digits ? val_int(number) : val_strn(str_part(s, i, n)), next;
        if (!render_step(r, 1) || !eval_item(r, out, &key, &next))
            return false;
        *out = next;
        i += n + 1;
    }
    return true;
}

/* ---- arguments ---- */

bool eval_args(struct render *r, const struct node *list, struct args *out)
{
    size_t n = 0, n_named = 0;
    *out = (struct args){0};
    for (const struct node *a = list; a; a = a->next)
        *(a->kind == N_KEYWORD ? &n_named : &n) += 1;
    if ((n && !(out->v = render_alloc(r, n * sizeof *out->v))) ||
        (n_named && (!(out->names = render_alloc(r, n_named * sizeof *out->names)) ||
                     !(out->named = render_alloc(r, n_named * sizeof *out->named)))))
        return false;
    for (const struct node *a = list; a; a = a->next) {
        if (a->kind != N_KEYWORD) {
            if (!eval(r, a, &out->v[out->n++]))
                return false;
            continue;
        }
        for (size_t k = 0; k < out->n_named; k++)
            if (str_same(out->names[k].u.s, a->s))
                return render_fail(r, ERR_FORMAT, "the argument %.*s is given twice", (int)a->s.len, a->s.s);
        out->names[out->n_named] = val_strn(a->s);
        if (!eval(r, a->a, &out->named[out->n_named++]))
            return false;
    }
    return true;
}

bool args_take(struct render *r, const char *what, struct args *a, const char *const *names, size_t n, size_t n_required,
               struct val *out)
{
    bool given[8] = {0};
    if (a->n > n)
        return render_fail(r, ERR_FORMAT, "%s takes at most %zu arguments, %zu are given", what, n, a->n);
    for (size_t i = 0; i < a->n; i++) {
        out[i] = a->v[i];
        given[i] = true;
    }
    for (size_t k = 0; k < a->n_named; k++) {
        size_t i = 0;
        while (i < n && !str_is(a->names[k].u.s, names[i]))
            i++;
        if (i == n || given[i])
            return render_fail(r, ERR_FORMAT, "%s: the argument %.*s is %s", what, (int)a->names[k].u.s.len, a->names[k].u.s.s,
                               i == n ? "unknown or not supported" : "given twice");
        out[i] = a->named[k];
        given[i] = true;
    }
    for (size_t i = 0; i < n_required; i++)
        if (!given[i])
            return render_fail(r, ERR_FORMAT, "%s: the argument %s is missing", what, names[i]);
    return true;
}

bool args_int(struct render *r, const char *what, const struct val *v, int64_t *out)
{
    if (v->kind != V_INT && v->kind != V_BOOL)
        return render_fail(r, ERR_FORMAT, "%s: a whole number is needed, not a %s", what, val_type(v));
    *out = v->kind == V_INT ? v->u.i : v->u.b;
    return true;
}

bool args_str(struct render *r, const char *what, const struct val *v, struct tstr *out)
{
    if (v->kind != V_STR)
        return render_fail(r, ERR_FORMAT, "%s: a string is needed, not a %s", what, val_type(v));
    *out = v->u.s;
    return true;
}

/* ---- calls ---- */

bool eval_call(struct render *r, const struct val *f, struct args *a, struct val *out)
{
    switch (f->kind) {
    case V_UNDEF:
        return undefined(r, f);
    case V_METHOD:
        return eval_method(r, f->u.method, a, out);
    case V_MACRO:
        return call_macro(r, f->u.macro, a, out);
    case V_GLOBAL:
        return global_call(r, f->u.global, a, out);
    default:
        return render_fail(r, ERR_FORMAT, "a value of type %s cannot be called", val_type(f));
    }
}

static bool call_node(struct render *r, const struct node *n, struct val *out)
{
    struct val f;
    struct args a;
    if (!eval(r, n->a, &f) || !eval_args(r, n->b, &a))
        return false;
    r->line = n->line;
    return eval_call(r, &f, &a, out);
}

static bool filter_node(struct render *r, const struct node *n, struct val *out)
{
    struct val v;
    struct args a;
    if (!eval(r, n->a, &v) || !eval_args(r, n->b, &a))
        return false;
    r->line = n->line;
    return eval_filter(r, n->s.s, n->s.len, &v, &a, out);
}

static bool test_node(struct render *r, const struct node *n, struct val *out)
{
    struct val v;
    struct args a;
    bool yes;
    if (!eval(r, n->a, &v) || !eval_args(r, n->b, &a))
        return false;
    r->line = n->line;
    if (!eval_test(r, n->s.s, n->s.len, &v, &a, &yes))
        return false;
    *out = val_bool(yes != n->flag);
    return true;
}

/* ---- displays and operators ---- */

static bool list_node(struct render *r, const struct node *n, struct val *out)
{
    if (!seq_new(r, n->kind == N_TUPLE ? SEQ_TUPLE : SEQ_LIST, 0, out))
        return false;
    for (const struct node *m = n->a; m; m = m->next) {
        struct val v;
        if (!eval(r, m, &v) || !seq_push(r, out->u.seq, v))
            return false;
    }
    return true;
}

static bool dict_node(struct render *r, const struct node *n, struct val *out)
{
    if (!map_new(r, V_MAP, out))
        return false;
    for (const struct node *m = n->a; m; m = m->next) {
        struct val k, v;
        if (!eval(r, m->a, &k) || !eval(r, m->b, &v) || !map_set(r, out->u.map, k, v))
            return false;
    }
    return true;
}

static bool compare_node(struct render *r, const struct node *n, struct val *out)
{
    struct val left, right;
    bool yes = true;
    if (!eval(r, n->a, &left))
        return false;
    for (const struct node *p = n->b; p && yes; p = p->next) {
        if (!eval(r, p->a, &right) || !val_compare(r, p->op, &left, &right, &yes))
            return false;
        left = right;
    }
    *out = val_bool(yes);
    return true;
}

static bool concat_node(struct render *r, const struct node *n, struct val *out)
{
    struct marked m;
    struct val v;
    bool ok = true;
    marked_init(&m);
    for (const struct node *p = n->a; p && ok; p = p->next)
        ok = eval(r, p, &v) && val_str(r, &v, &m);
    ok = ok && val_from_marked(r, &m, out);
    marked_fini(&m);
    return ok;
}

static bool sign_node(struct render *r, const struct node *n, struct val *out)
{
    struct val v;
    double f;
    int64_t i;
    bool whole;
    if (!eval(r, n->a, &v))
        return false;
    if (v.kind == V_UNDEF)
        return undefined(r, &v);
    if (!val_number(&v, &f, &i, &whole) || (whole && i == INT64_MIN))
        return render_fail(r, ERR_FORMAT, "a sign before a value of type %s", val_type(&v));
    bool minus = n->kind == N_NEG;
    *out = whole ? val_int(minus ? -i : i) : val_float(minus ? -f : f);
    return true;
}

static bool slice_node(struct render *r, const struct node *n, struct val *out)
{
    struct val v, part[3] = {val_none(), val_none(), val_none()};
    const struct node *nodes[3] = {n->b, n->c, n->d};
    if (!eval(r, n->a, &v))
        return false;
    for (int i = 0; i < 3; i++)
        if (nodes[i] && !eval(r, nodes[i], &part[i]))
            return false;
    if (v.kind == V_UNDEF)
        return undefined(r, &v);
    return val_slice(r, &v, &part[0], &part[1], &part[2], out);
}

static bool logic_node(struct render *r, const struct node *n, struct val *out)
{
    if (!eval(r, n->a, out))
        return false;
    if (n->kind == N_NOT) {
        *out = val_bool(!val_truth(out));
        return true;
    }
    return val_truth(out) == (n->kind == N_OR) ? true : eval(r, n->b, out);
}

static bool cond_node(struct render *r, const struct node *n, struct val *out)
{
    if (!eval(r, n->b, out))
        return false;
    if (val_truth(out))
        return eval(r, n->a, out);
    if (n->c)
        return eval(r, n->c, out);
    *out = val_undef("the value of an if without else", 31);
    return true;
}

static bool binary_node(struct render *r, const struct node *n, struct val *out)
{
    struct val a, b;
    return eval(r, n->a, &a) && eval(r, n->b, &b) && val_binary(r, n->op, &a, &b, out);
}

static bool access_node(struct render *r, const struct node *n, struct val *out)
{
    struct val v, key;
    if (!eval(r, n->a, &v))
        return false;
    r->line = n->line;
    if (n->kind == N_ATTR)
        return eval_attr(r, &v, n->s.s, n->s.len, out);
    return eval(r, n->b, &key) && eval_item(r, &v, &key, out);
}

static bool eval_node(struct render *r, const struct node *n, struct val *out)
{
    switch (n->kind) {
    case N_CONST:
        *out = n->value;
        return true;
    case N_NAME:
        return eval_name(r, n, out);
    case N_LIST:
    case N_TUPLE:
        return list_node(r, n, out);
    case N_DICT:
        return dict_node(r, n, out);
    case N_COND:
        return cond_node(r, n, out);
    case N_OR:
    case N_AND:
    case N_NOT:
        return logic_node(r, n, out);
    case N_COMPARE:
        return compare_node(r, n, out);
    case N_BINARY:
        return binary_node(r, n, out);
    case N_CONCAT:
        return concat_node(r, n, out);
    case N_NEG:
    case N_POS:
        return sign_node(r, n, out);
    case N_ATTR:
    case N_ITEM:
        return access_node(r, n, out);
    case N_SLICE:
        return slice_node(r, n, out);
    case N_CALL:
        return call_node(r, n, out);
    case N_FILTER:
        return filter_node(r, n, out);
    case N_TEST:
        return test_node(r, n, out);
    default:
        return render_fail(r, ERR_INTERNAL, "a statement stands where a value should");
    }
}

bool eval(struct render *r, const struct node *n, struct val *out)
{
    r->line = n->line;
    if (!render_step(r, 1))
        return false;
    if (++r->nested > TEMPLATE_EVAL_MAX)
        return render_fail(r, ERR_LIMIT, "expressions and macros nested deeper than %d", TEMPLATE_EVAL_MAX);
    bool ok = eval_node(r, n, out);
    r->nested--;
    return ok;
}
