/* Configurations of weights that come without one: presets by name, and for the
 * book's .pth the geometry that the shapes tell.  Both fill the same row, of which
 * a preset is a stored one. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/map.h"
#include "model/config_parts.h"

/* Published models; sources: their config.json and generation_config.json. */
static const struct preset {
    const char *name, *arch;
    int64_t n_layers, d_model, n_heads, n_kv_heads, head_dim, n_ff, n_vocab, n_ctx;
    double theta, eps;
    bool tied;
    int32_t bos, eos[2]; /* -1 = none */
} presets[] = {
    /* clang-format off */
    {"qwen3-0.6b", "qwen3", 28, 1024, 16, 8, 128, 3072, 151936, 40960, 1e6, 1e-6, true, 151643, {151645, 151643}},
    {"qwen3-0.6b-base", "qwen3", 28, 1024, 16, 8, 128, 3072, 151936, 32768, 1e6, 1e-6, true, 151643, {151643, -1}},
    {"qwen3-1.7b", "qwen3", 28, 2048, 16, 8, 128, 6144, 151936, 40960, 1e6, 1e-6, true, 151643, {151645, 151643}},
    {"qwen3-1.7b-base", "qwen3", 28, 2048, 16, 8, 128, 6144, 151936, 32768, 1e6, 1e-6, true, 151643, {151643, -1}},
    {"qwen3-4b", "qwen3", 36, 2560, 32, 8, 128, 9728, 151936, 40960, 1e6, 1e-6, true, 151643, {151645, 151643}},
    {"qwen3-4b-base", "qwen3", 36, 2560, 32, 8, 128, 9728, 151936, 32768, 1e6, 1e-6, true, 151643, {151643, -1}},
    {"qwen3-8b", "qwen3", 36, 4096, 32, 8, 128, 12288, 151936, 40960, 1e6, 1e-6, false, 151643, {151645, 151643}},
    {"qwen3-8b-base", "qwen3", 36, 4096, 32, 8, 128, 12288, 151936, 32768, 1e6, 1e-6, false, 151643, {151643, -1}},
    {"qwen3-14b", "qwen3", 40, 5120, 40, 8, 128, 17408, 151936, 40960, 1e6, 1e-6, false, 151643, {151645, 151643}},
    {"qwen3-14b-base", "qwen3", 40, 5120, 40, 8, 128, 17408, 151936, 32768, 1e6, 1e-6, false, 151643, {151643, -1}},
    {"qwen3-32b", "qwen3", 64, 5120, 64, 8, 128, 25600, 151936, 40960, 1e6, 1e-6, false, 151643, {151645, 151643}},
    {"smollm2-135m", "llama", 30, 576, 9, 3, 64, 1536, 49152, 8192, 1e5, 1e-5, true, 0, {0, -1}},
    {"smollm2-135m-instruct", "llama", 30, 576, 9, 3, 64, 1536, 49152, 8192, 1e5, 1e-5, true, 1, {2, -1}},
    /* clang-format on */
};

static int fill(struct model_config *c, const struct preset *p, const char *where, struct err *err)
{
    config_start(c, arch_by_name(p->arch));
    int rc = config_layers(c, p->n_layers, where, "the number of layers", err);
    if (rc)
        return rc;
    c->d_model = p->d_model;
    c->n_heads = p->n_heads;
    c->n_kv_heads = p->n_kv_heads;
    c->head_dim = c->n_rot = p->head_dim;
    c->n_ff = p->n_ff;
    c->n_vocab = p->n_vocab;
    c->n_ctx_max = p->n_ctx;
    c->rms_eps = (float)p->eps;
    c->attn_scale = p->head_dim > 0 ? (float)(1 / sqrt((double)p->head_dim)) : 0;
    c->n_ropes = 1;
    c->ropes[0].theta = p->theta;
    c->tied = p->tied;
    c->bos = p->bos;
    config_add_eos(c, p->eos[0]);
    config_add_eos(c, p->eos[1]);
    return config_settle(c, where, err);
}

int config_from_preset(struct model_config *c, const char *name, struct err *err)
{
    for (size_t i = 0; i < sizeof(presets) / sizeof(presets[0]); i++)
        if (strcmp(presets[i].name, name) == 0) {
            int rc = fill(c, &presets[i], name, err);
            return rc ? rc : 1;
        }
    return 0;
}

const char *config_preset_list(char *out, size_t size)
{
    size_t at = 0;
    if (size > 0)
        out[0] = '\0';
    for (size_t i = 0; i < sizeof(presets) / sizeof(presets[0]) && at < size; i++) {
        int n = snprintf(out + at, size - at, "%s%s", i ? ", " : "", presets[i].name);
        at += n > 0 ? (size_t)n : 0;
    }
    return out;
}

/* Dimension `dim` of a role's tensor in layer 0; 0 = not there or of another rank. */
static int64_t dim_of(const struct names *n, const struct weights *w, enum role role, int dim, int rank)
{
    const struct weight *t = names_find(n, w, role, 0, 0);
    return t && t->n_dims == rank ? t->shape[dim] : 0;
}

int config_from_shapes(struct model_config *c, const struct weights *w, struct err *err)
{
    struct names n;
    const char *where = weights_path(w), *file = path_basename(where);
    names_detect(&n, w, arch_by_name("qwen3"));
    struct preset p = {
        .arch = "qwen3",
        .n_vocab = dim_of(&n, w, ROLE_EMBED, 0, 2),
        .d_model = dim_of(&n, w, ROLE_EMBED, 1, 2),
        .head_dim = dim_of(&n, w, ROLE_Q_NORM, 0, 1),
        .n_ff = dim_of(&n, w, ROLE_GATE, 0, 2),
        /* what all Qwen3 of this size have; the shapes do not tell */
        .theta = 1e6, .eps = 1e-6,
        .n_ctx = file && strstr(file, "base") ? 32768 : 40960,
        .tied = true, .bos = -1, .eos = {-1, -1}, /* the end id is the tokenizer's to know */
    };
    if (p.head_dim < 1 || p.n_ff < 1)
        return err_set(err, ERR_FORMAT,
                       "%s: the shapes do not tell the model: trf_blocks.0.att.q_norm.scale [head_dim] and "
                       "trf_blocks.0.ff.fc1.weight [n_ff, d_model] are needed; name a config.json or a "
                       "preset as config",
                       where);
    p.n_heads = dim_of(&n, w, ROLE_Q, 0, 2) / p.head_dim;
    p.n_kv_heads = dim_of(&n, w, ROLE_K, 0, 2) / p.head_dim;
    while (p.n_layers <= CONFIG_LAYERS_MAX && names_find(&n, w, ROLE_Q, p.n_layers, 0))
        p.n_layers++;
    return fill(c, &p, where, err);
}
