"""Goal: answers call tools. Calls that a request demands always follow the tools' schemas, in the form of every family,
sampled and greedy; streams make the same message; the bytes stay the same when a machine dies.

Method: the tiny model, whose random weights would never write a call by themselves, with each tool parser; each call is
checked by this test's own reading of the schema. In a copy of the model, <tool_call> is a control token. A template that
shows its variables proves what it gets from a history with calls, results and reasoning.

usage: test_tools.py [all]
all: 100 streams instead of 10 when a machine is killed.
"""

import json
import os
import re
import signal
import sys
import tempfile

from cluster import MODEL, Cluster, Failure, need_model, wait_until

WEATHER = {
    "name": "get_weather", "description": "The weather of a city.",
    "parameters": {"type": "object", "properties": {
        "city": {"type": "string", "minLength": 1, "maxLength": 12}, "days": {"type": "integer", "minimum": 1, "maximum": 9},
        "unit": {"enum": ["C", "F"]}}, "required": ["city", "days"], "additionalProperties": False},
}
TOOLS = [{"type": "function", "function": WEATHER},
         {"type": "function", "function": {"name": "now"}},
         {"type": "function", "function": {"name": "add", "parameters": {
             "properties": {"terms": {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 99},
                                      "minItems": 1, "maxItems": 3}},
             "required": ["terms"], "additionalProperties": False}}}]
NAMED = {"type": "function", "function": {"name": "get_weather"}}
TRIES = 80  # Half of the sampled requests begin with reasoning: that all of them do is as good as impossible.
CONFIG = {"threads": 1, "transport": {"silence_ms": 120000}}
FORMATS = [("auto", "auto"), ("hermes", "none"), ("hermes", "think"), ("llama3", "none"), ("mistral", "mistral"),
           ("deepseek", "think"), ("harmony", "harmony"), ("json", "none")]
TEMPLATE = """{%- for t in tools or [] %}[{{ t.function.name }} {{ t.function.parameters.type }}]{% endfor %}
{%- for m in messages %}<{{ m.role }}>{{ m.content }}
{%- for c in m.tool_calls or [] %}{{ c.function.name }}({{ c.function.arguments.a }}){% endfor %}
{%- if m.role == "tool" %}={{ m.name }}{% endif %}{{ m.thinking }}{% endfor %}{{ reasoning_effort }}{{ enable_thinking }}"""


def check_call(call):
    function = call["function"]
    arguments, name = json.loads(function["arguments"]), function["name"]
    if name == "get_weather":
        assert {"city", "days"} <= set(arguments) <= {"city", "days", "unit"}, call
        assert 1 <= len(arguments["city"]) <= 12 and arguments["days"] in range(1, 10), call
        assert arguments.get("unit", "C") in ("C", "F"), call
    elif name == "add":
        assert list(arguments) == ["terms"] and 1 <= len(arguments["terms"]) <= 3, call
        assert all(term in range(100) for term in arguments["terms"]), call
    else:
        assert name == "now" and isinstance(arguments, dict), call
    assert call["type"] == "function" and re.fullmatch(r"call_[0-9a-f]{24}|[0-9A-Za-z]{9}", call["id"]), call


def body(**fields):
    return {"messages": [{"role": "user", "content": "Weather?"}], "tools": TOOLS, "max_tokens": 500, "temperature": 1,
            "seed": 1, **fields}


def shown(message):
    """Returns what two runs of one request have in common: all but the ids."""
    return (message.get("content"), message.get("reasoning_content"),
            [(call["function"]["name"], call["function"]["arguments"]) for call in message.get("tool_calls", [])])


def join(events):
    """Joins the deltas of a stream with one choice. Returns the message, the finish reason and the usage."""
    message, finish, usage = {}, None, None
    for event in events:
        usage = event.get("usage") or usage
        for choice in event["choices"]:
            assert finish is None
            delta, finish = choice["delta"], choice["finish_reason"]
            for name in ("role", "content", "reasoning_content"):
                if delta.get(name) is not None:
                    message[name] = message.get(name, "") + delta[name]
            for piece in delta.get("tool_calls", []):
                calls = message.setdefault("tool_calls", [])
                if "id" in piece:
                    assert piece["index"] == len(calls), event
                    calls.append(json.loads(json.dumps(piece)))
                else:
                    assert piece["index"] == len(calls) - 1 and "name" not in piece["function"], event
                    calls[-1]["function"]["arguments"] += piece["function"]["arguments"]
    return message, finish, usage


