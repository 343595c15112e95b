/* The sampler's flags as values of forge.h.
 * The rules of sampling are run/sampler's; here is only what the command line
 * says beyond them: the model's defaults, and flags that would do nothing. */
#include "cli/sampling.h"

#include <inttypes.h>
#include <stdio.h>

void sampling_model_defaults(struct sampling_args *a, const struct forge_engine_info *info)
{
    if (!a->has_temp && info->default_temp >= 0)
        a->temp = info->default_temp;
    if (!a->has_top_k && info->default_top_k >= 0)
        a->top_k = info->default_top_k;
    if (!a->has_top_p && info->default_top_p >= 0)
        a->top_p = info->default_top_p;
    if (!a->has_min_p && info->default_min_p >= 0)
        a->min_p = info->default_min_p;
    if (!a->has_repeat_penalty && info->default_repeat_penalty >= 0)
        a->repeat_penalty = info->default_repeat_penalty;
}

bool sampling_check(const struct sampling_args *a, char *why, size_t size)
{
    if (a->top_p >= 1 || a->temp > 0)
        return true;
    snprintf(why, size,
             "--top-p %g needs --temp above 0: with --temp 0 the most likely token is always taken, and "
             "top-p would change nothing",
             a->top_p);
    return false;
}

void sampling_to_forge(const struct sampling_args *a, struct forge_logit_bias *bias_out,
                       struct forge_sampling *out)
{
    for (size_t i = 0; i < a->bias.n; i++)
        bias_out[i] = (struct forge_logit_bias){(int32_t)a->bias.v[i].id, (float)a->bias.v[i].bias};
    *out = (struct forge_sampling){
        .temp = a->temp,
        .top_k = a->top_k,
        .top_p = a->top_p,
        .min_p = a->min_p,
        .typical_p = a->typical_p,
        .repeat_penalty = a->repeat_penalty,
        .presence_penalty = a->presence_penalty,
        .frequency_penalty = a->frequency_penalty,
        .bias = a->bias.n ? bias_out : NULL,
        .n_bias = a->bias.n,
        .seed = a->seed,
        .has_seed = a->has_seed,
    };
}

void sampling_describe(const struct sampling_args *a, char *out, size_t size)
{
    snprintf(
        out, size,
        "repeat-penalty %g, frequency-penalty %g, presence-penalty %g, %zu biases, temp %g%s, top-k %" PRId64
        ", top-p %g, min-p %g, typical %g",
        a->repeat_penalty, a->frequency_penalty, a->presence_penalty, a->bias.n, a->temp,
        a->temp > 0 ? "" : " (greedy)", a->top_k, a->top_p, a->min_p, a->typical_p);
}
