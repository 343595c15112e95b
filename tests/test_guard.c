/* The check of a device at its first use, on a CPU instance that is bent: what
 * is wrong gets a stand-in and is then right, and everything else stays.
 * Needs no OpenCL. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backend/guard.h"
#include "backend/registry.h"
#include "backend/selftest.h"
#include "base/map.h"
#include "base/mem.h"
#include "tests/test.h"

/* ---- an instance that can be bent ---- */
static struct backend_ops own, bent;
static int n_rmsnorm; /* calls of the device's own one */

static void identity(const struct backend *be, uint64_t id[2])
{
    (void)be;
    id[0] = 0x1234;
    id[1] = 0x5678;
}

static struct backend *open_cpu(void)
{
    struct backend_params plain = {.n_threads = 1, .no_selftest = true};
    struct backend *be[REGISTRY_MAX_INSTANCES];
    int n;

    ck_assert_int_eq(registry_open("cpu", &plain, be, &n, NULL, 0, NULL), 0);
    own = bent = *be[0]->ops;
    bent.identity = identity;
    be[0]->ops = &bent;
    snprintf(be[0]->device, sizeof be[0]->device, "bent");
    return be[0];
}

static const char *memory(void)
{
    static char dir[600];
    char leaf[64];
    snprintf(leaf, sizeof leaf, "guard-%ld-%d", (long)getpid(), n_rmsnorm);
    snprintf(dir, sizeof dir, "%s", test_tmp(leaf));
    ck_assert_int_eq(mkdir(dir, 0700), 0);
    return dir;
}

/* ---- wrong operations: they do nothing ---- */
static void no_embed(struct backend *be, const struct tensor *o, const struct tensor *t,
                     const struct tensor *i, float s)
{
    (void)be, (void)o, (void)t, (void)i, (void)s;
}
static void no_rmsnorm(struct backend *be, const struct tensor *o, const struct tensor *x,
                       const struct tensor *w, float e, bool a)
{
    (void)be, (void)o, (void)x, (void)w, (void)e, (void)a;
}
static void no_linear(struct backend *be, const struct tensor *o, const struct tensor *x,
                      const struct tensor *w, const struct tensor *b)
{
    (void)be, (void)o, (void)x, (void)w, (void)b;
}
static void no_rope(struct backend *be, const struct tensor *x, const struct tensor *c, int h, int r,
                    enum op_pairs p)
{
    (void)be, (void)x, (void)c, (void)h, (void)r, (void)p;
}
static void no_kv_store(struct backend *be, const struct kv_layer *kv, const struct tensor *k,
                        const struct tensor *v, const struct kv_rows *r)
{
    (void)be, (void)kv, (void)k, (void)v, (void)r;
}
static void no_attention(struct backend *be, const struct tensor *o, const struct tensor *q,
                         const struct kv_layer *kv, const struct kv_rows *r, const struct attention_args *a)
{
    (void)be, (void)o, (void)q, (void)kv, (void)r, (void)a;
}
static void no_act_mul(struct backend *be, const struct tensor *o, const struct tensor *g,
                       const struct tensor *u, enum op_act a)
{
    (void)be, (void)o, (void)g, (void)u, (void)a;
}
static void no_add(struct backend *be, const struct tensor *o, const struct tensor *a, const struct tensor *b)
{
    (void)be, (void)o, (void)a, (void)b;
}
static void no_scale(struct backend *be, const struct tensor *x, float s)
{
    (void)be, (void)x, (void)s;
}
static void no_route(struct backend *be, const struct tensor *i, const struct tensor *w,
                     const struct tensor *l, bool r)
{
    (void)be, (void)i, (void)w, (void)l, (void)r;
}
static void no_experts(struct backend *be, const struct tensor *o, const struct tensor *x,
                       const struct tensor *e, int n, const struct tensor *i, const struct tensor *w)
{
    (void)be, (void)o, (void)x, (void)e, (void)n, (void)i, (void)w;
}
static void no_gather(struct backend *be, const struct tensor *o, const struct tensor *x,
                      const struct tensor *r)
{
    (void)be, (void)o, (void)x, (void)r;
}
static void no_argmax(struct backend *be, const struct tensor *o, const struct tensor *x)
{
    (void)be, (void)o, (void)x;
}
static void no_topk(struct backend *be, const struct tensor *i, const struct tensor *v,
                    const struct tensor *x)
{
    (void)be, (void)i, (void)v, (void)x;
}

