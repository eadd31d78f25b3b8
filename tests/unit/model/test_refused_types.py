"""Types that cannot be stored: each is refused by a message that names an alternative."""

from collections import deque, namedtuple
from collections.abc import Mapping, Sequence
from dataclasses import InitVar, dataclass
from datetime import date, datetime, tzinfo
from enum import Enum
from pathlib import Path
from typing import Any, Final, Generic, Literal, LiteralString, NamedTuple, Self, Set, TypeVar  # noqa: UP035

import msgspec
import pydantic
import pytest
from msgspec import UnsetType

from penstock.base.record import fields_of, simplified
from penstock.base.schema import complaints_of
from tests.unit.model.test_records import Box, Crate, Film, Shelf

T = TypeVar("T")


@dataclass
class Growing(Generic[T]):
    more: "Growing[list[T]] | None" = None
    other: "Growing[set[T]] | None" = None


@dataclass
class Selfish:
    other: Self | None = None


class Hashed(msgspec.Struct, frozen=True):
    size: int


@dataclass
class Priced:
    prices: dict[tuple[Shelf, int], int]
    others: "list[Priced]"


class PricedModel(pydantic.BaseModel):
    model_config = {"arbitrary_types_allowed": True}
    prices: dict[Shelf, int] = {}


class Mixed(Enum):
    ONE = 1
    TWO = "two"


@dataclass
class Started:
    size: int
    by: InitVar[int] = 0


class Rowlike(msgspec.Struct, array_like=True):
    size: int


@pytest.mark.parametrize(
    ("annotation", "message"),
    [
        (Sequence[int], "use list"),
        (Mapping[str, int], "use dict"),
        (complex, r"use tuple\[float, float\]"),
        (bytearray, "use bytes"),
        (object, "use Any"),
        (Path, "use str"),
        (type("Name", (str,), {}), "use str, or a NewType of it"),
        (type("Plain", (), {}), "make it a dataclass, or derive it from Entity"),
        (Growing[int], "contains itself with other arguments"),
        (Selfish, "write the name of the class in place of Self"),
        (set[Hashed], "use a frozen dataclass"),
        (set[Film], "Film cannot be the member of a set; a frozen dataclass can"),
        (dict[Hashed, int], "Hashed cannot be the key of a dictionary"),
        (Rowlike, "array_like"),
        (set[list[int]], "use a tuple or a frozenset"),
        (LiteralString, "use str"),
        (Final[int], "use the type inside of the brackets"),
        (InitVar[int], "use the type inside of the brackets"),
        (NamedTuple, "use a class that derives from NamedTuple"),
        (UnsetType, "use None"),
        (pydantic.SecretStr, "use str"),
        (tzinfo, "use str, the name of the zone"),
        (type[int], "use an Enum that names the class"),
        (slice, "use a dataclass of the values that make it"),
        (datetime | date, "use one of them, or a record with an attribute for each of them"),
        (list[int] | set[int], "use one of them, or a record with an attribute for each of them"),
        (Mixed, "give all members text, or all members whole numbers"),
        (Literal[2**63], "integer tags; use smaller numbers, or text'"),
        (Started, "make it a field"),
        (deque[dict[Shelf, int]], "references as keys; use a list of pairs"),
        (deque[Priced], "references as keys; use a list of pairs"),
        (list[PricedModel], "references as keys; use a list of pairs"),
        (Box[int] | Crate[int], "use msgspec Structs that are declared with tag=True"),
    ],
)
def test_refused_type_names_an_alternative(annotation: Any, message: str) -> None:
    """A type that cannot be stored is refused by a message that names a type to write instead."""
    with pytest.raises(AssertionError, match=message):
        assert complaints_of(annotation) == []


def test_old_forms_of_types_are_types_like_any_others() -> None:
    """A bare name of `typing` is its collection, and a field of a `namedtuple` without annotations is `Any`."""
    assert complaints_of(simplified(list[Set])) == []  # type: ignore[type-arg]  # noqa: UP006
    pair = namedtuple("pair", "left right")
    assert complaints_of(pair) == []
    assert [field.annotation for field in fields_of(pair)] == [Any, Any]


def test_huge_literal_is_checked_once() -> None:
    """A Literal of many values is a type like any other."""
    huge = Literal[tuple(f"word{number}" for number in range(5_000))]  # type: ignore[valid-type]
    assert complaints_of(huge) == []
