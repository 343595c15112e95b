/* Whether a JSON value is valid by a schema, for the keywords whose meaning is
 * short to say: an opinion on what the library's grammars let through that
 * shares nothing with them but cJSON. */
#ifndef FORGE_TESTS_SCHEMA_KIT_H
#define FORGE_TESTS_SCHEMA_KIT_H

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"

static inline const cJSON *kit_get(const cJSON *o, const char *key)
{
    return cJSON_IsObject(o) ? cJSON_GetObjectItemCaseSensitive(o, key) : NULL;
}

static inline bool kit_is(const cJSON *v, const char *type)
{
    return (strcmp(type, "null") == 0 && cJSON_IsNull(v)) || (strcmp(type, "boolean") == 0 && cJSON_IsBool(v)) ||
           (strcmp(type, "object") == 0 && cJSON_IsObject(v)) || (strcmp(type, "array") == 0 && cJSON_IsArray(v)) ||
           (strcmp(type, "string") == 0 && cJSON_IsString(v)) || (strcmp(type, "number") == 0 && cJSON_IsNumber(v)) ||
           (strcmp(type, "integer") == 0 && cJSON_IsNumber(v) && fabs(v->valuedouble - floor(v->valuedouble)) <= 0);
}

static inline size_t kit_chars(const char *s)
{
    size_t n = 0;
    for (; *s; s++)
        n += ((unsigned char)*s & 0xC0) != 0x80;
    return n;
}

/* A number, or `missing`. */
static inline double kit_number(const cJSON *schema, const char *key, double missing)
{
    const cJSON *v = kit_get(schema, key);
    return v ? v->valuedouble : missing;
}

static inline const cJSON *kit_resolve(const cJSON *root, const char *ref)
{
    char name[64];
    const cJSON *at = root;
    for (ref++; at && *ref; ref += strcspn(ref, "/")) {
        ref++;
        snprintf(name, sizeof name, "%.*s", (int)strcspn(ref, "/"), ref);
        at = kit_get(at, name);
    }
    return at;
}

static inline bool kit_valid(const cJSON *root, const cJSON *schema, const cJSON *v);

static inline bool kit_object(const cJSON *root, const cJSON *schema, const cJSON *v)
{
    const cJSON *properties = kit_get(schema, "properties"), *others = kit_get(schema, "additionalProperties"), *c;
    cJSON_ArrayForEach(c, kit_get(schema, "required"))
        if (!kit_get(v, c->valuestring))
            return false;
    cJSON_ArrayForEach(c, v)
    {
        const cJSON *own = kit_get(properties, c->string);
        if (own ? !kit_valid(root, own, c) : others && !kit_valid(root, others, c))
            return false;
    }
    return true;
}

static inline bool kit_array(const cJSON *root, const cJSON *schema, const cJSON *v)
{
    const cJSON *items = kit_get(schema, "items"), *c;
    int n = cJSON_GetArraySize(v);
    if (n < kit_number(schema, "minItems", 0) || n > kit_number(schema, "maxItems", INFINITY))
        return false;
    if (items)
        cJSON_ArrayForEach(c, v)
            if (!kit_valid(root, items, c))
                return false;
    return true;
}

static inline bool kit_typed(const cJSON *root, const cJSON *schema, const cJSON *v)
{
    if (cJSON_IsObject(v))
        return kit_object(root, schema, v);
    if (cJSON_IsArray(v))
        return kit_array(root, schema, v);
    if (cJSON_IsString(v)) {
        double n = (double)kit_chars(v->valuestring);
        return n >= kit_number(schema, "minLength", 0) && n <= kit_number(schema, "maxLength", INFINITY);
    }
    if (cJSON_IsNumber(v)) {
        double x = v->valuedouble;
        return isfinite(x) && x >= kit_number(schema, "minimum", -INFINITY) && x <= kit_number(schema, "maximum", INFINITY) &&
               x > kit_number(schema, "exclusiveMinimum", -INFINITY) && x < kit_number(schema, "exclusiveMaximum", INFINITY);
    }
    return true;
}

static inline bool kit_one_of(const cJSON *list, const cJSON *v)
{
    const cJSON *c;
    cJSON_ArrayForEach(c, list)
        if (cJSON_Compare(c, v, true))
            return true;
    return false;
}

static inline bool kit_valid(const cJSON *root, const cJSON *schema, const cJSON *v)
{
    const cJSON *type = kit_get(schema, "type"), *c;
    if (cJSON_IsBool(schema))
        return cJSON_IsTrue(schema);
    if (kit_get(schema, "$ref") && !kit_valid(root, kit_resolve(root, kit_get(schema, "$ref")->valuestring), v))
        return false;
    if (cJSON_IsString(type) && !kit_is(v, type->valuestring))
        return false;
    bool any = !cJSON_IsArray(type);
    if (!any)
        cJSON_ArrayForEach(c, type)
            any = any || kit_is(v, c->valuestring);
    if (!any || (kit_get(schema, "enum") && !kit_one_of(kit_get(schema, "enum"), v)) ||
        (kit_get(schema, "const") && !cJSON_Compare(kit_get(schema, "const"), v, true)))
        return false;
    any = !kit_get(schema, "anyOf");
    cJSON_ArrayForEach(c, kit_get(schema, "anyOf"))
        any = any || kit_valid(root, c, v);
    return any && kit_typed(root, schema, v);
}

#endif
