/* In one call: submit, and step until done; one request, or several together.
 * Over the rest of forge.h, but for the list of requests.
 * Knows nothing of what a step does. */
#include <stdlib.h>

#include "base/mem.h"
#include "run/engine.h"

int refuse_in_callback(const struct forge_engine *e, const char *what, struct forge_error *err)
{
    struct err er = {0};
    if (e->own)
        err_set(&er, ERR_ARG, "%s was called while the engine's own thread runs (forge_engine_start)", what);
    else if (e->in_step)
        err_set(&er, ERR_ARG, "%s was called from a callback", what);
    return er.code < 0 ? engine_error(err, er.code, &er) : 0;
}

static int finish_code(const struct forge_request *r, struct forge_error *err)
{
    if (r->error.code == 0)
        return 0;
    if (err)
        *err = r->error;
    return r->error.code;
}

int forge_generate(struct forge_engine *e, const struct forge_request_params *p, struct forge_request **out,
                   struct forge_error *err)
{
    struct forge_request *r = NULL;
    if (out)
        *out = NULL;
    int rc = refuse_in_callback(e, "forge_generate", err);
    if (rc == 0)
        rc = forge_submit(e, p, &r, err);
    while (rc >= 0 && !r->done)
        rc = forge_step(e, err);
    if (rc >= 0)
        rc = finish_code(r, err);
    if (out)
        *out = r;
    else
        forge_request_free(r);
    return rc;
}

/* The first from `from` on that is not done. */
static size_t first_left(struct forge_request *const *r, size_t from, size_t n)
{
    while (from < n && r[from]->done)
        from++;
    return from;
}

/* Submits all, or none. */
static int submit_all(struct forge_engine *e, const struct forge_request_params *p, size_t n, struct forge_request **r,
                      struct forge_error *err)
{
    for (size_t i = 0; i < n; i++) {
        const void *at = (const unsigned char *)p + i * p->struct_size; /* which may differ from ours */
        int rc = forge_submit(e, at, &r[i], err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

int forge_generate_batch(struct forge_engine *e, const struct forge_request_params *p, size_t n, struct forge_request **out,
                         struct forge_error *err)
{
    struct err er;
    for (size_t i = 0; i < n; i++)
        out[i] = NULL;
    int rc = refuse_in_callback(e, "forge_generate_batch", err);
    if (rc < 0)
        return rc;
    struct forge_request **r = mem_array(n, sizeof *r); /* out is the callers', who may look at it in a callback */
    if (!r) {
        err_set(&er, ERR_NOMEM, "no memory for %zu requests", n);
        return engine_error(err, er.code, &er);
    }
    rc = submit_all(e, p, n, r, err);
    for (size_t at = 0; rc >= 0 && (at = first_left(r, at, n)) < n;)
        rc = forge_step(e, err);
    for (size_t i = 0; i < n; i++) {
        if (rc < 0)
            forge_request_free(r[i]);
        else
            out[i] = r[i];
    }
    free(r);
    for (size_t i = 0; i < n && rc >= 0; i++)
        rc = finish_code(out[i], err);
    return rc;
}
