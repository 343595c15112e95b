/* The vocabulary inside a GGUF: the same ids as from the tokenizer.json beside the same
 * weights, the real files' recorded ids where those files are, and metadata
 * that is refused. */
#include "tests/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/log.h"
#include "base/map.h"
#include "file/gguf.h"
#include "file/parts.h"
#include "file/weights.h"
#include "text/tokenizer.h"

static struct tokenizer *open_gguf(const char *path)
{
    struct weights *w;
    struct tokenizer *t;
    struct err err = {0};
    ck_assert_msg(weights_open(&w, path, &err) == 0, "%s", err.msg);
    ck_assert_msg(tokenizer_open_gguf(&t, weights_gguf(w), &err) == 0, "%s", err.msg);
    weights_close(w); /* the tokenizer keeps nothing of the file */
    return t;
}

static void expect_same(const struct tokenizer *a, const struct tokenizer *b, const char *text, size_t len,
                        unsigned flags)
{
    struct ids x, y;
    struct buf dx, dy;
    struct err err = {0};
    ids_init(&x);
    ids_init(&y);
    buf_init(&dx);
    buf_init(&dy);
    ck_assert_msg(tokenizer_encode(a, text, len, flags, &x, &err) == 0, "%s", err.msg);
    ck_assert_msg(tokenizer_encode(b, text, len, flags, &y, &err) == 0, "%s", err.msg);
    buf_put_json_ids(&dx, x.v, x.n);
    buf_put_json_ids(&dy, y.v, y.n);
    ck_assert_msg(strcmp(buf_str(&dx), buf_str(&dy)) == 0, "\"%s\": GGUF %s, tokenizer.json %s", text,
                  buf_str(&dx), buf_str(&dy));
    for (int skip = 0; skip < 2; skip++) {
        buf_clear(&dx);
        buf_clear(&dy);
        ck_assert_int_eq(tokenizer_decode(a, x.v, x.n, skip, &dx, &err), 0);
        ck_assert_int_eq(tokenizer_decode(b, y.v, y.n, skip, &dy, &err), 0);
        ck_assert_msg(dx.len == dy.len && memcmp(buf_str(&dx), buf_str(&dy), dx.len) == 0, "decode \"%s\"",
                      text);
    }
    ids_fini(&x);
    ids_fini(&y);
    buf_fini(&dx);
    buf_fini(&dy);
}

static const struct {
    const char *gguf, *model, *texts; /* below golden */
    /* that tokenizer.json has a token of three spaces to which no merge leads; with scores, every
     * token can be merged into */
    bool no_runs;
} pairs[] = {
    {"containers/gguf/qwen3-f32.gguf", "models/qwen3", "qwen3", false},
    {"containers/gguf/qwen2-f16.gguf", "models/qwen2", "qwen2", false},
    {"containers/gguf/llama-f32.gguf", "models/llama", "llama2", false},
    {"containers/gguf/llama3-rope-bf16.gguf", "models/llama3-rope", "llama3", false},
    {"containers/gguf/smollm-f16.gguf", "models/smollm", "smollm", false},
    {"extra/gguf/gemma3-7-bf16.gguf", "extra/models/gemma3-7", "gemma", true},
    {"extra/gguf/phi3-bf16.gguf", "models/phi3", "phi3", false},
    {"extra/gguf/qwen3-moe-bf16.gguf", "models/qwen3-moe", "qwen3", false},
};

START_TEST(same_ids_as_json)
{
    char path[256];
    snprintf(path, sizeof path, "golden/%s", pairs[_i].gguf);
    ck_assert_msg(path_exists(test_path(path)), "%s is not there", path);
    struct tokenizer *g = open_gguf(test_path(path)), *j;
    struct err err = {0};
    snprintf(path, sizeof path, "golden/%s", pairs[_i].model);
    ck_assert_msg(tokenizer_open(&j, test_path(path), &err) == 0, "%s", err.msg);
    snprintf(path, sizeof path, "golden/tokenizer/%s.json", pairs[_i].texts);
    cJSON *v = test_json(path);
    static const char *const lists[] = {"texts", "random"};
    for (size_t k = 0; k < 2; k++) {
        const cJSON *item;
        cJSON_ArrayForEach(item, json_get(v, lists[k]))
        {
            size_t len;
            char *text = test_text(item, "text", &len);
            if (!pairs[_i].no_runs || !memmem(text, len, "   ", 3)) {
                expect_same(g, j, text, len, TOK_PARSE_SPECIAL);
                expect_same(g, j, text, len, 0);
            }
            free(text);
        }
    }
    ck_assert_int_eq(tokenizer_n_ids(g), tokenizer_n_ids(j));
    ck_assert_str_eq(tokenizer_kind(g), tokenizer_kind(j));
    for (int32_t id = -1; id <= tokenizer_n_ids(j); id++) {
        const char *s = "", *r = "";
        size_t n = 0, m = 0;
        ck_assert_int_eq(tokenizer_piece(g, id, &s, &n), tokenizer_piece(j, id, &r, &m));
        ck_assert_msg(n == m && memcmp(s, r, n) == 0, "id %d: %.*s, %.*s", id, (int)n, s, (int)m, r);
        ck_assert_msg(tokenizer_is_special(g, id) == tokenizer_is_special(j, id), "id %d", id);
    }
    tokenizer_close(g);
    tokenizer_close(j);
    cJSON_Delete(v);
}
END_TEST

