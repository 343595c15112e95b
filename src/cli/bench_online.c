/* Clients of a server, several at once: each sends one streaming completion after
 * the other, and notes when its first token came, when the last one, and how many
 * there were.  Tokens are counted by the server's own usage, not by events.
 * Knows nothing of engines. */
#include "cli/bench_online.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/thread.h"
#include "cli/http_client.h"
#include "cli/out.h"

#define PROMPTS_MAX ((size_t)64 << 20) /* bytes of the file */
#define ANSWER_MAX ((size_t)1 << 20)
#define WAIT 300.0                     /* seconds for the next byte */

struct question {
    char *body; /* JSON of the request */
    size_t len;
};

struct shot { /* one request */
    double ttft_ms, tpot_ms, e2e_ms; /* tpot: 0 where there was one token */
    uint64_t prompt_tokens, output_tokens;
    bool ok;
    struct err err;
};

struct fire { /* a level, while it runs */
    const struct http_url *url;
    const char *headers;
    const struct question *questions;
    size_t n_questions, n_shots;
    atomic_size_t next;
    struct shot *shots;
};

/* ---- one request ---- */

struct told { /* by the events of a stream so far */
    double first, last; /* when text came, 0 = none yet */
    bool usage, finished;
};

static int take_choices(const cJSON *choices, double now, struct told *told, struct err *err)
{
    if (!cJSON_IsArray(choices))
        return err_set(err, ERR_FORMAT, "an event whose \"choices\" are %s, not a list", json_kind(choices));
    const cJSON *text = json_get(choices->child, "text");
    if (text && !cJSON_IsString(text))
        return err_set(err, ERR_FORMAT, "an event whose \"text\" is %s, not a string", json_kind(text));
    if (text && text->valuestring[0]) {
        told->last = now;
        told->first = told->first > 0 ? told->first : now;
    }
    told->finished |= cJSON_IsString(json_get(choices->child, "finish_reason")) != 0;
    return 0;
}

static int take_event(const char *text, size_t len, double now, struct shot *s, struct told *told, struct err *err)
{
    cJSON *j;
    int rc = json_parse(&j, text, len, "event", err);
    if (rc < 0)
        return rc;
    const cJSON *error = json_get(j, "error"), *choices = json_get(j, "choices"), *usage = json_get(j, "usage");
    const char *why = "error";
    if (error) {
        json_get_str(error, "message", &why, "event", NULL);
        rc = err_set(err, ERR_IO, "the server ends a stream with: %s", why);
    }
    if (rc == 0 && choices)
        rc = take_choices(choices, now, told, err);
    if (rc == 0 && cJSON_IsObject(usage)) {
        int64_t n = 0, p = 0;
        json_get_i64(usage, "completion_tokens", 0, INT64_C(1) << 40, &n, "usage", NULL);
        json_get_i64(usage, "prompt_tokens", 0, INT64_C(1) << 40, &p, "usage", NULL);
        s->output_tokens = (uint64_t)n;
        s->prompt_tokens = (uint64_t)p;
        told->usage = true;
    }
    cJSON_Delete(j);
    return rc;
}

static int refused(struct http_conn *c, struct err *err)
{
    struct buf b;
    buf_init(&b);
    http_body(c, &b, ANSWER_MAX, NULL);
    err_set(err, ERR_IO, "the server answers %d: %.200s", c->status, buf_str(&b));
    buf_fini(&b);
    return ERR_IO;
}

