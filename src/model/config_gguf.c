/* Configurations from GGUF metadata, with what llama.cpp leaves unsaid: the
 * vocabulary's size (the tensor has it), gemma3's window pattern and local rope
 * base, which layers are routed (the tensors tell). */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "file/gguf.h"
#include "model/config_json.h"

struct gguf_reader {
    struct model_config *c;
    const struct arch *arch;
    const struct weights *w;
    const struct gguf *g;
    const char *path;
    struct err *err;
};

/* Keys below "ARCH." that are read here, or say nothing about the mathematics. */
static const char *const known[] = {
    "block_count", "context_length", "embedding_length", "feed_forward_length", "vocab_size",
    "attention.head_count", "attention.head_count_kv", "attention.key_length",
    "attention.value_length", "attention.layer_norm_rms_epsilon", "attention.sliding_window",
    "attention.sliding_window_pattern", "attention.scale", "attention.causal",
    "rope.dimension_count", "rope.freq_base", "rope.freq_base_swa", "rope.scale_linear",
    "rope.scaling.type", "rope.scaling.factor", "rope.scaling.original_context_length",
    "rope.scaling.finetuned", "rope.scaling.attn_factor", "rope.scaling.yarn_beta_fast",
    "rope.scaling.yarn_beta_slow", "rope.scaling.yarn_attn_factor", "expert_count",
    "expert_used_count", "expert_feed_forward_length", "expert_weights_norm", "expert_gating_func",
    "final_logit_softcapping", "tensor_data_layout",
};

/* Control tokens that end a turn or a text whatever the keys say. */
static const char *const end_tokens[] = {
    "<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|eom_id|>", "<|end_of_text|>", "<end_of_turn>",
    "<|end|>", "<EOT>",
};

#define GGUF_TOKEN_CONTROL 3

static const char *full_key(const struct gguf_reader *r, const char *key, char *out, size_t size)
{
    snprintf(out, size, "%s.%s", r->arch->gguf, key);
    return out;
}

/* A scalar, or an array whose elements are all equal (as if it were one); 1, 0 = absent, negative. */
static int get_i64(const struct gguf_reader *r, const char *key, int64_t min, int64_t max, int64_t *out)
{
    char name[160];
    const struct gguf_kv *kv = gguf_find(r->g, full_key(r, key, name, sizeof(name)));
    if (!kv || kv->type != GGUF_ARRAY)
        return gguf_get_i64(r->g, name, min, max, out, r->err);
    if (kv->n == 0 || kv->elem == GGUF_STRING || kv->elem == GGUF_ARRAY || kv->elem == GGUF_F32 ||
        kv->elem == GGUF_F64)
        return err_set(r->err, ERR_FORMAT, "%s: %s must be an integer", r->path, name);
    int64_t v = gguf_elem_i64(kv, 0);
    for (uint64_t i = 1; i < kv->n; i++)
        if (gguf_elem_i64(kv, i) != v)
            return err_set(r->err, ERR_UNSUPPORTED, "%s: %s differs between layers, which cannot be run",
                           r->path, name);
    if (v < min || v > max)
        return err_set(r->err, ERR_FORMAT, "%s: %s is %" PRId64 ", allowed are %" PRId64 " to %" PRId64,
                       r->path, name, v, min, max);
    *out = v;
    return 1;
}

static int get_f64(const struct gguf_reader *r, const char *key, double *out)
{
    char name[160];
    return gguf_get_f64(r->g, full_key(r, key, name, sizeof(name)), out, r->err);
}

static int required(const struct gguf_reader *r, const char *key, int64_t *out)
{
    int rc = get_i64(r, key, 1, INT32_MAX, out);
    if (rc == 0)
        return err_set(r->err, ERR_FORMAT, "%s: no key %s.%s", r->path, r->arch->gguf, key);
    return rc < 0 ? rc : 0;
}

/* ---- what is said and not understood ---- */

static bool neutral(const struct gguf_kv *kv)
{
    if (kv->type == GGUF_STRING || kv->type == GGUF_ARRAY) {
        size_t cursor = 0;
        struct gguf_str s = {"", 0};
        if (kv->type == GGUF_STRING)
            s = gguf_next_str(kv, &cursor);
        return kv->type == GGUF_ARRAY ? kv->n == 0
                                      : s.len == 0 || (s.len == 4 && memcmp(s.s, "none", 4) == 0);
    }
    double v =
        kv->type == GGUF_F32 || kv->type == GGUF_F64 ? gguf_elem_f64(kv, 0) : (double)gguf_elem_i64(kv, 0);
    return v == 0 || (v == 1 && config_key_factor(kv->key.s, kv->key.len));
}

