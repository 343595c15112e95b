/* Makes small model files for the tests of src/file: byte writers, a zip, and
 * the checks "opens" and "is refused with these words".  Knows how to write
 * files, not how they are read. */
#ifndef FORGE_TESTS_FILE_KIT_H
#define FORGE_TESTS_FILE_KIT_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/buf.h"
#include "file/parts.h"
#include "tests/test.h"

#define COUNT(a) (int)(sizeof(a) / sizeof((a)[0]))

/* n bytes of x, little-endian. */
ATTR_UNUSED static void put_le(struct buf *b, uint64_t x, int n)
{
    for (int i = 0; i < n; i++)
        buf_putc(b, (char)(uint8_t)(i < 8 ? x >> (8 * i) : 0));
}

ATTR_UNUSED static void write_file(const char *path, const void *data, size_t len)
{
    FILE *f = fopen(path, "wb");
    ck_assert_msg(f != NULL, "%s", path);
    ck_assert_uint_eq(fwrite(data, 1, len, f), len);
    ck_assert_int_eq(fclose(f), 0);
}

/* A fresh folder below the scratch folder; its path stays valid. */
ATTR_UNUSED static const char *make_folder(const char *name)
{
    static char path[4096];
    snprintf(path, sizeof path, "%s", test_tmp(name));
    ck_assert_int_eq(mkdir(path, 0700), 0);
    return path;
}

ATTR_UNUSED static void write_in(const char *dir, const char *name, const struct buf *b)
{
    char *path = path_join(dir, name);
    ck_assert_ptr_nonnull(path);
    write_file(path, b->data ? b->data : "", b->len);
    free(path);
}

/* Opens bytes that lie in an allocation of their own size. */
ATTR_UNUSED static int open_bytes(struct weights **w, void **copy, const void *data, size_t len,
                                  struct err *err)
{
    *copy = malloc(len ? len : 1);
    ck_assert_ptr_nonnull(*copy);
    if (len)
        memcpy(*copy, data, len);
    err_clear(err);
    return weights_open_bytes(w, "input", *copy, len, err);
}

/* word = NULL: opens; else refused, with the name and the word in the message.
 * The weights are returned when they open (then *copy is freed after them). */
ATTR_UNUSED static struct weights *check_bytes(const struct buf *b, const char *word, const char *what,
                                               void **copy)
{
    struct weights *w = NULL;
    struct err err;
    int rc = open_bytes(&w, copy, b->data, b->len, &err);
    if (!word) {
        ck_assert_msg(rc == 0, "%s: %s", what, err.msg);
        return w;
    }
    ck_assert_msg(rc < 0 && !w, "%s: was not refused", what);
    ck_assert_msg(rc == err.code, "%s: returned %d, err has %d", what, rc, err.code);
    ck_assert_msg(strncmp(err.msg, "input: ", 7) == 0, "%s: no file named: %s", what, err.msg);
    ck_assert_msg(strncmp(err.msg, "input: input", 12) != 0, "%s: named twice: %s", what, err.msg);
    ck_assert_msg(strstr(err.msg, word) != NULL, "%s: no \"%s\" in: %s", what, word, err.msg);
    free(*copy);
    *copy = NULL;
    return NULL;
}

/* As above for a path: every word (separated by '|') must be in the message. */
ATTR_UNUSED static void check_refused(const char *path, const char *words)
{
    struct weights *w = NULL;
    struct err err;
    err_clear(&err);
    int rc = weights_open(&w, path, &err);
    ck_assert_msg(rc < 0 && !w, "%s: was not refused", path);
    ck_assert_msg(rc == err.code, "%s: returned %d, err has %d", path, rc, err.code);
    char list[512], *save = NULL;
    snprintf(list, sizeof list, "%s", words);
    for (char *s = strtok_r(list, "|", &save); s; s = strtok_r(NULL, "|", &save))
        ck_assert_msg(strstr(err.msg, s) != NULL, "no \"%s\" in: %s", s, err.msg);
    struct weights *none = NULL;
    ck_assert_int_eq(weights_open(&none, path, NULL), rc); /* the sentence is optional */
}

ATTR_UNUSED static struct weights *open_ok(const char *path)
{
    struct weights *w = NULL;
    struct err err;
    err_clear(&err);
    ck_assert_msg(weights_open(&w, path, &err) == 0, "%s", err.msg);
    return w;
}

/* ---- safetensors ---- */

