/* forge serve: how much it takes, from whom, and what it passes on as it came: the
 * bounds of bodies and of their fields, slow senders, pages of other sites, numbers.
 *
 * Where forge has no server (libmicrohttpd), one case is skipped and that is all. */
#include <arpa/inet.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "cli/out.h"
#include "tests/serve_kit.h"

#define C "/v1/completions"

static struct child server; /* of a test case; its tests run in children of this process */

static void start_server(void)
{
    child_start(&server, NULL);
}

static void stop_server(void)
{
    child_stop(&server);
}

/* What is bounded across a body: stop strings, prompts said again, values. */
START_TEST(bounded)
{
    enum { MANY = (1 << 20) + 2, SIZE = 2 * MANY + 64 };
    char *body = malloc(SIZE), *long_text = malloc(70000);
    ck_assert(body && long_text);
    memset(long_text, 'a', 69999);
    long_text[69999] = '\0';

    size_t n = (size_t)snprintf(body, SIZE, "{\"prompt\":\"a\",\"stop\":[\"b\",\"%.65536s\"]}", long_text);
    struct answer a = ask_with(&server, "POST", C, "", body, n);
    ck_assert_int_eq(a.status, 400);
    ck_assert_str_eq(str_at(a.json, "error.param"), "stop");
    ck_assert_msg(strstr(str_at(a.json, "error.message"), "65536"), "%s", buf_str(&a.body));
    answer_fini(&a);

    n = (size_t)snprintf(body, SIZE, "{\"prompt\":\"a\",\"stop\":[\"%.65536s\"],\"n\":4,\"max_tokens\":2}", long_text);
    a = ask_with(&server, "POST", C, "", body, n);
    ck_assert_int_eq(a.status, 200);
    answer_fini(&a);

    n = (size_t)snprintf(body, SIZE, "{\"prompt\":\"%s\",\"echo\":true,\"stream\":true,\"n\":64}", long_text);
    a = ask_with(&server, "POST", C, "", body, n);
    ck_assert_int_eq(a.status, 400);
    ck_assert_str_eq(str_at(a.json, "error.param"), "echo");
    answer_fini(&a);

    n = (size_t)snprintf(body, SIZE, "{\"tokens\":[1");
    for (int i = 1; i < MANY; i++) {
        body[n++] = ',';
        body[n++] = '1';
    }
    memcpy(body + n, "]}", 2);
    a = ask_with(&server, "POST", "/detokenize", "", body, n + 2);
    ck_assert_int_eq(a.status, 400);
    ck_assert_msg(strstr(str_at(a.json, "error.message"), "more than 1048576 values"), "%.300s", buf_str(&a.body));
    answer_fini(&a);
    free(body);
    free(long_text);
}
END_TEST

/* Offsets of a stream's tokens are those of the whole answer: characters, not bytes. */
START_TEST(text_offsets)
{
    static const char ask_for[] = "{\"content\":\"\xc3\xa9\",\"add_special\":false}";
    char body[512];
    struct http_conn conn;
    struct buf line;
    struct err err = {0};
    int n = 0;
    struct answer t = ask(&server, "POST", "/tokenize", ask_for);
    size_t len = (size_t)snprintf(body, sizeof body, "{\"prompt\":\"a\",\"temperature\":0,\"max_tokens\":6,\"logprobs\":0,\"ignore_eos\":true,"
                                       "\"presence_penalty\":2,\"logit_bias\":{");
    for (int i = 0; i < (int)num_at(t.json, "count"); i++) { /* its bytes take turns */
        char key[32];
        snprintf(key, sizeof key, "tokens.%d", i);
        len += (size_t)snprintf(body + len, sizeof body - len, "%s\"%d\":100", i ? "," : "", (int)num_at(t.json, key));
    }
    snprintf(body + len, sizeof body - len, "}}");
    struct answer whole = ask(&server, "POST", C, body);
    ck_assert_msg(whole.status == 200, "%s", buf_str(&whole.body));
    ck_assert_msg((unsigned char)str_at(whole.json, "choices.0.text")[0] >= 0x80, "%s", buf_str(&whole.body));
    snprintf(body + len, sizeof body - len, "},\"stream\":true}");
    open_stream(&server, &conn, C, body);
    buf_init(&line);
    while (http_line(&conn, &line, &err) > 0) {
        cJSON *j = NULL;
        if (strncmp(buf_str(&line), "data: {", 7) == 0 && json_parse(&j, line.data + 6, line.len - 6, "event", &err) == 0) {
            const cJSON *offsets = at_path(j, "choices.0.logprobs.text_offset");
            for (const cJSON *o = cJSON_IsArray(offsets) ? offsets->child : NULL; o; o = o->next, n++) {
                char key[64];
                snprintf(key, sizeof key, "choices.0.logprobs.text_offset.%d", n);
                ck_assert_msg(o->valuedouble == num_at(whole.json, key), "token %d: %g, and %g in the whole", n, o->valuedouble,
                              num_at(whole.json, key));
            }
        }
        cJSON_Delete(j);
    }
    ck_assert_int_eq(n, 6);
    buf_fini(&line);
    http_close(&conn);
    answer_fini(&whole);
    answer_fini(&t);
}
END_TEST

