/* The table of backends, and how a selector picks devices from it.  A new
 * backend is a folder and a row here.  Must not know how a backend works,
 * only how its devices are listed and opened. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "backend/registry.h"

#include <ctype.h>
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backend/cpu/host.h"
#include "backend/guard.h"
#ifdef HAVE_OPENCL
#include "backend/opencl/opencl.h"
#endif
#include "base/buf.h"
#include "base/log.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/thread.h"

struct backend_row {
    const char *name; /* also the start of its selectors: "opencl", "opencl:0" */
    /* Appends its devices and what it skipped. */
    int (*list)(struct device_list *out, struct err *err);
    /* selector: a device of `list`, or what follows the law of the backend ("opencl:gpu"). */
    int (*open)(struct backend **out, const char *selector, const struct backend_params *params,
                struct err *err);
    bool has_numbers; /* its selectors have a part behind a colon */
};

/* ---- rows ---- */
static struct device_info *add_device(struct device_list *l, const char *backend, struct err *err)
{
    size_t cap = l->n_devices;
    struct device_info *grown = mem_grow(l->devices, &cap, l->n_devices + 1, sizeof *grown);

    if (grown == NULL) {
        err_set(err, ERR_NOMEM, "no memory for the list of devices");
        return NULL;
    }
    l->devices = grown;
    struct device_info *d = &l->devices[l->n_devices++];
    *d = (struct device_info){0};
    snprintf(d->selector, sizeof d->selector, "%s", backend);
    snprintf(d->backend, sizeof d->backend, "%s", backend);
    return d;
}

static int add_skipped(struct device_list *l, const char *line, struct err *err)
{
    size_t cap = l->n_skipped;
    char **grown = mem_grow(l->skipped, &cap, l->n_skipped + 1, sizeof *grown);

    if (grown != NULL)
        l->skipped = grown;
    if (grown == NULL || (grown[l->n_skipped] = mem_strdup(line)) == NULL)
        return err_set(err, ERR_NOMEM, "no memory for the list of devices");
    l->n_skipped++;
    return 0;
}

static int list_cpu(struct device_list *out, struct err *err)
{
    struct device_info *d = add_device(out, "cpu", err);

    if (d == NULL)
        return ERR_NOMEM;
    cpu_describe(d->name, sizeof d->name, thread_count_default(), NULL);
    char isas[128];
    snprintf(d->detail, sizeof d->detail, "threads, exact arithmetic; instruction sets: %s",
             cpu_isa_list(isas, sizeof isas));
    d->mem_size = mem_available();
    return 0;
}

static int list_ref(struct device_list *out, struct err *err)
{
    struct device_info *d = add_device(out, "ref", err);

    if (d == NULL)
        return ERR_NOMEM;
    snprintf(d->name, sizeof d->name, "reference in plain C, 1 thread");
    snprintf(d->detail, sizeof d->detail, "sums in double; slow, what every other device is checked against");
    d->mem_size = mem_available();
    return 0;
}

static int open_cpu(struct backend **out, const char *selector, const struct backend_params *params,
                    struct err *err)
{
    (void)selector;
    return cpu_open(out, params, err);
}

static int open_ref(struct backend **out, const char *selector, const struct backend_params *params,
                    struct err *err)
{
    (void)selector;
    return ref_open(out, params, err);
}

#ifdef HAVE_OPENCL
static int list_opencl(struct device_list *out, struct err *err)
{
    struct opencl_list l;
    int rc = opencl_list_open(&l, err);

    for (size_t i = 0; rc == 0 && i < l.n_devices; i++) {
        const struct opencl_info *o = &l.devices[i];
        struct device_info *d = add_device(out, "opencl", err);
        if (d == NULL) {
            rc = ERR_NOMEM;
            break;
        }
        memcpy(d->selector, o->selector, sizeof d->selector);
        memcpy(d->name, o->name, sizeof d->name);
        memcpy(d->detail, o->detail, sizeof d->detail);
        d->mem_size = o->mem_size;
    }
    for (size_t i = 0; rc == 0 && i < l.n_skipped; i++)
        rc = add_skipped(out, l.skipped[i], err);
    opencl_list_close(&l);
    return rc;
}

