/* A parsed JSON value written again, with its NUL characters: cJSON's own printing
 * knows only C strings.
 * Nothing of its form is kept but the order of members. */
#ifndef FORGE_SERVE_JSON_OUT_H
#define FORGE_SERVE_JSON_OUT_H

#include "base/buf.h"
#include "base/json.h"

void json_put(struct buf *out, const cJSON *item);
/* A string as json_parse gives it. */
void json_put_string(struct buf *out, const char *s);

#endif