def town(number):
    """Messages that differ, because random weights begin all answers to the same messages with reasoning, or none."""
    return [{"role": "user", "content": f"Weather in town {number}?"}]


def demanded(cluster, name):
    """Calls that requests demand follow their schemas; the stream has the same message. Random weights may begin with
    reasoning that never ends, so there are more requests until one calls get_weather."""
    seen = set()
    for seed in range(TRIES):
        if seed >= 4 and "get_weather" in seen:
            break
        fields = {"messages": town(seed), "seed": seed, "temperature": seed % 3 / 2,
                  "tool_choice": NAMED if seed % 2 else "required", "parallel_tool_calls": seed < 2}
        choice = cluster.post("/v1/chat/completions", body(**fields))["choices"][0]
        calls = choice["message"].get("tool_calls", [])
        if choice["finish_reason"] == "length":  # Reasoning of random weights, or many calls, may not end.
            calls = calls[:-1]
        else:
            assert choice["finish_reason"] == "tool_calls" and calls and choice["message"]["content"] is None, choice
            assert len(calls) == 1 or seed == 0, choice
        for call in calls:
            check_call(call)
            seen.add(call["function"]["name"])
            assert seed % 2 == 0 or call["function"]["name"] == "get_weather", choice
        message, finish, usage = join(cluster.stream("/v1/chat/completions", body(
            **fields, stream=True, stream_options={"include_usage": True})))
        assert shown(message) == shown(choice["message"]) and finish == choice["finish_reason"], (message, choice)
        assert usage["completion_tokens"] > 0
    assert "get_weather" in seen, (name, seen)


def free(cluster):
    """The model decides: nothing, or free text, calls tools; tool_choice none never does."""
    answer = cluster.post("/v1/chat/completions", body(tool_choice="none", max_tokens=20, n=2))
    assert all("tool_calls" not in choice["message"] for choice in answer["choices"]), answer
    assert cluster.post("/v1/chat/completions", body(max_tokens=20))["usage"]["completion_tokens"] <= 20
    strict = [{**tool, "function": {**tool["function"], "strict": True}} for tool in TOOLS]
    for seed in range(2):
        answer = cluster.post("/v1/chat/completions", body(tools=strict, seed=seed, n=2, max_tokens=40))
        for choice in answer["choices"]:
            if choice["finish_reason"] == "tool_calls":
                for call in choice["message"]["tool_calls"]:
                    check_call(call)


def formats():
    for tools, reasoning in FORMATS:
        with Cluster({**CONFIG, "pools": {"mixed": 1}, "tool_parser": tools, "reasoning_parser": reasoning}) as cluster:
            demanded(cluster, tools)
            free(cluster)
            if reasoning in ("think", "harmony"):
                constrained_reasoning(cluster)
    print(f"calls in {len(FORMATS)} forms follow their schemas, streamed or not")


def constrained_reasoning(cluster):
    """A constraint begins behind the reasoning."""
    format = {"type": "json_schema", "json_schema": {"name": "x", "schema": WEATHER["parameters"]}}
    ended = 0
    for seed in range(TRIES):
        if seed >= 4 and ended > 0:
            break
        answer = cluster.post("/v1/chat/completions", {
            "messages": town(seed), "response_format": format, "seed": seed, "max_tokens": 300})
        choice = answer["choices"][0]
        if choice["finish_reason"] == "stop":
            check_call({"id": "a" * 9, "type": "function",
                        "function": {"name": "get_weather", "arguments": choice["message"]["content"]}})
            ended += 1
    assert ended > 0
    assert answer["usage"]["completion_tokens_details"]["reasoning_tokens"] <= answer["usage"]["completion_tokens"]


