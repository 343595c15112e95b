/* GGUF metadata: typed key-value pairs, borrowed from the mapping.
 * Format: ggml's docs/gguf.md, versions 2 and 3, little-endian.
 * Meanings of keys belong to those who ask (text, model). */
#ifndef FORGE_FILE_GGUF_H
#define FORGE_FILE_GGUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum gguf_type {
    GGUF_U8, GGUF_I8, GGUF_U16, GGUF_I16, GGUF_U32, GGUF_I32, GGUF_F32, GGUF_BOOL,
    GGUF_STRING, GGUF_ARRAY, GGUF_U64, GGUF_I64, GGUF_F64
};

struct gguf_str { const char *s; size_t len; }; /* not terminated */

struct gguf_kv {
    struct gguf_str key;
    enum gguf_type type;
    enum gguf_type elem;  /* of an array */
    uint64_t n;           /* elements of an array, else 1 */
    const uint8_t *data;  /* value(s) as they lie in the file, unaligned; strings as u64 length + bytes */
};

struct gguf;

size_t gguf_n_kv(const struct gguf *g);
const struct gguf_kv *gguf_kv_at(const struct gguf *g, size_t i);
const struct gguf_kv *gguf_find(const struct gguf *g, const char *key); /* NULL = absent */
uint32_t gguf_version(const struct gguf *g);
const char *gguf_path(const struct gguf *g);

/* Typed readers: 1 = found, 0 = absent (out left alone), negative = present with a wrong
 * type or out of range (err names file and key).  Integers of any width are accepted
 * where the value fits; f32 and f64 both for floats (integers too). */
int gguf_get_i64(const struct gguf *g, const char *key, int64_t min, int64_t max, int64_t *out, struct err *err);
int gguf_get_f64(const struct gguf *g, const char *key, double *out, struct err *err);
int gguf_get_bool(const struct gguf *g, const char *key, bool *out, struct err *err);
int gguf_get_str(const struct gguf *g, const char *key, struct gguf_str *out, struct err *err);
/* An array of the wanted element kind; *kv for the walk below. */
int gguf_get_array(const struct gguf *g, const char *key, enum gguf_type elem, const struct gguf_kv **kv, struct err *err);

/* Element i of a numeric array (or the scalar itself with i = 0). */
int64_t gguf_elem_i64(const struct gguf_kv *kv, uint64_t i);
double gguf_elem_f64(const struct gguf_kv *kv, uint64_t i);
/* Walks an array of strings: start with *cursor = 0, call n times. */
struct gguf_str gguf_next_str(const struct gguf_kv *kv, size_t *cursor);

#endif
