/* GGUF header and metadata: every count is checked against the bytes that are
 * left before anything is allocated.  Knows nothing of tensors
 * (gguf_tensors.c) and gives no meaning to keys but general.alignment and the
 * type of general.architecture. */
#include "file/gguf_parse.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/mem.h"
#include "file/le.h"
#include "file/parts.h"

#define ARRAY_DEPTH_MAX 4
#define ALIGNMENT_MAX (1u << 30)
#define KV_SIZE_MIN 13 /* empty key (8), type (4), one byte */

size_t gguf_left(const struct gguf_cursor *c)
{
    return c->size - c->at;
}

const uint8_t *gguf_take(struct gguf_cursor *c, size_t n)
{
    if (n > gguf_left(c))
        return NULL;
    const uint8_t *p = c->data + c->at;
    c->at += n;
    return p;
}

bool gguf_take_str(struct gguf_cursor *c, struct gguf_str *out, uint64_t *need)
{
    *need = 8;
    const uint8_t *p = gguf_take(c, 8);
    if (!p)
        return false;
    *need = le64(p);
    if (*need > gguf_left(c))
        return false;
    *out = (struct gguf_str){.s = (const char *)c->data + c->at, .len = (size_t)*need};
    c->at += out->len;
    return true;
}

static int cut(const struct gguf_cursor *c, const struct gguf_kv *kv, uint64_t need, struct err *err)
{
    return err_set(err, ERR_FORMAT,
                   "truncated: key \"" NAME_FMT "\": its value needs %" PRIu64
                   " bytes, %zu are left in the file",
                   NAME_ARG(kv->key.s, kv->key.len), need, gguf_left(c));
}

static int take_type(struct gguf_cursor *c, const struct gguf_kv *kv, enum gguf_type *out,
                     struct err *err)
{
    const uint8_t *p = gguf_take(c, 4);
    if (!p)
        return cut(c, kv, 4, err);
    uint32_t t = le32(p);
    if (t >= GGUF_TYPE_COUNT)
        return err_set(err, ERR_FORMAT, "key \"" NAME_FMT "\": unknown value type %" PRIu32,
                       NAME_ARG(kv->key.s, kv->key.len), t);
    *out = (enum gguf_type)t;
    return 0;
}

/* Passes over n values of one type; kv is for messages.  Nested arrays are as
 * deep as ARRAY_DEPTH_MAX at most. */
