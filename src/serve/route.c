/* Which handler answers which path; methods, limits.
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

static bool has_method(const struct exchange *x)
{
    return strcmp(x->method, x->route->methods) == 0 || (strcmp(x->method, "HEAD") == 0 && strcmp(x->route->methods, "GET") == 0);
}

void route_begin(struct exchange *x, const char *path)
{
    struct api_error e;
    x->route = find(x, path);
    x->drop = !access_check(x, &e) || !x->route || strcmp(x->method, "POST") != 0;
}

void route_handle(struct exchange *x)
{
    struct reply *a = &x->reply;
    struct api_error e;
    if (!access_check(x, &e)) {
        reply_error(x, &e);
    } else if (x->too_large) {
        reply_fail(x, 413, NULL, "The body is larger than %zu bytes.", BODY_MAX);
        a->close = true;
    } else if (x->no_room) {
        reply_fail(x, 503, NULL, "Other requests' bodies take all the memory for them; send this again later.");
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
