/* THE forward pass, written once over backend/op.h.
 *
 * Layers run where model.c has placed them; a run of layers on one instance is a
 * stage with its own workspace, and the residual stream crosses from stage to
 * stage by a read and a write.  Owns the workspace (workspace.c); knows nothing of
 * who owns the pages, of sampling, of text. */
#include "model/forward.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/mem.h"
#include "model/workspace.h"

/* NULL for a bias that is not there. */
static const struct tensor *maybe(const struct tensor *t)
{
    return t->buf ? t : NULL;
}

static void norm(const struct model_config *c, struct backend *be, const struct tensor *out,
                 const struct tensor *x, const struct tensor *w)
{
    op_rmsnorm(be, out, x, w, c->rms_eps, c->norm_add_one);
}

/* x += h w^T + bias, with a norm of the sum's second part where the architecture has one. */
static void add_projected(const struct model_config *c, struct stage *s, const struct tensor *h,
                          const struct tensor *w, const struct tensor *bias, const struct tensor *post)
{
    if (!c->post_norms) {
        op_linear_add(s->be, &s->v[WORK_X], &s->v[WORK_TMP], h, w, bias);
        return;
    }
    op_linear(s->be, &s->v[WORK_TMP], h, w, bias);
    norm(c, s->be, &s->v[WORK_TMP], &s->v[WORK_TMP], post);
    op_add(s->be, &s->v[WORK_X], &s->v[WORK_X], &s->v[WORK_TMP]);
}

/* x += O attention(rope(norm(Q n)), rope(norm(K n)), V n),  n = norm(x) */
static void attention(const struct forward *f, struct stage *s, int64_t l)
{
    const struct model_config *c = &f->m->config;
    const struct layer *w = &f->m->layers[l];
    const struct layer_config *lc = &c->layers[l];
    struct tensor *v = s->v, *cs = &s->v[WORK_CS0 + lc->rope];
    const struct tensor weights[3] = {w->q, w->k, w->v}, *const bias[3] = {maybe(&w->q_bias),
                                                                           maybe(&w->k_bias),
                                                                           maybe(&w->v_bias)};
    const struct kv_rows *rows = &s->rows[lc->kv_group];
    struct attention_args args = {c->attn_scale, lc->window, c->attn_softcap, (int)c->n_heads};
    struct norm_rope_args heads = {c->rms_eps, c->norm_add_one, (int)c->n_heads, (int)c->n_kv_heads,
                                   (int)c->head_dim, (int)c->n_rot, c->pairs};

    op_next(s->be, weights, 3);
    norm(c, s->be, &v[WORK_H], &v[WORK_X], &w->attn_norm);
    op_linear_qkv(s->be, &v[WORK_Q], &v[WORK_H], weights, bias);
    op_next(s->be, &w->o, 1);
    op_norm_rope(s->be, &v[WORK_Q], &v[WORK_K], c->qk_norm ? &w->q_norm : NULL, c->qk_norm ? &w->k_norm : NULL, cs,
                 &heads);
    op_kv_store(s->be, &f->kv[l], &v[WORK_K], &v[WORK_V], rows);
    op_attention(s->be, &v[WORK_ATTN], &v[WORK_Q], &f->kv[l], rows, &args);
    add_projected(c, s, &v[WORK_ATTN], &w->o, maybe(&w->o_bias), &w->post_attn_norm);
}

/* x += down(act(gate n) * up n),  n = norm(x) */
static void mlp(const struct model_config *c, struct stage *s, const struct layer *w)
{
    struct tensor *v = s->v;
    const struct tensor gate_up[2] = {w->gate, w->up};
    op_next(s->be, gate_up, c->mlp_bias ? 1 : 2);
    norm(c, s->be, &v[WORK_H], &v[WORK_X], &w->mlp_norm);
    if (c->mlp_bias) {
        op_linear(s->be, &v[WORK_GATE], &v[WORK_H], &w->gate, &w->gate_bias);
        op_linear(s->be, &v[WORK_UP], &v[WORK_H], &w->up, &w->up_bias);
        op_act_mul(s->be, &v[WORK_GATE], &v[WORK_GATE], &v[WORK_UP], c->act);
    } else {
        op_gate_up(s->be, &v[WORK_GATE], &v[WORK_UP], &v[WORK_H], &w->gate, &w->up, c->act);
    }
    op_next(s->be, &w->down, 1);
    add_projected(c, s, &v[WORK_GATE], &w->down, maybe(&w->down_bias), &w->post_mlp_norm);
}

