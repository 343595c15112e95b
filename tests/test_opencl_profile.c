/* Profiles, kernels from a folder, and making ready: what `--profile`,
 * `--kernel-dir` and loading rely on.
 *
 * No test asserts a time.  OpenCL hangs in a child of a process that has touched
 * it: each test opens its own devices, main touches none. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backend/profile.h"
#include "backend/registry.h"
#include "base/map.h"
#include "base/mem.h"
#include "tests/test.h"
#ifdef HAVE_OPENCL
#include "backend/opencl/text.h"
#endif

#define POCL_ICD "/etc/OpenCL/vendors/pocl.icd"

/* ---- rows and events, without a device ---- */
START_TEST(rows_and_events)
{
    struct prof *p = prof_new();
    ck_assert_ptr_nonnull(p);
    int a = prof_row(p, "a", OP_LINEAR, true), b = prof_row(p, "a", OP_EMBED, true);
    ck_assert_int_ge(a, 0);
    ck_assert_int_ne(a, b); /* one name, two operations */
    ck_assert_int_eq(prof_row(p, "a", OP_LINEAR, true), a);
    ck_assert_int_ne(prof_row(p, "a", OP_LINEAR, false), a);
    prof_add(p, a, 10, 2, 100, 7);
    prof_add(p, a, 12, 3, 100, 7);
    prof_add(p, a, 15, -1, 100, 7); /* no time: a call, and nothing else */
    prof_add(p, a, 15, (double)NAN, 100, 7);
    prof_add(p, -1, 15, 1, 1, 1);
    const struct prof_row *r = prof_row_at(p, (size_t)a);
    ck_assert_uint_eq(r->calls, 4);
    ck_assert_uint_eq(r->untimed, 2);
    ck_assert_double_eq(r->seconds, 5);
    ck_assert_double_eq(r->bytes, 200);
    ck_assert_uint_eq(prof_n_events(p), 2);
    ck_assert_double_eq(prof_event_at(p, 1).start, 12);
    ck_assert_ptr_eq(prof_event_at(p, 1).row, r);
    for (int i = 0; i < PROF_EVENTS_MAX; i++)
        prof_add(p, b, i, 1, 1, 1);
    ck_assert_uint_eq(prof_n_events(p), PROF_EVENTS_MAX);
    ck_assert_uint_eq(prof_n_dropped(p), 2);
    ck_assert_uint_eq(prof_row_at(p, (size_t)b)->calls, PROF_EVENTS_MAX);
    prof_reset(p);
    ck_assert_uint_eq(prof_n_events(p) + prof_n_dropped(p) + r->calls + r->untimed, 0);
    ck_assert_uint_eq(prof_n_rows(p), 3);
    prof_free(p);
    prof_free(NULL);
    prof_reset(NULL);
    ck_assert_uint_eq(prof_n_rows(NULL) + prof_n_events(NULL) + prof_n_dropped(NULL), 0);
    ck_assert_int_eq(prof_row(NULL, "a", OP_LINEAR, true), -1);
    prof_add(NULL, 0, 0, 0, 0, 0);
}
END_TEST

/* ---- devices ---- */
struct run {
    struct backend *be;
    struct tensor x; /* [n, 4], all 1 */
};
enum { N = 32 };

/* false after a skip. */
static bool run_open(struct run *r, const char *device, struct backend_params params)
{
    struct backend *be[REGISTRY_MAX_INSTANCES];
    struct err err = {0};
    float ones[4 * N];
    int n;

    *r = (struct run){0};
    params.no_selftest = true;
    params.n_threads = 1;
    if (registry_open(device, &params, be, &n, NULL, 0, &err) != 0) {
        test_skip(err.msg);
        return false;
    }
    r->be = be[0];
    for (int i = 0; i < 4 * N; i++)
        ones[i] = 1;
    test_that(op_alloc(r->be, &r->x, DTYPE_F32, N, 4, &err) == 0, "%s", err.msg);
    op_begin(r->be);
    op_write(r->be, &r->x, ones);
    return true;
}

