/* base/: file mappings, whole files and standard input, path helpers, and the
 * limits of control groups.
 *
 * Folders and files are made in the scratch folder; control groups are read
 * from such folders, never from the machine's own. */
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/cgroup.h"
#include "base/hash.h"
#include "base/map.h"
#include "base/mem.h"
#include "tests/test.h"

#define COUNT(a) (int)(sizeof(a) / sizeof((a)[0]))

static void write_file(const char *path, const char *data, size_t len)
{
    FILE *f = fopen(path, "wb");
    ck_assert_msg(f != NULL, "%s: %s", path, strerror(errno));
    ck_assert_uint_eq(fwrite(data, 1, len, f), len);
    ck_assert_int_eq(fclose(f), 0);
}

START_TEST(map_files)
{
    struct map m;
    struct err e;
    const char *path = test_tmp("data"), *link = test_tmp("link"), *empty = test_tmp("empty");
    write_file(path, "abc\0def", 7);
    write_file(empty, "", 0);
    ck_assert_int_eq(map_open(&m, path, &e), 0);
    ck_assert_uint_eq(m.size, 7);
    ck_assert_mem_eq(m.data, "abc\0def", 7);
    ck_assert_str_eq(m.path, path);
    map_close(&m);
    map_close(&m);
    ck_assert_int_eq(symlink("data", link), 0);
    ck_assert_int_eq(map_open(&m, link, &e), 0);
    ck_assert_uint_eq(m.size, 7);
    map_close(&m);
    ck_assert_int_eq(map_open(&m, empty, &e), 0);
    ck_assert_uint_eq(m.size, 0);
    ck_assert_ptr_null(m.data);
    map_close(&m);
}
END_TEST

START_TEST(map_refused)
{
    struct map m;
    struct err e;
    const char *fifo = test_tmp("fifo"), *dangling = test_tmp("dangling");
    ck_assert_int_eq(mkfifo(fifo, 0600), 0);
    ck_assert_int_eq(symlink("nowhere", dangling), 0);
    const struct {
        const char *path, *say;
    } cases[] = {
        {"no/such/file", "cannot open"}, {".", "a folder"},   {fifo, "a pipe"},
        {"/dev/null", "character device"}, {dangling, "cannot open"},
    };
    for (int i = 0; i < COUNT(cases); i++) {
        ck_assert_int_eq(map_open(&m, cases[i].path, &e), ERR_IO);
        ck_assert_msg(strstr(e.msg, cases[i].say) && strstr(e.msg, cases[i].path), "%s", e.msg);
        ck_assert_ptr_null(m.data);
        map_close(&m);
    }
}
END_TEST

START_TEST(read_all)
{
    struct err e;
    char *data;
    size_t len, n = 200000;
    const char *path = test_tmp("big");
    char *big = mem_array(n, 1);
    for (size_t i = 0; i < n; i++)
        big[i] = (char)hash_u64(i);
    write_file(path, big, n);
    ck_assert_int_eq(map_read_all(path, n, &data, &len, &e), 0);
    ck_assert_uint_eq(len, n);
    ck_assert_mem_eq(data, big, n);
    ck_assert_int_eq(data[n], 0);
    free(data);
    ck_assert_int_eq(map_read_all(path, n - 1, &data, &len, &e), ERR_LIMIT);
    ck_assert_msg(strstr(e.msg, "199999"), "%s", e.msg);
    ck_assert_ptr_null(data);
    ck_assert_int_eq(map_read_all(".", n, &data, &len, &e), ERR_IO);
    ck_assert_int_eq(map_read_all("no/such/file", n, &data, &len, &e), ERR_IO);
    ck_assert_ptr_nonnull(freopen(path, "r", stdin));
    ck_assert_int_eq(map_read_all("-", n, &data, &len, &e), 0);
    ck_assert_mem_eq(data, big, n);
    free(data);
    free(big);
}
END_TEST

