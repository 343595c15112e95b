/* forge perplexity: how well the model foretells a text, window by window, and
 * how far another run's distributions are from a saved one.
 * Owns the windows, the sums and KL; log-probabilities are the sampler's. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "base/mem.h"
#include "cli/cmd.h"
#include "cli/npy.h"
#include "cli/tools.h"
#include "run/sampler.h"

struct perplexity_args {
    struct prompt_args prompt;
    int64_t window;
    bool has_window, json;
    const char *kl_save, *kl_base;
};

#define F(field) offsetof(struct perplexity_args, field)

static const struct opt opts[] = {
    PROMPT_FILE_OPT(struct perplexity_args),
    PROMPT_TEXT_OPT(struct perplexity_args),
    PROMPT_IDS_OPT(struct perplexity_args),
    PROMPT_FLAG_OPTS(struct perplexity_args),
    {"window", 0, OPT_I64, F(window), F(has_window), "N", "2..1000000000", NULL,
     "positions scored together; windows do not overlap, the first token of each is not scored (default: the "
     "context)"},
    {"json", 0, OPT_FLAG, F(json), 0, NULL, NULL, NULL,
     "one JSON object with tokens, nll, perplexity and logprobs"},
    {"kl-save", 0, OPT_STR, F(kl_save), 0, "FILE", NULL, NULL,
     "write the log-probabilities of every scored position as .npy, float32 [scored, vocab]"},
    {"kl-base", 0, OPT_STR, F(kl_base), 0, "FILE", NULL, NULL,
     "compare with distributions that --kl-save wrote"},
    {0},
};

/* Sums over the scored positions. */
struct score {
    struct buf logprobs; /* doubles */
    size_t n;
    double nll;
    double kl_sum, kl_max, diff_sum; /* against the base */
    size_t n_same_top;
};

struct work {
    struct tool *t;
    const struct ids *ids;
    struct npy base;        /* rows = scored positions, when comparing */
    struct npy_writer save; /* out.f NULL = not saving */
    bool comparing;
    float *logits;         /* [rows, n_vocab] */
    float *row, *base_row; /* [n_vocab] log-probabilities */
    size_t rows;
    struct score s;
    struct progress progress;
    size_t done; /* tokens before the running evaluation */
};

static int on_piece(void *user, size_t done, size_t total)
{
    struct work *w = user;
    (void)total;
    progress_update(&w->progress, w->done + done, w->ids->n);
    return interrupted();
}

static size_t n_scored(size_t n, size_t window)
{
    size_t whole = n / window, rest = n % window;
    return whole * (window - 1) + (rest ? rest - 1 : 0);
}

static size_t argmax(const float *x, size_t n)
{
    size_t best = 0;
    for (size_t i = 1; i < n; i++)
        if (x[i] > x[best])
            best = i;
    return best;
}

/* KL(base || this) = sum of p (log p - log q) - p + q: the added terms cancel, and make every one of the
 * sum's terms at least 0, so that rounding cannot give a negative distance.  And what the two say about
 * the token that came. */
static void compare(struct work *w, int32_t next)
{
    size_t n = (size_t)w->t->l.config->n_vocab;
    double kl = 0;
    npy_row(&w->base, (int64_t)w->s.n, w->base_row);
    for (size_t i = 0; i < n; i++) {
        double lp = (double)w->base_row[i], lq = (double)w->row[i];
        kl += (lp > -INFINITY ? exp(lp) * (lp - lq) - exp(lp) : 0) + exp(lq);
    }
    w->s.kl_sum += kl;
    w->s.kl_max = w->s.n == 0 || kl > w->s.kl_max ? kl : w->s.kl_max;
    w->s.diff_sum += fabs((double)w->base_row[next] - (double)w->row[next]);
    w->s.n_same_top += argmax(w->base_row, n) == argmax(w->row, n);
}

