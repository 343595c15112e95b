/* forge serve from outside: a server of the built-in model as a child, and a client
 * over plain sockets.  Every route, streams, what is refused and how, clients that
 * leave or are slow, overload, many at once, the end.
 *
 * Where forge has no server (libmicrohttpd), one case is skipped and that is all. */
#include "base/map.h"
#include "base/thread.h"
#include "tests/serve_kit.h"

#define PROMPT "The capital of France is"
/* Never at its end before it is cancelled: more than 50000 tokens, which together stay below what may lie unread. */
#define LONG "{\"prompt\":\"" PROMPT "\",\"n\":64,\"max_tokens\":900,\"ignore_eos\":true,\"stream\":%s}"

static struct child server; /* of a test case; its tests run in children of this process */

static void start_server(void)
{
    static const char *const args[] = {"--slots", "4", "--max-queue", "64", "--timeout", "30", NULL};
    child_start(&server, args);
}

static void stop_server(void)
{
    child_stop(&server);
}

/* ---- every route answers ---- */

static const struct {
    const char *method, *path, *body, *key, *value; /* value NULL: a number */
} routes[] = {
    {"GET", "/health", NULL, "status", "ok"},
    {"GET", "/health", NULL, "slots", NULL},
    {"GET", "/health", NULL, "hit_rate", NULL},
    {"GET", "/health", NULL, "acceptance_rate", NULL},
    {"GET", "/v1/models", NULL, "data.0.id", "forge-tiny"},
    {"GET", "/v1/models/forge-tiny", NULL, "object", "model"},
    {"GET", "/props", NULL, "n_ctx", NULL},
    {"GET", "/openapi.json", NULL, "openapi", "3.1.0"},
    {"POST", "/v1/completions", "{\"prompt\":\"" PROMPT "\",\"temperature\":0,\"max_tokens\":1}", "choices.0.text", " Paris"},
    {"POST", "/v1/completions", "{\"prompt\":\"" PROMPT "\",\"temperature\":0,\"max_tokens\":1}", "object", "text_completion"},
    {"POST", "/v1/completions", "{\"prompt\":\"" PROMPT "\",\"temperature\":0,\"max_tokens\":1}", "usage.total_tokens", NULL},
    {"POST", "/v1/completions", "{\"prompt\":\"" PROMPT "\",\"temperature\":0,\"max_tokens\":1}", "metrics.ttft_ms", NULL},
    {"POST", "/tokenize", "{\"content\":\"Hello\"}", "tokens.0", NULL},
    {"POST", "/tokenize", "{\"prompt\":\"Hello\",\"with_pieces\":true}", "tokens.0.piece", "Hello"},
    {"POST", "/detokenize", "{\"tokens\":[706]}", "content", "Hello"},
};

START_TEST(every_route)
{
    struct answer a = ask(&server, routes[_i].method, routes[_i].path, routes[_i].body);
    ck_assert_msg(a.status == 200, "%s: %d %s", routes[_i].path, a.status, buf_str(&a.body));
    if (routes[_i].value)
        ck_assert_str_eq(str_at(a.json, routes[_i].key), routes[_i].value);
    else
        ck_assert_msg(num_at(a.json, routes[_i].key) >= 0, "%s: %s", routes[_i].key, buf_str(&a.body));
    answer_fini(&a);
}
END_TEST

START_TEST(page_and_metrics)
{
    char value[256];
    struct answer a = ask(&server, "GET", "/", NULL);
    ck_assert_int_eq(a.status, 200);
    ck_assert(strstr(buf_str(&a.body), "<!doctype html>") != NULL);
    ck_assert_msg(!strstr(buf_str(&a.body), "http://") && !strstr(buf_str(&a.body), "https://"), "an outside resource");
    ck_assert(http_header(&a.conn, "Content-Security-Policy", value, sizeof value));
    answer_fini(&a);
    ck_assert(metric(&server, "forge_slots") == 4);
    ck_assert(metric(&server, "forge_generation_tokens_total") >= 0);
}
END_TEST

/* ---- the fields of a completion ---- */

