/* Members of a JSON body into a struct, by a table of names, types and ranges: a
 * wrong one is told by its name, an unknown one is left alone, null is as if it
 * were not there. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "serve/server.h"

static bool read_one(const struct field *f, const cJSON *item, void *at, struct api_error *e)
{
    if (f->type == FIELD_BOOL) {
        if (!cJSON_IsBool(item))
            return api_fail(e, 400, f->name, "'%s' must be true or false, not %s.", f->name, json_kind(item));
        *(bool *)at = cJSON_IsTrue(item) != 0;
        return true;
    }
    const char *what = f->type == FIELD_INT ? "a whole number" : "a number";
    if (!cJSON_IsNumber(item))
        return api_fail(e, 400, f->name, "'%s' must be %s, not %s.", f->name, what, json_kind(item));
    double v = item->valuedouble;
    if (!isfinite(v) || (f->type == FIELD_INT && v - floor(v) > 0))
        return api_fail(e, 400, f->name, "'%s' must be %s, not %g.", f->name, what, v);
    if (v < f->min || v > f->max)
        return api_fail(e, 400, f->name, f->type == FIELD_INT ? "'%s' is %.0f; it must be %.0f to %.0f." : "'%s' is %.15g; it must be %.15g to %.15g.",
                        f->name, v, f->min, f->max);
    if (f->type == FIELD_INT)
        *(int64_t *)at = (int64_t)v;
    else
        *(double *)at = v;
    return true;
}

bool fields_read(const struct field *table, const cJSON *obj, void *out, struct api_error *e)
{
    for (; table->name; table++) {
        const cJSON *item = json_get(obj, table->name);
        if (item && !read_one(table, item, (unsigned char *)out + table->off, e))
            return false;
    }
    return true;
}

cJSON *fields_body(struct exchange *x, struct api_error *e)
{
    struct err err = {0};
    cJSON *body = NULL;
    if (x->body.failed) {
        api_no_memory(e);
        return NULL;
    }
    if (json_parse(&body, buf_str(&x->body), x->body.len, "body", &err) < 0) {
        api_fail(e, err.code == ERR_NOMEM ? 503 : 400, NULL, "%s", err.msg);
        return NULL;
    }
    if (!cJSON_IsObject(body)) {
        api_fail(e, 400, NULL, "The body must be a JSON object, not %s.", json_kind(body));
        cJSON_Delete(body);
        return NULL;
    }
    return body;
}

bool fields_ids(const cJSON *list, const char *name, int32_t **ids, size_t *n, struct api_error *e)
{
    size_t len = 0;
    for (const cJSON *c = list->child; c; c = c->next)
        len++;
    *n = 0;
    *ids = mem_array(len + 1, sizeof **ids);
    if (!*ids)
        return api_no_memory(e);
    for (const cJSON *c = list->child; c; c = c->next) {
        double v = cJSON_IsNumber(c) ? c->valuedouble : -1;
        if (!(v >= 0 && v <= INT32_MAX) || v - floor(v) > 0)
            return api_fail(e, 400, name, "'%s' has an element, number %zu, that is no token id.", name, *n + 1);
        (*ids)[(*n)++] = (int32_t)v;
    }
    return true;
}
