/* forge: a language-model inference engine.
 *
 * Load a decoder-only model from the files people have (a Hugging Face folder,
 * a PyTorch .pth, a GGUF) and generate text on the CPU or another device:
 *
 *     #include <forge.h>
 *     #include <stdio.h>
 *
 *     static int print(void *user, const struct forge_piece *p)
 *     {
 *         (void)user;
 *         fwrite(p->text, 1, p->text_len, stdout);
 *         return 0;
 *     }
 *
 *     int main(void)
 *     {
 *         struct forge_error err = {0};
 *         struct forge_engine_params ep;
 *         struct forge_request_params rp;
 *         struct forge_engine *engine;
 *
 *         forge_engine_params_init(&ep, sizeof ep);
 *         ep.model = "Qwen3-0.6B";
 *         if (forge_engine_open(&engine, &ep, &err) < 0) {
 *             fprintf(stderr, "%s\n", err.message);
 *             return 1;
 *         }
 *         forge_request_params_init(&rp, sizeof rp);
 *         rp.text = "The capital of France is";
 *         rp.on_piece = print;
 *         int rc = forge_generate(engine, &rp, NULL, &err);
 *         forge_engine_close(engine);
 *         return rc < 0;
 *     }
 *
 * ERRORS.  A fallible function returns 0 (or what it says) or a negative
 * forge_status and fills *err, which may be NULL, with one sentence for a
 * user.  The library never prints, exits or aborts, and reads no environment
 * variable.
 *
 * THREADS.  Any thread may call, at any time while the engine or the request
 * lives: forge_tokenize, forge_detokenize, forge_token_bytes, forge_chat_render,
 * forge_engine_info, and forge_request_cancel (also from a signal handler).  All other calls on an
 * engine and its requests are made by one thread at a time, and none while a
 * forge_step runs in another; a caller with several threads holds a lock of his
 * own around them.  A later version may allow more of them at once, and never
 * fewer.  While an engine's own thread runs (forge_engine_start), any thread
 * may also call forge_submit, forge_request_free and forge_engine_stats_copy,
 * and none of them waits for a step; forge_step and forge_generate are refused.
 * forge_request_free then waits for a callback that is running, if any, and
 * none comes after it: a lock that callbacks take must not be held around it.
 * What a request gave (its text, ids, metrics) is read in its callbacks, or by
 * whoever they have told that its last sample has ended.  Callbacks run inside
 * forge_step / forge_generate on the caller's thread, or on the engine's own.  They may submit, cancel and free (a request of
 * forge_submit; it goes when the step ends and is not called back any more);
 * forge_step and forge_generate return FORGE_ERR_ARG there.  forge_engine_close
 * cannot refuse: calling it in a callback, or with requests that were not
 * freed, is an error in the program.  Different engines share only the log.
 *
 * LIFETIME.  What a function returns by pointer belongs to the object it came
 * from, until that object's next step or its free; what forge_engine_info
 * points to, until the engine is closed.  Requests are freed before their
 * engine.  Parameters are copied by the call that takes them.
 *
 * FILES.  Weights are mapped, not copied.  Who rewrites or cuts short a model's
 * file while an engine has it open makes the process receive SIGBUS, as with
 * every mapping; replace such files by rename.  The library installs no signal
 * handler; a program may (forge's own ends with a message and status 1).
 *
 * COMPATIBILITY.  Parameter structs are set up by their _init function, which
 * is told the size the caller was compiled with, so that later fields can be
 * added at the end; a caller newer than the library is refused
 * (FORGE_ERR_UNSUPPORTED) when it sets a field that the library does not know.
 * Structs that the library hands out by pointer may grow at their end: no
 * caller makes or copies them.
 */
