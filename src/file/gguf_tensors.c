/* The tensors of a GGUF, and the files of a split one.
 *
 * Layout behind the metadata: one info per tensor (name, dimensions with the
 * innermost first, type, offset), padding to general.alignment, then the data
 * to which the offsets count.  Everything is checked against the file before a
 * tensor is listed.  Knows no key but those of split.*. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "file/gguf_parse.h"
#include "file/le.h"
#include "file/parts.h"

#define GGUF_DIMS_MAX 4
#define INFO_SIZE_MIN 33 /* name (8 + 1), n_dims (4), one dimension (8), type (4), offset (8) */

struct info {
    struct gguf_str name;
    struct weight t;
    uint64_t offset; /* within the data */
};

/* Names in messages: INFO_FMT with INFO_ARG(info). */
#define INFO_FMT "tensor " NAME_FMT
#define INFO_ARG(in) NAME_ARG((in)->name.s, (in)->name.len)

static int cut(const struct gguf_cursor *c, size_t i, uint64_t need, struct err *err)
{
    return err_set(err, ERR_FORMAT,
                   "truncated: the info of tensor %zu needs %" PRIu64
                   " bytes, %zu are left in the file",
                   i, need, gguf_left(c));
}

/* Dimensions, turned round to outermost first. */
static int parse_dims(struct info *in, const uint8_t *p, uint32_t n, struct err *err)
{
    in->t.n_dims = (int)n;
    for (uint32_t d = 0; d < n; d++) {
        uint64_t x = le64(p + 8 * d);
        if (x == 0 || x > INT64_MAX)
            return err_set(err, ERR_FORMAT, INFO_FMT ": dimension %" PRIu32 " of its shape is %" PRIu64,
                           INFO_ARG(in), d, x);
        in->t.shape[n - 1 - d] = (int64_t)x;
    }
    return 0;
}

/* Bytes of the tensor from type and shape: rows of whole blocks. */
static int set_size(struct info *in, struct err *err)
{
    struct weight *t = &in->t;
    const struct dtype_info *d = dtype_info(t->dtype);
    int64_t row = t->shape[t->n_dims - 1], n = 0;
    size_t row_size = 0;
    if (!weights_elems(t->shape, t->n_dims, &n))
        return err_set(err, ERR_FORMAT, INFO_FMT ": its shape overflows: too many elements for 63 bits",
                       INFO_ARG(in));
    if (row % d->block_elems != 0)
        return err_set(err, ERR_FORMAT,
                       INFO_FMT ": its shape has rows of %" PRId64
                       " values, which are no whole blocks of %" PRIu32 " as %s has them",
                       INFO_ARG(in), row, d->block_elems, d->name);
    if (!dtype_row_size(t->dtype, row, &row_size) ||
        !mem_mul(row_size, (size_t)(n / row), &t->size))
        return err_set(err, ERR_FORMAT, INFO_FMT ": its shape overflows: the size does not fit",
                       INFO_ARG(in));
    return 0;
}

static int parse_info(struct gguf_cursor *c, size_t i, struct info *in, struct err *err)
{
    uint64_t need = 0;
    if (!gguf_take_str(c, &in->name, &need))
        return cut(c, i, need, err);
    const uint8_t *p = gguf_take(c, 4);
    if (!p)
        return cut(c, i, 4, err);
    uint32_t n_dims = le32(p);
    if (n_dims < 1 || n_dims > GGUF_DIMS_MAX)
        return err_set(err, ERR_FORMAT, INFO_FMT " has %" PRIu32 " dimensions (at least 1, at most %d)",
                       INFO_ARG(in), n_dims, GGUF_DIMS_MAX);
    p = gguf_take(c, 8 * n_dims);
    if (!p)
        return cut(c, i, 8 * n_dims, err);
    int rc = parse_dims(in, p, n_dims, err);
    if (rc < 0)
        return rc;
    p = gguf_take(c, 12);
    if (!p)
        return cut(c, i, 12, err);
    uint32_t id = le32(p);
    in->offset = le64(p + 4);
    if (!dtype_from_ggml(id, &in->t.dtype))
        return err_set(err, ERR_UNSUPPORTED, INFO_FMT ": unknown type number %" PRIu32, INFO_ARG(in), id);
    return set_size(in, err);
}

