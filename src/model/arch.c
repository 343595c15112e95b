/* THE table of architectures: a new one is a row here (and its names, where they
 * differ).  Sources: the configuration classes and modules of transformers for
 * folders; llama.cpp's constants for GGUF. */
#include "model/arch.h"

#include <string.h>

static const char *const keys_qwen3[] = {"attention_bias", "sliding_window", "use_sliding_window", "max_window_layers", NULL};
static const char *const keys_qwen2[] = {"sliding_window", "use_sliding_window", "max_window_layers", NULL};
static const char *const keys_llama[] = {"attention_bias", "mlp_bias", NULL};
static const char *const keys_mistral[] = {"sliding_window", NULL};
static const char *const keys_phi3[] = {"sliding_window", "partial_rotary_factor", NULL};
static const char *const keys_gemma3[] = {
    "attention_bias", "final_logit_softcapping", "hidden_activation", "query_pre_attn_scalar",
    "rope_local_base_freq", "sliding_window", "sliding_window_pattern", "_sliding_window_pattern", NULL};
static const char *const keys_qwen3_moe[] = {
    "attention_bias", "decoder_sparse_step", "mlp_only_layers", "moe_intermediate_size",
    "norm_topk_prob", "num_experts", "num_local_experts", "num_experts_per_tok", "sliding_window",
    "use_sliding_window", "max_window_layers", NULL};

static const char *const gemma3_others[] = {"vision_tower.", "multi_modal_projector.", "model.vision_tower.",
                                            "model.multi_modal_projector.", NULL};

static const struct role_name gemma3_hf[] = {
    {ROLE_POST_ATTN_NORM, "post_attention_layernorm.weight"},
    {ROLE_MLP_NORM, "pre_feedforward_layernorm.weight"},
    {ROLE_POST_MLP_NORM, "post_feedforward_layernorm.weight"},
    {ROLE_COUNT, NULL}};
static const struct role_name phi3_gguf[] = {{ROLE_GATE_UP, "ffn_up.weight"}, {ROLE_COUNT, NULL}};

static const struct arch table[] = {
    {.name = "qwen3", .gguf = "qwen3", .hf_class = "Qwen3ForCausalLM", .hf_type = "qwen3",
     .act_key = "hidden_act", .json_keys = keys_qwen3, .act = OP_SILU, .bias = BIAS_FLAG,
     .window = WINDOW_FROM_LAYER, .qk_norm = true,
     .defaults = {.head_dim = 128, .n_ctx = 32768, .window = 4096, .eps = 1e-6, .theta = 1e4}},
    {.name = "qwen2", .gguf = "qwen2", .hf_class = "Qwen2ForCausalLM", .hf_type = "qwen2",
     .act_key = "hidden_act", .json_keys = keys_qwen2, .act = OP_SILU, .bias = BIAS_QKV,
     .window = WINDOW_FROM_LAYER,
     .defaults = {.n_ctx = 32768, .window = 4096, .eps = 1e-6, .theta = 1e4}},
    {.name = "llama", .gguf = "llama", .hf_class = "LlamaForCausalLM", .hf_type = "llama",
     .act_key = "hidden_act", .json_keys = keys_llama, .act = OP_SILU, .bias = BIAS_FLAG, .mlp_bias_flag = true,
     .gguf_pairs = OP_PAIRS_INTERLEAVED, .gguf_window = WINDOW_ALL,
     .defaults = {.n_ctx = 2048, .eps = 1e-6, .theta = 1e4}},
    {.name = "mistral", .hf_class = "MistralForCausalLM", .hf_type = "mistral",
     .act_key = "hidden_act", .json_keys = keys_mistral, .act = OP_SILU, .window = WINDOW_ALL,
     .defaults = {.n_kv_heads = 8, .n_ctx = 131072, .window = 4096, .eps = 1e-6, .theta = 1e4}},
    {.name = "gemma3", .gguf = "gemma3", .hf_class = "Gemma3ForCausalLM", .hf_type = "gemma3_text",
     .wrap_class = "Gemma3ForConditionalGeneration", .wrap_type = "gemma3", .wrap_others = gemma3_others,
     .act_key = "hidden_activation", .json_keys = keys_gemma3, .names = {[NAMING_HF] = gemma3_hf},
     .act = OP_GELU_TANH, .bias = BIAS_FLAG, .window = WINDOW_PATTERN, .gguf_window = WINDOW_PATTERN,
     .qk_norm = true, .post_norms = true, .norm_add_one = true, .scale_embed = true, .query_scalar = true, .logit_softcap = true,
     .gguf_by_heads = 62, /* the 27B: no key of the file says so */
     .defaults = {.n_vocab = 262208, .n_heads = 8, .n_kv_heads = 4, .head_dim = 256, .n_ctx = 131072, .window = 4096,
                  .pattern = 6, .eps = 1e-6, .theta = 1e6, .theta_local = 1e4, .query_scalar = 256, .tied = true}},
    {.name = "phi3", .gguf = "phi3", .hf_class = "Phi3ForCausalLM", .hf_type = "phi3",
     .act_key = "hidden_act", .json_keys = keys_phi3, .names = {[NAMING_GGUF] = phi3_gguf},
     .act = OP_SILU, .window = WINDOW_ALL, .gguf_window = WINDOW_ALL, .fused = true, .partial_rot = true,
     .defaults = {.n_ctx = 4096, .eps = 1e-5, .theta = 1e4}},
    {.name = "qwen3_moe", .gguf = "qwen3moe", .hf_class = "Qwen3MoeForCausalLM", .hf_type = "qwen3_moe",
     .act_key = "hidden_act", .json_keys = keys_qwen3_moe, .act = OP_SILU, .bias = BIAS_FLAG,
     .window = WINDOW_ALL, .qk_norm = true, .moe = true,
     .defaults = {.n_ctx = 32768, .window = 4096, .eps = 1e-6, .theta = 1e4}},
};

size_t arch_count(void)
{
    return sizeof(table) / sizeof(table[0]);
}

const struct arch *arch_at(size_t i)
{
    return &table[i];
}

const struct arch *arch_by_name(const char *name)
{
    for (size_t i = 0; i < arch_count(); i++)
        if (strcmp(table[i].name, name) == 0)
            return &table[i];
    return NULL;
}

const struct arch *arch_by_gguf(const char *s, size_t len)
{
    for (size_t i = 0; i < arch_count(); i++)
        if (table[i].gguf && strlen(table[i].gguf) == len && memcmp(table[i].gguf, s, len) == 0)
            return &table[i];
    return NULL;
}

const struct arch *arch_by_class(const char *hf_class, bool *wrapped)
{
    for (size_t i = 0; i < arch_count(); i++) {
        *wrapped = table[i].wrap_class && strcmp(table[i].wrap_class, hf_class) == 0;
        if (*wrapped || strcmp(table[i].hf_class, hf_class) == 0)
            return &table[i];
    }
    return NULL;
}

const struct arch *arch_by_type(const char *model_type, bool *wrapped)
{
    for (size_t i = 0; i < arch_count(); i++) {
        *wrapped = table[i].wrap_type && strcmp(table[i].wrap_type, model_type) == 0;
        if (*wrapped || strcmp(table[i].hf_type, model_type) == 0)
            return &table[i];
    }
    return NULL;
}
