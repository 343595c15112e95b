/* The tokenizer against its golden vectors: every text, random string, long run and
 * random list of ids of golden/tokenizer, and the "text" member of every
 * golden model. */
#include "tests/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/map.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "text/tokenizer.h"

/* --- SHA-256 (FIPS 180-4), for long lists of ids -------------------------- */

static const uint32_t sha_k[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static uint32_t rotr(uint32_t x, unsigned n)
{
    return x >> n | x << (32 - n);
}

static void sha_block(uint32_t h[8], const uint8_t *p)
{
    uint32_t w[64], s[8];
    for (int i = 0; i < 16; i++)
        w[i] = (uint32_t)p[4 * i] << 24 | (uint32_t)p[4 * i + 1] << 16 | (uint32_t)p[4 * i + 2] << 8 |
               p[4 * i + 3];
    for (int i = 16; i < 64; i++)
        w[i] = w[i - 16] + (rotr(w[i - 15], 7) ^ rotr(w[i - 15], 18) ^ w[i - 15] >> 3) + w[i - 7] +
               (rotr(w[i - 2], 17) ^ rotr(w[i - 2], 19) ^ w[i - 2] >> 10);
    memcpy(s, h, sizeof s);
    for (int i = 0; i < 64; i++) {
        uint32_t t1 = s[7] + (rotr(s[4], 6) ^ rotr(s[4], 11) ^ rotr(s[4], 25)) +
                      ((s[4] & s[5]) ^ (~s[4] & s[6])) + sha_k[i] + w[i];
        uint32_t t2 = (rotr(s[0], 2) ^ rotr(s[0], 13) ^ rotr(s[0], 22)) +
                      ((s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]));
        memmove(s + 1, s, 7 * sizeof *s);
        s[4] += t1;
        s[0] = t1 + t2;
    }
    for (int i = 0; i < 8; i++)
        h[i] += s[i];
}

