/* Loading by its rules, and one sequence's evaluation: what must be equal bit
 * for bit (chunks, pages, threads, what ran before), windows that give pages
 * back, and everything that is refused. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "backend/backend.h"
#include "base/log.h"
#include "base/map.h"
#include "run/load_parts.h"
#include "run/seq.h"
#include "tests/test.h"

static void params(struct load_params *p, const char *model, const char *device)
{
    load_params_init(p);
    p->model = model;
    p->device = device;
    p->backend.n_threads = 2;
    p->kv.dtype = DTYPE_F32;
    p->kv.n_ctx = 384;
}

static void open_ok(struct loaded *l, const struct load_params *p)
{
    struct err err = {0};
    ck_assert_msg(load_open(l, p, &err) == 0, "%s: %s", p->model, err.msg);
}

static void eval_all(struct loaded *l, const int32_t *ids, size_t n, float *out)
{
    struct seq s;
    struct err err = {0};
    ck_assert_msg(seq_open(&s, l, &err) == 0, "%s", err.msg);
    s.whole = true;
    ck_assert_msg(seq_eval(&s, ids, n, true, out, NULL, NULL, &err) == 0, "%s", err.msg);
    ck_assert_int_eq(s.len, (int64_t)n);
    ck_assert_int_eq(kv_len(l->kv, s.slot), (int64_t)n);
    seq_close(&s);
}

static const char *const models[] = {"golden/models/qwen3", "golden/models/gemma3", "golden/models/mistral", "golden/models/qwen3-moe"};
#define N_IDS 70

static int32_t *prompt_of(const char *model, size_t i, size_t *n)
{
    char name[128];
    snprintf(name, sizeof name, "golden/expected/%s.json", path_basename(model));
    cJSON *j = test_json(name);
    int32_t *ids = test_ids(json_get(cJSON_GetArrayItem(json_get(j, "prompts"), (int)i), "ids"), n);
    cJSON_Delete(j);
    return ids;
}

/* The logits of every position against those of one chunk, one thread, one page of n_ctx, a fresh cache. */
START_TEST(bits_are_equal)
{
    static const struct { int chunk, page, threads, want; } rows[] = {
        {1, 0, 1, 0}, {7, 0, 1, 0}, {32, 0, 1, 0}, {512, 1, 1, 0}, {512, 16, 1, 0}, {512, 256, 1, 0}, {512, 0, 2, 0},
        {512, 0, 3, 0}, {7, 16, 3, 0}, {1, 1, 2, 0}, {32, 256, 2, 5},
    };
    size_t n;
    int32_t *ids = prompt_of(models[_i], 4, &n);
    ck_assert_uint_eq(n, N_IDS);
    float *base = NULL;
    for (size_t i = 0; i <= sizeof rows / sizeof rows[0]; i++) {
        struct load_params p;
        struct loaded l;
        params(&p, test_path(models[_i]), "cpu");
        p.kv.page_size = i ? rows[i - 1].page : 0;
        p.chunk = i ? rows[i - 1].chunk : 512;
        p.backend.n_threads = i ? rows[i - 1].threads : 1;
        p.max_want = i ? rows[i - 1].want : 0;
        open_ok(&l, &p);
        size_t size = n * (size_t)l.config->n_vocab * sizeof(float);
        float *out = malloc(size);
        eval_all(&l, ids, n, out);
        if (i == 0) {
            base = malloc(size);
            memcpy(base, out, size);
        }
        ck_assert_msg(memcmp(out, base, size) == 0, "%s: chunk %d, page %d, %d threads differ", models[_i], p.chunk,
                      p.kv.page_size, p.backend.n_threads);
        eval_all(&l, ids + 3, n - 3, out); /* another one, */
        eval_all(&l, ids, n, out);         /* and this one again in the used cache */
        ck_assert_msg(memcmp(out, base, size) == 0, "%s: differs after another sequence", models[_i]);
        free(out);
        load_close(&l);
    }
    free(base);
    free(ids);
}
END_TEST

