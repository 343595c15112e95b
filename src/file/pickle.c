/* The pickle machine: a stack, marks, a memo and a table of opcodes
 * (Python's Lib/pickletools.py describes each).  Names and calls are in
 * pickle_calls.c.  Values are nodes in the caller's arena and may form cycles
 * through the memo, so nothing here walks them. */
#include "file/pickle.h"

#include <stdlib.h>
#include <string.h>

#include "file/le.h"
#include "file/parts.h"
#include "file/pickle_vm.h"

/* ---- stack ---- */

int pk_push(struct pk_vm *vm, struct pk *v)
{
    struct pk **s = v ? mem_grow(vm->stack, &vm->cap, vm->n + 1, sizeof(*s)) : NULL;
    if (!s)
        return err_set(vm->err, ERR_NOMEM, "data.pkl: no memory");
    vm->stack = s;
    s[vm->n++] = v;
    return 0;
}

struct pk *pk_new(struct pk_vm *vm, enum pk_kind kind)
{
    struct pk *v = arena_alloc(vm->arena, sizeof(*v));
    if (v)
        v->kind = kind;
    return v;
}

static int push_new(struct pk_vm *vm, enum pk_kind kind)
{
    return pk_push(vm, pk_new(vm, kind));
}

/* Values above the innermost mark. */
static size_t available(const struct pk_vm *vm)
{
    return vm->n - (vm->n_marks ? vm->marks[vm->n_marks - 1] : 0);
}

static int bad(struct pk_vm *vm, const char *what)
{
    return err_set(vm->err, ERR_FORMAT, "data.pkl: pickle opcode 0x%02x at byte %zu: %s",
                   vm->data[vm->op_at], vm->op_at, what);
}

/* NULL (and an error) when there is none above the mark. */
static struct pk *pop(struct pk_vm *vm)
{
    if (available(vm) == 0) {
        bad(vm, "stack is empty");
        return NULL;
    }
    return vm->stack[--vm->n];
}

static struct pk *top(struct pk_vm *vm)
{
    if (available(vm) == 0) {
        bad(vm, "stack is empty");
        return NULL;
    }
    return vm->stack[vm->n - 1];
}

/* Removes the innermost mark: the values above it are items[0..n), still in place
 * until the next push. */
static int pop_mark(struct pk_vm *vm, struct pk ***items, size_t *n)
{
    if (vm->n_marks == 0)
        return bad(vm, "no mark on the stack");
    *n = available(vm);
    vm->n -= *n;
    vm->n_marks--;
    *items = vm->stack + vm->n;
    return 0;
}

/* ---- operands ---- */

static const uint8_t *take(struct pk_vm *vm, uint64_t n)
{
    if (n > vm->size - vm->at) {
        bad(vm, "pickle ends inside its operand");
        return NULL;
    }
    const uint8_t *p = vm->data + vm->at;
    vm->at += (size_t)n;
    return p;
}

/* An unsigned operand of 1, 2, 4 or 8 bytes. */
static bool take_uint(struct pk_vm *vm, unsigned width, uint64_t *out)
{
    const uint8_t *p = take(vm, width);
    if (!p)
        return false;
    *out = width == 1 ? p[0] : width == 2 ? le16(p) : width == 4 ? le32(p) : le64(p);
    return true;
}

/* ---- sequences ---- */

static int seq_append(struct pk_vm *vm, struct pk *seq, struct pk **items, size_t n)
{
    size_t need = seq->u.seq.n + n;
    if (need > seq->u.seq.cap) {
        /* Doubling in the arena: what is left behind is less than what is kept. */
        size_t cap = seq->u.seq.cap * 2 > need ? seq->u.seq.cap * 2 : need, size = 0;
        struct pk **v = mem_mul(cap, sizeof(*v), &size) ? arena_alloc(vm->arena, size) : NULL;
        if (!v)
            return err_set(vm->err, ERR_NOMEM, "data.pkl: no memory");
        if (seq->u.seq.n)
            memcpy(v, seq->u.seq.v, seq->u.seq.n * sizeof(*v));
        seq->u.seq.v = v;
        seq->u.seq.cap = cap;
    }
    if (n)
        memcpy(seq->u.seq.v + seq->u.seq.n, items, n * sizeof(*items));
    seq->u.seq.n = need;
    return 0;
}

static int push_seq(struct pk_vm *vm, enum pk_kind kind, struct pk **items, size_t n)
{
    if (kind == PK_DICT && n % 2 != 0)
        return bad(vm, "a key without a value");
    struct pk *v = pk_new(vm, kind);
    if (v && kind != PK_OPAQUE && seq_append(vm, v, items, n) < 0)
        return ERR_NOMEM;
    return pk_push(vm, v);
}

