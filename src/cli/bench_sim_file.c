/* The file of bench --simulate: a JSON object a line, which is a request that was
 * recorded ("at"), a number of made-up ones ("synthetic"), what a device costs
 * ("device") or a policy to try ("policy").
 * Owns the names and ranges of their keys, and the draws that make requests up. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/json.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/rng.h"
#include "cli/bench_sim.h"

enum { FILE_MAX = 1 << 28, REQUESTS_MAX = 1000000, TOKENS_MAX = 1 << 20 };

/* ---- keys of one kind of line ---- */

enum key_type { KEY_I64, KEY_F64, KEY_BOOL, KEY_NAME, KEY_RANGE };

struct key {
    const char *name;
    enum key_type type;
    size_t off;
    double min, max;
};

struct range {
    int64_t lo, hi;
};

/* A number, or [lo, hi]. */
static int read_range(const cJSON *v, const struct key *k, struct range *out, const char *where, struct err *err)
{
    const cJSON *lo = cJSON_IsArray(v) ? cJSON_GetArrayItem(v, 0) : v, *hi = cJSON_IsArray(v) ? cJSON_GetArrayItem(v, 1) : v;
    if ((cJSON_IsArray(v) && cJSON_GetArraySize(v) != 2) || !cJSON_IsNumber(lo) || !cJSON_IsNumber(hi) ||
        !(lo->valuedouble >= k->min && lo->valuedouble <= hi->valuedouble && hi->valuedouble <= k->max))
        return err_set(err, ERR_FORMAT, "%s: %s is neither a number nor [least, most] within %.0f..%.0f", where, k->name, k->min, k->max);
    *out = (struct range){(int64_t)lo->valuedouble, (int64_t)hi->valuedouble};
    return 0;
}

static int read_name(const cJSON *v, const struct key *k, char *out, const char *where, struct err *err)
{
    const char *s = cJSON_IsString(v) ? v->valuestring : NULL;
    if (!s || !*s || strlen(s) > (size_t)k->max)
        return err_set(err, ERR_FORMAT, "%s: %s is no text of 1 to %d bytes", where, k->name, (int)k->max);
    memcpy(out, s, strlen(s) + 1);
    return 0;
}

static int read_key(const cJSON *line, const cJSON *v, const struct key *k, void *out, const char *where, struct err *err)
{
    void *to = (char *)out + k->off;
    double *d = to;
    switch (k->type) {
    case KEY_I64: return json_get_i64(line, k->name, (int64_t)k->min, (int64_t)k->max, to, where, err);
    case KEY_BOOL: return json_get_bool(line, k->name, to, where, err);
    case KEY_NAME: return read_name(v, k, to, where, err);
    case KEY_RANGE: return read_range(v, k, to, where, err);
    case KEY_F64: break;
    }
    int rc = json_get_f64(line, k->name, d, where, err);
    if (rc == 0 && !(*d >= k->min && *d <= k->max))
        rc = err_set(err, ERR_FORMAT, "%s: %s is %g, outside %g..%g", where, k->name, *d, k->min, k->max);
    return rc;
}

/* All members of a line by its keys; what is no key is refused. */
static int read_keys(const cJSON *line, const struct key *keys, void *out, const char *where, struct err *err)
{
    int rc = 0;
    for (const cJSON *v = line->child; v && rc == 0; v = v->next) {
        const struct key *k = keys;
        while (k->name && strcmp(k->name, v->string) != 0)
            k++;
        if (!k->name)
            return err_set(err, ERR_FORMAT, "%s: the key \"%.40s\" is not known there", where, v->string);
        rc = read_key(line, v, k, out, where, err);
    }
    return rc;
}

/* ---- requests ---- */

static int add_request(struct sim_file *f, size_t *cap, const struct sim_request *r, struct err *err)
{
    struct sim_request *grown = f->n_requests < REQUESTS_MAX ? mem_grow(f->requests, cap, f->n_requests + 1, sizeof *grown) : NULL;
    if (!grown)
        return err_set(err, ERR_LIMIT, "%zu requests are more than this can do", f->n_requests + 1);
    f->requests = grown;
    grown[f->n_requests] = *r;
    grown[f->n_requests].number = f->n_requests;
    f->n_requests++;
    return 0;
}

struct recorded {
    struct sim_request r;
    char prefix[64];
};

static const struct key recorded_keys[] = {
    {"at", KEY_F64, offsetof(struct recorded, r.at), 0, 1e9},
    {"prompt", KEY_I64, offsetof(struct recorded, r.prompt), 1, TOKENS_MAX},
    {"output", KEY_I64, offsetof(struct recorded, r.output), 1, TOKENS_MAX},
    {"priority", KEY_I64, offsetof(struct recorded, r.priority), -1000, 1000},
    {"n", KEY_I64, offsetof(struct recorded, r.n), 1, 1024},
    {"deadline", KEY_F64, offsetof(struct recorded, r.deadline), 0, 1e9},
    {"prefix", KEY_NAME, offsetof(struct recorded, prefix), 1, 63},
    {"prefix_tokens", KEY_I64, offsetof(struct recorded, r.prefix_tokens), 0, TOKENS_MAX},
    {0},
};

