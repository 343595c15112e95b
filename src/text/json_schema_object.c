/* Objects and arrays of a JSON text.
 *
 * An object's listed properties come in their order; whether one came before
 * decides about the comma, so that each place is there twice: `none` and `some`. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "text/json_schema_parts.h"

#define NAME_MOST 1024 /* bytes of a property's name */

struct property {
    struct schema_name name; /* as cJSON keeps it */
    const cJSON *schema;     /* NULL = any value */
    bool required, any;
};

struct properties {
    struct property *v;
    size_t n, cap;
    struct strmap at; /* name -> number */
};

static struct property *find(const struct properties *p, const char *name)
{
    uint32_t i;
    return strmap_find(&p->at, name, strlen(name), &i) ? &p->v[i] : NULL;
}

/* A name that is there already has the last one's schema, as in JSON's objects. */
static bool add(struct schema *s, struct properties *p, const char *name, const cJSON *schema)
{
    size_t len = strlen(name);
    struct property *old = find(p, name);
    if (old) {
        old->schema = schema;
        return true;
    }
    if (len > NAME_MOST || strchr(name, '\xC0')) {
        schema_fail(s, ERR_ARG, "a property's name has more than %d bytes, or a NUL character", NAME_MOST);
        return false;
    }
    struct property *v = mem_grow(p->v, &p->cap, p->n + 1, sizeof *v);
    p->v = v ? v : p->v;
    if (!v || strmap_add(&p->at, name, len, (uint32_t)p->n) < 0) {
        schema_fail(s, ERR_NOMEM, "no memory for properties");
        return false;
    }
    v[p->n++] = (struct property){.name = {name, len}, .schema = schema};
    return true;
}

/* Those that are required and not listed are as the other ones are. */
static void read_properties(struct schema *s, const cJSON *node, struct properties *p, const cJSON *others, bool has_others)
{
    const cJSON *listed = schema_member(node, "properties"), *required = schema_member(node, "required");
    if (listed && !cJSON_IsObject(listed))
        schema_fail(s, ERR_ARG, "properties must be an object");
    for (const cJSON *c = listed && s->b.rc == 0 ? listed->child : NULL; c; c = c->next)
        if (!add(s, p, c->string, c))
            return;
    if (required && !cJSON_IsArray(required))
        schema_fail(s, ERR_ARG, "required must be a list of names");
    for (const cJSON *c = required && s->b.rc == 0 ? required->child : NULL; c; c = c->next) {
        if (!cJSON_IsString(c)) {
            schema_fail(s, ERR_ARG, "required must be a list of names");
            return;
        }
        struct property *known = find(p, c->valuestring);
        if (!known && !has_others)
            schema_fail(s, ERR_ARG, "required names \"%.200s\", which is no property, and there are no others", c->valuestring);
        if (s->b.rc || (!known && !add(s, p, c->valuestring, others)))
            return;
        known = find(p, c->valuestring);
        known->required = true;
        known->any = known->any || known->schema == others;
    }
}

static int by_name(const void *x, const void *y)
{
    const struct schema_name *a = x, *b = y;
    int d = memcmp(a->s, b->s, a->len < b->len ? a->len : b->len);
    return d ? d : a->len < b->len ? -1 : a->len > b->len;
}

/* The rule of a value that no property is listed for. */
static uint32_t other_rule(struct schema *s, const cJSON *node, int depth, const cJSON *others)
{
    if (!node)
        return schema_rule(s, NULL, depth + 1, "", NULL);
    return others ? schema_rule(s, others, depth, "additionalProperties", NULL) : schema_rule(s, NULL, 0, "", NULL);
}

/* `:`, space, value. */
static uint32_t colon(struct schema *s, uint32_t rule, uint32_t next)
{
    return gram_str(&s->b, ":", gram_call(&s->b, s->space, gram_call(&s->b, rule, next)));
}

static uint32_t comma(struct schema *s, uint32_t next)
{
    return gram_str(&s->b, ",", gram_call(&s->b, s->space, next));
}

