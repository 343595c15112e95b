/* The workspace of a forward pass: one table of shapes gives its bytes and its
 * allocation; every step takes views of the rows it needs, so that a step
 * allocates nothing. */
#include "model/workspace.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

struct shape {
    enum dtype dtype;
    int64_t per_row, cols; /* rows = per_row * rows of the step (or wanted rows); 0 = not needed */
    bool wanted;           /* counts wanted rows; only on the last stage */
};

static void shapes(const struct model_config *c, struct shape out[WORK_COUNT])
{
    bool dense = false, moe = false;
    for (int64_t l = 0; l < c->n_layers; l++) {
        moe = moe || c->layers[l].moe;
        dense = dense || !c->layers[l].moe;
    }
    int64_t q = c->n_heads * c->head_dim, kv = c->n_kv_heads * c->head_dim,
            used = moe ? c->n_experts_used : 0;
    const struct shape table[WORK_COUNT] = {
        [WORK_X] = {DTYPE_F32, 1, c->d_model, false},
        [WORK_H] = {DTYPE_F32, 1, c->d_model, false},
        [WORK_TMP] = {DTYPE_F32, 1, c->d_model, false},
        [WORK_Q] = {DTYPE_F32, 1, q, false},
        [WORK_K] = {DTYPE_F32, 1, kv, false},
        [WORK_V] = {DTYPE_F32, 1, kv, false},
        [WORK_ATTN] = {DTYPE_F32, 1, q, false},
        [WORK_GATE] = {DTYPE_F32, dense, c->n_ff, false},
        [WORK_UP] = {DTYPE_F32, dense, c->n_ff, false},
        [WORK_ROUTER] = {DTYPE_F32, moe, c->n_experts, false},
        [WORK_EXPERT_IDS] = {DTYPE_I32, moe, used, false},
        [WORK_EXPERT_W] = {DTYPE_F32, moe, used, false},
        [WORK_EXPERT_GATE] = {DTYPE_F32, used, c->n_ff_expert, false},
        [WORK_EXPERT_UP] = {DTYPE_F32, used, c->n_ff_expert, false},
        [WORK_IDS] = {DTYPE_I32, 1, 1, false},
        [WORK_POS] = {DTYPE_I32, 1, 1, false},
        [WORK_SEQ] = {DTYPE_I32, 1, 1, false},
        [WORK_CS0] = {DTYPE_F32, 1, c->n_rot, false},
        [WORK_CS1] = {DTYPE_F32, c->n_ropes > 1, c->n_rot, false},
        [WORK_WANT] = {DTYPE_I32, 1, 1, true},
        [WORK_LAST] = {DTYPE_F32, 1, c->d_model, true},
        [WORK_LOGITS] = {DTYPE_F32, 1, c->n_vocab, true},
        [WORK_ARGMAX] = {DTYPE_I32, 1, 1, true},
    };
    for (int i = 0; i < WORK_COUNT; i++)
        out[i] = table[i];
}

uint64_t forward_bytes(const struct model_config *c, const struct forward_limits *limits)
{
    struct shape table[WORK_COUNT];
    uint64_t sum =
        (uint64_t)limits->max_rows * (uint64_t)c->n_rot * sizeof(float); /* the host's table of angles */
    shapes(c, table);
    for (int i = 0; i < WORK_COUNT; i++) /* all elements have four bytes */
        sum += 4 * (uint64_t)(table[i].wanted ? limits->max_want : limits->max_rows) *
               (uint64_t)table[i].per_row * (uint64_t)table[i].cols;
    sum += (uint64_t)limits->n_ctx * (uint64_t)c->n_rot * (uint64_t)c->n_ropes * sizeof(float);
    for (int g = 0; g < c->n_groups; g++)
        sum += 4 * (uint64_t)limits->max_seqs * (uint64_t)limits->max_pages[g];
    return sum;
}

uint64_t forward_largest(const struct model_config *c, const struct forward_limits *limits, bool wanted)
{
    struct shape table[WORK_COUNT];
    uint64_t most = 0, rows = (uint64_t)(wanted ? limits->max_want : limits->max_rows);
    shapes(c, table);
    for (int i = 0; i < WORK_COUNT; i++) {
        uint64_t size = table[i].wanted == wanted ? 4 * rows * (uint64_t)table[i].per_row * (uint64_t)table[i].cols : 0;
        most = size > most ? size : most;
    }
    if (wanted)
        return most;
    /* what a backend keeps of the experts' products before they are summed */
    uint64_t products = table[WORK_EXPERT_W].per_row != 0 ? 4 * (uint64_t)limits->max_rows * (uint64_t)c->n_experts_used *
                                                                (uint64_t)c->d_model : 0;
    return products > most ? products : most;
}

static int alloc_stage(struct forward *f, struct stage *s, struct err *err)
{
    const struct model_config *c = &f->m->config;
    struct shape table[WORK_COUNT];
    int rc = 0;
    shapes(c, table);
    for (int i = 0; i < WORK_COUNT && rc == 0; i++) {
        int64_t rows = table[i].per_row * (table[i].wanted ? f->limits.max_want : f->limits.max_rows);
        if (rows > 0 && (s->last || !table[i].wanted))
            rc = op_alloc(s->be, &s->full[i], table[i].dtype, rows, table[i].cols, err);
    }
    for (int64_t l = 0; l < c->n_layers && rc == 0; l++) {
        int g = c->layers[l].kv_group;
        if (f->m->layers[l].be == s->be && !s->full_pages[g].buf)
            rc = op_alloc(s->be, &s->full_pages[g], DTYPE_I32, f->limits.max_seqs, f->limits.max_pages[g],
                          err);
    }
    return rc;
}

