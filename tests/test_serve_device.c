/* forge serve on a device that fails: the OpenCL implementation that is here, below
 * the layer of tests/clfault.  A failure is computed over and nobody sees it, or it
 * is that request's error and /health's, and the next request works where the
 * device does.
 *
 * Skipped where there is no OpenCL, no server, or the layer does not build. */
#include "tests/serve_kit.h"

#define BODY(stream) \
    "{\"prompt\":\"The capital of France is\",\"temperature\":0,\"max_tokens\":8,\"ignore_eos\":true,\"stream\":" stream "}"
#define C "/v1/completions"

static char layer[512], alone[256]; /* the answer of a sound device */

/* false after a skip. */
static bool have_layer(void)
{
    char command[2048], out[4096];
    const char *forge = getenv("FORGE");
    snprintf(layer, sizeof layer, "%s", test_tmp("libclfault.so"));
    snprintf(command, sizeof command, "sh '%s' '%s' 2>/dev/null && OPENCL_LAYERS='%s' '%s' devices 2>&1", test_path("clfault/build.sh"),
             layer, layer, forge ? forge : "./forge");
    FILE *f = popen(command, "r");
    ck_assert_ptr_nonnull(f);
    out[fread(out, 1, sizeof out - 1, f)] = '\0';
    pclose(f);
    if (strstr(out, "clfault:") && strstr(out, "\nopencl:"))
        return true;
    test_skip("no OpenCL, or the fault layer does not build");
    return false;
}

static void start_below(struct child *c, const char *variable, const char *value)
{
    static const char *const args[] = {"--no-selftest", "--slots", "2", "--no-prefix-cache", NULL};
    setenv("OPENCL_LAYERS", layer, 1);
    setenv(variable, value, 1);
    child_start_on(c, "opencl", args);
    unsetenv("OPENCL_LAYERS");
    unsetenv(variable);
}

static long count_of(const char *file, const char *call)
{
    char line[256];
    long n = 0;
    size_t len = strlen(call);
    FILE *f = fopen(file, "r");
    ck_assert_ptr_nonnull(f);
    while (fgets(line, sizeof line, f))
        if (strncmp(line, call, len) == 0 && line[len] == ' ')
            n = strtol(line + len, NULL, 10);
    fclose(f);
    return n;
}

/* Launches of kernels by a server that answers so many requests. */
static long launches_of(int n_requests)
{
    struct child c;
    char file[512];
    snprintf(file, sizeof file, "%s", test_tmp("calls"));
    start_below(&c, "FORGE_CLCOUNT", file);
    for (int i = 0; i < n_requests; i++) {
        struct answer a = ask(&c, "POST", C, BODY("false"));
        ck_assert_int_eq(a.status, 200);
        snprintf(alone, sizeof alone, "%s", str_at(a.json, "choices.0.text"));
        answer_fini(&a);
    }
    child_stop(&c);
    return count_of(file, "clEnqueueNDRangeKernel");
}

static void works(struct child *c)
{
    struct answer a = ask(c, "POST", C, BODY("false"));
    ck_assert_msg(a.status == 200, "%s", buf_str(&a.body));
    ck_assert_str_eq(str_at(a.json, "choices.0.text"), alone);
    answer_fini(&a);
    a = ask(c, "GET", "/health", NULL);
    ck_assert_int_eq(a.status, 200);
    ck_assert_str_eq(str_at(a.json, "status"), "ok");
    answer_fini(&a);
}

static const char told[] = "The device failed while it computed this request.";

static void fails(struct child *c, bool stream)
{
    struct answer a;
    if (stream) {
        struct http_conn conn;
        struct streamed s = {.n_events = 0};
        open_stream(c, &conn, C, BODY("true"));
        read_events(&conn, &s, "choices.0.text", -1);
        ck_assert_str_eq(s.error, told);
        ck_assert(!s.done && s.n_finish == 0);
        ck_assert(strncmp(alone, buf_str(&s.text), s.text.len) == 0);
        buf_fini(&s.text);
        http_close(&conn);
    } else {
        a = ask(c, "POST", C, BODY("false"));
        ck_assert_msg(a.status == 500, "%d %s", a.status, buf_str(&a.body));
        ck_assert_str_eq(str_at(a.json, "error.message"), told);
        ck_assert_str_eq(str_at(a.json, "error.type"), "server_error");
        answer_fini(&a);
    }
    a = ask(c, "GET", "/health", NULL);
    ck_assert_int_eq(a.status, 503);
    ck_assert_str_eq(str_at(a.json, "status"), "error");
    ck_assert_msg(strstr(str_at(a.json, "reason"), "device"), "%s", buf_str(&a.body));
    answer_fini(&a);
}

START_TEST(a_device_that_fails)
{
    struct child c;
    char rule[256];
    if (!have_layer())
        return;
    long before = launches_of(0), all = launches_of(1);
    ck_assert_int_gt(all, before + 8);
    for (int i = 1; i <= 3; i++) { /* in the prompt's step and in later ones; a launch is tried twice */
        long at = before + (all - before) * i / 4;
        snprintf(rule, sizeof rule, "clEnqueueNDRangeKernel:%ld:-5,clEnqueueNDRangeKernel:%ld:-5", at, at + 1);
        start_below(&c, "FORGE_CLFAULT", rule);
        works(&c);
        ck_assert(metric(&c, "forge_device_recoveries_total") == 1);
        ck_assert(metric(&c, "forge_requests_failed_total") == 0);
        works(&c);
        child_stop(&c);
    }
    for (int stream = 0; stream < 2; stream++) { /* it cannot be opened again at once, then it can */
        long at = before + (all - before) / 2;
        snprintf(rule, sizeof rule, "clEnqueueNDRangeKernel:%ld:-5,clEnqueueNDRangeKernel:%ld:-5,clCreateContext:2:-6", at, at + 1);
        start_below(&c, "FORGE_CLFAULT", rule);
        fails(&c, stream);
        works(&c);
        ck_assert(metric(&c, "forge_requests_failed_total") == 1);
        child_stop(&c);
    }
    snprintf(rule, sizeof rule, "clEnqueueNDRangeKernel:%ld+:-5", before + (all - before) / 2); /* for good */
    start_below(&c, "FORGE_CLFAULT", rule);
    for (int i = 0; i < 2; i++)
        fails(&c, i);
    child_stop(&c);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("serve_device");
    TCase *tc = tcase_create("a device that fails");
    tcase_add_test(tc, a_device_that_fails);
    suite_add_tcase(s, tc);
    return test_main(s);
}
