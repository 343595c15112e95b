/* What the files that read a config.json share: the reader's state, the check of
 * its keys, and the parts that have a file of their own.  Nothing outside of
 * src/model sees it. */
#ifndef FORGE_MODEL_CONFIG_JSON_H
#define FORGE_MODEL_CONFIG_JSON_H

#include "model/config_parts.h"

struct json_reader {
    struct model_config *c;
    const struct arch *arch;
    const cJSON *top, *o; /* the file; the text model's part of it (the same but for wrappers) */
    const char *name;     /* path, for messages */
    struct err *err;
};

/* Every key of o is in one of the lists (NULL-ended; b may be NULL), or may be passed over by the
 * rule of config_keys.c; with `strict` an unknown key must be neutral. */
int json_check_keys(const struct json_reader *r, const cJSON *o, const char *const *a, const char *const *b,
                    bool strict);
int json_read_ropes(const struct json_reader *r);
int json_read_n_rot(const struct json_reader *r);
int json_read_layers(const struct json_reader *r); /* windows, ropes and experts per layer */
bool rope_type_by_name(const char *s, size_t len, enum rope_type *out);

#endif
