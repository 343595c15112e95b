/* PyTorch's zip archives: NAME/data.pkl describes a dict of tensors by storage,
 * offset, shape and strides; NAME/data/KEY are the storages.
 *
 * Contiguous views stay in the mapping; others are copied, within a budget.
 * Knows the layout of torch.save and the wrappings that training scripts put
 * around a state dict; of pickle only the values (pickle.h). */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "file/parts.h"
#include "file/pickle.h"
#include "file/zip.h"

#define ADVICE "re-save it with torch.save(model.state_dict(), FILE)"
#define ENTRY_NAME_MAX 1024

/* All copies together: twice the file and this. */
#define COPY_EXTRA ((size_t)1 << 20)

struct pth {
    struct weights *w;
    int part;
    const struct map *map;
    struct zip zip;
    struct arena arena;     /* the pickle's values */
    const char *root;       /* "NAME/" or "", in the mapping */
    size_t root_len;
};

/* One tensor on its way into the list; name for messages. */
struct view {
    const char *name;
    size_t name_len;
    struct weight t;
    int64_t stride[WEIGHT_DIMS_MAX]; /* in elements, like offset and numel */
    int64_t offset, numel, n;        /* n: elements of the tensor */
    size_t elem_size;
    const uint8_t *storage;
};
#define VIEW_FMT "tensor " NAME_FMT
#define VIEW_ARG(v) NAME_ARG((v)->name, (v)->name_len)

/* ---- archive ---- */

static const struct zip_entry *find_entry(const struct pth *p, const char *dir, const char *key,
                                          size_t key_len)
{
    char name[ENTRY_NAME_MAX];
    size_t dir_len = strlen(dir), n = p->root_len + dir_len;
    if (n > sizeof(name) || key_len > sizeof(name) - n)
        return NULL;
    n += key_len;
    memcpy(name, p->root, p->root_len);
    memcpy(name + p->root_len, dir, dir_len);
    memcpy(name + p->root_len + dir_len, key, key_len);
    return zip_find(&p->zip, name, n);
}

/* data.pkl, in one folder or at the top. */
static const struct zip_entry *find_pickle(struct pth *p)
{
    static const char file[] = "data.pkl";
    size_t k = sizeof(file) - 1;
    for (size_t i = 0; i < p->zip.n; i++) {
        const struct zip_entry *e = &p->zip.entries[i];
        if (e->name_len < k || memcmp(e->name + e->name_len - k, file, k) != 0)
            continue;
        size_t root = e->name_len - k;
        if (root == 0 || memchr(e->name, '/', root) == e->name + root - 1) {
            p->root = e->name;
            p->root_len = root;
            return e;
        }
    }
    return NULL;
}

static int check_byteorder(const struct pth *p, struct err *err)
{
    const struct zip_entry *e = find_entry(p, "", "byteorder", 9);
    const uint8_t *s = NULL;
    if (!e)
        return 0; /* files before 2.1; always little-endian then */
    int rc = zip_data(&p->zip, e, &s, err);
    if (rc < 0)
        return rc;
    if (e->size != 6 || memcmp(s, "little", 6) != 0)
        return err_set(err, ERR_UNSUPPORTED, "byteorder is \"" NAME_FMT "\"; only little is read",
                       NAME_ARG((const char *)s, e->size));
    return 0;
}

/* ---- one tensor ---- */

static int parse_dims(struct view *v, const struct pk *size, const struct pk *stride, struct err *err)
{
    if (size->u.seq.n != stride->u.seq.n || size->u.seq.n > WEIGHT_DIMS_MAX)
        return err_set(err, ERR_FORMAT,
                       VIEW_FMT ": shape of %zu and strides of %zu dimensions (as many of each, at most %d)",
                       VIEW_ARG(v), size->u.seq.n, stride->u.seq.n, WEIGHT_DIMS_MAX);
    v->t.n_dims = (int)size->u.seq.n;
    for (int i = 0; i < v->t.n_dims; i++) {
        const struct pk *d = size->u.seq.v[i], *s = stride->u.seq.v[i];
        if (d->kind != PK_INT || d->u.i < 0 || s->kind != PK_INT || s->u.i < 0)
            return err_set(err, ERR_FORMAT,
                           VIEW_FMT ": dimension or stride %d of its shape is negative or no integer",
                           VIEW_ARG(v), i);
        v->t.shape[i] = d->u.i;
        v->stride[i] = d->u.i > 1 ? s->u.i : 0; /* no step is ever taken: any value may stand there */
    }
    int64_t size_bytes = 0;
    if (!weights_elems(v->t.shape, v->t.n_dims, &v->n) ||
        !mem_mul_i64(v->n, (int64_t)v->elem_size, &size_bytes))
        return err_set(err, ERR_FORMAT, VIEW_FMT ": its shape overflows: too many elements for 63 bits",
                       VIEW_ARG(v));
    v->t.size = (size_t)size_bytes;
    return 0;
}