START_TEST(fields)
{
    struct answer a = ask(&server, "POST", "/v1/completions",
                          "{\"prompt\":[\"" PROMPT "\",\"One\"],\"n\":2,\"max_tokens\":6,\"seed\":7,\"logprobs\":2,\"best\":null,"
                          "\"temperature\":null,\"model\":\"any\"}");
    ck_assert_msg(a.status == 200, "%s", buf_str(&a.body));
    const cJSON *choices = at_path(a.json, "choices");
    ck_assert_int_eq(cJSON_GetArraySize(choices), 4);
    for (int i = 0; i < 4; i++) {
        const cJSON *c = cJSON_GetArrayItem(choices, i);
        ck_assert(num_at(c, "index") == i);
        int n = cJSON_GetArraySize(at_path(c, "logprobs.tokens"));
        ck_assert_int_ge(n, 1);
        ck_assert_int_eq(cJSON_GetArraySize(at_path(c, "logprobs.top_logprobs")), n);
        ck_assert(num_at(c, "logprobs.token_logprobs.0") <= 0);
        ck_assert(num_at(c, "logprobs.text_offset.0") == 0);
    }
    answer_fini(&a);

    a = ask(&server, "POST", "/v1/completions",
            "{\"prompt\":\"" PROMPT "\",\"temperature\":0,\"max_tokens\":20,\"stop\":[\" is\",\"xyz\"],\"echo\":true}");
    ck_assert_str_eq(str_at(a.json, "choices.0.text"), PROMPT " Paris. The capital of Italy");
    ck_assert_str_eq(str_at(a.json, "choices.0.finish_reason"), "stop");
    answer_fini(&a);

    a = ask(&server, "POST", "/v1/completions", "{\"prompt\":\"" PROMPT "\",\"temperature\":0,\"max_tokens\":1,"
                                                "\"logit_bias\":{\"706\":100}}");
    ck_assert_str_eq(str_at(a.json, "choices.0.text"), "Hello");
    ck_assert_str_eq(str_at(a.json, "choices.0.finish_reason"), "length");
    answer_fini(&a);

    a = ask(&server, "POST", "/v1/completions", "{\"prompt\":[706],\"max_tokens\":0,\"echo\":true}");
    ck_assert(num_at(a.json, "usage.prompt_tokens") == 1);
    ck_assert(num_at(a.json, "usage.completion_tokens") == 0);
    answer_fini(&a);
}
END_TEST

START_TEST(stream_is_the_whole)
{
    static const char body[] = "{\"prompt\":\"" PROMPT "\",\"max_tokens\":40,\"seed\":3,\"temperature\":1.1,\"ignore_eos\":true";
    char text[512];
    struct http_conn conn;
    struct streamed s = {.n_events = 0};
    snprintf(text, sizeof text, "%s}", body);
    struct answer a = ask(&server, "POST", "/v1/completions", text);
    ck_assert_int_eq(a.status, 200);
    buf_init(&s.text);
    snprintf(text, sizeof text, "%s,\"stream\":true,\"stream_options\":{\"include_usage\":true},\"logprobs\":1}", body);
    open_stream(&server, &conn, "/v1/completions", text);
    ck_assert_int_eq(conn.status, 200);
    read_events(&conn, &s, "choices.0.text", -1);
    ck_assert_str_eq(buf_str(&s.text), str_at(a.json, "choices.0.text"));
    ck_assert_str_eq(s.finish, "length");
    ck_assert_int_eq(s.n_finish, 1);
    ck_assert_int_eq(s.n_usage, 1);
    ck_assert(s.completion_tokens == 40);
    ck_assert(s.done && !s.error[0]);
    buf_fini(&s.text);
    http_close(&conn);
    answer_fini(&a);
}
END_TEST

/* ---- what is refused ---- */

