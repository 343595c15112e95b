/* The thread pool, the single thread, the mutex, the core count.  The only file outside the
 * server that knows pthread.
 *
 * A run is published by raising `round` under the lock; workers look at it
 * for a short time without sleeping (a decode step is many short runs), then
 * wait on a condition.  The machine may be shared, so the look is bounded, and
 * who shares out its work need not wait for a worker that has not come. */
#include "base/thread.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/cgroup.h"
#include "base/clock.h"
#include "base/mem.h"

#define POOL_MAX 1024
#define SPIN_SECONDS 20e-6

struct worker {
    struct pool *pool;
    int index;
    pthread_t thread;
    atomic_uint taken; /* the last round that it took part in, or that went on without it */
};

struct pool {
    int n_threads;
    double spin;             /* seconds of looking before sleeping; 0 = more threads than cores */
    struct worker *workers;  /* [n_threads - 1]; worker i is thread i + 1 */
    int n_started;
    pthread_mutex_t lock;
    pthread_cond_t start, done;
    atomic_uint round;       /* raised once per run, under lock */
    atomic_int n_busy;       /* workers that this round waits for */
    pool_idle_fn *_Atomic idle; /* NULL = none */
    void *idle_arg;          /* written before it */
    pool_fn *fn;             /* written before round is raised */
    void *arg;
    atomic_bool stop;        /* likewise */
};

/* What a spin looks at: still the same round, or still somebody busy. */
static bool waiting(struct pool *p, bool for_round, unsigned seen)
{
    return for_round ? atomic_load_explicit(&p->round, memory_order_acquire) == seen
                     : atomic_load_explicit(&p->n_busy, memory_order_acquire) != 0;
}

static void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* Between two looks: a worker does a little of what it may do meanwhile. */
static void pass_time(struct pool *p, const struct worker *w)
{
    pool_idle_fn *idle = w ? atomic_load_explicit(&p->idle, memory_order_acquire) : NULL;
    if (!idle || !idle(p->idle_arg, w->index))
        relax();
}

/* Looks for at most p->spin seconds, then sleeps until the wait is over: a worker for the next round, the caller (w is
 * NULL) for the workers. */
static void await(struct pool *p, const struct worker *w, unsigned seen)
{
    bool for_round = w != NULL;
    double end = p->spin > 0 ? clock_now() + p->spin : 0;
    while (p->spin > 0 && waiting(p, for_round, seen)) {
        for (int i = 0; i < 32 && waiting(p, for_round, seen); i++)
            pass_time(p, w);
        if (clock_now() > end)
            break;
    }
    if (!waiting(p, for_round, seen))
        return;
    pthread_mutex_lock(&p->lock);
    while (waiting(p, for_round, seen))
        pthread_cond_wait(for_round ? &p->start : &p->done, &p->lock);
    pthread_mutex_unlock(&p->lock);
}

/* One of two gets a worker's part in a round: the worker, or the caller, who then goes on without it. */
static bool take(struct worker *w, unsigned round)
{
    unsigned before = round - 1;
    return atomic_compare_exchange_strong_explicit(&w->taken, &before, round, memory_order_acq_rel, memory_order_relaxed);
}

static void *worker_main(void *arg)
{
    struct worker *w = arg;
    struct pool *p = w->pool;
    for (unsigned seen = 0;;) {
        await(p, w, seen);
        seen = atomic_load_explicit(&p->round, memory_order_acquire);
        if (atomic_load_explicit(&p->stop, memory_order_relaxed))
            return NULL;
        if (!take(w, seen))
            continue;
        p->fn(p->arg, w->index, p->n_threads);
        if (atomic_fetch_sub_explicit(&p->n_busy, 1, memory_order_acq_rel) == 1) {
            pthread_mutex_lock(&p->lock);
            pthread_cond_signal(&p->done);
            pthread_mutex_unlock(&p->lock);
        }
    }
}

