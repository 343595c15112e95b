/* GGUF: headers, metadata and tensors that are right and wrong, the typed
 * readers, and the names of split files, on files made here.  Golden files are
 * test_file.c's. */
#include <math.h>

#include "file/gguf.h"
#include "tests/file_kit.h"

/* ---- making ---- */

static void put_str(struct buf *b, const char *s)
{
    put_le(b, strlen(s), 8);
    buf_puts(b, s);
}

static void put_header(struct buf *b, uint64_t n_tensors, uint64_t n_kv)
{
    buf_puts(b, "GGUF");
    put_le(b, 3, 4);
    put_le(b, n_tensors, 8);
    put_le(b, n_kv, 8);
}

static void put_key(struct buf *b, const char *key, uint32_t type)
{
    put_str(b, key);
    put_le(b, type, 4);
}

static void put_num(struct buf *b, const char *key, enum gguf_type type, uint64_t x, int size)
{
    put_key(b, key, type);
    put_le(b, x, size);
}

static void put_array(struct buf *b, const char *key, uint32_t elem, uint64_t n)
{
    put_key(b, key, GGUF_ARRAY);
    put_le(b, elem, 4);
    put_le(b, n, 8);
}

static void put_info(struct buf *b, const char *name, uint32_t type, uint64_t ne0, uint64_t ne1, uint64_t offset)
{
    put_str(b, name);
    put_le(b, 2, 4);
    put_le(b, ne0, 8);
    put_le(b, ne1, 8);
    put_le(b, type, 4);
    put_le(b, offset, 8);
}

static void put_data(struct buf *b, size_t alignment, size_t n)
{
    while (b->len % alignment)
        buf_putc(b, 0);
    for (size_t i = 0; i < n; i++)
        buf_putc(b, (char)(i & 0x3f));
}

/* ---- whole files ---- */

static void none(struct buf *b) { put_header(b, 0, 0); }
static void two(struct buf *b)
{
    put_header(b, 2, 0);
    put_info(b, "a", 0, 4, 2, 32); /* F32 */
    put_info(b, "b", 2, 32, 1, 0); /* Q4_0: 18 bytes */
    put_data(b, 32, 64);
}
static void shown_only(struct buf *b) /* IQ4_NL: known by name, cannot be run */
{
    put_header(b, 1, 0);
    put_info(b, "a", 20, 32, 1, 0);
    put_data(b, 32, 18);
}
static void nested(struct buf *b)
{
    put_header(b, 0, 2);
    put_array(b, "n", GGUF_ARRAY, 2);
    put_le(b, GGUF_U8, 4);
    put_le(b, 3, 8);
    put_le(b, 0x030201, 3);
    put_le(b, GGUF_STRING, 4);
    put_le(b, 1, 8);
    put_str(b, "x");
    put_num(b, "after", GGUF_U8, 1, 1);
}
static void align8(struct buf *b)
{
    put_header(b, 1, 1);
    put_num(b, "general.alignment", GGUF_U64, 8, 8);
    put_info(b, "a", 0, 1, 1, 8);
    put_data(b, 8, 12);
}