static float run_read(const struct run *r)
{
    struct err err = {0};
    float v[4 * N];
    test_that(op_read(r->be, v, &r->x, &err) == 0, "%s", err.msg);
    for (int i = 1; i < 4 * N; i++)
        test_that(v[i] == v[0], "value %d: %g, %g", i, (double)v[i], (double)v[0]);
    return v[0];
}

static void run_close(struct run *r)
{
    op_free(r->x.buf);
    registry_close(r->be);
}

static const struct {
    const char *device;
    bool timed; /* by the device */
    bool kernels;
} profiles[] = {{"cpu", true, false}, {"ref", false, false}, {"opencl", true, true}, {"opencl", false, false}};

START_TEST(profile_counts)
{
    struct run r;
    enum { CALLS = 1300 }; /* more than events are ever held */
    if (!run_open(&r, profiles[_i].device, (struct backend_params){.profile = profiles[_i].timed}))
        return;
    op_scale(r.be, &r.x, 1); /* before it starts: not in the profile */
    ck_assert_ptr_null(op_prof(r.be));
    op_profile(r.be, true);
    op_stats_reset(r.be);
    for (int i = 0; i < CALLS; i++) {
        op_scale(r.be, &r.x, i % 2 ? 0.5f : 2.0f);
        op_add(r.be, &r.x, &r.x, &r.x);
        op_scale(r.be, &r.x, 0.5f);
    }
    ck_assert_float_eq(run_read(&r), 1);
    const struct prof *p = op_prof(r.be);
    const struct op_stats *s = op_stats(r.be, OP_SCALE), *a = op_stats(r.be, OP_ADD);
    ck_assert_uint_eq(s->calls, 2 * CALLS);
    ck_assert_uint_eq(prof_n_rows(p), 2);
    ck_assert_uint_eq(prof_n_dropped(p), 0);
    uint64_t events = 0;
    for (size_t i = 0; i < 2; i++) {
        const struct prof_row *row = prof_row_at(p, i);
        const struct op_stats *of = row->op == OP_SCALE ? s : a;
        ck_assert_int_eq(row->is_kernel, profiles[_i].kernels);
        ck_assert_str_eq(row->name, op_name(row->op));
        ck_assert_uint_eq(row->calls, of->calls);
        test_that(fabs(row->seconds - of->seconds) <= 1e-9 * row->seconds, "%g, %g", row->seconds, of->seconds);
        if (row->untimed == 0)
            test_that(row->bytes == (double)of->bytes && row->flops == (double)of->flops, "%g bytes, %g flops",
                      row->bytes, row->flops);
        events += row->calls - row->untimed;
    }
    ck_assert_uint_eq(prof_n_events(p), events);
    for (size_t i = 0; i < events; i++)
        ck_assert(prof_event_at(p, i).seconds >= 0);
    op_stats_reset(r.be);
    ck_assert_uint_eq(prof_n_events(p), 0);
    op_profile(r.be, false);
    op_scale(r.be, &r.x, 2);
    ck_assert_float_eq(run_read(&r), 2);
    ck_assert_uint_eq(prof_n_events(p), 0);
    op_profile(r.be, true);
    op_scale(r.be, &r.x, 2); /* closed with an event held */
    run_close(&r);
}
END_TEST

START_TEST(made_ready)
{
    struct run r;
    struct backend_caps before, ready, after;
    if (!run_open(&r, "opencl", (struct backend_params){0}))
        return;
    op_caps(r.be, &before);
    ck_assert(before.compile_s >= 0);
    ck_assert(op_warm(r.be, true));
    for (int i = 0; i < 3; i++)
        op_scale(r.be, &r.x, 2); /* one group at most, once */
    ck_assert(op_warm(r.be, false));
    op_caps(r.be, &ready);
    ck_assert(ready.compile_s > before.compile_s);
    float ones[4 * N];
    for (int i = 0; i < 4 * N; i++)
        ones[i] = 1;
    op_write(r.be, &r.x, ones);
    op_scale(r.be, &r.x, 2);
    ck_assert_float_eq(run_read(&r), 2); /* all of it again */
    op_caps(r.be, &after);
    ck_assert(after.compile_s == ready.compile_s); /* nothing was left to compile */
    run_close(&r);
}
END_TEST