/* One scored position: logits [n_vocab] before the token `next`. */
static int score_row(struct work *w, const float *logits, int32_t next, struct err *err)
{
    int64_t n = w->t->l.config->n_vocab;
    double lse = sampler_logsumexp(logits, n), logprob = (double)logits[next] - lse;
    if (!isfinite(lse) || isnan(logprob))
        return err_set(err, ERR_NUMERIC, "logits that are not finite before scored token %zu", w->s.n);
    w->s.nll -= logprob;
    buf_put(&w->s.logprobs, &logprob, sizeof logprob);
    if (w->comparing || w->save.out.f)
        for (int64_t i = 0; i < n; i++)
            w->row[i] = (float)((double)logits[i] - lse);
    if (w->comparing)
        compare(w, next);
    w->s.n++;
    return w->save.out.f ? npy_put(&w->save, w->row, (size_t)n, err) : 0;
}

static int score_window(struct work *w, size_t start, size_t len, struct err *err)
{
    size_t n_vocab = (size_t)w->t->l.config->n_vocab;
    seq_reset(&w->t->seq, 0);
    for (size_t at = 0; at + 1 < len;) { /* the last token is only foretold */
        size_t n = len - 1 - at < w->rows ? len - 1 - at : w->rows;
        w->done = start + at;
        int rc = seq_eval(&w->t->seq, w->ids->v + start + at, n, true, w->logits, on_piece, w, err);
        for (size_t i = 0; rc == 0 && i < n; i++)
            rc = score_row(w, w->logits + i * n_vocab, w->ids->v[start + at + i + 1], err);
        if (rc < 0)
            return rc;
        at += n;
        progress_update(&w->progress, start + at, w->ids->n);
        if (interrupted())
            return err_set(err, ERR_CANCELLED, "stopped after %zu of %zu tokens", start + at, w->ids->n);
    }
    return 0;
}

static int open_files(struct work *w, const struct perplexity_args *a, size_t scored, struct err *err)
{
    int64_t shape[2] = {(int64_t)scored, w->t->l.config->n_vocab};
    if (a->kl_base) {
        int rc = npy_open(&w->base, a->kl_base, err);
        if (rc < 0)
            return rc;
        w->comparing = true;
        if (w->base.rows != shape[0] || w->base.cols != shape[1])
            return err_set(err, ERR_FORMAT,
                           "%s: holds %" PRId64 " x %" PRId64 " values, this run has %" PRId64 " x %" PRId64
                           " (scored positions, vocabulary)",
                           a->kl_base, w->base.rows, w->base.cols, shape[0], shape[1]);
    }
    return a->kl_save ? npy_create(&w->save, a->kl_save, shape, 2, err) : 0;
}

static bool print(const struct score *s, const struct perplexity_args *a, size_t n_tokens)
{
    struct buf b;
    double n = (double)s->n, nll = s->nll / n;
    buf_init(&b);
    if (!a->json) {
        buf_printf(&b, "%zu tokens, %zu scored: nll %.6f, perplexity %.6f\n", n_tokens, s->n, nll, exp(nll));
        if (a->kl_base)
            buf_printf(&b,
                       "against the base: KL mean %.3e, max %.3e; logprob differs by %.3e on average; same "
                       "best token %.2f %%\n",
                       s->kl_sum / n, s->kl_max, s->diff_sum / n, 100 * (double)s->n_same_top / n);
        return out_buf(&b);
    }
    buf_printf(&b, "{\"tokens\":%zu,\"scored\":%zu,\"nll\":", n_tokens, s->n);
    buf_put_json_num(&b, nll);
    buf_puts(&b, ",\"perplexity\":");
    buf_put_json_num(&b, exp(nll));
    if (a->kl_base) {
        const struct {
            const char *key;
            double v;
        } members[] = {
            {"kl_mean", s->kl_sum / n},
            {"kl_max", s->kl_max},
            {"logprob_diff_mean", s->diff_sum / n},
            {"top1_agreement", (double)s->n_same_top / n},
        };
        for (size_t i = 0; i < 4; i++) {
            buf_printf(&b, ",\"%s\":", members[i].key);
            buf_put_json_num(&b, members[i].v);
        }
    }
    buf_puts(&b, ",\"logprobs\":[");
    const double *logprobs = (const double *)(const void *)s->logprobs.data;
    for (size_t i = 0; i < s->n; i++) {
        if (i)
            buf_putc(&b, ',');
        buf_put_json_num(&b, logprobs[i]);
    }
    buf_puts(&b, "]}\n");
    return out_buf(&b);
}

