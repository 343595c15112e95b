/* What fault.h promises, by the linker's --wrap: each function below stands
 * before the real one of its name.  Counts are atomic, since threads allocate.
 *
 * Only calls from this program's own objects come here; what a shared library
 * allocates for itself is neither refused nor counted. */
#include "tests/fault.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <cjson/cJSON.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pcre2.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum held { BLOCKS, JSON_BLOCKS, MAPPINGS, FILES, FOLDERS, THREADS, PATTERNS, N_HELD };
static const char *const held_names[N_HELD] = {"blocks", "JSON blocks", "mappings", "files", "folders", "threads", "patterns"};
static atomic_long held[N_HELD];

static atomic_uint armed; /* kinds, 0 = nothing is refused */
static atomic_size_t n_left, n_asked;
static bool all_after;
static _Atomic(const char *) refused;

void fault_arm(unsigned kinds, size_t nth, bool on)
{
    refused = NULL;
    n_left = nth;
    n_asked = 0;
    all_after = on;
    armed = kinds;
}

bool fault_disarm(const char **name)
{
    armed = 0;
    if (name)
        *name = refused;
    return refused != NULL;
}

long fault_held(char out[FAULT_HELD_SIZE])
{
    long sum = 0;
    size_t len = 0;
    for (int i = 0; i < N_HELD; i++) {
        sum += held[i];
        if (out && len < FAULT_HELD_SIZE)
            len += (size_t)snprintf(out + len, FAULT_HELD_SIZE - len, "%s%ld %s", i ? ", " : "", (long)held[i], held_names[i]);
    }
    return sum;
}

size_t fault_asked(void)
{
    return n_asked;
}

/* Whether this request is to be refused. */
static bool refuse(enum fault_kind kind, const char *name)
{
    if (!(armed & (unsigned)kind))
        return false;
    n_asked++;
    size_t left = n_left;
    while (left > 0 && !atomic_compare_exchange_weak(&n_left, &left, left - 1))
        ;
    if (left > 1 || (left == 0 && !all_after))
        return false;
    const char *none = NULL;
    atomic_compare_exchange_strong(&refused, &none, name);
    return true;
}

static void *keep(void *p, enum held what)
{
    held[what] += p != NULL;
    return p;
}

/* WRAP(result, name, parameters) declares the real function and its stand-in; the linker makes the names. */
#define WRAP(type, name, ...)          \
    type __real_##name(__VA_ARGS__);   \
    type __wrap_##name(__VA_ARGS__);   \
    type __wrap_##name(__VA_ARGS__)

/* ---- memory ---- */

WRAP(void *, malloc, size_t size)
{
    return refuse(FAULT_MEMORY, "malloc") ? NULL : keep(__real_malloc(size), BLOCKS);
}

WRAP(void *, calloc, size_t n, size_t size)
{
    return refuse(FAULT_MEMORY, "calloc") ? NULL : keep(__real_calloc(n, size), BLOCKS);
}

WRAP(void *, realloc, void *p, size_t size)
{
    if (refuse(FAULT_MEMORY, "realloc"))
        return NULL;
    void *q = __real_realloc(p, size);
    held[BLOCKS] += q && !p;
    return q;
}

WRAP(int, posix_memalign, void **out, size_t alignment, size_t size)
{
    int rc = refuse(FAULT_MEMORY, "posix_memalign") ? ENOMEM : __real_posix_memalign(out, alignment, size);
    held[BLOCKS] += rc == 0;
    return rc;
}

WRAP(void, free, void *p)
{
    held[BLOCKS] -= p != NULL;
    __real_free(p);
}

static void *json_malloc(size_t size)
{
    return refuse(FAULT_JSON, "cJSON's malloc") ? NULL : keep(__real_malloc(size), JSON_BLOCKS);
}

static void json_free(void *p)
{
    held[JSON_BLOCKS] -= p != NULL;
    __real_free(p);
}

void fault_init(void)
{
    cJSON_Hooks hooks = {json_malloc, json_free};
    cJSON_InitHooks(&hooks);
}

/* ---- the system ---- */

WRAP(int, open, const char *path, int flags, ...)
{
    mode_t mode = 0;
    if (flags & O_CREAT) {
        va_list ap;
        va_start(ap, flags);
        mode = va_arg(ap, mode_t);
        va_end(ap);
    }
    if (refuse(FAULT_SYSTEM, "open")) {
        errno = EMFILE;
        return -1;
    }
    int fd = __real_open(path, flags, mode);
    held[FILES] += fd >= 0;
    return fd;
}

WRAP(int, socket, int domain, int type, int protocol)
{
    if (refuse(FAULT_SYSTEM, "socket")) {
        errno = EMFILE;
        return -1;
    }
    int fd = __real_socket(domain, type, protocol);
    held[FILES] += fd >= 0;
    return fd;
}

