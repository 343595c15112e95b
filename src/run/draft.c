/* A draft model beside the target: its sequences follow those of the samples, a
 * step of it gives one more drafted id to all who want one.  What it stores of ids
 * that were not accepted is written over.
 * Knows nothing of how drafts are judged. */
#include "run/draft.h"

#include <float.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "run/engine.h"

struct draft {
    struct loaded l;
    struct batch batch;
    struct sample **wants; /* [max_seqs] whose results the batch has, in their order */
    float *logits;         /* [max_seqs, n_vocab] of the draft */
    float *row;            /* [n_vocab] of the target */
    int32_t *best;         /* [max_seqs] */
    int64_t n_vocab;       /* of the target */
    bool lost;             /* its devices failed: they are opened again before the next step */
    bool failed;           /* for good */
    uint64_t n_steps;      /* that succeeded since they were opened */
};

/* Devices that fail again within so many steps are given up: each time costs seconds, and drafts are only worth some. */
enum { STEPS_OF_TRUST = 256 };

/* ---- opening ---- */

static int check_vocabulary(const struct loaded *d, const struct loaded *t, struct err *err)
{
    int32_t n = tokenizer_n_ids(d->tokenizer), m = tokenizer_n_ids(t->tokenizer);
    const char *name = weights_path(d->weights);
    if (n != m)
        return err_set(err, ERR_ARG, "the draft model %s has another vocabulary: %d ids, and the model has %d", name, (int)n, (int)m);
    for (int32_t id = 0; id < n; id++) {
        const char *a = "", *b = "";
        size_t n_a = 0, n_b = 0;
        bool has_a = tokenizer_piece(d->tokenizer, id, &a, &n_a), has_b = tokenizer_piece(t->tokenizer, id, &b, &n_b);
        if (has_a != has_b || n_a != n_b || memcmp(a, b, n_a) != 0)
            return err_set(err, ERR_ARG, "the draft model %s has another vocabulary: id %d is \"%.*s\", and the model's is \"%.*s\"",
                           name, (int)id, (int)(n_a < 60 ? n_a : 60), a, (int)(n_b < 60 ? n_b : 60), b);
    }
    return 0;
}

int draft_open(struct draft **out, const struct load_params *p, const char *model, const struct loaded *target, struct err *err)
{
    struct load_params lp = *p;
    size_t n_logits, n_seqs = (size_t)p->kv.max_seqs;
    *out = NULL;
    struct draft *d = mem_array(1, sizeof *d);
    if (!d)
        return err_set(err, ERR_NOMEM, "no memory for a draft model");
    d->n_vocab = target->config->n_vocab;
    d->n_steps = STEPS_OF_TRUST;
    lp.model = model;
    lp.tokenizer = lp.config = NULL;
    lp.kv.n_ctx = target->n_ctx;
    lp.kv.mem = 0;
    lp.kv.keep = false;
    lp.clip_ctx = true;
    lp.max_want = p->kv.max_seqs;
    int rc = load_open(&d->l, &lp, err);
    if (rc < 0)
        err_wrap(err, "draft model %s", model);
    if (rc == 0)
        rc = check_vocabulary(&d->l, target, err);
    if (rc == 0) {
        d->wants = mem_array(n_seqs, sizeof *d->wants);
        d->best = mem_array(n_seqs, sizeof *d->best);
        d->row = mem_array((size_t)d->n_vocab, sizeof *d->row);
        if (mem_mul(n_seqs, (size_t)d->l.config->n_vocab, &n_logits))
            d->logits = mem_array(n_logits, sizeof *d->logits);
        if (!d->wants || !d->best || !d->row || !d->logits)
            rc = err_set(err, ERR_NOMEM, "no memory for the logits of a draft model");
    }
    if (rc == 0)
        rc = batch_init(&d->batch, &d->l, err);
    if (rc < 0)
        draft_close(d);
    else
        *out = d;
    return rc;
}

struct loaded *draft_loaded(struct draft *d)
{
    return &d->l;
}

void draft_close(struct draft *d)
{
    if (!d)
        return;
    batch_fini(&d->batch);
    free(d->wants);
    free(d->best);
    free(d->row);
    free(d->logits);
    load_close(&d->l);
    free(d);
}

/* ---- the step that gives one id to each ---- */

/* The target's vocabulary may have rows more or less than the draft's, which stand for nothing. */
static const float *row_of(struct draft *d, size_t i)
{
    int64_t n = d->l.config->n_vocab;
    const float *from = d->logits + (ptrdiff_t)i * n;
    if (n >= d->n_vocab)
        return from;
    memcpy(d->row, from, (size_t)n * sizeof *from);
    for (int64_t k = n; k < d->n_vocab; k++)
        d->row[k] = -FLT_MAX;
    return d->row;
}

static void give_up(struct draft *d, const char *why)
{
    log_msg(LOG_WARN, "nothing is drafted any more: %s", why);
    d->failed = true;
}

