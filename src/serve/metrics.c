/* Counts, and /metrics in Prometheus' text format.  Names are a contract: dashboards
 * are built on them.
 * Knows what was counted, not what a request asked for. */
#include "base/clock.h"
#include "serve/server.h"

/* ---- counting ---- */

static const double ttft_bounds[N_BUCKETS] = {0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60};
static const double tpot_bounds[N_BUCKETS] = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 1};
static const double e2e_bounds[N_BUCKETS] = {0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300};

static void observe(struct histogram *h, const double bounds[N_BUCKETS], double v)
{
    int i = 0;
    while (i < N_BUCKETS && v > bounds[i])
        i++;
    h->count[i]++;
    h->sum += v;
}

void counts_ended(struct server *s, const struct turn *t)
{
    struct counts *c = &s->counts;
    mutex_lock(s->counts_lock);
    if (!t) { /* freed before its end */
        c->cancelled++;
    } else {
        const struct forge_metrics *m = forge_request_metrics(t->r);
        enum forge_finish f = turn_finish(t);
        c->cancelled += f == FORGE_FINISH_CANCELLED;
        c->failed += f == FORGE_FINISH_ERROR;
        c->prompt_tokens += m->input_tokens;
        c->cached_tokens += m->cached_tokens;
        c->new_tokens += m->output_tokens;
        c->drafted += m->drafted_tokens;
        c->accepted += m->accepted_tokens;
        if (m->ttft_ms > 0)
            observe(&c->ttft, ttft_bounds, m->ttft_ms / 1e3);
        if (m->tpot_ms > 0)
            observe(&c->tpot, tpot_bounds, m->tpot_ms / 1e3);
        if (f < FORGE_FINISH_CANCELLED)
            observe(&c->e2e, e2e_bounds, clock_now() - t->x->t_start);
    }
    mutex_unlock(s->counts_lock);
}

void counts_answered(struct exchange *x)
{
    struct server *s = x->s;
    int status = x->reply.status;
    mutex_lock(s->counts_lock);
    s->counts.by_class[status / 100 < 6 ? status / 100 : 0]++;
    s->counts.refused += status == 429 || (status == 503 && !x->gen);
    mutex_unlock(s->counts_lock);
}

/* ---- telling ---- */

static void metric(struct buf *out, const char *name, const char *type, const char *help, double v)
{
    buf_printf(out, "# HELP forge_%s %s\n# TYPE forge_%s %s\nforge_%s ", name, help, name, type, name);
    buf_put_json_num(out, v);
    buf_putc(out, '\n');
}

static void put_histogram(struct buf *out, const char *name, const char *help, const struct histogram *h,
                          const double bounds[N_BUCKETS])
{
    uint64_t n = 0;
    buf_printf(out, "# HELP forge_%s %s\n# TYPE forge_%s histogram\n", name, help, name);
    for (int i = 0; i < N_BUCKETS; i++) {
        n += h->count[i];
        buf_printf(out, "forge_%s_bucket{le=\"", name);
        buf_put_json_num(out, bounds[i]);
        buf_printf(out, "\"} %llu\n", (unsigned long long)n);
    }
    n += h->count[N_BUCKETS];
    buf_printf(out, "forge_%s_bucket{le=\"+Inf\"} %llu\nforge_%s_sum ", name, (unsigned long long)n, name);
    buf_put_json_num(out, h->sum);
    buf_printf(out, "\nforge_%s_count %llu\n", name, (unsigned long long)n);
}

static void put_responses(struct buf *out, const struct counts *c)
{
    buf_puts(out, "# HELP forge_http_responses_total Responses by class of status; 0 = the client left before one.\n"
                  "# TYPE forge_http_responses_total counter\n");
    for (int i = 0; i < 6; i++)
        if (i != 1)
            buf_printf(out, "forge_http_responses_total{class=\"%d%s\"} %llu\n", i, i ? "xx" : "",
                       (unsigned long long)c->by_class[i]);
}

void handle_metrics(struct exchange *x)
{
    struct server *s = x->s;
    struct buf *out = &x->reply.body;
    struct forge_engine_stats st;
    struct counts c;
    forge_engine_stats_copy(s->e, &st, sizeof st);
    mutex_lock(s->counts_lock);
    c = s->counts;
    mutex_unlock(s->counts_lock);
    const struct {
        const char *name, *type, *help;
        double value;
    } rows[] = {
        {"requests_running", "gauge", "Requests in steps.", (double)st.running},
        {"requests_waiting", "gauge", "Requests in the queue.", (double)st.queued},
        {"slots", "gauge", "Requests that can run at once.", (double)st.max_seqs},
        {"requests_finished_total", "counter", "Requests of the engine that have ended.", (double)st.finished},
        {"requests_cancelled_total", "counter", "Of them, those whose client left.", (double)c.cancelled},
        {"requests_failed_total", "counter", "Of them, those that ended with an error.", (double)c.failed},
        {"requests_refused_total", "counter", "Requests answered with 429 or 503.", (double)c.refused},
        {"prompt_tokens_total", "counter", "Tokens of prompts.", (double)c.prompt_tokens},
        {"prompt_tokens_cached_total", "counter", "Of them, those taken from kept pages.", (double)c.cached_tokens},
        {"generation_tokens_total", "counter", "New tokens.", (double)c.new_tokens},
        {"drafted_tokens_total", "counter", "Tokens that a draft proposed.", (double)c.drafted},
        {"accepted_tokens_total", "counter", "Of them, those that were accepted.", (double)c.accepted},
        {"steps_total", "counter", "Steps that succeeded.", (double)st.steps},
        {"step_rows_total", "counter", "Rows of these steps.", (double)st.rows},
        {"step_seconds_total", "counter", "Seconds that these steps took.", st.step_s},
        {"kv_pages", "gauge", "KV pages of all groups of layers.", (double)st.pages},
        {"kv_pages_held", "gauge", "Of them, those of running requests.", (double)st.pages_held},
        {"kv_pages_kept", "gauge", "Of them, those kept for requests with the same start.", (double)st.pages_kept},
        {"kv_page_positions", "gauge", "Positions of a KV page.", (double)st.page_size},
        {"kv_positions", "gauge", "Positions stored in the pages held, each once.", (double)st.positions},
        {"kv_positions_stored_total", "counter", "The same, summed over the steps.", (double)st.stored_positions},
        {"kv_positions_held_total", "counter", "Positions that the pages held have room for, summed over the steps.",
         (double)st.held_positions},
        {"busy_steps_total", "counter", "Steps while a request waited.", (double)st.busy_steps},
        {"busy_slots_total", "counter", "Slots in use in them, summed.", (double)st.busy_slots},
        {"preemptions_total", "counter", "Times that a request gave up its pages.", (double)st.preempted},
        {"device_recoveries_total", "counter", "Times that devices were opened again.", (double)st.recovered},
        {"uptime_seconds", "gauge", "Seconds since the server began.", clock_now() - s->t_start},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        metric(out, rows[i].name, rows[i].type, rows[i].help, rows[i].value);
    put_responses(out, &c);
    put_histogram(out, "time_to_first_token_seconds", "From submit to the first new token.", &c.ttft, ttft_bounds);
    put_histogram(out, "time_per_output_token_seconds", "Mean over the tokens of a request after its first.", &c.tpot, tpot_bounds);
    put_histogram(out, "request_seconds", "From the first byte of a request to the end of its answer.", &c.e2e, e2e_bounds);
    x->reply.status = 200;
    x->reply.type = "text/plain; version=0.0.4; charset=utf-8";
}
