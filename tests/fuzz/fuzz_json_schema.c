/* Fuzz target: JSON schemas.  The schema is the text up to a NUL; what follows it
 * chooses the bytes of a text by the schema's grammar, which must be JSON when it
 * is complete, and valid as far as a simple validator can tell. */
#include <stdlib.h>
#include <string.h>

#include "tests/schema_kit.h"
#include "text/json_schema.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(int holds)
{
    if (!holds)
        abort();
}

/* The validator follows references and looks for keys as they come: not for schemas that loop or name things twice. */
static bool is_plain(const cJSON *schema)
{
    for (const cJSON *c = schema->child; c; c = c->next) {
        if (c->string && (strcmp(c->string, "$ref") == 0 || (c->next && kit_get(schema, c->string) != c)))
            return false;
        for (const cJSON *d = c->next; d && c->string; d = d->next)
            if (strcmp(c->string, d->string) == 0)
                return false;
        if (!is_plain(c))
            return false;
    }
    return true;
}

static void check_text(const cJSON *schema, const struct buf *text)
{
    cJSON *v;
    must(json_parse(&v, buf_str(text), text->len, "text", NULL) == 0);
    if (is_plain(schema) && is_plain(v))
        must(kit_valid(schema, schema, v));
    cJSON_Delete(v);
}

static void use(struct grammar *g, const cJSON *schema, const uint8_t *choice, size_t len)
{
    static const char likely[] = "\"}],:0123456789-{[ truefalsn.eE\\ubx";
    struct matcher m = {0};
    struct buf text;
    buf_init(&text);
    matcher_begin(&m, g);
    for (size_t i = 0; i < len && i < 300 && matcher_may_go_on(&m); i++) {
        char c = choice[i] < 128 ? likely[choice[i] % (sizeof likely - 1)] : (char)choice[i];
        int rc = matcher_accept(&m, &c, 1, NULL);
        for (unsigned k = 0; k < 256 && rc == 0; k++) {
            c = (char)(k ^ choice[i]);
            rc = matcher_accept(&m, &c, 1, NULL);
        }
        must(rc != 0); /* something may follow */
        if (rc < 0)
            break;
        buf_putc(&text, c);
        if (matcher_may_end(&m) && !text.failed)
            check_text(schema, &text);
    }
    matcher_end(&m);
    buf_fini(&text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *text = (const char *)data, *end = size ? memchr(data, 0, size) : NULL;
    size_t len = end ? (size_t)(end - text) : size;
    struct grammar *g;
    struct err err = {0};
    cJSON *schema = NULL;
    int rc = grammar_from_schema(&g, text, len, &err);
    must(rc == 0 || (rc == err.code && strncmp(err.msg, "json_schema: ", 13) == 0));
    if (rc == 0 && json_parse(&schema, text, len, "schema", NULL) == 0)
        use(g, schema, (const uint8_t *)(end ? end + 1 : text), end ? size - len - 1 : 0);
    cJSON_Delete(schema);
    grammar_free(g);
    return 0;
}
