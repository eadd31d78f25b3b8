"""The operations of an application in its OpenAPI document: methods, functions, entities, routes.

Each method has a path of its own, so that readers and client generators see its arguments and its
result. `append_paths` has the appends to streams, and `builtin_paths` the paths that every gateway serves.
"""

from collections.abc import Iterator
from typing import Any, Final

from penstock.base.http import (
    ARROW,
    EPOCH,
    IDEMPOTENCY_KEY,
    JSON,
    MIN_EPOCH,
    MSGPACK,
    NDJSON,
    REQUEST_ID,
)
from penstock.gateway.openapi.builtin_schemas import answers, json_content, reference_to
from penstock.gateway.openapi.error_responses import (
    ALWAYS,
    APPENDED,
    AWAITED,
    WITH_BODY,
    error_references,
)
from penstock.gateway.openapi.json_schema import (
    Schema,
    SchemaRegistry,
    constrained_parameters,
    docstring_of,
)
from penstock.gateway.openapi.key_schema import key_schema
from penstock.gateway.openapi.media import media_of
from penstock.model.application import App
from penstock.model.declaration import CREATIONS, RESERVED
from penstock.model.entity_type import EntityType
from penstock.model.route import SHOW, Route
from penstock.model.signature import Signature

_MEDIA: Final = {"text": "text/plain", "bytes": "application/octet-stream", "json": JSON}
_MEDIA_SCHEMAS: Final[dict[str, Schema]] = {"text": {"type": "string"}, "bytes": {}}
NAMED: Final = {
    "name": "id",
    "in": "path",
    "required": True,
    "description": "A request id that this caller chose or received. The scope `admin` also allows "
    "`principal~id`, and `~id` for a request without a principal.",
    "schema": {"type": "string", "pattern": "^([!-}]*~)?[!-}]+$"},
}
"""The parameter of a path that names a request."""

_BODILESS: Final = frozenset({"GET", "DELETE"})
SHOWN: Final = (EPOCH,)
"""Headers of the response to a read."""

CALLED: Final = (EPOCH, REQUEST_ID)
"""Headers of the response to a call."""

_KEY_MADE: Final = "The key of the new entity; `-` derives a key from the request id."

ID: Final = {
    "name": IDEMPOTENCY_KEY,
    "in": "header",
    "description": "The request id. A repeated id with the same body takes effect once and gets the "
    "same reply; with another body it is refused. Each API key has its own ids.",
    "schema": {"type": "string", "pattern": "^[!-}]+$", "maxLength": 1_024},
}
MIN_EPOCH_PARAMETER: Final = {
    "name": MIN_EPOCH,
    "in": "header",
    "description": "The oldest epoch that may answer; the gateway waits for it.",
    "schema": {"type": "integer", "minimum": 0},
}


def seconds(name: str, description: str) -> dict[str, Any]:
    """Return a parameter of the query string that is a number of seconds."""
    schema = {"type": "number", "minimum": 0}
    return {"name": name, "in": "query", "description": description, "schema": schema}


TIMEOUT: Final = seconds("timeout", "Seconds to wait for the reply.")
DELAY: Final = seconds("delay", "Seconds until the request runs.")


def _bound(name: str, which: str, *, needed: bool = False) -> dict[str, Any]:
    default = "" if needed else " The default is the newest."
    return {
        "name": name,
        "in": "query",
        "description": f"The {which} epoch.{default}",
        "required": needed,
        "schema": {"type": "integer", "minimum": 0},
    }


LAST: Final = {
    "name": "last",
    "in": "query",
    "description": "The number of newest changes; the default is 20.",
    "required": False,
    "schema": {"type": "integer", "minimum": 1},
}


def with_article(noun: str) -> str:
    """Return a noun with its article."""
    return f"{'an' if noun[:1] in 'AEIOUaeio' else 'a'} {noun}"


