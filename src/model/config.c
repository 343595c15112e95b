/* Configurations: which source is read, what every source must satisfy, and the
 * figures that follow from it.  The sources themselves are config_json.c,
 * config_gguf.c and config_pth.c. */
#include "model/config.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/map.h"
#include "base/mem.h"
#include "model/config_parts.h"

/* Sizes no model comes near, so that products of two of them fit an int64 and
 * one of them fits the int of backend/op.h. */
static const struct {
    const char *name;
    size_t off;
    int64_t max;
} sizes[] = {
    {"d_model (hidden_size, embedding_length)", offsetof(struct model_config, d_model), 1 << 20},
    {"n_heads (num_attention_heads, attention.head_count)", offsetof(struct model_config, n_heads), 1 << 14},
    {"n_kv_heads (num_key_value_heads, attention.head_count_kv)", offsetof(struct model_config, n_kv_heads),
     1 << 14},
    {"head_dim (attention.key_length)", offsetof(struct model_config, head_dim), 1 << 14},
    {"n_ff (intermediate_size, feed_forward_length)", offsetof(struct model_config, n_ff), 1 << 24},
    {"n_vocab (vocab_size)", offsetof(struct model_config, n_vocab), 1 << 26},
    {"n_ctx_max (max_position_embeddings, context_length)", offsetof(struct model_config, n_ctx_max),
     INT32_MAX},
};

void config_start(struct model_config *c, const struct arch *arch)
{
    *c = (struct model_config){
        .arch = arch,
        .norm_add_one = arch->norm_add_one,
        .qk_norm = arch->qk_norm,
        .post_norms = arch->post_norms,
        .qkv_bias = arch->bias == BIAS_QKV,
        .act = arch->act,
        .embed_scale = 1,
        .bos = -1,
        .sampling = {-1, -1, -1, -1, -1},
    };
}

void config_fini(struct model_config *c)
{
    for (int i = 0; i < CONFIG_ROPES_MAX; i++) {
        free(c->ropes[i].freq_factors);
        free(c->ropes[i].inv_freq);
    }
    free(c->layers);
    *c = (struct model_config){0};
}

int config_layers(struct model_config *c, int64_t n_layers, const char *where, const char *key,
                  struct err *err)
{
    if (n_layers < 1 || n_layers > CONFIG_LAYERS_MAX)
        return err_set(err, ERR_FORMAT, "%s: %s is %" PRId64 ", allowed are 1 to %d", where, key, n_layers,
                       CONFIG_LAYERS_MAX);
    free(c->layers);
    c->layers = mem_array((size_t)n_layers, sizeof(*c->layers));
    if (!c->layers)
        return err_set(err, ERR_NOMEM, "%s: no memory for %" PRId64 " layers", where, n_layers);
    c->n_layers = n_layers;
    return 0;
}

bool config_add_eos(struct model_config *c, int64_t id)
{
    if (id < 0 || id > INT32_MAX)
        return true;
    for (int i = 0; i < c->n_eos; i++)
        if (c->eos[i] == id)
            return true;
    if (c->n_eos == CONFIG_EOS_MAX)
        return false;
    c->eos[c->n_eos++] = (int32_t)id;
    return true;
}

static int check_sizes(const struct model_config *c, const char *where, struct err *err)
{
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        int64_t v = *(const int64_t *)(const void *)((const char *)c + sizes[i].off);
        if (v < 1 || v > sizes[i].max)
            return err_set(err, ERR_FORMAT, "%s: %s is %" PRId64 ", allowed are 1 to %" PRId64, where,
                           sizes[i].name, v, sizes[i].max);
    }
    if (c->n_heads % c->n_kv_heads != 0)
        return err_set(err, ERR_FORMAT, "%s: n_heads %" PRId64 " is no multiple of n_kv_heads %" PRId64
                       " (num_key_value_heads, attention.head_count_kv)", where, c->n_heads, c->n_kv_heads);
    if (c->n_heads * c->head_dim > 1 << 24)
        return err_set(err, ERR_FORMAT, "%s: %" PRId64 " heads of %" PRId64 " values: more than 2^24", where,
                       c->n_heads, c->head_dim);
    if (c->n_rot < 2 || c->n_rot % 2 != 0 || c->n_rot > c->head_dim)
        return err_set(err, ERR_FORMAT, "%s: %" PRId64 " rotated values of a head_dim of %" PRId64
                       ": an even number from 2 to head_dim is needed", where, c->n_rot, c->head_dim);
    if (!(c->rms_eps >= 0 && c->rms_eps < 1))
        return err_set(err, ERR_FORMAT, "%s: the norms' epsilon is %g, allowed are 0 to 1", where,
                       (double)c->rms_eps);
    if (!(c->attn_scale > 0 && c->attn_scale <= 1e6F) || !(c->embed_scale > 0 && c->embed_scale <= 1e6F))
        return err_set(err, ERR_FORMAT, "%s: attention scale %g, embedding scale %g: out of range", where,
                       (double)c->attn_scale, (double)c->embed_scale);
    if (!(c->attn_softcap >= 0 && c->attn_softcap < 1e9F) ||
        !(c->logit_softcap >= 0 && c->logit_softcap < 1e9F))
        return err_set(err, ERR_FORMAT, "%s: soft caps %g (attention), %g (logits): out of range", where,
                       (double)c->attn_softcap, (double)c->logit_softcap);
    return 0;
}

