/* base/: errors, log, memory, bytes, UTF-8, hash and maps, random numbers,
 * clock.
 *
 * JSON, threads, files and control groups have their own test files. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/utf8.h"
#include "tests/test.h"

#define COUNT(a) (int)(sizeof(a) / sizeof((a)[0]))

/* ---- err ---- */

static const struct {
    const char *in, *out;
} err_cases[] = {
    {"plain", "plain"},
    {"", ""},
    {"h\xC3\xA9 \xE6\xBC\xA2 \xF0\x9F\x98\x80", "h\xC3\xA9 \xE6\xBC\xA2 \xF0\x9F\x98\x80"},
    {"a\nb\tc\x1b[31md\x7f", "a?b?c?[31md?"},
    {"\xC2\x9B" "31m", "?31m"},           /* a C1 control in UTF-8 */
    {"\xFF\xFE x \xC3", "?? x ?"},
    {"\xE2\x80\xA8", "?"},                /* line separator */
};

START_TEST(err_sanitised)
{
    struct err e;
    ck_assert_int_eq(err_set(&e, ERR_IO, "%s", err_cases[_i].in), ERR_IO);
    ck_assert_int_eq(e.code, ERR_IO);
    ck_assert_str_eq(e.msg, err_cases[_i].out);
}
END_TEST

START_TEST(err_wrapping)
{
    struct err e;
    char big[3000];
    err_set(&e, ERR_FORMAT, "inner %d", 7);
    ck_assert_int_eq(err_wrap(&e, "file %s", "x\n"), ERR_FORMAT);
    ck_assert_str_eq(e.msg, "file x?: inner 7");
    err_set(&e, ERR_LIMIT, "again: %s", e.msg); /* its own message as an argument */
    ck_assert_str_eq(e.msg, "again: file x?: inner 7");
    err_clear(&e);
    ck_assert_int_eq(e.code, 0);
    ck_assert_str_eq(e.msg, "");
    memset(big, 'a', sizeof big);
    memcpy(big + ERR_MSG_SIZE - 3, "\xE6\xBC\xA2", 3); /* would be cut in the middle */
    big[sizeof big - 1] = '\0';
    err_set(&e, ERR_IO, "%s", big);
    ck_assert(utf8_valid(e.msg, strlen(e.msg), NULL));
    ck_assert_uint_ge(strlen(e.msg), ERR_MSG_SIZE - 3);
    err_wrap(&e, "%s", big);
    ck_assert(utf8_valid(e.msg, strlen(e.msg), NULL));
    ck_assert_int_eq(err_set(NULL, ERR_ARG, "x"), ERR_ARG);
    ck_assert_int_eq(err_wrap(NULL, "x"), ERR_INTERNAL);
    err_clear(NULL);
}
END_TEST

/* ---- log ---- */

static struct {
    int n;
    enum log_level level;
    char line[4096];
} logged;

static void keep_line(void *user, enum log_level level, const char *line)
{
    ck_assert_ptr_eq(user, &logged);
    logged.n++;
    logged.level = level;
    snprintf(logged.line, sizeof logged.line, "%s", line);
}

START_TEST(log_filter)
{
    char big[5000];
    log_msg(LOG_ERROR, "nobody listens");
    ck_assert(!log_wanted(LOG_ERROR, 0));
    log_set(keep_line, &logged, LOG_INFO, LOG_KV);
    log_msg(LOG_VERBOSE, "too much");
    log_debug(LOG_KV, "debug is above info");
    ck_assert_int_eq(logged.n, 0);
    log_msg(LOG_WARN, "w %d\x1b", 3);
    ck_assert_int_eq(logged.n, 1);
    ck_assert_int_eq(logged.level, LOG_WARN);
    ck_assert_str_eq(logged.line, "w 3?");
    log_set(keep_line, &logged, LOG_DEBUG, LOG_KV | LOG_CL);
    log_debug(LOG_LOAD, "other category");
    ck_assert_int_eq(logged.n, 1);
    log_debug(LOG_CL, "cl");
    ck_assert_int_eq(logged.n, 2);
    ck_assert(log_wanted(LOG_DEBUG, LOG_KV) && !log_wanted(LOG_DEBUG, LOG_TEXT));
    memset(big, 'x', sizeof big);
    big[sizeof big - 1] = '\0';
    log_msg(LOG_INFO, "%s", big);
    ck_assert_int_eq(logged.n, 3);
    log_set(NULL, NULL, LOG_ERROR, 0);
    ck_assert_uint_eq(log_category_parse("load"), LOG_LOAD);
    ck_assert_uint_eq(log_category_parse("sched"), LOG_SCHED);
    ck_assert_uint_eq(log_category_parse("nothing"), 0);
}
END_TEST

