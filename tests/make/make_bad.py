"""Writes files/ and list.json: wrong files and how they must be refused. Usage: python3 make_bad.py [folder]"""
import sys
from pathlib import Path

from badkit import (ARCH, DATA, glob, gguf, info, kv, kv_str, kv_u32, num, patched, pth, s, st, state, storage, t, tensor, tup, u32, u64, uni,
                    write)

ok_st = st({"a": t("F32", [2, 4], 0, 32), "__metadata__": {"format": "pt"}}, DATA)
ok_gguf = gguf([ARCH], [info("w", [4, 2])], DATA)
ok_pth = pth()
w = lambda **k: pth(state([("w", tensor(**k))]))

CASES = [
    # controls: valid, must load
    ("ok.safetensors", "ok", "one tensor", ok_st),
    ("ok-empty-scalar.safetensors", "ok", "a tensor without elements and a 0-d tensor, header padded with spaces",
     st(b'{"e":{"dtype":"F32","shape":[0,4],"data_offsets":[0,0]},"s":{"dtype":"I64","shape":[],"data_offsets":[0,8]}}   ', bytes(8))),
    ("ok.gguf", "ok", "one tensor", ok_gguf),
    ("ok-v2.gguf", "ok", "version 2 has the layout of version 3", gguf([ARCH], [info("w", [4, 2])], DATA, version=2)),
    ("ok-align64.gguf", "ok", "general.alignment 64", gguf([ARCH, kv_u32("general.alignment", 64)], [info("w", [4, 2])], DATA, align=64)),
    ("ok.pth", "ok", "one tensor", ok_pth),
    ("ok-byteorder-absent.pth", "ok", "no byteorder entry means little-endian", pth(files={"byteorder": None})),
    # safetensors
    ("empty.safetensors", "truncated", "no bytes at all", b""),
    ("short.safetensors", "truncated", "ends inside the header length", ok_st[:5]),
    ("header-cut.safetensors", "truncated", "ends inside the header", ok_st[:40]),
    ("data-cut.safetensors", "truncated", "last tensor ends behind the file", ok_st[:-4]),
    ("header-length-huge.safetensors", "header", "header length 2^64 - 8: length + 8 wraps", st({"a": t("F32", [2, 4], 0, 32)}, DATA, -8)),
    ("header-not-json.safetensors", "header", "header is no JSON", st(b"not json at all", DATA)),
    ("header-nested.safetensors", "header", "100000 opening brackets: recursion must be bounded", st(b'{"a":' + b"[" * 100000, DATA)),
    ("offsets-reversed.safetensors", "offsets", "begin > end", st({"a": t("F32", [2, 4], 32, 0)}, DATA)),
    ("offsets-overlap.safetensors", "offsets", "two tensors share bytes", st({"a": t("F32", [4], 0, 16), "b": t("F32", [4], 8, 24)}, DATA[:24])),
    ("offsets-past-end.safetensors", "offsets", "begin and end far behind the file", st({"a": t("F32", [2, 4], 1 << 40, (1 << 40) + 32)}, DATA)),
    ("shape-mismatch.safetensors", "shape", "shape needs 36 bytes, offsets give 32", st({"a": t("F32", [3, 3], 0, 32)}, DATA)),
    ("dims-overflow.safetensors", "overflow", "2^33 * 2^33 elements wrap to 0 bytes", st({"a": t("F32", [1 << 33, 1 << 33], 0, 0)}, b"")),
    ("dtype-unknown.safetensors", "dtype", "no such dtype", st({"a": t("F13", [2, 4], 0, 32)}, DATA)),
    ("duplicate-name.safetensors", "duplicate", "the same name twice in the header",
     st(b'{"a":{"dtype":"F32","shape":[4],"data_offsets":[0,16]},"a":{"dtype":"F32","shape":[4],"data_offsets":[16,32]}}', DATA)),
    ("dim-negative.safetensors", "shape", "a dimension of -2", st({"a": t("F32", [-2, -4], 0, 32)}, DATA)),
    ("index-escape/model.safetensors.index.json", "path", "the index names a file outside its folder",
     b'{"metadata":{"total_size":32},"weight_map":{"a":"../ok.safetensors"}}\n'),
    # GGUF
    ("magic.gguf", "magic", "first four bytes are not GGUF", gguf(magic=b"GGUX")),
    ("version-99.gguf", "version", "unknown version", gguf(version=99)),
    ("version-swapped.gguf", "version", "version 3 in big-endian order", gguf(version=0x03000000)),
    ("kv-cut.gguf", "truncated", "ends inside a key", ok_gguf[:40]),
    ("data-cut.gguf", "truncated", "ends inside the tensor data", ok_gguf[:-4]),
    ("n-kv-huge.gguf", "limits", "2^63 key-value pairs", gguf(n_kv=1 << 63)),
    ("string-huge.gguf", "limits", "a string of 2^63 bytes", gguf([s("general.architecture") + u32(8) + u64(1 << 63) + b"llama"])),
    ("array-huge.gguf", "limits", "2^61 + 1 values of 8 bytes: the size wraps", gguf([ARCH, kv("x", 9, u32(10) + u64((1 << 61) + 1) + u64(0))])),
    ("alignment-0.gguf", "alignment", "general.alignment 0", gguf([ARCH, kv_u32("general.alignment", 0)], [info("w", [4, 2])], DATA)),
    ("n-dims-9.gguf", "limits", "9 dimensions", gguf([ARCH], [info("w", [1] * 8 + [8])], DATA)),
    ("dim-0.gguf", "shape", "a dimension of 0", gguf([ARCH], [info("w", [4, 0])], DATA)),
    ("dims-overflow.gguf", "overflow", "2^32 * 2^32 * 4 values", gguf([ARCH], [info("w", [1 << 32, 1 << 32, 4])], DATA)),
    ("tensor-type.gguf", "dtype", "tensor type 250", gguf([ARCH], [info("w", [4, 2], kind=250)], DATA)),
    ("kv-type.gguf", "dtype", "value type 77", gguf([ARCH, kv("x", 77, u32(1))])),
    ("offset-past-end.gguf", "offsets", "tensor begins behind the file", gguf([ARCH], [info("w", [4, 2], offset=1 << 40)], DATA)),
    ("offset-odd.gguf", "alignment", "tensor offset 4 is no multiple of 32", gguf([ARCH], [info("w", [4, 1], offset=4)], DATA)),
    ("duplicate-tensor.gguf", "duplicate", "two tensors of one name", gguf([ARCH], [info("w", [4, 2]), info("w", [4, 2], offset=32)], DATA + DATA)),
    ("block-row.gguf", "shape", "Q4_0 row of 33 values", gguf([ARCH], [info("w", [33, 1], kind=2)], bytes(64))),
    ("arch-type.gguf", "dtype", "general.architecture is a number", gguf([kv_u32("general.architecture", 7)])),
    # .pth
    ("os-system.pth", "pickle", "calls os.system", pth(b"\x80\x02" + glob("os", "system") + tup(uni("true")) + b"R.")),
    ("builtins-eval.pth", "pickle", "calls builtins.eval", pth(b"\x80\x02" + glob("builtins", "eval") + tup(uni("1")) + b"R.")),
    ("reduce-on-string.pth", "pickle", "REDUCE on a string", pth(b"\x80\x02" + uni("torch") + b")R.")),
    ("deflated.pth", "compressed", "data/0 is deflated", pth(deflate=("data/0",))),
    ("storage-missing.pth", "missing", "no data/0 in the archive", pth(files={"data/0": None})),
    ("storage-short.pth", "truncated", "data/0 holds 16 of 32 bytes", pth(files={"data/0": DATA[:16]})),
    ("pickle-cut.pth", "pickle", "data.pkl ends early", pth(state([("w", tensor())])[:60])),
    ("pickle-missing.pth", "missing", "no data.pkl", pth(files={"data.pkl": None})),
    ("memo-missing.pth", "pickle", "reads memo 99, never set", pth(b"\x80\x02h\x63.")),
    ("stack-empty.pth", "pickle", "SETITEM on an empty stack", pth(b"\x80\x02s.")),
    ("stride-past-end.pth", "offsets", "shape and stride reach behind the storage", w(shape=(2, 4), stride=(40, 1))),
    ("offset-negative.pth", "offsets", "storage offset -1", w(offset=-1)),
    ("storage-kind.pth", "dtype", "unknown storage class", pth(state([("w", tensor(store=storage(kind="QInt4x2Storage")))]))),
    ("central-directory.pth", "archive", "signature of a central directory record is wrong", patched(ok_pth, b"PK\x01\x02", b"PK\x09\x09")),
    ("zip-cut.pth", "archive", "ends before the end-of-directory record", ok_pth[:-30]),
    ("legacy.pth", "legacy", "the pickle stream of torch before 1.6, not a zip",
     b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19.\x80\x02M\xe9\x03.\x80\x02}q\x00.\x80\x02}q\x00.\x80\x02]q\x00."),
    ("not-a-model.pth", "magic", "plain text", b"this is no model\n"),
]

ABOUT = "Wrong files and the kind of refusal. expect=ok marks controls that must load."

if __name__ == "__main__":
    write(CASES, sys.argv[1] if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent / "golden" / "bad", ABOUT)