/* --- real files ------------------------------------------------------------ */

static const struct {
    const char *file, *ids;
} real[] = {
    {"SmolLM2-135M-Instruct.Q4_1.gguf", "golden/real/smollm2-135m-instruct-q4_1.json"},
    {"gemma-3-270m-q4_k_m.gguf", "golden/real/gemma-3-270m-q4_k_m.json"},
    {"qwen2.5-coder-0.5b-instruct-q4_k_m.gguf", "golden/real/qwen2.5-coder-0.5b-instruct-q4_k_m.json"},
};

static void expect_ids(const struct tokenizer *t, const cJSON *item, const char *key, unsigned flags)
{
    size_t len, n;
    char *text = test_text(item, "text", &len);
    int32_t *want = test_ids(json_get(item, key), &n);
    struct ids got;
    struct err err = {0};
    ids_init(&got);
    ck_assert_msg(tokenizer_encode(t, text, len, flags, &got, &err) == 0, "%s", err.msg);
    ck_assert_msg(got.n == n && (n == 0 || memcmp(got.v, want, n * sizeof *want) == 0), "%s of \"%s\"", key,
                  text);
    ids_fini(&got);
    free(want);
    free(text);
}

START_TEST(real_files)
{
    const char *dir = getenv("FORGE_MODELS_DIR");
    char path[1024], why[1200];
    snprintf(path, sizeof path, "%s/%s", dir ? dir : "", real[_i].file);
    if (!dir || !path_exists(path) || !path_exists(test_path(real[_i].ids))) {
        snprintf(why, sizeof why, "%s: not in FORGE_MODELS_DIR, or its recorded ids not in the tree",
                 real[_i].file);
        test_skip(why);
        return;
    }
    struct tokenizer *t = open_gguf(path);
    cJSON *j = test_json(real[_i].ids);
    const cJSON *item;
    int n = 0;
    cJSON_ArrayForEach(item, json_get(j, "tok"))
    {
        expect_ids(t, item, "ids_plain", 0);
        expect_ids(t, item, "ids", TOK_ADD_SPECIAL | TOK_PARSE_SPECIAL);
        n++;
    }
    ck_assert_int_ge(n, 30);
    tokenizer_close(t);
    cJSON_Delete(j);
}
END_TEST

/* --- metadata made here ----------------------------------------------------- */

static void put_u32(struct buf *b, uint32_t v)
{
    for (int i = 0; i < 4; i++)
        buf_putc(b, (char)(v >> 8 * i));
}

static void put_u64(struct buf *b, uint64_t v)
{
    for (int i = 0; i < 8; i++)
        buf_putc(b, (char)(v >> 8 * i));
}

static void put_str(struct buf *b, const char *s)
{
    put_u64(b, strlen(s));
    buf_puts(b, s);
}

