"""Creating, deleting, asking, and rolling back: the life of an entity in transactions."""

from contextlib import suppress
from uuid import UUID

import pytest

from penstock import (
    Aborted,
    AlreadyExists,
    App,
    Entity,
    NoSuchEntity,
    RequestError,
    key,
    readonly,
    savepoint,
    transactional,
    uuid,
)
from penstock.model.call import Call
from penstock.testing import Kit


class Item(Entity):
    item_id: str = key()
    price: int = 1
    tags: list[str] = []
    friend: "Item | None" = None

    def raise_price(self, by: int) -> int:
        self.price += by
        return self.price

    def tag(self, text: str) -> list[str]:
        self.tags.append(text)
        return self.tags

    def remove(self) -> None:
        self.delete()

    def remove_and_use(self) -> int:
        self.delete()
        return self.price

    def remove_and_make(self, price: int) -> int:
        self.delete()
        made = Item.create(self.item_id, price=price)
        assert made is self
        return self.price

    @readonly
    def peek(self) -> int:
        return self.price

    @readonly
    def cheat(self) -> None:
        self.price = 0

    @readonly
    def cheat_and_raise(self) -> None:
        self.price = 0
        raise ValueError("no")

    @readonly
    def cheat_elsewhere(self) -> None:
        Item("other").raise_price(1)


class Stamp(Entity):
    """Named by a UUID that the application does not choose."""

    stamp_id: UUID = key()


@transactional
def make_and_remove() -> bool:
    Item.create("brief").delete()
    return Item.exists("brief")


@transactional
def make_nameless() -> tuple[Item, Stamp, UUID]:
    return Item.create(price=5), Stamp.create(), uuid()


@transactional
def catch_cheating(name: str) -> int:
    item = Item("i1")
    with suppress(Exception):
        getattr(item, name)()
    return item.peek()


@transactional
def go_back() -> list[int]:
    item = Item("i1")
    seen = []
    try:
        with savepoint():
            item.raise_price(10)
            item.tags.append("lost")
            Item.create("made")
            Item("doomed").delete()
            seen.append(item.price)
            try:
                with savepoint():
                    item.raise_price(100)
                    Item("doomed2").delete()
                    raise KeyError("inner")
            except KeyError:
                seen.append(item.price)
            raise ValueError("outer")
    except ValueError:
        seen.append(item.price)
    assert not Item.exists("made")
    assert Item.exists("doomed")
    assert Item("doomed").price == 1
    assert item.tags == []
    item.tags.append("kept")
    return seen


@transactional
def try_each(amounts: list[int]) -> int:
    done = 0
    for amount in amounts:
        try:
            with savepoint():
                if Item("i1").raise_price(amount) > 10:
                    raise ValueError("too much")
                done += 1
        except ValueError:
            continue
    return done


@transactional
def save_oddities() -> int:
    item = Item("i1")
    item.price = "for a moment"  # type: ignore[assignment]
    try:
        with savepoint():
            item.price = 7
            raise ValueError
    except ValueError:
        assert str(item.price) == "for a moment"
    item.price = 8
    return item.price


@transactional
def put_item(name: str, price: int) -> None:
    Item.upsert(name, price=price)


@transactional
def put_held_item(name: str, price: int) -> tuple[int, list[str]]:
    held = Item(name)
    assert held.tags == ["old"]
    Item.upsert(name, price=price)
    return held.price, held.tags


app = App(
    "life",
    Item,
    Stamp,
    make_and_remove,
    make_nameless,
    catch_cheating,
    go_back,
    try_each,
    save_oddities,
    put_item,
    put_held_item,
)


@pytest.fixture
def kit() -> Kit:
    kit = Kit(app)
    kit.call.Item.create("i1")
    return kit


def test_created_entity_has_its_defaults(kit: Kit) -> None:
    """Attributes that `create` does not get come from the defaults."""
    assert kit.entity("Item", "i1") == {"item_id": "i1", "price": 1, "tags": [], "friend": None}


def test_mutable_default_is_not_shared(kit: Kit) -> None:
    """A default list belongs to one entity alone, also when the first one grew."""
    kit.call.Item("i1").tag("red")
    kit.call.Item.create("i2")
    assert [one["tags"] for one in kit.entities("Item").values()] == [["red"], []]


def test_taken_key_is_refused(kit: Kit) -> None:
    """A second creation under a key fails and changes nothing."""
    before = kit.digest()
    with pytest.raises(AlreadyExists, match="Item 'i1' exists already"):
        kit.call.Item.create("i1", price=9)
    assert kit.digest() == before


@pytest.mark.parametrize(
    ("named", "what"),
    [({"prize": 1}, "prize"), ({"price": "x"}, "price"), ({"tags": [1]}, "tags")],
)
def test_wrong_attribute_is_refused_at_creation(
    kit: Kit, named: dict[str, object], what: str
) -> None:
    """A creation names unknown and ill-typed attributes before anything is appended."""
    with pytest.raises(RequestError, match=what):
        kit.call.Item.create("i2", **named)


