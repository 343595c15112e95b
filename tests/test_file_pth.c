/* PyTorch archives: the zip, the pickle machine, views and wrappings, each on
 * files made here.  A pickle is a string literal, opcode by opcode.  Golden
 * files are test_file.c's. */
#include <math.h>

#include "file/pickle.h"
#include "tests/file_kit.h"

/* ---- pickles as string literals ---- */

#define GLOBAL(m, n) "c" m "\n" n "\n"
#define PROTO "\x80\x02"
#define DICT_OF(items) PROTO "}" items "."
#define ODICT PROTO GLOBAL("collections", "OrderedDict") ")R"
#define KEY_W "X\1\0\0\0w"
#define KEY_V "X\1\0\0\0v"
#define STORAGE_OF(class, key, numel) "(X\7\0\0\0storage" class "X\1\0\0\0" key "X\3\0\0\0" "cpu" numel "tQ"
#define STORAGE STORAGE_OF(GLOBAL("torch", "FloatStorage"), "0", "K\10")
#define HOOKS "\x89" GLOBAL("collections", "OrderedDict") ")R"
#define TENSOR_OF(storage, offset, shape, stride) \
    GLOBAL("torch._utils", "_rebuild_tensor_v2") "(" storage offset shape stride HOOKS "tR"
#define TENSOR(offset, shape, stride) TENSOR_OF(STORAGE, offset, shape, stride)
#define PLAIN TENSOR("K\0", "K\2K\4\x86", "K\4K\1\x86")
#define W_IS(tensor) DICT_OF(KEY_W tensor "s")
#define BIG "\x8a\10\xff\xff\xff\xff\xff\xff\xff\x7f" /* 2^63 - 1 */
#define TEN(x) x x x x x x x x x x

struct pickle {
    const char *what;
    const char *bytes;
    size_t len;
};
#define PICKLE(what, bytes) {what, bytes, sizeof(bytes) - 1}

/* data/0: the floats 0 to 7; data/1: two bytes each of 1.0, 2.0, 3.0 in bf16. */
static char floats[32];
static const char bf16s[] = "\x80\x3f\0\x40\x40\x40";

static void fill_floats(void)
{
    for (int i = 0; i < 8; i++) {
        float f = (float)i;
        memcpy(floats + 4 * i, &f, 4);
    }
}

static void put_pth(struct buf *b, const struct pickle *p, unsigned flags)
{
    fill_floats();
    const struct zip_file files[] = {
        {"m/", "", 0, 0},
        {"m/extra/notes.txt", "deflated, and no matter", 23, 8},
        {"m/data.pkl", p->bytes, p->len, 0},
        {"m/byteorder", "little", 6, 0},
        {"m/data/0", floats, sizeof floats, 0},
        {"m/data/1", bf16s, sizeof bf16s - 1, 0},
        {"m/version", "3\n", 2, 0},
    };
    put_zip(b, files, COUNT(files), flags);
}

/* ---- what opens ---- */

