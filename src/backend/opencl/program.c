/* Kernels by file, options and name: puts a file's text together with what it
 * includes, builds it at first use, keeps program and kernels until the
 * instance closes.  Must not know what a kernel does. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/opencl/cl.h"
#include "backend/opencl/text.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/thread.h"

enum { MAX_DEPTH = 8, MAX_LOG = 65536, MAX_TEXT = 1 << 20, MAX_WARMED = 8 };

struct program {
    char *key;                  /* "file options" */
    cl_program p;               /* NULL after a failed build */
    char *why;                  /* which failed for this reason */
    struct cl_cache_key cached; /* where the disk may have it */
    bool from_disk, on_disk;    /* p came from there; there is nothing to be written */
};
struct kernel {
    char *key;    /* "file options name" */
    cl_kernel k;  /* NULL when it could not be made */
    char *why;    /* for this reason */
    size_t group; /* work-items of one group */
    bool fixed;   /* by the kernel itself: no other can be launched */
    char label[96];
    uint64_t warmed[MAX_WARMED]; /* shapes of launches that were made ready */
    int n_warmed;
};
struct dir_text {
    char *name, *text;
};
struct cl_programs {
    char *dir; /* of the texts; NULL = those built in */
    struct dir_text *texts; /* read from it */
    size_t n_texts, cap_texts;
    struct program *programs;
    size_t n_programs, cap_programs;
    struct kernel *kernels;
    size_t n_kernels, cap_kernels;
    struct strmap by_key; /* kernels */
    struct u64map by_handle;
};

void cl_programs_close(struct clb *c)
{
    struct cl_programs *s = c->programs;

    if (s == NULL)
        return;
    for (size_t i = 0; i < s->n_kernels; i++) {
        if (s->kernels[i].k != NULL)
            clReleaseKernel(s->kernels[i].k);
        free(s->kernels[i].key);
        free(s->kernels[i].why);
    }
    for (size_t i = 0; i < s->n_programs; i++) {
        if (s->programs[i].p != NULL)
            clReleaseProgram(s->programs[i].p);
        free(s->programs[i].key);
        free(s->programs[i].why);
    }
    for (size_t i = 0; i < s->n_texts; i++) {
        free(s->texts[i].name);
        free(s->texts[i].text);
    }
    free(s->texts);
    free(s->dir);
    free(s->kernels);
    free(s->programs);
    strmap_fini(&s->by_key);
    u64map_fini(&s->by_handle);
    free(s);
    c->programs = NULL;
}

/* ---- text ---- */
static const char *built_in(const char *name, struct err *err)
{
    for (size_t i = 0; i < cl_n_texts; i++)
        if (strcmp(cl_texts[i].name, name) == 0)
            return cl_texts[i].text;
    err_set(err, ERR_INTERNAL, "there is no kernel file %s", name);
    return NULL;
}

/* A file of --kernel-dir, read once. */
static const char *from_dir(struct cl_programs *s, const char *name, struct err *err)
{
    char *path = NULL, *text = NULL;
    size_t len = 0;

    for (size_t i = 0; i < s->n_texts; i++)
        if (strcmp(s->texts[i].name, name) == 0)
            return s->texts[i].text;
    if (strchr(name, '/') != NULL) {
        err_set(err, ERR_FORMAT, "%s is included, which is no file of the folder itself", name);
        return NULL;
    }
    struct dir_text *grown = mem_grow(s->texts, &s->cap_texts, s->n_texts + 1, sizeof *grown);
    if (grown != NULL)
        s->texts = grown;
    char *kept = mem_strdup(name);
    path = path_join(s->dir, name);
    if (grown == NULL || kept == NULL || path == NULL)
        err_set(err, ERR_NOMEM, "no memory for kernel file %s", name);
    else if (path_exists(path) && !path_is_file(path))
        err_set(err, ERR_IO, "%s: is no file", path);
    else if (map_read_all(path, MAX_TEXT, &text, &len, err) == 0)
        s->texts[s->n_texts++] = (struct dir_text){kept, text};
    if (text == NULL)
        free(kept);
    free(path);
    return text;
}

