/* Checked allocation.  Every size computed from outside bytes goes through
 * here: products are checked, nothing wraps.  Knows nothing of devices: memory
 * of a backend is the backend's. */
#ifndef FORGE_BASE_MEM_H
#define FORGE_BASE_MEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* a * b, a + b into *out; false when it does not fit. */
bool mem_mul(size_t a, size_t b, size_t *out);
bool mem_add(size_t a, size_t b, size_t *out);
bool mem_mul_i64(int64_t a, int64_t b, int64_t *out);
/* The same for what is only compared: UINT64_MAX when it does not fit. */
uint64_t mem_mul_sat(uint64_t a, uint64_t b);
uint64_t mem_add_sat(uint64_t a, uint64_t b);

/* Zeroed array of n elements; NULL when the product wraps or memory is refused.
 * n = 0 gives a valid pointer.  Freed with free(). */
void *mem_array(size_t n, size_t elem_size);

/* Makes room for `need` elements, growing *cap by at least half; returns the
 * (moved) array or NULL (the old one stays valid). */
void *mem_grow(void *p, size_t *cap, size_t need, size_t elem_size);

/* Aligned (power of two), not zeroed; freed with free(). */
void *mem_aligned(size_t alignment, size_t size);

char *mem_strdup(const char *s);
char *mem_strndup(const char *s, size_t len);

/* Bytes available to this process now (MemAvailable and cgroup limit), 0 = unknown. */
uint64_t mem_available(void);
/* Peak resident set of this process in bytes (VmHWM), 0 = unknown. */
uint64_t mem_peak_rss(void);

/* Bump allocator for many small things with one lifetime. */
struct arena {
    struct arena_block *head; /* newest block */
    size_t used, size;        /* of the newest block */
};
void arena_init(struct arena *a);
void arena_fini(struct arena *a);
void *arena_alloc(struct arena *a, size_t size); /* 16-byte aligned, zeroed; NULL = refused */
char *arena_strndup(struct arena *a, const char *s, size_t len);

#endif
