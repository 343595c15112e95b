/* The scheduler: which samples run, and how many rows each has in the next step.
 * Rank is priority, then age: admission goes down the ranks, pages are taken away
 * from the lowest.  A request that lost its pages waits again and is computed
 * again from its ids; what it has told stays told.  Owns the places of running
 * requests; computes nothing. */
#include <assert.h>
#include <string.h>

#include "base/log.h"
#include "run/draft.h"
#include "run/engine.h"

int64_t sched_due(const struct sample *s)
{
    int64_t n = sample_known(s), prompt = (int64_t)s->r->prompt.n;
    if (s->r->e->l.free_rows)
        return n - s->len;
    return s->len < prompt ? prompt - s->len : 1; /* computed again in steps of as many rows as the first time */
}

/* ---- who waits ---- */

static bool ranks_before(const struct forge_request *x, const struct forge_request *y)
{
    return x->p.priority != y->p.priority ? x->p.priority > y->p.priority : x->number < y->number;
}

static bool before(const struct sample *a, const struct sample *b)
{
    return a->r == b->r ? a->at < b->at : ranks_before(a->r, b->r);
}

/* The list is by rank: who comes last or goes back to the front finds his place at once, a middle priority from the
 * nearer end. */
static void wait_in_line(struct forge_engine *e, struct forge_request *r)
{
    struct forge_request *after = e->wait_last, *before = e->wait_first;
    while (after && before && ranks_before(r, after) && ranks_before(before, r)) {
        after = after->wait_prev;
        before = before->wait_next;
    }
    if (after && !ranks_before(r, after))
        before = after->wait_next;
    else
        after = before ? before->wait_prev : NULL;
    r->wait_prev = after;
    r->wait_next = before;
    *(after ? &after->wait_next : &e->wait_first) = r;
    *(before ? &before->wait_prev : &e->wait_last) = r;
    r->waits = true;
}

static void leave_line(struct forge_engine *e, struct forge_request *r)
{
    *(r->wait_prev ? &r->wait_prev->wait_next : &e->wait_first) = r->wait_next;
    *(r->wait_next ? &r->wait_next->wait_prev : &e->wait_last) = r->wait_prev;
    r->waits = false;
}

struct sample *sched_next_of(struct forge_request *r)
{
    int n = r->has_first ? r->p.n_samples : 1; /* the others begin where the first one's prompt ends */
    for (int i = 0; !r->done && i < n; i++)
        if (r->samples[i].phase == PHASE_QUEUED)
            return &r->samples[i];
    return NULL;
}

void sched_settle(struct forge_request *r)
{
    bool waits = sched_next_of(r) != NULL;
    if (waits && !r->waits)
        wait_in_line(r->e, r);
    else if (!waits && r->waits)
        leave_line(r->e, r);
}

bool sched_waits(const struct forge_engine *e)
{
    return e->wait_first != NULL;
}

/* ---- places ---- */

void sched_enter(struct sample *s)
{
    struct forge_engine *e = s->r->e;
    size_t at = e->n_running++;
    for (; at > 0 && before(s, e->running[at - 1]); at--)
        e->running[at] = e->running[at - 1];
    e->running[at] = s;
    e->n_busy += s->r->n_running++ == 0;
    sched_settle(s->r);
}

void sched_leave(struct sample *s)
{
    struct forge_engine *e = s->r->e;
    size_t at = 0;
    while (at < e->n_running && e->running[at] != s)
        at++;
    if (at < e->n_running) {
        memmove(&e->running[at], &e->running[at + 1], (--e->n_running - at) * sizeof e->running[0]);
        e->n_busy -= --s->r->n_running == 0;
    }
    draft_leave(e->draft, s);
    if (s->slot >= 0 && e->l.kv) /* else its devices are lost */
        kv_seq_close(e->l.kv, s->slot);
    s->slot = -1;
}

void sched_lose(struct sample *s)
{
    s->recompute = s->len > s->recompute ? s->len : s->recompute;
    s->len = 0;
}

/* ---- what is stored already ---- */

static struct kv_ids ids_of(const struct sample *s)
{
    return (struct kv_ids){s->r->prompt.v, s->ids.v, s->r->prompt.n, s->ids.n};
}

/* Of the same request, with all of the prompt; NULL = none. */
static const struct sample *find_fork(const struct sample *s)
{
    const struct forge_request *r = s->r;
    int64_t n = (int64_t)r->prompt.n;
    for (int i = 0; r->has_first && r->n_running > 0 && i < r->p.n_samples; i++) {
        const struct sample *from = &r->samples[i];
        if (from != s && from->slot >= 0 && from->len >= n && kv_can_cut(r->e->l.kv, from->slot, n))
            return from;
    }
    return NULL;
}

int64_t sched_take_stored(struct sample *s)
{
    struct forge_engine *e = s->r->e;
    struct kv_ids ids = ids_of(s);
    const struct sample *from = find_fork(s);
    if (s->r->session && !from)
        return session_restore(s->r->session, e->l.kv, s->slot);
    int64_t n = !s->r->session ? kv_find(e->l.kv, s->slot, &ids, sample_known(s) - 1) : 0; /* the last one's logits are wanted */
    if (!from || n >= (int64_t)s->r->prompt.n)
        return n;
    kv_set_len(e->l.kv, s->slot, 0);
    return kv_fork(e->l.kv, s->slot, from->slot, (int64_t)s->r->prompt.n);
}

