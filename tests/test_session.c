/* Sessions: a text that was saved goes on bit for bit, with other pages, with a
 * window, on other devices; what is not a session of this model is refused by name;
 * no change of a file's bytes does more than that.
 *
 * OpenCL hangs in a child of a process that has touched it: main touches none. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/buf.h"
#include "base/hash.h"
#include "base/map.h"
#include "base/mem.h"
#include "run/engine.h"
#include "tests/engine_kit.h"

#define QWEN "golden/models/qwen3"
#define GEMMA "golden/models/gemma3"

static const struct place {
    const char *model, *device;
    enum forge_kv kv;
    int n_first, n_then;
} places[] = {
    {QWEN, "cpu", FORGE_KV_F32, 17, 20}, {QWEN, "cpu", FORGE_KV_F16, 1, 9}, {GEMMA, "cpu", FORGE_KV_F32, 40, 30},
    {GEMMA, "cpu", FORGE_KV_F16, 3, 10}, {QWEN, "ref", FORGE_KV_F32, 9, 9}, {QWEN, "cpu,cpu", FORGE_KV_F32, 12, 12},
    {TINY, "opencl:cpu", FORGE_KV_F32, 10, 10}, {GEMMA, "opencl:cpu", FORGE_KV_F32, 30, 10},
};

static struct forge_engine_params at(const struct place *p, int page)
{
    struct forge_engine_params ep = engine_params(p->model);
    ep.device = p->device;
    ep.deterministic = 1;
    ep.kv_type = p->kv;
    ep.page_size = page;
    ep.n_ctx = 128;
    return ep;
}

static struct forge_request_params sampled(int64_t n)
{
    static int32_t ids[30];
    struct forge_request_params p = request_params(NULL, n);
    for (int i = 0; i < 30; i++)
        ids[i] = 3 + (i * 31) % 80;
    p.ids = ids;
    p.n_ids = 30;
    p.ignore_eos = 1;
    p.sampling.temp = 0.9;
    p.sampling.seed = 77;
    p.sampling.has_seed = 1;
    return p;
}

START_TEST(goes_on)
{
    const struct place *w = &places[_i];
    struct forge_engine_params ep = at(w, 16);
    struct forge_engine *e;
    struct forge_error err = {0};
    size_t n, n_prompt, n_whole;
    const char *file = test_tmp("session");
    if (forge_engine_open(&e, &ep, &err) < 0) {
        ck_assert_msg(strncmp(w->device, "opencl", 6) == 0, "%s", err.message);
        test_skip(err.message);
        return;
    }
    struct forge_request_params p = sampled(w->n_first + w->n_then);
    struct forge_request *whole = generate(e, &p), *r;
    const int32_t *want = forge_request_ids(whole, 0, &n_whole);
    p = sampled(w->n_first);
    p.session_save = file;
    forge_request_free(generate(e, &p));
    for (int page = 4; page <= 64; page *= 4) {
        struct forge_engine_params other = at(w, page);
        struct forge_engine *f = engine_with(&other);
        p = sampled(w->n_then);
        p.ids = NULL;
        p.session_load = file;
        r = generate(f, &p);
        forge_request_prompt_ids(r, &n_prompt);
        ck_assert_uint_eq(n_prompt, (size_t)(30 + w->n_first));
        const int32_t *got = forge_request_ids(r, 0, &n);
        ck_assert_uint_eq(n, (size_t)w->n_then);
        test_that(memcmp(got, want + w->n_first, n * sizeof *got) == 0, "page %d: other ids", page);
        ck_assert_uint_eq(forge_request_metrics(r)->cached_tokens, (uint64_t)(29 + w->n_first));
        forge_request_free(r);
        ck_assert_uint_eq(forge_engine_stats(f)->pages_held, 0);
        ck_assert_uint_eq(forge_engine_stats(f)->pages_kept, 0);
        forge_engine_close(f);
    }
    forge_request_free(whole);
    forge_engine_close(e);
}
END_TEST

/* A prompt behind it is as if it had all been one, several samples fork it, and a model's end is a place to go on from. */
START_TEST(prompts_follow)
{
    struct forge_engine *e = engine_of(TINY), *f = engine_of(TINY);
    const char *file = test_tmp("session");
    size_t n;
    int32_t ids[64];
    struct forge_request_params p = request_params("The capital of France is", 12);
    p.session_save = file;
    struct forge_request *a = generate(e, &p), *r, *b;
    const int32_t *prompt = forge_request_prompt_ids(a, &n);
    memcpy(ids, prompt, n * sizeof *ids);
    size_t at = n;
    const int32_t *new_ids = forge_request_ids(a, 0, &n);
    memcpy(ids + at, new_ids, n * sizeof *ids);
    at += n;
    ids[at++] = 300;
    ids[at++] = 301;
    struct forge_request_params q = request_params(NULL, 10);
    q.session_load = file;
    q.ids = &ids[at - 2];
    q.n_ids = 2;
    q.n_samples = 2;
    q.sampling.temp = 1;
    q.sampling.seed = 9;
    q.sampling.has_seed = 1;
    r = generate(f, &q);
    q.session_load = NULL;
    q.ids = ids;
    q.n_ids = at;
    b = generate(e, &q);
    for (int s = 0; s < 2; s++) {
        size_t m;
        const int32_t *x = forge_request_ids(r, s, &n), *y = forge_request_ids(b, s, &m);
        test_that(n == m && memcmp(x, y, n * sizeof *x) == 0, "sample %d: other ids", s);
    }
    forge_request_free(a);
    forge_request_free(b);
    forge_request_free(r);
    forge_engine_close(e);
    forge_engine_close(f);
}
END_TEST

