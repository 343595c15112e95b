/* Private to the server: a request on its way through, and what the files ask of
 * each other.
 *
 *   http.c      libmicrohttpd: connections, bodies in, responses out
 *   http_check.c  requests that can be read in two ways
 *   server.c    opening, draining, closing; clients that left or are slow
 *   route.c     which handler answers which path; methods, limits
 *   access.c    who may call: keys, pages of other sites
 *   fields.c    members of a JSON body into a struct, by a table; node.c: values as they are spelled
 *   params.c    the fields of a completion
 *   gen.c       requests of the engine for an exchange, and its callbacks
 *   chat.c      the fields of a chat; chat_render.c: its prompt
 *   sse.c       events of a stream
 *   answer.c    the whole response at once
 *   logprobs.c  log-probabilities as the protocol spells them
 *   reply.c     JSON replies and error objects
 *   info.c      models, health, props; metrics.c: /metrics; text.c: tokens
 *   log.c       one line for each request
 *
 * Threads: libmicrohttpd's run handlers, the engine's runs callbacks, the
 * program's ticks.  `lock` of an exchange guards what callbacks and others share;
 * the server's lock is taken before it, never after.  Neither is held around
 * forge_request_free. */
#ifndef FORGE_SERVE_SERVER_H
#define FORGE_SERVE_SERVER_H

#include <microhttpd.h>
#include <stdatomic.h>
#include <stdint.h>
#include <time.h>

#include "base/buf.h"
#include "base/json.h"
#include "base/thread.h"
#include "serve/node.h"
#include "serve/serve.h"

#define CONNECTIONS_MAX 1000u
#define BODY_MAX ((size_t)16 << 20) /* bytes of a request's body */
#define VALUES_MAX ((size_t)1 << 20) /* of JSON in it, names of members counted, too: 80 bytes each while they are read */
#define URL_MAX 320

struct exchange;
struct gen;

/* ---- counts for /metrics and /health ---- */
enum { N_BUCKETS = 12 };
struct histogram {
    uint64_t count[N_BUCKETS + 1]; /* not cumulative; the last is beyond all bounds */
    double sum;
};
struct counts {
    uint64_t by_class[6];              /* responses by status / 100 */
    uint64_t prompt_tokens, cached_tokens, new_tokens, drafted, accepted;
    uint64_t cancelled, failed, refused; /* left by the client; by an error; 429 and 503 */
    struct histogram ttft, tpot, e2e;  /* seconds */
};

/* A connection, of which a client may make too much or too little use. */
struct peer {
    struct peer *next, *prev;
    int fd;
    bool busy;      /* a request is being answered */
    bool asked;     /* the head of a request came */
    double t_since; /* it has been waiting for a request, or for its body */
};

struct server {
    struct forge_engine *e;
    struct serve_params p;
    char *api_key, *cors, *host;
    char url[URL_MAX], model_id[128];
    bool local;
    struct MHD_Daemon *daemon;
    int listen_fd;
    bool engine_started;
    time_t t_created;
    double t_start;
    int slots;
    double head_wait;  /* seconds that a new connection may take to send its first request's head */
    size_t unread_max; /* bytes of a stream that its client may leave untaken */
    size_t bodies_max; /* bytes of all bodies that are read at a time */
    atomic_size_t n_body_bytes;
    atomic_bool draining, device_failed;
    atomic_size_t n_requests; /* places taken: of requests of the engine that run, wait, or are about to be submitted */
    struct mutex *lock;       /* guards what follows */
    struct exchange *first;
    size_t n_exchanges;
    struct peer *peers;
    size_t n_peers;
    struct mutex *counts_lock; /* of counts; taken last */
    struct counts counts;
};

/* ---- a request and its response ---- */
struct reply {
    int status;           /* 0 = there is none yet */
    const char *type;     /* Content-Type */
    struct buf body;
    const char *fixed;    /* instead of body: bytes that live on, fixed_len of them */
    size_t fixed_len;
    const char *allow;    /* of 405 */
    int retry_after;      /* seconds, 0 = not said */
    bool close;
    bool is_page;
};

struct route;

enum exchange_state { EX_READING, EX_GENERATING, EX_ANSWERED };

