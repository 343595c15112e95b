/* The server inside the test's own process, over an engine whose steps stand still
 * at a gate: so a prompt is read for as long as a test wants it to be.  What a
 * stream says meanwhile, clients that leave just then or take nothing, a device
 * that fails; the end while somebody waits.
 *
 * Made to be run under the thread sanitizer, too. */
#include <sys/socket.h>

#include "base/thread.h"
#include "run/engine.h"
#include "serve/server.h"
#include "tests/engine_kit.h"
#include "tests/serve_kit.h"

#define C "/v1/completions"
enum { CHUNK = 16, N_PROMPT = 100, N_CHUNKS = (N_PROMPT + CHUNK - 1) / CHUNK };

/* ---- a gate before each step ---- */

static struct {
    struct mutex *lock;
    struct bell *bell;
    int n_steps, stop_at; /* the step that waits; 0 = none */
    bool waits;
    int fail_at;          /* the step whose read fails; 0 = none */
} gate;

static const struct backend_ops *own;
static struct backend_ops bent;

static void bent_embed(struct backend *be, const struct tensor *out, const struct tensor *table, const struct tensor *ids, float scale)
{
    mutex_lock(gate.lock);
    gate.n_steps++;
    gate.waits = gate.n_steps == gate.stop_at;
    bell_ring(gate.bell);
    while (gate.waits)
        bell_wait(gate.bell, gate.lock);
    bool fails = gate.n_steps == gate.fail_at;
    mutex_unlock(gate.lock);
    if (fails)
        backend_fail(be, ERR_DEVICE, "CL_OUT_OF_RESOURCES (-5)");
    else
        own->embed(be, out, table, ids, scale);
}

/* From now on steps are counted from 1. */
static void gate_set(int stop_at, int fail_at)
{
    mutex_lock(gate.lock);
    gate.n_steps = 0;
    gate.stop_at = stop_at;
    gate.fail_at = fail_at;
    mutex_unlock(gate.lock);
}

static void gate_await(void)
{
    mutex_lock(gate.lock);
    while (!gate.waits)
        bell_wait(gate.bell, gate.lock);
    mutex_unlock(gate.lock);
}

static void gate_open(void)
{
    mutex_lock(gate.lock);
    gate.waits = false;
    gate.stop_at = 0;
    bell_ring(gate.bell);
    mutex_unlock(gate.lock);
}

static int gate_steps(void)
{
    mutex_lock(gate.lock);
    int n = gate.n_steps;
    mutex_unlock(gate.lock);
    return n;
}

/* The step that waits ends, and the next one waits. */
static void gate_pass(void)
{
    mutex_lock(gate.lock);
    gate.waits = false;
    gate.stop_at = gate.n_steps + 1;
    bell_ring(gate.bell);
    mutex_unlock(gate.lock);
}

/* ---- an engine, a server, and who looks after it ---- */

static struct forge_engine *engine;
static struct server *server;
static struct child at; /* where it listens */
static struct thread *ticker;
static atomic_bool stop_ticking;

static void tick(void *arg)
{
    (void)arg;
    while (!atomic_load(&stop_ticking)) {
        server_tick(server);
        usleep(5000);
    }
}

static void open_all(int slots)
{
    struct forge_engine_params p = engine_params(TINY);
    struct serve_params sp = {.host = "127.0.0.1", .max_queue = 64, .timeout = 60, .keep_alive = 0.05};
    struct err err = {0};
    p.chunk = CHUNK;
    p.max_seqs = slots;
    p.no_prefix_cache = 1;
    engine = engine_with(&p);
    gate.lock = mutex_new();
    gate.bell = bell_new();
    gate_set(0, 0);
    struct backend *be = engine->l.backends[0];
    own = be->ops;
    bent = *own;
    bent.embed = bent_embed;
    be->ops = &bent;
    ck_assert_msg(server_open(&server, engine, &sp, &err) == 0, "%s", err.msg);
    ck_assert_int_eq(http_url_parse(&at.url, server_url(server), &err), 0);
    atomic_store(&stop_ticking, false);
    ck_assert_int_eq(thread_start(&ticker, tick, NULL, &err), 0);
}

static void close_all(void)
{
    atomic_store(&stop_ticking, true);
    thread_join(ticker);
    server_close(server);
    forge_engine_close(engine);
    bell_free(gate.bell);
    mutex_free(gate.lock);
}

/* ---- what the server calls goes through here ---- */

