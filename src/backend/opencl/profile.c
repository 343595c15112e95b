/* Times of kernels, told by the device: an event for each launch while the
 * instance is profiled, read and released in batches, so that few are ever held
 * and nothing waits for a single kernel.
 *
 * Some drivers tell zeros, or ends before starts: such a call is counted as not
 * timed.  Must not know what a kernel computes. */
#include <stdlib.h>
#include <string.h>

#include "backend/opencl/cl.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"

enum { MAX_PENDING = 512 };

struct pending {
    cl_event event;
    int row;       /* of the profile */
    int op;        /* index in ops */
    double queued; /* by the host's clock */
    double start, seconds; /* seconds below 0: not timed */
};
struct pending_op {
    double bytes, flops, seconds;
    int n_launches;
    enum op_id id;
};
struct cl_profile {
    struct pending launches[MAX_PENDING];
    struct pending_op ops[MAX_PENDING + 1]; /* the last one is still open */
    int n_launches, n_ops;
    double offset; /* from the device's clock to the host's */
    bool has_offset;
};

void cl_profile_open(struct clb *c)
{
    if (c->params.profile)
        c->profile = mem_array(1, sizeof *c->profile);
}

void cl_profile_close(struct clb *c)
{
    for (int i = 0; c->profile != NULL && i < c->profile->n_launches; i++)
        clReleaseEvent(c->profile->launches[i].event);
    free(c->profile);
    c->profile = NULL;
}

cl_event *cl_profile_event(struct clb *c)
{
    struct cl_profile *p = c->profile;

    if (p == NULL || !c->base.profiling || c->base.warming)
        return NULL;
    if (p->n_launches == MAX_PENDING)
        cl_profile_drain(c);
    p->launches[p->n_launches].event = NULL;
    return &p->launches[p->n_launches].event;
}

void cl_profile_launched(struct clb *c, const char *kernel, enum op_id op)
{
    struct cl_profile *p = c->profile;
    struct pending *l = &p->launches[p->n_launches];

    if (l->event == NULL)
        return;
    l->row = prof_row(c->base.prof, kernel, op, true);
    l->op = p->n_ops;
    l->queued = clock_now();
    p->ops[p->n_ops].id = op; /* its times may be read before it ends, when it has many launches */
    p->ops[p->n_ops].n_launches++;
    p->n_launches++;
}

bool cl_timed(struct backend *be, enum op_id op, uint64_t bytes, uint64_t flops)
{
    struct clb *c = (struct clb *)be;
    struct cl_profile *p = c->profile;

    if (p == NULL || p->ops[p->n_ops].n_launches == 0)
        return false; /* a stand-in may have computed it */
    struct pending_op *o = &p->ops[p->n_ops++];
    o->id = op;
    o->bytes = (double)bytes;
    o->flops = (double)flops;
    if (p->n_launches > MAX_PENDING / 2)
        cl_profile_drain(c);
    return true;
}

/* ---- reading ---- */
static double stamp(cl_event e, cl_profiling_info what)
{
    cl_ulong ns = 0;
    return clGetEventProfilingInfo(e, what, sizeof ns, &ns, NULL) == CL_SUCCESS ? 1e-9 * (double)ns : 0;
}

static void read_times(struct cl_profile *p, struct pending *l)
{
    double queued = stamp(l->event, CL_PROFILING_COMMAND_QUEUED);
    double start = stamp(l->event, CL_PROFILING_COMMAND_START), end = stamp(l->event, CL_PROFILING_COMMAND_END);

    l->seconds = start > 0 && end >= start ? end - start : -1;
    if (!p->has_offset && l->seconds >= 0) {
        p->offset = l->queued - (queued > 0 && queued <= start ? queued : start);
        p->has_offset = true;
    }
    l->start = start + p->offset;
    if (l->seconds > 0)
        p->ops[l->op].seconds += l->seconds;
    clReleaseEvent(l->event);
}

/* An operation's bytes and flops are its kernels', by their time. */
static void tell(struct clb *c, const struct pending *l)
{
    const struct pending_op *o = &c->profile->ops[l->op];
    double share = o->seconds > 0 ? l->seconds / o->seconds : 1.0 / o->n_launches;

    prof_add(c->base.prof, l->row, l->start, l->seconds, share * o->bytes, share * o->flops);
    if (l->seconds > 0)
        c->base.stats[o->id].seconds += l->seconds;
}

void cl_profile_drain(struct clb *c)
{
    struct cl_profile *p = c->profile;

    if (p == NULL || p->n_launches == 0)
        return;
    /* in order: with the last one all are done; one that failed has no times */
    clWaitForEvents(1, &p->launches[p->n_launches - 1].event);
    for (int i = 0; i < p->n_launches; i++)
        read_times(p, &p->launches[i]);
    for (int i = 0; i < p->n_launches; i++)
        tell(c, &p->launches[i]);
    p->n_launches = p->n_ops = 0;
    memset(p->ops, 0, sizeof p->ops);
}
