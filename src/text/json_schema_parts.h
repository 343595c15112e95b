/* A schema on its way to a grammar: what the files of json_schema share.
 *
 * Every schema within the schema becomes a rule; those to be made wait in a list,
 * so that schemas in schemas take no recursion.  Private to json_schema*.c. */
#ifndef FORGE_TEXT_JSON_SCHEMA_PARTS_H
#define FORGE_TEXT_JSON_SCHEMA_PARTS_H

#include "base/json.h"
#include "text/grammar_prog.h"

#define SCHEMA_DEPTH_MAX 32 /* of $ref in $ref, and of values of no schema in each other */

struct schema_job {
    const cJSON *node; /* NULL = any value */
    const cJSON *root; /* of its resource: where its $ref begin */
    int depth;
    uint32_t rule;
    char *path; /* for messages: "#/properties/a" */
};

struct schema {
    struct gram_build b;
    const cJSON *root; /* the schema, or the one within it with an $id of its own that the current one lies in */
    struct u64map known; /* node and depth -> rule */
    struct schema_job *job;
    size_t n_job, cap_job, n_done;
    const char *path; /* of the schema that is being made */
    size_t looked;    /* at so many members and items for $ref */
    /* rules that are made once */
    uint32_t space, digit, character, string, raw_tail, blank;
};

/* "json_schema: #/path: ..." where nothing failed before; returns GRAM_AT_FAIL. */
uint32_t schema_fail(struct schema *s, int code, const char *fmt, ...) ATTR_PRINTF(3, 4);
/* The rule of a schema below the current one; `name` and `more` (NULL = none) are its path from there. */
uint32_t schema_rule(struct schema *s, const cJSON *node, int depth, const char *name, const char *more);
/* A member by its name, also one that is null; NULL = none.  The last one counts. */
const cJSON *schema_member(const cJSON *node, const char *name);
/* A whole number from 0 to 1000000000, or `missing`. */
uint32_t schema_count(struct schema *s, const cJSON *node, const char *name, uint32_t missing);

/* Instructions for values, then next. */
uint32_t schema_object(struct schema *s, const cJSON *node, int depth, uint32_t next);
uint32_t schema_array(struct schema *s, const cJSON *node, int depth, uint32_t next);
uint32_t schema_string(struct schema *s, const cJSON *node, uint32_t next);
uint32_t schema_number(struct schema *s, const cJSON *node, bool whole, uint32_t next);
uint32_t schema_literal(struct schema *s, const cJSON *value, uint32_t next);

/* json_schema_string.c */
void schema_string_rules(struct schema *s);
/* The name of a member that is none of names[n] (sorted, no two alike), with its quotation marks. */
struct schema_name { const char *s; size_t len; };
uint32_t schema_other_name(struct schema *s, const struct schema_name *names, size_t n, uint32_t next);
/* Characters as a JSON string spells them: raw, or by an escape where they must be. */
uint32_t schema_chars(struct gram_build *b, const struct gram_ranges *r, uint32_t next);
/* json_schema_pattern.c: the inside of a string that matches. */
uint32_t schema_pattern(struct schema *s, const char *text, size_t len, uint32_t next);

#endif
