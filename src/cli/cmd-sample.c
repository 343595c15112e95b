/* forge sample: what the sampler would draw from, for given logits.
 * Loads no model: the vocabulary is as long as a row of the file. The rules of
 * sampling are run/sampler's. */
#include <inttypes.h>
#include <stdlib.h>

#include "base/mem.h"
#include "base/rng.h"
#include "cli/cmd.h"
#include "cli/npy.h"
#include "cli/sampling.h"
#include "run/sampler.h"

struct sample_args {
    const char *logits;
    int64_t row, draw;
    struct num_list prompt_ids, generated_ids;
    struct sampling_args sampling;
    bool json;
};

#define F(field) offsetof(struct sample_args, field)
#define ID_RANGE "0..2147483647"

static const struct opt opts[] = {
    {"logits", 0, OPT_STR, F(logits), 0, "FILE", NULL, NULL, "logits as .npy, float32 [vocab] or [n, vocab]"},
    {"row", 0, OPT_I64, F(row), 0, "R", "0..", "0", "which row of them"},
    {"prompt-ids", 0, OPT_NUMS, F(prompt_ids), 0, "1,2,3", ID_RANGE, NULL, "the prompt, for the penalties"},
    {"generated-ids", 0, OPT_NUMS, F(generated_ids), 0, "1,2,3", ID_RANGE, NULL,
     "the text so far, for the penalties"},
    SAMPLING_OPTS(struct sample_args, "1", "temperature; 0 = greedy"),
    {"draw", 0, OPT_I64, F(draw), 0, "N", "0..1000000000", "0", "also draw N times"},
    {"json", 0, OPT_FLAG, F(json), 0, NULL, NULL, NULL,
     "one JSON object: probs, n_kept, and draws with --draw"},
    {0},
};

static void to_sampler(const struct sampling_args *a, struct sampler_bias *bias, struct sampler_params *p)
{
    sampler_params_init(p);
    for (size_t i = 0; i < a->bias.n; i++)
        bias[i] = (struct sampler_bias){(int32_t)a->bias.v[i].id, (float)a->bias.v[i].bias};
    p->temp = a->temp;
    p->top_k = a->top_k;
    p->top_p = a->top_p;
    p->min_p = a->min_p;
    p->typical_p = a->typical_p;
    p->repeat_penalty = a->repeat_penalty;
    p->presence_penalty = a->presence_penalty;
    p->frequency_penalty = a->frequency_penalty;
    p->bias = bias;
    p->n_bias = a->bias.n;
    p->seed = a->has_seed ? a->seed : rng_fresh_seed();
}

static void put_probs(struct buf *b, const struct sampler_cand *cand, size_t n, bool json)
{
    if (json)
        buf_puts(b, "{\"probs\":[");
    for (size_t i = 0; i < n; i++) {
        buf_printf(b, json ? "%s[%d," : "%s%d\t", json && i ? "," : "", (int)cand[i].id);
        buf_put_json_num(b, (double)cand[i].p);
        buf_putc(b, json ? ']' : '\n');
    }
    if (json)
        buf_printf(b, "],\"n_kept\":%zu", n);
}

/* N draws at one position: each is another sample of the same seed. */
static int put_draws(struct buf *b, struct sampler *s, const float *logits, const struct sampler_history *h,
                     int64_t n, bool json, struct err *err)
{
    uint64_t position = h->n_prompt + h->n_generated;
    if (json)
        buf_puts(b, ",\"draws\":[");
    else
        buf_puts(b, "draws:");
    for (int64_t i = 0; i < n; i++) {
        int32_t id;
        int rc = sampler_pick(s, logits, h, (uint64_t)i, position, &id, err);
        if (rc < 0)
            return rc;
        buf_printf(b, json ? "%s%d" : " %s%d", json && i ? "," : "", (int)id);
    }
    buf_puts(b, json ? "]" : "\n");
    return 0;
}

