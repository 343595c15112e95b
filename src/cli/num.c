/* Strict number parsing: a grammar checked by hand, then the C library's
 * conversion in the C locale.
 * Knows no flags; the tables say which range holds. */
#include "cli/num.h"

#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool digits(const char **s)
{
    const char *start = *s;
    while (**s >= '0' && **s <= '9')
        (*s)++;
    return *s > start;
}

bool num_u64(const char *s, uint64_t *out)
{
    uint64_t v = 0;
    if (!*s)
        return false;
    for (; *s; s++) {
        if (*s < '0' || *s > '9')
            return false;
        unsigned d = (unsigned)(*s - '0');
        if (v > (UINT64_MAX - d) / 10)
            return false;
        v = v * 10 + d;
    }
    *out = v;
    return true;
}

bool num_i64(const char *s, int64_t *out)
{
    uint64_t u;
    bool negative = *s == '-';
    if (!num_u64(s + negative, &u) || u > (uint64_t)INT64_MAX)
        return false;
    *out = negative ? -(int64_t)u : (int64_t)u;
    return true;
}

/* [+-]? (D+ (. D*)? | . D+) ([eE] [+-]? D+)? */
static bool is_decimal(const char *s)
{
    s += *s == '+' || *s == '-';
    bool whole = digits(&s), fraction = false;
    if (*s == '.') {
        s++;
        fraction = digits(&s);
    }
    if (!whole && !fraction)
        return false;
    if (*s == 'e' || *s == 'E') {
        s++;
        s += *s == '+' || *s == '-';
        if (!digits(&s))
            return false;
    }
    return *s == '\0';
}

bool num_f64(const char *s, double *out)
{
    if (!is_decimal(s))
        return false;
    /* strtod reads the decimal point of the locale; the C locale is asked for by name */
    locale_t c = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    if (c == (locale_t)0)
        return false;
    double v = strtod_l(s, NULL, c);
    freelocale(c);
    if (!isfinite(v))
        return false;
    *out = v;
    return true;
}

bool num_size(const char *s, uint64_t *out)
{
    static const char suffixes[] = "kKmMgG";
    char plain[32];
    size_t len = strlen(s);
    unsigned shift = 0;
    uint64_t v;
    if (len == 0 || len >= sizeof plain)
        return false;
    memcpy(plain, s, len + 1);
    const char *suffix = strchr(suffixes, plain[len - 1]);
    if (suffix) {
        shift = 10 * ((unsigned)(suffix - suffixes) / 2 + 1);
        plain[len - 1] = '\0';
    }
    if (!num_u64(plain, &v) || v > UINT64_MAX >> shift)
        return false;
    *out = v << shift;
    return true;
}

bool num_id(double v, int32_t *out)
{
    if (!(v >= 0 && v <= INT32_MAX) || v != floor(v))
        return false;
    *out = (int32_t)v;
    return true;
}

struct num_range num_range(const char *spelling)
{
    struct num_range r = {-INFINITY, INFINITY};
    char lo[32];
    const char *dots = spelling ? strstr(spelling, "..") : NULL;
    size_t len = dots ? (size_t)(dots - spelling) : 0;
    if (!dots || len >= sizeof lo)
        return r;
    memcpy(lo, spelling, len);
    lo[len] = '\0';
    num_f64(lo, &r.lo);
    num_f64(dots + 2, &r.hi);
    return r;
}
