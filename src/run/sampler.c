/* From logits to a distribution and a draw: the stages in their order, then the
 * walk over the kept ids.  Owns the buffers of one sampler; the edge rules are
 * in tests/golden/README.md ("sampling").  Knows nothing of models or text.
 *
 * Scores and sums are f64 and use only IEEE operations (exponential and logarithm
 * are ours) on values that came from f32 logits, so that a seed gives the same
 * text on every machine; log-probabilities, which decide nothing, use libm's. */
#include "run/sampler.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "run/sampler_scan.h"
#include "run/sampler_select.h"

struct sampler {
    struct sampler_params p; /* p.bias owned */
    struct sampler_bias *bias;
    int64_t n_vocab;
    sampler_mask *mask;
    void *mask_user;
    /* [n_vocab] each, and NULL where no stage in force needs it */
    float *masked;             /* logits as the mask leaves them */
    float *block_max;          /* [scan_n_blocks] the largest logit of each block; unless greedy or scores differ */
    double *score;             /* after penalties and bias, where there are any; else the logits are the scores */
    uint32_t *count;           /* occurrences, all zero between calls; for penalties */
    struct select_item *item;  /* kept candidates, rising id; unless greedy */
    struct select_item *work;  /* their copy that selection permutes; for top-k, top-p, typical */
    struct sampler_cand *cand; /* the answer; unless greedy */
    struct sampler_cand best;  /* the answer of greedy */
};

static bool is_greedy(const struct sampler_params *p)
{
    return p->temp <= 0 || p->top_k == 1 || p->top_p <= 0;
}

static bool has_penalties(const struct sampler_params *p)
{
    return p->repeat_penalty != 1 || p->presence_penalty != 0 || p->frequency_penalty != 0;
}

static void *provide(bool needed, size_t n, size_t size, bool *failed)
{
    void *p = needed ? mem_array(n, size) : NULL;
    *failed |= needed && !p;
    return p;
}

static int no_memory(int64_t n_vocab, struct err *err)
{
    return err_set(err, ERR_NOMEM, "no memory for a sampler over %lld ids", (long long)n_vocab);
}

int sampler_new(struct sampler **out, const struct sampler_params *p, int64_t n_vocab, struct err *err)
{
    *out = NULL;
    int rc = sampler_params_check(p, false, n_vocab, err);
    if (rc < 0)
        return rc;
    struct sampler *s = mem_array(1, sizeof *s);
    if (!s)
        return err_set(err, ERR_NOMEM, "no memory for a sampler");
    size_t n = (size_t)n_vocab;
    bool failed = false, penalties = has_penalties(p), draws = !is_greedy(p), scores = penalties || p->n_bias > 0;
    s->p = *p;
    s->n_vocab = n_vocab;
    s->bias = provide(p->n_bias > 0, p->n_bias, sizeof *s->bias, &failed);
    s->block_max = provide(draws && !scores, scan_n_blocks(n_vocab), sizeof *s->block_max, &failed);
    s->score = provide(scores, n, sizeof *s->score, &failed);
    s->count = provide(penalties, n, sizeof *s->count, &failed);
    s->item = provide(draws, n, sizeof *s->item, &failed);
    s->work = provide(draws && (p->top_k > 0 || p->top_p < 1 || p->typical_p < 1), n, sizeof *s->work, &failed);
    s->cand = provide(draws, n, sizeof *s->cand, &failed);
    if (failed) {
        sampler_free(s);
        return no_memory(n_vocab, err);
    }
    if (p->n_bias)
        memcpy(s->bias, p->bias, p->n_bias * sizeof *s->bias);
    s->p.bias = s->bias;
    *out = s;
    return 0;
}

void sampler_free(struct sampler *s)
{
    if (!s)
        return;
    free(s->bias);
    free(s->masked);
    free(s->block_max);
    free(s->score);
    free(s->count);
    free(s->item);
    free(s->work);
    free(s->cand);
    free(s);
}

int sampler_set_mask(struct sampler *s, sampler_mask *mask, void *user, struct err *err)
{
    bool failed = false;
    size_t n = (size_t)s->n_vocab;
    if (!s->masked)
        s->masked = provide(mask != NULL, n, sizeof *s->masked, &failed);
    if (failed)
        return no_memory(s->n_vocab, err);
    s->mask = mask;
    s->mask_user = user;
    return 0;
}