/* ... fail, are wrong for one type, or are counted */
static void failing_softcap(struct backend *be, const struct tensor *x, float cap)
{
    (void)x, (void)cap;
    backend_fail(be, ERR_DEVICE, "out of everything");
}
static void linear_but_q4_k(struct backend *be, const struct tensor *o, const struct tensor *x,
                            const struct tensor *w, const struct tensor *b)
{
    if (w->dtype != DTYPE_Q4_K)
        own.linear(be, o, x, w, b);
}
static void attention_but_48(struct backend *be, const struct tensor *o, const struct tensor *q,
                             const struct kv_layer *kv, const struct kv_rows *r, const struct attention_args *a)
{
    if (kv->head_dim == 48)
        backend_fail(be, ERR_DEVICE, "no kernel for these heads");
    else
        own.attention(be, o, q, kv, r, a);
}
static void counted_rmsnorm(struct backend *be, const struct tensor *o, const struct tensor *x,
                            const struct tensor *w, float e, bool a)
{
    n_rmsnorm++;
    own.rmsnorm(be, o, x, w, e, a);
}

#define BEND(name, entry, f)                                                                                 \
    static void bend_##name(void)                                                                            \
    {                                                                                                        \
        bent.entry = f;                                                                                      \
    }
BEND(embed, embed, no_embed)
BEND(rmsnorm, rmsnorm, no_rmsnorm)
BEND(linear, linear, no_linear)
BEND(rope, rope, no_rope)
BEND(act_mul, act_mul, no_act_mul)
BEND(add, add, no_add)
BEND(scale, scale, no_scale)
BEND(softcap, softcap, failing_softcap)
BEND(route, route, no_route)
BEND(experts, linear_experts, no_experts)
BEND(gather, gather_rows, no_gather)
BEND(argmax, argmax, no_argmax)
BEND(topk, topk, no_topk)
BEND(kv_store, kv_store, no_kv_store)
BEND(attention, attention, no_attention)

static const struct bend {
    const char *name;
    enum op_id op;
    void (*bend)(void);
} bends[] = {
    {"embed", OP_EMBED, bend_embed},
    {"rmsnorm", OP_RMSNORM, bend_rmsnorm},
    {"linear", OP_LINEAR, bend_linear},
    {"rope", OP_ROPE, bend_rope},
    {"act_mul", OP_ACT_MUL, bend_act_mul},
    {"add", OP_ADD, bend_add},
    {"scale", OP_SCALE, bend_scale},
    {"softcap", OP_SOFTCAP, bend_softcap},
    {"route", OP_ROUTE, bend_route},
    {"experts", OP_LINEAR_EXPERTS, bend_experts},
    {"gather", OP_GATHER_ROWS, bend_gather},
    {"argmax", OP_ARGMAX, bend_argmax},
    {"topk", OP_TOPK, bend_topk},
};
enum { N_BENDS = sizeof bends / sizeof *bends };

static const struct bend states[] = {{"kv_store", OP_KV_STORE, bend_kv_store},
                                     {"attention", OP_ATTENTION, bend_attention}};

static void tally(void *user, const struct selftest_case *c)
{
    int *bad = user;
    if (!c->ok)
        fprintf(stderr, "%s %s: error %g %s\n", op_name(c->op), c->variant, c->error, c->why ? c->why : "");
    *bad += !c->ok;
}

/* The whole list of cases, as any user of the instance would see it. */
static int wrong_cases(struct backend *be)
{
    struct backend_params plain = {.n_threads = 1};
    struct backend *ref[REGISTRY_MAX_INSTANCES];
    int n, bad = 0;
    struct selftest_args args = {.types = UINT32_MAX, .others = true, .report = tally, .user = &bad};

    ck_assert_int_eq(registry_open("ref", &plain, ref, &n, NULL, 0, NULL), 0);
    ck_assert_int_gt(selftest_run(ref[0], be, &args), 700);
    registry_close(ref[0]);
    return bad;
}

