/* The keywords of a schema: which there are, which hold together, types, $ref,
 * anyOf, fixed values.  What a type's values look like is told by the other files
 * of json_schema. */
#include "text/json_schema.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "text/json_schema_parts.h"

enum { TYPE_NULL = 1, TYPE_BOOL = 2, TYPE_OBJECT = 4, TYPE_ARRAY = 8, TYPE_NUMBER = 16, TYPE_STRING = 32, TYPE_INTEGER = 64 };
enum { TYPE_ANY = TYPE_NULL | TYPE_BOOL | TYPE_OBJECT | TYPE_ARRAY | TYPE_NUMBER | TYPE_STRING };

static const struct { const char *name; int type; } types[] = {
    {"null", TYPE_NULL},     {"boolean", TYPE_BOOL},  {"object", TYPE_OBJECT},   {"array", TYPE_ARRAY},
    {"number", TYPE_NUMBER}, {"string", TYPE_STRING}, {"integer", TYPE_INTEGER},
};

/* What a keyword does to the others: `alone` holds with annotations only, FIXED also with `type`. */
enum keyword_kind { KEY_NOTE, KEY_TYPE, KEY_FIXED, KEY_ALONE, KEY_OF_TYPE };
static const struct keyword { const char *name; enum keyword_kind kind; int of; } keywords[] = {
    {"title", KEY_NOTE, 0},      {"description", KEY_NOTE, 0}, {"default", KEY_NOTE, 0},     {"examples", KEY_NOTE, 0},
    {"format", KEY_NOTE, 0},     {"deprecated", KEY_NOTE, 0},  {"readOnly", KEY_NOTE, 0},    {"writeOnly", KEY_NOTE, 0},
    {"$schema", KEY_NOTE, 0},    {"$comment", KEY_NOTE, 0},    {"$defs", KEY_NOTE, 0},       {"definitions", KEY_NOTE, 0},
    {"type", KEY_TYPE, 0},       {"enum", KEY_FIXED, 0},       {"const", KEY_FIXED, 0},      {"anyOf", KEY_ALONE, 0},
    {"$ref", KEY_ALONE, 0},      {"properties", KEY_OF_TYPE, TYPE_OBJECT}, {"required", KEY_OF_TYPE, TYPE_OBJECT},
    {"additionalProperties", KEY_OF_TYPE, TYPE_OBJECT},        {"items", KEY_OF_TYPE, TYPE_ARRAY},
    {"minItems", KEY_OF_TYPE, TYPE_ARRAY}, {"maxItems", KEY_OF_TYPE, TYPE_ARRAY}, {"minLength", KEY_OF_TYPE, TYPE_STRING},
    {"maxLength", KEY_OF_TYPE, TYPE_STRING}, {"pattern", KEY_OF_TYPE, TYPE_STRING}, {"minimum", KEY_OF_TYPE, TYPE_NUMBER},
    {"maximum", KEY_OF_TYPE, TYPE_NUMBER}, {"exclusiveMinimum", KEY_OF_TYPE, TYPE_NUMBER},
    {"exclusiveMaximum", KEY_OF_TYPE, TYPE_NUMBER},
};

uint32_t schema_fail(struct schema *s, int code, const char *fmt, ...)
{
    char what[512];
    va_list args;
    va_start(args, fmt);
    vsnprintf(what, sizeof what, fmt, args);
    va_end(args);
    if (s->b.rc == 0)
        s->b.rc = err_set(s->b.err, code, "%s: %s", s->path, what);
    return GRAM_AT_FAIL;
}

/* A schema with an $id is a resource of its own: #/$defs/NAME in it begins there. */
static const char *own_id(struct schema *s, const cJSON *node)
{
    const cJSON *id = schema_member(node, "$id");
    for (const cJSON *c = cJSON_IsObject(node) ? node->child : NULL; c; c = c->next)
        s->looked++;
    return cJSON_IsString(id) && id->valuestring[0] != '#' ? id->valuestring : NULL;
}