static int check_experts(const struct model_config *c, const char *where, struct err *err)
{
    bool any = false;
    for (int64_t l = 0; l < c->n_layers; l++)
        any = any || c->layers[l].moe;
    if (!any)
        return 0;
    if (c->n_experts < 1 || c->n_experts > 4096 || c->n_experts_used < 1 ||
        c->n_experts_used > c->n_experts || c->n_ff_expert < 1 || c->n_ff_expert > 1 << 24)
        return err_set(
            err, ERR_FORMAT,
            "%s: %" PRId64 " of %" PRId64 " experts of size %" PRId64 " used a token: out of range "
            "(num_experts_per_tok, num_experts, moe_intermediate_size; expert_used_count, expert_count, "
            "expert_feed_forward_length)",
            where, c->n_experts_used, c->n_experts, c->n_ff_expert);
    return 0;
}

static bool positive(double v, double max)
{
    return v > 0 && v <= max; /* false for NaN */
}

static int check_rope(const struct rope_config *r, const char *where, struct err *err)
{
    if (!positive(r->theta, 1e15) || r->theta == 1)
        return err_set(err, ERR_FORMAT, "%s: rope_theta (rope.freq_base) is %g", where, r->theta);
    if (r->type != ROPE_DEFAULT && !positive(r->factor, 1e6))
        return err_set(err, ERR_FORMAT, "%s: rope scaling: factor is %g", where, r->factor);
    if ((r->type == ROPE_LLAMA3 || r->type == ROPE_YARN) && (r->orig_ctx < 1 || r->orig_ctx > INT32_MAX))
        return err_set(err, ERR_FORMAT, "%s: rope scaling: the original context is %" PRId64, where,
                       r->orig_ctx);
    if (r->type == ROPE_LLAMA3 && !(positive(r->low_freq_factor, 1e6) && positive(r->high_freq_factor, 1e6) &&
                                    r->low_freq_factor < r->high_freq_factor))
        return err_set(err, ERR_FORMAT, "%s: rope scaling: low_freq_factor %g, high_freq_factor %g", where,
                       r->low_freq_factor, r->high_freq_factor);
    if (r->type == ROPE_YARN &&
        !(positive(r->beta_fast, 1e6) && positive(r->beta_slow, 1e6) && positive(r->attention_factor, 1e6)))
        return err_set(err, ERR_FORMAT, "%s: rope scaling: beta_fast %g, beta_slow %g, attention_factor %g",
                       where, r->beta_fast, r->beta_slow, r->attention_factor);
    return 0;
}

int config_group(struct model_config *c, const int *place, const char *where, struct err *err)
{
    int of[CONFIG_KV_GROUPS_MAX];
    c->n_groups = 0;
    for (int64_t l = 0; l < c->n_layers; l++) {
        int g = 0, at = place ? place[l] : 0;
        while (g < c->n_groups && (c->groups[g].window != c->layers[l].window || of[g] != at))
            g++;
        if (g == CONFIG_KV_GROUPS_MAX)
            return err_set(err, ERR_UNSUPPORTED, "%s: more than %d different attention windows%s", where,
                           CONFIG_KV_GROUPS_MAX, place ? ", counted on each device: use fewer devices" : "");
        if (g == c->n_groups) {
            c->groups[g] = (struct kv_group){c->layers[l].window, (int)c->n_kv_heads, (int)c->head_dim, 0};
            of[c->n_groups++] = at;
        }
        c->groups[g].n_layers++;
        c->layers[l].kv_group = g;
    }
    return 0;
}

