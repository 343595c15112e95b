/* config.json (and generation_config.json beside it) of a Hugging Face folder, in
 * the spellings of transformers 4 and 5.  Keys left out have the defaults of the
 * architecture's own configuration class; null counts as left out. */
#include "model/config_json.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/map.h"

/* Read by the code below for every architecture. */
static const char *const common_keys[] = {
    "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
    "num_key_value_heads", "head_dim", "vocab_size", "max_position_embeddings",
    "original_max_position_embeddings", "rms_norm_eps", "rope_theta", "rope_scaling",
    "rope_parameters", "hidden_act", "tie_word_embeddings", "layer_types", "bos_token_id",
    "eos_token_id", NULL};
static const char *const wrapper_keys[] = {"text_config", "tie_word_embeddings", "bos_token_id", "eos_token_id", NULL};

static const struct { const char *name; enum op_act act; } acts[] = {
    {"silu", OP_SILU}, {"swish", OP_SILU}, {"gelu_pytorch_tanh", OP_GELU_TANH}, {"gelu_new", OP_GELU_TANH}, {"gelu", OP_GELU_ERF},
};

static bool in_list(const char *const *list, const char *key)
{
    for (; list && *list; list++)
        if (strcmp(*list, key) == 0)
            return true;
    return false;
}

/* null, false, 0, "", [] and {} say nothing; 1 neither for a multiplier. */
static bool neutral(const cJSON *item)
{
    if (cJSON_IsNumber(item))
        return item->valuedouble == 0 ||
               (item->valuedouble == 1 && config_key_factor(item->string, strlen(item->string)));
    if (cJSON_IsString(item))
        return item->valuestring[0] == '\0' || strcmp(item->valuestring, "none") == 0;
    if (cJSON_IsArray(item) || cJSON_IsObject(item))
        return item->child == NULL;
    return !cJSON_IsTrue(item);
}

int json_check_keys(const struct json_reader *r, const cJSON *o, const char *const *a, const char *const *b,
                    bool strict)
{
    for (const cJSON *item = o->child; item; item = item->next) {
        size_t len = strlen(item->string);
        if (in_list(a, item->string) || in_list(b, item->string) || neutral(item))
            continue;
        if (!strict && config_key_harmless(item->string, len))
            continue;
        if (strict || config_key_suspicious(item->string, len)) {
            char *value = cJSON_PrintUnformatted(item);
            err_set(r->err, ERR_UNSUPPORTED,
                    "%s: %s%s%s = %.60s is an option that %s cannot be run with here", r->name,
                    strict && o->string ? o->string : "", strict && o->string ? "." : "", item->string,
                    value ? value : "?", r->arch->name);
            cJSON_free(value);
            return ERR_UNSUPPORTED;
        }
        log_msg(LOG_VERBOSE, "%s: unknown key %s is not used", r->name, item->string);
    }
    return 0;
}

/* ---- which architecture ---- */

static int unknown_arch(const struct json_reader *r, const char *what, const char *type)
{
    char list[256];
    return err_set(r->err, ERR_UNSUPPORTED, "%s: architecture %s%s%s%s cannot be run; known are %s", r->name,
                   what, type ? " (model_type " : "", type ? type : "", type ? ")" : "",
                   config_arch_list(list, sizeof(list)));
}

static int refuse_quantised(const struct json_reader *r)
{
    static const char *const keys[] = {"quantization_config", "compression_config"};
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        const cJSON *q = json_get(r->top, keys[i]);
        const cJSON *method = json_get(q, "quant_method");
        if (q)
            return err_set(r->err, ERR_UNSUPPORTED,
                           "%s: %s: weights quantised by %s cannot be run; use the original folder or a GGUF",
                           r->name, keys[i],
                           cJSON_IsString(method) ? method->valuestring : "an unnamed method");
    }
    return 0;
}

/* By architectures[0] and model_type, which must agree where both are given. */
static int find_arch(struct json_reader *r)
{
    bool wrapped = false, type_wrapped = false;
    const char *type = NULL;
    const cJSON *list = json_get(r->top, "architectures");
    const cJSON *first = cJSON_IsArray(list) ? list->child : NULL;
    if (json_get_str(r->top, "model_type", &type, r->name, r->err))
        return ERR_FORMAT;
    if (list && (!cJSON_IsArray(list) || (first && !cJSON_IsString(first))))
        return err_set(r->err, ERR_FORMAT, "%s: architectures must be a list of names", r->name);
    if (!first && !type)
        return err_set(r->err, ERR_FORMAT,
                       "%s: neither architectures nor model_type: not a model's config.json", r->name);
    const struct arch *by_class = first ? arch_by_class(first->valuestring, &wrapped) : NULL;
    const struct arch *by_type = type ? arch_by_type(type, &type_wrapped) : NULL;
    if (first && !by_class)
        return unknown_arch(r, first->valuestring, type);
    if (!first && !by_type)
        return unknown_arch(r, type, NULL);
    if (first && type && (by_class != by_type || wrapped != type_wrapped))
        return err_set(r->err, ERR_UNSUPPORTED, "%s: architectures says %s, but model_type says %s", r->name,
                       first->valuestring, type);
    r->arch = by_class ? by_class : by_type;
    wrapped = first ? wrapped : type_wrapped;
    r->o = r->top;
    if (!wrapped && json_get(r->top, "text_config"))
        return err_set(r->err, ERR_UNSUPPORTED, "%s: a text_config inside %s cannot be run", r->name,
                       r->arch->name);
    if (wrapped) {
        const char *inner = NULL;
        r->o = json_get(r->top, "text_config");
        if (!cJSON_IsObject(r->o))
            return err_set(r->err, ERR_FORMAT, "%s: no text_config, which %s must have", r->name,
                           first ? first->valuestring : type);
        if (json_get_str(r->o, "model_type", &inner, r->name, r->err))
            return ERR_FORMAT;
        if (inner && strcmp(inner, r->arch->hf_type) != 0)
            return unknown_arch(r, inner, NULL);
    }
    return 0;
}

