/* Readers shared by the parsers of tokenizer files, over base/json.h.
 * Owns the wording of "has no type", "is no list" and the like; knows no field by name
 * but "type". */
#include "text/json_util.h"

#include <string.h>

const char *json_type(const cJSON *j, const char *what, const char *name, struct err *err)
{
    const char *type = NULL;
    if (!cJSON_IsObject(j)) {
        err_set(err, ERR_FORMAT, "%s: %s is no object", name, what);
        return NULL;
    }
    if (json_get_str(j, "type", &type, name, err))
        return NULL;
    if (!type)
        err_set(err, ERR_FORMAT, "%s: %s has no type", name, what);
    return type;
}

int json_bytes(const cJSON *j, const char *key, struct buf *out, bool *present, const char *name,
               struct err *err)
{
    const cJSON *item = json_get(j, key);
    buf_clear(out);
    if (present)
        *present = item != NULL;
    if (!item)
        return 0;
    if (!json_str(item, out))
        return err_set(err, ERR_FORMAT, "%s: %s is no string", name, key);
    return out->failed ? err_set(err, ERR_NOMEM, "%s: no memory for %s", name, key) : 0;
}

void json_raw(const char *s, struct buf *out)
{
    buf_clear(out);
    for (const char *nul; (nul = strstr(s, "\xC0\x80")) != NULL; s = nul + 2) {
        buf_put(out, s, (size_t)(nul - s));
        buf_putc(out, '\0');
    }
    buf_puts(out, s);
}

int json_each(const cJSON *j, const char *key, json_each_fn *fn, void *user, const char *name,
              struct err *err)
{
    const cJSON *list = json_get(j, key), *item;
    if (!cJSON_IsArray(list))
        return err_set(err, ERR_FORMAT, "%s: %s is no list", name, key);
    int rc = 0;
    for (item = list->child; item && !rc; item = item->next)
        rc = fn(user, item, name, err);
    return rc;
}
