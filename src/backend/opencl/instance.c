/* One open device: context, queue, kernel family, budget, and the order of
 * opening and closing.  One in-order queue; only sync and reads wait for it.
 * Knows nothing of operations. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/opencl/gemm.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/thread.h"

void cl_close(struct backend *be)
{
    struct clb *c = (struct clb *)be;

    if (c->queue != NULL)
        clFinish(c->queue);
    cl_gemm_close(c);
    cl_profile_close(c);
    cl_programs_close(c);
    cl_cache_close(c);
    cl_scratch_free(c);
    cl_experts_close(c);
    if (c->queue != NULL)
        clReleaseCommandQueue(c->queue);
    if (c->ctx != NULL)
        clReleaseContext(c->ctx);
    free(c->staging);
    backend_params_fini(&c->params);
    free(c);
}

void cl_caps(const struct backend *be, struct backend_caps *out)
{
    const struct clb *c = (const struct clb *)be;
    *out = (struct backend_caps){
        .host_memory = false,
        .max_alloc = c->dev.max_alloc,
        .mem_size = c->dev.mem_size,
        .shares_host = c->dev.type == CL_DEVICE_TYPE_CPU,
    };
}

void cl_step_begin(struct backend *be)
{
    (void)be;
}

int cl_sync(struct backend *be, struct err *err)
{
    struct clb *c = (struct clb *)be;
    cl_int code = clFinish(c->queue);

    cl_profile_drain(c);
    if (code == CL_SUCCESS)
        c->staging_used = 0;
    return code == CL_SUCCESS ? 0 : cl_err(c, code, "waiting for the device", err);
}

/* Bytes we may take: what the user said; a GPU's memory less a margin for its driver; on a device that
 * computes in the host's memory nothing is refused here. */
static uint64_t budget(const struct cl_device *d, const struct backend_params *p)
{
    if (p->mem_limit > 0)
        return p->mem_limit;
    return d->type == CL_DEVICE_TYPE_CPU ? 0 : d->mem_size - d->mem_size / 16;
}

/* The CPU family computes in vectors of 16: a compiler that takes them apart (Mesa's, for llvmpipe) needs many minutes
 * for its tiles, and seconds for the other family's kernels. */
static bool cpu_like(const struct cl_device *d)
{
    return d->type == CL_DEVICE_TYPE_CPU && d->vector_width != 1;
}

static int choose_family(struct clb *c, struct err *err)
{
    const char *want = c->params.kernels;

    if (want != NULL && strcmp(want, "cpu") != 0 && strcmp(want, "gpu") != 0)
        return err_set(err, ERR_ARG, "kernel family \"%s\" is neither cpu nor gpu", want);
    if (want != NULL)
        c->family = strcmp(want, "gpu") == 0 ? CL_FAMILY_GPU : CL_FAMILY_CPU;
    else
        c->family = cpu_like(&c->dev) ? CL_FAMILY_CPU : CL_FAMILY_GPU;
    c->gpu = c->family == CL_FAMILY_GPU && cl_gpu_able(&c->dev);
    c->canonical = !c->gpu || c->params.deterministic;
    return 0;
}

/* Where a device is required, exact is no stand-in for fast: cl_variants_open only warns of it. */
static int check_math(const struct clb *c, struct err *err)
{
    if (c->params.math != MATH_FAST || !c->params.require_device ||
        (c->gpu && !c->canonical && (c->dev.int_dot || c->dev.fp16)))
        return 0;
    return err_set(err, ERR_UNSUPPORTED, "%s: math fast has no kernels here (%s); require_device is set, so exact is not computed instead",
                   c->base.device,
                   !c->gpu        ? "the cpu family has none"
                   : c->canonical ? "deterministic is exact"
                                  : "neither integer dot products nor half arithmetic");
}

int opencl_open(struct backend **out, const struct cl_device *dev, const struct backend_params *p,
                struct err *err)
{
    struct clb *c = mem_array(1, sizeof *c);
    cl_context_properties props[] = {CL_CONTEXT_PLATFORM, (cl_context_properties)dev->platform, 0};
    cl_int code = CL_SUCCESS;
    struct interrupt_hold hold;
    int rc;

    if (c == NULL)
        return err_set(err, ERR_NOMEM, "opencl:%d: no memory for the instance", dev->number);
    c->base.ops = &cl_ops;
    c->dev = *dev;
    if (!backend_params_copy(&c->params, p)) {
        rc = err_set(err, ERR_NOMEM, "opencl:%d: no memory for its parameters", dev->number);
        goto fail;
    }
    snprintf(c->base.device, sizeof c->base.device, "opencl:%d", dev->number);
    snprintf(c->plain_name, sizeof c->plain_name, "%s (base kernels)", c->base.device);
    snprintf(c->base.detail, sizeof c->base.detail, "%.80s, %.30s", dev->name, dev->platform_name);
    snprintf(c->base.chip, sizeof c->base.chip, "%s", dev->type == CL_DEVICE_TYPE_CPU ? "processor" : dev->uuid);
    c->budget = budget(dev, p);
    c->zero_copy = dev->type == CL_DEVICE_TYPE_CPU;
    c->most_groups = dev->type == CL_DEVICE_TYPE_CPU ? SIZE_MAX : 65535; /* drivers do not tell */
    rc = choose_family(c, err);
    if (rc == 0)
        rc = check_math(c, err);
    if (rc != 0)
        goto fail;
    interrupt_hold(&hold);
    c->ctx = clCreateContext(props, 1, &dev->id, NULL, NULL, &code);
    interrupt_release(&hold);
    if (code != CL_SUCCESS) {
        rc = cl_err(c, code, "no context", err);
        goto fail;
    }
    c->queue = clCreateCommandQueue(c->ctx, dev->id, p->profile ? CL_QUEUE_PROFILING_ENABLE : 0, &code);
    if (code != CL_SUCCESS) {
        rc = cl_err(c, code, "no command queue", err);
        goto fail;
    }
    cl_profile_open(c);
    cl_cache_open(c);
    rc = cl_programs_open(c, err);
    if (rc == 0)
        rc = cl_gemm_open(c, err);
    if (rc != 0)
        goto fail;
    cl_variants_open(c);
    log_debug(LOG_CL, "%s: %s, %s, family %s, max allocation %zu, memory %llu", c->base.device, dev->name,
              dev->version_text, c->family == CL_FAMILY_CPU ? "cpu" : "gpu", dev->max_alloc,
              (unsigned long long)dev->mem_size);
    if (dev->max_alloc > 0 && dev->max_alloc < dev->mem_size / 2)
        log_msg(LOG_VERBOSE, "%s: one allocation may have %zu of its %llu bytes: larger matrices are parted", c->base.device,
                dev->max_alloc, (unsigned long long)dev->mem_size);
    *out = &c->base;
    return 0;
fail:
    cl_close(&c->base);
    return rc;
}