static uint64_t prefix_of(const char *name)
{
    return name[0] ? hash_bytes(name, strlen(name), 1) | 1 : 0;
}

static int read_recorded(struct sim_file *f, size_t *cap, const cJSON *line, const char *where, struct err *err)
{
    struct recorded in = {.r = {.prompt = 0, .output = 0, .n = 1}};
    int rc = read_keys(line, recorded_keys, &in, where, err);
    if (rc == 0 && (in.r.prompt == 0 || in.r.output == 0))
        rc = err_set(err, ERR_FORMAT, "%s: a request has prompt and output", where);
    if (rc < 0)
        return rc;
    in.r.prefix = prefix_of(in.prefix);
    if (in.r.prefix_tokens > in.r.prompt)
        in.r.prefix_tokens = in.r.prompt;
    return add_request(f, cap, &in.r, err);
}

struct synthetic {
    int64_t n, seed, prefix_tokens;
    double rate, share, from, deadline;
    struct range prompt, output, priority, samples;
    char prefix[64];
};

static const struct key synthetic_keys[] = {
    {"synthetic", KEY_I64, offsetof(struct synthetic, n), 1, REQUESTS_MAX},
    {"seed", KEY_I64, offsetof(struct synthetic, seed), 0, 9e15},
    {"at", KEY_F64, offsetof(struct synthetic, from), 0, 1e9},
    {"rate", KEY_F64, offsetof(struct synthetic, rate), 0, 1e6},
    {"prompt", KEY_RANGE, offsetof(struct synthetic, prompt), 1, TOKENS_MAX},
    {"output", KEY_RANGE, offsetof(struct synthetic, output), 1, TOKENS_MAX},
    {"priority", KEY_RANGE, offsetof(struct synthetic, priority), -1000, 1000},
    {"n", KEY_RANGE, offsetof(struct synthetic, samples), 1, 1024},
    {"deadline", KEY_F64, offsetof(struct synthetic, deadline), 0, 1e9},
    {"prefix", KEY_NAME, offsetof(struct synthetic, prefix), 1, 63},
    {"prefix_tokens", KEY_I64, offsetof(struct synthetic, prefix_tokens), 0, TOKENS_MAX},
    {"share", KEY_F64, offsetof(struct synthetic, share), 0, 1},
    {0},
};

enum draw { DRAW_GAP, DRAW_PROMPT, DRAW_OUTPUT, DRAW_PRIORITY, DRAW_SAMPLES, DRAW_SHARE };

static int64_t in_range(const struct synthetic *s, struct range r, enum draw what, int64_t i)
{
    return r.lo + (int64_t)(rng_unit((uint64_t)s->seed, what, (uint64_t)i) * (double)(r.hi - r.lo + 1));
}

/* Lengths are even in their ranges, times between arrivals exponential; rate 0 = all at once. */
static int make_up(struct sim_file *f, size_t *cap, const struct synthetic *s, struct err *err)
{
    double at = s->from;
    int rc = 0;
    for (int64_t i = 0; i < s->n && rc == 0; i++) {
        bool shares = s->prefix[0] && rng_unit((uint64_t)s->seed, DRAW_SHARE, (uint64_t)i) < s->share;
        struct sim_request r = {
            .at = at,
            .deadline = s->deadline,
            .prompt = in_range(s, s->prompt, DRAW_PROMPT, i),
            .output = in_range(s, s->output, DRAW_OUTPUT, i),
            .priority = in_range(s, s->priority, DRAW_PRIORITY, i),
            .n = in_range(s, s->samples, DRAW_SAMPLES, i),
            .prefix = shares ? prefix_of(s->prefix) : 0,
            .prefix_tokens = shares ? s->prefix_tokens : 0,
        };
        r.prompt += r.prefix_tokens; /* its own text comes behind */
        rc = add_request(f, cap, &r, err);
        if (s->rate > 0)
            at -= log(1 - rng_unit((uint64_t)s->seed, DRAW_GAP, (uint64_t)i)) / s->rate;
    }
    return rc;
}

static int read_synthetic(struct sim_file *f, size_t *cap, const cJSON *line, const char *where, struct err *err)
{
    struct synthetic s = {.prompt = {0}, .samples = {1, 1}, .share = 1};
    int rc = read_keys(line, synthetic_keys, &s, where, err);
    if (rc == 0 && (s.prompt.lo == 0 || s.output.lo == 0))
        rc = err_set(err, ERR_FORMAT, "%s: made-up requests have prompt and output", where);
    return rc < 0 ? rc : make_up(f, cap, &s, err);
}

/* ---- the device, and policies ---- */

struct device {
    char name[128];
    double step_ms, read_ms, row_ms, position_us;
};

