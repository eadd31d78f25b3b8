"""Types that an application may use, at any depth, and values of them."""

import math
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, IntEnum
from typing import Any, Literal, NamedTuple
from uuid import UUID

from hypothesis import strategies as st


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Size(IntEnum):
    SMALL = 1
    LARGE = 2


@dataclass
class Place:
    """Where something is."""

    height: float
    name: str = ""
    near: "list[Place]" = field(default_factory=list)


class Typed(NamedTuple):
    """A type, and values of it."""

    annotation: Any
    values: st.SearchStrategy[Any]


SCALARS = [
    Typed(int, st.integers(-(2**63), 2**64 - 1)),
    Typed(float, st.floats()),
    Typed(str, st.text()),
    Typed(bool, st.booleans()),
    Typed(bytes, st.binary()),
    Typed(type(None), st.none()),
    Typed(datetime, st.datetimes(timezones=st.just(UTC))),
    Typed(date, st.dates()),
    Typed(time, st.times()),
    Typed(timedelta, st.timedeltas()),
    Typed(Decimal, st.decimals(allow_nan=False, allow_infinity=False)),
    Typed(UUID, st.uuids()),
    Typed(Colour, st.sampled_from(Colour)),
    Typed(Size, st.sampled_from(Size)),
    Typed(Literal["a", 1, None], st.sampled_from(["a", 1, None])),
    Typed(Any, st.sampled_from([1, "a", [None], {"a": 1.5}])),
    Typed(Place, st.builds(Place, st.floats(), st.text(), st.just([Place(math.nan)]))),
]
KEYS = [one for one in SCALARS if one.annotation in (int, str, date, UUID, Colour, Size)]
KEYS.append(
    Typed(float, st.floats(allow_nan=False))
)  # a set and the names of a dictionary refuse NaN


KEYS += [
    Typed(bool, st.booleans()),
    Typed(tuple[int, str], st.tuples(st.integers(0, 9), st.text(max_size=3))),
]


def several(inner: st.SearchStrategy[Typed]) -> st.SearchStrategy[Typed]:
    def lists(one: Typed) -> Typed:
        return Typed(list[one.annotation], st.lists(one.values, max_size=3))  # type: ignore[name-defined]

    def rows(one: Typed, other: Typed) -> Typed:
        pair = tuple[one.annotation, other.annotation]  # type: ignore[name-defined]
        return Typed(pair, st.tuples(one.values, other.values))

    def maps(key: Typed, one: Typed) -> Typed:
        kind = dict[key.annotation, one.annotation]  # type: ignore[name-defined]
        return Typed(kind, st.dictionaries(key.values, one.values, max_size=3))

    def optional(one: Typed) -> Typed:
        if one.annotation in (type(None), Any):
            return one
        return Typed(one.annotation | None, one.values | st.none())

    def sets(one: Typed) -> Typed:
        return Typed(set[one.annotation], st.sets(one.values, max_size=3))  # type: ignore[name-defined]

    return st.one_of(
        inner.map(lists),
        st.builds(rows, inner, inner),
        st.builds(maps, st.sampled_from(KEYS), inner),
        inner.map(optional),
        st.sampled_from(KEYS).map(sets),
    )


types = st.recursive(st.sampled_from(SCALARS), several, max_leaves=5)
