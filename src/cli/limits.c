/* The measuring loops of bench.  Of all files outside the CPU backend only this
 * one is written for instruction sets: the peak must be found with the widest
 * registers there are, whatever the flags of the build.  No kernel of a model
 * is used, so that the limit does not depend on what is judged by it. */
#include "cli/limits.h"

#include <stdint.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/thread.h"

#define READ_BYTES ((size_t)1 << 30)
#define LINE 64
#define PEAK_SECONDS 0.2
#define PEAK_STEPS 200000

typedef float peak_fn(long n, float m, float c);

struct limits {
    struct pool *pool;
    uint64_t *data; /* [n_words] */
    size_t n_words;
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
    size_t words = LINE / sizeof *l->data, lines = l->n_words / words;
    size_t from = lines * (size_t)thread / (size_t)n_threads,
           to = lines * ((size_t)thread + 1) / (size_t)n_threads;
    return (struct slice){l->data + from * words, (to - from) * words};
}

/* Each thread touches its own part first, so that it lies near it. */
static void fill(void *arg, int thread, int n_threads)
{
    struct slice s = slice_of(arg, thread, n_threads);
    for (size_t i = 0; i < s.n; i++)
        s.p[i] = i;
}

struct read_job {
    const struct limits *l;
    volatile uint64_t sink;
};

static void run_read(void *arg, int thread, int n_threads)
{
    struct read_job *job = arg;
    struct slice s = slice_of(job->l, thread, n_threads);
    uint64_t x[8] = {0};
    for (size_t i = 0; i < s.n; i += 8)
        for (int k = 0; k < 8; k++)
            x[k] ^= s.p[i + (size_t)k];
    uint64_t all = x[0] ^ x[1] ^ x[2] ^ x[3] ^ x[4] ^ x[5] ^ x[6] ^ x[7];
    if (all == 0x5eed5eed5eed5eed)
        job->sink = all;
}

double limits_read(struct limits *l)
{
    struct read_job job = {.l = l};
    double t = clock_now();
    pool_run(l->pool, run_read, &job);
    t = clock_now() - t;
    return t > 0 ? limits_read_bytes(l) / t * 1e-9 : 0;
}

double limits_read_bytes(const struct limits *l)
{
    return (double)(l->n_words * sizeof *l->data);
}

int limits_new(struct limits **out, int n_threads, struct err *err)
{
    uint64_t available = mem_available();
    size_t bytes =
        available && available / 4 < READ_BYTES ? (size_t)(available / 4) / LINE * LINE : READ_BYTES;
    struct limits *l = mem_array(1, sizeof *l);
    *out = NULL;
    if (!l)
        return err_set(err, ERR_NOMEM, "out of memory");
    int rc = pool_new(&l->pool, n_threads, err);
    if (rc < 0)
        goto fail;
    l->data = mem_aligned(LINE, bytes);
    l->n_words = bytes / sizeof *l->data;
    if (!l->data) {
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
    free(l);
}