static void version1(struct buf *b) { none(b); b->data[4] = 1; }
static void version0(struct buf *b) { none(b); b->data[4] = 0; }
static void header_cut(struct buf *b) { none(b); b->len = 23; }
static void tensors_huge(struct buf *b) { put_header(b, (uint64_t)1 << 60, 0); }
static void tensors_none(struct buf *b) { put_header(b, 1, 0); }
static void key_huge(struct buf *b) { put_header(b, 0, 1); put_le(b, UINT64_MAX, 8); buf_puts(b, "general"); }
static void key_twice(struct buf *b)
{
    put_header(b, 0, 2);
    put_num(b, "same", GGUF_U8, 1, 1);
    put_num(b, "same", GGUF_U8, 1, 1);
}
static void type_cut(struct buf *b) { put_header(b, 0, 1); put_str(b, "k234567"); put_le(b, 0, 3); }
static void value_cut(struct buf *b) { put_header(b, 0, 1); put_num(b, "key", GGUF_U64, 0, 7); }
static void elem_cut(struct buf *b) { put_header(b, 0, 1); put_key(b, "key", GGUF_ARRAY); put_le(b, 0, 3); }
static void elem_wrong(struct buf *b) { put_header(b, 0, 1); put_array(b, "key", 13, 0); }
static void count_cut(struct buf *b) { put_header(b, 0, 1); put_key(b, "key", GGUF_ARRAY); put_le(b, 0, 4); put_le(b, 0, 7); }
static void strings_huge(struct buf *b) { put_header(b, 0, 1); put_array(b, "key", GGUF_STRING, (uint64_t)1 << 61); put_le(b, 0, 8); }
static void strings_cut(struct buf *b)
{
    put_header(b, 0, 1);
    put_array(b, "key", GGUF_STRING, 2);
    put_str(b, "one");
    put_le(b, 100, 8);
}
static void nested_huge(struct buf *b) { put_header(b, 0, 1); put_array(b, "key", GGUF_ARRAY, UINT64_MAX); put_le(b, 0, 12); }
static void nested_cut(struct buf *b) { put_header(b, 0, 1); put_array(b, "key", GGUF_ARRAY, 1); put_le(b, GGUF_U32, 4); put_le(b, 5, 8); }
static void nested_deep(struct buf *b)
{
    put_header(b, 0, 1);
    put_key(b, "key", GGUF_ARRAY);
    for (int i = 0; i < 100; i++) {
        put_le(b, GGUF_ARRAY, 4);
        put_le(b, 1, 8);
    }
}
static void alignment(struct buf *b, uint64_t x) { put_header(b, 0, 1); put_num(b, "general.alignment", GGUF_U32, x, 4); }
static void alignment4(struct buf *b) { alignment(b, 4); }
static void alignment48(struct buf *b) { alignment(b, 48); }
static void alignment_huge(struct buf *b) { alignment(b, (uint64_t)1 << 31); }
static void alignment_text(struct buf *b) { put_header(b, 0, 1); put_key(b, "general.alignment", GGUF_STRING); put_str(b, "32"); }
static void arch_array(struct buf *b) { put_header(b, 0, 1); put_array(b, "general.architecture", GGUF_STRING, 0); }
static void dims0(struct buf *b)
{
    put_header(b, 1, 0);
    put_str(b, "a");
    put_le(b, 0, 4);
    put_le(b, 0, 32);
}
static void dims5(struct buf *b)
{
    put_header(b, 1, 0);
    put_str(b, "a");
    put_le(b, 5, 4);
    put_le(b, 0, 64);
}
static void dim_2_63(struct buf *b) { put_header(b, 1, 0); put_info(b, "a", 0, (uint64_t)1 << 63, 1, 0); }
static void size_huge(struct buf *b) { put_header(b, 1, 0); put_info(b, "a", 0, (uint64_t)1 << 31, (uint64_t)1 << 28, 0); put_data(b, 32, 8); }
static void size_wraps(struct buf *b) { put_header(b, 1, 0); put_info(b, "a", 0, (uint64_t)1 << 31, (uint64_t)1 << 31, 0); put_data(b, 32, 8); }
static void size_wraps_64(struct buf *b) { put_header(b, 1, 0); put_info(b, "a", 0, (uint64_t)1 << 61, 3, 0); put_data(b, 32, 8); }
static void info_cut(struct buf *b, size_t less) { put_header(b, 1, 0); put_info(b, "aaaaaaaaaaaaaaaa", 0, 1, 1, 0); b->len -= less; }
static void offset_cut(struct buf *b) { info_cut(b, 1); }
static void dims_cut(struct buf *b) { info_cut(b, 13); }
static void name_huge(struct buf *b) { put_header(b, 1, 0); put_le(b, UINT64_MAX - 1, 8); put_le(b, 0, 40); }
static void n_dims_cut(struct buf *b) { put_header(b, 1, 0); put_str(b, "aaaaaaaaaaaaaaaaaaaaaaaaaa"); put_le(b, 0, 3); }
static void name_empty(struct buf *b) { put_header(b, 1, 0); put_info(b, "", 0, 1, 1, 0); put_data(b, 32, 8); }
static void name_bytes(struct buf *b) { put_header(b, 1, 0); put_info(b, "\xff", 0, 1, 1, 0); put_data(b, 32, 8); }
static void no_data(struct buf *b) { put_header(b, 1, 0); put_info(b, "a", 0, 4, 1, 0); }
static void offset_wraps(struct buf *b) { put_header(b, 1, 0); put_info(b, "a", 0, 1, 1, UINT64_MAX - 31); put_data(b, 32, 8); }
static void type_gone(struct buf *b) { put_header(b, 1, 0); put_info(b, "a", 4, 32, 1, 0); put_data(b, 32, 64); }
static void split_no(struct buf *b)
{
    put_header(b, 0, 2);
    put_num(b, "split.no", GGUF_U16, 1, 2);
    put_num(b, "split.count", GGUF_U16, 3, 2);
}
static void split_name(struct buf *b)
{
    put_header(b, 0, 2);
    put_num(b, "split.no", GGUF_U16, 0, 2);
    put_num(b, "split.count", GGUF_U16, 3, 2);
}
static void split_text(struct buf *b) { put_header(b, 0, 1); put_key(b, "split.no", GGUF_STRING); put_str(b, "0"); }
static void split_tensors(struct buf *b) { put_header(b, 0, 1); put_num(b, "split.tensors.count", GGUF_I32, 7, 4); }
static void split_one(struct buf *b)
{
    put_header(b, 0, 3);
    put_num(b, "split.no", GGUF_U16, 0, 2);
    put_num(b, "split.count", GGUF_U16, 0, 2);
    put_num(b, "split.tensors.count", GGUF_I32, 0, 4);
}

