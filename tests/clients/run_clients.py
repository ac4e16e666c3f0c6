"""Goal: the clients that people use work with cleave, unchanged. Method: each client is installed from PyPI into a folder
of its own (build/clients), at a fixed version; its script uses it against one cluster with a prompt machine and a token
machine that serve the default model. Prints a table: client, version, what was done, result.

usage: run_clients.py [CLIENT…]
"""

import json
import os
import re
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.join(ROOT, "tests", "cluster"))
from cluster import DEFAULT_MODEL, Cluster  # noqa: E402

# Client: its script and packages. Those of one line share a folder.
CLIENTS = {
    "openai": ("openai_sdk", ["openai==3.54.0"]),
    "openai-2": ("openai_sdk", ["openai==2.54.0"]),
    "anthropic": ("anthropic_sdk", ["anthropic==2.12.0"]),
    "litellm": ("litellm_client", ["litellm==1.106.2", "mcp==2.3.0"]),
    "langchain-openai": ("langchain_client", ["langchain-openai==1.7.3"]),
    "instructor": ("instructor_client", ["instructor==1.17.0"]),
    "pydantic-ai": ("pydantic_ai_client", ["pydantic-ai-slim[openai,anthropic]==2.68.0"]),
    "openai-agents": ("openai_agents", ["openai-agents==0.20.0"]),
    "lm-eval": ("lm_eval_client", ["lm-eval[api]==0.4.13", "transformers==5.23.0"]),
    "guidellm": ("guidellm_client", ["guidellm==0.8.1"]),
    "aiperf": ("aiperf_client", ["aiperf==0.13.0"]),
}
INSTALL_S, CLIENT_S = 1800, 600  # The limits only end a client that hangs.


def say(text):
    print(text, file=sys.stderr, flush=True)


def python_of(name, packages):
    """Installs the packages, unless they are there. Returns the path of the client's Python, or None."""
    folder = os.path.join(ROOT, "build", "clients", name)
    python, done = os.path.join(folder, "bin", "python"), os.path.join(folder, ".installed")
    wanted = "\n".join(packages)
    if os.path.exists(done) and open(done).read() == wanted:
        return python
    say(f"{name}: installing {' '.join(packages)}")
    subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
    if subprocess.run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages],
                      timeout=INSTALL_S).returncode != 0:
        return None
    with open(done, "w") as file:
        file.write(wanted)
    return python


def run(name, url, model):
    """Returns (version, what was done, result)."""
    script, packages = CLIENTS[name]
    python = python_of(name, packages)
    if python is None:
        return packages[0], "", "not installed"
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("LD_LIBRARY_PATH", "PYTHON"))}
    try:
        done = subprocess.run([python, os.path.join(HERE, script + ".py"), url, model, DEFAULT_MODEL], text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=CLIENT_S, env=environment)
        output, good = done.stdout, done.returncode == 0
    except subprocess.TimeoutExpired as expired:
        output, good = (expired.stdout or b"").decode(errors="replace"), False
    if not good:
        say(f"{name} failed:\n{output[-4000:]}")
    version = re.search(r"^VERSION (\S+)$", output, re.M)
    did = re.findall(r"^([a-z ]+): ok$", output, re.M)
    return version.group(1) if version else packages[0], ", ".join(did), "works" if good else "FAILED"


def main():
    names = sys.argv[1:] or list(CLIENTS)
    unknown = [name for name in names if name not in CLIENTS]
    if unknown:
        sys.exit(f"no client {unknown[0]}: want {', '.join(CLIENTS)}")
    rows = []
    with Cluster({"model": DEFAULT_MODEL, "server": {"embeddings": "mean"}}) as cluster:
        [model] = json.loads(cluster.request("GET", "/v1/models")[2])["data"]
        for name in names:
            begin = time.monotonic()
            rows.append((name, *run(name, f"http://{cluster.host}:{cluster.port}", model["id"])))
            say(f"{name}: {rows[-1][-1]}, {time.monotonic() - begin:.0f} s")
        cluster.wait_all_free()
    print("| client | version | done | result |\n|---|---|---|---|")
    for row in rows:
        print("| " + " | ".join(row) + " |")
    failed = [row[0] for row in rows if row[-1] != "works"]
    print(f"{len(rows) - len(failed)} passed, {len(failed)} failed")
    sys.exit(1 if failed else 0)


main()