#ifndef FORGE_H
#define FORGE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum forge_status {
    FORGE_OK = 0,
    FORGE_ERR_ARG = -1,         /* a value of the caller's is wrong */
    FORGE_ERR_IO = -2,          /* a file cannot be read */
    FORGE_ERR_FORMAT = -3,      /* a file does not follow its format */
    FORGE_ERR_UNSUPPORTED = -4, /* well formed, but not run here */
    FORGE_ERR_NOMEM = -5,
    FORGE_ERR_LIMIT = -6,       /* context or memory budget too small */
    FORGE_ERR_NUMERIC = -7,     /* the model gave values that are not finite */
    FORGE_ERR_DEVICE = -8,
    FORGE_ERR_CANCELLED = -9,
    FORGE_ERR_INTERNAL = -10
};

struct forge_error {
    int code;           /* enum forge_status */
    char message[1024]; /* one sentence, UTF-8, terminated */
};

const char *forge_version(void); /* "0.1.0" */

/* ---- log ---- */
enum forge_log_level { FORGE_LOG_ERROR, FORGE_LOG_WARN, FORGE_LOG_INFO, FORGE_LOG_VERBOSE, FORGE_LOG_DEBUG };
/* Where log lines go, for the whole process; NULL = nowhere (the default).  `debug` is a comma list of
 * categories (load, kv, sched, cl, text, run), NULL = none.  Returns FORGE_ERR_ARG for an unknown category.
 * The sink is called by the thread that does the work, so by several at once where engines run in several, and
 * must not call forge_ functions.  Call this while no engine is being opened, run or closed. */
int forge_log_set(void (*sink)(void *user, enum forge_log_level level, const char *line), void *user,
                  enum forge_log_level level, const char *debug, struct forge_error *err);

/* ---- devices ---- */
struct forge_device {
    const char *selector; /* what `device` takes to mean this one: "cpu", "ref", "opencl:0" */
    const char *backend;  /* "cpu", "ref", "opencl" */
    const char *name;
    const char *detail;
    uint64_t mem_size;    /* bytes, 0 = unknown */
};
struct forge_devices;
int forge_devices_list(struct forge_devices **out, struct forge_error *err);
size_t forge_devices_count(const struct forge_devices *d);
const struct forge_device *forge_devices_at(const struct forge_devices *d, size_t i);
/* Platforms and devices that are there and cannot be used, one sentence each. */
size_t forge_devices_n_skipped(const struct forge_devices *d);
const char *forge_devices_skipped(const struct forge_devices *d, size_t i);
void forge_devices_free(struct forge_devices *d);

/* ---- engine: a loaded model on its devices ---- */
enum forge_math { FORGE_MATH_DEFAULT, FORGE_MATH_EXACT, FORGE_MATH_FAST };
enum forge_gemm { FORGE_GEMM_AUTO, FORGE_GEMM_OWN, FORGE_GEMM_CLBLAST };
enum forge_kv { FORGE_KV_F16, FORGE_KV_F32, FORGE_KV_Q8_0 }; /* Q8_0: on "cpu" and "ref", heads of a multiple of 32 */
enum forge_load_phase { FORGE_LOAD_WEIGHTS, FORGE_LOAD_KERNELS }; /* weights in tensors; then kernels that are compiled */