/* The last element must lie in the storage. */
static int check_extent(const struct view *v, struct err *err)
{
    if (v->offset < 0)
        return err_set(err, ERR_FORMAT, VIEW_FMT ": storage offset %" PRId64 " is negative", VIEW_ARG(v),
                       v->offset);
    int64_t last = v->offset;
    bool fits = last <= v->numel;
    for (int i = 0; fits && v->n > 0 && i < v->t.n_dims; i++) {
        int64_t step = 0;
        fits = mem_mul_i64(v->t.shape[i] - 1, v->stride[i], &step) && step <= v->numel - last;
        last += fits ? step : 0;
    }
    if (!fits || (v->n > 0 && last >= v->numel))
        return err_set(err, ERR_FORMAT,
                       VIEW_FMT ": offset %" PRId64 ", shape and strides reach behind its storage of %" PRId64
                                " elements",
                       VIEW_ARG(v), v->offset, v->numel);
    return 0;
}

/* Finds the storage's bytes and checks that all its elements are there. */
static int find_storage(const struct pth *p, struct view *v, const struct pk *key, struct err *err)
{
    const struct zip_entry *e = find_entry(p, "data/", key->u.str.s, key->u.str.len);
    int64_t need = 0;
    if (!e)
        return err_set(err, ERR_FORMAT,
                       VIEW_FMT ": storage is missing: the archive has no entry " NAME_FMT "data/" NAME_FMT,
                       VIEW_ARG(v), NAME_ARG(p->root, p->root_len),
                       NAME_ARG(key->u.str.s, key->u.str.len));
    if (zip_data(&p->zip, e, &v->storage, err) < 0)
        return err_wrap(err, VIEW_FMT, VIEW_ARG(v));
    if (!mem_mul_i64(v->numel, (int64_t)v->elem_size, &need) || (uint64_t)need > e->size)
        return err_set(err, ERR_FORMAT,
                       "truncated: " VIEW_FMT ": its storage " NAME_FMT " needs %" PRId64
                       " elements of %zu bytes, the archive has %" PRIu64 " bytes of it",
                       VIEW_ARG(v), NAME_ARG(e->name, e->name_len), v->numel, v->elem_size, e->size);
    return 0;
}

static bool is_contiguous(const struct view *v)
{
    int64_t expect = 1;
    for (int i = v->t.n_dims - 1; i >= 0; i--) {
        if (v->t.shape[i] != 1 && v->stride[i] != expect)
            return false;
        expect *= v->t.shape[i];
    }
    return true;
}

/* Elements in row-major order, by an odometer over the dimensions. */
static void gather(uint8_t *out, const struct view *v)
{
    int64_t at[WEIGHT_DIMS_MAX] = {0}, from = v->offset;
    for (int64_t i = 0; i < v->n; i++) {
        memcpy(out + (size_t)i * v->elem_size, v->storage + (size_t)from * v->elem_size, v->elem_size);
        for (int d = v->t.n_dims - 1; d >= 0; d--) {
            from += v->stride[d];
            if (++at[d] < v->t.shape[d])
                break;
            from -= at[d] * v->stride[d];
            at[d] = 0;
        }
    }
}

static int copy_view(struct pth *p, struct view *v, struct err *err)
{
    struct weights *w = p->w;
    size_t budget = p->map->size > (SIZE_MAX - COPY_EXTRA) / 2 ? SIZE_MAX : 2 * p->map->size + COPY_EXTRA;
    if (w->copied_size > budget || v->t.size > budget - w->copied_size)
        return err_set(err, ERR_LIMIT,
                       VIEW_FMT ": its strides need a copy of %zu bytes, above the budget of %zu for this "
                                "file; save it with .contiguous()",
                       VIEW_ARG(v), v->t.size, budget);
    void **copies = mem_grow(w->copies, &w->cap_copies, w->n_copies + 1, sizeof(*copies));
    if (copies)
        w->copies = copies;
    uint8_t *data = copies ? mem_aligned(64, v->t.size) : NULL;
    if (!data)
        return err_set(err, ERR_NOMEM, VIEW_FMT ": no memory to copy its %zu bytes", VIEW_ARG(v),
                       v->t.size);
    copies[w->n_copies++] = data;
    w->copied_size += v->t.size;
    gather(data, v);
    v->t.data = data;
    v->t.copied = true;
    return 0;
}

static int add_tensor(struct pth *p, const char *name, size_t name_len, const struct pk *t,
                      struct err *err)
{
    struct pk **a = t->u.tensor.args->u.seq.v;
    const struct pk *storage = a[0];
    struct view v = {.name = name, .name_len = name_len, .offset = a[1]->u.i};
    v.t.file = p->part;
    v.t.dtype = storage->u.storage.dtype;
    v.numel = storage->u.storage.numel;
    if (t->u.tensor.dtype)
        v.t.dtype = pickle_global_dtype(t->u.tensor.dtype);
    v.elem_size = dtype_info(v.t.dtype)->block_size;
    if (t->u.tensor.dtype) /* its storage is untyped and counts bytes */
        v.numel /= (int64_t)v.elem_size;

