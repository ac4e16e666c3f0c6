#!/usr/bin/env python3
"""Goal: `meson install` puts a usable cleave into a folder, and the files of the Debian package are well formed.

Method: installs the build into a scratch folder and checks the files; runs the installed program in another folder
(kinds of machines are found without the source tree); gives man pages to man, completions to their shells, units to
systemd-analyze and maintainer scripts to sh, as far as this computer has these. It builds no package and needs no root.
Arguments: the build folder and the program in it.
"""
import glob
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

BUILD, CLEAVE = sys.argv[1], os.path.abspath(sys.argv[2])
SOURCE = os.environ["CLEAVE_SOURCE"]


def run(*command, **options):
    done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, timeout=120, **options)
    assert done.returncode == 0, (command, done.returncode, done.stdout[-2000:], done.stderr[-2000:])
    return done.stdout + done.stderr


def install(folder):
    """Copies what the install plan names: `meson install` would first build every test."""
    plan = json.loads(run("meson", "introspect", BUILD, "--install-plan"))
    options = {o["name"]: o["value"] for o in json.loads(run("meson", "introspect", BUILD, "--buildoptions"))}
    folders = {"{prefix}": ""} | {"{" + name + "}": value for name, value in options.items() if name.endswith("dir")}
    folders["{moduledir_shared}"] = folders.get("{libdir}", "lib")
    found = {}
    for kind in plan.values():
        for source, entry in kind.items():
            target = entry["destination"]
            for name, value in folders.items():
                target = target.replace(name, value.lstrip("/"))
            if target.startswith(options["prefix"]):
                target = target[len(options["prefix"]):]
            found[target.lstrip("/")] = source
    for target, source in found.items():
        path = os.path.join(folder, target)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        if os.path.isdir(source):
            shutil.copytree(source, path, dirs_exist_ok=True)
        elif os.path.exists(source):
            shutil.copy(source, path)
        else:
            assert "cuda" in source, f"{source} is not built"
    return {os.path.relpath(os.path.join(at, name), folder) for at, _, names in os.walk(folder) for name in names}


def check_files(files):
    commands = [c["table"]["command"] for c in json.loads(run(CLEAVE, "--help=json"))["commands"]]
    wanted = {"bin/cleave", "lib/systemd/system/cleave.service", "lib/systemd/system/cleave-machine@.service",
              "share/doc/cleave/README.md", "share/doc/cleave/docs/operation.md", "share/doc/cleave/deploy/cleave.json",
              "share/man/man1/cleave.1", "share/man/man5/cleave.json.5", "share/bash-completion/completions/cleave.bash",
              "share/zsh/vendor-completions/_cleave"}
    wanted |= {f"share/man/man1/cleave-{command}.1" for command in commands}
    for path in glob.glob(os.path.join(SOURCE, "deploy/hardware/*.json")):
        wanted.add("share/cleave/hardware/" + os.path.basename(path))
    assert wanted <= files, sorted(wanted - files)


def check_hardware(root):
    """The installed program finds the installed kinds of machines, by any of their names, from any folder."""
    program = os.path.join(root, "bin/cleave")
    for name in ("cpu", "cpu.json", "deploy/hardware/cpu.json"):
        done = subprocess.run([program, "plan", "--lengths", "/nowhere", "--fixed", "rate=1", "--profile", "/nowhere.json",
                               "--hardware", name], capture_output=True, text=True, check=False, cwd="/", timeout=60)
        assert "cpu.json" not in done.stderr, done.stderr
    done = subprocess.run([program, "simulate", "--trace", os.path.join(SOURCE, "deploy/demo-trace.csv"), "--machines",
                           "1:mixed:no-such-kind"], capture_output=True, text=True, check=False, cwd="/", timeout=60)
    assert done.returncode != 0 and "no-such-kind" in done.stderr, done
    done = subprocess.run([program, "simulate", "--trace", os.path.join(SOURCE, "deploy/demo-trace.csv"), "--machines",
                           "1:mixed:a100"], capture_output=True, text=True, check=False, cwd="/", timeout=60)
    assert "No such file" not in done.stderr, done


