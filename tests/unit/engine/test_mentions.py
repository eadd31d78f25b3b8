"""Mentions: what the rows that a task writes refer to, for roots that have not run yet."""

from typing import Any

from penstock import App, Entity, key
from penstock.base.ids import EntityKey, RequestId, fingerprint_of
from penstock.engine.execute import Limits
from penstock.engine.mentions import MentionCollector
from penstock.engine.task import Task
from penstock.native.choice import core


class Item(Entity):
    name: str = key()
    price: int = 1


class Basket(Entity):
    name: str = key()
    owner: Item | None = None
    items: list[tuple[Item, int]] = []
    total: int = 0

    def put(self, item: Item) -> None:
        self.items.append((item, 1))
        self.total += item.price

    def buy(self) -> int:
        self.total = sum(item.price for item, _ in self.items)
        self.total += self.owner.price if self.owner else 0
        return self.total

    def touch(self) -> None:
        self.total += 1

    def same(self) -> None:
        self.total += 0


app = App("mentions", Basket, Item)
THINGS: list[tuple[Any, ...]] = [("Item", name, "create", ()) for name in "wxyz"]


def basket(owner: str, *names: str) -> tuple[Any, ...]:
    items = [(Item(name), 1) for name in names]
    return "Basket", "b", "create", (), {"owner": Item(owner), "items": items}


def mentions_of(calls: list[tuple[Any, ...]], last: int) -> set[tuple[int, int]]:
    """Return the mentions that the last calls have written; Python finds none."""
    state: dict[EntityKey, bytes | None] = {}
    task = Task(app, state.get, Limits())
    collector = MentionCollector()
    for position, call in enumerate(calls):
        request = (RequestId(str(position)), app.request(*call)[0], 0)
        if position < len(calls) - last:
            assert task.run(position, *request) is not None
            continue
        with collector:
            outcome = task.run(position, *request)
        assert outcome is not None
        assert outcome.error is None
    found = [(int(one), int(other)) for one, other in collector.mentions()]
    assert len(found) == len(set(found)) == collector.mentions().shape[0]
    return set(found)


def expected(*mentioned: tuple[str, str]) -> set[tuple[int, int]]:
    if core is None:
        return set()
    return {
        (fingerprint_of(EntityKey(one)), fingerprint_of(EntityKey(other)))
        for one, other in mentioned
    }


def test_a_new_row_mentions_its_references() -> None:
    """A created entity, also one that loads what it refers to, has all its references."""
    calls = [*THINGS, basket("w", "x", "y")]
    wanted = [("Basket/b", f"Item/{name}") for name in "wxy"]
    assert mentions_of(calls, 1) == expected(*wanted)


def test_a_row_with_a_new_reference_mentions_all() -> None:
    """When a reference is added, the others, which were not loaded, are mentioned again."""
    calls = [*THINGS, basket("w", "x")]
    wanted = [("Basket/b", f"Item/{name}") for name in "wxy"]
    assert mentions_of([*calls, ("Basket", "b", "put", (Item("y"),))], 1) == expected(*wanted)


def test_what_the_transaction_has_accessed_or_left_is_not_mentioned() -> None:
    """A transaction that loads all references has them in its access set; an unchanged row says nothing new."""
    calls = [*THINGS, basket("w", "x")]
    assert mentions_of([*calls, ("Basket", "b", "buy", ())], 1) == set()
    assert mentions_of([*calls, ("Basket", "b", "same", ())], 1) == set()
    touched = mentions_of([*calls, ("Basket", "b", "touch", ())], 1)
    assert touched == expected(("Basket/b", "Item/w"), ("Basket/b", "Item/x"))


def test_mentions_of_a_row_are_bounded() -> None:
    """A row with many references mentions as many as a root can remember."""
    things = [("Item", str(number), "create", ()) for number in range(40)]
    found = mentions_of([*things, basket(*map(str, range(40)))], 1)
    assert len(found) == (0 if core is None else 7)