START_TEST(nothing_to_make_ready)
{
    struct run r;
    ck_assert(run_open(&r, _i == 0 ? "cpu" : "ref", (struct backend_params){0}));
    ck_assert(!op_warm(r.be, true));
    op_scale(r.be, &r.x, 2);
    ck_assert_float_eq(run_read(&r), 2);
    run_close(&r);
}
END_TEST

/* ---- kernels from a folder ---- */
#ifdef HAVE_OPENCL
/* The texts built in, as files; of `name` one place is another. */
static const char *folder(const char *leaf, const char *name, const char *from, const char *to)
{
    static char made[2][600];
    static int turn;
    char *dir = made[turn = !turn], path[900];

    snprintf(dir, sizeof made[0], "%s", test_tmp(leaf));
    snprintf(path, sizeof path, "mkdir -p '%s'", dir);
    ck_assert_int_eq(system(path), 0);
    for (size_t i = 0; i < cl_n_texts; i++) {
        const char *text = cl_texts[i].text, *at = NULL;
        snprintf(path, sizeof path, "%s/%s", dir, cl_texts[i].name);
        FILE *f = fopen(path, "wb");
        ck_assert_ptr_nonnull(f);
        if (name != NULL && strcmp(cl_texts[i].name, name) == 0) {
            at = strstr(text, from);
            test_that(at != NULL, "%s has no \"%s\"", name, from);
            fprintf(f, "%.*s%s", (int)(at - text), text, to);
            text = at + strlen(from);
        }
        fputs(text, f);
        fclose(f);
    }
    return dir;
}

static float scaled(const char *cache, const char *dir)
{
    struct run r;
    if (!run_open(&r, "opencl", (struct backend_params){.kernel_cache = cache, .kernel_dir = dir}))
        return 0;
    op_scale(r.be, &r.x, 4);
    float v = run_read(&r);
    run_close(&r);
    return v;
}

/* With one cache for all: an entry is never taken for another text. */
START_TEST(other_kernels)
{
    const char *cache = test_tmp("dir-cache");
    float v = scaled(cache, NULL);
    if (v == 0)
        return;
    ck_assert_float_eq(v, 4);
    const char *dir = folder("kernels-other", "elem.cl", "a * s)", "a * s + 1.0f)");
    for (int i = 0; i < 2; i++) {
        ck_assert_float_eq(scaled(cache, dir), 5);
        ck_assert_float_eq(scaled(cache, NULL), 4);
        ck_assert_float_eq(scaled(cache, folder("kernels-same", NULL, NULL, NULL)), 4);
    }
}
END_TEST

static const struct {
    const char *name, *from, *to; /* the mistake */
    const char *says;
} mistakes[] = {
    {"elem.cl", "a * s)", "a * nothing_of_this)", "kernels-bad/elem.cl"},
    {"elem.cl", "scale(", "scale_of_another_name(", "kernel scale of elem.cl"},
};
/* What can be seen without a compiler is told when the device is opened. */
static const struct {
    const char *to; /* instead of an #include of elem.cl; NULL: `spoil` is run in the folder */
    const char *spoil;
    int code;
    const char *says;
} unreadable[] = {
    {"#include \"missing.clh\"", NULL, ERR_IO, "missing.clh"},
    {"#include \"../common.clh\"", NULL, ERR_FORMAT, "../common.clh"},
    {"#include \"elem.cl\"", NULL, ERR_FORMAT, "deep"},
    {NULL, "rm kv.cl", ERR_IO, "kv.cl"},
    {NULL, "rm kv.cl && mkdir kv.cl", ERR_IO, "kv.cl"},
    {NULL, "rm kv.cl && mkfifo kv.cl", ERR_IO, "kv.cl"},
    {NULL, "rm quant.clh && ln -s nowhere quant.clh", ERR_IO, "quant.clh"},
    {NULL, "head -c 1100000 /dev/zero >>elem.cl", ERR_LIMIT, "elem.cl"},
};