static const struct {
    const char *what;
    void (*make)(struct buf *b);
    const char *word;
    size_t n;
} files[] = {
    {"no keys, no tensors", none, NULL, 0},
    {"two tensors out of order", two, NULL, 2},
    {"a type that is only shown", shown_only, NULL, 1},
    {"nested arrays", nested, NULL, 0},
    {"alignment 8 as u64", align8, NULL, 1},
    {"split of one", split_one, NULL, 0},
    {"version 1", version1, "GGUF version 1; versions 2 and 3", 0},
    {"version 0", version0, "GGUF version 0;", 0},
    {"header cut", header_cut, "truncated: the header", 0},
    {"2^60 tensors", tensors_huge, "truncated: 1152921504606846976 tensors", 0},
    {"one tensor of none", tensors_none, "truncated: 1 tensors", 0},
    {"key of 2^64 - 1 bytes", key_huge, "key 0 of the metadata needs 18446744073709551615 bytes", 0},
    {"key twice", key_twice, "duplicate key \"same\"", 0},
    {"type cut", type_cut, "truncated: key \"k234567\"", 0},
    {"value cut", value_cut, "truncated: key \"key\": 1 values of type u64", 0},
    {"element type cut", elem_cut, "truncated: key \"key\"", 0},
    {"element type 13", elem_wrong, "unknown value type 13", 0},
    {"count cut", count_cut, "truncated: key \"key\"", 0},
    {"2^61 strings", strings_huge, "2305843009213693952 values of type string", 0},
    {"strings cut", strings_cut, "its value needs 100 bytes, 0 are left", 0},
    {"2^64 - 1 arrays", nested_huge, "values of type array need more", 0},
    {"nested array cut", nested_cut, "5 values of type u32 need more", 0},
    {"nested 100 deep", nested_deep, "nested deeper than 4", 0},
    {"alignment 4", alignment4, "\"general.alignment\" is 4", 0},
    {"alignment 48", alignment48, "\"general.alignment\" is 48", 0},
    {"alignment 2^31", alignment_huge, "\"general.alignment\" is 2147483648", 0},
    {"alignment as text", alignment_text, "\"general.alignment\" is of type string, not an integer", 0},
    {"architecture as array", arch_array, "is of type array of string, not a string", 0},
    {"no dimensions", dims0, "tensor a has 0 dimensions", 0},
    {"five dimensions", dims5, "tensor a has 5 dimensions", 0},
    {"dimension 2^63", dim_2_63, "tensor a: dimension 0 of its shape is 9223372036854775808", 0},
    {"2^61 bytes", size_huge, "truncated: tensor a needs 2305843009213693952 bytes", 0},
    {"2^64 bytes", size_wraps, "tensor a: its shape overflows", 0},
    {"3 * 2^63 bytes", size_wraps_64, "tensor a: its shape overflows", 0},
    {"offset cut", offset_cut, "truncated: the info of tensor 0", 0},
    {"dimensions cut", dims_cut, "truncated: the info of tensor 0", 0},
    {"name of 2^64 - 2 bytes", name_huge, "truncated: the info of tensor 0 needs 18446744073709551614", 0},
    {"number of dimensions cut", n_dims_cut, "truncated: the info of tensor 0", 0},
    {"empty name", name_empty, "name of 0 bytes", 0},
    {"name that is no UTF-8", name_bytes, "UTF-8", 0},
    {"no data at all", no_data, "truncated: tensor a needs 16 bytes", 0},
    {"offset near 2^64", offset_wraps, "tensor a: offset 18446744073709551584 of the data", 0},
    {"type that was taken away", type_gone, "tensor a: unknown type number 4", 0},
    {"second of three", split_no, "part 2 of 3 of a split model: give the first part (...-00001-of-00003.gguf)", 0},
    {"first of three under another name", split_name, "must be named ...-00001-of-00003.gguf", 0},
    {"split.no as text", split_text, "\"split.no\" is of type string", 0},
    {"fewer tensors than split.tensors.count", split_tensors, "split.tensors.count is 7, but the 1 files hold 0", 0},
};

