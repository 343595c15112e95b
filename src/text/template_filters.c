/* Filters: what may stand behind "|".  Owns the table of them; those
 * that go over lists with a test or an attribute
 * are template_filters_list.c's. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "text/template_filters.h"

static bool f_length(struct render *r, const struct filter_call *f, struct val *out)
{
    const struct val *v = f->v;
    if (v->kind == V_SEQ && v->u.seq->kind != SEQ_STREAM)
        *out = val_int((int64_t)v->u.seq->n);
    else if (v->kind == V_MAP)
        *out = val_int((int64_t)v->u.map->n);
    else if (v->kind == V_UNDEF)
        *out = val_int(0);
    else if (v->kind == V_STR)
        *out = val_int((int64_t)str_chars(v->u.s));
    else
        return render_fail(r, ERR_FORMAT, "length of a value of type %s", val_type(v));
    return render_step(r, v->kind == V_STR ? v->u.s.len / 16 : 0);
}

static bool f_trim(struct render *r, const struct filter_call *f, struct val *out)
{
    struct tstr s, chars;
    bool given = f->arg[0].kind != V_NONE;
    if (!val_to_str(r, f->v, &s) || (given && !args_str(r, "trim", &f->arg[0], &chars)) || !render_step(r, s.len / 64))
        return false;
    if (!given)
        s = str_strip(s, STRIP_LEFT | STRIP_RIGHT);
    else if (!str_strip_of(r, s, chars, STRIP_LEFT | STRIP_RIGHT, &s))
        return false;
    *out = val_strn(s);
    return true;
}

static bool f_case(struct render *r, const struct filter_call *f, struct val *out)
{
    struct tstr s;
    enum str_case how = f->name[0] == 'u' ? CASE_UPPER : f->name[0] == 'l' ? CASE_LOWER : CASE_CAPITAL;
    return val_to_str(r, f->v, &s) && str_recase(r, s, how, out);
}

/* Jinja's title differs from Python's: words begin behind white space and the brackets. */
static bool f_title(struct render *r, const struct filter_call *f, struct val *out)
{
    struct tstr s;
    struct marked m;
    struct val one;
    bool ok = val_to_str(r, f->v, &s);
    marked_init(&m);
    for (size_t i = 0, end; ok && i < s.len; i = end) {
        uint32_t cp;
        end = i + char_at(s, i, &cp);
        bool gap = space_char(cp) || (cp < 128 && strchr("-({[<", (int)cp) && cp);
        while (!gap && end < s.len) {
            size_t n = char_at(s, end, &cp);
            if (space_char(cp) || (cp < 128 && strchr("-({[<", (int)cp)))
                break;
            end += n;
        }
        size_t n = char_at(s, i, &cp);
        ok = str_recase(r, str_part(s, i, n), CASE_UPPER, &one) && marked_put(&m, one.u.s) &&
             str_recase(r, str_part(s, i + n, end - i - n), CASE_LOWER, &one) && marked_put(&m, one.u.s);
    }
    ok = ok && val_from_marked(r, &m, out);
    marked_fini(&m);
    return ok;
}

static bool f_replace(struct render *r, const struct filter_call *f, struct val *out)
{
    struct tstr s, from, to;
    int64_t most = -1;
    return val_to_str(r, f->v, &s) && val_to_str(r, &f->arg[0], &from) && val_to_str(r, &f->arg[1], &to) &&
           (f->arg[2].kind == V_NONE || args_int(r, "replace", &f->arg[2], &most)) && str_replace(r, s, from, to, most, out);
}

static bool f_default(struct render *r, const struct filter_call *f, struct val *out)
{
    (void)r;
    bool use = f->v->kind == V_UNDEF || (val_truth(&f->arg[1]) && !val_truth(f->v));
    *out = use ? f->arg[0].kind == V_NONE && !f->given[0] ? val_lit("") : f->arg[0] : *f->v;
    return true;
}

static bool f_string(struct render *r, const struct filter_call *f, struct val *out)
{
    struct tstr s;
    if (!val_to_str(r, f->v, &s))
        return false;
    *out = val_strn(s);
    return true;
}

static bool f_safe(struct render *r, const struct filter_call *f, struct val *out)
{
    return f_string(r, f, out);
}

static bool f_escape(struct render *r, const struct filter_call *f, struct val *out)
{
    static const char *const rows[][2] = {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"\"", "&#34;"}, {"'", "&#39;"}};
    struct tstr s;
    if (!val_to_str(r, f->v, &s))
        return false;
    *out = val_strn(s);
    for (size_t i = 0; i < 5; i++)
        if (!str_replace(r, out->u.s, str_own(rows[i][0], 1), str_own(rows[i][1], strlen(rows[i][1])), -1, out))
            return false;
    return true;
}