int config_settle(struct model_config *c, const char *where, struct err *err)
{
    int rc = check_sizes(c, where, err);
    if (rc == 0)
        rc = check_experts(c, where, err);
    for (int i = 0; i < c->n_ropes && rc == 0; i++) {
        rc = check_rope(&c->ropes[i], where, err);
        if (rc == 0)
            rc = rope_settle(&c->ropes[i], c->n_rot, err);
    }
    return rc == 0 ? config_group(c, NULL, where, err) : rc;
}

/* A head of its own wins over any flag; none where the flag says untied is an error. */
static int settle_head(struct model_config *c, const struct weights *w, struct err *err)
{
    struct names n;
    if (!names_detect(&n, w, c->arch))
        return 0; /* bind.c names what is missing */
    bool head = names_find(&n, w, ROLE_HEAD, 0, 0) != NULL;
    if (!head && !c->tied) {
        char name[160];
        names_make(&n, ROLE_HEAD, 0, 0, name, sizeof(name));
        return err_set(err, ERR_FORMAT,
                       "%s: no tensor %s, and the configuration does not tie the head to the embedding "
                       "(tie_word_embeddings is false, or absent with false as the default of %s)",
                       weights_path(w), name, c->arch->name);
    }
    c->tied = !head;
    return 0;
}

/* A file, a folder with config.json, or a preset. */
static int load_named(struct model_config *c, const char *config, struct err *err)
{
    char list[512];
    if (path_is_dir(config)) {
        char *path = path_join(config, "config.json");
        int rc = path ? config_from_json(c, path, err) : err_set(err, ERR_NOMEM, "%s: no memory", config);
        free(path);
        return rc;
    }
    if (path_exists(config))
        return config_from_json(c, config, err);
    int found = config_from_preset(c, config, err);
    if (found == 0)
        return err_set(err, ERR_ARG, "%s: neither a config.json nor a preset; presets: %s", config,
                       config_preset_list(list, sizeof(list)));
    return found < 0 ? found : 0;
}

static int load_beside(struct model_config *c, const struct weights *w, struct err *err)
{
    char *path = path_join(weights_dir(w), "config.json");
    if (!path)
        return err_set(err, ERR_NOMEM, "%s: no memory", weights_path(w));
    int rc;
    struct names n;
    if (path_exists(path))
        rc = config_from_json(c, path, err);
    else if (names_detect(&n, w, NULL) && n.naming == NAMING_BOOK)
        rc = config_from_shapes(c, w, err);
    else
        rc = err_set(err, ERR_ARG,
                     "%s: no config.json beside the weights, and their names alone do not tell the model; "
                     "name one as config",
                     weights_path(w));
    free(path);
    return rc;
}

/* The folder's own name, for models without one. */
static void name_from_path(struct model_config *c, const struct weights *w)
{
    const char *s = path_basename(weights_path(w));
    if (c->name[0] == '\0' && s && s[0] != '\0' && strcmp(s, ".") != 0)
        snprintf(c->name, sizeof(c->name), "%s", s);
}

int config_load(struct model_config *c, const struct weights *w, const char *config, struct err *err)
{
    *c = (struct model_config){0};
    if (weights_gguf(w) && config)
        return err_set(err, ERR_ARG, "%s: a GGUF holds its own configuration, so that %s cannot be used with it",
                       weights_path(w), config);
    int rc = weights_gguf(w) ? config_from_gguf(c, w, err)
             : config        ? load_named(c, config, err)
                             : load_beside(c, w, err);
    if (rc == 0)
        rc = settle_head(c, w, err);
    if (rc == 0)
        name_from_path(c, w);
    return rc;
}

const char *config_arch_name(const struct model_config *c)
{
    return c->arch ? c->arch->name : "";
}

const char *config_arch_list(char *out, size_t size)
{
    size_t at = 0;
    if (size > 0)
        out[0] = '\0';
    for (size_t i = 0; i < arch_count() && at < size; i++) {
        int n = snprintf(out + at, size - at, "%s%s", i ? ", " : "", arch_at(i)->name);
        at += n > 0 ? (size_t)n : 0;
    }
    return out;
}

int64_t config_n_params(const struct weights *w)
{
    int64_t n = 0;
    for (size_t i = 0; i < weights_count(w); i++)
        n += weight_elems(weights_at(w, i));
    return n;
}

uint64_t config_kv_bytes_per_pos(const struct model_config *c, enum dtype dtype)
{
    size_t row = 0;
    if (!dtype_row_size(dtype, c->head_dim, &row))
        return 0;
    return (uint64_t)c->n_layers * 2 * (uint64_t)c->n_kv_heads * row;
}