static int check_all_keys(const struct json_reader *r)
{
    int rc = r->o != r->top ? json_check_keys(r, r->top, wrapper_keys, NULL, false) : 0;
    return rc == 0 ? json_check_keys(r, r->o, common_keys, r->arch->json_keys, false) : rc;
}

/* ---- sizes and switches ---- */

/* A count that must be there unless the class has a default. */
static int read_size(const struct json_reader *r, const char *key, int64_t fallback, int64_t *out)
{
    *out = fallback;
    int rc = json_get_i64(r->o, key, 1, INT32_MAX, out, r->name, r->err);
    if (rc == 0 && *out == 0)
        return err_set(r->err, ERR_FORMAT, "%s: no %s", r->name, key);
    return rc;
}

static int read_sizes(const struct json_reader *r)
{
    struct model_config *c = r->c;
    const struct arch_defaults *d = &r->arch->defaults;
    int64_t n_layers = 0;
    int rc = read_size(r, "num_hidden_layers", 0, &n_layers);
    if (rc == 0)
        rc = config_layers(c, n_layers, r->name, "num_hidden_layers", r->err);
    if (rc || (rc = read_size(r, "hidden_size", 0, &c->d_model)) ||
        (rc = read_size(r, "num_attention_heads", d->n_heads, &c->n_heads)) ||
        (rc = read_size(r, "num_key_value_heads", d->n_kv_heads ? d->n_kv_heads : c->n_heads,
                        &c->n_kv_heads)) ||
        (rc = read_size(r, "intermediate_size", 0, &c->n_ff)) ||
        (rc = read_size(r, "vocab_size", d->n_vocab, &c->n_vocab)) ||
        (rc = read_size(r, "max_position_embeddings", d->n_ctx, &c->n_ctx_max)) ||
        (rc = read_size(r, "head_dim", d->head_dim ? d->head_dim : c->d_model / c->n_heads, &c->head_dim)))
        return rc;
    double eps = d->eps;
    rc = json_get_f64(r->o, "rms_norm_eps", &eps, r->name, r->err);
    c->rms_eps = (float)eps;
    return rc;
}

static int read_act(const struct json_reader *r)
{
    const char *name = NULL;
    int rc = json_get_str(r->o, r->arch->act_key, &name, r->name, r->err);
    if (rc || !name)
        return rc;
    for (size_t i = 0; i < sizeof(acts) / sizeof(acts[0]); i++)
        if (strcmp(acts[i].name, name) == 0) {
            r->c->act = acts[i].act;
            return 0;
        }
    return err_set(r->err, ERR_UNSUPPORTED,
                   "%s: %s %s cannot be run; known are silu, gelu, gelu_pytorch_tanh", r->name,
                   r->arch->act_key, name);
}

static int read_scales(const struct json_reader *r)
{
    struct model_config *c = r->c;
    double scalar = r->arch->query_scalar ? r->arch->defaults.query_scalar : (double)c->head_dim;
    double cap = 0;
    if (r->arch->query_scalar && json_get_f64(r->o, "query_pre_attn_scalar", &scalar, r->name, r->err))
        return ERR_FORMAT;
    if (r->arch->logit_softcap && json_get_f64(r->o, "final_logit_softcapping", &cap, r->name, r->err))
        return ERR_FORMAT;
    if (!(scalar > 0))
        return err_set(r->err, ERR_FORMAT, "%s: query_pre_attn_scalar is %g", r->name, scalar);
    c->attn_scale = (float)(1 / sqrt(scalar));
    c->logit_softcap = (float)cap;
    c->embed_scale = r->arch->scale_embed ? (float)sqrt((double)c->d_model) : 1;
    return 0;
}

static int read_switches(const struct json_reader *r)
{
    struct model_config *c = r->c;
    bool bias = false;
    c->tied = r->arch->defaults.tied;
    if (json_get_bool(r->top, "tie_word_embeddings", &c->tied, r->name, r->err) ||
        json_get_bool(r->o, "tie_word_embeddings", &c->tied, r->name, r->err))
        return ERR_FORMAT;
    if (r->arch->bias == BIAS_FLAG && json_get_bool(r->o, "attention_bias", &bias, r->name, r->err))
        return ERR_FORMAT;
    c->qkv_bias = r->arch->bias == BIAS_QKV || bias;
    c->o_bias = bias;
    return r->arch->mlp_bias_flag ? json_get_bool(r->o, "mlp_bias", &c->mlp_bias, r->name, r->err) : 0;
}

