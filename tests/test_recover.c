/* A device that fails in the middle of a request, played by a CPU instance that
 * is bent: wherever that happens the ids and the pieces are those of an unbroken
 * run; what fails again is an error, and the next request is served.
 * Needs no OpenCL. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "run/draft.h"
#include "run/engine.h"
#include "run/load_parts.h"
#include "tests/engine_kit.h"
#include "tests/fault.h"

/* ---- an instance that fails ---- */
static const struct backend_ops *own;
static struct backend_ops bent;
static int n_calls, fail_at, fail_code; /* linear, read and sync together; fail_at 0 = never */

static void (*at_failure)(void); /* what else happens then; NULL = nothing */

static bool fails_now(void)
{
    bool now = ++n_calls == fail_at;
    if (now && at_failure)
        at_failure();
    return now;
}

static void bent_caps(const struct backend *be, struct backend_caps *out)
{
    own->caps(be, out);
    out->host_memory = false;
}

static int too_many; /* rows, from which on linear fails; 0 = never */

static void bent_linear(struct backend *be, const struct tensor *o, const struct tensor *x, const struct tensor *w,
                        const struct tensor *b)
{
    if (fails_now() || (too_many > 0 && x->rows >= too_many))
        backend_fail(be, fail_code, "CL_OUT_OF_RESOURCES (-5)");
    else
        own->linear(be, o, x, w, b);
}

static int bent_read(struct backend *be, void *dst, const struct tensor *src, struct err *err)
{
    return fails_now() ? err_set(err, fail_code, "%s: CL_OUT_OF_RESOURCES (-5)", be->device) : own->read(be, dst, src, err);
}

static int bent_sync(struct backend *be, struct err *err)
{
    return fails_now() ? err_set(err, fail_code, "%s: CL_OUT_OF_RESOURCES (-5)", be->device) : own->sync(be, err);
}

/* Bends an instance; one that is opened in its place is straight. */
static void bend_instance(struct backend *be, int at, int code)
{
    if (be->ops != &bent) {
        own = be->ops;
        bent = *own;
        bent.linear_qkv = NULL;
        bent.gate_up = NULL;
        bent.linear_add = NULL;
        bent.linear = bent_linear;
        bent.read = bent_read;
        bent.sync = bent_sync;
        bent.caps = bent_caps;
        be->ops = &bent;
    }
    n_calls = 0;
    fail_at = at;
    fail_code = code;
}

/* Instance i of the engine. */
static void bend(struct forge_engine *e, int i, int at, int code)
{
    bend_instance(e->l.backends[i], at, code);
}

/* ---- requests ---- */
static const struct kind {
    const char *name, *model, *device, *split;
    int64_t n_new;
    int n_prompt, chunk, n_samples, n_logprobs, bent;
    bool free_rows; /* else as on a device whose sums depend on the number of rows */
    double temp;
} kinds[] = {
    {"greedy", "golden/models/qwen3", "cpu", NULL, 8, 5, 16, 1, -1, 0, true, 0},
    {"prompt in pieces", "golden/models/llama", "cpu", NULL, 4, 60, 16, 1, -1, 0, false, 0},
    {"window", "golden/models/gemma3", "cpu", NULL, 24, 40, 16, 1, -1, 0, true, 0},
    {"sampled", "golden/models/qwen3", "cpu", NULL, 8, 5, 16, 1, 3, 0, false, 1},
    {"samples", "golden/models/mistral", "cpu", NULL, 5, 20, 8, 3, -1, 0, false, 1},
    {"samples, window", "golden/models/gemma3", "cpu", NULL, 5, 40, 16, 2, -1, 0, true, 1},
    {"first of two", "golden/models/qwen3", "cpu,cpu", "1,1", 5, 20, 8, 1, -1, 0, true, 0},
    {"second of two", "golden/models/qwen3", "cpu,cpu", "1,1", 5, 20, 8, 1, -1, 1, true, 0},
};
enum { N_KINDS = sizeof kinds / sizeof *kinds, PROMPT_MAX = 64 };

