#!/usr/bin/env python3
"""Goal: what a JSON schema's automaton accepts is valid, and what is valid is accepted.

Method: Python's jsonschema judges. Random schemas (seeded), each with random walks through the automaton, must give valid
documents. The JSON-Schema-Test-Suite that the source package of jsonschema carries: for each schema that is not refused,
walks must give valid documents, valid instances must be accepted and invalid ones rejected. An instance is tried with its
names in every order, because the automaton has one order; differences that docs/api.md states are listed in POLICY.
Skipped with a message if Python's jsonschema is not installed (./dev test fetches it):
    grammar_schema_test.py build/tests/model/grammar/grammar_probe [--long]
"""
import importlib.util
import itertools
import json
import os
import pathlib
import random
import re
import subprocess
import sys

PYTHON = os.environ.get("CLEAVE_TEST_PYTHON", "")
sys.path.insert(0, PYTHON)
if importlib.util.find_spec("jsonschema") is None:
    print("SKIP: Python's jsonschema is not installed (pip install jsonschema)")
    sys.exit(77)

import jsonschema  # noqa: E402

SEED = int(os.environ.get("CLEAVE_SEED", random.randrange(1 << 32)))
LONG = "--long" in sys.argv
# Valid instances that the automaton does not accept, by the words of their test.
POLICY = [
    "bignum",  # numbers of schemas are 64-bit integers and doubles
    "float overflow",
    "no validation: invalid",  # a metaschema of its own
    "minProperties",
]
PERMUTATIONS = 720


