/* Replies of JSON, and the protocol's error object.
 * Words for a failure of the engine are chosen here: its own may name files, and
 * are for the log. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"
#include "serve/server.h"

bool api_fail(struct api_error *e, int status, const char *param, const char *fmt, ...)
{
    char line[sizeof e->message];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    e->status = status;
    e->code = status == 401 ? "invalid_api_key" : status == 429 ? "rate_limit_exceeded" : NULL;
    utf8_printable(e->param, sizeof e->param, param ? param : "", param ? strlen(param) : 0);
    utf8_printable(e->message, sizeof e->message, line, strlen(line));
    return false;
}

bool api_no_memory(struct api_error *e)
{
    return api_fail(e, 503, NULL, "There is not enough memory for this request.");
}

bool api_fail_engine(struct api_error *e, const char *param, const struct forge_error *err)
{
    switch (err->code) {
    case FORGE_ERR_LIMIT:
        api_fail(e, 400, param, "%s", err->message);
        e->code = "context_length_exceeded";
        return false;
    case FORGE_ERR_ARG:
    case FORGE_ERR_UNSUPPORTED:
    case FORGE_ERR_FORMAT:
        return api_fail(e, 400, param, "%s", err->message);
    case FORGE_ERR_NOMEM:
        return api_no_memory(e);
    case FORGE_ERR_DEVICE:
        return api_fail(e, 500, NULL, "The device failed while it computed this request.");
    case FORGE_ERR_NUMERIC:
        return api_fail(e, 500, NULL, "The model gave values that are not finite numbers.");
    default:
        return api_fail(e, 500, NULL, "The request failed inside the server; its log tells more.");
    }
}

void put_str(struct buf *out, const char *key, const char *value)
{
    buf_printf(out, "\"%s\":", key);
    if (value)
        buf_put_json(out, value, strlen(value));
    else
        buf_puts(out, "null");
    buf_putc(out, ',');
}

void put_int(struct buf *out, const char *key, int64_t value)
{
    buf_printf(out, "\"%s\":%lld,", key, (long long)value);
}

void put_num(struct buf *out, const char *key, double value)
{
    buf_printf(out, "\"%s\":", key);
    buf_put_json_num(out, value);
    buf_putc(out, ',');
}

void put_bool(struct buf *out, const char *key, bool value)
{
    buf_printf(out, "\"%s\":%s,", key, value ? "true" : "false");
}

void put_end(struct buf *out, const char *close)
{
    if (out->len > 0 && out->data[out->len - 1] == ',')
        out->len--;
    buf_puts(out, close);
}

static const char *error_type(int status)
{
    return status == 401 ? "authentication_error" : status == 429 ? "rate_limit_error" : status >= 500 ? "server_error" : "invalid_request_error";
}

void error_json(struct buf *out, const struct api_error *e)
{
    buf_puts(out, "{\"error\":{");
    put_str(out, "message", e->message);
    put_str(out, "type", error_type(e->status));
    put_str(out, "param", e->param[0] ? e->param : NULL);
    put_str(out, "code", e->code);
    put_end(out, "}}");
}

void reply_json(struct exchange *x, int status)
{
    x->reply.status = status;
    x->reply.type = "application/json";
}

void reply_error(struct exchange *x, const struct api_error *e)
{
    buf_clear(&x->reply.body);
    error_json(&x->reply.body, e);
    buf_putc(&x->reply.body, '\n');
    reply_json(x, e->status);
    if (e->status == 429 || e->status == 503)
        x->reply.retry_after = 1;
}

void reply_fail(struct exchange *x, int status, const char *param, const char *fmt, ...)
{
    struct api_error e;
    char line[sizeof e.message];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    api_fail(&e, status, param, "%s", line);
    reply_error(x, &e);
}