struct forge_engine_params {
    size_t struct_size;      /* set by init */
    const char *model;       /* file or folder; required */
    const char *tokenizer;   /* tokenizer.json; NULL = beside the model, or inside it */
    const char *config;      /* config.json or a preset's name; NULL = beside the model, or inside it */
    const char *device;      /* selector, NULL = "auto" */
    const char *split;       /* "3,1": layers per device of a list; NULL = equal */
    int require_device;      /* 1 = an error instead of any fallback */
    enum forge_math math;    /* FAST: rounded activations where a device has kernels for it; refused where "ref" is to compute.
                              * DEFAULT: FAST on "cpu" unless deterministic is set, EXACT on the others */
    int deterministic;
    const char *cpu_isa;     /* NULL = the best */
    const char *kernels;     /* "cpu" or "gpu"; NULL = by device type */
    int no_selftest;
    int n_threads;           /* 0 = the cores this process may use */
    int64_t n_ctx;           /* positions per sequence; 0 = the model's limit; -1 (default) = the smaller of that and 4096 */
    enum forge_kv kv_type;
    int page_size;           /* KV positions per page; 0 = one page of n_ctx */
    int max_seqs;            /* sequences that run at once, in steps together; default 1 */
    int chunk;               /* rows of a step at most, of prompts and new ids together; default 512 */
    uint64_t kv_mem;         /* bytes for KV, 0 = what n_ctx * max_seqs needs; with less, requests wait for others' pages */
    uint64_t gpu_mem;        /* bytes on each device other than the CPU, 0 = its own size */
    int no_prefix_cache;     /* 1 = nothing is kept of earlier requests; else full pages are, while nobody needs them */
    /* Called while loading, with done and total in units of the phase; non-zero stops the load.  total is 0 while
     * a device is checked, before there are any. */
    int (*on_load)(void *user, enum forge_load_phase phase, uint64_t done, uint64_t total);
    void *user;
    const char *kernel_cache; /* folder where compiled kernels are kept; NULL = they are not */
    int profile;              /* 1 = operations and kernels are timed: forge_engine_placement, _kernel, _event */
    const char *kernel_dir;   /* folder with the kernels' texts (.cl, .clh); NULL = those built in */
    enum forge_gemm gemm;       /* who multiplies matrices of many rows on OpenCL devices */
    const char *clblast_params; /* file of CLBlast's parameters and of measured speeds; NULL = none */
    const char *draft_model; /* a smaller model of the same vocabulary, which says what may come next; NULL = none */
    int draft_max;           /* ids drafted for a sample in one step at most; 0 (default) = 8 with a draft model, else none:
                                above 0 without one, they are looked up in the sample's own text */
    const char *chat_template; /* a file, or "chatml"; NULL = the model's own, where it has one */
    uint64_t prefix_mem; /* bytes of the KV cache that pages of earlier requests may keep while nobody needs them, at most;
                          * what was not used for longest goes.  0 = all that is free; refused where it keeps no page.  Nothing is kept
                          * where results depend on the rows of a step: on GPUs without `deterministic` */
};

struct forge_engine;

void forge_engine_params_init(struct forge_engine_params *p, size_t struct_size);
int forge_engine_open(struct forge_engine **out, const struct forge_engine_params *p, struct forge_error *err);
void forge_engine_close(struct forge_engine *e); /* NULL is safe */

struct forge_engine_info {
    const char *model_path, *format, *architecture, *name;
    const char *device;        /* "cpu", or a list when split; as at the opening, also where another was opened after an error */
    const char *device_reason; /* why this device, one sentence */
    int64_t n_layers, d_model, n_vocab, n_ctx, n_ctx_max;
    uint64_t n_params, weight_bytes, kv_bytes, work_bytes;
    int n_threads;             /* that compute, of the device that has most; 0 = unknown */
    double load_s, compile_s;  /* compile: of kernels, a part of loading */
    /* the model's own sampling values; negative = it names none */
    double default_temp, default_top_p, default_min_p, default_repeat_penalty;
    int64_t default_top_k;
    const char *chat_template, *chat_template_source; /* text and where it is from; NULL = there is none that works, and ... */
    const char *chat_template_error;                  /* ... why: what is wrong with the model's own; NULL = it has none */
};
const struct forge_engine_info *forge_engine_info(const struct forge_engine *e);

