"""Goal: with any split of a machine's layers over processes, every answer has the bytes of a cluster without stages:
prompt, token and mixed machines, even and uneven splits, replicas, shared memory and TCP.

Method: a cluster without stages and a cluster of each split get the same requests: short prompts, prompts longer than a
micro-batch and longer than a batch, several at a time, sampled and greedy, several choices, log-probabilities, scored
prompts, and second turns whose first part is in the prefix cache. test_stages_net.py does the same between network
namespaces.

usage: test_stages.py matrix|shapes|tcp [few]
       test_stages.py pressed
few: some of the splits; pressed: machines with stages whose memory is short.
"""

import concurrent.futures
import itertools
import json
import os
import sys
import time

from cluster import Cluster, need_model, wait_until

# Machines that a slow computer rarely runs must not count as dead (silence_ms), and their roles must not change
# (adaptive_pools).
BASE = {"threads": 1, "kv": {"memory": "48MiB"}, "transport": {"silence_ms": 120000},
        "scheduler": {"prompt_batch_tokens": 64, "prompt_fill_tokens": 32, "micro_batch_tokens": 16,
                      "adaptive_pools": False}}


def tokens(start, count):
    return [(start * 31 + k * 13) % 40000 + 100 for k in range(count)]


def requests():
    """Two rounds. The requests of a round are sent at once; those of the second round find the KV of the first round in
    the prefix cache."""
    story = {"prompt": "Once upon a time", "max_tokens": 12, "temperature": 0}
    first = [
        story,
        {"prompt": tokens(1, 1), "max_tokens": 4, "temperature": 0.7, "seed": 3},
        {"prompt": tokens(2, 150), "max_tokens": 8, "temperature": 0, "logprobs": 3},  # Several batches.
        {"prompt": tokens(3, 40), "max_tokens": 10, "temperature": 0.9, "top_p": 0.9, "seed": 11, "logprobs": 1},
        {"prompt": tokens(4, 30), "max_tokens": 6, "temperature": 1, "seed": 5, "n": 3},
        {"prompt": tokens(5, 50), "max_tokens": 3, "temperature": 0, "echo": True, "logprobs": 2},
        {"prompt": tokens(6, 20), "max_tokens": 0, "echo": True, "logprobs": 4},
        {"prompt": tokens(7, 33), "max_tokens": 1, "temperature": 0},  # No token machine decodes this request.
        {"prompt": [tokens(8, 17), tokens(9, 5)], "max_tokens": 5, "temperature": 0.5, "seed": 2, "top_k": 20},
    ]
    second = [
        {**first[2], "prompt": tokens(2, 150) + tokens(10, 40)},
        {**first[3], "prompt": tokens(3, 40) + tokens(11, 9), "cleave": {"transfer": "layerwise"}},
        {**first[2], "max_tokens": 4, "cleave": {"transfer": "one-piece"}},
        {**story, "max_tokens": 5},
    ]
    return [first, second]


def answer(cluster, body):
    reply = cluster.post("/v1/completions", {**body, "return_token_ids": True})
    return [[choice[key] for key in ("text", "token_ids", "logprobs", "finish_reason")]
            for choice in sorted(reply["choices"], key=lambda choice: choice["index"])], reply["usage"]


def answers(cluster):
    """Returns the answers to all requests, and the number of tokens that the prefix cache saved."""
    got, cached = [], 0
    for bodies in requests():
        with concurrent.futures.ThreadPoolExecutor(len(bodies)) as pool:
            for choices, usage in pool.map(lambda body: answer(cluster, body), bodies):
                got.append(json.dumps(choices))
                cached += usage["prompt_tokens_details"]["cached_tokens"]
    return got, cached


def machines(prompt, token):
    """Returns the config of a prompt machine and a token machine with these stages."""
    return {"pools": {"prompt": ["p0"], "token": ["t0"]}, "machines": {"p0": {"stages": prompt}, "t0": {"stages": token}}}


def mixed(stages):
    return {"pools": {"mixed": ["m0"]}, "machines": {"m0": {"stages": stages}}}


def stage_count(stages):
    return 0 if stages == 1 else stages if isinstance(stages, int) else len(stages)


def replicated(stages):
    layers = [stage.get("layers") for stage in stages] if isinstance(stages, list) else []
    return len(set(layers)) < len(layers)


def state(cluster):
    return json.loads(cluster.request("GET", "/admin/state")[2])


def up(cluster):
    """Returns whether all machines are connected, in the pools of the config, with a link from each prompt machine to
    each token machine. A gateway is ready earlier: as soon as some machines can serve."""
    found = state(cluster)
    machines_up = all(machine["connection"] == "up" and machine["pool"] == machine["home"] for machine in found["machines"])
    prompt, token = ([machine["name"] for machine in found["machines"] if machine["home"] == pool]
                     for pool in ("prompt", "token"))
    links = {(link["from"], link["to"]) for link in found["links"] if link["up"]}
    return machines_up and links >= set(itertools.product(prompt, token))


def wait_stages(cluster, count):
    """Waits until all machines are up, with this number of stage processes. Returns {"t0/1": pid}."""
    wait_until(lambda: up(cluster), "all machines are up", cluster=cluster)
    stages = cluster.stages()
    assert len(stages) == count, (stages, cluster.logged())
    return stages


