/* Standard output, files of results, and the messages of the program.
 *
 * Results go to stdout through here; a reader that went away (EPIPE) is no
 * error and ends the run quietly, any other failed write is one.  Everything
 * else goes to stderr, each line beginning with "forge: ". */
#ifndef FORGE_CLI_OUT_H
#define FORGE_CLI_OUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "base/attr.h"
#include "base/buf.h"
#include "base/err.h"

enum exit_status { EXIT_OK = 0, EXIT_FAILED = 1, EXIT_USAGE = 2, EXIT_INTERRUPTED = 130 };

void out_init(void); /* ignores SIGPIPE */
void out_write(const char *data, size_t len);
void out_puts(const char *s);
void out_printf(const char *fmt, ...) ATTR_PRINTF(1, 2);
/* What was gathered in b, and frees it; false (with a message) when memory ran out. */
bool out_buf(struct buf *b);
void out_flush(void);
bool out_closed(void); /* nobody reads any more, or writing failed: no use in going on */
/* Flushes; `status`, or EXIT_FAILED with a message when stdout could not be written. */
int out_finish(int status);

/* A file of results. It is written under another name beside `path` and takes its place when it is whole, so
 * that no reader sees half of one, and one that is still mapped is never cut short; what is no regular file
 * (/dev/stdout, a pipe) is written as it stands. */
struct out_file {
    FILE *f; /* NULL = not open */
    char *path, *tmp;
};
int out_file_open(struct out_file *o, const char *path, struct err *err);
/* Puts the file in its place, or with keep = false leaves nothing behind; safe when it is not open. */
int out_file_close(struct out_file *o, bool keep, struct err *err);
/* Both name one file that exists, also through links. */
bool out_same_file(const char *a, const char *b);

/* -q and -v, set once by main. */
void msg_set_level(int verbose, bool quiet);
int msg_level(void); /* -1 quiet, 0, 1, 2... */
void msg_error(const char *fmt, ...) ATTR_PRINTF(1, 2);
void msg_warn(const char *fmt, ...) ATTR_PRINTF(1, 2);    /* not with -q */
void msg_info(const char *fmt, ...) ATTR_PRINTF(1, 2);    /* not with -q */
void msg_verbose(const char *fmt, ...) ATTR_PRINTF(1, 2); /* with -v */
/* The exit status that an error code (forge.h's and base/err.h's agree) stands for, after printing the
 * message. */
int msg_fail(int code, const char *message);
/* A wrong command line: "forge CMD: message", and where help is. Returns EXIT_USAGE. */
int msg_usage(const char *cmd, const char *fmt, ...) ATTR_PRINTF(2, 3);

/* ^C: the first sets a flag (and leaves the second one deadly), so that what runs can end cleanly. */
void interrupt_catch(void);
bool interrupted(void);
void interrupt_again(void); /* what the last one stopped has ended: the next is a first one */
/* For what runs until it is told to end: ^C and SIGTERM are counted, and none is deadly. */
void terminate_catch(void);
int terminations(void);
/* SIGBUS, which a mapped file raises when others cut it short: a message, and the end with EXIT_FAILED. */
void bus_error_catch(void);

#endif
