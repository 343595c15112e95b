"""Paths, determinism and JSON writing shared by the golden-data scripts."""
import hashlib
import json
import os
import struct
from pathlib import Path

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("RAYON_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

# Everything is written below ROOT; a caller may point it elsewhere before use.
ROOT = Path(os.environ.get("GOLDEN_OUT", Path(__file__).resolve().parent.parent / "golden"))


def out(*parts):
    """Path below ROOT, with its folder made."""
    p = ROOT.joinpath(*parts)
    p.parent.mkdir(parents=True, exist_ok=True)
    return p


def dump(path, obj, rows=None):
    """Write JSON. The list under key `rows` gets one element a line."""
    one = lambda o: json.dumps(o, ensure_ascii=False, separators=(",", ":"))
    if rows is None:
        text = json.dumps(obj, ensure_ascii=False, indent=2)
    else:
        parts = []
        for key, val in obj.items():
            if key in rows:
                body = "[\n" + ",\n".join(one(v) for v in val) + "\n]"
            else:
                body = one(val)
            parts.append(one(key) + ":" + body)
        text = "{\n" + ",\n".join(parts) + "\n}"
    Path(path).write_text(text + "\n", encoding="utf-8", newline="\n")


def ids_sha256(ids):
    """sha256 over the ids as little-endian uint32, for very long results."""
    return hashlib.sha256(struct.pack("<%dI" % len(ids), *ids)).hexdigest()


def text_key(text):
    """{"text":…}, or {"hex":…} (UTF-8 bytes) where a NUL would trip C strings."""
    if "\0" in text:
        return {"hex": text.encode("utf-8").hex()}
    return {"text": text}
