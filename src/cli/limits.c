/* The limits of the machine, measured over threads in a child process that
 * answers requests over two pipes until its side of one is closed.
 * Owns the memory that is read, the threads and the clock; how one thread
 * computes and reads is a matter of instruction sets and lies with them. */
#include "cli/limits.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/thread.h"

#define READ_BYTES ((size_t)1 << 30)
#define HUGE_PAGE ((size_t)2 << 20)
#define BLOCK ((size_t)8192) /* of whole rows, whatever the pattern */
#define PEAK_SECONDS 0.2
#define PEAK_STEPS 200000
#define END_WAITS 50 /* of 20 ms each, for the child to end by itself, and again after SIGTERM */

struct limits {
    pid_t child;
    int ask, answer; /* our ends of the pipes */
};

/* What the child works with. */
struct meter {
    struct pool *pool;
    uint64_t *data; /* [n_words] */
    size_t n_words;
    atomic_size_t *next; /* [threads] words of each one's part that somebody has begun to read */
    peak_read_fn *read;
};

/* ---- peak ---- */

/* What one thread computes goes into memory, so that no compiler leaves it out. */
struct peak_job {
    const struct peak *peak;
    volatile float sink;
};

static void run_peak(void *arg, int thread, int n_threads)
{
    struct peak_job *job = arg;
    (void)thread, (void)n_threads;
    float sum = job->peak->run(PEAK_STEPS);
    if (sum == 12345.678f)
        job->sink = sum;
}

static double measure_peak(struct meter *l, enum peak_kind kind)
{
    struct peak_job job = {.peak = peak_find(kind)};
    double best = 0, start = clock_now();
    if (!job.peak)
        return 0;
    double work = job.peak->ops * PEAK_STEPS * pool_size(l->pool);
    do {
        double t = clock_now();
        pool_run(l->pool, run_peak, &job);
        t = clock_now() - t;
        if (t > 0 && work / t > best)
            best = work / t;
    } while (clock_now() - start < PEAK_SECONDS);
    return best * 1e-9;
}

/* ---- read ---- */

struct slice {
    uint64_t *p;
    size_t n;
};

static struct slice slice_of(const struct meter *l, int thread, int n_threads)
{
    size_t words = BLOCK / sizeof *l->data, blocks = l->n_words / words;
    size_t from = blocks * (size_t)thread / (size_t)n_threads,
           to = blocks * ((size_t)thread + 1) / (size_t)n_threads;
    return (struct slice){l->data + from * words, (to - from) * words};
}

/* Each thread touches its own part first, so that it lies near it. */
static void fill(void *arg, int thread, int n_threads)
{
    struct slice s = slice_of(arg, thread, n_threads);
    for (size_t i = 0; i < s.n; i++)
        s.p[i] = i;
}

/* How a thread walks through its part: which pattern is fastest differs between processors, and the
 * limit is what the fastest does. */
enum { PIECE_WORDS = (1 << 20) / 8 };
static const struct pattern {
    size_t rows, ahead; /* as in peak_read_fn */
} patterns[] = {{1, 0}, {1, 4096}, {4, 0}, {4, 8192}};
enum { N_PATTERNS = sizeof patterns / sizeof *patterns };

/* A thread that has read its own part helps the others: what is measured is the memory, not how late
 * one thread was woken. */
struct read_job {
    const struct meter *l;
    const struct pattern *pattern;
    volatile uint64_t sink;
};

static void run_read(void *arg, int thread, int n_threads)
{
    struct read_job *job = arg;
    uint64_t all = 0;
    for (int i = 0; i < n_threads; i++) {
        int of = (thread + i) % n_threads;
        struct slice s = slice_of(job->l, of, n_threads);
        for (size_t at; (at = atomic_fetch_add(&job->l->next[of], PIECE_WORDS)) < s.n;) {
            size_t n = s.n - at < PIECE_WORDS ? s.n - at : PIECE_WORDS;
            all ^= job->l->read(s.p + at, n, job->pattern->rows, job->pattern->ahead);
        }
    }
    if (all == 0x5eed5eed5eed5eed)
        job->sink = all;
}