/* Whole or not at all: names that are taken are passed by, links are not followed, failures leave nothing. */
START_TEST(replaced)
{
    struct err e;
    char *data, tmp[700], folder[600], inner[700];
    size_t len;
    char path[600];
    struct stat st;
    snprintf(path, sizeof path, "%s", test_tmp("replaced"));
    snprintf(folder, sizeof folder, "%s", test_tmp("replaced-folder"));
    snprintf(tmp, sizeof tmp, "%s.%ld-0.tmp", path, (long)getpid());
    ck_assert_int_eq(symlink("nowhere", tmp), 0); /* another's, or a trap */
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(path_replace(path, "head", 4, "rest", i == 0 ? 4 : 0, &e), 0);
        ck_assert_int_eq(map_read_all(path, 100, &data, &len, &e), 0);
        ck_assert_str_eq(data, i == 0 ? "headrest" : "head");
        free(data);
    }
    ck_assert_int_eq(lstat(tmp, &st), 0);
    ck_assert(S_ISLNK(st.st_mode));
    ck_assert(!path_exists("nowhere"));
    ck_assert_int_eq(mkdir(folder, 0700), 0);
    ck_assert_int_eq(path_replace(folder, "head", 4, NULL, 0, &e), ERR_IO);
    ck_assert_msg(strstr(e.msg, folder), "%s", e.msg);
    snprintf(inner, sizeof inner, "%s.%ld-0.tmp", folder, (long)getpid());
    ck_assert(!path_exists(inner));
    ck_assert_int_eq(path_replace("no/such/folder/file", "head", 4, NULL, 0, &e), ERR_IO);
    unlink(tmp);
    unlink(path);
    rmdir(folder);
}
END_TEST

static void on_alarm(int sig)
{
    (void)sig;
}

/* A signal ends a wait for input that never comes. */
START_TEST(read_interrupted)
{
    struct err e;
    char *data;
    size_t len;
    int ends[2];
    ck_assert_int_eq(pipe(ends), 0);
    ck_assert_int_eq(dup2(ends[0], STDIN_FILENO), STDIN_FILENO);
    struct sigaction act = {.sa_handler = on_alarm};
    struct itimerval often = {{0, 20000}, {0, 20000}};
    ck_assert_int_eq(sigaction(SIGALRM, &act, NULL), 0);
    ck_assert_int_eq(setitimer(ITIMER_REAL, &often, NULL), 0);
    ck_assert_int_eq(map_read_all("-", 100, &data, &len, &e), ERR_CANCELLED);
    ck_assert_msg(strstr(e.msg, "standard input"), "%s", e.msg);
    const struct itimerval never = {{0, 0}, {0, 0}};
    setitimer(ITIMER_REAL, &never, NULL);
}
END_TEST

static const struct {
    const char *path, *dir, *base;
} path_cases[] = {
    {"a/b/c", "a/b", "c"}, {"c", ".", "c"}, {"/c", "/", "c"}, {"a/", "a", ""}, {"", ".", ""},
};

START_TEST(path_parts)
{
    char *dir = path_dirname(path_cases[_i].path);
    ck_assert_str_eq(dir, path_cases[_i].dir);
    ck_assert_str_eq(path_basename(path_cases[_i].path), path_cases[_i].base);
    free(dir);
}
END_TEST

START_TEST(path_folders)
{
    struct err e;
    char **names;
    size_t n;
    const char *dir = test_tmp("folder");
    ck_assert_int_eq(mkdir(dir, 0700), 0);
    ck_assert_int_eq(path_list(dir, &names, &n, &e), 0);
    ck_assert_uint_eq(n, 0);
    path_list_free(names, n);
    for (int i = 20; i-- > 0;) {
        char name[16];
        snprintf(name, sizeof name, "f%02d", i);
        char *p = path_join(dir, name);
        write_file(p, "x", 1);
        ck_assert(path_exists(p) && !path_is_dir(p) && path_is_file(p));
        free(p);
    }
    ck_assert_int_eq(path_list(dir, &names, &n, &e), 0);
    ck_assert_uint_eq(n, 20);
    for (size_t i = 1; i < n; i++)
        ck_assert_int_lt(strcmp(names[i - 1], names[i]), 0);
    path_list_free(names, n);
    ck_assert(path_is_dir(dir) && !path_is_file(dir));
    ck_assert(!path_exists("no/such") && !path_is_dir("no/such") && !path_is_file("no/such"));
    ck_assert_int_eq(path_list("no/such", &names, &n, &e), ERR_IO);
    char *p = path_join("a/", "b");
    ck_assert_str_eq(p, "a/b");
    free(p);
    p = path_join("", "b");
    ck_assert_str_eq(p, "b");
    free(p);
}
END_TEST

/* ---- cgroup ---- */

