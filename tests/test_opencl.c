/* The OpenCL backend: every operation against the oracle and bit for bit
 * against `cpu`; weights in mapped files, copied, split and in the split layout; selectors; what is
 * said when something is refused.
 *
 * OpenCL hangs in a child of a process that has touched it: each test opens its
 * own devices in its own process and main touches none.  A test that changes
 * the environment of the runtime therefore needs forks. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "backend/registry.h"
#include "base/mem.h"
#include "tests/op_cases.h"
#include "tests/test.h"
#ifdef HAVE_OPENCL
#include "backend/opencl/cl.h"
#endif

static struct backend *open_one(const char *selector, const struct backend_params *params, struct err *err)
{
    struct backend *be[REGISTRY_MAX_INSTANCES];
    struct backend_params unguarded = *params;
    int n = 0;
    unguarded.no_selftest = true; /* nothing may stand in for what is tested */
    return registry_open(selector, &unguarded, be, &n, NULL, 0, err) == 0 ? be[0] : NULL;
}

/* Where Debian and others say that PoCL is there. */
#define POCL_ICD "/etc/OpenCL/vendors/pocl.icd"

/* NULL after a skip. */
static struct backend *open_opencl(const struct backend_params *params)
{
    struct err err = {0};
    struct backend *be = open_one("opencl", params, &err);
    if (be == NULL)
        test_skip(err.msg);
    return be;
}

static void whole_list(const char *oracle, bool exact)
{
    struct backend_params params = {.n_threads = 1};
    struct backend *cl = open_opencl(&params), *a;
    struct op_tally t = {0};

    if (cl == NULL)
        return;
    a = open_one(oracle, &params, NULL);
    ck_assert_ptr_nonnull(a);
    int n = op_cases_run(a, cl, exact, op_tally_add, &t);
    ck_assert_int_eq(t.bad, 0);
    ck_assert_int_eq(t.ok, n);
    registry_close(a);
    registry_close(cl);
}

START_TEST(against_ref)
{
    whole_list("ref", false);
}
END_TEST

/* The same on a device with other limits; rows of the environment of PoCL. */
static const struct {
    const char *name, *value;
} settings[] = {
    {NULL, NULL},
    {"POCL_MAX_WORK_GROUP_SIZE", "64"},
    {"POCL_MAX_WORK_GROUP_SIZE", "1"},
    {"POCL_MEMORY_LIMIT", "1"},
};

static bool forks(void)
{
    const char *fork = getenv("CK_FORK");
    return fork == NULL || strcmp(fork, "no") != 0;
}

/* Before the first call of OpenCL in this process; false after a skip. */
static bool set(const char *name, const char *value)
{
    if (!forks()) {
        test_skip("the runtime's environment can be changed in a child only");
        return false;
    }
    return setenv(name, value, 1) == 0;
}

START_TEST(bits_of_cpu)
{
    if (settings[_i].name == NULL || set(settings[_i].name, settings[_i].value))
        whole_list("cpu", true);
}
END_TEST

/* ---- selectors ---- */
static const struct {
    const char *selector;
    int code;
    const char *device; /* or part of the message */
} selectors[] = {
    {"opencl", 0, "opencl:0"},
    {"opencl:cpu", 0, "opencl:0"},
    {"opencl:0", 0, "opencl:0"},
    {"opencl:1", 0, "opencl:1"},
    {"opencl:0.1", 0, "opencl:1"},
    {"opencl:gpu", ERR_DEVICE, "no OpenCL GPU"},
    {"opencl:2", ERR_ARG, "opencl:0.1"},
    {"opencl:-1", ERR_ARG, "not known"},
    {"opencl:1x", ERR_ARG, "not known"},
    {"opencl:", ERR_ARG, "not known"},
    {"opencl:0.", ERR_ARG, "not known"},
    {"opencl:.0", ERR_ARG, "not known"},
    {"opencl:1.0", ERR_ARG, "not known"},
    {"opencl:0.0.0", ERR_ARG, "not known"},
    {"opencl:99999999999999999999", ERR_ARG, "not known"},
    {"opencl:tpu", ERR_ARG, "not known"},
    {"pthread", ERR_ARG, "more than one"},
    {"nonesuch", ERR_ARG, "opencl:1 ("},
};

