/* The fields of a completion: JSON into what a request of the engine needs.  Ranges
 * are the protocol's; what it has no field for takes the model's own value, or
 * changes nothing. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "serve/server.h"

#define N_MAX 64
#define STOPS_MAX 16
#define PROMPTS_MAX 128
#define BIAS_MAX 1024
#define TOP_LOGPROBS_MAX 20
#define TOKENS_MAX 2147483647.0
#define ECHO_MAX ((size_t)2 << 20) /* bytes of prompts that an answer repeats */
#define EXACT_MAX 9007199254740991.0 /* 2^53 - 1: above it, a double no longer tells neighbours apart */

#define A(field) offsetof(struct api, field)

static const struct field common_fields[] = {
    {"temperature", FIELD_NUM, 0, 2, A(temperature)},
    {"top_p", FIELD_NUM, 0, 1, A(top_p)},
    {"top_k", FIELD_INT, -1, TOKENS_MAX, A(top_k)},
    {"min_p", FIELD_NUM, 0, 1, A(min_p)},
    {"presence_penalty", FIELD_NUM, -2, 2, A(presence_penalty)},
    {"frequency_penalty", FIELD_NUM, -2, 2, A(frequency_penalty)},
    {"repetition_penalty", FIELD_NUM, 0.01, 100, A(repetition_penalty)},
    {"n", FIELD_INT, 1, N_MAX, A(n)},
    {"seed", FIELD_INT, -EXACT_MAX, EXACT_MAX, A(seed)},
    {"stream", FIELD_BOOL, 0, 0, A(stream)},
    {"ignore_eos", FIELD_BOOL, 0, 0, A(ignore_eos)},
    {"return_progress", FIELD_BOOL, 0, 0, A(return_progress)},
    {0},
};
static const struct field chat_fields[] = {
    {"max_tokens", FIELD_INT, 1, TOKENS_MAX, A(max_tokens)},
    {"max_completion_tokens", FIELD_INT, 1, TOKENS_MAX, A(max_completion_tokens)},
    {"logprobs", FIELD_BOOL, 0, 0, A(logprobs)},
    {"top_logprobs", FIELD_INT, 0, TOP_LOGPROBS_MAX, A(top_logprobs)},
    {0},
};
static const struct field text_fields[] = {
    {"max_tokens", FIELD_INT, 0, TOKENS_MAX, A(max_tokens)},
    {"logprobs", FIELD_INT, 0, TOP_LOGPROBS_MAX, A(n_logprobs)},
    {"echo", FIELD_BOOL, 0, 0, A(echo)},
    {0},
};
static const struct field stream_fields[] = {
    {"include_usage", FIELD_BOOL, 0, 0, A(include_usage)},
    {0},
};

static double or_else(double own, double otherwise)
{
    return own >= 0 ? own : otherwise;
}

static void defaults(struct api *a, const struct forge_engine_info *info, bool chat)
{
    *a = (struct api){
        .chat = chat,
        .temperature = or_else(info->default_temp, 1),
        .top_p = or_else(info->default_top_p, 1),
        .top_k = info->default_top_k > 0 ? info->default_top_k : 0,
        .min_p = or_else(info->default_min_p, 0),
        .repetition_penalty = or_else(info->default_repeat_penalty, 1),
        .max_tokens = chat ? -1 : 16, /* as the protocol has it */
        .max_completion_tokens = -1,
        .n = 1,
        .top_logprobs = -1,
        .n_logprobs = -1,
    };
}

static bool read_stops(struct api *a, const cJSON *body, struct api_error *e)
{
    const cJSON *stop = json_get(body, "stop");
    struct buf b;
    size_t n_bytes = 0;
    if (!stop)
        return true;
    if (!cJSON_IsString(stop) && !cJSON_IsArray(stop))
        return api_fail(e, 400, "stop", "'stop' must be a string or a list of strings, not %s.", json_kind(stop));
    a->stops = mem_array(STOPS_MAX, sizeof *a->stops);
    if (!a->stops)
        return api_no_memory(e);
    for (const cJSON *c = cJSON_IsArray(stop) ? stop->child : stop; c; c = c->next) {
        if (a->n_stops == STOPS_MAX)
            return api_fail(e, 400, "stop", "'stop' has more than %d strings.", STOPS_MAX);
        buf_init(&b);
        bool is_string = json_str(c, &b);
        if (b.failed) {
            buf_fini(&b);
            return api_no_memory(e);
        }
        const char *wrong = !is_string                     ? "no string"
                            : b.len == 0                   ? "an empty string"
                            : strlen(buf_str(&b)) != b.len ? "a string with a NUL character"
                                                           : NULL;
        if (wrong) {
            buf_fini(&b);
            return api_fail(e, 400, "stop", "'stop' has an element, number %zu, that is %s.", a->n_stops + 1, wrong);
        }
        a->stops[a->n_stops++] = b.data;
        n_bytes += b.len;
        if (n_bytes > FORGE_STOP_BYTES)
            return api_fail(e, 400, "stop", "'stop' has more than %d bytes.", FORGE_STOP_BYTES);
        if (c == stop)
            break;
    }
    return true;
}