static struct forge_engine *open_kind(const struct kind *k)
{
    struct forge_engine_params p = engine_params(k->model);
    p.device = k->device;
    p.split = k->split;
    p.n_ctx = 96;
    p.page_size = 8;
    p.chunk = k->chunk;
    p.no_prefix_cache = 1; /* each request has the calls of the first */
    struct forge_engine *e = engine_with(&p);
    e->l.free_rows = k->free_rows;
    return e;
}

static struct forge_request_params params_of(const struct kind *k)
{
    static int32_t ids[PROMPT_MAX];
    struct forge_request_params p = request_params(NULL, k->n_new);
    for (int i = 0; i < k->n_prompt; i++)
        ids[i] = 3 + (7 * i) % 50;
    p.ids = ids;
    p.n_ids = (size_t)k->n_prompt;
    p.ignore_eos = 1;
    p.n_samples = k->n_samples;
    p.n_logprobs = k->n_logprobs;
    p.sampling.temp = k->temp;
    p.sampling.seed = 11;
    p.sampling.has_seed = 1;
    return p;
}

struct told_sample { /* by pieces */
    int32_t ids[128];
    size_t n, n_text;
    char text[1024];
};
struct told {
    struct told_sample s[4];
};

static int tell(void *user, const struct forge_piece *p)
{
    struct told_sample *t = &((struct told *)user)->s[p->sample];
    for (size_t i = 0; i < p->n_ids; i++)
        t->ids[t->n++] = p->ids[i];
    memcpy(t->text + t->n_text, p->text, p->text_len);
    t->n_text += p->text_len;
    return 0;
}

static void same_told(const struct told *x, const struct told *y, const char *name, int at)
{
    for (int k = 0; k < 4; k++) {
        const struct told_sample *a = &x->s[k], *b = &y->s[k];
        test_that(a->n == b->n && memcmp(a->ids, b->ids, a->n * sizeof *a->ids) == 0, "%s, call %d fails: other ids", name, at);
        test_that(a->n_text == b->n_text && memcmp(a->text, b->text, a->n_text) == 0, "%s, call %d fails: other text", name,
                  at);
    }
}

/* Every call of a request fails once. */
START_TEST(goes_on_as_if_nothing_had_been)
{
    const struct kind *k = &kinds[_i];
    struct forge_request_params p = params_of(k);
    struct forge_engine *e = open_kind(k);
    struct forge_request *r;
    struct told want = {0};
    p.on_piece = tell;
    p.user = &want;
    bend(e, k->bent, 0, 0);
    forge_request_free(generate(e, &p));
    int n = n_calls, step = n / 40 + 1;
    ck_assert_int_gt(n, 20);
    ck_assert_uint_eq(want.s[k->n_samples - 1].n, (size_t)k->n_new);
    for (int at = 1; at <= n; at += step) {
        struct told got = {0};
        struct forge_error err = {0};
        p.user = &got;
        e->l.free_rows = k->free_rows;
        bend(e, k->bent, at, at % 2 ? ERR_DEVICE : ERR_NOMEM);
        int rc = forge_generate(e, &p, &r, &err);
        test_that(rc == 0, "%s, call %d fails: %s", k->name, at, err.message);
        ck_assert_ptr_ne(e->l.backends[k->bent]->ops, &bent); /* it was opened again */
        same_told(&got, &want, k->name, at);
        size_t n_best;
        if (k->n_logprobs >= 0)
            ck_assert_ptr_nonnull(forge_request_logprobs(r, 0, 0, &n_best));
        forge_request_free(r);
    }
    forge_engine_close(e);
}
END_TEST

/* ---- several at once ---- */
enum { N_TOGETHER = 3 };

static struct forge_engine *open_several(int no_prefix_cache)
{
    struct forge_engine_params p = engine_params("golden/models/qwen3");
    p.n_ctx = 96;
    p.page_size = 8;
    p.chunk = 16;
    p.max_seqs = N_TOGETHER;
    p.no_prefix_cache = no_prefix_cache;
    return engine_with(&p);
}

static void submit_several(struct forge_engine *e, struct forge_request **r, struct told *told)
{
    static const int which[N_TOGETHER] = {0, 1, 4};
    for (int i = 0; i < N_TOGETHER; i++) {
        struct forge_request_params p = params_of(&kinds[which[i]]);
        told[i] = (struct told){0};
        p.on_piece = tell;
        p.user = &told[i];
        ck_assert_int_eq(forge_submit(e, &p, &r[i], NULL), 0);
    }
}

