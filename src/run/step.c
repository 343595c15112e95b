/* One combined step: the rows that sched.c gave to the running samples go through
 * the model together; each whose known ids are all stored then gets a new one.
 * A step is a transaction: lengths, ids and text move only after its read
 * succeeded. */
#include <string.h>

#include "run/engine.h"

/* ---- the rows ---- */

bool step_is_plain(const struct forge_request *r)
{
    return r->p.n_logprobs < 0 && sampler_is_plain_argmax(r->sampler);
}

/* Ids [len, len + n_rows) of the prompt and the new ones, one behind the other. */
static void add_rows(struct sample *s)
{
    struct batch *b = &s->r->e->batch;
    const struct ids *prompt = &s->r->prompt;
    int64_t n_prompt = (int64_t)prompt->n, first = n_prompt - s->len;
    int n = first <= 0 ? 0 : first < s->n_rows ? (int)first : s->n_rows; /* of the prompt */
    if (n > 0)
        batch_add(b, s->slot, s->len, prompt->v + s->len, n);
    if (n < s->n_rows - s->n_draft)
        batch_add(b, s->slot, s->len + n, s->ids.v + (s->len + n - n_prompt), s->n_rows - s->n_draft - n);
}

/* Their results are what would come after each of them. */
static void add_drafts(struct sample *s)
{
    struct batch *b = &s->r->e->batch;
    int64_t pos = s->len + s->n_rows - s->n_draft;
    for (int j = 0; j < s->n_draft; j++) {
        batch_add(b, s->slot, pos + j, &s->ids.v[s->ids.n + (size_t)j], 1);
        batch_want(b);
    }
}

/* A new id comes after this step. */
static bool is_due(const struct sample *s)
{
    return s->len + s->n_rows - s->n_draft == (int64_t)(s->r->prompt.n + s->ids.n) && output_limit(s) == FORGE_FINISH_NONE;
}

static bool put_together(struct forge_engine *e)
{
    bool plain = true;
    batch_begin(&e->batch);
    for (size_t i = 0; i < e->n_running; i++) {
        struct sample *s = e->running[i];
        s->want = -1;
        if (s->n_rows == 0)
            continue;
        add_rows(s);
        if (!is_due(s))
            continue;
        s->want = batch_want(&e->batch);
        add_drafts(s);
        plain = plain && step_is_plain(s->r);
    }
    return plain;
}

/* ---- what came of it ---- */

/* What an argmax of -1 tells; the sampler finds out itself. */
static int non_finite(struct sample *s)
{
    size_t n = s->ids.n;
    return err_set(&s->r->err, ERR_NUMERIC, "step %zu (position %zu): non-finite logits", n + 1, s->r->prompt.n + n);
}

int step_choose(struct sample *s, const int32_t *best, const float *logits, int32_t *id)
{
    struct forge_request *r = s->r;
    int64_t n_vocab = r->e->l.config->n_vocab;
    if (best) {
        *id = *best;
        return *id < 0 ? non_finite(s) : 0;
    }
    struct sampler_history h = {r->prompt.v, r->prompt.n, s->ids.v, s->ids.n};
    int rc = r->constrain ? constrain_look(r->constrain, &s->place, &r->err) : 0;
    if (rc == 0)
        rc = sampler_pick(r->sampler, logits, &h, (uint64_t)s->at, r->prompt.n + s->ids.n, id, &r->err);
    if (rc < 0) {
        err_wrap(&r->err, "step %zu (position %zu)", s->ids.n + 1, r->prompt.n + s->ids.n);
        return rc;
    }
    return r->p.n_logprobs < 0 ? 0 : logprobs_add(s, r->p.n_logprobs, logits, n_vocab, *id, &r->err);
}

static double rate(uint64_t n, double seconds)
{
    return seconds > 0 ? (double)n / seconds : 0;
}

/* The sequence has its length: full pages are kept, others go. */
static void settle(struct sample *s)
{
    sched_keep_prefix(s, s->len);
    kv_set_len(s->r->e->l.kv, s->slot, s->len);
}

