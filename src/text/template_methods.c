/* Methods of strings, dicts, lists and loops.  Knows all that
 * Python's types have by name, so that one which is not
 * here is told from a key that is missing. */
#include <string.h>

#include "text/template_parts.h"

static bool int_arg(struct render *r, const char *what, struct args *a, size_t i, int64_t absent, int64_t *out)
{
    *out = absent;
    return i >= a->n || args_int(r, what, &a->v[i], out);
}

static bool no_names(struct render *r, const char *name, struct args *a, size_t low, size_t high)
{
    if (a->n_named)
        return render_fail(r, ERR_UNSUPPORTED, "%s: the argument %.*s by name is not supported", name, (int)a->names[0].u.s.len,
                           a->names[0].u.s.s);
    return (a->n >= low && a->n <= high) || render_fail(r, ERR_FORMAT, "%s: %zu arguments are given", name, a->n);
}

static bool m_strip(struct render *r, const struct val *v, const char *name, struct args *a, struct val *out)
{
    struct tstr chars, s = v->u.s;
    bool given = a->n > 0 && a->v[0].kind != V_NONE;
    if (!no_names(r, name, a, 0, 1) || (given && !args_str(r, name, &a->v[0], &chars)) || !render_step(r, v->u.s.len / 64))
        return false;
    unsigned ends = name[0] == 'l' ? STRIP_LEFT : name[0] == 'r' ? STRIP_RIGHT : STRIP_LEFT | STRIP_RIGHT;
    if (!given)
        s = str_strip(s, ends);
    else if (!str_strip_of(r, s, chars, ends, &s))
        return false;
    *out = val_strn(s);
    return true;
}

static bool m_split(struct render *r, const struct val *v, const char *name, struct args *a, struct val *out)
{
    static const char *const names[] = {"sep", "maxsplit"};
    struct val arg[2] = {val_none(), val_int(-1)};
    struct tstr sep;
    int64_t most;
    if (!args_take(r, name, a, names, 2, 0, arg) || !args_int(r, name, &arg[1], &most))
        return false;
    bool given = arg[0].kind != V_NONE;
    return (!given || args_str(r, name, &arg[0], &sep)) && str_split(r, v->u.s, given ? &sep : NULL, most, name[0] == 'r', out);
}

static bool m_lines(struct render *r, const struct val *v, const char *name, struct args *a, struct val *out)
{
    static const char *const names[] = {"keepends"};
    struct val keep = val_bool(false);
    return args_take(r, name, a, names, 1, 0, &keep) && str_lines(r, v->u.s, val_truth(&keep), out);
}

/* One string, or a tuple of which one is enough. */
static bool m_ends(struct render *r, const struct val *v, const char *name, struct args *a, struct val *out)
{
    if (!no_names(r, name, a, 1, 1))
        return false;
    bool tuple = a->v[0].kind == V_SEQ && a->v[0].u.seq->kind == SEQ_TUPLE, yes = false;
    const struct val *what = tuple ? a->v[0].u.seq->v : a->v;
    for (size_t i = 0; i < (tuple ? a->v[0].u.seq->n : 1) && !yes; i++) {
        struct tstr s = v->u.s, w;
        if (!args_str(r, name, &what[i], &w))
            return false;
        yes = w.len <= s.len && str_same(str_part(s, name[0] == 's' ? 0 : s.len - w.len, w.len), w);
    }
    *out = val_bool(yes);
    return true;
}

static bool m_replace(struct render *r, const struct val *v, const char *name, struct args *a, struct val *out)
{
    struct tstr from, to;
    int64_t most;
    return no_names(r, name, a, 2, 3) && args_str(r, name, &a->v[0], &from) && args_str(r, name, &a->v[1], &to) &&
           int_arg(r, name, a, 2, -1, &most) && str_replace(r, v->u.s, from, to, most, out);
}

