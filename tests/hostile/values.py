"""Values that a handler may return, store or pass on: some have no encoding, some lie about it.

Each entry of `VALUES` makes one value.
"""

import array
import asyncio
import dataclasses
import enum
import math
import threading
import types
from collections import Counter, OrderedDict, UserDict, namedtuple
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, time, timedelta, tzinfo
from decimal import Decimal
from fractions import Fraction
from typing import Any, Final
from uuid import UUID

import msgspec

from penstock.model.context import current
from tests.hostile.exceptions import Text, refuse, refuse_for_good

DEEP: Final = 10_000
WIDE: Final = 20_000


class Whole(int):
    __index__ = __int__ = __eq__ = __hash__ = __repr__ = refuse
    __bool__ = __lt__ = refuse


class Items(list[Any]):
    __iter__ = __len__ = __getitem__ = __eq__ = __repr__ = refuse


class EndlessItems(list[Any]):
    """A list that has no end when it is iterated."""

    def __iter__(self) -> Iterator[Any]:
        while True:
            yield 1


class Pairs(dict[Any, Any]):
    items = keys = values = __iter__ = __len__ = __repr__ = refuse


class CancelledPairs(dict[Any, Any]):
    items = __iter__ = __len__ = refuse_for_good


class Growing(dict[Any, Any]):
    """A dictionary that grows while it is read."""

    def items(self) -> Any:
        self[len(self)] = 1
        return super().items()


class Members(set[Any]):
    __iter__ = __len__ = refuse


class Zone(tzinfo):
    utcoffset = dst = tzname = refuse


class Mark(enum.Flag):
    A = enum.auto()


class Colour(enum.Enum):
    RED = object()


@dataclasses.dataclass
class Point:
    x: Any = 1
    y: Any = 2


@dataclasses.dataclass
class Lazy:
    """A dataclass whose field is gone."""

    x: int = dataclasses.field(init=False)


class Struct(msgspec.Struct):
    x: Any = 1


class Anything:
    """An object that has every attribute, and is every class's instance."""

    def __getattr__(self, name: str) -> Any:
        return self

    def __call__(self, *_: Any, **__: Any) -> Any:
        return self


Pair = namedtuple("Pair", ["left", "right"])


def within_itself(made: Any) -> Any:
    if isinstance(made, dict):
        made["self"] = made
    else:
        made.append(made)
    return made


def struct_of_itself() -> Struct:
    made = Struct()
    made.x = made
    return made


def deep(wrap: Callable[[Any], Any], levels: int = DEEP) -> Any:
    made: Any = 1
    for _ in range(levels):
        made = wrap(made)
    return made


async def wait_for_ever() -> None:
    await asyncio.sleep(1e9)


def count_up() -> Iterator[int]:
    yield from range(3)


async def count_later() -> Any:
    yield 1


