#!/usr/bin/env python3
"""Many clients at once against `forge serve`, some of which leave: an optional check, not part of make check.

    tests/serve_stress.py FORGE [SECONDS [CLIENTS [QUESTIONS]]] [-- FLAGS OF serve]

Starts the server with the built-in model.  First each of QUESTIONS (60) is asked alone; then CLIENTS (16) threads ask them in
any order, streamed or whole, and leave some answers at a random moment: before the head, or behind some events.  Every
answer that is waited for must be the one it has alone, for its seed.  At the end nothing may run, wait or be held, and
the server's memory may not have grown since the first fifth of the time (ASan keeps what was freed: ASAN_OPTIONS=quarantine_size_mb=1).  Exit status 1 when something differs.
"""
import http.client
import json
import os
import random
import re
import subprocess
import sys
import threading
import time

PROMPTS = ["The capital of France is", "One two three", "Tell me of the sea and of the people who live beside it. " * 6, "A",
           "Once upon a time " * 30, "List ten colours:"]
KEEP_ALIVE = "0.1"


def question(i):
    """Of many kinds: length, seed, sampling, number of samples, log-probabilities, a chat, a form."""
    r = random.Random(i)
    q = {"max_tokens": r.choice([1, 5, 20, 60, 150]), "seed": i, "temperature": r.choice([0, 0.7, 1.2]), "ignore_eos": r.random() < 0.7}
    if r.random() < 0.2:
        q["n"] = r.choice([2, 3])
    if r.random() < 0.3:
        q |= {"top_p": 0.9, "top_k": 40, "frequency_penalty": 0.3}
    if r.random() < 0.4:
        q["messages"] = [{"role": "user", "content": r.choice(PROMPTS) + " " + str(i)}]
        if r.random() < 0.3:
            q["response_format"] = {"type": "json_schema", "json_schema": {"name": "a", "schema": {
                "type": "object", "properties": {"city": {"enum": ["Paris", "Rome"]}, "n": {"type": "integer"}}, "required": ["city", "n"]}}}
        return "/v1/chat/completions", q
    q["prompt"] = r.choice(PROMPTS) + " " + str(i)
    return "/v1/completions", q


class Server:
    def __init__(self, forge, flags):
        self.process = subprocess.Popen([forge, "serve", "--port", "0", "--device", "cpu", "--keep-alive", KEEP_ALIVE, "-q", *flags], stdout=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        match = re.match(r"listening at http://([\d.]+):(\d+)", line)
        if not match:
            sys.exit(f"the server says: {line!r}")
        self.address = match[1], int(match[2])

    def get(self, path):
        c = http.client.HTTPConnection(*self.address, timeout=300)
        c.request("GET", path)
        return c.getresponse().read().decode()

    def rss(self):
        with open(f"/proc/{self.process.pid}/status") as f:
            return int(re.search(r"VmRSS:\s+(\d+)", f.read())[1])


def texts_of_events(body, n):
    """The texts of a stream's choices; None where it has not ended rightly."""
    texts, ends, done = [""] * n, [0] * n, False
    for line in body.split("\n"):
        if not line.startswith("data: "):
            continue
        if line == "data: [DONE]":
            done = True
            continue
        e = json.loads(line[6:])
        if "error" in e:
            return None
        for ch in e["choices"]:
            texts[ch["index"]] += ch["text"] if "text" in ch else ch["delta"].get("content") or ""
            ends[ch["index"]] += ch["finish_reason"] is not None
    return texts if done and ends == [1] * n else None


def ask(server, i, stream, leave=None):
    """The texts of question i; None after it has left, which it does `leave` reads later."""
    path, q = question(i)
    c = http.client.HTTPConnection(*server.address, timeout=300)
    c.request("POST", path, json.dumps(q | {"stream": stream}), {"Content-Type": "application/json"})
    if leave == 0:
        time.sleep(random.random() * 0.05)
        c.close()
        return None
    r = c.getresponse()
    if r.status != 200:
        raise RuntimeError(f"question {i}: {r.status} {r.read().decode()}")
    if stream and leave:
        for _ in range(leave):
            if not r.readline():
                break
        r.close()
        c.close()
        return None
    body = r.read().decode()
    c.close()
    if stream:
        return texts_of_events(body, q.get("n", 1))
    return [ch["text"] if "text" in ch else ch["message"]["content"] or "" for ch in json.loads(body)["choices"]]


def talk(server, number, alone, end, counts, lock):
    r = random.Random(number)
    while time.time() < end:
        i, stream = r.randrange(len(alone)), r.random() < 0.7
        leave = (r.randrange(20) if stream else 0) if r.random() < 0.3 else None
        try:
            got = ask(server, i, stream, leave)
            wrong = None if leave is not None or got == alone[i] else f"question {i}, stream {stream}: {got!r}, alone {alone[i]!r}"
        except (OSError, http.client.HTTPException, RuntimeError, ValueError) as e:
            wrong = None if leave is not None else f"question {i}, stream {stream}: {e!r}"
        with lock:
            counts["left" if leave is not None else "wrong" if wrong else "right"] += 1
            if wrong and counts["wrong"] < 5:
                print(wrong)


def main():
    args = sys.argv[1:]
    flags = args[args.index("--") + 1:] if "--" in args else []
    args = args[:args.index("--")] if "--" in args else args
    seconds, n_clients = float(args[1]) if len(args) > 1 else 60, int(args[2]) if len(args) > 2 else 16
    n_questions = int(args[3]) if len(args) > 3 else 60
    server = Server(args[0], flags or ["--slots", "6", "--max-queue", "1000"])
    alone = [ask(server, i, False) for i in range(n_questions)]
    streamed = sum(ask(server, i, True) != alone[i] for i in range(n_questions))
    counts, lock, end = {"right": 0, "wrong": 0, "left": 0}, threading.Lock(), time.time() + seconds
    threads = [threading.Thread(target=talk, args=(server, k, alone, end, counts, lock)) for k in range(n_clients)]
    for t in threads:
        t.start()
    memory = []
    while time.time() < end:
        time.sleep(min(seconds / 40, 5))
        memory.append(server.rss())
    for t in threads:
        t.join(120)
    stuck = sum(t.is_alive() for t in threads)
    for _ in range(500): # those that were left end within a step
        health = json.loads(server.get("/health"))
        if health["running"] == health["queued"] == 0:
            break
        time.sleep(0.02)
    held = int(float(re.search(r"\nforge_kv_pages_held (\S+)", server.get("/metrics"))[1]))
    fds = len(os.listdir(f"/proc/{server.process.pid}/fd"))
    early = max(memory[:max(len(memory) // 5, 1)])
    late = max(memory)
    server.process.terminate()
    status = server.process.wait(60)
    print(f"{counts['right']} right, {counts['wrong']} wrong, {counts['left']} left, {streamed} differ streamed; {stuck} clients stuck, "
          f"{health['running']} running, {health['queued']} queued, {held} pages held, {fds} descriptors; "
          f"memory {early} KiB early, {late} KiB at most; exit status {status}")
    good = not (counts["wrong"] or streamed or stuck or health["running"] or health["queued"] or held or status) and late < early * 1.1 + 4096
    sys.exit(0 if good else 1)


main()
