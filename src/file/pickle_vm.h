/* The state of the pickle machine, shared by pickle.c (opcodes) and
 * pickle_calls.c (names and calls).  It lives for one pickle_load(); what
 * outlives it is in the arena. */
#ifndef FORGE_FILE_PICKLE_VM_H
#define FORGE_FILE_PICKLE_VM_H

#include "file/pickle.h"

struct pk_vm {
    const uint8_t *data;
    size_t size, at, op_at; /* op_at: of the opcode that runs */
    struct arena *arena;
    struct pk **stack;
    size_t n, cap;
    size_t *marks; /* heights of the stack */
    size_t n_marks, cap_marks;
    struct pk **memo; /* NULL = never set */
    size_t n_memo, cap_memo, n_set;
    struct pk *result;
    struct err *err;
};

/* v = NULL is refused memory. */
int pk_push(struct pk_vm *vm, struct pk *v);
struct pk *pk_new(struct pk_vm *vm, enum pk_kind kind);

int pk_push_global(struct pk_vm *vm, const char *module, size_t module_len, const char *name,
                   size_t name_len);
int pk_push_storage(struct pk_vm *vm, const struct pk *id);
int pk_call(struct pk_vm *vm, const struct pk_global *fn, const struct pk *args);

#endif
