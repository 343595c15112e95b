"""What the makers of golden/extra share: where things go, and the rows of its index.

Import this before any other maker: it lets them read golden/, and then makes common.out write below golden/extra.
"""
import json

import common

GOLDEN = common.ROOT

import make_containers  # noqa: E402  (binds golden/ as its root)
import make_models  # noqa: E402
import modelkit  # noqa: E402

EXTRA = common.ROOT = GOLDEN / "extra"
TEMPLATES = make_models.TEMPLATES
QWEN, SPM = make_models.QWEN, make_models.SPM


def golden(name):
    """Folder and transformers model of one of golden/models."""
    return make_containers.load(name)


def row(group, file, expected, note, **more):
    """A row of extra/index.json: `file` below extra/, `expected` a name: "NAME" below extra/expected, "golden:NAME" below golden/expected."""
    assert (EXTRA / file).exists(), file
    where = "expected/" + expected[7:] if expected.startswith("golden:") else "extra/expected/" + expected
    assert (GOLDEN / (where + ".json")).exists(), where
    return dict(group=group, file="extra/" + file, expected=where, note=note, **more)


def refused(group, file, words, note, **more):
    """A row for something that must be refused; `words` must all be found in the message."""
    assert (EXTRA / file).exists(), file
    return dict(group=group, file="extra/" + file, error=words, note=note, **more)


def write_index(groups):
    """Replaces the rows of the given groups ({name: rows}) in extra/index.json."""
    path, old = EXTRA / "index.json", []
    if path.exists():
        old = [r for r in json.loads(path.read_text(encoding="utf-8"))["files"] if r["group"] not in groups]
    rows = sorted(old + [r for g in groups.values() for r in g], key=lambda r: (r["group"], r["file"]))
    common.dump(common.out("index.json"), {"files": rows}, rows=("files",))


def copy_settings(src, dst, names=("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json")):
    dst.mkdir(parents=True, exist_ok=True)
    for n in names:
        if (src / n).exists():
            (dst / n).write_bytes((src / n).read_bytes())


def values_of(model, spec, name, model_path, n_ids, seed, dtype):
    """expected/NAME.* for a model that is not kept as a folder by modelkit.produce."""
    prompts, paths = modelkit.choose_prompts(model, n_ids, seed)
    d, gap = modelkit.expected(model, spec, name, prompts, paths, {"model": model_path, "arch": spec["arch"], "dtype": dtype})
    print(f"{name}: f32-f64 {d:.2e}, smallest gap {gap:.3f}", flush=True)


def n_ids_of(folder):
    j = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    return len(set(j["model"]["vocab"].values()) | {a["id"] for a in j["added_tokens"]})
