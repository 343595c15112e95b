/* Which instruction sets were built, which this processor has, and what the
 * processor is called.  A new set is a kern_NAME.c and a row here.  Must not
 * know what the tables hold. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>

#include <asm/hwcap.h>
#endif

#include "backend/cpu/host.h"
#include "backend/cpu/kernels.h"
#include "base/map.h"

static bool has_any(void)
{
    return true;
}

#if defined(__x86_64__) && defined(__GNUC__)
static bool has_avx2(void)
{
    /* every processor with these two converts halves, too */
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

static bool has_avx512(void)
{
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
}

static bool has_avx512vnni(void)
{
    return has_avx512() && __builtin_cpu_supports("avx512vnni");
}

static bool has_avx512bf16(void)
{
    return has_avx512vnni() && __builtin_cpu_supports("avx512bf16");
}
#else
static bool has_avx2(void)
{
    return false;
}

static bool has_avx512(void)
{
    return false;
}

static bool has_avx512vnni(void)
{
    return false;
}

static bool has_avx512bf16(void)
{
    return false;
}
#endif

/* The table of plain NEON is built for aarch64 alone, and there is none without it. */
static bool has_neondot(void)
{
#if defined(__aarch64__) && defined(__linux__)
    return (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0;
#else
    return false;
#endif
}

static const struct {
    const struct cpu_kernels *table;
    bool (*has)(void);
} isas[] = {
    /* best first */
    {&cpu_kernels_avx512bf16, has_avx512bf16},
    {&cpu_kernels_avx512vnni, has_avx512vnni},
    {&cpu_kernels_avx512, has_avx512},
    {&cpu_kernels_avx2, has_avx2},
    {&cpu_kernels_neondot, has_neondot},
    {&cpu_kernels_neon, has_any},
    {&cpu_kernels_c, has_any},
};
enum { N_ISAS = sizeof isas / sizeof *isas };

static bool usable(int i)
{
    return isas[i].table->isa != NULL && isas[i].has();
}

const struct cpu_kernels *kernels_find(const char *isa)
{
    for (int i = 0; i < N_ISAS; i++)
        if (usable(i) && (isa == NULL || strcmp(isas[i].table->isa, isa) == 0))
            return isas[i].table;
    return NULL;
}

const char *cpu_isa_list(char *out, size_t size)
{
    size_t len = 0;

    if (size > 0)
        out[0] = '\0';
    for (int i = 0; i < N_ISAS && len < size; i++)
        if (usable(i))
            len += (size_t)snprintf(out + len, size - len, "%s%s", len > 0 ? ", " : "", isas[i].table->isa);
    return out;
}

/* The value of "model name" in the kernel's processor list, or "processor". */
static void model_name(char *out, size_t size)
{
    char *text, *at;
    size_t len;

    snprintf(out, size, "processor");
    if (map_read_all("/proc/cpuinfo", (size_t)16 << 20, &text, &len, NULL) != 0)
        return;
    at = len > 0 ? memchr(text, 'm', len) : NULL;
    while (at != NULL && (size_t)(text + len - at) > 10 && memcmp(at, "model name", 10) != 0)
        at = memchr(at + 1, 'm', (size_t)(text + len - at - 1));
    if (at != NULL && (size_t)(text + len - at) > 10) {
        const char *end = memchr(at, '\n', (size_t)(text + len - at));
        size_t n = (size_t)((end != NULL ? end : text + len) - at);
        const char *value = memchr(at, ':', n);
        size_t skip = value != NULL ? (size_t)(value - at) + 2 : n;
        if (skip < n)
            snprintf(out, size, "%.*s", (int)(n - skip), at + skip);
    }
    free(text);
}

const char *cpu_describe(char *out, size_t size, int n_threads, const char *isa)
{
    char name[80];

    model_name(name, sizeof name);
    snprintf(out, size, "%s, %d thread%s, %s", name, n_threads, n_threads == 1 ? "" : "s",
             isa != NULL ? isa : kernels_find(NULL)->isa);
    return out;
}

/* Measured: reading 8 rows of pages of their own, Intel's gained a third over one stream, AMD's lost a fifth. */
bool cpu_reads_far(void)
{
#if defined(__x86_64__) && defined(__GNUC__)
    return __builtin_cpu_is("intel");
#else
    return false;
#endif
}
