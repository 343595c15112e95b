/* bench --simulate: a policy's run.  Requests come at their times, the engine steps
 * in virtual time, and what each of them saw is gathered.
 * Owns the prompts' ids, which only say what is alike. */
#include "cli/bench_sim.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"
#include "run/engine.h"

struct sim_watch {
    struct forge_request *r;
    const struct sim_run_of *of;
    double last, stall, end; /* of its ids; stall: the longest time between two of a sample */
};

struct sim_run_of {
    struct forge_engine *e;
    struct sim_watch *watches; /* [n_requests] */
    int32_t *ids;              /* [longest prompt] */
    double *v;                 /* [n_requests] scratch */
};

/* ---- requests ---- */

static int on_piece(void *user, const struct forge_piece *p)
{
    struct sim_watch *w = user;
    double now = engine_now(w->of->e);
    if (p->sample == 0 && p->n_ids > 0) {
        if (w->last > 0 && now - w->last > w->stall)
            w->stall = now - w->last;
        w->last = now;
    }
    if (p->finish != FORGE_FINISH_NONE)
        w->end = now;
    return 0;
}

/* The shared start's ids are its own, the others the request's. */
static void make_ids(int32_t *ids, const struct sim_request *r, int64_t n_vocab)
{
    for (int64_t i = 0; i < r->prompt; i++) {
        bool shared = i < r->prefix_tokens && r->prefix != 0;
        ids[i] = (int32_t)(rng_u64(shared ? r->prefix : 2 * (uint64_t)r->number, shared, (uint64_t)i) % (uint64_t)n_vocab);
    }
}

static int submit(struct sim_run_of *run, const struct sim_request *r, struct sim_watch *w, struct err *err)
{
    struct forge_request_params p;
    struct forge_error error;
    *w = (struct sim_watch){.of = run};
    make_ids(run->ids, r, run->e->l.config->n_vocab);
    forge_request_params_init(&p, sizeof p);
    p.ids = run->ids;
    p.n_ids = (size_t)r->prompt;
    p.max_tokens = r->output;
    p.ignore_eos = 1;
    p.n_samples = (int)r->n;
    p.priority = (int)r->priority;
    p.deadline_s = r->deadline;
    p.on_piece = on_piece;
    p.user = w;
    p.sampling.has_seed = 1;
    if (forge_submit(run->e, &p, &w->r, &error) < 0)
        return err_set(err, error.code, "request %zu: %s", r->number + 1, error.message);
    request_came_at(w->r, r->at); /* perhaps while a step ran */
    return 0;
}

static int play(struct sim_run_of *run, const struct sim_file *f, struct err *err)
{
    struct forge_engine *e = run->e;
    size_t next = 0;
    int rc = 0, more = 0;
    while (rc == 0 && (more > 0 || next < f->n_requests)) {
        if (more == 0)
            sim_wait(e->sim, f->requests[next].at);
        for (; rc == 0 && next < f->n_requests && f->requests[next].at <= engine_now(e); next++)
            rc = submit(run, &f->requests[next], &run->watches[next], err);
        more = rc < 0 ? rc : forge_step(e, NULL);
        if (interrupted())
            rc = err_set(err, ERR_CANCELLED, "stopped");
    }
    return rc;
}

/* ---- what came of it ---- */

static void sum_up(struct sim_result *out, struct sim_run_of *run, const struct sim_file *f)
{
    const struct forge_engine_stats *s = forge_engine_stats(run->e);
    double *v = run->v, len = 0;
    size_t n[4] = {0};
    for (size_t i = 0; i < f->n_requests; i++) {
        const struct forge_metrics *m = forge_request_metrics(run->watches[i].r);
        out->ended += forge_request_finish(run->watches[i].r, 0) < FORGE_FINISH_CANCELLED;
        out->prompt_tokens += m->input_tokens;
        out->output_tokens += m->output_tokens;
        len += (double)m->input_tokens + (double)m->output_tokens / (double)f->requests[i].n;
    }
    out->requests = f->n_requests;
    out->mean_len = len / (double)f->n_requests;
    out->seconds = engine_now(run->e) - f->requests[0].at;
    out->tok_s = out->seconds > 0 ? (double)out->output_tokens / out->seconds : 0;
    out->slots_used = s->busy_steps > 0 ? (double)s->busy_slots / ((double)s->busy_steps * s->max_seqs) : 1;
    out->pages_used = s->held_positions > 0 ? (double)s->stored_positions / (double)s->held_positions : 1;
    out->steps = s->steps;
    out->rows = s->rows;
    out->cached_tokens = s->cached_tokens;
    out->preempted = s->preempted;
    for (size_t i = 0; i < f->n_requests; i++)
        if (forge_request_metrics(run->watches[i].r)->ttft_ms > 0)
            v[n[0]++] = forge_request_metrics(run->watches[i].r)->ttft_ms;
    out->ttft = online_times_of(v, n[0]);
    for (size_t i = 0; i < f->n_requests; i++)
        if (forge_request_metrics(run->watches[i].r)->tpot_ms > 0)
            v[n[1]++] = forge_request_metrics(run->watches[i].r)->tpot_ms;
    out->tpot = online_times_of(v, n[1]);
    for (size_t i = 0; i < f->n_requests; i++)
        v[n[2]++] = 1e3 * (run->watches[i].end - f->requests[i].at);
    out->e2e = online_times_of(v, n[2]);
    for (size_t i = 0; i < f->n_requests; i++)
        v[n[3]++] = 1e3 * run->watches[i].stall;
    out->stall = online_times_of(v, n[3]);
}