#define C "/v1/completions"
static const struct {
    const char *path, *body;
    size_t len; /* 0 = up to the NUL */
    int status;
    const char *param, *says; /* NULL = null; part of the message */
} bad[] = {
    {C, "", 0, 400, NULL, "empty"},
    {C, "{", 0, 400, NULL, "without an end at byte 1"},
    {C, "{\"a\":1}x", 0, 400, NULL, "byte 7"},
    {C, "[]", 0, 400, NULL, "object"},
    {C, "3", 0, 400, NULL, "object"},
    {C, "{\"prompt\":\"a\xB0\xA1\"}", 0, 400, NULL, "not UTF-8 at byte 12"},
    {C, "{\"prompt\":\"\\ud800\"}", 0, 400, NULL, "surrogate"},
    {C, "{\"prompt\":\"\\uZZZZ\"}", 0, 400, NULL, "byte 11"},
    {C, "{\"prompt\":\"a\0b\"}", 16, 400, NULL, "control character"},
    {C, "{}", 0, 400, "prompt", "missing"},
    {C, "{\"Prompt\":\"a\"}", 0, 400, "prompt", "missing"},
    {C, "{\"prompt\":null}", 0, 400, "prompt", "missing"},
    {C, "{\"prompt\":3}", 0, 400, "prompt", "not a number"},
    {C, "{\"prompt\":{}}", 0, 400, "prompt", "not an object"},
    {C, "{\"prompt\":[1,-2]}", 0, 400, "prompt", "number 2"},
    {C, "{\"prompt\":[1,2.5]}", 0, 400, "prompt", "number 2"},
    {C, "{\"prompt\":[99999999]}", 0, 400, "prompt", "vocabulary"},
    {C, "{\"prompt\":[\"a\",{}]}", 0, 400, "prompt", "number 2"},
    {C, "{\"prompt\":\"a\",\"temperature\":\"0\"}", 0, 400, "temperature", "not a string"},
    {C, "{\"prompt\":\"a\",\"temperature\":-0.1}", 0, 400, "temperature", "0 to 2"},
    {C, "{\"prompt\":\"a\",\"temperature\":1e999}", 0, 400, "temperature", "number"},
    {C, "{\"prompt\":\"a\",\"top_p\":1.5}", 0, 400, "top_p", "0 to 1"},
    {C, "{\"prompt\":\"a\",\"top_k\":-2}", 0, 400, "top_k", "-2"},
    {C, "{\"prompt\":\"a\",\"min_p\":[]}", 0, 400, "min_p", "a list"},
    {C, "{\"prompt\":\"a\",\"max_tokens\":1.5}", 0, 400, "max_tokens", "whole"},
    {C, "{\"prompt\":\"a\",\"max_tokens\":-1}", 0, 400, "max_tokens", "-1"},
    {C, "{\"prompt\":\"a\",\"max_tokens\":true}", 0, 400, "max_tokens", "true or false"},
    {C, "{\"prompt\":\"a\",\"seed\":9007199254740993}", 0, 400, "seed", "is 9007199254740992; it must be -9007199254740991 to 9007199254740991"},
    {C, "{\"prompt\":\"a\",\"n\":0}", 0, 400, "n", "1 to"},
    {C, "{\"prompt\":\"a\",\"stream\":\"true\"}", 0, 400, "stream", "true or false"},
    {C, "{\"prompt\":\"a\",\"stream_options\":1}", 0, 400, "stream_options", "object"},
    {C, "{\"prompt\":\"a\",\"stop\":1}", 0, 400, "stop", "string"},
    {C, "{\"prompt\":\"a\",\"stop\":[\"\"]}", 0, 400, "stop", "empty"},
    {C, "{\"prompt\":\"a\",\"stop\":[\"b\",null]}", 0, 400, "stop", "number 2"},
    {C, "{\"prompt\":\"a\",\"stop\":\"b\\u0000\"}", 0, 400, "stop", "NUL"},
    {C, "{\"prompt\":\"a\",\"logprobs\":21}", 0, 400, "logprobs", "0 to 20"},
    {C, "{\"prompt\":\"a\",\"logprobs\":1,\"echo\":true}", 0, 400, "echo", "logprobs"},
    {C, "{\"prompt\":\"a\",\"presence_penalty\":3}", 0, 400, "presence_penalty", "-2 to 2"},
    {C, "{\"prompt\":\"a\",\"logit_bias\":[]}", 0, 400, "logit_bias", "object"},
    {C, "{\"prompt\":\"a\",\"logit_bias\":{\"x\":1}}", 0, 400, "logit_bias", "token id"},
    {C, "{\"prompt\":\"a\",\"logit_bias\":{\"99999999\":1}}", 0, 400, "logit_bias", "token id"},
    {C, "{\"prompt\":\"a\",\"logit_bias\":{\"1\":\"a\"}}", 0, 400, "logit_bias", "-100 to 100, not a string"},
    {C, "{\"prompt\":\"a\",\"logit_bias\":{\"1\":101}}", 0, 400, "logit_bias", "is 101; it must be -100"},
    {C, "{\"prompt\":\"a\",\"seed\":9007199254740992}", 0, 400, "seed", "is 9007199254740992; it must be -9007199254740991 to 9007199254740991"},
    {C, "{\"prompt\":\"a\",\"model\":1}", 0, 400, "model", "string"},
    {"/tokenize", "{}", 0, 400, "content", "missing"},
    {"/detokenize", "{}", 0, 400, "tokens", "missing"},
    {"/tokenize", "{\"content\":\"a\",\"add_special\":1}", 0, 400, "add_special", "true or false"},
    {"/detokenize", "{\"tokens\":\"a\"}", 0, 400, "tokens", "list"},
    {"/detokenize", "{\"tokens\":[123456789]}", 0, 400, "tokens", "vocabulary"},
    {"/nowhere", "{}", 0, 404, NULL, "path"},
    {"/v1/completions/", "{}", 0, 404, NULL, "path"},
};