static char *join_path(struct schema *s, const char *name, const char *more)
{
    const size_t most = 300; /* bytes; the rest is not told */
    size_t size = strlen(s->path) + strlen(name) + (more ? strlen(more) : 0) + 3;
    char *out = mem_array(size, 1);
    if (!out)
        schema_fail(s, ERR_NOMEM, "no memory for a schema");
    else if (strlen(s->path) < most)
        snprintf(out, size, more ? "%s/%s/%s" : "%s/%s", s->path, name, more);
    else
        snprintf(out, size, "%s", s->path);
    return out;
}

static char *id_path(struct schema *s, const char *id)
{
    char path[128];
    snprintf(path, sizeof path, "json_schema: %.100s#", id);
    char *out = mem_strdup(path);
    if (!out)
        schema_fail(s, ERR_NOMEM, "no memory for a schema");
    return out;
}

uint32_t schema_rule(struct schema *s, const cJSON *node, int depth, const char *name, const char *more)
{
    uint64_t key = (uint64_t)(uintptr_t)node * 64 + (uint64_t)depth, known;
    if (s->b.rc)
        return 0;
    if (u64map_find(&s->known, key, &known))
        return (uint32_t)known;
    struct schema_job *job = mem_grow(s->job, &s->cap_job, s->n_job + 1, sizeof *job);
    s->job = job ? job : s->job;
    uint32_t rule = gram_rule(&s->b);
    const char *id = own_id(s, node);
    char *path = !job || s->b.rc ? NULL : id ? id_path(s, id) : join_path(s, name, more);
    if (!path || u64map_add(&s->known, key, rule) < 0) {
        free(path);
        schema_fail(s, ERR_NOMEM, "no memory for a schema");
        return 0;
    }
    job[s->n_job++] = (struct schema_job){node, id ? node : s->root, depth, rule, path};
    return rule;
}

const cJSON *schema_member(const cJSON *node, const char *name)
{
    const cJSON *found = NULL;
    for (const cJSON *c = cJSON_IsObject(node) ? node->child : NULL; c; c = c->next)
        if (strcmp(c->string, name) == 0)
            found = c;
    return found;
}

uint32_t schema_count(struct schema *s, const cJSON *node, const char *name, uint32_t missing)
{
    const cJSON *v = schema_member(node, name);
    if (!v)
        return missing;
    if (cJSON_IsNumber(v) && v->valuedouble >= 0 && v->valuedouble <= 1e9 && floor(v->valuedouble) >= v->valuedouble)
        return (uint32_t)v->valuedouble;
    schema_fail(s, ERR_ARG, "%s must be a whole number from 0 to 1000000000", name);
    return missing;
}

/* ---- keywords ---- */

static const struct keyword *find_keyword(const char *name)
{
    for (size_t i = 0; i < sizeof keywords / sizeof *keywords; i++)
        if (strcmp(keywords[i].name, name) == 0)
            return &keywords[i];
    return NULL;
}

/* The one of `node` that decides alone, or NULL; *of: types that keywords of one speak of. */
static const struct keyword *check_keywords(struct schema *s, const cJSON *node, int *of)
{
    const struct keyword *alone = NULL, *other = NULL, *type = NULL;
    *of = 0;
    for (const cJSON *c = node->child; c; c = c->next) {
        const struct keyword *k = find_keyword(c->string);
        if (!k && strcmp(c->string, "$id") == 0 && node == s->root)
            continue;
        if (!k) {
            schema_fail(s, ERR_ARG, "the keyword \"%s\" is not supported", c->string);
            return NULL;
        }
        if (k->kind == KEY_FIXED || k->kind == KEY_ALONE) {
            if (alone && alone != k)
                schema_fail(s, ERR_ARG, "\"%s\" beside \"%s\" is not supported", k->name, alone->name);
            alone = k;
        }
        type = k->kind == KEY_TYPE ? k : type;
        other = k->kind == KEY_OF_TYPE ? k : other;
        *of |= k->of;
    }
    if (alone && (other || (alone->kind == KEY_ALONE && type)))
        schema_fail(s, ERR_ARG, "\"%s\" beside \"%s\" is not supported", other ? other->name : "type", alone->name);
    return alone;
}

