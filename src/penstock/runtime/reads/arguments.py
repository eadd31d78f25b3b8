"""The arguments of a call as they came, and their encoding for the log.

To decode and encode arguments may run code of the application (`base.class_code`): then a reader does
it, since such code may never return. Otherwise the gateway does it itself.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, ParamSpec, TypeVar

import msgspec

from penstock.errors import PenstockError, RecordTooLarge, RequestError
from penstock.model.application import App
from penstock.model.limit import STREAMS
from penstock.model.request import check_size, packed_append
from penstock.model.signature import Signature
from penstock.model.streams.event_list import (
    events_of_json,
    events_of_json_lines,
    events_of_msgpack,
    packed_events,
)

_log = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")
Arguments = tuple[Sequence[Any], Mapping[str, Any]]
"""The arguments by position, and by name."""


class CallTarget(msgspec.Struct, frozen=True, array_like=True):
    """The method, function or stream that a path names.

    For an append, `entity` is empty and `key` is the name of the stream, as in `model.request.Request`.

    Attributes:
        entity: The name of the class; empty for a function.
        key: The text of the key; None for a function, or if the key is derived.
        method: The name of the method or function.
        former: The former name of the class; empty if it has none.
    """

    entity: str
    key: str | None
    method: str
    former: str = ""

    @property
    def stream(self) -> str | None:
        """The stream of an append; None for a call."""
        return None if self.entity else self.key

    @property
    def owner(self) -> str:
        """The class, the stream as limits name it, or an empty text for a function."""
        return self.entity if self.entity or self.key is None else f"{STREAMS}{self.key}"


class JsonArguments(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """A body in JSON: an array by position or of events, or an object by name."""

    text: bytes


class JsonLines(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """The events of an append, each a line of JSON."""

    text: bytes


class MsgpackArguments(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """A body in MessagePack: a pair of an array by position and a map by name, or an array of events."""

    data: bytes


class EncodedArguments(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Arguments as a request in the log has them."""

    positional: msgspec.Raw
    named: msgspec.Raw


class RouteArguments(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Arguments by name: texts in the path and in the query, and a JSON object in the body."""

    path: dict[str, str]
    query: dict[str, str]
    body: bytes


class WebhookArguments(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """A webhook: texts from its path, and JSON that is one argument.

    Attributes:
        name: The name of this argument.
    """

    path: dict[str, str]
    name: str
    body: bytes


ArgumentSource = (
    JsonArguments
    | JsonLines
    | MsgpackArguments
    | EncodedArguments
    | RouteArguments
    | WebhookArguments
)


class SizeLimits(NamedTuple):
    """The most bytes of a key and of a body."""

    key_bytes_max: int
    record_bytes_max: int


def encoded_call(
    app: App, limits: SizeLimits, target: CallTarget, source: ArgumentSource
) -> tuple[bytes, bytes]:
    """Return the body and the access hint of a log entry for a call or an append.

    Args:
        target: The method, function or stream.
    """
    stream = target.stream
    if stream is None:
        body, hint = _call(app, limits, target, source)
    else:
        body, hint = _append(app, stream, source), b""
    if len(body) > limits.record_bytes_max:
        check_size(body, limits.record_bytes_max)
    return body, hint


def _call(
    app: App, limits: SizeLimits, target: CallTarget, source: ArgumentSource
) -> tuple[bytes, bytes]:
    arguments = _arguments_of(app.signature(target.entity, target.method), source)
    key: object = target.key
    if target.key is not None:
        if len(target.key.encode()) > limits.key_bytes_max:
            raise RecordTooLarge(
                f"a key takes at most gateway.key_bytes_max = {limits.key_bytes_max} bytes"
            )
        key = app.key_of(target.entity, target.key)
    return app.request(target.entity, key, target.method, *arguments)


def _append(app: App, stream: str, source: ArgumentSource) -> bytes:
    events = app.open_stream(stream).events
    match source:
        case JsonArguments(text):
            values = _read(events_of_json, events, text)
        case JsonLines(text):
            values = _read(events_of_json_lines, events, text)
        case MsgpackArguments(data):
            values = _read(events_of_msgpack, events, data)
        case _:
            raise AssertionError(f"no path of a stream gives {type(source).__name__}")
    return packed_append(stream, _read(packed_events, events, values))


def _arguments_of(signature: Signature, source: ArgumentSource) -> Arguments:
    if isinstance(source, JsonArguments):
        return _read(signature.of_json, source.text)
    if isinstance(source, MsgpackArguments):
        return _read(signature.of_msgpack, source.data)
    if isinstance(source, EncodedArguments):
        return _read(signature.of_caller, source.positional, source.named)
    if isinstance(source, JsonLines):
        raise RequestError("JSON lines are events; the arguments of a call are one JSON value")
    if isinstance(source, WebhookArguments):
        in_path = {name: _read(signature.of_text, name, text) for name, text in source.path.items()}
        return (), {**in_path, source.name: _read(signature.of_sender, source.name, source.body)}
    return (), _of_route(signature, source)


def _of_route(signature: Signature, source: RouteArguments) -> dict[str, Any]:
    in_path = {name: _read(signature.of_text, name, text) for name, text in source.path.items()}
    beyond = {name: _read(signature.of_text, name, text) for name, text in source.query.items()}
    positional, by_name = _read(signature.of_json, source.body)
    if positional:
        raise RequestError("the body of this path is a JSON object of arguments by name")
    for name in by_name:
        if name in beyond:
            raise RequestError(
                f"the query string and the body both hold {name}; leave one of them out"
            )
    beyond |= by_name
    for name in in_path:
        if name in beyond:
            raise RequestError(f"the path holds {name} already; leave it out of query and body")
    return in_path | beyond


def _read(read: Callable[P, T], *values: P.args, **named: P.kwargs) -> T:
    """Read arguments with a function that may run code of the application."""
    try:
        return read(*values, **named)
    except PenstockError:
        raise
    except Exception as error:
        _log.info("the application's own code refused an argument", exc_info=True)
        raise RequestError(f"an argument was refused: {type(error).__name__}: {error}") from error
