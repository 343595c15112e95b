"""Makes golden/extra. Usage: run_extra.py [maker ...]"""
import sys

import extrakit

MAKERS = ("extra_gguf", "extra_pth", "extra_rope", "extra_heads", "extra_vocab", "extra_folders", "extra_refused")


def main(makers):
    for name in makers or MAKERS:
        print("==", name, flush=True)
        extrakit.write_index(__import__(name).main())
    for f in extrakit.EXTRA.rglob("*"):
        f.chmod(0o755 if f.is_dir() else 0o644)                   # some writers make files that only their owner can read


if __name__ == "__main__":
    main(sys.argv[1:])
