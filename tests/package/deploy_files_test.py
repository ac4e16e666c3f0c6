#!/usr/bin/env python3
"""Goal: the files of deploy/ for containers and clusters fit the program and each other. Method: reads the Kubernetes
manifests (with PyYAML; without it this part is left out, which is said) and checks probes, selectors, mounts, limits and
the commands of cleave in them; runs the Slurm job with stand-ins for srun and scontrol, and lets `cleave check` read the
config that it writes, for one node and for five. Argument: the program."""
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile

CLEAVE = os.path.abspath(sys.argv[1])
SOURCE = os.environ["CLEAVE_SOURCE"]
KUBERNETES = os.path.join(SOURCE, "deploy/kubernetes")
TABLES = {c["table"]["command"]: {f"--{o['name']}" for o in c["table"]["options"]} for c in json.loads(
    subprocess.run([CLEAVE, "--help=json"], capture_output=True, text=True, check=True).stdout)["commands"]}


def check_command(words):
    """A command line of cleave, without the program: the subcommand and its options exist."""
    assert words[0] in TABLES, words
    for word in words[1:]:
        if word.startswith("--"):
            assert word.split("=")[0] in TABLES[words[0]], words


def config_problems(path):
    """What is wrong with the file itself, not with this computer."""
    out = subprocess.run([CLEAVE, "check", "--json", path], capture_output=True, text=True, check=False).stdout
    return [r["text"] for r in json.loads(out)["results"] if r["key"] == "" and r["result"] == "error"]


def check_pod(name, spec, volumes_wanted):
    security = spec["securityContext"]
    assert security["runAsNonRoot"] and security["seccompProfile"]["type"] == "RuntimeDefault", name
    volumes = {volume["name"] for volume in spec["volumes"]}
    for container in spec.get("initContainers", []) + spec["containers"]:
        inside = container["securityContext"]
        assert not inside["allowPrivilegeEscalation"] and inside["readOnlyRootFilesystem"], name
        assert inside["capabilities"]["drop"] == ["ALL"], name
        assert {mount["name"] for mount in container["volumeMounts"]} <= volumes, name
        assert not container["image"].endswith(":latest"), name
    for container in spec["containers"]:
        assert "readinessProbe" in container and "requests" in container["resources"], name
        assert "memory" in container["resources"]["limits"], name
        if container["image"] == "cleave":
            check_command(container["args"])
            if container["args"][0] == "machine":
                stop = container["lifecycle"]["preStop"]["exec"]["command"]
                words = shlex.split(stop[2])
                assert stop[0] == "sh" and words[:2] == ["exec", "cleave"], stop
                check_command(words[2:])
            else:  # A gateway's own notice to load balancers.
                assert "lifecycle" not in container, name
                with open(os.path.join(KUBERNETES, "cleave.json"), encoding="utf-8") as file:
                    assert json.load(file)["server"]["drain_notice_ms"] >= 5000
            assert spec["terminationGracePeriodSeconds"] > 600, name
    assert volumes_wanted <= volumes, name


def check_kubernetes():
    try:
        import yaml
    except ImportError:
        print("note: without PyYAML the Kubernetes manifests are not read")
        return
    objects = {}
    for file_name in sorted(os.listdir(KUBERNETES)):
        if file_name.endswith(".yaml"):
            with open(os.path.join(KUBERNETES, file_name), encoding="utf-8") as file:
                for item in yaml.safe_load_all(file):
                    objects[item["kind"], item.get("metadata", {}).get("name", file_name)] = item
    listed = next(item for (kind, _), item in objects.items() if kind == "Kustomization")["resources"]
    assert all(os.path.exists(os.path.join(KUBERNETES, name)) for name in listed), listed
    pods = {}
    for (kind, name), item in objects.items():
        if kind in ("Deployment", "StatefulSet"):
            template = item["spec"]["template"]
            assert item["spec"]["selector"]["matchLabels"].items() <= template["metadata"]["labels"].items(), name
            pods[name] = template["metadata"]["labels"]
            check_pod(name, template["spec"], {"data"} if name == "cleave-etcd" else {"config", "keys", "models"})
            if kind == "StatefulSet":
                assert ("Service", item["spec"]["serviceName"]) in objects, name
    assert sorted(pods) == ["cleave-etcd", "cleave-gateway", "cleave-prompt", "cleave-token"], pods
    for (kind, name), item in objects.items():
        if kind == "Service":
            assert any(item["spec"]["selector"].items() <= labels.items() for labels in pods.values()), name
        if kind == "PodDisruptionBudget":
            assert item["spec"]["selector"]["matchLabels"].items() <= pods[name].items(), name
        if kind in ("HorizontalPodAutoscaler", "ScaledObject"):
            assert item["spec"]["scaleTargetRef"]["name"] in pods, name
    with open(os.path.join(KUBERNETES, "README.md"), encoding="utf-8") as file:
        for command in re.findall(r"cleave (status|drain|check)\b", file.read()):
            assert command in TABLES
    assert config_problems(os.path.join(KUBERNETES, "cleave.json")) == []


def check_slurm(nodes, wanted):
    with tempfile.TemporaryDirectory() as folder:
        tools = {"scontrol": "\n".join(f"echo node{i}" for i in range(nodes)), "srun": "exit 0",
                 "cleave": '[ "$1" != machine ] || exit 1\nexit 0'}
        for name, text in tools.items():
            path = os.path.join(folder, name)
            with open(path, "w", opener=lambda p, flags: os.open(p, flags, 0o755), encoding="utf-8") as file:
                file.write(f"#!/bin/sh\n{text}\n")
        job = os.path.join(folder, "job")
        environment = {"PATH": f"{folder}:{os.environ['PATH']}", "MODEL": "/shared/m.gguf", "FOLDER": job,
                       "SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "node[0-9]"}
        done = subprocess.run(["bash", os.path.join(SOURCE, "deploy/slurm/cleave.sbatch")], env=environment,
                              capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done
        path = os.path.join(job, "cleave.json")
        with open(path, encoding="utf-8") as file:
            pools = json.load(file)["pools"]
        assert [len(pools[pool]) for pool in ("prompt", "token", "mixed")] == wanted, pools
        assert config_problems(path) == [], config_problems(path)
        for name in ("cluster.key", "keys.json", "client.key"):
            assert os.stat(os.path.join(job, name)).st_mode & 0o077 == 0, name


def check_container():
    with open(os.path.join(SOURCE, "deploy/Containerfile"), encoding="utf-8") as file:
        text = file.read()
    command = json.loads(re.search(r"(?m)^CMD (.*)$", text).group(1))
    check_command(command)
    assert re.search(r"(?m)^USER [1-9][0-9]*:[1-9][0-9]*$", text), "the user must be a number, for runAsNonRoot"


check_kubernetes()
check_slurm(1, [0, 0, 1])
check_slurm(5, [3, 2, 0])
check_container()
print("ok")
