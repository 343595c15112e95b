/* The shared flag tables and how they reach forge.h; the environment; where
 * the built-in model lies.
 * Knows nothing of any one command. */
#include "cli/common.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#include "base/buf.h"
#include "base/map.h"
#include "base/mem.h"
#include "cli/out.h"

#define BUILT_IN "forge-tiny"

#define F(field) offsetof(struct common, field)

const struct opt common_talk_opts[] = {
    {"verbose", 'v', OPT_COUNT, F(verbose), 0, NULL, NULL, NULL,
     "more: the device chosen, the values in force; twice: more still"},
    {"quiet", 'q', OPT_FLAG, F(quiet), 0, NULL, NULL, NULL, "less: errors only, no progress, no figures"},
    {"debug", 0, OPT_STR, F(debug), 0, "LIST", NULL, NULL,
     "debug lines of these categories: load, kv, sched, cl, text, run"},
    {0},
};

const struct opt common_model_opts[] = {
    {"model", 'm', OPT_STR, F(model), 0, "PATH", NULL, NULL,
     "a Hugging Face folder, a .safetensors, .pth/.bin or .gguf file (first file of a split one); a "
     "relative path that does not exist is looked for in the folder FORGE_WEIGHTS, by default weights "
     "(default: FORGE_MODEL, else the built-in model)"},
    {"tokenizer", 0, OPT_STR, F(tokenizer), 0, "PATH", NULL, NULL,
     "tokenizer.json (default: beside the weights, or inside the GGUF)"},
    {"config", 0, OPT_STR, F(config), 0, "PATH|PRESET", NULL, NULL,
     "config.json, or a preset such as qwen3-0.6b, for weights without one (default: beside the weights)"},
    {0},
};

const struct opt common_device_opts[] = {
    {"device", 0, OPT_STR, F(device), 0, "D", NULL, "auto",
     "auto, cpu, ref (plain C, slow), opencl, opencl:gpu, opencl:cpu, opencl:N as in 'forge devices', "
     "opencl:P.D, or part of a device's name; a comma list splits the layers"},
    {"split", 0, OPT_STR, F(split), 0, "A,B,...", NULL, NULL,
     "each device's share of the layers of a list (default: equal)"},
    {"require-device", 0, OPT_FLAG, F(require_device), 0, NULL, NULL, NULL,
     "an error instead of any fallback"},
    {"math", 0, OPT_CHOICE, F(math), 0, NULL, "auto|exact|fast", "auto",
     "exact: f32 activations everywhere; fast rounds them to int8 in products with quantised weights (CPU; to bf16 with BF16 "
     "ones where it multiplies those), or to int8 or half where an OpenCL device has the arithmetic for it; auto: fast on the CPU, unless --deterministic, exact elsewhere"},
    {"deterministic", 0, OPT_FLAG, F(deterministic), 0, NULL, NULL, NULL,
     "own kernels only, one order of sums for every number of rows"},
    {"cpu-isa", 0, OPT_STR, F(cpu_isa), 0, "NAME", NULL, NULL,
     "force a lower instruction set: avx512bf16, avx512vnni, avx512, avx2; neondot, neon; or c (default: the best; --version -v lists "
     "those that are here)"},
    {"kernels", 0, OPT_CHOICE, F(kernels), 0, NULL, "auto|cpu|gpu", "auto", "kernel family on OpenCL"},
    {"no-selftest", 0, OPT_FLAG, F(no_selftest), 0, NULL, NULL, NULL, "skip the check of a device at start"},
    {"threads", 0, OPT_I64, F(threads), F(has_threads), "N", "1..1024", NULL,
     "CPU threads (default: the cores this process may use)"},
    {"ctx", 0, OPT_I64, F(ctx), F(has_ctx), "N", "0..", NULL,
     "positions to plan for; 0 = the model's own limit (default: the smaller of that and 4096)"},
    {"kv", 0, OPT_CHOICE, F(kv), 0, NULL, "f16|f32|q8_0", "f16",
     "type of the KV cache; q8_0: about half of f16's memory, on cpu and ref, for heads of a multiple of 32"},
    {"kv-mem", 0, OPT_SIZE, F(kv_mem), 0, "BYTES", NULL, NULL,
     "memory for the KV cache, with K, M or G (default: what --ctx needs)"},
    {"gpu-mem", 0, OPT_SIZE, F(gpu_mem), 0, "BYTES", NULL, NULL,
     "memory to use on each device but the CPU (default: its own size)"},
    {"max-seqs", 0, OPT_I64, F(max_seqs), F(has_max_seqs), "N", "1..4096", "1",
     "sequences at once; generate --jsonl: up to 8 by itself"},
    {"page-size", 0, OPT_I64, F(page_size), F(has_page_size), "N", "0..256", NULL,
     "positions of a KV page; 0 = one page of --ctx"},
    {"chunk", 0, OPT_I64, F(chunk), 0, "N", "1..65536", "512",
     "positions of one prefill step at most; the CPU takes fewer where a step would last longer than a second, and where a "
     "device has too little memory for them all take fewer, which is told"},
    {"no-prefix-cache", 0, OPT_FLAG, F(no_prefix_cache), 0, NULL, NULL, NULL,
     "keep no prefixes of earlier prompts"},
    {"prefix-mem", 0, OPT_SIZE, F(prefix_mem), 0, "BYTES", NULL, NULL,
     "memory of the KV cache that prefixes of earlier prompts may keep at most, with K, M or G (default: all that is free)"},
    {"profile", 0, OPT_MAYBE, F(profile), 0, "FILE", NULL, NULL,
     "tables of operations and kernels on stderr; a trace for chrome://tracing in FILE"},
    {"gemm", 0, OPT_CHOICE, F(gemm), 0, NULL, "own|clblast|auto", "auto",
     "who multiplies matrices of 32 rows and more on OpenCL; auto: on GPUs the faster one, measured once and kept "
     "in the cache folder, elsewhere own kernels; with --deterministic always own"},
    {"clblast-params", 0, OPT_STR, F(clblast_params), 0, "FILE", NULL, NULL,
     "CLBlast's parameters and speeds from a file, as 'forge tune gemm --out' writes it (OpenCL)"},
    {"kernel-cache", 0, OPT_STR, F(kernel_cache), 0, "DIR", NULL, NULL,
     "folder of compiled kernels (OpenCL; default: forge in XDG_CACHE_HOME, else ~/.cache/forge)"},
    {"no-kernel-cache", 0, OPT_FLAG, F(no_kernel_cache), 0, NULL, NULL, NULL,
     "compile kernels anew (OpenCL)"},
    {"kernel-dir", 0, OPT_STR, F(kernel_dir), 0, "DIR", NULL, NULL,
     "kernels from files instead of the built-in text (OpenCL)"},
    {0},
};