START_TEST(refused)
{
    const char *message;
    size_t len = bad[_i].len ? bad[_i].len : strlen(bad[_i].body);
    struct answer a = ask_with(&server, "POST", bad[_i].path, "", bad[_i].body, len);
    ck_assert_msg(a.status == bad[_i].status, "%s: %d %s", bad[_i].body, a.status, buf_str(&a.body));
    ck_assert_msg(a.json != NULL, "%s", buf_str(&a.body));
    message = str_at(a.json, "error.message");
    ck_assert_msg(strstr(message, bad[_i].says), "%s: %s", bad[_i].body, message);
    ck_assert_str_eq(str_at(a.json, "error.type"), "invalid_request_error");
    if (bad[_i].param)
        ck_assert_str_eq(str_at(a.json, "error.param"), bad[_i].param);
    else
        ck_assert(cJSON_IsNull(at_path(a.json, "error.param")));
    answer_fini(&a);
}
END_TEST

#define CHAT "/v1/chat/completions"
#define TOOL "\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"max_tokens\":1,\"tool_choice\":\"required\",\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"look\",\"parameters\":"

/* What a template does not take is told to the client without the place of a file. */
START_TEST(templates_of_others)
{
    static const struct {
        const char *body, *param, *says;
    } rows[] = {
        {"{\"messages\":[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"user\",\"content\":\"b\"}]}", "messages",
         "the chat template refuses these messages: user and assistant must alternate"},
        {"{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"chat_template_kwargs\":{\"messages\":[{\"role\":\"user\"}]}}",
         "chat_template_kwargs", "must not have 'messages'"},
        {"{" TOOL "{\"$ref\":\"#/$defs/none\"}}}]}", "tools", "tools/look#: $ref"},
    };
    const char *args[] = {"-m", test_path("golden/models/gemma3"), NULL};
    struct child c;
    child_start(&c, args);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct answer a = ask(&c, "POST", CHAT, rows[i].body);
        const char *message = str_at(a.json, "error.message");
        test_that(a.status == 400 && strstr(message, rows[i].says), "%s: %d %s", rows[i].body, a.status, message);
        test_that(!strstr(message, "gemma3") && !strstr(message, "line "), "%s: %s", rows[i].body, message);
        test_that(strcmp(str_at(a.json, "error.param"), rows[i].param) == 0, "%s: of %s", rows[i].body, str_at(a.json, "error.param"));
        answer_fini(&a);
    }
    child_stop(&c);
}
END_TEST

/* References in the parameters of a tool begin there. */
START_TEST(references_of_tools)
{
    struct answer a = ask(&server, "POST", CHAT,
                          "{" TOOL "{\"$defs\":{\"n\":{\"const\":\"here\"}},\"type\":\"object\",\"properties\":{\"where\":"
                          "{\"$ref\":\"#/$defs/n\"}},\"required\":[\"where\"],\"additionalProperties\":false}}}],\"max_completion_tokens\":100}");
    ck_assert_msg(a.status == 200, "%s", buf_str(&a.body));
    ck_assert_msg(strstr(buf_str(&a.body), "here"), "%s", buf_str(&a.body)); /* the only text that fits */
    answer_fini(&a);
}
END_TEST

START_TEST(deep_and_long)
{
    size_t n = (size_t)1 << 20;
    char *body = malloc(n);
    ck_assert_ptr_nonnull(body);
    memset(body, '[', n);
    struct answer a = ask_with(&server, "POST", C, "", body, n);
    ck_assert_int_eq(a.status, 400);
    ck_assert_msg(strstr(str_at(a.json, "error.message"), "deep"), "%s", buf_str(&a.body));
    answer_fini(&a);
    memset(body, 'a', n); /* a prompt that does not fit */
    memcpy(body, "{\"prompt\":\"", 11);
    for (size_t i = 11; i < n - 2; i += 2)
        body[i] = ' ';
    memcpy(body + n - 2, "\"}", 2);
    a = ask_with(&server, "POST", C, "", body, n);
    ck_assert_int_eq(a.status, 400);
    ck_assert_str_eq(str_at(a.json, "error.code"), "context_length_exceeded");
    ck_assert_msg(strstr(str_at(a.json, "error.message"), "1024"), "%s", buf_str(&a.body));
    answer_fini(&a);
    free(body);
}
END_TEST

START_TEST(too_large)
{
    char value[64];
    /* refused by the length alone, before a byte of the body came */
    static const char head[] = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999\r\n\r\n";
    struct answer a = ask_raw(&server, head, sizeof head - 1);
    ck_assert_int_eq(a.status, 413);
    ck_assert(http_header(&a.conn, "Connection", value, sizeof value));
    ck_assert_str_eq(value, "close");
    answer_fini(&a);
}
END_TEST

static size_t put_chunk(char *to, const char *data, size_t n)
{
    int k = snprintf(to, 16, "%zx\r\n", n);
    memcpy(to + k, data, n);
    memcpy(to + (size_t)k + n, "\r\n", 2);
    return (size_t)k + n + 2;
}

