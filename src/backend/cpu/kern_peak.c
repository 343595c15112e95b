/* The measuring loops of peak.h, each for one instruction set by an attribute of
 * the function, whatever the flags of the build; chosen by the processor.
 * Sums are kept in as many registers as hide the latency of one step.  Owns no
 * arithmetic of a model. */
#include "backend/cpu/peak.h"

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#define X86 1
#else
#define X86 0
#endif
/* clang knows the dot product only by flags of the build */
#if defined(__aarch64__) && defined(__ARM_NEON) && defined(__GNUC__) && !defined(__clang__)
#include <arm_neon.h>

#include "backend/cpu/kernels.h"
#define ARM64_DOTS 1
#else
#define ARM64_DOTS 0
#endif

#define N_ACC 12 /* independent sums: the latency of a step times two of them a cycle, and some more */
#define EACH_ACC _Pragma("GCC unroll 12") for (int i = 0; i < N_ACC; i++)

#if defined(__clang__)
#define FOR_ISA(isa) __attribute__((target(isa), noinline))
#define FOR_BASE __attribute__((noinline))
#define CONTRACT _Pragma("clang fp contract(fast)")
#elif defined(__GNUC__)
#define FOR_ISA(isa) __attribute__((target(isa), optimize("O2", "fp-contract=fast"), noinline))
#define FOR_BASE __attribute__((optimize("O2", "fp-contract=fast"), noinline))
#define CONTRACT
#endif

/* ---- f32 ---- */

