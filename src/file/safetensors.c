/* safetensors: u64 length of a header, a JSON header of names, types, shapes
 * and byte ranges, then the data (github.com/huggingface/safetensors,
 * "Format").  The whole header is checked against the file before a tensor is
 * listed: types, shapes, ranges that follow each other without hole or overlap.
 * Knows nothing of folders and shards. */
#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "file/le.h"
#include "file/parts.h"

#define HEADER_SIZE_MAX (100u * 1000 * 1000) /* the limit of the format's own library */
#define JSON_INT_MAX 9007199254740992.0      /* 2^53: exact in JSON's doubles */

struct st_tensor {
    struct weight t; /* name borrowed from the parsed header */
    uint64_t begin, end;
    size_t order; /* in the header */
};

/* A whole number from 0 to 2^53. */
static bool whole(const cJSON *v, uint64_t *out)
{
    if (!cJSON_IsNumber(v) || !(v->valuedouble >= 0) || v->valuedouble > JSON_INT_MAX ||
        v->valuedouble != floor(v->valuedouble))
        return false;
    *out = (uint64_t)v->valuedouble;
    return true;
}

static int parse_dtype(struct st_tensor *s, const cJSON *v, struct err *err)
{
    if (!cJSON_IsString(v))
        return err_set(err, ERR_FORMAT, "tensor %s: dtype is no string", s->t.name);
    if (!dtype_from_st(v->valuestring, &s->t.dtype))
        return err_set(err, ERR_UNSUPPORTED, "tensor %s: unknown dtype \"%s\"", s->t.name,
                       v->valuestring);
    return 0;
}

static int parse_shape(struct st_tensor *s, const cJSON *v, struct err *err)
{
    if (!cJSON_IsArray(v))
        return err_set(err, ERR_FORMAT, "tensor %s: shape is no list", s->t.name);
    int n = 0;
    for (const cJSON *d = v->child; d; d = d->next, n++) {
        uint64_t x = 0;
        if (n == WEIGHT_DIMS_MAX)
            return err_set(err, ERR_FORMAT, "tensor %s: shape has more than %d dimensions",
                           s->t.name, WEIGHT_DIMS_MAX);
        if (!whole(d, &x))
            return err_set(err, ERR_FORMAT,
                           "tensor %s: dimension %d of its shape is no whole number of 0 to 2^53",
                           s->t.name, n);
        s->t.shape[n] = (int64_t)x;
    }
    s->t.n_dims = n;
    return 0;
}

static int parse_offsets(struct st_tensor *s, const cJSON *v, struct err *err)
{
    const cJSON *a = cJSON_IsArray(v) ? v->child : NULL, *b = a ? a->next : NULL;
    if (!b || b->next || !whole(a, &s->begin) || !whole(b, &s->end))
        return err_set(err, ERR_FORMAT,
                       "tensor %s: data_offsets are not two whole numbers of 0 to 2^53", s->t.name);
    if (s->begin > s->end)
        return err_set(err, ERR_FORMAT,
                       "tensor %s: data_offsets end at %" PRIu64 ", before they begin at %" PRIu64,
                       s->t.name, s->end, s->begin);
    return 0;
}

static const struct field {
    const char *name;
    int (*parse)(struct st_tensor *s, const cJSON *v, struct err *err);
} fields[] = {
    {"dtype", parse_dtype},
    {"shape", parse_shape},
    {"data_offsets", parse_offsets},
};
#define N_FIELDS (sizeof(fields) / sizeof(fields[0]))

/* Shape times type must be the byte range. */
static int check_size(const struct st_tensor *s, struct err *err)
{
    const struct dtype_info *d = dtype_info(s->t.dtype);
    int64_t n = 0, size = 0;
    if (!weights_elems(s->t.shape, s->t.n_dims, &n) ||
        !mem_mul_i64(n, (int64_t)d->block_size, &size))
        return err_set(err, ERR_FORMAT, "tensor %s: its shape overflows: the size does not fit 63 bits",
                       s->t.name);
    if ((uint64_t)size != s->end - s->begin)
        return err_set(err, ERR_FORMAT,
                       "tensor %s: shape and dtype %s need %" PRId64
                       " bytes, its data_offsets hold %" PRIu64,
                       s->t.name, d->st_name, size, s->end - s->begin);
    return 0;
}

static int parse_tensor(struct st_tensor *s, const cJSON *item, struct err *err)
{
    s->t.name = item->string;
    if (!cJSON_IsObject(item))
        return err_set(err, ERR_FORMAT, "header: tensor %s is no object", item->string);
    bool seen[N_FIELDS] = {false};
    for (const cJSON *v = item->child; v; v = v->next) {
        for (size_t f = 0; f < N_FIELDS; f++) {
            if (strcmp(v->string, fields[f].name) != 0)
                continue;
            if (seen[f])
                return err_set(err, ERR_FORMAT, "tensor %s: duplicate %s", s->t.name, v->string);
            seen[f] = true;
            int rc = fields[f].parse(s, v, err);
            if (rc < 0)
                return rc;
        }
    }
    for (size_t f = 0; f < N_FIELDS; f++)
        if (!seen[f])
            return err_set(err, ERR_FORMAT, "header: tensor %s has no %s", s->t.name,
                           fields[f].name);
    return check_size(s, err);
}

