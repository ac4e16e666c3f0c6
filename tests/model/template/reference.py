"""The reference of the template tests: jinja2 with the settings, functions and filters that Hugging Face's transformers
gives to chat templates."""
import datetime
import functools
import json

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension
from jinja2.sandbox import ImmutableSandboxedEnvironment

NOW = 1721995200  # 2024-07-26 12:00 UTC


class Generation(Extension):
    """{% generation %}: the part that the assistant wrote; it renders as its body does."""
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body).set_lineno(line)


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def strftime_now(form):
    return datetime.datetime.fromtimestamp(NOW, datetime.timezone.utc).replace(tzinfo=None).strftime(form)


def environment():
    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True,
                                        extensions=[Generation, "jinja2.ext.loopcontrols"])
    env.filters["tojson"] = tojson
    env.globals.update(raise_exception=raise_exception, strftime_now=strftime_now)
    return env


@functools.lru_cache(maxsize=4)
def compiled(template):
    return environment().from_string(template)


def render(template, variables):
    """Returns the text and None, or None and the error's text."""
    try:
        return compiled(template).render(**variables), None
    except Exception as error:  # whatever the template does wrong
        return None, f"{type(error).__name__}: {error}"
