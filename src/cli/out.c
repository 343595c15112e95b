/* stdout, stderr, files of results and the signals of the program.
 * The one owner of its mutable state: the first failed write, how talkative to
 * be, whether ^C was pressed.  Knows no command. */
#include "cli/out.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"
#include "base/mem.h"

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

/* ---- files of results ---- */

static int no_file(const char *path, struct err *err)
{
    return err_set(err, ERR_IO, "%s: cannot write: %s", path, strerror(errno));
}

/* A new file beside the one that is meant, with its permissions. */
static int open_beside(struct out_file *o, const struct stat *old, struct err *err)
{
    size_t size = strlen(o->path) + 32;
    int fd = -1;
    o->tmp = mem_array(size, 1);
    if (!o->tmp)
        return err_set(err, ERR_NOMEM, "%s: out of memory", o->path);
    for (int i = 0; i < 100 && fd < 0; i++) {
        snprintf(o->tmp, size, "%s.%ld-%d.tmp", o->path, (long)getpid(), i);
        fd = open(o->tmp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (fd < 0 && errno != EEXIST)
            break;
    }
    if (fd < 0 || (old && fchmod(fd, old->st_mode & 0777) != 0) || !(o->f = fdopen(fd, "wb"))) {
        no_file(o->path, err);
        if (fd >= 0) {
            close(fd);
            unlink(o->tmp);
        }
        return ERR_IO;
    }
    return 0;
}

static bool is_stdout(const struct stat *st)
{
    struct stat out;
    return fstat(STDOUT_FILENO, &out) == 0 && out.st_dev == st->st_dev && out.st_ino == st->st_ino;
}

int out_file_open(struct out_file *o, const char *path, struct err *err)
{
    struct stat st;
    int rc;
    *o = (struct out_file){0};
    if (strcmp(path, "-") == 0)
        return err_set(err, ERR_ARG, "'-' is standard input, and no file to write to; /dev/stdout is one");
    bool there = stat(path, &st) == 0, direct = there && (!S_ISREG(st.st_mode) || is_stdout(&st));
    o->path = there && !direct ? realpath(path, NULL) : mem_strdup(path); /* links stay links */
    if (!o->path)
        return err_set(err, ERR_NOMEM, "%s: out of memory", path);
    if (direct) {
        o->f = fopen(path, "wb");
        rc = o->f ? 0 : no_file(path, err);
    } else if (there && access(o->path, W_OK) != 0) {
        rc = no_file(path, err);
    } else {
        rc = open_beside(o, there ? &st : NULL, err);
    }
    if (rc < 0) {
        free(o->tmp);
        free(o->path);
        *o = (struct out_file){0};
    }
    return rc;
}

int out_file_close(struct out_file *o, bool keep, struct err *err)
{
    int rc = 0;
    if (!o->f)
        return 0;
    bool failed = ferror(o->f) != 0; /* errno of that write is gone by now */
    errno = EIO;
    if ((fclose(o->f) != 0 || failed) && keep)
        rc = no_file(o->path, err);
    if (o->tmp && keep && rc == 0 && rename(o->tmp, o->path) != 0)
        rc = no_file(o->path, err);
    if (o->tmp && (!keep || rc < 0))
        unlink(o->tmp);
    free(o->tmp);
    free(o->path);
    *o = (struct out_file){0};
    return rc;
}

bool out_same_file(const char *a, const char *b)
{
    struct stat x, y;
    return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

/* ---- messages ---- */

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
    if (interrupted()) { /* also where it made something else fail: a driver's compiler has handlers of its own */
        if (code != ERR_CANCELLED)
            msg_verbose("after the interrupt: %s", text);
        return EXIT_INTERRUPTED;
    }
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

void interrupt_again(void)
{
    got_interrupt = 0;
    interrupt_catch();
}

static volatile sig_atomic_t n_terminations;

static void on_terminate(int sig)
{
    (void)sig;
    n_terminations++;
}

void terminate_catch(void)
{
    struct sigaction sa = {0};
    sa.sa_handler = on_terminate;
    sigaction(SIGINT, &sa, NULL);
    sigaction(SIGTERM, &sa, NULL);
}

int terminations(void)
{
    return n_terminations;
}

static void on_bus_error(int sig)
{
    static const char line[] = "forge: error: the model file changed while it was in use\n";
    (void)sig;
    if (write(STDERR_FILENO, line, sizeof line - 1) < 0)
        errno = 0; /* nothing is left to tell it to */
    _exit(EXIT_FAILED);
}

void bus_error_catch(void)
{
    struct sigaction sa = {0};
    sa.sa_handler = on_bus_error;
    sigaction(SIGBUS, &sa, NULL);
}
