/* Tests: what may stand behind `is`, and as a name for select and
 * its like.
 * Owns the table of them. */
#include <string.h>

#include "text/template_parts.h"

typedef bool test_fn(struct render *r, const struct val *v, const struct val *arg, bool *out);

static bool is_defined(struct render *r, const struct val *v, const struct val *arg, bool *out)
{
    (void)r, (void)arg;
    *out = v->kind != V_UNDEF;
    return true;
}

static bool is_undefined(struct render *r, const struct val *v, const struct val *arg, bool *out)
{
    (void)r, (void)arg;
    *out = v->kind == V_UNDEF;
    return true;
}

static bool is_none(struct render *r, const struct val *v, const struct val *arg, bool *out)
{
    (void)r, (void)arg;
    *out = v->kind == V_NONE;
    return true;
}

static bool is_string(struct render *r, const struct val *v, const struct val *arg, bool *out)
{
    (void)r, (void)arg;
    *out = v->kind == V_STR;
    return true;
}

static bool is_mapping(struct render *r, const struct val *v, const struct val *arg, bool *out)
{
    (void)r, (void)arg;
    *out = v->kind == V_MAP;
    return true;
}

static bool is_boolean(struct render *r, const struct val *v, const struct val *arg, bool *out)
{
    (void)r, (void)arg;
    *out = v->kind == V_BOOL;
    return true;
}

static bool is_true(struct render *r, const struct val *v, const struct val *arg, bool *out)
{
    (void)r, (void)arg;
    *out = v->kind == V_BOOL && v->u.b;
    return true;
}

static bool is_false(struct render *r, const struct val *v, const struct val *arg, bool *out)
{
    (void)r, (void)arg;
    *out = v->kind == V_BOOL && !v->u.b;
    return true;
}

static bool is_integer(struct render *r, const struct val *v, const struct val *arg, bool *out)
{
    (void)r, (void)arg;
    *out = v->kind == V_INT || v->kind == V_BIG;
    return true;
}

static bool is_float(struct render *r, const struct val *v, const struct val *arg, bool *out)
{
    (void)r, (void)arg;
    *out = v->kind == V_FLOAT;
    return true;
}

static bool is_number(struct render *r, const struct val *v, const struct val *arg, bool *out)
{
    (void)r, (void)arg;
    *out = v->kind == V_INT || v->kind == V_BIG || v->kind == V_FLOAT || v->kind == V_BOOL;
    return true;
}

/* What has a length and items. */
static bool is_sequence(struct render *r, const struct val *v, const struct val *arg, bool *out)
{
    (void)r, (void)arg;
    *out = v->kind == V_STR || v->kind == V_MAP || v->kind == V_UNDEF || (v->kind == V_SEQ && v->u.seq->kind <= SEQ_RANGE);
    return true;
}

static bool is_iterable(struct render *r, const struct val *v, const struct val *arg, bool *out)
{
    (void)r, (void)arg;
    *out = v->kind == V_STR || v->kind == V_MAP || v->kind == V_UNDEF || v->kind == V_SEQ;
    return true;
}

static bool is_callable(struct render *r, const struct val *v, const struct val *arg, bool *out)
{
    (void)r, (void)arg;
    *out = v->kind == V_METHOD || v->kind == V_MACRO || v->kind == V_GLOBAL;
    return true;
}

static bool whole(struct render *r, const struct val *v, int64_t *i)
{
    return args_int(r, "a test of numbers", v, i);
}

static bool is_even(struct render *r, const struct val *v, const struct val *arg, bool *out)
{
    int64_t i;
    (void)arg;
    if (!whole(r, v, &i))
        return false;
    *out = i % 2 == 0;
    return true;
}

static bool is_odd(struct render *r, const struct val *v, const struct val *arg, bool *out)
{
    bool ok = is_even(r, v, arg, out);
    *out = !*out;
    return ok;
}

static bool is_divisible(struct render *r, const struct val *v, const struct val *arg, bool *out)
{
    int64_t i, by;
    if (!whole(r, v, &i) || !whole(r, arg, &by))
        return false;
    if (by == 0)
        return render_fail(r, ERR_FORMAT, "division by zero");
    *out = by == -1 || i % by == 0;
    return true;
}

