"""Writes a model of the exact shapes of Qwen3-0.6B with random BF16 weights (1.19 GB), for measurements of speed and of memory.

usage: random_qwen3.py [--gguf OUT.gguf] [--hf OUT_FOLDER] [--tokenizer FOLDER] [--layers N]

Both outputs hold the same weights: the GGUF has norms in F32 and matrices in BF16, the Hugging Face folder has all in BF16.
FOLDER holds the tokenizer.json and tokenizer_config.json that qwen_tokenizer_json.py makes; both outputs then carry that vocabulary.
Without it the vocabulary is generated: the 256 byte tokens, filler tokens, and the special ids a chat needs. Needs numpy.
"""
import argparse
import json
import struct
from pathlib import Path

import numpy as np

HIDDEN, HEADS, KV_HEADS, HEAD_DIM, FFN, VOCAB, CONTEXT = 1024, 16, 8, 128, 3072, 151936, 40960
EOS, BOS = 151645, 151643
ALIGN = 32
U32, I32, F32, BOOL, STR, ARRAY = 4, 5, 6, 7, 8, 9
CHUNK = 1 << 24


def tensors(layers):
    """(GGUF name, Hugging Face name, shape [rows, columns] or [n]) in file order."""
    t = [("token_embd", "model.embed_tokens", (VOCAB, HIDDEN)), ("output_norm", "model.norm", (HIDDEN,))]
    q, kv = HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM
    block = [("attn_norm", "input_layernorm", (HIDDEN,)), ("attn_q", "self_attn.q_proj", (q, HIDDEN)),
             ("attn_k", "self_attn.k_proj", (kv, HIDDEN)), ("attn_v", "self_attn.v_proj", (kv, HIDDEN)),
             ("attn_q_norm", "self_attn.q_norm", (HEAD_DIM,)), ("attn_k_norm", "self_attn.k_norm", (HEAD_DIM,)),
             ("attn_output", "self_attn.o_proj", (HIDDEN, q)), ("ffn_norm", "post_attention_layernorm", (HIDDEN,)),
             ("ffn_gate", "mlp.gate_proj", (FFN, HIDDEN)), ("ffn_up", "mlp.up_proj", (FFN, HIDDEN)),
             ("ffn_down", "mlp.down_proj", (HIDDEN, FFN))]
    for i in range(layers):
        t += [(f"blk.{i}.{a}", f"model.layers.{i}.{b}", shape) for a, b, shape in block]
    return [(a + ".weight", b + ".weight", shape) for a, b, shape in t]


def vocabulary(folder):
    """Tokenizer JSON, and the GGUF's tokens, types and merges."""
    if folder:
        j = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    else:
        j = generated()
    names = {i: (t, 1) for t, i in j["model"]["vocab"].items()}
    names.update({a["id"]: (a["content"], 3 if a["special"] else 4) for a in j["added_tokens"]})
    rows = [names.get(i, (f"[PAD{i}]", 5)) for i in range(VOCAB)]
    merges = [m if isinstance(m, str) else " ".join(m) for m in j["model"]["merges"]]
    return j, [t for t, _ in rows], [k for _, k in rows], merges


def generated():
    """A tokenizer.json whose ordinary tokens are the 256 bytes, and filler that no text reaches."""
    keep = [*range(33, 127), *range(161, 173), *range(174, 256)]
    letters = [chr(b) for b in keep] + [chr(256 + i) for i in range(256 - len(keep))]
    vocab = {t: i for i, t in enumerate(letters + [f"tok{i:06d}" for i in range(256, BOS)])}
    byte_level = dict(type="ByteLevel", add_prefix_space=False, trim_offsets=False, use_regex=True)
    added = [dict(id=BOS + i, content=s, single_word=False, lstrip=False, rstrip=False, normalized=False, special=True)
             for i, s in enumerate(("<|endoftext|>", "<|im_start|>", "<|im_end|>"))]
    return dict(version="1.0", truncation=None, padding=None, added_tokens=added, normalizer=None, pre_tokenizer=byte_level,
                post_processor=byte_level, decoder=byte_level,
                model=dict(type="BPE", dropout=None, unk_token=None, continuing_subword_prefix="", end_of_word_suffix="", fuse_unk=False,
                           byte_fallback=False, ignore_merges=False, vocab=vocab, merges=[]))


def text(s):
    b = s.encode("utf-8")
    return struct.pack("<Q", len(b)) + b


def pair(key, kind, value):
    """One key-value pair of a GGUF; lists of strings and of int32 are arrays."""
    if kind == ARRAY:
        strings = isinstance(value[0], str)
        body = struct.pack("<IQ", STR if strings else I32, len(value))
        body += b"".join(map(text, value)) if strings else np.asarray(value, "<i4").tobytes()
    else:
        body = text(value) if kind == STR else struct.pack({U32: "<I", F32: "<f", BOOL: "<B"}[kind], value)
    return text(key) + struct.pack("<I", kind) + body


