"""Goal: `cleave serve` serves the plan of `cleave plan` for machines of several devices: the model fits on none of
their devices, prompt machines and token machines have different splits, and the plan's cluster answers like a cluster
without stages.

Method: an invented profile, with times that need different splits; a hardware file with two unequal devices; the plan
as text and as JSON; then a model of 30 layers, served with the config that the plan wrote. The same arguments give the
same bytes.
"""

import json
import os
import subprocess
import tempfile

from cluster import BINARY, Cluster, need_model

LAYERS = 30
MIB = 1 << 20


def device(name, threads, slower):
    """Returns a device whose time for a prompt grows with the tokens. A decode step of one sequence takes nearly as
    long as one of sixteen. The vocabulary takes the time of ten layers in a step, and no time in a prompt."""
    prompt = {"tokens": [1, 512], "contexts": [0], "us": [[20 * slower], [5000 * slower]]}
    step = {"batches": [1, 16], "contexts": [0], "us": [[90 * slower], [100 * slower]]}
    return {"name": name, "kind": "cpu", "host": "here", "description": "", "threads": threads,
            "memory_bytes": 1 << 30, "layers_alike": True, "layers": [{"prompt": prompt, "token": step}],
            "first": {"rows": [1], "us": [1]}, "last": {"rows": [1, 16], "us": [900 * slower, 1000 * slower]},
            "batch_us": 5}


PROFILE = {
    "version": 1,
    "model": {"name": "default", "layer_count": LAYERS, "hidden": 576, "vocab": 49152,
              "layer_weight_bytes": [2 * MIB] * LAYERS, "embedding_bytes": 30 * MIB, "vocabulary_bytes": 30 * MIB,
              "tied": True, "kv_bytes_per_token": 680, "boundary_bytes_per_token": 2304},
    "devices": [device("one", 1, 1), device("two", 2, 0.6)],
    "links": [{"from": "here", "to": "here", "transport": "shm", "path": "", "bandwidth_bytes_per_s": 5e9,
               "latency_us": 5, "writes": []}],
}
HARDWARE = {"name": "pair", "power": 1, "workspace_bytes": MIB, "kv_memory_bytes": 24 * MIB,
            "devices": [{"profile": "one", "memory": "86MiB"}, {"profile": "two", "memory": "86MiB"}],
            "links": {"inside": {"bandwidth_bytes_per_s": 1e9, "latency_us": 20}}}
BODY = {"prompt": "The capital of France is", "max_tokens": 12, "temperature": 0, "return_token_ids": True}


def plan(folder, *args):
    command = [BINARY, "plan", "--profile", f"{folder}/profile.json", "--hardware", f"{folder}/pair.json", "--trace",
               "poisson:rate=1,seconds=2000,prompt=lognormal:300:0.5,output=lognormal:40:0.5", "--fixed", "machines=2",
               "--clusters", "pair+pair", "--step", "1", "--rate-most", "20", "--duration", "20",
               "--slo", "4/6/9,3/4/6,3/4/6", *args]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, (done.returncode, done.stdout, done.stderr)
    return done.stdout


def layers_of(stages):
    return [(stage["profile"], stage["layers"]) for stage in stages["stages"]]


def main():
    need_model()
    with tempfile.TemporaryDirectory(prefix="cleave-plan-") as folder:
        for name, content in (("profile", PROFILE), ("pair", HARDWARE)):
            with open(os.path.join(folder, f"{name}.json"), "w") as file:
                json.dump(content, file)
        text = plan(folder)
        said = plan(folder, "--json", "--write-config", f"{folder}/plan.json")
        assert said == plan(folder, "--json", "--workers", "3"), "other workers, other bytes"
        with open(f"{folder}/plan.json") as file:
            config = json.load(file)
    found = json.loads(said)["plans"][0]["plan"]
    prompts, tokens = found["prompt_layers"], found["token_layers"]
    print(text, flush=True)
    print("prompts:", layers_of(prompts), "tokens:", layers_of(tokens), flush=True)
    for stages, phase in ((prompts, "prompt"), (tokens, "token")):
        assert stages["phase"] == phase and len(stages["stages"]) == 2, stages
        assert all(stage["bytes"] <= stage["memory_bytes"] for stage in stages["stages"]), stages
        assert max(stage["time_us"] for stage in stages["stages"]) == stages["bottleneck_us"], stages
    assert layers_of(prompts) != layers_of(tokens), "the vocabulary should have taken layers from a token stage"
    for part in ("layers of pair for prompts\nprompt: ", "layers of pair for tokens\ntoken: ", "< bottleneck"):
        assert part in text, (part, text)
    want = {"pair-prompt-0": prompts, "pair-token-0": tokens}
    assert set(config["machines"]) == set(want), config
    for name, stages in want.items():
        machine = config["machines"][name]
        assert machine["stages"] == stages["config_stages"] and machine["kv_memory"] == 24 * MIB, machine
    with Cluster() as cluster:
        whole = cluster.post("/v1/completions", BODY)["choices"][0]["token_ids"]
    with Cluster(config) as cluster:
        assert len(cluster.stages()) == 4, cluster.stages()
        assert cluster.post("/v1/completions", BODY)["choices"][0]["token_ids"] == whole, cluster.logged()
        assert cluster.stop() == 0, cluster.logged()


main()
