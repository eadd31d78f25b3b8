"""Types that hold the values of a former type, and types that do not."""

import enum
import uuid
from dataclasses import dataclass, field, make_dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any, Literal, NamedTuple

import msgspec
import pydantic
import pytest

from penstock.model.versions.schema_change import change_of
from penstock.model.versions.widening import misreading, narrowing
from tests.schema_classes import history, item, upcast


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


class Grown(enum.Enum):
    BLUE = 2
    GREEN = 3
    RED = 1


class Named2(enum.Enum):
    CRIMSON = 1
    RED = 1  # noqa: PIE796 -- the former name of a renamed member
    BLUE = 2


class Named1(enum.Enum):
    CRIMSON = 1
    BLUE = 2


class Inserted(enum.Enum):
    GREEN = 1
    RED = 2
    BLUE = 3


class Size(enum.StrEnum):
    S = enum.auto()
    M = enum.auto()


class Sizes(enum.StrEnum):
    XS = enum.auto()
    M = enum.auto()
    S = enum.auto()


class SwappedSizes(enum.StrEnum):
    S = "m"
    M = "s"


class Right(enum.Flag):
    READ = 1
    WRITE = 2


class Rights(enum.Flag):
    WRITE = 2
    READ = 1
    RUN = 4


class SwappedRights(enum.IntFlag):
    WRITE = 1
    READ = 2


@dataclass
class Line:
    colour: Colour
    count: int


class Pair(NamedTuple):
    first: int
    second: int


class Triple(NamedTuple):
    first: int | None
    second: int
    third: str = "none"


def record(**fields: Any) -> Any:
    """Return a dataclass with the name of `Line`; a tuple is a type with its default."""
    made = [
        (name, *(kind if isinstance(kind, tuple) else (kind,))) for name, kind in fields.items()
    ]
    return make_dataclass("Line", made)


WIDER: dict[str, tuple[Any, Any, Any, Any]] = {
    "int to int or float": (int, int | float, 2**53 + 1, 2**53 + 1),
    "optional": (int, int | None, 3, 3),
    "union": (int | str, str | int | None, "x", "x"),
    "in a list": (list[int], list[int | None], [3], [3]),
    "in a dictionary": (dict[str, int], dict[str, int | None], {"a": 3}, {"a": 3}),
    "in a tuple": (tuple[int, str], tuple[int | None, str | None], (3, "x"), (3, "x")),
    "set": (set[int], frozenset[int], {3}, frozenset({3})),
    "enumeration": (Colour, Grown, Colour.RED, Grown.RED),
    "enumeration with a second name": (Colour, Named2, Colour.RED, Named2.CRIMSON),
    "enumeration without a second name": (Named2, Named1, Named2.RED, Named1.CRIMSON),
    "text enumeration": (Size, Sizes, Size.S, Sizes.S),
    "flags": (Right, Rights, Right.READ | Right.WRITE, Rights.READ | Rights.WRITE),
    "literal": (Literal["s"], Literal["m", "s"], "s", "s"),
    "literal to str": (Literal["s"], str, "s", "s"),
    "record": (
        Line,
        (wide := record(count=int | None, colour=Grown, note=(str, "-"))),
        Line(Colour.RED, 3),
        wide(3, Grown.RED, "-"),
    ),
    "record without a field": (Line, (few := record(count=int)), Line(Colour.RED, 3), few(3)),
    "named tuple": (Pair, Triple, Pair(1, 2), Triple(1, 2, "none")),
}


@pytest.mark.parametrize("how", WIDER)
def test_wider_type_holds_stored_values(how: str) -> None:
    """A stored value has the same meaning in a wider type, at any depth."""
    before, after, value, expected = WIDER[how]
    read = upcast(item({"it": before}), item({"it": after}), it=value)["it"]
    assert (type(read), read) == (type(expected), expected)


