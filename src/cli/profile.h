/* --profile: tables of operations and kernels on stderr (not with -q), and a
 * trace in the flag's file, which chrome://tracing and Perfetto open.
 * Knows neither engine nor backend: rows are asked for one by one. */
#ifndef FORGE_CLI_PROFILE_H
#define FORGE_CLI_PROFILE_H

#include <stdbool.h>
#include <stddef.h>

#include <forge.h>

/* Each gives row i of `of`, 0 where there is none. */
struct profile_source {
    int (*operation)(const void *of, size_t i, struct forge_placement *out);
    int (*kernel)(const void *of, size_t i, struct forge_kernel *out);
    int (*event)(const void *of, size_t i, struct forge_event *out);
    const void *of;
};
/* path: of the trace, NULL = none.  An exit status. */
int profile_print(const char *path, const struct profile_source *s);

/* The same for an engine: `status`, or that of the profile where this is the first failure. */
int profile_engine(const char *path, const struct forge_engine *e, int status);

#endif
