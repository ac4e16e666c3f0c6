"""bench_load: how long the computer's processors, or those of some processes, have computed."""

import os
import resource


def processor_seconds():
    """Returns (CPU seconds of all processes, of this process and the children that it has waited for) since their
    start."""
    with open("/proc/stat") as file:
        ticks = [int(word) for word in file.readline().split()[1:]]
    idle = ticks[3] + ticks[4]
    own = [sum(resource.getrusage(of)[:2]) for of in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return (sum(ticks[:8]) - idle) / os.sysconf("SC_CLK_TCK"), sum(own)


def processor_seconds_of(pids):
    """Returns the CPU seconds of these running processes since their start."""
    ticks = 0
    for pid in pids:
        with open(f"/proc/{pid}/stat") as file:
            ticks += sum(int(word) for word in file.read().rsplit(")", 1)[1].split()[11:13])
    return ticks / os.sysconf("SC_CLK_TCK")