/* Two devices of equal names on one platform. */
START_TEST(selector)
{
    struct backend_params params = {.n_threads = 1};
    struct err err = {0};
    struct device_list l;

    if (!set("OCL_ICD_VENDORS", POCL_ICD) || !set("POCL_DEVICES", "pthread pthread"))
        return;
    ck_assert_int_eq(registry_list(&l, NULL), 0);
    bool two = l.n_devices == 4;
    device_list_free(&l);
    if (!two) {
        test_skip("no PoCL with two devices");
        return;
    }
    struct backend *be = open_one(selectors[_i].selector, &params, &err);
    ck_assert_msg(err.code == selectors[_i].code, "%s: %d %s", selectors[_i].selector, err.code, err.msg);
    if (be == NULL) {
        ck_assert_msg(strstr(err.msg, selectors[_i].device) != NULL, "%s: %s", selectors[_i].selector,
                      err.msg);
        return;
    }
    ck_assert_str_eq(op_device(be), selectors[_i].device);
    registry_close(be);
}
END_TEST

/* No platform at all: asked for, a clear refusal; auto, the CPU backend. */
START_TEST(no_platform)
{
    struct backend_params params = {.n_threads = 1};
    struct err err = {0};
    struct device_list l;
    static const char *const asked[] = {"opencl", "opencl:gpu", "opencl:0"};

    if (!set("OCL_ICD_VENDORS", "/nonexistent"))
        return;
    for (int i = 0; i < 3; i++) {
        ck_assert_ptr_null(open_one(asked[i], &params, &err));
        ck_assert_int_eq(err.code, ERR_DEVICE);
        ck_assert_msg(strstr(err.msg, "OpenCL") != NULL, "%s", err.msg);
    }
    struct backend *be = open_one("auto", &params, &err);
    ck_assert_ptr_nonnull(be);
    ck_assert_str_eq(op_device(be), "cpu");
    registry_close(be);
    ck_assert_int_eq(registry_list(&l, NULL), 0);
    ck_assert_uint_eq(l.n_devices, 2);
    ck_assert_uint_eq(l.n_skipped, 1);
    device_list_free(&l);
}
END_TEST

#ifdef HAVE_OPENCL
/* ---- weights ---- */
enum { COLS = 256, ROWS = 50 };

/* A mapped file with a matrix at byte `at`. */
static const uint8_t *mapped(enum dtype dtype, size_t at, size_t *size)
{
    const char *path = test_tmp("weights");
    size_t row;

    ck_assert(dtype_row_size(dtype, COLS, &row));
    *size = at + row * ROWS;
    uint8_t *bytes = mem_array(*size, 1), *blocks = mem_array(row * ROWS, 1);
    op_cases_blocks(dtype, blocks, (size_t)COLS * ROWS, 5);
    memcpy(bytes + at, blocks, row * ROWS);
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, bytes, *size), (ssize_t)*size);
    const uint8_t *map = mmap(NULL, *size, PROT_READ, MAP_PRIVATE, fd, 0);
    ck_assert_ptr_ne(map, MAP_FAILED);
    close(fd);
    free(bytes);
    free(blocks);
    return map;
}

static struct tensor alloc(struct backend *be, enum dtype dtype, int64_t rows, int64_t cols, const void *data)
{
    struct tensor t;
    struct err err = {0};
    ck_assert_msg(op_alloc(be, &t, dtype, rows, cols, &err) == 0, "%s", err.msg);
    if (data != NULL)
        op_write(be, &t, data);
    return t;
}

/* linear of 1 and 7 rows, embedding, export; all into out. */
enum { N_OUT = 8 * ROWS + 3 * COLS + ROWS * COLS };
static void use(struct backend *be, const struct host_matrix *m, float *out)
{
    struct tensor w, x, y, ids, rows[3];
    float xs[8 * COLS];
    const int32_t id[3] = {0, ROWS - 1, ROWS / 2};
    struct err err = {0};

    op_cases_random(xs, 8 * COLS, 1, 9);
    ck_assert_msg(op_import(be, &w, m, &err) == 0, "%s", err.msg);
    x = alloc(be, DTYPE_F32, 8, COLS, xs);
    y = alloc(be, DTYPE_F32, 8, ROWS, NULL);
    rows[0] = alloc(be, DTYPE_F32, 3, COLS, NULL);
    ids = alloc(be, DTYPE_I32, 3, 1, id);
    op_begin(be);
    for (int i = 0; i < 2; i++) {
        struct tensor from = tensor_rows(&x, i, i == 0 ? 1 : 7), to = tensor_rows(&y, i, i == 0 ? 1 : 7);
        op_linear(be, &to, &from, &w, NULL);
    }
    op_embed(be, &rows[0], &w, &ids, 1.5f);
    ck_assert_msg(op_read(be, out, &y, &err) == 0, "%s", err.msg);
    ck_assert_msg(op_read(be, out + 8 * ROWS, &rows[0], &err) == 0, "%s", err.msg);
    ck_assert_msg(op_export(be, out + 8 * ROWS + 3 * COLS, &w, &err) == 0, "%s", err.msg);
    op_free(w.buf);
    op_free(x.buf);
    op_free(y.buf);
    op_free(ids.buf);
    op_free(rows[0].buf);
}

