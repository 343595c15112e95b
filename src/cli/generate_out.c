/* How a finished prompt is told: the JSON object of the contract, and the
 * figures on stderr.
 * Reads requests and engines, changes neither. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "cli/generate.h"
#include "cli/out.h"

static void put_key(struct buf *b, const char *key)
{
    buf_printf(b, ",\"%s\":", key);
}

static void put_num(struct buf *b, const char *key, double v)
{
    put_key(b, key);
    buf_put_json_num(b, v);
}

static void put_str(struct buf *b, const char *key, const char *s)
{
    put_key(b, key);
    buf_put_json(b, s, strlen(s));
}

static void put_metrics(struct buf *b, const struct forge_engine *e, const struct forge_metrics *m)
{
    buf_printf(b, ",\"metrics\":{\"input_tokens\":%" PRIu64 ",\"output_tokens\":%" PRIu64, m->input_tokens,
               m->output_tokens);
    put_num(b, "load_s", forge_engine_info(e)->load_s);
    put_num(b, "prefill_s", m->prefill_s);
    put_num(b, "decode_s", m->decode_s);
    put_num(b, "ttft_ms", m->ttft_ms);
    put_num(b, "tpot_ms", m->tpot_ms);
    put_num(b, "prefill_tok_s", m->prefill_tok_s);
    put_num(b, "decode_tok_s", m->decode_tok_s);
    put_num(b, "compile_s", forge_engine_stats(e)->compile_s);
    put_num(b, "queued_s", m->queued_s);
    buf_printf(b, ",\"cached_tokens\":%" PRIu64, m->cached_tokens);
    if (m->drafted_tokens > 0)
        buf_printf(b, ",\"drafted_tokens\":%" PRIu64 ",\"accepted_tokens\":%" PRIu64, m->drafted_tokens, m->accepted_tokens);
    buf_printf(b, ",\"peak_rss_bytes\":%" PRIu64 "}", mem_peak_rss());
}

/* A row of "placement"; the devices' buffer is empty after it. */
static void put_placed(struct buf *b, const struct forge_placement *p, struct buf *devices)
{
    if (!p)
        return;
    if (buf_str(b)[b->len - 1] != '{')
        buf_putc(b, ',');
    buf_put_json(b, p->operation, strlen(p->operation));
    buf_putc(b, ':');
    buf_put_json(b, buf_str(devices), devices->len);
    buf_clear(devices);
}

static void put_placement(struct buf *b, const struct forge_engine *e)
{
    const struct forge_placement *last = NULL, *p;
    struct buf devices; /* of one operation: "cpu, ref" */
    buf_init(&devices);
    put_key(b, "placement");
    buf_putc(b, '{');
    for (size_t i = 0; (p = forge_engine_placement(e, i)) != NULL; i++, last = p) {
        if (last && strcmp(last->operation, p->operation) == 0) {
            buf_printf(&devices, ", %s", p->device);
            continue;
        }
        put_placed(b, last, &devices);
        buf_puts(&devices, p->device);
    }
    put_placed(b, last, &devices);
    b->failed |= devices.failed;
    buf_fini(&devices);
    buf_putc(b, '}');
}

int generate_prompt_text(struct buf *b, const struct forge_engine *e, const struct job *j)
{
    struct forge_error err = {0};
    char *text;
    size_t len;
    if (j->prompt.text) {
        buf_put(b, j->prompt.text, j->prompt.text_len);
        return 0;
    }
    int rc = j->messages ? forge_chat_render(e, j->messages, j->messages_len, JOB_CHAT_FLAGS, &text, &len, NULL, NULL, &err)
                         : forge_detokenize(e, j->prompt.ids, j->prompt.n_ids, 0, &text, &len, &err);
    if (rc < 0)
        return msg_fail(err.code, err.message);
    buf_put(b, text, len);
    forge_free(text);
    return 0;
}

/* A request that was refused has no ids and no figures, and a seed only where one was given. */
static void put_refused(struct buf *b, const struct forge_engine *e, const struct job *j)
{
    buf_puts(b, "{\"text\":\"\",\"prompt_ids\":[],\"ids\":[],\"finish_reason\":\"error\"");
    if (j->args.sampling.has_seed)
        buf_printf(b, ",\"seed\":%" PRIu64, j->args.sampling.seed);
    else
        buf_puts(b, ",\"seed\":null");
    put_str(b, "device", forge_engine_info(e)->device);
    put_metrics(b, e, &(struct forge_metrics){0});
    put_placement(b, e);
    put_str(b, "error", j->error.message);
    buf_putc(b, '}');
}

/* The text of one sample, its ids and why it ended. */
static void put_sample(struct buf *b, const struct forge_engine *e, const struct job *j, int sample, bool with_prompt)
{
    struct buf text;
    const int32_t *ids;
    size_t n;
    buf_init(&text);
    if (j->args.echo)
        generate_prompt_text(&text, e, j);
    const char *s = forge_request_text(j->request, sample, &n);
    buf_put(&text, s, n);
    buf_puts(b, "{\"text\":");
    buf_put_json(b, buf_str(&text), text.len);
    b->failed |= text.failed;
    buf_fini(&text);
    if (with_prompt) {
        put_key(b, "prompt_ids");
        ids = forge_request_prompt_ids(j->request, &n);
        buf_put_json_ids(b, ids, n);
    }
    put_key(b, "ids");
    ids = forge_request_ids(j->request, sample, &n);
    buf_put_json_ids(b, ids, n);
    put_str(b, "finish_reason", forge_finish_name(forge_request_finish(j->request, sample)));
}

