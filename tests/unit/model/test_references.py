"""References: their content and equality, loaded or not, in a transaction or outside."""

import copy
import pickle
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any, NamedTuple, TypedDict
from uuid import UUID

import pytest

from penstock import Aborted, App, Entity, NoSuchEntity, RequestError, key, savepoint, transactional
from penstock.base.ids import fingerprint_of
from penstock.errors import OutsideTransaction, Unencodable
from penstock.testing import Kit


class Node(Entity):
    name: str = key()
    value: int = 0
    one: "Node | None" = None
    many: list["Node"] = []
    pairs: tuple["Node", ...] = ()
    by_name: dict[str, "Node"] = {}
    weights: dict["Node", int] = {}
    unique: set["Node"] = set()

    def set_value(self, value: int) -> int:
        self.value = value
        return value

    def link(self, other: "Node") -> None:
        self.one = other
        self.many = [other, other, self]
        self.pairs = (other, self)
        self.by_name = {"o": other, "s": self}
        self.weights = {other: 2, self: 1}
        self.unique = {other, self}

    def sums(self) -> list[int]:
        assert self.one is not None
        assert self.one is self.many[0] is self.by_name["o"]
        return [
            self.one.value,
            sum(node.value for node in self.many),
            sum(node.value for node in self.pairs),
            sum(node.value for node in self.by_name.values()),
            sum(node.value * weight for node, weight in self.weights.items()),
            sum(node.value for node in self.unique),
        ]

    def give(self) -> dict[str, list["Node"]]:
        return {"nodes": [self, *self.many]}

    def take(
        self,
        one: "Node",
        many: list["Node"],
        some: "Node | None" = None,
        *rest: "Node",
        **named: "Node",
    ) -> int:
        everyone = [one, *many, *rest, *named.values(), *([some] if some else [])]
        return sum(node.value for node in everyone)

    def wrong_kind(self) -> None:
        self.one = Other("o")  # type: ignore[assignment]

    def change_key(self) -> None:
        self.name = "another"

    def lose_key(self) -> None:
        del self.name


class Other(Entity):
    name: str = key()


KEPT: dict[str, Any] = {}


@transactional
def keep(name: str) -> None:
    KEPT[name] = Node(name)
    KEPT[name].value += 1
    KEPT["list"] = Node(name).many


@transactional
def use_kept(name: str) -> bool:
    kept = KEPT[name]
    kept.value += 10
    same = Node(name)
    same.value += 10
    return bool(kept == same and kept.value == same.value)


@transactional
def use_kept_late(name: str) -> int:
    Node(name).value += 1
    return int(KEPT[name].value)


@transactional
def delete_kept(name: str) -> str:
    kept, same = KEPT[name], Node(name)
    assert kept.value == same.value
    same.delete()
    try:
        return str(kept.value)
    except NoSuchEntity:
        return "gone"


@transactional
def store_kept(name: str) -> None:
    node = Node("holder")
    node.one = KEPT[name]
    try:
        with savepoint():
            node.value = 5
            raise ValueError
    except ValueError:
        pass


@transactional
def compare() -> list[bool]:
    node, same = Node("a"), Node("a")
    other: object = Other("a")
    before = hash(node)
    node.value += 1
    return [
        node is same,
        node == same,
        node == other,
        before == hash(node),
        hash(node) == hash(Node("a")),
        copy.copy(node) is node,
        copy.deepcopy([node])[0] is node,
        pickle.loads(pickle.dumps(node)) is node,
        repr(node) == "Node('a')",
        f"{node}" == repr(Node("a")),
        Node(node) is node,
    ]


@transactional
def share(first: Node, second: Node) -> None:
    first.many = second.many = [first]
    first.many.append(second)


app = App(
    "nodes", Node, Other, keep, use_kept, use_kept_late, delete_kept, store_kept, compare, share
)


@pytest.fixture
def kit() -> Kit:
    KEPT.clear()
    kit = Kit(app)
    for name, value in {"a": 1, "b": 2, "holder": 0}.items():
        kit.call.Node.create(name, value=value)
    return kit


