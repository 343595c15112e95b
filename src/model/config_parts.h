/* What the readers of configurations share: where each begins, what all of them
 * call, and the step that settles what they have read.  Seen by src/model and its
 * tests only. */
#ifndef FORGE_MODEL_CONFIG_PARTS_H
#define FORGE_MODEL_CONFIG_PARTS_H

#include "base/json.h"
#include "model/arch.h"
#include "model/config.h"

struct gguf;

/* The sources. Each fills everything and ends with config_settle. */
int config_from_json(struct model_config *c, const char *path,
                     struct err *err); /* generation_config.json beside it, too */
int config_from_object(struct model_config *c, const cJSON *top, const char *name, struct err *err);
int config_from_generation(struct model_config *c, const cJSON *o, const char *name,
                           struct err *err); /* after the other */
int config_from_gguf(struct model_config *c, const struct weights *w, struct err *err);
int config_from_shapes(struct model_config *c, const struct weights *w, struct err *err); /* book names */
/* 1 = found, 0 = no such preset, negative = error. */
int config_from_preset(struct model_config *c, const char *name, struct err *err);
const char *config_preset_list(char *out, size_t size);

/* A clean configuration with the row's switches (not those that only a file can tell). */
void config_start(struct model_config *c, const struct arch *arch);
/* Room for n_layers; refuses a count outside 1..CONFIG_LAYERS_MAX. `where`: the file, `key`: the field. */
int config_layers(struct model_config *c, int64_t n_layers, const char *where, const char *key,
                  struct err *err);
/* Adds an end id once; false = table full. Negative ids are ignored. */
bool config_add_eos(struct model_config *c, int64_t id);
/* Sizes against each other, ranges, KV groups, rotary frequencies. */
int config_settle(struct model_config *c, const char *where, struct err *err);

/* Rotary frequencies into r->inv_freq. */
int rope_settle(struct rope_config *r, int64_t n_rot, struct err *err);
/* YaRN's default factor on cosines and sines: 0.1 mscale ln(factor) + 1. */
double rope_yarn_mscale(double factor, double mscale);

/* What a key that no reader knows may mean: words of the mathematics make it suspicious. */
bool config_key_harmless(const char *key, size_t len);
bool config_key_suspicious(const char *key, size_t len);
bool config_key_factor(const char *key, size_t len); /* a multiplier, for which 1 is neutral */

#endif
