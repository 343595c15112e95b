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

static void swap(struct forge_logprob *a, struct forge_logprob *b)
{
    struct forge_logprob t = *a;
    *a = *b;
    *b = t;
}

/* a[0..n) is a heap but for a[at]: no parent is listed before a child of its, so that the last one listed is on top. */
static void sift(struct forge_logprob *a, size_t n, size_t at)
{
    for (size_t child; (child = 2 * at + 1) < n; at = child) {
        if (child + 1 < n && before(a[child], a[child + 1]))
            child++;
        if (!before(a[at], a[child]))
            return;
        swap(&a[at], &a[child]);
    }
}

/* The n <= n_vocab largest logits, falling: a heap of the best so far, sorted in place at the end. */
static void best_logits(struct forge_logprob *out, size_t n, const float *logits, int64_t n_vocab)
{
    for (size_t i = 0; i < n; i++)
        out[i] = (struct forge_logprob){(int32_t)i, logits[i]};
    for (size_t i = n / 2; i-- > 0;)
        sift(out, n, i);
    for (int64_t i = (int64_t)n; i < n_vocab && n > 0; i++) {
        struct forge_logprob c = {(int32_t)i, logits[i]};
        if (!before(c, out[0]))
            continue;
        out[0] = c;
        sift(out, n, 0);
    }
    for (size_t m = n; m-- > 1;) {
        swap(&out[0], &out[m]);
        sift(out, m, 0);
    }
}

static int reserve(struct sample *s, size_t n_ids, size_t row, struct err *err)
{
    size_t need;
    struct forge_logprob *grown = NULL;
    if (mem_mul(n_ids, row, &need))
        grown = mem_grow(s->logprobs, &s->logprobs_cap, need, sizeof *grown);
    if (!grown)
        return err_set(err, ERR_NOMEM, "no memory for log-probabilities");
    s->logprobs = grown;
    return 0;
}

int logprobs_reserve(struct sample *s, int n_best, size_t n_ids, struct err *err)
{
    size_t row = 1 + (size_t)n_best, most = ((size_t)1 << 20) / (row * sizeof *s->logprobs) + 1;
    return reserve(s, n_ids < most ? n_ids : most, row, err);
}

int logprobs_add(struct sample *s, int n_best, const float *logits, int64_t n_vocab, int32_t id, struct err *err)
{
    size_t row = 1 + (size_t)n_best;
    int rc = reserve(s, s->ids.n + 1, row, err);
    if (rc < 0)
        return rc;
    struct forge_logprob *out = s->logprobs + s->ids.n * row;
    double sum = sampler_logsumexp(logits, n_vocab);
    out[0] = (struct forge_logprob){id, (float)((double)logits[id] - sum)};
    best_logits(out + 1, (size_t)n_best, logits, n_vocab);
    for (size_t i = 1; i < row; i++)
        out[i].logprob = (float)((double)out[i].logprob - sum);
    return 0;
}
