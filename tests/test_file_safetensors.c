/* safetensors: headers that are right and wrong, and what is listed of them,
 * on files made here.  Folders, indexes and golden files are test_file.c's.
 * One table row is one header. */
#include "tests/file_kit.h"

#define T(name, dtype, shape, a, b) \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[" a "," b "]}"
#define NAME_50 "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
#define NAME_500 NAME_50 NAME_50 NAME_50 NAME_50 NAME_50 NAME_50 NAME_50 NAME_50 NAME_50 NAME_50

static const struct {
    const char *header;
    size_t n_data;
    const char *word; /* NULL = opens */
    size_t n;         /* tensors then */
} cases[] = {
    {"{" T("a", "F32", "[2,2]", "0", "16") "}", 16, NULL, 1},
    {"{" T("a", "F32", "[2,2]", "0", "16") "}      ", 16, NULL, 1},
    {"{}", 0, NULL, 0},
    {"{\"__metadata__\":{\"format\":\"pt\"}," T("a", "BF16", "[3]", "0", "6") "}", 6, NULL, 1},
    {"{" T("b", "I64", "[]", "4", "12") "," T("a", "F16", "[2]", "0", "4") "}", 12, NULL, 2},
    {"{" T("a", "U8", "[3]", "0", "3") "," T("e", "F32", "[0,5]", "3", "3") "," T("b", "BOOL", "[1]", "3", "4") "}",
     4, NULL, 3},
    {"{" T("a", "F32", "[1,1,1,1,1,1,1,1]", "0", "4") "}", 4, NULL, 1},
    {"{" T("a", "F8_E4M3", "[4]", "0", "4") "}", 4, NULL, 1},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1],\"more\":1}}", 1, NULL, 1},

    {"{" T("a", "F32", "[2,2]", "0", "16") "}x", 16, "header", 0},
    {"[1,2]", 4, "header is no JSON object", 0},
    {"{\"a\":1}", 0, "tensor a is no object", 0},
    {"{" T("e", "F32", "[0]", "0", "0") "," T("f", "U8", "[0]", "0", "0") "}", 0, NULL, 2},
    {"{\"a\":{\"shape\":[1],\"data_offsets\":[0,1]}}", 1, "tensor a has no dtype", 0},
    {"{\"a\":{\"dtype\":\"U8\",\"data_offsets\":[0,1]}}", 1, "tensor a has no shape", 0},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1]}}", 1, "tensor a has no data_offsets", 0},
    {"{\"a\":{\"dtype\":\"U8\",\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1, "duplicate dtype", 0},
    {"{\"a\":{\"dtype\":7,\"shape\":[1],\"data_offsets\":[0,1]}}", 1, "dtype is no string", 0},
    {"{" T("a", "F4", "[2]", "0", "1") "}", 1, "unknown dtype \"F4\"", 0},
    {"{" T("a", "f32", "[1]", "0", "4") "}", 4, "unknown dtype", 0},
    {"{" T("a", "U8", "1", "0", "1") "}", 1, "shape is no list", 0},
    {"{" T("a", "U8", "[1,1,1,1,1,1,1,1,1]", "0", "1") "}", 1, "more than 8 dimensions", 0},
    {"{" T("a", "U8", "[1.5]", "0", "1") "}", 1, "dimension 0", 0},
    {"{" T("a", "U8", "[\"1\"]", "0", "1") "}", 1, "dimension 0", 0},
    {"{" T("a", "U8", "[1,1e300]", "0", "1") "}", 1, "dimension 1", 0},
    {"{" T("a", "U8", "[9007199254740992,9007199254740992]", "0", "0") "}", 0, "overflow", 0},
    {"{" T("a", "F64", "[4611686018427387904]", "0", "0") "}", 0, "dimension 0", 0},
    {"{" T("a", "U8", "[1]", "0", "1,2") "}", 1, "data_offsets", 0},
    {"{" T("a", "U8", "[1]", "0.5", "1.5") "}", 1, "data_offsets", 0},
    {"{" T("a", "U8", "[1]", "-1", "0") "}", 1, "data_offsets", 0},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0]}}", 1, "data_offsets", 0},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":1}}", 1, "data_offsets", 0},
    {"{" T("a", "U8", "[1]", "1", "2") "}", 2, "tensor a: data_offsets leave a hole", 0},
    {"{" T("a", "U8", "[1]", "0", "1") "," T("b", "U8", "[1]", "2", "3") "}", 3, "tensor b: data_offsets leave a hole", 0},
    {"{" T("a", "U8", "[2]", "0", "2") "," T("b", "U8", "[2]", "1", "3") "}", 3, "overlap tensor a", 0},
    {"{" T("a", "U8", "[1]", "0", "1") "}", 2, "the file holds 2 bytes", 0},
    {"{" T("a", "U8", "[5]", "0", "5") "}", 4, "truncated: tensor a needs 5 bytes", 0},
    {"{" T("a", "U8", "[5]", "8", "13") "}", 4, "behind the end of the file", 0},
    {"{" T("a", "U8", "[2]", "0", "1") "}", 1, "need 2 bytes, its data_offsets hold 1", 0},
    {"{" T("", "U8", "[1]", "0", "1") "}", 1, "name of 0 bytes", 0},
    {"{" T("a\\u0000b", "U8", "[1]", "0", "1") "}", 1, "UTF-8", 0},
    {"{" T(NAME_500 NAME_500 NAME_50, "U8", "[1]", "0", "1") "}", 1, "name of 1050 bytes", 0},
    {"{" T(NAME_500 NAME_500, "U8", "[1]", "0", "1") "}", 1, NULL, 1},
    {"{\"__metadata__\":{},\"__metadata__\":{}}", 0, "duplicate __metadata__", 0},
    {"{" T("a", "U8", "[1]", "0", "1") "," T("a", "U8", "[1]", "1", "2") "}", 2, "duplicate tensor a", 0},
};