/* ---- mem ---- */

static const struct {
    int64_t a, b;
    bool ok;
} mul_cases[] = {
    {0, INT64_MIN, true},          {INT64_MIN, 0, true},   {INT64_MIN, 1, true},
    {INT64_MIN, -1, false},        {-1, INT64_MIN, false}, {INT64_MAX, -1, true},
    {INT64_C(1) << 32, INT64_C(1) << 31, false}, {INT64_C(1) << 31, INT64_C(1) << 31, true},
    {-(INT64_C(1) << 32), INT64_C(1) << 31, true}, {-(INT64_C(1) << 32), (INT64_C(1) << 31) + 1, false},
    {INT64_C(1) << 31, -(INT64_C(1) << 32), true}, {(INT64_C(1) << 31) + 1, -(INT64_C(1) << 32), false},
    {-3, -4, true},
};

START_TEST(mem_products)
{
    int64_t v = 77;
    bool ok = mem_mul_i64(mul_cases[_i].a, mul_cases[_i].b, &v);
    ck_assert_int_eq(ok, mul_cases[_i].ok);
    if (ok)
        ck_assert(v == (int64_t)((uint64_t)mul_cases[_i].a * (uint64_t)mul_cases[_i].b));
    else
        ck_assert_int_eq(v, 77);
}
END_TEST

START_TEST(mem_checked)
{
    size_t v;
    ck_assert(mem_mul(SIZE_MAX / 2, 2, &v) && v == SIZE_MAX - 1);
    ck_assert(!mem_mul(SIZE_MAX / 2 + 1, 2, &v));
    ck_assert(mem_mul(0, SIZE_MAX, &v) && v == 0);
    ck_assert(mem_add(SIZE_MAX - 1, 1, &v) && v == SIZE_MAX);
    ck_assert(!mem_add(SIZE_MAX, 1, &v));
    ck_assert_ptr_null(mem_array(SIZE_MAX / 4, 8));
    ck_assert_ptr_null(mem_array(SIZE_MAX / 2 + 2, 1)); /* above PTRDIFF_MAX */
    ck_assert_ptr_null(mem_aligned(64, SIZE_MAX - 10));
    char *p = mem_array(0, 8);
    ck_assert_ptr_nonnull(p);
    free(p);
    p = mem_array(100, 3);
    for (int i = 0; i < 300; i++)
        ck_assert_int_eq(p[i], 0);
    free(p);
    p = mem_aligned(4096, 10);
    ck_assert_uint_eq((uintptr_t)p % 4096, 0);
    free(p);
    p = mem_aligned(1, 0);
    ck_assert_ptr_nonnull(p);
    free(p);
    p = mem_strndup("abc\0def", 7);
    ck_assert_mem_eq(p, "abc\0def", 8);
    free(p);
    ck_assert_ptr_null(mem_strndup("x", SIZE_MAX));
    p = mem_strdup("hello");
    ck_assert_str_eq(p, "hello");
    free(p);
}
END_TEST

