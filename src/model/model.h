/* A model bound to devices: every tensor of the file found by name, checked
 * against the configuration's shapes, imported where its layer runs.  Immutable
 * once it is open, but for being bound to other instances. */
#ifndef FORGE_MODEL_MODEL_H
#define FORGE_MODEL_MODEL_H

#include "backend/op.h"
#include "model/config.h"

struct layer {
    struct backend *be; /* borrowed: where this layer runs */
    struct tensor attn_norm, q, k, v, o;         /* norms [1, d] f32; q [n_heads * head_dim, d] ... o [d, n_heads * head_dim] */
    struct tensor q_bias, k_bias, v_bias, o_bias; /* [1, n] f32; buf NULL = none */
    struct tensor q_norm, k_norm;                /* [1, head_dim]; buf NULL = none */
    struct tensor post_attn_norm, mlp_norm, post_mlp_norm;
    struct tensor gate, up, down;                /* [n_ff, d], [n_ff, d], [d, n_ff] */
    struct tensor gate_bias, up_bias, down_bias;
    struct tensor router;                        /* [n_experts, d] */
    struct tensor *expert_gate, *expert_up, *expert_down; /* [n_experts] matrices, NULL = dense */
};

struct model {
    struct model_config config; /* owned */
    struct layer *layers;       /* [n_layers] */
    struct tensor embed, final_norm, head, head_bias; /* embed on the first layer's instance; norm and head on the last's */
    struct backend **instances; /* borrowed, each distinct one once */
    int n_instances;
    struct buffer **owned;      /* every imported buffer */
    size_t n_owned;
    uint64_t weight_bytes;
};

/* Called while weights are imported; done and total in tensors. Non-zero = stop (ERR_CANCELLED). */
typedef int model_progress(void *user, size_t done, size_t total);

/* Binds and imports.  Takes the configuration over (moved; *config is emptied) also on error.
 * split[i] is instance i's share of the layers, NULL = equal. */
int model_open(struct model **out, struct model_config *config, const struct weights *w,
               struct backend *const *instances, int n_instances, const double *split,
               model_progress *progress, void *user, struct err *err);
void model_close(struct model *m);
/* Gives every buffer back, before its instances close; and binds again, after others were opened in their place.
 * After an error of model_bind only model_unbind and model_close may follow. */
void model_unbind(struct model *m);
int model_bind(struct model *m, const struct weights *w, struct backend *const *instances, int n_instances,
               const double *split, model_progress *progress, void *user, struct err *err);

#endif