/* ---- what is refused ---- */

static void write_file(const char *path, const char *data, size_t len)
{
    ck_assert_int_eq(path_replace(path, data, len, NULL, 0, NULL), 0);
}

static int load(struct forge_engine *e, const char *path, struct forge_error *err)
{
    struct forge_request_params p = request_params(NULL, 2);
    struct forge_request *r = NULL;
    p.session_load = path;
    int rc = forge_generate(e, &p, &r, err);
    forge_request_free(r);
    return rc;
}

static void refused(struct forge_engine *e, const char *path, int code, const char *part)
{
    struct forge_error err = {0};
    int rc = load(e, path, &err);
    test_that(rc == code && strstr(err.message, part), "%d, %s; not %d, %s", rc, err.message, code, part);
}

static char *saved(size_t *len)
{
    struct forge_engine *e = engine_of(QWEN);
    char *data;
    struct forge_request_params p = sampled(5);
    p.session_save = test_tmp("session");
    forge_request_free(generate(e, &p));
    forge_engine_close(e);
    ck_assert_int_eq(map_read_all(p.session_save, SIZE_MAX / 2, &data, len, NULL), 0);
    return data;
}

static void sum_again(char *data, size_t len)
{
    uint64_t sum = hash_bytes(data + 56, len - 56, hash_bytes(data, 48, 1));
    for (int i = 0; i < 8; i++)
        data[48 + i] = (char)(sum >> (8 * i));
}

START_TEST(what_is_refused)
{
    size_t len;
    char *data = saved(&len);
    const char *file = test_tmp("session"), *bad = test_tmp("bad");
    struct forge_engine *e = engine_of(QWEN), *other = engine_of(GEMMA);
    struct forge_engine_params half = engine_params(QWEN), fast = half, small = half;
    half.kv_type = FORGE_KV_F16;
    fast.math = FORGE_MATH_FAST;
    small.n_ctx = 20;
    struct forge_engine *h = engine_with(&half), *q = engine_with(&fast), *t = engine_with(&small);
    refused(other, file, FORGE_ERR_ARG, "another model");
    refused(q, file, FORGE_ERR_ARG, "another model or math");
    refused(h, file, FORGE_ERR_ARG, "KV type");
    refused(t, file, FORGE_ERR_LIMIT, "35 ids do not fit");
    refused(e, test_tmp("none"), FORGE_ERR_IO, "none");
    write_file(bad, data, len - 1);
    refused(e, bad, FORGE_ERR_FORMAT, "the file has");
    write_file(bad, data, 40);
    refused(e, bad, FORGE_ERR_FORMAT, "no saved session");
    data[8] = 3;
    write_file(bad, data, len);
    refused(e, bad, FORGE_ERR_UNSUPPORTED, "version 3");
    data[8] = 2;
    data[len - 1] ^= 1;
    write_file(bad, data, len);
    refused(e, bad, FORGE_ERR_FORMAT, "damaged");
    data[len - 1] ^= 1;
    data[32] = 3; /* fewer positions */
    sum_again(data, len);
    write_file(bad, data, len);
    refused(e, bad, FORGE_ERR_FORMAT, "3 positions of 35 ids");
    data[32] = 34;
    memset(data + 24, 0xff, 8);
    sum_again(data, len);
    write_file(bad, data, len);
    refused(e, bad, FORGE_ERR_FORMAT, "not possible");
    struct forge_request_params p = sampled(2);
    struct forge_error err = {0};
    p.session_save = test_tmp("no/such/folder");
    ck_assert_int_lt(forge_generate(e, &p, NULL, &err), 0);
    ck_assert_ptr_nonnull(strstr(err.message, "no/such/folder"));
    free(data);
    forge_engine_close(e);
    forge_engine_close(other);
    forge_engine_close(h);
    forge_engine_close(q);
    forge_engine_close(t);
}
END_TEST

