/* What a model is: sizes and switches, from config.json, GGUF metadata, the
 * shapes of a .pth, or a preset.  Everything architecture-specific ends here
 * and in arch.c: forward.c reads fields, never names.
 *
 * Law: an option that changes the mathematics and is not implemented is an
 * error that names it, never ignored. */
#ifndef FORGE_MODEL_CONFIG_H
#define FORGE_MODEL_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

#include "backend/op.h"
#include "base/err.h"
#include "file/weights.h"

#define CONFIG_LAYERS_MAX 1024
#define CONFIG_EOS_MAX 16
#define CONFIG_KV_GROUPS_MAX 8
#define CONFIG_ROPES_MAX 2

enum rope_type { ROPE_DEFAULT, ROPE_LINEAR, ROPE_LLAMA3, ROPE_YARN };

struct rope_config {
    double theta;
    enum rope_type type;
    double factor;
    double low_freq_factor, high_freq_factor; /* llama3 */
    double beta_fast, beta_slow;              /* yarn */
    bool truncate;                            /* yarn: round the ramp's ends */
    double attention_factor;                  /* yarn: on cos and sin, settled when read */
    int64_t orig_ctx;                         /* llama3, yarn */
    float *freq_factors; /* GGUF rope_freqs: divides each frequency; [n_rot/2] or NULL; owned */
    double *inv_freq;    /* [n_rot/2] radians per position, settled when read; owned */
};

struct layer_config {
    int kv_group;
    int window; /* 0 = full attention */
    int rope;   /* index into ropes */
    bool moe;   /* routed experts instead of the dense MLP */
};

/* Layers that share a page table: same window, n_kv_heads, head_dim (and instance, settled when bound). */
struct kv_group { int window, n_kv_heads, head_dim, n_layers; };

struct sampling_defaults { /* generation_config; < 0 = not given */
    double temp, top_p, min_p, repeat_penalty;
    int64_t top_k;
};

struct arch; /* row of arch.c's table */

struct model_config {
    const struct arch *arch;
    char name[128]; /* general.name, _name_or_path or the folder's name; may be empty */
    int64_t n_layers, d_model, n_heads, n_kv_heads, head_dim, n_ff, n_vocab, n_ctx_max;
    float rms_eps;
    bool norm_add_one;    /* norms multiply by 1 + w (gemma folders; a GGUF has it added already) */
    bool qk_norm;
    bool post_norms;      /* gemma3: norms after attention and MLP, before the residual */
    bool qkv_bias, o_bias, mlp_bias; /* by flag; bind.c checks them against the tensors */
    bool tied;            /* no head tensor: the embedding is used */
    enum op_act act;
    float embed_scale;    /* 1 = none */
    float attn_scale, attn_softcap, logit_softcap; /* softcaps: 0 = off */
    int64_t n_rot;        /* rotated values per head */
    enum op_pairs pairs;
    struct rope_config ropes[CONFIG_ROPES_MAX];
    int n_ropes;
    int64_t n_experts, n_experts_used, n_ff_expert;
    bool moe_renorm;
    struct layer_config *layers; /* [n_layers]; owned */
    struct kv_group groups[CONFIG_KV_GROUPS_MAX];
    int n_groups;
    int32_t eos[CONFIG_EOS_MAX]; /* every id that ends a text */
    int n_eos;
    int32_t bos;                 /* -1 = none */
    struct sampling_defaults sampling;
};

/* Finds the configuration for opened weights: GGUF metadata (a `config` beside it is refused); else `config` (a
 * file, a folder or a preset name) when not NULL; else config.json beside the weights (+ generation_config.json); else, for a .pth
 * with the book's names, the shapes.  config_fini also after an error. */
int config_load(struct model_config *c, const struct weights *w, const char *config, struct err *err);
/* Gives layers of the same window one group; where place is not NULL, only those of the same place[l]. */
int config_group(struct model_config *c, const int *place, const char *where, struct err *err);
void config_fini(struct model_config *c);

const char *config_arch_name(const struct model_config *c);
const char *config_arch_list(char *out, size_t size); /* "gemma3, llama, ..." for messages */
int64_t config_n_params(const struct weights *w);

/* cos and sin of every pair at one position, as op_rope wants them: out [n_rot] (angles in double). */
void rope_row(const struct model_config *c, int rope, int64_t pos, float *out);

/* KV bytes of one position over all layers (K and V) in a cache of `dtype`. */
uint64_t config_kv_bytes_per_pos(const struct model_config *c, enum dtype dtype);

#endif
