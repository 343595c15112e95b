/* base/thread: every thread runs once a round, rounds do not overlap, pools
 * of one and of more threads than cores work, the mutex excludes.
 *
 * Made to be run under the thread sanitizer, too: what is shared is only what the pool orders. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/thread.h"
#include "tests/test.h"

#define MAX_THREADS 16

struct round {
    int calls[MAX_THREADS]; /* one element a thread: no sharing, so a race is a finding */
    int n_threads;
    long sum[MAX_THREADS];
};

static void count_call(void *arg, int t, int n)
{
    struct round *r = arg;
    r->calls[t]++;
    r->sum[t] += n;
}

static const int sizes[] = {1, 2, 3, 8, MAX_THREADS};

START_TEST(rounds)
{
    struct pool *p;
    struct err e;
    struct round r = {.n_threads = sizes[_i]};
    int n_rounds = sizes[_i] > 4 ? 300 : 3000;
    ck_assert_int_eq(pool_new(&p, sizes[_i], &e), 0);
    ck_assert_int_eq(pool_size(p), sizes[_i]);
    for (int round = 1; round <= n_rounds; round++) {
        pool_run(p, count_call, &r);
        for (int t = 0; t < MAX_THREADS; t++) /* seen without a lock: the run is over */
            ck_assert_int_eq(r.calls[t], t < sizes[_i] ? round : 0);
    }
    for (int t = 0; t < sizes[_i]; t++)
        ck_assert_int_eq(r.sum[t], (long)n_rounds * sizes[_i]);
    pool_free(p);
}
END_TEST

struct idle {
    atomic_int calls, strangers;
    int n_threads;
};

static bool pass_time(void *arg, int t)
{
    struct idle *i = arg;
    atomic_fetch_add(&i->calls, 1);
    if (t < 1 || t >= i->n_threads) /* only workers wait for a round */
        atomic_fetch_add(&i->strangers, 1);
    return atomic_load(&i->calls) % 2 == 0;
}

/* Rounds are the same with something to do between them; it is done where threads look before they sleep. */
START_TEST(while_idle)
{
    struct pool *p;
    struct err e;
    struct round r = {.n_threads = sizes[_i]};
    struct idle idle = {.n_threads = sizes[_i]};
    int round = 0;
    bool looks = sizes[_i] > 1 && sizes[_i] <= thread_count_default();
    ck_assert_int_eq(pool_new(&p, sizes[_i], &e), 0);
    pool_while_idle(p, pass_time, &idle);
    while (round < 300 || (looks && atomic_load(&idle.calls) == 0)) {
        pool_run(p, count_call, &r);
        round++;
        for (int t = 0; t < sizes[_i]; t++)
            ck_assert_int_eq(r.calls[t], round);
    }
    ck_assert_int_eq(atomic_load(&idle.strangers), 0);
    ck_assert(looks || atomic_load(&idle.calls) == 0);
    pool_free(p);
}
END_TEST

struct store {
    atomic_int left, taken, late;
    atomic_bool over;
};

static void take_all(void *arg, int t, int n)
{
    struct store *s = arg;
    (void)t, (void)n;
    if (atomic_load(&s->over))
        atomic_fetch_add(&s->late, 1);
    while (atomic_fetch_sub(&s->left, 1) > 0)
        atomic_fetch_add(&s->taken, 1);
}

/* All is taken, by whoever came; nobody comes when it is over; and those left out are there for the next round. */
START_TEST(shares)
{
    struct pool *p;
    struct err e;
    struct store s;
    struct round r = {.n_threads = sizes[_i]};
    int n_rounds = sizes[_i] > 4 ? 300 : 3000;
    atomic_init(&s.late, 0);
    atomic_init(&s.over, true);
    ck_assert_int_eq(pool_new(&p, sizes[_i], &e), 0);
    for (int round = 1; round <= n_rounds; round++) {
        int n = round % 50;
        atomic_store(&s.left, n);
        atomic_store(&s.taken, 0);
        atomic_store(&s.over, false);
        pool_share(p, take_all, &s);
        atomic_store(&s.over, true);
        ck_assert_int_eq(atomic_load(&s.taken), n);
        if (round % 7 != 0)
            continue;
        pool_run(p, count_call, &r);
        for (int t = 0; t < sizes[_i]; t++)
            ck_assert_int_eq(r.calls[t], round / 7);
    }
    pool_free(p);
    ck_assert_int_eq(atomic_load(&s.late), 0);
}
END_TEST

static const int bad_sizes[] = {0, -1, 1 << 20};

START_TEST(sizes_refused)
{
    struct pool *p = NULL;
    struct err e;
    ck_assert_int_eq(pool_new(&p, bad_sizes[_i], &e), ERR_ARG);
    ck_assert_ptr_null(p);
    ck_assert_msg(strstr(e.msg, "threads"), "%s", e.msg);
}
END_TEST

START_TEST(come_and_go)
{
    pool_free(NULL);
    for (int i = 0; i < 50; i++) { /* freed at once, before its workers slept or ran */
        struct pool *p;
        struct round r = {0};
        ck_assert_int_eq(pool_new(&p, 1 + i % 5, NULL), 0);
        if (i % 2)
            pool_run(p, count_call, &r);
        pool_free(p);
    }
    ck_assert_int_ge(thread_count_default(), 1);
}
END_TEST

struct shared {
    struct mutex *m;
    long n;
};

static void add_locked(void *arg, int t, int n)
{
    struct shared *s = arg;
    (void)t;
    (void)n;
    for (int i = 0; i < 5000; i++) {
        mutex_lock(s->m);
        s->n++;
        mutex_unlock(s->m);
    }
}

START_TEST(exclusion)
{
    struct shared s = {.m = mutex_new()};
    struct pool *p;
    ck_assert_ptr_nonnull(s.m);
    ck_assert_int_eq(pool_new(&p, 4, NULL), 0);
    pool_run(p, add_locked, &s);
    ck_assert_int_eq(s.n, 4 * 5000);
    pool_free(p);
    mutex_free(s.m);
    mutex_free(NULL);
}
END_TEST

/* Two pools used by two threads at once do not know of each other. */
static void use_own_pool(void *arg, int t, int n)
{
    struct round *r = (struct round *)arg + t;
    struct pool *p;
    (void)n;
    if (pool_new(&p, 3, NULL) != 0)
        return;
    for (int i = 0; i < 200; i++)
        pool_run(p, count_call, r);
    pool_free(p);
}

START_TEST(side_by_side)
{
    struct round r[2] = {{.n_threads = 3}, {.n_threads = 3}};
    struct pool *p;
    ck_assert_int_eq(pool_new(&p, 2, NULL), 0);
    pool_run(p, use_own_pool, r);
    for (int i = 0; i < 2; i++)
        for (int t = 0; t < 3; t++)
            ck_assert_int_eq(r[i].calls[t], 200);
    pool_free(p);
}
END_TEST

#define COUNT(a) (int)(sizeof(a) / sizeof((a)[0]))

int main(void)
{
    Suite *s = suite_create("thread");
    TCase *c = tcase_create("pool");
    tcase_add_loop_test(c, rounds, 0, COUNT(sizes));
    tcase_add_loop_test(c, while_idle, 0, COUNT(sizes));
    tcase_add_loop_test(c, shares, 0, COUNT(sizes));
    tcase_add_loop_test(c, sizes_refused, 0, COUNT(bad_sizes));
    tcase_add_test(c, come_and_go);
    tcase_add_test(c, exclusion);
    tcase_add_test(c, side_by_side);
    suite_add_tcase(s, c);
    return test_main(s);
}
