"""A TypeScript client of an application, generated from its OpenAPI document.

Promises one file without dependencies that compiles with `tsc --strict`, whose types are those of the document's schemas. The
same document gives the same file. The part that is the same for all applications is `client.ts` beside this module.
"""

import json
import re
from collections.abc import Iterator, Mapping
from importlib import resources
from typing import Any, Final, NamedTuple

from penstock.base.http import JSON, STATUS
from penstock.errors import BY_CODE, Aborted
from penstock.gateway.openapi.json_schema import OWN_ERROR, READS
from penstock.model.declaration import CREATIONS

Json = Mapping[str, Any]

_RUNTIME: Final = resources.files("penstock.gateway.openapi").joinpath("client.ts")
_DECLARED: Final = re.compile(
    r"^(?:export )?(?:const|function|async function|class|interface|type) (\w+)", re.MULTILINE
)
_GLOBALS: Final = frozenset(
    [
        "Array",
        "Promise",
        "Error",
        "RangeError",
        "Record",
        "Response",
        "RequestInit",
        "AbortController",
        "AbortSignal",
        "AsyncGenerator",
        "Generator",
        "ReadableStreamDefaultReader",
        "TextDecoder",
        "Uint8Array",
        "JSON",
        "Math",
        "Number",
        "Object",
        "String",
        "BigInt",
        "RegExp",
        "undefined",
        "Infinity",
        "NaN",
        "fetch",
        "crypto",
        "performance",
        "setTimeout",
        "clearTimeout",
    ]
)
"""Names of JavaScript that the file uses, and that a type of the application would hide."""

_WORDS: Final = frozenset(
    [
        "any",
        "as",
        "async",
        "await",
        "bigint",
        "boolean",
        "break",
        "case",
        "catch",
        "class",
        "const",
        "continue",
        "debugger",
        "declare",
        "default",
        "delete",
        "do",
        "else",
        "enum",
        "export",
        "extends",
        "false",
        "finally",
        "for",
        "from",
        "function",
        "get",
        "if",
        "implements",
        "import",
        "in",
        "infer",
        "instanceof",
        "interface",
        "is",
        "keyof",
        "let",
        "module",
        "namespace",
        "never",
        "new",
        "null",
        "number",
        "object",
        "of",
        "package",
        "private",
        "protected",
        "public",
        "readonly",
        "require",
        "return",
        "set",
        "static",
        "string",
        "super",
        "switch",
        "symbol",
        "this",
        "throw",
        "true",
        "try",
        "type",
        "typeof",
        "undefined",
        "unique",
        "unknown",
        "var",
        "void",
        "while",
        "with",
        "yield",
    ]
)
_MEMBERS: Final = frozenset(
    {"call", "constructor", "epoch", "pages", "pending", "send", "sql", "streams", "tables"}
)
"""Members of the generated client; an entity with such a name has `_` behind it."""

_STANDING_MEMBERS: Final = """
  /** The newest epoch that an answer has named; -1 before the first. */
  get epoch(): number {
    return this.#gateway.epoch;
  }

  /** Ask for the result of a request that was sent before, perhaps by another program. */
  pending<T = unknown>(requestId: string): Pending<T> {
    return new Pending<T>(this.#gateway, requestId);
  }

  /** Run a SQL query over all entities at one epoch. */
  async sql(query: string, parameters: unknown[] = [], options: SqlOptions = {}): Promise<Rows> {
    return await this.#gateway.sql(query, parameters, options);
  }
}
"""

_SIMPLE: Final = {
    "integer": "Integer",
    "number": "number",
    "boolean": "boolean",
    "null": "null",
    "string": "string",
}
_IDENTIFIER: Final = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*")
_OF_FILE: Final = frozenset(
    {
        "BIGINT",
        "Client",
        "ERRORS",
        "ErrorCode",
        "Functions",
        "Integer",
        "STATUSES",
        "makeFunctions",
    }
)
"""Names that this module writes."""


def typescript_client(document: Json, *, bigint: bool = False) -> str:
    """Return the source of a client.

    Args:
        document: The OpenAPI document of an application.
        bigint: Whether whole numbers are `bigint`, which holds all of them; otherwise they are `number`, and an answer with a
            number that `number` cannot hold is an error.
    """
    return "\n".join(_Writer(document, bigint=bigint).lines()) + "\n"


class _Operation(NamedTuple):
    """An operation of an entity or a function.

    Attributes:
        name: The name of the method or function.
        path: Its path behind `/call`, as text of a template.
        described: The operation of the document.
    """

    name: str
    path: str
    described: Json