def check_pages(root):
    for path in glob.glob(os.path.join(root, "share/man/man*/*")):
        with open(path, encoding="utf-8") as file:
            text = file.read()
        assert text.startswith(".TH ") and ".SH NAME\n" in text and ".SH SYNOPSIS\n" in text or path.endswith(".5"), path
        if shutil.which("man"):
            done = subprocess.run(["man", "--warnings", "-l", path], capture_output=True, text=True, check=False, timeout=60,
                                  env=os.environ | {"MANWIDTH": "120", "LC_ALL": "C.UTF-8"})
            assert done.returncode == 0 and done.stderr == "" and "NAME" in done.stdout, (path, done.stderr)
    with open(os.path.join(root, "share/man/man1/cleave-serve.1"), encoding="utf-8") as file:
        assert "\\fB\\-\\-listen\\fR \\fIADDR:PORT\\fR" in file.read()


def complete(path, line):
    """Returns what bash would offer at the end of the line."""
    words = line.split(" ")
    array = " ".join(f"'{word}'" for word in words)
    script = (f"source '{path}'; compopt() {{ :; }}; COMP_WORDS=({array}); COMP_CWORD={len(words) - 1}; _cleave; "
              'printf "%s\\n" "${COMPREPLY[@]}"')
    return run("bash", "-c", script).split()


def check_completions(root):
    path = os.path.join(root, "share/bash-completion/completions/cleave.bash")
    assert complete(path, "cleave ser") == ["serve"]
    assert "--log-level" in complete(path, "cleave serve --l")
    assert complete(path, "cleave serve --log-level d") == ["debug"]
    assert complete(path, "cleave machine --set http/lis") == ["http/listen="]
    if shutil.which("zsh"):
        run("zsh", "-n", os.path.join(root, "share/zsh/vendor-completions/_cleave"))


def check_units(root):
    for name in ("cleave.service", "cleave-machine@.service"):
        with open(os.path.join(root, "lib/systemd/system", name), encoding="utf-8") as file:
            text = file.read()
        assert not re.search(r"@[a-z]+@", text), name
        for line in ("Type=notify", "KillMode=mixed", "User=cleave", "NoNewPrivileges=yes"):
            assert f"\n{line}\n" in text, (name, line)
        if not shutil.which("systemd-analyze"):
            print("note: without systemd-analyze the units are not verified")
            continue
        with tempfile.TemporaryDirectory() as folder:
            unit = os.path.join(folder, name.replace("@", "@token-0"))
            with open(unit, "w", encoding="utf-8") as file:
                file.write(re.sub(r"(?m)^(Exec\w+)=\S*/cleave ", rf"\1={CLEAVE} ", text).replace("User=cleave", "User=root")
                           .replace("Group=cleave", "Group=root"))
            shown = run("systemd-analyze", "verify", "--man=no", "--recursive-errors=no", unit)
            assert os.path.basename(unit) not in shown, shown
            shown = run("systemd-analyze", "security", "--offline=true", "--no-pager", unit)
            exposure = float(re.search(r"exposure level for \S+: ([0-9.]+)", shown).group(1))
            assert exposure < 3, shown
            print(f"{name}: exposure {exposure}")


def check_debian():
    for path in glob.glob(os.path.join(SOURCE, "debian/cleave.*")):
        if path.endswith(("inst", "rm")):
            run("sh", "-n", path)
    with open(os.path.join(SOURCE, "debian/control"), encoding="utf-8") as file:
        paragraphs = file.read().strip().split("\n\n")
    names = [re.search(r"(?m)^(?:Source|Package): (\S+)$", text).group(1) for text in paragraphs]
    assert names == ["cleave", "cleave", "cleave-cuda"], names
    with open(os.path.join(SOURCE, "deploy/package/cleave.json"), encoding="utf-8") as file:
        assert json.load(file)["http"]["admin_socket"] == "/run/cleave/admin.sock"


with tempfile.TemporaryDirectory() as scratch:
    installed = install(scratch)
    check_files(installed)
    check_hardware(scratch)
    check_pages(scratch)
    check_completions(scratch)
    check_units(scratch)
check_debian()
print("ok")
