"""family_streams: requests to clusters that serve the tiny random models of tests/model/families, and their answers as ids
and log-probabilities. test_families.py and tests/gpu/families.py compare these."""

import os
import signal
import sys

from cluster import Stream

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "model", "families"))
import tiny_folder  # noqa: E402
import tiny_gguf  # noqa: E402, F401

PROMPTS, ANSWER = [90, 41, 7], 24
PROGRESS_S = 900  # A test that starts no other cluster within this time hangs: also a slow computer needs few of these seconds.


def expect_progress():
    """Ends the test, and its clusters, if this function is not called again within PROGRESS_S."""
    def end(*_):
        raise TimeoutError(f"no progress within {PROGRESS_S} s")
    signal.signal(signal.SIGALRM, end)
    signal.alarm(PROGRESS_S)


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
