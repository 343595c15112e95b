/* forge generate: continues prompts, and streams text as it becomes final.
 * Over forge.h alone: owns the flags and the loop of a run; prompts from lines
 * of JSON are generate_jobs.c's, what is printed at the end generate_out.c's. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "cli/cmd.h"
#include "cli/generate.h"

#define F(field) offsetof(struct generate_args, field)

const struct opt generate_opts[] = {
    PROMPT_TEXT_OPT(struct generate_args),
    PROMPT_FILE_OPT(struct generate_args),
    PROMPT_IDS_OPT(struct generate_args),
    {"jsonl", 0, OPT_FLAG, F(jsonl), 0, NULL, NULL, NULL,
     "the file has one JSON object a line, run together; one object a line comes out, in their order"},
    {"max-tokens", 'n', OPT_I64, F(max_tokens), 0, "N", "-1..", "256",
     "new tokens; 0 = only the prompt, -1 = until the model ends or the context is full"},
    SAMPLING_OPTS(struct generate_args, "0",
                  "temperature; 0 = greedy: the most likely token, the lowest id of equals"),
    {"model-defaults", 0, OPT_FLAG, F(model_defaults), 0, NULL, NULL, NULL,
     "the model's own sampling values (generation_config) where no flag is given"},
    {"stop", 0, OPT_STRS, F(stops), 0, "TEXT", NULL, NULL,
     "end before this text; may be given several times"},
    {"grammar", 0, OPT_STR, F(grammar_file), 0, "FILE", NULL, NULL, "the text follows the grammar in this file (GBNF)"},
    {"json-schema", 0, OPT_STR, F(schema_arg), 0, "SCHEMA", NULL, NULL,
     "the text is JSON by this schema: a file, or the schema itself; {} = any JSON"},
    {"chat-template", 0, OPT_STR, F(chat_template), 0, "FILE|chatml", NULL, NULL,
     "the template of messages in --jsonl (default: the model's own)"},
    {"ignore-eos", 0, OPT_FLAG, F(ignore_eos), 0, NULL, NULL, NULL, "go on past the model's end"},
    PROMPT_FLAG_OPTS(struct generate_args),
    {"echo", 0, OPT_FLAG, F(echo), 0, NULL, NULL, NULL, "print the prompt before the text"},
    {"json", 0, OPT_FLAG, F(json), 0, NULL, NULL, NULL,
     "one JSON object with text, ids and figures instead of the text"},
    {"draft", 0, OPT_STR, F(draft), 0, "PATH", NULL, NULL,
     "a smaller model of the same vocabulary, which says what may come next; the model checks several tokens in one step"},
    {"draft-n", 0, OPT_I64, F(draft_n), F(has_draft_n), "N", "0..64", NULL,
     "tokens to draft for each step, 0 = none (default with --draft: as many as pay, up to 8); without --draft they are "
     "looked up in the text before"},
    {"draft-accept", 0, OPT_CHOICE, F(draft_accept), 0, NULL, "same|ratio", "same",
     "same: the text is the one without drafts; ratio: by both models' probabilities"},
    {"session-save", 0, OPT_STR, F(session_save), 0, "FILE", NULL, NULL,
     "write the tokens, and what was computed of them, to a file that --session-load goes on from"},
    {"session-load", 0, OPT_STR, F(session_load), 0, "FILE", NULL, NULL,
     "go on from a saved session of the same model, --math and --kv; a prompt comes behind it"},
    {0},
};

enum { BATCH_SEQS = 8 }; /* at once, where --max-seqs does not say */

/* What the callbacks of one run share. */
struct run {
    bool stream; /* text goes out as it comes */
    bool many;   /* no progress: the prompts of several would go over each other */
    struct progress prefill;
};

static int on_piece(void *user, const struct forge_piece *piece)
{
    struct run *r = user;
    if (!r->many)
        progress_end(&r->prefill);
    if (r->stream && piece->text_len) {
        out_write(piece->text, piece->text_len);
        out_flush();
    }
    return interrupted() || out_closed();
}

