/* forge serve: the model behind HTTP, for the programs that speak the OpenAI
 * protocol.
 * Owns the flags, the log's way to stderr and the signals; all of HTTP is serve/'s. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#include "base/clock.h"
#include "cli/cmd.h"
#include "serve/serve.h"

struct serve_args {
    const char *host, *api_key, *cors, *chat_template;
    int64_t port, slots, max_queue;
    double timeout, keep_alive;
    bool has_slots, log_text;
};

#define F(field) offsetof(struct serve_args, field)

static const struct opt opts[] = {
    {"host", 0, OPT_STR, F(host), 0, "HOST", NULL, "127.0.0.1",
     "address or name to listen at; 0.0.0.0 or :: lets other machines in"},
    {"port", 0, OPT_I64, F(port), 0, "N", "0..65535", "8001", "port to listen at; 0 = any that is free, printed"},
    {"api-key", 0, OPT_STR, F(api_key), 0, "KEY", NULL, NULL,
     "clients must send it as 'Authorization: Bearer KEY' (default: FORGE_API_KEY, else none)"},
    {"slots", 0, OPT_I64, F(slots), F(has_slots), "N", "1..1024", NULL,
     "requests that run at once, in steps together; the same as --max-seqs (default: 8, or fewer where memory does not do)"},
    {"max-queue", 0, OPT_I64, F(max_queue), 0, "N", "0..100000", "64", "requests that may wait for a slot, each prompt of a list one; more get 429"},
    {"cors", 0, OPT_STR, F(cors), 0, "ORIGIN", NULL, NULL, "origin whose web pages may call, as https://chat.example, or '*' (default: none but its own)"},
    {"timeout", 0, OPT_F64, F(timeout), 0, "S", "1..86400", "60",
     "seconds that a client may take to send a request, to take a piece of an answer, or to be idle; and at most what "
     "is waited for requests at the end"},
    {"keep-alive", 0, OPT_F64, F(keep_alive), 0, "S", "0.05..3600", "2",
     "seconds of silence after which a stream gets a comment, while its prompt is read or it waits"},
    {"chat-template", 0, OPT_STR, F(chat_template), 0, "FILE|chatml", NULL, NULL, "the template (default: the model's own)"},
    {"log-text", 0, OPT_FLAG, F(log_text), 0, NULL, NULL, NULL, "prompts and answers appear in the log"},
    {0},
};

enum { SLOTS = 8 };

static void log_line(void *user, const char *line)
{
    (void)user;
    fprintf(stderr, "%s\n", line);
}

#ifdef HAVE_MICROHTTPD
static void rest(double seconds)
{
    struct timespec t = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
    nanosleep(&t, NULL); /* a signal ends it early */
}

/* Until the first signal; then until all requests are answered, the time is up, or a second signal comes. */
static void serve(struct server *s, double timeout)
{
    double end = 0;
    for (;;) {
        double pause = server_tick(s);
        if (terminations() > 0 && end == 0) {
            msg_info("ending: %zu requests run; a second signal ends them", server_n_running(s));
            server_drain(s);
            end = clock_now() + timeout;
        }
        if (end > 0 && (server_n_running(s) == 0 || terminations() > 1 || clock_now() > end))
            return;
        rest(end > 0 ? 0.02 : pause);
    }
}

static int run_server(struct forge_engine *e, const struct serve_args *a, const struct common *c)
{
    struct server *s;
    struct err err = {0};
    const char *key = a->api_key ? a->api_key : getenv("FORGE_API_KEY");
    struct serve_params p = {
        .host = a->host,
        .port = (int)a->port,
        .api_key = key && *key ? key : NULL,
        .cors = a->cors,
        .max_queue = (int)a->max_queue,
        .timeout = a->timeout,
        .keep_alive = a->keep_alive,
        .log_text = a->log_text,
        .log = c->quiet ? NULL : log_line,
    };
    terminate_catch();
    if (server_open(&s, e, &p, &err) < 0)
        return msg_fail(err.code, err.msg);
    if (!server_is_local(s) && !p.api_key)
        msg_warn("other machines can reach this server, and no --api-key is asked for");
    out_printf("listening at %s\n", server_url(s));
    out_flush();
    serve(s, a->timeout);
    server_close(s);
    return EXIT_OK;
}
#else
static int run_server(struct forge_engine *e, const struct serve_args *a, const struct common *c)
{
    (void)e, (void)a, (void)c, (void)log_line;
    return EXIT_FAILED;
}
#define HAVE_MICROHTTPD 0
#endif

static bool is_header(const char *s)
{
    size_t n = 0;
    while (s[n] > ' ' && s[n] < 0x7f)
        n++;
    return n > 0 && s[n] == '\0';
}

static int run(void *args, const struct common *c)
{
    const struct serve_args *a = args;
    struct common with_slots = *c;
    struct forge_engine *e;
    if (!HAVE_MICROHTTPD) {
        msg_error("this forge was built without its HTTP server (libmicrohttpd)");
        return EXIT_FAILED;
    }
    if (a->api_key && !*a->api_key)
        return msg_usage("serve", "--api-key: the key is empty");
    if (a->cors && !is_header(a->cors))
        return msg_usage("serve", "--cors: this cannot be the value of a header: it is empty, or has a blank, a control character or one beyond ASCII");
    if (a->has_slots) {
        with_slots.max_seqs = a->slots;
        with_slots.has_max_seqs = true;
    }
    with_slots.chat_template = a->chat_template;
    interrupt_catch();
    int status = common_engine_open(&e, &with_slots, SLOTS);
    if (status)
        return status;
    msg_verbose("device: %s (%s)", forge_engine_info(e)->device, forge_engine_info(e)->device_reason);
    status = run_server(e, a, c);
    status = common_profile(c, e, status);
    forge_engine_close(e);
    return status;
}

const struct cmd cmd_serve = {
    .name = "serve",
    .summary = "Answer HTTP requests in the OpenAI protocol, with a page to talk to",
    .usage = "[--host HOST] [--port N] [--api-key KEY] [--slots N] [--max-queue N] [--cors ORIGIN] [--timeout S] [--keep-alive S] [flags]",
    .notes = "Any name in a request's 'model' is answered by the one model that is here.\n"
             "SIGTERM or ^C: what runs is answered first, new requests get 503; a second one ends at once.",
    .opts = opts,
    .args_size = sizeof(struct serve_args),
    .shared = {common_model_opts, common_device_opts},
    .run = run,
};