/* Lengths move, and what is computed for the first time counts: of a prompt its rows, of decoding its ids; a step's
 * time once, however many samples of a request are in it. */
static void commit(struct sample *s, double seconds)
{
    struct forge_request *r = s->r;
    struct forge_metrics *m = &r->metrics;
    struct forge_engine_stats *stats = &r->e->stats;
    int64_t from = s->len > s->recompute ? s->len : s->recompute;
    seconds = r->step == stats->steps ? 0 : seconds;
    r->step = stats->steps;
    s->len += s->n_rows - s->n_draft;
    if (s->n_draft == 0)
        settle(s);
    if (s->len <= from) {
        m->recompute_s += seconds;
        return;
    }
    if (s->phase == PHASE_PREFILL) {
        r->n_prefilled += (uint64_t)(s->len - from);
        m->prefill_s += seconds;
        m->prefill_tok_s = rate(r->n_prefilled, m->prefill_s);
        stats->prefill_rows += (uint64_t)(s->len - from);
        return;
    }
    r->n_decoded++;
    m->decode_s += seconds;
    m->decode_tok_s = rate(r->n_decoded, m->decode_s);
    stats->decode_rows++;
}

static void tell_prefill(struct sample *s)
{
    struct forge_request *r = s->r;
    size_t done = (size_t)s->len;
    r->prefill_told = done > r->prefill_told ? done : r->prefill_told;
    if (!r->p.on_prefill || !own_call_begin(r))
        return;
    if (r->p.on_prefill(r->p.user, r->prefill_told, r->prompt.n))
        forge_request_cancel(r);
    own_call_end(r);
}

/* The prompt is computed: the other samples begin with what it gives. */
static void keep_first(struct sample *s, bool plain)
{
    struct forge_request *r = s->r;
    struct forge_engine *e = r->e;
    size_t n_vocab = (size_t)e->l.config->n_vocab;
    r->has_first = true;
    sched_settle(r);
    if (s->want < 0 || r->p.n_samples == 1)
        return;
    const float *logits = e->logits + (size_t)s->want * n_vocab;
    if (r->first)
        memcpy(r->first, logits, n_vocab * sizeof *logits);
    else
        step_choose(s, plain ? &e->best[s->want] : NULL, logits, &r->first_id); /* an error is this sample's, too */
}

/* New ids; drafts among them are stored. */
static int take_ids(struct sample *s, bool plain)
{
    struct forge_request *r = s->r;
    int accepted, rc = spec_take(s, plain, &accepted);
    if (s->n_draft == 0)
        return rc;
    s->len += accepted;
    if (s->len > sample_known(s)) /* an accepted end id is none of them */
        s->len = sample_known(s);
    r->n_decoded += (uint64_t)accepted;
    r->metrics.decode_tok_s = rate(r->n_decoded, r->metrics.decode_s);
    r->e->stats.decode_rows += (uint64_t)accepted;
    settle(s);
    return rc;
}

static void go_on(struct sample *s, bool plain)
{
    struct forge_request *r = s->r;
    int rc = 0;
    if (s->phase == PHASE_DONE)
        return;
    if (s->phase == PHASE_PREFILL) {
        tell_prefill(s);
        if (atomic_load(&r->cancel)) {
            request_end(r, FORGE_FINISH_CANCELLED);
            return;
        }
        if (s->len == (int64_t)r->prompt.n) {
            keep_first(s, plain);
            s->phase = PHASE_DECODE;
        }
    }
    if (s->want >= 0) {
        rc = take_ids(s, plain);
    } else if (s->len == (int64_t)(r->prompt.n + s->ids.n)) {
        rc = output_finish(s, output_limit(s)); /* the prompt was all that was asked for, or all that fits */
    }
    if (rc < 0)
        request_end(r, FORGE_FINISH_ERROR);
    else if (s->finish != FORGE_FINISH_NONE)
        running_done(s);
}

