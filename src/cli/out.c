/* stdout, stderr and the two signals of the program.
 * The one owner of its mutable state: the first failed write, how talkative to
 * be, whether ^C was pressed.  Knows no command. */
#include "cli/out.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"

static struct {
    int write_errno; /* first failure on stdout */
    int level;
} state;

static volatile sig_atomic_t got_interrupt;

void out_init(void)
{
    struct sigaction sa = {0};
    sa.sa_handler = SIG_IGN;
    sigaction(SIGPIPE, &sa, NULL);
}

static void note_failure(void)
{
    if (!state.write_errno)
        state.write_errno = errno ? errno : EIO;
}

void out_write(const char *data, size_t len)
{
    if (state.write_errno || len == 0)
        return;
    errno = 0;
    if (fwrite(data, 1, len, stdout) != len)
        note_failure();
}

void out_puts(const char *s)
{
    out_write(s, strlen(s));
}

void out_printf(const char *fmt, ...)
{
    va_list ap;
    if (state.write_errno)
        return;
    errno = 0;
    va_start(ap, fmt);
    if (vfprintf(stdout, fmt, ap) < 0)
        note_failure();
    va_end(ap);
}

bool out_buf(struct buf *b)
{
    bool ok = !b->failed;
    if (ok)
        out_write(buf_str(b), b->len);
    else
        msg_error("out of memory");
    buf_fini(b);
    return ok;
}

void out_flush(void)
{
    errno = 0;
    if (!state.write_errno && fflush(stdout) != 0)
        note_failure();
}

bool out_closed(void)
{
    return state.write_errno != 0;
}

int out_finish(int status)
{
    out_flush();
    if (!state.write_errno || state.write_errno == EPIPE)
        return status;
    msg_error("cannot write to standard output: %s", strerror(state.write_errno));
    return status == EXIT_OK ? EXIT_FAILED : status;
}

void msg_set_level(int verbose, bool quiet)
{
    state.level = quiet ? -1 : verbose;
}

int msg_level(void)
{
    return state.level;
}

static void message(const char *prefix, const char *fmt, va_list ap)
{
    char line[2048];
    vsnprintf(line, sizeof line, fmt, ap);
    fprintf(stderr, "forge: %s%s\n", prefix, line);
}

#define MESSAGE(wanted, prefix)                                                                              \
    do {                                                                                                     \
        va_list ap;                                                                                          \
        if (!(wanted))                                                                                       \
            return;                                                                                          \
        va_start(ap, fmt);                                                                                   \
        message(prefix, fmt, ap);                                                                            \
        va_end(ap);                                                                                          \
    } while (0)

void msg_error(const char *fmt, ...)
{
    MESSAGE(true, "error: ");
}

void msg_warn(const char *fmt, ...)
{
    MESSAGE(state.level >= 0, "warning: ");
}

void msg_info(const char *fmt, ...)
{
    MESSAGE(state.level >= 0, "");
}

void msg_verbose(const char *fmt, ...)
{
    MESSAGE(state.level >= 1, "");
}

int msg_fail(int code, const char *text)
{
    if (code == ERR_CANCELLED && interrupted())
        return EXIT_INTERRUPTED;
    msg_error("%s", text);
    return code == ERR_ARG ? EXIT_USAGE : EXIT_FAILED;
}

int msg_usage(const char *cmd, const char *fmt, ...)
{
    char line[2048];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    fprintf(stderr, "forge %s: %s\nTry 'forge %s --help'.\n", cmd, line, cmd);
    return EXIT_USAGE;
}

static void on_interrupt(int sig)
{
    (void)sig;
    got_interrupt = 1;
}

void interrupt_catch(void)
{
    struct sigaction sa = {0};
    sa.sa_handler = on_interrupt;
    /* one-shot: the second ^C finds the default action; and reads of stdin are not restarted */
    sa.sa_flags = (int)SA_RESETHAND;
    sigaction(SIGINT, &sa, NULL);
}

bool interrupted(void)
{
    return got_interrupt != 0;
}
