"""Goal: a model with experts gives the same bytes on one machine, on a prompt and a token machine, and in stages; machines
whose stages have two ranks, each with half of the experts, give the same bytes as each other; and pools of different
degrees serve it.

Method: a tiny model of 8 experts, of which each token uses 2. The requests of test_stages.py go to each cluster one at a
time and all at once."""

import os
import tempfile

from cluster import DEFAULT_MODEL, Cluster, need_model
from test_stages import BASE, wait_stages
from test_tensor_parallel import at_once, different, machines, mixed, one_by_one, ranks
from tiny_model import write

LAYERS, EXPERTS = 6, 8


def configs():
    """Yields (degrees, what, config, stage processes). The same degrees give the same bytes."""
    yield 1, "one mixed machine", mixed({}), 0
    yield 1, "a prompt and a token machine", machines({}, {}), 0
    yield 1, "2 stages and one process", machines({"stages": 2}, {}), 2
    yield 2, "a mixed machine of 2 ranks", mixed(ranks(2)), 2
    yield 2, "2 ranks and 2 ranks", machines(ranks(2), ranks(2)), 4
    yield "3 and 2", "3 ranks and 2 ranks", machines(ranks(3), ranks(2)), 5


def check(what, config, count, model, known):
    with Cluster({**BASE, **config, "model": model}) as cluster:
        wait_stages(cluster, count)
        alone = one_by_one(cluster)
        assert known is None or alone == known, (what, different(alone, known), cluster.logged())
        got, _ = at_once(cluster)
        assert got == alone, (what, different(got, alone), cluster.logged())
        cluster.wait_all_free()
        assert cluster.metric("cleave_transfers_failed_total") == 0, cluster.logged()
    print(f"{what}: the same bytes alone and at once{', and as before' if known else ''}", flush=True)
    return alone


def main():
    need_model()
    known = {}
    with tempfile.TemporaryDirectory(prefix="cleave-experts-") as folder:
        model = os.path.join(folder, "experts.gguf")
        write(DEFAULT_MODEL, model, LAYERS, EXPERTS)
        for degrees, what, config, count in configs():
            known[degrees] = check(what, config, count, model, known.get(degrees))


if __name__ == "__main__":
    main()