static int on_prefill(void *user, size_t done, size_t total)
{
    struct run *r = user;
    if (!r->many)
        progress_update(&r->prefill, done, total);
    return interrupted() || out_closed();
}

static int submit(struct forge_engine *e, struct job *j, struct run *r)
{
    struct forge_request_params p;
    if (!job_params(j, &p)) {
        j->error.code = FORGE_ERR_NOMEM;
        snprintf(j->error.message, sizeof j->error.message, "out of memory");
        return -1;
    }
    p.on_piece = on_piece;
    p.on_prefill = on_prefill;
    p.user = r;
    return forge_submit(e, &p, &j->request, &j->error);
}

/* With the file that a flag names, or the line that the job is of. */
static int job_fail(const struct job *j, const struct forge_error *failed)
{
    const char *file = job_rules(j)->path;
    bool of_rules = strncmp(failed->message, "grammar", 7) == 0 || strncmp(failed->message, "json_schema", 11) == 0;
    struct err err;
    err_set(&err, failed->code, "%s", failed->message);
    if (file && of_rules)
        err_wrap(&err, "%s", file);
    else if (j->where[0])
        err_wrap(&err, "%s", j->where);
    return msg_fail(err.code, err.msg);
}

/* The exit status a finished job stands for, with its message. */
static int job_status(const struct job *j)
{
    const struct forge_error *failed = j->request ? forge_request_error(j->request) : &j->error;
    if (failed && failed->code != 0)
        return job_fail(j, failed);
    if (interrupted() && forge_request_finish(j->request, 0) == FORGE_FINISH_CANCELLED)
        return EXIT_INTERRUPTED;
    return EXIT_OK;
}

static int step_all(struct forge_engine *e)
{
    struct forge_error err = {0};
    int rc;
    while ((rc = forge_step(e, &err)) > 0)
        ;
    return rc < 0 ? msg_fail(err.code, err.message) : 0;
}

static int run_one(struct forge_engine *e, struct job *j)
{
    struct run r = {.stream = !j->args.json};
    struct buf text;
    buf_init(&text);
    if (j->args.echo && r.stream) {
        int status = generate_prompt_text(&text, e, j);
        if (status) {
            buf_fini(&text);
            return status;
        }
        out_write(buf_str(&text), text.len);
        out_flush();
    }
    buf_fini(&text);
    progress_start(&r.prefill, "prefill", "tokens");
    int status = EXIT_OK;
    if (submit(e, j, &r) == 0)
        status = step_all(e);
    progress_end(&r.prefill);
    if (r.stream && j->request)
        out_puts("\n");
    else if (!r.stream) {
        struct buf b;
        buf_init(&b);
        generate_json(&b, e, j);
        buf_putc(&b, '\n');
        if (!out_buf(&b))
            return EXIT_FAILED;
    }
    out_flush();
    if (status == EXIT_OK)
        status = job_status(j);
    if (j->request && !out_closed())
        generate_stats(e, j);
    return status;
}

static bool finished(const struct job *j)
{
    for (int i = 0; j->request && (i == 0 || i < j->n_samples); i++)
        if (forge_request_finish(j->request, i) == FORGE_FINISH_NONE)
            return false;
    return true;
}

/* Prints the jobs that are finished and whose predecessors are printed; the worst status so far. */
static int print_finished(struct forge_engine *e, struct job *jobs, size_t n, size_t *printed, int status)
{
    for (; *printed < n && finished(&jobs[*printed]); ++*printed) {
        struct job *j = &jobs[*printed];
        struct buf b;
        buf_init(&b);
        generate_json(&b, e, j);
        buf_putc(&b, '\n');
        bool ok = out_buf(&b);
        out_flush();
        int s = ok ? job_status(j) : EXIT_FAILED;
        status = s > status ? s : status;
        forge_request_free(j->request); /* thousands of them may follow */
        j->request = NULL;
    }
    return status;
}

