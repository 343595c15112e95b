/* The engine's own thread: what several threads submit comes out as it does alone;
 * cancel, free and stop while it works; what is refused meanwhile.
 *
 * Made to be run under the thread sanitizer, too. */
#include "base/thread.h"
#include "run/engine.h"
#include "tests/engine_kit.h"

enum { N_THREADS = 4, N_EACH = 5, N_NEW = 24 };

/* What the test waits for, set by callbacks. */
struct watch {
    struct mutex *lock;
    struct bell *bell;
    int pieces, ended, prefills;
    int hold; /* callbacks wait from this piece on, until it is 0 again; 0 = none does */
    enum forge_finish finish;
};

static void watch_init(struct watch *w)
{
    *w = (struct watch){.lock = mutex_new(), .bell = bell_new()};
    ck_assert(w->lock && w->bell);
}

static void watch_fini(struct watch *w)
{
    bell_free(w->bell);
    mutex_free(w->lock);
}

static int on_piece(void *user, const struct forge_piece *p)
{
    struct watch *w = user;
    mutex_lock(w->lock);
    w->pieces++;
    if (p->finish != FORGE_FINISH_NONE) {
        w->ended++;
        w->finish = p->finish;
    }
    bell_ring(w->bell);
    while (w->hold > 0 && w->pieces >= w->hold)
        bell_wait(w->bell, w->lock);
    mutex_unlock(w->lock);
    return 0;
}

static void let_go(struct watch *w)
{
    mutex_lock(w->lock);
    w->hold = 0;
    bell_ring(w->bell);
    mutex_unlock(w->lock);
}

static int on_prefill(void *user, size_t done, size_t total)
{
    struct watch *w = user;
    ck_assert_uint_le(done, total);
    mutex_lock(w->lock);
    w->prefills++;
    mutex_unlock(w->lock);
    return 0;
}

static void await_pieces(struct watch *w, int n)
{
    mutex_lock(w->lock);
    while (w->pieces < n && w->ended == 0)
        bell_wait(w->bell, w->lock);
    mutex_unlock(w->lock);
}

static void await_ends(struct watch *w, int n)
{
    mutex_lock(w->lock);
    while (w->ended < n)
        bell_wait(w->bell, w->lock);
    mutex_unlock(w->lock);
}

static struct forge_engine *open_tiny(int max_seqs)
{
    struct forge_engine_params p = engine_params(TINY);
    p.max_seqs = max_seqs;
    return engine_with(&p);
}

static struct forge_request_params sampled(int seed, int64_t n)
{
    static const char *const prompts[] = {"The capital of France is", "One two three", "A", "Once upon a time there was"};
    struct forge_request_params p = request_params(prompts[seed % 4], n);
    p.ignore_eos = 1;
    p.sampling.temp = 0.9;
    p.sampling.seed = (uint64_t)seed;
    p.sampling.has_seed = 1;
    return p;
}

static struct forge_request *submit(struct forge_engine *e, struct forge_request_params *p, struct watch *w)
{
    struct forge_request *r;
    struct forge_error err = {0};
    if (w) {
        p->on_piece = on_piece;
        p->on_prefill = on_prefill;
        p->user = w;
    }
    ck_assert_msg(forge_submit(e, p, &r, &err) == 0, "%s", err.message);
    return r;
}

static void start(struct forge_engine *e)
{
    struct forge_error err = {0};
    ck_assert_msg(forge_engine_start(e, &err) == 0, "%s", err.message);
}

static void stop(struct forge_engine *e)
{
    struct forge_error err = {0};
    ck_assert_msg(forge_engine_stop(e, &err) == 0, "%s", err.message);
}

/* ---- several threads ---- */

struct user {
    struct forge_engine *e;
    struct thread *thread;
    char *alone[N_EACH]; /* texts */
    int first, wrong;
};

static void use(void *arg)
{
    struct user *u = arg;
    struct forge_request *r[N_EACH];
    struct watch w;
    watch_init(&w);
    for (int i = 0; i < N_EACH; i++) {
        struct forge_request_params p = sampled(u->first + i, N_NEW);
        struct forge_engine_stats stats;
        r[i] = submit(u->e, &p, &w);
        forge_engine_stats_copy(u->e, &stats, sizeof stats);
        u->wrong += stats.max_seqs != 3 || stats.running > 3;
    }
    await_ends(&w, N_EACH);
    for (int i = 0; i < N_EACH; i++) {
        u->wrong += strcmp(text_of(r[i]), u->alone[i]) != 0;
        forge_request_free(r[i]);
    }
    watch_fini(&w);
}