/* A failure in a step of several is all theirs, and none notices; kept prefixes are gone then. */
START_TEST(all_go_on)
{
    struct forge_engine *e = open_several(_i);
    struct forge_request *r[N_TOGETHER];
    struct told want[N_TOGETHER], got[N_TOGETHER];
    bend(e, 0, 0, 0);
    submit_several(e, r, want);
    while (forge_step(e, NULL) > 0)
        ;
    int n = n_calls;
    for (int i = 0; i < N_TOGETHER; i++)
        forge_request_free(r[i]);
    for (int at = 1; at <= n; at += n / 40 + 1) {
        bend(e, 0, at, ERR_DEVICE);
        submit_several(e, r, got);
        while (forge_step(e, NULL) > 0)
            ;
        test_that(n_calls >= at || _i == 0, "call %d did not fail", at); /* with prefixes there are fewer */
        for (int i = 0; i < N_TOGETHER; i++) {
            test_that(forge_request_error(r[i])->code == 0, "request %d: %s", i, forge_request_error(r[i])->message);
            same_told(&got[i], &want[i], "several", at);
            forge_request_free(r[i]);
        }
    }
    forge_engine_close(e);
}
END_TEST

/* Who had a failure before ends with the next one; who had none goes on. */
START_TEST(some_end_and_others_go_on)
{
    struct forge_engine *e = open_several(0);
    struct forge_request_params p = params_of(&kinds[0]);
    struct forge_request *old, *fresh;
    size_t n = 0;
    struct told want = {0}, got = {0};
    p.on_piece = tell;
    p.user = &want;
    forge_request_free(generate(e, &p));
    p.user = NULL;
    p.on_piece = NULL;
    p.max_tokens = 40;
    ck_assert_int_eq(forge_submit(e, &p, &old, NULL), 0);
    forge_step(e, NULL);
    bend(e, 0, 1, ERR_DEVICE);
    for (; n < 4; forge_request_ids(old, 0, &n))
        ck_assert_int_eq(forge_step(e, NULL), 1);
    p.max_tokens = kinds[0].n_new;
    p.on_piece = tell;
    p.user = &got;
    ck_assert_int_eq(forge_submit(e, &p, &fresh, NULL), 0);
    while (got.s[0].n < 2)
        ck_assert_int_eq(forge_step(e, NULL), 1);
    bend(e, 0, 1, ERR_DEVICE);
    while (forge_step(e, NULL) > 0)
        ;
    ck_assert_int_eq(forge_request_finish(old, 0), FORGE_FINISH_ERROR);
    ck_assert_ptr_nonnull(strstr(forge_request_error(old)->message, "opened again before"));
    ck_assert_int_eq(forge_request_finish(fresh, 0), FORGE_FINISH_LENGTH);
    same_told(&got, &want, "the younger one", 0);
    ck_assert_uint_eq(forge_engine_stats(e)->recovered, 2);
    ck_assert_uint_eq(forge_engine_stats(e)->pages_held, 0);
    forge_request_free(old);
    forge_request_free(fresh);
    forge_engine_close(e);
}
END_TEST

/* ---- what is no device's failure, and what fails again ---- */
struct rebend {
    struct forge_engine *e;
    int n;
};

/* The instance that took the place of the failed one fails too. */
static int bend_again(void *user, const struct forge_piece *p)
{
    struct rebend *b = user;
    b->n += (int)p->n_ids;
    if (p->finish == FORGE_FINISH_NONE && b->n >= 2)
        bend(b->e, 0, 1, ERR_DEVICE);
    return 0;
}