static const struct {
    struct pickle p;
    const char *name;
    int n_dims;
    int64_t shape[4];
    bool copied;
    float values[12];
} good[] = {
    {PICKLE("plain", W_IS(PLAIN)), "w", 2, {2, 4}, false, {0, 1, 2, 3, 4, 5, 6, 7}},
    {PICKLE("ordered dict with metadata",
            ODICT "(" KEY_W PLAIN "u}X\11\0\0\0_metadata}sb."), "w", 2, {2, 4}, false, {0, 1, 2, 3, 4, 5, 6, 7}},
    {PICKLE("memo", PROTO "}q\0(" KEY_W "q\1" PLAIN "q\2" KEY_V "h\2u."), "v", 2, {2, 4}, false,
     {0, 1, 2, 3, 4, 5, 6, 7}},
    {PICKLE("long memo numbers", PROTO "}r\0\0\0\0" KEY_W PLAIN "r\1\0\0\0000j\1\0\0\0s."), "w", 2, {2, 4}, false,
     {0, 1, 2, 3, 4, 5, 6, 7}},
    {PICKLE("protocol 4",
            "\x80\4\x95\1\0\0\0\0\0\0\0}\x94\x8c\1w\x8c\14torch._utils\x8c\22_rebuild_tensor_v2\x93" "(" STORAGE
            "K\0K\10\x85K\1\x85\x89\x8c\13" "collections\x8c\13OrderedDict\x93)RtR\x94s."),
     "w", 1, {8}, false, {0, 1, 2, 3, 4, 5, 6, 7}},
    {PICKLE("transposed", W_IS(TENSOR("K\0", "K\4K\2\x86", "K\1K\4\x86"))), "w", 2, {4, 2}, true,
     {0, 4, 1, 5, 2, 6, 3, 7}},
    {PICKLE("offset", W_IS(TENSOR("K\3", "K\3\x85", "K\1\x85"))), "w", 1, {3}, false, {3, 4, 5}},
    {PICKLE("every second", W_IS(TENSOR("K\1", "K\4\x85", "K\2\x85"))), "w", 1, {4}, true, {1, 3, 5, 7}},
    {PICKLE("expanded", W_IS(TENSOR("K\6", "K\3K\2\x86", "K\0K\1\x86"))), "w", 2, {3, 2}, true,
     {6, 7, 6, 7, 6, 7}},
    {PICKLE("any stride where a dimension is 1", W_IS(TENSOR("K\0", "K\1K\2K\4\x87", BIG "K\4K\1\x87"))), "w", 3,
     {1, 2, 4}, false, {0, 1, 2, 3, 4, 5, 6, 7}},
    {PICKLE("three dimensions turned", W_IS(TENSOR("K\0", "K\2K\2K\2\x87", "K\1K\2K\4\x87"))), "w", 3, {2, 2, 2},
     true, {0, 4, 2, 6, 1, 5, 3, 7}},
    {PICKLE("scalar", W_IS(TENSOR("K\5", ")", ")"))), "w", 0, {0}, false, {5}},
    {PICKLE("empty", W_IS(TENSOR("K\0", "K\0K\4\x86", "K\4K\1\x86"))), "w", 2, {0, 4}, false, {0}},
    {PICKLE("empty, of a storage that is not there",
            W_IS(TENSOR_OF(STORAGE_OF(GLOBAL("torch", "FloatStorage"), "9", "K\0"), "K\0", "K\0\x85", "K\1\x85"))),
     "w", 1, {0}, false, {0}},
    {PICKLE("bf16", W_IS(TENSOR_OF(STORAGE_OF(GLOBAL("torch", "BFloat16Storage"), "1", "K\3"), "K\1", "K\2\x85",
                                  "K\1\x85"))), "w", 1, {2}, false, {2, 3}},
    {PICKLE("untyped storage, dtype beside",
            W_IS(GLOBAL("torch._utils", "_rebuild_tensor_v3") "("
                 STORAGE_OF(GLOBAL("torch.storage", "UntypedStorage"), "0", "K\40") "K\2K\2\x85K\1\x85" HOOKS
                 GLOBAL("torch", "float32") "}tR")), "w", 1, {2}, false, {2, 3}},
    {PICKLE("parameter", W_IS(GLOBAL("torch._utils", "_rebuild_parameter") "(" PLAIN "\x88" HOOKS "tR")), "w", 2,
     {2, 4}, false, {0, 1, 2, 3, 4, 5, 6, 7}},
    {PICKLE("first version of the call", W_IS(GLOBAL("torch._utils", "_rebuild_tensor") "(" STORAGE
            "K\0K\2\x85K\1\x85tR")), "w", 1, {2}, false, {0, 1}},
    {PICKLE("torch.Size", W_IS(TENSOR("K\0", GLOBAL("torch", "Size") "(K\2\x85tR", "(K\1t"))), "w", 1, {2},
     false, {0, 1}},
    {PICKLE("long integers", W_IS(TENSOR("\x8a\0", "\x8a\1\2\x85", "\x8a\12\1\0\0\0\0\0\0\0\0\0\x85"))), "w", 1, {2},
     false, {0, 1}},
    {PICKLE("other entries",
            DICT_OF("X\5\0\0\0epochK\3sX\2\0\0\0lrG\x3f\xf0\0\0\0\0\0\0sX\1\0\0\0nNs" "X\1\0\0\0t\x88s"
                    "X\1\0\0\0b" "C\2abs" "X\1\0\0\0l](K\1K\2eK\3as" "X\1\0\0\0d" GLOBAL("torch", "device")
                    "X\3\0\0\0" "cpu\x85Rs" "X\1\0\0\0s\x8f(K\1\x90s" "X\1\0\0\0f(K\1\x91s" "X\1\0\0\0h"
                    "\x8a\11\0\0\0\0\0\0\0\0\1s" "K\1K\2s" "(0" "(K\1K\2" "1" "K\1" "20" "0" KEY_W PLAIN "s"
                    "X\1\0\0\0z(K\1K\2ds" "X\1\0\0\0y(K\1ls")), "w", 2, {2, 4}, false,
     {0, 1, 2, 3, 4, 5, 6, 7}},
    {PICKLE("below model", DICT_OF("X\5\0\0\0model}" KEY_W PLAIN "ss" "X\11\0\0\0optimizer}X\1\0\0\0m" PLAIN "ss")),
     "w", 2, {2, 4}, false, {0, 1, 2, 3, 4, 5, 6, 7}},
    {PICKLE("below state_dict", DICT_OF("X\12\0\0\0state_dict}" KEY_W PLAIN "ss")), "w", 2, {2, 4}, false,
     {0, 1, 2, 3, 4, 5, 6, 7}},
    {PICKLE("a tensor named model", DICT_OF("X\5\0\0\0model" PLAIN "s")), "model", 2, {2, 4}, false,
     {0, 1, 2, 3, 4, 5, 6, 7}},
    {PICKLE("module.", DICT_OF("X\10\0\0\0module.w" PLAIN "s")), "w", 2, {2, 4}, false, {0, 1, 2, 3, 4, 5, 6, 7}},
    {PICKLE("module. of one alone", DICT_OF("X\10\0\0\0module.w" PLAIN "s" KEY_W PLAIN "s")), "module.w", 2, {2, 4},
     false, {0, 1, 2, 3, 4, 5, 6, 7}},
};