/* No length is given: it is refused when it has grown too large; the server takes the rest, and drops it. */
START_TEST(too_large_in_chunks)
{
    static const char head[] = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n";
    size_t piece = (size_t)1 << 20, n = 0;
    char *data = malloc(piece), *all = malloc(18 * piece);
    ck_assert(data && all);
    memset(data, ' ', piece);
    memcpy(all, head, sizeof head - 1);
    n += sizeof head - 1;
    for (int i = 0; i < 17; i++)
        n += put_chunk(all + n, data, piece);
    n += put_chunk(all + n, data, 0);
    struct answer a = ask_raw(&server, all, n);
    ck_assert_int_eq(a.status, 413);
    ck_assert_msg(strstr(str_at(a.json, "error.message"), "16777216 bytes"), "%s", buf_str(&a.body));
    answer_fini(&a);
    free(data);
    free(all);
}
END_TEST

START_TEST(long_headers)
{
    size_t n = (size_t)80 << 10;
    char *header = malloc(n);
    ck_assert_ptr_nonnull(header);
    memset(header, 'a', n);
    memcpy(header, "X-Long: ", 8);
    memcpy(header + n - 3, "\r\n", 3);
    struct http_conn conn;
    struct err err = {0};
    ask_open(&server, &conn);
    if (http_request(&conn, &server.url, "GET", "/health", header, NULL, 0, &err) == 0 && http_head(&conn, &err) == 0)
        ck_assert_int_eq(conn.status, 431); /* else it was closed on what still came */
    http_close(&conn);
    free(header);
    ck_assert(health(&server, "slots") == 4);
}
END_TEST

/* What a client sent does not come back in an error, except the names of fields. */
static const char *const wrong[] = {
    "{\"prompt\":\"xyzzy\",\"temperature\":\"xyzzy\"}",
    "{\"prompt\":\"xyzzy\",\"model\":[\"xyzzy\"]}",
    "{\"prompt\":\"xyzzy\",\"stop\":[\"xyzzy\",3]}",
    "{\"prompt\":\"xyzzy\",\"logit_bias\":{\"xyzzy\":1}}",
    "{\"prompt\":[\"xyzzy\",{\"xyzzy\":1}]}",
    "{\"prompt\":\"xyzzy\",\"max_tokens\":-1}",
    "{\"prompt\":\"xyzzy",
    "{\"messages\":[{\"role\":\"xyzzy\",\"content\":\"xyzzy\"}]}",
    "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"xyzzy\"}]}]}",
    "{\"messages\":[{\"role\":\"user\",\"content\":\"xyzzy\"}],\"response_format\":{\"type\":\"xyzzy\"}}",
    "{\"messages\":[{\"role\":\"user\",\"content\":\"xyzzy\"}],\"tool_choice\":\"xyzzy\"}",
};

START_TEST(errors_tell_no_text)
{
    const char *body = wrong[_i];
    struct answer a = ask(&server, "POST", strstr(body, "messages") ? "/v1/chat/completions" : C, body);
    ck_assert_int_eq(a.status, 400);
    ck_assert_msg(!strstr(buf_str(&a.body), "xyzzy"), "%s", buf_str(&a.body));
    answer_fini(&a);
}
END_TEST

