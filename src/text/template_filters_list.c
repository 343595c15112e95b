/* Filters on lists and dicts: choosing, mapping, sorting,
 * joining.
 * What they take as tests and attributes is asked of template_tests.c and template_eval.c. */
#include <string.h>

#include "text/template_filters.h"

static bool f_list(struct render *r, const struct filter_call *f, struct val *out)
{
    struct tseq *s;
    if (!val_iterate(r, f->v, &s) || !seq_new(r, SEQ_LIST, s->n, out))
        return false;
    if (s->n)
        memcpy(out->u.seq->v, s->v, s->n * sizeof *s->v);
    out->u.seq->n = s->n;
    return render_step(r, s->n / 16);
}

static bool f_first(struct render *r, const struct filter_call *f, struct val *out)
{
    struct tseq *s;
    if (!val_iterate(r, f->v, &s))
        return false;
    *out = s->n ? s->v[0] : val_undef("the first item of nothing", 25);
    return true;
}

static bool f_last(struct render *r, const struct filter_call *f, struct val *out)
{
    struct tseq *s;
    if (f->v->kind == V_SEQ && f->v->u.seq->kind == SEQ_STREAM)
        return render_fail(r, ERR_FORMAT, "last of a generator; make a list of it first");
    if (!val_iterate(r, f->v, &s))
        return false;
    *out = s->n ? s->v[s->n - 1] : val_undef("the last item of nothing", 24);
    return true;
}

static bool f_join(struct render *r, const struct filter_call *f, struct val *out)
{
    struct tseq *s;
    struct tstr sep = str_own("", 0);
    struct val picked;
    if (!val_iterate(r, f->v, &s) || (f->given[0] && !val_to_str(r, &f->arg[0], &sep)))
        return false;
    if (f->arg[1].kind != V_NONE) {
        if (!seq_new(r, SEQ_LIST, 0, &picked))
            return false;
        for (size_t i = 0; i < s->n; i++) {
            struct val v;
            if (!eval_path(r, &s->v[i], &f->arg[1], &v) || !seq_push(r, picked.u.seq, v))
                return false;
        }
        s = picked.u.seq;
    }
    return str_join(r, sep, s, out);
}

static bool f_reverse(struct render *r, const struct filter_call *f, struct val *out)
{
    const struct val none = val_none(), back = val_int(-1);
    struct tseq *s;
    if (f->v->kind == V_STR)
        return val_slice(r, f->v, &none, &none, &back, out);
    if (!val_iterate(r, f->v, &s) || !seq_new(r, SEQ_STREAM, 0, out))
        return false;
    for (size_t i = s->n; i-- > 0;)
        if (!seq_push(r, out->u.seq, s->v[i]))
            return false;
    return true;
}

static bool f_items(struct render *r, const struct filter_call *f, struct val *out)
{
    struct tmethod m = {*f->v, "items"};
    struct args none = {0};
    if (f->v->kind == V_UNDEF)
        return seq_new(r, SEQ_STREAM, 0, out);
    if (f->v->kind != V_MAP)
        return render_fail(r, ERR_FORMAT, "items of a value of type %s", val_type(f->v));
    return eval_method(r, &m, &none, out);
}

/* ---- select and its like ---- */

/* Arguments behind the first `skip`, of which the first names a test. */
static bool passes(struct render *r, const struct args *a, size_t skip, const struct val *v, bool *yes)
{
    struct tstr name;
    if (a->n <= skip) {
        *yes = val_truth(v);
        return true;
    }
    struct args rest = {.v = a->v + skip + 1, .n = a->n - skip - 1};
    return args_str(r, "the name of a test", &a->v[skip], &name) && eval_test(r, name.s, name.len, v, &rest, yes);
}

