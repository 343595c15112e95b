/* Typed readers of GGUF metadata, over what gguf_parse.c found well formed.
 * Values stay in the mapping, unaligned and little-endian.  Knows nothing of
 * tensors and gives no meaning to any key. */
#include "file/gguf.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "file/gguf_parse.h"
#include "file/le.h"

const struct gguf_type_info gguf_types[GGUF_TYPE_COUNT] = {
    [GGUF_U8] = {"u8", 1},    [GGUF_I8] = {"i8", 1},         [GGUF_U16] = {"u16", 2},
    [GGUF_I16] = {"i16", 2},  [GGUF_U32] = {"u32", 4},       [GGUF_I32] = {"i32", 4},
    [GGUF_F32] = {"f32", 4},  [GGUF_BOOL] = {"bool", 1},     [GGUF_STRING] = {"string", 0},
    [GGUF_ARRAY] = {"array", 0}, [GGUF_U64] = {"u64", 8},    [GGUF_I64] = {"i64", 8},
    [GGUF_F64] = {"f64", 8},
};

static bool is_int(enum gguf_type t)
{
    return t <= GGUF_I32 || t == GGUF_U64 || t == GGUF_I64;
}

static bool is_float(enum gguf_type t)
{
    return t == GGUF_F32 || t == GGUF_F64;
}

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
                   array ? "array of " : "", gguf_types[kv->elem].name, wanted);
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
        snprintf(wanted, sizeof(wanted), "array of %s", gguf_types[elem].name);
        return wrong_type(g, key, k, wanted, err);
    }
    *kv = k;
    return 1;
}

int64_t gguf_elem_i64(const struct gguf_kv *kv, uint64_t i)
{
    assert(i < kv->n);
    const uint8_t *p = kv->data + (size_t)i * gguf_types[kv->elem].size;
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
    const uint8_t *p = kv->data + (size_t)i * gguf_types[kv->elem].size;
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
