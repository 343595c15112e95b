/* Names to tensors: which roles a layer has, the shape of each from the
 * configuration's sizes, and what to import from where.  Every tensor of the
 * file is accounted for: one that has no place in the model is an error, since
 * running without it would give other results. */
#include "model/bind.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

enum dim { DIM_ONE, DIM_D, DIM_Q, DIM_KV, DIM_QKV, DIM_HEAD, DIM_FF, DIM_2FF, DIM_VOCAB, DIM_EXPERTS, DIM_FFE, DIM_COUNT };

static const char *const dim_names[DIM_COUNT] = {
    "1", "d_model", "n_heads * head_dim", "n_kv_heads * head_dim", "(n_heads + 2 n_kv_heads) * head_dim", "head_dim", "n_ff",
    "2 n_ff", "n_vocab", "n_experts", "n_ff of an expert"};

/* What a layer has. */
enum {
    HAS_SEPARATE = 1, HAS_FUSED = 2, HAS_QKV_BIAS = 4, HAS_O_BIAS = 8, HAS_QK_NORM = 16, HAS_POST = 32, HAS_DENSE = 64,
    HAS_MLP_BIAS = 128, HAS_MOE = 256
};

#define AT(field) offsetof(struct layer, field)
#define NOWHERE SIZE_MAX /* placed by a function of its own */

/* Shape [rows, cols] (rows DIM_ONE: a vector), where it goes, and when it must be there. */
static const struct role_info {
    enum dim rows, cols;
    size_t field;
    unsigned needs;
} roles[ROLE_COUNT] = {
    [ROLE_EMBED] = {DIM_VOCAB, DIM_D, NOWHERE, 0},
    [ROLE_FINAL_NORM] = {DIM_ONE, DIM_D, NOWHERE, 0},
    [ROLE_HEAD] = {DIM_VOCAB, DIM_D, NOWHERE, 0},
    [ROLE_ATTN_NORM] = {DIM_ONE, DIM_D, AT(attn_norm), 0},
    [ROLE_Q] = {DIM_Q, DIM_D, AT(q), HAS_SEPARATE},
    [ROLE_K] = {DIM_KV, DIM_D, AT(k), HAS_SEPARATE},
    [ROLE_V] = {DIM_KV, DIM_D, AT(v), HAS_SEPARATE},
    [ROLE_QKV] = {DIM_QKV, DIM_D, NOWHERE, HAS_FUSED},
    [ROLE_O] = {DIM_D, DIM_Q, AT(o), 0},
    [ROLE_Q_BIAS] = {DIM_ONE, DIM_Q, AT(q_bias), HAS_QKV_BIAS},
    [ROLE_K_BIAS] = {DIM_ONE, DIM_KV, AT(k_bias), HAS_QKV_BIAS},
    [ROLE_V_BIAS] = {DIM_ONE, DIM_KV, AT(v_bias), HAS_QKV_BIAS},
    [ROLE_O_BIAS] = {DIM_ONE, DIM_D, AT(o_bias), HAS_O_BIAS},
    [ROLE_Q_NORM] = {DIM_ONE, DIM_HEAD, AT(q_norm), HAS_QK_NORM},
    [ROLE_K_NORM] = {DIM_ONE, DIM_HEAD, AT(k_norm), HAS_QK_NORM},
    [ROLE_POST_ATTN_NORM] = {DIM_ONE, DIM_D, AT(post_attn_norm), HAS_POST},
    [ROLE_MLP_NORM] = {DIM_ONE, DIM_D, AT(mlp_norm), 0},
    [ROLE_POST_MLP_NORM] = {DIM_ONE, DIM_D, AT(post_mlp_norm), HAS_POST},
    [ROLE_GATE] = {DIM_FF, DIM_D, AT(gate), HAS_DENSE | HAS_SEPARATE},
    [ROLE_UP] = {DIM_FF, DIM_D, AT(up), HAS_DENSE | HAS_SEPARATE},
    [ROLE_GATE_UP] = {DIM_2FF, DIM_D, NOWHERE, HAS_DENSE | HAS_FUSED},
    [ROLE_DOWN] = {DIM_D, DIM_FF, AT(down), HAS_DENSE},
    [ROLE_GATE_BIAS] = {DIM_ONE, DIM_FF, AT(gate_bias), HAS_DENSE | HAS_MLP_BIAS},
    [ROLE_UP_BIAS] = {DIM_ONE, DIM_FF, AT(up_bias), HAS_DENSE | HAS_MLP_BIAS},
    [ROLE_DOWN_BIAS] = {DIM_ONE, DIM_D, AT(down_bias), HAS_DENSE | HAS_MLP_BIAS},
    [ROLE_ROUTER] = {DIM_EXPERTS, DIM_D, AT(router), HAS_MOE},
    [ROLE_EXPERT_GATE] = {DIM_FFE, DIM_D, AT(expert_gate), HAS_MOE},
    [ROLE_EXPERT_UP] = {DIM_FFE, DIM_D, AT(expert_up), HAS_MOE},
    [ROLE_EXPERT_DOWN] = {DIM_D, DIM_FFE, AT(expert_down), HAS_MOE},
};