/* Appends to the value below; `kind` is what it must be. */
static int extend(struct pk_vm *vm, enum pk_kind kind, struct pk **items, size_t n)
{
    struct pk *to = top(vm);
    if (!to)
        return ERR_FORMAT;
    if (to->kind == PK_OPAQUE)
        return 0;
    if (to->kind != kind)
        return bad(vm, kind == PK_DICT ? "item set on a value that is no dict"
                                       : "item appended to a value that is no list");
    if (kind == PK_DICT && n % 2 != 0)
        return bad(vm, "a key without a value");
    return seq_append(vm, to, items, n);
}

/* ---- opcodes; arg is from the table ---- */

static int op_new(struct pk_vm *vm, unsigned kind)
{
    return push_new(vm, (enum pk_kind)kind);
}

static int op_bool(struct pk_vm *vm, unsigned value)
{
    struct pk *v = pk_new(vm, PK_BOOL);
    if (v)
        v->u.i = (int64_t)value;
    return pk_push(vm, v);
}

static int op_int(struct pk_vm *vm, unsigned width)
{
    uint64_t x = 0;
    if (!take_uint(vm, width, &x))
        return ERR_FORMAT;
    struct pk *v = pk_new(vm, PK_INT);
    if (v)
        v->u.i = width == 4 ? (int32_t)(uint32_t)x : (int64_t)x;
    return pk_push(vm, v);
}

/* Two's complement, little-endian, any length; longer than 64 bits becomes opaque. */
static int op_long(struct pk_vm *vm, unsigned width)
{
    uint64_t n = 0, x = 0;
    const uint8_t *p = take_uint(vm, width, &n) ? take(vm, n) : NULL;
    if (!p)
        return ERR_FORMAT;
    uint8_t fill = n && (p[n - 1] & 0x80) ? 0xff : 0;
    for (unsigned i = 0; i < 8; i++)
        x |= (uint64_t)(i < n ? p[i] : fill) << (8 * i);
    bool fits = n <= 8 || (p[7] & 0x80) == (fill & 0x80);
    for (uint64_t i = 8; i < n; i++)
        fits = fits && p[i] == fill;
    struct pk *v = pk_new(vm, fits ? PK_INT : PK_OPAQUE);
    if (v && fits)
        v->u.i = (int64_t)x;
    return pk_push(vm, v);
}

/* Eight bytes, big-endian. */
static int op_float(struct pk_vm *vm, unsigned arg)
{
    (void)arg;
    const uint8_t *p = take(vm, 8);
    if (!p)
        return ERR_FORMAT;
    uint64_t bits = 0;
    for (int i = 0; i < 8; i++)
        bits = bits << 8 | p[i];
    struct pk *v = pk_new(vm, PK_FLOAT);
    if (v)
        memcpy(&v->u.f, &bits, sizeof(bits));
    return pk_push(vm, v);
}

/* arg: width of the length, plus BYTES for bytes. */
#define BYTES 16u

static int op_str(struct pk_vm *vm, unsigned arg)
{
    uint64_t n = 0;
    const uint8_t *p = take_uint(vm, arg & ~BYTES, &n) ? take(vm, n) : NULL;
    if (!p)
        return ERR_FORMAT;
    struct pk *v = pk_new(vm, arg & BYTES ? PK_BYTES : PK_STR);
    if (v) {
        v->u.str.s = (const char *)p;
        v->u.str.len = (size_t)n;
    }
    return pk_push(vm, v);
}

static int op_mark(struct pk_vm *vm, unsigned arg)
{
    (void)arg;
    size_t *m = mem_grow(vm->marks, &vm->cap_marks, vm->n_marks + 1, sizeof(*m));
    if (!m)
        return err_set(vm->err, ERR_NOMEM, "data.pkl: no memory");
    vm->marks = m;
    m[vm->n_marks++] = vm->n;
    return 0;
}

static int op_pop(struct pk_vm *vm, unsigned arg)
{
    (void)arg;
    if (available(vm) == 0 && vm->n_marks) { /* as Python: POP also takes a mark */
        vm->n_marks--;
        return 0;
    }
    return pop(vm) ? 0 : ERR_FORMAT;
}

static int op_pop_mark(struct pk_vm *vm, unsigned arg)
{
    (void)arg;
    struct pk **items = NULL;
    size_t n = 0;
    return pop_mark(vm, &items, &n);
}

static int op_dup(struct pk_vm *vm, unsigned arg)
{
    (void)arg;
    struct pk *v = top(vm);
    return v ? pk_push(vm, v) : ERR_FORMAT;
}

/* A tuple, list or dict of what is above the mark. */
static int op_collect(struct pk_vm *vm, unsigned kind)
{
    struct pk **items = NULL;
    size_t n = 0;
    int rc = pop_mark(vm, &items, &n);
    return rc < 0 ? rc : push_seq(vm, (enum pk_kind)kind, items, n);
}