static int open_opencl(struct backend **out, const char *selector, const struct backend_params *params,
                       struct err *err)
{
    return opencl_open_selector(out, selector, params, err);
}

static int open_gpu(struct backend **out, const struct backend_params *params, char *why, size_t why_size,
                    struct err *err)
{
    return opencl_open_gpu(out, params, why, why_size, err);
}
#else
static int list_opencl(struct device_list *out, struct err *err)
{
    return add_skipped(out, "opencl: this build has no OpenCL backend", err);
}

static int open_opencl(struct backend **out, const char *selector, const struct backend_params *params,
                       struct err *err)
{
    (void)out, (void)params;
    return err_set(err, ERR_DEVICE, "device \"%s\": this build has no OpenCL backend", selector);
}

static int open_gpu(struct backend **out, const struct backend_params *params, char *why, size_t why_size,
                    struct err *err)
{
    (void)params, (void)err;
    *out = NULL;
    snprintf(why, why_size, "this build has no OpenCL backend");
    return 0;
}
#endif

static const struct backend_row rows[] = {
    {"cpu", list_cpu, open_cpu, false},
    {"ref", list_ref, open_ref, false},
    {"opencl", list_opencl, open_opencl, true},
};
enum { N_ROWS = sizeof rows / sizeof *rows };

/* ---- the list ---- */
int registry_list(struct device_list *out, struct err *err)
{
    *out = (struct device_list){0};
    for (size_t i = 0; i < N_ROWS; i++) {
        int rc = rows[i].list(out, err);
        if (rc != 0) {
            device_list_free(out);
            return rc;
        }
    }
    return 0;
}

void device_list_free(struct device_list *l)
{
    for (size_t i = 0; i < l->n_skipped; i++)
        free(l->skipped[i]);
    free(l->skipped);
    free(l->devices);
    *l = (struct device_list){0};
}

static bool contains(const char *text, const char *part)
{
    size_t n = strlen(part);
    for (; *text != '\0'; text++) {
        size_t i = 0;
        while (i < n && tolower((unsigned char)text[i]) == tolower((unsigned char)part[i]))
            i++;
        if (i == n)
            return true;
    }
    return false;
}

/* "cpu (AMD ..., 2 threads, avx512), ref (...)": those whose name contains the part, NULL = all. */
static void put_devices(struct buf *b, const struct device_list *l, const char *part)
{
    const char *between = "";
    for (size_t i = 0; i < l->n_devices; i++)
        if (part == NULL || contains(l->devices[i].name, part)) {
            buf_printf(b, "%s%s (%s)", between, l->devices[i].selector, l->devices[i].name);
            between = ", ";
        }
}

static int refuse(const struct device_list *l, const char *item, const char *why, struct err *err)
{
    struct buf b;
    int rc;

    buf_init(&b);
    put_devices(&b, l, NULL);
    rc = err_set(err, ERR_ARG, "device \"%s\" %s; devices here: %s, or auto", item, why, buf_str(&b));
    buf_fini(&b);
    return rc;
}

static int ambiguous(const struct device_list *l, const char *item, struct err *err)
{
    struct buf b;
    int rc;

    buf_init(&b);
    put_devices(&b, l, item);
    rc = err_set(err, ERR_ARG, "device \"%s\" fits more than one device: %s", item, buf_str(&b));
    buf_fini(&b);
    return rc;
}

/* ---- picking ---- */
static const struct backend_row *row_named(const char *name)
{
    for (size_t i = 0; i < N_ROWS; i++)
        if (strcmp(rows[i].name, name) == 0)
            return &rows[i];
    return NULL;
}

