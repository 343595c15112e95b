/* The face of the OpenCL backend for the registry: which devices there are,
 * and an instance on one of them.  No OpenCL type is seen through it, and
 * OpenCL is touched only when one of these functions is called. */
#ifndef FORGE_BACKEND_OPENCL_OPENCL_H
#define FORGE_BACKEND_OPENCL_OPENCL_H

#include "backend/backend.h"

struct opencl_info {
    char selector[32]; /* "opencl:0" */
    char name[128];    /* of the device */
    char detail[256];  /* platform, type, versions, driver, what it is a twin of */
    uint64_t mem_size; /* 0 = unknown */
};
struct opencl_list {
    struct opencl_info *devices;
    size_t n_devices;
    char **skipped; /* one line each, why */
    size_t n_skipped;
};
int opencl_list_open(struct opencl_list *out, struct err *err);
void opencl_list_close(struct opencl_list *l);

/* "opencl", "opencl:gpu", "opencl:cpu", "opencl:N", "opencl:P.D".  Unknown or out of range is
 * ERR_ARG with the list; none there at all is ERR_DEVICE. */
int opencl_open_selector(struct backend **out, const char *selector, const struct backend_params *params,
                         struct err *err);

/* The best GPU, discrete before integrated.  *out = NULL and 0 when there is none; `why` says what was
 * found.  A GPU that cannot be opened is an error. */
int opencl_open_gpu(struct backend **out, const struct backend_params *params, char *why, size_t why_size,
                    struct err *err);

#endif