static struct {
    void (*second)(void); /* done before the second request is submitted */
    int n_submits;
    size_t places;        /* fewest of the server's that were taken when a connection was resumed */
} seam = {.places = SIZE_MAX};

int __real_forge_submit(struct forge_engine *e, const struct forge_request_params *p, struct forge_request **out,
                        struct forge_error *err);
int __wrap_forge_submit(struct forge_engine *e, const struct forge_request_params *p, struct forge_request **out,
                        struct forge_error *err);
int __wrap_forge_submit(struct forge_engine *e, const struct forge_request_params *p, struct forge_request **out,
                        struct forge_error *err)
{
    if (++seam.n_submits == 2 && seam.second)
        seam.second();
    return __real_forge_submit(e, p, out, err);
}

void __real_MHD_resume_connection(struct MHD_Connection *conn);
void __wrap_MHD_resume_connection(struct MHD_Connection *conn);
void __wrap_MHD_resume_connection(struct MHD_Connection *conn)
{
    size_t n = atomic_load(&server->n_requests);
    seam.places = n < seam.places ? n : seam.places;
    __real_MHD_resume_connection(conn);
}

static const char *long_prompt(const char *more)
{
    static char body[2048];
    size_t n = (size_t)snprintf(body, sizeof body, "{\"prompt\":[706");
    for (int i = 1; i < N_PROMPT; i++)
        n += (size_t)snprintf(body + n, sizeof body - n, ",%d", 300 + i);
    snprintf(body + n, sizeof body - n, "],\"max_tokens\":4,\"temperature\":0,\"ignore_eos\":true%s}", more);
    return body;
}

static void answers(const char *body, const char *text)
{
    struct answer a = ask(&at, "POST", C, body);
    ck_assert_msg(a.status == 200, "%d %s", a.status, buf_str(&a.body));
    ck_assert_str_eq(str_at(a.json, "choices.0.text"), text);
    answer_fini(&a);
}

static char *text_alone(const char *body)
{
    struct answer a = ask(&at, "POST", C, body);
    ck_assert_msg(a.status == 200, "%d %s", a.status, buf_str(&a.body));
    char *text = strdup(str_at(a.json, "choices.0.text"));
    answer_fini(&a);
    return text;
}

/* ---- a long prompt ---- */

static void read_comment(struct http_conn *conn)
{
    struct buf line;
    struct err err = {0};
    buf_init(&line);
    do
        ck_assert_msg(http_line(conn, &line, &err) > 0, "%s", err.msg);
    while (buf_str(&line)[0] != ':');
    buf_fini(&line);
}

/* In the second chunk, for as long as it takes; then while another one waits for the slot. */
START_TEST(comments_in_a_long_prompt)
{
    struct http_conn conn, second;
    struct streamed s = {.n_events = 0}, t = {.n_events = 0};
    open_all(1);
    char *alone = text_alone(long_prompt(""));
    gate_set(2, 0);
    open_stream(&at, &conn, C, long_prompt(",\"stream\":true"));
    gate_await();
    open_stream(&at, &second, C, long_prompt(",\"stream\":true"));
    for (int i = 0; i < 3; i++) {
        read_comment(&conn);
        read_comment(&second);
    }
    ck_assert_int_eq(gate_steps(), 2);
    gate_open();
    read_events(&conn, &s, "choices.0.text", -1);
    read_events(&second, &t, "choices.0.text", -1);
    ck_assert(s.done && t.done && s.n_finish == 1 && t.n_finish == 1);
    ck_assert_str_eq(buf_str(&s.text), alone);
    ck_assert_str_eq(buf_str(&t.text), alone);
    buf_fini(&s.text);
    buf_fini(&t.text);
    http_close(&conn);
    http_close(&second);
    free(alone);
    close_all();
}
END_TEST

START_TEST(progress)
{
    struct http_conn conn;
    struct buf line;
    struct err err = {0};
    double before = 0;
    int n = 0;
    open_all(1);
    open_stream(&at, &conn, C, long_prompt(",\"stream\":true,\"return_progress\":true"));
    buf_init(&line);
    while (http_line(&conn, &line, &err) > 0) {
        cJSON *j = NULL;
        if (strncmp(buf_str(&line), "data: {", 7) == 0 && json_parse(&j, line.data + 6, line.len - 6, "event", &err) == 0 &&
            at_path(j, "prompt_progress")) {
            double done = num_at(j, "prompt_progress.processed");
            ck_assert(num_at(j, "prompt_progress.total") == N_PROMPT);
            ck_assert(n > 0 || done == CHUNK);
            ck_assert(done > before);
            before = done;
            n++;
        }
        cJSON_Delete(j);
    }
    ck_assert_int_ge(n, 2);
    ck_assert(before == N_PROMPT);
    buf_fini(&line);
    http_close(&conn);
    close_all();
}
END_TEST

