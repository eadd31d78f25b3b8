"""The search index keeps the contract of targets."""

import base64
import os
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import msgspec
import pytest
import tantivy

from penstock.model.target_choice import search
from penstock.testing.target_suite import TargetSuite
from penstock.views.search_fields import ROW, TABLE
from penstock.views.search_index import SearchIndex
from penstock.views.search_target import SearchTarget
from penstock.views.target import UNSHOWN, Kind, Row, TableShape, Target

_READ: dict[Kind, Callable[[Any], Any]] = {
    Kind.TEXT: str,
    Kind.INTEGER: int,
    Kind.BOOLEAN: bool,
    Kind.FLOAT: float,
    Kind.DECIMAL: Decimal,
    Kind.BYTES: base64.b64decode,
    Kind.DATE: date.fromisoformat,
    Kind.TIME: time.fromisoformat,
    Kind.TIMESTAMP: datetime.fromisoformat,
    Kind.DURATION: lambda text: msgspec.convert(text, timedelta),
    Kind.UUID: UUID,
}


@pytest.mark.turns(4, "views", "testing", of="the suite of targets, in an index")
class TestSearchTarget(TargetSuite):
    """An index of all kinds, some of them counted."""

    kills = int(os.environ.get("PENSTOCK_KILLS", "10"))

    def opened(self, place: Path) -> Target:
        return SearchTarget(place, search(facets=["integer", "text", "select"]))

    def rows_in(self, place: Path, shape: TableShape) -> list[Row]:
        index, _, _ = SearchIndex(place).writable()
        index.reload()
        searcher = index.searcher()
        query = tantivy.Query.term_query(index.schema, TABLE, shape.name)
        rows = []
        for _, address in searcher.search(query, limit=10_000).hits:
            table, values = msgspec.json.decode(
                bytes(searcher.doc(address).get_first(ROW) or b""),
                type=tuple[str, dict[str, msgspec.Raw]],
            )
            assert table == shape.name
            rows.append(
                tuple(
                    _value(column.name, column.kind, values[column.name])
                    for column in shape.columns
                )
            )
        return rows


def _value(name: str, column_kind: Kind, data: msgspec.Raw) -> Any:
    """Return a value of a row as its kind has it."""
    if column_kind == Kind.JSON and name != UNSHOWN:
        # The value null of JSON and an absent value look alike.
        return None if bytes(data) == b"null" else bytes(data).decode()
    value = msgspec.json.decode(data)
    return value if value is None or name == UNSHOWN else _READ[column_kind](value)
