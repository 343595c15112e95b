/* Read-only file mapping, the few path helpers that loading needs, and the
 * replacing of a small file.
 *
 * A mapped file that others cut short while it is in use ends the process with
 * SIGBUS, as with every mapping: files are replaced by rename, not rewritten. */
#ifndef FORGE_BASE_MAP_H
#define FORGE_BASE_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct map {
    const uint8_t *data; /* page aligned; NULL when size = 0 */
    size_t size;
    char *path;          /* as opened, for messages */
};

/* Opens regular files (through symlinks) and block devices' worth of nothing: a folder, fifo or
 * device is ERR_IO with its kind named.  The mapping outlives the descriptor. */
int map_open(struct map *m, const char *path, struct err *err);
void map_close(struct map *m);

/* Whole content of a file, a pipe or standard input ("-"), at most `limit` bytes (ERR_LIMIT), a NUL
 * behind it; freed with free().  A signal while waiting is ERR_CANCELLED. */
int map_read_all(const char *path, size_t limit, char **data, size_t *len, struct err *err);

bool path_exists(const char *path);
bool path_is_dir(const char *path);
bool path_is_file(const char *path); /* a regular one, also through links: reading it does not wait */
char *path_join(const char *dir, const char *name); /* NULL = memory refused */
char *path_dirname(const char *path);               /* "." when there is none */
const char *path_basename(const char *path);        /* borrowed */
/* Writes the two pieces to a new file beside `path`, which then takes its place: nobody reads half of it, and
 * several processes may do so at once. */
int path_replace(const char *path, const void *head, size_t head_len, const void *rest, size_t rest_len, struct err *err);
/* Sorted names in a folder (without . and ..); freed with path_list_free. */
int path_list(const char *dir, char ***names, size_t *n, struct err *err);
void path_list_free(char **names, size_t n);

#endif
