/* libmicrohttpd: connections, bodies in, responses out.
 *
 * An exchange that waits for the engine suspends its connection, and a callback
 * resumes it; no thread waits.  Owns the listening socket and what is sent, and
 * knows nothing of what a request asks for.
 *
 * A client that has left is seen by its socket (the peer closed its side): also one
 * that waits for a whole answer, where nothing is written that could fail.  One that
 * has only ended what it sends looks the same until something is written, so it
 * counts as gone, too, while something is generated for it (as with Go's and nginx's). */
#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "serve/server.h"

#define POOL 8                     /* threads that handle requests: templates, prompts and grammars take theirs a while */
#define HEADERS_MAX ((size_t)64 << 10)
#define SEND_BLOCK 4096

/* ---- an exchange ---- */

static struct exchange *exchange_new(struct server *s, struct MHD_Connection *conn, const char *method)
{
    struct exchange *x = mem_array(1, sizeof *x);
    if (!x)
        return NULL;
    x->lock = mutex_new();
    if (!x->lock) {
        free(x);
        return NULL;
    }
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(conn, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    x->s = s;
    x->conn = conn;
    x->peer = info ? info->socket_context : NULL;
    x->t_start = x->t_sent = clock_now();
    snprintf(x->method, sizeof x->method, "%s", method);
    buf_init(&x->body);
    buf_init(&x->reply.body);
    buf_init(&x->out);
    mutex_lock(s->lock);
    if (x->peer) {
        x->peer->asked = true;
        x->peer->t_since = x->t_start; /* what it may take now is the body */
    }
    x->next = s->first;
    if (s->first)
        s->first->prev = x;
    s->first = x;
    s->n_exchanges++;
    mutex_unlock(s->lock);
    return x;
}

static void forget_body(struct exchange *x)
{
    atomic_fetch_sub(&x->s->n_body_bytes, x->body.len);
    buf_fini(&x->body);
}

static void exchange_free(struct exchange *x)
{
    struct server *s = x->s;
    mutex_lock(s->lock);
    if (x->prev)
        x->prev->next = x->next;
    else
        s->first = x->next;
    if (x->next)
        x->next->prev = x->prev;
    s->n_exchanges--;
    if (x->peer) {
        x->peer->busy = false;
        x->peer->t_since = clock_now();
    }
    mutex_unlock(s->lock);
    gen_free(x);
    forget_body(x);
    buf_fini(&x->reply.body);
    buf_fini(&x->out);
    free((char *)x->rest);
    mutex_free(x->lock);
    free(x);
}

bool http_left(const struct exchange *x)
{
    struct pollfd p = {.fd = x->peer ? x->peer->fd : -1, .events = POLLRDHUP};
    return p.fd >= 0 && poll(&p, 1, 0) > 0 && (p.revents & (POLLRDHUP | POLLHUP | POLLERR | POLLNVAL)) != 0;
}

void http_resume(struct exchange *x)
{
    if (!x->suspended)
        return;
    x->suspended = false;
    MHD_resume_connection(x->conn);
}

/* ---- responses ---- */

/* Also where a client is always a little behind: moved once for each half. */
static void forget_sent(struct exchange *x)
{
    size_t left = x->out.len - x->out_pos;
    if (left > x->out_pos)
        return;
    if (left > 0)
        memmove(x->out.data, x->out.data + x->out_pos, left);
    x->out.len = left;
    x->out_pos = 0;
}

/* More of a stream; sleeps until there is some. */
static ssize_t read_stream(void *cls, uint64_t pos, char *to, size_t max)
{
    struct exchange *x = cls;
    ssize_t n;
    (void)pos;
    mutex_lock(x->lock);
    size_t left = x->out.len - x->out_pos;
    if (x->gone || x->out.failed)
        n = MHD_CONTENT_READER_END_WITH_ERROR;
    else if (left > 0) {
        size_t m = left < max ? left : max;
        memcpy(to, x->out.data + x->out_pos, m);
        n = (ssize_t)m;
        x->out_pos += m;
        forget_sent(x);
    } else if (x->done)
        n = MHD_CONTENT_READER_END_OF_STREAM;
    else {
        n = 0;
        x->suspended = true;
        MHD_suspend_connection(x->conn);
    }
    mutex_unlock(x->lock);
    return n;
}

static void add_headers(struct MHD_Response *r, const struct exchange *x)
{
    const struct reply *a = &x->reply;
    char seconds[16];
    snprintf(seconds, sizeof seconds, "%d", a->retry_after);
    const struct {
        bool on;
        const char *name, *value;
    } headers[] = {
        {a->type != NULL, MHD_HTTP_HEADER_CONTENT_TYPE, a->type},
        {a->allow != NULL, MHD_HTTP_HEADER_ALLOW, a->allow},
        {a->retry_after > 0, MHD_HTTP_HEADER_RETRY_AFTER, seconds},
        {a->close, MHD_HTTP_HEADER_CONNECTION, "close"},
        {a->status == 401, MHD_HTTP_HEADER_WWW_AUTHENTICATE, "Bearer"},
        {true, MHD_HTTP_HEADER_CACHE_CONTROL, a->is_page ? "no-cache" : "no-store"},
        {true, "X-Content-Type-Options", "nosniff"},
        {a->is_page, "Content-Security-Policy",
         "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; connect-src 'self'; img-src data:; "
         "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"},
        {x->s->cors != NULL, MHD_HTTP_HEADER_ACCESS_CONTROL_ALLOW_ORIGIN, x->s->cors},
        {x->s->cors != NULL && strcmp(x->s->cors, "*") != 0, MHD_HTTP_HEADER_VARY, "Origin"},
        {x->s->cors != NULL && strcmp(x->method, "OPTIONS") == 0, "Access-Control-Allow-Methods", "GET, POST, OPTIONS"},
        {x->s->cors != NULL && strcmp(x->method, "OPTIONS") == 0, "Access-Control-Allow-Headers", "Authorization, Content-Type"},
        {x->s->cors != NULL && strcmp(x->method, "OPTIONS") == 0, "Access-Control-Max-Age", "600"},
    };
    for (size_t i = 0; i < sizeof headers / sizeof *headers; i++)
        if (headers[i].on)
            MHD_add_response_header(r, headers[i].name, headers[i].value);
}

static enum MHD_Result send_response(struct exchange *x, struct MHD_Response *r, unsigned status)
{
    if (!r)
        return MHD_NO; /* no memory: the connection is closed */
    x->state = EX_ANSWERED;
    add_headers(r, x);
    enum MHD_Result ok = MHD_queue_response(x->conn, status, r);
    MHD_destroy_response(r);
    return ok;
}

static enum MHD_Result send_reply(struct exchange *x)
{
    struct reply *a = &x->reply;
    const char *data = a->fixed ? a->fixed : buf_str(&a->body);
    size_t len = a->fixed ? a->fixed_len : a->body.len;
    if (a->body.failed)
        return MHD_NO;
    /* the exchange outlives its response */
    return send_response(x, MHD_create_response_from_buffer(len, (void *)data, MHD_RESPMEM_PERSISTENT),
                         (unsigned)a->status);
}

static enum MHD_Result send_stream(struct exchange *x)
{
    x->reply.type = "text/event-stream; charset=utf-8";
    x->reply.status = 200;
    return send_response(x, MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, SEND_BLOCK, read_stream, x, NULL), 200);
}

