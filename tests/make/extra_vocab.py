"""vocab.json and merges.txt in place of tokenizer.json: the older form of a byte-level vocabulary.

extra/tokenizer/NAME-pair holds the tokenizer golden/tokenizer/NAME in that form; the vectors golden/tokenizer/NAME.json hold for it.
extra/models/qwen2-pair is golden/models/qwen2 with its vocabulary in that form.
"""
import json

import transformers

from common import dump, out
from extrakit import EXTRA, GOLDEN, copy_settings, row

# What the class name stands for, since nothing else says it: the split regex, and NFC for Qwen2Tokenizer.
CLASS = {"qwen2": dict(tokenizer_class="Qwen2Tokenizer", bos_token=None, eos_token="<|im_end|>", pad_token="<|endoftext|>", unk_token=None),
         "gpt2": dict(tokenizer_class="GPT2Tokenizer", bos_token="<|endoftext|>", eos_token="<|endoftext|>", unk_token="<|endoftext|>")}


def pair(src, folder, kind):
    """Writes vocab.json, merges.txt and tokenizer_config.json made from a tokenizer.json."""
    j = json.loads((src / "tokenizer.json").read_text(encoding="utf-8"))
    vocab, added = dict(j["model"]["vocab"]), j["added_tokens"]
    if kind == "gpt2":
        vocab.update({a["content"]: a["id"] for a in added})          # <|endoftext|> is an ordinary entry of GPT-2's vocab.json
    merges = [m if isinstance(m, str) else " ".join(m) for m in j["model"]["merges"]]
    out(folder, "vocab.json").write_text(json.dumps(dict(sorted(vocab.items(), key=lambda e: e[1])), ensure_ascii=False), encoding="utf-8")
    out(folder, "merges.txt").write_text("#version: 0.2\n" + "\n".join(merges) + "\n", encoding="utf-8", newline="\n")
    keys = ("content", "lstrip", "normalized", "rstrip", "single_word", "special")
    dump(out(folder, "tokenizer_config.json"), dict(
        add_prefix_space=False, added_tokens_decoder={str(a["id"]): {k: a[k] for k in keys} for a in added}, clean_up_tokenization_spaces=False,
        errors="replace", model_max_length=512, **CLASS[kind]))


def check(folder, kind, vectors):
    """The vectors against what transformers makes of the pair."""
    t = getattr(transformers, CLASS[kind]["tokenizer_class"]).from_pretrained(str(EXTRA / folder))
    bad = 0
    for v in json.loads(vectors.read_text(encoding="utf-8"))["texts"]:
        text = v["text"] if "text" in v else bytes.fromhex(v["hex"]).decode("utf-8")
        bad += t.encode(text, add_special_tokens=False) != v["ids"]
    print(f"{folder}: {bad} texts differ", flush=True)


def main():
    rows = []
    for kind in CLASS:
        folder = f"tokenizer/{kind}-pair"
        pair(GOLDEN / "tokenizer" / kind, folder, kind)
        check(folder, kind, GOLDEN / "tokenizer" / f"{kind}.json")
        rows.append(dict(group="vocab", file="extra/" + folder, vectors=f"tokenizer/{kind}.json", note=f"{CLASS[kind]['tokenizer_class']}: "
                         "vocab.json, merges.txt, tokenizer_config.json"))
    model = GOLDEN / "models" / "qwen2"
    copy_settings(model, EXTRA / "models" / "qwen2-pair", ("config.json", "generation_config.json", "model.safetensors"))
    pair(model, "models/qwen2-pair", "qwen2")
    template = json.loads((model / "tokenizer_config.json").read_text(encoding="utf-8"))["chat_template"]
    path = out("models/qwen2-pair", "tokenizer_config.json")
    dump(path, dict(json.loads(path.read_text(encoding="utf-8")), chat_template=template))
    rows.append(row("vocab", "models/qwen2-pair", "golden:qwen2", "vocab.json and merges.txt, no tokenizer.json"))
    return {"vocab": rows}