VALUES: Final[dict[str, Callable[[], Any]]] = {
    "none": lambda: None,
    "generator": count_up,
    "async generator": count_later,
    "class": lambda: Point,
    "builtin class": lambda: int,
    "generic": lambda: list[int],
    "module": lambda: math,
    "function": lambda: count_up,
    "method": lambda: [].append,
    "code": lambda: count_up.__code__,
    "object": object,
    "anything": Anything,
    "ellipsis": lambda: ...,
    "not implemented": lambda: NotImplemented,
    "lock": threading.Lock,
    "transaction": current,
    "iterator": lambda: iter([1]),
    "range": lambda: range(10**30),
    "slice": lambda: slice(1),
    "view": lambda: {1: 2}.keys(),
    "proxy": lambda: types.MappingProxyType({1: 2}),
    "namespace": lambda: types.SimpleNamespace(x=1),
    # Itself, deep, wide.
    "list of itself": lambda: within_itself([]),
    "dict of itself": lambda: within_itself({}),
    "deep list": lambda: deep(lambda inner: [inner]),
    "deep dict": lambda: deep(lambda inner: {"x": inner}),
    "deep tuple": lambda: deep(lambda inner: (inner,)),
    "deep dataclass": lambda: deep(Point),
    "rather deep list": lambda: deep(lambda inner: [inner], 200),
    "wide list": lambda: [0] * WIDE,
    "wide text": lambda: "x" * 5_000_000,
    "wide dict": lambda: dict.fromkeys(range(WIDE)),
    "wide set": lambda: set(range(WIDE)),
    "wide bytes": lambda: bytes(5_000_000),
    # Numbers and texts.
    "nan": lambda: math.nan,
    "infinite": lambda: [math.inf, -math.inf, -0.0],
    "naive": lambda: datetime(2026, 1, 1),  # noqa: DTZ001 -- this is what is wrong with it
    "big": lambda: 2**63,
    "too big": lambda: 2**64,
    "negative": lambda: -(2**63) - 1,
    "huge": lambda: 10**5_000,
    "complex": lambda: 1j,
    "fraction": lambda: Fraction(1, 3),
    "decimal nan": lambda: Decimal("sNaN"),
    "decimal infinite": lambda: Decimal("-Infinity"),
    "decimal long": lambda: Decimal("1e999999"),
    "surrogate": lambda: "\ud800",
    "surrogates": lambda: {"\ud800": ["\udfff"]},
    "zero": lambda: "a\0b",
    "bytearray": lambda: bytearray(b"abc"),
    "memoryview": lambda: memoryview(b"abc"),
    "strided": lambda: memoryview(bytearray(9))[::2],
    "array": lambda: array.array("d", [1.0]),
    "raw": lambda: msgspec.Raw(b"\xc1"),
    "raw nothing": lambda: msgspec.Raw(b""),
    "raw inside": lambda: {"x": [msgspec.Raw(b"\x93\x01")]},
    "raw surplus": lambda: msgspec.Raw(b"\x01\x02"),
    "extension": lambda: msgspec.msgpack.Ext(5, b"x"),
    "unset": lambda: msgspec.UNSET,
    # Times and ids.
    "zone": lambda: datetime(2026, 1, 1, tzinfo=Zone()),
    "first": lambda: datetime.min.replace(tzinfo=UTC),
    "last": lambda: [datetime.max.replace(tzinfo=UTC), time.max, timedelta.max, timedelta.min],
    "id": lambda: UUID(int=0),
    "id lying": lambda: type("Id", (UUID,), {"int": 7, "__str__": refuse})(int=1),
    # Subclasses that lie.
    "text": lambda: Text("a lie"),
    "whole": lambda: Whole(7),
    "items": lambda: Items([1]),
    "endless items": lambda: EndlessItems([1]),
    "pairs": lambda: Pairs(x=1),
    "cancelled pairs": lambda: CancelledPairs(x=1),
    "growing": lambda: Growing(x=1),
    "members": lambda: Members([1]),
    "ordered": lambda: OrderedDict(b=1, a=2),
    "counter": lambda: Counter("abc"),
    "user dict": lambda: UserDict(x=1),
    "pair": lambda: Pair(1, 2),
    "enum": lambda: Colour.RED,
    "flag": lambda: Mark.A,
    "dataclass": Point,
    "dataclass of refusal": lambda: Point(Items([1]), Pairs(x=1)),
    "dataclass without field": Lazy,
    "struct": Struct,
    "struct of set": lambda: Struct({"a", "b", "c", "d"}),
    "struct of raw": lambda: Struct([msgspec.Raw(b"\xc1")]),
    "struct of itself": struct_of_itself,
    # Keys.
    "key none": lambda: {None: 1},
    "key tuple": lambda: {(1, (2, 3)): 1},
    "keys alike": lambda: {1: 1, "1": 2, 1.5: 3, True.__str__(): 4},
    "keys mixed": lambda: {1: 1, "a": 2, None: 3, b"a": 4, (1,): 5},
    "key list": lambda: {frozenset([1, 2]): 1},
    "key lying": lambda: {Text("a"): 1},
    "set of sets": lambda: {frozenset([1]), frozenset()},
    "set of texts": lambda: {"a", "b", "c", "d"},
    "set mixed": lambda: {1, "a", None, b"b", 2.5},
}
"""Makers of values by name."""

ENDLESS: Final = frozenset({"endless items"})
"""Those that only the limit of time ends."""
