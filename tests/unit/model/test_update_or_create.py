"""`update_or_create`: changes the named attributes of an entity and keeps the others, or creates it."""

from typing import Annotated

import msgspec
import pytest

from penstock import (
    App,
    DefinitionError,
    Entity,
    NoSuchEntity,
    NotUnique,
    RequestError,
    UserError,
    key,
    savepoint,
    transactional,
    unique,
)
from penstock.model.call import Call
from penstock.testing import Kit


class Guest(Entity):
    name: Annotated[str, msgspec.Meta(max_length=36)] = key()
    city: str
    visits: Annotated[int, msgspec.Meta(ge=0)] = 0
    tags: list[str] = ["new"]
    email: str | None = unique(default=None)


class Account(Entity):
    """Its `__init__` takes other parameters than the attributes, and changes one of them."""

    def __init__(self, owner: str, opening: int, /, note: str = "", *, currency: str) -> None:
        self.owner: str = owner
        self.balance: int = opening
        self.note: str = note.upper()
        self.currency: str = currency

    def __key__(self) -> str:
        return self.owner


class Tally(Entity):
    """Its `__init__` takes any names."""

    def __init__(self, at: tuple[str, int], **given: int) -> None:
        self.at: tuple[str, int] = at
        self.total: int = given.get("total", 5)
        self.given: list[str] = sorted(given)

    def __key__(self) -> tuple[str, int]:
        return self.at


class Other(Entity):
    """Its `__init__` makes another key than the one that it got."""

    def __init__(self, name: str) -> None:
        self.name: str = name + "!"

    def __key__(self) -> str:
        return self.name


@transactional
def twice(name: str, visits: int) -> bool:
    """Two updates of one entity are one entity, and a savepoint undoes one of them."""
    first = Guest.update_or_create(name, visits=visits)
    try:
        with savepoint():
            Guest.update_or_create(name, visits=visits + 1, city="undone")
            raise ValueError
    except ValueError:
        return Guest.update_or_create(name, tags=[*first.tags, "back"]) is first


@transactional
def wrong(number: int) -> None:
    """Call it in a way that it refuses."""
    match number:
        case 0:
            Guest.update_or_create("ada", "bob", city="x")  # type: ignore[call-arg]
        case 1:
            Guest.update_or_create("ada", name="ada", city="x")
        case 2:
            Guest.update_or_create("ada", town="x", street="y")
        case 3:
            Other.update_or_create("ada")
        case _:
            Guest.update_or_create("x" * 37, city="x")


app = App("guests", Guest, Account, Tally, Other, twice, wrong)


@pytest.fixture
def kit() -> Kit:
    return Kit(app)


def test_a_new_entity_gets_its_defaults(kit: Kit) -> None:
    """It is as `create` would make it."""
    assert kit.call(Guest.update_or_create, "ada", city="Ulm") == Guest("ada")
    kit.call(Guest.create, "bob", city="Ulm")
    ada, bob = kit.entity("Guest", "ada"), kit.entity("Guest", "bob")
    assert ada is not None
    assert bob is not None
    assert ada | {"name": "bob"} == bob


def test_what_is_not_named_stays(kit: Kit) -> None:
    """Named attributes change, also to None and to their defaults; a call that names none changes nothing."""
    kit.call(Guest.create, "ada", city="Ulm", visits=3, tags=["old"], email="a@x")
    kit.call(Guest.update_or_create, "ada", visits=0, email=None)
    before = kit.entity("Guest", "ada")
    assert before == {"name": "ada", "city": "Ulm", "visits": 0, "tags": ["old"], "email": None}
    assert kit.call(Guest.update_or_create, "ada") == Guest("ada")
    assert kit.call(Guest.update_or_create, name="ada") == Guest("ada")
    assert kit.call.Guest("ada").update_or_create() == Guest("ada")
    assert kit.entity("Guest", "ada") == before


