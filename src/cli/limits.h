/* What this machine could do at most: bytes read from memory and f32
 * multiply-adds in a second, measured with the threads that a benchmark uses.
 * Knows no model and no backend. */
#ifndef FORGE_CLI_LIMITS_H
#define FORGE_CLI_LIMITS_H

#include "base/err.h"

struct limits;
int limits_new(struct limits **out, int n_threads, struct err *err);
void limits_free(struct limits *l);
/* GB/s of reading limits_read_bytes once, each thread its own part: the fastest of several ways to walk through it */
double limits_read(struct limits *l);
double limits_flops(struct limits *l);            /* GFLOP/s, an fma counts as two */
double limits_read_bytes(const struct limits *l); /* 2^30, less on a machine with little memory */

#endif
