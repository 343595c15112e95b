/* forge logits: what the model says about the next token, as numbers: a list
 * of the best, or .npy files of logits and hidden states.
 * Owns no mathematics: log-probabilities are the sampler's. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "base/mem.h"
#include "cli/cmd.h"
#include "cli/npy.h"
#include "cli/tools.h"
#include "run/sampler.h"

struct logits_args {
    struct prompt_args prompt;
    const char *npy, *hidden;
    bool all, has_top;
    int64_t top;
};

#define F(field) offsetof(struct logits_args, field)

static const struct opt opts[] = {
    PROMPT_TEXT_OPT(struct logits_args),
    PROMPT_FILE_OPT(struct logits_args),
    PROMPT_IDS_OPT(struct logits_args),
    PROMPT_FLAG_OPTS(struct logits_args),
    {"npy", 0, OPT_STR, F(npy), 0, "FILE", NULL, NULL, "write the last position's logits, float32 [vocab]"},
    {"all", 0, OPT_FLAG, F(all), 0, NULL, NULL, NULL, "write every position's instead, [n, vocab]"},
    {"top", 0, OPT_I64, F(top), F(has_top), "K", "0..", "10",
     "the K best tokens of the last position, as a JSON list on stdout; printed when asked for, or when no "
     "file is"},
    {"hidden", 0, OPT_STR, F(hidden), 0, "FILE", NULL, NULL,
     "write the last position's hidden states, [n_layers + 2, d_model]: embedding, each layer, final norm"},
    {0},
};

static int on_chunk(void *user, size_t done, size_t total)
{
    progress_update(user, done, total);
    return interrupted();
}

struct ranked {
    int32_t id;
    float logit;
};

static int by_rank(const void *a, const void *b)
{
    const struct ranked *x = a, *y = b;
    if (x->logit != y->logit)
        return x->logit > y->logit ? -1 : 1;
    return (x->id > y->id) - (x->id < y->id);
}

/* [{"id","text","logit","logprob"}, ...]: falling logits, the lowest id first among equals. */
static int print_top(const struct tool *t, const float *logits, int64_t k)
{
    int64_t n_vocab = t->l.config->n_vocab;
    double lse = sampler_logsumexp(logits, n_vocab);
    struct ranked *all = mem_array((size_t)n_vocab, sizeof *all);
    struct buf b, text;
    int status = all ? 0 : msg_fail(ERR_NOMEM, "out of memory");
    buf_init(&b);
    buf_init(&text);
    for (int64_t i = 0; all && i < n_vocab; i++)
        all[i] = (struct ranked){(int32_t)i, logits[i]};
    if (all)
        qsort(all, (size_t)n_vocab, sizeof *all, by_rank);
    buf_putc(&b, '[');
    for (int64_t i = 0; status == 0 && i < k && i < n_vocab; i++) {
        struct err err = {0};
        buf_clear(&text);
        if (tokenizer_decode(t->l.tokenizer, &all[i].id, 1, false, &text, &err) < 0)
            status = msg_fail(err.code, err.msg);
        buf_printf(&b, "%s{\"id\":%d,\"text\":", i ? ",\n " : "", (int)all[i].id);
        buf_put_json(&b, buf_str(&text), text.len);
        buf_puts(&b, ",\"logit\":");
        buf_put_json_num(&b, (double)all[i].logit);
        buf_puts(&b, ",\"logprob\":");
        buf_put_json_num(&b, (double)all[i].logit - lse);
        buf_putc(&b, '}');
    }
    buf_puts(&b, "]\n");
    free(all);
    buf_fini(&text);
    if (status) {
        buf_fini(&b);
        return status;
    }
    return out_buf(&b) ? 0 : EXIT_FAILED;
}