#if defined(__GNUC__)
/* Twelve registers of WIDTH floats, a = a * m + c. */
#define F32(name, WIDTH, attr)                                                                                        \
    typedef float name##_reg __attribute__((vector_size((WIDTH) * sizeof(float))));                                   \
    attr static float name(long n)                                                                                    \
    {                                                                                                                 \
        CONTRACT                                                                                                      \
        name##_reg a[N_ACC], ms, cs;                                                                                  \
        volatile float m = 0.5f, c = 1.0f; /* not known to the compiler */                                            \
        float sum = 0;                                                                                                \
        ms = m - (name##_reg){0};                                                                                     \
        cs = c - (name##_reg){0};                                                                                     \
        EACH_ACC a[i] = ms * (float)i;                                                                                \
        for (long k = 0; k < n; k++)                                                                                  \
            EACH_ACC a[i] = a[i] * ms + cs;                                                                           \
        EACH_ACC for (int l = 0; l < (WIDTH); l++) sum += a[i][l];                                                    \
        return sum;                                                                                                   \
    }
#if X86
F32(f32_512, 16, FOR_ISA("avx512f"))
F32(f32_256, 8, FOR_ISA("avx2,fma"))
F32(f32_128, 4, FOR_ISA("sse2"))
#else
F32(f32_128, 4, FOR_BASE)
#endif
#else
static float f32_128(long n)
{
    volatile float m = 0.5f, c = 1.0f;
    float a[N_ACC][4] = {{0}}, ms = m, cs = c, sum = 0;
    for (long k = 0; k < n; k++)
        for (int i = 0; i < N_ACC; i++)
            for (int l = 0; l < 4; l++)
                a[i][l] = a[i][l] * ms + cs;
    for (int i = 0; i < N_ACC; i++)
        for (int l = 0; l < 4; l++)
            sum += a[i][l];
    return sum;
}
#endif

/* ---- bf16 and int8: what the compiler knows of ---- */

#if X86 && (defined(__clang__) || __GNUC__ >= 11)
#define HAVE_DOTS 1

FOR_ISA("avx512f,avx512bf16") static float bf16_512(long n)
{
    volatile short one = 0x3f80, half = 0x3f00;
    __m512 a[N_ACC];
    __m512i x = _mm512_set1_epi16(one), y = _mm512_set1_epi16(half);
    float sum = 0;
    EACH_ACC a[i] = _mm512_set1_ps((float)i);
    for (long k = 0; k < n; k++)
        EACH_ACC a[i] = _mm512_dpbf16_ps(a[i], (__m512bh)x, (__m512bh)y);
    EACH_ACC sum += _mm512_reduce_add_ps(a[i]);
    return sum;
}

FOR_ISA("avx512f,avx512vnni") static float int8_512(long n)
{
    volatile char three = 3, five = 5;
    __m512i a[N_ACC], x = _mm512_set1_epi8(three), y = _mm512_set1_epi8(five);
    unsigned sum = 0;
    EACH_ACC a[i] = _mm512_set1_epi32(i);
    for (long k = 0; k < n; k++)
        EACH_ACC a[i] = _mm512_dpbusd_epi32(a[i], x, y);
    EACH_ACC sum += (unsigned)_mm512_reduce_add_epi32(a[i]);
    return (float)sum;
}

/* Bytes to halves to words, as kernels without a dot product of bytes do. */
FOR_ISA("avx2") static float int8_256(long n)
{
    volatile char three = 3, five = 5;
    __m256i a[N_ACC], x = _mm256_set1_epi8(three), y = _mm256_set1_epi8(five), ones = _mm256_set1_epi16(1);
    unsigned sum = 0;
    EACH_ACC a[i] = _mm256_set1_epi32(i);
    for (long k = 0; k < n; k++)
        EACH_ACC {
            __asm__("" : "+x"(x)); /* not the same as before, for all the compiler knows */
            a[i] = _mm256_add_epi32(a[i], _mm256_madd_epi16(_mm256_maddubs_epi16(x, y), ones));
        }
    EACH_ACC sum += (unsigned)_mm256_extract_epi32(a[i], 0);
    return (float)sum;
}
#else
#define HAVE_DOTS 0
#endif

#if ARM64_DOTS
FOR_ISA("arch=armv8.2-a+dotprod") static float int8_128(long n)
{
    volatile signed char three = 3, five = 5;
    int32x4_t a[N_ACC];
    int8x16_t x = vdupq_n_s8(three), y = vdupq_n_s8(five);
    unsigned sum = 0;
    EACH_ACC a[i] = vdupq_n_s32(i);
    for (long k = 0; k < n; k++)
        EACH_ACC a[i] = vdotq_s32(a[i], x, y);
    EACH_ACC sum += (unsigned)vaddvq_s32(a[i]);
    return (float)sum;
}
#endif

/* ---- the choice ---- */

static const struct peak f32_narrow = {"f32", f32_128, 2.0 * 4 * N_ACC};
#if X86
static const struct peak f32_wide = {"f32", f32_512, 2.0 * 16 * N_ACC}, f32_middle = {"f32", f32_256, 2.0 * 8 * N_ACC};
#endif
#if HAVE_DOTS
static const struct peak bf16_wide = {"bf16", bf16_512, 2.0 * 32 * N_ACC}, int8_wide = {"int8", int8_512, 2.0 * 64 * N_ACC},
                         int8_middle = {"int8", int8_256, 2.0 * 32 * N_ACC};
#endif

#if ARM64_DOTS
static const struct peak int8_narrow = {"int8", int8_128, 2.0 * 16 * N_ACC};
#endif

static const struct peak *find_f32(void)
{
#if X86
    if (__builtin_cpu_supports("avx512f"))
        return &f32_wide;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        return &f32_middle;
#endif
    return &f32_narrow;
}

static const struct peak *find_bf16(void)
{
#if HAVE_DOTS
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bf16"))
        return &bf16_wide;
#endif
    return NULL;
}

static const struct peak *find_int8(void)
{
#if HAVE_DOTS
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vnni"))
        return &int8_wide;
    if (__builtin_cpu_supports("avx2"))
        return &int8_middle;
#endif
#if ARM64_DOTS
    if (kernels_find("neondot") != NULL)
        return &int8_narrow;
#endif
    return NULL;
}

const struct peak *peak_find(enum peak_kind kind)
{
    static const struct peak *(*const find[PEAK_KINDS])(void) = {find_f32, find_bf16, find_int8};
    return find[kind]();
}

/* ---- reading ---- */

#if defined(__GNUC__)
#define FETCH(p) __builtin_prefetch(p)
enum { LINE_WORDS = 64 / sizeof(uint64_t) };
/* A line at a time, in one register or in several; four sums, so that none waits for the last. */
#define READ(name, attr)                                                                                              \
    attr static uint64_t name(const uint64_t *p, size_t n, size_t rows, size_t ahead)                                 \
    {                                                                                                                 \
        line x[4] = {{0}}, sum;                                                                                       \
        for (const uint64_t *end = p + n; p < end; p += rows * PEAK_ROW) {                                            \
            uintptr_t next = (uintptr_t)p + ahead; /* a hint: it may lie behind the end */                            \
            for (size_t i = 0; i < PEAK_ROW; i += 4 * LINE_WORDS)                                                     \
                for (size_t r = 0; r < rows; r++, next += 4 * 64) {                                                   \
                    const line *at = (const line *)(const void *)(p + r * PEAK_ROW + i);                              \
                    if (ahead > 0) {                                                                                  \
                        FETCH((const void *)next);                                                                    \
                        FETCH((const void *)(next + 64));                                                             \
                        FETCH((const void *)(next + 128));                                                            \
                        FETCH((const void *)(next + 192));                                                            \
                    }                                                                                                 \
                    x[0] ^= at[0];                                                                                    \
                    x[1] ^= at[1];                                                                                    \
                    x[2] ^= at[2];                                                                                    \
                    x[3] ^= at[3];                                                                                    \
                }                                                                                                     \
        }                                                                                                             \
        sum = x[0] ^ x[1] ^ x[2] ^ x[3];                                                                              \
        return sum[0] ^ sum[1] ^ sum[2] ^ sum[3] ^ sum[4] ^ sum[5] ^ sum[6] ^ sum[7];                                 \
    }
typedef uint64_t line __attribute__((vector_size(64), may_alias));
#if X86
READ(read_512, FOR_ISA("avx512f"))
READ(read_256, FOR_ISA("avx2"))
READ(read_plain, FOR_ISA("sse2"))
#else
READ(read_plain, __attribute__((noinline)))
#endif
#else
static uint64_t read_plain(const uint64_t *p, size_t n, size_t rows, size_t ahead)
{
    uint64_t x = 0;
    (void)rows, (void)ahead;
    for (size_t i = 0; i < n; i++)
        x ^= p[i];
    return x;
}
#endif

peak_read_fn *peak_read(void)
{
#if X86
    if (__builtin_cpu_supports("avx512f"))
        return read_512;
    if (__builtin_cpu_supports("avx2"))
        return read_256;
#endif
    return read_plain;
}
