"""Output heads: what the flag tie_word_embeddings and the tensor lm_head.weight say, in all combinations.

extra/models/heads/FAMILY-FLAG-TENSOR: flag true, false, absent; tensor equal (to the embeddings), other, none. What each must compute is
what transformers computes; where transformers fills a missing head with random values we ask for an error.
"""
import contextlib
import io
import logging

import numpy as np
import torch
import transformers

import modelkit
import tinykit
from common import dump, out
from extrakit import QWEN, row, refused

GEMMA = dict(
    arch="Gemma3", dtype="bf16", tokenizer="gemma", tok_vocab=500, seed=2100, std=0.25, std_embed=0.2, final_scale=12.0,
    config_drop=["layer_types", "_sliding_window_pattern"], config_extra=dict(sliding_window_pattern=6),
    config=dict(vocab_size=500, hidden_size=16, intermediate_size=48, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=1,
                head_dim=8, query_pre_attn_scalar=8, max_position_embeddings=512, sliding_window=64, rms_norm_eps=1e-6,
                rope_parameters=dict(full_attention=dict(rope_type="default", rope_theta=1e6),
                                     sliding_attention=dict(rope_type="default", rope_theta=10000.0)),
                tie_word_embeddings=False, pad_token_id="<pad>", eos_token_id="<eos>", bos_token_id="<bos>"))
QWEN3 = dict(
    arch="Qwen3", dtype="bf16", tokenizer="qwen3", tok_vocab=400, seed=2200, std=0.3, std_embed=0.5, final_scale=5.0, config_drop=["layer_types"],
    config=dict(vocab_size=400, hidden_size=16, intermediate_size=48, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=1,
                head_dim=8, max_position_embeddings=512, rope_parameters=dict(rope_type="default", rope_theta=1e6), rms_norm_eps=1e-6,
                tie_word_embeddings=False, **QWEN))
FAMILIES = {"llama": tinykit.LLAMA, "qwen3": QWEN3, "gemma3": GEMMA}


@contextlib.contextmanager
def log_of_transformers():
    text = io.StringIO()
    handler = logging.StreamHandler(text)
    log = logging.getLogger("transformers")
    before = log.level
    log.addHandler(handler)
    log.setLevel(logging.WARNING)
    try:
        yield text
    finally:
        log.removeHandler(handler)
        log.setLevel(before)


def last(model, ids):
    with torch.no_grad():
        return model(torch.tensor([ids]), use_cache=False).logits[0, -1].numpy()


def family(name, base):
    folder, spec, n_ids, config, model = tinykit.folder_of(base, f"heads/{name}-true-equal")
    tensors = tinykit.tensors_of(model, spec)
    embed, other = tensors["model.embed_tokens.weight"], tensors["lm_head.weight"]
    results = {}
    for tag, head in (("untied", other), ("tied", embed)):
        model.lm_head.weight.data = head.float().clone()
        ids, paths = modelkit.choose_prompts(model, n_ids, spec["seed"] + (tag == "tied"))
        modelkit.expected(model, spec, f"heads-{name}-{tag}", ids, paths, dict(model=f"models/heads/{name}-*", arch=spec["arch"], dtype="bf16"))
        results[tag] = (ids[3], last(model, ids[3]))
    rows = []
    for flag in ("true", "false", "absent"):
        for tensor in ("equal", "other", "none"):
            d = out("models", "heads", f"{name}-{flag}-{tensor}", "x").parent
            c = {k: v for k, v in config.items() if k != "tie_word_embeddings"}
            if flag != "absent":
                c["tie_word_embeddings"] = flag == "true"
            dump(d / "config.json", dict(sorted(c.items())))
            if d != folder:
                (d / "tokenizer.json").write_bytes((folder / "tokenizer.json").read_bytes())
            t = {k: v for k, v in tensors.items() if k != "lm_head.weight"}
            if tensor != "none":
                t["lm_head.weight"] = (embed if tensor == "equal" else other).clone()
            tinykit.write(d, t)
            rows.append(judge(name, flag, tensor, d, results))
    return rows


def judge(name, flag, tensor, d, results):
    """Runs transformers on the folder and turns what it does into a row of the index."""
    with log_of_transformers() as text:
        m, info = transformers.AutoModelForCausalLM.from_pretrained(str(d), dtype=torch.float32, output_loading_info=True, **modelkit.EAGER)
    m = m.eval()
    same = [tag for tag, (ids, want) in results.items() if np.array_equal(last(m, ids), want)]
    ties, missing, log = m.config.tie_word_embeddings, sorted(info["missing_keys"]), " ".join(text.getvalue().split())
    print(f"{name}-{flag}-{tensor}: ties {ties}, logits {same or 'neither'}, missing {missing}{', warns' if log else ''}", flush=True)
    file, note = f"models/heads/{name}-{flag}-{tensor}", f"flag {flag}, lm_head.weight {tensor}"
    if not same:
        assert missing == ["lm_head.weight"], d
        return refused("heads", file, ["lm_head.weight"], note + ": untied and no head (transformers fills it with random values)")
    default = f" (the family's default is {str(ties).lower()})" if flag == "absent" else ""
    return row("heads", file, f"heads-{name}-{same[0]}", note + default + (": the tensor wins over the flag" if same[0] == "untied" and ties else ""))


def main():
    return {"heads": [r for n, s in FAMILIES.items() for r in family(n, s)]}
