/* Refuses the Nth request for a resource, and counts what is held.
 *
 * A program linked with FAULT_LDFLAGS (see Makefile.am) has its calls of malloc
 * and its kin, of the system and of PCRE2 go through fault.c; cJSON's go
 * through its hooks.  Knows nothing of what is tested with it. */
#ifndef FORGE_TESTS_FAULT_H
#define FORGE_TESTS_FAULT_H

#include <stdbool.h>
#include <stddef.h>

enum fault_kind {
    FAULT_MEMORY = 1, /* malloc, calloc, realloc, posix_memalign; what PCRE2 allocates */
    FAULT_JSON = 2,   /* what cJSON allocates */
    FAULT_SYSTEM = 4, /* open, socket, fstat, read, mmap, opendir, pthread_create */
    FAULT_ALL = 7
};

/* Routes cJSON's memory through here. Call once, before anything is parsed. */
void fault_init(void);

/* From now on the nth request (1 = the next) of these kinds is refused, and with `on` all after it. */
void fault_arm(unsigned kinds, size_t nth, bool on);
/* Ends that. Returns whether something was refused, with *name of the first such call (may be NULL). */
bool fault_disarm(const char **name);

/* How many requests of the kinds armed there were since fault_arm, refused ones included. */
size_t fault_asked(void);

/* Resources held now: blocks, mappings, descriptors, folders, threads, compiled patterns.
 * Writes a line of figures per kind into out. */
#define FAULT_HELD_SIZE 256
long fault_held(char out[FAULT_HELD_SIZE]);

#endif
