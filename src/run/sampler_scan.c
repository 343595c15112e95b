/* The loops of sampler_scan.h.  Each step is the same for every lane, so that one
 * instruction does several; nothing is summed here, so that no order changes.
 * Owns the exponential of the sampler. */
#include "run/sampler_scan.h"

#include <float.h>
#include <math.h>
#include <string.h>

enum { LANES = 16, WEIGHTS = 8 };

/* The largest of `LANES` running ones. */
static float join(const float m[LANES])
{
    float max = m[0];
    for (int l = 1; l < LANES; l++)
        max = m[l] > max ? m[l] : max;
    return max;
}

/* Of one whole block; *bad becomes non-zero where a value is not in least..FLT_MAX. */
static float whole_block_max(const float *x, float least, int32_t *bad)
{
    float m[LANES];
    int32_t b[LANES] = {0}, any = 0;
    for (int l = 0; l < LANES; l++)
        m[l] = -INFINITY;
    for (int i = 0; i < SCAN_BLOCK; i += LANES)
        for (int l = 0; l < LANES; l++) {
            float v = x[i + l];
            m[l] = v > m[l] ? v : m[l];
            b[l] |= (v >= least ? 0 : 1) | (v <= FLT_MAX ? 0 : 1);
        }
    for (int l = 0; l < LANES; l++)
        any |= b[l];
    *bad |= any;
    return join(m);
}

static float rest_max(const float *x, int64_t n, float least, int32_t *bad)
{
    float max = -INFINITY;
    for (int64_t i = 0; i < n; i++) {
        max = x[i] > max ? x[i] : max;
        *bad |= (x[i] >= least ? 0 : 1) | (x[i] <= FLT_MAX ? 0 : 1);
    }
    return max;
}

bool scan_logits(const float *x, int64_t n, float least, int64_t *first, float *block_max)
{
    float best = -INFINITY;
    int64_t at = 0;
    int32_t bad = 0;
    for (int64_t i = 0; i < n; i += SCAN_BLOCK) {
        float max = n - i >= SCAN_BLOCK ? whole_block_max(x + i, least, &bad) : rest_max(x + i, n - i, least, &bad);
        if (block_max)
            block_max[i / SCAN_BLOCK] = max;
        at = max > best ? i : at;
        best = max > best ? max : best;
    }
    for (int64_t end = n - at < SCAN_BLOCK ? n : at + SCAN_BLOCK; at < end - 1 && x[at] < best;)
        at++;
    *first = at;
    return bad == 0;
}

/* e^y, y <= 0: y = n ln 2 + f, Taylor's series of e^f, |f| <= 0.35, then 2^n by its bits.  Adding and taking away
 * 1.5 * 2^52 rounds to a whole number, which then is the difference of the bits. */
static void exp_lanes(double v[WEIGHTS])
{
    const double magic = 6755399441055744.0;
    double y[WEIGHTS], p[WEIGHTS], t[WEIGHTS], two_n[WEIGHTS];
    uint64_t bits[WEIGHTS], magic_bits;
    memcpy(&magic_bits, &magic, sizeof magic_bits);
    for (int l = 0; l < WEIGHTS; l++)
        y[l] = v[l] < -700.0 ? -700.0 : v[l];
    for (int l = 0; l < WEIGHTS; l++) {
        t[l] = y[l] * 1.4426950408889634 + magic;
        double n = t[l] - magic;
        double f = (y[l] - n * 0.693147180369123816490) - n * 1.90821492927058770002e-10; /* ln 2 in two parts */
        double q = 1.0 / 362880;
        q = q * f + 1.0 / 40320;
        q = q * f + 1.0 / 5040;
        q = q * f + 1.0 / 720;
        q = q * f + 1.0 / 120;
        q = q * f + 1.0 / 24;
        q = q * f + 1.0 / 6;
        q = q * f + 0.5;
        q = q * f + 1.0;
        p[l] = q * f + 1.0;
    }
    memcpy(bits, t, sizeof bits);
    for (int l = 0; l < WEIGHTS; l++)
        bits[l] = (bits[l] - magic_bits + 1023) << 52;
    memcpy(two_n, bits, sizeof two_n);
    for (int l = 0; l < WEIGHTS; l++)
        p[l] *= two_n[l];
    for (int l = 0; l < WEIGHTS; l++)
        if (v[l] < -700.0)
            p[l] = 0;
    memcpy(v, p, sizeof p);
}

void scan_weights(struct select_item *item, size_t n, double max, double temp)
{
    double v[WEIGHTS];
    for (size_t i = 0; i < n; i += WEIGHTS) {
        size_t m = n - i < WEIGHTS ? n - i : WEIGHTS;
        for (size_t l = 0; l < m; l++)
            v[l] = item[i + l].key - max;
        for (size_t l = m; l < WEIGHTS; l++)
            v[l] = 0;
        for (int l = 0; l < WEIGHTS; l++)
            v[l] /= temp;
        exp_lanes(v);
        for (size_t l = 0; l < m; l++)
            item[i + l].weight = v[l];
    }
}
