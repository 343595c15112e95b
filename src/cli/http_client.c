/* The client: sockets that wait for a bounded time, the head of an answer, bodies
 * of a length, in chunks, or until the end.  What a server sends is outside bytes:
 * every length is checked, and nothing grows without a limit. */
#include "cli/http_client.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"

#define HEAD_MAX ((size_t)64 << 10)
#define LINE_MAX ((size_t)16 << 20)
#define SLICE_MS 100

int http_url_parse(struct http_url *u, const char *text, struct err *err)
{
    static const char scheme[] = "http://";
    if (strncasecmp(text, scheme, sizeof scheme - 1) != 0)
        return err_set(err, ERR_ARG, "%s is no http:// address", text);
    const char *s = text + sizeof scheme - 1, *end = s + strcspn(s, "/"), *host = s, *host_end;
    bool bracket = *s == '['; /* an IPv6 address */
    host += bracket;
    host_end = bracket ? memchr(host, ']', (size_t)(end - host)) : memchr(host, ':', (size_t)(end - host));
    const char *colon = bracket && host_end ? host_end + 1 : host_end;
    if (!host_end)
        host_end = end;
    size_t host_len = (size_t)(host_end - host), path_len = strlen(end);
    size_t port_len = colon && colon < end && *colon == ':' ? (size_t)(end - colon) - 1 : 0;
    while (path_len > 0 && end[path_len - 1] == '/')
        path_len--;
    if (host_len == 0 || host_len >= sizeof u->host || port_len >= sizeof u->port || path_len >= sizeof u->path)
        return err_set(err, ERR_ARG, "%s is no address of a server", text);
    *u = (struct http_url){.port = "80"};
    memcpy(u->host, host, host_len);
    memcpy(u->path, end, path_len);
    if (port_len > 0) {
        memset(u->port, 0, sizeof u->port);
        memcpy(u->port, colon + 1, port_len);
    }
    return 0;
}

/* ---- bytes ---- */

/* Until the socket is ready.  In short pieces: a signal of another thread's does not end a poll. */
static int await(const struct http_conn *c, short events, const char *what, struct err *err)
{
    double end = clock_now() + c->timeout;
    for (;;) {
        struct pollfd p = {.fd = c->fd, .events = events};
        if (c->stop && c->stop())
            return err_set(err, ERR_CANCELLED, "interrupted");
        int n = poll(&p, 1, SLICE_MS);
        if (n > 0)
            return 0;
        if (n < 0 && errno != EINTR)
            return err_set(err, ERR_IO, "%s: %s", what, strerror(errno));
        if (clock_now() > end)
            return err_set(err, ERR_IO, "%s: nothing came in time", what);
    }
}

static int connect_to(struct http_conn *c, const struct addrinfo *a, struct err *err)
{
    int on = 1, why = 0;
    socklen_t len = sizeof why;
    c->fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, a->ai_protocol);
    if (c->fd < 0)
        return err_set(err, ERR_IO, "%s", strerror(errno));
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (connect(c->fd, a->ai_addr, a->ai_addrlen) != 0) {
        int rc = errno == EINPROGRESS ? await(c, POLLOUT, "connecting", err) : err_set(err, ERR_IO, "%s", strerror(errno));
        if (rc < 0)
            return rc;
        if (getsockopt(c->fd, SOL_SOCKET, SO_ERROR, &why, &len) != 0 || why)
            return err_set(err, ERR_IO, "%s", strerror(why));
    }
    return fcntl(c->fd, F_SETFL, 0) == 0 ? 0 : err_set(err, ERR_IO, "%s", strerror(errno));
}

int http_open(struct http_conn *c, const struct http_url *u, double timeout, bool (*stop)(void), struct err *err)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *list;
    *c = (struct http_conn){.fd = -1, .timeout = timeout, .stop = stop};
    buf_init(&c->head);
    int rc = getaddrinfo(u->host, u->port, &hints, &list);
    if (rc != 0)
        return err_set(err, ERR_IO, "%s: %s", u->host, gai_strerror(rc));
    rc = ERR_IO;
    for (const struct addrinfo *a = list; a && rc < 0 && rc != ERR_CANCELLED; a = a->ai_next) {
        rc = connect_to(c, a, err);
        if (rc < 0 && c->fd >= 0) {
            close(c->fd);
            c->fd = -1;
        }
    }
    freeaddrinfo(list);
    if (rc < 0)
        err_wrap(err, "cannot connect to %s port %s", u->host, u->port);
    return rc;
}

