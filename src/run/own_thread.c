/* The engine's own thread: it steps while there is work, and sleeps otherwise.
 * Other threads never wait for a step: what they submit lies in an inbox that the
 * next step empties, what they free is marked and goes when a step has ended, and
 * the counts they read are those of the last step, copied.
 *
 * Two locks.  `inbox` guards what is handed over and is never held while anybody
 * is called; `calls` is held during each callback, so that nobody is called back
 * any more once forge_request_free has returned.
 * Knows nothing of what a step does. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/thread.h"
#include "run/engine.h"

struct own_thread {
    struct thread *thread;
    struct mutex *inbox, *calls;
    struct bell *bell;                    /* something came into the inbox, or was freed, or it is to stop */
    struct forge_request *newest;         /* submitted since the last step began, linked by `next`, ... */
    size_t n_newest;                      /* ... and how many */
    bool stop;
    struct forge_engine_stats stats;      /* of the last step that ended */
};

/* ---- what other threads hand over ---- */

bool own_submit(struct forge_engine *e, struct forge_request *r)
{
    struct own_thread *o = e->own;
    if (!o)
        return false;
    mutex_lock(o->inbox);
    r->next = o->newest;
    o->newest = r;
    o->n_newest++;
    o->stats.queued++;
    bell_ring(o->bell);
    mutex_unlock(o->inbox);
    return true;
}

struct forge_request *own_take(struct forge_engine *e, struct forge_request **freed)
{
    struct own_thread *o = e->own;
    struct forge_request *r = NULL, *first = NULL;
    own_lock(e);
    if (o) {
        r = o->newest;
        o->newest = NULL;
        o->n_newest = 0;
    }
    if (freed) {
        *freed = e->freed;
        e->freed = NULL;
    }
    own_unlock(e);
    while (r) { /* the oldest comes first */
        struct forge_request *next = r->next;
        r->next = first;
        first = r;
        r = next;
    }
    return first;
}

bool own_free(struct forge_request *r)
{
    struct own_thread *o = r->e->own;
    if (!o)
        return false;
    bool in_callback = thread_is_self(o->thread);
    if (!in_callback)
        mutex_lock(o->calls);
    r->closed = true;
    if (!in_callback)
        mutex_unlock(o->calls);
    forge_request_cancel(r);
    mutex_lock(o->inbox);
    assert(!r->freed);
    r->freed = true;
    r->next_freed = r->e->freed;
    r->e->freed = r;
    bell_ring(o->bell);
    mutex_unlock(o->inbox);
    return true;
}

void own_lock(const struct forge_engine *e)
{
    if (e->own)
        mutex_lock(e->own->inbox);
}

void own_unlock(const struct forge_engine *e)
{
    if (e->own)
        mutex_unlock(e->own->inbox);
}

bool own_call_begin(const struct forge_request *r)
{
    struct own_thread *o = r->e->own;
    if (o)
        mutex_lock(o->calls);
    if (!r->closed)
        return true;
    own_call_end(r);
    return false;
}

void own_call_end(const struct forge_request *r)
{
    if (r->e->own)
        mutex_unlock(r->e->own->calls);
}

/* ---- counts ---- */

void own_publish(struct forge_engine *e)
{
    struct own_thread *o = e->own;
    if (!o)
        return;
    mutex_lock(o->inbox);
    o->stats = e->stats;
    o->stats.queued += o->n_newest;
    mutex_unlock(o->inbox);
}

void forge_engine_stats_copy(const struct forge_engine *e, struct forge_engine_stats *out, size_t size)
{
    struct forge_engine_stats now;
    own_lock(e);
    now = e->own ? e->own->stats : e->stats;
    own_unlock(e);
    memset(out, 0, size);
    memcpy(out, &now, size < sizeof now ? size : sizeof now);
}

/* ---- the thread ---- */

/* Sleeps while there is nothing to do; false = it is to stop. */
static bool await_work(struct forge_engine *e)
{
    struct own_thread *o = e->own;
    mutex_lock(o->inbox);
    while (!o->stop && !o->newest && !e->freed && e->n_active == 0)
        bell_wait(o->bell, o->inbox);
    bool go = !o->stop;
    mutex_unlock(o->inbox);
    return go;
}

static void run(void *arg)
{
    struct forge_engine *e = arg;
    while (await_work(e))
        engine_step(e);
}

static void own_delete(struct own_thread *o)
{
    if (!o)
        return;
    bell_free(o->bell);
    mutex_free(o->calls);
    mutex_free(o->inbox);
    free(o);
}

int forge_engine_start(struct forge_engine *e, struct forge_error *err)
{
    struct err er = {0};
    int rc = refuse_in_callback(e, "forge_engine_start", err);
    if (rc < 0)
        return rc;
    struct own_thread *o = mem_array(1, sizeof *o);
    if (o) {
        o->inbox = mutex_new();
        o->calls = mutex_new();
        o->bell = bell_new();
    }
    if (!o || !o->inbox || !o->calls || !o->bell)
        rc = err_set(&er, ERR_NOMEM, "no memory for the engine's thread");
    if (rc == 0) {
        o->stats = e->stats;
        e->own = o;
        mutex_lock(o->inbox); /* its own handle is there before it looks for work */
        rc = thread_start(&o->thread, run, e, &er);
        mutex_unlock(o->inbox);
    }
    if (rc == 0)
        return 0;
    e->own = NULL;
    own_delete(o);
    return engine_error(err, rc, &er);
}

int forge_engine_stop(struct forge_engine *e, struct forge_error *err)
{
    struct own_thread *o = e->own;
    struct err er = {0};
    if (!o)
        return 0;
    if (thread_is_self(o->thread)) {
        err_set(&er, ERR_ARG, "forge_engine_stop was called from a callback");
        return engine_error(err, er.code, &er);
    }
    mutex_lock(o->inbox);
    o->stop = true;
    bell_ring(o->bell);
    mutex_unlock(o->inbox);
    thread_join(o->thread);
    request_reap(e);
    e->own = NULL;
    own_delete(o);
    engine_count(e);
    return 0;
}
