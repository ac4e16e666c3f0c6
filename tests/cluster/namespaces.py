"""namespaces: network namespaces joined by veth pairs, which stand for hosts. Needs root and iproute2; a test that cannot
have them is skipped."""

import os
import shutil
import subprocess
import sys
import time

from cluster import skip


def sh(*words, check=True):
    return subprocess.run(words, check=check, capture_output=True, text=True)


def within(space, *words):
    """The command that runs this one in a namespace."""
    return ["ip", "netns", "exec", space, *words]


class Namespaces:
    """`names` are namespaces; `cables` [(name, its device, its address, name, device, address), …] join them."""

    def __init__(self, names, cables):
        self.names, self.cables = names, cables
        self.mounted = os.path.ismount("/run/netns")

    def __enter__(self):
        if os.geteuid() != 0 or shutil.which("ip") is None:
            skip("needs root and ip (iproute2) to make network namespaces")
        if sh("ip", "netns", "add", self.names[0], check=False).returncode != 0:
            skip("network namespaces cannot be made here")
        try:
            if sh("ip", "-n", self.names[0], "link", check=False).returncode != 0:
                skip("network namespaces cannot be entered here (ip must remount /sys, which a chroot does not allow)")
            self.make()
        except BaseException:
            self.__exit__()
            raise
        return self

    def make(self):
        for name in self.names[1:]:
            sh("ip", "netns", "add", name)
        for name in self.names:
            sh("ip", "-n", name, "link", "set", "lo", "up")
        ends = []
        for a, a_device, a_address, b, b_device, b_address in self.cables:
            sh("ip", "link", "add", a_device, "netns", a, "type", "veth", "peer", "name", b_device, "netns", b)
            ends += [(a, a_device, a_address), (b, b_device, b_address)]
        for name, device, address in ends:
            sh("ip", "-n", name, "addr", "add", address, "dev", device)
            sh("ip", "-n", name, "link", "set", device, "up")
        for name, device, _ in ends:
            wait_running(name, device)

    def __exit__(self, *why):
        for name in self.names:
            sh("ip", "netns", "del", name, check=False)
        if not self.mounted:  # ip has made it, and leaves it: a chroot could not be removed
            sh("umount", "-l", "/run/netns", check=False)

    def run_inside(self, name, *arguments, seconds=900):
        """This script again, in one of them. Returns its exit status."""
        return subprocess.run(within(name, sys.executable, sys.argv[0], *arguments), timeout=seconds).returncode


def wait_running(name, device):
    """UCX takes only devices that run when it starts, and the kernel takes its time after "up"."""
    deadline = time.monotonic() + 30
    while "state UP" not in sh("ip", "-n", name, "-o", "link", "show", device).stdout:
        assert time.monotonic() < deadline, f"{device} does not run"
        time.sleep(0.02)
