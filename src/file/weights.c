/* The view "named tensors": opening, the list and its index by name, the
 * mappings it stands on.  Formats are behind the three readers of the table
 * below; which files belong together is folder.c's.  Knows nothing of
 * architectures, configs or tokenizers. */
#include "file/weights.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/utf8.h"
#include "file/parts.h"

static const struct reader {
    const char *name;
    int (*read)(struct weights *w, int part, struct err *err);
} readers[] = {
    [WEIGHTS_SAFETENSORS] = {"safetensors", safetensors_read},
    [WEIGHTS_PTH] = {"PyTorch", pth_read},
    [WEIGHTS_GGUF] = {"GGUF", gguf_read},
};

static const enum weights_format format_of[] = {
    [SNIFF_SAFETENSORS] = WEIGHTS_SAFETENSORS,
    [SNIFF_PTH] = WEIGHTS_PTH,
    [SNIFF_GGUF] = WEIGHTS_GGUF,
};

bool weights_elems(const int64_t *shape, int n, int64_t *out)
{
    *out = 1;
    for (int i = 0; i < n; i++)
        if (!mem_mul_i64(*out, shape[i], out))
            return false;
    return true;
}

int weights_add(struct weights *w, const struct weight *t, const char *name, size_t len,
                struct err *err)
{
    if (len == 0 || len > WEIGHT_NAME_MAX)
        return err_set(err, ERR_FORMAT, "tensor %zu: name of %zu bytes (1 to %d are allowed)", w->n,
                       len, WEIGHT_NAME_MAX);
    if (memchr(name, 0, len) || !utf8_valid(name, len, NULL))
        return err_set(err, ERR_FORMAT, "tensor %zu (\"" NAME_FMT "\"): its name is no UTF-8 text",
                       w->n, NAME_ARG(name, len));
    if (w->n >= UINT32_MAX)
        return err_set(err, ERR_LIMIT, "too many tensors");

    uint32_t before = 0;
    if (strmap_find(&w->by_name, name, len, &before)) {
        int other = w->list[before].file;
        if (other == t->file)
            return err_set(err, ERR_FORMAT, "duplicate tensor " NAME_FMT, NAME_ARG(name, len));
        return err_set(err, ERR_FORMAT, "duplicate tensor " NAME_FMT ", which %s holds too",
                       NAME_ARG(name, len), weights_file(w, other));
    }
    struct weight *list = mem_grow(w->list, &w->cap, w->n + 1, sizeof(*list));
    if (!list)
        goto nomem;
    w->list = list;
    char *own = arena_strndup(&w->names, name, len);
    if (!own || strmap_add(&w->by_name, own, len, (uint32_t)w->n) < 0)
        goto nomem;
    list[w->n] = *t;
    list[w->n].name = own;
    w->n++;
    w->bytes += t->size;
    return 0;

nomem:
    return err_set(err, ERR_NOMEM, "no memory for the list of tensors (%zu so far)", w->n);
}

static struct weights *weights_new(const char *path, const char *dir, struct err *err)
{
    struct weights *w = mem_array(1, sizeof(*w));
    if (w) {
        strmap_init(&w->by_name);
        arena_init(&w->names);
        w->path = mem_strdup(path);
        w->dir = dir ? mem_strdup(dir) : path_dirname(path);
    }
    if (!w || !w->path || !w->dir) {
        weights_close(w);
        err_set(err, ERR_NOMEM, "%s: no memory to open it", path);
        return NULL;
    }
    return w;
}

/* Takes over m (in every case). */
static int push_part(struct weights *w, struct map *m, bool borrowed, struct err *err)
{
    struct weights_part *p = mem_grow(w->parts, &w->cap_parts, w->n_parts + 1, sizeof(*p));
    if (!p) {
        if (borrowed)
            free(m->path);
        else
            map_close(m);
        return err_set(err, ERR_NOMEM, "no memory for %zu files", w->n_parts + 1);
    }
    w->parts = p;
    p[w->n_parts++] = (struct weights_part){.map = *m, .borrowed = borrowed};
    return 0;
}

/* Puts the path before a message, unless it is there (GGUF's typed readers name their file). */
static void name_file(struct err *err, const char *path)
{
    if (strncmp(err->msg, path, strlen(path)) != 0)
        err_wrap(err, "%s", path);
}

/* Reads the part pushed last; its path goes before every message. */
static int read_part(struct weights *w, enum sniff_kind kind, struct err *err)
{
    int part = (int)w->n_parts - 1;
    const struct map *m = &w->parts[part].map;
    if (kind == SNIFF_INDEX)
        return err_set(err, ERR_FORMAT, "%s: a JSON text where a weights file was expected", m->path);
    enum weights_format f = format_of[kind];
    if (part > 0 && f != w->format)
        return err_set(err, ERR_FORMAT, "%s: is %s, but %s is %s", m->path, readers[f].name,
                       weights_file(w, 0), readers[w->format].name);
    w->format = f;
    size_t before = w->n;
    int rc = readers[f].read(w, part, err);
    if (rc < 0) {
        name_file(err, m->path);
        return rc;
    }
    log_debug(LOG_LOAD, "%s: %s, %zu bytes, %zu tensors", m->path, readers[f].name, m->size,
              w->n - before);
    return 0;
}

int weights_add_part(struct weights *w, const char *path, struct err *err)
{
    struct map m;
    enum sniff_kind kind = SNIFF_SAFETENSORS;
    int rc = map_open(&m, path, err);
    if (rc == 0)
        rc = push_part(w, &m, false, err);
    if (rc < 0)
        return rc;
    if (sniff(m.data, m.size, &kind, err) < 0)
        return err_wrap(err, "%s", path);
    return read_part(w, kind, err);
}