/* Also through ZIP64 records, data descriptors and behind a comment. */
START_TEST(opens)
{
    static const unsigned flags[] = {ZIP_PLAIN, ZIP_64, ZIP_DESCRIPTORS, ZIP_COMMENT, ZIP_64 | ZIP_DESCRIPTORS};
    for (int f = 0; f < COUNT(flags); f++) {
        struct buf b;
        void *copy = NULL;
        buf_init(&b);
        put_pth(&b, &good[_i].p, flags[f]);
        struct weights *w = check_bytes(&b, NULL, good[_i].p.what, &copy);
        ck_assert_int_eq(weights_format(w), WEIGHTS_PTH);
        const struct weight *t = weights_find(w, good[_i].name);
        ck_assert_msg(t != NULL, "%s: no tensor %s", good[_i].p.what, good[_i].name);
        ck_assert_int_eq(t->n_dims, good[_i].n_dims);
        for (int d = 0; d < t->n_dims; d++)
            ck_assert_int_eq(t->shape[d], good[_i].shape[d]);
        ck_assert_int_eq(t->copied, good[_i].copied);
        float x[12];
        int64_t n = weight_elems(t);
        ck_assert_int_le(n, 12);
        ck_assert_uint_eq(t->size, (size_t)n * dtype_info(t->dtype)->block_size);
        if (n > 0)
            dtype_info(t->dtype)->to_f32(x, t->data, (size_t)n);
        for (int64_t i = 0; i < n; i++)
            ck_assert_msg(x[i] == good[_i].values[i], "%s: value %d is %g", good[_i].p.what, (int)i, (double)x[i]);
        bool inside = t->data >= (const uint8_t *)copy && t->data < (const uint8_t *)copy + b.len;
        ck_assert_msg(n == 0 || inside == !t->copied, "%s: copied or not", good[_i].p.what);
        weights_close(w);
        free(copy);
        buf_fini(&b);
    }
}
END_TEST

/* Every storage class and what it is. */
START_TEST(storage_classes)
{
    static const struct {
        const char *class;
        enum dtype dtype;
    } classes[] = {
        {"FloatStorage", DTYPE_F32}, {"HalfStorage", DTYPE_F16}, {"BFloat16Storage", DTYPE_BF16},
        {"DoubleStorage", DTYPE_F64}, {"LongStorage", DTYPE_I64}, {"IntStorage", DTYPE_I32},
        {"ShortStorage", DTYPE_I16}, {"CharStorage", DTYPE_I8}, {"ByteStorage", DTYPE_U8},
        {"BoolStorage", DTYPE_BOOL},
    };
    for (int i = 0; i < COUNT(classes); i++) {
        struct buf p, b;
        void *copy = NULL;
        buf_init(&p);
        buf_init(&b);
        static const char head[] = PROTO "}" KEY_W GLOBAL("torch._utils", "_rebuild_tensor_v2") "((X\7\0\0\0storagectorch\n";
        static const char tail[] = "\nX\1\0\0\0000X\3\0\0\0cpuK\2tQK\1K\1\x85K\1\x85" HOOKS "tRs.";
        buf_put(&p, head, sizeof head - 1);
        buf_puts(&p, classes[i].class);
        buf_put(&p, tail, sizeof tail - 1);
        struct pickle pk = {classes[i].class, p.data, p.len};
        put_pth(&b, &pk, ZIP_PLAIN);
        struct weights *w = check_bytes(&b, NULL, classes[i].class, &copy);
        const struct weight *t = weights_find(w, "w");
        ck_assert_int_eq(t->dtype, classes[i].dtype);
        size_t size = dtype_info(t->dtype)->block_size;
        ck_assert_uint_eq(t->size, size);
        ck_assert_int_eq(memcmp(t->data, floats + size, size), 0);
        weights_close(w);
        free(copy);
        buf_fini(&p);
        buf_fini(&b);
    }
}
END_TEST

