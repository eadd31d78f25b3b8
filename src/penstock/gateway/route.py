"""`@Route(…)`: a handler declares its paths, each with right, parameters, body and answers; `Router` finds the handler.

The router, the check of rights and the OpenAPI document read this declaration; nothing repeats it. The docstring of the
handler is the text of the document: its first line is the summary, the paragraphs behind it are the description.

A path is split before it is decoded, so that a key may hold a slash (`%2F`). A literal segment takes precedence over a
name. A search takes one dictionary look-up per segment for any number of routes.
"""

from collections.abc import Awaitable, Callable, Container, Iterator, Mapping
from typing import Any, Final, TypeVar, get_args, get_origin
from urllib.parse import unquote_to_bytes

import msgspec
from starlette.responses import Response

from penstock.base.http import EPOCH, IDEMPOTENCY_KEY, JSON, MIN_EPOCH, REQUEST_ID
from penstock.gateway.auth.principal import Principal
from penstock.gateway.auth.tickets import FIELD
from penstock.gateway.errors import HttpError
from penstock.gateway.http_request import HttpRequest

Content = Mapping[str, Mapping[str, Any]]
"""The JSON schemas of a body, by media type."""

Body = type[msgspec.Struct]
"""The struct of a body."""

F = TypeVar("F", bound=Callable[..., Any])

_ROUTES: Final = "__penstock_routes__"

SCHEMAS: Final = "#/components/schemas/"

COMPONENTS: Final[dict[str, Body]] = {}
"""The structs that routes refer to, by the names of their components in the document."""

_NAMES: Final = {
    "AtomBody": "Atom",
    "AtomsBody": "Atoms",
    "CancelledRequest": "Cancelled",
    "ErrorAnswer": "Error",
    "FailedAtomBody": "FailedAtom",
    "FailedRequests": "Failed",
    "FlowState": "Flow",
    "HistoryDocument": "History",
    "ListedDeployment": "Deployment",
    "PartitionProposal": "Partitions",
    "QueryBody": "Question",
    "ReadBody": "Reads",
    "RecentLoad": "Load",
    "RequestStatus": "Request",
    "StreamBody": "Stream",
    "StreamsBody": "Streams",
    "TraceDocument": "Trace",
    "TracedCall": "Call",
}
"""The names of structs in the document, where they differ; clients are generated with them."""

REQUESTS: Final = "Requests"
STREAMS: Final = "Streams"
"""Groups of the document."""

READ: Final = ("min_epoch", "timeout")
"""Fields of reads that the document does not show, because it shows the header `Penstock-Min-Epoch`."""

APPENDED: Final = (409, 429, 504)
"""Statuses of errors of a path that appends a request."""

SHOWN: Final = (EPOCH,)
"""Headers of the response to a read."""

CALLED: Final = (EPOCH, REQUEST_ID)
"""Headers of the response to a call."""

AN_OBJECT: Final[Content] = {JSON: {"schema": {"type": "object"}}}
Handler = Callable[[HttpRequest], Awaitable[Response]]
PATH_BYTES_MAX: Final = 8_192


class Right(msgspec.Struct, frozen=True):
    """The right that a principal needs for a path.

    Attributes:
        check: Raises `Forbidden` without the right; None: the handler checks the right, if it needs any.
    """

    text: str = ""
    check: Callable[[Principal], None] | None = None


OPEN: Final = Right()
"""No credential is needed, and the path is served while the gateway drains."""

SIGNED: Final = Right("Needs a signature of its sender, and no credential.")
"""The handler finds the principal: its signature is over the body."""

OF_TARGET: Final = Right()
"""The class, method, stream or request that is named decides; the handler checks it."""

SQL: Final = Right("Needs the scope `sql`.", Principal.require_sql)
WATCH: Final = Right("Needs the scope `watch` or `admin`.", Principal.require_watch)
ADMIN: Final = Right("Needs the scope `admin`.", Principal.require_admin)


def admin_key(order: str) -> Right:
    """Return the right of an order that an open gateway refuses; its message names the order."""
    text = "Needs a key or token with the scope `admin`."
    return Right(text, lambda principal: principal.require_admin_key(order))


class Parameter(msgspec.Struct, frozen=True):
    """A name in a path, a field of the query string, or a header.

    Attributes:
        place: `path`, `query` or `header`.
        text: The description; may be empty.
        schema: The JSON schema.
        is_required: Whether it must be there; None: the document does not say it.
        is_json: Whether the text is JSON.
    """

    name: str
    place: str
    text: str
    schema: Mapping[str, Any]
    is_required: bool | None = None
    is_json: bool = False


class Answer(msgspec.Struct, frozen=True):
    """A response without an error.

    Attributes:
        content: The schemas by media type; the document fills in those that depend on the application.
    """

    text: str
    content: Content
    headers: tuple[str, ...] = ()
    status: int = 200


