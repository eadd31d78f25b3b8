"""Indexes: handlers find entities by their values, and no two entities have a value that is unique."""

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from typing import Any, Literal
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import (
    App,
    DefinitionError,
    Entity,
    LocalRuntime,
    NotUnique,
    OutsideTransaction,
    Principal,
    ReadonlyViolation,
    Unencodable,
    UserError,
    index,
    key,
    readonly,
    reference,
    savepoint,
    transactional,
    unique,
    was,
)
from penstock.base.http import STATUS
from penstock.base.ordered_bytes import NONE, ordered_by
from penstock.engine import rows
from penstock.model import index as index_module
from penstock.testing import Kit


class State(Enum):
    OPEN = "open"
    DONE = "done"


class User(Entity):
    name: str = key()
    email: str = unique()
    phone: str | None = unique(default=None)

    def rename(self, email: str) -> None:
        self.email = "other@x"
        assert User.by_email(email) is None  # type: ignore[attr-defined]
        self.email = email
        assert User.by_email(email) is self  # type: ignore[attr-defined]

    def leave(self) -> None:
        self.delete()
        assert User.by_email("a@x") is None  # type: ignore[attr-defined]


class Slotted:
    """A plain class, whose index each entity class gets for itself."""

    by_slot = unique("room", "hour")


class Task(Slotted, Entity):
    number: int = key()
    owner: User | None = reference(exists=True, default=None)
    due: date | None = None
    state: State = State.OPEN
    room: str = ""
    hour: int | None = None

    by_owner = index("owner", order="due")
    by_state = index("state", "owner")
    by_due = index(order="due")

    @readonly
    def peers(self) -> list[int]:
        return [task.number for task in Task.by_owner(self.owner)]

    def give(self, owner: User, due: date) -> list[int]:
        self.owner, self.due = owner, due
        return self.peers()


class Room(Slotted, Entity):
    name: str = key()
    room: str
    hour: int


@transactional
def of_owner(owner: User | None, first: int | None = None, last: int | None = None) -> list[int]:
    return [task.number for task in Task.by_owner(owner, first=first, last=last)]


@transactional
def by_email(email: str) -> User | None:
    found: User | None = User.by_email(email)  # type: ignore[attr-defined]
    return found


@transactional
def exchange(one: User, other: User) -> None:
    one.email, other.email = other.email, one.email


@transactional
def replace(old: User, new: str) -> None:
    email = old.email
    old.delete()
    User.create(new, email=email)
    User.create(old.name, email="new@x")


@transactional
def attempt(user: User, email: str) -> str | None:
    try:
        with savepoint():
            user.email = email
            assert by_email(email) is user
            raise LookupError
    except LookupError:
        return getattr(by_email(email), "name", None)


@readonly
@transactional
def steal(user: User) -> None:
    user.phone = "1"


@transactional
def free(hour: int) -> bool:
    return Task.by_slot("r1", hour) is None


MEMBERS = (User, Task, Room, of_owner, by_email, exchange, replace, attempt, steal, free)