    int rc = parse_dims(&v, a[2], a[3], err);
    if (rc == 0)
        rc = check_extent(&v, err);
    if (rc == 0 && v.n > 0)
        rc = find_storage(p, &v, storage->u.storage.key, err);
    if (rc == 0 && v.n > 0) {
        v.t.data = v.storage + (size_t)v.offset * v.elem_size;
        v.t.offset = (size_t)(v.t.data - p->map->data);
        if (!is_contiguous(&v))
            rc = copy_view(p, &v, err);
    }
    return rc < 0 ? rc : weights_add(p->w, &v.t, name, name_len, err);
}

/* ---- the dict ---- */

static bool key_is(const struct pk *k, const char *s)
{
    return k->kind == PK_STR && k->u.str.len == strlen(s) && memcmp(k->u.str.s, s, k->u.str.len) == 0;
}

static bool key_begins(const struct pk *k, const char *s)
{
    size_t n = strlen(s);
    return k->kind == PK_STR && k->u.str.len > n && memcmp(k->u.str.s, s, n) == 0;
}

/* Tensors under string keys. */
static size_t count_tensors(const struct pk *dict)
{
    size_t n = 0;
    for (size_t i = 0; i < dict->u.seq.n; i += 2)
        n += dict->u.seq.v[i]->kind == PK_STR && dict->u.seq.v[i + 1]->kind == PK_TENSOR;
    return n;
}

/* The state dict itself, or the one a training script wrapped with its own state. */
static const struct pk *unwrap(const struct pk *dict)
{
    static const char *const wrappers[] = {"model", "state_dict", "model_state_dict"};
    if (count_tensors(dict) > 0)
        return dict;
    for (size_t k = 0; k < sizeof(wrappers) / sizeof(wrappers[0]); k++)
        for (size_t i = 0; i < dict->u.seq.n; i += 2) {
            const struct pk *v = dict->u.seq.v[i + 1];
            if (key_is(dict->u.seq.v[i], wrappers[k]) && v->kind == PK_DICT && count_tensors(v) > 0)
                return v;
        }
    return dict;
}

/* Bytes of the prefix that DataParallel or torch.compile puts before every name. */
static size_t common_prefix(const struct pk *dict)
{
    static const char *const prefixes[] = {"module.", "_orig_mod."};
    for (size_t k = 0; k < sizeof(prefixes) / sizeof(prefixes[0]); k++) {
        bool all = true;
        for (size_t i = 0; all && i < dict->u.seq.n; i += 2)
            all = dict->u.seq.v[i + 1]->kind != PK_TENSOR || dict->u.seq.v[i]->kind != PK_STR ||
                  key_begins(dict->u.seq.v[i], prefixes[k]);
        if (all)
            return strlen(prefixes[k]);
    }
    return 0;
}

static int add_all(struct pth *p, const struct pk *top, struct err *err)
{
    if (top->kind != PK_DICT)
        return err_set(err, ERR_UNSUPPORTED, "data.pkl holds %s, not a dict of named tensors; " ADVICE,
                       pickle_kind_name(top));
    const struct pk *dict = unwrap(top);
    if (count_tensors(dict) == 0)
        return err_set(err, ERR_FORMAT,
                       "data.pkl holds a dict without tensors (nor under \"model\" or \"state_dict\"); "
                       ADVICE);
    size_t skip = common_prefix(dict), ignored = 0;
    for (size_t i = 0; i < dict->u.seq.n; i += 2) {
        const struct pk *k = dict->u.seq.v[i], *v = dict->u.seq.v[i + 1];
        if (k->kind != PK_STR || v->kind != PK_TENSOR) {
            ignored++;
            continue;
        }
        int rc = add_tensor(p, k->u.str.s + skip, k->u.str.len - skip, v, err);
        if (rc < 0)
            return rc;
    }
    if (ignored)
        log_debug(LOG_LOAD, "%s: %zu entries that are no tensors ignored", p->map->path, ignored);
    return 0;
}

int pth_read(struct weights *w, int part, struct err *err)
{
    struct pth p = {.w = w, .part = part, .map = &w->parts[part].map};
    const struct zip_entry *e = NULL;
    const uint8_t *pickle = NULL;
    struct pk *top = NULL;
    arena_init(&p.arena);
    int rc = zip_open(&p.zip, p.map->data, p.map->size, err);
    if (rc < 0)
        goto done;
    e = find_pickle(&p);
    if (!e) {
        rc = err_set(err, ERR_FORMAT,
                     "data.pkl is missing: a zip archive of %zu entries, but not one of torch.save",
                     p.zip.n);
        goto done;
    }
    rc = check_byteorder(&p, err);
    if (rc == 0)
        rc = zip_data(&p.zip, e, &pickle, err);
    if (rc == 0)
        rc = pickle_load(&top, &p.arena, pickle, (size_t)e->size, err);
    if (rc == 0)
        rc = add_all(&p, top, err);

done:
    zip_close(&p.zip);
    arena_fini(&p.arena);
    return rc;
}
