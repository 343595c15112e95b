/* Files of CLBlast's parameters and of measured speeds: what is right in them,
 * what is refused and how that is said, what is kept in the cache folder, what
 * `forge tune gemm` does.
 *
 * OpenCL hangs in a child of a process that has touched it: each test opens its
 * own device in its own process and main touches none. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#ifdef HAVE_CLBLAST
#include "base/map.h"
#include "tests/gemm_kit.h"

/* ---- files of parameters and speeds ---- */
#define DIRECT "kernel XgemmDirect KWID=2 MDIMAD=8 MDIMCD=8 NDIMBD=8 NDIMCD=8 PADA=1 PADB=1 "
#define XGEMM \
    "kernel Xgemm GEMMK=0 KREG=1 KWG=32 KWI=2 MDIMA=8 MDIMC=8 NDIMB=8 NDIMC=8 SA=0 SB=0 STRM=0 STRN=0 VWN=2 "
static const struct {
    const char *text, *error; /* NULL = it is right */
} files[] = {
    {"", NULL},
    {"# nothing\n\n   \t\n# more", NULL},
    {DIRECT "VWMD=1 VWND=1 WGD=8\n", NULL},
    {XGEMM "VWM=4 MWG=64 NWG=64\r\nkernel GemmRoutine XGEMM_MIN_INDIRECT_SIZE=1", NULL},
    {"device nobody's chip\nkernel Xgemm MWG=0\nspeed x\n", NULL}, /* not meant for this device */
    {"driver none\nkernel Xgemm MWG=0\ndevice\nspeed BF16 48 64 40 10 20\n", NULL},
    {"speed BF16 48 64 40 1000 2000 # by hand\n", NULL},
    {"\nfoo bar\n", "line 2: \"foo\" is none of"},
    {"kernel Xgemm\n", "line 1: a kernel and its parameters are missing"},
    {"kernel Xgemv WGS=64\n", "\"Xgemv\" is no kernel"},
    {"kernel Xgemm MWG\n", "\"MWG\" is not NAME=VALUE"},
    {"kernel Xgemm =3\n", "is not NAME=VALUE"},
    {"kernel Xgemm AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=3\n", "is not NAME=VALUE"},
    {XGEMM "VWM=4 MWG=0 NWG=64\n", "MWG is \"0\", no number from 1 to 256"},
    {XGEMM "VWM=4 MWG=-8 NWG=64\n", "MWG is \"-8\""},
    {XGEMM "VWM=4 MWG=99999999999999999999 NWG=64\n", "no number from 1"},
    {XGEMM "VWM=4 MWG=64x NWG=64\n", "MWG is \"64x\""},
    {XGEMM "VWM=4 MWG=60 NWG=64\n", "MWG is 60, no multiple of MDIMC * VWM"},
    {XGEMM "VWM=3 MWG=64 NWG=64\n", "MWG is 64, no multiple of MDIMC * VWM"},
    {"kernel Xgemm GEMMK=0 KWG=32 KWI=2 MDIMA=3 MDIMC=8 NDIMC=8\n", "MDIMC * NDIMC / MDIMA"},
    {"kernel Xgemm MWG=128 NWG=128 MDIMC=1 NDIMC=1\n", "more than 256 results"},
    {"kernel XgemmDirect WGD=64 MDIMCD=1 NDIMCD=1 MDIMAD=1 NDIMBD=1\n", "more than 256 results"},
    {"kernel Xgemm GEMMK=1 MWG=64 NWG=32 MDIMC=8 NDIMC=8\n", "wrong results before CLBlast"},
    {"kernel Xgemm MWG=64 NWG=64 MDIMC=8 NDIMC=8\n", "CLBlastMissingOverrideParameter (-2047)"},
    {"speed BF16 48 64 40 10\n", "a speed is"},
    {"speed BF17 48 64 40 10 20\n", "a speed is"},
    {"speed BF16 48 64 40 10 0\n", "\"0\" is no number"},
    {"speed BF16 48 64 99999999999 10 20\n", "is no number"},
    {"kernel Copy a=1 a=1 a=1 a=1 a=1 a=1 a=1 a=1 a=1 a=1 a=1 a=1 a=1 a=1 a=1 a=1 a=1 a=1 a=1 a=1 a=1 a=1 a=1 a=1 "
     "a=1 a=1 a=1 a=1 a=1 a=1 a=1 a=1 a=1 a=1 a=1 a=1 a=1 a=1 a=1 a=1\n", "more than 40 words"},
};

static const char *write_file(const char *name, const char *text, size_t len)
{
    const char *path = test_tmp(name);
    FILE *f = fopen(path, "wb");
    ck_assert_ptr_nonnull(f);
    ck_assert(len == 0 || fwrite(text, len, 1, f) == 1);
    fclose(f);
    return path;
}

