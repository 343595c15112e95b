/* What each test program of the server is in a build without one: a test that is
 * skipped, and says why.  So such a build compiles nothing that it cannot run, and
 * its count of skipped tests still tells of them. */
#include "tests/test.h"

START_TEST(no_server)
{
    test_skip("built without libmicrohttpd");
}
END_TEST

int main(void)
{
    Suite *s = suite_create("no_server");
    TCase *tc = tcase_create("none");
    tcase_add_test(tc, no_server);
    suite_add_tcase(s, tc);
    return test_main(s);
}