static int type_named(struct schema *s, const cJSON *v)
{
    for (size_t i = 0; cJSON_IsString(v) && i < sizeof types / sizeof *types; i++)
        if (strcmp(types[i].name, v->valuestring) == 0)
            return types[i].type;
    schema_fail(s, ERR_ARG, "type must be one of null, boolean, object, array, number, string, integer, or a list of them");
    return 0;
}

/* 0 = none is given. */
static int types_of(struct schema *s, const cJSON *node)
{
    const cJSON *v = schema_member(node, "type");
    int all = 0;
    if (!v)
        return 0;
    if (!cJSON_IsArray(v))
        return type_named(s, v);
    for (const cJSON *c = v->child; c; c = c->next)
        all |= type_named(s, c);
    if (!all)
        schema_fail(s, ERR_ARG, "type is an empty list");
    return all;
}

/* ---- values of no type's own ---- */

uint32_t schema_literal(struct schema *s, const cJSON *value, uint32_t next)
{
    char *text = cJSON_PrintUnformatted(value);
    if (!text)
        return schema_fail(s, ERR_NOMEM, "no memory for a value");
    if (strchr(text, '\xC0')) /* as base/json.h keeps it */
        next = schema_fail(s, ERR_ARG, "a value with a NUL character is not supported");
    next = gram_str(&s->b, text, next);
    cJSON_free(text);
    return next;
}

static int type_of_value(const cJSON *v)
{
    if (cJSON_IsNumber(v))
        return floor(v->valuedouble) >= v->valuedouble ? TYPE_NUMBER | TYPE_INTEGER : TYPE_NUMBER;
    return cJSON_IsNull(v) ? TYPE_NULL : cJSON_IsBool(v) ? TYPE_BOOL : cJSON_IsObject(v) ? TYPE_OBJECT : cJSON_IsArray(v) ? TYPE_ARRAY
                                                                                                                           : TYPE_STRING;
}

/* Numbers are doubles here: what they do not tell apart (2^53 and 2^53 + 1) would be another value. */
static bool is_exact(struct schema *s, const cJSON *v)
{
    bool exact = true;
    for (const cJSON *c = v->child; c && exact; c = c->next)
        exact = is_exact(s, c);
    if (exact && cJSON_IsNumber(v) && !(fabs(v->valuedouble) < 0x1p53)) {
        schema_fail(s, ERR_ARG, "a fixed number of 2^53 or beyond is not supported");
        return false;
    }
    return exact;
}

static uint32_t one_value(struct schema *s, const cJSON *v, int allowed, uint32_t next)
{
    return is_exact(s, v) && (allowed == 0 || type_of_value(v) & allowed) ? schema_literal(s, v, next) : GRAM_AT_FAIL;
}

static uint32_t fixed_values(struct schema *s, const cJSON *node, const char *name, uint32_t next)
{
    const cJSON *v = schema_member(node, name);
    int allowed = types_of(s, node);
    uint32_t out = GRAM_AT_FAIL;
    if (strcmp(name, "const") == 0)
        return one_value(s, v, allowed, next);
    if (!cJSON_IsArray(v) || !v->child)
        return schema_fail(s, ERR_ARG, "enum must be a list that is not empty");
    for (const cJSON *c = v->child; c; c = c->next)
        out = gram_or(&s->b, one_value(s, c, allowed, next), out);
    return out;
}

static uint32_t any_of(struct schema *s, const cJSON *node, int depth, uint32_t next)
{
    const cJSON *v = schema_member(node, "anyOf");
    char number[24];
    uint32_t out = GRAM_AT_FAIL;
    int i = 0;
    if (!cJSON_IsArray(v) || !v->child)
        return schema_fail(s, ERR_ARG, "anyOf must be a list that is not empty");
    for (const cJSON *c = v->child; c; c = c->next) {
        snprintf(number, sizeof number, "%d", i++);
        out = gram_or(&s->b, gram_call(&s->b, schema_rule(s, c, depth, "anyOf", number), next), out);
    }
    return out;
}

/* ---- $ref ---- */

enum { LOOK_MOST = 20000000 };