/* Where the matrix begins in the file, and the largest allocation of the device (0 = its own). */
static const struct {
    size_t at, max_alloc;
    bool mapped;
} places[] = {
    {0, 0, true},    {64, 0, true},       {1, 0, false},    {4100, 0, true},
    {0, 8192, true}, {4100, 12288, true}, {3, 8192, false},
};

START_TEST(weights_in_files)
{
    static const enum dtype types[] = {DTYPE_F32, DTYPE_F16, DTYPE_BF16, DTYPE_Q8_0, DTYPE_Q4_K};
    struct backend_params params = {.n_threads = 1};
    struct backend *cl = open_opencl(&params), *cpu;
    float *got = mem_array(N_OUT, sizeof *got), *want = mem_array(N_OUT, sizeof *want);

    if (cl != NULL) {
        struct clb *c = (struct clb *)cl;
        size_t own = c->dev.max_alloc;
        cpu = open_one("cpu", &params, NULL);
        for (int t = 0; t < 5; t++) {
            size_t size;
            const uint8_t *file = mapped(types[t], places[_i].at, &size);
            struct host_matrix m = {.name = "w",
                                    .dtype = types[t],
                                    .rows = ROWS,
                                    .cols = COLS,
                                    .data = file + places[_i].at,
                                    .file = file,
                                    .file_size = size};
            use(cpu, &m, want);
            c->dev.max_alloc = places[_i].max_alloc > 0 ? places[_i].max_alloc : own;
            uint64_t before = c->used;
            struct tensor w;
            ck_assert_int_eq(op_import(cl, &w, &m, NULL), 0);
            if (c->zero_copy) /* blocks are read byte by byte: any address will do */
                ck_assert_int_eq(c->windows != NULL,
                                 places[_i].mapped || dtype_info(types[t])->block_elems > 1);
            op_free(w.buf);
            ck_assert_ptr_null(c->windows);
            ck_assert_uint_eq(c->used, before);
            use(cl, &m, got);
            test_that(memcmp(got, want, N_OUT * sizeof *got) == 0, "%s at %zu, largest allocation %zu",
                      dtype_info(types[t])->name, places[_i].at, places[_i].max_alloc);
            c->dev.max_alloc = own;
            munmap((void *)(uintptr_t)file, size);
        }
        registry_close(cpu);
        registry_close(cl);
    }
    free(got);
    free(want);
}
END_TEST

/* Many rows of x by a block format go through f32 copies, some rows of w at a time: several times here. */
START_TEST(widened_in_blocks)
{
    enum { N = 17, K = 1024, O = 1100 };
    static const enum dtype types[] = {DTYPE_Q8_0, DTYPE_Q5_K};
    struct backend_params params = {.n_threads = 1};
    struct backend *be[2] = {open_opencl(&params), NULL};
    float *x = mem_array(N * K, sizeof *x), *out[2];
    enum dtype type = types[_i];
    size_t row;

    ck_assert(dtype_row_size(type, K, &row));
    uint8_t *blocks = mem_array(row * O, 1);
    op_cases_blocks(type, blocks, (size_t)K * O, 6);
    op_cases_random(x, N * K, 1, 7);
    be[1] = be[0] != NULL ? open_one("cpu", &params, NULL) : NULL;
    for (int i = 0; i < 2; i++) {
        struct host_matrix m = {.name = "w", .dtype = type, .rows = O, .cols = K, .data = blocks};
        struct tensor w;
        out[i] = mem_array(N * O, sizeof *out[i]);
        if (be[i] == NULL)
            continue;
        struct tensor from = alloc(be[i], DTYPE_F32, N, K, x), to = alloc(be[i], DTYPE_F32, N, O, NULL);
        ck_assert_int_eq(op_import(be[i], &w, &m, NULL), 0);
        op_begin(be[i]);
        op_linear(be[i], &to, &from, &w, NULL);
        ck_assert_int_eq(op_read(be[i], out[i], &to, NULL), 0);
        op_free(w.buf);
        op_free(from.buf);
        op_free(to.buf);
        registry_close(be[i]);
    }
    ck_assert(memcmp(out[0], out[1], N * O * sizeof(float)) == 0);
    free(out[0]);
    free(out[1]);
    free(x);
    free(blocks);
}
END_TEST

