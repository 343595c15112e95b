/* GGUF header and metadata: parsing with every count checked against the bytes
 * that are left, and the typed readers.  Keys and values stay in the mapping.
 * Knows nothing of tensors (gguf_tensors.c) and gives no meaning to keys but
 * general.alignment and the type of general.architecture. */
#include "file/gguf.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "file/gguf_parse.h"
#include "file/le.h"
#include "file/parts.h"

#define ARRAY_DEPTH_MAX 4
#define ALIGNMENT_MAX (1u << 30)
#define KV_SIZE_MIN 13 /* empty key (8), type (4), one byte */

static const struct {
    const char *name;
    unsigned size; /* 0 = not fixed */
} types[] = {
    [GGUF_U8] = {"u8", 1},    [GGUF_I8] = {"i8", 1},         [GGUF_U16] = {"u16", 2},
    [GGUF_I16] = {"i16", 2},  [GGUF_U32] = {"u32", 4},       [GGUF_I32] = {"i32", 4},
    [GGUF_F32] = {"f32", 4},  [GGUF_BOOL] = {"bool", 1},     [GGUF_STRING] = {"string", 0},
    [GGUF_ARRAY] = {"array", 0}, [GGUF_U64] = {"u64", 8},    [GGUF_I64] = {"i64", 8},
    [GGUF_F64] = {"f64", 8},
};
#define N_TYPES (sizeof(types) / sizeof(types[0]))

static bool is_int(enum gguf_type t)
{
    return t <= GGUF_I32 || t == GGUF_U64 || t == GGUF_I64;
}

static bool is_float(enum gguf_type t)
{
    return t == GGUF_F32 || t == GGUF_F64;
}