/* Logits of the last position only, the argmax, and a decode step by step agree with all of them. */
START_TEST(ways_to_evaluate_agree)
{
    size_t n;
    int32_t *ids = prompt_of(models[_i], 4, &n), id;
    struct load_params p;
    struct loaded l;
    struct seq s;
    params(&p, test_path(models[_i]), "cpu");
    p.kv.page_size = 4;
    p.chunk = 16;
    open_ok(&l, &p);
    size_t v = (size_t)l.config->n_vocab;
    float *all = malloc(n * v * sizeof *all), *one = malloc(v * sizeof *one);
    eval_all(&l, ids, n, all);
    ck_assert_int_eq(seq_open(&s, &l, NULL), 0);
    ck_assert_int_eq(seq_eval(&s, ids, 40, false, NULL, NULL, NULL, NULL), 0);
    for (size_t i = 40; i < n; i++) {
        ck_assert_int_eq(seq_eval(&s, &ids[i], 1, false, one, NULL, NULL, NULL), 0);
        ck_assert(memcmp(one, all + i * v, v * sizeof *one) == 0);
    }
    seq_reset(&s, (int64_t)n - 1); /* one back: always possible */
    ck_assert_int_eq(s.len, (int64_t)n - 1);
    ck_assert_int_eq(seq_eval_argmax(&s, &ids[n - 1], 1, &id, NULL, NULL, NULL), 0);
    for (size_t i = 0; i < v; i++)
        ck_assert(one[i] < one[id] || (one[i] == one[id] ? (int32_t)i >= id : false));
    seq_reset(&s, 20); /* where a window gave its pages back, from the start */
    ck_assert(s.len == 20 || s.len == 0);
    ck_assert_int_eq(seq_eval(&s, ids + s.len, 30 - (size_t)s.len, false, one, NULL, NULL, NULL), 0);
    ck_assert(memcmp(one, all + 29 * v, v * sizeof *one) == 0);
    seq_close(&s);
    load_close(&l);
    free(all);
    free(one);
    free(ids);
}
END_TEST

static int window_group(const struct model_config *c)
{
    for (int g = 0; g < c->n_groups; g++)
        if (c->groups[g].window)
            return g;
    return -1;
}

START_TEST(windows_free_pages)
{
    size_t n;
    int32_t *ids = prompt_of(models[_i], 4, &n);
    struct load_params p;
    struct loaded l;
    struct seq s;
    params(&p, test_path(models[_i]), "cpu");
    p.kv.page_size = 4;
    p.chunk = 8;
    open_ok(&l, &p);
    int g = window_group(l.config);
    if (g >= 0) {
        int window = l.config->groups[g].window;
        ck_assert_int_eq(kv_n_pages(l.kv, g), (window + 8 + 3) / 4 + 1);
        ck_assert_int_eq(seq_open(&s, &l, NULL), 0);
        ck_assert_int_eq(seq_eval(&s, ids, n, false, NULL, NULL, NULL, NULL), 0);
        int64_t first = ((int64_t)n - window + 1) / 4, last = ((int64_t)n - 1) / 4; /* pages still seen */
        ck_assert_int_eq(kv_n_pages(l.kv, g) - kv_pages_free(l.kv, g), last - first + 1);
        ck_assert_int_ge(kv_pages(l.kv, s.slot, g)[first], 0);
        ck_assert_int_eq(kv_pages(l.kv, s.slot, g)[first - 1], -1);
        seq_close(&s);
        ck_assert_int_eq(kv_pages_free(l.kv, g), kv_n_pages(l.kv, g));
    } else {
        ck_assert_ptr_nonnull(strstr(models[_i], "qwen3"));
    }
    ck_assert_uint_eq(kv_size(l.kv), kv_bytes(l.config, &(struct kv_params){.dtype = DTYPE_F32, .page_size = 4, .n_ctx = 384,
                                                                           .max_seqs = 1, .chunk = 8}));
    load_close(&l);
    free(ids);
}
END_TEST