bool sampler_is_plain_argmax(const struct sampler *s)
{
    const struct sampler_params *p = &s->p;
    return is_greedy(p) && !has_penalties(p) && p->n_bias == 0 && !s->mask;
}

/* ln x for finite, normal x > 0, relative error below 1e-15 away from 1, by IEEE operations alone:
 * x = m 2^e with m in [sqrt 1/2, sqrt 2), ln m = 2 artanh((m - 1) / (m + 1)) by its series. */
static double log_pos(double x)
{
    int e;
    double m = frexp(x, &e); /* exact: it only parts the bits */
    if (m < 0.70710678118654752) {
        m *= 2;
        e--;
    }
    double t = (m - 1) / (m + 1), t2 = t * t, sum = 0;
    for (int k = 21; k >= 1; k -= 2)
        sum = sum * t2 + 1.0 / k;
    return e * 1.90821492927058770002e-10 + 2 * t * sum + e * 0.693147180369123816490; /* ln 2 in two parts */
}

/* Applies `repeat` once to every id of the list that is not yet counted, and counts it. */
static void count_ids(struct sampler *s, const int32_t *ids, size_t n, double repeat)
{
    for (size_t i = 0; i < n; i++) {
        int32_t id = ids[i];
        if (s->count[id]++ == 0)
            s->score[id] = s->score[id] < 0 ? s->score[id] * repeat : s->score[id] / repeat;
    }
}

static void uncount_ids(struct sampler *s, const int32_t *ids, size_t n)
{
    for (size_t i = 0; i < n; i++)
        s->count[ids[i]] = 0;
}

/* Repetition looks at prompt and generated ids, frequency and presence at generated ones only. */
static void apply_penalties(struct sampler *s, const struct sampler_history *h)
{
    const struct sampler_params *p = &s->p;
    if (p->repeat_penalty != 1) {
        count_ids(s, h->prompt, h->n_prompt, p->repeat_penalty);
        count_ids(s, h->generated, h->n_generated, p->repeat_penalty);
        uncount_ids(s, h->prompt, h->n_prompt);
        uncount_ids(s, h->generated, h->n_generated);
    }
    if (p->presence_penalty == 0 && p->frequency_penalty == 0)
        return;
    count_ids(s, h->generated, h->n_generated, 1.0);
    for (size_t i = 0; i < h->n_generated; i++) {
        int32_t id = h->generated[i];
        if (s->count[id])
            s->score[id] -= p->frequency_penalty * s->count[id] + p->presence_penalty;
        s->count[id] = 0;
    }
}

static int check_history(const struct sampler *s, const int32_t *ids, size_t n, struct err *err)
{
    for (size_t i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= s->n_vocab)
            return err_set(err, ERR_ARG, "id %d is outside the vocabulary of %lld ids", (int)ids[i],
                           (long long)s->n_vocab);
    return 0;
}

static const char *name_of(float bad)
{
    return isnan(bad) ? "NaN" : bad > 0 ? "+Inf" : "-Inf";
}

/* ERR_NUMERIC for the first value that a logit cannot be. */
static int bad_logits(const struct sampler *s, const float *logits, float least, struct err *err)
{
    int64_t i = 0;
    while (i < s->n_vocab - 1 && logits[i] >= least && logits[i] <= FLT_MAX)
        i++;
    return err_set(err, ERR_NUMERIC, "non-finite logits: the value of id %lld is %s", (long long)i, name_of(logits[i]));
}

/* Scores after penalties and bias, and the first of the largest. */
static void make_scores(struct sampler *s, const float *logits, const struct sampler_history *h, int64_t *best)
{
    for (int64_t i = 0; i < s->n_vocab; i++)
        s->score[i] = (double)logits[i];
    apply_penalties(s, h);
    for (size_t i = 0; i < s->p.n_bias; i++)
        s->score[s->bias[i].id] += (double)s->bias[i].bias;
    *best = 0;
    for (int64_t i = 1; i < s->n_vocab; i++)
        if (s->score[i] > s->score[*best])
            *best = i;
}

/* Checks all, masks, scores: *logits becomes what candidates are taken from where there are no scores.  A mask only
 * bans, so it may act on the raw logits. */
