/* Zip: end record, ZIP64 records, central directory, local headers (PKWARE's
 * APPNOTE 4.3).  Every offset is checked; compressed or encrypted entries are
 * listed but refused when their bytes are asked for.  Checksums are not
 * verified: that would read every weight. */
#include "file/zip.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "file/le.h"
#include "file/parts.h"

#define END_SIZE 22
#define LOCATOR_SIZE 20
#define END64_SIZE 56
#define CENTRAL_SIZE 46
#define LOCAL_SIZE 30

struct directory {
    uint64_t at, size, n;
};

static bool is_record(const uint8_t *p, char a, char b)
{
    return p[0] == 'P' && p[1] == 'K' && p[2] == (uint8_t)a && p[3] == (uint8_t)b;
}

/* The ZIP64 end record, when a locator stands before the end record. */
static int read_end64(const struct zip *z, size_t end, struct directory *d, struct err *err)
{
    if (end < LOCATOR_SIZE || !is_record(z->data + end - LOCATOR_SIZE, 6, 7))
        return 0;
    uint64_t at = le64(z->data + end - LOCATOR_SIZE + 8);
    if (at > end || end - at < END64_SIZE || !is_record(z->data + at, 6, 6))
        return err_set(err, ERR_FORMAT,
                       "archive: no ZIP64 end record at %" PRIu64 ", where its locator points", at);
    const uint8_t *p = z->data + at;
    *d = (struct directory){.n = le64(p + 32), .size = le64(p + 40), .at = le64(p + 48)};
    return 0;
}

static int find_directory(const struct zip *z, struct directory *d, struct err *err)
{
    if (z->size < END_SIZE)
        return err_set(err, ERR_FORMAT, "archive: truncated: %zu bytes are too few for a zip", z->size);
    size_t end = z->size - END_SIZE, lowest = end > UINT16_MAX ? end - UINT16_MAX : 0;
    while (!is_record(z->data + end, 5, 6) ||
           le16(z->data + end + 20) > z->size - END_SIZE - end) {
        if (end == lowest)
            return err_set(err, ERR_FORMAT,
                           "archive: truncated: no end-of-directory record (the file has %zu bytes)",
                           z->size);
        end--;
    }
    const uint8_t *p = z->data + end;
    *d = (struct directory){.n = le16(p + 10), .size = le32(p + 12), .at = le32(p + 16)};
    int rc = read_end64(z, end, d, err);
    if (rc < 0)
        return rc;
    if (d->at > end || d->size > end - d->at)
        return err_set(err, ERR_FORMAT,
                       "archive: central directory of %" PRIu64 " bytes at %" PRIu64
                       " does not fit the file of %zu bytes",
                       d->size, d->at, z->size);
    if (d->n > d->size / CENTRAL_SIZE)
        return err_set(err, ERR_FORMAT,
                       "archive: %" PRIu64 " entries do not fit a central directory of %" PRIu64 " bytes",
                       d->n, d->size);
    return 0;
}

/* ZIP64 extra field: 64-bit values for those of the record that are all ones. */
static bool read_extra64(const uint8_t *p, size_t len, uint64_t *values[3])
{
    while (len >= 4) {
        size_t id = le16(p), n = le16(p + 2);
        if (n > len - 4)
            return false;
        if (id == 1) {
            p += 4;
            for (int i = 0; i < 3; i++) {
                if (*values[i] != UINT32_MAX)
                    continue;
                if (n < 8)
                    return false;
                *values[i] = le64(p);
                p += 8;
                n -= 8;
            }
            return true;
        }
        p += 4 + n;
        len -= 4 + n;
    }
    return true;
}