def test_references_live_in_every_container(kit: Kit) -> None:
    """References are stored in, and read back from, every kind of attribute."""
    kit.call.Node("a").link(Node("b"))
    assert kit.call.Node("a").sums() == [2, 5, 3, 3, 5, 3]
    stored = kit.entity("Node", "a")
    assert stored is not None
    assert (stored["one"], stored["many"], stored["pairs"]) == ("b", ["b", "b", "a"], ("b", "a"))
    assert (stored["by_name"], stored["weights"]) == ({"o": "b", "s": "a"}, {"b": 2, "a": 1})
    assert stored["unique"] == {"a", "b"}


def test_references_are_arguments_of_every_kind(kit: Kit) -> None:
    """References arrive by position, by name, in lists, as `*args` and as `**kwargs`."""
    a, b = Node("a"), Node("b")
    assert kit.call.Node("holder").take(a, [a, b]) == 4
    assert kit.call.Node("holder").take(a, [], None, b, b, x=b, y=a) == 8
    assert kit.call.Node("holder").take(many=[b], one=a, some=b) == 5


def test_references_are_returned(kit: Kit) -> None:
    """A returned reference is one outside too, at any depth."""
    kit.call.Node("a").link(Node("b"))
    assert kit.call.Node("a").give() == {"nodes": [Node("a"), Node("b"), Node("b"), Node("a")]}


def test_identity_equality_and_hash_agree(kit: Kit) -> None:
    """One entity is one object in a transaction; equality and hash never depend on loading."""
    assert kit.call.compare() == [
        True, True, False, True, True, True, True, True, True, True, True,
    ]  # fmt: skip


def test_reference_outside_is_a_plain_value() -> None:
    """Outside a transaction a reference compares, hashes, copies and pickles, but cannot be read."""
    node = Node("a")
    assert node == Node("a") != Node("b")
    assert {node: 1}[Node("a")] == 1
    assert pickle.loads(pickle.dumps(node)) == node
    assert copy.deepcopy(node) == node
    assert node.name == "a"
    assert repr(node) == "Node('a')"
    with pytest.raises(OutsideTransaction):
        _ = node.value
    with pytest.raises(OutsideTransaction):
        node.value = 1
    with pytest.raises(OutsideTransaction):
        del node.value
    with pytest.raises(OutsideTransaction):
        node.delete()


def test_kept_reference_holds_no_old_state(kit: Kit) -> None:
    """A reference kept in a module global sees each transaction's own state, and writes to it."""
    kit.call.keep("a")
    assert "value" not in vars(KEPT["a"])
    kit.call.Node("a").set_value(100)
    assert kit.call.use_kept("a") is True
    assert kit.call.use_kept_late("a") == 121
    assert kit.call.use_kept("a") is True
    assert kit.call.Node("a").take(Node("a"), []) == 141


def test_kept_reference_knows_of_a_deletion(kit: Kit) -> None:
    """Deleting an entity through one reference shows through a kept one."""
    kit.call.keep("a")
    kit.call.keep("b")
    assert kit.call.delete_kept("a") == "gone"


def test_kept_reference_survives_a_savepoint(kit: Kit) -> None:
    """A kept reference that was never touched is stored like any other, across a savepoint."""
    kit.call.keep("a")
    kit.call.store_kept("a")
    stored = kit.entity("Node", "holder")
    assert stored is not None
    assert (stored["one"], stored["value"]) == ("a", 0)


def test_shared_list_becomes_two(kit: Kit) -> None:
    """A list that two entities share in a transaction is two lists for the next one."""
    kit.call.share(Node("a"), Node("b"))
    kit.call.Node("a").link(Node("b"))
    stored = kit.entity("Node", "b")
    assert stored is not None
    assert stored["many"] == ["a", "b"]


@pytest.mark.parametrize("method", ["change_key", "lose_key"])
def test_changed_key_aborts(kit: Kit, method: str) -> None:
    """A key cannot be changed or removed, and the attempt harms no later transaction."""
    kit.call.keep("a")
    before = kit.digest()
    with pytest.raises(Aborted):
        getattr(kit.call.Node("a"), method)()
    assert kit.digest() == before
    assert kit.call.use_kept("a") is True


def test_reference_of_another_class_aborts(kit: Kit) -> None:
    """An attribute for one class of entities takes no reference to another."""
    with pytest.raises(Unencodable, match=r"Node\.one"):
        kit.call.Node("a").wrong_kind()


class Day(Entity):
    day: date = key()
    hits: int = 0

    def hit(self) -> int:
        self.hits += 1
        return self.hits