/* "opencl", "opencl:gpu" belong to the row "opencl". */
static const struct backend_row *row_addressed(const char *item)
{
    size_t n = strcspn(item, ":");
    for (size_t i = 0; i < N_ROWS; i++)
        if (strlen(rows[i].name) == n && strncmp(rows[i].name, item, n) == 0)
            return &rows[i];
    return NULL;
}

/* Kernels that the user named and that cannot be read: no device stands in for these. */
static bool named_wrongly(const struct backend_params *p, int rc)
{
    return p->kernel_dir != NULL && (rc == ERR_IO || rc == ERR_FORMAT || rc == ERR_LIMIT);
}

/* The best GPU, else the processor's own backend. */
static int open_auto(struct backend **out, const struct backend_params *params, char *why, size_t why_size,
                     struct err *err)
{
    struct err own = {0};
    int rc = open_gpu(out, params, why, why_size, &own);

    if (rc == 0 && *out != NULL)
        return 0;
    if (rc != 0 && (params->require_device || rc == ERR_CANCELLED || named_wrongly(params, rc)))
        return err_set(err, rc, "%s", own.msg);
    if (rc != 0) {
        log_msg(LOG_WARN, "the GPU is not used: %s", own.msg);
        snprintf(why, why_size, "the GPU that is there cannot be opened");
    }
    return cpu_open(out, params, err);
}

/* Part of a name: the only way that needs the whole list. */
static int open_named(struct backend **out, const char *item, const struct device_list *l,
                      const struct backend_params *params, struct err *err)
{
    const struct device_info *match = NULL;

    for (size_t i = 0; i < l->n_devices; i++) {
        if (!contains(l->devices[i].name, item))
            continue;
        if (match != NULL)
            return ambiguous(l, item, err);
        match = &l->devices[i];
    }
    if (match == NULL)
        return refuse(l, item, "is not known", err);
    return row_named(match->backend)->open(out, match->selector, params, err);
}

static int open_listed(struct backend **out, const char *item, const struct backend_params *params,
                       struct err *err)
{
    struct device_list l;
    int rc = registry_list(&l, err);

    if (rc != 0)
        return rc;
    if (item[0] == '\0')
        rc = refuse(&l, item, "is an empty name", err);
    else if (row_addressed(item) != NULL)
        rc = refuse(&l, item, "has no parts to choose from", err);
    else
        rc = open_named(out, item, &l, params, err);
    device_list_free(&l);
    return rc;
}

/* Devices are listed only for a name or a refusal: "cpu" touches nothing else. */
static int open_item(struct backend **out, const char *item, const struct backend_params *params, char *why,
                     size_t why_size, struct err *err)
{
    const struct backend_row *row = row_addressed(item);

    if (strcmp(item, "auto") == 0)
        return open_auto(out, params, why, why_size, err);
    if (row != NULL && (row->has_numbers || strchr(item, ':') == NULL))
        return row->open(out, item, params, err);
    return open_listed(out, item, params, err);
}

/* Next item of a comma list without the blanks around it; false at the end. */
static bool next_item(const char **at, char *item, size_t size)
{
    if (*at == NULL)
        return false;
    const char *start = *at + strspn(*at, " \t");
    size_t n = strcspn(start, ",");
    *at = start[n] == ',' ? start + n + 1 : NULL;
    while (n > 0 && (start[n - 1] == ' ' || start[n - 1] == '\t'))
        n--;
    snprintf(item, size, "%.*s", (int)(n < size ? n : size - 1), start);
    return true;
}

static void explain(char *reason, size_t size, const char *why, struct backend *const *be, int n)
{
    struct buf b;

    buf_init(&b);
    for (int i = 0; i < n; i++) {
        buf_printf(&b, "%s%s", i > 0 ? ", " : "", be[i]->device);
        if (be[i]->detail[0] != '\0')
            buf_printf(&b, " (%s)", be[i]->detail);
    }
    if (why[0] != '\0')
        snprintf(reason, size, "auto: %s; %s", buf_str(&b), why);
    else
        snprintf(reason, size, "as asked: %s", buf_str(&b));
    buf_fini(&b);
}

