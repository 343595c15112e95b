/* cli/limits: the process that measures ends with its owner whoever else holds
 * its pipes, starts no memory before it measures, and tells what it found.
 * How fast the machine is is nobody's test. */
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/limits.h"
#include "tests/test.h"

enum { FDS = 64 };

static void open_ok(struct limits **l)
{
    struct err err = {0};
    ck_assert_msg(limits_new(l, 2, &err) == 0, "%s", err.msg);
}

START_TEST(measures)
{
    struct limits *l;
    struct limits_found f = {0}, all = {.read_gb_s = 1e9};
    struct err err = {0};
    open_ok(&l);
    ck_assert_msg(limits_measure(l, 1u << PEAK_F32, &f, &err) == 0, "%s", err.msg);
    ck_assert(f.read_gb_s > 0);
    ck_assert(f.gflop_s[PEAK_F32] > 0);
    ck_assert(!(f.gflop_s[PEAK_INT8] > 0)); /* not asked for */
    limits_add(&all, &f);
    ck_assert(all.read_gb_s >= 1e9 && all.gflop_s[PEAK_F32] >= f.gflop_s[PEAK_F32]);
    limits_free(l);
}
END_TEST

START_TEST(no_program_gets_the_pipes)
{
    struct limits *l;
    bool was[FDS];
    int n = 0;
    for (int fd = 0; fd < FDS; fd++)
        was[fd] = fcntl(fd, F_GETFD) >= 0;
    open_ok(&l);
    for (int fd = 0; fd < FDS; fd++) {
        int flags = fcntl(fd, F_GETFD);
        if (was[fd] || flags < 0)
            continue;
        ck_assert_msg(flags & FD_CLOEXEC, "descriptor %d would be a started program's, too", fd);
        n++;
    }
    ck_assert_int_eq(n, 2);
    limits_free(l);
}
END_TEST

/* Without a bound this would wait as long as the other process lives: the test's limit of time is its end. */
START_TEST(ends_though_its_pipe_is_held)
{
    struct limits *l;
    open_ok(&l);
    pid_t holder = fork();
    if (holder == 0)
        for (;;)
            pause();
    ck_assert_int_gt(holder, 0);
    limits_free(l);
    ck_assert_int_eq(waitpid(-1, NULL, WNOHANG), 0); /* only the holder is left */
    kill(holder, SIGKILL);
    ck_assert_int_eq(waitpid(holder, NULL, 0), holder);
    ck_assert_int_eq(waitpid(-1, NULL, WNOHANG), -1);
}
END_TEST

/* A model that is loaded meanwhile must find the memory that there is. */
START_TEST(takes_no_memory_before_it_measures)
{
    struct rusage u;
    struct limits *l;
    open_ok(&l);
    limits_free(l);
    ck_assert_int_eq(getrusage(RUSAGE_CHILDREN, &u), 0);
    ck_assert_msg(u.ru_maxrss < 256 * 1024, "%ld KiB before anything was measured", u.ru_maxrss);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("limits");
    TCase *c = tcase_create("process");
    tcase_set_timeout(c, 60);
    tcase_add_test(c, measures);
    tcase_add_test(c, no_program_gets_the_pipes);
    tcase_add_test(c, ends_though_its_pipe_is_held);
    tcase_add_test(c, takes_no_memory_before_it_measures);
    suite_add_tcase(s, c);
    return test_main(s);
}