/* Where the tensor lies in the file. */
static int place(const struct gguf *g, struct info *in, size_t data_at, struct err *err)
{
    if (in->offset % g->alignment != 0)
        return err_set(err, ERR_FORMAT,
                       INFO_FMT ": offset %" PRIu64 " is no multiple of the alignment %zu",
                       INFO_ARG(in), in->offset, g->alignment);
    size_t at = 0;
    if (in->offset > SIZE_MAX || !mem_add(data_at, (size_t)in->offset, &at) || at > g->size) {
        if (in->offset == 0)
            at = data_at; /* data cut off whole: say how much is missing, below */
        else
            return err_set(err, ERR_FORMAT,
                           INFO_FMT ": offset %" PRIu64 " of the data (which begins at %zu) is behind "
                                    "the end of the file, which has %zu bytes",
                           INFO_ARG(in), in->offset, data_at, g->size);
    }
    if (at > g->size || in->t.size > g->size - at)
        return err_set(err, ERR_FORMAT,
                       "truncated: " INFO_FMT " needs %zu bytes from %zu, the file has %zu",
                       INFO_ARG(in), in->t.size, at, g->size);
    in->t.offset = at;
    in->t.data = g->data + at;
    return 0;
}

static int read_tensors(struct weights *w, const struct gguf *g, int part, struct err *err)
{
    struct gguf_cursor c = {.data = g->data, .size = g->size, .at = g->infos_at};
    if (g->n_tensors > gguf_left(&c) / INFO_SIZE_MIN)
        return err_set(err, ERR_FORMAT,
                       "truncated: %" PRIu64
                       " tensors need more than the %zu bytes that are left in the file",
                       g->n_tensors, gguf_left(&c));
    size_t n = (size_t)g->n_tensors, data_at = 0;
    struct info *infos = mem_array(n, sizeof(*infos));
    if (!infos)
        return err_set(err, ERR_NOMEM, "no memory for the infos of %zu tensors", n);
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < n; i++)
        rc = parse_info(&c, i, &infos[i], err);
    /* c.at <= size and the alignment is at most 2^30, so this wraps for no real file. */
    if (rc == 0 && !mem_add(c.at, g->alignment - 1, &data_at))
        rc = err_set(err, ERR_FORMAT, "the data would begin behind any address");
    data_at &= ~(g->alignment - 1);
    for (size_t i = 0; rc == 0 && i < n; i++) {
        struct info *in = &infos[i];
        rc = place(g, in, data_at, err);
        in->t.file = part;
        if (rc == 0)
            rc = weights_add(w, &in->t, in->name.s, in->name.len, err);
    }
    free(infos);
    return rc;
}

/* ---- split files ---- */

bool gguf_split_name(const char *name, unsigned *no, unsigned *count, size_t *stem_len)
{
    static const char shape[] = "-#####-of-#####.gguf";
    size_t n = strlen(name), k = sizeof(shape) - 1;
    if (n < k)
        return false;
    const char *p = name + n - k;
    for (size_t i = 0; i < k; i++)
        if (shape[i] == '#' ? p[i] < '0' || p[i] > '9' : p[i] != shape[i])
            return false;
    *no = (unsigned)strtoul(p + 1, NULL, 10);
    *count = (unsigned)strtoul(p + 10, NULL, 10);
    *stem_len = n - k;
    return true;
}

