"""Folders with mixed dtypes, with options that not every engine has, and broken ones.

Options rows have both `expected` and `error`: an engine either computes these values or refuses with a message that has the words.
"""
import torch

import modelkit
import tinykit
from common import dump, out
from extrakit import QWEN, SPM, TEMPLATES, copy_settings, refused, row
from safetensors.torch import save_file

QWEN2 = dict(arch="Qwen2", dtype="f32", tokenizer="qwen2", tok_vocab=400, seed=2300, std=0.25, final_scale=4.0, config_drop=["layer_types"],
             config=dict(vocab_size=400, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
                         num_key_value_heads=2, max_position_embeddings=512, rope_parameters=dict(rope_type="default", rope_theta=1e6),
                         rms_norm_eps=1e-6, tie_word_embeddings=True, **QWEN))
BROKEN = dict(arch="Llama", dtype="bf16", tokenizer="llama2", tok_vocab=448, seed=2400,
              config=dict(vocab_size=448, hidden_size=16, intermediate_size=24, num_hidden_layers=1, num_attention_heads=2,
                          num_key_value_heads=1, max_position_embeddings=512, rope_parameters=dict(rope_type="default", rope_theta=10000.0),
                          rms_norm_eps=1e-5, tie_word_embeddings=True, **SPM))
WINDOW = dict(arch="Qwen3", dtype="bf16", tokenizer="qwen3", tok_vocab=400, seed=2500, std_embed=0.4, final_scale=4.0, config_drop=["layer_types"],
              config=dict(vocab_size=400, hidden_size=32, intermediate_size=48, num_hidden_layers=3, num_attention_heads=2,
                          num_key_value_heads=1, head_dim=16, max_position_embeddings=512, rms_norm_eps=1e-6, tie_word_embeddings=True,
                          rope_parameters=dict(rope_type="default", rope_theta=1e6), use_sliding_window=True, sliding_window=8,
                          max_window_layers=1, **QWEN))
SOFTCAP = dict(arch="Gemma3", dtype="bf16", tokenizer="gemma", tok_vocab=500, seed=2600, std=0.25, std_embed=0.15, std_qk=0.5, final_scale=12.0,
               config_drop=["_sliding_window_pattern"],
               config=dict(vocab_size=500, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2,
                           num_key_value_heads=1, head_dim=16, query_pre_attn_scalar=16, max_position_embeddings=512, sliding_window=8,
                           rms_norm_eps=1e-6, layer_types=["sliding_attention", "full_attention"], final_logit_softcapping=15.0,
                           rope_parameters=dict(full_attention=dict(rope_type="default", rope_theta=1e6),
                                                sliding_attention=dict(rope_type="default", rope_theta=10000.0)),
                           pad_token_id="<pad>", eos_token_id="<eos>", bos_token_id="<bos>"))
PARTIAL = dict(arch="Phi3", dtype="bf16", tokenizer="phi3", tok_vocab=448, seed=2700, std=0.25, final_scale=3.0,
               config=dict(vocab_size=448, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2,
                           num_key_value_heads=1, max_position_embeddings=512, original_max_position_embeddings=512, rms_norm_eps=1e-5,
                           tie_word_embeddings=False, partial_rotary_factor=0.75,
                           rope_parameters=dict(rope_type="default", rope_theta=10000.0, partial_rotary_factor=0.75), bos_token_id="<s>",
                           eos_token_id="<|endoftext|>", pad_token_id="<|endoftext|>"))
MOE = dict(arch="Qwen3Moe", dtype="bf16", tokenizer="qwen3", tok_vocab=400, seed=2800, std=0.3, final_scale=4.0,
           config=dict(vocab_size=400, hidden_size=32, intermediate_size=48, moe_intermediate_size=24, num_hidden_layers=2,
                       num_attention_heads=2, num_key_value_heads=1, head_dim=16, num_experts=5, num_experts_per_tok=2,
                       norm_topk_prob=False, decoder_sparse_step=1, mlp_only_layers=[], max_position_embeddings=512, rms_norm_eps=1e-6,
                       tie_word_embeddings=False, rope_parameters=dict(rope_type="default", rope_theta=1e6), **QWEN))