START_TEST(mem_growing)
{
    size_t cap = 0, steps = 0;
    int *p = NULL;
    for (size_t n = 1; n <= 100000; n++) {
        size_t before = cap;
        int *q = mem_grow(p, &cap, n, sizeof *p);
        test_that(q != NULL, "refused at %zu", n);
        p = q;
        steps += cap != before;
        p[n - 1] = (int)n;
    }
    ck_assert_uint_lt(steps, 30); /* geometric */
    for (int n = 1; n <= 100000; n++)
        test_that(p[n - 1] == n, "element %d is %d", n, p[n - 1]);
    size_t kept = cap;
    ck_assert_ptr_null(mem_grow(p, &cap, SIZE_MAX / 4, sizeof *p));
    ck_assert_uint_eq(cap, kept);
    free(p);
}
END_TEST

START_TEST(mem_arena)
{
    struct arena a;
    arena_init(&a);
    unsigned char *last = NULL;
    for (size_t i = 0; i < 5000; i++) {
        size_t size = i % 37 == 0 ? 9000 : i % 50;
        unsigned char *p = arena_alloc(&a, size);
        test_that(p && (uintptr_t)p % 16 == 0, "block %zu at %p", i, (void *)p);
        for (size_t j = 0; j < size; j++)
            test_that(p[j] == 0, "block %zu, byte %zu is %d", i, j, p[j]);
        memset(p, 0xAA, size);
        last = p;
    }
    ck_assert_ptr_nonnull(last);
    ck_assert_ptr_nonnull(arena_alloc(&a, 3u << 20)); /* larger than any block */
    char *s = arena_strndup(&a, "text and more", 4);
    ck_assert_str_eq(s, "text");
    ck_assert_ptr_null(arena_alloc(&a, SIZE_MAX - 3));
    ck_assert_ptr_null(arena_strndup(&a, "x", SIZE_MAX));
    arena_fini(&a);
    arena_fini(&a);
}
END_TEST

START_TEST(mem_figures)
{
    ck_assert_uint_gt(mem_available(), 1 << 20);
    ck_assert_uint_gt(mem_peak_rss(), 1 << 18);
    double t = clock_now();
    ck_assert(clock_now() >= t);
}
END_TEST

/* ---- buf ---- */

START_TEST(buf_basics)
{
    struct buf b;
    buf_init(&b);
    ck_assert_str_eq(buf_str(&b), "");
    buf_clear(&b);
    buf_put(&b, "a\0b", 3);
    buf_putc(&b, 'c');
    buf_puts(&b, "de");
    buf_printf(&b, "%s-%d", "fg", 12);
    ck_assert_uint_eq(b.len, 11);
    ck_assert_mem_eq(b.data, "a\0bcdefg-12", 12);
    buf_clear(&b);
    ck_assert_str_eq(buf_str(&b), "");
    for (int i = 0; i < 10000; i++)
        buf_printf(&b, "%04d", i);
    ck_assert_uint_eq(b.len, 40000);
    ck_assert_str_eq(b.data + 39992, "99989999");
    ck_assert(!buf_failed(&b));
    ck_assert(!buf_reserve(&b, SIZE_MAX));
    ck_assert(buf_failed(&b));
    buf_puts(&b, "ignored");
    buf_printf(&b, "%d", 1);
    ck_assert_uint_eq(b.len, 40000);
    buf_fini(&b);
    ck_assert(!buf_reserve(&b, SIZE_MAX / 2 + 10));
    ck_assert(b.failed);
    buf_fini(&b);
}
END_TEST

static const struct {
    const char *in;
    size_t len;
    const char *out;
} json_cases[] = {
    {"", 0, "\"\""},
    {"a\"b\\c/", 6, "\"a\\\"b\\\\c/\""},
    {"\b\f\n\r\t\0\x1f\x7f", 8, "\"\\b\\f\\n\\r\\t\\u0000\\u001f\x7f\""},
    {"h\xC3\xA9\xF0\x9F\x98\x80", 7, "\"h\xC3\xA9\xF0\x9F\x98\x80\""},
    {"\xFFx\xE2\x82", 4, "\"\xEF\xBF\xBDx\xEF\xBF\xBD\""},
};