static int run_batch(struct forge_engine *e, struct job *jobs, size_t n)
{
    struct run r = {.many = true};
    struct forge_error err = {0};
    size_t printed = 0;
    int status = EXIT_OK, rc = 1;
    double start = clock_now();
    for (size_t i = 0; i < n; i++)
        submit(e, &jobs[i], &r); /* a refused one is told in its object */
    while (rc > 0 && !out_closed()) {
        rc = forge_step(e, &err);
        status = print_finished(e, jobs, n, &printed, status);
        if (interrupted())
            for (size_t i = printed; i < n; i++)
                if (jobs[i].request)
                    forge_request_cancel(jobs[i].request);
    }
    if (rc < 0)
        return msg_fail(err.code, err.message);
    if (interrupted())
        return EXIT_INTERRUPTED;
    generate_batch_stats(e, n, clock_now() - start);
    return status;
}

static int check_jobs(struct forge_engine *e, struct job *jobs, size_t n)
{
    const struct forge_engine_info *info = forge_engine_info(e);
    char text[512];
    for (size_t i = 0; i < n; i++) {
        if (jobs[i].args.model_defaults)
            sampling_model_defaults(&jobs[i].args.sampling, info);
        if (!sampling_check(&jobs[i].args.sampling, text, sizeof text))
            return msg_usage("generate", "%s%s%s", jobs[i].where, jobs[i].where[0] ? ": " : "", text);
    }
    msg_verbose("device: %s (%s)", info->device, info->device_reason);
    if (n == 1) {
        sampling_describe(&jobs[0].args.sampling, text, sizeof text);
        msg_verbose("sampling: %s", text);
    }
    return 0;
}

static int run(void *args, const struct common *c)
{
    struct generate_args *a = args;
    struct common with_template = *c;
    struct forge_engine *e = NULL;
    struct job *jobs = NULL;
    struct rules rules;
    char why[256];
    size_t n = 0;
    int status;
    if (!a->model_defaults && !a->jsonl && !sampling_check(&a->sampling, why, sizeof why))
        return msg_usage("generate", "%s", why);
    if (a->jsonl && (a->session_load || a->session_save))
        return msg_usage("generate", "--session-load and --session-save are for one prompt; --jsonl is for many");
    if ((a->session_load && strcmp(a->session_load, "-") == 0) || (a->session_save && strcmp(a->session_save, "-") == 0))
        return msg_usage("generate", "--session-load and --session-save take the name of a file, not '-'");
    status = rules_read(&rules, a);
    if (status)
        goto done;
    if (a->jsonl && (!a->prompt.file || prompt_given(&a->prompt) != 1)) {
        status = msg_usage("generate", "--jsonl needs -f FILE with one JSON object a line, and no other prompt");
    } else if (a->jsonl) {
        status = jobs_read(&jobs, &n, a, &rules);
    } else {
        jobs = mem_array(1, sizeof *jobs);
        if (!jobs) {
            status = msg_fail(FORGE_ERR_NOMEM, "out of memory");
            goto done;
        }
        n = 1;
        jobs[0].args = *a;
        jobs[0].flag_rules = &rules;
        if (!a->session_load || prompt_given(&a->prompt) > 0)
            status = prompt_read(&jobs[0].prompt, &a->prompt, "generate", "-p, -f or --ids");
    }
    if (status)
        goto done;
    interrupt_catch();
    with_template.chat_template = a->chat_template;
    status = common_engine_open_draft(&e, &with_template, a->jsonl && n > 1 ? n < BATCH_SEQS ? (int64_t)n : BATCH_SEQS : 1,
                                      a->draft, (int)a->draft_n);
    if (status == 0)
        status = check_jobs(e, jobs, n);
    if (status == 0)
        status = a->jsonl ? run_batch(e, jobs, n) : run_one(e, &jobs[0]);
    status = common_profile(c, e, status);
done:
    jobs_free(jobs, n);
    rules_free(&rules);
    forge_engine_close(e);
    return status;
}

const struct cmd cmd_generate = {
    .name = "generate",
    .summary = "Continue a prompt",
    .usage = "(-p TEXT | -f FILE | --ids LIST) [flags]",
    .opts = generate_opts,
    .args_size = sizeof(struct generate_args),
    .shared = {common_model_opts, common_device_opts},
    .run = run,
};
