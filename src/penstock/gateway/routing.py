"""Finds the handler of a path, segment by segment.

A path is split before it is decoded, so that a key may hold a slash (`%2F`). A literal segment takes
precedence over a name. A search takes one dictionary look-up per segment for any number of routes.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import unquote_to_bytes

from starlette.responses import Response

from penstock.gateway.errors import HttpError
from penstock.gateway.http_request import HttpRequest

Handler = Callable[[HttpRequest], Awaitable[Response]]

PATH_BYTES_MAX: Final = 8_192


@dataclass(slots=True)
class _Node:
    """A node of the tree of paths."""

    literal: dict[bytes, "_Node"] = field(default_factory=dict)
    named: "_Node | None" = None
    handlers: dict[str, tuple[Handler, tuple[str, ...], str]] = field(default_factory=dict)


class Router:
    """The tree of paths and their handlers."""

    def __init__(self) -> None:
        self._root = _Node()

    def add(self, verb: str, path: str, handler: Handler, route_kind: str) -> None:
        """Add the handler of a path.

        Args:
            verb: The HTTP method.
            path: The path; `{name}` in it stands for one segment.
            handler: The handler.
            route_kind: The name of the route in metrics.

        Raises:
            ValueError: Verb and path have a handler already.
        """
        node, names = self._root, []
        for segment in path.strip("/").split("/"):
            if segment[:1] == "{":
                names.append(segment[1:-1])
                node.named = node = node.named or _Node()
            else:
                node = node.literal.setdefault(segment.encode(), _Node())
        if verb in node.handlers:
            raise ValueError(f"{verb} {path} has a handler already")
        node.handlers[verb] = (handler, tuple(names), route_kind)

    def find(self, verb: str, raw_path: bytes) -> tuple[Handler, dict[str, str], str] | None:
        """Return handler, values of the names, and kind of a path; None if it has no handler.

        Raises:
            HttpError: The path is too long, not UTF-8, or has handlers for other verbs only.
        """
        if len(raw_path) > PATH_BYTES_MAX:
            raise HttpError(414, "path-too-long", f"a path takes at most {PATH_BYTES_MAX} bytes")
        segments = raw_path.strip(b"/").split(b"/")
        values: list[bytes] = []
        node = _descend(self._root, segments, 0, values)
        if node is None:
            return None
        entry = node.handlers.get("GET" if verb == "HEAD" else verb)
        if entry is None:
            allowed = ", ".join(sorted(node.handlers))
            raise HttpError(
                405,
                "method-not-allowed",
                f"this path does not accept {verb}; it accepts {allowed}",
                Allow=allowed,
            )
        handler, names, route_kind = entry
        try:
            named = {
                name: (unquote_to_bytes(value) if b"%" in value else value).decode()
                for name, value in zip(names, values, strict=True)
            }
        except UnicodeDecodeError:
            raise HttpError(400, "request", "the path is not valid UTF-8") from None
        return handler, named, route_kind


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
    return node if node.handlers else None