void sched_keep_prefix(struct sample *s, int64_t n)
{
    struct kv_ids ids = ids_of(s);
    if (!s->r->session) /* which others need not believe */
        kv_keep(s->r->e->l.kv, s->slot, &ids, n);
}

/* ---- admission ---- */

/* Positions that a sample is to have room for: some new ids too, or it would give up its pages at once. */
static int64_t wanted(const struct sample *s)
{
    const struct forge_request *r = s->r;
    int64_t n_ctx = r->e->l.n_ctx, n = sample_known(s) + r->e->ahead;
    if (r->e->ahead < 0) /* all that it may come to */
        n = r->p.max_tokens < 0 ? n_ctx : (int64_t)r->prompt.n + r->p.max_tokens;
    return n < n_ctx ? n : n_ctx;
}

/* Can it be stored beside all that run?  One alone always can. */
static bool has_room(const struct forge_engine *e, const struct sample *next)
{
    const struct sample *from = e->n_running > 0 ? find_fork(next) : NULL;
    for (int g = 0; e->n_running > 0 && g < e->l.config->n_groups; g++) {
        int64_t room = kv_pages_free(e->l.kv, g);
        for (size_t i = 0; i < e->n_running; i++)
            room -= kv_pages_due(e->l.kv, e->running[i]->slot, g, wanted(e->running[i]));
        room += from ? kv_pages_shared(e->l.kv, from->slot, g, (int64_t)next->r->prompt.n) : 0;
        if (kv_pages_due(e->l.kv, -1, g, wanted(next)) > room)
            return false;
    }
    return true;
}

void sched_admit(struct forge_engine *e)
{
    while (e->wait_first && e->n_running < (size_t)e->stats.max_seqs) {
        struct sample *next = sched_next_of(e->wait_first);
        if (!has_room(e, next))
            return;
        running_start(next);
        if (!e->l.kv) /* no device could be opened again: the others' turn is in another step */
            return;
    }
}

/* ---- the rows of a step ---- */

static void preempt(struct sample *s)
{
    log_debug(LOG_SCHED, "sched: a request of %zu prompt tokens gives up the pages of %lld positions", s->r->prompt.n,
              (long long)s->len);
    sched_leave(s);
    sched_lose(s);
    s->phase = PHASE_QUEUED;
    sched_settle(s->r);
    s->n_rows = s->n_draft = 0;
    s->r->metrics.preempted++;
    s->r->e->stats.preempted++;
}

/* Rows of decoding first, each once in turn; the rest is for prompts, by rank.  What is left then. */
static int share_rows(struct forge_engine *e)
{
    int n = (int)e->n_running, chunk = e->l.chunk, all = e->shrunk || chunk > n ? chunk : n, left = all;
    size_t turn = e->turn < e->n_running ? e->turn : 0, next = e->n_running;
    for (size_t i = 0; i < e->n_running; i++) {
        struct sample *s = e->running[(turn + i) % e->n_running];
        s->n_rows = sched_due(s) == 1 && left > 0;
        if (left == 0 && next == e->n_running) /* the first that has to wait */
            next = (turn + i) % e->n_running;
        left -= s->n_rows;
    }
    e->turn = next < e->n_running ? next : 0;
    int piece = batch_piece(&e->l, e->piece), rest = piece - (all - left); /* the time is that of all rows, ... */
    piece = rest > piece / 4 ? rest : piece / 4 + 1;                       /* ... and prompts go on in any case */
    left = left < piece ? left : piece;
    for (size_t i = 0; i < e->n_running && left > 0; i++) {
        struct sample *s = e->running[i];
        int64_t due = sched_due(s);
        if (due > 1)
            left -= s->n_rows = (int)(due < left ? due : left);
    }
    for (size_t i = 0; i < e->n_running; i++)
        all -= e->running[i]->n_rows;
    return all;
}

/* Pages for the rows of the i-th; false where it had to give up its place. */
static bool reserve(struct forge_engine *e, size_t i)
{
    struct sample *s = e->running[i];
    while (kv_reserve(e->l.kv, s->slot, s->len + s->n_rows, &s->r->err) < 0) {
        struct sample *youngest = e->running[e->n_running - 1];
        if (s->n_draft > 0) { /* nobody gives up pages for them */
            s->n_rows -= s->n_draft;
            s->n_draft = 0;
            continue;
        }
        if (e->n_running == 1) { /* the pool holds one sequence of n_ctx: this is not reached */
            request_end(s->r, FORGE_FINISH_ERROR);
            return false;
        }
        preempt(youngest);
        if (youngest == s)
            return false;
    }
    err_clear(&s->r->err);
    return true;
}

int sched_plan(struct forge_engine *e)
{
    int rows = 0;
    spec_propose(e, share_rows(e));
    for (size_t i = 0; i < e->n_running; i++)
        if (e->running[i]->n_rows > 0 && reserve(e, i))
            rows += e->running[i]->n_rows;
    return rows;
}
