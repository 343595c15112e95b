/* Small readers over json.h for tokenizer files: the type of a part, members as
 * bytes with their NULs, walks over lists.  Each failure names the file and
 * the field. */
#ifndef FORGE_TEXT_JSON_UTIL_H
#define FORGE_TEXT_JSON_UTIL_H

#include <stddef.h>

#include "base/json.h"

/* The "type" of a part; NULL with an error where there is none. */
const char *json_type(const cJSON *j, const char *what, const char *name, struct err *err);
/* Member `key` as bytes, NULs kept, into out (cleared); absent = empty, *present says which. */
int json_bytes(const cJSON *j, const char *key, struct buf *out, bool *present, const char *name,
               struct err *err);
/* The key of a member, or any string of cJSON's, with NULs restored; out is cleared first. */
void json_raw(const char *s, struct buf *out);
/* Calls fn on each member of the array `key`. */
typedef int json_each_fn(void *user, const cJSON *item, const char *name, struct err *err);
int json_each(const cJSON *j, const char *key, json_each_fn *fn, void *user, const char *name,
              struct err *err);

#endif