class Paths:
    """The paths of a document. Paths that differ in their names alone are one."""

    def __init__(self) -> None:
        self._items: dict[str, dict[str, Any]] = {}
        self._written: dict[str, str] = {}

    def add(self, verb: str, path: str, operation: dict[str, Any]) -> None:
        """Add an operation; its parameters in the path stand first, in the path's order."""
        shape = "/".join("{}" if part[:1] == "{" else part for part in path.split("/"))
        known = self._written.setdefault(shape, path)
        names = [part[1:-1] for part in known.split("/") if part[:1] == "{"]
        parameters = operation.get("parameters", [])
        for name, parameter in zip(names, parameters, strict=False):
            parameter["name"] = name
        if not parameters:
            operation.pop("parameters", None)
        self._items.setdefault(known, {})[verb.lower()] = operation

    def sorted(self) -> dict[str, dict[str, Any]]:
        """Return all, by path and by verb."""
        return {
            path: dict(sorted(operations.items()))
            for path, operations in sorted(self._items.items())
        }


class Operations:
    """Describes the operations of an application.

    Attributes:
        refusals: The statuses of the application's routes for refused requests.
    """

    def __init__(self, app: App, schemas: SchemaRegistry, paths: Paths) -> None:
        self._app = app
        self._schemas = schemas
        self._paths = paths
        self.refusals: set[int] = set()

    def describe(self) -> None:
        """Add all operations."""
        for _, entity in sorted(self._app.entities.items()):
            for method in sorted({*entity.methods, *RESERVED}):
                self._calls(entity, method, self._app.signature(entity.name, method))
            self._reads(entity)
        for name, signature in sorted(self._app.functions.items()):
            self._calls(None, name, signature)
        for route in sorted(self._app.routes, key=lambda route: (route.path, route.verb)):
            self._route(route)

    def _calls(self, entity: EntityType | None, method: str, signature: Signature) -> None:
        target = f"{entity.name}/{{key}}/{method}" if entity else method
        label = f"{entity.name}.{method}" if entity else method
        path = [_key(entity, method)] if entity else []
        body = self._body_of(entity, method, signature)
        content = {
            JSON: {"schema": self._result_of(entity, method, signature)},
            MSGPACK: {"schema": {}},
        }
        call = _operation(f"call.{label}", entity, *_texts(entity, method, signature))
        call["parameters"] = [*path, ID, TIMEOUT]
        call |= _marks_of(call, signature)
        call |= body
        headers = SHOWN if signature.readonly else CALLED  # a read has no id, unless it is recorded
        call["responses"] = answers(200, "The result, committed.", content, headers)
        call["responses"] |= error_references((*ALWAYS, *WITH_BODY, *APPENDED))
        self._paths.add("POST", f"/call/{target}", call)
        summary, _ = _texts(entity, method, signature)
        send = _operation(f"send.{label}", entity, f"{summary} Does not wait for the reply.", "")
        send["parameters"] = [*map(dict, path), ID, DELAY]
        send |= body
        sent = json_content("PenstockSent")
        send["responses"] = answers(202, "The request is durable.", sent, (*CALLED, "Location"))
        send["responses"] |= error_references((*ALWAYS, *WITH_BODY, *APPENDED))
        self._paths.add("POST", f"/send/{target}", send)

    def _body_of(
        self, entity: EntityType | None, method: str, signature: Signature
    ) -> dict[str, Any]:
        without: tuple[str, ...] = ()
        if entity is not None and method in CREATIONS and entity.initializer is None:
            without = (entity.key_name,)
        schema = self._schemas.arguments(signature, without)
        content: dict[str, Any] = {JSON: {"schema": schema}}
        if not without:
            text = "An array of two items: the arguments by position, and the arguments by name."
            content[MSGPACK] = {"schema": {"description": text}}
        forms = schema.get("oneOf", [schema])
        needed = not any(not form.get("required") and not form.get("minItems") for form in forms)
        return {"requestBody": {"content": content, "required": needed}}

    def _result_of(self, entity: EntityType | None, method: str, signature: Signature) -> Schema:
        if entity is not None and method in CREATIONS and method not in entity.methods:
            return self._schemas.written(entity.cls)
        return self._schemas.written(signature.returns)

    def _reads(self, entity: EntityType) -> None:
        """Describe the paths that read entities of a class: the state, the changes, the history."""
        article = with_article(entity.name)
        show = _operation(f"show.{entity.name}", entity, f"Show {article}.", _SHOWN)
        show["parameters"] = [_key(entity, SHOW), MIN_EPOCH_PARAMETER]
        content = {JSON: {"schema": self._schemas.entity(entity)}, MSGPACK: {"schema": {}}}
        show["responses"] = answers(200, "All attributes and the key.", content, SHOWN)
        show["responses"] |= error_references((*ALWAYS, *AWAITED))
        feed = _operation(f"changes.{entity.name}", entity, f"List changes of {article}.", _CHANGED)
        begin, end = _bound("from", "first", needed=True), _bound("to", "last")
        feed["parameters"] = [begin, end, MIN_EPOCH_PARAMETER]
        content = {
            NDJSON: {"schema": reference_to("PenstockChange")},
            **json_content("PenstockRows"),
            ARROW: {"schema": {}},
        }
        feed["responses"] = answers(200, "The changes, in order.", content, SHOWN)
        feed["responses"] |= error_references((*ALWAYS, *AWAITED))
        history = _operation(
            f"history.{entity.name}", entity, f"List the history of {article}.", _PAST
        )
        history["parameters"] = [_key(entity, SHOW), _bound("from", "first"), end, LAST]
        content = json_content("PenstockHistory")
        history["responses"] = answers(200, "The newest changes, in order.", content, ())
        history["responses"] |= error_references((*ALWAYS, 413, 429, 504))
        paths = f"/entities/{entity.name}"
        self._paths.add("GET", f"{paths}/{{key}}", show)
        self._paths.add("GET", f"{paths}/changes", feed)
        self._paths.add("GET", f"{paths}/{{key}}/history", history)

    def _route(self, route: Route) -> None:
        entity = self._app.entities.get(route.entity)
        shows = route.method == SHOW
        signature = None if shows else self._app.signature(route.entity, route.method)
        if signature is None:
            texts = (f"Show {with_article(route.entity)}.", _SHOWN)
        else:
            texts = _texts(entity, route.method, signature)
        described = _operation(f"route.{route.verb.lower()}.{route.path}", entity, *texts)
        described["parameters"] = list(self._path_of(route, entity, signature))
        statuses = [*ALWAYS, route.refused]
        if signature is None:
            described["parameters"] += [MIN_EPOCH_PARAMETER]
            statuses += AWAITED
        else:
            described["parameters"] += [*self._query_of(route, signature), ID]
            described |= _marks_of(described, signature)
            described |= self._route_body(route, signature)
            statuses += (*WITH_BODY, *APPENDED)
        self.refusals.add(route.refused)
        described["responses"] = error_references(statuses)
        headers = SHOWN if signature is None or signature.readonly else CALLED
        text = "The attributes." if shows else "The request took effect."
        media = self._media(route, entity)
        described["responses"] |= answers(route.status, text, media, headers)
        described["responses"] = dict(sorted(described["responses"].items()))
        self._paths.add(route.verb, route.path, described)

    def _path_of(
        self, route: Route, entity: EntityType | None, signature: Signature | None
    ) -> Iterator[dict[str, Any]]:
        for name in route.names:
            if name == route.key and entity is not None:
                yield {
                    **_key(entity, SHOW),
                    "name": name,
                    "description": f"Key of {with_article(entity.name)}.",
                }
            else:
                assert signature is not None, "a shown entity is named by its key alone"
                schema = self._schemas.read(signature.constrained[name])
                yield {"name": name, "in": "path", "required": True, **_texted(schema)}

    def _query_of(self, route: Route, signature: Signature) -> Iterator[dict[str, Any]]:
        for parameter in _beyond(route, signature):
            needed = route.verb in _BODILESS and parameter.default is parameter.empty
            schema = self._schemas.parameter(parameter)
            yield {"name": parameter.name, "in": "query", "required": needed, **_texted(schema)}

    def _route_body(self, route: Route, signature: Signature) -> dict[str, Any]:
        beyond = list(_beyond(route, signature))
        if route.verb in _BODILESS or not beyond:
            return {}
        schema = {
            "type": "object",
            "properties": {extra.name: self._schemas.parameter(extra) for extra in beyond},
            "additionalProperties": False,
            "description": "Arguments that are neither here nor in the query string have their defaults.",
        }
        return {"requestBody": {"content": {JSON: {"schema": schema}}, "required": False}}

    def _media(self, route: Route, entity: EntityType | None) -> dict[str, Any]:
        """Return the content of a route's answer."""
        if entity is not None and route.method == SHOW:
            return {JSON: {"schema": self._schemas.shown(entity, route.shows)}}
        if entity is not None and route.method in CREATIONS:
            properties = {entity.key_name: self._schemas.written(entity.cls)}
            schema = {"type": "object", "properties": properties, "required": [entity.key_name]}
            return {route.content_type or JSON: {"schema": schema}}
        returns = self._app.signature(route.entity, route.method).returns
        forms = sorted(media_of(returns))
        schemas = {**_MEDIA_SCHEMAS, "json": self._schemas.written(returns)}
        if not route.content_type:
            return {_MEDIA[form]: {"schema": schemas[form]} for form in forms}
        media = route.content_type.partition(";")[0]
        return {media: {"schema": schemas[forms[0]] if len(forms) == 1 else {}}}