struct binder {
    struct bind_plan *plan;
    struct model *m;
    const struct weights *w;
    struct names names;
    int64_t dims[DIM_COUNT];
    struct err *err;
};

static unsigned layer_has(const struct model_config *c, int64_t l)
{
    return (c->arch->fused ? HAS_FUSED : HAS_SEPARATE) | (c->qkv_bias ? HAS_QKV_BIAS : 0) |
           (c->o_bias ? HAS_O_BIAS : 0) | (c->qk_norm ? HAS_QK_NORM : 0) | (c->post_norms ? HAS_POST : 0) |
           (c->mlp_bias ? HAS_MLP_BIAS : 0) | (c->layers[l].moe ? HAS_MOE : HAS_DENSE);
}

/* ---- finding and checking ---- */

static void put_shape(char *out, size_t size, const int64_t *shape, int n)
{
    size_t at = (size_t)snprintf(out, size, "[");
    for (int i = 0; i < n && at < size; i++)
        at += (size_t)snprintf(out + at, size - at, "%s%" PRId64, i ? ", " : "", shape[i]);
    if (at < size)
        snprintf(out + at, size - at, "]");
}

static int wrong_shape(const struct binder *b, const struct weight *t, enum role role, const int64_t *want,
                       int n)
{
    char have[200], need[200], what[200] = "";
    put_shape(have, sizeof(have), t->shape, t->n_dims);
    put_shape(need, sizeof(need), want, n);
    if (roles[role].rows != DIM_ONE)
        snprintf(what, sizeof(what), "%s, ", dim_names[roles[role].rows]);
    return err_set(b->err, ERR_FORMAT,
                   "%s: tensor %s is %s, but the configuration's sizes make it %s = [%s%s%s]",
                   weights_path(b->w), t->name, have, need, n == 3 ? "n_experts, " : "", what,
                   dim_names[roles[role].cols]);
}

/* The tensor of a role with the shape that the configuration gives it; NULL with the error set. */
static const struct weight *find(const struct binder *b, enum role role, int64_t layer, int64_t expert,
                                 bool merged)
{
    char name[160];
    if (!names_make(&b->names, role, layer, expert, name, sizeof(name))) {
        err_set(b->err, ERR_UNSUPPORTED, "%s: a %s with these options has no such names of tensors",
                weights_path(b->w), b->m->config.arch->name);
        return NULL;
    }
    const struct weight *t = weights_find(b->w, name);
    if (!t) {
        err_set(b->err, ERR_FORMAT,
                "%s: no tensor %s, which the configuration (%s, %" PRId64 " layers) needs",
                weights_path(b->w), name, b->m->config.arch->name, b->m->config.n_layers);
        return NULL;
    }
    int64_t want[3] = {b->dims[DIM_EXPERTS], b->dims[roles[role].rows], b->dims[roles[role].cols]};
    int n = merged ? 3 : roles[role].rows == DIM_ONE ? 1 : 2;
    if (t->n_dims != n || memcmp(t->shape, want + 3 - n, (size_t)n * sizeof(want[0])) != 0) {
        wrong_shape(b, t, role, want + 3 - n, n);
        return NULL;
    }
    if (!dtype_runnable(t->dtype)) {
        err_set(b->err, ERR_UNSUPPORTED, "%s: tensor %s has type %s, which cannot be run", weights_path(b->w),
                t->name, dtype_info(t->dtype)->name);
        return NULL;
    }
    return t;
}

static int add(const struct binder *b, struct tensor *dst, struct backend *be, const struct weight *t,
               int64_t first, int64_t rows, bool vector)
{
    struct bind_plan *p = b->plan;
    struct bind_item *grown = mem_grow(p->items, &p->cap, p->n + 1, sizeof(*p->items));
    if (!grown)
        return err_set(b->err, ERR_NOMEM, "%s: no memory for the list of tensors", weights_path(b->w));
    p->items = grown;
    p->items[p->n++] = (struct bind_item){dst, be, t, first, rows, t->shape[t->n_dims - 1], vector};
    return 0;
}

