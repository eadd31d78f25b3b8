"""A view with two tables for tests of the search index, its positions, and what an index shows."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from penstock.base.ids import Epoch
from penstock.model.target_choice import TargetChoice, search
from penstock.views.search_index import SearchIndex, SearchQuery
from penstock.views.search_target import SearchTarget
from penstock.views.target import (
    FAILED,
    Kind,
    Position,
    Row,
    TableChange,
    TableShape,
)

ITEMS: Final = TableShape.of(
    "Item",
    1,
    {
        "_key": Kind.TEXT,
        "name": Kind.TEXT,
        "brand": Kind.TEXT,
        "price": Kind.DECIMAL,
        "stock": Kind.INTEGER,
        "made": Kind.TIMESTAMP,
        "tags": Kind.JSON,
        "sold": Kind.BOOLEAN,
    },
)
ORDERS: Final = TableShape.of(
    "open_orders",
    2,
    {"_key": Kind.TEXT, "_place": Kind.INTEGER, "name": Kind.TEXT, "price": Kind.TEXT},
)
FAILED_ROWS: Final = TableShape.of(FAILED, 1, {"_key": Kind.TEXT, "reason": Kind.TEXT})
SHAPES: Final = (ITEMS, ORDERS, FAILED_ROWS)
CHOICE: Final = search(text=["name"], facets=["brand", "tags", "sold"])


def item(key: str, name: str, **given: Any) -> Row:
    values = {"_key": key, "name": name, **given}
    return tuple(values.get(each) for each in ITEMS.names)


def order(key: str, place: int, name: str) -> Row:
    return key, place, name, None, None


def position(epoch: int) -> Position:
    return Position("lineage", "journal", Epoch(epoch), f"sum{epoch}", "definition")


def filled(
    folder: Path, rows: Iterable[Row] = (), epoch: int = 0, choice: TargetChoice = CHOICE
) -> SearchTarget:
    target = SearchTarget(folder, choice)
    before = target.position().position
    target.load(before, position(epoch), SHAPES, [TableChange(ITEMS, (), list(rows))])
    return target


def changed(target: SearchTarget, epoch: int, touched: Sequence[str], rows: Sequence[Row]) -> None:
    target.apply(position(epoch - 1), position(epoch), [TableChange(ITEMS, touched, rows)])


def found(folder: Path, query: str = "", **more: Any) -> list[str]:
    """Return the keys of the rows that a query finds, in order."""
    question = SearchQuery(query=query, limit=1_000, **more)
    answer = SearchIndex(folder).search(question)
    assert answer.total == len(answer.hits)
    return sorted(msgspec.json.decode(hit.row)["_key"] for hit in answer.hits)
