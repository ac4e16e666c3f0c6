"""Goal: models of every family give the same tokens and log-probabilities, bit for bit, wherever a request is computed: on
one machine, on a prompt and a token machine, in two stages each, and after the token machine was killed; on two ranks,
one machine gives what two give. With latent attention, machines with other numbers of ranks get copies of the KV.

Method: the tiny random models of tests/model/families, as folders and, with what GGUF can say, as GGUF files. The same requests, sampled with a seed, go to a cluster
of each kind; ids and log-probabilities of all tokens are compared as the gateway writes them.

usage: test_families.py few|all|NAME...      few: models with windows, experts, norms over all heads, latent attention; gpt-oss
"""

import os
import signal
import sys
import tempfile

from cluster import Cluster, Stream, wait_until

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "model", "families"))
import tiny_folder  # noqa: E402
import tiny_gguf  # noqa: E402

FEW = ["gemma3", "qwen3_moe", "gpt_oss-mxfp4", "olmo2", "deepseek3"]
FEW_GGUF = ["qwen3_moe"]
GGUF_UNLIKE = {"glm": "llama.cpp's converter writes another epsilon of the norms"}
PROMPTS, ANSWER = [90, 41, 7], 24


class Tokens(Stream):
    """A stream that keeps ids and log-probabilities."""

    def __init__(self, cluster, body):
        self.tokens = []
        super().__init__(cluster, body)

    def run(self):
        try:
            for event in self.cluster.stream(self.path, self.body):
                for choice in event["choices"]:
                    said = choice.get("logprobs") or {}
                    self.tokens += zip(choice.get("token_ids") or [], said.get("token_logprobs") or [],
                                       [tuple(sorted(each.items())) for each in said.get("top_logprobs") or []])
                self.events += 1
        except Exception as error:  # The test judges every exception.
            self.error = error


def body_of(index):
    prompt = [(index * 31 + k * 7919) % (tiny_folder.VOCABULARY - 3) + 3 for k in range(PROMPTS[index])]
    return {"prompt": prompt, "max_tokens": ANSWER, "ignore_eos": True, "temperature": 0.9, "seed": index, "logprobs": 4,
            "return_token_ids": True}


def answers(streams):
    for stream in streams:
        stream.end()
        assert stream.error is None, (stream.error, stream.cluster.logged())
        assert len(stream.tokens) == ANSWER, (len(stream.tokens), stream.cluster.logged())
    return [stream.tokens for stream in streams]


def config_of(model, pools, machine=None, **kv):
    names = [name for pool in pools.values() for name in pool]
    return {"model": model, "threads": 1, "kv": {"memory": "16MiB", **kv}, "pools": pools,
            "machines": {name: machine or {} for name in names}}


MIXED, SPLIT = {"mixed": ["m0"]}, {"prompt": ["p0"], "token": ["t0"]}


def served(config):
    """Returns the answers to all requests at once."""
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


def with_tokenizer(reference):
    """Gives the GGUF file the tokens of tiny_folder.tokenizer."""
    tokens = sorted(tiny_folder.tokenizer()["model"]["vocab"].items(), key=lambda each: each[1])
    kinds = [2, 3, 3] + [1] * (len(tokens) - 3)  # unknown, control, normal
    keys = [["tokenizer.ggml.model", 8, "llama"], ["tokenizer.ggml.tokens", [9, 8], [token for token, _ in tokens]],
            ["tokenizer.ggml.scores", [9, 6], [0.0] * len(tokens)], ["tokenizer.ggml.token_type", [9, 5], kinds]]
    # Of GLM, llama.cpp's converter writes the hidden size as the length of the context.
    keys += [[name, kind, reference["config"]["max_position_embeddings"] if name.endswith(".context_length") else value]
             for name, kind, value in reference["gguf"]["keys"]]
    return reference | {"gguf": reference["gguf"] | {"keys": keys}}


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
    print(f"{name}: {', '.join(different) + ' differ' if different else 'equal'}: {', '.join(what for what, *_ in ways)}", flush=True)
    return not different


def main():
    few = sys.argv[1:] == ["few"]
    chosen = FEW if few else tiny_folder.names() if sys.argv[1:] == ["all"] else sys.argv[1:]
    with tempfile.TemporaryDirectory(prefix="cleave-families-") as folder:
        failed = [name for name in chosen if not check(name, folder, not few or name in FEW_GGUF)]
    sys.exit(f"failed: {', '.join(failed)}" if failed else 0)


if __name__ == "__main__":
    main()