/* What a handler left behind: a reply, a stream, or something to wait for. */
static enum MHD_Result go_on(struct exchange *x)
{
    if (x->reply.status)
        return send_reply(x);
    if (x->gen->api.stream)
        return send_stream(x);
    bool done, gone;
    mutex_lock(x->lock);
    done = x->done;
    gone = x->gone;
    if (!done) {
        x->suspended = true;
        MHD_suspend_connection(x->conn);
    }
    mutex_unlock(x->lock);
    if (!done)
        return MHD_YES;
    if (gone)
        return MHD_NO;
    answer(x);
    return send_reply(x);
}

/* ---- requests ---- */

static enum MHD_Result begin(struct server *s, struct MHD_Connection *conn, const char *url, const char *method, void **con_cls)
{
    struct exchange *x = exchange_new(s, conn, method);
    const char *length = MHD_lookup_connection_value(conn, MHD_HEADER_KIND, MHD_HTTP_HEADER_CONTENT_LENGTH);
    *con_cls = x;
    if (!x)
        return MHD_NO;
    route_begin(x, url);
    if (!http_check(x, url)) {
        x->drop = true;
        return send_reply(x);
    }
    if (length && strtoull(length, NULL, 10) > BODY_MAX) {
        x->too_large = x->drop = true;
        route_handle(x);
        return send_reply(x);
    }
    return MHD_YES;
}

static bool has_room(struct server *s, size_t n)
{
    if (atomic_fetch_add(&s->n_body_bytes, n) + n <= s->bodies_max)
        return true;
    atomic_fetch_sub(&s->n_body_bytes, n);
    return false;
}

static void take_body(struct exchange *x, const char *data, size_t n)
{
    size_t before = x->body.len;
    if (!x->drop && n > BODY_MAX - before)
        x->too_large = x->drop = true;
    else if (!x->drop && !has_room(x->s, n))
        x->no_room = x->drop = true;
    if (x->drop) {
        forget_body(x);
        return;
    }
    buf_put(&x->body, data, n);
    if (x->body.len < before + n) /* no memory, which its handler tells */
        atomic_fetch_sub(&x->s->n_body_bytes, before + n - x->body.len);
}

static enum MHD_Result on_request(void *cls, struct MHD_Connection *conn, const char *url, const char *method,
                                  const char *version, const char *upload, size_t *upload_size, void **con_cls)
{
    struct exchange *x = *con_cls;
    (void)version;
    if (!x)
        return begin(cls, conn, url, method, con_cls);
    if (x->state == EX_ANSWERED) { /* refused already: what comes is not read */
        *upload_size = 0;
        return MHD_YES;
    }
    if (*upload_size > 0) {
        take_body(x, upload, *upload_size);
        *upload_size = 0;
        return MHD_YES;
    }
    if (x->state == EX_READING) {
        x->state = EX_GENERATING;
        mutex_lock(x->s->lock);
        if (x->peer)
            x->peer->busy = true;
        mutex_unlock(x->s->lock);
        route_handle(x);
        forget_body(x);
    }
    return go_on(x);
}

