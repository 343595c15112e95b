/* Runs one test of bench on the loaded model: prefill through seq.h, decoding
 * of several sequences in one step over forward.h.
 * Owns the clock and the counting; prints nothing and knows no flag. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "cli/bench.h"
#include "cli/out.h"

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

static void add_stats(const struct bench *b, double *bytes, double *flops)
{
    *bytes = *flops = 0;
    for (int i = 0; i < b->t->l.n_backends; i++)
        for (int op = 0; op < OP_COUNT; op++) {
            const struct op_stats *s = op_stats(b->t->l.backends[i], (enum op_id)op);
            *bytes += (double)s->bytes;
            *flops += (double)s->flops;
        }
}

static void measure_limits(struct bench *b)
{
    double read = limits_read(b->limits), peak = limits_flops(b->limits);
    b->read_gb_s = read > b->read_gb_s ? read : b->read_gb_s;
    b->peak_gflop_s = peak > b->peak_gflop_s ? peak : b->peak_gflop_s;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(const double *v, int n, double *sorted)
{
    memcpy(sorted, v, (size_t)n * sizeof *v);
    qsort(sorted, (size_t)n, sizeof *sorted, by_value);
    return n % 2 ? sorted[n / 2] : (sorted[n / 2 - 1] + sorted[n / 2]) / 2;
}

int bench_run(struct bench *b, const struct bench_test *t, int reps, struct bench_result *out,
              struct err *err)
{
    double sorted[BENCH_REPS_MAX], bytes0, bytes1, flops0, flops1, n_tok = (double)t->n * t->batch;
    int rc;
    *out = (struct bench_result){.test = *t, .all = mem_array((size_t)reps, sizeof *out->all)};
    if (!out->all)
        return err_set(err, ERR_NOMEM, "out of memory");
    rc = prepare(b, t, err);
    if (rc == 0) /* the whole prompt has every shape of its chunks; one step is every step's */
        rc = timed_part(b, t, t->kind == BENCH_PREFILL ? t->n : 1, err);
    for (int r = 0; r < reps && rc == 0; r++) {
        rc = prepare(b, t, err);
        if (rc < 0)
            break;
        measure_limits(b);
        add_stats(b, &bytes0, &flops0);
        double start = clock_now();
        rc = timed_part(b, t, t->n, err);
        double seconds = clock_now() - start;
        add_stats(b, &bytes1, &flops1);
        measure_limits(b);
        out->all[out->reps++] = seconds > 0 ? n_tok / seconds : 0;
    }
    if (rc == 0) {
        out->tok_s = median(out->all, reps, sorted);
        out->gb_s = (bytes1 - bytes0) / n_tok * out->tok_s * 1e-9;
        out->gflop_s = (flops1 - flops0) / n_tok * out->tok_s * 1e-9;
    }
    return rc;
}

void bench_shares(struct bench *b)
{
    for (size_t i = 0; i < b->n_results; i++) {
        struct bench_result *r = &b->results[i];
        double read = b->read_gb_s > 0 ? r->gb_s / b->read_gb_s : 0;
        double peak = b->peak_gflop_s > 0 ? r->gflop_s / b->peak_gflop_s : 0;
        r->share = read > peak ? read : peak;
    }
}
