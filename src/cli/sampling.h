/* The sampler's flags, alike in generate, sample and sample-sweep.
 * Rows for the commands' tables, and their way into forge.h; the rules are
 * run/sampler's. */
#ifndef FORGE_CLI_SAMPLING_H
#define FORGE_CLI_SAMPLING_H

#include <forge.h>

#include "cli/opts.h"

struct sampling_args {
    double temp, top_p, min_p, typical_p, repeat_penalty, presence_penalty, frequency_penalty;
    int64_t top_k;
    struct bias_list bias;
    uint64_t seed;
    bool has_temp, has_top_k, has_top_p, has_min_p, has_repeat_penalty, has_seed;
};

/* Rows of a command's table over a field `sampling` of its struct. */
#define SAMPLING_OFF(type, field) offsetof(type, sampling.field)
#define SAMPLING_OPTS(type, temp_default, temp_help)                                                         \
    {"temp",       0,        OPT_F64, SAMPLING_OFF(type, temp), SAMPLING_OFF(type, has_temp), "T", "0..",    \
     temp_default, temp_help},                                                                               \
        {"top-k",                                                                                            \
         0,                                                                                                  \
         OPT_I64,                                                                                            \
         SAMPLING_OFF(type, top_k),                                                                          \
         SAMPLING_OFF(type, has_top_k),                                                                      \
         "K",                                                                                                \
         "0..",                                                                                              \
         "0",                                                                                                \
         "only the K most likely tokens; 0 = all, 1 = greedy"},                                              \
        {"top-p",                                                                                            \
         0,                                                                                                  \
         OPT_F64,                                                                                            \
         SAMPLING_OFF(type, top_p),                                                                          \
         SAMPLING_OFF(type, has_top_p),                                                                      \
         "P",                                                                                                \
         "0..1",                                                                                             \
         "1",                                                                                                \
         "only the most likely tokens whose mass reaches P; 1 = all, 0 = greedy"},                           \
        {"min-p",                                                                                            \
         0,                                                                                                  \
         OPT_F64,                                                                                            \
         SAMPLING_OFF(type, min_p),                                                                          \
         SAMPLING_OFF(type, has_min_p),                                                                      \
         "P",                                                                                                \
         "0..1",                                                                                             \
         "0",                                                                                                \
         "only tokens with at least P times the largest probability"},                                       \
        {"typical",                                                                                          \
         0,                                                                                                  \
         OPT_F64,                                                                                            \
         SAMPLING_OFF(type, typical_p),                                                                      \
         0,                                                                                                  \
         "P",                                                                                                \
         "0..1",                                                                                             \
         "1",                                                                                                \
         "only the most typical tokens whose mass reaches P; 1 = all"},                                      \
        {"repeat-penalty",                                                                                   \
         0,                                                                                                  \
         OPT_F64,                                                                                            \
         SAMPLING_OFF(type, repeat_penalty),                                                                 \
         SAMPLING_OFF(type, has_repeat_penalty),                                                             \
         "R",                                                                                                \
         "0..",                                                                                              \
         "1",                                                                                                \
         "logits of tokens of the prompt and the text are divided (above 0) or multiplied by R"},            \
        {"presence-penalty",                                                                                 \
         0,                                                                                                  \
         OPT_F64,                                                                                            \
         SAMPLING_OFF(type, presence_penalty),                                                               \
         0,                                                                                                  \
         "A",                                                                                                \
         NULL,                                                                                               \
         "0",                                                                                                \
         "taken off the logit of each generated token"},                                                     \
        {"frequency-penalty",                                                                                \
         0,                                                                                                  \
         OPT_F64,                                                                                            \
         SAMPLING_OFF(type, frequency_penalty),                                                              \
         0,                                                                                                  \
         "A",                                                                                                \
         NULL,                                                                                               \
         "0",                                                                                                \
         "taken off the logit of each generated token, times its count"},                                    \
        {"logit-bias",                                                                                       \
         0,                                                                                                  \
         OPT_BIAS,                                                                                           \
         SAMPLING_OFF(type, bias),                                                                           \
         0,                                                                                                  \
         "ID=B",                                                                                             \
         NULL,                                                                                               \
         NULL,                                                                                               \
         "B is added to the logit of token ID; may be given several times"},                                 \
    {                                                                                                        \
        "seed", 0, OPT_U64, SAMPLING_OFF(type, seed), SAMPLING_OFF(type, has_seed), "S", NULL, NULL,         \
            "seed of the random numbers, 0 to 2^64-1 (default: a random one, printed)"                       \
    }

/* The model's own values in place of those not given. */
void sampling_model_defaults(struct sampling_args *a, const struct forge_engine_info *info);
/* A combination that would silently do nothing: "top_p 0.9 needs ..." in why (size bytes), false; else true.
 */
bool sampling_check(const struct sampling_args *a, char *why, size_t size);
/* bias_out [a->bias.n] is borrowed by *out. */
void sampling_to_forge(const struct sampling_args *a, struct forge_logit_bias *bias_out,
                       struct forge_sampling *out);
/* "temp 0.8, top-k 40, ..." for -v: what is in force. */
void sampling_describe(const struct sampling_args *a, char *out, size_t size);

#endif