static bool m_case(struct render *r, const struct val *v, const char *name, struct args *a, struct val *out)
{
    static const struct {
        const char *name;
        enum str_case how;
    } rows[] = {{"upper", CASE_UPPER}, {"lower", CASE_LOWER}, {"title", CASE_TITLE}, {"capitalize", CASE_CAPITAL}, {"swapcase", CASE_SWAP}};
    size_t i = 0;
    while (strcmp(rows[i].name, name) != 0)
        i++;
    return no_names(r, name, a, 0, 0) && str_recase(r, v->u.s, rows[i].how, out);
}

static bool m_pad(struct render *r, const struct val *v, const char *name, struct args *a, struct val *out)
{
    int64_t width;
    struct tstr fill = str_own(name[0] == 'z' ? "0" : " ", 1);
    if (!no_names(r, name, a, 1, name[0] == 'z' ? 1 : 2) || !args_int(r, name, &a->v[0], &width) ||
        (a->n == 2 && !args_str(r, name, &a->v[1], &fill)))
        return false;
    return str_chars(fill) == 1 ? str_pad(r, v->u.s, name, width, fill, out) : render_fail(r, ERR_FORMAT, "%s: the fill is not one character", name);
}

static bool m_format(struct render *r, const struct val *v, const char *name, struct args *a, struct val *out)
{
    (void)name;
    return str_format_fields(r, v->u.s, a, out);
}

static bool m_class(struct render *r, const struct val *v, const char *name, struct args *a, struct val *out)
{
    if (!no_names(r, name, a, 0, 0) || !render_step(r, v->u.s.len / 8))
        return false;
    *out = val_bool(str_is_class(v->u.s, name));
    return true;
}

static bool m_find(struct render *r, const struct val *v, const char *name, struct args *a, struct val *out)
{
    struct tstr what;
    size_t at = 0;
    if (!no_names(r, name, a, 1, 1) || !args_str(r, name, &a->v[0], &what) || !render_step(r, v->u.s.len / 64))
        return false;
    bool found = name[0] == 'r' ? str_find_last(r, v->u.s, what, &at) : str_find(v->u.s, what, 0, &at);
    if (r->err->code)
        return false;
    if (!found && strstr(name, "index"))
        return render_fail(r, ERR_FORMAT, "%s: the text is not in the string", name);
    *out = val_int(found ? (int64_t)str_chars(str_part(v->u.s, 0, at)) : -1);
    return true;
}

static bool m_count(struct render *r, const struct val *v, const char *name, struct args *a, struct val *out)
{
    int64_t n = 0;
    if (!no_names(r, name, a, 1, 1))
        return false;
    if (v->kind == V_STR) {
        struct tstr what;
        size_t at = 0;
        if (!args_str(r, name, &a->v[0], &what) || !render_step(r, v->u.s.len / 16))
            return false;
        for (size_t from = 0; what.len && str_find(v->u.s, what, from, &at); from = at + what.len)
            n++;
        n = what.len ? n : (int64_t)str_chars(v->u.s) + 1;
    } else {
        for (size_t i = 0; i < v->u.seq->n; i++) {
            bool same;
            if (!val_equal(r, &a->v[0], &v->u.seq->v[i], &same))
                return false;
            n += same;
        }
    }
    *out = val_int(n);
    return true;
}

static bool m_join(struct render *r, const struct val *v, const char *name, struct args *a, struct val *out)
{
    struct tseq *s;
    if (!no_names(r, name, a, 1, 1) || !val_iterate(r, &a->v[0], &s))
        return false;
    for (size_t i = 0; i < s->n; i++)
        if (s->v[i].kind != V_STR)
            return render_fail(r, ERR_FORMAT, "join: item %zu is a %s, not a string", i, val_type(&s->v[i]));
    return str_join(r, v->u.s, s, out);
}

static bool m_remove(struct render *r, const struct val *v, const char *name, struct args *a, struct val *out)
{
    struct tstr what, s = v->u.s;
    bool prefix = strcmp(name, "removeprefix") == 0;
    if (!no_names(r, name, a, 1, 1) || !args_str(r, name, &a->v[0], &what))
        return false;
    bool there = what.len <= s.len && str_same(str_part(s, prefix ? 0 : s.len - what.len, what.len), what);
    size_t n = there ? what.len : 0;
    *out = val_strn(str_part(s, prefix ? n : 0, s.len - n));
    return true;
}

