/* The forward pass against itself: what must be equal bit for bit (design: one
 * order of sums whatever the chunk, the pages, the threads, the neighbours), and
 * what a step, a split and binding refuse. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/map.h"
#include "base/mem.h"
#include "model/workspace.h"
#include "tests/model_util.h"
#include "tests/test.h"

/* One of each kind: q/k norm, window layers of two kinds, fused matrices, experts, biases, interleaved rows.
 */
static const char *const files[] = {
    "golden/models/qwen3", "golden/models/gemma3", "golden/models/mistral", "golden/models/phi3", "golden/models/qwen3-moe",
    "golden/models/llama-sharded", "golden/containers/gguf/llama-q8_0.gguf", "golden/containers/gguf/wide-q4_k_mix.gguf",
};
#define N_FILES ((int)(sizeof(files) / sizeof(files[0])))

enum { N_IDS = 70 };

static void make_ids(int32_t *ids, int n, int64_t n_vocab, int seed)
{
    uint32_t x = (uint32_t)seed * 2654435761u + 1;
    for (int i = 0; i < n; i++) {
        x = x * 1664525u + 1013904223u;
        ids[i] = (int32_t)((x >> 8) % (uint32_t)n_vocab);
    }
}

static void open_model(struct test_model *t, const char *file, const struct test_model_options *o)
{
    struct err err = {0};
    ck_assert_msg(test_model_open(t, test_path(file), o, &err) == 0, "%s", err.msg);
}

/* Logits of one way of running; freed by the caller. */
static float *logits_of(const char *file, const struct test_model_options *o, int chunk, size_t *n)
{
    struct test_model t;
    int32_t ids[N_IDS];
    open_model(&t, file, o);
    *n = N_IDS * (size_t)test_model_vocab(&t);
    float *out = mem_array(*n, sizeof(float));
    make_ids(ids, N_IDS, test_model_vocab(&t), 7);
    test_model_run(&t, 0, ids, N_IDS, 0, chunk, out);
    test_model_close(&t);
    return out;
}

static void check_same(const float *a, const float *b, size_t n, const char *file, const char *how)
{
    for (size_t i = 0; i < n; i++)
        ck_assert_msg(memcmp(&a[i], &b[i], sizeof(float)) == 0, "%s: %s: value %zu is %.9g instead of %.9g",
                      file, how, i, (double)b[i], (double)a[i]);
}

START_TEST(same_bits)
{
    static const double halves[] = {1, 1};
    static const struct { const char *how; struct test_model_options o; int chunk; } ways[] = {
        {"chunks of 1", {0}, 1},
        {"chunks of 7", {0}, 7},
        {"chunks of 32", {0}, 32},
        {"pages of 1", {.page_size = 1}, 0},
        {"pages of 16", {.page_size = 16}, 0},
        {"pages of 256", {.page_size = 256}, 7},
        {"2 threads", {.n_threads = 2}, 0},
        {"3 threads", {.n_threads = 3}, 7},
        {"two instances", {.device = "cpu,cpu", .split = halves}, 32},
    };
    size_t n, n2;
    float *want = logits_of(files[_i], NULL, 0, &n);
    for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
        float *got = logits_of(files[_i], &ways[i].o, ways[i].chunk, &n2);
        ck_assert_uint_eq(n, n2);
        check_same(want, got, n, files[_i], ways[i].how);
        free(got);
    }
    free(want);
}
END_TEST