class Probe:
    def __init__(self, path):
        self.process = subprocess.Popen([path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, schema, texts=(), walks=0, seed=0):
        question = {"constraint": "json_schema:" + json.dumps(schema), "texts": list(texts), "walks": walks, "seed": seed}
        self.process.stdin.write(json.dumps(question) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line.startswith("{"):
            raise SystemExit(f"the probe failed: {line}{self.process.stdout.read()}\nschema: {json.dumps(schema)}")
        return json.loads(line)


def spellings(value):
    """All texts of a value with the names of its objects in every order."""
    if isinstance(value, dict):
        members = [[(name, text) for text in spellings(member)] for name, member in value.items()]
        for order in itertools.islice(itertools.permutations(members), PERMUTATIONS):
            for chosen in itertools.islice(itertools.product(*order), PERMUTATIONS):
                yield "{" + ",".join(f"{json.dumps(n, ensure_ascii=False)}:{t}" for n, t in chosen) + "}"
    elif isinstance(value, list):
        for chosen in itertools.islice(itertools.product(*[list(spellings(item)) for item in value]), PERMUTATIONS):
            yield "[" + ",".join(chosen) + "]"
    elif isinstance(value, float) and value == int(value) and abs(value) < 1e18:
        yield str(int(value))
    else:
        yield json.dumps(value, ensure_ascii=False)


# ---- random schemas ----

class Maker:
    def __init__(self, rng):
        self.rng = rng
        self.names = ["a", "b", "name", "foo", "type", "é", "x y", 'q"']

    def scalar(self):
        rng = self.rng
        return rng.choice([None, True, False, rng.randrange(-1000, 1000), rng.choice(self.names), rng.random() * 100,
                           rng.choice(["", "é€", "a\nb", "\\"])])

    def number(self):
        rng = self.rng
        schema = {"type": rng.choice(["integer", "number"])}
        low = rng.choice([rng.randrange(-200, 200), rng.randrange(-10**6, 10**6), round(rng.uniform(-50, 50), 2)])
        if rng.random() < .6:
            schema[rng.choice(["minimum", "exclusiveMinimum"])] = low
        if rng.random() < .6:
            schema[rng.choice(["maximum", "exclusiveMaximum"])] = low + rng.choice([3, 20, 1000, 2.5])
        if rng.random() < .2:
            schema["multipleOf"] = rng.choice([2, 3, 10])
        return schema

    def string(self):
        rng, schema = self.rng, {"type": "string"}
        kind = rng.randrange(5)
        if kind == 0:
            schema["format"] = rng.choice(["date", "date-time", "time", "uuid", "ipv4", "ipv6", "email", "uri", "hostname",
                                           "duration"])
        elif kind == 1:
            schema["pattern"] = rng.choice(["^[a-z]{2,5}$", "^(foo|bar)+$", "b", "^a.c", "x$", "^[^a-m]*$", "^\\d{3}-\\d{4}$",
                                            "^\\S+ \\S+$", "é|€", "^$", "[0-9]+[a-f]{0,3}"])
        if rng.random() < .4:
            schema["minLength"] = rng.randrange(4)
        if rng.random() < .4:
            schema["maxLength"] = rng.randrange(4, 40)
        return schema

    def object(self, depth):
        rng, schema = self.rng, {"type": "object"}
        names = rng.sample(self.names, rng.randrange(5))
        schema["properties"] = {name: self.schema(depth - 1) for name in names}
        schema["required"] = [name for name in names if rng.random() < .5]
        if rng.random() < .1:
            schema["required"].append("later")
        kind = rng.randrange(5)
        if kind < 2:
            schema["additionalProperties"] = False
        elif kind == 2:
            schema["additionalProperties"] = self.schema(depth - 1)
        if rng.random() < .15:
            schema["patternProperties"] = {rng.choice(["^x_", "[0-9]$", "^a"]): self.schema(depth - 1)}
        if rng.random() < .2:
            schema["maxProperties"] = rng.randrange(len(schema["required"]), 6)
        if rng.random() < .2:
            schema["minProperties"] = rng.randrange(3)
        return schema

    def array(self, depth):
        rng, schema = self.rng, {"type": "array"}
        if rng.random() < .8:
            schema["items"] = self.schema(depth - 1)
        if rng.random() < .3:
            schema["prefixItems"] = [self.schema(depth - 1) for _ in range(rng.randrange(1, 4))]
        if rng.random() < .4:
            schema["minItems"] = rng.randrange(4)
        if rng.random() < .5:
            schema["maxItems"] = rng.randrange(4, 8)
        return schema

    def schema(self, depth):
        rng = self.rng
        kind = rng.randrange(13 if depth > 0 else 6)
        if kind == 0:
            return {"enum": [self.scalar() for _ in range(rng.randrange(1, 6))]}
        if kind == 1:
            return {"const": self.scalar()}
        if kind == 2:
            return {"type": rng.choice([["string", "null"], ["integer", "boolean"], "boolean", "null"])}
        if kind == 3:
            return self.number()
        if kind in (4, 5):
            return self.string()
        if kind in (6, 7):
            return self.object(depth)
        if kind == 8:
            return self.array(depth)
        if kind == 9:
            return {"anyOf": [self.schema(depth - 1) for _ in range(rng.randrange(1, 4))]}
        if kind == 10:
            return {"oneOf": [{"type": "object", "properties": {"kind": {"const": n}, "v": self.schema(depth - 1)},
                               "required": ["kind"]} for n in range(rng.randrange(1, 4))]}
        if kind == 11:
            return {"allOf": [self.object(depth), {"type": "object", "properties": {"a": self.schema(depth - 1)}}]}
        return {"$ref": "#/$defs/node"} if rng.random() < .5 else {}

    def root(self):
        schema = self.schema(3)
        schema["$defs"] = {"node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}, "v": self.schema(0)},
                                    "required": ["v"], "additionalProperties": False}}
        return schema


# Characters that only one of Python's and ECMA-262's regular expressions takes for white space (\s), as JSON text.
DIFFERENT_SPACE = re.compile("\\\\u001[c-f]|\x85|\ufeff")


def random_schemas(probe, count):
    rng = random.Random(SEED)
    refused, walks, unfinished, reasons = 0, 0, 0, {}
    for number in range(count):
        schema = Maker(rng).root()
        reply = probe.ask(schema, walks=4, seed=rng.randrange(1 << 60))
        if reply["error"] is not None:
            refused += 1
            reason = reply["error"].split(": ", 1)[-1]
            reasons[reason] = reasons.get(reason, 0) + 1
            continue
        validator = jsonschema.Draft202012Validator(schema, format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER)
        unfinished += reply["unfinished"]
        for text in reply["walks"]:
            walks += 1
            document = json.loads(text)
            if DIFFERENT_SPACE.search(json.dumps(document, ensure_ascii=False)) and "\\\\s" in json.dumps(schema).lower():
                continue
            error = jsonschema.exceptions.best_match(validator.iter_errors(document))
            assert error is None, f"schema {number}: {json.dumps(schema)}\ndocument {text}\n{error.message}"
    print(f"{count} random schemas: {refused} refused, {walks} walks valid, {unfinished} walks without end")
    for reason, times in sorted(reasons.items()):
        print(f"  refused {times}: {reason}")
    assert walks > count and unfinished * 20 < walks


# ---- the test suite ----

def suite_folder():
    found = sorted(pathlib.Path(PYTHON or ".").glob("jsonschema-*/json/tests"))
    return found[-1] if found else None


def check_group(probe, validator_class, name, group, totals):
    schema = group["schema"]
    texts = [list(itertools.islice(spellings(test["data"]), 2000)) for test in group["tests"]]
    reply = probe.ask(schema, [text for list_ in texts for text in list_], walks=3, seed=SEED)
    title = f"{name}: {group['description']}"
    if reply["error"] is not None:
        totals["refused"] += 1
        if "no text satisfies" in reply["error"]:
            assert not any(test["valid"] for test in group["tests"]), f"{title}: {reply['error']}"
        return reply["error"]
    totals["accepted"] += 1
    checker = validator_class.FORMAT_CHECKER if "format" in name else None
    validator = validator_class(schema, format_checker=checker)
    for text in reply["walks"]:
        error = jsonschema.exceptions.best_match(validator.iter_errors(json.loads(text)))
        assert error is None, f"{title}: {json.dumps(schema)}\ndocument {text}\n{error.message}"
        totals["walks"] += 1
    at = 0
    for test, list_ in zip(group["tests"], texts):
        good = any(reply["accepted"][at:at + len(list_)])
        at += len(list_)
        words = f"{title}: {test['description']}"
        policy = any(word in words for word in POLICY) or name == "format.json" or "format" in name
        assert test["valid"] or not good, f"{words}: accepted, but not valid"
        if test["valid"] and not good:
            assert policy, f"{words}: valid, but not accepted: {json.dumps(schema)} {list_[:2]}"
            totals["policy"] += 1
        else:
            totals["instances"] += 1
    return None


def suite(probe):
    folder = suite_folder()
    if folder is None:
        print("SKIP: the JSON-Schema-Test-Suite is not there (./dev test fetches it)")
        return
    for draft, validator_class in (("draft2020-12", jsonschema.Draft202012Validator), ("draft7", jsonschema.Draft7Validator)):
        totals = dict.fromkeys(["accepted", "refused", "walks", "instances", "policy"], 0)
        paths = sorted((folder / draft).glob("*.json")) + sorted((folder / draft / "optional" / "format").glob("*.json"))
        for path in paths:
            name = path.name if path.parent.name == draft else f"format/{path.name}"
            for group in json.loads(path.read_text()):
                if draft == "draft7" and isinstance(group["schema"], dict):
                    group["schema"].setdefault("$schema", "http://json-schema.org/draft-07/schema#")
                why = check_group(probe, validator_class, name, group, totals)
                if why is not None and "-v" in sys.argv:
                    print(f"  refused {name}: {group['description']}: {why}")
        print(f"suite {draft}: {totals}")
        assert totals["accepted"] > 100 and totals["instances"] > 500


def main():
    probe = Probe(sys.argv[1])
    print(f"seed {SEED}")
    random_schemas(probe, 1000 if LONG else 150)
    suite(probe)


if __name__ == "__main__":
    main()
