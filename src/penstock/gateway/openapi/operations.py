"""The operations of an application in its OpenAPI document: methods, functions, entities, streams, its own routes.

Each method and each stream has a path of its own, so that readers and client generators see its arguments and its
result. The routes of the gateway's handlers say the rest: parameters, errors, headers.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

from penstock.base.http import JSON, MSGPACK, NDJSON
from penstock.gateway.handlers.calls import CallHandler
from penstock.gateway.handlers.changes import ChangesHandler
from penstock.gateway.handlers.entity_read import EntityReadHandler
from penstock.gateway.handlers.history import HistoryHandler
from penstock.gateway.handlers.streams import StreamHandler
from penstock.gateway.openapi.error_responses import WITH_BODY
from penstock.gateway.openapi.json_schema import (
    Schema,
    SchemaRegistry,
    constrained_parameters,
    docstring_of,
    key_schema,
    media_of,
)
from penstock.gateway.route import (
    APPENDED,
    CALLED,
    ID,
    MIN_EPOCH_HEADER,
    SHOWN,
    STREAMS,
    Answer,
    Content,
    Parameter,
    Route,
    reference_to,
    routes_at,
)
from penstock.gateway.streams.event_stream import MEDIA_TYPE
from penstock.model.application import App
from penstock.model.declaration import CREATIONS, RESERVED
from penstock.model.entity_type import EntityType
from penstock.model.route import SHOW
from penstock.model.route import Route as AppRoute
from penstock.model.signature import Signature
from penstock.model.streams.failed_atom import FailedAtom
from penstock.model.streams.stream import Stream

FUNCTIONS: Final = "Functions"
"""The tag of functions."""

_MEDIA: Final = {"text": "text/plain", "bytes": "application/octet-stream", "json": JSON}
_MEDIA_SCHEMAS: Final[dict[str, Schema]] = {"text": {"type": "string"}, "bytes": {}}
_BODILESS: Final = frozenset({"GET", "DELETE"})
_KEY_MADE: Final = "The key of the new entity; `-` derives a key from the request id."
_ATOM: Final = "The events of one append are an atom: they take effect together, in their order."
_READ: Final = (
    "Reads the newest committed epoch and is not recorded. With the header `Idempotency-Key` it is a "
    "request in the log, and its reply is kept under that id."
)

(_APPEND, _, _CALL) = routes_at(CallHandler.call)
(_SEND_ATOM, _, _SEND) = routes_at(CallHandler.send)
(_ENTITY,) = routes_at(EntityReadHandler.entity)
(_CHANGES,) = routes_at(ChangesHandler.changes)
(_HISTORY,) = routes_at(HistoryHandler.history)
(_FOLLOW,) = routes_at(StreamHandler.follow)
"""The routes that have several operations in the document."""


def with_article(noun: str) -> str:
    """Return a noun with its article."""
    return f"{'an' if noun[:1] in 'AEIOUaeio' else 'a'} {noun}"


class Operations:
    """Describes the operations of an application, as routes whose names are filled in."""

    def __init__(self, app: App, schemas: SchemaRegistry) -> None:
        self._app = app
        self._schemas = schemas

    def routes(self) -> Iterator[Route]:
        """Yield all operations."""
        for _, entity in sorted(self._app.entities.items()):
            for method in sorted({*entity.methods, *RESERVED}):
                yield from self._calls(entity, method, self._app.signature(entity.name, method))
            yield from self._reads(entity)
        for name, signature in sorted(self._app.functions.items()):
            yield from self._calls(None, name, signature)
        for route in sorted(self._app.routes, key=lambda route: (route.path, route.verb)):
            yield self._route(route)
        for _, stream in sorted(self._app.topology.streams.items()):
            if stream.is_open:
                yield from self._appends(stream)
            yield self._follow(stream)

    def _calls(
        self, entity: EntityType | None, method: str, signature: Signature
    ) -> Iterator[Route]:
        """Yield the call that waits for its reply, and the call that does not."""
        target = f"{entity.name}/{{key}}/{method}" if entity else method
        label = f"{entity.name}.{method}" if entity else method
        summary, description = _texts(entity, method, signature)
        key = (_key(entity, method),) if entity else ()
        content: Content = {
            JSON: {"schema": self._result_of(entity, method, signature)},
            MSGPACK: {"schema": {}},
        }
        # A read has no id, unless it is recorded.
        headers = SHOWN if signature.readonly else CALLED
        call = replace(
            _CALL,
            path=f"/call/{target}",
            name=f"call.{label}",
            tag=_tag_of(entity),
            summary=summary,
            description=description,
            parameters=(*key, *_CALL.parameters),
            answers=(replace(_CALL.answers[0], content=content, headers=headers),),
            **self._body_of(entity, method, signature),
        )
        yield _marked(call, signature)
        yield replace(
            call,
            path=f"/send/{target}",
            name=f"send.{label}",
            summary=f"{summary} Does not wait for the reply.",
            description="",
            parameters=(*key, *_SEND.parameters),
            answers=_SEND.answers,
        )

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
        return {"body": content, "is_body_required": needed}

    def _result_of(self, entity: EntityType | None, method: str, signature: Signature) -> Schema:
        if entity is not None and method in CREATIONS and method not in entity.methods:
            return self._schemas.written(entity.cls)
        return self._schemas.written(signature.returns)

    def _reads(self, entity: EntityType) -> Iterator[Route]:
        """Yield the paths that read entities of a class: the state, the changes, the history."""
        article, paths, key = with_article(entity.name), f"/entities/{entity.name}", _key(entity)
        content: Content = {JSON: {"schema": self._schemas.entity(entity)}, MSGPACK: {"schema": {}}}
        yield replace(
            _ENTITY,
            path=f"{paths}/{{key}}",
            name=f"show.{entity.name}",
            tag=entity.name,
            summary=f"Show {article}.",
            parameters=(key, *_ENTITY.parameters),
            answers=(replace(_ENTITY.answers[0], content=content),),
        )
        yield replace(
            _CHANGES,
            path=f"{paths}/changes",
            name=f"changes.{entity.name}",
            tag=entity.name,
            summary=f"List changes of {article}.",
        )
        yield replace(
            _HISTORY,
            path=f"{paths}/{{key}}/history",
            name=f"history.{entity.name}",
            tag=entity.name,
            summary=f"List the history of {article}.",
            parameters=(key, *_HISTORY.parameters),
        )

    def _appends(self, stream: Stream[Any]) -> Iterator[Route]:
        """Yield the append that waits for its epoch, and the append that does not."""
        event = self._schemas.read(stream.events.constrained)
        content: Content = {
            JSON: {"schema": {"type": "array", "items": event}},
            NDJSON: {"schema": event},
            MSGPACK: {"schema": {"description": "An array of the events."}},
        }
        count: Content = {
            JSON: {"schema": {"type": "integer", "minimum": 0}},
            MSGPACK: {"schema": {}},
        }
        summary = f"Append to stream {stream.name}."
        append = replace(
            _APPEND,
            path=f"/streams/{stream.name}",
            name=f"append.{stream.name}",
            tag=STREAMS,
            summary=summary,
            description=_ATOM,
            body=content,
            answers=(replace(_APPEND.answers[0], content=count),),
        )
        yield append
        yield replace(
            append,
            path=f"/send/streams/{stream.name}",
            name=f"send.append.{stream.name}",
            summary=f"{summary} Does not wait for the epoch.",
            parameters=_SEND_ATOM.parameters,
            answers=_SEND_ATOM.answers,
        )

    def _follow(self, stream: Stream[Any]) -> Route:
        is_failed = stream.annotation is FailedAtom
        event = (
            reference_to("PenstockFailedAtom")
            if is_failed
            else self._schemas.written(stream.annotation)
        )
        atom = {"properties": {"events": {"type": "array", "items": event}}}
        body = {**reference_to("PenstockAtoms"), "properties": {"atoms": {"items": atom}}}
        content: Content = {
            JSON: {"schema": body},
            MSGPACK: {"schema": {}},
            MEDIA_TYPE: {"schema": {"type": "string"}},
        }
        return replace(
            _FOLLOW,
            path=f"/streams/{stream.name}",
            name=f"follow.{stream.name}",
            tag=STREAMS,
            summary=f"Follow stream {stream.name}.",
            answers=(replace(_FOLLOW.answers[0], content=content),),
        )

    def _route(self, route: AppRoute) -> Route:
        """Return the operation of a path that the application has declared."""
        entity = self._app.entities.get(route.entity)
        name = f"route.{route.verb.lower()}.{route.path}"
        if route.method == SHOW:
            return replace(
                _ENTITY,
                verb=route.verb,
                path=route.path,
                name=name,
                tag=_tag_of(entity),
                summary=f"Show {with_article(route.entity)}.",
                parameters=(*self._path_of(route, entity, None), MIN_EPOCH_HEADER),
                answers=(
                    Answer("The attributes.", self._media(route, entity), SHOWN, route.status),
                ),
                errors=(*_ENTITY.errors, route.refused),
            )
        signature = self._app.signature(route.entity, route.method)
        summary, description = _texts(entity, route.method, signature)
        headers = SHOWN if signature.readonly else CALLED
        content = self._media(route, entity)
        operation = Route(
            route.verb,
            route.path,
            "route",
            name,
            summary=summary,
            description=description,
            tag=_tag_of(entity),
            parameters=(
                *self._path_of(route, entity, signature),
                *self._query_of(route, signature),
                ID,
            ),
            answers=(Answer("The request took effect.", content, headers, route.status),),
            errors=(*WITH_BODY, *APPENDED, route.refused),
            body=self._route_body(route, signature),
            is_body_required=False,
        )
        return _marked(operation, signature)

    def _path_of(
        self, route: AppRoute, entity: EntityType | None, signature: Signature | None
    ) -> Iterator[Parameter]:
        for name in route.names:
            if name == route.key and entity is not None:
                yield replace(_key(entity), name=name)
            else:
                assert signature is not None, "a shown entity is named by its key alone"
                schema = self._schemas.read(signature.constrained[name])
                yield _given(name, "path", schema, is_required=True)

    def _query_of(self, route: AppRoute, signature: Signature) -> Iterator[Parameter]:
        for parameter in _beyond(route, signature):
            needed = route.verb in _BODILESS and parameter.default is parameter.empty
            schema = self._schemas.parameter(parameter)
            yield _given(parameter.name, "query", schema, is_required=needed)

    def _route_body(self, route: AppRoute, signature: Signature) -> Content | None:
        beyond = list(_beyond(route, signature))
        if route.verb in _BODILESS or not beyond:
            return None
        schema = {
            "type": "object",
            "properties": {extra.name: self._schemas.parameter(extra) for extra in beyond},
            "additionalProperties": False,
            "description": "Arguments that are neither here nor in the query string have their defaults.",
        }
        return {JSON: {"schema": schema}}

    def _media(self, route: AppRoute, entity: EntityType | None) -> Content:
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


def _tag_of(entity: EntityType | None) -> str:
    return entity.name if entity else FUNCTIONS


def _marked(route: Route, signature: Signature) -> Route:
    """Return the operation of a handler with the facts of `@readonly`."""
    if not signature.readonly:
        return route
    return replace(
        route,
        description=f"{route.description} {_READ}".strip(),
        parameters=(*route.parameters, MIN_EPOCH_HEADER),
        is_readonly=True,
    )


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


def _key(entity: EntityType, method: str = SHOW) -> Parameter:
    schema = key_schema(entity)
    made = method in CREATIONS
    if made and not entity.key_is_text:
        schema = {"anyOf": [{"const": "-"}, schema]}
    text = _KEY_MADE if made else f"Key of {with_article(entity.name)}."
    return Parameter("key", "path", text, schema, is_required=True)


def _given(name: str, place: str, schema: Schema, *, is_required: bool) -> Parameter:
    """Return a parameter of the application's own path: text where it is plain, else JSON."""
    plain = schema.get("type") in ("string", "integer", "number", "boolean", "null")
    return Parameter(name, place, "", schema, is_required, is_json=not plain)


def _beyond(route: AppRoute, signature: Signature) -> Iterator[Any]:
    """Yield the parameters that a route's path does not name."""
    for parameter in constrained_parameters(signature):
        variable = parameter.kind in (
            parameter.VAR_POSITIONAL,
            parameter.VAR_KEYWORD,
            parameter.POSITIONAL_ONLY,
        )
        if parameter.name not in route.names and not variable:
            yield parameter
