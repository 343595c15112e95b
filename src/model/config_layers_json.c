/* What differs from layer to layer in a config.json: windows, which rotary base,
 * routed experts.  The rules are rows of arch.c (enum window_rule); here is how a
 * config.json spells them. */
#include <inttypes.h>
#include <string.h>

#include "model/config_json.h"

/* The window in force, 0 = none. A null and an absent key differ where the class has a default. */
static int read_window(const struct json_reader *r, int64_t *window)
{
    const cJSON *item =
        cJSON_IsObject(r->o) ? cJSON_GetObjectItemCaseSensitive(r->o, "sliding_window") : NULL;
    bool use = r->arch->window == WINDOW_ALL || r->arch->window == WINDOW_PATTERN;
    bool by_flag = false;
    for (const char *const *k = r->arch->json_keys; *k; k++)
        by_flag = by_flag || strcmp(*k, "use_sliding_window") == 0;
    if (by_flag) {
        use = false;
        if (json_get_bool(r->o, "use_sliding_window", &use, r->name, r->err))
            return ERR_FORMAT;
    }
    *window = 0;
    if (!use || r->arch->window == WINDOW_NONE)
        return 0;
    *window = item ? 0 : r->arch->defaults.window;
    return json_get_i64(r->o, "sliding_window", 0, INT32_MAX, window, r->name, r->err);
}

/* 1 = sliding, 0 = full, negative = error. */
static int read_type(const struct json_reader *r, const cJSON *item, int64_t layer)
{
    if (cJSON_IsString(item) && strcmp(item->valuestring, "full_attention") == 0)
        return 0;
    if (cJSON_IsString(item) && strcmp(item->valuestring, "sliding_attention") == 0)
        return 1;
    return err_set(r->err, ERR_UNSUPPORTED,
                   "%s: layer_types[%" PRId64 "] is %s; known are full_attention and sliding_attention",
                   r->name, layer, cJSON_IsString(item) ? item->valuestring : "no text");
}

static int apply_types(const struct json_reader *r, const cJSON *types, int64_t window)
{
    struct model_config *c = r->c;
    if (!cJSON_IsArray(types) || cJSON_GetArraySize(types) != c->n_layers)
        return err_set(r->err, ERR_FORMAT, "%s: layer_types must be a list of %" PRId64 " texts, one a layer",
                       r->name, c->n_layers);
    int64_t l = 0;
    for (const cJSON *item = types->child; item; item = item->next, l++) {
        int sliding = read_type(r, item, l);
        if (sliding < 0)
            return sliding;
        if (sliding && window == 0)
            return err_set(r->err, ERR_UNSUPPORTED,
                           "%s: layer_types[%" PRId64 "] is sliding_attention, but no sliding_window is in "
                           "force for %s",
                           r->name, l, r->arch->name);
        c->layers[l].window = sliding ? (int)window : 0;
        c->layers[l].rope = sliding && c->n_ropes == 2;
    }
    return 0;
}

static int read_windows(const struct json_reader *r)
{
    struct model_config *c = r->c;
    const cJSON *types = json_get(r->o, "layer_types");
    int64_t window = 0, from = c->n_layers, pattern = r->arch->defaults.pattern;
    int rc = read_window(r, &window);
    if (rc)
        return rc;
    if (types && r->arch->window != WINDOW_ALL)
        return apply_types(r, types, window);
    if (r->arch->window == WINDOW_FROM_LAYER &&
        json_get_i64(r->o, "max_window_layers", 0, INT32_MAX, &from, r->name, r->err))
        return ERR_FORMAT;
    if (r->arch->window == WINDOW_PATTERN &&
        (json_get_i64(r->o, "sliding_window_pattern", 1, INT32_MAX, &pattern, r->name, r->err) ||
         json_get_i64(r->o, "_sliding_window_pattern", 1, INT32_MAX, &pattern, r->name, r->err)))
        return ERR_FORMAT;
    for (int64_t l = 0; l < c->n_layers; l++) {
        bool sliding = r->arch->window == WINDOW_ALL || (r->arch->window == WINDOW_FROM_LAYER && l >= from) ||
                       (r->arch->window == WINDOW_PATTERN && (l + 1) % pattern != 0);
        c->layers[l].window = sliding ? (int)window : 0;
        c->layers[l].rope = sliding && c->n_ropes == 2;
    }
    return 0;
}

/* Layers with routed experts: every decoder_sparse_step-th, less those of mlp_only_layers. */
static int read_experts(const struct json_reader *r)
{
    struct model_config *c = r->c;
    int64_t step = 1;
    const cJSON *dense = json_get(r->o, "mlp_only_layers");
    if (json_get_i64(r->o, "num_local_experts", 0, 4096, &c->n_experts, r->name, r->err) ||
        json_get_i64(r->o, "num_experts", 0, 4096, &c->n_experts, r->name, r->err) ||
        json_get_i64(r->o, "num_experts_per_tok", 1, 4096, &c->n_experts_used, r->name, r->err) ||
        json_get_i64(r->o, "moe_intermediate_size", 1, 1 << 24, &c->n_ff_expert, r->name, r->err) ||
        json_get_i64(r->o, "decoder_sparse_step", 1, INT32_MAX, &step, r->name, r->err) ||
        json_get_bool(r->o, "norm_topk_prob", &c->moe_renorm, r->name, r->err))
        return ERR_FORMAT;
    for (int64_t l = 0; l < c->n_layers; l++)
        c->layers[l].moe = c->n_experts > 0 && (l + 1) % step == 0;
    if (dense && !cJSON_IsArray(dense))
        return err_set(r->err, ERR_FORMAT, "%s: mlp_only_layers must be a list", r->name);
    for (const cJSON *i = dense ? dense->child : NULL; i; i = i->next) {
        if (!cJSON_IsNumber(i))
            return err_set(r->err, ERR_FORMAT, "%s: mlp_only_layers must hold numbers", r->name);
        for (int64_t l = 0; l < c->n_layers; l++)
            if (i->valuedouble == (double)l)
                c->layers[l].moe = false;
    }
    return 0;
}

int json_read_layers(const struct json_reader *r)
{
    int rc = read_windows(r);
    return rc == 0 && r->arch->moe ? read_experts(r) : rc;
}