START_TEST(headers)
{
    struct buf b;
    void *copy = NULL;
    buf_init(&b);
    put_safetensors(&b, cases[_i].header, cases[_i].n_data);
    struct weights *w = check_bytes(&b, cases[_i].word, cases[_i].header, &copy);
    if (w) {
        ck_assert_uint_eq(weights_count(w), cases[_i].n);
        ck_assert_uint_eq(weights_bytes(w), cases[_i].n_data);
        ck_assert_int_eq(weights_format(w), WEIGHTS_SAFETENSORS);
        ck_assert_ptr_null(weights_gguf(w));
    }
    weights_close(w);
    free(copy);
    buf_fini(&b);
}
END_TEST

/* In file order, whatever the header's; figures of each tensor. */
START_TEST(listing)
{
    struct buf b;
    void *copy = NULL;
    buf_init(&b);
    put_safetensors(&b, "{" T("z", "F32", "[]", "12", "16") "," T("e", "F32", "[0]", "12", "12") ","
                        T("a", "F16", "[3,2]", "0", "12") "}", 16);
    struct weights *w = check_bytes(&b, NULL, "listing", &copy);
    static const char *const order[] = {"a", "e", "z"};
    ck_assert_uint_eq(weights_count(w), 3);
    for (size_t i = 0; i < 3; i++)
        ck_assert_str_eq(weights_at(w, i)->name, order[i]);
    const struct weight *a = weights_find(w, "a"), *e = weights_find(w, "e"), *z = weights_find(w, "z");
    ck_assert_int_eq(a->dtype, DTYPE_F16);
    ck_assert_int_eq(a->n_dims, 2);
    ck_assert_int_eq(a->shape[0], 3);
    ck_assert_int_eq(a->shape[1], 2);
    ck_assert_uint_eq(a->size, 12);
    ck_assert_uint_eq(a->offset, b.len - 16);
    ck_assert_ptr_eq(a->data, (const uint8_t *)copy + b.len - 16);
    ck_assert(!a->copied);
    ck_assert_ptr_null(e->data);
    ck_assert_int_eq(weight_elems(e), 0);
    ck_assert_int_eq(z->n_dims, 0);
    ck_assert_int_eq(weight_elems(z), 1);
    ck_assert_ptr_null(weights_find(w, "A"));
    size_t size = 0;
    ck_assert_ptr_eq(weights_file_data(w, 0, &size), copy);
    ck_assert_uint_eq(size, b.len);
    ck_assert_int_eq(weights_n_files(w), 1);
    ck_assert_str_eq(weights_file(w, 0), "input");
    ck_assert_str_eq(weights_path(w), "input");
    ck_assert_str_eq(weights_dir(w), ".");
    weights_close(w);
    free(copy);
    buf_fini(&b);
}
END_TEST

/* Header lengths at the borders. */
START_TEST(header_length)
{
    static const struct {
        uint64_t len;
        const char *word;
    } lens[] = {
        {UINT64_MAX, "limit"}, {100000001, "limit"}, {100000000, "truncated: header"},
        {17, "truncated: header needs 17 bytes, the file has 16"}, {1, "header"},
    };
    for (int i = 0; i < COUNT(lens); i++) {
        struct buf b;
        void *copy = NULL;
        buf_init(&b);
        put_le(&b, lens[i].len, 8);
        buf_puts(&b, "{}              ");
        check_bytes(&b, lens[i].word, "length", &copy);
        buf_fini(&b);
    }
}
END_TEST

/* Many tensors: the walk and the checks are near linear (a quadratic one would hit the time-out). */
START_TEST(many)
{
    enum { N = 200000 };
    struct buf h, b;
    void *copy = NULL;
    buf_init(&h);
    buf_init(&b);
    for (int i = 0; i < N; i++)
        buf_printf(&h, "%c\"t%d\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[%d,%d]}", i ? ',' : '{', i,
                   N - 1 - i, N - i);
    buf_putc(&h, '}');
    put_safetensors(&b, buf_str(&h), N);
    struct weights *w = check_bytes(&b, NULL, "many", &copy);
    ck_assert_uint_eq(weights_count(w), N);
    ck_assert_str_eq(weights_at(w, 0)->name, "t199999");
    weights_close(w);
    free(copy);
    buf_fini(&b);
    buf_fini(&h);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("file/safetensors");
    TCase *c = tcase_create("safetensors");
    tcase_add_loop_test(c, headers, 0, COUNT(cases));
    tcase_add_test(c, listing);
    tcase_add_test(c, header_length);
    tcase_add_test(c, many);
    suite_add_tcase(s, c);
    return test_main(s);
}
