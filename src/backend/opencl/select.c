/* Which device a selector means, and the backend's face for the registry.
 * Names and features of devices never decide here whether one may run: only
 * the type orders them. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/opencl/cl.h"
#include "backend/opencl/opencl.h"
#include "base/buf.h"
#include "base/log.h"
#include "base/mem.h"

/* Discrete GPU, integrated GPU, accelerator, processor; of twins the first. */
static int rank(const struct cl_device *d)
{
    int r = d->type == CL_DEVICE_TYPE_GPU           ? (d->integrated ? 6 : 8)
            : d->type == CL_DEVICE_TYPE_ACCELERATOR ? 4
                                                    : 2;
    return r - (d->twin >= 0);
}

static const struct cl_device *best(const struct cl_device_set *s, cl_device_type type)
{
    const struct cl_device *b = NULL;
    for (size_t i = 0; i < s->n; i++)
        if ((s->v[i].type & type) && (b == NULL || rank(&s->v[i]) > rank(b)))
            b = &s->v[i];
    return b;
}

static const char *type_name(const struct cl_device *d)
{
    if (d->type == CL_DEVICE_TYPE_GPU)
        return d->integrated ? "integrated GPU" : "GPU";
    return d->type == CL_DEVICE_TYPE_CPU ? "CPU" : "accelerator";
}

static int refuse(const struct cl_device_set *s, const char *selector, struct err *err)
{
    struct buf b;
    int rc;

    buf_init(&b);
    for (size_t i = 0; i < s->n; i++)
        buf_printf(&b, "%sopencl:%d or opencl:%d.%d (%s, %s)", i > 0 ? ", " : "", s->v[i].number,
                   s->v[i].platform_no, s->v[i].device_no, s->v[i].name, type_name(&s->v[i]));
    rc = err_set(err, ERR_ARG, "device \"%s\" is not known; OpenCL devices here: %s", selector, buf_str(&b));
    buf_fini(&b);
    return rc;
}

/* Digits alone, up to six of them; -1 = something else. */
static int parse_number(const char *text, size_t len)
{
    int v = 0;
    if (len == 0 || len > 6)
        return -1;
    for (size_t i = 0; i < len; i++) {
        if (!isdigit((unsigned char)text[i]))
            return -1;
        v = 10 * v + (text[i] - '0');
    }
    return v;
}

/* "N" or "P.D" */
static const struct cl_device *numbered(const struct cl_device_set *s, const char *text)
{
    const char *dot = strchr(text, '.');
    int a = parse_number(text, dot != NULL ? (size_t)(dot - text) : strlen(text));
    int b = dot != NULL ? parse_number(dot + 1, strlen(dot + 1)) : 0;

    for (size_t i = 0; a >= 0 && b >= 0 && i < s->n; i++) {
        const struct cl_device *d = &s->v[i];
        if (dot != NULL ? d->platform_no == a && d->device_no == b : d->number == a)
            return d;
    }
    return NULL;
}

static const struct {
    const char *selector;
    cl_device_type type;
    const char *what;
} kinds[] = {
    {"opencl", CL_DEVICE_TYPE_ALL, "device"},
    {"opencl:gpu", CL_DEVICE_TYPE_GPU, "GPU"},
    {"opencl:cpu", CL_DEVICE_TYPE_CPU, "CPU device"},
};

const struct cl_device *cl_device_select(const struct cl_device_set *s, const char *selector, struct err *err)
{
    const struct cl_device *d = NULL;

    if (s->n == 0) {
        err_set(err, ERR_DEVICE, "device \"%s\": no OpenCL device; %s", selector,
                s->n_skipped > 0 ? s->skipped[0] : "");
        return NULL;
    }
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(selector, kinds[i].selector) == 0) {
            d = best(s, kinds[i].type);
            if (d == NULL)
                err_set(err, ERR_DEVICE,
                        "device \"%s\": no OpenCL %s here; `forge devices` lists what there is", selector,
                        kinds[i].what);
            return d;
        }
    if (strncmp(selector, "opencl:", 7) == 0)
        d = numbered(s, selector + 7);
    if (d == NULL)
        refuse(s, selector, err);
    return d;
}

/* ---- the registry's face ---- */
int opencl_list_open(struct opencl_list *out, struct err *err)
{
    struct cl_device_set s;
    int rc = cl_device_set_open(&s, err);

    *out = (struct opencl_list){0};
    if (rc != 0)
        return rc;
    out->devices = mem_array(s.n, sizeof *out->devices);
    if (out->devices == NULL) {
        cl_device_set_close(&s);
        return err_set(err, ERR_NOMEM, "no memory for the list of OpenCL devices");
    }
    for (size_t i = 0; i < s.n; i++) {
        const struct cl_device *d = &s.v[i];
        struct opencl_info *o = &out->devices[out->n_devices++];
        snprintf(o->selector, sizeof o->selector, "opencl:%d", d->number);
        snprintf(o->name, sizeof o->name, "%s", d->name);
        int n = snprintf(o->detail, sizeof o->detail,
                         "opencl:%d.%d, %s, %u units, %s, platform %s, driver %s", d->platform_no,
                         d->device_no, type_name(d), d->units, d->version_text, d->platform_name, d->driver);
        if (d->twin >= 0 && n > 0 && (size_t)n < sizeof o->detail)
            snprintf(o->detail + n, sizeof o->detail - (size_t)n, "; the same chip as opencl:%d", d->twin);
        o->mem_size = d->mem_size;
    }
    out->skipped = s.skipped;
    out->n_skipped = s.n_skipped;
    s.skipped = NULL;
    s.n_skipped = 0;
    cl_device_set_close(&s);
    return 0;
}

void opencl_list_close(struct opencl_list *l)
{
    for (size_t i = 0; i < l->n_skipped; i++)
        free(l->skipped[i]);
    free(l->skipped);
    free(l->devices);
    *l = (struct opencl_list){0};
}

int opencl_open_selector(struct backend **out, const char *selector, const struct backend_params *params,
                         struct err *err)
{
    struct cl_device_set s;
    struct err own = {0};
    int rc = cl_device_set_open(&s, &own);

    if (rc == 0) {
        const struct cl_device *d = cl_device_select(&s, selector, &own);
        rc = d != NULL ? opencl_open(out, d, params, &own) : own.code;
        cl_device_set_close(&s);
    }
    return rc != 0 ? err_set(err, rc, "%s", own.msg) : 0;
}

int opencl_open_gpu(struct backend **out, const struct backend_params *params, char *why, size_t why_size,
                    struct err *err)
{
    struct cl_device_set s;
    int rc = cl_device_set_open(&s, err);

    *out = NULL;
    if (rc != 0)
        return rc;
    const struct cl_device *d = best(&s, CL_DEVICE_TYPE_GPU);
    if (d != NULL) {
        snprintf(why, why_size, "the best GPU of %zu OpenCL device%s", s.n, s.n == 1 ? "" : "s");
        rc = opencl_open(out, d, params, err);
    } else {
        snprintf(why, why_size, "no GPU with OpenCL");
    }
    cl_device_set_close(&s);
    return rc;
}
