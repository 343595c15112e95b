#!/usr/bin/env python3
"""The official `openai` client against `forge serve`: an optional check, not part of make check.

    pip install openai
    forge serve --port 0 & ...
    tests/serve_openai.py http://127.0.0.1:PORT [KEY]

Every check is one line; the last line counts them.  Written for the built-in model, whose answers are known.
"""
import json
import sys

import openai

url = sys.argv[1].rstrip("/") + "/v1"
client = openai.OpenAI(base_url=url, api_key=sys.argv[2] if len(sys.argv) > 2 else "none", max_retries=0)
MODEL = "forge-tiny"
ASK = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "What is the capital of France?"}]
TOOLS = [
    {"type": "function", "function": {"name": "weather", "description": "The weather of a city", "parameters": {
        "type": "object", "properties": {"city": {"type": "string", "enum": ["Paris", "Rome"]}}, "required": ["city"], "additionalProperties": False}}},
    {"type": "function", "function": {"name": "clock", "parameters": {"type": "object", "properties": {}, "additionalProperties": False}}},
]
passed, failed = 0, []


def check(name, ok, more=""):
    global passed
    if ok:
        passed += 1
    else:
        failed.append(name)
        print("FAIL", name, more)


def chat(**more):
    return client.chat.completions.create(**({"model": MODEL, "messages": ASK, "temperature": 0, "max_tokens": 40} | more))


def refused(name, param, kind=openai.BadRequestError, call=chat, **more):
    try:
        call(**more)
        check(name, False, "was not refused")
    except kind as e:
        body = e.body or {}
        check(name, body.get("param") == param and body.get("message") and body.get("type"), str(e))


# ---- models ----
models = client.models.list()
check("models: one", len(models.data) == 1)
check("models: its name", models.data[0].id == MODEL and models.data[0].object == "model")
check("models: retrieve", client.models.retrieve(MODEL).id == MODEL)
try:
    client.models.retrieve("no-such-model")
    check("models: unknown is 404", False)
except openai.NotFoundError:
    check("models: unknown is 404", True)

# ---- a chat ----
r = chat()
m = r.choices[0].message
check("chat: text", "Paris" in m.content, m.content)
check("chat: role", m.role == "assistant")
check("chat: object", r.object == "chat.completion" and r.id.startswith("chatcmpl-") and r.created > 0)
check("chat: model", r.model == MODEL)
check("chat: finish_reason", r.choices[0].finish_reason == "stop")
check("chat: usage adds up", r.usage.total_tokens == r.usage.prompt_tokens + r.usage.completion_tokens and r.usage.completion_tokens > 0)
check("chat: cached tokens are told", r.usage.prompt_tokens_details.cached_tokens >= 0)
check("chat: the books' metrics", r.metrics["output_tokens"] == r.usage.completion_tokens and r.metrics["ttft_ms"] > 0)
check("chat: no logprobs unasked", r.choices[0].logprobs is None)
check("chat: no tool calls unasked", not m.tool_calls)
check("chat: any model name", chat(model="gpt-4o").model == MODEL)
check("chat: parts of text", chat(messages=[{"role": "user", "content": [{"type": "text", "text": "What is the capital "}, {"type": "text", "text": "of France?"}]}]).choices[0].message.content == chat(messages=[{"role": "user", "content": "What is the capital of France?"}]).choices[0].message.content)
check("chat: developer is system", chat(messages=[{"role": "developer", "content": "Be brief."}, ASK[1]]).choices[0].message.content == m.content)
check("chat: several turns", chat(messages=ASK + [{"role": "assistant", "content": m.content}, {"role": "user", "content": "And of Italy?"}]).choices[0].message.content != "")
r = chat(max_tokens=2)
check("chat: max_tokens", r.choices[0].finish_reason == "length" and r.usage.completion_tokens == 2)
r = chat(max_tokens=None, max_completion_tokens=3)
check("chat: max_completion_tokens", r.usage.completion_tokens == 3)
r = chat(stop=["Paris"])
check("chat: stop", r.choices[0].finish_reason == "stop" and "Paris" not in r.choices[0].message.content)
r = chat(stop=None, seed=None, top_p=None, presence_penalty=None, logit_bias=None, response_format=None)
check("chat: null is the default", r.choices[0].message.content == m.content)
check("chat: unknown fields are ignored", chat(user="me", store=False, metadata={"a": "b"}, extra_body={"no_such_field": [1]}).choices[0].message.content == m.content)
a, b, c = (chat(temperature=1.5, seed=s, max_tokens=30).choices[0].message.content for s in (1, 1, 2))
check("chat: the same seed, the same text", a == b)
check("chat: another seed, another text", a != c, a)
r = chat(n=3, temperature=1.5, seed=5)
check("chat: n", [ch.index for ch in r.choices] == [0, 1, 2])
check("chat: n are different", len({ch.message.content for ch in r.choices}) > 1)
check("chat: n counts all tokens", r.usage.completion_tokens > 3)
check("chat: logit_bias", chat(logit_bias={"706": 100}, max_tokens=1).choices[0].message.content == "Hello")
check("chat: penalties", chat(frequency_penalty=1.0, presence_penalty=0.5, extra_body={"repetition_penalty": 1.1, "top_k": 5, "min_p": 0.1}).choices[0].message.content)

