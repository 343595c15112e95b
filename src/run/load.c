/* From paths to everything a run needs, in the order that refuses early: files'
 * indexes, configuration, tokenizer, memory; only then devices and weights.
 * Knows nothing of requests or sampling. */
#include "run/load.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "run/load_parts.h"

#define CTX_DEFAULT 4096
#define CHUNK_MAX 65536
#define WANT_BYTES ((int64_t)32 << 20)

void load_params_init(struct load_params *p)
{
    *p = (struct load_params){
        .kv = {.dtype = DTYPE_F16, .page_size = 16, .n_ctx = -1, .max_seqs = 1},
        .chunk = 512,
    };
}

static int settle_ctx(struct loaded *l, const struct load_params *p, struct err *err)
{
    int64_t max = l->config->n_ctx_max, n = p->kv.n_ctx;
    if (n < -1)
        return err_set(err, ERR_ARG, "a context of %lld positions is not possible", (long long)n);
    if (n > max && p->clip_ctx)
        n = max;
    if (n > max)
        return err_set(err, ERR_ARG, "a context of %lld positions is more than the model's limit of %lld", (long long)n,
                       (long long)max);
    l->n_ctx = n > 0 ? n : n == 0 || max < CTX_DEFAULT ? max : CTX_DEFAULT;
    return 0;
}

/* Rows of a step and of its logits. */
static int settle_rows(struct loaded *l, const struct load_params *p, struct err *err)
{
    if (p->chunk < 1 || p->chunk > CHUNK_MAX)
        return err_set(err, ERR_ARG, "chunk is %d; it must be 1 to %d", p->chunk, CHUNK_MAX);
    if (p->kv.max_seqs < 1)
        return err_set(err, ERR_ARG, "max_seqs is %d; it must be at least 1", p->kv.max_seqs);
    int64_t row_bytes = l->config->n_vocab * (int64_t)sizeof(float);
    int64_t want = p->max_want > 0 ? p->max_want : WANT_BYTES / row_bytes;
    l->chunk = p->chunk < l->n_ctx ? p->chunk : (int)l->n_ctx;
    int64_t rows = l->chunk > p->kv.max_seqs ? l->chunk : p->kv.max_seqs;
    want = want < p->kv.max_seqs ? p->kv.max_seqs : want;
    l->max_want = (int)(want > rows ? rows : want);
    return 0;
}

static void make_limits(const struct loaded *l, const struct kv_params *kv, struct forward_limits *out)
{
    int64_t page = kv->page_size ? kv->page_size : kv->n_ctx;
    *out = (struct forward_limits){
        .max_rows = l->chunk > kv->max_seqs ? l->chunk : kv->max_seqs,
        .max_want = l->max_want,
        .max_seqs = kv->max_seqs,
        .n_ctx = kv->n_ctx,
    };
    for (int g = 0; g < l->config->n_groups; g++)
        out->max_pages[g] = (int)((kv->n_ctx + page - 1) / page);
}

static const char *figure(char out[32], uint64_t bytes)
{
    if (bytes < (uint64_t)1 << 20)
        snprintf(out, 32, "%llu bytes", (unsigned long long)bytes);
    else
        snprintf(out, 32, "%.1f MiB", (double)bytes / (1 << 20));
    return out;
}

static void find_need(const struct loaded *l, const struct kv_params *kv, uint64_t wanted, struct load_need *out)
{
    uint64_t copied = 0, all = weights_bytes(l->weights);
    for (size_t i = 0; i < weights_count(l->weights); i++)
        if (weights_at(l->weights, i)->copied)
            copied += weights_at(l->weights, i)->size;
    *out = (struct load_need){
        .mapped = all > copied ? all - copied : 0,
        .copied = copied,
        .kv = kv_bytes(l->config, kv),
        .tables = kv_host_bytes(l->config, kv),
        .work = l->work_bytes,
        .wanted = wanted,
        .n_ctx = kv->n_ctx,
        .max_seqs = kv->max_seqs,
        .kv_wide = kv->dtype == DTYPE_F32,
    };
}