static double measure_read(struct meter *l)
{
    double best = 0, bytes = (double)(l->n_words * sizeof *l->data);
    for (int i = 0; i < N_PATTERNS; i++) {
        struct read_job job = {.l = l, .pattern = &patterns[i]};
        for (int k = 0; k < pool_size(l->pool); k++)
            atomic_store(&l->next[k], 0);
        double t = clock_now();
        pool_run(l->pool, run_read, &job);
        t = clock_now() - t;
        if (t > 0 && bytes / t > best)
            best = bytes / t;
    }
    return best * 1e-9;
}

static void meter_close(struct meter *l)
{
    pool_free(l->pool);
    free(l->data);
    free(l->next);
}

static int meter_open(struct meter *l, int n_threads, struct err *err)
{
    *l = (struct meter){.read = peak_read()};
    int rc = pool_new(&l->pool, n_threads, err);
    if (rc < 0)
        return rc;
    l->next = mem_array((size_t)n_threads, sizeof *l->next);
    return l->next ? 0 : err_set(err, ERR_NOMEM, "out of memory for %d threads", n_threads);
}

/* At the first request: by then the model is loaded, whose check of the memory must not see this. */
static int take_memory(struct meter *l, struct err *err)
{
    uint64_t available = mem_available();
    size_t bytes =
        available && available / 4 < READ_BYTES ? (size_t)(available / 4) / BLOCK * BLOCK : READ_BYTES;
    if (l->data)
        return 0;
    l->data = mem_aligned(HUGE_PAGE, bytes);
    l->n_words = bytes / sizeof *l->data;
    if (!l->data)
        return err_set(err, ERR_NOMEM, "no memory for measuring the read limit: %zu bytes", bytes);
#ifdef MADV_HUGEPAGE
    madvise(l->data, bytes, MADV_HUGEPAGE); /* fewer translations to look up; no harm where it is refused */
#endif
    pool_run(l->pool, fill, l);
    return 0;
}

/* ---- the child, and how it is talked to ---- */

struct reply {
    struct limits_found found;
    struct err err; /* code 0 = none */
};

static bool transfer(int fd, void *data, size_t size, bool out)
{
    for (size_t done = 0; done < size;) {
        char *at = (char *)data + done;
        ssize_t n = out ? write(fd, at, size - done) : read(fd, at, size - done);
        if (n == 0 || (n < 0 && errno != EINTR))
            return false;
        done += n > 0 ? (size_t)n : 0;
    }
    return true;
}

/* Nobody asks any more, also where that side was killed in the middle of a request: it is not measured to its end. */
static void watch(void *arg)
{
    struct pollfd p = {.fd = *(const int *)arg};
    while (poll(&p, 1, -1) < 0 && errno == EINTR)
        ;
    _exit(0);
}

/* Answers once it is ready, then each request, until nobody asks any more. */
static void serve(int asked, int answer, int n_threads)
{
    struct meter m = {0};
    struct reply r = {0};
    struct thread *watcher;
    unsigned kinds;
    signal(SIGINT, SIG_IGN);  /* the benchmark ends, and this with it */
    signal(SIGTERM, SIG_DFL); /* ours, whatever the program made of it */
    if (thread_start(&watcher, watch, &asked, &r.err) == 0)
        meter_open(&m, n_threads, &r.err);
    while (transfer(answer, &r, sizeof r, true) && r.err.code == 0 && transfer(asked, &kinds, sizeof kinds, false)) {
        if (take_memory(&m, &r.err) < 0)
            continue; /* which tells of it, and ends */
        r.found = (struct limits_found){.read_gb_s = measure_read(&m)};
        for (int k = 0; k < PEAK_KINDS; k++)
            r.found.gflop_s[k] = kinds & 1u << k ? measure_peak(&m, (enum peak_kind)k) : 0;
    }
    meter_close(&m);
}

