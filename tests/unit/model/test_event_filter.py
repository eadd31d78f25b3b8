"""Filters of followed streams: an event fits if its fields have the values, whatever the kind of the record."""

import base64
import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from enum import Enum, Flag
from typing import Any, Literal, NamedTuple, NotRequired, TypedDict

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as some

from penstock import App, Entity, RequestError, key, stream
from penstock.model.event_filter import event_filter, filters_of
from penstock.model.streams.stream import Stream
from penstock.model.value_filter import texts_of_filters


class Size(Enum):
    SMALL = 1
    LARGE = 2

    @classmethod
    def _missing_(cls, value: object) -> "Size":
        raise AssertionError("a gateway runs no code of the application")


class Right(Flag):
    READ = 1
    WRITE = 2


@dataclass
class Granted:
    right: Right | None


grants = stream("grants", Granted)


class Kind(Enum):
    NULL = "null"
    MARKED = '"null"'


class Shop(Entity):
    name: str = key()


@dataclass
class Sale:
    item: str
    price: Decimal
    size: Size
    shop: Shop
    day: date | None = None
    way: Literal["cash", "card"] = "cash"
    tags: tuple[str, ...] = ()
    limit: int = 0


class Point(NamedTuple):
    x: int
    y: float = 0.5


class Note(TypedDict):
    text: str
    level: NotRequired[int]


class Bill(TypedDict):
    text: str
    cost: NotRequired[Decimal]


class Painted(msgspec.Struct):
    size: Size | None


class Paid(msgspec.Struct, tag=True):
    order: int
    amount: Decimal


class Sent(msgspec.Struct, tag=True, rename="camel"):
    order: int
    by_whom: str = "post"
    amount: str = "all"


sold, points = stream("sold", Sale), stream("points", Point)
notes, facts = stream("notes", Note), stream("facts", Paid | Sent)
bills, paintings = stream("bills", Bill), stream("paintings", Painted)
app = App("filters", grants, Shop, sold, points, notes, facts, bills, paintings)


def fitting(source: Stream[Any], events: Sequence[Any], **where: Any) -> list[Any]:
    """Return the events that fit."""
    only = event_filter(source, texts_of_filters(where))
    stored = [msgspec.msgpack.decode(source.events.encode(event)) for event in events]
    kept = only.part_of(stored)
    return [event for event, data in zip(events, stored, strict=True) if data in kept]


SALES = [
    Sale("tea", Decimal("1.00"), Size.SMALL, Shop("a")),
    Sale("tea", Decimal(2), Size.LARGE, Shop("b"), date(2026, 11, 28), "card"),
    Sale("null", Decimal(2), Size.LARGE, Shop("a"), way="card"),
]


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ({"item": "tea"}, [0, 1]),
        ({"item": "null"}, [2]),
        ({"price": Decimal("1")}, [0]),
        ({"price": 2}, [1, 2]),
        ({"size": Size.LARGE, "shop": Shop("a")}, [2]),
        ({"shop": "b"}, [1]),
        ({"day": date(2026, 11, 28)}, [1]),
        ({"day": None}, [0, 2]),
        ({"way": "card"}, [1, 2]),
        ({"item": "coffee"}, []),
    ],
)
def test_fields_have_the_values(where: dict[str, Any], expected: list[int]) -> None:
    """Values of all single types are named as in JSON, and equal Decimals are equal."""
    assert fitting(sold, SALES, **where) == [SALES[each] for each in expected]


TEXTS = ["null", '"null"', '"a"', '"', '""', "a", "None", ""]


@dataclass
class Mark:
    note: str | None = None
    shop: Shop | None = None
    size: float | None = None
    way: Literal["null", "a", None] = None
    gait: Literal["null", "a"] | None = None
    step: Literal[1, 2] | None = None
    data: bytes | None = None
    kind: Kind | None = None


marks = stream("marks", Mark)
App("marks", Shop, marks)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("note", [None, *TEXTS]),
        ("shop", [None, *map(Shop, filter(None, TEXTS))]),
        ("size", [None, 0.5, math.inf, -math.inf, math.nan]),
        ("way", [None, "null", "a"]),
        ("gait", [None, "null", "a"]),
        ("step", [None, 1, 2]),
        ("data", [None, b"", b"a", base64.b64decode("null")]),
        ("kind", [None, *Kind]),
    ],
)
def test_none_is_no_other_value(name: str, values: list[Any]) -> None:
    """Each value finds itself alone, also a text that looks like None, and a float that is no number."""
    events = [Mark(**{name: value}) for value in values]
    for event, value in zip(events, values, strict=True):
        assert fitting(marks, events, **{name: value}) == [event]


def test_texts_of_filters_are_json() -> None:
    """A text needs its quotation marks only where it would mean another value."""
    for text, expected in (("null", None), ('"null"', "null"), ("tea", "tea"), ('"tea"', "tea")):
        kept = event_filter(marks, {"note": text}).part_of([{"note": expected}, {"note": "x"}])
        assert kept == [{"note": expected}]
    assert event_filter(sold, {"item": "null"}).part_of([{"item": "null"}]) == [{"item": "null"}]
    with pytest.raises(RequestError, match="half of a surrogate pair"):
        texts_of_filters({"note": "\ud800"})


