/* Numbers of a JSON text between bounds, digit by digit.
 *
 * Whole ones have up to 18 digits, so that bounds beyond are none.  Bounds are
 * doubles, by their shortest decimal digits; one of 2^53 or beyond, which may have
 * been rounded when it was read, counts one double further inside.  A number with
 * bounds has no exponent, and 17 digits of fraction at most: bounds with more are
 * taken inside, too. */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/json_schema_parts.h"

enum { WHOLE = 18, FRACTION = 17 }; /* digits */
#define WHOLE_MAX 999999999999999999

static uint32_t digits(struct gram_build *b, int lo, int hi, uint32_t next)
{
    struct gram_set set = {{0}};
    for (int d = lo; d <= hi; d++)
        set.w[0] |= (uint64_t)1 << ('0' + d);
    return lo <= hi ? gram_set(b, &set, next) : GRAM_AT_FAIL;
}

static uint32_t digit_rule(struct schema *s)
{
    if (!s->digit) {
        s->digit = gram_rule(&s->b);
        gram_define(&s->b, s->digit, digits(&s->b, 0, 9, GRAM_AT_END));
    }
    return s->digit;
}

/* ---- without bounds ---- */

static uint32_t free_whole(struct schema *s, uint32_t next)
{
    struct gram_build *b = &s->b;
    uint32_t from_1 = digits(b, 1, 9, gram_repeat(b, digit_rule(s), 0, WHOLE - 1, next));
    return gram_or(b, digits(b, 0, 0, next), gram_or(b, from_1, gram_str(b, "-", from_1)));
}

static uint32_t free_number(struct schema *s, uint32_t next)
{
    struct gram_build *b = &s->b;
    uint32_t exponent = digits(b, 0, 9, gram_or(b, digits(b, 0, 9, next), next));
    struct gram_set sign = {{(uint64_t)1 << '+' | (uint64_t)1 << '-', 0, 0, 0}}, e = {{0}};
    e.w[1] = (uint64_t)1 << ('e' - 64) | (uint64_t)1 << ('E' - 64);
    uint32_t end = gram_or(b, gram_set(b, &e, gram_or(b, exponent, gram_set(b, &sign, exponent))), next);
    end = gram_or(b, gram_str(b, ".", gram_repeat(b, digit_rule(s), 1, FRACTION, end)), end);
    uint32_t whole = gram_or(b, digits(b, 0, 0, end), digits(b, 1, 9, gram_repeat(b, digit_rule(s), 0, WHOLE - 1, end)));
    return gram_or(b, whole, gram_str(b, "-", whole));
}

/* ---- whole numbers lo..hi, not negative ---- */

static int64_t power_10(int n)
{
    int64_t p = 1;
    while (n-- > 0)
        p *= 10;
    return p;
}

/* Exactly n digits. */
static uint32_t fixed_digits(struct gram_build *b, int64_t lo, int64_t hi, int n, uint32_t next)
{
    if (n == 0)
        return next;
    int64_t p = power_10(n - 1);
    int a = (int)(lo / p), z = (int)(hi / p);
    if (a == z)
        return digits(b, a, a, fixed_digits(b, lo % p, hi % p, n - 1, next));
    bool low = lo % p != 0, high = hi % p != p - 1;
    uint32_t out = digits(b, a + low, z - high, fixed_digits(b, 0, p - 1, n - 1, next));
    if (low)
        out = gram_or(b, digits(b, a, a, fixed_digits(b, lo % p, p - 1, n - 1, next)), out);
    return high ? gram_or(b, digits(b, z, z, fixed_digits(b, 0, hi % p, n - 1, next)), out) : out;
}

static uint32_t whole_range(struct gram_build *b, int64_t lo, int64_t hi, uint32_t next)
{
    uint32_t out = GRAM_AT_FAIL;
    for (int n = 1; n <= WHOLE; n++) {
        int64_t first = n > 1 ? power_10(n - 1) : 0, last = power_10(n) - 1;
        first = lo > first ? lo : first;
        last = hi < last ? hi : last;
        if (first <= last)
            out = gram_or(b, fixed_digits(b, first, last, n, next), out);
    }
    return out;
}