static void on_completed(void *cls, struct MHD_Connection *conn, void **con_cls, enum MHD_RequestTerminationCode how)
{
    struct exchange *x = *con_cls;
    (void)cls;
    (void)conn;
    *con_cls = NULL;
    if (!x)
        return;
    mutex_lock(x->lock);
    x->gone |= how != MHD_REQUEST_TERMINATED_COMPLETED_OK;
    mutex_unlock(x->lock);
    counts_answered(x);
    log_exchange(x);
    exchange_free(x);
}

static void on_connection(void *cls, struct MHD_Connection *conn, void **socket_context, enum MHD_ConnectionNotificationCode code)
{
    struct server *s = cls;
    struct peer *p = *socket_context;
    mutex_lock(s->lock);
    if (code == MHD_CONNECTION_NOTIFY_STARTED && (p = mem_array(1, sizeof *p))) {
        const union MHD_ConnectionInfo *info = MHD_get_connection_info(conn, MHD_CONNECTION_INFO_CONNECTION_FD);
        p->fd = info ? info->connect_fd : -1;
        p->t_since = clock_now();
        p->next = s->peers;
        if (p->next)
            p->next->prev = p;
        s->peers = p;
        s->n_peers++;
        *socket_context = p;
    } else if (code == MHD_CONNECTION_NOTIFY_CLOSED && p) {
        if (p->prev)
            p->prev->next = p->next;
        else
            s->peers = p->next;
        if (p->next)
            p->next->prev = p->prev;
        s->n_peers--;
        free(p);
        *socket_context = NULL;
    }
    mutex_unlock(s->lock);
}

/* ---- the socket ---- */

static int listen_at(const struct addrinfo *a)
{
    int on = 1, fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, a->ai_protocol);
    if (fd < 0)
        return -1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(fd, a->ai_addr, a->ai_addrlen) == 0 && listen(fd, 128) == 0)
        return fd;
    int e = errno;
    close(fd);
    errno = e;
    return -1;
}

static bool is_loopback(const struct sockaddr *a)
{
    if (a->sa_family == AF_INET)
        return (ntohl(((const struct sockaddr_in *)(const void *)a)->sin_addr.s_addr) >> 24) == 127;
    return a->sa_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)(const void *)a)->sin6_addr);
}

static int open_socket(struct server *s, struct err *err)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE}, *list;
    struct sockaddr_storage bound;
    socklen_t len = sizeof bound;
    char port[16], host[200];
    snprintf(port, sizeof port, "%d", s->p.port);
    int rc = getaddrinfo(s->p.host, port, &hints, &list);
    if (rc != 0)
        return err_set(err, ERR_ARG, "host %s: %s", s->p.host, gai_strerror(rc));
    s->listen_fd = listen_at(list);
    int why = errno;
    freeaddrinfo(list);
    if (s->listen_fd < 0)
        return err_set(err, ERR_IO, "cannot listen at %s port %d: %s", s->p.host, s->p.port, strerror(why));
    if (getsockname(s->listen_fd, (struct sockaddr *)&bound, &len) != 0 ||
        getnameinfo((struct sockaddr *)&bound, len, host, sizeof host, port, sizeof port, NI_NUMERICHOST | NI_NUMERICSERV) != 0)
        return err_set(err, ERR_IO, "cannot tell where it listens: %s", strerror(errno));
    s->local = is_loopback((struct sockaddr *)&bound);
    snprintf(s->url, sizeof s->url, strchr(host, ':') ? "http://[%s]:%s" : "http://%s:%s", host, port);
    return 0;
}

int http_start(struct server *s, struct err *err)
{
    int rc = open_socket(s, err);
    if (rc < 0)
        return rc;
    s->daemon = MHD_start_daemon(MHD_USE_AUTO_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ITC, 0, NULL, NULL, on_request,
                                 s, MHD_OPTION_LISTEN_SOCKET, s->listen_fd, MHD_OPTION_NOTIFY_COMPLETED, on_completed, s,
                                 MHD_OPTION_NOTIFY_CONNECTION, on_connection, s, MHD_OPTION_CONNECTION_TIMEOUT,
                                 (unsigned)(s->p.timeout + 0.999), MHD_OPTION_CONNECTION_MEMORY_LIMIT, HEADERS_MAX,
                                 MHD_OPTION_CONNECTION_LIMIT, CONNECTIONS_MAX, MHD_OPTION_THREAD_POOL_SIZE, (unsigned)POOL,
                                 MHD_OPTION_UNESCAPE_CALLBACK, http_unescape, NULL, MHD_OPTION_STRICT_FOR_CLIENT, 1, MHD_OPTION_END);
    return s->daemon ? 0 : err_set(err, ERR_IO, "the HTTP server does not start: %s", strerror(errno));
}