/* A file given by name: weights, or the index of shards. */
static int read_file(struct weights *w, const char *path, struct err *err)
{
    struct map m;
    enum sniff_kind kind = SNIFF_SAFETENSORS;
    int rc = map_open(&m, path, err);
    if (rc < 0)
        return rc;
    if (sniff(m.data, m.size, &kind, err) < 0) {
        map_close(&m);
        return err_wrap(err, "%s", path);
    }
    if (kind == SNIFF_INDEX) {
        map_close(&m);
        return folder_read_index(w, path, err);
    }
    rc = push_part(w, &m, false, err);
    return rc < 0 ? rc : read_part(w, kind, err);
}

/* The end of opening: a split GGUF's other files, then w becomes *out, or is closed. */
static int opened(struct weights **out, struct weights *w, int rc, struct err *err)
{
    if (rc == 0 && w->gguf)
        rc = gguf_read_splits(w, err);
    if (rc < 0)
        weights_close(w);
    else
        *out = w;
    return rc;
}

int weights_open(struct weights **out, const char *path, struct err *err)
{
    struct err unseen; /* inside, the sentence is always made */
    err = err ? err : &unseen;
    *out = NULL;
    bool folder = path_is_dir(path);
    struct weights *w = weights_new(path, folder ? path : NULL, err);
    if (!w)
        return ERR_NOMEM;
    return opened(out, w, folder ? folder_read(w, path, err) : read_file(w, path, err), err);
}

int weights_open_bytes(struct weights **out, const char *name, const void *data, size_t size,
                       struct err *err)
{
    struct err unseen;
    err = err ? err : &unseen;
    *out = NULL;
    struct weights *w = weights_new(name, NULL, err);
    if (!w)
        return ERR_NOMEM;
    struct map m = {.data = data, .size = size, .path = mem_strdup(name)};
    enum sniff_kind kind = SNIFF_SAFETENSORS;
    int rc = m.path ? 0 : err_set(err, ERR_NOMEM, "%s: no memory to open it", name);
    if (rc == 0)
        rc = push_part(w, &m, true, err);
    if (rc == 0 && sniff(data, size, &kind, err) < 0)
        rc = err_wrap(err, "%s", name);
    if (rc == 0)
        rc = read_part(w, kind, err);
    return opened(out, w, rc, err);
}

void weights_close(struct weights *w)
{
    if (!w)
        return;
    gguf_free(w->gguf);
    for (size_t i = 0; i < w->n_copies; i++)
        free(w->copies[i]);
    free(w->copies);
    strmap_fini(&w->by_name);
    arena_fini(&w->names);
    free(w->list);
    for (size_t i = 0; i < w->n_parts; i++) {
        if (w->parts[i].borrowed)
            free(w->parts[i].map.path);
        else
            map_close(&w->parts[i].map);
    }
    free(w->parts);
    free(w->path);
    free(w->dir);
    free(w);
}

enum weights_format weights_format(const struct weights *w)
{
    return w->format;
}

const char *weights_format_name(enum weights_format f)
{
    assert((size_t)f < sizeof(readers) / sizeof(readers[0]));
    return readers[f].name;
}

size_t weights_count(const struct weights *w)
{
    return w->n;
}

const struct weight *weights_at(const struct weights *w, size_t i)
{
    assert(i < w->n);
    return &w->list[i];
}

const struct weight *weights_find(const struct weights *w, const char *name)
{
    uint32_t i = 0;
    return strmap_find(&w->by_name, name, strlen(name), &i) ? &w->list[i] : NULL;
}

int weights_n_files(const struct weights *w)
{
    return (int)w->n_parts;
}

const char *weights_file(const struct weights *w, int i)
{
    assert(i >= 0 && (size_t)i < w->n_parts);
    return w->parts[i].map.path;
}

const uint8_t *weights_file_data(const struct weights *w, int i, size_t *size)
{
    assert(i >= 0 && (size_t)i < w->n_parts);
    *size = w->parts[i].map.size;
    return w->parts[i].map.data;
}

const char *weights_path(const struct weights *w)
{
    return w->path;
}

const char *weights_dir(const struct weights *w)
{
    return w->dir;
}

uint64_t weights_bytes(const struct weights *w)
{
    return w->bytes;
}

int64_t weight_elems(const struct weight *t)
{
    int64_t n = 1;
    bool fits = weights_elems(t->shape, t->n_dims, &n);
    assert(fits); /* every reader checked it */
    (void)fits;
    return n;
}

const struct gguf *weights_gguf(const struct weights *w)
{
    return w->gguf;
}

/* Values per call of the dequantiser: whole blocks of every format. */
#define CHECK_CHUNK 4096

int weights_check(const struct weights *w, uint64_t *n_nan, uint64_t *n_inf, struct err *err)
{
    *n_nan = *n_inf = 0;
    float *x = mem_array(CHECK_CHUNK, sizeof(*x));
    if (!x)
        return err_set(err, ERR_NOMEM, "%s: no memory to check the weights", w->path);
    for (size_t i = 0; i < w->n; i++) {
        const struct weight *t = &w->list[i];
        const struct dtype_info *d = dtype_info(t->dtype);
        if (!d->to_f32 || !t->data)
            continue;
        /* Rows are whole blocks, so the tensor is one run of blocks. */
        int64_t left = weight_elems(t);
        for (const uint8_t *p = t->data; left > 0;) {
            size_t n = left < CHECK_CHUNK ? (size_t)left : CHECK_CHUNK;
            d->to_f32(x, p, n);
            for (size_t k = 0; k < n; k++) {
                *n_nan += isnan(x[k]) != 0;
                *n_inf += isinf(x[k]) != 0;
            }
            p += n / d->block_elems * d->block_size;
            left -= (int64_t)n;
        }
    }
    free(x);
    return 0;
}
