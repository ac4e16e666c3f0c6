"""Goal: a constrained answer follows its constraint in every case: sampled and greedy, on one machine or two, and
through stages. When machines die, it has the bytes of an undisturbed run.

Method: JSON schemas, regular expressions, choices and grammars on a cluster with the tiny model, whose random weights
would never write JSON by themselves, each answer checked by this test's own reading of the constraint. The same
requests on clusters of other shapes. Then a token machine is killed in the middle of streams.

usage: test_constraints.py [all]
all: 200 streams instead of 20 when a machine is killed, and 200 more while one is killed every second.
"""

import itertools
import json
import os
import re
import signal
import sys
import threading

from cluster import Cluster, Failure, Stream, need_model, send_signal, wait_until

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 2, "maxLength": 12},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "tags": {"type": "array", "items": {"enum": ["red", "green"]}, "maxItems": 3},
        "born": {"anyOf": [{"type": "string", "format": "date"}, {"type": "null"}]},
        "child": {"$ref": "#/$defs/leaf"},
    },
    "required": ["name", "age", "tags", "born"],
    "additionalProperties": False,
    "$defs": {"leaf": {"type": "object", "properties": {"k": {"const": "v"}}, "required": ["k"],
                       "additionalProperties": False}},
}
CONFIG = {"threads": 1, "transport": {"silence_ms": 120000}}


def check_person(text):
    value = json.loads(text)
    assert set(value) - {"child"} == {"name", "age", "tags", "born"}, text
    assert list(value) == [name for name in PERSON["properties"] if name in value], text
    assert 2 <= len(value["name"]) <= 12 and type(value["age"]) is int and 0 <= value["age"] <= 120, text
    assert len(value["tags"]) <= 3 and set(value["tags"]) <= {"red", "green"}, text
    assert value["born"] is None or re.fullmatch(r"\d{4}-\d\d-\d\d", value["born"]), text
    assert value.get("child", {"k": "v"}) == {"k": "v"}, text


def schema(value):
    return {"response_format": {"type": "json_schema", "json_schema": {"name": "it", "schema": value, "strict": True}}}


def matches(pattern):
    def check(text):
        assert re.fullmatch(pattern, text), text
    return check


CASES = [
    (schema(PERSON), check_person),
    ({"structured_outputs": {"json": PERSON}}, check_person),
    ({"guided_json": json.dumps(PERSON)}, check_person),
    ({"guided_regex": r"[a-f]{3}-\d{2,4}(é|€)"}, matches(r"[a-f]{3}-\d{2,4}(é|€)")),
    ({"guided_choice": ["yes", "no", "perhaps not"]}, matches("yes|no|perhaps not")),
    ({"structured_outputs": {"choice": ["über", "unter"]}}, matches("über|unter")),
    ({"guided_grammar": 'root ::= "<" ("x" | root) ">" [0-9]{2}'}, matches(r"(<)+x(>\d\d)+")),
    ({"response_format": {"type": "json_object", "schema": {"type": "object", "properties": {"a": {"type": "boolean"}},
                                                             "required": ["a"], "additionalProperties": False}}},
     lambda text: matches("True|False")(str(json.loads(text)["a"]))),
]


def body(constraint, number):
    return {"messages": [{"role": "user", "content": f"Case {number}"}], "max_tokens": 400, "temperature": number % 2,
            "seed": number, **constraint}


def answers(cluster, rounds=2, scores=False):
    """Returns the text of each case, sampled and greedy, after checking each. scores = with log-probabilities: then
    tokens that the constraint alone decides are sampled like the others."""
    texts = []
    for number in range(rounds * len(CASES)):
        constraint, check = CASES[number % len(CASES)]
        request = {**body(constraint, number // len(CASES) + number), **({"logprobs": True} if scores else {})}
        choice = cluster.post("/v1/chat/completions", request)["choices"][0]
        text = choice["message"]["content"]
        if choice["finish_reason"] == "stop":
            check(text)
        else:  # With greedy sampling, the random weights can repeat a part of the nested grammar for ever.
            assert choice["finish_reason"] == "length" and "guided_grammar" in constraint, (constraint, choice)
        texts.append(text)
    return texts


def refused(cluster, fields, words):
    try:
        cluster.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}], "max_tokens": 5, **fields})
    except Failure as failure:
        assert failure.status == 400 and words in failure.body, failure
        return
    raise AssertionError(f"{fields} is not refused")


def refusals(cluster):
    refused(cluster, schema({"properties": {"a": {"not": {}}}}), "#/properties/a/not")
    refused(cluster, {"guided_regex": "("}, "guided_regex")
    refused(cluster, {"guided_regex": "a", "guided_choice": ["b"]}, "at most one")
    refused(cluster, {"guided_grammar": 'root ::= root "a"'}, "begin with itself")
    refused(cluster, {"guided_choice": "yes"}, "guided_choice")
    refused(cluster, {"response_format": {"type": "yaml"}}, "yaml")
    refused(cluster, {"response_format": {"type": "json_schema"}}, "schema")
    refused(cluster, {"structured_outputs": {"structural_tag": "x"}}, "structural_tag")
    refused(cluster, {"guided_regex": "a", "ignore_eos": True}, "ignore_eos")
    refused(cluster, {"guided_regex": "a", "min_tokens": 3}, "min_tokens")
    refused(cluster, {"guided_regex": "a" * 70000}, "at most")
    print("wrong constraints: 11 refusals with a reason")


