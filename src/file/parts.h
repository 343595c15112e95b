/* The inside of struct weights, shared by the readers of this folder only.
 *
 * A part is one file, mapped (or bytes in memory, for the fuzz targets).  A
 * reader checks its part and adds its tensors; it says what is wrong without
 * naming the file, since the path is put before each message.  err is never NULL here. */
#ifndef FORGE_FILE_PARTS_H
#define FORGE_FILE_PARTS_H

#include "base/hash.h"
#include "base/map.h"
#include "base/mem.h"
#include "file/weights.h"

#define WEIGHT_NAME_MAX 1024

/* A name in a message: long ones are cut. */
#define NAME_FMT "%.*s"
#define NAME_ARG(s, len) ((len) > 200 ? 200 : (int)(len)), (s)

struct weights_part {
    struct map map;
    bool borrowed; /* the bytes are the caller's */
};

struct weights {
    enum weights_format format;
    char *path, *dir;
    struct weights_part *parts;
    size_t n_parts, cap_parts;
    struct weight *list;
    size_t n, cap;
    struct strmap by_name; /* name -> index in list */
    struct arena names;
    void **copies; /* tensors that strides forced into memory */
    size_t n_copies, cap_copies, copied_size;
    struct gguf *gguf; /* of the first part */
    uint64_t bytes;
};

/* What the first bytes of a file say. */
enum sniff_kind { SNIFF_SAFETENSORS, SNIFF_PTH, SNIFF_GGUF, SNIFF_INDEX };
/* Anything else is refused with what it looks like. */
int sniff(const uint8_t *data, size_t size, enum sniff_kind *out, struct err *err);

/* Appends a tensor: all of t but its name is filled in.  Refuses empty, overlong and non-UTF-8
 * names, and names that are there already. */
int weights_add(struct weights *w, const struct weight *t, const char *name, size_t len,
                struct err *err);
/* Maps a further file, finds its format and reads it. */
int weights_add_part(struct weights *w, const char *path, struct err *err);
/* shape[0..n) -> product; false when it does not fit 63 bits. */
bool weights_elems(const int64_t *shape, int n, int64_t *out);

/* One reader per format. */
int safetensors_read(struct weights *w, int part, struct err *err);
int pth_read(struct weights *w, int part, struct err *err);
int gguf_read(struct weights *w, int part, struct err *err);

/* Opens the other files of a split GGUF whose first part was read; nothing to do otherwise. */
int gguf_read_splits(struct weights *w, struct err *err);
/* True if `name` ends in -00001-of-0000N.gguf; *no counts from 1, *stem_len is what stands before. */
bool gguf_split_name(const char *name, unsigned *no, unsigned *count, size_t *stem_len);
void gguf_free(struct gguf *g);

/* A folder, by the rules written in folder.c; an index of shards. */
int folder_read(struct weights *w, const char *dir, struct err *err);
int folder_read_index(struct weights *w, const char *index_path, struct err *err);

/* As weights_open, on bytes that must outlive the result; `name` is for messages. */
int weights_open_bytes(struct weights **out, const char *name, const void *data, size_t size,
                       struct err *err);

#endif