class Route(msgspec.Struct, frozen=True):
    """A path and a verb, as declared; a handler is decorated with its routes.

    Attributes:
        verb: The HTTP method.
        path: The path, in which `{name}` stands for a segment.
        kind: The name of the route in metrics.
        name: The id of the operation in the document; empty: the document has an operation for each class, method or
            stream instead, or none.
        right: The right that a principal needs.
        parameters: The parameters; those of the query string are its only fields.
        fields: Fields of the query string that the document does not show; None: any field, because they are the
            arguments of the application's own handler.
        has_filters: Whether the handler takes any other field, too: the name of an attribute, and the value that it must have.
        body: The content of the body; None: the body is ignored.
        is_body_required: Whether there must be a body.
        answers: The responses without an error.
        errors: The statuses of errors beyond those of every path, and of every path with a body.
        tag: The group in the document.
        is_readonly: Whether it calls a `@readonly` handler.
        summary: The first line of the text in the document.
        description: The rest of the text.
    """

    verb: str
    path: str
    kind: str
    name: str = ""
    right: Right = OF_TARGET
    parameters: tuple[Parameter, ...] = ()
    fields: tuple[str, ...] | None = ()
    has_filters: bool = False
    body: Content | None = None
    is_body_required: bool = True
    answers: tuple[Answer, ...] = ()
    errors: tuple[int, ...] = ()
    tag: str = "Gateway"
    is_readonly: bool = False
    summary: str = ""
    description: str = ""

    @property
    def query_fields(self) -> frozenset[str] | None:
        """The fields of the query string; None: any field."""
        if self.fields is None:
            return None
        documented = {each.name for each in self.parameters if each.place == "query"}
        return frozenset(documented.union(self.fields))

    def __call__(self, handler: F) -> F:
        """Declare this route at its handler, which may have several."""
        summary, description = texts_of(handler)
        text = " ".join(filter(None, (description, self.right.text)))
        route = msgspec.structs.replace(self, summary=summary, description=text)
        setattr(handler, _ROUTES, (route, *routes_at(handler)))
        return handler


def routes_of(handlers: type) -> Iterator[tuple[Route, str]]:
    """Yield the routes that the methods of a class declare, each with the name of its method."""
    for name, member in vars(handlers).items():
        for route in routes_at(member):
            yield route, name


def routes_at(method: Callable[..., Any]) -> tuple[Route, ...]:
    """Return the routes that a method declares, in order."""
    routes: tuple[Route, ...] = getattr(method, _ROUTES, ())
    return routes


def component_of(struct: str) -> str:
    """Return the name of a struct in the document."""
    return f"Penstock{_NAMES.get(struct, struct)}"


def reference_to(component: str | Body) -> dict[str, str]:
    """Return a schema that refers to a component; a struct becomes a component of the document."""
    if not isinstance(component, str):
        struct, component = component, component_of(component.__name__)
        COMPONENTS[component] = struct
    return {"$ref": SCHEMAS + component}


def json_content(body: Any, *other_types: str) -> dict[str, Any]:
    """Return the content of a JSON body.

    Args:
        body: A struct, or a list of a struct.
        other_types: Further media types, which have no schema.
    """
    schema: dict[str, Any]
    if get_origin(body) is list:
        schema = {"type": "array", "items": reference_to(*get_args(body))}
    else:
        schema = reference_to(body)
    return {JSON: {"schema": schema}, **{each: {"schema": {}} for each in other_types}}


def any_of(*bodies: Body) -> dict[str, Any]:
    """Return the schema of a body that is one of several structs."""
    return {"schema": {"anyOf": [reference_to(each) for each in bodies]}}


def page(media_type: str, schema: Mapping[str, Any] | None = None) -> Answer:
    """Return the answer of a check or a page."""
    return Answer("The check or the page.", {media_type: {"schema": schema or {}}})


def waits(content: Content) -> Answer:
    """Return the answer to an order that is in the log, and waits for the driver."""
    text = "The order is in the log, and waits for the driver."
    return Answer(text, content, ("Location",), 202)


def epoch_bound(name: str, text: str, *, is_required: bool = False) -> Parameter:
    """Return a field of the query string that is an epoch."""
    return Parameter(name, "query", text, {"type": "integer", "minimum": 0}, is_required)


def seconds(name: str, text: str) -> Parameter:
    """Return a field of the query string that is a number of seconds."""
    return Parameter(name, "query", text, {"type": "number", "minimum": 0})


TO_EPOCH: Final = epoch_bound("to", "The last epoch. The default is the newest.")
TIMEOUT: Final = seconds("timeout", "Seconds to wait for the reply.")
ORDER_TIMEOUT: Final = seconds("timeout", "Seconds to wait for the driver; at most 60.")
ID: Final = Parameter(
    IDEMPOTENCY_KEY,
    "header",
    "The request id. A repeated id with the same body takes effect once and gets the "
    "same reply; with another body it is refused. Each API key has its own ids.",
    {"type": "string", "pattern": "^[!-}]+$", "maxLength": 1_024},
)
MIN_EPOCH_HEADER: Final = Parameter(
    MIN_EPOCH,
    "header",
    "The oldest epoch that may answer; the gateway waits for it.",
    {"type": "integer", "minimum": 0},
)
TICKET: Final = Parameter(
    FIELD,
    "query",
    "A ticket of `POST /streams/-/tickets`, in place of a credential.",
    {"type": "string"},
)
"""The parameter of a path whose event stream a ticket opens."""