int load_settle_rows(struct loaded *l, const struct load_params *p, struct kv_params *kv, struct load_need *need,
                     struct err *err)
{
    struct forward_limits limits;
    int rc = settle_rows(l, p, err);
    kv->n_ctx = l->n_ctx;
    kv->chunk = l->chunk;
    if (rc < 0 || (rc = kv_check(kv, err)) < 0)
        return rc;
    make_limits(l, kv, &limits);
    l->work_bytes = forward_bytes(l->config, &limits);
    uint64_t largest = forward_largest(l->config, &limits, false), logits = forward_largest(l->config, &limits, true);
    limits.max_want = 0;
    find_need(l, kv, l->work_bytes - forward_bytes(l->config, &limits), need);
    need->largest = largest;
    need->largest_wanted = logits;
    return 0;
}

/* Between other advice: only where there is a smaller type. */
static const char *smaller_kv(bool wide)
{
    return wide ? ", choose f16 as kv_type" : "";
}

/* The budget of the user's, which needs no device to be asked. */
static int check_budget(const struct load_need *need, uint64_t budget, struct err *err)
{
    char w[32], k[32], f[32], a[32];
    if (budget == 0 || need->kv <= budget)
        return 0;
    return err_set(err, ERR_LIMIT,
                   "the KV cache needs %s at ctx %lld and its budget is %s (besides %s for weights (mapped) and %s work); "
                   "lower n_ctx%s or raise kv_mem",
                   figure(k, need->kv), (long long)need->n_ctx, figure(a, budget), figure(w, need->mapped), figure(f, need->work),
                   smaller_kv(need->kv_wide));
}

static uint64_t part(uint64_t bytes, double share)
{
    double v = (double)bytes * share;
    return v >= 0x1p64 ? UINT64_MAX : (uint64_t)v;
}

/* Refuses what is needed `there`, in one memory that has less; `weights` of it no shorter context makes smaller. */
static int too_much(const char *where, const struct load_need *need, const struct load_need *there, uint64_t weights, uint64_t has,
                    struct err *err)
{
    char w[32], k[32], f[32], a[32], b[32], advice[96] = "the weights alone are more: share the layers out over devices";
    if (weights <= has)
        snprintf(advice, sizeof advice, "lower n_ctx%s", smaller_kv(need->kv_wide));
    return err_set(err, ERR_LIMIT,
                   "this does not fit on %s: it needs %s for weights (mapped), %s copied, %s KV at ctx %lld x %d sequences and %s "
                   "work; available %s; %s or raise gpu_mem (devices other than the CPU)",
                   where, figure(w, there->mapped), figure(b, there->copied), figure(k, there->kv), (long long)need->n_ctx,
                   need->max_seqs, figure(f, there->work), figure(a, has), advice);
}

/* Mapped weights are the page cache's and can be dropped and read again, so that on the host they alone refuse
 * nothing; what strides forced to be copied, the KV cache and the workspaces must be there.  A device with memory
 * of its own takes its weights into it, and its backend refuses them, with the figures of the moment. */
int load_check_places(const struct load_need *need, const struct load_place *places, int n, uint64_t available, struct err *err)
{
    char w[32], a[32];
    struct load_need host = {.copied = need->copied, .work = need->tables};
    for (int i = 0; i < n; i++) {
        const struct load_place *p = &places[i];
        struct load_need there = {.mapped = part(need->mapped, p->share), .kv = part(need->kv, p->share),
                                  .work = need->work - (i < n - 1 ? need->wanted : 0)};
        if (p->host) {
            host.mapped = mem_add_sat(host.mapped, there.mapped);
            host.kv = mem_add_sat(host.kv, there.kv);
            host.work = mem_add_sat(host.work, there.work);
            continue;
        }
        uint64_t taken = mem_add_sat(there.kv, there.work);
        if (p->limit && taken > p->limit)
            return too_much(p->device, need, &there, there.mapped, p->limit, err);
        if (p->limit && there.mapped > p->limit - taken)
            log_msg(LOG_WARN, "%s: weights of %s beside the KV cache and the workspace are more than its %s", p->device,
                    figure(w, there.mapped), figure(a, p->limit));
    }
    uint64_t taken = mem_add_sat(mem_add_sat(host.kv, host.work), host.copied);
    if (available == 0)
        return 0;
    if (taken > available)
        return too_much("the host", need, &host, host.copied, available, err);
    if (host.mapped > available - taken)
        log_msg(LOG_WARN, "weights of %s do not stay in the %s of memory that are left: expect reads from the disk",
                figure(w, host.mapped), figure(a, available - taken));
    return 0;
}

