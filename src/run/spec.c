/* Speculation: how many ids are drafted for a sample, by a draft model or by looking
 * the text's end up in the text before it; and which of them its next ids are.  The
 * target computes the drafts as rows behind the sample's own, in the same step as
 * everything else.  A draft is accepted when it is the target's own draw at its
 * position, so that a text is what it is without, or by the ratio rule.
 * Knows nothing of pages, nor how a draft model computes. */
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "run/accept.h"
#include "run/draft.h"
#include "run/engine.h"

/* Draws that have to do with nothing else: beyond the numbers of samples. */
enum { DRAW_DRAFT = 1 << 20, DRAW_ACCEPT = 2 << 20, DRAW_REST = 3 << 20 };

/* ---- how many ---- */

/* While at least this is the chance that all so far are accepted, one more is drafted. */
#define WORTH 0.3

/* As many as were lately worth it; where none is, one every other time, or nobody would find out that this has changed. */
static int adapt(struct sample *s, int most)
{
    int n = 0;
    for (double p = s->accept_rate; n < most && p > WORTH; p *= s->accept_rate)
        n++;
    s->round++;
    return n == 0 && s->round % 2 == 0 ? 1 : n;
}

static int wanted(struct sample *s, int left)
{
    const struct forge_request *r = s->r;
    int64_t room = r->e->l.n_ctx - sample_known(s), end = r->p.max_tokens - (int64_t)s->ids.n - 1;
    int most = r->e->draft_max;
    if (r->p.draft_n == 0 || s->len + s->n_rows != sample_known(s) || output_limit(s) != FORGE_FINISH_NONE)
        return 0;
    most = room < most ? (int)room : most;
    most = left < most ? left : most;
    if (r->p.draft_n > 0)
        return r->p.draft_n < most ? r->p.draft_n : most;
    if (r->p.max_tokens >= 0 && end < most) /* the step gives one id in any case */
        most = (int)end;
    return most > 0 ? adapt(s, most) : 0;
}

/* ---- looking up ---- */

enum { LOOK_MOST = 3 };

/* How many of the last ids, LOOK_MOST at most, also stand before position `end`. */
static int alike(const struct sample *s, int64_t end, int64_t n)
{
    int k = 0;
    while (k < LOOK_MOST && end - 1 - k >= 0 && sample_id(s, end - 1 - k) == sample_id(s, n - 1 - k))
        k++;
    return k;
}

/* What followed the last time that the text ended as it does now: the longest end counts. */
static void look_up(struct sample *s)
{
    int64_t n = sample_known(s), from = -1;
    int best = 0;
    for (int64_t end = n - 1; end > 0 && best < LOOK_MOST; end--) {
        int k = alike(s, end, n);
        if (k > best) {
            best = k;
            from = end;
        }
    }
    if (from < 0 || n - from < s->n_draft)
        s->n_draft = from < 0 ? 0 : (int)(n - from);
    for (int j = 0; j < s->n_draft; j++)
        s->ids.v[s->ids.n + (size_t)j] = sample_id(s, from + j);
}

/* ---- drafts of a step ---- */

void spec_propose(struct forge_engine *e, int left)
{
    size_t n = 0;
    e->n_dists = 0;
    for (size_t i = 0; i < e->n_running; i++) {
        struct sample *s = e->running[i];
        s->n_draft = e->draft_max > 0 && s->n_rows > 0 ? wanted(s, left) : 0;
        left -= s->n_draft;
        if (s->n_draft == 0)
            continue;
        if (e->draft)
            e->served[n++] = s;
        else
            look_up(s);
    }
    if (n > 0)
        draft_run(e->draft, e->served, n);
    for (size_t i = 0; i < e->n_running; i++)
        e->running[i]->n_rows += e->running[i]->n_draft;
}

static bool by_ratio(const struct forge_request *r)
{
    return r->p.draft_accept == FORGE_DRAFT_RATIO && !step_is_plain(r);
}

int spec_reserve(struct sample *s)
{
    struct forge_engine *e = s->r->e;
    if (!e->draft || !by_ratio(s->r) || s->q)
        return 0;
    s->q = mem_array((size_t)e->draft_max, sizeof *s->q);
    return s->q ? 0 : err_set(&s->r->err, ERR_NOMEM, "no memory for %d drafts", e->draft_max);
}

