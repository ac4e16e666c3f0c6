"""Goal: answers of the default model at temperature 1 are valid documents of their schemas.

Method: random schemas (grammar_schema_test.py), one request each with response_format. Python's jsonschema judges every
answer that ended by itself; an answer that max_tokens cut must be the beginning of a document, which the automaton's own
test checks. A schema that cleave refuses must be a 400 with a reason.

usage: test_schema_answers.py [SCHEMAS]    (150; ./dev test --long: 1000)
"""

import importlib.util
import json
import os
import random
import sys
from concurrent.futures import ThreadPoolExecutor

from cluster import DEFAULT_MODEL, Cluster, Failure, need_model

HERE = os.path.dirname(os.path.abspath(__file__))
TOKENS, STREAMS = 400, 24


def load():
    """Loads the random schemas of the other test, which ends with "skipped" without Python's jsonschema."""
    spec = importlib.util.spec_from_file_location(
        "grammar_schema_test", os.path.join(os.path.dirname(HERE), "model", "grammar", "grammar_schema_test.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main():
    need_model()
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 150
    random_schemas = load()
    jsonschema = random_schemas.jsonschema
    seed = random_schemas.SEED
    print(f"seed {seed}", flush=True)
    draw = random.Random(seed)
    schemas = [random_schemas.Maker(draw).root() for _ in range(count)]
    with Cluster({"model": DEFAULT_MODEL, "pools": {"mixed": 1}, "kv": {"memory": "1GiB"}}) as cluster:
        def ask(number):
            body = {"messages": [{"role": "user", "content": f"Write document {number}."}], "max_tokens": TOKENS,
                    "temperature": 1, "seed": number, "response_format": {
                        "type": "json_schema", "json_schema": {"name": "s", "strict": True, "schema": schemas[number]}}}
            try:
                choice = cluster.post("/v1/chat/completions", body)["choices"][0]
            except Failure as failure:
                assert failure.status == 400 and "response_format" in failure.body, (schemas[number], failure.body)
                return "refused"
            if choice["finish_reason"] == "length":
                return "cut"
            document = json.loads(choice["message"]["content"])
            validator = jsonschema.Draft202012Validator(
                schemas[number], format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER)
            error = jsonschema.exceptions.best_match(validator.iter_errors(document))
            assert error is None, (number, schemas[number], choice["message"]["content"], error.message)
            return "valid"
        with ThreadPoolExecutor(STREAMS) as threads:
            results = list(threads.map(ask, range(count)))
        cluster.wait_all_free()
    totals = {kind: results.count(kind) for kind in ("valid", "cut", "refused")}
    print(f"{count} schemas: {totals}")
    assert totals["valid"] > count // 2


main()
