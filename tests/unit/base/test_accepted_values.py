"""Messages about a wrong member of an Enum or a Literal name the accepted values, at every door."""

from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from enum import Enum, Flag, IntEnum
from typing import Any, Literal, NamedTuple

import msgspec
import pytest

from penstock import App, Entity, RequestError, key, stream
from penstock.base.misfit import misfit_of
from penstock.model.streams.event_list import events_of_json, events_of_words


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Right(Flag):
    READ = 1
    WRITE = 2


Many = IntEnum("Many", {f"M{number}": number for number in range(12)})  # type: ignore[misc]


@dataclass
class Part:
    colour: Colour
    size: Literal[1, 2] | None = None


class Pair(NamedTuple):
    number: int
    colour: Colour


class Renamed(msgspec.Struct, rename="camel"):
    the_colour: Colour


COLOURS = "Invalid enum value 'x'; accepted are 'red', 'blue'"


@pytest.mark.parametrize(
    ("annotation", "text", "message"),
    [
        (Colour, '"x"', COLOURS),
        (Colour | None, '"x"', COLOURS),
        (Part, '{"colour": "x"}', f".colour: {COLOURS}"),
        (
            Part,
            '{"colour": "red", "size": 3}',
            ".size: Invalid enum value 3; accepted are 1, 2",
        ),
        (list[Part], '[{"colour": "x"}]', f"[0].colour: {COLOURS}"),
        (dict[str, list[Colour]], '{"a": ["x"]}', f"[...][0]: {COLOURS}"),
        (dict[Colour, int], '{"x": 1}', f" (a key): {COLOURS}"),
        (tuple[int, Colour], '[1, "x"]', f"[1]: {COLOURS}"),
        (tuple[Colour, ...], '["red", "x"]', f"[1]: {COLOURS}"),
        (Pair, '[1, "x"]', f"[1]: {COLOURS}"),
        (Renamed, '{"theColour": "x"}', f".theColour: {COLOURS}"),
        (Literal["a"] | list[Colour], '["x"]', f"[0]: {COLOURS}"),
        (Right, "4", "Invalid enum value 4; accepted are 1, 2, and their sums"),
        (
            Many,
            "77",
            "Invalid enum value 77; accepted are 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, …",
        ),
        (int, '"x"', "Expected `int`, got `str`"),
        (list[date], '["x"]', "[0]: Expected `date`, such as 2026-01-31"),
        (datetime, '"2026-01-31"', "Expected `datetime`, such as 2026-01-31T12:00:00Z"),
        (time, '"noon"', "Expected `time`, such as 12:30:00"),
        (timedelta, '"1h"', "Expected `timedelta`, such as PT1H30M"),
    ],
)
def test_accepted_values_are_those_at_the_place(annotation: Any, text: str, message: str) -> None:
    """The path of the message leads to the type, through records, lists, tuples, dictionaries and unions."""
    with pytest.raises(msgspec.ValidationError) as caught:
        msgspec.json.decode(text, type=annotation)
    assert str(misfit_of(str(caught.value)).explained(annotation)) == message


class Door(Entity):
    name: str = key()

    def paint(self, colour: Colour, parts: list[Part] | None = None) -> None:
        pass


def test_every_door_names_the_accepted_values() -> None:
    """Arguments from JSON, words, paths and MessagePack, and events of a stream."""
    doors = App("doors", Door, stream("colours", Colour))
    paint = doors.signature("Door", "paint")
    pack = msgspec.msgpack.encode
    expected = f"colour: {COLOURS}"
    for wrong in (
        lambda: paint.of_json(b'["x"]'),
        lambda: paint.of_json(b'{"colour": "x"}'),
        lambda: paint.of_text("colour", "x"),
        lambda: paint.of_msgpack(pack((["x"], {}))),
        lambda: paint.of_msgpack(pack(([], {"colour": "x"}))),
    ):
        with pytest.raises(RequestError, match=expected):
            wrong()
    with pytest.raises(RequestError, match=rf"parts\[0\]\.colour: {COLOURS}$"):
        paint.of_msgpack(pack((["red", [{"colour": "x"}]], {})))
    with pytest.raises(RequestError, match=f"colour=x: {COLOURS}"):
        paint.parse(["x"])
    events = doors.stream("colours").events
    with pytest.raises(RequestError, match=rf"events\[1\]: {COLOURS}$"):
        events_of_json(events, b'["red", "x"]')
    with pytest.raises(RequestError, match=rf"events\[0\]: {COLOURS}$"):
        events_of_words(events, ["x"])