START_TEST(whole_files)
{
    struct buf b;
    void *copy = NULL;
    buf_init(&b);
    files[_i].make(&b);
    struct weights *w = check_bytes(&b, files[_i].word, files[_i].what, &copy);
    if (w) {
        ck_assert_uint_eq(weights_count(w), files[_i].n);
        ck_assert_int_eq(weights_format(w), WEIGHTS_GGUF);
        ck_assert_ptr_nonnull(weights_gguf(w));
        ck_assert_uint_eq(gguf_version(weights_gguf(w)), 3);
        ck_assert_str_eq(gguf_path(weights_gguf(w)), "input");
    }
    weights_close(w);
    free(copy);
    buf_fini(&b);
}
END_TEST

START_TEST(tensors)
{
    struct buf b;
    void *copy = NULL;
    buf_init(&b);
    two(&b);
    struct weights *w = check_bytes(&b, NULL, "two", &copy);
    const struct weight *t = weights_at(w, 0), *q = weights_find(w, "b");
    ck_assert_str_eq(t->name, "a");
    ck_assert_int_eq(t->dtype, DTYPE_F32);
    ck_assert_int_eq(t->n_dims, 2);
    ck_assert_int_eq(t->shape[0], 2); /* outermost first */
    ck_assert_int_eq(t->shape[1], 4);
    ck_assert_uint_eq(t->size, 32);
    ck_assert_uint_eq(t->offset, b.len - 32);
    ck_assert_ptr_eq(t->data, (const uint8_t *)copy + b.len - 32);
    ck_assert_int_eq(q->dtype, DTYPE_Q4_0);
    ck_assert_uint_eq(q->size, 18);
    ck_assert_uint_eq(q->offset, b.len - 64);
    ck_assert_uint_eq(weights_bytes(w), 50);
    weights_close(w);
    free(copy);
    buf_fini(&b);
}
END_TEST

/* ---- readers ---- */

