/* One sequence: reserves pages, hands pieces of a text to forward.c, moves the length
 * when one is done, gives the pages back when it failed.  Owns its KV slot.
 * Knows nothing of sampling or text. */
#include "run/seq.h"

#include <assert.h>

#include "base/clock.h"

int seq_open(struct seq *s, struct loaded *l, struct err *err)
{
    *s = (struct seq){.l = l, .slot = -1, .piece = BATCH_PIECE_FIRST};
    int rc = batch_init(&s->step, l, err);
    if (rc < 0)
        return rc;
    s->slot = kv_seq_open(l->kv);
    if (s->slot < 0) {
        seq_close(s);
        return err_set(err, ERR_LIMIT, "all sequences are in use");
    }
    return 0;
}

void seq_close(struct seq *s)
{
    if (s->l && s->slot >= 0)
        kv_seq_close(s->l->kv, s->slot);
    batch_fini(&s->step);
    *s = (struct seq){.slot = -1};
}

void seq_reset(struct seq *s, int64_t len)
{
    assert(len >= 0 && len <= s->len);
    s->len = kv_cut(s->l->kv, s->slot, len);
}

enum want { WANT_NONE, WANT_LAST, WANT_ALL };

/* Where a step's result goes; both NULL: nowhere. */
struct target {
    float *logits;
    int32_t *argmax;
};

/* One step of n <= chunk rows. */
static int run_step(struct seq *s, const int32_t *ids, int n, enum want want, const struct target *out, struct err *err)
{
    struct loaded *l = s->l;
    double start = clock_now();
    int rc = kv_reserve(l->kv, s->slot, s->len + n, err);
    if (rc < 0)
        return rc;
    batch_begin(&s->step);
    int at_once = want == WANT_ALL ? 1 : n; /* of rows the last one added can be wanted */
    for (int i = 0; i < n; i += at_once) {
        batch_add(&s->step, s->slot, s->len + i, &ids[i], at_once);
        if (want != WANT_NONE)
            batch_want(&s->step);
    }
    rc = batch_run(&s->step, out->argmax, out->logits, err);
    if (rc == 0) {
        s->len += n;
        s->piece = batch_next_piece(l, s->piece, n, clock_now() - start);
    }
    kv_set_len(l->kv, s->slot, s->len); /* after a failure: pages reserved for nothing go back */
    return rc;
}

static int eval(struct seq *s, const int32_t *ids, size_t n, bool want_all, const struct target *out, seq_progress *progress,
                void *user, struct err *err)
{
    struct loaded *l = s->l;
    size_t n_vocab = (size_t)l->config->n_vocab;
    assert(n >= 1);
    if (n > (size_t)(l->n_ctx - s->len))
        return err_set(err, ERR_LIMIT, "%zu more ids after %lld do not fit in the context of %lld", n, (long long)s->len,
                       (long long)l->n_ctx);
    for (size_t done = 0; done < n;) {
        size_t max = (size_t)(s->whole ? l->chunk : batch_piece(l, s->piece));
        if (want_all && max > (size_t)l->max_want)
            max = (size_t)l->max_want;
        size_t rows = n - done < max ? n - done : max;
        bool last = done + rows == n;
        struct target none = {0}, here = *out;
        if (want_all && here.logits)
            here.logits += done * n_vocab;
        bool read = (here.logits || here.argmax) && (last || want_all);
        int rc = run_step(s, ids + done, (int)rows, !read ? WANT_NONE : want_all ? WANT_ALL : WANT_LAST, read ? &here : &none,
                          err);
        if (rc < 0)
            return rc;
        done += rows;
        if (progress && progress(user, done, n))
            return err_set(err, ERR_CANCELLED, "stopped after %zu of %zu ids", done, n);
    }
    return 0;
}

int seq_eval(struct seq *s, const int32_t *ids, size_t n, bool want_all, float *out, seq_progress *progress, void *user,
             struct err *err)
{
    return eval(s, ids, n, want_all && out, &(struct target){.logits = out}, progress, user, err);
}

int seq_eval_argmax(struct seq *s, const int32_t *ids, size_t n, int32_t *id, seq_progress *progress, void *user,
                    struct err *err)
{
    return eval(s, ids, n, false, &(struct target){.argmax = id}, progress, user, err);
}
