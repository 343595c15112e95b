/* What every test program shares: see test.h.  Failures here are test
 * failures, never a silent skip.
 *
 * Counts go through shared memory because Check runs each test in a child. */
#include "tests/test.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"
#include "base/map.h"
#include "base/mem.h"

#define PATH_SIZE 4096
#define N_PATHS 8

#define TMP_TOP "test-tmp"
#define TMP_ROOT TMP_TOP "/%ld"

static int *n_skipped; /* shared with the children */
static pid_t root_pid; /* of the program that runs the suite */

static char *next_path(void)
{
    static char paths[N_PATHS][PATH_SIZE];
    static unsigned turn;
    return paths[turn++ % N_PATHS];
}

static const char *join(const char *dir, const char *name)
{
    char *out = next_path();
    int n = snprintf(out, PATH_SIZE, "%s/%s", dir, name);
    ck_assert_msg(n > 0 && n < PATH_SIZE, "path too long: %s/%s", dir, name);
    return out;
}

const char *test_path(const char *name)
{
    const char *dir = getenv("FORGE_TEST_SRCDIR");
    return join(dir && *dir ? dir : "tests", name);
}

static void make_dir(const char *dir)
{
    ck_assert_msg(mkdir(dir, 0700) == 0 || errno == EEXIST, "%s: %s", dir, strerror(errno));
}

const char *test_tmp(const char *name)
{
    static char dir[128];
    static pid_t owner;
    if (owner != getpid()) { /* each child its own, below that of the test program */
        owner = getpid();
        if (root_pid == 0)
            root_pid = owner;
        snprintf(dir, sizeof dir, TMP_ROOT, (long)root_pid);
        make_dir(TMP_TOP);
        while (mkdir(dir, 0700) != 0 && errno == ENOENT)
            make_dir(TMP_TOP); /* another program took it for empty, at its end */
        size_t len = strlen(dir);
        snprintf(dir + len, sizeof dir - len, "/%ld", (long)owner);
        make_dir(dir);
    }
    return join(dir, name);
}

static void remove_tree(const char *dir, int depth)
{
    char **names;
    size_t n;
    if (depth > 8 || path_list(dir, &names, &n, NULL) != 0)
        return;
    for (size_t i = 0; i < n; i++) {
        char path[PATH_SIZE];
        struct stat st;
        int len = snprintf(path, sizeof path, "%s/%s", dir, names[i]);
        if (len < 0 || len >= PATH_SIZE || lstat(path, &st) != 0)
            continue;
        if (S_ISDIR(st.st_mode))
            remove_tree(path, depth + 1);
        else
            unlink(path);
    }
    path_list_free(names, n);
    rmdir(dir);
}

static void remove_tmp(void)
{
    char dir[64];
    snprintf(dir, sizeof dir, TMP_ROOT, (long)root_pid);
    if (path_is_dir(dir))
        remove_tree(dir, 0);
    rmdir(TMP_TOP); /* stays while other programs use it */
}

/* Check reads its time limit when a part of a suite is made, which is before test_main. */
__attribute__((constructor)) static void set_time_limit(void)
{
    setenv("CK_DEFAULT_TIMEOUT", "120", 0);
}

cJSON *test_json(const char *name)
{
    struct err err = {0};
    cJSON *root;
    json_parse_file(&root, test_path(name), &err);
    ck_assert_msg(root != NULL, "%s", err.msg);
    return root;
}

/* The value of 'key': in an .npy header, as a pointer to what follows the colon. */
static const char *npy_field(const char *header, const char *key, const char *name)
{
    const char *p = strstr(header, key);
    ck_assert_msg(p != NULL, "%s: no %s in its header", name, key);
    p += strlen(key);
    return p + strspn(p, "': ");
}