/* Pages of other sites, and names that were pointed here. */
static const struct {
    const char *host, *origin; /* of "@": this server's own */
    int status;
} callers[] = {
    {"@", NULL, 200},
    {"@", "http://@", 200},
    {"localhost", NULL, 200},
    {"LOCALHOST:1", NULL, 200},
    {"forge.localhost:80", NULL, 200},
    {"[::1]:80", NULL, 200},
    {"192.168.0.7:8001", NULL, 200},
    {"@", "http://evil.example", 403},
    {"@", "https://evil.example:8001", 403},
    {"@", "null", 403},
    {"@", "http://localhost:3000", 403},
    {"evil.example:8001", NULL, 403},
    {"evil.example:8001", "http://evil.example:8001", 403},
    {"localhost.evil.example", NULL, 403},
    {"evillocalhost", NULL, 403},
    {"127.0.0.1.evil.example", NULL, 403},
};

static struct answer call_as(struct child *c, const char *host, const char *origin)
{
    char own[300], head[1024], from[400] = "";
    snprintf(own, sizeof own, "%s:%s", c->url.host, c->url.port);
    if (origin)
        snprintf(from, sizeof from, "Origin: %s%s\r\n", strcmp(origin, "http://@") ? origin : "http://", strcmp(origin, "http://@") ? "" : own);
    snprintf(head, sizeof head,
             "POST /v1/completions HTTP/1.1\r\nHost: %s\r\n%sContent-Type: text/plain\r\nConnection: close\r\n"
             "Content-Length: 31\r\n\r\n{\"prompt\":\"a\",  \"max_tokens\":1}",
             strcmp(host, "@") ? host : own, from);
    return ask_raw(c, head, strlen(head));
}

START_TEST(pages_of_others)
{
    struct answer a = call_as(&server, callers[_i].host, callers[_i].origin);
    ck_assert_msg(a.status == callers[_i].status, "%s from %s: %d %s", callers[_i].host, callers[_i].origin ? callers[_i].origin : "nowhere",
                  a.status, buf_str(&a.body));
    answer_fini(&a);
}
END_TEST

/* ---- servers of their own ---- */

/* Numbers of tools, variables and arguments reach the template as they are spelled. */
START_TEST(numbers_as_they_are)
{
    static const char form[] = "{{ tools | tojson }} {{ v | tojson }} {% for m in messages %}{% for c in m.tool_calls %}"
                               "{{ c.function.arguments | tojson }}{% endfor %}{% endfor %}";
    static const char body[] =
        "{\"chat_template_kwargs\":{\"v\":[1.0,98765432109876543210]},\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\","
        "\"parameters\":{\"minimum\":0.0,\"maximum\":12345678901234567890}}}],\"messages\":[{\"role\":\"assistant\",\"tool_calls\":["
        "{\"function\":{\"name\":\"f\",\"arguments\":\"{\\\"x\\\":2.0}\"}},{\"function\":{\"name\":\"f\",\"arguments\":{\"y\":3.0}}}]}]}";
    static const char *const parts[] = {"\"minimum\": 0.0", "\"maximum\": 12345678901234567890", "[1.0, 98765432109876543210]", "{\"x\": 2.0}",
                                        "{\"y\": 3.0}"};
    char path[512];
    struct child c;
    snprintf(path, sizeof path, "%s", test_tmp("numbers.jinja"));
    FILE *f = fopen(path, "w");
    ck_assert(f && fputs(form, f) >= 0 && fclose(f) == 0);
    const char *const args[] = {"--chat-template", path, NULL};
    child_start(&c, args);
    struct answer a = ask(&c, "POST", "/apply-template", body);
    ck_assert_msg(a.status == 200, "%s", buf_str(&a.body));
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        ck_assert_msg(strstr(str_at(a.json, "prompt"), parts[i]), "%s is not in %s", parts[i], str_at(a.json, "prompt"));
    answer_fini(&a);
    child_stop(&c);
}
END_TEST