static const struct {
    const char *model, *field, *value; /* in config.json; NULL: of the weights, */
    size_t at;                         /* this byte is another one */
} twins[] = {
    {QWEN, "\"rope_theta\": 1000000.0", "\"rope_theta\": 900000.0", 0},
    {QWEN, "\"rope_scaling\": null", "\"rope_scaling\": {\"rope_type\": \"linear\", \"factor\": 2.0}", 0},
    {QWEN, "\"rms_norm_eps\": 1e-06", "\"rms_norm_eps\": 1e-05", 0},
    {QWEN, "\"hidden_act\": \"silu\"", "\"hidden_act\": \"gelu_pytorch_tanh\"", 0},
    {GEMMA, "\"sliding_window\": 8", "\"sliding_window\": 7", 0},
    {GEMMA, "\"query_pre_attn_scalar\": 24", "\"query_pre_attn_scalar\": 25", 0},
    {GEMMA, "\"rope_local_base_freq\": 10000.0", "\"rope_local_base_freq\": 9000.0", 0},
    {QWEN, NULL, NULL, 3632 + 70000},        /* the middle of a tensor of which pieces are looked at */
    {QWEN, NULL, NULL, 3632 + 81918},        /* its end */
    {QWEN, NULL, NULL, 3632 + 94336 + 5000}, /* of one that is looked at as a whole */
};

/* A file of the model, changed or as it is. */
static void copy_file(int i, const char *dir, const char *name)
{
    char path[8192], *data;
    size_t len;
    snprintf(path, sizeof path, "%s/%s", test_path(twins[i].model), name);
    ck_assert_int_eq(map_read_all(path, SIZE_MAX / 2, &data, &len, NULL), 0);
    snprintf(path, sizeof path, "%s/%s", dir, name);
    char *at = twins[i].field && strcmp(name, "config.json") == 0 ? strstr(data, twins[i].field) : NULL;
    if (at) {
        struct buf b;
        buf_init(&b);
        buf_put(&b, data, (size_t)(at - data));
        buf_puts(&b, twins[i].value);
        buf_puts(&b, at + strlen(twins[i].field));
        write_file(path, b.data, b.len);
        buf_fini(&b);
    } else {
        if (!twins[i].field && strcmp(name, "model.safetensors") == 0)
            data[twins[i].at] ^= 1;
        write_file(path, data, len);
    }
    ck_assert(at || !twins[i].field || strcmp(name, "config.json") != 0);
    free(data);
}

/* A model of the same shapes that computes something else. */
START_TEST(twins_are_refused)
{
    static const char *const files[] = {"config.json", "model.safetensors", "tokenizer.json"};
    char dir[4096];
    const char *file = test_tmp("session");
    struct forge_engine *e = engine_of(twins[_i].model);
    struct forge_request_params p = sampled(5);
    struct forge_error err = {0};
    snprintf(dir, sizeof dir, "%s", test_tmp("twin"));
    ck_assert_int_eq(mkdir(dir, 0700), 0);
    for (int i = 0; i < 3; i++)
        copy_file(_i, dir, files[i]);
    p.session_save = file;
    forge_request_free(generate(e, &p));
    ck_assert_int_eq(load(e, file, &err), 0);
    forge_engine_close(e);
    struct forge_engine_params other = engine_params(QWEN);
    other.model = dir;
    e = engine_with(&other);
    refused(e, file, FORGE_ERR_ARG, "another model");
    forge_engine_close(e);
}
END_TEST

/* Any byte, any length; half of them with the right checksum, so that what lies behind it is met. */
START_TEST(mutations_do_no_harm)
{
    size_t len;
    char *data = saved(&len), *copy = malloc(len);
    struct forge_engine *e = engine_of(QWEN);
    const char *bad = test_tmp("bad");
    uint64_t state = 1;
    int n_refused = 0;
    ck_assert_ptr_nonnull(copy);
    for (int i = 0; i < 400; i++) {
        struct forge_error err = {0};
        size_t size = i % 10 == 0 ? hash_u64(++state) % len : len;
        memcpy(copy, data, len);
        for (int k = i % 4; k >= 0 && size > 0; k--) {
            size_t where = hash_u64(++state) % (i % 3 ? size < 200 ? size : 200 : size);
            copy[where] = (char)hash_u64(++state);
        }
        if (i % 2 && size > 56)
            sum_again(copy, size);
        write_file(bad, copy, size);
        int rc = load(e, bad, &err);
        test_that(rc == 0 || err.message[0], "no reason");
        n_refused += rc < 0;
    }
    ck_assert_int_gt(n_refused, 250);
    ck_assert_uint_eq(forge_engine_stats(e)->pages_held, 0);
    free(copy);
    free(data);
    forge_engine_close(e);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("session");
    TCase *t = tcase_create("session");
    tcase_set_timeout(t, 300);
    tcase_add_loop_test(t, goes_on, 0, (int)(sizeof places / sizeof *places));
    tcase_add_test(t, prompts_follow);
    tcase_add_test(t, what_is_refused);
    tcase_add_loop_test(t, twins_are_refused, 0, (int)(sizeof twins / sizeof *twins));
    tcase_add_test(t, mutations_do_no_harm);
    suite_add_tcase(s, t);
    return test_main(s);
}