static bool m_partition(struct render *r, const struct val *v, const char *name, struct args *a, struct val *out)
{
    struct tstr sep, s = v->u.s;
    size_t at = 0;
    if (!no_names(r, name, a, 1, 1) || !args_str(r, name, &a->v[0], &sep) || !render_step(r, s.len / 8))
        return false;
    if (sep.len == 0)
        return render_fail(r, ERR_FORMAT, "%s: the separator is empty", name);
    bool found = name[0] == 'r' ? str_find_last(r, s, sep, &at) : str_find(s, sep, 0, &at);
    if (r->err->code)
        return false;
    struct tstr none = str_own("", 0);
    struct tstr head = found ? str_part(s, 0, at) : s, mid = found ? str_part(s, at, sep.len) : none;
    struct tstr tail = found ? str_part(s, at + sep.len, s.len - at - sep.len) : none;
    if (!found && name[0] == 'r') {
        head = none;
        tail = s;
    }
    return seq_new(r, SEQ_TUPLE, 3, out) && seq_push(r, out->u.seq, val_strn(head)) && seq_push(r, out->u.seq, val_strn(mid)) &&
           seq_push(r, out->u.seq, val_strn(tail));
}

/* ---- dicts ---- */

static bool m_items(struct render *r, const struct val *v, const char *name, struct args *a, struct val *out)
{
    const struct tmap *m = v->u.map;
    enum seq_kind kind = name[0] == 'k' ? SEQ_KEYS : name[0] == 'v' ? SEQ_VALUES : SEQ_ITEMS;
    if (!no_names(r, name, a, 0, 0) || !seq_new(r, kind, m->n, out))
        return false;
    for (size_t i = 0; i < m->n; i++) {
        struct val pair = kind == SEQ_KEYS ? m->keys[i] : m->vals[i];
        if (kind == SEQ_ITEMS && !(seq_new(r, SEQ_TUPLE, 2, &pair) && seq_push(r, pair.u.seq, m->keys[i]) &&
                                   seq_push(r, pair.u.seq, m->vals[i])))
            return false;
        if (!seq_push(r, out->u.seq, pair))
            return false;
    }
    return true;
}

static bool m_get(struct render *r, const struct val *v, const char *name, struct args *a, struct val *out)
{
    static const char *const names[] = {"key", "default"};
    struct val arg[2] = {val_none(), val_none()};
    if (!args_take(r, name, a, names, 2, 1, arg))
        return false;
    const struct val *there = map_get(r, v->u.map, &arg[0]);
    *out = there ? *there : arg[1];
    return r->err->code == 0;
}

static bool m_copy(struct render *r, const struct val *v, const char *name, struct args *a, struct val *out)
{
    *out = *v; /* values do not change */
    return no_names(r, name, a, 0, 0);
}

static bool m_index(struct render *r, const struct val *v, const char *name, struct args *a, struct val *out)
{
    if (!no_names(r, name, a, 1, 1))
        return false;
    for (size_t i = 0; i < v->u.seq->n; i++) {
        bool same;
        if (!val_equal(r, &a->v[0], &v->u.seq->v[i], &same))
            return false;
        if (same) {
            *out = val_int((int64_t)i);
            return true;
        }
    }
    return render_fail(r, ERR_FORMAT, "index: the value is not in the list");
}

static bool m_cycle(struct render *r, const struct val *v, const char *name, struct args *a, struct val *out)
{
    if (a->n == 0 || a->n_named)
        return render_fail(r, ERR_FORMAT, "%s: nothing to take turns", name);
    *out = a->v[v->u.loop->i % a->n];
    return true;
}

