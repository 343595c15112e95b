/* Fuzz target: configurations.  A GGUF's metadata, or JSON text read as a
 * config.json and as a generation_config.json; what is accepted must be
 * usable: angles of far positions are computed, sizes are within bounds. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "file/parts.h"
#include "model/config_parts.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(int holds)
{
    if (!holds)
        abort();
}

static void use(const struct model_config *c)
{
    must(c->arch != NULL && c->n_layers >= 1 && c->n_layers <= CONFIG_LAYERS_MAX && c->layers != NULL);
    must(c->n_heads % c->n_kv_heads == 0 && c->n_rot % 2 == 0 && c->n_rot <= c->head_dim);
    must(c->n_groups >= 1 && c->n_groups <= CONFIG_KV_GROUPS_MAX && c->n_eos <= CONFIG_EOS_MAX);
    must(config_kv_bytes_per_pos(c, DTYPE_F16) > 0);
    float *row = mem_array((size_t)c->n_rot, sizeof(float));
    for (int r = 0; row && r < c->n_ropes; r++) {
        rope_row(c, r, INT32_MAX, row);
        for (int64_t i = 0; i < c->n_rot; i++)
            must(isfinite(row[i]));
    }
    for (int64_t l = 0; l < c->n_layers; l++)
        must(c->layers[l].kv_group < c->n_groups && c->layers[l].rope < c->n_ropes && c->layers[l].window >= 0);
    free(row);
}

static void finish(struct model_config *c, int rc, const struct err *err)
{
    must(rc == 0 || (rc == err->code && strncmp(err->msg, "input", 5) == 0));
    if (rc == 0)
        use(c);
    config_fini(c);
}

static void fuzz_gguf(const uint8_t *data, size_t size)
{
    struct weights *w = NULL;
    struct model_config c = {0};
    struct err err = {0};
    if (weights_open_bytes(&w, "input", data, size, &err) == 0)
        finish(&c, config_from_gguf(&c, w, &err), &err);
    weights_close(w);
}

static void fuzz_json(const uint8_t *data, size_t size)
{
    struct model_config c = {0};
    struct err err = {0};
    cJSON *o;
    json_parse(&o, (const char *)data, size, "input", &err);
    if (!o)
        return;
    finish(&c, config_from_object(&c, o, "input", &err), &err);
    err_clear(&err);
    config_start(&c, arch_at(0));
    int rc = config_from_generation(&c, o, "input", &err);
    must(rc == 0 || rc == err.code);
    config_fini(&c);
    cJSON_Delete(o);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size >= 4 && memcmp(data, "GGUF", 4) == 0)
        fuzz_gguf(data, size);
    else
        fuzz_json(data, size);
    return 0;
}