# ---- log-probabilities ----
r = chat(logprobs=True, top_logprobs=3)
lp = r.choices[0].logprobs.content
check("logprobs: one for each token", len(lp) == r.usage.completion_tokens)
check("logprobs: text adds up", "".join(t.token for t in lp) == r.choices[0].message.content)
check("logprobs: bytes add up", bytes(x for t in lp for x in t.bytes).decode() == r.choices[0].message.content)
check("logprobs: so many others", all(len(t.top_logprobs) == 3 for t in lp))
check("logprobs: the best first", all(t.top_logprobs[0].logprob >= t.top_logprobs[1].logprob for t in lp))
check("logprobs: greedy takes the best", all(t.token == t.top_logprobs[0].token for t in lp))
check("logprobs: at most 0", all(t.logprob <= 0 for t in lp))
check("logprobs: without others", all(t.top_logprobs == [] for t in chat(logprobs=True).choices[0].logprobs.content))

# ---- streams ----
chunks = list(chat(stream=True))
check("stream: object", all(k.object == "chat.completion.chunk" for k in chunks))
check("stream: one id", len({k.id for k in chunks}) == 1)
check("stream: the role first", chunks[0].choices[0].delta.role == "assistant")
check("stream: text", "".join(k.choices[0].delta.content or "" for k in chunks) == m.content)
check("stream: one finish_reason", [k.choices[0].finish_reason for k in chunks if k.choices[0].finish_reason] == ["stop"])
check("stream: no usage unasked", all(k.usage is None for k in chunks))
chunks = list(chat(stream=True, stream_options={"include_usage": True}))
check("stream: usage at the end", chunks[-1].usage.completion_tokens > 0 and chunks[-1].choices == [])
check("stream: usage once", sum(k.usage is not None for k in chunks) == 1)
texts = ["", "", ""]
ends = []
for k in chat(stream=True, n=3, temperature=1.5, seed=5):
    ch = k.choices[0]
    texts[ch.index] += ch.delta.content or ""
    ends += [ch.index] if ch.finish_reason else []
check("stream: n", sorted(ends) == [0, 1, 2])
check("stream: n as in whole", texts == [ch.message.content for ch in chat(n=3, temperature=1.5, seed=5).choices])
streamed = [t for k in chat(stream=True, logprobs=True, top_logprobs=1) if k.choices[0].logprobs for t in k.choices[0].logprobs.content]
check("stream: logprobs", [t.token for t in streamed] == [t.token for t in lp])
s = chat(stream=True, max_tokens=500, extra_body={"ignore_eos": True})
next(iter(s))
s.close()
check("stream: closed early, and it still answers", chat().choices[0].message.content == m.content)
progress = [k.model_extra["prompt_progress"] for k in chat(stream=True, extra_body={"return_progress": True}) if (k.model_extra or {}).get("prompt_progress")]
check("stream: progress", progress and progress[-1]["processed"] == progress[-1]["total"])

