"""The style of the talk: `__init__` with typed attributes, and `__key__`."""

from typing import Any

import pytest

from penstock import AlreadyExists, App, Entity, UserError, key, transactional
from penstock.model.call import Call
from penstock.testing import Kit


class Base:
    def __init__(self, label: str) -> None:
        self.label = label
        self.seen: list[str] = []


class Member(Base, Entity):
    """The style of the talk, with a base class and a secret."""

    def __init__(self, name: str, club: "Club", points: int = 0) -> None:
        super().__init__(name.title())
        self.name = name
        self.club = club
        self.points = points
        self.level = 1
        self.__secret: str = "s"
        if points > 10:
            self.level = 2
        club.join(self)

    def __key__(self) -> str:
        """Name it."""
        return self.name

    def reveal(self) -> str:
        return self.__secret + str(self.level)

    def recruit(self, name: str) -> "Member":
        return Member.create(name, self.club, points=self.points + 5)


class Club(Entity):
    club_id: str = key()
    members: list[Member] = []

    def join(self, member: Member) -> None:
        self.members.append(member)
        member.points += 1

    def points(self) -> int:
        return sum(member.points for member in self.members)


@transactional
def enlist(count: int) -> list[Member]:
    return [Member.create(str(number), Club("c")) for number in range(count)]


reference: Any = Member  # for type checkers, a call of the class is a call of its `__init__`
talk = App("talk", Member, Club, enlist)


def test_init_style_creates_and_registers_itself() -> None:
    """`__init__` may hand `self` to others before it ends: it is the entity, not a copy."""
    kit = Kit(talk)
    kit.call.Club.create("c")
    made = kit.call.Member.create("ann", Club("c"), points=20)
    assert made == reference("ann")
    assert kit.entity("Member", "ann") == {
        "label": "Ann", "seen": [], "name": "ann", "club": "c", "points": 21, "level": 2,
        "_Member__secret": "s",
    }  # fmt: skip
    assert kit.call.Member("ann").reveal() == "s2"
    assert kit.call.Member("ann").recruit("bob") == reference("bob")
    assert kit.call.Club("c").points() == 21 + 27
    assert kit.call.enlist(2) == [reference("0"), reference("1")]


def test_init_style_refuses_a_taken_key() -> None:
    """A second creation under a key leaves the first entity and all it told others as they were."""
    kit = Kit(talk)
    kit.call.Club.create("c")
    kit.call.Member.create("ann", Club("c"))
    before = kit.digest()
    with pytest.raises(AlreadyExists, match="exists already"):
        kit.call.Member.create("ann", Club("c"), points=9)
    assert kit.digest() == before


class Stranger(Entity):
    """Belongs to another application."""

    name: str = key()


class Visitor(Entity):
    """Uses a class that no annotation of its application names."""

    name: str = key()

    def make(self) -> None:
        Stranger.create("s")

    def ask(self) -> bool:
        return Stranger.exists("s")


def test_entities_of_other_applications_are_refused() -> None:
    """A handler that uses a class which its application does not name is undone, and says which."""
    App("theirs", Stranger)
    kit = Kit(App("ours", Visitor))
    kit.call.Visitor.create("v")
    for method in ["make", "ask"]:
        with pytest.raises(UserError, match="Stranger is not part of this application"):
            getattr(kit.call.Visitor("v"), method)()
    assert list(kit.runtime.state) == ["Visitor/v"]


def test_request_hands_its_key_to_the_initializer() -> None:
    """A creation that names its key need not repeat it among the arguments of `__init__`."""

    class Named(Entity):
        def __init__(self, name: str, size: int = 1):
            self.name = name
            self.size = size

        def __key__(self) -> str:
            return self.name

    kit = Kit(App("named", Named))
    kit.submit(Call("Named", "a", "create", (), {"size": 2}))
    kit.submit(Call("Named", "b", "create", ("b", 3)))
    assert kit.entities("Named") == {
        "a": {"name": "a", "size": 2},
        "b": {"name": "b", "size": 3},
    }