@pytest.fixture(params=[index_module.FEW, -1], ids=["few", "many"], autouse=True)
def few(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let lookups remember the touched entities from the first one on, too, as after many."""
    monkeypatch.setattr(index_module, "FEW", request.param)


@pytest.fixture
def kit() -> Kit:
    kit = Kit(App("tasks", *MEMBERS))
    for name in ("ada", "bob"):
        kit.call(User.create, name, email=f"{name[0]}@x")
    return kit


def index_rows(kit: Kit) -> list[str]:
    return [each for each in kit.runtime.state if each.startswith("$index/")]


def test_a_value_is_unique(kit: Kit) -> None:
    """The transaction that gives it to a second entity is undone, and the error names both."""
    with pytest.raises(NotUnique) as caught:
        kit.call(User.create, "cid", email="a@x")
    message = "User 'cid' cannot have email 'a@x': User 'ada' has it, and email is unique"
    assert str(caught.value) == message
    assert (caught.value.code, STATUS[caught.value.code]) == ("not-unique", 409)
    assert kit.call(by_email, "a@x") == User("ada")
    assert kit.call(by_email, "c@x") is None
    kit.call(User("bob").rename, "c@x")
    assert kit.call(by_email, "c@x") == User("bob")
    assert kit.call(by_email, "b@x") is None


def test_values_can_be_exchanged(kit: Kit) -> None:
    """The rule holds at the end of a transaction: also after a deletion and a new creation."""
    kit.call(exchange, User("ada"), User("bob"))
    assert kit.call(by_email, "a@x") == User("bob")
    kit.call(replace, User("bob"), "cid")
    assert kit.call(by_email, "a@x") == User("cid")
    assert kit.call(by_email, "new@x") == User("bob")
    kit.call(User.upsert, "cid", email="d@x")
    assert [kit.call(by_email, each) for each in ("a@x", "d@x")] == [None, User("cid")]


def test_none_is_no_unique_value(kit: Kit) -> None:
    """Any number of entities may have it, and no lookup takes it."""
    assert len(index_rows(kit)) == 2

    @transactional
    def by_phone(phone: str | None) -> User | None:
        return User.by_phone(phone)  # type: ignore[attr-defined,no-any-return]

    other = Kit(App("tasks", *MEMBERS, by_phone))
    other.call(User.create, "ada", email="a@x", phone="5")
    assert other.call(by_phone, "5") == User("ada")
    with pytest.raises(UserError, match="by_phone: None is in no unique index"):
        other.call(by_phone, None)


def test_entities_are_found_in_an_order(kit: Kit) -> None:
    """By the value of an attribute, the first or the last of them; None comes first, and equal values are ordered by key."""
    days = [5, 3, None, 3, 9, 1]
    for number, day in enumerate(days):
        due = day and date(2026, 1, day)
        kit.call(Task.create, number, owner=User("ada"), due=due, room=str(number))
    assert kit.call(of_owner, User("ada")) == [2, 5, 1, 3, 0, 4]
    assert kit.call(of_owner, User("ada"), first=2) == [2, 5]
    assert kit.call(of_owner, User("ada"), last=2) == [0, 4]
    assert kit.call(of_owner, User("ada"), last=0) == []
    assert kit.call(Task(1).peers) == [2, 5, 1, 3, 0, 4]
    assert kit.call(Task(3).give, User("bob"), date(2026, 1, 1)) == [3]
    assert kit.call(of_owner, User("ada")) == [2, 5, 1, 0, 4]
    assert kit.call(Task(3).give, User("ada"), date(2026, 1, 7)) == [2, 5, 1, 0, 3, 4]
    for number in range(6):
        kit.call(Task(number).delete)
    assert len(index_rows(kit)) == 2


def test_a_transaction_sees_its_own_changes(kit: Kit) -> None:
    """A savepoint undoes them for lookups, too."""
    assert kit.call(attempt, User("ada"), "z@x") is None
    assert kit.call(attempt, User("ada"), "a@x") == "ada"
    assert kit.call(attempt, User("ada"), "b@x") == "bob"
    kit.call(User("ada").leave)
    assert kit.call(by_email, "a@x") is None


class Grade(IntEnum):
    LOW = 1
    HIGH = 2


class Word(StrEnum):
    SOLD = "sold"


class Lot(Entity):
    name: str = key()
    price: float | None = 0.0
    grade: int = 0
    word: str = ""
    by_price = index("price")
    by_grade = index("grade", order="price")
    by_word = unique("word")

    def grow(self, amount: Any) -> None:
        self.price = amount
        self.grade, self.word = Grade.HIGH, Word.SOLD
        self.found()

    def found(self) -> None:
        assert Lot.by_price(3) == Lot.by_price(3.0) == [self]
        assert Lot.by_grade(2) == Lot.by_grade(Grade.HIGH) == [self]
        assert Lot.by_word("sold") is Lot.by_word(Word.SOLD) is self

    def look(self, price: Any) -> list[str]:
        return [lot.name for lot in Lot.by_price(price)]


def test_a_value_is_found_by_what_is_stored_of_it() -> None:
    """An attribute may hold 3 for 3.0, and a member of an `IntEnum` for its number; a lookup finds them before and after the end."""
    kit = Kit(App("lots", Lot))
    kit.call.Lot.create("other", word="new")
    kit.call.Lot.create("a", price=1)
    kit.call.Lot("a").grow(3)
    kit.call.Lot("a").found()
    assert kit.entity(Lot, "a") == {"name": "a", "price": 3.0, "grade": 2, "word": "sold"}
    for wrong in (True, 2**53 + 1, "3"):
        with pytest.raises(Unencodable, match=f"expected float, got {wrong!r}"):
            kit.call.Lot("a").look(wrong)


Mood = Literal["calm", "wild"]


class Horse(Entity):
    name: str = key()
    mood: Mood = "calm"
    gait: Literal[1, 2, 3] | None = None
    by_mood = index("mood")
    by_gait = unique("gait")


@transactional
def horses_of(mood: Any) -> list[Horse]:
    return Horse.by_mood(mood)


@transactional
def horse_with(gait: int) -> Horse | None:
    return Horse.by_gait(gait)


def test_a_literal_is_found_by_its_value() -> None:
    """As `str` or `int`; a value that it does not have is refused, and so is one with values of several types."""
    kit = Kit(App("stable", Horse, horses_of, horse_with))
    kit.call(Horse.create, "ada", gait=2)
    kit.call(Horse.create, "bob", mood="wild")
    assert kit.call(horses_of, "wild") == [Horse("bob")]
    assert kit.call(horse_with, 2) == Horse("ada")
    with pytest.raises(NotUnique, match=r"Horse 'bob' cannot have gait 2: Horse 'ada' has it"):
        kit.call(Horse.update_or_create, "bob", gait=2)
    with pytest.raises(
        Unencodable, match=r"by_mood: mood: expected Literal\['calm', 'wild'\], got 'clam'"
    ):
        kit.call(horses_of, "clam")
    optional: Any = Literal["a", None]
    for annotation, has_order, mistake in (
        (Literal["a", 1], False, "has values of several types"),
        (Mood, True, "has no order"),
    ):
        assert mistake in str(ordered_by(annotation, has_order=has_order))
    ordered, text = (ordered_by(each, has_order=False) for each in (optional, str))
    assert not isinstance(ordered, str)
    assert not isinstance(text, str)
    assert (ordered(None), ordered("a")) == (NONE, text("a"))


class Memo(Entity):
    name: str = key()
    owner: str
    place: int = unique()

    def allows(self, who: Principal) -> bool:
        twin = Memo.by_place(self.place)  # type: ignore[attr-defined]
        return twin is self and self.owner == who.id


def test_the_rights_of_a_page_find_each_entity(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its transaction forgets entities on the way, and so do lookups."""
    monkeypatch.setattr(rows, "_KEPT_MAX", 3)
    kit = Kit(App("memos", Memo))
    for place in range(20):
        kit.call(Memo.create, f"m{place}", owner="ab"[place % 2], place=place)
    page = kit.page(Memo, acting_as="a", limit=20)
    assert [each.place for each in page.entities] == [0, 10, 12, 14, 16, 18, 2, 4, 6, 8]


def test_several_attributes_are_unique_together(kit: Kit) -> None:
    """If one of them is None, the entity has no value; and a class shares no index with another one."""
    kit.call(Task.create, 1, room="r1", hour=9)
    kit.call(Task.create, 2, room="r1", hour=10)
    kit.call(Task.create, 3, room="r1")
    kit.call(Task.create, 4, room="r1")
    kit.call(Room.create, "r", room="r1", hour=9)
    with pytest.raises(
        NotUnique,
        match="Task '5' cannot have room 'r1', hour 9: Task '1' has them, and room, hour are",
    ):
        kit.call(Task.create, 5, room="r1", hour=9)
    assert [kit.call(free, hour) for hour in (9, 10, 11)] == [False, False, True]


def test_mistakes_of_lookups_name_the_index(kit: Kit) -> None:
    """As do values of a wrong type, or too large ones."""
    with pytest.raises(UserError, match=r"Task.by_owner: first= and last= exclude each other"):
        kit.call(of_owner, None, first=1, last=1)
    with pytest.raises(UserError, match=r"Task.by_owner: -1 cannot be a number of entities"):
        kit.call(of_owner, None, first=-1)
    with pytest.raises(Unencodable, match=r"a text of 401 bytes is too large for an index"):
        kit.call(User.create, "cid", email="x" * 401)
    with pytest.raises(
        Unencodable, match=r"User.by_email: email: a text of 500 bytes is too large"
    ):
        kit.call(by_email, "x" * 500)
    with pytest.raises(ReadonlyViolation):
        kit.call(steal, User("ada"))
    with pytest.raises(OutsideTransaction):
        User.by_email("a@x")  # type: ignore[attr-defined]
    kit.call(User.create, "long", email="x" * 399)
    assert kit.call(by_email, "x" * 399) == User("long")


def test_definitions_are_checked() -> None:
    """All mistakes at once, each with its place and its remedy."""

    class Bad(Entity):
        name: str = key()
        tags: list[str] = unique()
        size: int | str = 0
        mood: State = State.OPEN
        by_nothing = index()
        by_name = index("name")
        by_typo = index(order="colour")
        by_size = index("size")
        by_mood = index(order="mood")
        tagged: Any = index("mood")
        color: str = unique(default="red")

        def by_color(self) -> None: ...

    with pytest.raises(DefinitionError) as caught:
        App("bad", Bad)
    text = str(caught.value)
    for part in (
        "Bad.by_tags: tags: list[str] cannot be in an index, which takes str",
        'Bad.by_nothing: it needs attributes, or order="…": an attribute that orders all entities',
        "Bad.by_name: 'name' is the key of Bad, and an index takes attributes; Bad(…) finds",
        "Bad.by_typo: 'colour' is not an attribute of Bad, which has tags, size, mood, tagged, color",
        "Bad.by_size: size: int | str has values of several types",
        "Bad.by_mood: mood: State has no order",
        "Bad.tagged is an index and an attribute; write it without a type",
        "Bad.by_color is taken, and unique() makes an index of this name",
    ):
        assert part in text, text
    with pytest.raises(TypeError, match="has a default only where"):
        unique("room", default=1)  # type: ignore[call-overload]


def test_marks_can_be_combined() -> None:
    """`unique()` stands inside of `was` and `reference`, or around them."""

    class Pet(Entity):
        name: str = key()
        owner: User = unique(default=reference(exists=True))
        chip: int = was("number", default=unique(default=0))

    kit = Kit(App("pets", Pet, User))
    kit.call(User.create, "ada", email="a")
    kit.call(Pet.create, "rex", owner=User("ada"))
    with pytest.raises(
        NotUnique, match=r"Pet 'tom' cannot have owner User 'ada': Pet 'rex' has it"
    ):
        kit.call(Pet.create, "tom", owner=User("ada"), chip=1)


VALUES: dict[Any, st.SearchStrategy[Any]] = {
    str: st.text(max_size=8),
    bytes: st.binary(max_size=4),
    int: st.integers(-(2**63), 2**64 - 1) | st.integers(-300, 300),
    bool: st.booleans(),
    float: st.floats(allow_nan=False),
    Decimal: st.decimals(allow_nan=False)
    | st.sampled_from([Decimal("1.0"), Decimal("1.00"), Decimal(10)]),
    datetime: st.datetimes(timezones=st.just(UTC)),
    date: st.dates(),
    timedelta: st.timedeltas(),
    UUID: st.uuids(),
}


@pytest.mark.parametrize("annotation", VALUES)
def test_bytes_have_the_order_of_values(annotation: Any) -> None:
    """And equal values have equal bytes; no bytes begin with those of another value."""
    ordered = ordered_by(annotation | None, has_order=True)
    assert not isinstance(ordered, str)

    @settings(max_examples=30)
    @given(VALUES[annotation], VALUES[annotation])
    def check(one: Any, other: Any) -> None:
        first, second = ordered(one), ordered(other)
        assert (first < second, first == second) == (one < other, one == other)
        assert first == second or not second.startswith(first)
        assert ordered(None) < first

    check()


def test_an_application_without_an_index_has_no_rows_of_one() -> None:
    """And its executor looks for none."""

    class Plain(Entity):
        name: str = key()
        size: int = 0

    runtime = LocalRuntime(App("plain", Plain))
    runtime.call.Plain.create("p", size=1)
    assert list(runtime.state) == ["Plain/p"]
    assert not runtime.app.indexed
