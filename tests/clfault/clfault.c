/* clfault: an OpenCL layer that makes chosen calls fail, fakes what devices say,
 * spoils what is read from them and checks the balance of objects.  The ICD
 * loader puts it between a program and its driver (OPENCL_LAYERS, an absolute
 * path), so that the program under test is not changed:
 *
 *   FORGE_CLFAULT="clCreateBuffer:2:-4,clFinish:1+:-5"   2nd call fails once; every clFinish fails
 *   FORGE_CLINT=1           and SIGINT comes just before each of them, as where ^C ends a driver's compiler
 *   FORGE_CLFAKE="0x1010=268435456,0x102b=Odd GPU"       answers of clGetDeviceInfo (number, or text)
 *   FORGE_CLSPOIL=N or N+   the Nth (and every later) read gives the first byte with a bit turned over
 *   FORGE_CLSKIP="rope,add" launches of kernels of these names do nothing, as if they were compiled wrongly
 *   FORGE_CLNOBUILD=TEXT    programs whose options hold this text never build
 *   FORGE_CLBIG=N           launches of more than N work-items give -5, as where a watchdog ends them
 *   FORGE_CLGROUP=N         what clGetKernelWorkGroupInfo says of every kernel's largest group
 *   FORGE_CLCOUNT=FILE      writes "function calls" lines at exit (input for a sweep)
 *   FORGE_CLQUIET=1         prints the balance only when it is not zero
 *
 * At exit: one line on stderr; with FORGE_CLSTRICT=1 an imbalance ends the process with status 99.  A layer
 * that cannot be loaded is ignored silently by the loader: a test looks for that line before it believes. */
#define CL_TARGET_OPENCL_VERSION 300
#include <CL/cl.h>
#include <CL/cl_icd.h>
#include <CL/cl_layer.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct _cl_icd_dispatch real, mine; /* the next layer or driver, and what we hand out */

/* Kinds of objects that must balance. */
enum kind { CONTEXT, QUEUE, BUFFER, PROGRAM, KERNEL, EVENT, N_KINDS };
static const char *const kind_name[N_KINDS] = {"context", "queue", "buffer", "program", "kernel", "event"};
static int made[N_KINDS], freed[N_KINDS];

static void add(int *counter)
{
    __atomic_add_fetch(counter, 1, __ATOMIC_RELAXED);
}

/* Calls seen per wrapped function; `fault` decides whether call number n of `name` fails, and with which
 * code. */
struct site {
    const char *name;
    int calls;
};
static struct site *sites[64];
static int n_sites;

static cl_int fault(struct site *s)
{
    int n = __atomic_add_fetch(&s->calls, 1, __ATOMIC_RELAXED);
    const char *rule = getenv("FORGE_CLFAULT");
    size_t len = strlen(s->name);
    for (; rule && *rule; rule = strchr(rule, ',') ? strchr(rule, ',') + 1 : NULL) {
        char *end;
        if (strncmp(rule, s->name, len) || rule[len] != ':')
            continue;
        long at = strtol(rule + len + 1, &end, 10);
        int onward = *end == '+';
        if (onward)
            end++;
        if (*end == ':' && (n == at || (onward && n > at))) {
            int code = (int)strtol(end + 1, NULL, 10);
            fprintf(stderr, "clfault: %s call %d -> %d\n", s->name, n, code);
            if (getenv("FORGE_CLINT"))
                raise(SIGINT);
            return code;
        }
    }
    return CL_SUCCESS;
}

/* Three shapes of function. MAKE returns an object and reports through `err`; CALL returns the code itself;
 * ENQ is a CALL that may create an event. */
