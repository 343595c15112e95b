/* The scheduler: which requests run, and how many rows each has in the next step.
 * Rank is priority, then age: admission goes down the ranks, pages are taken away
 * from the lowest.  A request that lost its pages waits again and is computed
 * again from its ids; what it has told stays told.  Owns the places of running
 * requests; computes nothing. */
#include <assert.h>
#include <string.h>

#include "base/log.h"
#include "run/engine.h"

static bool before(const struct forge_request *a, const struct forge_request *b)
{
    return a->p.priority != b->p.priority ? a->p.priority > b->p.priority : a->number < b->number;
}

/* New ids are known and not stored until the step after. */
static int64_t known(const struct forge_request *r)
{
    return (int64_t)(r->prompt.n + (r->started ? r->samples[r->at].ids.n : 0));
}

int64_t sched_due(const struct forge_request *r)
{
    int64_t n = known(r), prompt = (int64_t)r->prompt.n;
    if (r->e->l.free_rows)
        return n - r->len;
    return r->len < prompt ? prompt - r->len : 1; /* computed again in steps of as many rows as the first time */
}

/* ---- places ---- */

void sched_enter(struct forge_request *r)
{
    struct forge_engine *e = r->e;
    size_t at = e->n_running++;
    for (; at > 0 && before(r, e->running[at - 1]); at--)
        e->running[at] = e->running[at - 1];
    e->running[at] = r;
}

void sched_leave(struct forge_request *r)
{
    struct forge_engine *e = r->e;
    size_t at = 0;
    while (at < e->n_running && e->running[at] != r)
        at++;
    if (at < e->n_running)
        memmove(&e->running[at], &e->running[at + 1], (--e->n_running - at) * sizeof e->running[0]);
    if (r->slot >= 0 && e->l.kv) /* else its devices are lost */
        kv_seq_close(e->l.kv, r->slot);
    r->slot = -1;
}

void sched_lose(struct forge_request *r)
{
    r->recompute = r->len > r->recompute ? r->len : r->recompute;
    r->len = 0;
    r->whole_prompt = r->at > 0 && !r->e->l.free_rows;
}

/* ---- prefixes ---- */

static struct kv_ids ids_of(const struct forge_request *r)
{
    const struct ids *ids = &r->samples[r->at].ids;
    return (struct kv_ids){r->prompt.v, ids->v, r->prompt.n, ids->n};
}

static bool keeps(const struct forge_engine *e)
{
    return e->keep && e->l.free_rows; /* else a text could depend on what ran before */
}

int64_t sched_find_prefix(struct forge_request *r)
{
    struct kv_ids ids = ids_of(r);
    return keeps(r->e) ? kv_find(r->e->l.kv, r->slot, &ids, known(r) - 1) : 0; /* the last one's logits are wanted */
}

void sched_keep_prefix(struct forge_request *r, int64_t n)
{
    struct kv_ids ids = ids_of(r);
    if (keeps(r->e))
        kv_keep(r->e->l.kv, r->slot, &ids, n);
}

/* ---- admission ---- */

static struct forge_request *choose_next(const struct forge_engine *e)
{
    struct forge_request *best = NULL;
    for (struct forge_request *r = e->first; r; r = r->next)
        if (r->phase == PHASE_QUEUED && (!best || before(r, best)))
            best = r;
    return best;
}

/* Positions that a request is to have room for: some new ids too, or it would give up its pages at once. */
static int64_t wanted(const struct forge_request *r)
{
    int64_t n = known(r) + 16;
    return n < r->e->l.n_ctx ? n : r->e->l.n_ctx;
}

/* Can it be stored beside all that run?  One alone always can. */
static bool has_room(const struct forge_engine *e, const struct forge_request *next)
{
    for (int g = 0; e->n_running > 0 && g < e->l.config->n_groups; g++) {
        int64_t room = kv_pages_free(e->l.kv, g);
        for (size_t i = 0; i < e->n_running; i++)
            room -= kv_pages_due(e->l.kv, e->running[i]->slot, g, wanted(e->running[i]));
        if (kv_pages_due(e->l.kv, -1, g, wanted(next)) > room)
            return false;
    }
    return true;
}

void sched_admit(struct forge_engine *e)
{
    while (e->n_active > e->n_running && e->n_running < (size_t)e->stats.max_seqs) {
        struct forge_request *next = choose_next(e);
        if (!next || !has_room(e, next))
            return;
        running_start(next);
    }
}

/* ---- the rows of a step ---- */

static void preempt(struct forge_request *r)
{
    log_debug(LOG_SCHED, "sched: a request of %zu prompt tokens gives up the pages of %lld positions", r->prompt.n,
              (long long)r->len);
    sched_leave(r);
    sched_lose(r);
    r->phase = PHASE_QUEUED;
    r->n_rows = 0;
    r->metrics.preempted++;
    r->e->stats.preempted++;
}

/* Rows of decoding first, each once in turn; the rest is for prompts, by rank. */
static void share_rows(struct forge_engine *e)
{
    int n = (int)e->n_running, chunk = e->l.chunk, left = e->shrunk || chunk > n ? chunk : n;
    size_t turn = e->turn < e->n_running ? e->turn : 0, next = e->n_running;
    for (size_t i = 0; i < e->n_running; i++) {
        struct forge_request *r = e->running[(turn + i) % e->n_running];
        r->n_rows = sched_due(r) == 1 && left > 0;
        if (left == 0 && next == e->n_running) /* the first that has to wait */
            next = (turn + i) % e->n_running;
        left -= r->n_rows;
    }
    e->turn = next < e->n_running ? next : 0;
    int piece = batch_piece(&e->l, e->piece);
    left = left < piece ? left : piece;
    for (size_t i = 0; i < e->n_running && left > 0; i++) {
        struct forge_request *r = e->running[i];
        int64_t due = sched_due(r);
        if (due > 1)
            left -= r->n_rows = (int)(due < left ? due : left);
    }
}

/* Pages for the rows of the i-th; false where it had to give up its place. */
static bool reserve(struct forge_engine *e, size_t i)
{
    struct forge_request *r = e->running[i];
    while (kv_reserve(e->l.kv, r->slot, r->len + r->n_rows, &r->err) < 0) {
        struct forge_request *youngest = e->running[e->n_running - 1];
        if (e->n_running == 1) { /* the pool holds one sequence of n_ctx: this is not reached */
            request_end(r, FORGE_FINISH_ERROR);
            return false;
        }
        preempt(youngest);
        if (youngest == r)
            return false;
    }
    err_clear(&r->err);
    return true;
}

int sched_plan(struct forge_engine *e)
{
    int rows = 0;
    share_rows(e);
    for (size_t i = 0; i < e->n_running; i++)
        if (e->running[i]->n_rows > 0 && reserve(e, i))
            rows += e->running[i]->n_rows;
    return rows;
}
