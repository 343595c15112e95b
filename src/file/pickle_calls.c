/* The names a pickle may refer to and what a call of each builds.  Everything
 * else is refused by name; nothing here runs anything.  New names are new rows.
 * Knows no opcode (pickle.c) and does not look into the archive (pth.c). */
#include <string.h>

#include "file/parts.h"
#include "file/pickle_vm.h"



struct pk_global {
    const char *module, *name;
    /* NULL: only a value */
    int (*call)(struct pk_vm *vm, const struct pk_global *fn, const struct pk *args);
    enum { IS_OTHER, IS_STORAGE, IS_DTYPE } role;
    enum dtype dtype;
};

static int call_bad(struct pk_vm *vm, const struct pk_global *fn, const char *what)
{
    return err_set(vm->err, ERR_FORMAT, "data.pkl: pickle calls %s.%s with %s", fn->module, fn->name,
                   what);
}

static int call_opaque(struct pk_vm *vm, const struct pk_global *fn, const struct pk *args)
{
    (void)fn;
    (void)args;
    return pk_push(vm, pk_new(vm, PK_OPAQUE));
}

/* Empty: the items follow as SETITEMS.  A defaultdict's factory is no matter. */
static int call_dict(struct pk_vm *vm, const struct pk_global *fn, const struct pk *args)
{
    for (size_t i = 0; i < args->u.seq.n; i++)
        if (args->u.seq.v[i]->kind != PK_GLOBAL)
            return call_bad(vm, fn, "items as arguments, which is not supported");
    return pk_push(vm, pk_new(vm, PK_DICT));
}

/* torch.Size((2, 3)) and the like: the sequence itself. */
static int call_same(struct pk_vm *vm, const struct pk_global *fn, const struct pk *args)
{
    struct pk *v = args->u.seq.n == 1 ? args->u.seq.v[0] : NULL;
    if (!v || (v->kind != PK_TUPLE && v->kind != PK_LIST))
        return call_bad(vm, fn, "arguments that are no one tuple");
    struct pk *out = pk_new(vm, PK_TUPLE);
    if (out)
        out->u.seq = v->u.seq;
    return pk_push(vm, out);
}

/* (storage, offset, size, stride[, requires_grad, hooks[, dtype or metadata, metadata]]) */
static int call_tensor(struct pk_vm *vm, const struct pk_global *fn, const struct pk *args)
{
    struct pk **a = args->u.seq.v;
    if (args->u.seq.n < 4 || a[0]->kind != PK_STORAGE || a[1]->kind != PK_INT ||
        a[2]->kind != PK_TUPLE || a[3]->kind != PK_TUPLE)
        return call_bad(vm, fn, "arguments that are no storage, offset, size, stride");
    struct pk *t = pk_new(vm, PK_TENSOR);
    if (t)
        t->u.tensor.args = args;
    return pk_push(vm, t);
}

/* The dtype is the seventh argument; the storage counts bytes. */
static int call_tensor_v3(struct pk_vm *vm, const struct pk_global *fn, const struct pk *args)
{
    if (args->u.seq.n < 7 || args->u.seq.v[6]->kind != PK_GLOBAL ||
        args->u.seq.v[6]->u.global->role != IS_DTYPE)
        return call_bad(vm, fn, "no dtype as its seventh argument");
    int rc = call_tensor(vm, fn, args);
    if (rc == 0 && args->u.seq.v[0]->u.storage.dtype != DTYPE_U8)
        return call_bad(vm, fn, "a typed storage");
    if (rc == 0)
        vm->stack[vm->n - 1]->u.tensor.dtype = args->u.seq.v[6]->u.global;
    return rc;
}

/* A Parameter is its tensor. */
static int call_parameter(struct pk_vm *vm, const struct pk_global *fn, const struct pk *args)
{
    if (args->u.seq.n < 1 || args->u.seq.v[0]->kind != PK_TENSOR)
        return call_bad(vm, fn, "a first argument that is no tensor");
    return pk_push(vm, args->u.seq.v[0]);
}

#define STORAGE(name, dtype) {"torch", name, NULL, IS_STORAGE, dtype}
#define DTYPE(name, dtype) {"torch", name, NULL, IS_DTYPE, dtype}
#define CALL(module, name, fn) {module, name, fn, IS_OTHER, DTYPE_F32}