_CHANGED: Final = (
    "Returns each entity before and after each epoch of a range, as JSON lines. Without `from` the "
    "path reads the entity whose key is `changes`."
)
_PAST: Final = (
    "Returns each change and the request that made it. Epochs run again for this, which takes "
    "seconds. Needs the scope `sql`."
)
_READ: Final = (
    "Reads the newest committed epoch and is not recorded. With the header `Idempotency-Key` it is a "
    "request in the log, and its reply is kept under that id."
)
_SHOWN: Final = "Reads the newest committed epoch, so every change that any client has seen."


def _operation(
    name: str, entity: EntityType | None, summary: str, description: str
) -> dict[str, Any]:
    described = {"operationId": name, "tags": [entity.name if entity else "Functions"]}
    described |= {"summary": summary}
    return described | ({"description": description} if description else {})


def _marks_of(operation: dict[str, Any], signature: Signature) -> dict[str, Any]:
    """Return the fields of an operation that a `@readonly` handler changes; none for others."""
    if not signature.readonly:
        return {}
    text = " ".join([operation.get("description", ""), _READ]).strip()
    parameters = [*operation["parameters"], MIN_EPOCH_PARAMETER]
    return {"description": text, "parameters": parameters, "x-penstock-readonly": True}


def _texts(entity: EntityType | None, method: str, signature: Signature) -> tuple[str, str]:
    """Return summary and description of a call."""
    if entity is not None and method in RESERVED:
        return f"{_STANDING_METHODS[method]} {with_article(entity.name)}.", ""
    summary, _, description = docstring_of(signature.function).partition("\n\n")
    return " ".join(summary.split()) or f"Call {signature.name}.", description.strip()


