/* Finds the devices of every platform and asks each what it is.  One broken
 * platform or device becomes a line in `skipped` and hides nothing else.
 * Knows nothing of selectors, contexts or memory. */
#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/opencl/cl.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/thread.h"

/* extensions of later headers */
#define DEVICE_UUID 0x106A /* CL_DEVICE_UUID_KHR, 16 bytes */
#define DEVICE_PCI 0x410F  /* CL_DEVICE_PCI_BUS_INFO_KHR: domain, bus, device, function */
#define DEVICE_SUB_GROUP_SIZES 0x4108 /* CL_DEVICE_SUB_GROUP_SIZES_INTEL: size_t, as many as there are */

static int skip(struct cl_device_set *s, struct err *err, const char *fmt, ...) ATTR_PRINTF(3, 4);
static int skip(struct cl_device_set *s, struct err *err, const char *fmt, ...)
{
    char line[512];
    size_t cap = s->n_skipped;
    va_list args;

    va_start(args, fmt);
    vsnprintf(line, sizeof line, fmt, args);
    va_end(args);
    char **grown = mem_grow(s->skipped, &cap, s->n_skipped + 1, sizeof *grown);
    if (grown != NULL)
        s->skipped = grown;
    if (grown == NULL || (grown[s->n_skipped] = mem_strdup(line)) == NULL)
        return err_set(err, ERR_NOMEM, "no memory for the list of OpenCL devices");
    s->n_skipped++;
    return 0;
}

/* ---- texts, trimmed and cut to what fits ---- */
static void tidy(char *out, size_t size, const char *text)
{
    size_t n = 0;
    for (; *text != '\0' && n + 1 < size; text++)
        if (!isspace((unsigned char)*text) || (n > 0 && out[n - 1] != ' '))
            out[n++] = isprint((unsigned char)*text) ? *text : isspace((unsigned char)*text) ? ' ' : '?';
    while (n > 0 && out[n - 1] == ' ')
        n--;
    out[n] = '\0';
}

/* The whole text (free()), "" when it cannot be had. */
static char *device_text(cl_device_id id, cl_device_info what)
{
    size_t size = 0;
    char *text;

    if (clGetDeviceInfo(id, what, 0, NULL, &size) != CL_SUCCESS || size > 1 << 20)
        size = 0;
    text = mem_array(size + 1, 1);
    if (text != NULL && size > 0 && clGetDeviceInfo(id, what, size, text, NULL) != CL_SUCCESS)
        text[0] = '\0';
    return text;
}

static void device_string(cl_device_id id, cl_device_info what, char *out, size_t size)
{
    char *text = device_text(id, what);
    tidy(out, size, text != NULL ? text : "");
    free(text);
}

static void platform_string(cl_platform_id id, cl_platform_info what, char *out, size_t size)
{
    char text[256] = "";
    if (clGetPlatformInfo(id, what, sizeof text - 1, text, NULL) != CL_SUCCESS)
        text[0] = '\0';
    tidy(out, size, text);
}

/* "OpenCL 3.0 ..." or "OpenCL C 1.2 ..." -> 30, 12; anything else 0. */
static int parse_version(const char *text, const char *prefix)
{
    size_t n = strlen(prefix);
    int major = 0, minor = 0, digits = 0;

    if (strncmp(text, prefix, n) != 0)
        return 0;
    for (text += n; isdigit((unsigned char)*text) && digits < 3; text++, digits++)
        major = 10 * major + (*text - '0');
    if (digits == 0 || *text++ != '.' || !isdigit((unsigned char)*text))
        return 0;
    minor = *text - '0';
    return 10 * major + minor;
}

static bool has_extension(const char *all, const char *name)
{
    size_t n = strlen(name);
    for (const char *at = strstr(all, name); at != NULL; at = strstr(at + n, name))
        if ((at == all || at[-1] == ' ') && (at[n] == ' ' || at[n] == '\0'))
            return true;
    return false;
}

/* A number of a device, 0 when it cannot be had. */
#define ASK(type, id, what) ask_##type(id, what)
#define ASKER(type)                                                                                          \
    static type ask_##type(cl_device_id id, cl_device_info what)                                             \
    {                                                                                                        \
        type v = 0;                                                                                          \
        if (clGetDeviceInfo(id, what, sizeof v, &v, NULL) != CL_SUCCESS)                                     \
            v = 0;                                                                                           \
        return v;                                                                                            \
    }
ASKER(cl_ulong)
ASKER(cl_uint)
ASKER(cl_bool)
ASKER(size_t)