/* ---- tests ---- */
START_TEST(wrong_operations_get_stand_ins)
{
    const struct bend *b = &bends[_i];
    struct backend_params params = {.n_threads = 1};
    struct backend *be = open_cpu();
    struct err err = {0};

    b->bend();
    test_that(guard_open(&be, &params, &err) == 0, "%s", err.msg);
    test_that(wrong_cases(be) == 0, "%s is still wrong", b->name);
    for (int op = 0; op < OP_COUNT; op++) {
        const struct op_stats *s = op_stats(be, (enum op_id)op);
        if (s->calls > 0)
            test_that(strcmp(s->device, op == (int)b->op ? "cpu" : "bent") == 0, "%s ran on %s",
                      op_name((enum op_id)op), s->device);
    }
    registry_close(be);
}
END_TEST

/* A matrix of 4 rows of 256 values of a type, and room for one row before and after it. */
static void make_product(struct backend *be, enum dtype type, struct tensor *w, struct tensor *x, struct tensor *out)
{
    static uint8_t blocks[4096];
    struct host_matrix m = {.name = "w",
                            .dtype = type,
                            .rows = 4,
                            .cols = 256,
                            .data = blocks,
                            .file = blocks,
                            .file_size = sizeof blocks};

    ck_assert(selftest_blocks(type, blocks, 4 * 256, 3));
    ck_assert_int_eq(op_import(be, w, &m, NULL), 0);
    ck_assert_int_eq(op_alloc(be, x, DTYPE_F32, 1, 256, NULL), 0);
    ck_assert_int_eq(op_alloc(be, out, DTYPE_F32, 1, 4, NULL), 0);
}

static void write_ones(struct backend *be, const struct tensor *x)
{
    float ones[256];

    for (int k = 0; k < 256; k++)
        ones[k] = 1;
    op_write(be, x, ones);
}

/* --enable-check-ops: the reference computes along, and what differs fails the step. */
START_TEST(compared_as_it_runs)
{
    struct backend *be = open_cpu();
    const enum dtype types[] = {DTYPE_Q8_0, DTYPE_Q4_K};

    bent.linear = linear_but_q4_k;
    ck_assert_int_eq(guard_check_ops(be, NULL), 0);
    for (int i = 0; i < 2; i++) {
        struct tensor w, x, out;
        struct err err = {0};
        float y[4];
        make_product(be, types[i], &w, &x, &out);
        op_begin(be);
        write_ones(be, &x);
        op_linear(be, &out, &x, &w, NULL);
        int rc = op_read(be, y, &out, &err);
        if (types[i] == DTYPE_Q8_0)
            ck_assert_msg(rc == 0, "%s", err.msg);
        else
            ck_assert_msg(rc == ERR_DEVICE && strstr(err.msg, "checked on ref"), "%d: %s", rc, err.msg);
        op_free(w.buf);
        op_free(x.buf);
        op_free(out.buf);
    }
    registry_close(be);
}
END_TEST

START_TEST(one_type_alone)
{
    struct backend_params params = {.n_threads = 1};
    struct backend *be = open_cpu();
    const enum dtype types[] = {DTYPE_Q4_K, DTYPE_Q8_0};

    bent.linear = linear_but_q4_k;
    ck_assert_int_eq(guard_open(&be, &params, NULL), 0);
    for (int i = 0; i < 2; i++) {
        struct tensor w, x, out;
        float y[3], whole[4];
        make_product(be, types[i], &w, &x, &out);
        op_stats_reset(be);
        op_begin(be);
        write_ones(be, &x);
        op_linear(be, &out, &x, &w, NULL);
        ck_assert_int_eq(op_read(be, whole, &out, NULL), 0);
        ck_assert(whole[0] != 0 && whole[3] != 0);
        ck_assert_str_eq(op_stats(be, OP_LINEAR)->device, i == 0 ? "cpu" : "bent");
        struct tensor part = tensor_rows(&w, 1, 3), out3 = out; /* rows of a weight */
        out3.cols = 3;
        op_linear(be, &out3, &x, &part, NULL);
        ck_assert_int_eq(op_read(be, y, &out3, NULL), 0);
        ck_assert_mem_eq(y, whole + 1, sizeof y);
        op_free(w.buf);
        op_free(x.buf);
        op_free(out.buf);
    }
    registry_close(be);
}
END_TEST

