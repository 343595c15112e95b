/* The flags that several commands share: which model, which device, how much
 * of it, how talkative; and what they mean to the library.  The environment
 * (FORGE_MODEL, FORGE_WEIGHTS) is read here and nowhere else. */
#ifndef FORGE_CLI_COMMON_H
#define FORGE_CLI_COMMON_H

#include <stdint.h>

#include <forge.h>

#include "cli/opts.h"
#include "cli/out.h"
#include "cli/profile.h"
#include "cli/progress.h"

struct common {
    const char *model, *tokenizer, *config;
    const char *device, *split;
    bool require_device;
    int math; /* enum math_choice */
    bool deterministic;
    const char *cpu_isa;
    int kernels; /* enum kernels_choice */
    bool no_selftest;
    uint64_t gpu_mem, kv_mem, prefix_mem;
    int64_t max_seqs, page_size, chunk;
    bool has_max_seqs, has_page_size;
    bool no_prefix_cache;
    struct maybe profile;
    int64_t threads;
    bool has_threads;
    int64_t ctx;
    bool has_ctx;
    int kv; /* enum kv_choice */
    int gemm;
    const char *clblast_params, *kernel_cache, *kernel_dir;
    bool no_kernel_cache;
    int verbose;
    bool quiet;
    const char *debug;
    const char *chat_template; /* no shared flag: set by the commands that have one */
};

enum math_choice { MATH_CHOICE_AUTO, MATH_CHOICE_EXACT, MATH_CHOICE_FAST };
enum kernels_choice { KERNELS_CHOICE_AUTO, KERNELS_CHOICE_CPU, KERNELS_CHOICE_GPU };
enum gemm_choice { GEMM_CHOICE_OWN, GEMM_CHOICE_CLBLAST, GEMM_CHOICE_AUTO };
enum kv_choice { KV_CHOICE_F16, KV_CHOICE_F32, KV_CHOICE_Q8_0 };

extern const struct opt common_talk_opts[];   /* -v, -q, --debug: every command */
extern const struct opt common_model_opts[];  /* -m, --tokenizer, --config */
extern const struct opt common_device_opts[]; /* --device ... --kv ... */

/* Values that parse, and that this version cannot do: EXIT_USAGE with a message, else 0. */
int common_check(const struct common *c, const char *cmd);
/* Sends the library's log lines to stderr at the level of -v, -q, --debug. */
int common_log(const struct common *c, const char *cmd);

/* The model's path, by this order: -m; FORGE_MODEL; the built-in model.  A relative path that does not
 * exist is looked for in the folder FORGE_WEIGHTS (default "weights").  Freed by the caller; NULL with a
 * message when there is none. */
char *common_model_path(const struct common *c);

/* The folder of compiled kernels by the flags and the environment: --kernel-cache, else forge in
 * XDG_CACHE_HOME, else .cache/forge in HOME; NULL = none, or not wanted.  Freed by the caller. */
char *common_kernel_cache(const struct common *c);

/* The engine's parameters; `model` is the path found.  `load` (may be NULL) shows the progress. */
void common_engine_params(struct forge_engine_params *p, const struct common *c, const char *model,
                          const char *kernel_cache, struct progress *load);
/* Tells why opening failed, in the flags' names where the library's advice (what follows the last ';') names
 * parameters; the exit status. */
int common_open_failed(int code, const char *message);
/* Opens the engine, with progress; an exit status, 0 = open (then close it with forge_engine_close).  Without
 * --max-seqs it is for so many sequences at once, or for fewer where memory does not do for that. */
int common_engine_open(struct forge_engine **out, const struct common *c, int64_t max_seqs);
/* The same with a draft model (NULL = none), found like the model, and as many drafts of a step at most (0 = the usual). */
int common_engine_open_draft(struct forge_engine **out, const struct common *c, int64_t max_seqs, const char *draft, int draft_n);

/* Tells of flags that change nothing on the devices in use ("cpu, opencl:0"): with -v, or as a warning where an
 * OpenCL device does run and this version has no such thing. */
void common_unused(const struct common *c, const char *device);
/* After an OpenCL device was opened: warns where --kernel-cache names what cannot be a folder of kernels. */
void common_check_cache(const struct common *c);

/* --profile for an engine: `status`, or that of the profile where this is the first failure.  Nothing
 * where no profile was asked for. */
int common_profile(const struct common *c, const struct forge_engine *e, int status);

#endif
