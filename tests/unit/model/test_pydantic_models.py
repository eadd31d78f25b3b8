"""pydantic models as attributes, arguments and results: pydantic validates, Penstock checks the types."""

import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Generic, Self, TypeVar

import msgspec
import pydantic
import pytest

from penstock import Aborted, App, Entity, key, readonly
from penstock.base.schema import complaints_of
from penstock.errors import RequestError
from penstock.gateway.openapi.json_schema import SchemaRegistry
from penstock.snapshots.table import column_of
from penstock.testing import Kit

T = TypeVar("T")


class Address(pydantic.BaseModel):
    """Where a person lives."""

    street: str = pydantic.Field(alias="streetName", min_length=2)
    number: pydantic.PositiveInt = 1
    before: Self | None = None
    data: bytes = b""
    counts: dict[int, Decimal] = {}
    since: datetime | None = None

    model_config = pydantic.ConfigDict(validate_by_name=True)

    @pydantic.field_validator("number")
    @classmethod
    def check(cls, number: int) -> int:
        if number == 13:
            raise ValueError("nobody lives at 13")
        if number == 14:
            raise RuntimeError("the validator itself fails")
        return number


def address(**fields: Any) -> Address:
    return Address(**fields)


class Pair(pydantic.BaseModel, Generic[T]):
    first: T
    second: T


class Owned(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(arbitrary_types_allowed=True, frozen=True)
    owner: "Person"


class Person(Entity):
    name: str = key()
    home: Address | None = None
    pairs: list[Pair[int]] = []
    owned: Owned | None = None

    def move(self, home: Address) -> Address:
        self.home = home
        return home

    def renumber(self, number: Any) -> None:
        assert self.home is not None
        self.home.number = number

    def pair(self, pair: Pair[int]) -> int:
        self.pairs.append(pair)
        return len(self.pairs)

    def own(self) -> None:
        self.owned = Owned(owner=self)

    @readonly
    def owner(self) -> str:
        return self.owned.owner.name if self.owned else ""


Owned.model_rebuild()
app = App("people", Person)
HOME = address(
    street="Long Lane", number=2, before=address(street="Old Lane"), data=b"\xff",
    counts={1: Decimal("1.50")}, since=datetime(2026, 1, 1, tzinfo=UTC),
)  # fmt: skip


@pytest.fixture
def kit() -> Kit:
    made = Kit(app)
    made.call.Person.create("ada")
    return made


def test_model_comes_back_as_it_was_stored(kit: Kit) -> None:
    """A model is an argument, an attribute and a result, with its own class and equal fields."""
    assert kit.call(Person.move, Person("ada"), HOME) == HOME
    stored: Any = kit.entity("Person", "ada")
    assert stored["home"] == HOME
    assert type(stored["home"]) is Address
    assert kit.call(Person.pair, Person("ada"), Pair[int](first=1, second=2)) == 1
    kit.call.Person("ada").own()
    assert kit.call.Person("ada").owner() == "ada"


def test_types_are_strict_and_validators_run(kit: Kit) -> None:
    """Penstock checks the types of the fields, and pydantic its constraints; each message has the place."""
    signature = app.signature("Person", "move")
    read: Callable[[bytes], Any] = signature.of_json
    [home], _ = read(b'[{"street": "Long Lane", "data": "/w==", "counts": {"1": "1.5"}}]')
    assert home == address(street="Long Lane", data=b"\xff", counts={1: Decimal("1.5")})
    for text, message in [
        (b'[{"street": 5}]', r"home\.street: Expected `str`, got `int`$"),
        (b'[{"street": "x"}]', r"home\.street: String should have at least 2 characters$"),
        (b'[{"street": "xx", "number": "2"}]', "Expected `int`, got `str`"),
        (b'[{"street": "xx", "number": 13}]', r"home\.number: .*nobody lives at 13$"),
        (
            b'[{"street": "xx", "before": {"street": "x"}}]',
            r"home\.before\.street: .* 2 characters$",
        ),
        (b"[{}]", "missing required field `street`"),
        (b'["street"]', "Expected `object`, got `str`"),
    ]:
        with pytest.raises(RequestError, match=message):
            read(text)


def test_wrong_model_undoes_its_transaction(kit: Kit) -> None:
    """A field that a handler made wrong is found when the transaction ends, also by a validator."""
    kit.call(Person.move, Person("ada"), HOME)
    before = kit.digest()
    for number in ("two", -1, 13, 14, None):
        with pytest.raises(Aborted):
            kit.call.Person("ada").renumber(number)
    with pytest.raises(RequestError, match="expected Pair"):
        kit.call(Person.pair, Person("ada"), Pair(first="a", second="b"))  # type: ignore[arg-type]
    assert kit.digest() == before


def test_model_in_sql_and_openapi() -> None:
    """A model is a STRUCT in SQL, an object in OpenAPI, and has the shape of a dataclass."""
    assert column_of(Pair[int], wide=False).sql == 'STRUCT("first" BIGINT, "second" BIGINT)'
    schemas = SchemaRegistry(app, {})
    schemas.read(Address)
    described = schemas.components["Address"]
    assert described["required"] == ["street"]
    assert described["description"] == "Where a person lives."
    assert "Pair[int].first: int" in app.shapes["Person"].lines
    msgspec.json.encode(schemas.components)


class Loose(pydantic.BaseModel, extra="allow"):
    size: int


class Root(pydantic.RootModel[list[int]]):
    pass


class Linked(pydantic.BaseModel):
    link: pydantic.HttpUrl


@pytest.mark.parametrize(
    ("annotation", "message"),
    [
        (Loose, "allows extra fields"),
        (Root, "use the type of its root"),
        (Linked, r"Linked\.link: HttpUrl is not a type that can be stored"),
        (set[Address], "a frozen dataclass can"),
        (Address | int, "use msgspec Structs|custom type"),
    ],
)
def test_refused_model_names_an_alternative(annotation: Any, message: str) -> None:
    """A model without fixed fields is refused, and the message says what to write."""
    assert complaints_of(Address) == []
    with pytest.raises(AssertionError, match=message):
        assert complaints_of(annotation) == []


def test_pydantic_is_never_imported() -> None:
    """An application without models works without pydantic."""
    program = "import sys, penstock.testing; print('pydantic' in sys.modules)"
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert run.stdout == "False\n"
