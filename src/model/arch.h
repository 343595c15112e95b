/* The architecture table and the names of tensors.
 *
 * One row per architecture: everything that tells it from the others, as data.
 * Readers of configurations copy a row's switches into model_config; bind.c
 * looks tensors up by role.  Nothing here knows of devices. */
#ifndef FORGE_MODEL_ARCH_H
#define FORGE_MODEL_ARCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backend/op.h"
#include "file/weights.h"

/* What a tensor is for. The first ones exist once, the others in each layer. */
enum role {
    ROLE_EMBED, ROLE_FINAL_NORM, ROLE_HEAD,
    ROLE_ATTN_NORM, ROLE_Q, ROLE_K, ROLE_V, ROLE_QKV, ROLE_O,
    ROLE_Q_BIAS, ROLE_K_BIAS, ROLE_V_BIAS, ROLE_O_BIAS, ROLE_Q_NORM, ROLE_K_NORM,
    ROLE_POST_ATTN_NORM, ROLE_MLP_NORM, ROLE_POST_MLP_NORM,
    ROLE_GATE, ROLE_UP, ROLE_GATE_UP, ROLE_DOWN, ROLE_GATE_BIAS, ROLE_UP_BIAS, ROLE_DOWN_BIAS,
    ROLE_ROUTER, ROLE_EXPERT_GATE, ROLE_EXPERT_UP, ROLE_EXPERT_DOWN,
    ROLE_COUNT
};

/* Who has chosen the names: Hugging Face, llama.cpp, the "reasoning from scratch" book. */
enum naming { NAMING_HF, NAMING_GGUF, NAMING_BOOK, NAMING_COUNT };

struct role_name { enum role role; const char *name; };

enum bias_rule {
    BIAS_NONE,
    BIAS_QKV, /* always on q, k, v, never on o */
    BIAS_FLAG /* all four, if attention_bias says so */
};

enum window_rule {
    WINDOW_NONE,
    WINDOW_ALL,        /* every layer, where a window is given */
    WINDOW_FROM_LAYER, /* layers from max_window_layers on, where use_sliding_window is true */
    WINDOW_PATTERN     /* all but every n-th layer, those with their own rope base */
};

/* Values of keys that a config.json may leave out: those of its own configuration class. 0 = must be given.
 */
struct arch_defaults {
    int64_t n_vocab, n_heads, n_kv_heads, head_dim, n_ctx, window, pattern;
    double eps, theta, theta_local, query_scalar;
    bool tied;
};

struct arch {
    const char *name;                      /* shown to users */
    const char *gguf;                      /* general.architecture; NULL = comes under another name */
    const char *hf_class, *hf_type;        /* architectures[0], model_type */
    const char *wrap_class, *wrap_type;    /* those of a folder whose text model lies in text_config, or NULL */
    const char *const *wrap_others;        /* prefixes of the tensors of such a folder's other parts; NULL-ended */
    const char *act_key;                   /* key of the activation in config.json */
    const char *const *json_keys;          /* understood beside the common ones; NULL-ended */
    const struct role_name *names[NAMING_COUNT]; /* where they differ from the common names; ended by a NULL name */
    enum op_act act;
    enum op_pairs gguf_pairs;              /* order of q and k rows in a GGUF */
    enum bias_rule bias;
    enum window_rule window, gguf_window;
    bool mlp_bias_flag;  /* mlp_bias is understood */
    bool qk_norm;
    bool post_norms;
    bool norm_add_one;   /* folders only */
    bool scale_embed;    /* by sqrt(d_model) */
    bool query_scalar;   /* attention scale from query_pre_attn_scalar */
    int64_t gguf_by_heads; /* a GGUF of so many layers takes d_model / n_heads for it; 0 = none does */
    bool logit_softcap;  /* final_logit_softcapping */
    bool fused;          /* q, k, v in one matrix; gate and up in one */
    bool partial_rot;    /* partial_rotary_factor */
    bool moe;
    struct arch_defaults defaults;
};

size_t arch_count(void);
const struct arch *arch_at(size_t i);
const struct arch *arch_by_name(const char *name); /* our own name; NULL = unknown */
const struct arch *arch_by_gguf(const char *s, size_t len);
/* By class or by model_type, wrappers included (*wrapped tells). */
const struct arch *arch_by_class(const char *hf_class, bool *wrapped);
const struct arch *arch_by_type(const char *model_type, bool *wrapped);

/* The names in one opened file. */
struct names {
    enum naming naming;
    const char *prefix;      /* before everything but the head: "model." */
    const char *head_prefix;
    const struct arch *arch; /* may be NULL while it is not known */
};
/* Finds out by the embedding's name; false (and Hugging Face's names) when there is none. */
bool names_detect(struct names *n, const struct weights *w, const struct arch *arch);
/* Name of a role's tensor; layer and expert are ignored where the name has none. false = this naming
 * has no such tensor. */
bool names_make(const struct names *n, enum role role, int64_t layer, int64_t expert, char *out, size_t size);
bool names_merged_experts(const struct names *n); /* one 3-D tensor for all experts of a layer */
const struct weight *names_find(const struct names *n, const struct weights *w, enum role role, int64_t layer,
                                int64_t expert);

#endif