static void put_all_kinds(struct buf *b)
{
    put_header(b, 0, 21);
    put_num(b, "u8", GGUF_U8, 200, 1);
    put_num(b, "i8", GGUF_I8, 200, 1);
    put_num(b, "u16", GGUF_U16, 40000, 2);
    put_num(b, "i16", GGUF_I16, 40000, 2);
    put_num(b, "u32", GGUF_U32, 3000000000u, 4);
    put_num(b, "i32", GGUF_I32, 3000000000u, 4);
    put_num(b, "u64", GGUF_U64, UINT64_MAX, 8);
    put_num(b, "i64", GGUF_I64, UINT64_MAX, 8);
    put_num(b, "f32", GGUF_F32, 0x3fc00000, 4);
    put_num(b, "f64", GGUF_F64, 0xbfd0000000000000, 8);
    put_num(b, "nan", GGUF_F32, 0x7fc00000, 4);
    put_num(b, "yes", GGUF_BOOL, 1, 1);
    put_num(b, "no", GGUF_BOOL, 0, 1);
    put_num(b, "maybe", GGUF_BOOL, 2, 1);
    put_key(b, "str", GGUF_STRING);
    put_str(b, "hello");
    put_array(b, "strs", GGUF_STRING, 3);
    put_str(b, "a");
    put_str(b, "");
    put_str(b, "ccc");
    put_array(b, "i32s", GGUF_I32, 2);
    put_le(b, 0xfffffffe, 4);
    put_le(b, 7, 4);
    put_array(b, "f32s", GGUF_F32, 2);
    put_le(b, 0x3f800000, 4);
    put_le(b, 0xc0000000, 4);
    put_array(b, "bools", GGUF_BOOL, 2);
    put_le(b, 0x0001, 2);
    put_array(b, "f64s", GGUF_F64, 1);
    put_le(b, 0x4000000000000000, 8);
    put_array(b, "empty", GGUF_STRING, 0);
}

/* rc: 1 and value, 0 absent, negative and word. */
static const struct {
    const char *key;
    int64_t min, max;
    int rc;
    int64_t value;
    const char *word;
} ints[] = {
    {"u8", 0, 255, 1, 200, NULL},
    {"i8", -128, 127, 1, -56, NULL},
    {"u16", 0, 65535, 1, 40000, NULL},
    {"i16", -32768, 0, 1, -25536, NULL},
    {"u32", 0, INT64_MAX, 1, 3000000000, NULL},
    {"i32", INT64_MIN, 0, 1, -1294967296, NULL},
    {"i64", -1, -1, 1, -1, NULL},
    {"absent", 0, 1, 0, 0, NULL},
    {"u64", INT64_MIN, INT64_MAX, ERR_FORMAT, 0, "\"u64\" is out of range (18446744073709551615)"},
    {"i64", 0, 9, ERR_FORMAT, 0, "\"i64\" is out of range (-1)"},
    {"u8", 0, 199, ERR_FORMAT, 0, "\"u8\" is out of range (200)"},
    {"f32", 0, 9, ERR_FORMAT, 0, "\"f32\" is of type f32, not an integer"},
    {"yes", 0, 9, ERR_FORMAT, 0, "\"yes\" is of type bool, not an integer"},
    {"i32s", 0, 9, ERR_FORMAT, 0, "\"i32s\" is of type array of i32, not an integer"},
};

static const struct {
    const char *key;
    int rc;
    double value;
    const char *word;
} floats[] = {
    {"f32", 1, 1.5, NULL},
    {"f64", 1, -0.25, NULL},
    {"u8", 1, 200, NULL},
    {"u64", 1, 18446744073709551616.0, NULL},
    {"absent", 0, 0, NULL},
    {"nan", ERR_FORMAT, 0, "\"nan\" is no finite number"},
    {"str", ERR_FORMAT, 0, "\"str\" is of type string, not a number"},
    {"f32s", ERR_FORMAT, 0, "\"f32s\" is of type array of f32, not a number"},
};