/* Whether the arguments differ from those of the turn that asked before; true at first. */
static bool m_changed(struct render *r, const struct val *v, const char *name, struct args *a, struct val *out)
{
    struct tloop *loop = v->u.loop;
    struct val now;
    bool same = false;
    if (!no_names(r, name, a, 0, SIZE_MAX) || !seq_new(r, SEQ_TUPLE, a->n, &now))
        return false;
    for (size_t i = 0; i < a->n; i++)
        if (!seq_push(r, now.u.seq, a->v[i]))
            return false;
    if (loop->has_changed && !val_equal(r, &loop->changed, &now, &same))
        return false;
    loop->changed = now;
    loop->has_changed = true;
    *out = val_bool(!same);
    return true;
}

typedef bool method_fn(struct render *r, const struct val *v, const char *name, struct args *a, struct val *out);
struct method_row {
    const char *name;
    method_fn *call; /* NULL = Python has it, and it is not here */
};

static const struct method_row str_methods[] = {
    {"strip", m_strip}, {"lstrip", m_strip}, {"rstrip", m_strip}, {"split", m_split}, {"rsplit", m_split}, {"splitlines", m_lines},
    {"startswith", m_ends}, {"endswith", m_ends}, {"replace", m_replace}, {"upper", m_case}, {"lower", m_case}, {"title", m_case},
    {"capitalize", m_case}, {"swapcase", m_case}, {"isspace", m_class}, {"isalpha", m_class}, {"isalnum", m_class},
    {"isdigit", m_class}, {"isdecimal", m_class}, {"isnumeric", m_class}, {"islower", m_class}, {"isupper", m_class},
    {"find", m_find}, {"rfind", m_find}, {"index", m_find}, {"rindex", m_find}, {"count", m_count}, {"join", m_join},
    {"removeprefix", m_remove}, {"removesuffix", m_remove}, {"partition", m_partition}, {"rpartition", m_partition},
    {"center", m_pad}, {"ljust", m_pad}, {"rjust", m_pad}, {"zfill", m_pad}, {"format", m_format},
    {"casefold", NULL}, {"encode", NULL}, {"expandtabs", NULL}, {"format_map", NULL}, {"isascii", NULL}, {"isidentifier", NULL},
    {"isprintable", NULL}, {"istitle", NULL}, {"maketrans", NULL}, {"translate", NULL}, {0},
};
static const struct method_row map_methods[] = {
    {"items", m_items}, {"keys", m_items}, {"values", m_items}, {"get", m_get}, {"copy", m_copy}, {"clear", NULL},
    {"fromkeys", NULL}, {"pop", NULL}, {"popitem", NULL}, {"setdefault", NULL}, {"update", NULL}, {0},
};
static const struct method_row list_methods[] = {
    {"index", m_index}, {"count", m_count}, {"copy", m_copy}, {"append", NULL}, {"clear", NULL}, {"extend", NULL}, {"insert", NULL},
    {"pop", NULL}, {"remove", NULL}, {"reverse", NULL}, {"sort", NULL}, {0},
};
static const struct method_row loop_methods[] = {{"cycle", m_cycle}, {"changed", m_changed}, {0}};

static const struct method_row *find(const struct val *v, const char *name, size_t len)
{
    const struct method_row *rows = v->kind == V_STR    ? str_methods
                                    : v->kind == V_MAP  ? map_methods
                                    : v->kind == V_LOOP ? loop_methods
                                    : v->kind == V_SEQ && v->u.seq->kind <= SEQ_TUPLE ? list_methods
                                                                                      : NULL;
    for (; rows && rows->name; rows++)
        if (str_is(str_own(name, len), rows->name))
            return rows;
    return NULL;
}

enum method_state method_find(const struct val *v, const char *name, size_t len, const char **found)
{
    const struct method_row *row = find(v, name, len);
    *found = row ? row->name : NULL;
    return !row ? METHOD_NONE : row->call ? METHOD_HERE : METHOD_MISSING;
}

bool eval_method(struct render *r, const struct tmethod *m, struct args *a, struct val *out)
{
    return find(&m->self, m->name, strlen(m->name))->call(r, &m->self, m->name, a, out);
}