/* ---- ids and sampling ---- */

/* A number or a list of numbers. */
static int add_eos(const struct json_reader *r, const cJSON *o)
{
    const cJSON *eos = json_get(o, "eos_token_id");
    const cJSON *item = cJSON_IsArray(eos) ? eos->child : eos;
    for (; item; item = cJSON_IsArray(eos) ? item->next : NULL) {
        if (!cJSON_IsNumber(item) || item->valuedouble != floor(item->valuedouble) ||
            fabs(item->valuedouble) > INT32_MAX)
            return err_set(r->err, ERR_FORMAT, "%s: eos_token_id must be an id or a list of ids", r->name);
        if (!config_add_eos(r->c, (int64_t)item->valuedouble))
            return err_set(r->err, ERR_UNSUPPORTED, "%s: eos_token_id: more than %d end ids", r->name,
                           CONFIG_EOS_MAX);
    }
    return 0;
}

static int read_ids(const struct json_reader *r)
{
    int64_t bos = -1;
    if (json_get_i64(r->top, "bos_token_id", -1, INT32_MAX, &bos, r->name, r->err) ||
        json_get_i64(r->o, "bos_token_id", -1, INT32_MAX, &bos, r->name, r->err))
        return ERR_FORMAT;
    r->c->bos = (int32_t)bos;
    int rc = add_eos(r, r->o);
    return rc == 0 && r->top != r->o ? add_eos(r, r->top) : rc;
}

static int read_sampling(const struct json_reader *r)
{
    struct sampling_defaults *s = &r->c->sampling;
    bool sample = false;
    double temp = 1;
    if (json_get_bool(r->o, "do_sample", &sample, r->name, r->err) ||
        json_get_f64(r->o, "temperature", &temp, r->name, r->err) ||
        json_get_f64(r->o, "top_p", &s->top_p, r->name, r->err) ||
        json_get_f64(r->o, "min_p", &s->min_p, r->name, r->err) ||
        json_get_f64(r->o, "repetition_penalty", &s->repeat_penalty, r->name, r->err) ||
        json_get_i64(r->o, "top_k", 0, INT32_MAX, &s->top_k, r->name, r->err))
        return ERR_FORMAT;
    s->temp = sample ? temp : -1;
    return add_eos(r, r->o);
}

int config_from_generation(struct model_config *c, const cJSON *o, const char *name, struct err *err)
{
    struct json_reader r = {c, c->arch, o, o, name, err};
    return cJSON_IsObject(o) ? read_sampling(&r) : err_set(err, ERR_FORMAT, "%s: not a JSON object", name);
}

/* generation_config.json beside config.json; not having one is fine. */
static int read_generation(struct model_config *c, const char *config_path, struct err *err)
{
    char *dir = path_dirname(config_path), *path = dir ? path_join(dir, "generation_config.json") : NULL;
    int rc = path ? 0 : err_set(err, ERR_NOMEM, "%s: no memory", config_path);
    if (rc == 0 && path_exists(path)) {
        cJSON *o;
        rc = json_parse_file(&o, path, err);
        if (rc == 0)
            rc = config_from_generation(c, o, path, err);
        cJSON_Delete(o);
    }
    free(path);
    free(dir);
    return rc;
}

static int read_name(const struct json_reader *r)
{
    const char *name = NULL;
    int rc = json_get_str(r->top, "_name_or_path", &name, r->name, r->err);
    if (rc == 0 && name)
        snprintf(r->c->name, sizeof(r->c->name), "%s", name);
    return rc;
}

static int read_all(struct json_reader *r)
{
    static int (*const steps[])(const struct json_reader *) = {
        check_all_keys, read_name,       read_sizes,      read_act,         read_scales,
        read_switches,  json_read_ropes, json_read_n_rot, json_read_layers, read_ids};
    int rc = refuse_quantised(r);
    if (rc == 0)
        rc = find_arch(r);
    if (rc)
        return rc;
    config_start(r->c, r->arch);
    for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]) && rc == 0; i++)
        rc = steps[i](r);
    return rc;
}

int config_from_object(struct model_config *c, const cJSON *top, const char *name, struct err *err)
{
    struct json_reader r = {c, NULL, top, top, name, err};
    int rc = cJSON_IsObject(top) ? read_all(&r) : err_set(err, ERR_FORMAT, "%s: not a JSON object", name);
    return rc == 0 ? config_settle(c, name, err) : rc;
}

int config_from_json(struct model_config *c, const char *path, struct err *err)
{
    cJSON *top;
    int rc = json_parse_file(&top, path, err);
    if (rc == 0)
        rc = config_from_object(c, top, path, err);
    if (rc == 0)
        rc = read_generation(c, path, err);
    cJSON_Delete(top);
    return rc;
}