const char *cl_program_text(struct clb *c, const char *name, struct err *err)
{
    return c->programs->dir != NULL ? from_dir(c->programs, name, err) : built_in(name, err);
}

/* Appends a file with its includes in their places and #line marks, so that compilers name the real
 * file; guards in the texts themselves keep what is included twice from counting twice. */
static int expand(struct clb *c, struct buf *out, const char *name, int depth, struct err *err)
{
    const char *text = cl_program_text(c, name, err);
    char inner[64];
    int line = 1, rc = 0;

    if (text == NULL)
        return err->code;
    if (depth > MAX_DEPTH)
        return err_set(err, ERR_FORMAT, "kernel file %s is included more than %d deep", name, MAX_DEPTH);
    buf_printf(out, "#line 1 \"%s\"\n", name);
    for (const char *at = text; *at != '\0' && rc == 0; line++) {
        size_t n = strcspn(at, "\n");
        size_t step = at[n] == '\n' ? n + 1 : n;
        if (strncmp(at, "#include \"", 10) == 0) {
            snprintf(inner, sizeof inner, "%.*s", (int)strcspn(at + 10, "\"\n"), at + 10);
            rc = expand(c, out, inner, depth + 1, err);
            buf_printf(out, "#line %d \"%s\"\n", line + 1, name);
        } else {
            buf_put(out, at, step);
        }
        at += step;
    }
    return rc;
}

/* Every text of --kernel-dir with what it includes, at the start: one that cannot be read is told by its name,
 * where later it would be an operation that does not build, and computed elsewhere. */
static int read_all(struct clb *c, struct err *err)
{
    int rc = 0;

    for (size_t i = 0; i < cl_n_texts && rc == 0; i++) {
        struct buf text;
        buf_init(&text);
        rc = expand(c, &text, cl_texts[i].name, 0, err);
        if (rc == 0 && buf_failed(&text))
            rc = err_set(err, ERR_NOMEM, "no memory for the text of %s", cl_texts[i].name);
        buf_fini(&text);
    }
    if (rc != 0)
        err_wrap(err, "%s: kernels of %s", c->base.device, c->programs->dir);
    return rc;
}

int cl_programs_open(struct clb *c, struct err *err)
{
    c->programs = mem_array(1, sizeof *c->programs);
    if (c->programs == NULL)
        return err_set(err, ERR_NOMEM, "%s: no memory for its programs", c->base.device);
    const char *dir = c->params.kernel_dir;
    if (dir != NULL && !path_is_dir(dir))
        return err_set(err, ERR_IO, "%s: kernels are to come from %s, which is no folder", c->base.device, dir);
    if (dir != NULL && (c->programs->dir = mem_strdup(dir)) == NULL)
        return err_set(err, ERR_NOMEM, "%s: no memory for its programs", c->base.device);
    strmap_init(&c->programs->by_key);
    u64map_init(&c->programs->by_handle);
    return dir != NULL ? read_all(c, err) : 0;
}

/* ---- building ---- */
/* The first lines of what the compiler said, on one line. */
static void first_lines(struct clb *c, cl_program p, char *out, size_t size)
{
    size_t len = 0;
    char *text = NULL;

    out[0] = '\0';
    if (clGetProgramBuildInfo(p, c->dev.id, CL_PROGRAM_BUILD_LOG, 0, NULL, &len) != CL_SUCCESS || len == 0 ||
        len > 64u * MAX_LOG)
        return;
    text = mem_array(len + 1, 1);
    if (text != NULL &&
        clGetProgramBuildInfo(p, c->dev.id, CL_PROGRAM_BUILD_LOG, len, text, NULL) == CL_SUCCESS) {
        text[len < MAX_LOG ? len : MAX_LOG] = '\0';
        log_debug(LOG_CL, "build log: %s", text);
        snprintf(out, size, "%s", text);
        for (char *at = out; *at != '\0'; at++)
            *at = *at == '\n' || *at == '\r' ? ' ' : *at;
        if (out[strspn(out, " \t")] == '\0')
            out[0] = '\0'; /* nothing but ends of lines */
    }
    free(text);
}

