"""Examples: a value that fits a schema, and a curl command that calls an operation."""

import json
import shlex
from typing import Any, Final
from urllib.parse import quote

from penstock.base.http import JSON

Json = dict[str, Any]

_DEPTH_MAX: Final = 4
_BASE: Final = "http://127.0.0.1:8000"
_BY_FORMAT: Final = {
    "date-time": "2026-01-31T12:00:00Z",
    "date": "2026-01-31",
    "uuid": "3f2c1d9e-6c1b-4c39-9d3a-1f6b2a7c8d90",
    "decimal": "9.95",
}
_BY_TYPE: Final[Json] = {
    "integer": 1,
    "number": 1.5,
    "boolean": True,
    "string": "text",
    "null": None,
    "array": [],
    "object": {},
}


def example_of(document: Json, schema: Any, depth: int = 0) -> Any:
    """Return a small value that fits a schema."""
    if not schema or depth > _DEPTH_MAX:
        return None
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return example_of(document, document["components"]["schemas"][name], depth)
    fixed = schema.get("examples") or schema.get("enum")
    if fixed or "const" in schema:
        return fixed[0] if fixed else schema["const"]
    choices = schema.get("anyOf") or schema.get("oneOf", [])[-1:]
    if choices:  # a constant among others is a special case, such as `-` in place of a key
        usual = [choice for choice in choices if "const" not in choice]
        return example_of(document, (usual or choices)[0], depth)
    return _composed(document, schema, depth)


def _composed(document: Json, schema: Json, depth: int) -> Any:
    if "properties" in schema:
        names = schema.get("required") or list(schema["properties"])
        return {
            name: example_of(document, schema["properties"][name], depth + 1)
            for name in names
            if name in schema["properties"]
        }
    if "prefixItems" in schema:
        return [example_of(document, item, depth + 1) for item in schema["prefixItems"]]
    if schema.get("items"):
        return [example_of(document, schema["items"], depth + 1)]
    return _scalar(schema)


def _scalar(schema: Json) -> Any:
    if schema.get("format") in _BY_FORMAT:
        return _BY_FORMAT[schema["format"]]
    if "contentEncoding" in schema:
        return "aGVsbG8="
    pattern: str = schema.get("pattern", "")
    if "P" in pattern:
        return "P1D"
    types = schema.get("type", "null")
    type_name = types if isinstance(types, str) else types[0]
    if type_name == "string":
        named = str(schema.get("title", "")).rpartition(" ")[2].lower()
        return "1" if pattern else f"{named}-1" if named else "text"
    return _BY_TYPE[type_name]


def curl_of(document: Json, path: str, verb: str) -> str:
    """Return a curl command that calls an operation."""
    operation = document["paths"][path][verb]
    url = path
    for parameter in operation.get("parameters", []):
        if parameter["in"] == "path":
            text = quote(_text_of(document, parameter), safe="")
            url = url.replace(f"{{{parameter['name']}}}", text)
    base = document["servers"][0]["url"].rstrip("/") or _BASE
    words = ["curl", *(["-X", verb.upper()] if verb != "get" else []), f"{base}{url}"]
    content = operation.get("requestBody", {}).get("content", {}).get(JSON)
    if content is not None:
        value = example_of(document, content["schema"])
        if value not in ({}, [], None):
            words += ["--json", json.dumps(value, ensure_ascii=False)]
    return " ".join(word if word == "curl" else shlex.quote(word) for word in words)


def parameter_schema(parameter: Json) -> Json:
    """Return the schema of a parameter, which may be a JSON text."""
    schema: Json = (parameter if "schema" in parameter else parameter["content"][JSON])["schema"]
    return schema


def _text_of(document: Json, parameter: Json) -> str:
    value = example_of(document, parameter_schema(parameter))
    if value == "text":
        return parameter["name"] if parameter["name"] != "key" else "k1"
    return value if isinstance(value, str) else json.dumps(value)