/* What is opened is checked before use; an error closes it. */
static int trust(struct backend **be, const struct backend_params *params, struct err *err)
{
#ifdef CHECK_OPS
    int rc = strcmp((*be)->ops->name, "ref") != 0 ? guard_check_ops(*be, err) : 0;
    (void)params;
    if (rc != 0)
        registry_close(*be);
    return rc;
#else
    return guard_open(be, params, err);
#endif
}

/* The first pair; when the devices are opened again it has been told. */
static void warn_of_twins(struct backend *const *be, int n, const struct backend_params *params)
{
    for (int i = 1; i < n && !params->recheck; i++)
        for (int j = 0; j < i; j++)
            if (be[i]->chip[0] != '\0' && strcmp(be[i]->chip, be[j]->chip) == 0) {
                log_msg(LOG_WARN, "%s and %s are the same chip: layers that are shared between them gain nothing",
                        be[j]->device, be[i]->device);
                return;
            }
}

/* Also where no device reads it: what was named by mistake is told everywhere. */
static int check_files(const struct backend_params *p, struct err *err)
{
    const char *path = p->clblast_params;

    if (path == NULL || (access(path, R_OK) == 0 && !path_is_dir(path)))
        return 0;
    return err_set(err, ERR_IO, "%s: CLBlast's parameters cannot be read: %s", path,
                   path_is_dir(path) ? "this is a folder" : strerror(errno));
}

int registry_open(const char *selector, const struct backend_params *params,
                  struct backend *out[REGISTRY_MAX_INSTANCES], int *n, char *reason, size_t reason_size,
                  struct err *err)
{
    const char *at = selector;
    char item[160], why[128] = "";
    int rc = check_files(params, err);

    *n = 0;
    while (rc == 0 && next_item(&at, item, sizeof item)) {
        if (*n == REGISTRY_MAX_INSTANCES)
            rc = err_set(err, ERR_ARG, "device list \"%s\": more than %d devices", selector,
                         REGISTRY_MAX_INSTANCES);
        else if ((rc = open_item(&out[*n], item, params, why, sizeof why, err)) == 0 &&
                 (rc = trust(&out[*n], params, err)) == 0)
            ++*n;
    }
    if (rc == 0 && reason != NULL && reason_size > 0)
        explain(reason, reason_size, why, out, *n);
    if (rc == 0)
        warn_of_twins(out, *n, params);
    while (rc != 0 && *n > 0)
        registry_close(out[--*n]);
    return rc;
}

/* ---- parameters ---- */
/* Every string of struct backend_params. */
static const size_t strings[] = {
    offsetof(struct backend_params, cpu_isa),
    offsetof(struct backend_params, kernels),
    offsetof(struct backend_params, kernel_cache),
    offsetof(struct backend_params, kernel_dir),
    offsetof(struct backend_params, clblast_params),
};
enum { N_STRINGS = sizeof strings / sizeof *strings };

static const char **string_at(struct backend_params *p, size_t i)
{
    return (const char **)(void *)((char *)p + strings[i]);
}

bool backend_params_copy(struct backend_params *out, const struct backend_params *p)
{
    bool ok = true;

    *out = *p;
    for (size_t i = 0; i < N_STRINGS; i++) {
        const char **s = string_at(out, i);
        if (*s == NULL)
            continue;
        *s = mem_strdup(*s);
        ok = ok && *s != NULL;
    }
    return ok;
}

void backend_params_fini(struct backend_params *p)
{
    for (size_t i = 0; i < N_STRINGS; i++)
        free((void *)(uintptr_t)*string_at(p, i));
}

void registry_close(struct backend *be)
{
    if (be == NULL)
        return;
    struct prof *p = be->prof;
    be->ops->close(be);
    prof_free(p);
}

const char *registry_cpu_isa(char *out, size_t size)
{
    return cpu_isa_list(out, size);
}
