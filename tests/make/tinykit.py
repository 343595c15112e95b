"""Small one-layer models for cases where only the names or the container matter."""
import json

import torch
import transformers
from safetensors.torch import save_file

import extrakit
import modelkit
import toks
from common import dump, out
from extrakit import SPM
from modelkit import EAGER

LLAMA = dict(
    arch="Llama", dtype="bf16", tokenizer="llama2", tok_vocab=448, seed=2000, std=0.3, std_embed=0.5, final_scale=5.0,
    config=dict(vocab_size=448, hidden_size=16, intermediate_size=48, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=1,
                max_position_embeddings=512, rope_parameters=dict(rope_type="default", rope_theta=10000.0), rms_norm_eps=1e-5,
                tie_word_embeddings=False, **SPM))


def folder_of(spec, name):
    """models/NAME with settings and tokenizer, and no weights: (folder, resolved spec, number of ids, config as a dict)."""
    folder = out("models", name, "x").parent
    tok = toks.build(spec["tokenizer"], spec["tok_vocab"])
    spec = modelkit.resolve(spec, tok)
    model = modelkit.make_model(spec, spec["seed"])
    config = modelkit.config_json(model, spec)
    dump(folder / "config.json", config)
    (folder / "tokenizer.json").write_text(json.dumps(tok, ensure_ascii=False) + "\n", encoding="utf-8")
    return folder, spec, extrakit.n_ids_of(folder), config, model


def tensors_of(model, spec):
    """bf16 (or what the spec says) tensors with the head whether tied or not."""
    dtype = modelkit.DTYPES[spec["dtype"]]
    return {k: v.to(dtype).clone() for k, v in model.state_dict().items()}


def write(folder, tensors):
    save_file(tensors, str(folder / "model.safetensors"), metadata={"format": "pt"})


def loaded(folder, **more):
    """The folder as transformers reads it, in float32."""
    return transformers.AutoModelForCausalLM.from_pretrained(str(folder), dtype=torch.float32, **EAGER, **more).eval()
