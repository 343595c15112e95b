/* Members of a JSON body into a struct, by a table of names, types and ranges: a
 * wrong one is told by its name, an unknown one is left alone, null is as if it
 * were not there. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "serve/server.h"

/* Whole numbers with all their digits. */
static const char *spell(double v, char *out, size_t size)
{
    snprintf(out, size, fabs(v) < 1e17 && floor(v) >= v ? "%.0f" : "%.15g", v);
    return out;
}

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
    char given[32], min[32], max[32];
    if (!isfinite(v) || (f->type == FIELD_INT && v - floor(v) > 0))
        return api_fail(e, 400, f->name, "'%s' must be %s, not %s.", f->name, what, spell(v, given, sizeof given));
    if (v < f->min || v > f->max)
        return api_fail(e, 400, f->name, "'%s' is %s; it must be %s to %s.", f->name, spell(v, given, sizeof given),
                        spell(f->min, min, sizeof min), spell(f->max, max, sizeof max));
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
    if (json_parse_most(&body, buf_str(&x->body), x->body.len, VALUES_MAX, "body", &err) < 0) {
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

struct node body_node(const struct exchange *x, const cJSON *body)
{
    return (struct node){body, {buf_str(&x->body), x->body.len}};
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