/* ---- what is refused ---- */

static const struct {
    struct pickle p;
    const char *word;
} wrong[] = {
    {PICKLE("os.system", PROTO GLOBAL("posix", "system") "X\4\0\0\0true\x85R."), "posix.system"},
    {PICKLE("eval by protocol 4", "\x80\4\x8c\10builtins\x8c\4eval\x93."), "builtins.eval"},
    {PICKLE("a module", PROTO GLOBAL("torch.nn.modules.linear", "Linear") ")\x81."), "torch.nn.modules.linear.Linear"},
    {PICKLE("a longer name", PROTO GLOBAL("collections", "OrderedDictX") ")R."), "collections.OrderedDictX"},
    {PICKLE("a name of no strings", PROTO "K\1K\2\x93."), "no string"},
    {PICKLE("calls data", PROTO GLOBAL("torch", "FloatStorage") ")R."), "no function"},
    {PICKLE("calls without a tuple", PROTO GLOBAL("collections", "OrderedDict") "]R."), "no tuple"},
    {PICKLE("items in the call", PROTO GLOBAL("collections", "OrderedDict") "](K\1K\2\x86" "e\x85R."), "items as arguments"},
    {PICKLE("Size of a number", PROTO GLOBAL("torch", "Size") "K\1\x85R."), "torch.Size"},
    {PICKLE("tensor of three", W_IS(GLOBAL("torch._utils", "_rebuild_tensor_v2") "K\1K\1K\1\x87R")), "_rebuild_tensor_v2"},
    {PICKLE("tensor of no storage", W_IS(TENSOR_OF("N", "K\0", "K\1\x85", "K\1\x85"))), "no storage"},
    {PICKLE("tensor of a float offset", W_IS(TENSOR("G\0\0\0\0\0\0\0\0", "K\1\x85", "K\1\x85"))), "no storage, offset"},
    {PICKLE("v3 without a dtype", W_IS(GLOBAL("torch._utils", "_rebuild_tensor_v3") "(" STORAGE "K\0))\x89NNtR")), "dtype"},
    {PICKLE("v3 of a typed storage", W_IS(GLOBAL("torch._utils", "_rebuild_tensor_v3") "(" STORAGE "K\0))\x89N"
            GLOBAL("torch", "float32") "tR")), "typed storage"},
    {PICKLE("parameter of a number", W_IS(GLOBAL("torch._utils", "_rebuild_parameter") "K\1\x85R")), "no tensor"},
    {PICKLE("persistent id that is a number", W_IS("K\1Q")), "describes no storage"},
    {PICKLE("persistent id of a module", W_IS("(X\6\0\0\0modulectorch\nFloatStorage\nX\1\0\0\0000X\1\0\0\0cK\1tQ")), "describes no storage"},
    {PICKLE("storage of a class that is none", W_IS(TENSOR_OF(STORAGE_OF(GLOBAL("torch", "float32"), "0", "K\1"), "K\0", ")", ")"))),
     "describes no storage"},
    {PICKLE("storage of -1 elements", W_IS(STORAGE_OF(GLOBAL("torch", "FloatStorage"), "0", "J\xff\xff\xff\xff"))), "describes no storage"},
    {PICKLE("storage class unknown", W_IS(STORAGE_OF(GLOBAL("torch", "ComplexFloatStorage"), "0", "K\1"))), "storage class"},
    {PICKLE("storage missing", W_IS(TENSOR_OF(STORAGE_OF(GLOBAL("torch", "FloatStorage"), "9", "K\10"), "K\0", ")", ")"))),
     "tensor w: storage is missing: the archive has no entry m/data/9"},
    {PICKLE("storage short", W_IS(TENSOR_OF(STORAGE_OF(GLOBAL("torch", "FloatStorage"), "0", "K\11"), "K\0", ")", ")"))),
     "truncated: tensor w"},
    {PICKLE("storage of 2^63 - 1 elements", W_IS(TENSOR_OF(STORAGE_OF(GLOBAL("torch", "FloatStorage"), "0", BIG), "K\0", ")", ")"))),
     "truncated: tensor w"},
    {PICKLE("negative offset", W_IS(TENSOR("J\xff\xff\xff\xff", ")", ")"))), "offset -1 is negative"},
    {PICKLE("offset behind", W_IS(TENSOR("K\10", ")", ")"))), "reach behind its storage of 8"},
    {PICKLE("offset of 2^63 - 1", W_IS(TENSOR(BIG, "K\2\x85", BIG "\x85"))), "reach behind"},
    {PICKLE("stride of 2^63 - 1", W_IS(TENSOR("K\0", "K\2\x85", BIG "\x85"))), "reach behind"},
    {PICKLE("one element too many", W_IS(TENSOR("K\1", "K\2K\4\x86", "K\4K\1\x86"))), "tensor w: offset 1"},
    {PICKLE("negative dimension", W_IS(TENSOR("K\0", "J\xfe\xff\xff\xff\x85", "K\1\x85"))), "negative"},
    {PICKLE("negative stride", W_IS(TENSOR("K\7", "K\2\x85", "J\xff\xff\xff\xff\x85"))), "negative"},
    {PICKLE("shape of floats", W_IS(TENSOR("K\0", "G\0\0\0\0\0\0\0\0\x85", "K\1\x85"))), "no integer"},
    {PICKLE("shape overflows", W_IS(TENSOR("K\0", BIG "K\2\x86", "K\0K\0\x86"))), "overflow"},
    {PICKLE("more strides than dimensions", W_IS(TENSOR("K\0", "K\1\x85", "K\1K\1\x86"))), "strides of 2"},
    {PICKLE("nine dimensions", W_IS(TENSOR("K\0", "(K\1K\1K\1K\1K\1K\1K\1K\1K\1t", "(K\1K\1K\1K\1K\1K\1K\1K\1K\1t"))), "at most 8"},
    {PICKLE("expanded beyond the budget", W_IS(TENSOR("K\0", "J\0\0\0\1K\10\x86", "K\0K\1\x86"))), "above the budget"},
    {PICKLE("twice", DICT_OF(KEY_W PLAIN "s" KEY_W PLAIN "s")), "duplicate tensor w"},
    {PICKLE("empty name", DICT_OF("X\0\0\0\0" PLAIN "s")), "name of 0 bytes"},
    {PICKLE("name that is no UTF-8", DICT_OF("X\2\0\0\0\xff\xfe" PLAIN "s")), "UTF-8"},
    {PICKLE("name with a NUL", DICT_OF("X\3\0\0\0a\0b" PLAIN "s")), "UTF-8"},
    {PICKLE("bare tensor", PROTO PLAIN "."), "holds a tensor, not a dict"},
    {PICKLE("a list", PROTO "]."), "holds a list"},
    {PICKLE("no tensors", DICT_OF("X\5\0\0\0epochK\3s")), "without tensors"},
    {PICKLE("empty dict", PROTO "}."), "without tensors"},
    {PICKLE("STOP on an empty stack", PROTO "."), "stack is empty"},
    {PICKLE("no STOP", PROTO "}"), "ends without STOP"},
    {PICKLE("no bytes", ""), "ends without STOP"},
    {PICKLE("protocol 6", "\x80\6}."), "protocol 6"},
    {PICKLE("protocol 0", "(dp0\n."), "not allowed"},
    {PICKLE("protocol missing", "\x80"), "ends inside"},
    {PICKLE("instance", PROTO "(icollections\nOrderedDict\n."), "opcode 0x69"},
    {PICKLE("extension registry", PROTO "\x82\1."), "opcode 0x82"},
    {PICKLE("keyword call", "\x80\4}}}\x92."), "opcode 0x92"},
    {PICKLE("string longer than the pickle", PROTO "X\xff\xff\xff\xff" "abc"), "ends inside"},
    {PICKLE("string of 2^64 - 1 bytes", PROTO "\x8d\xff\xff\xff\xff\xff\xff\xff\xff" "abc"), "ends inside"},
    {PICKLE("long of 2^32 - 1 bytes", PROTO "\x8b\xff\xff\xff\xff" "abc"), "ends inside"},
    {PICKLE("float cut", PROTO "G\0\0"), "ends inside"},
    {PICKLE("int cut", PROTO "J\0\0"), "ends inside"},
    {PICKLE("name cut", PROTO "ctorch\nFloat"), "ends inside a name"},
    {PICKLE("memo never set", PROTO "}q\1h\0."), "never set"},
    {PICKLE("memo of 2^32 - 1", PROTO "}r\xff\xff\xff\xff."), "memo number"},
    {PICKLE("memo of nothing", PROTO "q\0."), "stack is empty"},
    {PICKLE("pop of nothing", PROTO "0."), "stack is empty"},
    {PICKLE("dup of nothing", PROTO "2."), "stack is empty"},
    {PICKLE("tuple of nothing", PROTO "K\1\x86."), "stack is empty"},
    {PICKLE("tuple across a mark", PROTO "K\1(K\1\x86."), "stack is empty"},
    {PICKLE("tuple without a mark", PROTO "t."), "no mark"},
    {PICKLE("pop of no mark", PROTO "1."), "no mark"},
    {PICKLE("items without a mark", PROTO "}u."), "no mark"},
    {PICKLE("items of nothing", PROTO "(u."), "stack is empty"},
    {PICKLE("dict of an odd number", PROTO "(K\1d."), "without a value"},
    {PICKLE("items of an odd number", PROTO "}(K\1u."), "without a value"},
    {PICKLE("item of nothing", PROTO "}s."), "stack is empty"},
    {PICKLE("item in a list", PROTO "]K\1K\2s."), "no dict"},
    {PICKLE("append to a dict", PROTO "}K\1a."), "no list"},
    {PICKLE("add to a tuple", PROTO ")(K\1\x90."), "no list"},
    {PICKLE("call of nothing", PROTO ")R."), "stack is empty"},
    {PICKLE("build of nothing", PROTO "}b."), "stack is empty"},
    {PICKLE("build of a number", PROTO "K\1}b."), "attributes"},
    {PICKLE("persistent id of nothing", PROTO "Q."), "stack is empty"},
    {PICKLE("name of nothing", PROTO "\x93."), "stack is empty"},
};