NAMED: Final = Parameter(
    "id",
    "path",
    "A request id that this caller chose or received. The scope `admin` also allows "
    "`principal~id`, and `~id` for a request without a principal.",
    {"type": "string", "pattern": "^([!-}]*~)?[!-}]+$"},
    is_required=True,
)
"""The parameter of a path that names a request."""


def texts_of(declared: Callable[..., Any]) -> tuple[str, str]:
    """Return the first line of a docstring, and the paragraphs up to its first section, as one line."""
    summary, *paragraphs = (declared.__doc__ or "").split("\n\n")
    kept = []
    for paragraph in paragraphs:
        if paragraph.lstrip().startswith(("Args:", "Attributes:", "Returns:", "Raises:")):
            break
        kept.append(" ".join(paragraph.split()))
    return summary.strip(), " ".join(kept)


class Endpoint(msgspec.Struct, frozen=True):
    """A route and its handler.

    Attributes:
        fields: The fields of its query string; None: they are the arguments of the application's own handler.
        has_filters: Whether there may be others.
        is_open: Whether it needs no credential, and is served while the gateway drains.
        is_signed: Whether the handler finds the principal.
        takes_ticket: Whether a ticket may stand for a credential.
        check: Raises `Forbidden` for a principal without the right; None: the handler does it.
    """

    handler: Handler
    route_kind: str
    fields: frozenset[str] | None
    has_filters: bool
    is_open: bool
    is_signed: bool
    takes_ticket: bool
    check: Callable[[Principal], None] | None
    names: tuple[str, ...]


class _Node(msgspec.Struct):
    """A node of the tree of paths."""

    literal: dict[bytes, "_Node"] = msgspec.field(default_factory=dict)
    named: "_Node | None" = None
    endpoints: dict[str, Endpoint] = msgspec.field(default_factory=dict)


class Router:
    """The tree of paths and their handlers."""

    def __init__(self) -> None:
        self._root = _Node()

    def serve(self, handlers: object, without: Container[str] = ()) -> None:
        """Add all routes that the methods of an object declare, except for some paths."""
        for route, method in routes_of(type(handlers)):
            if route.path not in without:
                self.add(route, getattr(handlers, method))

    def add(self, route: Route, handler: Handler) -> None:
        """Add a route with its handler.

        Raises:
            ValueError: Verb and path have a handler already.
        """
        node, names = self._root, []
        for segment in route.path.strip("/").split("/"):
            if segment[:1] == "{":
                names.append(segment[1:-1])
                node.named = node = node.named or _Node()
            else:
                node = node.literal.setdefault(segment.encode(), _Node())
        if route.verb in node.endpoints:
            raise ValueError(f"{route.verb} {route.path} has a handler already")
        node.endpoints[route.verb] = Endpoint(
            handler,
            route.kind,
            route.query_fields,
            route.has_filters,
            route.right is OPEN,
            route.right is SIGNED,
            TICKET in route.parameters,
            route.right.check,
            tuple(names),
        )

    def find(self, verb: str, raw_path: bytes) -> tuple[Endpoint, dict[str, str]] | None:
        """Return the endpoint of a path, and the values of its names; None if it has no handler."""
        if len(raw_path) > PATH_BYTES_MAX:
            raise HttpError(414, "path-too-long", f"a path takes at most {PATH_BYTES_MAX} bytes")
        segments = raw_path.strip(b"/").split(b"/")
        values: list[bytes] = []
        node = _descend(self._root, segments, 0, values)
        if node is None:
            return None
        endpoint = node.endpoints.get("GET" if verb == "HEAD" else verb)
        if endpoint is None:
            allowed = ", ".join(sorted(node.endpoints))
            raise HttpError(
                405,
                "method-not-allowed",
                f"this path does not accept {verb}; it accepts {allowed}",
                Allow=allowed,
            )
        try:
            named = {
                name: (unquote_to_bytes(value) if b"%" in value else value).decode()
                for name, value in zip(endpoint.names, values, strict=True)
            }
        except UnicodeDecodeError:
            raise HttpError(400, "request", "the path is not valid UTF-8") from None
        return endpoint, named


def _descend(node: _Node, segments: list[bytes], index: int, values: list[bytes]) -> _Node | None:
    """Return the node of a path, and append the segments that stand for names to the values."""
    while index < len(segments):
        segment = segments[index]
        index += 1
        literal, named = node.literal.get(segment), node.named if segment else None
        if literal is not None and named is not None:  # only this choice may be wrong
            before = len(values)
            leaf = _descend(literal, segments, index, values)
            if leaf is not None:
                return leaf
            del values[before:]
            literal = None
        if literal is not None:
            node = literal
        elif named is not None:
            values.append(segment)
            node = named
        else:
            return None
    return node if node.endpoints else None
