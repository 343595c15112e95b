/* Requests whose frame can be read in two ways: a proxy on the way may have seen another end of the body, another host
 * or another path than we do, so they are refused before their body.
 * What libmicrohttpd refuses by itself (a head that is no HTTP, one without a Host, a length that is no number) does not
 * come here. */
#include <string.h>

#include "serve/server.h"

struct seen {
    const char *length; /* Content-Length */
    bool two_lengths;
};

static enum MHD_Result look(void *cls, enum MHD_ValueKind kind, const char *key, const char *value)
{
    struct seen *s = cls;
    (void)kind;
    if (strcasecmp(key, MHD_HTTP_HEADER_CONTENT_LENGTH) != 0)
        return MHD_YES;
    s->two_lengths |= s->length && strcmp(s->length, value ? value : "") != 0;
    s->length = value ? value : "";
    return MHD_YES;
}

bool http_check(struct exchange *x, const char *path)
{
    struct seen s = {0};
    const char *why = NULL;
    MHD_get_connection_values(x->conn, MHD_HEADER_KIND, look, &s);
    if (!*path)
        why = "The path has a NUL character.";
    else if (s.two_lengths)
        why = "There are two different Content-Length.";
    else if (s.length && MHD_lookup_connection_value(x->conn, MHD_HEADER_KIND, MHD_HTTP_HEADER_TRANSFER_ENCODING))
        why = "Content-Length and Transfer-Encoding exclude each other.";
    if (!why)
        return true;
    reply_fail(x, 400, NULL, "%s", why);
    x->reply.close = true;
    return false;
}

size_t http_unescape(void *cls, struct MHD_Connection *conn, char *s)
{
    (void)cls;
    (void)conn;
    size_t n = MHD_http_unescape(s);
    if (strlen(s) == n)
        return n;
    *s = '\0';
    return 0;
}