/* ---- roles ---- */

static int add_whole(const struct binder *b, enum role role, int64_t l, struct tensor *dst,
                     struct backend *be)
{
    const struct weight *t = find(b, role, l, 0, false);
    return t ? add(b, dst, be, t, 0, b->dims[roles[role].rows], roles[role].rows == DIM_ONE) : b->err->code;
}

/* Parts of one matrix, one after the other. */
static int add_parts(const struct binder *b, enum role role, int64_t l, struct tensor *const *dst,
                     const enum dim *rows, int n)
{
    const struct weight *t = find(b, role, l, 0, false);
    int rc = t ? 0 : b->err->code;
    int64_t first = 0;
    for (int i = 0; i < n && rc == 0; first += b->dims[rows[i]], i++)
        rc = add(b, dst[i], b->m->layers[l].be, t, first, b->dims[rows[i]], false);
    return rc;
}

static int add_experts(const struct binder *b, enum role role, int64_t l, struct tensor **list)
{
    int64_t n = b->m->config.n_experts, rows = b->dims[roles[role].rows];
    bool merged = names_merged_experts(&b->names);
    *list = mem_array((size_t)n, sizeof(**list));
    if (!*list)
        return err_set(b->err, ERR_NOMEM, "%s: no memory for %" PRId64 " experts", weights_path(b->w), n);
    for (int64_t e = 0; e < n; e++) {
        const struct weight *t = find(b, role, l, e, merged);
        int rc =
            t ? add(b, &(*list)[e], b->m->layers[l].be, t, merged ? e * rows : 0, rows, false) : b->err->code;
        if (rc)
            return rc;
    }
    return 0;
}

static int bind_layer(const struct binder *b, int64_t l)
{
    struct layer *layer = &b->m->layers[l];
    struct tensor *const qkv[] = {&layer->q, &layer->k, &layer->v}, *const gate_up[] = {&layer->gate,
                                                                                        &layer->up};
    static const enum dim qkv_rows[] = {DIM_Q, DIM_KV, DIM_KV}, gate_up_rows[] = {DIM_FF, DIM_FF};
    unsigned has = layer_has(&b->m->config, l);
    int rc = 0;
    for (int role = ROLE_ATTN_NORM; role < ROLE_COUNT && rc == 0; role++) {
        void *field = (char *)layer + roles[role].field;
        if ((roles[role].needs & has) != roles[role].needs)
            continue;
        if (role == ROLE_QKV)
            rc = add_parts(b, ROLE_QKV, l, qkv, qkv_rows, 3);
        else if (role == ROLE_GATE_UP)
            rc = add_parts(b, ROLE_GATE_UP, l, gate_up, gate_up_rows, 2);
        else if (role >= ROLE_EXPERT_GATE)
            rc = add_experts(b, (enum role)role, l, field);
        else
            rc = add_whole(b, (enum role)role, l, field, layer->be);
    }
    return rc;
}

/* The embedding lies where the first layer runs, norm and head where the last does. */
static int bind_ends(const struct binder *b)
{
    struct model *m = b->m;
    struct backend *first = m->layers[0].be, *last = m->layers[m->config.n_layers - 1].be;
    int rc = add_whole(b, ROLE_EMBED, 0, &m->embed, first);
    if (rc == 0)
        rc = add_whole(b, ROLE_FINAL_NORM, 0, &m->final_norm, last);
    if (rc == 0 && !m->config.tied)
        rc = add_whole(b, ROLE_HEAD, 0, &m->head, last);
    else if (rc == 0 && first != last)
        rc = add_whole(b, ROLE_EMBED, 0, &m->head, last);
    return rc;
}

/* ---- what is left over ---- */

static int by_address(const void *a, const void *b)
{
    uintptr_t x = (uintptr_t) * (const struct weight *const *)a,
              y = (uintptr_t) * (const struct weight *const *)b;
    return (x > y) - (x < y);
}

/* Tensors that can be left out without changing a result: tables made anew here, the other parts of a
 * wrapper, scalars, empty ones, and integers (counters, position lists). */
static bool harmless(const struct binder *b, const struct weight *t)
{
    const char *const *other = b->m->config.arch->wrap_others;
    if (t->n_dims == 0 || weight_elems(t) == 0 || strstr(t->name, "rotary_emb.inv_freq") ||
        strcmp(t->name, "rope_freqs.weight") == 0)
        return true;
    for (; other && *other; other++)
        if (strncmp(t->name, *other, strlen(*other)) == 0)
            return true;
    return t->dtype >= DTYPE_I8 && t->dtype <= DTYPE_BOOL;
}

