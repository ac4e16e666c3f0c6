"""bench_cluster: tests/cluster/cluster.py with the default model instead of the tests' tiny one, and the program's defaults. Every bench that
starts a cluster imports it from here."""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "tests", "cluster"))
import cluster  # noqa: E402 (the folder is not a package)

cluster.MODEL = cluster.DEFAULT_MODEL
cluster.SCHEDULER = {}  # The defaults of the program.
