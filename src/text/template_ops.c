/* Operators on values as Python has them: truth, equality, order,
 * arithmetic, membership, slices.
 * Knows neither names nor the tree. */
#include <math.h>
#include <string.h>

#include "text/template_parts.h"

bool val_truth(const struct val *v)
{
    switch (v->kind) {
    case V_UNDEF:
    case V_NONE:
        return false;
    case V_BOOL:
        return v->u.b;
    case V_INT:
        return v->u.i != 0;
    case V_FLOAT:
        return v->u.f != 0;
    case V_STR:
        return v->u.s.len > 0;
    case V_SEQ:
        return v->u.seq->kind == SEQ_STREAM || v->u.seq->n > 0;
    case V_MAP:
        return v->u.map->n > 0;
    default:
        return true;
    }
}

bool val_number(const struct val *v, double *f, int64_t *i, bool *is_int)
{
    *is_int = v->kind == V_INT || v->kind == V_BOOL;
    *i = v->kind == V_INT ? v->u.i : v->kind == V_BOOL ? v->u.b : 0;
    *f = v->kind == V_FLOAT ? v->u.f : (double)*i;
    return *is_int || v->kind == V_FLOAT;
}

static bool equal(struct render *r, const struct val *a, const struct val *b, int depth, bool *out);

static bool equal_seq(struct render *r, const struct tseq *a, const struct tseq *b, int depth, bool *out)
{
    *out = a == b || (a->kind == b->kind && a->kind != SEQ_STREAM && a->n == b->n);
    for (size_t i = 0; a != b && *out && i < a->n; i++)
        if (!equal(r, &a->v[i], &b->v[i], depth + 1, out))
            return false;
    return true;
}

static bool equal_map(struct render *r, const struct tmap *a, const struct tmap *b, int depth, bool *out)
{
    *out = a->n == b->n;
    for (size_t i = 0; *out && i < a->n; i++) {
        const struct val *v = map_get(r, b, &a->keys[i]);
        *out = v != NULL;
        if (v && !equal(r, &a->vals[i], v, depth + 1, out))
            return false;
    }
    return true;
}

static bool equal(struct render *r, const struct val *a, const struct val *b, int depth, bool *out)
{
    double x, y;
    int64_t i, k;
    bool a_whole, b_whole;
    if (depth > TEMPLATE_NEST_MAX)
        return render_fail(r, ERR_LIMIT, "a value is nested deeper than %d", TEMPLATE_NEST_MAX);
    if (!render_step(r, 0))
        return false;
    if (val_number(a, &x, &i, &a_whole) && val_number(b, &y, &k, &b_whole)) {
        *out = a_whole && b_whole ? i == k : x == y;
        return true;
    }
    *out = false;
    if (a->kind != b->kind)
        return true;
    switch (a->kind) {
    case V_UNDEF:
    case V_NONE:
        *out = true;
        return true;
    case V_BIG:
    case V_STR:
        *out = str_same(a->u.s, b->u.s);
        return render_step(r, a->u.s.len / 64);
    case V_SEQ:
        return equal_seq(r, a->u.seq, b->u.seq, depth, out);
    case V_MAP:
        return equal_map(r, a->u.map, b->u.map, depth, out);
    default:
        *out = a->u.map == b->u.map; /* the same object */
        return true;
    }
}

bool val_equal(struct render *r, const struct val *a, const struct val *b, bool *out)
{
    return equal(r, a, b, 0, out);
}

static int order_str(struct tstr a, struct tstr b)
{
    size_t n = a.len < b.len ? a.len : b.len;
    int c = n ? memcmp(a.s, b.s, n) : 0; /* UTF-8 has the order of its characters */
    return c ? c : (a.len > b.len) - (a.len < b.len);
}

