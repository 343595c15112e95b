/* The loops of the sampler over all logits, written so that a compiler makes
 * vectors of them: lanes of a fixed number, no function of libm.  The values are
 * those of the plain loops.  Knows no stage and no sampler. */
#ifndef FORGE_RUN_SAMPLER_SCAN_H
#define FORGE_RUN_SAMPLER_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "run/sampler_select.h"

enum { SCAN_BLOCK = 64 };
static inline size_t scan_n_blocks(int64_t n)
{
    return ((size_t)n + SCAN_BLOCK - 1) / SCAN_BLOCK;
}

/* The first of the largest of x[0..n), n >= 1, and the largest of each SCAN_BLOCK values into block_max, which may be NULL.
 * false: some value is not in least..FLT_MAX, and then the rest means nothing. */
bool scan_logits(const float *x, int64_t n, float least, int64_t *first, float *block_max);

/* weight = e^((key - max) / temp) of each item, keys not above max; relative error below 1e-11, by IEEE operations
 * alone (libm's differs between machines); 0 below e^-700. */
void scan_weights(struct select_item *item, size_t n, double max, double temp);

#endif
