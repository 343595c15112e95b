/* Each normalizer, pre-tokenizer and decoder alone, and small tokenizers with added
 * tokens, against golden/text/steps.json, which the tokenizers library made
 * (make/make_steps.py). */
#include "tests/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "text/parts.h"
#include "text/pieces.h"

static cJSON *golden;

static void load(void)
{
    golden = test_json("golden/text/steps.json");
}

static void unload(void)
{
    cJSON_Delete(golden);
}

static char *print(const cJSON *j)
{
    return cJSON_PrintUnformatted(j);
}

static void expect_text(const cJSON *step, const cJSON *c, const struct buf *got, const cJSON *want)
{
    struct buf w;
    buf_init(&w);
    ck_assert(json_str(want, &w));
    if (w.len != got->len || memcmp(buf_str(&w), buf_str(got), w.len) != 0)
        ck_abort_msg("%s %s: got \"%s\"", print(step), print(c), buf_str(got));
    buf_fini(&w);
}

START_TEST(normalizers)
{
    const cJSON *item, *c;
    int n = 0;
    cJSON_ArrayForEach(item, json_get(golden, "normalizer"))
    {
        struct normalizer z;
        struct err err = {0};
        const cJSON *step = json_get(item, "step");
        normalizer_init(&z);
        ck_assert_msg(json_normalizer(&z, step, "test", &err) == 0, "%s", err.msg);
        cJSON_ArrayForEach(c, json_get(item, "cases"))
        {
            struct buf in, out;
            buf_init(&in);
            buf_init(&out);
            json_str(c->child, &in);
            ck_assert_msg(normalizer_run(&z, buf_str(&in), in.len, &out, &err) == 0, "%s", err.msg);
            expect_text(step, c, &out, c->child->next);
            buf_fini(&in);
            buf_fini(&out);
            n++;
        }
        normalizer_fini(&z);
    }
    ck_assert_int_ge(n, 200);
}
END_TEST

static void expect_pieces(const cJSON *step, const cJSON *c, const struct pieces *got)
{
    size_t i = 0;
    const cJSON *want;
    cJSON_ArrayForEach(want, c->child->next)
    {
        struct buf w;
        buf_init(&w);
        json_str(want, &w);
        if (i >= got->n || got->v[i].len != w.len ||
            memcmp(got->text.data + got->v[i].off, buf_str(&w), w.len) != 0)
            ck_abort_msg("%s %s: piece %zu is \"%.*s\"", print(step), print(c), i,
                         i < got->n ? (int)got->v[i].len : 0,
                         i < got->n ? got->text.data + got->v[i].off : "");
        buf_fini(&w);
        i++;
    }
    ck_assert_msg(i == got->n, "%s %s: %zu pieces", print(step), print(c), got->n);
}

START_TEST(pretokenizers)
{
    const cJSON *item, *c;
    int n = 0;
    cJSON_ArrayForEach(item, json_get(golden, "pre_tokenizer"))
    {
        struct pretok p;
        struct err err = {0};
        const cJSON *step = json_get(item, "step");
        pretok_init(&p);
        ck_assert_msg(json_pretok(&p, step, "test", &err) == 0, "%s", err.msg);
        cJSON_ArrayForEach(c, json_get(item, "cases"))
        {
            struct buf in;
            struct pieces a, b;
            buf_init(&in);
            pieces_init(&a);
            pieces_init(&b);
            json_str(c->child, &in);
            ck_assert_int_eq(pieces_put(&a, buf_str(&in), in.len, -1, true, &err), 0);
            ck_assert_msg(pretok_run(&p, &a, &b, &err) == 0, "%s", err.msg);
            expect_pieces(step, c, &a);
            pieces_fini(&a);
            pieces_fini(&b);
            buf_fini(&in);
            n++;
        }
        pretok_fini(&p);
    }
    ck_assert_int_ge(n, 1000);
}
END_TEST

