/* The view of weights files: the golden files right and wrong, folders, indexes,
 * split files, symbolic links, unknown kinds, truncation.  Each format's own
 * cases are in test_file_*.c. */
#include "tests/file_kit.h"

#include <math.h>
#include <sys/resource.h>
#include <unistd.h>

#include "file/gguf.h"

#define ONE_U8 "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}"

/* ---- golden/bad ---- */

/* What the message of each kind says: one of these. */
static const struct {
    const char *kind;
    const char *words[3];
} kinds[] = {
    {"truncated", {"truncated"}},
    {"header", {"header"}},
    {"offsets", {"offset"}},
    {"shape", {"shape", "dimension"}},
    {"overflow", {"overflow"}},
    {"dtype", {"dtype", "type"}},
    {"duplicate", {"duplicate"}},
    {"path", {"leaves the folder"}},
    {"magic", {"unknown kind of file"}},
    {"version", {"version"}},
    {"limits", {"left in the file", "at most"}},
    {"alignment", {"alignment"}},
    {"pickle", {"pickle"}},
    {"compressed", {"compressed"}},
    {"missing", {"missing"}},
    {"archive", {"archive"}},
    {"legacy", {"legacy"}},
};

static bool fits_kind(const char *msg, const char *kind)
{
    for (int i = 0; i < COUNT(kinds); i++)
        for (int k = 0; k < 3 && kinds[i].words[k]; k++)
            if (strcmp(kinds[i].kind, kind) == 0 && strstr(msg, kinds[i].words[k]))
                return true;
    return false;
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define HAVE_SANITIZER 1
#elif defined(__has_feature) /* clang */
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define HAVE_SANITIZER 1
#endif
#endif

/* Leaves this process (a child of its own test) 16 MB to grow, so that a large
 * allocation fails.  Sanitizers and valgrind reserve too much for that. */
static void limit_memory(void)
{
#ifndef HAVE_SANITIZER
    const char *preload = getenv("LD_PRELOAD");
    unsigned long pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (!f || (preload && strstr(preload, "vgpreload"))) {
        if (f)
            fclose(f);
        return;
    }
    ck_assert_int_eq(fscanf(f, "%lu", &pages), 1);
    fclose(f);
    struct rlimit r;
    ck_assert_int_eq(getrlimit(RLIMIT_AS, &r), 0);
    r.rlim_cur = (rlim_t)pages * (rlim_t)sysconf(_SC_PAGESIZE) + (16u << 20);
    ck_assert_int_eq(setrlimit(RLIMIT_AS, &r), 0);
#endif
}

START_TEST(golden_bad)
{
    cJSON *list = test_json("golden/bad/list.json");
    const cJSON *cases = json_get(list, "cases");
    ck_assert_int_gt(cJSON_GetArraySize(cases), 50);
    limit_memory();
    for (const cJSON *c = cases->child; c; c = c->next) {
        const char *name = json_get(c, "file")->valuestring, *expect = json_get(c, "expect")->valuestring;
        char path[256];
        snprintf(path, sizeof path, "golden/bad/%s", name);
        struct weights *w = NULL;
        struct err err;
        err_clear(&err);
        int rc = weights_open(&w, test_path(path), &err);
        if (strcmp(expect, "ok") == 0) {
            ck_assert_msg(rc == 0, "%s: %s", name, err.msg);
            ck_assert_uint_gt(weights_count(w), 0);
            uint64_t nan = 0, inf = 0;
            ck_assert_int_eq(weights_check(w, &nan, &inf, &err), 0);
            ck_assert_uint_eq(nan + inf, 0);
            weights_close(w);
            continue;
        }
        ck_assert_msg(rc < 0 && rc == err.code && !w, "%s: was not refused", name);
        ck_assert_msg(rc != ERR_NOMEM, "%s: asked for much memory: %s", name, err.msg);
        ck_assert_msg(strstr(err.msg, path_basename(name)) != NULL, "%s is not named in: %s", name, err.msg);
        ck_assert_msg(fits_kind(err.msg, expect), "%s: no word of \"%s\" in: %s", name, expect, err.msg);
    }
    cJSON_Delete(list);
}
END_TEST

/* ---- golden containers ---- */

/* Everything that must open, and how many tensors and files it has. */
static const struct {
    const char *path;
    enum weights_format format;
    size_t n;
    int n_files, n_copied;
} opens[] = {
    {"golden/models/qwen3", WEIGHTS_SAFETENSORS, 35, 1, 0},
    {"golden/models/qwen3/model.safetensors", WEIGHTS_SAFETENSORS, 35, 1, 0},
    {"golden/models/llama-sharded", WEIGHTS_SAFETENSORS, 35, 2, 0},
    {"golden/models/llama-sharded/model.safetensors.index.json", WEIGHTS_SAFETENSORS, 35, 2, 0},
    {"golden/models/gemma3", WEIGHTS_SAFETENSORS, 54, 1, 0},
    {"golden/models/qwen3-moe", WEIGHTS_SAFETENSORS, 68, 1, 0},
    {"golden/extra/models/mixed-dtypes", WEIGHTS_SAFETENSORS, 26, 1, 0},
    {"golden/containers/pth/qwen3-book", WEIGHTS_PTH, 36, 1, 0},
    {"golden/containers/pth/qwen3-book-mixed", WEIGHTS_PTH, 36, 1, 0},
    {"golden/containers/pth/llama-hf", WEIGHTS_PTH, 23, 1, 3},
    {"golden/extra/pth/llama-shards", WEIGHTS_PTH, 21, 2, 0},
    {"golden/extra/pth/llama-shards/pytorch_model.bin.index.json", WEIGHTS_PTH, 21, 2, 0},
    {"golden/extra/pth/nested-model/pytorch_model.bin", WEIGHTS_PTH, 12, 1, 0},
    {"golden/extra/pth/nested-state-dict", WEIGHTS_PTH, 12, 1, 0},
    {"golden/extra/pth/nested-module", WEIGHTS_PTH, 12, 1, 0},
    {"golden/extra/pth/nested-compiled", WEIGHTS_PTH, 12, 1, 0},
    {"golden/extra/pth/qwen3-book-zip64", WEIGHTS_PTH, 36, 1, 0},
    {"golden/extra/pth/qwen3-book-descriptors", WEIGHTS_PTH, 36, 1, 0},
    {"golden/containers/gguf/qwen3-q4_1.gguf", WEIGHTS_GGUF, 35, 1, 0},
    {"golden/containers/gguf/llama-f16.gguf", WEIGHTS_GGUF, 21, 1, 0},
    {"golden/containers/gguf/wide-q6_k.gguf", WEIGHTS_GGUF, 24, 1, 0},
    {"golden/extra/gguf/wide-q2_k.gguf", WEIGHTS_GGUF, 24, 1, 0},
    {"golden/extra/gguf/split", WEIGHTS_GGUF, 35, 3, 0},
    {"golden/extra/gguf/split/qwen3-00001-of-00003.gguf", WEIGHTS_GGUF, 35, 3, 0},
    {"golden/extra/gguf/split-bare", WEIGHTS_GGUF, 21, 3, 0},
};

START_TEST(golden_opens)
{
    struct weights *w = open_ok(test_path(opens[_i].path));
    struct err err;
    uint64_t nan = 0, inf = 0, bytes = 0;
    ck_assert_int_eq(weights_format(w), opens[_i].format);
    ck_assert_uint_eq(weights_count(w), opens[_i].n);
    ck_assert_int_eq(weights_n_files(w), opens[_i].n_files);
    int copied = 0;
    for (size_t i = 0; i < weights_count(w); i++) {
        const struct weight *t = weights_at(w, i);
        size_t size = 0;
        const uint8_t *file = weights_file_data(w, t->file, &size);
        ck_assert_ptr_eq(weights_find(w, t->name), t);
        ck_assert_msg(t->copied || !t->data || t->data == file + t->offset, "%s lies elsewhere", t->name);
        ck_assert_uint_le(t->offset, size);
        copied += t->copied;
        bytes += t->size;
    }
    ck_assert_int_eq(copied, opens[_i].n_copied);
    ck_assert_uint_eq(bytes, weights_bytes(w));
    ck_assert_int_eq(weights_check(w, &nan, &inf, &err), 0);
    ck_assert_uint_eq(nan, 0);
    ck_assert_uint_eq(inf, 0);
    ck_assert_int_eq(weights_gguf(w) != NULL, opens[_i].format == WEIGHTS_GGUF);
    weights_close(w);
}
END_TEST

static void same_values(const struct weight *a, const struct weight *b)
{
    int64_t n = weight_elems(a);
    ck_assert_msg(weight_elems(b) == n, "%s has another size", a->name);
    float *x = mem_array((size_t)n, sizeof *x), *y = mem_array((size_t)n, sizeof *y);
    ck_assert(x && y);
    dtype_info(a->dtype)->to_f32(x, a->data, (size_t)n);
    dtype_info(b->dtype)->to_f32(y, b->data, (size_t)n);
    for (int64_t i = 0; i < n; i++)
        ck_assert_msg(x[i] == y[i], "%s: value %d: %g and %g", a->name, (int)i, (double)x[i], (double)y[i]);
    free(x);
    free(y);
}

/* The same weights in two containers: equal names, shapes and values. */
static const struct {
    const char *a, *b;
} twins[] = {
    {"golden/models/llama", "golden/containers/pth/llama-hf"},
    {"golden/models/llama", "golden/extra/pth/llama-shards"},
    {"golden/extra/models/tiny-llama", "golden/extra/pth/nested-model"},
    {"golden/extra/models/tiny-llama", "golden/extra/pth/nested-state-dict"},
    {"golden/extra/models/tiny-llama", "golden/extra/pth/nested-module"},
    {"golden/extra/models/tiny-llama", "golden/extra/pth/nested-compiled"},
    {"golden/containers/pth/qwen3-book", "golden/containers/pth/qwen3-book-mixed"},
    {"golden/containers/pth/qwen3-book", "golden/extra/pth/qwen3-book-zip64"},
    {"golden/containers/pth/qwen3-book", "golden/extra/pth/qwen3-book-descriptors"},
    {"golden/containers/gguf/qwen3-bf16.gguf", "golden/extra/gguf/split"},
    {"golden/containers/gguf/qwen3-bf16.gguf", "golden/containers/gguf/qwen3-f32.gguf"},
    {"golden/containers/gguf/llama-q8_0.gguf", "golden/extra/gguf/split-bare"},
};

START_TEST(golden_twins)
{
    struct weights *a = open_ok(test_path(twins[_i].a)), *b = open_ok(test_path(twins[_i].b));
    for (size_t i = 0; i < weights_count(a); i++) {
        const struct weight *t = weights_at(a, i), *u = weights_find(b, t->name);
        ck_assert_msg(u != NULL, "%s has no %s", twins[_i].b, t->name);
        ck_assert_int_eq(t->n_dims, u->n_dims);
        for (int d = 0; d < t->n_dims; d++)
            ck_assert_int_eq(t->shape[d], u->shape[d]);
        same_values(t, u);
    }
    weights_close(a);
    weights_close(b);
}
END_TEST

/* What is no part of the state dict: a scalar of integers, a tensor without elements. */
START_TEST(golden_odd_tensors)
{
    struct weights *w = open_ok(test_path("golden/containers/pth/llama-hf"));
    const struct weight *step = weights_find(w, "model.step"), *empty = weights_find(w, "model.empty");
    ck_assert_ptr_nonnull(step);
    ck_assert_int_eq(step->dtype, DTYPE_I64);
    ck_assert_int_eq(step->n_dims, 0);
    ck_assert_uint_eq(step->size, 8);
    ck_assert_ptr_nonnull(empty);
    ck_assert_int_eq(weight_elems(empty), 0);
    ck_assert_ptr_null(empty->data);
    weights_close(w);
}
END_TEST

/* ---- truncation ---- */

static const char *const cut_files[] = {
    "golden/models/qwen3/model.safetensors",
    "golden/containers/pth/qwen3-book/qwen3-tiny-base.pth",
    "golden/containers/gguf/qwen3-q8_0.gguf",
};

START_TEST(truncated)
{
    char *data = NULL;
    size_t len = 0;
    struct err err;
    ck_assert_int_eq(map_read_all(test_path(cut_files[_i]), (size_t)1 << 30, &data, &len, &err), 0);
    const size_t at[] = {0, 1, 4, 8, 9, 24, 100, 4096, len / 2, len - 4096, len - 33, len - 1};
    for (int i = 0; i < COUNT(at); i++) {
        struct weights *w = NULL;
        void *copy = NULL;
        int rc = open_bytes(&w, &copy, data, at[i], &err);
        ck_assert_msg(rc < 0 && !w, "%s: %zu bytes open", cut_files[_i], at[i]);
        ck_assert_msg(strstr(err.msg, "truncated") != NULL, "%zu bytes: %s", at[i], err.msg);
        bool data_cut = at[i] >= len / 2 && _i != 1; /* a zip misses its directory, whatever else */
        ck_assert_msg(!data_cut || strstr(err.msg, "truncated: tensor ") != NULL, "%zu bytes: %s", at[i], err.msg);
        free(copy);
    }
    free(data);
}
END_TEST

/* ---- kinds ---- */

static const struct {
    const char *bytes;
    size_t len;
    const char *word;
} unknown[] = {
#define BYTES(s, word) {s, sizeof(s) - 1, word}
    BYTES("<!DOCTYPE html><html>...", "HTML"),
    BYTES("<html><body>not found</body>", "HTML"),
    BYTES("<?xml version='1.0'?><Error/>", "XML"),
    BYTES("version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "git lfs pull"),
    BYTES("tjgg\3\0\0\0\0\0\0\0", "ggjt"),
    BYTES("lmgg\0\0\0\0\0\0\0\0", "legacy ggml"),
    BYTES("fmgg\0\0\0\0\0\0\0\0", "ggmf"),
    BYTES("algg\0\0\0\0\0\0\0\0", "adapter"),
    BYTES("FUGG\0\0\0\3\0\0\0\0", "big-endian"),
    BYTES("\x1f\x8b\10\0\0\0\0\0\0\0\0\0", "gzip"),
    BYTES("\x28\xb5\x2f\xfd\0\0\0\0\0\0\0", "zstd"),
    BYTES("\xfd" "7zXZ\0\0\0\0\0\0\0", "xz"),
    BYTES("BZh91AY&SY\0\0\0", "bzip2"),
    BYTES("7z\xbc\xaf\x27\x1c\0\4\0\0\0", "7z"),
    BYTES("PK\5\6\0\0\0\0\0\0\0\0\0\0", "empty zip"),
    BYTES("PK\7\10PK\3\4\0\0\0\0", "several pieces"),
    BYTES("\x89HDF\r\n\x1a\n\0\0\0", "HDF5"),
    BYTES("\x93NUMPY\1\0v\0{'descr'", "NumPy"),
    BYTES("\34\0\0\0TFL3\0\0\0\0", "TensorFlow Lite"),
    BYTES("\10\7\22\7pytorch\32\5", "ONNX"),
    BYTES("\x7f" "ELF\2\1\1\0\0\0\0\0", "program"),
    BYTES("\x80\2}q\0X\1\0\0\0w", "torch.save"),
    BYTES("\x80\4\x95\0\0\0\0\0\0\0\0}", "torch.save"),
    BYTES("\x80\2\x8a\12\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.", "legacy PyTorch file"),
    BYTES("just some text, nothing else", "unknown kind of file"),
    BYTES("\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", "ff ff ff ff"),
    BYTES("{\"hidden_size\": 64, \"x\": 1}", "JSON"),
    BYTES("", "empty"),
    BYTES("GG", "too few"),
    BYTES("GGUF", "truncated"),
};

START_TEST(unknown_kinds)
{
    struct buf b;
    void *copy = NULL;
    buf_init(&b);
    buf_put(&b, unknown[_i].bytes, unknown[_i].len);
    check_bytes(&b, unknown[_i].word, unknown[_i].word, &copy);
    buf_fini(&b);
}
END_TEST

START_TEST(tar)
{
    struct buf b;
    void *copy = NULL;
    buf_init(&b);
    put_le(&b, 0, 300);
    b.data[0] = 'x';
    memcpy(b.data + 257, "ustar", 5);
    check_bytes(&b, "tar archive", "tar", &copy);
    buf_fini(&b);
}
END_TEST

/* A header of 123 bytes begins like JSON text: '{'. */
START_TEST(header_like_json)
{
    struct buf b, h;
    void *copy = NULL;
    buf_init(&b);
    buf_init(&h);
    buf_puts(&h, ONE_U8);
    while (h.len < 123)
        buf_putc(&h, ' ');
    put_safetensors(&b, buf_str(&h), 1);
    ck_assert_int_eq(b.data[0], '{');
    struct weights *w = check_bytes(&b, NULL, "123", &copy);
    weights_close(w);
    free(copy);
    buf_fini(&b);
    buf_fini(&h);
}
END_TEST

/* ---- folders ---- */

/* A safetensors file of one tensor of one byte. */
static void put_one(const char *dir, const char *file, const char *tensor)
{
    struct buf b;
    char header[256];
    buf_init(&b);
    snprintf(header, sizeof header, "{\"%s\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", tensor);
    put_safetensors(&b, header, 1);
    write_in(dir, file, &b);
    buf_fini(&b);
}

static void put_text(const char *dir, const char *file, const char *text)
{
    struct buf b;
    buf_init(&b);
    buf_puts(&b, text);
    write_in(dir, file, &b);
    buf_fini(&b);
}

#define INDEX "model.safetensors.index.json"
#define MAP(pairs) "{\"metadata\":{\"total_size\":2},\"weight_map\":{" pairs "}}"

/* files: names of one-tensor files, the tensor is named as its file's first
 * letter; index: text of INDEX; then what is opened or the words of the refusal. */
static const struct {
    const char *what;
    const char *files[5];
    const char *index;
    const char *words; /* NULL = opens */
    const char *tensor;
    int n_files;
} folders[] = {
    {"one file", {"model.safetensors"}, NULL, NULL, "m", 1},
    {"one file, of any name", {"abc.safetensors"}, NULL, NULL, "a", 1},
    {"the usual name wins", {"model.safetensors", "abc.safetensors"}, NULL, NULL, "m", 1},
    {"strays", {"consolidated.safetensors", "model.safetensors", "adapter_model.safetensors"}, NULL, NULL, "m", 1},
    {"strays beside another name", {"consolidated.00.safetensors", "abc.safetensors", "optimizer.bin"}, NULL, NULL, "a", 1},
    {"bin", {"pytorch_model.bin", "training_args.bin", "other.bin"}, NULL, NULL, "p", 1},
    {"bin of any name", {"xyz.bin", "training_args.bin", "scheduler.bin"}, NULL, NULL, "x", 1},
    {"safetensors before bin", {"abc.safetensors", "pytorch_model.bin"}, NULL, NULL, "a", 1},
    {"gguf last", {"g.gguf", "mmproj-g.gguf"}, NULL, NULL, "g", 1},
    {"two of any name", {"abc.safetensors", "b.safetensors"}, NULL, "holds 2 .safetensors files|abc.safetensors, b.safetensors", NULL, 0},
    {"two pth", {"a.pth", "b.pth"}, NULL, "holds 2 .pth or .bin files|a.pth, b.pth", NULL, 0},
    {"two gguf", {"a.gguf", "b.gguf"}, NULL, "holds 2 .gguf models|a.gguf, b.gguf", NULL, 0},
    {"empty", {NULL}, NULL, "no model file in this folder", NULL, 0},
    {"only strays", {"adapter_model.safetensors"}, NULL, "no model file|adapter_model.safetensors is none", NULL, 0},
    {"later part of a split file alone", {"g-00002-of-00002.gguf"}, NULL, "no model file", NULL, 0},

    {"index", {"a.safetensors", "b.safetensors", "model.safetensors"}, MAP("\"a\":\"a.safetensors\",\"b\":\"b.safetensors\""),
     NULL, "b", 2},
    {"index of one", {"a.safetensors", "b.safetensors"}, MAP("\"b\":\"b.safetensors\""), NULL, "b", 1},
    {"index, a file of another suffix", {"a.dat"}, MAP("\"a\":\"./a.dat\""), NULL, "a", 1},
    {"shard missing", {"a.safetensors"}, MAP("\"a\":\"a.safetensors\",\"b\":\"b.safetensors\",\"c\":\"b.safetensors\""),
     "b.safetensors: shard is missing|holds 2 tensors (b, ...)", NULL, 0},
    {"tensor missing", {"a.safetensors"}, MAP("\"a\":\"a.safetensors\",\"z\":\"a.safetensors\""),
     INDEX "|tensor z is not in its shard a.safetensors", NULL, 0},
    {"tensor in another shard", {"a.safetensors", "b.safetensors"}, MAP("\"a\":\"b.safetensors\",\"b\":\"a.safetensors\""),
     "tensor a is in|a.safetensors, not in its shard b.safetensors", NULL, 0},
    {"tensor in two shards", {"a.safetensors", "a2.safetensors"}, MAP("\"a\":\"a.safetensors\",\"x\":\"a2.safetensors\""),
     "a2.safetensors: duplicate tensor a|a.safetensors holds too", NULL, 0},
    {"tensor mapped twice", {"a.safetensors"}, MAP("\"a\":\"a.safetensors\",\"a\":\"a.safetensors\""), "duplicate tensor a", NULL, 0},
    {"upwards", {"a.safetensors"}, MAP("\"a\":\"../a.safetensors\""), "leaves the folder", NULL, 0},
    {"upwards later", {"a.safetensors"}, MAP("\"a\":\"x/../../a.safetensors\""), "leaves the folder", NULL, 0},
    {"upwards at the end", {"a.safetensors"}, MAP("\"a\":\"x/..\""), "leaves the folder", NULL, 0},
    {"absolute", {"a.safetensors"}, MAP("\"a\":\"/a.safetensors\""), "leaves the folder", NULL, 0},
    {"no name", {"a.safetensors"}, MAP("\"a\":\"\""), "leaves the folder", NULL, 0},
    {"shard is the folder", {"a.safetensors"}, MAP("\"a\":\".\""), "folder", NULL, 0},
    {"shard is the index", {"a.safetensors"}, MAP("\"a\":\"" INDEX "\""), "JSON text where a weights file was expected", NULL, 0},
    {"shard number", {"a.safetensors"}, MAP("\"a\":1"), "shard of tensor a is no string", NULL, 0},
    {"no map", {"a.safetensors"}, "{\"metadata\":{}}", INDEX "|without \"weight_map\"", NULL, 0},
    {"map is a list", {"a.safetensors"}, "{\"weight_map\":[]}", "without \"weight_map\"", NULL, 0},
    {"empty map", {"a.safetensors"}, "{\"weight_map\":{}}", "weight_map is empty", NULL, 0},
    {"index is no JSON", {"a.safetensors"}, "{\"weight_map\":{", INDEX, NULL, 0},
};

START_TEST(folder_rules)
{
    const char *dir = make_folder("folder");
    for (int i = 0; i < 5 && folders[_i].files[i]; i++) {
        char tensor[2] = {folders[_i].files[i][0], 0};
        put_one(dir, folders[_i].files[i], tensor);
    }
    if (folders[_i].index)
        put_text(dir, INDEX, folders[_i].index);
    put_text(dir, "config.json", "{}");
    if (folders[_i].words) {
        check_refused(dir, folders[_i].words);
        return;
    }
    struct weights *w = open_ok(dir);
    ck_assert_ptr_nonnull(weights_find(w, folders[_i].tensor));
    ck_assert_int_eq(weights_n_files(w), folders[_i].n_files);
    ck_assert_str_eq(weights_dir(w), dir);
    ck_assert_str_eq(weights_path(w), dir);
    weights_close(w);
    if (!folders[_i].index)
        return;
    char *index = path_join(dir, INDEX); /* by the index's own name too */
    w = open_ok(index);
    ck_assert_ptr_nonnull(weights_find(w, folders[_i].tensor));
    ck_assert_str_eq(weights_dir(w), dir);
    weights_close(w);
    free(index);
}
END_TEST

/* As a hub cache lies: a folder of links, whose targets have names without suffix. */
START_TEST(links)
{
    const char *dir = make_folder("links");
    char *blob = path_join(dir, "0123abcd"), *snapshot = path_join(dir, "snapshot");
    put_one(dir, "0123abcd", "a");
    ck_assert_int_eq(mkdir(snapshot, 0700), 0);
    char *link = path_join(snapshot, "model.safetensors");
    ck_assert_int_eq(symlink("../0123abcd", link), 0);
    struct weights *w = open_ok(snapshot);
    ck_assert_ptr_nonnull(weights_find(w, "a"));
    weights_close(w);
    w = open_ok(link);
    weights_close(w);
    ck_assert_int_eq(unlink(blob), 0);
    check_refused(snapshot, "model.safetensors");
    free(blob);
    free(snapshot);
    free(link);
}
END_TEST

START_TEST(paths)
{
    check_refused(test_tmp("absent.gguf"), "absent.gguf");
    const char *dir = make_folder("paths");
    put_text(dir, "config.json", "{\"hidden_size\": 1}");
    char *config = path_join(dir, "config.json");
    check_refused(config, "config.json|without \"weight_map\"|folder");
    free(config);
    char *text = path_join(dir, "notes.gguf");
    put_text(dir, "notes.gguf", "these are no weights");
    check_refused(text, "notes.gguf: unknown kind of file");
    free(text);
    ck_assert_str_eq(weights_format_name(WEIGHTS_SAFETENSORS), "safetensors");
    ck_assert_str_eq(weights_format_name(WEIGHTS_PTH), "PyTorch");
    ck_assert_str_eq(weights_format_name(WEIGHTS_GGUF), "GGUF");
    weights_close(NULL);
}
END_TEST

/* A shard of another format is refused. */
START_TEST(mixed_shards)
{
    const char *dir = make_folder("mixed");
    struct buf b;
    buf_init(&b);
    put_one(dir, "a.safetensors", "a");
    buf_puts(&b, "GGUF");
    put_le(&b, 3, 4);
    put_le(&b, 0, 16);
    write_in(dir, "b.safetensors", &b);
    put_text(dir, INDEX, MAP("\"a\":\"a.safetensors\",\"b\":\"b.safetensors\""));
    check_refused(dir, "b.safetensors: is GGUF, but|a.safetensors is safetensors");
    buf_fini(&b);
}
END_TEST

/* ---- split GGUF ---- */

static void put_part(const char *dir, const char *file, unsigned no, unsigned count, const char *tensor)
{
    struct buf b;
    buf_init(&b);
    buf_puts(&b, "GGUF");
    put_le(&b, 3, 4);
    put_le(&b, 1, 8);
    put_le(&b, 2, 8);
    put_le(&b, 8, 8);
    buf_puts(&b, "split.no");
    put_le(&b, GGUF_U16, 4);
    put_le(&b, no, 2);
    put_le(&b, 11, 8);
    buf_puts(&b, "split.count");
    put_le(&b, GGUF_U16, 4);
    put_le(&b, count, 2);
    put_le(&b, strlen(tensor), 8);
    buf_puts(&b, tensor);
    put_le(&b, 1, 4);
    put_le(&b, 2, 8);
    put_le(&b, 0, 4);
    put_le(&b, 0, 8);
    while (b.len % 32)
        buf_putc(&b, 0);
    put_le(&b, 0, 8);
    write_in(dir, file, &b);
    buf_fini(&b);
}

#define P1 "m-00001-of-00002.gguf"
#define P2 "m-00002-of-00002.gguf"

START_TEST(split_parts)
{
    const char *dir = make_folder("split");
    char *first = path_join(dir, P1), *second = path_join(dir, P2);
    put_part(dir, P1, 0, 2, "a");
    check_refused(first, P2 ": missing: part 2 of the 2");
    put_part(dir, P2, 1, 2, "b");
    struct weights *w = open_ok(dir);
    ck_assert_uint_eq(weights_count(w), 2);
    ck_assert_int_eq(weights_find(w, "b")->file, 1);
    ck_assert_str_eq(weights_file(w, 1), second);
    weights_close(w);
    check_refused(second, "part 2 of 2|...-00001-of-00002.gguf");
    put_part(dir, P2, 1, 3, "b");
    check_refused(first, P2 ": split.no 1 and split.count 3, expected 1 and 2");
    put_part(dir, P2, 0, 2, "b");
    check_refused(first, P2 ": split.no 0");
    put_part(dir, P2, 1, 2, "a");
    check_refused(first, P2 ": duplicate tensor a|" P1 " holds too");
    put_one(dir, P2, "b");
    check_refused(first, P2 ": is safetensors, but|" P1 " is GGUF");
    put_text(dir, P2, "");
    check_refused(first, P2 ": truncated");
    free(first);
    free(second);
}
END_TEST

START_TEST(golden_split_errors)
{
    check_refused(test_path("golden/extra/gguf/split-cut"), "llama-00002-of-00003.gguf: missing");
    check_refused(test_path("golden/extra/gguf/split/qwen3-00002-of-00003.gguf"), "part 2 of 3|00001-of-00003");
}
END_TEST

/* ---- check ---- */

START_TEST(nan_and_inf)
{
    enum { N = 10000 };
    struct buf b;
    void *copy = NULL;
    buf_init(&b);
    put_safetensors(&b, "{\"f\":{\"dtype\":\"F32\",\"shape\":[100,100],\"data_offsets\":[0,40000]},"
                        "\"h\":{\"dtype\":\"F16\",\"shape\":[2],\"data_offsets\":[40000,40004]},"
                        "\"i\":{\"dtype\":\"I32\",\"shape\":[1],\"data_offsets\":[40004,40008]}}", 0);
    for (int i = 0; i < N; i++)
        put_le(&b, i == 4095 || i == 4096 || i == N - 1 ? 0x7fc00000 : i == 5000 ? 0xff800000 : 0x3f800000, 4);
    put_le(&b, 0x7c00, 2);     /* +Inf */
    put_le(&b, 0x7c01, 2);     /* NaN */
    put_le(&b, 0x7fc00000, 4); /* an integer */
    struct weights *w = check_bytes(&b, NULL, "nan", &copy);
    struct err err;
    uint64_t nan = 0, inf = 0;
    ck_assert_int_eq(weights_check(w, &nan, &inf, &err), 0);
    ck_assert_uint_eq(nan, 4);
    ck_assert_uint_eq(inf, 2);
    weights_close(w);
    free(copy);
    buf_fini(&b);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("file");
    TCase *c = tcase_create("golden");
    tcase_add_test(c, golden_bad);
    tcase_add_loop_test(c, golden_opens, 0, COUNT(opens));
    tcase_add_loop_test(c, golden_twins, 0, COUNT(twins));
    tcase_add_test(c, golden_odd_tensors);
    tcase_add_test(c, golden_split_errors);
    tcase_add_loop_test(c, truncated, 0, COUNT(cut_files));
    suite_add_tcase(s, c);
    c = tcase_create("kinds");
    tcase_add_loop_test(c, unknown_kinds, 0, COUNT(unknown));
    tcase_add_test(c, tar);
    tcase_add_test(c, header_like_json);
    suite_add_tcase(s, c);
    c = tcase_create("folders");
    tcase_add_loop_test(c, folder_rules, 0, COUNT(folders));
    tcase_add_test(c, links);
    tcase_add_test(c, paths);
    tcase_add_test(c, mixed_shards);
    tcase_add_test(c, split_parts);
    tcase_add_test(c, nan_and_inf);
    suite_add_tcase(s, c);
    return test_main(s);
}