START_TEST(refused)
{
    struct buf b;
    void *copy = NULL;
    buf_init(&b);
    put_pth(&b, &wrong[_i].p, ZIP_PLAIN);
    check_bytes(&b, wrong[_i].word, wrong[_i].p.what, &copy);
    buf_fini(&b);
}
END_TEST

/* Copies together stay below twice the file and a megabyte. */
START_TEST(copy_budget)
{
    struct buf p, b;
    void *copy = NULL;
    buf_init(&p);
    buf_init(&b);
    static const char head[] = PROTO "}", tensor[] = TENSOR("K\0", "M\0\100K\10\x86", "K\0K\1\x86") "s"; /* 512 KiB */
    buf_put(&p, head, sizeof head - 1);
    for (int i = 0; i < 3; i++) {
        char key[] = "X\1\0\0\0a";
        key[5] = (char)('a' + i);
        buf_put(&p, key, sizeof key - 1);
        buf_put(&p, tensor, sizeof tensor - 1);
    }
    buf_putc(&p, '.');
    struct pickle pk = {"copies", p.data, p.len};
    put_pth(&b, &pk, ZIP_PLAIN);
    check_bytes(&b, "tensor c: its strides need a copy of 524288 bytes", "copies", &copy);
    buf_fini(&p);
    buf_fini(&b);
}
END_TEST

