"""common: what the client scripts share. A script gets the URL of a server, the name of its model, and the model's file;
it uses one client library as its documentation shows, and prints a line for each thing that it did."""

import importlib.metadata
import sys

URL, MODEL, MODEL_FILE = sys.argv[1:4]

WEATHER = {
    "name": "get_weather", "description": "Returns the weather of a city.",
    "parameters": {"type": "object", "properties": {
        "city": {"type": "string", "maxLength": 20}, "unit": {"type": "string", "enum": ["C", "F"]}},
        "required": ["city", "unit"], "additionalProperties": False},
}


def check_weather(arguments):
    assert set(arguments) == {"city", "unit"} and arguments["unit"] in ("C", "F"), arguments


def expect(kind, call):
    """Calls call(), which must raise an exception of this kind."""
    try:
        call()
    except kind:
        return
    raise AssertionError(f"no {kind.__name__}")


def run(version, checks, *arguments):
    """Calls each check and prints its name."""
    for check in checks:
        check(*arguments)
        print(f"{check.__name__.replace('_', ' ')}: ok", flush=True)
    print(f"VERSION {version}", flush=True)


def version_of(package):
    return importlib.metadata.version(package)