@pytest.mark.parametrize("key", ["ada", None])
def test_a_new_entity_that_lacks_attributes_is_refused(kit: Kit, key: str | None) -> None:
    """The refusal names what a new entity needs; nothing is created."""
    with pytest.raises(NoSuchEntity, match=r"a new one needs city$"):
        kit.call(Guest.update_or_create, key, visits=3)
    with pytest.raises(
        NoSuchEntity, match=r"Account 'ada' does not exist, and a new one needs opening, currency$"
    ):
        kit.call(Account.update_or_create, "ada", note="x")
    assert kit.entities("Guest") == {}


def test_a_key_can_be_derived(kit: Kit) -> None:
    """Without a key, the entity is new."""
    made = [kit.call(Guest.update_or_create, city="Ulm") for _ in range(2)]
    assert len({*made}) == 2


def test_in_a_handler_it_returns_the_entity(kit: Kit) -> None:
    """It is the object that the transaction has, and a savepoint undoes it."""
    kit.call(Guest.create, "ada", city="Ulm")
    assert kit.call(twice, "ada", 4) is True
    found = kit.entity("Guest", "ada")
    assert found is not None
    assert (found["visits"], found["city"], found["tags"]) == (4, "Ulm", ["new", "back"])


def test_values_are_checked(kit: Kit) -> None:
    """Types, constraints and unique values hold as for `create`."""
    kit.call(Guest.create, "ada", city="Ulm", email="a@x")
    for values in ({"visits": "x"}, {"visits": -1}, {"town": "Ulm"}):
        with pytest.raises(RequestError, match=r"^Guest.update_or_create(: | has no parameter)"):
            kit.submit(Call("Guest", "ada", "update_or_create", (), values))
    with pytest.raises(NotUnique):
        kit.call(Guest.update_or_create, "bob", city="Ulm", email="a@x")
    kit.call(Guest.update_or_create, "ada", email="b@x")
    kit.call(Guest.update_or_create, "bob", city="Ulm", email="a@x")


@pytest.mark.parametrize(
    ("number", "why"),
    [
        (0, "takes its key once"),
        (1, "takes its key once"),
        (2, "does not know street, town"),
        (3, "got the key 'ada', and its __init__ made Other/ada!"),
        (4, "Guest.name: Expected `str` of length <= 36"),
    ],
)
def test_wrong_uses_are_refused(kit: Kit, number: int, why: str) -> None:
    """The error says why."""
    with pytest.raises(UserError, match=why):
        kit.call(wrong, number)


def test_a_class_with_an_initializer(kit: Kit) -> None:
    """`__init__` makes a new entity of the attributes that it takes; named attributes have the named values then."""
    with pytest.raises(NoSuchEntity, match=r"needs opening$"):
        kit.call(Account.update_or_create, "ada", balance=3, currency="EUR")
    kit.call(Account.create, "ada", 3, currency="EUR", note="x")
    kit.call(Account.update_or_create, "ada", note="y")
    assert kit.entity("Account", "ada") == {
        "owner": "ada",
        "balance": 3,
        "note": "y",
        "currency": "EUR",
    }
    kit.call(Tally.update_or_create, ("a", 1), total=3)
    kit.call(Tally.update_or_create, ("a", 1), given=[])
    kit.call(Tally.update_or_create, ("a", 2))
    found = [(each["total"], each["given"]) for each in kit.entities("Tally").values()]
    assert found == [(3, []), (5, [])]


def test_the_name_is_reserved() -> None:
    """A class cannot have it; the error names the remedy."""

    class Shelf(Entity):
        name: str = key()

        def update_or_create(self) -> None: ...  # type: ignore[override]

    with pytest.raises(
        DefinitionError, match=r"Shelf\.update_or_create clashes .* give it another name"
    ):
        App("shelves", Shelf)


def test_it_is_internal_with_what_it_can_do() -> None:
    """Who may not create, or not replace, may not do both in one: also in a class that was written before it."""

    class Bill(Entity, internal=("upsert",)):
        name: str = key()

    class Note(Entity, internal=("update_or_create",)):
        name: str = key()

    bills = App("bills", Bill, Note)
    assert bills.is_internal("Bill", "update_or_create")
    assert not bills.is_internal("Bill", "create")
    assert bills.entities["Note"].internal == {"update_or_create"}