static const struct {
    const char *key;
    enum gguf_type elem;
    int rc;
    uint64_t n;
    const char *word;
} arrays[] = {
    {"strs", GGUF_STRING, 1, 3, NULL},
    {"i32s", GGUF_U32, 1, 2, NULL},
    {"f32s", GGUF_F64, 1, 2, NULL},
    {"bools", GGUF_BOOL, 1, 2, NULL},
    {"empty", GGUF_STRING, 1, 0, NULL},
    {"absent", GGUF_STRING, 0, 0, NULL},
    {"strs", GGUF_I32, ERR_FORMAT, 0, "\"strs\" is of type array of string, not array of i32"},
    {"i32s", GGUF_F32, ERR_FORMAT, 0, "\"i32s\" is of type array of i32, not array of f32"},
    {"str", GGUF_STRING, ERR_FORMAT, 0, "\"str\" is of type string, not array of string"},
};

static void check_result(int rc, int expect, const char *word, const struct err *err)
{
    ck_assert_int_eq(rc, expect);
    if (word) {
        ck_assert_msg(strstr(err->msg, word) != NULL, "no \"%s\" in: %s", word, err->msg);
        ck_assert_msg(strncmp(err->msg, "input: key ", 11) == 0, "no file named: %s", err->msg);
    }
}

static void read_scalars(const struct gguf *g)
{
    struct err err;
    for (int i = 0; i < COUNT(ints); i++) {
        int64_t v = 12345;
        int rc = gguf_get_i64(g, ints[i].key, ints[i].min, ints[i].max, &v, &err);
        check_result(rc, ints[i].rc, ints[i].word, &err);
        ck_assert_int_eq(v, rc == 1 ? ints[i].value : 12345);
    }
    for (int i = 0; i < COUNT(floats); i++) {
        double v = 12345;
        int rc = gguf_get_f64(g, floats[i].key, &v, &err);
        check_result(rc, floats[i].rc, floats[i].word, &err);
        ck_assert_double_eq(v, rc == 1 ? floats[i].value : 12345);
    }
    bool yes = false, no = true, absent = true;
    ck_assert_int_eq(gguf_get_bool(g, "yes", &yes, &err), 1);
    ck_assert_int_eq(gguf_get_bool(g, "no", &no, &err), 1);
    ck_assert_int_eq(gguf_get_bool(g, "absent", &absent, &err), 0);
    ck_assert(yes && !no && absent);
    check_result(gguf_get_bool(g, "maybe", &yes, &err), ERR_FORMAT, "bool of value 2", &err);
    check_result(gguf_get_bool(g, "u8", &yes, &err), ERR_FORMAT, "of type u8, not a bool", &err);
    struct gguf_str s = {NULL, 0};
    ck_assert_int_eq(gguf_get_str(g, "str", &s, &err), 1);
    ck_assert(s.len == 5 && memcmp(s.s, "hello", 5) == 0);
    ck_assert_int_eq(gguf_get_str(g, "absent", &s, &err), 0);
    check_result(gguf_get_str(g, "strs", &s, &err), ERR_FORMAT, "not a string", &err);
}

static void read_arrays(const struct gguf *g)
{
    struct err err;
    const struct gguf_kv *kv = NULL;
    for (int i = 0; i < COUNT(arrays); i++) {
        int rc = gguf_get_array(g, arrays[i].key, arrays[i].elem, &kv, &err);
        check_result(rc, arrays[i].rc, arrays[i].word, &err);
        if (rc == 1)
            ck_assert_uint_eq(kv->n, arrays[i].n);
    }
    static const char *const strs[] = {"a", "", "ccc"};
    size_t cursor = 0;
    kv = gguf_find(g, "strs");
    for (int i = 0; i < 3; i++) {
        struct gguf_str s = gguf_next_str(kv, &cursor);
        ck_assert(s.len == strlen(strs[i]) && memcmp(s.s, strs[i], s.len) == 0);
    }
    kv = gguf_find(g, "i32s");
    ck_assert_int_eq(gguf_elem_i64(kv, 0), -2);
    ck_assert_double_eq(gguf_elem_f64(kv, 1), 7);
    kv = gguf_find(g, "f32s");
    ck_assert_double_eq(gguf_elem_f64(kv, 0), 1);
    ck_assert_double_eq(gguf_elem_f64(kv, 1), -2);
    ck_assert_double_eq(gguf_elem_f64(gguf_find(g, "f64s"), 0), 2);
    ck_assert_int_eq(gguf_elem_i64(gguf_find(g, "bools"), 0), 1);
    ck_assert_int_eq(gguf_elem_i64(gguf_find(g, "bools"), 1), 0);
}

