/* JSON through cJSON, with its traps closed: whole text only (no trailing
 * bytes), valid UTF-8, bounded depth, case-sensitive keys, lengths instead of
 * C strings.  A "\u0000" escape survives: it is kept as the two bytes C0 80,
 * which valid UTF-8 never holds, and json_str turns it back into a NUL. */
#ifndef FORGE_BASE_JSON_H
#define FORGE_BASE_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cjson/cJSON.h>

#include "base/buf.h"
#include "base/err.h"

#define JSON_DEPTH_MAX 512

/* Parses text; `name` (a file name) starts every error message, which also
 * gives the byte position.  *out is freed with cJSON_Delete; NULL on error. */
int json_parse(cJSON **out, const char *text, size_t len, const char *name, struct err *err);
/* The same for text of at most so many values and names of members, else ERR_LIMIT: each takes about 80 bytes. */
int json_parse_most(cJSON **out, const char *text, size_t len, size_t most, const char *name, struct err *err);
/* Maps, parses and unmaps a file. */
int json_parse_file(cJSON **out, const char *path, struct err *err);

/* Member of an object, or NULL; case-sensitive; `null` values count as absent. */
const cJSON *json_get(const cJSON *obj, const char *key);

/* Typed readers: absent (or null) leaves *out alone and returns 0; present with a wrong
 * type or out of range is ERR_FORMAT with "name: key ..." */
int json_get_i64(const cJSON *obj, const char *key, int64_t min, int64_t max, int64_t *out,
                 const char *name, struct err *err);
int json_get_f64(const cJSON *obj, const char *key, double *out, const char *name, struct err *err);
int json_get_bool(const cJSON *obj, const char *key, bool *out, const char *name, struct err *err);
/* Borrowed C string; a string holding a NUL is an error here. */
int json_get_str(const cJSON *obj, const char *key, const char **out, const char *name, struct err *err);

/* "a string", for messages; NULL is null. */
const char *json_kind(const cJSON *item);

/* Value of a string item with NULs restored, appended to out; false if not a string. */
bool json_str(const cJSON *item, struct buf *out);

#endif