static int op_tuple(struct pk_vm *vm, unsigned n)
{
    if (available(vm) < n)
        return bad(vm, "stack is empty");
    vm->n -= n;
    return push_seq(vm, PK_TUPLE, vm->stack + vm->n, n);
}

/* The last n values go into the list or dict below them. */
static int op_extend(struct pk_vm *vm, unsigned kind)
{
    size_t n = kind == PK_DICT ? 2 : 1;
    if (available(vm) < n)
        return bad(vm, "stack is empty");
    vm->n -= n;
    return extend(vm, (enum pk_kind)kind, vm->stack + vm->n, n);
}

static int op_extend_mark(struct pk_vm *vm, unsigned kind)
{
    struct pk **items = NULL;
    size_t n = 0;
    int rc = pop_mark(vm, &items, &n);
    return rc < 0 ? rc : extend(vm, (enum pk_kind)kind, items, n);
}

static int op_get(struct pk_vm *vm, unsigned width)
{
    uint64_t i = 0;
    if (!take_uint(vm, width, &i))
        return ERR_FORMAT;
    if (i >= vm->n_memo || !vm->memo[i])
        return bad(vm, "reads a memo that was never set");
    return pk_push(vm, vm->memo[i]);
}

/* width 0: the next free number (MEMOIZE). */
static int op_put(struct pk_vm *vm, unsigned width)
{
    uint64_t i = vm->n_set;
    struct pk *v = top(vm);
    if (!v || (width && !take_uint(vm, width, &i)))
        return ERR_FORMAT;
    if (i >= vm->size) /* numbers are given in turn, one per opcode at most */
        return bad(vm, "memo number is above the size of the pickle");
    if (i >= vm->n_memo) {
        size_t was = vm->cap_memo;
        struct pk **m = mem_grow(vm->memo, &vm->cap_memo, (size_t)i + 1, sizeof(*m));
        if (!m)
            return err_set(vm->err, ERR_NOMEM, "data.pkl: no memory");
        memset(m + was, 0, (vm->cap_memo - was) * sizeof(*m));
        vm->memo = m;
        vm->n_memo = (size_t)i + 1;
    }
    vm->n_set += !vm->memo[i];
    vm->memo[i] = v;
    return 0;
}

/* "module\nname\n" */
static int op_global(struct pk_vm *vm, unsigned arg)
{
    (void)arg;
    const char *part[2];
    size_t len[2];
    for (int i = 0; i < 2; i++) {
        part[i] = (const char *)vm->data + vm->at;
        const char *end = memchr(part[i], '\n', vm->size - vm->at);
        if (!end)
            return bad(vm, "pickle ends inside a name");
        len[i] = (size_t)(end - part[i]);
        vm->at += len[i] + 1;
    }
    return pk_push_global(vm, part[0], len[0], part[1], len[1]);
}

static int op_stack_global(struct pk_vm *vm, unsigned arg)
{
    (void)arg;
    const struct pk *name = pop(vm), *module = name ? pop(vm) : NULL;
    if (!module)
        return ERR_FORMAT;
    if (name->kind != PK_STR || module->kind != PK_STR)
        return bad(vm, "a name that is no string");
    return pk_push_global(vm, module->u.str.s, module->u.str.len, name->u.str.s, name->u.str.len);
}

/* REDUCE and NEWOBJ: callable(*args). */
static int op_call(struct pk_vm *vm, unsigned arg)
{
    (void)arg;
    const struct pk *args = pop(vm), *fn = args ? pop(vm) : NULL;
    if (!fn)
        return ERR_FORMAT;
    if (fn->kind != PK_GLOBAL)
        return bad(vm, "calls a value that is no function");
    if (args->kind != PK_TUPLE)
        return bad(vm, "calls with arguments that are no tuple");
    return pk_call(vm, fn->u.global, args);
}

/* Attributes of an object: OrderedDict's _metadata and the like, not needed. */
static int op_build(struct pk_vm *vm, unsigned arg)
{
    (void)arg;
    struct pk *state = pop(vm), *obj = state ? top(vm) : NULL;
    if (!obj)
        return ERR_FORMAT;
    if (obj->kind != PK_DICT && obj->kind != PK_OPAQUE && obj->kind != PK_TENSOR)
        return bad(vm, "sets attributes of a value that has none");
    return 0;
}

static int op_persid(struct pk_vm *vm, unsigned arg)
{
    (void)arg;
    const struct pk *id = pop(vm);
    return id ? pk_push_storage(vm, id) : ERR_FORMAT;
}

/* PROTO and FRAME: operands without effect. */
static int op_skip(struct pk_vm *vm, unsigned n)
{
    const uint8_t *p = take(vm, n);
    if (!p)
        return ERR_FORMAT;
    if (vm->data[vm->op_at] == 0x80 && (p[0] < 2 || p[0] > 5))
        return err_set(vm->err, ERR_UNSUPPORTED, "data.pkl: pickle protocol %u; 2 to 5 are read", p[0]);
    return 0;
}

