/* Values in forms: "%-5s" % x, "{:>5}".format(x), center() and its kin.
 * One form, read in either spelling, and one writer for it; what Python has beyond (grouping by "_", forms within
 * forms, %c) is refused by name. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "text/template_parts.h"

#define WIDTH_MAX 10000
#define DIGITS_MAX 100 /* of a precision */

struct form {
    struct tstr fill; /* a character; len 0 = a blank, or 0 */
    char align;       /* < > ^ =, 0 = as the value's type has it */
    char sign;        /* + or a blank: also where it is positive */
    bool zero, alt, comma;
    size_t width;
    int precision;    /* -1 = none */
    char type;        /* 0 = none */
};

/* ---- reading ---- */

static bool read_number(struct render *r, struct tstr s, size_t *at, size_t most, size_t *out)
{
    for (*out = 0; *at < s.len && s.s[*at] >= '0' && s.s[*at] <= '9'; ++*at)
        if ((*out = *out * 10 + (size_t)(s.s[*at] - '0')) > most)
            return render_fail(r, ERR_LIMIT, "a form asks for more than %zu characters", most);
    return true;
}

static bool read_precision(struct render *r, struct tstr s, size_t *at, int *out)
{
    size_t n;
    *out = -1;
    if (*at >= s.len || s.s[*at] != '.')
        return true;
    ++*at;
    if (!read_number(r, s, at, DIGITS_MAX, &n))
        return false;
    *out = (int)n;
    return true;
}

/* [flags][width][.precision]type, behind the "%". */
static bool read_percent(struct render *r, struct tstr s, size_t *at, struct form *f)
{
    *f = (struct form){.precision = -1};
    for (; *at < s.len && s.s[*at] && strchr("-+ 0#", s.s[*at]); ++*at) {
        char c = s.s[*at];
        if (c == '-')
            f->align = '<';
        f->zero |= c == '0';
        f->alt |= c == '#';
        if (c == '+' || (c == ' ' && !f->sign))
            f->sign = c;
    }
    if (!read_number(r, s, at, WIDTH_MAX, &f->width) || !read_precision(r, s, at, &f->precision))
        return false;
    f->type = *at < s.len ? s.s[(*at)++] : 0;
    return f->type || render_fail(r, ERR_FORMAT, "a format is not complete");
}

static bool is_align(char c)
{
    return c == '<' || c == '>' || c == '^' || c == '=';
}

static bool take(struct tstr s, size_t *at, char c)
{
    bool there = *at < s.len && s.s[*at] == c;
    *at += there;
    return there;
}

/* [[fill]align][sign][#][0][width][,][.precision][type], behind the ":". */
static bool read_spec(struct render *r, struct tstr s, struct form *f)
{
    uint32_t cp;
    size_t at = 0, first = s.len ? char_at(s, 0, &cp) : 0;
    *f = (struct form){.precision = -1};
    if (first && first < s.len && is_align(s.s[first])) {
        f->fill = str_part(s, 0, first);
        f->align = s.s[first];
        at = first + 1;
    } else if (first && is_align(s.s[0])) {
        f->align = s.s[0];
        at = 1;
    }
    if (at < s.len && (s.s[at] == '+' || s.s[at] == ' '))
        f->sign = s.s[at++];
    else
        take(s, &at, '-');
    f->alt = take(s, &at, '#');
    f->zero = take(s, &at, '0');
    if (!read_number(r, s, &at, WIDTH_MAX, &f->width))
        return false;
    f->comma = take(s, &at, ',');
    if (!read_precision(r, s, &at, &f->precision))
        return false;
    f->type = at < s.len ? s.s[at++] : 0;
    return at == s.len || render_fail(r, ERR_UNSUPPORTED, "the form \"%.*s\" is not supported", (int)s.len, s.s);
}

/* ---- writing ---- */

static bool put_times(struct render *r, struct marked *m, struct tstr c, size_t n)
{
    for (size_t i = 0; i < n; i++)
        marked_put(m, c);
    return render_step(r, n / 16) && (m->text.len <= TEMPLATE_OUTPUT_MAX || render_fail(r, ERR_LIMIT, "a format becomes too long"));
}