static bool order_of(struct render *r, const struct val *a, const struct val *b, int depth, int *order, const char *op)
{
    double x, y;
    int64_t i, k;
    bool a_whole, b_whole;
    if (!render_step(r, 0) || depth > TEMPLATE_NEST_MAX)
        return render_fail(r, ERR_LIMIT, "a value is nested deeper than %d", TEMPLATE_NEST_MAX);
    if (val_number(a, &x, &i, &a_whole) && val_number(b, &y, &k, &b_whole)) {
        *order = a_whole && b_whole ? (i > k) - (i < k) : (x > y) - (x < y);
        return true;
    }
    if (a->kind == V_STR && b->kind == V_STR) {
        *order = order_str(a->u.s, b->u.s);
        return render_step(r, a->u.s.len / 64);
    }
    if (a->kind == V_SEQ && b->kind == V_SEQ && a->u.seq->kind == b->u.seq->kind && a->u.seq->kind <= SEQ_TUPLE) {
        const struct tseq *s = a->u.seq, *t = b->u.seq;
        *order = 0;
        for (size_t n = 0; n < s->n && n < t->n && *order == 0; n++)
            if (!order_of(r, &s->v[n], &t->v[n], depth + 1, order, op))
                return false;
        if (*order == 0)
            *order = (s->n > t->n) - (s->n < t->n);
        return true;
    }
    return render_fail(r, ERR_FORMAT, "'%s' between %s and %s", op, val_type(a), val_type(b));
}

bool val_less(struct render *r, const struct val *a, const struct val *b, int *order, const char *op)
{
    return order_of(r, a, b, 0, order, op);
}

bool val_in(struct render *r, const struct val *item, const struct val *in, bool *out)
{
    struct tseq *s;
    size_t at;
    *out = false;
    if (in->kind == V_STR) {
        if (item->kind != V_STR)
            return render_fail(r, ERR_FORMAT, "'in' of a string needs a string, not a %s", val_type(item));
        *out = str_find(in->u.s, item->u.s, 0, &at);
        return render_step(r, in->u.s.len / 16);
    }
    if (in->kind == V_MAP) {
        *out = map_get(r, in->u.map, item) != NULL;
        return r->err->code == 0;
    }
    if (!val_iterate(r, in, &s))
        return false;
    for (size_t i = 0; i < s->n && !*out; i++)
        if (!val_equal(r, item, &s->v[i], out))
            return false;
    return true;
}

bool val_compare(struct render *r, enum op op, const struct val *a, const struct val *b, bool *out)
{
    static const char *const names[] = {[OP_LT_] = "<", [OP_LE_] = "<=", [OP_GT_] = ">", [OP_GE_] = ">="};
    int order;
    bool ok;
    switch (op) {
    case OP_EQ_:
        return val_equal(r, a, b, out);
    case OP_NE_:
        ok = val_equal(r, a, b, out);
        *out = !*out;
        return ok;
    case OP_IN_:
        return val_in(r, a, b, out);
    case OP_NOT_IN_:
        ok = val_in(r, a, b, out);
        *out = !*out;
        return ok;
    default:
        if (!val_less(r, a, b, &order, names[op]))
            return false;
        *out = op == OP_LT_ ? order < 0 : op == OP_LE_ ? order <= 0 : op == OP_GT_ ? order > 0 : order >= 0;
        return true;
    }
}

/* ---- arithmetic ---- */

static bool too_large(struct render *r)
{
    return render_fail(r, ERR_LIMIT, "a number is too large");
}

static int64_t floor_div(int64_t a, int64_t b)
{
    return a / b - (a % b != 0 && (a < 0) != (b < 0));
}

static bool power_int(struct render *r, int64_t a, int64_t b, struct val *out)
{
    int64_t v = 1;
    for (int64_t i = 0; i < b && a != 0 && a != 1; i++) {
        if (a == -1) {
            v = b % 2 ? -1 : 1;
            break;
        }
        if (!mem_mul_i64(v < 0 ? -v : v, a < 0 ? -a : a, &v))
            return too_large(r);
        v = a < 0 && i % 2 == 0 ? -v : v;
    }
    *out = val_int(b > 0 && (a == 0 || a == 1) ? a : v);
    return true;
}