/* Digits of a string as int() takes them; false = it is none. */
static bool digits_of(struct tstr s, int64_t *out)
{
    s = str_strip(s, STRIP_LEFT | STRIP_RIGHT);
    bool minus = s.len > 0 && s.s[0] == '-';
    size_t i = s.len > 0 && (minus || s.s[0] == '+');
    if (i == s.len || s.len - i > 18)
        return false;
    *out = 0;
    for (; i < s.len; i++) {
        if (s.s[i] < '0' || s.s[i] > '9')
            return false;
        *out = *out * 10 + (s.s[i] - '0');
    }
    *out = minus ? -*out : *out;
    return true;
}

static bool float_of(struct tstr s, double *out)
{
    char text[64], *end;
    s = str_strip(s, STRIP_LEFT | STRIP_RIGHT);
    if (s.len == 0 || s.len >= sizeof text || memchr(s.s, 'x', s.len) || memchr(s.s, 'X', s.len))
        return false;
    memcpy(text, s.s, s.len);
    text[s.len] = 0;
    *out = strtod(text, &end);
    return *end == 0;
}

static bool f_int(struct render *r, const struct filter_call *f, struct val *out)
{
    double x = NAN;
    int64_t i;
    bool whole;
    (void)r;
    if (val_number(f->v, &x, &i, &whole) && whole) {
        *out = val_int(i);
        return true;
    }
    if (f->v->kind == V_STR && digits_of(f->v->u.s, &i)) {
        *out = val_int(i);
        return true;
    }
    if (f->v->kind == V_STR && !float_of(f->v->u.s, &x))
        x = NAN;
    *out = f->v->kind == V_BIG ? *f->v : fabs(x) < 0x1p62 ? val_int((int64_t)x) : f->given[0] ? f->arg[0] : val_int(0);
    return true;
}

static bool f_float(struct render *r, const struct filter_call *f, struct val *out)
{
    double x;
    int64_t i;
    bool whole, ok = val_number(f->v, &x, &i, &whole) || (f->v->kind == V_STR && float_of(f->v->u.s, &x));
    (void)r;
    *out = ok ? val_float(x) : f->given[0] ? f->arg[0] : val_float(0);
    return true;
}

static bool f_abs(struct render *r, const struct filter_call *f, struct val *out)
{
    double x;
    int64_t i;
    bool whole;
    if (!val_number(f->v, &x, &i, &whole) || i == INT64_MIN)
        return render_fail(r, ERR_FORMAT, "abs of a value of type %s", val_type(f->v));
    *out = whole ? val_int(i < 0 ? -i : i) : val_float(fabs(x));
    return true;
}

static bool f_round(struct render *r, const struct filter_call *f, struct val *out)
{
    double x, scale;
    int64_t i, digits = 0;
    bool whole;
    if (!val_number(f->v, &x, &i, &whole) || (f->given[0] && !args_int(r, "round", &f->arg[0], &digits)))
        return render_fail(r, ERR_FORMAT, "round of a value of type %s", val_type(f->v));
    if (digits < -15 || digits > 15)
        return render_fail(r, ERR_UNSUPPORTED, "round to %lld digits is not supported", (long long)digits);
    scale = pow(10, (double)digits);
    bool up = f->given[1] && f->arg[1].kind == V_STR && str_is(f->arg[1].u.s, "ceil");
    bool down = f->given[1] && f->arg[1].kind == V_STR && str_is(f->arg[1].u.s, "floor");
    *out = val_float((up ? ceil(x * scale) : down ? floor(x * scale) : nearbyint(x * scale)) / scale);
    return true;
}

static bool f_tojson(struct render *r, const struct filter_call *f, struct val *out)
{
    struct json_style st = {.ascii = val_truth(&f->arg[0]), .sort = val_truth(&f->arg[3]), .indent = -1, .comma = ", ", .colon = ": "};
    struct marked m;
    int64_t indent;
    char sep[2][16];
    if (f->arg[1].kind != V_NONE) {
        if (!args_int(r, "tojson", &f->arg[1], &indent) || indent < 0 || indent > 16)
            return render_fail(r, ERR_FORMAT, "tojson: indent must be 0 to 16");
        st.indent = (int)indent;
        st.comma = ",";
    }
    if (f->arg[2].kind != V_NONE) {
        const struct val *v = &f->arg[2];
        if (v->kind != V_SEQ || v->u.seq->n != 2)
            return render_fail(r, ERR_FORMAT, "tojson: separators are two strings");
        for (int i = 0; i < 2; i++) {
            struct tstr s;
            if (!args_str(r, "tojson", &v->u.seq->v[i], &s) || s.len >= sizeof sep[0])
                return render_fail(r, ERR_FORMAT, "tojson: separators are two short strings");
            memcpy(sep[i], s.s, s.len);
            sep[i][s.len] = 0;
        }
        st.comma = sep[0];
        st.colon = sep[1];
    }
    marked_init(&m);
    bool ok = val_json(r, f->v, &st, &m) && val_from_marked(r, &m, out);
    marked_fini(&m);
    return ok;
}

