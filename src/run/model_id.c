/* One number for what a model computes: every field of its configuration that changes a value, the math, and its
 * tensors' names and bytes.  A model of gigabytes is not read for it: of a large tensor pieces over its whole length
 * stand for all.  Made when it is first asked for, and kept in the loaded model.
 * Knows no files. */
#include <string.h>

#include "base/hash.h"
#include "run/load.h"

enum { PIECE = 4096, N_PIECES = 16 };

static uint64_t mix(uint64_t h, const void *data, size_t len)
{
    return hash_u64(h ^ hash_bytes(data, len, 0x5e551011));
}

static uint64_t mix_rope(uint64_t h, const struct rope_config *r, int64_t n_rot)
{
    const double scale[] = {r->theta, r->factor, r->low_freq_factor, r->high_freq_factor, r->beta_fast, r->beta_slow,
                            r->attention_factor};
    const int64_t kind[] = {r->type, r->truncate, r->orig_ctx, r->freq_factors != NULL};
    h = mix(h, scale, sizeof scale);
    h = mix(h, kind, sizeof kind);
    return r->inv_freq ? mix(h, r->inv_freq, (size_t)n_rot / 2 * sizeof *r->inv_freq) : h; /* what comes of freq_factors, too */
}

static uint64_t mix_config(uint64_t h, const struct model_config *c)
{
    const int64_t whole[] = {
        c->n_layers, c->d_model, c->n_heads, c->n_kv_heads, c->head_dim, c->n_ff, c->n_vocab, c->norm_add_one, c->qk_norm,
        c->post_norms, c->qkv_bias, c->o_bias, c->mlp_bias, c->tied, c->act, c->n_rot, c->pairs, c->n_ropes, c->n_experts,
        c->n_experts_used, c->n_ff_expert, c->moe_renorm,
    };
    const float real[] = {c->rms_eps, c->embed_scale, c->attn_scale, c->attn_softcap, c->logit_softcap};
    h = mix(h, whole, sizeof whole);
    h = mix(h, real, sizeof real);
    for (int i = 0; i < c->n_ropes; i++)
        h = mix_rope(h, &c->ropes[i], c->n_rot);
    for (int64_t i = 0; i < c->n_layers; i++) {
        const int64_t layer[] = {c->layers[i].window, c->layers[i].rope, c->layers[i].moe};
        h = mix(h, layer, sizeof layer);
    }
    return h;
}

static uint64_t mix_weight(uint64_t h, const struct weight *w)
{
    const uint64_t kind[] = {w->dtype, w->size};
    h = mix(h, w->name, strlen(w->name));
    h = mix(h, kind, sizeof kind);
    if (w->size <= PIECE * N_PIECES)
        return w->size ? mix(h, w->data, w->size) : h;
    const uint8_t *data = w->data;
    for (size_t i = 0; i < N_PIECES; i++)
        h = mix(h, data + (w->size - PIECE) / (N_PIECES - 1) * i, PIECE);
    return mix(h, data + w->size - PIECE, PIECE);
}

uint64_t load_model_id(struct loaded *l)
{
    uint64_t h = atomic_load(&l->model_id);
    if (h)
        return h;
    h = mix_config(hash_u64(l->fast), l->config);
    for (size_t i = 0; i < weights_count(l->weights); i++)
        h = mix_weight(h, weights_at(l->weights, i));
    h = h ? h : 1;
    atomic_store(&l->model_id, h); /* two who ask at once come to the same */
    return h;
}
