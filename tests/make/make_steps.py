"""golden/text/steps.json: single normalizers, pre-tokenizers and decoders, and small whole tokenizers with added tokens,
each with what the tokenizers library makes of a list of texts. Run: python make_steps.py OUT.json"""
import json
import sys

from tokenizers import Tokenizer

TEXTS = ["", " ", "a", "  a  b ", "Hello, world! 123", "x\u00b2 \u2167 \u0661\u0662", "a\u180eb\u3000c\u00a0d", "can't I'LL \u017f",
         "e\u0301 \u00c5 \ufb01 \uac00 \u1100\u1161", "a\u0323\u0307\u0301 a\u0301\u0323", "\u0130 I \u03a3\u03a3", "a--b__c...", "\r\n\n x\n",
         "ab ab  ab", "\u2581a \u2581", "\u65e5\u672c\u8a9e \u3042", "\U0001f600\u200d\U0001f680 \u24b6x", "x" * 40, "<a><b> c"]
SEQ = lambda key, *v: {"type": "Sequence", key: list(v)}
STR, RE = lambda s: {"String": s}, lambda s: {"Regex": s}
REPLACE = lambda p, c: {"type": "Replace", "pattern": p, "content": c}
META = lambda scheme, split: {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": scheme, "split": split}
BYTES = lambda space, regex: {"type": "ByteLevel", "add_prefix_space": space, "trim_offsets": True, "use_regex": regex}
BEHAVIORS = ["Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"]

NORMALIZERS = [{"type": t} for t in ("NFC", "NFD", "NFKC", "NFKD", "Lowercase")] + [
    {"type": "Prepend", "prepend": "\u2581"}, REPLACE(STR(" "), "\u2581"), REPLACE(RE("\\s+"), " "), REPLACE(RE("[^\\w\\s]"), ""),
    REPLACE(RE("^."), "<"), REPLACE(RE("(?i:i)"), "!"), {"type": "Strip", "strip_left": True, "strip_right": False},
    {"type": "Strip", "strip_left": False, "strip_right": True}, SEQ("normalizers"),
    SEQ("normalizers", {"type": "Strip", "strip_left": True, "strip_right": True}, SEQ("normalizers", {"type": "NFKC"}, {"type": "Lowercase"}))]

PRE = [{"type": "Split", "pattern": p, "behavior": b, "invert": i} for b in BEHAVIORS for i in (False, True)
       for p in (STR(" "), RE("\\s+"), RE("\\w+"))] + [
    {"type": "Split", "pattern": RE(p), "behavior": "Isolated", "invert": False} for p in
    ("x*", "\\b", "\\h+", "\\W", "[\\s\\d]", "(?<=a)b?", "[\\u0041-\\u005a]+", "\\p{Han}+", "[[:space:]]+", "\\S", "a$", "^ ", "[^]a]")] + [
    {"type": "Punctuation", "behavior": b} for b in BEHAVIORS] + [
    {"type": "Digits", "individual_digits": i} for i in (False, True)] + [
    BYTES(s, r) for s in (False, True) for r in (False, True)] + [
    META(s, c) for s in ("always", "first", "never") for c in (False, True)] + [
    {"type": "Metaspace", "replacement": "_", "add_prefix_space": True}, {"type": "Whitespace"}, {"type": "WhitespaceSplit"}, SEQ("pretokenizers"),
    SEQ("pretokenizers", {"type": "WhitespaceSplit"}, {"type": "Digits", "individual_digits": True}, BYTES(True, True))]

TOKENS = [[], ["a"], ["\u2581Hello", "\u2581wor", "ld"], ["\u0120a", "\u00c3", "\u00a9", "\u2581"], ["<0xE6>", "<0x97>", "<0xA5>", "x", "<0xE6>", "<0x97>"],
          ["<0xFF>", "<0x41>", "<0xZZ>", "b"], [" ", " a", "a ", " "], ["\u2581\u2581", "\u2581", "a\u2581"], ["a\u2581a", "aa", "<0x61>"],
          ["\u00f0", "\u0141", "\u013a", "\u0122", "\u0120", "\u00f0"]]
STRIP = lambda c, a, b: {"type": "Strip", "content": c, "start": a, "stop": b}
DECODERS = [{"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}, {"type": "ByteFallback"}, {"type": "Fuse"},
            REPLACE(STR("\u2581"), " "), REPLACE(RE("[a-e]+"), "z"), STRIP(" ", 1, 0), STRIP("a", 1, 1),
            META("always", True), META("first", True), META("never", True), SEQ("decoders", {"type": "Fuse"}, STRIP("a", 2, 0)),
            SEQ("decoders", {"type": "Fuse"}, STRIP("a", 0, 1)), SEQ("decoders", {"type": "Fuse"}, STRIP(" ", 1, 2)),
            SEQ("decoders", REPLACE(STR("\u2581"), " "), {"type": "ByteFallback"}, {"type": "Fuse"}, STRIP(" ", 1, 0)),
            SEQ("decoders", {"type": "Fuse"}, REPLACE(RE("a.a"), "b"), STRIP(" ", 1, 0)), SEQ("decoders", {"type": "Fuse"}, {"type": "ByteFallback"}),
            SEQ("decoders", {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}, META("always", True))]


def small(added=(), vocab="abcde <>xy", merges=(("a", "b"), ("ab", "c"), ("d", "e")), **model):
    """A tokenizer of single characters and a few merges, as a dict."""
    v = {c: i for i, c in enumerate(vocab)}
    for a, b in merges:
        v.setdefault(a + b, len(v))
    m = dict(type="BPE", dropout=None, unk_token=None, continuing_subword_prefix=None, end_of_word_suffix=None, fuse_unk=False, byte_fallback=False,
             ignore_merges=False, vocab=v, merges=[list(m) for m in merges])
    parts = {k: model.pop(k, None) for k in ("normalizer", "pre_tokenizer", "post_processor", "decoder")}
    for e in model.pop("extra", ()):
        m["vocab"][e] = len(m["vocab"])
    m.update(model)
    ids = dict(m["vocab"])
    for c, _ in added:
        ids.setdefault(c, len(ids))
    flags = dict(single_word=False, lstrip=False, rstrip=False, normalized=False, special=False)
    return dict(version="1.0", truncation=None, padding=None, model=m, **parts,
                added_tokens=[dict(flags, id=ids[c], content=c, **f) for c, f in added])


def template(*ids):
    """Special tokens before and after, each of the given ids."""
    part = lambda n: {"SpecialToken": {"id": n, "type_id": 0}}
    seq = lambda n: {"Sequence": {"id": n, "type_id": 0}}
    return {"type": "TemplateProcessing", "single": [part("<"), seq("A"), part(">")], "pair": [seq("A"), seq("B")],
            "special_tokens": {n: {"id": n, "ids": i, "tokens": [n] * len(i)} for n, i in zip("<>", ids)}}


T = lambda **f: f
SMALL = [
    small(), small(fuse_unk=True, unk_token="x"), small(fuse_unk=False, unk_token="x"),
    small(byte_fallback=True, unk_token="x", fuse_unk=True, extra=["<0x%02X>" % i for i in range(0, 200)]),
    small(ignore_merges=True, extra=["abcd"]),
    small([("ab", T()), ("abc", T(special=True)), ("<x>", T(single_word=True))]), small([("x", T(lstrip=True)), ("y", T(rstrip=True)), ("xy", T(lstrip=True, rstrip=True))]),
    small([(" ", T(rstrip=True)), ("\n", T(lstrip=True, rstrip=True, special=True))]),
    small([("A", T(normalized=True)), ("B", T())], normalizer={"type": "Lowercase"}),
    small([("<x>", T(special=True))], post_processor=template([7], [8, 9]), decoder=SEQ("decoders", {"type": "Fuse"}, STRIP("<", 1, 0))),
    small([("<x>", T(special=True))], post_processor=SEQ("processors", BYTES(True, True), template([1], [2]))),
    small([("<x>", T(special=True))], pre_tokenizer=META("first", True), extra=["\u2581"], merges=[("a", "b"), ("b", "c")]),
    small(merges=[("a", "a"), ("aa", "a"), ("aa", "aa"), ("b", "a")]),
]
SMALL_TEXTS = ["", "abc", "abcab cde", "aaaaaaa", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaba", "<x>", "a<x>b", "a <x> b", "x  <x>", "xy", "a xy b", " x y ", "ab\n\n a\n",
               "ABab", "Q\u00e9Q Q", "\u00e9Qab\u00e9", "abcd", "abcde abcd", "x<x>abc<x>", "  <x>  a", "b<x>x<x>", "\u65e5", "<x>x"]


def ids_of(t, s):
    t.encode_special_tokens = False
    row = dict(text=s, ids=t.encode(s, add_special_tokens=False).ids, ids_bos=t.encode(s).ids)
    if t.normalizer is None:  # else an added token decodes to its normal form, where older versions gave its content
        row.update(decode=t.decode(row["ids_bos"], skip_special_tokens=False), decode_skip=t.decode(row["ids_bos"], skip_special_tokens=True))
    t.encode_special_tokens = True
    return dict(row, ids_plain=t.encode(s, add_special_tokens=False).ids)


def part_of(key, step):
    """The library's own object for one part, by way of a whole tokenizer."""
    return getattr(Tokenizer.from_str(json.dumps(small(**{key: step}))), key)


def decoded(step):
    """Lists of tokens that the library can decode: it panics where Strip cuts a token from both ends to nothing."""
    for t in TOKENS:
        try:
            yield [t, part_of("decoder", step).decode(t)]
        except BaseException:
            continue


def main(path):
    out = dict(
        normalizer=[dict(step=s, cases=[[t, part_of("normalizer", s).normalize_str(t)] for t in TEXTS]) for s in NORMALIZERS],
        pre_tokenizer=[dict(step=s, cases=[[t, [p for p, _ in part_of("pre_tokenizer", s).pre_tokenize_str(t)]] for t in TEXTS if t]) for s in PRE],
        decoder=[dict(step=s, cases=list(decoded(s))) for s in DECODERS],
        tokenizer=[dict(json=j, texts=[ids_of(Tokenizer.from_str(json.dumps(j)), t) for t in SMALL_TEXTS]) for j in SMALL])
    with open(path, "w", encoding="utf-8") as f:
        f.write("{\n" + ",\n".join(json.dumps(k) + ": [\n" + ",\n".join(json.dumps(r, ensure_ascii=True, separators=(",", ":")) for r in v) + "\n]"
                                   for k, v in out.items()) + "\n}\n")


if __name__ == "__main__":
    main(sys.argv[1])