/* x += sum over the chosen experts e of p_e down_e(act(gate_e n) * up_e n),  p = route(router n) */
static void moe(const struct model_config *c, struct stage *s, const struct layer *w)
{
    struct tensor *v = s->v;
    int n = (int)c->n_experts;
    norm(c, s->be, &v[WORK_H], &v[WORK_X], &w->mlp_norm);
    op_linear(s->be, &v[WORK_ROUTER], &v[WORK_H], &w->router, NULL);
    op_route(s->be, &v[WORK_EXPERT_IDS], &v[WORK_EXPERT_W], &v[WORK_ROUTER], c->moe_renorm);
    op_linear_experts(s->be, &v[WORK_EXPERT_GATE], &v[WORK_H], w->expert_gate, n, &v[WORK_EXPERT_IDS], NULL);
    op_linear_experts(s->be, &v[WORK_EXPERT_UP], &v[WORK_H], w->expert_up, n, &v[WORK_EXPERT_IDS], NULL);
    op_act_mul(s->be, &v[WORK_EXPERT_GATE], &v[WORK_EXPERT_GATE], &v[WORK_EXPERT_UP], c->act);
    op_linear_experts(s->be, &v[WORK_TMP], &v[WORK_EXPERT_GATE], w->expert_down, n, &v[WORK_EXPERT_IDS],
                      &v[WORK_EXPERT_W]);
    if (c->post_norms)
        norm(c, s->be, &v[WORK_TMP], &v[WORK_TMP], &w->post_mlp_norm);
    op_add(s->be, &v[WORK_X], &v[WORK_X], &v[WORK_TMP]);
}

static void layer(const struct forward *f, struct stage *s, int64_t l)
{
    const struct model_config *c = &f->m->config;
    attention(f, s, l);
    if (c->layers[l].moe)
        moe(c, s, &f->m->layers[l]);
    else
        mlp(c, s, &f->m->layers[l]);
}

/* Logits of the wanted rows only. */
static void head(const struct forward *f, struct stage *s, const struct forward_batch *b)
{
    const struct model *m = f->m;
    const struct model_config *c = &m->config;
    struct tensor *v = s->v;
    bool all = b->n_want == b->n_rows; /* rising and different: every row */
    if (!all)
        op_gather_rows(s->be, &v[WORK_LAST], &v[WORK_X], &v[WORK_WANT]);
    op_next(s->be, &m->head, 1);
    norm(c, s->be, &v[WORK_LAST], all ? &v[WORK_X] : &v[WORK_LAST], &m->final_norm);
    op_linear(s->be, &v[WORK_LOGITS], &v[WORK_LAST], &m->head, maybe(&m->head_bias));
    if (c->logit_softcap > 0)
        op_softcap(s->be, &v[WORK_LOGITS], c->logit_softcap);
}

/* ---- the step ---- */