WRAP(int, close, int fd)
{
    held[FILES]--;
    return __real_close(fd);
}

WRAP(int, fstat, int fd, struct stat *st)
{
    if (!refuse(FAULT_SYSTEM, "fstat"))
        return __real_fstat(fd, st);
    errno = EIO;
    return -1;
}

WRAP(ssize_t, read, int fd, void *data, size_t size)
{
    if (!refuse(FAULT_SYSTEM, "read"))
        return __real_read(fd, data, size);
    errno = EIO;
    return -1;
}

WRAP(void *, mmap, void *at, size_t size, int prot, int flags, int fd, off_t offset)
{
    if (refuse(FAULT_SYSTEM, "mmap")) {
        errno = ENOMEM;
        return MAP_FAILED;
    }
    void *p = __real_mmap(at, size, prot, flags, fd, offset);
    held[MAPPINGS] += p != MAP_FAILED;
    return p;
}

WRAP(int, munmap, void *p, size_t size)
{
    held[MAPPINGS]--;
    return __real_munmap(p, size);
}

WRAP(DIR *, opendir, const char *path)
{
    if (!refuse(FAULT_SYSTEM, "opendir"))
        return keep(__real_opendir(path), FOLDERS);
    errno = EMFILE;
    return NULL;
}

WRAP(int, closedir, DIR *d)
{
    held[FOLDERS]--;
    return __real_closedir(d);
}

WRAP(int, pthread_create, pthread_t *out, const pthread_attr_t *attr, void *(*fn)(void *), void *arg)
{
    int rc = refuse(FAULT_SYSTEM, "pthread_create") ? EAGAIN : __real_pthread_create(out, attr, fn, arg);
    held[THREADS] += rc == 0;
    return rc;
}

WRAP(int, pthread_join, pthread_t thread, void **value)
{
    held[THREADS]--;
    return __real_pthread_join(thread, value);
}

/* ---- PCRE2: its functions carry the width of a character in their names ---- */

WRAP(pcre2_code *, pcre2_compile_8, PCRE2_SPTR8 s, PCRE2_SIZE len, uint32_t options, int *code, PCRE2_SIZE *at,
     pcre2_compile_context *ctx)
{
    if (!refuse(FAULT_MEMORY, "pcre2_compile"))
        return keep(__real_pcre2_compile_8(s, len, options, code, at, ctx), PATTERNS);
    *code = 121; /* "failed to allocate heap memory" */
    *at = 0;
    return NULL;
}

WRAP(void, pcre2_code_free_8, pcre2_code *code)
{
    held[PATTERNS] -= code != NULL;
    __real_pcre2_code_free_8(code);
}

WRAP(pcre2_compile_context *, pcre2_compile_context_create_8, pcre2_general_context *g)
{
    return refuse(FAULT_MEMORY, "pcre2_compile_context_create") ? NULL
                                                                 : keep(__real_pcre2_compile_context_create_8(g), PATTERNS);
}

WRAP(void, pcre2_compile_context_free_8, pcre2_compile_context *ctx)
{
    held[PATTERNS] -= ctx != NULL;
    __real_pcre2_compile_context_free_8(ctx);
}

WRAP(pcre2_match_data *, pcre2_match_data_create_8, uint32_t n, pcre2_general_context *g)
{
    return refuse(FAULT_MEMORY, "pcre2_match_data_create") ? NULL : keep(__real_pcre2_match_data_create_8(n, g), PATTERNS);
}

WRAP(void, pcre2_match_data_free_8, pcre2_match_data *data)
{
    held[PATTERNS] -= data != NULL;
    __real_pcre2_match_data_free_8(data);
}

WRAP(pcre2_match_context *, pcre2_match_context_create_8, pcre2_general_context *g)
{
    return refuse(FAULT_MEMORY, "pcre2_match_context_create") ? NULL
                                                               : keep(__real_pcre2_match_context_create_8(g), PATTERNS);
}

WRAP(void, pcre2_match_context_free_8, pcre2_match_context *ctx)
{
    held[PATTERNS] -= ctx != NULL;
    __real_pcre2_match_context_free_8(ctx);
}

WRAP(int, pcre2_match_8, const pcre2_code *code, PCRE2_SPTR8 s, PCRE2_SIZE len, PCRE2_SIZE from, uint32_t options,
     pcre2_match_data *data, pcre2_match_context *ctx)
{
    return refuse(FAULT_MEMORY, "pcre2_match") ? PCRE2_ERROR_NOMEMORY
                                                : __real_pcre2_match_8(code, s, len, from, options, data, ctx);
}
