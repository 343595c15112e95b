/* Runs one test of bench on the loaded model: prefill through seq.h, decoding
 * of several sequences in one step over forward.h; and the choice of a token.
 * Owns the clock; prints nothing and knows no flag. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "cli/bench.h"
#include "cli/out.h"
#include "run/sampler.h"

void bench_name(struct bench_test *t)
{
    char depth[32] = "", batch[16] = "";
    if (t->depth)
        snprintf(depth, sizeof depth, "@d%" PRId64, t->depth);
    if (t->batch > 1)
        snprintf(batch, sizeof batch, "x%d", t->batch);
    snprintf(t->name, sizeof t->name, "%s%" PRId64 "%s%s", t->kind == BENCH_PREFILL ? "pp" : "tg", t->n,
             batch, depth);
}

static int stop_if_interrupted(void *user, size_t done, size_t total)
{
    (void)user, (void)done, (void)total;
    return interrupted();
}

/* Makes a sequence exactly `depth` positions long; what it already holds is kept. */
static int fill_to(struct bench *b, struct seq *s, int64_t depth, struct err *err)
{
    if (s->len > depth)
        seq_reset(s, depth);
    if (s->len >= depth)
        return 0;
    return seq_eval(s, b->ids + s->len, (size_t)(depth - s->len), false, NULL, stop_if_interrupted, NULL,
                    err);
}

/* One step of n sequences, one row each; next[i] becomes sequence i's best id. */
static int decode_step(struct bench *b, int n, int32_t *next, struct err *err)
{
    struct loaded *l = &b->t->l;
    int32_t ids[BENCH_BATCH_MAX], pos[BENCH_BATCH_MAX], row[BENCH_BATCH_MAX];
    struct forward_batch batch = {
        .n_rows = n, .ids = ids, .pos = pos, .seq = row, .n_seqs = n, .n_want = n, .want = row};
    int rc = 0;
    for (int i = 0; i < n && rc == 0; i++) {
        rc = kv_reserve(l->kv, b->seqs[i].slot, b->seqs[i].len + 1, err);
        ids[i] = next[i];
        pos[i] = (int32_t)b->seqs[i].len;
        row[i] = i;
    }
    int32_t *at = b->pages;
    for (int g = 0; g < l->config->n_groups && rc == 0; g++) {
        int columns = kv_max_pages(l->kv, g);
        batch.pages[g] = at;
        for (int i = 0; i < n; i++, at += columns)
            memcpy(at, kv_pages(l->kv, b->seqs[i].slot, g), (size_t)columns * sizeof *at);
    }
    if (rc == 0)
        rc = forward_run(l->forward, &batch, err);
    if (rc == 0)
        rc = forward_argmax(l->forward, next, err);
    for (int i = 0; i < n; i++) {
        b->seqs[i].len += rc == 0;
        kv_set_len(l->kv, b->seqs[i].slot, b->seqs[i].len);
    }
    return rc;
}

