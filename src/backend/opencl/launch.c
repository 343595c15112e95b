/* One launch: arguments, shape, enqueue.  The first failure of a launch is
 * kept and latched when it would run.  Shapes are cut to what the kernel and
 * the device allow; kernels guard their own ranges, and take their places along
 * dimensions 1 and 2 from the global id or from group_at (common.clh). */
#include "backend/opencl/cl.h"
#include "base/log.h"
#include "base/thread.h"

/* Some drivers give the device nothing before a flush or a read: so that it computes while the host goes on. */
enum { FLUSH_EACH = 64 };

struct cl_launch cl_begin(struct clb *c, cl_kernel k, const char *what)
{
    /* a kernel that could not be had is latched already */
    return (struct cl_launch){
        .c = c, .k = k, .what = what, .code = k != NULL ? CL_SUCCESS : CL_INVALID_KERNEL};
}

static void put(struct cl_launch *l, size_t size, const void *value)
{
    if (l->code == CL_SUCCESS)
        l->code = clSetKernelArg(l->k, l->n_args, size, value);
    l->n_args++;
}

void cl_arg_mem(struct cl_launch *l, cl_mem mem, cl_ulong off)
{
    if (mem == NULL && l->code == CL_SUCCESS)
        l->code = CL_INVALID_MEM_OBJECT;
    put(l, sizeof mem, &mem);
    put(l, sizeof off, &off);
}

void cl_arg_tensor(struct cl_launch *l, const struct tensor *t)
{
    cl_ulong off = 0;
    cl_mem mem = cl_tensor_mem(t, &off);
    cl_arg_mem(l, mem, off);
}

void cl_arg_int(struct cl_launch *l, int64_t v)
{
    cl_int i = (cl_int)v;
    if (i != v && l->code == CL_SUCCESS)
        l->code = CL_INVALID_ARG_VALUE;
    put(l, sizeof i, &i);
}

void cl_arg_ulong(struct cl_launch *l, uint64_t v)
{
    cl_ulong u = v;
    put(l, sizeof u, &u);
}

void cl_arg_float(struct cl_launch *l, float v)
{
    cl_float f = v;
    put(l, sizeof f, &f);
}

void cl_arg_local(struct cl_launch *l, size_t size)
{
    if (size > l->c->dev.local_size && l->code == CL_SUCCESS)
        l->code = CL_OUT_OF_RESOURCES; /* some runtimes would end the process */
    put(l, size, NULL);
}

/* Halves the largest dimension until the group fits. */
static void cut(const struct cl_launch *l, int dims, size_t *local, size_t limit)
{
    for (;;) {
        size_t n = 1;
        int largest = 0;
        for (int d = 0; d < dims; d++) {
            size_t most = l->c->dev.max_item[d] > 0 ? l->c->dev.max_item[d] : local[d];
            while (local[d] > most)
                local[d] /= 2;
            n *= local[d];
            largest = local[d] > local[largest] ? d : largest;
        }
        if (n <= limit || local[largest] <= 1)
            return;
        local[largest] /= 2;
    }
}

/* More groups than the device takes in dimensions 1 and 2 go in parts. */
/* *begun: some of it was, so that it cannot be made again. */
static cl_int enqueue(const struct cl_launch *l, int dims, const size_t g[3], const size_t s[3], cl_event *event,
                      bool *begun)
{
    struct clb *c = l->c;
    size_t at[3] = {0}, step[3] = {g[0], 1, 1}, n[3] = {g[0], 1, 1};
    cl_int code = CL_SUCCESS;

    for (int d = 1; d < dims; d++)
        step[d] = g[d] / s[d] > c->most_groups ? c->most_groups * s[d] : g[d];
    bool parts = dims > 1 && (step[1] < g[1] || (dims > 2 && step[2] < g[2]));
    if (!parts)
        return clEnqueueNDRangeKernel(c->queue, l->k, (cl_uint)dims, NULL, g, s, 0, NULL, event);
    for (at[2] = 0; at[2] < (dims > 2 ? g[2] : 1) && code == CL_SUCCESS; at[2] += step[2])
        for (at[1] = 0; at[1] < g[1] && code == CL_SUCCESS; at[1] += step[1]) {
            for (int d = 1; d < dims; d++)
                n[d] = g[d] - at[d] < step[d] ? g[d] - at[d] : step[d];
            bool last = at[1] + n[1] == g[1] && (dims < 3 || at[2] + n[2] == g[2]);
            code = clEnqueueNDRangeKernel(c->queue, l->k, (cl_uint)dims, at, n, s, 0, NULL, last ? event : NULL);
            *begun = *begun || code == CL_SUCCESS;
        }
    return code;
}

void cl_run(struct cl_launch *l, int dims, const size_t *global, const size_t *local)
{
    size_t g[3] = {1, 1, 1}, s[3] = {1, 1, 1}, limit;

    if (l->c->base.latched.code != 0)
        return;
    for (int d = 0; d < dims; d++)
        s[d] = local != NULL && local[d] > 0 ? local[d] : 1;
    limit = l->k != NULL ? cl_kernel_group(l->c, l->k) : 1;
    for (int tries = 0; l->code == CL_SUCCESS && tries < 2; tries++) {
        cut(l, dims, s, limit);
        for (int d = 0; d < dims; d++)
            g[d] = (global[d] + s[d] - 1) / s[d] * s[d];
        if (l->c->base.warming && !cl_kernel_warm(l->c, l->k, dims, g, s))
            return;
        cl_event *event = cl_profile_event(l->c);
        bool begun = false;
        struct interrupt_hold hold; /* a first launch may compile */
        if (l->c->base.warming)
            interrupt_hold(&hold);
        l->code = enqueue(l, dims, g, s, event, &begun);
        if (l->c->base.warming)
            interrupt_release(&hold);
        if (event != NULL && l->code == CL_SUCCESS)
            cl_profile_launched(l->c, cl_kernel_label(l->c, l->k), l->c->base.doing_id);
        size_t n = s[0] * s[1] * s[2];
        if (tries > 0 || n == 1 || begun || (l->code != CL_OUT_OF_RESOURCES && l->code != CL_INVALID_WORK_GROUP_SIZE))
            break;
        limit = n / 2;
        if (!cl_kernel_lower_group(l->c, l->k, limit))
            break;
        log_debug(LOG_CL, "%s: %s refused groups of %zu: %s; half of it from now on", l->c->base.device,
                  l->what, n, cl_error_name(l->code));
        l->code = CL_SUCCESS;
    }
    if (l->code == CL_SUCCESS && ++l->c->unflushed == FLUSH_EACH) {
        l->c->unflushed = 0;
        l->code = clFlush(l->c->queue);
    }
    if (l->code != CL_SUCCESS)
        cl_fail(l->c, l->code, l->what);
}

/* ---- work-items on their own ---- */
/* A processor's thread takes a group as a loop of a few.  Waves of a GPU have up to 64 lanes, which smaller groups
 * leave idle: what a short first dimension does not fill comes from the second.  Only the first dimension, which a model
 * fixes, decides: what was made ready at load is what runs. */
enum { CPU_ITEMS = 16, WAVE = 64 };

void cl_run_items(struct cl_launch *l, int dims, const size_t *global)
{
    size_t local[3] = {CPU_ITEMS, 1, 1};

    if (l->c->gpu) {
        local[0] = dims > 1 ? 1 : WAVE;
        while (local[0] < WAVE && local[0] < global[0])
            local[0] *= 2;
        local[1] = WAVE / local[0];
    }
    cl_run(l, dims, global, local);
}
