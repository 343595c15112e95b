/* Values inside JSON text as they are spelled there: cJSON keeps a number as a double, which tells whole numbers apart
 * up to 2^53 only.
 * Meant for text that json_parse accepts; of any other, some part comes out that lies within it. */
#ifndef FORGE_BASE_JSON_RAW_H
#define FORGE_BASE_JSON_RAW_H

#include <stdbool.h>
#include <stddef.h>

#include "base/json.h"

struct raw {
    const char *s;
    size_t len;
};

/* The end of the value that begins at `at`. */
size_t raw_value_end(struct raw r, size_t at);
/* The next element of a list, or the next member's value of an object; *at is 0 before the first; false = there are no
 * more. */
bool raw_next_element(struct raw list, size_t *at, struct raw *out);
bool raw_next_member(struct raw obj, size_t *at, struct raw *out);
/* The member of that name, the last of several.  o: what json_parse made of obj. */
bool raw_member(struct raw obj, const cJSON *o, const char *name, struct raw *out);
bool raw_is_null(struct raw v);

#endif