struct exchange {
    struct server *s;
    struct exchange *next, *prev;
    struct MHD_Connection *conn;
    struct peer *peer;
    const struct route *route; /* NULL = there is no such path */
    char method[12];
    const char *rest;          /* of the path, behind a route that is a prefix; owned */
    struct buf body;
    bool drop;                 /* the body is not wanted */
    bool too_large, no_room;   /* for it: refused */
    enum exchange_state state;
    double t_start;
    struct reply reply;
    struct gen *gen;           /* NULL = nothing is generated */
    /* under lock, while something is generated */
    struct mutex *lock;
    bool watched;              /* all is submitted: others than its handler may look at gen */
    bool suspended, done, gone; /* done: all is in `out`, or can be read; gone: the client left */
    struct buf out;            /* of a stream: not sent yet from out_pos on */
    size_t out_pos;
    double t_sent;
};

struct route {
    const char *path;
    const char *methods;       /* "GET", "POST" */
    bool is_prefix, is_open;   /* open: without a key */
    void (*handle)(struct exchange *x);
};

/* ---- route.c ---- */
/* Finds the route of a path, and refuses what can be refused before the body came. */
void route_begin(struct exchange *x, const char *path);
/* All has come: a reply, or something to be generated. */
void route_handle(struct exchange *x);

struct api_error;

/* ---- access.c ---- */
bool access_check(const struct exchange *x, struct api_error *e);
/* As long for every key of a length: how much of it is right cannot be told from the time. */
bool access_same_key(const char *given, const char *key);

/* ---- reply.c ---- */
struct api_error {
    int status;
    const char *code;   /* NULL = null */
    char param[64];     /* the field; empty = null */
    char message[400];
};
/* Returns false, so that checks can end with it. */
bool api_fail(struct api_error *e, int status, const char *param, const char *fmt, ...) ATTR_PRINTF(4, 5);
bool api_no_memory(struct api_error *e);
/* What failed in the engine, without its words where those may tell of files. */
bool api_fail_engine(struct api_error *e, const char *param, const struct forge_error *err);
void reply_error(struct exchange *x, const struct api_error *e);
void reply_fail(struct exchange *x, int status, const char *param, const char *fmt, ...) ATTR_PRINTF(4, 5);
/* The error object, without a newline. */
void error_json(struct buf *out, const struct api_error *e);
/* x->reply.body is what it says. */
void reply_json(struct exchange *x, int status);
void put_str(struct buf *out, const char *key, const char *value); /* "key":"value", */
void put_int(struct buf *out, const char *key, int64_t value);
void put_num(struct buf *out, const char *key, double value);
void put_bool(struct buf *out, const char *key, bool value);
void put_end(struct buf *out, const char *close); /* takes a comma off */

/* ---- fields.c ---- */
enum field_type { FIELD_NUM, FIELD_INT, FIELD_BOOL };
struct field {
    const char *name;
    enum field_type type; /* double, int64_t, bool */
    double min, max;
    size_t off;
};
/* Members that are missing or null leave what is there; others must fit.  A row with name NULL ends the table. */
bool fields_read(const struct field *table, const cJSON *obj, void *out, struct api_error *e);
/* The body as an object, freed with cJSON_Delete; NULL with an error. */
cJSON *fields_body(struct exchange *x, struct api_error *e);
/* It, and how it is spelled. */
struct node body_node(const struct exchange *x, const cJSON *body);
/* A list of ids; false with an error that names `name`. */
bool fields_ids(const cJSON *list, const char *name, int32_t **ids, size_t *n, struct api_error *e);

/* ---- params.c ---- */
struct prompt {
    char *text; /* or */
    size_t len;
    int32_t *ids;
    size_t n_ids;
};

struct api {
    bool chat;
    double temperature, top_p, min_p, presence_penalty, frequency_penalty, repetition_penalty;
    int64_t top_k, max_tokens, max_completion_tokens, n, seed, top_logprobs, n_logprobs; /* -1 = not given */
    bool stream, include_usage, return_progress, ignore_eos, echo, logprobs;
    bool has_seed;
    struct forge_logit_bias *bias;
    size_t n_bias;
    char **stops;
    size_t n_stops;
    struct prompt *prompts;
    size_t n_prompts;
    /* of a chat */
    bool tools, only_call;    /* calls may come; nothing else may */
    char *json_schema;        /* NULL = any text */
    const char *schema_field; /* which field it came from */
};
bool api_read(struct api *a, struct server *s, struct node body, bool chat, struct api_error *e);
void api_fini(struct api *a);
/* A chat's messages and what goes with them, and its one prompt. */
bool chat_read(struct api *a, struct server *s, struct node body, struct api_error *e);
struct chat_text {
    struct buf messages, tools, variables; /* JSON; tools may be empty */
};
bool chat_render(struct server *s, const struct chat_text *c, struct api *a, struct api_error *e);
/* Borrows from a. */
void api_request(const struct api *a, size_t prompt, struct forge_request_params *p);

