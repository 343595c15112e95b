/* Measuring loops that a benchmark sets beside what was measured: the most that
 * one thread of this processor computes, and reads.  No kernel of a model is
 * used, so that a limit does not depend on what is judged by it.  Knows neither
 * threads nor clocks. */
#ifndef FORGE_CPU_PEAK_H
#define FORGE_CPU_PEAK_H

#include <stddef.h>
#include <stdint.h>

enum peak_kind {
    PEAK_F32,  /* fused multiply-adds of f32 */
    PEAK_BF16, /* dot products of bf16, summed in f32 */
    PEAK_INT8, /* dot products of int8, summed in 32 bits */
    PEAK_KINDS
};

struct peak {
    const char *name;       /* "f32" */
    float (*run)(long n);   /* what n steps give: to be used, or a compiler leaves them out */
    double ops;             /* operations of one step; a multiply-add counts as two */
};
/* The fastest loop of this kind that was built and that the processor has; NULL = none. */
const struct peak *peak_find(enum peak_kind kind);

/* Reads p[0..n) in blocks of `rows` rows of PEAK_ROW words next to each other, one row of each after the other; lines
 * `ahead` bytes further on are asked for in the order they lie in, 0 = none are.  p aligned to 64 bytes, n a
 * multiple of rows * PEAK_ROW. */
enum { PEAK_ROW = 256 };
typedef uint64_t peak_read_fn(const uint64_t *p, size_t n, size_t rows, size_t ahead);
peak_read_fn *peak_read(void); /* with the widest registers there are */

#endif