START_TEST(the_second_failure_is_the_end)
{
    struct forge_request_params p = params_of(&kinds[0]);
    struct forge_engine *e = open_kind(&kinds[0]);
    struct rebend b = {.e = e};
    struct forge_error err = {0};
    struct forge_request *r;
    size_t n;
    p.on_piece = bend_again;
    p.user = &b;
    ck_assert_int_eq(forge_generate(e, &p, &r, &err), FORGE_ERR_DEVICE);
    ck_assert_msg(strstr(err.message, "(-5)") && strstr(err.message, "opened again"), "%s", err.message);
    ck_assert_int_eq(forge_request_finish(r, 0), FORGE_FINISH_ERROR);
    forge_request_ids(r, 0, &n);
    ck_assert_uint_eq(n, 3); /* those before the second failure stay */
    ck_assert_int_eq(b.n, 3);
    forge_request_free(r);
    p.on_piece = NULL;
    r = generate(e, &p); /* though the device is as it was when it failed */
    ck_assert_int_eq(forge_request_finish(r, 0), FORGE_FINISH_LENGTH);
    forge_request_free(r);
    forge_engine_close(e);
}
END_TEST

/* ---- steps of many rows ---- */
static int n_opened;

/* Bends what was opened, at the line that says so. */
static void at_line(void *user, enum forge_log_level level, const char *line)
{
    if (level != FORGE_LOG_DEBUG || !strstr(line, "opened again"))
        return;
    struct forge_engine *e = user;
    n_opened++;
    e->l.free_rows = false; /* steps are whole chunks */
    bend(e, 0, 0, ERR_DEVICE);
}

/* A device that fails whatever has too many rows is served with fewer. */
START_TEST(steps_shrink)
{
    static const struct { int too_many, n_opened, rc; } rows[] = {
        {61, 0, 0}, {60, 2, 0}, {16, 2, 0}, {15, 3, 0}, {3, 3, FORGE_ERR_DEVICE}, {1, 3, FORGE_ERR_DEVICE}};
    struct kind k = kinds[1];
    k.chunk = 64;
    struct forge_request_params p = params_of(&k);
    struct forge_engine *e = open_kind(&k);
    struct forge_request *r;
    struct told want = {0}, got = {0};
    struct forge_error err = {0};
    p.on_piece = tell;
    p.user = &want;
    forge_request_free(generate(e, &p));
    bend(e, 0, 0, ERR_DEVICE);
    fail_code = ERR_DEVICE;
    too_many = rows[_i].too_many;
    n_opened = 0;
    forge_log_set(at_line, e, FORGE_LOG_DEBUG, "load", NULL);
    p.user = &got;
    ck_assert_int_eq(forge_generate(e, &p, &r, &err), rows[_i].rc);
    ck_assert_int_eq(n_opened, rows[_i].n_opened);
    if (rows[_i].rc == 0)
        same_told(&got, &want, k.name, rows[_i].too_many);
    else
        ck_assert_msg(strstr(err.message, "(-5)") && got.s[0].n == 0, "%s", err.message);
    forge_request_free(r);
    forge_log_set(NULL, NULL, FORGE_LOG_ERROR, NULL, NULL);
    too_many = 0;
    forge_engine_close(e);
}
END_TEST

START_TEST(other_failures_are_not_recovered)
{
    static const int codes[] = {ERR_LIMIT, ERR_NUMERIC, ERR_ARG};
    struct forge_request_params p = params_of(&kinds[0]);
    struct forge_engine *e = open_kind(&kinds[0]);
    struct forge_request *r;
    struct forge_error err = {0};
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
        bend(e, 0, 9, codes[i]);
        ck_assert_int_eq(forge_generate(e, &p, &r, &err), codes[i]);
        ck_assert_ptr_eq(e->l.backends[0]->ops, &bent);
        forge_request_free(r);
    }
    bend(e, 0, 9, ERR_DEVICE);
    bent.caps = own->caps; /* it works in the host's memory: nothing would be new */
    ck_assert_int_eq(forge_generate(e, &p, &r, &err), FORGE_ERR_DEVICE);
    ck_assert_ptr_eq(e->l.backends[0]->ops, &bent);
    forge_request_free(r);
    forge_engine_close(e);
}
END_TEST

/* ---- what is told of a prompt ---- */
struct prefill_told {
    size_t last, n_back;
};

static int on_prefill(void *user, size_t done, size_t total)
{
    struct prefill_told *t = user;
    (void)total;
    t->n_back += done < t->last;
    t->last = done;
    return 0;
}

