/* Rotary position settings of a config.json, in both spellings: rope_theta with
 * rope_scaling, and rope_parameters (also one per kind of layer).  Source:
 * transformers' modeling_rope_utils; the formulas themselves are in rope.c. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "model/config_json.h"

static const struct { const char *name; enum rope_type type; } types[] = {
    {"default", ROPE_DEFAULT}, {"none", ROPE_DEFAULT}, {"linear", ROPE_LINEAR}, {"llama3", ROPE_LLAMA3}, {"yarn", ROPE_YARN},
};

/* Everything one of these objects may say; what is not here is refused, not ignored. */
static const char *const rope_keys[] = {
    "rope_type", "type", "rope_theta", "factor", "partial_rotary_factor",
    "original_max_position_embeddings", "low_freq_factor", "high_freq_factor", "beta_fast",
    "beta_slow", "attention_factor", "mscale", "mscale_all_dim", "truncate", NULL};

bool rope_type_by_name(const char *s, size_t len, enum rope_type *out)
{
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
        if (strlen(types[i].name) == len && memcmp(types[i].name, s, len) == 0) {
            *out = types[i].type;
            return true;
        }
    return false;
}

double rope_yarn_mscale(double factor, double mscale)
{
    return factor <= 1 ? 1 : 0.1 * mscale * log(factor) + 1;
}

static int read_type(const struct json_reader *r, const cJSON *o, struct rope_config *out)
{
    const char *type = NULL;
    int rc = json_get_str(o, "rope_type", &type, r->name, r->err);
    if (rc == 0 && !type)
        rc = json_get_str(o, "type", &type, r->name, r->err);
    if (rc == 0 && type && !rope_type_by_name(type, strlen(type), &out->type))
        return err_set(r->err, ERR_UNSUPPORTED,
                       "%s: rope scaling of type %s cannot be run; known are default, linear, llama3, yarn",
                       r->name, type);
    return rc;
}

static int read_yarn(const struct json_reader *r, const cJSON *o, struct rope_config *out)
{
    double mscale = 0, all_dim = 0;
    out->beta_fast = out->beta_slow = 0;
    out->truncate = true;
    if (json_get_f64(o, "beta_fast", &out->beta_fast, r->name, r->err) ||
        json_get_f64(o, "beta_slow", &out->beta_slow, r->name, r->err) ||
        json_get_bool(o, "truncate", &out->truncate, r->name, r->err) ||
        json_get_f64(o, "mscale", &mscale, r->name, r->err) ||
        json_get_f64(o, "mscale_all_dim", &all_dim, r->name, r->err))
        return ERR_FORMAT;
    out->beta_fast = out->beta_fast == 0 ? 32 : out->beta_fast;
    out->beta_slow = out->beta_slow == 0 ? 1 : out->beta_slow;
    /* mscale counts only together with mscale_all_dim */
    out->attention_factor = mscale != 0 && all_dim != 0 ? rope_yarn_mscale(out->factor, mscale) /
                                                              rope_yarn_mscale(out->factor, all_dim)
                                                        : rope_yarn_mscale(out->factor, 1);
    return json_get_f64(o, "attention_factor", &out->attention_factor, r->name, r->err);
}

/* Sets r from object o (may be NULL: nothing is scaled). theta is kept where o has none. */
static int read_rope(const struct json_reader *r, const cJSON *o, struct rope_config *out)
{
    if (!o)
        return 0;
    if (!cJSON_IsObject(o))
        return err_set(r->err, ERR_FORMAT, "%s: %s must be an object", r->name,
                       o->string ? o->string : "rope_parameters");
    int rc = json_check_keys(r, o, rope_keys, NULL, true);
    if (rc == 0)
        rc = read_type(r, o, out);
    if (rc == 0)
        rc = json_get_f64(o, "rope_theta", &out->theta, r->name, r->err);
    if (rc || out->type == ROPE_DEFAULT)
        return rc;
    out->orig_ctx = r->c->n_ctx_max;
    if (json_get_f64(o, "factor", &out->factor, r->name, r->err) ||
        json_get_i64(o, "original_max_position_embeddings", 1, INT32_MAX, &out->orig_ctx, r->name, r->err) ||
        /* transformers lets the one at the top win */
        json_get_i64(r->o, "original_max_position_embeddings", 1, INT32_MAX, &out->orig_ctx, r->name,
                     r->err) ||
        json_get_f64(o, "low_freq_factor", &out->low_freq_factor, r->name, r->err) ||
        json_get_f64(o, "high_freq_factor", &out->high_freq_factor, r->name, r->err))
        return ERR_FORMAT;
    if (out->type == ROPE_YARN && !json_get(o, "factor"))
        out->factor = (double)r->c->n_ctx_max / (double)out->orig_ctx;
    return out->type == ROPE_YARN ? read_yarn(r, o, out) : 0;
}

/* A stretched rotation reaches factor times its original context. */
static void stretch_context(struct model_config *c)
{
    const struct rope_config *r = &c->ropes[0];
    if (r->type == ROPE_YARN && r->factor > 0 && (double)r->orig_ctx * r->factor > (double)c->n_ctx_max)
        c->n_ctx_max = (int64_t)fmin((double)r->orig_ctx * r->factor, INT32_MAX);
}

int json_read_ropes(const struct json_reader *r)
{
    struct model_config *c = r->c;
    const cJSON *params = json_get(r->o, "rope_parameters"), *old = json_get(r->o, "rope_scaling");
    const cJSON *full = json_get(params, "full_attention"), *local = json_get(params, "sliding_attention");
    bool nested = full || local;
    double theta_local = r->arch->defaults.theta_local;
    c->n_ropes = r->arch->window == WINDOW_PATTERN ? 2 : 1;
    c->ropes[0].theta = r->arch->defaults.theta;
    int rc = json_get_f64(r->o, "rope_theta", &c->ropes[0].theta, r->name, r->err);
    if (rc == 0 && c->n_ropes == 2)
        rc = json_get_f64(r->o, "rope_local_base_freq", &theta_local, r->name, r->err);
    c->ropes[1].theta = c->n_ropes == 2 ? theta_local : 0;
    if (rc == 0 && nested && c->n_ropes == 1)
        rc = err_set(r->err, ERR_UNSUPPORTED, "%s: rope_parameters per kind of layer cannot be run for %s",
                     r->name, r->arch->name);
    if (rc == 0)
        rc = read_rope(r, nested ? full : params ? params : old, &c->ropes[0]);
    if (rc == 0 && nested)
        rc = read_rope(r, local, &c->ropes[1]);
    if (rc == 0)
        stretch_context(c);
    return rc;
}

/* Rotated values per head; only where the architecture may rotate a part. */
int json_read_n_rot(const struct json_reader *r)
{
    double part = 1;
    const cJSON *params = json_get(r->o, "rope_parameters");
    if (json_get_f64(r->o, "partial_rotary_factor", &part, r->name, r->err) ||
        json_get_f64(cJSON_IsObject(params) ? params : NULL, "partial_rotary_factor", &part, r->name, r->err))
        return ERR_FORMAT;
    if (!(part > 0 && part <= 1))
        return err_set(r->err, ERR_FORMAT, "%s: partial_rotary_factor is %g, allowed are 0 to 1", r->name,
                       part);
    if (part != 1 && !r->arch->partial_rot)
        return err_set(r->err, ERR_UNSUPPORTED, "%s: partial_rotary_factor %g cannot be run for %s", r->name,
                       part, r->arch->name);
    r->c->n_rot = (int64_t)((double)r->c->head_dim * part);
    return 0;
}