static int32_t *ids_of(const struct num_list *l)
{
    int32_t *ids = mem_array(l->n, sizeof *ids);
    for (size_t i = 0; ids && i < l->n; i++)
        ids[i] = (int32_t)l->v[i];
    return ids;
}

static int check_ids(const struct num_list *l, const char *flag, int64_t n_vocab)
{
    for (size_t i = 0; i < l->n; i++)
        if (l->v[i] >= n_vocab)
            return msg_usage("sample", "--%s: %" PRId64 " is outside the vocabulary of %" PRId64, flag,
                             l->v[i], n_vocab);
    return 0;
}

static int print(const struct sample_args *a, const struct npy *npy)
{
    struct err err = {0};
    struct sampler_params p;
    struct sampler *s = NULL;
    const struct sampler_cand *cand;
    struct sampler_history h;
    struct buf b;
    char text[512];
    size_t n;
    int32_t *prompt = ids_of(&a->prompt_ids), *generated = ids_of(&a->generated_ids);
    float *logits = mem_array((size_t)npy->cols, sizeof *logits);
    struct sampler_bias *bias = mem_array(a->sampling.bias.n, sizeof *bias);
    int rc = prompt && generated && logits && bias ? 0 : err_set(&err, ERR_NOMEM, "out of memory");
    buf_init(&b);
    if (rc < 0)
        goto done;
    npy_row(npy, a->row, logits);
    h = (struct sampler_history){prompt, a->prompt_ids.n, generated, a->generated_ids.n};
    to_sampler(&a->sampling, bias, &p);
    rc = sampler_params_check(&p, false, npy->cols, &err);
    if (rc == 0)
        rc = sampler_new(&s, &p, npy->cols, &err);
    if (rc == 0)
        rc = sampler_probs(s, logits, &h, &cand, &n, &err);
    if (rc < 0)
        goto done;
    sampling_describe(&a->sampling, text, sizeof text);
    msg_verbose("sampling: %s", text);
    sampler_describe(&p, text, sizeof text);
    msg_verbose("order: %s", text);
    put_probs(&b, cand, n, a->json);
    if (a->draw > 0)
        rc = put_draws(&b, s, logits, &h, a->draw, a->json, &err);
    if (a->json && a->draw > 0)
        buf_printf(&b, ",\"seed\":%" PRIu64, p.seed);
    if (a->json)
        buf_puts(&b, "}\n");
    if (a->draw > 0 && !a->sampling.has_seed)
        msg_info("seed %" PRIu64, p.seed);
    if (rc == 0 && !out_buf(&b))
        rc = ERR_NOMEM;
done:
    sampler_free(s);
    free(prompt);
    free(generated);
    free(logits);
    free(bias);
    buf_fini(&b);
    return rc < 0 ? msg_fail(rc, err.msg) : 0;
}

static int run(void *args, const struct common *c)
{
    struct sample_args *a = args;
    struct err err = {0};
    struct npy npy;
    (void)c;
    if (!a->logits)
        return msg_usage("sample", "--logits FILE.npy is needed");
    int rc = npy_open(&npy, a->logits, &err);
    if (rc < 0)
        return msg_fail(rc, err.msg);
    int status = 0;
    if (a->row >= npy.rows)
        status = msg_usage("sample", "--row %" PRId64 ": %s has %" PRId64 " rows, numbered from 0", a->row,
                           a->logits, npy.rows);
    if (status == 0)
        status = check_ids(&a->prompt_ids, "prompt-ids", npy.cols);
    if (status == 0)
        status = check_ids(&a->generated_ids, "generated-ids", npy.cols);
    if (status == 0)
        status = print(a, &npy);
    npy_close(&npy);
    return status;
}

const struct cmd cmd_sample = {
    .name = "sample",
    .summary = "Print what the sampler would draw from, for given logits",
    .usage = "--logits FILE.npy [--row R] [flags]",
    .opts = opts,
    .args_size = sizeof(struct sample_args),
    .run = run,
};