class _Writer:
    """Writes one client."""

    def __init__(self, document: Json, *, bigint: bool) -> None:
        self._document = document
        self._schemas: Json = document["components"]["schemas"]
        self._bigint = bigint
        self._runtime = _RUNTIME.read_text(encoding="utf-8").rstrip()
        self._names: dict[str, str] = {}
        self._taken = {*_DECLARED.findall(self._runtime), *_OF_FILE, *_GLOBALS, *_WORDS}
        self._entities: dict[str, list[_Operation]] = {}
        self._functions: list[_Operation] = []
        self._followed: dict[str, str] = {}
        self._appended: dict[str, str] = {}
        self._tables: dict[str, str] = {}
        self._shown: dict[str, str] = {}
        self._subscribed: set[str] = set()
        self._classes: dict[str, str] = {}
        self._makers: dict[str, str] = {}

    def lines(self) -> Iterator[str]:
        """Yield the lines of the file."""
        title = self._document["info"]["title"]
        yield f"// A client of the application {title}, written by `penstock client`. Do not change it: write it again."
        yield "//"
        yield '//     const client = new Client("http://127.0.0.1:8000", { key: "..." });'
        yield ""
        yield "/* eslint-disable */"
        yield ""
        yield "/** A whole number. */"
        yield f"export type Integer = {'bigint' if self._bigint else 'number'};"
        yield f"const BIGINT: boolean = {str(self._bigint).lower()};"
        yield ""
        own_errors = [each for each in self._schemas.items() if OWN_ERROR in each[1]]
        # Before the others ask for names.
        own = {component: self._name(component) for component, _ in own_errors}
        self._sort()
        client = [*self._entity_types(), *self._function_types(), *self._client()]
        yield from self._types(frozenset(own))
        yield from client
        yield self._runtime
        yield ""
        yield from _error_classes([(own[component], schema) for component, schema in own_errors])

    def _sort(self) -> None:
        """Read the operations of the document."""
        for path, operations in sorted(self._document["paths"].items()):
            for operation in operations.values():
                verb, _, label = operation["operationId"].partition(".")
                if verb == "call":
                    self._sort_call(path, label, operation)
                else:
                    self._sort_other(verb, label, operation)

    def _sort_call(self, path: str, label: str, operation: Json) -> None:
        entity, _, method = label.rpartition(".")
        if "/{" in path:  # it has the key of an entity
            called = _Operation(method, f"${{path}}/{method}", operation)
            self._entities.setdefault(entity, []).append(called)
        else:
            self._functions.append(_Operation(label, path.removeprefix("/call"), operation))

    def _sort_other(self, verb: str, label: str, operation: Json) -> None:
        match verb:
            case "show":
                self._shown[label] = self._of(_answer(operation))
            case "subscribe":
                self._subscribed.add(label)
            case "append":
                self._appended[label] = self._of(_body(operation)["items"])
            case "follow":
                atom = _answer(operation)["properties"]["atoms"]["items"]
                self._followed[label] = self._of(atom["properties"]["events"]["items"])
            case "table":
                changes = _answer(operation)["properties"]["changes"]
                self._tables[label] = self._of(changes["items"])
            case _:  # the client has no member for it
                pass

    def _types(self, errors: frozenset[str]) -> Iterator[str]:
        """Yield the types that the client names, and those inside of them."""
        written: dict[str, list[str]] = {}
        while waiting := self._names.keys() - written.keys() - errors:
            for component in sorted(waiting):
                written[component] = list(self._type(component))
        for component in sorted(written):
            yield from written[component]
            yield ""

    def _type(self, component: str) -> Iterator[str]:
        schema, name = self._schemas[component], self._names[component]
        yield from _comment(schema.get("description", ""))
        if schema.get("type") == "object" and schema.get("properties"):
            yield f"export interface {name} {{"
            yield from self._members(schema)
            yield "}"
        else:
            yield f"export type {name} = {self._of(schema)};"

    def _members(self, schema: Json) -> Iterator[str]:
        required = schema.get("required", ())
        for name, described in schema["properties"].items():
            yield from _comment(described.get("description", ""), "  ")
            yield f"  {_property(name)}{'' if name in required else '?'}: {self._of(described)};"

    def _of(self, schema: Any) -> str:  # noqa: C901, PLR0911 -- a case for each keyword
        """Return the type of a schema."""
        if not isinstance(schema, Mapping):
            return "unknown"
        types = schema.get("type")
        if isinstance(types, list):
            return " | ".join(self._of({**schema, "type": name}) for name in types)
        match schema:
            case {"$ref": str(reference)}:
                return self._name(reference.rpartition("/")[2])
            case {"not": _}:
                return "never"
            case {"const": value}:
                return self._literal(value)
            case {"enum": values}:
                return " | ".join(map(self._literal, values)) or "never"
            case {"anyOf": choices} | {"oneOf": choices}:
                return " | ".join(dict.fromkeys(map(self._of, choices)))
            case {"type": "array"}:
                return self._array(schema)
            case {"type": "object"}:
                return self._object(schema)
            case _:
                return _SIMPLE.get(str(types), "unknown")

    def _array(self, schema: Json) -> str:
        items = schema.get("items", {})
        if "prefixItems" not in schema:
            return "[]" if items is False else self._list_of(items)
        least = schema.get("minItems", 0)
        parts = [
            f"{self._of(item)}{'' if position < least else '?'}"
            for position, item in enumerate(schema["prefixItems"])
        ]
        if items is not False:
            parts.append(f"...{self._list_of(items)}")
        return f"[{', '.join(parts)}]"

    def _list_of(self, schema: Any) -> str:
        item = self._of(schema)
        return f"({item})[]" if " " in item else f"{item}[]"

    def _object(self, schema: Json) -> str:
        if schema.get("properties"):
            return f"{{ {' '.join(line.strip() for line in self._members(schema))} }}"
        further = schema.get("additionalProperties", True)
        if further is False:
            return "{ [name: string]: never }"
        return f"{{ [name: string]: {'unknown' if further is True else self._of(further)} }}"

    def _literal(self, value: Any) -> str:
        if self._bigint and type(value) is int:
            return f"{value}n"
        return _text(value)

    def _name(self, component: str) -> str:
        """Return the name of a component's type, which hides no other name of the file."""
        if component not in self._names:
            name = re.sub(r"[^\w$]+", "", component).removeprefix("Penstock") or "Type"
            name = f"_{name}" if name[0].isdigit() else name
            while name in self._taken:
                name += "_"
            self._taken.add(name)
            self._names[component] = name
        return self._names[component]

    def _own_name(self, name: str) -> str:
        """Return a name for something of the file that belongs to an entity."""
        name = re.sub(r"[^\w$]+", "_", name)
        while name in self._taken:
            name += "_"
        self._taken.add(name)
        return name

    def _entity_types(self) -> Iterator[str]:
        """Yield the interfaces of each entity class, and the functions that make their objects."""
        for entity, operations in self._entities.items():
            calls, of_class = self._own_name(f"{entity}Calls"), self._own_name(f"{entity}Class")
            creations = [each for each in operations if each.name in CREATIONS]
            others = [each for each in operations if each.name not in CREATIONS]
            make = self._own_name(f"make{entity}")
            self._classes[entity], self._makers[entity] = of_class, make
            yield f"/** The calls of a {entity}. */"
            yield f"export interface {calls}<How extends Mode> {{"
            yield from self._signatures(others, "")
            yield "}"
            yield ""
            yield f"/** The class {entity}: called with a key, it gives the calls of that entity. */"
            yield f"export interface {of_class}<How extends Mode> {{"
            yield f"  (key: Key): {calls}<How>;"
            yield from self._signatures(creations, "key: Key | null, ")
            yield "}"
            yield ""
            yield from self._maker(make, entity, calls, of_class)
            yield ""

    def _maker(self, make: str, entity: str, calls: str, of_class: str) -> Iterator[str]:
        """Yield the function that makes the object of an entity class."""
        operations = self._entities[entity]
        yield f"function {make}<How extends Mode>(make: Make): {of_class}<How> {{"
        yield f'  const place = (key: Key | null) => `/{entity}/${{key === null ? "-" : segment(key)}}`;'
        yield f"  const of = (key: Key): {calls}<How> => {{"
        yield "    const path = place(key);"
        yield "    return {"
        for each in operations:
            if each.name not in CREATIONS:
                yield f"      {self._implementation(each)},"
        yield "    };"
        yield "  };"
        yield f"  const made = of as {of_class}<How>;"
        for each in operations:
            if each.name in CREATIONS:
                taken, passed = self._passed(each)
                call = f"make(`${{place(key)}}/{each.name}`, {passed}, options)"
                yield f"  made.{each.name} = (key, {taken}options) => {call};"
        yield "  return made;"
        yield "}"

    def _function_types(self) -> Iterator[str]:
        if not self._functions:
            return
        yield "/** The functions of the application. */"
        yield "export interface Functions<How extends Mode> {"
        yield from self._signatures(self._functions, "")
        yield "}"
        yield ""
        yield "function makeFunctions<How extends Mode>(make: Make): Functions<How> {"
        yield "  return {"
        for each in self._functions:
            yield f"    {self._implementation(each)},"
        yield "  };"
        yield "}"
        yield ""

    def _signatures(self, operations: list[_Operation], before: str) -> Iterator[str]:
        for each in operations:
            given = self._given(each)
            result = self._of(_answer(each.described))
            yield from _comment(_about(each.described), "  ")
            yield f"  {_property(each.name)}({before}{given}options?: Given<How>): Returned<How, {result}>;"

    def _implementation(self, operation: _Operation) -> str:
        taken, passed = self._passed(operation)
        reads = ", true" if operation.described.get("x-penstock-readonly") else ""
        call = f"make(`{operation.path}`, {passed}, options{reads})"
        return f"{_property(operation.name)}: ({taken}options) => {call}"

    def _given(self, operation: _Operation) -> str:
        """Return the parameter for the arguments; empty if there are none."""
        form = _form(operation)
        if form is None:
            return ""
        if form.get("type") != "object":  # by position alone, or no call is possible
            return f"given: {self._of(form)}, "
        forms = [self._named(form)]
        # Arguments beyond the names have a place alone.
        forms += [self._of(other) for other in _forms(operation) if other.get("items")]
        return f"given{'' if form.get('required') else '?'}: {' | '.join(forms)}, "

    def _passed(self, operation: _Operation) -> tuple[str, str]:
        """Return the name of the parameter for the arguments, and the body of the request."""
        form = _form(operation)
        if form is None:
            return "", "{}"
        is_needed = form.get("type") != "object" or form.get("required")
        return "given, ", "given" if is_needed else "given ?? {}"

    def _named(self, schema: Json) -> str:
        further = schema.get("additionalProperties", False)
        own = self._object(schema) if schema.get("properties") else ""
        if further is False:
            return own
        more = f"{{ [name: string]: {self._of(further)} }}"
        return f"{own} & {more}" if own else more

    def _client(self) -> Iterator[str]:
        title = self._document["info"]["title"]
        yield f"/** A client of the application {title}. It may be shared; each call is a request of its own. */"
        yield "export class Client {"
        yield "  readonly #gateway: Gateway;"
        yield from self._declarations()
        yield ""
        yield from self._constructor()
        yield _STANDING_MEMBERS

    def _declarations(self) -> Iterator[str]:
        """Yield the members of the client that are objects."""
        members = {entity: self._member(entity) for entity in self._entities}
        for entity, name in members.items():
            reads = "; ".join(declared for declared, _ in self._reads(entity))
            more = f" & {{ {reads} }}" if reads else ""
            yield f'  readonly {name}: {self._classes[entity]}<"call">{more};'
        if self._functions:
            yield "  /** The functions of the application. */"
            yield '  readonly call: Functions<"call">;'
        if members or self._functions:
            yield "  /** The same calls, sent without waiting for their results. */"
            yield "  readonly send: {"
            for entity, name in members.items():
                yield f'    readonly {name}: {self._classes[entity]}<"send">;'
            if self._functions:
                yield '    readonly call: Functions<"send">;'
            yield "  };"
        yield from self._pages()
        for what, types in self._published():
            yield f"  readonly {what}: {{"
            yield from (f"    readonly {_property(name)}: {of};" for name, of in types.items())
            yield "  };"

    def _constructor(self) -> Iterator[str]:
        members = {entity: self._member(entity) for entity in self._entities}
        yield "  constructor(url: string, options: ClientOptions = {}) {"
        yield "    const gateway = (this.#gateway = new Gateway(url, options));"
        if members or self._functions:
            yield "    const calls = calling(gateway);"
            yield "    const sends = sending(gateway);"
        for entity, name in members.items():
            made = f'{self._makers[entity]}<"call">(calls)'
            if reads := ", ".join(given for _, given in self._reads(entity)):
                made = f"Object.assign({made}, {{ {reads} }})"
            yield f"    this.{name} = {made};"
        sent = [f"{name}: {self._makers[entity]}(sends)," for entity, name in members.items()]
        if self._functions:
            yield "    this.call = makeFunctions(calls);"
            sent.append("call: makeFunctions(sends),")
        if sent:
            yield from ("    this.send = {", *(f"      {line}" for line in sent), "    };")
        yield from self._made_pages()
        for what, types in self._published():
            yield f"    this.{what} = {{"
            for name, of in types.items():
                yield f"      {_property(name)}: new {of}(gateway, {_text(name)}),"
            yield "    };"
        yield "  }"

    def _reads(self, entity: str) -> Iterator[tuple[str, str]]:
        """Yield the declaration and the value of each function that reads an entity of a class."""
        shown = self._shown.get(entity)
        if shown is not None:
            made = f"gateway.reading<{shown}>({_text(entity)})"
            yield f"get(key: Key, options?: ReadOptions): Promise<{shown}>", f"get: {made}"
        if shown is not None and entity in self._subscribed:
            made = f"gateway.subscribing<{shown}>({_text(entity)})"
            yield (
                f"subscribe(key: Key, options?: SubscribeOptions): States<{shown}>",
                f"subscribe: {made}",
            )

    def _pages(self) -> Iterator[str]:
        """Yield the declaration of the functions that list entities."""
        if self._shown:
            yield "  /** Pages of the entities of a class that the caller may see, in the order of their keys. */"
            yield "  readonly pages: {"
            for entity, shown in self._shown.items():
                yield f"    {_property(entity)}(page?: PageOf, options?: ReadOptions): Promise<EntityPage<{shown}>>;"
            yield "  };"

    def _made_pages(self) -> Iterator[str]:
        if self._shown:
            yield "    this.pages = {"
            for entity, shown in self._shown.items():
                yield f"      {_property(entity)}: gateway.listing<{shown}>({_text(entity)}),"
            yield "    };"

    def _member(self, entity: str) -> str:
        name = re.sub(r"[^\w$]+", "_", entity)
        return f"{name}_" if name in _MEMBERS else name

    def _published(self) -> Iterator[tuple[str, dict[str, str]]]:
        """Yield the kinds of what can be followed, each with the classes of its objects by name."""
        if self._followed:
            yield "streams", {name: self._stream_type(name) for name in self._followed}
        if self._tables:
            yield "tables", {name: f"Table<{change}>" for name, change in self._tables.items()}

    def _stream_type(self, name: str) -> str:
        event, given = self._followed[name], self._appended.get(name)
        return f"Followed<{event}>" if given is None else f"Appended<{given}, {event}>"


