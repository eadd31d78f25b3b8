"""Finds the handler of a path, segment by segment.

A path is split before it is decoded, so that a key may hold a slash (`%2F`). A literal segment takes
precedence over a name. A search takes one dictionary look-up per segment for any number of routes.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import unquote_to_bytes

from starlette.responses import Response

from penstock.gateway.auth.principal import Principal
from penstock.gateway.errors import HttpError
from penstock.gateway.http_request import HttpRequest
from penstock.gateway.route import OPEN, Route, routes_of

Handler = Callable[[HttpRequest], Awaitable[Response]]

PATH_BYTES_MAX: Final = 8_192


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A route and its handler.

    Attributes:
        fields: The fields of its query string; None: they are the arguments of the application's own handler.
        is_open: Whether it needs no credential, and is served while the gateway drains.
        check: Raises `Forbidden` for a principal without the right; None: the handler does it.
    """

    handler: Handler
    route_kind: str
    fields: frozenset[str] | None
    is_open: bool
    check: Callable[[Principal], None] | None
    names: tuple[str, ...]


@dataclass(slots=True)
class _Node:
    """A node of the tree of paths."""

    literal: dict[bytes, "_Node"] = field(default_factory=dict)
    named: "_Node | None" = None
    endpoints: dict[str, Endpoint] = field(default_factory=dict)


class Router:
    """The tree of paths and their handlers."""

    def __init__(self) -> None:
        self._root = _Node()

    def serve(self, handlers: object) -> None:
        """Add all routes that the methods of an object declare."""
        for route, method in routes_of(type(handlers)):
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
            route.right is OPEN,
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