def control_tokens():
    """A marker that is a control token is sampled as one, and read although it is not shown."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.gguf")
        with open(MODEL, "rb") as model, open(path, "wb") as copy:
            data = model.read()
            assert data.count(b"<repo_name>") == 1
            copy.write(data.replace(b"<repo_name>", b"<tool_call>"))
        with Cluster({**CONFIG, "model": path, "tool_parser": "hermes"}) as cluster:
            tokens = cluster.post("/tokenize", {"prompt": "<tool_call>", "add_special_tokens": False})["tokens"]
            assert len(tokens) == 1, tokens
            demanded(cluster, "control tokens")
            choice = cluster.post("/v1/chat/completions", body(tool_choice=NAMED, return_token_ids=True))["choices"][0]
            assert choice["token_ids"].count(tokens[0]) == 1, choice
            cluster.wait_all_free()
    print("markers that are control tokens")


def history():
    messages = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": None, "reasoning_content": "Hm", "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{\"a\": 7}"}},
            {"id": "c2", "type": "function", "function": {"name": "g", "arguments": ""}}]},
        {"role": "tool", "tool_call_id": "c2", "content": "two"},
        {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "o"}, {"type": "text", "text": "ne"}]},
    ]
    with Cluster({**CONFIG, "pools": {"mixed": 1}, "chat_template_file": "shown.jinja"},
                 files={"shown.jinja": TEMPLATE}) as cluster:
        def prompt(**fields):
            answer = cluster.post("/tokenize", {"messages": messages, "return_token_strs": True, **fields})
            return "".join(answer["token_strs"])
        turns = "<user>Hi<assistant>f(7)g()Hm<tool>two=g<tool>one=f"
        tools = "[get_weather object][now object][add object]"
        assert prompt() == turns, prompt()
        assert prompt(tools=TOOLS) == tools + turns, prompt(tools=TOOLS)
        assert prompt(tools=TOOLS, tool_choice="none") == turns
        assert prompt(reasoning_effort="low") == turns + "low"
        assert prompt(reasoning_effort="none") == turns + "noneFalse"
        assert prompt(reasoning_effort="high", chat_template_kwargs={"reasoning_effort": "x"}) == turns + "x"
    print("a history with calls, results and reasoning")


def refused():
    with Cluster({**CONFIG, "pools": {"mixed": 1}}) as cluster:
        large = [{"function": {"name": f"f{i}", "parameters": {"properties": {"p" * 600: {}}}}} for i in range(128)]
        cases = [({"tools": large, "tool_choice": "required"}, "at most 65536"),
                 ({"tools": large + large[:1]}, "at most 128"),
                 ({"tools": [{"function": {"name": "f", "description": "x" * 300000}}]}, "bytes of JSON")]
        for fields, words in cases:
            try:
                cluster.post("/v1/chat/completions", body(**fields))
            except Failure as failure:
                assert failure.status == 400 and words in failure.body, failure
            else:
                raise AssertionError(words)


def killed(count):
    config = {**CONFIG, "pools": {"prompt": 1, "token": 2}, "kv": {"memory": "128MiB"}, "tool_parser": "hermes",
              "reasoning_parser": "think"}
    with Cluster(config, gates=True) as cluster:
        import threading

        def start(numbers):
            results = {}

            def read(n):
                results[n] = shown(join(cluster.stream("/v1/chat/completions", body(
                    seed=n, stream=True, max_tokens=60, tool_choice="required")))[0])
            threads = [threading.Thread(target=read, args=[n], daemon=True) for n in numbers]
            for thread in threads:
                thread.start()
            return threads, results

        def end(started):
            for thread in started[0]:
                thread.join(300)
            assert len(started[1]) == len(started[0]), cluster.logged()
            return started[1]
        for first in range(0, count, 10):
            numbers = range(first, first + 10)
            want = end(start(numbers))
            before, old = cluster.metric("cleave_requests_resumed_total"), cluster.children()["token-0"]
            cluster.hold("token-0", layer=15, rows=2)
            streams = start(numbers)
            cluster.wait_held("token-0")
            os.kill(old, signal.SIGKILL)
            cluster.release()
            assert end(streams) == want
            assert cluster.metric("cleave_requests_resumed_total") > before
            wait_until(lambda: cluster.children().get("token-0", old) != old, "token-0 is started again", cluster=cluster)
            wait_until(lambda: cluster.metric("cleave_machine_up", machine="token-0") == 1, "token-0 is up", cluster=cluster)
            cluster.wait_all_free()
    print(f"a token machine is killed during {count} streams with calls: the same parts")


need_model()
history()
refused()
formats()
control_tokens()
killed(100 if "all" in sys.argv else 10)