def test_absent_entity_is_named(kit: Kit) -> None:
    """Calling an entity that does not exist names its class and key."""
    with pytest.raises(NoSuchEntity, match="Item 'nope' does not exist"):
        kit.call.Item("nope").raise_price(1)


def test_exists_tells_before_and_after(kit: Kit) -> None:
    """`exists` is false, true after creation, and false after deletion."""
    assert not kit.call.Item.exists("i2")
    kit.call.Item.create("i2")
    assert kit.call.Item.exists("i2")
    kit.call.Item("i2").delete()
    assert not kit.call.Item.exists("i2")


def test_deleted_entity_cannot_be_used(kit: Kit) -> None:
    """Using an entity after its deletion aborts, and the abort undoes the deletion."""
    with pytest.raises(NoSuchEntity):
        kit.call.Item("i1").remove_and_use()
    assert kit.call.Item.exists("i1")


def test_deleted_entity_can_be_made_again(kit: Kit) -> None:
    """Deletion then creation in one transaction leaves the new entity."""
    assert kit.call.Item("i1").remove_and_make(5) == 5
    assert kit.entity("Item", "i1") == {"item_id": "i1", "price": 5, "tags": [], "friend": None}


def test_brief_entity_leaves_nothing(kit: Kit) -> None:
    """Creation then deletion in one transaction makes no change."""
    before = kit.digest()
    assert kit.call.make_and_remove() is False
    assert kit.digest() == before


def test_derived_keys_repeat() -> None:
    """An entity created without a key gets one that depends on the request alone."""
    first, second = (Kit(app).call.make_nameless() for _ in range(2))
    assert first == second
    assert len({str(one) for one in first}) == 3


def test_request_may_leave_the_key_to_penstock(kit: Kit) -> None:
    """`create` from outside without a key returns the reference that was made."""
    made = kit.call.Item.create(price=3)
    entity_of = kit.entity("Item", made.item_id)
    assert entity_of is not None
    assert entity_of["price"] == 3


def test_readonly_answers(kit: Kit) -> None:
    """A `@readonly` method answers and changes nothing."""
    assert kit.call.Item("i1").peek() == 1


@pytest.mark.parametrize("name", ["cheat", "cheat_and_raise", "cheat_elsewhere"])
@pytest.mark.parametrize("caught", [False, True])
def test_readonly_is_enforced(kit: Kit, name: str, *, caught: bool) -> None:
    """A `@readonly` method that changes anything aborts, also when it raises or is caught."""
    kit.call.Item.create("other")
    before = kit.digest()
    with pytest.raises(Aborted) as error:
        kit.call.catch_cheating(name) if caught else getattr(kit.call.Item("i1"), name)()
    assert error.value.code == "readonly-violation"
    assert kit.digest() == before


def test_savepoints_nest(kit: Kit) -> None:
    """Each savepoint undoes changes, creations and deletions of its own block only."""
    kit.call.Item.create("doomed")
    kit.call.Item.create("doomed2")
    assert kit.call.go_back() == [11, 11, 1]
    assert kit.entity("Item", "i1") == {
        "item_id": "i1",
        "price": 1,
        "tags": ["kept"],
        "friend": None,
    }
    assert set(kit.entities("Item")) == {"i1", "doomed", "doomed2"}


def test_savepoints_in_a_loop(kit: Kit) -> None:
    """A savepoint in a loop undoes the rounds that failed and keeps the others."""
    assert kit.call.try_each([5, 50, 4, 1]) == 2
    assert kit.entity("Item", "i1") == {"item_id": "i1", "price": 10, "tags": [], "friend": None}


def test_savepoint_restores_what_does_not_fit_yet(kit: Kit) -> None:
    """Attributes are checked only at the end: a savepoint restores them in any state."""
    assert kit.call.save_oddities() == 8


def test_upsert_creates_what_is_not_there() -> None:
    """`upsert` of a new key is a creation, with defaults."""
    kit = Kit(app)
    kit.call.put_item("a", 3)
    assert kit.entity("Item", "a") == {"item_id": "a", "price": 3, "tags": [], "friend": None}


def test_upsert_replaces_all_attributes() -> None:
    """`upsert` of a known key replaces the whole state, also for holders of a reference."""
    kit = Kit(app)
    kit.call.Item.create("a", price=1, tags=["old"])
    assert kit.call.put_held_item("a", 4) == (4, [])
    assert kit.entity("Item", "a") == {"item_id": "a", "price": 4, "tags": [], "friend": None}


def test_upsert_can_be_a_request() -> None:
    """A request may upsert, whether the entity is there or not."""
    kit = Kit(app)
    for price in (1, 2):
        kit.submit(Call("Item", "a", "upsert", (), {"price": price}))
        found = kit.entity("Item", "a")
        assert found is not None
        assert found["price"] == price