def _error_classes(own: list[tuple[str, Json]]) -> Iterator[str]:
    """Yield the codes of errors, and the classes of the application's own errors."""
    codes = {name: schema["properties"]["code"]["const"] for name, schema in own}
    yield "/** The codes of errors. */"
    yield "export type ErrorCode ="
    yield from (f"  | {_text(code)}" for code in sorted({*BY_CODE, *codes.values()}))
    yield "  ;"
    yield ""
    for name, schema in own:
        yield from _comment(schema.get("description", ""))
        yield f"export class {name} extends Aborted {{}}"
        yield ""
    yield "const STATUSES: { readonly [code: string]: number | undefined } = {"
    yield "  __proto__: null as never,"
    yield from (f"  {_text(code)}: {STATUS[code]}," for code in sorted(BY_CODE))
    yield "};"
    yield ""
    yield "const ERRORS: { readonly [code: string]: typeof PenstockError | undefined } = {"
    yield "  __proto__: null as never,"
    for name, schema in own:
        # Exceptions without a code of their own differ in their kind alone.
        error_kind = schema["properties"]["kind"].get("const", "")
        yield f"  {_text(codes[name] if codes[name] != Aborted.code else f'{codes[name]} {error_kind}')}: {name},"
    yield "};"


def _form(operation: _Operation) -> Any:
    """Return the schema of a call's arguments, by name where that is possible; None if there are none."""
    forms = _forms(operation)
    form = next((form for form in forms if form.get("type") == "object"), forms[0])
    has_none = form.get("type") == "object" and not form.get("properties")
    return None if has_none and form.get("additionalProperties") is False else form


def _forms(operation: _Operation) -> list[Any]:
    schema = _body(operation.described)
    return list(schema.get("oneOf", [schema]))


def _body(operation: Json) -> Any:
    return operation["requestBody"]["content"][JSON]["schema"]


def _answer(operation: Json) -> Any:
    return operation["responses"]["200"]["content"][JSON]["schema"]


def _about(operation: Json) -> str:
    text, _, _ = operation.get("description", "").partition(READS)
    texts = (operation.get("summary", ""), text.strip())
    return "\n\n".join(filter(None, texts))


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _property(name: str) -> str:
    return name if _IDENTIFIER.fullmatch(name) else _text(name)


def _comment(text: str, indent: str = "") -> Iterator[str]:
    """Yield a comment, from which a text of the application cannot break out."""
    lines = text.replace("*/", "* /").splitlines()
    if len(lines) == 1:
        yield f"{indent}/** {lines[0]} */"
    elif lines:
        yield f"{indent}/**"
        yield from (f"{indent} * {line}".rstrip() for line in lines)
        yield f"{indent} */"