NARROWER: dict[str, tuple[Any, Any, str]] = {
    "float to int": (float, int, "int cannot hold float"),
    "not optional": (int | None, int, "int cannot hold None"),
    "another scalar": (int, str, "str cannot hold int"),
    "decimal": (int, Decimal, "Decimal cannot hold int"),
    "in a list": (list[int], list[str], "str cannot hold int"),
    "list to set": (list[int], set[int], r"set\[int\] cannot hold list\[int\]"),
    "int to float": (int, float, "float would round"),
    "int to optional float": (int, float | None, "float would round"),
    "keys": (dict[int, int], dict[float, int], "float would round"),
    "set of floats": (set[int], set[float], "float would round"),
    "in a record": (Line, record(colour=Colour, count=float), "Line.count: float would round"),
    "int to bool": (int, bool, "bool cannot hold int"),
    "bool to int": (bool, int, "int cannot hold bool"),
    "date to datetime": (date, datetime, "datetime cannot hold date"),
    "list to tuple": (list[int], tuple[int, ...], "cannot hold"),
    "str to enumeration": (str, Size, "Size cannot hold str"),
    "enumeration to str": (Size, str, "str cannot hold Size"),
    "longer tuple": (tuple[int], tuple[int, int], "cannot hold"),
    "any length": (tuple[int, ...], tuple[int, int], "cannot hold"),
    "enumeration": (Grown, Colour, "Colour lacks 3 of Grown"),
    "inserted member": (
        Colour,
        Inserted,
        "Inserted: BLUE is stored as 2, which is RED now, RED is stored as 1, which is GREEN now",
    ),
    "renamed member": (Colour, Named1, "Named1: RED is stored as 1, which is CRIMSON now"),
    "exchanged texts": (Size, SwappedSizes, "S is stored as 's', which is M now"),
    "exchanged flags": (Right, SwappedRights, "READ is stored as 1, which is WRITE now"),
    "exchanged members of a set": (set[Colour], set[Inserted], "BLUE is stored as 2"),
    "exchanged members as keys": (dict[Colour, int], dict[Inserted, int], "BLUE is stored as 2"),
    "exchanged members in a union": (Colour | None, Inserted | None, "BLUE is stored as 2"),
    "exchanged members of a record": (
        Line,
        record(colour=Inserted, count=int),
        "Line.colour: Inserted: BLUE is",
    ),
    "literal": (Literal["s", "m"], Literal["s"], "lacks 'm'"),
    "literal of another type": (Literal[1], Literal[True], "lacks 1"),
    "field without default": (Line, record(colour=Colour, count=int, note=str), "Line.note is new"),
    "field of another type": (Line, record(colour=Colour, count=str), "Line.count: str cannot"),
    "record to scalar": (Line, int, "int cannot hold Line"),
    "named tuple": (Triple, Pair, "stored by position"),
    "named tuple and record": (Pair, Line, "Line cannot hold Pair"),
}


@pytest.mark.parametrize("how", NARROWER)
def test_narrower_type_is_refused(how: str) -> None:
    """The refusal names the attribute, both types, the reason and what can be done."""
    before, after, why = NARROWER[how]
    change = change_of(history(item({"it": before})), item({"it": after}), 7)
    assert change is not None
    (refusal,) = change.refusals
    assert refusal.startswith("it: ")
    with pytest.raises(AssertionError, match=why):
        raise AssertionError(refusal)
    assert "keep the type, or write a function with @migrate(Item, since=2)" in refusal


@dataclass
class Bare:
    pass


@dataclass
class Plain:
    n: int = 1


@dataclass
class Random:
    n: uuid.UUID = field(default_factory=uuid.uuid4)


class Named(NamedTuple):
    n: int = 1


class Packed(msgspec.Struct):
    n: int = 1
    ids: list[uuid.UUID] = msgspec.field(default_factory=list)


class Loose(msgspec.Struct):
    n: uuid.UUID = msgspec.field(default_factory=uuid.uuid4)


class Checked(pydantic.BaseModel):
    n: int = 1
    tags: list[str] = pydantic.Field(default_factory=list)


class Drawn(pydantic.BaseModel):
    n: uuid.UUID = pydantic.Field(default_factory=uuid.uuid4)


@pytest.mark.parametrize("record", [Named, Packed, Checked, Plain])
def test_new_field_of_a_record_has_a_default(record: Any) -> None:
    """A default and a factory of equal values are taken in each kind of record."""
    former: Any = NamedTuple("Former", []) if record is Named else Bare
    assert narrowing(former, record) is None


@pytest.mark.parametrize("record", [Loose, Drawn, Random])
def test_new_field_with_a_changing_default_is_refused(record: Any) -> None:
    """Each read would give another value."""
    assert "a different value each time" in (narrowing(Bare, record) or "")


class PairTurned(NamedTuple):
    second: int
    first: int


SAME: dict[str, tuple[Any, Any]] = {
    "no value is read": (int, str),
    "a larger enumeration": (Colour, Grown),
    "a smaller enumeration": (Grown, Colour),
    "int or float": (int, int | float),
    "a removed field": (Line, record(count=int)),
    "an added field": (record(count=int), Line),
    "a record and a named tuple": (Line, Pair),
    "set to list": (set[int], list[int]),
}


@pytest.mark.parametrize("how", SAME)
def test_value_that_is_read_as_it_is_or_refused(how: str) -> None:
    """A value that waits is read as the same value, or decoding refuses it."""
    assert misreading(*SAME[how]) is None


OTHER: dict[str, tuple[Any, Any, str]] = {
    "int to float": (tuple[int, str], tuple[float, str], "float would round"),
    "in a longer tuple": (tuple[str, int], tuple[str, float], "float would round"),
    "in a list that was a tuple": (tuple[int, ...], list[float], "float would round"),
    "optional": (int, float | None, "float would round"),
    "values": (dict[str, int], dict[str, float], "float would round"),
    "renamed member": (list[Colour], list[Named1], "RED is stored as 1, which is CRIMSON now"),
    "in a record": (Line, record(colour=Inserted, count=int), "Line.colour: Inserted: RED is"),
    "list to set": (list[int], set[int], "would become one"),
    "exchanged fields": (Pair, PairTurned, "stored by position"),
}


@pytest.mark.parametrize("how", OTHER)
def test_value_that_would_be_read_as_another(how: str) -> None:
    """The reason names the place and both meanings."""
    before, after, why = OTHER[how]
    assert why in (misreading(before, after) or "")