/* ---- bounds ---- */

struct bounds {
    double lo, hi;
    bool lo_open, hi_open; /* lo and hi themselves are outside */
};

static void bound(struct schema *s, const cJSON *node, const char *name, bool low, bool open, struct bounds *out)
{
    const cJSON *v = schema_member(node, name);
    if (!v)
        return;
    if (!cJSON_IsNumber(v) || !isfinite(v->valuedouble)) {
        schema_fail(s, ERR_ARG, "%s must be a number", name);
        return;
    }
    double x = v->valuedouble;
    if (fabs(x) >= 0x1p53)
        x = nextafter(x, low ? INFINITY : -INFINITY);
    if (low && (x > out->lo || (x >= out->lo && open))) {
        out->lo = x;
        out->lo_open = open;
    }
    if (!low && (x < out->hi || (x <= out->hi && open))) {
        out->hi = x;
        out->hi_open = open;
    }
}

static struct bounds read_bounds(struct schema *s, const cJSON *node)
{
    struct bounds b = {-INFINITY, INFINITY, false, false};
    bound(s, node, "minimum", true, false, &b);
    bound(s, node, "exclusiveMinimum", true, true, &b);
    bound(s, node, "maximum", false, false, &b);
    bound(s, node, "exclusiveMaximum", false, true, &b);
    return b;
}

static int64_t to_whole(double x)
{
    return x < -(double)WHOLE_MAX ? -WHOLE_MAX : x > (double)WHOLE_MAX ? WHOLE_MAX : (int64_t)x;
}

static uint32_t bounded_whole(struct schema *s, const struct bounds *r, uint32_t next)
{
    struct gram_build *b = &s->b;
    if (r->lo >= 1e18 || r->hi <= -1e18)
        return GRAM_AT_FAIL;
    int64_t lo = to_whole(ceil(r->lo)), hi = to_whole(floor(r->hi));
    lo += r->lo_open && ceil(r->lo) <= r->lo;
    hi -= r->hi_open && floor(r->hi) >= r->hi;
    uint32_t out = hi >= 0 ? whole_range(b, lo > 0 ? lo : 0, hi, next) : GRAM_AT_FAIL;
    return lo < 0 ? gram_or(b, gram_str(b, "-", whole_range(b, hi < 0 ? -hi : 1, -lo, next)), out) : out;
}

/* ---- numbers with a fraction, not negative ---- */

struct decimal {
    int64_t whole;
    int digit[FRACTION];
    bool open;
};

static const struct decimal most = {WHOLE_MAX, {9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9}, false};

/* x >= 0.  Digits that do not fit are cut; `up`: the value is then one unit above, else it is not open any more. */
static struct decimal to_decimal(double x, bool open, bool up)
{
    struct decimal d = {0, {0}, open};
    char text[64];
    int digit[32], n = 0, exponent;
    bool cut = false;
    if (x >= 1e18)
        return most;
    for (int precision = 1; precision <= 17; precision++) { /* the shortest that reads back */
        snprintf(text, sizeof text, "%.*e", precision - 1, x);
        if (strtod(text, NULL) >= x && strtod(text, NULL) <= x)
            break;
    }
    exponent = (int)strtol(strchr(text, 'e') + 1, NULL, 10);
    for (const char *c = text; *c != 'e'; c++)
        if (*c >= '0' && *c <= '9')
            digit[n++] = *c - '0';
    for (int i = 0; i < n; i++) { /* digit i stands for 10^(exponent - i) */
        int at = i - exponent - 1;
        if (at < 0)
            d.whole += digit[i] * power_10(-1 - at);
        else if (at < FRACTION)
            d.digit[at] = digit[i];
        else
            cut = cut || digit[i];
    }
    if (!cut)
        return d;
    d.open = false;
    for (int i = FRACTION - 1; up && i >= -1; i--) {
        if (i < 0)
            d.whole++;
        else if (++d.digit[i] <= 9)
            break;
        else
            d.digit[i] = 0;
    }
    return d;
}

/* What may follow after i digits of the fraction, which are still those of lo, of hi, as far as the pointers are not
 * NULL. */
