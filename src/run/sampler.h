/* From logits to one token id.  Order of the stages: repetition penalty
 * (prompt and generated ids), frequency and presence (generated only), bias,
 * mask, temperature, top-k, top-p, min-p, typical-p.  Softmax in f32 on the
 * host; the draw walks the kept set by rising id with the number that
 * (seed, sample, position) gives.  Memory is taken for the stages in force, by
 * sampler_new and sampler_set_mask alone: none for a plain argmax. */
#ifndef FORGE_RUN_SAMPLER_H
#define FORGE_RUN_SAMPLER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct sampler_bias { int32_t id; float bias; };

struct sampler_params {
    double temp;              /* 0 = greedy */
    int64_t top_k;            /* 0 = off */
    double top_p;             /* 1 = off */
    double min_p;             /* 0 = off */
    double typical_p;         /* 1 = off */
    double repeat_penalty;    /* 1 = off */
    double presence_penalty, frequency_penalty; /* 0 = off */
    const struct sampler_bias *bias; /* borrowed by check, copied by new */
    size_t n_bias;
    uint64_t seed;
    bool only_finite;         /* a logit of -inf is an error too: the engine's rule for what a model computes */
};
void sampler_params_init(struct sampler_params *p);
/* Ranges of every value ("top_p 1.5 is outside 0..1"); needs_temp: top_p below 1 with temp 0 is an error that says why. */
int sampler_params_check(const struct sampler_params *p, bool needs_temp, int64_t n_vocab, struct err *err);
/* One line, "repeat 1.1 > temp 0.8 > top-k 40 > ...", the values in force in their order. */
void sampler_describe(const struct sampler_params *p, char *out, size_t size);

struct sampler;
int sampler_new(struct sampler **out, const struct sampler_params *p, int64_t n_vocab, struct err *err);
void sampler_free(struct sampler *s);

struct sampler_history { /* what the penalties look at */
    const int32_t *prompt; size_t n_prompt;
    const int32_t *generated; size_t n_generated;
};
/* Stage hook: sets logits of tokens that are not allowed to -inf, in place (run/constrain.h). */
typedef void sampler_mask(void *user, float *logits, int64_t n_vocab);
int sampler_set_mask(struct sampler *s, sampler_mask *mask, void *user, struct err *err);

struct sampler_cand { int32_t id; float p; };
/* The distribution the sampler draws from: kept candidates by rising id, p sums to 1.  -inf logits are never
 * kept; NaN or +inf (-inf with only_finite), or nothing left to choose, is ERR_NUMERIC.  *out is valid until the next call. */
int sampler_probs(struct sampler *s, const float *logits, const struct sampler_history *h,
                  const struct sampler_cand **out, size_t *n, struct err *err);
/* Draws for (sample, position); position counts the sequence's tokens, prompt included. */
int sampler_pick(struct sampler *s, const float *logits, const struct sampler_history *h, uint64_t sample,
                 uint64_t position, int32_t *id, struct err *err);
/* True when no random number and no penalty, bias or mask is in play: the device's argmax is enough. */
bool sampler_is_plain_argmax(const struct sampler *s);

/* Natural log-softmax of raw logits in f64 over finite entries. */
double sampler_logprob(const float *logits, int64_t n_vocab, int32_t id);
double sampler_logsumexp(const float *logits, int64_t n_vocab);

#endif
