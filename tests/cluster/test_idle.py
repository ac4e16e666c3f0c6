"""Goal: an idle cluster uses under 1 % of a core, and starts in under two seconds; a token machine steps back by one
behind the rest (`nice`). Method: the CPU time of all its processes over ten seconds without a request, after one that
woke everything; the nice of every thread."""

import os
import time

from cluster import Cluster, cpu_seconds, need_model

need_model()
with Cluster() as first:
    first.post("/v1/completions", {"prompt": "Hello", "max_tokens": 3})
begin = time.monotonic()
with Cluster() as cluster:
    ready = time.monotonic() - begin
    cluster.post("/v1/completions", {"prompt": "Hello", "max_tokens": 5})
    time.sleep(1)
    pids = [cluster.process.pid, *cluster.children().values()]
    assert len(pids) == 3
    nices = {name: {os.getpriority(os.PRIO_PROCESS, int(thread)) for thread in os.listdir(f"/proc/{pid}/task")}
             for name, pid in cluster.children().items()}
    mine = os.getpriority(os.PRIO_PROCESS, 0)
    assert nices == {"prompt-0": {mine}, "token-0": {min(mine + 1, 19)}}, nices  # every thread of each
    before = sum(map(cpu_seconds, pids))
    time.sleep(10)
    used = sum(map(cpu_seconds, pids)) - before
print(f"ready {ready:.2f} s after the command; idle: {used:.3f} s of CPU in 10 s = {used * 10:.2f} % of a core")
assert used <= 0.1, used
