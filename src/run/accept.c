/* The rejection rule: accept a draft by the ratio of both distributions, or draw
 * from what the target has more of.
 * Knows no model, request or stream of random numbers. */
#include "run/accept.h"

static double prob(const struct accept_dist *d, int32_t id)
{
    size_t lo = 0, hi = d->n;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (d->v[mid].id < id)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < d->n && d->v[lo].id == id ? (double)d->v[lo].p : 0;
}

/* What the target has more of than the draft had; *j walks along q. */
static double excess(const struct sampler_cand *p, const struct accept_dist *q, int32_t drafted, size_t *j)
{
    if (q->n == 0)
        return p->id == drafted ? 0 : (double)p->p;
    while (*j < q->n && q->v[*j].id < p->id)
        ++*j;
    double more = (double)p->p - (*j < q->n && q->v[*j].id == p->id ? (double)q->v[*j].p : 0);
    return more > 0 ? more : 0;
}

static int32_t likeliest(const struct accept_dist *p)
{
    size_t best = 0;
    for (size_t i = 1; i < p->n; i++)
        if (p->v[i].p > p->v[best].p)
            best = i;
    return p->v[best].id;
}

bool accept_ratio(const struct accept_dist *p, const struct accept_dist *q, int32_t drafted, double u_accept, double u_draw,
                  int32_t *id)
{
    double of_q = q->n == 0 ? 1 : prob(q, drafted), sum = 0, at = 0;
    size_t j = 0;
    if (u_accept * of_q < prob(p, drafted))
        return true;
    for (size_t i = 0; i < p->n; i++)
        sum += excess(&p->v[i], q, drafted, &j);
    if (sum <= 0 && prob(p, drafted) > 0) /* both are the same but for rounding */
        return true;
    if (sum <= 0)
        *id = likeliest(p);
    j = 0;
    for (size_t i = 0; i < p->n; i++) {
        double more = excess(&p->v[i], q, drafted, &j);
        if (more <= 0)
            continue;
        *id = p->v[i].id;
        at += more;
        if (u_draw * sum < at)
            break;
    }
    return false;
}
