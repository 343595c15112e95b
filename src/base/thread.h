/* Threads: a pool that runs one function on all its threads, a single one, a mutex, a bell, the core count.
 * The only file that knows pthread (the server aside).  Nothing here depends on the
 * number of threads but speed. */
#ifndef FORGE_BASE_THREAD_H
#define FORGE_BASE_THREAD_H

#include <signal.h>
#include <stdbool.h>

#include "base/err.h"

/* Cores this process may use (affinity mask and cgroup quota), at least 1. */
int thread_count_default(void);

struct pool;
typedef void pool_fn(void *arg, int thread, int n_threads);

/* n_threads includes the caller's own; 1 starts none. */
int pool_new(struct pool **out, int n_threads, struct err *err);
void pool_free(struct pool *p);
int pool_size(const struct pool *p);
/* What a worker does while it looks for the next run before it sleeps: a little (a fraction of a microsecond) each time
 * it is called; false: there is nothing to do.  Set once, while nothing runs. */
typedef bool pool_idle_fn(void *arg, int thread);
void pool_while_idle(struct pool *p, pool_idle_fn *fn, void *arg);
/* Calls fn(arg, t, n) for t = 0..n-1, one per thread, and returns when all are done.
 * Not reentrant; one caller at a time. */
void pool_run(struct pool *p, pool_fn *fn, void *arg);
/* The same for calls that take from a common store until it is empty: threads that come only after the caller's own call
 * (t = 0) returned are left out, as where something else has their core. */
void pool_share(struct pool *p, pool_fn *fn, void *arg);

/* One thread that runs fn(arg) and takes no signals; thread_join waits for its end and frees it. */
struct thread;
int thread_start(struct thread **out, void (*fn)(void *arg), void *arg, struct err *err);
void thread_join(struct thread *t);
bool thread_is_self(const struct thread *t);

struct mutex;
struct mutex *mutex_new(void);
void mutex_free(struct mutex *m);
void mutex_lock(struct mutex *m);
void mutex_unlock(struct mutex *m);

/* Something to wait for, under a mutex of the caller's: bell_wait sleeps until a bell_ring that comes after it began
 * (and may wake without one), and holds the mutex again when it returns. */
struct bell;
struct bell *bell_new(void);
void bell_free(struct bell *b);
void bell_wait(struct bell *b, struct mutex *held);
void bell_ring(struct bell *b); /* wakes all that wait */

/* Around calls into a library that starts threads or programs of its own (compilers, linkers): these inherit that the
 * calling thread takes no interrupt (^C reaches every program of the terminal's group).  One that comes meanwhile
 * is delivered by release. */
struct interrupt_hold {
    sigset_t before;
};
void interrupt_hold(struct interrupt_hold *h);
void interrupt_release(const struct interrupt_hold *h);

/* One lock of the whole process, for calls into an outside library that keeps state of its own for all of it
 * and does not guard it well.  Held for such a call only; never twice by one thread. */
void process_lock(void);
void process_unlock(void);

#endif