static int check_leftovers(const struct binder *b)
{
    size_t n = b->plan->n, n_left = 0;
    const struct weight **used = mem_array(n, sizeof(const struct weight *)), *left = NULL;
    if (!used)
        return err_set(b->err, ERR_NOMEM, "%s: no memory for the list of tensors", weights_path(b->w));
    for (size_t i = 0; i < n; i++)
        used[i] = b->plan->items[i].src;
    qsort(used, n, sizeof(const struct weight *), by_address);
    for (size_t i = 0; i < weights_count(b->w); i++) {
        const struct weight *t = weights_at(b->w, i);
        if (bsearch(&t, used, n, sizeof(const struct weight *), by_address) || harmless(b, t))
            continue;
        left = left ? left : t;
        n_left++;
    }
    free(used);
    if (!left)
        return 0;
    char shape[200];
    put_shape(shape, sizeof(shape), left->shape, left->n_dims);
    return err_set(b->err, ERR_UNSUPPORTED,
                   "%s: tensor %s %s has no place in a %s of %" PRId64 " layers as the configuration "
                   "describes it (%zu such tensor%s); running without it would give other results",
                   weights_path(b->w), left->name, shape, b->m->config.arch->name, b->m->config.n_layers,
                   n_left, n_left == 1 ? "" : "s");
}

int bind_make(struct bind_plan *p, struct model *m, const struct weights *w, struct err *err)
{
    const struct model_config *c = &m->config;
    struct err local = {0};
    struct binder b = {p,
                       m,
                       w,
                       {0},
                       {[DIM_ONE] = 1,
                        [DIM_D] = c->d_model,
                        [DIM_Q] = c->n_heads * c->head_dim,
                        [DIM_KV] = c->n_kv_heads * c->head_dim,
                        [DIM_QKV] = (c->n_heads + 2 * c->n_kv_heads) * c->head_dim,
                        [DIM_HEAD] = c->head_dim,
                        [DIM_FF] = c->n_ff,
                        [DIM_2FF] = 2 * c->n_ff,
                        [DIM_VOCAB] = c->n_vocab,
                        [DIM_EXPERTS] = c->n_experts,
                        [DIM_FFE] = c->n_ff_expert},
                       &local};
    *p = (struct bind_plan){0};
    names_detect(&b.names, w, c->arch);
    int rc = bind_ends(&b);
    for (int64_t l = 0; l < c->n_layers && rc == 0; l++)
        rc = bind_layer(&b, l);
    if (rc == 0)
        rc = check_leftovers(&b);
    if (rc && err)
        *err = local;
    return rc;
}

void bind_free(struct bind_plan *p)
{
    free(p->items);
    *p = (struct bind_plan){0};
}

/* ---- importing ---- */

/* Norms and biases are small: f32 copies, whatever the file has. */
static int import_vector(const struct bind_item *it, struct tensor *out, const struct weights *w,
                         struct err *err)
{
    float *x = mem_array((size_t)it->cols, sizeof(float));
    if (!x)
        return err_set(err, ERR_NOMEM, "%s: no memory for tensor %s", weights_path(w), it->src->name);
    dtype_info(it->src->dtype)->to_f32(x, it->src->data, (size_t)it->cols);
    int rc = op_alloc(it->be, out, DTYPE_F32, 1, it->cols, err);
    if (rc == 0)
        op_write(it->be, out, x);
    free(x);
    return rc;
}

static int import_matrix(const struct bind_item *it, struct tensor *out, const struct weights *w,
                         struct err *err)
{
    size_t row = 0, skip = 0, file_size = 0;
    const struct weight *t = it->src;
    if (!dtype_row_size(t->dtype, it->cols, &row) || !mem_mul(row, (size_t)it->first, &skip))
        return err_set(err, ERR_FORMAT, "%s: tensor %s: rows of %" PRId64 " values are no whole blocks of %s",
                       weights_path(w), t->name, it->cols, dtype_info(t->dtype)->name);
    const uint8_t *file = t->copied ? NULL : weights_file_data(w, t->file, &file_size);
    struct host_matrix h = {t->name, t->dtype, it->rows, it->cols, t->data + skip, file, file_size};
    return op_import(it->be, out, &h, err);
}

int bind_import(struct model *m, const struct bind_item *it, const struct weights *w, struct err *err)
{
    int rc = it->vector ? import_vector(it, it->dst, w, err) : import_matrix(it, it->dst, w, err);
    if (rc == 0) {
        m->owned[m->n_owned++] = it->dst->buf;
        m->weight_bytes += tensor_size(it->dst);
    }
    return rc;
}
