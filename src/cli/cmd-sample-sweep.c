/* forge sample-sweep: one prompt under several settings of the sampler, as a
 * table.  Greedy twice and top-k 1 must agree; anything else is a failure.
 * Over forge.h alone. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cmd.h"
#include "cli/prompt.h"

#define PROMPT_DEFAULT "Once upon a time"

struct sweep_args {
    struct prompt_args prompt;
    int64_t max_tokens;
    uint64_t seed;
    bool json;
};

#define F(field) offsetof(struct sweep_args, field)

static const struct opt opts[] = {
    {"prompt", 'p', OPT_STR, F(prompt.text), 0, "TEXT", NULL, NULL,
     "the prompt (default: " PROMPT_DEFAULT ")"},
    PROMPT_FILE_OPT(struct sweep_args),
    PROMPT_IDS_OPT(struct sweep_args),
    PROMPT_FLAG_OPTS(struct sweep_args),
    {"max-tokens", 'n', OPT_I64, F(max_tokens), 0, "N", "1..", "32", "new tokens of each row"},
    {"seed", 0, OPT_U64, F(seed), 0, "S", NULL, "42", "seed of the rows that draw"},
    {"json", 0, OPT_FLAG, F(json), 0, NULL, NULL, NULL, "as JSON"},
    {0},
};

static const struct setting {
    const char *name;
    float temp;
    int64_t top_k;
    float top_p;
    bool greedy; /* must give the first row's ids */
} settings[] = {
    {"greedy", 0, 0, 1, true},          {"greedy again", 0, 0, 1, true}, {"temp 0.1", 0.1f, 0, 1, false},
    {"temp 1.0", 1, 0, 1, false},       {"temp 2.0", 2, 0, 1, false},    {"top-k 1", 1, 1, 1, true},
    {"top-k 5", 1, 5, 1, false},        {"top-k 200", 1, 200, 1, false}, {"top-p 0.1", 1, 0, 0.1f, false},
    {"top-p 0.95", 1, 0, 0.95f, false},
};
#define N_SETTINGS (sizeof settings / sizeof *settings)

static int stop_if_interrupted(void *user, const struct forge_piece *piece)
{
    (void)user, (void)piece;
    return interrupted();
}

static int stop_prefill(void *user, size_t done, size_t total)
{
    (void)user, (void)done, (void)total;
    return interrupted();
}

static int run_setting(struct forge_engine *e, const struct sweep_args *a, const struct prompt *p,
                       const struct setting *s, struct forge_request **out)
{
    struct forge_request_params rp;
    struct forge_error err = {0};
    forge_request_params_init(&rp, sizeof rp);
    rp.text = p->text;
    rp.text_len = p->text_len;
    rp.ids = p->ids;
    rp.n_ids = p->n_ids;
    rp.text_flags = prompt_text_flags(&a->prompt);
    rp.sampling.temp = s->temp;
    rp.sampling.top_k = s->top_k;
    rp.sampling.top_p = s->top_p;
    rp.sampling.seed = a->seed;
    rp.sampling.has_seed = 1;
    rp.max_tokens = a->max_tokens;
    rp.on_piece = stop_if_interrupted;
    rp.on_prefill = stop_prefill;
    return forge_generate(e, &rp, out, &err) < 0 ? msg_fail(err.code, err.message)
           : interrupted()                       ? EXIT_INTERRUPTED
                                                 : 0;
}

static bool same_ids(const struct forge_request *a, const struct forge_request *b)
{
    size_t n, m;
    const int32_t *x = forge_request_ids(a, 0, &n), *y = forge_request_ids(b, 0, &m);
    return n == m && (n == 0 || memcmp(x, y, n * sizeof *x) == 0);
}

static void put_row(struct buf *b, const struct setting *s, const struct forge_request *r, bool json,
                    bool first)
{
    size_t len, n;
    const char *text = forge_request_text(r, 0, &len);
    if (!json) {
        buf_printf(b, "%-14s", s->name);
        buf_put_json(b, text, len); /* quoted, so that newlines stay in the row */
        buf_putc(b, '\n');
        return;
    }
    buf_printf(b, "%s{\"setting\":\"%s\",\"text\":", first ? "" : ",\n", s->name);
    buf_put_json(b, text, len);
    buf_puts(b, ",\"ids\":");
    const int32_t *ids = forge_request_ids(r, 0, &n);
    buf_put_json_ids(b, ids, n);
    buf_putc(b, '}');
}

static int sweep(struct forge_engine *e, const struct sweep_args *a, const struct prompt *p)
{
    struct forge_request *requests[N_SETTINGS] = {NULL};
    const char *differs = NULL;
    struct buf b;
    int status = 0;
    buf_init(&b);
    if (a->json)
        buf_puts(&b, "{\"rows\":[");
    for (size_t i = 0; status == 0 && i < N_SETTINGS; i++) {
        status = run_setting(e, a, p, &settings[i], &requests[i]);
        if (status)
            break;
        put_row(&b, &settings[i], requests[i], a->json, i == 0);
        if (settings[i].greedy && !same_ids(requests[0], requests[i]))
            differs = settings[i].name;
    }
    if (a->json)
        buf_printf(&b, "],\"greedy_agrees\":%s}\n", differs ? "false" : "true");
    if (status == 0 && !out_buf(&b))
        status = EXIT_FAILED;
    else
        buf_fini(&b);
    if (status == 0 && differs) {
        msg_error("'%s' gave other tokens than greedy", differs);
        status = EXIT_FAILED;
    }
    for (size_t i = 0; i < N_SETTINGS; i++)
        forge_request_free(requests[i]);
    return status;
}

static int run(void *args, const struct common *c)
{
    struct sweep_args *a = args;
    struct forge_engine *e = NULL;
    struct prompt p;
    if (!prompt_given(&a->prompt))
        a->prompt.text = PROMPT_DEFAULT;
    int status = prompt_read(&p, &a->prompt, "sample-sweep", "-p, -f or --ids");
    interrupt_catch();
    if (status == 0)
        status = common_engine_open(&e, c, 1);
    if (status == 0)
        status = sweep(e, a, &p);
    status = common_profile(c, e, status);
    prompt_free(&p);
    forge_engine_close(e);
    return status;
}

const struct cmd cmd_sample_sweep = {
    .name = "sample-sweep",
    .summary = "Show what temperature, top-k and top-p do to one prompt",
    .usage = "[-p TEXT | -f FILE | --ids LIST] [-n N] [flags]",
    .opts = opts,
    .args_size = sizeof(struct sweep_args),
    .shared = {common_model_opts, common_device_opts},
    .run = run,
};
