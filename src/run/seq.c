/* One sequence: reserves pages, hands pieces of a text to forward.c, moves the length
 * when one is done, gives the pages back when it failed.  Owns its KV slot.
 * Knows nothing of sampling or text. */
#include "run/seq.h"

#include <assert.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"

int seq_open(struct seq *s, struct loaded *l, struct err *err)
{
    *s = (struct seq){.l = l, .slot = -1, .piece = SEQ_PIECE_FIRST};
    s->rows = mem_array((size_t)l->chunk * 3, sizeof *s->rows);
    if (!s->rows)
        return err_set(err, ERR_NOMEM, "no memory for a sequence");
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
    free(s->rows);
    *s = (struct seq){.slot = -1};
}

void seq_reset(struct seq *s, int64_t len)
{
    assert(len >= 0 && len <= s->len);
    s->len = kv_can_cut(s->l->kv, s->slot, len) ? len : 0;
    kv_set_len(s->l->kv, s->slot, s->len);
}

int seq_piece(const struct seq *s)
{
    bool all = s->whole || !s->l->free_rows || s->piece > s->l->chunk;
    return all ? s->l->chunk : s->piece;
}

/* A step of n rows took so long.  Those of decoding say nothing: their time is that of reading the weights. */
static void set_piece(struct seq *s, int n, double seconds)
{
    double rows = seconds > 0 ? n / seconds * SEQ_PIECE_S : 4.0 * n;
    if (n < s->piece)
        return;
    rows = rows > 4.0 * n ? 4.0 * n : rows; /* the first step may be unlike the others */
    rows = rows > s->l->chunk ? s->l->chunk : rows;
    s->piece = rows < 1 ? 1 : (int)rows;
    if (s->piece > 16)
        s->piece -= s->piece % 16; /* kernels take rows in fours and eights */
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
    int32_t *pos = s->rows, *seq = s->rows + l->chunk, *wanted = s->rows + 2 * (ptrdiff_t)l->chunk;
    double start = clock_now();
    int rc = kv_reserve(l->kv, s->slot, s->len + n, err);
    if (rc < 0)
        return rc;
    for (int i = 0; i < n; i++) {
        pos[i] = (int32_t)(s->len + i);
        seq[i] = 0;
        wanted[i] = want == WANT_ALL ? i : n - 1;
    }
    struct forward_batch b = {
        .n_rows = n, .ids = ids, .pos = pos, .seq = seq, .n_seqs = 1,
        .n_want = want == WANT_ALL ? n : want == WANT_LAST ? 1 : 0,
        .want = wanted,
    };
    for (int g = 0; g < l->config->n_groups; g++)
        b.pages[g] = kv_pages(l->kv, s->slot, g);
    rc = forward_run(l->forward, &b, err);
    if (rc == 0 && out->argmax)
        rc = forward_argmax(l->forward, out->argmax, err);
    else if (rc == 0 && out->logits)
        rc = forward_logits(l->forward, out->logits, err);
    else if (rc == 0)
        rc = forward_wait(l->forward, err);
    if (rc == 0) {
        s->len += n;
        set_piece(s, n, clock_now() - start);
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
        size_t max = (size_t)seq_piece(s);
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