START_TEST(buf_json)
{
    struct buf b, back;
    buf_init(&b);
    buf_init(&back);
    buf_put_json(&b, json_cases[_i].in, json_cases[_i].len);
    ck_assert_str_eq(buf_str(&b), json_cases[_i].out);
    cJSON *root;
    json_parse(&root, b.data, b.len, "x", NULL);
    ck_assert(json_str(root, &back));
    if (utf8_valid(json_cases[_i].in, json_cases[_i].len, NULL)) {
        ck_assert_uint_eq(back.len, json_cases[_i].len);
        ck_assert_mem_eq(buf_str(&back), json_cases[_i].in, back.len);
    }
    cJSON_Delete(root);
    buf_fini(&back);
    buf_fini(&b);
}
END_TEST

static const struct {
    double v;
    const char *out;
} num_cases[] = {
    {0, "0"},           {1, "1"},         {-3, "-3"},      {0.1, "0.1"},  {1e300, "1e+300"},
    {1.0 / 3, "0.3333333333333333"},      {5e-324, "4.94065645841247e-324"},
    {123456789, "123456789"},             {9007199254740993.0, "9007199254740992"},
    {NAN, "null"},      {INFINITY, "null"}, {-INFINITY, "null"}, {0.5f, "0.5"},
};

START_TEST(buf_numbers)
{
    struct buf b;
    buf_init(&b);
    buf_put_json_num(&b, num_cases[_i].v);
    ck_assert_str_eq(buf_str(&b), num_cases[_i].out);
    buf_fini(&b);
}
END_TEST

START_TEST(buf_numbers_read_back)
{
    for (uint64_t i = 0; i < 20000; i++) {
        uint64_t bits = hash_u64(i);
        double v;
        struct buf b;
        memcpy(&v, &bits, sizeof v);
        if (!isfinite(v))
            continue;
        buf_init(&b);
        buf_put_json_num(&b, v);
        double back = strtod(b.data, NULL);
        test_that(memcmp(&back, &v, sizeof v) == 0, "%a reads back as %a", v, back);
        buf_fini(&b);
    }
    struct buf b;
    static const int32_t ids[] = {0, -1, 151643, INT32_MAX, INT32_MIN};
    buf_init(&b);
    buf_put_json_ids(&b, ids, 0);
    buf_put_json_ids(&b, ids, 5);
    ck_assert_str_eq(buf_str(&b), "[][0,-1,151643,2147483647,-2147483648]");
    buf_fini(&b);
}
END_TEST

/* ---- utf8 ---- */

#define R "\xEF\xBF\xBD"

/* `lossy` as Python's bytes.decode("utf-8", "replace") gives it; tail = bytes that could go on. */
static const struct {
    const char *in;
    size_t len, bad;
    const char *lossy;
    size_t tail;
} utf8_cases[] = {
    {"", 0, 0, "", 0},
    {"abc", 3, 3, "abc", 0},
    {"abcdefghijklmnop\xC3\xA9", 18, 18, "abcdefghijklmnop\xC3\xA9", 0},
    {"abcdefghijklmn\xFF", 15, 14, "abcdefghijklmn" R, 0},
    {"\xC2", 1, 0, R, 1},
    {"\xC0\x80", 2, 0, R R, 0},
    {"\xC1\xBF", 2, 0, R R, 0},
    {"\xE2\x82\xAC", 3, 3, "\xE2\x82\xAC", 0},
    {"\xE2\x82", 2, 0, R, 2},
    {"\xE2\x82" "a", 3, 0, R "a", 0},
    {"\xE0\x80\x80", 3, 0, R R R, 0},
    {"\xE0\x9F", 2, 0, R R, 0},
    {"\xED\xA0\x80", 3, 0, R R R, 0},
    {"\xED\x9F\xBF", 3, 3, "\xED\x9F\xBF", 0},
    {"\xF0\x9F\x98\x80", 4, 4, "\xF0\x9F\x98\x80", 0},
    {"x\xF0\x9F\x98", 4, 1, "x" R, 3},
    {"x\xF0\x9F", 3, 1, "x" R, 2},
    {"x\xF0", 2, 1, "x" R, 1},
    {"\xF0\x8F\xBF\xBF", 4, 0, R R R R, 0},
    {"\xF4\x8F\xBF\xBF", 4, 4, "\xF4\x8F\xBF\xBF", 0},
    {"\xF4\x90\x80\x80", 4, 0, R R R R, 0},
    {"\xF5\x80\x80\x80", 4, 0, R R R R, 0},
    {"\x80", 1, 0, R, 0},
    {"\xF0\x9F\x98\xC3\xA9", 5, 0, R "\xC3\xA9", 0},
};