/* What the engine has done and holds, as of the last step that ended. */
struct forge_engine_stats {
    int max_seqs, running;             /* slots; of them in use */
    uint64_t queued, finished;         /* requests */
    uint64_t steps, rows;              /* that succeeded; rows of them */
    uint64_t prefill_rows, decode_rows; /* rows without those computed again */
    double step_s;                     /* seconds of these steps: rows / step_s is the throughput */
    uint64_t busy_steps, busy_slots;   /* steps while a request waited, and slots in use in them */
    uint64_t pages, pages_held;        /* KV pages of all groups of layers */
    uint64_t pages_kept;               /* others, kept for requests with the same start while nobody needs them */
    uint64_t positions;                /* stored in the pages held, each once, of all groups of layers */
    uint64_t cached_tokens;            /* positions of prompts that were taken from kept pages */
    uint64_t preempted;                /* times that a request gave up its pages */
    uint64_t recovered;                /* times that devices were opened again */
    uint64_t drafted_tokens, accepted_tokens;
    double compile_s;                  /* seconds of compiling kernels, when loading and where a step had to */
    uint64_t page_size;                /* positions of a KV page */
    uint64_t stored_positions, held_positions; /* summed over the ends of steps: `positions`, and those that pages held have
                                                * room for; the first by the second is the use of pages */
};
const struct forge_engine_stats *forge_engine_stats(const struct forge_engine *e);
/* The same, copied; size is that of *out as the caller was compiled, and what the library does not know is 0. */
void forge_engine_stats_copy(const struct forge_engine *e, struct forge_engine_stats *out, size_t size);

struct forge_placement {
    const char *operation, *device;
    uint64_t calls, rows, bytes, flops; /* bytes and flops: what the operation must move and do at least */
    double seconds;                     /* 0 unless the engine was opened with `profile` */
};
/* Which device ran each kind of operation so far: one row for an operation and a device, an operation's rows one after
 * the other.  NULL where i is not below the count. */
size_t forge_engine_n_placements(const struct forge_engine *e);
const struct forge_placement *forge_engine_placement(const struct forge_engine *e, size_t i);

/* What the kernels of OpenCL devices took, as the devices tell it, up to the last step that ended; only with
 * `profile`.  0 where i is not below their number, else 1. */
struct forge_kernel {
    const char *name, *operation, *device; /* name: with what it was compiled for */
    uint64_t calls, untimed;               /* untimed: calls of which the device told no usable time */
    double bytes, flops;                   /* the operation's, parted among its kernels by their time */
    double seconds;
};
int forge_engine_kernel(const struct forge_engine *e, size_t i, struct forge_kernel *out);

/* What ran when, for a trace; at most half a million of them for each device are kept.  An operation of its own
 * where there are no kernels. */
struct forge_event {
    const char *name, *operation, *device;
    double start_s, seconds; /* start: of a clock whose origin means nothing */
    double bytes, flops;
};
int forge_engine_event(const struct forge_engine *e, size_t i, struct forge_event *out);

/* ---- text ---- */
enum forge_text_flags {
    FORGE_TEXT_NO_BOS = 1,       /* nothing is added around the text */
    FORGE_TEXT_PARSE_SPECIAL = 2 /* control strings in the text count as control tokens */
};
#define FORGE_TERMINATED ((size_t)-1) /* as text_len: the text ends at its 0 byte */

/* ids and text are the caller's, freed with forge_free; text is terminated, and its 0 byte not counted. */
int forge_tokenize(const struct forge_engine *e, const char *text, size_t text_len, unsigned flags,
                   int32_t **ids, size_t *n_ids, struct forge_error *err);
int forge_detokenize(const struct forge_engine *e, const int32_t *ids, size_t n_ids, int skip_special,
                     char **text, size_t *text_len, struct forge_error *err);
void forge_free(void *p);
/* The bytes that one id stands for inside a text, perhaps half a character: how many, of which at most `size` are
 * in out, not terminated.  0 where there is no such token, SIZE_MAX where memory is short. */
size_t forge_token_bytes(const struct forge_engine *e, int32_t id, char *out, size_t size);

/* ---- chat ---- */
enum forge_chat_flags {
    FORGE_CHAT_NO_GENERATION_PROMPT = 1, /* the text ends behind the last message, not with the start of an answer */
    FORGE_CHAT_NO_THINKING = 2,          /* the template's variable enable_thinking is false */
    /* Messages are as programs send them to chat services: contents that are lists of text parts become one string,
     * arguments of calls that are text the object they spell; roles are system (or developer), user, assistant and tool
     * (or function).  What is wrong is told with its place at the front, in quotes: 'messages[2].content' ... */
    FORGE_CHAT_PROTOCOL = 4
};

