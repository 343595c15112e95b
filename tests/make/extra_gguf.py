"""GGUF files of phi3, gemma3, qwen3moe; of the K types with two and three bits; split files."""
import struct
import tempfile
from pathlib import Path

import numpy as np
import torch
import transformers
from safetensors.torch import load_file

import extrakit
import ggufkit
import modelkit
import toks
from common import dump, out
from extrakit import EXTRA, GOLDEN, QWEN, TEMPLATES, row
from make_containers import WIDE

# A Gemma 3 whose layer pattern and attention scale are those that a GGUF implies: every sixth layer is global, scale 1/sqrt(head_dim).
# config.json is of the older form, with sliding_window_pattern and no layer_types.
GEMMA7 = dict(
    arch="Gemma3", dtype="bf16", tokenizer="gemma", tok_vocab=704, seed=910, chat="turns", std=0.25, std_embed=0.08, std_qk=0.2,
    final_scale=8.0, eos=["<eos>", "<end_of_turn>"], config_drop=["layer_types", "_sliding_window_pattern"],
    config_extra=dict(sliding_window_pattern=6),
    config=dict(vocab_size=704, hidden_size=48, intermediate_size=64, num_hidden_layers=7, num_attention_heads=2, num_key_value_heads=1,
                head_dim=32, query_pre_attn_scalar=32, max_position_embeddings=512, sliding_window=8, rms_norm_eps=1e-6,
                rope_parameters=dict(full_attention=dict(rope_type="default", rope_theta=1e6),
                                     sliding_attention=dict(rope_type="default", rope_theta=10000.0)),
                pad_token_id="<pad>", eos_token_id="<eos>", bos_token_id="<bos>"))

# Every layer has experts: all that a reader without dense layers between them can load.
MOE = dict(
    arch="Qwen3Moe", dtype="bf16", tokenizer="qwen3", tok_vocab=400, seed=1110, chat="chatml-think", std=0.25, final_scale=4.0,
    config=dict(vocab_size=400, hidden_size=32, intermediate_size=48, moe_intermediate_size=24, num_hidden_layers=2, num_attention_heads=2,
                num_key_value_heads=1, head_dim=16, num_experts=5, num_experts_per_tok=3, norm_topk_prob=True, decoder_sparse_step=1,
                mlp_only_layers=[], max_position_embeddings=512, rms_norm_eps=1e-6, tie_word_embeddings=False,
                rope_parameters=dict(rope_type="default", rope_theta=1e6), **QWEN))


def weights(folder):
    return {k: v.float().numpy() for f in sorted(folder.glob("*.safetensors")) for k, v in load_file(str(f)).items()}


def of_folder(folder, arch, kind, tok, name, expected, note, chat):
    """extra/gguf/NAME.gguf of a folder; the type must keep every value."""
    path, w = out("gguf", name + ".gguf"), weights(folder)
    text = (TEMPLATES / (chat + ".jinja")).read_text(encoding="utf-8")
    cfg = transformers.AutoConfig.from_pretrained(str(folder))
    values = ggufkit.write(path, arch, cfg, w, kind, folder, tok, chat=text)
    one = np.float32(1) if arch == "gemma3" else np.float32(0)
    for k, v in values.items():
        add = one if k.endswith("norm.weight") else np.float32(0)
        assert np.array_equal(v, w[k] + add), k
    print(f"{path.name}: {path.stat().st_size // 1024} KiB, same values as {folder.name}", flush=True)
    return row("gguf", f"gguf/{name}.gguf", expected, f"arch {arch}, vocabulary {tok[0]}/{tok[1]}; {note}")


def architectures():
    modelkit.produce("gemma3-7", GEMMA7, TEMPLATES)
    modelkit.produce("qwen3-moe-all", MOE, TEMPLATES)
    models = GOLDEN / "models"
    rows = [row("gguf", "models/gemma3-7", "gemma3-7", "7 layers of which layer 5 is global; config.json has sliding_window_pattern and no layer_types"),
            row("gguf", "models/qwen3-moe-all", "qwen3-moe-all", "two layers, 5 experts of which 3 are used in both")]
    rows += [of_folder(EXTRA / "models" / "gemma3-7", "gemma3", "BF16", ("llama", "default"), "gemma3-7-bf16", "gemma3-7",
                       "norms are 1 + w; the file names neither the pattern (every 6th layer is global) nor the window layers' rope base "
                       "(10000); embeddings are scaled by sqrt(48) when read", "turns"),
             of_folder(models / "phi3", "phi3", "BF16", ("llama", "default"), "phi3-bf16", "golden:phi3",
                       "attn_qkv and ffn_up (gate, then up) are fused; sliding_window 0 means none; a GGUF cannot say that the chat marks "
                       "take the white space to their right", "phi"),
             of_folder(models / "qwen3-moe", "qwen3moe", "BF16", ("gpt2", "qwen2"), "qwen3-moe-bf16", "golden:qwen3-moe",
                       "6 experts of which 2 are used, renormalised (the file does not say so); layer 1 is dense, which "
                       "llama.cpp refuses", "chatml-think"),
             of_folder(EXTRA / "models" / "qwen3-moe-all", "qwen3moe", "BF16", ("gpt2", "qwen2"), "qwen3-moe-all-bf16", "qwen3-moe-all",
                       "5 experts of which 3 are used, in both layers", "chatml-think")]
    return rows


