"""Reads golden/extra back with other readers, and shows which mistakes its numbers would notice. Usage: check_extra.py"""
import json

import extrakit
import gguf
import numpy as np
import torch
import transformers

import modelkit
from extrakit import EXTRA, GOLDEN

# folder: mistakes, as what to change in the rope parameters (of the full layers) or, with a leading dot, in the configuration
NONE = dict(rope_type="default")
MISTAKES = {
    "rope-linear-llama": [NONE, dict(factor=8.0)],
    "rope-linear-qwen3-new": [NONE],
    "rope-linear-gemma3": [NONE, {".all": 8.0}],
    "rope-yarn-qwen3": [NONE, dict(rope_type="linear"), dict(factor=16.0), dict(attention_factor=1.0), dict(original_max_position_embeddings=512)],
    "rope-yarn-llama-attention": [dict(attention_factor=None), dict(attention_factor=1.0)],
    "rope-yarn-llama-beta": [dict(beta_fast=None), dict(beta_slow=None), dict(truncate=False)],
    "rope-yarn-qwen3-mscale": [dict(mscale=None), dict(mscale_all_dim=None)],
    "rope-yarn-qwen3-mscale-alone": [dict(mscale_all_dim=1.0)],
    "rope-yarn-llama-no-truncate": [dict(truncate=True)],
    "rope-yarn-qwen3-no-original": [NONE, dict(original_max_position_embeddings=32)],
    "rope-yarn-llama-top-original": [{".original": 128}],
    "qwen3-window": [{".layer_types": ["full_attention"] * 3}, {".layer_types": ["sliding_attention"] * 3}],
    "gemma3-softcap": [{".final_logit_softcapping": None}],
    "phi3-partial": [dict(partial_rotary_factor=1.0)],
    "qwen3-moe-no-norm": [{".norm_topk_prob": True}],
    "gemma3-7": [{".layer_types": ["sliding_attention"] * 7}, {".layer_types": ["full_attention"] * 7}, {".query_pre_attn_scalar": 24}],
}


def spoiled(folder, change):
    """The folder's model with a mistake in it."""
    cfg = transformers.AutoConfig.from_pretrained(str(folder))
    rope = cfg.rope_parameters.get("full_attention", cfg.rope_parameters)
    for key, value in change.items():
        if key == ".all":
            cfg.rope_parameters["sliding_attention"].update(rope_type="linear", factor=value)
        elif key == ".original":
            cfg.original_max_position_embeddings = value
            rope["original_max_position_embeddings"] = value
        elif key.startswith("."):
            setattr(cfg, key[1:], value)
        else:
            rope[key] = value
    m = transformers.AutoModelForCausalLM.from_pretrained(str(folder), config=cfg, dtype=torch.float32, **modelkit.EAGER).eval()
    return m


def sensitivity():
    for name, mistakes in MISTAKES.items():
        e = json.loads((EXTRA / "expected" / (name + ".json")).read_text())
        want = np.load(EXTRA / "expected" / e["logits_f64"])
        bound = [max(5e-4, 8 * q["max_abs_diff_f64"]) for q in e["prompts"]]
        for change in [{}] + mistakes:
            m = spoiled(EXTRA / "models" / name, change)
            with torch.no_grad():
                got = [m(torch.tensor([q["ids"]]), use_cache=False).logits[0, -1].numpy() for q in e["prompts"]]
            times = [float(np.abs(g - w).max()) / b for g, w, b in zip(got, want, bound)]
            weak = bool(change) and max(times) < 20
            print(f"{name} {change or 'as it is'}: {' '.join(f'{t:.1f}' for t in times)} times the bound{'  WEAK' if weak else ''}", flush=True)


def readers():
    rows = json.loads((EXTRA / "index.json").read_text())["files"]
    for r in rows:
        path = GOLDEN / r["file"]
        assert path.exists(), path
        if "expected" in r:
            e = json.loads((GOLDEN / (r["expected"] + ".json")).read_text())
            assert all((GOLDEN / r["expected"]).parent.joinpath(e[k]).exists() for k in ("logits", "logits_f64")), r
        if path.suffix == ".gguf":
            gguf.GGUFReader(str(path))
        if path.suffix in (".pth", ".bin"):
            torch.load(str(path), weights_only=True)
    print(f"{len(rows)} rows, all files there and readable")


if __name__ == "__main__":
    assert extrakit.EXTRA.exists()
    readers()
    sensitivity()