int common_check(const struct common *c, const char *cmd)
{
    if (c->model && !*c->model)
        return msg_usage(cmd, "-m, --model: the path is empty");
    if (c->math == MATH_CHOICE_FAST && strcmp(c->device, "ref") == 0)
        return msg_usage(cmd, "--math fast is not available on ref, which is always exact");
    if (c->prefix_mem > 0 && c->no_prefix_cache)
        return msg_usage(cmd, "--prefix-mem says how much is kept, and --no-prefix-cache that nothing is");
    return 0;
}

static void sink(void *user, enum forge_log_level level, const char *line)
{
    static void (*const print[])(const char *fmt, ...) = {msg_error, msg_warn, msg_info, msg_verbose,
                                                          msg_info};
    (void)user;
    print[level]("%s", line);
}

int common_log(const struct common *c, const char *cmd)
{
    struct forge_error err = {0};
    enum forge_log_level level = c->quiet         ? FORGE_LOG_ERROR
                                 : c->debug       ? FORGE_LOG_DEBUG
                                 : c->verbose > 0 ? FORGE_LOG_VERBOSE
                                                  : FORGE_LOG_INFO;
    if (forge_log_set(sink, NULL, level, c->debug, &err) < 0)
        return msg_usage(cmd, "--debug: %s", err.message);
    return 0;
}

/* ---- where the model is ---- */

static char *model_in(const char *dir)
{
    char *model = path_join(dir, BUILT_IN);
    if (model && path_is_dir(model))
        return model;
    free(model);
    return NULL;
}

/* The built-in model, by this order:
 *   1. beside an installed program, wherever the tree was moved: ../share/forge below its folder;
 *   2. beside a program in the build tree: data/ in its folder or up to two folders above
 *      (libtool keeps the program in .libs);
 *   3. the source tree it was built from (a build out of the tree);
 *   4. the data folder chosen at configure time. */
