/* What generate asks of the library for one prompt, from flags or from a line
 * of JSON, and how a finished one is told.
 * Shared by cmd-generate.c, generate_jobs.c and generate_out.c alone. */
#ifndef FORGE_CLI_GENERATE_H
#define FORGE_CLI_GENERATE_H

#include <forge.h>

#include "base/buf.h"
#include "cli/common.h"
#include "cli/prompt.h"
#include "cli/sampling.h"

/* What the text must follow: one of the two, or nothing. */
struct rules {
    char *grammar, *json_schema;
    const char *path; /* of the file that a flag names, NULL = none; borrowed */
};

struct generate_args {
    struct prompt_args prompt;
    int64_t max_tokens;
    struct sampling_args sampling;
    struct str_list stops;
    const char *grammar_file, *schema_arg; /* --grammar, --json-schema */
    const char *chat_template, *draft, *session_save, *session_load;
    int64_t draft_n;
    int draft_accept;
    bool has_draft_n, model_defaults, ignore_eos, echo, json, jsonl;
};

extern const struct opt generate_opts[];

struct job {
    struct generate_args
        args; /* its lists are the job's own where own_* says so, else shared with the flags */
    bool own_stops, own_bias;
    char where[256]; /* "FILE:LINE", empty when from flags */
    int n_samples;   /* 0 = 1 */
    struct prompt prompt;
    char *messages;  /* a conversation as JSON, NULL = none */
    size_t messages_len;
    struct rules rules; /* of its line; else the flags' */
    const struct rules *flag_rules;
    struct cJSON *line; /* owns strings that args points to */
    struct forge_logit_bias *bias;
    struct forge_request *request;
    struct forge_error error; /* code 0 = none */
};
enum { JOB_SAMPLES_MAX = 1024 };
void job_free(struct job *j);
const struct rules *job_rules(const struct job *j);
#define JOB_CHAT_FLAGS ((unsigned)FORGE_CHAT_PROTOCOL) /* of its messages */
/* The request for a job; pointers are borrowed from it. false = out of memory. */
bool job_params(struct job *j, struct forge_request_params *p);

/* Jobs from lines of JSON; an exit status with the line's number in the message. */
int jobs_read(struct job **jobs, size_t *n, const struct generate_args *base, const struct rules *rules);
void jobs_free(struct job *jobs, size_t n);

/* The texts that flags name or are; an exit status. */
int rules_read(struct rules *r, const struct generate_args *a);
void rules_free(struct rules *r);
/* Member `grammar` or `json_schema` of a line, of which raw is the value as it is spelled there. */
bool rules_put(struct rules *r, const struct cJSON *v, const char *raw, size_t raw_len, char *why, size_t size);

/* The object that cli.md describes, without a newline. */
void generate_json(struct buf *b, const struct forge_engine *e, const struct job *j);
/* Figures of all jobs together, on stderr. */
void generate_batch_stats(const struct forge_engine *e, size_t n_jobs, double seconds);
/* Figures at the end, on stderr. */
void generate_stats(const struct forge_engine *e, const struct job *j);
/* The prompt as text: as given, decoded from its ids, or made of its messages; an exit status. */
int generate_prompt_text(struct buf *b, const struct forge_engine *e, const struct job *j);

#endif