void generate_json(struct buf *b, const struct forge_engine *e, const struct job *j)
{
    if (!j->request) {
        put_refused(b, e, j);
        return;
    }
    put_sample(b, e, j, 0, true);
    for (int i = 0; j->n_samples > 1 && i < j->n_samples; i++) {
        if (i == 0)
            put_key(b, "samples");
        buf_putc(b, i == 0 ? '[' : ',');
        put_sample(b, e, j, i, false);
        buf_putc(b, '}');
    }
    if (j->n_samples > 1)
        buf_putc(b, ']');
    buf_printf(b, ",\"seed\":%" PRIu64, forge_request_seed(j->request));
    put_str(b, "device", forge_engine_info(e)->device);
    put_metrics(b, e, forge_request_metrics(j->request));
    put_placement(b, e);
    const struct forge_error *failed = forge_request_error(j->request);
    if (failed && failed->code != 0)
        put_str(b, "error", failed->message);
    buf_putc(b, '}');
}

/* "cpu: embed, linear, ...; opencl:0: ..." */
static void describe_placement(struct buf *b, const struct forge_engine *e)
{
    size_t n = forge_engine_n_placements(e);
    for (size_t i = 0; i < n; i++) {
        const char *device = forge_engine_placement(e, i)->device;
        bool seen = false;
        for (size_t k = 0; k < i; k++)
            seen |= strcmp(forge_engine_placement(e, k)->device, device) == 0;
        if (seen)
            continue;
        buf_printf(b, "%s%s:", b->len ? "; " : "", device);
        for (size_t k = i; k < n; k++) {
            const struct forge_placement *p = forge_engine_placement(e, k);
            if (strcmp(p->device, device) == 0)
                buf_printf(b, "%s %s", k > i ? "," : "", p->operation);
        }
    }
}

void generate_stats(const struct forge_engine *e, const struct job *j)
{
    const struct forge_engine_info *info = forge_engine_info(e);
    const struct forge_metrics *m = forge_request_metrics(j->request);
    struct buf where;
    msg_info("%" PRIu64 " prompt tokens, %" PRIu64 " generated (%s), seed %" PRIu64, m->input_tokens,
             m->output_tokens, forge_finish_name(forge_request_finish(j->request, 0)),
             forge_request_seed(j->request));
    double compile_s = forge_engine_stats(e)->compile_s;
    if (compile_s >= 0.0005)
        msg_info("compiling kernels took %.3f s", compile_s);
    msg_info(
        "load %.3f s, prefill %.3f s (%.1f tok/s), decode %.3f s (%.1f tok/s), TTFT %.1f ms, TPOT %.2f ms",
        info->load_s, m->prefill_s, m->prefill_tok_s, m->decode_s, m->decode_tok_s, m->ttft_ms, m->tpot_ms);
    if (m->drafted_tokens > 0)
        msg_info("%" PRIu64 " tokens drafted, %" PRIu64 " of them accepted (%.1f %%)", m->drafted_tokens, m->accepted_tokens,
                 100.0 * (double)m->accepted_tokens / (double)m->drafted_tokens);
    buf_init(&where);
    describe_placement(&where, e);
    msg_info("ran on %s", where.len ? buf_str(&where) : info->device);
    buf_fini(&where);
}

void generate_batch_stats(const struct forge_engine *e, size_t n_jobs, double seconds)
{
    const struct forge_engine_stats *s = forge_engine_stats(e);
    struct buf more;
    buf_init(&more);
    if (s->busy_steps > 0)
        buf_printf(&more, ", %.1f %% of the slots in use while a prompt waited",
                   100.0 * (double)s->busy_slots / ((double)s->busy_steps * s->max_seqs));
    if (s->held_positions > 0)
        buf_printf(&more, ", %.1f %% of the KV pages held in use", 100.0 * (double)s->stored_positions / (double)s->held_positions);
    if (s->cached_tokens > 0)
        buf_printf(&more, ", %" PRIu64 " prompt tokens taken from earlier ones", s->cached_tokens);
    if (s->drafted_tokens > 0)
        buf_printf(&more, ", %" PRIu64 " of %" PRIu64 " drafted tokens accepted", s->accepted_tokens, s->drafted_tokens);
    if (s->preempted > 0)
        buf_printf(&more, ", %" PRIu64 " times one gave up its memory to an older one", s->preempted);
    msg_info("%zu prompts in %.3f s, up to %d at once: %" PRIu64 " prompt tokens, %" PRIu64
             " steps of decoding (%.1f tok/s)%s",
             n_jobs, seconds, s->max_seqs, s->prefill_rows, s->decode_rows, seconds > 0 ? (double)s->decode_rows / seconds : 0,
             more.len ? buf_str(&more) : "");
    buf_fini(&more);
}
