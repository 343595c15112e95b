/* Random numbers as a function of (seed, sample, position), not a stream: what
 * happens between two draws, or in which order they are made, changes nothing.
 * Philox4x32-10 with the seed as key and (sample, position) as counter. */
#ifndef FORGE_BASE_RNG_H
#define FORGE_BASE_RNG_H

#include <stdint.h>

uint64_t rng_u64(uint64_t seed, uint64_t sample, uint64_t position);
/* In [0, 1), 53 bits. */
double rng_unit(uint64_t seed, uint64_t sample, uint64_t position);
/* A seed from the system's entropy, for runs without one. */
uint64_t rng_fresh_seed(void);

#endif
