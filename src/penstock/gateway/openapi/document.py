"""The OpenAPI 3.1 document of an application, generated from its types.

Promises a valid document, in which every method, function and route of the application is an
operation with typed parameters, body and responses. The same application gives the same document in
the same order. The handlers of the gateway declare their paths (`gateway.route`), and `json_schema`
describes the types. Each method and each stream has a path of its own, so that readers and client
generators see its arguments and its result.
"""

import sys
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from penstock.base.http import (
    EPOCH,
    EVENTS,
    JSON,
    MSGPACK,
    NDJSON,
    REQUEST_ID,
    RETRIABLE,
    RETRY_AFTER,
    STATUS,
    ErrorAnswer,
)
from penstock.base.ids import fingerprint_of
from penstock.base.webhook_signature import Form
from penstock.engine.failure import code_of
from penstock.errors import BY_CODE, Aborted
from penstock.gateway.handlers.calls import CallHandler
from penstock.gateway.handlers.changes import ChangesHandler
from penstock.gateway.handlers.entity_read import EntityReadHandler
from penstock.gateway.handlers.history import HistoryHandler
from penstock.gateway.handlers.served_handlers import KINDS
from penstock.gateway.handlers.streams import StreamHandler
from penstock.gateway.handlers.subscriptions import SubscriptionHandler
from penstock.gateway.openapi.json_schema import (
    READS,
    Schema,
    SchemaRegistry,
    constrained_parameters,
    docstring_of,
    key_schema,
    media_of,
)
from penstock.gateway.order_desk import order_routes
from penstock.gateway.route import (
    APPENDED,
    CALLED,
    COMPONENTS,
    ID,
    MIN_EPOCH_HEADER,
    OF_TARGET,
    OPEN,
    SCHEMAS,
    SHOWN,
    SIGNED,
    STREAMS,
    Answer,
    Content,
    Parameter,
    Route,
    component_of,
    json_content,
    reference_to,
    routes_at,
    routes_of,
)
from penstock.gateway.stream_bodies import AtomsBody, FailedAtomBody
from penstock.gateway.table_pages import PageBody
from penstock.model.application import App
from penstock.model.declaration import CREATIONS, RESERVED
from penstock.model.entity_page import PAGE_FIELDS
from penstock.model.entity_type import EntityType
from penstock.model.event_filter import filters_of
from penstock.model.route import SHOW
from penstock.model.route import Route as AppRoute
from penstock.model.signature import Signature
from penstock.model.streams.failed_atom import FailedAtom
from penstock.model.streams.published_table import PublishedTable
from penstock.model.streams.stream import Stream
from penstock.model.value_filter import has_filter

REFUSED: Final = {
    "not-found": (404, "The path or the request does not exist."),
    "method-not-allowed": (405, "The path accepts other verbs only."),
    "request-timeout": (408, "The body did not arrive in time."),
    "path-too-long": (414, "The path is too long."),
    "unsupported-media-type": (415, "The content type of the body is not accepted."),
    "headers-too-large": (431, "The headers are too large."),
    "gateway-failed": (500, "The gateway failed; its log has the error."),
}
"""The errors of HTTP itself: status and meaning by code."""

_ERROR: Final = json_content(ErrorAnswer)

ALWAYS: Final = (400, 401, 403, 404, 405, 414, 431, 500, 503)
"""The statuses of every path."""

WITH_BODY: Final = (408, 413, 415)
"""Further statuses of a path that reads a body."""

OF_OPEN_PATH: Final = (400, 405, 414, 431, 500)
"""The statuses of a path that needs no credential, and is never refused."""


def meanings() -> dict[int, dict[str, str]]:
    """Return the meaning of each code, by status and code."""
    texts = {
        code: (error_type.__doc__ or "").partition("\n")[0] for code, error_type in BY_CODE.items()
    }
    statuses = {code: (status, texts.get(code, "")) for code, status in STATUS.items()} | REFUSED
    by_status: dict[int, dict[str, str]] = {}
    for code, (status, text) in sorted(statuses.items()):
        by_status.setdefault(status, {})[code] = text
    return dict(sorted(by_status.items()))