static int check_finite(const float *x, size_t n, int64_t n_vocab)
{
    struct err err = {0};
    for (size_t i = 0; i < n; i++)
        if (isnan(x[i]) || x[i] == INFINITY)
            return msg_fail(err_set(&err, ERR_NUMERIC,
                                    "logits that are not finite at position %zu, token %zu",
                                    i / (size_t)n_vocab, i % (size_t)n_vocab),
                            err.msg);
    return 0;
}

static int write_files(const struct logits_args *a, const struct tool *t, const float *logits, size_t rows,
                       const float *hidden)
{
    struct err err = {0};
    int64_t shape[2] = {(int64_t)rows, t->l.config->n_vocab};
    int64_t traced[2] = {t->l.config->n_layers + 2, t->l.config->d_model};
    int rc = 0;
    if (a->npy)
        rc = npy_write(a->npy, logits, a->all ? shape : shape + 1, a->all ? 2 : 1, &err);
    if (rc == 0 && hidden)
        rc = npy_write(a->hidden, hidden, traced, 2, &err);
    return rc < 0 ? msg_fail(rc, err.msg) : 0;
}

static int evaluate(struct tool *t, const struct logits_args *a, const struct ids *ids)
{
    struct err err = {0};
    struct progress p;
    const struct model_config *c = t->l.config;
    bool all = a->all && a->npy;
    size_t rows = all ? ids->n : 1, n = 0, n_hidden = (size_t)(c->n_layers + 2) * (size_t)c->d_model;
    float *logits = mem_mul(rows, (size_t)c->n_vocab, &n) ? mem_array(n, sizeof *logits) : NULL;
    float *hidden = a->hidden ? mem_array(n_hidden, sizeof *hidden) : NULL;
    int status;
    if (!logits || (a->hidden && !hidden)) {
        status = msg_fail(ERR_NOMEM, "out of memory for the logits");
        goto done;
    }
    forward_trace(t->l.forward, hidden);
    progress_start(&p, "prefill", "tokens");
    int rc = seq_eval(&t->seq, ids->v, ids->n, all, logits, on_chunk, &p, &err);
    progress_end(&p);
    forward_trace(t->l.forward, NULL);
    status = rc < 0 ? msg_fail(rc, err.msg) : check_finite(logits, n, c->n_vocab);
    if (status == 0)
        status = write_files(a, t, logits, rows, hidden);
    if (status == 0 && (a->has_top || (!a->npy && !a->hidden)))
        status = print_top(t, logits + (rows - 1) * (size_t)c->n_vocab, a->top);
done:
    free(logits);
    free(hidden);
    return status;
}

static int run(void *args, const struct common *c)
{
    struct logits_args *a = args;
    struct tool t = {0};
    struct prompt p;
    struct ids ids;
    ids_init(&ids);
    if (a->all && !a->npy)
        return msg_usage("logits", "--all needs --npy FILE");
    int status = prompt_read(&p, &a->prompt, "logits", "-p, -f or --ids");
    interrupt_catch();
    if (status == 0)
        status = tool_open(&t, c, -1, 1);
    if (status == 0)
        status = tool_prompt(&ids, &p, &a->prompt, &t);
    if (status == 0 && (int64_t)ids.n > t.l.n_ctx) {
        msg_error("the prompt of %zu tokens does not fit in the context of %" PRId64 " positions; raise --ctx",
                  ids.n, t.l.n_ctx);
        status = EXIT_FAILED;
    }
    if (status == 0)
        status = evaluate(&t, a, &ids);
    ids_fini(&ids);
    prompt_free(&p);
    return tool_close(&t, status);
}

const struct cmd cmd_logits = {
    .name = "logits",
    .summary = "Print or write the logits after a prompt",
    .usage = "(-p TEXT | -f FILE | --ids LIST) [--npy FILE [--all]] [--top K] [--hidden FILE] [flags]",
    .opts = opts,
    .args_size = sizeof(struct logits_args),
    .shared = {common_model_opts, common_device_opts},
    .run = run,
};
