/* Compiled kernels on disk: whatever happens to the files, results stay right
 * and the folder is sound again afterwards.
 *
 * What was done is read from the debug lines.  Each test opens its own devices:
 * OpenCL hangs in a child of a process that has touched it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backend/registry.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/map.h"
#include "base/mem.h"
#include "tests/test.h"

#define POCL_ICD "/etc/OpenCL/vendors/pocl.icd"

enum { HEADER = 48, AT_SIZE = 32, AT_CHECKSUM = 40, N_PROGRAMS = 2 };

static struct counts {
    int taken, kept, no_entry, refused, not_written;
} seen;

static void count(void *user, enum log_level level, const char *line)
{
    (void)user, (void)level;
    seen.taken += strstr(line, ".clk: taken") != NULL;
    seen.kept += strstr(line, ".clk: kept") != NULL;
    seen.no_entry += strstr(line, "is no entry for this program") != NULL;
    seen.refused += strstr(line, "refused by the driver") != NULL;
    seen.not_written += strstr(line, "cannot be written") != NULL;
}

/* Two operations of two programs, on a fresh instance; false after a skip. */
static bool run(const char *dir)
{
    struct backend_params params = {.n_threads = 1, .no_selftest = true, .kernel_cache = dir};
    struct backend *be[REGISTRY_MAX_INSTANCES];
    struct err err = {0};
    struct tensor x, w;
    float v[4] = {3, 4, 0, 0}, ones[4] = {1, 1, 1, 1};
    int n;

    seen = (struct counts){0};
    log_set(count, NULL, LOG_DEBUG, LOG_CL);
    if (registry_open("opencl", &params, be, &n, NULL, 0, &err) != 0) {
        test_skip(err.msg);
        return false;
    }
    ck_assert_int_eq(op_alloc(be[0], &x, DTYPE_F32, 1, 4, &err), 0);
    ck_assert_int_eq(op_alloc(be[0], &w, DTYPE_F32, 1, 4, &err), 0);
    op_begin(be[0]);
    op_write(be[0], &x, v);
    op_write(be[0], &w, ones);
    op_rmsnorm(be[0], &x, &x, &w, 0.0f, false); /* mean of squares 6.25 */
    op_scale(be[0], &x, 2.5f);
    test_that(op_read(be[0], v, &x, &err) == 0, "%s", err.msg);
    test_that(v[0] > 2.999f && v[0] < 3.001f && v[1] > 3.999f && v[1] < 4.001f && v[2] == 0, "%g %g %g",
              (double)v[0], (double)v[1], (double)v[2]);
    op_free(x.buf);
    op_free(w.buf);
    registry_close(be[0]);
    return true;
}

/* Entries of a folder; anything else in it fails. */
static size_t entries(const char *dir, char ***names)
{
    size_t n;
    ck_assert_int_eq(path_list(dir, names, &n, NULL), 0);
    for (size_t i = 0; i < n; i++)
        test_that(strncmp((*names)[i], "forge-", 6) == 0 && strstr((*names)[i], ".clk") != NULL,
                  "%s is left over", (*names)[i]);
    return n;
}

static char *load(const char *dir, const char *name, size_t *len)
{
    char *path = path_join(dir, name), *data;
    ck_assert_int_eq(map_read_all(path, (size_t)1 << 30, &data, len, NULL), 0);
    free(path);
    return data;
}

static void save(const char *dir, const char *name, const char *data, size_t len)
{
    char *path = path_join(dir, name);
    FILE *f = fopen(path, "wb");
    ck_assert_ptr_nonnull(f);
    ck_assert_uint_eq(fwrite(data, 1, len, f), len);
    fclose(f);
    free(path);
}

static const char *fresh_dir(const char *name)
{
    static char path[600];
    char leaf[64];
    snprintf(leaf, sizeof leaf, "cache-%s-%ld", name, (long)getpid());
    snprintf(path, sizeof path, "%s/deep/er", test_tmp(leaf));
    return path;
}

/* ---- damage ---- */
static void truncate_it(char *data, size_t *len)
{
    (void)data;
    *len = *len * 2 / 3;
}

static void header_only(char *data, size_t *len)
{
    (void)data;
    *len = HEADER;
}

static void half_header(char *data, size_t *len)
{
    (void)data;
    *len = 11;
}

static void empty(char *data, size_t *len)
{
    (void)data;
    *len = 0;
}

static void flip_binary(char *data, size_t *len)
{
    data[HEADER + (*len - HEADER) / 2] ^= 4;
}

static void flip_magic(char *data, size_t *len)
{
    (void)len;
    data[0] ^= 1;
}

static void flip_format(char *data, size_t *len)
{
    (void)len;
    data[8] ^= 1;
}

static void flip_key(char *data, size_t *len)
{
    (void)len;
    data[20] ^= 1;
}

static void huge_size(char *data, size_t *len)
{
    (void)len;
    memset(data + AT_SIZE, 0xff, 8);
}

/* Whole by its header, and no binary of any driver. */
static void nonsense(char *data, size_t *len)
{
    size_t n = *len - HEADER;
    memset(data + HEADER, 'x', n);
    uint64_t sum = hash_bytes(data + HEADER, n, UINT64_C(0x6B65726E656C2061));
    memcpy(data + AT_CHECKSUM, &sum, sizeof sum);
}

static const struct damage {
    const char *name;
    void (*apply)(char *data, size_t *len);
    bool refused; /* only the driver can tell */
} damages[] = {
    {"truncated", truncate_it, false},     {"header-only", header_only, false},
    {"half-header", half_header, false},   {"zero-length", empty, false},
    {"bit-of-binary", flip_binary, false}, {"bit-of-magic", flip_magic, false},
    {"bit-of-format", flip_format, false}, {"bit-of-key", flip_key, false},
    {"huge-size", huge_size, false},       {"nonsense", nonsense, true},
};