class Moment(Entity):
    at: datetime = key()


class Count(Entity):
    number: int = key()


class Ticket(Entity):
    ticket_id: UUID = key()
    next_one: "Ticket | None" = None

    def point(self, to: "Ticket") -> UUID:
        self.next_one = to
        assert Ticket(to.ticket_id) is to
        return to.ticket_id


keys = App("keys", Day, Moment, Count, Ticket)


def test_keys_of_every_type() -> None:
    """Dates, numbers and UUIDs are keys, and keep their types."""
    kit = Kit(keys)
    kit.call.Day.create(date(2026, 1, 2))
    assert kit.call.Day(date(2026, 1, 2)).hit() == 1
    kit.call.Count.create(-5)
    kit.call.Count.create(2**62)
    first, second = UUID(int=1), UUID(int=2)
    kit.call.Ticket.create(first)
    kit.call.Ticket.create(second)
    assert kit.call.Ticket(first).point(Ticket(second)) == second
    assert list(kit.entities("Count")) == [-5, 2**62]
    assert kit.entities("Ticket")[first]["next_one"] == second


def test_equal_keys_name_one_entity() -> None:
    """One instant in two time zones, one UUID as text or object: one entity."""
    here = datetime(2026, 1, 1, 13, tzinfo=timezone(timedelta(hours=1)))
    assert Moment(here) == Moment(datetime(2026, 1, 1, 12, tzinfo=UTC))
    kind: Any = Moment
    assert kind.__reference__.key_text(here) == "2026-01-01T12:00:00Z"
    text = "00000000-0000-0000-0000-00000000000A"
    assert Ticket(text) == Ticket(UUID(text))
    assert Ticket(text).ticket_id == UUID(text)


@pytest.mark.parametrize(
    "wrong", [1, None, b"x", 1.5, True, ("a",), "", "x" * 401, "é" * 201, "\ud800"]
)
def test_impossible_key_is_refused(wrong: Any) -> None:
    """A key of another type, an empty one, or one over 400 bytes is refused where it is written."""
    with pytest.raises(Unencodable):
        Node(wrong)


@pytest.mark.parametrize("wrong", ["5", True, 1.5, None])
def test_number_key_takes_numbers_only(wrong: Any) -> None:
    """Nothing that merely looks like a number is a number key."""
    with pytest.raises(RequestError):
        keys.request("Count", wrong, "exists")
    with pytest.raises((Unencodable, TypeError)):
        Count(wrong)


@pytest.mark.parametrize("text", ["007", " 7", "7.0", "true", ""])
def test_key_text_has_one_spelling(text: str) -> None:
    """A reference that arrives as text is refused unless it is spelled as Penstock spells it."""
    kind: Any = Count
    with pytest.raises(Unencodable):
        kind.__reference__.of_text(text)


@pytest.mark.parametrize(
    "name", ["a/b/../c", "/", "ключ", "🔑" * 100, "x" * 400, "with space", "\n", "%2F"]
)
def test_unusual_keys_work(kit: Kit, name: str) -> None:
    """Slashes, any language and the greatest length are keys like others."""
    kit.call.Node.create(name, value=3)
    kit.call.Node("holder").link(Node(name))
    assert kit.call.Node("holder").sums()[0] == 3
    assert kit.entity("Node", name) is not None


class Route(NamedTuple):
    start: Node
    length: int


class Named(TypedDict):
    node: Node


@dataclass
class Held:
    node: Node


@transactional
def refers(
    count: int,
    route: Route,
    named: Named,
    parts: list[tuple[str, Any]],
    held: Held,
    maybe: Node | None = None,
) -> None:
    """Take references in all places."""


def test_each_reference_among_arguments_is_hinted() -> None:
    """A request names the entities in tuples, dictionaries and values of any type, by place and by name; not in records."""
    routes = App("routes", Node, refers)
    arguments = (1, Route(Node("a"), 2), {"node": Node("b")}, [("x", Node("c"))], Held(Node("d")))
    signature = routes.functions["refers"]
    expected = [fingerprint_of(f"Node/{name}") for name in "abce"]
    assert signature.fingerprints((*arguments, Node("e")), {}) == expected
    names = ("count", "route", "named", "parts", "held")
    by_name = dict(zip(names, arguments, strict=True))
    assert signature.fingerprints((), {**by_name, "maybe": Node("e")}) == expected
