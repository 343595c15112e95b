"""Folders whose config.json must be refused before any weight is looked at: extra/refused/NAME, listed in extra/refused/refused.json.

Each has a model.safetensors with one small tensor, so that it is recognised as a model folder, and no tokenizer. `words` must all be in the
message (upper and lower case alike).
"""
import json

import torch
from safetensors.torch import save_file

from common import dump, out
from extrakit import GOLDEN, refused


def config(name, drop=(), **change):
    c = json.loads((GOLDEN / "models" / name / "config.json").read_text(encoding="utf-8"))
    c.update(change)
    return {k: v for k, v in c.items() if k not in drop}


def scaled(name, **rope):
    return config(name, rope_scaling=rope)


def new_style(name, **rope):
    return config(name, drop=("rope_scaling", "rope_theta"), rope_parameters=dict(rope, rope_theta=10000.0))


INVENTED = dict(architectures=["ZyzzyvaForCausalLM"], model_type="zyzzyva")
LONG = dict(short_factor=[1.0] * 8, long_factor=[2.0] * 8)

# name: (config.json, words, note)
CASES = {
    # weights in a form that only their own scheme can read
    "quant-gptq": (config("llama", quantization_config=dict(quant_method="gptq", bits=4, group_size=128, desc_act=False, sym=True)), ["gptq"], ""),
    "quant-awq": (config("qwen2", quantization_config=dict(quant_method="awq", bits=4, group_size=128, version="gemm", zero_point=True)), ["awq"], ""),
    "quant-fp8": (config("qwen3", quantization_config=dict(quant_method="fp8", fmt="e4m3", activation_scheme="dynamic", weight_block_size=[128, 128])),
                  ["fp8"], ""),
    "quant-bitsandbytes": (config("llama", quantization_config=dict(quant_method="bitsandbytes", load_in_4bit=True, bnb_4bit_quant_type="nf4")),
                           ["bitsandbytes"], ""),
    "quant-compressed": (config("llama", quantization_config=dict(quant_method="compressed-tensors", format="pack-quantized")),
                         ["compressed-tensors"], ""),
    # architectures
    "arch-unknown": (config("llama", **INVENTED), ["zyzzyva", "llama", "qwen3"], "the message lists the supported ones"),
    "arch-wrapper": (dict(architectures=["ZyzzyvaForConditionalGeneration"], model_type="zyzzyva", vision_config=dict(model_type="zyzzyva_vision"),
                          text_config=config("llama", model_type="zyzzyva_text")), ["zyzzyva"], "text_config of an unknown model"),
    "arch-qwen3-next": (config("qwen3", architectures=["Qwen3NextForCausalLM"], model_type="qwen3_next"), ["qwen3_next"],
                        "a name that begins like a supported one"),
    "arch-gemma3n": (config("gemma3", architectures=["Gemma3nForCausalLM"], model_type="gemma3n_text"), ["gemma3n"],
                     "a name that begins like a supported one"),
    "arch-granite": (config("llama", architectures=["GraniteForCausalLM"], model_type="granite", attention_multiplier=0.0625,
                            embedding_multiplier=12.0, logits_scaling=8.0, residual_multiplier=0.22), ["granite"], "multipliers everywhere"),
    "arch-bert": (dict(architectures=["BertForMaskedLM"], model_type="bert", hidden_size=64, num_hidden_layers=2, num_attention_heads=4,
                       intermediate_size=96, vocab_size=720), ["bert"], "an encoder"),
    "arch-none": (config("llama", drop=("architectures", "model_type")), ["model_type"], "neither architectures nor model_type"),
    "arch-classifier": (config("llama", architectures=["LlamaForSequenceClassification"]), ["LlamaForSequenceClassification"], "no language model head"),
    # rope
    "rope-longrope": (scaled("phi3", rope_type="longrope", **LONG), ["longrope"], ""),
    "rope-longrope-new": (new_style("phi3", rope_type="longrope", factor=4.0, original_max_position_embeddings=128, **LONG), ["longrope"], ""),
    "rope-dynamic": (scaled("llama", type="dynamic", factor=2.0), ["dynamic"], "the older key"),
    "rope-dynamic-new": (new_style("llama", rope_type="dynamic", factor=2.0), ["dynamic"], ""),
    "rope-mrope": (scaled("qwen2", type="mrope", mrope_section=[1, 1, 2]), ["mrope"], ""),
    "rope-unknown": (scaled("llama", rope_type="zigzag", factor=2.0), ["zigzag"], ""),
    "rope-unknown-new": (new_style("llama", rope_type="zigzag", factor=2.0), ["zigzag"], ""),
    "rope-no-factor": (scaled("llama", rope_type="linear"), ["factor"], ""),
    "rope-factor-zero": (scaled("llama", rope_type="yarn", factor=0.0, original_max_position_embeddings=32), ["factor"], ""),
    "rope-theta-zero": (config("llama", rope_theta=0), ["rope_theta"], ""),
    # options that change the mathematics
    "act-relu2": (config("llama", hidden_act="relu2"), ["relu2"], ""),
    "act-gemma-relu": (config("gemma3", hidden_activation="relu"), ["hidden_activation", "relu"], ""),
    "layer-type": (config("gemma3", layer_types=["sliding_attention", "linear_attention", "full_attention", "sliding_attention"]),
                   ["linear_attention"], ""),
    "layer-types-short": (config("gemma3", layer_types=["sliding_attention", "full_attention"]), ["layer_types"], "two entries for four layers"),
    "bidirectional": (config("gemma3", use_bidirectional_attention=True), ["use_bidirectional_attention"], ""),
    "attn-softcap": (config("gemma3", attn_logit_softcapping=50.0), ["attn_logit_softcapping"],
                     "the published Gemma 3 have null; transformers 5 stores a value and never applies it"),
    # sizes
    "no-hidden-size": (config("llama", drop=("hidden_size",)), ["hidden_size"], ""),
    "hidden-size-text": (config("llama", hidden_size="64"), ["hidden_size"], "a string"),
    "hidden-size-zero": (config("llama", hidden_size=0), ["hidden_size"], ""),
    "layers-negative": (config("llama", num_hidden_layers=-2), ["num_hidden_layers"], ""),
    "layers-huge": (config("llama", num_hidden_layers=2 ** 40), ["num_hidden_layers"], "must be refused at once, with no large allocation"),
    "heads-odd": (config("llama", num_attention_heads=4, num_key_value_heads=3), ["num_key_value_heads"], "4 heads over 3 kv heads"),
    "head-dim-odd": (config("qwen3", head_dim=31), ["head_dim"], "rotary pairs need an even number"),
    "experts-too-many": (config("qwen3-moe", num_experts_per_tok=7), ["num_experts_per_tok"], "7 of 6 experts"),
    # the file itself
    "json-cut": ('{"architectures": ["LlamaForCausalLM"], "model_type": "lla', ["config.json"], "ends inside a string"),
    "json-array": ("[1, 2, 3]\n", ["config.json"], "an array"),
    "json-empty": ("", ["config.json"], "no bytes"),
}


def main():
    rows = []
    for name, (body, words, note) in CASES.items():
        path = out("refused", name, "config.json")
        if isinstance(body, str):
            path.write_text(body, encoding="utf-8")
        else:
            dump(path, body)
        save_file({"model.norm.weight": torch.ones(4)}, str(path.parent / "model.safetensors"), metadata={"format": "pt"})
        rows.append(refused("refused", f"refused/{name}", words, note))
    dump(out("refused", "refused.json"), {"folders": [dict(file=r["file"], words=r["error"], note=r["note"]) for r in rows]},
                rows=("folders",))
    return {"refused": rows}
