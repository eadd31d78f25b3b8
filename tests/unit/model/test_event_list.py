"""The events of an append have the same bytes, whatever the way on which they come."""

from datetime import datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import App, RequestError, stream
from penstock.model.request import append_events, decode_request
from penstock.model.streams.event_list import (
    encoded_events,
    events_of_json,
    events_of_json_lines,
    events_of_msgpack,
    events_of_words,
    packed_events,
)
from penstock.model.streams.event_type import EventType
from tests.unit.model.typed_values import Typed, types


@given(types, st.data())
def test_packed_events_are_the_encoded_events(typed: Typed, data: st.DataObject) -> None:
    """For any type: the array of decoded events holds the bytes that each event has alone."""
    app = App("any", stream("any", typed.annotation))
    events = app.open_stream("any").events
    values = data.draw(st.lists(typed.values, max_size=3))
    body = app.append("any", values)
    encoded = append_events(decode_request(body))
    decoded = events_of_msgpack(events, decode_request(body).positional)
    packed = msgspec.msgpack.decode(packed_events(events, decoded), type=list[msgspec.Raw])
    assert [bytes(raw) for raw in packed] == encoded == encoded_events(events, decoded)


def test_json_lines_and_words_are_json() -> None:
    """An array, lines and words of the same values are the same events."""
    events: EventType[Any] = EventType("stream s", list[int])
    assert events_of_json(events, b"[[1], [2, 3]]") == [[1], [2, 3]]
    assert events_of_json_lines(events, b"[1]\r\n\n [2, 3] ") == [[1], [2, 3]]
    assert events_of_words(events, ["[1]", "[2, 3]"]) == [[1], [2, 3]]
    assert events_of_words(EventType("stream s", str), ["a b", '"c"', "5"]) == ["a b", "c", "5"]


def test_event_that_cannot_be_stored_is_named() -> None:
    """A `datetime` without a time zone fits JSON, and not the log: the message names the event."""
    events: EventType[Any] = EventType("stream s", datetime)
    values = events_of_json(events, b'["2026-01-31T12:00:00Z", "2026-01-31T12:00:00"]')
    with pytest.raises(RequestError, match=r"stream s: events\[1\]: .*has no time zone"):
        packed_events(events, values)
