/* Keys of configurations that no reader knows: which may be passed over.
 *
 * Rule: a key of the first list is harmless whatever it says.  Any other unknown
 * key is passed over when its value is neutral (null, false, 0, empty; 1 for a
 * multiplier) or when its name has none of the words below; with such a word it
 * may change the mathematics and is refused.  So a vendor's label does no harm,
 * and an option of next year's models is not silently dropped. */
#include <string.h>

#include "model/config_parts.h"

static const char *const harmless[] = {
    /* about the file and the program that wrote it */
    "_name_or_path", "architectures", "auto_map", "custom_pipelines", "dtype", "model_type",
    "torch_dtype", "transformers_version", "transformers.js_config", "unsloth_fixed",
    "unsloth_version", "use_bfloat16", "is_llama_config", "_commit_hash",
    /* training */
    "attention_dropout", "attention_probs_dropout_prob", "attn_pdrop", "embd_pdrop", "resid_pdrop",
    "hidden_dropout", "hidden_dropout_prob", "initializer_range", "gradient_checkpointing",
    "output_router_logits", "router_aux_loss_coef", "router_jitter_noise", "pretraining_tp",
    "use_cache", "cache_implementation", "input_jitter_noise",
    /* how transformers runs and labels it */
    "_attn_implementation", "_attn_implementation_autoset", "attn_implementation",
    "_experts_implementation", "experts_implementation", "_flash_attn_2_enabled", "use_flash_attn",
    "use_flash_attention", "use_flash_attention_2", "chunk_size_feed_forward", "id2label",
    "label2id", "finetuning_task", "problem_type", "task_specific_params",
    "keys_to_ignore_at_inference", "output_attentions", "output_hidden_states", "return_dict",
    "torchscript", "pruned_heads", "num_logits_to_keep", "is_decoder",
    "cross_attention_hidden_size", "max_length", "temperature", "top_k", "top_p",
    /* ids settled elsewhere, parts of a wrapper's other halves */
    "pad_token_id", "unk_token_id", "sep_token_id", "mask_token_id", "decoder_start_token_id",
    "vision_config", "mm_tokens_per_image", "boi_token_index", "eoi_token_index",
    "image_token_index", "image_token_id", "boi_token_id", "eoi_token_id",
};

static const char *const words[] = {
    "activation", "adapter", "alibi", "attention", "attn", "bias", "bidirectional", "causal",
    "clamp", "clip", "cross", "embed", "encoder", "expert", "factor", "gate", "gating", "layer",
    "logit", "lora", "moe", "mtp", "multiplier", "mup", "nextn", "norm", "pool", "position", "qk",
    "quant", "residual", "rope", "rotary", "router", "scal", "shared", "sink", "sliding", "softcap",
    "sparse", "ssm", "temperature", "window",
};

static bool contains(const char *s, size_t len, const char *word)
{
    size_t n = strlen(word);
    for (size_t i = 0; i + n <= len; i++)
        if (memcmp(s + i, word, n) == 0)
            return true;
    return false;
}

bool config_key_harmless(const char *key, size_t len)
{
    for (size_t i = 0; i < sizeof(harmless) / sizeof(harmless[0]); i++)
        if (strlen(harmless[i]) == len && memcmp(harmless[i], key, len) == 0)
            return true;
    return false;
}

bool config_key_suspicious(const char *key, size_t len)
{
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        if (contains(key, len, words[i]))
            return true;
    return false;
}

bool config_key_factor(const char *key, size_t len)
{
    return contains(key, len, "multiplier") || contains(key, len, "factor") || contains(key, len, "scal");
}