static int by_place(const void *pa, const void *pb)
{
    const struct st_tensor *a = pa, *b = pb;
    if (a->begin != b->begin)
        return a->begin < b->begin ? -1 : 1;
    if (a->end != b->end)
        return a->end < b->end ? -1 : 1;
    return a->order < b->order ? -1 : a->order > b->order;
}

/* list is sorted; the ranges must tile [0, data_size) in order. */
static int check_ranges(const struct st_tensor *list, size_t n, uint64_t data_size, struct err *err)
{
    uint64_t at = 0;
    for (size_t i = 0; i < n; i++) {
        const struct st_tensor *s = &list[i];
        if (s->begin > data_size)
            return err_set(err, ERR_FORMAT,
                           "tensor %s: data_offsets [%" PRIu64 ", %" PRIu64
                           "] begin behind the end of the file, which holds %" PRIu64 " bytes of data",
                           s->t.name, s->begin, s->end, data_size);
        if (s->begin < at)
            return err_set(err, ERR_FORMAT,
                           "tensor %s: data_offsets [%" PRIu64 ", %" PRIu64 "] overlap tensor %s",
                           s->t.name, s->begin, s->end, list[i - 1].t.name);
        if (s->begin > at)
            return err_set(err, ERR_FORMAT,
                           "tensor %s: data_offsets leave a hole: %" PRIu64 " bytes from %" PRIu64
                           " belong to no tensor",
                           s->t.name, s->begin - at, at);
        if (s->end > data_size)
            return err_set(err, ERR_FORMAT,
                           "truncated: tensor %s needs %" PRIu64 " bytes from %" PRIu64
                           " of the data, the file has %" PRIu64,
                           s->t.name, s->end - s->begin, s->begin, data_size);
        at = s->end;
    }
    if (at != data_size)
        return err_set(err, ERR_FORMAT,
                       "data_offsets end at %" PRIu64 ", but the file holds %" PRIu64 " bytes of data",
                       at, data_size);
    return 0;
}

/* Parses the header into a sorted list (freed by the caller). */
static int parse_header(const cJSON *root, struct st_tensor **out, size_t *n_out, struct err *err)
{
    if (!cJSON_IsObject(root))
        return err_set(err, ERR_FORMAT, "header is no JSON object");
    size_t n = 0, i = 0;
    for (const cJSON *item = root->child; item; item = item->next)
        n++;
    struct st_tensor *list = mem_array(n, sizeof(*list));
    if (!list)
        return err_set(err, ERR_NOMEM, "no memory for a header of %zu tensors", n);
    bool metadata = false;
    for (const cJSON *item = root->child; item; item = item->next) {
        if (strcmp(item->string, "__metadata__") == 0) {
            if (metadata) {
                free(list);
                return err_set(err, ERR_FORMAT, "header: duplicate __metadata__");
            }
            metadata = true;
            continue;
        }
        list[i].order = i;
        int rc = parse_tensor(&list[i], item, err);
        if (rc < 0) {
            free(list);
            return rc;
        }
        i++;
    }
    qsort(list, i, sizeof(*list), by_place);
    *out = list;
    *n_out = i;
    return 0;
}

int safetensors_read(struct weights *w, int part, struct err *err)
{
    const struct map *m = &w->parts[part].map;
    assert(m->size >= 8); /* sniff() calls nothing shorter a safetensors */
    uint64_t len = le64(m->data);
    if (len > HEADER_SIZE_MAX)
        return err_set(err, ERR_FORMAT, "header of %" PRIu64 " bytes is above the limit of %u", len,
                       HEADER_SIZE_MAX);
    if (len > m->size - 8)
        return err_set(err, ERR_FORMAT, "truncated: header needs %" PRIu64 " bytes, the file has %zu",
                       len, m->size - 8);

    size_t data_at = 8 + (size_t)len, n = 0;
    struct st_tensor *list = NULL;
    cJSON *root;
    int rc = json_parse(&root, (const char *)m->data + 8, (size_t)len, "header", err);
    if (rc == 0)
        rc = parse_header(root, &list, &n, err);
    /* Duplicates first: two of one name overlap as a rule, which would say less. */
    for (size_t i = 0; rc == 0 && i < n; i++) {
        struct st_tensor *s = &list[i];
        s->t.file = part;
        s->t.size = (size_t)(s->end - s->begin);
        s->t.offset = data_at + (size_t)s->begin;
        if (s->t.size && s->end <= m->size - data_at)
            s->t.data = m->data + s->t.offset;
        rc = weights_add(w, &s->t, s->t.name, strlen(s->t.name), err);
    }
    if (rc == 0)
        rc = check_ranges(list, n, m->size - data_at, err);
    free(list);
    cJSON_Delete(root);
    return rc;
}
