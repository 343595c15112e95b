/* From the shared flags to a loaded model for the tool commands; the ids of a
 * prompt; the profile.
 * Owns no mathematics and no format: everything is asked of the libraries. */
#include "cli/tools.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "base/map.h"
#include "base/mem.h"
#include "cli/out.h"
#include "run/engine.h"

static int on_load(void *user, size_t done, size_t total)
{
    progress_update(user, done, total);
    return interrupted();
}

static int on_compile(void *user, size_t done, size_t total)
{
    progress_next(user, "compiling kernels", "parts");
    return on_load(user, done, total);
}

void tool_load_params(struct load_params *p, const struct common *c, const char *model)
{
    struct forge_engine_params e;
    common_engine_params(&e, c, model, NULL, NULL);
    engine_load_params(p, &e);
    p->kv.max_seqs = e.max_seqs; /* tools run sequences together ... */
    p->max_want = 0;             /* ... and read many rows of logits */
}

int tool_open(struct tool *t, const struct common *c, int64_t n_ctx, int64_t max_seqs)
{
    struct load_params p;
    struct err err = {0};
    struct progress load;
    *t = (struct tool){.profile = &c->profile};
    char *model = common_model_path(c);
    if (!model)
        return EXIT_FAILED;
    progress_start(&load, "loading", "tensors");
    char *kernel_cache = common_kernel_cache(c);
    tool_load_params(&p, c, model);
    p.backend.kernel_cache = kernel_cache;
    if (!c->has_ctx && n_ctx >= 0)
        p.kv.n_ctx = n_ctx;
    if (max_seqs > p.kv.max_seqs)
        p.kv.max_seqs = (int)max_seqs;
    p.progress = on_load;
    p.compiling = on_compile;
    p.user = &load;
    int rc = load_open(&t->l, &p, &err);
    progress_end(&load);
    if (rc == 0) {
        char device[512];
        msg_verbose("device: %s", t->l.reason);
        common_unused(c, tool_device(t, device, sizeof device));
        rc = seq_open(&t->seq, &t->l, &err);
        t->has_seq = rc == 0;
    }
    for (int i = 0; rc == 0 && c->profile.given && i < t->l.n_backends; i++)
        op_profile(t->l.backends[i], true);
    free(model);
    free(kernel_cache);
    return rc < 0 ? common_open_failed(rc, err.msg) : 0;
}

/* ---- the profile: rows over all instances ---- */
static int tool_operation(const void *of, size_t i, struct forge_placement *out)
{
    const struct tool *t = of;
    if (i >= (size_t)t->l.n_backends * OP_COUNT)
        return 0;
    enum op_id op = (enum op_id)(i % OP_COUNT);
    const struct op_stats *s = op_stats(t->l.backends[i / OP_COUNT], op);
    *out = (struct forge_placement){op_name(op), s->device, s->calls, s->rows, s->bytes, s->flops, s->seconds};
    return 1;
}

static int tool_kernel(const void *of, size_t i, struct forge_kernel *out)
{
    const struct tool *t = of;
    return load_kernel(&t->l, i, out);
}

static int tool_event(const void *of, size_t i, struct forge_event *out)
{
    const struct tool *t = of;
    return load_event(&t->l, i, out);
}

static int print_profile(const struct tool *t)
{
    const struct profile_source s = {tool_operation, tool_kernel, tool_event, t};
    return profile_print(t->profile->value, &s);
}

int tool_close(struct tool *t, int status)
{
    int profile = t->profile && t->profile->given && t->has_seq ? print_profile(t) : 0;
    if (t->has_seq)
        seq_close(&t->seq);
    load_close(&t->l);
    *t = (struct tool){0};
    return status ? status : profile;
}