static void sha256_hex(const uint8_t *p, size_t len, char out[65])
{
    uint32_t h[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                     0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    uint8_t tail[128] = {0};
    size_t n = len / 64 * 64, rest = len - n, n_tail = rest < 56 ? 64 : 128;
    for (size_t i = 0; i < n; i += 64)
        sha_block(h, p + i);
    memcpy(tail, p + n, rest);
    tail[rest] = 0x80;
    for (int i = 0; i < 8; i++)
        tail[n_tail - 1 - (size_t)i] = (uint8_t)((uint64_t)len * 8 >> 8 * i);
    for (size_t i = 0; i < n_tail; i += 64)
        sha_block(h, tail + i);
    for (int i = 0; i < 8; i++)
        snprintf(out + 8 * i, 9, "%08x", h[i]);
}

START_TEST(sha_of_known_text)
{
    char hex[65];
    sha256_hex((const uint8_t *)"abc", 3, hex);
    ck_assert_str_eq(hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}
END_TEST

/* --- comparing ------------------------------------------------------------ */

static void fail_ids(const char *what, const char *text, const struct ids *got, const int32_t *want,
                     size_t n_want)
{
    struct buf b;
    buf_init(&b);
    buf_puts(&b, "got ");
    buf_put_json_ids(&b, got->v, got->n);
    buf_puts(&b, " want ");
    buf_put_json_ids(&b, want, n_want);
    ck_abort_msg("%s \"%s\": %.3000s", what, text, buf_str(&b));
}

static void check_ids(const struct tokenizer *t, const char *what, const char *text, size_t len,
                      unsigned flags, const cJSON *want)
{
    struct err err = {0};
    struct ids got;
    size_t n;
    int32_t *ids = test_ids(want, &n);
    ids_init(&got);
    ck_assert_msg(tokenizer_encode(t, text, len, flags, &got, &err) == 0, "%s \"%s\": %s", what, text,
                  err.msg);
    if (got.n != n || (n && memcmp(got.v, ids, n * sizeof *ids) != 0))
        fail_ids(what, text, &got, ids, n);
    ids_fini(&got);
    free(ids);
}

/* Decodes, at once and piece by piece, and compares both with the text. */
static void check_decode(const struct tokenizer *t, const char *what, const int32_t *ids, size_t n, bool skip,
                         const char *want, size_t len)
{
    struct err err = {0};
    struct buf all, parts;
    struct detok *d;
    buf_init(&all);
    buf_init(&parts);
    ck_assert_msg(tokenizer_decode(t, ids, n, skip, &all, &err) == 0, "%s: %s", what, err.msg);
    ck_assert_msg(all.len == len && memcmp(buf_str(&all), want, len) == 0,
                  "%s skip %d: got \"%s\" want \"%s\"", what, skip, buf_str(&all), want);
    ck_assert_int_eq(detok_new(&d, t, NULL, 0, skip, &err), 0);
    for (size_t i = 0; i < n; i++) {
        size_t before = parts.len;
        ck_assert_int_eq(detok_push(d, ids[i], &parts, &err), 0);
        ck_assert_msg(utf8_valid(buf_str(&parts) + before, parts.len - before, NULL), "%s: half a character",
                      what);
    }
    ck_assert_int_eq(detok_finish(d, &parts, &err), 0);
    ck_assert_msg(parts.len == len && memcmp(buf_str(&parts), want, len) == 0,
                  "%s skip %d: pieces \"%s\" want \"%s\"", what, skip, buf_str(&parts), want);
    detok_free(d);
    buf_fini(&all);
    buf_fini(&parts);
}

static void check_decode_member(const struct tokenizer *t, const cJSON *item, bool skip, const char *text,
                                size_t len)
{
    const char *key = skip ? "decode_skip" : "decode";
    char hex_key[32];
    snprintf(hex_key, sizeof hex_key, "%s_hex", key);
    size_t n;
    int32_t *ids = test_ids(json_get(item, "ids"), &n);
    if (json_get(item, key) || json_get(item, hex_key)) {
        size_t want_len;
        char *want;
        const cJSON *nested = json_get(item, key); /* a text with a NUL: {"hex": ...} */
        want =
            cJSON_IsObject(nested) ? test_text(nested, "text", &want_len) : test_text(item, key, &want_len);
        check_decode(t, key, ids, n, skip, want, want_len);
        free(want);
    } else if (text) {
        check_decode(t, key, ids, n, skip, text, len);
    }
    free(ids);
}

/* whole: the vector also says what plain reading and decoding give. */
static void check_vector(const struct tokenizer *t, const cJSON *item, bool whole)
{
    size_t len;
    char *text = test_text(item, "text", &len);
    const cJSON *ids = json_get(item, "ids"), *bos = json_get(item, "ids_bos"),
                *plain = json_get(item, "ids_plain");
    check_ids(t, "ids", text, len, TOK_PARSE_SPECIAL, ids);
    check_ids(t, "ids_bos", text, len, TOK_PARSE_SPECIAL | TOK_ADD_SPECIAL, bos ? bos : ids);
    if (whole) {
        check_ids(t, "ids_plain", text, len, 0, plain ? plain : ids);
        check_decode_member(t, item, false, text, len);
        check_decode_member(t, item, true, text, len);
    }
    free(text);
}

static void check_long(const struct tokenizer *t, const cJSON *item)
{
    const cJSON *rep = json_get(item, "repeat");
    struct buf unit, text;
    struct ids got;
    struct err err = {0};
    buf_init(&unit);
    buf_init(&text);
    ids_init(&got);
    ck_assert(json_str(rep->child, &unit));
    for (int i = 0; i < rep->child->next->valueint; i++)
        buf_put(&text, unit.data, unit.len);
    ck_assert_msg(tokenizer_encode(t, text.data, text.len, TOK_PARSE_SPECIAL, &got, &err) == 0, "%s",
                  err.msg);
    uint8_t *bytes = mem_array(got.n, 4);
    for (size_t i = 0; i < got.n; i++)
        for (int k = 0; k < 4; k++)
            bytes[4 * i + (size_t)k] = (uint8_t)((uint32_t)got.v[i] >> 8 * k);
    char hex[65];
    sha256_hex(bytes, got.n * 4, hex);
    ck_assert_msg(strcmp(hex, json_get(item, "sha256")->valuestring) == 0, "\"%s\" x %d: %zu ids, want %d",
                  unit.data, rep->child->next->valueint, got.n, json_get(item, "n_ids")->valueint);
    free(bytes);
    ids_fini(&got);
    buf_fini(&unit);
    buf_fini(&text);
}

static const struct {
    const char *vectors, *folder; /* below golden */
} sets[] = {
    {"gemma", "tokenizer/gemma"},          {"gpt2", "tokenizer/gpt2"},
    {"llama2", "tokenizer/llama2"},        {"llama2-metaspace", "tokenizer/llama2-metaspace"},
    {"llama3", "tokenizer/llama3"},        {"phi3", "tokenizer/phi3"},
    {"qwen2", "tokenizer/qwen2"},          {"qwen3", "tokenizer/qwen3"},
    {"smollm", "tokenizer/smollm"},        {"tekken", "tokenizer/tekken"},
    {"gpt2", "extra/tokenizer/gpt2-pair"}, {"qwen2", "extra/tokenizer/qwen2-pair"},
};

static struct tokenizer *open_or_fail(const char *path)
{
    struct tokenizer *t;
    struct err err = {0};
    ck_assert_msg(tokenizer_open(&t, path, &err) == 0, "%s", err.msg);
    return t;
}

START_TEST(golden_vectors)
{
    char name[128];
    snprintf(name, sizeof name, "golden/tokenizer/%s.json", sets[_i].vectors);
    cJSON *j = test_json(name);
    snprintf(name, sizeof name, "golden/%s", sets[_i].folder);
    struct tokenizer *t = open_or_fail(test_path(name));
    int n = 0;
    const cJSON *item;
    cJSON_ArrayForEach(item, json_get(j, "texts")) check_vector(t, item, true), n++;
    cJSON_ArrayForEach(item, json_get(j, "random")) check_vector(t, item, true), n++;
    cJSON_ArrayForEach(item, json_get(j, "long")) check_long(t, item), n++;
    cJSON_ArrayForEach(item, json_get(j, "decode"))
    {
        check_decode_member(t, item, false, NULL, 0);
        check_decode_member(t, item, true, NULL, 0);
        n++;
    }
    ck_assert_int_ge(n, 600);
    ck_assert_int_ge(tokenizer_n_ids(t), json_get(j, "n_vocab")->valueint);
    tokenizer_close(t);
    cJSON_Delete(j);
}
END_TEST

/* The real vocabulary of 151,643 entries is not in the tree. */
START_TEST(qwen_real)
{
    const char *path = getenv("FORGE_QWEN_TOKENIZER");
    if (!path) {
        test_skip("FORGE_QWEN_TOKENIZER does not name the real Qwen tokenizer.json");
        return;
    }
    cJSON *j = test_json("golden/tokenizer/qwen-real.json");
    struct tokenizer *t = open_or_fail(path);
    const cJSON *item;
    cJSON_ArrayForEach(item, json_get(j, "texts")) check_vector(t, item, false);
    cJSON_ArrayForEach(item, json_get(j, "random")) check_vector(t, item, false);
    tokenizer_close(t);
    cJSON_Delete(j);
}
END_TEST

static const char *const models[] = {"gemma3",  "llama",        "llama-sharded", "llama3-rope",
                                     "mistral", "phi3",         "qwen2",         "qwen3-moe",
                                     "qwen3",   "qwen3-untied", "smollm"};

/* Prompt to ids, ids to text, and the pieces of the new text after the prompt. */
START_TEST(golden_models)
{
    char name[128];
    snprintf(name, sizeof name, "golden/expected/%s.json", models[_i]);
    cJSON *j = test_json(name);
    const cJSON *text = json_get(j, "text");
    snprintf(name, sizeof name, "golden/models/%s", models[_i]);
    struct tokenizer *t = open_or_fail(test_path(name));
    const char *prompt = json_get(text, "prompt")->valuestring,
               *full = json_get(text, "full_text")->valuestring;
    check_ids(t, "prompt", prompt, strlen(prompt), TOK_ADD_SPECIAL, json_get(text, "ids"));
    size_t n_ids, n_new;
    int32_t *ids = test_ids(json_get(text, "ids"), &n_ids),
            *new_ids = test_ids(json_get(text, "greedy"), &n_new);
    struct err err = {0};
    struct buf old, all;
    struct detok *d;
    buf_init(&old);
    buf_init(&all);
    ck_assert_int_eq(tokenizer_decode(t, ids, n_ids, true, &old, &err), 0);
    ck_assert_int_eq(detok_new(&d, t, ids, n_ids, true, &err), 0);
    buf_put(&all, old.data, old.len);
    for (size_t i = 0; i < n_new; i++)
        ck_assert_int_eq(detok_push(d, new_ids[i], &all, &err), 0);
    ck_assert_int_eq(detok_finish(d, &all, &err), 0);
    ck_assert_str_eq(buf_str(&all), full);
    buf_clear(&all);
    ck_assert_int_eq(tokenizer_decode(t, new_ids, n_new, true, &all, &err), 0);
    ck_assert_str_eq(buf_str(&all), json_get(text, "new_text")->valuestring);
    detok_free(d);
    buf_fini(&old);
    buf_fini(&all);
    free(ids);
    free(new_ids);
    tokenizer_close(t);
    cJSON_Delete(j);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("text_golden");
    TCase *c = tcase_create("golden");
    tcase_add_test(c, sha_of_known_text);
    tcase_add_loop_test(c, golden_vectors, 0, sizeof sets / sizeof *sets);
    tcase_add_test(c, qwen_real);
    tcase_add_loop_test(c, golden_models, 0, sizeof models / sizeof *models);
    suite_add_tcase(s, c);
    return test_main(s);
}