static cl_program from_source(struct clb *c, const struct buf *text, const char *file, const char *options,
                              struct err *err)
{
    char log[600];
    const char *source = buf_str(text);
    cl_int code;
    double start = clock_now();
    cl_program p = clCreateProgramWithSource(c->ctx, 1, &source, &text->len, &code);

    if (code == CL_SUCCESS)
        code = clBuildProgram(p, 1, &c->dev.id, options, NULL, NULL);
    if (code == CL_SUCCESS) {
        log_debug(LOG_CL, "%s: built %s (%s) in %.0f ms", c->base.device, file, options,
                  1e3 * (clock_now() - start));
        return p;
    }
    log[0] = '\0';
    if (p != NULL)
        first_lines(c, p, log, sizeof log);
    const char *dir = c->programs->dir;
    err_set(err, cl_error_class(code), "building %s%s%s (%s): %s (%d) on %s, driver %s%s%s", dir != NULL ? dir : "",
            dir != NULL ? "/" : "", file, options, cl_error_name(code), code, c->dev.name, c->dev.driver,
            log[0] != '\0' ? ": " : "", log);
    if (p != NULL)
        clReleaseProgram(p);
    return NULL;
}

/* From the disk where it has the program, and allowed; else from its text.  False: err says why. */
static bool build(struct clb *c, struct program *p, const char *file, const char *options, bool disk,
                  struct err *err)
{
    char all[512];
    struct buf text;
    double start = clock_now();

    buf_init(&text);
    if (expand(c, &text, file, 0, err) != 0)
        goto done;
    if (buf_failed(&text)) {
        err_set(err, ERR_NOMEM, "no memory for the text of %s", file);
        goto done;
    }
    snprintf(all, sizeof all, "%s%s", strstr(options, "-cl-std=") != NULL ? "" : "-cl-std=CL1.2 ", options);
    p->cached = cl_cache_key(c, buf_str(&text), text.len, all);
    p->p = disk ? cl_cache_get(c, &p->cached, all) : NULL;
    p->from_disk = p->on_disk = p->p != NULL;
    if (p->p == NULL)
        p->p = from_source(c, &text, file, all, err);
    c->base.compile_s += clock_now() - start;
done:
    buf_fini(&text);
    return p->p != NULL;
}

/* Its place in the list, which grows; -1: err says why. */
static ptrdiff_t program_get(struct clb *c, const char *file, const char *options, struct err *err)
{
    struct cl_programs *s = c->programs;
    char key[600];

    snprintf(key, sizeof key, "%s %s", file, options);
    for (size_t i = 0; i < s->n_programs; i++)
        if (strcmp(s->programs[i].key, key) == 0) {
            if (s->programs[i].p == NULL)
                err_set(err, ERR_DEVICE, "%s", s->programs[i].why != NULL ? s->programs[i].why : key);
            return s->programs[i].p != NULL ? (ptrdiff_t)i : -1;
        }
    struct program *grown = mem_grow(s->programs, &s->cap_programs, s->n_programs + 1, sizeof *grown);
    char *kept = mem_strdup(key);
    if (grown != NULL)
        s->programs = grown;
    if (grown == NULL || kept == NULL) {
        free(kept);
        err_set(err, ERR_NOMEM, "no memory for the record of %s", file);
        return -1;
    }
    struct program *p = &s->programs[s->n_programs++];
    *p = (struct program){.key = kept};
    if (build(c, p, file, options, true, err))
        return p - s->programs;
    p->why = mem_strdup(err->msg);
    return -1;
}

/* A binary may be accepted and then lack its kernels (PoCL, some phones): the text is the way out. */
static cl_kernel create(struct clb *c, struct program *p, const char *file, const char *options,
                        const char *name, cl_int *code, struct err *err)
{
    cl_kernel k = clCreateKernel(p->p, name, code);

    if (*code != CL_SUCCESS && p->from_disk) {
        log_debug(LOG_CL, "%s: %s from the disk has no %s: built again", c->base.device, file, name);
        clReleaseProgram(p->p);
        p->p = NULL;
        if (!build(c, p, file, options, false, err)) {
            p->why = mem_strdup(err->msg);
            return NULL;
        }
        k = clCreateKernel(p->p, name, code);
    }
    if (*code == CL_SUCCESS && !p->on_disk) {
        cl_cache_put(c, &p->cached, p->p);
        p->on_disk = true;
    }
    return k;
}