static int stop_at_second(void *user, size_t done, size_t total)
{
    size_t *seen = user;
    ck_assert_uint_eq(total, 33);
    *seen = done;
    return done >= 20;
}

START_TEST(limits_and_progress)
{
    size_t n, seen = 0;
    int32_t *ids = prompt_of("qwen3", 3, &n);
    struct load_params p;
    struct loaded l;
    struct seq s, other;
    struct err err = {0};
    params(&p, test_path("golden/models/qwen3"), "cpu");
    p.chunk = 10;
    p.kv.n_ctx = 40;
    open_ok(&l, &p);
    ck_assert_int_eq(seq_open(&s, &l, NULL), 0);
    ck_assert_int_eq(seq_open(&other, &l, &err), ERR_LIMIT);
    ck_assert_int_eq(seq_eval(&s, ids, n, false, NULL, stop_at_second, &seen, &err), ERR_CANCELLED);
    ck_assert_uint_eq(seen, 20);
    ck_assert_int_eq(s.len, 20);
    ck_assert_int_eq(seq_eval(&s, ids, n, false, NULL, NULL, NULL, &err), ERR_LIMIT);
    ck_assert_msg(strstr(err.msg, "33") && strstr(err.msg, "40"), "%s", err.msg);
    ck_assert_int_eq(s.len, 20);
    int32_t bad = (int32_t)l.config->n_vocab;
    ck_assert_int_eq(seq_eval(&s, &bad, 1, false, NULL, NULL, NULL, &err), ERR_ARG);
    ck_assert_int_eq(s.len, 20);
    ck_assert_int_eq(seq_eval(&s, ids, 20, false, NULL, NULL, NULL, &err), 0);
    seq_close(&s);
    load_close(&l);
    free(ids);
}
END_TEST

static int note_first(void *user, size_t done, size_t total)
{
    size_t *first = user;
    ck_assert_uint_le(done, total);
    if (*first == 0)
        *first = done;
    return 0;
}

/* A long text is begun with a short step, where that changes no result and nobody asked for whole chunks. */
START_TEST(first_pieces)
{
    static const struct { bool free_rows, whole; int chunk; size_t first; } rows[] = {
        {true, false, 512, BATCH_PIECE_FIRST}, {true, true, 512, 70}, {false, false, 512, 70}, {false, false, 50, 50},
        {true, false, 10, 10},
    };
    size_t n, first;
    int32_t *ids = prompt_of("qwen3", 3, &n), twice[70];
    for (size_t i = 0; i < 70; i++)
        twice[i] = ids[i % n];
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct load_params p;
        struct loaded l;
        struct seq s;
        struct err err = {0};
        params(&p, test_path("golden/models/qwen3"), "cpu");
        p.chunk = rows[i].chunk;
        open_ok(&l, &p);
        test_that(l.free_rows, "the cpu's results do not depend on the rows of a step");
        l.free_rows = rows[i].free_rows;
        ck_assert_int_eq(seq_open(&s, &l, NULL), 0);
        s.whole = rows[i].whole;
        first = 0;
        ck_assert_int_eq(seq_eval(&s, twice, 70, false, NULL, note_first, &first, &err), 0);
        test_that(first == rows[i].first, "row %zu: the first step had %zu rows, not %zu", i, first, rows[i].first);
        test_that(s.piece >= 1 && s.piece <= (s.piece > l.chunk ? BATCH_PIECE_FIRST : l.chunk), "row %zu: a piece of %d", i,
                  s.piece);
        seq_close(&s);
        load_close(&l);
    }
    free(ids);
}
END_TEST

/* ---- loading ---- */

