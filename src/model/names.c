/* Names of tensors in the three naming worlds, and which world a file is in.
 * A '#' in a name stands for the expert's number.  Where an architecture's names
 * differ from these, its row in arch.c says so. */
#include "model/arch.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

struct world {
    const char *layer; /* before the number of a layer */
    const char *names[ROLE_COUNT];
};

static const struct world worlds[NAMING_COUNT] = {
    [NAMING_HF] = {
        .layer = "layers.",
        .names = {
            [ROLE_EMBED] = "embed_tokens.weight", [ROLE_FINAL_NORM] = "norm.weight", [ROLE_HEAD] = "lm_head.weight",
            [ROLE_ATTN_NORM] = "input_layernorm.weight",
            [ROLE_Q] = "self_attn.q_proj.weight", [ROLE_K] = "self_attn.k_proj.weight",
            [ROLE_V] = "self_attn.v_proj.weight", [ROLE_QKV] = "self_attn.qkv_proj.weight",
            [ROLE_O] = "self_attn.o_proj.weight",
            [ROLE_Q_BIAS] = "self_attn.q_proj.bias", [ROLE_K_BIAS] = "self_attn.k_proj.bias",
            [ROLE_V_BIAS] = "self_attn.v_proj.bias", [ROLE_O_BIAS] = "self_attn.o_proj.bias",
            [ROLE_Q_NORM] = "self_attn.q_norm.weight", [ROLE_K_NORM] = "self_attn.k_norm.weight",
            [ROLE_MLP_NORM] = "post_attention_layernorm.weight",
            [ROLE_GATE] = "mlp.gate_proj.weight", [ROLE_UP] = "mlp.up_proj.weight",
            [ROLE_GATE_UP] = "mlp.gate_up_proj.weight", [ROLE_DOWN] = "mlp.down_proj.weight",
            [ROLE_GATE_BIAS] = "mlp.gate_proj.bias", [ROLE_UP_BIAS] = "mlp.up_proj.bias",
            [ROLE_DOWN_BIAS] = "mlp.down_proj.bias",
            [ROLE_ROUTER] = "mlp.gate.weight", [ROLE_EXPERT_GATE] = "mlp.experts.#.gate_proj.weight",
            [ROLE_EXPERT_UP] = "mlp.experts.#.up_proj.weight", [ROLE_EXPERT_DOWN] = "mlp.experts.#.down_proj.weight",
        }},
    [NAMING_GGUF] = {
        .layer = "blk.",
        .names = {
            [ROLE_EMBED] = "token_embd.weight", [ROLE_FINAL_NORM] = "output_norm.weight", [ROLE_HEAD] = "output.weight",
            [ROLE_ATTN_NORM] = "attn_norm.weight",
            [ROLE_Q] = "attn_q.weight", [ROLE_K] = "attn_k.weight", [ROLE_V] = "attn_v.weight",
            [ROLE_QKV] = "attn_qkv.weight", [ROLE_O] = "attn_output.weight",
            [ROLE_Q_BIAS] = "attn_q.bias", [ROLE_K_BIAS] = "attn_k.bias", [ROLE_V_BIAS] = "attn_v.bias",
            [ROLE_O_BIAS] = "attn_output.bias",
            [ROLE_Q_NORM] = "attn_q_norm.weight", [ROLE_K_NORM] = "attn_k_norm.weight",
            [ROLE_POST_ATTN_NORM] = "post_attention_norm.weight", [ROLE_MLP_NORM] = "ffn_norm.weight",
            [ROLE_POST_MLP_NORM] = "post_ffw_norm.weight",
            [ROLE_GATE] = "ffn_gate.weight", [ROLE_UP] = "ffn_up.weight", [ROLE_DOWN] = "ffn_down.weight",
            [ROLE_GATE_BIAS] = "ffn_gate.bias", [ROLE_UP_BIAS] = "ffn_up.bias", [ROLE_DOWN_BIAS] = "ffn_down.bias",
            [ROLE_ROUTER] = "ffn_gate_inp.weight", [ROLE_EXPERT_GATE] = "ffn_gate_exps.weight",
            [ROLE_EXPERT_UP] = "ffn_up_exps.weight", [ROLE_EXPERT_DOWN] = "ffn_down_exps.weight",
        }},
    [NAMING_BOOK] = {
        .layer = "trf_blocks.",
        .names = {
            [ROLE_EMBED] = "tok_emb.weight", [ROLE_FINAL_NORM] = "final_norm.scale", [ROLE_HEAD] = "out_head.weight",
            [ROLE_ATTN_NORM] = "norm1.scale",
            [ROLE_Q] = "att.W_query.weight", [ROLE_K] = "att.W_key.weight", [ROLE_V] = "att.W_value.weight",
            [ROLE_O] = "att.out_proj.weight",
            [ROLE_Q_BIAS] = "att.W_query.bias", [ROLE_K_BIAS] = "att.W_key.bias", [ROLE_V_BIAS] = "att.W_value.bias",
            [ROLE_O_BIAS] = "att.out_proj.bias",
            [ROLE_Q_NORM] = "att.q_norm.scale", [ROLE_K_NORM] = "att.k_norm.scale",
            [ROLE_MLP_NORM] = "norm2.scale",
            [ROLE_GATE] = "ff.fc1.weight", [ROLE_UP] = "ff.fc2.weight", [ROLE_DOWN] = "ff.fc3.weight",
        }},
};

