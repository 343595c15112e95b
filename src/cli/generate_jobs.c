/* Jobs of generate: one from flags, or many from lines of JSON whose keys are
 * the flags' names, so that the flags' own table checks their values.
 * Knows no engine: it fills request parameters and owns what they borrow. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json_raw.h"
#include "base/map.h"
#include "base/mem.h"
#include "cli/generate.h"
#include "cli/num.h"
#include "cli/out.h"

static const struct {
    const char *key, *flag;
} value_keys[] = {
    {"max_tokens", "max-tokens"},
    {"temp", "temp"},
    {"top_k", "top-k"},
    {"top_p", "top-p"},
    {"min_p", "min-p"},
    {"typical", "typical"},
    {"typical_p", "typical"},
    {"repeat_penalty", "repeat-penalty"},
    {"presence_penalty", "presence-penalty"},
    {"frequency_penalty", "frequency-penalty"},
    {"seed", "seed"},
};

static const struct {
    const char *key;
    size_t off;
} bool_keys[] = {
    {"ignore_eos", offsetof(struct generate_args, ignore_eos)},
    {"echo", offsetof(struct generate_args, echo)},
    {"no_bos", offsetof(struct generate_args, prompt.no_bos)},
    {"parse_special", offsetof(struct generate_args, prompt.parse_special)},
};

void job_free(struct job *j)
{
    forge_request_free(j->request);
    prompt_free(&j->prompt);
    free(j->messages);
    rules_free(&j->rules);
    if (j->own_stops)
        free(j->args.stops.v);
    if (j->own_bias)
        free(j->args.sampling.bias.v);
    free(j->bias);
    cJSON_Delete(j->line);
}

void jobs_free(struct job *jobs, size_t n)
{
    for (size_t i = 0; i < n; i++)
        job_free(&jobs[i]);
    free(jobs);
}

const struct rules *job_rules(const struct job *j)
{
    return j->rules.grammar || j->rules.json_schema || !j->flag_rules ? &j->rules : j->flag_rules;
}

bool job_params(struct job *j, struct forge_request_params *p)
{
    const struct generate_args *a = &j->args;
    free(j->bias);
    j->bias = mem_array(a->sampling.bias.n, sizeof *j->bias);
    if (!j->bias)
        return false;
    const struct rules *rules = job_rules(j);
    forge_request_params_init(p, sizeof *p);
    p->grammar = rules->grammar;
    p->json_schema = rules->json_schema;
    p->text = j->prompt.text;
    p->text_len = j->prompt.text_len;
    p->ids = j->prompt.ids;
    p->n_ids = j->prompt.n_ids;
    p->messages = j->messages;
    p->messages_len = j->messages_len;
    p->chat_flags = JOB_CHAT_FLAGS;
    p->text_flags = prompt_text_flags(&a->prompt);
    sampling_to_forge(&a->sampling, j->bias, &p->sampling);
    p->stops = a->stops.v;
    p->n_stops = a->stops.n;
    p->max_tokens = a->max_tokens;
    p->ignore_eos = a->ignore_eos;
    p->session_save = a->session_save;
    p->session_load = a->session_load;
    p->draft_n = a->has_draft_n ? (int)a->draft_n : -1;
    p->draft_accept = a->draft_accept ? FORGE_DRAFT_RATIO : FORGE_DRAFT_SAME;
    p->n_samples = j->n_samples > 0 ? j->n_samples : 1;
    return true;
}

/* ---- from JSON ---- */

static bool put_text(struct job *j, const char *flag, const char *text, char *why, size_t size)
{
    struct opt_group group = {"", generate_opts, &j->args};
    return opts_set(&group, flag, text, why, size);
}

/* A number of JSON whose exponent or fraction makes it whole, "1e3" or "2.0", in plain digits: as flags of whole
 * numbers read it.  Any other stays as it is. */
static void spell_whole(char out[128], const char *raw, size_t len)
{
    char digits[64];
    size_t n = 0, point = 0, at = raw[0] == '-';
    bool fraction = false;
    snprintf(out, 128, "%.*s", (int)len, raw);
    for (; at < len && (raw[at] | 32) != 'e' && n < sizeof digits; at++)
        if (raw[at] == '.')
            fraction = true;
        else {
            digits[n++] = raw[at];
            point += !fraction;
        }
    long shift = at < len ? strtol(out + at + 1, NULL, 10) : 0;
    if ((!fraction && at == len) || shift < -60 || shift > 60 || (long)point + shift <= 0)
        return;
    size_t whole = (size_t)((long)point + shift), skip = raw[0] == '-';
    for (size_t i = whole; i < n; i++)
        if (digits[i] != '0')
            return;
    for (size_t i = 0; i < whole; i++)
        out[skip + i] = i < n ? digits[i] : '0';
    out[skip + whole] = '\0';
}