START_TEST(wrong_state_moves_the_layers)
{
    struct backend_params params = {.n_threads = 1};
    struct backend *be = open_cpu();

    states[_i].bend();
    ck_assert_int_eq(guard_open(&be, &params, NULL), 0);
    ck_assert_str_eq(op_device(be), "cpu");
    ck_assert_ptr_nonnull(strstr(be->detail, "bent"));
    ck_assert_int_eq(wrong_cases(be), 0);
    registry_close(be);
}
END_TEST

/* Attention is compiled for a model's heads: the list of cases does not know them. */
START_TEST(heads_of_a_model)
{
    static const struct {
        struct op_heads heads;
        bool required;
        const char *device; /* NULL: refused */
    } rows[] = {
        {{0, 0, 0, DTYPE_F32}, true, "bent"},      {{8, 2, 64, DTYPE_F16}, true, "bent"},
        {{8, 2, 48, DTYPE_F16}, false, "cpu"},     {{3, 3, 48, DTYPE_F32}, false, "cpu"},
        {{8, 1, 48, DTYPE_F16}, true, NULL},
    };
    struct backend_params params = {.n_threads = 1, .require_device = rows[_i].required, .heads = rows[_i].heads};
    struct backend *be = open_cpu();
    struct err err = {0};

    bent.attention = attention_but_48;
    int rc = guard_open(&be, &params, &err);
    if (rows[_i].device == NULL) {
        ck_assert_int_eq(rc, ERR_DEVICE);
        test_that(strstr(err.msg, "no kernel for these heads") != NULL, "%s", err.msg);
        return;
    }
    ck_assert_int_eq(rc, 0);
    ck_assert_str_eq(op_device(be), rows[_i].device);
    registry_close(be);
}
END_TEST

START_TEST(required_device_is_an_error)
{
    struct backend_params params = {.n_threads = 1, .require_device = true};
    struct backend *be = open_cpu();
    struct err err = {0};

    if (_i == 0)
        bent.rope = no_rope;
    else
        bent.attention = no_attention;
    ck_assert_int_eq(guard_open(&be, &params, &err), ERR_DEVICE);
    ck_assert_ptr_nonnull(strstr(err.msg, _i == 0 ? "bent: rope" : "bent: attention"));
    ck_assert_ptr_nonnull(strstr(err.msg, "is wrong: error"));
    ck_assert_ptr_nonnull(strstr(err.msg, "require_device"));
}
END_TEST

START_TEST(required_type_is_an_error)
{
    struct backend_params params = {.n_threads = 1, .require_device = true};
    struct backend *be = open_cpu();
    struct err err = {0};
    uint8_t block[144] = {0};
    struct host_matrix m = {.name = "w", .dtype = DTYPE_Q4_K, .rows = 1, .cols = 256, .data = block};
    struct tensor w;

    bent.linear = linear_but_q4_k;
    ck_assert_int_eq(guard_open(&be, &params, &err), 0);
    ck_assert_int_eq(op_import(be, &w, &m, &err), ERR_DEVICE);
    ck_assert_ptr_nonnull(strstr(err.msg, "linear Q4_K"));
    registry_close(be);
}
END_TEST

static int checks(const struct backend_params *params)
{
    struct backend *be = open_cpu();
    n_rmsnorm = 0;
    bent.rmsnorm = counted_rmsnorm;
    ck_assert_int_eq(guard_open(&be, params, NULL), 0);
    ck_assert_uint_eq(op_stats(be, OP_RMSNORM)->calls, 0); /* the check leaves no trace */
    registry_close(be);
    return n_rmsnorm;
}

