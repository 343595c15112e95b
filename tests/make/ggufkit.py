"""Writes GGUF files as llama.cpp's converter names and lays out things, for the architectures of golden/extra."""
import gguf
import numpy as np

import kquant
from make_containers import deinterleave, interleave, vocabulary

FTYPE = {"F32": 0, "F16": 1, "Q4_0": 2, "Q8_0": 7, "Q2_K": 10, "Q3_K": 11, "BF16": 32}
TOP = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
BLOCK = {"input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
         "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
         "post_attention_layernorm": "ffn_norm", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
         "self_attn.qkv_proj": "attn_qkv", "mlp.gate_up_proj": "ffn_up", "mlp.gate": "ffn_gate_inp"}
GEMMA = {"post_attention_layernorm": "post_attention_norm", "pre_feedforward_layernorm": "ffn_norm",
         "post_feedforward_layernorm": "post_ffw_norm"}
EXPERT = {"gate_proj": "ffn_gate_exps", "up_proj": "ffn_up_exps", "down_proj": "ffn_down_exps"}


def gguf_name(arch, hf):
    stem, kind = hf.rsplit(".", 1)
    if stem in TOP:
        return f"{TOP[stem]}.{kind}"
    _, _, layer, rest = stem.split(".", 3)
    return f"blk.{layer}.{(GEMMA.get(rest) if arch == 'gemma3' else None) or BLOCK[rest]}.{kind}"


def merged(arch, tensors):
    """(GGUF name, Hugging Face name or None, values) in file order; the experts of a layer become one tensor [experts, rows, columns]."""
    plain, experts = [], {}
    for hf, x in tensors.items():
        part = hf.split(".")
        if "experts" in part:
            experts.setdefault((int(part[2]), EXPERT[part[6]]), {})[int(part[5])] = x
        else:
            plain.append((gguf_name(arch, hf), hf, x))
    stacks = [(f"blk.{layer}.{name}.weight", None, np.stack([e[i] for i in range(len(e))])) for (layer, name), e in experts.items()]
    place = lambda row: (0, int(row[0].split(".")[1])) if row[0].startswith("blk.") else (-1 if row[0].startswith("token") else 1, 0)
    return sorted(plain + stacks, key=place)


def settings(w, arch, cfg):
    """The keys that the converter writes for each architecture."""
    hd = getattr(cfg, "head_dim", None) or cfg.hidden_size // cfg.num_attention_heads
    w.add_block_count(cfg.num_hidden_layers)
    w.add_context_length(cfg.max_position_embeddings)
    w.add_embedding_length(cfg.hidden_size)
    w.add_feed_forward_length(cfg.intermediate_size)
    w.add_head_count(cfg.num_attention_heads)
    w.add_head_count_kv(cfg.num_key_value_heads)
    w.add_layer_norm_rms_eps(cfg.rms_norm_eps)
    rope = cfg.rope_parameters
    rope = rope.get("full_attention", rope)
    w.add_rope_freq_base(rope["rope_theta"])
    if arch in ("qwen3", "qwen3moe", "gemma3") or hd != cfg.hidden_size // cfg.num_attention_heads:
        w.add_key_length(hd)
        w.add_value_length(hd)
    if arch == "llama":
        w.add_vocab_size(cfg.vocab_size)
    if arch in ("llama", "phi3"):
        w.add_rope_dimension_count(hd)
    if arch == "phi3":
        w.add_rope_scaling_orig_ctx_len(cfg.original_max_position_embeddings)
        w.add_sliding_window(cfg.sliding_window or 0)
    if arch == "gemma3":
        w.add_sliding_window(cfg.sliding_window)     # neither the window layers' rope base nor their pattern is written
    if arch == "qwen3moe":
        w.add_expert_count(cfg.num_experts)
        w.add_expert_used_count(cfg.num_experts_per_tok)
        w.add_expert_feed_forward_length(cfg.moe_intermediate_size)
    if rope["rope_type"] in ("linear", "yarn"):
        w.add_rope_scaling_type(gguf.RopeScalingType(rope["rope_type"]))
        w.add_rope_scaling_factor(rope["factor"])
    if rope["rope_type"] == "yarn":
        w.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
        if rope.get("beta_fast"):
            w.add_rope_scaling_yarn_beta_fast(rope["beta_fast"])
        if rope.get("beta_slow"):
            w.add_rope_scaling_yarn_beta_slow(rope["beta_slow"])


def write(path, arch, cfg, tensors, kind, folder, tok, pick=None, chat=None):
    """Writes a GGUF of `tensors` ({Hugging Face name: f32 values}); matrices get the type `kind`, or what pick(GGUF name) says.

    `folder` holds tokenizer.json; `tok` is (vocabulary model, pre-tokeniser). Returns the values that the file holds, by Hugging Face
    name (experts left out), rows in Hugging Face order.
    """
    w = gguf.GGUFWriter(str(path), arch)
    w.add_type("model")
    w.add_name(f"{arch} tiny random")
    w.add_file_type(FTYPE[kind])
    w.add_quantization_version(2)
    settings(w, arch, cfg)
    vocabulary(w, folder, cfg, *tok)
    w.add_bos_token_id(cfg.bos_token_id)
    w.add_eos_token_id(cfg.eos_token_id)
    if cfg.pad_token_id is not None:
        w.add_pad_token_id(cfg.pad_token_id)
    w.add_add_bos_token(tok[0] == "llama")
    if arch == "gemma3":
        w.add_add_eos_token(False)
        w.add_add_space_prefix(False)
    if chat:
        w.add_chat_template(chat)
    values = {}
    for name, hf, x in merged(arch, tensors):
        turn = {"attn_q.weight": cfg.num_attention_heads, "attn_k.weight": cfg.num_key_value_heads}.get(name.split(".", 2)[-1])
        turn = turn if arch == "llama" else None
        x = interleave(x, turn) if turn else x
        if arch == "gemma3" and name.endswith("norm.weight"):
            x = x + np.float32(1)
        this = "F32" if x.ndim == 1 or "ffn_gate_inp" in name else (pick and pick(name)) or kind
        if this == "F32":
            w.add_tensor(name, np.ascontiguousarray(x, np.float32))
            back = x
        else:
            raw, t, back = kquant.quantise(x, this)
            if this == "F16":
                w.add_tensor(name, np.ascontiguousarray(x.astype(np.float16)))
            else:
                w.add_tensor(name, raw, raw_dtype=t)
        if hf:
            values[hf] = np.ascontiguousarray(deinterleave(back, turn) if turn else back)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    return values