START_TEST(readers)
{
    struct buf b;
    void *copy = NULL;
    buf_init(&b);
    put_all_kinds(&b);
    struct weights *w = check_bytes(&b, NULL, "all kinds", &copy);
    const struct gguf *g = weights_gguf(w);
    ck_assert_uint_eq(gguf_n_kv(g), 21);
    ck_assert_int_eq(gguf_kv_at(g, 0)->type, GGUF_U8);
    ck_assert_ptr_null(gguf_find(g, "U8"));
    read_scalars(g);
    read_arrays(g);
    weights_close(w);
    free(copy);
    buf_fini(&b);
}
END_TEST

START_TEST(split_names)
{
    static const struct {
        const char *name;
        bool split;
        unsigned no, count;
        size_t stem;
    } names[] = {
        {"m-00001-of-00003.gguf", true, 1, 3, 1},  {"/a/b-12345-of-99999.gguf", true, 12345, 99999, 4},
        {"-00002-of-00003.gguf", true, 2, 3, 0},   {"m-0001-of-00003.gguf", false, 0, 0, 0},
        {"m-00001-of-0000x.gguf", false, 0, 0, 0}, {"m-00001-of-00003.gguf.bak", false, 0, 0, 0},
        {"m.gguf", false, 0, 0, 0},                {"", false, 0, 0, 0},
    };
    for (int i = 0; i < COUNT(names); i++) {
        unsigned no = 0, count = 0;
        size_t stem = 0;
        ck_assert_int_eq(gguf_split_name(names[i].name, &no, &count, &stem), names[i].split);
        ck_assert_uint_eq(no, names[i].no);
        ck_assert_uint_eq(count, names[i].count);
        ck_assert_uint_eq(stem, names[i].stem);
    }
}
END_TEST

/* Each prefix is refused; each flipped bit is refused or opens: neither harms. */
START_TEST(damaged)
{
    struct buf b;
    buf_init(&b);
    put_header(&b, 2, 2);
    put_num(&b, "general.alignment", GGUF_U32, 32, 4);
    put_array(&b, "strs", GGUF_STRING, 2);
    put_str(&b, "one");
    put_str(&b, "two");
    put_info(&b, "a", 0, 4, 2, 32);
    put_info(&b, "b", 2, 32, 1, 0);
    put_data(&b, 32, 64);
    for (size_t n = 0; n <= b.len; n++) {
        struct weights *w = NULL;
        struct err err;
        void *copy = NULL;
        ck_assert_int_eq(open_bytes(&w, &copy, b.data, n, &err) == 0, n == b.len);
        weights_close(w);
        free(copy);
    }
    for (size_t i = 0; i < 8 * b.len; i++) {
        struct weights *w = NULL;
        struct err err;
        void *copy = NULL;
        char was = b.data[i / 8];
        uint64_t nan = 0, inf = 0;
        b.data[i / 8] = (char)((uint8_t)was ^ (1u << i % 8));
        if (open_bytes(&w, &copy, b.data, b.len, &err) == 0)
            ck_assert_int_eq(weights_check(w, &nan, &inf, &err), 0);
        b.data[i / 8] = was;
        weights_close(w);
        free(copy);
    }
    buf_fini(&b);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("file/gguf");
    TCase *c = tcase_create("gguf");
    tcase_add_loop_test(c, whole_files, 0, COUNT(files));
    tcase_add_test(c, tensors);
    tcase_add_test(c, readers);
    tcase_add_test(c, split_names);
    tcase_add_test(c, damaged);
    suite_add_tcase(s, c);
    return test_main(s);
}