def check(what, config, want):
    start = time.monotonic()
    prefiller = next(iter(config["machines"].values()))
    with Cluster({**BASE, **config}) as cluster:
        stages = wait_stages(cluster, sum(stage_count(machine.get("stages", 1)) for machine in config["machines"].values()))
        ready = time.monotonic()
        got, cached = answers(cluster)
        for bodies, have, expected in zip(itertools.chain(*requests()), got, want):
            assert have == expected, (what, bodies, have, expected, cluster.logged())
        # A replica has the KV of its own requests only, so a machine with replicas has no prefix cache.
        assert cached == 0 if replicated(prefiller["stages"]) else cached >= 150, (what, cached)
        cluster.wait_all_free()
        if "mixed" not in config["pools"]:
            # Machines report their figures with a delay.
            wait_until(lambda: cluster.metric("cleave_transfers_total") >= 8, "8 transfers", cluster=cluster)
            path = "messages over tls" if "ucx_transports" in config.get("transport", {}) else "ucx put over sysv"
            wait_until(lambda: f"link to t0 is up: {path}" in cluster.logged(), f"a link by {path}", cluster=cluster)
        pids = [*cluster.children().values(), *stages.values()]
        assert cluster.stop() == 0, cluster.logged()
        said = cluster.logged()
    assert not [line for line in said.splitlines() if "error" in line or "assert" in line or "Sanitizer" in line], said
    print(f"{what}: the same bytes, {cached} tokens cached, ready after {ready - start:.1f} s, "
          f"answered in {time.monotonic() - ready:.1f} s", flush=True)
    wait_until(lambda: not [pid for pid in pids if os.path.exists(f"/proc/{pid}")], "all processes have ended")


def matrix(few):
    for prompt, token in itertools.product((1, 2, 3, 5), repeat=2):
        if (prompt, token) != (1, 1) and (not few or (prompt, token) in ((2, 3), (5, 1))):
            yield f"{prompt} and {token} stages", machines(prompt, token)


TWICE = [{"layers": "0-9", "speed": 100}, {"layers": "0-9", "speed": 50}, {"layers": "10-29"}]
UNEQUAL = [{"layers": "0-0"}, {"layers": "1-21"}, {"layers": "22-28"}, {"layers": "29-29"}]
WIDE = [*[{"layers": "0-14"}] * 2, *[{"layers": "15-29"}] * 4]


def shapes(few):
    for count in (2, 3, 5):
        yield f"a mixed machine of {count}", mixed(count)
    kinds = (("replicas", TWICE), ("unequal", UNEQUAL), ("replicas of both", WIDE), ("one process", [{}]))
    for name, stages in kinds[:1] if few else kinds:
        yield f"prompt machine, {name}", machines(stages, 3)
        yield f"token machine, {name}", machines(2, stages)
        yield f"both machines, {name}", machines(stages, stages)
        yield f"a mixed machine, {name}", mixed(stages)


def tcp(few):
    kinds = (("5 and 3 stages", 5, 3), ("replicas", TWICE, WIDE), ("1 and unequal stages", 1, UNEQUAL))
    for name, prompt, token in kinds[:2] if few else kinds:
        yield f"{name} over TCP", {**machines(prompt, token), "transport": {**BASE["transport"], "ucx_transports": "none"}}


PRESSED = 18  # Number of streams.


def pressed_answers(cluster, held=None):
    """held: the process that does not compute until all requests have arrived at its machine."""
    bodies = [{"prompt": tokens(20 + index, 8 + index * 5 % 60), "max_tokens": 70 + index * 7 % 40, "ignore_eos": True,
               "temperature": 0.9, "seed": index, "priority": index % 3} for index in range(PRESSED)]
    if held:
        cluster.hold(held)
    with concurrent.futures.ThreadPoolExecutor(PRESSED) as pool:
        found = pool.map(lambda body: json.dumps(answer(cluster, body)[0]), bodies)
        if held:
            wait_until(lambda: state(cluster)["requests_open"] == PRESSED, "all requests have come", cluster=cluster)
            cluster.release()
        return list(found)


def check_pressed():
    """The memory holds only some of the answers: requests in the middle of the pipeline are preempted, and continue
    later."""
    with Cluster(BASE) as cluster:
        want = pressed_answers(cluster)
        assert cluster.metric("cleave_preemptions_total") == 0
    for what, config, held in (("replicas of the token machine", machines(2, TWICE), "t0/2"),
                               ("a mixed machine of 2", mixed(2), "m0/1")):
        with Cluster({**BASE, **config, "kv": {"memory": "9MiB"}}, gates=True) as cluster:
            wait_stages(cluster, stage_count(config["machines"].get("t0", config["machines"].get("m0"))["stages"]) +
                        stage_count(config["machines"].get("p0", {}).get("stages", 1)))
            got = pressed_answers(cluster, held)
            assert got == want, (what, got, want, cluster.logged())
            cluster.wait_all_free()
            preempted = cluster.metric("cleave_preemptions_total")
            assert preempted > 0, what
            assert cluster.metric("cleave_requests_resumed_total") == 0, cluster.logged()
        print(f"{what}, short of memory: the same bytes, {preempted:.0f} preemptions", flush=True)


def main():
    need_model()
    which, few = sys.argv[1], sys.argv[2:] == ["few"]
    if which == "pressed":
        check_pressed()
        return
    with Cluster(BASE) as cluster:
        wait_until(lambda: up(cluster), "all machines are up", cluster=cluster)
        want, cached = answers(cluster)
        assert cached >= 150, cached
        again, _ = answers(cluster)
        assert again == want
    for what, config in {"matrix": matrix, "shapes": shapes, "tcp": tcp}[which](few):
        check(what, config, want)


if __name__ == "__main__":
    main()