START_TEST(many_threads)
{
    struct user users[N_THREADS] = {{0}};
    struct forge_engine_stats stats;
    struct err err;
    struct forge_engine *e = open_tiny(3);
    for (int t = 0; t < N_THREADS; t++) {
        users[t].e = e;
        users[t].first = t * N_EACH;
        for (int i = 0; i < N_EACH; i++) {
            struct forge_request_params p = sampled(users[t].first + i, N_NEW);
            struct forge_request *r = generate(e, &p);
            users[t].alone[i] = strdup(text_of(r));
            forge_request_free(r);
        }
    }
    start(e);
    for (int t = 0; t < N_THREADS; t++)
        ck_assert_int_eq(thread_start(&users[t].thread, use, &users[t], &err), 0);
    for (int t = 0; t < N_THREADS; t++) {
        thread_join(users[t].thread);
        ck_assert_msg(users[t].wrong == 0, "thread %d: %d differ", t, users[t].wrong);
        for (int i = 0; i < N_EACH; i++)
            free(users[t].alone[i]);
    }
    stop(e);
    forge_engine_stats_copy(e, &stats, sizeof stats);
    ck_assert_uint_eq(stats.finished, 2 * N_THREADS * N_EACH);
    ck_assert_uint_eq(stats.queued, 0);
    ck_assert_int_eq(stats.running, 0);
    forge_engine_close(e);
}
END_TEST

/* ---- one request, while it runs ---- */

START_TEST(cancelled)
{
    struct watch w;
    struct forge_engine *e = open_tiny(1);
    struct forge_request_params p = sampled(1, -1);
    watch_init(&w);
    w.hold = 2;
    start(e);
    struct forge_request *r = submit(e, &p, &w);
    await_pieces(&w, 2);
    forge_request_cancel(r);
    let_go(&w);
    await_ends(&w, 1);
    ck_assert_int_eq(w.finish, FORGE_FINISH_CANCELLED);
    ck_assert_int_gt(w.prefills, 0);
    forge_request_free(r);
    forge_engine_close(e); /* ends the thread, too */
    watch_fini(&w);
}
END_TEST

/* Queued behind another, and freed before it began.  A free waits for the callback that runs, so that none can be held:
 * the first may have come to its end, though that takes a thousand steps. */
START_TEST(freed)
{
    struct watch w[2];
    struct forge_engine *e = open_tiny(1);
    struct forge_request_params p = sampled(1, -1), q = sampled(2, -1);
    watch_init(&w[0]);
    watch_init(&w[1]);
    start(e);
    struct forge_request *running = submit(e, &p, &w[0]), *queued = submit(e, &q, &w[1]);
    await_pieces(&w[0], 2);
    forge_request_free(queued);
    forge_request_free(running);
    int pieces[] = {w[0].pieces, w[1].pieces}; /* no lock: nobody is called back any more, so a race is a finding */
    int ended = w[0].ended;
    stop(e);
    ck_assert_int_eq(w[0].pieces, pieces[0]);
    ck_assert_int_eq(w[1].pieces, pieces[1]);
    ck_assert_int_eq(w[0].ended, ended);
    ck_assert(w[1].pieces == 0 || ended == 1);
    ck_assert_uint_eq(forge_engine_stats(e)->finished, 2);
    forge_engine_close(e);
    watch_fini(&w[0]);
    watch_fini(&w[1]);
}
END_TEST

/* A request is stopped in the middle, goes on by forge_step, and ends with the thread again. */
START_TEST(stopped_while_busy)
{
    struct watch w;
    struct forge_engine *e = open_tiny(2);
    struct forge_request_params p = sampled(3, 200), same = p;
    struct forge_request *alone = generate(e, &same);
    watch_init(&w);
    start(e);
    struct forge_request *r = submit(e, &p, &w);
    await_pieces(&w, 2);
    stop(e);
    int pieces = w.pieces;
    ck_assert_int_ge(pieces, 2);
    stop(e); /* nothing runs: nothing happens */
    ck_assert_int_ge(forge_step(e, NULL), 0);
    ck_assert_int_ge(forge_step(e, NULL), 0);
    start(e);
    await_ends(&w, 1);
    stop(e);
    ck_assert_int_eq(forge_request_finish(r, 0), FORGE_FINISH_LENGTH);
    ck_assert_str_eq(text_of(r), text_of(alone));
    forge_request_free(alone);
    forge_request_free(r);
    forge_engine_close(e);
    watch_fini(&w);
}
END_TEST

/* ---- what callbacks may do, and what is refused ---- */