static int check_batch(const struct forward *f, const struct forward_batch *b, struct err *err)
{
    int64_t n_vocab = f->m->config.n_vocab;
    if (b->n_rows < 1 || b->n_rows > f->limits.max_rows || b->n_seqs < 1 || b->n_seqs > f->limits.max_seqs ||
        b->n_want < 0 || b->n_want > f->limits.max_want || b->n_want > b->n_rows)
        return err_set(
            err, ERR_ARG, "a step of %d rows, %d sequences, %d wanted rows: planned were at most %d, %d, %d",
            b->n_rows, b->n_seqs, b->n_want, f->limits.max_rows, f->limits.max_seqs, f->limits.max_want);
    for (int i = 0; i < b->n_rows; i++) {
        if (b->ids[i] < 0 || b->ids[i] >= n_vocab)
            return err_set(err, ERR_ARG, "token id %" PRId32 " is outside the model's vocabulary of %" PRId64,
                           b->ids[i], n_vocab);
        if (b->pos[i] < 0 || b->seq[i] < 0 || b->seq[i] >= b->n_seqs)
            return err_set(err, ERR_ARG, "row %d: position %" PRId32 " of sequence %" PRId32, i, b->pos[i],
                           b->seq[i]);
    }
    for (int i = 0; i < b->n_want; i++)
        if (b->want[i] < 0 || b->want[i] >= b->n_rows || (i > 0 && b->want[i] <= b->want[i - 1]))
            return err_set(err, ERR_ARG, "wanted row %" PRId32 " of %d: not rising, or outside", b->want[i],
                           b->n_rows);
    return 0;
}

/* Row `at` of the trace: the last row of the residual stream. */
static int trace(struct forward *f, struct stage *s, int64_t at, struct err *err)
{
    if (!f->trace)
        return 0;
    struct tensor last = tensor_rows(&s->v[WORK_X], s->v[WORK_X].rows - 1, 1);
    return op_read(s->be, f->trace + at * f->m->config.d_model, &last, err);
}

static int trace_final(struct forward *f, struct stage *s, struct err *err)
{
    if (!f->trace)
        return 0;
    struct tensor last = tensor_rows(&s->v[WORK_X], s->v[WORK_X].rows - 1, 1),
                  out = tensor_rows(&s->v[WORK_H], 0, 1);
    norm(&f->m->config, s->be, &out, &last, &f->m->final_norm);
    return op_read(s->be, f->trace + (f->m->config.n_layers + 1) * f->m->config.d_model, &out, err);
}

/* The residual stream goes on to the next stage. */
static int cross(struct forward *f, struct stage *from, struct stage *to, struct err *err)
{
    int rc = op_read(from->be, f->bounce, &from->v[WORK_X], err);
    if (rc == 0)
        op_write(to->be, &to->v[WORK_X], f->bounce);
    return rc;
}

int forward_run(struct forward *f, const struct forward_batch *b, struct err *err)
{
    const struct model *m = f->m;
    const struct model_config *c = &m->config;
    int rc = check_batch(f, b, err);
    if (rc)
        return rc;
    workspace_begin(f, b);
    struct stage *s = &f->stages[0];
    op_embed(s->be, &s->v[WORK_X], &m->embed, &s->v[WORK_IDS], c->embed_scale);
    rc = trace(f, s, 0, err);
    for (int64_t l = 0; l < c->n_layers && rc == 0; l++) {
        struct stage *next = &f->stages[f->stage_of[l]];
        if (next != s)
            rc = cross(f, s, next, err);
        if (rc)
            break;
        s = next;
        layer(f, s, l);
        rc = trace(f, s, l + 1, err);
    }
    if (rc == 0)
        rc = trace_final(f, s, err);
    if (rc == 0 && b->n_want > 0)
        head(f, s, b);
    f->n_want = rc == 0 ? b->n_want : 0;
    return rc;
}

static struct stage *last_stage(const struct forward *f)
{
    return &f->stages[f->stage_of[f->m->config.n_layers - 1]];
}

int forward_wait(struct forward *f, struct err *err)
{
    return op_sync(last_stage(f)->be, err);
}

int forward_logits(struct forward *f, float *out, struct err *err)
{
    struct stage *s = last_stage(f);
    return f->n_want > 0 ? op_read(s->be, out, &s->v[WORK_LOGITS], err)
                         : err_set(err, ERR_ARG, "the step wanted no logits");
}

int forward_argmax(struct forward *f, int32_t *out, struct err *err)
{
    struct stage *s = last_stage(f);
    if (f->n_want < 1)
        return err_set(err, ERR_ARG, "the step wanted no logits");
    op_argmax(s->be, &s->v[WORK_ARGMAX], &s->v[WORK_LOGITS]);
    return op_read(s->be, out, &s->v[WORK_ARGMAX], err);
}