/* Where the kernel says its size that is it: some drivers answer with their favourite all the same. */
static size_t ask_group(struct clb *c, cl_kernel k, bool *fixed)
{
    size_t n = 0, said[3] = {0};

    *fixed = clGetKernelWorkGroupInfo(k, c->dev.id, CL_KERNEL_COMPILE_WORK_GROUP_SIZE, sizeof said, said, NULL) ==
                 CL_SUCCESS &&
             said[0] > 0;
    if (*fixed)
        return said[0] * said[1] * said[2];
    if (clGetKernelWorkGroupInfo(k, c->dev.id, CL_KERNEL_WORK_GROUP_SIZE, sizeof n, &n, NULL) != CL_SUCCESS ||
        n == 0)
        n = 1;
    return c->dev.max_group > 0 && c->dev.max_group < n ? c->dev.max_group : n;
}

/* The name, and of its options those that are not 0: "linear_row Q8_0 SPLIT UNITS", "attn_rows HD=128 G=2". */
static void make_label(char *out, size_t size, const char *options, const char *name)
{
    size_t len = (size_t)snprintf(out, size, "%s", name);

    for (const char *at = strstr(options, "-D"); at != NULL && len < size; at = strstr(at, "-D")) {
        int n = (int)strcspn(at += 2, " ");
        if (strncmp(at, "WT=WT_", 6) == 0)
            len += (size_t)snprintf(out + len, size - len, " %.*s", n - 6, at + 6);
        else if (n > 2 && strncmp(at + n - 2, "=1", 2) == 0)
            len += (size_t)snprintf(out + len, size - len, " %.*s", n - 2, at);
        else if (n < 2 || strncmp(at + n - 2, "=0", 2) != 0)
            len += (size_t)snprintf(out + len, size - len, " %.*s", n, at);
    }
}

/* Makes the kernel; its record also when that fails, so that it is tried once. */
static cl_kernel kernel_new(struct clb *c, const char *file, const char *options, const char *name,
                            const char *key, struct err *err)
{
    struct cl_programs *s = c->programs;
    ptrdiff_t p = program_get(c, file, options, err);
    cl_int code = CL_SUCCESS;

    if (p < 0)
        return NULL;
    struct kernel *grown = mem_grow(s->kernels, &s->cap_kernels, s->n_kernels + 1, sizeof *grown);
    char *kept = mem_strdup(key);
    if (grown != NULL)
        s->kernels = grown;
    if (grown == NULL || kept == NULL ||
        strmap_add(&s->by_key, kept, strlen(kept), (uint32_t)s->n_kernels) < 0) {
        free(kept);
        err_set(err, ERR_NOMEM, "no memory for the record of kernel %s", name);
        return NULL;
    }
    struct kernel *k = &s->kernels[s->n_kernels++];
    *k = (struct kernel){.key = kept};
    k->k = create(c, &s->programs[p], file, options, name, &code, err);
    if (code != CL_SUCCESS) {
        k->k = NULL;
        err_set(err, cl_error_class(code), "kernel %s of %s: %s (%d) on %s, driver %s", name, file,
                cl_error_name(code), code, c->dev.name, c->dev.driver);
        k->why = mem_strdup(err->msg);
        return NULL;
    }
    k->group = ask_group(c, k->k, &k->fixed);
    make_label(k->label, sizeof k->label, options, name);
    if (u64map_add(&s->by_handle, (uint64_t)(uintptr_t)k->k, s->n_kernels - 1) < 0) {
        clReleaseKernel(k->k); /* without its group it is not to be found again */
        k->k = NULL;
        err_set(err, ERR_NOMEM, "no memory for the record of kernel %s", name);
        k->why = mem_strdup(err->msg);
        return NULL;
    }
    return k->k;
}