static bool f_select(struct render *r, const struct filter_call *f, struct val *out)
{
    bool attr = strstr(f->name, "attr") != NULL, reject = f->name[0] == 'r';
    struct args *a = f->all;
    struct tseq *s;
    if (a->n_named || (attr && a->n == 0))
        return render_fail(r, ERR_FORMAT, "%s takes %s", f->name, attr ? "an attribute, a test and its arguments" : "a test and its arguments");
    if (!val_iterate(r, f->v, &s) || !seq_new(r, SEQ_STREAM, 0, out))
        return false;
    for (size_t i = 0; i < s->n; i++) {
        struct val v = s->v[i];
        bool yes;
        if (attr && a->v[0].kind != V_STR && a->v[0].kind != V_INT)
            return render_fail(r, ERR_FORMAT, "%s: the attribute is a %s", f->name, val_type(&a->v[0]));
        if ((attr && !eval_path(r, &s->v[i], &a->v[0], &v)) || !passes(r, a, attr, &v, &yes))
            return false;
        if (yes != reject && !seq_push(r, out->u.seq, s->v[i]))
            return false;
    }
    return true;
}

static bool map_attr(struct render *r, const struct args *a, const struct val **attr, const struct val **absent)
{
    *attr = *absent = NULL;
    for (size_t i = 0; i < a->n_named; i++) {
        if (str_is(a->names[i].u.s, "attribute"))
            *attr = &a->named[i];
        else if (str_is(a->names[i].u.s, "default"))
            *absent = &a->named[i];
        else
            return render_fail(r, ERR_FORMAT, "map: the argument %.*s is unknown", (int)a->names[i].u.s.len, a->names[i].u.s.s);
    }
    if (*attr && (*attr)->kind != V_STR && (*attr)->kind != V_INT)
        return render_fail(r, ERR_FORMAT, "map: the attribute is a %s", val_type(*attr));
    return (*attr != NULL) != (a->n > 0) || render_fail(r, ERR_FORMAT, "map takes attribute=NAME, or a filter and its arguments");
}

static bool f_map(struct render *r, const struct filter_call *f, struct val *out)
{
    const struct val *attr, *absent;
    struct tseq *s;
    struct tstr name = {0};
    struct args *a = f->all;
    if (!map_attr(r, a, &attr, &absent) || !val_iterate(r, f->v, &s) || !seq_new(r, SEQ_STREAM, 0, out))
        return false;
    if (!attr && !args_str(r, "map", &a->v[0], &name))
        return false;
    for (size_t i = 0; i < s->n; i++) {
        struct val v;
        struct args rest = {.v = attr ? NULL : a->v + 1, .n = attr ? 0 : a->n - 1};
        if (!(attr ? eval_path(r, &s->v[i], attr, &v) : eval_filter(r, name.s, name.len, &s->v[i], &rest, &v)))
            return false;
        if (absent && v.kind == V_UNDEF)
            v = *absent;
        if (!seq_push(r, out->u.seq, v))
            return false;
    }
    return true;
}

/* ---- order ---- */

struct sort_key {
    struct val key;
    size_t at;
};

/* Strings without regard to case, unless asked for. */
static bool make_key(struct render *r, const struct val *v, const struct val *attr, bool exact, struct val *out)
{
    struct val part = *v;
    if (attr->kind != V_NONE && !eval_path(r, v, attr, &part))
        return false;
    *out = part;
    return part.kind != V_STR || exact || str_recase(r, part.u.s, CASE_LOWER, out);
}

static bool merge(struct render *r, struct sort_key *v, struct sort_key *to, size_t n, bool reverse)
{
    for (size_t width = 1; width < n; width *= 2) {
        for (size_t base = 0; base < n; base += 2 * width) {
            size_t mid = base + width < n ? base + width : n, end = base + 2 * width < n ? base + 2 * width : n;
            for (size_t i = base, k = mid, o = base; o < end; o++) {
                int order = 0;
                if (i < mid && k < end && !val_less(r, &v[i].key, &v[k].key, &order, "<"))
                    return false;
                bool left = k >= end || (i < mid && (reverse ? order >= 0 : order <= 0));
                to[o] = left ? v[i++] : v[k++];
            }
        }
        memcpy(v, to, n * sizeof *v);
    }
    return true;
}

static bool sorted(struct render *r, const struct tseq *s, const struct val *attr, bool exact, bool reverse, struct val *out)
{
    struct sort_key *keys = render_alloc(r, (s->n + 1) * sizeof *keys), *spare = keys ? render_alloc(r, (s->n + 1) * sizeof *keys) : NULL;
    if (!spare)
        return false;
    for (size_t i = 0; i < s->n; i++) {
        keys[i].at = i;
        if (!make_key(r, &s->v[i], attr, exact, &keys[i].key))
            return false;
    }
    if (!merge(r, keys, spare, s->n, reverse) || !seq_new(r, SEQ_LIST, s->n, out))
        return false;
    for (size_t i = 0; i < s->n; i++)
        out->u.seq->v[out->u.seq->n++] = s->v[keys[i].at];
    return true;
}