/* ---- making ready ---- */

/* One stage's part of a step, which computes nothing while its instance warms. */
static int warm_stage(struct forward *f, struct stage *s, const struct forward_batch *b, struct err *err)
{
    const struct model *m = f->m;
    if (s->first)
        op_embed(s->be, &s->v[WORK_X], &m->embed, &s->v[WORK_IDS], m->config.embed_scale);
    for (int64_t l = 0; l < m->config.n_layers; l++)
        if (&f->stages[f->stage_of[l]] == s)
            layer(f, s, l);
    if (s->last) {
        head(f, s, b);
        op_argmax(s->be, &s->v[WORK_ARGMAX], &s->v[WORK_LOGITS]);
    }
    return op_sync(s->be, err);
}

/* A step of n rows, at the first or the last positions, on every stage that can be made ready. */
static int warm_rows(struct forward *f, struct forward_batch *b, int n_rows, bool far, struct err *err)
{
    int rc = 0;
    b->n_rows = n_rows;
    b->n_want = n_rows < f->limits.max_rows && n_rows < f->limits.max_want ? n_rows : 1;
    workspace_begin(f, b);
    for (int i = 0; far && i < f->n_stages; i++)
        for (int g = 0; g < f->m->config.n_groups; g++) { /* attention by as many chunks as there may be */
            f->stages[i].rows[g].max_pos = (int32_t)(f->limits.n_ctx > 0 ? f->limits.n_ctx - 1 : 0);
            f->stages[i].rows[g].n_seen = (uint64_t)n_rows * (uint64_t)f->limits.n_ctx;
        }
    for (int i = 0; i < f->n_stages && rc == 0; i++) {
        struct stage *s = &f->stages[i];
        if (!op_warm(s->be, true))
            continue;
        rc = warm_stage(f, s, b, err);
        op_warm(s->be, false);
        op_stats_reset(s->be);
    }
    return rc;
}

int forward_warm(struct forward *f, model_progress *progress, void *user, struct err *err)
{
    /* backends change kernels at some small numbers of rows; the last is a whole chunk */
    const int counts[] = {1, 2, 4, 8, 16, f->limits.max_rows}, n_counts = sizeof counts / sizeof *counts;
    struct forward_batch b = {.n_seqs = 1};
    int32_t *zeros = NULL, *wanted = NULL;
    int rc = 0, n_zeros = f->limits.max_rows;
    bool wanting = false;
    for (int i = 0; i < f->n_stages; i++)
        if (op_warm(f->stages[i].be, true)) {
            op_warm(f->stages[i].be, false);
            wanting = true;
        }
    if (!wanting)
        return 0;
    for (int g = 0; g < f->m->config.n_groups; g++)
        n_zeros = f->limits.max_pages[g] > n_zeros ? f->limits.max_pages[g] : n_zeros;
    zeros = mem_array((size_t)n_zeros, sizeof *zeros);
    wanted = mem_array((size_t)f->limits.max_rows, sizeof *wanted);
    if (!zeros || !wanted) {
        rc = err_set(err, ERR_NOMEM, "no memory for the first steps of %d rows", f->limits.max_rows);
        goto done;
    }
    for (int i = 0; i < f->limits.max_rows; i++)
        wanted[i] = i;
    b.ids = b.pos = b.seq = zeros;
    b.want = wanted;
    for (int g = 0; g < f->m->config.n_groups; g++)
        b.pages[g] = zeros;
    for (int i = 0; i < n_counts && rc == 0; i++) {
        if (i < n_counts - 1 && counts[i] >= f->limits.max_rows)
            continue;
        rc = warm_rows(f, &b, counts[i], false, err);
        if (rc == 0)
            rc = warm_rows(f, &b, counts[i], true, err);
        if (rc == 0 && progress && progress(user, (size_t)i + 1, (size_t)n_counts))
            rc = err_set(err, ERR_CANCELLED, "stopped while kernels were compiled");
    }
done:
    free(zeros);
    free(wanted);
    return rc;
}

void forward_trace(struct forward *f, float *out)
{
    f->trace = out;
}
