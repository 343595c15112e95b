/* forge bench: tokens per second of prefill and decoding, beside what this
 * machine could do at most.
 * Owns the flags, the plan of the tests and what they need; bench_run.c
 * measures, bench_out.c prints. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/thread.h"
#include "cli/bench.h"
#include "cli/bench_online.h"
#include "cli/bench_sim.h"
#include "cli/cmd.h"

struct bench_args {
    struct num_list prompt, gen, depth, batch, concurrency;
    const char *server, *prompts;
    int64_t reps;
    bool json, csv, md, has_concurrency;
    const char *compare, *simulate;
};

#define F(field) offsetof(struct bench_args, field)
#define TOKENS_RANGE "0..1000000"

static const struct opt opts[] = {
    {"prompt", 'p', OPT_NUMS, F(prompt), 0, "N,...", TOKENS_RANGE, "512",
     "prompt sizes to prefill; 0 = no such test"},
    {"gen", 'n', OPT_NUMS, F(gen), 0, "N,...", TOKENS_RANGE, "128", "tokens to decode; 0 = no such test"},
    {"depth", 'd', OPT_NUMS, F(depth), 0, "N,...", TOKENS_RANGE, "0",
     "tokens of a sequence before; decoding at 0 begins after one"},
    {"batch", 0, OPT_NUMS, F(batch), 0, "B,...", "1..512", "1", "sequences decoded together"},
    {"repetitions", 'r', OPT_I64, F(reps), 0, "N", "1..1000", "3",
     "timed runs of each test, after a warm-up"},
    {"json", 0, OPT_FLAG, F(json), 0, NULL, NULL, NULL, "as JSON"},
    {"csv", 0, OPT_FLAG, F(csv), 0, NULL, NULL, NULL, "as CSV"},
    {"md", 0, OPT_FLAG, F(md), 0, NULL, NULL, NULL, "as a Markdown table"},
    {"compare", 0, OPT_STR, F(compare), 0, "FILE", NULL, NULL,
     "an earlier run's --json: each test's ratio to it is printed too"},
    {"server", 0, OPT_STR, F(server), 0, "URL", NULL, NULL,
     "measure a running server instead: streaming completions of -n tokens (the first of the list), each prompt -r times"},
    {"prompts", 0, OPT_STR, F(prompts), 0, "FILE", NULL, NULL,
     "for --server: one prompt a line, or objects with \"prompt\" and \"max_tokens\""},
    {"concurrency", 0, OPT_NUMS, F(concurrency), F(has_concurrency), "N,...", "1..1024", "1,4,16", "for --server: clients at once"},
    {"simulate", 0, OPT_STR, F(simulate), 0, "FILE", NULL, NULL,
     "run the scheduler in virtual time on the requests, the device's cost and the policies of FILE (lines of JSON); --max-seqs, "
     "--chunk, --page-size, --ctx and --no-prefix-cache are what policies do not say"},
    {0},
};

static int64_t largest(const struct num_list *l)
{
    int64_t m = 0;
    for (size_t i = 0; i < l->n; i++)
        m = l->v[i] > m ? l->v[i] : m;
    return m;
}

/* Every depth with every prompt size, then with every length and batch. */
static struct bench_test *plan(const struct bench_args *a, size_t *n)
{
    size_t each = a->prompt.n + a->gen.n * a->batch.n;
    struct bench_test *tests = mem_array(each * a->depth.n, sizeof *tests);
    *n = 0;
    for (size_t d = 0; tests && d < a->depth.n; d++) {
        for (size_t i = 0; i < a->prompt.n; i++)
            if (a->prompt.v[i] > 0)
                tests[(*n)++] = (struct bench_test){BENCH_PREFILL, a->prompt.v[i], a->depth.v[d], 1, ""};
        for (size_t i = 0; i < a->gen.n; i++)
            for (size_t k = 0; k < a->batch.n; k++)
                if (a->gen.v[i] > 0)
                    tests[(*n)++] =
                        (struct bench_test){BENCH_DECODE, a->gen.v[i], a->depth.v[d], (int)a->batch.v[k], ""};
    }
    for (size_t i = 0; i < *n; i++)
        bench_name(&tests[i]);
    return tests;
}