static bool is_known(const char *s, size_t len)
{
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        if (strlen(known[i]) == len && memcmp(known[i], s, len) == 0)
            return true;
    return false;
}

static int check_keys(const struct gguf_reader *r)
{
    size_t skip = strlen(r->arch->gguf) + 1;
    for (size_t i = 0; i < gguf_n_kv(r->g); i++) {
        const struct gguf_kv *kv = gguf_kv_at(r->g, i);
        if (kv->key.len <= skip || memcmp(kv->key.s, r->arch->gguf, skip - 1) != 0 ||
            kv->key.s[skip - 1] != '.')
            continue;
        const char *s = kv->key.s + skip;
        size_t len = kv->key.len - skip;
        if (is_known(s, len) || neutral(kv))
            continue;
        if (config_key_suspicious(s, len))
            return err_set(r->err, ERR_UNSUPPORTED, "%s: %.*s is an option that %s cannot be run with here",
                           r->path, (int)(kv->key.len < 100 ? kv->key.len : 100), kv->key.s, r->arch->name);
        log_msg(LOG_VERBOSE, "%s: unknown key %.*s is not used", r->path, (int)(len < 100 ? len : 100), s);
    }
    return 0;
}

/* ---- the parts ---- */

static int find_arch(struct gguf_reader *r)
{
    struct gguf_str s = {NULL, 0};
    char list[256];
    int rc = gguf_get_str(r->g, "general.architecture", &s, r->err);
    if (rc <= 0)
        return rc < 0 ? rc : err_set(r->err, ERR_FORMAT, "%s: no key general.architecture", r->path);
    r->arch = arch_by_gguf(s.s, s.len);
    if (!r->arch)
        return err_set(r->err, ERR_UNSUPPORTED, "%s: architecture %.*s cannot be run; known are %s", r->path,
                       (int)(s.len < 60 ? s.len : 60), s.s, config_arch_list(list, sizeof(list)));
    return 0;
}

static int read_sizes(const struct gguf_reader *r)
{
    struct model_config *c = r->c;
    struct names n;
    int64_t n_layers = 0, value_len = 0;
    double eps = 0;
    int rc = required(r, "block_count", &n_layers);
    if (rc == 0)
        rc = config_layers(c, n_layers, r->path, "block_count", r->err);
    if (rc || (rc = required(r, "embedding_length", &c->d_model)) ||
        (rc = required(r, "attention.head_count", &c->n_heads)) ||
        (rc = required(r, "context_length", &c->n_ctx_max)) ||
        (rc = required(r, "feed_forward_length", &c->n_ff)))
        return rc;
    c->n_kv_heads = c->n_heads;
    c->head_dim = c->d_model / c->n_heads;
    if ((rc = get_i64(r, "attention.head_count_kv", 1, INT32_MAX, &c->n_kv_heads)) < 0 ||
        (rc = get_i64(r, "attention.key_length", 1, INT32_MAX, &c->head_dim)) < 0)
        return rc;
    value_len = c->n_rot = c->head_dim;
    if ((rc = get_i64(r, "attention.value_length", 1, INT32_MAX, &value_len)) < 0 ||
        (rc = get_i64(r, "rope.dimension_count", 1, INT32_MAX, &c->n_rot)) < 0 ||
        (rc = get_f64(r, "attention.layer_norm_rms_epsilon", &eps)) < 0)
        return rc;
    if (rc == 0)
        return err_set(r->err, ERR_FORMAT, "%s: no key %s.attention.layer_norm_rms_epsilon", r->path,
                       r->arch->gguf);
    if (value_len != c->head_dim)
        return err_set(r->err, ERR_UNSUPPORTED,
                       "%s: attention.value_length %" PRId64 " differs from key_length %" PRId64, r->path,
                       value_len, c->head_dim);
    c->rms_eps = (float)eps;
    names_detect(&n, r->w, r->arch);
    const struct weight *embed = names_find(&n, r->w, ROLE_EMBED, 0, 0);
    if (!embed || embed->n_dims != 2)
        return err_set(r->err, ERR_FORMAT, "%s: no tensor token_embd.weight of two dimensions", r->path);
    c->n_vocab = embed->shape[0];
    return 0;
}

