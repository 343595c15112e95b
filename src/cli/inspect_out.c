/* An inspection as text for a reader and as JSON for a program.
 * Opens and computes nothing: whatever is printed was gathered before. Names
 * out of files are never printed raw. */
#include "cli/inspect.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Integers of the configuration that both forms print. */
static const struct {
    const char *name;
    size_t off;
} sizes[] = {
    {"n_layers", offsetof(struct model_config, n_layers)},
    {"d_model", offsetof(struct model_config, d_model)},
    {"n_heads", offsetof(struct model_config, n_heads)},
    {"n_kv_heads", offsetof(struct model_config, n_kv_heads)},
    {"head_dim", offsetof(struct model_config, head_dim)},
    {"n_ff", offsetof(struct model_config, n_ff)},
    {"n_vocab", offsetof(struct model_config, n_vocab)},
    {"n_ctx_max", offsetof(struct model_config, n_ctx_max)},
    {"n_experts", offsetof(struct model_config, n_experts)},
    {"n_experts_used", offsetof(struct model_config, n_experts_used)},
};
#define N_SIZES (sizeof sizes / sizeof *sizes)

static const char *const rope_names[] = {"default", "linear", "llama3", "yarn"};

static int64_t size_of(const struct model_config *c, size_t i)
{
    return *(const int64_t *)((const char *)c + sizes[i].off);
}

static void put_string(struct buf *b, const char *key, const char *s)
{
    buf_printf(b, "\"%s\":", key);
    buf_put_json(b, s, strlen(s));
}

/* The first reason why this cannot be run, NULL when nothing stands against it. */
static const char *obstacle(const struct inspection *in, char *out, size_t size)
{
    const struct weight *w = in->not_runnable;
    if (!in->has_config)
        return in->config_err.msg;
    if (!in->tokenizer)
        return in->tokenizer_err.msg;
    if (!w)
        return NULL;
    snprintf(out, size, "tensor %s has type %s, which is not run", w->name, dtype_info(w->dtype)->name);
    return out;
}

/* ---- JSON ---- */

static void put_config(struct buf *b, const struct model_config *c)
{
    buf_puts(b, "{");
    put_string(b, "architecture", config_arch_name(c));
    for (size_t i = 0; i < N_SIZES; i++)
        buf_printf(b, ",\"%s\":%" PRId64, sizes[i].name, size_of(c, i));
    buf_printf(b, ",\"tied\":%s,\"rms_eps\":", c->tied ? "true" : "false");
    buf_put_json_num(b, (double)c->rms_eps);
    buf_puts(b, ",\"ropes\":[");
    for (int i = 0; i < c->n_ropes; i++) {
        buf_printf(b, "%s{\"type\":\"%s\",\"theta\":", i ? "," : "", rope_names[c->ropes[i].type]);
        buf_put_json_num(b, c->ropes[i].theta);
        buf_putc(b, '}');
    }
    buf_puts(b, "],\"windows\":[");
    for (int i = 0; i < c->n_groups; i++)
        buf_printf(b, "%s{\"window\":%d,\"layers\":%d}", i ? "," : "", c->groups[i].window,
                   c->groups[i].n_layers);
    buf_puts(b, "],\"eos\":");
    buf_put_json_ids(b, c->eos, (size_t)c->n_eos);
    buf_putc(b, '}');
}

static void put_tokenizer(struct buf *b, const struct tokenizer *t)
{
    buf_puts(b, "{");
    put_string(b, "kind", tokenizer_kind(t));
    buf_putc(b, ',');
    put_string(b, "source", tokenizer_source(t));
    buf_printf(b, ",\"n_ids\":%d,\"bos\":%d,\"eos\":%d,\"adds_bos\":%s}", (int)tokenizer_n_ids(t),
               (int)tokenizer_bos(t), (int)tokenizer_eos(t), tokenizer_adds_bos(t) ? "true" : "false");
}

