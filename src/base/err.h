/* Errors as values: a code and one sentence a user can act on.
 *
 * Law: a fallible function returns 0 or a negative `enum err_code` and fills
 * the caller's `struct err` (which may be NULL).  Library code never prints,
 * exits or aborts.  The sentence is made where the facts are: it names the
 * file, the tensor or field, and the figures. */
#ifndef FORGE_BASE_ERR_H
#define FORGE_BASE_ERR_H

#include <stdarg.h>

#include "base/attr.h"

enum err_code {
    ERR_ARG = -1,         /* the caller's value is wrong (usage) */
    ERR_IO = -2,          /* a file cannot be opened or read */
    ERR_FORMAT = -3,      /* bytes that do not follow their format */
    ERR_UNSUPPORTED = -4, /* well formed, but nothing here runs it */
    ERR_NOMEM = -5,       /* memory refused */
    ERR_LIMIT = -6,       /* a budget or context is too small */
    ERR_NUMERIC = -7,     /* NaN or Inf where a number is needed */
    ERR_DEVICE = -8,      /* a device failed or is not there */
    ERR_CANCELLED = -9,   /* the caller asked to stop */
    ERR_INTERNAL = -10    /* a bug here */
};

#define ERR_MSG_SIZE 1024

struct err {
    int code;                /* 0 = no error */
    char msg[ERR_MSG_SIZE];  /* one sentence, no newline, always terminated; valid UTF-8 */
};

/* Sets e (if not NULL) and returns code.  Bytes that are no UTF-8 or control
 * characters become '?'. */
int err_set(struct err *e, int code, const char *fmt, ...) ATTR_PRINTF(3, 4);

/* Puts "prefix: " before the message that is there; returns e->code (or
 * ERR_INTERNAL when e is NULL). */
int err_wrap(struct err *e, const char *fmt, ...) ATTR_PRINTF(2, 3);

void err_clear(struct err *e);

#endif
