/* The `cpu` backend: opens, closes, and owns its threads and scratch memory. */
#include <stdio.h>

#include "backend/cpu/host.h"

const char *cpu_isa_list(char *out, size_t size)
{
    snprintf(out, size, "c");
    return out;
}

const char *cpu_describe(char *out, size_t size)
{
    snprintf(out, size, "processor");
    return out;
}

int cpu_open(struct backend **out, const struct backend_params *params, struct err *err)
{
    (void)out, (void)params;
    return err_set(err, ERR_DEVICE, "cpu: this backend is not there yet; use ref");
}
