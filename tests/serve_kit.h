/* A server of our own as a child process, and a client for it (and for one inside
 * the test): what the tests of `forge serve` share.
 * FORGE names the program; the model is the built-in one. */
#ifndef FORGE_TESTS_SERVE_KIT_H
#define FORGE_TESTS_SERVE_KIT_H

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/json.h"
#include "cli/http_client.h"
#include "tests/test.h"

#define WAIT 600.0 /* seconds for the next byte: above the limit of a test, which no wait decides */

struct child {
    pid_t pid;
    struct http_url url;
    char log[512]; /* a file with what it said on stderr */
};

/* `args`: flags behind `forge serve --port 0 --device DEVICE`, NULL ends. */
static inline void child_start_on(struct child *c, const char *device, const char *const *args)
{
    const char *forge = getenv("FORGE");
    const char *argv[32] = {forge ? forge : "./forge", "serve", "--port", "0", "--device", device};
    int out[2], n = 6;
    char line[256] = "";
    struct err err = {0};
    for (; args && *args; args++)
        argv[n++] = *args;
    snprintf(c->log, sizeof c->log, "%s", test_tmp("serve.log"));
    ck_assert_int_eq(pipe(out), 0);
    c->pid = fork();
    ck_assert_int_ge(c->pid, 0);
    if (c->pid == 0) {
        dup2(out[1], 1);
        close(out[0]);
        close(out[1]);
        if (freopen(c->log, "w", stderr))
            execv(argv[0], (char *const *)(void *)argv);
        _exit(127);
    }
    close(out[1]);
    FILE *f = fdopen(out[0], "r");
    ck_assert_msg(f && fgets(line, sizeof line, f), "the server says nothing");
    fclose(f);
    line[strcspn(line, "\n")] = '\0';
    static const char says[] = "listening at ";
    ck_assert_msg(strncmp(line, says, sizeof says - 1) == 0, "the server says: %s", line);
    ck_assert_msg(http_url_parse(&c->url, line + sizeof says - 1, &err) == 0, "%s", err.msg);
}

static inline void child_start(struct child *c, const char *const *args)
{
    const char *all[32] = {"--threads", "1"};
    for (int n = 2; args && *args; args++)
        all[n++] = *args;
    child_start_on(c, "cpu", all);
}