/* The prompt that the engine's chat template makes of a conversation, as text and as ids (text or ids may be NULL).
 * json: a list of messages ({"role", "content", ...}), or an object with "messages" and, where wanted, "tools" (list),
 * "documents", "add_generation_prompt" (default true), "variables" (an object of what the template is to see besides, such as
 * enable_thinking; also as "chat_template_kwargs").  It is given to the template as it is; a message's members that are
 * null are left out.  What is said here goes before flags.
 *
 * In the ids, control strings are control tokens only where the template itself wrote them: what comes from messages,
 * tools and variables stays text.  The token that starts a text is there once, whoever puts it.
 *
 * FORGE_ERR_ARG: the JSON has another shape, or the template refuses the conversation (its own words are in the message);
 * FORGE_ERR_FORMAT: the JSON or the template is malformed; FORGE_ERR_UNSUPPORTED: there is no template, or it uses what is
 * not known here; FORGE_ERR_LIMIT: the template takes too long or makes too much.  text and ids are freed with forge_free;
 * text is terminated.  Any thread may call this. */
int forge_chat_render(const struct forge_engine *e, const char *json, size_t json_len, unsigned flags, char **text, size_t *text_len,
                      int32_t **ids, size_t *n_ids, struct forge_error *err);

/* What an answer to a conversation consists of.  The text of a request's pieces goes into a parser as it comes, or all of
 * it at once: where it is cut makes no difference.
 *
 * A thought stands first, between <think> and </think> (or the marks of other families), or begins in the prompt already.
 * Calls of tools, where they are looked for, are <tool_call>{"name":...,"arguments":{...}}</tool_call> anywhere behind
 * the thought, or an answer that is nothing but {"name":...,"parameters":{...}}, a list of such, or several.  What looks
 * like a call and is none (its JSON is malformed, it has no name) is content, byte for byte.  Blanks between parts are
 * nobody's. */
enum forge_answer_flags {
    FORGE_ANSWER_TOOLS = 1,     /* calls are looked for; else they are content */
    FORGE_ANSWER_ONLY_CALLS = 2 /* a form of the request lets nothing else through */
};

struct forge_tool_call {
    const char *name; size_t name_len;           /* both terminated */
    const char *arguments; size_t arguments_len; /* JSON as the model wrote it: an object, unless it wrote a string */
};

/* What became final, each in the order of the text.  Whole characters; not terminated. */
struct forge_answer_parts {
    const char *thought; size_t thought_len;
    const char *content; size_t content_len;
    const struct forge_tool_call *calls; size_t n_calls;
};

struct forge_chat_parser;
/* prompt: the text that the answer continues, as forge_chat_render gives it; NULL = not known.  Any thread may call
 * this; a parser is used by one at a time, and belongs to no engine. */
int forge_chat_parser_new(struct forge_chat_parser **out, const char *prompt, size_t prompt_len, unsigned flags,
                          struct forge_error *err);
/* last: nothing comes after this text, and what was held back is told; later calls are refused.  *parts belongs to the
 * parser, until the next call. */
int forge_chat_parse(struct forge_chat_parser *p, const char *text, size_t text_len, int last,
                     const struct forge_answer_parts **parts, struct forge_error *err);
void forge_chat_parser_free(struct forge_chat_parser *p); /* NULL is safe */

/* ---- requests ---- */
struct forge_logit_bias { int32_t id; float bias; };

struct forge_sampling {
    double temp;             /* 0 = greedy (default): the largest logit, lowest id of equals */
    int64_t top_k;           /* 0 = off; 1 is greedy */
    double top_p;            /* 1 = off; below 1 needs temp > 0; 0 is greedy */
    double min_p, typical_p; /* 0 = off, 1 = off */
    double repeat_penalty;   /* 1 = off; prompt and generated ids */
    double presence_penalty, frequency_penalty; /* 0 = off; generated ids */
    const struct forge_logit_bias *bias;
    size_t n_bias;
    uint64_t seed;           /* any value; see has_seed */
    int has_seed;            /* 0 = a fresh one, reported by the request */
};

