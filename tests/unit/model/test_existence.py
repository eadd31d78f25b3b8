"""References that must exist: no transaction takes effect that leaves one to a missing entity behind."""

from dataclasses import dataclass, field
from typing import Any

import pytest

from penstock import (
    App,
    DanglingReference,
    DefinitionError,
    Entity,
    NoSuchEntity,
    key,
    reference,
    savepoint,
    transactional,
)
from penstock.base.http import STATUS
from penstock.base.ids import EntityKey, RequestId
from penstock.engine.execute import Executor, Limits, Outcome
from penstock.engine.failure import Escape
from penstock.testing import Kit


class User(Entity):
    name: str = key()


@dataclass
class Share:
    owner: User
    part: int = 1


class House(Entity):
    number: int = key()
    owner: User = reference(exists=True)
    guests: list[User] = reference(exists=True, default=[])
    shares: dict[str, Share] = reference(exists=True, default={})
    heir: User | None = reference(exists=True, default=None)
    builder: User | None = None
    remarks: list[str] = field(default_factory=list)

    def move_in(self, guest: User) -> int:
        self.guests.append(guest)
        return len(self.guests)

    def share(self, owner: User) -> None:
        self.shares["half"] = Share(owner)

    def built_by(self, builder: User) -> None:
        self.builder = builder

    def sell(self, buyer: User) -> None:
        self.owner.delete()
        self.owner = buyer

    def lose(self) -> str:
        self.owner.delete()
        return "gone"

    def try_heir(self, heir: User) -> bool:
        try:
            with savepoint():
                self.heir = heir
                raise ValueError
        except ValueError:
            return self.heir is None

    def demolish(self) -> None:
        self.owner.delete()
        self.delete()


@transactional
def settle(number: int, name: str) -> House:
    house = House.create(number, owner=User(name))
    User.create(name)  # only the end of the transaction counts
    return house


@transactional
def remove(user: User) -> None:
    user.delete()


app = App("town", User, House, settle, remove)


@pytest.fixture
def kit() -> Kit:
    made = Kit(app)
    made.call.settle(1, "ada")
    made.call.User.create("bob")
    return made


def test_reference_to_a_missing_entity_undoes_the_transaction(kit: Kit) -> None:
    """At any depth of an attribute, a missing entity undoes the transaction with a code of its own."""
    before = kit.digest()
    nobody = User("nobody")
    message = r"House '1': {} refers to User 'nobody', which does not exist"
    for method, name in [("move_in", "guests"), ("share", "shares"), ("sell", "owner")]:
        with pytest.raises(DanglingReference, match=message.format(name)) as caught:
            getattr(kit.call.House(1), method)(nobody)
        assert caught.value.code == "dangling-reference"
    with pytest.raises(DanglingReference, match="owner refers to"):
        kit.call.House.create(2, owner=nobody)
    assert kit.digest() == before
    assert STATUS["dangling-reference"] == 409


def test_only_the_end_of_the_transaction_counts(kit: Kit) -> None:
    """The order of creation and reference does not matter, nor does a reference that a savepoint undid."""
    assert kit.call.House(1).move_in(User("bob")) == 1
    assert kit.call.House(1).try_heir(User("nobody")) is True
    kit.call.House(1).sell(User("bob"))
    assert kit.entity("House", 1)["owner"] == "bob"  # type: ignore[index]
    kit.call.House(1).demolish()
    assert kit.entity("House", 1) is None


def test_deletion_checks_the_entities_that_the_transaction_touched(kit: Kit) -> None:
    """An entity that only read itself still keeps its owner; an untouched one is found at its next change."""
    with pytest.raises(DanglingReference, match="owner refers to User 'ada'"):
        kit.call.House(1).lose()
    kit.call.remove(User("ada"))
    with pytest.raises(DanglingReference, match="owner refers to User 'ada'"):
        kit.call.House(1).built_by(User("bob"))


def test_other_references_may_dangle(kit: Kit) -> None:
    """An attribute without the declaration keeps a reference to any key."""
    kit.call.House(1).built_by(User("nobody"))
    assert kit.entity("House", 1)["builder"] == "nobody"  # type: ignore[index]
    with pytest.raises(NoSuchEntity):
        kit.call.User("nobody").delete()


def test_declaration_needs_a_type_with_an_entity() -> None:
    """`reference(…)` on another attribute is an error of the definition."""

    class Plot(Entity):
        number: int = key()
        size: int = reference(exists=True)

    with pytest.raises(DefinitionError, match=r"Plot\.size: reference\(exists=True\) needs a type"):
        App("plots", Plot)
    missing: Any = Kit(app)
    with pytest.raises(Exception, match="owner"):
        missing.call.House.create(1)


def test_check_is_a_read_of_the_transaction() -> None:
    """The entity that a reference names is in the read set, and an entity that is elsewhere lets the run escape.

    So a deletion in another task is a conflict with the reference, and the order of the log decides.
    """
    state: dict[EntityKey, bytes] = {}

    def run(*request: Any) -> Outcome:
        body, _ = app.request(*request)
        outcome = executor.run(RequestId(str(len(state))), body, 0)
        state.update({key: data for key, data in outcome.writes.items() if data is not None})
        return outcome

    executor = Executor(app, state.get, Limits())
    run("User", "ada", "create")
    created = run("House", 1, "create", (), {"owner": User("ada")})
    assert (created.error, created.reads) == (None, ("House/1", "User/ada"))
    assert run("House", 1, "move_in", (User("nobody"),)).reads == (
        "House/1",
        "User/ada",
        "User/nobody",
    )
    assert run("House", 1, "built_by", (User("ada"),)).error is None

    def elsewhere(key: EntityKey) -> bytes | None:
        if key == "User/ada":
            executor.escaped = key
            raise Escape(key)
        return state.get(key)

    executor = Executor(app, elsewhere, Limits())
    with pytest.raises(Escape) as caught:
        run("House", 1, "built_by", (User("bob"),))
    assert caught.value.key == "User/ada"