static int check_places(const struct loaded *l, const struct load_need *need, const struct load_params *p, const double *split,
                        struct err *err)
{
    struct load_place places[REGISTRY_MAX_INSTANCES];
    double total = 0;
    for (int i = 0; i < l->n_backends; i++)
        total += split ? split[i] : 1;
    for (int i = 0; i < l->n_backends; i++) {
        struct backend_caps caps;
        op_caps(l->backends[i], &caps);
        places[i] = (struct load_place){
            .device = op_device(l->backends[i]),
            .host = caps.host_memory || (caps.shares_host && !p->backend.mem_limit),
            .limit = p->backend.mem_limit ? p->backend.mem_limit : caps.mem_size,
            .share = (split ? split[i] : 1) / total,
        };
    }
    return load_check_places(need, places, l->n_backends, mem_available(), err);
}

/* "3,1": one share per device.  Plain decimals, whatever the locale. */
int load_parse_split(const char *text, double *out, int n, struct err *err)
{
    int count = 0;
    const char *s = text;
    while (count < n) {
        double value = 0, unit = 1;
        bool digits = false;
        for (; *s >= '0' && *s <= '9'; s++, digits = true)
            value = value * 10 + (*s - '0');
        if (*s == '.')
            for (s++; *s >= '0' && *s <= '9'; s++, digits = true)
                value += (*s - '0') * (unit /= 10);
        if (!digits || !(value > 0 && value < 1e9))
            break;
        out[count++] = value;
        if (*s != ',' || count == n)
            break;
        s++;
    }
    if ((count != n || *s) && n == 1)
        return err_set(err, ERR_ARG, "split \"%s\" must be one number above 0 and below 1e9 for one device; device names no list "
                                     "of devices whose layers could be split", text);
    if (count != n || *s)
        return err_set(err, ERR_ARG, "split \"%s\" must be %d numbers above 0 and below 1e9, one for each device, with commas "
                                     "between", text, n);
    return 0;
}

/* One order of sums for every number of rows: the CPU's backends keep it always, the others when asked to. */
bool load_free_rows(const struct loaded *l, bool deterministic)
{
    for (int i = 0; i < l->n_backends && !deterministic; i++)
        if (strcmp(op_device(l->backends[i]), "cpu") != 0 && strcmp(op_device(l->backends[i]), "ref") != 0)
            return false;
    return true;
}

/* Memory that a backend was refused, or an allocation larger than its largest: for what, and what makes it less. */
static void no_room(struct err *err, const char *what, const char *advice)
{
    if (!err || (err->code != ERR_NOMEM && err->code != ERR_LIMIT))
        return;
    struct err was = *err;
    err_set(err, was.code, "%s: %s; %s", what, was.msg, advice);
}

/* Whoever asks for rounded activations is not given something else. */
int load_check_math(const struct loaded *l, enum backend_math math, struct err *err)
{
    for (int i = 0; i < l->n_backends && math == MATH_FAST; i++)
        if (strcmp(op_device(l->backends[i]), "ref") == 0)
            return err_set(err, ERR_ARG, "math fast is not available on ref, which is always exact");
    return 0;
}

/* A check of a device takes seconds, at its first use many. */
static bool stopped(void *user)
{
    const struct load_watch *w = user;
    return w->progress && w->progress(w->user, 0, 0) != 0;
}

/* p's device and split become what is opened in the end; the strings are fit's. */
static int open_model(struct loaded *l, struct load_params *p, struct kv_params *kv, struct load_fit *fit,
                      struct load_need *need, struct err *err)
{
    double split[REGISTRY_MAX_INSTANCES];
    if (p->progress) {
        l->watch = (struct load_watch){p->progress, p->user};
        p->backend.stop = stopped;
        p->backend.stop_user = &l->watch;
    }
    p->backend.heads = (struct op_heads){(int)l->config->n_heads, (int)l->config->n_kv_heads, (int)l->config->head_dim,
                                         kv->dtype};
    int rc = registry_open(p->device ? p->device : "auto", &p->backend, l->backends, &l->n_backends, l->reason,
                           sizeof l->reason, err);
    if (rc == 0)
        rc = load_fit(l, p, kv, need, fit, err);
    if (rc == 0)
        rc = load_check_math(l, p->backend.math, err);
    if (rc == 0 && fit->device[0] != '\0') {
        p->device = fit->device;
        p->split = fit->split;
    }
    if (rc == 0 && p->split)
        rc = load_parse_split(p->split, split, l->n_backends, err);
    if (rc == 0)
        rc = check_places(l, need, p, p->split ? split : NULL, err);
    if (rc < 0)
        return rc;
    l->fast = p->backend.math == MATH_FAST;
    l->kv_dtype = kv->dtype;
    l->free_rows = load_free_rows(l, p->backend.deterministic);
    struct model_config *config = l->config;
    rc = model_open(&l->model, config, l->weights, l->backends, l->n_backends, p->split ? split : NULL, p->progress, p->user,
                    err);
    if (rc < 0)
        no_room(err, "the weights", "raise gpu_mem, or give other devices a part of the layers");
    config_fini(config); /* emptied by the move */
    free(config);
    l->config = rc == 0 ? &l->model->config : NULL;
    return rc;
}

