"""Types and values that are seldom met, and a way to any type at all."""

import enum
import math
from collections import deque
from dataclasses import dataclass, field
from datetime import UTC, datetime, time, timedelta
from decimal import Decimal
from types import GenericAlias
from typing import Any, Generic, Literal, NamedTuple, NotRequired, TypedDict, TypeVar

import msgspec
from hypothesis import strategies as st

from tests.unit.model.typed_values import KEYS, SCALARS, Typed
from tests.unit.model.typed_values import types as usual_types


@dataclass(frozen=True)
class Awkward:
    """Names that SQL and Python use themselves."""

    select: int | None
    _1: str
    key: Decimal = Decimal(0)
    value: tuple[()] = ()
    self: float = 0.0


@dataclass
class Same:
    """A record with two names."""

    price: int
    cost: int


@dataclass
class Ring:
    """Holds itself by way of another one."""

    other: "Link | None" = None
    at: float = 0.0


@dataclass
class Link:
    rings: dict[str, Ring] = field(default_factory=dict)


T = TypeVar("T")


class Corner(NamedTuple):
    x: int | None
    height: float = 0.0


class Film(TypedDict):
    title: str
    year: NotRequired[int]


@dataclass
class Twice(Generic[T]):
    first: T
    others: list[T] = field(default_factory=list)


class Stool(msgspec.Struct, tag=True, rename="camel"):
    leg_count: int = 3
    price: Decimal = Decimal(0)


class Level(enum.IntFlag):
    LOW = 1
    HIGH = 2


ODD = [
    Typed(Decimal, st.sampled_from([Decimal(one) for one in ("Infinity", "-0", "1E+999", "1.10")])),
    Typed(Awkward, st.builds(Awkward, st.none() | st.integers(0, 9), st.text(max_size=2))),
    Typed(Same, st.builds(Same, st.integers(0, 9), st.integers(0, 9))),
    Typed(Ring, st.sampled_from([Ring(), Ring(Link({"a": Ring(at=math.inf)}), math.nan)])),
    Typed(Level, st.sampled_from([Level.LOW, Level.LOW | Level.HIGH])),
    Typed(Corner, st.builds(Corner, st.none() | st.integers(0, 9), st.floats())),
    Typed(Film, st.sampled_from([{"title": "Up"}, {"title": "", "year": 2009}])),
    Typed(Twice[int], st.builds(Twice[int], st.integers(0, 9), st.lists(st.integers(0, 9)))),
    Typed(Stool, st.builds(Stool, st.integers(0, 9))),
    Typed(deque[int], st.lists(st.integers(0, 9), max_size=3).map(deque)),
    Typed(Literal["a", None], st.sampled_from(["a", None])),
    Typed(int | float | None, st.integers(0, 9) | st.floats() | st.none()),
    Typed(tuple[()], st.just(())),
    Typed(str, st.text("a\0\"'\\\n\U0001f511", max_size=5)),
    Typed(
        dict[str | None, int], st.dictionaries(st.none() | st.text(max_size=1), st.integers(0, 9))
    ),
    Typed(
        dict[int | str, timedelta],
        st.dictionaries(st.integers(0, 9) | st.text(max_size=1), st.timedeltas(), max_size=2),
    ),
    Typed(dict[Literal[1, None], bool], st.dictionaries(st.sampled_from([1, None]), st.booleans())),
    Typed(
        dict[tuple[int, ...], Decimal],
        st.dictionaries(st.tuples(st.integers(0, 9)), st.decimals(allow_nan=False), max_size=2),
    ),
    Typed(
        Any,
        st.sampled_from(
            [{1: [math.inf], "1": None}, {None: b"x"}, [datetime(1, 1, 1, tzinfo=UTC)]]
        ),
    ),
]
ANY_TYPE = st.one_of(
    usual_types,
    st.sampled_from(ODD),
    st.sampled_from(ODD).map(
        lambda one: Typed(GenericAlias(list, (one.annotation,)), st.lists(one.values, max_size=2))
    ),
    st.builds(
        lambda name, one: Typed(
            GenericAlias(dict, (name.annotation, one.annotation)),
            st.dictionaries(name.values, one.values, max_size=2),
        ),
        st.sampled_from(
            [one for one in SCALARS if one in KEYS or one.annotation in (datetime, time)]
        ),
        st.sampled_from(ODD),
    ),
)
