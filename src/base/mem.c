/* Checked allocation, the arena, and how much memory there is.
 *
 * No size that came from outside reaches malloc unchecked; requests above
 * PTRDIFF_MAX are refused here, before an allocator sees them. */
#include "base/mem.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/cgroup.h"

bool mem_mul(size_t a, size_t b, size_t *out)
{
    if (a != 0 && b > SIZE_MAX / a)
        return false;
    *out = a * b;
    return true;
}

bool mem_add(size_t a, size_t b, size_t *out)
{
    if (b > SIZE_MAX - a)
        return false;
    *out = a + b;
    return true;
}

bool mem_mul_i64(int64_t a, int64_t b, int64_t *out)
{
    if (a > 0 && b > 0 ? a > INT64_MAX / b
        : a > 0 && b < 0 ? b < INT64_MIN / a
        : a < 0 && b > 0 ? a < INT64_MIN / b
        : a < 0 && b < 0 ? b < INT64_MAX / a
                         : false)
        return false;
    *out = a * b;
    return true;
}

uint64_t mem_mul_sat(uint64_t a, uint64_t b)
{
    return a != 0 && b > UINT64_MAX / a ? UINT64_MAX : a * b;
}

uint64_t mem_add_sat(uint64_t a, uint64_t b)
{
    return b > UINT64_MAX - a ? UINT64_MAX : a + b;
}

void *mem_array(size_t n, size_t elem_size)
{
    size_t size;
    if (!mem_mul(n, elem_size, &size) || size > PTRDIFF_MAX)
        return NULL;
    return calloc(size > 0 ? size : 1, 1);
}

void *mem_grow(void *p, size_t *cap, size_t need, size_t elem_size)
{
    if (p && need <= *cap)
        return p;
    size_t want = *cap + *cap / 2, size;
    if (want < need)
        want = need;
    if (want < 8)
        want = 8;
    if (!mem_mul(want, elem_size, &size) || size > PTRDIFF_MAX) {
        want = need; /* perhaps the exact size still fits */
        if (!mem_mul(want, elem_size, &size) || size > PTRDIFF_MAX)
            return NULL;
    }
    void *q = realloc(p, size > 0 ? size : 1);
    if (q)
        *cap = want;
    return q;
}

void *mem_aligned(size_t alignment, size_t size)
{
    void *p;
    if (size > PTRDIFF_MAX)
        return NULL;
    if (alignment < sizeof(void *))
        alignment = sizeof(void *);
    if (posix_memalign(&p, alignment, size > 0 ? size : 1) != 0)
        return NULL;
    return p;
}

char *mem_strndup(const char *s, size_t len)
{
    size_t size;
    char *p = mem_add(len, 1, &size) ? mem_array(size, 1) : NULL;
    if (p && len > 0)
        memcpy(p, s, len);
    return p;
}

char *mem_strdup(const char *s)
{
    return mem_strndup(s, strlen(s));
}

/* The number of kB after `key` in a file of "Key:   N kB" lines, in bytes; 0 = not there. */
static uint64_t proc_kb(const char *path, const char *key)
{
    char text[8192];
    if (!cgroup_read_text(path, text, sizeof text))
        return 0;
    const char *p = strstr(text, key);
    return p ? strtoull(p + strlen(key), NULL, 10) * 1024 : 0;
}

uint64_t mem_available(void)
{
    uint64_t left, avail = proc_kb("/proc/meminfo", "MemAvailable:");
    if (cgroup_memory_left(CGROUP_SELF, CGROUP_ROOT, &left) && (avail == 0 || left < avail))
        avail = left;
    return avail;
}

uint64_t mem_peak_rss(void)
{
    return proc_kb("/proc/self/status", "VmHWM:");
}

#define ARENA_FIRST 4096
#define ARENA_LARGEST (1u << 20)

struct arena_block {
    struct arena_block *next;
    _Alignas(16) unsigned char data[];
};

void arena_init(struct arena *a)
{
    *a = (struct arena){0};
}

void arena_fini(struct arena *a)
{
    for (struct arena_block *b = a->head, *next; b; b = next) {
        next = b->next;
        free(b);
    }
    *a = (struct arena){0};
}

void *arena_alloc(struct arena *a, size_t size)
{
    if (size > PTRDIFF_MAX)
        return NULL;
    size = (size + 15) & ~(size_t)15;
    if (!a->head || size > a->size - a->used) {
        size_t block = a->size < ARENA_LARGEST / 2 ? 2 * a->size : ARENA_LARGEST, total;
        if (block < ARENA_FIRST)
            block = ARENA_FIRST;
        if (block < size)
            block = size;
        if (!mem_add(block, sizeof(struct arena_block), &total))
            return NULL;
        struct arena_block *b = mem_array(total, 1);
        if (!b)
            return NULL;
        b->next = a->head;
        a->head = b;
        a->size = block;
        a->used = 0;
    }
    void *p = a->head->data + a->used;
    a->used += size;
    return p;
}

char *arena_strndup(struct arena *a, const char *s, size_t len)
{
    size_t size;
    char *p = mem_add(len, 1, &size) ? arena_alloc(a, size) : NULL;
    if (p && len > 0)
        memcpy(p, s, len);
    return p;
}