static char *built_in_model(void)
{
    static const char *const near[] = {"../share/forge", "data", "../data", "../../data"};
    char exe[PATH_MAX];
    char *found = NULL;
    ssize_t len = readlink("/proc/self/exe", exe, sizeof exe - 1);
    if (len > 0) {
        exe[len] = '\0';
        char *dir = path_dirname(exe);
        for (size_t i = 0; dir && !found && i < sizeof near / sizeof *near; i++) {
            char *there = path_join(dir, near[i]);
            found = there ? model_in(there) : NULL;
            free(there);
        }
        free(dir);
    }
#ifdef FORGE_SRCDATADIR
    if (!found)
        found = model_in(FORGE_SRCDATADIR);
#endif
#ifdef FORGE_DATADIR
    if (!found)
        found = model_in(FORGE_DATADIR);
#endif
    if (!found)
        msg_error("the built-in model (" BUILT_IN ") is not where it was installed; name a model with -m");
    return found;
}

static const char *environment(const char *name)
{
    const char *v = getenv(name);
    return v && *v ? v : NULL;
}

static char *find_model(const char *path)
{
    if (path[0] == '/' || path_exists(path))
        return mem_strdup(path);
    const char *weights = environment("FORGE_WEIGHTS");
    char *there = path_join(weights ? weights : "weights", path);
    if (there && path_exists(there))
        return there;
    msg_error("%s: no such file or folder, nor %s", path, there ? there : "");
    free(there);
    return NULL;
}

char *common_model_path(const struct common *c)
{
    const char *path = c->model ? c->model : environment("FORGE_MODEL");
    return path ? find_model(path) : built_in_model();
}

/* ---- the engine ---- */

static int on_load(void *user, enum forge_load_phase phase, uint64_t done, uint64_t total)
{
    struct progress *p = user;
    if (p && phase == FORGE_LOAD_KERNELS)
        progress_next(p, "compiling kernels", "parts");
    if (p)
        progress_update(p, done, total);
    return interrupted();
}

char *common_kernel_cache(const struct common *c)
{
    if (c->no_kernel_cache)
        return NULL;
    if (c->kernel_cache)
        return mem_strdup(c->kernel_cache);
    const char *base = environment("XDG_CACHE_HOME");
    if (base && base[0] == '/') /* a relative one is to be ignored, says its standard */
        return path_join(base, "forge");
    base = environment("HOME");
    return base ? path_join(base, ".cache/forge") : NULL;
}

void common_engine_params(struct forge_engine_params *p, const struct common *c, const char *model,
                          const char *kernel_cache, struct progress *load)
{
    static const char *const kernels[] = {NULL, "cpu", "gpu"};
    static const enum forge_gemm gemm[] = {FORGE_GEMM_OWN, FORGE_GEMM_CLBLAST, FORGE_GEMM_AUTO};
    static const enum forge_math math[] = {FORGE_MATH_DEFAULT, FORGE_MATH_EXACT, FORGE_MATH_FAST};
    forge_engine_params_init(p, sizeof *p);
    p->model = model;
    p->tokenizer = c->tokenizer;
    p->config = c->config;
    p->device = c->device;
    p->split = c->split;
    p->require_device = c->require_device;
    p->math = math[c->math];
    p->deterministic = c->deterministic;
    p->cpu_isa = c->cpu_isa;
    p->kernels = kernels[c->kernels];
    p->no_selftest = c->no_selftest;
    p->n_threads = (int)c->threads;
    if (c->has_ctx)
        p->n_ctx = c->ctx;
    p->kv_type = c->kv == KV_CHOICE_F32 ? FORGE_KV_F32 : c->kv == KV_CHOICE_Q8_0 ? FORGE_KV_Q8_0 : FORGE_KV_F16;
    if (c->has_page_size)
        p->page_size = (int)c->page_size;
    p->max_seqs = (int)c->max_seqs;
    p->chunk = (int)c->chunk;
    p->kv_mem = c->kv_mem;
    p->gpu_mem = c->gpu_mem;
    p->no_prefix_cache = c->no_prefix_cache;
    p->prefix_mem = c->prefix_mem;
    p->kernel_cache = kernel_cache;
    p->kernel_dir = c->kernel_dir;
    p->profile = c->profile.given;
    p->gemm = gemm[c->gemm];
    p->clblast_params = c->clblast_params;
    p->chat_template = c->chat_template;
    p->on_load = on_load;
    p->user = load;
}

static bool in_word(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || strchr("_-./", c);
}

