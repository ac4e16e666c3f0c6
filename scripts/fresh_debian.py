"""fresh_debian: makes a fresh minimal Debian in a folder and runs commands in it. try-package.py and try-hosts.py use it.
Needs root, debootstrap and unshare."""
import glob
import os
import re
import shlex
import shutil
import subprocess
import sys

MODEL = "SmolLM2-135M-Instruct.Q4_1.gguf"


def say(text):
    print(f"{os.path.basename(sys.argv[0]).removesuffix('.py')}: {text}", flush=True)


def model_path():
    return os.environ.get("CLEAVE_MODEL") or os.path.expanduser(f"~/.cache/cleave/{MODEL}")


def debian_sources():
    """Yields (file, address of the archive) for the sources of Debian itself that this computer's apt uses."""
    for path in ["/etc/apt/sources.list", *sorted(glob.glob("/etc/apt/sources.list.d/*"))]:
        if os.path.isfile(path):
            with open(path, encoding="utf-8") as file:
                found = re.search(r"(?m)^(?:URIs:|deb(?: \[.*?\])?)\s+(\S+/debian/?)(?:\s|$)", file.read())
            if found:
                yield path, found.group(1)


def base_make(root, suite, packages=()):
    sources = list(debian_sources())
    mirror = sources[0][1] if sources else "http://deb.debian.org/debian"
    say(f"debootstrap {suite} (minbase)")
    more = ["--include=" + ",".join(packages)] if packages else []
    subprocess.run(["debootstrap", "--variant=minbase", *more, suite, root, mirror], check=True, stdout=subprocess.DEVNULL)
    if sources:
        os.remove(root + "/etc/apt/sources.list")
    for path in (*(file for file, _ in sources), "/etc/apt/apt.conf.d", "/etc/apt/auth.conf.d",
                 "/usr/share/keyrings", "/etc/ssl/certs", "/etc/resolv.conf", "/etc/hosts"):
        if os.path.isdir(path):
            shutil.copytree(path, root + path, dirs_exist_ok=True, ignore_dangling_symlinks=True)
        elif os.path.exists(path):
            shutil.copy(path, root + path)
    for path in glob.glob(root + "/etc/apt/apt.conf.d/docker-*"):
        os.remove(path)


def inside(root, command, network=True):
    """Runs a shell command in the Debian. All its processes end with it."""
    setup = f"mount -t proc proc {root}/proc && mount --bind /dev {root}/dev && mount -t tmpfs tmpfs {root}/dev/shm && "
    flags = ["--mount", "--pid", "--fork", "--kill-child"] + ([] if network else ["--net"])
    setup += "" if network else "ip link set lo up && "
    return ["unshare", *flags, "bash", "-c",
            setup + f"exec chroot {root} /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 "
                    f"DEBIAN_FRONTEND=noninteractive bash -c {shlex.quote(command)}"]


def run_inside(root, command, network=True):
    done = subprocess.run(inside(root, command, network), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{command}: status {done.returncode}\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
    return done.stdout
