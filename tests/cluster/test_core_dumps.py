"""Goal: a crash writes no keys and prompts to a disk: no process of a cluster writes a core dump, unless the config
allows it (cluster/core_dumps).

Method: reads the limits of all processes. A limit of 1 byte forbids a core file, and also a core dump to a program of
the system.
"""

import resource

from cluster import Cluster, need_model

need_model()
_, hard = resource.getrlimit(resource.RLIMIT_CORE)
resource.setrlimit(resource.RLIMIT_CORE, (hard, hard))  # The cluster inherits the limit.


def core_limit(pid):
    return resource.prlimit(pid, resource.RLIMIT_CORE)[0]


for config, want in (({}, 1 if hard != 0 else 0), ({"cluster": {"core_dumps": True}}, hard)):
    with Cluster(config) as cluster:
        limits = {name: core_limit(pid) for name, pid in {"gateway": cluster.process.pid, **cluster.children()}.items()}
    assert len(limits) == 3 and set(limits.values()) == {want}, f"{config}: {limits}, want {want}"
