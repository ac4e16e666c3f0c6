"""Goal: a prompt of 262,144 tokens is computed in chunks with bounded memory, and its answer does not depend on the chunks or
the machines; a context has at most 1,048,576 tokens, which a machine logs if the model's is longer.

Method: a tiny random model (tests/model/families) with one layer, one head and a context of 2,000,000 tokens. On a prompt and
a token machine, a prompt of 32,768 tokens goes first, then the long one: the prompt machine's resident memory may grow by the
KV of the additional tokens and SLACK, which is less than the activations of one batch of all tokens. Then one machine with
other chunks answers the long prompt.
"""

import os
import tempfile

from cluster import Cluster
from family_streams import tiny_folder

SHORT, LONG, LIMIT = 32768, 262144, 1 << 20
TOKEN_BYTES = 2 * (2 * 16 + 2)  # i16: K and V of one head of 16, with a scale each.
SLACK = 24 << 20
SPLIT = {"pools": {"prompt": ["p0"], "token": ["t0"]}, "scheduler": {"prompt_batch_tokens": 512, "placement": "split"}}
ONE = {"pools": {"mixed": ["m0"]}, "scheduler": {"prompt_batch_tokens": 2048}}


def write(folder):
    reference = tiny_folder.read("llama")
    reference["config"] |= {"num_hidden_layers": 1, "num_attention_heads": 1, "num_key_value_heads": 1, "head_dim": 16,
                            "max_position_embeddings": 2000000}
    shapes = {"q_proj": [16, 64], "k_proj": [16, 64], "v_proj": [16, 64], "o_proj": [64, 16]}
    for entry in reference["tensors"]:
        entry[1] = [[0, 0]] if entry[1] else []
        entry[2] = shapes.get(entry[0].split(".")[-2], entry[2])
    tiny_folder.write(reference, folder)


def ask(cluster, count):
    prompt = [(k * 7919 + k // 131) % (tiny_folder.VOCABULARY - 3) + 3 for k in range(count)]
    body = {"prompt": prompt, "max_tokens": 16, "ignore_eos": True, "temperature": 0.9, "seed": 5, "logprobs": 4,
            "return_token_ids": True}
    reply = cluster.post("/v1/completions", body)
    assert reply["usage"]["prompt_tokens"] == count, reply["usage"]
    return reply["choices"][0]["token_ids"], reply["choices"][0]["logprobs"]["token_logprobs"]


def resident(cluster, machine):
    return int(cluster.metric("cleave_machine_resident_bytes", machine=machine))


def served(config, model):
    return Cluster({"model": model, "threads": 2, "kv": {"memory": "64MiB", "dtype": "i16", "prefix_cache": False}, **config})


def main():
    with tempfile.TemporaryDirectory(prefix="cleave-long-") as folder:
        write(folder)
        with served(SPLIT, folder) as cluster:
            assert f"is cut to {LIMIT}" in cluster.logged(), cluster.logged()
            ask(cluster, SHORT)
            cluster.wait_all_free()
            before = resident(cluster, "p0")
            want = ask(cluster, LONG)
            cluster.wait_all_free()
            grown, bound = resident(cluster, "p0") - before, (LONG - SHORT) * TOKEN_BYTES + SLACK
            assert grown <= bound, (before, grown, bound)
        with served(ONE, folder) as cluster:
            assert ask(cluster, LONG) == want, "other chunks and one machine give another answer"
    print(f"{LONG} tokens: the prompt machine grew by {grown >> 20} MiB over {SHORT} tokens, at most {bound >> 20}; one machine "
          "gives the same bits", flush=True)


if __name__ == "__main__":
    main()