/* Arrays of the largest test; more sequences than the tool's own. */
static int prepare(struct bench *b, int64_t positions, int batch, struct err *err)
{
    struct loaded *l = &b->t->l;
    size_t columns = 0;
    for (int g = 0; g < l->config->n_groups; g++)
        columns += (size_t)kv_max_pages(l->kv, g);
    positions = positions > batch ? positions : batch;
    b->pages = mem_array(columns * (size_t)batch, sizeof *b->pages);
    b->ids = mem_array((size_t)positions, sizeof *b->ids);
    b->seqs = mem_array((size_t)batch, sizeof *b->seqs);
    if (!b->pages || !b->ids || !b->seqs)
        return err_set(err, ERR_NOMEM, "out of memory for %d sequences", batch);
    for (int64_t i = 0; i < positions; i++) /* any ids: the time does not depend on them */
        b->ids[i] = (int32_t)((i * 7919 + 13) % l->config->n_vocab);
    b->seqs[0] = b->t->seq;
    b->n_seqs = 1;
    for (int rc; b->n_seqs < batch; b->n_seqs++)
        if ((rc = seq_open(&b->seqs[b->n_seqs], l, err)) < 0)
            return rc;
    for (int i = 0; i < b->n_seqs; i++)
        b->seqs[i].whole = true;
    return 0;
}

static void finish(struct bench *b)
{
    for (int i = 1; i < b->n_seqs; i++)
        seq_close(&b->seqs[i]);
    for (size_t i = 0; i < b->n_results; i++)
        free(b->results[i].all);
    free(b->results);
    free(b->seqs);
    free(b->pages);
    free(b->ids);
    limits_free(b->limits_of);
    earlier_free(b->earlier);
}

static int measure(struct bench *b, const struct bench_test *tests, size_t n, const struct bench_args *a,
                   int64_t positions)
{
    struct err err = {0};
    struct buf out;
    int rc = prepare(b, positions, (int)largest(&a->batch), &err);
    b->results = mem_array(n, sizeof *b->results);
    if (rc == 0 && !b->results)
        rc = err_set(&err, ERR_NOMEM, "out of memory");
    for (size_t i = 0; i < n && rc == 0; i++) {
        msg_verbose("%s, %" PRId64 " repetitions", tests[i].name, a->reps);
        rc = bench_run(b, &tests[i], (int)a->reps, &b->results[b->n_results++], &err);
    }
    if (rc == 0)
        rc = bench_sampling(b, &err);
    if (rc < 0)
        return msg_fail(rc, err.msg);
    for (size_t i = 0; i < n && b->t->profile->given; i++)
        bench_ops_print(b, &b->results[i]);
    if (b->earlier)
        earlier_warn(b->earlier, b);
    buf_init(&out);
    bench_print(&out, b, a->json ? BENCH_JSON : a->csv ? BENCH_CSV : a->md ? BENCH_MD : BENCH_TEXT);
    return out_buf(&out) ? 0 : EXIT_FAILED;
}

/* The file of --compare, before time goes into anything: an exit status. */
static int open_earlier(struct bench *b, const char *path, const struct bench_test *tests, size_t n)
{
    struct err err = {0};
    char there[256];
    if (!path)
        return 0;
    if (earlier_open(&b->earlier, path, &err) < 0)
        return msg_fail(err.code, err.msg);
    for (size_t i = 0; i < n; i++)
        if (earlier_tok_s(b->earlier, tests[i].name) > 0)
            return 0;
    err_set(&err, ERR_ARG, "%s has none of the tests asked for (%s%s); it has %s", path, tests[0].name, n > 1 ? ", ..." : "",
            earlier_tests(b->earlier, there, sizeof there));
    return msg_fail(err.code, err.msg);
}

/* Before anything else starts threads: an exit status. */
static int open_limits(struct bench *b, const struct common *c)
{
    struct err err = {0};
    b->n_threads = c->threads ? (int)c->threads : thread_count_default();
    return limits_new(&b->limits_of, b->n_threads, &err) < 0 ? msg_fail(err.code, err.msg) : 0;
}