ATTR_UNUSED static void put_safetensors(struct buf *b, const char *header, size_t n_data)
{
    put_le(b, strlen(header), 8);
    buf_puts(b, header);
    for (size_t i = 0; i < n_data; i++)
        buf_putc(b, (char)(i & 0x3f));
}

/* ---- zip ---- */

struct zip_file {
    const char *name;
    const char *data;
    size_t len;
    unsigned method;
};

enum { ZIP_PLAIN = 0, ZIP_64 = 1, ZIP_DESCRIPTORS = 2, ZIP_COMMENT = 4 };

ATTR_UNUSED static void put_local(struct buf *b, const struct zip_file *f, unsigned flags)
{
    bool descriptor = flags & ZIP_DESCRIPTORS, wide = flags & ZIP_64;
    put_le(b, 0x04034b50, 4);
    put_le(b, 45, 2);
    put_le(b, descriptor ? 8 : 0, 2);
    put_le(b, f->method, 2);
    put_le(b, 0, 8); /* time, date, checksum */
    put_le(b, wide ? UINT32_MAX : descriptor ? 0 : f->len, 4);
    put_le(b, wide ? UINT32_MAX : descriptor ? 0 : f->len, 4);
    put_le(b, strlen(f->name), 2);
    put_le(b, 9, 2); /* padding that the directory does not have */
    buf_puts(b, f->name);
    put_le(b, 0x4246, 2);
    put_le(b, 5, 2);
    buf_put(b, "ZZZZZ", 5);
    buf_put(b, f->data, f->len);
    if (descriptor) {
        put_le(b, 0x08074b50, 4);
        put_le(b, 0, 4);
        put_le(b, f->len, 4);
        put_le(b, f->len, 4);
    }
}

ATTR_UNUSED static void put_central(struct buf *b, const struct zip_file *f, unsigned flags, size_t at)
{
    bool wide = flags & ZIP_64;
    put_le(b, 0x02014b50, 4);
    put_le(b, 45, 2);
    put_le(b, 45, 2);
    put_le(b, flags & ZIP_DESCRIPTORS ? 8 : 0, 2);
    put_le(b, f->method, 2);
    put_le(b, 0, 8);
    put_le(b, wide ? UINT32_MAX : f->len, 4);
    put_le(b, wide ? UINT32_MAX : f->len, 4);
    put_le(b, strlen(f->name), 2);
    put_le(b, wide ? 34 : 0, 2);
    put_le(b, 0, 10); /* comment, disk, attributes */
    put_le(b, wide ? UINT32_MAX : at, 4);
    buf_puts(b, f->name);
    if (wide) { /* a foreign field first, then the three 64-bit values */
        put_le(b, 0x7777, 2);
        put_le(b, 2, 2);
        put_le(b, 0, 2);
        put_le(b, 1, 2);
        put_le(b, 24, 2);
        put_le(b, f->len, 8);
        put_le(b, f->len, 8);
        put_le(b, at, 8);
    }
}

ATTR_UNUSED static void put_zip(struct buf *b, const struct zip_file *files, size_t n, unsigned flags)
{
    size_t at[16];
    ck_assert_uint_le(n, 16);
    for (size_t i = 0; i < n; i++) {
        at[i] = b->len;
        put_local(b, &files[i], flags);
    }
    size_t dir = b->len;
    for (size_t i = 0; i < n; i++)
        put_central(b, &files[i], flags, at[i]);
    size_t end = b->len;
    if (flags & ZIP_64) {
        put_le(b, 0x06064b50, 4);
        put_le(b, 44, 8);
        put_le(b, 45, 4);
        put_le(b, 0, 8);
        put_le(b, n, 8);
        put_le(b, n, 8);
        put_le(b, end - dir, 8);
        put_le(b, dir, 8);
        put_le(b, 0x07064b50, 4);
        put_le(b, 0, 4);
        put_le(b, end, 8);
        put_le(b, 1, 4);
    }
    bool wide = flags & ZIP_64;
    put_le(b, 0x06054b50, 4);
    put_le(b, 0, 4);
    put_le(b, wide ? UINT16_MAX : n, 2);
    put_le(b, wide ? UINT16_MAX : n, 2);
    put_le(b, wide ? UINT32_MAX : end - dir, 4);
    put_le(b, wide ? UINT32_MAX : dir, 4);
    put_le(b, flags & ZIP_COMMENT ? 7 : 0, 2);
    buf_puts(b, flags & ZIP_COMMENT ? "comment" : "");
}

#endif