static cl_kernel get(struct clb *c, const char *file, const char *options, const char *name, struct err *err)
{
    char key[700];
    uint32_t at;

    snprintf(key, sizeof key, "%s %s %s", file, options, name);
    if (!strmap_find(&c->programs->by_key, key, strlen(key), &at)) {
        struct interrupt_hold hold; /* compilers are programs, to some drivers */
        interrupt_hold(&hold);
        cl_kernel k = kernel_new(c, file, options, name, key, err);
        interrupt_release(&hold);
        return k;
    }
    if (c->programs->kernels[at].k == NULL)
        err_set(err, ERR_DEVICE, "%s",
                c->programs->kernels[at].why != NULL ? c->programs->kernels[at].why : key);
    return c->programs->kernels[at].k;
}

cl_kernel cl_kernel_get(struct clb *c, const char *file, const char *options, const char *name)
{
    struct err err = {0};
    cl_kernel k = get(c, file, options, name, &err);

    if (k == NULL)
        backend_fail(&c->base, err.code, "%s", err.msg);
    return k;
}

cl_kernel cl_kernel_try(struct clb *c, const char *file, const char *options, const char *name)
{
    struct err err = {0};
    cl_kernel k = get(c, file, options, name, &err);

    if (k == NULL)
        log_debug(LOG_CL, "%s: %s", c->base.device, err.msg);
    return k;
}

size_t cl_kernel_group(struct clb *c, cl_kernel k)
{
    uint64_t at;
    return u64map_find(&c->programs->by_handle, (uint64_t)(uintptr_t)k, &at) ? c->programs->kernels[at].group
                                                                             : 1;
}

bool cl_kernel_lower_group(struct clb *c, cl_kernel k, size_t size)
{
    uint64_t at;
    if (!u64map_find(&c->programs->by_handle, (uint64_t)(uintptr_t)k, &at) || c->programs->kernels[at].fixed)
        return false;
    c->programs->kernels[at].group = size;
    return true;
}

const char *cl_kernel_label(struct clb *c, cl_kernel k)
{
    uint64_t at;
    return u64map_find(&c->programs->by_handle, (uint64_t)(uintptr_t)k, &at) ? c->programs->kernels[at].label : "?";
}

/* ---- making ready ---- */
/* Some drivers (PoCL) compile a kernel anew at its first launch with a local size, and again when some global
 * dimension is beyond 16 bits.  So one group is launched for each local size; many only where the real launch
 * has that many. */
enum { SMALL_GRID = 65535 };

bool cl_kernel_warm(struct clb *c, cl_kernel k, int dims, size_t *global, const size_t *local)
{
    uint64_t at, shape = 0;
    int largest = 0;

    for (int d = 0; d < dims; d++)
        largest = global[d] > global[largest] ? d : largest;
    size_t most = global[largest] > SMALL_GRID ? SMALL_GRID / local[largest] * local[largest] + local[largest] : 0;
    for (int d = 0; d < dims; d++) {
        global[d] = d == largest && most > 0 ? most : local[d];
        shape = hash_u64(shape ^ global[d] << 24 ^ local[d]);
    }
    if (!u64map_find(&c->programs->by_handle, (uint64_t)(uintptr_t)k, &at))
        return true;
    struct kernel *r = &c->programs->kernels[at];
    for (int i = 0; i < r->n_warmed; i++)
        if (r->warmed[i] == shape)
            return false;
    if (r->n_warmed < MAX_WARMED)
        r->warmed[r->n_warmed++] = shape;
    return true;
}

void cl_warm(struct backend *be, bool on)
{
    struct clb *c = (struct clb *)be;

    if (on) {
        c->warm_start = clock_now();
        c->warm_built = be->compile_s;
        return;
    }
    clFinish(c->queue); /* what a driver compiles at a launch is counted too */
    be->compile_s = c->warm_built + (clock_now() - c->warm_start);
    log_debug(LOG_CL, "%s: made ready in %.1f ms", be->device, 1e3 * (clock_now() - c->warm_start));
}
