/* A model on its devices: which layer runs where, which layers share a page table,
 * then every tensor imported.  Knows nothing of names (bind.c) or of how weights
 * are used (forward.c). */
#include "model/model.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/mem.h"
#include "model/bind.h"

static double share(const double *split, int i)
{
    return split ? split[i] : 1;
}

/* Layer l goes to the instance in whose share of the whole the middle of its own share lies. */
static int place_layers(struct model *m, struct backend *const *instances, int n, const double *split,
                        struct err *err)
{
    double total = 0, reached = share(split, 0);
    for (int i = 0; i < n; i++) {
        if (!(share(split, i) >= 0 && share(split, i) <= 1e9))
            return err_set(err, ERR_ARG, "share %g of device %d in the split is no number from 0 on",
                           share(split, i), i);
        total += share(split, i);
    }
    if (!(total > 0))
        return err_set(err, ERR_ARG, "the shares of the split add up to nothing");
    int at = 0;
    for (int64_t l = 0; l < m->config.n_layers; l++) {
        double middle = ((double)l + 0.5) / (double)m->config.n_layers * total;
        while (at < n - 1 && middle >= reached)
            reached += share(split, ++at);
        m->layers[l].be = instances[at];
    }
    return 0;
}

static int list_instances(struct model *m, struct err *err)
{
    m->instances = mem_array((size_t)m->config.n_layers, sizeof(struct backend *));
    if (!m->instances)
        return err_set(err, ERR_NOMEM, "no memory for the list of devices");
    for (int64_t l = 0; l < m->config.n_layers; l++) {
        int i = 0;
        while (i < m->n_instances && m->instances[i] != m->layers[l].be)
            i++;
        if (i == m->n_instances)
            m->instances[m->n_instances++] = m->layers[l].be;
    }
    return 0;
}

/* Layers share a page table only on one instance: the groups by window are divided further. */
static int group_by_instance(struct model *m, const struct weights *w, struct err *err)
{
    int *place = mem_array((size_t)m->config.n_layers, sizeof(*place));
    if (!place)
        return err_set(err, ERR_NOMEM, "%s: no memory for the groups of layers", weights_path(w));
    for (int64_t l = 0; l < m->config.n_layers; l++)
        while (m->instances[place[l]] != m->layers[l].be)
            place[l]++;
    int rc = config_group(&m->config, place, weights_path(w), err);
    free(place);
    return rc;
}

static int import_all(struct model *m, const struct bind_plan *p, const struct weights *w,
                      model_progress *progress, void *user, struct err *err)
{
    m->owned = mem_array(p->n, sizeof(struct buffer *));
    if (!m->owned)
        return err_set(err, ERR_NOMEM, "no memory for the list of %zu tensors", p->n);
    for (size_t i = 0; i < p->n; i++) {
        int rc = bind_import(m, &p->items[i], w, err);
        if (rc)
            return rc;
        if (progress && progress(user, i + 1, p->n))
            return err_set(err, ERR_CANCELLED, "loading %s was stopped after %zu of %zu tensors",
                           weights_path(w), i + 1, p->n);
    }
    if (!m->head.buf)
        m->head = m->embed;
    for (int i = 0; i < m->n_instances; i++) {
        int rc = op_sync(m->instances[i], err);
        if (rc)
            return rc;
    }
    return 0;
}

int model_bind(struct model *m, const struct weights *w, struct backend *const *instances, int n_instances,
               const double *split, model_progress *progress, void *user, struct err *err)
{
    struct bind_plan plan = {0};
    int rc = place_layers(m, instances, n_instances, split, err);
    if (rc == 0)
        rc = list_instances(m, err);
    if (rc == 0)
        rc = group_by_instance(m, w, err);
    if (rc == 0)
        rc = bind_make(&plan, m, w, err);
    for (int i = 0; rc == 0 && i < m->n_instances; i++)
        op_begin(m->instances[i]);
    if (rc == 0)
        rc = import_all(m, &plan, w, progress, user, err);
    bind_free(&plan);
    return rc;
}

void model_unbind(struct model *m)
{
    for (size_t i = 0; i < m->n_owned; i++)
        op_free(m->owned[i]);
    for (int64_t l = 0; m->layers && l < m->config.n_layers; l++) {
        free(m->layers[l].expert_gate);
        free(m->layers[l].expert_up);
        free(m->layers[l].expert_down);
        m->layers[l] = (struct layer){0};
    }
    free(m->owned);
    free(m->instances);
    m->owned = NULL;
    m->instances = NULL;
    m->n_owned = 0;
    m->n_instances = 0;
    m->weight_bytes = 0;
    m->embed = m->final_norm = m->head = m->head_bias = (struct tensor){0};
}

int model_open(struct model **out, struct model_config *config, const struct weights *w,
               struct backend *const *instances, int n_instances, const double *split,
               model_progress *progress, void *user, struct err *err)
{
    struct model *m = mem_array(1, sizeof(*m));
    int rc = ERR_NOMEM;
    *out = NULL;
    if (m) {
        m->config = *config;
        *config = (struct model_config){0};
        m->layers = mem_array((size_t)m->config.n_layers, sizeof(*m->layers));
    } else {
        config_fini(config);
    }
    if (!m || !m->layers)
        err_set(err, ERR_NOMEM, "%s: no memory for the model", weights_path(w));
    else
        rc = model_bind(m, w, instances, n_instances, split, progress, user, err);
    if (rc) {
        model_close(m);
        return rc;
    }
    *out = m;
    return 0;
}

void model_close(struct model *m)
{
    if (!m)
        return;
    model_unbind(m);
    free(m->layers);
    config_fini(&m->config);
    free(m);
}
