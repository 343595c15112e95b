/* Log-probabilities of a step: the chosen id's and the best ones', from the raw
 * logits, before penalties, temperature or filters.  Owns their rows in a
 * sample; must not know how the id was chosen. */
#include "base/mem.h"
#include "run/engine.h"

/* a is listed before b: larger, among equals the lower id. */
static bool before(struct forge_logprob a, struct forge_logprob b)
{
    return a.logprob > b.logprob || (a.logprob == b.logprob && a.id < b.id);
}

/* The n largest logits, falling, by insertion into a sorted list: nearly all values are turned away at once. */
static size_t best_logits(struct forge_logprob *out, size_t n, const float *logits, int64_t n_vocab)
{
    size_t have = 0;
    for (int64_t i = 0; i < n_vocab && n > 0; i++) {
        struct forge_logprob c = {(int32_t)i, logits[i]};
        if (have == n && !before(c, out[n - 1]))
            continue;
        size_t at = have < n ? have++ : n - 1;
        for (; at > 0 && before(c, out[at - 1]); at--)
            out[at] = out[at - 1];
        out[at] = c;
    }
    return have;
}

int logprobs_add(struct sample *s, int n_best, const float *logits, int64_t n_vocab, int32_t id, struct err *err)
{
    size_t row = 1 + (size_t)n_best, need;
    if (!mem_mul(s->ids.n + 1, row, &need))
        return err_set(err, ERR_NOMEM, "no memory for log-probabilities");
    struct forge_logprob *grown = mem_grow(s->logprobs, &s->logprobs_cap, need, sizeof *grown);
    if (!grown)
        return err_set(err, ERR_NOMEM, "no memory for log-probabilities");
    s->logprobs = grown;
    struct forge_logprob *out = grown + s->ids.n * row;
    double sum = sampler_logsumexp(logits, n_vocab);
    out[0] = (struct forge_logprob){id, (float)((double)logits[id] - sum)};
    best_logits(out + 1, (size_t)n_best, logits, n_vocab);
    for (size_t i = 1; i < row; i++)
        out[i].logprob = (float)((double)out[i].logprob - sum);
    return 0;
}