static void put_tensor(struct buf *b, const struct weight *w)
{
    buf_puts(b, "{\"name\":");
    buf_put_json(b, w->name, strlen(w->name));
    buf_printf(b, ",\"type\":\"%s\",\"shape\":[", dtype_info(w->dtype)->name);
    for (int i = 0; i < w->n_dims; i++)
        buf_printf(b, "%s%" PRId64, i ? "," : "", w->shape[i]);
    buf_printf(b, "],\"file\":%d,\"offset\":%zu,\"bytes\":%zu}", w->file, w->offset, w->size);
}

static void put_memory(struct buf *b, const struct inspection *in)
{
    uint64_t weights = weights_bytes(in->weights);
    buf_printf(b,
               "{\"ctx\":%" PRId64 ",\"weights_bytes\":%" PRIu64 ",\"kv_bytes\":%" PRIu64
               ",\"work_bytes\":%" PRIu64 ",\"total_bytes\":%" PRIu64 "}",
               in->n_ctx, weights, in->kv_bytes, in->work_bytes, weights + in->kv_bytes + in->work_bytes);
}

void inspect_json(struct buf *b, const struct inspection *in)
{
    const struct weights *w = in->weights;
    char text[256];
    const char *why = obstacle(in, text, sizeof text);
    buf_puts(b, "{");
    put_string(b, "path", weights_path(w));
    buf_putc(b, ',');
    put_string(b, "format", weights_format_name(weights_format(w)));
    buf_puts(b, ",\"files\":[");
    for (int i = 0; i < weights_n_files(w); i++) {
        if (i)
            buf_putc(b, ',');
        buf_put_json(b, weights_file(w, i), strlen(weights_file(w, i)));
    }
    buf_puts(b, "],");
    put_string(b, "architecture", in->architecture);
    buf_putc(b, ',');
    put_string(b, "name", in->has_config ? in->config.name : "");
    buf_printf(b, ",\"n_params\":%" PRId64 ",\"weights_bytes\":%" PRIu64 ",\"config\":", config_n_params(w),
               weights_bytes(w));
    if (in->has_config)
        put_config(b, &in->config);
    else
        buf_puts(b, "null");
    buf_puts(b, ",\"tokenizer\":");
    if (in->tokenizer)
        put_tokenizer(b, in->tokenizer);
    else
        buf_puts(b, "null");
    buf_puts(b, ",\"memory\":");
    if (in->has_config && !in->memory_err.code)
        put_memory(b, in);
    else
        buf_puts(b, "null");
    buf_printf(b, ",\"runnable\":%s,\"obstacle\":", why ? "false" : "true");
    if (why)
        buf_put_json(b, why, strlen(why));
    else
        buf_puts(b, "null");
    if (in->checked)
        buf_printf(b, ",\"check\":{\"nan\":%" PRIu64 ",\"inf\":%" PRIu64 "}", in->n_nan, in->n_inf);
    buf_puts(b, ",\"tensors\":[");
    for (size_t i = 0; i < weights_count(w); i++) {
        buf_puts(b, i ? ",\n" : "\n");
        put_tensor(b, weights_at(w, i));
    }
    buf_puts(b, "]}\n");
}

/* ---- text ---- */

static void line(struct buf *b, const char *key)
{
    buf_printf(b, "%-14s", key);
}

static void put_bytes(struct buf *b, uint64_t n)
{
    static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
    double v = (double)n;
    int u = 0;
    for (; v >= 1024 && u < 4; u++)
        v /= 1024;
    buf_printf(b, u ? "%.1f %s" : "%.0f %s", v, units[u]);
}

/* Names out of files may hold anything: control characters are shown as '?'. */
static void put_name(struct buf *b, const char *s)
{
    for (; *s; s++)
        buf_putc(b, (unsigned char)*s < 32 || *s == 127 ? '?' : *s);
}