static void refused(const struct load_params *p, int code, const char *word)
{
    struct loaded l;
    struct err err = {0};
    int rc = load_open(&l, p, &err);
    ck_assert_msg(rc == code, "%s: %d, not %d (%s)", word, rc, code, err.msg);
    ck_assert_msg(strstr(err.msg, word) != NULL, "\"%s\" is not in: %s", word, err.msg);
    ck_assert_ptr_null(l.weights);
}

static int stop_loading(void *user, size_t done, size_t total)
{
    ck_assert_uint_le(done, total);
    ++*(int *)user;
    return 1;
}

START_TEST(load_refuses)
{
    struct load_params p;
    const char *model = test_path("golden/models/qwen3");
    int calls = 0;
    params(&p, NULL, "cpu");
    refused(&p, ERR_ARG, "no model");
    params(&p, "no/such/model", "cpu");
    refused(&p, ERR_IO, "no/such/model");
    params(&p, model, "cpu");
    p.kv.n_ctx = 1 << 20;
    refused(&p, ERR_ARG, "1048576");
    p.kv.n_ctx = -2;
    refused(&p, ERR_ARG, "-2");
    params(&p, model, "cpu");
    p.kv.dtype = DTYPE_BF16;
    refused(&p, ERR_UNSUPPORTED, "BF16");
    params(&p, model, "cpu");
    p.kv.page_size = 300;
    refused(&p, ERR_ARG, "300");
    params(&p, model, "cpu");
    p.kv.mem = 1000;
    refused(&p, ERR_LIMIT, "ctx 384");
    params(&p, model, "cpu");
    p.kv.max_seqs = 1 << 30;
    refused(&p, ERR_LIMIT, "available");
    p.kv.max_seqs = 0;
    refused(&p, ERR_ARG, "max_seqs");
    params(&p, model, "cpu");
    p.chunk = 0;
    refused(&p, ERR_ARG, "chunk");
    params(&p, model, "nonsense");
    refused(&p, ERR_ARG, "nonsense");
    params(&p, model, "cpu");
    p.tokenizer = "no/such/tokenizer.json";
    refused(&p, ERR_IO, "no/such/tokenizer.json");
    params(&p, model, "cpu");
    p.progress = stop_loading;
    p.user = &calls;
    refused(&p, ERR_CANCELLED, "");
    ck_assert_int_eq(calls, 1);
    const char *const splits[] = {"1,2", "x", "0", "-1", "1;", "1,", ""};
    for (size_t i = 0; i < sizeof splits / sizeof splits[0]; i++) {
        params(&p, model, "cpu");
        p.split = splits[i];
        refused(&p, ERR_ARG, "split");
    }
}
END_TEST

START_TEST(context_rule)
{
    static const struct { int64_t given, settled; } rows[] = {{-1, 0}, {0, 0}, {64, 64}};
    struct load_params p;
    struct loaded l;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        params(&p, test_path("golden/models/qwen3"), "cpu");
        p.kv.n_ctx = rows[i].given;
        open_ok(&l, &p);
        int64_t max = l.config->n_ctx_max;
        ck_assert_int_eq(l.n_ctx, rows[i].settled ? rows[i].settled : rows[i].given == -1 && max > 4096 ? 4096 : max);
        ck_assert_int_le(l.chunk, l.n_ctx);
        ck_assert(l.reason[0]);
        load_close(&l);
    }
    params(&p, test_path("golden/models/qwen3"), "cpu");
    p.no_weights = true;
    open_ok(&l, &p);
    ck_assert(l.weights && l.config && l.tokenizer && !l.model && !l.kv && !l.forward);
    load_close(&l);
}
END_TEST

