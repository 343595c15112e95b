/* A small HTTP/1.1 client over plain sockets: one request for a connection, the
 * answer's head, then its body as bytes or lines as they come.
 * For measuring a server, and for testing ours; no TLS, no redirections. */
#ifndef FORGE_CLI_HTTP_CLIENT_H
#define FORGE_CLI_HTTP_CLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

struct http_url {
    char host[256], port[8], path[512]; /* path: without a slash at its end, may be empty */
};
/* "http://host:port/path"; the port may be left out. */
int http_url_parse(struct http_url *u, const char *text, struct err *err);

struct http_conn {
    int fd; /* -1 = closed */
    char in[16384];
    size_t pos, len;
    struct buf head; /* status line and headers, as they came */
    int status;
    bool chunked, ended;
    int64_t left;    /* of the body or of the chunk; -1 = until the other side closes */
    double timeout;
    bool (*stop)(void);
};

/* `timeout`: seconds for each wait.  `stop`: asked while it waits, true ends it with ERR_CANCELLED; NULL = nobody is. */
int http_open(struct http_conn *c, const struct http_url *u, double timeout, bool (*stop)(void), struct err *err);
void http_close(struct http_conn *c);
int http_send(struct http_conn *c, const void *data, size_t len, struct err *err);
/* A whole request; body may be NULL.  `headers`: lines that end with CRLF, or "". */
int http_request(struct http_conn *c, const struct http_url *u, const char *method, const char *path, const char *headers,
                 const char *body, size_t len, struct err *err);
/* Reads status and headers. */
int http_head(struct http_conn *c, struct err *err);
/* A header's value, without regard to case; false where it is not there. */
bool http_header(const struct http_conn *c, const char *name, char *out, size_t size);
/* Some of the body, 0 = that was all. */
int64_t http_read(struct http_conn *c, char *out, size_t max, struct err *err);
/* Its next line without its end, 0 = there is none. */
int http_line(struct http_conn *c, struct buf *line, struct err *err);
/* All of it that is left, at most `limit` bytes. */
int http_body(struct http_conn *c, struct buf *out, size_t limit, struct err *err);

#endif