def gguf_header(plan, layers, tokens, types, merges):
    number = dict(block_count=layers, context_length=CONTEXT, embedding_length=HIDDEN, feed_forward_length=FFN, vocab_size=VOCAB)
    number.update({"attention.head_count": HEADS, "attention.head_count_kv": KV_HEADS, "attention.key_length": HEAD_DIM,
                   "attention.value_length": HEAD_DIM})
    meta = [pair("general.architecture", STR, "qwen3"), pair("general.name", STR, "random Qwen3-0.6B shapes"),
            pair("general.file_type", U32, 32)]
    meta += [pair("qwen3." + k, U32, v) for k, v in number.items()]
    meta += [pair("qwen3.attention.layer_norm_rms_epsilon", F32, 1e-6), pair("qwen3.rope.freq_base", F32, 1e6),
             pair("tokenizer.ggml.model", STR, "gpt2"), pair("tokenizer.ggml.pre", STR, "qwen2"),
             pair("tokenizer.ggml.tokens", ARRAY, tokens), pair("tokenizer.ggml.token_type", ARRAY, types),
             pair("tokenizer.ggml.merges", ARRAY, merges or ["t o"]), pair("tokenizer.ggml.bos_token_id", U32, BOS),
             pair("tokenizer.ggml.eos_token_id", U32, EOS), pair("tokenizer.ggml.add_bos_token", BOOL, 0)]
    infos, offset = b"", 0
    for name, _, shape in plan:
        infos += text(name) + struct.pack("<I", len(shape)) + struct.pack(f"<{len(shape)}Q", *shape[::-1])
        infos += struct.pack("<IQ", 0 if len(shape) == 1 else 30, offset)            # 0 is F32, 30 is BF16
        offset += -(-int(np.prod(shape)) * (4 if len(shape) == 1 else 2) // ALIGN) * ALIGN
    head = b"GGUF" + struct.pack("<IQQ", 3, len(plan), len(meta)) + b"".join(meta) + infos
    return head + bytes(-len(head) % ALIGN)


def safetensors_header(plan):
    head, offset = {"__metadata__": {"format": "pt"}}, 0
    for _, name, shape in plan:
        end = offset + 2 * int(np.prod(shape))
        head[name] = dict(dtype="BF16", shape=list(shape), data_offsets=[offset, end])
        offset = end
    raw = json.dumps(head, separators=(",", ":")).encode()
    raw += b" " * (-len(raw) % 8)
    return struct.pack("<Q", len(raw)) + raw


def bf16(w):
    u = w.view(np.uint32)
    return ((u + 0x7FFF + ((u >> 16) & 1)) >> 16).astype("<u2")


def write_weights(plan, to_gguf, to_hf):
    """The same random values to both files (either may be None)."""
    r = np.random.default_rng(1234)
    for _, _, shape in plan:
        n = int(np.prod(shape))
        if len(shape) == 1:
            one = np.ones(n, np.float32)
            if to_gguf:
                to_gguf.write(one.tobytes())
            if to_hf:
                to_hf.write(bf16(one).tobytes())
        else:
            for at in range(0, n, CHUNK):
                raw = bf16(r.standard_normal(min(CHUNK, n - at), dtype=np.float32) * np.float32(0.02)).tobytes()
                for f in (to_gguf, to_hf):
                    if f:
                        f.write(raw)
        if to_gguf:
            to_gguf.write(bytes(-to_gguf.tell() % ALIGN))


def write_settings(folder, layers, tokenizer, source):
    config = dict(
        architectures=["Qwen3ForCausalLM"], attention_bias=False, attention_dropout=0.0, bos_token_id=BOS, eos_token_id=EOS,
        head_dim=HEAD_DIM, hidden_act="silu", hidden_size=HIDDEN, initializer_range=0.02, intermediate_size=FFN,
        max_position_embeddings=CONTEXT, max_window_layers=layers, model_type="qwen3", num_attention_heads=HEADS, num_hidden_layers=layers,
        num_key_value_heads=KV_HEADS, rms_norm_eps=1e-6, rope_scaling=None, rope_theta=1000000, sliding_window=None,
        tie_word_embeddings=True, torch_dtype="bfloat16", transformers_version="4.51.0", use_cache=True, use_sliding_window=False,
        vocab_size=VOCAB)
    generation = dict(bos_token_id=BOS, do_sample=True, eos_token_id=[EOS, BOS], pad_token_id=BOS, temperature=0.6, top_k=20, top_p=0.95,
                      transformers_version="4.51.0")
    tok_config = dict(bos_token=None, eos_token="<|im_end|>", pad_token="<|endoftext|>", tokenizer_class="Qwen2Tokenizer")
    if source and (source / "tokenizer_config.json").exists():
        tok_config = json.loads((source / "tokenizer_config.json").read_text(encoding="utf-8"))
    for name, body in (("config", config), ("generation_config", generation), ("tokenizer", tokenizer), ("tokenizer_config", tok_config)):
        (folder / (name + ".json")).write_text(json.dumps(body, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


def main():
    p = argparse.ArgumentParser(description="random weights in the shapes of Qwen3-0.6B")
    p.add_argument("--gguf", type=Path)
    p.add_argument("--hf", type=Path)
    p.add_argument("--tokenizer", type=Path)
    p.add_argument("--layers", type=int, default=28)
    a = p.parse_args()
    if not a.gguf and not a.hf:
        p.error("nothing to write: give --gguf or --hf")
    plan = tensors(a.layers)
    tokenizer, *vocab = vocabulary(a.tokenizer)
    to_gguf = to_hf = None
    if a.gguf:
        a.gguf.parent.mkdir(parents=True, exist_ok=True)
        to_gguf = open(a.gguf, "wb")
        to_gguf.write(gguf_header(plan, a.layers, *vocab))
    if a.hf:
        a.hf.mkdir(parents=True, exist_ok=True)
        write_settings(a.hf, a.layers, tokenizer, a.tokenizer)
        to_hf = open(a.hf / "model.safetensors", "wb")
        to_hf.write(safetensors_header(plan))
    write_weights(plan, to_gguf, to_hf)
    for f in (to_gguf, to_hf):
        if f:
            f.close()
            print(f"{f.name}: {len(plan)} tensors")


if __name__ == "__main__":
    main()
