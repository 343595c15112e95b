/* The tokenizer's edges: what is refused and how, bytes that are no UTF-8, long runs,
 * the detokenizer around a prompt, vocab.json + merges.txt, the respelling
 * of expressions. */
#include "tests/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/buf.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "text/chars.h"
#include "text/onig.h"
#include "text/parts.h"

static const char *write_file(const char *name, const char *text)
{
    const char *path = test_tmp(name);
    FILE *f = fopen(path, "wb");
    ck_assert_msg(f != NULL, "%s", path);
    fputs(text, f);
    ck_assert_int_eq(fclose(f), 0);
    return path;
}

static struct tokenizer *open_ok(const char *path)
{
    struct tokenizer *t;
    struct err err = {0};
    ck_assert_msg(tokenizer_open(&t, path, &err) == 0, "%s", err.msg);
    return t;
}

static struct tokenizer *golden(const char *name)
{
    char path[128];
    snprintf(path, sizeof path, "golden/tokenizer/%s", name);
    return open_ok(test_path(path));
}

/* --- refusals ------------------------------------------------------------- */

#define VOCAB "\"vocab\":{\"a\":0,\"b\":1,\"ab\":2},\"merges\":[\"a b\"]"
#define BPE "\"model\":{\"type\":\"BPE\"," VOCAB "}"