static int read_stream(struct http_conn *c, struct shot *s, double start, struct err *err)
{
    static const char data[] = "data: ", done[] = "data: [DONE]";
    struct buf line;
    struct told told = {0};
    bool ended = false;
    int rc;
    buf_init(&line);
    while ((rc = http_line(c, &line, err)) > 0 && !ended) {
        const char *l = buf_str(&line);
        ended = strcmp(l, done) == 0;
        if (!ended && strncmp(l, data, sizeof data - 1) == 0)
            rc = take_event(l + sizeof data - 1, line.len - (sizeof data - 1), clock_now(), s, &told, err);
        if (rc < 0)
            break;
    }
    buf_fini(&line);
    if (rc < 0)
        return rc;
    if (!ended)
        return err_set(err, ERR_IO, "the stream ends without [DONE]");
    if (!told.finished || !told.usage)
        return err_set(err, ERR_FORMAT, "the stream has no %s", told.finished ? "usage, which was asked for" : "finish_reason");
    s->e2e_ms = (clock_now() - start) * 1e3;
    s->ttft_ms = (told.first > 0 ? told.first - start : 0) * 1e3;
    if (s->output_tokens > 1 && told.last > told.first)
        s->tpot_ms = (told.last - told.first) * 1e3 / (double)(s->output_tokens - 1);
    return 0;
}

/* Which address a failure is of. */
static void name_address(const struct http_url *u, const char *path, struct err *err)
{
    err_wrap(err, strchr(u->host, ':') ? "http://[%s]:%s%s%s" : "http://%s:%s%s%s", u->host, u->port, u->path, path);
}

static void shoot(const struct fire *f, const struct question *q, struct shot *s)
{
    static const char path[] = "/v1/completions";
    struct http_conn c;
    double start = clock_now();
    int rc = http_open(&c, f->url, WAIT, interrupted, &s->err);
    if (rc == 0)
        rc = http_request(&c, f->url, "POST", path, f->headers, q->body, q->len, &s->err);
    if (rc == 0)
        rc = http_head(&c, &s->err);
    if (rc == 0)
        rc = c.status == 200 ? read_stream(&c, s, start, &s->err) : refused(&c, &s->err);
    http_close(&c);
    if (rc < 0)
        name_address(f->url, path, &s->err);
    s->ok = rc == 0;
}

static void client(void *arg)
{
    struct fire *f = arg;
    size_t i;
    while (!interrupted() && (i = atomic_fetch_add(&f->next, 1)) < f->n_shots)
        shoot(f, &f->questions[i % f->n_questions], &f->shots[i]);
}

/* ---- a level ---- */

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Nearest rank. */
static double percentile(const double *sorted, size_t n, int p)
{
    size_t rank = (n * (size_t)p + 99) / 100;
    return n ? sorted[rank ? rank - 1 : 0] : 0;
}

struct online_times online_times_of(double *v, size_t n)
{
    struct online_times t = {0};
    for (size_t i = 0; i < n; i++)
        t.mean += v[i] / (double)n;
    qsort(v, n, sizeof *v, compare);
    t.p50 = percentile(v, n, 50);
    t.p95 = percentile(v, n, 95);
    t.p99 = percentile(v, n, 99);
    return t;
}

static struct online_times times_of(const struct fire *f, size_t off, double *scratch)
{
    size_t n = 0;
    for (size_t i = 0; i < f->n_shots; i++) {
        const double *v = (const double *)(const void *)((const char *)&f->shots[i] + off);
        if (f->shots[i].ok && *v > 0)
            scratch[n++] = *v;
    }
    return online_times_of(scratch, n);
}

static void sum_up(const struct fire *f, struct online_level *l, double *scratch)
{
    size_t n_ok = 0;
    l->requests = f->n_shots;
    for (size_t i = 0; i < f->n_shots; i++) {
        const struct shot *s = &f->shots[i];
        n_ok += s->ok;
        l->prompt_tokens += s->ok ? s->prompt_tokens : 0;
        l->output_tokens += s->ok ? s->output_tokens : 0;
        if (!s->ok && l->errors++ == 0)
            snprintf(l->first_error, sizeof l->first_error, "%.255s", s->err.msg);
    }
    l->req_s = l->seconds > 0 ? (double)n_ok / l->seconds : 0;
    l->tok_s = l->seconds > 0 ? (double)l->output_tokens / l->seconds : 0;
    l->ttft = times_of(f, offsetof(struct shot, ttft_ms), scratch);
    l->tpot = times_of(f, offsetof(struct shot, tpot_ms), scratch);
    l->e2e = times_of(f, offsetof(struct shot, e2e_ms), scratch);
}

