"""Requests for tests of KV tiers (kv/tiers), of every kind that changes how tokens are chosen. Their prompts have whole
blocks in common, or nothing."""

import json
import os
import signal
import threading

from cluster import Cluster, Stream, wait_until

BLOCK = 16
MEMORY = "64MiB"
CONFIG = {"threads": 1, "transport": {"silence_ms": 60000}}
KEYS = {"keys": [{"name": "a", "key": "sk-aaaa-0123456789"}, {"name": "b", "key": "sk-bbbb-0123456789"},
                 {"name": "root", "key": "sk-root-0123456789", "admin": True}]}
RECORD = 128 + 30 * 3 * BLOCK * (2 * 64 * 2 + 4)  # Bytes: header, layers, heads, tokens, K and V with their scales.
PEOPLE = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 8}, "age": {"type": "integer"}},
          "required": ["name", "age"], "additionalProperties": False}


def tokens(start, count):
    return [(start * 31 + k * 13) % 40000 + 100 for k in range(count)]


def cases():
    """Yields bodies of requests; their prompts have whole blocks in common, or nothing."""
    shared = tokens(1, 200)
    yield {"prompt": shared, "temperature": 0}
    yield {"prompt": shared[:150] + tokens(2, 90), "temperature": 0.9, "seed": 5, "top_p": 0.95}
    yield {"prompt": tokens(3, 170), "temperature": 1.1, "seed": 6, "presence_penalty": 1.5, "frequency_penalty": 0.7}
    yield {"prompt": tokens(4, 100), "temperature": 0, "repetition_penalty": 1.3}
    yield {"prompt": shared[:100] + tokens(5, 40), "temperature": 0.7, "seed": 3, "stop": ["e", "th"], "max_tokens": 60}
    yield {"prompt": tokens(6, 120), "temperature": 0.8, "seed": 8, "max_tokens": 40,
           "response_format": {"type": "json_schema", "json_schema": {"name": "it", "schema": PEOPLE, "strict": True}}}
    yield {"prompt": tokens(7, 64), "temperature": 0, "max_tokens": 1}
    yield {"prompt": tokens(8, 40), "temperature": 0, "echo": True, "logprobs": 1}


def answer(cluster, body, headers=None):
    status, _, data = cluster.request("POST", "/v1/completions", {"max_tokens": 12, "logprobs": 1, **body}, headers)
    assert status == 200, data
    reply = json.loads(data)
    return reply["choices"], reply["usage"].get("prompt_tokens_details", {}).get("cached_tokens", 0)


def check_answers(cluster, wanted):
    """Returns the number of cached tokens of all requests."""
    found = 0
    for body, want in zip(cases(), wanted):
        got, cached = answer(cluster, body)
        assert got == want, (body, got, want)
        found += cached
    return found


class Load:
    """Threads that send the requests again and again, and compare the answers."""

    def __init__(self, cluster, wanted):
        self.cluster, self.wanted, self.stop, self.error, self.rounds = cluster, wanted, False, None, 0
        self.threads = [threading.Thread(target=self.run, args=(i,), daemon=True) for i in range(3)]
        for thread in self.threads:
            thread.start()

    def run(self, number):
        try:
            bodies = list(zip(cases(), self.wanted))
            while not self.stop:
                for body, want in bodies[number:] + bodies[:number]:
                    assert answer(self.cluster, body)[0] == want, body
                self.rounds += 1
        except BaseException as error:
            self.error = error

    def wait_for(self, condition, what):
        """Waits until the condition is true, and fails if an answer is wrong."""
        wait_until(lambda: self.error is not None or condition(), what, cluster=self.cluster)
        assert self.error is None, self.error

    def wait_rounds(self, count=2):
        goal = self.rounds + count
        self.wait_for(lambda: self.rounds >= goal, "requests are answered")

    def end(self):
        self.stop = True
        for thread in self.threads:
            thread.join(300)
        assert self.error is None, self.error


def check_salts(settings, wait_works, wait_stored):
    """A tenant finds what it has stored, and nothing of the other tenant. wait_works(cluster): waits until the tier works;
    wait_stored(cluster): until the prompt of one request is stored."""
    settings = {**settings, "server": {"api_keys_file": "keys.json"}}
    a, b, root = ({"Authorization": f"Bearer {each['key']}"} for each in KEYS["keys"])
    body = {"prompt": tokens(30, 200), "temperature": 0}
    with Cluster(settings, files={"keys.json": json.dumps(KEYS)}) as cluster:
        cluster.headers.update(root)
        wait_works(cluster)
        want, cached = answer(cluster, body, a)
        assert cached == 0, cached
        wait_stored(cluster)
    with Cluster(settings, files={"keys.json": json.dumps(KEYS)}) as cluster:
        cluster.headers.update(root)
        wait_works(cluster)
        for who, wanted in ((b, 0), (a, 192)):
            got, cached = answer(cluster, body, who)
            assert got == want and cached == wanted, (cached, wanted)


def check_killed_decode(settings, kind, machines, wait_works):
    """The machine that has computed a prompt is killed while it generates the answer. The machine that takes over (of
    two), or the same machine after its restart (of one), loads the prompt from the tier `kind`. The answer is that of an
    undisturbed run."""
    body = {"prompt": tokens(50, 200), "max_tokens": 24, "temperature": 0.8, "seed": 4, "ignore_eos": True}
    pools = {"pools": {"prompt": 0, "token": 0, "mixed": machines}}
    with Cluster({**CONFIG, **pools, "kv": {"memory": MEMORY}}) as plain:
        want = plain.post("/v1/completions", body)["choices"][0]["text"]
    with Cluster({**settings, **pools}, gates=True) as cluster:
        def hits():
            return {name: cluster.metric("cleave_kv_tier_hits_tokens_total", tier=kind, machine=name) for name in names}

        names = [f"mixed-{i}" for i in range(machines)]
        wait_works(cluster)
        for name in names:
            cluster.hold(name)
        stream = Stream(cluster, body)
        holder = wait_until(lambda: [name for name in names if cluster.held(name)], "a machine is held", cluster=cluster)[0]
        while stream.events == 0:
            cluster.step(holder)
        wait_until(lambda: cluster.metric("cleave_kv_tier_stored_bytes_total", tier=kind) >= 200 // BLOCK * RECORD,
                   "the prompt is stored", cluster=cluster)
        assert stream.events < 24 and set(hits().values()) == {0}
        os.kill(cluster.children()[holder], signal.SIGKILL)
        cluster.release()
        stream.expect(want, "the machine died")
        after = [name for name in names if name != holder or machines == 1]
        wait_until(lambda: sum(hits()[name] for name in after) >= 192, "the load is reported", cluster=cluster)
        assert cluster.metric("cleave_requests_resumed_total") == 1
        cluster.wait_all_free()
