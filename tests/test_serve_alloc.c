/* Every request for memory that the server makes, refused once: the client gets its
 * whole answer, an error that says so, or a closed connection; the next one gets
 * what it always got, and nothing is left behind.  Opening the server, likewise.
 *
 * The client here asks for no memory while that is so; libmicrohttpd's own is not
 * refused.  Nothing of Check is called then, either. */
#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "serve/serve.h"
#include "tests/engine_kit.h"
#include "tests/fault.h"

static struct forge_engine *engine;
static struct server *server;

/* ---- a client ---- */

static char answer[1 << 16];

static struct sockaddr_in address(void)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    a.sin_port = htons((uint16_t)strtol(strrchr(server_url(server), ':') + 1, NULL, 10));
    return a;
}

/* The status, with all that came in `answer`; 0 = the connection was closed before a head. */
static int ask(const char *method, const char *path, const char *body)
{
    static char request[4096];
    struct sockaddr_in a = address();
    size_t n = 0;
    ssize_t got;
    int len = snprintf(request, sizeof request, "%s %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: %zu\r\n\r\n%s", method,
                       path, strlen(body), body);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&a, sizeof a) < 0 || send(fd, request, (size_t)len, MSG_NOSIGNAL) != len)
        abort();
    while ((got = recv(fd, answer + n, sizeof answer - 1 - n, 0)) > 0)
        n += (size_t)got;
    shutdown(fd, SHUT_RDWR);
    close(fd);
    answer[n] = '\0';
    return n > 0 ? (int)strtol(answer + strlen("HTTP/1.1 "), NULL, 10) : 0;
}

/* ---- what is asked for ---- */

#define FOLLOWS "\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"a\",\"schema\":{\"enum\":[\"yes\",\"no\"]}}}"
#define TOOL "{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"type\":\"object\",\"properties\":{\"a\":{\"enum\":[1,2]}},\"required\":[\"a\"]}}}"
#define MESSAGES "\"messages\":[{\"role\":\"system\",\"content\":\"Be brief.\"},{\"role\":\"user\",\"content\":\"Hello\"}]"

static const struct kind {
    const char *method, *path, *body;
    const char *part; /* of the right answer, from here on to the next '}' */
} kinds[] = {
    {"POST", "/v1/completions",
     "{\"prompt\":[\"One\",\"Two three\"],\"max_tokens\":3,\"n\":2,\"seed\":1,\"logprobs\":2,\"stop\":[\"xyzzy\"],"
     "\"logit_bias\":{\"5\":1},\"ignore_eos\":true}",
     "\"choices\":"},
    {"POST", "/v1/completions", "{\"prompt\":[706,315],\"max_tokens\":3,\"temperature\":0,\"stream\":true,\"logprobs\":1}", "\"text\":"},
    {"POST", "/v1/chat/completions", "{" MESSAGES ",\"max_tokens\":4,\"temperature\":0,\"logprobs\":true,\"top_logprobs\":2}", "\"message\":"},
    {"POST", "/v1/chat/completions", "{" MESSAGES ",\"max_tokens\":40,\"temperature\":0,\"stream\":true," FOLLOWS "}", "\"delta\":"},
    {"POST", "/v1/chat/completions", "{" MESSAGES ",\"max_tokens\":60,\"temperature\":0,\"tools\":[" TOOL "],\"tool_choice\":\"required\"}", "\"message\":"},
    {"POST", "/tokenize", "{\"content\":\"Hello there\",\"with_pieces\":true}", "\"tokens\":"},
    {"POST", "/detokenize", "{\"tokens\":[706,315]}", "\"content\":"},
    {"POST", "/apply-template", "{" MESSAGES "}", "\"prompt\":"},
    {"GET", "/v1/models", "", "\"id\":"},
    {"GET", "/v1/models/forge-tiny", "", "\"id\":"},
    {"GET", "/metrics", "", "forge_slots "},
    {"GET", "/health", "", "\"version\":"},
    {"GET", "/props", "", "\"n_ctx\":"},
    {"GET", "/nowhere", "", "\"message\":"},
};
#define N_KINDS (sizeof kinds / sizeof kinds[0])

static const char *part_of(const struct kind *k)
{
    static char out[4096];
    const char *from = strstr(answer, k->part);
    size_t n = from ? strcspn(from, "}\n") : 0;
    snprintf(out, sizeof out, "%.*s", (int)n, from ? from : "");
    return out;
}

enum { TIMEOUT = 60 }; /* of the server, seconds */

static void log_line(void *user, const char *line)
{
    (void)user, (void)line;
}