/* Whatever failed, a prompt's rows count once, and its progress never goes back. */
START_TEST(a_prompt_counts_once)
{
    const struct kind *k = &kinds[1];
    struct forge_request_params p = params_of(k);
    struct forge_engine *e = open_kind(k);
    for (int at = 1; at <= 60; at += 3) {
        struct prefill_told told = {0};
        p.on_prefill = on_prefill;
        p.user = &told;
        e->l.free_rows = k->free_rows;
        bend(e, 0, at, ERR_DEVICE);
        struct forge_request *r = generate(e, &p);
        ck_assert_ptr_ne(e->l.backends[0]->ops, &bent);
        test_that(r->n_prefilled == (uint64_t)k->n_prompt, "call %d fails: %d rows are counted", at, (int)r->n_prefilled);
        test_that(told.n_back == 0 && told.last == (size_t)k->n_prompt, "call %d fails: progress goes back, or ends at %d", at,
                  (int)told.last);
        forge_request_free(r);
    }
    forge_engine_close(e);
}
END_TEST

/* What is opened after a device was lost must compute what was asked for, or that is an error. */
START_TEST(math_is_kept)
{
    struct forge_engine *e = open_kind(&kinds[0]);
    struct load_params lp;
    struct err err = {0};
    load_params_init(&lp);
    lp.device = "ref";
    lp.backend.n_threads = 1;
    lp.backend.math = MATH_FAST;
    load_keep_free(e->l.again);
    e->l.again = NULL;
    ck_assert_int_eq(load_keep(&e->l, &lp, &lp.kv, &err), 0);
    int rc = load_reopen(&e->l, &err);
    ck_assert_msg(rc == ERR_ARG && strstr(err.msg, "math fast"), "%s", err.msg);
    forge_engine_close(e);
}
END_TEST

/* ---- opening fails ---- */
static size_t refused_at;

static void refuse(void)
{
    fault_arm(FAULT_MEMORY | FAULT_SYSTEM, refused_at, false);
}

/* Whatever is refused while the devices are opened again: the request ends with an error or goes on, nothing is
 * held that should not be, and the next request opens what is missing. */
START_TEST(refused_while_it_is_opened_again)
{
    const struct kind *k = &kinds[_i];
    char before[FAULT_HELD_SIZE], after[FAULT_HELD_SIZE];
    struct forge_request_params p = params_of(k);
    struct told want = {0};
    size_t n_failed = 0;
    bool refused = true;
    long usual = 0; /* what an engine leaves by this count: libraries' blocks that are freed here */
    p.on_piece = tell;
    for (refused_at = 0; refused; refused_at++) { /* at first none is */
        long n_before = fault_held(before);
        struct forge_engine *e = open_kind(k);
        struct told got = {0};
        struct forge_request *r;
        struct forge_error err = {0};
        int rc;
        p.user = refused_at == 0 ? &want : &got;
        bend(e, k->bent, 30, ERR_DEVICE);
        at_failure = refused_at > 0 ? refuse : NULL;
        rc = forge_generate(e, &p, &r, &err);
        at_failure = NULL;
        refused = fault_disarm(NULL) || refused_at == 0;
        if (rc == 0)
            same_told(refused_at > 0 ? &got : &want, &want, k->name, (int)refused_at);
        else
            test_that(rc == FORGE_ERR_DEVICE || rc == FORGE_ERR_NOMEM || rc == FORGE_ERR_IO, "request %zu refused: %d, %s", refused_at,
                      rc, err.message);
        n_failed += rc < 0;
        forge_request_free(r);
        got = (struct told){0};
        p.user = &got;
        e->l.free_rows = k->free_rows;
        rc = forge_generate(e, &p, &r, &err);
        test_that(rc == 0, "after request %zu was refused: %s", refused_at, err.message);
        same_told(&got, &want, k->name, (int)refused_at);
        forge_request_free(r);
        forge_engine_close(e);
        usual = refused_at == 0 ? fault_held(NULL) - n_before : usual;
        test_that(fault_held(after) - n_before == usual, "request %zu refused: held before: %s; after: %s", refused_at, before, after);
    }
    ck_assert_uint_gt(n_failed, 20);
}
END_TEST

/* ---- the table of what ran where ---- */
static uint64_t calls_of(const struct forge_engine *e, const char *operation)
{
    uint64_t n = 0;
    const struct forge_placement *row;
    for (size_t i = 0; (row = forge_engine_placement(e, i)) != NULL; i++)
        if (strcmp(row->operation, operation) == 0)
            n += row->calls;
    return n;
}