/* A string or a number as the command line would spell it; `raw` is the number's own text, which a double would
 * not keep. */
static bool put_value(struct job *j, const char *flag, const cJSON *v, const char *raw, size_t raw_len, char *why,
                      size_t size)
{
    char text[128];
    if (cJSON_IsString(v))
        return put_text(j, flag, v->valuestring, why, size);
    if (!cJSON_IsNumber(v)) {
        snprintf(why, size, "this is neither a number nor a string");
        return false;
    }
    spell_whole(text, raw, raw_len);
    return put_text(j, flag, text, why, size);
}

static bool put_stop_text(struct job *j, const cJSON *v, char *why, size_t size)
{
    struct buf b;
    buf_init(&b);
    bool nul = json_str(v, &b) && b.len && memchr(buf_str(&b), 0, b.len);
    buf_fini(&b);
    if (nul)
        snprintf(why, size, "a text to stop at cannot hold a NUL character");
    else if (!cJSON_IsString(v) || !*v->valuestring)
        snprintf(why, size, "this is no list of texts that are not empty");
    else
        return put_text(j, "stop", v->valuestring, why, size);
    return false;
}

static bool put_stop(struct job *j, const cJSON *v, char *why, size_t size)
{
    if (j->own_stops)
        free(j->args.stops.v);
    j->args.stops = (struct str_list){0};
    j->own_stops = true;
    if (!cJSON_IsArray(v))
        return put_stop_text(j, v, why, size);
    for (const cJSON *s = v->child; s; s = s->next)
        if (!put_stop_text(j, s, why, size))
            return false;
    return true;
}

static bool put_bias(struct job *j, const cJSON *v, char *why, size_t size)
{
    char text[96];
    if (j->own_bias)
        free(j->args.sampling.bias.v);
    j->args.sampling.bias = (struct bias_list){0};
    j->own_bias = true;
    if (!cJSON_IsObject(v)) {
        snprintf(why, size, "this is no object of token ids and numbers");
        return false;
    }
    for (const cJSON *s = v->child; s; s = s->next) {
        if (!cJSON_IsNumber(s)) {
            snprintf(why, size, "this is no object of token ids and numbers");
            return false;
        }
        snprintf(text, sizeof text, "%.40s=%.17g", s->string, s->valuedouble);
        if (!put_text(j, "logit-bias", text, why, size))
            return false;
    }
    return true;
}

static bool put_ids(struct job *j, const cJSON *v, char *why, size_t size)
{
    size_t n = 0;
    free(j->prompt.ids); /* of the same key before */
    j->prompt.n_ids = 0;
    if (cJSON_IsArray(v))
        for (const cJSON *s = v->child; s; s = s->next)
            n++;
    j->prompt.ids = mem_array(n, sizeof *j->prompt.ids);
    for (const cJSON *s = cJSON_IsArray(v) && j->prompt.ids ? v->child : NULL; s; s = s->next) {
        if (!cJSON_IsNumber(s) || !num_id(s->valuedouble, &j->prompt.ids[j->prompt.n_ids]))
            break;
        j->prompt.n_ids++;
    }
    if (cJSON_IsArray(v) && j->prompt.ids && j->prompt.n_ids == n)
        return true;
    snprintf(why, size, "this is no list of token ids");
    return false;
}

static bool put_prompt(struct job *j, const cJSON *v, char *why, size_t size)
{
    struct buf b;
    if (cJSON_IsArray(v))
        return put_ids(j, v, why, size);
    free(j->prompt.text); /* of the same key before */
    j->prompt.text = NULL;
    buf_init(&b);
    if (!json_str(v, &b) || b.failed || !(j->prompt.text = mem_strndup(buf_str(&b), b.len))) {
        buf_fini(&b);
        snprintf(why, size, "this is no text");
        return false;
    }
    j->prompt.text_len = b.len;
    buf_fini(&b);
    return true;
}

/* A conversation, as the library takes it. */
static bool put_messages(struct job *j, const cJSON *v, const char *raw, size_t raw_len, char *why, size_t size)
{
    free(j->messages); /* of the same key before */
    j->messages = cJSON_IsArray(v) || cJSON_IsObject(v) ? mem_strndup(raw, raw_len) : NULL;
    j->messages_len = raw_len;
    snprintf(why, size, "this is neither a list of messages nor an object with one");
    return j->messages != NULL;
}

