"""Savepoints and `@readonly`: which state they see, in which order they end, and their cost."""

import dataclasses
import gc
import sys
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from penstock import (
    Aborted,
    App,
    Entity,
    UserError,
    key,
    readonly,
    savepoint,
    transactional,
)
from penstock.errors import ReadonlyViolation
from penstock.testing import Kit


@dataclasses.dataclass
class Line:
    amounts: list[int]


class Cell(Entity):
    name: str = key()
    number: int = 0
    items: list[int] = []
    lines: dict[str, Line] = {}
    friends: list["Cell"] = []

    def bump(self) -> None:
        self.number += 1

    @readonly
    def look(self) -> int:
        return self.number

    @readonly
    def leave(self) -> None:
        self.number = 9
        raise SystemExit

    @readonly
    def later(self) -> Any:
        def numbers() -> Any:
            self.number = 9
            yield 1

        return numbers()

    @readonly
    def much_later(self) -> Any:
        return (setattr(one, "number", 9) for one in [self])  # type: ignore[func-returns-value]

    @readonly
    def later_by_reply(self) -> Any:
        return Lazy(self)


class Lazy(list[int]):
    """Looks at its cell when it is read."""

    def __init__(self, cell: Cell) -> None:
        super().__init__([1])
        self.cell = cell

    def __iter__(self) -> Iterator[int]:
        self.cell.bump()
        return super().__iter__()


KEPT: list[Any] = []


class Undo(Exception):
    """Raised to leave a savepoint."""


def go_back() -> None:
    raise Undo


def undone(change: Callable[[], object]) -> None:
    """Do something, and go back."""
    with suppress(Undo), savepoint():
        change()
        raise Undo


def by_list(cell: Cell) -> None:
    items = cell.items
    undone(lambda: items.append(1))


def by_method(cell: Cell) -> None:
    append = cell.items.append
    undone(lambda: append(1))


def by_inner_list(cell: Cell) -> None:
    cell.lines["a"] = Line([])
    amounts = cell.lines["a"].amounts
    undone(lambda: amounts.append(1))
    del cell.lines["a"]


def by_dictionary_of_a_record(cell: Cell) -> None:
    cell.lines["a"] = Line([])
    attributes = vars(cell.lines["a"])
    undone(lambda: attributes.update(amounts=[1]))
    assert cell.lines.pop("a").amounts == []


def by_weak_reference(cell: Cell) -> None:
    cell.lines["a"] = Line([])
    line = weakref.ref(cell.lines["a"])
    undone(lambda: line().amounts.append(1))  # type: ignore[union-attr]
    assert cell.lines.pop("a").amounts == []


def by_attributes(cell: Cell) -> None:
    attributes = vars(cell)
    undone(lambda: attributes.update(number=1))


def by_view(cell: Cell) -> None:
    lines = cell.lines.values()
    cell.lines["a"] = Line([])
    undone(lambda: [one.amounts.extend([1]) for one in lines])  # type: ignore[func-returns-value]
    assert cell.lines.pop("a").amounts == []


def by_another_entity(cell: Cell) -> None:
    kind: Any = Cell
    other = kind.create("other")
    other.items = cell.items
    undone(lambda: other.items.append(1))
    other.delete()


def in_a_loop(cell: Cell) -> None:
    cell.items = [1, 2]
    for _ in cell.items:
        undone(lambda: cell.items.append(3))
    assert cell.items == [1, 2]
    cell.items = []


def inside_what_stays(cell: Cell) -> None:
    with savepoint():
        items = cell.items
        undone(lambda: items.append(1))
        undone(lambda: cell.items.append(1))


def around_what_stays(cell: Cell) -> None:
    def twice() -> None:
        with savepoint():
            cell.items.append(1)
        cell.bump()

    undone(twice)


def after_what_was_undone(cell: Cell) -> None:
    def twice() -> None:
        undone(cell.bump)
        cell.bump()

    undone(twice)


WAYS = [
    by_list,
    by_method,
    by_inner_list,
    by_dictionary_of_a_record,
    by_weak_reference,
    by_attributes,
    by_view,
    by_another_entity,
    in_a_loop,
    inside_what_stays,
    around_what_stays,
    after_what_was_undone,
]


@transactional
def change_and_undo(way: int) -> None:
    WAYS[way](Cell("a"))


@contextmanager
def attempt() -> Iterator[None]:
    with suppress(Undo), savepoint():
        yield