/* What sequences hold and store. */
static void count_pages(struct forge_engine *e)
{
    struct forge_engine_stats *s = &e->stats;
    s->pages = s->pages_held = s->pages_kept = s->positions = 0;
    s->page_size = e->l.kv ? (uint64_t)kv_page_size(e->l.kv) : s->page_size;
    for (int g = 0; e->l.kv && g < e->l.config->n_groups; g++) {
        s->pages += (uint64_t)kv_n_pages(e->l.kv, g);
        s->pages_held += (uint64_t)(kv_n_pages(e->l.kv, g) - kv_pages_free(e->l.kv, g));
        s->pages_kept += (uint64_t)kv_pages_kept(e->l.kv, g);
        s->positions += (uint64_t)kv_positions(e->l.kv, g);
    }
}

/* Whatever callbacks do, those in the step stay in memory until it ends. */
static void hand_out(struct forge_engine *e, bool plain, double seconds)
{
    size_t n = 0;
    for (size_t i = 0; i < e->n_running; i++)
        if (e->running[i]->n_rows > 0) {
            commit(e->running[i], seconds);
            e->served[n++] = e->running[i];
        }
    for (size_t i = 0; i < n; i++)
        go_on(e->served[i], plain);
    count_pages(e);
    e->stats.stored_positions += e->stats.positions;
    e->stats.held_positions += e->stats.pages_held * e->stats.page_size;
}

/* ---- the step ---- */

/* All are looked at only where one was cancelled since the last time, or is late. */
void step_sweep(struct forge_engine *e)
{
    double now = engine_now(e), next = 0;
    unsigned n_cancels = atomic_load(&e->n_cancels);
    if (n_cancels == e->n_cancels_seen && (e->deadline == 0 || now < e->deadline))
        return;
    e->n_cancels_seen = n_cancels;
    for (struct forge_request *r = e->first; r; r = r->next) { /* callbacks may submit: new ones come last */
        if (r->done)
            continue;
        if (atomic_load(&r->cancel))
            request_end(r, FORGE_FINISH_CANCELLED);
        else if (r->deadline > 0 && now >= r->deadline)
            request_end(r, FORGE_FINISH_DEADLINE);
        else if (r->deadline > 0 && (next == 0 || r->deadline < next))
            next = r->deadline;
    }
    e->deadline = next;
}

static void step(struct forge_engine *e)
{
    struct err err = {0};
    double begin = engine_now(e);
    int rows = sched_plan(e);
    if (rows == 0)
        return;
    double start = engine_now(e);
    bool plain = put_together(e);
    int rc = 0;
    if (e->sim)
        sim_run(e->sim, &e->batch, e->best);
    else
        rc = batch_run(&e->batch, plain ? e->best : NULL, plain ? NULL : e->logits, &err);
    double now = engine_now(e), seconds = now - begin; /* with what drafting took */
    if (rc < 0) {
        recover(e, rows, &err);
        step_sweep(e); /* that took its time */
        return;
    }
    e->piece = batch_next_piece(&e->l, e->piece, rows, now - start);
    e->stats.steps++;
    e->stats.step_s += seconds;
    e->stats.rows += (uint64_t)rows;
    if (sched_waits(e)) { /* somebody waits: every slot should be in use */
        e->stats.busy_slots += e->n_running;
        e->stats.busy_steps++;
    }
    hand_out(e, plain, seconds);
}

void engine_count(struct forge_engine *e)
{
    struct forge_engine_stats *s = &e->stats;
    s->running = (int)e->n_running;
    s->queued = e->n_active - e->n_busy;
    s->compile_s = load_compile_s(&e->l);
    count_pages(e);
}

int engine_step(struct forge_engine *e)
{
    e->in_step = true;
    e->placed = false;
    request_take_inbox(e);
    step_sweep(e);
    sched_admit(e);
    if (e->n_running > 0)
        step(e);
    e->in_step = e->placed = false;
    request_reap(e);
    engine_count(e);
    own_publish(e);
    return e->n_active > 0;
}

int forge_step(struct forge_engine *e, struct forge_error *err)
{
    int rc = refuse_in_callback(e, "forge_step", err);
    return rc < 0 ? rc : engine_step(e);
}
