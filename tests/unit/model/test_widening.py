"""Types that hold the values of a former type, and types that do not."""

import enum
import uuid
from dataclasses import dataclass, field, make_dataclass
from decimal import Decimal
from typing import Any, Literal, NamedTuple

import msgspec
import pydantic
import pytest

from penstock.model.schema_change import change_of
from penstock.model.widening import narrowing
from tests.schema_classes import history, item, upcast


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


class Grown(enum.Enum):
    BLUE = 2
    GREEN = 3
    RED = 1


@dataclass
class Line:
    colour: Colour
    count: int


class Pair(NamedTuple):
    first: int
    second: int


class Triple(NamedTuple):
    first: float
    second: int
    third: str = "none"


def record(**fields: Any) -> Any:
    """Return a dataclass with the name of `Line`; a tuple is a type with its default."""
    made = [
        (name, *(kind if isinstance(kind, tuple) else (kind,))) for name, kind in fields.items()
    ]
    return make_dataclass("Line", made)


WIDER: dict[str, tuple[Any, Any, Any, Any]] = {
    "int to float": (int, float, 3, 3.0),
    "optional": (int, int | None, 3, 3),
    "optional float": (int, float | None, 3, 3.0),
    "union": (int | str, str | int | None, "x", "x"),
    "in a list": (list[int], list[float | None], [3], [3.0]),
    "in a dictionary": (dict[str, int], dict[str, float], {"a": 3}, {"a": 3.0}),
    "in a tuple": (tuple[int, str], tuple[float, str | None], (3, "x"), (3.0, "x")),
    "set": (set[int], frozenset[int], {3}, frozenset({3})),
    "enumeration": (Colour, Grown, Colour.RED, Grown.RED),
    "literal": (Literal["s"], Literal["m", "s"], "s", "s"),
    "literal to str": (Literal["s"], str, "s", "s"),
    "record": (
        Line,
        (wide := record(count=float, colour=Grown, note=(str, "-"))),
        Line(Colour.RED, 3),
        wide(3.0, Grown.RED, "-"),
    ),
    "record without a field": (Line, (few := record(count=int)), Line(Colour.RED, 3), few(3)),
    "named tuple": (Pair, Triple, Pair(1, 2), Triple(1.0, 2, "none")),
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
    "keys": (dict[int, int], dict[float, int], "keys of a dictionary stay int"),
    "longer tuple": (tuple[int], tuple[int, int], "cannot hold"),
    "any length": (tuple[int, ...], tuple[int, int], "cannot hold"),
    "enumeration": (Grown, Colour, "Colour lacks 3 of Grown"),
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