static bool arith_int(struct render *r, enum op op, int64_t a, int64_t b, struct val *out)
{
    const int64_t lim = (int64_t)1 << 62;
    if ((op == OP_DIV_ || op == OP_FLOOR_ || op == OP_MOD_) && b == 0)
        return render_fail(r, ERR_FORMAT, "division by zero");
    if (a >= lim || a <= -lim || b >= lim || b <= -lim)
        return too_large(r);
    int64_t product;
    switch (op) {
    case OP_ADD_:
        *out = val_int(a + b);
        return true;
    case OP_SUB_:
        *out = val_int(a - b);
        return true;
    case OP_MUL_:
        if (!mem_mul_i64(a < 0 ? -a : a, b < 0 ? -b : b, &product))
            return too_large(r);
        *out = val_int((a < 0) != (b < 0) ? -product : product);
        return true;
    case OP_DIV_:
        *out = val_float((double)a / (double)b);
        return true;
    case OP_FLOOR_:
        *out = val_int(floor_div(a, b));
        return true;
    case OP_MOD_:
        *out = val_int(a - floor_div(a, b) * b);
        return true;
    default:
        if (b < 0) {
            *out = val_float(pow((double)a, (double)b));
            return true;
        }
        return power_int(r, a, b, out);
    }
}

static bool arith_float(struct render *r, enum op op, double a, double b, struct val *out)
{
    if ((op == OP_DIV_ || op == OP_FLOOR_ || op == OP_MOD_) && b == 0)
        return render_fail(r, ERR_FORMAT, "division by zero");
    double mod = op == OP_MOD_ ? fmod(a, b) : 0;
    if (mod != 0 && (mod < 0) != (b < 0))
        mod += b;
    *out = val_float(op == OP_ADD_   ? a + b
                     : op == OP_SUB_ ? a - b
                     : op == OP_MUL_ ? a * b
                     : op == OP_DIV_ ? a / b
                     : op == OP_POW_ ? pow(a, b)
                     : op == OP_MOD_ ? mod
                                     : floor(a / b));
    return true;
}

static bool repeat(struct render *r, const struct val *v, int64_t n, struct val *out)
{
    struct marked m;
    size_t len = v->kind == V_STR ? v->u.s.len : v->u.seq->n, total;
    n = n < 0 ? 0 : n;
    if (!mem_mul(len, (size_t)n, &total) || total > TEMPLATE_OUTPUT_MAX / 2)
        return render_fail(r, ERR_LIMIT, "%zu times %lld is too long", len, (long long)n);
    if (!render_step(r, total / 16))
        return false;
    if (v->kind == V_SEQ) {
        if (!seq_new(r, v->u.seq->kind, total, out))
            return false;
        for (size_t i = 0; i < total; i++)
            out->u.seq->v[out->u.seq->n++] = v->u.seq->v[i % len];
        return true;
    }
    marked_init(&m);
    for (size_t i = 0; i < total; i += len)
        marked_put(&m, v->u.s);
    bool ok = val_from_marked(r, &m, out);
    marked_fini(&m);
    return ok;
}

static bool add_values(struct render *r, const struct val *a, const struct val *b, struct val *out)
{
    if (a->kind == V_STR) {
        struct marked m;
        marked_init(&m);
        marked_put(&m, a->u.s);
        marked_put(&m, b->u.s);
        bool ok = val_from_marked(r, &m, out);
        marked_fini(&m);
        return ok;
    }
    const struct tseq *s = a->u.seq, *t = b->u.seq;
    if (!seq_new(r, s->kind, s->n + t->n, out))
        return false;
    for (size_t i = 0; i < s->n + t->n; i++)
        out->u.seq->v[i] = i < s->n ? s->v[i] : t->v[i - s->n];
    out->u.seq->n = s->n + t->n;
    return true;
}

static bool repeatable(const struct val *v)
{
    return v->kind == V_STR || (v->kind == V_SEQ && v->u.seq->kind <= SEQ_TUPLE);
}