static bool is_lower(struct render *r, const struct val *v, const struct val *arg, bool *out)
{
    struct tstr s;
    (void)arg;
    if (!val_to_str(r, v, &s))
        return false;
    *out = str_is_class(s, "islower");
    return true;
}

static bool is_upper(struct render *r, const struct val *v, const struct val *arg, bool *out)
{
    struct tstr s;
    (void)arg;
    if (!val_to_str(r, v, &s))
        return false;
    *out = str_is_class(s, "isupper");
    return true;
}

static bool is_eq(struct render *r, const struct val *v, const struct val *arg, bool *out)
{
    return val_compare(r, OP_EQ_, v, arg, out);
}

static bool is_ne(struct render *r, const struct val *v, const struct val *arg, bool *out)
{
    return val_compare(r, OP_NE_, v, arg, out);
}

static bool is_lt(struct render *r, const struct val *v, const struct val *arg, bool *out)
{
    return val_compare(r, OP_LT_, v, arg, out);
}

static bool is_le(struct render *r, const struct val *v, const struct val *arg, bool *out)
{
    return val_compare(r, OP_LE_, v, arg, out);
}

static bool is_gt(struct render *r, const struct val *v, const struct val *arg, bool *out)
{
    return val_compare(r, OP_GT_, v, arg, out);
}

static bool is_ge(struct render *r, const struct val *v, const struct val *arg, bool *out)
{
    return val_compare(r, OP_GE_, v, arg, out);
}

static bool is_in(struct render *r, const struct val *v, const struct val *arg, bool *out)
{
    return val_in(r, v, arg, out);
}

static bool is_same(struct render *r, const struct val *v, const struct val *arg, bool *out)
{
    if (v->kind == arg->kind && (v->kind == V_NONE || v->kind == V_BOOL)) {
        *out = v->kind == V_NONE || v->u.b == arg->u.b;
        return true;
    }
    if (v->kind != arg->kind || v->kind < V_SEQ) {
        *out = false;
        return v->kind != arg->kind || render_fail(r, ERR_UNSUPPORTED, "sameas between values of type %s", val_type(v));
    }
    *out = v->u.seq == arg->u.seq;
    return true;
}

static const struct {
    const char *name;
    test_fn *test;
    int n_args;
} tests[] = {
    {"defined", is_defined, 0}, {"undefined", is_undefined, 0}, {"none", is_none, 0}, {"string", is_string, 0},
    {"mapping", is_mapping, 0}, {"boolean", is_boolean, 0}, {"true", is_true, 0}, {"false", is_false, 0},
    {"integer", is_integer, 0}, {"float", is_float, 0}, {"number", is_number, 0}, {"sequence", is_sequence, 0},
    {"iterable", is_iterable, 0}, {"callable", is_callable, 0}, {"even", is_even, 0}, {"odd", is_odd, 0},
    {"divisibleby", is_divisible, 1}, {"lower", is_lower, 0}, {"upper", is_upper, 0}, {"eq", is_eq, 1}, {"equalto", is_eq, 1},
    {"==", is_eq, 1}, {"ne", is_ne, 1}, {"!=", is_ne, 1}, {"lt", is_lt, 1}, {"lessthan", is_lt, 1}, {"<", is_lt, 1},
    {"le", is_le, 1}, {"<=", is_le, 1}, {"gt", is_gt, 1}, {"greaterthan", is_gt, 1}, {">", is_gt, 1}, {"ge", is_ge, 1},
    {">=", is_ge, 1}, {"in", is_in, 1}, {"sameas", is_same, 1},
};

bool eval_test(struct render *r, const char *name, size_t len, const struct val *v, struct args *a, bool *out)
{
    struct tstr s = str_own(name, len);
    const struct val none = val_none();
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) {
        if (!str_is(s, tests[i].name))
            continue;
        if (a->n != (size_t)tests[i].n_args || a->n_named)
            return render_fail(r, ERR_FORMAT, "the test %s takes %d arguments", tests[i].name, tests[i].n_args);
        return tests[i].test(r, v, a->n ? &a->v[0] : &none, out);
    }
    return render_fail(r, ERR_UNSUPPORTED, "the test '%.*s' is unknown or not supported", (int)(len < 60 ? len : 60), name);
}