enum forge_finish {
    FORGE_FINISH_NONE,      /* still running */
    FORGE_FINISH_EOS,       /* the model ended the text, or its grammar did */
    FORGE_FINISH_STOP,      /* a stop string */
    FORGE_FINISH_LENGTH,    /* max_tokens */
    FORGE_FINISH_CONTEXT,   /* n_ctx positions are full */
    FORGE_FINISH_CANCELLED,
    FORGE_FINISH_DEADLINE,
    FORGE_FINISH_ERROR
};
const char *forge_finish_name(enum forge_finish f); /* "eos", "stop", ... as in --json */

/* A piece of text that became final: whole characters, nothing of a stop string. */
struct forge_piece {
    const char *text; size_t text_len; /* not terminated */
    const int32_t *ids; size_t n_ids;  /* the ids generated since the last piece; may be none, or without text */
    int sample;                        /* which of n samples */
    enum forge_finish finish;          /* not NONE on a sample's last piece, which may be empty */
};

struct forge_request;

/* When a drafted id is taken.  SAME: where it is the id that the model itself draws at its position, so that a text is
 * the same with drafts and without.  RATIO: by the ratio of both probabilities; ids have the model's distribution, but a
 * seed's text depends on how many were drafted, and so on what else runs. */
enum forge_draft_accept { FORGE_DRAFT_SAME, FORGE_DRAFT_RATIO };

#define FORGE_STOP_BYTES 65536

struct forge_request_params {
    size_t struct_size;
    const char *text; size_t text_len; /* prompt as text, text_len bytes (default FORGE_TERMINATED); or */
    const int32_t *ids; size_t n_ids;  /* prompt as ids, taken when ids is not NULL */
    unsigned text_flags;               /* enum forge_text_flags */
    const char *const *stops; size_t n_stops; /* of at most FORGE_STOP_BYTES together */
    int64_t max_tokens;   /* new tokens; 0 = only the prompt; -1 = until end or context; default 256 */
    int ignore_eos;
    int keep_special;     /* 1 = special tokens appear in the text */
    int n_samples;        /* independent continuations, 1 (default) to 1024; they run, and tell pieces, beside each other */
    int n_logprobs;       /* log-probabilities of the chosen and the best n tokens; -1 (default) = none */
    int priority;         /* higher first; default 0 */
    double deadline_s;    /* seconds from submit; 0 = none */
    /* Returns non-zero to cancel the request, and is then not called again: the caller knows that this piece was
     * the last. */
    int (*on_piece)(void *user, const struct forge_piece *piece);
    /* Prompt positions computed so far, after each step of the prefill: never fewer than before, also while a lost
     * device's are computed again; non-zero cancels. */
    int (*on_prefill)(void *user, size_t done, size_t total);
    void *user;
    struct forge_sampling sampling; /* its size is fixed: a later setting is a field after it */
    /* What the new text must follow, one of the two; NULL = nothing.  No token is chosen that cannot be gone on from;
     * the model's end only where the text may end, and where nothing else may follow the sample ends (EOS). */
    const char *grammar;     /* GBNF, from its rule `root` */
    const char *json_schema; /* JSON schema; {"type":"object"} = any object, {} = any value */
    int draft_n;             /* ids drafted for each step, where the engine drafts; 0 = none; -1 (default) = as many as pay */
    enum forge_draft_accept draft_accept;
    /* A file that session_save of an earlier request wrote, for the same model, math and KV type: its ids come before the
     * prompt, which may be none and is taken without a beginning of its own, and are not computed.  Refused by
     * forge_submit where it is another model's, cut short or damaged. */
    const char *session_load;
    /* Where the ids of the first sample, and what was computed of them, are written when it ends by itself.  Where
     * that fails, its text has been told, and the request has an error. */
    const char *session_save;
    /* The prompt as a conversation, instead of text and ids: JSON as forge_chat_render takes it; messages_len bytes
     * (default FORGE_TERMINATED).  Of text_flags, FORGE_TEXT_NO_BOS counts. */
    const char *messages; size_t messages_len;
    unsigned chat_flags;     /* enum forge_chat_flags */
};

