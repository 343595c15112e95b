/* Which devices there are and how a selector string picks them.
 * Instances are opened and closed here and nowhere else; what they can do is
 * op.h's matter. */
#ifndef FORGE_BACKEND_REGISTRY_H
#define FORGE_BACKEND_REGISTRY_H

#include "backend/backend.h"

struct device_info {
    char selector[32]; /* what --device takes to mean exactly this one: "cpu", "ref", "opencl:0" */
    char backend[16];
    char name[128];    /* "AMD EPYC ..., 2 threads, avx512" */
    char detail[256];  /* driver, versions, type */
    uint64_t mem_size; /* bytes, 0 = unknown */
};

struct device_list {
    struct device_info *devices;
    size_t n_devices;
    char **skipped; /* "platform X: no compiler": one line each */
    size_t n_skipped;
};
int registry_list(struct device_list *out, struct err *err);
void device_list_free(struct device_list *l);

#define REGISTRY_MAX_INSTANCES 16

/* "auto", "cpu", "ref", "opencl...", part of a name, or a comma list of them.  Fills at most
 * REGISTRY_MAX_INSTANCES instances; `reason` (may be NULL) gets one sentence on the choice.
 * Unknown or ambiguous: ERR_ARG with the list of devices. */
int registry_open(const char *selector, const struct backend_params *params, struct backend *out[REGISTRY_MAX_INSTANCES],
                  int *n, char *reason, size_t reason_size, struct err *err);
void registry_close(struct backend *be); /* NULL is safe */

/* The instruction sets of the fast CPU path, best first, for --version -v and --cpu-isa. */
const char *registry_cpu_isa(char *out, size_t size);

#endif