static const struct {
    const char *json;
    int code;
    const char *words; /* in the message */
} refused[] = {
    {"", ERR_FORMAT, "empty"},
    {"[]", ERR_FORMAT, "not an object"},
    {"{\"model\":{\"type\":\"BPE\"", ERR_FORMAT, "refused.json"},
    {"{}", ERR_FORMAT, "no model"},
    {"{\"model\":[]}", ERR_FORMAT, "no model"},
    {"{\"model\":{\"type\":\"Unigram\",\"vocab\":[]}}", ERR_UNSUPPORTED, "Unigram"},
    {"{\"model\":{\"type\":\"WordPiece\",\"vocab\":{}}}", ERR_UNSUPPORTED, "WordPiece"},
    {"{\"model\":{\"type\":\"WordLevel\",\"vocab\":{}}}", ERR_UNSUPPORTED, "WordLevel"},
    {"{\"model\":{\"vocab\":{}}}", ERR_UNSUPPORTED, "without merges"},
    {"{\"model\":{\"type\":\"BPE\",\"vocab\":[],\"merges\":[]}}", ERR_FORMAT, "no object"},
    {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":-1},\"merges\":[]}}", ERR_FORMAT, "\"a\""},
    {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":1.5},\"merges\":[]}}", ERR_FORMAT, "\"a\""},
    {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":\"x\"},\"merges\":[]}}", ERR_FORMAT, "\"a\""},
    {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":2000000000},\"merges\":[]}}", ERR_LIMIT,
     "2000000000 is too high"},
    {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":1000000},\"merges\":[]}}", ERR_LIMIT,
     "1000000 is too high"},
    {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":3}}", ERR_FORMAT, "merges"},
    {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[\"aa\"]}}", ERR_FORMAT, "two parts"},
    {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[\"a a a\"]}}", ERR_FORMAT, "two parts"},
    {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[[\"a\"]]}}", ERR_FORMAT, "pair"},
    {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[[\"a\",1]]}}", ERR_FORMAT, "pair"},
    {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[[1,\"a\"]]}}", ERR_FORMAT, "pair"},
    {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[\"a b\"]}}", ERR_FORMAT, "merge 0: \"b\""},
    {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[\"a a\"]}}", ERR_FORMAT,
     "merge 0: \"aa\""},
    {"{\"model\":{\"type\":\"BPE\",\"dropout\":0.1," VOCAB "}}", ERR_UNSUPPORTED, "dropout"},
    {"{\"model\":{\"type\":\"BPE\",\"continuing_subword_prefix\":\"##\"," VOCAB "}}", ERR_UNSUPPORTED,
     "continuing_subword_prefix"},
    {"{\"model\":{\"type\":\"BPE\",\"end_of_word_suffix\":\"</w>\"," VOCAB "}}", ERR_UNSUPPORTED,
     "end_of_word_suffix"},
    {"{\"model\":{\"type\":\"BPE\",\"unk_token\":\"?\"," VOCAB "}}", ERR_FORMAT, "unk_token \"?\""},
    {"{\"model\":{\"type\":\"BPE\",\"unk_token\":3," VOCAB "}}", ERR_FORMAT, "unk_token"},
    {"{\"model\":{\"type\":\"BPE\",\"fuse_unk\":3," VOCAB "}}", ERR_FORMAT, "fuse_unk"},
    {"{" BPE ",\"added_tokens\":{}}", ERR_FORMAT, "added_tokens"},
    {"{" BPE ",\"added_tokens\":[{\"content\":\"x\"}]}", ERR_FORMAT, "without id"},
    {"{" BPE ",\"added_tokens\":[{\"id\":3}]}", ERR_FORMAT, "without content"},
    {"{" BPE ",\"added_tokens\":[{\"id\":3,\"content\":\"x\",\"special\":1}]}", ERR_FORMAT, "special"},
    {"{" BPE ",\"normalizer\":{\"type\":\"BertNormalizer\"}}", ERR_UNSUPPORTED,
     "normalizer of type \"BertNormalizer\""},
    {"{" BPE ",\"normalizer\":{}}", ERR_FORMAT, "no type"},
    {"{" BPE ",\"normalizer\":3}", ERR_FORMAT, "normalizer is no object"},
    {"{" BPE ",\"normalizer\":{\"type\":\"Replace\",\"pattern\":{},\"content\":\"\"}}", ERR_FORMAT,
     "pattern"},
    {"{" BPE ",\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"String\":\"\"},\"content\":\"\"}}",
     ERR_FORMAT, "empty"},
    {"{" BPE ",\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"String\":\"a\\u0000\"},\"content\":\"\"}}",
     ERR_UNSUPPORTED, "NUL"},
    {"{" BPE ",\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"(\"},\"content\":\"\"}}",
     ERR_UNSUPPORTED, "pattern ("},
    {"{" BPE ",\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"[a[b]]\"},\"content\":\"\"}}",
     ERR_UNSUPPORTED, "sets within sets"},
    {"{" BPE ",\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"[a&&b]\"},\"content\":\"\"}}",
     ERR_UNSUPPORTED, "&&"},
    {"{" BPE ",\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":3}}", ERR_FORMAT, "normalizers"},
    {"{" BPE ",\"pre_tokenizer\":{\"type\":\"UnicodeScripts\"}}", ERR_UNSUPPORTED, "UnicodeScripts"},
    {"{" BPE
     ",\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"String\":\" \"},\"behavior\":\"Sideways\"}}",
     ERR_UNSUPPORTED, "Sideways"},
    {"{" BPE ",\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"ab\"}}", ERR_FORMAT,
     "replacement"},
    {"{" BPE ",\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"_\",\"prepend_scheme\":\"last\"}}",
     ERR_UNSUPPORTED, "last"},
    {"{" BPE ",\"decoder\":{\"type\":\"CTC\"}}", ERR_UNSUPPORTED, "decoder of type \"CTC\""},
    {"{" BPE ",\"decoder\":{\"type\":\"Strip\",\"content\":\"\"}}", ERR_FORMAT, "content"},
    {"{" BPE ",\"decoder\":{\"type\":\"Strip\",\"content\":\"a\",\"start\":-1}}", ERR_FORMAT, "start"},
    {"{" BPE ",\"post_processor\":{\"type\":\"BertProcessing\"}}", ERR_UNSUPPORTED, "BertProcessing"},
    {"{" BPE ",\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[]}}", ERR_UNSUPPORTED,
     "template"},
    {"{" BPE
     ",\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"Sequence\":{\"id\":\"B\"}}]}}",
     ERR_UNSUPPORTED, "template"},
    {"{" BPE
     ",\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"x\"}}]}}",
     ERR_FORMAT, "\"x\""},
    {"{" BPE
     ",\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"x\"}}],"
     "\"special_tokens\":{\"x\":{\"ids\":[99]}}}}",
     ERR_FORMAT, "outside the vocabulary"},
};

START_TEST(refusals)
{
    const char *path = write_file("refused.json", refused[_i].json);
    struct tokenizer *t = (struct tokenizer *)1;
    struct err err = {0};
    int rc = tokenizer_open(&t, path, &err);
    ck_assert_msg(rc == refused[_i].code && err.code == rc, "%s: code %d: %s", refused[_i].json, rc, err.msg);
    ck_assert_msg(strstr(err.msg, refused[_i].words) && strstr(err.msg, "refused.json"), "%s: %s",
                  refused[_i].json, err.msg);
    ck_assert_ptr_null(t);
    ck_assert_int_eq(tokenizer_open(&t, path, NULL), rc);
}
END_TEST

START_TEST(too_many_decoders)
{
    struct buf b;
    struct tokenizer *t;
    struct err err = {0};
    buf_init(&b);
    buf_puts(&b, "{" BPE ",\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Fuse\"}");
    for (int i = 0; i < 20; i++)
        buf_puts(&b, ",{\"type\":\"Fuse\"}");
    buf_puts(&b, "]}}");
    ck_assert_int_eq(tokenizer_open(&t, write_file("many.json", buf_str(&b)), &err), ERR_LIMIT);
    ck_assert_ptr_nonnull(strstr(err.msg, "decoder steps"));
    buf_fini(&b);
}
END_TEST

/* Vocabularies that are not read name the way out. */
START_TEST(foreign_files)
{
    static const char *const names[] = {"tokenizer.model", "tekken.json"};
    struct tokenizer *t;
    struct err err = {0};
    for (size_t i = 0; i < 2; i++) {
        const char *path = write_file(names[i], "x");
        ck_assert_int_eq(tokenizer_open(&t, path, &err), ERR_UNSUPPORTED);
        ck_assert_msg(strstr(err.msg, "save_pretrained") && strstr(err.msg, names[i]), "%s", err.msg);
    }
    ck_assert_int_eq(tokenizer_open(&t, test_tmp("."), &err), ERR_UNSUPPORTED);
    ck_assert_ptr_nonnull(strstr(err.msg, "tokenizer.model"));
    const char *empty = test_tmp("empty");
    ck_assert_int_eq(mkdir(empty, 0700), 0);
    ck_assert_int_eq(tokenizer_open(&t, empty, &err), ERR_IO);
    ck_assert_ptr_nonnull(strstr(err.msg, "merges.txt"));
    ck_assert_int_eq(tokenizer_open(&t, test_tmp("absent.json"), &err), ERR_IO);
}
END_TEST

/* A tokenizer.json that cannot be read is that error, whatever else lies in the folder. */
START_TEST(unreadable_file)
{
    struct tokenizer *t;
    struct err err = {0};
    const char *dir = test_tmp("unread");
    ck_assert_int_eq(mkdir(dir, 0700), 0);
    ck_assert_int_eq(mkdir(test_tmp("unread/tokenizer.json"), 0700), 0); /* no file */
    write_file("unread/tokenizer.model", "x");
    ck_assert_int_eq(tokenizer_open(&t, dir, &err), ERR_IO);
    ck_assert_msg(strstr(err.msg, "tokenizer.json") != NULL, "%s", err.msg);
}
END_TEST

/* --- bytes ---------------------------------------------------------------- */

static void encode(const struct tokenizer *t, const char *s, size_t len, unsigned flags, struct ids *out)
{
    struct err err = {0};
    ck_assert_msg(tokenizer_encode(t, s, len, flags, out, &err) == 0, "%s", err.msg);
}

/* Bytes that are no UTF-8 come back as they were, through the spelling of their tokens. */
START_TEST(invalid_utf8)
{
    static const char text[] = "a\xff\xfe\xc3(\xe6\x97x\0\xf0\x9f";
    static const char lossy[] = "a\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD(\xEF\xBF\xBDx\0\xEF\xBF\xBD";
    struct tokenizer *t = golden("qwen3");
    struct ids ids;
    struct buf out;
    struct err err = {0};
    ids_init(&ids);
    buf_init(&out);
    encode(t, text, sizeof text - 1, 0, &ids);
    for (size_t i = 0; i < ids.n; i++)
        ck_assert_int_ge(ids.v[i], 0);
    ck_assert_int_eq(tokenizer_decode(t, ids.v, ids.n, false, &out, &err), 0);
    ck_assert_uint_eq(out.len, sizeof lossy - 1);
    ck_assert_int_eq(memcmp(out.data, lossy, out.len), 0);
    tokenizer_close(t);
    t = golden("llama2");
    ids.n = 0;
    encode(t, "\xff", 1, 0, &ids);
    const char *s;
    size_t len;
    ck_assert_uint_eq(ids.n, 1);
    ck_assert(tokenizer_piece(t, ids.v[0], &s, &len));
    ck_assert(len == 6 && memcmp(s, "<0xFF>", 6) == 0);
    tokenizer_close(t);
    ids_fini(&ids);
    buf_fini(&out);
}
END_TEST

START_TEST(byte_without_token)
{
    struct tokenizer *t = open_ok(write_file("small.json", "{" BPE "}"));
    struct ids ids;
    struct err err = {0};
    ids_init(&ids);
    encode(t, "ab", 2, 0, &ids);
    ck_assert_int_eq(tokenizer_encode(t, "ab\xff", 3, 0, &ids, &err), ERR_FORMAT);
    ck_assert_msg(strstr(err.msg, "0xFF at offset 2"), "%s", err.msg);
    ck_assert_uint_eq(ids.n, 1); /* what was there stays, nothing is added */
    ck_assert_int_eq(ids.v[0], 2);
    ck_assert_str_eq(tokenizer_kind(t), "BPE");
    ids_fini(&ids);
    tokenizer_close(t);
}
END_TEST

static const struct {
    const char *unit;
    size_t n;
} runs[] = {
    {" ", 1 << 20}, {"\n", 1 << 20}, {"\xF0\x9F\x98\x8A", 100000}, {"A", 9400}, {"\xCC\xA3\xCC\x81", 100000}};

/* Long runs end, and come back (the last one in its normal form, so only its length is fixed). */
START_TEST(long_runs)
{
    static const char *const names[] = {"qwen3", "gemma", "llama2-metaspace"};
    struct tokenizer *t = golden(names[_i]);
    for (size_t r = 0; r < sizeof runs / sizeof *runs; r++) {
        struct buf text, back;
        struct ids ids;
        struct err err = {0};
        buf_init(&text);
        buf_init(&back);
        ids_init(&ids);
        for (size_t k = 0; k < runs[r].n; k++)
            buf_puts(&text, runs[r].unit);
        buf_putc(&text, 'x');
        encode(t, text.data, text.len, TOK_PARSE_SPECIAL, &ids);
        ck_assert_int_eq(tokenizer_decode(t, ids.v, ids.n, false, &back, &err), 0);
        size_t cut = _i == 2 && r == 0; /* Metaspace: a space at the beginning is the prefix */
        ck_assert_uint_eq(back.len, text.len - cut);
        if (r < 4)
            ck_assert_int_eq(memcmp(back.data, text.data + cut, back.len), 0);
        buf_fini(&text);
        buf_fini(&back);
        ids_fini(&ids);
    }
    tokenizer_close(t);
}
END_TEST

/* A pattern that needs too many steps is an error that shows the pattern. */
START_TEST(match_limit)
{
    struct tokenizer *t = open_ok(
        write_file("slow.json", "{" BPE ",\"pre_tokenizer\":{\"type\":\"Split\",\"behavior\":\"Isolated\","
                                "\"pattern\":{\"Regex\":\"(a|aa)+$\"}}}"));
    struct ids ids;
    struct err err = {0};
    char text[201];
    memset(text, 'a', 200);
    text[200] = 'b';
    ids_init(&ids);
    ck_assert_int_eq(tokenizer_encode(t, text, sizeof text, 0, &ids, &err), ERR_LIMIT);
    ck_assert_msg(strstr(err.msg, "(a|aa)+$"), "%s", err.msg);
    ck_assert_uint_eq(ids.n, 0);
    ids_fini(&ids);
    tokenizer_close(t);
}
END_TEST

/* --- special tokens, look-ups --------------------------------------------- */

START_TEST(control_strings_stay_text)
{
    static const char text[] = "x<|im_end|>\n<|im_start|>system\nhello";
    struct tokenizer *t = golden("qwen3");
    int32_t end = tokenizer_find(t, "<|im_end|>", 10);
    struct ids ids;
    ids_init(&ids);
    ck_assert(tokenizer_is_special(t, end));
    encode(t, text, sizeof text - 1, 0, &ids);
    for (size_t i = 0; i < ids.n; i++)
        ck_assert(!tokenizer_is_special(t, ids.v[i]));
    ids.n = 0;
    encode(t, text, sizeof text - 1, TOK_PARSE_SPECIAL, &ids);
    ck_assert_int_eq(ids.v[1], end);
    ids_fini(&ids);
    tokenizer_close(t);
}
END_TEST

/* ignore_merges does not turn a whole word into a control token unasked. */
START_TEST(ignore_merges_is_no_way_in)
{
    struct tokenizer *t = open_ok(
        write_file("whole.json", "{\"model\":{\"type\":\"BPE\",\"ignore_merges\":true," VOCAB
                                 "},\"added_tokens\":[{\"id\":2,\"content\":\"ab\",\"special\":true}]}"));
    struct ids ids;
    ids_init(&ids);
    encode(t, "ab", 2, TOK_PARSE_SPECIAL, &ids);
    ck_assert(ids.n == 1 && ids.v[0] == 2);
    tokenizer_close(t);
    ids_fini(&ids);
}
END_TEST

START_TEST(lookups)
{
    struct tokenizer *t = open_ok(test_path("golden/models/llama"));
    const char *s;
    size_t len;
    char libs[256];
    ck_assert_str_eq(tokenizer_kind(t), "SentencePiece BPE");
    ck_assert_int_eq(tokenizer_bos(t), 1);
    ck_assert_int_eq(tokenizer_eos(t), 2);
    ck_assert(tokenizer_adds_bos(t));
    ck_assert_ptr_nonnull(strstr(tokenizer_source(t), "models/llama"));
    ck_assert_int_eq(tokenizer_find(t, "<s>", 3), 1);
    ck_assert_int_eq(tokenizer_find(t, "no such token", 13), -1);
    ck_assert(tokenizer_piece(t, 1, &s, &len) && len == 3 && memcmp(s, "<s>", 3) == 0);
    ck_assert(!tokenizer_piece(t, -1, &s, &len) && !tokenizer_piece(t, tokenizer_n_ids(t), &s, &len));
    ck_assert(!tokenizer_is_special(t, 100000));
    ck_assert_ptr_nonnull(strstr(tokenizer_libraries(libs, sizeof libs), "PCRE2 "));
    ck_assert_ptr_nonnull(strstr(libs, "utf8proc "));
    tokenizer_close(t);
    t = open_ok(test_path("golden/models/qwen3"));
    ck_assert_str_eq(tokenizer_kind(t), "byte-level BPE");
    ck_assert(!tokenizer_adds_bos(t));
    ck_assert_int_ne(tokenizer_find(t, "T", 1), tokenizer_find(t, "t", 1));
    tokenizer_close(t);
    tokenizer_close(NULL);
    detok_free(NULL);
}
END_TEST

/* bos and eos that are objects, unknown, or of a wrong type. */
START_TEST(config_names)
{
    write_file("tokenizer.json", "{" BPE "}");
    write_file("tokenizer_config.json", "{\"bos_token\":{\"content\":\"a\"},\"eos_token\":\"nowhere\"}");
    struct tokenizer *t = open_ok(test_tmp("tokenizer.json"));
    struct err err = {0};
    ck_assert_int_eq(tokenizer_bos(t), 0);
    ck_assert_int_eq(tokenizer_eos(t), -1);
    tokenizer_close(t);
    write_file("tokenizer_config.json", "{\"bos_token\":3}");
    ck_assert_int_eq(tokenizer_open(&t, test_tmp("tokenizer.json"), &err), ERR_FORMAT);
    ck_assert_ptr_nonnull(strstr(err.msg, "bos_token"));
    write_file("tokenizer_config.json", "{");
    ck_assert_int_eq(tokenizer_open(&t, test_tmp("tokenizer.json"), &err), ERR_FORMAT);
}
END_TEST

/* --- the detokenizer ------------------------------------------------------ */

/* Wherever a text is cut into prompt and answer, what is streamed is the rest of it. */
START_TEST(detok_after_any_prompt)
{
    static const char *const names[] = {"qwen3", "llama2", "gemma", "llama2-metaspace", "smollm", "tekken"};
    static const char text[] =
        "Say \xF0\x9F\x98\x8A\xF0\x9F\x91\xA9\xE2\x80\x8D\xF0\x9F\x91\xA7\xE6\xBC\xA2 caf\xC3\xA9.";
    struct tokenizer *t = golden(names[_i]);
    struct ids ids;
    struct err err = {0};
    struct buf all;
    ids_init(&ids);
    buf_init(&all);
    encode(t, text, sizeof text - 1, TOK_ADD_SPECIAL, &ids);
    ck_assert_int_eq(tokenizer_decode(t, ids.v, ids.n, true, &all, &err), 0);
    for (size_t cut = 0; cut <= ids.n; cut++) {
        struct detok *d;
        struct buf got, before;
        buf_init(&got);
        buf_init(&before);
        ck_assert_int_eq(tokenizer_decode(t, ids.v, cut, true, &before, &err), 0);
        ck_assert_int_eq(detok_new(&d, t, ids.v, cut, true, &err), 0);
        for (size_t i = cut; i < ids.n; i++) {
            size_t from = got.len;
            ck_assert_int_eq(detok_push(d, ids.v[i], &got, &err), 0);
            ck_assert(utf8_valid(buf_str(&got) + from, got.len - from, NULL));
        }
        ck_assert_int_eq(detok_push(d, tokenizer_n_ids(t), &got, &err), 0); /* no token: nothing */
        ck_assert_int_eq(detok_finish(d, &got, &err), 0);
        /* a prompt that ends within a character shows U+FFFD, and the character comes whole */
        if (before.len <= all.len && memcmp(buf_str(&before), all.data, before.len) == 0)
            ck_assert_msg(got.len == all.len - before.len &&
                              memcmp(buf_str(&got), all.data + before.len, got.len) == 0,
                          "%s cut at %zu: \"%s\"", names[_i], cut, buf_str(&got));
        else
            ck_assert_msg(got.len <= all.len &&
                              memcmp(buf_str(&got), all.data + all.len - got.len, got.len) == 0,
                          "%s cut at %zu: \"%s\"", names[_i], cut, buf_str(&got));
        buf_fini(&got);
        buf_fini(&before);
        detok_free(d);
    }
    ids_fini(&ids);
    buf_fini(&all);
    tokenizer_close(t);
}
END_TEST

/* An unfinished character is held back, and becomes U+FFFD at the end only. */
START_TEST(detok_unfinished)
{
    struct tokenizer *t = golden("qwen3");
    struct ids ids;
    struct buf out;
    struct detok *d;
    struct err err = {0};
    ids_init(&ids);
    buf_init(&out);
    encode(t, "\xF0\x9F\x98", 3, 0, &ids);
    ck_assert_uint_eq(ids.n, 3);
    ck_assert_int_eq(detok_new(&d, t, NULL, 0, false, &err), 0);
    for (size_t i = 0; i < ids.n; i++)
        ck_assert_int_eq(detok_push(d, ids.v[i], &out, &err), 0);
    ck_assert_uint_eq(out.len, 0);
    ck_assert_int_eq(detok_finish(d, &out, &err), 0);
    ck_assert_str_eq(buf_str(&out), "\xEF\xBF\xBD");
    detok_free(d);
    ids_fini(&ids);
    buf_fini(&out);
    tokenizer_close(t);
}
END_TEST

/* --- vocab.json + merges.txt ---------------------------------------------- */

/* The pair written from a tokenizer.json gives its ids. */
static void write_pair(const char *json_path, const char *class_name)
{
    cJSON *j = test_json(json_path);
    const cJSON *model = json_get(j, "model"), *m;
    char *vocab = cJSON_PrintUnformatted(json_get(model, "vocab"));
    struct buf b;
    buf_init(&b);
    write_file("vocab.json", vocab);
    buf_puts(&b, "#version: 0.2\n");
    cJSON_ArrayForEach(m, json_get(model, "merges")) if (cJSON_IsString(m))
        buf_printf(&b, "%s\n", m->valuestring);
    else buf_printf(&b, "%s %s\n", m->child->valuestring, m->child->next->valuestring);
    write_file("merges.txt", buf_str(&b));
    buf_clear(&b);
    buf_printf(&b, "{\"tokenizer_class\":\"%s\",\"added_tokens_decoder\":{", class_name);
    cJSON_ArrayForEach(m, json_get(j, "added_tokens"))
    {
        char *one = cJSON_PrintUnformatted(m);
        buf_printf(&b, "%s\"%d\":%s", m->prev->next ? "," : "", json_get(m, "id")->valueint, one);
        free(one);
    }
    buf_puts(&b, "}}");
    write_file("tokenizer_config.json", buf_str(&b));
    buf_fini(&b);
    free(vocab);
    cJSON_Delete(j);
}

START_TEST(vocab_and_merges)
{
    static const char text[] =
        "Hello  world 123 e\xCC\x81 <|im_start|>user\n\n don't <think>\xF0\x9F\x98\x8A";
    static const char *const from[][2] = {
        {"qwen3", "Qwen2TokenizerFast"}, {"qwen2", "Qwen2Tokenizer"}, {"gpt2", "GPT2Tokenizer"}};
    char path[128];
    snprintf(path, sizeof path, "golden/tokenizer/%s/tokenizer.json", from[_i][0]);
    write_pair(path, from[_i][1]);
    struct tokenizer *a = open_ok(test_path(path)), *b = open_ok(test_tmp("vocab.json"));
    for (unsigned flags = 0; flags < 4; flags++) {
        struct ids x, y;
        ids_init(&x);
        ids_init(&y);
        encode(a, text, sizeof text - 1, flags, &x);
        encode(b, text, sizeof text - 1, flags, &y);
        ck_assert_uint_eq(x.n, y.n);
        ck_assert_int_eq(memcmp(x.v, y.v, x.n * sizeof *x.v), 0);
        ids_fini(&x);
        ids_fini(&y);
    }
    ck_assert_int_eq(tokenizer_n_ids(a), tokenizer_n_ids(b));
    tokenizer_close(a);
    tokenizer_close(b);
}
END_TEST

START_TEST(vocab_and_merges_refused)
{
    struct tokenizer *t;
    struct err err = {0};
    write_file("vocab.json", "{\"a\":0,\"b\":1,\"ab\":2,\"<s>\":3}");
    ck_assert_int_eq(tokenizer_open(&t, test_tmp("vocab.json"), &err), ERR_IO);
    ck_assert_ptr_nonnull(strstr(err.msg, "merges.txt"));
    write_file("merges.txt", "#version: 0.2\r\na b\r\nabc\n");
    ck_assert_int_eq(tokenizer_open(&t, test_tmp("."), &err), ERR_FORMAT);
    ck_assert_ptr_nonnull(strstr(err.msg, "\"abc\""));
    write_file("merges.txt", "a b\na c\n");
    ck_assert_int_eq(tokenizer_open(&t, test_tmp("."), &err), ERR_FORMAT);
    ck_assert_ptr_nonnull(strstr(err.msg, "\"c\""));
    write_file("merges.txt", "a \xff\n");
    ck_assert_int_eq(tokenizer_open(&t, test_tmp("."), &err), ERR_FORMAT);
    ck_assert_ptr_nonnull(strstr(err.msg, "UTF-8"));
    write_file("merges.txt", "a b\r\n");
    write_file("tokenizer_config.json", "{\"tokenizer_class\":\"RobertaTokenizer\"}");
    ck_assert_int_eq(tokenizer_open(&t, test_tmp("."), &err), ERR_UNSUPPORTED);
    ck_assert_ptr_nonnull(strstr(err.msg, "RobertaTokenizer"));
    write_file("tokenizer_config.json", "{\"added_tokens_decoder\":{\"x\":{\"content\":\"y\"}}}");
    ck_assert_int_eq(tokenizer_open(&t, test_tmp("."), &err), ERR_FORMAT);
    write_file("tokenizer_config.json", "{\"add_bos_token\":true,\"bos_token\":\"<s>\"}");
    t = open_ok(test_tmp("."));
    struct ids ids;
    ids_init(&ids);
    encode(t, "ab", 2, TOK_ADD_SPECIAL, &ids);
    ck_assert(ids.n == 2 && ids.v[0] == 3 && ids.v[1] == 2 && tokenizer_adds_bos(t));
    ids_fini(&ids);
    tokenizer_close(t);
}
END_TEST

/* --- small parts ---------------------------------------------------------- */

START_TEST(byte_alphabet)
{
    bool seen[0x200] = {false};
    for (unsigned i = 0; i < 256; i++) {
        uint32_t c = bytelevel_char((uint8_t)i);
        ck_assert_uint_lt(c, 0x144);
        ck_assert(!seen[c]);
        seen[c] = true;
        ck_assert_int_eq(bytelevel_byte(c), (int)i);
    }
    ck_assert_uint_eq(bytelevel_char(' '), 0x120);
    ck_assert_uint_eq(bytelevel_char('\n'), 0x10a);
    ck_assert_int_eq(bytelevel_byte(' '), -1);
    ck_assert_int_eq(bytelevel_byte(0x144), -1);
}
END_TEST

START_TEST(respelling)
{
    static const struct {
        const char *from, *to; /* NULL = refused */
    } rows[] = {{"a\\\\s", "a\\\\s"},
                {"[^]a]", "[^]a]"},
                {"[\\]\\h]", "[\\]0-9a-fA-F]"},
                {"\\u00e9", "\\x{00e9}"},
                {"\\u00", "\\u00"},
                {"[[:alpha:]]", "[[:alpha:]]"},
                {"[a", "[a"},
                {"x\\", "x\\"},
                {"[\\W]", NULL},
                {"[a[b]]", NULL},
                {"[a&&b]", NULL},
                {"a&&b", "a&&b"},
                {"[\\b]", "[\\b]"},
                {"[&]", "[&]"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct buf b;
        struct err err = {0};
        buf_init(&b);
        int rc = onig_to_pcre(rows[i].from, strlen(rows[i].from), &b, "test", &err);
        ck_assert_msg(rc == (rows[i].to ? 0 : ERR_UNSUPPORTED), "%s: %d", rows[i].from, rc);
        if (rows[i].to)
            ck_assert_str_eq(buf_str(&b), rows[i].to);
        buf_fini(&b);
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("text");
    TCase *c = tcase_create("text");
    tcase_add_loop_test(c, refusals, 0, sizeof refused / sizeof *refused);
    tcase_add_test(c, too_many_decoders);
    tcase_add_test(c, foreign_files);
    tcase_add_test(c, unreadable_file);
    tcase_add_test(c, invalid_utf8);
    tcase_add_test(c, byte_without_token);
    tcase_add_loop_test(c, long_runs, 0, 3);
    tcase_add_test(c, match_limit);
    tcase_add_test(c, control_strings_stay_text);
    tcase_add_test(c, ignore_merges_is_no_way_in);
    tcase_add_test(c, lookups);
    tcase_add_test(c, config_names);
    tcase_add_loop_test(c, detok_after_any_prompt, 0, 6);
    tcase_add_test(c, detok_unfinished);
    tcase_add_loop_test(c, vocab_and_merges, 0, 3);
    tcase_add_test(c, vocab_and_merges_refused);
    tcase_add_test(c, byte_alphabet);
    tcase_add_test(c, respelling);
    suite_add_tcase(s, c);
    return test_main(s);
}
