/* forge bench --server against a server that answers as it is told: what counts as an
 * answer, what is an error, and that an error names the address it came from.
 * FORGE names the program. */
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/test.h"

#define HEAD "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"
#define MODELS HEAD "{\"data\":[{\"id\":\"made-up\"}]}"
#define TEXT "data: {\"choices\":[{\"text\":\"a\",\"finish_reason\":null}]}\n\n"
#define END "data: {\"choices\":[{\"text\":\"\",\"finish_reason\":\"length\"}]}\n\n"
#define USAGE "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":2}}\n\n"
#define DONE "data: [DONE]\n\n"

static const struct {
    const char *answer;
    int status;       /* of bench */
    const char *says;
} rows[] = {
    {HEAD TEXT TEXT END USAGE DONE, 0, "\"errors\":0"},
    {"HTTP/1.1 100 Continue\r\n\r\n" HEAD TEXT END USAGE DONE, 0, "\"errors\":0"},
    {HEAD END USAGE DONE, 0, "\"errors\":0"}, /* a text may be empty */
    {HEAD DONE, 1, "the stream has no finish_reason"},
    {HEAD TEXT USAGE DONE, 1, "the stream has no finish_reason"},
    {HEAD TEXT END DONE, 1, "the stream has no usage"},
    {HEAD TEXT END USAGE, 1, "without [DONE]"},
    {HEAD "data: {\"choices\":{}}\n\n" END USAGE DONE, 1, "\"choices\" are an object"},
    {HEAD "data: {\"choices\":[{\"text\":5}]}\n\n" END USAGE DONE, 1, "\"text\" is a number"},
    {HEAD "data: {\"error\":{\"message\":\"no more\"}}\n\n" DONE, 1, "/v1/completions: the server ends a stream with: no more"},
    {"HTTP/1.1 404 Not Found\r\nConnection: close\r\n\r\nnone", 1, "/v1/completions: the server answers 404: none"},
    {"HTTP/1.1 99999999999 OK\r\n\r\n" TEXT, 1, "/v1/completions: the answer is no HTTP"},
    {"HTTP/1.1 20x OK\r\n\r\n" TEXT, 1, "/v1/completions: the answer is no HTTP"},
};

/* Answers each request, which comes in one piece, and closes. */
static void answer_all(int fd, const char *answer)
{
    char request[8192];
    for (;;) {
        int c = accept(fd, NULL, NULL);
        ssize_t n = c >= 0 ? read(c, request, sizeof request) : -1;
        const char *text = n > 3 && memcmp(request, "GET", 3) == 0 ? MODELS : answer;
        if (n > 0 && write(c, text, strlen(text)) > 0)
            shutdown(c, SHUT_WR);
        while (n > 0)
            n = read(c, request, sizeof request);
        close(c);
    }
}

START_TEST(answers)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof a;
    char prompts[4096], command[9000], out[8192];
    const char *forge = getenv("FORGE");
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    ck_assert(fd >= 0 && bind(fd, (struct sockaddr *)&a, sizeof a) == 0 && listen(fd, 16) == 0 &&
              getsockname(fd, (struct sockaddr *)&a, &len) == 0);
    pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0)
        answer_all(fd, rows[_i].answer);
    close(fd);
    snprintf(prompts, sizeof prompts, "%s", test_tmp("prompts"));
    FILE *f = fopen(prompts, "w");
    ck_assert(f && fputs("Hello\n", f) >= 0 && fclose(f) == 0);
    snprintf(command, sizeof command, "%s bench --server http://127.0.0.1:%d --prompts %s -n 2 -r 1 --concurrency 1 --json 2>&1",
             forge ? forge : "./forge", ntohs(a.sin_port), prompts);
    FILE *p = popen(command, "r");
    ck_assert_ptr_nonnull(p);
    out[fread(out, 1, sizeof out - 1, p)] = '\0';
    int status = pclose(p);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    test_that(WIFEXITED(status) && WEXITSTATUS(status) == rows[_i].status, "status %d: %s", status, out);
    test_that(strstr(out, rows[_i].says) != NULL, "not \"%s\" but: %s", rows[_i].says, out);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("bench_online");
    TCase *t = tcase_create("answers");
    tcase_set_timeout(t, 60);
    tcase_add_loop_test(t, answers, 0, (int)(sizeof rows / sizeof *rows));
    suite_add_tcase(s, t);
    return test_main(s);
}