/* ---- gen.c ---- */
/* One of n continuations of a prompt: a choice of the response. */
struct choice {
    size_t index;
    struct forge_chat_parser *parser; /* of a streaming chat, else NULL */
    size_t n_calls;    /* in events so far */
    size_t n_told;     /* ids in events so far */
    size_t n_chars;    /* of these ids, for offsets */
    bool begun, ended;
    enum forge_finish finish;
};
struct turn { /* a prompt */
    struct exchange *x;
    size_t index;
    struct forge_request *r;
    struct choice *choices; /* [api.n] */
    size_t n_ended;
    size_t n_echo;          /* bytes of the prompt before the text */
    double t_progress;
};
struct gen {
    struct api api;
    char id[48];
    time_t created;
    struct turn *turns; /* [api.n_prompts] */
    size_t n_left;      /* turns that have not ended */
    size_t n_places;    /* of the server's n_requests */
    struct forge_error error; /* of the first that failed */
    double t_submit;
};
/* Submits what the body asks for: x->gen, or a reply that says why not. */
void gen_start(struct exchange *x, bool chat);
void gen_free(struct exchange *x);
void gen_cancel(struct exchange *x); /* under x->lock */
/* Of its choices the end that says most: an error, that it was cancelled, what the first one came to. */
enum forge_finish turn_finish(const struct turn *t);
const char *finish_reason(enum forge_finish f, size_t n_calls);
struct usage {
    uint64_t prompt, completion, cached;
};
struct usage gen_usage(const struct gen *g);
void usage_json(struct buf *out, const struct gen *g); /* "usage":{...} */
void metrics_json(struct buf *out, const struct gen *g); /* "metrics":{...} */

/* ---- sse.c: all under x->lock, into x->out ---- */
void sse_piece(struct exchange *x, struct turn *t, const struct forge_piece *p);
void sse_progress(struct exchange *x, struct turn *t, size_t done, size_t total);
void sse_end(struct exchange *x);
void sse_alive(struct exchange *x);

/* ---- answer.c ---- */
/* A parser for one answer of a chat; NULL = no memory. */
struct forge_chat_parser *answer_parser(const struct api *a);
/* A list of calls; first: how many came before them. */
void calls_json(struct buf *out, const struct forge_answer_parts *p, size_t first);
void answer(struct exchange *x); /* the reply, when all have ended */

/* ---- logprobs.c ---- */
/* "logprobs":{...} of ids first..first+n of a choice, in the words of the chat or of the older protocol, where *offset is
 * how many characters the ids before them have, and then those with them. */
void logprobs_json(struct buf *out, const struct exchange *x, const struct turn *t, size_t choice, size_t first, size_t n,
                   size_t *offset);

/* ---- http.c ---- */
int http_start(struct server *s, struct err *err);
void http_resume(struct exchange *x); /* under x->lock */
/* Whether a request's head says one thing only; else there is a reply. */
bool http_check(struct exchange *x, const char *path);
/* For libmicrohttpd: %41 to A; a text with %00 is empty then. */
size_t http_unescape(void *cls, struct MHD_Connection *conn, char *s);
bool http_left(const struct exchange *x); /* under x->lock: its client has gone */

/* ---- info.c, metrics.c, text.c, log.c ---- */
void handle_page(struct exchange *x);
void handle_openapi(struct exchange *x);
void handle_models(struct exchange *x);
void handle_model(struct exchange *x);
void handle_health(struct exchange *x);
void handle_props(struct exchange *x);
void handle_metrics(struct exchange *x);
void handle_tokenize(struct exchange *x);
void handle_detokenize(struct exchange *x);
void handle_apply_template(struct exchange *x);
/* The first `size` bytes that an id stands for: how many.  `out` fails where memory is short. */
size_t bytes_of_token(const struct exchange *x, struct buf *out, int32_t id, char *bytes, size_t size);
void handle_completions(struct exchange *x);
void handle_chat(struct exchange *x);
void counts_answered(struct exchange *x);          /* a response is through */
void counts_ended(struct server *s, const struct turn *t); /* a request of the engine has ended */
void log_exchange(struct exchange *x);

/* ---- made at build time from data/ ---- */
extern const char serve_page[], serve_openapi[];
extern const size_t serve_page_len, serve_openapi_len;

#endif
