"""Goal: layers with an attention window keep and send only the KV of their window, and answers do not depend on how a
request is served: on one machine, split, in stages, preempted, or resumed after its token machine was killed.

Method: a tiny random Gemma 3 of 14 layers with a window of 40 tokens, and prompts that are several windows long. The
same requests are sent to clusters of each kind; all texts must be equal. While an answer is generated, the token
machine's blocks, and the bytes that were sent for the prompt, must be those of the formula.
"""

import os
import signal
import tempfile

from cluster import DEFAULT_MODEL, Cluster, Stream, need_model, wait_until
from tiny_model import HEAD_DIM, KV_HEADS, write

LAYERS, PERIOD, WINDOW, BLOCK = 14, 6, 40, 16
PROMPT, ANSWER = 330, 150
ROWS = -(-LAYERS // PERIOD)
FULL = LAYERS // PERIOD
BLOCK_BYTES = BLOCK * KV_HEADS * 2 * (2 * HEAD_DIM + 2)  # i16: K and V with a scale each.


def spans(tokens):
    return -(-tokens // BLOCK)


def body_of(index):
    prompt = [(index * 7919 + k * 31) % 40000 + 100 for k in range(PROMPT - 23 * index)]
    return {"prompt": prompt, "max_tokens": ANSWER, "ignore_eos": True, "temperature": 0.9, "seed": index}


def text_of(stream):
    stream.end()
    assert stream.error is None, (stream.error, stream.cluster.logged())
    return stream.text


def texts(cluster, count=4):
    return [text_of(stream) for stream in [Stream(cluster, body_of(index)) for index in range(count)]]


def check(what, config, want):
    with Cluster({"model": model, "threads": 1, **config}) as cluster:
        got = texts(cluster)
        assert got == want, f"{what}: {[a == b for a, b in zip(got, want)]}"
        cluster.wait_all_free()
    print(f"{what}: {len(got)} equal answers", flush=True)


def check_preempted(want):
    """The token machine has memory for three prompts, but not for their answers. It is held until all three have their
    first token. Chunks are small, so that the prompt machine keeps little more than the windows."""
    config = {"pools": {"prompt": ["p0"], "token": ["t0"]}, "kv": {"memory": "5MiB"}, "scheduler": {
        "prompt_batch_tokens": 64, "prompt_fill_tokens": 64, "growth_tokens": 1, "growth_reserve_percent": 0,
        "adaptive_pools": False}}
    with Cluster({"model": model, "threads": 1, **config}, gates=True) as cluster:
        cluster.hold("t0")
        streams = [Stream(cluster, body_of(index)).wait_events(1) for index in range(3)]
        streams.append(Stream(cluster, body_of(3)))
        cluster.release()
        assert [text_of(stream) for stream in streams] == want
        cluster.wait_all_free()
        preempted = cluster.metric("cleave_preemptions_total")
        assert preempted > 0
    print(f"short of memory: {len(want)} equal answers, {preempted:.0f} preemptions", flush=True)


def check_resumed(want):
    """The token machine dies after the first tokens; the other one takes over."""
    with Cluster({"model": model, "threads": 1, "pools": {"prompt": 1, "token": ["t0", "t1"]}}, gates=True) as cluster:
        cluster.hold("t0")
        cluster.hold("t1")
        stream = Stream(cluster, body_of(0))
        wait_until(lambda: cluster.held("t0") or cluster.held("t1"), "a token machine decodes", cluster=cluster)
        name = "t0" if cluster.held("t0") else "t1"
        for _ in range(20):
            cluster.step(name)
        stream.wait_events(10)
        os.kill(cluster.children()[name], signal.SIGKILL)
        cluster.release()
        assert text_of(stream) == want[0]
        assert cluster.metric("cleave_requests_resumed_total") >= 1
    print("resumed after a kill: equal", flush=True)


def check_formula(want):
    """One request: what is sent, and what the token machine holds when its answer is nearly complete."""
    with Cluster({"model": model, "threads": 1, "pools": {"prompt": ["p0"], "token": ["t0"]}, "kv": {"dtype": "i16"},
                  "scheduler": {"growth_tokens": 1}}, gates=True) as cluster:
        cluster.hold("t0")
        stream = Stream(cluster, body_of(0))
        cluster.wait_held("t0")
        held = sum(cluster.metric("cleave_kv_blocks", machine="t0", state=state) for state in ("reserved", "live"))
        keep = -(-(WINDOW - 1) // BLOCK) + 1
        most = spans(PROMPT + 1) + (PERIOD - 1) * keep
        wait_until(lambda: sum(cluster.metric("cleave_kv_blocks", machine="t0", state=state)
                               for state in ("reserved", "live")) == most,
                   f"t0 holds {most} blocks, not {held}", cluster=cluster)
        cluster.release()
        assert text_of(stream) == want
        cluster.wait_all_free()
        sent = cluster.metric("cleave_transfer_bytes_total")
        first = (PROMPT // BLOCK * BLOCK - WINDOW + 1) // BLOCK
        blocks = FULL * spans(PROMPT) + (LAYERS - FULL) * (spans(PROMPT) - first)
        assert sent == blocks * BLOCK_BYTES, f"{sent} bytes were sent, want {blocks} blocks of {BLOCK_BYTES}"
    whole = LAYERS * spans(PROMPT) * BLOCK_BYTES
    print(f"{sent:.0f} of {whole} bytes sent; {most * ROWS} of {spans(PROMPT + 1) * ROWS * PERIOD} layer blocks held",
          flush=True)


need_model()
with tempfile.TemporaryDirectory(prefix="cleave-test-") as folder:
    model = os.path.join(folder, "windows.gguf")
    write(DEFAULT_MODEL, model, LAYERS, window=WINDOW, context=4096)
    with Cluster({"model": model, "threads": 1, "pools": {"mixed": 1}}) as one:
        alone = texts(one)
    assert len(set(alone)) == len(alone)
    check("split", {}, alone)
    check("split, small batches", {"scheduler": {"prompt_batch_tokens": 64, "prompt_fill_tokens": 64}}, alone)
    check("one-piece transfer", {"kv": {"transfer": "one-piece"}}, alone)
    check("stages", {"pools": {"prompt": ["p"], "token": ["t"]},
                     "machines": {"p": {"stages": 2}, "t": {"stages": 3}}}, alone)
    check_preempted(alone)
    check_resumed(alone)
    check_formula(alone[0])