static int read_scales(const struct gguf_reader *r)
{
    struct model_config *c = r->c;
    double scalar = c->n_layers == r->arch->gguf_by_heads ? (double)c->d_model / (double)c->n_heads
                                                          : (double)c->head_dim;
    double scale = 1 / sqrt(scalar), cap = 0;
    int rc;
    if ((rc = get_f64(r, "attention.scale", &scale)) < 0 ||
        (rc = get_f64(r, "final_logit_softcapping", &cap)) < 0)
        return rc;
    if (!r->arch->logit_softcap && cap != 0)
        return err_set(r->err, ERR_UNSUPPORTED,
                       "%s: final_logit_softcapping is an option that %s cannot be run with here", r->path,
                       r->arch->name);
    c->attn_scale = (float)scale;
    c->logit_softcap = (float)cap;
    c->embed_scale = r->arch->scale_embed ? (float)sqrt((double)c->d_model) : 1;
    c->norm_add_one = false; /* added when the file was written */
    c->pairs = r->arch->gguf_pairs;
    c->tied = true;          /* unless output.weight is there */
    return 0;
}

/* Biases are there or not; bind.c wants them in every layer then. */
static void read_biases(const struct gguf_reader *r)
{
    struct names n;
    names_detect(&n, r->w, r->arch);
    if (r->arch->bias != BIAS_NONE) {
        r->c->qkv_bias = r->arch->bias == BIAS_QKV || names_find(&n, r->w, ROLE_Q_BIAS, 0, 0) != NULL;
        r->c->o_bias = names_find(&n, r->w, ROLE_O_BIAS, 0, 0) != NULL;
    }
    r->c->mlp_bias = r->arch->mlp_bias_flag && names_find(&n, r->w, ROLE_GATE_BIAS, 0, 0) != NULL;
}

static int read_yarn(const struct gguf_reader *r, struct rope_config *rope)
{
    double factor = 1;
    int rc;
    rope->truncate = true;
    rope->beta_fast = 32;
    rope->beta_slow = 1;
    if ((rc = get_f64(r, "rope.scaling.yarn_beta_fast", &rope->beta_fast)) < 0 ||
        (rc = get_f64(r, "rope.scaling.yarn_beta_slow", &rope->beta_slow)) < 0 ||
        (rc = get_f64(r, "rope.scaling.attn_factor", &factor)) < 0 ||
        (rc = get_f64(r, "rope.scaling.yarn_attn_factor", &factor)) < 0)
        return rc;
    rope->attention_factor = factor * rope_yarn_mscale(rope->factor, 1);
    return 0;
}

static int read_scaling(const struct gguf_reader *r, struct rope_config *rope)
{
    struct gguf_str type = {"none", 4};
    char key[160];
    rope->orig_ctx = r->c->n_ctx_max;
    int rc = get_f64(r, "rope.scale_linear", &rope->factor); /* the older key */
    if (rc == 1)
        type = (struct gguf_str){"linear", 6};
    if (rc < 0 ||
        (rc = gguf_get_str(r->g, full_key(r, "rope.scaling.type", key, sizeof(key)), &type, r->err)) < 0 ||
        (rc = get_f64(r, "rope.scaling.factor", &rope->factor)) < 0 ||
        (rc = get_i64(r, "rope.scaling.original_context_length", 1, INT32_MAX, &rope->orig_ctx)) < 0)
        return rc;
    if (!rope_type_by_name(type.s, type.len, &rope->type) || rope->type == ROPE_LLAMA3)
        return err_set(r->err, ERR_UNSUPPORTED, "%s: %s %.*s cannot be run; known are none, linear, yarn",
                       r->path, key, (int)(type.len < 40 ? type.len : 40), type.s);
    return rope->type == ROPE_YARN ? read_yarn(r, rope) : 0;
}

