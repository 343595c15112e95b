"""Linear and YaRN rope scaling: both styles of config.json, every optional setting, and the GGUF keys.

The original lengths (16 to 128) lie well below the longest prompts. The explicit factor never equals max_position_embeddings / original,
so an engine that computes the factor from the lengths is found out. Each folder is read back by transformers from its config.json, and
must give the same logits bit for bit as the parameters stated here.
"""
import transformers

import ggufkit
import modelkit
from common import out
from extra_gguf import weights
from extrakit import EXTRA, QWEN, SPM, TEMPLATES, row

QWEN3 = dict(arch="Qwen3", dtype="bf16", tokenizer="qwen3", tok_vocab=480, std_embed=0.35, final_scale=3.0, config_drop=["layer_types"],
             config=dict(vocab_size=480, hidden_size=48, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2,
                         num_key_value_heads=1, head_dim=32, max_position_embeddings=512, rms_norm_eps=1e-6, tie_word_embeddings=True, **QWEN))
LLAMA = dict(arch="Llama", dtype="bf16", tokenizer="llama2", tok_vocab=480, final_scale=3.0,
             config=dict(vocab_size=480, hidden_size=64, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2,
                         num_key_value_heads=1, max_position_embeddings=512, rms_norm_eps=1e-5, tie_word_embeddings=True, **SPM))
GEMMA = dict(arch="Gemma3", dtype="bf16", tokenizer="gemma", tok_vocab=500, std=0.25, std_embed=0.1, std_qk=0.25, final_scale=8.0,
             config_drop=["layer_types", "_sliding_window_pattern"],
             config=dict(vocab_size=500, hidden_size=32, intermediate_size=48, num_hidden_layers=6, num_attention_heads=2,
                         num_key_value_heads=1, head_dim=32, query_pre_attn_scalar=32, max_position_embeddings=512, sliding_window=8,
                         rms_norm_eps=1e-6, pad_token_id="<pad>", eos_token_id="<eos>", bos_token_id="<bos>"))
BASE = {"qwen3": (QWEN3, 3000, 1e6), "llama": (LLAMA, 3100, 10000.0), "gemma3": (GEMMA, 3200, 1e6)}

linear = lambda **k: dict(rope_type="linear", **k)
yarn = lambda **k: dict(rope_type="yarn", **k)

# name: (family, style of config.json, rope parameters but the base, what stands in config.json where it is not simply those, note)
CASES = {
    "linear-llama": ("llama", "hub", linear(factor=4.0), dict(rope_scaling=dict(type="linear", factor=4.0)),
                     "rope_scaling with the older key type"),
    "linear-qwen3-new": ("qwen3", "new", linear(factor=2.5), {}, "rope_parameters"),
    "linear-gemma3": ("gemma3", "hub", linear(factor=8.0), dict(rope_scaling=dict(rope_type="linear", factor=8.0), sliding_window_pattern=6),
                      "rope_scaling scales the global layer (5) alone; the window layers keep base 10000 unscaled"),
    "yarn-qwen3": ("qwen3", "hub", yarn(factor=4.0, original_max_position_embeddings=32), {},
                   "rope_scaling; attention factor 0.1 ln(4) + 1"),
    "yarn-qwen3-new": ("qwen3", "new", yarn(factor=4, original_max_position_embeddings=32), {},
                       "the same as yarn-qwen3 in rope_parameters, with an integer factor"),
    "yarn-llama-attention": ("llama", "hub", yarn(factor=8.0, original_max_position_embeddings=32, attention_factor=0.8), {},
                             "attention_factor replaces the computed one"),
    "yarn-llama-beta": ("llama", "hub", yarn(factor=8.0, original_max_position_embeddings=128, beta_fast=8.0, beta_slow=2.0), {},
                        "beta_fast and beta_slow"),
    "yarn-qwen3-mscale": ("qwen3", "new", yarn(factor=16.0, original_max_position_embeddings=16, mscale=1.0, mscale_all_dim=0.4), {},
                          "mscale and mscale_all_dim: (0.1 ln(16) + 1) / (0.04 ln(16) + 1)"),
    "yarn-qwen3-mscale-alone": ("qwen3", "hub", yarn(factor=16.0, original_max_position_embeddings=16, mscale=0.3), {},
                                "mscale without mscale_all_dim has no effect"),
    "yarn-llama-no-truncate": ("llama", "new", yarn(factor=8.0, original_max_position_embeddings=128, truncate=False), {},
                               "the ends of the ramp are not rounded"),
    "yarn-qwen3-no-original": ("qwen3", "hub", yarn(factor=4.0, original_max_position_embeddings=512),
                               dict(rope_scaling=dict(rope_type="yarn", factor=4.0)),
                               "no original_max_position_embeddings: max_position_embeddings takes its place"),
    "yarn-llama-top-original": ("llama", "hub", yarn(factor=4.0, original_max_position_embeddings=32),
                                dict(rope_scaling=dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=128),
                                     original_max_position_embeddings=32),
                                "original_max_position_embeddings at the top of config.json goes before the one in rope_scaling"),
}
# GGUF twins. A GGUF that states an attention factor is left out: what the converter writes and what llama.cpp reads differ there.
GGUF = {"linear-llama": ("llama", ("llama", "default"), "inst"), "linear-gemma3": ("gemma3", ("llama", "default"), "turns"),
        "yarn-qwen3": ("qwen3", ("gpt2", "qwen2"), "chatml-think"), "yarn-llama-beta": ("llama", ("llama", "default"), "inst")}
KEYS = {"linear": "rope.scaling.type and .factor", "yarn": "rope.scaling.type, .factor, .original_context_length"}


def spec_of(family, style, rope, config):
    base, seed, theta = BASE[family]
    rope = dict(rope, rope_theta=theta)
    if family == "gemma3":
        rope = dict(full_attention=rope, sliding_attention=dict(rope_type="default", rope_theta=10000.0))
    return dict(base, seed=seed, style=style, config_extra=config, config=dict(base["config"], rope_parameters=rope))


def main():
    rows = []
    for name, (family, style, rope, config, note) in CASES.items():
        modelkit.produce("rope-" + name, spec_of(family, style, rope, config), TEMPLATES)
        rows.append(row("rope", "models/rope-" + name, "rope-" + name, note))
        if name in GGUF:
            arch, tok, chat = GGUF[name]
            folder, path = EXTRA / "models" / ("rope-" + name), out("gguf", f"rope-{name}-bf16.gguf")
            ggufkit.write(path, arch, transformers.AutoConfig.from_pretrained(str(folder)), weights(folder), "BF16", folder, tok,
                          chat=(TEMPLATES / (chat + ".jinja")).read_text(encoding="utf-8"))
            more = ", .yarn_beta_fast, .yarn_beta_slow" if "beta_fast" in rope else ""
            rows.append(row("rope", f"gguf/{path.name}", "rope-" + name, f"arch {arch}: {KEYS[rope['rope_type']]}{more}"))
    return {"rope": rows}