/* Keeps the distribution that the j-th draft is drawn from. */
static int keep_dist(struct sample *s, const struct sampler_cand *c, size_t n, int j)
{
    struct forge_engine *e = s->r->e;
    struct sampler_cand *grown = mem_grow(e->dists, &e->dists_cap, e->n_dists + n, sizeof *grown);
    if (!grown)
        return err_set(&s->r->err, ERR_NOMEM, "no memory for a distribution of %zu ids", n);
    e->dists = grown;
    memcpy(grown + e->n_dists, c, n * sizeof *c);
    s->q[j] = (struct spec_dist){e->n_dists, n};
    e->n_dists += n;
    return 0;
}

/* The grammar's mask is that of the next id: drafts are drawn without it. */
int spec_draw(struct sample *s, const float *logits, int j, int32_t *id)
{
    struct forge_request *r = s->r;
    size_t n_generated = s->ids.n + (size_t)j, n;
    struct sampler_history h = {r->prompt.v, r->prompt.n, s->ids.v, n_generated};
    const struct sampler_cand *c;
    uint64_t sample = (uint64_t)s->at + (by_ratio(r) ? DRAW_DRAFT : 0);
    struct err err = {0};
    int rc = r->constrain ? sampler_set_mask(r->sampler, NULL, NULL, &err) : 0;
    if (rc == 0)
        rc = sampler_pick(r->sampler, logits, &h, sample, r->prompt.n + n_generated, id, &err);
    if (rc == 0 && by_ratio(r)) {
        rc = sampler_probs(r->sampler, logits, &h, &c, &n, &err);
        rc = rc < 0 ? rc : keep_dist(s, c, n, j);
    }
    if (r->constrain)
        sampler_set_mask(r->sampler, constrain_mask, r->constrain, &err);
    return rc;
}

/* ---- which of them ---- */

/* The next id by the ratio rule, for the j-th draft. */
static int judge(struct sample *s, const float *logits, int j, int32_t *id)
{
    struct forge_request *r = s->r;
    struct sampler_history h = {r->prompt.v, r->prompt.n, s->ids.v, s->ids.n};
    struct accept_dist p = {0}, q = {0};
    uint64_t pos = r->prompt.n + s->ids.n, at = (uint64_t)s->at;
    int32_t drafted = *id;
    int rc = r->constrain ? constrain_look(r->constrain, &s->place, &r->err) : 0;
    if (rc == 0)
        rc = sampler_probs(r->sampler, logits, &h, &p.v, &p.n, &r->err);
    if (rc < 0)
        return rc;
    if (s->q)
        q = (struct accept_dist){r->e->dists + s->q[j].from, s->q[j].n};
    if (accept_ratio(&p, &q, drafted, rng_unit(r->seed, at + DRAW_ACCEPT, pos), rng_unit(r->seed, at + DRAW_REST, pos), id))
        *id = drafted;
    return r->p.n_logprobs < 0 ? 0 : logprobs_add(s, r->p.n_logprobs, logits, r->e->l.config->n_vocab, *id, &r->err);
}

static void count(struct sample *s, int accepted)
{
    struct forge_request *r = s->r;
    if (s->n_draft == 0)
        return;
    r->metrics.drafted_tokens += (uint64_t)s->n_draft;
    r->metrics.accepted_tokens += (uint64_t)accepted;
    r->e->stats.drafted_tokens += (uint64_t)s->n_draft;
    r->e->stats.accepted_tokens += (uint64_t)accepted;
    for (int j = 0; j < s->n_draft && j <= accepted; j++) /* after the first that was not, nobody knows */
        s->accept_rate += 0.15 * ((j < accepted) - s->accept_rate);
}

int spec_take(struct sample *s, bool plain, int *accepted)
{
    struct forge_request *r = s->r;
    struct forge_engine *e = r->e;
    int rc = 0;
    *accepted = 0;
    for (int j = 0; rc == 0; j++) {
        const float *logits = e->logits + (int64_t)(s->want + j) * e->l.config->n_vocab;
        int32_t drafted = j < s->n_draft ? s->ids.v[s->ids.n] : -1, id = drafted;
        if (drafted >= 0 && by_ratio(r))
            rc = judge(s, logits, j, &id);
        else
            rc = step_choose(s, plain ? &e->best[s->want + j] : NULL, logits, &id);
        if (rc == 0)
            rc = output_id(s, id);
        if (rc < 0 || id != drafted)
            break;
        ++*accepted;
        s->draft_ok++;
        if (s->finish != FORGE_FINISH_NONE || atomic_load(&r->cancel))
            break;
    }
    count(s, *accepted);
    return rc;
}
