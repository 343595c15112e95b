/* tensor/: the dtype table against the golden blocks, 16-bit conversions over
 * all halves, quantisers by round trip, views.
 *
 * Golden: golden/quant, 64 blocks of each type, compared bit for bit (-0 equals 0). */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/map.h"
#include "base/mem.h"
#include "tensor/tensor.h"
#include "tests/test.h"

static uint32_t bits_of(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

static float float_of(uint32_t u)
{
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

static bool same_value(float a, float b)
{
    return bits_of(a) == bits_of(b) || ((bits_of(a) | bits_of(b)) & 0x7FFFFFFF) == 0;
}

static void check_golden_type(const cJSON *row)
{
    char name[64], path[128];
    enum dtype t;
    struct npy want;
    char *blocks;
    size_t len;
    int64_t id, values, bytes, n_blocks;
    const char *type;
    struct err err = {0};
    ck_assert_int_eq(json_get_str(row, "type", &type, "index", &err), 0);
    ck_assert_int_eq(json_get_i64(row, "ggml_id", 0, 1000, &id, "index", &err), 0);
    ck_assert_int_eq(json_get_i64(row, "block_values", 1, 1000, &values, "index", &err), 0);
    ck_assert_int_eq(json_get_i64(row, "block_bytes", 1, 1000, &bytes, "index", &err), 0);
    ck_assert_int_eq(json_get_i64(row, "blocks", 1, 1000, &n_blocks, "index", &err), 0);
    snprintf(name, sizeof name, "%s", type);
    ck_assert_msg(dtype_from_ggml((uint32_t)id, &t), "%s: number %d unknown", name, (int)id);
    const struct dtype_info *d = dtype_info(t);
    ck_assert_str_eq(d->name, name);
    ck_assert_uint_eq(d->block_elems, (uint32_t)values);
    ck_assert_uint_eq(d->block_size, (uint32_t)bytes);
    if (!d->to_f32)
        return;
    snprintf(path, sizeof path, "golden/quant/%s.bin", name);
    ck_assert_int_eq(map_read_all(test_path(path), 1 << 20, &blocks, &len, &err), 0);
    ck_assert_uint_eq(len, (size_t)(bytes * n_blocks));
    snprintf(path, sizeof path, "golden/quant/%s.npy", name);
    test_npy(&want, path);
    ck_assert_uint_eq(want.n, (size_t)(values * n_blocks));
    float *got = mem_array(want.n, sizeof *got);
    uint8_t *odd = mem_array(len + 1, 1); /* any alignment */
    ck_assert(got && odd);
    memcpy(odd + 1, blocks, len);
    d->to_f32(got, odd + 1, want.n);
    for (size_t i = 0; i < want.n; i++)
        test_that(same_value(got[i], want.f[i]), "%s: value %zu is %.9g, not %.9g", name, i,
                      (double)got[i], (double)want.f[i]);
    free(odd);
    free(got);
    free(blocks);
    test_npy_free(&want);
}

START_TEST(golden_blocks)
{
    cJSON *root = test_json("golden/quant/index.json");
    int n = 0, n_run = 0;
    for (const cJSON *row = json_get(root, "types")->child; row; row = row->next, n++) {
        enum dtype t;
        const char *type = NULL;
        check_golden_type(row);
        json_get_str(row, "type", &type, "index", NULL);
        n_run += dtype_from_name(type, &t) && dtype_runnable(t);
    }
    ck_assert_int_eq(n, 21);
    ck_assert_int_eq(n_run, 10);
    cJSON_Delete(root);
}
END_TEST

/* The value of a half from its three fields, by the definition. */
static double half_value(uint16_t h)
{
    int e = h >> 10 & 31, m = h & 1023;
    double v = e == 0    ? ldexp(m, -24)
               : e == 31 ? (m ? NAN : INFINITY)
                         : ldexp(1024 + m, e - 25);
    return h & 0x8000 ? -v : v;
}

START_TEST(half_all)
{
    for (uint32_t h = 0; h < 65536; h++) {
        double want = half_value((uint16_t)h);
        float got = f16_to_f32((uint16_t)h);
        if (isnan(want)) {
            test_that(isnan(got), "half %04x", h);
            test_that(isnan(f16_to_f32(f32_to_f16(got))), "half %04x", h);
            continue;
        }
        test_that((double)got >= want && (double)got <= want, "half %04x: %.9g", h, (double)got);
        test_that((signbit(got) != 0) == (h >> 15), "half %04x: sign", h);
        test_that(f32_to_f16(got) == h, "half %04x comes back as %04x", h, f32_to_f16(got));
        float b = bf16_to_f32((uint16_t)h);
        test_that(isnan(b) || f32_to_bf16(b) == h, "bf16 %04x comes back as %04x", h, f32_to_bf16(b));
    }
}
END_TEST

/* Rounding: between neighbours h and h+1 the middle goes to the even one, and a step of one ulp
 * away from the middle goes to the near one. */
START_TEST(half_rounding)
{
    for (uint32_t h = 0; h < 0x7BFF; h++) {
        float mid = (float)((half_value((uint16_t)h) + half_value((uint16_t)(h + 1))) / 2);
        uint32_t even = h & 1 ? h + 1 : h;
        test_that(f32_to_f16(mid) == even, "middle above %04x", h);
        test_that(f32_to_f16(nextafterf(mid, 0.0f)) == h, "below the middle above %04x", h);
        test_that(f32_to_f16(nextafterf(mid, 1e30f)) == h + 1, "above the middle above %04x", h);
        test_that(f32_to_f16(-mid) == (even | 0x8000), "minus the middle above %04x", h);
    }
}
END_TEST

static const struct {
    uint32_t f32;
    uint16_t f16, bf16;
} narrow_cases[] = {
    {0x00000000, 0x0000, 0x0000}, {0x80000000, 0x8000, 0x8000}, {0x3F800000, 0x3C00, 0x3F80},
    {0x477FE000, 0x7BFF, 0x4780}, /* 65504 */
    {0x477FEFFF, 0x7BFF, 0x4780}, /* below 65520 */
    {0x477FF000, 0x7C00, 0x4780}, /* 65520 rounds to infinity */
    {0x7F800000, 0x7C00, 0x7F80}, {0xFF800000, 0xFC00, 0xFF80},
    {0x7F800001, 0x7E00, 0x7FC0}, /* a signalling NaN stays a NaN */
    {0x7FC00000, 0x7E00, 0x7FC0},
    {0x7F7FFFFF, 0x7C00, 0x7F80}, /* the largest f32 rounds to infinity in both */
    {0x33000000, 0x0000, 0x3300}, /* 2^-25: tie to even zero */
    {0x33000001, 0x0001, 0x3300}, {0x387FFFFF, 0x0400, 0x3880}, /* rounds up into the normals */
    {0x00000001, 0x0000, 0x0000}, {0x3F808000, 0x3C04, 0x3F80}, /* bf16 tie to even */
    {0x3F818000, 0x3C0C, 0x3F82},
};

START_TEST(narrow)
{
    float f = float_of(narrow_cases[_i].f32);
    ck_assert_msg(f32_to_f16(f) == narrow_cases[_i].f16, "%08x: f16 %04x", narrow_cases[_i].f32,
                  f32_to_f16(f));
    ck_assert_msg(f32_to_bf16(f) == narrow_cases[_i].bf16, "%08x: bf16 %04x", narrow_cases[_i].f32,
                  f32_to_bf16(f));
}
END_TEST

/* Largest error of a round trip, as a share of the block's largest magnitude (block values of
 * both signs): half a step, plus the rounding of d and m to halves. */
static const struct {
    enum dtype dtype;
    double bound;
} encode_cases[] = {
    {DTYPE_F32, 0},          {DTYPE_F16, 0x1p-11},     {DTYPE_BF16, 0x1p-8},
    {DTYPE_Q8_0, 0.6 / 127}, {DTYPE_Q4_0, 1.05 / 8},   {DTYPE_Q4_1, 1.1 / 15},
    {DTYPE_Q5_0, 1.05 / 16}, {DTYPE_Q5_1, 1.1 / 31},
};

START_TEST(round_trip)
{
    const struct dtype_info *d = dtype_info(encode_cases[_i].dtype);
    float x[32], y[32];
    uint8_t blocks[256];
    double worst = 0;
    ck_assert(d->from_f32 != NULL);
    for (uint64_t trial = 0; trial < 500; trial++) {
        double amax = 0, scale = ldexp(1.0, (int)(trial % 12) - 6);
        for (int i = 0; i < 32; i++) {
            uint64_t r = hash_u64(trial * 32 + (uint64_t)i);
            x[i] = (float)(scale * ((double)(r >> 11) * 0x1p-52 - 1.0));
            amax = fabs((double)x[i]) > amax ? fabs((double)x[i]) : amax;
        }
        d->from_f32(blocks, x, 32);
        d->to_f32(y, blocks, 32);
        for (int i = 0; i < 32; i++) {
            double e = fabs((double)y[i] - (double)x[i]) / amax;
            worst = e > worst ? e : worst;
        }
    }
    ck_assert_msg(worst <= encode_cases[_i].bound, "%s: error %g above %g", d->name, worst,
                  encode_cases[_i].bound);
    ck_assert_msg(worst >= 0.4 * encode_cases[_i].bound, "%s: error %g, bound %g too wide", d->name,
                  worst, encode_cases[_i].bound);
}
END_TEST

/* Values that lie on the grid come back exactly; zero, NaN and Inf do no harm. */
START_TEST(encode_edges)
{
    const struct dtype_info *d = dtype_info(encode_cases[_i].dtype);
    float x[32] = {0}, y[32];
    uint8_t blocks[256];
    d->from_f32(blocks, x, 32);
    d->to_f32(y, blocks, 32);
    for (int i = 0; i < 32; i++)
        ck_assert_msg(same_value(y[i], 0.0f), "%s: zero becomes %g", d->name, (double)y[i]);
    for (int i = 0; i < 32; i++)
        x[i] = (float)(i % 15 - 7) * 0.5f;
    x[5] = -4.0f; /* -8 steps of one half */
    x[6] = 3.5f;
    bool exact = d->block_elems == 1 || encode_cases[_i].dtype == DTYPE_Q4_0 ||
                 encode_cases[_i].dtype == DTYPE_Q4_1;
    d->from_f32(blocks, x, 32);
    d->to_f32(y, blocks, 32);
    for (int i = 0; i < 32 && exact; i++)
        ck_assert_msg(same_value(y[i], x[i]), "%s: %g becomes %g", d->name, (double)x[i], (double)y[i]);
    x[0] = NAN;
    x[1] = INFINITY;
    x[2] = -INFINITY;
    d->from_f32(blocks, x, 32);
    d->to_f32(y, blocks, 32);
}
END_TEST

START_TEST(table_rows)
{
    enum dtype t;
    int n_run = 0;
    for (int i = 0; i < DTYPE_COUNT; i++) {
        const struct dtype_info *d = dtype_info((enum dtype)i);
        ck_assert_ptr_nonnull(d->name);
        ck_assert_uint_gt(d->block_elems, 0);
        ck_assert_uint_gt(d->block_size, 0);
        ck_assert(dtype_from_name(d->name, &t) && t == (enum dtype)i);
        if (d->ggml_id >= 0)
            ck_assert(dtype_from_ggml((uint32_t)d->ggml_id, &t) && t == (enum dtype)i);
        if (d->st_name)
            ck_assert(dtype_from_st(d->st_name, &t) && t == (enum dtype)i);
        ck_assert_int_eq(dtype_runnable((enum dtype)i), i <= DTYPE_Q6_K);
        n_run += dtype_runnable((enum dtype)i);
    }
    ck_assert_int_eq(n_run, 13);
    static const uint32_t unknown[] = {4, 5, 31, 32, 33, 36, 37, 38, 40, 255, 0x80000000u, UINT32_MAX};
    for (size_t i = 0; i < sizeof unknown / sizeof unknown[0]; i++)
        ck_assert_msg(!dtype_from_ggml(unknown[i], &t), "number %u has a row", unknown[i]);
    ck_assert(dtype_from_name("q4_k", &t) && t == DTYPE_Q4_K);
    ck_assert(dtype_from_name("bf16", &t) && t == DTYPE_BF16);
    ck_assert(!dtype_from_name("Q4", &t) && !dtype_from_name("Q4_KX", &t) && !dtype_from_name("", &t));
    ck_assert(!dtype_from_st("Q8_0", &t) && !dtype_from_st("f32", &t));
}
END_TEST

static const struct {
    enum dtype dtype;
    int64_t n;
    bool ok;
    size_t bytes;
} row_cases[] = {
    {DTYPE_F32, 0, true, 0},
    {DTYPE_F32, 7, true, 28},
    {DTYPE_BF16, 7, true, 14},
    {DTYPE_Q8_0, 64, true, 68},
    {DTYPE_Q8_0, 33, false, 0},
    {DTYPE_Q4_K, 512, true, 288},
    {DTYPE_Q4_K, 128, false, 0},
    {DTYPE_F32, -4, false, 0},
    {DTYPE_F32, INT64_MAX, false, 0},
    {DTYPE_F64, INT64_MAX / 2, false, 0},
    {DTYPE_I8, INT64_MAX, true, (size_t)INT64_MAX},
};

START_TEST(row_size)
{
    size_t bytes = 0;
    ck_assert_int_eq(dtype_row_size(row_cases[_i].dtype, row_cases[_i].n, &bytes), row_cases[_i].ok);
    if (row_cases[_i].ok)
        ck_assert_uint_eq(bytes, row_cases[_i].bytes);
}
END_TEST

START_TEST(views)
{
    struct tensor t = {.off = 100, .dtype = DTYPE_Q8_0, .rows = 6, .cols = 64};
    ck_assert_uint_eq(tensor_size(&t), 6 * 68);
    struct tensor v = tensor_rows(&t, 2, 3);
    ck_assert_uint_eq(v.off, 100 + 2 * 68);
    ck_assert_int_eq(v.rows, 3);
    ck_assert_int_eq(v.cols, 64);
    v = tensor_rows(&t, 6, 0);
    ck_assert_uint_eq(tensor_size(&v), 0);
    v = tensor_reshape(&t, 12, 32);
    ck_assert_int_eq(v.rows, 12);
    ck_assert_int_eq(v.cols, 32);
    ck_assert_uint_eq(tensor_size(&v), tensor_size(&t));
}
END_TEST

#define COUNT(a) (int)(sizeof(a) / sizeof((a)[0]))

int main(void)
{
    Suite *s = suite_create("tensor");
    TCase *c = tcase_create("dtype");
    tcase_add_test(c, golden_blocks);
    tcase_add_test(c, half_all);
    tcase_add_test(c, half_rounding);
    tcase_add_loop_test(c, narrow, 0, COUNT(narrow_cases));
    tcase_add_loop_test(c, round_trip, 0, COUNT(encode_cases));
    tcase_add_loop_test(c, encode_edges, 0, COUNT(encode_cases));
    tcase_add_test(c, table_rows);
    tcase_add_loop_test(c, row_size, 0, COUNT(row_cases));
    tcase_add_test(c, views);
    suite_add_tcase(s, c);
    return test_main(s);
}