/* How a file's names may begin. The head of a wrapped text model lies beside it or above it. */
static const struct {
    enum naming naming;
    const char *prefix, *head_prefix;
} prefixes[] = {
    {NAMING_HF, "model.", ""},
    {NAMING_HF, "language_model.model.", "language_model."},
    {NAMING_HF, "model.language_model.", ""},
    {NAMING_GGUF, "", ""},
    {NAMING_BOOK, "", ""},
};

static const char *name_of(const struct names *n, enum role role)
{
    if (n->arch && n->arch->names[n->naming])
        for (const struct role_name *p = n->arch->names[n->naming]; p->name; p++)
            if (p->role == role)
                return p->name;
    return worlds[n->naming].names[role];
}

bool names_detect(struct names *n, const struct weights *w, const struct arch *arch)
{
    for (size_t i = 0; i < sizeof(prefixes) / sizeof(prefixes[0]); i++) {
        *n = (struct names){prefixes[i].naming, prefixes[i].prefix, prefixes[i].head_prefix, arch};
        if ((n->naming == NAMING_GGUF) == (weights_format(w) == WEIGHTS_GGUF) &&
            names_find(n, w, ROLE_EMBED, 0, 0))
            return true;
    }
    enum naming fallback = weights_format(w) == WEIGHTS_GGUF ? NAMING_GGUF : NAMING_HF;
    *n = (struct names){fallback, fallback == NAMING_HF ? "model." : "", "", arch};
    return false;
}

bool names_make(const struct names *n, enum role role, int64_t layer, int64_t expert, char *out, size_t size)
{
    const char *name = name_of(n, role);
    if (!name)
        return false;
    const char *prefix = role == ROLE_HEAD ? n->head_prefix : n->prefix;
    char block[48] = "";
    if (role >= ROLE_ATTN_NORM)
        snprintf(block, sizeof(block), "%s%" PRId64 ".", worlds[n->naming].layer, layer);
    const char *mark = strchr(name, '#');
    int len = mark ? snprintf(out, size, "%s%s%.*s%" PRId64 "%s", prefix, block, (int)(mark - name), name,
                              expert, mark + 1)
                   : snprintf(out, size, "%s%s%s", prefix, block, name);
    return len > 0 && (size_t)len < size;
}

bool names_merged_experts(const struct names *n)
{
    const char *name = name_of(n, ROLE_EXPERT_GATE);
    return name && !strchr(name, '#');
}

const struct weight *names_find(const struct names *n, const struct weights *w, enum role role, int64_t layer,
                                int64_t expert)
{
    char name[160];
    return names_make(n, role, layer, expert, name, sizeof(name)) ? weights_find(w, name) : NULL;
}
