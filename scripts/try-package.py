#!/usr/bin/env python3
"""try-package.py [--image TAR] [--suite SUITE] DEB: installs the Debian package in a fresh minimal Debian and uses it.

Needs root, debootstrap, unshare and the default model (CLEAVE_MODEL, or ~/.cache/cleave). The Debian is a folder; its
processes have namespaces of their own for mounts, processes and, while cleave serves, the network. Steps: debootstrap,
apt install, the command of cleave.service as its user with a socket of a service manager, READY=1, a stream over HTTP,
SIGTERM, status 0; then apt purge, which leaves only the operator's files.

With --image it writes the root file system with the package to TAR, after it has removed what a container does not need,
and prints its size.
"""
import argparse
import json
import os
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import time

from fresh_debian import MODEL, base_make, inside, model_path, run_inside, say

LIMIT_S = 300


def unit_command(root):
    path = next(p for p in (root + "/lib/systemd/system/cleave.service", root + "/usr/lib/systemd/system/cleave.service")
                if os.path.exists(p))
    with open(path, encoding="utf-8") as file:
        return next(line for line in file if line.startswith("ExecStart=")).split("=", 1)[1].strip()


def serve_and_stream(root):
    """Runs the unit's command as the unit's user, waits for READY=1 and reads a stream."""
    manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    manager.bind(root + "/run/notify")
    os.chmod(root + "/run/notify", 0o777)
    manager.settimeout(1)
    # The client runs in the same namespaces: bash alone can speak HTTP.
    body = json.dumps({"messages": [{"role": "user", "content": "What is gravity?"}], "max_tokens": 16, "temperature": 0,
                       "stream": True})
    request = (f"POST /v1/chat/completions HTTP/1.1\\r\\nHost: localhost\\r\\nContent-Type: application/json\\r\\n"
               f"Content-Length: {len(body)}\\r\\nConnection: close\\r\\n\\r\\n{body}")
    script = f"""install -d -o cleave -g cleave -m 750 /run/cleave
cd /var/lib/cleave
setpriv --reuid=cleave --regid=cleave --clear-groups --no-new-privs --inh-caps=-all --bounding-set=-all \\
    env HOME=/var/lib/cleave NOTIFY_SOCKET=/run/notify {unit_command(root)} >/tmp/log 2>&1 &
pid=$!
until [ -e /tmp/go ] || ! kill -0 $pid; do sleep 0.2; done
exec 3<>/dev/tcp/127.0.0.1/8080
printf '%b' {shlex.quote(request)} >&3
cat <&3
kill -TERM $pid
wait $pid
echo "status $?"
cat /tmp/log >&2
"""
    process = subprocess.Popen(inside(root, script, network=False), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    said, deadline = [], time.monotonic() + LIMIT_S
    while not any("READY=1" in text for text in said):
        try:
            said.append(manager.recv(4096).decode())
        except TimeoutError:
            if process.poll() is not None or time.monotonic() > deadline:
                process.kill()
                sys.exit(f"try-package: no READY=1: {process.communicate()}")
    open(root + "/tmp/go", "w").close()
    out, log = process.communicate(timeout=LIMIT_S)
    manager.setblocking(False)
    try:
        while True:
            said.append(manager.recv(4096).decode())
    except BlockingIOError:
        pass
    manager.close()
    tokens = out.count('"content"')
    assert "HTTP/1.1 200" in out and "data: [DONE]" in out and "status 0" in out and tokens > 8, (out, log)
    assert any("STOPPING=1" in text for text in said), said
    return said, tokens


def try_package(root, deb, suite):
    started = time.monotonic()
    base_make(root, suite)
    based = time.monotonic()
    shutil.copy(deb, root + "/tmp/cleave.deb")
    run_inside(root, "apt-get -qq update && apt-get -qq install -y --no-install-recommends /tmp/cleave.deb")
    installed = time.monotonic()
    say(f"installed after {installed - based:.0f} s: {run_inside(root, 'cleave --version').splitlines()[0]}")
    shutil.copy(model_path(), root + f"/var/lib/cleave/models/{MODEL}")
    run_inside(root, "id cleave && test -d /usr/share/doc/cleave/docs && cleave serve /etc/cleave/cleave.json --check")
    said, tokens = serve_and_stream(root)
    say(f"a stream of {tokens} events; the service manager got: {' | '.join(s.replace(chr(10), ' ') for s in said)}")
    run_inside(root, "apt-get -qq purge -y cleave && test ! -e /usr/bin/cleave && test ! -e /etc/cleave && "
                     f"test -e /var/lib/cleave/models/{MODEL}")
    say(f"purged; {time.monotonic() - started:.0f} s in all, {based - started:.0f} s of them debootstrap")


def make_image(root, deb, suite, tar):
    base_make(root, suite)
    shutil.copy(deb, root + "/tmp/cleave.deb")
    run_inside(root, "apt-get -qq update && apt-get -qq install -y --no-install-recommends /tmp/cleave.deb")
    # What deploy/Containerfile removes, and this computer's settings of apt.
    run_inside(root, "rm -rf /tmp/cleave.deb /var/lib/apt/lists/* /var/cache/apt/* /var/log/* /usr/share/doc/* /usr/share/man/* "
                     "/usr/share/locale/* /etc/apt/apt.conf.d/* /etc/apt/auth.conf.d /etc/apt/sources.list.d/*")
    subprocess.run(["tar", "-C", root, "--numeric-owner", "-cf", tar, "."], check=True)
    compressed = len(subprocess.run(["gzip", "-c", tar], check=True, capture_output=True).stdout)
    say(f"{tar}: {os.path.getsize(tar) / 1e6:.0f} MB, {compressed / 1e6:.0f} MB compressed")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("deb")
    parser.add_argument("--image")
    parser.add_argument("--suite", default="bookworm")
    options = parser.parse_args()
    if os.geteuid() != 0 or shutil.which("debootstrap") is None:
        sys.exit("try-package: needs root and debootstrap")
    root = tempfile.mkdtemp(prefix="cleave-package-", dir="/var/tmp")
    os.chmod(root, 0o755)
    try:
        if options.image:
            make_image(root, options.deb, options.suite, options.image)
        else:
            try_package(root, options.deb, options.suite)
    finally:
        shutil.rmtree(root)


main()