bool val_binary(struct render *r, enum op op, const struct val *a, const struct val *b, struct val *out)
{
    static const char *const names[] = {[OP_ADD_] = "+", [OP_SUB_] = "-", [OP_MUL_] = "*", [OP_DIV_] = "/",
                                        [OP_FLOOR_] = "//", [OP_MOD_] = "%", [OP_POW_] = "**"};
    double x, y;
    int64_t i, k;
    bool a_whole, b_whole, a_num = val_number(a, &x, &i, &a_whole), b_num = val_number(b, &y, &k, &b_whole);
    if (a_num && b_num)
        return a_whole && b_whole ? arith_int(r, op, i, k, out) : arith_float(r, op, x, y, out);
    if (a->kind == V_UNDEF || b->kind == V_UNDEF) {
        const struct val *u = a->kind == V_UNDEF ? a : b;
        return render_fail(r, ERR_FORMAT, "'%.*s' is undefined", (int)(u->u.s.len < 80 ? u->u.s.len : 80), u->u.s.s);
    }
    if (op == OP_ADD_ && repeatable(a) && a->kind == b->kind && (a->kind == V_STR || a->u.seq->kind == b->u.seq->kind))
        return add_values(r, a, b, out);
    if (op == OP_MUL_ && repeatable(a) && b_whole)
        return repeat(r, a, k, out);
    if (op == OP_MUL_ && repeatable(b) && a_whole)
        return repeat(r, b, i, out);
    if (op == OP_MOD_ && a->kind == V_STR)
        return str_format(r, a->u.s, b, out);
    return render_fail(r, ERR_FORMAT, "'%s' between %s and %s", names[op], val_type(a), val_type(b));
}

/* ---- slices ---- */

static bool slice_part(struct render *r, const struct val *v, int64_t absent, int64_t *out)
{
    *out = absent;
    return v->kind == V_NONE || args_int(r, "a slice", v, out);
}

/* Python's rule: counted from the end where negative, then into [low, high]. */
static int64_t clamp(int64_t i, int64_t n, int64_t low, int64_t high)
{
    i = i < 0 ? i + n : i;
    return i < low ? low : i > high ? high : i;
}

bool val_slice(struct render *r, const struct val *v, const struct val *start, const struct val *stop, const struct val *step,
               struct val *out)
{
    struct tseq *s;
    int64_t by, from, to;
    if (v->kind != V_STR && !(v->kind == V_SEQ && v->u.seq->kind <= SEQ_RANGE)) {
        *out = val_undef("a slice", 7);
        return true;
    }
    if (!slice_part(r, step, 1, &by) || by == 0 || by > INT32_MAX || by < -INT32_MAX)
        return render_fail(r, ERR_FORMAT, "the step of a slice cannot be this");
    size_t len = v->kind == V_STR ? str_chars(v->u.s) : v->u.seq->n;
    int64_t n = (int64_t)len;
    if (!render_step(r, v->kind == V_STR ? v->u.s.len / 16 : 0) || !slice_part(r, start, by > 0 ? 0 : n - 1, &from) ||
        !slice_part(r, stop, by > 0 ? n : -1, &to))
        return false;
    from = by > 0 ? clamp(from, n, 0, n) : start->kind == V_NONE ? from : clamp(from, n, -1, n - 1);
    to = by > 0 ? clamp(to, n, 0, n) : stop->kind == V_NONE ? to : clamp(to, n, -1, n - 1);
    if (v->kind == V_STR && by == 1) {
        size_t a = str_offset(v->u.s, (size_t)from), b = to > from ? str_offset(v->u.s, (size_t)to) : a;
        *out = val_strn(str_part(v->u.s, a, b - a));
        return true;
    }
    struct val part;
    if (!val_iterate(r, v, &s) || !seq_new(r, v->kind == V_SEQ ? v->u.seq->kind : SEQ_LIST, 0, &part))
        return false;
    for (int64_t i = from; by > 0 ? i < to : i > to; i += by)
        if (!seq_push(r, part.u.seq, s->v[i]) || !render_step(r, 0))
            return false;
    if (v->kind == V_STR)
        return str_join(r, str_own("", 0), part.u.seq, out);
    *out = part;
    return true;
}
