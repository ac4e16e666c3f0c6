#!/usr/bin/env python3
"""Goal: the chat templates of public models render as Python's jinja2 renders them, byte for byte.

Method: each template of the folder CLEAVE_TEMPLATES (scripts/fetch-templates.sh makes one) renders conversations with
system messages, several turns, tools, calls and results of tools, reasoning, documents, lists of parts, and with and
without the beginning of an answer; both must give the same text, or both an error. Skipped with a message without that
folder or without jinja2:
    pip install jinja2
    CLEAVE_TEMPLATES=$(scripts/fetch-templates.sh) template_hub_test.py build/tests/model/template/render_lines
"""
import importlib.util
import json
import os
import pathlib
import subprocess
import sys

sys.path.insert(0, os.environ.get("CLEAVE_TEST_PYTHON", ""))
FOLDER = os.environ.get("CLEAVE_TEMPLATES", "")
if importlib.util.find_spec("jinja2") is None or not FOLDER:
    print("SKIP: Python's jinja2 is not installed (pip install jinja2), or CLEAVE_TEMPLATES names no folder")
    sys.exit(77)

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import reference  # noqa: E402

SETTINGS = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}

TOOLS = [
    {"type": "function", "function": {
        "name": "get_weather", "description": "Get the weather of a city.\nIn °C — or °F.",
        "parameters": {"type": "object", "required": ["city"], "properties": {
            "city": {"type": "string", "description": "The city's \"name\""},
            "unit": {"type": "string", "enum": ["celsius", "fahrenheit"], "default": "celsius"},
            "days": {"type": ["integer", "null"], "description": "How many"}}}}},
    {"type": "function", "function": {
        "name": "no_arguments", "description": "", "parameters": {"type": "object", "properties": {}}}},
    {"type": "function", "function": {
        "name": "nested", "description": "Nested <types>", "parameters": {"type": "object", "properties": {
            "list": {"type": "array", "items": {"type": "number"}, "minItems": 1},
            "object": {"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"]},
            "either": {"anyOf": [{"type": "string"}, {"type": "integer"}]}}},
        "strict": True}},
]


def user(text):
    return {"role": "user", "content": text}


def assistant(text, **more):
    return {"role": "assistant", "content": text, **more}


def call(name, arguments, number=1):
    return {"id": f"call{number:05}", "type": "function", "function": {"name": name, "arguments": arguments}}


def result(text, number=1, name="get_weather"):
    return {"role": "tool", "tool_call_id": f"call{number:05}", "name": name, "content": text}


