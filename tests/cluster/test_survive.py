"""Goal: when a machine dies, what other machines have of a request's KV is not computed again, and the client reads the
bytes of an undisturbed run.

Method: real processes. A prompt of six batches is held at a gate in the middle of its fourth batch, when the log says
what the other machine has. Then one of its machines is killed. Metrics say how many tokens were found and computed.

usage: test_survive.py prompt|token|again|pull|checkpoint|interval|second|stages|ranks|windows
prompt: the prompt machine dies while it computes; token: the token machine dies, before and after the prompt is
computed; again: the machine that computes the prompt dies; pull: as prompt, while the token machine generates other
answers, so that another prompt machine gets the KV from it; checkpoint: the token machine dies in the middle of answers
whose KV is copied to another machine (kv/checkpoint) block by block; interval: as checkpoint, with copies at intervals
(kv/checkpoint_ms); second: the second machine dies while it is asked for room for a copy; stages, ranks: as checkpoint,
on machines with stage processes, of which one is killed; windows: as checkpoint and stages, with a model whose layers
have attention windows.
"""

import json
import os
import re
import signal
import sys
import tempfile

from cluster import DEFAULT_MODEL, Cluster, Stream, need_model, wait_until
from tiny_model import write

BLOCK, BATCH, BATCHES, TOKENS = 16, 64, 3, 20
LONG = "The history of computing spans many centuries. " * 40  # 321 tokens, six batches
PROMPT = 321
CONFIG = {"kv": {"memory": "64MiB"}, "threads": 1, "scheduler": {"prompt_batch_tokens": BATCH},
          "transport": {"silence_ms": 600000}}
ARGS = ("--log-level", "debug")


def config_of(prompts, tokens):
    return {**CONFIG, "pools": {"prompt": prompts, "token": tokens}}


def body(prompt=LONG):
    return {"prompt": prompt, "max_tokens": TOKENS, "temperature": 0.7, "seed": 5, "ignore_eos": True}


def start(cluster):
    return Stream(cluster, body())


def undisturbed_answer(request):
    with Cluster(config_of(1, 1)) as cluster:
        return cluster.post("/v1/completions", request)["choices"][0]["text"]


def undisturbed(prompt=LONG):
    return undisturbed_answer(body(prompt))


def kill(cluster, name):
    os.kill(cluster.children()[name], signal.SIGKILL)


def machines(cluster):
    return [name for name in cluster.children()]


def wait_links(cluster):
    """Waits until each prompt machine can write to each token machine, and the token machines to each other."""
    names = machines(cluster)
    lines = [f"link {a} to {b} is up" for a in names for b in names if a != b]
    wait_until(lambda: all(line in cluster.logged() for line in lines), "links", cluster=cluster)


def reported(cluster, machine):
    """Returns the largest number of tokens whose KV the machine has, by the gateway's log."""
    return max([int(n) for n in re.findall(rf"machine {machine} has the KV of (\d+) tokens", cluster.logged())] or [0])


def hold_batch(cluster, number, names):
    """Returns the machine that computes the prompt, held in the middle of the prompt's batch with this number."""
    for batch in range(1, number + 1):
        wait_until(lambda: any(cluster.held(name) for name in names), "a machine is held", cluster=cluster)
        holder = next(name for name in names if cluster.held(name))
        if batch < number:
            cluster.hold(holder, layer=15, rows=2)
    return holder


def check_counts(cluster, reused_least, tokens=PROMPT):
    """Checks how many tokens the request found after its machine's death."""
    reused = cluster.metric("cleave_tokens_reused_total")
    computed = cluster.metric("cleave_tokens_recomputed_total")
    print(f"found {reused:.0f} tokens, computed {computed:.0f}", flush=True)
    assert reused >= reused_least and reused + computed >= tokens, (reused, computed, cluster.logged())
    assert computed <= tokens + TOKENS - reused_least, (reused, computed)
    assert cluster.metric("cleave_requests_resumed_total") == 1, cluster.logged()


