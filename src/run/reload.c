/* Devices once more: after one of them failed everything below a loaded model is
 * closed, opened again by the same selector and filled again from the mapped
 * files.  Knows nothing of requests, nor of what made a device fail. */
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "run/load_parts.h"

struct load_again {
    char *device, *split; /* NULL as given */
    struct backend_params backend;
    struct kv_params kv; /* as settled */
};

int load_keep(struct loaded *l, const struct load_params *p, const struct kv_params *kv, struct err *err)
{
    struct load_again *a = mem_array(1, sizeof *a);
    bool ok = a != NULL;
    if (ok) {
        l->again = a;
        a->kv = *kv;
        ok = backend_params_copy(&a->backend, &p->backend);
        a->backend.stop = NULL; /* its user is gone by then */
        a->backend.recheck = true; /* what failed may be a kernel that built, or was right, before */
        a->device = mem_strdup(p->device ? p->device : "auto");
        a->split = p->split ? mem_strdup(p->split) : NULL;
        ok = ok && a->device && (a->split || !p->split);
    }
    return ok ? 0 : err_set(err, ERR_NOMEM, "no memory for the record of the devices");
}

void load_keep_free(struct load_again *a)
{
    if (!a)
        return;
    backend_params_fini(&a->backend);
    free(a->device);
    free(a->split);
    free(a);
}

static void close_devices(struct loaded *l)
{
    forward_free(l->forward);
    kv_free(l->kv);
    l->forward = NULL;
    l->kv = NULL;
    model_unbind(l->model);
    while (l->n_backends > 0)
        registry_close(l->backends[--l->n_backends]);
}

bool load_may_mend(const struct loaded *l, int code)
{
    bool own_memory = false;
    for (int i = 0; i < l->n_backends; i++) {
        struct backend_caps caps;
        op_caps(l->backends[i], &caps);
        own_memory = own_memory || !caps.host_memory;
    }
    return own_memory && (code == ERR_DEVICE || code == ERR_NOMEM);
}

int load_reopen(struct loaded *l, struct err *err)
{
    const struct load_again *a = l->again;
    double split[REGISTRY_MAX_INSTANCES], start = clock_now();
    char reason[sizeof l->reason]; /* the first one is being read by others */
    close_devices(l);
    int rc = registry_open(a->device, &a->backend, l->backends, &l->n_backends, reason, sizeof reason, err);
    if (rc == 0)
        rc = load_check_math(l, a->backend.math, err); /* "auto" may be another device by now */
    if (rc == 0 && a->split)
        rc = load_parse_split(a->split, split, l->n_backends, err);
    if (rc == 0) {
        l->free_rows = load_free_rows(l, a->backend.deterministic);
        rc = model_bind(l->model, l->weights, l->backends, l->n_backends, a->split ? split : NULL, NULL, NULL, err);
    }
    if (rc == 0)
        rc = load_open_rest(l, &a->kv, err);
    if (rc == 0)
        rc = forward_warm(l->forward, NULL, NULL, err);
    if (rc < 0)
        close_devices(l);
    else
        log_debug(LOG_LOAD, "load: devices opened again in %.3f s", clock_now() - start);
    return rc;
}

int load_warm(struct loaded *l, const struct load_params *p, struct err *err)
{
    struct err first = {0};
    int rc = forward_warm(l->forward, p->compiling, p->user, &first);
    if (rc == 0)
        return 0;
    if (!load_may_mend(l, rc))
        return err_set(err, rc, "%s", first.msg);
    log_msg(LOG_WARN, "%s; the devices are opened again", first.msg);
    rc = load_reopen(l, err);
    if (rc < 0)
        err_wrap(err, "after the devices were opened again");
    return rc;
}