struct nested {
    struct watch w;
    struct forge_engine *e;
    struct forge_request *second;
    int stopped; /* what forge_engine_stop says in a callback */
};

static int submit_another(void *user, const struct forge_piece *p)
{
    struct nested *n = user;
    if (p->finish == FORGE_FINISH_NONE)
        return 0;
    struct forge_request_params q = sampled(5, 4);
    n->stopped = forge_engine_stop(n->e, NULL);
    n->second = submit(n->e, &q, &n->w);
    return 0;
}

START_TEST(in_callbacks)
{
    struct nested n = {.e = open_tiny(1)};
    struct forge_request_params p = sampled(4, 4);
    watch_init(&n.w);
    p.on_piece = submit_another;
    p.user = &n;
    start(n.e);
    struct forge_request *r = submit(n.e, &p, NULL);
    await_ends(&n.w, 1);
    ck_assert_int_eq(n.stopped, FORGE_ERR_ARG);
    ck_assert_int_eq(n.w.finish, FORGE_FINISH_LENGTH);
    forge_request_free(n.second);
    forge_request_free(r);
    forge_engine_close(n.e);
    watch_fini(&n.w);
}
END_TEST

static int free_self(void *user, const struct forge_piece *p)
{
    struct forge_request **r = user;
    (void)p;
    if (*r)
        forge_request_free(*r);
    *r = NULL;
    return 0;
}

START_TEST(freed_in_callback)
{
    struct watch w;
    struct forge_engine *e = open_tiny(1);
    struct forge_request_params p = sampled(4, 50), q = sampled(5, 4);
    struct forge_request *r, *second;
    watch_init(&w);
    p.on_piece = free_self;
    p.user = &r;
    r = submit(e, &p, NULL);
    start(e);
    second = submit(e, &q, &w);
    await_ends(&w, 1); /* one runs at a time: the first has gone */
    stop(e);
    ck_assert_ptr_null(r);
    forge_request_free(second);
    forge_engine_close(e);
    watch_fini(&w);
}
END_TEST

START_TEST(refused)
{
    struct forge_engine *e = open_tiny(1);
    struct forge_request_params p = sampled(1, 2);
    struct forge_error err = {0};
    start(e);
    ck_assert_int_eq(forge_engine_start(e, &err), FORGE_ERR_ARG);
    ck_assert_msg(strstr(err.message, "forge_engine_start"), "%s", err.message);
    ck_assert_int_eq(forge_step(e, &err), FORGE_ERR_ARG);
    ck_assert_msg(strstr(err.message, "own thread"), "%s", err.message);
    ck_assert_int_eq(forge_generate(e, &p, NULL, &err), FORGE_ERR_ARG);
    p.max_tokens = -2; /* a wrong value is told by submit itself, as ever */
    struct forge_request *r;
    ck_assert_int_eq(forge_submit(e, &p, &r, &err), FORGE_ERR_ARG);
    ck_assert_msg(strstr(err.message, "max_tokens"), "%s", err.message);
    stop(e);
    p.max_tokens = 2;
    ck_assert_int_eq(forge_generate(e, &p, NULL, &err), 0);
    forge_engine_close(e);
}
END_TEST

START_TEST(counts_of_other_sizes)
{
    struct {
        struct forge_engine_stats s;
        uint64_t later;
    } out;
    struct forge_engine *e = open_tiny(2);
    struct forge_request_params p = sampled(1, 2);
    forge_request_free(generate(e, &p));
    memset(&out, 0xFF, sizeof out);
    forge_engine_stats_copy(e, &out.s, sizeof out); /* a caller that is newer */
    ck_assert_uint_eq(out.s.finished, 1);
    ck_assert_uint_eq(out.later, 0);
    memset(&out, 0xFF, sizeof out);
    forge_engine_stats_copy(e, &out.s, sizeof out.s.max_seqs); /* and one that is older */
    ck_assert_int_eq(out.s.max_seqs, 2);
    ck_assert_int_eq(out.s.running, -1);
    forge_engine_close(e);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("own_thread");
    TCase *tc = tcase_create("thread");
    tcase_add_test(tc, many_threads);
    tcase_add_test(tc, cancelled);
    tcase_add_test(tc, freed);
    tcase_add_test(tc, stopped_while_busy);
    tcase_add_test(tc, in_callbacks);
    tcase_add_test(tc, freed_in_callback);
    tcase_add_test(tc, refused);
    tcase_add_test(tc, counts_of_other_sizes);
    suite_add_tcase(s, tc);
    return test_main(s);
}