static bool f_sort(struct render *r, const struct filter_call *f, struct val *out)
{
    struct tseq *s;
    if (f->arg[2].kind != V_NONE && f->arg[2].kind != V_STR && f->arg[2].kind != V_INT)
        return render_fail(r, ERR_FORMAT, "sort: the attribute is a %s", val_type(&f->arg[2]));
    return val_iterate(r, f->v, &s) && sorted(r, s, &f->arg[2], val_truth(&f->arg[1]), val_truth(&f->arg[0]), out);
}

static bool f_dictsort(struct render *r, const struct filter_call *f, struct val *out)
{
    struct val items, at = val_int(f->arg[1].kind == V_STR && str_is(f->arg[1].u.s, "value"));
    if (f->v->kind != V_MAP)
        return render_fail(r, ERR_FORMAT, "dictsort of a value of type %s", val_type(f->v));
    return f_items(r, f, &items) && sorted(r, items.u.seq, &at, val_truth(&f->arg[0]), val_truth(&f->arg[2]), out);
}

static bool f_minmax(struct render *r, const struct filter_call *f, struct val *out)
{
    struct tseq *s;
    struct val list, none = val_none();
    if (!val_iterate(r, f->v, &s) || !sorted(r, s, &none, val_truth(&f->arg[0]), f->name[1] == 'a', &list))
        return false;
    *out = s->n ? list.u.seq->v[0] : val_undef("an item of nothing", 18);
    return true;
}

static bool f_sum(struct render *r, const struct filter_call *f, struct val *out)
{
    struct tseq *s;
    if (!val_iterate(r, f->v, &s))
        return false;
    *out = f->given[1] ? f->arg[1] : val_int(0);
    for (size_t i = 0; i < s->n; i++) {
        struct val v = s->v[i], total;
        if ((f->arg[0].kind == V_STR && !eval_path(r, &s->v[i], &f->arg[0], &v)) || !val_binary(r, OP_ADD_, out, &v, &total))
            return false;
        *out = total;
    }
    return true;
}

static bool f_unique(struct render *r, const struct filter_call *f, struct val *out)
{
    struct tseq *s;
    struct val seen, none = val_none();
    if (!val_iterate(r, f->v, &s) || !map_new(r, V_MAP, &seen) || !seq_new(r, SEQ_STREAM, 0, out))
        return false;
    for (size_t i = 0; i < s->n; i++) {
        struct val key;
        if (!make_key(r, &s->v[i], f->arg[1].kind == V_STR ? &f->arg[1] : &none, val_truth(&f->arg[0]), &key))
            return false;
        if (map_get(r, seen.u.map, &key))
            continue;
        if (!map_set(r, seen.u.map, key, none) || !seq_push(r, out->u.seq, s->v[i]))
            return false;
    }
    return true;
}

const struct filter_row filters_list[] = {
    {"list", f_list, 0, {0}}, {"first", f_first, 0, {0}}, {"last", f_last, 0, {0}}, {"join", f_join, 0, {"d", "attribute"}},
    {"reverse", f_reverse, 0, {0}}, {"items", f_items, 0, {0}}, {"select", f_select, -1, {0}}, {"reject", f_select, -1, {0}},
    {"selectattr", f_select, -1, {0}}, {"rejectattr", f_select, -1, {0}}, {"map", f_map, -1, {0}},
    {"sort", f_sort, 0, {"reverse", "case_sensitive", "attribute"}}, {"dictsort", f_dictsort, 0, {"case_sensitive", "by", "reverse"}},
    {"min", f_minmax, 0, {"case_sensitive"}}, {"max", f_minmax, 0, {"case_sensitive"}}, {"sum", f_sum, 0, {"attribute", "start"}},
    {"unique", f_unique, 0, {"case_sensitive", "attribute"}},
};
const size_t filters_list_n = sizeof filters_list / sizeof *filters_list;