static int make_room(struct sim_run_of *run, const struct sim_file *f, struct err *err)
{
    int64_t longest = 0;
    for (size_t i = 0; i < f->n_requests; i++)
        longest = f->requests[i].prompt > longest ? f->requests[i].prompt : longest;
    run->watches = mem_array(f->n_requests, sizeof *run->watches);
    run->v = mem_array(f->n_requests, sizeof *run->v);
    run->ids = mem_array((size_t)longest, sizeof *run->ids);
    return run->watches && run->v && run->ids ? 0 : err_set(err, ERR_NOMEM, "no memory for %zu requests", f->n_requests);
}

int sim_policy_run(struct sim_result *out, const struct sim_file *f, const struct sim_policy *p, const char *model,
                   const char *tokenizer, struct err *err)
{
    struct sim_run_of run = {0};
    double start = clock_now();
    struct sim_params sp = {.model = model, .tokenizer = tokenizer, .max_seqs = (int)p->slots, .chunk = (int)p->chunk,
                            .page_size = (int)p->page, .n_ctx = p->ctx, .kv_positions = p->kv_positions, .ahead = (int)p->ahead,
                            .keep = p->prefix_cache, .cost = f->cost};
    *out = (struct sim_result){.policy = p};
    int rc = make_room(&run, f, err);
    if (rc == 0)
        rc = sim_open(&run.e, &sp, err);
    if (rc == 0)
        rc = play(&run, f, err);
    if (rc == 0)
        sum_up(out, &run, f);
    for (size_t i = 0; run.watches && i < f->n_requests; i++)
        forge_request_free(run.watches[i].r);
    forge_engine_close(run.e);
    free(run.watches);
    free(run.v);
    free(run.ids);
    out->took_s = clock_now() - start;
    return rc;
}

/* What the flags say, and where they say nothing what the server has. */
static struct sim_policy usual(const struct common *c)
{
    struct forge_engine_params p;
    forge_engine_params_init(&p, sizeof p);
    return (struct sim_policy){
        .name = "as the flags say",
        .slots = c->has_max_seqs ? c->max_seqs : 8,
        .chunk = c->chunk,
        .page = c->has_page_size ? c->page_size : p.page_size,
        .ctx = c->has_ctx && c->ctx > 0 ? c->ctx : 4096,
        .ahead = ENGINE_AHEAD,
        .prefix_cache = !c->no_prefix_cache,
    };
}

int sim_bench(const char *path, const struct common *c, enum sim_format format)
{
    struct sim_policy p = usual(c);
    struct sim_file f;
    struct err err = {0};
    struct buf out;
    char *model = common_model_path(c);
    int rc = model ? sim_file_read(&f, path, &p, &err) : ERR_IO;
    if (rc < 0) {
        free(model);
        return model ? msg_fail(rc, err.msg) : EXIT_FAILED;
    }
    struct sim_result *r = mem_array(f.n_policies, sizeof *r);
    if (!r)
        rc = err_set(&err, ERR_NOMEM, "no memory for %zu results", f.n_policies);
    for (size_t i = 0; i < f.n_policies && rc == 0; i++) {
        rc = sim_policy_run(&r[i], &f, &f.policies[i], model, c->tokenizer, &err);
        if (rc < 0)
            err_wrap(&err, "policy \"%s\"", f.policies[i].name);
    }
    buf_init(&out);
    if (rc == 0)
        sim_print(&out, &f, r, f.n_policies, format);
    int status = rc < 0 ? msg_fail(rc, err.msg) : out_buf(&out) ? 0 : EXIT_FAILED;
    free(r);
    free(model);
    sim_file_fini(&f);
    return status;
}