static int skip_values(struct gguf_cursor *c, const struct gguf_kv *kv, enum gguf_type type,
                       uint64_t n, int depth, struct err *err)
{
    size_t each = gguf_types[type].size ? gguf_types[type].size : (type == GGUF_STRING ? 8 : 12);
    if (n > gguf_left(c) / each)
        return err_set(err, ERR_FORMAT,
                       "truncated: key \"" NAME_FMT "\": %" PRIu64
                       " values of type %s need more than the %zu bytes that are left in the file",
                       NAME_ARG(kv->key.s, kv->key.len), n, gguf_types[type].name, gguf_left(c));
    if (gguf_types[type].size) {
        c->at += (size_t)n * each;
        return 0;
    }
    for (uint64_t i = 0; i < n; i++) {
        if (type == GGUF_STRING) {
            struct gguf_str s;
            uint64_t need = 0;
            if (!gguf_take_str(c, &s, &need))
                return cut(c, kv, need, err);
            continue;
        }
        if (depth == ARRAY_DEPTH_MAX)
            return err_set(err, ERR_UNSUPPORTED, "key \"" NAME_FMT "\": arrays nested deeper than %d",
                           NAME_ARG(kv->key.s, kv->key.len), ARRAY_DEPTH_MAX);
        enum gguf_type elem = GGUF_U8;
        int rc = take_type(c, kv, &elem, err);
        const uint8_t *p = rc == 0 ? gguf_take(c, 8) : NULL;
        if (rc == 0)
            rc = p ? skip_values(c, kv, elem, le64(p), depth + 1, err) : cut(c, kv, 8, err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

static int parse_kv(struct gguf_cursor *c, size_t i, struct gguf_kv *kv, struct err *err)
{
    uint64_t need = 0;
    if (!gguf_take_str(c, &kv->key, &need))
        return err_set(err, ERR_FORMAT,
                       "truncated: key %zu of the metadata needs %" PRIu64
                       " bytes, %zu are left in the file",
                       i, need, gguf_left(c));
    int rc = take_type(c, kv, &kv->type, err);
    if (rc < 0)
        return rc;
    kv->n = 1;
    kv->elem = kv->type;
    if (kv->type == GGUF_ARRAY) {
        rc = take_type(c, kv, &kv->elem, err);
        const uint8_t *p = rc == 0 ? gguf_take(c, 8) : NULL;
        if (rc < 0)
            return rc;
        if (!p)
            return cut(c, kv, 8, err);
        kv->n = le64(p);
    }
    kv->data = c->data + c->at;
    return skip_values(c, kv, kv->elem, kv->n, 1, err);
}

static int parse_header(struct gguf *g, struct gguf_cursor *c, struct err *err)
{
    const uint8_t *p = gguf_take(c, 24);
    if (!p)
        return err_set(err, ERR_FORMAT, "truncated: the header needs 24 bytes, the file has %zu",
                       c->size);
    g->version = le32(p + 4);
    if (g->version != 2 && g->version != 3) {
        bool swapped = g->version && (g->version & 0xffffff) == 0;
        return err_set(err, ERR_UNSUPPORTED, "GGUF version %" PRIu32 "%s; versions 2 and 3 are read",
                       swapped ? g->version >> 24 : g->version,
                       swapped ? " in big-endian order, which is not supported" : "");
    }
    g->n_tensors = le64(p + 8);
    uint64_t n_kv = le64(p + 16);
    if (n_kv > gguf_left(c) / KV_SIZE_MIN)
        return err_set(err, ERR_FORMAT,
                       "truncated: %" PRIu64
                       " metadata keys need more than the %zu bytes that are left in the file",
                       n_kv, gguf_left(c));
    g->n_kv = (size_t)n_kv;
    return 0;
}

static int check_known_keys(struct gguf *g, struct err *err)
{
    int64_t a = 32;
    if (gguf_get_i64(g, "general.alignment", 0, INT64_MAX, &a, err) < 0)
        return ERR_FORMAT;
    if (a < 8 || a > ALIGNMENT_MAX || (a & (a - 1)) != 0)
        return err_set(err, ERR_FORMAT,
                       "key \"general.alignment\" is %" PRId64 ", no power of two from 8 to %u", a,
                       ALIGNMENT_MAX);
    g->alignment = (size_t)a;
    struct gguf_str arch;
    return gguf_get_str(g, "general.architecture", &arch, err) < 0 ? ERR_FORMAT : 0;
}

int gguf_parse(struct gguf **out, const uint8_t *data, size_t size, const char *path, struct err *err)
{
    *out = NULL;
    struct gguf_cursor c = {.data = data, .size = size};
    struct gguf *g = mem_array(1, sizeof(*g));
    if (!g)
        return err_set(err, ERR_NOMEM, "no memory for the metadata");
    strmap_init(&g->by_key);
    g->data = data;
    g->size = size;
    g->path = mem_strdup(path);
    int rc = g->path ? parse_header(g, &c, err) : err_set(err, ERR_NOMEM, "no memory for the metadata");
    if (rc < 0)
        goto fail;
    g->kv = mem_array(g->n_kv, sizeof(*g->kv));
    if (!g->kv || !strmap_reserve(&g->by_key, g->n_kv)) {
        rc = err_set(err, ERR_NOMEM, "no memory for %zu metadata keys", g->n_kv);
        goto fail;
    }
    for (size_t i = 0; i < g->n_kv; i++) {
        struct gguf_kv *kv = &g->kv[i];
        rc = parse_kv(&c, i, kv, err);
        if (rc < 0)
            goto fail;
        int added = strmap_add(&g->by_key, kv->key.s, kv->key.len, (uint32_t)i);
        if (added <= 0) {
            rc = added < 0 ? err_set(err, ERR_NOMEM, "no memory for %zu metadata keys", g->n_kv)
                           : err_set(err, ERR_FORMAT, "duplicate key \"" NAME_FMT "\"",
                                     NAME_ARG(kv->key.s, kv->key.len));
            goto fail;
        }
    }
    g->infos_at = c.at;
    rc = check_known_keys(g, err);
    if (rc < 0)
        goto fail;
    *out = g;
    return 0;

fail:
    gguf_free(g);
    return rc;
}

void gguf_free(struct gguf *g)
{
    if (!g)
        return;
    strmap_fini(&g->by_key);
    free(g->kv);
    free(g->path);
    free(g);
}