static void publish(struct pool *p)
{
    pthread_mutex_lock(&p->lock);
    atomic_fetch_add_explicit(&p->round, 1, memory_order_release);
    pthread_cond_broadcast(&p->start);
    pthread_mutex_unlock(&p->lock);
}

void interrupt_hold(struct interrupt_hold *h)
{
    sigset_t interrupt;
    sigemptyset(&interrupt);
    sigaddset(&interrupt, SIGINT);
    pthread_sigmask(SIG_BLOCK, &interrupt, &h->before);
}

void interrupt_release(const struct interrupt_hold *h)
{
    pthread_sigmask(SIG_SETMASK, &h->before, NULL);
}

/* Our threads take no signals: those belong to the program's own. */
static int start_quiet(pthread_t *thread, void *(*main)(void *), void *arg)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int rc = pthread_create(thread, NULL, main, arg);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return rc;
}

static int start_workers(struct pool *p)
{
    int rc = 0;
    for (int i = 0; i < p->n_threads - 1 && rc == 0; i++) {
        p->workers[i].pool = p;
        p->workers[i].index = i + 1;
        atomic_init(&p->workers[i].taken, 0);
        rc = start_quiet(&p->workers[i].thread, worker_main, &p->workers[i]);
        if (rc == 0)
            p->n_started++;
    }
    return rc;
}

int pool_new(struct pool **out, int n_threads, struct err *err)
{
    *out = NULL;
    if (n_threads < 1 || n_threads > POOL_MAX)
        return err_set(err, ERR_ARG, "%d threads: 1 to %d are possible", n_threads, POOL_MAX);
    struct pool *p = mem_array(1, sizeof *p);
    struct worker *workers = mem_array((size_t)n_threads, sizeof *workers);
    if (!p || !workers) {
        free(p);
        free(workers);
        return err_set(err, ERR_NOMEM, "out of memory for %d threads", n_threads);
    }
    p->workers = workers;
    p->n_threads = n_threads;
    p->spin = n_threads <= thread_count_default() ? SPIN_SECONDS : 0;
    atomic_init(&p->round, 0);
    atomic_init(&p->n_busy, 0);
    atomic_init(&p->idle, NULL);
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->start, NULL);
    pthread_cond_init(&p->done, NULL);
    int rc = start_workers(p);
    if (rc != 0) {
        int n = p->n_started;
        pool_free(p);
        return err_set(err, ERR_NOMEM, "cannot start thread %d of %d: %s", n + 2, n_threads,
                       strerror(rc));
    }
    *out = p;
    return 0;
}

void pool_free(struct pool *p)
{
    if (!p)
        return;
    atomic_store_explicit(&p->stop, true, memory_order_relaxed);
    publish(p);
    for (int i = 0; i < p->n_started; i++)
        pthread_join(p->workers[i].thread, NULL);
    pthread_cond_destroy(&p->done);
    pthread_cond_destroy(&p->start);
    pthread_mutex_destroy(&p->lock);
    free(p->workers);
    free(p);
}

void pool_while_idle(struct pool *p, pool_idle_fn *fn, void *arg)
{
    p->idle_arg = arg;
    atomic_store_explicit(&p->idle, fn, memory_order_release);
}

int pool_size(const struct pool *p)
{
    return p->n_threads;
}

static void run(struct pool *p, pool_fn *fn, void *arg, bool all)
{
    if (p->n_threads == 1) {
        fn(arg, 0, 1);
        return;
    }
    p->fn = fn;
    p->arg = arg;
    atomic_store_explicit(&p->n_busy, p->n_threads - 1, memory_order_relaxed);
    publish(p);
    fn(arg, 0, p->n_threads);
    unsigned round = atomic_load_explicit(&p->round, memory_order_relaxed);
    for (int i = 0; !all && i < p->n_threads - 1; i++)
        if (take(&p->workers[i], round))
            atomic_fetch_sub_explicit(&p->n_busy, 1, memory_order_relaxed);
    await(p, NULL, 0);
}