enum { TIMEOUT = 6, PAUSE = 4 }; /* seconds: one pause is less, two are more */

/* A request with a pause before each half; false = the machine stood still meanwhile, so that it says nothing. */
static bool ask_slowly(struct child *c, struct http_conn *conn, struct err *err, int *rc)
{
    static const char head[] = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 31\r\n\r\n{\"prompt\":\"a\",";
    static const char rest[] = "  \"max_tokens\":1}";
    double begin = clock_now();
    ask_open(c, conn);
    sleep(PAUSE);
    *rc = http_send(conn, head, sizeof head - 1, err);
    double half = clock_now();
    sleep(PAUSE);
    if (*rc == 0)
        *rc = http_send(conn, rest, sizeof rest - 1, err);
    if (*rc == 0)
        *rc = http_head(conn, err);
    return half - begin < TIMEOUT && clock_now() - half < TIMEOUT;
}

/* Idle for most of its time, then slow with a body for most of it again: either is allowed. */
START_TEST(idle_then_slow)
{
    static const char *const args[] = {"--timeout", "6", NULL};
    struct child c;
    struct http_conn conn;
    struct err err = {0};
    int rc;
    child_start(&c, args);
    while (!ask_slowly(&c, &conn, &err, &rc))
        http_close(&conn);
    ck_assert_msg(rc == 0, "%s", err.msg);
    ck_assert_int_eq(conn.status, 200);
    http_close(&conn);
    child_stop(&c);
}
END_TEST

/* --cors names a page, and by it a host that others pass requests on from. */
START_TEST(pages_that_may)
{
    static const char *const args[] = {"--cors", "https://chat.example", NULL};
    struct child c;
    child_start(&c, args);
    struct answer a = call_as(&c, "@", "https://chat.example");
    ck_assert_int_eq(a.status, 200);
    answer_fini(&a);
    a = call_as(&c, "chat.example", "https://chat.example");
    ck_assert_int_eq(a.status, 200);
    answer_fini(&a);
    a = call_as(&c, "@", "https://other.example");
    ck_assert_int_eq(a.status, 403);
    answer_fini(&a);
    child_stop(&c);
}
END_TEST

/* forge bench --server against one that says nothing ends with ^C. */
START_TEST(interrupted_bench)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t len = sizeof at;
    const char *forge = getenv("FORGE");
    char url[64], prompts[512], byte;
    struct child c;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    ck_assert(fd >= 0 && bind(fd, (struct sockaddr *)&at, len) == 0 && listen(fd, 4) == 0);
    ck_assert_int_eq(getsockname(fd, (struct sockaddr *)&at, &len), 0);
    snprintf(url, sizeof url, "http://127.0.0.1:%d", ntohs(at.sin_port));
    snprintf(prompts, sizeof prompts, "%s", test_tmp("prompts.txt"));
    FILE *f = fopen(prompts, "w");
    ck_assert(f && fputs("a\n", f) >= 0 && fclose(f) == 0);
    c.pid = fork();
    if (c.pid == 0) {
        execl(forge ? forge : "./forge", "forge", "bench", "--server", url, "--prompts", prompts, (char *)NULL);
        _exit(127);
    }
    int conn = accept(fd, NULL, NULL);
    ck_assert_int_eq(read(conn, &byte, 1), 1); /* it has asked */
    kill(c.pid, SIGINT);
    ck_assert_int_eq(child_wait(&c), EXIT_INTERRUPTED);
    close(conn);
    close(fd);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("serve_bounds");
    TCase *one = tcase_create("one server"), *own = tcase_create("servers of their own");
    tcase_add_unchecked_fixture(one, start_server, stop_server);
    tcase_add_test(one, bounded);
    tcase_add_test(one, text_offsets);
    tcase_add_loop_test(one, pages_of_others, 0, sizeof callers / sizeof *callers);
    tcase_add_test(own, idle_then_slow);
    tcase_add_test(own, numbers_as_they_are);
    tcase_add_test(own, pages_that_may);
    tcase_add_test(own, interrupted_bench);
    suite_add_tcase(s, one);
    suite_add_tcase(s, own);
    return test_main(s);
}
