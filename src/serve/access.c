/* Who may call: by a key; where none is asked for, by what a browser tells of the
 * page that calls.  A page of some other site can send requests to this machine
 * (it cannot read the answers, but they cost), and can by a name of its own that it
 * points here read them, too: such requests are told by their Origin and their Host.
 * Programs send no Origin, and the Host that they were given.
 * Knows no route but whether it is open. */
#include <arpa/inet.h>
#include <string.h>
#include <strings.h>

#include "serve/server.h"

static const char *header(const struct exchange *x, const char *name)
{
    return MHD_lookup_connection_value(x->conn, MHD_HEADER_KIND, name);
}

/* ---- keys ---- */

bool access_same_key(const char *given, const char *key)
{
    size_t n = strlen(given), m = strlen(key);
    volatile unsigned char differ = n != m;
    for (size_t i = 0; i < n; i++)
        differ = (unsigned char)(differ | (given[i] ^ key[m ? i % m : 0]));
    return differ == 0;
}

static bool has_key(const struct exchange *x)
{
    static const char scheme[] = "Bearer ";
    const char *h = header(x, MHD_HTTP_HEADER_AUTHORIZATION);
    if ((x->route && x->route->is_open) || strcmp(x->method, "OPTIONS") == 0)
        return true;
    return h && strncasecmp(h, scheme, sizeof scheme - 1) == 0 && access_same_key(h + sizeof scheme - 1, x->s->api_key);
}

/* ---- pages ---- */

/* What follows "http://" or another scheme: host and port. */
static const char *authority(const char *origin)
{
    const char *at = strstr(origin, "://");
    return at ? at + 3 : NULL;
}

/* Its own page, or one of --cors. */
static bool is_known_origin(const struct server *s, const char *origin, const char *host)
{
    const char *at = authority(origin);
    return (s->cors && strcasecmp(origin, s->cors) == 0) || (at && host && strcasecmp(at, host) == 0);
}

/* The name of "name:port", without brackets; false = it is too long for one. */
static bool name_of(const char *host, char *out, size_t size)
{
    bool bracket = *host == '[';
    host += bracket;
    size_t n = strcspn(host, bracket ? "]" : ":");
    if (n >= size)
        return false;
    memcpy(out, host, n);
    out[n] = '\0';
    return true;
}

static bool is_address(const char *name)
{
    unsigned char bytes[sizeof(struct in6_addr)];
    return inet_pton(AF_INET, name, bytes) == 1 || inet_pton(AF_INET6, name, bytes) == 1;
}

/* An address is nobody's to point elsewhere. */
static bool is_known_host(const struct server *s, const char *host)
{
    static const char suffix[] = ".localhost";
    char name[256], other[256];
    if (!name_of(host, name, sizeof name))
        return false;
    size_t n = strlen(name), m = sizeof suffix - 1;
    const char *cors = s->cors ? authority(s->cors) : NULL;
    return is_address(name) || strcasecmp(name, suffix + 1) == 0 || (n > m && strcasecmp(name + n - m, suffix) == 0) ||
           strcasecmp(name, s->host) == 0 || (cors && name_of(cors, other, sizeof other) && strcasecmp(name, other) == 0);
}

bool access_check(const struct exchange *x, struct api_error *e)
{
    const struct server *s = x->s;
    const char *origin = header(x, "Origin"), *host = header(x, MHD_HTTP_HEADER_HOST);
    if (s->api_key)
        return has_key(x) || api_fail(e, 401, NULL, "The key is missing or wrong: send it as \"Authorization: Bearer KEY\".");
    if (s->cors && strcmp(s->cors, "*") == 0)
        return true;
    if (origin && !is_known_origin(s, origin, host))
        return api_fail(e, 403, NULL, "Pages of %.100s may not call; the server's --cors names an origin that may.", origin);
    if (host && s->local && !is_known_host(s, host))
        return api_fail(e, 403, NULL, "The host %.100s is not this server's; where others pass requests on, --api-key or --cors lets them.",
                        host);
    return true;
}