def shapes():
    with Cluster(CONFIG) as cluster:
        want = answers(cluster, 4)
        assert answers(cluster, 4, scores=True) == want
        refusals(cluster)
        choice = cluster.post("/v1/chat/completions", {**body(schema(PERSON), 1), "max_tokens": 3})["choices"][0]
        assert choice["finish_reason"] == "length"
        with_scores = cluster.post("/v1/completions", {"prompt": "x", "max_tokens": 20, "logprobs": 2, "temperature": 0,
                                                       "guided_choice": ["abc"]})["choices"][0]
        assert with_scores["text"] == "abc" and len(with_scores["logprobs"]["token_logprobs"]) >= 1
        cluster.wait_all_free()
    print(f"{len(want)} constrained answers follow their constraints")
    with Cluster({**CONFIG, "pools": {"mixed": 1}}) as cluster:
        assert answers(cluster, 4) == want
    with Cluster({**CONFIG, "pools": {"prompt": ["p0"], "token": ["t0"]},
                  "machines": {"p0": {"stages": 2}, "t0": {"stages": 3}}}) as cluster:
        assert answers(cluster, 4) == want
    print("the same answers on a mixed machine and through stages")


def killed(count):
    config = {**CONFIG, "pools": {"prompt": 1, "token": 2}, "kv": {"memory": "128MiB"}}
    with Cluster(config, gates=True) as cluster:
        def start(numbers):
            return [Stream(cluster, body(CASES[n % 4][0], 2 * n + 1), "/v1/chat/completions") for n in numbers]
        done = 0
        while done < count:
            numbers = range(done, done + 20)
            want = [stream.end().text for stream in start(numbers)]
            for n, text in zip(numbers, want):
                CASES[n % 4][1](text)
            before, old = cluster.metric("cleave_requests_resumed_total"), cluster.children()["token-0"]
            cluster.hold("token-0", layer=15, rows=2)
            streams = start(numbers)
            cluster.wait_held("token-0")
            os.kill(old, signal.SIGKILL)
            cluster.release()
            for stream, text in zip(streams, want):
                stream.expect(text, "token-0 is killed")
            assert cluster.metric("cleave_requests_resumed_total") > before
            wait_until(lambda: cluster.children().get("token-0", old) != old, "token-0 is started again", cluster=cluster)
            wait_until(lambda: cluster.metric("cleave_machine_up", machine="token-0") == 1, "token-0 is up", cluster=cluster)
            cluster.wait_all_free()
            done += 20
    print(f"a token machine is killed during {done} constrained streams: the same bytes")


def killed_every_second(count):
    """Two prompt and two token machines, of which one is killed every second while `count` streams are answered, 20 at
    a time. Batches are slowed down, so that streams live through several kills."""
    config = {**CONFIG, "pools": {"prompt": 2, "token": 2}, "kv": {"memory": "128MiB"}}
    bodies = [body(CASES[n % 4][0], 2 * n + 1) for n in range(count)]
    with Cluster(config) as cluster:
        want = [Stream(cluster, each, "/v1/chat/completions").end().text for each in bodies]
    kills, over = [], threading.Event()
    with Cluster(config, gates=True, pace_us=25000) as cluster:
        def kill():
            names = itertools.cycle(["token-0", "prompt-0", "token-1", "prompt-1"])
            while not over.wait(1):
                pid = cluster.children().get(next(names))
                if pid is not None and send_signal(pid, signal.SIGKILL):
                    kills.append(pid)
        killer = threading.Thread(target=kill)
        killer.start()
        try:
            for first in range(0, count, 20):
                streams = [Stream(cluster, each, "/v1/chat/completions") for each in bodies[first:first + 20]]
                for stream, text in zip(streams, want[first:]):
                    stream.expect(text, "a machine is killed every second")
        finally:
            over.set()
            killer.join()
        resumed = cluster.metric("cleave_requests_resumed_total")
        assert resumed > 0 and len(kills) > 1, (resumed, len(kills))
        wait_until(lambda: cluster.metric("cleave_machine_up") == 4, "all machines are up", cluster=cluster)
        cluster.wait_all_free()
    print(f"{count} constrained streams while a machine is killed every second ({len(kills)} kills): the same bytes, "
          f"{resumed:.0f} times resumed")


def flood():
    """Constraints that are slow to compile, all different and at once, some cancelled: no machine is taken for dead, the
    other requests go on, and nothing is left over."""
    with Cluster({"threads": 1, "pools": {"prompt": ["p0"], "token": ["t0"]}}) as cluster:
        def ask(number):
            return {"prompt": f"{number}", "max_tokens": 4, "temperature": 1, "seed": number, "stream": True,
                    "guided_regex": f"(a|aa|aaa){{1,{4000 + number}}}b"}
        plain = Stream(cluster, {"prompt": "a b c", "max_tokens": 200, "ignore_eos": True})
        slow = [Stream(cluster, ask(number)) for number in range(16)]
        for number in range(16, 24):
            connection = cluster.connect()
            connection.request("POST", "/v1/completions", json.dumps(ask(number)), cluster.headers)
            connection.close()
        for stream in slow:
            text = stream.end().text
            assert stream.error is None and re.fullmatch("a+b?", text), (stream.error, text, cluster.logged())
        assert plain.end().error is None and plain.events >= 200, (plain.error, plain.events)
        cluster.wait_all_free()
        assert "is down" not in cluster.logged(), cluster.logged()
    print("constraints that are slow to compile: 16 of 24 end well, 8 are cancelled")


need_model()
shapes()
flood()
killed(200 if "all" in sys.argv else 20)
if "all" in sys.argv:
    killed_every_second(200)
