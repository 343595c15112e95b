/* The operations of `ref` that have a file of their own.  Private to the
 * reference backend; ref.c holds the table and the rest, op.h says what each
 * one computes. */
#ifndef FORGE_BACKEND_CPU_REF_H
#define FORGE_BACKEND_CPU_REF_H

#include "backend/backend.h"

void ref_attention(struct backend *be, const struct tensor *out, const struct tensor *q,
                   const struct kv_layer *kv, const struct kv_rows *rows, const struct attention_args *args);

#endif
