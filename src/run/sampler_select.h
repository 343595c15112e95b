/* Selection without a full sort: where a falling order would be cut.
 * Items are ordered by falling key, among equal keys by rising id: a strict
 * order, so that every cut is one place. */
#ifndef FORGE_RUN_SAMPLER_SELECT_H
#define FORGE_RUN_SAMPLER_SELECT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct select_item {
    double key, weight;
    int32_t id; /* distinct */
};

bool select_before(const struct select_item *a, const struct select_item *b);
/* Key of the k-th item, 1 <= k <= n.  Permutes a. */
double select_kth(struct select_item *a, size_t n, size_t k);
/* Last item of the shortest prefix whose weights add up to at least `mass` (the very last one when none
 * does); never less than one item.  Permutes a. */
struct select_item select_mass(struct select_item *a, size_t n, double mass);

#endif
