#!/usr/bin/env python3
"""Goal: the JSON Schema of `cleave check --keys-schema` says what the reader of key files accepts. Method: right and wrong
key files are judged by the schema and by `cleave check` of a config that names them; each field of docs/operation.md is in
the schema, and no other. Arguments: the program, the folder of json_schema.py."""
import json
import os
import re
import subprocess
import sys
import tempfile

CLEAVE = sys.argv[1]
sys.path.insert(0, sys.argv[2])
from json_schema import wrong  # noqa: E402 (found in the folder of the argument)

SOURCE = os.environ["CLEAVE_SOURCE"]
SCHEMA = json.loads(subprocess.run([CLEAVE, "check", "--keys-schema"], capture_output=True, text=True, check=True).stdout)
A = {"name": "a", "key": "sk-0123456789abcdef"}
HASH = "0123456789abcdefABCDEF0123456789" * 2

GOOD = [
    {"keys": [A]}, {"$schema": "./keys.schema.json", "keys": [A]}, {"keys": [{"name": "a", "sha256": HASH}]},
    {"keys": [{**A, "key": ["sk-0123456789abcdef", "sk-fedcba9876543210"]}]}, {"keys": [{**A, "sha256": HASH}]},
    {"keys": [{**A, "weight": 1000, "requests_max": 0, "requests_per_minute": 1, "tokens_per_minute": 1 << 40,
               "priority_best": -1000, "metrics": True, "admin": False, "cache_group": "b"}]},
    {"keys": [{**A, "expires": "2031-01-31T18:00:00Z"}]}, {"keys": [{**A, "expires": "2031-01-31 18:00:00.5+02:00"}]},
    {"keys": [{**A, "name": "!#[]~" + "a" * 58}]},
]
WRONG = [
    [], {}, {"keys": []}, {"keys": {}}, {"keys": [A], "more": 1}, {"$schema": 1, "keys": [A]}, {"keys": [1]}, {"keys": [{}]},
    {"keys": [{"name": "a"}]}, {"keys": [{"key": A["key"]}]}, {"keys": [{**A, "name": ""}]}, {"keys": [{**A, "name": "a b"}]},
    {"keys": [{**A, "name": "a" * 64}]}, {"keys": [{**A, "name": "\\"}]}, {"keys": [{**A, "name": '"'}]},
    {"keys": [{**A, "key": "short"}]}, {"keys": [{**A, "key": "sk-0123456789 abcdef"}]}, {"keys": [{**A, "key": []}]},
    {"keys": [{**A, "key": ["sk-0123456789abcde" + c for c in "123"]}]}, {"keys": [{**A, "key": "a" * 513}]},
    {"keys": [{"name": "a", "sha256": HASH[:-1]}]}, {"keys": [{"name": "a", "sha256": HASH[:-1] + "g"}]},
    {"keys": [{**A, "weight": 0}]}, {"keys": [{**A, "weight": True}]}, {"keys": [{**A, "weight": "1"}]},
    {"keys": [{**A, "weight": 1001}]}, {"keys": [{**A, "requests_max": -1}]}, {"keys": [{**A, "admin": 1}]},
    {"keys": [{**A, "expires": "tomorrow"}]}, {"keys": [{**A, "expires": 1900000000}]}, {"keys": [{**A, "wieght": 1}]},
]


def said_by_program(keys):
    """Returns the errors of the reader."""
    with tempfile.TemporaryDirectory() as folder:
        for name, content in (("keys.json", keys), ("c.json", {"server": {"api_keys_file": "keys.json"}})):
            path = os.path.join(folder, name)
            with open(path, "w", encoding="utf-8", opener=lambda p, flags: os.open(p, flags, 0o600)) as file:
                json.dump(content, file)
        done = subprocess.run([CLEAVE, "check", "--json", path], capture_output=True, text=True, check=False)
    found = [each for each in json.loads(done.stdout)["results"] if each["key"] == "server/api_keys_file"]
    assert found, done
    return [each["text"] for each in found if each["result"] == "error"]


def main():
    fields = SCHEMA["properties"]["keys"]["items"]["properties"]
    with open(os.path.join(SOURCE, "docs/operation.md"), encoding="utf-8") as file:
        table = file.read().split("| field | what it is |", 1)[1].split("\n\n", 1)[0]
    documented = {name for row in table.splitlines() if row.startswith("| `") for name in
                  re.findall(r"`([a-z0-9_]+)`", row.split("|")[1])}
    assert documented == set(fields), documented ^ set(fields)
    for name, schema in fields.items():
        assert schema["description"] and ("default" not in schema or not list(wrong(schema, schema["default"]))), name
    for keys in GOOD:
        assert list(wrong(SCHEMA, keys)) == [] == said_by_program(keys), (keys, list(wrong(SCHEMA, keys)), said_by_program(keys))
    for keys in WRONG:
        assert list(wrong(SCHEMA, keys)) and said_by_program(keys), (keys, list(wrong(SCHEMA, keys)), said_by_program(keys))
    print(f"{len(fields)} fields, {len(GOOD)} good and {len(WRONG)} wrong key files")


main()