#define SITE(f) static struct site s_##f = {#f, 0};
#define MAKE(type, f, kind, params, args)                                                                    \
    SITE(f)                                                                                                  \
    static type CL_API_CALL w_##f params                                                                     \
    {                                                                                                        \
        cl_int e = fault(&s_##f);                                                                            \
        type o = NULL;                                                                                       \
        if (!e)                                                                                              \
            o = real.f args;                                                                                 \
        else if (err)                                                                                        \
            *err = e;                                                                                        \
        if (o)                                                                                               \
            add(&made[kind]);                                                                                \
        return o;                                                                                            \
    }
#define CALL(f, counter, params, args)                                                                       \
    SITE(f)                                                                                                  \
    static cl_int CL_API_CALL w_##f params                                                                   \
    {                                                                                                        \
        cl_int e = fault(&s_##f);                                                                            \
        int *count = counter;                                                                                \
        if (!e)                                                                                              \
            e = real.f args;                                                                                 \
        if (!e && count)                                                                                     \
            add(count);                                                                                      \
        return e;                                                                                            \
    }
#define ENQ(f, params, args) CALL(f, ev ? &made[EVENT] : NULL, params, args)
#define WAIT cl_uint nw, const cl_event *wl, cl_event *ev

MAKE(cl_context, clCreateContext, CONTEXT,
     (const cl_context_properties *p, cl_uint n, const cl_device_id *d,
      void(CL_CALLBACK *cb)(const char *, const void *, size_t, void *), void *u, cl_int *err),
     (p, n, d, cb, u, err))
MAKE(cl_command_queue, clCreateCommandQueue, QUEUE,
     (cl_context c, cl_device_id d, cl_command_queue_properties p, cl_int *err), (c, d, p, err))
MAKE(cl_command_queue, clCreateCommandQueueWithProperties, QUEUE,
     (cl_context c, cl_device_id d, const cl_queue_properties *p, cl_int *err), (c, d, p, err))
MAKE(cl_mem, clCreateBuffer, BUFFER, (cl_context c, cl_mem_flags f, size_t n, void *h, cl_int *err),
     (c, f, n, h, err))
MAKE(cl_mem, clCreateSubBuffer, BUFFER,
     (cl_mem m, cl_mem_flags f, cl_buffer_create_type t, const void *i, cl_int *err), (m, f, t, i, err))
MAKE(cl_program, clCreateProgramWithSource, PROGRAM,
     (cl_context c, cl_uint n, const char **s, const size_t *l, cl_int *err), (c, n, s, l, err))
MAKE(cl_program, clCreateProgramWithBinary, PROGRAM,
     (cl_context c, cl_uint n, const cl_device_id *d, const size_t *l, const unsigned char **b, cl_int *st,
      cl_int *err),
     (c, n, d, l, b, st, err))
/* Kernels that FORGE_CLSKIP names are remembered; what is released may be another one later. */
static cl_kernel skipped[256];
static int n_skipped;

static int is_named(const char *list, const char *name)
{
    size_t len = strlen(name);
    for (; list && *list; list = strchr(list, ',') ? strchr(list, ',') + 1 : NULL)
        if (strncmp(list, name, len) == 0 && (list[len] == ',' || !list[len]))
            return 1;
    return 0;
}

static int is_skipped(cl_kernel k)
{
    for (int i = 0; i < n_skipped; i++)
        if (skipped[i] == k)
            return 1;
    return 0;
}

SITE(clCreateKernel)
static cl_kernel CL_API_CALL w_clCreateKernel(cl_program p, const char *name, cl_int *err)
{
    cl_int e = fault(&s_clCreateKernel);
    cl_kernel k = NULL;
    if (!e)
        k = real.clCreateKernel(p, name, err);
    else if (err)
        *err = e;
    if (!k)
        return NULL;
    add(&made[KERNEL]);
    for (int i = 0; i < n_skipped; i++)
        if (skipped[i] == k)
            skipped[i] = NULL;
    if (is_named(getenv("FORGE_CLSKIP"), name) && n_skipped < (int)(sizeof skipped / sizeof *skipped))
        skipped[n_skipped++] = k;
    return k;
}

SITE(clEnqueueMapBuffer)
static void *CL_API_CALL w_clEnqueueMapBuffer(cl_command_queue q, cl_mem m, cl_bool b, cl_map_flags f,
                                              size_t o, size_t n, WAIT, cl_int *err)
{
    cl_int e = fault(&s_clEnqueueMapBuffer);
    void *p = NULL;
    if (!e)
        p = real.clEnqueueMapBuffer(q, m, b, f, o, n, nw, wl, ev, err);
    else if (err)
        *err = e;
    if (p && ev)
        add(&made[EVENT]);
    return p;
}

CALL(clRetainContext, &made[CONTEXT], (cl_context o), (o))
CALL(clReleaseContext, &freed[CONTEXT], (cl_context o), (o))
CALL(clRetainCommandQueue, &made[QUEUE], (cl_command_queue o), (o))
CALL(clReleaseCommandQueue, &freed[QUEUE], (cl_command_queue o), (o))
CALL(clRetainMemObject, &made[BUFFER], (cl_mem o), (o))
CALL(clReleaseMemObject, &freed[BUFFER], (cl_mem o), (o))
CALL(clRetainProgram, &made[PROGRAM], (cl_program o), (o))
CALL(clReleaseProgram, &freed[PROGRAM], (cl_program o), (o))
CALL(clRetainKernel, &made[KERNEL], (cl_kernel o), (o))
CALL(clReleaseKernel, &freed[KERNEL], (cl_kernel o), (o))
CALL(clRetainEvent, &made[EVENT], (cl_event o), (o))
CALL(clReleaseEvent, &freed[EVENT], (cl_event o), (o))

CALL(clGetPlatformIDs, NULL, (cl_uint n, cl_platform_id *p, cl_uint *r), (n, p, r))
CALL(clGetDeviceIDs, NULL, (cl_platform_id p, cl_device_type t, cl_uint n, cl_device_id *d, cl_uint *r),
     (p, t, n, d, r))
SITE(clBuildProgram)
static cl_int CL_API_CALL w_clBuildProgram(cl_program p, cl_uint n, const cl_device_id *d, const char *o,
                                           void(CL_CALLBACK *cb)(cl_program, void *), void *u)
{
    cl_int e = fault(&s_clBuildProgram);
    const char *text = getenv("FORGE_CLNOBUILD");
    if (!e && text && o && strstr(o, text))
        e = CL_BUILD_PROGRAM_FAILURE;
    return e ? e : real.clBuildProgram(p, n, d, o, cb, u);
}
CALL(clGetProgramInfo, NULL, (cl_program p, cl_program_info i, size_t n, void *v, size_t *r), (p, i, n, v, r))
CALL(clGetProgramBuildInfo, NULL,
     (cl_program p, cl_device_id d, cl_program_build_info i, size_t n, void *v, size_t *r),
     (p, d, i, n, v, r))
CALL(clGetPlatformInfo, NULL, (cl_platform_id p, cl_platform_info i, size_t n, void *v, size_t *r),
     (p, i, n, v, r))
CALL(clSetKernelArg, NULL, (cl_kernel k, cl_uint i, size_t n, const void *v), (k, i, n, v))
CALL(clFlush, NULL, (cl_command_queue q), (q))
CALL(clFinish, NULL, (cl_command_queue q), (q))
CALL(clWaitForEvents, NULL, (cl_uint n, const cl_event *e_), (n, e_))
CALL(clGetEventProfilingInfo, NULL, (cl_event o, cl_profiling_info i, size_t n, void *v, size_t *r),
     (o, i, n, v, r))

SITE(clEnqueueNDRangeKernel)
static cl_int CL_API_CALL w_clEnqueueNDRangeKernel(cl_command_queue q, cl_kernel k, cl_uint dim, const size_t *o,
                                                   const size_t *g, const size_t *l, WAIT)
{
    cl_int e = fault(&s_clEnqueueNDRangeKernel);
    const char *big = getenv("FORGE_CLBIG");
    size_t n = 1;
    for (cl_uint d = 0; d < dim; d++)
        n *= g[d];
    if (!e && big && n > strtoul(big, NULL, 10))
        e = CL_OUT_OF_RESOURCES;
    if (!e && !is_skipped(k))
        e = real.clEnqueueNDRangeKernel(q, k, dim, o, g, l, nw, wl, ev);
    else if (!e && ev)
        e = real.clEnqueueMarkerWithWaitList(q, nw, wl, ev);
    if (!e && ev)
        add(&made[EVENT]);
    return e;
}
/* Reads are spoiled once they are there, so only blocking ones. */
SITE(clEnqueueReadBuffer)
static cl_int CL_API_CALL w_clEnqueueReadBuffer(cl_command_queue q, cl_mem m, cl_bool b, size_t o, size_t n,
                                                void *p, WAIT)
{
    cl_int e = fault(&s_clEnqueueReadBuffer);
    if (!e)
        e = real.clEnqueueReadBuffer(q, m, b, o, n, p, nw, wl, ev);
    if (!e && ev)
        add(&made[EVENT]);
    const char *rule = getenv("FORGE_CLSPOIL");
    char *end;
    long at = rule ? strtol(rule, &end, 10) : 0, call = s_clEnqueueReadBuffer.calls;
    if (!e && b && n && at > 0 && (call == at || (*end == '+' && call > at))) {
        *(unsigned char *)p ^= 0x40;
        fprintf(stderr, "clfault: read %ld spoiled\n", call);
    }
    return e;
}
ENQ(clEnqueueWriteBuffer, (cl_command_queue q, cl_mem m, cl_bool b, size_t o, size_t n, const void *p, WAIT),
    (q, m, b, o, n, p, nw, wl, ev))
ENQ(clEnqueueCopyBuffer, (cl_command_queue q, cl_mem a, cl_mem b, size_t oa, size_t ob, size_t n, WAIT),
    (q, a, b, oa, ob, n, nw, wl, ev))
ENQ(clEnqueueFillBuffer, (cl_command_queue q, cl_mem m, const void *pat, size_t pn, size_t o, size_t n, WAIT),
    (q, m, pat, pn, o, n, nw, wl, ev))
ENQ(clEnqueueUnmapMemObject, (cl_command_queue q, cl_mem m, void *p, WAIT), (q, m, p, nw, wl, ev))

/* The limit of a kernel alone, below the device's. */
SITE(clGetKernelWorkGroupInfo)
static cl_int CL_API_CALL w_clGetKernelWorkGroupInfo(cl_kernel k, cl_device_id d,
                                                     cl_kernel_work_group_info what, size_t room, void *value,
                                                     size_t *size)
{
    cl_int e = fault(&s_clGetKernelWorkGroupInfo);
    if (!e)
        e = real.clGetKernelWorkGroupInfo(k, d, what, room, value, size);
    const char *rule = getenv("FORGE_CLGROUP");
    size_t limit = rule ? (size_t)strtoul(rule, NULL, 10) : 0;
    if (!e && limit && what == CL_KERNEL_WORK_GROUP_SIZE && value && room >= sizeof limit)
        memcpy(value, &limit, sizeof limit);
    return e;
}

/* Device queries: a number is written in the size the caller gave, text as a string. */
SITE(clGetDeviceInfo)
static cl_int CL_API_CALL w_clGetDeviceInfo(cl_device_id d, cl_device_info what, size_t room, void *value,
                                            size_t *size)
{
    cl_int e = fault(&s_clGetDeviceInfo);
    if (e)
        return e;
    e = real.clGetDeviceInfo(d, what, room, value, size);
    const char *rule = getenv("FORGE_CLFAKE");
    for (; rule && *rule; rule = strchr(rule, ',') ? strchr(rule, ',') + 1 : NULL) {
        char *end, *num_end;
        if (strtoul(rule, &end, 0) != what || *end != '=')
            continue;
        size_t len = strcspn(++end, ",");
        unsigned long long num = strtoull(end, &num_end, 0);
        if (len && num_end == end + len) {
            if (value && room >= 4)
                memcpy(value, &num, room > 8 ? 8 : room);
        } else {
            if (size)
                *size = len + 1;
            if (value && room > len) {
                memcpy(value, end, len);
                ((char *)value)[len] = 0;
                e = CL_SUCCESS;
            } else if (value)
                e = CL_INVALID_VALUE;
        }
    }
    return e;
}

static void report(void)
{
    int bad = 0;
    for (int i = 0; i < N_KINDS; i++)
        bad |= made[i] != freed[i];
    if (bad || !getenv("FORGE_CLQUIET")) {
        fprintf(stderr, "clfault: %s:", bad ? "LEAK" : "balanced");
        for (int i = 0; i < N_KINDS; i++)
            fprintf(stderr, " %s %d/%d", kind_name[i], made[i], freed[i]);
        fputc('\n', stderr);
    }
    const char *path = getenv("FORGE_CLCOUNT");
    FILE *f = path ? fopen(path, "w") : NULL;
    for (int i = 0; f && i < n_sites; i++)
        if (sites[i]->calls)
            fprintf(f, "%s %d\n", sites[i]->name, sites[i]->calls);
    if (f)
        fclose(f);
    if (bad && getenv("FORGE_CLSTRICT"))
        _exit(99);
}

CL_API_ENTRY cl_int CL_API_CALL clGetLayerInfo(cl_layer_info what, size_t room, void *value, size_t *size)
{
    static const char name[] = "forge clfault";
    cl_layer_api_version version = CL_LAYER_API_VERSION_100;
    const void *src = what == CL_LAYER_API_VERSION ? (const void *)&version : name;
    size_t n = what == CL_LAYER_API_VERSION ? sizeof version : sizeof name;
    if (what != CL_LAYER_API_VERSION && what != CL_LAYER_NAME)
        return CL_INVALID_VALUE;
    if (value && room < n)
        return CL_INVALID_VALUE;
    if (value)
        memcpy(value, src, n);
    if (size)
        *size = n;
    return CL_SUCCESS;
}

#define USE(f) (mine.f = w_##f, sites[n_sites++] = &s_##f)
CL_API_ENTRY cl_int CL_API_CALL clInitLayer(cl_uint n, const struct _cl_icd_dispatch *next, cl_uint *n_ret,
                                            const struct _cl_icd_dispatch **ours)
{
    if (!next || !n_ret || !ours)
        return CL_INVALID_VALUE;
    const cl_uint n_entries = sizeof mine / sizeof(void *);
    if (n < n_entries)
        return CL_INVALID_VALUE; /* an older loader: its table is shorter than this header's */
    memcpy(&real, next, sizeof real);
    mine = real;
    USE(clCreateContext);
    USE(clCreateCommandQueue);
    USE(clCreateCommandQueueWithProperties);
    USE(clCreateBuffer);
    USE(clCreateSubBuffer);
    USE(clCreateProgramWithSource);
    USE(clCreateProgramWithBinary);
    USE(clCreateKernel);
    USE(clRetainContext);
    USE(clReleaseContext);
    USE(clRetainCommandQueue);
    USE(clReleaseCommandQueue);
    USE(clRetainMemObject);
    USE(clReleaseMemObject);
    USE(clRetainProgram);
    USE(clReleaseProgram);
    USE(clRetainKernel);
    USE(clReleaseKernel);
    USE(clRetainEvent);
    USE(clReleaseEvent);
    USE(clGetPlatformIDs);
    USE(clGetDeviceIDs);
    USE(clGetDeviceInfo);
    USE(clBuildProgram);
    USE(clSetKernelArg);
    USE(clGetProgramInfo);
    USE(clGetProgramBuildInfo);
    USE(clGetPlatformInfo);
    USE(clGetKernelWorkGroupInfo);
    USE(clFlush);
    USE(clFinish);
    USE(clWaitForEvents);
    USE(clGetEventProfilingInfo);
    USE(clEnqueueNDRangeKernel);
    USE(clEnqueueReadBuffer);
    USE(clEnqueueWriteBuffer);
    USE(clEnqueueCopyBuffer);
    USE(clEnqueueFillBuffer);
    USE(clEnqueueMapBuffer);
    USE(clEnqueueUnmapMemObject);
    *n_ret = n_entries;
    *ours = &mine;
    atexit(report);
    return CL_SUCCESS;
}