static bool read_bias(struct api *a, int64_t n_vocab, const cJSON *body, struct api_error *e)
{
    const cJSON *list = json_get(body, "logit_bias");
    if (!list)
        return true;
    if (!cJSON_IsObject(list))
        return api_fail(e, 400, "logit_bias", "'logit_bias' must be an object, not %s.", json_kind(list));
    a->bias = mem_array(BIAS_MAX, sizeof *a->bias);
    if (!a->bias)
        return api_no_memory(e);
    for (const cJSON *c = list->child; c; c = c->next) {
        char *end;
        long long id = c->string[0] >= '0' && c->string[0] <= '9' ? strtoll(c->string, &end, 10) : -1;
        if (id < 0 || *end || id >= n_vocab)
            return api_fail(e, 400, "logit_bias", "'logit_bias' has a key that is no token id from 0 to %lld.", (long long)n_vocab - 1);
        if (!cJSON_IsNumber(c))
            return api_fail(e, 400, "logit_bias", "'logit_bias' of token %lld must be a number from -100 to 100, not %s.", id, json_kind(c));
        if (!(fabs(c->valuedouble) <= 100))
            return api_fail(e, 400, "logit_bias", "'logit_bias' of token %lld is %.15g; it must be -100 to 100.", id, c->valuedouble);
        if (a->n_bias == BIAS_MAX)
            return api_fail(e, 400, "logit_bias", "'logit_bias' has more than %d tokens.", BIAS_MAX);
        a->bias[a->n_bias++] = (struct forge_logit_bias){(int32_t)id, (float)c->valuedouble};
    }
    return true;
}

/* ---- the prompt of a text completion ---- */

static bool add_text(struct api *a, const cJSON *item, struct api_error *e)
{
    struct prompt *p = &a->prompts[a->n_prompts++];
    struct buf b;
    buf_init(&b);
    buf_puts(&b, "");
    bool ok = buf_reserve(&b, 1) && json_str(item, &b) && !b.failed;
    p->text = b.data;
    p->len = b.len;
    return ok || api_no_memory(e);
}

static bool add_ids(struct api *a, const cJSON *list, struct api_error *e)
{
    struct prompt *p = &a->prompts[a->n_prompts++];
    return fields_ids(list, "prompt", &p->ids, &p->n_ids, e);
}

static bool read_prompts(struct api *a, const cJSON *body, struct api_error *e)
{
    const cJSON *item = json_get(body, "prompt");
    if (!item)
        return api_fail(e, 400, "prompt", "'prompt' is missing.");
    if (!cJSON_IsString(item) && !cJSON_IsArray(item))
        return api_fail(e, 400, "prompt", "'prompt' must be a string, or a list of strings, of ids, or of lists of ids, not %s.",
                        json_kind(item));
    a->prompts = mem_array(PROMPTS_MAX, sizeof *a->prompts);
    if (!a->prompts)
        return api_no_memory(e);
    if (cJSON_IsString(item))
        return add_text(a, item, e);
    if (!item->child || cJSON_IsNumber(item->child))
        return add_ids(a, item, e);
    for (const cJSON *c = item->child; c; c = c->next) {
        if (a->n_prompts == PROMPTS_MAX)
            return api_fail(e, 400, "prompt", "'prompt' has more than %d elements.", PROMPTS_MAX);
        if (!cJSON_IsString(c) && !cJSON_IsArray(c))
            return api_fail(e, 400, "prompt", "'prompt' has an element, number %zu, that is neither a string nor a list of ids.",
                            a->n_prompts + 1);
        if (cJSON_IsString(c) ? !add_text(a, c, e) : !add_ids(a, c, e))
            return false;
    }
    return true;
}