/* ---- traffic ---- */
/* More writes in a step than the staging holds, one larger than it, overlapping copies. */
START_TEST(writes_and_copies)
{
    enum { N = 300, SIZE = 20000, BIG = 2 << 20 };
    struct backend_params params = {.n_threads = 1};
    struct backend *be = open_opencl(&params);
    float *v = mem_array(BIG, sizeof *v), *back = mem_array(BIG, sizeof *back);

    ck_assert(v != NULL && back != NULL);
    if (be != NULL) {
        struct tensor t = alloc(be, DTYPE_F32, N, SIZE, NULL), big;
        op_begin(be);
        for (int i = 0; i < N; i++) {
            struct tensor row = tensor_rows(&t, i, 1);
            for (int k = 0; k < SIZE; k++)
                v[k] = (float)(i + k);
            op_write(be, &row, v); /* v may change at once */
        }
        for (int i = 0; i < N; i += 37) {
            struct tensor row = tensor_rows(&t, i, 1);
            ck_assert_int_eq(op_read(be, back, &row, NULL), 0);
            for (int k = 0; k < SIZE; k++)
                test_that(back[k] == (float)(i + k), "row %d, value %d", i, k);
        }
        op_cases_random(v, BIG, 1, 3);
        big = alloc(be, DTYPE_F32, 2, BIG / 2, v);
        struct tensor a = tensor_reshape(&big, BIG / 64, 64), to = tensor_rows(&a, 0, 1000),
                      from = tensor_rows(&a, 10, 1000);
        op_copy(be, &to, &from); /* overlapping */
        ck_assert_int_eq(op_read(be, back, &big, NULL), 0);
        memmove(v, v + 640, 64000 * sizeof *v);
        ck_assert_int_eq(memcmp(back, v, BIG * sizeof *v), 0);
        op_free(t.buf);
        op_free(big.buf);
        registry_close(be);
    }
    free(v);
    free(back);
}
END_TEST

/* Buffers that a device in the host's memory takes from the system: zero, whole, and gone with their work done. */
START_TEST(large_buffers)
{
    enum { N = (3 << 20) / 4 + 5 };
    struct backend_params params = {.n_threads = 1};
    struct backend *be = open_opencl(&params);
    float *v = mem_array(N, sizeof *v);
    struct err err = {0};
    struct tensor t;

    ck_assert_ptr_nonnull(v);
    for (int turn = 0; be != NULL && turn < 3; turn++) {
        test_that(op_alloc(be, &t, DTYPE_F32, 1, N, &err) == 0, "%s", err.msg);
        ck_assert_uint_eq(((struct clb *)be)->used, N * sizeof *v);
        v[0] = v[N - 1] = 1;
        op_begin(be);
        ck_assert_int_eq(op_read(be, v, &t, &err), 0);
        for (int i = 0; i < N; i++)
            test_that(v[i] == 0, "value %d: %g", i, (double)v[i]);
        for (int i = 0; i < N; i++)
            v[i] = (float)(i % 1000);
        op_write(be, &t, v);
        op_scale(be, &t, 2);
        if (turn == 1) {
            op_free(t.buf); /* with work on it enqueued */
            continue;
        }
        ck_assert_int_eq(op_read(be, v, &t, &err), 0);
        for (int i = 0; i < N; i++)
            test_that(v[i] == (float)(2 * (i % 1000)), "value %d: %g", i, (double)v[i]);
        op_free(t.buf);
        ck_assert_uint_eq(((struct clb *)be)->used, 0);
    }
    free(v);
    registry_close(be);
}
END_TEST