static int run_level(struct fire *f, struct online_level *l, struct err *err)
{
    int rc = 0, n = 0;
    double *scratch = mem_array(f->n_shots, sizeof *scratch), start = clock_now();
    struct thread **threads = mem_array((size_t)l->clients, sizeof(struct thread *));
    f->shots = mem_array(f->n_shots, sizeof *f->shots);
    if (!scratch || !threads || !f->shots)
        rc = err_set(err, ERR_NOMEM, "no memory for %zu requests", f->n_shots);
    atomic_init(&f->next, 0);
    for (; rc == 0 && n < l->clients; n += rc == 0)
        rc = thread_start(&threads[n], client, f, err);
    for (int i = 0; i < n; i++)
        thread_join(threads[i]);
    l->seconds = clock_now() - start;
    if (rc == 0 && interrupted())
        rc = err_set(err, ERR_CANCELLED, "interrupted");
    if (rc == 0)
        sum_up(f, l, scratch);
    free(scratch);
    free((void *)threads);
    free(f->shots);
    return rc;
}

/* ---- what is asked ---- */

/* A line is a prompt, or an object with "prompt" and perhaps "max_tokens". */
static int make_question(struct question *q, const char *line, size_t len, int64_t n_tokens, struct err *err)
{
    struct buf prompt, b;
    cJSON *j = NULL;
    int rc = 0;
    buf_init(&prompt);
    buf_init(&b);
    if (line[0] == '{') {
        rc = json_parse(&j, line, len, "prompts", err);
        if (rc == 0 && !json_str(json_get(j, "prompt"), &prompt))
            rc = err_set(err, ERR_FORMAT, "an object without a string \"prompt\"");
        if (rc == 0)
            rc = json_get_i64(j, "max_tokens", 1, 1 << 30, &n_tokens, "prompts", err);
    } else
        buf_put(&prompt, line, len);
    if (rc == 0) {
        buf_puts(&b, "{\"prompt\":");
        buf_put_json(&b, buf_str(&prompt), prompt.len);
        buf_printf(&b, ",\"max_tokens\":%lld,\"temperature\":0,\"stream\":true,\"stream_options\":{\"include_usage\":true}}",
                   (long long)n_tokens);
        if (b.failed || prompt.failed)
            rc = err_set(err, ERR_NOMEM, "no memory for the prompts");
    }
    buf_fini(&prompt);
    cJSON_Delete(j);
    if (rc < 0) {
        buf_fini(&b);
        return rc;
    }
    q->body = b.data;
    q->len = b.len;
    return 0;
}

static int read_questions(struct question **out, size_t *n, const struct online_args *a, struct err *err)
{
    char *text;
    size_t len, cap = 0;
    int rc = map_read_all(a->prompts, PROMPTS_MAX, &text, &len, err);
    if (rc < 0)
        return rc;
    for (size_t at = 0, line = 1; at < len && rc == 0; line++) {
        const char *end = memchr(text + at, '\n', len - at);
        size_t m = end ? (size_t)(end - (text + at)) : len - at;
        struct question q;
        if (m > 0) {
            struct question *more = mem_grow(*out, &cap, *n + 1, sizeof *more);
            *out = more ? more : *out;
            rc = more ? make_question(&q, text + at, m, a->n, err) : err_set(err, ERR_NOMEM, "no memory for the prompts");
            if (rc == 0)
                (*out)[(*n)++] = q;
            else
                err_wrap(err, "%s: line %zu", a->prompts, line);
        }
        at += m + 1;
    }
    free(text);
    return rc == 0 && *n == 0 ? err_set(err, ERR_FORMAT, "%s has no prompt", a->prompts) : rc;
}