/* Of the one exchange that is there. */
static bool flag_of(bool (*flag)(const struct exchange *x))
{
    bool on = false;
    mutex_lock(server->lock);
    for (struct exchange *x = server->first; x; x = x->next) {
        mutex_lock(x->lock);
        on = on || flag(x);
        mutex_unlock(x->lock);
    }
    mutex_unlock(server->lock);
    return on;
}

static bool is_gone(const struct exchange *x)
{
    return x->gone;
}

static bool is_watched(const struct exchange *x)
{
    return x->watched;
}

static void await_flag(bool (*flag)(const struct exchange *x))
{
    while (!flag_of(flag))
        usleep(1000);
}

/* The kernel may be late with the news of an end, and a handler with the end of what it submits: from here on what
 * waits at the gate is the last step. */
static void await_left(void)
{
    await_flag(is_watched);
    await_flag(http_left);
}

/* It leaves while a chunk of its prompt is computed: that one is the last.  What was stored of it spoils nothing. */
START_TEST(leaves_in_a_prompt)
{
    struct http_conn conn;
    struct err err = {0};
    const char *body;
    open_all(2);
    char *alone = text_alone(long_prompt(""));
    gate_set(3, 0);
    body = long_prompt(_i ? ",\"stream\":true" : "");
    ask_open(&at, &conn);
    ck_assert_int_eq(http_request(&conn, &at.url, "POST", C, "", body, strlen(body), &err), 0);
    gate_await();
    http_close(&conn);
    await_left();
    gate_open();
    await_idle(&at);
    ck_assert_int_eq(gate_steps(), 3);
    ck_assert_int_lt(3, N_CHUNKS);
    ck_assert(metric(&at, "forge_requests_cancelled_total") == 1);
    answers(long_prompt(""), alone);
    free(alone);
    close_all();
}
END_TEST

static bool is_suspended(const struct exchange *x)
{
    return x->suspended;
}

static struct http_conn leaver;

static void leave(void)
{
    gate_await();
    http_close(&leaver);
    await_flag(http_left);
    gate_pass();
    await_flag(is_gone);
}

/* It leaves, which the first prompt's callback sees, while its second prompt is about to be submitted. */
START_TEST(leaves_while_submitted)
{
    static const char body[] = "{\"prompt\":[\"a\",\"b\"],\"max_tokens\":300,\"temperature\":0,\"ignore_eos\":true}";
    struct err err = {0};
    open_all(2);
    gate_set(2, 0);
    seam.second = leave;
    ask_open(&at, &leaver);
    ck_assert_int_eq(http_request(&leaver, &at.url, "POST", C, "", body, strlen(body), &err), 0);
    await_flag(is_watched);
    gate_open();
    await_idle(&at);
    ck_assert(metric(&at, "forge_requests_cancelled_total") == 2);
    close_all();
}
END_TEST

static size_t places_between;

static void let_first_end(void)
{
    struct forge_engine_stats st;
    do {
        usleep(1000);
        forge_engine_stats_copy(engine, &st, sizeof st);
    } while (st.finished < 1);
    places_between = atomic_load(&server->n_requests);
}

/* Who ends the server waits while places are taken: the second prompt's before it is submitted, and the last one's
 * until no connection is suspended. */
START_TEST(places)
{
    static const char body[] = "{\"prompt\":[\"a\",\"b\"],\"max_tokens\":1}";
    struct answer a = {.json = NULL};
    struct err err = {0};
    open_all(2);
    gate_set(2, 0);
    seam.second = let_first_end;
    ask_open(&at, &a.conn);
    ck_assert_int_eq(http_request(&a.conn, &at.url, "POST", C, "", body, strlen(body), &err), 0);
    await_flag(is_suspended);
    gate_open();
    read_answer(&a);
    ck_assert_int_eq(a.status, 200);
    answer_fini(&a);
    ck_assert_uint_eq(places_between, 1);
    ck_assert_msg(seam.places > 0 && seam.places < SIZE_MAX, "%zu", seam.places);
    ck_assert_uint_eq(atomic_load(&server->n_requests), 0);
    close_all();
}
END_TEST

