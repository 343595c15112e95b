/* What a text of generate must follow: a GBNF grammar or a JSON schema, from
 * flags or from a member of a line of JSON.  Reads texts alone; the library
 * says what is wrong with them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/map.h"
#include "base/mem.h"
#include "cli/generate.h"
#include "cli/out.h"

enum { RULES_MAX = 1 << 20 }; /* bytes of a file */

static int read_file(char **out, const char *path)
{
    struct err err = {0};
    size_t len;
    int rc = map_read_all(path, RULES_MAX, out, &len, &err);
    if (rc < 0)
        return msg_fail(rc, err.msg);
    if (strlen(*out) == len)
        return 0;
    free(*out);
    *out = NULL;
    return msg_usage("generate", "%s: this text holds a NUL character", path);
}

static bool is_schema_text(const char *s)
{
    s += strspn(s, " \t\r\n");
    return *s == '{' || strcmp(s, "true") == 0 || strcmp(s, "false") == 0;
}

int rules_read(struct rules *r, const struct generate_args *a)
{
    *r = (struct rules){0};
    if (a->grammar_file && a->schema_arg)
        return msg_usage("generate", "give only one of --grammar and --json-schema");
    if (a->grammar_file) {
        r->path = a->grammar_file;
        return read_file(&r->grammar, a->grammar_file);
    }
    if (!a->schema_arg)
        return 0;
    if (!is_schema_text(a->schema_arg)) {
        r->path = a->schema_arg;
        return read_file(&r->json_schema, a->schema_arg);
    }
    r->json_schema = mem_strdup(a->schema_arg);
    return r->json_schema ? 0 : msg_fail(ERR_NOMEM, "out of memory");
}

void rules_free(struct rules *r)
{
    free(r->grammar);
    free(r->json_schema);
    *r = (struct rules){0};
}

/* The member takes the place of what the flags say. */
bool rules_put(struct rules *r, const cJSON *v, const char *raw, size_t raw_len, char *why, size_t size)
{
    bool schema = strcmp(v->string, "json_schema") == 0;
    if (schema ? !cJSON_IsObject(v) && !cJSON_IsBool(v) : !cJSON_IsString(v)) {
        snprintf(why, size, schema ? "this is no JSON schema: an object, true or false" : "this is no text of a grammar");
        return false;
    }
    if (schema ? r->grammar != NULL : r->json_schema != NULL) {
        snprintf(why, size, "give only one of grammar and json_schema");
        return false;
    }
    rules_free(r);
    if (schema)
        r->json_schema = mem_strndup(raw, raw_len);
    else
        r->grammar = mem_strdup(v->valuestring);
    snprintf(why, size, "out of memory");
    return r->json_schema || r->grammar;
}
