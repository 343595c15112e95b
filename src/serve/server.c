/* Opening, draining, closing; and the tick, which looks after clients: those that
 * left are cancelled, those that wait long are told that we live, those that are
 * slow are cut off.  Knows nothing of routes and fields. */
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/map.h"
#include "base/mem.h"
#include "serve/server.h"

#define UNREAD_MAX ((size_t)16 << 20)
#define HEAD_WAIT 10.0     /* of a connection that has sent no request yet */
#define HEAD_WAIT_FULL 1.0 /* where more than half of all connections are taken */
#define BODIES_MAX ((size_t)128 << 20)
#define TICK 0.1 /* seconds, at most */

/* The model's file or folder without its place and its suffix: nobody outside is told of paths. */
static void name_model(struct server *s)
{
    static const char *const suffixes[] = {".gguf", ".safetensors", ".pth", ".bin"};
    const char *path = forge_engine_info(s->e)->model_path;
    size_t end = strlen(path);
    while (end > 1 && path[end - 1] == '/')
        end--;
    size_t start = end;
    while (start > 0 && path[start - 1] != '/')
        start--;
    for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes; i++) {
        size_t n = strlen(suffixes[i]);
        if (end - start > n && memcmp(path + end - n, suffixes[i], n) == 0)
            end -= n;
    }
    struct buf b;
    buf_init(&b);
    buf_put_utf8_lossy(&b, path + start, end - start);
    size_t len = b.len < sizeof s->model_id ? b.len : sizeof s->model_id - 1;
    memcpy(s->model_id, buf_str(&b), len);
    buf_fini(&b);
    if (!len || strcmp(s->model_id, ".") == 0 || strcmp(s->model_id, "..") == 0)
        memcpy(s->model_id, "model", sizeof "model");
}

static char *copy(const char *s, bool *ok)
{
    char *c = s ? mem_strdup(s) : NULL;
    *ok = *ok && (c || !s);
    return c;
}

static int open_server(struct server *s, struct err *err)
{
    struct forge_engine_stats stats;
    struct forge_error why = {0};
    bool ok = true;
    s->lock = mutex_new();
    s->counts_lock = mutex_new();
    s->api_key = copy(s->p.api_key, &ok);
    s->cors = copy(s->p.cors, &ok);
    s->host = copy(s->p.host, &ok);
    if (!s->lock || !s->counts_lock || !ok)
        return err_set(err, ERR_NOMEM, "no memory for a server");
    forge_engine_stats_copy(s->e, &stats, sizeof stats);
    s->slots = stats.max_seqs;
    s->t_created = time(NULL);
    s->t_start = clock_now();
    name_model(s);
    if (forge_engine_start(s->e, &why) < 0)
        return err_set(err, why.code, "%s", why.message);
    s->engine_started = true;
    return http_start(s, err);
}

int server_open(struct server **out, struct forge_engine *e, const struct serve_params *p, struct err *err)
{
    *out = NULL;
    if (p->port < 0 || p->port > 65535)
        return err_set(err, ERR_ARG, "port %d; it must be 0 to 65535", p->port);
    if (!(p->timeout >= 1 && p->timeout <= 1e6) || !(p->keep_alive > 0 && p->keep_alive <= 1e6) || p->max_queue < 0)
        return err_set(err, ERR_ARG, "timeout %g, keep_alive %g, max_queue %d: out of range", p->timeout, p->keep_alive,
                       p->max_queue);
    struct server *s = mem_array(1, sizeof *s);
    if (!s)
        return err_set(err, ERR_NOMEM, "no memory for a server");
    s->e = e;
    s->p = *p;
    s->listen_fd = -1;
    s->unread_max = UNREAD_MAX;
    s->head_wait = HEAD_WAIT;
    s->bodies_max = BODIES_MAX;
    atomic_init(&s->n_body_bytes, 0);
    atomic_init(&s->draining, false);
    atomic_init(&s->device_failed, false);
    atomic_init(&s->n_requests, 0);
    int rc = open_server(s, err);
    if (rc < 0) {
        server_close(s);
        return rc;
    }
    *out = s;
    return 0;
}

const char *server_url(const struct server *s)
{
    return s->url;
}

bool server_is_local(const struct server *s)
{
    return s->local;
}

/* ---- the tick ---- */

/* Under x->lock. */
static void look_after(struct exchange *x, double now)
{
    if (!x->watched || x->done)
        return;
    if (!x->gone && http_left(x)) {
        x->gone = true;
        gen_cancel(x);
    } else if (x->gen->api.stream && x->out.len == 0 && now - x->t_sent > x->s->p.keep_alive) {
        sse_alive(x);
        http_resume(x);
    }
}

/* Seconds that a client may let a connection wait: those that never sent anything take the places of others. */
static double patience(const struct server *s, const struct peer *p)
{
    double most = p->asked ? s->p.timeout : s->n_peers > CONNECTIONS_MAX / 2 ? HEAD_WAIT_FULL : s->head_wait;
    return most < s->p.timeout ? most : s->p.timeout;
}

double server_tick(struct server *s)
{
    double now = clock_now();
    mutex_lock(s->lock);
    for (struct exchange *x = s->first; x; x = x->next) {
        mutex_lock(x->lock);
        look_after(x, now);
        mutex_unlock(x->lock);
    }
    for (struct peer *p = s->peers; p; p = p->next)
        if (!p->busy && p->fd >= 0 && now - p->t_since > patience(s, p))
            shutdown(p->fd, SHUT_RDWR); /* libmicrohttpd sees the end, and closes */
    bool busy = s->first != NULL;
    mutex_unlock(s->lock);
    return !busy ? 5 * TICK : s->p.keep_alive < 2 * TICK ? s->p.keep_alive / 2 : TICK;
}

/* ---- the end ---- */

void server_drain(struct server *s)
{
    atomic_store(&s->draining, true);
}

/* No connection is taken any more. */
static void stop_listening(struct server *s)
{
    MHD_quiesce_daemon(s->daemon);
    close(s->listen_fd);
    s->listen_fd = -1;
}

size_t server_n_running(struct server *s)
{
    mutex_lock(s->lock);
    size_t n = s->n_exchanges;
    mutex_unlock(s->lock);
    return n;
}

/* No connection may be suspended when the daemon stops: every request ends first, which takes a step.  One that is
 * being submitted has its places already. */
static void end_requests(struct server *s)
{
    while (atomic_load(&s->n_requests) > 0) {
        mutex_lock(s->lock);
        for (struct exchange *x = s->first; x; x = x->next) {
            mutex_lock(x->lock);
            if (x->watched && !x->done)
                gen_cancel(x);
            mutex_unlock(x->lock);
        }
        mutex_unlock(s->lock);
        usleep(5000);
    }
}

void server_close(struct server *s)
{
    if (!s)
        return;
    if (s->daemon) {
        server_drain(s);
        stop_listening(s);
        end_requests(s);
        MHD_stop_daemon(s->daemon);
    } else if (s->listen_fd >= 0)
        close(s->listen_fd);
    if (s->engine_started)
        forge_engine_stop(s->e, NULL);
    mutex_free(s->lock);
    mutex_free(s->counts_lock);
    free(s->api_key);
    free(s->cors);
    free(s->host);
    free(s);
}