/* A request that can be read in two ways is refused, and its connection ends. */
START_TEST(frames)
{
#define POST "POST /tokenize HTTP/1.1\r\n"
    static const struct {
        const char *request;
        int status;
        const char *says; /* NULL = libmicrohttpd's own words */
    } rows[] = {
        {POST "Host: localhost\r\nContent-Length: 15\r\nContent-Length: 15\r\nConnection: close\r\n\r\n{\"content\":\"a\"}", 200, NULL},
        {POST "Host: localhost\r\nContent-Length: 15\r\nContent-Length: 16\r\n\r\n{\"content\":\"a\"}", 400, "two different"},
        {POST "Host: localhost\r\nContent-Length: 15\r\nTransfer-Encoding: chunked\r\n\r\nf\r\n{\"content\":\"a\"}\r\n0\r\n\r\n", 400, "exclude each other"},
        {POST "Content-Length: 15\r\n\r\n{\"content\":\"a\"}", 400, NULL},
        {"GET /v1/models/forge-tiny%00 HTTP/1.1\r\nHost: localhost\r\n\r\n", 400, "NUL"},
        {"GET /v1/models/forge-tiny%2500 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", 404, "model"},
        {"GET /health%00 HTTP/1.1\r\nHost: localhost\r\n\r\n", 400, "NUL"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct answer a = ask_raw(&server, rows[i].request, strlen(rows[i].request));
        test_that(a.status == rows[i].status && (!rows[i].says || strstr(str_at(a.json, "error.message"), rows[i].says)), "%s: %d %s",
                  rows[i].request, a.status, buf_str(&a.body));
        answer_fini(&a);
    }
#undef POST
}
END_TEST

START_TEST(methods)
{
    char value[64];
    struct answer a = ask(&server, "GET", C, NULL);
    ck_assert_int_eq(a.status, 405);
    ck_assert(http_header(&a.conn, "Allow", value, sizeof value));
    ck_assert_str_eq(value, "POST");
    answer_fini(&a);
    a = ask(&server, "DELETE", "/health", NULL);
    ck_assert_int_eq(a.status, 405);
    answer_fini(&a);
    a = ask(&server, "GET", "/v1/models/other", NULL);
    ck_assert_int_eq(a.status, 404);
    answer_fini(&a);
}
END_TEST

/* ---- clients that leave ---- */

START_TEST(client_leaves)
{
    struct http_conn conn;
    struct streamed s = {.n_events = 0};
    char body[256];
    double cancelled = metric(&server, "forge_requests_cancelled_total");
    snprintf(body, sizeof body, LONG, _i ? "true" : "false");
    if (_i) {
        open_stream(&server, &conn, C, body);
        read_events(&conn, &s, "choices.0.text", 2);
        ck_assert_int_eq(s.n_events, 2);
    } else {
        struct err err = {0};
        ask_open(&server, &conn);
        ck_assert_int_eq(http_request(&conn, &server.url, "POST", C, "", body, strlen(body), &err), 0);
        while (health(&server, "running") < 1)
            usleep(1000);
    }
    http_close(&conn);
    buf_fini(&s.text);
    await_idle(&server);
    ck_assert(metric(&server, "forge_requests_cancelled_total") == cancelled + 1);
    struct answer a = ask(&server, "POST", C, "{\"prompt\":\"" PROMPT "\",\"temperature\":0,\"max_tokens\":1}");
    ck_assert_str_eq(str_at(a.json, "choices.0.text"), " Paris");
    answer_fini(&a);
}
END_TEST

/* ---- many at once ---- */

enum { N_CLIENTS = 8, N_EACH = 4 };

struct client {
    struct thread *thread;
    int number, wrong;
    char *alone[N_EACH];
};

static void question(char *out, size_t size, int client, int i, bool stream)
{
    snprintf(out, size, "{\"prompt\":\"%s %d\",\"max_tokens\":%d,\"seed\":%d,\"temperature\":0.9,\"ignore_eos\":true,\"stream\":%s}",
             client % 2 ? PROMPT : "Tell me of", client, 8 + 9 * i, 10 * client + i, stream ? "true" : "false");
}

static void talk(void *arg)
{
    struct client *c = arg;
    for (int i = 0; i < N_EACH; i++) {
        char body[512];
        struct http_conn conn;
        struct streamed s = {.n_events = 0};
        buf_init(&s.text);
        question(body, sizeof body, c->number, i, true);
        open_stream(&server, &conn, C, body);
        read_events(&conn, &s, "choices.0.text", -1);
        c->wrong += !s.done || s.n_finish != 1 || strcmp(buf_str(&s.text), c->alone[i]) != 0;
        buf_fini(&s.text);
        http_close(&conn);
    }
}

START_TEST(together_as_alone)
{
    struct client clients[N_CLIENTS] = {{0}};
    struct err err;
    for (int k = 0; k < N_CLIENTS; k++) {
        clients[k].number = k;
        for (int i = 0; i < N_EACH; i++) {
            char body[512];
            question(body, sizeof body, k, i, false);
            struct answer a = ask(&server, "POST", C, body);
            clients[k].alone[i] = strdup(str_at(a.json, "choices.0.text"));
            answer_fini(&a);
        }
    }
    for (int k = 0; k < N_CLIENTS; k++)
        ck_assert_int_eq(thread_start(&clients[k].thread, talk, &clients[k], &err), 0);
    for (int k = 0; k < N_CLIENTS; k++) {
        thread_join(clients[k].thread);
        ck_assert_msg(clients[k].wrong == 0, "client %d: %d differ", k, clients[k].wrong);
        for (int i = 0; i < N_EACH; i++)
            free(clients[k].alone[i]);
    }
}
END_TEST

/* ---- servers of their own ---- */

START_TEST(keys)
{
    static const char *const args[] = {"--api-key", "sesame", "--cors", "http://page.example", NULL};
    static const struct {
        const char *path, *header;
        int status;
    } cases[] = {
        {"/v1/models", "", 401},
        {"/v1/models", "Authorization: Bearer sesam\r\n", 401},
        {"/v1/models", "Authorization: Bearer sesame1\r\n", 401},
        {"/v1/models", "Authorization: Bearer \r\n", 401},
        {"/v1/models", "Authorization: Basic sesame\r\n", 401},
        {"/v1/models", "Authorization: Bearer sesame\r\n", 200},
        {"/metrics", "", 401},
        {"/health", "", 200},
        {"/", "", 200},
    };
    struct child c;
    char value[128];
    child_start(&c, args);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct answer a = ask_with(&c, "GET", cases[i].path, cases[i].header, NULL, 0);
        ck_assert_msg(a.status == cases[i].status, "%s with %s: %d", cases[i].path, cases[i].header, a.status);
        ck_assert(http_header(&a.conn, "Access-Control-Allow-Origin", value, sizeof value));
        ck_assert_str_eq(value, "http://page.example");
        if (a.status == 401)
            ck_assert_str_eq(str_at(a.json, "error.code"), "invalid_api_key");
        answer_fini(&a);
    }
    struct answer a = ask(&c, "OPTIONS", "/v1/chat/completions", NULL);
    ck_assert_int_eq(a.status, 204);
    ck_assert(http_header(&a.conn, "Access-Control-Allow-Headers", value, sizeof value));
    answer_fini(&a);
    child_stop(&c);
}
END_TEST