static int op_stop(struct pk_vm *vm, unsigned arg)
{
    (void)arg;
    vm->result = pop(vm);
    return vm->result ? 0 : ERR_FORMAT;
}

static const struct {
    int (*run)(struct pk_vm *vm, unsigned arg);
    unsigned arg;
} ops[256] = {
    ['N'] = {op_new, PK_NONE},   [')'] = {op_new, PK_TUPLE},   [']'] = {op_new, PK_LIST},
    ['}'] = {op_new, PK_DICT},   [0x8f] = {op_new, PK_OPAQUE}, /* EMPTY_SET */
    [0x88] = {op_bool, 1},       [0x89] = {op_bool, 0},
    ['K'] = {op_int, 1},         ['M'] = {op_int, 2},          ['J'] = {op_int, 4},
    [0x8a] = {op_long, 1},       [0x8b] = {op_long, 4},        ['G'] = {op_float, 0},
    [0x8c] = {op_str, 1},        ['X'] = {op_str, 4},          [0x8d] = {op_str, 8},
    ['U'] = {op_str, 1},         ['T'] = {op_str, 4},
    ['C'] = {op_str, 1 | BYTES}, ['B'] = {op_str, 4 | BYTES},  [0x8e] = {op_str, 8 | BYTES},
    [0x96] = {op_str, 8 | BYTES}, /* BYTEARRAY8 */
    ['('] = {op_mark, 0},        ['0'] = {op_pop, 0},          ['1'] = {op_pop_mark, 0},
    ['2'] = {op_dup, 0},
    ['t'] = {op_collect, PK_TUPLE}, ['l'] = {op_collect, PK_LIST}, ['d'] = {op_collect, PK_DICT},
    [0x91] = {op_collect, PK_OPAQUE}, /* FROZENSET */
    [0x85] = {op_tuple, 1},      [0x86] = {op_tuple, 2},       [0x87] = {op_tuple, 3},
    ['a'] = {op_extend, PK_LIST}, ['s'] = {op_extend, PK_DICT},
    ['e'] = {op_extend_mark, PK_LIST}, ['u'] = {op_extend_mark, PK_DICT},
    [0x90] = {op_extend_mark, PK_OPAQUE}, /* ADDITEMS */
    ['h'] = {op_get, 1},         ['j'] = {op_get, 4},
    ['q'] = {op_put, 1},         ['r'] = {op_put, 4},          [0x94] = {op_put, 0},
    ['c'] = {op_global, 0},      [0x93] = {op_stack_global, 0},
    ['R'] = {op_call, 0},        [0x81] = {op_call, 0},        ['b'] = {op_build, 0},
    ['Q'] = {op_persid, 0},      [0x80] = {op_skip, 1},        [0x95] = {op_skip, 8},
    ['.'] = {op_stop, 0},
};

int pickle_load(struct pk **out, struct arena *arena, const uint8_t *data, size_t size, struct err *err)
{
    *out = NULL;
    if (size > PICKLE_SIZE_MAX)
        return err_set(err, ERR_LIMIT, "data.pkl: %zu bytes, at most %zu are read", size,
                       PICKLE_SIZE_MAX);
    struct pk_vm vm = {.data = data, .size = size, .arena = arena, .err = err};
    int rc = 0;
    while (rc == 0 && !vm.result) {
        vm.op_at = vm.at;
        if (vm.at == size) {
            rc = err_set(err, ERR_FORMAT, "data.pkl: pickle of %zu bytes ends without STOP", size);
            break;
        }
        uint8_t op = data[vm.at++];
        if (!ops[op].run)
            rc = err_set(err, ERR_UNSUPPORTED, "data.pkl: pickle opcode 0x%02x at byte %zu is not allowed",
                         op, vm.op_at);
        else
            rc = ops[op].run(&vm, ops[op].arg);
    }
    *out = vm.result;
    free(vm.stack);
    free(vm.marks);
    free(vm.memo);
    return rc;
}

const char *pickle_kind_name(const struct pk *v)
{
    static const char *const names[] = {
        [PK_NONE] = "None", [PK_BOOL] = "a bool", [PK_INT] = "an integer", [PK_FLOAT] = "a float",
        [PK_STR] = "a string", [PK_BYTES] = "bytes", [PK_TUPLE] = "a tuple", [PK_LIST] = "a list",
        [PK_DICT] = "a dict", [PK_GLOBAL] = "a class", [PK_STORAGE] = "a storage",
        [PK_TENSOR] = "a tensor", [PK_OPAQUE] = "an object",
    };
    return names[v->kind];
}
