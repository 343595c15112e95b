/* What this machine could do at most: bytes read from memory and operations
 * computed in a second, measured with as many threads as a benchmark uses.
 * Knows no model and no device; the loops are those of backend/cpu/peak.h. */
#ifndef FORGE_CLI_LIMITS_H
#define FORGE_CLI_LIMITS_H

#include "backend/cpu/peak.h"
#include "base/err.h"

struct limits;
int limits_new(struct limits **out, int n_threads, struct err *err);
void limits_free(struct limits *l);
/* GB/s of reading limits_read_bytes once, each thread its own part: the fastest of several ways to walk through it */
double limits_read(struct limits *l);
/* 10^9 operations a second, a multiply-add counts as two; 0 where this processor has no such arithmetic */
double limits_flops(struct limits *l, enum peak_kind kind);
double limits_read_bytes(const struct limits *l); /* 2^30, less on a machine with little memory */

#endif