/* lead: a sign and what goes with it. */
static bool put_padded(struct render *r, struct marked *m, const struct form *f, const char *lead, struct tstr body, bool number)
{
    size_t len = strlen(lead) + str_chars(body), pad = f->width > len ? f->width - len : 0;
    char align = f->align ? f->align : !number ? '<' : f->zero ? '=' : '>';
    size_t before = align == '>' ? pad : align == '^' ? pad / 2 : 0, inside = align == '=' ? pad : 0;
    struct tstr fill = f->fill.len ? f->fill : f->zero ? str_own("0", 1) : str_own(" ", 1);
    if (!put_times(r, m, fill, before))
        return false;
    marked_own(m, lead, strlen(lead));
    if (!put_times(r, m, fill, inside))
        return false;
    marked_put(m, body);
    return put_times(r, m, fill, pad - before - inside);
}

static bool put_text(struct render *r, struct marked *m, const struct form *f, struct tstr s)
{
    if (f->align == '=')
        return render_fail(r, ERR_FORMAT, "\"=\" in the form of a string");
    if (f->sign || f->alt || f->comma)
        return render_fail(r, ERR_FORMAT, "the form of a string has a sign, \"#\" or \",\"");
    if (f->precision >= 0 && (size_t)f->precision < str_chars(s))
        s = str_part(s, 0, str_offset(s, (size_t)f->precision));
    return put_padded(r, m, f, "", s, false);
}

/* A comma before each three of the digits at the front. */
static void put_commas(char *s, size_t size)
{
    size_t len = strlen(s), n = strspn(s, "0123456789");
    for (size_t left = n; left > 3 && len + 1 < size; len++) {
        left -= 3;
        memmove(s + left + 1, s + left, len + 1 - left);
        s[left] = ',';
    }
}

static void whole_digits(uint64_t n, char type, char *out, size_t size)
{
    if (type == 'b') {
        char text[65] = "";
        size_t at = sizeof text - 1;
        for (; n > 0 || at == sizeof text - 1; n /= 2)
            text[--at] = (char)('0' + n % 2);
        snprintf(out, size, "%s", text + at);
        return;
    }
    const char *form = type == 'x' ? "%llx" : type == 'X' ? "%llX" : type == 'o' ? "%llo" : "%llu";
    snprintf(out, size, form, (unsigned long long)n);
}

static bool float_digits(double x, int precision, char type, char *out, size_t size)
{
    int digits = precision < 0 ? 6 : precision;
    if (type == 'f' || type == 'F')
        snprintf(out, size, "%.*f", digits, x);
    else if (type == 'e' || type == 'E')
        snprintf(out, size, type == 'e' ? "%.*e" : "%.*E", digits, x);
    else if (type == 'g' || type == 'G')
        snprintf(out, size, type == 'g' ? "%.*g" : "%.*G", digits, x);
    else if (type == '%')
        snprintf(out, size, "%.*f%%", digits, x * 100);
    else
        return false;
    return true;
}

static bool put_number(struct render *r, struct marked *m, const struct form *f, const struct val *v)
{
    char text[640] = "", lead[4] = "";
    double x;
    int64_t i;
    bool whole, known;
    char type = f->type;
    if (!val_number(v, &x, &i, &whole))
        return render_fail(r, ERR_FORMAT, "a form of numbers for a value of type %s", val_type(v));
    bool negative = whole ? i < 0 : signbit(x) != 0;
    if (whole && (!type || strchr("diuxXob", type))) {
        known = f->precision < 0;
        whole_digits(negative ? 0 - (uint64_t)i : (uint64_t)i, type, text, sizeof text);
    } else if (!type)
        known = f->precision < 0 && !f->alt && float_repr(text, fabs(x)) > 0;
    else
        known = !f->alt && float_digits(whole ? fabs((double)i) : fabs(x), f->precision, type, text, sizeof text);
    if (!known || (f->comma && f->zero))
        return render_fail(r, ERR_UNSUPPORTED, "this form with the type '%c' is not supported for a value of type %s", type ? type : ' ', val_type(v));
    if (f->comma)
        put_commas(text, sizeof text);
    if (negative || f->sign)
        lead[0] = negative ? '-' : f->sign;
    if (f->alt && type && strchr("xXob", type))
        snprintf(lead + strlen(lead), 3, "0%c", type);
    return put_padded(r, m, f, lead, str_own(text, strlen(text)), true);
}