static int ask_model(struct online *o, const struct http_url *u, const char *headers, struct err *err)
{
    static const char path[] = "/v1/models";
    struct http_conn c;
    struct buf b;
    cJSON *j = NULL;
    buf_init(&b);
    int rc = http_open(&c, u, WAIT, interrupted, err);
    if (rc == 0)
        rc = http_request(&c, u, "GET", path, headers, NULL, 0, err);
    if (rc == 0)
        rc = http_head(&c, err);
    if (rc == 0)
        rc = c.status == 200 ? http_body(&c, &b, ANSWER_MAX, err) : refused(&c, err);
    if (rc == 0)
        rc = json_parse(&j, buf_str(&b), b.len, "the answer", err);
    if (rc < 0)
        name_address(u, path, err);
    const cJSON *data = json_get(j, "data");
    const char *id = "";
    if (rc == 0 && cJSON_IsArray(data))
        json_get_str(data->child, "id", &id, "models", NULL);
    snprintf(o->model, sizeof o->model, "%s", id);
    cJSON_Delete(j);
    http_close(&c);
    buf_fini(&b);
    return rc;
}

/* ---- all of it ---- */

static int run_all(struct online *o, const struct fire *like, struct err *err)
{
    const struct num_list *levels = o->a->concurrency;
    struct fire warm = *like;
    struct online_level cold = {.clients = 1};
    warm.n_shots = ONLINE_WARM_UPS;
    int rc = run_level(&warm, &cold, err);
    if (rc == 0 && cold.errors > 0)
        rc = err_set(err, ERR_IO, "%s", cold.first_error);
    o->warm_up_ms = cold.e2e.mean;
    o->levels = mem_array(levels->n, sizeof *o->levels);
    if (rc == 0 && !o->levels)
        rc = err_set(err, ERR_NOMEM, "out of memory");
    for (size_t i = 0; i < levels->n && rc == 0; i++) {
        struct fire f = *like;
        f.n_shots = o->n_prompts * (size_t)o->a->reps;
        o->levels[i].clients = (int)levels->v[i];
        msg_verbose("%d clients, %zu requests", o->levels[i].clients, f.n_shots);
        rc = run_level(&f, &o->levels[o->n_levels++], err);
    }
    return rc;
}

int online_bench(const struct online_args *a)
{
    struct online o = {.a = a};
    struct http_url url;
    struct err err = {0};
    struct buf headers, out;
    struct question *questions = NULL;
    const char *key = getenv("FORGE_API_KEY");
    buf_init(&headers);
    buf_puts(&headers, "Connection: close\r\n");
    if (key && *key)
        buf_printf(&headers, "Authorization: Bearer %s\r\n", key);
    int rc = http_url_parse(&url, a->server, &err);
    if (rc == 0)
        rc = read_questions(&questions, &o.n_prompts, a, &err);
    if (rc == 0)
        rc = ask_model(&o, &url, buf_str(&headers), &err);
    if (rc == 0) {
        struct fire like = {.url = &url, .headers = buf_str(&headers), .questions = questions, .n_questions = o.n_prompts};
        rc = run_all(&o, &like, &err);
    }
    for (size_t i = 0; i < o.n_prompts; i++)
        free(questions[i].body);
    free(questions);
    buf_fini(&headers);
    int status = rc < 0 ? interrupted() ? EXIT_INTERRUPTED : msg_fail(rc, err.msg) : EXIT_OK;
    if (status == EXIT_OK) {
        buf_init(&out);
        online_print(&out, &o);
        status = out_buf(&out) ? EXIT_OK : EXIT_FAILED;
        for (size_t i = 0; i < o.n_levels; i++)
            if (o.levels[i].errors > 0)
                status = EXIT_FAILED;
    }
    free(o.levels);
    return status;
}