/* A sequence after another one in the same pages, and beside others in one step. */
START_TEST(same_with_neighbours)
{
    struct test_model t;
    struct test_model_options o = {.page_size = 16, .max_seqs = 3};
    struct err err = {0};
    int32_t ids[3][N_IDS], flat[3 * N_IDS], pos[3 * N_IDS], seq[3 * N_IDS], want[3];
    open_model(&t, files[_i], &o);
    size_t n_vocab = (size_t)test_model_vocab(&t);
    float *alone = mem_array(N_IDS * n_vocab, sizeof(float)),
          *again = mem_array(N_IDS * n_vocab, sizeof(float));
    float *both = mem_array(3 * n_vocab, sizeof(float));
    for (int s = 0; s < 3; s++)
        make_ids(ids[s], N_IDS, (int64_t)n_vocab, s + 1);
    test_model_run(&t, 0, ids[0], N_IDS, 0, 0, alone);
    test_model_run(&t, 0, ids[1], N_IDS, 0, 0, again);
    test_model_run(&t, 0, ids[0], N_IDS, 0, 0, again);
    check_same(alone, again, N_IDS * n_vocab, files[_i], "after another sequence");
    int lens[3] = {N_IDS, 5, 33}, n = 0;
    for (int s = 0; s < 3; s++) {
        for (int i = 0; i < lens[s]; i++, n++) {
            flat[n] = ids[s == 1 ? 0 : s][i];
            pos[n] = i;
            seq[n] = s;
        }
        want[s] = n - 1;
    }
    struct forward_batch b = {
        .n_rows = n, .ids = flat, .pos = pos, .seq = seq, .n_seqs = 3, .n_want = 3, .want = want};
    for (int g = 0; g < CONFIG_KV_GROUPS_MAX; g++)
        b.pages[g] = t.pages;
    ck_assert_msg(forward_run(t.f, &b, &err) == 0 && forward_logits(t.f, both, &err) == 0, "%s", err.msg);
    check_same(alone + (N_IDS - 1) * n_vocab, both, n_vocab, files[_i], "beside two others");
    check_same(alone + 4 * n_vocab, both + n_vocab, n_vocab, files[_i], "the start of it as a neighbour");
    free(alone);
    free(again);
    free(both);
    test_model_close(&t);
}
END_TEST

START_TEST(steps_refused)
{
    struct test_model t;
    int32_t ids[2] = {3, 4}, pos[2] = {0, 1}, seq[2] = {0, 0}, want[2] = {0, 1}, bad[2], out[2];
    struct err err = {0};
    float *logits;
    open_model(&t, files[0], NULL);
    logits = mem_array(2 * (size_t)test_model_vocab(&t), sizeof(float));
    struct forward_batch b = {
        .n_rows = 2, .ids = ids, .pos = pos, .seq = seq, .n_seqs = 1, .n_want = 1, .want = want};
    b.pages[0] = t.pages;
    struct forward_batch c = b;
    bad[0] = 3;
    bad[1] = (int32_t)test_model_vocab(&t);
    c.ids = bad;
    ck_assert_int_eq(forward_run(t.f, &c, &err), ERR_ARG);
    ck_assert_msg(strstr(err.msg, "640") != NULL, "%s", err.msg);
    bad[1] = -1;
    ck_assert_int_eq(forward_run(t.f, &c, &err), ERR_ARG);
    c = b;
    c.pos = bad;
    ck_assert_int_eq(forward_run(t.f, &c, &err), ERR_ARG);
    c = b;
    bad[0] = bad[1] = 1;
    c.seq = bad;
    ck_assert_int_eq(forward_run(t.f, &c, &err), ERR_ARG);
    c = b;
    c.n_want = 2;
    c.want = bad;
    ck_assert_int_eq(forward_run(t.f, &c, &err), ERR_ARG);
    c = b;
    c.n_rows = 0;
    ck_assert_int_eq(forward_run(t.f, &c, &err), ERR_ARG);
    c.n_rows = 100000;
    ck_assert_int_eq(forward_run(t.f, &c, &err), ERR_ARG);
    b.n_want = 0;
    ck_assert_int_eq(forward_run(t.f, &b, &err), 0);
    ck_assert_int_eq(forward_logits(t.f, logits, &err), ERR_ARG);
    ck_assert_int_eq(forward_argmax(t.f, out, &err), ERR_ARG);
    ck_assert_int_eq(forward_wait(t.f, &err), 0);
    b.n_want = 2;
    ck_assert_int_eq(forward_run(t.f, &b, &err), 0);
    ck_assert_int_eq(forward_argmax(t.f, out, &err), 0);
    ck_assert_int_eq(forward_logits(t.f, logits, &err), 0);
    for (int r = 0; r < 2; r++)
        for (int64_t i = 0; i < test_model_vocab(&t); i++)
            ck_assert(logits[r * test_model_vocab(&t) + i] <= logits[r * test_model_vocab(&t) + out[r]]);
    free(logits);
    test_model_close(&t);
}
END_TEST

