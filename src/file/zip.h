/* A zip archive as torch.save writes it: entries that lie uncompressed in the
 * mapping.  Read from the central directory (data descriptors and padded local
 * headers are no matter), ZIP64 included.  Knows nothing of PyTorch. */
#ifndef FORGE_FILE_ZIP_H
#define FORGE_FILE_ZIP_H

#include "base/err.h"
#include "base/hash.h"

struct zip_entry {
    const char *name; /* in the mapping, not terminated */
    size_t name_len;
    unsigned method; /* 0 = stored */
    uint64_t size;   /* uncompressed */
    uint64_t header; /* offset of the local header */
};

struct zip {
    const uint8_t *data;
    size_t size;
    struct zip_entry *entries; /* in the directory's order */
    size_t n;
    struct strmap by_name;
};

/* Entries themselves are checked when asked for.  zip_close is safe after a failure. */
int zip_open(struct zip *z, const uint8_t *data, size_t size, struct err *err);
void zip_close(struct zip *z);
const struct zip_entry *zip_find(const struct zip *z, const char *name, size_t len);
/* The bytes of a stored entry (e->size of them), checked against the file. */
int zip_data(const struct zip *z, const struct zip_entry *e, const uint8_t **out, struct err *err);

#endif
