/* The HTTP server over one engine: what a program does to run it.
 *
 * It speaks the OpenAI protocol (chat, completions, models) with some routes of
 * its own, and a page to talk to.  The program owns the engine, its flags and
 * its signals; the server starts the engine's own thread and stops it again. */
#ifndef FORGE_SERVE_SERVE_H
#define FORGE_SERVE_SERVE_H

#include <stdbool.h>

#include <forge.h>

#include "base/err.h"

struct serve_params {
    const char *host;    /* name or address to listen at */
    int port;            /* 0 = any that is free */
    const char *api_key; /* NULL = none is asked for */
    const char *cors;    /* origin that browsers may call from, "*" = any; NULL = none */
    int max_queue;       /* requests that may wait beyond those that run; each prompt of a list is one */
    double timeout;      /* seconds that a client may take to send a request, to take a piece of the answer, or be idle */
    double keep_alive;   /* seconds without a word after which a stream gets a comment, so that nobody on its way gives up */
    bool log_text;       /* prompts and answers appear in the log */
    /* One line of JSON for each request, without a newline; called by several threads.  NULL = no log. */
    void (*log)(void *user, const char *line);
    void *user;
};

struct server;

int server_open(struct server **out, struct forge_engine *e, const struct serve_params *p, struct err *err);
const char *server_url(const struct server *s); /* "http://127.0.0.1:8001" */
bool server_is_local(const struct server *s);   /* only this machine reaches it */
/* Looks after clients that left, are slow or wait: to be called again after so many seconds, by one thread. */
double server_tick(struct server *s);
/* 503 for new requests, also of /health; those that run go on. */
void server_drain(struct server *s);
size_t server_n_running(struct server *s); /* requests not answered yet */
/* Ends what still runs, closes every connection, and stops the engine's thread.  NULL is safe. */
void server_close(struct server *s);

#endif
