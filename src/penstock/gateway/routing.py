"""Paths to handlers, segment by segment.

Segments are split before they are decoded, so that a key may hold a slash (`%2F`). Literal
segments win over names. Costs one dictionary look-up for each segment, however many routes.
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
class _Place:
    """What lies at one point of the tree of paths."""

    literal: dict[bytes, "_Place"] = field(default_factory=dict)
    named: "_Place | None" = None
    handlers: dict[str, tuple[Handler, tuple[str, ...], str]] = field(default_factory=dict)


class Router:
    """The tree of paths."""

    def __init__(self) -> None:
        self._root = _Place()

    def add(self, verb: str, path: str, handler: Handler, kind: str) -> None:
        """Serve a path; `{name}` in it is one segment. `kind` is its name in metrics.

        Raises:
            ValueError: Verb and path are taken.
        """
        place, names = self._root, []
        for segment in path.strip("/").split("/"):
            if segment[:1] == "{":
                names.append(segment[1:-1])
                place.named = place = place.named or _Place()
            else:
                place = place.literal.setdefault(segment.encode(), _Place())
        if verb in place.handlers:
            raise ValueError(f"{verb} {path} is served already")
        place.handlers[verb] = (handler, tuple(names), kind)

    def find(self, verb: str, raw_path: bytes) -> tuple[Handler, dict[str, str], str] | None:
        """Return what serves a path, with what its names stand for; None where nothing does.

        Raises:
            Refused: The path is too long, is no UTF-8, or is served with other verbs.
        """
        if len(raw_path) > PATH_BYTES_MAX:
            raise HttpError(414, "path-too-long", f"a path takes at most {PATH_BYTES_MAX} bytes")
        segments = raw_path.strip(b"/").split(b"/")
        values: list[bytes] = []
        place = _descend(self._root, segments, 0, values)
        if place is None:
            return None
        found = place.handlers.get("GET" if verb == "HEAD" else verb)
        if found is None:
            allowed = ", ".join(sorted(place.handlers))
            raise HttpError(
                405, "method-not-allowed", f"{verb} is not among {allowed}", Allow=allowed
            )
        handler, names, kind = found
        try:
            texts = [unquote_to_bytes(value).decode() for value in values]
        except UnicodeDecodeError:
            raise HttpError(400, "request", "the path is no UTF-8") from None
        return handler, dict(zip(names, texts, strict=True)), kind


def _descend(
    place: _Place, segments: list[bytes], index: int, values: list[bytes]
) -> _Place | None:
    if index == len(segments):
        return place if place.handlers else None
    segment = segments[index]
    literal = place.literal.get(segment)
    if literal is not None:
        found = _descend(literal, segments, index + 1, values)
        if found is not None:
            return found
    if place.named is None or not segment:
        return None
    values.append(segment)
    found = _descend(place.named, segments, index + 1, values)
    if found is None:
        values.pop()
    return found
