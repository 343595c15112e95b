/* What a control group leaves this process: memory and processor time.
 * Linux only; elsewhere, or without a limit, every function says "none".
 *
 * Both take the folder layout as arguments so that tests can bring their own. */
#ifndef FORGE_BASE_CGROUP_H
#define FORGE_BASE_CGROUP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CGROUP_SELF "/proc/self/cgroup"
#define CGROUP_ROOT "/sys/fs/cgroup"

/* Bytes below the tightest memory limit of the groups this process is in (its own and all
 * above); file cache counts as free.  false = no limit. */
bool cgroup_memory_left(const char *self, const char *root, uint64_t *left);

/* Processors' worth of time per second by the tightest quota.  false = no quota. */
bool cgroup_cpu_quota(const char *self, const char *root, double *cpus);

/* First bytes of a small text file (of /proc or /sys), terminated; false = not readable. */
bool cgroup_read_text(const char *path, char *out, size_t size);

#endif