START_TEST(parameter_files)
{
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        struct backend_params params = with_clblast;
        struct err err = {0};
        params.clblast_params = write_file("params", files[i].text, strlen(files[i].text));
        struct backend *be = open_one("opencl", &params, &err);
        if (be == NULL && err.code == ERR_DEVICE) {
            test_skip(err.msg);
            return;
        }
        bool as_told = files[i].error == NULL ? be != NULL : be == NULL && strstr(err.msg, files[i].error) != NULL &&
                                                                 err.code == ERR_FORMAT;
        ck_assert_msg(as_told, "file %d: %s", (int)i, err.msg);
        registry_close(be);
    }
    struct backend_params params = with_clblast;
    struct err err = {0};
    params.clblast_params = "/nonexistent/params";
    ck_assert_ptr_null(open_one("opencl", &params, &err));
    ck_assert_int_eq(err.code, ERR_IO);
}
END_TEST

/* Parameters do reach CLBlast, and its results stay right with them. */
START_TEST(parameters_in_force)
{
    struct backend_params params = with_clblast;
    const char *text = DIRECT "VWMD=1 VWND=1 WGD=8\n" XGEMM "VWM=4 MWG=64 NWG=64\n"
                              "kernel GemmRoutine XGEMM_MIN_INDIRECT_SIZE=1\n";
    params.clblast_params = write_file("params", text, strlen(text));
    struct backend *be = open_opencl(&params);

    if (be == NULL)
        return;
    struct clb *c = (struct clb *)be;
    ck_assert(!bits_of_cpu(be) && by_clblast(be));
    ck_assert_msg(c->gemm->blast.temp_size > 0, "the indirect kernels were not used");
    ck_assert_msg(strstr(buf_str(&c->gemm->kernels), "kernel GemmRoutine XGEMM_MIN_INDIRECT_SIZE=1\n") != NULL, "%s",
                  buf_str(&c->gemm->kernels));
    registry_close(be);
}
END_TEST

/* ---- speeds ---- */
/* An instance that believes to be on a GPU, where auto has something to choose. */
static struct backend *open_as_gpu(const char *dir, const char *params_file)
{
    struct backend_params params = {.n_threads = 1, .kernels = "gpu", .no_selftest = true};
    struct backend *be = open_opencl(&params);
    struct clb *c = (struct clb *)be;
    struct err err = {0};

    if (be == NULL)
        return NULL;
    ck_assert_ptr_null(c->gemm);
    c->dev.type = CL_DEVICE_TYPE_GPU;
    c->params.kernel_cache = dir != NULL ? mem_strdup(dir) : NULL; /* which it frees */
    c->params.clblast_params = params_file != NULL ? mem_strdup(params_file) : NULL;
    ck_assert_msg(cl_gemm_open(c, &err) == 0, "%s", err.msg);
    ck_assert_ptr_nonnull(c->gemm);
    return be;
}

/* A speed in a file is followed, whatever is faster here. */
START_TEST(speeds_are_followed)
{
    static const char *const speeds[] = {"speed BF16 48 64 32 2000 1000\n", "speed BF16 48 64 32 1000 2000\n",
                                         "speed BF16 48 64 64 2000 1000\n", ""};
    for (int i = 0; i < 4; i++) {
        struct backend *be = open_as_gpu(NULL, write_file("speeds", speeds[i], strlen(speeds[i])));
        if (be == NULL)
            return;
        bits_of_cpu(be);
        ck_assert_int_eq(by_clblast(be), i == 0); /* without a speed and a place to keep one: own kernels */
        registry_close(be);
    }
}
END_TEST

static char *only_entry(const char *dir)
{
    char **names, *path = NULL;
    size_t n;
    ck_assert_int_eq(path_list(dir, &names, &n, NULL), 0);
    for (size_t i = 0; i < n; i++)
        if (strstr(names[i], ".gemm") != NULL) {
            ck_assert_ptr_null(path);
            path = path_join(dir, names[i]);
        } else
            test_that(strstr(names[i], ".clk") != NULL, "%s is left over", names[i]);
    path_list_free(names, n);
    ck_assert_ptr_nonnull(path);
    return path;
}