/* A list that holds itself, ten thousand lists deep in one another, a million marks. */
START_TEST(odd_structures)
{
    struct buf p, b;
    void *copy = NULL;
    buf_init(&p);
    buf_init(&b);
    static const char head[] = PROTO "}X\1\0\0\0c]q\0h\0as", tail[] = KEY_W PLAIN "s.";
    buf_put(&p, head, sizeof head - 1);
    for (int i = 0; i < 10000; i++)
        buf_puts(&p, "]");
    for (int i = 0; i < 9999; i++)
        buf_puts(&p, "a");
    buf_puts(&p, "0");
    for (int i = 0; i < 1000000; i++)
        buf_puts(&p, "(");
    for (int i = 0; i < 1000000; i++)
        buf_puts(&p, "1");
    buf_put(&p, tail, sizeof tail - 1);
    struct pickle pk = {"structures", p.data, p.len};
    put_pth(&b, &pk, ZIP_PLAIN);
    struct weights *w = check_bytes(&b, NULL, "structures", &copy);
    ck_assert_uint_eq(weights_count(w), 1);
    weights_close(w);
    free(copy);
    buf_fini(&p);
    buf_fini(&b);
}
END_TEST

/* ---- archives ---- */

/* Writes x over `n` bytes at `find` + at, the which-th time it occurs. */
static void patch(struct buf *b, const char *find, size_t find_len, int which, size_t at, uint64_t x, int n)
{
    for (size_t i = 0; i + find_len <= b->len; i++) {
        if (memcmp(b->data + i, find, find_len) != 0 || which-- > 0)
            continue;
        for (int k = 0; k < n; k++)
            b->data[i + at + (size_t)k] = (char)(uint8_t)(x >> (8 * k));
        return;
    }
    ck_abort_msg("nothing to patch");
}

