"""The events of an append, as a caller gives them: Python objects, JSON, JSON lines, MessagePack or words.

Each function checks the events against the type of the stream, and its error names the place of the first
wrong value: `stream orders: events[3].item: Expected `int`, got `str``. To decode events may run code of the
application, as `base.class_code` says.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import msgspec

from penstock.base.encoder import array_head
from penstock.base.given_type import without_mark
from penstock.base.lowering import lower_of, place_in
from penstock.base.misfit import misfit_of
from penstock.base.schema import ENCODER, UNENCODABLE, reason_of
from penstock.base.words import UNREADABLE, value_of_word
from penstock.errors import RequestError, Unencodable
from penstock.model.streams.event_type import EventType

T = TypeVar("T")


def given_events(stream: str, events: Iterable[T]) -> tuple[T, ...]:
    """Return the events of an append to a stream."""
    if isinstance(events, str | bytes) or not isinstance(events, Iterable):
        raise RequestError(
            f"the events for stream {stream} are no list; an atom of one event is [event]"
        )
    return tuple(events)


def encoded_events(
    events: EventType[T], values: Sequence[T], encode: Callable[[T], bytes] | None = None
) -> list[bytes]:
    """Return the bytes of each event.

    Args:
        encode: `events.encode_readable` for an append that goes to a gateway; by default `events.encode`.
    """
    encoded: list[bytes] = []
    for index, value in enumerate(values):
        try:
            encoded.append(events.encode(value) if encode is None else encode(value))
        except Unencodable as error:
            cause = error.__cause__
            if isinstance(cause, msgspec.ValidationError):
                raise _misfit(events, cause, f"[{index}]") from error
            raise _misfit(events, error, f"[{index}]{place_in(value)}") from error
    return encoded


def packed_given(
    events: EventType[T], values: Sequence[T], encode: Callable[[T], bytes] | None = None
) -> bytes:
    """Return a MessagePack array of the events that `encoded_events` returns."""
    # One call of the encoder costs a tenth of a call for each value.
    packed = events.packed(values) if len(values) > 1 else None
    if packed is not None:
        return array_head(len(values)) + packed
    return ENCODER.encode([msgspec.Raw(data) for data in encoded_events(events, values, encode)])


def packed_events(events: EventType[T], values: list[T]) -> bytes:
    """Return a MessagePack array of values that `events_of_json` or a similar function has read.

    The bytes are those of `encoded_events`. That function also refuses values that decoding would change, which
    costs more than all other work; values that were decoded have passed this check.
    """
    if events.is_personal or events.annotation is Any:
        return packed_given(events, values)
    packed = None if events.plan is None else events.plan.encode_all(values)
    if packed is not None:
        return array_head(len(values)) + bytes(packed)
    lower = lower_of(list[events.annotation])  # type: ignore[name-defined]
    try:
        return ENCODER.encode(lower(values) if lower else values)
    except UNENCODABLE:
        encoded_events(events, values)  # its error names the event
        raise


def events_of_json(events: EventType[T], text: bytes) -> list[T]:
    """Read the events of a JSON array."""
    try:
        values: list[T] = events.given_list.of_json(text)
    except UNREADABLE as error:
        raise _misfit(events, error) from error
    return values


def events_of_msgpack(events: EventType[T], data: bytes) -> list[T]:
    """Read the events of a MessagePack array; raises as `events_of_json`."""
    try:
        values: list[T] = events.given_list.of_msgpack(data)
    except UNREADABLE as error:
        raise _misfit(events, error) from error
    return values


def events_of_json_lines(events: EventType[T], text: bytes) -> list[T]:
    """Read an event from each line that is not blank; raises as `events_of_json`."""
    decode = events.given.of_json
    values: list[T] = []
    for number, line in enumerate(without_mark(text).splitlines(), 1):
        if not line.strip():
            continue
        try:
            values.append(decode(line))
        except UNREADABLE as error:
            raise _misfit(events, error, f"[{len(values)}]", f"line {number}: ") from error
    return values


def events_of_words(events: EventType[T], words: Iterable[str]) -> list[T]:
    """Read an event from each word of a command line: JSON, or bare text; raises as `events_of_json`."""
    values: list[T] = []
    for index, word in enumerate(words):
        try:
            values.append(value_of_word(word, events.given))
        except UNREADABLE as error:
            raise _misfit(events, error, f"[{index}]") from error
    return values


def _list_of(events: EventType[T]) -> type[list[T]]:
    return list[events.annotation]  # type: ignore[name-defined]


def _misfit(
    events: EventType[Any], error: Exception, place: str = "", line: str = ""
) -> RequestError:
    """Return the error about a wrong event.

    Args:
        error: The error of msgspec, or of a class of the application.
        place: The index of the event in brackets; empty if the path in the message begins with it.
        line: The number of the line, with a colon.
    """
    reason = reason_of(error).removeprefix(f"{events.place}: ")
    misfit = misfit_of(reason).explained(events.annotation if place else _list_of(events))
    return RequestError(f"{events.place}: {line}{misfit.at(f'events{place}')}")
