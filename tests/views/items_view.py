"""A view with a table of items in any target, for the tests of one target."""

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

import pytest

from penstock.testing.target_suite import position_of
from penstock.views.target import (
    UNSHOWN,
    ColumnShape,
    Kind,
    Row,
    TableChange,
    TableShape,
    Target,
    TargetProblem,
)

KEY = ColumnShape("_key", Kind.TEXT)
PRICE = ColumnShape("price", Kind.INTEGER)
STOCK = ColumnShape("stock", Kind.INTEGER)
REASONS = ColumnShape(UNSHOWN, Kind.JSON)
ITEM = TableShape("Item", 1, (KEY, PRICE, STOCK, REASONS))
WITHOUT_STOCK = TableShape("Item", 1, (KEY, PRICE, REASONS))
LARGER = TableShape("Item", 1, (KEY, PRICE, STOCK, ColumnShape("name", Kind.TEXT), REASONS))


def items(count: int, price: int = 5) -> list[Row]:
    return [(f"i{at}", price, at, None) for at in range(count)]


T = TypeVar("T", bound=Target)


class ItemsView(Generic[T]):
    """A view that begins with three items."""

    def __init__(self, target: T) -> None:
        self.target = target
        self.epoch = 1
        target.load(None, position_of(1), [ITEM], [TableChange(ITEM, (), items(3))])

    def load(self, shape: TableShape, rows: Sequence[Row]) -> None:
        before, after = position_of(self.epoch), position_of(self.epoch + 1)
        self.target.load(before, after, [shape], [TableChange(shape, (), rows)])
        self.epoch += 1

    def apply(self, *rows: Row) -> None:
        before, after = position_of(self.epoch), position_of(self.epoch + 1)
        self.target.apply(before, after, [TableChange(ITEM, [row[0] for row in rows], rows)])
        self.epoch += 1

    def rejected(self, write: Callable[[], None]) -> TargetProblem:
        """Return the problem of a write that fails, after which the position is as before."""
        with pytest.raises(TargetProblem) as caught:
            write()
        assert self.target.position().position == position_of(self.epoch)
        return caught.value
