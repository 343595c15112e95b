/* The sampler's settings: defaults, ranges, and how they read in one line.
 * One table each, so that a new setting is a row here and a stage in
 * sampler.c. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "run/sampler.h"

void sampler_params_init(struct sampler_params *p)
{
    *p = (struct sampler_params){.top_p = 1, .typical_p = 1, .repeat_penalty = 1};
}

/* Penalties are far inside what f64 holds, so that no score overflows. */
#define PENALTY_MAX 1e30

int sampler_params_check(const struct sampler_params *p, bool needs_temp, int64_t n_vocab, struct err *err)
{
    const struct { const char *name; double value, min, max; const char *range; } rows[] = {
        {"temp", p->temp, 0, PENALTY_MAX, "at least 0 and at most 1e+30"},
        {"top_p", p->top_p, 0, 1, "0 to 1"},
        {"min_p", p->min_p, 0, 1, "0 to 1"},
        {"typical_p", p->typical_p, 0, 1, "0 to 1"},
        {"repeat_penalty", p->repeat_penalty, 1 / PENALTY_MAX, PENALTY_MAX, "at least 1e-30 and at most 1e+30"},
        {"presence_penalty", p->presence_penalty, -PENALTY_MAX, PENALTY_MAX, "-1e+30 to 1e+30"},
        {"frequency_penalty", p->frequency_penalty, -PENALTY_MAX, PENALTY_MAX, "-1e+30 to 1e+30"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (!(rows[i].value >= rows[i].min && rows[i].value <= rows[i].max))
            return err_set(err, ERR_ARG, "%s is %g; it must be %s", rows[i].name, rows[i].value, rows[i].range);
    if (p->top_k < 0)
        return err_set(err, ERR_ARG, "top_k is %lld; it must be 0 (off) or more", (long long)p->top_k);
    if (needs_temp && p->top_p < 1 && p->temp <= 0)
        return err_set(err, ERR_ARG,
                       "top_p is %g but temp is 0: greedy decoding takes the largest logit and top_p would change "
                       "nothing; set temp above 0",
                       p->top_p);
    if (n_vocab < 1 || n_vocab > INT32_MAX)
        return err_set(err, ERR_ARG, "a vocabulary of %lld ids cannot be sampled from", (long long)n_vocab);
    for (size_t i = 0; i < p->n_bias; i++) {
        const struct sampler_bias *b = &p->bias[i];
        if (b->id < 0 || b->id >= n_vocab)
            return err_set(err, ERR_ARG, "logit bias: id %d is outside the vocabulary of %lld ids", (int)b->id,
                           (long long)n_vocab);
        if (isnan(b->bias) || b->bias == INFINITY)
            return err_set(err, ERR_ARG, "logit bias: the value for id %d must be a number (or -Inf, a ban)", (int)b->id);
    }
    return 0;
}

void sampler_describe(const struct sampler_params *p, char *out, size_t size)
{
    bool greedy = p->temp <= 0 || p->top_k == 1 || p->top_p <= 0;
    const struct { bool on; const char *name; double value; } rows[] = {
        {p->repeat_penalty != 1, "repeat", p->repeat_penalty},
        {p->frequency_penalty != 0, "frequency", p->frequency_penalty},
        {p->presence_penalty != 0, "presence", p->presence_penalty},
        {p->n_bias > 0, "bias", (double)p->n_bias},
        {!greedy, "temp", p->temp},
        {!greedy && p->top_k > 0, "top-k", (double)p->top_k},
        {!greedy && p->top_p < 1, "top-p", p->top_p},
        {!greedy && p->min_p > 0, "min-p", p->min_p},
        {!greedy && p->typical_p < 1, "typical", p->typical_p},
    };
    struct buf b;
    buf_init(&b);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (rows[i].on)
            buf_printf(&b, "%s%s %.6g", b.len ? " > " : "", rows[i].name, rows[i].value);
    if (greedy)
        buf_printf(&b, "%sgreedy", b.len ? " > " : "");
    snprintf(out, size, "%s", buf_str(&b));
    buf_fini(&b);
}