/* A folder layout as lines of "path|content"; folders are made as needed. */
static const char *make_tree(const char *const *files, size_t n)
{
    const char *root = test_tmp("cg");
    ck_assert(mkdir(root, 0700) == 0 || errno == EEXIST);
    for (size_t i = 0; i < n; i++) {
        char path[1024];
        const char *bar = strchr(files[i], '|');
        int len = snprintf(path, sizeof path, "%s/%.*s", root, (int)(bar - files[i]), files[i]);
        ck_assert(len > 0 && len < (int)sizeof path);
        for (char *p = path + strlen(root) + 1; (p = strchr(p, '/')); *p++ = '/') {
            *p = '\0';
            ck_assert(mkdir(path, 0700) == 0 || errno == EEXIST);
        }
        write_file(path, bar + 1, strlen(bar + 1));
    }
    return root;
}

START_TEST(cgroup_v2)
{
    static const char *const files[] = {
        "self|0::/a/b\n",
        "a/memory.max|1000000\n", "a/memory.current|900000\n",
        "a/memory.stat|anon 5\ninactive_file 200000\nactive_file 100000\n",
        "a/b/memory.max|max\n",   "a/b/memory.current|5\n",
        "a/cpu.max|150000 100000\n", "a/b/cpu.max|max 100000\n",
    };
    const char *root = make_tree(files, COUNT(files));
    char self[1024];
    uint64_t left = 0;
    double cpus = 0;
    snprintf(self, sizeof self, "%s/self", root);
    ck_assert(cgroup_memory_left(self, root, &left));
    ck_assert_uint_eq(left, 400000); /* the parent's limit, its file cache counted as free */
    ck_assert(cgroup_cpu_quota(self, root, &cpus));
    ck_assert(fabs(cpus - 1.5) < 1e-9);
    ck_assert(!cgroup_memory_left("no/such", root, &left));
    ck_assert(!cgroup_cpu_quota(self, "no/such", &cpus));
}
END_TEST

START_TEST(cgroup_v1)
{
    static const char *const files[] = {
        "self|9:name=systemd:/\n4:hugetlb,memory:/x/y\n2:cpu,cpuacct:/x\n0::/\n",
        "memory/memory.limit_in_bytes|9223372036854771712\n", "memory/memory.usage_in_bytes|77\n",
        "memory/x/y/memory.limit_in_bytes|5000\n", "memory/x/y/memory.usage_in_bytes|6000\n",
        "cpu/x/cpu.cfs_quota_us|-1\n", "cpu/x/cpu.cfs_period_us|100000\n",
        "cpu/cpu.cfs_quota_us|300000\n", "cpu/cpu.cfs_period_us|100000\n",
    };
    const char *root = make_tree(files, COUNT(files));
    char self[1024];
    uint64_t left = 9;
    double cpus = 0;
    snprintf(self, sizeof self, "%s/self", root);
    ck_assert(cgroup_memory_left(self, root, &left));
    ck_assert_uint_eq(left, 0); /* over its limit */
    ck_assert(cgroup_cpu_quota(self, root, &cpus));
    ck_assert(fabs(cpus - 3) < 1e-9);
}
END_TEST

/* Files that make no sense mean "no limit", whatever is in them. */
START_TEST(cgroup_nonsense)
{
    static const char *const files[] = {
        "self|::::\nxyz\n0:/\n0::/a\n", "a/memory.max|lots\n", "a/cpu.max|fast 100000\n",
        "memory.max|-5\n", "cpu.max|100000\n",
    };
    const char *root = make_tree(files, COUNT(files));
    char self[1024];
    uint64_t left;
    double cpus;
    snprintf(self, sizeof self, "%s/self", root);
    ck_assert(!cgroup_memory_left(self, root, &left));
    ck_assert(!cgroup_cpu_quota(self, root, &cpus));
}
END_TEST

int main(void)
{
    Suite *s = suite_create("base files");
    TCase *c = tcase_create("map, cgroup");
    tcase_add_test(c, map_files);
    tcase_add_test(c, map_refused);
    tcase_add_test(c, read_all);
    tcase_add_test(c, replaced);
    tcase_add_test(c, read_interrupted);
    tcase_add_loop_test(c, path_parts, 0, COUNT(path_cases));
    tcase_add_test(c, path_folders);
    tcase_add_test(c, cgroup_v2);
    tcase_add_test(c, cgroup_v1);
    tcase_add_test(c, cgroup_nonsense);
    suite_add_tcase(s, c);
    return test_main(s);
}