def declared_errors(app: App) -> list[type[Aborted]]:
    """Return the classes below `Aborted` that the modules of the application's handlers name, by name."""
    spaces = [vars(sys.modules[each.cls.__module__]) for each in app.entities.values()]
    spaces += [signature.function.__globals__ for signature in app.functions.values()]
    own: dict[str, type[Aborted]] = {}
    for value in (value for space in spaces for value in space.values()):
        # Not `isinstance`, which asks the object for its `__class__`.
        if issubclass(type(value), type) and issubclass(value, Aborted):
            own[f"{value.__name__} {value.__module__}.{value.__qualname__}"] = value
    return [own[name] for name in sorted(own) if own[name] not in BY_CODE.values()]


def error_response_of(status: int, own: Mapping[str, str] = MappingProxyType({})) -> dict[str, Any]:
    """Return the component that describes the errors of a status.

    Args:
        status: The HTTP status.
        own: Errors of the application that have it: their meanings by code.
    """
    codes = {**meanings().get(status, {}), **own}
    text = "\n".join(f"- `{code}`: {meaning}" for code, meaning in codes.items())
    described: dict[str, Any] = {
        "description": f"An error:\n\n{text}" if text else "The application refused the request.",
        "content": _ERROR,
    }
    if status in RETRIABLE:
        described["headers"] = {RETRY_AFTER: {"$ref": f"#/components/headers/{RETRY_AFTER}"}}
    return described


def error_references(statuses: Iterable[int]) -> dict[str, Any]:
    """Return references to the error responses of these statuses."""
    return {
        str(status): {"$ref": f"#/components/responses/Error{status}"}
        for status in sorted(set(statuses))
    }


FUNCTIONS: Final = "Functions"
"""The tag of functions."""

_MEDIA: Final = {"text": "text/plain", "bytes": "application/octet-stream", "json": JSON}
_MEDIA_SCHEMAS: Final[dict[str, Schema]] = {"text": {"type": "string"}, "bytes": {}}
_BODILESS: Final = frozenset({"GET", "DELETE"})
_KEY_MADE: Final = "The key of the new entity; `-` derives a key from the request id."
_ATOM: Final = "The events of one append are an atom: they take effect together, in their order."
_READ: Final = (
    f"{READS} With the header `Idempotency-Key` it is a "
    "request in the log, and its reply is kept under that id."
)

# They are in `route.COMPONENTS` when the first document is made.
_ATOMS: Final = reference_to(AtomsBody)
_FAILED_ATOM: Final = reference_to(FailedAtomBody)
_PAGE: Final = reference_to(PageBody)