_STANDING_METHODS: Final = {
    "create": "Create",
    "upsert": "Create or replace",
    "delete": "Delete",
    "exists": "Ask whether there is",
}


def _key(entity: EntityType, method: str) -> dict[str, Any]:
    schema = key_schema(entity)
    made = method in CREATIONS
    if made and not entity.key_is_text:
        schema = {"anyOf": [{"const": "-"}, schema]}
    description = _KEY_MADE if made else f"Key of {with_article(entity.name)}."
    return {
        "name": "key",
        "in": "path",
        "required": True,
        "description": description,
        "schema": schema,
    }


def _texted(schema: Schema) -> dict[str, Any]:
    """Describe a parameter: as text where it is plain, else as JSON."""
    plain = schema.get("type") in ("string", "integer", "number", "boolean", "null")
    return {"schema": schema} if plain else {"content": {JSON: {"schema": schema}}}


def _beyond(route: Route, signature: Signature) -> Iterator[Any]:
    """Yield the parameters that a route's path does not name."""
    for parameter in constrained_parameters(signature):
        variable = parameter.kind in (
            parameter.VAR_POSITIONAL,
            parameter.VAR_KEYWORD,
            parameter.POSITIONAL_ONLY,
        )
        if parameter.name not in route.names and not variable:
            yield parameter
