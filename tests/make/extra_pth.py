"""PyTorch files: shards with an index, 64-bit zip records, data descriptors, nested and prefixed state dicts."""
import io
import json
from collections import OrderedDict

import torch

import modelkit
import tinykit
import zipkit
from common import dump, out
from extrakit import copy_settings, golden, row
from make_containers import book_names


def saved(obj):
    """What torch.save writes, as bytes."""
    f = io.BytesIO()
    torch.save(obj, f)
    return f.getvalue()


def shards():
    """The llama model as two .bin files and an index."""
    folder, model = golden("llama")
    sd = {k: v.to(torch.float16).clone() for k, v in model.state_dict().items()}
    names = sorted(sd)
    cut = [names[:len(names) // 2], names[len(names) // 2:]]
    files = [f"pytorch_model-{i + 1:05d}-of-00002.bin" for i in range(2)]
    base = out("pth", "llama-shards", "x").parent
    copy_settings(folder, base)
    for f, part in zip(files, cut):
        (base / f).write_bytes(saved(OrderedDict((k, sd[k]) for k in part)))
    dump(base / "pytorch_model.bin.index.json", {"metadata": {"total_size": sum(t.numel() * 2 for t in sd.values())},
                                                 "weight_map": {k: f for f, part in zip(files, cut) for k in part}})
    m = tinykit.loaded(base)
    assert all(torch.equal(v, model.state_dict()[k]) for k, v in m.state_dict().items())
    return [row("pth", "pth/llama-shards", "golden:llama", "pytorch_model.bin.index.json and two shards")]


def book():
    """Book names in the two odd forms of archive. out_head shares the storage of tok_emb."""
    folder, model = golden("qwen3")
    sd = OrderedDict((book_names(k), v.to(torch.bfloat16).clone()) for k, v in model.state_dict().items() if k != "lm_head.weight")
    sd["out_head.weight"] = sd["tok_emb.weight"]
    items = zipkit.entries(saved(sd))
    root = items[0][0].split("/")[0]
    more = [(root + "/", b""), (f"{root}/README.txt", b"not a tensor\n"), (f"{root}/code/", b""), (f"{root}/code/model.py", b"raise SystemExit\n"),
            (f"{root}/data/notes", bytes(range(256)))]
    rows = []
    for name, raw, note in (
            ("zip64", zipkit.zip64(items), "64-bit records in local headers, central directory and end; out_head shares tok_emb's storage"),
            ("descriptors", zipkit.descriptors(more[:2] + items[:3] + more[2:4] + items[3:] + more[4:]),
             "sizes behind the data (flag bit 3, with and without signature), folders and foreign entries, an archive comment")):
        base = out("pth", "qwen3-book-" + name, "x").parent
        (base / "qwen3-tiny-base.pth").write_bytes(raw)
        (base / "tokenizer-base.json").write_text(
            json.dumps(json.loads((folder / "tokenizer.json").read_text(encoding="utf-8")), ensure_ascii=False) + "\n", encoding="utf-8")
        back = torch.load(str(base / "qwen3-tiny-base.pth"), weights_only=True)
        assert all(torch.equal(back[k], v) for k, v in sd.items()) and len(back) == len(sd)
        rows.append(row("pth", f"pth/qwen3-book-{name}/qwen3-tiny-base.pth", "golden:qwen3", note + "; no config.json"))
    return rows


def nested():
    """The small llama model with its state dict below another key, or with prefixed names."""
    folder, spec, n_ids, _, model = tinykit.folder_of(tinykit.LLAMA, "tiny-llama")
    t = tinykit.tensors_of(model, spec)
    tinykit.write(folder, t)
    prompts, paths = modelkit.choose_prompts(model, n_ids, spec["seed"])
    modelkit.expected(model, spec, "tiny-llama", prompts, paths, dict(model="models/tiny-llama", arch="Llama", dtype="bf16"))
    modelkit.reload_check(folder, spec, "tiny-llama", prompts)
    sd = OrderedDict((k, v) for k, v in t.items())
    state = {0: dict(step=torch.tensor(3.0), exp_avg=torch.zeros(4, 4), exp_avg_sq=torch.ones(4, 4))}
    forms = {
        "model": (dict(model=sd, optimizer=dict(state=state, param_groups=[dict(lr=1e-4, betas=(0.9, 0.95), params=[0])]), epoch=3, loss=2.5,
                       note=None, done=False), "below the key model, beside an optimizer's tensors, numbers and None"),
        "state-dict": ({"epoch": 1, "state_dict": sd, "pytorch-lightning_version": "2.0.0", "hyper_parameters": {"names": ["a", "b"]}},
                       "below the key state_dict"),
        "module": (OrderedDict(("module." + k, v) for k, v in sd.items()), "every name has the prefix module."),
        "compiled": (dict(state_dict=OrderedDict(("_orig_mod." + k, v) for k, v in sd.items())), "below state_dict, every name has the prefix _orig_mod.")}
    rows = [row("pth", "models/tiny-llama", "tiny-llama", "the model of the four nested files, as a folder")]
    for name, (obj, note) in forms.items():
        base = out("pth", "nested-" + name, "x").parent
        copy_settings(folder, base)
        (base / "pytorch_model.bin").write_bytes(saved(obj))
        torch.load(str(base / "pytorch_model.bin"), weights_only=True)
        rows.append(row("pth", f"pth/nested-{name}/pytorch_model.bin", "tiny-llama", note))
    return rows


def main():
    return {"pth": shards() + book() + nested()}
