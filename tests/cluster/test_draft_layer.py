"""Goal: answers have the same bytes with and without the model's own draft layer (scheduler/draft_layer), and a draft
layer that is right gives right drafts; a model without a draft layer is refused.

Method: tiny DeepSeek-V3 models (draft_layers.py), as folders and GGUF files. The same requests (greedy, drawn, with
penalties, constraints, several choices) go to a cluster without drafts, to a mixed machine and to a prompt and a token
machine with the draft layer. With scheduler/speculative_always the machines check every draft. Drafts of the random
model are hardly ever right. In the other models the draft layer reads only the token, or only the final vector, and is
right; so both inputs are the right ones, also in drafts of several tokens. Then the token machine is killed while it
decodes."""

import concurrent.futures
import json
import os
import signal
import subprocess
import tempfile

from answers import DRAFTED, RIGHT, answers_of, check
from cluster import BINARY, Cluster, wait_until
from draft_layers import random_model, right_model, tiny_folder, with_tokenizer, write
from family_streams import expect_progress

ANSWER = 60
DRAWN = {"temperature": 0.8, "seed": 11}
GREEDY = {"greedy": {}}
PERSON = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 8}, "age": {"type": "integer"}},
          "required": ["name", "age"], "additionalProperties": False}
CASES = {
    **GREEDY,
    "drawn": DRAWN,
    "cold": {"temperature": 0.2, "seed": 5, "top_p": 0.9},
    "penalties": {**DRAWN, "presence_penalty": 0.4, "repetition_penalty": 1.1},
    "choices": {**DRAWN, "n": 2},
    "log-probabilities": {"logprobs": 3},
    "person": {"response_format": {"type": "json_schema", "json_schema": {"name": "person", "schema": PERSON}},
               "ignore_eos": False, **DRAWN},
}
POOLS = {"mixed": {"mixed": ["m0"]}, "split": {"prompt": ["p0"], "token": ["t0"]}}


def requests_of(cases):
    prompts = [[(index * 31 + k * 7919) % (tiny_folder.VOCABULARY - 3) + 3 for k in range(length)]
               for index, length in enumerate((5, 90))]
    return {f"{case}, {len(prompt)}": {"prompt": prompt, "max_tokens": ANSWER, "ignore_eos": True, "temperature": 0,
                                       "return_token_ids": True, **fields}
            for case, fields in cases.items() for prompt in prompts}


def config_of(model, pools, layer=True, machine=None, **scheduler):
    names = [name for pool in pools.values() for name in pool]
    return {"model": model, "threads": 1, "kv": {"memory": "16MiB"}, "pools": pools,
            "machines": {name: machine or {} for name in names},
            "scheduler": {"speculative_tokens": 4 if layer else 0, "speculative_always": True, "draft_layer": layer,
                          "placement": "split", **scheduler}}


def figures_of(cluster, answers):
    """Returns how many tokens the draft layer has drafted, and how many of them were right, when the machines have reported
    all tokens of the answers. The first token of an answer belongs to the prompt phase."""
    tokens = sum(len(choice["ids"]) - 1 for choices in answers.values() for choice in choices)
    sums = {}

    def reported():
        sums.clear()
        for (name, _), value in cluster.metrics().items():
            sums[name] = sums.get(name, 0) + value
        return sums["cleave_machine_generated_tokens_total"] >= tokens
    wait_until(reported, f"{tokens} tokens are reported", cluster=cluster)
    return sums[DRAFTED], sums[RIGHT]


def without_drafts(model, requests):
    expect_progress()
    with Cluster(config_of(model, POOLS["mixed"], layer=False)) as cluster:
        return answers_of(cluster, requests, 4)


def same(what, model, pools, requests, want, **scheduler):
    """Returns the share of the draft layer's tokens that were right."""
    expect_progress()
    with Cluster(config_of(model, pools, **scheduler)) as cluster:
        got = answers_of(cluster, requests, 4)
        check(what, got, want)
        cluster.wait_all_free()
        drafted, right = figures_of(cluster, got)
        assert drafted > 0, cluster.logged()
    print(f"{what}: the same answers; {drafted:.0f} tokens drafted, {right:.0f} right", flush=True)
    return right / drafted


def right(folder, reads, suffix, cases):
    model, requests = write(right_model(reads), os.path.join(folder, f"{reads}{suffix}")), requests_of(cases)
    want = without_drafts(model, requests)
    for form, pools in POOLS.items():
        share = same(f"right, reads the {reads}{suffix}, {form}", model, pools, requests, want)
        assert share > 0.9, (reads, form, share)


def killed(model, requests, want):
    """Token machines are killed in turn while answers run."""
    expect_progress()
    with Cluster(config_of(model, {"prompt": ["p0"], "token": ["t0", "t1"]}, crashes_max=0)) as cluster:
        def decoding():
            return json.loads(cluster.request("GET", "/admin/state")[2])["requests"]["decoding"]
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            for index in range(20):
                running = pool.submit(answers_of, cluster, requests, 8)
                wait_until(lambda: running.done() or decoding() > 0, "answers run", cluster=cluster)
                process = cluster.children().get(f"t{index % 2}")
                if process is not None:
                    os.kill(process, signal.SIGKILL)
                check("killed", running.result(), want)
                if index > 0 and cluster.metric("cleave_requests_resumed_total") > 0:
                    break
        assert cluster.metric("cleave_requests_resumed_total") > 0, cluster.logged()
    print(f"killed {index + 1} times: the same answers", flush=True)


def staged(model, want):
    """A machine with stages goes on without the draft layer, and its log says so."""
    expect_progress()
    with Cluster(config_of(model, POOLS["mixed"], machine={"stages": 2})) as cluster:
        got = answers_of(cluster, requests_of(GREEDY), 4)
        check("stages", got, want)
        assert figures_of(cluster, got) == (0, 0)
        assert "machine m0 does not use scheduler/draft_layer: machines with stages" in cluster.logged()
    print("stages: the same answers, without the draft layer", flush=True)


def refused(folder, config, reason):
    path = os.path.join(folder, "refused.json")
    with open(path, "w", encoding="utf-8") as file:
        json.dump(config | {"http": {"listen": "127.0.0.1:0"}}, file)
    for arguments in (("check", path), ("serve", path)):
        done = subprocess.run([BINARY, *arguments], capture_output=True, text=True, check=False)
        assert done.returncode == 1 and reason in done.stdout + done.stderr, (arguments, done)
    print(f"refused: {reason}", flush=True)


def main(folder):
    requests = requests_of(CASES)
    model = write(random_model(), os.path.join(folder, "random"))
    want = without_drafts(model, requests)
    for form, pools in POOLS.items():
        assert same(f"random, {form}", model, pools, requests, want) < 0.5
    assert same("few rows", model, POOLS["mixed"], requests, want, speculative_tokens=16, batch_sequences_max=5) < 0.5
    same("GGUF", write(random_model(shares=True), os.path.join(folder, "shared.gguf")), POOLS["split"], requests, want)
    killed(model, requests, want)
    staged(model, want)
    right(folder, "token", "", CASES)
    right(folder, "final", ".gguf", GREEDY)
    none = write(with_tokenizer(tiny_folder.read("deepseek3")), os.path.join(folder, "none"))
    refused(folder, config_of(none, POOLS["split"]), "draft_layer: the model has no draft layer")
    refused(folder, config_of(model, POOLS["split"], draft_model=model), "want draft_layer or draft_model, not both")


with tempfile.TemporaryDirectory(prefix="cleave-test-") as place:
    main(place)