START_TEST(bytes_told)
{
    struct test_model t;
    open_model(&t, "golden/models/gemma3", NULL);
    struct forward_limits l = {.max_rows = 8, .max_want = 1, .max_seqs = 2, .max_pages = {4, 4}};
    uint64_t small = forward_bytes(&t.m->config, &l);
    l.max_want = 2; /* one more row of logits, of the normalised state, of indices */
    ck_assert_uint_eq(forward_bytes(&t.m->config, &l) - small, 4 * (704 + 64 + 2));
    ck_assert_int_eq(t.m->config.n_groups, 2);
    ck_assert_int_eq(t.m->config.groups[0].window, 8);
    ck_assert_int_eq(t.m->config.groups[0].n_layers, 3);
    ck_assert_int_eq(t.m->config.groups[1].window, 0);
    /* k and v, 4 layers, 1 head of 40 */
    ck_assert_uint_eq(config_kv_bytes_per_pos(&t.m->config, DTYPE_F16), 2 * 4 * 40 * 2);
    test_model_close(&t);
}
END_TEST

/* A position's angles are computed once, and are what rope_row gives. */
START_TEST(angles_kept)
{
    struct test_model t;
    int32_t ids[N_IDS];
    float row[512];
    open_model(&t, "golden/models/gemma3", NULL); /* two ropes */
    const struct model_config *c = &t.m->config;
    ck_assert_int_eq(c->n_ropes, 2);
    ck_assert_int_le(c->n_rot, 512);
    make_ids(ids, N_IDS, test_model_vocab(&t), 1);
    test_model_run(&t, 0, ids, 5, 0, 0, NULL);
    ck_assert_int_eq(t.f->n_angles[0], 5);
    test_model_run(&t, 0, ids, 3, 2, 0, NULL);
    ck_assert_int_eq(t.f->n_angles[0], 5);
    test_model_run(&t, 0, ids, N_IDS, 0, 0, NULL);
    for (int r = 0; r < 2; r++) {
        ck_assert_int_eq(t.f->n_angles[r], t.n_ctx / 8);
        for (int64_t p = 0; p < t.n_ctx / 8; p++) {
            rope_row(c, r, p, row);
            ck_assert_mem_eq(t.f->angles[r] + p * c->n_rot, row, (size_t)c->n_rot * sizeof(float));
        }
    }
    test_model_close(&t);
}
END_TEST

/* ---- splits ---- */

START_TEST(split_places)
{
    static const struct { double split[2]; int n, first[3]; } rows[] = {
        {{1, 1}, 2, {0, 1, 1}}, {{2, 1}, 2, {0, 0, 1}}, {{1, 0}, 1, {0, 0, 0}}, {{0, 1}, 1, {1, 1, 1}}};
    struct test_model t;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct test_model_options o = {.device = "cpu,ref", .split = rows[i].split};
        open_model(&t, files[0], &o);
        ck_assert_int_eq(t.m->n_instances, rows[i].n);
        for (int l = 0; l < 3; l++)
            ck_assert_msg(t.m->layers[l].be == t.be[rows[i].first[l]], "split %zu, layer %d", i, l);
        ck_assert_int_eq(t.m->config.n_groups, rows[i].n);
        test_model_close(&t);
    }
}
END_TEST

START_TEST(split_refused)
{
    static const double none[] = {0, 0}, negative[] = {1, -1};
    const double *const splits[] = {none, negative};
    for (size_t i = 0; i < 2; i++) {
        struct test_model t;
        struct err err = {0};
        struct test_model_options o = {.device = "cpu,ref", .split = splits[i]};
        ck_assert_int_eq(test_model_open(&t, test_path(files[0]), &o, &err), ERR_ARG);
        ck_assert_ptr_nonnull(strstr(err.msg, "split"));
        test_model_close(&t);
    }
}
END_TEST