static bool f_indent(struct render *r, const struct filter_call *f, struct val *out)
{
    struct tstr s, pad = str_own("    ", 4);
    struct val lines, width;
    struct marked m;
    if (!val_to_str(r, f->v, &s) || !str_lines(r, s, false, &lines))
        return false;
    if (f->given[0] && f->arg[0].kind == V_STR) {
        pad = f->arg[0].u.s;
    } else if (f->given[0]) {
        const struct val space = val_lit(" ");
        if (!val_binary(r, OP_MUL_, &space, &f->arg[0], &width) || width.kind != V_STR)
            return false;
        pad = width.u.s;
    }
    const struct tseq *l = lines.u.seq;
    bool ok = true, open = s.len > 0 && s.s[s.len - 1] == '\n';
    marked_init(&m);
    for (size_t i = 0; i < l->n && ok; i++) {
        if (i)
            marked_own(&m, "\n", 1);
        if ((i || val_truth(&f->arg[1])) && (l->v[i].u.s.len || val_truth(&f->arg[2])))
            marked_put(&m, pad);
        marked_put(&m, l->v[i].u.s);
        ok = render_step(r, pad.len / 16) && m.text.len < TEMPLATE_OUTPUT_MAX;
    }
    if (open)
        marked_own(&m, "\n", 1);
    ok = ok ? val_from_marked(r, &m, out) : render_fail(r, ERR_LIMIT, "indent: the text becomes too long");
    marked_fini(&m);
    return ok;
}

static bool f_format(struct render *r, const struct filter_call *f, struct val *out)
{
    struct tstr s;
    struct val args;
    if (!val_to_str(r, f->v, &s) || !seq_new(r, SEQ_TUPLE, 0, &args))
        return false;
    for (size_t i = 0; i < f->all->n; i++)
        if (!seq_push(r, args.u.seq, f->all->v[i]))
            return false;
    return f->all->n_named ? render_fail(r, ERR_UNSUPPORTED, "format with arguments by name is not supported")
                           : str_format(r, s, &args, out);
}

static bool f_center(struct render *r, const struct filter_call *f, struct val *out)
{
    struct tstr s;
    int64_t width = 80;
    return val_to_str(r, f->v, &s) && (f->arg[0].kind == V_NONE || args_int(r, "center", &f->arg[0], &width)) &&
           str_pad(r, s, "center", width, str_own(" ", 1), out);
}

static const struct filter_row rows[] = {
    {"length", f_length, 0, {0}}, {"count", f_length, 0, {0}}, {"trim", f_trim, 0, {"chars"}}, {"upper", f_case, 0, {0}},
    {"lower", f_case, 0, {0}}, {"capitalize", f_case, 0, {0}}, {"title", f_title, 0, {0}},
    {"replace", f_replace, 2, {"old", "new", "count"}}, {"default", f_default, 0, {"default_value", "boolean"}},
    {"d", f_default, 0, {"default_value", "boolean"}}, {"string", f_string, 0, {0}}, {"safe", f_safe, 0, {0}},
    {"escape", f_escape, 0, {0}}, {"e", f_escape, 0, {0}}, {"int", f_int, 0, {"default"}}, {"float", f_float, 0, {"default"}},
    {"abs", f_abs, 0, {0}}, {"round", f_round, 0, {"precision", "method"}},
    {"tojson", f_tojson, 0, {"ensure_ascii", "indent", "separators", "sort_keys"}},
    {"indent", f_indent, 0, {"width", "first", "blank"}}, {"format", f_format, -1, {0}}, {"center", f_center, 0, {"width"}},
};

static const struct filter_row *find(const char *name, size_t len)
{
    struct tstr s = str_own(name, len);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (str_is(s, rows[i].name))
            return &rows[i];
    for (size_t i = 0; i < filters_list_n; i++)
        if (str_is(s, filters_list[i].name))
            return &filters_list[i];
    return NULL;
}

bool eval_filter(struct render *r, const char *name, size_t len, const struct val *v, struct args *a, struct val *out)
{
    const struct filter_row *row = find(name, len);
    struct filter_call f = {.v = v, .all = a, .arg = {val_none(), val_none(), val_none(), val_none()}};
    if (!row)
        return render_fail(r, ERR_UNSUPPORTED, "the filter '%.*s' is unknown or not supported", (int)(len < 60 ? len : 60), name);
    f.name = row->name;
    if (row->n_required >= 0) {
        size_t n = 0;
        while (n < FILTER_ARGS && row->names[n])
            n++;
        for (size_t i = 0; i < n; i++)
            f.arg[i] = val_undef("", 0);
        if (!args_take(r, row->name, a, row->names, n, (size_t)row->n_required, f.arg))
            return false;
        for (size_t i = 0; i < n; i++) {
            f.given[i] = i < a->n;
            for (size_t k = 0; k < a->n_named; k++)
                f.given[i] = f.given[i] || str_is(a->names[k].u.s, row->names[i]);
            if (!f.given[i])
                f.arg[i] = val_none();
        }
    }
    return row->call(r, &f, out);
}
