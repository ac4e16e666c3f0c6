"""json_schema: a small validator of the words that cleave's own JSON Schemas use (draft 7). Standard library only."""
import re

TYPES = {"object": dict, "array": list, "string": str, "boolean": bool, "integer": int}
WORDS = {"$schema", "title", "description", "default", "type", "properties", "additionalProperties", "anyOf", "enum", "minimum",
         "maximum", "multipleOf", "minLength", "maxLength", "pattern", "items", "minItems", "maxItems", "required"}


def wrong(schema, value, at=""):
    """Yields where the value breaks the schema."""
    if isinstance(schema, bool):
        if not schema:
            yield at
        return
    assert set(schema) <= WORDS, set(schema) - WORDS
    kind = schema.get("type")
    if kind and (not isinstance(value, TYPES[kind]) or (kind == "integer" and isinstance(value, bool))):
        yield at
        return
    if any(name not in value for name in schema.get("required", ())):
        yield at
    if "anyOf" in schema and all(list(wrong(each, value, at)) for each in schema["anyOf"]):
        yield at
    if "enum" in schema and value not in schema["enum"]:
        yield at
    if kind == "integer" and not schema["minimum"] <= value <= schema["maximum"]:
        yield at
    if kind == "integer" and value % schema.get("multipleOf", 1):
        yield at
    if kind == "string" and not schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", 1 << 30):
        yield at
    if kind == "string" and not re.search(schema.get("pattern", ""), value):
        yield at
    if kind == "array" and not schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", 1 << 30):
        yield at
    for each in value if kind == "array" else []:
        yield from wrong(schema.get("items", True), each, f"{at}/*")
    for name, each in value.items() if kind == "object" else []:
        below = schema.get("properties", {}).get(name, schema.get("additionalProperties", True))
        yield from wrong(below, each, f"{at}/{name}")