/* The child of that name, or at that place; the last of a name counts. */
static const cJSON *child_of(struct schema *s, const cJSON *at, const char *name)
{
    const cJSON *found = NULL;
    char *end;
    long place = cJSON_IsArray(at) && name[0] >= '0' && name[0] <= '9' ? strtol(name, &end, 10) : -1, i = 0;
    if (!cJSON_IsObject(at) && (place < 0 || *end != '\0'))
        return NULL;
    for (const cJSON *c = at->child; c && s->looked < LOOK_MOST; c = c->next, i++, s->looked++)
        if (place < 0 ? strcmp(c->string, name) == 0 : i == place)
            found = c;
    return found;
}

/* One step of a JSON pointer: text up to the next '/', ~1 and ~0 read. */
static const cJSON *pointer_step(struct schema *s, const cJSON *at, const char *text, size_t len)
{
    char name[1024];
    size_t n = 0;
    for (size_t i = 0; i < len && n + 1 < sizeof name; i++) {
        bool tilde = text[i] == '~' && i + 1 < len && (text[i + 1] == '0' || text[i + 1] == '1');
        name[n++] = tilde ? text[i + 1] == '0' ? '~' : '/' : text[i];
        i += tilde;
    }
    name[n] = '\0';
    return n + 1 == sizeof name ? NULL : child_of(s, at, name);
}

static int hex_digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : -1;
}

/* %41 to A, as a URI's fragment spells a pointer; false where it is misspelt. */
static bool decode_percent(char *to, const char *from)
{
    for (; *from; from++, to++) {
        int high = *from == '%' ? hex_digit(from[1]) : 0, low = *from == '%' && high >= 0 ? hex_digit(from[2]) : 0;
        if (high < 0 || low < 0 || (*from == '%' && high + low == 0))
            return false;
        *to = *from == '%' ? (char)(high * 16 + low) : *from;
        from += *from == '%' ? 2 : 0;
    }
    *to = '\0';
    return true;
}

/* Where text[0..] leads from the root, which becomes that of the resource there. */
static const cJSON *pointer(struct schema *s, const char *text, const cJSON **root)
{
    char *path = mem_strdup(text);
    const cJSON *at = s->root;
    if (!path)
        schema_fail(s, ERR_NOMEM, "no memory for a schema");
    if (!path || text[0] != '#' || (text[1] && text[1] != '/') || !decode_percent(path, text))
        at = NULL;
    *root = at;
    for (const char *step = path ? path + 1 : NULL; at && *step; step += strcspn(step, "/")) {
        step++;
        at = pointer_step(s, at, step, strcspn(step, "/"));
        *root = at && own_id(s, at) ? at : *root;
    }
    free(path);
    return at;
}

static uint32_t reference(struct schema *s, const cJSON *node, int depth, uint32_t next)
{
    const cJSON *v = schema_member(node, "$ref");
    const cJSON *from = s->root, *root = from, *to = cJSON_IsString(v) ? pointer(s, v->valuestring, &root) : NULL;
    if (!cJSON_IsString(v))
        return schema_fail(s, ERR_ARG, "$ref must be a text");
    if (s->looked >= LOOK_MOST)
        return schema_fail(s, ERR_LIMIT, "its $ref are too many in too large a schema");
    if (!to)
        return schema_fail(s, ERR_ARG, "$ref \"%.200s\" names nothing in this schema (\"#/$defs/NAME\" and the like do)", v->valuestring);
    if (depth + 1 > SCHEMA_DEPTH_MAX)
        return GRAM_AT_FAIL;
    s->root = root;
    uint32_t rule = schema_rule(s, to, depth + 1, "$ref", NULL);
    s->root = from;
    return gram_call(&s->b, rule, next);
}

/* ---- a schema ---- */

