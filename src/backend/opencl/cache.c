/* Compiled kernels on disk: one file for each program, found by a hash of all
 * that its binary depends on.
 *
 * Nothing here ever fails a run: an entry that is missing, cut short, damaged,
 * foreign or refused by the driver means that the program is built from its
 * source, and a folder that cannot be written means that nothing is kept.
 * Entries take their place when they are whole (path_replace), so that several
 * processes may share a folder.  Must not know what a program computes. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "backend/opencl/cl.h"
#include "backend/opencl/text.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/map.h"
#include "base/mem.h"

/* Another layout of the file, or another meaning of the key: another number. */
enum { FORMAT = 1 };
#define MAX_BINARY ((size_t)64 << 20)

static const char magic[8] = "FORGECLK";

struct header { /* of a file; the binary follows */
    char magic[8];
    uint32_t format, pointer_size;
    uint64_t key[2];
    uint64_t size, checksum; /* of the binary */
};

struct cl_cache {
    char *dir;
    uint64_t device[2]; /* hash of what the device and its driver are */
};

/* ---- the key ---- */
static const uint64_t seeds[2] = {UINT64_C(0x6B65726E656C2061), UINT64_C(0x6B65726E656C2062)};

static void mix(uint64_t h[2], const void *data, size_t len)
{
    for (int i = 0; i < 2; i++)
        h[i] = hash_bytes(data, len, h[i] ^ seeds[i]);
}

static void mix_device(struct clb *c, uint64_t h[2], cl_device_info what)
{
    char text[1024];
    size_t len = 0;

    if (clGetDeviceInfo(c->dev.id, what, sizeof text, text, &len) != CL_SUCCESS || len > sizeof text)
        len = 0;
    mix(h, text, len);
}

/* A driver's update, another device of the same name, another size of pointers: each is another key. */
static void hash_device(struct clb *c, uint64_t h[2])
{
    static const cl_device_info asked[] = {CL_DEVICE_NAME, CL_DEVICE_VENDOR, CL_DRIVER_VERSION,
                                           CL_DEVICE_VERSION};
    const uint32_t ours[] = {FORMAT, (uint32_t)sizeof(void *)};
    char text[1024];
    size_t len = 0;

    h[0] = h[1] = 0;
    mix(h, ours, sizeof ours);
    for (size_t i = 0; i < sizeof asked / sizeof *asked; i++)
        mix_device(c, h, asked[i]);
    if (clGetPlatformInfo(c->dev.platform, CL_PLATFORM_VERSION, sizeof text, text, &len) != CL_SUCCESS ||
        len > sizeof text)
        len = 0;
    mix(h, text, len);
}

/* What results depend on: the device and its driver, our kernels and their launchers, whose version is the
 * program's, and which of them are chosen. */
void cl_identity(const struct backend *be, uint64_t id[2])
{
    struct clb *c = (struct clb *)(uintptr_t)be;
    const uint64_t choice[] = {c->family,        c->canonical,      c->dev.max_group, c->zero_copy,
                               c->params.math,   c->dev.subgroups,  c->dev.int_dot,   c->dev.fp16};

    hash_device(c, id);
    mix(id, PACKAGE_VERSION, sizeof PACKAGE_VERSION);
    mix(id, choice, sizeof choice);
    for (size_t i = 0; i < cl_n_texts; i++) {
        const char *text = cl_program_text(c, cl_texts[i].name, NULL);
        mix(id, text != NULL ? text : "", text != NULL ? strlen(text) : 0);
    }
}

struct cl_cache_key cl_cache_key(struct clb *c, const char *source, size_t len, const char *options)
{
    struct cl_cache_key key = {{0, 0}};

    if (c->cache == NULL)
        return key;
    memcpy(key.h, c->cache->device, sizeof key.h);
    mix(key.h, source, len);
    mix(key.h, options, strlen(options));
    return key;
}

/* ---- the folder ---- */
/* Makes dir and what is missing above it, for this user alone. */
static bool make_folder(const char *dir)
{
    char *path = mem_strdup(dir);
    bool ok = path != NULL;

    for (char *at = path; ok && at != NULL && *at != '\0';) {
        at = strchr(at + 1, '/');
        if (at != NULL)
            *at = '\0';
        ok = mkdir(path, 0700) == 0 || errno == EEXIST || path_is_dir(path);
        if (at != NULL)
            *at = '/';
    }
    free(path);
    return ok && path_is_dir(dir);
}

