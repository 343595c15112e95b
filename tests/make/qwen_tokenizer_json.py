"""Makes the tokenizer.json of Qwen 2.5 and Qwen 3 from the rank file of their vocabulary.

usage: qwen_tokenizer_json.py RANKS OUT_FOLDER [--check VECTORS]

RANKS is qwen.tiktoken (fetch_models.sh with MODELS=qwen-vocab fetches it): per line the base64 of a token's bytes and its rank, which
is its id. OUT_FOLDER gets tokenizer.json and tokenizer_config.json. VECTORS is golden/tokenizer/qwen-real.json; with it the file is
read by the tokenizers package, and every vector must be met. Only --check needs a package.
"""
import argparse
import base64
import json
from pathlib import Path

SPLIT = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
         r"|\s*[\r\n]+|\s+(?!\S)|\s+")
# In id order, after the ranks; the first group is special (left out when special tokens are skipped).
SPECIAL = ("<|endoftext|> <|im_start|> <|im_end|> <|object_ref_start|> <|object_ref_end|> <|box_start|> <|box_end|> <|quad_start|> "
           "<|quad_end|> <|vision_start|> <|vision_end|> <|vision_pad|> <|image_pad|> <|video_pad|>").split()
PLAIN = ("<tool_call> </tool_call> <|fim_prefix|> <|fim_middle|> <|fim_suffix|> <|fim_pad|> <|repo_name|> <|file_sep|> "
         "<tool_response> </tool_response> <think> </think>").split()


def byte_letters():
    """The printable letter that stands for each byte in a byte-level vocabulary."""
    keep = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [b for b in range(256) if b not in keep]
    return {**{b: chr(b) for b in keep}, **{b: chr(256 + i) for i, b in enumerate(rest)}}


def read_ranks(path):
    lines = Path(path).read_bytes().splitlines()
    return {base64.b64decode(a): int(b) for a, b in (line.split() for line in lines if line)}


def last_merge(token, ranks):
    """The two parts that remain when a token's bytes are merged with all lower ranks: its own merge."""
    limit, parts = ranks[token], [token[i:i + 1] for i in range(len(token))]
    while len(parts) > 2:
        best = min(range(len(parts) - 1), key=lambda i: ranks.get(parts[i] + parts[i + 1], limit))
        assert ranks.get(parts[best] + parts[best + 1], limit) < limit, token
        parts[best:best + 2] = [parts[best] + parts[best + 1]]
    return parts


def tokenizer_json(ranks):
    letters = byte_letters()
    text = lambda token: "".join(letters[b] for b in token)
    order = sorted(ranks, key=ranks.get)
    added = [dict(id=len(ranks) + i, content=s, single_word=False, lstrip=False, rstrip=False, normalized=False, special=i < len(SPECIAL))
             for i, s in enumerate(SPECIAL + PLAIN)]
    byte_level = dict(type="ByteLevel", add_prefix_space=False, trim_offsets=False, use_regex=False)
    return dict(
        version="1.0", truncation=None, padding=None, added_tokens=added, normalizer=dict(type="NFC"),
        pre_tokenizer=dict(type="Sequence", pretokenizers=[
            dict(type="Split", pattern=dict(Regex=SPLIT), behavior="Isolated", invert=False), byte_level]),
        post_processor=byte_level, decoder=byte_level,
        model=dict(type="BPE", dropout=None, unk_token=None, continuing_subword_prefix="", end_of_word_suffix="", fuse_unk=False,
                   byte_fallback=False, ignore_merges=False, vocab={text(t): ranks[t] for t in order},
                   merges=[" ".join(map(text, last_merge(t, ranks))) for t in order if len(t) > 1]))


def config_json(added):
    decoder = {str(a["id"]): {k: a[k] for k in ("content", "lstrip", "normalized", "rstrip", "single_word", "special")} for a in added}
    return dict(add_bos_token=False, added_tokens_decoder=decoder, bos_token=None, clean_up_tokenization_spaces=False,
                eos_token="<|im_end|>", model_max_length=131072, pad_token="<|endoftext|>", tokenizer_class="Qwen2Tokenizer",
                unk_token=None)


def check(path, vectors):
    """Compares with every vector; raises if one differs."""
    from tokenizers import Tokenizer

    t = Tokenizer.from_file(str(path))
    v = json.loads(Path(vectors).read_text(encoding="utf-8"))
    n = 0
    for case in v["texts"] + v["random"]:
        text = case["text"] if "text" in case else bytes.fromhex(case["hex"]).decode("utf-8")
        got = t.encode(text, add_special_tokens=False).ids
        assert got == case["ids"], (text, got, case["ids"])
        n += 1
    print(f"{n} vectors met")


def main():
    p = argparse.ArgumentParser(description="tokenizer.json from a rank file")
    p.add_argument("ranks")
    p.add_argument("out")
    p.add_argument("--check", metavar="VECTORS")
    a = p.parse_args()
    out = Path(a.out)
    out.mkdir(parents=True, exist_ok=True)
    j = tokenizer_json(read_ranks(a.ranks))
    for name, body in (("tokenizer.json", j), ("tokenizer_config.json", config_json(j["added_tokens"]))):
        (out / name).write_text(json.dumps(body, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    if a.check:
        check(out / "tokenizer.json", a.check)


if __name__ == "__main__":
    main()