def wide_k():
    """The wide model, whose own weights are not stored, in Q2_K and Q3_K."""
    j = toks.build("qwen3", WIDE["tok_vocab"])
    spec = modelkit.resolve(WIDE, j)
    model = modelkit.make_model(spec, spec["seed"])
    w = {k: v.numpy() for k, v in model.state_dict().items() if k != "lm_head.weight"}
    chat, rows = (TEMPLATES / "chatml-think.jinja").read_text(encoding="utf-8"), []
    with tempfile.TemporaryDirectory() as d:
        folder = Path(d)
        dump(folder / "tokenizer.json", j)
        for kind in ("Q2_K", "Q3_K"):
            name = "wide-" + kind.lower()
            path = out("gguf", name + ".gguf")
            values = ggufkit.write(path, "qwen3", model.config, w, kind, folder, ("gpt2", "qwen2"), chat=chat)
            twin = type(model)(model.config).eval()
            sd = {k: torch.from_numpy(v) for k, v in values.items()}
            twin.load_state_dict(dict(sd, **{"lm_head.weight": sd["model.embed_tokens.weight"]}))
            twin.config._attn_implementation = "eager"
            extrakit.values_of(twin, spec, "gguf-" + name, f"gguf/{name}.gguf", len(j["model"]["vocab"]),
                               spec["seed"] + ggufkit.FTYPE[kind], kind.lower())
            rows.append(row("gguf", f"gguf/{name}.gguf", "gguf-" + name, f"arch qwen3, every matrix {kind}"))
    return rows


def text(s):
    b = s.encode()
    return struct.pack("<Q", len(b)) + b


def split(src, stem, groups):
    """Splits a GGUF as llama-gguf-split does: only the first file has the metadata; `groups` gives the number of tensors of each file."""
    import gguf

    raw, r = src.read_bytes(), gguf.GGUFReader(str(src))
    pairs = raw[24:r.tensors[0].field.offset]                     # the key-value pairs as they stand
    n_kv = struct.unpack("<Q", raw[16:24])[0]
    assert sum(groups) == len(r.tensors)
    at, names = 0, []
    for no, n in enumerate(groups):
        own = [text("split.no") + struct.pack("<IH", 2, no), text("split.count") + struct.pack("<IH", 2, len(groups)),
               text("split.tensors.count") + struct.pack("<Ii", 5, len(r.tensors))]
        infos, data = b"", b""
        for t in r.tensors[at:at + n]:
            infos += text(t.name) + struct.pack("<I", len(t.shape)) + struct.pack(f"<{len(t.shape)}Q", *map(int, t.shape))
            infos += struct.pack("<IQ", int(t.tensor_type), len(data))
            body = raw[int(t.data_offset):int(t.data_offset) + int(t.n_bytes)]
            data += body + bytes(-len(body) % 32)
        head = b"GGUF" + struct.pack("<IQQ", 3, n, (n_kv if no == 0 else 0) + 3) + (pairs if no == 0 else b"") + b"".join(own) + infos
        name = f"{stem}-{no + 1:05d}-of-{len(groups):05d}.gguf"
        out(name).write_bytes(head + bytes(-len(head) % 32) + data)
        names.append(name)
        at += n
    return names


def splits():
    gguf_dir = GOLDEN / "containers" / "gguf"
    count = lambda n, k: [n - (k - 1) * (n // k)] + [n // k] * (k - 1)
    first = split(gguf_dir / "qwen3-bf16.gguf", "gguf/split/qwen3", count(35, 3))
    bare = split(gguf_dir / "llama-q8_0.gguf", "gguf/split-bare/llama", [0, 11, 10])
    cut = split(gguf_dir / "llama-q4_0.gguf", "gguf/split-cut/llama", count(21, 3))
    (EXTRA / cut[1]).unlink()
    return [row("gguf", first[0], "golden:qwen3", "three files; the second and third have only the split.* keys; open by the first"),
            row("gguf", bare[0], "golden:gguf-llama-q8_0", "the first of three files has metadata and no tensor"),
            extrakit.refused("gguf", cut[0], ["llama-00002-of-00003.gguf"], "the second of three files is missing"),
            extrakit.refused("gguf", first[1], ["00001-of-00003"], "opened by the second file of a split one: say which file to open (opening "
                             "the first instead is as good, and then the values are those of qwen3)")]


def main():
    return {"gguf": architectures() + wide_k() + splits()}
