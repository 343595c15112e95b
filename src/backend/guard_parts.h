/* What the two files of guard share: the record of a checked instance, and how
 * it is put between op.c and the backend.
 * Nobody else includes it. */
#ifndef FORGE_BACKEND_GUARD_PARTS_H
#define FORGE_BACKEND_GUARD_PARTS_H

#include "backend/backend.h"

/* A weight of a type that the device gets wrong, as the CPU sees it: a view of the mapped file. */
struct guard_twin {
    const struct buffer *buf; /* of the device */
    size_t off;
    struct tensor cpu;
};

struct guard {
    struct backend *be;
    const struct backend_ops *own; /* the backend's */
    struct backend_ops ops;        /* the same with stand-ins */
    struct backend_params params; /* with strings of its own */
    const char *dir;           /* where passed checks are remembered, NULL = nowhere; of params */
    uint64_t id[2];            /* what the backend says it is */
    uint32_t checked;          /* weight types: bit 1 << dtype */
    uint32_t broken[OP_COUNT]; /* bit 1 << dtype; bit DTYPE_F32 for operations without weights */
    struct backend *cpu;       /* NULL until something is wrong */
    bool compare;              /* --enable-check-ops: cpu is the reference, and nothing is replaced */
    struct guard_twin *twins;
    size_t n_twins, cap_twins;
};

/* Puts the guard between op.c and the backend: imports are watched, and close closes it too. */
void guard_watch(struct guard *g);
/* Opens the CPU instance and replaces what is broken. */
int guard_stand_in(struct guard *g, struct err *err);
/* Called at an import: checks the type's operations once. */
int guard_check_type(struct guard *g, enum dtype dtype, struct err *err);

#endif
