#!/usr/bin/env python3
"""Goal: the JSON Schema of `cleave check --schema` says what the parser accepts. Method: a small validator of the words that
the schema uses. The examples of deploy/ are valid; each key's default is valid; wrong configs are wrong for both, and right
ones are right for both. Argument: the program."""
import glob
import json
import os
import re
import subprocess
import sys
import tempfile

from json_schema import wrong

CLEAVE = sys.argv[1]
SOURCE = os.environ["CLEAVE_SOURCE"]
SCHEMA = json.loads(subprocess.run([CLEAVE, "check", "--schema"], capture_output=True, text=True, check=True).stdout)
def said_by_program(config):
    """Returns what the parser says about the file."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "c.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump(config, file)
        done = subprocess.run([CLEAVE, "check", "--json", path], capture_output=True, text=True, check=False)
    return [each["text"] for each in json.loads(done.stdout)["results"] if each["key"] == "" and each["result"] == "error"]


def keys_of(schema, at=""):
    for name, below in schema["properties"].items():
        if below.get("type") == "object" and "properties" in below:
            yield from keys_of(below, f"{at}{name}/")
        elif below.get("type") == "object":
            yield from keys_of(below["additionalProperties"], f"{at}{name}/NAME/")
        else:
            yield f"{at}{name}", below


GOOD = [
    {"$schema": "./cleave.schema.json"}, {"kv": {"memory": "512MiB"}}, {"kv": {"memory": 1 << 30}},
    {"pools": {"prompt": 2, "token": ["a", "b"]}, "machines": {"a": {"threads": 2, "device": "cpu"}}},
    {"pools": {"prompt": 1, "token": 1}, "machines": {"token-0": {"stages": 2}}}, {"http": {"listen": "127.0.0.1:0"}},
    {"kv": {"block_tokens": 16}}, {"scheduler": {"policy": "prefix"}}, {"scheduler": {"cover_ms": 10}}, {"slo": {"ttft_ms": 1}},
]
WRONG = [
    [], {"modell": "x"}, {"http": {"lisen": "x"}}, {"http": 1}, {"kv": {"memory": "5 apples"}}, {"kv": {"block_tokens": 17}},
    {"kv": {"block_tokens": 4096}}, {"kv": {"block_tokens": True}}, {"kv": {"prefix_cache": "yes"}}, {"slo": {"ttft_ms": 0}},
    {"scheduler": {"policy": "best"}}, {"pools": {"prompt": "x"}}, {"pools": {"prompt": -1}}, {"http": {"listen": "nowhere"}},
    {"pools": {"prompt": 1, "token": 1}, "machines": {"token-0": {"thread": 1}}}, {"$schema": 1}, {"model": ""},
    {"pools": {"prompt": 1, "token": 1}, "machines": {"token-0": {"device": "tpu"}}},
]


def main():
    listed = {name for name, _ in keys_of(SCHEMA)}
    with open(os.path.join(SOURCE, "docs/configuration.md"), encoding="utf-8") as file:
        documented = set(re.findall(r"^\| `([a-z0-9_/NAME]+)` \|", file.read(), re.M))
    assert len(documented) > 100 and documented <= listed, documented - listed
    older = {name for name, schema in keys_of(SCHEMA) if schema.get("description", "").startswith("Older name of ")}
    assert older and listed - documented - older == {"$schema"}, listed - documented
    for name, schema in keys_of(SCHEMA):
        if "default" in schema:
            assert list(wrong(schema, schema["default"])) == [], (name, schema)
    for path in glob.glob(os.path.join(SOURCE, "deploy/*.json")) + [os.path.join(SOURCE, "deploy/kubernetes/cleave.json")]:
        with open(path, encoding="utf-8") as file:
            assert list(wrong(SCHEMA, json.load(file))) == [], path
    for config in GOOD:
        assert list(wrong(SCHEMA, config)) == [] == said_by_program(config), (config, said_by_program(config))
    for config in WRONG:
        assert list(wrong(SCHEMA, config)) and said_by_program(config), (config, list(wrong(SCHEMA, config)))
    print(f"{len(listed)} keys, {len(GOOD)} good and {len(WRONG)} wrong configs")


main()
