/* The canonical functions against libm: error in units of the last place over
 * their ranges, and the edges (NaN, infinities, zeros, beyond the range).  That
 * every instruction set computes the same bits is test_op.c's matter. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "tests/test.h"

#define FMA fmaf
static inline float AS_FLOAT(uint32_t u)
{
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}
static inline uint32_t AS_UINT(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}
#include "cl/canon.clh"

static double recip(double x)
{
    return 1 / x;
}

static double rsqrt(double x)
{
    return 1 / sqrt(x);
}

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

static double silu(double x)
{
    return x * sigmoid(x);
}

static double gelu_tanh(double x)
{
    return 0.5 * x * (1 + tanh(0.79788456080286535588 * (x + 0.044715 * x * x * x)));
}

static double gelu_erf(double x)
{
    return 0.5 * x * erfc(-x * 0.70710678118654752440);
}

static const struct range {
    const char *name;
    float (*f)(float);
    double (*want)(double);
    double lo, hi;
    double ulp; /* bound on |f - want| / (2^-23 |want|), about ulps */
    double abs; /* or on |f - want|, whichever is kept */
} ranges[] = {
    {"exp", canon_exp, exp, -79.99, 79.99, 0.8, 0},
    {"exp", canon_exp, exp, -1, 1, 0.7, 0},
    {"exp", canon_exp, exp, -1e-6, 1e-6, 0.6, 0},
    {"recip", canon_recip, recip, 1e-30, 1e-20, 0.6, 0},
    {"recip", canon_recip, recip, 0.5, 4, 0.6, 0},
    {"recip", canon_recip, recip, 1, 5.6e34, 0.6, 0},
    {"rsqrt", canon_rsqrt, rsqrt, 1e-8, 1e-2, 0.7, 0},
    {"rsqrt", canon_rsqrt, rsqrt, 0.25, 4, 0.7, 0},
    {"rsqrt", canon_rsqrt, rsqrt, 1, 1e30, 0.7, 0},
    {"tanh", canon_tanh, tanh, -1e-3, 1e-3, 0.6, 0},
    {"tanh", canon_tanh, tanh, -2, 2, 1.3, 0},
    {"tanh", canon_tanh, tanh, -60, 60, 1.3, 0},
    {"erf", canon_erf, erf, -1e-3, 1e-3, 0.9, 0},
    {"erf", canon_erf, erf, -2, 2, 0.9, 0},
    {"erf", canon_erf, erf, -8, 8, 0.9, 0},
    {"sigmoid", canon_sigmoid, sigmoid, -79, 100, 1.3, 0},
    {"silu", canon_silu, silu, -79, 100, 1.8, 0},
    {"gelu_tanh", canon_gelu_tanh, gelu_tanh, -1, 10, 3, 0},
    {"gelu_tanh", canon_gelu_tanh, gelu_tanh, -10, -1, 0, 1e-7},
    {"gelu_erf", canon_gelu_erf, gelu_erf, 0, 10, 1.5, 0},
    {"gelu_erf", canon_gelu_erf, gelu_erf, -10, 0, 0, 3e-7},
};

START_TEST(accuracy)
{
    const struct range *r = &ranges[_i];
    const int n = 200000;

    for (int i = 0; i <= n; i++) {
        float x = (float)(r->lo + (r->hi - r->lo) * i / n);
        double want = r->want((double)x), d = fabs((double)r->f(x) - want);
        ck_assert_msg(d <= r->abs || d <= r->ulp * 0x1p-23 * fabs(want), "%s(%.9g) = %.9g, not %.9g", r->name,
                      (double)x, (double)r->f(x), want);
    }
}
END_TEST

/* Want NAN: the result must be NaN.  Zeros compare by value. */
static const struct edge {
    const char *name;
    float (*f)(float);
    float x, want;
} edges[] = {
    {"exp", canon_exp, 0, 1},
    {"exp", canon_exp, -0.0f, 1},
    {"exp", canon_exp, -INFINITY, 0},
    {"exp", canon_exp, -1e30f, 0},
    {"exp", canon_exp, -80.01f, 0},
    {"exp", canon_exp, INFINITY, 5.54062239e34f},
    {"exp", canon_exp, 1e30f, 5.54062239e34f},
    {"exp", canon_exp, NAN, NAN},
    {"recip", canon_recip, 1, 1},
    {"recip", canon_recip, 2, 0.5f},
    {"recip", canon_recip, NAN, NAN},
    {"rsqrt", canon_rsqrt, 4, 0.5f},
    {"rsqrt", canon_rsqrt, NAN, NAN},
    {"tanh", canon_tanh, 0, 0},
    {"tanh", canon_tanh, INFINITY, 1},
    {"tanh", canon_tanh, -INFINITY, -1},
    {"tanh", canon_tanh, -3e38f, -1},
    {"tanh", canon_tanh, NAN, NAN},
    {"erf", canon_erf, 0, 0},
    {"erf", canon_erf, INFINITY, 1},
    {"erf", canon_erf, -4, -1},
    {"erf", canon_erf, -INFINITY, -1},
    {"erf", canon_erf, NAN, NAN},
    {"sigmoid", canon_sigmoid, 0, 0.5f},
    {"sigmoid", canon_sigmoid, INFINITY, 1},
    {"sigmoid", canon_sigmoid, -INFINITY, 0},
    {"sigmoid", canon_sigmoid, NAN, NAN},
    {"silu", canon_silu, 0, 0},
    {"silu", canon_silu, 1e38f, 1e38f},
    {"silu", canon_silu, -1e38f, 0},
    {"silu", canon_silu, NAN, NAN},
    {"gelu_tanh", canon_gelu_tanh, 0, 0},
    {"gelu_tanh", canon_gelu_tanh, 100, 100},
    {"gelu_tanh", canon_gelu_tanh, -100, 0},
    {"gelu_tanh", canon_gelu_tanh, NAN, NAN},
    {"gelu_erf", canon_gelu_erf, 0, 0},
    {"gelu_erf", canon_gelu_erf, 100, 100},
    {"gelu_erf", canon_gelu_erf, -100, 0},
    {"gelu_erf", canon_gelu_erf, NAN, NAN},
};

START_TEST(edge)
{
    const struct edge *e = &edges[_i];
    float got = e->f(e->x);
    ck_assert_msg(isnan(e->want) ? isnan(got) : got == e->want, "%s(%g) = %.9g, not %.9g", e->name,
                  (double)e->x, (double)got, (double)e->want);
}
END_TEST

/* Signs: odd functions stay odd, bit for bit. */
START_TEST(odd)
{
    for (int i = 0; i < 100000; i++) {
        float x = (float)i * 1e-4f;
        ck_assert(canon_tanh(-x) == -canon_tanh(x));
        ck_assert(canon_erf(-x) == -canon_erf(x));
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("canon");
    TCase *t = tcase_create("canon");
    tcase_add_loop_test(t, accuracy, 0, (int)(sizeof ranges / sizeof *ranges));
    tcase_add_loop_test(t, edge, 0, (int)(sizeof edges / sizeof *edges));
    tcase_add_test(t, odd);
    suite_add_tcase(s, t);
    return test_main(s);
}