static int score_all(struct tool *t, const struct perplexity_args *a, const struct ids *ids)
{
    struct work w = {.t = t, .ids = ids};
    struct err err = {0};
    size_t window = a->has_window ? (size_t)a->window : (size_t)t->l.n_ctx,
           n_vocab = (size_t)t->l.config->n_vocab, n;
    size_t scored = n_scored(ids->n, window);
    int rc = 0;
    if (scored == 0)
        return msg_fail(ERR_ARG, "the text has too few tokens: nothing can be scored");
    buf_init(&w.s.logprobs);
    w.rows = (size_t)t->l.max_want;
    w.logits = mem_mul(w.rows, n_vocab, &n) ? mem_array(n, sizeof *w.logits) : NULL;
    w.row = mem_array(n_vocab, sizeof *w.row);
    w.base_row = mem_array(n_vocab, sizeof *w.base_row);
    if (!w.logits || !w.row || !w.base_row)
        rc = err_set(&err, ERR_NOMEM, "out of memory for logits of %zu positions", w.rows);
    if (rc == 0)
        rc = open_files(&w, a, scored, &err);
    progress_start(&w.progress, "scoring", "tokens");
    for (size_t start = 0; rc == 0 && start < ids->n; start += window)
        rc = score_window(&w, start, ids->n - start < window ? ids->n - start : window, &err);
    progress_end(&w.progress);
    int closed = npy_finish(&w.save, rc == 0, &err);
    rc = rc < 0 ? rc : closed;
    int status = rc < 0 ? msg_fail(rc, err.msg) : 0;
    if (status == 0 && !print(&w.s, a, ids->n))
        status = EXIT_FAILED;
    npy_close(&w.base);
    buf_fini(&w.s.logprobs);
    free(w.logits);
    free(w.row);
    free(w.base_row);
    return status;
}

static int run(void *args, const struct common *c)
{
    struct perplexity_args *a = args;
    struct tool t = {0};
    struct prompt p;
    struct ids ids;
    ids_init(&ids);
    int status = prompt_read(&p, &a->prompt, "perplexity", "-f, -p or --ids");
    if (status == 0 && a->has_window && c->has_ctx && c->ctx > 0 && a->window > c->ctx)
        status =
            msg_usage("perplexity", "--window %" PRId64 " does not fit in --ctx %" PRId64, a->window, c->ctx);
    if (status == 0 && a->kl_save && a->kl_base && out_same_file(a->kl_save, a->kl_base))
        status = msg_usage("perplexity", "--kl-save and --kl-base are one file (%s)", a->kl_base);
    interrupt_catch();
    if (status == 0)
        status = tool_open(&t, c, a->has_window ? a->window : -1, 1);
    if (status == 0)
        status = tool_prompt(&ids, &p, &a->prompt, &t);
    if (status == 0)
        status = score_all(&t, a, &ids);
    ids_fini(&ids);
    prompt_free(&p);
    return tool_close(&t, status);
}

const struct cmd cmd_perplexity = {
    .name = "perplexity",
    .summary = "Score a text: mean negative log-likelihood and perplexity",
    .usage = "(-f FILE | -p TEXT | --ids LIST) [--window N] [flags]",
    .opts = opts,
    .args_size = sizeof(struct perplexity_args),
    .shared = {common_model_opts, common_device_opts},
    .run = run,
};
