"""namespaces: network namespaces joined by veth pairs, which stand for hosts. Each namespace exists while its holding
process runs, so nothing is left behind when a test is killed. Nothing is mounted outside the mount namespaces of the
processes inside. This works in a container, in a chroot with /proc and /sys, and for an ordinary user if the kernel
lets users make user namespaces. Needs iproute2 and util-linux. A test that cannot make namespaces is skipped."""

import os
import shutil
import subprocess
import sys

from cluster import skip, wait_until

# A process sees the devices of its own network namespace in /sys, so /sys is mounted again. In a chroot "/" is not a
# mount point, so only /sys can be separated from the mounts of other namespaces.
ENTER = ('mount --make-rslave / 2>/dev/null || mount --make-rprivate /sys || exit 125; '
         'mount -t sysfs -o ro,nosuid,nodev,noexec sysfs /sys || exit 125; exec "$@"')


def sh(*words, check=True):
    return subprocess.run(words, check=check, capture_output=True, text=True)


def net(space, *words):
    """Returns the command that runs `words` with the network of a namespace, but with the caller's /sys."""
    return ["nsenter", f"--net=/proc/{space}/ns/net", *words]


def within(space, *words):
    """Returns the command that runs `words` in a namespace."""
    return net(space, "unshare", "--mount", "--propagation", "unchanged", "sh", "-c", ENTER, "sh", *words)


def ip(space, *words):
    sh(*net(space, "ip", *words))


def listening(pid):
    """Returns {port: address} of the process's listening TCP sockets."""
    inodes = set()
    for name in os.listdir(f"/proc/{pid}/fd"):
        try:
            inodes.add(os.readlink(f"/proc/{pid}/fd/{name}"))
        except OSError:
            pass  # The descriptor was closed meanwhile.
    found = {}
    for table in ("tcp", "tcp6"):
        if not os.path.exists(f"/proc/{pid}/net/{table}"):
            continue
        with open(f"/proc/{pid}/net/{table}") as file:
            for line in file.readlines()[1:]:
                fields = line.split()
                if fields[3] == "0A" and f"socket:[{fields[9]}]" in inodes:
                    address, port = fields[1].rsplit(":", 1)
                    found[int(port, 16)] = address
    return found


def limit(device, mbit, space=None):
    """Limits the rate at which this device of a namespace sends (None: of the caller's; 0 Mbit/s: no limit). The bucket
    holds half a millisecond, and at least one large segment; the queue holds 100 ms."""
    words = net(space) if space else []
    if mbit == 0:
        sh(*words, "tc", "qdisc", "del", "dev", device, "root", check=False)
        return
    burst = max(70000, mbit * 125000 // 2000)
    sh(*words, "tc", "qdisc", "replace", "dev", device, "root", "tbf", "rate", f"{mbit}mbit", "burst", str(burst),
       "latency", "100ms")


class Namespaces:
    """`names` are namespaces; `cables` [(name, its device, its address, name, device, address), …] join them.
    self[name] is a namespace for the functions of this file: the id of its holding process, as text."""

    def __init__(self, names, cables):
        self.names, self.cables, self.holders = names, cables, {}

    def __getitem__(self, name):
        return str(self.holders[name].pid)

    def __enter__(self):
        for tool in ("ip", "unshare", "nsenter"):
            if shutil.which(tool) is None:
                skip(f"needs {tool} to make network namespaces")
        if os.geteuid() != 0:
            again_as_root()
        try:
            self.make()
        except BaseException:
            self.__exit__()
            raise
        return self

    def make(self):
        for name in self.names:
            # cat ends when this process ends, because cat's input then ends.
            self.holders[name] = subprocess.Popen(["unshare", "--net", "sh", "-c", "echo made; exec cat"],
                                                  stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            if self.holders[name].stdout.readline() != b"made\n":
                skip("network namespaces cannot be made here: " + self.holders[name].stderr.read().decode().strip())
        tried = sh(*within(self[self.names[0]], "true"), check=False)
        if tried.returncode != 0:
            skip("network namespaces cannot be entered here: " + tried.stderr.strip())
        for name in self.names:
            ip(self[name], "link", "set", "lo", "up")
        ends = []
        for a, a_device, a_address, b, b_device, b_address in self.cables:
            ip(self[a], "link", "add", a_device, "type", "veth", "peer", "name", b_device, "netns", self[b])
            ends += [(a, a_device, a_address), (b, b_device, b_address)]
        for name, device, address in ends:
            ip(self[name], "addr", "add", address, "dev", device)
            ip(self[name], "link", "set", device, "up")
        for name, device, _ in ends:
            # UCX uses only devices that run when UCX starts. A device does not run immediately after "up".
            wait_until(lambda: "state UP" in sh(*net(self[name], "ip", "-o", "link", "show", device)).stdout,
                       f"{device} runs")

    def __exit__(self, *why):
        for holder in self.holders.values():
            holder.kill()
            holder.communicate()

    def run_inside(self, name, *arguments, seconds=900):
        """Runs this script again in one of the namespaces. Returns its exit status."""
        return subprocess.run(within(self[name], sys.executable, sys.argv[0], *arguments), timeout=seconds).returncode


def again_as_root():
    """Runs this script again as root of a user namespace, and exits with its exit status."""
    as_root = ["unshare", "--user", "--map-root-user"]
    if sh(*as_root, "unshare", "--net", "true", check=False).returncode != 0:
        skip("needs root, or a kernel that lets users make user namespaces, to make network namespaces")
    os.execvp("unshare", [*as_root, sys.executable, *sys.argv])
