/* The rejection rule of speculative decoding, for drafts that were drawn by another
 * distribution (Leviathan and others, 2023): what comes out is distributed as the
 * target alone.
 * Knows no model, request or stream of random numbers. */
#ifndef FORGE_RUN_ACCEPT_H
#define FORGE_RUN_ACCEPT_H

#include <stdbool.h>

#include "run/sampler.h"

/* A distribution over ids, rising, that sums to 1. */
struct accept_dist {
    const struct sampler_cand *v;
    size_t n;
};
/* `drafted` was drawn from q; q of no ids: it was no draw, and certain.  u_accept and u_draw are numbers in [0, 1) that
 * have to do with nothing else.  True = `drafted` is accepted: with probability min(1, p / q).  Else *id is drawn from
 * max(p - q, 0), made to sum to 1. */
bool accept_ratio(const struct accept_dist *p, const struct accept_dist *q, int32_t drafted, double u_accept, double u_draw,
                  int32_t *id);

#endif
