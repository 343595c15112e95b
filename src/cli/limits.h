/* What this machine could do at most: bytes read from memory and operations
 * computed in a second, measured with as many threads as a benchmark uses, by a
 * process of its own: the memory that is read for it is none of the benchmark's.
 * Knows no model and no device; the loops are those of backend/cpu/peak.h. */
#ifndef FORGE_CLI_LIMITS_H
#define FORGE_CLI_LIMITS_H

#include "backend/cpu/peak.h"
#include "base/err.h"

struct limits_found {
    double read_gb_s;           /* of 2^30 bytes, each thread its own part: the fastest of several ways to walk */
    double gflop_s[PEAK_KINDS]; /* a multiply-add counts as two; 0 = not asked for, or the processor has none */
};

struct limits;
/* Starts the process; called before there are other threads and devices, which it would share.  It takes its memory
 * at the first measurement. */
int limits_new(struct limits **out, int n_threads, struct err *err);
void limits_free(struct limits *l); /* and ends it, whoever else holds its pipes */
/* kinds: bits 1 << PEAK_...  Each figure that is larger than what *largest holds takes its place. */
int limits_measure(struct limits *l, unsigned kinds, struct limits_found *largest, struct err *err);
void limits_add(struct limits_found *largest, const struct limits_found *found);

#endif