START_TEST(what_ran_before_is_still_told)
{
    struct forge_request_params p = params_of(&kinds[0]);
    struct forge_engine *e = open_kind(&kinds[0]);
    bend(e, 0, 0, 0);
    forge_request_free(generate(e, &p));
    uint64_t before = calls_of(e, "linear");
    ck_assert_uint_gt(before, 0);
    for (int i = 1; i <= 3; i++) {
        bend(e, 0, 40, ERR_DEVICE);
        snprintf(e->l.backends[0]->device, sizeof e->l.backends[0]->device, "lost%d", i);
        forge_request_free(generate(e, &p));
        ck_assert_uint_gt(calls_of(e, "linear"), before);
        before = calls_of(e, "linear");
    }
    int seen = 0;
    const struct forge_placement *row;
    for (size_t i = 0; (row = forge_engine_placement(e, i)) != NULL; i++)
        seen += strcmp(row->operation, "linear") == 0 && (strcmp(row->device, "lost2") == 0 || strcmp(row->device, "cpu") == 0);
    ck_assert_int_eq(seen, 2);
    ck_assert_str_eq(forge_engine_info(e)->device, "cpu");
    forge_engine_close(e);
}
END_TEST

/* ---- stopping while what was lost is computed again ---- */
static struct forge_request *running;

static void cancel(void)
{
    forge_request_cancel(running);
}

static void be_late(void)
{
    running->e->deadline = running->deadline = 1e-9;
}

START_TEST(stopped_while_it_is_computed_again)
{
    static const struct { void (*stop)(void); enum forge_finish finish; } ways[] = {
        {cancel, FORGE_FINISH_CANCELLED}, {be_late, FORGE_FINISH_DEADLINE}};
    struct forge_request_params p = params_of(&kinds[1]);
    struct forge_engine *e = open_kind(&kinds[1]);
    size_t n;
    ck_assert_int_eq(forge_submit(e, &p, &running, NULL), 0);
    do {
        ck_assert_int_gt(forge_step(e, NULL), 0);
        forge_request_ids(running, 0, &n);
    } while (n < 2);
    bend(e, 0, 1, ERR_DEVICE);
    at_failure = ways[_i].stop;
    forge_step(e, NULL);
    at_failure = NULL;
    ck_assert_int_eq(forge_request_finish(running, 0), ways[_i].finish);
    forge_request_ids(running, 0, &n);
    ck_assert_uint_eq(n, 2);
    ck_assert_ptr_ne(e->l.backends[0]->ops, &bent);
    forge_request_free(running);
    forge_request_free(generate(e, &p));
    forge_engine_close(e);
}
END_TEST

/* ---- a draft model's device ---- */

static struct forge_request *two_texts(struct forge_engine *e, struct forge_request **second)
{
    struct forge_request *first;
    for (int i = 0; i < 2; i++) {
        struct forge_request_params p = params_of(&kinds[i ? 3 : 0]);
        p.max_tokens = 40;
        p.n_logprobs = -1;
        ck_assert_int_eq(forge_submit(e, &p, i ? second : &first, NULL), 0);
    }
    return first;
}

static void step_to_the_end(struct forge_engine *e)
{
    int more;
    while ((more = forge_step(e, NULL)) > 0)
        ;
    ck_assert_int_eq(more, 0);
}