# ---- tools ----
r = chat(tools=TOOLS, tool_choice="required", max_tokens=200)
calls = r.choices[0].message.tool_calls
check("tools: a call", calls and calls[0].type == "function" and calls[0].function.name in ("weather", "clock"))
check("tools: arguments are JSON", calls and isinstance(json.loads(calls[0].function.arguments), dict))
check("tools: finish_reason", r.choices[0].finish_reason == "tool_calls")
r = chat(tools=TOOLS, tool_choice={"type": "function", "function": {"name": "weather"}}, max_tokens=200)
check("tools: the named one", r.choices[0].message.tool_calls[0].function.name == "weather")
check("tools: follow the schema", json.loads(r.choices[0].message.tool_calls[0].function.arguments)["city"] in ("Paris", "Rome"))
deltas = [k.choices[0].delta.tool_calls[0] for k in chat(tools=TOOLS, tool_choice="required", max_tokens=200, stream=True) if k.choices[0].delta.tool_calls]
check("tools: streamed", len(deltas) == 1 and deltas[0].index == 0 and deltas[0].id and deltas[0].function.name)
check("tools: none", not chat(tools=TOOLS, tool_choice="none").choices[0].message.tool_calls)
back = ASK + [{"role": "assistant", "content": None, "tool_calls": [c.model_dump() for c in calls]}, {"role": "tool", "tool_call_id": calls[0].id, "content": "sunny"}]
check("tools: the result goes back", chat(messages=back, tools=TOOLS).choices[0].message is not None)

# ---- form ----
schema = {"type": "object", "properties": {"city": {"enum": ["Paris", "Rome"]}, "big": {"type": "boolean"}}, "required": ["city", "big"], "additionalProperties": False}
r = chat(response_format={"type": "json_schema", "json_schema": {"name": "answer", "schema": schema, "strict": True}}, max_tokens=200)
j = json.loads(r.choices[0].message.content)
check("form: follows the schema", set(j) == {"city", "big"} and isinstance(j["big"], bool))
check("form: any object", isinstance(json.loads(chat(response_format={"type": "json_object"}, max_tokens=300).choices[0].message.content), dict))
check("form: text", chat(response_format={"type": "text"}).choices[0].message.content == m.content)
refused("form: unknown keyword", "response_format", response_format={"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "object", "patternProperties": {"a": {}}, "dependentSchemas": {}}}})

# ---- the older protocol ----
def complete(**more):
    return client.completions.create(**({"model": MODEL, "prompt": "The capital of France is", "temperature": 0, "max_tokens": 5} | more))


r = complete()
check("text: continues", r.choices[0].text.startswith(" Paris"), r.choices[0].text)
check("text: object", r.object == "text_completion" and r.choices[0].finish_reason == "length")
check("text: streamed", "".join(k.choices[0].text for k in complete(stream=True)) == r.choices[0].text)
check("text: several prompts", [ch.index for ch in complete(prompt=["One", "Two"]).choices] == [0, 1])
check("text: ids", complete(prompt=[706, 315]).usage.prompt_tokens == 2)
check("text: lists of ids", len(complete(prompt=[[706], [315]]).choices) == 2)
check("text: echo", complete(echo=True).choices[0].text.startswith("The capital of France is Paris"))
l = complete(logprobs=2).choices[0].logprobs
check("text: logprobs", len(l.tokens) == len(l.token_logprobs) == len(l.top_logprobs) == len(l.text_offset) == 5 and l.text_offset[0] == 0)

# ---- errors ----
refused("error: temperature", "temperature", temperature=3)
refused("error: top_p", "top_p", top_p=-1)
refused("error: n", "n", n=0)
refused("error: max_tokens", "max_tokens", max_tokens=0)
refused("error: stream", "stream", extra_body={"stream": "true"})
refused("error: logit_bias", "logit_bias", logit_bias={"x": 1})
refused("error: top_logprobs alone", "top_logprobs", top_logprobs=2)
refused("error: no messages", "messages", messages=[])
refused("error: role", "messages[0].role", messages=[{"role": "bob", "content": "x"}])
refused("error: image", "messages[0].content", messages=[{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}])
refused("error: tool_choice", "tool_choice", tools=TOOLS, tool_choice={"type": "function", "function": {"name": "nothing"}})
refused("error: too long", "messages", messages=[{"role": "user", "content": "word " * 5000}])
try:
    chat(messages=[{"role": "user", "content": "word " * 5000}])
except openai.BadRequestError as e:
    check("error: too long has its code", e.code == "context_length_exceeded")
if len(sys.argv) > 2:
    try:
        openai.OpenAI(base_url=url, api_key="wrong", max_retries=0).models.list()
        check("error: key", False)
    except openai.AuthenticationError:
        check("error: key", True)

print(f"{passed} passed, {len(failed)} failed, 0 skipped")
sys.exit(bool(failed))