/* The same chip has the same id on every platform: its UUID, else its place on the bus. */
static void ask_uuid(struct cl_device *d, const char *extensions)
{
    unsigned char id[16] = {0};
    size_t size = 0;

    if (has_extension(extensions, "cl_khr_device_uuid"))
        size = clGetDeviceInfo(d->id, DEVICE_UUID, 16, id, NULL) == CL_SUCCESS ? 16 : 0;
    else if (has_extension(extensions, "cl_khr_pci_bus_info"))
        size = clGetDeviceInfo(d->id, DEVICE_PCI, 16, id, NULL) == CL_SUCCESS ? 16 : 0;
    for (size_t i = 0; i < size; i++)
        snprintf(d->uuid + 2 * i, sizeof d->uuid - 2 * i, "%02x", id[i]);
}

static void ask_all(struct cl_device *d)
{
    static const cl_device_type order[] = {CL_DEVICE_TYPE_GPU, CL_DEVICE_TYPE_ACCELERATOR,
                                           CL_DEVICE_TYPE_CPU};
    cl_device_type type = 0;
    char *ext = device_text(d->id, CL_DEVICE_EXTENSIONS), c_version[64];
    const char *extensions = ext != NULL ? ext : "";

    clGetDeviceInfo(d->id, CL_DEVICE_TYPE, sizeof type, &type, NULL);
    d->type = CL_DEVICE_TYPE_CUSTOM;
    for (int i = 2; i >= 0; i--)
        if (type & order[i])
            d->type = order[i];
    device_string(d->id, CL_DEVICE_NAME, d->name, sizeof d->name);
    device_string(d->id, CL_DEVICE_VENDOR, d->vendor, sizeof d->vendor);
    device_string(d->id, CL_DRIVER_VERSION, d->driver, sizeof d->driver);
    device_string(d->id, CL_DEVICE_VERSION, d->version_text, sizeof d->version_text);
    device_string(d->id, CL_DEVICE_OPENCL_C_VERSION, c_version, sizeof c_version);
    d->version = parse_version(d->version_text, "OpenCL ");
    d->c_version = parse_version(c_version, "OpenCL C ");
    d->integrated = ASK(cl_bool, d->id, CL_DEVICE_HOST_UNIFIED_MEMORY) || d->type == CL_DEVICE_TYPE_CPU;
    d->mem_size = ASK(cl_ulong, d->id, CL_DEVICE_GLOBAL_MEM_SIZE);
    d->max_alloc = (size_t)ASK(cl_ulong, d->id, CL_DEVICE_MAX_MEM_ALLOC_SIZE);
    d->local_size = (size_t)ASK(cl_ulong, d->id, CL_DEVICE_LOCAL_MEM_SIZE);
    d->max_group = ASK(size_t, d->id, CL_DEVICE_MAX_WORK_GROUP_SIZE);
    d->base_align = ASK(cl_uint, d->id, CL_DEVICE_MEM_BASE_ADDR_ALIGN) / 8; /* told in bits */
    d->units = ASK(cl_uint, d->id, CL_DEVICE_MAX_COMPUTE_UNITS);
    d->vector_width = ASK(cl_uint, d->id, CL_DEVICE_NATIVE_VECTOR_WIDTH_FLOAT);
    size_t items[16] = {0};
    if (clGetDeviceInfo(d->id, CL_DEVICE_MAX_WORK_ITEM_SIZES, sizeof items, items, NULL) == CL_SUCCESS)
        memcpy(d->max_item, items, sizeof d->max_item);
    d->fp16 = has_extension(extensions, "cl_khr_fp16");
    d->fp64 = has_extension(extensions, "cl_khr_fp64");
    d->subgroups =
        has_extension(extensions, "cl_khr_subgroups") || has_extension(extensions, "cl_intel_subgroups");
    d->int_dot = has_extension(extensions, "cl_khr_integer_dot_product");
    size_t sizes[16] = {0}, told = 0;
    if (has_extension(extensions, "cl_intel_required_subgroup_size") &&
        clGetDeviceInfo(d->id, DEVICE_SUB_GROUP_SIZES, sizeof sizes, sizes, &told) == CL_SUCCESS)
        for (size_t i = 0; i < told / sizeof *sizes && i < 16; i++)
            if (sizes[i] > 0 && (d->sub_least == 0 || (int)sizes[i] < d->sub_least))
                d->sub_least = (int)sizes[i];
    ask_uuid(d, extensions);
    free(ext);
}

/* Why a device cannot be used, NULL = it can. */
static const char *unusable(const struct cl_device *d)
{
    if (d->type == CL_DEVICE_TYPE_CUSTOM)
        return "a custom device runs no kernels from text";
    if (!ASK(cl_bool, d->id, CL_DEVICE_AVAILABLE))
        return "not available";
    if (!ASK(cl_bool, d->id, CL_DEVICE_COMPILER_AVAILABLE))
        return "no compiler";
    if (!ASK(cl_bool, d->id, CL_DEVICE_ENDIAN_LITTLE))
        return "big-endian";
    if (d->version > 0 && d->version < 12)
        return "older than OpenCL 1.2";
    return NULL;
}