/* ---- parsing ---- */

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
    if (t >= N_TYPES)
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
    size_t each = types[type].size ? types[type].size : (type == GGUF_STRING ? 8 : 12);
    if (n > gguf_left(c) / each)
        return err_set(err, ERR_FORMAT,
                       "truncated: key \"" NAME_FMT "\": %" PRIu64
                       " values of type %s need more than the %zu bytes that are left in the file",
                       NAME_ARG(kv->key.s, kv->key.len), n, types[type].name, gguf_left(c));
    if (types[type].size) {
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
                       "%" PRIu64 " metadata keys need more than the %zu bytes that are left in the file",
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
    int rc = g->path ? parse_header(g, &c, err) : ERR_NOMEM;
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

/* ---- readers ---- */

size_t gguf_n_kv(const struct gguf *g)
{
    return g->n_kv;
}

const struct gguf_kv *gguf_kv_at(const struct gguf *g, size_t i)
{
    assert(i < g->n_kv);
    return &g->kv[i];
}

const struct gguf_kv *gguf_find(const struct gguf *g, const char *key)
{
    uint32_t i = 0;
    return strmap_find(&g->by_key, key, strlen(key), &i) ? &g->kv[i] : NULL;
}

uint32_t gguf_version(const struct gguf *g)
{
    return g->version;
}

const char *gguf_path(const struct gguf *g)
{
    return g->path;
}

static int wrong_type(const struct gguf *g, const char *key, const struct gguf_kv *kv,
                      const char *wanted, struct err *err)
{
    bool array = kv->type == GGUF_ARRAY;
    return err_set(err, ERR_FORMAT, "%s: key \"%s\" is of type %s%s, not %s", g->path, key,
                   array ? "array of " : "", types[kv->elem].name, wanted);
}

int gguf_get_i64(const struct gguf *g, const char *key, int64_t min, int64_t max, int64_t *out,
                 struct err *err)
{
    const struct gguf_kv *kv = gguf_find(g, key);
    if (!kv)
        return 0;
    if (!is_int(kv->type))
        return wrong_type(g, key, kv, "an integer", err);
    int64_t v = gguf_elem_i64(kv, 0);
    bool wraps = kv->type == GGUF_U64 && v < 0;
    if (wraps || v < min || v > max)
        return err_set(err, ERR_FORMAT, "%s: key \"%s\" is out of range (%s%" PRIu64 ")", g->path, key,
                       !wraps && v < 0 ? "-" : "", !wraps && v < 0 ? 0 - (uint64_t)v : (uint64_t)v);
    *out = v;
    return 1;
}

int gguf_get_f64(const struct gguf *g, const char *key, double *out, struct err *err)
{
    const struct gguf_kv *kv = gguf_find(g, key);
    if (!kv)
        return 0;
    if (!is_int(kv->type) && !is_float(kv->type))
        return wrong_type(g, key, kv, "a number", err);
    double v = gguf_elem_f64(kv, 0);
    if (!isfinite(v))
        return err_set(err, ERR_FORMAT, "%s: key \"%s\" is no finite number", g->path, key);
    *out = v;
    return 1;
}

int gguf_get_bool(const struct gguf *g, const char *key, bool *out, struct err *err)
{
    const struct gguf_kv *kv = gguf_find(g, key);
    if (!kv)
        return 0;
    if (kv->type != GGUF_BOOL)
        return wrong_type(g, key, kv, "a bool", err);
    if (kv->data[0] > 1)
        return err_set(err, ERR_FORMAT, "%s: key \"%s\" is a bool of value %u", g->path, key,
                       kv->data[0]);
    *out = kv->data[0] != 0;
    return 1;
}

int gguf_get_str(const struct gguf *g, const char *key, struct gguf_str *out, struct err *err)
{
    const struct gguf_kv *kv = gguf_find(g, key);
    if (!kv)
        return 0;
    if (kv->type != GGUF_STRING)
        return wrong_type(g, key, kv, "a string", err);
    size_t cursor = 0;
    *out = gguf_next_str(kv, &cursor);
    return 1;
}

int gguf_get_array(const struct gguf *g, const char *key, enum gguf_type elem,
                   const struct gguf_kv **kv, struct err *err)
{
    const struct gguf_kv *k = gguf_find(g, key);
    if (!k)
        return 0;
    /* Integers of any width do for integers, and so for floats. */
    bool fits = k->elem == elem || (is_int(elem) && is_int(k->elem)) ||
                (is_float(elem) && is_float(k->elem));
    if (k->type != GGUF_ARRAY || !fits) {
        char wanted[32];
        snprintf(wanted, sizeof(wanted), "array of %s", types[elem].name);
        return wrong_type(g, key, k, wanted, err);
    }
    *kv = k;
    return 1;
}

int64_t gguf_elem_i64(const struct gguf_kv *kv, uint64_t i)
{
    assert(i < kv->n);
    const uint8_t *p = kv->data + (size_t)i * types[kv->elem].size;
    switch (kv->elem) {
    case GGUF_U8: case GGUF_BOOL: return p[0];
    case GGUF_I8: return (int8_t)p[0];
    case GGUF_U16: return le16(p);
    case GGUF_I16: return (int16_t)le16(p);
    case GGUF_U32: return le32(p);
    case GGUF_I32: return (int32_t)le32(p);
    case GGUF_U64: case GGUF_I64: return (int64_t)le64(p);
    default: assert(is_int(kv->elem)); return 0;
    }
}

double gguf_elem_f64(const struct gguf_kv *kv, uint64_t i)
{
    assert(i < kv->n);
    const uint8_t *p = kv->data + (size_t)i * types[kv->elem].size;
    if (kv->elem == GGUF_F32) {
        uint32_t bits = le32(p);
        float f;
        memcpy(&f, &bits, sizeof(f));
        return (double)f;
    }
    if (kv->elem == GGUF_F64) {
        uint64_t bits = le64(p);
        double d;
        memcpy(&d, &bits, sizeof(d));
        return d;
    }
    if (kv->elem == GGUF_U64)
        return (double)le64(p);
    return (double)gguf_elem_i64(kv, i);
}

struct gguf_str gguf_next_str(const struct gguf_kv *kv, size_t *cursor)
{
    assert(kv->elem == GGUF_STRING);
    const uint8_t *p = kv->data + *cursor;
    struct gguf_str s = {.s = (const char *)p + 8, .len = (size_t)le64(p)};
    *cursor += 8 + s.len;
    return s;
}
