"""The API reference of an application as one HTML page, made from its OpenAPI document.

Promises a page without scripts, fonts and other hosts, so that the strictest content security policy
holds, and that every text of the application is escaped. It works without JavaScript and without a
credential, unlike the form in the console, which sends requests. `examples` makes the curl commands.
"""

import base64
import hashlib
import re
from collections.abc import Iterable, Iterator
from html import escape
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from penstock.base.http import JSON, MSGPACK
from penstock.gateway.openapi.document import openapi_document
from penstock.gateway.openapi.error_responses import meanings
from penstock.gateway.openapi.examples import curl_of, parameter_schema
from penstock.model.application import App

_STYLE: Final = Path(__file__).with_name("docs_page.css").read_text()
_STYLE_HASH: Final = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()

_SCROLLED: Final = '<div class="scroll" tabindex="0" role="group" aria-label="Table">'
"""The frame of a wide table; the keyboard reaches it to scroll."""

PAGE_HEADERS: Final = {
    "Content-Security-Policy": (
        f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; img-src data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}
"""The headers of the page."""

_CODE: Final = re.compile(r"`([^`]+)`")
_SENT: Final = "send."
_HIDDEN: Final = frozenset({"PenstockError"})

Json = dict[str, Any]


def docs_page(app: App) -> str:
    """Return the reference of an application's API as HTML."""
    return page_of(openapi_document(app))


def page_of(document: Json) -> str:
    """Return an OpenAPI document as HTML, operations by tag."""
    title = escape(document["info"]["title"])
    groups = _groups(document)
    return "\n".join(
        [
            '<!doctype html><html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f'<title>{title} API</title><link rel="icon" href="data:,">',
            f"<style>{_STYLE}</style></head><body>",
            '<a class="skip" href="#content">Skip to the reference</a><div class="page">',
            *_navigation(title, groups),
            '<main id="content">',
            *_introduction(document),
            *(line for tag, operations in groups for line in _group(document, tag, operations)),
            *_errors(),
            *_schemas(document),
            "</main></div></body></html>",
        ]
    )


class _OperationView:
    """One operation as the page shows it."""

    def __init__(self, path: str, verb: str, operation: Json) -> None:
        self.path = path
        self.verb = verb
        self.operation = operation
        self.name: str = operation["operationId"]
        self.anchor = quote(self.name, safe="")

    @property
    def label(self) -> str:
        """The entry in the list of contents, as HTML."""
        if self.name.startswith("call."):
            return escape(self.path.rpartition("/")[2])
        verb = f'<span class="verb {self.verb}">{self.verb.upper()}</span>'
        return verb + escape(self.path).replace("/", "/<wbr>")


def _groups(document: Json) -> list[tuple[Json, list[_OperationView]]]:
    """Return the operations of each tag; `/send/…` operations are left out."""
    everything = [
        _OperationView(path, verb, operation)
        for path, item in document["paths"].items()
        for verb, operation in item.items()
        if not operation["operationId"].startswith(_SENT)
    ]
    groups = []
    for tag in document["tags"]:
        own = [view for view in everything if view.operation["tags"] == [tag["name"]]]
        if own:
            groups.append((tag, sorted(own, key=lambda view: view.name[:5] != "route")))
    return groups


def _navigation(title: str, groups: list[tuple[Json, list[_OperationView]]]) -> Iterator[str]:
    yield f'<nav aria-label="Contents"><strong>{title}</strong><span class="muted">HTTP API</span>'
    for tag, operations in groups:
        yield f"<h2>{escape(tag['name'])}</h2><ul>"
        for operation in operations:
            yield f'<li><a href="#{operation.anchor}">{operation.label}</a></li>'
        yield "</ul>"
    yield '<h2>Reference</h2><ul><li><a href="#errors">Errors</a></li>'
    yield '<li><a href="#schemas">Schemas</a></li>'
    yield '<li><a href="/openapi.json">openapi.json</a></li>'
    yield '<li><a href="/console/">Console</a></li></ul></nav>'


def _introduction(document: Json) -> Iterator[str]:
    info = document["info"]
    yield f"<h1>{escape(info['title'])}</h1>"
    yield f'<p class="muted">HTTP API, version <code>{escape(info["version"])}</code></p>'
    yield _prose(info["description"])


def _group(document: Json, tag: Json, operations: list[_OperationView]) -> Iterator[str]:
    yield f"<h2>{escape(tag['name'])}</h2>"
    yield _prose(tag.get("description", ""))
    for operation in operations:
        yield from _operation(document, operation)


def _operation(document: Json, shown: _OperationView) -> Iterator[str]:
    operation = shown.operation
    yield f'<section class="operation" id="{escape(shown.name)}">'
    yield (
        f'<h3><span class="verb {shown.verb}">{shown.verb.upper()}</span>'
        f'<a class="path" href="#{shown.anchor}">{escape(shown.path)}</a></h3>'
    )
    yield _prose(operation["summary"])
    yield _prose(operation.get("description", ""))
    yield from _parameters(operation)
    yield from _body(operation)
    yield from _answers(operation)
    yield f"<h4>Example</h4><pre>{escape(curl_of(document, shown.path, shown.verb))}</pre>"
    link = f"/console/#/try?path={quote(shown.path, safe='')}"
    yield f'<p class="links"><a href="{link}">Try it in the console</a>'
    if shown.name.startswith("call."):
        sent = shown.path.replace("/call/", "/send/", 1)
        yield f"Without waiting: <code>POST {escape(sent)}</code>"
    yield "</p></section>"


def _parameters(operation: Json) -> Iterator[str]:
    rows = [
        (
            parameter["name"],
            _type(parameter_schema(parameter)),
            f"{parameter['in']}{', required' if parameter.get('required') else ''}",
            parameter.get("description", ""),
        )
        for parameter in operation.get("parameters", [])
    ]
    if rows:
        yield "<h4>Parameters</h4>"
        yield from _table(("Name", "Type", "In", "Meaning"), rows)


def _body(operation: Json) -> Iterator[str]:
    content = operation.get("requestBody", {}).get("content", {})
    if JSON not in content:
        return
    schema = content[JSON]["schema"]
    forms = schema.get("oneOf", [schema])
    named = forms[-1]
    if "$ref" in named:
        yield f"<h4>Body</h4><p>{_type(named)}</p>"
        return
    if named.get("properties"):
        yield "<h4>Arguments</h4>"
        yield from _properties(named)
    elif named.get("type") == "array":
        yield f"<h4>Arguments</h4><p>{_type(named)}</p>"


def _answers(operation: Json) -> Iterator[str]:
    yield "<h4>Answers</h4>"
    rows: list[tuple[str, str, str, str]] = []
    failures: list[str] = []
    for status, response in operation["responses"].items():
        if "$ref" in response:
            failures.append(f'<a href="#error-{status}">{status}</a>')
            continue
        rows += [
            (status, _type(described["schema"]) or "anything", media, response["description"])
            for media, described in response["content"].items()
            if media != MSGPACK
        ]
    yield from _table(("Status", "Value", "As", "Meaning"), rows)
    if failures:
        yield f'<p class="muted">Errors: {", ".join(failures)}</p>'


def _errors() -> Iterator[str]:
    yield '<h2 id="errors">Errors</h2>'
    yield _prose("All errors have the same form. `code` is stable; the message is for people.")
    yield "<pre>" + escape('{"error": {"code": "…", "kind": "…", "message": "…"}}') + "</pre>"
    yield f"{_SCROLLED}<table><thead><tr><th>Status</th><th>Code</th><th>Meaning</th>"
    yield "</tr></thead><tbody>"
    for status, codes in meanings().items():
        for index, (code, meaning) in enumerate(codes.items()):
            anchor = "" if index else f' id="error-{status}"'
            cells = f"<code>{escape(code)}</code></td><td>{_inline(meaning)}"
            yield f"<tr{anchor}><th>{status}</th><td>{cells}</td></tr>"
    yield "</tbody></table></div>"


def _schemas(document: Json) -> Iterator[str]:
    yield '<h2 id="schemas">Schemas</h2>'
    for name, schema in document["components"]["schemas"].items():
        if name in _HIDDEN:
            continue
        yield f'<section class="schema" id="schema-{escape(name)}"><h3 class="path">{escape(name)}</h3>'
        yield _prose(schema.get("description", ""))
        if schema.get("properties"):
            yield from _properties(schema)
        else:
            yield f"<p>{_type(schema)}</p>"
        yield "</section>"


def _properties(schema: Json) -> Iterator[str]:
    needed = schema.get("required", [])
    rows = []
    for name, field in schema["properties"].items():
        default = f"default `{_plain(field['default'])}`" if "default" in field else ""
        presence = "required" if name in needed else "optional"
        rows.append((name, _type(field), presence, default or field.get("description", "")))
    yield from _table(("Name", "Type", "", "Meaning"), rows)


def _table(heads: Iterable[str], rows: list[tuple[str, str, str, str]]) -> Iterator[str]:
    """Yield a table; the type in a row is HTML, everything else is text."""
    head = "".join(f"<th>{escape(heading)}</th>" for heading in heads)
    yield f"{_SCROLLED}<table><thead><tr>{head}</tr></thead><tbody>"
    for name, shown_type, place, meaning in rows:
        yield (
            f'<tr><th><span class="path">{escape(name)}</span></th><td class="type">{shown_type}</td>'
            f'<td class="muted">{escape(place)}</td><td>{_inline(meaning)}</td></tr>'
        )
    yield "</tbody></table></div>"


def _type(schema: Any) -> str:
    """Return a short form of a schema, as HTML."""
    if schema is False or not schema:
        return "anything"
    if "$ref" in schema:
        name = escape(schema["$ref"].rpartition("/")[2])
        return f'<a href="#schema-{name}">{name}</a>'
    if "enum" in schema or "const" in schema:
        values = schema.get("enum", [schema.get("const")])
        return " or ".join(f"<code>{escape(_plain(value))}</code>" for value in values)
    for word in ("anyOf", "oneOf"):
        if word in schema:
            return " or ".join(_type(value) for value in schema[word])
    return _shaped(schema)


def _shaped(schema: Json) -> str:
    if "title" in schema:
        return escape(schema["title"].lower() if schema["title"][:3] == "By " else schema["title"])
    if "prefixItems" in schema:
        return f"[{', '.join(_type(item) for item in schema['prefixItems'])}]"
    if schema.get("items"):
        return f"list of {_type(schema['items'])}"
    if schema.get("type") == "object":
        return _mapped(schema)
    types = schema.get("type", "anything")
    words = [types] if isinstance(types, str) else types
    form = schema.get("format") or schema.get("contentEncoding", "")
    return escape(" or ".join(words) + (f" ({form})" if form else ""))


def _mapped(schema: Json) -> str:
    fields = schema.get("properties", {})
    texts = [f"{escape(name)}: {_type(field)}" for name, field in fields.items()]
    if texts:
        return f"{{{', '.join(texts)}}}"
    values = schema.get("additionalProperties")
    return f"object of {_type(values)}" if values else "object"


def _plain(value: object) -> str:
    return "null" if value is None else str(value).lower() if value in (True, False) else str(value)


def _prose(text: str) -> str:
    """Return the paragraphs of a docstring; words in backquotes become code."""
    parts = [" ".join(part.split()) for part in text.split("\n\n")]
    return "".join(f"<p>{_inline(part)}</p>" for part in parts if part)


def _inline(text: str) -> str:
    return _CODE.sub(r"<code>\1</code>", escape(text))
