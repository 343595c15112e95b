/* A restricted pickle machine: the opcodes of protocols 2 to 5 that torch.save
 * emits, and a fixed list of names that may be referred to.  Nothing is ever
 * executed: a call builds one of the values below or is refused by name.
 * Memory stays proportional to the pickle's size. */
#ifndef FORGE_FILE_PICKLE_H
#define FORGE_FILE_PICKLE_H

#include "base/err.h"
#include "base/mem.h"
#include "tensor/dtype.h"

#define PICKLE_SIZE_MAX ((size_t)64 << 20)

enum pk_kind {
    PK_NONE, PK_BOOL, PK_INT, PK_FLOAT, PK_STR, PK_BYTES, PK_TUPLE, PK_LIST, PK_DICT,
    PK_GLOBAL,  /* a name of the allow-list */
    PK_STORAGE, /* ('storage', class, key, location, numel) */
    PK_TENSOR,  /* arguments of a _rebuild_tensor call, not yet checked */
    PK_OPAQUE   /* harmless data that no tensor needs: sets, devices, long integers */
};

struct pk_global;

struct pk {
    enum pk_kind kind;
    union {
        int64_t i; /* and PK_BOOL */
        double f;
        struct { const char *s; size_t len; } str;               /* in the pickle */
        struct { struct pk **v; size_t n, cap; } seq;            /* a dict has key, value, key, value ... */
        const struct pk_global *global;
        struct { const struct pk *key; int64_t numel; enum dtype dtype; } storage;
        struct { const struct pk *args; const struct pk_global *dtype; } tensor; /* dtype: of v3, else NULL */
    } u;
};

/* Runs data[0..size) to its STOP; *out and all it holds live in arena, strings in data. */
int pickle_load(struct pk **out, struct arena *arena, const uint8_t *data, size_t size, struct err *err);

/* For messages. */
const char *pickle_kind_name(const struct pk *v);
/* The dtype a torch.float32-like name stands for. */
enum dtype pickle_global_dtype(const struct pk_global *g);

#endif