START_TEST(utf8_table)
{
    const char *s = utf8_cases[_i].in;
    size_t len = utf8_cases[_i].len, bad = len;
    struct buf b;
    ck_assert_int_eq(utf8_valid(s, len, &bad), utf8_cases[_i].bad == len);
    ck_assert_uint_eq(bad, utf8_cases[_i].bad);
    ck_assert_uint_eq(utf8_partial_tail(s, len), utf8_cases[_i].tail);
    buf_init(&b);
    buf_put_utf8_lossy(&b, s, len);
    ck_assert_str_eq(buf_str(&b), utf8_cases[_i].lossy);
    buf_fini(&b);
}
END_TEST

START_TEST(utf8_all_characters)
{
    char s[4];
    for (uint32_t cp = 0; cp <= 0x10FFFF; cp++) {
        uint32_t back = 0;
        size_t n = utf8_encode(cp, s);
        bool surrogate = cp >= 0xD800 && cp <= 0xDFFF;
        test_that(utf8_decode(s, n, &back) == n, "U+%04X", cp);
        test_that(back == (surrogate ? 0xFFFD : cp), "U+%04X reads as U+%04X", cp, back);
        test_that(utf8_decode(s, n - 1, &back) == 0, "U+%04X cut short", cp);
        test_that(n == 1 || utf8_partial_tail(s, n - 1) == n - 1, "U+%04X: tail", cp);
    }
    ck_assert_uint_eq(utf8_encode(0x110000, s), 3);
}
END_TEST

START_TEST(utf8_one_line)
{
    char out[8];
    ck_assert_uint_eq(utf8_printable(out, sizeof out, "ab\xE2\x82\xAC" "cdef", 9), 7);
    ck_assert_str_eq(out, "ab\xE2\x82\xAC" "cd");
    ck_assert_uint_eq(utf8_printable(out, 5, "ab\xE2\x82\xAC", 5), 2); /* cut at a character */
    ck_assert_uint_eq(utf8_printable(out, 1, "ab", 2), 0);
    ck_assert_str_eq(out, "");
    ck_assert_uint_eq(utf8_printable(out, sizeof out, "a\0b", 3), 3);
    ck_assert_str_eq(out, "a?b");
}
END_TEST

/* ---- hash ---- */

START_TEST(hash_spread)
{
    /* over all single-bit changes of a 24-byte key: every output bit flips about half the time */
    unsigned char key[24];
    int flips[64] = {0}, n = 0;
    for (uint64_t trial = 0; trial < 50; trial++) {
        for (int i = 0; i < 24; i++)
            key[i] = (unsigned char)hash_u64(trial * 24 + (uint64_t)i);
        uint64_t h = hash_bytes(key, sizeof key, 1);
        for (int bit = 0; bit < 24 * 8; bit++, n++) {
            key[bit / 8] = (unsigned char)(key[bit / 8] ^ 1 << (bit % 8));
            uint64_t d = h ^ hash_bytes(key, sizeof key, 1);
            key[bit / 8] = (unsigned char)(key[bit / 8] ^ 1 << (bit % 8));
            for (int o = 0; o < 64; o++)
                flips[o] += (int)(d >> o & 1);
        }
    }
    for (int o = 0; o < 64; o++)
        ck_assert_msg(abs(flips[o] - n / 2) < n / 20, "bit %d flips %d of %d times", o, flips[o], n);
    ck_assert_uint_ne(hash_bytes("a", 1, 0), hash_bytes("a", 1, 1));
    ck_assert_uint_ne(hash_bytes("a", 1, 0), hash_bytes("a\0", 2, 0));
    ck_assert_uint_eq(hash_bytes(NULL, 0, 5), hash_bytes("", 0, 5));
}
END_TEST