static int open_files(struct loaded *l, const struct load_params *p, struct err *err)
{
    int rc = weights_open(&l->weights, p->model, err);
    if (rc < 0)
        return rc;
    l->config = mem_array(1, sizeof *l->config);
    if (!l->config)
        return err_set(err, ERR_NOMEM, "no memory for a configuration");
    rc = config_load(l->config, l->weights, p->config, err);
    if (rc == 0)
        rc = load_tokenizer(&l->tokenizer, l->weights, p->tokenizer, err);
    if (rc == 0)
        rc = load_check_tokenizer(l->config, l->tokenizer, err);
    if (rc == 0)
        load_warn_ids(l->config);
    if (rc == 0)
        load_settle_end(l->config, l->tokenizer, weights_format(l->weights));
    return rc;
}

int load_open_rest(struct loaded *l, const struct kv_params *kv, struct err *err)
{
    struct forward_limits limits;
    struct kv_params settled = *kv;
    settled.keep = kv->keep && l->free_rows; /* else a text could depend on what ran before */
    int rc = kv_new(&l->kv, l->model, &settled, err);
    if (rc < 0) {
        no_room(err, "the KV cache",
                kv->dtype == DTYPE_F32 ? "lower n_ctx, choose f16 as kv_type or raise gpu_mem" : "lower n_ctx or raise gpu_mem");
        return rc;
    }
    make_limits(l, kv, &limits); /* once more: binding parts the groups of layers by instance */
    for (int g = 0; g < l->config->n_groups; g++)
        assert(limits.max_pages[g] == kv_max_pages(l->kv, g));
    rc = forward_new(&l->forward, l->model, kv_layers(l->kv), &limits, err);
    if (rc < 0)
        no_room(err, "the work space", "lower chunk or n_ctx, or raise gpu_mem");
    return rc;
}

int load_open(struct loaded *out, const struct load_params *p, struct err *err)
{
    double start = clock_now();
    struct kv_params kv = p->kv;
    struct load_need need;
    struct load_params settled = *p;
    struct load_fit fit;
    *out = (struct loaded){0};
    if (!p->model || !*p->model)
        return err_set(err, ERR_ARG, "no model is named");
    int rc = open_files(out, p, err);
    if (rc == 0 && !p->no_weights)
        rc = settle_ctx(out, p, err);
    if (rc < 0 || p->no_weights)
        goto done;
    if ((rc = load_settle_rows(out, &settled, &kv, &need, err)) < 0 || (rc = check_budget(&need, kv.mem, err)) < 0 ||
        (rc = open_model(out, &settled, &kv, &fit, &need, err)) < 0)
        goto done;
    rc = load_open_rest(out, &kv, err);
    if (rc == 0)
        rc = load_keep(out, &settled, &kv, err);
    if (rc == 0)
        rc = load_warm(out, &settled, err);
done:
    out->watch = (struct load_watch){0}; /* whoever watched may be gone */
    if (rc < 0)
        load_close(out);
    out->load_s = clock_now() - start;
    return rc;
}

double load_compile_s(const struct loaded *l)
{
    double sum = 0;
    for (int i = 0; i < l->n_backends; i++) {
        struct backend_caps caps;
        op_caps(l->backends[i], &caps);
        sum += caps.compile_s;
    }
    return sum;
}

void load_close(struct loaded *l)
{
    forward_free(l->forward);
    kv_free(l->kv);
    if (l->model) {
        model_close(l->model);
    } else if (l->config) {
        config_fini(l->config);
        free(l->config);
    }
    for (int i = 0; i < l->n_backends; i++)
        registry_close(l->backends[i]);
    load_keep_free(l->again);
    tokenizer_close(l->tokenizer);
    weights_close(l->weights);
    *l = (struct loaded){0};
}
