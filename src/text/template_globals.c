/* Functions that every template sees: range, namespace, dict,
 * raise_exception, strftime_now.
 * Owns the table; the clock is asked for here and nowhere else. */
#include <string.h>
#include <time.h>

#include "text/template_parts.h"

struct tglobal {
    const char *name;
    bool (*call)(struct render *r, struct args *a, struct val *out);
};

#define RANGE_MAX 100000 /* as Jinja's sandbox has it */

static bool call_range(struct render *r, struct args *a, struct val *out)
{
    static const char *const names[] = {"start", "stop", "step"};
    struct val v[3] = {val_int(0), val_none(), val_int(1)};
    int64_t from, to, by;
    if (!args_take(r, "range", a, names, 3, 1, v))
        return false;
    if (a->n == 1) {
        v[1] = v[0];
        v[0] = val_int(0);
    }
    if (!args_int(r, "range", &v[0], &from) || !args_int(r, "range", &v[1], &to) || !args_int(r, "range", &v[2], &by))
        return false;
    if (by == 0)
        return render_fail(r, ERR_FORMAT, "range: the step is 0");
    const int64_t lim = (int64_t)1 << 60;
    if (from > lim || from < -lim || to > lim || to < -lim || by > lim || by < -lim)
        return render_fail(r, ERR_LIMIT, "range: a number is too large");
    int64_t n = by > 0 ? (to - from + by - 1) / by : (from - to - by - 1) / -by;
    n = (by > 0 ? to > from : to < from) ? n : 0;
    if (n > RANGE_MAX)
        return render_fail(r, ERR_LIMIT, "range: %lld numbers are over the limit of %d", (long long)n, RANGE_MAX);
    if (!seq_new(r, SEQ_RANGE, (size_t)n, out))
        return false;
    for (int64_t i = 0; i < n; i++)
        out->u.seq->v[out->u.seq->n++] = val_int(from + i * by);
    return true;
}

static bool fill_map(struct render *r, enum val_kind kind, const char *what, struct args *a, struct val *out)
{
    if (!map_new(r, kind, out))
        return false;
    if (a->n > 1 || (a->n == 1 && a->v[0].kind != V_MAP))
        return render_fail(r, ERR_FORMAT, "%s takes a dict and arguments by name", what);
    for (size_t i = 0; a->n == 1 && i < a->v[0].u.map->n; i++)
        if (!map_set(r, out->u.map, a->v[0].u.map->keys[i], a->v[0].u.map->vals[i]))
            return false;
    for (size_t i = 0; i < a->n_named; i++)
        if (!map_set(r, out->u.map, a->names[i], a->named[i]))
            return false;
    return true;
}

static bool call_namespace(struct render *r, struct args *a, struct val *out)
{
    return fill_map(r, V_SPACE, "namespace", a, out);
}

static bool call_dict(struct render *r, struct args *a, struct val *out)
{
    return fill_map(r, V_MAP, "dict", a, out);
}

static bool call_raise(struct render *r, struct args *a, struct val *out)
{
    static const char *const names[] = {"message"};
    struct val v = val_none();
    struct tstr s;
    (void)out;
    if (!args_take(r, "raise_exception", a, names, 1, 1, &v) || !val_to_str(r, &v, &s))
        return false;
    return render_refuse(r, s.s, s.len);
}

static bool call_strftime(struct render *r, struct args *a, struct val *out)
{
    static const char *const names[] = {"format"};
    struct val v = val_none();
    struct tstr s;
    struct tm tm;
    char format[256], text[1024];
    time_t now = r->in->now ? (time_t)r->in->now : time(NULL);
    if (!args_take(r, "strftime_now", a, names, 1, 1, &v) || !args_str(r, "strftime_now", &v, &s))
        return false;
    if (s.len >= sizeof format || memchr(s.s, 0, s.len) || !localtime_r(&now, &tm))
        return render_fail(r, ERR_FORMAT, "strftime_now: this format cannot be used");
    memcpy(format, s.s, s.len);
    format[s.len] = 0;
    size_t n = s.len ? strftime(text, sizeof text, format, &tm) : 0;
    struct marked m;
    marked_init(&m);
    marked_char(&m, text, n, s.outside || s.mark);
    bool ok = val_from_marked(r, &m, out);
    marked_fini(&m);
    return ok;
}

static const struct tglobal globals[] = {
    {"range", call_range}, {"namespace", call_namespace}, {"dict", call_dict}, {"raise_exception", call_raise},
    {"strftime_now", call_strftime},
};

const struct tglobal *global_find(const char *name, size_t len)
{
    for (size_t i = 0; i < sizeof globals / sizeof *globals; i++)
        if (str_is(str_own(name, len), globals[i].name))
            return &globals[i];
    return NULL;
}

bool global_call(struct render *r, const struct tglobal *g, struct args *a, struct val *out)
{
    return g->call(r, a, out);
}