START_TEST(map_of_strings)
{
    enum { N = 150000 };
    struct strmap m;
    uint32_t v = 0;
    char *keys = mem_array(N, 12);
    strmap_init(&m);
    ck_assert(!strmap_find(&m, "x", 1, &v));
    for (uint32_t i = 0; i < N; i++) {
        char *k = keys + 12 * (size_t)i;
        int len = snprintf(k, 12, "k%u", i);
        test_that(strmap_add(&m, k, (size_t)len, i) == 1, "%s not added", k);
    }
    ck_assert_uint_eq(m.n_used, N);
    ck_assert_uint_le(m.n_used * 3, m.n_slots * 2);
    for (uint32_t i = 0; i < N; i++) {
        char k[12];
        int len = snprintf(k, sizeof k, "k%u", i);
        test_that(strmap_find(&m, k, (size_t)len, &v) && v == i, "%s not found", k);
    }
    ck_assert(!strmap_find(&m, "k150000", 7, &v));
    ck_assert(!strmap_find(&m, "K1", 2, &v));
    ck_assert_int_eq(strmap_add(&m, "k5", 2, 99), 0);
    ck_assert(strmap_find(&m, "k5", 2, &v) && v == 5);
    strmap_set(&m, "k5", 2, 99);
    ck_assert(strmap_find(&m, "k5", 2, &v) && v == 99);
    ck_assert_int_eq(strmap_add(&m, "", 0, 7), 1); /* empty key, and keys with NULs */
    ck_assert_int_eq(strmap_add(&m, NULL, 0, 8), 0);
    ck_assert_int_eq(strmap_add(&m, "a\0b", 3, 1), 1);
    ck_assert_int_eq(strmap_add(&m, "a\0c", 3, 2), 1);
    ck_assert(strmap_find(&m, "", 0, &v) && v == 7);
    ck_assert(strmap_find(&m, "a\0c", 3, &v) && v == 2);
    ck_assert(!strmap_reserve(&m, SIZE_MAX));
    strmap_fini(&m);
    strmap_fini(&m);
    free(keys);
}
END_TEST

START_TEST(map_of_words)
{
    struct u64map m;
    uint64_t v = 0;
    u64map_init(&m);
    ck_assert(!u64map_find(&m, 0, &v));
    ck_assert_int_eq(u64map_add(&m, 1, 11), 1);
    ck_assert(!u64map_find(&m, 0, &v)); /* key 0 is a key like any other */
    ck_assert_int_eq(u64map_add(&m, 0, 10), 1);
    ck_assert_int_eq(u64map_add(&m, 0, 12), 0);
    for (uint64_t i = 2; i < 100000; i++)
        test_that(u64map_add(&m, i << 32 | i, i) == 1, "%llu not added", (unsigned long long)i);
    ck_assert_int_eq(u64map_add(&m, UINT64_MAX, 5), 1);
    for (uint64_t i = 2; i < 100000; i++)
        test_that(u64map_find(&m, i << 32 | i, &v) && v == i, "%llu not found", (unsigned long long)i);
    ck_assert(u64map_find(&m, 0, &v) && v == 10);
    ck_assert(u64map_find(&m, 1, &v) && v == 11);
    ck_assert(u64map_find(&m, UINT64_MAX, NULL));
    ck_assert(!u64map_find(&m, 2, &v));
    ck_assert_uint_eq(m.n_used, 100001);
    ck_assert(!u64map_reserve(&m, SIZE_MAX / 2));
    u64map_fini(&m);
}
END_TEST

