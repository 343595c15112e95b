/* What ran for how long on an instance, while it is profiled: a row for each
 * kernel, and a trace of what ran when.
 *
 * Filled by op.c for operations that are timed by the clock, by a backend for
 * kernels that its device times; read by whoever prints it.  Knows no backend.
 * Memory that is refused loses rows or events, never a run. */
#ifndef FORGE_BACKEND_PROFILE_H
#define FORGE_BACKEND_PROFILE_H

#include "backend/op.h"

struct prof;

struct prof_row {
    char name[96];
    enum op_id op;  /* for which it ran */
    bool is_kernel; /* false: the operation as a whole, which op_stats tells too */
    uint64_t calls, untimed; /* untimed: calls of which the device told no time that can be */
    double seconds, bytes, flops; /* bytes and flops: of the operation, parted among its kernels by their time */
};

struct prof_event {
    const struct prof_row *row; /* borrowed */
    double start, seconds;      /* by base/clock.h */
    double bytes, flops;
};

enum { PROF_EVENTS_MAX = 500000 }; /* those behind are counted, and not kept */

struct prof *prof_new(void); /* NULL: memory is refused */
void prof_free(struct prof *p);
void prof_reset(struct prof *p); /* forgets times and events; NULL is safe, here and below */

/* The row of this name for this operation, made where there is none; -1: it cannot be. */
int prof_row(struct prof *p, const char *name, enum op_id op, bool is_kernel);
/* One call; seconds below 0: not timed.  row -1 is ignored. */
void prof_add(struct prof *p, int row, double start, double seconds, double bytes, double flops);

size_t prof_n_rows(const struct prof *p);
const struct prof_row *prof_row_at(const struct prof *p, size_t i);
size_t prof_n_events(const struct prof *p);
struct prof_event prof_event_at(const struct prof *p, size_t i);
uint64_t prof_n_dropped(const struct prof *p);

/* Of an instance, NULL = it was never profiled. */
const struct prof *op_prof(const struct backend *be);

#endif