/* It is opened again and drafts go on; that it fails at once again is the end of drafting, and of nothing else. */
START_TEST(drafting_goes_on)
{
    struct forge_engine_params ep = engine_params("golden/models/qwen3");
    struct forge_request *want[2], *got[2];
    size_t n, m;
    ep.n_ctx = 96;
    ep.max_seqs = 2;
    ep.no_prefix_cache = 1;
    struct forge_engine *plain = engine_with(&ep);
    want[0] = two_texts(plain, &want[1]);
    step_to_the_end(plain);
    ep.draft_model = ep.model;
    struct forge_engine *e = engine_with(&ep);
    const struct forge_engine_stats *s = forge_engine_stats(e);
    got[0] = two_texts(e, &got[1]);
    ck_assert_int_eq(forge_step(e, NULL), 1); /* both prompts */
    bend_instance(draft_loaded(e->draft)->backends[0], 5 + _i * 9, ERR_DEVICE);
    while (fail_at > n_calls)
        ck_assert_int_eq(forge_step(e, NULL), 1);
    uint64_t before = s->drafted_tokens;
    ck_assert_int_eq(forge_step(e, NULL), 1);
    ck_assert_uint_eq(s->recovered, 1);
    ck_assert_uint_gt(s->drafted_tokens, before);
    bend_instance(draft_loaded(e->draft)->backends[0], 1, ERR_DEVICE);
    ck_assert_int_eq(forge_step(e, NULL), 1);
    before = s->drafted_tokens;
    step_to_the_end(e);
    ck_assert_uint_eq(s->recovered, 1);
    ck_assert_uint_eq(s->drafted_tokens, before);
    for (int i = 0; i < 2; i++) {
        const int32_t *ids = forge_request_ids(want[i], 0, &n);
        ck_assert_int_eq(memcmp(forge_request_ids(got[i], 0, &m), ids, n * sizeof *ids), 0);
        ck_assert_uint_eq(n, m);
        ck_assert_uint_eq(n, 40);
        ck_assert_str_eq(text_of(got[i]), text_of(want[i]));
        forge_request_free(got[i]);
        forge_request_free(want[i]);
    }
    forge_engine_close(e);
    forge_engine_close(plain);
}
END_TEST

/* ---- what other threads look at meanwhile ---- */

/* A session that is handed in while devices are opened again is checked by what that does not change. */
START_TEST(sessions_are_checked_meanwhile)
{
    enum { N = 40 };
    struct forge_engine *e = open_several(1);
    struct forge_request *first, *r[N];
    struct forge_request_params p = params_of(&kinds[0]), q = p;
    p.session_save = test_tmp("session");
    forge_request_free(generate(e, &p));
    q.session_load = p.session_save;
    q.ids = NULL;
    q.n_ids = 0;
    q.max_tokens = 2;
    p.session_save = NULL;
    p.max_tokens = 40;
    bend(e, 0, 20, ERR_DEVICE);
    ck_assert_int_eq(forge_engine_start(e, NULL), 0);
    ck_assert_int_eq(forge_submit(e, &p, &first, NULL), 0);
    for (int i = 0; i < N; i++)
        ck_assert_int_eq(forge_submit(e, &q, &r[i], NULL), 0);
    ck_assert_int_eq(forge_engine_stop(e, NULL), 0);
    step_to_the_end(e);
    ck_assert_uint_eq(forge_engine_stats(e)->recovered, 1);
    for (int i = 0; i < N; i++) {
        ck_assert_int_eq(forge_request_finish(r[i], 0), FORGE_FINISH_LENGTH);
        ck_assert_str_eq(text_of(r[i]), text_of(r[0]));
    }
    for (int i = 0; i < N; i++)
        forge_request_free(r[i]);
    ck_assert_int_eq(forge_request_finish(first, 0), FORGE_FINISH_LENGTH);
    forge_request_free(first);
    forge_engine_close(e);
}
END_TEST

int main(void)
{
    fault_init();
    Suite *s = suite_create("recover");
    TCase *t = tcase_create("recover");
    tcase_set_timeout(t, 120);
    tcase_add_loop_test(t, goes_on_as_if_nothing_had_been, 0, N_KINDS);
    tcase_add_loop_test(t, all_go_on, 0, 2);
    tcase_add_test(t, sessions_are_checked_meanwhile);
    tcase_add_loop_test(t, drafting_goes_on, 0, 3);
    tcase_add_test(t, some_end_and_others_go_on);
    tcase_add_test(t, the_second_failure_is_the_end);
    tcase_add_loop_test(t, steps_shrink, 0, 6);
    tcase_add_test(t, other_failures_are_not_recovered);
    tcase_add_loop_test(t, refused_while_it_is_opened_again, 6, N_KINDS);
    tcase_add_test(t, a_prompt_counts_once);
    tcase_add_test(t, math_is_kept);
    tcase_add_test(t, what_ran_before_is_still_told);
    tcase_add_loop_test(t, stopped_while_it_is_computed_again, 0, 2);
    suite_add_tcase(s, t);
    return test_main(s);
}