void http_close(struct http_conn *c)
{
    if (c->fd >= 0)
        close(c->fd);
    c->fd = -1;
    buf_fini(&c->head);
}

int http_send(struct http_conn *c, const void *data, size_t len, struct err *err)
{
    const char *p = data;
    while (len > 0) {
        int rc = await(c, POLLOUT, "sending a request", err);
        if (rc < 0)
            return rc;
        ssize_t n = send(c->fd, p, len, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && (errno == EINTR || errno == EAGAIN))
            continue;
        if (n <= 0)
            return err_set(err, ERR_IO, "sending a request: %s", strerror(errno));
        p += n;
        len -= (size_t)n;
    }
    return 0;
}

int http_request(struct http_conn *c, const struct http_url *u, const char *method, const char *path, const char *headers,
                 const char *body, size_t len, struct err *err)
{
    struct buf b;
    buf_init(&b);
    buf_printf(&b, strchr(u->host, ':') ? "%s %s%s HTTP/1.1\r\nHost: [%s]:%s\r\n%s" : "%s %s%s HTTP/1.1\r\nHost: %s:%s\r\n%s",
               method, u->path, path, u->host, u->port, headers);
    if (body)
        buf_printf(&b, "Content-Type: application/json\r\nContent-Length: %zu\r\n", len);
    buf_puts(&b, "\r\n");
    if (body)
        buf_put(&b, body, len);
    int rc = b.failed ? err_set(err, ERR_NOMEM, "no memory for a request") : http_send(c, b.data, b.len, err);
    buf_fini(&b);
    return rc;
}

/* 1 = there are bytes, 0 = the other side closed. */
static int fill(struct http_conn *c, struct err *err)
{
    static const char what[] = "waiting for an answer";
    ssize_t n;
    if (c->pos < c->len)
        return 1;
    do {
        int rc = await(c, POLLIN, what, err);
        if (rc < 0)
            return rc;
        n = recv(c->fd, c->in, sizeof c->in, MSG_DONTWAIT);
    } while (n < 0 && (errno == EINTR || errno == EAGAIN));
    if (n < 0)
        return err_set(err, ERR_IO, "%s: %s", what, strerror(errno));
    c->pos = 0;
    c->len = (size_t)n;
    return n > 0;
}

/* A line of the head or of a chunk's size, without CRLF. */
static int raw_line(struct http_conn *c, struct buf *line, struct err *err)
{
    for (;;) {
        int rc = fill(c, err);
        if (rc <= 0)
            return rc < 0 ? rc : err_set(err, ERR_IO, "the answer ends early");
        char ch = c->in[c->pos++];
        if (ch == '\n')
            return 0;
        if (ch != '\r')
            buf_putc(line, ch);
        if (line->len > HEAD_MAX || line->failed)
            return err_set(err, ERR_FORMAT, "the answer has no head of HTTP");
    }
}

/* ---- the head ---- */

bool http_header(const struct http_conn *c, const char *name, char *out, size_t size)
{
    size_t n = strlen(name);
    for (const char *s = buf_str(&c->head); s && *s; s = strchr(s, '\n'), s += s != NULL)
        if (strncasecmp(s, name, n) == 0 && s[n] == ':') {
            s += n + 1;
            s += strspn(s, " \t");
            size_t len = strcspn(s, "\n");
            len = len < size ? len : size - 1;
            memcpy(out, s, len);
            out[len] = '\0';
            return true;
        }
    return false;
}

/* Three digits behind the version; 0 = this begins no answer of HTTP. */
static int status_of(const char *head)
{
    int status = 0;
    if (strncmp(head, "HTTP/1.", 7) != 0 || strlen(head) < 12 || head[8] != ' ' || !strchr(" \n", head[12]))
        return 0;
    for (int i = 9; i < 12; i++) {
        if (head[i] < '0' || head[i] > '9')
            return 0;
        status = 10 * status + head[i] - '0';
    }
    return status;
}