static uint32_t of_types(struct schema *s, const cJSON *node, int depth, int which, uint32_t next)
{
    struct gram_build *b = &s->b;
    uint32_t out = GRAM_AT_FAIL;
    if (which & TYPE_NULL)
        out = gram_or(b, gram_str(b, "null", next), out);
    if (which & TYPE_BOOL)
        out = gram_or(b, gram_str(b, "true", next), gram_or(b, gram_str(b, "false", next), out));
    if (which & (TYPE_NUMBER | TYPE_INTEGER))
        out = gram_or(b, schema_number(s, node, !(which & TYPE_NUMBER), next), out);
    if (which & TYPE_STRING)
        out = gram_or(b, schema_string(s, node, next), out);
    if (which & TYPE_ARRAY)
        out = gram_or(b, schema_array(s, node, depth, next), out);
    if (which & TYPE_OBJECT)
        out = gram_or(b, schema_object(s, node, depth, next), out);
    return out;
}

static uint32_t value(struct schema *s, const cJSON *node, int depth, uint32_t next)
{
    int of, which;
    if (!node) /* any value, `depth` deep in others */
        return of_types(s, NULL, depth, depth < SCHEMA_DEPTH_MAX ? TYPE_ANY : TYPE_ANY & ~(TYPE_ARRAY | TYPE_OBJECT), next);
    if (cJSON_IsBool(node))
        return cJSON_IsTrue(node) ? gram_call(&s->b, schema_rule(s, NULL, 0, "", NULL), next) : GRAM_AT_FAIL;
    if (!cJSON_IsObject(node))
        return schema_fail(s, ERR_ARG, "a schema must be an object, true or false");
    const struct keyword *alone = check_keywords(s, node, &of);
    if (s->b.rc)
        return GRAM_AT_FAIL;
    if (alone && alone->kind == KEY_FIXED)
        return fixed_values(s, node, alone->name, next);
    if (alone)
        return strcmp(alone->name, "$ref") == 0 ? reference(s, node, depth, next) : any_of(s, node, depth, next);
    which = types_of(s, node);
    if (!which && !of)
        return gram_call(&s->b, schema_rule(s, NULL, 0, "", NULL), next);
    return of_types(s, node, depth, which ? which : of, next);
}

/* One space, or a new line with an indentation, or nothing. */
static void space_rules(struct schema *s)
{
    struct gram_build *b = &s->b;
    struct gram_set blank = {{0}};
    blank.w[0] = (uint64_t)1 << ' ' | (uint64_t)1 << '\t';
    s->blank = gram_rule(b);
    gram_define(b, s->blank, gram_set(b, &blank, GRAM_AT_END));
    s->space = gram_rule(b);
    uint32_t line = gram_str(b, "\n", gram_repeat(b, s->blank, 0, 32, GRAM_AT_END));
    gram_define(b, s->space, gram_or(b, gram_str(b, " ", GRAM_AT_END), gram_or(b, line, GRAM_AT_END)));
}

static void make_rules(struct schema *s)
{
    s->path = "json_schema: #";
    gram_rule(&s->b); /* 0, the root */
    space_rules(s);
    schema_string_rules(s);
    gram_define(&s->b, 0, value(s, s->root, 0, GRAM_AT_END));
    while (s->n_done < s->n_job && s->b.rc == 0) {
        struct schema_job job = s->job[s->n_done++];
        s->path = job.path;
        s->root = job.root;
        gram_define(&s->b, job.rule, value(s, job.node, job.depth, GRAM_AT_END));
    }
}

int grammar_from_schema(struct grammar **out, const char *json, size_t len, struct err *err)
{
    struct schema s = {0};
    cJSON *root;
    *out = NULL;
    if (len > ((size_t)1 << 20))
        return err_set(err, ERR_LIMIT, "json_schema: %zu bytes; at most 1048576 are read", len);
    int rc = json_parse(&root, json, len, "json_schema", err);
    if (rc)
        return rc;
    s.root = root;
    u64map_init(&s.known);
    gram_build_init(&s.b, err);
    make_rules(&s);
    bool told = s.b.rc && err && strncmp(err->msg, "json_schema", 11) == 0;
    rc = gram_finish(out, &s.b, NULL, NULL);
    if (rc && !told)
        err_wrap(err, "json_schema");
    for (size_t i = 0; i < s.n_job; i++)
        free(s.job[i].path);
    free(s.job);
    u64map_fini(&s.known);
    cJSON_Delete(root);
    return rc;
}