/* Bodies that are being read share what there is for them. */
START_TEST(bodies_together)
{
    enum { HALF = 80000 };
    static char body[2 * HALF + 64];
    struct answer first = {.json = NULL};
    struct err err = {0};
    char value[32], head[128];
    open_all(1);
    server->bodies_max = 2 * HALF - 1;
    memset(body, ' ', sizeof body);
    memcpy(body, "{\"prompt\":\"a\",\"max_tokens\":1", 28);
    body[HALF + 99] = '}';
    int n = snprintf(head, sizeof head, "POST " C " HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n", HALF + 100);
    ask_open(&at, &first.conn);
    ck_assert_int_eq(http_send(&first.conn, head, (size_t)n, &err), 0);
    ck_assert_int_eq(http_send(&first.conn, body, HALF, &err), 0);
    while (atomic_load(&server->n_body_bytes) < HALF)
        usleep(1000);
    struct answer a = ask_with(&at, "POST", C, "", body, HALF);
    ck_assert_int_eq(a.status, 503);
    ck_assert(http_header(&a.conn, "Retry-After", value, sizeof value));
    answer_fini(&a);
    ck_assert_int_eq(http_send(&first.conn, body + HALF, 100, &err), 0);
    read_answer(&first);
    ck_assert_msg(first.status == 200, "%d %s", first.status, buf_str(&first.body));
    answer_fini(&first);
    body[HALF - 1] = '}';
    a = ask_with(&at, "POST", C, "", body, HALF);
    ck_assert_int_eq(a.status, 200);
    answer_fini(&a);
    close_all();
}
END_TEST

/* One that has only ended what it sends is answered where nothing is waited for, and has left where something is. */
START_TEST(half_closed)
{
    static const char get[] = "GET /v1/models HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    struct answer a = {.json = NULL};
    struct http_conn conn;
    struct err err = {0};
    const char *body = long_prompt("");
    open_all(1);
    ask_open(&at, &a.conn);
    ck_assert_int_eq(http_send(&a.conn, get, sizeof get - 1, &err), 0);
    ck_assert_int_eq(shutdown(a.conn.fd, SHUT_WR), 0);
    read_answer(&a);
    ck_assert_int_eq(a.status, 200);
    answer_fini(&a);
    gate_set(1, 0);
    ask_open(&at, &conn);
    ck_assert_int_eq(http_request(&conn, &at.url, "POST", C, "", body, strlen(body), &err), 0);
    gate_await();
    ck_assert_int_eq(shutdown(conn.fd, SHUT_WR), 0);
    await_left();
    gate_open();
    await_idle(&at);
    ck_assert_int_eq(gate_steps(), 1);
    ck_assert(metric(&at, "forge_requests_cancelled_total") == 1);
    http_close(&conn);
    close_all();
}
END_TEST

/* One that reads nothing of a stream larger than what is kept for it: it is given up before the text ends. */
START_TEST(takes_nothing)
{
    static const char body[] =
        "{\"prompt\":\"a\",\"max_tokens\":900,\"ignore_eos\":true,\"logprobs\":5,\"stream\":true}";
    struct http_conn conn;
    struct err err = {0};
    int little = 4096;
    open_all(1);
    setsockopt(server->listen_fd, SOL_SOCKET, SO_SNDBUF, &little, sizeof little); /* those that are accepted inherit it */
    server->unread_max = (size_t)1 << 14;
    ask_open(&at, &conn);
    setsockopt(conn.fd, SOL_SOCKET, SO_RCVBUF, &little, sizeof little);
    ck_assert_int_eq(http_request(&conn, &at.url, "POST", C, "", body, strlen(body), &err), 0);
    while (metric(&at, "forge_requests_finished_total") < 1)
        usleep(20000);
    await_idle(&at);
    ck_assert(metric(&at, "forge_requests_cancelled_total") == 1);
    http_close(&conn);
    close_all();
}
END_TEST

/* A connection without a request ends long before one that had its first. */
START_TEST(silent)
{
    static const char get[] = "GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n";
    struct http_conn none;
    struct answer one = {.json = NULL};
    struct err err = {0};
    char rest[16];
    open_all(1);
    ask_open(&at, &one.conn);
    ck_assert_int_eq(http_send(&one.conn, get, sizeof get - 1, &err), 0);
    read_answer(&one);
    mutex_lock(server->lock);
    server->head_wait = 0.05;
    mutex_unlock(server->lock);
    ask_open(&at, &none);
    ck_assert_int_eq(read(none.fd, rest, sizeof rest), 0);
    ck_assert_int_eq(http_send(&one.conn, get, sizeof get - 1, &err), 0);
    ck_assert_int_gt(read(one.conn.fd, rest, sizeof rest), 0);
    answer_fini(&one);
    http_close(&none);
    close_all();
}
END_TEST