(_APPEND, _, _CALL) = routes_at(CallHandler.call)
(_SEND_ATOM, _, _SEND) = routes_at(CallHandler.send)
(_ENTITY,) = routes_at(EntityReadHandler.entity)
(_ENTITIES,) = routes_at(EntityReadHandler.page)
(_CHANGES,) = routes_at(ChangesHandler.changes)
(_HISTORY,) = routes_at(HistoryHandler.history)
(_SUBSCRIBE,) = routes_at(SubscriptionHandler.subscribe)
(_FOLLOW,) = routes_at(StreamHandler.follow)
(_TABLE,) = routes_at(StreamHandler.table)
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
        for _, table in sorted(self._app.topology.tables.items()):
            yield self._table(table)

    def _calls(
        self, entity: EntityType | None, method: str, signature: Signature
    ) -> Iterator[Route]:
        """Yield the call that waits for its reply, and the call that does not; neither of an internal handler."""
        if self._app.is_internal(entity.name if entity else "", method):
            return
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
        is_creation = entity is not None and method in CREATIONS
        if entity is not None and is_creation and not entity.runs_initializer(method):
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
        """Yield the paths that read entities of a class: the state, a page, the changes, a subscription, the history."""
        article, paths, key = with_article(entity.name), f"/entities/{entity.name}", _key(entity)
        content: Content = {JSON: {"schema": self._schemas.entity(entity)}, MSGPACK: {"schema": {}}}
        yield replace(
            _ENTITIES,
            path=paths,
            name=f"list.{entity.name}",
            tag=entity.name,
            summary=f"List entities of {entity.name}.",
            parameters=(*_ENTITIES.parameters, *self._filters(entity)),
            answers=(replace(_ENTITIES.answers[0], content=self._page_of(entity)),),
        )
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
            _SUBSCRIBE,
            path=f"{paths}/{{key}}/changes",
            name=f"subscribe.{entity.name}",
            tag=entity.name,
            summary=f"Subscribe to {article}.",
            parameters=(key, *_SUBSCRIBE.parameters),
        )
        yield replace(
            _HISTORY,
            path=f"{paths}/{{key}}/history",
            name=f"history.{entity.name}",
            tag=entity.name,
            summary=f"List the history of {article}.",
            parameters=(key, *_HISTORY.parameters),
        )

    def _filters(self, entity: EntityType) -> Iterator[Parameter]:
        """Yield a field of the query string for each attribute that a page can be filtered by."""
        for name, annotation in entity.constrained.items():
            if name not in PAGE_FIELDS and has_filter(entity.attributes[name]):
                text = f"Only entities with this value of `{name}`."
                yield Parameter(name, "query", text, self._schemas.read(annotation))

    def _page_of(self, entity: EntityType) -> Content:
        after = {
            "type": ["string", "null"],
            "description": "Where the next page begins; null after the last entity.",
        }
        properties: dict[str, Schema] = {
            "epoch": {
                "type": "integer",
                "minimum": -1,
                "description": "The epoch of all entities of the page.",
            },
            "entities": {"type": "array", "items": self._schemas.entity(entity)},
            "after": after,
        }
        schema = {"type": "object", "properties": properties, "required": list(properties)}
        return {JSON: {"schema": schema}, MSGPACK: {"schema": {}}}

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
        event = _FAILED_ATOM if is_failed else self._schemas.written(stream.annotation)
        atom = {"properties": {"events": {"type": "array", "items": event}}}
        filters = (
            Parameter(
                name, "query", f"Only events with this value of `{name}`.", self._schemas.read(each)
            )
            for name, each in filters_of(stream).items()
        )
        route = replace(
            _FOLLOW,
            path=f"/streams/{stream.name}",
            name=f"follow.{stream.name}",
            parameters=(*_FOLLOW.parameters, *filters),
        )
        body = {**_ATOMS, "properties": {"atoms": {"items": atom}}}
        return _followed(route, f"Follow stream {stream.name}.", body)

    def _table(self, table: PublishedTable[Any]) -> Route:
        change = self._schemas.written(table.annotation)
        route = replace(_TABLE, path=f"/tables/{table.name}", name=f"table.{table.name}")
        body = {**_PAGE, "properties": {"changes": {"type": "array", "items": change}}}
        return _followed(route, f"Copy table {table.name}, and follow its changes.", body)

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
        if route.signed is not None:
            description = " ".join(filter(None, (description, SIGNED.text)))
            given = _SIGNED_HEADERS[route.signed.form]
        else:
            given = (*self._query_of(route, signature), ID)
        operation = Route(
            route.verb,
            route.path,
            "route",
            name,
            SIGNED if route.signed is not None else OF_TARGET,
            summary=summary,
            description=description,
            tag=_tag_of(entity),
            parameters=(*self._path_of(route, entity, signature), *given),
            answers=(Answer("The request took effect.", content, headers, route.status),),
            errors=(*WITH_BODY, *APPENDED, route.refused),
            body=self._route_body(route, signature),
            is_body_required=route.signed is not None,
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
        if route.signed is not None:
            return {JSON: {"schema": self._schemas.parameter(beyond[0])}}
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


def _header(name: str, text: str) -> Parameter:
    return Parameter(name, "header", text, {"type": "string"}, is_required=True)


_SIGNED_HEADERS: Final[Mapping[Form, tuple[Parameter, ...]]] = {
    "standard": (
        _header("webhook-id", "The id of the event, which is the request id."),
        _header("webhook-timestamp", "Seconds since the Unix epoch."),
        _header(
            "webhook-signature", "`v1,` and the base64 of an HMAC-SHA256 over `ID.SECONDS.BODY`."
        ),
    ),
    "github": (
        _header("X-GitHub-Delivery", "The id of the event, which is the request id."),
        _header("X-Hub-Signature-256", "`sha256=` and the HMAC-SHA256 over the body."),
    ),
    "stripe": (
        _header("Stripe-Signature", "`t=SECONDS,v1=` and the HMAC-SHA256 over `SECONDS.BODY`."),
    ),
}
"""The headers of a webhook, by the form of its signature."""


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
    if entity is not None and method in CREATIONS:
        creation = CREATIONS[method]
        return f"{creation.summary} {with_article(entity.name)}.", creation.details
    if entity is not None and method in RESERVED:
        return f"{_STANDING_METHODS[method]} {with_article(entity.name)}.", ""
    summary, _, description = docstring_of(signature.function).partition("\n\n")
    return " ".join(summary.split()) or f"Call {signature.name}.", description.strip()


_STANDING_METHODS: Final = {
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


_DESCRIPTION: Final = """\
Every request is a transaction: it takes effect once, exactly as its response says, or not at all. \
The response is sent when the epoch of the request is committed, and names that epoch.

Arguments are a JSON array by position, or a JSON object by name; an integer has no fraction. \
`/call/…` waits for the reply, `/send/…` does not. A request that is sent again with the same \
`Idempotency-Key` takes effect once and gets the same reply. \
With `Content-Type` or `Accept: application/msgpack`, arguments or replies are MessagePack, which \
keeps all types."""

_HEADERS: Final = {
    EPOCH: {
        "description": "The epoch of the response.",
        "schema": {"type": "integer", "minimum": -1},
    },
    REQUEST_ID: {
        "description": "The request id: the caller's `Idempotency-Key`, or a new id. Absent for a "
        "`@readonly` call that is not recorded.",
        "schema": {"type": "string"},
    },
    "Location": {
        "description": "The path that returns the status of the request.",
        "schema": {"type": "string", "format": "uri-reference"},
    },
    RETRY_AFTER: {
        "description": "Seconds to wait before the next attempt.",
        "schema": {"type": "integer", "minimum": 0},
    },
}
_SECURITY: Final = {
    "bearer": {
        "type": "http",
        "scheme": "bearer",
        "description": "An API key, or a JSON Web Token.",
    },
    "apiKey": {"type": "apiKey", "in": "header", "name": "X-API-Key", "description": "An API key."},
}


def openapi_document(
    app: App, *, server_url: str | None = None, secured: bool = False
) -> dict[str, Any]:
    """Return the OpenAPI document of an application.

    Args:
        server_url: The URL of the server; None is `/`.
        secured: Whether a key or token is required; otherwise the document says that they are
            optional.
    """
    orders = [route for route, _ in order_routes()]  # they add the schemas of their bodies
    schemas = SchemaRegistry(app, builtin_schemas())
    paths = Paths()
    for route in Operations(app, schemas).routes():
        paths.add(route)
    for handlers in KINDS:
        for route, _ in routes_of(handlers):
            if route.name and (route.tag != STREAMS or app.topology.streams):
                paths.add(route)
    for route in orders:
        paths.add(route)
    declared = declared_errors(app)
    own = {code_of(each): docstring_of(each).partition("\n")[0] for each in declared}
    own.pop(Aborted.code, None)
    if declared:
        bodies = [*map(schemas.error, declared), reference_to("PenstockErrorBody")]
        schemas.components["PenstockError"]["properties"]["error"] = {"anyOf": bodies}
    refused = {STATUS[Aborted.code], *(route.refused for route in app.routes)}
    required: list[dict[str, list[str]]] = [{"bearer": []}, {"apiKey": []}]
    tags = [
        {"name": name, **_description_of(entity.cls)}
        for name, entity in sorted(app.entities.items())
    ]
    tags += [{"name": FUNCTIONS}] if app.functions else []
    tags += [{"name": STREAMS}] if app.topology.streams else []
    document = {
        "openapi": "3.1.0",
        "info": {"title": app.name, "version": "", "description": _DESCRIPTION},
        "servers": [{"url": server_url or "/"}],
        "security": required if secured else [{}, *required],
        "tags": [*tags, {"name": "Requests"}, {"name": "SQL"}, {"name": "Gateway"}],
        "paths": paths.sorted(),
        "components": {
            "schemas": dict(sorted(schemas.components.items())),
            "responses": {
                f"Error{status}": error_response_of(status, own if status in refused else {})
                for status in sorted({*meanings(), *refused})
            },
            "headers": _HEADERS,
            "securitySchemes": _SECURITY,
        },
    }
    document["info"] |= {"version": _version_of(document)}  # type: ignore[operator]
    return document


class Paths:
    """The paths of a document. Paths that differ in their names alone are one."""

    def __init__(self) -> None:
        self._items: dict[str, dict[str, Any]] = {}
        self._written: dict[str, str] = {}

    def add(self, route: Route) -> None:
        """Add an operation; its parameters in the path stand first, in the path's order."""
        shape = "/".join("{}" if part[:1] == "{" else part for part in route.path.split("/"))
        known = self._written.setdefault(shape, route.path)
        names = [part[1:-1] for part in known.split("/") if part[:1] == "{"]
        operation = _operation(route)
        for name, parameter in zip(names, operation.get("parameters", ()), strict=False):
            parameter["name"] = name
        self._items.setdefault(known, {})[route.verb.lower()] = operation

    def sorted(self) -> dict[str, dict[str, Any]]:
        """Return all, by path and by verb."""
        return {
            path: dict(sorted(operations.items()))
            for path, operations in sorted(self._items.items())
        }


def _operation(route: Route) -> dict[str, Any]:
    """Return a route as an operation of the document."""
    operation: dict[str, Any] = {
        "operationId": route.name,
        "tags": [route.tag],
        "summary": route.summary,
    }
    if route.description:
        operation["description"] = route.description
    if route.right in (OPEN, SIGNED):
        operation["security"] = []
    if route.parameters:
        operation["parameters"] = [_parameter(each) for each in route.parameters]
    if route.is_readonly:
        operation["x-penstock-readonly"] = True
    errors = {*(OF_OPEN_PATH if route.right is OPEN else ALWAYS), *route.errors}
    if route.body is not None:
        operation["requestBody"] = {"content": route.body, "required": route.is_body_required}
        errors.update(WITH_BODY)
    answers = {}
    for answer in route.answers:
        described: dict[str, Any] = {"description": answer.text}
        if answer.headers:
            described["headers"] = {
                name: {"$ref": f"#/components/headers/{name}"} for name in answer.headers
            }
        answers[str(answer.status)] = described | {"content": answer.content}
    operation["responses"] = dict(sorted((error_references(errors) | answers).items()))
    return operation


def _parameter(parameter: Parameter) -> dict[str, Any]:
    described: dict[str, Any] = {"name": parameter.name, "in": parameter.place}
    if parameter.text:
        described["description"] = parameter.text
    if parameter.is_required is not None:
        described["required"] = parameter.is_required
    if parameter.is_json:
        return described | {"content": {JSON: {"schema": parameter.schema}}}
    return described | {"schema": parameter.schema}


def _description_of(cls: type) -> dict[str, str]:
    text = docstring_of(cls)
    return {"description": text} if text else {}


def _version_of(document: dict[str, Any]) -> str:
    """Return a version that changes with the content of the document."""
    described = {name: document[name] for name in ("paths", "components")}
    return f"{fingerprint_of(msgspec.json.encode(described).decode()):016x}"


def builtin_schemas() -> dict[str, Any]:
    """Return the schemas by the names of their components, in order."""
    structs = COMPONENTS.values()
    _, schemas = msgspec.json.schema_components(structs, ref_template=SCHEMAS + "{name}")
    renamed = {name: component_of(name) for name in schemas}
    return {renamed[name]: _rewritten(schemas[name], renamed) for name in sorted(renamed)}


def _rewritten(schema: Any, renamed: Mapping[str, str]) -> Any:
    """Return a schema with renamed references, without titles and details of docstrings."""
    match schema:
        case {"$ref": str(reference), **rest}:
            name = renamed[reference.removeprefix(SCHEMAS)]
            return {"$ref": SCHEMAS + name, **rest}
        case {"title": _, "description": str(text), "properties": _, **rest}:
            summary = {"description": text.partition("\n\n")[0], "properties": schema["properties"]}
            return _rewritten(rest | summary, renamed)
        case dict():
            return {key: _rewritten(value, renamed) for key, value in schema.items()}
        case list() | tuple():  # a tuple is the default of a field
            return [_rewritten(item, renamed) for item in schema]
        case _:
            return schema


def _followed(route: Route, summary: str, body: Schema) -> Route:
    """Return a route with pages of JSON or MessagePack, and with server-sent events; `body` describes a page."""
    content: Content = {
        JSON: {"schema": body},
        MSGPACK: {"schema": {}},
        EVENTS: {"schema": {"type": "string"}},
    }
    answers = (replace(route.answers[0], content=content),)
    return replace(route, tag=STREAMS, summary=summary, answers=answers)