/* One record of the central directory; *len is its whole length. */
static int read_entry(struct zip_entry *e, const uint8_t *p, size_t left, size_t i, size_t *len,
                      struct err *err)
{
    if (left < CENTRAL_SIZE || !is_record(p, 1, 2))
        return err_set(err, ERR_FORMAT, "archive: entry %zu: no central directory record", i);
    size_t name = le16(p + 28), extra = le16(p + 30), comment = le16(p + 32);
    *len = CENTRAL_SIZE + name + extra + comment;
    if (*len > left)
        return err_set(err, ERR_FORMAT, "archive: entry %zu is longer than the central directory", i);
    uint64_t packed = le32(p + 20);
    e->name = (const char *)p + CENTRAL_SIZE;
    e->name_len = name;
    e->method = le16(p + 10);
    e->size = le32(p + 24);
    e->header = le32(p + 42);
    uint64_t *values[3] = {&e->size, &packed, &e->header};
    if (!read_extra64(p + CENTRAL_SIZE + name, extra, values))
        return err_set(err, ERR_FORMAT, "archive: entry " NAME_FMT ": malformed ZIP64 field",
                       NAME_ARG(e->name, name));
    if (le16(p + 8) & 1)
        return err_set(err, ERR_UNSUPPORTED, "archive: entry " NAME_FMT " is encrypted",
                       NAME_ARG(e->name, name));
    if (e->method == 0 && packed != e->size)
        return err_set(err, ERR_FORMAT,
                       "archive: stored entry " NAME_FMT ": sizes %" PRIu64 " and %" PRIu64 " differ",
                       NAME_ARG(e->name, name), packed, e->size);
    return 0;
}

int zip_open(struct zip *z, const uint8_t *data, size_t size, struct err *err)
{
    *z = (struct zip){.data = data, .size = size};
    strmap_init(&z->by_name);
    struct directory d = {0};
    int rc = find_directory(z, &d, err);
    if (rc < 0)
        return rc;
    z->entries = mem_array((size_t)d.n, sizeof(*z->entries));
    if (!z->entries || !strmap_reserve(&z->by_name, (size_t)d.n))
        return err_set(err, ERR_NOMEM, "no memory for %" PRIu64 " archive entries", d.n);
    const uint8_t *p = data + d.at;
    size_t left = (size_t)d.size;
    for (; z->n < d.n; z->n++) {
        size_t len = 0;
        struct zip_entry *e = &z->entries[z->n];
        rc = read_entry(e, p, left, z->n, &len, err);
        if (rc < 0)
            return rc;
        int added = strmap_add(&z->by_name, e->name, e->name_len, (uint32_t)z->n);
        if (added <= 0)
            return added < 0 ? err_set(err, ERR_NOMEM, "no memory for the archive's entries")
                             : err_set(err, ERR_FORMAT, "archive: duplicate entry " NAME_FMT,
                                       NAME_ARG(e->name, e->name_len));
        p += len;
        left -= len;
    }
    return 0;
}

void zip_close(struct zip *z)
{
    strmap_fini(&z->by_name);
    free(z->entries);
    z->entries = NULL;
    z->n = 0;
}

const struct zip_entry *zip_find(const struct zip *z, const char *name, size_t len)
{
    uint32_t i = 0;
    return strmap_find(&z->by_name, name, len, &i) ? &z->entries[i] : NULL;
}

int zip_data(const struct zip *z, const struct zip_entry *e, const uint8_t **out, struct err *err)
{
    if (e->method != 0)
        return err_set(err, ERR_UNSUPPORTED,
                       "archive: entry " NAME_FMT " is compressed (method %u); re-save the file with "
                       "torch.save, which stores",
                       NAME_ARG(e->name, e->name_len), e->method);
    if (e->header > z->size || z->size - e->header < LOCAL_SIZE ||
        !is_record(z->data + e->header, 3, 4))
        return err_set(err, ERR_FORMAT, "archive: entry " NAME_FMT ": no local header at %" PRIu64,
                       NAME_ARG(e->name, e->name_len), e->header);
    /* The name and padding here may be longer or shorter than in the directory. */
    const uint8_t *p = z->data + e->header;
    size_t skip = LOCAL_SIZE + (size_t)le16(p + 26) + le16(p + 28), left = z->size - (size_t)e->header;
    if (skip > left || e->size > left - skip)
        return err_set(err, ERR_FORMAT,
                       "truncated: archive entry " NAME_FMT " needs %" PRIu64
                       " bytes from %" PRIu64 ", the file has %zu",
                       NAME_ARG(e->name, e->name_len), e->size, e->header + skip, z->size);
    *out = p + skip;
    return 0;
}