/* A step failed: no more drafts in this one of the target's. */
static void fail(struct draft *d, const struct err *err)
{
    if (!load_may_mend(&d->l, err->code) || d->n_steps < STEPS_OF_TRUST) {
        give_up(d, err->msg);
        return;
    }
    log_msg(LOG_WARN, "draft model: %s; its devices are opened again", err->msg);
    d->lost = true;
}

/* What was stored is stored again as samples come to be drafted for. */
static void reopen(struct draft *d, struct forge_engine *e)
{
    struct err err = {0};
    for (size_t i = 0; i < e->n_running; i++)
        draft_leave(d, e->running[i]);
    d->lost = false;
    d->n_steps = 0;
    if (load_reopen(&d->l, &err) < 0)
        give_up(d, err.msg);
    else
        e->stats.recovered++;
}

/* Runs what is put together, and takes the ids of those in it who want one: their j-th. */
static bool flush(struct draft *d, int j)
{
    struct err err = {0};
    size_t n = (size_t)d->batch.n_want;
    bool plain = true;
    for (size_t i = 0; i < n; i++)
        plain = plain && step_is_plain(d->wants[i]->r);
    int rc = d->batch.n_rows == 0 ? 0 : batch_run(&d->batch, plain ? d->best : NULL, plain ? NULL : d->logits, &err);
    for (size_t i = 0; i < n && rc == 0; i++) {
        struct sample *s = d->wants[i];
        int32_t id = d->best[i];
        if ((plain && (id < 0 || id >= d->n_vocab)) || (!plain && spec_draw(s, row_of(d, i), j, &id) < 0)) {
            s->n_draft = j;
            continue;
        }
        s->ids.v[s->ids.n + (size_t)j] = id;
    }
    if (rc < 0)
        fail(d, &err);
    d->n_steps += rc == 0;
    batch_begin(&d->batch);
    return rc == 0;
}

/* All ids before position `end` go into the step, the last of them wanted; steps before it take what is too much. */
static bool add(struct draft *d, struct sample *s, int64_t end, int j)
{
    struct kv *kv = d->l.kv;
    while (s->draft_len < end) {
        int room = d->batch.max_rows - d->batch.n_rows;
        int64_t n = end - s->draft_len < room ? end - s->draft_len : room;
        if (n > d->l.chunk)
            n = d->l.chunk;
        if (n > 0 && kv_reserve(kv, s->draft_slot, s->draft_len + n, NULL) < 0) {
            s->n_draft = j;
            return true;
        }
        for (int64_t i = 0; i < n; i++) {
            int32_t id = sample_id(s, s->draft_len + i);
            batch_add(&d->batch, s->draft_slot, s->draft_len + i, &id, 1);
        }
        s->draft_len += n;
        if (s->draft_len == end)
            d->wants[batch_want(&d->batch)] = s;
        else if (!flush(d, j))
            return false;
        else if (j == 0) /* these ids stay; pages behind a window go */
            kv_set_len(kv, s->draft_slot, s->draft_len);
    }
    return true;
}

/* What was stored of ids that were not accepted is void. */
static bool enter(struct draft *d, struct sample *s)
{
    if (s->draft_slot < 0) {
        s->draft_slot = kv_seq_open(d->l.kv);
        s->draft_len = s->draft_ok = 0;
    }
    if (s->draft_slot < 0)
        return false;
    s->draft_len = s->draft_len < s->draft_ok ? s->draft_len : s->draft_ok;
    kv_set_len(d->l.kv, s->draft_slot, s->draft_len);
    s->draft_ok = (int64_t)(s->r->prompt.n + s->ids.n);
    return true;
}

void draft_run(struct draft *d, struct sample *const *s, size_t n)
{
    int most = 0;
    if (d->lost)
        reopen(d, s[0]->r->e);
    batch_begin(&d->batch);
    for (size_t i = 0; i < n; i++) {
        int64_t room = d->l.n_ctx - (int64_t)(s[i]->r->prompt.n + s[i]->ids.n) + 1; /* the last drafted is not stored */
        if (d->failed || room < 1 || !enter(d, s[i]))
            s[i]->n_draft = 0;
        else if (s[i]->n_draft > room)
            s[i]->n_draft = (int)room;
        most = s[i]->n_draft > most ? s[i]->n_draft : most;
    }
    bool ok = !d->failed;
    for (int j = 0; j < most && ok; j++) {
        for (size_t i = 0; i < n && ok; i++)
            if (s[i]->n_draft > j)
                ok = add(d, s[i], (int64_t)(s[i]->r->prompt.n + s[i]->ids.n) + j, j);
        ok = ok && flush(d, j);
        for (size_t i = 0; i < n && !ok; i++)
            s[i]->n_draft = s[i]->n_draft < j ? s[i]->n_draft : j;
    }
}

void draft_leave(struct draft *d, struct sample *s)
{
    if (d && d->l.kv && s->draft_slot >= 0)
        kv_seq_close(d->l.kv, s->draft_slot);
    s->draft_slot = -1;
}