/* The flag of a parameter's name, NULL = that is none. */
static const char *flag_of(const char *name, size_t len)
{
    static const char *const flags[][2] = {
        {"config", "--config"},     {"n_ctx", "--ctx"},         {"kv_type", "--kv"},       {"kv_mem", "--kv-mem"},
        {"gpu_mem", "--gpu-mem"},   {"max_seqs", "--max-seqs"}, {"n_threads", "--threads"}, {"chunk", "--chunk"},
        {"tokenizer", "--tokenizer"}, {"device", "--device"},   {"split", "--split"},
        {"require_device", "--require-device"}, {"prefix_mem", "--prefix-mem"},
    };
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
        if (strlen(flags[i][0]) == len && memcmp(flags[i][0], name, len) == 0)
            return flags[i][1];
    return NULL;
}

int common_open_failed(int code, const char *message)
{
    struct buf b;
    const char *advice = strrchr(message, ';');
    buf_init(&b);
    buf_put(&b, message, advice ? (size_t)(advice - message) : strlen(message));
    for (const char *s = advice; s && *s;) {
        size_t len = 0;
        while (s[len] && in_word(s[len]))
            len++;
        const char *flag = flag_of(s, len);
        if (flag)
            buf_puts(&b, flag);
        else
            buf_put(&b, s, len ? len : 1);
        s += len ? len : 1;
    }
    int status = msg_fail(code, b.failed ? message : buf_str(&b));
    buf_fini(&b);
    return status;
}

/* The backend makes the folder where it is missing, and goes on without one. */
void common_check_cache(const struct common *c)
{
    const char *dir = c->no_kernel_cache ? NULL : c->kernel_cache;
    if (dir && !path_is_dir(dir))
        msg_warn("--kernel-cache: '%s' is no folder and cannot be made one; compiled kernels are not kept", dir);
    else if (dir && access(dir, R_OK | W_OK | X_OK) != 0)
        msg_warn("--kernel-cache: %s cannot be used: %s; compiled kernels are not kept", dir, strerror(errno));
}

void common_unused(const struct common *c, const char *device)
{
    const struct {
        const char *flag;
        bool given, later; /* not in this version, on no device */
    } flags[] = {
        {"--gemm", c->gemm != GEMM_CHOICE_AUTO, false},
        {"--clblast-params", c->clblast_params != NULL, false},
        {"--kernel-dir", c->kernel_dir != NULL, false},
        {"--kernel-cache", c->kernel_cache != NULL, false},
        {"--kernels", c->kernels != KERNELS_CHOICE_AUTO, false},
        {"--gpu-mem", c->gpu_mem != 0, false},
    };
    bool opencl = strstr(device, "opencl") != NULL;
    if (opencl)
        common_check_cache(c);
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
        if (flags[i].given && !opencl)
            msg_verbose("%s has no effect on %s: it is for OpenCL devices", flags[i].flag, device);
        else if (flags[i].given && flags[i].later)
            msg_warn("%s has no effect in this version", flags[i].flag);
}

int common_engine_open(struct forge_engine **out, const struct common *c, int64_t max_seqs)
{
    return common_engine_open_draft(out, c, max_seqs, NULL, 0);
}

int common_engine_open_draft(struct forge_engine **out, const struct common *c, int64_t max_seqs, const char *draft, int draft_n)
{
    struct forge_engine_params p;
    struct forge_error err = {0};
    struct progress load;
    *out = NULL;
    char *model = common_model_path(c), *small = model && draft ? find_model(draft) : NULL;
    if (!model || (draft && !small)) {
        free(model);
        return EXIT_FAILED;
    }
    progress_start(&load, "loading", "tensors");
    char *kernel_cache = common_kernel_cache(c);
    common_engine_params(&p, c, model, kernel_cache, &load);
    if (!c->has_max_seqs)
        p.max_seqs = (int)max_seqs;
    p.draft_model = small;
    p.draft_max = draft_n;
    int rc = forge_engine_open(out, &p, &err);
    while ((rc == FORGE_ERR_LIMIT || rc == FORGE_ERR_NOMEM) && !c->has_max_seqs && p.max_seqs > 1) {
        p.max_seqs /= 2; /* mostly refused before weights are read */
        err = (struct forge_error){0};
        rc = forge_engine_open(out, &p, &err);
    }
    progress_end(&load);
    free(model);
    free(small);
    free(kernel_cache);
    if (rc == 0)
        common_unused(c, forge_engine_info(*out)->device);
    return rc < 0 ? common_open_failed(err.code, err.message) : 0;
}

int common_profile(const struct common *c, const struct forge_engine *e, int status)
{
    return c->profile.given && e ? profile_engine(c->profile.value, e, status) : status;
}