START_TEST(passed_checks_are_remembered)
{
    const char *dir = memory();
    struct backend_params params = {.n_threads = 1, .kernel_cache = dir};
    char **names;
    size_t n;

    ck_assert_int_gt(checks(&params), 0);
    ck_assert_int_eq(checks(&params), 0);
    ck_assert_int_eq(path_list(dir, &names, &n, NULL), 0);
    ck_assert_uint_eq(n, 1);
    ck_assert_ptr_nonnull(strstr(names[0], "base.ok"));
    char *path = path_join(dir, names[0]);
    FILE *f = fopen(path, "wb"); /* an empty record says nothing */
    ck_assert_ptr_nonnull(f);
    fclose(f);
    ck_assert_int_gt(checks(&params), 0);
    ck_assert_int_eq(checks(&params), 0);
    params.recheck = true; /* it has failed since */
    ck_assert_int_gt(checks(&params), 0);
    params.recheck = false;
    params.no_selftest = true;
    unlink(path);
    ck_assert_int_eq(checks(&params), 0);
    ck_assert(!path_exists(path));
    ck_assert_int_eq(mkfifo(path, 0600), 0); /* nobody writes to it: it must not be waited for */
    params.no_selftest = false;
    ck_assert_int_gt(checks(&params), 0);
    free(path);
    path_list_free(names, n);
}
END_TEST

static void short_of_memory(struct backend *be, const struct tensor *x, float cap)
{
    (void)x, (void)cap;
    backend_fail(be, ERR_LIMIT, "4 bytes do not fit");
}

/* Memory that is refused says nothing about the operation: no stand-in, an error. */
START_TEST(refused_memory_is_an_error)
{
    struct backend_params params = {.n_threads = 1};
    struct backend *be = open_cpu();
    struct err err = {0};

    bent.softcap = short_of_memory;
    ck_assert_int_eq(guard_open(&be, &params, &err), ERR_LIMIT);
    ck_assert_ptr_null(be);
    ck_assert_ptr_nonnull(strstr(err.msg, "4 bytes do not fit"));
}
END_TEST

static bool after_three(void *user)
{
    int *left = user;
    return (*left)-- <= 0;
}

START_TEST(stopped_checks_are_an_end)
{
    const char *dir = memory();
    int left = 3;
    struct backend_params params = {
        .n_threads = 1, .kernel_cache = dir, .stop = after_three, .stop_user = &left};
    struct backend *be = open_cpu();
    struct err err = {0};
    char **names;
    size_t n;

    ck_assert_int_eq(guard_open(&be, &params, &err), ERR_CANCELLED);
    ck_assert_msg(strstr(err.msg, "bent was stopped") != NULL, "%s", err.msg);
    ck_assert_ptr_null(be);
    ck_assert_int_eq(left, -1); /* asked no more */
    ck_assert_int_eq(path_list(dir, &names, &n, NULL), 0);
    ck_assert_uint_eq(n, 0);
    path_list_free(names, n);
}
END_TEST

START_TEST(failed_checks_are_not)
{
    const char *dir = memory();
    struct backend_params params = {.n_threads = 1, .kernel_cache = dir};
    char **names;
    size_t n;

    for (int i = 0; i < 2; i++) {
        struct backend *be = open_cpu();
        bent.add = no_add;
        ck_assert_int_eq(guard_open(&be, &params, NULL), 0);
        ck_assert(be->ops->add != no_add);
        registry_close(be);
    }
    ck_assert_int_eq(path_list(dir, &names, &n, NULL), 0);
    ck_assert_uint_eq(n, 0);
    path_list_free(names, n);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("guard");
    TCase *t = tcase_create("guard");

    tcase_set_timeout(t, 300);
    tcase_add_loop_test(t, wrong_operations_get_stand_ins, 0, N_BENDS);
    tcase_add_test(t, one_type_alone);
    tcase_add_test(t, compared_as_it_runs);
    tcase_add_loop_test(t, wrong_state_moves_the_layers, 0, 2);
    tcase_add_loop_test(t, heads_of_a_model, 0, 5);
    tcase_add_loop_test(t, required_device_is_an_error, 0, 2);
    tcase_add_test(t, required_type_is_an_error);
    tcase_add_test(t, passed_checks_are_remembered);
    tcase_add_test(t, stopped_checks_are_an_end);
    tcase_add_test(t, failed_checks_are_not);
    tcase_add_test(t, refused_memory_is_an_error);
    suite_add_tcase(s, t);
    return test_main(s);
}