static int open_server(struct err *err)
{
    struct serve_params p = {.host = "127.0.0.1", .api_key = NULL, .cors = "*", .max_queue = 8, .timeout = TIMEOUT, .keep_alive = 2, .log = log_line};
    return server_open(&server, engine, &p, err);
}

static void open_engine(void)
{
    struct forge_engine_params p = engine_params(TINY);
    p.max_seqs = 4;
    p.no_prefix_cache = 1;
    engine = engine_with(&p);
}

/* What is held when all that is to be freed has been: other threads do it after the answer has come.  Waits until it is
 * what it was, and *most becomes less where it was taken while some was yet to be freed.  A connection whose stream failed
 * just when it was resumed is in none of libmicrohttpd's lists of what to look at, and goes when its time is up. */
static bool held_again(long *most, char *now)
{
    for (int i = 0; i < 2 * TIMEOUT * 1000; i++) {
        long held = fault_held(now);
        if (server_n_running(server) == 0 && held <= *most) {
            *most = held;
            return true;
        }
        usleep(1000);
    }
    return false;
}

static bool is_error_of_memory(unsigned kinds_refused)
{
    bool says = (kinds_refused & FAULT_JSON) || strstr(answer, "memory"); /* cJSON says no more than that it failed */
    return says && strstr(answer, "\"error\":");
}

static void sweep(const struct kind *k, unsigned kinds_refused)
{
    char want[4096], now[FAULT_HELD_SIZE];
    const char *name;
    int status;
    for (int i = 0; i < 3; i++) /* what is kept from one request to the next is there */
        status = ask(k->method, k->path, k->body);
    int right = status;
    test_that(right == 200 || right == 404, "%s: %s", k->path, answer);
    snprintf(want, sizeof want, "%s", part_of(k));
    test_that(want[0] != '\0', "%s: no %s in %s", k->path, k->part, answer);
    long held = fault_held(NULL);
    for (size_t nth = 1;; nth++) {
        fault_arm(kinds_refused, nth, false);
        status = ask(k->method, k->path, k->body);
        bool was_refused = fault_disarm(&name);
        bool whole = status == right && strcmp(part_of(k), want) == 0;
        bool cut = status == 0 || (status == 200 && strstr(k->body, "\"stream\"") && !strstr(answer, "[DONE]"));
        if (!was_refused) {
            test_that(whole, "%s: nothing refused, and %d %s", k->path, status, answer);
            break;
        }
        test_that(whole || cut || is_error_of_memory(kinds_refused), "%s, %s (request %zu) refused: %d %s", k->path, name, nth, status, answer);
        status = ask(k->method, k->path, k->body);
        test_that(status == right && strcmp(part_of(k), want) == 0, "%s, after %s (request %zu) was refused: %d %s", k->path, name, nth, status,
                  answer);
        test_that(held_again(&held, now), "%s, %s (request %zu) refused: held before: %ld; after: %s", k->path, name, nth, held, now);
    }
}

START_TEST(answering)
{
    struct err err = {0};
    open_engine();
    ck_assert_msg(open_server(&err) == 0, "%s", err.msg);
    sweep(&kinds[_i], FAULT_MEMORY);
    sweep(&kinds[_i], FAULT_JSON);
    server_close(server);
    forge_engine_close(engine);
}
END_TEST

START_TEST(opening)
{
    char before[FAULT_HELD_SIZE], after[FAULT_HELD_SIZE];
    open_engine();
    long held = fault_held(before);
    size_t n_failed = 0;
    for (size_t nth = 1;; nth++) {
        struct err err = {0};
        const char *name;
        fault_arm(FAULT_MEMORY | FAULT_SYSTEM, nth, false);
        int rc = open_server(&err);
        bool was_refused = fault_disarm(&name);
        test_that(rc == 0 || (was_refused && !server && err.msg[0]), "request %zu: %d %s", nth, rc, err.msg);
        n_failed += rc < 0;
        if (rc == 0)
            server_close(server);
        test_that(fault_held(after) == held, "%s (request %zu) refused: held before: %s; after: %s", name, nth, before, after);
        if (!was_refused)
            break;
    }
    ck_assert_uint_ge(n_failed, 5);
    forge_engine_close(engine);
}
END_TEST

int main(void)
{
    fault_init();
    Suite *s = suite_create("serve_alloc");
    TCase *tc = tcase_create("refused");
    tcase_add_loop_test(tc, answering, 0, (int)N_KINDS);
    tcase_add_test(tc, opening);
    suite_add_tcase(s, tc);
    return test_main(s);
}