/* Part numbers: *no counts from 0; one file that is not split has no 0 and count 1. */
static int split_keys(const struct gguf *g, int64_t *no, int64_t *count, struct err *err)
{
    *no = 0;
    *count = 1;
    if (gguf_get_i64(g, "split.no", 0, UINT16_MAX, no, err) < 0 ||
        gguf_get_i64(g, "split.count", 0, UINT16_MAX, count, err) < 0)
        return ERR_FORMAT;
    if (*count == 0)
        *count = 1;
    return 0;
}

int gguf_read(struct weights *w, int part, struct err *err)
{
    const struct map *m = &w->parts[part].map;
    struct gguf *g = NULL;
    int64_t no = 0, count = 1, first_no = 0, first_count = 1;
    int rc = gguf_parse(&g, m->data, m->size, m->path, err);
    if (rc == 0)
        rc = split_keys(g, &no, &count, err);
    if (rc == 0 && part > 0)
        rc = split_keys(w->gguf, &first_no, &first_count, err);
    if (rc == 0 && part == 0 && no != 0)
        rc = err_set(err, ERR_ARG,
                     "this is part %" PRId64 " of %" PRId64
                     " of a split model: give the first part (...-00001-of-%05" PRId64 ".gguf)",
                     no + 1, count, count);
    if (rc == 0 && part > 0 && (no != part || count != first_count))
        rc = err_set(err, ERR_FORMAT,
                     "split.no %" PRId64 " and split.count %" PRId64 ", expected %d and %" PRId64, no,
                     count, part, first_count);
    if (rc == 0)
        rc = read_tensors(w, g, part, err);
    if (rc == 0 && part == 0)
        w->gguf = g;
    else
        gguf_free(g);
    return rc;
}

static int read_parts(struct weights *w, const char *first, size_t stem_len, unsigned count,
                      struct err *err)
{
    for (unsigned i = 2; i <= count; i++) {
        struct buf path;
        buf_init(&path);
        buf_put(&path, first, stem_len);
        buf_printf(&path, "-%05u-of-%05u.gguf", i, count);
        int rc = 0;
        if (buf_str(&path)[0] == '\0' || path.failed)
            rc = err_set(err, ERR_NOMEM, "%s: no memory for a path", first);
        else if (!path_exists(buf_str(&path)))
            rc = err_set(err, ERR_IO, "%s: missing: part %u of the %u of the split model %s",
                         buf_str(&path), i, count, first);
        else
            rc = weights_add_part(w, buf_str(&path), err);
        buf_fini(&path);
        if (rc < 0)
            return rc;
    }
    return 0;
}

int gguf_read_splits(struct weights *w, struct err *err)
{
    int64_t no = 0, count = 1, n_tensors = 0;
    const char *first = weights_file(w, 0);
    unsigned name_no = 0, name_count = 0;
    size_t stem_len = 0;
    if (split_keys(w->gguf, &no, &count, err) < 0)
        return ERR_FORMAT;
    if (count > 1) {
        if (!gguf_split_name(first, &name_no, &name_count, &stem_len) || name_no != 1 ||
            name_count != (unsigned)count)
            return err_set(err, ERR_FORMAT,
                           "%s: the first of %" PRId64
                           " parts of a split model must be named ...-00001-of-%05" PRId64 ".gguf, so "
                           "that the others are found",
                           first, count, count);
        char *copy = mem_strdup(first); /* the list of parts moves */
        int rc = copy ? read_parts(w, copy, stem_len, name_count, err)
                      : err_set(err, ERR_NOMEM, "%s: no memory for a path", first);
        free(copy);
        if (rc < 0)
            return rc;
    }
    int rc = gguf_get_i64(w->gguf, "split.tensors.count", 0, INT64_MAX, &n_tensors, err);
    if (rc < 0)
        return rc;
    if (rc > 0 && (uint64_t)n_tensors != w->n)
        return err_set(err, ERR_FORMAT, "%s: split.tensors.count is %" PRId64 ", but the %zu files hold %zu",
                       weights_file(w, 0), n_tensors, w->n_parts, w->n);
    return 0;
}