static void text_config(struct buf *b, const struct model_config *c)
{
    for (size_t i = 0; i < N_SIZES; i++)
        if (size_of(c, i)) {
            line(b, sizes[i].name);
            buf_printf(b, "%" PRId64 "\n", size_of(c, i));
        }
    line(b, "rope");
    for (int i = 0; i < c->n_ropes; i++)
        buf_printf(b, "%s%s, theta %g", i ? "; " : "", rope_names[c->ropes[i].type], c->ropes[i].theta);
    buf_printf(b, ", %" PRId64 " of %" PRId64 " values rotated\n", c->n_rot, c->head_dim);
    line(b, "attention");
    for (int i = 0; i < c->n_groups; i++) {
        buf_printf(b, "%s%d layers ", i ? ", " : "", c->groups[i].n_layers);
        if (c->groups[i].window)
            buf_printf(b, "with a window of %d", c->groups[i].window);
        else
            buf_puts(b, "full");
    }
    buf_printf(b, "\n%-14s%s\n", "head", c->tied ? "the embedding" : "its own tensor");
    line(b, "ends at");
    for (int i = 0; i < c->n_eos; i++)
        buf_printf(b, "%s%d", i ? ", " : "", (int)c->eos[i]);
    buf_puts(b, c->n_eos ? "\n" : "no id of its own\n");
}

static void text_memory(struct buf *b, const struct inspection *in)
{
    line(b, "memory");
    put_bytes(b, weights_bytes(in->weights) + in->kv_bytes + in->work_bytes);
    buf_printf(b, " at %" PRId64 " positions: weights ", in->n_ctx);
    put_bytes(b, weights_bytes(in->weights));
    buf_puts(b, " (mapped), KV ");
    put_bytes(b, in->kv_bytes);
    buf_puts(b, ", work ");
    put_bytes(b, in->work_bytes);
    buf_puts(b, "\n");
}

static void text_tensors(struct buf *b, const struct weights *w)
{
    buf_printf(b, "\n%-52s %-8s %-22s %5s %14s %14s\n", "tensor", "type", "shape", "file", "offset", "bytes");
    for (size_t i = 0; i < weights_count(w); i++) {
        const struct weight *t = weights_at(w, i);
        size_t start = b->len;
        char shape[WEIGHT_DIMS_MAX * 24] = "scalar";
        size_t len = 0;
        for (int d = 0; d < t->n_dims; d++)
            len +=
                (size_t)snprintf(shape + len, sizeof shape - len, "%s%" PRId64, d ? " x " : "", t->shape[d]);
        put_name(b, t->name);
        size_t used = b->len - start;
        buf_printf(b, "%*s %-8s %-22s %5d %14zu %14zu\n", used < 52 ? (int)(52 - used) : 0, "",
                   dtype_info(t->dtype)->name, shape, t->file, t->offset, t->size);
    }
}

void inspect_text(struct buf *b, const struct inspection *in)
{
    const struct weights *w = in->weights;
    char text[256];
    const char *why = obstacle(in, text, sizeof text);
    line(b, "path");
    buf_printf(b, "%s\n", weights_path(w));
    line(b, "format");
    buf_printf(b, "%s, %d file%s\n", weights_format_name(weights_format(w)), weights_n_files(w),
               weights_n_files(w) == 1 ? "" : "s");
    line(b, "architecture");
    put_name(b, in->architecture[0] ? in->architecture : "not named");
    buf_puts(b, "\n");
    line(b, "parameters");
    buf_printf(b, "%" PRId64 " in %zu tensors, ", config_n_params(w), weights_count(w));
    put_bytes(b, weights_bytes(w));
    buf_puts(b, "\n");
    if (in->has_config)
        text_config(b, &in->config);
    line(b, "tokenizer");
    if (in->tokenizer)
        buf_printf(b, "%s, %d ids, from %s\n", tokenizer_kind(in->tokenizer),
                   (int)tokenizer_n_ids(in->tokenizer), tokenizer_source(in->tokenizer));
    else
        buf_puts(b, "none\n");
    if (in->has_config && !in->memory_err.code)
        text_memory(b, in);
    line(b, "can be run");
    buf_printf(b, "%s%s\n", why ? "no: " : "yes", why ? why : "");
    if (in->checked)
        buf_printf(b, "%-14s%" PRIu64 " NaN, %" PRIu64 " Inf\n", "check", in->n_nan, in->n_inf);
    text_tensors(b, w);
}
