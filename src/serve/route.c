/* Which handler answers which path; keys, methods, limits.
 * What can be refused before a body came is refused then.
 * Knows no handler's fields. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "serve/server.h"

static const struct route routes[] = {
    {"/", "GET", false, true, handle_page},
    {"/health", "GET", false, true, handle_health},
    {"/openapi.json", "GET", false, true, handle_openapi},
    {"/metrics", "GET", false, false, handle_metrics},
    {"/props", "GET", false, false, handle_props},
    {"/v1/models", "GET", false, false, handle_models},
    {"/v1/models/", "GET", true, false, handle_model},
    {"/v1/chat/completions", "POST", false, false, handle_chat},
    {"/v1/completions", "POST", false, false, handle_completions},
    {"/tokenize", "POST", false, false, handle_tokenize},
    {"/detokenize", "POST", false, false, handle_detokenize},
    {"/apply-template", "POST", false, false, handle_apply_template},
};

static const struct route *find(struct exchange *x, const char *path)
{
    for (size_t i = 0; i < sizeof routes / sizeof *routes; i++) {
        const struct route *r = &routes[i];
        size_t n = strlen(r->path);
        if (r->is_prefix ? strncmp(path, r->path, n) == 0 && path[n] : strcmp(path, r->path) == 0) {
            x->rest = r->is_prefix ? mem_strdup(path + n) : NULL;
            return r;
        }
    }
    return NULL;
}

bool route_same_key(const char *given, const char *key)
{
    size_t n = strlen(given), m = strlen(key);
    volatile unsigned char differ = n != m;
    for (size_t i = 0; i < n; i++)
        differ = (unsigned char)(differ | (given[i] ^ key[m ? i % m : 0]));
    return differ == 0;
}

static bool has_key(const struct exchange *x)
{
    static const char scheme[] = "Bearer ";
    if (!x->s->api_key || (x->route && x->route->is_open) || strcmp(x->method, "OPTIONS") == 0)
        return true;
    const char *h = MHD_lookup_connection_value(x->conn, MHD_HEADER_KIND, MHD_HTTP_HEADER_AUTHORIZATION);
    return h && strncasecmp(h, scheme, sizeof scheme - 1) == 0 && route_same_key(h + sizeof scheme - 1, x->s->api_key);
}

static bool has_method(const struct exchange *x)
{
    return strcmp(x->method, x->route->methods) == 0 || (strcmp(x->method, "HEAD") == 0 && strcmp(x->route->methods, "GET") == 0);
}

void route_begin(struct exchange *x, const char *path)
{
    x->route = find(x, path);
    x->drop = !has_key(x) || !x->route || strcmp(x->method, "POST") != 0;
}

void route_handle(struct exchange *x)
{
    struct reply *a = &x->reply;
    if (!has_key(x)) {
        reply_fail(x, 401, NULL, "The key is missing or wrong: send it as \"Authorization: Bearer KEY\".");
    } else if (x->too_large) {
        reply_fail(x, 413, NULL, "The body is larger than %zu bytes.", BODY_MAX);
        a->close = true;
    } else if (strcmp(x->method, "OPTIONS") == 0 && x->s->cors) {
        a->status = 204;
    } else if (!x->route) {
        reply_fail(x, 404, NULL, "There is no such path here.");
    } else if (!has_method(x)) {
        reply_fail(x, 405, NULL, "%s is answered to %s only.", x->route->path, x->route->methods);
        a->allow = strcmp(x->route->methods, "GET") == 0 ? "GET, HEAD" : "POST";
    } else {
        x->route->handle(x);
    }
    a->close |= atomic_load(&x->s->draining);
}