START_TEST(overload)
{
    static const char *const args[] = {"--slots", "1", "--max-queue", "1", NULL};
    struct child c;
    struct http_conn running, waiting;
    struct streamed s = {.n_events = 0};
    char body[256], value[32];
    child_start(&c, args);
    snprintf(body, sizeof body, LONG, "true");
    open_stream(&c, &running, C, body);
    read_events(&running, &s, "choices.0.text", 1);
    struct answer a = ask(&c, "POST", C, "{\"prompt\":[\"a\",\"b\"]}"); /* one more than may wait */
    ck_assert_int_eq(a.status, 429);
    answer_fini(&a);
    a = ask(&c, "POST", C, "{\"prompt\":[\"a\",\"b\",\"c\"]}"); /* than there ever is room for */
    ck_assert_int_eq(a.status, 400);
    ck_assert_str_eq(str_at(a.json, "error.param"), "prompt");
    answer_fini(&a);
    open_stream(&c, &waiting, C, body);
    a = ask(&c, "POST", C, body);
    ck_assert_int_eq(a.status, 429);
    ck_assert_str_eq(str_at(a.json, "error.type"), "rate_limit_error");
    ck_assert(http_header(&a.conn, "Retry-After", value, sizeof value));
    answer_fini(&a);
    http_close(&running);
    http_close(&waiting);
    await_idle(&c);
    a = ask(&c, "POST", C, "{\"prompt\":\"a\",\"max_tokens\":1}");
    ck_assert_int_eq(a.status, 200);
    answer_fini(&a);
    buf_fini(&s.text);
    child_stop(&c);
}
END_TEST

/* Nor is anybody told where files lie. */
START_TEST(errors_tell_no_path)
{
    const char *args[] = {"--chat-template", test_tmp("xyzzy.jinja"), NULL};
    struct child c;
    FILE *f = fopen(args[1], "w");
    ck_assert_ptr_nonnull(f);
    fputs("{% for m in messages %}{{ m.content | no_such_filter }}{% endfor %}", f);
    ck_assert_int_eq(fclose(f), 0);
    child_start(&c, args);
    struct answer a = ask(&c, "POST", "/v1/chat/completions", "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]}");
    ck_assert_int_eq(a.status, 400);
    ck_assert_msg(strstr(str_at(a.json, "error.message"), "template"), "%s", buf_str(&a.body));
    ck_assert_msg(!strstr(buf_str(&a.body), "xyzzy") && !strchr(buf_str(&a.body), '/'), "%s", buf_str(&a.body));
    answer_fini(&a);
    child_stop(&c);
}
END_TEST

/* Half a head, half a body, and nothing at all: the server closes, and answers others meanwhile. */
START_TEST(slow_clients)
{
    static const char *const args[] = {"--timeout", "3", NULL};
    static const char *const halves[] = {"", "POST /v1/completions HTTP/1.1\r\nHost:",
                                         "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{\"prompt\""};
    struct child c;
    struct http_conn conn[3];
    struct err err = {0};
    char rest[4096];
    child_start(&c, args);
    for (int i = 0; i < 3; i++) {
        ask_open(&c, &conn[i]);
        http_send(&conn[i], halves[i], strlen(halves[i]), &err); /* fails where that took too long already */
    }
    struct answer a = ask(&c, "POST", C, "{\"prompt\":\"a\",\"max_tokens\":1}");
    ck_assert_int_eq(a.status, 200);
    answer_fini(&a);
    for (int i = 0; i < 3; i++) {
        ssize_t n;
        do /* perhaps a word of 408 before the end */
            n = read(conn[i].fd, rest, sizeof rest);
        while (n > 0);
        ck_assert_msg(n == 0 || errno == ECONNRESET, "connection %d: %s", i, strerror(errno));
        http_close(&conn[i]);
    }
    child_stop(&c);
}
END_TEST

