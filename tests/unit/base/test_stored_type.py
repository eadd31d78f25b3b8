"""Stored values are read without the constraints in their records, and with all else that their types say."""

from collections import deque
from dataclasses import dataclass, field
from typing import Annotated, Any, Generic, NamedTuple, NotRequired, Optional, TypedDict, TypeVar

import msgspec
import pydantic
import pytest
from msgspec import Meta

from penstock.base.schema import decode_reference
from penstock.base.stored_type import records_have_constraints, stored_decoder

Amount = Annotated[int, Meta(ge=0)]
T = TypeVar("T")


@dataclass(frozen=True)
class Line:
    pieces: Amount
    notes: list[str] = field(default_factory=list, hash=False)


@dataclass
class Tree:
    size: Amount
    below: list["Tree"] = field(default_factory=list)
    twice: int = 0

    def __post_init__(self) -> None:
        self.twice = 2 * self.size


class Spot(NamedTuple):
    x: Amount
    y: Amount = 7


class Place(TypedDict):
    zip: Amount
    city: NotRequired[str]


class Paid(msgspec.Struct, tag=True, rename="pascal"):
    amount: Amount
    tip: int = 0


class Open(msgspec.Struct, tag=True, frozen=True):
    since: int


@dataclass
class Box(Generic[T]):
    content: T
    size: Amount = 0


class Model(pydantic.BaseModel):
    amount: int = pydantic.Field(ge=0)
    lines: list[Line] = []


@dataclass
class Free:
    size: int


CASES: list[tuple[Any, Any]] = [
    (Line, Line(-1, ["a"])),
    (list[Line], [Line(1), Line(-1)]),
    (dict[str, tuple[Line, ...]], {"a": (Line(-1),)}),
    (frozenset[Line], frozenset({Line(-1)})),
    (tuple[int, Line | None], (1, Line(-1))),
    (Optional[Line], Line(-1)),  # noqa: UP045 -- another form of union
    (Tree, Tree(-1, [Tree(-2)])),
    (Spot, Spot(-1)),
    (dict[Spot, int], {Spot(-1, -2): 1}),
    (Place, {"zip": -1}),
    (list[Place], [{"zip": -1, "city": "b"}]),
    (Paid | Open, Paid(-1)),
    (list[Paid | Open], [Open(1), Paid(-1, 2)]),
    (Box[Line], Box(Line(-1), -1)),
    (Box[Box[int]], Box(Box(1, -1))),
    (deque[Line], deque([Line(-1)])),
    (Any, [-1]),
]


@pytest.mark.parametrize(("annotation", "value"), CASES)
def test_constraints_in_records_do_not_hold(annotation: Any, value: Any) -> None:
    """The value is the same as of records without constraints, of the same classes."""

    def plain(part: Any) -> Any:
        return list(part) if isinstance(part, deque) else part

    data = msgspec.msgpack.encode(plain(value))
    if annotation is not Any:
        with pytest.raises(msgspec.ValidationError):
            msgspec.msgpack.decode(data, type=annotation, dec_hook=decode_reference)
    read = stored_decoder(annotation)(data)
    assert read == value
    assert type(read) is type(value)


def test_defaults() -> None:
    """A field that the data lacks has its default, a new one each time."""
    decode = stored_decoder(Line)
    data = msgspec.msgpack.encode({"pieces": -1, "unknown": 2})
    assert decode(data) == Line(-1)
    assert decode(data).notes is not decode(data).notes
    assert stored_decoder(Spot)(msgspec.msgpack.encode([-1])) == Spot(-1, 7)
    assert stored_decoder(Paid | Open)(
        msgspec.msgpack.encode({"type": "Paid", "Amount": -1})
    ) == Paid(-1)


def test_models() -> None:
    """A model whose values pydantic refuses now is made without validation."""
    data = msgspec.msgpack.encode({"amount": -1, "lines": [{"pieces": -2}]})
    read = stored_decoder(Model)(data)
    assert isinstance(read, Model)
    assert (read.amount, read.lines) == (-1, [Line(-2)])
    fine = stored_decoder(Model)(msgspec.msgpack.encode({"amount": 1, "lines": [{"pieces": -2}]}))
    assert fine.model_dump() == {"amount": 1, "lines": [{"pieces": -2, "notes": []}]}


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (Line, {"pieces": "x"}),
        (Line, {}),
        (list[Place], [{}]),
        (Spot, []),
        (Paid | Open, {"type": "x"}),
        (Model, {}),
    ],
)
def test_types_hold(annotation: Any, value: Any) -> None:
    """Data of another type is refused, with the message of the type itself."""
    data = msgspec.msgpack.encode(value)
    with pytest.raises(msgspec.ValidationError) as refused:
        stored_decoder(annotation)(data)
    with pytest.raises(msgspec.ValidationError) as exact:
        msgspec.msgpack.decode(data, type=annotation, dec_hook=decode_reference)
    assert str(refused.value) == str(exact.value)


def test_other_types_cost_nothing() -> None:
    """A type without such records is read by msgspec alone."""
    for annotation in (int, list[Free], Box[int] | None, dict[str, Tree]):
        has = annotation not in (int, list[Free])
        assert records_have_constraints(annotation) == has
    assert type(stored_decoder(list[Free])).__name__ == "builtin_function_or_method"