/* ---- a device that fails ---- */

/* This backend is not opened again: the request ends, /health tells, and the next one clears it. */
START_TEST(device_fails)
{
    open_all(2);
    char *alone = text_alone(long_prompt(""));
    gate_set(0, 2 + 2 * _i); /* in the prompt, or behind it */
    struct answer a = ask(&at, "POST", C, long_prompt(""));
    ck_assert_int_eq(a.status, 500);
    ck_assert_str_eq(str_at(a.json, "error.message"), "The device failed while it computed this request.");
    ck_assert_str_eq(str_at(a.json, "error.type"), "server_error");
    answer_fini(&a);
    a = ask(&at, "GET", "/health", NULL);
    ck_assert_int_eq(a.status, 503);
    ck_assert_str_eq(str_at(a.json, "status"), "error");
    answer_fini(&a);
    answers(long_prompt(""), alone);
    a = ask(&at, "GET", "/health", NULL);
    ck_assert_int_eq(a.status, 200);
    ck_assert_str_eq(str_at(a.json, "status"), "ok");
    answer_fini(&a);
    free(alone);
    close_all();
}
END_TEST

/* ---- the end ---- */

/* Who runs and who waits are answered; who comes, on an old connection or a new one, is told to come back. */
START_TEST(drains_all)
{
    struct http_conn running, waiting;
    struct answer late = {.json = NULL}, health;
    struct streamed s = {.n_events = 0}, t = {.n_events = 0};
    struct err err = {0};
    char value[32];
    open_all(1);
    char *alone = text_alone(long_prompt(""));
    gate_set(2, 0);
    ask_open(&at, &late.conn);
    open_stream(&at, &running, C, long_prompt(",\"stream\":true"));
    gate_await();
    open_stream(&at, &waiting, C, long_prompt(",\"stream\":true"));
    server_drain(server);
    ck_assert_int_eq(http_request(&late.conn, &at.url, "POST", C, "", "{\"prompt\":\"a\"}", 14, &err), 0);
    read_answer(&late);
    ck_assert_int_eq(late.status, 503);
    ck_assert(http_header(&late.conn, "Retry-After", value, sizeof value));
    ck_assert(http_header(&late.conn, "Connection", value, sizeof value));
    ck_assert_str_eq(value, "close");
    answer_fini(&late);
    late = ask(&at, "POST", C, "{\"prompt\":\"a\"}");
    ck_assert_int_eq(late.status, 503);
    answer_fini(&late);
    health = ask(&at, "GET", "/health", NULL);
    ck_assert_int_eq(health.status, 503);
    ck_assert_str_eq(str_at(health.json, "status"), "draining");
    answer_fini(&health);
    while (server_n_running(server) != 2) /* its own end is seen a little later */
        usleep(1000);
    gate_open();
    read_events(&running, &s, "choices.0.text", -1);
    read_events(&waiting, &t, "choices.0.text", -1);
    ck_assert(s.done && t.done);
    ck_assert_str_eq(buf_str(&s.text), alone);
    ck_assert_str_eq(buf_str(&t.text), alone);
    buf_fini(&s.text);
    buf_fini(&t.text);
    http_close(&running);
    http_close(&waiting);
    free(alone);
    close_all();
}
END_TEST

int main(void)
{
    Suite *s = suite_create("serve_inside");
    TCase *tc = tcase_create("gate");
    tcase_add_test(tc, comments_in_a_long_prompt);
    tcase_add_test(tc, progress);
    tcase_add_loop_test(tc, leaves_in_a_prompt, 0, 2);
    tcase_add_test(tc, leaves_while_submitted);
    tcase_add_test(tc, places);
    tcase_add_test(tc, bodies_together);
    tcase_add_test(tc, half_closed);
    tcase_add_test(tc, takes_nothing);
    tcase_add_test(tc, silent);
    tcase_add_loop_test(tc, device_fails, 0, 2);
    tcase_add_test(tc, drains_all);
    suite_add_tcase(s, tc);
    return test_main(s);
}