@transactional
def attempt_twice() -> int:
    cell = Cell("a")
    with attempt():
        cell.bump()
    with attempt():
        cell.bump()
        go_back()
    return cell.number


def suspended(cell: Cell, block: Any) -> Iterator[int]:
    with block:
        cell.bump()
        yield cell.number


@transactional
def drop_generator(way: str) -> int:
    cell = Cell("a")
    generator = suspended(cell, savepoint())
    next(generator)
    if way == "kept":
        KEPT.append(generator)
    elif way == "cycle":
        cycle: list[Any] = [generator]
        cycle.append(cycle)
    del generator
    return cell.number


@transactional
def cross() -> int:
    cell = Cell("a")
    with savepoint():
        inner = suspended(cell, savepoint())
        next(inner)
    with suppress(StopIteration):
        next(inner)
    return cell.number


@transactional
def catch(method: str) -> str:
    try:
        return str(list(getattr(Cell("a"), method)() or []))
    except BaseException as error:  # noqa: BLE001 -- the worst that handlers do
        return type(error).__name__


@transactional
def each(method: str, count: int) -> list[int]:
    """Return how many calls of Python functions so many blocks and twice as many take."""
    taken = []
    kind: Any = Cell  # mypy does not know what `@entity` adds
    for many in (count, 2 * count):
        cells = [kind.create(f"{many}-{number}") for number in range(many)]
        calls = 0

        def note(_frame: object, event: str, _argument: object) -> None:
            nonlocal calls
            calls += event == "call"

        sys.setprofile(note)
        for cell in cells:
            if method == "look":
                cell.look()
            else:
                undone(cell.bump)
        sys.setprofile(None)
        taken.append(calls)
    return taken


app = App("blocks", Cell, change_and_undo, attempt_twice, drop_generator, cross, catch, each)


@pytest.fixture
def kit() -> Kit:
    kit = Kit(app)
    kit.call.Cell.create("a")
    return kit


@pytest.mark.parametrize("way", range(len(WAYS)), ids=[way.__name__ for way in WAYS])
def test_savepoint_undoes_what_passes_by_the_entity(kit: Kit, way: int) -> None:
    """A block's changes through a variable that was bound before are undone like all others."""
    before = kit.digest()
    kit.call.change_and_undo(way)
    assert kit.digest() == before


def test_savepoint_may_be_part_of_a_context_manager(kit: Kit) -> None:
    """A generator that is suspended in a block, resumed and leaves it breaks nothing."""
    assert kit.call.attempt_twice() == 1


@pytest.mark.parametrize("way", ["dropped", "kept", "cycle"])
def test_dropped_generator_fails_whenever_it_is_collected(kit: Kit, way: str) -> None:
    """A block that is never left undoes the transaction, whenever it is collected."""
    before = kit.digest()
    with pytest.raises(UserError, match="still open"):
        kit.call.drop_generator(way)
    kit.call.Cell("a").look()
    KEPT.clear()
    gc.collect()
    assert kit.digest() == before


def test_blocks_that_cross_fail(kit: Kit) -> None:
    """A block that outlives its outer block undoes the transaction."""
    with pytest.raises(UserError, match="still open"):
        kit.call.cross()


@pytest.mark.parametrize("method", ["leave", "later", "much_later"])
def test_readonly_holds_whatever_leaves_it(kit: Kit, method: str) -> None:
    """A caught `SystemExit`, a generator or code that runs later cannot write behind `@readonly`."""
    before = kit.digest()
    with pytest.raises(Aborted) as caught:
        kit.call.catch(method)
    assert caught.value.code == ReadonlyViolation.code
    assert kit.digest() == before


def test_readonly_request_writes_nothing_in_its_reply(kit: Kit) -> None:
    """Changes by encoding the reply of a `@readonly` request are refused."""
    with pytest.raises(Aborted) as caught:
        kit.call.Cell("a").later_by_reply()
    assert caught.value.code == ReadonlyViolation.code
    assert kit.entity("Cell", "a") is not None
    assert kit.entity("Cell", "a")["number"] == 0  # type: ignore[index]


@pytest.mark.parametrize("method", ["look", "bump"])
def test_block_costs_what_it_touches(kit: Kit, method: str) -> None:
    """Twice as many blocks in a transaction with twice as many entities cost twice as much."""
    once, twice = kit.call.each(method, 300)
    assert twice < 2.5 * once