void test_npy(struct npy *out, const char *name)
{
    struct err err = {0};
    char *data;
    size_t len;
    memset(out, 0, sizeof *out);
    ck_assert_msg(map_read_all(test_path(name), SIZE_MAX / 2, &data, &len, &err) == 0, "%s", err.msg);
    ck_assert_msg(len > 10 && memcmp(data, "\x93NUMPY\x01", 7) == 0, "%s: no .npy of version 1", name);
    size_t header_len = (uint8_t)data[8] | (size_t)(uint8_t)data[9] << 8;
    ck_assert_msg(10 + header_len <= len, "%s: header cut short", name);
    char *header = mem_strndup(data + 10, header_len);
    ck_assert_ptr_nonnull(header);
    const char *descr = npy_field(header, "descr", name);
    bool wide = strncmp(descr, "<f8", 3) == 0;
    ck_assert_msg(wide || strncmp(descr, "<f4", 3) == 0, "%s: neither <f4 nor <f8", name);
    ck_assert_msg(strncmp(npy_field(header, "fortran_order", name), "False", 5) == 0,
                  "%s: not in C order", name);
    const char *p = npy_field(header, "shape", name);
    out->n = 1;
    for (p += *p == '('; *p && *p != ')'; p += strspn(p, ", ")) {
        char *end;
        ck_assert_msg(out->n_dims < 4, "%s: more than 4 dimensions", name);
        size_t d = strtoull(p, &end, 10);
        ck_assert_msg(end != p, "%s: shape not understood", name);
        out->shape[out->n_dims++] = d;
        out->n *= d;
        p = end;
    }
    size_t size = out->n * (wide ? sizeof(double) : sizeof(float));
    ck_assert_msg(len - 10 - header_len == size, "%s: %zu bytes of data, shape needs %zu", name,
                  len - 10 - header_len, size);
    void *values = mem_array(size, 1);
    ck_assert_ptr_nonnull(values);
    memcpy(values, data + 10 + header_len, size);
    out->kind = wide ? 'd' : 'f';
    out->d = wide ? values : NULL;
    out->f = wide ? NULL : values;
    free(header);
    free(data);
}

void test_npy_free(struct npy *a)
{
    free(a->f);
    free(a->d);
    memset(a, 0, sizeof *a);
}

int32_t *test_ids(const cJSON *array, size_t *n)
{
    ck_assert_msg(cJSON_IsArray(array), "an array of ids is missing");
    size_t count = 0;
    for (const cJSON *c = array->child; c; c = c->next)
        count++;
    int32_t *ids = mem_array(count, sizeof *ids);
    ck_assert_ptr_nonnull(ids);
    *n = 0;
    for (const cJSON *c = array->child; c; c = c->next) {
        ck_assert_msg(cJSON_IsNumber(c), "id %zu is no number", *n);
        ids[(*n)++] = (int32_t)c->valuedouble;
    }
    return ids;
}

static unsigned hex_digit(char c)
{
    const char *digits = "0123456789abcdef";
    const char *p = c ? strchr(digits, c >= 'A' && c <= 'F' ? c + 32 : c) : NULL;
    ck_assert_msg(p != NULL, "'%c' is no hexadecimal digit", c);
    return (unsigned)(p - digits);
}

/* The hexadecimal twin of a text member: "hex" beside "text", else key_hex. */
static const cJSON *hex_member(const cJSON *obj, const char *key)
{
    char name[128];
    if (strcmp(key, "text") == 0)
        return json_get(obj, "hex");
    snprintf(name, sizeof name, "%s_hex", key);
    return json_get(obj, name);
}

char *test_text(const cJSON *obj, const char *key, size_t *len)
{
    const cJSON *item = json_get(obj, key), *hex = hex_member(obj, key);
    struct buf b;
    buf_init(&b);
    if (item) {
        ck_assert_msg(json_str(item, &b), "%s is no string", key);
    } else {
        ck_assert_msg(cJSON_IsString(hex), "neither %s nor its hexadecimal form is there", key);
        for (const char *p = hex->valuestring; p[0] && p[1]; p += 2)
            buf_putc(&b, (char)(hex_digit(p[0]) << 4 | hex_digit(p[1])));
    }
    buf_put(&b, "", 0); /* an empty text is a valid pointer, too */
    ck_assert(!buf_failed(&b));
    *len = b.len;
    return b.data;
}

void test_skip(const char *reason)
{
    printf("skipped: %s\n", reason);
    fflush(stdout);
    if (n_skipped)
        __atomic_add_fetch(n_skipped, 1, __ATOMIC_RELAXED);
}

int test_main(Suite *s)
{
    n_skipped = mmap(NULL, sizeof *n_skipped, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (n_skipped == MAP_FAILED)
        return EXIT_FAILURE;
    root_pid = getpid();
    SRunner *runner = srunner_create(s);
    srunner_run_all(runner, CK_NORMAL);
    int run = srunner_ntests_run(runner), failed = srunner_ntests_failed(runner);
    int skipped = *n_skipped < run ? *n_skipped : run;
    srunner_free(runner);
    remove_tmp();
    printf("%d passed, %d failed, %d skipped\n", run - failed - skipped, failed, skipped);
    if (failed > 0 || run == 0)
        return EXIT_FAILURE;
    return skipped == run ? 77 : EXIT_SUCCESS;
}
