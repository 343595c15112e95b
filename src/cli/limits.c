/* The measuring loops of bench.  Of all files outside the CPU backend only this
 * one is written for instruction sets: the peak must be found with the widest
 * registers there are, whatever the flags of the build.  No kernel of a model
 * is used, so that the limit does not depend on what is judged by it. */
#include "cli/limits.h"

#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/thread.h"

#define READ_BYTES ((size_t)1 << 30)
#define LINE 64
#define BLOCK ((size_t)8192) /* of whole rows, whatever the pattern */
#define PEAK_SECONDS 0.2
#define PEAK_STEPS 200000

typedef float peak_fn(long n, float m, float c);

struct limits {
    struct pool *pool;
    uint64_t *data; /* [n_words] */
    size_t n_words;
    atomic_size_t *next; /* [threads] words of each one's part that somebody has begun to read */
    peak_fn *peak;
    int lanes; /* of one register */
};

/* ---- peak ---- */

#define N_ACC 12 /* independent sums: the latency of an fma times two of them a cycle, and some more */

#if defined(__GNUC__)
#ifdef __clang__
#define PEAK_ATTR(isa) __attribute__((target(isa), noinline))
#define CONTRACT _Pragma("clang fp contract(fast)")
#else
#define PEAK_ATTR(isa) __attribute__((target(isa), optimize("O2", "fp-contract=fast"), noinline))
#define CONTRACT
#endif
#define EACH_ACC _Pragma("GCC unroll 12") for (int i = 0; i < N_ACC; i++)
/* n times: N_ACC registers of WIDTH floats, a = a * m + c */
#define PEAK(name, WIDTH, attr)                                                                              \
    typedef float name##_reg __attribute__((vector_size((WIDTH) * sizeof(float))));                          \
    attr static float name(long n, float m, float c)                                                         \
    {                                                                                                        \
        CONTRACT                                                                                             \
        name##_reg a[N_ACC], ms, cs;                                                                         \
        float sum = 0;                                                                                       \
        for (int l = 0; l < (WIDTH); l++) {                                                                  \
            ms[l] = m;                                                                                       \
            cs[l] = c;                                                                                       \
        }                                                                                                    \
        EACH_ACC a[i] = ms * (float)i;                                                                       \
        for (long k = 0; k < n; k++)                                                                         \
            EACH_ACC a[i] = a[i] * ms + cs;                                                                  \
        EACH_ACC for (int l = 0; l < (WIDTH); l++) sum += a[i][l];                                           \
        return sum;                                                                                          \
    }
#if defined(__x86_64__)
PEAK(peak_512, 16, PEAK_ATTR("avx512f"))
PEAK(peak_256, 8, PEAK_ATTR("avx2,fma"))
PEAK(peak_128, 4, PEAK_ATTR("sse2"))
#else
PEAK(peak_128, 4, __attribute__((noinline)))
#endif
#else
static float peak_128(long n, float m, float c)
{
    float a[N_ACC][4] = {{0}}, sum = 0;
    for (long k = 0; k < n; k++)
        for (int i = 0; i < N_ACC; i++)
            for (int l = 0; l < 4; l++)
                a[i][l] = a[i][l] * m + c;
    for (int i = 0; i < N_ACC; i++)
        for (int l = 0; l < 4; l++)
            sum += a[i][l];
    return sum;
}
#endif

static void choose_peak(struct limits *l)
{
    l->peak = peak_128;
    l->lanes = 4;
#if defined(__GNUC__) && defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f")) {
        l->peak = peak_512;
        l->lanes = 16;
    } else if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        l->peak = peak_256;
        l->lanes = 8;
    }
#endif
}

/* What one thread computes goes into memory, so that no compiler leaves it out. */
struct peak_job {
    const struct limits *l;
    volatile float sink;
};

static void run_peak(void *arg, int thread, int n_threads)
{
    struct peak_job *job = arg;
    (void)n_threads;
    float sum = job->l->peak(PEAK_STEPS, 0.5f, (float)thread);
    if (sum == 12345.678f)
        job->sink = sum;
}

double limits_flops(struct limits *l)
{
    struct peak_job job = {.l = l};
    double best = 0, start = clock_now();
    double work = 2.0 * l->lanes * N_ACC * PEAK_STEPS * pool_size(l->pool);
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
 * limit is what the fastest does.  A row is 2 KiB; `rows` of them are read side by side, and the
 * lines `ahead` bytes further on are asked for in the order they lie in memory. */
enum { ROW_WORDS = 256, LINE_WORDS = LINE / 8, PIECE_WORDS = (1 << 20) / 8 };
static const struct pattern {
    size_t rows, ahead;
} patterns[] = {{1, 0}, {1, 4096}, {4, 0}, {4, 8192}};
enum { N_PATTERNS = sizeof patterns / sizeof *patterns };

#if defined(__GNUC__)
#define FETCH(p) __builtin_prefetch(p)
#else
#define FETCH(p) ((void)0)
#endif

/* A thread that has read its own part helps the others: what is measured is the memory, not how late
 * one thread was woken. */
struct read_job {
    const struct limits *l;
    const struct pattern *pattern;
    volatile uint64_t sink;
};

static uint64_t read_rows(struct slice s, const struct pattern *p)
{
    uint64_t x[LINE_WORDS] = {0}, all = 0;
    size_t block = p->rows * ROW_WORDS;
    for (size_t at = 0; at + block <= s.n; at += block) {
        uintptr_t ahead = (uintptr_t)(s.p + at) + p->ahead; /* a hint: it may lie behind the end */
        for (size_t i = 0; i < ROW_WORDS; i += LINE_WORDS)
            for (size_t r = 0; r < p->rows; r++, ahead += LINE) {
                const uint64_t *line = s.p + at + r * ROW_WORDS + i;
                if (p->ahead)
                    FETCH((const void *)ahead);
                for (int k = 0; k < LINE_WORDS; k++)
                    x[k] ^= line[k];
            }
    }
    for (int k = 0; k < LINE_WORDS; k++)
        all ^= x[k];
    return all;
}

static void run_read(void *arg, int thread, int n_threads)
{
    struct read_job *job = arg;
    uint64_t all = 0;
    for (int i = 0; i < n_threads; i++) {
        int of = (thread + i) % n_threads;
        struct slice s = slice_of(job->l, of, n_threads);
        for (size_t at; (at = atomic_fetch_add(&job->l->next[of], PIECE_WORDS)) < s.n;) {
            size_t n = s.n - at < PIECE_WORDS ? s.n - at : PIECE_WORDS;
            all ^= read_rows((struct slice){s.p + at, n}, job->pattern);
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
    l->next = mem_array((size_t)n_threads, sizeof *l->next);
    l->data = mem_aligned(LINE, bytes);
    l->n_words = bytes / sizeof *l->data;
    if (!l->data || !l->next) {
        rc = err_set(err, ERR_NOMEM, "no memory for measuring the read limit: %zu bytes", bytes);
        goto fail;
    }
    pool_run(l->pool, fill, l);
    choose_peak(l);
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
