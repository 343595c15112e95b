/* Rotary position angles: the frequency of every pair, and one position's cosines
 * and sines.  All in double, rounded to f32 once.
 *
 * Formulas: RoFormer (Su et al. 2021); linear interpolation (Chen et al. 2023);
 * llama3 as published with Llama 3.1; YaRN (Peng et al. 2023), with the
 * conventions of transformers' modeling_rope_utils. */
#include <math.h>
#include <stdlib.h>

#include "base/mem.h"
#include "model/config_parts.h"

static const double two_pi = 6.283185307179586476925286766559;

/* Wavelengths far below the original context keep their frequency, far above are slowed by `factor`,
 * and those between are mixed. */
static double llama3_freq(const struct rope_config *r, double f)
{
    double ctx = (double)r->orig_ctx, wave = two_pi / f;
    if (wave > ctx / r->low_freq_factor)
        return f / r->factor;
    if (wave < ctx / r->high_freq_factor)
        return f;
    double s = (ctx / wave - r->low_freq_factor) / (r->high_freq_factor - r->low_freq_factor);
    return (1 - s) * f / r->factor + s * f;
}

/* The pair (as a real number) that turns `n_turns` times over the original context. */
static double yarn_pair(const struct rope_config *r, double n_rot, double n_turns)
{
    return n_rot * log((double)r->orig_ctx / (n_turns * two_pi)) / (2 * log(r->theta));
}

static double yarn_freq(const struct rope_config *r, int64_t n_rot, int64_t pair, double f)
{
    double low = yarn_pair(r, (double)n_rot, r->beta_fast), high = yarn_pair(r, (double)n_rot, r->beta_slow);
    if (r->truncate) {
        low = floor(low);
        high = ceil(high);
    }
    low = fmax(low, 0);
    high = fmin(high, (double)n_rot - 1);
    if (low == high)
        high += 0.001;
    double slow = fmin(fmax(((double)pair - low) / (high - low), 0), 1);
    return f / r->factor * slow + f * (1 - slow);
}

int rope_settle(struct rope_config *r, int64_t n_rot, struct err *err)
{
    r->inv_freq = mem_array((size_t)n_rot / 2, sizeof(double));
    if (!r->inv_freq)
        return err_set(err, ERR_NOMEM, "no memory for %lld rotary frequencies", (long long)n_rot / 2);
    for (int64_t i = 0; i < n_rot / 2; i++) {
        double f = pow(r->theta, -(double)(2 * i) / (double)n_rot);
        if (r->type == ROPE_LINEAR)
            f /= r->factor;
        else if (r->type == ROPE_LLAMA3)
            f = llama3_freq(r, f);
        else if (r->type == ROPE_YARN)
            f = yarn_freq(r, n_rot, i, f);
        r->inv_freq[i] = r->freq_factors ? f / (double)r->freq_factors[i] : f;
    }
    return 0;
}

void rope_row(const struct model_config *c, int rope, int64_t pos, float *out)
{
    const struct rope_config *r = &c->ropes[rope];
    double scale = r->type == ROPE_YARN ? r->attention_factor : 1;
    for (int64_t i = 0; i < c->n_rot / 2; i++) {
        double angle = (double)pos * r->inv_freq[i];
        out[2 * i] = (float)(scale * cos(angle));
        out[2 * i + 1] = (float)(scale * sin(angle));
    }
}