void pool_run(struct pool *p, pool_fn *fn, void *arg)
{
    run(p, fn, arg, true);
}

void pool_share(struct pool *p, pool_fn *fn, void *arg)
{
    run(p, fn, arg, false);
}

struct thread {
    pthread_t thread;
    void (*fn)(void *arg);
    void *arg;
};

static void *thread_main(void *arg)
{
    struct thread *t = arg;
    t->fn(t->arg);
    return NULL;
}

int thread_start(struct thread **out, void (*fn)(void *arg), void *arg, struct err *err)
{
    *out = NULL;
    struct thread *t = mem_array(1, sizeof *t);
    if (!t)
        return err_set(err, ERR_NOMEM, "no memory for a thread");
    t->fn = fn;
    t->arg = arg;
    int rc = start_quiet(&t->thread, thread_main, t);
    if (rc != 0) {
        free(t);
        return err_set(err, ERR_NOMEM, "cannot start a thread: %s", strerror(rc));
    }
    *out = t;
    return 0;
}

void thread_join(struct thread *t)
{
    if (t)
        pthread_join(t->thread, NULL);
    free(t);
}

bool thread_is_self(const struct thread *t)
{
    return pthread_equal(t->thread, pthread_self()) != 0;
}

struct bell {
    pthread_cond_t c;
};

struct bell *bell_new(void)
{
    struct bell *b = mem_array(1, sizeof *b);
    if (b && pthread_cond_init(&b->c, NULL) != 0) {
        free(b);
        return NULL;
    }
    return b;
}

void bell_free(struct bell *b)
{
    if (b)
        pthread_cond_destroy(&b->c);
    free(b);
}

void bell_ring(struct bell *b)
{
    pthread_cond_broadcast(&b->c);
}

struct mutex {
    pthread_mutex_t m;
};

void bell_wait(struct bell *b, struct mutex *held)
{
    pthread_cond_wait(&b->c, &held->m);
}

struct mutex *mutex_new(void)
{
    struct mutex *m = mem_array(1, sizeof *m);
    if (m && pthread_mutex_init(&m->m, NULL) != 0) {
        free(m);
        return NULL;
    }
    return m;
}

void mutex_free(struct mutex *m)
{
    if (m)
        pthread_mutex_destroy(&m->m);
    free(m);
}

void mutex_lock(struct mutex *m)
{
    pthread_mutex_lock(&m->m);
}

void mutex_unlock(struct mutex *m)
{
    pthread_mutex_unlock(&m->m);
}

/* The one lock that guards what is not ours: a library's own global state. */
static pthread_mutex_t outside = PTHREAD_MUTEX_INITIALIZER;

void process_lock(void)
{
    pthread_mutex_lock(&outside);
}

void process_unlock(void)
{
    pthread_mutex_unlock(&outside);
}

/* Cores in this process's affinity mask; the set grows until the kernel's fits. */
static int affinity_count(void)
{
    for (int n = 1024; n <= 1 << 20; n *= 2) {
        cpu_set_t *set = CPU_ALLOC((size_t)n);
        if (!set)
            return 0;
        size_t size = CPU_ALLOC_SIZE((size_t)n);
        int rc = sched_getaffinity(0, size, set);
        int count = rc == 0 ? CPU_COUNT_S(size, set) : 0;
        CPU_FREE(set);
        if (rc == 0 || errno != EINVAL)
            return count;
    }
    return 0;
}

int thread_count_default(void)
{
    double quota;
    int n = affinity_count();
    if (cgroup_cpu_quota(CGROUP_SELF, CGROUP_ROOT, &quota) && ceil(quota) < n)
        n = (int)ceil(quota);
    return n < 1 ? 1 : n < POOL_MAX ? n : POOL_MAX;
}