@given(some.lists(some.builds(Point, some.integers(-2, 2), some.sampled_from([0.5, 1.0, -0.0]))))
def test_a_filter_is_equality(events: list[Point]) -> None:
    """The events that fit are those whose fields are equal."""
    for x in range(-2, 3):
        for y in (0.5, 1.0, 0.0):
            wanted = [event for event in events if (event.x, event.y) == (x, y)]
            assert fitting(points, events, x=x, y=y) == wanted


def test_a_field_that_is_left_out_fits_no_value() -> None:
    """A key of a TypedDict that is not required has no default."""
    events: list[Note] = [{"text": "a"}, {"text": "a", "level": 0}]
    assert fitting(notes, events, level=0) == [events[1]]
    assert fitting(notes, events, text="a") == events
    costs: list[Bill] = [{"text": "a"}, {"text": "b", "cost": Decimal("1.0")}]
    assert fitting(bills, costs, cost=Decimal(1)) == [costs[1]]


def test_no_code_of_an_enum_runs() -> None:
    """Also where `None` is a value."""
    events = [Painted(None), Painted(Size.SMALL)]
    assert fitting(paintings, events, size=Size.SMALL) == [events[1]]
    assert fitting(paintings, events, size=None) == [events[0]]
    with pytest.raises(RequestError, match="its values are 1, 2"):
        event_filter(paintings, {"size": "3"})


def test_sum_of_a_flag_is_a_value() -> None:
    """Members of a Flag can be added; a number with another bit is no value, and no code of the class runs."""
    events = [Granted(Right(number)) for number in range(4)]
    for event in events:
        assert fitting(grants, events, right=event.right) == [event]
    for text in ("4", "-1", "READ", "01"):
        with pytest.raises(RequestError, match="its values are 1, 2, and their sums"):
            event_filter(grants, {"right": text})
    assert event_filter(grants, {"right": "null"}).part_of([{"right": None}]) == [{"right": None}]


def test_an_event_from_before_a_field_has_its_default() -> None:
    """A field that a later version added counts with its default, as a handler sees it."""
    only = event_filter(sold, {"way": "cash"})
    old = {"item": "tea", "price": "1", "size": 1, "shop": "a"}
    assert only.part_of([old, old | {"way": "card"}]) == [old]
    assert event_filter(points, {"y": "0.5"}).part_of([[1], [1, 2.0]]) == [[1]]


@pytest.mark.parametrize("price", ["cheap", "", "sNaN", "NaN", 1, None, ["1"], {"1": 1}])
def test_an_event_of_another_type_of_its_field_fits_no_value(price: Any) -> None:
    """A follower goes on over events that a former version stored with another type."""
    only = event_filter(sold, {"price": "1"})
    present = {"item": "tea", "price": "1.0", "size": 1, "shop": "a"}
    assert only.part_of([present | {"price": price}, present]) == [present]


def test_one_of_several_records_is_chosen_by_its_tag() -> None:
    """The tag is a field; only those events fit that have all named fields, by their names in JSON."""
    events = [Paid(1, Decimal(5)), Sent(1), Sent(2, "hand")]
    assert fitting(facts, events, order=1) == events[:2]
    assert fitting(facts, events, type="Sent") == [Sent(1), Sent(2, "hand")]
    assert fitting(facts, events, byWhom="post") == [Sent(1)]
    assert fitting(facts, events, amount=Decimal("5.0")) == [events[0]]
    assert fitting(facts, events, amount="all") == events[1:]
    assert fitting(facts, events, amount=5, byWhom="post") == []
    assert set(filters_of(facts)) == {"type", "order", "amount", "byWhom"}


@pytest.mark.parametrize(
    ("source", "texts", "words"),
    [
        (sold, {"itm": "tea"}, "did you mean item"),
        (sold, {"tags": "tea"}, "'tags'"),
        (sold, {"limit": "1"}, "'limit'"),
        (sold, {"price": "much"}, "sold: price: 'much' is no Decimal"),
        (sold, {"size": "3"}, "its values are 1, 2"),
        (sold, {"way": "gold"}, "way"),
        (facts, {"type": "Lost"}, "'Lost'"),
        (stream("words", str), {"word": "a"}, "the events of words are str"),
    ],
)
def test_wrong_filters_are_refused(source: Stream[Any], texts: dict[str, str], words: str) -> None:
    """The message names the field and the values; a field of the question itself is no filter."""
    with pytest.raises(RequestError) as refused:
        event_filter(source, texts)
    assert words in str(refused.value)


def test_equal_filters_share_a_reading() -> None:
    """Followers that want the same are served together."""
    one = event_filter(points, {"x": "1", "y": "1"})
    assert operator.eq(one, event_filter(points, {"y": "1", "x": "1"}))
    assert hash(one) == hash(event_filter(points, {"y": "1", "x": "1"}))
    assert one != event_filter(points, {"x": "1"})