static int prepare(struct sampler *s, const float **logits, const struct sampler_history *h, int64_t *best, double *max,
                   struct err *err)
{
    float least = s->p.only_finite ? -FLT_MAX : -INFINITY;
    int rc = check_history(s, h->prompt, h->n_prompt, err);
    if (rc == 0)
        rc = check_history(s, h->generated, h->n_generated, err);
    if (rc < 0)
        return rc;
    if (!scan_logits(*logits, s->n_vocab, least, best, s->block_max))
        return bad_logits(s, *logits, least, err);
    if (s->mask) {
        memcpy(s->masked, *logits, (size_t)s->n_vocab * sizeof **logits);
        s->mask(s->mask_user, s->masked, s->n_vocab);
        *logits = s->masked;
        scan_logits(*logits, s->n_vocab, -INFINITY, best, s->block_max);
    }
    if (s->score)
        make_scores(s, *logits, h, best);
    *max = s->score ? s->score[*best] : (double)(*logits)[*best];
    return 0;
}

static size_t keep_at_least(struct select_item *a, size_t n, double key)
{
    size_t m = 0;
    for (size_t i = 0; i < n; i++)
        if (a[i].key >= key)
            a[m++] = a[i];
    return m;
}

static double block_score_max(const struct sampler *s, size_t block)
{
    int64_t at = (int64_t)block * SCAN_BLOCK, end = at + SCAN_BLOCK < s->n_vocab ? at + SCAN_BLOCK : s->n_vocab;
    if (s->block_max)
        return (double)s->block_max[block];
    double max = s->score[at];
    for (int64_t i = at + 1; i < end; i++)
        max = s->score[i] > max ? s->score[i] : max;
    return max;
}

/* A score that the k largest all reach, so that what is below needs no candidate: the k-th largest of the
 * maxima of blocks; -Inf where there are too few blocks. */
static double bound_top_k(struct sampler *s)
{
    size_t n = scan_n_blocks(s->n_vocab);
    if (s->p.top_k <= 0 || s->p.top_k > s->n_vocab / SCAN_BLOCK)
        return -INFINITY;
    for (size_t b = 0; b < n; b++)
        s->work[b] = (struct select_item){block_score_max(s, b), 0, (int32_t)b};
    return select_kth(s->work, n, (size_t)s->p.top_k);
}

/* Candidates by rising id: every score that is not -inf and reaches `least`; blocks that hold none are passed over. */
static size_t take_candidates(struct sampler *s, const float *logits, double least)
{
    size_t n = 0;
    for (int64_t at = 0; at < s->n_vocab; at += SCAN_BLOCK) {
        int64_t end = s->n_vocab - at < SCAN_BLOCK ? s->n_vocab : at + SCAN_BLOCK;
        if (s->block_max && (double)s->block_max[at / SCAN_BLOCK] < least)
            continue;
        for (int64_t i = at; i < end; i++) {
            double score = s->score ? s->score[i] : (double)logits[i];
            if (score > -INFINITY && score >= least)
                s->item[n++] = (struct select_item){score, 0, (int32_t)i};
        }
    }
    return n;
}

/* Every score that ties with the k-th stays. */
static size_t stage_top_k(struct sampler *s, size_t n)
{
    if (s->p.top_k <= 0 || (uint64_t)s->p.top_k >= n)
        return n;
    memcpy(s->work, s->item, n * sizeof *s->work);
    return keep_at_least(s->item, n, select_kth(s->work, n, (size_t)s->p.top_k));
}

static double total_weight(const struct select_item *a, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += a[i].weight;
    return sum;
}

/* Keeps an item while the mass before it is below top_p; among equals the lower id comes first. */
static size_t stage_top_p(struct sampler *s, size_t n)
{
    if (s->p.top_p >= 1)
        return n;
    /* All items below `least` together weigh less than 1 - top_p: the cut lies before them. */
    double sum = total_weight(s->item, n), least = 0.5 * (1 - s->p.top_p) * sum / (double)n;
    size_t m = 0;
    for (size_t i = 0; i < n; i++)
        if (s->item[i].weight >= least)
            s->work[m++] = s->item[i];
    struct select_item last = select_mass(s->work, m, s->p.top_p * sum);
    m = 0;
    for (size_t i = 0; i < n; i++)
        if (!select_before(&last, &s->item[i]))
            s->item[m++] = s->item[i];
    return m;
}

