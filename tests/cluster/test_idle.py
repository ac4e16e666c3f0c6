"""Goal: an idle cluster uses under 1 % of a core, and a token machine has a lower priority than the other processes
(`nice`). Method: after one request, and after the threads that prepare the KV memory have ended (on a slow computer
this takes seconds), counts the wake-ups and the CPU time of all processes during some seconds without a request. The
number of wake-ups does not depend on the computer's speed; the CPU time shows a process that never sleeps. Then checks
the nice value of every thread."""

import os
import re
import time

from cluster import Cluster, cpu_seconds, need_model, wait_until

SECONDS = 5
WAKE_UPS_MAX = 15  # Per process and second. Usually there are 3 to 4, for heartbeats and timers.


def threads(pid):
    """Returns {thread: the text of its status file}."""
    found = {}
    for thread in os.listdir(f"/proc/{pid}/task"):
        try:
            with open(f"/proc/{pid}/task/{thread}/status") as file:
                found[thread] = file.read()
        except OSError:  # The thread has ended.
            pass
    return found


def wake_ups(pid):
    return sum(int(count) for text in threads(pid).values()
               for count in re.findall(r"^voluntary_ctxt_switches:\s+(\d+)", text, re.MULTILINE))


def prepared(pids):
    return not any("prefault" in text.split("\n")[0] for pid in pids for text in threads(pid).values())


need_model()
begin = time.monotonic()
with Cluster() as cluster:
    ready = time.monotonic() - begin
    cluster.post("/v1/completions", {"prompt": "Hello", "max_tokens": 5})
    processes = {"gateway": cluster.process.pid, **cluster.children()}
    assert len(processes) == 3
    wait_until(lambda: prepared(processes.values()), "the KV memory is prepared")
    time.sleep(1)  # Waits for the report of the prefix caches' contents.
    nices = {name: {os.getpriority(os.PRIO_PROCESS, int(thread)) for thread in threads(pid)}
             for name, pid in cluster.children().items()}
    mine = os.getpriority(os.PRIO_PROCESS, 0)
    assert nices == {"prompt-0": {mine}, "token-0": {min(mine + 1, 19)}}, nices  # Every thread of each process.
    begin = time.monotonic()
    wakes = {name: wake_ups(pid) for name, pid in processes.items()}
    cpu = sum(map(cpu_seconds, processes.values()))
    time.sleep(SECONDS)
    cpu = sum(map(cpu_seconds, processes.values())) - cpu
    wakes = {name: wake_ups(pid) - wakes[name] for name, pid in processes.items()}
    seconds = time.monotonic() - begin
rates = {name: round(count / seconds, 1) for name, count in wakes.items()}
print(f"ready {ready:.2f} s after the command; idle: {cpu:.3f} s of CPU in {seconds:.1f} s = {cpu / seconds:.2%} of a core; "
      f"wake-ups a second: {rates}")
assert max(rates.values()) <= WAKE_UPS_MAX, rates
assert cpu <= 0.01 * seconds, cpu