/* Measured once, kept, read again; spoiled files are measured again. */
START_TEST(speeds_are_kept)
{
    char dir[600];
    struct backend_params params = with_clblast;
    snprintf(dir, sizeof dir, "%s", test_tmp("gemm-cache"));
    params.kernel_cache = dir;
    for (int i = 0; i < 3; i++) {
        struct backend *be = open_opencl(&params); /* makes the folder */
        if (be == NULL)
            return;
        registry_close(be);
        be = open_as_gpu(dir, NULL);
        struct cl_gemm *g = ((struct clb *)be)->gemm;
        ck_assert_uint_eq(g->n_classes, i == 1 ? 1 : 0);
        bits_of_cpu(be);
        ck_assert_uint_eq(g->n_classes, 1);
        ck_assert(g->classes[0].measured && g->classes[0].own_s > 0 && g->classes[0].blast_s > 0);
        ck_assert_int_eq(g->classes[0].choice,
                         g->classes[0].own_s <= g->classes[0].blast_s ? GEMM_OWN : GEMM_BLAST);
        registry_close(be);
        char *path = only_entry(dir), *text;
        size_t len;
        ck_assert_int_eq(map_read_all(path, 1 << 20, &text, &len, NULL), 0);
        ck_assert_msg(strstr(text, "\nspeed BF16 48 64 32 ") != NULL && strstr(text, "\ndriver ") != NULL, "%s", text);
        if (i == 1) {
            FILE *f = fopen(path, "wb");
            ck_assert(f != NULL && fputs("\x01speed speed\nkernel Xgemm MWG=0\nspeed BF16 48", f) >= 0);
            fclose(f);
        }
        free(text);
        free(path);
    }
}
END_TEST

/* What `forge tune gemm` does. */
START_TEST(tuning)
{
    struct backend_params params = with_clblast;
    struct op_gemm_speed s;
    struct err err = {0};
    float v[48 * 64];
    struct host_matrix m = {.name = "w", .dtype = DTYPE_F32, .rows = 48, .cols = 64, .data = v};
    struct tensor w;
    struct backend *be = open_opencl(&params), *cpu;

    if (be == NULL)
        return;
    op_cases_random(v, 48 * 64, 1, 5);
    ck_assert_int_eq(op_import(be, &w, &m, &err), 0);
    ck_assert_msg(op_tune_gemm(be, &w, 40, 3, &s, &err) == 0, "%s", err.msg);
    ck_assert(s.own_s > 0 && s.other_s > 0 && s.error <= 1e-12 && s.why[0] == '\0');
    char path[600];
    struct buf text;
    buf_init(&text);
    ck_assert_msg(op_tune_save(be, &text, &err) == 0, "%s", err.msg);
    snprintf(path, sizeof path, "%s", write_file("tuned", text.data, text.len));
    ((struct clb *)be)->gemm->sgemm = wrong_value;
    ck_assert_int_eq(op_tune_gemm(be, &w, 40, 3, &s, &err), 0);
    ck_assert(s.other_s == 0 && strstr(s.why, "wrong") != NULL);
    op_free(w.buf);
    registry_close(be);

    be = open_as_gpu(NULL, path);
    ck_assert_uint_eq(((struct clb *)be)->gemm->n_classes, 1);
    ck_assert(((struct clb *)be)->gemm->classes[0].measured);
    registry_close(be);

    params.gemm = GEMM_KERNELS_OWN;
    be = open_opencl(&params);
    ck_assert_int_eq(op_import(be, &w, &m, &err), 0);
    ck_assert_int_eq(op_tune_gemm(be, &w, 40, 3, &s, &err), ERR_UNSUPPORTED);
    ck_assert_int_eq(op_tune_save(be, &text, &err), ERR_UNSUPPORTED);
    op_free(w.buf);
    registry_close(be);

    cpu = open_one("cpu", &params, NULL);
    ck_assert_int_eq(op_import(cpu, &w, &m, &err), 0);
    ck_assert_int_eq(op_tune_gemm(cpu, &w, 40, 3, &s, &err), ERR_UNSUPPORTED);
    ck_assert_int_eq(op_tune_save(cpu, &text, &err), ERR_UNSUPPORTED);
    op_free(w.buf);
    registry_close(cpu);
    buf_fini(&text);
}
END_TEST
#else
#include "tests/test.h"

START_TEST(not_built)
{
    test_skip("this build has no CLBlast");
}
END_TEST
#endif

int main(void)
{
    Suite *s = suite_create("gemm_files");
    TCase *t = tcase_create("gemm_files");

    tcase_set_timeout(t, 900); /* CLBlast's first call compiles for a while */
#ifdef HAVE_CLBLAST
    tcase_add_test(t, parameter_files);
    tcase_add_test(t, parameters_in_force);
    tcase_add_test(t, speeds_are_followed);
    tcase_add_test(t, speeds_are_kept);
    tcase_add_test(t, tuning);
#else
    tcase_add_test(t, not_built);
#endif
    suite_add_tcase(s, t);
    return test_main(s);
}