static int prepare(struct bench *b, const struct bench_test *t, struct err *err)
{
    /* decoding at depth 0 begins after one token: there is no step without one */
    int64_t depth = t->kind == BENCH_DECODE && t->depth == 0 ? 1 : t->depth;
    for (int i = 0; i < t->batch; i++) {
        int rc = fill_to(b, &b->seqs[i], depth, err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

static int timed_part(struct bench *b, const struct bench_test *t, int64_t n, struct err *err)
{
    int32_t next[BENCH_BATCH_MAX];
    if (t->kind == BENCH_PREFILL) {
        int32_t id;
        return seq_eval_argmax(&b->seqs[0], b->ids + t->depth, (size_t)n, &id, stop_if_interrupted, NULL,
                               err);
    }
    for (int i = 0; i < t->batch; i++)
        next[i] = b->ids[i];
    for (int64_t k = 0; k < n; k++) {
        int rc = decode_step(b, t->batch, next, err);
        if (rc < 0)
            return rc;
        if (interrupted())
            return err_set(err, ERR_CANCELLED, "stopped");
        for (int i = 0; i < t->batch; i++)
            if (next[i] < 0)
                return err_set(err, ERR_NUMERIC, "%s: logits that are not finite at step %" PRId64, t->name,
                               k);
    }
    return 0;
}

/* With the threads of the run; the larger counts, so that nothing is flattered by a bad moment. */
static int measure_limits(struct bench *b, struct limits_found *around, struct err *err)
{
    return limits_measure(b->limits_of, b->kinds, around, err);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double bench_median(double *v, int n)
{
    qsort(v, (size_t)n, sizeof *v, by_value);
    return n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

static void summarise(const struct bench *b, struct bench_result *r)
{
    double sorted[BENCH_REPS_MAX], bytes = 0, flops = 0, tokens = (double)r->test.n * r->test.batch * r->reps;
    bool reading;
    memcpy(sorted, r->all, (size_t)r->reps * sizeof *sorted);
    r->tok_s = bench_median(sorted, r->reps);
    r->min = sorted[0];
    r->max = sorted[r->reps - 1];
    for (int op = 0; op < OP_COUNT; op++) {
        bytes += (double)r->ops[op].bytes;
        flops += (double)r->ops[op].flops;
    }
    r->gb_s = bytes / tokens * r->tok_s * 1e-9;
    r->gflop_s = flops / tokens * r->tok_s * 1e-9;
    if (!b->own_memory)
        r->share = bench_share(r->gb_s, r->gflop_s, r->limits.read_gb_s, bench_peak(&r->limits), &reading);
}

int bench_run(struct bench *b, const struct bench_test *t, int reps, struct bench_result *out,
              struct err *err)
{
    struct bench_op before[OP_COUNT], after[OP_COUNT];
    *out = (struct bench_result){.test = *t, .all = mem_array((size_t)reps, sizeof *out->all)};
    if (!out->all)
        return err_set(err, ERR_NOMEM, "out of memory");
    double start = clock_now();
    int rc = prepare(b, t, err);
    out->fill_s = clock_now() - start;
    if (rc == 0) /* the whole prompt has every shape of its chunks; one step is every step's */
        rc = timed_part(b, t, t->kind == BENCH_PREFILL ? t->n : 1, err);
    b->kinds = bench_kinds(b); /* what has run tells */
    for (int r = 0; r < reps && rc == 0; r++) {
        rc = prepare(b, t, err);
        if (rc == 0)
            rc = measure_limits(b, &out->limits, err);
        if (rc < 0)
            break;
        bench_ops_count(b, before);
        start = clock_now();
        rc = timed_part(b, t, t->n, err);
        double seconds = clock_now() - start;
        bench_ops_count(b, after);
        bench_ops_add(out->ops, after, before);
        out->all[out->reps++] = seconds > 0 ? (double)t->n * t->batch / seconds : 0;
        if (rc == 0)
            rc = measure_limits(b, &out->limits, err);
    }
    if (rc == 0)
        summarise(b, out);
    limits_add(&b->limits, &out->limits);
    return rc;
}

/* ---- sampling ---- */

static const struct sampling {
    const char *name;
    double temp, top_p;
    int64_t top_k;
} samplings[BENCH_SAMPLINGS] = {
    {"greedy", 0, 1, 0},
    {"temp 1", 1, 1, 0},
    {"temp 0.8, top-k 40, top-p 0.95", 0.8, 0.95, 40},
};
enum { PICKS = 15 };

const char *bench_sampling_name(int i)
{
    return samplings[i].name;
}

/* The median of some picks, in milliseconds. */
static int time_picks(const struct sampling *how, const float *logits, int64_t n_vocab, double *ms, struct err *err)
{
    struct sampler_params p;
    struct sampler *s = NULL;
    struct sampler_history none = {0};
    double all[PICKS];
    sampler_params_init(&p);
    p.temp = how->temp;
    p.top_p = how->top_p;
    p.top_k = how->top_k < n_vocab ? how->top_k : 0;
    p.seed = 1;
    int rc = sampler_new(&s, &p, n_vocab, err);
    for (int i = 0; i < PICKS && rc == 0; i++) {
        int32_t id;
        double start = clock_now();
        rc = sampler_pick(s, logits, &none, 0, (uint64_t)i, &id, err);
        all[i] = 1e3 * (clock_now() - start);
    }
    sampler_free(s);
    if (rc == 0)
        *ms = bench_median(all, PICKS);
    return rc;
}

int bench_sampling(struct bench *b, struct err *err)
{
    int64_t n_vocab = b->t->l.config->n_vocab;
    float *logits = mem_array((size_t)n_vocab, sizeof *logits);
    int rc = logits ? 0 : err_set(err, ERR_NOMEM, "no memory for the logits of %lld ids", (long long)n_vocab);
    for (int i = 0; i < BENCH_SAMPLINGS; i++)
        b->sampling_ms[i] = NAN;
    seq_reset(&b->seqs[0], 0);
    if (rc == 0)
        rc = seq_eval(&b->seqs[0], b->ids, 1, false, logits, NULL, NULL, err);
    for (int i = 0; i < BENCH_SAMPLINGS && rc == 0; i++)
        rc = time_picks(&samplings[i], logits, n_vocab, &b->sampling_ms[i], err);
    free(logits);
    if (interrupted())
        return err_set(err, ERR_CANCELLED, "stopped");
    if (rc < 0)
        msg_warn("choosing a token is not timed: %s", err->msg);
    return 0;
}
