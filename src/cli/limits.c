/* The limits of the machine, measured over threads.
 * Owns the memory that is read, the threads and the clock; how one thread
 * computes and reads is a matter of instruction sets and lies with them. */
#include "cli/limits.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/thread.h"

#define READ_BYTES ((size_t)1 << 30)
#define HUGE_PAGE ((size_t)2 << 20)
#define BLOCK ((size_t)8192) /* of whole rows, whatever the pattern */
#define PEAK_SECONDS 0.2
#define PEAK_STEPS 200000

struct limits {
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

double limits_flops(struct limits *l, enum peak_kind kind)
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

static struct slice slice_of(const struct limits *l, int thread, int n_threads)
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
    const struct limits *l;
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

double limits_read(struct limits *l)
{
    double best = 0;
    for (int i = 0; i < N_PATTERNS; i++) {
        struct read_job job = {.l = l, .pattern = &patterns[i]};
        for (int k = 0; k < pool_size(l->pool); k++)
            atomic_store(&l->next[k], 0);
        double t = clock_now();
        pool_run(l->pool, run_read, &job);
        t = clock_now() - t;
        if (t > 0 && limits_read_bytes(l) / t > best)
            best = limits_read_bytes(l) / t;
    }
    return best * 1e-9;
}

double limits_read_bytes(const struct limits *l)
{
    return (double)(l->n_words * sizeof *l->data);
}

int limits_new(struct limits **out, int n_threads, struct err *err)
{
    uint64_t available = mem_available();
    size_t bytes =
        available && available / 4 < READ_BYTES ? (size_t)(available / 4) / BLOCK * BLOCK : READ_BYTES;
    struct limits *l = mem_array(1, sizeof *l);
    *out = NULL;
    if (!l)
        return err_set(err, ERR_NOMEM, "out of memory");
    int rc = pool_new(&l->pool, n_threads, err);
    if (rc < 0)
        goto fail;
    l->read = peak_read();
    l->next = mem_array((size_t)n_threads, sizeof *l->next);
    l->data = mem_aligned(HUGE_PAGE, bytes);
    l->n_words = bytes / sizeof *l->data;
    if (!l->data || !l->next) {
        rc = err_set(err, ERR_NOMEM, "no memory for measuring the read limit: %zu bytes", bytes);
        goto fail;
    }
#ifdef MADV_HUGEPAGE
    madvise(l->data, bytes, MADV_HUGEPAGE); /* fewer translations to look up; no harm where it is refused */
#endif
    pool_run(l->pool, fill, l);
    *out = l;
    return 0;
fail:
    limits_free(l);
    return rc;
}

void limits_free(struct limits *l)
{
    if (!l)
        return;
    pool_free(l->pool);
    free(l->data);
    free(l->next);
    free(l);
}
