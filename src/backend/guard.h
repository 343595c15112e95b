/* Trust in a device: what it computes is checked before it is used, and what it
 * gets wrong is computed on the CPU instead, named in the placement table.
 * Only registry.c calls it; op.c sees a table of operations like any other. */
#ifndef FORGE_BACKEND_GUARD_H
#define FORGE_BACKEND_GUARD_H

#include "backend/backend.h"

/* Checks be against the oracle on a few odd shapes: the operations without weights now, attention also with
 * params->heads, those of a weight type when the first weight of that type is imported.  A check that passed is remembered in
 * params->kernel_cache, by what the backend says it is.  Backends that say nothing are not checked.
 *
 * Operations that are wrong are computed with the backend's plainer kernels, where it has some; those that
 * are wrong with these too are from then on read, computed on a CPU instance and written back.  Where
 * kv_store or attention is wrong no layer can stay: then *be is closed and replaced by the CPU instance.
 * With params->require_device each of these is an error, and be is closed. */
int guard_open(struct backend **be, const struct backend_params *params, struct err *err);

/* For builds with --enable-check-ops: every operation that be computes is computed by the reference too,
 * on the same operands, and one that differs by more than rounding is a failure of the step.  Slow. */
int guard_check_ops(struct backend *be, struct err *err);

#endif