/* rope_freqs.weight [n_rot / 2]: each frequency is divided by it. */
static int read_factors(const struct gguf_reader *r, struct rope_config *rope)
{
    const struct weight *t = weights_find(r->w, "rope_freqs.weight");
    if (weights_find(r->w, "rope_factors_long.weight") || weights_find(r->w, "rope_factors_short.weight"))
        return err_set(r->err, ERR_UNSUPPORTED,
                       "%s: rope_factors_long.weight: rope scaling of type longrope cannot be run", r->path);
    if (!t)
        return 0;
    if (t->n_dims != 1 || t->dtype != DTYPE_F32 || t->shape[0] != r->c->n_rot / 2)
        return err_set(r->err, ERR_FORMAT,
                       "%s: tensor rope_freqs.weight is %s of %" PRId64
                       " values in %d dimensions, wanted are %" PRId64 " F32 values",
                       r->path, dtype_info(t->dtype)->name, weight_elems(t), t->n_dims, r->c->n_rot / 2);
    rope->freq_factors = mem_array((size_t)t->shape[0], sizeof(float));
    if (!rope->freq_factors)
        return err_set(r->err, ERR_NOMEM, "%s: no memory for rope_freqs.weight", r->path);
    dtype_info(DTYPE_F32)->to_f32(rope->freq_factors, t->data, (size_t)t->shape[0]);
    for (int64_t i = 0; i < t->shape[0]; i++)
        if (!(rope->freq_factors[i] > 0 && rope->freq_factors[i] < 1e9F))
            return err_set(r->err, ERR_FORMAT, "%s: tensor rope_freqs.weight: value %" PRId64 " is %g",
                           r->path, i, (double)rope->freq_factors[i]);
    return 0;
}

static int read_ropes(const struct gguf_reader *r)
{
    struct model_config *c = r->c;
    int rc;
    c->n_ropes = r->arch->gguf_window == WINDOW_PATTERN ? 2 : 1;
    c->ropes[0].theta = r->arch->defaults.theta;
    c->ropes[1].theta = r->arch->defaults.theta_local;
    if ((rc = get_f64(r, "rope.freq_base", &c->ropes[0].theta)) < 0 ||
        (c->n_ropes == 2 && (rc = get_f64(r, "rope.freq_base_swa", &c->ropes[1].theta)) < 0))
        return rc;
    rc = read_scaling(r, &c->ropes[0]);
    return rc == 0 ? read_factors(r, &c->ropes[0]) : rc;
}

static int read_windows(const struct gguf_reader *r)
{
    struct model_config *c = r->c;
    int64_t window = 0, pattern = r->arch->defaults.pattern;
    char key[160];
    int rc = get_i64(r, "attention.sliding_window", 0, INT32_MAX, &window);
    const struct gguf_kv *kv =
        gguf_find(r->g, full_key(r, "attention.sliding_window_pattern", key, sizeof(key)));
    if (rc >= 0 && kv && kv->type != GGUF_ARRAY)
        rc = get_i64(r, "attention.sliding_window_pattern", 1, INT32_MAX, &pattern);
    if (rc < 0)
        return rc;
    if (window > 0 && r->arch->gguf_window == WINDOW_NONE)
        return err_set(r->err, ERR_UNSUPPORTED,
                       "%s: attention.sliding_window %" PRId64
                       " is an option that %s cannot be run with here",
                       r->path, window, r->arch->name);
    bool each = kv && kv->type == GGUF_ARRAY;
    if (each && (kv->n != (uint64_t)c->n_layers || kv->elem != GGUF_BOOL))
        return err_set(r->err, ERR_FORMAT, "%s: %s must hold one bool for each of %" PRId64 " layers",
                       r->path, key, c->n_layers);
    for (int64_t l = 0; l < c->n_layers; l++) {
        bool sliding = each ? gguf_elem_i64(kv, (uint64_t)l) != 0
                            : r->arch->gguf_window == WINDOW_ALL || (pattern > 0 && (l + 1) % pattern != 0);
        c->layers[l].window = sliding ? (int)window : 0;
        c->layers[l].rope = sliding && c->n_ropes == 2;
    }
    return 0;
}

