#!/usr/bin/env python3
"""Goal: a cluster on two computers answers with the bytes of one machine, over every transport; no link falls without a
reason, and what is cut or killed comes back.

Method: tests/hosts/two-hosts boots two virtual hosts with Debian's kernel and soft-RoCE between them, without any
network. on_a.py runs the gateway and a prompt machine on host a, on_b.sh a token machine on host b. Where the processor has
no virtualisation the hosts are emulated, 20 to 100 times slower, so the model is the tests' tiny one and the time limits
are long. Needs root, Debian packages (installed by two-hosts), and the program in build/.

usage: test_hosts.py [SCENARIO…]     (./dev test --hosts)"""

import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.join(ROOT, "tests", "cluster"))
os.environ.setdefault("CLEAVE_BINARY", os.path.join(ROOT, "build", "cleave"))
import cluster  # noqa: E402 (reads CLEAVE_BINARY)

LIMIT_S = 2400


def main():
    cluster.need_model()
    with tempfile.TemporaryDirectory(prefix="cleave-hosts-") as out:
        os.mkdir(os.path.join(out, "b"))
        on_a = "python3 /tree/tests/hosts/on_a.py " + " ".join(f"'{each}'" for each in sys.argv[1:])
        status = subprocess.run([os.path.join(HERE, "two-hosts"), "--timeout", str(LIMIT_S), "--out", out, "--env",
                                 f"MODEL={cluster.MODEL}", on_a, "sh /tree/tests/hosts/on_b.sh"], cwd=ROOT).returncode
        if status != 0:
            for name in sorted(os.listdir(out)):
                if name.endswith(".log"):
                    with open(os.path.join(out, name), errors="replace") as file:
                        print(f"--- {name}\n{file.read()[-4000:]}")
    sys.exit(status)


main()