static bool put_samples(struct job *j, const cJSON *v, const char *raw, size_t raw_len, char *why, size_t size)
{
    char text[128];
    int64_t n;
    spell_whole(text, raw, raw_len);
    if (cJSON_IsNumber(v) && num_i64(text, &n) && n >= 1 && n <= JOB_SAMPLES_MAX) {
        j->n_samples = (int)n;
        return true;
    }
    snprintf(why, size, "the number of samples must be a whole number from 1 to %d", JOB_SAMPLES_MAX);
    return false;
}

static bool put_member(struct job *j, const cJSON *v, const char *raw, size_t raw_len, char *why, size_t size)
{
    const char *key = v->string;
    for (size_t i = 0; i < sizeof value_keys / sizeof *value_keys; i++)
        if (strcmp(key, value_keys[i].key) == 0)
            return put_value(j, value_keys[i].flag, v, raw, raw_len, why, size);
    for (size_t i = 0; i < sizeof bool_keys / sizeof *bool_keys; i++)
        if (strcmp(key, bool_keys[i].key) == 0) {
            *(bool *)((char *)&j->args + bool_keys[i].off) = cJSON_IsTrue(v);
            snprintf(why, size, "this is neither true nor false");
            return cJSON_IsBool(v);
        }
    if (strcmp(key, "n") == 0)
        return put_samples(j, v, raw, raw_len, why, size);
    if (strcmp(key, "prompt") == 0)
        return put_prompt(j, v, why, size);
    if (strcmp(key, "ids") == 0)
        return put_ids(j, v, why, size);
    if (strcmp(key, "messages") == 0)
        return put_messages(j, v, raw, raw_len, why, size);
    if (strcmp(key, "stop") == 0)
        return put_stop(j, v, why, size);
    if (strcmp(key, "logit_bias") == 0)
        return put_bias(j, v, why, size);
    if (strcmp(key, "grammar") == 0 || strcmp(key, "json_schema") == 0)
        return rules_put(&j->rules, v, raw, raw_len, why, size);
    snprintf(why, size, "this key is not known");
    return false;
}

static int read_job(struct job *j, const struct generate_args *base, const char *text, size_t len)
{
    struct err err = {0};
    char why[256];
    struct raw raw = {"", 0};
    size_t at = 0;
    j->args = *base;
    if (json_parse(&j->line, text, len, j->where, &err))
        return err.code == ERR_NOMEM ? msg_fail(err.code, err.msg) : msg_usage("generate", "%s", err.msg);
    if (!cJSON_IsObject(j->line))
        return msg_usage("generate", "%s: this is no JSON object", j->where);
    for (const cJSON *v = j->line->child; v; v = v->next) {
        raw_next_member((struct raw){text, len}, &at, &raw); /* in step: cJSON keeps the order and what comes twice */
        if (!cJSON_IsNull(v) && !put_member(j, v, raw.s, raw.len, why, sizeof why))
            return msg_usage("generate", "%s: %s: %s", j->where, v->string, why);
    }
    if ((j->prompt.text != NULL) + (j->prompt.ids != NULL) + (j->messages != NULL) != 1)
        return msg_usage("generate", "%s: give either prompt, ids or messages", j->where);
    if (!base->model_defaults && !sampling_check(&j->args.sampling, why, sizeof why))
        return msg_usage("generate", "%s: %s", j->where, why);
    return 0;
}

int jobs_read(struct job **jobs, size_t *n, const struct generate_args *base, const struct rules *rules)
{
    struct err err = {0};
    char *text;
    size_t len, cap = 0, line = 0;
    const char *file = base->prompt.file;
    int rc = map_read_all(file, PROMPT_FILE_MAX, &text, &len, &err);
    if (rc < 0)
        return msg_fail(rc, err.msg);
    for (size_t at = 0; rc == 0 && at < len;) {
        const char *nl = memchr(text + at, '\n', len - at);
        size_t end = nl ? (size_t)(nl - text) : len;
        line++;
        if (strspn(text + at, " \t\r") < end - at) {
            struct job *grown = mem_grow(*jobs, &cap, *n + 1, sizeof **jobs);
            if (!grown) {
                rc = msg_fail(ERR_NOMEM, "out of memory");
                break;
            }
            *jobs = grown;
            grown[*n] = (struct job){0};
            struct job *j = &grown[(*n)++];
            j->flag_rules = rules;
            snprintf(j->where, sizeof j->where, "%.200s:%zu", strcmp(file, "-") ? file : "standard input", line);
            rc = read_job(j, base, text + at, end - at);
        }
        at = end + 1;
    }
    free(text);
    if (rc == 0 && *n == 0)
        return msg_usage("generate", "%s: no prompt in it", file);
    return rc;
}