/* "key=s:text", "key=u:7", "key=b:1", and lists "key=S:a|b", "key=I:1|2", "key=F:1|2". */
static void put_kv(struct buf *b, const char *spec)
{
    const char *eq = strchr(spec, '='), *val = eq + 3;
    put_u64(b, (uint64_t)(eq - spec));
    buf_put(b, spec, (size_t)(eq - spec));
    if (eq[1] == 's') {
        put_u32(b, GGUF_STRING);
        put_str(b, val);
    } else if (eq[1] == 'u') {
        put_u32(b, GGUF_U32);
        put_u32(b, (uint32_t)strtoul(val, NULL, 10));
    } else if (eq[1] == 'b') {
        put_u32(b, GGUF_BOOL);
        buf_putc(b, (char)(*val - '0'));
    } else {
        uint64_t n = *val ? 1 : 0;
        for (const char *p = val; *p; p++)
            n += *p == '|';
        put_u32(b, GGUF_ARRAY);
        put_u32(b, eq[1] == 'S' ? GGUF_STRING : eq[1] == 'I' ? GGUF_I32 : GGUF_F32);
        put_u64(b, n);
        for (const char *p = val; n-- > 0; p += strcspn(p, "|") + 1) {
            char one[256];
            snprintf(one, sizeof one, "%.*s", (int)strcspn(p, "|"), p);
            float f = strtof(one, NULL);
            uint32_t bits;
            memcpy(&bits, &f, 4);
            if (eq[1] == 'S')
                put_str(b, one);
            else
                put_u32(b, eq[1] == 'I' ? (uint32_t)strtol(one, NULL, 10) : bits);
        }
    }
}

static int open_specs(struct tokenizer **t, const char *const *specs, struct err *err)
{
    struct buf b, kv;
    struct weights *w;
    uint64_t n = 0;
    buf_init(&b);
    buf_init(&kv);
    for (; specs[n]; n++)
        put_kv(&kv, specs[n]);
    buf_puts(&b, "GGUF");
    put_u32(&b, 3);
    put_u64(&b, 0);
    put_u64(&b, n);
    buf_put(&b, kv.data, kv.len);
    while (b.len % 32)
        buf_putc(&b, 0);
    ck_assert_msg(weights_open_bytes(&w, "made.gguf", (const uint8_t *)b.data, b.len, err) == 0, "%s",
                  err->msg);
    int rc = tokenizer_open_gguf(t, weights_gguf(w), err);
    weights_close(w);
    buf_fini(&b);
    buf_fini(&kv);
    return rc;
}

#define G "tokenizer.ggml."
#define GPT2 G "model=s:gpt2"
#define LLAMA G "model=s:llama"
#define TOKENS G "tokens=S:a|b|ab|<s>"
#define TYPES G "token_type=I:1|1|1|3"
#define MERGES G "merges=S:a b"
#define SCORES G "scores=F:-1|-2|-3|0"

static const struct {
    const char *specs[9];
    int code;
    const char *words;
} refused[] = {
    {{TOKENS}, ERR_UNSUPPORTED, "kind \"\""},
    {{G "model=s:bert", TOKENS}, ERR_UNSUPPORTED, "bert"},
    {{G "model=u:3"}, ERR_FORMAT, "model"},
    {{GPT2, MERGES}, ERR_FORMAT, "tokens"},
    {{GPT2, G "tokens=s:a"}, ERR_FORMAT, "tokens"},
    {{GPT2, TOKENS, TYPES}, ERR_FORMAT, "merges"},
    {{GPT2, TOKENS, G "merges=S:ab"}, ERR_FORMAT, "entry 0"},
    {{GPT2, TOKENS, MERGES, G "pre=s:nonesuch"}, ERR_UNSUPPORTED, "qwen2"},
    {{GPT2, TOKENS, MERGES, G "pre=u:1"}, ERR_FORMAT, "pre"},
    {{GPT2, TOKENS, MERGES, G "token_type=I:1|1"}, ERR_FORMAT, "4 tokens, but 2 types"},
    {{GPT2, TOKENS, MERGES, G "token_type=I:1|1|1|9"}, ERR_FORMAT, "token 3 has type 9"},
    {{GPT2, TOKENS, MERGES, G "add_bos_token=b:1"}, ERR_FORMAT, "bos_token_id"},
    {{GPT2, TOKENS, MERGES, G "add_eos_token=b:1", G "eos_token_id=u:77"}, ERR_FORMAT, "eos_token_id"},
    {{LLAMA, TOKENS}, ERR_FORMAT, "scores"},
    {{LLAMA, TOKENS, G "scores=F:1"}, ERR_FORMAT, "1 scores"},
    {{LLAMA, TOKENS, SCORES, G "remove_extra_whitespaces=b:1"}, ERR_UNSUPPORTED, "remove_extra_whitespaces"},
    {{LLAMA, TOKENS, SCORES, G "add_space_prefix=u:1"}, ERR_FORMAT, "add_space_prefix"},
    {{LLAMA, TOKENS, SCORES, G "unknown_token_id=u:9"}, ERR_FORMAT, "unknown_token_id"},
};