/* ---- refusals ---- */
START_TEST(refusals)
{
    struct backend_params params = {.n_threads = 1, .mem_limit = 1 << 20};
    struct backend *be = open_opencl(&params);
    struct err err = {0};
    struct tensor t;

    if (be == NULL)
        return;
    struct clb *c = (struct clb *)be;
    ck_assert_int_eq(op_alloc(be, &t, DTYPE_F32, 1, 1 << 20, &err), ERR_LIMIT);
    ck_assert_msg(strstr(err.msg, "4194304") && strstr(err.msg, "1048576"), "%s", err.msg);
    /* weights count also where they stay in their file */
    enum { MAPPED = 2 << 20 };
    uint8_t *map = mmap(NULL, MAPPED, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ck_assert(map != MAP_FAILED);
    const struct host_matrix m = {
        .name = "blk.7", .rows = 2, .cols = MAPPED / 8, .data = map, .file = map, .file_size = MAPPED};
    ck_assert_int_eq(op_import(be, &t, &m, &err), ERR_LIMIT);
    ck_assert_msg(strstr(err.msg, "blk.7") && strstr(err.msg, "2097152") && strstr(err.msg, "1048576"), "%s", err.msg);
    ck_assert_uint_eq(c->used, 0);
    munmap(map, MAPPED);
    c->budget = 0;
    c->dev.max_alloc = 4096;
    ck_assert_int_eq(op_alloc(be, &t, DTYPE_F32, 1, 2048, &err), ERR_LIMIT);
    ck_assert_msg(strstr(err.msg, "8192") && strstr(err.msg, "4096"), "%s", err.msg);
    c->dev.max_alloc = 0; /* not told */
    ck_assert_int_eq(op_alloc(be, &t, DTYPE_F32, 4, 100, &err), 0);
    ck_assert_uint_eq(c->used, 1600);

    /* a kernel that cannot be built is latched with the compiler's words; one that is optional is not */
    op_begin(be);
    ck_assert_ptr_null(cl_kernel_try(c, "linear_cpu.cl", "-DWT=WT_Q4_0 -Dfma_part=+", "linear_1"));
    ck_assert_ptr_null(cl_kernel_try(c, "elem.cl", "", "no_such_kernel"));
    ck_assert_ptr_null(cl_kernel_try(c, "no_such_file.cl", "", "add"));
    ck_assert_int_eq(op_sync(be, &err), 0);
    for (int i = 0; i < 2; i++) { /* also when asked again */
        op_begin(be);
        ck_assert_ptr_null(cl_kernel_get(c, "linear_cpu.cl", "-DWT=WT_Q4_0 -Dfma_part=+", "linear_1"));
        ck_assert_int_eq(op_sync(be, &err), ERR_DEVICE);
        ck_assert_msg(strstr(err.msg, "CL_BUILD_PROGRAM_FAILURE (-11)") && strstr(err.msg, "common.clh"),
                      "%s", err.msg);
    }
    /* the first failure is kept, and nothing runs after it */
    op_begin(be);
    cl_fail(c, CL_OUT_OF_RESOURCES, "first");
    cl_fail(c, CL_OUT_OF_HOST_MEMORY, "second");
    op_scale(be, &t, 2.0f);
    ck_assert_int_eq(op_sync(be, &err), ERR_DEVICE);
    ck_assert_msg(strstr(err.msg, "first: CL_OUT_OF_RESOURCES (-5)") && strstr(err.msg, c->dev.driver), "%s",
                  err.msg);
    ck_assert_uint_eq(op_stats(be, OP_SCALE)->calls, 0);
    op_begin(be);
    ck_assert_int_eq(op_sync(be, &err), 0);
    op_free(t.buf);
    ck_assert_uint_eq(c->used, 0);
    registry_close(be);

    params = (struct backend_params){.kernels = "npu"};
    ck_assert_ptr_null(open_one("opencl", &params, &err));
    ck_assert_int_eq(err.code, ERR_ARG);
    ck_assert_ptr_nonnull(strstr(err.msg, "npu"));
}
END_TEST

/* ---- weights of the GPU family ---- */
static const struct {
    enum dtype dtype;
    int64_t rows, cols;
    bool split;
} layouts[] = {
    {DTYPE_Q8_0, 3, 256, true},     {DTYPE_Q8_0, 5, 896, true}, /* a row filled up */
    {DTYPE_Q8_0, 1500, 1024, true},                             /* more than is repacked at once */
    {DTYPE_Q8_0, 3, 32, false},     {DTYPE_Q4_0, 7, 1120, true}, {DTYPE_Q4_0, 3, 64, false},
    {DTYPE_Q4_0, 7, 1056, false}, /* filled up it would grow by 2.4 % */
    {DTYPE_Q4_K, 3, 512, false}, /* quants of a block lie together as stored */
    {DTYPE_Q6_K, 3, 256, false},    {DTYPE_BF16, 3, 5, false},
};

/* Exported values are those of the stored form; the layout costs at most 2 %. */
START_TEST(split_layout)
{
    struct backend_params params = {.n_threads = 1, .kernels = "gpu"};
    struct err err = {0};
    struct backend *be = open_one("opencl", &params, &err);

    if (be == NULL) {
        test_skip(err.msg);
        return;
    }
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        const struct dtype_info *d = dtype_info(layouts[i].dtype);
        size_t n = (size_t)(layouts[i].rows * layouts[i].cols), size = n / d->block_elems * d->block_size;
        uint64_t before = ((struct clb *)be)->used;
        uint8_t *blocks = mem_array(size, 1);
        float *want = mem_array(n, sizeof *want), *got = mem_array(n, sizeof *got);
        struct host_matrix m = {.name = "w",
                                .dtype = layouts[i].dtype,
                                .rows = layouts[i].rows,
                                .cols = layouts[i].cols,
                                .data = blocks};
        struct tensor w;

        op_cases_blocks(layouts[i].dtype, blocks, n, 77 + i);
        d->to_f32(want, blocks, n);
        ck_assert_msg(op_import(be, &w, &m, &err) == 0, "%s", err.msg);
        ck_assert_int_eq(cl_is_split(&w), layouts[i].split && ((struct clb *)be)->gpu);
        uint64_t used = ((struct clb *)be)->used - before;
        test_that(used >= size && 50 * (used - size) <= size, "%s: %d bytes for %zu", d->name, (int)used,
                  size);
        ck_assert_msg(op_export(be, got, &w, &err) == 0, "%s", err.msg);
        test_that(memcmp(got, want, n * sizeof *got) == 0, "%s [%d]: other values come back", d->name,
                  (int)i);
        op_free(w.buf);
        test_that(((struct clb *)be)->used == before, "%s: not all bytes are given back", d->name);
        free(blocks);
        free(want);
        free(got);
    }
    registry_close(be);
}
END_TEST

