"""Types whose values run code of the application when they are decoded, and types that do not."""

import enum
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, NamedTuple, TypedDict, TypeVar

import msgspec
import pydantic
import pytest

from penstock.base.class_code import has_code

T = TypeVar("T")


@dataclass(frozen=True, order=True, slots=True)
class Point:
    x: int
    tags: list[str] = field(default_factory=list)

    def length(self) -> int:
        return self.x

    def __repr__(self) -> str:
        return "a point"


@dataclass
class Checked:
    x: int

    def __post_init__(self) -> None:
        assert self.x


@dataclass
class Heir(Checked):
    y: int


@dataclass
class Made:
    made: list[str] = field(default_factory=lambda: ["made"])


@dataclass
class Hashed:
    x: int

    def __hash__(self) -> int:
        return 0


@dataclass
class Box(Generic[T]):
    held: T


class Pair(NamedTuple):
    one: int
    two: str


class Words(TypedDict, total=False):
    one: int


class Plain(msgspec.Struct):
    x: int


class Strict(msgspec.Struct):
    x: int

    def __post_init__(self) -> None:
        assert self.x


class Colour(enum.Enum):
    RED = 1


class Lenient(enum.StrEnum):
    RED = "red"

    @classmethod
    def _missing_(cls, value: object) -> Any:
        return cls.RED


class Model(pydantic.BaseModel):
    x: int


@dataclass
class Deep:
    inner: dict[str, list[Checked | None]]


WITHOUT = (int, str, Any, None, list[int], dict[str, Point], Point, Pair, Words, Plain, Colour,
           Box[int], Literal["a"], tuple[Point, ...], Pair | None)  # fmt: skip
WITH = (Checked, Heir, Made, Hashed, Strict, Lenient, Model, Deep, Box[Checked], list[Strict],
        Checked | None, dict[Lenient, int], tuple[Model, ...])  # fmt: skip


@pytest.mark.parametrize("annotation", WITHOUT, ids=str)
def test_type_without_code_is_read_at_once(annotation: Any) -> None:
    """Generated methods, own methods and texts for people are not called while a value is read."""
    assert not has_code(annotation)


@pytest.mark.parametrize("annotation", WITH, ids=str)
def test_type_with_code_is_known(annotation: Any) -> None:
    """Checks, factories, hashes and models are found at any depth."""
    assert has_code(annotation)