START_TEST(refusals)
{
    struct tokenizer *t = (struct tokenizer *)1;
    struct err err = {0};
    int rc = open_specs(&t, refused[_i].specs, &err);
    ck_assert_msg(rc == refused[_i].code && strstr(err.msg, refused[_i].words) &&
                      strstr(err.msg, "made.gguf"),
                  "%d: %s", rc, err.msg);
    ck_assert_ptr_null(t);
}
END_TEST

static void expect_list(const struct tokenizer *t, const char *text, unsigned flags, const char *want)
{
    struct ids ids;
    struct buf b;
    struct err err = {0};
    ids_init(&ids);
    buf_init(&b);
    ck_assert_msg(tokenizer_encode(t, text, strlen(text), flags, &ids, &err) == 0, "%s", err.msg);
    buf_put_json_ids(&b, ids.v, ids.n);
    ck_assert_str_eq(buf_str(&b), want);
    ids_fini(&ids);
    buf_fini(&b);
}

/* Every name of the table opens and encodes. */
START_TEST(pre_names)
{
    static const char *const names[] = {"default",   "gpt-2",          "qwen2",       "qwen35",
                                        "llama-bpe", "dbrx",           "smollm",      "tekken",
                                        "gpt-4o",    "deepseek-coder", "deepseek-v3", "deepseek-r1-qwen"};
    char pre[64];
    snprintf(pre, sizeof pre, G "pre=s:%s", names[_i]);
    const char *specs[] = {GPT2, TOKENS, TYPES, MERGES, pre, NULL};
    struct tokenizer *t;
    struct err err = {0};
    ck_assert_msg(open_specs(&t, specs, &err) == 0, "%s", err.msg);
    expect_list(t, "abba<s>", TOK_PARSE_SPECIAL, "[2,1,0,3]");
    ck_assert_int_eq(tokenizer_eos(t), -1);
    tokenizer_close(t);
}
END_TEST

static char warned[256];

static void keep_warning(void *user, enum log_level level, const char *line)
{
    (void)user;
    if (level == LOG_WARN)
        snprintf(warned, sizeof warned, "%s", line);
}

/* A merge of what is no token is left out and told; the others stay. */
START_TEST(merges_of_no_tokens)
{
    const char *specs[] = {GPT2, TOKENS, TYPES, G "merges=S:a c|a b|b b", NULL};
    struct tokenizer *t;
    struct err err = {0};
    log_set(keep_warning, NULL, LOG_WARN, 0);
    ck_assert_msg(open_specs(&t, specs, &err) == 0, "%s", err.msg);
    ck_assert_msg(strstr(warned, "made.gguf: merge 0: \"c\"") && strstr(warned, "2 of 3 merges"), "%s", warned);
    expect_list(t, "abbb", 0, "[2,1,1]");
    tokenizer_close(t);
}
END_TEST

/* Scores decide: "bc" before "ab"; bytes and control tokens are never merged into. */
START_TEST(scores_decide)
{
    const char *specs[] = {LLAMA,
                           G "tokens=S:<unk>|<s>|<0x61>|a|b|c|ab|bc|abc|aa|[PAD10]",
                           G "token_type=I:2|3|6|1|1|1|1|1|1|3|5",
                           G "scores=F:0|0|0|-1|-2|-3|-9|-8|-10|5|0",
                           G "add_space_prefix=b:0",
                           G "bos_token_id=u:1",
                           G "unknown_token_id=u:0",
                           G "add_eos_token=b:0",
                           NULL};
    struct tokenizer *t;
    struct err err = {0};
    ck_assert_msg(open_specs(&t, specs, &err) == 0, "%s", err.msg);
    expect_list(t, "abc", 0, "[8]");
    expect_list(t, "bab", 0, "[4,6]");
    expect_list(t, "abcaa", 0, "[8,3,3]");
    expect_list(t,
                "c\xC3\xA9"
                "c",
                0, "[5,0,5]");
    expect_list(t, "a", TOK_ADD_SPECIAL, "[1,3]");
    ck_assert_int_eq(tokenizer_n_ids(t), 10); /* padding is no token */
    tokenizer_close(t);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("text_gguf");
    TCase *c = tcase_create("gguf");
    tcase_add_loop_test(c, same_ids_as_json, 0, sizeof pairs / sizeof *pairs);
    tcase_add_loop_test(c, real_files, 0, sizeof real / sizeof *real);
    tcase_add_loop_test(c, refusals, 0, sizeof refused / sizeof *refused);
    tcase_add_loop_test(c, pre_names, 0, 12);
    tcase_add_test(c, merges_of_no_tokens);
    tcase_add_test(c, scores_decide);
    suite_add_tcase(s, c);
    return test_main(s);
}