/* ---- all of it ---- */

static bool read_types(const cJSON *body, struct api_error *e)
{
    const cJSON *model = json_get(body, "model"), *options = json_get(body, "stream_options");
    if (model && !cJSON_IsString(model)) /* any name is answered by the one model that is here */
        return api_fail(e, 400, "model", "'model' must be a string, not %s.", json_kind(model));
    if (options && !cJSON_IsObject(options))
        return api_fail(e, 400, "stream_options", "'stream_options' must be an object, not %s.", json_kind(options));
    return true;
}

/* All choices of a prompt begin with it. */
static bool check_echo(const struct api *a, struct api_error *e)
{
    size_t n = 0;
    if (!a->echo)
        return true;
    if (a->n_logprobs >= 0)
        return api_fail(e, 400, "echo", "'echo' cannot be had with 'logprobs': those of the prompt are not computed.");
    for (size_t i = 0; i < a->n_prompts; i++)
        n += a->prompts[i].len * (size_t)a->n;
    return n <= ECHO_MAX || api_fail(e, 400, "echo", "'echo' would repeat %zu bytes of prompts in the choices; at most %zu are.", n, ECHO_MAX);
}

static bool check_together(struct api *a, struct api_error *e)
{
    if (a->max_completion_tokens >= 0)
        a->max_tokens = a->max_completion_tokens;
    if (a->top_logprobs >= 0 && !a->logprobs)
        return api_fail(e, 400, "top_logprobs", "'top_logprobs' needs 'logprobs' to be true.");
    if (a->logprobs)
        a->n_logprobs = a->top_logprobs >= 0 ? a->top_logprobs : 0;
    if (a->temperature <= 0)
        a->top_p = 1; /* nothing is drawn */
    if (a->top_k < 0)
        a->top_k = 0;
    return check_echo(a, e);
}

bool api_read(struct api *a, struct server *s, struct node all, bool chat, struct api_error *e)
{
    const cJSON *body = all.item;
    const struct forge_engine_info *info = forge_engine_info(s->e);
    const cJSON *options = json_get(body, "stream_options");
    defaults(a, info, chat);
    a->has_seed = json_get(body, "seed") != NULL;
    return read_types(body, e) && fields_read(common_fields, body, a, e) &&
           fields_read(chat ? chat_fields : text_fields, body, a, e) && (!options || fields_read(stream_fields, options, a, e)) &&
           read_stops(a, body, e) && read_bias(a, info->n_vocab, body, e) && (chat ? chat_read(a, s, all, e) : read_prompts(a, body, e)) &&
           check_together(a, e);
}

void api_fini(struct api *a)
{
    for (size_t i = 0; i < a->n_stops; i++)
        free(a->stops[i]);
    for (size_t i = 0; i < a->n_prompts; i++) {
        free(a->prompts[i].text);
        free(a->prompts[i].ids);
    }
    free(a->stops);
    free(a->bias);
    free(a->prompts);
    free(a->json_schema);
}

void api_request(const struct api *a, size_t prompt, struct forge_request_params *p)
{
    const struct prompt *from = &a->prompts[prompt];
    forge_request_params_init(p, sizeof *p);
    p->text = from->text;
    p->text_len = from->len;
    p->ids = from->ids;
    p->n_ids = from->n_ids;
    p->json_schema = a->json_schema;
    p->stops = (const char *const *)a->stops;
    p->n_stops = a->n_stops;
    p->max_tokens = a->max_tokens;
    p->ignore_eos = a->ignore_eos;
    p->n_samples = (int)a->n;
    p->n_logprobs = (int)a->n_logprobs;
    p->sampling = (struct forge_sampling){
        .temp = a->temperature,
        .top_k = a->top_k,
        .top_p = a->top_p,
        .min_p = a->min_p,
        .typical_p = 1,
        .repeat_penalty = a->repetition_penalty,
        .presence_penalty = a->presence_penalty,
        .frequency_penalty = a->frequency_penalty,
        .bias = a->bias,
        .n_bias = a->n_bias,
        .seed = (uint64_t)a->seed,
        .has_seed = a->has_seed,
    };
}