int tool_encode(struct ids *out, const struct prompt *p, const struct prompt_args *a,
                const struct tokenizer *tok)
{
    struct err err = {0};
    int rc = 0;
    ids_init(out);
    if (p->text) {
        unsigned flags = (a->no_bos ? 0u : TOK_ADD_SPECIAL) | (a->parse_special ? TOK_PARSE_SPECIAL : 0u);
        rc = tokenizer_encode(tok, p->text, p->text_len, flags, out, &err);
    }
    for (size_t i = 0; rc == 0 && i < p->n_ids; i++)
        rc = ids_push(out, p->ids[i], &err);
    return rc < 0 ? msg_fail(rc, err.msg) : 0;
}

int tool_check_ids(const struct ids *ids, int64_t n_vocab)
{
    struct err err = {0};
    for (size_t i = 0; i < ids->n; i++)
        if (ids->v[i] < 0 || ids->v[i] >= n_vocab)
            return msg_fail(
                err_set(&err, ERR_ARG,
                        "token id %d (number %zu of the list) is outside the vocabulary, 0..%" PRId64,
                        (int)ids->v[i], i + 1, n_vocab - 1),
                err.msg);
    return 0;
}

int tool_prompt(struct ids *out, const struct prompt *p, const struct prompt_args *a, const struct tool *t)
{
    struct err err = {0};
    int status = tool_encode(out, p, a, t->l.tokenizer);
    if (status == 0 && out->n == 0 && load_empty_prompt(&t->l, out, &err) < 0)
        status = msg_fail(err.code, err.msg);
    return status ? status : tool_check_ids(out, t->l.config->n_vocab);
}

static bool holds(const char *dir, const char *name)
{
    char *path = path_join(dir, name);
    bool yes = path && path_exists(path);
    free(path);
    return yes;
}

/* A folder with a tokenizer, or a .json file, needs no weights beside it. */
static bool is_tokenizer(const char *path)
{
    const char *dot = strrchr(path, '.');
    return path_is_dir(path) ? holds(path, "tokenizer.json") || holds(path, "vocab.json")
                             : dot && strcmp(dot, ".json") == 0;
}

/* chat NULL = the tokenizer alone. */
static int open_text(struct tokenizer **out, struct chat **chat, const struct common *c, const char *given)
{
    struct err err = {0};
    struct weights *w = NULL;
    char *model = NULL;
    const char *path = c->tokenizer;
    int rc = 0, found = 1;
    *out = NULL;
    if (!path && !(model = common_model_path(c)))
        return EXIT_FAILED;
    if (!path && is_tokenizer(model))
        path = model;
    if (!path)
        rc = weights_open(&w, model, &err);
    if (rc == 0)
        rc = path ? tokenizer_open(out, path, &err) : load_tokenizer(out, w, NULL, &err);
    if (rc == 0 && chat && (found = load_chat(chat, w, path, given, &err)) < 0)
        rc = found;
    if (found == 0)
        rc = err_set(&err, ERR_UNSUPPORTED, "%s has no chat template; --chat-template FILE|chatml names one", path ? path : model);
    weights_close(w); /* nothing of the file is kept */
    free(model);
    return rc < 0 ? msg_fail(rc, err.msg) : 0;
}

int tool_open_tokenizer(struct tokenizer **out, const struct common *c)
{
    return open_text(out, NULL, c, NULL);
}

int tool_open_chat(struct tokenizer **tok, struct chat **chat, const struct common *c, const char *given)
{
    return open_text(tok, chat, c, given);
}

const char *tool_device(const struct tool *t, char *out, size_t size)
{
    size_t len = 0;
    out[0] = '\0';
    for (int i = 0; i < t->l.n_backends && len < size; i++)
        len += (size_t)snprintf(out + len, size - len, "%s%s", i ? "," : "", op_device(t->l.backends[i]));
    return out;
}

void tool_print_libraries(void)
{
    char text[256];
    out_printf("libraries: cJSON %s; %s\n", cJSON_Version(), tokenizer_libraries(text, sizeof text));
    out_printf("cpu: %s\n", registry_cpu_isa(text, sizeof text));
}