/* A processor is one chip whoever drives it. */
static int find_twin(const struct cl_device_set *s, const struct cl_device *d)
{
    for (size_t i = 0; i < s->n; i++) {
        const struct cl_device *o = &s->v[i];
        if (o->platform != d->platform && ((d->uuid[0] != '\0' && strcmp(o->uuid, d->uuid) == 0) ||
                                           (o->type == CL_DEVICE_TYPE_CPU && d->type == CL_DEVICE_TYPE_CPU)))
            return o->number;
    }
    return -1;
}

static int add_device(struct cl_device_set *s, const struct cl_device *like, struct err *err)
{
    struct cl_device d = *like;
    size_t cap = s->n;
    const char *why;

    ask_all(&d);
    why = unusable(&d);
    if (why != NULL)
        return skip(s, err, "opencl platform \"%s\", device %d \"%s\": %s", d.platform_name, d.device_no,
                    d.name, why);
    struct cl_device *grown = mem_grow(s->v, &cap, s->n + 1, sizeof *grown);
    if (grown == NULL)
        return err_set(err, ERR_NOMEM, "no memory for the list of OpenCL devices");
    s->v = grown;
    d.number = (int)s->n;
    d.twin = find_twin(s, &d);
    s->v[s->n++] = d;
    return 0;
}

static int add_platform(struct cl_device_set *s, cl_platform_id platform, int platform_no, struct err *err)
{
    struct cl_device d = {.platform = platform, .platform_no = platform_no};
    cl_device_id *ids = NULL;
    cl_uint n = 0;
    int rc = 0;

    /* a driver may end the process, or hang: the last line tells which */
    log_debug(LOG_CL, "opencl platform %d is asked for its name", platform_no);
    platform_string(platform, CL_PLATFORM_NAME, d.platform_name, sizeof d.platform_name);
    log_debug(LOG_CL, "opencl platform %d \"%s\" is asked for its devices", platform_no, d.platform_name);
    cl_int code = clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 0, NULL, &n);
    if (code == CL_DEVICE_NOT_FOUND || (code == CL_SUCCESS && n == 0))
        return skip(s, err,
                    "opencl platform %d \"%s\": no device (for a GPU: may this user open /dev/dri and "
                    "/dev/kfd, groups "
                    "render and video?)",
                    platform_no, d.platform_name);
    if (code != CL_SUCCESS)
        return skip(s, err, "opencl platform %d \"%s\": its devices cannot be listed: %s (%d)", platform_no,
                    d.platform_name, cl_error_name(code), code);
    ids = mem_array(n, sizeof(cl_device_id));
    if (ids == NULL)
        return err_set(err, ERR_NOMEM, "no memory for the list of OpenCL devices");
    code = clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, n, ids, NULL);
    if (code != CL_SUCCESS)
        rc = skip(s, err, "opencl platform %d \"%s\": its devices cannot be listed: %s (%d)", platform_no,
                  d.platform_name, cl_error_name(code), code);
    for (cl_uint i = 0; code == CL_SUCCESS && rc == 0 && i < n; i++) {
        d.id = ids[i];
        d.device_no = (int)i;
        rc = add_device(s, &d, err);
    }
    free(ids);
    return rc;
}

static int list(struct cl_device_set *s, struct err *err)
{
    cl_platform_id *platforms = NULL;
    cl_uint n = 0;
    int rc = 0;

    *s = (struct cl_device_set){0};
    cl_int code = clGetPlatformIDs(0, NULL, &n);
    if (code != CL_SUCCESS || n == 0)
        return skip(
            s, err,
            "opencl: no platform is installed (%s, %d); a driver's ICD is needed, for the processor itself "
            "pocl-opencl-icd",
            cl_error_name(code), code);
    platforms = mem_array(n, sizeof(cl_platform_id));
    if (platforms == NULL)
        return err_set(err, ERR_NOMEM, "no memory for the list of OpenCL platforms");
    code = clGetPlatformIDs(n, platforms, NULL);
    if (code != CL_SUCCESS)
        rc = skip(s, err, "opencl: platforms cannot be listed: %s (%d)", cl_error_name(code), code);
    for (cl_uint i = 0; code == CL_SUCCESS && rc == 0 && i < n; i++)
        rc = add_platform(s, platforms[i], (int)i, err);
    free(platforms);
    if (rc != 0)
        cl_device_set_close(s);
    return rc;
}

/* Drivers start their threads here, or with a context. */
int cl_device_set_open(struct cl_device_set *s, struct err *err)
{
    struct interrupt_hold hold;

    interrupt_hold(&hold);
    int rc = list(s, err);
    interrupt_release(&hold);
    return rc;
}

void cl_device_set_close(struct cl_device_set *s)
{
    for (size_t i = 0; i < s->n_skipped; i++)
        free(s->skipped[i]);
    free(s->skipped);
    free(s->v);
    *s = (struct cl_device_set){0};
}