/* ---- "%s" % args ---- */

static bool put_percent(struct render *r, struct marked *m, struct form *f, const struct val *v)
{
    struct marked text;
    struct val s, whole;
    double x;
    int64_t i;
    bool is_whole;
    if (f->type != 's' && f->type != 'r') {
        bool cut = strchr("diu", f->type) && val_number(v, &x, &i, &is_whole) && !is_whole;
        if (cut && !(fabs(x) < 0x1p62))
            return render_fail(r, ERR_UNSUPPORTED, "a whole number of this size is not supported");
        whole = cut ? val_int((int64_t)x) : *v;
        return put_number(r, m, f, &whole);
    }
    marked_init(&text);
    bool ok = (f->type == 's' ? val_str(r, v, &text) : val_repr(r, v, &text)) && val_from_marked(r, &text, &s);
    marked_fini(&text);
    *f = (struct form){.align = f->align ? f->align : '>', .width = f->width, .precision = f->precision};
    return ok && put_text(r, m, f, s.u.s);
}

bool str_format(struct render *r, struct tstr s, const struct val *args, struct val *out)
{
    bool tuple = args->kind == V_SEQ && args->u.seq->kind == SEQ_TUPLE, ok = true;
    const struct val *v = tuple ? args->u.seq->v : args;
    size_t n = tuple ? args->u.seq->n : 1, used = 0, done = 0, at;
    struct marked m;
    struct form f;
    marked_init(&m);
    while (ok && str_find(s, str_own("%", 1), done, &at)) {
        marked_put(&m, str_part(s, done, at - done));
        done = at + 1;
        ok = read_percent(r, s, &done, &f);
        if (!ok)
            break;
        if (f.type == '%')
            marked_own(&m, "%", 1);
        else if (used == n)
            ok = render_fail(r, ERR_FORMAT, "more formats than values");
        else
            ok = put_percent(r, &m, &f, &v[used++]);
    }
    if (ok && used < n && (tuple || args->kind != V_MAP))
        ok = render_fail(r, ERR_FORMAT, "more values than formats");
    if (ok) {
        marked_put(&m, str_part(s, done, s.len - done));
        ok = val_from_marked(r, &m, out);
    }
    marked_fini(&m);
    return ok;
}

/* ---- "{}".format(args) ---- */

struct fields {
    struct args *args;
    size_t next;          /* of those that count by themselves */
    bool counts, numbers; /* which kinds came */
};

/* A name or a number, up to the "." or "[" of a path. */
static bool field_root(struct render *r, struct fields *fs, struct tstr name, struct val *out)
{
    size_t at = 0, i;
    if (!read_number(r, name, &at, WIDTH_MAX, &i))
        return false;
    if (at == name.len) {
        fs->counts |= name.len == 0;
        fs->numbers |= name.len > 0;
        i = name.len ? i : fs->next++;
        if (fs->counts && fs->numbers)
            return render_fail(r, ERR_FORMAT, "format: fields with numbers and fields without");
        if (i >= fs->args->n)
            return render_fail(r, ERR_FORMAT, "format: there is no argument %zu", i);
        *out = fs->args->v[i];
        return true;
    }
    for (i = 0; i < fs->args->n_named; i++)
        if (str_same(fs->args->names[i].u.s, name)) {
            *out = fs->args->named[i];
            return true;
        }
    return render_fail(r, ERR_FORMAT, "format: there is no argument \"%.*s\"", (int)name.len, name.s);
}

static size_t up_to(struct tstr s, size_t at, const char *set)
{
    while (at < s.len && !(s.s[at] && strchr(set, s.s[at])))
        at++;
    return at;
}

static bool field_value(struct render *r, struct fields *fs, struct tstr path, struct val *out)
{
    size_t at = up_to(path, 0, ".[");
    if (!field_root(r, fs, str_part(path, 0, at), out))
        return false;
    while (at < path.len) {
        bool item = path.s[at++] == '[';
        size_t end = up_to(path, at, item ? "]" : ".["), n = 0, i;
        struct tstr name = str_part(path, at, end - at);
        struct val on = *out, key = val_strn(name);
        if (!read_number(r, name, &n, WIDTH_MAX, &i))
            return false;
        if (n == name.len && n > 0)
            key = val_int((int64_t)i);
        if (!(item ? eval_item(r, &on, &key, out) : eval_attr(r, &on, name.s, name.len, out)))
            return false;
        at = end + item;
    }
    return true;
}