static const struct key device_keys[] = {
    {"device", KEY_NAME, offsetof(struct device, name), 1, 127},
    {"step_ms", KEY_F64, offsetof(struct device, step_ms), 0, 1e6},
    {"read_ms", KEY_F64, offsetof(struct device, read_ms), 0, 1e6},
    {"row_ms", KEY_F64, offsetof(struct device, row_ms), 0, 1e6},
    {"position_us", KEY_F64, offsetof(struct device, position_us), 0, 1e6},
    {0},
};

static int read_device(struct sim_file *f, const cJSON *line, const char *where, struct err *err)
{
    struct device d = {.name = ""};
    int rc = read_keys(line, device_keys, &d, where, err);
    if (rc == 0 && d.step_ms + d.read_ms + d.row_ms + d.position_us == 0)
        rc = err_set(err, ERR_FORMAT, "%s: a device costs step_ms, read_ms, row_ms or position_us", where);
    if (rc < 0)
        return rc;
    memcpy(f->device, d.name, sizeof f->device);
    f->cost = (struct sim_cost){d.step_ms / 1e3, d.read_ms / 1e3, d.row_ms / 1e3, d.position_us / 1e6};
    return 0;
}

static const struct key policy_keys[] = {
    {"policy", KEY_NAME, offsetof(struct sim_policy, name), 1, 63},
    {"slots", KEY_I64, offsetof(struct sim_policy, slots), 1, 4096},
    {"chunk", KEY_I64, offsetof(struct sim_policy, chunk), 1, 65536},
    {"page_size", KEY_I64, offsetof(struct sim_policy, page), 0, 256},
    {"ctx", KEY_I64, offsetof(struct sim_policy, ctx), 1, TOKENS_MAX},
    {"kv_positions", KEY_I64, offsetof(struct sim_policy, kv_positions), 0, 1e12},
    {"ahead", KEY_I64, offsetof(struct sim_policy, ahead), -1, TOKENS_MAX},
    {"prefix_cache", KEY_BOOL, offsetof(struct sim_policy, prefix_cache), 0, 0},
    {0},
};

static int add_policy(struct sim_file *f, size_t *cap, const struct sim_policy *p, struct err *err)
{
    struct sim_policy *grown = mem_grow(f->policies, cap, f->n_policies + 1, sizeof *grown);
    if (!grown)
        return err_set(err, ERR_NOMEM, "no memory for %zu policies", f->n_policies + 1);
    f->policies = grown;
    grown[f->n_policies++] = *p;
    return 0;
}

/* ---- the file ---- */

struct caps {
    size_t requests, policies;
};

static int read_line(struct sim_file *f, struct caps *caps, const cJSON *line, const struct sim_policy *usual, const char *where,
                     struct err *err)
{
    struct sim_policy p = *usual;
    if (!cJSON_IsObject(line))
        return err_set(err, ERR_FORMAT, "%s: this is no JSON object", where);
    if (json_get(line, "policy")) {
        int rc = read_keys(line, policy_keys, &p, where, err);
        return rc < 0 ? rc : add_policy(f, &caps->policies, &p, err);
    }
    if (json_get(line, "device"))
        return read_device(f, line, where, err);
    if (json_get(line, "synthetic"))
        return read_synthetic(f, &caps->requests, line, where, err);
    if (json_get(line, "at"))
        return read_recorded(f, &caps->requests, line, where, err);
    return err_set(err, ERR_FORMAT, "%s: none of at (a request), synthetic, device and policy is there", where);
}

static int by_time(const void *a, const void *b)
{
    const struct sim_request *x = a, *y = b;
    return x->at != y->at ? (x->at > y->at) - (x->at < y->at) : (x->number > y->number) - (x->number < y->number);
}

int sim_file_read(struct sim_file *f, const char *path, const struct sim_policy *usual, struct err *err)
{
    struct caps caps = {0};
    char *text, where[256];
    size_t len, line = 0;
    *f = (struct sim_file){0};
    int rc = map_read_all(path, FILE_MAX, &text, &len, err);
    if (rc < 0)
        return rc;
    for (size_t at = 0; rc == 0 && at < len;) {
        const char *nl = memchr(text + at, '\n', len - at);
        size_t end = nl ? (size_t)(nl - text) : len;
        cJSON *j = NULL;
        snprintf(where, sizeof where, "%.200s:%zu", path, ++line);
        if (strspn(text + at, " \t\r") < end - at && (rc = json_parse(&j, text + at, end - at, where, err)) == 0)
            rc = read_line(f, &caps, j, usual, where, err);
        cJSON_Delete(j);
        at = end + 1;
    }
    free(text);
    if (rc == 0 && (f->n_requests == 0 || f->device[0] == '\0'))
        rc = err_set(err, ERR_FORMAT, "%s: there is no %s in it", path, f->n_requests == 0 ? "request" : "device");
    if (rc == 0 && f->n_policies == 0)
        rc = add_policy(f, &caps.policies, usual, err);
    if (rc == 0)
        qsort(f->requests, f->n_requests, sizeof *f->requests, by_time);
    else
        sim_file_fini(f);
    return rc;
}

void sim_file_fini(struct sim_file *f)
{
    free(f->requests);
    free(f->policies);
    *f = (struct sim_file){0};
}
