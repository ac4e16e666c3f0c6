#!/usr/bin/env python3
"""check-package.py DEB…: checks what is in the Debian packages of cleave: files, dependencies, maintainer scripts, units.

It installs nothing. scripts/try-package.py does.
"""
import os
import shutil
import subprocess
import sys
import tempfile

WANTED = ["usr/bin/cleave", "etc/cleave/cleave.json", "usr/share/man/man1/cleave.1.gz", "usr/share/man/man1/cleave-serve.1.gz",
          "usr/share/man/man5/cleave.json.5.gz", "usr/share/bash-completion/completions/cleave.bash",
          "usr/share/zsh/vendor-completions/_cleave", "usr/share/cleave/hardware/cpu.json", "usr/share/doc/cleave/README.md",
          "usr/share/doc/cleave/docs/operation.md", "usr/share/doc/cleave/copyright", "var/lib/cleave/models"]
UNITS = ["cleave.service", "cleave-machine@.service"]
# Libraries that the program is linked with, by the names of Debian 12 or 13.
LIBRARIES = ["libc6", "libgnutls30", "libhiredis", "libjansson4", "libmicrohttpd12", "libpcre2-8-0", "libucx0", "libunistring"]


def run(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def check_units(root):
    for unit in UNITS:
        found = [os.path.join(root, folder, "systemd/system", unit) for folder in ("lib", "usr/lib")]
        found = [path for path in found if os.path.exists(path)]
        assert len(found) == 1, (unit, found)
        with open(found[0], encoding="utf-8") as file:
            text = file.read()
        for line in ("Type=notify", "KillMode=mixed", "User=cleave", "ExecStart=/usr/bin/cleave "):
            assert line in text and "@bindir@" not in text, (unit, line)


def check_main(root, control, name):
    for path in WANTED:
        assert os.path.lexists(os.path.join(root, path)), f"{name} has no {path}"
    with open(os.path.join(control, "conffiles"), encoding="utf-8") as file:
        assert file.read().split() == ["/etc/cleave/cleave.json"], name
    depends = run("dpkg-deb", "-f", name, "Depends")
    for library in LIBRARIES:
        assert library in depends, f"{name} does not depend on {library}: {depends}"
    check_units(root)
    shown = subprocess.run([os.path.join(root, "usr/bin/cleave"), "--version"], capture_output=True, text=True, check=False)
    assert shown.returncode == 0 and shown.stdout.startswith("cleave "), shown


def check(name):
    with tempfile.TemporaryDirectory() as folder:
        root, control = os.path.join(folder, "root"), os.path.join(folder, "control")
        run("dpkg-deb", "-x", name, root)
        run("dpkg-deb", "-e", name, control)
        for script in ("preinst", "postinst", "prerm", "postrm"):
            path = os.path.join(control, script)
            if os.path.exists(path):
                run("sh", "-n", path)
                if shutil.which("shellcheck"):
                    run("shellcheck", "--severity=error", path)
        package = run("dpkg-deb", "-f", name, "Package").strip()
        if package == "cleave":
            check_main(root, control, name)
        else:
            plugins = [f for _, _, files in os.walk(root) for f in files if f.startswith("libcleave-cuda")]
            assert plugins == ["libcleave-cuda.so"], (name, plugins)
        print(f"{os.path.basename(name)}: files, dependencies and scripts are as wanted")


for argument in sys.argv[1:]:
    check(argument)
sys.exit(0 if len(sys.argv) > 1 else "check-package: no package")