/* What the matrices may be multiplied in, and whose limits the device has. */
static void describe(struct bench *b, const struct common *c)
{
    const struct loaded *l = &b->t->l;
    b->flags = c;
    b->kinds = 1u << PEAK_F32;
    b->fast = c->math == MATH_CHOICE_FAST;
    for (int i = 0; i < l->n_backends; i++) {
        struct backend_caps caps;
        op_caps(l->backends[i], &caps);
        b->fast |= c->math == MATH_CHOICE_AUTO && !c->deterministic && strcmp(op_device(l->backends[i]), "cpu") == 0;
        b->own_memory |= !caps.host_memory && !caps.shares_host;
    }
    b->cpu_kinds = b->fast ? bench_cpu_kinds(l->weights, c->cpu_isa) : 0;
    b->start_ms = 1e3 * l->load_s;
    b->compile_ms = 1e3 * load_compile_s(l);
}

static int run_online(const struct bench_args *a)
{
    if (!a->server || !a->prompts)
        return msg_usage("bench", "--server URL and --prompts FILE need each other");
    if (a->csv || a->compare)
        return msg_usage("bench", "--server has neither --csv nor --compare; there are --json and --md");
    if (a->concurrency.n == 0 || a->gen.n == 0 || a->gen.v[0] < 1)
        return msg_usage("bench", "--server needs clients (--concurrency) and tokens (-n) of at least 1");
    struct online_args o = {a->server, a->prompts, &a->concurrency, a->gen.v[0], a->reps, a->json, a->md};
    interrupt_catch();
    return online_bench(&o);
}

static int run_simulated(const struct bench_args *a, const struct common *c)
{
    if (a->server || a->prompts || a->csv || a->compare)
        return msg_usage("bench", "--simulate goes with --json or --md alone");
    interrupt_catch();
    return sim_bench(a->simulate, c, a->json ? SIM_JSON : a->md ? SIM_MD : SIM_TEXT);
}

static int run(void *args, const struct common *c)
{
    const struct bench_args *a = args;
    struct tool t = {0};
    struct bench b = {.t = &t};
    size_t n;
    if (a->json + a->csv + a->md > 1)
        return msg_usage("bench", "give only one of --json, --csv and --md");
    if (a->simulate)
        return run_simulated(a, c);
    if (a->server || a->prompts)
        return run_online(a);
    if (a->has_concurrency)
        return msg_usage("bench", "--concurrency counts the clients of a --server; --batch is of sequences here");
    struct bench_test *tests = plan(a, &n);
    if (!tests)
        return msg_fail(ERR_NOMEM, "out of memory");
    if (n == 0) {
        free(tests);
        return msg_usage("bench", "no test is left: -p and -n are 0, or a list is empty");
    }
    int64_t positions = largest(&a->depth) + largest(&a->prompt) + largest(&a->gen);
    positions +=
        largest(&a->prompt) == 0 && largest(&a->depth) == 0; /* the token that decoding begins after */
    interrupt_catch();
    int status = open_earlier(&b, a->compare, tests, n);
    if (status == 0)
        status = open_limits(&b, c);
    char *model = status == 0 ? common_model_path(c) : NULL;
    if (status == 0)
        status = model ? tool_open(&t, c, positions, largest(&a->batch)) : EXIT_FAILED;
    if (status == 0) {
        b.model = model;
        describe(&b, c);
        status = measure(&b, tests, n, a, positions);
    }
    if (b.n_seqs) /* the tool's own sequence moved on in the copy */
        t.seq = b.seqs[0];
    finish(&b);
    status = tool_close(&t, status);
    free(model);
    free(tests);
    return status;
}

const struct cmd cmd_bench = {
    .name = "bench",
    .summary = "Measure tokens per second, and the share of what the machine can do",
    .usage = "[-p N,...] [-n N,...] [-d N,...] [--batch B] [-r N] [--json | --csv | --md] [--compare FILE] [flags]\n"
             "       forge bench --server URL --prompts FILE [--concurrency N,...] [-n N] [-r N] [--json | --md]\n"
             "       forge bench --simulate FILE [--json | --md]",
    .notes = "Prefill takes whole steps of --chunk here; the other commands take smaller ones on the CPU, so that no\n"
             "step lasts longer than about a second.",
    .opts = opts,
    .args_size = sizeof(struct bench_args),
    .shared = {common_model_opts, common_device_opts},
    .run = run,
};