/* What stands between the braces. */
static bool put_field(struct render *r, struct fields *fs, struct tstr field, struct marked *m)
{
    size_t name = up_to(field, 0, "!:"), colon = up_to(field, name, ":");
    struct tstr convert = str_part(field, name, colon - name), spec = str_part(field, colon, field.len - colon);
    struct form f;
    struct val v, s;
    struct marked text;
    if (!field_value(r, fs, str_part(field, 0, name), &v))
        return false;
    if (convert.len && !str_is(convert, "!r") && !str_is(convert, "!s"))
        return render_fail(r, ERR_UNSUPPORTED, "format: the conversion \"%.*s\" is not supported", (int)convert.len, convert.s);
    if (!read_spec(r, spec.len ? str_part(spec, 1, spec.len - 1) : spec, &f))
        return false;
    bool number = v.kind == V_INT || v.kind == V_FLOAT || v.kind == V_BOOL, bare = spec.len <= 1;
    if (number && !convert.len && !bare)
        return put_number(r, m, &f, &v);
    if ((v.kind != V_STR && !convert.len && !bare) || (f.type && f.type != 's'))
        return render_fail(r, ERR_FORMAT, "format: the form \"%.*s\" of a value of type %s", (int)spec.len, spec.s, val_type(&v));
    marked_init(&text);
    bool ok = (str_is(convert, "!r") ? val_repr(r, &v, &text) : val_str(r, &v, &text)) && val_from_marked(r, &text, &s) &&
              put_text(r, m, &f, s.u.s);
    marked_fini(&text);
    return ok;
}

bool str_format_fields(struct render *r, struct tstr s, struct args *args, struct val *out)
{
    struct fields fs = {.args = args};
    struct marked m;
    bool ok = true;
    size_t done = 0, at;
    marked_init(&m);
    while (ok && (at = up_to(s, done, "{}")) < s.len) {
        marked_put(&m, str_part(s, done, at - done));
        size_t end = up_to(s, at + 1, "{}");
        if (at + 1 < s.len && s.s[at + 1] == s.s[at]) {
            marked_put(&m, str_part(s, at, 1));
            done = at + 2;
        } else if (s.s[at] == '}' || end == s.len) {
            ok = render_fail(r, ERR_FORMAT, "format: a single brace");
        } else if (s.s[end] == '{') {
            ok = render_fail(r, ERR_UNSUPPORTED, "format: a form within a form is not supported");
        } else {
            ok = put_field(r, &fs, str_part(s, at + 1, end - at - 1), &m);
            done = end + 1;
        }
    }
    if (ok) {
        marked_put(&m, str_part(s, done, s.len - done));
        ok = val_from_marked(r, &m, out);
    }
    marked_fini(&m);
    return ok;
}

/* ---- center, ljust, rjust, zfill ---- */

bool str_pad(struct render *r, struct tstr s, const char *how, int64_t width, struct tstr fill, struct val *out)
{
    size_t len = str_chars(s), sign = 0;
    struct marked m;
    if (width > WIDTH_MAX)
        return render_fail(r, ERR_LIMIT, "%s to more than %d characters", how, WIDTH_MAX);
    size_t pad = width > 0 && (size_t)width > len ? (size_t)width - len : 0, before = how[0] == 'l' ? 0 : pad;
    if (how[0] == 'c')
        before = pad / 2 + (pad & (size_t)width & 1);
    if (how[0] == 'z')
        sign = s.len && (s.s[0] == '+' || s.s[0] == '-');
    marked_init(&m);
    marked_put(&m, str_part(s, 0, sign));
    bool ok = put_times(r, &m, fill, before);
    marked_put(&m, str_part(s, sign, s.len - sign));
    ok = ok && put_times(r, &m, fill, pad - before) && val_from_marked(r, &m, out);
    marked_fini(&m);
    return ok;
}
