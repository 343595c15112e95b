/* The inside of struct gguf, shared by gguf_parse.c (header and metadata),
 * gguf.c (typed readers) and gguf_tensors.c.  Everything points into the
 * mapping, which outlives it. */
#ifndef FORGE_FILE_GGUF_PARSE_H
#define FORGE_FILE_GGUF_PARSE_H

#include "base/hash.h"
#include "file/gguf.h"

#define GGUF_TYPE_COUNT (GGUF_F64 + 1)

struct gguf_type_info {
    const char *name;
    unsigned size; /* bytes, 0 = not fixed */
};
extern const struct gguf_type_info gguf_types[GGUF_TYPE_COUNT];

struct gguf {
    char *path;
    const uint8_t *data; /* the mapping, borrowed */
    size_t size;
    uint32_t version;
    uint64_t n_tensors;
    struct gguf_kv *kv;
    size_t n_kv;
    struct strmap by_key; /* keys lie in the mapping */
    size_t infos_at;      /* where the list of tensors begins */
    size_t alignment;
};

/* Bytes not read yet. */
struct gguf_cursor {
    const uint8_t *data;
    size_t size, at;
};
size_t gguf_left(const struct gguf_cursor *c);
/* n bytes, or NULL when fewer are left. */
const uint8_t *gguf_take(struct gguf_cursor *c, size_t n);
/* A length and as many bytes; false when they are not there (*need is what the length asks for). */
bool gguf_take_str(struct gguf_cursor *c, struct gguf_str *out, uint64_t *need);

/* Header and metadata of data[0..size), which must outlive *out. */
int gguf_parse(struct gguf **out, const uint8_t *data, size_t size, const char *path, struct err *err);

#endif