/* Two instances share the layers; the bits are those of one. */
START_TEST(split_over_two_instances)
{
    size_t n;
    int32_t *ids = prompt_of("qwen3", 3, &n);
    struct load_params p;
    struct loaded one, two;
    params(&p, test_path("golden/models/qwen3"), "cpu");
    open_ok(&one, &p);
    p.device = "cpu,cpu";
    p.split = "1,2.5";
    open_ok(&two, &p);
    ck_assert_int_eq(two.n_backends, 2);
    size_t size = n * (size_t)one.config->n_vocab * sizeof(float);
    float *a = malloc(size), *b = malloc(size);
    eval_all(&one, ids, n, a);
    eval_all(&two, ids, n, b);
    ck_assert(memcmp(a, b, size) == 0);
    free(a);
    free(b);
    load_close(&one);
    load_close(&two);
    free(ids);
}
END_TEST

/* ---- a device's largest allocation ---- */

static size_t most_told;

static void caps_told(const struct backend *be, struct backend_caps *out)
{
    (void)be;
    *out = (struct backend_caps){.max_alloc = most_told};
}

static void keep_level(void *user, enum log_level level, const char *line)
{
    if (strstr(line, "steps of "))
        *(int *)user = (int)level;
}

/* Rows of 1001 values and of 3000 logits, so that sizes are no multiples of what buffers are rounded up to. */
START_TEST(steps_fit_an_allocation)
{
    static const struct { size_t most; int chunk, max_seqs, got, want, level; } rows[] = {
        {0, 255, 1, 255, 255, -1},
        {1021020 + 36, 255, 1, 255, 63, -1},      /* 255 * 1001 * 4 and what it is rounded up to */
        {1021020 + 35, 255, 1, 127, 63, LOG_WARN},
        {1000000, 512, 1, 192, 48, LOG_INFO},     /* nobody asked for 512 */
        {1524000, 512, 1, 192, 96, LOG_INFO},
        {64, 255, 50, 31, 50, LOG_WARN},
        {64, 255, 1, 1, 1, LOG_WARN},
    };
    static const struct backend_ops ops = {.name = "told", .caps = caps_told};
    struct backend told = {.ops = &ops, .device = "told"}, *real;
    struct load_params p;
    struct loaded l;
    params(&p, test_path("golden/models/qwen3"), "cpu");
    open_ok(&l, &p);
    struct model_config *c = l.config;
    int64_t n_ff = c->n_ff, n_vocab = c->n_vocab;
    real = l.backends[0];
    l.backends[0] = &told;
    c->n_ff = 1001;
    c->n_vocab = 3000;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct load_fit fit;
        struct load_need need;
        struct err err = {0};
        int level = -1;
        params(&p, "", "told");
        most_told = rows[i].most;
        p.chunk = rows[i].chunk;
        p.kv.max_seqs = rows[i].max_seqs;
        log_set(keep_level, &level, LOG_DEBUG, 0);
        ck_assert_int_eq(load_settle_rows(&l, &p, &p.kv, &need, &err), 0);
        ck_assert_msg(load_fit(&l, &p, &p.kv, &need, &fit, &err) == 0, "%s", err.msg);
        log_set(NULL, NULL, LOG_ERROR, 0);
        ck_assert_msg(l.chunk == rows[i].got && l.max_want == rows[i].want && level == rows[i].level,
                      "row %zu: %d positions, logits of %d, level %d", i, l.chunk, l.max_want, level);
        ck_assert_int_eq(p.kv.chunk, l.chunk);
    }
    c->n_ff = n_ff;
    c->n_vocab = n_vocab;
    l.backends[0] = real;
    load_close(&l);
}
END_TEST

/* ---- which tokenizer ---- */

static void copy_file(const char *from, const char *to)
{
    struct map m;
    ck_assert_int_eq(map_open(&m, from, NULL), 0);
    FILE *f = fopen(to, "wb");
    ck_assert_ptr_nonnull(f);
    ck_assert_uint_eq(fwrite(m.data, 1, m.size, f), m.size);
    ck_assert_int_eq(fclose(f), 0);
    map_close(&m);
}

