"""Goal: models of every family give the same tokens and log-probabilities, bit for bit, wherever a request is computed: on
one machine, on a prompt and a token machine, in two stages each, and after the token machine was killed; on two ranks,
one machine gives what two give. With latent attention, machines with other numbers of ranks get copies of the KV.

Method: the tiny random models of tests/model/families, as folders and, with what GGUF can say, as GGUF files. The same
requests, sampled with a seed, go to a cluster of each kind; ids and log-probabilities of all tokens are compared as the
gateway writes them. A GGUF file must give the bits of the folder.

usage: test_families.py few|all|NAME...      few: models with windows, experts, norms over all heads, latent attention; gpt-oss
"""

import os
import signal
import sys
import tempfile

from cluster import Cluster, wait_until
from family_streams import PROMPTS, Tokens, answers, body_of, expect_progress, tiny_folder, tiny_gguf, with_tokenizer

FEW = ["gemma3", "qwen3_moe", "gpt_oss-mxfp4", "olmo2", "deepseek3"]
FEW_GGUF = ["qwen3_moe"]
GGUF_UNLIKE = {"glm": "llama.cpp's converter writes another epsilon of the norms"}


def config_of(model, pools, machine=None, **kv):
    names = [name for pool in pools.values() for name in pool]
    return {"model": model, "threads": 1, "kv": {"memory": "16MiB", **kv}, "pools": pools,
            "machines": {name: machine or {} for name in names}}


MIXED, SPLIT = {"mixed": ["m0"]}, {"prompt": ["p0"], "token": ["t0"]}


def served(config):
    """Returns the answers to all requests at once."""
    expect_progress()
    with Cluster(config) as cluster:
        got = answers([Tokens(cluster, body_of(index)) for index in range(len(PROMPTS))])
        cluster.wait_all_free()
        return got


def copied(model, prompt, token):
    """Returns the answers of machines with these numbers of ranks, whose KV moves layer by layer, or at the end."""
    for transfer in ("layerwise", "one-piece"):
        config = config_of(model, SPLIT, transfer=transfer)
        config["machines"] = {"p0": {"tensor_parallel": prompt}, "t0": {"tensor_parallel": token}}
        yield served(config)


def resumed(model):
    """Returns the answers of a cluster whose token machine is killed while it decodes."""
    expect_progress()
    with Cluster(config_of(model, {"prompt": ["p0"], "token": ["t0", "t1"]}), gates=True) as cluster:
        cluster.hold("t0")
        cluster.hold("t1")
        streams = [Tokens(cluster, body_of(index)) for index in range(len(PROMPTS))]
        wait_until(lambda: cluster.held("t0") or cluster.held("t1"), "a token machine decodes", cluster=cluster)
        name = "t0" if cluster.held("t0") else "t1"
        for _ in range(8):
            cluster.step(name)
        os.kill(cluster.children()[name], signal.SIGKILL)
        cluster.release()
        got = answers(streams)
        assert cluster.metric("cleave_requests_resumed_total") >= 1, cluster.logged()
        return got


def ways_of(model, latent):
    """Returns what one machine answers, and (way, answers, answers that they must equal) of each other way."""
    ranks = {"tensor_parallel": 2}
    alone, ranked = served(config_of(model, MIXED)), served(config_of(model, MIXED, ranks))
    ways = [("split", served(config_of(model, SPLIT)), alone), ("resumed", resumed(model), alone),
            ("2 stages", served(config_of(model, SPLIT, {"stages": 2})), alone),
            ("2 ranks", served(config_of(model, SPLIT, ranks)), ranked)]
    if latent:
        ways += [(f"{prompt} and {token} ranks", *copied(model, prompt, token)) for prompt, token in ((4, 2), (1, 3))]
    return alone, ways


def check(name, folder, gguf):
    reference, model = tiny_folder.read(name), os.path.join(folder, name)
    tiny_folder.write(reference, model)
    alone, ways = ways_of(model, name.startswith("deepseek"))
    if gguf and "gguf" in reference:
        tiny_gguf.write(with_tokenizer(reference), model + ".gguf")
        other, more = ways_of(model + ".gguf", False)
        ways += [(f"GGUF, {what}", *both) for what, *both in more]
        ways += [("GGUF and folder", other, alone)] if name not in GGUF_UNLIKE else []
    different = [what for what, got, want in ways if got != want]
    said = ", ".join(different) + " differ" if different else "equal"
    print(f"{name}: {said}: {', '.join(what for what, *_ in ways)}", flush=True)
    return not different


def main():
    few = sys.argv[1:] == ["few"]
    chosen = FEW if few else tiny_folder.names() if sys.argv[1:] == ["all"] else sys.argv[1:]
    with tempfile.TemporaryDirectory(prefix="cleave-families-") as folder:
        failed = [name for name in chosen if not check(name, folder, not few or name in FEW_GGUF)]
    sys.exit(f"failed: {', '.join(failed)}" if failed else 0)


if __name__ == "__main__":
    main()
