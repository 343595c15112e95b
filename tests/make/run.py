"""Generates all golden data. Usage: python run.py [step ...]"""
import sys

STEPS = ("make_tokenizers", "make_models", "make_containers", "make_quant", "make_chat", "make_sampling", "make_bad")


def main(steps):
    from common import out
    for step in steps or STEPS:
        print("==", step, flush=True)
        m = __import__(step)
        if step == "make_bad":
            m.write(m.CASES, out("bad", "x").parent, m.ABOUT)
        elif step == "make_chat":
            m.write(m.CASES, out("chat", "x").parent)
        else:
            m.main()


if __name__ == "__main__":
    main(sys.argv[1:])