OPTIONS = {
    "qwen3-window": (WINDOW, ["sliding_window"], "use_sliding_window: layers 1 and 2 (max_window_layers 1 and up) see 8 tokens"),
    "gemma3-softcap": (SOFTCAP, ["final_logit_softcapping"], "final_logit_softcapping 15"),
    "phi3-partial": (PARTIAL, ["partial_rotary_factor"], "partial_rotary_factor 0.75: 12 of 16 dimensions of a head rotate"),
    "qwen3-moe-no-norm": (MOE, ["norm_topk_prob"], "norm_topk_prob false: the weights of the chosen experts do not add up to 1"),
}


def mixed():
    """Norms in f16, matrices in bf16, biases in f32: one file with three dtypes."""
    folder, spec, n_ids, _, model = tinykit.folder_of(QWEN2, "mixed-dtypes")
    t = {}
    for k, p in model.named_parameters():
        kind = torch.float16 if "norm" in k else torch.float32 if k.endswith("bias") else torch.bfloat16
        t[k] = p.data.to(kind)
        p.data.copy_(t[k].float())
    model.tie_weights()
    tinykit.write(folder, t)
    prompts, paths = modelkit.choose_prompts(model, n_ids, spec["seed"])
    modelkit.expected(model, spec, "mixed-dtypes", prompts, paths, dict(model="models/mixed-dtypes", arch="Qwen2", dtype="mixed"))
    modelkit.reload_check(folder, spec, "mixed-dtypes", prompts)
    return [row("dtypes", "models/mixed-dtypes", "mixed-dtypes", "norms f16, matrices bf16, biases f32; config.json says float32")]


def options():
    rows = []
    for name, (spec, words, note) in OPTIONS.items():
        modelkit.produce(name, spec, TEMPLATES)
        rows.append(row("options", "models/" + name, name, note, error=words))
    return rows


def broken():
    folder, spec, _, _, model = tinykit.folder_of(BROKEN, "broken/shard-missing")
    t = {k: v for k, v in tinykit.tensors_of(model, spec).items() if k != "lm_head.weight"}
    names = sorted(t)
    cut = [names[:6], names[6:]]
    shard = "model-{:05d}-of-00002.safetensors".format

    def write(name, parts, index):
        """parts: tensors of each shard, None for one that is not there; index: tensor -> shard number."""
        d = out("models", "broken", name, "x").parent
        if d != folder:
            copy_settings(folder, d)
        for i, part in enumerate(parts):
            if part is not None:
                save_file(part, str(d / shard(i + 1)), metadata={"format": "pt"})
        dump(d / "model.safetensors.index.json", {"metadata": {"total_size": sum(v.numel() * 2 for v in t.values())},
                                                  "weight_map": {k: shard(i) for k, i in index.items()}})

    part = [{k: t[k] for k in c} for c in cut]
    index = {k: i + 1 for i, c in enumerate(cut) for k in c}
    gone = cut[1][-1]
    write("shard-missing", [part[0], None], index)
    write("tensor-missing", [part[0], {k: v for k, v in part[1].items() if k != gone}], index)
    write("tensor-twice", [dict(part[0], **{gone: part[1][gone] + 1}), part[1]], index)
    write("shards-good", part, index)
    one = lambda name, tensors: (copy_settings(folder, d := out("models", "broken", name, "x").parent), tinykit.write(d, tensors))
    up, q, embed = "model.layers.0.mlp.up_proj.weight", "model.layers.0.self_attn.q_proj.weight", "model.embed_tokens.weight"
    one("no-up-proj", {k: v for k, v in t.items() if k != up})
    one("q-shape", dict(t, **{q: t[q][:8].clone()}))
    one("dtype-f8", dict(t, **{embed: t[embed].to(torch.float8_e4m3fn)}))
    at = "models/broken/"
    return [refused("broken", at + "shard-missing", [shard(2)], "the index names a shard that is not there"),
            refused("broken", at + "tensor-missing", [gone], "the index names a tensor that its shard does not have"),
            refused("broken", at + "tensor-twice", [gone], "both shards have this tensor, with different values"),
            dict(group="broken", file="extra/" + at + "shards-good", note="control: the same two shards, whole; must load"),
            refused("broken", at + "no-up-proj", [up], "a single file without this tensor"),
            refused("broken", at + "q-shape", [q], "8 rows where config.json makes it 16"),
            refused("broken", at + "dtype-f8", [embed, "F8_E4M3"], "a dtype that needs scales nobody gives")]


def main():
    return {"dtypes": mixed(), "options": options(), "broken": broken()}