int forward_new(struct forward **out, const struct model *m, const struct kv_layer *kv,
                const struct forward_limits *limits, struct err *err)
{
    struct forward *f = mem_array(1, sizeof(*f));
    int64_t n_layers = m->config.n_layers;
    int rc = ERR_NOMEM;
    *out = NULL;
    if (!f)
        return err_set(err, ERR_NOMEM, "no memory for a forward pass");
    *f = (struct forward){.m = m, .kv = kv, .limits = *limits, .n_stages = m->n_instances};
    f->stages = mem_array((size_t)m->n_instances, sizeof(*f->stages));
    f->stage_of = mem_array((size_t)n_layers, sizeof(*f->stage_of));
    f->cs = mem_array((size_t)limits->max_rows * (size_t)m->config.n_rot, sizeof(float));
    f->bounce = mem_array(m->n_instances > 1 ? (size_t)limits->max_rows * (size_t)m->config.d_model : 0,
                          sizeof(float));
    bool angles = true;
    for (int r = 0; r < m->config.n_ropes && limits->n_ctx > 0; r++) {
        size_t n;
        f->angles[r] = mem_mul((size_t)limits->n_ctx, (size_t)m->config.n_rot, &n) ? mem_array(n, sizeof(float)) : NULL;
        angles = angles && f->angles[r];
    }
    if (!f->stages || !f->stage_of || !f->cs || !f->bounce || !angles) {
        err_set(err, ERR_NOMEM, "no memory for a forward pass of %d rows", limits->max_rows);
        goto fail;
    }
    for (int64_t l = 0; l < n_layers; l++)
        while (m->instances[f->stage_of[l]] != m->layers[l].be)
            f->stage_of[l]++;
    for (int i = 0; i < f->n_stages; i++) {
        f->stages[i].be = m->instances[i];
        f->stages[i].first = i == f->stage_of[0];
        f->stages[i].last = i == f->stage_of[n_layers - 1];
        if ((rc = alloc_stage(f, &f->stages[i], err)))
            goto fail;
    }
    *out = f;
    return 0;
fail:
    forward_free(f);
    return rc;
}

void forward_free(struct forward *f)
{
    if (!f)
        return;
    for (int i = 0; f->stages && i < f->n_stages; i++) {
        for (int k = 0; k < WORK_COUNT; k++)
            op_free(f->stages[i].full[k].buf);
        for (int g = 0; g < CONFIG_KV_GROUPS_MAX; g++)
            op_free(f->stages[i].full_pages[g].buf);
    }
    free(f->stages);
    free(f->stage_of);
    free(f->cs);
    for (int r = 0; r < CONFIG_ROPES_MAX; r++)
        free(f->angles[r]);
    free(f->bounce);
    free(f);
}

static void view_rows(const struct forward *f, struct stage *s, const struct forward_batch *b)
{
    struct shape table[WORK_COUNT];
    shapes(&f->m->config, table);
    for (int i = 0; i < WORK_COUNT; i++)
        if (s->full[i].buf)
            s->v[i] =
                tensor_rows(&s->full[i], 0, table[i].per_row * (table[i].wanted ? b->n_want : b->n_rows));
    for (int g = 0; g < CONFIG_KV_GROUPS_MAX; g++)
        if (s->full_pages[g].buf) {
            s->rows[g] = (struct kv_rows){.pos = s->v[WORK_POS],
                                          .seq = s->v[WORK_SEQ],
                                          .pages = tensor_rows(&s->full_pages[g], 0, b->n_seqs)};
            op_rows_count(&s->rows[g], b->pos, b->seq, f->m->config.groups[g].window);
        }
}

/* Cosines and sines of one position into out [n_rot], from the table as far as that goes: a position costs its
 * sines once, not in every step. */
static void put_angles(struct forward *f, int rope, int64_t pos, float *out)
{
    const struct model_config *c = &f->m->config;
    if (pos >= f->limits.n_ctx) {
        rope_row(c, rope, pos, out);
        return;
    }
    for (int64_t *n = &f->n_angles[rope]; *n <= pos; ++*n)
        rope_row(c, rope, *n, f->angles[rope] + *n * c->n_rot);
    memcpy(out, f->angles[rope] + pos * c->n_rot, (size_t)c->n_rot * sizeof(float));
}

void workspace_begin(struct forward *f, const struct forward_batch *b)
{
    const struct model_config *c = &f->m->config;
    for (int i = 0; i < f->n_stages; i++) {
        struct stage *s = &f->stages[i];
        op_begin(s->be);
        view_rows(f, s, b);
        if (s->first)
            op_write(s->be, &s->v[WORK_IDS], b->ids);
        if (s->last && b->n_want > 0)
            op_write(s->be, &s->v[WORK_WANT], b->want);
        op_write(s->be, &s->v[WORK_POS], b->pos);
        op_write(s->be, &s->v[WORK_SEQ], b->seq);
        for (int g = 0; g < c->n_groups; g++)
            if (s->full_pages[g].buf)
                op_write(s->be, &s->rows[g].pages, b->pages[g]);
    }
    for (int r = 0; r < c->n_ropes; r++) {
        for (int i = 0; i < b->n_rows; i++)
            put_angles(f, r, b->pos[i], f->cs + (size_t)i * (size_t)c->n_rot);
        for (int i = 0; i < f->n_stages; i++)
            op_write(f->stages[i].be, &f->stages[i].v[WORK_CS0 + r], f->cs);
    }
}
