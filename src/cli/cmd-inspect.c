/* forge inspect: what a model file is.  Everything that can be told is told,
 * also of files that cannot be run.
 * Owns the gathering; inspect_out.c prints. Reads no weight without --check. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/map.h"
#include "cli/cmd.h"
#include "cli/inspect.h"

#define WANT_BYTES ((int64_t)32 << 20) /* logits of one step, as loading plans them */
#define CTX_DEFAULT 4096

struct inspect_args {
    bool json, check;
};

#define F(field) offsetof(struct inspect_args, field)

static const struct opt opts[] = {
    {"json", 0, OPT_FLAG, F(json), 0, NULL, NULL, NULL, "as JSON"},
    {"check", 0, OPT_FLAG, F(check), 0, NULL, NULL, NULL, "also read all weights and count NaN and Inf"},
    {0},
};

/* "architectures": ["X"], else "model_type", of the folder's config.json. */
static void architecture_of_folder(struct inspection *in)
{
    char *path = path_join(weights_dir(in->weights), "config.json");
    cJSON *json = NULL;
    if (path && path_exists(path))
        json_parse_file(&json, path, NULL); /* what is wrong with it is config_load's to say */
    const cJSON *list = json_get(json, "architectures"), *name = cJSON_IsArray(list) ? list->child : NULL;
    if (!cJSON_IsString(name))
        name = json_get(json, "model_type");
    if (cJSON_IsString(name))
        snprintf(in->architecture, sizeof in->architecture, "%s", name->valuestring);
    cJSON_Delete(json);
    free(path);
}

static void find_architecture(struct inspection *in)
{
    const struct gguf *g = weights_gguf(in->weights);
    struct gguf_str s;
    if (!g)
        architecture_of_folder(in);
    else if (gguf_get_str(g, "general.architecture", &s, NULL) > 0)
        snprintf(in->architecture, sizeof in->architecture, "%.*s", (int)(s.len < 127 ? s.len : 127), s.s);
    if (!in->architecture[0] && in->has_config)
        snprintf(in->architecture, sizeof in->architecture, "%s", config_arch_name(&in->config));
}

/* Memory at --ctx, planned as loading would. */
static void plan_memory(struct inspection *in, const struct common *c)
{
    struct load_params p;
    struct forward_limits limits = {0};
    const struct model_config *m = &in->config;
    tool_load_params(&p, c, "");
    if (c->has_ctx && c->ctx > m->n_ctx_max) {
        err_set(&in->memory_err, ERR_ARG,
                "a context of %lld positions is more than the model's limit of %lld", (long long)c->ctx,
                (long long)m->n_ctx_max);
        return;
    }
    in->n_ctx = c->has_ctx && c->ctx > 0                   ? c->ctx
                : c->has_ctx || m->n_ctx_max < CTX_DEFAULT ? m->n_ctx_max
                                                           : CTX_DEFAULT;
    int64_t rows = p.chunk < in->n_ctx ? p.chunk : in->n_ctx,
            want = WANT_BYTES / (m->n_vocab * (int64_t)sizeof(float));
    int64_t page = p.kv.page_size ? p.kv.page_size : in->n_ctx;
    rows = rows > p.kv.max_seqs ? rows : p.kv.max_seqs;
    want = want < p.kv.max_seqs ? p.kv.max_seqs : want;
    limits.max_rows = (int)rows;
    limits.max_want = (int)(want < rows ? want : rows);
    limits.max_seqs = p.kv.max_seqs;
    limits.n_ctx = in->n_ctx;
    for (int g = 0; g < m->n_groups; g++)
        limits.max_pages[g] = (int)((in->n_ctx + page - 1) / page);
    p.kv.n_ctx = in->n_ctx;
    p.kv.chunk = (int)rows;
    in->kv_bytes = kv_bytes(m, &p.kv);
    in->work_bytes = forward_bytes(m, &limits);
}

static int gather(struct inspection *in, const char *path, const struct inspect_args *a,
                  const struct common *c)
{
    struct err err = {0};
    int rc = weights_open(&in->weights, path, &err);
    if (rc < 0)
        return msg_fail(rc, err.msg);
    in->has_config = config_load(&in->config, in->weights, c->config, &in->config_err) == 0;
    find_architecture(in);
    load_tokenizer(&in->tokenizer, in->weights, c->tokenizer, &in->tokenizer_err);
    for (size_t i = 0; i < weights_count(in->weights) && !in->not_runnable; i++) {
        const struct weight *w = weights_at(in->weights, i);
        if (w->n_dims == 2 && !dtype_runnable(w->dtype)) /* counters and the like stand beside the model */
            in->not_runnable = w;
    }
    if (in->has_config)
        plan_memory(in, c);
    if (a->check) {
        rc = weights_check(in->weights, &in->n_nan, &in->n_inf, &err);
        in->checked = rc == 0;
    }
    return rc < 0 ? msg_fail(rc, err.msg) : 0;
}

static int run(void *args, const struct common *c)
{
    const struct inspect_args *a = args;
    struct inspection in = {0};
    struct buf b;
    char *path = common_model_path(c);
    if (!path)
        return EXIT_FAILED;
    int status = gather(&in, path, a, c);
    if (status == 0) {
        buf_init(&b);
        if (a->json)
            inspect_json(&b, &in);
        else
            inspect_text(&b, &in);
        if (!out_buf(&b))
            status = EXIT_FAILED;
        if (status == 0 && in.memory_err.code)
            status = msg_usage("inspect", "--ctx: %s", in.memory_err.msg);
    }
    tokenizer_close(in.tokenizer);
    config_fini(&in.config);
    weights_close(in.weights);
    free(path);
    return status;
}

const struct cmd cmd_inspect = {
    .name = "inspect",
    .summary = "Show what a model file is",
    .usage = "[-m PATH] [--json] [--check] [--ctx N]",
    .opts = opts,
    .args_size = sizeof(struct inspect_args),
    .shared = {common_model_opts, common_device_opts},
    .run = run,
};