#define END "PK\5\6"
#define CENTRAL "PK\1\2"
#define LOCAL "PK\3\4"
#define END64 "PK\6\6"
#define LOCATOR "PK\6\7"

/* Entries of put_pth: 0 m/, 1 notes, 2 data.pkl, 3 byteorder, 4 data/0. */
static const struct {
    const char *what;
    unsigned flags;
    const char *find;
    int which;
    size_t at;
    uint64_t x;
    int n;
    const char *word;
} patches[] = {
    {"end record gone", 0, END, 0, 0, 0, 4, "no end-of-directory record"},
    {"comment longer than the file", 0, END, 0, 20, 1, 2, "no end-of-directory record"},
    {"directory behind the file", 0, END, 0, 16, 0xfffffff0, 4, "does not fit"},
    {"directory too long", 0, END, 0, 12, 0xfffffff0, 4, "does not fit"},
    {"too many entries", 0, END, 0, 10, 0xfff0, 2, "entries do not fit"},
    {"one entry more", 0, END, 0, 10, 8, 2, "archive: entry 7"},
    {"locator wrong", ZIP_64, LOCATOR, 0, 8, 1, 8, "no ZIP64 end record"},
    {"locator far away", ZIP_64, LOCATOR, 0, 8, UINT64_MAX - 3, 8, "no ZIP64 end record"},
    {"2^64 - 1 entries", ZIP_64, END64, 0, 32, UINT64_MAX, 8, "entries do not fit"},
    {"directory at 2^64 - 8", ZIP_64, END64, 0, 48, UINT64_MAX - 7, 8, "does not fit"},
    {"directory of 2^64 - 1 bytes", ZIP_64, END64, 0, 40, UINT64_MAX, 8, "does not fit"},
    {"record signature", 0, CENTRAL, 3, 0, 0, 1, "entry 3: no central directory record"},
    {"name longer than the directory", 0, CENTRAL, 6, 28, 0xffff, 2, "longer than the central directory"},
    {"encrypted", 0, CENTRAL, 4, 8, 1, 2, "encrypted"},
    {"stored, but of two sizes", 0, CENTRAL, 4, 20, 31, 4, "differ"},
    {"ZIP64 field cut", ZIP_64, "\1\0\30\0", 4, 2, 8, 2, "malformed ZIP64 field"},
    {"ZIP64 field longer than its place", ZIP_64, "\1\0\30\0", 4, 2, 999, 2, "malformed ZIP64 field"},
    {"pickle compressed", 0, CENTRAL, 2, 10, 8, 2, "entry m/data.pkl is compressed"},
    {"storage compressed", 0, CENTRAL, 4, 10, 8, 2, "tensor w: archive: entry m/data/0 is compressed"},
    {"byteorder compressed", 0, CENTRAL, 3, 10, 8, 2, "entry m/byteorder is compressed"},
    {"local header elsewhere", 0, CENTRAL, 4, 42, 1, 4, "no local header"},
    {"local header behind the file", 0, CENTRAL, 4, 42, 0xfffffff0, 4, "no local header"},
    {"local header gone", 0, LOCAL, 2, 0, 0, 4, "no local header"},
    {"local header at 2^64 - 1", ZIP_64, "\1\0\30\0", 4, 20, UINT64_MAX, 8, "no local header"},
    {"entry of 2^64 - 1 bytes", ZIP_64, "\1\0\30\0", 2, 4, UINT64_MAX, 8, "differ"},
    {"big-endian", 0, "little", 0, 0, 'b', 1, "byteorder"},
    {"two entries of one name", 0, "m/data/1", 1, 7, '0', 1, "duplicate entry m/data/0"},
    {"no data.pkl", 0, "m/data.pkl", 1, 2, 'x', 1, "data.pkl is missing"},
    {"data.pkl too deep", 0, "m/data.pkl", 1, 0, '/', 1, "data.pkl is missing"},
};