/* Its exit status. */
static inline int child_wait(struct child *c)
{
    int status;
    ck_assert_int_eq(waitpid(c->pid, &status, 0), c->pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 256 + WTERMSIG(status);
}

static inline void child_stop(struct child *c)
{
    kill(c->pid, SIGTERM);
    ck_assert_int_eq(child_wait(c), 0);
}

/* ---- one request ---- */

struct answer {
    struct http_conn conn; /* its head stays readable */
    int status;
    struct buf body;
    cJSON *json; /* NULL = it is none */
};

static inline void answer_fini(struct answer *a)
{
    http_close(&a->conn);
    buf_fini(&a->body);
    cJSON_Delete(a->json);
}

static inline void ask_open(struct child *c, struct http_conn *conn)
{
    struct err err = {0};
    ck_assert_msg(http_open(conn, &c->url, WAIT, NULL, &err) == 0, "%s", err.msg);
}

static inline void read_answer(struct answer *a)
{
    struct err err = {0};
    ck_assert_msg(http_head(&a->conn, &err) == 0, "%s", err.msg);
    a->status = a->conn.status;
    buf_init(&a->body);
    ck_assert_msg(http_body(&a->conn, &a->body, (size_t)64 << 20, &err) == 0, "%s", err.msg);
    json_parse(&a->json, buf_str(&a->body), a->body.len, "answer", NULL);
}

/* Bytes as they are, the answer to them. */
static inline struct answer ask_raw(struct child *c, const void *bytes, size_t len)
{
    struct answer a = {.json = NULL};
    struct err err = {0};
    ask_open(c, &a.conn);
    ck_assert_msg(http_send(&a.conn, bytes, len, &err) == 0, "%s", err.msg);
    read_answer(&a);
    return a;
}

static inline struct answer ask_with(struct child *c, const char *method, const char *path, const char *headers, const char *body,
                                     size_t len)
{
    struct answer a = {.json = NULL};
    struct err err = {0};
    char all[512];
    snprintf(all, sizeof all, "Connection: close\r\n%s", headers);
    ask_open(c, &a.conn);
    ck_assert_msg(http_request(&a.conn, &c->url, method, path, all, body, len, &err) == 0, "%s", err.msg);
    read_answer(&a);
    return a;
}

static inline struct answer ask(struct child *c, const char *method, const char *path, const char *body)
{
    return ask_with(c, method, path, "", body, body ? strlen(body) : 0);
}

/* ---- what an answer says: "choices.0.text" ---- */

static inline const cJSON *at_path(const cJSON *j, const char *path)
{
    char key[64];
    while (j && *path) {
        size_t n = strcspn(path, ".");
        snprintf(key, sizeof key, "%.*s", (int)n, path);
        j = cJSON_IsArray(j) ? cJSON_GetArrayItem(j, (int)strtol(key, NULL, 10)) : cJSON_GetObjectItemCaseSensitive(j, key);
        path += n + (path[n] == '.');
    }
    return j;
}

static inline const char *str_at(const cJSON *j, const char *path)
{
    const cJSON *item = at_path(j, path);
    return cJSON_IsString(item) ? item->valuestring : "(no string)";
}

static inline double num_at(const cJSON *j, const char *path)
{
    const cJSON *item = at_path(j, path);
    return cJSON_IsNumber(item) ? item->valuedouble : -1e99;
}

/* ---- how it does ---- */

static inline double health(struct child *c, const char *key)
{
    struct answer a = ask(c, "GET", "/health", NULL);
    double v = num_at(a.json, key);
    answer_fini(&a);
    return v;
}

/* A line of /metrics. */
static inline double metric(struct child *c, const char *name)
{
    struct answer a = ask(c, "GET", "/metrics", NULL);
    char line[128];
    ck_assert_int_eq(a.status, 200);
    snprintf(line, sizeof line, "\n%s ", name);
    const char *at = strstr(buf_str(&a.body), line);
    ck_assert_msg(at, "no %s in /metrics", name);
    double v = strtod(at + strlen(line), NULL);
    answer_fini(&a);
    return v;
}

static inline void await_status(struct child *c, const char *status)
{
    bool there = false;
    while (!there) {
        struct answer a = ask(c, "GET", "/health", NULL);
        there = strcmp(str_at(a.json, "status"), status) == 0;
        answer_fini(&a);
        usleep(1000);
    }
}

static inline void await_idle(struct child *c)
{
    while (health(c, "running") > 0 || health(c, "queued") > 0)
        usleep(10000);
}

/* ---- a stream ---- */

struct streamed {
    struct buf text;
    int n_events, n_finish, n_usage, n_comments;
    bool done;
    char finish[32], error[256];
    double completion_tokens;
};

/* Reads events until the end, or until so many were read (-1 = all). `key`: where a choice has its text. */
static inline void read_events(struct http_conn *conn, struct streamed *s, const char *key, int most)
{
    struct err err = {0};
    struct buf line;
    buf_init(&line);
    int rc = 1;
    while (s->n_events != most && (rc = http_line(conn, &line, &err)) > 0) {
        cJSON *j = NULL;
        s->n_comments += buf_str(&line)[0] == ':';
        if (strncmp(buf_str(&line), "data: ", 6) != 0)
            continue;
        s->n_events++;
        if (strcmp(buf_str(&line), "data: [DONE]") == 0) {
            s->done = true;
            continue;
        }
        ck_assert_msg(!s->done, "an event behind [DONE]");
        ck_assert_msg(json_parse(&j, line.data + 6, line.len - 6, "event", &err) == 0, "%s", err.msg);
        const cJSON *text = at_path(j, key);
        if (cJSON_IsString(text))
            buf_puts(&s->text, text->valuestring);
        if (cJSON_IsString(at_path(j, "choices.0.finish_reason"))) {
            s->n_finish++;
            snprintf(s->finish, sizeof s->finish, "%s", str_at(j, "choices.0.finish_reason"));
        }
        if (cJSON_IsObject(at_path(j, "usage"))) {
            s->n_usage++;
            s->completion_tokens = num_at(j, "usage.completion_tokens");
        }
        if (at_path(j, "error"))
            snprintf(s->error, sizeof s->error, "%s", str_at(j, "error.message"));
        cJSON_Delete(j);
    }
    ck_assert_msg(rc >= 0, "%s", err.msg);
    buf_fini(&line);
}

static inline void open_stream(struct child *c, struct http_conn *conn, const char *path, const char *body)
{
    struct err err = {0};
    ask_open(c, conn);
    ck_assert_msg(http_request(conn, &c->url, "POST", path, "Connection: close\r\n", body, strlen(body), &err) == 0 &&
                      http_head(conn, &err) == 0,
                  "%s", err.msg);
}

#endif