#define BOOK "golden/containers/pth/qwen3-book"

struct variant_case {
    const char *weights;   /* name given to the weights' file */
    const char *files[3];  /* tokenizer files beside it */
    const char *chosen;    /* NULL = refused */
    const char *end;       /* spelling of the end id */
};

static const struct variant_case variants[] = {
    {"w-base.pth", {"tokenizer-base.json"}, "tokenizer-base.json", "<|endoftext|>"},
    {"w.pth", {"tokenizer-reasoning.json"}, "tokenizer-reasoning.json", "<|im_end|>"},
    {"w.pth", {"tokenizer-reasoning.json", "tokenizer-base.json"}, "tokenizer-base.json", "<|endoftext|>"},
    {"w-reasoning.pth", {"tokenizer-reasoning.json", "tokenizer-base.json"}, "tokenizer-reasoning.json", "<|im_end|>"},
    {"w-base.pth", {"tokenizer.json", "tokenizer-base.json"}, "tokenizer.json", "<|im_end|>"},
    {"w.pth", {"tokenizer-a.json", "tokenizer-b.json"}, NULL, NULL},
    {"w.pth", {NULL}, NULL, NULL},
};

START_TEST(tokenizer_beside_a_pth)
{
    const struct variant_case *c = &variants[_i];
    char dir[512], path[1024], weights[1024];
    snprintf(dir, sizeof dir, "%s", test_tmp("variant"));
    ck_assert_int_eq(mkdir(dir, 0700), 0);
    snprintf(weights, sizeof weights, "%s/%s", dir, c->weights);
    copy_file(test_path(BOOK "/qwen3-tiny-base.pth"), weights);
    for (int i = 0; i < 3 && c->files[i]; i++) {
        snprintf(path, sizeof path, "%s/%s", dir, c->files[i]);
        copy_file(test_path(BOOK "/tokenizer-base.json"), path);
    }
    struct load_params p;
    params(&p, weights, "cpu");
    if (!c->chosen) {
        struct loaded l;
        struct err err = {0};
        ck_assert_int_lt(load_open(&l, &p, &err), 0);
        ck_assert_msg(strstr(err.msg, dir) != NULL, "%s", err.msg);
        return;
    }
    struct loaded l;
    open_ok(&l, &p);
    ck_assert_str_eq(path_basename(tokenizer_source(l.tokenizer)), c->chosen);
    ck_assert_int_eq(l.config->n_eos, 1);
    ck_assert_int_eq(l.config->eos[0], tokenizer_find(l.tokenizer, c->end, strlen(c->end)));
    load_close(&l);
}
END_TEST

START_TEST(tokenizer_larger_than_the_model)
{
    struct load_params p;
    params(&p, test_path("golden/models/llama"), "cpu");
    p.tokenizer = test_path("../data/forge-tiny/tokenizer.json");
    refused(&p, ERR_FORMAT, "vocabulary");
}
END_TEST

int main(void)
{
    Suite *s = suite_create("seq");
    TCase *t = tcase_create("seq");
    int n = (int)(sizeof models / sizeof models[0]);
    tcase_add_loop_test(t, bits_are_equal, 0, n);
    tcase_add_loop_test(t, ways_to_evaluate_agree, 0, n);
    tcase_add_loop_test(t, windows_free_pages, 0, n);
    tcase_add_test(t, limits_and_progress);
    tcase_add_test(t, first_pieces);
    tcase_add_test(t, load_refuses);
    tcase_add_test(t, context_rule);
    tcase_add_test(t, steps_fit_an_allocation);
    tcase_add_test(t, split_over_two_instances);
    tcase_add_loop_test(t, tokenizer_beside_a_pth, 0, (int)(sizeof variants / sizeof variants[0]));
    tcase_add_test(t, tokenizer_larger_than_the_model);
    suite_add_tcase(s, t);
    return test_main(s);
}