static uint32_t fraction(struct gram_build *b, const struct decimal *lo, const struct decimal *hi, int i, uint32_t next)
{
    bool below = false, equal = true; /* zeros from here on: are they below lo, are they hi */
    for (int k = i; k < FRACTION; k++) {
        below = below || (lo && lo->digit[k]);
        equal = equal && hi && !hi->digit[k];
    }
    below = below || (lo && lo->open);
    uint32_t end = below || (equal && hi && hi->open) ? GRAM_AT_FAIL : next;
    if (i == FRACTION)
        return end;
    int a = lo ? lo->digit[i] : 0, z = hi ? hi->digit[i] : 9;
    uint32_t out = GRAM_AT_FAIL;
    if (lo && hi && a == z) {
        out = digits(b, a, a, fraction(b, lo, hi, i + 1, next));
    } else {
        if (!lo || !hi || z - a > 1)
            out = digits(b, a + (lo != NULL), z - (hi != NULL), fraction(b, NULL, NULL, i + 1, next));
        if (lo)
            out = gram_or(b, digits(b, a, a, fraction(b, lo, NULL, i + 1, next)), out);
        if (hi)
            out = gram_or(b, digits(b, z, z, fraction(b, NULL, hi, i + 1, next)), out);
    }
    return gram_or(b, out, i > 0 ? end : GRAM_AT_FAIL);
}

/* Behind the whole part: nothing, or a point and digits. */
static uint32_t point(struct gram_build *b, const struct decimal *lo, const struct decimal *hi, uint32_t next)
{
    uint32_t out = gram_str(b, ".", fraction(b, lo, hi, 0, next));
    bool zero = !hi || !hi->open, low = lo && lo->open;
    for (int i = 0; i < FRACTION; i++) {
        zero = zero || hi->digit[i];
        low = low || (lo && lo->digit[i]);
    }
    return zero && !low ? gram_or(b, out, next) : out;
}

static uint32_t decimal_range(struct gram_build *b, const struct decimal *lo, const struct decimal *hi, uint32_t next)
{
    if (lo->whole > hi->whole)
        return GRAM_AT_FAIL;
    if (lo->whole == hi->whole) {
        for (int i = 0; i < FRACTION; i++)
            if (lo->digit[i] != hi->digit[i]) {
                if (lo->digit[i] > hi->digit[i])
                    return GRAM_AT_FAIL;
                break;
            }
        return whole_range(b, lo->whole, lo->whole, point(b, lo, hi, next));
    }
    uint32_t out = whole_range(b, lo->whole + 1, hi->whole - 1, point(b, NULL, NULL, next));
    out = gram_or(b, whole_range(b, lo->whole, lo->whole, point(b, lo, NULL, next)), out);
    return gram_or(b, whole_range(b, hi->whole, hi->whole, point(b, NULL, hi, next)), out);
}

static uint32_t bounded_number(struct schema *s, const struct bounds *r, uint32_t next)
{
    struct gram_build *b = &s->b;
    uint32_t out = GRAM_AT_FAIL;
    if (r->hi >= 0 && r->lo < 1e18) {
        struct decimal lo = to_decimal(r->lo > 0 ? r->lo : 0, r->lo >= 0 && r->lo_open, true), hi = to_decimal(r->hi, r->hi_open, false);
        out = decimal_range(b, &lo, &hi, next);
    }
    if (r->lo < 0 && r->hi > -1e18) {
        struct decimal lo = to_decimal(r->hi < 0 ? -r->hi : 0, r->hi <= 0 && r->hi_open, true);
        struct decimal hi = to_decimal(-r->lo, r->lo_open, false);
        out = gram_or(b, gram_str(b, "-", decimal_range(b, &lo, &hi, next)), out);
    }
    return out;
}

uint32_t schema_number(struct schema *s, const cJSON *node, bool whole, uint32_t next)
{
    struct bounds r = read_bounds(s, node);
    bool free = isinf(r.lo) && isinf(r.hi);
    if (s->b.rc)
        return GRAM_AT_FAIL;
    if (free)
        return whole ? free_whole(s, next) : free_number(s, next);
    return whole ? bounded_whole(s, &r, next) : bounded_number(s, &r, next);
}