static int read_head(struct http_conn *c, struct err *err)
{
    size_t before;
    buf_clear(&c->head);
    do {
        before = c->head.len;
        int rc = raw_line(c, &c->head, err);
        if (rc < 0)
            return rc;
        buf_putc(&c->head, '\n');
        if (c->head.len > HEAD_MAX)
            return err_set(err, ERR_FORMAT, "the answer's head is longer than %zu bytes", HEAD_MAX);
    } while (c->head.len > before + 1);
    c->status = status_of(buf_str(&c->head));
    return c->status >= 100 ? 0 : err_set(err, ERR_FORMAT, "the answer is no HTTP");
}

int http_head(struct http_conn *c, struct err *err)
{
    char value[64];
    do {
        int rc = read_head(c, err);
        if (rc < 0)
            return rc;
    } while (c->status < 200); /* 100 Continue and its kin: the answer follows */
    c->chunked = http_header(c, "Transfer-Encoding", value, sizeof value) && strcasecmp(value, "chunked") == 0;
    c->left = c->chunked ? 0 : -1;
    if (!c->chunked && http_header(c, "Content-Length", value, sizeof value))
        c->left = strtoll(value, NULL, 10);
    c->ended = c->left == 0 && !c->chunked;
    return c->left < -1 ? err_set(err, ERR_FORMAT, "the answer has a negative length") : 0;
}

/* ---- the body ---- */

static int next_chunk(struct http_conn *c, struct err *err)
{
    struct buf line;
    char *end;
    buf_init(&line);
    int rc = raw_line(c, &line, err);
    if (rc == 0 && line.len == 0)
        rc = raw_line(c, &line, err); /* what ends the chunk before */
    long long n = rc == 0 ? strtoll(buf_str(&line), &end, 16) : 0;
    if (rc == 0 && (n < 0 || end == buf_str(&line) || n > (1LL << 40)))
        rc = err_set(err, ERR_FORMAT, "the answer has a chunk without a size");
    buf_fini(&line);
    c->left = n;
    c->ended = n == 0;
    return rc;
}

int64_t http_read(struct http_conn *c, char *out, size_t max, struct err *err)
{
    if (c->chunked && c->left == 0 && !c->ended) {
        int rc = next_chunk(c, err);
        if (rc < 0)
            return rc;
    }
    if (c->ended)
        return 0;
    int rc = fill(c, err);
    if (rc < 0)
        return rc;
    if (rc == 0) {
        c->ended = true;
        return c->left < 0 ? 0 : err_set(err, ERR_IO, "the answer ends early");
    }
    size_t n = c->len - c->pos;
    n = n < max ? n : max;
    n = c->left >= 0 && (uint64_t)c->left < n ? (size_t)c->left : n;
    memcpy(out, c->in + c->pos, n);
    c->pos += n;
    if (c->left > 0) {
        c->left -= (int64_t)n;
        c->ended = c->left == 0 && !c->chunked;
    }
    return (int64_t)n;
}

int http_line(struct http_conn *c, struct buf *line, struct err *err)
{
    char ch;
    int64_t n;
    buf_clear(line);
    while ((n = http_read(c, &ch, 1, err)) > 0 && ch != '\n') {
        if (ch != '\r')
            buf_putc(line, ch);
        if (line->len > LINE_MAX || line->failed)
            return err_set(err, ERR_LIMIT, "the answer has a line of more than %zu bytes", LINE_MAX);
    }
    return n < 0 ? (int)n : n > 0 || line->len > 0;
}

int http_body(struct http_conn *c, struct buf *out, size_t limit, struct err *err)
{
    char part[4096];
    int64_t n;
    while ((n = http_read(c, part, sizeof part, err)) > 0) {
        buf_put(out, part, (size_t)n);
        if (out->len > limit || out->failed)
            return err_set(err, ERR_LIMIT, "the answer has more than %zu bytes", limit);
    }
    return (int)n;
}