START_TEST(damaged_entries_are_rebuilt)
{
    const struct damage *d = &damages[_i];
    const char *dir = fresh_dir(d->name);
    char **names;

    if (!run(dir))
        return;
    ck_assert_int_eq(seen.kept, N_PROGRAMS);
    ck_assert_int_eq(seen.taken, 0);
    size_t n = entries(dir, &names);
    ck_assert_uint_eq(n, N_PROGRAMS);
    ck_assert(run(dir));
    ck_assert_int_eq(seen.taken, N_PROGRAMS);
    ck_assert_int_eq(seen.kept, 0);
    for (size_t i = 0; i < n; i++) {
        size_t len;
        char *data = load(dir, names[i], &len);
        d->apply(data, &len);
        save(dir, names[i], data, len);
        free(data);
    }
    ck_assert(run(dir));
    ck_assert_int_eq(seen.taken, 0);
    ck_assert_int_eq(d->refused ? seen.refused : seen.no_entry, N_PROGRAMS);
    ck_assert_int_eq(seen.kept, N_PROGRAMS);
    path_list_free(names, n);
    ck_assert_uint_eq(entries(dir, &names), N_PROGRAMS);
    path_list_free(names, N_PROGRAMS);
    ck_assert(run(dir));
    ck_assert_int_eq(seen.taken, N_PROGRAMS);
}
END_TEST

START_TEST(swapped_entries_are_rebuilt)
{
    const char *dir = fresh_dir("swapped");
    char **names, *data[2];
    size_t len[2];

    if (!run(dir))
        return;
    ck_assert_uint_eq(entries(dir, &names), 2);
    for (int i = 0; i < 2; i++)
        data[i] = load(dir, names[i], &len[i]);
    for (int i = 0; i < 2; i++)
        save(dir, names[i], data[1 - i], len[1 - i]);
    free(data[0]);
    free(data[1]);
    ck_assert(run(dir));
    ck_assert_int_eq(seen.taken, 0);
    ck_assert_int_eq(seen.no_entry, 2);
    ck_assert_int_eq(seen.kept, 2);
    path_list_free(names, 2);
}
END_TEST

/* ---- folders ---- */
START_TEST(folder_that_cannot_be)
{
    const char *name = "cache-is-a-file";
    char dir[600];

    FILE *f = fopen(test_tmp(name), "wb");
    ck_assert_ptr_nonnull(f);
    fclose(f);
    snprintf(dir, sizeof dir, "%s%s", test_tmp(name), _i == 0 ? "" : "/below");
    if (!run(dir))
        return;
    ck_assert_int_eq(seen.kept + seen.taken, 0);
    ck_assert_int_eq(seen.not_written, N_PROGRAMS);
    unlink(test_tmp(name));
}
END_TEST

START_TEST(read_only_folder)
{
    const char *dir = fresh_dir("read-only");
    char **names;

    if (geteuid() == 0) {
        test_skip("root may write into any folder");
        return;
    }
    if (!run(dir))
        return;
    ck_assert_int_eq(chmod(dir, 0500), 0);
    ck_assert(run(dir));
    ck_assert_int_eq(seen.taken, N_PROGRAMS);
    ck_assert_int_eq(chmod(dir, 0700), 0);
    size_t n = entries(dir, &names);
    path_list_free(names, n);
}
END_TEST

START_TEST(no_folder)
{
    if (!run(NULL))
        return;
    ck_assert_int_eq(seen.kept + seen.taken + seen.no_entry + seen.not_written, 0);
    ck_assert(run(""));
    ck_assert_int_eq(seen.kept + seen.taken + seen.no_entry + seen.not_written, 0);
}
END_TEST

/* Two processes fill one folder at once, neither having touched OpenCL before it was forked. */
START_TEST(two_writers)
{
    const char *dir = fresh_dir("writers");
    pid_t child[2];
    char **names;

    for (int i = 0; i < 2; i++) {
        child[i] = fork();
        ck_assert_int_ge(child[i], 0);
        if (child[i] == 0)
            _exit(run(dir) ? 0 : 77);
    }
    for (int i = 0; i < 2; i++) {
        int status;
        ck_assert_int_eq(waitpid(child[i], &status, 0), child[i]);
        ck_assert(WIFEXITED(status));
        if (WEXITSTATUS(status) == 77) {
            test_skip("no OpenCL device");
            return;
        }
        ck_assert_int_eq(WEXITSTATUS(status), 0);
    }
    ck_assert_uint_eq(entries(dir, &names), N_PROGRAMS);
    path_list_free(names, N_PROGRAMS);
    ck_assert(run(dir));
    ck_assert_int_eq(seen.taken, N_PROGRAMS);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("opencl_cache");
    TCase *t = tcase_create("opencl_cache");

    if (access(POCL_ICD, R_OK) == 0) /* one driver, the same everywhere */
        setenv("OCL_ICD_VENDORS", POCL_ICD, 0);

    tcase_set_timeout(t, 300);
    tcase_add_loop_test(t, damaged_entries_are_rebuilt, 0, (int)(sizeof damages / sizeof *damages));
    tcase_add_test(t, swapped_entries_are_rebuilt);
    tcase_add_loop_test(t, folder_that_cannot_be, 0, 2);
    tcase_add_test(t, read_only_folder);
    tcase_add_test(t, no_folder);
    tcase_add_test(t, two_writers);
    suite_add_tcase(s, t);
    return test_main(s);
}