/* The strings of its parameters are the instance's own. */
START_TEST(parameters_are_kept)
{
    char kernels[] = "cpu", cache[] = "test-tmp/kernels";
    struct backend_params params = {.n_threads = 1, .kernels = kernels, .kernel_cache = cache};
    struct err err = {0};
    struct backend *be = open_one("opencl", &params, &err);

    if (be == NULL) {
        test_skip(err.msg);
        return;
    }
    memset(kernels, 'x', sizeof kernels - 1);
    memset(cache, 'x', sizeof cache - 1);
    ck_assert_str_eq(((struct clb *)be)->params.kernels, "cpu");
    ck_assert_str_eq(((struct clb *)be)->params.kernel_cache, "test-tmp/kernels");
    registry_close(be);
}
END_TEST

START_TEST(code_names)
{
    ck_assert_str_eq(cl_error_name(CL_SUCCESS), "CL_SUCCESS");
    ck_assert_str_eq(cl_error_name(CL_INVALID_WORK_GROUP_SIZE), "CL_INVALID_WORK_GROUP_SIZE");
    ck_assert_str_eq(cl_error_name(-1001), "CL_PLATFORM_NOT_FOUND_KHR");
    ck_assert_str_eq(cl_error_name(-12345), "unknown code");
    ck_assert_int_eq(cl_error_class(CL_MEM_OBJECT_ALLOCATION_FAILURE), ERR_NOMEM);
    ck_assert_int_eq(cl_error_class(CL_OUT_OF_RESOURCES), ERR_DEVICE);
}
END_TEST
#endif

int main(void)
{
    Suite *s = suite_create("opencl");
    TCase *t = tcase_create("opencl");

    /* other platforms that are installed are for those who ask for them; some end a sanitized process */
    if (access(POCL_ICD, R_OK) == 0)
        setenv("OCL_ICD_VENDORS", POCL_ICD, 0);

    tcase_set_timeout(t, 600);
    tcase_add_loop_test(t, bits_of_cpu, 0, (int)(sizeof settings / sizeof *settings));
    tcase_add_test(t, against_ref);
    tcase_add_loop_test(t, selector, 0, (int)(sizeof selectors / sizeof *selectors));
    tcase_add_test(t, no_platform);
#ifdef HAVE_OPENCL
    tcase_add_loop_test(t, weights_in_files, 0, (int)(sizeof places / sizeof *places));
    tcase_add_loop_test(t, widened_in_blocks, 0, 2);
    tcase_add_test(t, writes_and_copies);
    tcase_add_test(t, large_buffers);
    tcase_add_test(t, refusals);
    tcase_add_test(t, split_layout);
    tcase_add_test(t, parameters_are_kept);
    tcase_add_test(t, code_names);
#endif
    suite_add_tcase(s, t);
    return test_main(s);
}