static int receive(const struct limits *l, struct reply *r, struct err *err)
{
    if (!transfer(l->answer, r, sizeof *r, false))
        return err_set(err, ERR_IO, "the process that measures this machine's limits has ended");
    if (r->err.code != 0)
        *err = r->err;
    return r->err.code;
}

/* A pipe that no program holds which a driver or we start: only while nobody has its other end, a read ends. */
static bool open_pipe(int ends[2])
{
    return pipe(ends) == 0 && fcntl(ends[0], F_SETFD, FD_CLOEXEC) == 0 && fcntl(ends[1], F_SETFD, FD_CLOEXEC) == 0;
}

static int start(struct limits *l, int n_threads, struct err *err)
{
    int to[2] = {-1, -1}, from[2] = {-1, -1};
    if (open_pipe(to) && open_pipe(from))
        l->child = fork();
    if (l->child == 0) {
        close(to[1]);
        close(from[0]);
        serve(to[0], from[1], n_threads);
        _exit(0);
    }
    l->ask = to[1];
    l->answer = from[0];
    if (to[0] >= 0)
        close(to[0]);
    if (from[1] >= 0)
        close(from[1]);
    return l->child > 0 ? 0
                        : err_set(err, ERR_IO, "no process can be started that measures this machine's limits: %s",
                                  strerror(errno));
}

int limits_new(struct limits **out, int n_threads, struct err *err)
{
    struct reply r;
    struct limits *l = mem_array(1, sizeof *l);
    *out = NULL;
    if (!l)
        return err_set(err, ERR_NOMEM, "out of memory");
    l->child = -1;
    int rc = start(l, n_threads, err);
    if (rc == 0)
        rc = receive(l, &r, err);
    if (rc < 0)
        limits_free(l);
    else
        *out = l;
    return rc;
}

/* Has the child ended, or does it while we look a while? */
static bool ends(pid_t child)
{
    const struct timespec pause = {.tv_nsec = 20 * 1000 * 1000};
    for (int i = 0; i < END_WAITS; i++) {
        pid_t got = waitpid(child, NULL, WNOHANG);
        if (got == child || (got < 0 && errno != EINTR))
            return true;
        nanosleep(&pause, NULL);
    }
    return false;
}

/* A closed pipe ends it, unless another process was forked meanwhile, which holds our end. */
static void end_child(pid_t child)
{
    if (ends(child))
        return;
    kill(child, SIGTERM);
    if (ends(child))
        return;
    kill(child, SIGKILL);
    while (waitpid(child, NULL, 0) < 0 && errno == EINTR)
        ;
}

void limits_free(struct limits *l)
{
    if (!l)
        return;
    if (l->ask >= 0)
        close(l->ask); /* which ends the child */
    if (l->answer >= 0)
        close(l->answer);
    if (l->child > 0)
        end_child(l->child);
    free(l);
}

static void keep_larger(double *kept, double v)
{
    *kept = v > *kept ? v : *kept;
}

void limits_add(struct limits_found *largest, const struct limits_found *found)
{
    keep_larger(&largest->read_gb_s, found->read_gb_s);
    for (int k = 0; k < PEAK_KINDS; k++)
        keep_larger(&largest->gflop_s[k], found->gflop_s[k]);
}

int limits_measure(struct limits *l, unsigned kinds, struct limits_found *largest, struct err *err)
{
    struct reply r;
    int rc = transfer(l->ask, &kinds, sizeof kinds, true)
                 ? receive(l, &r, err)
                 : err_set(err, ERR_IO, "the process that measures this machine's limits has ended");
    if (rc == 0)
        limits_add(largest, &r.found);
    return rc;
}