START_TEST(drains)
{
    struct child c;
    struct http_conn conn;
    struct streamed s = {.n_events = 0};
    child_start(&c, NULL);
    open_stream(&c, &conn, C, "{\"prompt\":\"a\",\"max_tokens\":200,\"ignore_eos\":true,\"stream\":true}");
    read_events(&conn, &s, "choices.0.text", 1);
    kill(c.pid, SIGTERM);
    read_events(&conn, &s, "choices.0.text", -1);
    ck_assert(s.done && s.n_finish == 1);
    ck_assert_str_eq(s.finish, "length");
    http_close(&conn);
    ck_assert_int_eq(child_wait(&c), 0);
    buf_fini(&s.text);
}
END_TEST

/* What runs is cancelled: neither its end is waited for nor the most that is waited for ends. */
START_TEST(second_signal)
{
    static const char *const args[] = {"--timeout", "86400", NULL};
    struct child c;
    struct http_conn conn;
    struct streamed s = {.n_events = 0};
    char body[256], *log;
    size_t len;
    child_start(&c, args);
    snprintf(body, sizeof body, LONG, "true");
    open_stream(&c, &conn, C, body);
    read_events(&conn, &s, "choices.0.text", 1);
    kill(c.pid, SIGTERM);
    await_status(&c, "draining"); /* the first was seen: both cannot be counted as one */
    kill(c.pid, SIGTERM);
    ck_assert_int_eq(child_wait(&c), 0);
    ck_assert_int_eq(map_read_all(c.log, SIZE_MAX / 2, &log, &len, NULL), 0);
    ck_assert_msg(strstr(log, "\"finish\":\"cancelled\""), "%s", log);
    free(log);
    http_close(&conn);
    buf_fini(&s.text);
}
END_TEST

/* One line of JSON for each request, with the text only where it is wanted. */
START_TEST(log_lines)
{
    static const char *const args[2][2] = {{NULL}, {"--log-text", NULL}};
    static const char secret[] = "xyzzy";
    struct child c;
    char line[4096];
    int n_lines = 0, n_secret = 0;
    child_start(&c, args[_i]);
    struct answer a = ask(&c, "POST", C, "{\"prompt\":\"xyzzy\",\"max_tokens\":2}");
    ck_assert_int_eq(a.status, 200);
    answer_fini(&a);
    a = ask(&c, "GET", "/xyzzy", NULL);
    ck_assert_int_eq(a.status, 404);
    answer_fini(&a);
    child_stop(&c);
    FILE *f = fopen(c.log, "r");
    ck_assert_ptr_nonnull(f);
    while (fgets(line, sizeof line, f)) {
        cJSON *j;
        struct err err;
        if (line[0] != '{')
            continue;
        n_lines++;
        ck_assert_msg(json_parse(&j, line, strlen(line), "log", &err) == 0, "%s: %s", err.msg, line);
        ck_assert(num_at(j, "status") >= 200 && num_at(j, "ms") >= 0);
        n_secret += strstr(line, secret) != NULL;
        cJSON_Delete(j);
    }
    fclose(f);
    ck_assert_int_eq(n_lines, 2);
    ck_assert_int_eq(n_secret, _i);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("serve");
    TCase *one = tcase_create("one server"), *own = tcase_create("servers of their own");
    tcase_add_unchecked_fixture(one, start_server, stop_server);
    tcase_add_loop_test(one, every_route, 0, sizeof routes / sizeof *routes);
    tcase_add_test(one, page_and_metrics);
    tcase_add_test(one, fields);
    tcase_add_test(one, stream_is_the_whole);
    tcase_add_loop_test(one, refused, 0, sizeof bad / sizeof *bad);
    tcase_add_test(one, references_of_tools);
    tcase_add_test(one, deep_and_long);
    tcase_add_test(one, too_large);
    tcase_add_test(one, too_large_in_chunks);
    tcase_add_test(one, long_headers);
    tcase_add_loop_test(one, errors_tell_no_text, 0, sizeof wrong / sizeof *wrong);
    tcase_add_test(one, frames);
    tcase_add_test(one, methods);
    tcase_add_loop_test(one, client_leaves, 0, 2);
    tcase_add_test(one, together_as_alone);
    tcase_add_test(own, templates_of_others);
    tcase_add_test(own, keys);
    tcase_add_test(own, overload);
    tcase_add_test(own, errors_tell_no_path);
    tcase_add_test(own, slow_clients);
    tcase_add_test(own, drains);
    tcase_add_test(own, second_signal);
    tcase_add_loop_test(own, log_lines, 0, 2);
    suite_add_tcase(s, one);
    suite_add_tcase(s, own);
    return test_main(s);
}
