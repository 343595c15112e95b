/* Between model.c and bind.c: the list of what must be imported where.
 * bind.c makes it from names and shapes; model.c carries it out, with progress.
 * Nothing outside of src/model sees it. */
#ifndef FORGE_MODEL_BIND_H
#define FORGE_MODEL_BIND_H

#include "model/arch.h"
#include "model/model.h"

struct bind_item {
    struct tensor *dst;
    struct backend *be;
    const struct weight *src;
    int64_t first;      /* row of src's matrix at which it begins (a part of a fused one, an expert) */
    int64_t rows, cols;
    bool vector;        /* a norm or bias: becomes f32 */
};

struct bind_plan {
    struct bind_item *items;
    size_t n, cap;
};

/* Finds and checks every tensor of the model; layers' instances are set already. Reads no weight. */
int bind_make(struct bind_plan *p, struct model *m, const struct weights *w, struct err *err);
void bind_free(struct bind_plan *p);
/* Imports one item; its buffer is m's to free. */
int bind_import(struct model *m, const struct bind_item *item, const struct weights *w, struct err *err);

#endif