START_TEST(unreadable_kernels)
{
    char command[800];
    const char *to = unreadable[_i].to, *dir = folder("kernels-unreadable", to ? "elem.cl" : NULL,
                                                      "#include \"common.clh\"", to);
    struct backend *be[REGISTRY_MAX_INSTANCES];
    struct err err = {0};
    struct backend_params params = {.kernel_dir = dir};
    struct run r;
    int n;

    if (!run_open(&r, "opencl", (struct backend_params){0}))
        return;
    run_close(&r);
    if (to == NULL) {
        snprintf(command, sizeof command, "cd '%s' && %s", dir, unreadable[_i].spoil);
        ck_assert_int_eq(system(command), 0);
    }
    ck_assert_int_eq(registry_open("opencl", &params, be, &n, NULL, 0, &err), unreadable[_i].code);
    test_that(strstr(err.msg, unreadable[_i].says) != NULL && strstr(err.msg, "kernels-unreadable") != NULL &&
                  strstr(err.msg, "opencl:0") != NULL, "%s", err.msg);
}
END_TEST

START_TEST(bad_kernels)
{
    struct run r;
    struct err err = {0};
    float v[4 * N];
    const char *dir = folder("kernels-bad", mistakes[_i].name, mistakes[_i].from, mistakes[_i].to);

    if (!run_open(&r, "opencl", (struct backend_params){.kernel_dir = dir}))
        return;
    for (int i = 0; i < 2; i++) { /* the second time from the record of the first */
        op_begin(r.be);
        op_scale(r.be, &r.x, 4);
        ck_assert_int_lt(op_read(r.be, v, &r.x, &err), 0);
        test_that(strstr(err.msg, mistakes[_i].says) != NULL, "%s", err.msg);
        test_that(strstr(err.msg, "scale") != NULL && strstr(err.msg, "opencl:0") != NULL, "%s", err.msg);
    }
    run_close(&r);
}
END_TEST

START_TEST(no_such_folder)
{
    struct backend *be[REGISTRY_MAX_INSTANCES];
    struct err err = {0};
    struct backend_params params = {.no_selftest = true, .kernel_dir = test_tmp("nowhere")};
    struct run r;
    int n;

    if (!run_open(&r, "opencl", (struct backend_params){0}))
        return;
    run_close(&r);
    ck_assert_int_eq(registry_open("opencl", &params, be, &n, NULL, 0, &err), ERR_IO);
    test_that(strstr(err.msg, "nowhere") != NULL && strstr(err.msg, "no folder") != NULL, "%s", err.msg);
}
END_TEST
#endif

int main(void)
{
    Suite *s = suite_create("opencl_profile");
    TCase *t = tcase_create("opencl_profile");

    if (access(POCL_ICD, R_OK) == 0) /* one driver, the same everywhere */
        setenv("OCL_ICD_VENDORS", POCL_ICD, 0);
    tcase_set_timeout(t, 300);
    tcase_add_test(t, rows_and_events);
    tcase_add_loop_test(t, profile_counts, 0, (int)(sizeof profiles / sizeof *profiles));
    tcase_add_test(t, made_ready);
    tcase_add_loop_test(t, nothing_to_make_ready, 0, 2);
#ifdef HAVE_OPENCL
    tcase_add_test(t, other_kernels);
    tcase_add_loop_test(t, bad_kernels, 0, (int)(sizeof mistakes / sizeof *mistakes));
    tcase_add_loop_test(t, unreadable_kernels, 0, (int)(sizeof unreadable / sizeof *unreadable));
    tcase_add_test(t, no_such_folder);
#endif
    suite_add_tcase(s, t);
    return test_main(s);
}