START_TEST(archives)
{
    static const struct pickle p = PICKLE("plain", W_IS(PLAIN));
    struct buf b;
    void *copy = NULL;
    buf_init(&b);
    put_pth(&b, &p, patches[_i].flags);
    patch(&b, patches[_i].find, patches[_i].find[0] == 1 ? 4 : strlen(patches[_i].find), patches[_i].which,
          patches[_i].at, patches[_i].x, patches[_i].n);
    check_bytes(&b, patches[_i].word, patches[_i].what, &copy);
    buf_fini(&b);
}
END_TEST

/* Sizes that both records claim, and that the file does not have. */
START_TEST(archive_entry_cut)
{
    static const struct pickle p = PICKLE("plain", W_IS(PLAIN));
    struct buf b;
    void *copy = NULL;
    buf_init(&b);
    put_pth(&b, &p, ZIP_PLAIN);
    patch(&b, CENTRAL, 4, 4, 20, 0xfffffff0, 4);
    patch(&b, CENTRAL, 4, 4, 24, 0xfffffff0, 4);
    check_bytes(&b, "truncated: archive entry m/data/0 needs 4294967280 bytes", "entry cut", &copy);
    buf_fini(&b);
}
END_TEST

/* data.pkl at the top of the archive, without byteorder; a pickle above the limit. */
START_TEST(other_layouts)
{
    static const struct pickle p = PICKLE("plain", W_IS(PLAIN));
    fill_floats();
    const struct zip_file files[] = {{"data.pkl", p.bytes, p.len, 0}, {"data/0", floats, sizeof floats, 0}};
    struct buf b;
    void *copy = NULL;
    buf_init(&b);
    put_zip(&b, files, COUNT(files), ZIP_PLAIN);
    struct weights *w = check_bytes(&b, NULL, "top", &copy);
    ck_assert_uint_eq(weights_count(w), 1);
    weights_close(w);
    free(copy);

    struct err err;
    struct arena arena;
    struct pk *top = NULL;
    arena_init(&arena);
    ck_assert_int_eq(pickle_load(&top, &arena, (const uint8_t *)"", PICKLE_SIZE_MAX + 1, &err), ERR_LIMIT);
    ck_assert_ptr_null(top);
    arena_fini(&arena);
    buf_fini(&b);
}
END_TEST

/* Each prefix is refused, each flipped byte is refused or opens: neither harms. */
START_TEST(damaged)
{
    static const struct pickle p =
        PICKLE("plain", DICT_OF(KEY_W PLAIN "s" KEY_V TENSOR("K\0", "K\4K\2\x86", "K\1K\4\x86") "s"));
    struct buf b;
    buf_init(&b);
    put_pth(&b, &p, ZIP_64);
    for (size_t n = 0; n < b.len; n++) {
        struct weights *w = NULL;
        struct err err;
        void *copy = NULL;
        ck_assert_msg(open_bytes(&w, &copy, b.data, n, &err) < 0 && !w, "%zu bytes open", n);
        free(copy);
    }
    for (size_t i = 0; i < b.len; i++)
        for (int bit = 0; bit < 8; bit++) {
            struct weights *w = NULL;
            struct err err;
            void *copy = NULL;
            b.data[i] = (char)((uint8_t)b.data[i] ^ (1u << bit));
            open_bytes(&w, &copy, b.data, b.len, &err);
            b.data[i] = (char)((uint8_t)b.data[i] ^ (1u << bit));
            uint64_t nan = 0, inf = 0;
            if (w)
                ck_assert_int_eq(weights_check(w, &nan, &inf, &err), 0);
            weights_close(w);
            free(copy);
        }
    buf_fini(&b);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("file/pth");
    TCase *c = tcase_create("tensors");
    tcase_add_loop_test(c, opens, 0, COUNT(good));
    tcase_add_test(c, storage_classes);
    tcase_add_loop_test(c, refused, 0, COUNT(wrong));
    tcase_add_test(c, copy_budget);
    tcase_add_test(c, odd_structures);
    suite_add_tcase(s, c);
    c = tcase_create("archives");
    tcase_add_loop_test(c, archives, 0, COUNT(patches));
    tcase_add_test(c, archive_entry_cut);
    tcase_add_test(c, other_layouts);
    tcase_add_test(c, damaged);
    suite_add_tcase(s, c);
    return test_main(s);
}