SYSTEM = {"role": "system", "content": "Be brief. "}
WEATHER = call("get_weather", {"city": "Zürich", "days": 2, "at": [1.5, None, True], "o": {"b": 1, "a": ""}})
LINES = "  two\nlines \t'quoted' \"twice\" \\ <b>&amp;</b> 日本語 😀\u2028\x7f\n"
CALLED = [user("Weather?"), assistant("", tool_calls=[WEATHER]), result('{"temperature": 21}')]
CONVERSATIONS = {
    "user": {"messages": [user("Hello")]},
    "system": {"messages": [SYSTEM, user("Hello")]},
    "turns": {"messages": [user("A"), assistant("B"), user(LINES), assistant(LINES), user("E")]},
    "system and turns": {"messages": [SYSTEM, user("A"), assistant(" B "), user("C")]},
    "ends with answer": {"messages": [user("A"), assistant("B")]},
    "developer": {"messages": [{"role": "developer", "content": "Be kind"}, user("A")]},
    "two users": {"messages": [user("A"), user("B")]},
    "system later": {"messages": [user("A"), assistant("B"), SYSTEM, user("C")]},
    "empty texts": {"messages": [{"role": "system", "content": ""}, user(""), assistant(""), user("x")]},
    "unknown role": {"messages": [user("A"), {"role": "visitor", "content": "B"}]},
    "no messages": {"messages": []},
    "tools": {"messages": [SYSTEM, user("Weather?")], "tools": TOOLS},
    "tools without system": {"messages": [user("Weather?")], "tools": TOOLS},
    "empty tools": {"messages": [user("Weather?")], "tools": []},
    "call": {"messages": CALLED[:2], "tools": TOOLS},
    "call and result": {"messages": [SYSTEM] + CALLED, "tools": TOOLS},
    "call, result, answer": {"messages": CALLED + [assistant("21 degrees."), user("Thanks")], "tools": TOOLS},
    "call without tools": {"messages": CALLED},
    "call with text": {"messages": [user("Weather?"), assistant("I look.", tool_calls=[WEATHER]), result("21")],
                       "tools": TOOLS},
    "call without content": {"messages": [user("Weather?"), assistant(None, tool_calls=[WEATHER]), result("21")],
                             "tools": TOOLS},
    "arguments as text": {"messages": [user("Weather?"), assistant(None, tool_calls=[
        call("get_weather", '{"city": "Bern"}')]), result("21")], "tools": TOOLS},
    "two calls": {"messages": [user("Weather?"), assistant("", tool_calls=[
        call("get_weather", {"city": "A"}), call("no_arguments", {}, 2)]), result("1"), result("2", 2, "no_arguments")],
        "tools": TOOLS},
    "result as parts": {"messages": CALLED[:2] + [dict(CALLED[2], content=[{"type": "text", "text": "21"}])],
                        "tools": TOOLS},
    "reasoning": {"messages": [user("2+2?"), assistant("4", reasoning_content="Two and two."), user("And 3+3?")]},
    "reasoning and call": {"messages": [user("Weather?"), assistant("", reasoning_content="Look.\n", tool_calls=[
        WEATHER]), result("21"), assistant("21", reasoning_content="It is 21.")], "tools": TOOLS},
    "thinking in text": {"messages": [user("2+2?"), assistant("<think>\nTwo.\n</think>\n\n4"), user("More")]},
    "thinking on": {"messages": [SYSTEM, user("A")], "enable_thinking": True, "thinking": True},
    "thinking off": {"messages": [user("A")], "enable_thinking": False, "thinking": False},
    "effort": {"messages": [user("A")], "reasoning_effort": "high", "thinking_budget": 512},
    "date": {"messages": [SYSTEM, user("A")], "date_string": "1 Jan 2030"},
    "documents": {"messages": [user("What?")], "documents": [{"title": "T1", "text": "First"}, {
        "title": "T2", "text": "Second\n", "doc_id": 7}]},
    "parts": {"messages": [user([{"type": "text", "text": "A "}, {"type": "text", "text": "B"}])]},
    "system as parts": {"messages": [{"role": "system", "content": [{"type": "text", "text": "S"}]}, user("A"), assistant(
        [{"type": "text", "text": "B"}]), user("C")]},
}


def lines():
    for path in sorted(pathlib.Path(FOLDER).glob("*.jinja")):
        template = path.read_text()
        for name, variables in CONVERSATIONS.items():
            for prompt in (True, False):
                where = f"{path.stem}: {name}{', with the answer begun' if prompt else ''}"
                yield where, template, {"tools": None, "documents": None, **variables, "add_generation_prompt": prompt}


def same_error(error, got):
    """The text of raise_exception must be in the error; other errors may have other words."""
    raised = error.removeprefix("TemplateError: ")
    shown = "".join(c if " " <= c <= "~" else " " if c == "\n" else "?" for c in raised)
    return got is not None and (raised == error or shown[:200] in got)


def main():
    cases = list(lines())
    given = "".join(json.dumps({"template": template, "inputs": variables, "settings": SETTINGS,
                                "now": reference.NOW}) + "\n" for _, template, variables in cases)
    done = subprocess.run([sys.argv[1]], input=given, capture_output=True, text=True, check=True,
                          env={**os.environ, "TZ": "UTC"})
    print(f"rendered {len(cases)} times", flush=True)
    results = [json.loads(line) for line in done.stdout.splitlines()]
    if len(results) != len(cases) or not cases:
        sys.exit(f"{len(cases)} cases, {len(results)} results")
    texts = errors = 0
    for (where, template, variables), got in zip(cases, results):
        text, error = reference.render(template, {**SETTINGS, **variables})
        if text is not None and got.get("text") == text:
            texts += 1
        elif text is None and same_error(error, got.get("error")):
            errors += 1
        else:
            print(f"DIFFERS {where}\n  want {text!r}{error or ''}\n  got  {got.get('text')!r}{got.get('error', '')}")
    files = len(list(pathlib.Path(FOLDER).glob("*.jinja")))
    print(f"{files} templates x {len(CONVERSATIONS)} conversations x 2: {texts} equal texts, "
          f"{errors} errors in both, {len(cases) - texts - errors} differ")
    sys.exit(texts + errors < len(cases))


if __name__ == "__main__":
    main()