static int stop_at(void *user, size_t done, size_t total)
{
    size_t *at = user;
    ck_assert_uint_le(done, total);
    return done == *at;
}

START_TEST(progress_stops)
{
    struct weights *w;
    struct model *m;
    struct model_config c;
    struct err err = {0};
    struct backend *be[REGISTRY_MAX_INSTANCES];
    struct backend_params params = {.n_threads = 1, .no_selftest = true};
    int n;
    size_t at = 5;
    ck_assert_int_eq(weights_open(&w, test_path(files[0]), &err), 0);
    ck_assert_int_eq(config_load(&c, w, NULL, &err), 0);
    ck_assert_int_eq(registry_open("ref", &params, be, &n, NULL, 0, &err), 0);
    ck_assert_int_eq(model_open(&m, &c, w, be, n, NULL, stop_at, &at, &err), ERR_CANCELLED);
    ck_assert_ptr_null(m);
    ck_assert_ptr_null(c.layers); /* taken over */
    registry_close(be[0]);
    weights_close(w);
}
END_TEST

/* ---- binding ---- */

static void write_file(const char *dir, const char *name, const char *text, size_t len)
{
    char *path = path_join(dir, name);
    FILE *f = path ? fopen(path, "wb") : NULL;
    ck_assert_msg(f && fwrite(text, 1, len, f) == len && fclose(f) == 0, "%s/%s", dir, name);
    free(path);
}

/* A copy of golden/models/qwen3 with one replacement in the header of its weights (the same number of bytes)
 * or in its config.json; returns the folder. */
static const char *changed(const char *in, const char *from, const char *to)
{
    static char dir[4096];
    char *data;
    size_t len;
    struct err err = {0};
    snprintf(dir, sizeof(dir), "%s", test_tmp("model"));
    ck_assert(mkdir(dir, 0700) == 0 || path_is_dir(dir));
    for (int i = 0; i < 2; i++) {
        const char *name = i ? "config.json" : "model.safetensors";
        char path[256];
        snprintf(path, sizeof(path), "golden/models/qwen3/%s", name);
        ck_assert_msg(map_read_all(test_path(path), 1 << 24, &data, &len, &err) == 0, "%s", err.msg);
        size_t at = 0, n = strlen(from);
        while (strcmp(in, name) == 0 && at + n <= len && memcmp(data + at, from, n) != 0)
            at++;
        ck_assert(at + n <= len);
        if (strcmp(in, name) == 0) {
            char *out = mem_array(len + strlen(to) + 1, 1);
            memcpy(out, data, at);
            memcpy(out + at, to, strlen(to));
            memcpy(out + at + strlen(to), data + at + n, len - at - n);
            write_file(dir, name, out, len - n + strlen(to));
            free(out);
        } else {
            write_file(dir, name, data, len);
        }
        free(data);
    }
    return dir;
}