static const struct pk_global globals[] = {
    CALL("collections", "OrderedDict", call_dict),
    CALL("collections", "defaultdict", call_dict),
    CALL("collections", "Counter", call_dict),
    CALL("torch._utils", "_rebuild_tensor_v2", call_tensor),
    CALL("torch._utils", "_rebuild_tensor", call_tensor),
    CALL("torch._utils", "_rebuild_tensor_v3", call_tensor_v3),
    CALL("torch._utils", "_rebuild_parameter", call_parameter),
    CALL("torch._utils", "_rebuild_parameter_with_state", call_parameter),
    STORAGE("FloatStorage", DTYPE_F32),   STORAGE("HalfStorage", DTYPE_F16),
    STORAGE("BFloat16Storage", DTYPE_BF16), STORAGE("DoubleStorage", DTYPE_F64),
    STORAGE("LongStorage", DTYPE_I64),    STORAGE("IntStorage", DTYPE_I32),
    STORAGE("ShortStorage", DTYPE_I16),   STORAGE("CharStorage", DTYPE_I8),
    STORAGE("ByteStorage", DTYPE_U8),     STORAGE("BoolStorage", DTYPE_BOOL),
    STORAGE("Float8_e4m3fnStorage", DTYPE_F8_E4M3), STORAGE("Float8_e5m2Storage", DTYPE_F8_E5M2),
    {"torch.storage", "UntypedStorage", NULL, IS_STORAGE, DTYPE_U8},
    {"torch.storage", "TypedStorage", NULL, IS_STORAGE, DTYPE_U8},
    {"torch", "UntypedStorage", NULL, IS_STORAGE, DTYPE_U8},
    DTYPE("float32", DTYPE_F32), DTYPE("float16", DTYPE_F16), DTYPE("bfloat16", DTYPE_BF16),
    DTYPE("float64", DTYPE_F64), DTYPE("int64", DTYPE_I64), DTYPE("int32", DTYPE_I32),
    DTYPE("int16", DTYPE_I16), DTYPE("int8", DTYPE_I8), DTYPE("uint8", DTYPE_U8),
    DTYPE("uint16", DTYPE_U16), DTYPE("uint32", DTYPE_U32), DTYPE("uint64", DTYPE_U64),
    DTYPE("bool", DTYPE_BOOL), DTYPE("float8_e4m3fn", DTYPE_F8_E4M3),
    DTYPE("float8_e5m2", DTYPE_F8_E5M2),
    CALL("torch", "Size", call_same),
    CALL("torch", "device", call_opaque),
    CALL("torch.serialization", "_get_layout", call_opaque),
    CALL("builtins", "dict", call_dict),   CALL("__builtin__", "dict", call_dict),
    CALL("builtins", "list", call_opaque), CALL("__builtin__", "list", call_opaque),
    CALL("builtins", "set", call_opaque),  CALL("__builtin__", "set", call_opaque),
    CALL("builtins", "frozenset", call_opaque), CALL("__builtin__", "frozenset", call_opaque),
    CALL("builtins", "int", call_opaque),  CALL("builtins", "float", call_opaque),
    CALL("builtins", "bytearray", call_opaque), CALL("builtins", "complex", call_opaque),
    CALL("_codecs", "encode", call_opaque), /* bytes, as protocol 2 spells them */
};

static bool same(const char *a, const char *s, size_t len)
{
    return strlen(a) == len && memcmp(a, s, len) == 0;
}

static int refuse(struct pk_vm *vm, const char *module, size_t module_len, const char *name,
                  size_t name_len)
{
    static const char suffix[] = "Storage";
    size_t k = sizeof(suffix) - 1;
    bool storage = same("torch", module, module_len) && name_len > k &&
                   memcmp(name + name_len - k, suffix, k) == 0;
    return err_set(vm->err, ERR_UNSUPPORTED,
                   "data.pkl: pickle refers to " NAME_FMT "." NAME_FMT ", %s; nothing was run. If you "
                   "trust the file, re-save its weights alone: torch.save(model.state_dict(), FILE)",
                   NAME_ARG(module, module_len), NAME_ARG(name, name_len),
                   storage ? "a storage class (dtype) that is not known"
                           : "which no plain file of weights needs");
}

int pk_push_global(struct pk_vm *vm, const char *module, size_t module_len, const char *name,
                   size_t name_len)
{
    for (size_t i = 0; i < sizeof(globals) / sizeof(globals[0]); i++) {
        if (!same(globals[i].module, module, module_len) || !same(globals[i].name, name, name_len))
            continue;
        struct pk *v = pk_new(vm, PK_GLOBAL);
        if (v)
            v->u.global = &globals[i];
        return pk_push(vm, v);
    }
    return refuse(vm, module, module_len, name, name_len);
}

int pk_call(struct pk_vm *vm, const struct pk_global *fn, const struct pk *args)
{
    if (!fn->call)
        return err_set(vm->err, ERR_FORMAT, "data.pkl: pickle calls %s.%s, which is no function",
                       fn->module, fn->name);
    return fn->call(vm, fn, args);
}

/* ('storage', class, key, location, numel[, view]) */
int pk_push_storage(struct pk_vm *vm, const struct pk *id)
{
    struct pk **a = id->u.seq.v;
    bool fits = id->kind == PK_TUPLE && id->u.seq.n >= 5 && a[0]->kind == PK_STR &&
                same("storage", a[0]->u.str.s, a[0]->u.str.len) && a[1]->kind == PK_GLOBAL &&
                a[1]->u.global->role == IS_STORAGE && a[2]->kind == PK_STR && a[4]->kind == PK_INT &&
                a[4]->u.i >= 0;
    if (!fits)
        return err_set(vm->err, ERR_FORMAT,
                       "data.pkl: pickle has a persistent id at byte %zu that describes no storage",
                       vm->op_at);
    struct pk *v = pk_new(vm, PK_STORAGE);
    if (v) {
        v->u.storage.key = a[2];
        v->u.storage.numel = a[4]->u.i;
        v->u.storage.dtype = a[1]->u.global->dtype;
    }
    return pk_push(vm, v);
}

enum dtype pickle_global_dtype(const struct pk_global *g)
{
    return g->dtype;
}