def check_prompt(want):
    """The token machine has three batches when the prompt machine dies."""
    with Cluster(config_of(2, 1), ARGS, gates=True) as cluster:
        wait_links(cluster)
        names = ["prompt-0", "prompt-1"]
        for name in names:
            cluster.hold(name, layer=15, rows=2)
        stream = start(cluster)
        holder = hold_batch(cluster, BATCHES + 1, names)
        wait_until(lambda: reported(cluster, "token-0") == BATCHES * BATCH, "three batches arrived", cluster=cluster)
        kill(cluster, holder)
        cluster.release()
        stream.expect(want, "the prompt machine died")
        check_counts(cluster, BATCHES * BATCH)
        wait_until(lambda: cluster.metric("cleave_kept_tokens_total") == BATCHES * BATCH, "kept tokens",
                   cluster=cluster)
        cluster.wait_all_free()


def check_token(want):
    """The prompt machine has three batches, or the whole prompt, when the token machine dies."""
    for whole in (False, True):
        with Cluster(config_of(1, 2), ARGS, gates=True) as cluster:
            wait_links(cluster)
            names = ["token-0", "token-1"] if whole else ["prompt-0"]
            for name in names:
                cluster.hold(name, layer=15, rows=1 if whole else 2)
            stream = start(cluster)
            hold_batch(cluster, 1 if whole else BATCHES + 1, names)
            if not whole:
                wait_until(lambda: reported(cluster, "prompt-0") == BATCHES * BATCH, "progress", cluster=cluster)
            kill(cluster, routed(cluster))
            cluster.release()
            stream.expect(want, "the token machine died")
            check_counts(cluster, (PROMPT - 1) // BLOCK * BLOCK if whole else BATCHES * BATCH)
            cluster.wait_all_free()


def state_of(cluster):
    return json.loads(cluster.request("GET", "/admin/state")[2])


def routed(cluster):
    """Returns the token machine of the only request."""
    return next(machine["name"] for machine in state_of(cluster)["machines"] if machine["routed_decodes"] > 0)


def check_again(want):
    """The prompt machine dies after each of its first batches: each time a further batch is kept."""
    with Cluster(config_of(2, 1), ARGS, gates=True) as cluster:
        wait_links(cluster)
        names = ["prompt-0", "prompt-1", "token-0"]
        for name in names:
            cluster.hold(name, layer=15, rows=2)
        stream = start(cluster)
        holder = hold_batch(cluster, 2, names)
        wait_until(lambda: reported(cluster, "token-0") == BATCH, "a batch arrived", cluster=cluster)
        kill(cluster, holder)
        wait_until(lambda: any(cluster.held(name) for name in names if name != holder), "it goes on", cluster=cluster)
        cluster.release()
        stream.expect(want, "machines died")
        check_counts(cluster, BATCH)
        cluster.wait_all_free()


def check_pull(want):
    """The token machine has three batches when the prompt machine dies. Batches are so slow that it costs less to send
    this KV than to compute the rest beside the other answers. The estimates are measured, so it may take several rounds
    until they say so; each round must have the right bytes."""
    for attempt in range(1, 6):
        with Cluster(config_of(2, 1), ARGS, gates=True, pace_us=50000) as cluster:
            wait_links(cluster)
            others = [Stream(cluster, {**body(f"Others {i}"), "max_tokens": 40}) for i in range(12)]
            for other in others:
                other.wait_events(2)
            cluster.hold("token-0")
            cluster.wait_held("token-0")
            names = ["prompt-0", "prompt-1"]
            for name in names:
                cluster.hold(name, layer=15, rows=2)
            stream = start(cluster)
            holder = hold_batch(cluster, BATCHES + 1, names)
            wait_until(lambda: reported(cluster, "token-0") == BATCHES * BATCH, "three batches", cluster=cluster)
            kill(cluster, holder)
            cluster.release()
            stream.expect(want, "the prompt machine died")
            check_counts(cluster, BATCHES * BATCH)
            for other in others:
                other.end()
            cluster.wait_all_free()
            if f"has got the KV of {BATCHES * BATCH} tokens from machine token-0" in cluster.logged():
                print(f"pulled in round {attempt}", flush=True)
                return
    assert False, "no round pulled the KV"


def checkpointed(cluster):
    """Returns the largest number of tokens of a checkpoint, by the gateway's log."""
    return max([int(n) for n in re.findall(r"has a checkpoint of (\d+) tokens", cluster.logged())] or [0])


def known(cluster, prompt_tokens):
    """Returns the tokens of prompt and answer that the gateway has. The last one has no KV yet."""
    return prompt_tokens + int(cluster.metric("vllm:generation_tokens_total"))


def kill_holder(cluster, holder):
    """Kills the machine, or the machine's stage process with the highest number."""
    machine, _, stage = holder.partition("/")
    stages = sorted(name for name in cluster.stages() if name.split("/")[0] == machine) if stage else []
    os.kill(cluster.stages()[stages[-1]] if stages else cluster.children()[machine], signal.SIGKILL)


def checkpoint_case(config, answer, tokens, want, names):
    """The token machine dies when a second machine has all full blocks of the answer. names: the processes that may
    compute the answer."""
    with Cluster(config, ARGS, gates=True) as cluster:
        wait_links(cluster)
        stream = Stream(cluster, answer)
        stream.wait_events(45)
        for name in names:
            cluster.hold(name)
        holder = hold_batch(cluster, 1, names)
        wait_until(lambda: checkpointed(cluster) == (known(cluster, tokens) - 1) // BLOCK * BLOCK,
                   "a checkpoint of all full blocks", cluster=cluster)
        had = known(cluster, tokens)
        kill_holder(cluster, holder)
        cluster.release()
        what = f"{config['pools']}, {config.get('machines', '')}, {config['kv']['checkpoint']}"
        stream.expect(want, what)
        computed = cluster.metric("cleave_tokens_recomputed_total")
        used = cluster.metric("cleave_checkpoint_tokens_used_total")
        print(f"{what}: found {used:.0f} tokens, computed {computed:.0f}", flush=True)
        assert 0 < computed <= 2 * BLOCK and used >= had - 2 * BLOCK, (computed, used, cluster.logged())
        assert cluster.metric("cleave_checkpoints_total") > 0
        cluster.wait_all_free()


def check_checkpoints(cases, base, text="The history of computing. " * 12):
    """cases: (pools, machine keys of the token machines and, if `all`, of every machine, modes). The second machine is
    the prompt machine, or another mixed machine where one machine does both phases."""
    answer = {**body(text), "max_tokens": 120}
    wants = {}
    for pools, keys, every, modes in cases:
        plain = json.dumps(keys) if every else ""  # The number of ranks decides the bytes.
        if plain not in wants:
            machines_of = {name: keys for name in ("prompt-0", "token-0")} if every else {}
            with Cluster({**base, "pools": {"prompt": 1, "token": 1}, "machines": machines_of}) as cluster:
                result = cluster.post("/v1/completions", answer)
                wants[plain] = result["choices"][0]["text"], result["usage"]["prompt_tokens"]
        want, tokens = wants[plain]
        all_names = [f"{pool}-{i}" for pool, count in pools.items() for i in range(count)]
        names = [name for name in all_names if not name.startswith("prompt")]
        machine_keys = {name: keys for name in (all_names if every else names)} if keys else {}
        for mode in modes:
            config = {**base, "pools": pools, "machines": machine_keys, "kv": {**base["kv"], **copied(mode)}}
            checkpoint_case(config, answer, tokens, want, [name + "/0" if keys else name for name in names])


def copied(mode, interval_ms=0):
    return {"checkpoint": mode, "checkpoint_ms": interval_ms}


BOTH = ("idle", "always")
SPLIT, MIXED = {"prompt": 1, "token": 2}, {"mixed": 3}


def check_checkpoint(_):
    check_checkpoints([(SPLIT, {}, False, BOTH), (MIXED, {}, False, BOTH)], CONFIG)


def copy_begins(cluster):
    """Returns the times, in seconds, at which copies began, by the gateway's log."""
    found = re.findall(r"T(\d+):(\d+):(\d+\.\d+)Z.* begins a copy of the KV of", cluster.logged())
    return [int(hours) * 3600 + int(minutes) * 60 + float(seconds) for hours, minutes, seconds in found]


def check_interval(_):
    """Copies begin at most once per interval, and the last one has all full blocks: after the death of the token
    machine, at most two blocks of the tokens before it are computed again."""
    answer = {**body("The history of computing. " * 12), "max_tokens": 400}
    with Cluster(config_of(1, 1)) as cluster:
        result = cluster.post("/v1/completions", answer)
        want, tokens = result["choices"][0]["text"], result["usage"]["prompt_tokens"]
    interval_ms = 400
    config = {**CONFIG, "pools": SPLIT, "kv": {**CONFIG["kv"], **copied("idle", interval_ms)}}
    with Cluster(config, ARGS, gates=True, pace_us=10000) as cluster:
        wait_links(cluster)
        stream = Stream(cluster, answer)
        wait_until(lambda: len(copy_begins(cluster)) >= 3, "three copies", cluster=cluster)
        for name in ("token-0", "token-1"):
            cluster.hold(name)
        holder = hold_batch(cluster, 1, ("token-0", "token-1"))
        wait_until(lambda: checkpointed(cluster) == (known(cluster, tokens) - 1) // BLOCK * BLOCK,
                   "a checkpoint of all full blocks", cluster=cluster)
        begins = copy_begins(cluster)
        gaps = [(b - a) % 86400 for a, b in zip(begins, begins[1:])]
        print(f"{len(begins)} copies, at least {min(gaps):.3f} s apart", flush=True)
        assert min(gaps) >= interval_ms / 1000 - 0.005, (gaps, cluster.logged())
        missing = state_of(cluster)["checkpoint_missing_tokens"]
        assert 0 < missing <= BLOCK, missing
        kill_holder(cluster, holder)
        cluster.release()
        stream.expect(want, "the token machine died")
        computed = cluster.metric("cleave_tokens_recomputed_total")
        assert 0 < computed <= 2 * BLOCK, (computed, cluster.logged())
        cluster.wait_all_free()


def check_second(_):
    """The second machine dies while it is asked for room for a copy: the copy ends, and another one is made."""
    answer = {**body("The history of computing. " * 12), "max_tokens": 60}
    want = undisturbed_answer(answer)
    config = {**CONFIG, "pools": SPLIT, "kv": {**CONFIG["kv"], **copied("idle")}}
    with Cluster(config, ARGS, gates=True) as cluster:
        wait_links(cluster)
        names = ("token-0", "token-1")
        for name in names:
            cluster.hold(name)
        stream = Stream(cluster, answer)
        holder = hold_batch(cluster, 1, names)
        wait_until(lambda: state_of(cluster)["requests"]["decoding"] == 1, "the answer is decoded", cluster=cluster)
        os.kill(cluster.children()["prompt-0"], signal.SIGSTOP)
        for _ in range(BLOCK + 1):
            cluster.step(holder)
        wait_until(lambda: "tokens to machine prompt-0" in cluster.logged(), "a copy begins", cluster=cluster)
        kill(cluster, "prompt-0")
        wait_until(lambda: cluster.metric("cleave_checkpoints_total") > 0, "another copy is made", cluster=cluster)
        cluster.release()
        stream.expect(want, "the second machine died")
        cluster.wait_all_free()


def check_stages(_):
    """From stages to a machine without stages, and to other stages."""
    check_checkpoints([(SPLIT, {"stages": 3}, False, BOTH), ({"mixed": 2}, {"stages": 2}, False, ("idle",))], CONFIG)


def check_ranks(_):
    ranks = {"tensor_parallel": 2}
    check_checkpoints([(SPLIT, ranks, True, ("idle",)), ({"mixed": 2}, ranks, True, ("always",))], CONFIG)


def check_windows(_):
    """The prompt is longer than the window. What is copied are the blocks that the next token reads."""
    with tempfile.TemporaryDirectory(prefix="cleave-test-") as folder:
        model = os.path.join(folder, "windows.gguf")
        write(DEFAULT_MODEL, model, 14, window=40, context=4096)
        check_checkpoints([(SPLIT, {}, False, BOTH), ({"mixed": 2}, {}, False, ("idle",)),
                           (SPLIT, {"stages": 3}, False, ("idle",)), ({"mixed": 2}, {"stages": 2}, False, ("always",))],
                          {**CONFIG, "model": model})


def main():
    need_model()
    checks = {"prompt": check_prompt, "token": check_token, "again": check_again, "pull": check_pull,
              "checkpoint": check_checkpoint, "interval": check_interval, "second": check_second,
              "stages": check_stages, "ranks": check_ranks, "windows": check_windows}
    checks[sys.argv[1]](undisturbed() if sys.argv[1] in ("prompt", "token", "again", "pull") else None)


if __name__ == "__main__":
    main()