static uint32_t property(struct schema *s, const struct property *p, uint32_t rule, uint32_t next)
{
    struct buf name;
    buf_init(&name);
    buf_put_json(&name, p->name.s, p->name.len);
    uint32_t out = name.failed ? schema_fail(s, ERR_NOMEM, "no memory for a property")
                               : gram_bytes(&s->b, buf_str(&name), name.len, colon(s, rule, next));
    buf_fini(&name);
    return out;
}

/* Any number of others, then the end. */
static void other_members(struct schema *s, const struct properties *p, uint32_t rule, uint32_t end, uint32_t *none, uint32_t *some)
{
    struct gram_build *b = &s->b;
    struct schema_name *names = mem_array(p->n, sizeof *names);
    if (!names) {
        schema_fail(s, ERR_NOMEM, "no memory for properties");
        return;
    }
    for (size_t i = 0; i < p->n; i++)
        names[i] = p->v[i].name;
    if (p->n > 1)
        qsort(names, p->n, sizeof *names, by_name);
    uint32_t loop = gram_hole(b), one = schema_other_name(s, names, p->n, colon(s, rule, loop));
    gram_fill(b, loop, comma(s, one), *some);
    *some = loop;
    *none = gram_or(b, one, end);
    free(names);
}

uint32_t schema_object(struct schema *s, const cJSON *node, int depth, uint32_t next)
{
    struct gram_build *b = &s->b;
    struct properties p = {0};
    const cJSON *others = schema_member(node, "additionalProperties");
    bool has_others = others ? !cJSON_IsFalse(others) : !schema_member(node, "properties");
    if (others && !cJSON_IsBool(others) && !cJSON_IsObject(others))
        return schema_fail(s, ERR_ARG, "additionalProperties must be a schema, true or false");
    strmap_init(&p.at);
    read_properties(s, node, &p, others, others ? has_others : !cJSON_IsFalse(others));
    uint32_t none = gram_str(b, "}", next), some = gram_call(b, s->space, none);
    if (has_others && s->b.rc == 0)
        other_members(s, &p, other_rule(s, node, depth, others), none, &none, &some);
    for (size_t i = p.n; i-- > 0 && s->b.rc == 0;) {
        const struct property *at = &p.v[i];
        uint32_t rule = at->any ? other_rule(s, node, depth, others) : schema_rule(s, at->schema, depth, "properties", at->name.s);
        uint32_t one = property(s, at, rule, some), more = comma(s, one);
        none = at->required ? one : gram_or(b, one, none);
        some = at->required ? more : gram_or(b, more, some);
    }
    strmap_fini(&p.at);
    free(p.v);
    return gram_str(b, "{", gram_call(b, s->space, none));
}

uint32_t schema_array(struct schema *s, const cJSON *node, int depth, uint32_t next)
{
    struct gram_build *b = &s->b;
    const cJSON *items = schema_member(node, "items");
    uint32_t min = schema_count(s, node, "minItems", 0), max = schema_count(s, node, "maxItems", GRAM_MANY);
    if (items && !cJSON_IsObject(items) && !cJSON_IsBool(items))
        return schema_fail(s, ERR_ARG, "items must be one schema");
    if (min > max)
        return GRAM_AT_FAIL;
    uint32_t rule = items ? schema_rule(s, items, depth, "items", NULL) : schema_rule(s, NULL, node ? 0 : depth + 1, "", NULL);
    uint32_t end = gram_str(b, "]", next), out = min == 0 ? end : GRAM_AT_FAIL;
    if (max > 0) {
        uint32_t more = gram_rule(b);
        gram_define(b, more, comma(s, gram_call(b, rule, GRAM_AT_END)));
        uint32_t rest = gram_repeat(b, more, min > 0 ? min - 1 : 0, max == GRAM_MANY ? max : max - 1, gram_call(b, s->space, end));
        out = gram_or(b, gram_call(b, rule, rest), out);
    }
    return gram_str(b, "[", gram_call(b, s->space, out));
}