/* ---- rng ---- */

/* Philox4x32-10: the all-zero, all-one and pi vectors of the authors' Random123 (kat_vectors);
 * of the four output words ours are the first two, low word first. */
static const struct {
    uint64_t seed, sample, position, out;
} rng_cases[] = {
    {0, 0, 0, UINT64_C(0xE169C58D6627E8D5)},
    {UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_C(0x41C83B0E408F276D)},
    {UINT64_C(0x299F31D0A4093822), UINT64_C(0x85A308D3243F6A88), UINT64_C(0x0370734413198A2E),
     UINT64_C(0x94FDCCEBD16CFE09)},
};

START_TEST(rng_vectors)
{
    ck_assert_uint_eq(rng_u64(rng_cases[_i].seed, rng_cases[_i].sample, rng_cases[_i].position),
                      rng_cases[_i].out);
}
END_TEST

START_TEST(rng_uniform)
{
    enum { N = 100000, BINS = 100 };
    for (int axis = 0; axis < 3; axis++) { /* each argument alone moves the draws */
        int bins[BINS] = {0};
        double sum = 0;
        for (uint64_t i = 0; i < N; i++) {
            double u = axis == 0 ? rng_unit(i, 3, 4) : axis == 1 ? rng_unit(3, i, 4) : rng_unit(3, 4, i);
            test_that(u >= 0 && u < 1, "%g", u);
            bins[(int)(u * BINS)]++;
            sum += u;
        }
        double chi2 = 0;
        for (int b = 0; b < BINS; b++)
            chi2 += pow(bins[b] - (double)N / BINS, 2) / ((double)N / BINS);
        /* 99 degrees of freedom: mean 99, standard deviation 14 */
        ck_assert_msg(chi2 > 40 && chi2 < 170, "axis %d: chi2 %g", axis, chi2);
        ck_assert_msg(fabs(sum / N - 0.5) < 0.005, "axis %d: mean %g", axis, sum / N);
    }
    ck_assert_uint_ne(rng_fresh_seed(), rng_fresh_seed());
}
END_TEST

int main(void)
{
    Suite *s = suite_create("base");
    TCase *c = tcase_create("err, log");
    tcase_add_loop_test(c, err_sanitised, 0, COUNT(err_cases));
    tcase_add_test(c, err_wrapping);
    tcase_add_test(c, log_filter);
    suite_add_tcase(s, c);
    c = tcase_create("mem");
    tcase_add_loop_test(c, mem_products, 0, COUNT(mul_cases));
    tcase_add_test(c, mem_checked);
    tcase_add_test(c, mem_growing);
    tcase_add_test(c, mem_arena);
    tcase_add_test(c, mem_figures);
    suite_add_tcase(s, c);
    c = tcase_create("buf, utf8");
    tcase_add_test(c, buf_basics);
    tcase_add_loop_test(c, buf_json, 0, COUNT(json_cases));
    tcase_add_loop_test(c, buf_numbers, 0, COUNT(num_cases));
    tcase_add_test(c, buf_numbers_read_back);
    tcase_add_loop_test(c, utf8_table, 0, COUNT(utf8_cases));
    tcase_add_test(c, utf8_all_characters);
    tcase_add_test(c, utf8_one_line);
    suite_add_tcase(s, c);
    c = tcase_create("hash, rng");
    tcase_add_test(c, hash_spread);
    tcase_add_test(c, map_of_strings);
    tcase_add_test(c, map_of_words);
    tcase_add_loop_test(c, rng_vectors, 0, COUNT(rng_cases));
    tcase_add_test(c, rng_uniform);
    suite_add_tcase(s, c);
    return test_main(s);
}
