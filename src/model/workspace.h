/* The memory of a forward pass: what forward.c computes in.
 * Allocated once by workspace.c; a step only takes views of it.  Nothing outside
 * of src/model sees it. */
#ifndef FORGE_MODEL_WORKSPACE_H
#define FORGE_MODEL_WORKSPACE_H

#include "model/forward.h"

enum work {
    WORK_X,    /* [n_rows, d_model] the residual stream */
    WORK_H,    /* [n_rows, d_model] normalised */
    WORK_TMP,  /* [n_rows, d_model] */
    WORK_Q,    /* [n_rows, n_heads * head_dim]; q, k, v in this order, for op_linear_qkv */
    WORK_K,    /* [n_rows, n_kv_heads * head_dim] */
    WORK_V,    /* [n_rows, n_kv_heads * head_dim] */
    WORK_ATTN, /* [n_rows, n_heads * head_dim] */
    WORK_GATE, WORK_UP, /* [n_rows, n_ff] */
    WORK_ROUTER,        /* [n_rows, n_experts] */
    WORK_EXPERT_IDS, WORK_EXPERT_W,   /* [n_rows, n_experts_used] */
    WORK_EXPERT_GATE, WORK_EXPERT_UP, /* [n_rows * n_experts_used, n_ff_expert] */
    WORK_IDS, WORK_POS, WORK_SEQ,     /* I32 [n_rows, 1] */
    WORK_CS0, WORK_CS1,               /* [n_rows, n_rot] cosines and sines, one for each rope */
    WORK_WANT,   /* I32 [n_want, 1] */
    WORK_LAST,   /* [n_want, d_model] */
    WORK_LOGITS, /* [n_want, n_vocab] */
    WORK_ARGMAX, /* I32 [n_want, 1] */
    WORK_COUNT
};

/* One instance's part of the workspace. */
struct stage {
    struct backend *be;
    bool first, last;              /* runs the model's first, last layer */
    struct tensor full[WORK_COUNT]; /* as allocated; buf NULL = not needed here */
    struct tensor v[WORK_COUNT];    /* as many rows of them as the step has */
    struct tensor full_pages[CONFIG_KV_GROUPS_MAX]; /* I32 [max_seqs, max_pages] */
    struct kv_rows rows[CONFIG_KV_GROUPS_MAX];      /* the step's, by page table */
};

struct forward {
    const struct model *m;     /* borrowed */
    const struct kv_layer *kv; /* [n_layers], borrowed */
    struct forward_limits limits;
    struct stage *stages;      /* [m->n_instances] */
    int n_stages;
    int *stage_of;             /* [n_layers] */
    float *cs;                 /* host [max_rows, n_rot] */
    float *angles[CONFIG_ROPES_MAX];   /* host [n_ctx, n_rot] of each rope: zero pages until a position is met */
    int64_t n_angles[CONFIG_ROPES_MAX]; /* rows of them that are computed: positions 0 .. n - 1 */
    float *bounce;             /* host [max_rows, d_model], only with several stages */
    float *trace;              /* borrowed, or NULL */
    int n_want;                /* of the step that ran last */
};

/* Begins a step on every stage: views of its rows; ids, positions, tables written. */
void workspace_begin(struct forward *f, const struct forward_batch *b);

#endif