START_TEST(binding_refused)
{
    static const struct { const char *file, *from, *to, *words[4];
    } rows[] = {
        {"model.safetensors",
         "layers.1.self_attn.k_norm",
         "layers.1.self_attn.x_norm",
         {"model.layers.1.self_attn.k_norm.weight"}},
        {"model.safetensors", "model.norm.weight", "model.mroN.weight", {"model.norm.weight"}},
        {"config.json",
         "\"num_hidden_layers\": 3",
         "\"num_hidden_layers\": 2",
         {"model.layers.2.", "no place", "qwen3"}},
        {"config.json",
         "\"num_hidden_layers\": 3",
         "\"num_hidden_layers\": 4",
         {"model.layers.3.", "4 layers"}},
        {"config.json",
         "\"hidden_size\": 64",
         "\"hidden_size\": 32",
         {"embed_tokens", "[640, 64]", "[640, 32]", "d_model"}},
        {"config.json",
         "\"intermediate_size\": 96",
         "\"intermediate_size\": 80",
         {"gate_proj", "[96, 64]", "[80, 64]", "n_ff"}},
        {"config.json",
         "\"head_dim\": 32",
         "\"head_dim\": 16",
         {"q_proj", "[128, 64]", "[64, 64]", "n_heads * head_dim"}},
        {"config.json", "\"vocab_size\": 640", "\"vocab_size\": 641", {"embed_tokens", "n_vocab"}},
        {"config.json",
         "\"attention_bias\": false",
         "\"attention_bias\": true",
         {"model.layers.0.self_attn.q_proj.bias"}},
        {"config.json",
         "\"tie_word_embeddings\": true",
         "\"tie_word_embeddings\": false",
         {"lm_head.weight"}},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct test_model t;
        struct err err = {0};
        const char *dir = changed(rows[i].file, rows[i].from, rows[i].to);
        ck_assert_msg(test_model_open(&t, dir, NULL, &err) < 0, "row %zu was accepted", i);
        ck_assert_msg(strstr(err.msg, dir) != NULL, "row %zu names no file: %s", i, err.msg);
        for (int k = 0; k < 4 && rows[i].words[k]; k++)
            ck_assert_msg(strstr(err.msg, rows[i].words[k]) != NULL, "row %zu does not say %s: %s", i,
                          rows[i].words[k], err.msg);
        test_model_close(&t);
    }
}
END_TEST

/* Tensors that are not the model's own, and do no harm. */
START_TEST(binding_passes_over)
{
    static const struct { const char *from, *to; } rows[] = {
        {"\"attention_bias\": false", "\"attention_bias\": null"},
        {"\"hidden_size\": 64", "\"hidden_size\": 64.0"},
        {"\"rope_theta\": 1000000.0", "\"rope_theta\": 1000000"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct test_model t;
        open_model(&t, files[0], NULL);
        test_model_close(&t);
        struct err err = {0};
        ck_assert_msg(test_model_open(&t, changed("config.json", rows[i].from, rows[i].to), NULL, &err) == 0,
                      "%s", err.msg);
        test_model_close(&t);
    }
}
END_TEST

/* Files of golden/extra that must be refused by opening them as a model, with these words in the message. */
START_TEST(extra_refused)
{
    cJSON *index = test_json("golden/extra/index.json");
    int n = 0;
    for (const cJSON *row = json_get(index, "files")->child; row; row = row->next) {
        const cJSON *words = json_get(row, "error"), *group = json_get(row, "group");
        if (!words || json_get(row, "expected"))
            continue;
        struct test_model t;
        struct err err = {0};
        char path[256];
        snprintf(path, sizeof(path), "golden/%s", json_get(row, "file")->valuestring);
        int rc;
        if (strcmp(group->valuestring, "refused") == 0) { /* only a config.json */
            struct test_model_options o = {.config = test_path(path)};
            rc = test_model_open(&t, test_path("golden/models/qwen3"), &o, &err);
        } else {
            rc = test_model_open(&t, test_path(path), NULL, &err);
        }
        ck_assert_msg(rc < 0, "%s was accepted", path);
        for (const cJSON *word = words->child; word; word = word->next)
            ck_assert_msg(strstr(err.msg, word->valuestring) != NULL, "%s does not say %s: %s", path,
                          word->valuestring, err.msg);
        test_model_close(&t);
        n++;
    }
    ck_assert_int_gt(n, 30);
    cJSON_Delete(index);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("model");
    TCase *tc = tcase_create("equal");
    tcase_add_loop_test(tc, same_bits, 0, N_FILES);
    tcase_add_loop_test(tc, same_with_neighbours, 0, N_FILES);
    suite_add_tcase(s, tc);
    tc = tcase_create("refused");
    tcase_add_test(tc, steps_refused);
    tcase_add_test(tc, bytes_told);
    tcase_add_test(tc, angles_kept);
    tcase_add_test(tc, split_places);
    tcase_add_test(tc, split_refused);
    tcase_add_test(tc, progress_stops);
    tcase_add_test(tc, binding_refused);
    tcase_add_test(tc, binding_passes_over);
    tcase_add_test(tc, extra_refused);
    suite_add_tcase(s, tc);
    return test_main(s);
}