START_TEST(decoders)
{
    const cJSON *item, *c, *tok;
    int n = 0;
    cJSON_ArrayForEach(item, json_get(golden, "decoder"))
    {
        struct decoder d;
        struct err err = {0};
        const cJSON *step = json_get(item, "step");
        decoder_init(&d);
        ck_assert_msg(json_decoder(&d, step, "test", &err) == 0 && decoder_close(&d, "test", &err) == 0, "%s",
                      err.msg);
        cJSON_ArrayForEach(c, json_get(item, "cases"))
        {
            struct decode_stream s;
            struct buf out, in;
            buf_init(&out);
            buf_init(&in);
            decode_stream_init(&s, &d);
            cJSON_ArrayForEach(tok, c->child)
            {
                buf_clear(&in);
                json_str(tok, &in);
                ck_assert_int_eq(decode_push(&s, buf_str(&in), in.len, &out, &err), 0);
            }
            ck_assert_int_eq(decode_finish(&s, &out, &err), 0);
            expect_text(step, c, &out, c->child->next);
            decode_stream_fini(&s);
            buf_fini(&out);
            buf_fini(&in);
            n++;
        }
        decoder_fini(&d);
    }
    ck_assert_int_ge(n, 140);
}
END_TEST

static void expect_ids(const struct tokenizer *t, const cJSON *row, const char *key, unsigned flags)
{
    struct ids got;
    struct buf text, shown;
    struct err err = {0};
    size_t n;
    int32_t *want = test_ids(json_get(row, key), &n);
    ids_init(&got);
    buf_init(&text);
    buf_init(&shown);
    json_str(json_get(row, "text"), &text);
    ck_assert_msg(tokenizer_encode(t, buf_str(&text), text.len, flags, &got, &err) == 0, "%s", err.msg);
    buf_put_json_ids(&shown, got.v, got.n);
    if (got.n != n || (n && memcmp(got.v, want, n * sizeof *want) != 0))
        ck_abort_msg("%s %s: got %s", key, print(row), buf_str(&shown));
    free(want);
    ids_fini(&got);
    buf_fini(&text);
    buf_fini(&shown);
}

static void expect_decoded(const struct tokenizer *t, const cJSON *row, const char *key, bool skip)
{
    struct buf got;
    struct err err = {0};
    size_t n;
    int32_t *ids = test_ids(json_get(row, "ids_bos"), &n);
    buf_init(&got);
    ck_assert_int_eq(tokenizer_decode(t, ids, n, skip, &got, &err), 0);
    expect_text(row, row, &got, json_get(row, key));
    buf_fini(&got);
    free(ids);
}

START_TEST(small_tokenizers)
{
    const cJSON *item, *row;
    int n = 0;
    cJSON_ArrayForEach(item, json_get(golden, "tokenizer"))
    {
        const char *path = test_tmp("small.json");
        char *text = print(json_get(item, "json"));
        FILE *f = fopen(path, "wb");
        ck_assert_ptr_nonnull(f);
        fputs(text, f);
        ck_assert_int_eq(fclose(f), 0);
        struct tokenizer *t;
        struct err err = {0};
        ck_assert_msg(tokenizer_open(&t, path, &err) == 0, "%s", err.msg);
        cJSON_ArrayForEach(row, json_get(item, "texts"))
        {
            expect_ids(t, row, "ids", TOK_PARSE_SPECIAL);
            expect_ids(t, row, "ids_bos", TOK_PARSE_SPECIAL | TOK_ADD_SPECIAL);
            expect_ids(t, row, "ids_plain", 0);
            n++;
            if (!json_get(row, "decode"))
                continue;
            expect_decoded(t, row, "decode", false);
            expect_decoded(t, row, "decode_skip", true);
        }
        tokenizer_close(t);
        free(text);
    }
    ck_assert_int_ge(n, 250);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("text_steps");
    TCase *c = tcase_create("steps");
    tcase_add_checked_fixture(c, load, unload);
    tcase_add_test(c, normalizers);
    tcase_add_test(c, pretokenizers);
    tcase_add_test(c, decoders);
    tcase_add_test(c, small_tokenizers);
    suite_add_tcase(s, c);
    return test_main(s);
}