/* Times in seconds unless named _ms; 0 = did not happen. */
struct forge_metrics {
    uint64_t input_tokens, output_tokens;
    uint64_t cached_tokens; /* not computed, as an earlier request with the same start, or session_load, had them */
    double queued_s, prefill_s, decode_s;
    double ttft_ms;       /* submit to first new token */
    double tpot_ms;       /* mean over the tokens after the first */
    double prefill_tok_s, decode_tok_s;
    uint64_t drafted_tokens, accepted_tokens;
    uint64_t preempted;   /* times that it gave up its pages to older requests and waited again, and ... */
    double recompute_s;   /* ... seconds of steps that computed again what it had lost, also to a failed device */
};

void forge_request_params_init(struct forge_request_params *p, size_t struct_size);
/* Checks and queues.  A prompt that cannot fit is refused here with both figures. */
int forge_submit(struct forge_engine *e, const struct forge_request_params *p, struct forge_request **out,
                 struct forge_error *err);
/* One step over whatever is queued or running.  1 = there is more to do, 0 = idle.  A request's own failure
 * ends that request (FORGE_FINISH_ERROR) and is not an error of the step. */
int forge_step(struct forge_engine *e, struct forge_error *err);
void forge_request_cancel(struct forge_request *r); /* effective within one step; signal safe */
void forge_request_free(struct forge_request *r);   /* cancels when it still runs; NULL is safe */

/* FORGE_FINISH_NONE also where there is no such sample. */
enum forge_finish forge_request_finish(const struct forge_request *r, int sample);
/* The error of a request that ended with FORGE_FINISH_ERROR, or whose session could not be saved (its text is whole);
 * code 0 otherwise. */
const struct forge_error *forge_request_error(const struct forge_request *r);
const struct forge_metrics *forge_request_metrics(const struct forge_request *r);
uint64_t forge_request_seed(const struct forge_request *r);
const int32_t *forge_request_prompt_ids(const struct forge_request *r, size_t *n);
/* New ids without the end id; a stop string is cut from the text, not from the ids. */
const int32_t *forge_request_ids(const struct forge_request *r, int sample, size_t *n);
/* Terminated; empty where there is no such sample. */
const char *forge_request_text(const struct forge_request *r, int sample, size_t *len);

struct forge_logprob { int32_t id; float logprob; };
/* For new token i: the chosen one first, then the best n_logprobs, falling; natural log-softmax of the raw
 * logits.  NULL when none were asked for. */
const struct forge_logprob *forge_request_logprobs(const struct forge_request *r, int sample, size_t i, size_t *n);

/* ---- the engine's own thread ---- */
/* Steps in a thread of its own, while there is something to do; it sleeps otherwise. */
int forge_engine_start(struct forge_engine *e, struct forge_error *err);
/* Ends that thread after the step that runs, if any.  Requests stay as they are, for forge_step or another start.
 * Nothing where it does not run; forge_engine_close does it, too.  No other thread makes a call on the engine
 * meanwhile, and it is refused in a callback. */
int forge_engine_stop(struct forge_engine *e, struct forge_error *err);

/* ---- in one call ---- */
/* submit, step until done.  *out (may be NULL) receives the request, to be freed by the caller.  Returns 0
 * when the request ended in any way but FORGE_FINISH_ERROR. */
int forge_generate(struct forge_engine *e, const struct forge_request_params *p, struct forge_request **out,
                   struct forge_error *err);
/* All of them together; p[n] were all set up with the same size.  out[n] receives the requests when it returns,
 * NULLs when one was refused.  0 when none ended with FORGE_FINISH_ERROR. */
int forge_generate_batch(struct forge_engine *e, const struct forge_request_params *p, size_t n,
                         struct forge_request **out, struct forge_error *err);

#ifdef __cplusplus
}
#endif
#endif