void cl_cache_open(struct clb *c)
{
    const char *dir = c->params.kernel_cache;

    if (dir == NULL || dir[0] == '\0')
        return;
    c->cache = mem_array(1, sizeof *c->cache);
    if (c->cache == NULL || (c->cache->dir = mem_strdup(dir)) == NULL) {
        cl_cache_close(c);
        return;
    }
    if (!make_folder(dir))
        log_debug(LOG_CL, "%s: %s is no folder that can be used: compiled kernels are not kept",
                  c->base.device, dir);
    hash_device(c, c->cache->device);
}

void cl_cache_close(struct clb *c)
{
    if (c->cache != NULL)
        free(c->cache->dir);
    free(c->cache);
    c->cache = NULL;
}

/* "DIR/forge-HASH.clk"; all that forge keeps in such a folder begins with "forge-". */
static char *entry_path(const struct clb *c, const struct cl_cache_key *key)
{
    char name[64];
    snprintf(name, sizeof name, "forge-%016" PRIx64 "%016" PRIx64 ".clk", key->h[0], key->h[1]);
    return path_join(c->cache->dir, name);
}

/* ---- reading ---- */
/* The binary of a whole and sound entry for this key, inside data. */
static const uint8_t *check(const char *data, size_t len, const struct cl_cache_key *key, size_t *size)
{
    struct header h;

    if (len < sizeof h)
        return NULL;
    memcpy(&h, data, sizeof h);
    if (memcmp(h.magic, magic, sizeof magic) != 0 || h.format != FORMAT || h.pointer_size != sizeof(void *) ||
        memcmp(h.key, key->h, sizeof h.key) != 0 || h.size == 0 || h.size != len - sizeof h)
        return NULL;
    *size = (size_t)h.size;
    const uint8_t *binary = (const uint8_t *)data + sizeof h;
    return hash_bytes(binary, *size, seeds[0]) == h.checksum ? binary : NULL;
}

static cl_program from_binary(struct clb *c, const uint8_t *binary, size_t size, const char *options)
{
    cl_int code, status = CL_SUCCESS;
    cl_program p = clCreateProgramWithBinary(c->ctx, 1, &c->dev.id, &size, &binary, &status, &code);

    if (p != NULL && code == CL_SUCCESS && status == CL_SUCCESS &&
        clBuildProgram(p, 1, &c->dev.id, options, NULL, NULL) == CL_SUCCESS)
        return p;
    if (p != NULL)
        clReleaseProgram(p);
    return NULL;
}

cl_program cl_cache_get(struct clb *c, const struct cl_cache_key *key, const char *options)
{
    char *path, *data = NULL;
    size_t len = 0, size = 0;
    cl_program p = NULL;

    if (c->cache == NULL || (path = entry_path(c, key)) == NULL)
        return NULL;
    double start = clock_now();
    if (path_is_file(path) && map_read_all(path, MAX_BINARY + sizeof(struct header), &data, &len, NULL) == 0) {
        const uint8_t *binary = check(data, len, key, &size);
        p = binary != NULL ? from_binary(c, binary, size, options) : NULL;
        log_debug(LOG_CL, "%s: %s: %s, %.1f ms", c->base.device, path,
                  p != NULL        ? "taken"
                  : binary == NULL ? "is no entry for this program"
                                   : "refused by the driver",
                  1e3 * (clock_now() - start));
    }
    free(data);
    free(path);
    return p;
}

/* ---- writing ---- */
/* The one device's binary; NULL where the driver has none to give. */
static uint8_t *binary_of(cl_program p, size_t *size)
{
    uint8_t *binary = NULL;

    *size = 0;
    if (clGetProgramInfo(p, CL_PROGRAM_BINARY_SIZES, sizeof *size, size, NULL) != CL_SUCCESS || *size == 0 ||
        *size > MAX_BINARY)
        return NULL;
    binary = mem_array(*size, 1);
    if (binary != NULL &&
        clGetProgramInfo(p, CL_PROGRAM_BINARIES, sizeof binary, &binary, NULL) != CL_SUCCESS) {
        free(binary);
        binary = NULL;
    }
    return binary;
}

void cl_cache_put(struct clb *c, const struct cl_cache_key *key, cl_program p)
{
    struct header h = {.format = FORMAT, .pointer_size = sizeof(void *), .key = {key->h[0], key->h[1]}};
    uint8_t *binary = NULL;
    size_t size;

    if (c->cache == NULL)
        return;
    char *path = entry_path(c, key);
    binary = binary_of(p, &size);
    if (path == NULL || binary == NULL)
        goto done;
    memcpy(h.magic, magic, sizeof magic);
    h.size = size;
    h.checksum = hash_bytes(binary, size, seeds[0]);
    bool ok = path_replace(path, &h, sizeof h, binary, size, NULL) == 0;
    log_debug(LOG_CL, "%s: %s: %s (%zu bytes)", c->base.device, path, ok ? "kept" : "cannot be written",
              size);
done:
    free(binary);
    free(path);
}