static int read_experts(const struct gguf_reader *r)
{
    struct model_config *c = r->c;
    struct names n;
    int64_t gating = 1;
    char key[160];
    int rc;
    c->moe_renorm = true; /* as every qwen3moe has it */
    if ((rc = get_i64(r, "expert_count", 0, 4096, &c->n_experts)) < 0 ||
        (rc = get_i64(r, "expert_used_count", 0, 4096, &c->n_experts_used)) < 0 ||
        (rc = get_i64(r, "expert_feed_forward_length", 0, 1 << 24, &c->n_ff_expert)) < 0 ||
        (rc = get_i64(r, "expert_gating_func", 0, 1000, &gating)) < 0 ||
        (rc = gguf_get_bool(r->g, full_key(r, "expert_weights_norm", key, sizeof(key)), &c->moe_renorm,
                            r->err)) < 0)
        return rc;
    if (c->n_experts > 0 && !r->arch->moe)
        return err_set(r->err, ERR_UNSUPPORTED,
                       "%s: expert_count %" PRId64 ": %s with routed experts cannot be run", r->path,
                       c->n_experts, r->arch->name);
    if (c->n_experts > 0 && gating > 1)
        return err_set(r->err, ERR_UNSUPPORTED,
                       "%s: expert_gating_func %" PRId64 " cannot be run, only softmax (1)", r->path, gating);
    names_detect(&n, r->w, r->arch);
    for (int64_t l = 0; l < c->n_layers; l++)
        c->layers[l].moe = r->arch->moe && names_find(&n, r->w, ROLE_ROUTER, l, 0) != NULL;
    return 0;
}

/* ---- ids ---- */

static int add_named_ends(const struct gguf_reader *r)
{
    const struct gguf_kv *tokens = gguf_find(r->g, "tokenizer.ggml.tokens"),
                         *types = gguf_find(r->g, "tokenizer.ggml.token_type");
    if (!tokens || !types || tokens->type != GGUF_ARRAY || types->type != GGUF_ARRAY ||
        tokens->elem != GGUF_STRING || types->elem == GGUF_STRING || types->elem == GGUF_ARRAY ||
        types->n != tokens->n)
        return 0; /* the tokenizer's reader complains */
    size_t cursor = 0;
    for (uint64_t i = 0; i < tokens->n; i++) {
        struct gguf_str s = gguf_next_str(tokens, &cursor);
        if (s.len == 0 || s.s[0] != '<' || gguf_elem_i64(types, i) != GGUF_TOKEN_CONTROL)
            continue;
        for (size_t k = 0; k < sizeof(end_tokens) / sizeof(end_tokens[0]); k++)
            if (strlen(end_tokens[k]) == s.len && memcmp(end_tokens[k], s.s, s.len) == 0 &&
                !config_add_eos(r->c, (int64_t)i))
                return err_set(r->err, ERR_UNSUPPORTED, "%s: more than %d end ids", r->path, CONFIG_EOS_MAX);
    }
    return 0;
}

static int read_ids(const struct gguf_reader *r)
{
    static const char *const keys[] = {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                                       "tokenizer.ggml.eom_token_id"};
    int64_t bos = -1;
    struct gguf_str name = {"", 0};
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        int64_t id = -1;
        int rc = gguf_get_i64(r->g, keys[i], -1, UINT32_MAX, &id, r->err);
        if (rc < 0)
            return rc;
        config_add_eos(r->c, id); /* three keys fit the empty table */
    }
    int rc = gguf_get_i64(r->g, "tokenizer.ggml.bos_token_id", -1, UINT32_MAX, &bos, r->err);
    if (rc >= 0)
        rc = gguf_get_str(r->g, "general.name", &name, r->err);
    if (rc < 0)
        return rc;
    r->c->bos = bos > INT32_MAX ? -1 : (int32_t)bos;
    snprintf(r->c->name, sizeof(r->c->name), "%.*s", (int)(name.len < 127 ? name.len : 127), name.s);
    return add_named_ends(r);
}

static int check_causal(const struct gguf_reader *r)
{
    bool causal = true;
    char key[160];
    int rc = gguf_get_bool(r->g, full_key(r, "attention.causal", key, sizeof(key)), &causal, r->err);
    if (rc >= 0 && !causal)
        return err_set(r->err, ERR_UNSUPPORTED, "%s: %s is false: only causal attention can be run", r->path,
                       key);
    return rc < 0 ? rc : 0;
}

int config_from_gguf(struct model_config *c, const struct weights *w, struct err *err)
{
    static int (*const steps[])(const struct gguf_reader *) = {
        check_keys, check_causal, read_sizes, read_scales, read_ropes, read_windows, read_experts, read_ids};
    const struct gguf *g = weights_gguf(w);
    struct gguf_reader r = {c, NULL, w, g, gguf_path(g), err};
    int rc = find_arch(&r);
    if (rc)
        return rc;
    config_start(c, r.arch);
    for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]) && rc == 0; i++)
        rc = steps[i](&r);
    if (rc)
        return rc;
    read_biases(&r);
    return config_settle(c, r.path, err);
}