/* p >= min_p * max p; the largest weight is e^0 = 1. */
static size_t stage_min_p(struct sampler *s, size_t n)
{
    if (s->p.min_p <= 0)
        return n;
    size_t m = 0;
    for (size_t i = 0; i < n; i++)
        if (s->item[i].weight >= s->p.min_p)
            s->item[m++] = s->item[i];
    return m;
}

/* Locally typical sampling (Meister and others, 2022): the ids whose -log p lies nearest to the entropy, until
 * their mass reaches typical_p; what ties with the last one stays. */
static size_t stage_typical(struct sampler *s, size_t n, double max)
{
    if (s->p.typical_p >= 1 || n < 2)
        return n;
    double sum = total_weight(s->item, n), log_sum = log_pos(sum), entropy = 0;
    for (size_t i = 0; i < n; i++) {
        double log_p = (s->item[i].key - max) / s->p.temp - log_sum;
        if (s->item[i].weight > 0)
            entropy -= s->item[i].weight / sum * log_p;
    }
    for (size_t i = 0; i < n; i++) {
        double log_p = (s->item[i].key - max) / s->p.temp - log_sum;
        s->item[i].key = -fabs(-log_p - entropy);
    }
    memcpy(s->work, s->item, n * sizeof *s->work);
    return keep_at_least(s->item, n, select_mass(s->work, n, s->p.typical_p * sum).key);
}

/* Candidates with their weights, cut by the stages. */
static size_t run_stages(struct sampler *s, const float *logits, double max)
{
    size_t n = take_candidates(s, logits, bound_top_k(s));
    n = stage_top_k(s, n);
    scan_weights(s->item, n, max, s->p.temp);
    n = stage_top_p(s, n);
    n = stage_min_p(s, n);
    return stage_typical(s, n, max);
}

int sampler_probs(struct sampler *s, const float *logits, const struct sampler_history *h,
                  const struct sampler_cand **out, size_t *n, struct err *err)
{
    int64_t best = 0;
    double max = 0;
    int rc = prepare(s, &logits, h, &best, &max, err);
    if (rc < 0)
        return rc;
    if (!(max <= DBL_MAX))
        return err_set(err, ERR_NUMERIC, "the score of id %lld is not finite after penalties and bias", (long long)best);
    if (max == -INFINITY)
        return err_set(err, ERR_NUMERIC, "no token is left to choose from: every one of %lld is -Inf or banned",
                       (long long)s->n_vocab);
    if (is_greedy(&s->p)) {
        s->best = (struct sampler_cand){(int32_t)best, 1.0f};
        *out = &s->best;
        *n = 1;
        return 0;
    }
    *out = s->cand;
    *n = run_stages(s, logits, max);
    double sum = total_weight(s->item, *n);
    for (size_t i = 0; i < *n; i++)
        s->cand[i] = (struct sampler_cand){s->item[i].id, (float)(s->item[i].weight / sum)};
    return 0;
}

int sampler_pick(struct sampler *s, const float *logits, const struct sampler_history *h, uint64_t sample,
                 uint64_t position, int32_t *id, struct err *err)
{
    const struct sampler_cand *c;
    size_t n;
    int rc = sampler_probs(s, logits, h, &c, &n, err);
    if (rc < 0)
        return rc;
    double sum = 0, at = 0;
    for (size_t i = 0; i < n; i++)
        sum += (double)c[i].p;
    double u = n > 1 ? rng_unit(s->p.seed, sample, position) * sum : 0;
    *id = c[0].id;
    for (size_t i = 0; i < n; i++) {
        if (c[i].p <= 0)
            continue;
        *id = c[i].id; /* the last one with a chance, should rounding leave u at the end */
        at += (double)c[i].p;
        if (u < at)
            break;
    }
    return 0;
}

double sampler_logsumexp(const float *logits, int64_t n_vocab)
{
    double max = -INFINITY, sum = 0;
    for (int64_t i = 0; i < n_vocab; i++)
        if (isfinite(logits[i]) && (double)logits[i] > max)
            max = (double)logits[i];
    if (max == -INFINITY)
        return max;
    for (int64_t i = 0; i < n_vocab; i++)
        if (isfinite(logits[i]))
            sum += exp((double)logits[i] - max);
    return max + log(sum);
}

double sampler_logprob(const float *logits, int64_t n_vocab, int32_t id)
{
    return (double)logits[id] - sampler_logsumexp(logits, n_vocab);
}
